"""The rows of a study and their csv: what may stand in a row, how it is stored, how it is found again.

A csv holds text; a grid holds typed values. They are compared as text, and a frame takes its parameters from
the grid, so that ``seed`` stays an integer and ``"1"`` a word. Lists and dicts are JSON text, in the csv and
in the frame.
"""

import io
import json
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.runner import paths
from experiments.runner.files import write_csv

RESERVED = ("seconds", "peak_mb", "error")
NOT_RUN = "not run: "


def finished(frame) -> pd.DataFrame:
    """The runs that ended well."""
    return frame[frame["error"].fillna("") == ""]


def not_run(frame) -> dict[str, str]:
    """{data set: reason} of the data sets that are absent here.

    >>> not_run(pd.DataFrame({"dataset": ["Adult"], "error": ["not run: no network"]}))
    {'Adult': 'no network'}
    """
    absent = frame[frame["error"].fillna("").str.startswith(NOT_RUN)].drop_duplicates("dataset")
    return {r.dataset: r.error.removeprefix(NOT_RUN) for r in absent.itertuples()}


def checked(function, grid, name: str) -> list[dict]:
    """The grid as a list of dicts of plain values, or a clear error.

    >>> checked(json.dumps, [{"obj": np.float64(1.5)}], "study")
    [{'obj': 1.5}]
    >>> checked(lambda x: x, [{"x": 1}], "study")
    Traceback (most recent call last):
    ...
    ValueError: '<lambda>' can't be imported by a worker: define it at the top of a module in experiments/
    """
    where, what = getattr(function, "__module__", None), getattr(function, "__qualname__", repr(function))
    if not callable(function) or where in (None, "__main__") or "<" in what:
        raise ValueError(f"{what!r} can't be imported by a worker: define it at the top of a module in "
                         "experiments/")
    if not str(name).replace("_", "").isalnum():
        raise ValueError(f"the study's name {name!r} becomes a file's name: use letters, digits and _")
    grid = [{k: plain(v, k) for k, v in dict(row).items()} for row in grid]
    if not grid:
        raise ValueError(f"the grid of the study {name!r} is empty")
    if clash := sorted({k for row in grid for k in row} & set(RESERVED)):
        raise ValueError(f"the grid of {name!r} uses {clash}, columns of the runner: rename")
    seen = set()
    for row in grid:
        mark = tuple(sorted((k, text(v)) for k, v in row.items() if text(v)))
        if mark in seen:
            raise ValueError(f"the grid of {name!r} holds the same row twice: {row}")
        seen.add(mark)
    return grid


def store(grid: list[dict], outcomes: list[dict], name: str) -> None:
    """Write ``results/<name>.csv``: one row per run, parameters first.

    >>> store([{"seed": 0}, {"seed": 1}], [{"score": .5, "error": ""}, {"error": "boom"}], "doctest_store")
    >>> file("doctest_store").read_text()
    'seed,score,error\\n0,0.5,\\n1,,boom\\n'
    """
    columns = list(dict.fromkeys(k for row in grid for k in row))
    lines = [{c: text(row.get(c)) for c in columns} for row in grid]
    scores = list(dict.fromkeys(k for o in outcomes for k in o if k not in RESERVED))
    scores += [c for c in RESERVED if any(c in o for o in outcomes)]
    for line, outcome in zip(lines, outcomes, strict=True):
        line.update({c: "" if outcome.get(c) is None else cell(outcome[c]) for c in scores})
    write_csv(pd.DataFrame(lines, columns=columns + scores, dtype=object), file(name))


def lost(grid: list[dict], errors: list[str], name: str, *, whole: bool = False) -> str:
    """What ``results/<name>.csv`` would lose if these runs took its place, in words, or nothing.

    That are stored runs that the grid has not (unless it is known to be the ``whole`` study), and runs that had ended
    well and now have an error.

    >>> store([{"seed": 0}, {"seed": 1}], [{"error": ""}] * 2, "doctest_lost")
    >>> lost([{"seed": 0}], [""], "doctest_lost"), lost([{"seed": s} for s in range(3)], [""] * 3, "doctest_lost")
    ('1 of its 2 runs', '')
    """
    try:
        stored = pd.read_csv(paths.output() / "results" / f"{name}.csv", dtype=str, keep_default_na=False)
    except (OSError, ValueError):  # absent or damaged: nothing that could be lost
        return ""
    columns = list(dict.fromkeys(k for row in grid for k in row))
    had = {tuple(row.get(c, "") for c in columns): not row.get("error") for row in stored.to_dict("records")}
    new = {tuple(text(row.get(c)) for c in columns): not error for row, error in zip(grid, errors, strict=True)}
    known = set(stored.columns) >= set(columns) and len(had) == len(stored)  # else the grid has other parameters now
    gone = sum(not new.get(key, whole) for key, well in had.items() if well)
    if not known:
        gone = sum(map(bool, errors)) if whole else len(stored)
    return f"{gone} of its {len(stored)} runs" if gone else ""


def replay(grid: list[dict], name: str) -> pd.DataFrame:
    """The rows of ``grid`` from the stored csv, in its order, parameters typed as the grid gives them.

    >>> store([{"seed": 0}, {"seed": 1}], [{"score": .5, "error": ""}] * 2, "doctest_replay")
    >>> replay([{"seed": 1}], "doctest_replay").to_dict("records")
    [{'seed': 1, 'score': 0.5, 'error': ''}]
    """
    hint = f"run it with recompute=True (make reproduce trains every study) to make results/{name}.csv"
    if not file(name).exists():
        raise FileNotFoundError(f"the study {name!r} has no stored results: {hint}")
    try:
        stored = pd.read_csv(file(name), dtype=str, keep_default_na=False)
    except ValueError as error:
        raise ValueError(f"results/{name}.csv is damaged ({' '.join(str(error).split())}): restore it with git, or "
                         f"{hint}") from None
    columns = list(dict.fromkeys(k for row in grid for k in row))
    if missing := [c for c in columns if c not in stored]:
        raise KeyError(f"results/{name}.csv has no column {missing}: the grid has changed since; {hint}")
    place = {key: i for i, key in enumerate(stored[columns].itertuples(index=False, name=None))}
    wanted = [tuple(text(row.get(c)) for c in columns) for row in grid]
    if lacking := [row for row, key in zip(grid, wanted, strict=True) if key not in place]:
        raise KeyError(f"results/{name}.csv lacks {len(lacking)} of the grid's {len(grid)} rows, "
                       f"such as {lacking[0]}: {hint}")
    chosen = stored.iloc[[place[key] for key in wanted]].drop(columns=columns).to_csv(index=False)
    scores = pd.read_csv(io.StringIO(chosen), keep_default_na=False, na_values=[""], dtype={"error": str})
    scores["error"] = scores["error"].fillna("")
    params = pd.DataFrame([{c: cell(row.get(c)) for c in columns} for row in grid])
    return pd.concat([params, scores], axis=1)


def find(frame: pd.DataFrame, params: dict) -> pd.Series:
    """The one row of ``frame`` with these parameters."""
    if absent := [k for k in params if k not in frame]:
        raise KeyError(f"the frame has no column {absent}: the parameters are {sorted(frame)}")
    where = np.ones(len(frame), dtype=bool)
    for key, value in params.items():
        where &= (frame[key].map(text) == text(value)).to_numpy(dtype=bool)
    if where.sum() != 1:
        raise ValueError(f"{where.sum()} stored rows match {params}, expected one: give all parameters")
    return frame[where].iloc[0]


def plain(value, key: str):
    """JSON's own types, from numpy's too; NaN and infinity stay floats.

    >>> plain(np.arange(3), "k"), plain(np.float32(.5), "k")
    ([0, 1, 2], 0.5)
    """
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError) as error:
        raise TypeError(f"{key!r} is a {type(value).__name__}: parameters and scores must be numbers, text, "
                        "or lists and dicts of these") from error


def cell(value):
    """A value as a frame holds it: lists and dicts are JSON text.

    >>> cell([1, 2]), cell(3)
    ('[1, 2]', 3)
    """
    return json.dumps(value) if isinstance(value, list | dict) else value


def text(value) -> str:
    """The text that the csv holds for a parameter, the same for ``1``, ``1.0`` and numpy's ``1``.

    >>> text(1.0), text(.003), text(None), text([1, "a"])
    ('1', '0.003', '', '[1, "a"]')
    """
    value = cell(value.item() if isinstance(value, np.generic) else value)
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return ""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    return str(value)


def describe(params: dict) -> str:
    """A row in words.

    >>> describe({"data": "Syn4", "method": "bifkit (local)", "seed": 0})
    'Syn4 / bifkit (local) / seed 0'
    """
    return " / ".join(v if isinstance(v, str) else f"{k} {text(v)}" for k, v in params.items())


def file(name: str) -> Path:
    """Where a study's rows are stored, or read from."""
    return paths.results(name) / f"{name}.csv"


def shown(name: str) -> str:
    """The name of that file as a reader finds it."""
    return str(file(name).relative_to(paths.output()))
