"""Four threads at once: each fit gives what it gives alone, a file is always whole, and nobody's generators move.

    python -m tests.attack.threads
"""

import random
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from torch import nn

from bifkit import GlobalBIF, LocalBIF, Posterior

THREADS = 4
ROWS = np.random.default_rng(0).normal(size=(200, 5)).astype(np.float32)


def network(seed):
    """A g in training mode, with BatchNorm and Dropout: what a fit must leave as it was."""
    g = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2))
    generator = torch.Generator().manual_seed(seed)
    for parameter in g.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator)
    return g.train()


def fit(kind, g, seed):
    """The alpha of a small fit."""
    more = {"hidden": 8} if kind is LocalBIF else {}
    return kind(g, likelihood="categorical", min_steps=40, epochs=1, seed=seed, **more).fit(ROWS).explain(ROWS).alpha


def state(*models):
    """Everything that a fit must not change: the models, and the generators of torch, numpy and Python."""
    parts = [v.numpy().tobytes() for g in models for v in g.state_dict().values()]
    parts += [(m.training, tuple(p.requires_grad for p in m.parameters())) for g in models for m in g.modules()]
    name, keys, *rest = np.random.get_state()
    return parts, torch.get_rng_state().numpy().tobytes(), (name, keys.tobytes(), *rest), random.getstate()


def together(*jobs):
    """The result of each job, all started at the same moment in threads; an exception is a result."""
    found, barrier = [None] * len(jobs), threading.Barrier(len(jobs))

    def work(number):
        barrier.wait()
        try:
            found[number] = jobs[number]()
        except BaseException as error:
            found[number] = error

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(jobs))]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    return found


def same(found, expected):
    """Is a result, bit for bit, what was expected?"""
    return isinstance(found, np.ndarray) and np.array_equal(found, expected)


def fits(rounds):
    """Yield, of each fit, what is wrong or nothing: on one g and on two, global and local, seeds by turns."""
    one, two = network(0), network(1)
    alone = {}
    for number in range(rounds):
        models = [one] * THREADS if number % 2 else [one, two] * (THREADS // 2)
        plans = [((GlobalBIF, LocalBIF)[i // 2 % 2], g, 10 * (number % 4) + i) for i, g in enumerate(models)]
        for kind, g, seed in plans:
            if (kind, id(g), seed) not in alone:
                alone[kind, id(g), seed] = fit(kind, g, seed)
        before = state(one, two)
        found = together(*(lambda plan=plan: fit(*plan) for plan in plans))
        untouched = before == state(one, two)
        for result, (kind, g, seed) in zip(found, plans, strict=True):
            wrong = "" if same(result, alone[kind, id(g), seed]) else \
                f"{kind.__name__}, seed {seed}, differs from the same fit alone: {result!r:.100}"
            yield wrong or ("" if untouched else "g or a generator of the process has changed")


def saves(rounds):
    """The same of each load while four threads save to one path, each its own posterior, and load what is there."""
    posteriors = [Posterior(np.full((300, 20), 1.0 + i), settings={"thread": i}) for i in range(THREADS)]
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "shared.bif"
        posteriors[0].save(file)

        def work(number):
            loaded = []
            for _ in range(20):
                posteriors[number].save(file)
                loaded.append(Posterior.load(file))
            return loaded

        for _ in range(rounds):
            for result in together(*(lambda i=i: work(i) for i in range(THREADS))):
                for loaded in [result] if isinstance(result, BaseException) else result:
                    if isinstance(loaded, BaseException):
                        yield f"{type(loaded).__name__}: {loaded}"
                    else:
                        whole = np.array_equal(loaded.alpha, posteriors[loaded.settings["thread"]].alpha)
                        yield "" if whole else "a file of two posteriors"
            if [f.name for f in file.parent.iterdir()] != ["shared.bif"]:
                yield "a scratch file stays"


def explanations(rounds):
    """The same of each explanation that three threads ask of one explainer while the fourth fits another on its g."""
    g = network(2)
    explainer = LocalBIF(g, min_steps=40, epochs=1, hidden=8).fit(ROWS)
    alone, fitted = explainer.explain(ROWS).alpha, fit(LocalBIF, g, 7)
    for _ in range(rounds):
        before, jobs = state(g), [lambda: np.stack([explainer.explain(ROWS).alpha for _ in range(20)])] * (THREADS - 1)
        *asked, other = together(*jobs, lambda: fit(LocalBIF, g, 7))
        untouched = before == state(g)
        for result, expected in [*((a, np.stack([alone] * 20)) for a in asked), (other, fitted)]:
            wrong = "" if same(result, expected) else f"another answer than alone: {result!r:.100}"
            yield wrong or ("" if untouched else "g or a generator of the process has changed")


PARTS = {"fits": (fits, 8), "saves and loads": (saves, 3), "explanations": (explanations, 4)}


def attack():
    """Run all; returns (Counter of (part, outcome), failures as texts)."""
    counts, failures = Counter(), []
    for part, (function, rounds) in PARTS.items():
        for wrong in function(rounds):
            counts[part, "WRONG" if wrong else "right answer"] += 1
            if wrong:
                failures.append(f"{part}: WRONG: {wrong}")
    return counts, failures


def main():
    started = time.monotonic()
    counts, failures = attack()
    for (part, outcome), count in sorted(counts.items()):
        print(f"{count:6d}  {part:20s}  {outcome}")
    print(*failures[:20], sep="\n")
    print(f"{THREADS} threads at once, {sum(counts.values())} results, {len(failures)} wrong, "
          f"{time.monotonic() - started:.0f} s")
    return counts, failures


if __name__ == "__main__":
    sys.exit(1 if main()[1] else 0)
