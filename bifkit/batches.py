"""Where the rows of a fit come from: an array in memory, or a DataLoader for data that do not fit there.

Both check what they are given before anything is trained, and know the same facts afterwards: ``n`` rows of ``width``
inputs and of ``shape`` for g, ``names``, ``mean`` and ``sd`` of each input, the ``likelihood``, and ``score``, how well
g predicts the labels. ``batches`` then yields (x, target) for ever; a target is read off g's outputs and the labels of
a batch by the function it is given.

A DataLoader yields batches x or (x, y), in an order and a size of its own. It is gone through once to check and count,
then once an epoch; memory holds one batch at a time.
"""

import warnings

import torch
from torch.utils.data import DataLoader

from bifkit import door


def is_loader(X) -> bool:
    """Whether rows come in batches.

    >>> is_loader([[1.0, 2.0]]), is_loader(DataLoader(torch.zeros(4, 2)))
    (False, True)
    """
    return isinstance(X, DataLoader)


def source(X, y, model, *, device, likelihood, feature_names, batch_size, groups):
    """The rows of ``X``, an array, frame, tensor or DataLoader, checked against g and the labels.

    >>> rows = source([[1, 2], [3, 4]], None, torch.nn.Identity(), device="cpu", likelihood=None, feature_names=None,
    ...               batch_size=2, groups=None)
    >>> rows.n, rows.names, rows.likelihood
    (2, ['x0', 'x1'], 'categorical')
    """
    facts = {"device": device, "likelihood": likelihood, "feature_names": feature_names}
    if not is_loader(X):
        return InMemory(X, y, model, batch_size=batch_size, groups=groups, **facts)
    if y is not None:
        raise ValueError("with a DataLoader the labels come from it, in batches (x, y): leave y out")
    return Streamed(X, model, **facts)


def parts(batch):
    """(x, y or None) of what a DataLoader yields.

    >>> parts([torch.zeros(2, 3), torch.tensor([0, 1])])[1]
    tensor([0, 1])
    """
    if isinstance(batch, torch.Tensor):
        return batch, None
    if isinstance(batch, list | tuple) and len(batch) in (1, 2) and isinstance(batch[0], torch.Tensor):
        return batch[0], batch[1] if len(batch) == 2 else None
    raise TypeError(f"a DataLoader must yield tensors x, or pairs (x, y); got {type(batch).__name__}")


def view(model, shape):
    """g as a function of flat rows: (B, D) to float outputs (B, C), whatever shape and dtype it works in.

    >>> view(torch.nn.Flatten(), (2, 2))(torch.ones(3, 4)).shape
    torch.Size([3, 4])
    """
    like = door.like(model)
    return lambda x: model(x.view(len(x), *shape).to(like)).reshape(len(x), -1).float()


class InMemory:
    """All rows as one tensor (N, D), sliced, never handed out one by one.

    >>> rows = InMemory([[1, 2], [3, 4]], [0, 1], torch.nn.Identity(), device="cpu", batch_size=2)
    >>> rows.mean.tolist(), rows.score, rows.per_epoch
    ([2.0, 3.0], 0.5, 1)
    """

    def __init__(self, X, y, model, *, device, batch_size, likelihood=None, feature_names=None, groups=None):
        self.named = hasattr(X, "columns") or feature_names is not None
        X, self.shape, self.names, _ = door.check_X(X, feature_names=feature_names, at_least=2)
        self.outputs = door.check_output(model, X[:4].to(device), self.shape)
        self.likelihood, labels = door.check_y(y, len(X), self.outputs, likelihood)
        door.warn_oddities(X, self.names, groups)
        self.X = X.to(device)
        self.labels = None if labels is None else labels.to(device)
        (self.n, self.width), self.size = X.shape, min(batch_size, len(X))
        self.per_epoch = max(self.n // self.size, 1)
        self.mean, self.sd = self.X.mean(0), self.X.std(0, unbiased=False)
        self.whole = door.outputs(view(model, self.shape), self.X)  # (N, C): what g says of the whole rows
        door.warn_probabilities(self.whole, self.likelihood)
        self.score = None if labels is None else door.score(self.whole, labels, self.likelihood)

    def some(self, rows=1000):
        """The first rows, to judge a fit by."""
        return self.X[:rows]

    def batches(self, read, g=None):
        """(x, target) for ever; rows in a new random order each epoch. ``g``: its outputs instead of the frozen g's."""
        target = read(self.whole if g is None else door.outputs(g, self.X), self.labels)
        while True:
            order = torch.randperm(self.n, device=self.X.device)
            for i in range(self.per_epoch):
                rows = order[i * self.size:(i + 1) * self.size]
                yield self.X[rows], target[rows]

    def spread(self, read):
        """Standard deviation and mean of the target."""
        target = read(self.whole, self.labels)
        return float(target.std()), float(target.mean())


class Streamed:
    """Rows from a DataLoader.

    >>> loader = DataLoader(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), batch_size=2)
    >>> rows = Streamed(loader, torch.nn.Identity(), device="cpu")
    >>> rows.n, rows.mean.tolist(), rows.per_epoch
    (3, [3.0, 4.0], 2)
    """

    def __init__(self, loader, model, *, device, likelihood=None, feature_names=None):
        self.loader, self.device, self.named = loader, device, feature_names is not None
        self.names, self.likelihood, self.g = feature_names, likelihood, None
        self.n = self.per_epoch = self.right = 0
        self.size, self.labelled, self.first = 0, None, None
        low = high = total = square = None
        self.sums = {"soft": torch.zeros(2, dtype=torch.float64), "labels": torch.zeros(2, dtype=torch.float64)}
        self.missed = 0.0
        for batch in loader:
            x, labels, out = self._checked(batch, model)
            if self.first is None:
                self.first = x[:1000].clone()
                door.warn_probabilities(out, self.likelihood)
            wide = x.double()
            if total is None:
                low, high, total, square = wide.amin(0), wide.amax(0), wide.sum(0), (wide**2).sum(0)
            else:
                low, high = torch.minimum(low, wide.amin(0)), torch.maximum(high, wide.amax(0))
                total, square = total + wide.sum(0), square + (wide**2).sum(0)
            self.n, self.per_epoch, self.size = self.n + len(x), self.per_epoch + 1, max(self.size, len(x))
            self._count(out, labels)
        if self.n < 2:
            raise ValueError(f"the DataLoader gave {self.n} row(s), fit needs at least 2")
        self.width, mean = len(total), total / self.n
        self.mean, self.sd = mean.float(), (square / self.n - mean**2).clamp_min(0).sqrt().float()
        self.sd[low == high] = 0.0  # rounding leaves a trace of variance in a constant column
        self.score = self._score() if self.labelled else None
        if constant := int((low == high).sum()):
            warnings.warn(f"the data have {constant} constant column(s): BIF works on", UserWarning, stacklevel=4)

    def _checked(self, batch, model):
        """(rows, labels, g's outputs) of a batch, each checked."""
        x, labels = parts(batch)
        x, shape, names, _ = door.check_X(x, feature_names=self.names, width=getattr(self, "width", None))
        x = x.to(self.device)
        if self.g is None:
            self.shape, self.width, self.names = shape, x.shape[1], names
            self.outputs = door.check_output(model, x[:4], shape)
            self.g, self.labelled = view(model, shape), labels is not None
        if self.labelled != (labels is not None):
            raise ValueError("some batches of the DataLoader have labels and some have not")
        self.likelihood, labels = door.check_y(labels, len(x), self.outputs, self.likelihood)
        with torch.no_grad():
            return x, None if labels is None else labels.to(self.device), self.g(x)

    def _count(self, out, labels):
        soft = out[:, 0].double()
        self.sums["soft"] += torch.stack([soft.sum(), (soft**2).sum()]).cpu()
        if labels is None:
            return
        if self.likelihood == "regression":
            y = labels.double()
            self.sums["labels"] += torch.stack([y.sum(), (y**2).sum()]).cpu()
            self.missed += float(((out[:, 0].double() - y) ** 2).sum())
        else:
            self.right += door.score(out, labels, self.likelihood) * len(out)

    def _score(self):
        if self.likelihood != "regression":
            return self.right / self.n
        total, square = self.sums["labels"].tolist()
        return 1 - self.missed / max(square - total**2 / self.n, 1e-300)

    def some(self, rows=1000):
        """The first rows, to judge a fit by."""
        return self.first[:rows]

    def batches(self, read, g=None):
        """(x, target) for ever, in the loader's order; a batch of one row, which cannot be normalised, is left out."""
        while True:
            for batch in self.loader:
                x, labels = parts(batch)
                x = x.reshape(len(x), -1).to(self.device, torch.float32)
                if len(x) < 2:
                    continue
                if labels is not None:
                    labels = door.check_y(labels, len(x), self.outputs, self.likelihood)[1].to(self.device)
                with torch.no_grad():
                    yield x, read((g or self.g)(x), labels)

    def spread(self, read):
        """Standard deviation and mean of the target: the labels' or that of g's outputs."""
        labels = torch.zeros(1) if self.labelled else None
        kind = "labels" if self.labelled and read(torch.ones(1, self.outputs), labels) is labels else "soft"
        total, square = self.sums[kind].tolist()
        return max(square - total**2 / self.n, 0.0) ** 0.5 / max(self.n - 1, 1) ** 0.5, total / self.n
