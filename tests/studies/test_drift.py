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


# rows

def test_parts_share_no_row_and_changes_do_what_they_say(people):
    X, y = people
    dealt = drift.dealt(20, 100)
    assert [len(part) for part, _ in dealt] == [100] * 20
    assert np.array_equal(np.sort(np.concatenate([part[:, 1] for part, _ in dealt])), np.sort(X[:, 1]))
    assert not np.array_equal(drift.dealt(20, 101)[0][0], dealt[0][0])
    kept = X.copy()
    for change in ("age mixed up", "age missing"):
        new, labels = drift.changed(X, y, change, np.random.default_rng(0))
        moved = new[:, 0] != X[:, 0]
        assert labels is y and np.array_equal(new[:, 1:], X[:, 1:]) and np.array_equal(X, kept)
        if change == "age mixed up":  # the ages are the same, their owners are not
            assert np.array_equal(np.sort(new[:, 0]), np.sort(X[:, 0])) and 0.4 < moved.mean() < 0.6
        else:
            assert 0.25 < moved.mean() < 0.35 and (new[moved, 0] == 0).all()
    new, fewer = drift.changed(X, y, "labels shifted", np.random.default_rng(0))
    assert (fewer == 0).sum() == (y == 0).sum() and 0.4 < (fewer == 1).sum() / (y == 1).sum() < 0.6
    for change in ("nothing", "model swapped"):  # the rows stay, the training may change
        assert np.array_equal(drift.changed(X, y, change, np.random.default_rng(0))[0], X)


def test_calls_with_rows_of_their_own_share_none(people, monkeypatch):
    seen = []
    monkeypatch.setattr(drift, "refits", lambda recipe, X, y, **_: seen.append(X) or [])
    for seed in range(100, 110):
        drift.call("Adult, own rows", seed, False)
    assert np.array_equal(np.sort(np.concatenate(seen)[:, 1]), np.sort(people[0][:, 1]))


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
                ("Syn2", "nothing", "model swapped")]:
        found = drift.run(**row)
        if row["part"] == "rivals":
            assert 0 <= found["p_shap_kept"] <= 1 and found["psi"] < 0.5 and 0.5 < found["accuracy_new"] <= 1
        else:
            assert np.shape(found["alphas"]) == ((4, 11) if row["part"] == "calls" else (8, 14))
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
    rows += [{"part": "parts", "what": w, "seed": 100 + i, "alphas": refits(20, 0 if w == "nothing" else shift),
              "sizes": refits(20, 0)} for i in range(2) for w in drift.CHANGES]
    for i in range(3):
        rows += [{"part": "rivals", "what": w, "seed": 100 + i, "p_shap_kept": 0.5, "p_shap_new": 0.001, "psi": 0.3,
                  "p_psi": 0.01, "psi_scores_kept": 0.1, "psi_scores_new": 0.1, "accuracy_old": 0.8,
                  "accuracy_new": 0.8 + 0.01 * i} for w in drift.CHANGES]
    return pd.DataFrame(rows).assign(small=False, error="")


def test_tables_of_a_clear_change(monkeypatch):
    monkeypatch.setattr(drift_report, "DRAWS", 40)
    frame = made_up(200.0)
    found = drift_report.power(frame, numbers=(10,))
    assert found.index.get_level_values("refits").tolist() == ["10 and 10", "10 and 10, paired"] * 2
    assert found["distance"].str.startswith("40 of 40: 100 %").all()
    alarms = drift_report.alarms(frame)
    table = drift_report.drift_table(alarms)
    changes = list(drift.CHANGES)
    assert (table.loc["compare, ten refits each: distance", changes[1:]] == "100").all()
    quiet = table["nothing"].astype(int)  # of 40 draws of a pool that is what the test permutes
    assert (quiet.iloc[:4] < 100 * stats.binom.ppf(0.9999, 40, 0.05) / 40).all()
    assert (table.loc["two-sample test on SHAP values, each its g", changes] == "100").all()
    assert (table.loc["PSI of the scores above .2, old g", changes] == "0").all()
    assert table["comparisons"].tolist() == [40] * 4 + [3] * 6
    assert drift_report.accuracies(frame).loc["nothing"].tolist() == [80.0, 81.0, 0.6]
    axes = drift_report.figure(alarms).axes
    assert [ax.get_title() for ax in axes] == changes and len(axes[0].get_yticklabels()) == 10


def test_tables_of_no_change(monkeypatch):
    monkeypatch.setattr(drift_report, "DRAWS", 60)
    found = drift_report.false_alarms(made_up())
    assert [s.split(" of ")[1].split(":")[0] for s in found["distance"]] == ["6", "2", "60"] * 2
    drawn = [int(s.split(" of ")[0]) for s in found["distance"].xs("drawn from all refits", level="pairs")]
    assert all(0 <= k <= stats.binom.ppf(0.9999, 60, 0.05) for k in drawn)  # the pool is what the test permutes


def test_absent_data_break_nothing():
    frame = pd.DataFrame(drift.grid()).assign(error="not run: no network")
    alarms = drift_report.alarms(frame)
    for table in (drift_report.false_alarms(frame), drift_report.power(frame), drift_report.compared(frame), alarms,
                  drift_report.drift_table(alarms), drift_report.accuracies(frame)):
        assert table.empty
    drift_report.figure(alarms)
