"""Fresh seeds: Table 2 and MNIST once more, on seeds that no choice has seen. (notebooks 02 and 03)

The gate of the preset ``few`` was changed after Table 2 had been seen on the reported seeds 0 to 4; the new one was
chosen on seeds 100 and up, but the question was raised by reported runs. Seeds 5 to 9 were not run before the preset
was settled. Ours and the paper's objective as printed, on the same g; on MNIST L2X and INVASE as well.

On MNIST a run also measures what the paper says of its picture: do the chosen patches of an 8 lie on the curves that
tell it from a 3? ``on_curves`` is the share of the kept patches (k = 4) of the test eights that are among the
``CURVES`` patches where the average 8 of the training digits has most ink that the average 3 has not.
"""

import numpy as np
import pandas as pd
from scipy import stats

from bifkit.evaluation import metrics
from data_prep.mnist import patches
from data_prep.seeding import seed_all
from experiments import mnist, tabular
from experiments.models.classifiers import accuracy
from experiments.runner.rows import finished

SEEDS = range(5, 10)
METHODS = {"table2": ("bifkit", "BIF"), "mnist": ("bifkit", "BIF", "L2X", "INVASE")}
CURVES = 8  # patches of 49


def grid(profile="paper", item="table2", *, seeds=SEEDS):
    """One table, five seeds; smoke: one run on few rows.

    >>> len(grid()), len(grid(item="mnist")), len(grid("smoke"))
    (30, 20, 1)
    """
    sizes = {"MNIST": 11_982} if item == "mnist" else \
        {d: min(tabular.ROWS, tabular.PART.get(d, tabular.ROWS)) for d in tabular.DATASETS}
    runs = [{"item": item, "dataset": d, "method": m, "seed": s, "rows": n, "steps": 0}
            for d, n in sizes.items() for s in seeds for m in METHODS[item]]
    return [runs[0] | {"rows": 1000, "steps": 50}] if profile == "smoke" else runs


def run(*, item, dataset, method, seed, rows, steps=0):
    """One method on one data set and seed: the accuracies of its table."""
    if item == "mnist":
        return _digits(method, seed, rows, steps or None)
    data, g = tabular.prepared(dataset, seed, rows, tabular.TEST_ROWS)
    seed_all(dataset, seed, method)
    local, overall, _ = tabular.explain(method, g, data, data.X_test, seed=seed)
    return {f"{kind}_{k}": 100 * metrics.post_hoc_accuracy(g, data.X_test, data.y_test, found[k], k)
            for kind, found in (("local", local), ("global", overall)) for k in tabular.KS}


def _digits(method, seed, rows, steps):
    X, y, X_test, y_test = mnist.digits(rows, 1984)
    g, judge = mnist.prepared(seed, rows, 1984)
    seed_all("MNIST", seed, method)
    kept, _ = mnist.explain(method, g, X, y, X_test, seed=seed, steps=steps)
    eights = kept[mnist.SHOWN_K][y_test == 1]
    out = {f"acc_{k}": accuracy(judge, metrics.keep_features(X_test, kept[k][:, patches()]), y_test) for k in mnist.KS}
    return out | {"on_curves": float(eights[:, curves(X, y)].sum() / max(eights.sum(), 1))}


def curves(X, y, groups=None, n=CURVES) -> np.ndarray:
    """The n patches where the average of class 1 has most ink that the average of class 0 has not.

    >>> X = np.array([[0.0, 1.0, 0.0], [1.0, 1.0, 0.0]]); curves(X, np.array([0, 1]), [0, 1, 2], n=1).tolist()
    [0]
    """
    groups = patches() if groups is None else np.asarray(groups)
    more = X[y == 1].mean(0) - X[y == 0].mean(0)
    return np.argsort(-np.bincount(groups, weights=more), kind="stable")[:n]


def tidy(frame) -> pd.DataFrame:
    """One row per cell and seed: item, row and column as on the scoreboard, method, seed, value.

    >>> frame = pd.DataFrame({"item": ["table2"], "dataset": "Adult", "method": "BIF", "seed": 5, "error": "",
    ...                       "local_1": 80.0})
    >>> tidy(frame)[["row", "column", "value"]].values.tolist()
    [['local', 'Adult k=1', 80.0]]
    """
    good = finished(frame)
    values = {f"{kind}_{k}": (kind, f"{{}} k={k}") for kind in tabular.KINDS for k in tabular.KS}
    values |= {f"acc_{k}": ("MNIST", f"k={k}") for k in mnist.KS}
    parts = [pd.DataFrame({"item": good["item"], "row": row, "column": good["dataset"].map(name.format),
                           "method": good["method"], "seed": good["seed"], "value": good[column]})
             for column, (row, name) in values.items() if column in good]
    return pd.concat(parts, ignore_index=True).dropna(subset="value").reset_index(drop=True)


def table(frame, item) -> pd.DataFrame:
    """Means over the fresh seeds, one row per method (and half of Table 2), one column per cell."""
    cells = tidy(frame).query("item == @item")
    order = list(dict.fromkeys(cells["column"]))
    found = cells.groupby(["row", "method", "column"])["value"].mean().unstack()[order]
    return found.sort_index(ascending=[False, False]) if len(found) else found


def against(frame, earlier) -> pd.DataFrame:
    """Ours on the fresh seeds beside the reported ones (``earlier``: row, column, seed, value of ours).

    Returns
    -------
    DataFrame
        One row per cell: both means, their difference and the p-value of Welch's t-test.
    """
    now = tidy(frame).query("method == 'bifkit'")
    lines = []
    for (row, column), part in now.groupby(["row", "column"], sort=False):
        before = earlier[(earlier["row"] == row) & (earlier["column"] == column)]["value"]
        same = part["value"].nunique() == 1 and before.nunique() == 1
        p = float(part["value"].mean() == before.mean()) if same else \
            stats.ttest_ind(part["value"], before, equal_var=False).pvalue
        lines.append({"row": row, "column": column, "seeds 0-4": before.mean(), "seeds 5-9": part["value"].mean(),
                      "difference": part["value"].mean() - before.mean(), "p": p})
    return pd.DataFrame(lines)


def on_curves(frame) -> pd.Series:
    """Share of an 8's kept patches on the curves that tell it from a 3: mean over seeds, by method; chance is n/49."""
    good = finished(frame).query("item == 'mnist'")
    return good.groupby("method")["on_curves"].agg(["mean", "sem"])
