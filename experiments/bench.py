"""Speed and scale on this machine: ``make bench`` and notebook 09. Every row is one thing, timed alone in one process.

    part      what is timed
    published one local fit on Syn4: our preset, or the published setting (BatchNorm in training mode, J = 500, batches
              of 500, 10 epochs) in our own code; seconds, peak memory, MCC
    explain   explaining ``size`` rows, once fitted and with the fit; slow explainers do a sample, scaled up
    rows      one epoch of a fit on ``size`` rows of 20 features; ``loader``: 100 features from a DataLoader
    features  one epoch of a fit on 2,000 rows of ``size`` features
    threads   the local fit with ``size`` threads
    floor     the local fit beside the bare forward and backward passes of g and of the importance network

A fit and its floor are timed in turns, so that what else the machine does meets both. Seed 100 and up but for Syn4's
fit, which is scored: it uses the reported seeds.
"""

import time
import warnings

import numpy as np
import pandas as pd
import torch
from torch.utils.data import DataLoader, IterableDataset

from bifkit import GlobalBIF, LocalBIF, evaluate, study
from bifkit.baselines import attribution
from bifkit.diagnostics import FitWarning
from bifkit.models import mlp, paper_g, train
from bifkit.network import ImportanceNetwork
from bifkit.optim import Flat
from bifkit.seeding import derive, seed_all
from data_prep.synthetic import make_synthetic
from experiments.rivals_budget import rival
from experiments.synthetic import prepared

PUBLISHED = {"preset": "released", "draws": 500, "batch_size": 500, "epochs": 10, "min_steps": 1, "lr": 0.05}
ROWS, FEATURES = (1_000, 10_000, 100_000, 1_000_000), (10, 100, 1_000, 10_000)
SAMPLE = {"LIME": 100, "KernelExplainer": 20, "DeepExplainer": 500}  # rows that slow explainers are timed on
EXPLAINERS = ("LocalBIF", "IntegratedGradients", "TreeExplainer", "L2X", "INVASE", *SAMPLE)


def grid(profile="paper"):
    """Every row of the benchmark; at smoke size the small ones.

    >>> len(grid("smoke")) < 20 < len(grid("paper"))
    True
    """
    smoke = profile == "smoke"
    seeds, sizes = (range(1), (1_000,)) if smoke else (range(5), (1_000, 10_000))
    rows = [{"part": "published", "what": "bifkit (local)", "seed": s} for s in seeds]
    rows += [] if smoke else [{"part": "published", "what": "published setting", "seed": 0}]
    rows += [{"part": "explain", "what": e, "size": n} for n in sizes
             for e in (EXPLAINERS[:2] if smoke else EXPLAINERS)]
    for part, steps in (("rows", ROWS), ("features", FEATURES)):
        rows += [{"part": part, "what": w, "size": n} for w in ("global", "local") for n in steps[:2 if smoke else 4]]
    rows += [] if smoke else [{"part": "rows", "what": f"{w}, loader", "size": 1_000_000} for w in ("global", "local")]
    rows += [{"part": "threads", "what": "local", "size": n} for n in (1, 2)]
    rows += [{"part": "floor", "what": "local", "seed": 100 + s} for s in seeds]
    return [{"part": "", "what": "", "size": 0, "seed": 100, **row} for row in rows]


def run(*, part, what, size=0, seed=100):
    """One row: seconds of the thing itself, and what else its part records.

    >>> sorted(run(part="rows", what="global", size=1000))
    ['fit_seconds']
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)  # one epoch is no converged fit, and is not meant to be
        return {"published": _published, "explain": _explain, "rows": _growth, "features": _growth,
                "threads": _threads, "floor": _floor}[part](part, what, size, seed)


def clock(work):
    """(result, seconds) of ``work()``.

    >>> clock(lambda: 3)[0]
    3
    """
    started = time.perf_counter()
    result = work()
    return result, time.perf_counter() - started


def _published(part, what, size, seed):
    if what == "published setting":
        data = make_synthetic("Syn4", seed)
        seed_all("Syn4", seed, "paper_g")
        g = train(paper_g(11, 2), data.X_train, data.y_train, epochs=500, batch_size=len(data.X_train), lr=1e-3,
                  weight_decay=5e-4, optimizer="sgd", schedule=None, seed=derive("Syn4", seed, "paper_g"))
        explainer = LocalBIF(g, seed=seed, **PUBLISHED)
    else:
        data, g = prepared("Syn4", seed, 10_000, "as_run")
        explainer = LocalBIF(g, seed=derive("Syn4", seed, what))
    study._reset_peak()  # of the fit alone, not of the data and of g's training
    fitted, seconds = clock(lambda: explainer.fit(data.X_train, data.y_train))
    return {"fit_seconds": seconds, "fit_peak_mb": study._peak_mb(),
            "mcc": 100 * evaluate.mcc(fitted.explain(data.X_test).mean, data.truth_test)}


def _explain(part, what, size, seed):
    data, g = prepared("Syn4", seed, 10_000, "as_run")
    X, y, background = data.X_train, data.y_train, data.X_train[:100]
    count = min(SAMPLE.get(what, size), size)
    test = np.resize(data.X_test, (count, X.shape[1]))
    fit, fitted = 0.0, None
    if what in ("LocalBIF", "L2X", "INVASE"):
        make = {"LocalBIF": lambda: LocalBIF(g, seed=seed).fit(X)}.get(
            what, lambda: rival(what, "Syn4", seed=seed).fit(X, y))
        fitted, fit = clock(make)
    elif what == "TreeExplainer":
        fitted, fit = clock(lambda: attribution.boosted_trees(X, y, seed=seed))
    work = {"LocalBIF": lambda: fitted.explain(test), "L2X": lambda: fitted.scores(test),
            "INVASE": lambda: fitted.scores(test),
            "TreeExplainer": lambda: attribution.tree_values(fitted, test),
            "IntegratedGradients": lambda: attribution.integrated_gradients(g, test),
            "DeepExplainer": lambda: attribution.shap_deep(g, test, background),
            "KernelExplainer": lambda: attribution.shap_kernel(g, test, background),
            "LIME": lambda: attribution.lime_model(g, X, test, seed=seed)}[what]
    seconds = min(clock(work)[1] for _ in range(3 if what in ("LocalBIF", "L2X", "INVASE") else 1))
    return {"fit_seconds": fit, "explain_seconds": seconds * size / count, "rows_timed": count}


class _Rows(IterableDataset):
    """Rows made as they are asked for, as from a file that does not fit in memory; the label is feature 0's sign."""

    def __init__(self, n, width, batch):
        self.n, self.width, self.batch = n, width, batch

    def __iter__(self):
        rng = torch.Generator().manual_seed(0)
        for _ in range(0, self.n, self.batch):
            x = torch.randn(self.batch, self.width, generator=rng)
            yield x, (x[:, 0] > 0).long()


def _growth(part, what, size, seed):
    n, width = (size, 20) if part == "rows" else (2_000, size)
    kind = GlobalBIF if what.startswith("global") else LocalBIF
    seed_all("bench", seed)
    settings = {"epochs": 1, "min_steps": 1, "seed": seed}
    if what.endswith("loader"):
        width = 100
        g, loader = mlp([width, 100, 100, 2]), DataLoader(_Rows(n, width, 1_000), batch_size=None)
        explainer = kind(g, **settings)
        study._reset_peak()
        return {"fit_seconds": clock(lambda: explainer.fit(loader))[1], "fit_peak_mb": study._peak_mb()}
    g, X = mlp([width, 100, 100, 2]), torch.randn(n, width)
    return {"fit_seconds": clock(lambda: kind(g, **settings).fit(X))[1]}


def _threads(part, what, size, seed):
    data, g = prepared("Syn4", seed, 10_000, "as_run")
    torch.set_num_threads(size)  # a run has one thread; the runner puts that back
    return {"fit_seconds": clock(lambda: LocalBIF(g, seed=seed).fit(data.X_train))[1]}


def _floor(part, what, size, seed):
    """A fit of 300 steps and the bare passes for as many rows, three times in turns; the least of each."""
    data, g = prepared("Syn4", seed, 10_000, "as_run")
    X, steps, batch = torch.from_numpy(data.X_train), 300, 200

    def bare():
        net = ImportanceNetwork(X.shape[1], X.shape[1], hidden=100).train()
        flat = Flat(net.parameters())
        for i in range(steps):
            x = X[i % 40 * batch:(i % 40 + 1) * batch]
            flat.vector.grad.zero_()
            g(x * net(x)).sum().backward()

    for p in g.parameters():
        p.requires_grad_(False)
    fits, floors = [], []
    for _ in range(5):
        fits.append(clock(lambda: LocalBIF(g, seed=seed, epochs=1, min_steps=steps).fit(X))[1])
        floors.append(clock(bare)[1])
    return {"fit_seconds": min(fits), "floor_seconds": min(floors), "fit_over_floor": min(fits) / min(floors)}


def exponents(frame) -> pd.DataFrame:
    """The exponent b of seconds ~ size^b, fitted over the sizes of one part, for global and local.

    >>> frame = pd.DataFrame({"part": "rows", "what": "global", "size": [10, 100], "fit_seconds": [1.0, 10.0]})
    >>> float(exponents(frame).loc["global", "rows"].round(6))
    1.0
    """
    found = {}
    for (part, what), g in frame[frame["part"].isin(["rows", "features"])].groupby(["part", "what"]):
        if len(g) > 1:
            found.setdefault(part, {})[what] = np.polyfit(np.log(g["size"]), np.log(g["fit_seconds"]), 1)[0]
    return pd.DataFrame(found)


def explain_table(frame, size) -> pd.DataFrame:
    """Seconds to explain ``size`` rows, once fitted and with the fit, and how many times LocalBIF's they are.

    >>> rows = [{"part": "explain", "what": w, "size": 9, "fit_seconds": 1.0, "explain_seconds": s, "rows_timed": 9}
    ...         for w, s in (("LocalBIF", 1.0), ("LIME", 20.0))]
    >>> explain_table(pd.DataFrame(rows), 9)["times LocalBIF"].tolist()
    [1.0, 20.0]
    """
    part = frame[(frame["part"] == "explain") & (frame["size"] == size)].set_index("what")
    out = pd.DataFrame({"once fitted": part["explain_seconds"], "with the fit": part["fit_seconds"]
                        + part["explain_seconds"], "rows timed": part["rows_timed"].astype(int)})
    for name, column in (("times LocalBIF", "once fitted"), ("times LocalBIF, with the fit", "with the fit")):
        out[name] = out[column] / out.loc["LocalBIF", column]
    return out.sort_values("once fitted", kind="stable")


def main():
    """Time everything anew, one after the other, and print the tables.

    >>> callable(main)
    True
    """
    from bifkit import report

    frame = study.run(run, grid(), name="bench", recompute=True, workers=1)
    report.show(explain_table(frame, 10_000).round(3), "seconds to explain 10,000 rows")
    report.show(exponents(frame).round(2), "exponents of the fit's time")


if __name__ == "__main__":
    from experiments import bench  # by its own name, so that a run's key and its function do not depend on the caller

    bench.main()
