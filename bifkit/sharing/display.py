"""How a Posterior shows itself: a compact table with bars in JupyterLab (HTML), plain text elsewhere.

Both show the ten heaviest features, by mean, with share (net of the prior), mean, sd and interval, and draw the
interval with the mean in it, to the scale in the table's head. The HTML needs no style sheet or script and keeps to
what JupyterLab lets through from a notebook it does not trust; its colours stand on light and dark ground.
"""

import math
import unicodedata
from html import escape

WIDTH = 36  # letters of a name that fit beside a figure
ROWS, CELLS = 10, 25  # features shown; letters of a text bar
TRACK, BAND, TICK = "#888888", "#56B4E9", "#D55E00"


def one_line(value) -> str:
    """Any value as one line of text that can be printed."""
    return " ".join("".join(c if c.isprintable() else " " for c in str(value)).split())


def digits(frame) -> int:
    """Decimals worth showing of a table of importances: at least three, and two digits of the largest mean."""
    return max(3, 1 - math.floor(math.log10(frame["mean"].max())))


def short(names, width=WIDTH) -> list[str]:
    """Names that fit: one line each, long ones with their middle left out, and still different from each other.

    >>> short(["age", "a_very_long_name_of_a_column"], width=15)
    ['age', 'a_very_…_column']

    Parameters
    ----------
    names : iterable
        Of any type; what cannot be printed becomes a space.
    width : int, default 36
        Letters per name; more where two names would else become the same.
    """
    names = [one_line(name) or "(no name)" for name in names]
    cut = [n if len(n) <= width else f"{n[:width // 2]}…{n[len(n) - (width - width // 2 - 1):]}" for n in names]
    return cut if len(set(cut)) == len(set(names)) else short(names, width + 6)


def _summary(posterior):
    """Title, the heaviest features' frame, how many more, the end of the bars' scale, decimals worth showing."""
    frame = posterior.to_global().to_frame().sort_values("mean", ascending=False, kind="stable")
    title = "Posterior" if not posterior.is_local else (
        f"Posterior of {len(posterior)} rows, averaged" if len(posterior) > 1 else "Posterior of one row")
    more, frame = len(frame) - ROWS, frame.head(ROWS)
    return f"{title}, {len(posterior.feature_names)} features", frame, more, frame["upper"].max(), digits(frame)


def _columns(text):
    """Columns of a terminal that a text takes: letters of East Asian scripts take two, combining marks none."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _bar(r, scale):
    """The interval as dashes, the mean as an o."""
    lower, mean, upper = (round(r[c] / scale * (CELLS - 1)) for c in ("lower", "mean", "upper"))
    return "".join("o" if i == mean else "-" if lower <= i <= upper else " " for i in range(CELLS))


def text(posterior) -> str:
    """The heaviest features of a Posterior as a table of text; a bar's dashes are the interval, its o the mean.

    >>> from bifkit import Posterior
    >>> print(text(Posterior([3.0, 1.0], ["age", "sex"], null=1.0)))
    Posterior, 2 features
             share   mean     sd  lower  upper  0                     0.992
    feature
    age      1.000  0.750  0.194  0.292  0.992  |       -----------o------|
    sex      0.000  0.250  0.194  0.008  0.708  |------o-----------       |
    """
    title, frame, more, scale, decimals = _summary(posterior)
    names = short(frame.index, 60)
    width, end = max(map(_columns, [*names, "feature"])), f"{scale:.{decimals}f}"
    lines = [" " * width + "".join(f"{c:>{decimals + 4}}" for c in frame) + f"  0{end:>{CELLS + 1}}", "feature"]
    for name, (_, r) in zip(names, frame.iterrows(), strict=True):
        numbers = "".join(f"  {r[c]:.{decimals}f}" for c in frame)
        lines.append(f"{name}{' ' * (width - _columns(name))}{numbers}  |{_bar(r, scale)}|")
    return "\n".join([title, *lines, *([f"... and {more} more"] if more > 0 else [])])


def _piece(left, width, top, height, color, opacity):
    """A rectangle of a bar."""
    return (f"<div style='position:absolute;left:{left}%;width:{width};top:{top}px;height:{height}px;"
            f"background-color:{color};opacity:{opacity}'></div>")


def html(posterior) -> str:
    """The same table as HTML: a thin track from 0 to the largest upper bound, the interval a band, the mean a tick."""
    title, frame, more, scale, decimals = _summary(posterior)
    rows = []
    for name, (_, r) in zip(short(frame.index, 60), frame.iterrows(), strict=True):
        lower, mean, upper = (round(100 * r[c] / scale, 1) for c in ("lower", "mean", "upper"))
        bar = (_piece(0, "100%", 6, 2, TRACK, 0.35) + _piece(lower, f"{max(upper - lower, 0.5):.1f}%", 3, 8, BAND, 0.8)
               + _piece(min(mean, 98), "3px", 0, 14, TICK, 1))
        numbers = "".join(f"<td>{r[c]:.{decimals}f}</td>" for c in ("share", "mean", "sd"))
        rows.append(f"<tr><td style='text-align:left'>{escape(name)}</td>{numbers}"
                    f"<td>{r['lower']:.{decimals}f} to {r['upper']:.{decimals}f}</td>"
                    f"<td><div style='position:relative;width:160px;height:14px'>{bar}</div></td></tr>")
    tail = f"<tr><td colspan='6' style='text-align:left'>and {more} more</td></tr>" if more > 0 else ""
    ends = (f"<div style='width:160px;text-align:right'><div style='float:left'>0</div>{scale:.{decimals}f}</div>")
    return (f"<table><caption>{escape(title)}</caption><tr><th style='text-align:left'>feature</th><th>share</th>"
            f"<th>mean</th><th>sd</th><th>95 % interval</th><th>{ends}</th></tr>{''.join(rows)}{tail}</table>")
