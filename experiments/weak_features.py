"""Syn3 as printed: why does nobody find X8, X9 and X10, and does a better g help? (notebook 01)

The printed exponent is -100 sin(2 X7) + 2 |X8| + X9 + exp(-X10): the sine decides nearly every label. One row per g and
seed; the explainer is the same everywhere, `rank` as it comes. ``the true rule`` as g is the ceiling: what it does not
reach is the explainer's. The others try to teach a network the three weak features:

    as in the table        the g of Table 1
    ten times the rows     the same on 80,000 training rows
    sines first            a first layer of sines, so that the wave costs no capacity
    distilled trees        boosted trees, which find some of them, and a network that learns their answers
    no weight decay        the same g without its decay, five times as long
    sines and rows         a first layer of sines and ten times the rows
"""

import numpy as np
import torch
from torch import nn

from bifkit import GlobalBIF, LocalBIF, distill
from bifkit.evaluation import mcc
from data_prep.seeding import derive, seed_all
from data_prep.synthetic import make_synthetic
from experiments.models.classifiers import mlp, predict_proba, train
from experiments.models.rules import TrueRule
from experiments.rivals.attribution import boosted_trees
from experiments.runner.rows import finished

SEEDS = range(5)
MODELS = ("the true rule", "as in the table", "ten times the rows", "sines first", "distilled trees", "no weight decay",
          "sines and rows")


def grid(profile="paper"):
    """Every g and seed; at smoke size the two cheapest, few rows."""
    models, seeds, rows = (MODELS[:2], [0], 1000) if profile == "smoke" else (MODELS, SEEDS, 10_000)
    return [{"g": g, "seed": s, "rows": rows} for g in models for s in seeds]


def run(*, g, seed, rows=10_000):
    """MCC x 100 of the local and the global explanation, and how well g knows the rule."""
    data = make_synthetic("Syn3", seed, rows=rows, variant="as_printed")
    model, rule = model_of(g, data, seed), TrueRule("Syn3", variant="as_printed")
    X, truth = data.X_train, data.truth_test
    local, overall = (kind(model, seed=derive("Syn3", seed, "weak features", g)).fit(X, data.y_train)
                      .explain(data.X_test).mean for kind in (LocalBIF, GlobalBIF))
    likelier = predict_proba(rule, data.X_test).argmax(1)
    wave = (np.sin(2 * data.X_test[:, 6]) > 0).astype(int)  # what the strong feature alone says
    known, weak = predict_proba(model, data.X_test).argmax(1) == likelier, wave != likelier
    return {"local": 100 * mcc(local, truth), "global": 100 * mcc(overall, truth), "agreement": 100 * known.mean(),
            "agreement_weak": 100 * known[weak].mean(), "weak_rows": 100 * weak.mean()}


class Sines(nn.Module):
    """sin(W x + b), with frequencies wide enough for the printed wave."""

    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        """(B, n_in) to (B, n_out)."""
        return torch.sin(2 * self.linear(x))


def model_of(kind, data, seed):
    """One of ``MODELS``, trained on this data.

    >>> type(model_of("the true rule", None, 100)).__name__
    'TrueRule'
    """
    if kind == "the true rule":
        return TrueRule("Syn3", variant="as_printed")
    X, y = data.X_train, data.y_train
    if kind == "distilled trees":
        trees = boosted_trees(X, y, seed=seed)
        return distill(trees.predict_proba, X, kind="probability", min_fidelity=0.0,
                       seed=derive("Syn3", seed, "distill"))
    if kind in ("ten times the rows", "sines and rows"):
        more = make_synthetic("Syn3", seed + 1000, rows=9 * len(X) * 5 // 4, variant="as_printed")
        X, y = np.concatenate([X, more.X_train]), np.concatenate([y, more.y_train])
    seed_all("Syn3", seed, "g")
    D = data.n_features
    net = nn.Sequential(Sines(D, 100), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 2)) \
        if kind.startswith("sines") else mlp([D, 100, 100, 2])
    plan = {"epochs": 100, "weight_decay": 0.0} if kind == "no weight decay" else {}
    return train(net, X, y, seed=derive("Syn3", seed, "g"), **plan)


def table(frame):
    """Mean and standard deviation over the seeds, one row per g."""
    columns = {"local": "local, MCC x 100", "global": "global, MCC x 100",
               "agreement": "g says the likelier class (%)", "agreement_weak": "... where the weak features decide (%)"}
    by = finished(frame).groupby("g", sort=False)[list(columns)]
    names = {"as in the table": "as in the table, explained anew"}
    return tuple(part.rename(index=names, columns=columns) for part in (by.mean(), by.std(ddof=1)))
