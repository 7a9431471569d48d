"""Runs for the tests of the runner: workers import them, so they stand in a module of their own."""

import os
import sys
import time

import numpy as np
import torch

if "pytest" not in sys.modules:  # a worker or a kernel: whoever edits a file while the tests run
    from experiments.runner import provenance
    provenance.LOADED, provenance.fingerprint = "pinned", lambda: "pinned"


class DataUnavailable(Exception):
    """Named like the one of data_prep, which is recognised by its name."""


def note(line):
    with open(os.environ["RUNS_LOG"], "a") as file:  # one short write: lines of two workers never mix
        file.write(line + "\n")


def logged(*, seed, pause=0.0):
    """Leaves a line when it begins."""
    note(f"{seed}")
    time.sleep(pause)
    return {"score": seed * 0.1}


def train(*, seed, width=16):
    """A small training whose last digits depend on seeds and threads."""
    x, y = torch.randn(256, 8), torch.randn(256, 1)
    net = torch.nn.Sequential(torch.nn.Linear(8, width), torch.nn.ReLU(), torch.nn.Linear(width, 1))
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(20):
        optimiser.zero_grad()
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        optimiser.step()
    noise = float(np.random.standard_normal()) + float(np.asarray([seed]).sum())
    return {"loss": loss.item(), "noise": noise, "threads": torch.get_num_threads()}


def mixed(*, kind, seed):
    """All that may happen to a run."""
    if kind == "fails":
        raise RuntimeError("on\npurpose")
    if kind == "absent":
        raise DataUnavailable("the data set is not here: make data")
    if kind == "dies" and os.environ.get("RUNS_DIE"):
        os._exit(9)
    if kind == "object":
        return {"score": object()}
    return {"score": np.float32(0.5), "weights": np.arange(3), "table": {"a": 1}, "flag": True, "none": None}


def memory(*, megabytes):
    """Takes that much, and lets it go."""
    block = np.ones(megabytes * 2**17)
    return {"sum": float(block.sum())}
