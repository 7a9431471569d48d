"""Deletion and insertion curves against loops over rows and features, and orders whose quality is known."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.svm import LinearSVC
from torch import nn

from bifkit import Posterior
from bifkit.evaluation import deletion_curve, deletion_score, faithfulness, insertion_curve, insertion_score

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 5)).astype(np.float32)
OTHER = (RNG.normal(size=(40, 5)) + 1).astype(np.float32)
W, B = RNG.normal(size=(5, 3)), RNG.normal(size=3)
SCORES = RNG.normal(size=X.shape)


def softmax(rows):
    e = np.exp(np.asarray(rows, float) @ W + B)
    return e / e.sum(1, keepdims=True)


def value(rows):
    return np.asarray(rows, float) @ W[:, 0]


def brute(kind, x_all, scores, fills, groups, regression=False):
    """Row by row, donor by donor, one feature at a time."""
    total, n_groups = [], max(groups) + 1
    spread = np.var([value([x])[0] for x in x_all])
    for k in range(n_groups + 1):
        values = []
        for x, s in zip(x_all, scores, strict=True):
            order = sorted(range(n_groups), key=lambda g: (-s[g], g))
            hidden = set(order[:k] if kind == "deletion" else order[k:])
            for fill in fills:
                seen = [[f if groups[d] in hidden else v for d, (v, f) in enumerate(zip(x, fill, strict=True))]]
                if regression:
                    values.append(1 - (value(seen)[0] - value([x])[0]) ** 2 / spread)
                else:
                    values.append(softmax(seen)[0][softmax([x])[0].argmax()])
        total.append(np.mean(values))
    return total


@pytest.mark.parametrize("groups", [None, [1, 0, 1, 2, 0]])
@pytest.mark.parametrize("kind", ["deletion", "insertion"])
@pytest.mark.parametrize("regression", [False, True])
def test_curves_are_the_loops(kind, groups, regression, monkeypatch):
    monkeypatch.setattr(faithfulness, "BATCH", 64)  # several chunks
    curve = deletion_curve if kind == "deletion" else insertion_curve
    index = list(range(5)) if groups is None else groups
    scores = SCORES[:, :max(index) + 1]
    options = {"groups": groups, "reference": OTHER}
    for fill, fills in (("mean", OTHER.mean(0, keepdims=True)), (0.5, np.full((1, 5), 0.5)), (OTHER[3], OTHER[3:4]),
                        ("marginal", OTHER)):
        found = curve(value if regression else softmax, X, scores, fill=fill, donors=len(OTHER), **options)
        assert np.allclose(found, brute(kind, X, scores, fills, index, regression), atol=1e-5)
        assert found.index.tolist() == list(range(max(index) + 2)) and found.name == kind


def test_scores_are_areas():
    curve = deletion_curve(softmax, X, SCORES).to_numpy()
    assert deletion_score(softmax, X, SCORES) == pytest.approx((curve[1:] + curve[:-1]).sum() / 2 / 5)
    assert insertion_score(lambda rows: np.full((len(rows), 2), 0.5), X, SCORES) == pytest.approx(0.5)


def test_insertion_is_deletion_of_the_reverse_read_backwards():
    forward = insertion_curve(softmax, X, SCORES, fill="marginal")
    assert np.allclose(forward, deletion_curve(softmax, X, -SCORES, fill="marginal")[::-1])


@pytest.mark.parametrize("fill", ["mean", "marginal"])
@pytest.mark.parametrize("regression", [False, True])
def test_the_true_order_beats_chance_and_the_reverse_is_worst(fill, regression):
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=(400, 8)), 2.0 ** -np.arange(8)
    if regression:
        predict, truth = lambda rows: rows @ w, np.abs(w)
    else:  # how much each feature speaks for the predicted class: the exact order
        predict = lambda rows: np.stack([1 / (1 + np.exp(rows @ w * s)) for s in (1, -1)], 1)  # noqa: E731
        truth = x * w * np.sign(x @ w)[:, None]
    orders = [truth, rng.random(x.shape), -truth]
    lost = [deletion_score(predict, x, s, fill=fill) for s in orders]
    kept = [insertion_score(predict, x, s, fill=fill) for s in orders]
    assert lost == sorted(lost) and kept == sorted(kept, reverse=True)
    assert lost[1] - lost[0] > 0.03 and lost[2] - lost[1] > 0.03


def test_modules_estimators_frames_and_functions_agree():
    g = nn.Linear(5, 3).double()
    g.weight.data, g.bias.data = torch.tensor(W.T), torch.tensor(B)
    expected = deletion_curve(softmax, X, SCORES)
    assert np.allclose(deletion_curve(g.train(), X, SCORES), expected, atol=1e-6) and g.training
    assert np.allclose(deletion_curve(g, torch.from_numpy(X), SCORES.tolist()), expected, atol=1e-6)
    frame = pd.DataFrame(X, columns=list("abcde"))
    estimator = LogisticRegression().fit(frame, softmax(X).argmax(1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # scikit-learn warns where names are lacking
        found = deletion_curve(estimator, frame, SCORES)
    logits = lambda rows: np.exp(rows @ estimator.coef_.T + estimator.intercept_)  # noqa: E731
    by_hand = deletion_curve(lambda rows: logits(rows) / logits(rows).sum(1, keepdims=True), X, SCORES)
    assert np.allclose(found, by_hand, atol=1e-6)
    one = nn.Linear(5, 1)
    logit = deletion_curve(one, X, SCORES, likelihood="binary")
    chance = lambda rows: torch.sigmoid(one(torch.from_numpy(rows))).detach().numpy()  # noqa: E731
    assert np.allclose(logit, deletion_curve(chance, X, SCORES, likelihood="binary"), atol=1e-6)
    linear = LinearRegression().fit(X, value(X))
    assert np.allclose(deletion_curve(linear, X, SCORES), deletion_curve(value, X, SCORES), atol=1e-4)
    assert deletion_curve(one, X, SCORES, likelihood="regression")[0] == 1
    images = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    assert len(deletion_curve(images, X[:, :4].reshape(-1, 2, 2), SCORES[:, :4])) == 5


def test_posteriors_one_row_for_all_and_few_steps():
    alpha = np.exp(SCORES)
    means = alpha / alpha.sum(1, keepdims=True)
    assert deletion_curve(softmax, X, Posterior(alpha)).equals(deletion_curve(softmax, X, means))
    assert deletion_curve(softmax, X, alpha[0]).equals(deletion_curve(softmax, X, np.tile(alpha[0], (30, 1))))
    coarse, fine = (insertion_curve(softmax, X, SCORES, steps=s) for s in (2, None))
    assert coarse.index.tolist() == [0, 2, 5] and np.allclose(coarse, fine[coarse.index])
    names = deletion_curve(softmax, pd.DataFrame(X, columns=list("abcde")), SCORES[:, :3], groups={"ab": ["a", "b"],
                                                                                                  "cd": ["c", "d"]})
    assert np.allclose(names, deletion_curve(softmax, X, SCORES[:, :3], groups=[0, 0, 1, 1, 2]))


def test_donors_are_the_same_for_every_method_and_follow_the_seed():
    full = [deletion_curve(softmax, X, SCORES, fill="marginal", donors=3, seed=s).iloc[-1] for s in (0, 0, 1)]
    assert full[0] == full[1] != full[2]
    assert deletion_curve(softmax, X, -SCORES, fill="marginal", donors=3).iloc[-1] == pytest.approx(full[0])


@pytest.mark.parametrize("change, message", [
    ({"scores": SCORES[:, :4]}, r"scores have shape \(30, 4\): expected \(30, 5\)"),
    ({"scores": SCORES[:7]}, r"expected \(30, 5\)"),
    ({"scores": SCORES * np.nan}, "NaN or infinite"),
    ({"fill": "median"}, "fill must be 'mean', 'marginal'"),
    ({"fill": [1.0, 2.0]}, "a row of 5 numbers"),
    ({"fill": "marginal", "donors": 0}, "donors must be at least 1"),
    ({"steps": 0}, "steps must be at least 1"),
    ({"likelihood": "poisson"}, "likelihood must be"),
    ({"reference": OTHER[:, :3]}, "X has 3 features, expected 5"),
    ({"model": lambda rows: rows[:, :3]}, "no probabilities"),
    ({"model": lambda rows: rows[:, 0] * np.nan}, "NaN or infinite values on the whole rows"),
    ({"model": lambda rows: np.ones(len(rows))}, "same value for every row"),
    ({"model": nn.Linear(5, 1)}, "likelihood='binary'"),
    ({"model": LinearSVC()}, "predict_proba"),
    ({"model": 3}, "a torch module, an estimator or a function"),
])
def test_bad_input_is_explained(change, message):
    arguments = {"model": softmax, "X": X, "scores": SCORES} | change
    with pytest.raises((ValueError, TypeError), match=message):
        deletion_curve(**arguments)
