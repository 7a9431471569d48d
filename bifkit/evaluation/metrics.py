"""How good is an explanation? Against ground truth (MCC), and by what g still gets right with k features.

Scores are (N, G): one row per instance, one column per feature or group of features. One row (G,) or (1, G) stands for
a global explanation and serves every instance.
"""

import numpy as np

from bifkit.inputs import predict_proba


def scores_of_rows(scores, n):
    """Scores as (n, G), one row per instance."""
    scores = np.atleast_2d(np.asarray(scores, dtype=float))
    if not np.isfinite(scores).all():
        raise ValueError("scores hold NaN or infinite values; rank only finite importances")
    if len(scores) not in (1, n):
        raise ValueError(f"scores have {len(scores)} rows, the data {n}: give one row per instance, or one for all")
    return np.broadcast_to(scores, (n, scores.shape[1]))


def top_k_mask(scores, k) -> np.ndarray:
    """Which features are among the k with the largest scores of their row; ties go to the earlier feature.

    >>> top_k_mask([[0.1, 0.7, 0.2]], 2).tolist()
    [[False, True, True]]

    Parameters
    ----------
    scores : array (N, G) or (G,)
    k : int or array (N,)
        How many features, for all rows or for each.

    Returns
    -------
    bool array (N, G)
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
    """Matthews correlation coefficient over all cells of instance and feature (supplement, last section).

    Parameters
    ----------
    mask, truth : bool arrays (N, G)
        Features that were found, and those that matter; ``mask`` may be one row for all.

    Returns
    -------
    float
        From -1 to 1; 0 where every cell of either is the same.
    """
    from sklearn.metrics import matthews_corrcoef  # slow to import

    truth = np.asarray(truth, bool)
    mask = np.broadcast_to(np.asarray(mask, bool), truth.shape)
    if mask.all() == mask.any() or truth.all() == truth.any():  # scikit-learn gives 0 too, with a warning
        return 0.0
    return float(matthews_corrcoef(truth.ravel(), mask.ravel()))


def mcc(scores, truth) -> float:
    """MCC of the top k of each row, k being the row's true number of relevant features (as the paper's code ran).

    >>> mcc([0.9, 0.05, 0.05], [[True, False, False], [True, False, False]])
    1.0

    Parameters
    ----------
    scores : array (N, G) or (G,)
    truth : bool array (N, G)
        Features that matter.
    """
    truth = np.atleast_2d(np.asarray(truth, dtype=bool))
    if np.shape(scores)[-1] != truth.shape[1]:
        raise ValueError(f"scores have {np.shape(scores)[-1]} features, the truth {truth.shape[1]}")
    return mcc_of_masks(top_k_mask(scores_of_rows(scores, len(truth)), truth.sum(1)), truth)


def keep_features(X, mask, *, groups=None, fill=0.0) -> np.ndarray:
    """X with every feature outside ``mask`` replaced by ``fill``.

    >>> keep_features([[1.0, 2.0]], [[True, False]]).tolist()
    [[1.0, 0.0]]

    Parameters
    ----------
    X : array (N, D)
    mask : bool array (N, G)
        Features, or groups of features, to keep.
    groups : array (D,), optional
        Group number of each feature; by default each feature is its own.
    fill : float or array (D,), default 0.0
        Zero is the mean of standardised data.
    """
    X, mask = np.asarray(X, dtype=np.float32), np.asarray(mask, bool)
    if groups is not None:
        mask = mask[:, np.asarray(groups)]
    return np.where(mask, X, np.asarray(fill, dtype=np.float32))


def post_hoc_accuracy(model, X, y, scores, k, *, groups=None, fill=0.0) -> float:
    """Accuracy of ``model`` when each row keeps only its k most important features (section 5.2).

    Parameters
    ----------
    model : torch module
        Returns logits.
    X, y : array (N, D), array (N,)
    scores : array (N, G) or (G,)
    k : int
    groups, fill
        As for :func:`keep_features`.
    """
    mask = top_k_mask(scores_of_rows(scores, len(X)), k)
    kept = keep_features(X, mask, groups=groups, fill=fill)
    return float((predict_proba(model, kept).argmax(1) == np.asarray(y)).mean())
