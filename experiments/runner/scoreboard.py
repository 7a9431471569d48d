"""The paper's numbers, and the scoreboard of ours against them.

``numbers()`` is the csv beside this file: every figure of the paper's tables that can be compared, with its item,
row and column. A study hands in its values, one row per seed, with ``submit``; ``scoreboard()`` gives two verdicts.

``verdict``, *against the paper's figure*: is the mean of our seeds another one than the paper prints?

* ``within``: chance could explain the difference, or ours is equal at the digits the paper prints;
* ``better`` or ``short``: it could not, on the good or on the bad side;
* ``not run``: nothing was handed in, because the study or its data set is absent.

Chance is judged at 5 % by Welch's t-test with both spreads where the paper prints its own (Tables 1 and 2, MNIST: five
runs each), otherwise by a t-test against the printed value as if it had none, with Holm's correction over the cells of
a table (our presets' rows are one family, the reruns another, ``released`` a third). A single run has no spread: it is
compared as it stands.

``same_g``, *against the paper's method on the same g*: our preset beside ``literal``, our rerun of the paper's variants
as printed, the one with the best mean in that column, on the same data, splits and models, paired by seed (t-test of
the differences, Holm again): ``better``, ``level`` or ``worse``. What is better against the paper but level here is not
the method's gain.

Rows named ``released`` are our reruns with the settings of the authors' code, on a g trained as they did, beside the
figures the paper prints for its BIF: do they come out again? The column ``released`` has their mean, in our presets'
rows that of the best variant.

Where the paper's value is to be met rather than beaten (``better`` is ``match``), ``within`` means inside
``TOLERANCE``. Of Figure 2 only the order counts: the posterior of Syn3 must spread wider than that of Syn2.

Our own presets stand in rows of their own, against the paper's best BIF of that column: ``bifkit (local)``
and ``bifkit (global)`` in Tables 1 and 2, ``bifkit`` on MNIST. The rows with the paper's names are our reruns
of what the paper ran.

``python -m experiments.runner.scoreboard`` prints the scoreboard; with ``--pages`` it renews the tables of the pages.
"""

import argparse
import importlib.resources
import os
import re
import sys

import numpy as np
import pandas as pd
from scipy import stats

from experiments.runner import paths
from experiments.runner.files import markdown, renew_csv, write_text, writing

COLUMNS = ["item", "row", "column", "paper", "paper_std", "ours", "std", "runs", "better", "p", "verdict", "literal",
           "p_same_g", "same_g", "released"]
LEVEL = 0.05  # of both tests, over a table
PAPER_RUNS = 5  # "mean of 5 runs"
SUBMITTED = ["item", "row", "column", "seed", "value"]
ITEMS = {  # the paper's item: its title, our notebook
    "table1": ("Table 1: MCC x 100 on Syn1-6", "01_synthetic"),
    "fig2": ("Figure 2: sum of posterior sd, Syn2 and Syn3", "01_synthetic"),
    "importance_values": ("Supplement: importance values", "01_synthetic"),
    "table2": ("Table 2: post-hoc accuracy in %", "02_tabular"),
    "mnist": ("MNIST 3 against 8: post-hoc accuracy", "03_mnist"),
    "table_privacy_noise": ("Supplement: noise and epsilon", "04_privacy"),
    "fig_fairness": ("Supplement: levels of fairness", "05_fairness"),
}
TOLERANCE = {"table_privacy_noise": ("relative", 0.005), "importance_values": ("absolute", 0.02),
             "fig_fairness": ("absolute", 4.0)}
PAPER_BIF = {  # our row: the paper's rows it is compared with, the best of each column
    "table1": {"bifkit (local)": ["BIF (global)", "BIF (inst, samp)", "BIF (inst, pe)"],
               "bifkit (global)": ["BIF (global)", "BIF (inst, samp)", "BIF (inst, pe)"]},
    "table2": {"bifkit (local)": ["BIF (local)"], "bifkit (global)": ["BIF (global)"]},
    "mnist": {"bifkit": ["BIF"]},
}
MARKS = {"better": ("+", "32"), "within": ("=", "36"), "short": ("-", "31"), "not run": (" ", "90"),  # sign, colour
         "level": ("=", "36"), "worse": ("-", "31")}
UNSPLIT = "studies not split by method"


def numbers() -> pd.DataFrame:
    """The paper's numbers: item, row, column, value, std, better, note, and two columns of our own.

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
    """The scoreboard's rows without our values: ours beside the paper's best BIF, all of the paper's, ``released``."""
    parts = []
    for item, part in numbers().groupby("item", sort=False):
        for row, rivals in PAPER_BIF.get(item, {}).items():
            bif = part[part["row"].isin(rivals)]
            if row == "bifkit (global)":  # a global explanation exists only where the paper has one
                bif = bif[bif["column"].isin(part[part["row"] == "BIF (global)"]["column"])]
            parts.append(bif.loc[bif.groupby("column", sort=False)["value"].idxmax()].assign(row=row))
        parts.append(part)
        if item in PAPER_BIF:
            bif = part[part["row"].str.startswith("BIF")]
            parts.append(bif.assign(row=bif["row"].str.replace("BIF", "released")))
    return pd.concat(parts, ignore_index=True)


def submit(study: str, frame: pd.DataFrame) -> None:
    """Hand in a study's values; kept in ``results/scores/<study>.csv``.

    Parameters
    ----------
    study : str
        The study's name.
    frame : DataFrame
        Columns item, row, column, seed, value. Rows that the paper does not have are kept too, but are not on
        the scoreboard. A missing value counts as not run.
    """
    if missing := [c for c in SUBMITTED if c not in frame]:
        raise ValueError(f"{study!r} handed in a frame without {missing}: the scoreboard needs {SUBMITTED}")
    if not str(study).replace("_", "").isalnum():
        raise ValueError(f"the study's name {study!r} becomes a file's name: use letters, digits and _")
    if unknown := sorted(set(frame["item"]) - set(ITEMS)):
        raise ValueError(f"{study!r} handed in {unknown}: the paper's items are {sorted(ITEMS)}")
    frame = frame[SUBMITTED]
    columns = numbers().groupby("item")["column"].agg(set)
    for item, part in frame.groupby("item"):
        if unknown := sorted(set(part["column"].astype(str)) - columns[item]):
            raise ValueError(f"{study!r} handed in {unknown} of {item}: its columns are {sorted(columns[item])}")
    if (twice := frame.duplicated(SUBMITTED[:4])).any():
        raise ValueError(f"{study!r} handed in a value twice: {frame[twice].iloc[0].to_dict()}")
    folder = paths.results() / "scores"
    folder.mkdir(parents=True, exist_ok=True)
    renew_csv(frame, folder / f"{study}.csv")


def submitted() -> pd.DataFrame:
    """All values handed in so far."""
    files = sorted((paths.results() / "scores").glob("*.csv"))
    parts = [pd.read_csv(f, dtype={"item": str, "row": str, "column": str}) for f in files]
    frame = pd.concat([p for p in parts if len(p)] or [pd.DataFrame(columns=SUBMITTED)], ignore_index=True)
    if (twice := frame.duplicated(SUBMITTED[:4])).any():
        raise ValueError(f"two studies handed in the same value: {frame[twice].iloc[0].to_dict()}")
    return frame


def scoreboard() -> pd.DataFrame:
    """The paper's values beside ours with both verdicts; also written to ``results/scoreboard.csv``.

    Returns
    -------
    DataFrame
        One row per number of the paper: ``COLUMNS``.
    """
    values = submitted().dropna(subset="value")
    values["value"] = values["value"].astype(float)
    groups = {key: part.set_index("seed")["value"] for key, part in values.groupby(["item", "row", "column"])}
    none, lines = pd.Series(dtype=float), []
    for t in targets().itertuples(index=False):
        got = groups.get((t.item, t.row, t.column), none)
        std = got.std(ddof=1) if len(got) > 1 and np.isfinite(got).all() else np.nan
        names = PAPER_BIF.get(t.item, {}).get(t.row, [])
        rerun = _best(groups.get((t.item, v, t.column), none) for v in names)
        released = _best(groups.get((t.item, v.replace("BIF", "released"), t.column), none) for v in names or [t.row])
        lines.append([t.item, t.row, t.column, t.value, t.std, got.mean() if len(got) else np.nan, std, len(got),
                      t.better, chance(got, t.value, t.std), "", rerun.mean(), chance_paired(got, rerun), "",
                      released.mean() if any("BIF" in v for v in names or [t.row]) else np.nan])
    frame = pd.DataFrame(lines, columns=COLUMNS)
    family = [frame["item"], frame["row"].str.extract("^(bifkit|released)", expand=False).fillna("rerun")]
    for name in ("p", "p_same_g"):
        frame[name] = frame.groupby(family)[name].transform(holm)
    places = targets()["digits"]
    frame["verdict"] = [judge(r.item, r.paper, r.ours, r.p, r.runs, r.better, d)
                        for r, d in zip(frame.itertuples(), places, strict=True)]
    side = np.where(frame["p_same_g"] >= LEVEL, "level", np.where(frame["ours"] > frame["literal"], "better", "worse"))
    frame["same_g"] = np.where(frame["p_same_g"].isna(), "", side)
    frame = _figure2(frame)
    shown = {c: frame[c].map(lambda v: "" if pd.isna(v) else f"{v:.6g}")
             for c in ("paper", "paper_std", "ours", "std", "p", "literal", "p_same_g", "released")}
    renew_csv(frame.assign(**shown), paths.results() / "scoreboard.csv")
    return frame


def _best(variants):
    """The runs with the highest mean; none of none."""
    return max(variants, key=lambda runs: runs.mean() if len(runs) else -np.inf, default=pd.Series(dtype=float))


def chance(got, paper, paper_std) -> float:
    """The p-value of a difference between our runs' mean and the paper's figure; NaN without a spread of ours.

    Parameters
    ----------
    got : Series
        Our runs.
    paper, paper_std : float
        The printed mean of five runs and its standard deviation; NaN where none is printed.

    >>> round(chance(pd.Series([93.0, 94.0, 93.5]), 93.0, 2.0), 2), round(chance(pd.Series([93.0, 94.0]), 80.0, 0.0), 2)
    (0.62, 0.02)
    """
    if len(got) < 2 or not np.isfinite(got).all() or not np.isfinite(paper):
        return np.nan
    n, errors = len(got), got.var(ddof=1) / len(got)
    theirs = 0.0 if np.isnan(paper_std) else paper_std**2 / PAPER_RUNS
    if errors + theirs == 0:  # neither varies
        return float(got.mean() == paper)
    freedom = (errors + theirs) ** 2 / (errors**2 / (n - 1) + theirs**2 / (PAPER_RUNS - 1))  # Welch's; n - 1 alone
    return float(2 * stats.t.sf(abs(got.mean() - paper) / np.sqrt(errors + theirs), freedom))


def chance_paired(got, rerun) -> float:
    """The p-value of a difference between two methods on the same models, paired by seed; NaN with fewer than two.

    >>> chance_paired(pd.Series([3.0, 4.0, 5.0]), pd.Series([1.0, 2.1, 2.9])) < 0.01
    True
    """
    gap = (got - rerun).dropna()  # by seed
    if len(gap) < 2:
        return np.nan
    if gap.std() < 1e-9:  # always the same difference
        return float(abs(gap.iloc[0]) < 1e-9)
    return float(stats.ttest_1samp(gap, 0.0).pvalue)


def holm(p: pd.Series) -> pd.Series:
    """p-values of one family, adjusted by Holm's method; NaN stay and do not count.

    >>> holm(pd.Series([0.01, 0.04, np.nan, 0.03])).tolist()
    [0.03, 0.06, nan, 0.06]
    """
    known = p.dropna().sort_values(kind="stable")
    factors = np.arange(len(known), 0, -1)
    return (known * factors).cummax().clip(upper=1.0).reindex(p.index)


def judge(item: str, paper: float, ours: float, p: float, runs: int, better: str, digits: int = 1) -> str:
    """The verdict on one value against the paper's, of which the paper prints ``digits`` decimals.

    >>> judge("table1", 84.0, 93.5, 0.001, 5, "higher"), judge("table1", 93.6, 92.0, 0.4, 5, "higher")
    ('better', 'within')
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
    if p >= LEVEL or round(ours, digits) == paper:  # NaN, of a single run, is not
        return "within"
    return "better" if (gap > 0) == better.startswith("higher") else "short"


def _figure2(frame):
    """The order of the two sums decides, not their size."""
    here = frame["item"] == "fig2"
    sums = frame[here].set_index("row")["ours"]
    verdict = "within" if sums["Syn3"] > sums["Syn2"] else "short"
    frame.loc[here, "verdict"] = verdict if sums.notna().all() else "not run"
    return frame


def _shown():
    """The scoreboard with the values as text: ``theirs`` as the paper prints it, ``mine`` with as many digits."""
    frame = scoreboard()
    theirs = targets()["printed"].tolist()  # the same rows in the same order
    return frame.assign(theirs=theirs, mine=[digits(v, p) for v, p in zip(frame["ours"], theirs, strict=True)])


def wants_colour(stream=None) -> bool:
    """Whether to colour: only on a terminal whose reader has not said NO_COLOR."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return (stream or sys.stdout).isatty() and not plain


def table(*, colour: bool = False, width: int = 118) -> str:
    """The scoreboard as text for a terminal: one block per item, ``ours/paper`` in a cell, a mark for the verdict.

    Own code, because a table wider than ``width`` must be folded, and its cells coloured, which pandas does not do.
    """
    frame = _shown()
    lines = ["ours/paper: + better, = within, - short; where ours is missing, it was not run"]
    for item, part in frame.groupby("item", sort=False):
        lines += ["", ITEMS[item][0]]
        cells = {(r.row, r.column): (f"{r.mine}/{r.theirs}{MARKS[r.verdict][0]}", r.verdict)
                 for r in part.itertuples()}
        columns, rows = list(dict.fromkeys(part["column"])), list(dict.fromkeys(part["row"]))
        wide = max(max(len(text) for text, _ in cells.values()), *map(len, columns)) + 1
        name = max(map(len, rows)) + 1
        step = max(1, (width - name) // wide)
        for chunk in (columns[i:i + step] for i in range(0, len(columns), step)):
            lines.append(" " * name + "".join(c.rjust(wide) for c in chunk))
            for row in rows:
                shown = [cells.get((row, c), ("", "not run")) for c in chunk]
                shown = [f"\x1b[{MARKS[v][1]}m{t.rjust(wide)}\x1b[0m" if colour else t.rjust(wide) for t, v in shown]
                lines.append(row.ljust(name) + "".join(shown))
    return "\n".join([*lines, "", f"bifkit's own rows and the figures to match: {counts(own(frame))}",
                      f"bifkit's own rows beside the paper's method on the same g: {counts(frame, 'same_g')}"])


def readme_table() -> str:
    """The scoreboard as the README's table: paper item, notebook, the paper's values, its method's, ours, verdicts.

    To ours of Table 2 (local) and MNIST the accuracy under EVAL-X is added, a judge to which places tell nothing.
    """
    frame, lines = own(_shown()), []
    for item, (title, notebook) in ITEMS.items():
        part = frame[frame["item"] == item]
        group = part["row"].where(~part["item"].isin(["table_privacy_noise", "fig2"]), "")
        if item == "table2":
            group = group + ", " + part["column"].str.replace(r"k=\d+", "k=1, 3, 5", regex=True)
        for name, rows in part.groupby(group, sort=False):
            ours = [text or "not run" for text in rows["mine"]] if rows["mine"].any() else ["not run"]
            there = (paths.notebooks() / f"{notebook}.ipynb").exists()
            link = f"[{notebook[:2]}](notebooks/{notebook}.ipynb)" if there else "not in this version"
            literal, released = ([digits(v, p) for v, p in zip(rows[c], rows["theirs"], strict=True)]
                                 for c in ("literal", "released"))
            judged = _evalx_of(item, rows)
            lines.append([title + (f"; {name}" if name else ""), link, " / ".join(rows["theirs"]),
                          *(" / ".join(v) if any(v) else "" for v in (released, literal)),
                          " / ".join(ours) + (f"; EVAL-X {judged}" if judged else ""), counts(rows, "same_g"),
                          counts(rows)])
    columns = ["paper item", "notebook", "paper, its best BIF", "best as released", "best as printed, our g", "ours",
               "same g", "against the paper"]
    return markdown(pd.DataFrame(lines, columns=columns).set_index("paper item"))


def own(frame: pd.DataFrame) -> pd.DataFrame:
    """Our presets' rows, and the items that have none because the paper's value is to be met."""
    return frame[frame["row"].str.startswith("bifkit") | ~frame["item"].isin(["table1", "table2", "mnist"])]


def counts(frame: pd.DataFrame, column: str = "verdict") -> str:
    """How often each verdict occurs, in words.

    >>> counts(pd.DataFrame({"verdict": ["better", "within", "better"]}))
    '2 better, 1 within'
    """
    return ", ".join(f"{n} {v}" for v in MARKS if (n := (frame[column] == v).sum()))


def digits(value: float, printed: str) -> str:
    """Our value with as many digits as the paper prints, one at least unless it is whole; empty for none.

    >>> digits(93.46, "84.0"), digits(99.96, "100"), digits(100.0, "100"), digits(float("nan"), "100")
    ('93.5', '100.0', '100', '')
    """
    if pd.isna(value):
        return ""
    places = len(printed.partition(".")[2])
    return f"{value:.{max(places, 0 if value in (float('inf'), round(value, 6) // 1) else 1)}f}"


def cpu_minutes() -> pd.DataFrame:
    """Minutes of one core that the stored runs took: one row per method, the dearest first, one column per notebook.

    A study belongs to the notebook that gives its ``name=``; a study without methods is the row ``UNSPLIT``.
    """
    parts = []
    for notebook in sorted(paths.notebooks().glob("[0-9][0-9]_*.ipynb")):
        for name in set(re.findall(r'name=\\"(\w+)\\"', notebook.read_text(encoding="utf-8"))):
            if (file := paths.results() / f"{name}.csv").exists():
                runs = pd.read_csv(file, usecols=lambda column: column in ("method", "seconds"))
                parts.append(runs.reindex(columns=["method", "seconds"]).assign(notebook=notebook.name[:2]))
    runs = pd.concat(parts or [pd.DataFrame(columns=["method", "seconds", "notebook"])])
    runs = runs.fillna({"method": UNSPLIT}).dropna()
    minutes = runs.pivot_table("seconds", "method", "notebook", "sum") / 60
    return minutes.loc[minutes.sum(axis=1).sort_values(ascending=False, kind="stable").index]


def costs(minutes: pd.DataFrame, most: int = 8) -> str:
    """The README's table of what each method costs (``cpu_minutes``), the ``most`` dearest methods by name.

    >>> print(costs(pd.DataFrame({"01": [9.0, 2.04, 1.0]}, index=["INVASE", "bifkit", "LIME"]), most=1))
    | minutes of one core | 01 | all |
    |-----------------------|------|-------|
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
    frame = pd.DataFrame(rows, index=minutes.columns).T.rename_axis("minutes of one core")
    frame = frame.assign(all=frame.sum(axis=1))
    return markdown(frame.map(lambda v: "" if pd.isna(v) else f"{v:.1f}"))


def timings_table() -> str:
    """The README's two tables: minutes of each notebook at full size (results/timings.csv), of each method."""
    file = paths.results() / "timings.csv"
    minutes = dict(pd.read_csv(file).itertuples(index=False)) if file.exists() else {}
    rows = {name: f"{value:.1f}" for name, value in minutes.items()}
    for what, part in {"the paper's items, 00 to 05": range(6), "beyond the paper, 06 to 10": range(6, 11),
                       "all": range(100)}.items():
        rows[f"**{what}**"] = f"**{sum(v for name, v in minutes.items() if int(name[:2]) in part):.1f}**"
    table = markdown(pd.DataFrame({"minutes": rows}).rename_axis("notebook"))
    return f"{table}\n\n{costs(cpu_minutes())}"


def speed_table() -> str:
    """The README's table of what notebook 09 promises and measures (figures/bench.md)."""
    file = paths.figures() / "bench.md"
    return file.read_text(encoding="utf-8").strip() if file.exists() else ""


SHORT = {"table1": "Table 1", "table2": "Table 2", "mnist": "MNIST"}


def summary() -> str:
    """The README's sentences: what is reproduced, what is better because of the method, and what is not reproduced."""
    frame = _shown()
    here, row = frame["item"].isin(SHORT), frame["row"]
    ours, literal = frame[here & row.str.startswith("bifkit")], frame[here & row.str.startswith("BIF")]
    released, met = frame[row.str.startswith("released")], frame[~here]
    gains = [f"{SHORT[r.item]} {r.column} {r.ours:.3g} (as printed {r.literal:.3g}, as released {r.released:.3g})"
             for r in ours[ours["same_g"] == "better"].itertuples()]
    by_g = ours[(ours["verdict"] == "better") & (ours["same_g"] != "better")].groupby("item", sort=False).size()
    also = [f"{n} of {SHORT[item]}" for item, n in by_g.items()]
    low = [f"{SHORT[r.item]} {r.row.removeprefix('bifkit ')} {r.column} {r.mine} against {r.theirs}"
           for r in ours[ours["ours"] < ours["paper"]].itertuples()]
    return "\n".join([
        "- **Reproduced.** With the settings of its authors' code, on classifiers g trained as they did, "
        f"{_reached(released)} ({_reached_by_table(released)}); of {len(met)} values to be matched (epsilons, "
        f"importance values, Figure 2's order, fairness levels) {int((met['verdict'] == 'within').sum())} are.",
        "- **Better because of the method**, on the same g as the paper's objective as printed, paired by seed: "
        f"{'; '.join(gains) or 'nothing'}; as released is on a g of its own. In more cells ({', '.join(also) or '-'}) "
        "ours is above the printed figure, but not above the paper's objective on our g: no gain of the method.",
        f"- **Not reproduced.** With the code's settings {'; '.join(_out_of_reach(released)) or 'none'} are out of "
        f"reach. With the objective as printed, on our g, {_reached(literal)} ({_reached_by_table(literal)}). Ours "
        f"lies below the printed figure in {len(low)} of {len(ours)} cells ({'; '.join(low) or 'none'}: chance may "
        f"explain it where the table says so){_as_printed()}."])


def _reached(rows) -> str:
    """How many of the figures are reached, missed by no more than chance explains, and missed."""
    run = rows[rows["verdict"] != "not run"]
    short = run["verdict"] == "short"
    low = ~short & (run["ours"] < run["paper"]) & (run["mine"] != run["theirs"])
    return (f"{(~short & ~low).sum()} of {len(run)} figures that the paper prints for BIF are reached, {low.sum()} "
            f"missed by no more than both spreads explain, {short.sum()} missed")


def _reached_by_table(rows) -> str:
    parts = [(name, rows[(rows["item"] == item) & (rows["verdict"] != "not run")]) for item, name in SHORT.items()]
    return ", ".join(f"{name}: {(part['verdict'] == 'short').sum()} of {len(part)} missed" for name, part in parts)


def _out_of_reach(rows) -> list[str]:
    """The figures that are not reached, one text per table; only how many where there are many."""
    parts = rows[rows["verdict"] == "short"].groupby("item", sort=False)
    return [f"{SHORT[item]} " + ", ".join(f"{r.row.removeprefix('released ')} {r.column}" for r in part.itertuples())
            if len(part) < 7 else f"{len(part)} of {SHORT[item]}" for item, part in parts]


def _as_printed() -> str:
    """The end of the last sentence: where ours stays below the paper on the data as its text describes them."""
    file = paths.results() / "synthetic_as_printed.csv"
    if not file.exists():
        return ""
    runs = pd.read_csv(file)
    mean = runs[runs["error"].isna() & (runs["method"] == "bifkit (local)")].groupby("dataset")["mcc"].mean()
    best = numbers().query("item == 'table1' and row.str.startswith('BIF')").groupby("column")["value"].max()
    low = [f"{name} {mean[name]:.1f} against {best[name]:g}" for name in mean.index if mean[name] < best[name]]
    return (", and on data made as the text says, which is not what was run, in "
            f"{len(low)} of {len(mean)} sets of Table 1 ({'; '.join(low)})") if low else ""


def more() -> str:
    """The README's lines below the scoreboard: fresh seeds, EVAL-X."""
    return "\n".join(line for line in (fresh_sentence(), evalx_sentence()) if line)


def fresh_sentence() -> str:
    """The README's sentence on seeds 5 to 9, which nobody had seen when `few` got its gate; empty if they were not run.

    Means of ours are counted against the printed figures; a cell below names the paper's objective on the same g too.
    """
    printed, cells = numbers().set_index(["item", "row", "column"])["value"], []
    for study, pattern in (("tabular", r"(local|global)_(\d+)"), ("mnist", r"acc_(\d+)")):
        file = paths.results() / f"{study}_fresh.csv"
        runs = pd.read_csv(file) if file.exists() else pd.DataFrame(columns=["method", "error"])
        runs = runs[runs["error"].isna()]
        for column in [c for c in runs if re.fullmatch(pattern, c)]:
            kind, k = column.split("_")
            for name, part in runs.groupby("dataset" if study == "tabular" else lambda _: "MNIST"):
                key = ("table2", f"BIF ({kind})", f"{name} k={k}") if study == "tabular" else ("mnist", "BIF", f"k={k}")
                mean = part.groupby("method")[column].mean()
                if {"bifkit", "BIF"} <= set(mean.index):
                    label = f"{name} {kind}, k={k}" if study == "tabular" else f"MNIST k={k}"
                    cells.append((label, mean["bifkit"], mean["BIF"], printed[key]))
    if not cells:
        return ""
    below = [f"{label} {ours:.3g} (the printed objective {paper:.3g}, printed {theirs:g})"
             for label, ours, paper, theirs in cells if ours < theirs]
    return ("- **On seeds that nobody had seen** (5 to 9, Table 2 and MNIST) ours is at or above the printed figure in "
            f"{len(cells) - len(below)} of {len(cells)} cells; below it: {'; '.join(below) or 'none'}.")


EVALX = {"few": "bifkit", "few with the surrogate": "bifkit + surrogate", "one fixed set for all rows": "fixed set"}


def evalx(variant: str = "sizes") -> pd.DataFrame:
    """EVAL-X of our selections and of the best fixed set, from the stored runs of Table 2 (in %) and MNIST.

    Parameters
    ----------
    variant : {"sizes", "half"}, default "sizes"
        The masks that the evaluator was trained on (``experiments.selections``).

    Returns
    -------
    DataFrame
        One row per cell, such as "Adult k=3" or "MNIST k=1"; the columns are those of ``EVALX``, means over the seeds;
        a cell that was not run is empty.
    """
    lines = {}
    for study in ("tabular", "mnist"):
        file = paths.results() / f"{study}.csv"
        runs = pd.read_csv(file) if file.exists() else pd.DataFrame(columns=["method", "error"])
        runs = runs[runs["error"].isna()]
        dataset_of = runs["dataset"] if "dataset" in runs else runs["method"].map(lambda _: "MNIST")
        for column in [c for c in runs if re.fullmatch(rf"evalx_{variant}_\d+", c)]:
            mean = runs[column].groupby([dataset_of, runs["method"]]).mean()
            for dataset in dict.fromkeys(dataset_of):
                lines[f"{dataset} k={column.rsplit('_', 1)[1]}"] = {
                    name: mean.get((dataset, method), np.nan) for name, method in EVALX.items()}
    return pd.DataFrame(lines, index=list(EVALX)).T


def evalx_sentence() -> str:
    """The README's sentence on EVAL-X; empty while no study has been scored by it."""
    found = evalx().dropna()
    if found.empty:
        return ""
    digit = found.index.str.startswith("MNIST")

    def count(name):
        over = found[name] >= found["one fixed set for all rows"]
        return " and ".join(f"{over[part].sum()} of {part.sum()} cells of {table}"
                            for table, part in (("Table 2", ~digit), ("MNIST", digit)) if part.any())

    return ("- **EVAL-X** is a judge trained on masks drawn blindly, to which the place of what is kept tells nothing "
            "([do selections cheat?](docs/selections.md)). Under it `few` is at or above one fixed set for all rows, "
            f"found greedily, in {count('few')}; with the surrogate in {count('few with the surrogate')}.")


def _evalx_of(item, rows):
    """EVAL-X of ours for a line of ``readme_table``, as text: local cells of Table 2, and MNIST."""
    local = item == "mnist" or (item == "table2" and rows["row"].iloc[0] == "bifkit (local)")
    found, names = evalx(), [f"MNIST {c}" if item == "mnist" else c for c in rows["column"]]
    if not local or not set(names) <= set(found.index):
        return ""
    return " / ".join(digits(v, p) for v, p in zip(found.loc[names, "few"], rows["theirs"], strict=True))


def claims_table(what) -> str:
    """``counts`` or ``page`` of ``experiments.claims``, which is imported late: its studies import this module."""
    from experiments import claims

    return getattr(claims, what)()


TABLES = {"README.md": {"summary": summary, "claims": lambda: claims_table("counts"), "scoreboard": readme_table,
                        "more": more},
          "docs/claims.md": {"claims": lambda: claims_table("page")},
          "docs/speed.md": {"timings": timings_table, "speed": speed_table}}


def update_pages() -> list[str]:
    """Renew the pages' tables, each between ``<!-- name -->`` and ``<!-- /name -->``; returns those without a place."""
    missing = []
    for page, tables in TABLES.items():
        file = paths.output() / page
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        for name, content in tables.items():
            begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
            if begin not in text or end not in text:
                missing.append(f"{page} has no {begin} ... {end}")
                continue
            head, rest = text.split(begin, 1)
            text = f"{head}{begin}\n{content()}\n{end}{rest.split(end, 1)[1]}"
        if text:
            with writing(patience=5.0):
                write_text(text, file)
    return missing


def main(argv: list[str] | None = None) -> int:
    """``python -m experiments.runner.scoreboard [--pages]``."""
    parser = argparse.ArgumentParser(prog="python -m experiments.runner.scoreboard", description="the scoreboard")
    parser.add_argument("--pages", action="store_true", help="renew the tables in README.md and docs/")
    if not parser.parse_args(argv).pages:
        print(table(colour=wants_colour()))
        return 0
    missing = update_pages()
    print(*missing, sep="\n", end="\n" if missing else "")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
