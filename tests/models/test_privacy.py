"""The DP guarantee, piece by piece, against brute force and a second accountant."""

import math
import random
from copy import deepcopy

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.func import functional_call, grad, vmap

from data_prep.seeding import seed_all
from experiments.models import privacy as pv
from experiments.models.classifiers import mlp, predict_proba
from experiments.models.row_check import check_rows_apart

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing")


def _data(n=1200, d=6):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, d)).astype("float32")
    return X, (X[:, 0] + X[:, 1] + rng.normal(size=n) > 0).astype(int)


def _model(d=6):
    seed_all("test", 0)
    return mlp([d, 20, 8, 1])


def _training(model, n=1200, **changes):
    return pv._Training(model, n, **{"noise": 0.0, "clip": 0.05, "epochs": 1, "batch_size": 100, "lr": 1.0,
                                     "weight_decay": 0.0, "seed": 0, "optimizer": "sgd", **changes})


def _per_sample_gradients(model, X, y):
    """(B, P): by torch.func, which shares no code with Opacus."""
    params = {k: v.detach().clone() for k, v in model.named_parameters()}

    def one(p, x, t):
        logit = functional_call(model, p, (x[None],)).squeeze()
        return torch.nn.functional.binary_cross_entropy_with_logits(logit, t)
    grads = vmap(grad(one), in_dims=(None, 0, 0))(params, X, y)
    return torch.cat([g.flatten(1) for g in grads.values()], 1)


def _flat(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()]).clone()


# ------------------------------------------------------------------ accountants

@pytest.mark.parametrize("sigma, printed", [(s, e) for s, e in pv.PAPER_EPSILON.items() if s])
def test_the_papers_noise_table(sigma, printed):
    assert pv.paper_epsilon(sigma) == pytest.approx(printed, rel=0.005)


# by the authors of each accountant's own tools at q = 1000/29304, 580 steps, delta = 1e-5
REFERENCE = {1.35: (3.447, 3.147, 18.98), 2.3: (1.645, 1.509, 9.66), 4.4: (0.763, 0.705, 4.46),
             8.4: (0.372, 0.347, 2.14), 17.0: (0.172, 0.165, 0.98)}


@pytest.mark.parametrize("sigma", REFERENCE)
def test_accountants_agree_and_are_ordered(sigma):
    e = pv.epsilons(sigma, pv.PAPER_RATE, pv.PAPER_STEPS)
    rdp, prv, sequential = REFERENCE[sigma]
    assert e["opacus_rdp"] == pytest.approx(e["autodp_poisson"], rel=0.02)
    assert e["opacus_rdp"] == pytest.approx(rdp, rel=0.01)
    assert e["prv"] == pytest.approx(prv, rel=0.01)
    assert e["sequential"] == pytest.approx(sequential, rel=0.01)
    assert e["gdp"] < e["pld"] < e["prv"] < e["opacus_rdp"] < e["paper"] < e["sequential"]


def test_gaussian_epsilon_meets_delta():
    for sigma in (0.5, 2.0, 10.0):
        e = pv.gaussian_epsilon(sigma, 1e-5)
        x = np.linspace(-60, 60, 400001)  # brute force: delta is the integral of (p - e^eps q)+
        p, q = stats.norm.pdf(x, 1, sigma), stats.norm.pdf(x, 0, sigma)
        assert np.trapezoid(np.maximum(p - math.exp(e) * q, 0), x) == pytest.approx(1e-5, rel=0.01)


# dp-accounting 0.6.0: from_gaussian_mechanism(sigma, sampling_prob=q) on a grid of 1e-5, composed 580 times
PLD = {1.35: 3.13664, 2.3: 1.49917, 4.4: 0.69461, 8.4: 0.33681, 17.0: 0.15503}


@pytest.mark.parametrize("sigma", PLD)
def test_pld_is_dp_accountings(sigma):
    e = pv.pld(sigma, pv.PAPER_RATE, pv.PAPER_STEPS)
    assert e == pytest.approx(PLD[sigma], rel=1e-4)
    assert 0 < pv.prv(sigma, pv.PAPER_RATE, pv.PAPER_STEPS) - e < 0.011  # PRV adds its error bound of .01


@pytest.mark.parametrize("sigma, rate", [(1.0, 0.2), (0.6, 0.5), (3.0, 0.9)])
def test_pld_of_one_step_meets_delta(sigma, rate):
    e = pv.pld(sigma, rate, 1, 1e-3)
    x = np.linspace(-60, 61, 400001)  # brute force, in both directions: a row removed, a row added
    without = stats.norm.pdf(x, 0, sigma)
    with_row = (1 - rate) * without + rate * stats.norm.pdf(x, 1, sigma)
    deltas = [np.trapezoid(np.maximum(p - math.exp(e) * q, 0), x)
              for p, q in ((with_row, without), (without, with_row))]
    assert max(deltas) == pytest.approx(1e-3, rel=0.01) and max(deltas) < 1.0001e-3  # never below the truth


def test_pld_without_sampling_is_the_gaussian_mechanism():
    for sigma, steps in ((1.35, 20), (8.4, 20), (2.0, 1)):
        assert pv.pld(sigma, 1.0, steps) == pytest.approx(pv.gaussian_epsilon(sigma / math.sqrt(steps)), rel=1e-4)
    assert pv.pld(0.0, 0.1, 10) == math.inf and math.isnan(pv.pld(0.01, 0.1, 10))


def test_prv_resolves_small_epsilon_and_noise_for_inverts_it():
    e = pv.epsilons(210.0, 3000 / 89198, 580)
    assert e["prv"] == pytest.approx(0.01, rel=0.02)
    assert e["autodp_poisson"] == pytest.approx(e["prv"], rel=0.15)  # two accountants, one size
    assert 0.92 * e["prv"] < e["pld"] < e["prv"]
    assert math.isnan(e["paper"])  # autodp's finite differences have lost their digits, and it says so
    assert 0.198 <= pv.prv(pv.noise_for(0.2, sample_rate=0.02, steps=50), 0.02, 50) <= 0.2


def test_no_noise_is_no_guarantee():
    assert set(pv.epsilons(0.0, 0.1, 10).values()) == {math.inf}


def test_ledger_says_which_bound_holds():
    run = pv.PrivateRun(noise=2.3, clip=1.0, sample_rate=pv.PAPER_RATE, steps=580, delta=1e-5, rows=29304,
                        epochs=20)
    book = pv.ledger([run])
    assert set(book.accountant[book.holds]) == {"autodp_poisson", "opacus_rdp", "prv", "pld"}
    assert book.accountant[book.quote].tolist() == ["prv"] and book.epsilon[book.quote].item() == run.epsilon
    sliced = pv.ledger([pv.PrivateRun(**{**run.__dict__, "sampling": "sequential"})])
    assert sliced.accountant[sliced.holds].tolist() == ["sequential"]
    assert not book.holds[book.accountant == "gdp"].item()


# ------------------------------------------------------------------ training

def test_per_sample_gradients_are_clipped_to_c():
    X, y = (torch.as_tensor(a[:100], dtype=torch.float32) for a in _data())
    for clip in (0.05, 0.5, 100.0):
        model = _model()
        t = _training(model, clip=clip)
        g = _per_sample_gradients(_model(), X, y)  # (B, P)
        norms = g.norm(dim=1)
        clipped = g * (clip / norms).clamp(max=1)[:, None]
        before = _flat(model)
        t.step(X, y)
        step = before - _flat(model)  # sgd with lr 1: the step is the noisy mean itself
        assert clipped.norm(dim=1).max() <= clip * 1.0001 and (clip == 100 or norms.max() > clip)
        assert torch.allclose(step, clipped.sum(0) / 100, atol=1e-6)


def test_one_row_moves_the_sum_by_at_most_c():
    """The sensitivity the accountants assume: neighbouring batches, one noise, sums at most C apart."""
    X, y = (torch.as_tensor(a[:100], dtype=torch.float32) for a in _data())
    X[0] *= 1000  # an outlier
    moved = []
    for rows in (slice(0, 100), slice(1, 100)):
        model = _model()
        t = _training(model, clip=0.3, noise=2.0)
        t.step(X[rows], y[rows])
        moved.append(_flat(model))
    assert (moved[0] - moved[1]).norm() * 100 == pytest.approx(0.3, rel=0.01)


@pytest.mark.parametrize("noise, clip", [(2.0, 0.5), (5.0, 1.0)])
def test_noise_has_the_stated_scale(noise, clip):
    X, y = (torch.as_tensor(a[:100], dtype=torch.float32) for a in _data())
    start, ends = mlp([6, 200, 100, 1]), []
    for sigma in (0.0, noise):  # one start and one batch, without and with noise
        model = deepcopy(start)
        _training(model, noise=sigma, clip=clip).step(X, y)
        ends.append(_flat(model).numpy())
    drawn = (ends[1] - ends[0]) * 100  # times the expected batch size: the noise on the sum
    assert len(drawn) > 20000 and drawn.std() == pytest.approx(noise * clip, rel=0.02)
    assert abs(drawn.mean()) < 4 * noise * clip / math.sqrt(len(drawn))
    assert stats.kstest(drawn / (noise * clip), "norm").pvalue > 1e-3


def test_sampling_is_poisson():
    X, y = _data()
    _, run = pv.dp_train(_model(), X, y, noise=1.0, epochs=25, batch_size=100)
    sizes = np.array(run.batch_sizes)
    n, q = 1200, 100 / 1200
    assert len(sizes) == 300 and abs(sizes.mean() - n * q) < 4 * math.sqrt(n * q * (1 - q) / 300)
    statistic = ((sizes - n * q) ** 2).sum() / (n * q * (1 - q))  # binomial: chi-squared, 300 degrees
    assert stats.chi2(300).ppf(1e-4) < statistic < stats.chi2(300).ppf(1 - 1e-4)
    rows = [set(r) for r in _training(_model(), epochs=25).sampler]
    together = np.mean([{0, 1} <= r for r in rows]), np.mean([0 in r for r in rows])
    assert together[0] < 0.05 and 0.02 < together[1] < 0.17  # q^2 = .007, q = .083: rows come independently


def test_the_accountant_counts_the_optimisers_steps(monkeypatch):
    taken = []
    real = torch.optim.AdamW.step
    monkeypatch.setattr(torch.optim.AdamW, "step", lambda self, *a: (taken.append(1), real(self, *a))[1])
    X, y = _data()
    _, run = pv.dp_train(_model(), X, y, noise=1.0, epochs=3, batch_size=100)
    assert len(taken) == run.steps == len(run.batch_sizes) == 36
    assert run.sample_rate == 100 / 1200


def test_empty_batches_are_steps_too():
    X, y = _data(40)
    model, run = pv.dp_train(_model(), X, y, noise=1.0, epochs=2, batch_size=1)
    assert 0 in run.batch_sizes and run.steps == 80 and np.isfinite(predict_proba(model, X)).all()


def test_same_seed_same_weights_and_paired_batches():
    X, y = _data()
    runs = [pv.dp_train(_model(), X, y, noise=s, epochs=1, batch_size=100, seed=k)
            for s, k in ((1.0, 5), (1.0, 5), (2.0, 5), (1.0, 6))]
    weights = [_flat(m) for m, _ in runs]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2]) and not torch.equal(weights[0], weights[3])
    assert runs[0][1].batch_sizes == runs[2][1].batch_sizes != runs[3][1].batch_sizes


def test_it_learns_and_comes_back_frozen():
    X, y = _data(3000)
    model, run = pv.dp_train(_model(), X, y, noise=1.0, epochs=10, batch_size=200)
    assert (predict_proba(model, X).argmax(1) == y).mean() > 0.75 and 0 < run.epsilon < 20
    assert not model.training and not any(p.requires_grad for p in model.parameters())
    assert model(torch.zeros(1, 6, requires_grad=True)).requires_grad  # an explainer can differentiate it
    assert not any(m._forward_hooks or m._backward_hooks for m in model.modules())  # nothing of Opacus stays


@pytest.mark.parametrize("changes, message", [
    ({"noise": -1.0}, "noise must be >= 0"), ({"clip": 0.0}, "clip > 0"),
    ({"batch_size": 5000}, "batch_size"), ({"y": np.array([0, 2] * 600)}, "labels 0 and 1"),
    ({"model": mlp([6, 4, 1], batch_norm=True)}, "BatchNorm")])
def test_errors_say_what_to_do(changes, message):
    X, y = _data()
    arguments = {"model": _model(), "X": X, "y": y, "noise": 1.0, "batch_size": 100, **changes}
    with pytest.raises(ValueError, match=message):
        pv.dp_train(arguments.pop("model"), arguments.pop("X"), arguments.pop("y"), **arguments)


# ------------------------------------------------------------------ what would void the guarantee

@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])  # the last is infinite in float32
def test_rows_that_clipping_cannot_bound_are_refused(value):
    X, y = _data()
    X = X.astype(float)
    X[700, 2] = value
    with pytest.raises(ValueError, match=r"1 rows of X hold NaN or infinity \(first: row 700\)"):
        pv.dp_train(_model(), X, y, noise=1.0, batch_size=100)


def test_a_row_that_overflows_ends_in_an_error():
    X, y = _data()
    X[700] = 3e38
    with pytest.raises(ValueError, match="NaN or infinit"):
        pv.dp_train(_model(), X, y, noise=1.0, epochs=3, batch_size=400)


class _Mixer(nn.Module):
    """A layer that lets rows see each other, in one of many ways."""

    def __init__(self, way):
        super().__init__()
        self.way, self.past = way, 0.0
        self.register_buffer("seen", torch.zeros(6))

    def forward(self, x):
        if self.way == "count":
            return x / len(x) if self.training else x
        if self.way == "first row":
            return torch.cat([x[:1], x[1:] + 1e-3 * x[:1]])
        if self.way == "attention":
            return torch.softmax(x @ x.T, 1) @ x
        if self.way == "past":
            self.past, x = x.mean(0), x - self.past
            return x
        if self.way == "buffer" and self.training:
            self.seen = x.mean(0)
            return x
        if self.way == "training only":
            return x - x.mean(0) if self.training else x
        return x - {"mean": x.mean(0), "maximum": x.amax(0), "buffer": 0.0}[self.way]


def _snapshot(model):
    return {k: v.clone() for k, v in model.state_dict().items()}, [m.training for m in model.modules()]


class _FunctionalDropout(nn.Module):
    def forward(self, x):
        return nn.functional.dropout(x, 0.5, self.training)


@pytest.mark.parametrize("way, head", [(w, h) for w in ("mean", "maximum", "training only", "attention", "first row",
                                                        "count", "past", "buffer") for h in ("random", "zero")]
                         + [("training only", "functional dropout")])
def test_a_model_that_mixes_rows_is_refused(way, head):
    X, y = _data()
    seed_all("mixer", 0)
    dropout = _FunctionalDropout() if head == "functional dropout" else nn.Dropout(0.3)
    model = nn.Sequential(nn.Linear(6, 6), _Mixer(way), dropout, nn.Linear(6, 1)).eval()
    if head == "zero":  # at the start all outputs are alike, whatever the rows
        nn.init.zeros_(model[-1].weight)
    state, modes = _snapshot(model)
    for train in (lambda: check_rows_apart(model, torch.as_tensor(X)),
                  lambda: pv.dp_train(model, X, y, noise=1.0, batch_size=100)):
        with pytest.raises(ValueError, match="no guarantee holds"):
            train()
    after, modes_after = _snapshot(model)
    assert modes == modes_after and all(torch.equal(state[k], after[k]) for k in state)
    assert not any(m._forward_hooks or m._backward_hooks for m in model.modules())


@pytest.mark.parametrize("layer", [nn.Dropout(0.5), _FunctionalDropout(), nn.LayerNorm(6), nn.GroupNorm(2, 6),
                                   nn.Softmax(1), nn.utils.parametrizations.spectral_norm(nn.Linear(6, 6))])
def test_a_model_that_keeps_rows_apart_passes(layer):
    X = torch.as_tensor(_data()[0])
    model = nn.Sequential(nn.Linear(6, 6), layer, nn.Linear(6, 1))
    (state, modes), random_state = _snapshot(model), torch.get_rng_state()
    check_rows_apart(model, X)
    assert torch.equal(random_state, torch.get_rng_state()) and modes == _snapshot(model)[1]
    assert all(torch.equal(v, model.state_dict()[k]) for k, v in state.items())
    if not isinstance(layer, nn.Linear):  # Opacus does not take a weight that is computed from another
        _, run = pv.dp_train(model, X, _data()[1], noise=1.0, epochs=1, batch_size=100)
        assert run.steps == 12


def test_a_weight_that_opacus_does_not_see_is_refused():
    """Used by its layer and beside it: the layer's part of the gradient alone would be clipped."""
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 1)

        def forward(self, x):
            return self.b(torch.tanh(self.a(x) + 5 * x @ self.a.weight.T))
    X, y = _data()
    check_rows_apart(Twice(), torch.as_tensor(X))
    with pytest.raises(ValueError, match="clips this model's gradients wrongly"):
        pv.dp_train(Twice(), X, y, noise=1.0, batch_size=100)


def test_the_model_returns_one_logit_per_row():
    with pytest.raises(ValueError, match=r"one logit per row, \(8, 1\) for 8 rows; got \(8, 2\)"):
        pv.dp_train(mlp([6, 4, 2]), *_data(), noise=1.0, batch_size=100)


@pytest.mark.parametrize("secure", [False, True])
def test_generators_and_threads_are_left_as_they_were(secure):
    X, y = _data()
    threads = torch.get_num_threads()
    try:
        for mistake in (False, True):
            torch.set_num_threads(2)
            before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
            if mistake:
                with pytest.raises(ValueError):
                    pv.dp_train(_Mixer("mean"), X, y, noise=1.0, batch_size=100, secure=secure)
            else:
                model = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5), nn.Linear(6, 1))
                before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
                pv.dp_train(model, X, y, noise=1.0, epochs=1, batch_size=100, secure=secure)
            assert before == (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


# ------------------------------------------------------------------ noise from the operating system

def test_secure_noise_is_normal_with_the_stated_scale():
    drawn = pv.secure_normal((200, 200)).ravel()
    assert stats.kstest(drawn, "norm").pvalue > 1e-6 and stats.kstest(pv.secure_uniform(40000), "uniform").pvalue > 1e-6
    X, y = (torch.as_tensor(a[:100], dtype=torch.float32) for a in _data())
    start, ends = mlp([6, 200, 100, 1]), []
    for sigma in (0.0, 2.0):
        model = deepcopy(start)
        _training(model, noise=sigma, clip=0.5, secure=True).step(X, y)
        ends.append(_flat(model).numpy())
    noise = (ends[1] - ends[0]) * 100
    assert noise.std() == pytest.approx(1.0, rel=0.03) and stats.kstest(noise, "norm").pvalue > 1e-6


def test_secure_runs_take_nothing_from_the_seed(monkeypatch):
    X, y = _data()

    def run(seed=5):
        model, done = pv.dp_train(_model(), X, y, noise=1.0, epochs=2, batch_size=100, seed=seed, secure=True)
        assert done.secure and abs(np.mean(done.batch_sizes) - 100) < 6 * math.sqrt(100 / 24)
        return _flat(model), done.batch_sizes
    (a, sizes), (b, others) = run(), run()
    assert not torch.equal(a, b) and sizes != others
    ends = []
    for seed in (5, 6):  # with the operating system's bytes fixed, nothing is left for the seed to decide
        monkeypatch.setattr(pv.os, "urandom", np.random.default_rng(0).bytes)
        ends.append(run(seed))
    assert torch.equal(ends[0][0], ends[1][0]) and ends[0][1] == ends[1][1]
