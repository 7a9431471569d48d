"""How good is an explanation? Against ground truth (MCC), and by what g still gets right with k features.

Scores are (N, G): a row an instance, a column a feature or a group of features. One row (G,) or (1, G) stands for a
global explanation and serves every instance.
"""

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

from bifkit.inputs.checks import predict_proba


def _rows(scores, n):
    scores = np.atleast_2d(np.asarray(scores, dtype=float))
    if not np.isfinite(scores).all():
        raise ValueError("scores hold NaN or infinite values; rank only finite importances")
    if len(scores) not in (1, n):
        raise ValueError(f"scores have {len(scores)} rows, the data {n}: give one row an instance, or one for all")
    return np.broadcast_to(scores, (n, scores.shape[1]))


def top_k_mask(scores, k) -> np.ndarray:
    """True for the k largest scores of each row; ``k`` is a number or one a row. Ties go to the earlier feature.

    >>> top_k_mask([[0.1, 0.7, 0.2]], 2).tolist()
    [[False, True, True]]
    """
    scores = np.atleast_2d(np.asarray(scores, dtype=float))
    k = np.broadcast_to(np.asarray(k), len(scores))
    if (k < 0).any() or (k > scores.shape[1]).any():
        raise ValueError(f"k must lie between 0 and the {scores.shape[1]} features; got {k.min()} to {k.max()}")
    order = np.argsort(-scores, axis=1, kind="stable")
    mask = np.zeros(scores.shape, dtype=bool)
    np.put_along_axis(mask, order, np.arange(scores.shape[1]) < k[:, None], axis=1)
    return mask


def mcc_of_masks(mask, truth) -> float:
    """Matthews correlation coefficient over all instance x feature cells (supplement, last section).

    >>> mcc_of_masks([[True, False]], [[True, False]])
    1.0
    """
    mask, truth = np.broadcast_to(mask, np.shape(truth)).ravel(), np.asarray(truth, bool).ravel()
    tp, tn = float((mask & truth).sum()), float((~mask & ~truth).sum())
    fp, fn = float((mask & ~truth).sum()), float((~mask & truth).sum())
    denominator = np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    return float((tp * tn - fp * fn) / denominator) if denominator else 0.0


def mcc(scores, truth) -> float:
    """MCC of the top-k of each row, k being the row's true number of relevant features (as the paper's code ran).

    >>> mcc([0.9, 0.05, 0.05], [[True, False, False], [True, False, False]])
    1.0
    """
    truth = np.atleast_2d(np.asarray(truth, dtype=bool))
    if np.shape(scores)[-1] != truth.shape[1]:
        raise ValueError(f"scores have {np.shape(scores)[-1]} features, the truth {truth.shape[1]}")
    return mcc_of_masks(top_k_mask(_rows(scores, len(truth)), truth.sum(1)), truth)


def keep_features(X, mask, *, groups=None, fill=0.0) -> np.ndarray:
    """X with every feature outside ``mask`` set to ``fill`` (zero: the mean of standardised data).

    >>> keep_features([[1.0, 2.0]], [[True, False]]).tolist()
    [[1.0, 0.0]]
    """
    X, mask = np.asarray(X, dtype=np.float32), np.asarray(mask, bool)
    if groups is not None:
        mask = mask[:, np.asarray(groups)]
    return np.where(mask, X, np.asarray(fill, dtype=np.float32))


def post_hoc_accuracy(model, X, y, scores, k, *, groups=None, fill=0.0) -> float:
    """Accuracy of ``model`` when each row keeps only its k most important features (section 5.2).

    >>> from torch import nn
    >>> import torch
    >>> g = nn.Linear(2, 2, bias=False); _ = g.weight.data.copy_(torch.tensor([[-1.0, 0], [1, 0]]))
    >>> post_hoc_accuracy(g, [[1.0, 5.0], [-1.0, 5.0]], [1, 0], [1.0, 0.0], 1)
    1.0
    """
    mask = top_k_mask(_rows(scores, len(X)), k)
    kept = keep_features(X, mask, groups=groups, fill=fill)
    return float((predict_proba(model, kept).argmax(1) == np.asarray(y)).mean())


def mask_only_accuracy(mask_train, y_train, mask_test, y_test, *, seed=0) -> float:
    """Accuracy of a classifier that sees only which features were kept.

    A selector can smuggle the label into *where* it looks. What this classifier gets right beyond the majority
    class is what the choice of features alone gives away.

    >>> mask = np.eye(2, dtype=bool)[[0, 1] * 50]; y = np.array([0, 1] * 50)
    >>> mask_only_accuracy(mask, y, mask, y)
    1.0
    """
    tree = HistGradientBoostingClassifier(max_iter=60, random_state=seed)
    tree.fit(np.asarray(mask_train, float), y_train)
    return float((tree.predict(np.asarray(mask_test, float)) == np.asarray(y_test)).mean())
