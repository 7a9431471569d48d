"""What L2X and INVASE share: checks of their input, groups, and the networks of their released code.

Both rivals were published on Keras, so their networks are built the Keras way: Glorot-uniform weights, zero
biases, BatchNorm *after* the activation (momentum .99, epsilon 1e-3), an L2 penalty ``l2 * sum(w^2)`` on the
weights only, Adam with epsilon 1e-7. Random numbers come from a generator of their own, so fitting a rival
never moves another stream.
"""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from data_prep.seeding import derive

ACTIVATIONS = {"relu": nn.ReLU, "selu": nn.SELU}


def generator(*keys) -> torch.Generator:
    """A torch generator for the stream named by ``keys``."""
    return torch.Generator().manual_seed(derive("baselines", *keys))


def check_data(X, y=None, *, n_features=None):
    """X as a float tensor (N, D), y as class numbers (N,); every problem is named here, before any training."""
    X = torch.as_tensor(np.asarray(X, dtype=np.float32))
    if X.ndim != 2 or 0 in X.shape:
        raise ValueError(f"X must be a table (rows, features) that is not empty; got shape {tuple(X.shape)}")
    if not torch.isfinite(X).all():
        raise ValueError("X holds NaN or infinite values; impute or drop those rows first")
    if n_features is not None and X.shape[1] != n_features:
        raise ValueError(f"X has {X.shape[1]} features, the fit had {n_features}")
    if y is None:
        return X
    y = np.asarray(y)
    if y.shape != (len(X),):
        raise ValueError(f"y must hold one class number per row, shape ({len(X)},); got {y.shape}")
    if not np.isfinite(y.astype(float)).all() or (y != y.astype(np.int64)).any() or y.min() < 0:
        raise ValueError("y must hold class numbers 0, 1, 2, ...; encode the labels first")
    return X, torch.as_tensor(y.astype(np.int64))


def check_groups(groups, n_features):
    """``groups`` as an index tensor (D,) and the number of groups G; None puts every feature in its own.

    >>> check_groups([0, 0, 1], 3)
    (tensor([0, 0, 1]), 2)
    """
    if groups is None:
        return None, n_features
    groups = np.asarray(groups)
    if groups.shape != (n_features,):
        raise ValueError(f"groups must give one group per feature, shape ({n_features},); got {groups.shape}")
    numbers = np.unique(groups)
    if not np.array_equal(numbers, np.arange(len(numbers))):
        raise ValueError(f"groups must be numbered 0 to G-1 without gaps; got {numbers[:10].tolist()}")
    return torch.as_tensor(groups.astype(np.int64)), len(numbers)


def spread(mask, groups):
    """A mask over groups (..., G) as a mask over inputs (..., D).

    >>> spread(torch.tensor([[1.0, 0.0]]), torch.tensor([0, 0, 1]))
    tensor([[1., 1., 0.]])
    """
    return mask if groups is None else mask[..., groups]


def positive(**values):
    """Raise unless every named value is a positive finite number."""
    for name, value in values.items():
        if not (np.isscalar(value) and np.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be a positive number; got {value!r}")


def schedule_of(budgets, budget, **given):
    """The budget's schedule, with what the caller gave in its place.

    >>> schedule_of({"short": {"lr": 1.0, "batch_size": 10}}, "short", lr=None, batch_size=20)
    {'lr': 1.0, 'batch_size': 20}
    """
    if budget not in budgets:
        raise ValueError(f"budget must be one of {sorted(budgets)}; got {budget!r}")
    plan = budgets[budget] | {name: value for name, value in given.items() if value is not None}
    positive(**plan)
    return plan


def keras_mlp(sizes, *, activation, batch_norm, rng) -> nn.Sequential:
    """A feed-forward network as the rivals' released code builds it; ``sizes`` runs from inputs to outputs."""
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {sorted(ACTIVATIONS)}; got {activation!r}")
    layers = []
    for i, (a, b) in enumerate(zip(sizes[:-1], sizes[1:], strict=True)):
        linear = nn.utils.skip_init(nn.Linear, a, b)  # its own start would draw from the global stream
        nn.init.xavier_uniform_(linear.weight, generator=rng)
        nn.init.zeros_(linear.bias)
        layers.append(linear)
        if i < len(sizes) - 2:
            layers.append(ACTIVATIONS[activation](inplace=True))
            layers += [nn.BatchNorm1d(b, momentum=0.01, eps=1e-3)] if batch_norm else []
    return nn.Sequential(*layers)


class FlatAdam:
    """Adam for several networks at once; the weights of their linear layers carry the penalty ``l2 * sum(w^2)``.

    All parameters, and their gradients, become views of one vector, so a step is one kernel however many layers
    there are: for networks this small the optimiser's loop over tensors would otherwise cost as much as the matrix
    products. ``spare`` lists weights without a penalty.

    >>> net = nn.Linear(1, 1, bias=False); _ = nn.init.ones_(net.weight)
    >>> FlatAdam([net], lr=0.1, l2=1.0).step(net(torch.zeros(1, 1)).sum())  # the penalty alone pulls
    >>> round(net.weight.item(), 3)
    0.9
    """

    def __init__(self, networks, *, lr, l2, spare=()):
        linear = [layer.weight for net in networks for layer in net.modules() if isinstance(layer, nn.Linear)]
        decayed = [w for w in linear if not any(w is s for s in spare)]
        chosen = {id(w) for w in decayed}
        params = decayed + [p for net in networks for p in net.parameters() if id(p) not in chosen]
        self.flat = nn.Parameter(torch.cat([p.detach().reshape(-1) for p in params]))
        self.flat.grad = torch.zeros_like(self.flat)
        sizes = [p.numel() for p in params]
        for p, values, grad in zip(params, self.flat.data.split(sizes), self.flat.grad.split(sizes), strict=True):
            p.data, p.grad = values.view_as(p), grad.view_as(p)
        self.decayed, self.rate = sum(w.numel() for w in decayed), 2 * l2  # the penalty's gradient is 2 l2 w
        self.adam = torch.optim.Adam([self.flat], lr=lr, eps=1e-7, fused=True)

    def step(self, loss):
        """One step down the gradient of ``loss`` plus the penalty."""
        self.flat.grad.zero_()
        loss.backward()
        self.flat.grad[:self.decayed].add_(self.flat.data[:self.decayed], alpha=self.rate)
        self.adam.step()


def log_proba(logits):
    """Log class probabilities (B, C); a single logit gives two classes.

    >>> log_proba(torch.zeros(1, 1)).exp()
    tensor([[0.5000, 0.5000]])
    """
    if logits.ndim == 1:
        logits = logits[:, None]
    if logits.shape[1] == 1:
        return torch.cat([F.logsigmoid(-logits), F.logsigmoid(logits)], 1)
    return F.log_softmax(logits, 1)


@torch.no_grad()
def in_batches(function, *tensors, batch_size=8192) -> torch.Tensor:
    """``function`` over slices of rows, without gradients, put together again.

    >>> in_batches(lambda a: a + 1, torch.zeros(3, 1), batch_size=2).ravel().tolist()
    [1.0, 1.0, 1.0]
    """
    rows = range(0, len(tensors[0]), batch_size)
    return torch.cat([function(*(t[i:i + batch_size] for t in tensors)) for i in rows])
