"""Divergence and floor against torch.distributions, scipy and brute force."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from torch.distributions import Bernoulli, Dirichlet, kl_divergence

from experiments import divergence


def _draws(levels=(0.5, 1.0, 4.0, math.inf), seeds=5, d=6):
    rng = np.random.default_rng(0)
    return [(level, s, rng.gamma(2.0, 1.0, d) + 0.05) for level in levels for s in range(seeds)]


def _torch_kl(a, b):
    return float(kl_divergence(Dirichlet(torch.tensor(a)), Dirichlet(torch.tensor(b))))


def test_dirichlet_kl_is_torchs_in_the_stated_direction():
    a, b = np.array([3.0, 0.2, 1.0]), np.array([0.5, 2.0, 1.5])
    assert divergence.dirichlet_kl(a, b) == pytest.approx(_torch_kl(a, b), rel=1e-9)
    assert divergence.dirichlet_kl(a, b) != pytest.approx(divergence.dirichlet_kl(b, a), rel=0.05)  # direction


def test_bernoulli_kl_is_torchs_and_clamped():
    p, q = np.array([0.1, 0.5, 0.9]), np.array([0.3, 0.5, 0.2])
    expected = float(kl_divergence(Bernoulli(torch.tensor(p)), Bernoulli(torch.tensor(q))).sum())
    assert divergence.bernoulli_kl(p, q) == pytest.approx(expected, rel=1e-9)
    assert divergence.bernoulli_kl(p, q) == pytest.approx(sum(stats.entropy([a, 1 - a], [b, 1 - b])
                                                      for a, b in zip(p, q, strict=True)), rel=1e-9)
    clamped = stats.entropy([0.999, 0.001], [0.001, 0.999])
    assert divergence.bernoulli_kl([1.0], [0.0], clamp=1e-3) == pytest.approx(clamped)


def test_curve_averages_reference_against_level_over_paired_seeds():
    e = _draws()
    by = {(level, s): v for level, s, v in e}
    frame = divergence.curve(e, reference=math.inf)
    assert frame.level.tolist() == [0.5, 1.0, 4.0] and (frame.seeds == 5).all()
    for row in frame.itertuples():
        values = [_torch_kl(by[math.inf, s], by[row.level, s]) for s in range(5)]  # p = reference, q = level
        assert row.mean == pytest.approx(np.mean(values), rel=1e-6)
        assert row.se == pytest.approx(stats.sem(values), rel=1e-6)
    swapped = divergence.curve(e, reference=math.inf, swap=True)["mean"][0]
    assert swapped == pytest.approx(np.mean([_torch_kl(by[0.5, s], by[math.inf, s]) for s in range(5)]))


def test_floor_is_the_mean_over_all_ordered_pairs_of_seeds():
    e = _draws()
    by = {(level, s): v for level, s, v in e}
    frame = divergence.curve(e, reference=math.inf)
    for row in frame.itertuples():
        pairs = [_torch_kl(by[row.level, s], by[row.level, t]) for s in range(5) for t in range(5) if s != t]
        assert row.floor == pytest.approx(np.mean(pairs), rel=1e-6)
    pairs = [_torch_kl(by[math.inf, s], by[math.inf, t]) for s in range(5) for t in range(5) if s != t]
    assert frame.floor_reference.unique() == pytest.approx([np.mean(pairs)])
    assert divergence.floor(e).set_index("level").pairs[0.5] == 20


def test_equal_explanations_have_no_divergence_and_no_floor():
    frame = divergence.curve([(level, s, [1.0, 2.0, 3.0]) for level in (0, 1) for s in (0, 1)], reference=0)
    assert frame[["mean", "se", "floor", "floor_reference"]].abs().to_numpy().max() < 1e-9


def test_one_seed_has_no_floor():
    assert math.isnan(divergence.curve([(0, 7, [1.0, 2.0]), (1, 7, [2.0, 2.0])], reference=0).floor[0])


def test_verdict_against_scipy():
    frame = pd.DataFrame({"level": [0.1, 1.0, 2.0, 4.0], "mean": [8.0, 3.0, 4.0, 1.0],
                          "floor": [4.0, 1, 1, 1], "floor_reference": 2.0})
    v = divergence.verdict(frame.sample(frac=1, random_state=0))  # order of the rows must not matter
    assert v["spearman"] == pytest.approx(stats.spearmanr([0.1, 1, 2, 4], [8, 3, 4, 1]).statistic)
    assert (v["strongest_over_floor"], v["strongest_over_floor_reference"]) == (2.0, 4.0)
    assert divergence.verdict(frame, strongest="greatest")["strongest_over_floor"] == 1.0


@pytest.mark.parametrize("call, message", [
    (lambda: divergence.paired([(1, 0, [1.0, 2.0])], reference=0), "no explanation at the reference"),
    (lambda: divergence.paired([(1, 0, [1.0, 2.0]), (0, 1, [1.0, 2.0])], reference=0), "pairs need both"),
    (lambda: divergence.paired([(1, 0, [1.0, 2.0]), (1, 0, [1.0, 2.0])], reference=1), "occurs twice"),
    (lambda: divergence.dirichlet_kl([1.0, 2.0], [1.0, 2.0, 3.0]), "one length"),
    (lambda: divergence.dirichlet_kl([1.0, 0.0], [1.0, 2.0]), "positive"),
    (lambda: divergence.verdict(pd.DataFrame({"level": [1]}), strongest="most"), "strongest must be"),
])
def test_errors_say_what_to_do(call, message):
    with pytest.raises(ValueError, match=message):
        call()
