"""Does the encoding detector find what it should, and nothing else? Planted encoders and honest selections.

A run is a kind of selection x seed, on made-up rows whose rule is known. Encoders (Puli et al., 2024):

    position    keeps one of two useless columns: which one says the prediction
    prediction  keeps, of three columns that matter alike, the one whose value speaks most for the prediction
    margin      keeps one of three useless columns: which one says how large the score of the row is
    switch      keeps the column that decides here, and hides the one that says which decides

Honest selections are those where what is kept says all that went into the choice: one set for all rows, sets drawn
blindly, the switch kept beside the column that decides, a place that only a kept value chose.
"""

import functools
import time

import numpy as np
import pandas as pd

from bifkit.evaluation import Evaluator
from data_prep.seeding import derive
from experiments.runner.rows import finished

ENCODERS = ("position", "prediction", "margin", "switch")
HONEST = ("fixed", "random pairs", "random sizes", "switch kept", "place by a kept value")
SEEDS = range(80, 100)  # the detector was made on seeds 100 and up
ROWS, TEST_ROWS, COLUMNS = 10_000, 4000, 10


def grid(profile="paper", *, seeds=SEEDS):
    """The runs: all kinds on twenty seeds; at smoke size on one.

    >>> len(grid("smoke")), len(grid())
    (9, 180)
    """
    seeds = seeds[:1] if profile == "smoke" else seeds
    return [{"kind": kind, "seed": s} for s in seeds for kind in (*ENCODERS, *HONEST)]


def rows(rule, seed, n):
    """(X, y, score of each row): ``sum``, three columns add up; ``switch``, column 3 says whether 0 or 1 decides."""
    rng = np.random.default_rng(derive("planted", rule, seed, n))
    X = rng.normal(size=(n, COLUMNS)).astype(np.float32)
    score = 1.5 * X[:, :3].sum(1) if rule == "sum" else 3.0 * np.where(X[:, 3] > 0, X[:, 0], X[:, 1])
    return X, (rng.random(n) < 1 / (1 + np.exp(-score))).astype(int), score


def chosen(kind, X, score, seed):
    """What one kind of selection keeps of each row, bool (n, 10)."""
    n, columns = len(X), np.arange(COLUMNS)
    rng, says = np.random.default_rng(derive("planted", kind, seed)), (score > 0).astype(int)
    if kind == "fixed":
        return np.broadcast_to(columns < 2, (n, COLUMNS))
    if kind.startswith("random"):
        size = 2 if kind == "random pairs" else rng.integers(1, 5, (n, 1))
        return rng.random((n, COLUMNS)).argsort(1).argsort(1) < size
    place = {"position": 8 + says, "prediction": (X[:, :3] * np.sign(score)[:, None]).argmax(1),
             "margin": 7 + np.digitize(score, np.quantile(score, [1 / 3, 2 / 3])),
             "switch": np.where(X[:, 3] > 0, 0, 1), "switch kept": np.where(X[:, 3] > 0, 0, 1),
             "place by a kept value": np.where(X[:, 3] > 0, 8, 9)}[kind]
    kept = columns == place[:, None]
    kept[:, 3] |= kind in ("switch kept", "place by a kept value")
    return kept


@functools.lru_cache(maxsize=2)
def evaluator(rule, seed):
    """The evaluator of one rule and seed."""
    X, y, _ = rows(rule, seed, ROWS)
    return Evaluator(k=4, seed=derive("planted", rule, seed), progress=False).fit(X, y)


def run(*, kind, seed):
    """One kind of selection and seed: what the detector says of it, and how long that took."""
    rule = "switch" if kind.startswith("switch") else "sum"
    judge = evaluator(rule, seed)
    started = time.process_time()
    X, y, score = rows(rule, seed, TEST_ROWS)
    masks = chosen(kind, X, score, seed)
    found = judge.encoding(X, y, masks)
    return {"gain": found.gain, "error_of_gain": found.error, "p": found.p, "encodes": bool(found.encodes),
            "evalx": judge.score(X, y, masks)["accuracy"], "cpu_seconds": round(time.process_time() - started, 1)}


def table(frame):
    """One row per kind: how often of its seeds it is said to encode, the mean gain in nats, and EVAL-X.

    >>> frame = pd.DataFrame({"kind": "fixed", "seed": [80, 81], "error": "", "encodes": False, "gain": 0, "evalx": 1})
    >>> table(frame).loc["fixed", "said to encode"]
    '0 of 2'
    """
    good, lines = finished(frame), {}
    for kind in [k for k in (*ENCODERS, *HONEST) if k in set(good["kind"])]:
        part = good[good["kind"] == kind]
        lines[kind] = {"planted": "encodes" if kind in ENCODERS else "honest",
                       "said to encode": f"{int(part['encodes'].sum())} of {len(part)}",
                       "gain in nats": round(part["gain"].mean(), 3), "EVAL-X": round(part["evalx"].mean(), 3)}
    return pd.DataFrame(lines).T
