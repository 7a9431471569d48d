"""Gates and fills by hand-computed numbers and properties; settings refuse what they do not know."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bifkit.gates import FILLS, GATES, gate, gated
from bifkit.presets import PRESETS, TARGETS, Settings, preset

F = torch.tensor([0.5, 0.3, 0.15, 0.05])


@pytest.mark.parametrize("kind, expected", [
    ("simplex", [0.5, 0.3, 0.15, 0.05]),
    ("max", [1.0, 0.6, 0.3, 0.1]),
    ("saturating", [1.0, 1.0, 0.6, 0.2]),  # min(1, 4 f)
])
def test_gates_by_hand(kind, expected):
    assert torch.allclose(gate(F, kind), torch.tensor(expected))


@pytest.mark.parametrize("rand, expected", [  # m = f^2 / (f^2 + f_(j) f_(j+1))
    (0.0, [0.625, 0.375, 0.0225 / 0.1725, 0.0025 / 0.1525]),  # j = 4^0 = 1
    (0.6, [0.25 / 0.295, 2 / 3, 1 / 3, 0.0025 / 0.0475]),  # j = floor(4^.6) = 2
    (0.999, [0.25 / 0.2575, 0.09 / 0.0975, 0.75, 0.25]),  # j = 3, the most that leaves one out
])
def test_top_gate_by_hand(rand, expected, monkeypatch):
    monkeypatch.setattr(torch, "rand", lambda *shape, **kw: torch.full(shape, rand))
    assert torch.allclose(gate(F, "top"), torch.tensor(expected))


def test_top_gate_asks_for_one_feature_most_often_and_survives_draws_of_zero():
    torch.manual_seed(0)
    f = torch.softmax(-20.0 * torch.arange(8.0), 0).expand(4000, 8)  # 1, e-20, ... so sharp that m is a step
    counts = torch.bincount((gate(f, "top") > 0.5).sum(-1), minlength=8)[1:8] / 4000
    expected = torch.log(torch.arange(2.0, 9.0) / torch.arange(1.0, 8.0)) / np.log(8)  # P(floor(8^u) = j)
    assert (counts[:4] - expected[:4]).abs().max() < 0.03 and counts[0] > 0.3
    f = torch.tensor([[1.0, 0.0, 0.0, 0.0]], requires_grad=True)
    m = gate(f.expand(50, 4), "top")
    m.sum().backward()
    assert torch.isfinite(m).all() and torch.isfinite(f.grad).all()


@pytest.mark.parametrize("kind", GATES)
@given(weights=st.lists(st.floats(1e-3, 1e4), min_size=2, max_size=12))
@settings(max_examples=50, deadline=None, derandomize=True, database=None)
def test_gates_lie_in_0_1_and_keep_the_order(kind, weights):
    torch.manual_seed(0)  # the top gate draws its number of features
    f = torch.unique(torch.tensor(weights, dtype=torch.float64))  # in order; of equal ones the last bit may differ
    assume(len(f) > 1)
    f = f / f.sum()
    m = gate(f, kind)
    assert m.shape == f.shape and (m >= 0).all() and (m <= 1 + 1e-12).all()
    assert (m.diff() >= 0).all()
    assert (kind != "max" or m.max() == 1) and (kind != "simplex" or torch.equal(m, f))


def test_equal_importances_leave_the_input_as_it_is_unless_simplex():
    f = torch.full((3, 7), 1 / 7)
    assert torch.allclose(gate(f, "saturating"), torch.ones(3, 7)) and torch.allclose(gate(f, "max"), torch.ones(3, 7))
    assert torch.allclose(gate(f, "simplex"), torch.full((3, 7), 1 / 7))


def test_unknown_gate_is_refused():
    with pytest.raises(ValueError, match="gate must be one of simplex, max, top, saturating; got 'soft'"):
        gate(F, "soft")


def test_fills_by_hand():
    x = torch.tensor([[2.0, -4.0], [6.0, 8.0]])  # (B, D)
    m = torch.tensor([[[1.0, 0.25], [0.5, 0.0]]])  # (J, B, D)
    assert gated(x, m, "zero").tolist() == [[[2.0, -1.0], [3.0, 0.0]]]
    mean = torch.tensor([4.0, 2.0])
    assert gated(x, m, "mean", mean=mean).tolist() == [[[2.0, 0.5], [5.0, 2.0]]]  # m x + (1 - m) mean
    only = torch.tensor([[100.0, -8.0]])  # a pool of one row lends that one
    assert gated(x, m, "marginal", pool=only).tolist() == [[[2.0, -7.0], [53.0, -8.0]]]


def test_presets_are_the_documented_ones():
    assert list(PRESETS) == ["rank", "few", "paper", "released"]
    shape = {n: (s.gate, s.fill, s.target, s.batch_norm) for n, s in PRESETS.items()}
    assert shape == {"rank": ("saturating", "marginal", "soft", "frozen"), "few": ("top", "mean", "labels", "frozen"),
                     "paper": ("simplex", "zero", "labels", "frozen"),
                     "released": ("simplex", "zero", "labels", "train")}
    paper, released = PRESETS["paper"], PRESETS["released"]
    assert (paper.draws, paper.kl_weight, released.kl_weight) == (20, "elbo", "1/batch")
    price = {n: (s.fidelity, s.prior, s.global_steps) for n, s in PRESETS.items()}
    assert price == {"rank": ("relative", "auto", 2000), "few": ("absolute", 0.1, 2000),
                     "paper": ("absolute", 0.1, None), "released": ("absolute", 0.1, None)}
    assert (PRESETS["rank"].kl_weight, PRESETS["few"].kl_weight) == ("auto", 0.01)
    for s in PRESETS.values():
        assert s.changed() == s  # each passes its own checks


def test_a_change_makes_a_copy_and_none_means_unchanged():
    s = PRESETS["rank"]
    t = s.changed(prior=2.0, gate=None)
    assert (t.prior, t.gate) == (2.0, s.gate) and s.prior != 2.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        s.prior = 3.0
    assert preset("few", draws=np.int64(3)).draws == 3  # numpy's numbers are numbers


def test_the_width_sets_prior_and_price():
    at = {G: PRESETS["rank"].for_data(G, 1.0) for G in (2, 11, 50, 1000)}
    assert (at[11].prior, at[11].kl_weight) == (0.1, 0.009)
    assert at[50].prior == pytest.approx(0.022) and at[50].kl_weight == pytest.approx(0.009 * (50 / 11) ** (1 / 5))
    assert all(G * s.prior == pytest.approx(1.1) for G, s in at.items())  # what the prior claims does not grow
    weights = [s.kl_weight for s in at.values()]
    assert weights == sorted(weights) and np.log(weights[3] / weights[2]) / np.log(20) == pytest.approx(0.2)
    assert at[50].changed() == at[50].for_data(7, 1.0) == at[50]  # numbers pass the checks, and stay


def test_the_price_is_at_most_a_25th_of_what_there_is_to_gain():
    rank = PRESETS["rank"]
    for gain in (0.0, 0.01, 0.1, 0.2):
        assert rank.for_data(11, gain).kl_weight == pytest.approx(gain / 25)
        assert rank.for_data(50, gain).kl_weight == pytest.approx(gain / 25 * (50 / 11) ** 0.2)
        assert rank.for_data(11, gain).prior == 0.1
    for gain in (0.225, 1.0, 5.0):
        assert rank.for_data(11, gain).kl_weight == pytest.approx(0.009)


def test_a_users_own_number_stays_as_it_is():
    s = preset("rank", prior=0.5).for_data(50, 1.0)
    assert s.prior == 0.5 and s.kl_weight == PRESETS["rank"].for_data(50, 1.0).kl_weight
    s = preset("rank", kl_weight=0).for_data(50, 1.0)
    assert s.kl_weight == 0 and s.prior == pytest.approx(0.022)
    for name in ("few", "paper", "released"):
        assert PRESETS[name].for_data(50, 1.0) == PRESETS[name]
    assert preset("few", prior="auto", kl_weight="auto").for_data(11, 1.0).prior == 0.1


@pytest.mark.parametrize("name, value", [
    ("gate", "soft"), ("fill", "noise"), ("target", "hard"), ("batch_norm", "eval"), ("kl_weight", "beta"),
    ("kl_weight", -1.0), ("kl_weight", float("nan")), ("kl_weight", float("inf")), ("draws", 0), ("draws", 2.5),
    ("epochs", -1), ("min_steps", 0), ("batch_size", 1), ("hidden", 0), ("restarts", 0), ("prior", 0.0),
    ("prior", -1.0), ("prior", float("nan")), ("prior", float("inf")), ("prior", "one"), ("lr", 0.0),
    ("global_lr", "fast"), ("fidelity", "exact"), ("global_steps", 0), ("global_steps", 2.5),
])
def test_bad_values_are_refused_by_name(name, value):
    with pytest.raises(ValueError, match=name):
        Settings().changed(**{name: value})


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="unknown setting learning_rate; known: .*batch_size"):
        Settings().changed(learning_rate=1.0)
    for name in ("best", None, ["rank"]):
        with pytest.raises(ValueError, match="preset must be one of rank, few, paper, released"):
            preset(name)
    assert len(GATES) == 4 and len(FILLS) == 3 and len(TARGETS) == 2
