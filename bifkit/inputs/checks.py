"""Checks of models, rows and labels, made before anything is trained.

An error says what was wrong, what was expected and what to do. Oddities of real data (constant columns, duplicate
columns, all-zero rows) work and give one warning together; so does a g that seems to return probabilities.
"""

import inspect
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

PACKAGE = str(Path(__file__).parents[1]) + os.sep


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line outside this package that led here, however deep in the package the warning arises."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def check_model(model: nn.Module, device: str | torch.device | None = None) -> torch.device:
    """Make sure that g is a torch module whose weights are all there; return the device they are on.

    >>> check_model("a forest")
    Traceback (most recent call last):
    TypeError: BIF learns by gradients through g, so g must be a torch.nn.Module; got str. ...
    """
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"BIF learns by gradients through g, so g must be a torch.nn.Module; got {type(model).__name__}. "
            "A scikit-learn model cannot be differentiated: explain bifkit.distill(model, X), a torch model "
            "that answers alike."
        )
    devices = {p.device for p in [*model.parameters(), *model.buffers()]} or {torch.device("cpu")}
    if len(devices) > 1:
        raise ValueError(f"g is spread over several devices ({', '.join(sorted(map(str, devices)))}); move it to one")
    found = devices.pop()
    if found.type == "meta":
        raise ValueError("g is on the meta device and has no weights; load them first")
    try:
        wanted = found if device is None else torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"device must be torch's name of one, such as 'cpu' or 'cuda'; got {device!r}") from error
    if wanted.type != found.type:
        raise ValueError(f"g is on {found}, but device={device!r} was asked for: call model.to({device!r}) first")
    return found


def like(model: nn.Module) -> Tensor:
    """Return a tensor of the dtype and device that g's inputs must have, to be used as ``x.to(like(g))``."""
    weights = (p for p in chain(model.parameters(), model.buffers()) if p.is_floating_point())
    return next(weights, torch.zeros(()))


def view(model: nn.Module, shape: Sequence[int]) -> Callable[[Tensor], Tensor]:
    """Return g as a function of flat rows: (B, D) to float outputs (B, C), whatever shape and dtype g works in."""
    kind = like(model)
    return lambda x: model(x.view(len(x), *shape).to(kind)).reshape(len(x), -1).float()


def check_X(X: Any, *, width: int | None = None, feature_names: Sequence[str] | None = None,
            at_least: int = 1) -> tuple[Tensor, tuple[int, ...], list[str], pd.Index | None]:
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
    if values.shape[1] < 2:
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


def check_output(model: nn.Module, x: Tensor, shape: tuple[int, ...]) -> int:
    """Return the number of g's outputs, after one differentiable pass over a few rows (B, D) of ``shape`` each."""
    x = x[:4].clone().requires_grad_(True)
    given = x * 1.0  # no leaf: a g that writes into it can be named
    try:
        out = model(given.view(-1, *shape).to(like(model)))
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"g cannot take rows of {int(np.prod(shape))} features ({reason}): "
                         "give X the columns g was trained on, in their order") from None
    if not isinstance(out, Tensor) or out.ndim not in (1, 2) or len(out) != len(x):
        got = f"shape {tuple(out.shape)} for {len(x)} rows" if isinstance(out, Tensor) else type(out).__name__
        raise ValueError(f"g must return one tensor of logits or predictions, (rows, outputs); got {got}")
    if not torch.equal(given, x):
        raise ValueError("g writes into its input, so that the rows change as they are explained: let its forward "
                         "begin with x = x.clone()")
    if not out.isfinite().all():
        raise ValueError("g returns NaN or infinite values: check its weights and the scale of X")
    if not out.requires_grad or torch.autograd.grad(out.sum(), x, allow_unused=True)[0] is None:
        raise ValueError("g's output does not depend differentiably on its input (a no_grad, argmax or detach inside?)")
    _check_answers(view(model, shape), x.detach())
    return 1 if out.ndim == 1 else out.shape[1]


@torch.no_grad()
def _check_answers(g: Callable[[Tensor], Tensor], x: Tensor) -> None:
    """Warn where an answer is not the same twice, or depends on the rows beside it."""
    first = g(x)
    tolerance = 1e-3 * float(first.abs().max()) + 1e-6
    if float((g(x) - first).abs().max()) > tolerance:
        warn("g answers the same rows differently twice (dropout that ignores eval(), random numbers or a state "
             "inside?): what is explained is its answer on average, and less surely")
    elif len(x) > 2 and float((g(x[:2]) - first[:2]).abs().max()) > tolerance:
        warn("g's answer for a row depends on the rows beside it (batch statistics inside forward?): it is explained "
             "as it answers in batches of other rows")


def why_not_finite(model: nn.Module, rows: Any) -> str:
    """Return a sentence on where NaN or infinity first appears, when g sees rows whose values are mixed."""
    x = rows.some(1000)
    mixed = x.clone()
    for i in range(x.shape[1]):  # what a fit shows to g: values of other rows
        mixed[:, i] = x[torch.randperm(len(x), device=x.device), i]
    found: list[str] = []

    def look(name: str) -> Callable:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            if not found and isinstance(output, Tensor) and not output.isfinite().all():
                found.append(f"layer {name or type(module).__name__!r} ({type(module).__name__})")
        return hook

    hooks = [m.register_forward_hook(look(n)) for n, m in model.named_modules() if not list(m.children())]
    try:
        with torch.no_grad():
            out = view(model, rows.shape)(mixed)
    finally:
        for hook in hooks:
            hook.remove()
    bad = int((~out.isfinite()).any(1).sum())
    if bad:
        where = f", first in the output of {found[0]}" if found else ""
        return (f"g returns NaN or infinity for {bad} of {len(x)} rows whose features are those of different rows"
                f"{where}; a fit shows such rows to g: let it answer them (a log, a division, a root inside?)")
    return ("g's outputs are finite, so it is its gradient that is not (a square root or a norm at 0?), or its outputs "
            "or the steps (lr) are too large")


NOT_AS_TRAINED = ("are X's columns scaled, and in their order, as for training? g's predictions are explained all the "
                  "same")


def warn_score(score: float, baseline: float, likelihood: str) -> None:
    """Warn where g predicts the labels no better than a constant: most often X is not scaled as it was for training."""
    if likelihood == "regression" and score < 0:
        warn(f"g predicts y worse than its mean does (R^2 = {score:.2f}): {NOT_AS_TRAINED}")
    elif likelihood != "regression" and score <= baseline and score < 1:
        warn(f"g predicts y no better than the most frequent class does (accuracy {score:.3f} and {baseline:.3f}): "
             f"{NOT_AS_TRAINED}")


def check_gradients(model: nn.Module, x: Tensor, shape: tuple[int, ...], names: list[str]) -> None:
    """Raise an error if g uses an input that it has no gradient for, seen on a few rows (B, D).

    Such an input (an id that is rounded inside g, a value that is only compared with a threshold) would silently look
    useless. Of the inputs whose gradient is zero on every row, none may change g's answers when its values change rows.
    """
    g, fixed = view(model, shape), torch.Generator().manual_seed(0)
    with torch.enable_grad():
        inputs = x.clone().requires_grad_(True)
        out = g(inputs)
        mix = torch.randn(out.shape, generator=fixed).to(out.device)  # a plain sum of logits may cancel
        grad = torch.autograd.grad((out * mix).sum(), inputs)[0]
    order, used = torch.randperm(len(x), generator=fixed).to(x.device), []
    with torch.no_grad():  # a g that answers differently twice does not use a column more for it
        tolerance = 1e-5 * float(out.abs().max()) + 10 * float((g(x) - out).abs().max())
    for i in (grad == 0).all(0).nonzero().flatten().tolist():
        swapped = x.clone()
        swapped[:, i] = x[order, i]
        with torch.no_grad():
            if float((g(swapped) - out).abs().max()) > tolerance:
                used.append(names[i])
    if used:
        which = ", ".join(used[:5]) + (", ..." if len(used) > 5 else "")
        raise ValueError(f"g uses {which}, but has no gradient for it (rounded, compared, an index inside?), and BIF "
                         "would call it useless: explain a smooth stand-in, bifkit.distill(g, X, kind='logit') (or "
                         "kind='value' for a regression)")


def check_y(y: Any, n: int, outputs: int, likelihood: str | None = None) -> tuple[str, Tensor | None]:
    """Turn labels into a tensor and decide what kind of target they are.

    Parameters
    ----------
    y : array, tensor, Series or None
        One label per row: class numbers, or float targets. None: there are no labels.
    n : int
        Number of rows.
    outputs : int
        Number of g's outputs.
    likelihood : {"categorical", "binary", "regression"}, optional
        By default what ``outputs`` and the type of ``y`` suggest.

    Returns
    -------
    (likelihood, Tensor (n,) or None)

    Examples
    --------
    >>> check_y([0, 1, 1], 3, outputs=2)
    ('categorical', tensor([0, 1, 1]))
    >>> check_y([0.5, 2.0, 1.0], 3, outputs=1)
    ('regression', tensor([0.5000, 2.0000, 1.0000]))
    """
    if likelihood is not None and likelihood not in ("categorical", "binary", "regression"):
        raise ValueError(f"likelihood must be categorical, binary or regression; got {likelihood!r}")
    if outputs >= 2 and likelihood in ("binary", "regression"):
        raise ValueError(f"likelihood={likelihood!r} needs a g with one output; this one has {outputs}")
    if y is None:
        if outputs == 1 and likelihood is None:
            raise ValueError("g has one output and there is no y: say likelihood='binary' (a logit) or 'regression'")
        return likelihood or "categorical", None
    y = y.detach().cpu().numpy() if isinstance(y, Tensor) else np.asarray(y)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.shape != (n,):
        raise ValueError(f"y has shape {y.shape}, X has {n} rows: give one label per row")
    if y.dtype.kind not in "biuf":
        raise TypeError(f"y must be class numbers 0..C-1 or float targets; got {y.dtype}: encode the labels first")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise ValueError("y holds NaN or infinite values")
    whole = y.dtype.kind != "f" or bool((y == np.round(y)).all())
    if likelihood is None:
        zero_one = whole and set(np.unique(y).tolist()) <= {0, 1}
        likelihood = "categorical" if outputs >= 2 else "binary" if zero_one or y.dtype.kind != "f" else "regression"
    if likelihood == "regression":
        return likelihood, torch.from_numpy(y.astype(np.float32))
    classes = max(outputs, 2)
    if not whole or y.min() < 0 or y.max() >= classes:
        hint = "" if outputs > 1 else "; if g predicts a quantity, say likelihood='regression'"
        raise ValueError(f"y must hold the class numbers 0..{classes - 1} that g predicts; "
                         f"got values from {y.min()} to {y.max()}{hint}")
    return likelihood, torch.from_numpy(y.astype(np.int64))


def check_classes(classes: Any, n_outputs: int) -> list[int] | None:
    """Return the numbers of the classes to explain one by one; None explains the decision as a whole.

    >>> check_classes("each", 3), check_classes([2], 3), check_classes(None, 1)
    ([0, 1, 2], [2], None)
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
    return [int(c) for c in numbers]


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


def warn_probabilities(output: Tensor, likelihood: str) -> None:
    """Warn when the outputs (N, C) of a classifier look like probabilities: BIF takes them for logits."""
    if likelihood != "regression" and look_like_probabilities(output):
        several = output.shape[1] > 1
        warn(f"g must return logits, but its outputs look like probabilities (all in [0, 1]"
             f"{', rows sum to 1' if several else ''}): leave out its last {'softmax' if several else 'sigmoid'}, "
             f"or let it return torch.{'log' if several else 'logit'} of them")


def look_like_probabilities(output: Tensor) -> bool:
    """Whether outputs (N, C) all lie in [0, 1], and those of a row sum to one where there are several."""
    inside = bool(output.min() >= 0 and output.max() <= 1)
    return inside and (output.shape[1] == 1 or bool((output.sum(1) - 1).abs().max() <= 1e-3))


@contextmanager
def frozen(model: nn.Module) -> Iterator[nn.Module]:
    """Put g in eval mode without weight gradients inside, and leave it exactly as it was outside.

    >>> g = nn.Linear(3, 2)
    >>> with frozen(g):
    ...     g.training, g.weight.requires_grad
    (False, False)
    >>> g.training, g.weight.requires_grad
    (True, True)
    """
    modes = [(m, m.training) for m in model.modules()]
    grads = [(p, p.requires_grad) for p in model.parameters()]
    buffers = [(b, b.clone()) for b in model.buffers()]  # a g may count its calls or keep statistics
    counters = [(m, k, v) for m in model.modules() for k, v in vars(m).items() if isinstance(v, int | float | str)]
    try:
        model.eval()
        for p, _ in grads:
            p.requires_grad_(False)
        yield model
    finally:
        for m, mode in modes:
            m.training = mode
        for p, flag in grads:
            p.requires_grad_(flag)
        with torch.no_grad():
            for b, before in buffers:
                b.copy_(before)
        for m, name, value in counters:
            if vars(m).get(name) != value:
                vars(m)[name] = value


@torch.no_grad()
def outputs(g: Callable[[Tensor], Tensor], X: Tensor, *, batch_size: int = 8192) -> Tensor:
    """Return what g says of all rows, (N, C), computed batch by batch without a graph."""
    return torch.cat([g(part) for part in X.split(batch_size)])


def predict_proba(model: nn.Module, X: Any, *, batch_size: int = 8192) -> np.ndarray:
    """Return the class probabilities (N, C) of a model that returns logits; a single logit gives two columns.

    >>> predict_proba(nn.Identity(), [[0.0, 0.0], [0.0, 9.0]]).round(2).tolist()
    [[0.5, 0.5], [0.0, 1.0]]
    """
    rows = torch.as_tensor(np.require(np.asarray(X), requirements="W"), dtype=torch.float32)
    with frozen(model):  # a prediction must not move BatchNorm's statistics
        out = outputs(lambda x: model(x.to(like(model))), rows, batch_size=batch_size).float().cpu()
    if out.ndim == 1 or out.shape[1] == 1:
        p = torch.sigmoid(out.view(-1, 1))
        return torch.cat([1 - p, p], 1).numpy()
    return out.softmax(1).numpy()
