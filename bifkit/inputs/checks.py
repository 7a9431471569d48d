"""Checks of rows and labels, made before anything is trained.

An error says what was wrong, what was expected and what to do. Oddities of real data (constant columns, duplicate
columns, all-zero rows) work and give one warning together. The model has its own: :mod:`bifkit.inputs.models`.
"""

import inspect
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

PACKAGE = str(Path(__file__).parents[1]) + os.sep
LIKELIHOODS = ("categorical", "binary", "multilabel", "regression")


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line outside this package that led here, however deep in the package the warning arises."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def check_X(X: Any, *, width: int | None = None, feature_names: Sequence[str] | None = None,
            at_least: int = 1, features: int = 2) -> tuple[Tensor, tuple[int, ...], list[str], pd.Index | None]:
    """Turn rows into a float32 tensor, or say what is wrong with them.

    Parameters
    ----------
    X : DataFrame, array, tensor or list of rows
        One row per instance; further axes (images) are flattened.
    width : int, optional
        Number of features that is expected.
    feature_names : list of str, optional
        Names of the features; by default the columns of a DataFrame, else ``x0, x1, ...``.
    at_least : int, default 1
        Number of rows that are needed.
    features : int, default 2
        Number of features that are needed.

    Returns
    -------
    (Tensor (N, D), shape of one row, list of D names, index of a DataFrame or None)

    Examples
    --------
    >>> check_X([[1, 2], [3, 4]], feature_names=["age", "pay"])
    (tensor([[1., 2.], [3., 4.]]), (2,), ['age', 'pay'], None)
    """
    index = getattr(X, "index", None) if hasattr(X, "columns") else None
    names = [str(c) for c in X.columns] if hasattr(X, "columns") else None
    values = _float32(X)
    if values.ndim < 2:
        raise ValueError(f"X must have one row per instance and one column per feature; got shape {values.shape} "
                         "(a single row is X[[i]] or X.iloc[[i]])")
    if values.shape[0] == 0:
        raise ValueError("X is empty: there is no row to explain")
    if len(values) < at_least:
        raise ValueError(f"X has {len(values)} row(s), fit needs at least {at_least}: explain(X) takes single rows")
    shape, values = values.shape[1:], values.reshape(len(values), -1)
    if values.shape[1] < features:
        raise ValueError(f"X has {'one' if values.shape[1] else 'no'} feature: importance is relative, "
                         "so at least two are needed")
    if not np.isfinite(values).all():
        bad = np.flatnonzero(~np.isfinite(values).all(0))
        first = names[bad[0]] if names else bad[0]
        raise ValueError(f"X holds NaN or infinite values (first in column {first}, {len(bad)} columns in all): "
                         "impute or drop them first")
    if width is not None and values.shape[1] != width:
        raise ValueError(f"X has {values.shape[1]} features, expected {width}")
    if feature_names is not None:
        names = [str(n) for n in feature_names]
        if len(names) != values.shape[1]:
            raise ValueError(f"feature_names has {len(names)} names for {values.shape[1]} features")
    names = names or [f"x{i}" for i in range(values.shape[1])]
    if len(set(names)) < len(names):
        raise ValueError("feature names must differ from each other")
    return torch.from_numpy(values), tuple(shape), names, index


def _float32(X: Any) -> np.ndarray:
    """Rows as float32, writable and in C order; copied only where they must be."""
    values = X.detach().cpu() if isinstance(X, Tensor) else np.asarray(X)
    if any(kind in str(values.dtype) for kind in ("complex", "datetime", "timedelta")):
        raise TypeError(f"X must be numeric and real; it holds {values.dtype}: turn that into numbers first")
    if isinstance(values, Tensor):
        values = values.to(torch.float32).numpy()
    elif values.dtype == object:
        values = np.where(pd.isna(values), np.nan, values)  # pandas' NA is refused as what it is, a missing value
    try:
        with np.errstate(over="ignore"):  # a number too large for float32 becomes infinite, and is refused as that
            return np.require(values, np.float32, ["C", "W"])
    except (TypeError, ValueError) as error:
        raise TypeError(f"X must be numeric; encode text and categories first ({error})") from None


NOT_AS_TRAINED = ("are X's columns scaled, and in their order, as for training? g's predictions are explained all the "
                  "same")


def warn_score(score: float, baseline: float, likelihood: str) -> None:
    """Warn where g predicts the labels no better than a constant: most often X is not scaled as it was for training."""
    if likelihood == "regression" and score < 0:
        warn(f"g predicts y worse than its mean does (R^2 = {score:.2f}): {NOT_AS_TRAINED}")
    elif likelihood != "regression" and score <= baseline and score < 1:
        warn(f"g predicts y no better than the most frequent class does (accuracy {score:.3f} and {baseline:.3f}): "
             f"{NOT_AS_TRAINED}")


def check_y(y: Any, n: int, outputs: int, likelihood: str | None = None) -> tuple[str, Tensor | None]:
    """Turn labels into a tensor and decide what kind of target they are.

    Parameters
    ----------
    y : array, tensor, Series or None
        One label per row: class numbers, or float targets; of a g with several outputs also one column for each:
        0 or 1 (labels that do not exclude each other) or float targets. None: there are no labels.
    n : int
        Number of rows.
    outputs : int
        Number of g's outputs.
    likelihood : {"categorical", "binary", "multilabel", "regression"}, optional
        By default what ``outputs`` and the type of ``y`` suggest; without ``y``, several outputs are class logits, if
        they look like it (``bifkit.inputs.models.Looks``).

    Returns
    -------
    (likelihood, Tensor (n,) or (n, outputs), or None)

    Examples
    --------
    >>> check_y([0, 1, 1], 3, outputs=2)
    ('categorical', tensor([0, 1, 1]))
    >>> check_y([0.5, 2.0, 1.0], 3, outputs=1)
    ('regression', tensor([0.5000, 2.0000, 1.0000]))
    >>> check_y([[0, 0], [1, 0], [1, 1]], 3, outputs=2)[0]
    'multilabel'
    """
    if likelihood is not None and likelihood not in LIKELIHOODS:
        raise ValueError(f"likelihood must be categorical, binary, multilabel or regression; got {likelihood!r}")
    if outputs >= 2 and likelihood == "binary":
        raise ValueError(f"likelihood='binary' needs a g with one output; this one has {outputs}: say 'categorical' "
                         "(classes), 'multilabel' (labels that do not exclude each other) or 'regression'")
    if outputs == 1 and likelihood in ("categorical", "multilabel"):
        raise ValueError(f"likelihood={likelihood!r} needs a g with two or more outputs; this one has one: "
                         "say 'binary'")
    if y is None:
        if outputs == 1 and likelihood is None:
            raise ValueError("g has one output and there is no y: say likelihood='binary' (a logit) or 'regression'")
        return likelihood or "categorical", None
    y = y.detach().cpu().numpy() if isinstance(y, Tensor) else np.asarray(y)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    several = outputs >= 2 and (likelihood in ("multilabel", "regression") or likelihood is None and y.ndim == 2)
    if y.shape != ((n, outputs) if several else (n,)):
        also = f" and g {outputs} outputs: give one label per row and output" if several else ": give one label per row"
        raise ValueError(f"y has shape {y.shape}, X has {n} rows{also}")
    if y.dtype.kind not in "biuf":
        raise TypeError(f"y must be class numbers 0..C-1 or float targets; got {y.dtype}: encode the labels first")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise ValueError("y holds NaN or infinite values")
    whole = y.dtype.kind != "f" or bool((y == np.round(y)).all())
    zero_one = whole and bool(((y == 0) | (y == 1)).all())
    if likelihood is None and several and zero_one and (y.sum(1) == 1).all():
        raise ValueError(f"y has shape {y.shape} and one 1 in every row: give the class numbers, y.argmax(1), or say "
                         "likelihood='multilabel' if a row may have several labels or none")
    if likelihood is None:
        quantity = y.dtype.kind == "f" and not zero_one
        likelihood = "regression" if quantity and (several or outputs == 1) else \
            "multilabel" if several else "categorical" if outputs >= 2 else "binary"
    if likelihood == "regression" or likelihood == "multilabel" and zero_one:
        return likelihood, torch.from_numpy(y.astype(np.float32))
    if likelihood == "multilabel":
        raise ValueError("y must hold 0 and 1, one column for each label that g predicts; got values from "
                         f"{y.min()} to {y.max()}; if g predicts quantities, say likelihood='regression'")
    classes = max(outputs, 2)
    if not whole or y.min() < 0 or y.max() >= classes:
        what = "a quantity" if outputs == 1 else "quantities"
        raise ValueError(f"y must hold the class numbers 0..{classes - 1} that g predicts; "
                         f"got values from {y.min()} to {y.max()}; if g predicts {what}, say likelihood='regression'")
    return likelihood, torch.from_numpy(y.astype(np.int64))


def check_classes(classes: Any, n_outputs: int) -> list[int] | int | None:
    """Return the number of the class to explain, or a list to explain one by one; None explains the whole decision.

    >>> check_classes("each", 3), check_classes([2], 3), check_classes(2, 3), check_classes(None, 1)
    ([0, 1, 2], [2], 2, None)
    """
    if classes is None:
        return None
    if n_outputs < 2:
        raise ValueError("classes= needs a g with a logit for each class; this one has one output, whose importance "
                         "for one class is that for the other: leave classes out")
    if isinstance(classes, str) and classes == "each":
        return list(range(n_outputs))
    numbers = [classes] if np.ndim(classes) == 0 else list(classes)
    fine = all(isinstance(c, int | np.integer) and not isinstance(c, bool) and 0 <= c < n_outputs for c in numbers)
    if not numbers or not fine or len(set(numbers)) < len(numbers):
        raise ValueError(f"classes must be 'each', or class numbers from 0 to {n_outputs - 1}, none twice; "
                         f"got {classes!r}")
    return int(classes) if np.ndim(classes) == 0 else [int(c) for c in numbers]


def warn_oddities(X: Tensor, names: list[str], groups: Any = None) -> None:
    """Warn once about constant columns, duplicate columns and all-zero rows of X (N, D), if there are any.

    Columns are not looked at where there are ``groups``: a blank pixel of a patch, or two alike, is no oddity.
    """
    constant: list[int] = []
    duplicate: list[int] = []
    if groups is None:
        same = (X == X[0]).all(0).numpy()
        constant = np.flatnonzero(same).tolist()
        first: dict[int, int] = {}
        for start in range(0, X.shape[1], 64):  # a few columns at a time, next to each other in memory
            for i, column in enumerate(X[:5000, start:start + 64].T.contiguous().numpy(), start):
                j = first.setdefault(hash(column.tobytes()), i)  # columns equal here are compared in full
                if i != j and not same[i] and torch.equal(X[:, i], X[:, j]):
                    duplicate.append(i)
    warn_odd_counts(names, constant, duplicate, int((X == 0).all(1).sum()))


def warn_odd_counts(names: list[str], constant: list[int], duplicate: list[int], zero_rows: int) -> None:
    """Warn about these numbers of constant and of duplicate columns and this count of all-zero rows, if any."""
    notes = [f"{len(which)} {kind} column(s), e.g. {names[which[0]]}"
             for kind, which in (("constant", constant), ("duplicate", duplicate)) if which]
    if zero_rows:
        notes.append(f"{zero_rows} all-zero row(s)")
    if notes:
        warn("the data have " + ", ".join(notes) + ": BIF works on, duplicates share their importance")
