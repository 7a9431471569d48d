"""Ablation: what is each choice of the preset ``rank`` worth? (notebook 07)

A run is a data set x change x seed: ``rank`` with one thing changed, fitted to the same data, the same g and with the
same random numbers as ``rank`` itself, so that differences are paired. Two groups of changes:

* gate x fill, all else as in ``rank``: what an importance does to an input, and what stands where the input fades;
* one at a time: draws, KL weight, prior, target, length of the schedule, restarts.

Score: MCC x 100 on the sets where methods differ, Syn3 to Syn6. The changes were not used to choose anything: the
settings of ``rank`` were chosen before, on seeds 100 and up.
"""


import numpy as np
import pandas as pd

from bifkit import LocalBIF, plots
from bifkit.evaluation import metrics
from bifkit.presets import FILLS, GATES, PRESETS
from data_prep.seeding import derive
from experiments.runner.rows import finished
from experiments.synthetic import prepared

DATASETS = ("Syn3", "Syn4", "Syn5", "Syn6")
SEEDS = (0, 1, 2)
BASE = "rank"
RANK = PRESETS[BASE].for_data(11, gain=1.0)  # the width of Syn1-6
ONE_AT_A_TIME = {
    "draws 2": {"draws": 2}, "draws 5": {"draws": 5},
    "fidelity absolute": {"fidelity": "absolute", "kl_weight": 0.003},  # in nats, with the weight that suits it best
    "KL weight 0": {"kl_weight": 0.0}, "KL weight 0.003": {"kl_weight": 0.003},
    "KL weight 0.03": {"kl_weight": 0.03}, "KL weight 0.1": {"kl_weight": 0.1},
    "prior 0.01": {"prior": 0.01}, "prior 1": {"prior": 1.0},
    "target labels": {"target": "labels"},
    "epochs 5": {"epochs": 5, "min_steps": 1}, "epochs 10": {"epochs": 10, "min_steps": 1}, "epochs 50": {"epochs": 50},
    "restarts 3": {"restarts": 3},
}
GATE_FILL = {f"{g}, {f}": {"gate": g, "fill": f} for g in GATES for f in FILLS if (g, f) != (RANK.gate, RANK.fill)}
CHANGES = {BASE: {}} | GATE_FILL | ONE_AT_A_TIME
WHY = {  # the default, and why it is what it is; the numbers beside it are computed
    "gate": f"{RANK.gate}: equal importances leave the input whole, so that features do not starve each other",
    "fill": f"{RANK.fill}: a faded input is still one that occurs; zero, the middle of the data, tells g something too",
    "draws": f"{RANK.draws}: a step's noise averages out over the steps; more draws cost more and gain nothing",
    "fidelity": f"{RANK.fidelity}: effects count in parts of what is still missing, so that one price serves "
                "strong and weak ones",
    "KL weight": f"{RANK.kl_weight:g}: without it the posterior grows oversure (sum of alpha above) and useless "
                 "features keep weight; more of it hides Syn3's weak features",
    "prior": f"{RANK.prior:g}: a compromise; a sparser one loses Syn3's weak features, a flat one keeps useless ones",
    "target": f"{RANK.target}: g's own prediction carries no label noise, and it is g that is explained",
    "epochs": f"{RANK.epochs}: shorter loses, longer does not gain",
    "restarts": f"{RANK.restarts}: the average of three fits is steadier, at three times the price; worth it where one "
                "bad fit matters",
}


def grid(profile="paper"):
    """The runs; at smoke size one set, one seed, few rows and a handful of changes."""
    rows, names, seeds, changes = 10_000, DATASETS, SEEDS, list(CHANGES)
    if profile == "smoke":
        rows, names, seeds = 1000, ("Syn4",), [0]
        changes = [BASE, "simplex, zero", "prior 0.01", "prior 1", "epochs 5"]
    return [{"dataset": d, "change": c, "seed": s, "rows": rows} for d in names for s in seeds for c in changes]


def run(*, dataset, change, seed, rows=10_000):
    """One row: MCC x 100 of ``rank`` with one change; ``passes`` are the rows that g has seen, in passes over the data.

    ``rank`` itself is the run of Table 1: the same stream of random numbers.
    """
    if change not in CHANGES:
        raise ValueError(f"change must be one of {', '.join(CHANGES)}; got {change!r}")
    data, g = prepared(dataset, seed, rows, "as_run")
    short = {"epochs": 1, "min_steps": 100} if rows < 5000 else {}  # toy size
    explainer = LocalBIF(g, BASE, seed=derive(dataset, seed, "bifkit (local)"), **short | CHANGES[change])
    posterior = explainer.fit(data.X_train, data.y_train).explain(data.X_test)
    s, per_epoch = explainer.settings_, max(len(data.X_train) // explainer.settings_.batch_size, 1)
    steps = max(s.epochs * per_epoch, s.min_steps)
    return {"mcc": 100 * metrics.mcc(posterior.mean, data.truth_test), "elbo": explainer.elbo_,
            "passes": steps / per_epoch * s.draws * s.restarts,
            "concentration": float(np.median(posterior.alpha.sum(1)))}


def scores(frame) -> pd.DataFrame:
    """MCC x 100, one row per change (in the order of CHANGES), one column per data set, and their mean."""
    table = finished(frame).groupby(["change", "dataset"])["mcc"].mean().unstack()
    table = table.reindex([c for c in CHANGES if c in table.index])
    return table.assign(mean=table.mean(axis=1))


def differences(frame) -> pd.DataFrame:
    """Paired difference to ``rank`` of each change: mean and standard error over the runs, worst run, price in passes.

    ``sum of alpha`` is the median row's: the larger, the surer the posterior.
    """
    good = finished(frame).set_index(["dataset", "seed"])
    base = good[good["change"] == BASE]
    rows = {}
    for change in [c for c in CHANGES if c in set(good["change"])]:
        part = good[good["change"] == change]
        gap = part["mcc"] - base["mcc"].reindex(part.index)
        rows[change] = {"difference": gap.mean(), "se": gap.std(ddof=1) / np.sqrt(len(gap)) if len(gap) > 1 else np.nan,
                        "worst run": part["mcc"].min(), "sum of alpha": part["concentration"].mean(),
                        "price": (part["passes"] / base["passes"]).mean()}
    return pd.DataFrame(rows).T


def factor(change) -> str:
    """The choice that a change changes: the key of WHY."""
    if change in GATE_FILL:
        return "gate" if GATE_FILL[change]["fill"] == RANK.fill else "fill" if \
            GATE_FILL[change]["gate"] == RANK.gate else "gate and fill"
    return change.rsplit(" ", 1)[0]


def reasons(frame) -> list[str]:
    """For each default its reason, then its alternatives: paired difference ± standard error, by set, and the price."""
    gaps, lines = differences(frame).drop(index=BASE), []
    by_set = scores(frame).drop(columns="mean")
    by_set = by_set - by_set.loc[BASE]
    for name, why in WHY.items():
        found = []
        for change, r in gaps.iterrows():
            if factor(change) == name:
                sets = ", ".join(f"{d} {v:+.1f}" for d, v in by_set.loc[change].items())
                price = f", {r['price']:.1f} x the price" if abs(r["price"] - 1) > 0.01 else ""
                gap = f"{r['difference']:+6.1f} ± {r['se']:.1f}"
                found.append(f"    {_alternative(change, name):9s}{gap} ({sets}){price}")
        if found:
            lines += [f"{name} {why}", *found]
    better = gaps.index[gaps["difference"] > 2 * gaps["se"]]
    return [*lines, f"better than {BASE} by more than two standard errors: {', '.join(better) or 'no change'}"]


def _alternative(change, name):
    return change.removeprefix(name).strip() if name not in ("gate", "fill") else change.split(", ")[name == "fill"]


def heatmap(frame, *, ax=None):
    """MCC x 100 of every change (rows) on every set (columns), coloured by the difference to ``rank``."""
    table = scores(frame)
    gap = table - table.loc[BASE]
    ax = plots.axes(ax, (6.4, 1.0 + 0.29 * len(table)))
    limit = 20
    image = ax.imshow(gap, cmap="RdBu", vmin=-limit, vmax=limit, aspect="auto")
    for (i, j), value in np.ndenumerate(table.to_numpy()):
        ax.text(j, i, f"{value:.1f}", ha="center", va="center", fontsize=8.5,
                color="white" if abs(gap.iloc[i, j]) > 0.6 * limit else "black",
                fontweight="bold" if table.index[i] == BASE else None)
    ax.set_xticks(range(table.shape[1]), table.columns)
    ax.xaxis.tick_top()
    ax.set_yticks(range(len(table)), [f"rank: {RANK.gate}, {RANK.fill}" if c == BASE else c for c in table.index])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    last = None
    for i, change in enumerate(table.index):  # a line between groups of changes
        group = "gate and fill" if change in GATE_FILL else factor(change)
        if i and group != last:
            ax.axhline(i - 0.5, color="white", lw=4)
        last = group
    ax.axvline(table.shape[1] - 1.5, color="white", lw=4)
    ax.figure.colorbar(image, ax=ax, shrink=0.5, extend="both", label="colour: difference to rank; numbers: MCC x 100")
    return ax
