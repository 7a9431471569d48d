"""A grid of independent runs becomes one tidy frame, one row per run.

A study is an importable function and a list of dicts, its grid. ``run`` has two modes:

* ``recompute=False`` reads ``results/<name>.csv`` and returns the rows of this grid; nothing is trained.
* ``recompute=True`` trains the whole grid in parallel (joblib, one thread per worker) and writes the csv: on the
  cores of this machine, or on the Dask cluster that ``BIF_CLUSTER`` names, with the same rows.

*Nothing is replaced by less.* Rows take the place of the stored ones only if none of these is lost: fewer runs, another
profile, runs that failed or whose data set is absent go to ``build/partial``, with the figures and scores of the same
notebook. ``make reproduce`` knows its grids to be whole (``BIF_WHOLE``), so that there a study may become smaller.
Made-up data (``BIF_STANDINS``) never get into the repository's ``results/``.

A row holds the grid's parameters, what the function returned, ``seconds``, ``peak_mb`` and ``error`` (empty
when all went well). Both modes return what the csv says, so a frame is the same whether it was trained a
second or a year ago.

*Interruptions.* Each finished run is kept in a JSON file until its command has ended: a kill at any moment costs
only the runs under way. The command is the call of ``run`` or, within ``make reproduce``, the whole of it
(``BIF_RESUME`` names the folder). A kept run is found by its key: the function, the parameters, the source of this
repository and the versions of the packages, so that edited code never meets results of its past.

*Failures.* A failing run is recorded with its error and stops no other; in the end ``StudyFailed`` names it.
A run whose data set is absent (an exception class named ``DataUnavailable``) is recorded as ``not run: ...``
and is no failure. Neither is kept. A run whose process dies is tried once more, alone, before it is blamed.

*Repeatability.* All generators are seeded from function and parameters before a run, which has one thread:
the numbers depend neither on the number of workers nor on what a worker did before.
"""

import contextlib
import ctypes
import hashlib
import json
import logging
import os
import sys
import time
import warnings
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import joblib
import pandas as pd
import torch
from threadpoolctl import threadpool_limits

from bifkit.evaluation import FitWarning
from bifkit.training import flush_denormals
from data_prep.paths import standins
from data_prep.seeding import seed_all
from experiments.runner import paths, provenance, rows
from experiments.runner.files import discard, end_with, locked, write_text, writing
from experiments.runner.progress import Progress
from experiments.runner.rows import NOT_RUN

log = logging.getLogger(__name__)


class StudyFailed(RuntimeError):
    """Some runs of a study failed; the message names them and the csv holds their errors."""


def run(function, grid, *, name, recompute=False, workers=None) -> pd.DataFrame:
    """Train or replay the runs of ``grid``: one row per run, in its order.

    Parameters
    ----------
    function : callable
        One run: importable, takes the keys of a grid row as keyword arguments, returns a flat dict of scores.
    grid : list of dict
        The parameters of each run: numbers, text, or lists and dicts of these.
    name : str
        The study's name; its rows are in ``results/<name>.csv``.
    recompute : bool, default False
        Train every run now. The default reads the csv and trains nothing.
    workers : int, optional
        Processes of this machine: give it to stay here in any case (to measure time, say). Without it the runs
        go to the cluster ``BIF_CLUSTER`` or, as a rule, to ``BIF_WORKERS`` processes, or one for each core.

    Examples
    --------
    >>> from experiments.runner.study import toy
    >>> grid = [{"seed": seed, "size": 3} for seed in (0, 1)]
    >>> trained = run(toy, grid, name="doctest", recompute=True, workers=1)
    >>> trained.equals(run(toy, grid, name="doctest")), list(trained)
    (True, ['seed', 'size', 'mean', 'size_squared', 'seconds', 'peak_mb', 'error'])
    """
    grid = rows.checked(function, grid, name)
    if not recompute:
        paths.set_aside(name, False)
        frame = rows.replay(grid, name)
        _set_aside(name, grid, [""] * len(grid))
        return frame
    started, folder, code = time.monotonic(), _folder(name), provenance.fingerprint()
    keys = [_key(function, row, code) for row in grid]
    with writing():
        with _pool(function, folder, workers) as (work, about):
            found = _train(keys, folder, work, name)
        outcomes = [found[key] for key in keys]
        _set_aside(name, grid, [o["error"] for o in outcomes])
        rows.store(grid, outcomes, name)
        minutes = round((time.monotonic() - started) / 60, 2)
        provenance.record(name, runs=len(grid), **about, minutes=minutes)
    errors = [(row, o["error"]) for row, o in zip(grid, outcomes, strict=True) if o["error"]]
    failed = [f"  {rows.describe(row)}: {error}" for row, error in errors if not error.startswith(NOT_RUN)]
    if failed:
        raise StudyFailed(f"{len(failed)} of {len(grid)} runs of the study {name!r} failed (their errors: "
                          f"{rows.shown(name)}; the finished runs are kept, run it again):\n"
                          + "\n".join(failed[:10]))
    if not os.environ.get("BIF_RESUME"):
        discard(folder)
    return rows.replay(grid, name)


def _set_aside(name, grid, errors):
    """Decide where the rows of a study, and what is drawn from them, belong; say so if that is not ``results/``."""
    less = rows.lost(grid, errors, name, whole=bool(os.environ.get("BIF_WHOLE")))
    if standins() and paths.output() == paths.root():
        less = "the real data"
    if not less:
        (paths.partial() / "results" / f"{name}.csv").unlink(missing_ok=True)
    paths.set_aside(name, bool(less))
    if less:
        where = paths.partial().relative_to(paths.output())
        print(f"{name}: results/{name}.csv stays as it is, because these rows are without {less}; they, and this "
              f"notebook's figures and scores, go to {where}/")


def toy(*, seed: int, size: int) -> dict:
    """The smallest run there is, for examples and tests."""
    return {"mean": float(seed_all("toy", seed).normal(size=size).mean()), "size_squared": size**2}


def _train(keys, folder, work, name):
    """The outcome of each key: kept from before, or of a run now."""
    with locked(folder, alone=True):  # a killed command's last workers may still be storing their runs
        outcomes = {key: kept for key in keys if (kept := _kept(folder, key))}
    todo = [key for key in keys if key not in outcomes]
    progress = Progress(name, len(keys), len(todo))
    with locked(folder):
        died = []
        for key, outcome in work(todo):
            if outcome is None:
                died.append(key)
            else:
                outcomes[key] = outcome
                progress.step()
        for key in died:  # one of them brought its process down (memory, usually): find it, one by one
            for _, outcome in work([key]):
                outcomes[key] = outcome or {"error": "the process of this run died: out of memory?"}
                progress.step()
    progress.close()
    return outcomes


@contextlib.contextmanager
def _pool(function, folder, workers):
    """How the runs of some keys are done, ``work(keys)``, and what provenance says of it.

    ``work`` yields (key, outcome) as runs end, and (key, None) when the process died that had it.
    """
    if workers is None and (where := os.environ.get("BIF_CLUSTER")):
        from experiments.runner import cluster  # only here: Dask is an extra
        with cluster.connected(where, function.__module__) as client:
            def there(keys):
                for key, outcome in cluster.outcomes(client, _outcome, function, keys):
                    _keep(folder, key, outcome)
                    yield key, outcome
            yield there, cluster.about(client)
        return
    workers = int(workers or os.environ.get("BIF_WORKERS") or joblib.cpu_count())

    def here(keys):
        left, tasks = dict.fromkeys(keys), (joblib.delayed(_worker)(folder, function, k, os.getpid()) for k in keys)
        with joblib.parallel_config(backend="loky", n_jobs=workers, inner_max_num_threads=1):
            try:
                for key, outcome in joblib.Parallel(return_as="generator_unordered", batch_size=1)(tasks):
                    del left[key]
                    yield key, outcome
            except BrokenProcessPool:
                pass
        yield from ((key, None) for key in left)

    yield here, {"workers": workers}


def _worker(folder, function, key, parent):
    """In a worker of this machine: one run, kept when it ends well."""
    with locked(folder):
        end_with(parent)
        if os.getpid() != parent and json.loads(key)["code"] != provenance.LOADED:
            return key, {"error": "the source was edited before this worker imported it: run the command again"}
        outcome = _outcome(function, key)
        _keep(folder, key, outcome)
        return key, outcome


def _outcome(function, key):
    """What ``_measured`` gives, or the error in words if the run failed."""
    try:
        return _measured(function, key)
    except Exception as error:
        log.debug("a run failed", exc_info=True)
        return {"error": NOT_RUN + _words(error) if _absent(error) else _words(error)}


def _measured(function, key):
    """One run: its scores, seconds and peak memory. ``key`` is JSON text that holds the parameters."""
    request = json.loads(key)
    name, params, threads = request["function"], request["params"], torch.get_num_threads()
    seed_all(name, json.dumps(params, sort_keys=True))
    _reset_peak()
    start = time.perf_counter()
    try:
        with threadpool_limits(1), flush_denormals(), warnings.catch_warnings():
            warnings.simplefilter("ignore", FitWarning)  # advice for one fit; a study's table shows what came of it
            scores = function(**params)
    finally:
        torch.set_num_threads(threads)
    seconds = round(time.perf_counter() - start, 3)
    if not isinstance(scores, dict):
        raise TypeError(f"{name} returned {type(scores).__name__}, expected a dict of scores")
    if clash := [k for k in scores if k in params or k in rows.RESERVED]:
        raise ValueError(f"{name} returned {clash}, already a parameter or a column of the runner: rename")
    scores = {k: rows.plain(v, k) for k, v in scores.items()}
    return scores | {"seconds": seconds, "peak_mb": _peak_mb(), "error": ""}


def _reset_peak():
    """Forget this process' peak memory so far, where the system can."""
    with contextlib.suppress(OSError, AttributeError, TypeError):  # TypeError: Windows
        ctypes.CDLL(None).malloc_trim(0)  # glibc: what earlier runs of this process have freed must hide nothing
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # Linux: VmHWM starts again from the present size


def _peak_mb():
    """Peak memory of this process in megabytes."""
    try:
        line = next(x for x in open("/proc/self/status") if x.startswith("VmHWM"))
        return round(int(line.split()[1]) / 1024, 1)
    except (OSError, StopIteration):
        pass  # not Linux
    try:
        import resource
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return round(peak / (1024**2 if sys.platform == "darwin" else 1024), 1)
    except ImportError:  # Windows
        import psutil
        memory = psutil.Process().memory_info()
        return round(getattr(memory, "peak_wset", memory.rss) / 1024**2, 1)


def _key(function, row, code):
    """What a run depends on, as JSON text: function, parameters, and ``code``, the hash of source and versions."""
    return json.dumps({"function": full_name(function), "params": row, "code": code})


def full_name(function) -> str:
    """A run's function with its module.

    >>> full_name(json.dumps)
    'json.dumps'
    """
    return f"{function.__module__}.{function.__qualname__}"


def _folder(name):
    """Where the finished runs of a study are kept until its command has ended."""
    return Path(os.environ.get("BIF_RESUME") or paths.build() / "cache" / "single") / name


def _file(folder, key):
    """The file of one finished run."""
    return folder / f"{hashlib.sha256(key.encode()).hexdigest()}.json"


def _keep(folder, key, outcome):
    """Store the outcome of a run that ended well."""
    if outcome and not outcome["error"]:
        folder.mkdir(parents=True, exist_ok=True)
        write_text(json.dumps({"key": key, "outcome": outcome}), _file(folder, key))


def _kept(folder, key):
    """The stored outcome of a run, or None: a damaged file counts as not there."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        found = json.loads(_file(folder, key).read_text(encoding="utf-8"))
        if found["key"] == key and found["outcome"]["error"] == "":
            return found["outcome"]
    return None


def _words(error):
    """An error as one line, without the path of this machine."""
    return " ".join(f"{type(error).__name__}: {error}".split()).replace(str(paths.root()), ".")


def _absent(error):
    """Whether a data set is missing; data_prep's exception is known by its name."""
    return any(c.__name__ == "DataUnavailable" for c in type(error).__mro__)
