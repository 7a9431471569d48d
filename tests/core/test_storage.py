"""Saved explainers come back as they were; damaged, foreign, newer and hostile files are refused and run nothing."""

import hashlib
import json
import mmap
import os
import pickle
import stat
import struct
import subprocess
import sys
import threading
import time
import zipfile

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.numpy import load_file
from safetensors.numpy import save as to_bytes
from safetensors.torch import save_file as save_torch
from sklearn.exceptions import NotFittedError
from torch import nn

from bifkit import GlobalBIF, LocalBIF, Posterior, storage
from bifkit.storage import BadFile, write_bytes
from tests.attack import files as attack

X = np.random.default_rng(0).normal(size=(120, 4)).astype(np.float32)
Y = (X[:, 1] > 0).astype(int)
CLASSES = {"GlobalBIF": GlobalBIF, "LocalBIF": LocalBIF, "Posterior": Posterior}


def _fitted(kind, **kw):
    torch.manual_seed(0)
    small = {"min_steps": 5, "epochs": 1} | ({"hidden": 8} if kind is LocalBIF else {})
    return kind(nn.Linear(4, 2), **small | kw).fit(X, Y)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """One good file of each kind."""
    folder = tmp_path_factory.mktemp("good")
    for name, thing in {"GlobalBIF": _fitted(GlobalBIF), "LocalBIF": _fitted(LocalBIF),
                        "Posterior": Posterior([[1.0, 2.0], [3.0, 4.0]])}.items():
        thing.save(folder / name)
    return folder


# round trips

@pytest.mark.parametrize("kind", [GlobalBIF, LocalBIF])
@pytest.mark.parametrize("settings", [
    {}, {"restarts": 2, "seed": np.int64(5)}, {"seed": None, "prior": 1},
    {"preset": "few", "prior": 0.5, "lr": 0.01, "kl_weight": np.float32(0.5)},
    {"groups": {"pair": ["x1", "x3"]}}, {"groups": [3, 3, 1, 0], "feature_names": list("abcd")}, {"preset": "paper"},
])
def test_an_explainer_comes_back(kind, settings, tmp_path):
    fitted = _fitted(kind, **settings)
    fitted.save(tmp_path / "deep" / "e.bif")
    back = kind.load(tmp_path / "deep" / "e.bif")
    a, b = fitted.explain(X), back.explain(X)
    assert np.array_equal(a.alpha, b.alpha) and a.feature_names == b.feature_names
    assert json.loads(json.dumps(a.settings, default=float)) == pytest.approx(b.settings, abs=1e-6)
    assert back.history_ == fitted.history_ and back.likelihood_ == fitted.likelihood_


@pytest.mark.parametrize("version", [1, 2])
def test_a_posterior_of_before_there_was_a_null(version, tmp_path):
    meta = {"feature_names": ["a", "b"], "settings": {}}
    (tmp_path / "p.bif").write_bytes(attack.signed({"alpha": np.array([3.0, 1.0])}, "Posterior", json.dumps(meta),
                                                   version))
    back = Posterior.load(tmp_path / "p.bif")
    assert back.null == 0 and back.share.tolist() == back.mean.tolist() == [0.75, 0.25]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", ["GlobalBIF", "LocalBIF"])
def test_an_explainer_of_before_there_was_a_fidelity(name, version, files, tmp_path):
    """It was fitted with the absolute one; what is in the file stays as it is, and its explanations have shares."""
    kind, meta, arrays = attack.content(files / name)
    assert meta["settings"].pop("fidelity") == "relative" and meta["settings"].pop("global_steps") == 2000
    (tmp_path / "e.bif").write_bytes(attack.signed(arrays, kind, json.dumps(meta), version))
    back, now = CLASSES[name].load(tmp_path / "e.bif"), CLASSES[name].load(files / name)
    assert (back.settings_.fidelity, now.settings_.fidelity) == ("absolute", "relative")
    assert back.settings_.prior == now.settings_.prior == pytest.approx(1.1 / 4)
    assert np.array_equal(back.explain(X).share, now.explain(X).share)


@pytest.mark.parametrize("kind", [GlobalBIF, LocalBIF])
def test_a_loaded_explainer_can_be_fitted_again_as_it_was(kind, tmp_path):
    fitted = _fitted(kind, prior=0.7, lr=0.02, batch_size=50, seed=9, groups={"pair": ["x1", "x3"]})
    fitted.save(tmp_path / "e.bif")
    again = kind.load(tmp_path / "e.bif", fitted.model).fit(X, Y)
    assert again.settings_ == fitted.settings_ and again.group_names_ == fitted.group_names_
    assert np.array_equal(again.explain(X).alpha, fitted.explain(X).alpha)


def test_an_image_explainer_comes_back(tmp_path):
    torch.manual_seed(0)
    images = np.random.default_rng(0).normal(size=(40, 6, 6)).astype(np.float32)
    g = nn.Sequential(nn.Flatten(), nn.Linear(36, 2))
    fitted = LocalBIF(g, image=(6, 6), min_steps=3, epochs=1, hidden=8).fit(images)
    fitted.save(tmp_path / "e.bif")
    assert np.array_equal(LocalBIF.load(tmp_path / "e.bif").explain(images).alpha, fitted.explain(images).alpha)


def test_an_unfitted_explainer_has_nothing_to_save(tmp_path):
    with pytest.raises(NotFittedError, match="is not fitted: call fit"):
        GlobalBIF(nn.Linear(4, 2)).save(tmp_path / "e.bif")


# the file itself

def test_scalars_keep_their_shape_and_types(tmp_path):
    arrays = {"zero": np.array(3), "turned": np.arange(6.0).reshape(2, 3).T, "one": np.ones(1, np.float32)}
    storage.write(tmp_path / "a", "Thing", arrays, {"n": np.float32(0.5), "list": np.arange(3)})
    back, meta = storage.read(tmp_path / "a", "Thing")
    for k, v in arrays.items():
        assert back[k].shape == v.shape and back[k].dtype == v.dtype and np.array_equal(back[k], v)
    assert meta == {"n": 0.5, "list": [0, 1, 2]}
    assert set(load_file(tmp_path / "a")) == set(arrays)  # any safetensors reader can open it


def test_the_checksum_is_that_of_the_file_with_zeros_in_its_place(files):
    data = (files / "Posterior").read_bytes()
    found = data[data.index(b'"sha256":"') + 10:][:64]
    assert hashlib.sha256(data.replace(found, b"0" * 64)).hexdigest().encode() == found


def test_what_cannot_be_read_back_is_not_written(tmp_path):
    deep: list = []
    for _ in range(5000):
        deep = [deep]
    for meta, arrays, error in [({"a": deep}, {}, ValueError), ({1: 2, "1": 3}, {}, ValueError),
                                ({"a": "x" * 3_000_000}, {}, ValueError), ({}, {"a": np.array(["text"])}, TypeError),
                                ({}, {"a": np.ones([1] * 9)}, TypeError)]:
        with pytest.raises(error):
            storage.write(tmp_path / "a", "Thing", arrays, meta)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("index", [
    pd.date_range("2021-10-31", periods=4, freq="h", tz="Europe/Berlin"),  # an hour twice
    pd.DatetimeIndex(["2020-01-01", None, "1700-01-01", "2200-01-01"]).as_unit("s"),
    pd.to_timedelta([1, 2, 3, None], "s"), pd.Index([1, 2, 3, 4], dtype="uint8"),
    pd.Index([0.1, np.nan, -0.0, 1e300]), pd.Index([1, 2, 3, 4], dtype=">i8"),
    pd.Index(["a\0b", "", "\ud800", "long" * 1000], name="ü"),
])
def test_labels_of_rows_come_back(index, tmp_path):
    Posterior(np.ones((4, 2)), index=index).save(tmp_path / "p.bif")
    back = Posterior.load(tmp_path / "p.bif").index
    assert back.equals(index) and back.name == index.name and back.dtype.kind == index.dtype.kind


def test_a_time_zone_without_a_name_makes_texts(tmp_path):
    index = pd.date_range("2020", periods=2, tz="dateutil/Europe/Berlin")
    Posterior(np.ones((2, 2)), index=index).save(tmp_path / "p.bif")
    assert Posterior.load(tmp_path / "p.bif").index.tolist() == [str(i) for i in index]


def test_loading_draws_no_random_number(files):
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    LocalBIF.load(files / "LocalBIF")
    assert torch.equal(torch.random.get_rng_state(), before)


# how a file is written

posix = pytest.mark.skipif(os.name != "posix", reason="permissions and links as Unix has them")


@posix
def test_a_new_file_has_the_permissions_of_the_umask_and_an_old_one_keeps_its_own(tmp_path):
    before = os.umask(0o027)
    try:
        write_bytes(b"new", tmp_path / "new")
        (tmp_path / "old").touch()
        os.chmod(tmp_path / "old", 0o604)
        write_bytes(b"new", tmp_path / "old")
    finally:
        os.umask(before)
    assert [stat.S_IMODE((tmp_path / n).stat().st_mode) for n in ("new", "old")] == [0o640, 0o604]


@posix
def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "there").mkdir()
    for name, target in (("link", "there/file"), ("second", "link"), ("dangling", "made/by/save")):
        (tmp_path / name).symlink_to(target)
    storage.write(tmp_path / "second", "Thing", {}, {"n": 1})
    storage.write(tmp_path / "dangling", "Thing", {}, {"n": 2})
    assert all((tmp_path / n).is_symlink() for n in ("link", "second", "dangling"))
    assert storage.read(tmp_path / "there/file", "Thing")[1] == {"n": 1}
    assert storage.read(tmp_path / "made/by/save", "Thing")[1] == {"n": 2}
    assert len(list((tmp_path / "there").iterdir())) == 1


@posix
def test_a_folder_or_a_device_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in ("", "pipe"):
        with pytest.raises(OSError, match="is a folder or a device"):
            write_bytes(b"new", tmp_path / name)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode) and len(list(tmp_path.iterdir())) == 1


@posix
def test_a_full_disk_leaves_the_old_file(tmp_path):
    """The system's limit on the size of a file stops a write as a full disk does, half way."""
    write_bytes(b"old", tmp_path / "a")
    code = ("import resource, signal, sys; from bifkit.storage import write_bytes\n"
            "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n"
            "try: write_bytes(b'x' * 10**6, sys.argv[1])\nexcept OSError: sys.exit(3)")
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path / "a")]).returncode == 3
    assert [f.name for f in tmp_path.iterdir()] == ["a"] and (tmp_path / "a").read_bytes() == b"old"


def test_the_file_is_synced_before_it_is_moved(tmp_path, monkeypatch):
    calls, sync, move = [], os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append("sync"), sync(fd)))
    monkeypatch.setattr(os, "replace", lambda *a: (calls.append("move"), move(*a)))
    write_bytes(b"new", tmp_path / "a")
    assert calls[:2] == ["sync", "move"] and calls.count("move") == 1


def test_a_moment_in_which_the_file_is_open_elsewhere_is_waited_for(tmp_path, monkeypatch):
    """Windows says PermissionError while another thread or program holds the file."""
    move, refusals = os.replace, iter([1, 1])

    def replace(*args):
        if next(refusals, None):
            raise PermissionError
        move(*args)

    monkeypatch.setattr(os, "replace", replace)
    write_bytes(b"new", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"new"
    monkeypatch.setattr(os, "replace", lambda *a: (_ for _ in ()).throw(PermissionError))
    with pytest.raises(PermissionError):
        write_bytes(b"newer", tmp_path / "a")
    assert [f.name for f in tmp_path.iterdir()] == ["a"] and (tmp_path / "a").read_bytes() == b"new"


def test_threads_may_save_to_one_file_while_others_load_it(tmp_path):
    """Whoever reads finds one of the posteriors whole: all of its numbers are alike."""
    file, errors, until = tmp_path / "p.bif", [], time.monotonic() + 1.0
    Posterior(np.ones((200, 20))).save(file)

    def work(number):
        try:
            while time.monotonic() < until:
                if number < 4:
                    Posterior(np.full((200, 20), 1.0 + number)).save(file)
                else:
                    assert np.ptp(Posterior.load(file).alpha) == 0
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and [f.name for f in tmp_path.iterdir()] == ["p.bif"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    write_bytes(b"old", tmp_path / "a")
    monkeypatch.setattr(os, "replace", lambda *a: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        write_bytes(b"new", tmp_path / "a")
    assert [f.name for f in tmp_path.iterdir()] == ["a"] and (tmp_path / "a").read_bytes() == b"old"


# what is refused

@pytest.mark.parametrize("name", CLASSES)
def test_truncated_anywhere(name, files, tmp_path):
    whole, bad = (files / name).read_bytes(), tmp_path / "cut.bif"
    for cut in {0, 1, 7, 8, 9, 100, len(whole) // 2, len(whole) - 1}:
        bad.write_bytes(whole[:cut])
        with pytest.raises(BadFile, match="cut.bif is not a bifkit file, or it is truncated or damaged"):
            CLASSES[name].load(bad)
    bad.write_bytes(whole + b"more")
    with pytest.raises(BadFile):
        CLASSES[name].load(bad)


def test_every_byte_is_under_the_checksum(files, tmp_path):
    whole, bad = (files / "Posterior").read_bytes(), tmp_path / "flipped.bif"
    for at in range(len(whole)):
        data = bytearray(whole)
        data[at] ^= 1
        bad.write_bytes(data)
        with pytest.raises(BadFile):
            Posterior.load(bad)


def test_mutated_files():
    """Two hundred of the attack's mutations; ``make attack`` makes thousands."""
    counts, failures, meter = attack.attack(200)
    assert not failures and sum(counts.values()) == 200 and counts["damage, version 2", "refused"] > 30
    assert meter.seconds < attack.SECONDS and meter.megabytes < attack.MEGABYTES


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("content", ["text", "zip", "npz", "torch", "other safetensors", "bfloat16", "json"])
def test_foreign_files(name, content, tmp_path):
    file = tmp_path / "foreign"
    if content == "text":
        file.write_text("alpha,beta\n1,2\n" * 20)
    elif content == "zip":
        with zipfile.ZipFile(file, "w") as z:
            z.writestr("alpha", "1")
    elif content == "npz":
        with open(file, "wb") as f:
            np.savez(f, alpha=np.ones(3))
    elif content == "torch":
        torch.save({"alpha": torch.ones(3)}, file)
    elif content == "other safetensors":
        file.write_bytes(to_bytes({"alpha": np.ones(3)}))
    elif content == "bfloat16":
        save_torch({"alpha": torch.ones(3, dtype=torch.bfloat16)}, file, {"format": "bifkit"})
    else:
        file.write_text(json.dumps({"alpha": [1, 2]}))
    with pytest.raises(BadFile, match="foreign (is not a bifkit file|was not written by bifkit)"):
        CLASSES[name].load(file)


class _Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("how", ["pickle", "torch", "npy"])
def test_a_hostile_pickle_is_refused_and_runs_nothing(name, how, tmp_path):
    file, trap = tmp_path / "hostile", tmp_path / "it ran"
    if how == "pickle":
        file.write_bytes(pickle.dumps(_Bomb(trap)))
    elif how == "torch":
        torch.save(_Bomb(trap), file)
    else:
        with open(file, "wb") as f:
            np.save(f, np.array([_Bomb(trap)], dtype=object), allow_pickle=True)
    with pytest.raises(BadFile):
        CLASSES[name].load(file)
    assert not trap.exists()


@pytest.mark.parametrize("name", CLASSES)
def test_newer_and_damaged_headers(name, files, tmp_path):
    arrays, bad = load_file(files / name), tmp_path / "a.bif"

    def write(**changes):
        header = {"format": "bifkit", "version": "1", "kind": name, "meta": "{}"} | changes
        bad.write_bytes(to_bytes(arrays, metadata={k: v for k, v in header.items() if v is not None}))

    for changes, message in [
        ({"version": "99"}, "a.bif has format version 99, this bifkit reads up to 2: upgrade bifkit"),
        ({"version": "new"}, "damaged header"), ({"version": None}, "damaged header"),
        ({"meta": "{"}, "damaged header"),
        ({"format": "other"}, "was not written by bifkit"), ({"kind": "Thing"}, f"holds a Thing, not a {name}"),
        ({"meta": "{}"}, f"lacks something a {name} needs"), ({"meta": "[]"}, f"lacks something a {name} needs"),
        ({"meta": "null"}, f"lacks something a {name} needs"),
    ]:
        write(**changes)
        with pytest.raises(BadFile, match=message):
            CLASSES[name].load(bad)


UNFIT = [{"settings": None}, {"settings": {"gate": "soft"}}, {"settings": {"unknown": 1}}, {"preset": 3},
         {"restarts": 2}, {"restarts": "two"}, {"group_names": ["a"]}, {"feature_names": ["a"]}, {"shape": None}]


@pytest.mark.parametrize("name, change", [(n, c) for n in ("GlobalBIF", "LocalBIF") for c in UNFIT]
                         + [("LocalBIF", {"image": [3, 3]})])
def test_contents_that_do_not_fit_together(name, change, files, tmp_path):
    arrays, meta = storage.read(files / name, name)
    meta["settings"] = None if change.get("settings", 0) is None else meta["settings"] | change.get("settings", {})
    storage.write(tmp_path / "a.bif", name, arrays, meta | {k: v for k, v in change.items() if k != "settings"})
    with pytest.raises(BadFile, match=f"lacks something a {name} needs"):
        CLASSES[name].load(tmp_path / "a.bif")


# what a file may claim, in a checksummed file and in one of version 1

LONG = 10**30
CLAIMS = [
    ("LocalBIF", {"settings": {"hidden": 10**9}}), ("LocalBIF", {"settings": {"hidden": LONG}}),
    ("LocalBIF", {"restarts": 10**9}), ("LocalBIF", {"restarts": 10**9, "settings": {"restarts": 10**9}}),
    ("GlobalBIF", {"restarts": True}), ("GlobalBIF", {"settings": {"restarts": True}}),
    ("GlobalBIF", {"settings": {"weight_decay": float("nan")}}), ("GlobalBIF", {"settings": {"prior": float("inf")}}),
    ("GlobalBIF", {"settings": {"gate": None}}), ("GlobalBIF", {"settings": {"draws": 2.0}}),
    ("GlobalBIF", {"settings": {"lr": LONG}}), ("GlobalBIF", {"preset": ["rank"]}), ("GlobalBIF", {"seed": {}}),
    ("GlobalBIF", {"feature_names": [0, 1, 2, 3]}), ("GlobalBIF", {"feature_names": "abcd"}),
    ("GlobalBIF", {"feature_names": list("aabc")}), ("GlobalBIF", {"group_names": list("abcd")}),
    ("GlobalBIF", {"feature_names": [0, 1, 2, 3], "group_names": [0, 1, 2, 3]}),
    ("GlobalBIF", {"feature_names": list("aabc"), "group_names": list("aabc")}),
    ("GlobalBIF", {"groups": {"pair": [0, 1]}}), ("GlobalBIF", {"groups": [0, 0, 1, 1]}),
    ("GlobalBIF", {"columns": list("ab")}), ("GlobalBIF", {"from_frame": "no"}), ("GlobalBIF", {"likelihood": "none"}),
    ("GlobalBIF", {"classes": [-1]}), ("GlobalBIF", {"classes": [2**40]}), ("GlobalBIF", {"classes": [True]}),
    ("GlobalBIF", {"classes": []}), ("GlobalBIF", {"shape": [2, 3]}), ("GlobalBIF", {"shape": [-2, -2]}),
    ("GlobalBIF", {"image": [-2, -2]}), ("LocalBIF", {"image": [2, 2]}), ("GlobalBIF", {"image": [2, 2, 1, 1]}),
    ("GlobalBIF", {"history": [["high"]]}), ("GlobalBIF", {"history": []}), ("GlobalBIF", {"elbo": float("nan")}),
    ("GlobalBIF", {"score": "good"}), ("GlobalBIF", {"surprise": 1}), ("GlobalBIF", {"elbo": True}),
    ("GlobalBIF", {"diagnostics": {"steps": "5"}}), ("GlobalBIF", {"diagnostics": {"features": 4.0}}),
    ("GlobalBIF", {"diagnostics": {"features": 5}}), ("GlobalBIF", {"diagnostics": {"converged": 1}}),
    ("GlobalBIF", {"diagnostics": {"elbo": "low"}}), ("GlobalBIF", {"from_frame": True, "columns": None}),
    ("GlobalBIF", {"columns": [0, 1, 2, 3]}), ("GlobalBIF", {"feature_names": "abcd", "group_names": "abcd"}),
    ("GlobalBIF", {"history": [[]]}), ("GlobalBIF", {"history": [[0.0] * 21]}), ("GlobalBIF", {"history": "h"}),
    ("GlobalBIF", {"settings": {"draws": ...}}), ("GlobalBIF", {"settings": {"restarts": 2}}),
    ("GlobalBIF", {"settings": {"epochs": LONG}}), ("GlobalBIF", {"settings": {"prior": "auto"}}),
    ("GlobalBIF", {"settings": {"weight_decay": "low"}}), ("GlobalBIF", {"settings": {"kl_weight": None}}),
    ("GlobalBIF", {"settings": {"point_estimate": 2}}), ("GlobalBIF", {"settings": {"point_estimate": 1.0}}),
    ("GlobalBIF", {"preset": "paper", "settings": {"global_steps": True}}), ("Posterior", {"index": ["7", "8"]}),
    ("Posterior", {"feature_names": [1, 2]}), ("Posterior", {"feature_names": None}), ("Posterior", {"settings": [1]}),
    ("Posterior", {"index_dtype": "O"}), ("Posterior", {"index_dtype": "V8"}), ("Posterior", {"index_dtype": 3}),
    ("Posterior", {"index_dtype": "datetime64[ns, dateutil//etc/hosts]"}), ("Posterior", {"index_name": 3}),
    ("Posterior", {"index_dtype": "datetime64[ns, Nowhere/At_All]"}), ("Posterior", {"surprise": 1}),
]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name, claim", CLAIMS)
def test_no_field_is_believed(name, claim, version, files, tmp_path):
    kind, meta, arrays = attack.content(files / name)
    for key in {"settings", "diagnostics"} & set(claim) if name != "Posterior" else ():
        claim = claim | {key: {k: v for k, v in (meta[key] | claim[key]).items() if v is not ...}}
    (tmp_path / "a.bif").write_bytes(attack.signed(arrays, kind, json.dumps(meta | claim), version))
    meter = attack.Meter()
    with pytest.raises(BadFile, match=f"lacks something a {name} needs"):
        meter(CLASSES[name].load, tmp_path / "a.bif")
    assert meter.seconds < attack.SECONDS and meter.megabytes < attack.MEGABYTES


TWO = {"feature_names": ["a", "b"], "settings": {}, "index_name": None}


@pytest.mark.parametrize("name, change", [
    ("GlobalBIF", {"groups": np.array([0, 1, 2, 4])}), ("GlobalBIF", {"groups": np.array([0, 1, 2, -1])}),
    ("GlobalBIF", {"groups": np.array([0, 1, 2, 2])}), ("GlobalBIF", {"groups": np.arange(4.0)}),
    ("GlobalBIF", {"groups": np.arange(4)[None]}), ("GlobalBIF", {"0.theta": np.full(4, np.nan, np.float32)}),
    ("GlobalBIF", {"0.theta": np.zeros(5, np.float32)}), ("GlobalBIF", {"0.theta": np.zeros(4, np.int64)}),
    ("GlobalBIF", {"0.theta": np.zeros(4, np.float16)}), ("GlobalBIF", {"groups": np.array([1, 0, 2, 3])}),
    ("GlobalBIF", {"1.theta": np.zeros(4, np.float32)}), ("LocalBIF", {"0.scale": np.zeros(4, np.float32)}),
    ("LocalBIF", {"0.body.1.running_var": np.full(8, -1, np.float32)}), ("LocalBIF", {"0.centre": np.zeros(4)}),
    ("Posterior", {"alpha": np.full((2, 2), np.inf)}), ("Posterior", {"alpha": np.ones((2, 2), np.int64)}),
    ("Posterior", {"alpha": np.ones((3, 2))}), ("Posterior", {"alpha": np.ones(2)}), ("Posterior", {"index": None}),
    ("Posterior", {"index": np.arange(2.0)}), ("Posterior", {"index": np.arange(3)}), ("Posterior", {"x": np.ones(1)}),
    ("Posterior", {"temperature": np.array(2.0)}), ("Posterior", {"temperature": np.ones(3)}),
    ("Posterior", {"null": np.ones(3)}), ("Posterior", {"null": np.array([0.1, -1.0])}),
    ("Posterior", {"null": np.array([0.1, np.nan])}), ("Posterior", {"null": np.ones(2, np.float32)}),
    ("Posterior", {"index_ends": np.arange(2)}), ("Posterior", {"index": np.arange(2)[:, None]}),
    ("Posterior", {"alpha": np.array(1.0)}),
])
def test_no_array_is_believed(name, change, files, tmp_path):
    kind, meta, arrays = attack.content(files / name)
    arrays = {k: v for k, v in (arrays | change).items() if v is not None}
    (tmp_path / "a.bif").write_bytes(attack.signed(arrays, kind, json.dumps(meta)))
    with pytest.raises(BadFile, match=f"lacks something a {name} needs"):
        CLASSES[name].load(tmp_path / "a.bif")


@pytest.mark.parametrize("name", ["GlobalBIF", "LocalBIF", "Posterior"])
def test_an_array_of_a_million_empty_rows_is_refused_before_it_is_made_a_list(name, files, tmp_path):
    kind, meta, arrays = attack.content(files / name)
    for key, array in arrays.items():
        for shape in ((10**6, 0), (4, 10**6, 0), (2, 10**6, 0)):
            hostile = attack.signed(arrays | {key: np.zeros(shape, array.dtype)}, kind, json.dumps(meta))
            (tmp_path / "a.bif").write_bytes(hostile)
            meter = attack.Meter()
            with pytest.raises(BadFile, match=f"lacks something a {name} needs"):
                meter(CLASSES[name].load, tmp_path / "a.bif")
            assert meter.seconds < attack.SECONDS / 2 and meter.megabytes < attack.MEGABYTES / 2


@pytest.mark.parametrize("converged", [None, True])
def test_what_a_fit_may_say_of_itself_is_accepted(converged, files, tmp_path):
    """The neighbours of what is refused above."""
    kind, meta, arrays = attack.content(files / "GlobalBIF")
    meta["diagnostics"] |= {"converged": converged, "elbo": -1}
    (tmp_path / "a.bif").write_bytes(attack.signed(arrays, kind, json.dumps(meta | {"history": [[0.0] * 20]})))
    back = GlobalBIF.load(tmp_path / "a.bif")
    assert back.diagnostics_.converged is converged and len(back.history_[0]) == 20


TWO_GROUPS = {"group_names": ["a", "b"], "groups": {"a": [0, 1], "b": [2, 3]}}


@pytest.mark.parametrize("change, wrong", [
    ({}, None), ({"feature_names": list("vwxyz")}, "feature_names"),
    ({"group_names": ["a"], "groups": {"a": [0, 1, 2, 3]}}, "group_names"),
    ({"classes": [1, 0], "restarts": 2, "history": [[0.0], [0.0]]}, None),
    ({"classes": [1, 1], "restarts": 2, "history": [[0.0], [0.0]]}, "classes must be different"),
])
def test_groups_and_classes_fit_their_networks(change, wrong, files, tmp_path):
    kind, meta, _ = attack.content(files / "GlobalBIF")
    meta |= TWO_GROUPS | {"diagnostics": None} | change
    groups = len(meta["group_names"])
    arrays = {f"{r}.theta": np.zeros(groups, np.float32) for r in range(meta["restarts"])}
    arrays["groups"] = np.array([0, 0, 1, 1]) % groups
    (tmp_path / "a.bif").write_bytes(attack.signed(arrays, kind, json.dumps(meta)))
    if wrong:
        with pytest.raises(BadFile, match=wrong):
            GlobalBIF.load(tmp_path / "a.bif")
    else:
        GlobalBIF.load(tmp_path / "a.bif").explain()


def test_a_group_without_a_feature(files, tmp_path):
    kind, meta, arrays = attack.content(files / "GlobalBIF")
    meta |= {"group_names": list("abcd"), "groups": {"a": [0, 1], "b": [2], "c": [3], "d": []}}
    arrays["groups"] = np.array([0, 0, 1, 2])
    (tmp_path / "a.bif").write_bytes(attack.signed(arrays, kind, json.dumps(meta)))
    with pytest.raises(BadFile, match="features and groups do not fit together"):
        GlobalBIF.load(tmp_path / "a.bif")


@pytest.mark.parametrize("ends", [[1, 3], [3, 2], [-1, 2], [2], [0, 1], [1, 2, 2]])
def test_labels_that_do_not_lie_side_by_side(ends, tmp_path):
    arrays = {"alpha": np.ones((2, 2)), "index": np.frombuffer(b"ab", np.uint8), "index_ends": np.array(ends)}
    storage.write(tmp_path / "p", "Posterior", arrays, TWO | {"index_dtype": "str"})
    with pytest.raises(BadFile, match="lacks something a Posterior needs"):
        Posterior.load(tmp_path / "p")


@pytest.mark.parametrize("index, ends", [
    (np.array([97, 98]), np.array([1, 2])), (np.array([97, 98], np.uint8), np.array([1, 2], np.int32)),
    (np.array([[97], [98]], np.uint8), np.array([1, 2])), (np.array([97, 98], np.uint8), np.array([[1, 2]])),
])
def test_labels_of_another_type_than_was_written(index, ends, tmp_path):
    arrays = {"alpha": np.ones((2, 2)), "index": index, "index_ends": ends}
    storage.write(tmp_path / "p", "Posterior", arrays, TWO | {"index_dtype": "str"})
    with pytest.raises(BadFile, match="lacks something a Posterior needs"):
        Posterior.load(tmp_path / "p")


@pytest.mark.parametrize("second", [-62135596800, 253402300799])
def test_a_date_that_no_time_zone_has(second, tmp_path):
    arrays = {"alpha": np.ones((2, 2)), "index": np.array([0, second])}
    storage.write(tmp_path / "p", "Posterior", arrays, TWO | {"index_dtype": "datetime64[s, Europe/Berlin]"})
    with pytest.raises(BadFile, match="dates that no time zone has"):
        Posterior.load(tmp_path / "p")


def test_numbers_are_no_labels_of_version_1(tmp_path):
    meta = TWO | {"index": [1, 2], "index_dtype": "int64"}
    (tmp_path / "p").write_bytes(attack.signed({"alpha": np.ones((2, 2))}, "Posterior", json.dumps(meta), 1))
    with pytest.raises(BadFile, match="index must be texts"):
        Posterior.load(tmp_path / "p")


@pytest.mark.parametrize("label", ["today", "1 May 2020 5pm", "20200501"])
def test_a_date_of_version_1_is_one_that_was_written(label, tmp_path):
    meta = TWO | {"index": ["2020-05-01", label], "index_dtype": "datetime64[ns]"}
    (tmp_path / "p").write_bytes(attack.signed({"alpha": np.ones((2, 2))}, "Posterior", json.dumps(meta), 1))
    with pytest.raises(BadFile, match="lacks something a Posterior needs"):
        Posterior.load(tmp_path / "p")


OURS = '"__metadata__":{"format":"bifkit","version":"1","kind":"Posterior","meta":"{}"}'


def _raw(*parts, data=b""):
    """A file of a header in parts, as text."""
    header = "{" + ",".join(parts) + "}"
    return struct.pack("<Q", len(header)) + header.encode() + data


def _meta(text):
    """A file without a tensor whose fields are this text, as it stands in the header."""
    return _raw(OURS.replace("{}", text))


def _tensor(shape, place, name="alpha"):
    return f'"{name}":{{"dtype":"F64","shape":{shape},"data_offsets":{place}}}'


BOMBS = {
    "a header of 2**63 bytes": struct.pack("<Q", 2**63) + b"{}",
    "a tensor of 10**12 numbers": _raw(OURS, _tensor([10**12], [0, 8 * 10**12]), data=bytes(16)),
    "a shape whose product wraps": _raw(OURS, _tensor([2**32, 2**32], [0, 0])),
    "an empty tensor of 10**18 rows": _raw(OURS, _tensor([10**18, 10**18, 0], [0, 0])),
    "places that overlap": _raw(OURS, _tensor([1], [0, 8]), _tensor([1], [0, 8], "x"), data=bytes(8)),
    "a place left out": _raw(OURS, _tensor([2], [8, 24]), data=bytes(24)),
    "a tensor twice": _raw(OURS, _tensor([1], [0, 8]), _tensor([1], [8, 16]), data=bytes(16)),
    "a shape of words": _raw(OURS, _tensor('["2"]', [0, 16]), data=bytes(16)),
    "a shape of truth": _raw(OURS, _tensor("[true]", [0, 8]), data=bytes(8)),
    "many tensors": _raw(OURS, *(_tensor([0], [0, 0], i) for i in range(30_000))),
    "too many tensors": _raw(OURS, *(_tensor([0], [0, 0], i) for i in range(300_000))),
    "lists in lists": _raw('"a":' + "[" * 10**5), "dicts in dicts": _raw('"a":{' * 10**5),
    "lists in lists in meta": _meta("[" * 10**5), "far too many lists in lists": _meta("[" * 10**6),
    "many lists": _meta("[" + "[0]," * 190_000 + "0]"), "too many lists": _meta("[" + "[0]," * 490_000 + "0]"),
    "many dicts": _meta("[" + r'{\"\":0},' * 190_000 + "0]"), "many numbers": _meta("[" + "300," * 490_000 + "0]"),
    "a header of 50 MB": _meta("[" + "0," * 25_000_000 + "0]"),
    "a number of a million digits": _meta("1" * 10**6),
    "metadata that are a list": _raw('"__metadata__":["format","bifkit"]'),
    "a version that is a number": _raw(OURS.replace('"1"', "1")), "version 1.0": _raw(OURS.replace('"1"', '"1.0"')),
    "a kind that is none": _raw(OURS.replace('"Posterior"', "null")), "no tensors": _raw(OURS),
}


REASONS = {"places that overlap": "side by side", "a place left out": "side by side",  # of some, also why
           "a shape of truth": "impossible", "too many lists": "too long", "too many tensors": "too long",
           "a tensor of 10**12 numbers": "do not fill it", "a tensor twice": "twice"}


@pytest.mark.parametrize("bomb", BOMBS)
def test_what_a_header_claims_takes_neither_time_nor_memory(bomb, tmp_path):
    (tmp_path / "a.bif").write_bytes(BOMBS[bomb])
    meter = attack.Meter()
    with pytest.raises(BadFile) as error:
        meter(Posterior.load, tmp_path / "a.bif")
    assert REASONS.get(bomb, "") in str(error.value) and len(str(error.value)) < 500
    assert meter.seconds < attack.SECONDS and meter.megabytes < attack.MEGABYTES


@posix
def test_a_file_of_a_terabyte_of_nothing(files, tmp_path):
    good = (files / "Posterior").read_bytes()
    for content in (b"", good, _raw(OURS, _tensor([2, 2], [0, 32]))):
        (tmp_path / "a.bif").write_bytes(content)
        os.truncate(tmp_path / "a.bif", 10**12)
        meter = attack.Meter()
        with pytest.raises(BadFile, match="is not a bifkit file, or it is truncated or damaged"):
            meter(Posterior.load, tmp_path / "a.bif")
        assert meter.seconds < attack.SECONDS and meter.megabytes < attack.MEGABYTES


def test_the_meter_measures():
    meter = attack.Meter()

    def work():
        until = time.thread_time() + 0.05  # from here: what the meter itself takes before does not count
        while time.thread_time() < until:
            with mmap.mmap(-1, 2**26) as fresh:  # 64 MB from the system; malloc may have as much of its own to reuse
                for page in range(0, 2**26, 4096):
                    fresh[page] = 1

    for _ in range(40):  # the largest counts: while the system takes back unused memory, that hides what is taken
        meter(work)
        if meter.megabytes > 40:
            break
    assert meter.seconds >= 0.05 and (meter.megabytes > 40 or not os.path.exists("/proc/self/clear_refs"))


@posix
def test_a_file_that_may_not_be_read(files, tmp_path, monkeypatch):
    def refuse(*args):
        raise PermissionError("not yours")

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(BadFile, match="not yours"):
        Posterior.load(files / "Posterior")


@pytest.mark.parametrize("alpha", [np.ones(1), -np.ones(3), np.full(3, np.nan), np.ones((2, 2, 2))])
def test_a_posterior_with_impossible_numbers(alpha, tmp_path):
    storage.write(tmp_path / "p", "Posterior", {"alpha": alpha}, {"feature_names": ["a", "b", "c"], "settings": {}})
    with pytest.raises(BadFile, match="lacks something a Posterior needs"):
        Posterior.load(tmp_path / "p")


def test_no_such_file(tmp_path):
    for path in (tmp_path / "none.bif", tmp_path):
        with pytest.raises(FileNotFoundError, match="there is no file"):
            Posterior.load(path)
