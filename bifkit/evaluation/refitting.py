"""Do it all again: rows drawn anew, a newly trained g, a new fit, n times. What calibration and comparison ask for."""

import functools
import hashlib
import inspect
import json
import random
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from bifkit import storage
from bifkit.posterior import Posterior
from bifkit.training import derive_seed, seeded

NOTE = "refits.json"  # beside the posteriors of a folder: which job they are of


def refits(train, X, y=None, *, n=10, explainer=None, explain=None, how="bootstrap", share=0.5, seed=0, workers=1,
           folder=None, progress=None, **settings) -> list[Posterior]:
    """Train and explain ``n`` times: the list of posteriors that ``calibrated`` and ``compare`` take.

    Refit number i depends on ``seed`` and i alone, not on n (but for "parts") or on the number of workers (each refit
    has one thread of torch): two calls with the same seed, one for each of two ways to train, give refits that are
    paired. Random generators of torch, numpy and Python start from that seed inside ``train`` and are afterwards as
    they were.

    >>> from torch import nn
    >>> def train(X, y, seed):  # an exact linear classifier; yours trains a network
    ...     g = nn.Linear(3, 2, bias=False)
    ...     weight = np.linalg.lstsq(X, 2.0 * y - 1, rcond=None)[0]
    ...     g.weight.data = torch.tensor(np.stack([-weight, weight]) * 3, dtype=torch.float32)
    ...     return g
    >>> X = np.random.default_rng(0).normal(size=(300, 3)).astype("float32")
    >>> found = refits(train, X, X[:, 1] > 0, n=3, min_steps=100, epochs=1)
    >>> [p.top(1) for p in found]
    [['x1'], ['x1'], ['x1']]

    Parameters
    ----------
    train : callable
        ``train(X, y, seed)`` returns a newly trained g. ``seed`` is a whole number below 2**31.
    X : DataFrame, array or tensor
        All rows; ``train`` gets a part of them of the same type, with its columns.
    y : array, optional
        Their labels; without them ``train`` and the explainer get None.
    n : int, default 10
        Number of refits.
    explainer : class or callable, default GlobalBIF
        GlobalBIF, LocalBIF, or a function ``(g, X, y, seed, **settings)`` that returns a Posterior.
    explain : DataFrame, array or tensor, optional
        For LocalBIF: the rows to explain, the same ones with every refit.
    how : str, default "bootstrap"
        Rows of a refit: "bootstrap" (as many, drawn with replacement), "split" (a random part, without), "same"
        (all; then only the training and the fit are done again) or "parts" (the rows are divided among the n refits:
        no two share one). Bootstraps of X speak of X itself; to ask whether two data sets, such as those of two months,
        are of one population, take parts.
    share : float, default 0.5
        The part that "split" takes.
    seed : int, default 0
        Fixes all of it.
    workers : int, default 1
        Refits at a time, each in a process of its own; -1 for one per core.
    folder : str or Path, optional
        Finished refits are saved here and found again by the next call with the same job, also with a larger n (but
        for "parts").
        A folder of another job (data, settings, seed, text of ``train``) is refused. What ``train`` reads from
        elsewhere is not seen: take another folder when that changes.
    progress : bool, optional
        A bar; by default in a terminal. In JupyterLab say True.
    **settings
        Of the explainer, such as ``preset="few"``.

    Returns
    -------
    list of Posterior
    """
    import joblib  # slow to import

    from bifkit.explainers import GlobalBIF, LocalBIF  # which import this room

    explainer = GlobalBIF if explainer is None else explainer
    X, y = _rows(X, "X"), None if y is None else _rows(y, "y")
    _check(train, X, y, n, how, share, seed, explainer, settings)
    if (explain is not None) != (isinstance(explainer, type) and issubclass(explainer, LocalBIF)):
        raise ValueError("explain= holds the rows that LocalBIF explains, the same ones with every refit: give it with "
                         "LocalBIF, and with nothing else")
    files = [None] * n if folder is None else [Path(folder) / f"refit_{i:04d}.bif" for i in range(n)]
    if folder is not None:
        _claim(Path(folder), {"data": [_digest(v) for v in (X, y, explain)], "train": _text(train),
                              "explainer": _text(explainer), "settings": settings, "seed": seed,
                              "rows": [how, {"split": share, "parts": n}.get(how)]})
    found = {i: _stored(file) for i, file in enumerate(files) if file is not None and file.exists()}
    jobs = [joblib.delayed(_refit)(i, n, train, X, y, explainer, explain, how, share, seed, settings, files[i])
            for i in range(n) if i not in found]
    with tqdm(total=n, initial=len(found), desc="refits", unit="refit", leave=False, file=sys.stderr,
              disable=None if progress is None else not progress) as bar:
        for i, posterior in joblib.Parallel(n_jobs=workers, return_as="generator_unordered")(jobs):
            found[i] = posterior
            bar.update()
    for i in range(n):
        if found[i].feature_names != found[0].feature_names or found[i].alpha.shape != found[0].alpha.shape:
            where = "" if folder is None else f" (refit_{i:04d}.bif in folder {Path(folder).name!r})"
            raise ValueError(f"refit {i}{where} is not over the features, or the rows, of refit 0: the explainer must "
                             "name the same ones each time; a file of another explanation must be deleted")
    return [found[i] for i in range(n)]


def _stored(file):
    """The posterior of a finished refit."""
    try:
        return Posterior.load(file)
    except ValueError as error:  # BadFile is one
        raise ValueError(f"{error}: delete it, and refits makes it again") from error


def _refit(i, n, train, X, y, explainer, explain, how, share, seed, settings, file):
    """(i, posterior) of one refit, saved when done."""
    N, rng = len(X), np.random.default_rng(derive_seed("refits", "rows", seed, *([] if how == "parts" else [i])))
    rows = {"bootstrap": lambda: np.sort(rng.integers(N, size=N)), "same": lambda: np.arange(N),
            "split": lambda: np.sort(rng.permutation(N)[:max(round(share * N), 1)]),
            "parts": lambda: np.sort(rng.permutation(N)[i::n])}[how]()  # one permutation for all
    X, y, number = _take(X, rows), _take(y, rows), derive_seed("refits", "train", seed, i) % 2**31
    step = "train"
    try:
        with _alone(number):
            g = train(X, y, number)
            step = "the explainer"
            if not isinstance(explainer, type):
                posterior = explainer(g, X, y, number, **settings)
            else:
                fitted = explainer(g, **{"progress": False} | settings, seed=number).fit(X, y)
                posterior = fitted.explain() if explain is None else fitted.explain(explain)
        if not hasattr(posterior, "alpha"):
            raise TypeError(f"one Posterior was expected, got a {type(posterior).__name__} (with classes=, give a "
                            "function as explainer that picks one class)")
    except Exception as error:
        raise RuntimeError(f"{step} failed in refit {i} (seed={number}), {type(error).__name__}: {error}") from error
    if file is not None:
        posterior.save(file)
    return i, posterior


@contextmanager
def _alone(seed):
    """Inside, every generator starts from ``seed`` and torch has one thread; afterwards all is as it was."""
    state, python, threads = np.random.get_state(), random.getstate(), torch.get_num_threads()
    try:
        with seeded("refit", seed):
            np.random.seed(seed)
            random.seed(seed)
            torch.set_num_threads(1)  # sums over several threads round differently
            yield
    finally:
        torch.set_num_threads(threads)
        np.random.set_state(state)
        random.setstate(python)


def _rows(values, name):
    """Rows that can be chosen from: a frame, series, tensor or array."""
    if hasattr(values, "iloc") or isinstance(values, torch.Tensor):
        return values
    values = np.asarray(values)
    if values.ndim < 1 or values.dtype == object and not values.size:
        raise TypeError(f"{name} must be a DataFrame, array or tensor with one row per instance, of which refits draw")
    return values


def _take(values, rows):
    if values is None:
        return None
    return values.iloc[rows] if hasattr(values, "iloc") else values[rows]


def _check(train, X, y, n, how, share, seed, explainer, settings):
    """Everything that can be wrong before the first g is trained."""
    if not callable(train) or not callable(explainer):
        raise TypeError("train must be a function (X, y, seed) that returns a trained g, explainer a class or function;"
                        f" got {type(train).__name__} and {type(explainer).__name__}")
    for name, value in (("n", n), ("seed", seed)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < (name == "n"):
            raise ValueError(f"{name} must be a whole number of at least {int(name == 'n')}; got {value!r}")
    if how not in ("bootstrap", "split", "same", "parts"):
        raise ValueError(f"how must be 'bootstrap', 'split', 'same' or 'parts'; got {how!r}")
    if not 0 < share < 1:
        raise ValueError(f"share must lie strictly between 0 and 1; got {share!r}")
    if len(X) < 2 or y is not None and len(y) != len(X):
        raise ValueError(f"X has {len(X)} rows, y {'none' if y is None else len(y)}: give two or more, and as many")
    if how == "parts" and len(X) < 2 * n:
        raise ValueError(f"X has {len(X)} rows, too few to divide among {n} refits: two each are the least")
    if isinstance(explainer, type):
        explainer(None, **settings)  # refuses a setting that it does not have


def _claim(folder, job):
    """Make a folder this job's, or refuse one that is another's."""
    job = json.loads(json.dumps(job, default=lambda v: np.asarray(v).tolist() if hasattr(v, "__array__") else repr(v)))
    note = folder / NOTE
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"folder={folder.name!r} is a file: give the name of a folder, new or of the same job")
    if not note.exists():
        if folder.exists() and any(not f.name.endswith(".tmp") for f in folder.iterdir()):  # .tmp: of a killed call
            raise ValueError(f"folder {folder.name!r} holds other files and no {NOTE}: give a new or an empty one")
        folder.mkdir(parents=True, exist_ok=True)
        return storage.write_bytes(json.dumps(job, indent=1).encode(), note)
    try:
        found = json.loads(note.read_text())
        other = [part for part in job if found.get(part) != job[part]]
    except (ValueError, AttributeError):
        raise ValueError(f"{NOTE} in folder {folder.name!r} is damaged: give another folder, or empty it") from None
    if other:
        raise ValueError(f"folder {folder.name!r} holds refits of another job (other {', '.join(other)}): give another "
                         "folder, or empty this one")


def _digest(values):
    """A checksum of rows with their names."""
    if values is None:
        return None
    if not hasattr(values, "iloc"):
        values = np.asarray(values.detach().cpu() if isinstance(values, torch.Tensor) else values)
        values = pd.DataFrame(values.reshape(len(values), -1))
    head = f"{values.shape} {list(getattr(values, 'columns', []))}"
    return hashlib.sha256(head.encode() + pd.util.hash_pandas_object(values).to_numpy().tobytes()).hexdigest()


def _text(function):
    """What a function is, as far as its name and text tell."""
    if isinstance(function, functools.partial):
        return [_text(function.func), list(function.args), function.keywords]
    name = f"{function.__module__}.{getattr(function, '__qualname__', type(function).__qualname__)}"
    try:
        return [name, "" if isinstance(function, type) else inspect.getsource(function)]
    except (OSError, TypeError):  # typed at a prompt, or an object that can be called
        return [name, ""]
