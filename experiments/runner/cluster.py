"""The runs of a study on a Dask cluster: ``make reproduce CLUSTER=...``.

``BIF_CLUSTER`` names the scheduler: its address (``tcp://host:8786``) or the scheduler file that ``dask scheduler
--scheduler-file`` writes. ``BIF_CLUSTER_WAIT`` is how many seconds to wait for it and for its first worker.

*Same rows.* A run is what it is on one machine: seeded from function and parameters, one thread, alone in its
process. Hence a worker has one thread (``dask worker --nthreads 1``; more processes with ``--nworkers``) and must
have imported the very source that this process has: both are checked at the start and again before each run, because
workers may join later. The easy way to have it so is one checkout with its ``.venv`` on a shared file system.

*Nothing lost.* Finished runs come back to this process, which keeps them; workers write nothing.
Dask gives the runs of a worker that dies to another. A run that takes worker after worker with it is given up by
Dask; it is reported as dead, and the study goes on. Where all workers are gone and none comes back, the command ends
after ten minutes, and the next one resumes.

*Nobody else.* Dask does what it is told by whoever reaches its port. Start the scheduler on one network
(``--interface ib0``, or ``--host``) and with TLS (``--protocol tls`` and a certificate, as
``examples/cluster_slurm.sh`` makes one); the certificate reaches this process through Dask's own configuration.
"""

import contextlib
import functools
import importlib
import json
import os
import re
import time
from concurrent.futures import CancelledError
from pathlib import Path

import joblib

from experiments.runner import provenance

WAIT = 20.0  # seconds for a scheduler and its first worker
GONE = 600.0  # seconds without any worker after which the cluster counts as lost
RESTART = "start them anew, from this checkout and its .venv"


class ClusterUnavailable(RuntimeError):
    """There is no cluster to run on; the message says what is missing and what to do."""


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
    """A Dask client of the scheduler at ``where``, whose workers have this source and can import ``module``."""
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


def outcomes(client, run, function, keys):
    """(key, outcome) of each run as it ends, or (key, None) where worker after worker died of it.

    ``run(function, key)`` makes the outcome in a worker.
    """
    from distributed import KilledWorker, as_completed

    # all at once: workers that join later find them
    futures = client.map(functools.partial(_alone, run, function), keys, pure=False)
    left, ended = dict(zip(futures, keys, strict=True)), as_completed(futures, loop=client.loop)
    del futures  # each is forgotten, here and by the scheduler, when its outcome is out
    seen = asked = time.monotonic()
    while left:
        for future in ended.next_batch(block=False):
            try:
                outcome = future.result(timeout=GONE)
            except KilledWorker:
                outcome = None
            except (CancelledError, TimeoutError):
                raise _lost() from None
            yield left.pop(future), outcome
        time.sleep(0.05)
        if client.status == "running" and time.monotonic() - asked > min(5, GONE / 4):
            asked = time.monotonic()
            with contextlib.suppress(OSError):  # no answer: the scheduler is lost, and the runs are cancelled
                seen = asked if client.nthreads() else seen
        if time.monotonic() - seen > GONE:  # nobody is left to do them: they would wait for ever
            raise _lost()


def about(client) -> dict:
    """What provenance records of a cluster: how many workers, and their CPUs."""
    cpus = client.run(_cpu, on_error="ignore")
    return {"workers": len(cpus), "cpu": ", ".join(sorted(set(cpus.values())))}


def _cpu():
    return provenance.provenance()["cpu"]


def _lost():
    return ClusterUnavailable(f"the cluster was lost, its scheduler or for {GONE:g} s all of its workers: the "
                              "finished runs are kept, and the same command goes on")


def _alone(run, function, key):
    """In a worker: one run, checked once more. Nested joblib must stay here, in this thread."""
    from distributed import get_worker
    if fault := _fault(json.loads(key)["code"], function.__module__, get_worker()):
        raise ClusterUnavailable(f"a worker {fault}")
    with joblib.parallel_config(backend="sequential"):
        return run(function, key)


def _fault(code, module, dask_worker):
    """In a worker: why it can't do the runs of ``module`` as the source ``code`` would, or nothing."""
    if (threads := dask_worker.state.nthreads) != 1:
        return (f"has {threads} threads, but a run needs a process to itself: start the workers with --nthreads 1 "
                "(and --nworkers for more processes)")
    if code != provenance.LOADED:
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
    """The scheduler's address, from its file if ``where`` names one."""
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
    """An error in at most 200 characters."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]
