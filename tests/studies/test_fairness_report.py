"""The fairness study's sentences: their arithmetic on made-up rows, and that absent data break nothing."""

import json

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from experiments import fairness, fairness_report

STATES = ["baseline", "pre-trained", "reseeded", *(f"{fold}:{level}" for fold in (0, 1) for level in fairness.LEVELS),
          *(f"control:{level}" for level in fairness.LEVELS)]


def _row(seed, age=True):
    """One run in which the importance of age rises with fairness and capital gain's falls; all else stays."""
    rng = np.random.default_rng(seed)

    def alpha(state):
        level = int(state.split(":")[1]) if state[0] in "01" and state != "0:44" and state != "1:44" else 44
        values = np.full(len(fairness.NAMES), 0.2)
        for feature, value in {"marital-status": 9, "education-num": 5, "capital-gain": 4 - (level - 44) / 26,
                               "age" if age else "fnlwgt": 1 + (level - 44) / 26}.items():
            values[fairness.NAMES.index(feature)] = value
        return (values * np.exp(rng.normal(0, 0.01, len(values)))).tolist()

    measure = {"auc": 0.9, "accuracy": 0.8} | {f"{m}_{z}": 50.0 for m in ("p_rule", "parity", "odds")
                                               for z in fairness.SENSITIVE}
    measures = {s: [measure | {"p_rule_race": float(s.split(":")[1]) if s[0] in "01" else 45.0,
                               "auc": 0.9 - (float(s.split(":")[1]) / 1000 if s[0] in "01" else 0)}] for s in STATES}
    picks = {s: [0.9] + [0.1] * (len(fairness.NAMES) - 1) for s in STATES}
    row = {"seed": seed, "classifier": "fair", "error": "", **{e: {s: alpha(s) for s in STATES}
                                                               for e in ("rank", "few", "paper")},
           "invase": picks, "measures": measures,
           "invase_reached": {s: {"accuracy": 0.84, "p_rule": 60.0} for s in picks}}
    return {k: json.dumps(v) if isinstance(v, dict) else v for k, v in row.items()}


@pytest.fixture(scope="module")
def frame():
    return pd.DataFrame([_row(seed) for seed in range(20, 32)])


def _says(table, start):
    found = table[table["claim"].str.startswith(start)]
    assert len(found) == 1, table["claim"].tolist()
    return found.iloc[0]


def test_levels_are_reached(frame):
    lines = fairness_report.reached(frame)
    assert len(lines) == len(fairness.LEVELS) and all("(within 4 points)" in line for line in lines)


def test_claims_follow_what_was_planted(frame):
    alphas = {s: [json.loads(frame.loc[0, "paper"])[k]] * 5 for s, k in
              {"baseline": "baseline", **{str(level): f"0:{level}" for level in fairness.LEVELS}}.items()}
    protocol = pd.DataFrame([{"seed": 20, "classifier": "fair", "alphas": json.dumps(alphas), "error": ""}])
    table = fairness_report.claims(frame, protocol)
    assert list(table) == ["claim", "where", "measured", "verdict", "notebook"]
    assert set(table["notebook"]) == {"05_fairness"}
    for start, verdict in (("the AUC falls", "holds"), ("BIF as printed: the KL from the baseline", "holds"),
                           ("BIF, preset rank: the distance from the baseline", "holds"),
                           ("BIF as printed: the explanations at 57 and 82 % differ", "holds"),
                           ("BIF as printed: marital status, education number, capital gain", "holds"),
                           ("BIF as printed: marital-status stays", "holds"),
                           ("BIF as printed: capital-gain falls", "holds"), ("BIF as printed: age rises", "holds"),
                           ("BIF as printed: education-num falls", "does not hold"),
                           ("INVASE: the same selection", "holds"), ("INVASE: the selection at 57", "does not hold"),
                           ("INVASE with the frozen", "holds")):
        assert _says(table, start)["verdict"] == verdict, (start, _says(table, start)["measured"])
    assert "5 explainer seeds" in _says(table, "BIF as printed, the paper's own protocol")["measured"]
    still = fairness_report.claims(pd.DataFrame([_row(seed, age=False) for seed in range(20, 32)]))
    assert _says(still, "BIF, preset rank: age rises")["verdict"] == "does not hold"


def test_invase_selects_the_same_everywhere(frame):
    table = fairness_report.selections(frame)
    assert set(table["selected"]) == {fairness.NAMES[0]} and set(table["shared by"]) == {12}
    same, reached = fairness_report.selected(frame)
    assert "57 and 82 % in 12 of 12 seeds" in same and reached.startswith("accuracy 84.0 %")


def test_the_importance_table_has_one_row_per_feature(frame):
    table = fairness_report.importance_table(frame, "rank")
    assert list(table.index) == fairness.NAMES and "pre-trained" in table
    assert fairness_report.level_table(frame, "few", "baseline")["told"].tolist() == ["no", "yes", "yes", "yes"]
    for figure in (fairness_report.figure(frame), fairness_report.comparison(frame)):
        assert any(line.get_linestyle() == "--" for ax in figure.axes for line in ax.lines)  # floors
        plt.close(figure)


def test_absent_data_break_nothing():
    frame = pd.DataFrame({"seed": [0], "classifier": "fair", "error": "not run: no Adult"})
    for sentences in (fairness_report.reached, fairness_report.selected, fairness_report.attributes):
        assert sentences(frame) == []
    assert fairness_report.claims(frame).empty and fairness_report.level_table(frame, "rank", "baseline").empty
    assert fairness_report.importance_table(frame, "rank").empty
    for figure in (fairness_report.figure(frame), fairness_report.comparison(frame), fairness_report.paths(frame)):
        plt.close(figure)
