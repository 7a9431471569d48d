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


class AdamW(torch.optim.AdamW):
    """torch's AdamW for a few vectors (``weight_decay=0``: Adam): the same kernel, without the bookkeeping around it,
    which takes several times as long as the step itself.

    >>> vector = nn.Parameter(torch.ones(2)); vector.grad = torch.ones(2)
    >>> AdamW([vector], lr=0.1).step(); vector.data
    tensor([0.9000, 0.9000])
    """

    def __init__(self, vectors, *, lr, weight_decay=0.0):
        super().__init__(vectors, lr=lr, weight_decay=weight_decay, fused=True)
        self.vectors = self.param_groups[0]["params"]
        self.moments = [[torch.zeros_like(v.data), torch.zeros_like(v.data), torch.zeros((), device=v.device)]
                        for v in self.vectors]

    def step(self):
        """One step down the gradients, at the rate and betas that a schedule has set."""
        group = self.param_groups[0]
        for v, (first, second, count) in zip(self.vectors, self.moments, strict=True):
            count += 1
            torch._fused_adamw_([v.data], [v.grad], [first], [second], [], [count], lr=group["lr"],
                                beta1=group["betas"][0], beta2=group["betas"][1], eps=group["eps"],
                                weight_decay=group["weight_decay"], amsgrad=False, maximize=False)

    step.hooked = True  # torch would wrap a profiler's record around it, which takes as long as the step


class OneCycle:
    """torch's OneCycleLR over ``steps``, worked out beforehand: within a fit its step takes five times as long.

    >>> adam = AdamW([nn.Parameter(torch.ones(1))], lr=0.1); cycle = OneCycle(adam, 0.1, 10)
    >>> rates = [adam.param_groups[0]["lr"] for _ in range(10) if cycle.step() is None]
    >>> rates.index(max(rates)), round(max(rates), 2)
    (1, 0.1)
    """

    def __init__(self, optimiser, lr, steps):
        other = AdamW([nn.Parameter(torch.zeros(1))], lr=lr)
        schedule, group = torch.optim.lr_scheduler.OneCycleLR(other, lr, total_steps=steps), other.param_groups[0]
        plan, other._opt_called = [], True  # else it warns that the optimiser has taken no step
        for _ in range(steps):
            plan.append((group["lr"], group["betas"]))
            schedule.step()
        self.group, self.plan = optimiser.param_groups[0], iter([*plan, (group["lr"], group["betas"])])
        self.step()

    def step(self):
        """Set rate and betas for the next step."""
        self.group["lr"], self.group["betas"] = next(self.plan)


def flattened(parameters) -> list[Flat]:
    """A ``Flat`` for each dtype among ``parameters`` (a copy of g that learns along may be float64).

    >>> [f.vector.dtype for f in flattened([*nn.Linear(2, 1).parameters(), *nn.Linear(2, 1).double().parameters()])]
    [torch.float32, torch.float64]
    """
    parameters = list(parameters)
    kinds = dict.fromkeys(p.dtype for p in parameters)
    return [Flat(p for p in parameters if p.dtype == kind) for kind in kinds]
