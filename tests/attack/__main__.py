"""The slow hostile suite: damaged and forged files, broken fetches, kills, threads.

    make attack
    python -m tests.attack --mutations 4000 --seed 0

Each part prints its counts, then one table says how often something was refused clearly, gave the right answer, or was
wrong without anybody noticing; of the last there must be none.
"""

import argparse
import sys

from tests.attack import fetching, files, kills, threads

REFUSED = ("refused", "refused clearly")


def table(parts):
    """One line per part of {name: (Counter of outcomes, failures)}; an outcome may be the last of a tuple."""
    lines = [f"{'part':9s}  {'cases':>5s}  refused clearly  right answer  silent wrong"]
    for name, (counts, failures) in parts.items():
        refused = sum(n for key, n in counts.items() if (key[-1] if isinstance(key, tuple) else key) in REFUSED)
        cases, wrong = sum(counts.values()), len(failures)
        lines.append(f"{name:9s}  {cases:5d}  {refused:15d}  {cases - refused - wrong:12d}  {wrong:12d}")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__.splitlines()[0])
    parser.add_argument("--mutations", type=int, default=4000, help="damaged and forged files")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    parts = {"fetching": fetching.main(), "kills": kills.main(options.seed), "threads": threads.main(),
             "files": files.main(options.mutations, options.seed)}
    print(table(parts))
    return 1 if any(failures for _, failures in parts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
