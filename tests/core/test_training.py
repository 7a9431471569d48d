"""The training loop: the steps of a plain one, the stated average, nothing left behind."""

import copy
import io
import logging
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import Categorical, Dirichlet, kl_divergence

from bifkit import GlobalBIF, LocalBIF, training
from bifkit.networks import GlobalAlpha, ImportanceNetwork
from bifkit.presets import PRESETS
from bifkit.training import adamw, flush_denormals, importances, learning_copy, maximise

X = torch.from_numpy(np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32))
Y = (X[:, 1] > 0).long()
RANK = PRESETS["rank"].for_data(3, 1.0)
BOTH = pytest.mark.parametrize("kind", [GlobalBIF, LocalBIF])


def _g(x):
    return torch.stack([-3 * x[:, 1], 3 * x[:, 1]], 1)


def _same(yields=None):
    while True:
        if yields is not None:
            yields.append(len(X))
        yield X, Y


def _maximise(net, batches=None, steps=20, **kw):
    optimiser = kw.pop("optimiser", None) or torch.optim.Adam(net.parameters(), lr=0.05)
    kw = {"optimiser": optimiser, "name": "here", "kl_weight": 0.003} | kw
    batches = _same() if batches is None else batches
    return maximise(net, kw.pop("g", _g), batches, RANK, steps=steps, **kw)[0]


def test_tiny_numbers_are_flushed_only_meanwhile():
    def tiny():
        return float(torch.tensor(1e-38) * 0.1)

    assert tiny() > 0
    with pytest.raises(KeyError), flush_denormals():
        assert tiny() == 0
        with flush_denormals():
            pass
        assert tiny() == 0  # as it was
        raise KeyError
    assert tiny() > 0
    seen = []
    _maximise(GlobalAlpha(3), g=lambda x: seen.append(tiny()) or _g(x), steps=2)
    assert seen == [0.0, 0.0] and tiny() > 0


# the loop

@pytest.mark.parametrize("make", [lambda: GlobalAlpha(3), lambda: ImportanceNetwork(3, 3, hidden=8)])
def test_the_loop_takes_the_steps_of_a_plain_one(make):
    """The same draws, the same optimiser, and the ELBO from torch.distributions alone."""
    torch.manual_seed(0)
    ours = make()
    plain, steps, prior = copy.deepcopy(ours), 8, torch.full((3,), RANK.prior)
    torch.manual_seed(1)
    curve = _maximise(ours, steps=steps, optimiser=torch.optim.SGD(ours.parameters(), lr=0.1))
    torch.manual_seed(1)
    theirs, expected = torch.optim.SGD(plain.parameters(), lr=0.1), []
    for _ in range(steps):
        alpha = plain(X)
        f = Dirichlet(alpha.expand(60, 3)).rsample()
        seen = torch.lerp(X[torch.randint(60, (60,))], X, (3 * f).clamp(max=1))
        value = -torch.log(0.01 - Categorical(logits=_g(seen)).log_prob(Y).mean())
        value = value - 0.003 * kl_divergence(Dirichlet(alpha), Dirichlet(prior)).mean()
        theirs.zero_grad()
        (-value).backward()
        theirs.step()
        expected.append(value.item())
    assert curve.shape == (steps,) and np.allclose(curve, expected, rtol=1e-3, atol=1e-4)
    assert torch.allclose(ours(X), plain(X), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("steps", [1, 4, 5, 23, 100])
def test_the_average_is_over_the_last_fifth(steps):
    net, seen = GlobalAlpha(3), []

    class Watching(torch.optim.Adam):
        def step(self):
            super().step()
            seen.append(net.theta.detach().clone())

    _maximise(net, steps=steps, average=net.theta, optimiser=Watching(net.parameters(), lr=0.05))
    last = seen[-max(steps // 5, 1):]
    assert len(seen) == steps and torch.allclose(net.theta, torch.stack(last).mean(0), atol=1e-6)
    plain = GlobalAlpha(3)
    torch.manual_seed(0)
    _maximise(plain, steps=steps, optimiser=torch.optim.SGD(plain.parameters(), lr=0.0))
    assert torch.equal(plain.theta, GlobalAlpha(3).theta)


def test_as_many_batches_as_steps_and_the_schedule_with_them():
    taken, rates, net = [], [], GlobalAlpha(3)
    optimiser = torch.optim.Adam(net.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 0.1, total_steps=30)
    true = schedule.step
    schedule.step = lambda: (rates.append(schedule.get_last_lr()[0]), true())
    _maximise(net, _same(taken), steps=30, optimiser=optimiser, schedule=schedule)
    assert len(taken) in (30, 31) and len(rates) == 30 and rates[-1] < rates[0] < max(rates) == pytest.approx(0.1)


def test_what_the_optimiser_holds_learns_and_nothing_else():
    scale, net = nn.Parameter(torch.zeros(1, dtype=torch.float64)), GlobalAlpha(3)
    _maximise(net, g=lambda x: _g(x) * (1 + scale.float()), optimiser=adamw([*net.parameters(), scale], lr=0.05))
    assert scale.item() != 0
    other = nn.Parameter(torch.zeros(1))
    _maximise(GlobalAlpha(3), g=lambda x: _g(x) * (1 + other), steps=5)
    assert other.item() == 0


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_the_optimiser_is_adamw_and_without_decay_adam(decay):
    torch.manual_seed(0)
    start, grads = torch.randn(50), torch.randn(40, 50)
    mine, plain = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    ours = adamw([mine], lr=0.1, weight_decay=decay)
    theirs = torch.optim.AdamW([plain], lr=0.1, weight_decay=decay) if decay else torch.optim.Adam([plain], lr=0.1)
    for grad in grads:
        for vector, optimiser in ((mine, ours), (plain, theirs)):
            vector.grad = grad.clone()
            optimiser.step()
    assert torch.allclose(mine, plain, rtol=1e-4, atol=1e-5) and not torch.allclose(mine, start, atol=0.1)


def test_importances_are_followed_from_the_middle_on_and_looking_changes_nothing():
    net = ImportanceNetwork(3, 3, hidden=8).train()
    optimiser = torch.optim.SGD(net.parameters(), lr=0.0)
    _, followed = maximise(net, _g, _same(), RANK, steps=40, optimiser=optimiser, probe=X[:5],
                           kl_weight=0.003)
    assert len(followed) == 10 and all(torch.allclose(f.sum(1), torch.ones(5)) for f in followed)
    before, state = copy.deepcopy(net.state_dict()), torch.get_rng_state()
    importances(net, X)
    assert net.training and torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())


def test_the_bar_is_closed_when_a_step_fails(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with pytest.raises(ZeroDivisionError):
        _maximise(GlobalAlpha(3), g=lambda x: 1 / 0, progress=True)
    assert "here:" in sys.stderr.getvalue() and sys.stderr.getvalue().endswith("\r")


@pytest.mark.parametrize("steps, lines", [(7, 7), (20, 20), (100, 20), (250, 20)])
def test_the_log_has_about_twenty_lines(steps, lines, caplog):
    with caplog.at_level(logging.DEBUG, "bifkit"):
        curve = _maximise(GlobalAlpha(3), steps=steps)
    assert len(caplog.messages) == lines
    assert caplog.messages[-1] == f"here: step {steps} of {steps}, ELBO {curve[-1]:.4f}"


def test_learning_copy():
    g = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).eval().requires_grad_(False)
    learning = learning_copy(g)
    learning(torch.randn(9, 3) + 5)
    assert torch.equal(g[1].running_mean, torch.zeros(4)) and not torch.equal(learning[1].running_mean, torch.zeros(4))
    assert not g[1].training and [p.requires_grad for p in g.parameters()] == [False] * 6
    with pytest.warns(UserWarning, match="this g has none") as caught:
        GlobalBIF(nn.Linear(3, 2), preset="released", min_steps=2, epochs=1).fit(X, Y)
    assert caught[0].filename == __file__


# what a fit does with it

@BOTH
@pytest.mark.parametrize("size, expected", [(2, 2), (7, 7), (60, 60), (1000, 60)])
def test_batches_have_the_size_that_was_asked_for(kind, size, expected, monkeypatch):
    seen, true = [], training.elbo
    monkeypatch.setattr(training, "elbo", lambda g, x, *a, **kw: seen.append(len(x)) or true(g, x, *a, **kw))
    kind(nn.Linear(3, 2), min_steps=3, epochs=1, batch_size=size).fit(X, Y)
    assert set(seen) == {expected} and len(seen) == max(60 // expected, 3)


@BOTH
def test_the_device_is_gs_own(kind):
    for device in (None, "cpu", torch.device("cpu")):
        fitted = kind(nn.Linear(3, 2), min_steps=2, epochs=1, device=device).fit(X, Y)
        assert next(fitted.networks_[0].parameters()).device.type == "cpu"
    for device, message in (("cuda", r"g is on cpu, but device='cuda' was asked for: call model.to\('cuda'\) first"),
                            ("gpu", "device must be torch's name of one, such as 'cpu' or 'cuda'; got 'gpu'"),
                            (3.5, "device must be torch's name of one")):
        with pytest.raises(ValueError, match=message):
            kind(nn.Linear(3, 2), device=device).fit(X)
