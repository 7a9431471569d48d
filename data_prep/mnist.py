"""MNIST, 3 against 8: pixels in [0, 1], the publisher's split, 49 patches of 4 x 4 pixels.

``groups`` gives each of the 784 pixels the number of its patch, row by row: the importance of a patch is
what the paper learns. Pixels keep their scale (they are not standardised): 0 is the background, and what a
removed patch is set to.
"""

import gzip
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from data_prep.dataset import Dataset
from data_prep.fetch import available, ensure  # noqa: F401 (available serves the examples)
from data_prep.prepare import stream


def patches(side: int = 28, patch: int = 4) -> np.ndarray:
    """The patch of each pixel, counted row by row.

    >>> patches(4, 2).reshape(4, 4)
    array([[0, 0, 1, 1],
           [0, 0, 1, 1],
           [2, 2, 3, 3],
           [2, 2, 3, 3]])
    """
    cell = np.arange(side) // patch
    return (cell[:, None] * (side // patch) + cell[None, :]).reshape(-1)  # (side * side,)


def _idx(path: Path) -> np.ndarray:
    """An idx file as an array of bytes: its header has the kind, the number of axes and their lengths."""
    with gzip.open(path, "rb") as stream_:
        content = stream_.read()
    axes = content[3]
    shape = struct.unpack(f">{axes}I", content[4 : 4 + 4 * axes])
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)


def load_mnist(seed: int = 0, digits: Sequence[int] = (3, 8)) -> Dataset:
    """The chosen digits, labelled 0, 1, ... in the order given; the seed only shuffles the training rows.

    >>> not available("mnist") or load_mnist(0).X_train.shape == (11982, 784)
    True
    """
    digits = [int(d) for d in digits]
    if len(digits) < 2 or len(set(digits)) < len(digits) or not set(digits) <= set(range(10)):
        raise ValueError(f"digits is {digits}: expected at least two different digits from 0 to 9")
    files = ensure("mnist")
    parts = {}
    for part in ("train", "t10k"):
        labels = _idx(files[f"{part}-labels-idx1-ubyte"])
        rows = np.flatnonzero(np.isin(labels, digits))
        if part == "train":
            rows = stream("MNIST", seed).permutation(rows)
        images = _idx(files[f"{part}-images-idx3-ubyte"])[rows].reshape(len(rows), -1)  # (N, 784)
        y = np.full(10, -1, np.int64)
        y[digits] = np.arange(len(digits))
        parts[part] = images.astype(np.float32) / 255, y[labels[rows]]
    names = [f"r{r:02d}c{c:02d}" for r in range(28) for c in range(28)]
    return Dataset(
        "MNIST", *parts["train"], *parts["t10k"], names, [str(d) for d in digits], groups=patches()
    )
