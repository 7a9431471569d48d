"""The fairness study's report: the paper's claims with their verdicts, tables and figures of notebook 05.

Where Adult is absent every function still answers, with empty tables, empty panels or no sentence.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from bifkit import plots
from experiments import divergence, fairness
from experiments.fairness import EXPLAINERS, LEVEL_NAMES, LEVELS, NAMES, REFERENCES, SENSITIVE, STATES
from experiments.privacy_report import moved
from experiments.runner import rows
from experiments.runner.report import cell

PANEL_4 = ["pre-trained", *LEVEL_NAMES[1:]]

METHODS = {"paper": "BIF as printed", "rank": "preset rank"}  # by which a claim about BIF is judged
SAID = {"marital-status": 0, "education-num": -1, "capital-gain": -1, "age": 1}  # stays, falls, falls, rises
WORDS = {0: "stays almost the same", -1: "falls", 1: "rises"}
PAPER_ORDER = ["marital-status", "education-num", "capital-gain"]
PAPER_PICKS = {"age", "education-num", "marital-status", "capital-gain", "hours-per-week"}  # [0, 4, 5, 8, 10]
PAPER_ACCURACY = 83
WHERE = "supplement, fairness"


def claims(frame=None, protocol=None) -> pd.DataFrame:
    """Every claim of the paper's fairness section: claim, where, measured, verdict, notebook.

    The rules: heads of ``experiments/divergence.py`` and ``experiments/fairness.py``. Without arguments from the stored
    rows; ``frame`` and ``protocol`` are those of ``fairness.run`` and ``fairness.protocol``.
    """
    if frame is None:
        frame = rows.replay(fairness.grid(), "fairness")
        protocol = rows.replay(fairness.protocol_grid(), "fairness_protocol")
    lines = _auc(frame) if len(fairness.vectors(frame, "rank")) else []
    if lines:
        lines += _grows(frame, protocol) + _tells(frame) + _features(frame) + _invase(frame)
    return pd.DataFrame(lines, columns=["claim", "where", "measured", "verdict"]).assign(notebook="05_fairness")


def _auc(frame):
    wide = fairness.states(frame).query("state in @LEVEL_NAMES").pivot(index="state", columns="seed", values="auc")
    wide = wide.reindex(LEVEL_NAMES).dropna(axis=1)
    if wide.empty:
        return []
    found = divergence.rises(-divergence.resampled(wide.to_numpy()))
    return [("the AUC falls with fairness", f"{WHERE}, panel 1",
             f"mean AUC at {', '.join(LEVEL_NAMES)} %: {' '.join(f'{v:.3f}' for v in wide.mean(axis=1))} (standard "
             f"error {wide.sem(axis=1).max():.3f} or less, {wide.shape[1]} seeds); falling: {divergence.words(found)}",
             divergence.decide(found["share"]))]


def _kind(explainer):
    return "bernoulli" if explainer == "invase" else "dirichlet"


def _grows(frame, protocol):
    """KL from the unconstrained classifier, and the distance; then from the classifier's own pre-trained state."""
    lines = []
    for explainer in (*METHODS, "invase"):
        panel = f"{WHERE}, panel {2 if explainer == 'invase' else 3}"
        for reference in ("baseline", "pre-trained"):
            table = fairness.curve(frame, explainer, reference)
            if table.empty:
                continue
            found = divergence.stack(fairness.vectors(frame, explainer), [reference, *LEVEL_NAMES])[0]
            values = divergence.sampled(found, _kind(explainer))
            for statistic in ("kl", "distance") if reference == "baseline" else ("kl",):
                what = "KL" if statistic == "kl" else "distance"
                lines.append(_rise(f"{EXPLAINERS[explainer]}: the {what} from the {reference} classifier's explanation "
                                   "grows with fairness", panel, statistic, table, values, found.shape[1]))
    alphas = protocol_vectors(protocol)
    if alphas:
        found = divergence.stack(alphas, ["baseline", *LEVEL_NAMES])[0]
        table = divergence.curve(alphas, ["baseline", *LEVEL_NAMES])
        claim, where, text, verdict = _rise(
            "BIF as printed, the paper's own protocol (one classifier per level, five explainer seeds, alphas averaged)"
            ": the KL from the baseline classifier's explanation grows with fairness", f"{WHERE}, panel 3", "kl", table,
            divergence.sampled(found), 5)
        ours = divergence.stack(fairness.vectors(frame, "paper"), ["baseline", *LEVEL_NAMES])[0]
        single = sum(divergence.spearman(divergence.sampled(ours[:, [i]], count=1)["kl"][:1])[0] >= divergence.SPEARMAN
                     for i in range(ours.shape[1]))
        lines.append((claim, where, f"{text.replace('5 seeds', '5 explainer seeds')}; of the {ours.shape[1]} seeds, "
                      f"each with one classifier per level, {single} reach Spearman .9", verdict))
    return lines


def protocol_vectors(protocol) -> list:
    """(state, explainer seed, alpha) of the paper's own protocol; empty where it was not run."""
    if protocol is None or "alphas" not in protocol:
        return []
    found = [v for v in fairness.stored(protocol, "alphas").values() if {"baseline", *LEVEL_NAMES} <= set(v)]
    return [(state, k, a) for v in found for state, alphas in v.items() for k, a in enumerate(alphas)]


def _rise(claim, where, statistic, table, values, seeds):
    """A claim that a curve rises; ``table`` is divergence.curve, ``values`` its resamples."""
    found, last = divergence.rises(values[statistic]), table.iloc[-1]
    p = f"p {last['p_holm']:.2g} after Holm" if seeds >= divergence.ENOUGH else \
        f"{'above' if last['told'] else 'below'} the floor of the distance"
    low, high, floor = (last[f"{statistic}_{end}"] for end in ("low", "high", "floor"))
    text = (f"{' '.join(f'{v:.3g}' for v in table[statistic])} at {', '.join(LEVEL_NAMES)} %; the last 95 % interval "
            f"{low:.3g} to {high:.3g}; floor {floor:.3g}; {p}; {divergence.words(found)}; {seeds} seeds")
    if statistic == "kl":
        text += f"; the other direction: {divergence.words(divergence.rises(values['kl_reverse']))}"
    return claim, where, text, divergence.decide(found["share"], bool(last["told"]))


def _tells(frame):
    """BIF tells 57 from 82 %."""
    lines = []
    for explainer in METHODS:
        distance, p = fairness.apart(frame, explainer)
        lines.append((f"{EXPLAINERS[explainer]}: the explanations at 57 and 82 % differ", WHERE,
                      f"distance {distance:.3f}, p {p:.2g} (compare, paired)",
                      divergence.HOLDS if p < 0.05 else divergence.OPEN))
    return lines


def _features(frame):
    """The order in the unfair classifier, and how four features move."""
    lines = []
    for explainer in METHODS:
        found = divergence.stack(fairness.vectors(frame, explainer), ["pre-trained", *LEVEL_NAMES[1:]])[0]
        shares, n = found / found.sum(-1, keepdims=True), found.shape[1]
        means = np.vstack([np.full((1, n), 1 / n), divergence.resamples(n)]) @ shares[0]
        order, wanted = np.argsort(-means, axis=1, kind="stable")[:, :3], [NAMES.index(f) for f in PAPER_ORDER]
        share = float((order[1:] == wanted).all(1).mean())
        seeds = (np.argsort(-shares[0], axis=1)[:, :3] == wanted).all(1).sum()
        lines.append((f"{EXPLAINERS[explainer]}: marital status, education number, capital gain are first in the "
                      "unfair classifier, in this order", WHERE,
                      f"ours: {', '.join(NAMES[i] for i in order[0])}; so in {100 * share:.0f} % of the resamples, and "
                      f"in {seeds} of {n} seeds", divergence.decide(share)))
        for feature, way in SAID.items():
            values = shares[:, :, NAMES.index(feature)]
            change, low, high = divergence.moves(values)
            lines.append((f"{EXPLAINERS[explainer]}: {feature} {WORDS[way]} with fairness", f"{WHERE}, panel 4",
                          f"{values[0].mean():.3f} pre-trained, {values[-1].mean():.3f} at 96 %; change over all "
                          f"levels {change:+.3f} (95 % interval {low:+.3f} to {high:+.3f}, {n} seeds)",
                          divergence.decide_move(low, high, way)))
    return lines


def _invase(frame):
    """The same selection at 57 and 82 %, the paper's selection, and the accuracy with the frozen classifier."""
    table = fairness.selections(frame)
    wide = table.pivot(index="seed", columns="state", values="selected")
    if not {"57", "82", "pre-trained", "reseeded"} <= set(wide):
        return []
    wide = wide.dropna(subset=["57", "82"])
    same, twice = (wide["57"] == wide["82"]).sum(), (wide["pre-trained"] == wide["reseeded"]).sum()
    paper = wide[["57", "82"]].map(lambda s: set(s.split(", ")) == PAPER_PICKS).all(axis=1).sum()
    reached = 100 * table[table["state"].isin(LEVEL_NAMES)].groupby("seed")["accuracy"].mean().to_numpy()
    means, common = divergence.resampled(reached[None])[:, 0], wide["57"].mode()[0]
    return [("INVASE: the same selection at 57 and 82 %", f"{WHERE}, panel 2",
             f"in {same} of {len(wide)} seeds; one classifier explained with two seeds gets the same in {twice}",
             divergence.decide_counts(same, len(wide))),
            ("INVASE: the selection at 57 and 82 % is age, education-num, marital-status, capital-gain, hours-per-week",
             WHERE, f"at both in {paper} of {len(wide)} seeds; most often at 57 %: {common}",
             divergence.decide_counts(paper, len(wide))),
            (f"INVASE with the frozen classifier reaches an accuracy of {PAPER_ACCURACY} %", WHERE,
             f"{means[0]:.1f} % over the levels (95 % interval {np.quantile(means[1:], 0.025):.1f} to "
             f"{np.quantile(means[1:], 0.975):.1f})", divergence.decide(float((means[1:] >= PAPER_ACCURACY).mean())))]


def level_table(frame, explainer, reference) -> pd.DataFrame:
    """``fairness.curve`` as text for readers: value [interval], floors, p after Holm, told or not."""
    table = fairness.curve(frame, explainer, reference)
    out = pd.DataFrame(index=pd.Index(table["level"], name="level"))
    for name in divergence.STATISTICS if len(table) else ():
        digits = ".3f" if name == "distance" else ".3g"
        out[name] = [f"{v:{digits}} [{a:{digits}}, {b:{digits}}]" for v, a, b in
                     zip(table[name], table[f"{name}_low"], table[f"{name}_high"], strict=True)]
    for name in ("distance_floor", "distance_control", "kl_floor", "kl_control"):
        if name in table:
            out[name.replace("_", ", ")] = [f"{v:.3g}" for v in table[name]]
    if len(table):
        enough = table["seeds"] >= divergence.ENOUGH
        out["p (Holm)"] = [f"{p:.4f}" if e else "too few" for p, e in zip(table["p_holm"], enough, strict=True)]
        out["told"] = np.where(table["told"], "yes", "no")
    return out


def reached(frame) -> list[str]:
    """One sentence per level: the p%-rule on held-out rows, for race and sex, and what it costs."""
    means, lines = fairness.levels(frame).xs("mean", axis=1, level=1), []
    for level in [s for s in means.index if s in LEVEL_NAMES]:
        row = means.loc[level]
        met = "within" if abs(row.p_rule_race - int(level)) <= 4 else "NOT within"
        lines.append(f"{level} %: reached {row.p_rule_race:.1f} on held-out rows ({met} 4 points), for sex "
                     f"{row.p_rule_sex:.1f}; AUC {row.auc:.3f}, accuracy {row.accuracy:.3f}")
    return lines


def importance_table(frame, explainer) -> pd.DataFrame:
    """Mean importance ± standard deviation over seeds as text: one row per feature, one column per state."""
    table = fairness.importances(frame, explainer)
    cells = [cell(m, s, digits=2) for m, s in zip(table["mean"], table["sd"], strict=True)]
    wide = table.assign(cell=cells).pivot(index="feature", columns="state", values="cell")
    wide = wide.reindex(index=NAMES if len(table) else [], columns=[s for s in STATES[:6] if s in wide])
    return wide.rename_axis(None, axis=1)


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

def figure(frame, protocol=None):
    """The paper's four panels, BIF as printed: what fairness costs, INVASE's KL, BIF's KL, BIF's importances.

    In panel 4 diamonds: as released, one classifier per level, as in the authors' code.
    """
    fig, axes = plt.subplots(2, 2, figsize=(12, 9), layout="constrained")
    _cost(frame, axes[0, 0])
    _divergence(frame, "invase", axes[0, 1])
    _invase_labels(frame, axes[0, 1])
    _divergence(frame, "paper", axes[1, 0])
    _protocol(protocol, axes[1, 0])
    _importances(frame, axes[1, 1], "paper")
    _released(protocol, axes[1, 1])
    axes[1, 0].set_title("(3) BIF as printed: KL", loc="left")
    axes[1, 1].set_title("(4) BIF as printed: importances", loc="left")
    for ax in axes.flat[1:]:
        ax.set_ylim(0, None)
    _legend(fig, axes[1, 0])
    return fig


def comparison(frame, protocol=None):
    """KL, distance and importances by all three ways of BIF, the panels of a row on one scale."""
    fig, axes = plt.subplots(3, 3, figsize=(13, 10.5), layout="constrained", sharey="row")
    for column, explainer in zip(axes.T, ("rank", "few", "paper"), strict=True):
        _divergence(frame, explainer, column[0])
        if explainer == "paper":
            _protocol(protocol, column[0])
        _divergence(frame, explainer, column[1], "distance")
        _importances(frame, column[2], explainer)
        column[0].set_title(EXPLAINERS[explainer], loc="left")
    if len(frame) and fairness.vectors(frame, "rank"):
        axes[0, 0].set(yscale="log", ylabel="KL (nats, log scale)")
    for ax in axes[1:, 0]:
        ax.set_ylim(0, None)
    for ax in axes[:, 1:].flat:
        ax.set_ylabel("")
    _legend(fig, axes[0, 2])
    return fig


def _legend(fig, ax):
    handles = dict(zip(*ax.get_legend_handles_labels()[::-1], strict=True))
    if handles:
        fig.legend(handles.values(), handles, loc="outside lower center", ncols=4, fontsize=8)


def _cost(frame, ax):
    table = fairness.levels(frame)
    inner = [s for s in table.index if s in LEVEL_NAMES]
    for measure, name, color in (("auc", "AUC", plots.BLUE), ("accuracy", "accuracy", plots.ORANGE)):
        (x, dx), (y, dy) = (table.loc[inner, m].to_numpy().T for m in ("p_rule_race", measure))
        ax.errorbar(x, y, dy, dx, fmt="o-", color=color, capsize=3, label=name)
        if "baseline" in table.index:
            ax.plot(*table.loc["baseline", [("p_rule_race", "mean"), (measure, "mean")]], "D", color=color, mfc="white",
                    label=f"{name}, separate baseline")
    for level in LEVELS:
        ax.axvline(level, color=plots.GREY, lw=0.7, ls=":", label="the paper's levels" if level == LEVELS[0] else None)
    ax.set(xlabel="p%-rule for race, held-out rows", ylabel="AUC, accuracy")
    ax.legend(fontsize=8, loc="lower left")
    ax.set_title("(1) what fairness costs", loc="left")


def _divergence(frame, explainer, ax, statistic="kl"):
    """The statistic by level from both references, with 95 % intervals and floors; hollow: not told from it."""
    for reference, color, shift in zip(REFERENCES, (plots.BLUE, plots.ORANGE), (-0.4, 0.4), strict=True):
        c = fairness.curve(frame, explainer, reference)
        if c.empty:
            continue
        x = c["level"].astype(int) + shift
        ax.plot(x, c[statistic], "-", color=color)
        ax.vlines(x, c[f"{statistic}_low"], c[f"{statistic}_high"], color=color,
                  label="95 % interval over the seeds" if reference == "baseline" else None)
        for told, face in ((True, color), (False, "white")):
            ax.plot(x[c["told"] == told], c[statistic][c["told"] == told], "o", color=color, mfc=face,
                    label=f"from {reference}{'' if told else ', not told from it'}")
        if reference == "baseline" and statistic == "kl":
            ax.plot(x, c["kl_reverse"], "s:", color=color, ms=3, lw=1, label="the other direction, from baseline")
        ax.axhline(c[f"{statistic}_floor"].iloc[0], color=color, ls="--", lw=1,
                   label=f"floor: two halves of the {reference} seeds")
        if reference == "pre-trained" and f"{statistic}_control" in c:
            ax.plot(x, c[f"{statistic}_control"], ":", color=plots.GREY, label="lambda 0, same steps")
    ax.set(xlabel="level of fairness (p%-rule for race)", xticks=LEVELS,
           ylabel="KL (nats)" if statistic == "kl" else "total variation")


def _protocol(protocol, ax):
    """The paper's own protocol beside the curve over seeds."""
    if alphas := protocol_vectors(protocol):
        c = divergence.curve(alphas, ["baseline", *LEVEL_NAMES])
        ax.plot(c["level"].astype(int), c["kl"], "^-", color=plots.GREEN, ms=5,
                label="the paper's own protocol, from baseline")


def _invase_labels(frame, ax):
    picks = fairness.selections(frame)
    for level in LEVELS if len(picks) else []:
        chosen = picks[picks["state"] == str(level)]["selected"].mode()[0].split(", ")
        chosen = "\n".join(f"{n} ({NAMES.index(n)})" if n in NAMES else n for n in chosen)
        ax.text(level, -0.17, chosen, transform=ax.get_xaxis_transform(), va="top", ha="center", fontsize=7)
    ax.set_title("(2) INVASE: KL, and the selection most seeds share (paper at 57 and 82 %: 0 4 5 8 10)", loc="left",
                 fontsize=9)


def _importances(frame, ax, explainer):
    table = fairness.importances(frame, explainer)
    for i, (state, color) in enumerate(zip(PANEL_4, plots.PALETTE, strict=False)):
        part = table[table["state"] == state]
        x = np.array([NAMES.index(n) for n in part["feature"]]) + 0.2 * (i - 1.5)
        ax.bar(x, part["mean"], 0.18, color=color, label=state if i == 0 else f"{state} %")
        ax.vlines(x, (part["mean"] - part["sd"]).clip(lower=0), part["mean"] + part["sd"], color="black", lw=0.7)
    ax.set_xticks(range(len(NAMES)), [f"{n} ({i})" for i, n in enumerate(NAMES)], rotation=60, ha="right", fontsize=7)
    ax.set_ylabel("importance, mean and sd over the seeds", fontsize=9)
    if len(table):
        ax.legend(ncols=2, fontsize=7)


def _released(protocol, ax):
    """Importances as released, over the bars of ``_importances``."""
    for states in released(protocol):
        for i, state in enumerate(s for s in PANEL_4 if s in states):
            ax.plot(np.arange(len(NAMES)) + 0.2 * (PANEL_4.index(state) - 1.5), states[state], "D", color="black",
                    mfc="white", ms=3.5, mew=0.8, label=None if i else "as released, one classifier each")
        ax.legend(ncols=2, fontsize=7)


def released(protocol) -> list[dict]:
    """{state: importances} as released, one dict per seed of the paper's protocol."""
    found = fairness.stored(protocol, "released") if protocol is not None else {}
    return [{state: np.asarray(a) / np.sum(a) for state, a in states.items()} for states in found.values()]


def step_size(protocol) -> list[str]:
    """How far importances lie from those of 1,000 rows per step when a step has 20,000, as in the authors' code."""
    stored = fairness.stored(protocol, "alphas") if protocol is not None else {}
    both = zip(released(protocol), stored.values(), strict=False)
    gaps = [moved(np.mean(alphas[state], axis=0), p) for states, alphas in both for state, p in states.items()]
    return [f"steps of 20,000 rows instead of 1,000 move the importances by {np.mean(gaps):.3f} on average and by at "
            f"most {np.max(gaps):.3f} (total variation, {len(gaps)} classifiers)"] if gaps else []


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
