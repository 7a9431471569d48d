"""Asking a model that can only answer: which function to call, with what rows, and what its answers mean."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from bifkit.inputs.checks import warn
from bifkit.inputs.models import frozen, like

KINDS = ("probability", "logit", "label", "value")


def function_of(predict: Any, kind: str | None = None) -> tuple[Callable, str | None]:
    """Return the function to call, and what it answers where its name says so.

    Parameters
    ----------
    predict : estimator, method of one, torch module, or function of rows
        A module is asked for its outputs: ``kind`` says what they are. Of an estimator the first of ``predict_proba``,
        ``decision_function`` and ``predict`` that it has.
    kind : {"probability", "logit", "label", "value"}, optional
        What it answers, if the caller knows.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> function_of(DecisionTreeClassifier())[1], function_of(DecisionTreeClassifier().predict)[1], function_of(len)[1]
    ('probability', 'label', None)
    """
    if kind is not None and kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}; got {kind!r}")
    if isinstance(predict, nn.Module):
        if kind is None:
            raise ValueError("a torch module that has gradients goes to GlobalBIF or LocalBIF as it is; to distill one "
                             "that lacks some, say what it returns: kind='logit' or kind='value'")
        return _of_module(predict), kind
    if not callable(predict) or hasattr(predict, "predict"):
        names = [n for n in ("predict_proba", "decision_function", "predict") if hasattr(predict, n)]
        if not names:
            raise TypeError("predict must be a function of rows, or an estimator with predict_proba or predict; "
                            f"got {type(predict).__name__}")
        predict = getattr(predict, names[0])
    owner = getattr(predict, "__self__", None)
    if kind is not None or not hasattr(owner, "predict"):
        return predict, kind
    from sklearn.base import is_classifier  # here, as it is slow to import

    classifies = hasattr(owner, "classes_") or hasattr(owner, "__sklearn_tags__") and is_classifier(owner)
    by_name = {"predict_proba": "probability", "decision_function": "logit" if classifies else "value",
               "predict": "label" if classifies else "value"}
    return predict, by_name.get(getattr(predict, "__name__", ""))


def _of_module(model: nn.Module) -> Callable:
    """Return a torch module as a function of rows that leaves it as it was: to stand in for one without gradients."""
    def outputs(rows: Any) -> np.ndarray:
        x = torch.as_tensor(np.asarray(rows), dtype=torch.float32)
        with frozen(model), torch.no_grad():
            return model(x.to(like(model))).float().cpu().numpy()

    return outputs


def mixtures(rows: np.ndarray, n: int, width: int, rng: np.random.Generator) -> np.ndarray:
    """Return row numbers (n, D): each feature comes from one of two different ``rows``, in random proportions."""
    first = rng.integers(len(rows), size=(n, 1))
    second = (first + 1 + rng.integers(len(rows) - 1, size=(n, 1))) % len(rows)
    return rows[np.where(rng.random((n, width)) < rng.random((n, 1)), first, second)]


def gather(X: Any, source: np.ndarray) -> Any:
    """Return rows whose feature d is that of row ``source[:, d]``, of X's own type, columns and dtypes.

    >>> gather(pd.DataFrame({"age": [30, 40], "pay": [1.5, 2.5]}), np.array([[0, 1]])).to_dict("records")
    [{'age': 30, 'pay': 2.5}]
    """
    if hasattr(X, "columns"):
        columns = {c: X.iloc[:, c].array.take(source[:, c]) for c in range(X.shape[1])}
        return pd.DataFrame(columns).set_axis(X.columns, axis=1)
    index = torch.from_numpy(source).to(X.device) if isinstance(X, torch.Tensor) else source
    return X.reshape(len(X), -1)[index, np.arange(source.shape[1])].reshape(len(source), *X.shape[1:])


def ask(function: Callable, rows: Any, what: str = "X", *, batch: int = 10_000) -> np.ndarray:
    """Return the raw answers to ``rows``, (n,) or (n, C); errors call the rows ``what``."""
    answers = []
    for i in range(0, len(rows), batch):
        part = rows.iloc[i:i + batch] if hasattr(rows, "iloc") else rows[i:i + batch]
        try:
            answer = function(part)
        except Exception as error:
            reason = str(error).partition("\n")[0]
            raise ValueError(f"predict fails on {what} ({type(error).__name__}: {reason}): give X as the model was "
                             "trained on it, the same columns in the same order") from error
        if isinstance(answer, list) and answer and np.ndim(answer[0]) == 2:
            raise ValueError("predict answers several questions at once (a list of arrays): distill one of them, "
                             "such as lambda X: model.predict_proba(X)[0]")
        answer = answer.detach().cpu().numpy() if isinstance(answer, torch.Tensor) else np.asarray(answer)
        if answer.ndim not in (1, 2) or len(answer) != len(part) or answer.ndim == 2 and answer.shape[1] == 0:
            raise ValueError("predict must answer one number or one row of numbers for each row of X; got shape "
                             f"{answer.shape} for {len(part)} rows")
        missing = ~np.isfinite(answer) if answer.dtype.kind == "f" else pd.isna(answer)
        if missing.any():
            bad = missing.reshape(len(part), -1).any(1).sum()
            raise ValueError(f"predict answers NaN or infinity for {bad} of {len(part)} rows of {what}")
        answers.append(answer)
    if len({a.shape[1:] for a in answers}) > 1:
        raise ValueError("predict answers with a different number of columns from one call to the next")
    return np.concatenate(answers)


def kind_of(answers: np.ndarray) -> str:
    """Return what answers are by their shape and type, for a function whose name does not say it.

    >>> kind_of(np.array(["yes", "no"])), kind_of(np.array([[0.2, 0.8]])), kind_of(np.array([3.5, -1.0]))
    ('label', 'probability', 'value')
    """
    if answers.ndim == 2 and answers.shape[1] > 1:
        return "probability"
    if answers.dtype.kind != "f":
        distinct = len(np.unique(answers))
        if answers.dtype.kind in "iu" and distinct > 20:
            raise ValueError(f"predict answers {distinct} different whole numbers: say kind='value' or kind='label'")
        return "label"
    if answers.min() >= 0 and answers.max() <= 1:
        warn("predict answers one number in [0, 1] per row, taken for a value: say kind='probability' if it is "
             "the probability of a class, kind='value' if it is not")
    return "value"


def targets(answers: np.ndarray, kind: str) -> tuple[np.ndarray, list | None]:
    """Return class probabilities (n, C) or values (n, 1), and the labels that name the classes, if there are any.

    >>> targets(np.array(["no", "yes", "no"]), "label")[0].tolist(), targets(np.array([0.3]), "probability")[0].tolist()
    ([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [[0.7, 0.3]])
    """
    columns = 1 if answers.ndim == 1 else answers.shape[1]
    if kind == "label":
        if columns > 1:
            raise ValueError(f"kind='label' needs one label per row; predict answers {columns} columns")
        classes, number = np.unique(answers.ravel(), return_inverse=True)
        return np.eye(len(classes))[number], classes.tolist()
    try:
        p = answers.reshape(len(answers), -1).astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"kind={kind!r} needs numbers; predict answers {answers.dtype}") from None
    if kind == "value":
        if columns > 1:
            raise ValueError(f"kind='value' needs one value per row; predict answers {columns} columns: distill one")
        return p, None
    if kind == "logit":
        p = np.hstack([-p / 2, p / 2]) if columns == 1 else p  # a margin d is the log-odds of the second class
        p = np.exp(p - p.max(1, keepdims=True))
        return p / p.sum(1, keepdims=True), None
    p = np.hstack([1 - p, p]) if columns == 1 else p
    total = p.sum(1)
    if p.min() < -1e-6 or np.abs(total - 1).max() > 1e-3:
        raise ValueError("predict's rows are no probabilities: they must be at least 0 and sum to 1, and go from "
                         f"{p.min():.3g} to {p.max():.3g} with sums from {total.min():.3g} to {total.max():.3g}. "
                         "Say kind='logit' for scores whose softmax counts, kind='value' for a regression")
    return p.clip(0) / total[:, None], None
