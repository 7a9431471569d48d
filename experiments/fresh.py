"""Table 2 and MNIST once more on seeds 5 to 9, which nobody had seen when `few` got its gate. (notebooks 02 and 03)

The runs are those of :mod:`experiments.tabular` and :mod:`experiments.mnist`, ours and the paper's objective on the
same g; only the seeds are others.
"""

import pandas as pd

from experiments.runner import report
from experiments.runner.rows import finished

SEEDS = range(5, 10)
METHODS = ("bifkit", "BIF")


def grid(study, profile="paper"):
    """The runs of ``tabular`` or ``mnist`` on the fresh seeds; at smoke size one seed and ours alone.

    >>> from experiments import mnist, tabular
    >>> sorted({r["seed"] for r in grid(mnist)}), len(grid(tabular))
    ([5, 6, 7, 8, 9], 30)
    """
    if profile == "smoke":
        return [row | {"seed": 5} for row in study.grid(profile, methods=METHODS[:1])]
    return study.grid(profile, methods=METHODS, seeds=SEEDS)


def table(reported, fresh, scores, digits=1):
    """Ours on the reported and on the fresh seeds, and on the fresh ones the gain over the paper's objective.

    Parameters
    ----------
    reported, fresh : DataFrame
        Runs of one study; where they have a column ``dataset``, each has rows of its own.
    scores : dict
        {shown name: column of the runs}.
    digits : int, default 1
        How many decimals to print.

    Returns
    -------
    DataFrame
        One row per score; text, mean ± standard deviation over the seeds, the gain with its standard error.

    >>> runs = pd.DataFrame({"method": ["bifkit", "bifkit", "BIF", "BIF"], "seed": [5, 6] * 2, "error": "",
    ...                      "acc_1": [0.8, 0.9, 0.7, 0.8]})
    >>> table(runs, runs, {"k=1": "acc_1"}, digits=2).iloc[0].tolist()[1:]
    ['0.85 ± 0.07', '0.75 ± 0.07', '+0.10 ± 0.00']
    """
    parts = {"": (reported, fresh)}
    if "dataset" in fresh:
        names = dict.fromkeys(fresh["dataset"])
        parts = {f"{d} ": tuple(f[f["dataset"] == d] for f in (reported, fresh)) for d in names}
    lines = {}
    for name, frames in parts.items():
        old, new = (finished(f) for f in frames)
        for shown, score in scores.items():
            ours, seen, paper = (f[f["method"] == m].set_index("seed").get(score, pd.Series(dtype=float)).astype(float)
                                 for f, m in ((new, "bifkit"), (old, "bifkit"), (new, "BIF")))
            gain = (ours - paper).dropna()
            lines[name + shown] = {"bifkit, seeds 0-4": report.cell(seen.mean(), seen.std(), digits=digits),
                                   "bifkit, seeds 5-9": report.cell(ours.mean(), ours.std(), digits=digits),
                                   "BIF, same g, seeds 5-9": report.cell(paper.mean(), paper.std(), digits=digits),
                                   "gain": f"{gain.mean():+.{digits}f} ± {gain.sem():.{digits}f}" if len(gain) else "-"}
    return pd.DataFrame(lines).T
