"""Tables for readers: our value with its spread, the paper's beside it, as HTML, text, csv and markdown.

A cell reads ``93.5 ± 0.9 [84.0]``: our mean and standard deviation over the seeds, the paper's value in brackets.
"""

import html

import numpy as np
import pandas as pd
from IPython import get_ipython
from IPython.display import display

from experiments.runner import paths
from experiments.runner.files import markdown, write_csv, write_text
from experiments.runner.scoreboard import numbers


def cell(mean, std=None, paper=None, digits=1) -> str:
    """One cell of a table.

    Parameters
    ----------
    mean : float or None
        Our value; a dash stands for None, NaN or infinity.
    std : float, optional
        Its standard deviation over the seeds.
    paper : float, optional
        The paper's value.
    digits : int, default 1
        How many decimals to print.

    Examples
    --------
    >>> cell(93.51, 0.92, 84.0), cell(float("nan"), None, 84.0)
    ('93.5 ± 0.9 [84.0]', '- [84.0]')
    """
    text = "-" if mean is None or not np.isfinite(mean) else f"{mean:.{digits}f}"
    if text != "-" and std is not None and np.isfinite(std):
        text += f" ± {std:.{digits}f}"
    return text if paper is None or not np.isfinite(paper) else f"{text} [{paper:.{digits}f}]"


def beside(mean, std, item, *, digits=1, of="value") -> pd.DataFrame:
    """Our means and standard deviations with the paper's value of the same row and column.

    Parameters
    ----------
    mean, std : DataFrame
        Ours, rows x columns as in the paper's table; ``std`` may be None.
    item : str
        The paper's item, such as ``"table1"``.
    digits : int, default 1
        How many decimals to print.
    of : {"value", "std"}, default "value"
        Which of the paper's numbers to put beside ours.

    Examples
    --------
    >>> m = pd.DataFrame({"Syn4": [90.0]}, index=["L2X"]); beside(m, m * 0, "table1").loc["L2X", "Syn4"]
    '90.0 ± 0.0 [66.0]'
    """
    printed = numbers().query("item == @item").set_index(["row", "column"])[of].astype(float)
    cells = {c: [cell(mean.loc[r, c], None if std is None else std.loc[r, c], printed.get((r, c)), digits)
                 for r in mean.index] for c in mean.columns}
    return pd.DataFrame(cells, index=pd.Index(mean.index, name=mean.index.name))


def save_table(frame, name) -> pd.DataFrame:
    """Write ``figures/<name>.csv`` and ``figures/<name>.md``; returns the frame."""
    write_csv(frame.reset_index(), paths.figures() / f"{name}.csv")
    write_text(markdown(frame) + "\n", paths.figures() / f"{name}.md")
    return frame


def show(frame, title=None):
    """Show a frame whole: in a notebook as an HTML table with its text beside it, elsewhere as text.

    Both are plain functions of the numbers, without an id made up on the way, so that nbval can compare them.

    >>> show(pd.DataFrame({"a": [1]}, index=["x"]), "A title")
    A title
       a
    x  1
    """
    text = "\n".join(([title] if title else []) + [line.rstrip() for line in frame.to_string().splitlines()])
    if get_ipython() is None:
        print(text)
    else:
        display({"text/plain": text, "text/html": html_table(frame, title)}, raw=True)


def html_table(frame, title=None) -> str:
    """The frame as HTML in the notebook's own table style: numbers as the text has them, every name escaped.

    >>> print(html_table(pd.DataFrame({"a": [1]}), "5 < 6").splitlines()[1][-26:])
    nowrap">5 &lt; 6</caption>
    """
    opening, rest = frame.to_html(border=0, justify="right", na_rep="").split("\n", 1)
    style = "caption-side: top; text-align: left; font-weight: bold; white-space: nowrap"
    caption = f'\n  <caption style="{style}">{html.escape(title.strip())}</caption>' if title else ""
    return f"{opening}{caption}\n{rest}"
