"""The classifiers g of the paper, one training loop, and freezing.

``g`` may be any differentiable torch module; these are the ones the studies explain. One loop trains them all:
tensors are sliced, never handed out row by row, so that a small network costs its matrix products and little else.
Outputs are read by their shape: two or more columns are class logits, one column is a logit (integer labels) or
a prediction (float labels).
"""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from bifkit.inputs import predict_proba
from data_prep.seeding import seed_all

ACTIVATIONS = {"relu": nn.ReLU, "selu": nn.SELU, "tanh": nn.Tanh}


def mlp(sizes, *, batch_norm=False, activation="relu", dropout=0.0) -> nn.Sequential:
    """A feed-forward network; ``sizes`` runs from the inputs to the outputs.

    >>> mlp([11, 100, 100, 2])(torch.zeros(5, 11)).shape
    torch.Size([5, 2])
    """
    if len(sizes) < 2 or min(sizes) < 1:
        raise ValueError(f"sizes must hold at least two positive widths, such as [11, 100, 2]; got {sizes}")
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {sorted(ACTIVATIONS)}; got {activation!r}")
    layers = []
    for i, (a, b) in enumerate(zip(sizes[:-1], sizes[1:], strict=True)):
        layers.append(nn.Linear(a, b))
        if i < len(sizes) - 2:
            layers += [nn.BatchNorm1d(b)] if batch_norm else []
            layers.append(ACTIVATIONS[activation]())
            layers += [nn.Dropout(dropout)] if dropout else []
    return nn.Sequential(*layers)


def paper_g(n_features, n_classes) -> nn.Sequential:
    """The g of the authors' code: D-200-200-C, BatchNorm after both hidden layers, no ReLU after the first."""
    return nn.Sequential(nn.Linear(n_features, 200), nn.BatchNorm1d(200), nn.Linear(200, 200),
                         nn.BatchNorm1d(200), nn.ReLU(), nn.Linear(200, n_classes))


def loss(output, y):
    """Mean loss of g's output (B, C): cross-entropy, logistic for one logit, squared error for float labels.

    >>> round(float(loss(torch.zeros(2, 3), torch.tensor([0, 2]))), 4)  # log 3
    1.0986
    >>> float(loss(torch.tensor([[1.0], [3.0]]), torch.tensor([1.0, 1.0])))  # float labels: the mean square
    2.0
    """
    if output.shape[1] >= 2:
        return F.cross_entropy(output, y)
    if y.is_floating_point():
        return F.mse_loss(output.squeeze(1), y)
    return F.binary_cross_entropy_with_logits(output.squeeze(1), y.to(output.dtype))


def _tensor(a, dtype=None):
    return torch.as_tensor(np.require(np.asarray(a), requirements="W"), dtype=dtype)  # torch wants writable rows


def _labels(y):
    y = _tensor(y)
    return y.float() if y.is_floating_point() else y.long()


def train(model, X, y, *, epochs=20, min_steps=200, batch_size=200, lr=1e-2, weight_decay=1.0, seed=0,
          optimizer="adamw", schedule="onecycle", momentum=0.9):
    """Train ``model`` on (X, y) and return it in eval mode.

    The defaults are the g of the synthetic study: AdamW with weight decay 1 and a one-cycle schedule. The strong
    decay is what makes g smooth between its training rows, and an explanation can only be as good as its g. Few rows
    are gone through more often, until there were ``min_steps`` steps: 20 epochs of 500 rows would be 40 steps, after
    which g has learned next to nothing.

    >>> X = np.random.default_rng(0).normal(size=(400, 2)).astype("float32"); y = (X[:, 0] > 0).astype(int)
    >>> _ = torch.manual_seed(0)
    >>> accuracy(train(mlp([2, 16, 2]), X, y, epochs=50), X, y) > 0.95
    True
    """
    seed_all("train", seed)
    X, y = _tensor(X, torch.float32), _labels(y)
    params = [p for p in model.parameters() if p.requires_grad]
    if optimizer == "sgd":
        opt = torch.optim.SGD(params, lr=lr, momentum=momentum, weight_decay=weight_decay, foreach=True)
    else:
        opt = torch.optim.AdamW(params, lr=lr, weight_decay=weight_decay, foreach=True)
    n, batch_size = len(X), min(batch_size, len(X))
    epochs = max(epochs, -(-min_steps // (n // batch_size)))
    steps = epochs * (n // batch_size)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, lr, total_steps=steps) if schedule == "onecycle" else None
    model.train()
    for _ in range(epochs):
        order = torch.randperm(n)
        for i in range(n // batch_size):
            rows = order[i * batch_size:(i + 1) * batch_size]
            opt.zero_grad()
            loss(model(X[rows]), y[rows]).backward()
            opt.step()
            if sched:
                sched.step()
    return model.eval()


def freeze(model):
    """Eval mode, no gradients for the weights; returns the model."""
    return model.eval().requires_grad_(False)


def accuracy(model, X, y) -> float:
    """Share of rows whose most probable class is ``y``.

    >>> accuracy(nn.Identity(), [[2.0, 1.0], [0.0, 1.0]], [0, 0])
    0.5
    """
    return float((predict_proba(model, X).argmax(1) == np.asarray(y)).mean())
