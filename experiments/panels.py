"""What outside judges say of explanations: Quantus and captum's metrics, on tables and digits (notebook 10).

A run is a data set x method x seed: one g, its first test rows, one explanation of each row for the class that g
predicts there, and the verdict of each judge, called through its package's public functions. Ours has no sign, so every
method is judged by the size of its attributions, as shares of the row's sum; those that have signs are judged signed as
well by the two judges that compare attributions with what g's answer loses. L2X (short budget) learns from the classes
that g predicts, INVASE with g as its frozen predictor and baseline, so that both explain g too. Digits are explained by
49 patches: what a method says of pixels is added up, sign and all, before its size is taken. Their g is small, 100-100,
so that all methods, and a second fit of those that learn, take seconds.

The judges, with the packages' own settings unless said; rows are judged all at once, and every method meets the same
random draws:

* *faithfulness correlation* (Quantus, higher is better): a quarter of the features, drawn 100 times, is set to zero,
  the mean of a table's column and a digit's black; Pearson correlation of the sum of their shares with the fall of g's
  logit.
* *sufficiency* (Quantus, higher): do rows with similar explanations have the same prediction? Euclidean distance: the
  package's standardised one divides by zero where a patch is blank in every digit.
* *sparseness* (Quantus, higher): the Gini index of the shares. It asks nothing of g: an explanation may be sparse and
  wrong.
* *max-sensitivity* (Quantus, lower): the largest relative change of the explanation in 5 draws (not 200) of noise
  within .2, on the first 10 rows.
* *randomisation* (Quantus MPRT, lower): Spearman correlation with the explanation of a g whose layers all have fresh
  random weights, on the first 10 rows. Methods that learn are fitted again to that g.
* *infidelity* (captum, lower): squared error of the sum of the shares, scaled in each row as fits best
  (``normalize``), against the fall of g's logit, for 100 draws of a quarter of the features.
* *sensitivity_max* (captum, lower): as max-sensitivity, noise within .02, 5 draws (not 10), the first 10 rows.

Random shares (``random``) stand beside the methods: a judge that ranks them high does not judge the explanation of g.
"""

import functools
import importlib
import sys
import types
import warnings
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import nn

from bifkit import LocalBIF, refine
from data_prep.mnist import patches
from data_prep.seeding import derive, seed_all
from experiments import faithfulness, mnist, tabular
from experiments.models.classifiers import accuracy, mlp, predict_proba, train
from experiments.rivals import INVASE, L2X
from experiments.runner.rows import finished

DATASETS = ("Adult", "breast cancer", "MNIST")
OURS = ("bifkit rank", "bifkit few", "bifkit few, refined")
SIGNED = ("DeepExplainer", "GradientExplainer", "KernelExplainer", "LIME", "IntegratedGradients", "GradientShap",
          "FeatureAblation")
METHODS = (*OURS, *SIGNED, "L2X", "INVASE", "random")
HIGHER = {"faithfulness correlation": True, "sufficiency": True, "sparseness": True, "max-sensitivity": False,
          "randomisation": False, "infidelity": False, "sensitivity_max": False}  # judge: is more better?
JUDGES = tuple(HIGHER)
WITH_SIGN = ("faithfulness correlation", "infidelity")  # these ask what speaks for and against
TRAIN, ROWS, FEW_ROWS, DRAWS, NOISES = 4000, 60, 10, 100, 5
SEEDS = range(5)


class Case(NamedTuple):
    """What every method of a data set and seed is given."""

    X: np.ndarray  # (N, D) training rows
    y: np.ndarray
    rows: np.ndarray  # the rows to explain
    classes: np.ndarray  # what g predicts there
    g: nn.Module  # logits of two classes
    groups: np.ndarray  # (D,): the feature, or patch, that an input belongs to
    background: np.ndarray  # training rows for explainers that ask for some


def grid(profile="paper", *, datasets=DATASETS, seeds=SEEDS):
    """Data sets x twelve methods and random shares x seeds; smoke: one seed, few rows, the fast methods.

    >>> len(grid("smoke")), len(grid("paper"))
    (6, 195)
    """
    methods, size = METHODS, {"train_rows": TRAIN, "rows": ROWS}
    if profile == "smoke":
        datasets, seeds, size = ("breast cancer", "MNIST"), range(1), {"train_rows": 500, "rows": 20}
        methods = ("bifkit rank", "IntegratedGradients", "random")
    return [{"dataset": d, "method": m, "seed": s, **size} for d in datasets for s in seeds for m in methods]


@functools.lru_cache(maxsize=1)
def prepared(dataset, seed, train_rows=TRAIN, rows=ROWS) -> Case:
    """The data and g of one data set and seed; g is that of the data set's own study, here on ``train_rows`` rows."""
    if dataset == "MNIST":
        X, y, test, _ = mnist.digits(train_rows, 1984)
        test = test[mnist.sample(len(test))]
        seed_all("panels", dataset, seed, "g")
        g = train(mlp([784, 100, 100, 2]), X, y, epochs=10, seed=derive("panels", dataset, seed, "g"))
    elif dataset == "Adult":
        data, g = tabular.prepared(dataset, seed, rows=train_rows)
        X, y, test = data.X_train, data.y_train, data.X_test
    else:
        X, y, test, g = faithfulness.prepared(dataset, seed)
    groups = patches() if dataset == "MNIST" else np.arange(X.shape[1])
    chosen = np.random.default_rng(derive("panels", dataset, seed, "background")).choice(len(X), 50, replace=False)
    test = np.ascontiguousarray(test[:rows])
    return Case(X, y, test, predict_proba(g, test).argmax(1), g, groups, X[chosen])


def explainer(method, case, *, g=None, seed=0):
    """``method`` fitted to g (the case's own unless given): a function of rows and classes that attributes (N, G)."""
    g, grouped = case.g if g is None else g, len(case.groups) > case.groups.max() + 1
    if method in OURS:
        fitted = _bif("rank" if "rank" in method else "few", case, g, grouped, seed)
        return lambda x, _: (refine(fitted, x, case.X) if "refined" in method else fitted.explain(x)).mean
    if method == "random":  # new shares each time
        rng = np.random.default_rng([seed, int(g is not case.g)])
        return lambda x, _: rng.random((len(x), case.groups.max() + 1))
    if method in ("L2X", "INVASE"):
        selector = _selector(method, case, g, grouped, seed)
        return lambda x, _: selector.scores(x)
    from experiments.rivals import attribution as a  # shap, lime and captum take seconds to import

    how, background = {"signed": True}, case.background
    explain = {
        "DeepExplainer": lambda x, c: a.shap_deep(g, x, background, target=c, **how),
        "GradientExplainer": lambda x, c: a.shap_gradient(g, x, background, nsamples=50, seed=seed, target=c, **how),
        "KernelExplainer": lambda x, c: a.shap_kernel(g, x, background[:10], groups=case.groups if grouped else None,
                                                      nsamples=300, seed=seed, target=c, **how),
        "LIME": lambda x, c: (a.lime_patches(g, x, case.groups, num_samples=500, seed=seed, target=c, **how) if grouped
                              else a.lime_model(g, case.X, x, num_samples=500, seed=seed, target=c, **how)),
        "IntegratedGradients": lambda x, c: a.integrated_gradients(g, x, target=c, **how),
        "GradientShap": lambda x, c: a.gradient_shap(g, x, background, seed=seed, target=c, **how),
        "FeatureAblation": lambda x, c: a.feature_ablation(g, x, groups=case.groups, target=c, **how),
    }.get(method)
    if explain is None:
        raise ValueError(f"method must be one of {', '.join(METHODS)}; got {method!r}")
    of_pixels = grouped and method not in ("KernelExplainer", "LIME", "FeatureAblation")
    return lambda x, c: a.sum_groups(explain(x, c), case.groups) if of_pixels else explain(x, c)


_LAST_FITS = {}  # `few` and its refined form, fitted to the same g with the same seed, are one fit


def _bif(preset, case, g, grouped, seed):
    """LocalBIF fitted to g, or this process' fit of the same to a g with the same weights."""
    weights = torch.cat([p.detach().flatten() for p in g.parameters()]).numpy().tobytes()
    key = (preset, seed, hash(weights), case.X.shape)
    if key not in _LAST_FITS:
        while len(_LAST_FITS) > 3:
            del _LAST_FITS[next(iter(_LAST_FITS))]
        how = {"groups": case.groups, **({"fill": "zero"} if preset == "few" else {})} if grouped else {}
        with warnings.catch_warnings():  # corners of digits never hold ink
            warnings.filterwarnings("ignore", message="the data have .* constant column")
            _LAST_FITS[key] = LocalBIF(g, preset, seed=seed, **how).fit(case.X, case.y)
    return _LAST_FITS[key]


def _selector(method, case, g, grouped, seed):
    """L2X (k of a table 3, of a digit 4) or INVASE, with the widths and lambdas of Table 2 and of the MNIST study."""
    if method == "L2X":
        how = {"groups": case.groups, "hidden": 250, "predictor_hidden": 500} if grouped else {"activation": "selu"}
        fitted = L2X(mnist.SHOWN_K if grouped else 3, budget="short", seed=seed, **how)
    else:
        how = {"lam": mnist.LAMBDAS[mnist.SHOWN_K] / mnist.PIXELS, "groups": case.groups, "activation": "relu",
               **mnist.INVASE_PLAN} if grouped else {}
        fitted = INVASE(classifier=g, seed=seed, **how)
    return fitted.fit(case.X, predict_proba(g, case.X).argmax(1))


def shares(values) -> np.ndarray:
    """Sizes of attributions (N, G), each row divided by its sum; a row of zeros stays one.

    >>> shares([[1.0, -3.0], [0.0, 0.0]]).tolist()
    [[0.25, 0.75], [0.0, 0.0]]
    """
    size = np.abs(np.asarray(values, dtype=float))
    total = size.sum(1, keepdims=True)
    return size / np.where(total > 0, total, 1.0)


class Switched(nn.Module):
    """g of fixed rows as a function of switches (N, G) or (N, 1, G): a feature, or patch, that is off is zero.

    >>> Switched(nn.Identity(), np.array([[2.0, 3.0]]), [0, 1])(torch.tensor([[1.0, 0.0]])).tolist()
    [[2.0, 0.0]]
    """

    def __init__(self, g, rows, groups):
        super().__init__()
        self.g, self.groups = g, torch.as_tensor(np.asarray(groups))
        self.rows = torch.as_tensor(np.asarray(rows, dtype=np.float32))

    def forward(self, switches, rows=None):
        """g's answer to the rows with these switches."""
        return self.g((self.rows if rows is None else rows) * switches.flatten(1)[:, self.groups])


def run(*, dataset, method, seed, train_rows=TRAIN, rows=ROWS) -> dict:
    """One method before every judge."""
    case = prepared(dataset, seed, train_rows, rows)
    state = derive("panels", dataset, seed, method.removesuffix(", refined")) % 2**31
    seed_all("panels", dataset, seed, method)
    explain = explainer(method, case, seed=state)
    found = explain(case.rows, case.classes)
    out = {"g_accuracy": accuracy(case.g, case.X, case.y)} | faithful(case, shares(found), seed=seed)
    if method in SIGNED:
        signed = faithful(case, found, seed=seed)
        out |= {f"{judge}, signed": signed[judge] for judge in WITH_SIGN}
    again = functools.partial(explainer, method, case, seed=state)
    return out | robust(case, explain, again, seed=seed)


def quantus():
    """The package. It imports cv2, for turning and shifting images alone, which fails on a system without libGL."""
    try:
        importlib.import_module("cv2")
    except ImportError:
        sys.modules["cv2"] = types.ModuleType("cv2")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("quantus")


def _euclidean(u, v, V=None):
    """Quantus hands the variances of its own choice to any distance."""
    return float(np.linalg.norm(u - v))


def _mean(scores):
    """Mean over rows; a row that a judge cannot score (a correlation with a constant) is left out."""
    scores = np.asarray(scores, dtype=float)
    return float(np.nanmean(scores)) if np.isfinite(scores).any() else float("nan")


def faithful(case, attributions, *, seed=0) -> dict:
    """The judges that need no second explanation: of shares, or of signed attributions (N, G)."""
    q, (n, size) = quantus(), attributions.shape
    model, a = Switched(case.g, case.rows, case.groups).eval(), np.asarray(attributions, dtype=np.float32)
    common = {"model": model, "x_batch": np.ones((n, 1, size), np.float32), "y_batch": case.classes, "batch_size": n,
              "channel_first": True}  # Quantus counts the features behind a channel
    quiet, subset = {"disable_warnings": True, "display_progressbar": False}, max(1, size // 4)
    metrics = {"faithfulness correlation": q.FaithfulnessCorrelation(
                   nr_runs=DRAWS, subset_size=subset, perturb_baseline=0.0, return_aggregate=False, **quiet),
               "sufficiency": q.Sufficiency(distance_func=_euclidean, **quiet), "sparseness": q.Sparseness(**quiet)}
    out = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for judge, metric in metrics.items():
            seed_all("panels", seed, judge)
            out[judge] = _mean(metric(a_batch=a[:, None].copy(), **common))
    return out | {"infidelity": _infidelity(model, a, case.classes, subset, seed)}


def _infidelity(model, a, classes, subset, seed):
    """Captum's infidelity for a removed quarter of the features."""
    from captum.metrics import infidelity

    def remove(switches):
        off = (torch.rand_like(switches).argsort(1) < subset).float()
        return off, switches * (1 - off)

    seed_all("panels", seed, "infidelity")
    with torch.no_grad():
        return _mean(infidelity(model, remove, torch.ones(a.shape), torch.as_tensor(a), target=torch.as_tensor(classes),
                                additional_forward_args=(model.rows,), n_perturb_samples=DRAWS, normalize=True))


def robust(case, explain, again, *, seed=0) -> dict:
    """The judges that explain again: moved rows by ``explain(rows, classes)``, another g by ``again(g=...)``.

    A patch's share is spread over its pixels, which leaves each of these measures as it is.
    """
    from captum.metrics import sensitivity_max

    q, x, classes = quantus(), case.rows[:FEW_ROWS], case.classes[:FEW_ROWS]
    quiet = {"disable_warnings": True, "display_progressbar": False}

    def of(function, rows, targets):
        with torch.enable_grad():
            return shares(function(np.asarray(rows, dtype=np.float32), np.asarray(targets)))[:, case.groups]

    def by_quantus(model, inputs, targets, **_):
        return of(explain if model is case.g else again(g=model.eval()), inputs, targets)

    def by_captum(inputs, target):  # a tuple of inputs in, a tuple of explanations out
        return (torch.as_tensor(of(explain, inputs[0].numpy(), target.numpy())),)

    metrics = {"max-sensitivity": q.MaxSensitivity(nr_samples=NOISES, **quiet)}
    if again is not None:
        metrics["randomisation"] = q.MPRT(skip_layers=True, return_last_correlation=True,
                                          seed=derive("panels", seed, "random g") % 2**31, **quiet)
    common = {"model": case.g, "x_batch": x, "y_batch": classes, "a_batch": of(explain, x, classes),
              "explain_func": by_quantus, "batch_size": len(x), "channel_first": True}
    out = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for judge, metric in metrics.items():
            seed_all("panels", seed, judge)
            out[judge] = _mean(metric(**common))
        seed_all("panels", seed, "sensitivity_max")
        out["sensitivity_max"] = _mean(sensitivity_max(by_captum, torch.as_tensor(x), n_perturb_samples=NOISES,
                                                       max_examples_per_batch=len(x), target=torch.as_tensor(classes)))
    return out


def tidy(frame) -> pd.DataFrame:
    """One row per data set, judge, method and seed: value, and the same with the sign turned so that more is better."""
    cells = finished(frame).melt(["dataset", "method", "seed"], list(JUDGES), "judge")
    return cells.assign(good=np.where(cells["judge"].map(HIGHER), cells["value"], -cells["value"]))


def places(frame) -> pd.DataFrame:
    """The place of each method (1: best) by its mean over seeds, for every data set (rows) and judge; random has none.

    >>> frame = pd.DataFrame({"dataset": "Adult", "method": ["L2X", "LIME", "random"], "seed": 0, "error": "",
    ...                       **{j: [0.2, 0.1, 0.9] for j in JUDGES}})
    >>> [int(places(frame).loc[("Adult", judge), "L2X"]) for judge in ("infidelity", "sparseness")]
    [2, 1]
    """
    cells = tidy(frame)
    good = cells[cells["method"] != "random"].groupby(["dataset", "judge", "method"], sort=False)["good"].mean()
    order = [m for m in METHODS if m in set(cells["method"])]
    wide = good.unstack("method").reindex(columns=[m for m in order if m != "random"]).rename_axis(columns=None)
    return wide.rank(axis=1, ascending=False, method="min").astype(int)


def table(frame, dataset) -> pd.DataFrame:
    """Mean over seeds of one data set, one row per method and one column per judge, the place in brackets.

    >>> frame = pd.DataFrame({"dataset": "Adult", "method": ["L2X", "random"], "seed": 0, "error": "",
    ...                       **{j: [0.2, 0.1] for j in JUDGES}})
    >>> table(frame, "Adult")["sparseness (+)"].to_dict()
    {'L2X': '0.200 (1)', 'random': '0.100'}
    """
    mean = tidy(frame).query("dataset == @dataset").groupby(["method", "judge"])["value"].mean().unstack()
    place, out = places(frame).loc[dataset].T, {}
    for judge in JUDGES:
        out[f"{judge} ({'+' if HIGHER[judge] else '-'})"] = {
            m: f"{mean.loc[m, judge]:.3f}" + (f" ({place.loc[m, judge]})" if m in place.index else "")
            for m in METHODS if m in mean.index}
    return pd.DataFrame(out)


def mean_places(frame) -> pd.DataFrame:
    """Each method's place per judge, a mean over the data sets, and how often it is first and last of all cells."""
    place = places(frame)
    out = place.groupby("judge", sort=False).mean().T.reindex(columns=JUDGES).round(1)
    last = place.eq(place.max(axis=1), axis=0)
    return out.assign(mean=place.mean().round(1), first=place.eq(1).sum(), last=last.sum()).rename_axis(columns=None)


def summary(frame) -> str:
    """Where ours is first and where last, counted."""
    place = places(frame)
    ours = [m for m in OURS if m in place]
    lines = [f"{m}: first in {place[m].eq(1).sum()}, in the first half in {(place[m] <= place.shape[1] // 2).sum()}, "
             f"last in {place[m].eq(place.max(axis=1)).sum()} of {len(place)} cells (data set x judge)" for m in ours]
    best = place[ours].min(axis=1)
    return "\n".join([*lines, f"one of ours is first in {best.eq(1).sum()} of {len(place)} cells, and in "
                              f"{place[ours].max(axis=1).eq(place.max(axis=1)).sum()} one of ours is last"])


def losses(frame) -> pd.DataFrame:
    """Every cell: the best rival, the best of ours, how far ours is ahead of it (negative: behind), paired by seed.

    The error is the standard error of that difference over seeds. The best of three of ours meets the best of nine
    rivals, both picked by these very means.
    """
    rows = []
    for (dataset, judge), part in tidy(frame).groupby(["dataset", "judge"], sort=False):
        wide = part.pivot(index="seed", columns="method", values="good").drop(columns="random", errors="ignore")
        ours, rivals = ([m for m in wide if (m in OURS) is mine] for mine in (True, False))
        a, b = wide[ours].mean().idxmax(), wide[rivals].mean().idxmax()
        gap = wide[a] - wide[b]
        error = gap.std(ddof=1) / len(gap) ** 0.5 if len(gap) > 1 else np.nan
        level = "level" if np.isfinite(error) and abs(gap.mean()) <= 2 * error else None
        rows.append((dataset, judge, a, b, gap.mean(), error, level or ("ahead" if gap.mean() > 0 else "behind")))
    return pd.DataFrame(rows, columns=["dataset", "judge", "best of ours", "best rival", "ahead", "error", "verdict"])


def with_signs(frame) -> pd.DataFrame:
    """What signs are worth: the two judges that ask for them, by size and signed, mean over seeds."""
    good = finished(frame)
    columns = [f"{j}{s}" for j in WITH_SIGN for s in ("", ", signed") if f"{j}{s}" in good]
    means = good[good["method"].isin([*OURS, *SIGNED])].groupby(["dataset", "method"], sort=False)[columns].mean()
    return means.dropna(axis=1, how="all").rename_axis(columns=None)
