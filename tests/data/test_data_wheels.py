"""What is rebuilt out of wheels, against bytes written by hand; what a pickle must not do; the catalog."""

import gzip
import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest

from data_prep import wheels
from data_prep.catalog import CATALOG


def test_wheels_are_rebuilt_to_the_publishers_bytes():
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (9, 28, 28), np.uint8), rng.integers(0, 10, 9)
    parts = tuple(
        (images[a:b].reshape(-1, 784).astype(np.float32) / 256, labels[a:b])
        for a, b in ((0, 4), (4, 6), (6, 9))
    )
    content = gzip.compress(pickle.dumps(parts, protocol=2))
    for name, first, last in (("train", 0, 6), ("t10k", 6, 9)):
        n = last - first
        expected = struct.pack(">BBBBIII", 0, 0, 8, 3, n, 28, 28) + images[first:last].tobytes()
        assert wheels.mnist(content, f"{name}-images-idx3-ubyte") == expected
        expected = struct.pack(">BBBBI", 0, 0, 8, 1, n) + bytes(labels[first:last].tolist())
        assert wheels.mnist(content, f"{name}-labels-idx1-ubyte") == expected


@pytest.mark.parametrize("harm", [os.system, eval, Path, np.load, np.frombuffer])
def test_a_pickle_may_only_hold_arrays(harm):
    class Bad:
        def __reduce__(self):
            return harm, ("/nowhere",)

    with pytest.raises(pickle.UnpicklingError, match="only numpy arrays"):
        wheels.mnist(gzip.compress(pickle.dumps(((np.arange(3), Bad()),))), "train-labels-idx1-ubyte")


def test_the_catalog_is_complete():
    for item in CATALOG.values():
        assert item.licence and item.citation and item.counts and item.home.startswith("https://")
        for file in item.files:
            assert len(file.sha256) == 64 and file.size > 0 and file.addresses
            assert all(a.startswith("https://") for a in file.addresses)
        if item.wheel:
            assert (
                set(item.wheel.members) == {f.name for f in item.files}
                and item.wheel.rebuild in wheels.REBUILD
            )
