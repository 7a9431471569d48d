"""Does a network keep the rows of a batch apart? DP-SGD needs it: see ``check_rows_apart``."""

from copy import deepcopy

import numpy as np
import torch
from torch import nn

ADVICE = ("so a clipped gradient is not that of one row and no guarantee holds: take out what mixes rows, such as a "
          "normalisation over the batch (LayerNorm and GroupNorm keep rows apart)")


def _output(model, x):
    torch.manual_seed(0)  # every call draws its dropout alike
    return model(x)


def _differ(a, b):
    """Beyond rounding: float32 sums of one row may be ordered differently in batches of different size."""
    return not torch.allclose(a, b, rtol=0, atol=1e-5 * max(1.0, float(b.abs().max())), equal_nan=True)


@torch.no_grad()
def perturbed(model, size):
    """A copy in training mode, its weights moved by ``size``: what a layer of zeros hides at the start shows."""
    copy, generator = deepcopy(model).train(), torch.Generator().manual_seed(0)
    for p in copy.parameters():
        if p.is_floating_point():
            p.add_(size * torch.randn(p.shape, generator=generator))
    return copy


@torch.no_grad()
def without_dropout(model, x):
    """Dropout switched off: in its layers, or, where a forward calls it as a function, by eval mode for the whole."""
    for m in model.modules():
        if isinstance(m, nn.modules.dropout._DropoutNd):
            m.p = 0.0
    first = _output(model, x)
    torch.manual_seed(1)
    return model if torch.equal(first, model(x)) else model.eval()


@torch.no_grad()
def check_rows_apart(model, X, *, rows=8):
    """Raise ``ValueError`` unless the output of each row is a matter of that row alone.

    Some rows of X pass through copies of the model in training mode, with its weights and with weights a little
    moved. The output of a row must stay when all other rows change (dropout drawn alike), when the row stands alone
    (dropout switched off) and whatever rows came before; and what the model keeps in its buffers, which get no noise,
    must not depend on the rows. The model itself and torch's generator are left as they were.

    Parameters
    ----------
    model : torch.nn.Module
        One logit per row.
    X : torch.Tensor
        Its rows, (N, ...), of which a few are taken.
    rows : int, default 8
        Size of the batches tried.

    >>> check_rows_apart(nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Dropout(), nn.Linear(4, 1)), torch.eye(3))
    >>> check_rows_apart(nn.Sequential(nn.Linear(3, 4), nn.Softmax(0), nn.Linear(4, 1)), torch.eye(3))
    Traceback (most recent call last):
    ...
    ValueError: the output of a row depends on the other rows of its batch, so ...
    """
    rng = np.random.default_rng(0)

    def draw():
        return X[torch.as_tensor(rng.integers(len(X), size=rows))].clone()

    with torch.random.fork_rng(devices=[]):
        for size in (0.0, 0.1):
            def copy(size=size):
                return perturbed(model, size)

            a = draw()
            whole = _output(copy(), a)
            if whole.shape != (rows, 1):
                raise ValueError(f"the model must return one logit per row, ({rows}, 1) for {rows} rows; got "
                                 f"{tuple(whole.shape)}")
            if size == 0 and not whole.isfinite().all():
                raise ValueError("the model returns NaN or infinity for rows of X: check its weights")
            for i in range(rows):
                b = draw()
                b[i] = a[i]
                if _differ(_output(copy(), b)[i], whole[i]):
                    raise ValueError(f"the output of a row depends on the other rows of its batch, {ADVICE}")
            alone = [_output(without_dropout(copy(), a), x[None]) for x in a]
            if _differ(torch.cat(alone), _output(without_dropout(copy(), a), a)):
                raise ValueError(f"the output of a row alone is not that of the row in a batch, {ADVICE}")
            pasts = copy(), copy()
            for past in pasts:
                _output(past, draw())
            for (name, p), q in zip(pasts[0].named_buffers(), pasts[1].buffers(), strict=True):
                if not torch.equal(p, q):
                    raise ValueError(f"the model stores what it sees of the rows in its buffer {name!r}, without "
                                     "noise, so no guarantee holds: take that layer out")
            if _differ(*(_output(past, a) for past in pasts)):
                raise ValueError(f"the output of a row depends on the batches before, {ADVICE}")
