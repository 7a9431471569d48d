"""``python -m data_prep fetch [NAME ... | all]``, ``status`` and ``verify``: the data sets.

``fetch`` goes on with the next data set when one is not to be had, says so in one sentence and ends with
code 1; ``verify`` hashes every file anew and deletes what is corrupt. Progress bars go to stderr, when that
is a terminal.
"""

import argparse
import sys

from data_prep import paths
from data_prep.catalog import CATALOG, entry
from data_prep.fetch import DataUnavailable, ensure, status, verify


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code: 0 all well, 1 something is missing or corrupt, 2 wrong usage.

    >>> main(["fetch", "atlantis"])
    2
    """
    parser = argparse.ArgumentParser(
        prog="python -m data_prep", description="Fetch, list and verify the data sets."
    )
    parser.add_argument("command", choices=["fetch", "status", "verify"])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(CATALOG)} or all (the default)")
    parser.add_argument("--quiet", action="store_true", help="no progress bars")
    options = parser.parse_args(arguments)
    try:
        chosen = [entry(n).name for n in options.names if n != "all"] or list(CATALOG)
        if "all" in options.names:
            chosen = list(CATALOG)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    try:
        if options.command == "fetch":
            return _fetch(chosen, progress=sys.stderr.isatty() and not options.quiet)
        return _report(chosen, anew=options.command == "verify")
    except KeyboardInterrupt:
        print("interrupted: nothing half-done was left behind, run the same command again", file=sys.stderr)
        return 130
    except OSError as error:
        print(
            f"the data folder {paths.data()} cannot be used ({error}): set BIF_DATA to another",
            file=sys.stderr,
        )
        return 1


def _fetch(chosen: list[str], progress: bool) -> int:
    failed = 0
    for name in chosen:
        try:
            files = ensure(name, optional=True, progress=progress)
        except DataUnavailable as error:
            print(error, file=sys.stderr)
            failed += 1
            continue
        if paths.standins():
            print(f"{name}: a made-up stand-in in {paths.standins()}, because BIF_STANDINS is set")
            continue
        absent = sorted(f for f, path in files.items() if not path.is_file())
        print(f"{name}: verified; licence, as commonly stated: {CATALOG[name].licence}")
        if absent:
            print(f"{name}: without {', '.join(absent)}, which no study needs")
    return 1 if failed else 0


def _report(chosen: list[str], anew: bool) -> int:
    bad = 0
    for name in chosen:
        item = CATALOG[name]
        states = dict(verify(name) if anew else status(name))
        print(f"{name}: {item.title}")
        for file in item.files:
            state = states[file.name]
            need = "" if file.required else "  (optional)"
            gone = ": deleted, fetch it again" if anew and state == "corrupt" else ""
            print(f"  {file.name:26s} {file.size / 1e6:7.1f} MB  {state}{gone}{need}")
            bad += state == "corrupt" or (file.required and state != "verified")
        print(f"  {item.home}; licence, as commonly stated: {item.licence}")
    return 1 if bad and anew else 0


if __name__ == "__main__":
    sys.exit(main())
