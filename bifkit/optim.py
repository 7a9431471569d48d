"""All parameters of some networks as views of one vector, so that an optimiser's step is one kernel.

For networks as small as ours the optimiser's loop over tensors costs as much as the matrix products. One vector, one
fused step and one ``zero_`` cost next to nothing, and give the same numbers.
"""

import torch
from torch import nn


class Flat:
    """One vector behind ``parameters``, which must share dtype and device; ``release`` gives each its own memory again.

    >>> net = nn.Linear(2, 1); flat = Flat(net.parameters())
    >>> net(torch.ones(1, 2)).sum().backward(); flat.vector.grad.tolist()
    [1.0, 1.0, 1.0]
    """

    def __init__(self, parameters):
        self.parameters = list(parameters)
        self.vector = nn.Parameter(torch.cat([p.detach().reshape(-1) for p in self.parameters]))
        self.vector.grad = torch.zeros_like(self.vector)
        start = 0
        for p in self.parameters:
            stop = start + p.numel()
            p.data = self.vector.data[start:stop].view_as(p)
            p.grad = self.vector.grad[start:stop].view_as(p)
            start = stop

    def release(self):
        """The parameters keep their values, and no longer share memory or gradients."""
        for p in self.parameters:
            p.data, p.grad = p.data.clone(), None


def flattened(parameters) -> list[Flat]:
    """A ``Flat`` for each dtype among ``parameters`` (a copy of g that learns along may be float64).

    >>> [f.vector.dtype for f in flattened([*nn.Linear(2, 1).parameters(), *nn.Linear(2, 1).double().parameters()])]
    [torch.float32, torch.float64]
    """
    parameters = list(parameters)
    kinds = dict.fromkeys(p.dtype for p in parameters)
    return [Flat(p for p in parameters if p.dtype == kind) for kind in kinds]
