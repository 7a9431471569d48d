"""What an unfinished command has finished, so that an interrupted ``make reproduce`` resumes.

All of it is in one folder: the studies keep their finished runs there (``BIF_RESUME`` names it), and each notebook
has a note of the seconds spent on it and, once it has ended, of the code and text it ended with. A damaged note counts
as none. The folder is removed when the command ends well: nothing in it ever counts for a later command.
"""

import contextlib
import hashlib
import json
import sys
import threading
import time
from pathlib import Path

from experiments.runner import provenance
from experiments.runner.files import discard, write_text


class Resumable:
    """The folder of one command that may be interrupted; ``resumed`` says whether it was there before."""

    def __init__(self, folder: Path):
        self.folder, self.resumed = Path(folder), Path(folder).exists()
        self.folder.mkdir(parents=True, exist_ok=True)

    def done(self, notebook: Path) -> bool:
        """Whether it has ended, with the code and the text it has now."""
        return self._noted(notebook)["state"] == _state(notebook)

    def seconds(self, notebook: Path) -> float:
        """Spent on it so far, interrupted executions included."""
        return self._noted(notebook)["seconds"]

    @contextlib.contextmanager
    def clock(self, notebook: Path):
        """Around its execution: notes the seconds as they pass, and at the end that it has ended."""
        state, before = _state(notebook), self.seconds(notebook)
        start, ended = time.monotonic(), threading.Event()

        def note(state=""):
            entry = {"seconds": round(before + time.monotonic() - start, 1), "state": state}
            write_text(json.dumps(entry), self._file(notebook))

        def tick():
            while not ended.wait(2):
                note()

        thread = threading.Thread(target=tick, daemon=True)
        thread.start()
        try:
            yield
        except BaseException:
            state = ""
            raise
        finally:
            ended.set()
            thread.join()
            note(state if state == _state(notebook) else "")  # edited meanwhile: who knows what its kernel had

    def finish(self) -> None:
        """All done: nothing of it counts for the next command."""
        discard(self.folder)

    def _file(self, notebook):
        return self.folder / f"{notebook.stem}.json"

    def _noted(self, notebook):
        try:
            note = json.loads(self._file(notebook).read_text(encoding="utf-8"))
            return {"seconds": float(note["seconds"]), "state": str(note["state"])}
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError):
            print(f"The note of {notebook.name} is damaged: it is executed again.", file=sys.stderr)
            self._file(notebook).unlink(missing_ok=True)
        return {"seconds": 0.0, "state": ""}


def _state(notebook):
    return hashlib.sha256(provenance.on_disk().encode() + notebook.read_bytes()).hexdigest()
