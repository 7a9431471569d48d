"""The runs of a study on a Dask cluster, through joblib's own backend: ``make reproduce CLUSTER=...``.

``BIF_CLUSTER`` names the scheduler: its address (``tcp://host:8786``) or the scheduler file that ``dask scheduler
--scheduler-file`` writes. ``BIF_CLUSTER_WAIT`` is how many seconds to wait for it and for its first worker.

*Same rows.* A run is what it is on one machine: seeded from function and parameters, one thread, alone in its
process. Hence a worker has one thread (``dask worker --nthreads 1``; more processes with ``--nworkers``) and must
have imported the very source that this process has: both are checked at the door and again before each run, because
workers may join later. The easy way to have it so is one checkout with its ``.venv`` on a shared file system.

*Nothing lost.* Finished runs come back to this process, which keeps them; workers write nothing.
Dask gives the runs of a worker that dies to another. A run that takes worker after worker with it is given up by
Dask; it is reported as dead, and the study goes on. Where all workers are gone and none comes back, the command ends
after ten minutes, and the next one resumes.
"""

import contextlib
import importlib
import json
import os
import re
import threading
import time
from concurrent.futures import CancelledError
from pathlib import Path

import joblib
from joblib._dask import DaskDistributedBackend  # importable without dask

from experiments.runner import provenance

LOADED = provenance.fingerprint()  # of the source when this process, perhaps a worker days old, has imported it
WAIT = 20.0
GONE = 600.0
RESTART = "start them anew, from this checkout and its .venv"


class ClusterUnavailable(RuntimeError):
    """There is no cluster to run on; the message says what is missing and what to do.

    >>> issubclass(ClusterUnavailable, RuntimeError)
    True
    """


def located(given: str) -> str:
    """What ``CLUSTER=`` names, so that it holds in any folder: an address, or a scheduler file's full path.

    >>> located("node7:8786"), located("tcp://10.0.0.1:8786"), Path(located("scheduler.json")).is_absolute()
    ('tcp://node7:8786', 'tcp://10.0.0.1:8786', True)
    """
    if "://" in given:
        return given
    return f"tcp://{given}" if re.fullmatch(r"[\w.-]+:\d+", given) else str(Path(given).expanduser().resolve())


@contextlib.contextmanager
def connected(where: str, module: str = "bifkit"):
    """A Dask client of the scheduler at ``where``, whose workers have this source and can import ``module``.

    >>> from unittest import mock
    >>> with mock.patch.dict(os.environ, BIF_CLUSTER_WAIT="0"), connected("no such file"):
    ...     pass
    Traceback (most recent call last):
    ...
    experiments.runner.cluster.ClusterUnavailable: no such file is not there: ...
    """
    try:
        import distributed
    except ImportError:
        raise ClusterUnavailable("running on a cluster needs Dask: pip install 'bifkit[cluster]'") from None
    wait = float(os.environ.get("BIF_CLUSTER_WAIT") or WAIT)
    address = _address(where, time.monotonic() + wait)
    try:
        client = distributed.Client(address, timeout=wait, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ClusterUnavailable(f"no Dask scheduler answers at {address} within {wait:g} s ({_brief(error)}): is it "
                                 "running, and can this machine reach it?") from None
    with client:
        try:
            client.wait_for_workers(1, timeout=wait)
        except TimeoutError:
            raise ClusterUnavailable(f"the scheduler at {address} has no worker after {wait:g} s: start some with dask "
                                     "worker --nthreads 1, or wait longer (BIF_CLUSTER_WAIT)") from None
        _check(client, module)
        yield client


def outcomes(client, attempt, function, keys):
    """(key, outcome) of each run as it ends, or (key, None) where worker after worker died of it.

    ``attempt(function, key)`` makes the outcome in a worker.

    >>> list(outcomes(None, print, print, []))
    []
    """
    tasks = [joblib.delayed(_alone)(attempt, function, key=key) for key in keys]
    if not tasks:
        return
    with _watched(client), joblib.parallel_config(backend=_Backend(client=client)):
        # all at once: workers that join later find them
        yield from joblib.Parallel(return_as="generator_unordered", batch_size=1, pre_dispatch="all")(tasks)


def about(client) -> dict:
    """What provenance tells of a cluster: how many workers, and their CPUs.

    >>> from unittest import mock
    >>> client = mock.Mock(run=lambda f, **_: {"tcp://a:1": "Fast CPU", "tcp://b:1": "Fast CPU"})
    >>> about(client)
    {'workers': 2, 'cpu': 'Fast CPU'}
    """
    cpus = client.run(_cpu, on_error="ignore")
    return {"workers": len(cpus), "cpu": ", ".join(sorted(set(cpus.values())))}


def _cpu():
    return provenance.provenance()["cpu"]


class _Backend(DaskDistributedBackend):
    """joblib's own, with an answer where it waits for ever: a task that Dask gives up never calls back."""

    def effective_n_jobs(self, n_jobs):
        return max(2, super().effective_n_jobs(n_jobs))  # with 1 joblib would run everything in this process

    def submit(self, func, callback=None):
        from distributed import KilledWorker
        key = func.items[0][2]["key"]

        def tell(future):
            if error := future.exception():
                callback([(key, None)] if isinstance(error, KilledWorker) else error)

        future = super().submit(func, callback)
        future.add_done_callback(tell)
        return future

    def retrieve_result_callback(self, out):
        if isinstance(out, CancelledError):
            raise ClusterUnavailable(f"the cluster was lost, its scheduler or for {GONE:g} s all of its workers: the "
                                     "finished runs are kept, and the same command goes on")
        return super().retrieve_result_callback(out)


@contextlib.contextmanager
def _watched(client):
    """Close the client, which cancels its runs, when nobody is left to do them: they would wait for ever."""
    ended = threading.Event()

    def watch():
        seen = time.monotonic()
        while not ended.wait(min(5, GONE / 4)):
            try:
                seen = time.monotonic() if client.ncores() else seen
            except Exception:  # the connection is lost: the runs are cancelled already
                return
            if time.monotonic() - seen > GONE:
                return client.close()

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _alone(attempt, function, key):
    """In a worker: one run. Nested joblib must stay here, in this thread: Dask would spread it over the cluster."""
    from distributed import get_worker
    if fault := _fault(json.loads(key)["code"], function.__module__, get_worker()):
        raise ClusterUnavailable(f"a worker {fault}")
    with joblib.parallel_config(backend="sequential"):
        return key, attempt(function, key)


def _fault(code, module, dask_worker):
    """In a worker: why it can't do the runs of ``module`` as the source ``code`` would, or nothing."""
    if (threads := dask_worker.state.nthreads) != 1:
        return (f"has {threads} threads, but a run needs a process to itself: start the workers with --nthreads 1 "
                "(and --nworkers for more processes)")
    if code != LOADED:
        return f"has other source or packages than this command: {RESTART}"
    try:
        importlib.import_module(module)
    except ImportError as error:
        return f"can't import {module} ({error}): {RESTART}"
    return ""


def _check(client, module):
    """Refuse a cluster with a worker that could not give the same rows."""
    answers = client.run(_fault, provenance.fingerprint(), module, on_error="return")
    faults = {f"can't import bifkit ({_brief(a)}): {RESTART}" if isinstance(a, BaseException) else a
              for a in answers.values()} - {""}
    if faults:
        raise ClusterUnavailable(f"a worker {sorted(faults)[0]}")


def _address(where, deadline):
    if "://" in where:
        return where
    while True:  # a scheduler that was started a moment ago may not have written its file
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            return json.loads(Path(where).read_text())["address"]
        if time.monotonic() > deadline:
            what = "is no scheduler file" if Path(where).exists() else "is not there"
            raise ClusterUnavailable(f"{where} {what}: start the scheduler with dask scheduler --scheduler-file {where}"
                                     ", or give its address, tcp://host:8786")
        time.sleep(0.1)


def _brief(error):
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]
