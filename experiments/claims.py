"""Every claim of the paper, what was measured, and a verdict: docs/claims.md, and its counts in README.

Five parts, each judged by the study that it belongs to; the rules stand in ``experiments/verdicts.py`` (five seeds) and
``experiments/divergence.py`` (twenty). What was not run is left out, with a line that says so.

``python -m experiments.claims`` prints the table; ``python -m experiments.runner.scoreboard --pages`` renews the pages.
"""

import functools
import re

import pandas as pd

from experiments import fairness_report, privacy_report
from experiments.claims_synthetic import claims as synthetic
from experiments.claims_synthetic import method
from experiments.claims_tables import digits, tables
from experiments.divergence import FAILS, HOLDS, OPEN
from experiments.runner import paths
from experiments.runner.files import markdown
from experiments.verdicts import COLUMNS

__all__ = ["counts", "digits", "everything", "method", "page", "parts", "synthetic", "table", "tables"]

PARTS = {  # title: claims, files of results/ that it needs, files that it uses where they are there
    "Section 4: the method": (method, [], []),
    "Sections 1, 4.3 and 5.1: synthetic data": (
        synthetic, ["synthetic"], ["released", "synthetic_as_printed", "released_draws"]),
    "Section 5.2: tables": (tables, ["tabular"], ["released_tables"]),
    "Section 5.2: MNIST": (digits, ["mnist"], ["released_digits"]),
    "Section 5.3 and supplement: privacy": (privacy_report.claims, ["privacy", "privacy_protocol"], []),
    "Supplement: fairness": (fairness_report.claims, ["fairness", "fairness_protocol"], []),
}
VARIANTS = {  # how a claim about BIF was run: the words by which one knows it
    "BIF as printed": "BIF as printed", "BIF as released": "BIF as released", "bifkit": r"^bifkit\b|preset rank"}
WAY = r"BIF as printed|BIF as released|^bifkit|(BIF, )?preset rank"
SHOWN = ["verdict", "measured", "where"]  # columns of a notebook's table
SHORT = {HOLDS: "hold", FAILS: "do not", OPEN: "cannot be decided"}


def parts() -> dict:
    """{title: (its claims, a sentence that says which results are missing, or nothing)}."""
    out = {}
    for title, (_, needed, used) in PARTS.items():
        files = {name: paths.results() / f"{name}.csv" for name in needed + used}
        missing = [f"results/{name}.csv" for name, file in files.items() if not file.exists()]
        note = f"Not there, and left out with all that needs it: {', '.join(missing)}." if missing else ""
        stamps = tuple((str(f), f.stat().st_mtime_ns if f.exists() else 0) for f in files.values())
        whole = all(files[name].exists() for name in needed)
        out[title] = (_judged(title, stamps) if whole else pd.DataFrame(columns=COLUMNS), note)
    return out


@functools.lru_cache(maxsize=len(PARTS))
def _judged(title, stamps):
    """The claims of one part; ``stamps`` of its files, so that they are judged anew when a file is."""
    return PARTS[title][0]()


def everything() -> pd.DataFrame:
    """All claims whose results are there: claim, where, measured, verdict, notebook."""
    return pd.concat([frame for frame, _ in parts().values()], ignore_index=True)


def words(verdicts) -> str:
    """How often each verdict occurs.

    >>> words(pd.Series(["holds", "holds", "cannot be decided"]))
    '2 hold, 0 do not, 1 cannot be decided'
    """
    return ", ".join(f"{(verdicts == verdict).sum()} {short}" for verdict, short in SHORT.items())


def counts() -> str:
    """README's sentences: how many claims hold, and how many of those about BIF by each way of running it."""
    return counted(everything())


def counted(frame) -> str:
    """``counts`` of a frame of claims.

    >>> print(counted(pd.DataFrame({"claim": ["BIF as printed: a", "bifkit: a"], "verdict": [FAILS, HOLDS]})))
    **Claim by claim.** The paper's 1 claims ([the list](docs/claims.md), with what was measured and its spread) are
    judged in 2 statements, because one about BIF is judged for each way of running it: 1 hold, 1 do not, 0 cannot be
    decided. Of those about BIF as printed 0 hold, 1 do not, 0 cannot be decided; bifkit 1 hold, 0 do not, 0 cannot be
    decided.
    """
    if frame.empty:
        return ""
    ways = {who: frame[frame["claim"].str.contains(known)]["verdict"] for who, known in VARIANTS.items()}
    by_way = "; ".join(f"{who} {words(found)}" for who, found in ways.items() if len(found))
    return (f"**Claim by claim.** The paper's {distinct(frame)} claims ([the list](docs/claims.md), with what was "
            f"measured and its spread) are judged in {len(frame)} statements, because one about BIF is judged for each "
            f"way of running it: {words(frame['verdict'])}." + (f" Of those about {by_way}." if by_way else ""))


def distinct(frame) -> int:
    """How many claims there are when the ways of running BIF are not told apart.

    >>> distinct(pd.DataFrame({"claim": ["BIF as printed: a", "bifkit: a", "Adult, preset rank: b", "INVASE: a"]}))
    3
    """
    return frame["claim"].str.replace(WAY, "BIF", regex=True).nunique()


def table(frame) -> str:
    """Claims as a markdown table for a page in docs/.

    >>> line = {"claim": ["P(f|x)"], "where": ["section 4"], "measured": ["1"], "verdict": ["holds"],
    ...         "notebook": ["01_synthetic"]}
    >>> print(table(pd.DataFrame(line)).splitlines()[-1])
    | P(f\\|x) | section 4 | 1 | **holds** | [01](../notebooks/01_synthetic.ipynb) |
    """
    shown = frame.map(lambda text: re.sub(r"([|<>])", r"\\\1", str(text)))
    links = [f"[{n[:2]}](../notebooks/{n}.ipynb)" for n in frame["notebook"]]
    return markdown(shown.assign(verdict="**" + shown["verdict"] + "**", notebook=links).set_index("claim"))


def page() -> str:
    """The tables of docs/claims.md: the counts, then one table for each section of the paper."""
    found = {title: part for title, part in parts().items() if len(part[0]) or part[1]}
    everywhere = pd.concat([frame for frame, _ in found.values()])
    lines = [[title, str(len(frame)), *(str((frame["verdict"] == v).sum()) for v in SHORT)]
             for title, frame in [*((t, f) for t, (f, _) in found.items()), ("**all**", everywhere)]]
    count = markdown(pd.DataFrame(lines, columns=["part", "statements", *SHORT]).set_index("part"))
    blocks = ["\n\n".join(text for text in (f"## {title}", note, table(frame) if len(frame) else "") if text)
              for title, (frame, note) in found.items()]
    return "\n\n".join([count, *blocks])


def main() -> int:
    """``python -m experiments.claims``: every claim with its verdict, then the counts."""
    for title, (frame, note) in parts().items():
        print(f"\n{title}", *([f"  {note}"] if note else []), sep="\n")
        for line in frame.itertuples():
            print(f"  {line.verdict:18s} {line.claim} ({line.where})\n{'':21s}{line.measured}")
    print(f"\n{words(everything()['verdict'])}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
