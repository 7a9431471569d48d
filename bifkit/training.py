"""The one training loop: maximise the ELBO over batches, by torch.optim. Algorithm 1 and 2 differ in the network alone.

Copy ``maximise`` to try something new: it needs a network (rows to alpha), a frozen g, and batches.
"""

import copy
import hashlib
import logging
import math
import sys
import threading
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn
from tqdm import tqdm

from bifkit.elbo import elbo

log = logging.getLogger(__name__)


def maximise(network, g, batches, settings, *, steps, kl_weight, optimiser, schedule=None, average=None, probe=None,
             name="fit", progress=None, **likelihood):
    """Train ``network`` for some steps.

    Parameters
    ----------
    network : Module
        Rows (B, D) to alpha (B, G), or to one alpha (1, G) for all.
    g : callable
        The frozen model.
    batches : iterable
        Pairs (x, target), at least ``steps`` of them.
    settings : Settings
        See ``bifkit.presets``.
    steps : int
        How many batches.
    kl_weight : float
        Weight of the mean KL of a row (the settings may name it: "elbo", "1/batch").
    optimiser : torch.optim.Optimizer
        Over the network's parameters, and over whatever else is to learn along.
    schedule : LRScheduler, optional
        Stepped after each batch.
    average : Parameter, optional
        Ends as its mean over the last fifth of the steps: an optimiser's jitter is not uncertainty.
    probe : Tensor (P, D), optional
        Rows whose importances are followed through the second half.
    name : str
        What the bar and the log call it.
    progress : bool, optional
        Whether a bar shows; by default where tqdm finds a terminal.
    **likelihood
        Further arguments of ``expected_log_likelihood``.

    Returns
    -------
    curve : ndarray (steps,)
        The ELBO of each batch.
    followed : list of Tensor (P, G)
        Mean importances of the probe at every twentieth of the way, from the middle on.
    """
    curve, followed = np.zeros(steps), []
    tail, total = steps - max(steps // 5, 1), 0.0
    with flush_denormals(), progress_bar(steps, name, progress) as bar:
        for step, (x, target) in zip(range(steps), batches, strict=False):
            value = elbo(g, x, target, network(x), settings, kl_weight=kl_weight, **likelihood)
            optimiser.zero_grad()
            (-value).backward()
            optimiser.step()
            if schedule is not None:
                schedule.step()

            curve[step] = value.item()
            if not math.isfinite(curve[step]):
                raise FloatingPointError(f"the objective is {curve[step]} at step {step + 1} of {steps}")
            if average is not None and step >= tail:
                total = total + average.detach()
            if (step + 1) * 20 // steps > step * 20 // steps:  # every twentieth of the way
                log.debug("%s: step %d of %d, ELBO %.4f", name, step + 1, steps, curve[step])
                bar.set_postfix_str(f"ELBO {curve[step]:.3f}", refresh=False)
                if probe is not None and step >= steps // 2:
                    followed.append(importances(network, probe))
            bar.update()
    if average is not None:
        average.data.copy_(total / (steps - tail))
    return curve, followed


@torch.no_grad()
def importances(network, x):
    """Mean importances (B, G) of rows under a network as it is now; its mode and statistics stay as they are."""
    mode = network.training
    alpha = network.eval()(x)
    network.train(mode)
    return alpha / alpha.sum(-1, keepdim=True)


def adamw(parameters, *, lr, weight_decay=0.0):
    """torch's AdamW (``weight_decay=0``: Adam) in one fused kernel, where the device has one.

    The first optimiser that a process makes, whoever makes it, has torch load its compiler: a second or two.
    """
    parameters = list(parameters)
    fused = all(p.device.type in ("cpu", "cuda") for p in parameters)
    return torch.optim.AdamW(parameters, lr=lr, weight_decay=weight_decay, fused=fused)


def learning_copy(model):
    """A copy of g whose BatchNorm normalises each batch and learns, as in the authors' code (preset ``released``)."""
    model = copy.deepcopy(model).requires_grad_(False)
    for module in model.modules():
        if isinstance(module, BATCH_NORMS):
            module.train().requires_grad_(True)
    return model


BATCH_NORMS = nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm


@contextmanager
def flush_denormals():
    """Meanwhile, on this thread, numbers below 1e-38 count as zero.

    Masks are full of them, too small to matter in a sum, and on some CPUs arithmetic with them is far slower.
    """
    before = float(torch.tensor(1e-38) * 0.1) == 0  # torch does not say
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


_ONE_AT_A_TIME = threading.RLock()


@contextmanager
def seeded(*keys):
    """Inside, torch's generators start from a seed of their own and this thread is the only one in here.

    torch has one generator per process and device, and ``Dirichlet.rsample`` takes no other: two fits at once would
    draw from each other's stream, and set g's mode under each other's feet. A second one waits. Afterwards the
    generators are as they were. Gradients are on and autocasting is off inside, whatever they were outside.
    """
    gpus = range(torch.cuda.device_count())
    with _ONE_AT_A_TIME, torch.random.fork_rng(gpus), torch.inference_mode(False), torch.enable_grad(), \
            torch.autocast("cuda" if gpus else "cpu", enabled=False):
        torch.manual_seed(derive_seed(*keys))
        yield


def progress_bar(total, name, progress):
    """tqdm's own bar; None leaves to tqdm whether it shows (where stderr is a terminal)."""
    return tqdm(total=total, desc=name, leave=False, unit="step", mininterval=0.2, file=sys.stderr,
                disable=None if progress is None else not progress)


class _Lines(logging.Handler):
    """Lines on stderr that do not run into a bar."""

    def emit(self, record):
        tqdm.write(self.format(record), file=sys.stderr)


@contextmanager
def verbosity(level):
    """Show bifkit's log inside: 0 nothing but warnings, 1 what is done, 2 every twentieth of a fit.

    Handlers of the user's own are left alone: then only the level changes, and never to show less than it did.
    """
    if not (isinstance(level, int) and level in (0, 1, 2)):
        raise ValueError(f"verbose must be 0, 1 or 2; got {level!r}")
    package = logging.getLogger("bifkit")
    before, handler = package.level, None
    if level:
        wanted = logging.INFO if level == 1 else logging.DEBUG
        package.setLevel(min(before or wanted, wanted))
        if not package.hasHandlers():
            handler = _Lines()
            handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
            package.addHandler(handler)
    try:
        yield
    finally:
        package.setLevel(before)
        if handler:
            package.removeHandler(handler)


def derive_seed(*keys) -> int:
    """A 63-bit seed from any mix of names and numbers, so that changing one stream never shifts another."""
    words = []
    for key in keys:
        key = key.item() if isinstance(key, np.generic) else key  # np.int64(0) is 0
        digest = hashlib.sha256(f"{type(key).__name__}:{key}".encode()).digest()
        words += list(np.frombuffer(digest[:16], dtype=np.uint32))
    state = np.random.SeedSequence([int(w) for w in words]).generate_state(2, np.uint32)
    return int(state[0]) << 31 | int(state[1]) >> 1
