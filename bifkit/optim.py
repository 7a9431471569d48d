"""All parameters of some networks as views of one vector, so that an optimiser's step is one kernel.

For networks as small as ours the optimiser's loop over tensors costs as much as the matrix products. One vector, one
fused step and one ``zero_`` cost next to nothing, and give the same numbers.
"""

import math
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def flushed():
    """Meanwhile, on this thread, numbers below 1e-38 count as zero. Masks are full of them, too small to
    matter in a sum, and on some CPUs arithmetic with them is far slower (L2X on Intrusion took twice as long).

    >>> with flushed():
    ...     float(torch.tensor(1e-38) * 0.1)
    0.0
    """
    before = float(torch.tensor(1e-38) * 0.1) == 0  # torch does not tell
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


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


class AdamW:
    """torch's AdamW for a few vectors (``weight_decay=0``: Adam): its fused kernel, without the bookkeeping around it.

    That takes several times as long as the step itself; and the first optimiser that a process makes has torch load its
    compiler, for seconds.

    >>> vector = nn.Parameter(torch.ones(2)); vector.grad = torch.ones(2)
    >>> AdamW([vector], lr=0.1).step(); vector.data
    tensor([0.9000, 0.9000])
    """

    def __init__(self, vectors, *, lr, weight_decay=0.0):
        self.lr, self.beta1, self.weight_decay = lr, 0.9, weight_decay
        self.state = [(v, torch.zeros_like(v.data), torch.zeros_like(v.data), torch.zeros((), device=v.device))
                      for v in vectors]

    def step(self):
        """One step down the gradients."""
        for v, first, second, count in self.state:
            count += 1
            torch._fused_adamw_([v.data], [v.grad], [first], [second], [], [count], lr=self.lr, beta1=self.beta1,
                                beta2=0.999, eps=1e-8, weight_decay=self.weight_decay, amsgrad=False, maximize=False)


class OneCycle:
    """torch's OneCycleLR for ``AdamW``: the rate rises from lr / 25 to lr, then falls to nothing;
    the momentum mirrors it.

    >>> adam = AdamW([nn.Parameter(torch.ones(1))], lr=0.1); cycle = OneCycle(adam, 0.1, 11)
    >>> rates = [round(adam.lr, 3) for _ in range(11) if cycle.step() is None]; rates.index(max(rates))
    2
    """

    def __init__(self, optimiser, lr, steps):
        self.optimiser, self.lr, self.steps, self.at = optimiser, lr, steps, -1
        self.step()

    def step(self):
        """Set rate and momentum for the next step."""
        self.at += 1
        peak, end = 0.3 * self.steps - 1, self.steps - 1
        if self.at <= peak:
            rates, betas, way = (self.lr / 25, self.lr), (0.95, 0.85), self.at / peak
        else:
            rates, betas, way = (self.lr, self.lr / 25e4), (0.85, 0.95), (self.at - peak) / (end - peak)
        left = (math.cos(math.pi * way) + 1) / 2
        self.optimiser.lr, self.optimiser.beta1 = (b + (a - b) * left for a, b in (rates, betas))


def flattened(parameters) -> list[Flat]:
    """A ``Flat`` for each dtype among ``parameters`` (a copy of g that learns along may be float64).

    >>> [f.vector.dtype for f in flattened([*nn.Linear(2, 1).parameters(), *nn.Linear(2, 1).double().parameters()])]
    [torch.float32, torch.float64]
    """
    parameters = list(parameters)
    kinds = dict.fromkeys(p.dtype for p in parameters)
    return [Flat(p for p in parameters if p.dtype == kind) for kind in kinds]
