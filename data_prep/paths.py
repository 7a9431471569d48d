"""Where the data sets lie: ``data/`` beside this package, or the folder that ``BIF_DATA`` names.

``BIF_STANDINS`` names a folder of made-up data, which is then read in their place (``data_prep.standins``).
"""

import os
from pathlib import Path


def root() -> Path:
    """The repository's root: the folder that holds ``data_prep``.

    >>> (root() / "data_prep").is_dir()
    True
    """
    return Path(__file__).resolve().parent.parent


def data() -> Path:
    """The downloaded data sets, or the stand-ins if they are asked for; never committed.

    >>> from unittest import mock
    >>> with mock.patch.dict(os.environ, BIF_DATA="", BIF_STANDINS=""):
    ...     data() == root() / "data"
    True
    """
    return Path(os.path.realpath(standins() or os.environ.get("BIF_DATA") or root() / "data"))


def standins() -> str:
    """The folder of made-up data that ``BIF_STANDINS`` names, or nothing.

    >>> from unittest import mock
    >>> with mock.patch.dict(os.environ, BIF_STANDINS="build/toys"):
    ...     standins()
    'build/toys'
    """
    return os.environ.get("BIF_STANDINS", "").strip()
