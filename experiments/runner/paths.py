"""Every path in one place.

Notebooks run in their own folder (nbval), in the root (papermill) or anywhere (JupyterLab): all of them ask here.
``BIF_OUTPUT`` moves the generated folders (the smoke run must not overwrite the committed results).
"""

import os
from pathlib import Path


def root() -> Path:
    """The repository's root: the folder that holds ``bifkit``.

    >>> (root() / "bifkit").is_dir()
    True
    """
    return Path(__file__).resolve().parents[2]


def _made(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


def output() -> Path:
    """Where ``results`` and ``figures`` live: the root, or ``BIF_OUTPUT``.

    >>> from unittest import mock
    >>> with mock.patch.dict(os.environ, BIF_OUTPUT=""):
    ...     output() == root()
    True
    """
    return Path(os.environ.get("BIF_OUTPUT") or root()).resolve()


def results() -> Path:
    """Generated and committed: one tidy csv a study.

    >>> results().name, results().parent == output()
    ('results', True)
    """
    return _made(output() / "results")


def figures() -> Path:
    """Generated: one png and pdf a figure, one csv and md a table.

    >>> figures().name, figures().parent == output()
    ('figures', True)
    """
    return _made(output() / "figures")


def build() -> Path:
    """Scratch: caches and executed notebooks; never committed.

    >>> build().name, build().parent == output()
    ('build', True)
    """
    return _made(output() / "build")


def notebooks() -> Path:
    """The numbered notebooks.

    >>> (notebooks() / "00_start_here.ipynb").is_file()
    True
    """
    return root() / "notebooks"
