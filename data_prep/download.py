"""One download over HTTP, through pooch, that ends: with a progress bar, a deadline and a limit on the size.

A server may be silent for ``BIF_DATA_TIMEOUT`` seconds (20), and the whole may take that long plus the time
the file needs at 20 kB a second. requests cannot limit the whole, so the transfer runs in a thread that is
left to itself when its time is up.
"""

import os
import re
import threading
import warnings
from pathlib import Path
from urllib.parse import urlparse

import requests
from tqdm import tqdm

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message="IProgress not found")  # pooch asks for tqdm's bars in a notebook
    import pooch

SLOWEST = 20_000  # bytes a second; a publisher slower than this is given up
_CHUNK = 1 << 16


def patience() -> float:
    """Seconds a silent server is waited for.

    >>> patience() > 0
    True
    """
    given = os.environ.get("BIF_DATA_TIMEOUT") or "20"
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise OSError(f"BIF_DATA_TIMEOUT is {given!r}: expected a positive number of seconds")
    return seconds


def public(text: str) -> str:
    """Text without what may be a name and a password in its addresses, in badly written ones too.

    >>> public("no answer from https://me:secret@example.org/a.csv"), public("ftp://me:se/cr@et@host")
    ('no answer from https://example.org/a.csv', 'ftp://host')
    >>> public("no folder me:secret@host/data")
    'no folder host/data'
    """
    return re.sub(r"(\w+://)?\S*:.*@", r"\1", text)


def bar(label: str, total: int, shown: bool) -> tqdm:
    """A progress bar in bytes, on stderr; silent unless ``shown``.

    >>> bar("a.csv", 2048, shown=False).disable
    True
    """
    return tqdm(
        total=total,
        desc=label,
        unit="B",
        unit_scale=True,
        unit_divisor=1024,
        leave=False,
        disable=not shown,
        ncols=88,
    )


class _Watch:
    """What pooch takes for a progress bar: it also stops a transfer that is too large or no longer wanted."""

    total = 0

    def __init__(self, label: str, limit: int, shown: bool):
        self.bar, self.limit, self.count, self.cancelled = bar(label, 0, shown), limit, 0, False

    def update(self, count: int) -> None:
        if self.bar.total != self.total:
            self.bar.total = self.total
        self.count += count
        if self.cancelled or self.count > self.limit:
            raise OSError(f"more than the {self.limit} bytes allowed")
        self.bar.update(count)

    def reset(self) -> None:
        self.count = 0

    def close(self) -> None:
        self.bar.close()


def download(url: str, target: Path, *, size: int, progress: bool = False) -> Path:
    """Save ``url`` at ``target`` and return it; ``OSError`` with a short reason if that fails.

    ``size`` is the number of bytes expected after unpacking; the transfer may have up to twice that plus
    200 MB, for archives that hold more than the one file.

    >>> import tempfile; scratch = Path(tempfile.mkdtemp())
    >>> download("nowhere://host/a.csv", scratch / "doctest.csv", size=3)
    Traceback (most recent call last):
    OSError: No connection adapters were found for 'nowhere://host/a.csv'
    """
    wait = patience()
    try:
        host = urlparse(url).netloc.rpartition("@")[2]  # a password before the @ is nobody's business
        _ = urlparse(url).port
    except ValueError:
        raise OSError(
            "its address has no valid host or port; in a password write / ? # @ as %2F %3F %23 %40"
        ) from None
    watch = _Watch(f"{target.name if not host else host}", 2 * size + 200_000_000, progress)
    get = pooch.HTTPDownloader(progressbar=watch, chunk_size=_CHUNK, timeout=wait)
    failure: list[BaseException] = []

    def transfer() -> None:
        try:
            get(url, str(target), None)
        except BaseException as error:  # handed to the caller's thread
            failure.append(error)

    thread = threading.Thread(target=transfer, daemon=True)
    thread.start()
    deadline = wait + size / SLOWEST
    thread.join(deadline)
    if thread.is_alive():
        watch.cancelled = True
        raise OSError(f"{host} is too slow: not done after {deadline:.0f} s")
    watch.close()
    if failure:
        raise OSError(_reason(failure[0], host, wait)) from None
    return target


def _reason(error: BaseException, host: str, wait: float) -> str:
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"{host} answered {error.response.status_code}"
    if isinstance(error, requests.Timeout):
        return f"{host} gave no answer within {wait:.0f} s"
    if isinstance(error, requests.ConnectionError) and "Read timed out" in str(error):
        return f"{host} fell silent for {wait:.0f} s"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return f"{host} broke off the transfer"
    if isinstance(error, requests.ConnectionError):
        return f"no connection to {host}"
    return public(str(error)) or type(error).__name__
