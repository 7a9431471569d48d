"""Tables for readers: our value with its spread, the paper's beside it, as HTML, text, csv and markdown.

A cell reads ``93.5 ± 0.9 [84.0]``: our mean and standard deviation over the seeds, the paper's value in brackets.
``show`` makes of it what a reader likes to look at: the spread small beside the mean, the best in bold, a verdict by
sign *and* colour, long tables folded.

The HTML is our own and small, not pandas' Styler: a Styler keeps its looks in a ``<style>`` element, which JupyterLab
drops from a notebook that it does not trust yet, and code hosts drop always. Here ``<b>``, ``<small>`` and signs say
what is to be said, and colours are translucent, so that they serve light and dark themes. No id is made up on the
way: the same numbers give the same text, which nbval can compare.
"""

import html
import re

import numpy as np
import pandas as pd
from IPython import get_ipython
from IPython.display import display

from experiments.runner import paths
from experiments.runner.files import markdown, write_csv, write_text
from experiments.runner.scoreboard import digits as as_printed
from experiments.runner.scoreboard import own, scoreboard, targets

GOOD, BAD, OPEN = "0, 158, 115", "213, 94, 0", ""  # red, green and blue of a tint, the same for every eye and theme
SIGNS = {  # a verdict's word: its sign and its tint; True and False are no verdicts, only shown shorter
    "better": ("▲", GOOD), "worse": ("▼", BAD), "short": ("▼", BAD), "within": ("=", OPEN), "level": ("=", OPEN),
    "no worse": ("=", OPEN), "yes": ("✓", GOOD), "no": ("✗", BAD), "holds": ("✓", GOOD), "does not hold": ("✗", BAD),
    "cannot be decided": ("?", OPEN), "not run": ("", OPEN), "True": ("✓", ""), "False": ("✗", "")}
BEST = {"highest": max, "lowest": min}
WIDE = 860  # pixels; what would be wider has the spread below the mean. JupyterLab's page has about 900 at 1280
VALUE = re.compile(r"(-|[+-]?[\d.,]+%?)( ± [\d.,]+)?( \[[^\]]+\])?")  # mean, spread, the paper's


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

    Rows of our own (``bifkit (local)`` and so on) stand beside the paper's best BIF of that column.

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
    printed = targets().query("item == @item").set_index(["row", "column"])[of].astype(float)
    cells = {c: [cell(mean.loc[r, c], None if std is None else std.loc[r, c], printed.get((r, c)), digits)
                 for r in mean.index] for c in mean.columns}
    return pd.DataFrame(cells, index=pd.Index(mean.index, name=mean.index.name))


def save_table(frame, name) -> pd.DataFrame:
    """Write ``figures/<name>.csv`` and ``figures/<name>.md``; returns the frame."""
    write_csv(frame.reset_index(), paths.figures() / f"{name}.csv")
    write_text(markdown(frame) + "\n", paths.figures() / f"{name}.md")
    return frame


def verdicts(item) -> pd.DataFrame:
    """The scoreboard's verdicts on the paper's item as ``show(verdict=...)`` takes them: rows x columns, in words.

    >>> verdicts("table1").shape
    (12, 6)
    """
    board = scoreboard()
    return board[board["item"] == item].pivot(index="row", columns="column", values="verdict")


def against(item) -> pd.DataFrame:
    """Ours, the paper's method on the same g, the paper's figure, and the scoreboard's two verdicts, as text.

    One row per cell of ours. ``literal`` is the best of the paper's variants, run as printed on the same g and paired
    by seed; ``released`` the best with the settings of the authors' code, on a g of its own; ``the paper`` its best BIF
    of that column.

    >>> against("table1").columns.tolist()
    ['ours', 'literal, same g', 'ours against it', 'released', 'the paper', 'ours against the paper']
    """
    board = scoreboard()
    board = own(board.assign(**targets()[["printed", "digits"]]))  # the same rows in the same order
    board = board[board["item"] == item]
    lines = []
    for r in board.itertuples():
        places = max(1, r.digits)
        theirs = f"{r.paper:.{places}f}" if "." in r.printed else r.printed
        lines.append({"row": r.row, "column": r.column, "ours": cell(r.ours, r.std, digits=places),
                      "literal, same g": as_printed(r.literal, theirs) or "-", "ours against it": r.same_g or "-",
                      "released": as_printed(r.released, theirs) or "-",
                      "the paper": theirs if np.isnan(r.paper_std) else f"{theirs} ± {r.paper_std:.{places}f}",
                      "ours against the paper": r.verdict})
    return pd.DataFrame(lines).set_index(["row", "column"]).rename_axis([None, None])


def show(frame, title=None, *, best=None, among=None, verdict=None, fold=False, note=None):
    """Show a frame whole: in a notebook as an HTML table with its text beside it, elsewhere as text.

    Both are plain functions of the numbers, without an id made up on the way, so that nbval can compare them. A cell
    that is a verdict's word (``better``, ``short``, ``holds``, ... : ``SIGNS``) gets its sign and colour by itself.

    Parameters
    ----------
    frame : DataFrame
        Numbers, or text such as ``beside`` gives.
    title : str, optional
        One line above the table.
    best : {"highest", "lowest"}, optional
        Which cell of each column to print bold; all that are equal as printed.
    among : list of row names, optional
        The rows that compete for it: leave out bounds such as an oracle. All by default.
    verdict : DataFrame, optional
        A word of ``SIGNS`` for cells of ``frame``, found by row and column name, such as ``verdicts("table1")``.
    fold : bool, default False
        Show the title alone until the reader opens it.
    note : str, optional
        A line below the table.

    Examples
    --------
    >>> show(pd.DataFrame({"a": ["1.0 [2.0]"]}, index=["x"]), "A title", verdict=pd.DataFrame({"a": {"x": "short"}}))
    A title
               a
    x  1.0 [2.0] ▼
    ▼ short
    """
    words = _words(frame, verdict)
    text = frame.copy()
    if verdict is not None:
        text = pd.DataFrame([[f"{t} {SIGNS[w][0]}".rstrip() if w else t for t, w in zip(*both, strict=True)]
                             for both in zip(_cells(frame), words, strict=True)], frame.index, frame.columns)
    lines = [title or "", *text.to_string().splitlines(), "" if verdict is None else _key(words), note or ""]
    text = "\n".join(line.rstrip() for line in lines if line)
    if get_ipython() is None:
        print(text)
    else:
        page = html_table(frame, title, best=best, among=among, verdict=verdict, fold=fold, note=note)
        display({"text/plain": text, "text/html": page}, raw=True)


def html_table(frame, title=None, *, best=None, among=None, verdict=None, fold=False, note=None) -> str:
    """The table of ``show`` as HTML in the notebook's own table style; every name escaped.

    >>> print(html_table(pd.DataFrame({"a": ["5.0 ± 1.0"]}), best="highest").splitlines()[-4].strip())
    <td><b>5.0</b> <small>± 1.0</small></td>
    """
    if best is not None and best not in BEST:
        raise ValueError(f"best must be one of {', '.join(BEST)}; got {best!r}")
    if fold and not title:
        raise ValueError("a folded table needs a title: it is all that a reader sees")
    cells, words, names = _cells(frame), _words(frame, verdict), _one_header(frame)
    texts = [any(row[c] and row[c] not in SIGNS and not VALUE.fullmatch(row[c]) for row in cells)
             for c in range(frame.shape[1])]
    starts = [c > 0 and frame.columns.nlevels > 1 and a[0] != frame.columns[c - 1][0] for c, a in enumerate(frame)]
    stacked = _width(frame, cells) > WIDE
    bold = _best(frame, cells, best, among)

    def dressed(row, column):
        text, word = cells[row][column], words[row][column]
        sign, tint = SIGNS.get(word, ("", ""))
        style = ["text-align: left"] * texts[column] + ["border-left: 1px solid rgb(128, 128, 128)"] * starts[column]
        style += [f"background-color: rgba({tint}, 0.22)"] * bool(tint)
        found = VALUE.fullmatch(text)
        mean, *rest = [part or "" for part in found.groups()] if found else [text]
        mean, rest = html.escape(mean, quote=False), html.escape("".join(rest).strip(), quote=False)
        if text in ("True", "False"):
            mean = sign
        elif sign:
            mean = f"{sign} {mean}" if word == text else f"{mean} {sign}"
        mean = f"<b>{mean}</b>" if (row, column) in bold else mean
        small = f"{'<br>' if stacked else ' '}<small>{rest}</small>" if rest else ""
        return f'<td style="{"; ".join(style)}">{mean}{small}</td>' if style else f"<td>{mean}{small}</td>"

    with pd.option_context("display.max_colwidth", None):
        page = names.to_html(border=0, justify="right", na_rep="")
    places = ((row, column) for row in range(len(frame)) for column in range(frame.shape[1]))
    head, body = page.split("<tbody>")
    body = re.sub(r"<td>.*?</td>", lambda _: dressed(*next(places)), body, flags=re.DOTALL)
    body = re.sub(r"<th\b", '<th style="text-align: left"', body)
    head = head.replace(' halign="left"', ' style="text-align: center"')
    left = [*names.columns.names, *(n for n, is_text in zip(frame.columns, texts, strict=True) if is_text)]
    for name in left if frame.columns.nlevels == 1 else []:
        name = f"{html.escape(str(name), quote=False)}</th>"
        head = head.replace(f"<th>{name}", f'<th style="text-align: left">{name}')
    below = [_key(words)] * (verdict is not None) + [note] * bool(note)
    below = [f"<small>{html.escape(line, quote=False)}</small>" for line in below if line]
    page = "\n".join([f"{head}<tbody>{body}", *below])
    if not title:
        return page
    title = html.escape(title.strip(), quote=False)
    return f"<details>\n<summary>{title}</summary>\n{page}\n</details>" if fold else f"<b>{title}</b>\n{page}"


def _cells(frame):
    """Every cell as pandas prints it, row by row: a column of floats has as many decimals as its longest."""
    with pd.option_context("display.max_colwidth", None):
        page = frame.to_html(border=0, na_rep="", header=False)
    found = iter(re.findall(r"<td>(.*?)</td>", page, flags=re.DOTALL))
    return [[html.unescape(next(found)).strip() for _ in range(frame.shape[1])] for _ in range(len(frame))]


def _words(frame, verdict):
    """The verdict's word of every cell: its own text if that is one, else what ``verdict`` says, else nothing."""
    def word(row, column, text):
        if text in SIGNS:
            return text
        known = verdict is not None and row in verdict.index and column in verdict.columns
        found = verdict.loc[row, column] if known else ""
        if pd.notna(found) and found and found not in SIGNS:
            raise ValueError(f"the verdict on {row}, {column} must be one of {', '.join(SIGNS)}; got {found!r}")
        return found if pd.notna(found) and text != "-" else ""

    return [[word(row, column, text) for column, text in zip(frame.columns, line, strict=True)]
            for row, line in zip(frame.index, _cells(frame), strict=True)]


def _key(words):
    """What the signs mean, those that occur."""
    return ", ".join(f"{sign} {word}" for word, (sign, _) in SIGNS.items() if sign and any(word in w for w in words))


def _best(frame, cells, best, among):
    """Places of the best cells of each column, those that are equal as printed."""
    found = set()
    rows = [i for i, name in enumerate(frame.index) if among is None or name in list(among)]
    for column in range(frame.shape[1] if best else 0):
        numbers = {row: float(text.replace(",", "").rstrip("%")) for row in rows
                   if (text := (VALUE.fullmatch(cells[row][column]) or [None, "-"])[1]) != "-"}
        found |= {(row, column) for row, value in numbers.items() if value == BEST[best](numbers.values())}
    return found


def _one_header(frame):
    """The frame with the name of its rows in the corner of the header instead of a line of its own."""
    if frame.columns.nlevels > 1 or frame.index.nlevels > 1:
        return frame.rename_axis(columns=[None] * frame.columns.nlevels)
    return frame.rename_axis(index=None, columns=frame.index.name)


def _width(frame, cells):
    """About how many pixels the table takes on one line per cell."""
    names = [frame.index.get_level_values(level).astype(str) for level in range(frame.index.nlevels)]
    widest = [max(map(len, column)) for column in [*names, *zip(*cells, strict=True)] if len(column)]
    return sum(17 + 6.7 * min(letters, 30) for letters in widest)  # longer text wraps
