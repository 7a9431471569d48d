"""One file format for everything we save: a safetensors file with a JSON header. No pickle, nothing runs on load.

Arrays are tensors of the file; names, settings and the kind of object are JSON in its metadata. Since version 2 a
checksum covers every byte. What a header claims is compared with the file before memory is taken for it: a file that
is damaged, truncated, newer, of another kind or not ours is refused with a ``BadFile`` that says so.
"""

import contextlib
import hashlib
import json
import math
import os
import re
import secrets
import stat
import struct
import time
from pathlib import Path

import numpy as np
from safetensors.numpy import save as to_bytes

VERSION = 2  # 1 had no checksum, and the labels of rows in its header
TYPES = {f"{letter}{8 * size}": np.dtype(f"<{code}{size}")  # by safetensors' names
         for letter, code, sizes in (("F", "f", (2, 4, 8)), ("I", "i", (1, 2, 4, 8)), ("U", "u", (1, 2, 4, 8)))
         for size in sizes}
MOST_AXES = 8
CHECKSUM = re.compile(rb'"sha256":"[0-9a-f]{64}"')
NO_CHECKSUM = b'"sha256":"%s"' % (b"0" * 64)  # what stands in its place while it is computed


class BadFile(ValueError):
    """A file that is not ours, is damaged, or is from a newer version."""


def _plain(value):
    """numpy's numbers and arrays as JSON's own."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"settings to be saved must be numbers, text, lists or dicts; got {type(value).__name__}")


def write_bytes(data: bytes, file) -> None:
    """Write a file whole or not at all: under a temporary name beside it, synced to the disk, then moved.

    A link is followed, and the file that is replaced hands its permissions on.
    """
    file = Path(os.path.realpath(file))
    temporary = file.with_name(f".{secrets.token_hex(16)}.tmp")
    try:
        mode = None
        with contextlib.suppress(FileNotFoundError):
            mode = file.stat().st_mode
        if mode is not None and not stat.S_ISREG(mode):
            raise OSError(f"{file.name} is a folder or a device: give the name of a file")
        with open(temporary, "xb") as f:  # refuses a name that exists; a new file has the permissions of the umask
            if mode is not None and os.name == "posix":
                os.chmod(temporary, stat.S_IMODE(mode))
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        _replace(temporary, file)
    finally:
        temporary.unlink(missing_ok=True)


def _replace(temporary, file):
    """Move a file to its name; Windows refuses while another thread or program has that one open, so try again."""
    for wait in (0.01, 0.03, 0.1, 0.3, None):
        try:
            os.replace(temporary, file)
            break
        except PermissionError:
            if wait is None:
                raise
            time.sleep(wait)
    if os.name == "posix":  # the new name reaches the disk with its folder
        with contextlib.suppress(OSError):
            folder = os.open(file.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)


def write(path, kind, arrays, meta) -> None:
    """Save an object as one file, in a folder that is made if need be.

    Parameters
    ----------
    path : str or Path
    kind : str
        Class of the object; ``read`` asks for it.
    arrays : dict of str to array
        Of whole or floating numbers.
    meta : dict
        Anything that JSON can hold, numpy's numbers and arrays too.
    """
    arrays = {k: np.asarray(v, order="C") for k, v in arrays.items()}
    for name, array in arrays.items():
        if array.dtype.newbyteorder("<") not in TYPES.values() or array.ndim > MOST_AXES:
            raise TypeError(f"array {name!r} of type {array.dtype} and {array.ndim} axes cannot be saved")
    try:
        text = json.dumps(meta, default=_plain)
        _json(text)
    except RecursionError:
        raise ValueError("settings to be saved are nested too deeply") from None
    header = {"format": "bifkit", "version": str(VERSION), "kind": kind, "meta": text, "sha256": "0" * 64}
    data = to_bytes(arrays, metadata=header)
    length = struct.unpack("<Q", data[:8])[0]
    if not _fits(length, data[8:8 + length], len(data) - 8 - length):
        raise ValueError(f"names and settings of {length / 1e6:.0f} MB are too much to save: leave some settings out")
    checksum = b'"sha256":"%s"' % hashlib.sha256(data).hexdigest().encode()
    path = Path(path)
    Path(os.path.realpath(path)).parent.mkdir(parents=True, exist_ok=True)
    write_bytes(data.replace(NO_CHECKSUM, checksum, 1), path)


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
    if not os.path.isfile(path):
        raise FileNotFoundError(f"there is no file {path.name!r} in {path.parent.name or 'this folder'!r}")
    try:
        with open(path, "rb") as file:
            raw, header, layout = _open(file)
            _check_header(path.name, header, kind)
            if "sha256" in header:
                _check_sum(file, raw, header["sha256"])
            file.seek(8 + len(raw))
            arrays = {name: _array(file, *which) for name, which in layout.items()}
    except BadFile:
        raise
    except Exception as error:  # whatever else a stranger's bytes provoke
        raise bad(f"{path.name} is not a bifkit file, or it is truncated or damaged", error) from None
    try:
        return arrays, _json(header["meta"])
    except (ValueError, RecursionError) as error:
        raise bad(f"{path.name} has a damaged header", error) from None


def bad(what, error) -> BadFile:
    """A BadFile that says what is wrong and, in brackets and in short, why.

    >>> bad("a.bif has a damaged header", KeyError("seed"))
    BadFile("a.bif has a damaged header (KeyError: 'seed')")
    """
    why = f"{type(error).__name__}: {error}" if not isinstance(error, ValueError) else str(error)
    return BadFile(f"{what} ({why if len(why) <= 200 else why[:200] + '...'})")


def _json(text):
    """The value of a JSON text in which no name stands twice."""
    def strict(pairs):
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError("a name stands twice in its header")
        return found

    return json.loads(text, object_pairs_hook=strict)


def _fits(length, raw, data):
    """Is a header short, with few lists, beside its bytes of arrays? Python takes many times its size to hold it."""
    return length <= 2_000_000 + 4 * data and raw.count(b"[") + raw.count(b"{") <= 200_000 + data


def _open(file):
    """(bytes of the header, metadata, {name: (type, shape)} of the tensors in the order of the file), all in bounds."""
    size = os.fstat(file.fileno()).st_size
    length = struct.unpack("<Q", file.read(8))[0] if size >= 8 else size
    if 8 + length > size:
        raise ValueError("it ends before its header does")
    raw = file.read(length) if _fits(length, b"", size - 8 - length) else b""
    if len(raw) < length or not _fits(length, raw, size - 8 - length):
        raise ValueError(f"its header of {length / 1e6:.0f} MB is too long for what follows")
    entries = _json(raw.decode())
    if not isinstance(entries, dict):
        raise ValueError("its header is not one")
    header, layout, end = entries.pop("__metadata__", {}), {}, 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
        kind, shape, (begin, stop) = TYPES.get(entry["dtype"]), entry["shape"], entry["data_offsets"]
        if kind is None or len(entry) > 3:
            raise ValueError("a tensor has a type that is not one of ours")
        if len(shape) > MOST_AXES or not all(type(n) is int and n >= 0 for n in [*shape, begin, stop]):
            raise ValueError("a tensor has an impossible shape or place")
        if begin != end or stop - begin != math.prod(shape) * kind.itemsize:
            raise ValueError("its tensors do not lie side by side")
        layout[name], end = (kind, tuple(shape)), stop
    if 8 + length + end != size:
        raise ValueError("its tensors do not fill it")
    return raw, header, layout


def _check_header(name, header, kind):
    """Refuse metadata that are not ours, newer than we are, damaged, or of another kind of object."""
    if not isinstance(header, dict) or header.get("format") != "bifkit":
        raise BadFile(f"{name} was not written by bifkit")
    version = header.get("version")
    if isinstance(version, str) and re.fullmatch("[1-9][0-9]{0,8}", version) and int(version) > VERSION:
        raise BadFile(f"{name} has format version {version}, this bifkit reads up to {VERSION}: upgrade bifkit")
    fields = {"format", "version", "kind", "meta"} | ({"sha256"} if version == "2" else set())
    if version not in ("1", "2") or set(header) != fields or not all(isinstance(v, str) for v in header.values()):
        raise BadFile(f"{name} has a damaged header")
    if header["kind"] != kind:
        found = header["kind"] if header["kind"].isidentifier() and len(header["kind"]) < 50 else None
        raise BadFile(f"{name} holds a {found}, not a {kind}: load it with {found}.load" if found else
                      f"{name} has a damaged header")


def _check_sum(file, raw, expected):
    """Refuse a file, open behind its header ``raw``, that is not what was written, byte for byte."""
    blank, found = CHECKSUM.subn(NO_CHECKSUM, raw)
    digest = hashlib.sha256(struct.pack("<Q", len(raw)) + blank)
    while block := file.read(1 << 20):
        digest.update(block)
    if found != 1 or digest.hexdigest() != expected:
        raise ValueError("its checksum is another: copy or save it again")


def _array(file, kind, shape):
    """The next array of an open file."""
    array = np.empty(shape, kind)
    if file.readinto(array.reshape(-1).view(np.uint8)) != array.nbytes:
        raise ValueError("it became shorter while it was read")
    return array
