"""The training loop of both explainers: maximise the ELBO over batches, without overhead per batch.

Networks this small spend their time around the matrix products, not in them. So rows are sliced, not handed out one by
one; all parameters are one vector with one fused step; and the KL brings its own gradient.
"""

import copy
import logging

import numpy as np
from torch import nn

from bifkit import passes
from bifkit.dirichlet import kl_torch
from bifkit.elbo import descend
from bifkit.evaluation.diagnostics import Drift
from bifkit.inputs import checks as door
from bifkit.optim import flattened, flushed
from bifkit.progress import Steps

log = logging.getLogger(__name__)
KL_EVERY = 20


def learning_copy(model):
    """A copy of g whose BatchNorm normalises each batch and learns, as in the authors' code (preset ``released``).

    >>> g = learning_copy(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).eval().requires_grad_(False))
    >>> g[1].training, [p.requires_grad for p in g.parameters()]
    (True, [False, False, True, True])
    """
    model = copy.deepcopy(model)
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    if not norms:
        door.warn("preset 'released' rests on g's BatchNorm layers, and this g has none")
    for m in norms:
        m.train().requires_grad_(True)
    return model


def maximise(net, g, batches, s, *, steps, optimiser, name, probe, kl_weight, learned=(), average=None, show=None,
             **kw):
    """Train ``net`` (rows to alpha) for ``steps`` batches: (ELBO of each step, how far importances moved at the end).

    ``optimiser(vectors, steps)`` gives (optimiser, schedule or None); ``probe`` are the rows whose importances are
    followed; ``learned`` are further parameters that learn along; ``average`` is a parameter that ends as its mean over
    the last fifth of the steps, because an optimiser's jitter is not uncertainty. ``kw`` goes to the ELBO. Each step
    knows its log-likelihood; the KL, which moves slowly, is evaluated every ``KL_EVERY`` steps for the curve.

    >>> import torch
    >>> from bifkit.gates import PRESETS
    >>> from bifkit.networks import GlobalAlpha
    >>> x = torch.randn(50, 2, generator=torch.Generator().manual_seed(0)); y = (x[:, 0] > 0).long()
    >>> adam = lambda vectors, steps: (torch.optim.Adam(vectors, lr=0.1), None)
    >>> def same():
    ...     while True:
    ...         yield x, y
    >>> net, g = GlobalAlpha(2), lambda x: torch.stack([-3 * x[:, 0], 3 * x[:, 0]], 1)
    >>> how = {"optimiser": adam, "name": "doc", "probe": x, "kl_weight": 0.003}
    >>> curve, moved = maximise(net, g, same(), PRESETS["rank"], steps=200, **how)
    >>> bool(curve[-20:].mean() > curve[:20].mean()), net(x).argmax().item(), moved < 0.1
    (True, 0, True)
    """
    flats = flattened([*net.parameters(), *learned])
    vectors = [flat.vector for flat in flats]
    optimiser, schedule = optimiser(vectors, steps)
    network = passes.of(net)
    curve, start, tail, drift = np.zeros(steps), steps - max(steps // 5, 1), 0.0, Drift(probe)
    with flushed(), Steps(steps, name, show) as bar:
        for step, (x, target) in zip(range(steps), batches, strict=False):
            for vector in vectors:
                vector.grad.zero_()
            alpha = network.forward(x)
            value, slope = descend(g, x, target, alpha, s, kl_weight=kl_weight, **kw)
            network.backward(slope)
            optimiser.step()
            if schedule:
                schedule.step()
            if step % KL_EVERY == 0:
                kl = kl_weight * float(kl_torch(alpha.detach(), s.prior).mean())
            curve[step] = float(value) - kl
            bar.step(curve[step])
            if average is not None and step >= start:
                tail = tail + average.detach()
            if (step + 1) * 20 // steps > step * 20 // steps:  # every twentieth of the way
                log.debug("%s: step %d of %d, ELBO %.4f", name, step + 1, steps, curve[step])
                if step >= steps // 2:
                    drift.look(net)
    if average is not None:
        average.data.copy_(tail / (steps - start))
    for flat in flats:
        flat.release()
    return curve, drift.moved()
