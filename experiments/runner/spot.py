"""A stored run, trained again here and now: does it still give what its row says?

*What is compared* is one column of the row, or several: a number, or the numbers of a list or dict (an alpha, say),
entry by entry. Two runs differ by the largest difference of their entries.

*How far apart they may be*: a tenth of the column's range, which is its largest minus its smallest number over the
comparable rows. Those are all finished rows of the study or, with ``within``, those that share the run's value of that
column: its method, say (the range is then what this method gives on all data sets and seeds), or its data set.

Training amplifies the last digits, in which CPUs differ. ``results/capabilities.csv`` holds how far a checked run moves
when torch computes with the instructions of older CPUs (``python -m experiments.spots`` measures it). Three times that
is allowed where it is more than a tenth of the range; where it is more than a fifth, the column is no use as a guard,
and the check says so. A run without a line in that file is allowed a tenth of the range.
"""

import json
import os

import numpy as np
import pandas as pd

from experiments.runner import rows
from experiments.runner.rows import NOT_RUN
from experiments.runner.study import _absent, _key, _measured, _words, full_name


def spot_check(function, params, frame, *, score, within=None) -> str:
    """Train one stored run again and assert that it agrees with its row.

    It is skipped where the data set is absent, and within ``make reproduce``, which has just trained the row.

    Parameters
    ----------
    function : callable
        The study's run.
    params : dict
        The parameters of one run.
    frame : DataFrame
        The study's rows, as ``study.run`` returns them.
    score : str or list of str
        The column to compare, or several of them; numbers, or lists and dicts of these.
    within : str, optional
        The comparable rows share the run's value of this column; without it they are all rows.

    Returns
    -------
    str
        That the live run agrees with the stored row, or that it was skipped and why.

    Examples
    --------
    >>> from experiments.runner.study import run, toy
    >>> grid = [{"seed": seed, "size": 3} for seed in (0, 1)]
    >>> frame = run(toy, grid, name="doctest_spot", recompute=True, workers=1)
    >>> spot_check(toy, grid[0], frame, score="mean")
    'spot check seed 0 / size 3: the live run agrees with the stored row'
    """
    what, stored = f"spot check {rows.describe(params)}", rows.find(frame, params)
    if stored["error"].startswith(NOT_RUN):
        return f"{what}: skipped: the stored run was not run: {stored['error'].removeprefix(NOT_RUN)}"
    if stored["error"]:
        raise AssertionError(f"{what}: the stored run failed: {stored['error']}")
    if os.environ.get("BIF_RESUME"):
        return f"{what}: skipped: this command has just trained the stored row itself"
    scores = [score] if isinstance(score, str) else list(score)
    allowed = {s: tolerance(function, params, frame, score=s, within=within) for s in scores}
    try:
        live = _measured(function, _key(function, params, ""))
    except Exception as error:
        if not _absent(error):
            raise
        return f"{what}: skipped: {_words(error)}"
    for s, limit in allowed.items():
        gap = difference(live[s], stored[s])
        if not gap <= limit:  # NaN agrees with nothing
            raise AssertionError(f"{what}: {s} is {live[s]} live but {stored[s]} in the stored row, {gap:.3g} apart "
                                 f"where {limit:.3g} is allowed: recompute the study, or mend the code")
    return f"{what}: the live run agrees with the stored row"


def tolerance(function, params, frame, *, score, within=None) -> float:
    """How far the column ``score`` of one run may be from its stored value: see the top of this file.

    >>> frame = pd.DataFrame({"seed": [0, 1, 2], "mcc": [60.0, 90.0, None], "error": ""})
    >>> tolerance(json.dumps, {"seed": 0}, frame, score="mcc")
    3.0
    """
    whole = spread(params, frame, score=score, within=within)
    moved = 3 * capability_difference(function, params, score)
    if moved > whole / 5:
        raise ValueError(f"spot check {rows.describe(params)}: {score} is no guard: three times what the kind of CPU "
                         f"changes is {moved:.3g}, more than a fifth of its range, {whole:.3g}: compare another "
                         "column, or other rows (within=)")
    return max(whole / 10, moved)


def spread(params, frame, *, score, within=None) -> float:
    """The range of a column over the comparable rows: its largest number minus its smallest.

    >>> frame = pd.DataFrame({"dataset": ["A", "A", "B"], "alpha": ["[1, 2]", "[5, 3]", "[99, 0]"], "error": ""})
    >>> spread({"dataset": "A"}, frame, score="alpha", within="dataset"), spread({}, frame, score="alpha")
    (4.0, 99.0)
    """
    found = rows.finished(frame)
    if within:
        found = found[found[within].map(rows.text) == rows.text(params[within])]
    values = np.array([number for value in found[score].dropna() for number in numbers(value)])
    values = values[np.isfinite(values)]
    return float(np.ptp(values)) if len(values) else 0.0


def capability_difference(function, params, score) -> float:
    """How far a run was moved by the kind of CPU, from ``results/capabilities.csv``; 0 where that has no line of it.

    >>> capability_difference(json.dumps, {"seed": 0}, "mcc")
    0.0
    """
    file = rows.file("capabilities")
    if not file.exists():
        return 0.0
    table = pd.read_csv(file)
    found = table[(table["function"] == full_name(function)) & (table["run"] == rows.describe(params))
                  & (table["score"] == score)]
    return float(found["difference"].max()) if len(found) else 0.0


def difference(a, b) -> float:
    """The largest difference between the entries of two values; infinite if they have not the same number of them.

    >>> difference([1, 2.5], "[1, 2]"), difference({"a": [1]}, {"a": [1, 2]}), difference(float("nan"), 1)
    (0.5, inf, nan)
    """
    a, b = np.array(numbers(a)), np.array(numbers(b))
    return float(np.abs(a - b).max()) if len(a) == len(b) > 0 else np.inf


def numbers(value) -> list[float]:
    """The numbers of a value as a row holds it: one, or those of lists and dicts, also as JSON text.

    >>> numbers(3), numbers('{"a": [1, 2], "b": 3}'), numbers(None)
    ([3.0], [1.0, 2.0, 3.0], [nan])
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise ValueError(f"a spot check compares numbers, or lists and dicts of them; got {value[:40]!r}: "
                             "compare another column") from None
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [number for entry in value for number in numbers(entry)]
    return [np.nan if value is None else float(value)]
