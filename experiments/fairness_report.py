"""The fairness study's report: sentences, tables and figures of notebook 05, from the rows of the study.

Where Adult is absent every function still answers, with empty tables, empty panels or no sentence.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from bifkit import plots
from experiments import fairness
from experiments.fairness import EXPLAINERS, LEVEL_NAMES, LEVELS, NAMES, REFERENCES, SENSITIVE, STATES
from experiments.runner.report import cell

SAID = {"marital-status": "stays", "education-num": "falls", "capital-gain": "falls", "age": "rises"}  # the paper


def reached(frame) -> list[str]:
    """One sentence per level: the p%-rule on held-out rows, for race and sex, and what it costs."""
    means, lines = fairness.levels(frame).xs("mean", axis=1, level=1), []
    for level in [s for s in means.index if s in LEVEL_NAMES]:
        row = means.loc[level]
        met = "within" if abs(row.p_rule_race - int(level)) <= 4 else "NOT within"
        lines.append(f"{level} %: reached {row.p_rule_race:.1f} on held-out rows ({met} 4 points), for sex "
                     f"{row.p_rule_sex:.1f}; AUC {row.auc:.3f}, accuracy {row.accuracy:.3f}")
    return lines


def rises(frame) -> list[str]:
    """One sentence per explainer and reference: does the divergence rise with fairness, and how far above its floor?"""
    ranks, lines = fairness.spearmans(frame).set_index(["of", "reference"]), []
    for explainer, name in EXPLAINERS.items():
        for reference in REFERENCES:
            curve = fairness.curve(frame, explainer, reference)
            if len(curve):
                rank, over = ranks.loc[(f"KL, {name}", reference), "of the means"], curve["mean"] / curve["reseeded"]
                lines.append(f"{name}, from the {reference} classifier: rises with fairness: "
                             f"{'yes' if rank >= 0.9 else 'no'} (Spearman {rank:.1f}); at {LEVELS[-1]} % it is "
                             f"{over.iloc[-1]:.1f} times the floor `reseeded`")
    return lines


def importance_table(frame, explainer) -> pd.DataFrame:
    """Mean importance ± standard deviation over seeds as text: one row per feature, one column per state."""
    table = fairness.importances(frame, explainer)
    cells = [cell(m, s, digits=2) for m, s in zip(table["mean"], table["between"], strict=True)]
    wide = table.assign(cell=cells).pivot(index="feature", columns="state", values="cell")
    wide = wide.reindex(index=NAMES if len(table) else [], columns=[s for s in STATES[:6] if s in wide])
    return wide.rename_axis(None, axis=1)


def first_four(frame) -> list[str]:
    """Are marital status (or relationship), education number and capital gain among a classifier's first four?"""
    lines = []
    for explainer in ("rank", "paper"):
        table = fairness.importances(frame, explainer)
        for state in [s for s in REFERENCES if s in set(table["state"])]:
            first = table[table["state"] == state].nlargest(4, "mean")["feature"].tolist()
            met = {"education-num", "capital-gain"} <= set(first) and {"marital-status", "relationship"} & set(first)
            lines.append(f"{EXPLAINERS[explainer]}, the first four of the {state} classifier: {', '.join(first)}; "
                         f"as the paper says: {'yes' if met else 'no'}")
    return lines


def moved(frame) -> list[str]:
    """The paper's four sentences on single features; a change counts when it exceeds two standard errors."""
    lines = []
    for explainer in ("rank", "paper"):
        moves = fairness.changes(frame, explainer)
        for feature in [f for f in SAID if f in moves.index]:
            m = moves.loc[feature]
            found = "stays" if not abs(m.change) > 2 * m.se else "rises" if m.change > 0 else "falls"
            lines.append(f"{EXPLAINERS[explainer]:>14}: {feature:<14} {m.change:+.3f} ± {m.se:.3f} (up in "
                         f"{m.rises:.0f} of {m.seeds:.0f} seeds): {found}; the paper says {SAID[feature]}: "
                         f"{'confirmed' if found == SAID[feature] else 'not confirmed'}")
    return lines


def selections(frame) -> pd.DataFrame:
    """INVASE by state: accuracy and p%-rule with its selection and with all features; the commonest selection."""
    by = fairness.selections(frame).groupby("state")
    table = by[["accuracy", "accuracy, all", "p%-rule", "p%, all"]].mean().mul([100, 100, 1, 1]).round(1)
    table["selected"] = by["selected"].agg(lambda s: s.mode()[0])
    table["shared by"] = by["selected"].agg(lambda s: (s == s.mode()[0]).sum())
    return table.reindex([s for s in (*STATES, "reseeded") if s in table.index])


def selected(frame) -> list[str]:
    """Does INVASE select the same at 57 and 82 %, and what do its selections reach?"""
    table, wide = selections(frame), fairness.selections(frame).pivot(index="seed", columns="state", values="selected")
    if wide.empty:
        return []
    same, twice = (wide["57"] == wide["82"]).sum(), (wide["pre-trained"] == wide["reseeded"]).sum()
    mean, gain = table.loc[LEVEL_NAMES, "accuracy"].mean(), table["accuracy"] - table["accuracy, all"]
    return [f"the same selection at 57 and 82 % in {same} of {len(wide)} seeds; one classifier, explained with two "
            f"seeds, gets the same selection in {twice}",
            f"accuracy {mean:.1f} % over the levels (paper: 83 %); at 96 % {gain['96']:+.1f} points against all "
            f"features, and the p%-rule goes from {table.loc['96', 'p%, all']:.0f} to {table.loc['96', 'p%-rule']:.0f}"]


def carriers(frame, attribute) -> list[str]:
    """Which features carry the gap between the groups, before and at the fairest level, and who gives it away?"""
    part = fairness.proxies(frame)[attribute]
    before, fair = part["pre-trained"], part[str(LEVELS[-1])]
    top, after, guess = (", ".join(c.nlargest(3).index) for c in (before, fair, part["guess"]))
    lost, more = (before - fair).idxmax(), (fair > before)[before.nlargest(3).index].sum()
    auc = frame[f"guess_auc_{attribute}"].mean()
    return [f"the unconstrained gap for {attribute} is carried by {top}; at {LEVELS[-1]} % the first are {after}",
            f"of the three, {more} carry more of it at {LEVELS[-1]} % than before; the largest fall is that of {lost}: "
            f"{before[lost]:.1f} to {fair[lost]:.1f} points",
            f"{attribute} can be guessed with an AUC of {auc:.2f}, mostly from {guess}"]


# ------------------------------------------------------------------ figures

def figure(frame):
    """The paper's four panels: what fairness costs, INVASE's divergence, BIF's divergence, BIF's importances."""
    fig, axes = plt.subplots(2, 2, figsize=(12, 8.6), layout="constrained")
    _cost(frame, axes[0, 0])
    for ax, explainer in ((axes[0, 1], "invase"), (axes[1, 0], "rank")):
        _divergence(frame, explainer, ax)
    _invase_labels(frame, axes[0, 1])
    _as_printed(frame, axes[1, 0])
    _importances(frame, axes[1, 1])
    return fig


def _cost(frame, ax):
    table = fairness.levels(frame)
    inner = [s for s in table.index if s in LEVEL_NAMES]
    for measure, name, color in (("auc", "AUC", plots.BLUE), ("accuracy", "accuracy", plots.ORANGE)):
        (x, dx), (y, dy) = (table.loc[inner, m].to_numpy().T for m in ("p_rule_race", measure))
        ax.errorbar(x, y, dy, dx, fmt="o-", color=color, capsize=3, label=name)
        if "baseline" in table.index:
            ax.plot(*table.loc["baseline", [("p_rule_race", "mean"), (measure, "mean")]], "D", color=color, mfc="white",
                    label=f"{name}, separate baseline")
    ax.set(xlabel="p%-rule for race, held-out rows", ylabel="AUC, accuracy")
    ax.legend()
    ax.set_title("(1) what fairness costs", loc="left")


def _divergence(frame, explainer, ax):
    for reference, color in zip(REFERENCES, (plots.BLUE, plots.ORANGE), strict=True):
        c = fairness.curve(frame, explainer, reference)
        ax.errorbar(c["level"], c["mean"], c["se"], fmt="o-", color=color, capsize=3, label=f"from {reference}")
    own = fairness.curve(frame, explainer, "pre-trained")
    ax.plot(own["level"], own["reseeded"], "--", color=plots.GREY, label="floor: reseeding alone")
    if own["control"].notna().any():
        ax.plot(own["level"], own["control"], ":", color=plots.GREY, label="floor: lambda 0, same steps")
    ax.set(xlabel="level of fairness (p%-rule for race)", ylabel="KL (nats)", xticks=LEVELS)


def _invase_labels(frame, ax):
    picks = fairness.selections(frame)
    for level in LEVELS if len(picks) else []:
        chosen = picks[picks["state"] == str(level)]["selected"].mode()[0].replace(", ", "\n")
        ax.text(level, -0.17, chosen, transform=ax.get_xaxis_transform(), va="top", ha="center", fontsize=7)
    ax.set(ylim=(0, None))
    ax.legend()
    ax.set_title("(2) INVASE: KL, and the selection most seeds share", loc="left")


def _as_printed(frame, ax):
    printed = fairness.curve(frame, "paper", "pre-trained")
    ax.errorbar(printed["level"], printed["mean"], printed["se"], fmt="s-", color=plots.GREEN, capsize=3, ms=4,
                label="as printed, from pre-trained")
    ax.set(yscale="log" if len(printed) else "linear", ylabel="KL (nats, log scale)")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    ax.set_title("(3) BIF (bifkit): KL", loc="left")


def _importances(frame, ax):
    table = fairness.importances(frame)
    for i, (state, color) in enumerate(zip(["pre-trained", *LEVEL_NAMES[1:]], plots.PALETTE, strict=False)):
        part = table[table["state"] == state]
        x = np.array([NAMES.index(n) for n in part["feature"]]) + 0.2 * (i - 1.5)
        ax.vlines(x, part["lower"], part["upper"], color=color, alpha=0.4, lw=2.5)
        ax.plot(x, part["mean"], "o", color=color, ms=4, label=state if i == 0 else f"{state} %")
    ax.set_xticks(range(len(NAMES)), NAMES, rotation=45, ha="right")
    ax.set(ylabel="importance, mean and 95 % interval", ylim=(0, None))
    ax.legend(ncols=4, loc="lower right", bbox_to_anchor=(1, 0.98), columnspacing=1)
    ax.set_title("(4) BIF (bifkit)", loc="left")


def paths(frame):
    """Every seed's way: the p%-rule for race and sex and the AUC, every tenth iteration, one line per seed."""
    fig, axes = plt.subplots(1, 3, figsize=(12, 3.2), layout="constrained")
    for path in fairness.stored(frame, "path").values():
        for ax, key in zip(axes, ("p_rule_race", "p_rule_sex", "auc"), strict=True):
            ax.plot(10 * np.arange(len(path[key])), path[key], color=plots.BLUE, alpha=0.6, lw=1.2)
    for ax, title in zip(axes, ("p%-rule, race", "p%-rule, sex", "AUC"), strict=True):
        ax.set_title(title, loc="left")
        ax.set_xlabel("iteration")
    for level in LEVELS:
        axes[0].axhline(level, color=plots.GREY, lw=0.7, ls=":")
    return fig


def attributes(frame) -> list[str]:
    """Race and sex, or nothing where no run was made."""
    return list(SENSITIVE) if len(fairness.proxies(frame)) else []
