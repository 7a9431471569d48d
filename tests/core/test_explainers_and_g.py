"""Fitting leaves g, the data and every global random state exactly as they were, also when it fails midway."""

import random

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError
from torch import nn

from bifkit import GlobalBIF, LocalBIF
from bifkit import explainers as explain
from experiments.models.classifiers import paper_g

X = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
Y = (X[:, 1] > 0).astype(int)
BOTH = pytest.mark.parametrize("kind", [GlobalBIF, LocalBIF])
PRESETS = pytest.mark.parametrize("preset", ["rank", "few", "paper", "released"])


def _bif(kind, model, *args, **kw):
    small = {"min_steps": 10, "epochs": 1, "batch_size": 100} | ({"hidden": 16} if kind is LocalBIF else {})
    return kind(model, *args, **small | kw)


def _bn_model():
    torch.manual_seed(0)
    g = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2))
    g(torch.randn(50, 4))  # some statistics
    g.train()
    g[3].eval()
    g[0].weight.requires_grad_(False)
    g[4].bias.grad = torch.ones(2)
    return g


def _snapshot(g):
    return ({k: v.clone() for k, v in g.state_dict().items()}, [m.training for m in g.modules()],
            [p.requires_grad for p in g.parameters()],
            [None if p.grad is None else p.grad.clone() for p in g.parameters()],
            [len(m._forward_hooks) + len(m._backward_hooks) for m in g.modules()])


def _same(a, b):
    return (all(torch.equal(a[0][k], b[0][k]) for k in a[0]) and a[1:3] == b[1:3] and a[4] == b[4]
            and all(x is y is None or torch.equal(x, y) for x, y in zip(a[3], b[3], strict=True)))


@BOTH
@PRESETS
def test_nothing_of_g_changes(kind, preset):
    g = _bn_model()
    before = _snapshot(g)
    fitted = _bif(kind, g, preset, min_steps=5).fit(X, Y)
    assert _same(before, _snapshot(g))
    fitted.explain(X)
    assert _same(before, _snapshot(g))


class _Breaks(nn.Module):
    """A g that fails at its n-th call."""

    def __init__(self, inner, calls):
        super().__init__()
        self.inner, self.left = inner, calls

    def forward(self, x):
        self.left -= 1
        if self.left < 0:
            raise InterruptedError("broken on purpose")
        return self.inner(x)


@BOTH
@PRESETS
@pytest.mark.parametrize("calls", [1, 4])
def test_nothing_changes_when_fit_fails_midway(kind, preset, calls):
    g = _Breaks(_bn_model(), calls)
    before, random_state = _snapshot(g), torch.get_rng_state()
    explainer = _bif(kind, g, preset)
    with pytest.raises(InterruptedError):
        explainer.fit(X, Y)
    assert _same(before, _snapshot(g)) and torch.equal(random_state, torch.get_rng_state())
    with pytest.raises(NotFittedError, match="is not fitted: call fit"):
        explainer.explain(X)


@BOTH
def test_a_failed_refit_leaves_no_mixture(kind):
    explainer = _bif(kind, _bn_model()).fit(X, Y)
    explainer.model = _Breaks(_bn_model(), 3)
    with pytest.raises(InterruptedError):
        explainer.fit(X, Y)
    with pytest.raises(NotFittedError, match="is not fitted"):
        explainer.save("never written")


@BOTH
def test_global_random_states_and_data_are_untouched(kind):
    rows, labels, g = X.copy(), Y.copy(), _bn_model()
    states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate(), torch.get_num_threads()
    _bif(kind, g).fit(X, Y).explain(X)
    assert torch.equal(states[0], torch.get_rng_state()) and np.array_equal(states[1], np.random.get_state()[1])
    assert states[2:] == (random.getstate(), torch.get_num_threads())
    assert np.array_equal(rows, X) and np.array_equal(labels, Y)


def test_released_learns_on_a_copy_and_differs_from_paper():
    g = paper_g(4, 2).eval()
    alphas = [_bif(GlobalBIF, g, preset, kl_weight=0.01).fit(X, Y).explain().alpha for preset in ("released", "paper")]
    assert not np.allclose(*alphas)
    with pytest.warns(UserWarning, match="rests on g's BatchNorm layers, and this g has none"):
        _bif(GlobalBIF, nn.Linear(4, 2), "released").fit(X, Y)


def test_each_restart_of_released_starts_from_the_same_g(monkeypatch):
    monkeypatch.setattr(explain, "derive_seed", lambda *keys: 1)  # the same stream for both: then the fits must agree
    torch.manual_seed(0)
    fitted = _bif(GlobalBIF, paper_g(4, 2), "released", restarts=2, lr=0.5).fit(X, Y)
    assert torch.equal(*(net.theta for net in fitted.networks_))
