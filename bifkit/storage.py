"""One file format for everything we save: a safetensors file with a JSON header. No pickle, nothing runs on load.

Arrays are tensors of the file; names, settings and the kind of object are JSON in its metadata. Files carry a format
version: a newer one, a truncated one, or a file of another kind is refused with a sentence.
"""

import json
import os
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

VERSION = 1


class BadFile(ValueError):
    """A file that is not ours, is damaged, or is from a newer version."""


def _plain(value):
    """numpy's numbers and arrays as JSON's own."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"settings to be saved must be numbers, text, lists or dicts; got {type(value).__name__}")


def write_bytes(data: bytes, file) -> None:
    """Write a file whole or not at all: under a temporary name beside it, then moved."""
    file = Path(file)
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, file)
    finally:
        temporary.unlink(missing_ok=True)


def write(path, kind, arrays, meta) -> None:
    """Save an object as one file, in a folder that is made if need be.

    Parameters
    ----------
    path : str or Path
    kind : str
        Class of the object; ``read`` asks for it.
    arrays : dict of str to array
    meta : dict
        Anything that JSON can hold, numpy's numbers and arrays too.
    """
    arrays = {k: np.asarray(v, order="C") for k, v in arrays.items()}
    header = {"format": "bifkit", "version": str(VERSION), "kind": kind, "meta": json.dumps(meta, default=_plain)}
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(to_bytes(arrays, metadata=header), path)


def read(path, kind) -> tuple[dict, dict]:
    """(arrays, meta) of a file that ``write`` made for the same ``kind``; BadFile says what is wrong with another.

    >>> import tempfile
    >>> file = tempfile.mkdtemp() + "/doctest.bif"
    >>> write(file, "Posterior", {"alpha": np.ones(2)}, {"seed": 3})
    >>> read(file, "Posterior")
    ({'alpha': array([1., 1.])}, {'seed': 3})
    >>> read(file, "LocalBIF")
    Traceback (most recent call last):
    bifkit.storage.BadFile: doctest.bif holds a Posterior, not a LocalBIF: load it with Posterior.load
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path.name!r} in {path.parent.name or 'this folder'!r}")
    try:
        with safe_open(path, framework="numpy") as f:
            header = f.metadata() or {}
            arrays = {k: f.get_tensor(k) for k in f.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        raise BadFile(f"{path.name} is not a bifkit file, or it is truncated or damaged ({error})") from None
    if header.get("format") != "bifkit":
        raise BadFile(f"{path.name} was not written by bifkit")
    try:
        version, meta = int(header["version"]), json.loads(header["meta"])
    except (KeyError, ValueError):
        raise BadFile(f"{path.name} has a damaged header") from None
    if version > VERSION:
        raise BadFile(f"{path.name} has format version {version}, this bifkit reads up to {VERSION}: upgrade bifkit")
    if header.get("kind") != kind:
        raise BadFile(f"{path.name} holds a {header.get('kind')}, not a {kind}: load it with {header.get('kind')}.load")
    return arrays, meta
