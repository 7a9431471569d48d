"""Calibration against made-up refits whose scatter is known, brute force over pairs, and normal theory."""

import numpy as np
import pytest
from scipy import stats

from bifkit import Posterior
from bifkit.evaluation import calibration

SHARES = np.array([0.5, 0.3, 0.15, 0.04, 0.01])
MOVES = np.array([0.02, 0.01, 0.05, 0.02, 0.1])  # each feature's importance moves by this share from fit to fit


def made_up(n, seed=0, total=20.0):
    """Global fits whose means scatter in a known way; as fitted, their intervals are far too wide."""
    rng = np.random.default_rng(seed)
    return [Posterior(total * SHARES * np.exp(rng.normal(0, MOVES)), list("abcde")) for _ in range(n)]


def brute(fits, prob):
    inside = []
    for i, p in enumerate(fits):
        for j, q in enumerate(fits):
            if i != j:
                rest = p.alpha.sum() - p.alpha
                cdf = stats.beta.cdf(q.mean, p.alpha / p.temperature, rest / p.temperature)
                inside.append(abs(cdf - 0.5) <= prob / 2)
    return np.mean(inside, axis=0)


@pytest.mark.parametrize("prob", [0.5, 0.8, 0.95])
def test_coverage_is_that_of_all_ordered_pairs(prob):
    fits = [p.calibrated(temperature=0.005) for p in made_up(7)]
    found = calibration.coverage(fits, prob)
    assert np.allclose(found, brute(fits, prob)) and 0 < found.mean() < 1


def test_coverage_of_local_posteriors_counts_rows():
    rng = np.random.default_rng(1)
    fits = [Posterior(rng.gamma(50, size=(6, 3))) for _ in range(4)]
    rows = [calibration.coverage([p[i] for p in fits], 0.5) for i in range(6)]
    assert np.allclose(calibration.coverage(fits, 0.5), np.mean(rows, axis=0))


@pytest.mark.parametrize("n", [4, 10, 40])
def test_calibrated_intervals_hold_their_share_of_new_refits(n):
    """Each feature, few or many refits: on average over choices the 80 % interval holds 80 %."""
    judged, found = made_up(250, seed=99), []
    assert (calibration.coverage(judged) == 1).all()  # before
    for seed in range(30):
        t = calibration.temperature(made_up(n, seed=seed))
        found.append(calibration.coverage([p.calibrated(temperature=t) for p in judged]))
    assert np.abs(np.mean(found, axis=0) - 0.8).max() < 0.07, "every feature, not only their mean"
    assert abs(np.mean(found) - 0.8) < 0.03


def test_other_levels_are_honest_too():
    judged, t = made_up(300, seed=7), calibration.temperature(made_up(300, seed=8))
    for prob in (0.5, 0.95):
        assert np.abs(calibration.coverage([p.calibrated(temperature=t) for p in judged], prob) - prob).max() < 0.1


def test_the_temperature_matches_the_variance_of_two_refits():
    fits = made_up(1000, seed=3)
    sd = np.mean([p.calibrated(fits).sd for p in fits[:20]], axis=0)
    assert np.allclose(sd, np.sqrt(2) * np.std([p.mean for p in fits], axis=0), rtol=0.02)


def test_rows_of_local_refits_share_their_temperature():
    rng = np.random.default_rng(4)
    rows = rng.dirichlet(np.ones(4), size=200) + 0.05
    fits = [Posterior(30 * rows * np.exp(rng.normal(0, [0.02, 0.04, 0.08, 0.02], size=rows.shape))) for _ in range(24)]
    p = fits[0].calibrated(fits[12:])
    assert p.temperature.shape == (4,) and np.array_equal(p.mean, fits[0].mean)
    judged = [q.calibrated(temperature=p.temperature) for q in fits[:12]]
    assert np.abs(calibration.coverage(judged) - 0.8).max() < 0.08
    assert np.array_equal(p[5].temperature, p.temperature) and np.array_equal(p[5].sd, p.sd[5])


def test_a_feature_that_never_moves_gets_a_narrow_interval():
    fits = [Posterior([2.0, 1.0 + d, 1.0 - d]) for d in (-0.1, 0.0, 0.1, 0.05)]  # the first stays at one half
    with pytest.warns(UserWarning, match="3 refits say little .* ten or more"):
        lower, upper = fits[0].calibrated(fits[1:]).interval(0.8)
    assert upper[0] - lower[0] < 1e-4 and upper[1] - lower[1] > 0.05 and np.isfinite(upper).all()


def test_a_feature_that_comes_and_goes_gets_a_wide_one():
    fits = [Posterior(a) for a in ([1e-3, 5.0, 1e-3], [5.0, 1e-3, 1e-3], [1e-3, 5.0, 1e-3], [5.0, 1e-3, 1e-3])]
    t = calibration.temperature(fits)
    assert np.isfinite(t).all() and t[0] > 1e4  # wider than any Beta: as wide as there is
    assert np.isfinite(fits[0].calibrated(temperature=t).sd).all()


def test_held_out_judges_by_fits_that_did_not_choose():
    fits, seen = made_up(9), []

    def rule(choosing, prob):
        seen.append([id(p) for p in choosing])
        return calibration.temperature(choosing, prob)

    value = calibration.held_out(fits, 0.8, splits=3, rule=rule)
    order, by_hand = np.random.default_rng(0), []
    for chosen in seen:
        o = order.permutation(9)
        assert chosen == [id(fits[i]) for i in o[:6]]
        t = calibration.temperature([fits[i] for i in o[:6]])
        by_hand.append(brute([fits[i].calibrated(temperature=t) for i in o[6:]], 0.8))
    assert np.allclose(value, np.mean(by_hand, axis=0))
    seen.clear()
    calibration.held_out(fits, 0.8, splits=3, rule=rule, without=4)
    assert not any(id(fits[4]) in chosen for chosen in seen)
    with pytest.raises(ValueError, match="of 3 fits 2 choose and 1 are left"):
        calibration.held_out(fits[:3])


@pytest.mark.parametrize("call, message", [
    (lambda f: f[0].calibrated(3.0), "a number goes to temperature="),
    (lambda f: f[0].calibrated(f[1]), "must be a list of posteriors"),
    (lambda f: f[0].calibrated([p.alpha for p in f]), "got a ndarray"),
    (lambda f: f[0].calibrated(), "give either refits"),
    (lambda f: f[0].calibrated(f, temperature=2.0), "give either refits"),
    (lambda f: f[0].calibrated(f[:2]), "give at least 3, better 10"),
    (lambda f: f[0].calibrated(f, prob=80), "strictly between 0 and 1"),
    (lambda f: f[0].calibrated(f).calibrated(f), "calibrated already"),
    (lambda f: f[0].calibrated([f[1].calibrated(f), *f[2:]]), "not calibrated"),
    (lambda f: f[0].calibrated([Posterior(np.ones(5)) for _ in range(4)]), "not over the same features"),
    (lambda f: f[0].calibrated(temperature=[1.0, 2.0]), "one for each of the 5 features"),
    (lambda f: f[0].calibrated(temperature=-1.0), "positive number"),
    (lambda f: calibration.coverage(f[:1]), "at least two"),
])
def test_wrong_calls_are_explained(call, message):
    with pytest.raises(ValueError, match=message):
        call(made_up(5))
