"""Runs for the test of the cluster, whose workers import them, and a client that the test can kill.

Workers are known by their process; a run leaves a line ``seed pid`` in the file ``RUNS_LOG`` when it begins.
"""

import os
import threading
import time
from pathlib import Path

import joblib
import numpy as np
import study_runs
import torch

PINNED = "pinned"  # in place of the source's hash: whoever edits a file while the test runs


def dask_setup(worker):
    """Called by Dask in each worker it starts."""
    from experiments.runner import provenance
    provenance.LOADED = PINNED


def begun(folder):
    """(seed, pid) of each run that has begun."""
    file = Path(folder) / "log"
    return [tuple(map(int, line.split())) for line in file.read_text().splitlines()] if file.exists() else []


def held(*, seed, folder, gate=""):
    """Notes that it begins, trains, and ends when the file ``gate`` is there, if it names one."""
    with open(Path(folder) / "log", "a") as file:
        file.write(f"{seed} {os.getpid()}\n")
    weights, x, y = torch.randn(64, 8, requires_grad=True), torch.randn(256, 64), torch.randn(256, 8)
    for _ in range(20):  # by hand: an optimiser's first use takes torch seconds of imports
        loss = ((x @ weights - y) ** 2).mean()
        weights.data -= 0.1 * torch.autograd.grad(loss, weights)[0]
    until = time.monotonic() + 120
    while gate and not (Path(folder) / gate).exists() and time.monotonic() < until:
        time.sleep(0.02)
    return {"loss": loss.item(), "noise": float(np.random.standard_normal()), "threads": torch.get_num_threads()}


def place():
    """Process and thread."""
    return os.getpid(), threading.get_ident()


def where(*, seed):
    """The thread it runs in."""
    return {"thread": threading.get_ident()}


def moody(*, kind, seed):
    """All that may happen to a run, one of them deadly; ``nested`` asks joblib for more than its own thread."""
    if kind == "dies":
        os._exit(9)
    if kind == "nested":
        places = joblib.Parallel()(joblib.delayed(place)() for _ in range(4))
        return {"score": float(np.random.standard_normal()), "weights": len({*places, place()})}
    return study_runs.mixed(kind=kind, seed=seed)


def client(folder, address, grid):
    """A process of its own that runs a study on the cluster."""
    os.environ.update(BIF_OUTPUT=str(folder), BIF_RESUME=str(Path(folder) / "kept"), BIF_CLUSTER=address,
                      BIF_CLUSTER_WAIT="60")
    from experiments.runner import provenance, study
    provenance.fingerprint = lambda: PINNED
    study.run(held, grid, name="killed", recompute=True)
