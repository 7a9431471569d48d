"""Tables for readers: our value with its spread, the paper's beside it, as text, csv and markdown.

A cell reads ``93.5 ± 0.9 [84.0]``: our mean and standard deviation over the seeds, the paper's value in brackets.
"""

import numpy as np
import pandas as pd

from experiments.runner import paths
from experiments.runner.files import write_csv, write_text
from experiments.runner.scoreboard import numbers


def cell(mean, std=None, paper=None, digits=1) -> str:
    """One cell of a table.

    >>> cell(93.51, 0.92, 84.0), cell(float("nan"), None, 84.0)
    ('93.5 ± 0.9 [84.0]', '- [84.0]')
    """
    text = "-" if mean is None or not np.isfinite(mean) else f"{mean:.{digits}f}"
    if text != "-" and std is not None and np.isfinite(std):
        text += f" ± {std:.{digits}f}"
    return text if paper is None or not np.isfinite(paper) else f"{text} [{paper:.{digits}f}]"


def beside(mean, std, item, *, digits=1, of="value") -> pd.DataFrame:
    """Our means and standard deviations (rows x columns) with the paper's value of the same row and column.

    ``of="std"`` puts the paper's standard deviations beside ours.

    >>> m = pd.DataFrame({"Syn4": [90.0]}, index=["L2X"]); beside(m, m * 0, "table1").loc["L2X", "Syn4"]
    '90.0 ± 0.0 [66.0]'
    """
    printed = numbers().query("item == @item").set_index(["row", "column"])[of].astype(float)
    cells = {c: [cell(mean.loc[r, c], None if std is None else std.loc[r, c], printed.get((r, c)), digits)
                 for r in mean.index] for c in mean.columns}
    return pd.DataFrame(cells, index=pd.Index(mean.index, name=mean.index.name))


def save_table(frame, name) -> pd.DataFrame:
    """Write ``figures/<name>.csv`` and ``.md``; returns the frame.

    >>> save_table(pd.DataFrame({"a": [1]}, index=["x"]), "doctest").shape
    (1, 1)
    """
    write_csv(frame.reset_index(), paths.figures() / f"{name}.csv")
    write_text(markdown(frame), paths.figures() / f"{name}.md")
    return frame


def markdown(frame) -> str:
    """A frame as a markdown table, its index first.

    >>> print(markdown(pd.DataFrame({"a": [1]}, index=["x"])).strip())
    |  | a |
    |---|---|
    | x | 1 |
    """
    frame = frame.reset_index()
    header = [("" if str(c) == "index" else str(c)) for c in frame.columns]
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(str(v) for v in row) + " |" for row in frame.itertuples(index=False)]
    return "\n".join(lines) + "\n"


def show(frame, title=None):
    """Print a frame whole, as rounded text: what nbval compares must not be HTML.

    >>> show(pd.DataFrame({"a": [1]}, index=["x"]), "A title")
    A title
       a
    x  1
    """
    if title:
        print(title)
    print("\n".join(line.rstrip() for line in frame.to_string().splitlines()))
