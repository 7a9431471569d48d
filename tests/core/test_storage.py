"""Saved explainers come back as they were; damaged, foreign, newer and hostile files are refused and run nothing."""

import json
import os
import pickle
import struct
import zipfile

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from safetensors.numpy import save as to_bytes
from safetensors.torch import save_file as save_torch
from sklearn.exceptions import NotFittedError
from torch import nn

from bifkit import GlobalBIF, LocalBIF, Posterior, storage
from bifkit.storage import BadFile, write_bytes

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
    {}, {"restarts": 2, "seed": np.int64(5)}, {"preset": "few", "prior": 0.5, "lr": 0.01, "kl_weight": np.float32(0.5)},
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


@pytest.mark.parametrize("name", CLASSES)
def test_flipped_bytes_never_crash(name, files, tmp_path):
    """Whatever a damaged header says, the answer is an object of ours or a BadFile."""
    whole, bad, rng = (files / name).read_bytes(), tmp_path / "flipped.bif", np.random.default_rng(0)
    header = 8 + struct.unpack("<Q", whole[:8])[0]
    refused = 0
    for _ in range(60):
        data = bytearray(whole)
        data[rng.integers(header)] ^= 1 << rng.integers(8)
        bad.write_bytes(data)
        try:
            assert isinstance(CLASSES[name].load(bad), CLASSES[name])
        except BadFile:
            refused += 1
    assert refused > 30


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
        ({"version": "99"}, "a.bif has format version 99, this bifkit reads up to 1: upgrade bifkit"),
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


@pytest.mark.parametrize("alpha", [np.ones(1), -np.ones(3), np.full(3, np.nan), np.ones((2, 2, 2))])
def test_a_posterior_with_impossible_numbers(alpha, tmp_path):
    storage.write(tmp_path / "p", "Posterior", {"alpha": alpha}, {"feature_names": ["a", "b", "c"], "settings": {}})
    with pytest.raises(BadFile, match="lacks something a Posterior needs"):
        Posterior.load(tmp_path / "p")


def test_no_such_file(tmp_path):
    for path in (tmp_path / "none.bif", tmp_path):
        with pytest.raises(FileNotFoundError, match="there is no file"):
            Posterior.load(path)
