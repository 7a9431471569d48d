"""Nothing on the path of an import or a fit needs Unix: what only Unix has is imported where it is used, guarded."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [f for folder in ("bifkit", "experiments", "data_prep") for f in sorted((ROOT / folder).rglob("*.py"))]
UNIX = {"crypt", "fcntl", "grp", "posix", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty"}
UNIX_CALLS = {"chown", "fork", "forkpty", "getloadavg", "getuid", "geteuid", "killpg", "mkfifo", "nice", "pread",
              "sched_getaffinity", "setsid", "sysconf", "uname", "SIGKILL", "SIGHUP", "SIGUSR1", "RTLD_GLOBAL"}


def needs_unix(source):
    """Imports of Unix' modules outside a ``try`` that catches their absence, and calls that only Unix has."""
    tree = ast.parse(source)
    guarded = {node for attempt in ast.walk(tree) if isinstance(attempt, ast.Try)
               if any("ImportError" in ast.unparse(handler.type or attempt) for handler in attempt.handlers)
               for statement in attempt.body for node in ast.walk(statement)}
    for node in ast.walk(tree):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) else []
        if UNIX & {n.split(".")[0] for n in names} and node not in guarded:
            yield ast.unparse(node)
        if isinstance(node, ast.Attribute) and node.attr in UNIX_CALLS and ast.unparse(node.value) in ("os", "signal"):
            yield ast.unparse(node)


@pytest.mark.parametrize("file", SOURCES, ids=lambda f: str(f.relative_to(ROOT)))
def test_it_does_without_unix(file):
    assert list(needs_unix(file.read_text(encoding="utf-8"))) == []


def test_the_check_sees_what_only_unix_has():
    source = "import os, fcntl\ntry:\n    import resource\nexcept ImportError:\n    pass\nos.fork()\nos.replace(a, b)\n"
    assert list(needs_unix(source)) == ["import os, fcntl", "os.fork"]


HIDDEN = """
import builtins, importlib, sys
ours, unix, real, opened = ("bifkit", "experiments", "data_prep"), set(sys.argv[1].split(",")), __import__, open

def without(name, globals=None, *rest):  # libraries look at sys.platform and may import them
    if name in unix and (globals or {}).get("__name__", "").split(".")[0] in ours:
        raise ImportError(name)
    return real(name, globals, *rest)

def no_proc(file, *rest, **options):
    if str(file).startswith("/proc/self"):
        raise FileNotFoundError(file)
    return opened(file, *rest, **options)

builtins.__import__ = without
for module in sys.argv[2:]:
    importlib.import_module(module)

from experiments.runner import files, study
builtins.open = no_proc
study.ctypes.CDLL = lambda name: len(name)  # a TypeError, as on Windows
study._reset_peak()
assert 20 < study._peak_mb() < 20_000, study._peak_mb()
with files.locked(__import__("pathlib").Path("nowhere") / "folder", alone=True):
    pass

import numpy as np, torch
from bifkit import GlobalBIF
X = np.random.default_rng(0).normal(size=(50, 3)).astype("float32")
posterior = GlobalBIF(torch.nn.Linear(3, 2), min_steps=5, epochs=1, progress=False).fit(X).explain()
assert posterior.mean.shape == (3,)
print("well")
"""


@pytest.mark.slow
def test_every_module_and_a_fit_do_without_unix_modules(tmp_path):
    modules = [".".join(f.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for f in SOURCES]
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", HIDDEN, ",".join(UNIX), *modules], cwd=tmp_path,
                          env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.endswith("well\n"), done.stderr[-2000:]
