"""Tests and doctests write to a scratch folder, never to the committed results, and use one thread.

Their kernels, nbval's too, are talked to over unix sockets (``experiments.runner.kernels``): others can take a port.
"""

import importlib.util
import os
import sys
from pathlib import Path

import jupyter_client
import nbval.kernel
import pytest

_file = Path(__file__).parent / "experiments" / "runner" / "kernels.py"
_spec = importlib.util.spec_from_file_location("kernels", _file)
kernels = importlib.util.module_from_spec(_spec)  # not imported from bifkit: nbval's processes need no torch
_spec.loader.exec_module(kernels)
nbval.kernel.KernelManager = jupyter_client.KernelManager = kernels.SocketKernelManager
jupyter_client.AsyncKernelManager = kernels.AsyncSocketKernelManager  # nbclient's default

os.environ.setdefault("OMP_NUM_THREADS", "1")
collect_ignore = ["tests/runner/cluster_runs.py"]  # imported by the cluster's workers, whose path holds what it imports


@pytest.fixture(autouse=True, scope="session")
def _scratch(tmp_path_factory):
    """``paths.results()``, ``paths.figures()`` and ``paths.build()`` lie in a temporary folder."""
    before = {k: os.environ.get(k) for k in ("BIF_OUTPUT", "BIF_ATTEMPT", "BIF_PROGRESS", "BIF_CLUSTER")}
    os.environ["BIF_OUTPUT"] = str(tmp_path_factory.mktemp("output"))
    os.environ.pop("BIF_ATTEMPT", None)
    os.environ.pop("BIF_PROGRESS", None)
    os.environ.pop("BIF_CLUSTER", None)  # tests train here, not on a developer's cluster
    yield
    for key, value in before.items():
        os.environ.pop(key, None)
        if value is not None:
            os.environ[key] = value


@pytest.fixture(autouse=True)
def _figures():
    """Figures that a test or an example opened are closed after it."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
