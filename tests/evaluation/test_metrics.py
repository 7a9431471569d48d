"""Scores of an explanation against scikit-learn and brute force."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.metrics import matthews_corrcoef
from torch import nn

from bifkit.evaluation import (
    keep_features,
    mcc,
    mcc_of_masks,
    post_hoc_accuracy,
    top_k_mask,
)
from experiments.models.classifiers import mlp


def _top(row, k):
    """The k largest of a row, one by one, ties to the earlier."""
    left, chosen = list(range(len(row))), set()
    for _ in range(k):
        best = max(left, key=lambda i: (row[i], -i))
        left.remove(best)
        chosen.add(best)
    return [i in chosen for i in range(len(row))]


def test_mcc_is_scikit_learns():
    rng = np.random.default_rng(0)
    for _ in range(200):
        shape = rng.integers(2, 20), rng.integers(2, 8)
        mask, truth = rng.random(shape) < rng.random(), rng.random(shape) < rng.random()
        mask.flat[:2] = [False, True]  # scikit-learn warns where there is only one class
        assert mcc_of_masks(mask, truth) == pytest.approx(matthews_corrcoef(truth.ravel(), mask.ravel()), abs=1e-12)


def test_mcc_with_the_true_k_is_brute_force():
    rng = np.random.default_rng(0)
    for _ in range(50):
        shape = rng.integers(2, 10), rng.integers(2, 8)
        scores, truth = rng.integers(0, 4, shape) / 4, rng.random(shape) < 0.4  # with ties
        truth.flat[:2] = [False, True]
        brute = np.array([_top(s, int(t.sum())) for s, t in zip(scores, truth, strict=True)])
        assert mcc(scores, truth) == pytest.approx(matthews_corrcoef(truth.ravel(), brute.ravel()), abs=1e-12)


def test_mcc_extremes_and_one_row_for_all():
    truth = np.array([[1, 1, 0, 0], [1, 0, 1, 0]], bool)
    assert mcc(truth * 1.0, truth) == 1 and mcc(1.0 - truth, truth) == -1
    assert mcc([3, 2, 1, 0], truth) == mcc([[3, 2, 1, 0]] * 2, truth) == pytest.approx(0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert mcc(np.ones((2, 4)), np.ones((2, 4), bool)) == 0  # nothing to find
        assert mcc_of_masks(np.zeros((2, 4), bool), truth) == 0 == mcc_of_masks([True] * 4, truth)


def test_top_k():
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 5, (40, 6)).astype(float)
    assert np.array_equal(top_k_mask(scores, 3), [_top(r, 3) for r in scores])
    k = rng.integers(0, 7, 40)
    assert np.array_equal(top_k_mask(scores, k), [_top(r, n) for r, n in zip(scores, k, strict=True)])
    for bad in (-1, 7):
        with pytest.raises(ValueError, match="k must lie between 0 and .*6"):
            top_k_mask(scores, bad)


@pytest.mark.parametrize("groups", [None, np.array([0, 1, 0, 2, 3, 3])])
@pytest.mark.parametrize("fill", [0.0, np.arange(6.0)])
@pytest.mark.parametrize("outputs", [1, 3])
def test_post_hoc_accuracy_by_brute_force(groups, fill, outputs):
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    X, g = rng.normal(size=(60, 6)).astype(np.float32), mlp([6, 10, outputs])
    y = rng.integers(0, max(outputs, 2), 60)
    scores = rng.normal(size=(60, 6 if groups is None else 4))
    for k in (0, 1, 3):
        right = 0
        for n in range(60):
            kept, of = _top(scores[n], k), range(6) if groups is None else groups
            seen = [X[n, i] if kept[of[i]] else np.broadcast_to(fill, 6)[i] for i in range(6)]
            out = g(torch.tensor([seen], dtype=torch.float32))[0].detach().numpy()
            right += (int(out[0] > 0) if outputs == 1 else int(out.argmax())) == y[n]
        assert post_hoc_accuracy(g, X, y, scores, k, groups=groups, fill=fill) == pytest.approx(right / 60)


def test_all_features_kept_is_the_plain_accuracy_and_one_row_serves_all():
    rng = np.random.default_rng(0)
    g = nn.Linear(4, 2)
    X, y = rng.normal(size=(50, 4)).astype(np.float32), rng.integers(0, 2, 50)
    plain = (g(torch.from_numpy(X)).argmax(1).numpy() == y).mean()
    scores = rng.normal(size=4)
    assert post_hoc_accuracy(g, X, y, scores, 4) == pytest.approx(plain)
    assert post_hoc_accuracy(g, X, y, scores, 2) == post_hoc_accuracy(g, X, y, np.tile(scores, (50, 1)), 2)


def test_features_outside_the_mask_are_filled():
    X = np.arange(8.0).reshape(2, 4)
    mask = np.array([[True, False], [False, True]])
    out = keep_features(X, mask, groups=[0, 0, 1, 1], fill=[9, 8, 7, 6])
    assert out.tolist() == [[0, 1, 7, 6], [9, 8, 6, 7]] and X[0, 2] == 2


def test_scores_that_do_not_fit_are_refused():
    truth = np.ones((3, 4), bool)
    with pytest.raises(ValueError, match="scores hold NaN or infinite"):
        mcc(np.full((3, 4), np.nan), truth)
    with pytest.raises(ValueError, match="scores have 2 rows, the data 3"):
        mcc(np.ones((2, 4)), truth)
    with pytest.raises(ValueError, match="scores have 5 features, the truth 4"):
        mcc(np.ones((3, 5)), truth)
    with pytest.raises(ValueError, match="scores have 2 rows, the data 3"):
        post_hoc_accuracy(nn.Linear(4, 2), np.ones((3, 4)), [0, 0, 0], np.ones((2, 4)), 1)
