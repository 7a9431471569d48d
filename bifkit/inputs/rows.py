"""Where the rows of a fit come from: an array in memory, or a DataLoader for data that do not fit there.

Both are checked before anything is trained and know the same facts afterwards (see ``Rows``). A DataLoader yields
batches x or (x, y), where x may be a tuple or a dict of inputs, in an order and a size of its own. It is gone through
once to check and count, then once per epoch, so it must start anew each time and end; memory holds one batch at a time.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from bifkit.elbo import soft_target, surprise, to_gain
from bifkit.inputs import checks, models, several

BLOCK = 2**18  # numbers (a megabyte) that are put in a new order at a time
Model = Callable[[Tensor], Tensor]  # rows (B, D) to outputs (B, C)
Read = Callable[[Tensor, Tensor | None], Tensor]  # g's outputs (B, C) and labels, or None, to the target to explain


def is_loader(X: Any) -> bool:
    """Whether rows come in batches."""
    return isinstance(X, DataLoader)


def rows_of(loader: Iterable, read: Callable[[Any], Tensor]) -> Iterator[Tensor]:
    """Yield the rows (B, D) of each batch, as ``read`` makes them, ready for a network; labels are left aside."""
    number = 0
    for number, batch in enumerate(loader, 1):
        with _naming(number):
            x = read(_parts(batch)[0])
        yield x
    if not number:
        raise ValueError("the DataLoader gave no batch: there is no row to explain")


def _parts(batch: Any) -> tuple[Any, Tensor | None]:
    """(x, y or None) of what a DataLoader yields; a dict's labels are its "y", "label" or "labels"."""
    if isinstance(batch, Tensor):
        return batch, None
    if isinstance(batch, Mapping):
        labels = [batch[key] for key in ("y", "label", "labels") if key in batch]
        return {k: v for k, v in batch.items() if k not in ("y", "label", "labels")}, labels[0] if labels else None
    if isinstance(batch, list | tuple) and len(batch) in (1, 2):
        x, y = batch[0], batch[1] if len(batch) == 2 else None
        if isinstance(x, Tensor | Mapping):
            return x, y
        if isinstance(x, list | tuple) and all(isinstance(part, Tensor) for part in x):
            return tuple(x), y
    raise TypeError("a DataLoader must yield tensors x, or pairs (x, y); where g takes several inputs, x is a tuple or "
                    f"a dict of them, ((a, b), y); got a {type(batch).__name__}"
                    + (f" of {len(batch)}" if isinstance(batch, list | tuple) else ""))


def _first_rows(x: Any) -> int:
    """Number of rows of what ``_parts`` calls x."""
    return len(x) if isinstance(x, Tensor) else len(next(iter(x.values() if isinstance(x, Mapping) else x)))


def flat_model(model: nn.Module, output: Any, layout: several.Layout | None) -> nn.Module:
    """Return g as a module of rows as :func:`flat_rows` makes them, with the part of its answer that is explained."""
    return models.chosen(model, output) if layout is None else several.Adapter(model, layout, output)


def flat_rows(X: Any, layout: several.Layout | None, *, width: int, device: str | torch.device,
              model: nn.Module | None = None) -> tuple[Tensor, list[str] | None, Any]:
    """Turn rows as in fit into one tensor (N, D), checked.

    Parameters
    ----------
    X : DataFrame, array, tensor, or a tuple or dict of them
        As in fit.
    layout : Layout or None
        Of several inputs, or of ids.
    width : int
        Number of features of fit.
    device : torch.device
        Where to put it.
    model : nn.Module, optional
        The frozen g, which ids need.

    Returns
    -------
    (Tensor (N, D), names of X's own columns or None, index of a DataFrame or None)
    """
    if layout is None:
        x, _, names, index = checks.check_X(X, width=width)
        return x.to(device), names, index
    if layout.calls and model is None:
        raise ValueError("ids are explained by what g's embedding layer makes of them: load the explainer with "
                         "load(path, model)")
    columns, index = several.columns_of(layout, X)
    if model is None:
        return columns[:, np.argsort(layout.where()[0])].to(device), None, index
    return several.Adapter(model, layout).flat(columns).to(device), None, index


@contextmanager
def _naming(number: int) -> Iterator[None]:
    """An error in here says which batch it is about."""
    try:
        yield
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"batch {number} of the DataLoader: {error}") from None


def _predicted(output: Tensor, likelihood: str) -> Tensor:
    """Class numbers, or float64 values for a regression, (N,), from g's outputs (N, C); (N, C) of several labels."""
    if likelihood == "categorical":
        return output.argmax(1)
    return output.squeeze(1).double() if likelihood == "regression" else (output.squeeze(1) > 0).long()


def score(output: Tensor, labels: Tensor, likelihood: str) -> float:
    """How well the outputs (N, C) of g predict the labels: accuracy, or R^2 of a regression; of several, their mean."""
    from sklearn.metrics import r2_score  # here, as it is slow to import

    predicted = _predicted(output, likelihood)
    if likelihood != "regression":
        return float((predicted == labels).double().mean())
    return float(r2_score(labels.cpu().numpy(), predicted.cpu().numpy()))


def counted(labels: Tensor, likelihood: str) -> np.ndarray:
    """How many rows have each class or label; nothing of a regression."""
    if likelihood == "regression":
        return np.zeros(1)
    return (labels.sum(0) if likelihood == "multilabel" else labels.bincount()).cpu().numpy()


def most_frequent(counts: np.ndarray, n: int, likelihood: str) -> float:
    """Accuracy of always saying the most frequent class, of each label where there are several; 0 of a regression."""
    return float(np.maximum(counts, n - counts).mean() if likelihood == "multilabel" else max(counts)) / n


class Gain:
    """What there is to gain by explaining g's answers (``bifkit.elbo.to_gain``), of outputs that come by batches."""

    def __init__(self) -> None:
        self.n, self.answers, self.surprise, self.outputs = 0, torch.zeros(()), 0.0, 1

    def add(self, output: Tensor, likelihood: str) -> None:
        """Count g's outputs (B, C)."""
        self.outputs = output.shape[1]
        if likelihood != "regression":
            answers = soft_target(output.double(), likelihood)
            self.n, self.answers = self.n + len(answers), self.answers.to(answers) + answers.sum(0)
            self.surprise += float(surprise(answers, likelihood).sum())

    def value(self, likelihood: str) -> float:
        """Return it, for all that was added."""
        if likelihood == "regression":
            return to_gain(0.5 * self.outputs, 0.0)  # in units of each target's variance
        return to_gain(float(surprise(self.answers / self.n, likelihood)), self.surprise / self.n)


class Moments:
    """Mean, variance and range of each column, (D,), of rows that come batch by batch."""

    def __init__(self) -> None:
        from sklearn.preprocessing import StandardScaler  # here, as it is slow to import

        self.scaler, self.low, self.high = StandardScaler(), np.inf, -np.inf

    def add(self, rows: Tensor) -> None:
        """Count the rows (B, D)."""
        values = rows.cpu().double().numpy()
        self.scaler.partial_fit(values)
        self.low, self.high = np.minimum(self.low, values.min(0)), np.maximum(self.high, values.max(0))
        self.mean = self.scaler.mean_
        self.var = np.where(self.low == self.high, 0.0, self.scaler.var_)  # rounding leaves some in a constant column


class Rows:
    """Checked rows and what a fit needs to know of them.

    Attributes
    ----------
    n, width : int
        Number of rows, and of gated values per row.
    shape : tuple of int
        The shape of one row that g takes.
    names : list of str
        One name per feature.
    of_column : list of str
        The name of each gated value of a row; that of an embedded id stands at each value of its vector.
    model : nn.Module
        g as a module of these rows.
    layout : Layout or None
        What lies where in them, of several inputs or of ids; they may have further values, that g gets as they are.
    columns : list or None
        The names that the user gave, None if there were none.
    size, per_epoch : int
        Largest number of rows per batch; number of batches per epoch.
    outputs : int
        Number of g's outputs.
    likelihood : {"categorical", "binary", "multilabel", "regression"}
        What g predicts.
    mean, sd : Tensor (width,)
        Mean and standard deviation of each input.
    score : float or None
        How well g predicts the labels: accuracy, or R^2 for a regression; None without labels.
    gain : float
        What there is to gain by explaining g's answers: ``bifkit.elbo.to_gain``.
    """

    X: Tensor  # all rows in memory, the first 1000 of a DataLoader
    likelihood: str
    model: Any
    options: tuple

    def _take_in(self, X: Any, at_least: int = 1) -> Tensor:
        """The first rows as one tensor; they say what names, shape and g are."""
        model, output, embedding, feature_names, _ = self.options
        self.layout = several.layout_of(X, model, embedding, feature_names)
        self.model = flat_model(model, output, self.layout)
        self.columns = None
        if self.layout is None:
            self.columns = list(X.columns) if hasattr(X, "columns") else feature_names
            x, self.shape, self.names, _ = checks.check_X(X, feature_names=feature_names, at_least=at_least)
            self.of_column, self.width = self.names, x.shape[1]
            return x
        x = self.model.flat(several.columns_of(self.layout, X, at_least=at_least)[0])
        self.names, self.shape, self.width = self.layout.names, tuple(x.shape[1:]), self.layout.width
        if feature_names is not None and not isinstance(feature_names, Mapping):
            if len(set(feature_names)) != len(self.names) or len(feature_names) != len(self.names):
                raise ValueError(f"feature_names must be {len(self.names)} different names; got {len(feature_names)}")
            self.names = [str(name) for name in feature_names]
        if len(set(self.names)) < len(self.names):
            raise ValueError("feature names must differ from each other")
        self.of_column = [self.names[i] for i in self.layout.feature_of_column()]
        return x

    def some(self, rows: int = 1000) -> Tensor:
        """Return the first rows (B, width), to judge a fit by; of a DataLoader at most 1000."""
        return self.X[:rows]

    def scale(self, target: str) -> Tensor:
        """Return a regression's units (C,): the sd of each ``target``, "labels" or "soft"; 1 if that does not vary."""
        mean, sd = self._moments(target)
        return torch.where(sd > 1e-6 * mean.abs(), sd, 1.0)

    def _moments(self, target: str) -> tuple[Tensor, Tensor]:
        """Mean and unbiased sd, (C,), of a regression's targets."""
        raise NotImplementedError


def source(X: Any, y: Any, model: nn.Module, *, device: str | torch.device, likelihood: str | None,
           feature_names: Any, batch_size: int, groups: Any, output: Any = None,
           embedding: Any = None) -> "InMemory | Streamed":
    """Check rows and labels against g.

    Parameters
    ----------
    X : DataFrame, array, tensor, a tuple or dict of them, or DataLoader
        The rows; a DataLoader yields batches x or (x, y).
    y : array or None
        One label per row; None with a DataLoader.
    model : nn.Module
        The frozen g.
    device : torch.device
        Where g is.
    likelihood : {"categorical", "binary", "multilabel", "regression"} or None
        What g predicts; None decides by its outputs and the labels.
    feature_names : list of str, dict of them for each of several inputs, or None
        Names instead of X's own.
    batch_size : int
        Rows per batch; a DataLoader has its own.
    groups : any or None
        Groups of features, if there are any: then odd single columns need no warning.
    output : str, int, function or None
        The part of g's answer to explain.
    embedding : str, nn.Module, list of them or None
        The layers that embed ids.

    Returns
    -------
    InMemory or Streamed
        See ``Rows`` for what both know.

    Examples
    --------
    >>> rows = source([[1, 2], [3, 4]], [0, 1], nn.Identity(), device="cpu", likelihood=None, feature_names=None,
    ...               batch_size=2, groups=None)
    >>> rows.n, rows.names, rows.likelihood, rows.mean.tolist(), rows.score
    (2, ['x0', 'x1'], 'categorical', [2.0, 3.0], 0.5)
    """
    options = (model, output, embedding, feature_names, device)
    if not is_loader(X):
        return InMemory(X, y, options, likelihood=likelihood, batch_size=batch_size, groups=groups)
    if y is not None:
        raise ValueError("with a DataLoader the labels come from it, in batches (x, y): leave y out")
    return Streamed(X, options, likelihood=likelihood)


class InMemory(Rows):
    """All rows as one tensor (N, D)."""

    def __init__(self, X: Any, y: Any, options: tuple, *, batch_size: int, likelihood: str | None = None,
                 groups: Any = None) -> None:
        self.options, device = options, options[-1]
        x = self._take_in(X, at_least=2)
        model = self.model
        self.outputs = models.check_output(model, x[:4].to(device), self.shape)
        self.likelihood, labels = checks.check_y(y, len(x), self.outputs, likelihood)
        checks.warn_oddities(x[:, :self.width].cpu(), self.names,
                             groups if self.layout is None or not self.layout.calls else "of embedded ids")
        self.X = x.to(device)
        models.check_gradients(model, self.X[:256], self.shape, self.of_column)
        self.labels = None if labels is None else labels.to(device)
        self.n, self.size = len(x), min(batch_size, len(x))
        self.per_epoch = max(self.n // self.size, 1)
        gated = self.X[:, :self.width]
        self.mean, self.sd = gated.mean(0), gated.std(0, unbiased=False)
        self.whole = models.outputs(models.view(model, self.shape), self.X)  # (N, C): what g says of the whole rows
        if not self.whole.isfinite().all():
            bad = (~self.whole.isfinite()).any(1).nonzero().flatten().tolist()
            raise ValueError(f"g returns NaN or infinity for {len(bad)} of {self.n} rows, the first at position "
                             f"{bad[0]}: look at its values, or leave such rows out")
        looks = models.Looks()
        looks.add(self.whole)
        looks.check(self.likelihood, guessed=labels is None and likelihood is None)
        gain = Gain()
        gain.add(self.whole, self.likelihood)
        self.gain = gain.value(self.likelihood)
        self.score = None if labels is None else score(self.whole, labels, self.likelihood)
        if labels is not None and self.score is not None:
            counts = counted(labels, self.likelihood)
            checks.warn_score(self.score, most_frequent(counts, self.n, self.likelihood), self.likelihood)

    def batches(self, read: Read, g: Model | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (x, target) for ever, with the rows in a new random order each epoch.

        Parameters
        ----------
        read : callable
            The target, read off g's outputs (N, C) and the labels, which are None where there are none.
        g : callable, optional
            What to take the outputs from, instead of the g that the rows were checked against.
        """
        target = read(self.whole if g is None else models.outputs(g, self.X), self.labels)
        block = self.size * max(BLOCK // (self.size * self.X.shape[1]), 1)
        while True:
            order = torch.randperm(self.n, device=self.X.device)[:self.per_epoch * self.size]
            for rows in order.split(block):
                yield from zip(self.X[rows].split(self.size), target[rows].split(self.size), strict=True)

    def _moments(self, target: str) -> tuple[Tensor, Tensor]:
        values = self.whole if target == "soft" or self.labels is None else self.labels.reshape(self.n, -1)
        return values.mean(0), values.std(0)


class Streamed(Rows):
    """Rows from a DataLoader, which is gone through once to check and count them."""

    def __init__(self, loader: DataLoader, options: tuple, *, likelihood: str | None = None) -> None:
        self.loader, self.options, self.device = loader, options, options[-1]
        device = self.device
        self.g: Model | None = None  # known from the first batch on, as are shape, width, names, outputs, labelled
        self.n = self.size = self.per_epoch = zero_rows = 0
        inputs, self.soft, self.labels, gain, looks = Moments(), Moments(), Moments(), Gain(), models.Looks()
        first, error, counts = [], np.zeros(1), np.zeros(0)
        for number, batch in enumerate(loader, 1):
            with _naming(number):
                x, labels, out = self._checked(batch, likelihood)
            inputs.add(x[:, :self.width])
            gain.add(out, self.likelihood)
            looks.add(out)
            quantity = self.likelihood == "regression"
            if quantity:
                self.soft.add(out)
            if labels is not None:
                gap = (_predicted(out, self.likelihood) - labels).reshape(len(x), -1)
                error = error + (gap.square() if quantity else gap != 0).double().sum(0).cpu().numpy()
                if quantity:
                    self.labels.add(labels.reshape(len(x), -1))
                here = counted(labels, self.likelihood)
                longest = max(len(here), len(counts))
                counts = np.pad(counts, (0, longest - len(counts))) + np.pad(here, (0, longest - len(here)))
            if self.n < 1000:
                first.append(x[:1000 - self.n].clone())
            zero_rows += int((x[:, :self.width] == 0).all(1).sum())
            self.n, self.size, self.per_epoch = self.n + len(x), max(self.size, len(x)), self.per_epoch + (len(x) > 1)
        if self.n < 2:
            raise ValueError(f"the DataLoader gave {self.n} row(s), fit needs at least 2")
        if not self.per_epoch:
            raise ValueError("every batch of the DataLoader has one row, and rows of a batch stand in for each other: "
                             "give it batch_size=2 or more (200 is what bifkit takes itself)")
        self.gain = gain.value(self.likelihood)
        self.X, self.score = torch.cat(first), self._score(error) if self.labelled else None
        self.mean, self.sd = (torch.from_numpy(v).float().to(device) for v in (inputs.mean, np.sqrt(inputs.var)))
        constant = np.flatnonzero(inputs.low == inputs.high).tolist()
        checks.warn_odd_counts(self.of_column, [] if self.layout and self.layout.calls else constant, [], zero_rows)
        looks.check(self.likelihood, guessed=not self.labelled and likelihood is None)
        if self.score is not None:
            checks.warn_score(self.score, most_frequent(counts, self.n, self.likelihood), self.likelihood)

    def _checked(self, batch: Any, likelihood: str | None) -> tuple[Tensor, Tensor | None, Tensor]:
        """(rows, labels, g's outputs) of a batch, each checked; the first batch says how the others must be."""
        x, y = _parts(batch)
        if self.g is None:
            x, self.labelled = self._take_in(x), y is not None
            self.outputs = models.check_output(self.model, x.to(self.device), self.shape)
            self.g = models.view(self.model, self.shape)
            models.check_gradients(self.model, x[:256].to(self.device), self.shape, self.of_column)
        else:
            x, likelihood = self._read(x), self.likelihood
        if self.labelled != (y is not None):
            raise ValueError("some batches have labels and some have not: give them to all, or to none")
        self.likelihood, labels = checks.check_y(y, len(x), self.outputs, likelihood)
        x = x.to(self.device)
        with torch.no_grad():
            out = self.g(x)
        if not out.isfinite().all():
            raise ValueError(f"g returns NaN or infinity for {int((~out.isfinite()).any(1).sum())} of {len(x)} rows")
        return x, None if labels is None else labels.to(self.device), out

    def _read(self, x: Any) -> Tensor:
        """One batch as rows; they are checked."""
        return flat_rows(x, self.layout, width=self.width, device=self.device, model=self.options[0])[0]

    def _score(self, error: np.ndarray) -> float:
        """Accuracy from the number of wrong rows, or R^2 from the sum of squared errors, (C,) each; their mean."""
        most = np.asarray(self.n if self.likelihood != "regression" else self.n * self.labels.var, dtype=float)
        constant = (error == 0).astype(float)  # as scikit-learn has R^2 of a constant
        return float(np.where(most > 0, 1 - error / np.where(most > 0, most, 1), constant).mean())

    def batches(self, read: Read, g: Model | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (x, target) for ever, in the loader's order, ``read`` for one batch at a time (see ``InMemory``).

        A batch of one row is left out: it cannot be normalised, and has no other row to take values from.
        """
        model = g or models.view(self.model, self.shape)
        while True:
            empty = True
            for batch in self.loader:
                x, y = _parts(batch)
                if _first_rows(x) < 2:
                    continue
                empty = False
                x = self._read(x) if self.layout else x.reshape(len(x), -1).to(self.device, torch.float32)
                labels = None if y is None else checks.check_y(y, len(x), self.outputs, self.likelihood)[1]
                with torch.no_grad():
                    target = read(model(x), None if labels is None else labels.to(self.device))
                yield x, target
            if empty:
                raise ValueError("the DataLoader gave rows once and none when asked again: its dataset must start anew "
                                 "at each pass (a generator that is used up cannot)")

    def _moments(self, target: str) -> tuple[Tensor, Tensor]:
        moments = self.labels if target == "labels" else self.soft
        mean, sd = moments.mean, np.sqrt(moments.var * self.n / (self.n - 1))
        return torch.from_numpy(mean).float().to(self.device), torch.from_numpy(sd).float().to(self.device)
