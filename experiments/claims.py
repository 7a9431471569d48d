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
from experiments.claims_tables import digits, tables
from experiments.divergence import FAILS, HOLDS, OPEN
from experiments.runner import paths
from experiments.runner.files import markdown
from experiments.verdicts import COLUMNS

__all__ = ["counts", "digits", "everything", "page", "parts", "synthetic", "table", "tables"]

PARTS = {  # title: claims, files of results/ that it needs, files that it uses where they are there
    "Sections 1, 4 and 5.1: synthetic data": (
        synthetic, ["synthetic"], ["released", "synthetic_as_printed", "released_draws"]),
    "Section 5.2: tables": (tables, ["tabular"], ["released_tables"]),
    "Section 5.2: MNIST": (digits, ["mnist"], ["released_digits"]),
    "Section 5.3 and supplement: privacy": (privacy_report.claims, ["privacy", "privacy_protocol"], []),
    "Supplement: fairness": (fairness_report.claims, ["fairness", "fairness_protocol"], []),
}
VARIANTS = {  # how a claim about BIF was run: the words by which one knows it
    "BIF as printed": "BIF as printed", "BIF as released": "BIF as released", "bifkit": r"^bifkit\b|preset rank"}
SHORT = {HOLDS: "hold", FAILS: "do not", OPEN: "cannot be decided"}


def parts() -> dict:
    """{title: its claims, or a sentence that says which results are missing}."""
    out = {}
    for title, (_, needed, used) in PARTS.items():
        files = [paths.results() / f"{name}.csv" for name in needed + used]
        missing = [f"results/{f.name}" for f in files[:len(needed)] if not f.exists()]
        stamps = tuple((str(f), f.stat().st_mtime_ns if f.exists() else 0) for f in files)
        out[title] = f"Left out: {', '.join(missing)} is not there." if missing else _judged(title, stamps)
    return out


@functools.lru_cache(maxsize=len(PARTS))
def _judged(title, stamps):
    """The claims of one part; ``stamps`` of its files, so that they are judged anew when a file is."""
    return PARTS[title][0]()


def everything() -> pd.DataFrame:
    """All claims whose results are there: claim, where, measured, verdict, notebook."""
    found = [part for part in parts().values() if isinstance(part, pd.DataFrame)]
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=COLUMNS)


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

    >>> print(counted(pd.DataFrame({"claim": ["BIF as printed: a", "bifkit: a"], "verdict": ["does not hold", "holds"]})))
    - **Claim by claim.** Of 2 statements ([the list](docs/claims.md), with what was measured and its spread) 1 hold, 1 do
    not, 0 cannot be decided. A claim about BIF is judged for each way of running it: BIF as printed 0 hold, 1 do not,
    0 cannot be decided; bifkit 1 hold, 0 do not, 0 cannot be decided.
    """
    if frame.empty:
        return ""
    ways = [(who, frame[frame["claim"].str.contains(known)]["verdict"]) for who, known in VARIANTS.items()]
    return (f"- **Claim by claim.** Of {len(frame)} statements ([the list](docs/claims.md), with what was measured and its "
            f"spread) {words(frame['verdict'])}. A claim about BIF is judged for each way of running it: "
            f"{'; '.join(f'{who} {words(found)}' for who, found in ways if len(found))}.")


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
    found, everywhere = parts(), everything()
    lines = [[title, str(len(part)), *(str((part["verdict"] == v).sum()) for v in SHORT)]
             for title, part in found.items() if isinstance(part, pd.DataFrame)]
    lines.append(["**all**", str(len(everywhere)), *(str((everywhere["verdict"] == v).sum()) for v in SHORT)])
    count = markdown(pd.DataFrame(lines, columns=["part", "statements", *SHORT]).set_index("part"))
    blocks = [f"## {title}\n\n{part if isinstance(part, str) else table(part)}" for title, part in found.items()]
    return "\n\n".join([count, *blocks])


def main() -> int:
    """``python -m experiments.claims``: every claim with its verdict, then the counts."""
    for title, part in parts().items():
        print(f"\n{title}")
        if isinstance(part, str):
            print(f"  {part}")
            continue
        for line in part.itertuples():
            print(f"  {line.verdict:18s} {line.claim} ({line.where})\n{'':21s}{line.measured}")
    print(f"\n{words(everything()['verdict'])}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
