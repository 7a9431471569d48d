"""How the scoreboard is shown: as a table in a terminal, and as the README's table.

The values come from ``experiments.runner.scoreboard``; nothing is computed here.
"""

import os
import sys

import pandas as pd

from experiments.runner import paths

ITEMS = {  # the paper's item: its title, our notebook
    "table1": ("Table 1: MCC x 100 on Syn1-6", "01_synthetic"),
    "fig2": ("Figure 2: sum of posterior sd, Syn2 and Syn3", "01_synthetic"),
    "importance_values": ("Supplement: importance values", "01_synthetic"),
    "table2": ("Table 2: post-hoc accuracy in %", "02_tabular"),
    "mnist": ("MNIST 3 against 8: post-hoc accuracy", "03_mnist"),
    "table_privacy_noise": ("Supplement: noise and epsilon", "04_privacy"),
    "fig_fairness": ("Supplement: levels of fairness", "05_fairness"),
}
UNSPLIT = "studies not split by method"
MARKS = {"better": ("+", "32"), "within": ("=", "36"), "short": ("-", "31"), "not run": (" ", "90")}


def wants_colour(stream=None) -> bool:
    """Colour belongs on a terminal whose reader has not said NO_COLOR.

    >>> import io
    >>> wants_colour(io.StringIO())
    False
    """
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return (stream or sys.stdout).isatty() and not plain


def terminal(frame: pd.DataFrame, printed: pd.Series, *, colour: bool = False, width: int = 118) -> str:
    """The scoreboard as text: an item a block, ``ours/paper`` in a cell with a mark for the verdict.

    ``printed`` holds the paper's values as they stand there, by item, row and column.

    >>> from experiments.runner import scoreboard as paper
    >>> print(terminal(paper.scoreboard(), paper.printed()).splitlines()[0])
    ours/paper: + better, = within, - short; where ours is missing, it was not run
    """
    lines = ["ours/paper: + better, = within, - short; where ours is missing, it was not run"]
    for item, part in frame.groupby("item", sort=False):
        lines += ["", ITEMS[item][0]]
        cells = {}
        for r in part.itertuples():
            theirs = printed[item, r.row, r.column]
            cells[r.row, r.column] = f"{digits(r.ours, theirs)}/{theirs}{MARKS[r.verdict][0]}", r.verdict
        columns, rows = list(dict.fromkeys(part["column"])), list(dict.fromkeys(part["row"]))
        wide = max(max(len(text) for text, _ in cells.values()), *map(len, columns)) + 1
        name = max(map(len, rows)) + 1
        step = max(1, (width - name) // wide)
        for chunk in (columns[i:i + step] for i in range(0, len(columns), step)):
            lines.append(" " * name + "".join(c.rjust(wide) for c in chunk))
            for row in rows:
                shown = [cells.get((row, c), ("", "not run")) for c in chunk]
                lines.append(row.ljust(name) + "".join(_paint(t.rjust(wide), v, colour) for t, v in shown))
    return "\n".join([*lines, "", f"bifkit's own rows and the figures to match: {counts(own(frame))}"])


def markdown(frame: pd.DataFrame, printed: pd.Series) -> str:
    """The README's table: paper item, notebook, command, paper's value, ours, verdict.

    >>> from experiments.runner import scoreboard as paper
    >>> markdown(paper.scoreboard(), paper.printed()).splitlines()[0]
    '| paper item | notebook | command | paper | ours | verdict |'
    """
    lines = ["| paper item | notebook | command | paper | ours | verdict |", "|---|---|---|---|---|---|"]
    frame = own(frame)
    for item, (title, notebook) in ITEMS.items():
        part = frame[frame["item"] == item]
        group = part["row"].where(~part["item"].isin(["table_privacy_noise", "fig2"]), "")
        if item == "table2":
            group = group + ", " + part["column"].str.replace(r"k=\d+", "k=1, 3, 5", regex=True)
        for name, rows in part.groupby(group, sort=False):
            theirs = [printed[item, r.row, r.column] for r in rows.itertuples()]
            ours = [digits(v, p) or "not run" for v, p in zip(rows["ours"], theirs, strict=True)]
            ours = ["not run"] if set(ours) == {"not run"} else ours
            what, link, command = title + (f"; {name}" if name else ""), "not in this version", ""
            if (paths.notebooks() / f"{notebook}.ipynb").exists():
                link, command = f"[{notebook}](notebooks/{notebook}.ipynb)", f"`make reproduce ONLY={notebook[:2]}`"
            cells = [what, link, command, " / ".join(theirs), " / ".join(ours), counts(rows)]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def costs(minutes: pd.DataFrame, most: int = 8) -> str:
    """The README's table of what each method costs: a column a notebook, the ``most`` dearest methods by name.

    ``minutes`` has methods as rows, the dearest first (``paper.cpu_minutes``).

    >>> print(costs(pd.DataFrame({"01": [9.0, 2.04, 1.0]}, index=["INVASE", "bifkit", "LIME"]), most=1))
    | minutes of one core | 01 | all |
    |---|---|---|
    | INVASE | 9.0 | 9.0 |
    | 2 others | 3.0 | 3.0 |
    | all | 12.0 | 12.0 |
    """
    named = minutes.drop(index=UNSPLIT, errors="ignore")
    rows = dict(named.head(most).iterrows())
    if len(named) > most:
        rows[f"{len(named) - most} others"] = named.iloc[most:].sum(min_count=1)
    if UNSPLIT in minutes.index:
        rows[UNSPLIT] = minutes.loc[UNSPLIT]
    rows["all"] = minutes.sum(min_count=1)
    heads = ["minutes of one core", *minutes.columns, "all"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, row in rows.items():
        cells = ["" if pd.isna(v) else f"{v:.1f}" for v in [*row, row.sum()]]
        lines.append(f"| {' | '.join([name, *cells])} |")
    return "\n".join(lines)


def own(frame: pd.DataFrame) -> pd.DataFrame:
    """Our presets' rows, and the items that have none because the paper's value is to be met.

    >>> frame = pd.DataFrame({"item": ["mnist", "mnist", "fig2"], "row": ["bifkit", "L2X", "Syn2"]})
    >>> own(frame)["row"].tolist()
    ['bifkit', 'Syn2']
    """
    return frame[frame["row"].str.startswith("bifkit") | ~frame["item"].isin(["table1", "table2", "mnist"])]


def counts(frame: pd.DataFrame) -> str:
    """How often each verdict occurs, in words.

    >>> counts(pd.DataFrame({"verdict": ["better", "within", "better"]}))
    '2 better, 1 within'
    """
    return ", ".join(f"{n} {v}" for v in MARKS if (n := (frame["verdict"] == v).sum()))


def digits(value: float, printed: str) -> str:
    """Our value with as many digits as the paper prints, one at least unless it is whole; empty for none.

    >>> digits(93.46, "84.0"), digits(99.96, "100"), digits(100.0, "100"), digits(float("nan"), "100")
    ('93.5', '100.0', '100', '')
    """
    if pd.isna(value):
        return ""
    places = len(printed.partition(".")[2])
    return f"{value:.{max(places, 0 if value in (float('inf'), round(value, 6) // 1) else 1)}f}"


def _paint(text, verdict, colour):
    return f"\x1b[{MARKS[verdict][1]}m{text}\x1b[0m" if colour else text
