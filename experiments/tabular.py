"""Tabular study: how well does g still predict with the k features a method keeps? (Table 2, the supplement's spread)

A run is a data set x method x seed: a fresh split, a fresh g, a fresh explainer. Every feature outside a row's top k
is set to its mean, and the accuracy of the same frozen g is taken on the test rows, for k = 1, 3, 5: *local*, each
row with its own features, and *global*, one ranking for all rows. A global ranking is GlobalBIF's for BIF, and for
the other methods the average over rows of what they return (section 5.2): choices for L2X, selection probabilities
for INVASE, ranks for LIME, attributions for the rest.

Two searches stand beside the methods. ``greedy search`` sees what an explainer may see: the training rows (global),
g's own prediction of the row (local). ``oracle`` sees the test labels: what it does not reach, no explanation of
this g can. LIME and DeepExplainer explain a fixed sample of test rows; every method is scored on that sample too.
"""

import dataclasses
import functools
import json
import time

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.stats import rankdata

from bifkit import GlobalBIF, LocalBIF, Posterior, evaluation, masked_surrogate, plots
from bifkit.evaluation import metrics
from data_prep import adult, credit, intrusion
from data_prep.seeding import derive, seed_all
from experiments import figures, selections
from experiments.models.classifiers import accuracy, mlp, train
from experiments.rivals import attribution
from experiments.rivals_budget import rival
from experiments.runner import report
from experiments.runner.rows import finished, not_run
from experiments.runner.scoreboard import numbers
from experiments.selections import FIXED, SURROGATE
from experiments.subset_search import search

DATASETS = {"Adult": adult.load_adult, "Credit": credit.load_credit, "Intrusion": intrusion.load_intrusion}
FEATURES = {"Adult": adult.FEATURES, "Credit": credit.FEATURES, "Intrusion": intrusion.FEATURES}
KS = (1, 3, 5)
KINDS = ("local", "global")
COLUMNS = [f"{d} k={k}" for d in DATASETS for k in KS]
SEEDS = range(5)
OURS = {  # method: explainer settings; one preset for the whole table, the other one and the paper's beside it
    "bifkit": {"preset": "few"},
    SURROGATE: {"preset": "few", "surrogate": True},  # explains a stand-in for g that has seen masks
    "bifkit rank": {"preset": "rank"},
    "BIF": {"preset": "paper", "point_estimate": True, "kl_weight": 0.0},  # supplement: no sampling, no KL
}
RIVALS = ["L2X", "INVASE", "SHAP", "LIME", "SHAP on g", "LIME on g", "IntegratedGradients on g"]
SLOW = ["LIME", "SHAP on g", "LIME on g"]  # explain only the sample
SEARCHES = ["greedy search", "oracle"]
METHODS = [*OURS, *RIVALS, *SEARCHES, FIXED]
RELEASED = ["released", "released, our g judges"]  # runs of experiments/released.py
IN_TABLES = [*OURS, *RELEASED, *RIVALS, *SEARCHES, FIXED]
CELLS = {f"{d} k={k}": (d, k) for d in DATASETS for k in KS}
SAMPLE = 300
ROWS, TEST_ROWS = 27_000, 7_000  # Adult and Credit whole
PART = {"Intrusion": 12_000}  # a random part of 175958; on development seeds 10000 rows explained as well as 27000


def grid(profile="paper", *, methods=METHODS, datasets=DATASETS, seeds=SEEDS):
    """The runs of the study: Table 2 whole, or at smoke size one seed, few rows and the fast methods.

    >>> len(grid("smoke")) < 20 < len(grid("paper"))
    True
    """
    rows, test_rows = ROWS, TEST_ROWS
    if profile == "smoke":
        rows, test_rows, seeds = 1000, 500, [0]
        methods = [m for m in methods if m in ("bifkit", SURROGATE, "SHAP", "greedy search", FIXED)]
    return [{"dataset": d, "method": m, "seed": s, "rows": min(rows, PART.get(d, rows)), "test_rows": test_rows}
            for d in datasets for s in seeds for m in methods]  # a worker meets the same g several times in a row


def data_of(dataset, seed, rows=ROWS, test_rows=TEST_ROWS):
    """The data of one data set and seed, at most ``rows`` and ``test_rows``: the split is in random order."""
    data = DATASETS[dataset](seed)
    return dataclasses.replace(data, X_train=data.X_train[:rows], y_train=data.y_train[:rows],
                               X_test=data.X_test[:test_rows], y_test=data.y_test[:test_rows])


@functools.lru_cache(maxsize=1)
def prepared(dataset, seed, rows=ROWS, test_rows=TEST_ROWS):
    """(data, g) of one data set and seed: the g that every method is judged by, and that most explain.

    The recipe is that of the synthetic study, one for all data sets. Kept for the next run of this worker; data and g
    have streams of their own.

    >>> from unittest import mock
    >>> from data_prep.synthetic import make_synthetic
    >>> with mock.patch.dict(DATASETS, Toy=lambda seed: make_synthetic("Syn2", seed, rows=250)):
    ...     data, g = prepared("Toy", 100, rows=200, test_rows=40)
    >>> data.X_train.shape, data.X_test.shape, g.training
    ((200, 11), (40, 11), False)
    """
    data = data_of(dataset, seed, rows, test_rows)
    seed_all(dataset, seed, "g")
    g = mlp([data.n_features, 100, 100, data.n_classes])
    return data, train(g, data.X_train, data.y_train, seed=derive(dataset, seed, "g"))


@functools.lru_cache(maxsize=1)
def evaluators(dataset, seed, rows=ROWS, test_rows=TEST_ROWS):
    """The judges of EVAL-X of one data set and seed, and their fixed sets: the same for every method."""
    data, _ = prepared(dataset, seed, rows, test_rows)
    return selections.evaluators(data.X_train, data.y_train, KS, fill="zero", seed=derive(dataset, seed, "evaluator"))


def run(*, dataset, method, seed, rows=ROWS, test_rows=TEST_ROWS):
    """One method on one data set and seed: post-hoc accuracies in percent, and what the other tables need.

    >>> from unittest import mock
    >>> from data_prep.synthetic import make_synthetic
    >>> with mock.patch.dict(DATASETS, Toy=lambda seed: make_synthetic("Syn2", seed, rows=250)):
    ...     row = run(dataset="Toy", method="IntegratedGradients on g", seed=100, rows=200, test_rows=40)
    >>> {"local_1", "global_5", "evalx_half_3", "mask_1"} <= set(row), len(row["top"])
    (True, 3)
    """
    data, g = prepared(dataset, seed, rows, test_rows)
    seed_all(dataset, seed, method)
    test = data.X_test[:SAMPLE] if method in SLOW else data.X_test
    started = time.process_time()
    if method == FIXED:  # the set of one evaluator; below, each is judged by its own
        overall, extra = dict.fromkeys(KS, evaluators(dataset, seed, rows, test_rows)[1]["sizes"]), {}
        local = {k: np.broadcast_to(scores, test.shape) for k, scores in overall.items()}
    else:
        local, overall, extra = explain(method, g, data, test, seed=seed)
    seconds = {"explain_seconds": round(time.process_time() - started, 2)}
    return seconds | scored(method, g, data, test, local, overall, evaluators(dataset, seed, rows, test_rows)) | extra


def scored(method, g, data, test, local, overall, judges):
    """Post-hoc accuracies by ``g``, EVAL-X and mask-only accuracy in percent, and the features a method puts first.

    Parameters
    ----------
    method : str
        One of ``IN_TABLES``.
    g : Module
        The judge of post-hoc accuracy.
    data : Dataset
        Where the rows come from.
    test : array (N, D)
        The explained test rows, the first of ``data``.
    local, overall : dict
        {k: scores (N, D)} and {k: scores (D,)}.
    judges : tuple
        What ``evaluators`` returns.
    """
    y, names, (judges, fixed), out = data.y_test[:len(test)], np.array(data.feature_names), judges, {}
    for k in KS:
        out[f"local_{k}"] = 100 * metrics.post_hoc_accuracy(g, test, y, local[k], k)
        out[f"local_{k}_sample"] = 100 * metrics.post_hoc_accuracy(g, test[:SAMPLE], y[:SAMPLE], local[k][:SAMPLE], k)
        out[f"global_{k}"] = 100 * metrics.post_hoc_accuracy(g, data.X_test, data.y_test, overall[k], k)
        out[f"mask_{k}"] = 100 * _mask_only(local[k], y, k)
        masks = fixed if method == FIXED else metrics.top_k_mask(local[k], k)
        out |= selections.scores(judges, test, y, masks, k, sample=slice(SAMPLE), unit=100.0,
                                 encoding=method not in SLOW)
    top = names[np.argsort(-overall[3], kind="stable")[:3]]
    share = metrics.top_k_mask(local[3], 3).mean(0)
    shares = {str(names[i]): round(float(share[i]), 3) for i in np.argsort(-share, kind="stable")[:5]}
    return out | {"majority": 100 * np.bincount(data.y_test).max() / len(data.y_test), "top": top.tolist(),
                  "g_accuracy": 100 * accuracy(g, data.X_test, data.y_test), "shares": shares}


def explain(method, g, data, test, *, seed):
    """({k: scores of the test rows}, {k: scores for all rows}, what else to record) of one method.

    >>> from data_prep.synthetic import make_synthetic
    >>> data = make_synthetic("Syn2", 100, rows=200)
    >>> local, overall, _ = explain("IntegratedGradients on g", mlp([11, 4, 2]), data, data.X_test, seed=100)
    >>> local[1].shape, overall[1].shape
    ((40, 11), (11,))
    """
    X, y = data.X_train, data.y_train
    if method in OURS:
        return _bif(method, g, data, test, seed)
    if method in SEARCHES:
        return *search(g, data, test, KS, sees_labels=method == "oracle"), {}
    if method == "L2X":  # one model per k
        models = {k: rival("L2X", data.name, k=k, seed=seed).fit(X, y) for k in KS}
        chosen = {k: m.selected(test).mean(0) for k, m in models.items()}
        return {k: m.scores(test) for k, m in models.items()}, chosen, {}
    background = X[np.random.default_rng(derive(data.name, seed, "background")).choice(len(X), 100, replace=False)]
    others = {"INVASE": lambda: rival("INVASE", data.name, seed=seed).fit(X, y).scores(test),
              "SHAP": lambda: attribution.shap_tree(X, y, test, seed=seed),
              "LIME": lambda: attribution.lime_forest(X, y, test, seed=seed, num_samples=500),
              "SHAP on g": lambda: attribution.shap_deep(g, test, background),
              "LIME on g": lambda: attribution.lime_model(g, X, test, seed=seed),
              "IntegratedGradients on g": lambda: attribution.integrated_gradients(g, test)}
    if method not in others:
        raise ValueError(f"method must be one of {', '.join(METHODS)}; got {method!r}")
    scores = others[method]()
    overall = (rankdata(scores, axis=1) if method.startswith("LIME") else scores).mean(0)
    return dict.fromkeys(KS, scores), dict.fromkeys(KS, overall), {}


def _bif(method, g, data, test, seed):
    settings = {name: value for name, value in OURS[method].items() if name != "surrogate"}
    if "surrogate" in OURS[method]:  # one for both
        g = masked_surrogate(g, data.X_train, data.y_train, seed=derive(data.name, seed, "surrogate"), progress=False)
    fits = [kind(g, seed=derive(data.name, seed, method), feature_names=data.feature_names, **settings)
            .fit(data.X_train, data.y_train).explain(test) for kind in (LocalBIF, GlobalBIF)]
    alpha = [round(float(a), 5) for a in fits[1].alpha]
    agreement = {f"surrogate_{n}": 100 * v for n, v in getattr(g, "fidelity_", {}).items() if "agreement" in n}
    return dict.fromkeys(KS, fits[0].mean), dict.fromkeys(KS, fits[1].mean), {"alpha": alpha, **agreement}


def _mask_only(scores, y, k):
    """Accuracy of a classifier that learns from the masks of half the rows and reads those of the others."""
    return evaluation.mask_only(metrics.top_k_mask(scores, k), y, train=np.arange(len(y)) < len(y) // 2)


def tidy(frame):
    """One row per cell and seed: method, kind, dataset, k, column, seed, value, that on the sample, mask-only accuracy.

    >>> frame = pd.DataFrame({"dataset": ["Adult"], "method": "bifkit", "seed": 100, "error": "", "local_1": 80.0,
    ...                       "global_1": 78.0})
    >>> tidy(frame).query("k == 1")[["kind", "column", "value"]].values.tolist()
    [['local', 'Adult k=1', 80.0], ['global', 'Adult k=1', 78.0]]
    """
    good, parts = finished(frame), []
    good = good[good["method"] != FIXED]  # no explanation: it stands in the tables of EVAL-X alone
    for kind in KINDS:
        for k in KS:
            name = f"{kind}_{k}"
            parts.append(pd.DataFrame({
                "method": good["method"], "kind": kind, "dataset": good["dataset"], "k": k,
                "column": good["dataset"] + f" k={k}", "seed": good["seed"], "value": good.get(name, np.nan),
                "sample": good.get(f"{name}_sample", good.get(name, np.nan)),
                "mask": good.get(f"mask_{k}", np.nan) if kind == "local" else np.nan}))
    return pd.concat(parts, ignore_index=True)


def table2(frame, kind, value="value"):
    """(mean, standard deviation) over seeds of one half of Table 2: one row per method, one column per data set and k.

    >>> frame = pd.DataFrame({"dataset": ["Adult"], "method": "bifkit", "seed": 100, "error": "", "local_1": 80.0,
    ...                       "global_1": 78.0})
    >>> table2(frame, "local")[0].loc["bifkit (local)", "Adult k=1"]
    np.float64(80.0)
    """
    cells = tidy(frame).query("kind == @kind")
    by = cells.assign(row=cells["method"] + f" ({kind})").groupby(["row", "column"])[value]
    order = [f"{m} ({kind})" for m in IN_TABLES if m in set(frame["method"]) and m != FIXED]
    return tuple(part.unstack().reindex(index=order, columns=COLUMNS).rename_axis(index=None, columns=None)
                 for part in (by.mean(), by.std(ddof=1)))


def shown(frame, kind):
    """One half of Table 2 as text, the paper's value in brackets; local: ours on the slow methods' sample as well.

    >>> frame = pd.DataFrame({"dataset": ["Adult"], "method": "BIF", "seed": 100, "error": "", "global_1": 78.0})
    >>> shown(frame, "global").loc["BIF (global)", "Adult k=1"]
    '78.0 [78.2]'
    """
    mean, std = table2(frame, kind)
    if kind == "local":
        for part, sample in zip((mean, std), table2(frame, kind, "sample"), strict=True):
            part.loc["bifkit, on the sample"] = sample.loc["bifkit (local)"]
    return blank(report.beside(mean, std, "table2"), frame)


def blank(table, frame):
    """The table with ``not run`` in the columns of data sets that are absent.

    >>> table = pd.DataFrame({f"Adult k={k}": [80.0] for k in KS})
    >>> blank(table, pd.DataFrame({"dataset": ["Adult"], "error": ["not run: no network"]})).iloc[0].tolist()
    ['not run', 'not run', 'not run']
    """
    table = table.astype(object)
    for name in not_run(frame):
        table[[f"{name} k={k}" for k in KS]] = "not run"
    return table


def evalx(frame, score):
    """(mean, standard deviation) over seeds of a column of EVAL-X, ``score`` with {k} in it; ours on the sample too.

    >>> frame = pd.DataFrame({"dataset": ["Adult"], "method": "bifkit", "seed": 100, "error": "", "evalx_half_1": 81.0})
    >>> evalx(frame, "evalx_half_{k}")[0].loc["bifkit", "Adult k=1"]
    np.float64(81.0)
    """
    parts = selections.table(frame, score, CELLS, IN_TABLES)
    samples = selections.table(frame, score + "_sample", CELLS, [SURROGATE])
    if samples[0].notna().any(axis=None):
        for part, sample in zip(parts, samples, strict=True):
            part.loc[f"{SURROGATE}, on the sample"] = sample.loc[SURROGATE]
    return parts


def models(frame):
    """What g reaches with all features, and what the majority class gives, one column per data set.

    >>> frame = pd.DataFrame({"dataset": ["Adult"], "error": "", "g_accuracy": 85.0, "majority": 76.0})
    >>> models(frame)["Adult"].to_dict()
    {'g with all features': 85.0, 'majority class': 76.0}
    """
    good = finished(frame)
    by = good.reindex(columns=["dataset", "g_accuracy", "majority"]).groupby("dataset").mean()
    return by.reindex(DATASETS).T.round(1).set_axis(["g with all features", "majority class"]).rename_axis(columns=None)


def verdicts(frame):
    """One row per cell of Table 2: ours, the paper's BIF, the strongest other explainer on the same rows, the bounds.

    ``lead`` is how far the strongest other explainer is ahead of ours (negative: behind), ``error`` the standard error
    of its mean over seeds. A cell is ``bounded`` when even the oracle with this g stays below the paper's BIF.

    >>> frame = pd.DataFrame({"dataset": ["Adult"], "method": "bifkit", "seed": 100, "error": "", "local_1": 80.0,
    ...                       "global_1": 78.0})
    >>> cell = verdicts(frame).iloc[0]; cell["kind"], cell["column"], bool(cell["at least paper"])
    ('local', 'Adult k=1', True)
    """
    paper, lines = numbers().query("item == 'table2'").set_index(["row", "column"])["value"], []
    for (kind, column), part in tidy(frame).groupby(["kind", "column"]):
        value, sample = (part.pivot(index="seed", columns="method", values=v) for v in ("value", "sample"))
        others = [m for m in [*OURS, *RIVALS] if m in value and m not in ("bifkit", SURROGATE)]
        lead = pd.Series({m: (value[m] - (sample if m in SLOW else value)["bifkit"]).mean() for m in others})
        best = lead.idxmax() if len(lead) else None
        error = value[best].std(ddof=1) / len(value) ** 0.5 if best and len(value) > 1 else 0.0
        mean, printed = value.mean(), paper[f"BIF ({kind})", column]
        lines.append({"kind": kind, "column": column, "bifkit": mean["bifkit"], "paper": printed,
                      "at least paper": round(mean["bifkit"], 1) >= printed, "best other": best,
                      "lead": lead.max() if best else np.nan, "error": error,
                      "best or within": not best or lead.max() <= error,
                      **{m: mean.get(m, np.nan) for m in SEARCHES},
                      "bounded": mean.get("oracle", np.inf) < printed})
    out = pd.DataFrame(lines, columns=["kind", "column", "bifkit", "paper", "at least paper", "best other", "lead",
                                       "error", "best or within", *SEARCHES, "bounded"])
    return out.sort_values(["kind", "column"], ascending=[False, True], ignore_index=True)  # local first, as KINDS


def share_of_search(frame):
    """Each method's accuracy as a percentage of the greedy search's, over the cells: mean and smallest, by kind.

    >>> frame = pd.DataFrame({"dataset": "Adult", "method": ["bifkit", "greedy search"], "seed": 100, "error": "",
    ...                       "local_1": [60.0, 80.0]})
    >>> share_of_search(frame).loc["bifkit", "local, mean"]
    np.float64(75.0)
    """
    parts = {}
    for kind in KINDS:
        mean = table2(frame, kind, "value")[0].rename(index=lambda row: row.rsplit(" (", 1)[0])
        if "greedy search" in mean.index:
            share = 100 * mean / mean.loc["greedy search"]
            parts |= {f"{kind}, mean": share.mean(axis=1), f"{kind}, smallest": share.min(axis=1)}
    return pd.DataFrame(parts)


def local_minus_global(frame):
    """Accuracy of the local explanation minus that of the global one, one row per method: positive, local is easier.

    >>> frame = pd.DataFrame({"dataset": ["Adult"], "method": "bifkit", "seed": 100, "error": "", "local_1": 80.0,
    ...                       "global_1": 78.0})
    >>> local_minus_global(frame).loc["bifkit", "Adult k=1"]
    np.float64(2.0)
    """
    wide = tidy(frame).pivot_table(index=["method", "column", "seed"], columns="kind", values="value")
    if wide.empty:
        return pd.DataFrame(columns=COLUMNS)
    gap = (wide["local"] - wide["global"]).groupby(["method", "column"]).mean().unstack()
    gap = gap.reindex(index=[m for m in IN_TABLES if m in gap.index], columns=COLUMNS)
    return gap.rename_axis(index=None, columns=None)


def falls(frame):
    """Steps (k=1 to 3, 3 to 5) on which a method's mean accuracy falls by more than a standard error of the change.

    >>> frame = pd.DataFrame({"dataset": ["Adult"], "method": "bifkit", "seed": 100, "error": "", "local_1": 80.0,
    ...                       "local_3": 79.0, "local_5": 82.0})
    >>> falls(frame).query("kind == 'local'")[["step", "change", "falls"]].values.tolist()
    [['Adult k=1 to 3', -1.0, True], ['Adult k=3 to 5', 3.0, False]]
    """
    lines = []
    for (method, kind, dataset), part in tidy(frame).groupby(["method", "kind", "dataset"]):
        wide = part.pivot(index="seed", columns="k", values="value")
        for a, b in zip(KS, KS[1:], strict=False):
            change = wide[b] - wide[a]
            error = change.std(ddof=1) / len(change) ** 0.5 if len(change) > 1 else 0.0
            lines.append({"method": method, "kind": kind, "step": f"{dataset} k={a} to {b}", "change": change.mean(),
                          "falls": change.mean() < -error})
    return pd.DataFrame(lines, columns=["method", "kind", "step", "change", "falls"])


def findings(frame):
    """Sentences about the table, counted from the runs.

    >>> frame = pd.DataFrame({"dataset": ["Adult"], "method": "bifkit", "seed": 100, "error": "", "local_1": 80.0,
    ...                       "global_1": 78.0})
    >>> findings(frame)[3]
    'local ahead of global: bifkit in 1 of 1 cells, by 2.0 points on average; the rivals in 0 of 0'
    """
    cells, gap, steps = verdicts(frame), local_minus_global(frame), falls(frame)
    if cells.empty:
        return ["no data set was run"]

    def named(rows):
        return ", ".join(f"{r.column} {r.kind}" for r in rows.itertuples()) or "none"

    paper, best, bounded = cells["at least paper"], cells["best or within"], cells["bounded"]
    others, ours = gap.drop(index=[*SEARCHES, *OURS], errors="ignore").stack(), gap.loc["bifkit"].dropna()
    mine = steps[steps["method"] == "bifkit"]["falls"]
    rest = steps[~steps["method"].isin([*SEARCHES, "bifkit", SURROGATE])]["falls"]
    return [f"at least the paper's BIF: {paper.sum()} of {len(cells)} cells; short: {named(cells[~paper])}",
            f"best or within one standard error of the best: {best.sum()} of {len(cells)} cells; "
            f"short: {named(cells[~best])}",
            f"bounded by g (the oracle stays below the paper's figure): {named(cells[bounded])}",
            f"local ahead of global: bifkit in {(ours > 0).sum()} of {len(ours)} cells, by {ours.mean():.1f} points on "
            f"average; the rivals in {(others > 0).sum()} of {len(others)}",
            f"steps to more features that lower the accuracy: bifkit {mine.sum()} of {len(mine)}, "
            f"the other explainers {rest.sum()} of {len(rest)}"]


def picks(frame, kind, top=3):
    """Which features, by name. Global: in how many seeds among the top three; local: in what share of rows.

    >>> frame = pd.DataFrame({"dataset": "Adult", "method": "SHAP", "seed": [100, 101], "error": "",
    ...                       "top": ['["age", "sex"]', '["age", "race"]'], "shares": '{"age": 0.9}'})
    >>> picks(frame, "global", top=2).loc["SHAP", "Adult"], picks(frame, "local").loc["SHAP", "Adult"]
    ('age 2, sex 1', 'age 90%')
    """
    good, out = finished(frame), {}
    for (method, dataset), part in good.groupby(["method", "dataset"]):
        count = {}
        for row in part.itertuples():
            found = dict.fromkeys(json.loads(row.top)[:top], 1) if kind == "global" else json.loads(row.shares)
            for name, weight in found.items():
                count[name] = count.get(name, 0) + weight / (1 if kind == "global" else len(part))
        first = sorted(count.items(), key=lambda item: -item[1])[:top]
        out[method, dataset] = ", ".join(f"{n} {c:{'.0f' if kind == 'global' else '.0%'}}" for n, c in first)
    table = pd.Series(out, dtype=object).unstack() if out else pd.DataFrame()
    return table.reindex(index=[m for m in IN_TABLES if m in table.index], columns=[d for d in DATASETS if d in table])


def posterior_of(frame, dataset, seed=0, method="bifkit"):
    """The stored global posterior of one run, or None where it was not run.

    >>> alpha = json.dumps([1.0] * len(FEATURES["Credit"]))
    >>> frame = pd.DataFrame({"dataset": ["Credit"], "seed": 0, "method": "bifkit", "error": "", "alpha": alpha})
    >>> posterior_of(frame, "Credit").feature_names == list(FEATURES["Credit"]), posterior_of(frame, "Adult")
    (True, None)
    """
    row = frame.query("dataset == @dataset and seed == @seed and method == @method and error == ''")
    return Posterior(json.loads(row["alpha"].iloc[0]), FEATURES[dataset]) if len(row) else None


def headed(table):
    """The table with the paper's two lines of column names, data set above k, for ``report.show``.

    >>> headed(pd.DataFrame({"Adult k=1": [80.0]})).columns.tolist()
    [('Adult', 'k=1')]
    """
    return table.set_axis(pd.MultiIndex.from_tuples([tuple(c.split(" ", 1)) for c in table.columns]), axis=1)


def in_paper(table):
    """Which rows of a half of Table 2 the paper has too, and ours: a mask.

    >>> in_paper(pd.DataFrame(index=["bifkit (local)", "SHAP (local)", "SHAP on g (local)"])).tolist()
    [True, True, False]
    """
    named = ("bifkit", "BIF", *RELEASED, "L2X", "INVASE", "SHAP", "LIME")
    return np.array([str(row).rsplit(" (", 1)[0] in named for row in table.index], dtype=bool)


def figure(frame):
    """Table 2 as a chart: mean and standard deviation over the seeds as points, the paper's values as diamonds."""
    colors = {"bifkit": plots.BLUE, "BIF": plots.ORANGE, "released": "#8C4A00", "L2X": plots.GREEN, "INVASE": plots.RED,
              "SHAP": plots.PURPLE, "LIME": plots.SKY, "greedy search": plots.GREY}
    fig, panels = plt.subplots(2, 1, figsize=(11, 6.4), sharex=True, sharey=True, layout="constrained")
    for ax, kind in zip(panels, ("global", "local"), strict=True):
        mean, std = table2(frame, kind)
        paper, short = figures.printed("table2", mean), {row: row.rsplit(" (", 1)[0] for row in mean.index}
        mean, std, paper = (part.rename(index=short).loc[[m for m in colors if m in short.values()]].T
                            for part in (mean, std, paper))
        figures.grouped_dots(mean, errors=std, paper=paper, ax=ax, ylabel="accuracy of g (%)",
                             colors=[colors[m] for m in mean])
        ax.set_title(f"{kind}: accuracy with k features, mean and sd over the seeds", loc="left")
    fig.legend(*panels[0].get_legend_handles_labels(), ncols=9, loc="outside upper center")
    return fig


def scores(frame):
    """What the scoreboard takes: item, row, column, seed, value.

    >>> frame = pd.DataFrame({"dataset": ["Adult"], "method": "bifkit", "seed": 100, "error": "", "local_1": 80.0,
    ...                       "global_1": 78.0})
    >>> scores(frame).dropna()[["row", "column", "value"]].values.tolist()
    [['bifkit (local)', 'Adult k=1', 80.0], ['bifkit (global)', 'Adult k=1', 78.0]]
    """
    cells = tidy(frame)
    cells = cells[~cells["method"].isin(SEARCHES)]
    return pd.DataFrame({"item": "table2", "row": cells["method"] + " (" + cells["kind"] + ")",
                         "column": cells["column"], "seed": cells["seed"], "value": cells["value"]})
