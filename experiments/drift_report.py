"""Tables and the figure of the drift study: how often each method raises an alarm, with and without a reason to.

An alarm of ``bifkit.compare`` is p < .05 of the distance (*distance*), or a feature whose adjusted p-value is below .05
(*a feature*): under the hypothesis that nothing differs each of the two happens in at most 5 % of comparisons.
"""

import itertools
import json

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.stats import binomtest

from bifkit import Posterior, compare
from bifkit.plots import BLUE, GREEN, GREY, ORANGE
from experiments.drift import CHANGES
from experiments.runner.rows import finished

DRAWS = 200
PARTS = "compare, ten refits each"
METHODS = {  # name: (where its p-values or values are, the column, an alarm)
    f"{PARTS}: distance": ("compare", "distance", lambda p: p < 0.05),
    f"{PARTS}: a feature": ("compare", "feature", lambda p: p < 0.05),
    "the same on integrated gradients: distance": ("compare", "distance of sizes", lambda p: p < 0.05),
    "the same on integrated gradients: a feature": ("compare", "feature of sizes", lambda p: p < 0.05),
    "two-sample test on SHAP values, old g": ("rivals", "p_shap_kept", lambda p: p < 0.05),
    "two-sample test on SHAP values, each its g": ("rivals", "p_shap_new", lambda p: p < 0.05),
    "PSI of a column above .2": ("rivals", "psi", lambda v: v > 0.2),
    "PSI of a column, permutation test": ("rivals", "p_psi", lambda p: p < 0.05),
    "PSI of the scores above .2, old g": ("rivals", "psi_scores_kept", lambda v: v > 0.2),
    "PSI of the scores above .2, each its g": ("rivals", "psi_scores_new", lambda v: v > 0.2),
}


def sides(frame, part, what, column="alphas") -> dict:
    """{seed: list of posteriors} of some runs, in the order of the seeds."""
    rows = finished(frame)
    rows = rows[(rows["part"] == part) & (rows["what"] == what)].sort_values("seed")
    return {seed: [Posterior(np.array(v) + 1e-9) for v in json.loads(text)]
            for seed, text in zip(rows["seed"], rows.get(column, []), strict=False) if isinstance(text, str)}


def p_values(a, b, *, paired=False, draws=4999) -> tuple[float, float]:
    """Of the distance, and the smallest adjusted one of a feature."""
    found = compare(a, b, paired=paired, draws=draws, resamples=1)
    return found.p_value, float(found.features["p_adjusted"].min())


def rate(alarms) -> str:
    """Alarms among comparisons, in percent with the 95 % interval of Clopper and Pearson.

    >>> rate([True] + [False] * 19)
    '1 of 20: 5 % (0 to 25)'
    """
    k, n = int(np.sum(alarms)), len(alarms)
    if not n:
        return "-"
    low, high = binomtest(k, n).proportion_ci(method="exact")
    return f"{k} of {n}: {100 * k / n:.0f} % ({100 * low:.0f} to {100 * high:.0f})"


def false_alarms(frame, seed=0) -> pd.DataFrame:
    """Alarms between calls of ``refits`` that differ in nothing: one row per data set and way to pair refits.

    *Any two calls*: every pair of calls is compared, so a call serves several times. *No call twice*: each serves once,
    so that comparisons are independent. *Drawn from all refits*: 200 random draws of two times ten refits of the pool;
    given the pool, a random draw is what the test itself permutes, so this rate is 5 % by construction whatever the
    refits are, and checks the arithmetic alone. ``Adult, own rows`` is the warning: its calls bootstrap samples that
    share no row, and *any two calls* differ by their samples.
    """
    rows = []
    for dataset in ("Syn2", "Adult", "Adult, own rows"):
        calls = list(sides(frame, "calls", dataset).values())
        pool, rng = [p for call in calls for p in call], np.random.default_rng(seed)
        n = len(calls[0]) if calls else 0
        drawn = [rng.permutation(len(pool))[:2 * n] for _ in range(DRAWS)] if len(calls) > 1 else []
        ways = {"any two calls": list(itertools.combinations(calls, 2)),
                "no call twice": list(zip(calls[::2], calls[1::2], strict=False))}
        if dataset != "Adult, own rows":
            ways["drawn from all refits"] = [([pool[i] for i in d[:n]], [pool[i] for i in d[n:]]) for d in drawn]
        for way, pairs in ways.items():
            p = np.array([p_values(a, b) for a, b in pairs]).reshape(-1, 2)
            if len(p):
                rows.append({"data": dataset, "refits": len(pool), "pairs": way, "distance": rate(p[:, 0] < 0.05),
                             "a feature": rate(p[:, 1] < 0.05), "mean p": round(float(p[:, 0].mean()), 2)})
    return pd.DataFrame(rows, columns=["data", "refits", "pairs", "distance", "a feature", "mean p"]).set_index(
        ["data", "refits", "pairs"])


def _drawn(reference, level, n, paired, rng):
    """n refits of each: of the same seeds if paired, else of seeds that no refit of the other side has."""
    seeds = rng.permutation(list(reference))
    other = seeds[:n] if paired else seeds[n:2 * n]
    return [reference[s] for s in seeds[:n]], [level[s] for s in other]


def power(frame, numbers=(5, 10), seed=0) -> pd.DataFrame:
    """How often 200 draws of n against n refits tell the level from its reference.

    Draws share the pool of seeds, so that the intervals, which take them for independent, are too narrow.
    """
    rows = []
    for what, name in (("private", "private, sigma 8.4"), ("fair", "fair, 57 %")):
        found = sides(frame, "levels", what)
        reference, level = ({s: pair[i] for s, pair in found.items()} for i in (0, 1))
        for n, paired in itertools.product(numbers, (False, True)):
            if n * (1 if paired else 2) > len(found):
                continue
            rng = np.random.default_rng(seed)
            p = np.array([p_values(*_drawn(reference, level, n, paired, rng), paired=paired) for _ in range(DRAWS)])
            rows.append({"level": name, "seeds": len(found), "refits": f"{n} and {n}{', paired' if paired else ''}",
                         "distance": rate(p[:, 0] < 0.05), "a feature": rate(p[:, 1] < 0.05),
                         "largest p": f"{p[:, 0].max():.2g}"})
    return pd.DataFrame(rows, columns=["level", "seeds", "refits", "distance", "a feature", "largest p"]).set_index(
        ["level", "seeds", "refits"])


def compared(frame, seed=0) -> pd.DataFrame:
    """p-values of ``compare``, ten parts before against the ten others after a change, 200 draws of which are which.

    Columns change, seed, distance, feature, and the same of the sizes. Draws share the refits of a dealing: under
    ``nothing`` the rate of alarms is 5 % by construction, as the parts were dealt at random.
    """
    rows = []
    pools = {c: {change: sides(frame, "parts", change, c) for change in CHANGES} for c in ("alphas", "sizes")}
    for change, dealings in pools["alphas"].items():
        rng = np.random.default_rng(seed)
        for draw in range(DRAWS if dealings else 0):
            dealing = list(dealings)[draw % len(dealings)]
            order = rng.permutation(len(dealings[dealing]))
            before, after = np.array_split(order, 2)
            p = {c: p_values([pool["nothing"][dealing][i] for i in before], [pool[change][dealing][i] for i in after])
                 for c, pool in pools.items()}
            rows.append({"change": change, "seed": draw, "distance": p["alphas"][0], "feature": p["alphas"][1],
                         "distance of sizes": p["sizes"][0], "feature of sizes": p["sizes"][1]})
    names = ["distance", "feature", "distance of sizes", "feature of sizes"]
    return pd.DataFrame(rows, columns=["change", "seed", *names])


def alarms(frame) -> pd.DataFrame:
    """One row per method, change and draw, or pair of windows: was there an alarm?"""
    judged = finished(frame)
    judged = judged[judged["part"] == "rivals"].rename(columns={"what": "change"})
    tables = {"compare": compared(frame), "rivals": judged}
    rows = [{"method": method, "change": change, "seed": seed, "alarm": bool(alarm(value))}
            for method, (table, column, alarm) in METHODS.items() if column in tables[table]
            for change, seed, value in zip(*(tables[table][c] for c in ("change", "seed", column)), strict=True)]
    return pd.DataFrame(rows, columns=["method", "change", "seed", "alarm"])


def drift_table(found) -> pd.DataFrame:
    """Of ``alarms``: how many percent of comparisons raise one, by method and change; ``nothing``: false alarms."""
    table = (100 * found.groupby(["method", "change"], sort=False)["alarm"].mean()).unstack()
    counts = found.groupby("method", sort=False)["seed"].nunique()
    table = table.reindex(index=list(counts.index), columns=[c for c in CHANGES if c in table])
    table = table.map(lambda v: "" if np.isnan(v) else f"{v:.0f}")
    table.insert(0, "comparisons", counts)
    return table


def accuracies(frame) -> pd.DataFrame:
    """Accuracy in percent of the old and the new g on held-out rows of the window before, mean over repeats."""
    rows = finished(frame)
    rows = rows[rows["part"] == "rivals"]
    if "accuracy_old" not in rows:
        return pd.DataFrame(columns=["old g", "new g", "standard error of the difference"])
    gap = rows["accuracy_new"] - rows["accuracy_old"]
    table = pd.DataFrame({"old g": rows["accuracy_old"], "new g": rows["accuracy_new"]}).groupby(rows["what"]).mean()
    table["standard error of the difference"] = gap.groupby(rows["what"]).sem()
    return (100 * table).reindex([c for c in CHANGES if c in table.index]).round(1)


def figure(found):
    """Of ``alarms``: each method's share, one panel per change; a 95 % interval where comparisons share no refit."""
    methods = list(dict.fromkeys(found["method"]))
    changes = [c for c in CHANGES if (found["change"] == c).any()]
    picture, panels = plt.subplots(1, max(len(changes), 1), figsize=(12, 0.32 * len(methods) + 1.2), sharey=True,
                                   layout="constrained", squeeze=False)
    for ax, change in zip(panels[0], changes, strict=False):
        for y, method in enumerate(methods):
            part = found[(found["change"] == change) & (found["method"] == method)]["alarm"]
            color = BLUE if method.startswith("compare") else ORANGE if "SHAP" in method else \
                GREEN if "PSI" in method else GREY
            if METHODS[method][0] == "rivals":
                ends = binomtest(int(part.sum()), len(part)).proportion_ci(method="exact")
                ax.plot(100 * np.array(ends), [y, y], color=color, lw=1.5, alpha=0.5, clip_on=False)
            ax.plot(100 * part.mean(), y, "o", color=color, ms=6, clip_on=False)
        ax.axvline(5, color="0.4", lw=0.8, ls=":")
        ax.set(xlim=(-4, 104), xticks=[5, 50, 100], title=change, xlabel="alarms in %")
        ax.grid(axis="x", alpha=0.3)
    panels[0, 0].set_yticks(range(len(methods)), methods)
    panels[0, 0].invert_yaxis()
    return picture
