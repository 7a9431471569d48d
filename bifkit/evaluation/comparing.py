"""Are two explanations different, or would a refit have differed as much?

A distance between two posteriors is never zero: a new g, or new rows, move the importances by themselves. Refits on
both sides say how far. If it made no difference which side a refit is of, any other split of all refits into two sides
would do as well; the p-value is the share of splits whose sides lie as far apart as the two at hand.
"""

import itertools
import math
from dataclasses import dataclass
from html import escape

import numpy as np
import pandas as pd
from scipy import special

from bifkit import dirichlet
from bifkit.evaluation.metrics import top_k_mask
from bifkit.inputs import warn
from bifkit.sharing import ROWS, short

EXACT = 10_000  # splits up to which all are gone through
CHUNK = 4_000_000  # numbers held at a time
SHOWN = {"a": "{:.3f}", "b": "{:.3f}", "difference": "{:+.3f}", "lower": "{:+.3f}", "upper": "{:+.3f}",
         "p_adjusted": "{:.2g}"}


@dataclass(frozen=True, repr=False)
class Comparison:
    """How far two explanations lie apart, and whether chance explains it; :func:`compare` makes it.

    Of local explanations the numbers are means over the rows.
    """

    total_variation: float  # the part of the importance that changed hands, 0 to 1: half the sum of |differences|
    jensen_shannon: float  # distance in base 2, 0 to 1; it weighs changes among small importances more
    kl: tuple[float, float]  # KL(a || b), KL(b || a) in nats; NaN after a calibration per feature (no closed form)
    n: tuple[int, int]  # posteriors on each side
    features: pd.DataFrame  # one row per feature, see to_frame
    rows: pd.DataFrame | None = None  # local: the distances of each row, and whether its top k changed
    interval: tuple[float, float] | None = None  # of total_variation; without refits None, as the p-value
    p_value: float | None = None
    splits: int = 0  # that the p-value rests on
    exact: bool = False  # are those all splits?
    prob: float = 0.95  # of the intervals
    k: int = 1

    @property
    def top_changed(self) -> float | None:
        """Share of the rows whose k most important features are not the same ones; None if global."""
        return None if self.rows is None else float(self.rows["top_changed"].mean())

    def to_frame(self) -> pd.DataFrame:
        """Global: one row per feature, the largest difference first. Local: one row per instance.

        Columns of a feature: its mean importance on side ``a`` and ``b``, the ``difference`` b - a and, with refits,
        its bootstrap interval ``lower`` to ``upper``, ``p_value`` and ``p_adjusted`` (Benjamini and Hochberg: of the
        features with p_adjusted < .05, one in twenty is expected to be false). Local comparisons have that table, of
        importances averaged over the rows, in ``features``.
        """
        return self.features if self.rows is None else self.rows

    def plot(self, ax=None, **kw):
        """Draw the differences with their intervals, by :func:`bifkit.plots.differences`; returns the Axes."""
        from bifkit import plots

        return plots.differences(self, ax=ax, **kw)

    def _lines(self):
        """What there is to say above the table, line by line."""
        which = "two posteriors" if self.p_value is None else f"{self.n[0]} and {self.n[1]} refits"
        rows = "" if self.rows is None else f", {len(self.rows)} rows averaged"
        within = "" if self.interval is None else \
            f" ({100 * self.prob:g}% interval {self.interval[0]:.3f} to {self.interval[1]:.3f})"
        lines = [f"Comparison of {which}, {len(self.features)} features{rows}",
                 f"total variation {self.total_variation:.3f}{within}, Jensen-Shannon distance "
                 f"{self.jensen_shannon:.3f}" + (
                     f", KL {self.kl[0]:.3g} and {self.kl[1]:.3g} nats" if np.isfinite(self.kl).all() else "")]
        if self.rows is not None:
            lines.append(f"top {self.k} changed in {self.top_changed:.0%} of the rows")
        if self.p_value is None:
            return [*lines, "chance cannot be judged without refits: give a list of them on each side (bifkit.refits)"]
        least = (2 if self.n[0] == self.n[1] else 1) / self.splits  # sides of equal size may change their names
        few = ""
        if self.exact and least >= 0.05:
            few = "; so few refits never give less than .05"
        elif self.exact and least * len(self.features) >= 0.05:
            few = "; so few refits cannot tell a single feature among so many: make more"
        return [*lines, f"p = {self.p_value:.2g} ({'all' if self.exact else 'sampled'} {self.splits} splits{few})"]

    def _cells(self):
        """The largest differences as text, and how many features there are besides."""
        shown = self.features.head(ROWS)
        columns = {c: [form.format(v) for v in shown[c]] for c, form in SHOWN.items() if c in shown}
        return pd.DataFrame(columns, index=pd.Index(short(shown.index, 60), name="feature")), len(self.features) - ROWS

    def __repr__(self):
        table, more = self._cells()
        return "\n".join([*self._lines(), table.to_string(), *([f"... and {more} more"] if more > 0 else [])])

    def _repr_html_(self):
        table, more = self._cells()
        head = "".join(f"<th>{column}</th>" for column in table)
        body = "".join(f"<tr><td style='text-align:left'>{escape(name)}</td>{''.join(f'<td>{v}</td>' for v in row)}"
                       "</tr>" for name, row in zip(table.index, table.to_numpy(), strict=True))
        tail = f"<tr><td colspan='7' style='text-align:left'>and {more} more</td></tr>" if more > 0 else ""
        return (f"<table><caption>{'<br>'.join(map(escape, self._lines()))}</caption><tr>"
                f"<th style='text-align:left'>feature</th>{head}</tr>{body}{tail}</table>")


def compare(a, b, *, paired=False, k=1, prob=0.95, draws=9999, resamples=2000, seed=0) -> Comparison:
    """Are two explanations different? Distances and, with refits on both sides, whether chance explains them.

    The statistic is the total variation between the mean importances, averaged over the refits of each side first;
    local explanations are compared row by row, and their distances averaged over the rows. The KL is that between the
    Dirichlets (section 4.4), of lists between those of the averaged alphas, as the paper has it.

    *The p-value* is the share of splits of all refits into two sides that lie at least as far apart: of all splits,
    where there are at most 10,000, else (1 + hits) / (1 + draws) of random ones. It asks whether the two ways of making
    refits differ. If all refits of a side share what the other side's lack, such as their data set, then so does the
    answer: bootstraps of two samples from one population do differ.

    *The intervals* are percentiles over refits drawn anew with replacement within each side: where the distance, or a
    difference, of as many other refits would lie. With ten refits they are somewhat narrow. A distance is never below
    zero and chance only adds to it, so its interval lies high and does not hold 0 even where the sides are alike: that
    is what the p-value is for.

    >>> from bifkit import Posterior
    >>> rng = np.random.default_rng(0)
    >>> a, b = ([Posterior(rng.gamma([60, 30, more]), ["age", "pay", "sex"]) for _ in range(6)] for more in (10, 30))
    >>> found = compare(a, b)
    >>> found.p_value < 0.05, found.to_frame().index[0], compare(a, a).p_value
    (True, 'sex', 1.0)

    Parameters
    ----------
    a, b : Posterior, or list of Posterior
        One on each side, or two or more refits on each (ten are a good number), each with a newly trained g:
        :func:`bifkit.refits`. The same features; local ones the same rows.
    paired : bool, default False
        Refit i of a and refit i of b have rows and seed in common: only these two change sides. Sharper where what
        they have in common moves the importances.
    k : int, default 1
        Local: the top k of a row is compared.
    prob : float, default 0.95
        Probability of the intervals.
    draws, resamples : int, default 9999 and 2000
        Random splits, where there are too many for all; resamples of the bootstrap.
    seed : int, default 0
        Fixes both.

    Returns
    -------
    Comparison
        ``total_variation``, ``jensen_shannon``, ``kl``, ``interval``, ``p_value``, ``to_frame()``, ``plot()``.
    """
    sides, (first, second) = (_side(a, "a"), _side(b, "b")), (hasattr(a, "alpha"), hasattr(b, "alpha"))
    if first != second:
        raise ValueError("one side is a single posterior, the other a list of refits: give one on each, or lists")
    if paired and (first or len(sides[0]) != len(sides[1])):
        raise ValueError("paired=True needs lists of equal length, refit i of a made like refit i of b; got "
                         f"{len(sides[0])} and {len(sides[1])} posteriors")
    if not (first or paired or a is b):
        _warn_common(*sides)
    for name, value in (("draws", draws), ("resamples", resamples)):
        if not (isinstance(value, int | np.integer) and value >= 1):
            raise ValueError(f"{name} must be a whole number of at least 1; got {value!r}")
    if not 0 < prob < 1:
        raise ValueError(f"prob must lie strictly between 0 and 1; got {prob}")
    one, n, alphas = sides[0][0], (len(sides[0]), len(sides[1])), _alphas(*sides)
    if not 1 <= k <= alphas.shape[-1]:
        raise ValueError(f"k must lie between 1 and the number of features, {alphas.shape[-1]}; got {k}")
    means = alphas / alphas.sum(-1, keepdims=True)  # (n, N, D), N = 1 if global
    p, q = means[:n[0]].mean(0), means[n[0]:].mean(0)
    calibrated = any(np.any(np.asarray(post.temperature) != 1) for side in sides for post in side)
    x, y = alphas[:n[0]].mean(0), alphas[n[0]:].mean(0)
    nothing = np.full(len(p), np.nan)
    rows = pd.DataFrame({"total_variation": np.abs(p - q).sum(-1) / 2, "jensen_shannon": _jensen_shannon(p, q),
                         "kl_ab": nothing if calibrated else dirichlet.kl(x, y),
                         "kl_ba": nothing if calibrated else dirichlet.kl(y, x),
                         "top_changed": (top_k_mask(p, k) != top_k_mask(q, k)).any(-1)}, index=one.index)
    features = pd.DataFrame({"a": p.mean(0), "b": q.mean(0), "difference": (q - p).mean(0)},
                            index=pd.Index(one.feature_names, name="feature"))
    mean, chance = rows.mean(), {}
    if not first:
        chance, more = _chance(means, n, paired, prob, draws, resamples, seed)
        features = features.assign(**more)
    order = np.argsort(-features["difference"].abs().to_numpy(), kind="stable")
    return Comparison(float(mean["total_variation"]), float(mean["jensen_shannon"]),
                      (float(mean["kl_ab"]), float(mean["kl_ba"])), n, features.iloc[order],
                      rows if one.is_local else None, prob=prob, k=int(k), **chance)


def _chance(means, n, paired, prob, draws, resamples, seed):
    """Interval and p-value of the distance, and the columns of the features that need refits."""
    from scipy.stats import false_discovery_control  # slow to import

    rng = np.random.default_rng(seed)
    split, exact = _splits(n, paired, draws, rng)
    (distance,), (difference,) = _apart(_weights(n), means)
    distances, differences = _apart(split, means)
    close = 1e-9  # a split that is as far apart, but for rounding
    extra = 0 if exact else 1
    p_value = (extra + (distances >= distance * (1 - close) - 1e-14).sum()) / (extra + len(split))
    far = np.abs(differences) >= np.abs(difference) * (1 - close) - 1e-14
    p_values = (extra + far.sum(0)) / (extra + len(split))
    counts = [rng.multinomial(m, np.full(m, 1 / m), size=resamples) / m for m in n]
    drawn, moved = _apart(np.hstack([-counts[0], counts[0] if paired else counts[1]]), means)
    tails = [(1 - prob) / 2, (1 + prob) / 2]
    low, high = np.quantile(drawn, tails)
    lower, upper = np.quantile(moved, tails, axis=0)
    return ({"interval": (float(low), float(high)), "p_value": float(p_value), "splits": len(split), "exact": exact},
            {"lower": lower, "upper": upper, "p_value": p_values,
             "p_adjusted": false_discovery_control(p_values)})


def _weights(n):
    """(1, n): with these the refits add up to the difference of the two means, b - a."""
    return np.repeat([-1 / n[0], 1 / n[1]], n)[None]


def _splits(n, paired, draws, rng):
    """Weights of all splits of the refits into two sides, or of some drawn at random; and whether they are all."""
    total = sum(n)
    if paired:
        exact = 2 ** n[0] <= EXACT
        signs = np.array(list(itertools.product([1, -1], repeat=n[0]))) if exact else \
            rng.choice([1, -1], size=(draws, n[0]))
        return np.hstack([signs, signs]) * _weights(n), exact
    if exact := math.comb(total, n[0]) <= EXACT:
        chosen = np.array(list(itertools.combinations(range(total), n[0])))
    else:
        chosen = rng.permuted(np.tile(np.arange(total), (draws, 1)), axis=1)[:, :n[0]]
    weights = np.full((len(chosen), total), 1 / n[1])
    np.put_along_axis(weights, chosen, -1 / n[0], axis=1)
    return weights, exact


def _apart(weights, means):
    """For each row of weights (B, n): the distance (B,) and the features' differences (B, D), averaged over rows."""
    size = max(CHUNK // means[0].size, 1)
    found = []
    for i in range(0, len(weights), size):
        moved = np.tensordot(weights[i:i + size], means, 1)  # (B, N, D)
        found.append((np.abs(moved).sum(-1).mean(-1) / 2, moved.mean(1)))
    distances, differences = zip(*found, strict=True)
    return np.concatenate(distances), np.concatenate(differences)


def _jensen_shannon(p, q):
    """Distance of each row, base 2."""
    m = (p + q) / 2
    divergence = (special.rel_entr(p, m) + special.rel_entr(q, m)).sum(-1) / 2
    return np.sqrt(np.clip(divergence / np.log(2), 0, 1))


def _side(side, name):
    """The posteriors of one side, or an error that says what is wrong with them."""
    if hasattr(side, "alpha"):
        return [side]
    if isinstance(side, str | dict) or not hasattr(side, "__iter__"):
        raise TypeError(f"{name} must be a Posterior or a list of them; got a {type(side).__name__}")
    side = list(side)
    for p in side:
        if not (hasattr(p, "alpha") and hasattr(p, "feature_names")):
            raise TypeError(f"{name} must hold posteriors, as explain() gives them; got a {type(p).__name__}")
    if len(side) < 2:
        raise ValueError(f"{name} is a list of {len(side)}: chance is judged by two or more refits on each side, "
                         "better ten; for the distance alone give the posteriors themselves, not lists")
    if len({p.alpha.tobytes() for p in side}) < len(side):
        warn(f"{name} holds the same posterior more than once: refits need a newly trained g each, else the p-value "
             "means nothing")
    return side


def _warn_common(a, b):
    """Warn where the sides share refits."""
    if common := len({p.alpha.tobytes() for p in a} & {p.alpha.tobytes() for p in b}):
        warn(f"a and b have {common} posteriors in common, as two calls of refits with one seed do: the p-value takes "
             "them for independent; give one call another seed=")


def _alphas(a, b):
    """alpha of all refits, (n, N, D), with the features in the order of the first."""
    one, found = a[0], []
    for name, p in [*(("a", p) for p in a), *(("b", p) for p in b)]:
        if p.is_local != one.is_local:
            raise ValueError("a local explanation (one per row) cannot be compared with a global one: "
                             "to_global() averages a local one over its rows")
        odd = sorted(set(p.feature_names) ^ set(one.feature_names))
        if odd:
            raise ValueError(f"a posterior of {name} is not over the features of the first: {', '.join(odd[:4])}"
                             f"{', ...' if len(odd) > 4 else ''} in one only")
        if len(p) != len(one):
            raise ValueError(f"a posterior of {name} has {len(p)} rows, the first {len(one)}: explain the same rows")
        if one.is_local and not p.index.equals(one.index) and not any(
                q.index.equals(pd.RangeIndex(len(q))) for q in (p, one)):  # rows that were only numbered fit any labels
            raise ValueError(f"a posterior of {name} has other row labels than the first: explain the same rows, in "
                             "the same order")
        alpha = np.atleast_2d(p.alpha)[:, [p.feature_names.index(f) for f in one.feature_names]]
        if not (np.isfinite(alpha) & (alpha > 0)).all():
            raise ValueError(f"a posterior of {name} holds NaN or values that are not positive")
        found.append(alpha)
    return np.stack(found)
