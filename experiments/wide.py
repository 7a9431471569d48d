"""Many features, small effects, many rows: what the defaults do when nobody tells them anything (notebook 07).

Six parts, one row per run:

    syn         Syn1-6 with useless columns up to 11, 50 and 200: MCC with each row's k given, by ``relevant()``'s own
                number, and the realised share of false ones at a nominal 10 % (``relevant(prob=.9)``)
    ten         ten columns of 50, 200 and 1,000 matter, for every row
    regression  Syn3's sum with amplitude 100, whose weakest feature makes a thousandth of the variance
    share       a linear g that uses exactly five of D columns: the share that the others are given
    threshold   Syn4's true rule with its switch as a step, which has no gradient: fit refuses it, ``distill`` stands in
    rows        200,000 rows: a global fit as it comes, and one of 25 passes over all rows

``g`` is the true rule, or a network trained on the data. With the true rule, what is false is the explainer's; a
trained g uses useless columns a little, and an explanation that says so is not wrong about g. In wide tables 8,000 rows
do not make a good network: it learns them by heart. So there is also one trained on about 100,000 rows, and
``agreement`` says of every g in how many test rows it chooses the class that the true rule chooses.
"""

import time

import numpy as np
import pandas as pd
import torch
from torch import nn

from bifkit import GlobalBIF, LocalBIF, distill
from bifkit.evaluation import mcc, mcc_of_masks
from data_prep.seeding import derive, seed_all
from data_prep.synthetic import NAMES, make_synthetic
from experiments.models.classifiers import mlp, train
from experiments.models.rules import Sum, Ten, TrueRule
from experiments.rivals import attribution
from experiments.runner.rows import finished

SEEDS = range(5)
WIDTHS, TEN, SHARE = (11, 50, 200), (50, 200, 1000), (10, 50, 200, 1000, 3000)
NOMINAL = 0.1  # of false discoveries
WELL = "trained on many rows"  # twelve times as many, drawn for g alone; the explanation is fitted on the same as ever


def grid(profile="paper"):
    """The runs; at smoke size one or two of each part, few rows."""
    small = profile == "smoke"
    names, seeds, rows = (("Syn4",), [0], 1000) if small else (NAMES, SEEDS, 10_000)
    runs = [{"part": "syn", "dataset": n, "width": w, "g": g} for n in names for w in WIDTHS[:1 if small else 3]
            for g in ("true rule", "trained")]
    runs += [{"part": "ten", "dataset": "Ten", "width": w, "g": g} for w in TEN[:1 if small else 3]
             for g in ("true rule", "trained", WELL)]
    runs += [] if small else [{"part": "syn", "dataset": "Syn4", "width": 200, "g": WELL}]
    runs += [{"part": "regression", "dataset": "Sum", "width": 11, "g": g} for g in ("true rule", "trained")]
    runs += [] if small else [{"part": "threshold", "dataset": "Syn4", "width": 11, "g": "step, distilled"}]
    runs += [{"part": "share", "dataset": "five of D", "width": w, "g": "true rule", "rows": 2000}
             for w in SHARE[:2 if small else 5]]
    many = [] if small else [{"part": "rows", "dataset": "five of D", "width": 50, "g": "true rule", "seed": 0,
                              "rows": 200_000}]
    return [{"rows": rows} | r | {"seed": s} for r in runs for s in seeds] + many


def plain_grid(profile="paper"):
    """How much hangs on our g: Syn3-6 with a g as anyone would train it (notebook 01)."""
    names, seeds, rows = (("Syn4",), [0], 1500) if profile == "smoke" else (NAMES[2:], SEEDS, 10_000)
    return [{"part": "syn", "dataset": n, "width": 11, "g": "plain", "seed": s, "rows": rows}
            for n in names for s in seeds]


def run(*, part, dataset, width, g, seed, rows=10_000):
    """One run; scores that a part does not have are absent."""
    torch.manual_seed(derive("wide", dataset, width, seed))
    short = {"epochs": 1, "min_steps": 100} if rows < 2000 else {}  # toy size
    if part in ("share", "rows"):
        return _five(width, seed, rows)
    X, y, test, truth = _data(dataset, width, seed, rows)
    model = _model(dataset, width, g, X, y, seed)
    kind = "regression" if dataset == "Sum" else None
    chosen, right = (_answers(m, test).argmax(1) for m in (model, _rule(dataset)))
    started = time.perf_counter()
    explainer = LocalBIF(model, seed=derive(dataset, seed, "bifkit (local)"), likelihood=kind, **short).fit(X)
    seconds = time.perf_counter() - started
    posterior = explainer.explain(test)
    own, strict = posterior.relevant(), posterior.relevant(1 - NOMINAL)
    found = {"mcc": 100 * mcc(posterior.mean, truth), "mcc_own": 100 * mcc_of_masks(own.mask, truth),
             "fdr": _false(own.mask, truth), "fdr_strict": _false(strict.mask, truth),
             "recall_strict": 100 * float((strict.mask & truth).sum() / truth.sum()),
             "unused": float(posterior.share[:, ~truth.any(0)].sum(1).mean()), "fit_seconds": seconds}
    if kind is None:
        found["agreement"] = float((chosen == right).mean())
    if part == "regression":
        background = X[np.random.default_rng(derive(dataset, seed, "background")).choice(len(X), 100, replace=False)]
        rival = attribution.shap_gradient(model, test[:200], background, seed=seed)
        found["mcc_rival"] = 100 * mcc(rival, truth[:200])
    return found


def _false(mask, truth):
    """The share of false ones among those that were found, in percent; 0 where nothing was."""
    return 100 * float((mask & ~truth).sum() / max(mask.sum(), 1))


def _data(dataset, width, seed, rows):
    """(training rows, targets, test rows, truth of the test rows)."""
    if dataset in NAMES or dataset == "Sum":
        data = make_synthetic("Syn3" if dataset == "Sum" else dataset, seed, rows=rows, features=width)
        X, test, truth, y = data.X_train, data.X_test, data.truth_test, data.y_train
        return X, _answers(Sum(), X) if dataset == "Sum" else y, test, truth
    rng = np.random.default_rng(derive(dataset, width, seed))
    X = rng.standard_normal((rows, width)).astype(np.float32)
    p = 1 / (1 + np.exp(-_answers(Ten(), X)[:, 1]))
    y, cut = (rng.random(rows) < p).astype(np.int64), round(0.8 * rows)
    return X[:cut], y[:cut], X[cut:], np.broadcast_to(np.arange(width) < 10, (rows - cut, width))


def _answers(model, X):
    with torch.no_grad():
        return model(torch.from_numpy(X)).numpy()


def _model(dataset, width, g, X, y, seed):
    """A stand-in, the true rule, a plain network, or that of the synthetic study (a regression: in units of its sd)."""
    if g == "step, distilled":
        return distill(TrueRule(dataset, switch=0), X, kind="logit", seed=derive(dataset, seed, "distill"))
    if g == "true rule":
        return _rule(dataset)
    seed_all(dataset, seed, "g")
    if g == WELL:
        X, y, *_ = _data(dataset, width, derive(dataset, seed, WELL), 12 * len(X) * 5 // 4)
    if g == "plain":  # two layers of 64, Adam, no weight decay
        return train(mlp([width, 64, 64, 2]), X, y, seed=derive(dataset, seed, "g"), lr=1e-3, weight_decay=0.0,
                     schedule=None)
    if dataset == "Sum":
        target = ((y - y.mean()) / y.std()).astype(np.float32)[:, 0]
        return train(mlp([width, 100, 100, 1]), X, target, seed=derive(dataset, seed, "g"), epochs=40,
                     weight_decay=0.01)
    return train(mlp([width, 100, 100, 2]), X, y, seed=derive(dataset, seed, "g"))


def _rule(dataset):
    return Sum() if dataset == "Sum" else Ten() if dataset == "Ten" else TrueRule(dataset)


def _five(width, seed, rows):
    """A linear g that uses the first five of ``width`` columns: a global explanation; of many rows, two."""
    X = torch.randn(rows, width)
    model = nn.Linear(width, 2, bias=False)
    weight = torch.zeros(width)
    weight[:5] = torch.tensor([1.0, -1.0, 0.8, -0.8, 0.6])
    model.weight.data = torch.stack([-weight, weight])
    started = time.perf_counter()
    explainer = GlobalBIF(model, seed=derive("five of D", seed)).fit(X)
    found, posterior = {"fit_seconds": time.perf_counter() - started}, explainer.explain()
    found |= {"unused": float(posterior.share[5:].sum()), "unused_mean": float(posterior.mean[5:].sum()),
              "mcc_own": 100 * mcc_of_masks(posterior.relevant().mask[None], np.arange(width)[None] < 5)}
    if rows > 100_000:
        started = time.perf_counter()
        whole = GlobalBIF(model, seed=derive("five of D", seed), min_steps=25 * rows // 200).fit(X)
        found |= {"seconds_whole": time.perf_counter() - started, "steps_whole": whole.diagnostics_.steps,
                  "steps": explainer.diagnostics_.steps,
                  "largest_difference": float(np.abs(whole.explain().mean - posterior.mean).max())}
    return found


def false_ones(frame, column="fdr_strict") -> pd.DataFrame:
    """Realised share of false ones (%) at a nominal 10 %, mean over the seeds, by g, width and data set."""
    part = finished(frame).query("part == 'syn' and g != @WELL")
    return part.groupby(["g", "width", "dataset"])[column].mean().unstack("dataset")


def by_width(frame) -> pd.DataFrame:
    """``ten`` and Syn4 by g and width: MCC x 100 with k given and by our own number, share of unused columns, cost."""
    part = finished(frame)
    part = part[part["dataset"].isin(["Ten", "Syn4"]) & part["part"].isin(["syn", "ten"])]
    columns = {"agreement": "g as the rule", "mcc": "k given", "mcc_own": "own number",
               "unused": "share of unused columns", "fit_seconds": "seconds", "peak_mb": "peak MB"}
    return part.groupby(["dataset", "g", "width"])[list(columns)].mean().rename(columns=columns)


def small_effects(frame) -> pd.DataFrame:
    """The regression: MCC x 100 by seed, with k given, by our own number, and GradientShap given k."""
    part = finished(frame).query("part == 'regression'")
    columns = {"mcc": "k given", "mcc_own": "own number", "mcc_rival": "GradientShap, k given"}
    return part.groupby("g")[list(columns)].agg(["mean", "min"]).rename(columns=columns)


def shares(frame) -> pd.DataFrame:
    """Five of D columns are used: share (net of the prior) and mean of the others, largest over the seeds."""
    part = finished(frame).query("part == 'share'")
    table = part.groupby("width")[["unused", "unused_mean", "mcc_own"]].agg({"unused": "max", "unused_mean": "mean",
                                                                           "mcc_own": "min"})
    return table.rename(columns={"unused": "share, worst seed", "unused_mean": "mean importance",
                                 "mcc_own": "own number, MCC x 100, worst seed"})


def findings(frame) -> list[str]:
    """What the numbers say, each line computed."""
    rates = false_ones(frame)
    lines = [f"false ones at a nominal {NOMINAL:.0%}, worst of {rates.loc[g].size} cells, {g}: "
             f"{rates.loc[g].max().max():.1f} %" for g in rates.index.levels[0]]
    step = finished(frame).query("part == 'threshold'")
    if len(step):
        lines.append(f"Syn4's rule with a step for a switch, distilled: MCC x 100 {step['mcc'].mean():.1f} with k "
                     f"given, {step['mcc_own'].mean():.1f} by our own number")
    many = finished(frame).query("part == 'rows'")
    for r in many.itertuples():
        lines.append(f"{r.rows:,} rows x {r.width}: {r.steps:.0f} steps instead of {r.steps_whole:.0f}, "
                     f"importances differ by at most {r.largest_difference:.3f}")
    return lines
