"""Counting: how many features matter for a row, when nobody says? (notebook 07)

Table 1 gives every method each row's true number of relevant features. Here none is given. Our rule is
``posterior.relevant()``: **a feature matters when its importance probably exceeds half an equal share**,
P(f_i > 1 / (2 D)) > p, with the same p for all data sets. It was chosen on development seeds (100 and up), where
``development`` shows what other values and other rules score. The reported seeds see the package's default alone.

Rivals: INVASE selects by itself, a feature where its selection probability exceeds one half. L2X cannot: it is *given*
k, either each row's own true number (which no user has) or one k for all rows (its published way). With k given, the
number of selected cells is known, and the stored MCC determines precision and recall exactly (``from_mcc``): nothing
is trained again. INVASE's are known that way only where its MCC is 100; on Syn3-6 it is trained again, on two seeds.

Published numbers (``PUBLISHED``) are those of INVASE's own paper on Syn4-6, which are generated alike here, and the
best published AUC after selection (INVASE, TabNet). Ours is the AUC of a network that is trained on the rows with all
features but the selected ones set to zero, and judged on test rows treated alike. Like theirs it lets a selection tell
the label by where it looks.
"""

import inspect
import json

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from bifkit import LocalBIF, Posterior, plots
from bifkit.evaluation.metrics import mcc, top_k_mask
from data_prep.seeding import derive, seed_all
from data_prep.synthetic import NAMES, make_synthetic
from experiments.models.classifiers import mlp, predict_proba, train
from experiments.rivals_budget import rival
from experiments.runner import paths
from experiments.runner.rows import finished
from experiments.synthetic import prepared

DEFAULT = inspect.signature(Posterior.relevant).parameters["prob"].default
PS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)  # candidates for p
OTHERS = {  # rule: features of each row, bool (N, D)
    "P(f > 1/D) > 0.3": lambda q: q.probability_above() > 0.3,
    "P(f > 1/D) > 0.5": lambda q: q.probability_above() > 0.5,
    "mean > 1/D": lambda q: q.mean > 1 / q.mean.shape[1],
    "largest gap of log importance": lambda q: top_k_mask(q.mean, np.diff(-np.sort(-np.log(q.mean))).argmin(1) + 1),
    "exp(entropy of the mean)": lambda q: top_k_mask(q.mean, q.effective_features.round().astype(int)),
}
DEVELOPMENT, SEEDS, INVASE_SEEDS = (100, 101, 102), (0, 1, 2, 3, 4), (0, 1)
OURS, OWN, GIVEN = "bifkit", "bifkit, own number", "bifkit, given each row's k"
MARKS = {OWN: "o", "INVASE": "s", "L2X, given each row's k": "^", "L2X, given one k": "v"}
SCORES = ["precision", "recall", "mcc"]
PUBLISHED = {"Syn4": (99.8, 10.3), "Syn5": (84.8, 1.1), "Syn6": (90.1, 7.4)}  # INVASE's paper: TPR and FDR in %
PUBLISHED_AUC = {"Syn4": 0.787, "Syn5": 0.789, "Syn6": 0.878}  # the best published, INVASE or TabNet


def grid(profile="paper"):
    """Our fits on development and reported seeds, INVASE's on two; smoke: one set, one seed of each kind, ours."""
    if profile == "smoke":
        return [{"dataset": "Syn4", "method": OURS, "seed": s, "rows": 1000} for s in (100, 0)]
    ours = [{"dataset": d, "method": OURS, "seed": s, "rows": 10_000} for d in NAMES for s in (*DEVELOPMENT, *SEEDS)]
    return ours + [{"dataset": d, "method": "INVASE", "seed": s, "rows": 10_000}
                   for d in NAMES[2:] for s in INVASE_SEEDS]


def run(*, dataset, method, seed, rows=10_000):
    """One row: for each rule the cells [true positive, false positive, false negative], and rows of right number.

    Ours has the rule with every candidate p and the other rules; INVASE its own selection.
    """
    if method == "INVASE":
        data = make_synthetic(dataset, seed, rows=rows)
        seed_all(dataset, seed, method)  # the stream of Table 1's run
        model = rival(method, dataset, seed=seed).fit(data.X_train, data.y_train)
        masks, extra = {"own": model.selected(data.X_test)}, {}
    else:
        data, g = prepared(dataset, seed, rows, "as_run")
        short = {"epochs": 1, "min_steps": 100} if rows < 5000 else {}  # toy size
        explainer = LocalBIF(g, seed=derive(dataset, seed, "bifkit (local)"), **short)
        posterior = explainer.fit(data.X_train, data.y_train).explain(data.X_test)
        masks = {str(p): posterior.relevant(p).mask for p in PS} | {n: rule(posterior) for n, rule in OTHERS.items()}
        extra = {"mcc_oracle": 100 * mcc(posterior.mean, data.truth_test),
                 "auc": _auc(data, explainer.explain(data.X_train).relevant().mask, posterior.relevant().mask, seed)}
    truth = data.truth_test
    return {"counts": {n: _counts(m, truth) for n, m in masks.items()}, "cells": int(truth.size), **extra}


def _auc(data, train_mask, test_mask, seed):
    """AUC on the test rows of a network that sees the selected features alone, the others being zero."""
    seed_all(data.name, seed, "after selection")
    g = train(mlp([data.n_features, 100, 100, 2]), data.X_train * train_mask, data.y_train,
              seed=derive(data.name, seed, "after selection"))
    return float(roc_auc_score(data.y_test, predict_proba(g, data.X_test * test_mask)[:, 1]))


def _counts(mask, truth):
    right = (mask.sum(1) == truth.sum(1)).sum()
    return [int((mask & truth).sum()), int((mask & ~truth).sum()), int((~mask & truth).sum()), int(right)]


def scores_of(tp, fp, fn, cells) -> dict:
    """Precision, recall and MCC, x 100, from counts; nothing selected has precision 0."""
    tp, fp, fn = float(tp), float(fp), float(fn)
    selected, relevant_ = tp + fp, tp + fn
    root = np.sqrt(selected * relevant_ * (cells - selected) * (cells - relevant_))
    return {"precision": 100 * tp / selected if selected else 0.0, "recall": 100 * tp / relevant_,
            "mcc": 100 * (tp * cells - selected * relevant_) / root if root else 0.0}


def from_mcc(value, selected, relevant_, cells) -> dict:
    """Precision and recall, x 100, from MCC x 100 when the number of selected cells is known (k was given).

    MCC = (TP T - S R) / sqrt(S R (T - S)(T - R)) with S selected and R relevant of T cells, solved for TP.
    """
    selected, relevant_ = float(selected), float(relevant_)  # the product below would overflow an integer
    root = np.sqrt(selected * relevant_ * (cells - selected) * (cells - relevant_))
    tp = (value / 100 * root + selected * relevant_) / cells
    return {"precision": 100 * tp / selected, "recall": 100 * tp / relevant_, "mcc": float(value)}


def long(frame) -> pd.DataFrame:
    """One row per run and rule (each candidate p is one): precision, recall, MCC, rows whose number is right (%)."""
    rows = []
    for r in finished(frame).itertuples():
        for rule, (tp, fp, fn, right) in json.loads(r.counts).items():
            rows.append({"dataset": r.dataset, "method": r.method, "seed": r.seed, "rule": rule,
                         **scores_of(tp, fp, fn, r.cells), "number right": 100 * right / (r.rows // 5)})
    return pd.DataFrame(rows)


def development(frame) -> pd.Series:
    """Mean MCC x 100 over the sets and development seeds: the rule with every candidate p, then the other rules."""
    found = long(frame)
    found = found[(found["method"] == OURS) & found["seed"].isin(DEVELOPMENT)]
    by = found.groupby("rule")["mcc"].mean().reindex([*map(str, PS), *OTHERS])
    return by.rename(lambda rule: rule if rule in OTHERS else f"P(f > 1/2D) > {rule}")


def published(frame) -> pd.DataFrame:
    """Syn4-6, in %: our own number beside INVASE's published TPR and FDR, and AUC beside the best published."""
    found = everyone(frame)
    ours = found[found["method"] == OWN].groupby("dataset")[SCORES].mean()
    auc = finished(frame).query("method == @OURS and seed in @SEEDS").groupby("dataset")["auc"].mean()
    rows = {}
    for name in [n for n in PUBLISHED if n in ours.index]:
        truth = make_synthetic(name, 0).truth_test
        tpr, fdr = PUBLISHED[name]
        tp = tpr / 100 * truth.sum()
        theirs = scores_of(tp, tp * fdr / (100 - fdr), truth.sum() - tp, truth.size)["mcc"]
        rows[name] = {"TPR, ours": ours.loc[name, "recall"], "TPR, INVASE": tpr,
                      "FDR, ours": 100 - ours.loc[name, "precision"], "FDR, INVASE": fdr,
                      "MCC, ours": ours.loc[name, "mcc"], "MCC, INVASE": theirs,
                      "AUC, ours": 100 * auc[name], "AUC, best published": 100 * PUBLISHED_AUC[name]}
    return pd.DataFrame(rows).T


def given_k() -> pd.DataFrame:
    """L2X with k given, and INVASE's own MCC, from the synthetic study's stored rows; empty where it has none."""
    file = paths.results() / "synthetic.csv"
    stored = finished(pd.read_csv(file, dtype={"error": str})) if file.exists() else pd.DataFrame({"method": []})
    rows = []
    for r in stored[stored["method"].isin(["L2X", "INVASE"])].itertuples():
        truth = make_synthetic(r.dataset, r.seed, rows=r.rows, variant=r.variant).truth_test
        key = {"dataset": r.dataset, "seed": r.seed}
        if r.method == "L2X":
            k = rival("L2X", r.dataset).k * len(truth)
            given = from_mcc(r.mcc, truth.sum(), truth.sum(), truth.size)
            rows.append({"method": "L2X, given each row's k", **key, **given})
            rows.append({"method": "L2X, given one k", **key, **from_mcc(r.mcc_own, k, truth.sum(), truth.size)})
        else:
            known = 100.0 if r.mcc_own > 99.999 else np.nan
            rows.append({"method": "INVASE", **key, "precision": known, "recall": known, "mcc": r.mcc_own})
    return pd.DataFrame(rows, columns=["method", "dataset", "seed", *SCORES])


def everyone(frame) -> pd.DataFrame:
    """One row per method, data set and reported seed: ours by relevant(), ours given k, the rivals.

    INVASE's MCC is the stored one (five seeds), its precision and recall those of the runs trained again (two).
    """
    found = long(frame)
    ours = found[(found["method"] == OURS) & (found["rule"] == str(DEFAULT)) & found["seed"].isin(SEEDS)]
    oracle = finished(frame).query("method == @OURS and seed in @SEEDS")
    given = [from_mcc(r.mcc_oracle, *_sizes(r), r.cells) for r in oracle.itertuples()]
    oracle = oracle[["dataset", "seed"]].reset_index(drop=True).join(pd.DataFrame(given))
    again = found[found["method"] == "INVASE"].set_index(["dataset", "seed"])
    rivals = given_k()
    for i, r in rivals[rivals["method"] == "INVASE"].iterrows():
        if (key := (r["dataset"], r["seed"])) in again.index:
            rivals.loc[i, ["precision", "recall"]] = again.loc[key, ["precision", "recall"]].to_numpy()
    parts = [ours.drop(columns="rule").assign(method=OWN), oracle.assign(method=GIVEN), rivals]
    return pd.concat([q for q in parts if len(q)], ignore_index=True)


def _sizes(row):
    tp, _, fn, _ = next(iter(json.loads(row.counts).values()))
    return tp + fn, tp + fn


def disagreement(frame) -> float:
    """Largest gap between the MCC of INVASE trained again and the stored one: they are the same runs."""
    again, stored = long(frame).query("method == 'INVASE'"), given_k().query("method == 'INVASE'")
    both = again.merge(stored, on=["dataset", "seed"], suffixes=("", "_stored"))
    return float((both["mcc"] - both["mcc_stored"]).abs().max()) if len(both) else 0.0


def table(frame) -> pd.DataFrame:
    """Means over the seeds: one row per method and score, one column per data set, and the mean over the sets."""
    means = everyone(frame).groupby(["method", "dataset"], sort=False)[SCORES].mean()
    wide = means.stack().unstack("dataset")
    wide = wide.reindex(columns=[n for n in NAMES if n in wide])
    return wide.assign(mean=wide.mean(axis=1))


def figure(frame, *, ax=None):
    """Precision against recall, one point per method and data set, published ones white; the rule's curve over p."""
    found = long(frame)
    ours = found[(found["method"] == OURS) & found["seed"].isin(SEEDS)]
    ax = plots.axes(ax, (7.8, 4.2))
    sets = [n for n in NAMES[2:] if n in set(ours["dataset"])]
    colors = dict(zip(sets, plots.PALETTE, strict=False))
    points = everyone(frame).groupby(["method", "dataset"])[SCORES].mean()
    for name in sets:
        curve = ours[(ours["dataset"] == name)].groupby("rule")[["recall", "precision"]].mean().loc[list(map(str, PS))]
        ax.plot(curve["recall"], curve["precision"], color=colors[name], lw=1.2)
        for method, mark in MARKS.items():
            same = method == "L2X, given one k" and name in ("Syn3", "Syn6")  # all rows have that k: the other triangle
            if (method, name) in points.index and not same:
                x, y = points.loc[(method, name), ["recall", "precision"]]
                ax.plot(x, y, mark, color=colors[name], ms=8, mec="black" if method == OWN else colors[name])
        if name in PUBLISHED:
            tpr, fdr = PUBLISHED[name]
            ax.plot(tpr, 100 - fdr, "s", mfc="white", mec=colors[name], mew=1.6, ms=8)
    ax.set_xlabel("recall: relevant features that are found (%)")
    ax.set_ylabel("precision: found features that are relevant (%)")
    ax.grid(alpha=0.3)
    by_set = [ax.plot([], [], color=c, lw=3, label=n)[0] for n, c in colors.items()]
    by_method = [ax.plot([], [], m, color=plots.GREY, ms=7, label=n, mec="black" if n == OWN else plots.GREY)[0]
                 for n, m in MARKS.items()]
    theirs = ax.plot([], [], "s", mfc="white", mec=plots.GREY, mew=1.6, ms=7, label="INVASE, its paper's figures")
    rule = ax.plot([], [], color=plots.GREY, lw=1.2, label=f"bifkit, p = {min(PS):g} (right) to {max(PS):g}")
    ax.legend(handles=[*by_set, *by_method, *theirs, *rule], loc="center left", bbox_to_anchor=(1.0, 0.5))
    return ax


def findings(frame) -> list[str]:
    """What the numbers say, each line computed: the price of not being given k, and who is ahead of whom.

    Differences are paired by seed; ahead and behind mean by more than two standard errors.
    """
    runs = everyone(frame).set_index(["method", "dataset", "seed"])["mcc"]
    means = runs.groupby(["method", "dataset"], sort=False).mean().unstack("dataset")
    ours, given = means.loc[OWN], means.loc[GIVEN]
    lines = ["not being given k costs us " + ", ".join(f"{n} {given[n] - ours[n]:.1f}" for n in ours.index)]
    for rival_ in [m for m in means.index if not m.startswith("bifkit")]:
        by = (runs[OWN] - runs[rival_]).groupby("dataset")
        gap, se = by.mean(), by.std(ddof=1).fillna(0) / np.sqrt(by.count())
        groups = {"ahead on": gap > 2 * se + 1e-9, "behind on": gap < -2 * se - 1e-9}
        groups["level on"] = ~(groups["ahead on"] | groups["behind on"])
        verdict = "; ".join(f"{k} {', '.join(gap.index[v])}" for k, v in groups.items() if v.any())
        each = ", ".join(f"{n} {gap[n]:+.1f} ± {se[n]:.1f}" for n in gap.index)
        lines.append(f"our own number against {rival_}: {verdict} ({each})")
    right = long(frame)
    right = right[(right["method"] == OURS) & (right["rule"] == str(DEFAULT)) & right["seed"].isin(SEEDS)]
    by = right.groupby("dataset")["number right"].mean()
    right = ", ".join(f"{n} {v:.0f}" for n, v in by.items())
    return [*lines, f"rows whose number of features is exactly right (%): {right}"]
