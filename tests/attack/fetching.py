"""Hostile servers, mirrors and disks against ``data_prep``: the right bytes arrive, or one clear sentence does.

    python -m tests.attack.fetching

Whatever the situation, ``ensure`` returns a file whose bytes are the publisher's, or raises ``DataUnavailable`` with
one line that says why and holds no password; ``status`` and ``available`` answer; nothing wrong stands under the final
name, nothing half-done beside it, and where the folder is sound the next fetch, from a good mirror, works.
"""

import contextlib
import gzip
import hashlib
import io
import json
import logging
import multiprocessing
import os
import re
import resource
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
import zipfile
import zlib
from collections import Counter
from pathlib import Path
from unittest import mock

from data_prep import fetch
from data_prep.__main__ import main as command
from data_prep.catalog import CATALOG, Entry, File
from tests.data.test_data_fetch import FALSE, TRUE, WHEEL, Server, answer, build_wheel, dripping, silent, truncated

SECRET = "s3cret"
SECONDS = 20.0  # no situation may take longer, on a busy machine either
RIGHT = "right answer"
CASES = {}


class Scene:
    """The world of one case: folders, a server, environment variables, the addresses of the toy data set."""

    def __init__(self, folder, server):
        self.folder, self.server = folder, server
        self.data, self.mirror, index = folder / "data", folder / "mirror", folder / "index"
        self.good = folder / "good"
        for made in (self.data, self.mirror, self.good, index):
            made.mkdir()
        (self.good / "toy.csv.gz").write_bytes(gzip.compress(TRUE))
        self.addresses, self.wheel, self.sound = (), None, True
        self.env = {"BIF_DATA": str(self.data), "BIF_DATA_TIMEOUT": "3", "NO_PROXY": "127.0.0.1", "PIP_NO_INDEX": "1",
                    "PIP_FIND_LINKS": str(index), "PIP_CONFIG_FILE": os.devnull}
        self.around = contextlib.nullcontext()
        self.fetch = lambda: fetch.ensure("toy", progress=True)

    def publish(self, *pages, inside=""):
        """Put pages on the server, each the publisher's address of the file."""
        for number, page in enumerate(pages):
            self.server.pages[f"/{number}"] = page
        self.addresses = tuple(f"{self.server.url}/{n}{inside}" for n in range(len(pages)))

    def mirrored(self, where=None):
        """Name the mirror, by default the folder, and leave out the network."""
        self.env |= {"BIF_DATA_MIRROR": str(where or self.mirror), "BIF_OFFLINE": "1"}

    def catalog(self):
        file = File("toy.csv", hashlib.sha256(TRUE).hexdigest(), len(TRUE), self.addresses)
        return {"toy": Entry("toy", "a toy", (file,), "none", "none", "nowhere", wheel=self.wheel)}


def case(name, expected):
    """A situation, made by the function below, that must end with the right bytes or with these words."""
    def register(function):
        assert name not in CASES
        CASES[name] = (function, expected)
        return function
    return register


# servers

def status(code, **headers):
    def page(handler):
        handler.send_response(code)
        for key, value in headers.items():
            handler.send_header(key.replace("_", "-"), value)
        handler.end_headers()
    return page


def sends(content, **headers):
    def page(handler):
        handler.send_response(200)
        for key, value in ({"Content_Length": str(len(content))} | headers).items():
            handler.send_header(key.replace("_", "-"), value)
        handler.end_headers()
        with contextlib.suppress(OSError):
            handler.wfile.write(content)
    return page


def raw(content):
    def page(handler):
        handler.wfile.write(content)
    return page


def resets(handler):
    handler.wfile.write(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n" % len(TRUE) + TRUE[:900])
    handler.wfile.flush()
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()


def by_turns(*pages):
    turn = iter(pages)
    return lambda handler: (page(handler) if callable(page := next(turn)) else answer(handler, page))


def archive(members, compression=zipfile.ZIP_DEFLATED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as z:
        for name, content in members:
            z.writestr(name, content)
    return file.getvalue()


def encrypted():
    """A zip whose member says that it needs a password."""
    data = bytearray(archive([("toy.csv", TRUE)]))
    for mark, at in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        data[data.index(mark) + at] |= 1
    return bytes(data)


BOMB = gzip.compress(bytes(260_000_000), 1)
LAST_MODIFIED = "Wed, 21 Oct 2015 07:28:00 GMT"
PAGES = {  # name: (what the publisher's one address answers, what is said, or RIGHT)
    "404": (status(404), "answered 404"), "403": (status(403), "answered 403"), "500": (status(500), "answered 500"),
    "206, a part as if it were the whole": (raw(b"HTTP/1.0 206 Partial\r\n\r\n" + TRUE[:500]), "truncated: 500"),
    "a login page with code 200": (b"<html>please log in</html>" * 500, "more than|wrong checksum|truncated"),
    "the length promised, half of it sent": (truncated, "broke off"),
    "a length that is too short": (sends(TRUE, Content_Length="100"), "truncated: 100"),
    "a length that is no number": (sends(TRUE, Content_Length="much"), "publisher: "),
    "no length, and the end too early": (raw(b"HTTP/1.0 200 OK\r\n\r\n" + TRUE[:700]), "truncated: 700"),
    "no length": (raw(b"HTTP/1.0 200 OK\r\n\r\n" + TRUE), RIGHT),
    "a bit flipped": (TRUE[:999] + bytes([TRUE[999] ^ 1]) + TRUE[1000:], "wrong checksum"),
    "other bytes of the same length": (gzip.compress(FALSE), "wrong checksum"),
    "nothing": (b"", "truncated: 0"),
    "a redirection for ever": (lambda h: status(302, Location=h.path)(h), "redirects"),
    "a redirection to a file of this machine": (status(302, Location="file:///etc/hostname"), "publisher: "),
    "a redirection with a password": (status(302, Location=f"http://me:{SECRET}@127.0.0.1:1/"), "no connection"),
    "silence": (silent, "no answer|silent|too slow"),
    "a byte now and then": (dripping, "too slow"),
    "a connection reset": (resets, "broke off|no connection"),
    "an answer that is not HTTP": (raw(b"\0\1\2 who are you?\r\n\r\n"), "no connection"),
    "headers without end": (raw(b"HTTP/1.0 200 OK\r\n" + b"X-A: b\r\n" * 20_000 + b"\r\n"), "no connection"),
    "a broken chunk": (raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc"), "broke off"),
    "a gzip bomb": (BOMB, "more than"),
    "a gzip bomb as content encoding": (sends(BOMB, Content_Encoding="gzip"), "more than"),
    "content encoding gzip, and it is": (sends(gzip.compress(TRUE), Content_Encoding="gzip"), RIGHT),
    "content encoding gzip, and it is not": (sends(TRUE, Content_Encoding="gzip"), "publisher: "),
    "gzip that ends too early": (gzip.compress(TRUE)[:-9], "end-of-stream"),
    "gzip with something behind it": (gzip.compress(TRUE) + b"tail", "gzip"),
    "an old file, says the server": (sends(FALSE, Last_Modified=LAST_MODIFIED), "wrong checksum"),
}
ZIPS = {  # the same for one member of a zip
    "a zip with a member twice": (archive([("a/toy.csv", TRUE), ("b/toy.csv", FALSE)]), "2 members"),
    "a zip without the member": (archive([("other.csv", TRUE)]), "0 members"),
    "a zip bomb": (archive([("toy.csv", bytes(50_000_000))]), "larger than"),
    "a zip that points outside": (archive([("../toy.csv", TRUE)]), "points outside"),
    "a zip with a password": (encrypted(), "password"),
    "a zip cut in half": (archive([("toy.csv", TRUE)])[:900], "zip"),
}
for _pages, _inside in ((PAGES, ""), (ZIPS, "#toy.csv")):
    for _name, (_page, _words) in _pages.items():
        @case(_name, _words)
        def _(scene, page=_page, inside=_inside):
            scene.publish(page, inside=inside)
            if page in (silent, dripping):
                scene.env["BIF_DATA_TIMEOUT"] = "0.6"


@case("a file that changes between two requests", RIGHT)
def _(scene):
    scene.server.pages |= dict.fromkeys(("/m/toy.csv.gz", "/m/toy.csv"), by_turns(gzip.compress(FALSE), TRUE))
    scene.mirrored(f"{scene.server.url}/m")


@case("a file that changes from good to bad", RIGHT)
def _(scene):
    scene.server.pages |= dict.fromkeys(("/m/toy.csv.gz", "/m/toy.csv"), by_turns(gzip.compress(TRUE), FALSE))
    scene.mirrored(f"{scene.server.url}/m")


@case("four bad servers and a good one", RIGHT)
def _(scene):
    scene.publish(resets, FALSE, status(500), truncated, TRUE)


@case("https where there is http", "no connection")
def _(scene):
    scene.publish(TRUE)
    scene.addresses = (scene.server.url.replace("http:", "https:") + "/0",)


@case("a wheel with other bytes", "package index: .*wrong checksum")
def _(scene):
    build_wheel(scene.folder / "index", {"toy/data/toy.csv": FALSE})
    scene.wheel = WHEEL


@case("a wheel that is no zip", "package index: ")
def _(scene):
    build_wheel(scene.folder / "index", {"toy/data/toy.csv": TRUE}).write_bytes(b"PK\3\4 no more")
    scene.wheel = WHEEL


# mirrors

def in_mirror(name, expected, **files):
    """A mirror folder with these files, bytes or functions of the path; ``packed`` is toy.csv.gz."""
    @case(name, expected)
    def _(scene):
        for file, content in files.items():
            path = scene.mirror / {"packed": "toy.csv.gz", "plain": "toy.csv"}[file]
            content(path) if callable(content) else path.write_bytes(content)
        scene.mirrored()


def huge(path):
    path.touch()
    os.truncate(path, 10**12)


in_mirror("an empty mirror", "no toy.csv.gz in")
in_mirror("a mirror with an empty file", "truncated: 0", packed=b"")
in_mirror("a mirror with a damaged file", "mirror: ", packed=gzip.compress(TRUE)[:400] + gzip.compress(FALSE)[400:])
in_mirror("a mirror with a folder of that name", "no toy.csv.gz in", packed=Path.mkdir)
in_mirror("a mirror with a folder of that name, and the file", RIGHT, packed=Path.mkdir, plain=TRUE)
in_mirror("a mirror with a dangling link", "no toy.csv.gz in", packed=lambda path: path.symlink_to("nowhere"))
in_mirror("a mirror with a link to itself", "no toy.csv.gz in", packed=lambda path: path.symlink_to(path.name))
in_mirror("a mirror with a pipe", "no toy.csv.gz in", packed=os.mkfifo)
in_mirror("a mirror with a device", "no toy.csv.gz in", packed=lambda path: path.symlink_to("/dev/zero"))
in_mirror("a mirror with plain bytes named gz", RIGHT, packed=TRUE)
in_mirror("a mirror with gzip bytes named csv", RIGHT, plain=gzip.compress(TRUE))
in_mirror("a mirror with a terabyte of nothing", "more than", packed=huge)


@case("a mirror whose file has another case", "no toy.csv.gz in")
def _(scene):
    (scene.mirror / "TOY.CSV.GZ").write_bytes(TRUE)
    scene.mirrored()


@case("a mirror that may not be read", "mirror: |cannot be stored")
def _(scene):
    (scene.mirror / "toy.csv").write_bytes(TRUE)
    scene.mirror.chmod(0)
    scene.mirrored()
    scene.data.chmod(0o777)
    scene.fetch = lambda: in_child(as_nobody)
    scene.sound = False  # the lock is nobody's


@case("a mirror that is a file", "no folder")
def _(scene):
    (scene.mirror / "a").write_bytes(TRUE)
    scene.mirrored(scene.mirror / "a")


@case("a mirror that is a relative path", "no folder ./no/such/folder")
def _(scene):
    scene.mirrored("./no/such/folder")


for _where, _words in {
        f"ftp://me:{SECRET}@example.org/data": "mirror: ", f"me:{SECRET}@example.org/data": "mirror: ",
        f"//me:{SECRET}@example.org/data": "mirror: ", f"http:/me:{SECRET}@example.org/data": "mirror: ",
        f"http://me:{SECRET} x@127.0.0.1:1/data": "mirror: ", f"http://me:{SECRET}@127.0.0.1:1/data": "no connection",
        f"http://me:{SECRET}@[::1": "no valid host", f"http://me:{SECRET}@127.0.0.1:99999": "no valid host or port",
        f"http://me:x\\{SECRET}@127.0.0.1:1": "mirror: ", "http://": "mirror: ", "http:///data": "mirror: ",
        "~nobody-of-this-name/data": "mirror: ", "x" * 5000: "mirror: ", "\udcff\n\t": "mirror: "}.items():
    @case(f"the mirror {_where[:60]!a}", _words)
    def _(scene, where=_where):
        scene.mirrored(where)


# disks

def in_child(function):
    """What ``function`` gives in a child process: an answer, or its DataUnavailable."""
    here, there = multiprocessing.Pipe(duplex=False)

    def work():
        try:
            there.send((True, function()))
        except BaseException as error:
            there.send((False, (type(error) is fetch.DataUnavailable, f"{type(error).__name__}: {error}")))

    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    there.close()
    try:
        fine, found = here.recv()
    except EOFError:
        fine, found = False, (False, "the process died")
    child.join()
    if not fine:
        raise (fetch.DataUnavailable if found[0] else RuntimeError)(found[1])
    return found


def as_nobody():
    if os.getuid() == 0:  # whom no permission holds back
        os.setgid(65534)
        os.setuid(65534)
    fetch.available("toy")
    return fetch.ensure("toy")


def on_a_full_disk():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    return fetch.ensure("toy")


@case("a full disk, from a server", "publisher: ")
def _(scene):
    scene.publish(TRUE)
    scene.fetch = lambda: in_child(on_a_full_disk)


@case("a full disk, from a mirror", "mirror: ")
def _(scene):
    (scene.mirror / "toy.csv").write_bytes(TRUE)
    scene.mirrored()
    scene.fetch = lambda: in_child(on_a_full_disk)


@case("a data folder that is read-only", "set BIF_DATA")
def _(scene):
    scene.data.chmod(0o555)
    scene.publish(TRUE)
    scene.fetch, scene.sound = lambda: in_child(as_nobody), os.getuid() == 0


@case("a read-only data folder that has the file", RIGHT)
def _(scene):
    (scene.data / "toy.csv.gz").write_bytes(gzip.compress(TRUE))
    scene.data.chmod(0o555)
    scene.fetch = lambda: in_child(as_nobody)


@case("a data folder that is a file", "set BIF_DATA")
def _(scene):
    scene.data.rmdir()
    scene.data.write_bytes(b"")
    scene.publish(TRUE)
    scene.sound = False


@case("a data folder that is a link to itself", "set BIF_DATA")
def _(scene):
    scene.data.rmdir()
    scene.data.symlink_to("data")
    scene.publish(TRUE)
    scene.sound = False


@case("a data folder with a name of 300 letters", "set BIF_DATA")
def _(scene):
    scene.env["BIF_DATA"] = str(scene.folder / ("x" * 300))
    scene.publish(TRUE)
    scene.sound = False


@case("a folder where the file belongs", "set BIF_DATA")
def _(scene):
    (scene.data / "toy.csv.gz" / "inside").mkdir(parents=True)
    scene.publish(TRUE)
    scene.sound = False


@case("a folder where the lock belongs", "set BIF_DATA")
def _(scene):
    (scene.data / ".toy.lock").mkdir()
    scene.publish(TRUE)
    scene.sound = False


def left_behind(name, content):
    """The final name holds something else, which is replaced."""
    @case(name, RIGHT)
    def _(scene):
        path = scene.data / "toy.csv.gz"
        content(path) if callable(content) else path.write_bytes(content)
        scene.publish(TRUE)


left_behind("a half-written file", gzip.compress(TRUE)[:500])
left_behind("an empty file", b"")
left_behind("a false file", gzip.compress(FALSE))
left_behind("a link to nowhere", lambda path: path.symlink_to("nowhere"))
left_behind("a link to another file", lambda path: path.symlink_to("/etc/hostname"))


@case("what a killed fetch left", RIGHT)
def _(scene):
    (scene.data / ".toy-killed").mkdir()
    (scene.data / ".toy-killed" / "0").write_bytes(TRUE[:77])
    (scene.data / ".toy.lock").write_bytes(b"")
    scene.publish(TRUE)


@case("a note that says a false file was verified", RIGHT)
def _(scene):
    path, note = scene.data / "toy.csv.gz", scene.data / ".verified" / "toy.csv.json"
    path.write_bytes(gzip.compress(FALSE))
    note.parent.mkdir()
    note.write_text(json.dumps({"sha256": hashlib.sha256(TRUE).hexdigest(), "size": 1, "mtime": 1, "ctime": 1}))
    scene.publish(TRUE)


@case("a folder where the note belongs", RIGHT)
def _(scene):
    (scene.data / ".verified" / "toy.csv.json").mkdir(parents=True)
    scene.publish(TRUE)


# others at the same time

def slowly(handler):
    time.sleep(0.3)
    answer(handler, TRUE)


@case("four fetchers at once", RIGHT)
def _(scene):
    def four():
        children = [multiprocessing.get_context("fork").Process(target=fetch.ensure, args=("toy",)) for _ in range(4)]
        [child.start() for child in children]
        [child.join() for child in children]
        if [child.exitcode for child in children] != [0] * 4 or scene.server.asked != ["/0"]:
            raise RuntimeError(f"{children}, asked {scene.server.asked}")

    scene.publish(slowly)
    scene.fetch = four


@case("four threads at once", RIGHT)
def _(scene):
    def four():
        found = []
        threads = [threading.Thread(target=lambda: found.append(fetch.ensure("toy"))) for _ in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        if len(found) != 4 or scene.server.asked != ["/0"]:
            raise RuntimeError(f"{len(found)} threads ended well, asked {scene.server.asked}")

    scene.publish(slowly)
    scene.fetch = four


@case("a lock that another process holds on to", "another process")
def _(scene):
    @contextlib.contextmanager
    def held():
        with fetch.filelock.FileLock(scene.data / ".toy.lock"), mock.patch.object(fetch, "_LOCK_PATIENCE", 0.3):
            yield

    scene.publish(TRUE)
    scene.around = held()


@case("a fetch that is interrupted by Ctrl-C", "interrupted: nothing half-done")
def _(scene):
    def interrupted():
        said = scene.folder / "said"

        def work():
            signal.signal(signal.SIGINT, signal.default_int_handler)
            with open(said, "w") as sys.stderr:
                code = command(["fetch", "toy"])
            os._exit(code)

        child = multiprocessing.get_context("fork").Process(target=work)
        child.start()
        while not scene.server.asked:
            time.sleep(0.01)
        time.sleep(0.2)
        os.kill(child.pid, signal.SIGINT)
        child.join()
        raise (fetch.DataUnavailable if child.exitcode == 130 else RuntimeError)(said.read_text().strip())

    scene.publish(dripping)
    scene.fetch = interrupted


# the trial

def judge(scene, expected):
    """RIGHT or "refused clearly"; or, a failure, a sentence that begins with WRONG."""
    log, said, started = io.StringIO(), io.StringIO(), time.monotonic()
    handler = logging.StreamHandler(log)
    logging.getLogger().addHandler(handler)
    logging.getLogger().setLevel(logging.DEBUG)
    outcome = RIGHT
    try:
        with mock.patch.dict(os.environ, scene.env), mock.patch.dict(CATALOG, scene.catalog()), scene.around:
            with contextlib.redirect_stderr(said):
                try:
                    fetch.available("toy")
                    scene.fetch()
                except fetch.DataUnavailable as error:
                    outcome = str(error)
                fetch.status("toy")
                fetch.available("toy")
            seconds = time.monotonic() - started
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return f"WRONG: {type(error).__name__}: {error}"[:300]
    finally:
        logging.getLogger().removeHandler(handler)
    stored = _stored(scene)
    if stored not in (None, TRUE):
        return "WRONG: other bytes than the publisher's stand under the final name"
    if outcome == RIGHT and stored is None:
        return "WRONG: fetched, it says, and there is nothing"
    if SECRET in outcome + log.getvalue() + said.getvalue():
        return "WRONG: it tells the password"
    if left := [p.name for p in scene.data.rglob("*") if p.is_file() and not re.fullmatch(
            r"toy\.csv\.gz|\.toy\.lock|toy\.csv\.json|inside", p.name)] if scene.data.is_dir() else []:
        return f"WRONG: it leaves {left}"
    if seconds > SECONDS:
        return f"WRONG: took {seconds:.0f} s"
    if outcome != RIGHT and (outcome.count("\n") or len(outcome) > 1000 or "Traceback" in outcome):
        return f"WRONG: not one clear sentence: {outcome[:300]}"
    if (outcome if outcome == RIGHT else "") != (RIGHT if expected == RIGHT else "") or \
            expected != RIGHT and not re.search(expected, outcome):
        return f"WRONG: expected {expected!r}, got: {outcome[:300]}"
    again = scene.env | {"BIF_DATA_MIRROR": str(scene.good), "BIF_OFFLINE": "1"}
    if scene.sound:
        with mock.patch.dict(os.environ, again), mock.patch.dict(CATALOG, scene.catalog()):
            fetch.ensure("toy")
        if _stored(scene) != TRUE:
            return "WRONG: the next fetch does not mend it"
    return RIGHT if outcome == RIGHT else "refused clearly"


def _stored(scene):
    """The bytes under the final name, b"damaged" if they cannot be read, or None."""
    try:
        with gzip.open(scene.data / "toy.csv.gz") as stream:
            return stream.read(10**7)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except (OSError, EOFError, zlib.error) as error:
        return None if "symbolic links" in str(error) else b"damaged"


def attack(only=None):
    """Run the cases; returns (Counter of outcomes, failures as texts)."""
    counts, failures = Counter(), []
    for name, (build, expected) in CASES.items():
        if only and only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder, Server() as server:
            os.chmod(folder, 0o755)
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
            scene = Scene(Path(folder), server)
            with mock.patch.dict(os.environ):
                for key in ("BIF_DATA_MIRROR", "BIF_OFFLINE", "BIF_STANDINS"):
                    os.environ.pop(key, None)
                build(scene)
                outcome = judge(scene, expected)
            server.shutdown()
        counts[outcome.split(":")[0]] += 1
        if outcome.startswith("WRONG"):
            failures.append(f"{name}: {outcome}")
    return counts, failures


def main(only=None):
    started = time.monotonic()
    counts, failures = attack(only)
    for outcome, count in sorted(counts.items()):
        print(f"{count:6d}  {outcome}")
    print(*failures, sep="\n")
    print(f"{sum(counts.values())} situations of a fetch, {len(failures)} wrong, {time.monotonic() - started:.0f} s")
    return counts, failures


if __name__ == "__main__":
    sys.exit(1 if main(*sys.argv[1:])[1] else 0)
