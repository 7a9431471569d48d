"""Verdicts on the paper's claims: intervals against scipy, planted runs that hold or fail, and the committed page."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from experiments import claims, fresh, released
from experiments.runner import paths

SEEDS = range(5)


def test_the_interval_is_that_of_scipy():
    gaps = np.random.default_rng(0).normal(1.0, 2.0, 7)
    mean, half = claims.interval(gaps)
    low, high = stats.t.interval(0.95, 6, loc=gaps.mean(), scale=stats.sem(gaps))
    np.testing.assert_allclose([mean - half, mean + half], [low, high])


def test_one_run_decides_nothing():
    assert claims.above([5.0]) == claims.OPEN and claims.near([0.0], 5.0) == claims.OPEN


@pytest.mark.parametrize("gaps, within, verdict", [([0.1, -0.1, 0.0], 5.0, claims.HOLDS),
                                                   ([20.0, 21.0, 19.0], 5.0, claims.FAILS),
                                                   ([0.0, 9.0, -8.0], 5.0, claims.OPEN)])
def test_near(gaps, within, verdict):
    assert claims.near(gaps, within) == verdict


def runs_of(scores, shares=None):
    """Runs of the synthetic study with given MCCs by (method, dataset), and small noise over seeds."""
    rng, rows = np.random.default_rng(1), []
    for (method, dataset), value in scores.items():
        for seed in SEEDS:
            share = (shares or {}).get(method, np.full(11, 1 / 11))
            rows.append({"dataset": dataset, "method": method, "seed": seed, "error": "",
                         "mcc": value if value == 100 else value + rng.normal(0, 0.3), "mcc_averaged": 100.0,
                         "fit_seconds": 5.0 if "samp" in method else 1.0, "sum_sd": 0.3 + 0.1 * (dataset == "Syn3"),
                         "shares": json.dumps(list(share)), "alpha": json.dumps(list(np.arange(11.0, 0, -1)))})
    return pd.DataFrame(rows)


METHODS = ("bifkit (local)", "bifkit (global)", "bifkit (local, pe)", "BIF (global)", "BIF (inst, samp)",
           "BIF (inst, pe)", "L2X", "INVASE", "SHAP", "LIME")


def planted(bif, rival):
    """Verdicts of Table 1's claims, by their words, where BIF and its rivals reach the given MCC on every set."""
    scores = {(m, f"Syn{i}"): bif if m.startswith(("bifkit", "BIF")) else rival for m in METHODS for i in range(1, 7)}
    code = pd.DataFrame([{"dataset": f"Syn{i}", "seed": s, "draws": 20, "error": "", "mcc": bif + 0.1 * s}
                         for i in range(1, 7) for s in SEEDS])
    return {row[0]: row[3] for row in claims.table1(runs_of(scores), code)}


def test_a_margin_of_ten_points_is_seen_and_missed():
    name = "On Syn4 to Syn6 BIF is 10 to 20 points ahead of the existing methods"
    assert planted(95.0, 70.0)[name] == claims.HOLDS
    assert planted(95.0, 90.0)[name] == claims.FAILS


def test_printed_figures_are_reached_or_not():
    name = "The printed MCCs of Syn3 to Syn6 are what the method reaches"
    assert planted(97.0, 70.0)[name] == claims.HOLDS
    assert planted(20.0, 10.0)[name] == claims.FAILS


def test_sampling_is_slower_and_similar_when_planted_so():
    found = planted(95.0, 70.0)
    assert found["Sampling takes longer than the point estimate"] == claims.HOLDS
    assert found["Sampling and the point estimate give similar results"] == claims.HOLDS


def test_patches_on_the_curves_are_where_the_ink_differs():
    X = np.zeros((4, 4))
    X[2:, 3] = 1.0  # only eights have ink there
    assert fresh.curves(X, np.array([0, 0, 1, 1]), [0, 1, 2, 3], n=1).tolist() == [3]


def test_fresh_seeds_are_compared_by_welch():
    rng = np.random.default_rng(2)
    now, before = rng.normal(80, 1, 5), rng.normal(80, 1, 5)
    frame = pd.DataFrame({"item": "table2", "dataset": "Adult", "method": "bifkit", "seed": range(5, 10), "error": "",
                          "local_1": now})
    earlier = pd.DataFrame({"row": "local", "column": "Adult k=1", "seed": SEEDS, "value": before})
    found = fresh.against(frame, earlier).iloc[0]
    assert found["p"] == pytest.approx(stats.ttest_ind(now, before, equal_var=False).pvalue)


def test_released_settings_are_those_of_the_data_set():
    g = released.paper_g(11, 2)
    assert released.explainer("Syn4", g, 0, 20).get_params()["batch_size"] == 500
    point = released.explainer("Intrusion", g, 0, 0).get_params()
    assert point["point_estimate"] and point["prior"] == 1e-4 and point["preset"] == "released"


def test_the_page_holds_what_the_stored_runs_say(monkeypatch):
    monkeypatch.setenv("BIF_OUTPUT", str(paths.root()))  # the committed results; nothing is written
    text = (paths.root() / "docs" / "claims.md").read_text(encoding="utf-8")
    table = claims.collect()
    assert set(table["verdict"]) <= {claims.HOLDS, claims.FAILS, claims.OPEN}
    assert len(table) >= 34
    for row in table.itertuples():
        assert row.claim in text and row.measured.split(";")[0] in text
