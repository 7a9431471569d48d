"""The uncertainty study against brute force, hand-made frames and its own stored claims."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from bifkit import Posterior
from bifkit.evaluation import metrics
from data_prep.synthetic import make_synthetic
from experiments import uncertainty
from experiments.runner import paths, study

ROOT = paths.root()  # the tests' own results() is a scratch folder


@pytest.fixture(scope="module")
def stored():
    """The committed rows of the three grids."""
    patch = pytest.MonkeyPatch()
    patch.setenv("BIF_OUTPUT", str(ROOT))
    names = ("uncertainty", "uncertainty_changes", "uncertainty_rows")
    functions = (uncertainty.refit, uncertainty.change, uncertainty.instances)
    frames = [study.run(f, g, name=n) for f, g, n in zip(functions, uncertainty.grids(), names, strict=True)]
    patch.undo()
    return frames


def test_grids_have_no_row_twice_and_no_choice_on_reported_seeds():
    for grid in uncertainty.grids():
        rows = [json.dumps(r, sort_keys=True) for r in grid]
        assert len(set(rows)) == len(rows)
    refits, _, instances = uncertainty.grids()
    assert {r["seed"] for r in refits if r["source"] == "resampled"}.isdisjoint(range(30))
    assert {r["seed"] for r in instances} == {0, 1, 2, 3, 4, 100, 101, 102}


def test_a_refit_is_a_posterior_that_repeats():
    row = {"dataset": "Syn2", "source": "fresh", "seed": 100, "rows": 400, "steps": 100}
    first, again = uncertainty.refit(**row), uncertainty.refit(**row)
    assert first == again and len(first["alpha"]) == 11
    assert first["sum_sd"] == pytest.approx(np.sqrt(stats.dirichlet.var(first["alpha"])).sum(), rel=1e-3)
    other = uncertainty.refit(**row | {"source": "resampled", "seed": 101})
    assert other["alpha"] != first["alpha"]


@pytest.mark.parametrize("what, level, features", [("label noise", 0.3, 11), ("rows", 200, 11), ("duplicate", 0.9, 12)])
def test_a_change_reaches_the_explainer(what, level, features, monkeypatch):
    seen = {}
    monkeypatch.setattr(uncertainty, "_explained", lambda *args: seen.update(zip("XyZzks", args, strict=True)) or {})
    uncertainty.change(dataset="Syn2", what=what, level=level, seed=100, rows=1000)
    clean = make_synthetic("Syn2", 100, rows=1000)
    assert seen["X"].shape[1] == seen["Z"].shape[1] == features
    if what == "rows":
        assert len(seen["X"]) == 160
    else:
        flipped = (seen["y"] != clean.y_train).mean()
        assert np.array_equal(seen["z"], clean.y_test)  # judged by clean labels
        assert (0.1 < flipped < 0.2) if what == "label noise" else flipped == 0


def test_the_unchanged_data_set_is_a_level_of_each_change():
    levels = (("none", 0, 9), ("label noise", 0.2, 9), ("duplicate", 1, 10))
    rows = [{"dataset": "Syn1", "what": w, "level": v, "seed": s, "alpha": json.dumps([4.0 + s, 4.0, *[0.1] * n]),
             "g_accuracy": 0.9, "error": ""} for w, v, n in levels for s in (0, 1)]
    table = uncertainty.change_table(pd.DataFrame(rows)).set_index(["what", "level"])
    assert list(table.index) == [("label noise", 0.0), ("label noise", 0.2), ("duplicate", 1.0)]
    means = np.array([[4, 4], [5, 4]]) / np.array([[8.9], [9.9]])
    expected = 100 * np.sqrt(np.mean(means.var(0, ddof=1) / means.mean(0) ** 2))
    assert table.loc[("label noise", 0.0), "scatter"] == pytest.approx(expected)
    assert table.loc[("duplicate", 1.0), "copy"] == pytest.approx(np.mean([0.1 / 9, 0.1 / 10]))


def test_copies_correlate_as_asked():
    rng = np.random.default_rng(0)
    x = rng.standard_normal(50_000)
    for rho in (0.0, 0.5, 0.9, 1.0):
        copy = uncertainty._copy(x, rho, rng)
        assert np.isclose(np.corrcoef(x, copy)[0, 1], rho, atol=0.02) and np.isclose(copy.std(), 1, atol=0.02)


def test_relevant_columns():
    assert uncertainty.relevant("Syn1").tolist() == [0, 1]
    assert uncertainty.relevant("Syn6").tolist() == [2, 3, 4, 5, 6, 7, 8, 9, 10]


def test_margin_is_the_probability_of_the_cut():
    p = Posterior([[5.0, 1.0, 2.0], [1.0, 1.0, 1.0]])
    expected = [stats.beta.cdf(0.5, 2.0, 1.0), 0.5]  # rows cut after their 2nd and 1st feature
    assert np.allclose(uncertainty.margin(p, np.array([2, 1])), expected)


def test_errors_of_rows_and_what_rejection_is_worth():
    truth = np.array([[True, True, False, False]] * 4)
    scores = np.array([[4, 3, 2, 1], [4, 1, 3, 2], [1, 2, 3, 4], [4, 3, 2, 1]], float)
    assert uncertainty.row_errors(scores, truth).tolist() == [0, 0.5, 1, 0]
    kept = [0, 1, 3]
    assert metrics.mcc(scores[kept], truth[kept]) > metrics.mcc(scores, truth)


def test_the_jackknife_of_pairs_counts_fits():
    """Coverage over pairs that share fits: its spread over samples of fits is what the jackknife claims."""
    rng = np.random.default_rng(2)
    shares = np.array([0.6, 0.3, 0.1])

    def fits(n):
        return [Posterior(500 * shares * np.exp(rng.normal(0, 0.05, 3))) for _ in range(n)]

    values = [uncertainty.as_fitted(fits(20), 0.8).mean() for _ in range(80)]
    claimed = []
    for _ in range(10):
        some = fits(20)
        claimed.append(float(uncertainty.jackknife(lambda i, s=some: uncertainty.as_fitted(s, 0.8, i).mean(), 20)))
    assert 0.6 < np.mean(claimed) / np.std(values) < 1.6


def test_choice_is_made_on_other_seeds_and_without_the_truth():
    names = [*uncertainty.uncertainties(Posterior([[1.0, 2.0, 3.0]])), "oracle", "margin at the true k", "g's doubt"]
    rows = []
    for seed in (0, 1, 100, 101):
        row = {"dataset": "Syn4", "seed": seed, "error": "", "area_random": 0.5, "mcc": 90.0 + seed % 100}
        for i, name in enumerate(names):
            row |= {f"area_{name}": 0.4 + 0.01 * i if seed < 5 else 0.4 - 0.01 * i, f"kept_{name}": 95.0}
        rows.append(row)
    frame = pd.DataFrame(rows)
    assert uncertainty.choice_table(frame).index[0] == "g's doubt"
    assert uncertainty.chosen_score(frame) == "margin at own k"
    table = uncertainty.rejection_table(frame, "entropy").loc["Syn4"]
    assert table["gain"] == pytest.approx(4.5) and table["its error"] == pytest.approx(0.5)


@pytest.mark.xfail(reason="Syn5 covers 74.5 +- 3.5 % in the stored runs; the other five are inside", strict=True)
def test_after_calibration_the_80_percent_interval_covers_75_to_85_on_each_set(stored):
    measures = uncertainty.as_fitted, uncertainty.calibrated
    before, after = (uncertainty.coverage_table(stored[0], m, levels=(0.8,))["80%"] for m in measures)
    assert list(after.index) == list(uncertainty.NAMES) and (before["all"] > 95).all()
    assert after["all"].between(75, 85).all(), after["all"]


def test_what_rejection_is_worth_is_as_claimed(stored):
    table = uncertainty.rejection_table(stored[2], uncertainty.chosen_score(stored[2]))
    assert list(table.index) == list(uncertainty.LOCAL)
    assert (table["gain"] > 2 * table["its error"]).all(), table
