"""When a claim about a handful of seeds holds, does not hold, or cannot be decided. (docs/claims.md)

The privacy and fairness studies have twenty seeds and rules of their own (``experiments/divergence.py``). Tables 1 and
2 and MNIST have five, too few to resample; there these rules apply, the same for every claim and every variant of BIF:

* A claim is made of one or several *parts*. A part is one number per seed, such as the difference of two methods on
  the same data and models, and the region in which the claim says that its mean lies: above zero, above 10, within
  5 of zero. Of a claim about spread it is the standard deviation that has to lie there.
* The *interval* is 95 %: Student's t over the seeds for a mean, chi-square for a standard deviation.
* A part *holds* if its whole interval lies in the region, *does not hold* if it lies wholly outside, and else *cannot
  be decided*. Equal in every seed is not "ahead". One seed alone decides nothing.
* *All of* several parts ("on each data set", "at every k"): holds if every part does; does not hold if one of them does
  not, by an interval widened for the number of parts (Bonferroni).
* *Any of* several parts ("sometimes", "may"): holds if one part does, by the widened interval; does not hold if none
  does.
* A statement about single runs that has no size (such as the same three features): four of five, one of five
  (``divergence.decide_counts``).
* What no stored run can answer *cannot be decided*, with the reason.

Where the best of several methods stands for them all, it is chosen by its mean on the same runs, which favours it by a
part of its own scatter: a reader's "best", as bold print has it, not an estimate of what it would reach on new seeds.
"""

import json
import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from experiments.divergence import FAILS, HOLDS, OPEN, decide_counts
from experiments.runner import rows
from experiments.runner.rows import finished

LEVEL = 0.05
RIVALS = ("L2X", "INVASE", "SHAP", "LIME")  # the existing methods, in the paper's tables
COLUMNS = ["claim", "where", "measured", "verdict", "notebook"]


@dataclass(frozen=True)
class Part:
    """One number per seed, and where their mean (or standard deviation) has to lie: above ``low``, at most ``high``.

    Parameters
    ----------
    name : str
        What it is, for the reader: "Syn4 over L2X".
    values : sequence of float
        One per seed; missing ones are left out.
    low, high : float, default 0 and infinity
        The region of the claim.
    spread : bool, default False
        The standard deviation counts instead of the mean.

    Examples
    --------
    >>> Part("ahead", [1.0, 1.2, 0.9, 1.1, 1.0]).verdict(), Part("ahead", [0.0] * 5).verdict()
    ('holds', 'does not hold')
    >>> Part("ahead by 10", [9.0, 12.0, 10.0], low=10).verdict()
    'cannot be decided'
    """

    name: str
    values: object
    low: float = 0.0
    high: float = math.inf
    spread: bool = False

    def interval(self, level=LEVEL) -> tuple:
        """(mean or standard deviation, low end, high end); ends are NaN with fewer than two seeds.

        >>> [round(v, 2) for v in Part("", [1.0, 2.0, 3.0]).interval()]
        [2.0, -0.48, 4.48]
        """
        values = np.asarray(self.values, float)
        values = values[np.isfinite(values)]
        n = len(values)
        if n < 2:
            return float(values.mean()) if n else math.nan, math.nan, math.nan
        mean, sd = values.mean(), values.std(ddof=1)
        if np.ptp(values) < 1e-9:  # the same in every seed: rounding is no spread
            sd = 0.0
        if self.spread:
            ends = sd * np.sqrt((n - 1) / stats.chi2.ppf([1 - level / 2, level / 2], n - 1))
            return float(sd), float(ends[0]), float(ends[1])
        half = stats.t.ppf(1 - level / 2, n - 1) * sd / math.sqrt(n)
        return float(mean), float(mean - half), float(mean + half)

    def verdict(self, level=LEVEL) -> str:
        """By the interval: inside the region, wholly outside, or neither."""
        _, low, high = self.interval(level)
        if low > self.low and high <= self.high:
            return HOLDS
        return FAILS if high <= self.low or low > self.high else OPEN

    def text(self, form="{:+.1f}") -> str:
        """Name, value and interval.

        >>> Part("Syn4", [1.0, 2.0, 3.0]).text()
        'Syn4 +2.0 (-0.5 to +4.5)'
        """
        value, low, high = (form.format(v + 0.0) for v in self.interval())
        return f"{self.name} {value} ({low} to {high})".strip()


def all_of(parts) -> str:
    """The verdict on a claim whose every part has to hold.

    >>> good, bad = Part("a", [1.0, 1.1, 0.9]), Part("b", [-1.0, -1.1, -1.0])
    >>> all_of([good, good]), all_of([good, bad]), all_of([])
    ('holds', 'does not hold', 'cannot be decided')
    """
    if parts and all(p.verdict() == HOLDS for p in parts):
        return HOLDS
    return FAILS if any(p.verdict(LEVEL / len(parts)) == FAILS for p in parts) else OPEN


def any_of(parts) -> str:
    """The verdict on a claim that holds if one part does.

    >>> good, bad = Part("a", [1.0, 1.01, 0.99]), Part("b", [-1.0, -1.1, -1.0])
    >>> any_of([good, bad]), any_of([bad, bad]), any_of([])
    ('holds', 'does not hold', 'cannot be decided')
    """
    if any(p.verdict(LEVEL / len(parts)) == HOLDS for p in parts):
        return HOLDS
    return FAILS if parts and all(p.verdict() == FAILS for p in parts) else OPEN


def both(*verdicts) -> str:
    """The verdict on a claim that says several things at once.

    >>> both(HOLDS, HOLDS), both(HOLDS, OPEN), both(OPEN, FAILS)
    ('holds', 'cannot be decided', 'does not hold')
    """
    return FAILS if FAILS in verdicts else HOLDS if verdicts and set(verdicts) == {HOLDS} else OPEN


def decide_seeds(count, of) -> str:
    """``divergence.decide_counts``, but one seed alone decides nothing.

    >>> decide_seeds(4, 5), decide_seeds(1, 5), decide_seeds(1, 1)
    ('holds', 'does not hold', 'cannot be decided')
    """
    return decide_counts(count, of) if of > 1 else OPEN


def measured(parts, form="{:+.1f}", most=6) -> str:
    """What was measured, in words: every part, or of many the nearest to failing and how the others stand.

    >>> measured([Part("Syn4", [1.0, 2.0, 3.0]), Part("Syn5", [4.0, 5.0, 6.0])])
    'Syn4 +2.0 (-0.5 to +4.5); Syn5 +5.0 (+2.5 to +7.5)'
    """
    if not parts:
        return "not run"
    seeds = {np.isfinite(np.asarray(p.values, float)).sum() for p in parts}
    few = "" if max(seeds) > 1 else "; one seed"
    if len(parts) <= most:
        return "; ".join(p.text(form) for p in parts) + few
    words = [p.verdict() for p in parts]
    stand = ", ".join(f"{words.count(w)} {name}" for w, name in
                      ((HOLDS, "hold"), (FAILS, "do not"), (OPEN, "cannot be decided")) if w in words)
    least = min(parts, key=lambda p: -p.interval()[0] if p.spread or math.isfinite(p.high) else p.interval()[0])
    return f"of {len(parts)} comparisons {stand}; furthest from the claim: {least.text(form)}{few}"


def frame_of(lines, notebook) -> pd.DataFrame:
    """Claims as the studies' reports have them: lines of (claim, where, measured, verdict).

    >>> frame_of([("c", "w", "m", OPEN)], "01_synthetic").columns.tolist()
    ['claim', 'where', 'measured', 'verdict', 'notebook']
    """
    return pd.DataFrame(lines, columns=COLUMNS[:4]).assign(notebook=notebook)


def stored(name):
    """The rows of a study that may not have been run: a frame, or None."""
    return pd.read_csv(rows.file(name)) if rows.file(name).exists() else None


def values_of(frame, column) -> dict:
    """{(method, data set): one value per seed} of the runs that ended well; text is read as a list.

    >>> runs = pd.DataFrame({"method": "BIF", "dataset": "Syn1", "seed": [0, 1], "mcc": [90.0, 80.0], "error": ""})
    >>> values_of(runs, "mcc")["BIF", "Syn1"].tolist()
    [90.0, 80.0]
    """
    runs = finished(frame)
    if column not in runs:
        return {}
    runs = runs[runs[column].notna()].set_index("seed")[["method", "dataset", column]].sort_index()
    kept = runs[column]
    if not pd.api.types.is_numeric_dtype(kept):
        kept = kept.map(lambda v: np.array(json.loads(v) if isinstance(v, str) else v, float)).astype(object)
    return dict(iter(kept.groupby([runs["method"].to_numpy(), runs["dataset"].to_numpy()])))


def best(values, methods, dataset):
    """The name among ``methods`` with the best mean on a data set; None if none was run there."""
    there = {m: values[m, dataset].mean() for m in methods if (m, dataset) in values}
    return max(there, key=there.get) if there else None


def ahead(values, own, datasets, margin=0.0, rivals=RIVALS) -> list:
    """One part for every data set and rival: how far the best of ``own`` is ahead."""
    return [Part(f"{d} over {r}", values[mine, d] - values[r, d], low=margin) for d in datasets
            if (mine := best(values, own, d)) for r in rivals if (r, d) in values]


def edge(values, own, datasets, rivals=RIVALS):
    """One number per seed: the best of ``own`` minus the best rival, averaged over the data sets."""
    return sum(values[best(values, own, d), d] - values[best(values, rivals, d), d] for d in datasets) / len(datasets)
