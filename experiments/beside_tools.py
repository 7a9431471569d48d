"""bifkit beside shap and captum on the same jobs: lines of code, seconds, deletion and insertion (notebook 06).

A run is a job x tool x seed. A job is data that scikit-learn ships, a model trained on them, and test rows to explain
for the class that the model predicts there (a regression: its value). A tool is one of the small functions below: what
a user of that package writes, its imports included, from the model to attributions. **Its lines are counted from its
source**, without the line of ``def``, docstring, comments and blank lines; ``seconds_used`` is the time of that
function, of a fit too where there is one, and without the time that importing a package takes.

Rows are ranked twice: by the size of an attribution, and signed, so that what speaks against the class comes last. An
importance of ours has no sign; ``posterior.direction`` has, and is one more line: signed stands the product of the two.
A regression has no class to speak against, so nothing is ranked by sign there. What is removed takes the values of
twenty training rows (marginal) or the training mean; an id has no mean. Every tool has its package's defaults (captum
compares with zeros, in columns of ids with the id 0); none of ours was chosen for these jobs.
"""

import ast
import copy
import functools
import importlib
import inspect
import time
import warnings
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from sklearn import datasets
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import KBinsDiscretizer, StandardScaler
from torch import nn

from bifkit.evaluation.faithfulness import deletion_score, insertion_score
from data_prep.seeding import derive, seed_all
from experiments import faithfulness
from experiments.models.classifiers import mlp, train
from experiments.runner.report import cell
from experiments.runner.rows import finished

ROWS = 60  # test rows to explain
PATCHES = np.arange(8)[:, None] // 2 * 4 + np.arange(8) // 2  # (8, 8): sixteen of two by two pixels
FILLS = ("marginal", "mean")
MEASURES = ("deletion, size", "deletion, signed", "insertion, size", "insertion, signed")


class Job(NamedTuple):
    """What the tools are given, and how their answers are judged."""

    given: dict  # arguments of the tools by name: g, X, y, rows; every tool takes those that it needs
    model: Any  # what is asked by deletion and insertion
    test: np.ndarray  # the rows that are taken apart
    reference: np.ndarray  # the rows that fill
    options: dict  # for deletion and insertion


# what users write: two classes, a torch network of a table

def table_rank(g, X, rows, seed):
    """LocalBIF."""
    from bifkit import LocalBIF
    explainer = LocalBIF(g, seed=seed).fit(X)
    found = explainer.explain(rows)
    ways = found.direction(explainer, rows, reference=X).mean  # of class 1
    toward = 2 * g(rows).argmax(1, keepdim=True).numpy() - 1
    return found.mean, found.mean * ways * toward


def table_few(g, X, y, rows, seed):
    """LocalBIF with the preset `few`."""
    from bifkit import LocalBIF
    explainer = LocalBIF(g, "few", seed=seed).fit(X, y)
    found = explainer.explain(rows)
    ways = found.direction(explainer, rows, reference=X).mean
    toward = 2 * g(rows).argmax(1, keepdim=True).numpy() - 1
    return found.mean, found.mean * ways * toward


def table_refined(g, X, y, rows, seed):
    """The same, refined row by row."""
    from bifkit import LocalBIF, refine
    explainer = LocalBIF(g, "few", seed=seed).fit(X, y)
    found = refine(explainer, rows, X)
    ways = found.direction(explainer, rows, reference=X).mean
    toward = 2 * g(rows).argmax(1, keepdim=True).numpy() - 1
    return found.mean, found.mean * ways * toward


def table_deep(g, X, rows):
    """DeepExplainer of shap."""
    import shap
    values = shap.DeepExplainer(g, X[:100]).shap_values(rows)
    return values[np.arange(len(rows)), :, g(rows).argmax(1)]


def table_gradient(g, X, rows):
    """GradientExplainer of shap."""
    import shap
    values = shap.GradientExplainer(g, X[:100]).shap_values(rows)
    return values[np.arange(len(rows)), :, g(rows).argmax(1)]


def table_kernel(g, X, rows):
    """KernelExplainer of shap."""
    import shap
    answer = lambda x: g(torch.as_tensor(x, dtype=torch.float32)).detach().numpy()  # noqa: E731
    values = shap.KernelExplainer(answer, X[:20].numpy()).shap_values(rows.numpy(), silent=True)
    return values[np.arange(len(rows)), :, g(rows).argmax(1)]


def table_integrated(g, rows):
    """Integrated gradients of captum."""
    from captum.attr import IntegratedGradients
    return IntegratedGradients(g).attribute(rows, target=g(rows).argmax(1)).numpy()


def table_gradient_shap(g, X, rows):
    """GradientShap of captum."""
    from captum.attr import GradientShap
    return GradientShap(g).attribute(rows, X[:100], n_samples=50, target=g(rows).argmax(1)).detach().numpy()


def table_ablation(g, rows):
    """FeatureAblation of captum."""
    from captum.attr import FeatureAblation
    return FeatureAblation(g).attribute(rows, target=g(rows).argmax(1)).detach().numpy()


# a regression

def value_rank(g, X, y, rows, seed):
    """LocalBIF."""
    from bifkit import LocalBIF
    return LocalBIF(g, seed=seed).fit(X, y).explain(rows).mean


def value_few(g, X, y, rows, seed):
    """LocalBIF with the preset `few`."""
    from bifkit import LocalBIF
    return LocalBIF(g, "few", seed=seed).fit(X, y).explain(rows).mean


def value_refined(g, X, y, rows, seed):
    """The same, refined row by row."""
    from bifkit import LocalBIF, refine
    return refine(LocalBIF(g, "few", seed=seed).fit(X, y), rows, X).mean


def value_deep(g, X, rows):
    """DeepExplainer of shap."""
    import shap
    return shap.DeepExplainer(g, X[:100]).shap_values(rows)[..., 0]


def value_kernel(g, X, rows):
    """KernelExplainer of shap."""
    import shap
    answer = lambda x: g(torch.as_tensor(x, dtype=torch.float32)).detach().numpy()  # noqa: E731
    return shap.KernelExplainer(answer, X[:20].numpy()).shap_values(rows.numpy(), silent=True)[..., 0]


def value_integrated(g, rows):
    """Integrated gradients of captum."""
    from captum.attr import IntegratedGradients
    return IntegratedGradients(g).attribute(rows, target=0).numpy()


def value_ablation(g, rows):
    """FeatureAblation of captum."""
    from captum.attr import FeatureAblation
    return FeatureAblation(g).attribute(rows).detach().numpy()


# images, explained by patches

def patches_rank(g, X, rows, seed):
    """LocalBIF."""
    from bifkit import LocalBIF
    explainer = LocalBIF(g, groups=PATCHES, seed=seed).fit(X)
    found = explainer.explain(rows)
    return found.mean, found.mean * found.direction(explainer, rows, reference=X).mean


def patches_few(g, X, y, rows, seed):
    """LocalBIF with the preset `few`."""
    from bifkit import LocalBIF
    explainer = LocalBIF(g, "few", groups=PATCHES, seed=seed).fit(X, y)
    found = explainer.explain(rows)
    return found.mean, found.mean * found.direction(explainer, rows, reference=X).mean


def patches_refined(g, X, y, rows, seed):
    """The same, refined row by row."""
    from bifkit import LocalBIF, refine
    explainer = LocalBIF(g, "few", groups=PATCHES, seed=seed).fit(X, y)
    found = refine(explainer, rows, X)
    return found.mean, found.mean * found.direction(explainer, rows, reference=X).mean


def patches_deep(g, X, rows):
    """DeepExplainer of shap."""
    import shap
    values = shap.DeepExplainer(g, X[:100]).shap_values(rows, check_additivity=False)
    pixels = values[np.arange(len(rows)), ..., g(rows).argmax(1)].reshape(len(rows), -1)
    return pixels @ np.eye(16)[PATCHES.ravel()]


def patches_gradient(g, X, rows):
    """GradientExplainer of shap."""
    import shap
    values = shap.GradientExplainer(g, X[:100]).shap_values(rows)
    pixels = values[np.arange(len(rows)), ..., g(rows).argmax(1)].reshape(len(rows), -1)
    return pixels @ np.eye(16)[PATCHES.ravel()]


def patches_integrated(g, rows):
    """Integrated gradients of captum."""
    from captum.attr import IntegratedGradients
    pixels = IntegratedGradients(g).attribute(rows, target=g(rows).argmax(1)).numpy().reshape(len(rows), -1)
    return pixels @ np.eye(16)[PATCHES.ravel()]


def patches_ablation(g, rows):
    """FeatureAblation of captum."""
    from captum.attr import FeatureAblation
    mask = torch.as_tensor(PATCHES)[None, None]
    values = FeatureAblation(g).attribute(rows, target=g(rows).argmax(1), feature_mask=mask)
    return values.detach().numpy()[:, 0, ::2, ::2].reshape(len(rows), 16)


# a random forest of a table, two classes

def forest_rank(g, X, rows, seed):
    """LocalBIF."""
    from bifkit import LocalBIF, distill
    explainer = LocalBIF(distill(g, X, seed=seed), seed=seed).fit(X)
    found = explainer.explain(rows)
    ways = found.direction(explainer, rows, reference=X).mean
    toward = 2 * g.predict(rows)[:, None] - 1
    return found.mean, found.mean * ways * toward


def forest_few(g, X, y, rows, seed):
    """LocalBIF with the preset `few`."""
    from bifkit import LocalBIF, distill
    explainer = LocalBIF(distill(g, X, seed=seed), "few", seed=seed).fit(X, y)
    found = explainer.explain(rows)
    ways = found.direction(explainer, rows, reference=X).mean
    toward = 2 * g.predict(rows)[:, None] - 1
    return found.mean, found.mean * ways * toward


def forest_refined(g, X, y, rows, seed):
    """The same, refined row by row."""
    from bifkit import LocalBIF, distill, refine
    explainer = LocalBIF(distill(g, X, seed=seed), "few", seed=seed).fit(X, y)
    found = refine(explainer, rows, X)
    ways = found.direction(explainer, rows, reference=X).mean
    toward = 2 * g.predict(rows)[:, None] - 1
    return found.mean, found.mean * ways * toward


def forest_tree(g, rows):
    """TreeExplainer of shap."""
    import shap
    values = shap.TreeExplainer(g).shap_values(rows)
    return values[np.arange(len(rows)), :, g.predict(rows)]


def forest_ablation(g, X, rows):
    """FeatureAblation of captum."""
    from captum.attr import FeatureAblation
    answer = lambda x: torch.as_tensor(g.predict_proba(x.numpy()))  # noqa: E731
    means = torch.as_tensor(X.mean(0, keepdims=True))
    target = torch.as_tensor(g.predict(rows))
    return FeatureAblation(answer).attribute(torch.as_tensor(rows), means, target=target).numpy()


# numbers and ids behind an embedding layer: two inputs

def ids_rank(g, X, rows, seed):
    """LocalBIF."""
    from bifkit import LocalBIF
    explainer = LocalBIF(g, embedding="embed", seed=seed).fit(X)
    found = explainer.explain(rows)
    return found.mean, found.mean * found.direction(explainer, rows, reference=X).mean


def ids_few(g, X, y, rows, seed):
    """LocalBIF with the preset `few`."""
    from bifkit import LocalBIF
    explainer = LocalBIF(g, "few", embedding="embed", seed=seed).fit(X, y)
    found = explainer.explain(rows)
    return found.mean, found.mean * found.direction(explainer, rows, reference=X).mean


def ids_refined(g, X, y, rows, seed):
    """The same, refined row by row."""
    from bifkit import LocalBIF, refine
    explainer = LocalBIF(g, "few", embedding="embed", seed=seed).fit(X, y)
    found = refine(explainer, rows, X)
    return found.mean, found.mean * found.direction(explainer, rows, reference=X).mean


def ids_kernel(g, X, rows):
    """KernelExplainer of shap."""
    import shap
    table, background = (torch.cat(part, 1).numpy() for part in (rows, (X[0][:20], X[1][:20])))
    answer = lambda x: g(torch.tensor(x[:, :7]).float(), torch.tensor(x[:, 7:]).long()).detach().numpy()  # noqa: E731
    values = shap.KernelExplainer(answer, background).shap_values(table, silent=True)
    return values[np.arange(len(table)), :, g(*rows).argmax(1)]


def ids_integrated(g, rows):
    """Integrated gradients of captum."""
    from captum.attr import LayerIntegratedGradients
    layers = LayerIntegratedGradients(g, [g.numbers, g.embed])
    numbers, vectors = layers.attribute(rows, target=g(*rows).argmax(1))
    return torch.cat([numbers, vectors.sum(2)], 1).detach().numpy()


def ids_ablation(g, rows):
    """FeatureAblation of captum."""
    from captum.attr import FeatureAblation
    return torch.cat(FeatureAblation(g).attribute(rows, target=g(*rows).argmax(1)), 1).detach().numpy()


OURS = ("bifkit rank", "bifkit few", "bifkit few, refined")
TOOLS: dict[str, dict[str, Any]] = {  # job: {tool: its function}
    "table": {**dict(zip(OURS, (table_rank, table_few, table_refined), strict=True)),
              "shap Deep": table_deep, "shap Gradient": table_gradient, "shap Kernel": table_kernel,
              "captum IntegratedGradients": table_integrated, "captum GradientShap": table_gradient_shap,
              "captum FeatureAblation": table_ablation},
    "regression": {**dict(zip(OURS, (value_rank, value_few, value_refined), strict=True)),
                   "shap Deep": value_deep, "shap Kernel": value_kernel,
                   "captum IntegratedGradients": value_integrated, "captum FeatureAblation": value_ablation},
    "images": {**dict(zip(OURS, (patches_rank, patches_few, patches_refined), strict=True)),
               "shap Deep": patches_deep, "shap Gradient": patches_gradient,
               "captum IntegratedGradients": patches_integrated, "captum FeatureAblation": patches_ablation},
    "forest": {**dict(zip(OURS, (forest_rank, forest_few, forest_refined), strict=True)),
               "shap Tree": forest_tree, "captum FeatureAblation": forest_ablation},
    "ids": {**dict(zip(OURS, (ids_rank, ids_few, ids_refined), strict=True)),
            "shap Kernel": ids_kernel, "captum LayerIntegratedGradients": ids_integrated,
            "captum FeatureAblation": ids_ablation},
}


def lines(function) -> int:
    """Lines of code of a function's body.

    >>> lines(table_integrated), lines(value_few)
    (2, 2)
    """
    source = inspect.getsource(function)
    definition = ast.parse(source).body[0]
    body = definition.body[1:] if ast.get_docstring(definition) else definition.body
    written = [line.strip() for line in source.splitlines()[body[0].lineno - 1:body[-1].end_lineno]]
    return sum(1 for line in written if line and not line.startswith("#"))


class Mixed(nn.Module):
    """Numbers and ids, numbered through all columns: what captum and bifkit are told is ``numbers`` and ``embed``."""

    def __init__(self, columns, bins, classes):
        super().__init__()
        self.register_buffer("offsets", torch.arange(columns[1]) * bins)
        self.numbers, self.embed = nn.Identity(), nn.Embedding(columns[1] * bins, 4)
        self.rest = mlp([columns[0] + 4 * columns[1], 64, classes])

    def forward(self, numeric, ids):
        """Logits (B, C) of numbers (B, k) and ids (B, m)."""
        vectors = self.embed(ids + self.offsets)
        return self.rest(torch.cat([self.numbers(numeric), vectors.flatten(1)], 1))


class OfTable(nn.Module):
    """Such a g as a function of one table: the first ``k`` columns are numbers."""

    def __init__(self, g, k):
        super().__init__()
        self.g, self.k = g, k

    def forward(self, x):
        """Logits of rows of numbers and ids side by side."""
        return self.g(x[:, :self.k], x[:, self.k:].long())


def grid(profile="paper"):
    """Every job and tool, five seeds; at smoke size two jobs with a tool of each package, one seed.

    >>> len(grid("smoke")), len(grid("paper"))
    (6, 170)
    """
    chosen = [(j, t, s) for j, tools in TOOLS.items() for s in range(5) for t in tools]
    if profile == "smoke":
        small = {"table": ("bifkit rank", "shap Deep", "captum FeatureAblation"),
                 "ids": ("bifkit rank", "shap Kernel", "captum FeatureAblation")}
        chosen = [(j, t, s) for j, t, s in chosen if s == 0 and t in small.get(j, ())]
    return [{"job": j, "tool": t, "seed": s} for j, t, s in chosen]


@functools.lru_cache(maxsize=1)
def prepared(job, seed) -> Job:
    """Data and model of one job.

    >>> prepared("ids", 100).test.shape
    (54, 13)
    """
    if job == "table":
        X, y, test, g = faithfulness.prepared("breast cancer", seed)
        return _of_tensors(g, X, y, test[:ROWS], {})
    state = derive("beside_tools", job, seed) % 2**31
    load = {"regression": datasets.load_diabetes, "images": datasets.load_digits, "ids": datasets.load_wine,
            "forest": datasets.load_breast_cancer}[job]
    X, y = load(return_X_y=True)
    X, test, y, _ = train_test_split(X, y, test_size=0.3, random_state=state,
                                     stratify=None if job == "regression" else y)
    test = test[:ROWS]
    seed_all("beside_tools", job, seed)
    fit = {"batch_size": 32, "lr": 1e-2, "weight_decay": 0.1, "seed": state}
    if job == "images":
        X, test = ((x / 16).astype(np.float32).reshape(-1, 1, 8, 8) for x in (X, test))
        g = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1),
                          nn.ReLU(), nn.Flatten(), nn.Linear(32 * 16, 10))
        g = train(g, X, y, epochs=15, batch_size=64, lr=3e-3, weight_decay=0.01, seed=state)
        return _of_tensors(g, X, y, test, {"groups": PATCHES.ravel()})
    scaler = StandardScaler().fit(X)
    X, test = (scaler.transform(x).astype(np.float32) for x in (X, test))
    if job == "regression":
        y = ((y - y.mean()) / y.std()).astype(np.float32)
        g = train(mlp([10, 32, 32, 1]), X, y, epochs=60, **fit | {"weight_decay": 0.3})
        return _of_tensors(g, X, y, test, {"likelihood": "regression"})
    if job == "forest":
        g = RandomForestClassifier(100, random_state=state).fit(X, y)
        return Job({"g": g, "X": X, "y": y, "rows": test}, g, test, X, {})
    bins = KBinsDiscretizer(4, encode="ordinal", quantile_method="averaged_inverted_cdf").fit(X[:, 7:])
    X, test = (np.hstack([x[:, :7], bins.transform(x[:, 7:])]).astype(np.float32) for x in (X, test))
    g = OfTable(Mixed((7, 6), 4, 3), 7)
    train(g, X, y, epochs=60, **fit)
    apart = [(torch.from_numpy(x[:, :7].copy()), torch.from_numpy(x[:, 7:]).long()) for x in (X, test)]
    return Job({"g": g.g, "X": apart[0], "y": y, "rows": apart[1]}, g, test, X, {})


def _of_tensors(g, X, y, test, options):
    return Job({"g": g, "X": torch.from_numpy(X), "y": y, "rows": torch.from_numpy(test)}, g, test, X, options)


def run(*, job, tool, seed):
    """Lines, seconds and areas of one tool on one job.

    >>> found = run(job="ids", tool="captum FeatureAblation", seed=100)
    >>> found["lines"], 0 < found["deletion, size"] < found["insertion, size"] < 1
    (2, True)
    """
    case, function = prepared(job, seed), TOOLS[job][tool]
    for package in ("bifkit", "shap", "captum.attr"):
        importlib.import_module(package)
    takes = inspect.signature(function).parameters
    state = seed_all("beside_tools", job, tool, seed)
    given = case.given | {"seed": int(state.integers(2**31)), "g": copy.deepcopy(case.given["g"])}
    if isinstance(given["g"], nn.Module):
        given["g"].eval().requires_grad_(False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # constant margins of digits, insides of shap and captum
        started = time.perf_counter()
        found = function(**{name: given[name] for name in takes})
        seconds = time.perf_counter() - started
    size, signed = found if isinstance(found, tuple) else (np.abs(found), found)
    out = {"lines": lines(function), "seconds_used": seconds, "rows": len(case.test)}
    for fill in FILLS:
        for measure in MEASURES:
            kind, rank = measure.split(", ")
            area = deletion_score if kind == "deletion" else insertion_score
            no_answer = fill == "mean" and job == "ids" or rank == "signed" and job == "regression"
            out[measure if fill == "marginal" else f"{measure}, mean"] = float("nan") if no_answer else area(
                case.model, case.test, size if rank == "size" else signed, fill=fill, reference=case.reference,
                **case.options)
    return out


def table(frame, fill="marginal") -> pd.DataFrame:
    """Lines, seconds (median), deletion and insertion (mean and sd over seeds) of each job and tool.

    >>> frame = pd.DataFrame({"job": "ids", "tool": "shap Kernel", "seed": [0, 1], "error": "", "lines": 5,
    ...                       "seconds_used": [1.0, 3.0], **{m: [0.4, 0.6] for m in MEASURES}})
    >>> table(frame).loc[("ids", "shap Kernel")].tolist()[:3]
    ['5', '2.0', '0.500 ± 0.141']
    """
    frame = finished(frame)
    out = {}
    for (job, tool), part in frame.groupby(["job", "tool"], sort=False):
        cells = {"lines": str(int(part["lines"].iloc[0])), "seconds": cell(part["seconds_used"].median())}
        for measure in MEASURES:
            values = part[measure if fill == "marginal" else f"{measure}, mean"]
            cells[measure] = cell(values.mean(), values.std(), digits=3)
        out[job, tool] = cells
    return pd.DataFrame.from_dict(out, orient="index").rename_axis(["job", "tool"])


def verdicts(frame, fill="marginal") -> pd.DataFrame:
    """Ours against each tool of the others, paired by seed, so that a positive gain is ours; rule of two errors.

    >>> frame = pd.DataFrame([{"job": "ids", "tool": t, "seed": s, "error": "", **{m: v + s for m in MEASURES}}
    ...                       for t, v in (("bifkit rank", 0.3), ("shap Kernel", 0.5)) for s in (0, 1)])
    >>> verdicts(frame)[["ours", "rank", "verdict"]].drop_duplicates().to_numpy().tolist()[0]
    ['bifkit rank', 'size', 'better']
    """
    found = []
    for job, part in finished(frame).groupby("job", sort=False):
        for measure in MEASURES:
            kind, rank = measure.split(", ")
            wide = part.pivot(index="seed", columns="tool",
                              values=measure if fill == "marginal" else f"{measure}, mean").dropna(axis=1, how="all")
            for ours in [t for t in OURS if t in wide]:
                for rival in [t for t in part["tool"].unique() if t not in OURS and t in wide]:
                    gain = (wide[ours] - wide[rival]) * (-1 if kind == "deletion" else 1)
                    error = gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else np.nan
                    verdict = ("better" if gain.mean() > 2 * error else "worse" if gain.mean() < -2 * error
                               else "no worse")
                    found.append((job, kind, rank, ours, rival, gain.mean(), error, verdict))
    return pd.DataFrame(found, columns=["job", "kind", "rank", "ours", "rival", "gain", "standard error", "verdict"])


def counts(found) -> pd.DataFrame:
    """How often each of ours is better, no worse and worse than the others' tools, for each job.

    >>> found = pd.DataFrame({"job": "ids", "ours": "bifkit rank", "rank": "size", "verdict": ["better", "worse"]})
    >>> counts(found).loc[("ids", "bifkit rank"), "size"].tolist()
    [1, 0, 1]
    """
    columns = pd.MultiIndex.from_product([["size", "signed"], ["better", "no worse", "worse"]])
    wide = found.groupby(["job", "ours", "rank", "verdict"], sort=False).size().unstack(["rank", "verdict"])
    return wide.reindex(columns=columns).fillna(0).astype(int)
