"""Frames as people have them: categories, text, dates and gaps become the numbers that a stand-in learns from.

A boosted tree is asked with the frame as it is; only the stand-in (:mod:`bifkit.inputs.distilling`) sees numbers. Each
column becomes one number, and so has one importance:

    numbers, booleans    as they are; a gap is a number below all others of its column
    dates, durations     days since the first one; a gap as above
    everything else      the number of its category, a gap being one more; the categories stand in the order of the
                         model's mean answer to rows that have them (in their own, if they are ordered)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types
from scipy import sparse

from bifkit.inputs.checks import warn

DAY = pd.Timedelta(days=1)


def in_order(X: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Return the frame with the columns ``names`` in their order, or say which it lacks and which are too many.

    >>> in_order(pd.DataFrame({"pay": [1], "age": [2]}), ["age", "pay"]).columns.tolist()
    ['age', 'pay']
    """
    have = [str(c) for c in X.columns]
    if len(set(have)) < len(have):
        raise ValueError("feature names must differ from each other")
    lacking, besides = ([n for n in a if n not in set(b)] for a, b in ((names, have), (have, names)))
    if lacking or besides:
        parts = [f"{what} {', '.join(which[:5])}{', ...' if len(which) > 5 else ''}"
                 for what, which in (("it lacks", lacking), ("it has besides", besides)) if which]
        raise ValueError(f"X's columns are not those of fit: {'; '.join(parts)}")
    return X if have == list(names) else X.iloc[:, [have.index(n) for n in names]]


@dataclass
class Column:
    """How one column becomes a number.

    Attributes
    ----------
    kind : {"number", "date", "duration", "category"}
    usual : float
        What stands for a value that the stand-in has never seen: the median, the most frequent category.
    gap : float or None
        The number of a missing value; None where there was none.
    start : int
        The first date, in nanoseconds since 1970.
    codes : dict or None
        The number of each category, by its text; a missing one's is None.
    ordered : bool
        Whether larger numbers mean more: not of categories, unless they say so.
    """

    kind: str
    usual: float = 0.0
    gap: float | None = None
    start: int = 0
    codes: dict | None = None
    ordered: bool = True


def _kind(values: pd.Series) -> str:
    """What a column holds."""
    inside = types.infer_dtype(values, skipna=True) if values.dtype == object else ""
    if types.is_bool_dtype(values.dtype) or inside in ("integer", "floating", "mixed-integer-float", "boolean"):
        return "number"
    if types.is_datetime64_any_dtype(values.dtype) or inside in ("datetime", "datetime64", "date"):
        return "date"
    if types.is_timedelta64_dtype(values.dtype):
        return "duration"
    if types.is_numeric_dtype(values.dtype) and not types.is_complex_dtype(values.dtype):
        return "number"
    return "category"


def _numbers(values: pd.Series, kind: str, name: str, start: int = 0) -> np.ndarray:
    """A column of numbers, dates or durations as float64, NaN where a value is missing."""
    try:
        if kind == "date":
            found = (pd.to_datetime(values, utc=True) - pd.Timestamp(start, tz="UTC")) / DAY
        elif kind == "duration":
            found = pd.to_timedelta(values) / DAY
        else:
            found = values
        numbers = found.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise TypeError(f"column {name} held a {kind} when the stand-in was learned, and now {values.dtype} "
                        f"({error})") from None
    if np.isinf(numbers).any() or np.nanmax(np.abs(numbers), initial=0.0) > np.finfo(np.float32).max:
        raise ValueError(f"column {name} holds infinite values: clip or drop them first")
    return numbers


def _texts(values: pd.Series) -> np.ndarray:
    """A column of categories as text, None where a value is missing."""
    texts = values.astype(str).to_numpy(dtype=object)
    texts[values.isna().to_numpy()] = None
    return texts


class Table:
    """The columns of a frame and how each becomes a number.

    Parameters
    ----------
    X : DataFrame
        The rows to learn from, or anything a DataFrame is made of.
    asked : int array (m, D)
        What the model was asked: column d of an asked row is that of X's row ``asked[:, d]``.
    answers : float array (m, C)
        Its answers.

    Examples
    --------
    >>> X = pd.DataFrame({"city": ["Oslo", "Rome", "Bonn"], "pay": [1.0, None, 3.0]})
    >>> table = Table(X, np.array([[0, 0], [1, 1], [2, 2]]), np.array([[5.0], [1.0], [9.0]]))
    >>> table.encode(X[["pay", "city"]]).to_numpy().tolist()  # Rome is answered lowest; a gap is below all
    [[1.0, 1.0], [0.0, 0.0], [2.0, 3.0]]
    """

    def __init__(self, X: Any, asked: np.ndarray, answers: np.ndarray) -> None:
        self.columns: dict[str, Column] = {}
        X = pd.DataFrame(X)
        in_order(X, [str(c) for c in X.columns])  # no name twice
        away = answers - answers.mean(0)
        main = np.linalg.svd(away, full_matrices=False)[2][0]  # where the answers differ most
        score = away @ (main * np.sign(main[-1] or 1.0))  # (m,)
        for i, name in enumerate(map(str, X.columns)):
            values, kind = X.iloc[:, i], _kind(X.iloc[:, i])
            if kind == "category":
                self.columns[name] = self._categories(values, asked[:, i], score)
                continue
            start = pd.to_datetime(values, utc=True).min() if kind == "date" else pd.NaT
            column = Column(kind, start=0 if start is pd.NaT else start.as_unit("ns").value)
            numbers = _numbers(values, kind, name, column.start)
            known = numbers[~np.isnan(numbers)]
            column.usual = float(np.median(known)) if len(known) else 0.0
            if len(known) < len(numbers):
                column.gap = float(known.min() - (known.std() or 1.0)) if len(known) else 0.0
            self.columns[name] = column

    @staticmethod
    def _categories(values: pd.Series, asked: np.ndarray, score: np.ndarray) -> Column:
        """A column of categories, in the order of the mean score of asked rows that have them."""
        numbers, found = pd.factorize(_texts(values), use_na_sentinel=False)
        found = [None if pd.isna(text) else text for text in found]
        counts, total = (np.bincount(numbers[asked], weights, len(found)) for weights in (None, score))
        order = np.argsort(total / np.maximum(counts, 1), kind="stable").tolist()  # unasked ones in the middle, at 0
        ordered = isinstance(values.dtype, pd.CategoricalDtype) and bool(values.dtype.ordered)
        if ordered:
            own = [None, *map(str, values.cat.categories)]
            order = sorted(range(len(found)), key=lambda k: own.index(found[k]))
        codes = {found[k]: code for code, k in enumerate(order)}
        return Column("category", float(codes[found[np.bincount(numbers).argmax()]]), codes=codes, ordered=ordered)

    def most_categories(self) -> int:
        """Return how many categories the column with the most of them has."""
        return max(len(column.codes or ()) for column in self.columns.values())

    def encode(self, X: Any) -> Any:
        """Return the rows as float32, a frame for a frame and an array for an array, columns in the order of fit."""
        frame = in_order(X, list(self.columns)) if hasattr(X, "columns") else pd.DataFrame(X)
        if frame.shape[1] != len(self.columns):
            raise ValueError(f"X has {frame.shape[1]} features, expected {len(self.columns)}")
        out, unseen = np.empty(frame.shape, np.float32), []
        for i, (name, column) in enumerate(self.columns.items()):
            values = frame.iloc[:, i]
            if column.codes is not None:
                numbers = np.array([column.codes.get(text, np.nan) for text in _texts(values)])
            else:
                numbers = _numbers(values, column.kind, name, column.start)
                if column.gap is not None:
                    numbers = np.where(np.isnan(numbers), column.gap, numbers)
            new = np.isnan(numbers)
            if new.any():
                value = values.to_numpy(dtype=object)[new.argmax()]
                unseen.append(f"{'a missing value' if pd.isna(value) else repr(value)} in column {name}")
            out[:, i] = np.where(new, column.usual, numbers)
        if unseen:
            warn(f"what the stand-in has never seen is taken for what is usual in its column: {', '.join(unseen[:5])}"
                 + (", ..." if len(unseen) > 5 else ""))
        return pd.DataFrame(out, frame.index, list(self.columns)) if hasattr(X, "columns") else out

    def edges(self, values: np.ndarray, edges: np.ndarray) -> np.ndarray:
        """Return the ends (D, T + 1) of the ranges that the numbers (N, D) are coded by, from those of plain quantiles.

        Few categories get a range between each two neighbours, and gaps one between them and the lowest number.
        """
        edges, ends = edges.copy(), edges.shape[1]
        for i, column in enumerate(self.columns.values()):
            if column.codes is not None and len(column.codes) <= ends:
                edges[i] = np.minimum(np.arange(ends), len(column.codes) - 1)
            elif column.gap is not None:
                known = values[values[:, i] != np.float32(column.gap), i]
                if len(known):
                    edges[i] = [np.float32(column.gap), *np.quantile(known, np.linspace(0, 1, ends - 1))]
        return edges


def dense(X: Any) -> Any:
    """Return a sparse matrix as an array, anything else as it is.

    >>> dense(sparse.csr_matrix([[1.0, 0.0]])).tolist()
    [[1.0, 0.0]]
    """
    if not sparse.issparse(X):
        return X
    if np.prod(X.shape) > 2**29:
        raise ValueError(f"X is a sparse matrix of {X.shape[0]} x {X.shape[1]}, which would take "
                         f"{np.prod(X.shape) * 8 / 2**30:.0f} GB as numbers: choose fewer rows, or the columns that "
                         "occur most")
    return X.toarray()


def needs_table(X: Any) -> bool:
    """Whether rows are a frame, or an array with text or gaps."""
    if hasattr(X, "columns"):
        return True
    X = np.asarray(X) if isinstance(X, list | np.ndarray) else None
    return X is not None and X.ndim == 2 and X.shape[1] > 1 and (
        X.dtype.kind in "OUS" or X.dtype.kind == "f" and bool(np.isnan(X).any()))
