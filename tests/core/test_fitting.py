"""The training loop: the numbers of torch's own optimisers step by step, the stated average, nothing left behind."""

import copy
import logging
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from bifkit import GlobalBIF, LocalBIF
from bifkit import training as fitting
from bifkit.elbo import elbo
from bifkit.gates import PRESETS
from bifkit.networks import GlobalAlpha, ImportanceNetwork
from bifkit.optim import AdamW, Flat, OneCycle, flattened, flushed

X = torch.from_numpy(np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32))
Y = (X[:, 1] > 0).long()
BOTH = pytest.mark.parametrize("kind", [GlobalBIF, LocalBIF])


def _net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 3))


def _g(x):
    return torch.stack([-3 * x[:, 1], 3 * x[:, 1]], 1)


def _adam(vectors, steps):
    return torch.optim.Adam(vectors, lr=0.05), None


def _same(yields=None):
    while True:
        if yields is not None:
            yields.append(len(X))
        yield X, Y


def _maximise(net, batches=None, steps=20, **kw):
    kw = {"optimiser": _adam, "name": "here", "kl_weight": 0.003, "probe": X[:5]} | kw
    batches = _same() if batches is None else batches
    return fitting.maximise(net, kw.pop("g", _g), batches, PRESETS["rank"], steps=steps, **kw)[0]


# one vector for all parameters

@pytest.mark.parametrize("optimiser", [
    lambda p: torch.optim.Adam(p, lr=0.05), lambda p: torch.optim.Adam(p, lr=0.05, fused=True),
    lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=0.1, fused=True),
    lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
])
def test_one_vector_takes_the_steps_of_many_parameters(optimiser):
    plain, flat = _net(), _net()
    vectors = flattened(flat.parameters())
    ours, theirs = optimiser([v.vector for v in vectors]), optimiser(plain.parameters())
    for _ in range(30):
        theirs.zero_grad()
        F.cross_entropy(plain(X), Y).backward()
        theirs.step()
        vectors[0].vector.grad.zero_()
        F.cross_entropy(flat(X), Y).backward()
        ours.step()
    for a, b in zip(plain.parameters(), flat.parameters(), strict=True):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-5) and not torch.equal(a, torch.zeros_like(a))


def test_parameters_share_the_vector_until_released():
    net = _net()
    before = copy.deepcopy(net.state_dict())
    flat = Flat(net.parameters())
    assert all(torch.equal(before[k], v) for k, v in net.state_dict().items())  # values stay
    flat.vector.data.fill_(2.0)
    assert all((p == 2).all() for p in net.parameters())
    flat.release()
    flat.vector.data.fill_(3.0)
    assert all((p == 2).all() and p.grad is None and p.is_leaf and p.requires_grad for p in net.parameters())
    storages = [p.untyped_storage() for p in net.parameters()]
    assert len({s.data_ptr() for s in storages}) == len(storages)
    assert all(s.nbytes() == 4 * p.numel() for s, p in zip(storages, net.parameters(), strict=True))


def test_a_vector_for_each_dtype():
    single, double = _net(), _net().double()
    flats = flattened([*single.parameters(), *double.parameters()])
    assert [f.vector.dtype for f in flats] == [torch.float32, torch.float64]
    assert [f.vector.numel() for f in flats] == [sum(p.numel() for p in single.parameters())] * 2


@pytest.mark.parametrize("decay", [0.0, 0.3])
@pytest.mark.parametrize("steps", [1, 2, 3, 10, 40, 1000])
def test_optimiser_and_cycle_are_torchs(decay, steps):
    """Step by step the same rates, momenta and numbers; without decay, Adam's."""
    torch.manual_seed(0)
    start, slopes = torch.randn(50), torch.randn(steps, 50)
    mine, plain = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    ours = AdamW([mine], lr=0.1, weight_decay=decay)
    theirs = torch.optim.AdamW([plain], lr=0.1, weight_decay=decay) if decay else torch.optim.Adam([plain], lr=0.1)
    cycle = OneCycle(ours, 0.1, steps)
    schedule = torch.optim.lr_scheduler.OneCycleLR(theirs, 0.1, total_steps=steps)
    for slope in slopes:
        group = theirs.param_groups[0]
        assert (ours.lr, ours.beta1) == pytest.approx((group["lr"], group["betas"][0]), rel=1e-9)
        for vector, optimiser, then in ((mine, ours, cycle), (plain, theirs, schedule)):
            vector.grad = slope.clone()
            optimiser.step()
            then.step()
        assert torch.allclose(mine, plain, rtol=1e-5, atol=1e-6)
    assert steps < 10 or not torch.allclose(mine, start, atol=0.1)


def test_tiny_numbers_are_flushed_only_meanwhile():
    def tiny():
        return float(torch.tensor(1e-38) * 0.1)

    assert tiny() > 0
    with pytest.raises(KeyError), flushed():
        assert tiny() == 0
        with flushed():
            pass
        assert tiny() == 0  # as it was
        raise KeyError
    assert tiny() > 0
    seen = []
    _maximise(GlobalAlpha(3), g=lambda x: seen.append(tiny()) or _g(x), steps=2)
    assert seen == [0.0, 0.0] and tiny() > 0


def test_a_first_fit_does_not_wait_for_what_it_does_not_need():
    """torch's first optimiser of a process loads its compiler, its first gradient from outside sympy: seconds."""
    code = "import sys, torch; from bifkit import GlobalBIF, LocalBIF\n" \
        "for kind in (GlobalBIF, LocalBIF):\n" \
        "    kind(torch.nn.Linear(3, 2), min_steps=3, epochs=1).fit(torch.randn(9, 3))\n" \
        "print([m for m in ('torch._dynamo', 'sympy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


# the loop

@pytest.mark.parametrize("make", [lambda: GlobalAlpha(3), lambda: ImportanceNetwork(3, 3, hidden=8)])
def test_the_loop_takes_the_steps_of_a_plain_one(make):
    """The same draws, torch's own optimiser on the parameters themselves, and the ELBO that was written down.

    Between two evaluations of the KL the curve keeps the last one. A bias that BatchNorm takes away again does nothing:
    in a plain loop Adam blows rounding errors up to steps of it, ours leaves it where it is.
    """
    torch.manual_seed(0)
    ours = make()
    plain, steps = copy.deepcopy(ours), 25
    torch.manual_seed(1)
    curve = _maximise(ours, steps=steps)
    torch.manual_seed(1)
    theirs, expected = torch.optim.Adam(plain.parameters(), lr=0.05), []
    for step in range(steps):
        theirs.zero_grad()
        value, kl = elbo(_g, X, Y, plain(X), PRESETS["rank"], kl_weight=0.003)
        (-value).backward()
        theirs.step()
        if step % fitting.KL_EVERY == 0:
            known = kl.item()
        expected.append(value.item() + 0.003 * (kl.item() - known))
    assert curve.shape == (steps,) and np.allclose(curve, expected, rtol=1e-3, atol=1e-4)
    idle = ("body.0.bias", "body.3.bias")
    for (name, a), b in zip(ours.named_parameters(), plain.parameters(), strict=True):
        assert name in idle or torch.allclose(a, b, rtol=1e-2, atol=1e-3)
    assert torch.allclose(ours(X), plain(X), rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("steps", [1, 4, 5, 23, 100])
def test_the_average_is_over_the_last_fifth(steps):
    net, seen = GlobalAlpha(3), []

    class Watching(torch.optim.Adam):
        def step(self):
            super().step()
            seen.append(net.theta.detach().clone())

    _maximise(net, steps=steps, average=net.theta, optimiser=lambda v, n: (Watching(v, lr=0.05), None))
    last = seen[-max(steps // 5, 1):]
    assert len(seen) == steps and torch.allclose(net.theta, torch.stack(last).mean(0), atol=1e-6)
    plain = GlobalAlpha(3)
    torch.manual_seed(0)
    _maximise(plain, steps=steps, optimiser=lambda v, n: (torch.optim.SGD(v, lr=0.0), None))
    assert torch.equal(plain.theta, GlobalAlpha(3).theta)


def test_as_many_batches_as_steps_and_the_schedule_with_them():
    taken, rates = [], []

    def optimiser(vectors, steps):
        found = torch.optim.Adam(vectors, lr=0.1)
        schedule = torch.optim.lr_scheduler.OneCycleLR(found, 0.1, total_steps=steps)
        true = schedule.step
        schedule.step = lambda: (rates.append(schedule.get_last_lr()[0]), true())
        return found, schedule

    _maximise(GlobalAlpha(3), _same(taken), steps=30, optimiser=optimiser)
    assert len(taken) == 30 and len(rates) == 30 and rates[-1] < rates[0] < max(rates) == pytest.approx(0.1)


def test_further_parameters_learn_along():
    scale = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    net = GlobalAlpha(3)
    _maximise(net, g=lambda x: _g(x) * (1 + scale.float()), learned=[scale], steps=40)
    assert scale.item() != 0 and scale.grad is None and net.theta.grad is None
    other = nn.Parameter(torch.zeros(1))
    _maximise(GlobalAlpha(3), g=lambda x: _g(x) * (1 + other), steps=5)
    assert other.item() == 0


def test_the_bar_is_closed_when_a_step_fails(monkeypatch):
    closed = []

    class Bar(fitting.Steps):
        def __exit__(self, *error):
            closed.append(error[0])
            super().__exit__(*error)

    monkeypatch.setattr(fitting, "Steps", Bar)
    with pytest.raises(ZeroDivisionError):
        _maximise(GlobalAlpha(3), g=lambda x: 1 / 0)
    assert closed == [ZeroDivisionError]


@pytest.mark.parametrize("steps, lines", [(7, 7), (20, 20), (100, 20), (250, 20)])
def test_the_log_has_about_twenty_lines(steps, lines, caplog):
    with caplog.at_level(logging.DEBUG, "bifkit"):
        curve = _maximise(GlobalAlpha(3), steps=steps)
    assert len(caplog.messages) == lines
    assert caplog.messages[-1] == f"here: step {steps} of {steps}, ELBO {curve[-1]:.4f}"


def test_learning_copy():
    g = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).eval().requires_grad_(False)
    learning = fitting.learning_copy(g)
    learning(torch.randn(9, 3) + 5)
    assert torch.equal(g[1].running_mean, torch.zeros(4)) and not torch.equal(learning[1].running_mean, torch.zeros(4))
    assert not g[1].training and [p.requires_grad for p in g.parameters()] == [False] * 6
    with pytest.warns(UserWarning, match="this g has none") as caught:
        fitting.learning_copy(nn.Linear(3, 2))
    assert caught[0].filename == __file__


# what a fit does with it

@BOTH
def test_the_networks_of_a_fit_own_their_memory(kind):
    fitted = kind(nn.Linear(3, 2), min_steps=3, epochs=1).fit(X)
    for p in fitted.networks_[0].parameters():
        assert p.grad is None and p.untyped_storage().nbytes() == 4 * p.numel()


@BOTH
@pytest.mark.parametrize("size, expected", [(2, 2), (7, 7), (60, 60), (1000, 60)])
def test_batches_have_the_size_that_was_asked_for(kind, size, expected, monkeypatch):
    seen, true = [], fitting.descend
    monkeypatch.setattr(fitting, "descend", lambda g, x, *a, **kw: seen.append(len(x)) or true(g, x, *a, **kw))
    kind(nn.Linear(3, 2), min_steps=3, epochs=1, batch_size=size).fit(X)
    assert set(seen) == {expected} and len(seen) == max(60 // expected, 3)


@BOTH
def test_the_device_is_gs_own(kind):
    for device in (None, "cpu", torch.device("cpu")):
        fitted = kind(nn.Linear(3, 2), min_steps=2, epochs=1, device=device).fit(X)
        assert next(fitted.networks_[0].parameters()).device.type == "cpu"
    for device, message in (("cuda", r"g is on cpu, but device='cuda' was asked for: call model.to\('cuda'\) first"),
                            ("gpu", "device must be torch's name of one, such as 'cpu' or 'cuda'; got 'gpu'"),
                            (3.5, "device must be torch's name of one")):
        with pytest.raises(ValueError, match=message):
            kind(nn.Linear(3, 2), device=device).fit(X)
