"""Executes the notebooks in order, through papermill: ``python -m experiments.runner.notebooks`` behind the Makefile.

``--profile paper`` (the default) trains everything anew at the paper's size, ``--profile smoke`` at toy size on made-up
stand-ins for the data sets, with all output in ``build/smoke``; ``--replay`` trains nothing and redraws from
``results/``; ``--in-place`` replays and saves the notebooks themselves, cleaned, for committing. ``--only 01,03`` takes
some of them.
With ``BIF_CLUSTER`` the notebooks are executed here, their runs trained on that Dask cluster.

*Parameters.* Each notebook is given ``recompute`` and ``profile`` and must declare them in its cell tagged
``parameters``: papermill only warns about a name that a notebook does not know, this runner refuses to start.

*Failure.* A notebook is written under a temporary name and moved into ``build/notebooks`` when all of its
cells have run: behind a failure there is no output, neither a new nor an old one. The others are not started.

*Interruption.* While a command is unfinished, its finished runs are kept in ``build/cache/<profile>``, and its
finished notebooks are not executed again; a new command starts from nothing.

*One at a time.* A command holds the checkout's one lock on ``results/`` from beginning to end.
"""

import argparse
import contextlib
import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
import pandas as pd

from experiments.runner import cluster, paths, scoreboard
from experiments.runner.files import discard, renew_csv, write_text, writing
from experiments.runner.progress import Bar
from experiments.runner.resume import Resumable

KERNEL = "python3"
METADATA = {"kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": KERNEL},
            "language_info": {"name": "python"}}


class NotebookFailed(RuntimeError):
    """A notebook could not be executed to its end; the message holds the cell and its error."""


def select(folder: Path, only: str | None = None) -> list[Path]:
    """The numbered notebooks of a folder in order, all or those whose numbers ``only`` lists, as in ``01,03``."""
    found = {file.name[:2]: file for file in sorted(folder.glob("[0-9][0-9]_*.ipynb"))}
    wanted = [word.strip().zfill(2) for word in only.split(",") if word.strip()] if only else list(found)
    if missing := [number for number in wanted if number not in found]:
        raise ValueError(f"there is no notebook {', '.join(missing)}: there are {', '.join(found) or 'none'}")
    return [found[number] for number in sorted(set(wanted))]


def check_parameters(notebook: Path, parameters: dict) -> None:
    """Refuse a notebook that does not declare every parameter it is to be given."""
    import papermill

    known = papermill.inspect_notebook(str(notebook)) if parameters else {}
    if unknown := sorted(set(parameters) - set(known)):
        raise ValueError(f"{notebook.name} does not know the parameters {unknown}, only {sorted(known)}: "
                         "declare them in its cell tagged parameters")


def execute(notebook: Path, output: Path, parameters: dict) -> None:
    """Execute one notebook; ``output`` exists afterwards only when every cell has run."""
    import papermill

    from experiments.runner.kernels import AsyncSocketKernelManager

    partial = output.with_name(f".{output.stem}.partial.ipynb")
    output.unlink(missing_ok=True)
    try:
        papermill.execute_notebook(str(notebook), str(partial), parameters=parameters, kernel_name=KERNEL,
                                   cwd=str(notebook.parent), progress_bar=False, log_output=False,
                                   request_save_on_cell_execute=False, autosave_cell_every=0,
                                   kernel_manager_class=AsyncSocketKernelManager,
                                   extra_arguments=["--IPKernelApp.log_level=50"])  # no chatter on stderr
        os.replace(partial, output)
    except papermill.PapermillExecutionError as error:
        trace = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error.traceback)) or f"{error.ename}: {error.evalue}"
        where = f"{notebook.name}, cell [{error.exec_count - bool(parameters)}]"  # one cell was injected
        raise NotebookFailed(f"{where}:\n{error.source}\n\n{trace}\n\n{where} failed") from None
    finally:
        partial.unlink(missing_ok=True)


def clean(file: Path) -> nbformat.NotebookNode:
    """An executed notebook as it is committed: no timings, no injected cell, no widgets, counts from 1."""
    node = nbformat.read(file, as_version=4)
    node.cells = [c for c in node.cells if "injected-parameters" not in c.metadata.get("tags", [])]
    node.metadata = nbformat.from_dict(METADATA)
    count = 0
    for cell in node.cells:
        cell.metadata = nbformat.from_dict({k: v for k, v in cell.metadata.items() if k == "tags" and v})
        if cell.cell_type != "code":
            continue
        if cell.source.strip():
            count += 1
            cell.execution_count = count
        for out in cell.outputs:
            if "execution_count" in out:
                out.execution_count = cell.execution_count
            out.get("data", {}).pop("application/vnd.jupyter.widget-view+json", None)
    return node


def use_own_kernel() -> None:
    """Make sure that the kernel ``python3`` is this interpreter, whatever the reader has installed elsewhere."""
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"
    try:
        command = KernelSpecManager().get_kernel_spec(KERNEL).argv[0]
    except NoSuchKernel:
        command = "nothing"
    if os.path.isabs(command) and not os.path.samefile(command, sys.executable) or command == "nothing":
        raise RuntimeError(f"the kernel {KERNEL!r} runs {command}, not this environment's Python: install it "
                           "with python -m ipykernel install --sys-prefix")


def _run(args, parser) -> int:
    smoke = args.profile == "smoke"
    train = not (args.replay or args.in_place)
    if smoke and not train:
        parser.error("--replay and --in-place show the paper's size: leave out --profile smoke")
    if smoke:
        os.environ["BIF_OUTPUT"] = os.environ.get("BIF_OUTPUT") or str(paths.root() / "build" / "smoke")
        os.environ.setdefault("BIF_WORKERS", "1")  # starting a worker takes longer than a toy run
        os.environ["BIF_STANDINS"] = str(paths.build() / "data")
    else:
        os.environ["BIF_WHOLE"] = "1"  # the grids are those of the whole studies
    parameters = {} if args.in_place else {"recompute": train, "profile": args.profile}
    notebooks = select(Path(args.folder or paths.notebooks()).resolve(), args.only)
    for notebook in notebooks:
        check_parameters(notebook, parameters)
    use_own_kernel()
    if not train:
        with writing():
            _execute_all(notebooks, parameters, {}, in_place=args.in_place)
            if args.replay:
                finish(smoke)
        return 0
    if on_cluster := os.environ.get("BIF_CLUSTER"):
        os.environ["BIF_CLUSTER"] = cluster.located(on_cluster)  # kernels run in another folder
        with cluster.connected(os.environ["BIF_CLUSTER"]):
            pass  # refused now, if at all
    numbers = "-".join(["", *(n.name[:2] for n in notebooks)]) if args.only else ""
    folder = paths.build() / "cache" / (args.profile + numbers)
    with writing():
        command = Resumable(folder)
        if command.resumed:
            print("Resuming an unfinished command: its finished runs are not trained again "
                  "(make clean forgets them).", flush=True)
        else:
            discard(paths.partial())
            if smoke:
                discard(paths.results())
                discard(paths.figures())
                discard(Path(os.environ["BIF_STANDINS"]))
        os.environ["BIF_RESUME"] = str(folder)
        _execute_all(notebooks, parameters, {} if smoke else known_minutes(), command=command)
        aside = sorted(file.stem for file in (paths.partial() / "results").glob("*.csv"))
        if aside := [name for name in aside if name != "scoreboard"]:
            print(f"\nNot complete, hence in {paths.partial().relative_to(paths.output())} and not in results/: "
                  f"{', '.join(aside)}. The scoreboard and the README show their stored runs.")
        if not smoke and not on_cluster and not aside:  # the README's minutes are of one machine and of all runs
            record_minutes({n.stem: command.seconds(n) / 60 for n in notebooks})
        finish(smoke)
        command.finish()  # last of all: a kill before it resumes
    return 0


def _execute_all(notebooks, parameters, minutes, *, command=None, in_place=False):
    target = paths.build() / "notebooks"
    target.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, Bar([n.stem for n in notebooks], minutes, scratch) as bar:
        os.environ["BIF_PROGRESS"] = str(bar.file)
        for notebook in notebooks:
            output = target / notebook.name
            bar.begin(notebook.stem)
            if not (command and command.done(notebook) and output.exists()):
                with command.clock(notebook) if command else contextlib.nullcontext():
                    execute(notebook, output, parameters)
            if in_place:
                write_text(nbformat.writes(clean(output)) + "\n", notebook)
            bar.end()


def finish(smoke: bool) -> None:
    """Write and print the scoreboard; at full size renew the README's tables."""
    print()
    if smoke:
        print("Toy size: these numbers only show that the path works.\n")
    print(scoreboard.table(colour=scoreboard.wants_colour()))
    if not smoke and paths.output() == paths.root():
        scoreboard.update_pages()


def known_minutes() -> dict[str, float]:
    """Minutes that each notebook took at full size, from the committed results/timings.csv."""
    file = paths.root() / "results" / "timings.csv"
    return _minutes(file)


def record_minutes(minutes: dict[str, float]) -> None:
    """Renew these notebooks' rows of results/timings.csv."""
    file = paths.results() / "timings.csv"
    rows = sorted((_minutes(file) | {k: round(v, 1) for k, v in minutes.items()}).items())
    renew_csv(pd.DataFrame(rows, columns=["notebook", "minutes"]), file)


def _minutes(file):
    """{notebook: minutes} of a timings.csv; a damaged one counts as empty."""
    try:
        frame = pd.read_csv(file)
        return dict(zip(frame["notebook"].astype(str), frame["minutes"].astype(float), strict=True))
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, OSError):
        print(f"{file.name} is damaged: the minutes in it count as unknown.", file=sys.stderr)
        return {}


def main(argv: list[str] | None = None) -> int:
    """The command line; 0 when everything has run."""
    parser = argparse.ArgumentParser(prog="python -m experiments.runner.notebooks", description="execute the notebooks")
    parser.add_argument("--profile", choices=["paper", "smoke"], default="paper", help="size of the studies")
    parser.add_argument("--only", help="numbers of notebooks, as in 01,03")
    parser.add_argument("--replay", action="store_true", help="train nothing: redraw from results/")
    parser.add_argument("--in-place", action="store_true", help="replay, and save the notebooks themselves")
    parser.add_argument("--folder", help="another folder of notebooks")
    args = parser.parse_args(argv)
    before = dict(os.environ)
    try:
        return _run(args, parser)
    except (NotebookFailed, ValueError, RuntimeError) as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted: the same command goes on where it stopped.", file=sys.stderr)
        return 130
    finally:
        os.environ.clear()
        os.environ.update(before)


if __name__ == "__main__":
    sys.exit(main())
