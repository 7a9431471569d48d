"""The tables, sentences and pictures of the MNIST study, from the rows of :mod:`experiments.mnist`.

Where the digits are absent every function still answers: with empty cells, black pictures or ``not run``.
"""

import json

import numpy as np
import pandas as pd

from bifkit import Posterior, plots
from experiments import figures
from experiments.mnist import ENCODING_KS, IN_TABLES, KS, RIVALS, SHOWN, SHOWN_K, SLOW
from experiments.runner.rows import finished
from experiments.runner.scoreboard import numbers
from experiments.selections import FIXED, SURROGATE

COLUMNS = [f"k={k}" for k in KS]
CELLS = {f"k={k}": (None, k) for k in KS}
ENCODING_CELLS = {f"k={k}": (None, k) for k in ENCODING_KS}
NOT_RIVALS = ("oracle", "INVASE", "LIME, own segments")  # it knows the label; they keep as many patches as they like


def table(frame, score="acc"):
    """(mean, standard deviation) over the seeds, one row per method, one column per k; empty where nothing was run.

    ``score``: acc (the judge), sample (the judge on the slow explainers' sample), mask (what the choice of patches
    alone gives away), patches (how many are kept), evalx_sizes or evalx_half. INVASE has two rows: its own selection,
    which is what the paper scores, and the k patches it finds most probable. The fixed set, which is no explanation,
    is in the tables of EVAL-X alone.
    """
    runs, rows = finished(frame), {}
    for method in [m for m in IN_TABLES if m in set(frame["method"]) and (m != FIXED or "evalx" in score)]:
        part = runs[runs["method"] == method]
        rows[method] = part.reindex(columns=[f"{score}_{k}" for k in KS])
        if method == "INVASE" and score != "sample":
            rows["INVASE, top k"] = part.reindex(columns=[f"top_{score}_{k}" for k in KS])
    return tuple(pd.DataFrame({m: f(v.astype(float)).to_numpy() for m, v in rows.items()}, index=COLUMNS).T
                 for f in (lambda v: v.mean(), lambda v: v.std(ddof=1)))


def verdicts(frame):
    """One row per k: ours, the paper's BIF, the strongest other explainer on the same digits, the oracle.

    ``lead`` is how far that other one is ahead of ours (negative: behind). What chooses its own number of patches
    (INVASE's selection, LIME's segments) competes where it keeps no more than k on average (rounded).
    """
    (mean, _), (on_sample, _), (kept, _) = (table(frame, score) for score in ("acc", "sample", "patches"))
    printed = numbers().query("item == 'mnist' and row == 'BIF'").set_index("column")["value"]
    lead = mean.drop(index=["bifkit", SURROGATE, "oracle"], errors="ignore") - mean.loc["bifkit"]
    for method in [m for m in SLOW if m in lead.index]:
        lead.loc[method] += mean.loc["bifkit"] - on_sample.loc["bifkit"]
    lead = lead.where(kept.loc[lead.index].round() <= np.array(KS))
    best, ours = lead.fillna(-np.inf).idxmax().where(lead.notna().any(), "-"), mean.loc["bifkit"]
    out = pd.DataFrame({"bifkit": ours, "paper": printed, "above the paper": ours > printed, "best other": best,
                        "lead": lead.max(), "best of all": lead.max() <= 0})
    bound = mean.loc["oracle"] if "oracle" in mean.index else np.nan
    return out.assign(oracle=bound, **{"share of the oracle": ours / bound})


def judges(frame):
    """One row per seed: what its judge makes of nothing, the ceiling at k=1, ours, and the best rival's."""
    runs = finished(frame)
    if runs.empty:
        return pd.DataFrame({"not run": []})
    first = runs.pivot(index="seed", columns="method", values="acc_1")
    others = first[[m for m in RIVALS if m in first and m not in SLOW]]
    return pd.DataFrame({"8-ness of a black picture": runs.groupby("seed")["empty"].first(),
                         "judge, whole digits": runs[runs["method"] == "bifkit"].set_index("seed")["judge_accuracy"],
                         "oracle": first.get("oracle"), "bifkit": first["bifkit"], "best rival": others.max(axis=1)})


def certainty(frame):
    """Sentences on where the explanation is unsure, counted from our runs."""
    runs = finished(frame)
    runs = runs[runs["method"] == "bifkit"]
    if runs.empty:
        return ["not run"]
    m = runs[["unsure_2", "sure_2", "spread_3", "spread_8", "unsure_8"]].mean()
    return [f"sum of the standard deviations, mean over digits: 3s {m['spread_3']:.2f}, 8s {m['spread_8']:.2f}",
            f"of the tenth of the digits with the least certain explanation, {m['unsure_8']:.0%} are 8s",
            f"the judge with k=2 reads right: {m['unsure_2']:.1%} of the least certain tenth, "
            f"{m['sure_2']:.1%} of the most certain"]


def chart(frame):
    """The table as a chart: mean and standard deviation over the seeds as points, the paper's values as diamonds."""
    mean, std = table(frame)
    colors = {"bifkit": plots.BLUE, "bifkit rank": plots.SKY, "BIF": plots.ORANGE, "released": "#8C4A00",
              "L2X": plots.GREEN, "INVASE": plots.RED, "SHAP": plots.PURPLE, "oracle": plots.GREY}
    rows = [m for m in colors if m in mean.index]
    ax = figures.grouped_dots(mean.loc[rows].T, errors=std.loc[rows].T, ylabel="accuracy of the judge",
                              colors=[colors[m] for m in rows], paper=figures.printed("mnist", mean.loc[rows]).T)
    ax.legend(ncols=5, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return ax


def shown(frame):
    """The figure: (ten test digits (10, 784), {method: what it keeps (10, 784)}); black where nothing was run."""
    rows = finished(frame).set_index("method")
    rows = rows[rows["figure"]]
    if "bifkit" not in rows.index:
        return np.zeros((SHOWN, 784)), {}
    shown = [m for m in IN_TABLES if m in rows.index and m != FIXED]
    masks = {m: figures.unpack(rows.loc[m, "kept"], (SHOWN, 784)) > 0 for m in shown}
    return figures.unpack(rows.loc["bifkit", "images"], (2 * SHOWN, 784))[:SHOWN], masks


def labels(frame):
    """What the figure's digits are, "3" or "8" each; "not run" where nothing was run."""
    rows = finished(frame)
    rows = rows[rows["figure"] & (rows["method"] == "bifkit")]
    return ["38"[i] for i in json.loads(rows["labels"].iloc[0])[:SHOWN]] if len(rows) else ["not run"] * SHOWN


def patches_figure(frame):
    """What every method keeps of five 3s and five 8s (the paper's qualitative figure)."""
    images, masks = shown(frame)
    names = {"INVASE": "INVASE (its own number)", "oracle": "oracle (as many as needed)"}
    return figures.kept_patches(images, {names.get(m, m): mask for m, mask in masks.items()}, titles=labels(frame),
                                kept=f"k = {SHOWN_K} of 49")


def unsure(frame):
    """The second picture: (images, local Posterior, titles) of the five least and the five most certain digits."""
    names = [f"patch {i}" for i in range(49)]
    rows = finished(frame)
    rows = rows[rows["figure"] & (rows["method"] == "bifkit")]
    if rows.empty:
        return np.zeros((SHOWN, 784)), Posterior(np.ones((SHOWN, 49)), names), ["not run"] * SHOWN
    row = rows.iloc[0]
    posterior = Posterior(np.array(json.loads(row["alpha"]))[SHOWN:], names)
    half = SHOWN // 2 * ["least certain"] + SHOWN // 2 * ["most certain"]
    titles = [f"{'38'[label]}, {spread:.2f}\n{which}" for label, spread, which
              in zip(json.loads(row["labels"])[SHOWN:], posterior.sd.sum(1), half, strict=True)]
    return figures.unpack(row["images"], (2 * SHOWN, 784))[SHOWN:], posterior, titles


def scores(frame):
    """What the scoreboard takes: item, row, column, seed, value; INVASE as in the paper, its own selection."""
    out = [("mnist", row["method"], f"k={k}", row["seed"], row[f"acc_{k}"])
           for row in finished(frame).to_dict("records") if row["method"] not in ("oracle", FIXED) for k in KS]
    return pd.DataFrame(out, columns=["item", "row", "column", "seed", "value"])
