"""Files that are whole or not there, and processes that don't outlive the command they belong to.

A kill while a file is written must leave the old one or the new one, never half of one. A killed command's
workers must not train on beside the next one's.
"""

import contextlib
import os
import shutil
import threading
import time
from pathlib import Path

import pandas as pd

from bifkit.storage import write_bytes
from experiments.runner import paths

BUSY = "another command or notebook is writing results here: wait for it, or end it"


def write_text(text: str, file: Path) -> None:
    """Write text as UTF-8 with plain line ends, whole or not at all."""
    write_bytes(text.encode(), file)


def write_csv(frame: pd.DataFrame, file: Path) -> None:
    """Write a frame as csv without its index, whole or not at all."""
    write_text(frame.to_csv(index=False, lineterminator="\n"), file)


def renew_csv(frame: pd.DataFrame, file: Path) -> None:
    """Write a csv of ``results/`` if it says anything new: a notebook that replays needs no lock."""
    text = frame.to_csv(index=False, lineterminator="\n")
    if not file.exists() or file.read_bytes() != text.encode():
        with writing(patience=5.0):
            write_text(text, file)


def markdown(frame: pd.DataFrame) -> str:
    """A frame as a markdown table, its index first.

    >>> print(markdown(pd.DataFrame({"a": ["1.50"]}, index=["x"])))
    |  | a |
    |----|------|
    | x | 1.50 |
    """
    text = frame.reset_index().astype(str).rename(columns={"index": ""})
    return text.to_markdown(index=False, disable_numparse=True, stralign=None, numalign=None)


def discard(folder: Path) -> None:
    """Remove a folder in one step: a kill meanwhile must not leave half of it under its name."""
    folder = Path(folder)
    if folder.exists():
        trash = folder.with_name(f".trash-{folder.name}-{os.getpid()}")
        os.replace(folder, trash)
        shutil.rmtree(trash, ignore_errors=True)


@contextlib.contextmanager
def locked(folder: Path, *, alone: bool = False, busy: str = ""):
    """Hold a folder's lock, shared or ``alone``; when a process dies, however it dies, the system lets go.

    Waits for its turn, or raises RuntimeError with the words ``busy`` if there are any.
    """
    try:
        import fcntl  # not on every system; without it a killed command's last run may be trained twice
    except ImportError:
        yield
        return
    folder = Path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f".{folder.name}.lock"), "a") as file:
        try:
            fcntl.flock(file, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | (fcntl.LOCK_NB if busy else 0))
        except BlockingIOError:
            raise RuntimeError(busy) from None
        yield


@contextlib.contextmanager
def writing(patience: float = 0.0):
    """Hold the one lock of this checkout that whatever writes ``results/`` must have.

    A notebook's kernel has it through the command that executes it (``BIF_WRITING``). Raises RuntimeError if another
    process has it, after ``patience`` seconds.
    """
    if os.environ.get("BIF_WRITING"):
        yield
        return
    deadline = time.monotonic() + patience
    with contextlib.ExitStack() as held:
        while True:
            try:
                held.enter_context(locked(paths.build() / "results", alone=True, busy=BUSY))
                break
            except RuntimeError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        os.environ["BIF_WRITING"] = "1"
        try:
            yield
        finally:
            del os.environ["BIF_WRITING"]


_watched = set()


def end_with(parent: int) -> None:
    """Called in a worker: this process ends as soon as its parent has; nothing in the parent itself."""
    if os.getpid() == parent:
        return
    if os.getppid() != parent:
        os._exit(1)

    def watch():
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    if parent not in _watched:
        _watched.add(parent)
        threading.Thread(target=watch, daemon=True).start()
