"""The privacy study's report: the paper's claims with their verdicts, and the figures, from the frame of runs."""

import json
import math
from itertools import combinations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.ticker import NullFormatter, NullLocator

from bifkit import plots
from experiments import divergence, privacy
from experiments.divergence import FAILS, HOLDS
from experiments.models import privacy as dp_sgd
from experiments.privacy import COLUMNS, FEATURES, FIGURE_NOISE, auc_table, good, importances, vectors
from experiments.runner import rows
from experiments.runner.rows import finished

METHODS = {"paper": "BIF as printed", "rank": "preset rank"}  # by which a claim about BIF is judged
TITLES = {"rank": "BIF, preset rank", "few": "BIF, preset few", "paper": "BIF as printed", "invase": "INVASE"}
PAPER_ADULT = ["relationship", "education-num", "capital-gain"]  # the paper's non-private order
SAID = {"relationship": -1, "age": 1, "marital-status": 1}  # falls, rises, rises with noise
TOP, KEPT = 8, 6  # the bar chart's eight; how many of them have to stay
FIGURE, BARS, SUPPLEMENT = "section 5.3, privacy figure", "section 5.3, bar chart", "supplement, privacy"
INVASE_FIGURE = "supplement, INVASE figure"


def claims(frame=None, protocol=None) -> pd.DataFrame:
    """Every claim of the paper's privacy sections: claim, where, measured, verdict, notebook.

    The rules: heads of ``experiments/divergence.py`` and ``experiments/privacy.py``. Without arguments from the stored
    rows; ``frame`` and ``protocol`` are those of ``privacy.run`` and ``privacy.protocol``.
    """
    if frame is None:
        frame = rows.replay(privacy.grid(), "privacy")
        protocol = rows.replay(privacy.protocol_grid(), "privacy_protocol")
    frame, lines = good(frame), []
    for dataset, runs in frame.groupby("dataset"):
        lines += _auc(dataset, runs) + _grows(dataset, runs, protocol)
        for name in METHODS:
            lines += _evens(dataset, runs, name) + _stay(dataset, runs, name)
        lines += _adult(runs) if dataset == "Adult" else _diabetes(runs) if dataset == "Diabetes" else []
    if lines:
        lines.append(_noise())
    table = pd.DataFrame(lines, columns=["claim", "where", "measured", "verdict"])
    return table.assign(notebook="04_privacy")


def _numbers(values, digits=3):
    return " ".join(f"{v:.{digits}f}" if digits else f"{v:.3g}" for v in values)


def _found(runs, column):
    """(vectors (levels, seeds, D), sigmas), no noise first; None where the column is not there at two levels."""
    found = vectors(runs, column)
    noises = sorted({n for n, _, _ in found})
    return (divergence.stack(found, noises)[0], noises) if len(noises) > 1 and noises[0] == 0 else (None, noises)


def _shares(found, column="alpha"):
    return found if column == "invase" else found / found.sum(-1, keepdims=True)


def _auc(dataset, runs):
    wide = runs.pivot(index="noise", columns="seed", values="auc_test").dropna(axis=1).sort_index(ascending=False)
    if len(wide) < 2 or wide.shape[1] < 2:
        return []
    found, means, se = divergence.rises(divergence.resampled(wide.to_numpy())), wide.mean(axis=1), wide.sem(axis=1)
    return [(f"{dataset}: the AUC falls with privacy", f"{FIGURE} (left)",
             f"mean AUC, most noise to none: {_numbers(means, 4)} (standard error {se.max():.4f} or less, "
             f"{wide.shape[1]} seeds); {divergence.words(found)}", divergence.decide(found["share"]))]


def _grows(dataset, runs, protocol):
    """KL and distance by both methods, the paper's own protocol, and INVASE."""
    lines, table = [], privacy.curves(runs)
    for name in (*METHODS, "invase"):
        found, _ = _found(runs, COLUMNS[name])
        if found is None:
            continue
        kind, who = ("bernoulli", "INVASE") if name == "invase" else ("dirichlet", METHODS[name])
        values = divergence.sampled(found, kind)
        part = table[table["explainer"] == name]
        place = INVASE_FIGURE if name == "invase" else f"{FIGURE} (right)"
        lines.append(_rise(f"{dataset}, {who}: the KL from the non-private explanation grows with noise", place, "kl",
                           part, values, found.shape[1]))
        if name != "invase":
            lines.append(_rise(f"{dataset}, {who}: the explanation moves further away with noise (distance)", place,
                               "distance", part, values, found.shape[1]))
    part = protocol[protocol["dataset"] == dataset] if protocol is not None and len(protocol) else ()
    if len(part):
        lines += _protocol(dataset, runs, part)
    return lines


def _rise(claim, place, statistic, part, values, seeds):
    """A claim that a curve rises; ``part`` is its table (divergence.curve), ``values`` its resamples."""
    found, last = divergence.rises(values[statistic]), part.iloc[-1]
    p = f"p {last['p_holm']:.2g} after Holm" if seeds >= divergence.ENOUGH else \
        f"{'above' if last['told'] else 'below'} the floor of the distance"
    low, high, floor = (last[f"{statistic}_{end}"] for end in ("low", "high", "floor"))
    text = (f"{_numbers(part[statistic], 0)}, weakest to strongest; the last {last[statistic]:.3g} (95 % interval "
            f"{low:.3g} to {high:.3g}; floor {floor:.3g}; {p}); {divergence.words(found)}; {seeds} seeds")
    if statistic == "kl":
        text += f"; the other direction: {divergence.words(divergence.rises(values['kl_reverse']))}"
    return claim, place, text, divergence.decide(found["share"], bool(last["told"]))


def _protocol(dataset, runs, part):
    """The paper's own protocol: one classifier per level; and how its curve would look with each of our classifiers."""
    found = privacy.protocol_vectors(part)
    noises = sorted({n for n, _, _ in found})
    values = divergence.sampled(divergence.stack(found, noises)[0])
    ours, _ = _found(runs, "alpha_paper")
    single = 0 if ours is None else sum(
        divergence.spearman(divergence.sampled(ours[:, [i]], count=1)["kl"][:1])[0] >= divergence.SPEARMAN
        for i in range(ours.shape[1]))
    claim, place, text, verdict = _rise(
        f"{dataset}, BIF as printed, the paper's own protocol (one classifier per level, five explainer seeds, alphas "
        "averaged): the KL grows with noise", f"{FIGURE} (right)", "kl", privacy.protocol_curve(part), values, 5)
    many = "" if ours is None else (f"; of the {ours.shape[1]} seeds, each with one classifier per level, {single} "
                                    "reach Spearman .9")
    return [(claim, place, text.replace("5 seeds", "5 explainer seeds") + many, verdict)]


def evenness(shares):
    """The effective number of features, exp of the entropy, over the last axis.

    >>> evenness(np.array([0.5, 0.5, 0.0])).round(6)
    np.float64(2.0)
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.exp(-np.where(shares > 0, shares * np.log(shares), 0).sum(-1))


def _evens(dataset, runs, name):
    found, _ = _found(runs, COLUMNS[name])
    if found is None:
        return []
    values = divergence.resampled(evenness(_shares(found)))
    rise = divergence.rises(values)
    return [(f"{dataset}, {METHODS[name]}: differences between features shrink with privacy", BARS,
             f"effective number of features, no noise to most: {_numbers(values[0], 1)}; {divergence.words(rise)}; "
             f"{found.shape[1]} seeds", divergence.decide(rise["share"]))]


def kept(shares, first=TOP, top=TOP):
    """(B, levels - 1): how many of the reference's ``first`` features are among each level's ``top``.

    ``shares`` are mean importances (B, levels, D), the reference first.

    >>> kept(np.array([[[0.5, 0.3, 0.2], [0.1, 0.4, 0.5]]]), first=2, top=2).tolist()
    [[1]]
    """
    order = np.argsort(np.argsort(-shares, axis=-1, kind="stable"), axis=-1)  # rank of each feature, from 0
    return ((order[:, :1] < first) & (order[:, 1:] < top)).sum(-1)


def _means(found):
    """Mean importances (1 + resamples, levels, D)."""
    n = found.shape[1]
    return divergence.averaged(np.vstack([np.full((1, n), 1 / n), divergence.resamples(n)]), found)[1]


def _stay(dataset, runs, name):
    """The top 8 stay; the first three stay among the eight."""
    found, _ = _found(runs, COLUMNS[name])
    if found is None:
        return []
    means, n, size = _means(found), found.shape[1], found.shape[2]
    eight, three = kept(means), kept(means, first=3)
    half = found[:1, :n // 2], found[:1, n // 2:]
    again = kept(np.stack([_shares(h).mean(1)[0] for h in half])[None])[0, 0] if n > 3 else math.nan
    lines = []
    for what, values, wanted, of in ((f"the non-private top {TOP} remain", eight, KEPT, TOP),
                                     ("the most relevant three can be told even so", three, 3, 3)):
        share = float((values[1:] >= wanted).all(1).mean())
        lines.append((f"{dataset}, {METHODS[name]}: {what}", BARS,
                      f"of the non-private {of}, among the first {TOP} of {size}, weakest noise to strongest: "
                      f"{' '.join(map(str, values[0]))} (two halves of the non-private seeds share {again} of {TOP}); "
                      f"at least {wanted} at every level in {100 * share:.0f} % of the resamples",
                      divergence.decide(share)))
    return lines


def _first(runs, name, wanted):
    """(first features of the non-private mean, share of resamples with the ``wanted`` ones first in this order)."""
    found, _ = _found(runs, COLUMNS[name])
    if found is None:
        return None, math.nan, 0, 0
    names, k = FEATURES[runs["dataset"].iloc[0]], len(wanted)
    order = np.argsort(-_means(found)[:, 0], axis=-1, kind="stable")[:, :k]
    share = float((order[1:] == [names.index(w) for w in wanted]).all(1).mean())
    seeds = (np.argsort(-_shares(found)[0], axis=-1)[:, :k] == [names.index(w) for w in wanted]).all(1)
    return [names[i] for i in order[0]], share, int(seeds.sum()), len(seeds)


def _adult(runs):
    """Order without noise, and what noise does to relationship, age and marital status."""
    lines = []
    for name, who in METHODS.items():
        order, share, count, of = _first(runs, name, PAPER_ADULT)
        if order is None:
            continue
        lines.append((f"Adult, {who}: without noise relationship, education-num, capital-gain are first, in this order",
                      SUPPLEMENT, f"ours: {', '.join(order)}; so in {100 * share:.0f} % of the resamples, and in "
                      f"{count} of {of} seeds", divergence.decide(share)))
        shares = _shares(_found(runs, COLUMNS[name])[0])
        for feature, way in SAID.items():
            values = shares[:, :, FEATURES["Adult"].index(feature)]
            change, low, high = divergence.moves(values)
            lines.append((f"Adult, {who}: {feature} {'rises' if way > 0 else 'falls'} with noise", SUPPLEMENT,
                          f"{values[0].mean():.3f} without noise, {values[-1].mean():.3f} with most; change over all "
                          f"levels {change:+.3f} (95 % interval {low:+.3f} to {high:+.3f}, {values.shape[1]} seeds)",
                          divergence.decide_move(low, high, way)))
    return lines


def _diabetes(runs):
    """number_inpatient without noise, and what INVASE selects at the levels of its figure."""
    lines = []
    for name, who in METHODS.items():
        order, share, count, of = _first(runs, name, ["number_inpatient"])
        if order is not None:
            lines.append((f"Diabetes, {who}: number_inpatient is first without noise", f"{BARS}; {INVASE_FIGURE}",
                          f"ours: {order[0]}; number_inpatient in {100 * share:.0f} % of the resamples, and in {count} "
                          f"of {of} seeds", divergence.decide(share)))
    found, noises = _found(runs, "invase")
    if found is None:
        return lines
    picks, index = found > 0.5, FEATURES["Diabetes"].index("number_inpatient")  # (levels, seeds, D)
    for sigma, eps in FIGURE_NOISE.items():
        if sigma in noises:
            at = picks[noises.index(sigma)]
            right = at[:, index] if eps >= 1 else ~at.any(1)
            what = "number_inpatient" if eps >= 1 else "nothing"
            lines.append((f"Diabetes: INVASE selects {what} at epsilon {eps:g}", INVASE_FIGURE,
                          f"so in {right.sum()} of {len(right)} seeds; features selected: "
                          f"{' '.join(str(n) for n in at.sum(1))}", divergence.decide_counts(right.sum(), len(right))))
    return lines + [_similar(picks[1:], divergence.sampled(found, "bernoulli"))]


def _similar(picks, values):
    """INVASE's selections stay similar over the levels while its KL differs."""
    both = [(a & b).sum(-1) / np.maximum((a | b).sum(-1), 1) for a, b in combinations(picks, 2)]
    jaccard = divergence.resampled(np.mean(both, axis=0)[None])[:, 0]
    rise = divergence.rises(values["kl"])
    parts = divergence.decide(float((jaccard[1:] >= 0.5).mean())), divergence.decide(rise["share"])
    verdict = FAILS if FAILS in parts else HOLDS if set(parts) == {HOLDS} else divergence.OPEN
    return ("Diabetes: INVASE's selection stays similar over the levels while its KL differs", INVASE_FIGURE,
            f"two levels share {jaccard[0]:.2f} of what either selects (95 % interval "
            f"{np.quantile(jaccard[1:], 0.025):.2f} to {np.quantile(jaccard[1:], 0.975):.2f}); its KL: "
            f"{divergence.words(rise)}; {picks.shape[1]} seeds", verdict)


def _noise():
    table = privacy.noise_table()
    gap = (table["paper"] / table["printed"] - 1).abs().max()
    return ("the epsilons of the noise table", "supplement, noise table", f"recomputed within {100 * gap:.2f} % of the "
            "printed ones (for batches drawn anew; the authors' code cut fixed ones)", HOLDS if gap <= 0.005 else FAILS)


def level_table(frame) -> pd.DataFrame:
    """``privacy.curves`` as text for readers: value [interval], floor, p after Holm, told or not."""
    table = privacy.curves(frame)
    out = table[["dataset", "explainer", "noise"]].assign(epsilon=[f"{e:.3g}" for e in table["epsilon"]])
    for name in divergence.STATISTICS if len(table) else ():
        digits = ".3f" if name == "distance" else ".3g"
        out[name] = [f"{v:{digits}} [{a:{digits}}, {b:{digits}}]" for v, a, b in
                     zip(table[name], table[f"{name}_low"], table[f"{name}_high"], strict=True)]
        out[f"{name} floor"] = [f"{v:{digits}}" for v in table[f"{name}_floor"]]
    if len(table):
        out["p (Holm)"] = [f"{p:.4f}" if n >= divergence.ENOUGH else "too few"
                           for p, n in zip(table["p_holm"], table["seeds"], strict=True)]
        out["told"] = np.where(table["told"], "yes", "no")
        out["seeds"] = table["seeds"]
    return out.set_index(["dataset", "explainer", "noise"])


# ------------------------------------------------------------------ explained on public rows

def moved(a, b) -> float:
    """Total variation between the mean importances of two explanations: 0 the same, 1 no feature in common.

    >>> moved([3.0, 1.0], [1.0, 1.0])
    0.25
    """
    a, b = (np.asarray(v, float) / np.sum(v) for v in (a, b))
    return float(np.abs(a - b).sum() / 2)


def _by_seed(runs, column):
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
    frame = good(frame)
    frame = frame[frame["alpha_public"].notna()] if "alpha_public" in frame else frame[:0]  # the first five seeds
    for dataset, runs in frame.groupby("dataset"):
        reference = []
        for noise, level in runs.groupby("noise"):
            private, public, again = (_by_seed(level, f"alpha_{c}") for c in ("rank", "public", "again"))
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


# ------------------------------------------------------------------ as released

def as_released(frame, protocol) -> pd.DataFrame:
    """The runs whose classifiers the paper's protocol explained, one per level, with ``alpha_released``."""
    keys = ["dataset", "noise", "seed"]
    return finished(frame).merge(finished(protocol).reindex(columns=[*keys, "alpha_released"]).dropna(), on=keys)


def step_size(protocol) -> list[str]:
    """How far importances lie from those of 1,000 rows per step when a step has 20,000, as in the authors' code."""
    runs = finished(protocol)
    runs = runs[runs["alpha_released"].notna()] if "alpha_released" in runs else runs[:0]
    gaps = [moved(json.loads(r.alpha), json.loads(r.alpha_released)) for r in runs.itertuples()]
    return [f"{name}: steps of 20,000 rows instead of 1,000 move the importances by {part.mean():.3f} on average and "
            f"by at most {part.max():.3f} (total variation, {len(part)} levels)"
            for name, part in pd.Series(gaps, dtype=float).groupby(runs["dataset"].to_numpy())]


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
    ax.xaxis.set_minor_locator(NullLocator())
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


LABELS = {"kl": "KL (nats, log scale)", "distance": "total variation"}


def curve_figure(frame, statistic="kl", protocol=None):
    """The statistic against epsilon: one row per data set, one column per explainer; BIF's panels share their scale.

    Bars are 95 % intervals over the seeds; a marker is filled where the level is told from the reference. Dashed: the
    floor. With ``statistic="kl"`` the other direction is dotted; ``protocol`` adds the paper's own protocol.
    """
    table = privacy.curves(frame)
    names = list(table["dataset"].unique())
    fig, axes = plt.subplots(max(len(names), 1), len(TITLES), figsize=(13, 3.1 * max(len(names), 1) + 0.4),
                             layout="constrained", squeeze=False)
    for i, name in enumerate(names):
        for ax in axes[i, 1:3]:
            ax.sharey(axes[i, 0])
        for ax, explainer in zip(axes[i], TITLES, strict=True):
            t = table[(table["dataset"] == name) & (table["explainer"] == explainer)].sort_values("epsilon")
            _curve(ax, t, statistic)
            if statistic == "kl" and explainer == "paper" and protocol is not None:
                _protocol_curve(ax, t, protocol[protocol["dataset"] == name])
            ax.set_ylabel(LABELS[statistic] if explainer != "invase" or statistic == "kl" else
                          "selections that changed")
            ax.set_title(f"{name}: {TITLES[explainer]}", loc="left", fontsize=9)
        if statistic == "distance":
            axes[i, 0].set_ylim(0, None)  # the three that share it
            axes[i, -1].set_ylim(0, None)
    if names:
        handles = {label: h for ax in axes.flat for h, label in zip(*ax.get_legend_handles_labels(), strict=True)}
        fig.legend(handles.values(), handles, loc="outside lower center", ncols=3, fontsize=8)
    return fig


def _curve(ax, t, statistic):
    """One curve with its intervals, markers by told or not, and the floor."""
    if t.empty:
        return
    name = "D(non-private || private)" if statistic == "kl" else "distance from the non-private explanation"
    ax.plot(t["epsilon"], t[statistic], "-", color=plots.BLUE, lw=1.2)
    ax.vlines(t["epsilon"], t[f"{statistic}_low"], t[f"{statistic}_high"], color=plots.BLUE, lw=1.2,
              label="95 % interval over the seeds")
    for told, face, words in ((True, plots.BLUE, "told from the reference"), (False, "white", "not told from it")):
        part = t[t["told"] == told]
        ax.plot(part["epsilon"], part[statistic], "o", color=plots.BLUE, mfc=face, label=f"{name}, {words}")
    if statistic == "kl":
        ax.plot(t["epsilon"], t["kl_reverse"], "s:", color=plots.SKY, ms=3, label="D(private || non-private)")
        ax.set_yscale("log")
    ax.axhline(t[f"{statistic}_floor"].iloc[0], color=plots.GREY, ls="--", lw=1,
               label="floor: two halves of the non-private seeds")
    _axis(ax, {e: f"{e:.2g}" for e in t["epsilon"]})


def _protocol_curve(ax, t, rows_):
    """The paper's own protocol beside the curve over seeds."""
    if rows_.empty or t.empty:
        return
    p = privacy.protocol_curve(rows_).merge(t[["noise", "epsilon"]], on="noise").sort_values("epsilon")
    ax.plot(p["epsilon"], p["kl"], "^-", color=plots.ORANGE, ms=4, lw=1,
            label="the paper's own protocol: one classifier per level, five explainer seeds")


def top_figure(frame, dataset, k=8, column="alpha_rank"):
    """The k first features at each level; a feature keeps its colour, strong for those of the non-private k.

    Of INVASE the bars are its mean selection probabilities, as they are.
    """
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
    what = "selection probability" if column == "invase" else "importance"
    fig.supxlabel(what + ", mean and standard error over the seeds" * bool((table["seeds"] > 1).any()), fontsize=9)
    return fig
