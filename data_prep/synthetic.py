"""Syn1 to Syn6, with the features that made each label (paper, section 5.1).

Inputs are standard normal. Each set has a ratio r with p(y=1) = 1 / (1 + r):

    Syn1  exp(X1 X2)        Syn2  exp(X3^2 + X4^2 + X5^2 + X6^2 - 4)        Syn3  a sine and three smooth terms
    Syn4, Syn5, Syn6: where X11 < 0 the first of (Syn1, Syn2), (Syn1, Syn3), (Syn2, Syn3) makes the label, else
    the second; the switch X11 counts as relevant everywhere.

Two variants differ as the paper's text and its authors' code differ:

``as_run``      what the code ran: 11 inputs everywhere, Syn1-3's relevant features stand first, their label is the
                more likely class, Syn3's exponent is -100 sin(0.2 X7) + |X8| + X9 + exp(-X10) - 2.4, with 10 instead
                of 100 inside Syn5 and Syn6; labels of Syn4-6 are drawn.
``as_printed``  what the paper prints: 10 inputs in Syn1-3 and 11 in Syn4-6, all labels drawn, Syn3's exponent is
                -100 sin(2 X7) + 2 |X8| + X9 + exp(-X10), also inside Syn5 and Syn6.
"""

import numpy as np

from data_prep.dataset import Dataset
from data_prep.seeding import derive

NAMES = ("Syn1", "Syn2", "Syn3", "Syn4", "Syn5", "Syn6")
VARIANTS = ("as_run", "as_printed")
_COLUMNS = {"Syn1": (0, 1), "Syn2": (2, 3, 4, 5), "Syn3": (6, 7, 8, 9)}  # zero-based, as printed
_PARTS = {"Syn4": ("Syn1", "Syn2"), "Syn5": ("Syn1", "Syn3"), "Syn6": ("Syn2", "Syn3")}


def log_ratio(name, x, *, variant="as_run", mixed=False):
    """log r of Syn1-3 from their own relevant columns ``x`` (N, 2 or 4).

    >>> log_ratio("Syn1", np.array([[2.0, 3.0]])).tolist()
    [6.0]
    """
    if name == "Syn1":
        return x[:, 0] * x[:, 1]
    if name == "Syn2":
        return (x**2).sum(1) - 4.0
    if variant == "as_printed":
        return -100 * np.sin(2 * x[:, 0]) + 2 * np.abs(x[:, 1]) + x[:, 2] + np.exp(-x[:, 3])
    amplitude = 10 if mixed else 100
    return -amplitude * np.sin(0.2 * x[:, 0]) + np.abs(x[:, 1]) + x[:, 2] + np.exp(-x[:, 3]) - 2.4


def _sample(name, rng, rows, variant):
    """Inputs (N, D), labels (N,), truth (N, D)."""
    mixed = name in _PARTS
    D = 10 if variant == "as_printed" and not mixed else 11
    X = rng.standard_normal((rows, D))
    truth = np.zeros((rows, D), dtype=bool)
    if mixed:
        first = X[:, 10] < 0
        logits = np.empty(rows)
        for part, where in zip(_PARTS[name], (first, ~first), strict=True):
            columns = list(_COLUMNS[part])
            logits[where] = log_ratio(part, X[np.ix_(where, columns)], variant=variant, mixed=True)
            truth[np.ix_(where, columns)] = True
        truth[:, 10] = True
    else:
        columns = list(_COLUMNS[name])
        if variant == "as_run":
            columns = list(range(len(columns)))
        logits = log_ratio(name, X[:, columns], variant=variant)
        truth[:, columns] = True
    if variant == "as_run" and not mixed:
        return X, (logits < 0).astype(np.int64), truth  # p(y=1) = 1 / (1 + r) > 1/2 where log r < 0
    p = 1.0 / (1.0 + np.exp(np.clip(logits, -500, 500)))
    return X, (rng.random(rows) < p).astype(np.int64), truth


def make_synthetic(name, seed=0, *, rows=10_000, variant="as_run", test_share=0.2, features=None) -> Dataset:
    """A fresh sample of one set, split 80/20, with ground truth for every row.

    ``features``: as many columns in all; those beyond the set's own are standard normal and useless. The first ones are
    the same however many follow.

    >>> d = make_synthetic("Syn4", seed=0, rows=1000)
    >>> d.X_train.shape, d.X_test.shape, sorted(set(d.truth_test.sum(1).tolist()))
    ((800, 11), (200, 11), [3, 5])
    """
    if name not in NAMES:
        raise ValueError(f"name must be one of {', '.join(NAMES)}; got {name!r}")
    if variant not in VARIANTS:
        raise ValueError(f"variant must be 'as_run' or 'as_printed'; got {variant!r}")
    if rows < 10 or not 0 < test_share < 1:
        raise ValueError(f"rows must be at least 10 and test_share between 0 and 1; got {rows}, {test_share}")
    rng = np.random.default_rng(derive("synthetic", name, variant, seed))
    X, y, truth = _sample(name, rng, rows, variant)
    if features is not None:
        more = features - X.shape[1]
        if more < 0:
            raise ValueError(f"{name} has {X.shape[1]} features of its own; got features={features}")
        rng = np.random.default_rng(derive("synthetic", name, variant, seed, "useless columns"))
        X = np.concatenate([X, rng.standard_normal((rows, more))], axis=1)
        truth = np.concatenate([truth, np.zeros((rows, more), dtype=bool)], axis=1)
    X, cut = X.astype(np.float32), int(round(rows * (1 - test_share)))
    names = [f"X{i + 1}" for i in range(X.shape[1])]
    return Dataset(name, X[:cut], y[:cut], X[cut:], y[cut:], names, ["0", "1"],
                   truth_train=truth[:cut], truth_test=truth[cut:])
