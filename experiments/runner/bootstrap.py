"""Makes ``.venv`` from the exact pins; the Makefile calls it when the environment is absent or out of date.

Runs on whatever Python the reader has (``PYTHON=``), before anything is installed, so it uses the standard
library alone and refuses a wrong version in one sentence. It ends with a stamp, ``.venv/.ready``; until then
``.venv/.unfinished`` marks the environment, and an interrupted one is made anew: pip takes a package that was
half unpacked when it was killed for installed. A second make waits for the first one's set-up.
"""

import os
import shlex
import shutil
import subprocess
import sys
import time

WANTED = (3, 11)
PACKAGES = ("bifkit", "data_prep", "experiments")
GIGABYTES = 3
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NETWORK = ("Failed to establish a new connection", "name resolution", "Connection refused", "ProxyError",
           "Network is unreachable", "ConnectTimeoutError", "Read timed out", "NewConnectionError",
           "Max retries exceeded", "(from versions: none)")
CHECK = """
import importlib.metadata, importlib.util, sys
def plain(name):
    return name.lower().replace("_", "-").replace(".", "-")
def place(name):
    spec = importlib.util.find_spec(name)
    return list(spec.submodule_search_locations)[0] if spec else ""
root, pins, ours = sys.argv[1], sys.argv[2].split(), sys.argv[3].split()
have = {plain(d.metadata["Name"]): d.version.split("+")[0] for d in importlib.metadata.distributions()}
bad = [pin for pin in pins if have.get(plain(pin.split("==")[0])) != pin.split("==")[1]]
print(*bad, *[name for name in ours if not place(name).startswith(root)])
"""


class SetupFailed(Exception):
    """One sentence for the reader.

    >>> str(SetupFailed("no disk space"))
    'no disk space'
    """


def check_version(version=None, name="python3"):
    """Refuse any Python but 3.11: the pins hold for that one.

    >>> check_version((3, 11, 9))
    >>> check_version((3, 12, 1), "python3.12")
    Traceback (most recent call last):
    ...
    experiments.runner.bootstrap.SetupFailed: bifkit needs Python 3.11, but python3.12 is 3.12.1: ...
    """
    version = tuple(version or sys.version_info[:3])
    if version[:2] != WANTED:
        raise SetupFailed("bifkit needs Python {}.{}, but {} is {}: name another, as in `make test "
                          "PYTHON=/usr/bin/python3.11`.".format(*WANTED, name, ".".join(map(str, version))))


def check_disk(folder=ROOT, gigabytes=GIGABYTES):
    """Refuse to begin what can't be finished.

    >>> check_disk(gigabytes=0)
    """
    free = shutil.disk_usage(folder).free / 1e9
    if free < gigabytes:
        raise SetupFailed(f"Setting up needs about {gigabytes} GB of free disk space, but there are "
                          f"{free:.1f} GB: make room and run make again.")


def wanted(requirements, torch=""):
    """What pip is to install: the pins, with torch replaced by ``TORCH`` when the reader gave one.

    >>> wanted("torch==2.13.0\\nnumpy==2.4.6\\n# a comment", "torch==2.13.0+cpu --find-links wheels")
    ['numpy==2.4.6', 'torch==2.13.0+cpu', '--find-links', 'wheels']
    """
    pins = [line.strip() for line in requirements.splitlines() if line.strip() and not line.startswith("#")]
    if torch:
        pins = [pin for pin in pins if not pin.startswith("torch==")] + shlex.split(torch)
    return pins


def explain(log, where):
    """One sentence on why pip failed, from its log.

    >>> explain("... [Errno 28] No space left on device", "build/setup.log")
    'The disk is full: make room and run make again (log: build/setup.log).'
    >>> explain("... Temporary failure in name resolution", "build/setup.log").split(":")[0]
    'No network'
    """
    if "No space left on device" in log:
        return f"The disk is full: make room and run make again (log: {where})."
    if any(sign in log for sign in NETWORK):
        return ("No network: pip could not reach a package index; connect, or point pip at a local one "
                f"(PIP_INDEX_URL, PIP_FIND_LINKS), and run make again (log: {where}).")
    last = [line for line in log.splitlines() if line.startswith("ERROR")][-1:]
    return "pip failed (log: {}){}".format(where, ": " + last[0] if last else ".")


def lacking(python, pins, root=ROOT):
    """Which pins an existing environment does not meet; ours too, when it does not import from this folder.

    >>> lacking(sys.executable, ["nosuchthing==1.0"], root="elsewhere")
    ['nosuchthing==1.0', 'bifkit', 'data_prep', 'experiments']
    """
    exact = [pin for pin in pins if "==" in pin]
    done = subprocess.run([python, "-I", "-c", CHECK, root, " ".join(exact), " ".join(PACKAGES)],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return done.stdout.split() if done.returncode == 0 else exact


def wait_for_others(path):
    """Hold the lock until this process ends: two at once would take each other's work for interrupted.

    >>> wait_for_others(os.devnull).close()
    """
    lock = open(path, "w")
    try:
        import fcntl
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print("Another make is setting up: waiting for it.", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
    except ImportError:  # not on every system
        pass
    return lock


def main():
    """Make or mend ``.venv``; 0 when it is ready.

    >>> from unittest import mock
    >>> with mock.patch.dict(main.__globals__, WANTED=(2, 7)), mock.patch("sys.stderr", sys.stdout):
    ...     main()
    bifkit needs Python 2.7, but ...
    1
    """
    venv, log = os.path.join(ROOT, ".venv"), os.path.join(ROOT, "build", "setup.log")
    unfinished, ready = os.path.join(venv, ".unfinished"), os.path.join(venv, ".ready")
    python, torch = os.path.join(venv, "bin", "python"), os.environ.get("TORCH", "").strip()
    try:
        check_version(name=os.environ.get("PYTHON", "python3"))
        os.makedirs(os.path.dirname(log), exist_ok=True)
        lock = wait_for_others(log + ".lock")
        if os.path.exists(unfinished):
            shutil.rmtree(venv)
        with open(os.path.join(ROOT, "requirements.txt")) as file:
            pins = wanted(file.read(), torch)
        fresh = not os.path.exists(python)
        if not fresh and not torch and not lacking(python, pins):
            open(ready, "w").close()
            return 0
        check_disk()
        print("Setting up .venv: once, a few minutes (log: build/setup.log)", flush=True)
        start = time.time()
        os.makedirs(venv, exist_ok=True)
        open(unfinished, "w").close()
        if os.path.exists(ready):
            os.remove(ready)
        with open(log, "w") as out:
            steps = [[sys.executable, "-m", "venv", venv]] if fresh else []
            steps.append([python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input",
                          "--no-compile", *pins])
            steps.append([python, "-m", "pip", "install", "--disable-pip-version-check", "--no-deps",
                          "--no-build-isolation", "-e", ROOT])
            for step in steps:
                if subprocess.call(step, stdout=out, stderr=subprocess.STDOUT, cwd=ROOT):
                    with open(log, errors="replace") as file:
                        raise SetupFailed(explain(file.read(), "build/setup.log"))
        with open(ready, "w") as file:
            file.write(torch)
        os.remove(unfinished)
        lock.close()
        print(f"Ready after {(time.time() - start) / 60:.1f} minutes.", flush=True)
    except SetupFailed as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"Setting up failed: {error}.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted; the next make sets up again.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
