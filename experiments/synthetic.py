"""Synthetic study: which method finds the features that made the label? (Table 1, Figure 2, importance values)

A run is a data set x method x seed: fresh data, a fresh g, a fresh explainer, scored by MCC against ground truth. All
methods that explain a g explain the same one: the streams of data and g are named by data set and seed alone.
"""

import functools
import json
import time

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from bifkit import GlobalBIF, LocalBIF, Posterior, plots
from bifkit.evaluation import metrics
from data_prep.seeding import derive, seed_all
from data_prep.synthetic import NAMES, make_synthetic
from experiments import figures
from experiments.models.classifiers import accuracy, mlp, train
from experiments.rivals import attribution
from experiments.rivals_budget import rival
from experiments.runner.rows import finished
from experiments.runner.scoreboard import numbers

SEEDS = range(5)
OURS = ["bifkit (local)", "bifkit (global)"]
PAPER = ["BIF (global)", "BIF (inst, samp)", "BIF (inst, pe)"]  # the literal objective, on the same g
RELEASED = ["released (global)", "released (inst, samp)", "released (inst, pe)"]  # runs of experiments/released.py
RIVALS = ["L2X", "INVASE", "SHAP", "LIME", "SHAP on g", "LIME on g", "LIME on g, near",
          "IntegratedGradients on g"]
BESIDE = ["bifkit few (local)", "bifkit (local, pe)"]  # the other preset; ours without sampling
METHODS = OURS + PAPER + RIVALS + BESIDE
IN_TABLES = OURS + PAPER + RELEASED + RIVALS + BESIDE
PRINTED = [m for m in METHODS if m not in ("LIME on g", "LIME on g, near", *BESIDE)]  # rows for the printed data
LOCAL_ONLY = ("Syn4", "Syn5", "Syn6")  # relevant features vary by row: no global explanation can be right
SLOW = ("LIME", "LIME on g", "LIME on g, near", "SHAP on g")
TITLES = {"bifkit (global)": "bifkit", "BIF (global)": "BIF as printed, same g",
          "released (global)": "BIF as released, its own g"}  # of panels
FEATURES = "feature as run; in brackets its number in the paper's formula. Blue: relevant. Seed 0"
SAMPLE = 100  # test rows of the slow explainers; ours is also scored on them
LIME = {"num_samples": 5000}  # its default


def grid(profile="paper", *, methods=METHODS, names=NAMES, variant="as_run"):
    """The runs of the study: Table 1 whole, or at smoke size two sets, one seed and the fast methods.

    >>> len(grid("smoke")) < 12 < len(grid("paper"))
    True
    """
    rows, seeds = 10_000, SEEDS
    if profile == "smoke":
        rows, seeds, names = 1500, [0], ("Syn2", "Syn3", "Syn4")
        fast = ("bifkit (local)", "bifkit (global)", "SHAP")
        if variant == "as_printed":
            names, fast = names[:1], ("SHAP",)
        methods = [m for m in methods if m in fast]
    return [{"dataset": d, "method": m, "seed": s, "rows": rows, "variant": variant}
            for d in names for s in seeds for m in methods  # a worker meets the same g several times in a row
            if not ("global" in m and d in LOCAL_ONLY)]


@functools.lru_cache(maxsize=1)
def prepared(dataset, seed, rows, variant):
    """(data, g) of one data set and seed, kept for the next run of this worker.

    >>> data, g = prepared("Syn2", 100, 250, "as_run"); data.X_train.shape, g.training
    ((200, 11), False)
    """
    data = make_synthetic(dataset, seed, rows=rows, variant=variant)
    return data, model_of(data, seed)


def model_of(data, seed):
    """The well-trained g that every explainer of this data set and seed explains.

    >>> g = model_of(make_synthetic("Syn2", 100, rows=250), 100); g[0], g.training
    (Linear(in_features=11, out_features=100, bias=True), False)
    """
    seed_all(data.name, seed, "g")
    return train(mlp([data.n_features, 100, 100, 2]), data.X_train, data.y_train, seed=derive(data.name, seed, "g"))


def run(*, dataset, method, seed, rows=10_000, variant="as_run"):
    """One row of Table 1: MCC x 100 of one method on one data set, and what the figures need.

    >>> row = run(dataset="Syn2", method="IntegratedGradients on g", seed=100, rows=250)
    >>> list(row)
    ['mcc', 'mcc_sample', 'mcc_averaged', 'fit_seconds', 'g_accuracy', 'shares']
    """
    data, g = prepared(dataset, seed, rows, variant)
    seed_all(dataset, seed, method)
    test = data.X_test[:SAMPLE] if method in SLOW else data.X_test
    truth = data.truth_test[:len(test)]
    started = time.perf_counter()
    scores, extra = explain(method, g, data, test, seed=seed)
    seconds = time.perf_counter() - started
    per_row = np.broadcast_to(np.atleast_2d(scores), truth.shape)
    return {"mcc": 100 * metrics.mcc(scores, truth),
            "mcc_sample": 100 * metrics.mcc(per_row[:SAMPLE], truth[:SAMPLE]),
            "mcc_averaged": 100 * metrics.mcc(_share(per_row).mean(0), truth), "fit_seconds": seconds,
            "g_accuracy": accuracy(g, data.X_test, data.y_test), "shares": _rounded(_share(per_row).mean(0)), **extra}


def explain(method, g, data, test, *, seed):
    """(scores of the test rows, what else to record) of one method.

    >>> data = make_synthetic("Syn2", 100, rows=200)
    >>> explain("IntegratedGradients on g", mlp([11, 4, 2]), data, data.X_test, seed=100)[0].shape
    (40, 11)
    """
    X, y = data.X_train, data.y_train
    if method.startswith(("bifkit", "BIF")):
        return _bif(method, g, data, test, seed)
    if method in ("L2X", "INVASE"):
        model = rival(method, data.name, seed=seed).fit(X, y)
        scores, own = model.scores(test), 100 * metrics.mcc_of_masks(model.selected(test), data.truth_test)
        return scores, {"mcc_own": own} | ({"selection": _rounded(scores.mean(0))} if method == "INVASE" else {})
    background = X[np.random.default_rng(derive(data.name, seed, "background")).choice(len(X), 100, replace=False)]
    others = {"SHAP": lambda: attribution.shap_tree(X, y, test, seed=seed),
              "LIME": lambda: attribution.lime_forest(X, y, test, seed=seed, **LIME),
              "SHAP on g": lambda: attribution.shap_deep(g, test, background),
              "LIME on g": lambda: attribution.lime_model(g, X, test, seed=seed, **LIME),
              "LIME on g, near": lambda: attribution.lime_model(g, X, test, seed=seed, discretize_continuous=False,
                                                                sample_around_instance=True, **LIME),
              "IntegratedGradients on g": lambda: attribution.integrated_gradients(g, test)}
    if method not in others:
        raise ValueError(f"method must be one of {', '.join(METHODS)}; got {method!r}")
    return others[method](), {}


def _bif(method, g, data, test, seed):
    settings = {"preset": "paper" if method.startswith("BIF") else "few" if "few" in method else "rank",
                "point_estimate": "pe" in method.split("(")[-1]}
    kind = GlobalBIF if "global" in method else LocalBIF
    explainer = kind(g, seed=derive(data.name, seed, method), **settings).fit(data.X_train, data.y_train)
    posterior = explainer.explain(test)
    extra = {} if posterior.is_local else {"alpha": _rounded(posterior.alpha, 5), "sum_sd": float(posterior.sd.sum())}
    return posterior.mean, extra


def _share(scores):
    return scores / np.maximum(scores.sum(-1, keepdims=True), 1e-12)


def _rounded(values, digits=5):
    return [round(float(v), digits) for v in values]


def table1(frame):
    """(mean, standard deviation) of MCC x 100, one row per method, one column per data set.

    >>> frame = pd.DataFrame({"dataset": "Syn1", "method": "bifkit (global)", "seed": [0, 1], "alpha": "[3.0, 1.0]",
    ...                       "mcc": [90.0, 94.0], "sum_sd": 0.5, "error": ""})
    >>> [round(float(part.loc["bifkit (global)", "Syn1"]), 2) for part in table1(frame)]
    [92.0, 2.83]
    """
    by = finished(frame).groupby(["method", "dataset"])["mcc"]
    order = [m for m in IN_TABLES if m in set(frame["method"])]
    return by.mean().unstack().reindex(order), by.std(ddof=1).unstack().reindex(order)


def posterior_of(frame, dataset, seed=0, method="bifkit (global)"):
    """The stored global posterior of one run.

    >>> frame = pd.DataFrame({"dataset": ["Syn1"], "method": "bifkit (global)", "seed": 0, "alpha": "[3.0, 1.0]"})
    >>> posterior_of(frame, "Syn1").to_frame()["mean"].to_dict()
    {'X1': 0.75, 'X2': 0.25}
    """
    row = frame.query("dataset == @dataset and seed == @seed and method == @method").iloc[0]
    alpha = json.loads(row["alpha"])
    return Posterior(alpha, [f"X{i + 1}" for i in range(len(alpha))])


def importance_values(frame, method="bifkit (global)"):
    """Weights of the relevant features of Syn1 and Syn2, renormalised over them; equal is the truth.

    >>> frame = pd.DataFrame({"dataset": ["Syn1"], "method": "bifkit (global)", "seed": 0, "alpha": "[3.0, 1.0, 4.0]"})
    >>> importance_values(frame)["value"].tolist()
    [0.75, 0.25]
    """
    rows = []
    for dataset, relevant in (("Syn1", 2), ("Syn2", 4)):
        for seed in sorted(frame["seed"].unique()):
            if len(frame.query("dataset == @dataset and seed == @seed and method == @method")):
                mean = posterior_of(frame, dataset, seed, method).mean[:relevant]
                rows += [(dataset, f"relevant feature {i + 1}", seed, m) for i, m in enumerate(mean / mean.sum())]
    return pd.DataFrame(rows, columns=["dataset", "feature", "seed", "value"])


def bars(frame):
    """Table 1 as a chart: ours, the paper's method as printed and as released, rivals; diamonds: the paper's values."""
    mean, std = table1(frame)
    colors = {"bifkit (local)": plots.BLUE, "BIF (inst, samp)": plots.ORANGE, "BIF (inst, pe)": plots.YELLOW,
              "released (inst, samp)": "#8C4A00", "released (inst, pe)": "#B8A800",
              "L2X": plots.GREEN, "INVASE": plots.RED, "SHAP": plots.PURPLE, "LIME": plots.GREY, "SHAP on g": plots.SKY}
    shown = [m for m in colors if m in mean.index]
    ax = figures.grouped_bars(mean.loc[shown].T, errors=std.loc[shown].T, ylabel="MCC x 100",
                              ax=plots.axes(size=(9.6, 3.6)), colors=[colors[m] for m in shown],
                              paper=figures.printed("table1", mean.loc[shown]).T)
    ax.legend(ncols=5, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return ax


def numbered(dataset, number):
    """A feature's number as run and, where it made the label, in brackets that of the paper's formula.

    >>> numbered("Syn3", 2), numbered("Syn3", 7)
    ('X2\\n(X8)', 'X7')
    """
    first, relevant = {"Syn1": (1, 2), "Syn2": (3, 4), "Syn3": (7, 4)}[dataset]
    return f"X{number}" + (f"\n(X{first + number - 1})" if number <= relevant else "")


def _globals(frame, dataset):
    """Ours and the paper's method as printed and as released: those that were run on a data set with seed 0."""
    there = frame[(frame["dataset"] == dataset) & (frame["seed"] == 0)]
    return [m for m in TITLES if m in set(finished(there)["method"])]


def figure2(frame):
    """The paper's Figure 2: importances of Syn2 and Syn3 with one posterior standard deviation, seed 0, on one scale.

    Beside ours the paper's method as printed, on the same g, and as released, on a g trained as its authors did. In the
    titles the sum of the standard deviations, which is what the paper prints.
    """
    datasets, methods = ("Syn2", "Syn3"), _globals(frame, "Syn2")
    paper = numbers().query("item == 'fig2'").set_index("row")["value"]
    figure, panels = plt.subplots(2, len(methods), figsize=(4.6 * len(methods), 4.8), layout="constrained",
                                  sharey=True, squeeze=False)
    for row, dataset in zip(panels, datasets, strict=True):
        for ax, method in zip(row, methods, strict=True):
            posterior = posterior_of(frame, dataset, method=method)
            plots.bars(posterior, ax=ax, relevant=range(4), title=f"{dataset}, {TITLES[method]}\nsum of sd "
                       f"{posterior.sd.sum():.2f} (the paper {paper[dataset]:.2f})")
            ax.set_xticks(range(len(posterior.mean)), [numbered(dataset, i + 1) for i in range(len(posterior.mean))])
            ax.set_ylabel("importance (mean and sd)" if ax is row[0] else "")
    posteriors = [posterior_of(frame, d, method=m) for d in datasets for m in methods]
    panels[0, 0].set_ylim(0, 1.05 * max((p.mean + p.sd).max() for p in posteriors))
    figure.supxlabel(FEATURES, fontsize=9)
    return figure


def learned_importance(frame):
    """The supplement's figure: what BIF, SHAP and INVASE give the features of Syn3, seed 0, on one scale.

    Shares sum to one. INVASE has none: its selection probabilities stand as they are.
    """
    shown = [*_globals(frame, "Syn3"), *(m for m in ("SHAP", "INVASE") if m in set(frame["method"]))]
    figure, panels = plt.subplots(len(shown), 1, figsize=(7, 1.75 * len(shown) + 0.4), layout="constrained",
                                  sharex=True, sharey=True, squeeze=False)
    for ax, method in zip(panels[:, 0], shown, strict=True):
        row = frame.query("dataset == 'Syn3' and method == @method and seed == 0").iloc[0]
        raw = isinstance(row.get("selection"), str)
        values = json.loads(row["selection"] if raw else row["shares"])
        ax.bar([numbered("Syn3", i + 1) for i in range(len(values))], values,
               color=[plots.BLUE] * 4 + [plots.GREY] * (len(values) - 4))
        ax.set_title(TITLES.get(method, method), loc="left")
        ax.set_ylabel("selection\nprobability" if raw else "share")
    panels[0, 0].set_ylim(0, 1.05)
    figure.supxlabel(FEATURES, fontsize=9)
    return figure


def scores(frame):
    """What the scoreboard takes: item, row, column, seed, value.

    >>> frame = pd.DataFrame({"dataset": "Syn1", "method": "bifkit (global)", "seed": [0, 1], "alpha": "[3.0, 1.0]",
    ...                       "mcc": [90.0, 94.0], "sum_sd": 0.5, "error": ""})
    >>> scores(frame).groupby("item")["value"].mean().to_dict()
    {'importance_values': 0.5, 'table1': 92.0}
    """
    good = finished(frame)
    table = good[good["method"].isin(OURS + PAPER + RIVALS[:4])]
    out = [pd.DataFrame({"item": "table1", "row": table["method"], "column": table["dataset"], "seed": table["seed"],
                         "value": table["mcc"]})]
    sums = good[(good["method"] == "bifkit (global)") & good["dataset"].isin(["Syn2", "Syn3"])]
    out.append(pd.DataFrame({"item": "fig2", "row": sums["dataset"], "column": "sum of posterior sd",
                             "seed": sums["seed"], "value": sums["sum_sd"]}))
    values = importance_values(good)
    out.append(pd.DataFrame({"item": "importance_values", "row": values["dataset"], "column": values["feature"],
                             "seed": values["seed"], "value": values["value"]}))
    return pd.concat(out, ignore_index=True)
