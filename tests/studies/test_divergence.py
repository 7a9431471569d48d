"""Distances, floors, tests and verdicts against torch.distributions, scipy, brute force and planted curves."""

import itertools

import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import Bernoulli, Dirichlet, kl_divergence

from experiments import divergence

LEVELS = [0, 1, 2, 3, 4, 5]


def _torch_kl(a, b):
    return float(kl_divergence(Dirichlet(torch.tensor(a)), Dirichlet(torch.tensor(b))))


def _planted(steps, seeds=20, noise=0.01):
    """Explanations over four features: at level l, ``steps[l]`` of the importance has moved from first to second."""
    rng = np.random.default_rng(0)
    out = []
    for seed in range(seeds):
        own = rng.normal(0, 0.03)  # what the models of a seed have in common
        for level, step in enumerate(steps):
            share = np.array([0.5 - step + own, 0.2 + step - own, 0.2, 0.1]) * np.exp(rng.normal(0, noise, 4))
            out.append((level, seed, 20 * share / share.sum()))
    return out


def _verdict(steps, statistic="distance", **how):
    explanations = _planted(steps, **how)
    table = divergence.curve(explanations, LEVELS)
    found = divergence.rises(divergence.sampled(divergence.stack(explanations, LEVELS)[0])[statistic])
    return divergence.decide(found["share"], bool(table["told"].iloc[-1])), table


def test_dirichlet_kl_is_torchs_in_the_stated_direction():
    a, b = np.array([3.0, 0.2, 1.0]), np.array([0.5, 2.0, 1.5])
    assert divergence.dirichlet_kl(a, b) == pytest.approx(_torch_kl(a, b), rel=1e-9)
    assert divergence.dirichlet_kl(a, b) != pytest.approx(divergence.dirichlet_kl(b, a), rel=0.05)  # direction


def test_bernoulli_kl_is_torchs_and_clamped():
    p, q = np.array([0.1, 0.5, 0.9]), np.array([0.3, 0.5, 0.2])
    expected = float(kl_divergence(Bernoulli(torch.tensor(p)), Bernoulli(torch.tensor(q))).sum())
    assert divergence.bernoulli_kl(p, q) == pytest.approx(expected, rel=1e-9)
    clamped = stats.entropy([0.999, 0.001], [0.001, 0.999])
    assert divergence.bernoulli_kl([1.0], [0.0], clamp=1e-3) == pytest.approx(clamped)


def test_a_curve_compares_averages_in_the_papers_direction():
    explanations = _planted([0, 0.02, 0.05, 0.1, 0.15, 0.2], seeds=6)
    by = {level: np.array([v for at, _, v in explanations if at == level]) for level in LEVELS}
    table = divergence.curve(explanations, LEVELS).set_index("level")
    for level in LEVELS[1:]:
        ref, here = by[0].mean(0), by[level].mean(0)
        assert table.loc[level, "kl"] == pytest.approx(_torch_kl(ref, here), rel=1e-6)  # reference || level
        assert table.loc[level, "kl_reverse"] == pytest.approx(_torch_kl(here, ref), rel=1e-6)
        shares = [(v / v.sum(1, keepdims=True)).mean(0) for v in (by[0], by[level])]
        assert table.loc[level, "distance"] == pytest.approx(np.abs(shares[0] - shares[1]).sum() / 2)
        assert table.loc[level, "kl_low"] < table.loc[level, "kl"] < table.loc[level, "kl_high"]


def test_selection_probabilities_are_not_renormalised():
    table = divergence.curve([(0, 0, [0.9, 0.9, 0.1]), (1, 0, [0.4, 0.9, 0.3])], [0, 1], kind="bernoulli")
    assert table["distance"].item() == pytest.approx(0.7)
    assert table["kl"].item() == pytest.approx(divergence.bernoulli_kl([0.9, 0.9, 0.1], [0.4, 0.9, 0.3]))


def test_the_floor_is_the_statistic_between_halves():
    rng = np.random.default_rng(0)
    refits = rng.gamma(5.0, 1.0, (4, 3))
    shares = refits / refits.sum(1, keepdims=True)
    halves = [np.abs(shares[list(h)].mean(0) - np.delete(shares, h, axis=0).mean(0)).sum() / 2
              for h in itertools.combinations(range(4), 2)]
    found = divergence.floor(refits, count=4000)["distance"]
    assert found == pytest.approx(max(halves), rel=1e-6)  # each of three halvings is drawn in a third of the cases
    assert np.isnan(divergence.floor(refits[:3])["kl"])


def test_the_test_of_selections_goes_through_all_signs():
    rng = np.random.default_rng(1)
    a = rng.uniform(0.2, 0.8, (8, 3))
    b = a + rng.normal(0.03, 0.08, (8, 3))
    moved = b - a  # all 256 signs
    drawn = [np.abs(np.array(s) @ moved).sum() for s in itertools.product([1, -1], repeat=8)]
    expected = np.mean(np.array(drawn) >= np.abs(moved.sum(0)).sum() - 1e-12)
    assert divergence.p_value(a, b, "bernoulli") == pytest.approx(expected, abs=0.02)
    assert divergence.p_value(a, a) == 1.0 and np.isnan(divergence.p_value(a[:1], b[:1]))


def test_spearman_is_scipys():
    values = np.random.default_rng(0).random((5, 6))
    expected = [stats.spearmanr(range(6), v).statistic for v in values]
    assert divergence.spearman(values) == pytest.approx(expected)
    assert np.isnan(divergence.spearman([[1.0, 1.0, 1.0]])[0])
    assert divergence.rises(np.ones((3, 4)))["share"] == 0  # a constant does not rise


def test_a_planted_rise_holds_and_a_flat_curve_does_not():
    verdict, table = _verdict([0, 0.02, 0.05, 0.1, 0.15, 0.2])
    assert verdict == "holds" and table["told"].all() and (table["p_holm"] >= table["p"]).all()
    assert (table["distance_low"] <= table["distance"]).all()
    verdict, table = _verdict([0, 0.2, 0.15, 0.1, 0.05, 0.02])  # the most at the weakest level
    assert verdict == "does not hold" and table["told"].iloc[0]
    verdict, table = _verdict([0, 0, 0, 0, 0, 0])
    assert verdict != "holds" and not table["told"].any()


def test_what_chance_could_have_made_cannot_be_decided():
    # two levels that lie as close together as the seeds scatter, in the right order: Spearman 1, now and then .8
    verdict, table = _verdict([0, 0.05, 0.052, 0.1, 0.102, 0.104], noise=0.05)
    assert verdict == "cannot be decided" and table["told"].iloc[-1]
    # rises in every resample, but five seeds lie within their own scatter
    few = [(level, seed, [5 + 3 * seed + 0.1 * level, 5.0]) for level in LEVELS for seed in range(5)]
    table = divergence.curve(few, LEVELS)
    found = divergence.rises(divergence.sampled(divergence.stack(few, LEVELS)[0])["distance"])
    assert found["share"] == 1 and not table["told"].iloc[-1]
    assert divergence.decide(found["share"], bool(table["told"].iloc[-1])) == "cannot be decided"


def test_a_move_is_the_line_over_all_levels():
    rng = np.random.default_rng(0)
    values = np.array([0.1, 0.3, 0.2, 0.5])[:, None] + rng.normal(0, 0.001, (4, 12))
    change, low, high = divergence.moves(values)
    assert change == pytest.approx(3 * stats.linregress(range(4), [0.1, 0.3, 0.2, 0.5]).slope, abs=0.002)
    assert low < change < high and high - low < 0.01
    assert divergence.decide_move(low, high, 1) == "holds" and divergence.decide_move(low, high, -1) == "does not hold"


def test_holm_by_hand():
    assert divergence.holm([0.04, 0.01, 0.5]) == pytest.approx([0.08, 0.03, 0.5])


@pytest.mark.parametrize("call, message", [
    (lambda: divergence.stack([(1, 0, [1.0, 2.0])], [0, 1]), "no explanation at level 0"),
    (lambda: divergence.stack([(1, 0, [1.0, 2.0]), (0, 1, [1.0, 2.0])], [0, 1]), "pairs need both"),
    (lambda: divergence.stack([(1, 0, [1.0, 2.0]), (1, 0, [1.0, 2.0])], [1]), "occurs twice"),
    (lambda: divergence.dirichlet_kl([1.0, 2.0], [1.0, 2.0, 3.0]), "one length"),
    (lambda: divergence.dirichlet_kl([1.0, 0.0], [1.0, 2.0]), "positive"),
])
def test_errors_say_what_to_do(call, message):
    with pytest.raises(ValueError, match=message):
        call()
