"""The best features that a search can find for a given g: the ceiling beside the explainers of Table 2.

A search asks g itself, subset by subset, with every other feature at its mean (zero): far too slow to explain with,
but what it finds says how much g can do with k features at all.
"""

import numpy as np

from bifkit.evaluation.metrics import keep_features
from experiments.models.classifiers import predict_proba


def search(g, data, test, ks, *, sees_labels, rows=4000):
    """({k: scores of the test rows}, {k: scores for all rows}), as an explainer would return them.

    Without labels of the test part, subsets are judged on training rows, and a row's features by how well they keep
    g's own prediction; with them, both by the true labels of the test rows: the bound.

    >>> from torch import nn, tensor
    >>> from data_prep import Dataset
    >>> X = np.random.default_rng(0).normal(size=(100, 3)).astype("float32"); y = (X[:, 1] > 0).astype(int)
    >>> g = nn.Linear(3, 2, bias=False); g.weight.data = tensor([[0.0, -1.0, 0.0], [0.0, 1.0, 0.0]])
    >>> data = Dataset("toy", X, y, X, y, ["a", "b", "c"], ["no", "yes"])
    >>> local, overall = search(g, data, X, (1,), sees_labels=False); overall[1].tolist(), local[1].mean(0).tolist()
    ([0.0, 1.0, 0.0], [0.0, 1.0, 0.0])
    """
    if sees_labels:
        X, y, target = data.X_test, data.y_test, data.y_test
    else:
        X, y, target = data.X_train[:rows], data.y_train[:rows], predict_proba(g, test).argmax(1)
    found = best_subsets(g, X, y, size=max(ks))
    member = {k: np.isin(np.arange(data.n_features), subset).astype(float) for k, subset in found.items()}
    overall = {k: member[k] * sum(member[j] for j in range(1, k + 1)) for k in ks}  # found first, ranked first
    return dict.fromkeys(ks, best_of_rows(g, test, target, size=max(ks))), overall


def best_subsets(g, X, y, *, size, beam=3):
    """{k: features} for k up to ``size``: forward search by g's accuracy (ties: likelihood) on subsets of features.

    The ``beam`` best subsets of each size are carried on, because a lone feature's gain says little of a pair's.

    >>> from experiments.models.classifiers import mlp, train
    >>> X = np.random.default_rng(0).normal(size=(400, 4)).astype("float32"); y = (X[:, 1] + X[:, 3] > 0).astype(int)
    >>> best_subsets(train(mlp([4, 16, 2]), X, y), X, y, size=2)[2]
    (1, 3)
    """
    rows = np.arange(len(X))

    def judge(subset):
        p = predict_proba(g, keep_features(X, np.isin(np.arange(X.shape[1]), subset)))
        return (p.argmax(1) == y).mean(), np.log(p[rows, y] + 1e-9).mean()

    kept, best = [()], {}
    for k in range(1, size + 1):
        tried = {tuple(sorted((*s, d))) for s in kept for d in range(X.shape[1]) if d not in s}
        kept = sorted(tried, key=judge, reverse=True)[:beam]
        best[k] = kept[0]
    return best


def best_of_rows(g, X, target, *, size):
    """Scores (N, D) of a forward search row by row for what makes ``target`` (N,) most probable; first found, first.

    >>> from experiments.models.classifiers import mlp, train
    >>> X = np.random.default_rng(0).normal(size=(400, 3)).astype("float32"); y = (X[:, 1] > 0).astype(int)
    >>> best_of_rows(train(mlp([3, 16, 2]), X, y), X, y, size=1).mean(0).argmax()
    np.int64(1)
    """
    rows, mask, scores = np.arange(len(X)), np.zeros(X.shape, bool), np.zeros(X.shape)
    for step in range(size):
        gain = np.full(X.shape, -1.0)
        for d in range(X.shape[1]):
            trial = mask.copy()
            trial[:, d] = True
            p = predict_proba(g, keep_features(X, trial))[rows, target]
            gain[:, d] = np.where(mask[:, d], -1.0, p)
        best = gain.argmax(1)
        mask[rows, best], scores[rows, best] = True, size - step
    return scores
