"""Progress with the time left: ``Progress`` counts the runs of a study, ``Bar`` the notebooks of a command.

A study's line goes to a terminal and to the file that ``BIF_PROGRESS`` names, and nowhere else. ``make reproduce`` runs
studies inside a notebook's kernel, whose output shows only when a cell has ended: its bar reads the file instead.
"""

import os
import sys
import threading
import time
from pathlib import Path

from tqdm import tqdm

from experiments.runner.files import write_text


def duration(seconds: float) -> str:
    """Seconds in words short enough for a progress line.

    >>> duration(7), duration(125), duration(8000)
    ('7 s', '2 min', '2 h 13 min')
    """
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


class Progress:
    """Counts runs: ``synthetic: 12 of 150 runs, about 4 min left``.

    ``total`` runs are wanted, ``todo`` of them are not there yet; the time left is judged by those alone.
    """

    def __init__(self, name: str, total: int, todo: int):
        self.name, self.total, self.todo = name, total, todo
        self.done, self.start, self.tty = 0, time.monotonic(), sys.stderr.isatty()
        self._show()

    def line(self) -> str:
        """The line as it stands now."""
        text = f"{self.name}: {self.total - self.todo + self.done} of {self.total} runs"
        if self.done:
            left = (time.monotonic() - self.start) / self.done * (self.todo - self.done)
            text += f", about {duration(left)} left"
        return text

    def step(self) -> None:
        """One more run has ended."""
        self.done += 1
        self._show()

    def close(self) -> None:
        """Leave the line in the terminal."""
        if self.tty:
            print(file=sys.stderr)

    def _show(self):
        if file := os.environ.get("BIF_PROGRESS"):
            write_text(self.line() + "\n", Path(file))
        if self.tty:
            print(f"\r{self.line():<78}", end="", file=sys.stderr, flush=True)


class Bar:
    """The notebooks of one command: a bar in a terminal, plain lines when piped.

    ``minutes`` holds what each took last time, where known; the time left follows from those and from how
    this machine compares so far. Without them the mean of the notebooks done so far has to do.

    >>> import io, tempfile
    >>> with Bar(["01_a"], {}, tempfile.gettempdir(), stream=io.StringIO()) as bar:
    ...     bar.begin("01_a"); bar.end()
    >>> bar.stream.getvalue().splitlines()
    ['[1/1] 01_a', '[1/1] 01_a: done in 0 s']
    """

    def __init__(self, names, minutes, folder, stream=None):
        self.names, self.minutes, self.file = list(names), minutes, Path(folder) / f"progress-{os.getpid()}"
        self.stream = stream or sys.stderr
        self.now, self.start, self.spent, self.said = None, 0.0, {}, ""
        tty = self.stream.isatty()
        self.bar = tqdm(total=len(self.names), file=self.stream, leave=True,
                        bar_format="{bar:20} {n_fmt}/{total_fmt} {desc}") if tty else None
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._refresh, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()
        self.file.unlink(missing_ok=True)
        if self.bar:
            self.bar.close()

    def begin(self, name: str) -> None:
        """A notebook starts."""
        self.now, self.start = name, time.monotonic()
        self.file.unlink(missing_ok=True)
        self._show(name)

    def end(self) -> None:
        """It has run."""
        name, self.now = self.now, None
        self.spent[name] = time.monotonic() - self.start
        if self.bar:
            self.bar.update(1)
        self._show(f"{name}: done in {duration(self.spent[name])}", place=len(self.spent))

    def left(self) -> float | None:
        """Seconds until the end, or None as long as there is nothing to judge by.

        >>> bar = Bar(["01_a", "02_b"], {"01_a": 1.0, "02_b": 2.0}, ".")
        >>> bar.left()
        180.0
        """
        mean = sum(self.spent.values()) / len(self.spent) if self.spent else None
        known = [n for n in self.spent if n in self.minutes]
        before = sum(self.minutes[n] * 60 for n in known)
        pace = sum(self.spent[n] for n in known) / before if before else 1.0
        total = 0.0
        for name in self.names:
            if name not in self.spent:
                guess = self.minutes[name] * 60 * pace if name in self.minutes else mean
                if guess is None:
                    return None
                total += max(0.0, guess - (time.monotonic() - self.start)) if name == self.now else guess
        return total

    def _refresh(self):
        last = time.monotonic()
        while not self.ended.wait(1):
            name = self.now
            if name is None or not (self.bar or time.monotonic() - last > 30):
                continue
            last = time.monotonic()
            try:
                study = self.file.read_text().strip()
            except OSError:
                study = ""
            self._show(f"{name}; {study}" if study else name)

    def _show(self, text, place=None):
        left = self.left()
        if left is not None and len(self.spent) < len(self.names):
            text += f" [all: about {duration(left)} left]"
        if self.bar:
            self.bar.set_description_str(text)
        elif text != self.said:
            print(f"[{place or len(self.spent) + 1}/{len(self.names)}] {text}", file=self.stream, flush=True)
        self.said = text
