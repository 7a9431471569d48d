"""The fairness study's sentences: their arithmetic on made-up rows, and that absent data break nothing."""

import json

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from experiments import fairness, fairness_report

STATES = ["baseline", "pre-trained", "reseeded", *(f"{fold}:{level}" for fold in (0, 1) for level in fairness.LEVELS),
          *(f"control:{level}" for level in fairness.LEVELS)]


def _row(seed):
    """One run in which the importance of age rises with fairness and capital gain's falls; all else stays."""
    def alpha(state):
        level = int(state.split(":")[1]) if state[0] in "01" else 0
        values = np.ones(len(fairness.NAMES))
        values[fairness.NAMES.index("age")] += level / 10
        values[fairness.NAMES.index("capital-gain")] += (96 - level) / 10 + 0.01 * seed
        return values.tolist()

    measure = {"auc": 0.9, "accuracy": 0.8} | {f"{m}_{z}": 50.0 for m in ("p_rule", "parity", "odds")
                                               for z in fairness.SENSITIVE}
    measures = {s: [measure | {"p_rule_race": float(s.split(":")[1]) if s[0] in "01" else 45.0}] for s in STATES}
    picks = {s: [0.9] + [0.1] * (len(fairness.NAMES) - 1) for s in STATES}
    row = {"seed": seed, "classifier": "fair", "error": "", "rank": {s: alpha(s) for s in STATES},
           "paper": {s: alpha(s) for s in STATES}, "invase": picks, "measures": measures,
           "invase_reached": {s: {"accuracy": 0.83, "p_rule": 60.0} for s in picks}}
    return {k: json.dumps(v) if isinstance(v, dict) else v for k, v in row.items()}


@pytest.fixture
def frame():
    return pd.DataFrame([_row(0), _row(1)])


def test_levels_are_reached_and_importances_move_as_made(frame):
    lines = fairness_report.reached(frame)
    assert len(lines) == len(fairness.LEVELS) and all("(within 4 points)" in line for line in lines)
    moved = {line.split()[1]: line for line in fairness_report.moved(frame) if line.strip().startswith("bifkit")}
    assert "rises; the paper says rises: confirmed" in moved["age"]
    assert "falls; the paper says falls: confirmed" in moved["capital-gain"]
    assert "marital-status" in moved and "education-num" in moved


def test_invase_selects_the_same_everywhere(frame):
    table = fairness_report.selections(frame)
    assert set(table["selected"]) == {fairness.NAMES[0]} and set(table["shared by"]) == {2}
    same, reached = fairness_report.selected(frame)
    assert "57 and 82 % in 2 of 2 seeds" in same and reached.startswith("accuracy 83.0 %")


def test_the_importance_table_has_one_row_per_feature(frame):
    table = fairness_report.importance_table(frame, "rank")
    assert list(table.index) == fairness.NAMES and "pre-trained" in table
    assert len(fairness_report.first_four(frame)) == 4  # two explainers, two references


def test_absent_data_break_nothing():
    frame = pd.DataFrame({"seed": [0], "classifier": "fair", "error": "not run: no Adult"})
    for sentences in (fairness_report.reached, fairness_report.rises, fairness_report.first_four,
                      fairness_report.moved, fairness_report.selected, fairness_report.attributes):
        assert sentences(frame) == []
    assert fairness_report.importance_table(frame, "rank").empty
    for figure in (fairness_report.figure(frame), fairness_report.paths(frame)):
        plt.close(figure)
