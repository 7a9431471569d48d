"""Which way a feature pushes: exact for additive models, against brute force for others, with an honest interval."""

from itertools import combinations
from math import factorial

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from bifkit import GlobalBIF, LocalBIF, Posterior
from bifkit.evaluation.directions import Direction

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 4)).astype(np.float32)
FAST = {"min_steps": 3, "epochs": 1}


class Additive(nn.Module):
    """One output: 2 a - b^2 + sin c; d does nothing."""

    def forward(self, x):
        return (2 * x[:, 0] - x[:, 1] ** 2 + x[:, 2].sin() + 0 * x[:, 3]).unsqueeze(1)


def explained(kind, g, **options):
    return kind(g, **FAST | ({"hidden": 8} if kind is LocalBIF else {}) | options).fit(X)


def test_exact_for_an_additive_model():
    explainer = explained(LocalBIF, Additive(), likelihood="regression")
    found = explainer.explain(X).direction(explainer, X, donors=80)
    parts = np.stack([2 * X[:, 0], -X[:, 1] ** 2, np.sin(X[:, 2]), 0 * X[:, 3]], 1)
    assert np.allclose(found.mean, parts - parts.mean(0), atol=1e-5)  # all rows are donors
    assert found.output == "value" and (found.sign[:, 3] == 0).all()
    assert np.array_equal(found.sign[:, 0], np.sign(found.mean[:, 0]) * (np.abs(found.sign[:, 0])))
    explainer = explained(GlobalBIF, Additive(), likelihood="regression")
    found = explainer.explain().direction(explainer, X, donors=80)
    gap = X[:, None, 0].astype(float) - X[None, :, 0]
    assert found.mean[0] == pytest.approx(2 * np.abs(gap).mean(), rel=1e-4)  # the mean over pairs of a linear part
    assert found.sign[0] == 1 and found.sign[3] == 0 and found.mean.shape == (4,)


def test_it_is_the_shapley_value_where_features_interact_in_pairs():
    class Pairs(nn.Module):
        def forward(self, x):
            return (x[:, 0] * x[:, 1] + x[:, 1] * x[:, 2] - 2 * x[:, 3]).unsqueeze(1)

    explainer = explained(LocalBIF, Pairs(), likelihood="regression")
    found = explainer.explain(X[:3]).direction(explainer, X[:3], reference=X[3:8], donors=5)

    def value(row, donor, inside):
        v = np.where(np.isin(np.arange(4), inside), row, donor).astype(float)
        return v[0] * v[1] + v[1] * v[2] - 2 * v[3]

    for i, row in enumerate(X[:3]):
        for k in range(4):
            others, total = [j for j in range(4) if j != k], 0.0
            for size in range(4):
                weight = factorial(size) * factorial(3 - size) / factorial(4)
                total += sum(weight * np.mean([value(row, d, [*s, k]) - value(row, d, list(s)) for d in X[3:8]])
                             for s in combinations(others, size))
            assert found.mean[i, k] == pytest.approx(total, abs=1e-4)


def test_the_interval_holds_the_truth_as_often_as_it_says():
    explainer = explained(LocalBIF, Additive(), likelihood="regression")
    pool = np.random.default_rng(5).normal(size=(20_000, 4)).astype(np.float32)
    one, hits = explainer.explain(X[:1]), []
    truth = np.array([2 * X[0, 0], 1 - X[0, 1] ** 2, np.sin(X[0, 2])])  # the means of the parts are 0, -1 and 0
    for seed in range(150):
        found = one.direction(explainer, X[:1], reference=pool, seed=seed, prob=0.8)
        hits.append((found.lower[0, :3] < truth) & (truth < found.upper[0, :3]))
    assert np.abs(np.mean(hits, 0) - 0.8).max() < 0.15


def test_which_output_is_meant():
    g = nn.Linear(4, 3, bias=False)
    g.weight.data.copy_(torch.eye(4)[:3])
    explainer = explained(LocalBIF, g, likelihood="categorical")
    rows = explainer.explain(X)
    own = rows.direction(explainer, X)
    best = X[:, :3].argmax(1)
    assert own.output == "log-odds of the row's predicted class"
    large = X[np.arange(80), best] > 1  # its own logit, far above that of most donors
    assert large.sum() > 10 and (own.mean[np.arange(80), best][large] > 0).all()
    assert rows.direction(explainer, X, target=2).output == "log-odds of class 2"
    with pytest.raises(ValueError, match="say which one's direction"):
        rows.to_global().direction(explainer, X)
    with pytest.raises(ValueError, match="0 to 2; got 3"):
        rows.direction(explainer, X, target=3)
    g = nn.Linear(4, 2, bias=False)
    g.weight.data.copy_(torch.tensor([[1.0, 0, 0, 0], [0, 2, 0, 0]]))
    explainer = explained(GlobalBIF, g, likelihood="categorical")
    assert explainer.explain().direction(explainer, X).sign.tolist() == [-1, 1, 0, 0]  # of class 1 of two
    assert explainer.explain().direction(explainer, X, target=0).sign.tolist() == [1, -1, 0, 0]
    explainer = explained(GlobalBIF, g, classes=0, likelihood="categorical")
    assert explainer.explain().direction(explainer, X).output == "log-odds of class 0"
    one = nn.Sequential(g, nn.Linear(2, 1, bias=False))
    explainer = explained(GlobalBIF, one, likelihood="binary")
    up, down = (explainer.explain().direction(explainer, X, target=t).mean for t in (1, 0))
    assert np.allclose(up, -down)


def test_groups_have_a_direction_in_rows_only():
    options = {"groups": {"both": [0, 1]}, "likelihood": "regression"}
    explainer = explained(LocalBIF, Additive(), **options)
    rows = explainer.explain(pd.DataFrame(X, index=[f"r{i}" for i in range(80)]))
    found = rows.direction(explainer, X, donors=80)
    part = 2 * X[:, 0] - X[:, 1] ** 2
    assert np.allclose(found.mean[:, 0], part - part.mean(), atol=1e-5) and found.feature_names[0] == "both"
    assert np.isnan(rows.to_global().direction(explainer, X).mean[0])
    assert found[3].mean.shape == (3,) and found[:5].index.tolist() == ["r0", "r1", "r2", "r3", "r4"]
    assert found.to_frame().shape == (80, 3) and "80 rows" in repr(found)


def test_tables_and_words():
    way = Direction(np.array([0.5, np.nan, -2.0]), np.array([0.1, np.nan, -3]), np.array([1, np.nan, -1.0]),
                    ["a", "b", "c"], None, "log-odds of class 1")
    assert repr(way) == "Direction: c -2, a +0.5; change of the log-odds of class 1"
    assert way.sign.tolist() == [1, 0, -1] and way.to_frame().loc["c", "upper"] == -1
    with pytest.raises(TypeError, match="no rows"):
        way[0]


def test_what_does_not_fit_is_refused():
    explainer = explained(LocalBIF, Additive(), likelihood="regression")
    rows = explainer.explain(X)
    for call, message in (
            (lambda: rows.direction(Additive(), X), "must be the fitted GlobalBIF or LocalBIF"),
            (lambda: rows.direction(explainer, X[:7]), "X has 7 rows and the posterior 80"),
            (lambda: Posterior(np.ones((80, 3))).direction(explainer, X), "3 features, the explainer 4"),
            (lambda: rows.direction(explainer, X, donors=1), "donors be at least 2"),
            (lambda: explainer.explain(X[:1]).direction(explainer, X[:1]), "lend their values")):
        with pytest.raises((TypeError, ValueError), match=message):
            call()


class Embedded(nn.Module):
    """Additive in a number and in the vectors of two columns of ids; a mask switches the second column off."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        with torch.no_grad():
            self.embed.weight.copy_(torch.arange(15.0).view(5, 3) - 7)

    def forward(self, number, ids, mask):
        sums = self.embed(ids).sum(2)
        return 2 * number[:, :1] + sums[:, :1] - mask * sums[:, 1:]


def test_exact_for_ids_behind_an_embedding_and_what_g_gets_as_it_is_stays():
    rng = np.random.default_rng(0)
    ids, mask = rng.integers(0, 5, (80, 2)), rng.integers(0, 2, (80, 1))
    rows = {"number": torch.from_numpy(X[:, :1].copy()), "ids": torch.from_numpy(ids), "mask": torch.from_numpy(mask)}
    explainer = LocalBIF(Embedded(), embedding="embed", likelihood="regression", hidden=8, **FAST).fit(rows)
    found = explainer.explain(rows).direction(explainer, rows, donors=80)
    value = np.arange(15.0).reshape(5, 3).sum(1) - 21
    by_hand = np.stack([2 * (X[:, 0] - X[:, 0].mean()), value[ids[:, 0]] - value[ids[:, 0]].mean(),
                        -mask[:, 0] * (value[ids[:, 1]] - value[ids[:, 1]].mean())], 1)
    assert found.feature_names == ["number[0]", "ids[0]", "ids[1]"]
    assert np.allclose(found.mean, by_hand, atol=1e-4)
