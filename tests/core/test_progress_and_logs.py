"""The bar of a fit shows in a terminal and leaves no trace; the log goes through ``logging`` alone."""

import contextlib
import fcntl
import io
import logging
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import textwrap
from pathlib import Path

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient
from torch import nn

from bifkit import GlobalBIF, LocalBIF
from bifkit.training import verbosity

ROOT = Path(__file__).resolve().parents[2]
X = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
BOTH = pytest.mark.parametrize("kind", [GlobalBIF, LocalBIF])
FIT = """
import sys, logging, torch
from bifkit import GlobalBIF
X = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
g = torch.nn.Linear(3, 2)
g.weight.data.copy_(torch.tensor([[0.0, -3, 0], [0, 3, 0]]))
def fit(**kw):
    GlobalBIF(g, epochs=1, **{"min_steps": 60} | kw).fit(X)
def mark(text):
    print("==", text, "==", file=sys.stderr, flush=True)
"""


def _fit(kind, **kw):
    return kind(nn.Linear(3, 2), **{"min_steps": 20, "epochs": 1, "likelihood": "categorical"} | kw).fit(X)


def _environment(**more):
    mine = {"PYTHONPATH": str(ROOT), "TERM": "xterm"}
    return {k: v for k, v in os.environ.items() if k != "PYTHONWARNINGS"} | mine | more


def _parts(text):
    """{mark: what stands between it and the next one}."""
    pieces = re.split(r"== (.*?) ==\r?\n", text)
    return dict(zip(pieces[1::2], pieces[2::2], strict=True))


def _screen(raw):
    """What is left to see in a terminal: each line after all its returns to the start."""
    lines = []
    for line in raw.replace("\r\n", "\n").split("\n"):
        shown = ""
        for part in line.split("\r"):
            shown = part + shown[len(part):]
        lines.append(shown.rstrip())
    return lines


def test_what_is_left_on_a_screen():
    assert _screen("a 50%\ra 100%\r      \rdone\r\n50%\r100%\r\n") == ["done", "100%", ""]


# a pipe and a terminal, in one process to save time: stdout is a pipe, stderr a terminal

@pytest.fixture(scope="module")
def said():
    """What stands between the marks, in the pipe and in the terminal."""
    script = FIT + textwrap.dedent("""
        mark("bar"); fit(min_steps=6000)
        mark("several"); fit(min_steps=150, classes="each", restarts=2)
        mark("hidden"); fit(progress=False)
        mark("bar and log"); fit(verbose=2, min_steps=40)
        mark("failed")
        try:
            fit(lr=1e30, prior=1e-30, min_steps=200)
        except FloatingPointError:
            pass
        mark("end")
        sys.stderr = sys.stdout
        mark("silent"); fit()
        mark("one"); fit(verbose=1)
        mark("two"); fit(verbose=2, min_steps=40)
        mark("silent again"); fit(verbose=0)
        mark("forced"); fit(progress=True)
        mark("own handler")
        logging.getLogger("bifkit").addHandler(logging.StreamHandler(sys.stdout))
        fit(verbose=1)
        mark("own level")
        logging.getLogger("bifkit").setLevel(logging.INFO)
        fit(verbose=2)
        mark("end")
    """)
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))  # as a real one has
    with subprocess.Popen([sys.executable, "-c", script], stdin=slave, stdout=subprocess.PIPE, stderr=slave, text=True,
                          env=_environment()) as process:
        os.close(slave)
        terminal = b""
        with contextlib.suppress(OSError):  # a terminal that closes ends with an error on Linux
            while chunk := os.read(master, 65536):
                terminal += chunk
        pipe = process.stdout.read()
    os.close(master)
    assert process.returncode == 0, terminal.decode()
    return _parts(terminal.decode()), _parts(pipe)


def test_a_terminal_shows_a_bar_that_leaves_no_trace(said):
    terminal = said[0]
    assert re.search(r"GlobalBIF: +\d+%\|.*\| \d+/6000 \[", terminal["bar"]) and "ELBO " in terminal["bar"]
    assert "GlobalBIF, 2 classes:" in terminal["several"]
    assert "/200" in terminal["failed"]
    for part in ("bar", "several", "failed"):
        assert _screen(terminal[part]) == [""], part
    assert terminal["hidden"] == terminal["end"] == ""


def test_a_log_does_not_run_into_the_bar(said):
    lines = [line for line in _screen(said[0]["bar and log"]) if line]
    assert "%|" in said[0]["bar and log"]
    assert len(lines) == 22 and all(re.match(r"bifkit\.\w+: GlobalBIF: [^|%]*$", line) for line in lines)


def test_a_pipe_has_nothing_but_what_was_asked_for(said):
    pipe = said[1]
    assert pipe["silent"] == pipe["silent again"] == pipe["end"] == ""
    one, two = pipe["one"].splitlines(), pipe["two"].splitlines()
    assert one[0] == "bifkit.explainers: GlobalBIF: 60 rows, 3 features, preset rank, likelihood categorical"
    assert re.fullmatch(r"bifkit.explainers: GlobalBIF: done in \S+ s, ELBO -?\d\.\d{4}, \d\.\d effective features",
                        one[1])
    assert len(one) == 2
    assert len(two) == 22 and re.match(r"bifkit.training: GlobalBIF: step 2 of 40, ELBO -?\d", two[1])
    assert re.search(r"GlobalBIF: +\d+%\|.*/60 \[", pipe["forced"])
    own = pipe["own handler"].splitlines()  # in the user's own format, and not twice
    assert len(own) == 2 and own[0].startswith("GlobalBIF: 60 rows") and len(pipe["own level"].splitlines()) == 22


# kernels

def test_silent_in_a_notebook_unless_asked(tmp_path, monkeypatch):
    """What papermill and nbval do: both run a kernel through nbclient or as it does. A bar is there for the asking."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    cells = [FIT, "fit()", "fit(progress=True, min_steps=2)", "fit(verbose=1)"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
    folder = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=folder).execute()
    outputs = [cell.outputs for cell in notebook.cells]
    assert outputs[0] == outputs[1] == []
    assert outputs[2][0].name == "stderr" and "GlobalBIF:" in outputs[2][0].text
    assert {o.name for o in outputs[3]} == {"stderr"} and "done in" in outputs[3][-1].text


@BOTH
def test_the_log_reaches_the_users_handlers(kind, caplog):
    for level, lines in ((0, 0), (1, 2), (True, 2), (2, 22)):
        caplog.clear()
        _fit(kind, verbose=level)
        assert len(caplog.records) == lines, level
        assert all(r.name.startswith("bifkit.") and r.levelno <= logging.INFO for r in caplog.records)
    _fit(kind, verbose=1, classes="each", restarts=2)
    assert "60 rows, 3 features, preset rank" in caplog.messages[-2] and "effective features" in caplog.messages[-1]
    caplog.clear()
    _fit(kind, verbose=1, groups=[0, 0, 1])
    assert "3 features in 2 groups" in caplog.messages[0]


@pytest.mark.parametrize("before", [logging.NOTSET, logging.DEBUG, logging.WARNING, logging.CRITICAL])
def test_the_level_and_the_handlers_are_put_back(before):
    log = logging.getLogger("bifkit")
    own = logging.NullHandler()
    log.setLevel(before)
    log.addHandler(own)
    try:
        shown = logging.DEBUG if before == logging.DEBUG else logging.INFO
        for level, inside in ((0, before), (1, shown), (2, logging.DEBUG)):
            with pytest.raises(KeyError), verbosity(level):
                assert log.level == inside and log.handlers == [own]
                raise KeyError
            assert log.level == before and log.handlers == [own]
    finally:
        log.setLevel(logging.NOTSET)
        log.removeHandler(own)


@BOTH
@pytest.mark.parametrize("verbose", [3, -1, "1", None, 0.5, [1], np.array([0, 1])])
def test_an_unknown_verbosity(kind, verbose):
    with pytest.raises(ValueError, match="verbose must be 0, 1 or 2; got"):
        _fit(kind, verbose=verbose)


@BOTH
def test_bars_and_logs_change_no_number(kind, monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    g = nn.Linear(3, 2)
    alphas = [kind(g, min_steps=20, epochs=1, likelihood="categorical", **kw).fit(X).explain(X).alpha
              for kw in ({}, {"verbose": 2}, {"progress": True}, {"progress": False})]
    assert all(np.array_equal(alphas[0], a) for a in alphas)
    assert "|" in sys.stderr.getvalue()
