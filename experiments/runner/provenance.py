"""What the numbers were made with: versions, commit, CPU model, cores, date; no host name, no path.

Each recomputed study has its entry in ``results/provenance.json``.
"""

import hashlib
import importlib.metadata
import json
import platform
import subprocess
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
    return {"commit": commit, "source": fingerprint()[:12], "date": datetime.now(UTC).date().isoformat(),
            "cpu": cpu, "cores": joblib.cpu_count(), "platform": platform.system(),
            "python": platform.python_version(), "versions": _versions()}


def fingerprint() -> str:
    """A hash over the repository's source and the packages' versions: what a finished run depends on."""
    digest = hashlib.sha256(json.dumps(_versions()).encode())
    for folder in SOURCES:
        for file in sorted((paths.root() / folder).rglob("*.py")):
            digest.update(str(file.relative_to(paths.root())).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def record(name: str, **extra) -> None:
    """Write this study's entry in results/provenance.json; the other entries stay."""
    file = paths.results() / "provenance.json"
    entries = json.loads(file.read_text()) if file.exists() else {}
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
