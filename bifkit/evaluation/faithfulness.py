"""Is an explanation faithful to its model? Take features away, most important first, and watch the prediction.

    deletion    start from the whole row, remove the most important feature, then the next, ...: a good order makes
                the prediction fall at once, so that a **low** area under the curve is good
    insertion   start from nothing, put the most important feature back, then the next, ...: a **high** area is good

A row's value is the model's probability of the class it predicts on the whole row. For a regression it is one minus the
squared deviation from the prediction on the whole row, relative to the variance of these predictions (an R^2: zero is
as good as their mean, and it may be negative). A removed feature takes what ``fill`` says:

    mean        the column's mean over ``reference``: one row that is nobody's, often far from the data
    marginal    the values of ``donors`` rows of ``reference``, the same ones for every row and method; their results
                are averaged (features hidden together come from the same donor)
    a number or a row of numbers

The two fills can rank explanations differently: the model has not learned what to do with a row of means, and answers
it with a class of its own liking. Show both.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd
import torch
from torch import nn

from bifkit.evaluation.metrics import scores_of_rows
from bifkit.inputs import check_X, frozen, function_of, like, numbers, outputs, predict_proba, resolve_groups
from bifkit.posterior import Posterior
from bifkit.training import derive_seed

LIKELIHOODS = (None, "categorical", "binary", "regression")
BATCH = 8192  # rows the model sees at a time; bounds the memory


def _asker(model, X, shape, likelihood) -> Callable:
    """A function of flat float rows that gives class probabilities (n, C) or values (n, 1)."""
    if likelihood not in LIKELIHOODS:
        raise ValueError(f"likelihood must be categorical, binary or regression; got {likelihood!r}")
    if isinstance(model, nn.Module):
        with frozen(model), torch.no_grad():
            out = model(torch.as_tensor(np.array(np.asarray(X, np.float32)[:1])).to(like(model)))
        if out.numel() == 1 and likelihood is None:
            raise ValueError("the model has one output: say likelihood='binary' (a logit) or 'regression'")
        if likelihood == "regression":
            return lambda rows: outputs(lambda x: model(x.to(like(model))).reshape(len(x), -1),
                                        torch.from_numpy(rows).view(-1, *shape)).double().cpu().numpy()
        return lambda rows: predict_proba(model, torch.from_numpy(rows).view(-1, *shape))
    columns = getattr(X, "columns", None)
    if not callable(model) and not hasattr(model, "predict"):
        raise TypeError(f"model must be a torch module, an estimator or a function of rows; got {type(model).__name__}")
    function, kind = function_of(model)
    if kind in ("label", "logit"):
        raise ValueError("a classifier is judged by its probabilities: give an estimator with predict_proba, or a "
                         "function that returns them")

    def ask(rows):
        out = np.asarray(function(rows.reshape(-1, *shape) if columns is None else pd.DataFrame(rows, columns=columns)))
        out = out.reshape(len(rows), -1).astype(float)
        return np.hstack([1 - out, out]) if out.shape[1] == 1 and likelihood == "binary" else out

    return ask


def _fills(fill, reference, donors, seed):
    """The rows (M, D) that stand in for what is removed."""
    if isinstance(fill, str) and fill == "mean":
        return reference.mean(0, keepdims=True)
    if isinstance(fill, str) and fill == "marginal":
        if donors < 1:
            raise ValueError(f"donors must be at least 1; got {donors}")
        rng = np.random.default_rng(derive_seed("donors", seed))
        return reference[rng.permutation(len(reference))[:donors]]
    try:
        return np.broadcast_to(np.asarray(fill, dtype=np.float32), (1, reference.shape[1]))
    except ValueError:
        raise ValueError("fill must be 'mean', 'marginal', a number or a row of "
                         f"{reference.shape[1]} numbers; got {fill!r}") from None


def _scores(scores, n, names):
    """Scores as (n, G), one row per instance."""
    scores = np.atleast_2d(np.asarray(scores.mean if isinstance(scores, Posterior) else scores, dtype=float))
    if scores.ndim != 2 or scores.shape[1] != len(names) or len(scores) not in (1, n):
        raise ValueError(f"scores have shape {scores.shape}: expected ({n}, {len(names)}), one row per instance and "
                         f"one column per feature or group, or ({len(names)},) for all rows alike")
    return scores_of_rows(scores, n)


def _counts(steps, n):
    """How many features are removed or inserted at each point of the curve."""
    if steps is not None and not 1 <= steps:
        raise ValueError(f"steps must be at least 1, or None for one feature at a time; got {steps}")
    return np.unique(np.linspace(0, n, min(steps or n, n) + 1).round().astype(int))


@torch.no_grad()
def _curve(kind, model, X, scores, *, groups=None, fill="mean", reference=None, donors=20, steps=None, likelihood=None,
           seed=0) -> pd.Series:
    """The curve of either kind: the mean over rows of the prediction, feature by feature."""
    X, reference = numbers(model, X), numbers(model, reference)
    tensor, shape, names, _ = check_X(X)
    values = tensor.numpy()
    other = values if reference is None else check_X(reference, width=values.shape[1])[0].numpy()
    groups, names = resolve_groups(groups, names, shape)
    scores, fills = _scores(scores, len(values), names), _fills(fill, other, donors, seed)
    rank = np.argsort(np.argsort(-scores, axis=1, kind="stable"), axis=1)  # 0: the most important; ties to the earlier
    ask = _asker(model, X, shape, likelihood)
    whole = np.concatenate([ask(values[i:i + BATCH]) for i in range(0, len(values), BATCH)])  # (N, C)
    if not np.isfinite(whole).all():
        raise ValueError("the model returns NaN or infinite values on the whole rows")
    several = whole.shape[1] > 1
    if several and (whole.min() < -1e-6 or np.abs(whole.sum(1) - 1).max() > 1e-3):
        raise ValueError("the model's rows are no probabilities (they must sum to one): give a torch module that "
                         "returns logits, an estimator with predict_proba, or a function that returns probabilities")
    best, spread = whole.argmax(1), whole.var()
    if not several and spread == 0:
        raise ValueError("the model gives the same value for every row: there is nothing to explain")
    counts = _counts(steps, len(names))
    total, chunk = np.zeros(len(counts)), max(1, BATCH // len(fills))
    for i in range(0, len(values), chunk):
        x, r = values[i:i + chunk, None], rank[i:i + chunk]
        for j, k in enumerate(counts):
            hidden = (r < k if kind == "deletion" else r >= k)[:, groups]  # (B, D)
            out = ask(np.where(hidden[:, None], fills, x).reshape(-1, values.shape[1]))
            out = out.reshape(len(x), len(fills), -1)  # (B, M, C)
            if several:
                total[j] += np.take_along_axis(out, best[i:i + chunk, None, None], 2).mean(1).sum()
            else:
                total[j] += (1 - (out[..., 0] - whole[i:i + chunk]) ** 2 / spread).mean(1).sum()
    word = "removed" if kind == "deletion" else "inserted"
    return pd.Series(total / len(values), index=pd.Index(counts, name=f"features {word}"), name=kind)


def _area(curve):
    """Area under the curve over the share of features, by trapezia: a constant curve has its own height."""
    return float(np.trapezoid(curve.to_numpy(), curve.index.to_numpy() / curve.index[-1]))


def deletion_curve(model, X, scores, **options) -> pd.Series:
    """The prediction as features are removed, most important first: a mean over rows for 0, 1, ..., G features.

    >>> predict = lambda X: np.stack([0.5 - X[:, 0], 0.5 + X[:, 0]], 1)  # only the first feature counts
    >>> deletion_curve(predict, [[0.4, 9.0], [-0.4, 7.0]], [1.0, 0.0]).round(2).tolist()
    [0.9, 0.5, 0.5]

    Parameters
    ----------
    model : torch module, estimator or callable
        A module that returns logits, an estimator, or a function of rows that returns probabilities or values.
    X : array, DataFrame or tensor
    scores : array (N, G) or (G,), or Posterior
        Importances, one row per instance or one for all; of a Posterior its means.
    groups : dict, list of lists or array (D,), optional
        Features that go together, as for LocalBIF.
    fill : "mean" (default), "marginal", float or array (D,)
        What a removed feature becomes; see the top of this module.
    reference : like X, optional
        The rows that fill; X itself by default.
    donors : int, default 20
        Rows of ``reference`` for the marginal fill, drawn from ``seed``.
    steps : int, optional
        Points of the curve; by default one per feature.
    likelihood : "categorical", "binary" or "regression", optional
        Needed where the model has a single output: a logit or probability, or a value.
    seed : int, default 0

    Returns
    -------
    pandas.Series
        Indexed by the number of features removed.
    """
    return _curve("deletion", model, X, scores, **options)


def insertion_curve(model, X, scores, **options) -> pd.Series:
    """The prediction as features are put back, most important first; parameters as for :func:`deletion_curve`."""
    return _curve("insertion", model, X, scores, **options)


def deletion_score(model, X, scores, **options) -> float:
    """Area under the deletion curve, 0 to 1 for a classifier: lower is better.

    Parameters are those of :func:`deletion_curve`.

    >>> predict = lambda X: np.stack([0.5 - X[:, 0], 0.5 + X[:, 0]], 1)
    >>> round(deletion_score(predict, [[0.4, 9.0], [-0.4, 7.0]], [1.0, 0.0]), 3)  # of the curve .9, .5, .5
    0.6
    """
    return _area(deletion_curve(model, X, scores, **options))


def insertion_score(model, X, scores, **options) -> float:
    """Area under the insertion curve, 0 to 1 for a classifier: higher is better.

    Parameters are those of :func:`deletion_curve`.
    """
    return _area(insertion_curve(model, X, scores, **options))
