"""g, X and the process belong to the user: fits in threads, in other modes and dtypes, and g's that misbehave."""

import threading
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from bifkit import GlobalBIF, LocalBIF, distill, refine

X = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
Y = (X[:, 0] > 0).astype(int)
BOTH = pytest.mark.parametrize("kind", [GlobalBIF, LocalBIF])


def _g(seed=0):
    torch.manual_seed(seed)
    g = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2))
    return g.train()


def _fit(kind, g, *, X=X, y=None, seed=0, **kw):
    if y is None:  # an untrained g has to say what it is
        kw = {"likelihood": "categorical"} | kw
    return kind(g, min_steps=60, epochs=1, seed=seed, **({"hidden": 8} if kind is LocalBIF else {}), **kw).fit(X, y)


def _state(g):
    return {k: v.clone() for k, v in g.state_dict().items()} | {n: m.training for n, m in g.named_modules()}


def _same(a, b):
    return all(torch.equal(v, b[k]) if isinstance(v, torch.Tensor) else v == b[k] for k, v in a.items())


@BOTH
@pytest.mark.parametrize("shared", [True, False], ids=["same g", "a g each"])
def test_four_threads_give_what_each_gives_alone(kind, shared):
    models = [_g(0 if shared else i) for i in range(4)]
    alone = [_fit(kind, g, seed=i).explain(X).alpha for i, g in enumerate(models)]
    models = [models[0]] * 4 if shared else models
    before, state, found = [_state(g) for g in models], torch.get_rng_state(), [None] * 4

    def work(i):
        found[i] = _fit(kind, models[i], seed=i).explain(X).alpha

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert all(np.array_equal(a, b) for a, b in zip(alone, found, strict=True))
    assert all(_same(b, _state(g)) for b, g in zip(before, models, strict=True))
    assert torch.equal(torch.get_rng_state(), state)


def test_refining_and_distilling_beside_a_fit_change_nothing():
    g = _g()
    explainer = _fit(LocalBIF, g)
    short = {"steps": 20, "queries": 50, "min_fidelity": None}
    jobs = [lambda: refine(explainer, X[:5], X, steps=5).alpha,
            lambda: distill(lambda r: r[:, 0], X, **short)(torch.tensor(X)).detach().numpy(),
            lambda: _fit(GlobalBIF, g).explain().alpha]
    alone, found = [job() for job in jobs], {}
    threads = [threading.Thread(target=lambda i=i, job=job: found.update({i: job()})) for i, job in enumerate(jobs)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert all(np.array_equal(a, found[i]) for i, a in enumerate(alone))


@BOTH
def test_a_fit_is_the_same_in_any_mode_of_torch(kind):
    alone = _fit(kind, _g()).explain(X).alpha
    g = _g()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        explainer = _fit(kind, g)
    assert np.array_equal(explainer.explain(X).alpha, alone)
    with torch.inference_mode():
        assert np.array_equal(_fit(kind, g).explain(X).alpha, alone)
    torch.set_default_dtype(torch.float64)
    try:
        again = _fit(kind, g).explain(X)
    finally:
        torch.set_default_dtype(torch.float32)
    assert np.isfinite(again.alpha).all() and again.alpha.shape == alone.shape


@BOTH
def test_a_g_in_half_precision_works(kind):
    g = _g().to(torch.bfloat16)
    assert np.isfinite(_fit(kind, g).explain(X).alpha).all() and g[0].weight.dtype == torch.bfloat16


class Writes(nn.Module):
    def forward(self, x):
        x *= 2
        return torch.stack([x[:, 0], x[:, 1]], 1)


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.calls = nn.Linear(4, 2), 0
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        self.seen += len(x)
        return self.linear(x)


class Normalises(nn.Module):
    """Batch statistics in forward, whatever the mode."""

    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.BatchNorm1d(4), nn.Linear(4, 2)

    def forward(self, x):
        self.norm.train()
        return self.linear(self.norm(x))


class Random(nn.Module):
    def forward(self, x):
        return torch.stack([x[:, 0], x[:, 1] + torch.randn(len(x))], 1)


@BOTH
def test_a_g_that_writes_into_its_input_is_refused_and_x_stays(kind):
    rows = torch.tensor(X)
    with pytest.raises(ValueError, match=r"writes into its input.*x\.clone"):
        _fit(kind, Writes(), X=rows)
    assert np.array_equal(rows.numpy(), X)


@BOTH
def test_a_g_that_counts_its_calls_is_as_before(kind):
    g = Counts()
    _fit(kind, g)
    assert g.calls == 0 and float(g.seen) == 0


@BOTH
def test_a_g_that_trains_batch_norm_inside_is_named_and_as_before(kind):
    g = Normalises().eval()
    before = _state(g)
    with pytest.warns(UserWarning, match="depends on the rows beside it"):
        _fit(kind, g)
    assert _same(before, _state(g))


def test_a_g_that_answers_differently_twice_is_named():
    with pytest.warns(UserWarning, match="differently twice"):
        _fit(GlobalBIF, Random())


@pytest.mark.parametrize("loader", [False, True])
def test_a_poor_score_is_named(loader):
    g = nn.Linear(4, 2)
    g.weight.data = torch.tensor([[5.0, 0, 0, 0], [-5.0, 0, 0, 0]])  # the labels turned round
    data = DataLoader(TensorDataset(torch.tensor(X), torch.tensor(Y)), batch_size=50)
    with pytest.warns(UserWarning, match="no better than the most frequent class"):
        _fit(GlobalBIF, g, **({"X": data} if loader else {"y": Y}))
    g.weight.data *= -1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", category=DeprecationWarning)
        _fit(GlobalBIF, g, **({"X": data} if loader else {"y": Y}))


def test_a_poor_regression_is_named():
    g = nn.Linear(4, 1)
    with pytest.warns(UserWarning, match=r"R\^2 = -"):
        _fit(GlobalBIF, g, y=X[:, 0] * 100 + 1000, likelihood="regression")


class Log(nn.Module):
    """Finite on the rows, which have x0 > x1, and not on mixtures of them."""

    def forward(self, x):
        value = (x[:, 0] - x[:, 1]).log()
        return torch.stack([value, -value], 1)


@BOTH
def test_nan_on_mixed_rows_is_said_to_be_gs(kind):
    rows = np.sort(X, axis=1)[:, ::-1].copy() + np.arange(200)[:, None].astype(np.float32) / 50
    with pytest.raises(FloatingPointError, match="NaN or infinity for .* rows whose features are those of different"):
        _fit(kind, nn.Sequential(Log(), nn.Linear(2, 2)), X=rows)


def test_nan_on_the_rows_themselves_names_the_first():
    rows = np.abs(X) + 1
    rows[:, 1] = 0.5
    rows[17, 1] = 50.0
    with pytest.raises(ValueError, match="for 1 of 200 rows, the first at position 17"):
        _fit(GlobalBIF, Log(), X=rows)
