"""Syn3 as printed by g, fresh seeds, and rivals with one thing changed: what the tables rest on."""

import numpy as np
import pandas as pd
import pytest
import torch

from data_prep.synthetic import NAMES, log_ratio, make_synthetic
from experiments import fresh, mnist, rivals_due, tabular, weak_features
from experiments.models.rules import COLUMNS, TrueRule


@pytest.mark.parametrize("name", NAMES[:3])
def test_the_printed_rule_is_the_printed_formula(name):
    X = make_synthetic(name, 0, rows=50, variant="as_printed").X_train
    ours = TrueRule(name, variant="as_printed")(torch.from_numpy(X))[:, 0].numpy()
    printed = log_ratio(name, X[:, COLUMNS[name]].astype(float), variant="as_printed")
    np.testing.assert_allclose(ours, printed, rtol=1e-4, atol=1e-4)


def test_the_printed_rule_agrees_with_the_printed_labels():
    data = make_synthetic("Syn6", 0, rows=20_000, variant="as_printed")
    p = TrueRule("Syn6", switch=1e-6, variant="as_printed")(torch.from_numpy(data.X_train)).softmax(1)[:, 1].numpy()
    edges = np.quantile(p, [0, 0.3, 0.5, 0.7, 1])
    for low, high in zip(edges[:-1], edges[1:], strict=True):  # labels were drawn with just this probability
        inside = (p >= low) & (p <= high)
        error = np.sqrt(max(p[inside].mean() * (1 - p[inside].mean()), 1e-4) / inside.sum())
        assert abs(data.y_train[inside].mean() - p[inside].mean()) < 5 * error


def test_with_the_true_rule_every_weak_feature_is_found():
    row = weak_features.run(g="the true rule", seed=100, rows=4000)
    assert row["agreement"] == row["agreement_weak"] == 100
    assert row["local"] > 90 and row["global"] > 90
    assert 0 < row["weak_rows"] < 5  # why a trained g hardly meets them


def test_fresh_seeds_are_none_of_the_reported_ones():
    for study in (tabular, mnist):
        grid, reported = fresh.grid(study), study.grid()
        assert not {r["seed"] for r in grid} & {r["seed"] for r in reported}
        assert {r["method"] for r in grid} == set(fresh.METHODS)
        assert len(fresh.grid(study, "smoke")) < 4


def test_a_gain_is_paired_by_seed():
    runs = pd.DataFrame({"dataset": "Adult", "method": ["bifkit", "BIF"] * 2, "seed": [5, 5, 6, 6], "error": "",
                         "local_1": [90.0, 80.0, 60.0, 52.0]})
    assert fresh.table(runs, runs, {"local": "local_1"}).loc["Adult local", "gain"] == "+9.0 ± 1.0"


def test_drawn_labels_are_the_only_change(monkeypatch):
    seen = {}

    class Watched:
        plan = {}

        def fit(self, X, y):
            seen[self.name] = (X, y)
            return self

        def scores(self, X):
            return np.ones(X.shape)

    for change in (rivals_due.TABLE, "labels drawn"):
        model = Watched()
        model.name = change
        monkeypatch.setattr(rivals_due, "rival", lambda *_, seed, model=model: model)
        rivals_due.run(method="L2X", dataset="Syn3", change=change, seed=100, rows=500)
    (X, y), (X_drawn, drawn) = seen.values()
    assert np.array_equal(X, X_drawn)
    assert 0 < (y != drawn).mean() < 0.5
