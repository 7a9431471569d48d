"""May the rivals' training be shortened? Published against short schedules, on seeds outside the reported ones.

    python -m experiments.rivals_budget                          # short schedules, seeds 100 and 101, minutes
    python -m experiments.rivals_budget --budget published       # the same with the published ones, an hour
    python -m experiments.rivals_budget --summary                # the table, from results/rivals_budget.csv

Each run adds or replaces its row of results/rivals_budget.csv: method, dataset, seed, budget, iterations, seconds (of
CPU), score. The score is MCC x 100 against ground truth on Syn1-6, and on Adult, Credit and Intrusion the post-hoc
accuracy in percent of g with the k features of each row, a mean over k = 1, 3, 5. Settings are the published ones.
INVASE: lam .1 (.15 for Syn5), ReLU for Syn1-3 and SELU for the others (supplement of the BIF paper). L2X: k the number
of relevant features (5 for Syn4 and Syn5, as there), ReLU for Syn1-2 and SELU for the others (its released code).
"""

import argparse
import time

import pandas as pd
import torch

from bifkit.evaluation.metrics import mcc, post_hoc_accuracy
from data_prep.synthetic import NAMES, make_synthetic
from experiments.rivals.invase import INVASE
from experiments.rivals.l2x import L2X
from experiments.runner import paths
from experiments.runner.files import renew_csv

KEY = ["method", "dataset", "seed", "budget"]
COLUMNS = KEY + ["iterations", "seconds", "score"]
FILE = paths.root() / "results" / "rivals_budget.csv"  # evidence, not part of what `make reproduce` trains anew


def rival(method, dataset, *, k=None, budget=None, seed=0):
    """The rival with its published setting for one data set; ``k`` is L2X's, where ground truth does not give it.

    Without a ``budget`` L2X trains by the published schedule, because its short one scores lower, and INVASE by the
    short one, which does not (both: results/rivals_budget.csv).

    >>> rival("INVASE", "Syn5").lam, rival("L2X", "Syn2").k
    (0.15, 4)
    """
    if method == "INVASE":
        return INVASE(lam=0.15 if dataset == "Syn5" else 0.1, budget=budget or "short", seed=seed,
                      activation="relu" if dataset in ("Syn1", "Syn2", "Syn3") else "selu")
    if method == "L2X":
        k = k or {"Syn1": 2, "Syn2": 4, "Syn3": 4}.get(dataset, 5)
        return L2X(k, budget=budget or "published", seed=seed,
                   activation="relu" if dataset in ("Syn1", "Syn2") else "selu")
    raise ValueError(f"method must be INVASE or L2X; got {method!r}")


def run(method, dataset, seed, budget) -> dict:
    """One row: train the rival on one sample and score it on the test rows.

    >>> from unittest import mock
    >>> small = {"make_synthetic": lambda name, seed: make_synthetic(name, seed, rows=100),
    ...          "rival": lambda *names, **kw: L2X(2, iterations=2, batch_size=20)}
    >>> with mock.patch.dict(run.__globals__, small):
    ...     list(run("L2X", "Syn1", 100, "short")) == COLUMNS
    True
    """
    from experiments import tabular  # which imports rival from here

    torch.set_num_threads(1)
    table = dataset in tabular.DATASETS
    data, g = tabular.prepared(dataset, seed) if table else (make_synthetic(dataset, seed=seed), None)
    ks = tabular.KS if table else [None]
    models = [rival(method, dataset, k=k, budget=budget, seed=seed) for k in (ks if method == "L2X" else [None])]
    start = time.process_time()
    for model in models:
        model.fit(data.X_train, data.y_train)
    seconds = time.process_time() - start  # of this process, so that a busy machine does not count
    scores = [model.scores(data.X_test) for model in models] * (len(ks) if len(models) < len(ks) else 1)
    score = [post_hoc_accuracy(g, data.X_test, data.y_test, s, k) if table else mcc(s, data.truth_test)
             for s, k in zip(scores, ks, strict=True)]
    return {"method": method, "dataset": dataset, "seed": seed, "budget": budget,
            "iterations": int(models[0].plan["iterations"]), "seconds": round(seconds, 1),
            "score": round(100 * sum(score) / len(score), 2)}


def stored() -> pd.DataFrame:
    """The rows measured so far.

    >>> list(stored()) == COLUMNS
    True
    """
    return pd.read_csv(FILE) if FILE.exists() else pd.DataFrame(columns=COLUMNS)


def add(row):
    """Put one row into the csv, in place of an older one of the same run.

    >>> from unittest import mock
    >>> row = dict(zip(COLUMNS, ["L2X", "Syn1", 100, "short", 10, 1.0, 50.0], strict=True))
    >>> with mock.patch.dict(add.__globals__, FILE=paths.build() / "doctest_rivals.csv"):
    ...     add(row); add(row | {"score": 75.0}); stored()["score"].tolist()
    [75.0]
    """
    old = stored()
    same = (old[KEY].astype(str) == [str(row[k]) for k in KEY]).all(axis=1) if len(old) else []
    frame = pd.DataFrame(([] if old.empty else old[~same].to_dict("records")) + [row])
    renew_csv(frame.sort_values(KEY), FILE)


def summary(frame=None) -> pd.DataFrame:
    """Mean score and seconds of both budgets, over the runs (data set, seed) that both have.

    >>> rows = [("L2X", "Syn1", 100, "short", 10, 1.0, 50.0), ("L2X", "Syn1", 100, "published", 100, 9.0, 75.0)]
    >>> summary(pd.DataFrame(rows, columns=COLUMNS))["score"].to_dict("records")
    [{'published': 75.0, 'short': 50.0}]
    """
    frame = stored() if frame is None else frame
    pairs = frame.pivot_table(index=KEY[:3], columns="budget", values=["score", "seconds"])
    table = pairs.dropna().groupby(level=["method", "dataset"]).mean()
    return table.round(1)


def main():
    """Run what the command line asks for.

    >>> from unittest import mock
    >>> table = pd.DataFrame({"short": [50.0]}, index=["L2X"])
    >>> asked = mock.patch("sys.argv", ["rivals_budget", "--summary"])
    >>> with asked, mock.patch.dict(main.__globals__, summary=lambda: table):
    ...     main()
         short
    L2X   50.0
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--method", nargs="+", default=["INVASE", "L2X"])
    parser.add_argument("--dataset", nargs="+", default=list(NAMES))
    parser.add_argument("--seed", nargs="+", type=int, default=[100, 101])
    parser.add_argument("--budget", nargs="+", default=["short"])
    parser.add_argument("--summary", action="store_true")
    given = parser.parse_args()
    if not given.summary:
        for budget in given.budget:
            for method in given.method:
                for seed in given.seed:
                    for dataset in given.dataset:
                        row = run(method, dataset, seed, budget)
                        add(row)
                        print(*row.values(), flush=True)
    print(summary().to_string())


if __name__ == "__main__":
    main()
