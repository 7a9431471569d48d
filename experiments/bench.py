"""Speed and scale on this machine: ``make bench`` and notebook 09. Every row is one thing, timed alone in one process.

    part      what is timed
    published one local fit on Syn4: our preset (the median of three times), or the published setting (BatchNorm in
              training mode, J = 500, batches of 500, 10 epochs) in our own code; seconds, peak memory, MCC
    explain   explaining ``size`` rows, once fitted and with the fit; slow explainers do a sample, scaled up
    rows      one epoch of a fit on ``size`` rows of 20 features; ``loader``: 100 features from a DataLoader
    features  one epoch of a fit on 2,000 rows of ``size`` features
    threads   the local fit with ``size`` threads; ``wide``: one epoch on 2,000 rows of 1,000 features
    floor     the local fit beside its floor: the bare forward and backward passes of g and of the importance network,
              as torch runs the two modules, for as many batches

A fit and its floor are timed in turns, so that what else the machine does meets both. A fit that takes less than two
seconds is timed three times: ``fit_seconds`` is the median, with the least and the most.
Seed 100 and up but for Syn4's fit, which is scored: it uses the reported seeds.
"""

import functools
import time

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from torch.utils.data import DataLoader, IterableDataset

from bifkit import GlobalBIF, LocalBIF, plots
from bifkit.evaluation import metrics
from bifkit.inputs import frozen
from bifkit.networks import ImportanceNetwork
from bifkit.presets import preset
from data_prep.seeding import derive, seed_all
from data_prep.synthetic import make_synthetic
from experiments.models.classifiers import mlp, paper_g, train
from experiments.rivals import attribution
from experiments.rivals_budget import rival
from experiments.runner import study
from experiments.synthetic import prepared

PUBLISHED = {"preset": "released", "draws": 500, "batch_size": 500, "epochs": 10, "min_steps": 1, "lr": 0.05}
ROWS, FEATURES = (1_000, 10_000, 100_000, 1_000_000), (10, 100, 1_000, 10_000)
SAMPLE = {"IntegratedGradients": 3000, "TreeExplainer": 3000, "LIME": 150, "KernelExplainer": 15,
          "DeepExplainer": 600}  # rows that slow explainers are timed on
EXPLAINERS = ("LocalBIF", "L2X", "INVASE", *SAMPLE)


def grid(profile="paper"):
    """Every row of the benchmark; at smoke size the small ones.

    >>> len(grid("smoke")) < 20 < len(grid("paper"))
    True
    """
    smoke = profile == "smoke"
    seeds, sizes = (range(1), (1_000,)) if smoke else (range(5), (1_000, 10_000))
    rows = [{"part": "published", "what": "bifkit (local)", "seed": s} for s in seeds]
    if not smoke:  # in the middle of ours: a machine's speed drifts in the minutes that it takes
        rows.insert(3, {"part": "published", "what": "published setting", "seed": 0})
    explainers = ("LocalBIF", "IntegratedGradients") if smoke else EXPLAINERS
    rows += [{"part": "explain", "what": e, "size": n} for e in explainers for n in sizes]
    for part, steps in (("rows", ROWS), ("features", FEATURES)):
        rows += [{"part": part, "what": w, "size": n} for w in ("global", "local") for n in steps[:2 if smoke else 4]]
    rows += [] if smoke else [{"part": "rows", "what": f"{w}, loader", "size": 1_000_000} for w in ("global", "local")]
    if not smoke:  # two threads on a busy machine wait for each other: minutes
        rows += [{"part": "threads", "what": w, "size": n} for w in ("local", "wide") for n in (1, 2)]
    rows += [{"part": "floor", "what": "local", "seed": 100 + s} for s in seeds]
    return [{"part": "", "what": "", "size": 0, "seed": 100, **row} for row in rows]


def run(*, part, what, size=0, seed=100):
    """One row: seconds of the thing itself, and what else its part records.

    >>> sorted(run(part="rows", what="global", size=1000))
    ['fit_extra_mb', 'fit_least', 'fit_most', 'fit_peak_mb', 'fit_seconds']
    """
    parts = {"published": _published, "explain": _explain, "rows": _growth, "features": _growth,
             "threads": _threads, "floor": _floor}
    return parts[part](part, what, size, seed)


def clock(work):
    """(result, seconds) of ``work()``.

    >>> clock(lambda: 3)[0]
    3
    """
    started = time.perf_counter()
    result = work()
    return result, time.perf_counter() - started


def measured(work):
    """(result of ``work()``, its seconds, peak MB of the process and how many of them came on top of what it had).

    >>> measured(lambda: np.ones(50_000_000, dtype="int8"))[1]["fit_extra_mb"] > 40
    True
    """
    study._reset_peak()
    before = study._peak_mb()
    result, seconds = clock(work)
    peak = study._peak_mb()
    return result, {"fit_seconds": seconds, "fit_peak_mb": peak, "fit_extra_mb": round(peak - before, 1)}


def repeated(work, times):
    """(the last result of ``work()``, what it costs): the median of so many times, the least, the most, peaks.

    >>> cost = repeated(lambda: 3, 3)[1]; cost["fit_least"] <= cost["fit_seconds"] <= cost["fit_most"]
    True
    """
    runs = [measured(work) for _ in range(times)]
    seconds = sorted(cost["fit_seconds"] for _, cost in runs)
    peaks = {name: max(cost[name] for _, cost in runs) for name in ("fit_peak_mb", "fit_extra_mb")}
    return runs[-1][0], {"fit_seconds": seconds[times // 2], "fit_least": seconds[0], "fit_most": seconds[-1]} | peaks


def _published(part, what, size, seed):
    if what == "published setting":
        data = make_synthetic("Syn4", seed)
        seed_all("Syn4", seed, "paper_g")
        g = train(paper_g(11, 2), data.X_train, data.y_train, epochs=500, batch_size=len(data.X_train), lr=1e-3,
                  weight_decay=5e-4, optimizer="sgd", schedule=None, seed=derive("Syn4", seed, "paper_g"))
        explainer, times = LocalBIF(g, seed=seed, **PUBLISHED), 1
    else:
        data, g = prepared("Syn4", seed, 10_000, "as_run")
        explainer, times = LocalBIF(g, seed=derive("Syn4", seed, what)), 3
    fitted, cost = repeated(lambda: explainer.fit(data.X_train, data.y_train), times)
    return cost | {"mcc": 100 * metrics.mcc(fitted.explain(data.X_test).mean, data.truth_test)}


@functools.lru_cache(maxsize=1)
def _fitted(what, seed):
    """(what there is to fit once, or None; seconds), kept for the next size."""
    data, g = prepared("Syn4", seed, 10_000, "as_run")
    X, y = data.X_train, data.y_train
    make = {"LocalBIF": lambda: LocalBIF(g, seed=seed).fit(X), "L2X": lambda: rival("L2X", "Syn4", seed=seed).fit(X, y),
            "INVASE": lambda: rival("INVASE", "Syn4", seed=seed).fit(X, y),
            "TreeExplainer": lambda: attribution.boosted_trees(X, y, seed=seed)}
    return clock(make[what]) if what in make else (None, 0.0)


def _explain(part, what, size, seed):
    """The median of three times, and the least and the greatest; an explainer of a sample does a third each time."""
    data, g = prepared("Syn4", seed, 10_000, "as_run")
    X, background = data.X_train, data.X_train[:100]
    count = min(SAMPLE.get(what, 3 * size) // 3, size)
    test = np.resize(data.X_test, (count, X.shape[1]))
    fitted, fit = _fitted(what, seed)
    work = {"LocalBIF": lambda: fitted.explain(test), "L2X": lambda: fitted.scores(test),
            "INVASE": lambda: fitted.scores(test),
            "TreeExplainer": lambda: attribution.tree_values(fitted, test),
            "IntegratedGradients": lambda: attribution.integrated_gradients(g, test),
            "DeepExplainer": lambda: attribution.shap_deep(g, test, background),
            "KernelExplainer": lambda: attribution.shap_kernel(g, test, background),
            "LIME": lambda: attribution.lime_model(g, X, test, seed=seed)}[what]
    times = sorted(clock(work)[1] * size / count for _ in range(3))
    return {"fit_seconds": fit, "explain_seconds": times[1], "explain_least": times[0], "explain_most": times[2],
            "rows_timed": count}


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
    settings = {"epochs": 1, "min_steps": 1, "seed": seed, "likelihood": "categorical"}  # g is untrained
    if what.endswith("loader"):
        width, X = 100, DataLoader(_Rows(n, 100, 1_000), batch_size=None)
    else:
        X = torch.randn(n, width)
    explainer = kind(mlp([width, 100, 100, 2]), **settings)
    return repeated(lambda: explainer.fit(X), 3 if n * width < 10_000_000 else 1)[1]


def _threads(part, what, size, seed):
    if what == "wide":
        seed_all("bench", seed)
        X, g = torch.randn(2_000, 1_000), mlp([1_000, 100, 100, 2])
        explainer = LocalBIF(g, epochs=1, min_steps=1, seed=seed, likelihood="categorical")  # g is untrained
    else:
        data, g = prepared("Syn4", seed, 10_000, "as_run")
        X, explainer = data.X_train, LocalBIF(g, seed=seed)
    torch.set_num_threads(size)  # a run has one thread; the runner puts that back
    return repeated(lambda: explainer.fit(X), 3)[1]


def _floor(part, what, size, seed):
    """A whole fit, and bare forward and backward passes for as many batches of as many rows: in turns, medians."""
    data, g = prepared("Syn4", seed, 10_000, "as_run")
    X, s = torch.from_numpy(data.X_train), preset("rank")
    per_epoch = len(X) // s.batch_size
    steps = max(s.epochs * per_epoch, s.min_steps)

    def bare():
        net = ImportanceNetwork(X.shape[1], X.shape[1], hidden=s.hidden).train()
        for i in range(steps):
            x = X[i % per_epoch * s.batch_size:(i % per_epoch + 1) * s.batch_size]
            net.zero_grad()
            g(x * net(x)).sum().backward()

    with frozen(g):
        work = (lambda: LocalBIF(g, seed=seed).fit(X), bare)
        fit, floor = np.median([[clock(w)[1] for w in work] for _ in range(5)], axis=0)
    return {"fit_seconds": fit, "floor_seconds": floor, "fit_over_floor": fit / floor}


def exponents(frame) -> pd.DataFrame:
    """The exponent b of seconds ~ size^b, fitted over the sizes of one part, for global and local; see ``spreads``.

    >>> frame = pd.DataFrame({"part": "rows", "what": "global", "size": [10, 100], "fit_seconds": [1.0, 10.0]})
    >>> float(exponents(frame).loc["global", "rows"].round(6))
    1.0
    """
    found = {}
    for (part, what), g in frame[frame["part"].isin(["rows", "features"])].groupby(["part", "what"]):
        if len(g) > 1:
            found.setdefault(part, {})[what] = np.polyfit(np.log(g["size"]), np.log(g["fit_seconds"]), 1)[0]
    return pd.DataFrame(found)


def spreads(frame) -> pd.DataFrame:
    """How far the exponent of ``exponents`` may be off: the largest change when single sizes take their least or most.

    >>> frame = pd.DataFrame({"part": "rows", "what": "global", "size": [10, 100], "fit_seconds": [1.0, 10.0],
    ...                       "fit_least": [1.0, 10.0], "fit_most": [1.0, 20.0]})
    >>> float(spreads(frame).loc["global", "rows"].round(2))
    0.3
    """
    middle, found = exponents(frame), 0.0
    halves = frame["size"] >= frame.groupby("part")["size"].transform("median")  # pull the line's two ends apart
    for low, high in (("fit_least", "fit_most"), ("fit_most", "fit_least")):
        moved = exponents(frame.assign(fit_seconds=np.where(halves, frame[high], frame[low])))
        found = np.maximum((moved - middle).abs(), found)
    return found


def two_largest(growth) -> pd.DataFrame:
    """The rows of the two largest sizes of each part.

    >>> two_largest(pd.DataFrame({"part": "rows", "size": [10, 100, 1000]}))["size"].tolist()
    [100, 1000]
    """
    return growth[growth["size"] >= growth.groupby("part")["size"].transform("max") / 10]


def explain_table(frame, size) -> pd.DataFrame:
    """Seconds to explain ``size`` rows, once fitted and with the fit, and how many times LocalBIF's they are.

    >>> rows = [{"part": "explain", "what": w, "size": 9, "fit_seconds": 1.0, "explain_seconds": s, "rows_timed": 9}
    ...         for w, s in (("LocalBIF", 1.0), ("LIME", 20.0))]
    >>> explain_table(pd.DataFrame(rows), 9)["times LocalBIF"].tolist()
    [1.0, 20.0]
    """
    part = frame[(frame["part"] == "explain") & (frame["size"] == size)].set_index("what")
    out = pd.DataFrame({"once fitted": part["explain_seconds"], "with the fit": part["fit_seconds"]
                        + part["explain_seconds"], "rows at a time": part["rows_timed"].astype(int)})
    for name, column in (("times LocalBIF", "once fitted"), ("times LocalBIF, with the fit", "with the fit")):
        out[name] = out[column] / out.loc["LocalBIF", column]
    return out.sort_values("once fitted", kind="stable")


def explain_figure(frame, size):
    """Points of ``explain_table``: seconds for ``size`` rows, with the fit and once fitted; a log axis has no zero."""
    table = explain_table(frame, size)
    ax = plots.axes(size=(7, 3.4))
    ax.hlines(table.index, table["once fitted"], table["with the fit"], color=plots.GREY, lw=1)
    ax.plot(table["with the fit"], table.index, "s", color=plots.ORANGE, ms=8, label="with the fit")
    ax.plot(table["once fitted"], table.index, "o", color=plots.BLUE, ms=5, label="once fitted")
    ax.set_xscale("log")
    ax.grid(axis="x", alpha=0.3)
    ax.set_xlabel(f"seconds for {size:,} rows (log scale)")
    ax.invert_yaxis()
    ax.legend(loc="upper right")
    return ax


def growth_figure(growth):
    """Seconds (above) and memory (below) of one epoch against rows and against features, global and local."""
    figure, panels = plt.subplots(2, 2, figsize=(9, 5.6), layout="constrained", sharex="col")
    labels = {"fit_seconds": "seconds per epoch", "fit_extra_mb": "MB on top of the data"}
    for row, column in zip(panels, labels, strict=True):
        for ax, part in zip(row, ("rows", "features"), strict=True):
            for what, color in (("global", plots.BLUE), ("local", plots.ORANGE)):
                sub = growth[(growth["part"] == part) & (growth["what"] == what)]
                ax.loglog(sub["size"], sub[column], "o-", color=color, label=what)
            ax.set_ylabel(labels[column])
            ax.set_ylim(*((0.005, 20) if column == "fit_seconds" else (1, 1000)))
            ax.grid(alpha=0.3)
            ax.legend(loc="upper left")
            panels[1, 0 if part == "rows" else 1].set_xlabel(part)
    return figure


def verdicts(frame) -> pd.DataFrame:
    """What was promised, what was measured, whether it holds (``-``: measured only): the README's table.

    >>> verdicts(pd.DataFrame({"part": ["x"], "what": "", "size": 0, "mcc": 0.0})).empty
    True
    """
    rows = []

    def add(promise, wanted, measured, holds=None):
        answer = {True: "yes", False: "no"}.get(None if holds is None else bool(holds), "-")
        rows.append({"promise": promise, "wanted": wanted, "measured": measured, "holds": answer})

    published = frame[frame["part"] == "published"]
    ours, others = (published[published["what"] == w] for w in ("bifkit (local)", "published setting"))
    if len(others):
        theirs = others.iloc[0]
        times = theirs["fit_seconds"] / ours["fit_seconds"]
        mean = theirs["fit_seconds"] / ours["fit_seconds"].mean()
        add("a local fit on Syn4 beside the published setting", "100 times faster",
            f"{ours['fit_seconds'].mean():.2f} s and {theirs['fit_seconds']:.0f} s: {mean:.0f} times "
            f"({times.min():.0f} to {times.max():.0f} over seeds)", mean >= 100)
        add("its MCC x 100", "no lower", f"{ours['mcc'].mean():.1f} and {theirs['mcc']:.1f}",
            ours["mcc"].mean() >= theirs["mcc"])
        add("its memory, libraries included", "under 1 GB",
            f"at most {ours['fit_peak_mb'].max():.0f} MB, and {theirs['fit_peak_mb']:.0f} MB",
            ours["fit_peak_mb"].max() < 1000)
    if (frame["part"] == "floor").sum() > 1:
        part = frame[frame["part"] == "floor"]
        ratio = part["fit_over_floor"]
        add("a fit beside its bare forward and backward passes", "-",
            f"{ratio.mean():.2f} times ({ratio.min():.2f} to {ratio.max():.2f} over seeds)")
    growth = frame[frame["part"].isin(["rows", "features"]) & frame["what"].isin(["global", "local"])]
    if growth["size"].max() >= 10_000:
        b, largest = exponents(growth), exponents(two_largest(growth))
        for part, most in (("rows", 1.05), ("features", 1.1)):
            add(f"exponent of a fit's time in {part}, global and local", f"at most {most}",
                f"{b.loc['global', part]:.2f} and {b.loc['local', part]:.2f} over all sizes, "
                f"{largest.loc['global', part]:.2f} and {largest.loc['local', part]:.2f} between the two largest",
                max(b[part].max(), largest[part].max()) <= most)
    part = frame[(frame["part"] == "explain") & (frame["size"] == 10_000)].set_index("what")
    for other, wanted in (("LIME", 100), ("DeepExplainer", 10)):
        if other in part.index:
            times = part.loc[other, "explain_seconds"] / part.loc["LocalBIF", "explain_seconds"]
            least = part.loc[other, "explain_least"] / part.loc["LocalBIF", "explain_most"]
            most = part.loc[other, "explain_most"] / part.loc["LocalBIF", "explain_least"]
            add(f"explaining 10,000 rows after the fit, beside {other}", f"{wanted} times faster",
                f"{times:,.0f} times ({least:,.0f} to {most:,.0f} over three times), scaled up from "
                f"{part.loc[other, 'rows_timed']:.0f} rows", times >= wanted)
    return pd.DataFrame(rows, columns=["promise", "wanted", "measured", "holds"]).set_index("promise")


def main():
    """Time everything anew, one after the other, print the tables and renew the README's.

    >>> callable(main)
    True
    """
    from experiments.runner import report, scoreboard

    frame = study.run(run, grid(), name="bench", recompute=True, workers=1)
    report.show(explain_table(frame, 10_000).round(3), "seconds to explain 10,000 rows")
    report.show(report.save_table(verdicts(frame), "bench"), "\nwhat was promised")
    scoreboard.update_pages()


if __name__ == "__main__":
    from experiments import bench  # by its own name, so that a run's key and its function do not depend on the caller

    bench.main()
