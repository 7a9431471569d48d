"""The figures of the uncertainty study (notebook 08), from the rows of :mod:`experiments.uncertainty`."""

import matplotlib.pyplot as plt
import numpy as np

from bifkit import plots
from experiments import uncertainty

LABELS = {"label noise": "share of labels redrawn", "rows": "rows", "duplicate": "correlation of a copy of a feature"}


def intervals(fits, dataset):
    """One fit's 80 % intervals, as fitted and calibrated by all other fits, and the means of those others.

    Both on the scale of the intervals; where refits lie beyond it, a line at the edge says how many and how far.
    """
    first, *others = uncertainty.posteriors(fits, dataset=dataset, source="fresh")
    both = {"as fitted": (first, plots.SKY), "calibrated": (first.calibrated(others), plots.BLUE)}
    bounds = {title: [100 * (b / first.mean - 1) for b in p.interval(0.8)] for title, (p, _) in both.items()}
    refits = np.array([100 * (refit.mean / first.mean - 1) for refit in others])  # (fits, D)
    low, high = (1.1 * f([f(b) for b in bounds.values()]) for f in (np.min, np.max))
    figure, panels = plt.subplots(1, 2, figsize=(9, 4.2), layout="constrained", sharey=True, sharex=True)
    for ax, (title, (_, color)) in zip(panels, both.items(), strict=True):
        y = np.arange(refits.shape[1])
        ax.hlines(y, *bounds[title], color=color, lw=8, label=f"80 % interval of one fit, {title}")
        ax.plot(refits.T, y, "|", color=plots.RED, ms=6, label="means of its refits")
        for feature in y:
            if len(far := refits[:, feature][refits[:, feature] > high]):
                ax.text(high, feature - 0.4, f"{len(far)} refits at +{far.min():,.0f} to +{far.max():,.0f} % →",
                        ha="right", va="bottom", fontsize=8, color=plots.RED)
        ax.set_xlim(low, high)
        ax.set_yticks(y, first.feature_names)
        ax.set_ylim(len(y) - 0.5, -0.8)
        ax.set_xlabel("difference from the fit's importance (%)")
        ax.set_title(f"{dataset}, {title}", loc="left")
    handles = dict(zip(*[part for ax in panels for part in ax.get_legend_handles_labels()[::-1]][:2], strict=True))
    handles |= dict(zip(*panels[1].get_legend_handles_labels()[::-1], strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3)
    return figure


def coverage(before, after, error):
    """Coverage of 80 % intervals by data set, as fitted (``before``) and calibrated (``after``, with its ``error``)."""
    ax = plots.axes(size=(9, 3.2))
    ax.axhspan(75, 85, color=plots.GREY, alpha=0.2, lw=0, label="75 to 85 %")
    ax.axhline(80, color=plots.GREY, lw=0.8, ls="--", label="80 %, the promise")
    for shift, table, color, label in ((-0.1, before, plots.SKY, "as fitted"), (0.1, after, plots.BLUE, "calibrated")):
        x = np.arange(len(table)) + shift
        spread = error["all"] if table is after else None
        ax.errorbar(x, table["80%"]["all"], spread, fmt="o", color=color, capsize=3,
                    label=f"{label}, all features" + (" (± standard error)" if table is after else ""))
        ax.plot(x + 0.08, table["80%"]["relevant"], "^", color=color, ms=5, label=f"{label}, relevant")
        ax.plot(x + 0.08, table["80%"]["irrelevant"], "v", color=color, ms=5, mfc="white", label=f"{label}, irrelevant")
    ax.set_xticks(np.arange(len(after)), after.index)
    ax.set_ylim(60, 103)
    ax.set_ylabel("coverage of 80 % intervals (%)")
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return ax


def changes(table):
    """Spread (above) and scatter of refits (below) against the level of each change, one line per data set."""
    kinds = list(dict.fromkeys(table["what"]))
    figure, panels = plt.subplots(2, len(kinds), figsize=(3.4 * len(kinds), 4.6), layout="constrained", squeeze=False,
                                  sharex="col", sharey="row")
    for column, kind in enumerate(kinds):
        for (name, part), color in zip(table[table["what"] == kind].groupby("dataset"), plots.PALETTE, strict=False):
            for row, what in enumerate(("spread", "scatter")):
                panels[row, column].plot(part["level"].astype(float), part[what], "o-", color=color, label=name)
                panels[row, 0].set_ylabel(f"{what} (% of importance)")
        panels[1, column].set_xlabel(LABELS[kind])
        panels[1, column].set_xscale("log" if kind == "rows" else "linear")
    for ax, what in zip(panels[:, 0], ("spread", "scatter"), strict=True):
        ax.set_ylim(0, 1.08 * table[what].max())
    panels[0, 0].legend(loc="lower left")
    return figure


def risk_coverage(instances, score):
    """Missed features among the most certain rows, rows sorted by ``score``, by g's doubt and by the error itself."""
    names = list(uncertainty.rejection_table(instances, score).index)
    figure, panels = plt.subplots(1, len(names), figsize=(3.4 * len(names), 3), layout="constrained", squeeze=False,
                                  sharey=True)
    lines = (score, plots.BLUE, "-"), ("g's doubt", plots.ORANGE, "-"), ("oracle", plots.GREY, ":")
    for ax, name in zip(panels[0], names, strict=True):
        for which, color, style in lines:
            curve = 100 * uncertainty.curve(instances, name, which)
            ax.plot(100 * np.array(uncertainty.SHARES), curve, style, color=color, label=which)
        ax.axhline(curve[-1], color=plots.GREY, ls="--", label="random order")
        ax.set_title(name, loc="left")
        ax.set_xlabel("most certain rows (%)")
    panels[0, 0].set_ylabel("missed features (%)")
    panels[0, -1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure
