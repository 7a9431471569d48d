"""UCI Adult: 32561 people of the 1994 census, 14 features; does a person earn more than 50K a year?

The rows of ``adult.data`` (the paper's 22561 is a slip for 32561), categories coded 0, 1, ... in
alphabetical order with ``?`` a category of its own, split at random by the seed, standardised on the
training part. ``load_adult_fair`` is the version of the fairness study: white and black people only, race
and sex taken out of the features.
"""

import gzip
from collections.abc import Collection

import numpy as np
import pandas as pd

from data_prep.dataset import Dataset
from data_prep.fetch import available, ensure  # noqa: F401 (available serves the examples)
from data_prep.prepare import check_share, codes, split, standardise, stream

FEATURES = [
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation",
    "relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country",
]  # fmt: skip
NUMBERS = {"age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week"}
CLASSES = ["<=50K", ">50K"]


def _table(file: str = "adult.data") -> pd.DataFrame:
    """The publisher's rows, strings as they are, with a column ``income``."""
    with gzip.open(ensure("adult", optional=file == "adult.test")[file], "rt") as stream:
        table = pd.read_csv(
            stream,
            names=[*FEATURES, "income"],
            skipinitialspace=True,
            keep_default_na=False,
            comment="|" if file == "adult.test" else None,
        )
    table["income"] = table["income"].str.rstrip(".")
    return table


def _arrays(drop: Collection[str]) -> tuple[np.ndarray, np.ndarray, pd.DataFrame, list[str]]:
    unknown = set(drop) - set(FEATURES)
    if unknown:
        raise ValueError(
            f"drop names {sorted(unknown)}, which Adult does not have: its features are {FEATURES}"
        )
    table = _table()
    kept = [f for f in FEATURES if f not in drop]
    columns = [table[f].to_numpy(np.float32) if f in NUMBERS else codes(table[f]) for f in kept]
    return np.stack(columns, axis=1), (table["income"] == CLASSES[1]).to_numpy(np.int64), table, kept


def load_adult(seed: int = 0, *, test_share: float = 0.2, drop: Collection[str] = ()) -> Dataset:
    """Adult, 26048 training and 6513 test rows unless ``test_share`` says otherwise (privacy: 0.1).

    ``drop`` leaves features out. ``extra`` has the strings ``race_train``, ``race_test``, ``sex_train``,
    ``sex_test``.

    >>> not available("adult") or load_adult(0).X_train.shape == (26048, 14)
    True
    """
    check_share(test_share, "test_share")
    X, y, table, kept = _arrays(drop)
    train, test = split(len(y), test_share, stream("Adult", seed))
    X_train, X_test = standardise(X[train], X[test])
    extra = {
        f"{column}_{part}": table[column].to_numpy(str)[rows]
        for column in ("race", "sex")
        for part, rows in (("train", train), ("test", test))
    }
    return Dataset("Adult", X_train, y[train], X_test, y[test], kept, list(CLASSES), extra=extra)


def load_adult_fair(seed: int = 0, *, test_share: float = 0.2, val_share: float = 0.2) -> Dataset:
    """Adult for the fairness study: 12 features, race and sex apart, three parts.

    Rows of other races are left out (30940 stay). ``extra`` has ``X_val``, ``y_val`` and, for each of
    train, val and test, ``race_*`` (White 1, Black 0) and ``sex_*`` (Male 1, Female 0). Shares are of all
    rows.

    >>> not available("adult") or load_adult_fair(0).extra["X_val"].shape == (6188, 12)
    True
    """
    check_share(test_share, "test_share")
    check_share(val_share, "val_share")
    check_share(test_share + val_share, "test_share + val_share")
    X, y, table, kept = _arrays(("race", "sex"))
    rows = np.flatnonzero(table["race"].isin(["White", "Black"]))
    order = stream("Adult", seed, "fair split").permutation(rows)
    n_test, n_val = round(test_share * len(rows)), round(val_share * len(rows))
    parts = {"test": order[:n_test], "val": order[n_test : n_test + n_val], "train": order[n_test + n_val :]}
    X_train, X_val, X_test = standardise(X[parts["train"]], X[parts["val"]], X[parts["test"]])
    extra = {"X_val": X_val, "y_val": y[parts["val"]]}
    for part, chosen in parts.items():
        extra[f"race_{part}"] = (table["race"] == "White").to_numpy(np.int64)[chosen]
        extra[f"sex_{part}"] = (table["sex"] == "Male").to_numpy(np.int64)[chosen]
    return Dataset(
        "Adult (fair)", X_train, y[parts["train"]], X_test, y[parts["test"]], kept, list(CLASSES), extra=extra
    )
