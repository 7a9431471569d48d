"""Tests and doctests write to a scratch folder, never to the committed results, and use one thread.

Their kernels, nbval's too, are talked to over unix sockets (``experiments.runner.kernels``): others can take a port.
"""

import os
import random
import sys

import pytest

try:
    import jupyter_client
    import nbval.kernel
except ImportError:  # bifkit's own tests (core, inputs, evaluation, plots, sharing) do without notebooks
    pass
else:
    from experiments.runner import kernels
    nbval.kernel.KernelManager = jupyter_client.KernelManager = kernels.SocketKernelManager
    jupyter_client.AsyncKernelManager = kernels.AsyncSocketKernelManager  # nbclient's default

os.environ.setdefault("OMP_NUM_THREADS", "1")
collect_ignore = ["tests/runner/cluster_runs.py"]  # imported by the cluster's workers, whose path holds what it imports
SLOW = ("tests/runner/", "tests/core/test_progress")  # they start kernels, workers and terminals


def pytest_collection_modifyitems(items):
    """``make check`` leaves these out, beside what its own file marks as slow."""
    for item in items:
        if item.nodeid.startswith(SLOW):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True, scope="session")
def _scratch(tmp_path_factory):
    """``paths.results()``, ``paths.figures()`` and ``paths.build()`` lie in a temporary folder."""
    before = {k: os.environ.get(k) for k in ("BIF_OUTPUT", "BIF_RESUME", "BIF_PROGRESS", "BIF_CLUSTER")}
    os.environ["BIF_OUTPUT"] = str(tmp_path_factory.mktemp("output"))
    os.environ.pop("BIF_RESUME", None)
    os.environ.pop("BIF_PROGRESS", None)
    os.environ.pop("BIF_CLUSTER", None)  # tests train here, not on a developer's cluster
    yield
    for key, value in before.items():
        os.environ.pop(key, None)
        if value is not None:
            os.environ[key] = value


@pytest.fixture(autouse=True)
def _seed():
    """pytest-randomly seeds ``random`` before each test, by the seed that pytest prints; torch follows it."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(random.getrandbits(32))


@pytest.fixture(autouse=True)
def _examples(doctest_namespace):
    """Examples of Posterior's methods name the class, also those in ``bifkit.sharing.interop``, which it imports."""
    if "bifkit" in sys.modules:
        doctest_namespace["Posterior"] = sys.modules["bifkit"].Posterior


@pytest.fixture(autouse=True)
def _figures():
    """Figures that a test or an example opened are closed after it."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
