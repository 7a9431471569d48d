"""Credit-card fraud: 492 frauds among 284807 payments; 28 principal components and the amount.

The genuine payments are cut to 1 % (2843, drawn by the seed), all frauds stay, ``Time`` is dropped: 3335
rows and 29 features, split 80/20 and standardised on the training part.
"""

import gzip

import numpy as np
import pandas as pd

from data_prep.dataset import Dataset
from data_prep.fetch import available, ensure  # noqa: F401 (available serves the examples)
from data_prep.prepare import cached, check_share, split, standardise, stream

FEATURES = [*(f"V{i}" for i in range(1, 29)), "Amount"]


def _parse() -> dict[str, np.ndarray]:
    with gzip.open(ensure("credit")["creditcard.csv"], "rb") as stream_:
        table = pd.read_csv(stream_, engine="c", dtype={"Class": str})  # the publisher quotes the class
    return {"X": table[FEATURES].to_numpy(np.float32), "y": (table["Class"] == "1").to_numpy(np.int64)}


def load_credit(seed: int = 0, *, test_share: float = 0.2, genuine_share: float = 0.01) -> Dataset:
    """Credit: 2843 genuine payments and 492 frauds, 2668 rows to train and 667 to test.

    >>> not available("credit") or load_credit(0).X_train.shape == (2668, 29)
    True
    """
    check_share(test_share, "test_share")
    check_share(genuine_share, "genuine_share")
    arrays = cached("credit", 1, _parse)
    X, y = arrays["X"], arrays["y"]
    rng = stream("Credit", seed)
    genuine, fraud = np.flatnonzero(y == 0), np.flatnonzero(y == 1)
    rows = np.concatenate([rng.choice(genuine, int(genuine_share * len(genuine)), replace=False), fraud])
    train, test = split(len(rows), test_share, rng)
    X_train, X_test = standardise(X[rows[train]], X[rows[test]])
    names = ["genuine", "fraud"]
    return Dataset("Credit", X_train, y[rows[train]], X_test, y[rows[test]], list(FEATURES), names)
