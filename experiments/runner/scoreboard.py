"""The paper's numbers, and the scoreboard of ours against them.

``numbers()`` is the csv shipped with the package: every figure of the paper's tables that can be compared,
with its item, row and column. A study hands in its values, a row a seed, with ``submit``; ``scoreboard()``
puts the mean of the seeds beside the paper's value and says how it came out:

* ``within``: no further from the paper than two standard errors (``std / sqrt(runs)``), or equal at the
  digits the paper prints;
* ``better`` or ``short``: beyond that, on the good or on the bad side;
* ``not run``: nothing was handed in, because the study or its data set is absent.

Where the paper's value is to be met rather than beaten (``better`` is ``match``), ``within`` means inside
``TOLERANCE``. Of Figure 2 only the order counts: the posterior of Syn3 must spread wider than that of Syn2.

Our own presets stand in rows of their own, against the paper's best BIF of that column: ``bifkit (local)``
and ``bifkit (global)`` in Tables 1 and 2, ``bifkit`` on MNIST. The rows with the paper's names are our reruns
of what the paper ran.

``python -m experiments.runner.scoreboard`` prints the scoreboard; with ``--readme`` it renews the table in the README.
"""

import argparse
import importlib.resources
import re
import sys

import numpy as np
import pandas as pd

from experiments.runner import board, paths
from experiments.runner.files import write_csv, write_text

COLUMNS = ["item", "row", "column", "paper", "ours", "std", "runs", "better", "verdict"]
SUBMITTED = ["item", "row", "column", "seed", "value"]
TOLERANCE = {"table_privacy_noise": ("relative", 0.005), "importance_values": ("absolute", 0.02),
             "fig_fairness": ("absolute", 4.0)}
PAPER_BIF = {  # our row: the paper's rows it is compared with, the best of each column
    "table1": {"bifkit (local)": ["BIF (global)", "BIF (inst, samp)", "BIF (inst, pe)"],
               "bifkit (global)": ["BIF (global)", "BIF (inst, samp)", "BIF (inst, pe)"]},
    "table2": {"bifkit (local)": ["BIF (local)"], "bifkit (global)": ["BIF (global)"]},
    "mnist": {"bifkit": ["BIF"]},
}


def numbers() -> pd.DataFrame:
    """The paper's numbers: item, row, column, value, std, better, note, and two of our own columns.

    ``printed`` is the value as text, ``digits`` how many decimals its table prints (100 stands for 100.0 there).

    >>> frame = numbers()
    >>> frame[(frame["item"] == "table1") & (frame["row"] == "L2X")]["value"].tolist()
    [100.0, 100.0, 95.1, 66.0, 64.5, 73.8]
    """
    with (importlib.resources.files("experiments.runner") / "numbers.csv").open(encoding="utf-8") as file:
        frame = pd.read_csv(file, dtype=str, keep_default_na=False)
    frame["printed"] = frame["value"]
    frame["digits"] = frame["value"].str.partition(".")[2].str.len().groupby(frame["item"]).transform("max")
    frame["value"] = frame["value"].astype(float)
    frame["std"] = pd.to_numeric(frame["std"])
    return frame


def targets() -> pd.DataFrame:
    """The scoreboard's rows without our values: all of the paper's, then ours beside its best BIF.

    >>> frame = targets()
    >>> frame[(frame["row"] == "bifkit (local)") & (frame["column"] == "Syn4")]["value"].item()
    84.0
    """
    theirs = numbers()
    parts = []
    for item, part in theirs.groupby("item", sort=False):
        ours = []
        for row, rivals in PAPER_BIF.get(item, {}).items():
            bif = part[part["row"].isin(rivals)]
            if row == "bifkit (global)":  # a global explanation exists only where the paper has one
                bif = bif[bif["column"].isin(part[part["row"] == "BIF (global)"]["column"])]
            best = bif.loc[bif.groupby("column", sort=False)["value"].idxmax()]
            ours.append(best.assign(row=row))
        parts += [*ours, part]
    return pd.concat(parts, ignore_index=True)


def submit(study: str, frame: pd.DataFrame) -> None:
    """Hand in a study's values: columns item, row, column, seed, value; kept in results/scores.

    Rows that the paper does not have are kept there too, but are not on the scoreboard. A value that is
    missing counts as not run.

    >>> submit("doctest", pd.DataFrame({"item": ["mnist"], "row": ["bifkit"], "column": ["k=1"], "seed": [0],
    ...                                 "value": [.81]}))
    >>> (paths.results() / "scores" / "doctest.csv").read_text().splitlines()[1]
    'mnist,bifkit,k=1,0,0.81'
    """
    if missing := [c for c in SUBMITTED if c not in frame]:
        raise ValueError(f"{study!r} handed in a frame without {missing}: the scoreboard needs {SUBMITTED}")
    if not str(study).replace("_", "").isalnum():
        raise ValueError(f"the study's name {study!r} becomes a file's name: use letters, digits and _")
    if unknown := sorted(set(frame["item"]) - set(board.ITEMS)):
        raise ValueError(f"{study!r} handed in {unknown}: the paper's items are {sorted(board.ITEMS)}")
    frame = frame[SUBMITTED]
    columns = numbers().groupby("item")["column"].agg(set)
    for item, part in frame.groupby("item"):
        if unknown := sorted(set(part["column"].astype(str)) - columns[item]):
            raise ValueError(f"{study!r} handed in {unknown} of {item}: its columns are {sorted(columns[item])}")
    if (twice := frame.duplicated(SUBMITTED[:4])).any():
        raise ValueError(f"{study!r} handed in a value twice: {frame[twice].iloc[0].to_dict()}")
    folder = paths.results() / "scores"
    folder.mkdir(parents=True, exist_ok=True)
    write_csv(frame, folder / f"{study}.csv")


def submitted() -> pd.DataFrame:
    """All values handed in so far.

    >>> list(submitted())
    ['item', 'row', 'column', 'seed', 'value']
    """
    files = sorted((paths.results() / "scores").glob("*.csv"))
    parts = [pd.read_csv(f, dtype={"item": str, "row": str, "column": str}) for f in files]
    frame = pd.concat([p for p in parts if len(p)] or [pd.DataFrame(columns=SUBMITTED)], ignore_index=True)
    if (twice := frame.duplicated(SUBMITTED[:4])).any():
        raise ValueError(f"two studies handed in the same value: {frame[twice].iloc[0].to_dict()}")
    return frame


def scoreboard() -> pd.DataFrame:
    """The paper's values beside ours with a verdict each; also written to results/scoreboard.csv.

    >>> list(scoreboard()) == COLUMNS
    True
    """
    values = submitted().dropna(subset="value")
    values["value"] = values["value"].astype(float)
    groups = dict(list(values.groupby(["item", "row", "column"])["value"]))
    lines = []
    for t in targets().itertuples(index=False):
        got = groups.get((t.item, t.row, t.column), pd.Series(dtype=float)).to_numpy()
        ours = got.mean() if len(got) else np.nan
        std = got.std(ddof=1) if len(got) > 1 and np.isfinite(got).all() else np.nan
        verdict = judge(t.item, t.value, ours, std, len(got), t.better, t.digits)
        lines.append([t.item, t.row, t.column, t.value, ours, std, len(got), t.better, verdict])
    frame = _figure2(pd.DataFrame(lines, columns=COLUMNS))
    write_csv(frame.assign(paper=frame["paper"].map(_short), ours=frame["ours"].map(_short),
                           std=frame["std"].map(_short)), paths.results() / "scoreboard.csv")
    return frame


def judge(item: str, paper: float, ours: float, std: float, runs: int, better: str, digits: int = 1) -> str:
    """The verdict on one value, of which the paper prints ``digits`` decimals.

    >>> judge("table1", 84.0, 93.5, .9, 5, "higher"), judge("table1", 93.6, 92.0, 6.4, 5, "higher")
    ('better', 'within')
    >>> judge("table_privacy_noise", 8.07, 8.0736, float("nan"), 1, "match")
    'within'
    """
    if not runs or np.isnan(ours):
        return "not run"
    if ours == paper:  # also infinity
        return "within"
    gap = ours - paper
    if better == "match":
        kind, bound = TOLERANCE[item]
        size = abs(paper) if kind == "relative" else 1.0
        return "within" if np.isfinite(gap) and abs(gap) <= bound * size else "short"
    error = std / np.sqrt(runs) if np.isfinite(std) else 0.0
    if abs(gap) <= 2 * error or round(ours, digits) == paper:
        return "within"
    good = gap > 0 if better.startswith("higher") else gap < 0
    return "better" if good else "short"


def _figure2(frame):
    """The order of the two sums decides, not their size."""
    here = frame["item"] == "fig2"
    sums = frame[here].set_index("row")["ours"]
    if sums.notna().all():
        frame.loc[here, "verdict"] = "within" if sums["Syn3"] > sums["Syn2"] else "short"
    else:
        frame.loc[here, "verdict"] = "not run"
    return frame


def _short(value):
    return "" if pd.isna(value) else f"{value:.6g}"


def printed() -> pd.Series:
    """The paper's values as they stand there, by item, row and column of the scoreboard.

    >>> printed()["table1", "L2X", "Syn4"]
    '66.0'
    """
    return targets().set_index(["item", "row", "column"])["printed"]


def table(*, colour: bool = False) -> str:
    """The scoreboard as text for a terminal.

    >>> table().splitlines()[2]
    'Table 1: MCC x 100 on Syn1-6'
    """
    return board.terminal(scoreboard(), printed(), colour=colour)


def readme_table() -> str:
    """The scoreboard as the README's table.

    >>> readme_table().splitlines()[2].split(" | ")[0]
    '| Table 1: MCC x 100 on Syn1-6; bifkit (local)'
    """
    return board.markdown(scoreboard(), printed())


def cpu_minutes() -> pd.DataFrame:
    """Minutes of one core that the stored runs took: a row a method, the dearest first, a column a notebook.

    A study belongs to the notebook that gives its ``name=``; a study without methods is the row ``board.UNSPLIT``.

    >>> cpu_minutes().empty or cpu_minutes().sum(axis=1).is_monotonic_decreasing
    True
    """
    parts = []
    for notebook in sorted(paths.notebooks().glob("[0-9][0-9]_*.ipynb")):
        for name in set(re.findall(r'name=\\"(\w+)\\"', notebook.read_text(encoding="utf-8"))):
            if (file := paths.results() / f"{name}.csv").exists():
                runs = pd.read_csv(file, usecols=lambda column: column in ("method", "seconds"))
                parts.append(runs.reindex(columns=["method", "seconds"]).assign(notebook=notebook.name[:2]))
    runs = pd.concat(parts or [pd.DataFrame(columns=["method", "seconds", "notebook"])])
    minutes = runs.fillna({"method": board.UNSPLIT}).dropna().pivot_table("seconds", "method", "notebook", "sum") / 60
    return minutes.loc[minutes.sum(axis=1).sort_values(ascending=False, kind="stable").index]


def timings_table() -> str:
    """The README's two tables: minutes a notebook at full size (results/timings.csv), core minutes a method.

    >>> timings_table().splitlines()[0]
    '| notebook | minutes |'
    """
    file = paths.results() / "timings.csv"
    minutes = pd.read_csv(file) if file.exists() else pd.DataFrame({"notebook": [], "minutes": []})
    lines = [f"| {name} | {value:.1f} |" for name, value in minutes.itertuples(index=False)]
    for what, part in {"the paper's items, 00 to 05": range(6), "beyond the paper, 06 to 09": range(6, 10),
                       "all": range(100)}.items():
        total = sum(value for name, value in minutes.itertuples(index=False) if int(name[:2]) in part)
        lines.append(f"| **{what}** | **{total:.1f}** |")
    return "\n".join(["| notebook | minutes |", "|---|---|", *lines, "", board.costs(cpu_minutes())])


def speed_table() -> str:
    """The README's table of what notebook 09 promises and measures (figures/bench.md).

    >>> speed_table()
    ''
    """
    file = paths.figures() / "bench.md"
    return file.read_text(encoding="utf-8").strip() if file.exists() else ""


def update_readme() -> bool:
    """Renew the README's tables between ``<!-- scoreboard -->``, ``timings``, ``speed`` and their ends.

    False when there is no place for the scoreboard.

    >>> update_readme()
    False
    """
    file = paths.output() / "README.md"
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    for name, content in (("speed", speed_table), ("timings", timings_table), ("scoreboard", readme_table)):
        begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        there = begin in text and end in text
        if there:
            head, rest = text.split(begin, 1)
            text = f"{head}{begin}\n{content()}\n{end}{rest.split(end, 1)[1]}"
    if there:
        write_text(text, file)
    return there


def main(argv: list[str] | None = None) -> int:
    """``python -m experiments.runner.scoreboard [--readme]``.

    >>> main(["--readme"])
    README.md has no <!-- scoreboard --> ... <!-- /scoreboard --> to fill
    1
    """
    parser = argparse.ArgumentParser(prog="python -m experiments.runner.scoreboard", description="the scoreboard")
    parser.add_argument("--readme", action="store_true", help="renew the table in README.md")
    if not parser.parse_args(argv).readme:
        print(table(colour=board.wants_colour()))
    elif not update_readme():
        print("README.md has no <!-- scoreboard --> ... <!-- /scoreboard --> to fill")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
