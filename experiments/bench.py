"""Speed and memory on this machine: ``make bench``.

One g on Syn4 (8,000 training rows, 11 features), one thread. What a fit costs, what explaining costs once fitted, and
what other explainers of the same g take for as many rows as they can do in seconds. ``results/bench.csv`` has a row per
step: seconds of the step alone, rows it explained, seconds per 1,000 rows, and the peak memory of the process.
"""

import time

import numpy as np

from bifkit import GlobalBIF, LocalBIF, report, study
from bifkit.baselines import attribution
from experiments.synthetic import prepared

STEPS = {  # step: rows it explains, 0 for a fit
    "GlobalBIF.fit": 0, "LocalBIF.fit": 0, "LocalBIF.explain": 10_000, "IntegratedGradients": 1000,
    "SHAP DeepExplainer": 300, "LIME": 100,
}
SEED = 100  # outside the reported seeds


def run(*, step, rows=10_000):
    """One step on Syn4, timed without data and g.

    >>> row = run(step="IntegratedGradients", rows=250); sorted(row)
    ['per_1000', 'rows_explained', 'step_seconds']
    """
    data, g = prepared("Syn4", SEED, rows, "as_run")
    X, count = data.X_train, STEPS[step]
    test = np.resize(data.X_test, (count or 1, X.shape[1]))
    fitted = LocalBIF(g, seed=SEED).fit(X) if step == "LocalBIF.explain" else None
    work = {"GlobalBIF.fit": lambda: GlobalBIF(g, seed=SEED).fit(X),
            "LocalBIF.fit": lambda: LocalBIF(g, seed=SEED).fit(X),
            "LocalBIF.explain": lambda: fitted.explain(test),
            "IntegratedGradients": lambda: attribution.integrated_gradients(g, test),
            "SHAP DeepExplainer": lambda: attribution.shap_deep(g, test, X[:100]),
            "LIME": lambda: attribution.lime_model(g, X, test, seed=SEED)}[step]
    started = time.perf_counter()
    work()
    seconds = time.perf_counter() - started
    return {"step_seconds": seconds, "rows_explained": count, "per_1000": 1000 * seconds / count if count else None}


def main():
    """Run every step alone, one after the other, and print the table.

    >>> callable(main)
    True
    """
    frame = study.run(run, [{"step": step} for step in STEPS], name="bench", recompute=True, workers=1)
    table = frame.set_index("step")[["step_seconds", "rows_explained", "per_1000", "peak_mb"]]
    report.show(table.astype(float).round(3), "seconds, rows, seconds per 1,000 rows, peak MB of the process")


if __name__ == "__main__":
    from experiments import bench  # by its own name, so that a run's key and its function do not depend on the caller

    bench.main()
