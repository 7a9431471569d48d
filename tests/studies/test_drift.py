"""The drift study: its rivals against the textbook, its tables on made-up refits, its runs at toy size."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from data_prep.adult import FEATURES
from data_prep.dataset import Dataset
from experiments import drift, drift_report


@pytest.fixture
def people(monkeypatch):
    """2000 made-up people in place of Adult."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, len(FEATURES))).astype(np.float32)
    y = (X[:, 0] + X[:, 5] + rng.normal(size=2000) > 1).astype(int)
    monkeypatch.setattr(drift, "load_adult", lambda seed: Dataset("Adult", X[:1500], y[:1500], X[1500:], y[1500:],
                                                                  FEATURES, ["no", "yes"]))
    return X, y


# rivals

def test_psi_is_the_textbooks():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(4000, 2)), rng.normal([0, 0.5], size=(3000, 2))
    for column, found in enumerate(drift.psi(a, b)):
        edges = [-np.inf, *np.quantile(a[:, column], np.arange(1, 10) / 10), np.inf]
        p, q = (np.histogram(x[:, column], edges)[0] / len(x) for x in (a, b))
        assert found == pytest.approx(stats.entropy(p, q) + stats.entropy(q, p))  # the two divergences of Kullback
    same, moved = drift.psi(a, b)
    assert same < 0.02 and moved > 0.2
    assert drift.psi(np.zeros((50, 1)), np.zeros((50, 1))).tolist() == [0]  # a constant column
    assert np.isfinite(drift.psi(np.zeros((50, 1)), np.ones((50, 1)))).all()


def test_tests_of_the_rivals_keep_their_level_and_find_a_shift():
    rng = np.random.default_rng(0)
    p = np.array([(drift.psi_test(*rng.normal(size=(2, 200, 3)), rng, 39)[1],
                   drift.told_apart(*rng.normal(size=(2, 60, 3)), rng)) for _ in range(60)])
    assert ((p <= 0.05).sum(0) <= stats.binom.ppf(0.9999, 60, 0.05)).all() and (p.mean(0) > 0.3).all()
    shifted = rng.normal(size=(400, 3)) + [0, 0, 1]
    assert drift.psi_test(rng.normal(size=(400, 3)), shifted, rng, 39)[1] == 1 / 40
    assert drift.told_apart(rng.normal(size=(400, 3)), shifted, rng) < 1e-4


# windows

def test_windows_are_disjoint_and_changes_do_what_they_say(people):
    X, y = people
    (before, old), (after, labels) = drift.windows("nothing", 100)
    both = np.concatenate([before, after])
    assert len(before) == len(after) == 1000 and np.array_equal(np.sort(both[:, 1]), np.sort(X[:, 1]))
    assert labels.mean() == pytest.approx(y.mean(), abs=0.05)
    for change in ("age mixed up", "age missing"):
        (same, _), (new, unchanged) = drift.windows(change, 100)
        moved = new[:, 0] != after[:, 0]
        assert np.array_equal(same, before) and np.array_equal(unchanged, labels)
        assert np.array_equal(new[:, 1:], after[:, 1:])
        if change == "age mixed up":  # the ages are the same, their owners are not
            assert np.array_equal(np.sort(new[:, 0]), np.sort(after[:, 0])) and 0.4 < moved.mean() < 0.6
        else:
            assert 0.2 < moved.mean() < 0.4 and np.unique(new[moved, 0]) == pytest.approx(before[:, 0].mean())
    (_, _), (new, fewer) = drift.windows("labels shifted", 100)
    assert (fewer == 0).sum() == (labels == 0).sum() and 0.35 < (fewer == 1).sum() / (labels == 1).sum() < 0.65
    assert np.array_equal(drift.windows("model swapped", 100)[1][0], after)  # the rows stay, the training changes


def test_an_unseen_column_has_no_weight():
    X = np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32)
    y, kept = (X[:, 1] > 0).astype(int), X.copy()
    g = drift.quick_g(X, y, 1, unseen=[1])
    moved = X.copy()
    moved[:, 1] += 5
    with torch.no_grad():
        assert torch.equal(g(torch.from_numpy(moved)), g(torch.from_numpy(X)))
    assert np.array_equal(X, kept)  # train's rows stay as they were


def test_every_part_runs_at_toy_size(people):
    for row in [r for r in drift.grid("smoke") if r["seed"] == 100 and r["what"] in
                ("Syn2", "before", "model swapped")]:
        found = drift.run(**row)
        if row["part"] == "rivals":
            assert 0 <= found["p_shap_kept"] <= 1 and found["psi"] < 0.5 and 0.5 < found["accuracy_new"] <= 1
        else:
            assert np.shape(found["alphas"]) == (4, 11 if row["what"] == "Syn2" else 14)
    whole = drift.grid()
    assert len({json.dumps(r) for r in whole}) == len(whole) and min(r["seed"] for r in whole) == 100


# tables

def made_up(shift=0.0, seeds=22, calls=4):
    """A frame whose levels, and whose windows after a change, differ from their reference by ``shift``."""
    rng = np.random.default_rng(0)

    def refits(n, move):
        return json.dumps((20 * rng.dirichlet(np.array([40, 30, 20 + move, 10]), n)).tolist())

    rows = [{"part": "calls", "what": d, "seed": 100 + i, "alphas": refits(10, 0)}
            for d in ("Syn2", "Adult") for i in range(calls)]
    rows += [{"part": "levels", "what": w, "seed": 100 + i, "alphas": json.dumps(
        [json.loads(refits(1, m))[0] for m in (0, shift)])} for w in ("private", "fair") for i in range(seeds)]
    for i in range(3):
        for w in ("before", *drift.CHANGES, "before, bootstraps", "nothing, bootstraps"):
            move = 0 if w.startswith(("before", "nothing")) else shift
            rows.append({"part": "windows", "what": w, "seed": 100 + i, "alphas": refits(10, move),
                         "sizes": refits(10, 0)})
        rows += [{"part": "rivals", "what": w, "seed": 100 + i, "p_shap_kept": 0.5, "p_shap_new": 0.001, "psi": 0.3,
                  "p_psi": 0.01, "psi_scores_kept": 0.1, "psi_scores_new": 0.1, "accuracy_old": 0.8,
                  "accuracy_new": 0.8 + 0.01 * i} for w in drift.CHANGES]
    return pd.DataFrame(rows).assign(small=False, error="")


def test_tables_of_a_clear_change():
    frame = made_up(200.0)
    found = drift_report.power(frame, numbers=(10,))
    assert found.index.get_level_values("refits").tolist() == ["10 and 10", "10 and 10, paired"] * 2
    assert found["distance"].str.startswith("200 of 200: 100 %").all()
    table = drift_report.drift_table(frame)
    assert (table.loc["compare, ten parts: distance", list(drift.CHANGES)[1:]] == "100").all()
    assert (table.loc["two-sample test on SHAP values, each its g"] == "100").all()
    assert (table.loc["PSI of the scores above .2, old g"] == "0").all()
    assert table.loc["compare, ten bootstraps of each window: distance"].tolist()[1:] == [""] * 4
    assert drift_report.accuracies(frame).loc["nothing"].tolist() == [80.0, 81.0, 0.6]
    axes = drift_report.figure(frame).axes
    assert [ax.get_title() for ax in axes] == list(drift.CHANGES) and len(axes[0].get_yticklabels()) == 11


def test_tables_of_no_change():
    found = drift_report.false_alarms(made_up())
    assert [s.split(" of ")[1].split(":")[0] for s in found["distance"]] == ["6", "2", "200"] * 2
    drawn = [int(s.split(" of ")[0]) for s in found["distance"].xs("drawn from all refits", level="pairs")]
    assert all(0 <= k <= stats.binom.ppf(0.9999, 200, 0.05) for k in drawn)  # the pool is what the test permutes


def test_absent_data_break_nothing():
    frame = pd.DataFrame(drift.grid()).assign(error="not run: no network")
    for table in (drift_report.false_alarms, drift_report.power, drift_report.compared, drift_report.alarms,
                  drift_report.drift_table, drift_report.accuracies):
        assert table(frame).empty
    drift_report.figure(frame)
