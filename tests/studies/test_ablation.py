"""The ablation and the counting rule: their arithmetic against brute force, and what their tables and figures hold."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import matthews_corrcoef, precision_score, recall_score

from bifkit import Posterior
from bifkit.evaluation import metrics
from bifkit.presets import PRESETS
from data_prep.synthetic import make_synthetic
from experiments import ablation, counting, synthetic

GAPS = {"rank": 0.0, "simplex, marginal": -30.0, "saturating, zero": -4.0, "max, zero": -20.0, "KL weight 0.03": -8.0,
        "draws 5": 0.5}


@pytest.fixture
def changes():
    """A made-up ablation: data sets and seeds differ, the changes' effects are known."""
    level = {"Syn3": 97.0, "Syn4": 95.0}
    return pd.DataFrame([{"dataset": d, "change": c, "seed": s, "rows": 10_000, "mcc": level[d] + s + gap, "error": "",
                          "concentration": 20.0, "passes": 125.0 if c == "draws 5" else 25.0}
                         for d in level for s in (0, 1) for c, gap in GAPS.items()])


def test_each_change_changes_what_its_name_says():
    rank = PRESETS["rank"]
    assert len(ablation.GATE_FILL) == 4 * 3 - 1
    for name, change in ablation.CHANGES.items():
        new = rank.changed(**change)
        differ = {f for f in change if getattr(new, f) != getattr(rank, f)} - {"min_steps"}
        assert bool(differ) == (name != "rank"), name
        expected = {"gate", "fill"} if name in ablation.GATE_FILL else {
            {"KL weight": "kl_weight"}.get(ablation.factor(name), ablation.factor(name))} if name != "rank" else set()
        with_it = {"kl_weight"} if name == "fidelity absolute" else set()  # a weight in nats belongs to it
        assert differ <= expected | with_it, name
    assert {ablation.factor(c) for c in ablation.CHANGES} - {"rank", "gate and fill"} == set(ablation.WHY)


def test_a_worker_meets_the_same_g_in_a_row_and_every_cell_is_there():
    grid = ablation.grid()
    keys = [(r["dataset"], r["seed"]) for r in grid]
    assert len(grid) == 4 * 3 * len(ablation.CHANGES) and len(set(keys)) == 12
    assert sum(a != b for a, b in zip(keys, keys[1:], strict=False)) == 11
    assert len(ablation.grid("smoke")) <= 6


def test_differences_are_paired(changes):
    gaps = ablation.differences(changes)
    assert gaps["difference"].to_dict() == pytest.approx(GAPS)
    assert (gaps["se"] < 1e-9).all()  # the spread between sets and seeds is not the spread of a difference
    assert gaps.loc["draws 5", "price"] == 5
    changes.loc[changes.index[-1], "error"] = "boom"
    assert ablation.differences(changes).loc["draws 5", "difference"] == pytest.approx(0.5)


def test_reasons_name_every_default_that_was_varied(changes):
    text = "\n".join(ablation.reasons(changes))
    assert "gate saturating" in text and "fill marginal" in text and "draws 1" in text
    lines = {line.split()[0]: line for line in text.splitlines() if line.startswith("    ")}
    assert set(lines) == {"simplex", "zero", "0.03", "5"}  # gate and fill changed at once explain neither
    assert "-30.0 ± 0.0 (Syn3 -30.0, Syn4 -30.0)" in lines["simplex"] and lines["5"].endswith("5.0 x the price")
    assert text.endswith("two standard errors: draws 5")


def test_the_heat_map_writes_every_number(changes):
    ax = ablation.heatmap(changes)
    written = [float(t.get_text()) for t in ax.texts]
    assert written == pytest.approx(ablation.scores(changes).round(1).to_numpy().ravel().tolist())
    assert ax.get_yticklabels()[0].get_text() == "rank: saturating, marginal"


def test_rank_is_the_run_of_table_1():
    one = ablation.run(dataset="Syn2", change="rank", seed=100, rows=400)["mcc"]
    explained = counting.run(dataset="Syn2", method="bifkit", seed=100, rows=400)
    assert explained["mcc_oracle"] == one  # both fit with the stream of Table 1's row
    with pytest.raises(ValueError, match="change must be one of"):
        ablation.run(dataset="Syn2", change="nothing", seed=100, rows=400)
    synthetic.prepared.cache_clear()


def test_scores_from_counts_are_sklearns():
    rng = np.random.default_rng(0)
    truth = rng.random((300, 7)) < 0.4
    mask = np.where(rng.random(truth.shape) < 0.2, ~truth, truth)
    found = counting.scores_of(*counting._counts(mask, truth)[:3], truth.size)
    t, m = truth.ravel(), mask.ravel()
    assert found == pytest.approx({"precision": 100 * precision_score(t, m), "recall": 100 * recall_score(t, m),
                                   "mcc": 100 * matthews_corrcoef(t, m)})
    assert counting.from_mcc(found["mcc"], mask.sum(), truth.sum(), truth.size) == pytest.approx(found)
    assert counting.scores_of(0, 0, 5, 20) == {"precision": 0.0, "recall": 0.0, "mcc": 0.0}


def test_precision_of_a_method_that_is_given_k_follows_from_its_mcc():
    truth = make_synthetic("Syn4", 0, rows=500).truth_test
    mask = metrics.top_k_mask(np.random.default_rng(1).random(truth.shape) + 0.5 * truth, truth.sum(1))
    found = counting.from_mcc(100 * metrics.mcc_of_masks(mask, truth), truth.sum(), truth.sum(), truth.size)
    assert found["precision"] == pytest.approx(100 * mask[truth].mean()) == pytest.approx(found["recall"])


def test_other_rules_count_what_they_say():
    q = Posterior(np.array([[9.0, 9.0, 0.1, 0.1], [9.0, 0.1, 0.1, 0.1]]))
    masks = {name: rule(q).tolist() for name, rule in counting.OTHERS.items()}
    right = [[True, True, False, False], [True, False, False, False]]
    assert masks["largest gap of log importance"] == masks["mean > 1/D"] == masks["P(f > 1/D) > 0.5"] == right


@pytest.fixture
def counts():
    """Made-up counts: the default is perfect on development seeds, another p on the reported ones."""
    def row(seed, best):
        good, bad = [80, 0, 0, 20], [40, 40, 40, 0]
        rules = {str(p): good if p == best else bad for p in counting.PS} | dict.fromkeys(counting.OTHERS, bad)
        return {"dataset": "Syn4", "method": "bifkit", "seed": seed, "rows": 100, "cells": 220, "mcc_oracle": 90.0,
                "auc": 0.8, "counts": json.dumps(rules), "error": ""}
    return pd.DataFrame([row(100, counting.DEFAULT), row(101, counting.DEFAULT), row(0, 0.6), row(1, 0.6)])


def test_the_reported_seeds_see_the_default_alone(counts):
    assert counting.DEFAULT in counting.PS and counting.DEFAULT != 0.6
    assert counting.development(counts).idxmax() == f"P(f > 1/2D) > {counting.DEFAULT}"
    table = counting.table(counts)
    assert table.loc[("bifkit, own number", "precision"), "Syn4"] == pytest.approx(50)  # .6 would have been perfect
    given = table.loc["bifkit, given each row's k"]["Syn4"]
    assert given["precision"] == pytest.approx(given["recall"]) and given["mcc"] == pytest.approx(90)
    lines = counting.findings(counts)
    assert lines[0].startswith("not being given k costs us Syn4") and lines[-1].endswith("Syn4 0")
    assert counting.figure(counts).get_xlabel().startswith("recall")
    beside = counting.published(counts).loc["Syn4"]
    assert beside["AUC, ours"] == pytest.approx(80) and beside["TPR, ours"] == pytest.approx(50)
    assert beside["MCC, INVASE"] == pytest.approx(91.4, abs=0.5)  # known conversion


def test_rivals_come_from_the_stored_runs(monkeypatch, tmp_path, counts):
    monkeypatch.setenv("BIF_OUTPUT", str(tmp_path))
    assert counting.given_k().empty and counting.disagreement(counts) == 0.0
    (tmp_path / "results").mkdir(exist_ok=True)
    rows = [{"method": m, "dataset": "Syn4", "seed": 0, "rows": 100, "variant": "as_run", "mcc": 60.0, "mcc_own": own,
             "error": ""} for m, own in (("L2X", 50.0), ("INVASE", 80.0))]
    pd.DataFrame(rows).to_csv(tmp_path / "results" / "synthetic.csv", index=False)
    again = counts.iloc[[0]].assign(method="INVASE", seed=0, counts=json.dumps({"own": [70, 10, 10, 5]}))
    table = counting.everyone(pd.concat([counts, again])).set_index(["method", "seed"])
    assert table.loc[("INVASE", 0), ["precision", "mcc"]].tolist() == [87.5, 80.0]
    assert table.loc[("L2X, given one k", 0), "recall"] != table.loc[("L2X, given one k", 0), "precision"]
    given = table.loc[("L2X, given each row's k", 0)]
    assert given["recall"] == pytest.approx(given["precision"]) and given["mcc"] == 60.0
    assert counting.disagreement(pd.concat([counts, again])) > 0
