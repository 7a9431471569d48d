"""What the numbers were made with: versions, commit, CPU model, cores, date; no host name, no path.

Each recomputed study has its entry in ``results/provenance.json``.

A process that lives long, such as a notebook's kernel, runs the source that it has imported, whatever has become of the
files since. Hence the source is hashed once, with the import of this module; a study that is to be recomputed after an
edit is refused.
"""

import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
import warnings
from datetime import UTC, datetime

import joblib

from experiments.runner import paths
from experiments.runner.files import write_text

SOURCES = ("bifkit", "experiments", "data_prep")
PACKAGES = ("numpy", "scipy", "pandas", "scikit-learn", "torch", "opacus", "autodp", "shap", "lime", "captum",
            "joblib")


def provenance() -> dict:
    """What the numbers were made with; neither host name nor path.

    >>> sorted(provenance())
    ['commit', 'cores', 'cpu', 'date', 'platform', 'python', 'source', 'versions']
    """
    try:
        cpu = next(x.split(":", 1)[1].strip() for x in open("/proc/cpuinfo") if x.startswith("model name"))
    except (OSError, StopIteration):
        cpu = platform.processor() or platform.machine()
    try:
        commit = subprocess.run(["git", "rev-parse", "--verify", "-q", "HEAD"], cwd=paths.root(), text=True,
                                capture_output=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        commit = "unknown"
    return {"commit": commit, "source": LOADED[:12], "date": datetime.now(UTC).date().isoformat(),
            "cpu": cpu, "cores": joblib.cpu_count(), "platform": platform.system(),
            "python": platform.python_version(), "versions": _versions()}


def fingerprint() -> str:
    """The hash of the source and packages that this process has imported: what a finished run depends on.

    Raises RuntimeError if the files have been edited since.
    """
    if on_disk() != LOADED:
        raise RuntimeError(f"the source in {', '.join(SOURCES)} was edited after this process had imported it: restart "
                           "the kernel, or run the command again, so that what is recorded is what runs")
    return LOADED


def on_disk() -> str:
    """The hash of the repository's source as its files are now, and of the packages' versions."""
    digest = hashlib.sha256(json.dumps(_versions()).encode())
    for folder in SOURCES:
        for file in sorted((paths.root() / folder).rglob("*.py")):
            digest.update(str(file.relative_to(paths.root())).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def record(name: str, **extra) -> None:
    """Write this study's entry in results/provenance.json; the other entries stay.

    A damaged file is put aside with a sentence: the runs behind this entry must not be lost for it.
    """
    file = paths.results(name) / "provenance.json"
    entries = {}
    if file.exists():
        try:
            entries = dict(json.loads(file.read_text(encoding="utf-8")))
        except (ValueError, TypeError):
            os.replace(file, kept := paths.build() / "provenance.damaged.json")
            warnings.warn(f"results/provenance.json was damaged: it is now {kept.relative_to(paths.output())}, and a "
                          "new one has been begun; the entries of the other studies are in git", stacklevel=2)
    entries[name] = provenance() | extra
    write_text(json.dumps(dict(sorted(entries.items())), indent=1) + "\n", file)


def _versions():
    """The versions of ``PACKAGES`` here."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "absent"
    return found


LOADED = on_disk()  # when this process, perhaps a worker days old, imported it
