"""The privacy study's report: the paper's claims answered in words, and the figures, from the frame of runs."""

import math
from itertools import combinations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.ticker import NullFormatter
from scipy.stats import spearmanr

from bifkit import plots
from experiments.models import privacy as dp_sgd
from experiments.privacy import (
    FIGURE_NOISE,
    auc_table,
    good,
    importances,
    invase_table,
    kl_table,
    vectors,
    verdicts,
)

PAPER_ADULT = ["relationship", "education-num", "capital-gain"]  # the paper's non-private order
TITLES = {"rank": "BIF, preset rank", "paper": "BIF, objective as printed", "invase": "INVASE (Bernoulli)"}


def _yes(holds):
    return "holds" if holds else "does not hold"


def findings(frame) -> list[str]:
    """Sentences on the paper's claims about both data sets, each counted from the runs."""
    lines, book = [], verdicts(frame)
    for d, t in auc_table(frame).groupby("dataset"):
        t = t.sort_values("level")
        drops = [f"{a:.3g} to {b:.3g}, by {-gap:.4f}" for a, b, gap in
                 zip(t["level"], t["level"][1:], np.diff(t["auc"]), strict=False) if gap <= 0]
        lines.append(f"{d}: mean AUC rises with epsilon, {t['auc'].iloc[0]:.4f} to {t['auc'].iloc[-1]:.4f}: "
                     f"{_yes(not drops)}" + (f" (not from eps {'; '.join(drops)}; "
                                                   f"standard error of a mean {t['se'].mean():.4f})" if drops else ""))
        for name in ("rank", "paper", "invase"):
            if (d, f"kl {name}") in book.index:
                v = book.loc[(d, f"kl {name}")]
                holds = v["spearman"] <= -0.9 and min(v["over floor"], v["over ref"]) >= 3
                lines.append(f"{d}, {name}: mean KL falls with epsilon, well above the floor: {_yes(holds)} (Spearman "
                             f"{v['spearman']:.2f}; strongest level {v['over floor']:.1f} x its own floor, "
                             f"{v['over ref']:.1f} x the reference's)")
    return lines + _robust(frame) + _adult(frame) + _diabetes(frame)


def _robust(frame):
    """The paper's two readings of its bar chart: differences even out with each level, and the first features stay."""
    lines = []
    for d, t in importances(frame).groupby("dataset"):
        parts = [p for _, p in t.groupby("noise")]  # no noise first
        weak, strong = parts[0], parts[-1]
        size = [float(np.exp(-(p["importance"] * np.log(p["importance"])).sum())) for p in parts]
        rank = float(spearmanr(range(len(size)), size).statistic) if len(size) > 1 else math.nan
        shared = len(set(weak["feature"][:8]) & set(strong["feature"][:8]))
        lines += [f"{d}: differences between features shrink with privacy: {_yes(rank >= 0.9)} (effective number of "
                  f"features from no noise to most: {' '.join(f'{v:.1f}' for v in size)}; Spearman {rank:.2f})",
                  f"{d}: the first features stay: {shared} of the non-private top 8 are in the top 8 at eps "
                  f"{strong['level'].iloc[0]:.3g}; first without noise: {weak['feature'].iloc[0]}, there: "
                  f"{strong['feature'].iloc[0]}"]
    return lines


def _adult(frame):
    """Order without noise, and what noise does to relationship, age and marital status."""
    lines = []
    for name in ("rank", "paper"):
        t = importances(frame, f"alpha_{name}").query("dataset == 'Adult'")
        if t.empty:
            continue
        weak, strong = (t[t["noise"] == s].set_index("feature") for s in (0.0, t["noise"].max()))
        order = weak.index[:3].tolist()
        lines.append(f"Adult, {name}: non-private order relationship, education-num, capital-gain: "
                     f"{_yes(order == PAPER_ADULT)} (ours: {', '.join(order)}; relationship is number "
                     f"{weak.loc['relationship', 'rank']})")
        for feature, way in (("relationship", -1), ("age", 1), ("marital-status", 1)):
            a, b = weak.loc[feature, "importance"], strong.loc[feature, "importance"]
            gap = math.hypot(weak.loc[feature, "se"], strong.loc[feature, "se"])
            lines.append(f"Adult, {name}: {feature} {'rises' if way > 0 else 'falls'} with noise: "
                         f"{_yes(way * (b - a) > gap)} ({a:.3f} to {b:.3f}, standard error of the change {gap:.3f})")
    return lines


def _diabetes(frame):
    """number_inpatient without noise, and what INVASE selects at the levels of its figure."""
    t = importances(frame).query("dataset == 'Diabetes' and noise == 0")
    lines = []
    if len(t):
        r = t[t["feature"] == "number_inpatient"].iloc[0]
        lines.append(f"Diabetes: number_inpatient first without privacy: {_yes(r['rank'] == 1)} "
                     f"(first in {r['first_in']} of {r['seeds']} seeds)")
    picks = invase_table(frame).query("dataset == 'Diabetes'").set_index("sigma")["selected"]
    for sigma, eps in FIGURE_NOISE.items():
        if sigma in picks:
            holds = picks[sigma] == ("none" if eps < 1 else "number_inpatient")
            lines.append(f"Diabetes: INVASE selects {'nothing' if eps < 1 else 'number_inpatient'} at eps {eps:g}: "
                         f"{_yes(holds)} (selected: {picks[sigma]})")
    return lines


# ------------------------------------------------------------------ explained on public rows

def moved(a, b) -> float:
    """Total variation between the mean importances of two explanations: 0 the same, 1 no feature in common.

    >>> moved([3.0, 1.0], [1.0, 1.0])
    0.25
    """
    a, b = (np.asarray(v, float) / np.sum(v) for v in (a, b))
    return float(np.abs(a - b).sum() / 2)


def _shares(runs, column):
    """{seed: mean importances} of the runs of one level."""
    return {seed: np.asarray(v, float) / np.sum(v) for _, seed, v in vectors(runs, column)}


def public_table(frame) -> pd.DataFrame:
    """How far explanations move when they are fitted on held-out rows, one row per data set and sigma.

    ``public``: from the private rows to the held-out ones, same model (total variation, mean over seeds). Beside it
    what other things move: ``again``, a second fit on the private rows with another seed; ``seeds``, another model of
    the same level. ``top five``: how many of the first five features stay. Then the finding itself: the distance from
    the non-private explanation, averaged over seeds first, by private (``from no noise``) and by held-out rows
    (``from no noise, public``).
    """
    columns = ["epsilon", "public", "again", "seeds", "top five", "from no noise", "from no noise, public"]
    rows = {}
    for dataset, runs in good(frame).groupby("dataset"):
        reference = []
        for noise, level in runs.groupby("noise"):
            private, public, again = (_shares(level, f"alpha_{c}") for c in ("rank", "public", "again"))
            if not public:
                continue
            means = [np.mean(list(v.values()), axis=0) for v in (private, public)]
            reference = means if noise == 0 else reference
            first = [len(set(np.argsort(-private[s])[:5]) & set(np.argsort(-public[s])[:5])) for s in public]
            pairs = list(combinations(private.values(), 2))
            rows[dataset, noise] = [
                level["level"].iloc[0], np.mean([moved(private[s], public[s]) for s in public]),
                np.mean([moved(private[s], again[s]) for s in again]) if again else math.nan,
                np.mean([moved(a, b) for a, b in pairs]) if pairs else math.nan, np.mean(first),
                *([moved(a, b) for a, b in zip(means, reference, strict=True)] if reference else [math.nan] * 2)]
    index = pd.MultiIndex.from_tuples(list(rows), names=["dataset", "noise"]) if rows else None
    return pd.DataFrame(list(rows.values()), columns=columns, index=index)


def _numbers(values):
    return " ".join(f"{v:.3f}" for v in values)


def public_findings(frame) -> list[str]:
    """``public_table`` in two sentences per data set."""
    lines, table = [], public_table(frame)
    for dataset, t in table.groupby(level=0) if len(table) else ():
        both = t[t["again"].notna()]
        private, public = (t.drop(index=0.0, level=1, errors="ignore")[f"from no noise{c}"] for c in ("", ", public"))
        lines += [f"{dataset}: fitted on held-out rows, the explanation moves by {both['public'].mean():.3f}; fitted "
                  f"again on the private rows, by {both['again'].mean():.3f}; that of another model of the same level "
                  f"is {both['seeds'].mean():.3f} away. {t['top five'].mean():.1f} of the first five features stay",
                  f"{dataset}: distance from the non-private explanation, weakest noise to strongest: "
                  f"{_numbers(private)} by the private rows, {_numbers(public)} by held-out rows (Spearman of the two "
                  f"{private.corr(public, method='spearman'):.2f})"]
    return lines


# ------------------------------------------------------------------ figures

def _infinity(levels):
    """Positions on a logarithmic axis, infinity a step beyond the last finite level; and their labels."""
    finite = sorted(e for e in levels if math.isfinite(e))
    place = {e: e for e in finite} | {math.inf: finite[-1] * 3 if finite else 1.0}
    return place, {p: "none" if math.isinf(e) else f"{e:.2g}" for e, p in place.items()}


def _axis(ax, labels):
    ax.set_xscale("log")
    ax.set_xticks(list(labels), list(labels.values()), rotation=60)
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel("epsilon of the model (PRV)")


def auc_figure(frame):
    """AUC against each model's own epsilon, mean and standard error; grey: the paper's epsilon of that sigma."""
    table = auc_table(frame)
    names = list(table["dataset"].unique())
    fig, axes = plt.subplots(1, max(len(names), 1), figsize=(5.5 * max(len(names), 1), 3.4), layout="constrained",
                             squeeze=False)
    for ax, name in zip(axes[0], names, strict=False):
        t = table[table["dataset"] == name].sort_values("level")
        place, labels = _infinity(t["level"])
        x = t["level"].map(place)
        ax.errorbar(x, t["auc"], t["se"], marker="o", capsize=3, color=plots.BLUE)
        for px, py, sigma in zip(x, t["auc"], t["noise"], strict=True):
            if dp_sgd.PAPER_EPSILON.get(sigma, math.inf) < math.inf:
                ax.annotate(f"{dp_sgd.PAPER_EPSILON[sigma]:g}", (px, py), (5, -11), textcoords="offset points",
                            ha="left", fontsize=7, color=plots.GREY)
        _axis(ax, labels)
        ax.set_ylabel("test AUC")
        ax.set_title(f"{name} (grey: the paper's epsilon for this sigma)", loc="left")
    return fig


def kl_figure(frame):
    """KL against epsilon with standard errors and both floors: one row per data set, one column per explainer."""
    table = kl_table(frame)
    names = list(table["dataset"].unique())
    fig, axes = plt.subplots(max(len(names), 1), 3, figsize=(12, 3.4 * max(len(names), 1)), layout="constrained",
                             squeeze=False)
    for (i, name), (j, explainer) in ((a, b) for a in enumerate(names) for b in enumerate(TITLES)):
        ax, t = axes[i, j], table[(table["dataset"] == name) & (table["explainer"] == explainer)].sort_values("level")
        low = np.minimum(t["se"].fillna(0), 0.95 * t["kl"])  # a logarithmic axis has no zero
        ax.errorbar(t["level"], t["kl"], [low, t["se"].fillna(0)], marker="o", capsize=3, color=plots.BLUE,
                    label="D(non-private || private)")
        ax.plot(t["level"], t["kl_reverse"], "o:", color=plots.SKY, ms=3, label="D(private || non-private)")
        ax.plot(t["level"], t["floor"], "s--", color=plots.ORANGE, ms=3, label="floor: seeds of this level")
        ax.plot(t["level"], t["floor_reference"], "-", color=plots.GREY, label="floor: non-private seeds")
        ax.set_yscale("log")
        _axis(ax, {e: f"{e:.2g}" for e in t["level"]})
        ax.set_ylabel("KL (nats)")
        ax.set_title(f"{name}: {TITLES[explainer]}", loc="left")
    if names:
        fig.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    return fig


def top_figure(frame, dataset, k=8, column="alpha_rank"):
    """The k first features at each level; a feature keeps its colour, strong for those of the non-private k."""
    table = importances(frame, column)
    table = table[table["dataset"] == dataset]
    parts = [p.head(k) for _, p in table.sort_values(["noise", "rank"]).groupby("noise")]
    seen = list(dict.fromkeys(f for p in parts for f in p["feature"]))
    palette = [*plots.PALETTE[:7], "#000000", *plt.get_cmap("Pastel1").colors, *plt.get_cmap("Set3").colors]
    colour = {f: palette[i % len(palette)] for i, f in enumerate(seen)}
    columns = min(len(parts), 4)
    rows = -(-len(parts) // columns)
    fig, axes = plt.subplots(rows, columns, figsize=(3.1 * columns, 2.3 * rows), layout="constrained", squeeze=False,
                             sharex=True)
    for ax, part in zip(axes.flat, parts, strict=False):
        names = [n.replace("_", " ") for n in part["feature"]]
        ax.barh(names, part["importance"], xerr=part["se"].fillna(0),
                color=[colour[f] for f in part["feature"]], error_kw={"lw": 0.8})
        ax.invert_yaxis()
        ax.tick_params(axis="y", labelsize=7)
        eps = part["level"].iloc[0]
        ax.set_title(f"{dataset}, " + ("no noise" if math.isinf(eps) else f"epsilon {eps:.3g}"), loc="left", fontsize=9)
    for ax in axes.flat[len(parts):]:
        ax.set_axis_off()
    fig.supxlabel("importance, mean and standard error over the seeds", fontsize=9)
    return fig
