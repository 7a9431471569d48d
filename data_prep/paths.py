"""Where the data sets lie: ``data/`` beside this package, or the folder that ``BIF_DATA`` names."""

import os
from pathlib import Path


def root() -> Path:
    """The repository's root: the folder that holds ``data_prep``.

    >>> (root() / "data_prep").is_dir()
    True
    """
    return Path(__file__).resolve().parent.parent


def data() -> Path:
    """The downloaded data sets; never committed.

    >>> from unittest import mock
    >>> with mock.patch.dict(os.environ, BIF_DATA=""):
    ...     data() == root() / "data"
    True
    """
    return Path(os.environ.get("BIF_DATA") or root() / "data").resolve()
