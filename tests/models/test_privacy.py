"""The DP guarantee, piece by piece, against brute force and a second accountant."""

import math
from copy import deepcopy

import numpy as np
import pytest
import torch
from scipy import stats
from torch.func import functional_call, grad, vmap

from data_prep.seeding import seed_all
from experiments.models import privacy as pv
from experiments.models.classifiers import mlp, predict_proba

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
    assert e["gdp"] < e["prv"] < e["opacus_rdp"] < e["paper"] < e["sequential"]


def test_gaussian_epsilon_meets_delta():
    for sigma in (0.5, 2.0, 10.0):
        e = pv.gaussian_epsilon(sigma, 1e-5)
        x = np.linspace(-60, 60, 400001)  # brute force: delta is the integral of (p - e^eps q)+
        p, q = stats.norm.pdf(x, 1, sigma), stats.norm.pdf(x, 0, sigma)
        assert np.trapezoid(np.maximum(p - math.exp(e) * q, 0), x) == pytest.approx(1e-5, rel=0.01)


def test_prv_resolves_small_epsilon_and_noise_for_inverts_it():
    e = pv.epsilons(210.0, 3000 / 89198, 580)
    assert e["prv"] == pytest.approx(0.01, rel=0.02)
    assert e["autodp_poisson"] == pytest.approx(e["prv"], rel=0.15)  # two accountants, one size
    assert math.isnan(e["paper"])  # autodp's finite differences have lost their digits, and it says so
    assert 0.198 <= pv.prv(pv.noise_for(0.2, sample_rate=0.02, steps=50), 0.02, 50) <= 0.2


def test_no_noise_is_no_guarantee():
    assert set(pv.epsilons(0.0, 0.1, 10).values()) == {math.inf}


def test_ledger_says_which_bound_holds():
    run = pv.PrivateRun(noise=2.3, clip=1.0, sample_rate=pv.PAPER_RATE, steps=580, delta=1e-5, rows=29304,
                        epochs=20)
    book = pv.ledger([run])
    assert set(book.accountant[book.holds]) == {"autodp_poisson", "opacus_rdp", "prv"}
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
