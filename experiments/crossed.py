"""What saves the printed objective? BatchNorm's mode and the weight of the KL, crossed. (notebook 07)

The objective as printed and as the authors' code ran it differ in two things at once: the code weighs a row's KL by one
over the batch size instead of one, and BatchNorm inside g stays in training mode, so that it normalises the shrunken
inputs f o x anew. Each of the two is changed alone here, on the same g (the authors' architecture), data and draws:

    preset       KL of a row      BatchNorm
    paper        1                frozen           as printed
    paper        1 / batch        frozen
    released     1                training
    released     1 / batch        training         as the code ran it
"""

import pandas as pd

from bifkit import LocalBIF
from bifkit.evaluation import metrics
from data_prep.seeding import derive
from data_prep.synthetic import NAMES
from experiments.errata import authors_g
from experiments.runner.rows import finished

SEEDS = range(5)
PRESET = {"frozen": "paper", "training": "released"}  # of g's BatchNorm
WEIGHT = {"1": "elbo", "1/batch": "1/batch"}  # of a row's KL


def grid(profile="paper"):
    """The four combinations on Syn1-6, five seeds; at smoke size on one set, one seed, a few steps."""
    names, seeds, rows, steps = (("Syn4",), [0], 1000, 20) if profile == "smoke" else (NAMES, SEEDS, 10_000, 0)
    return [{"dataset": d, "kl": k, "batch_norm": b, "seed": s, "rows": rows, "steps": steps}
            for d in names for s in seeds for k in WEIGHT for b in PRESET]


def run(*, dataset, kl, batch_norm, seed, rows=10_000, steps=0):
    """MCC x 100 of one combination, each row's k given."""
    data, g = authors_g(dataset, seed, rows)
    short = {"epochs": 1, "min_steps": steps, "draws": 1} if steps else {}  # toy size
    explainer = LocalBIF(g, PRESET[batch_norm], kl_weight=WEIGHT[kl], seed=derive(dataset, seed, "crossed"), **short)
    posterior = explainer.fit(data.X_train, data.y_train).explain(data.X_test)
    return {"mcc": 100 * metrics.mcc(posterior.mean, data.truth_test)}


def table(frame) -> pd.DataFrame:
    """Mean MCC x 100 over the seeds, one row per combination, one column per data set."""
    return finished(frame).groupby(["kl", "batch_norm", "dataset"])["mcc"].mean().unstack("dataset")


def effects(frame) -> pd.DataFrame:
    """What each change alone adds to the printed objective, and both together: mean and standard error over seeds.

    >>> rows = [("Syn4", k, b, s, v, "") for s in (0, 1) for (k, b), v in {("1", "frozen"): 5.0, ("1", "training"): 6.0,
    ...         ("1/batch", "frozen"): 24.0, ("1/batch", "training"): 80.0}.items()]
    >>> frame = pd.DataFrame(rows, columns=["dataset", "kl", "batch_norm", "seed", "mcc", "error"])
    >>> effects(frame)["Syn4"]["mean"].to_dict()
    {'KL 1/batch alone': 19.0, 'BatchNorm alone': 1.0, 'both': 75.0, 'more than the two added': 55.0}
    """
    wide = finished(frame).pivot(index=["dataset", "seed"], columns=["kl", "batch_norm"], values="mcc")
    printed, kl, norm, both = (wide[k, b] for k, b in (("1", "frozen"), ("1/batch", "frozen"), ("1", "training"),
                                                       ("1/batch", "training")))
    gains = pd.DataFrame({"KL 1/batch alone": kl - printed, "BatchNorm alone": norm - printed, "both": both - printed,
                          "more than the two added": both - kl - norm + printed})
    found = gains.groupby("dataset").agg(["mean", "sem"]).stack(level=0).unstack("dataset")
    return found.swaplevel(axis=1).sort_index(axis=1).reindex(gains.columns)


def findings(frame) -> list[str]:
    """What the crossing says, each line counted: a gain counts beyond two standard errors over the seeds."""
    found = effects(frame)
    lines = []
    for name, row in found.iterrows():
        part = row.unstack()
        up = part.index[part["mean"] > 2 * part["sem"].fillna(0)].tolist()
        each = ", ".join(f"{d} {v:+.1f}" for d, v in part["mean"].items())
        lines.append(f"{name}: gains on {', '.join(up) or 'no set'} ({each})")
    return lines
