"""Where the rows of a fit come from: an array in memory, or a DataLoader for data that do not fit there.

Both check what they are given before anything is trained, and know the same facts afterwards: ``n`` rows of ``width``
inputs and of ``shape`` for g, ``names``, ``mean`` and ``sd`` of each input, the ``likelihood``, and ``score``, how well
g predicts the labels. ``batches`` then yields (x, target) for ever; a target is read off g's outputs and the labels of
a batch by the function it is given.

A DataLoader yields batches x or (x, y), in an order and a size of its own. It is gone through once to check and count,
then once an epoch, so each pass must start anew and end; memory holds one batch at a time.
"""

from contextlib import contextmanager

import torch
from sklearn.metrics import r2_score
from torch.utils.data import DataLoader

from bifkit.inputs import checks as door

BLOCK = 2**18  # numbers: a megabyte


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


def rows_of(loader, width, device):
    """The rows (B, D) of each batch, checked and ready for a network; labels are left aside.

    >>> [x.shape for x in rows_of(DataLoader(torch.zeros(3, 2), batch_size=2), 2, "cpu")]
    [torch.Size([2, 2]), torch.Size([1, 2])]
    """
    number = 0
    for number, batch in enumerate(loader, 1):
        with _naming(number):
            x = door.check_X(parts(batch)[0], width=width)[0].to(device)
        yield x
    if not number:
        raise ValueError("the DataLoader gave no batch: there is no row to explain")


@contextmanager
def _naming(number):
    """An error in here says which batch it is about."""
    try:
        yield
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"batch {number} of the DataLoader: {error}") from None


def score(output, labels, likelihood) -> float:
    """How well the outputs (N, C) of g predict the labels (N,): accuracy, or R^2 for a regression.

    >>> score(torch.tensor([[2.0, 1.0], [0.0, 1.0]]), torch.tensor([0, 0]), "categorical")
    0.5
    >>> score(torch.tensor([[1.0], [3.0]]), torch.tensor([1.0, 3.0]), "regression")
    1.0
    """
    output, labels = output.cpu().double(), labels.cpu()
    if likelihood == "regression":
        return float(r2_score(labels.numpy(), output[:, 0].numpy()))
    predicted = output.argmax(1) if likelihood == "categorical" else (output[:, 0] > 0).long()
    return float((predicted == labels).double().mean())


class Moments:
    """Number, mean and sd of rows that come batch by batch; each batch is centred by itself, so that nothing cancels.

    >>> moments = Moments(); moments.add(torch.tensor([[1.0], [2.0]])); moments.add(torch.tensor([[6.0]]))
    >>> moments.n, moments.mean.tolist(), moments.sd().tolist()
    (3, [3.0], [2.160246899469287])
    """

    def __init__(self):
        self.n, self.mean, self.squares, self.low, self.high = 0, 0.0, 0.0, float("inf"), -float("inf")

    def add(self, rows):
        """Count the rows (B, D)."""
        rows, n = rows.double(), self.n + len(rows)
        mean = rows.mean(0)
        gap = mean - self.mean
        self.squares = self.squares + (rows - mean).square().sum(0) + gap.square() * (self.n * len(rows) / n)
        self.mean, self.n = self.mean + gap * (len(rows) / n), n
        self.low, self.high = rows.amin(0).clamp(max=self.low), rows.amax(0).clamp(min=self.high)
        self.squares[self.low == self.high] = 0.0  # rounding leaves a trace of variance in a constant column

    def sd(self, unbiased=False):
        """Standard deviation of each column, (D,)."""
        return (self.squares / max(self.n - unbiased, 1)).sqrt()


class InMemory:
    """All rows as one tensor (N, D), sliced, never handed out one by one.

    >>> rows = InMemory([[1, 2], [3, 4]], [0, 1], torch.nn.Identity(), device="cpu", batch_size=2)
    >>> rows.mean.tolist(), rows.score, rows.per_epoch
    ([2.0, 3.0], 0.5, 1)
    """

    def __init__(self, X, y, model, *, device, batch_size, likelihood=None, feature_names=None, groups=None):
        self.columns = list(X.columns) if hasattr(X, "columns") else feature_names  # what they were called, if at all
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
        self.score = None if labels is None else score(self.whole, labels, self.likelihood)

    def some(self, rows=1000):
        """The first rows, to judge a fit by."""
        return self.X[:rows]

    def batches(self, read, g=None):
        """(x, target) for ever; rows in a new random order each epoch. ``g``: its outputs instead of the frozen g's."""
        target = read(self.whole if g is None else door.outputs(g, self.X), self.labels)
        block = self.size * max(BLOCK // (self.size * self.width), 1)  # rows that are put in order at a time
        while True:
            order = torch.randperm(self.n, device=self.X.device)[:self.per_epoch * self.size]
            for rows in order.split(block):
                yield from zip(self.X[rows].split(self.size), target[rows].split(self.size), strict=True)

    def scale(self, target):
        """The unit of a regression: the standard deviation of its ``target``, "labels" or "soft"."""
        values = self.labels if target == "labels" else self.whole[:, 0]
        return _scale(float(values.std()), float(values.mean()))


class Streamed:
    """Rows from a DataLoader.

    >>> loader = DataLoader(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), batch_size=2)
    >>> rows = Streamed(loader, torch.nn.Identity(), device="cpu")
    >>> rows.n, rows.mean.tolist(), rows.per_epoch  # the last batch, of one row, is no step
    (3, [3.0, 4.0], 1)
    """

    def __init__(self, loader, model, *, device, likelihood=None, feature_names=None):
        self.loader, self.device, self.columns = loader, device, feature_names
        self.names, self.likelihood, self.g, self.labelled = feature_names, likelihood, None, None
        self.size = self.per_epoch = zero = 0
        inputs, self.moments, probable = Moments(), {"soft": Moments(), "labels": Moments()}, True
        self.right = self.missed = 0.0
        self.first = []
        for number, batch in enumerate(loader, 1):
            with _naming(number):
                x, labels, out = self._checked(batch, model)
            if inputs.n < 1000:
                self.first.append(x[:1000 - inputs.n].clone())
            inputs.add(x)
            self.size, self.per_epoch = max(self.size, len(x)), self.per_epoch + (len(x) > 1)
            zero, probable = zero + int((x == 0).all(1).sum()), probable and door.look_like_probabilities(out)
            self._count(out, labels)
        self.n = inputs.n
        if self.n < 2:
            raise ValueError(f"the DataLoader gave {self.n} row(s), fit needs at least 2")
        if not self.per_epoch:
            raise ValueError("every batch of the DataLoader has one row, and rows of a batch stand in for each other: "
                             "give it batch_size=2 or more (200 is what bifkit takes itself)")
        self.mean, self.sd = inputs.mean.float(), inputs.sd().float()
        self.score = self._score() if self.labelled else None
        door.tell_oddities(self.names, (inputs.low == inputs.high).nonzero()[:, 0].tolist(), [], zero)
        if probable:
            door.warn_probabilities(out, self.likelihood)

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
            raise ValueError("some batches have labels and some have not: give them to all, or to none")
        self.likelihood, labels = door.check_y(labels, len(x), self.outputs, self.likelihood)
        with torch.no_grad():
            return x, None if labels is None else labels.to(self.device), self.g(x)

    def _count(self, out, labels):
        self.moments["soft"].add(out[:, :1])
        if labels is None:
            return
        if self.likelihood == "regression":
            self.moments["labels"].add(labels.unsqueeze(1))
            self.missed += float((out[:, 0].double() - labels).square().sum())
        else:
            self.right += score(out, labels, self.likelihood) * len(out)

    def _score(self):
        if self.likelihood != "regression":
            return self.right / self.n
        around = float(self.moments["labels"].squares)
        return 1 - self.missed / around if around else float(self.missed == 0)  # scikit-learn's R^2 of a constant

    def some(self, rows=1000):
        """The first rows, to judge a fit by."""
        return torch.cat(self.first)[:rows]

    def batches(self, read, g=None):
        """(x, target) for ever, in the loader's order; a batch of one row, which cannot be normalised, is left out."""
        while True:
            empty = True
            for batch in self.loader:
                x, labels = parts(batch)
                if len(x) < 2:
                    continue
                x, empty = x.reshape(len(x), -1).to(self.device, torch.float32), False
                if labels is not None:
                    labels = door.check_y(labels, len(x), self.outputs, self.likelihood)[1].to(self.device)
                with torch.no_grad():
                    target = read((g or self.g)(x), labels)
                yield x, target
            if empty:
                raise ValueError("the DataLoader gave rows once and none when asked again: its dataset must start anew "
                                 "at each pass (a generator that is used up cannot)")

    def scale(self, target):
        """The unit of a regression: the standard deviation of its ``target``, "labels" or "soft"."""
        moments = self.moments[target]
        return _scale(float(moments.sd(unbiased=True)), float(moments.mean))


def _scale(sd, mean):
    """The target's own sd (its unit must not matter), or one where it does not vary."""
    return sd if sd > 1e-6 * abs(mean) else 1.0
