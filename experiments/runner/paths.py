"""Every path in one place.

Notebooks run in their own folder (nbval), in the root (papermill) or anywhere (JupyterLab): all of them ask here.
``BIF_OUTPUT`` moves the generated folders (the smoke run must not overwrite the committed results).
"""

import os
from pathlib import Path


def root() -> Path:
    """The repository's root: the folder that holds ``bifkit``."""
    return Path(__file__).resolve().parents[2]


def _made(path: Path) -> Path:
    """A folder that is there."""
    path.mkdir(parents=True, exist_ok=True)
    return path


def output() -> Path:
    """Where ``results`` and ``figures`` live: the root, or ``BIF_OUTPUT``."""
    return Path(os.environ.get("BIF_OUTPUT") or root()).resolve()


def results() -> Path:
    """Generated and committed: one tidy csv per study."""
    return _made(output() / "results")


def figures() -> Path:
    """Generated: one png and pdf per figure, one csv and md per table."""
    return _made(output() / "figures")


def build() -> Path:
    """Scratch: caches and executed notebooks; never committed."""
    return _made(output() / "build")


def notebooks() -> Path:
    """The folder of the numbered notebooks."""
    return root() / "notebooks"
