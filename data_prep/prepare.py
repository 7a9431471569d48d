"""What the loaders of the tables share: coding, splitting, standardising, and a cache of what was parsed.

Every split draws from its own stream, named by data set and seed, and leaves the global generators alone.
"""

import hashlib
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from data_prep import paths
from data_prep.catalog import entry
from data_prep.seeding import derive


def stream(name: str, seed: int, part: str = "split") -> np.random.Generator:
    """The generator of one data set, seed and purpose.

    >>> stream("Adult", 0).integers(100) == stream("Adult", 0).integers(100)
    np.True_
    """
    return np.random.default_rng(derive(name, int(seed), part))


def codes(values: Sequence[str]) -> np.ndarray:
    """Ordinal codes of a column of strings: 0, 1, ... in alphabetical order; missing is a category too.

    >>> codes(["b", "a", "?", "b"])
    array([2., 1., 0., 2.], dtype=float32)
    """
    return np.unique(np.asarray(values, dtype=str), return_inverse=True)[1].astype(np.float32)


def split(count: int, test_share: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers of the training part, ``int((1 - test_share) * count)`` of them, and of the test part.

    >>> [len(part) for part in split(32561, 0.1, stream("Adult", 0))]
    [29304, 3257]
    """
    check_share(test_share, "test_share")
    order = rng.permutation(count)
    cut = int((1 - test_share) * count)
    return order[:cut], order[cut:]


def check_share(share: float, name: str) -> None:
    """Raise ``ValueError`` unless a share lies strictly between 0 and 1.

    >>> check_share(1.5, "test_share")
    Traceback (most recent call last):
    ValueError: test_share is 1.5: expected a share of the rows, more than 0 and less than 1
    """
    if not 0 < share < 1:
        raise ValueError(f"{name} is {share}: expected a share of the rows, more than 0 and less than 1")


def standardise(train: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
    """Each part with the mean and standard deviation of the training part; a constant column becomes 0.

    >>> [p.tolist() for p in standardise(np.array([[0.0, 7], [2, 7]]), np.array([[4.0, 9]]))]
    [[[-1.0, 0.0], [1.0, 0.0]], [[3.0, 0.0]]]
    """
    mean = train.mean(axis=0, dtype=np.float64)
    spread = train.std(axis=0, dtype=np.float64)
    constant = train.min(axis=0) == train.max(axis=0)  # exact, where a computed spread may be 1e-9
    scale = np.where(constant, 0.0, 1 / np.where(constant, 1.0, spread))
    return [((part - mean) * scale).astype(np.float32) for part in (train, *others)]


def cached(name: str, version: int, parse: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The arrays of ``parse()``, kept as an npz in ``data/parsed`` under the checksums of their files.

    ``version`` goes up when the parser changes. The npz carries a checksum of its content and is parsed
    again if that does not fit: a cache that was cut short or changed is never used.

    >>> from unittest import mock
    >>> import tempfile
    >>> with mock.patch.dict(os.environ, BIF_DATA=tempfile.mkdtemp()):
    ...     first = cached("adult", 0, lambda: {"age": np.array([39, 50])})
    ...     again = cached("adult", 0, lambda: {"age": "not parsed again"})
    >>> again["age"].tolist()
    [39, 50]
    """
    if paths.standins():  # small, and a cache knows the real files alone
        return parse()
    key = hashlib.sha256(
        repr((version, [f.sha256 for f in entry(name).files if f.required])).encode()
    ).hexdigest()
    path = paths.data() / "parsed" / f"{name}-{key[:16]}.npz"
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {k: stored[k] for k in stored.files}
        if str(arrays.pop("digest")) == _digest(arrays):
            return arrays
    except Exception:  # absent or damaged, in one of many ways
        pass
    arrays = parse()
    _save(path, arrays)
    return arrays


def _digest(arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for key in sorted(arrays):
        digest.update(f"{key}{arrays[key].dtype}{arrays[key].shape}".encode())
        digest.update(np.ascontiguousarray(arrays[key]).data)
    return digest.hexdigest()


def _save(path: Path, arrays: dict[str, np.ndarray]) -> None:
    temporary = None
    try:
        path.parent.mkdir(exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
        with os.fdopen(handle, "wb") as stream:
            np.savez(stream, digest=np.array(_digest(arrays)), **arrays)
        os.chmod(temporary, 0o644)  # mkstemp's 600 would hide it from others
        os.replace(temporary, path)
    except OSError:  # a full or read-only disk: work without the cache
        if temporary:
            Path(temporary).unlink(missing_ok=True)
