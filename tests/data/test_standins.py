"""Made-up stand-ins: the loaders read them as they read the real files, without a network and in their own folder."""

import gzip
import io
import socket

import numpy as np
import pandas as pd
import pytest

import data_prep
from data_prep import fetch, paths
from data_prep.__main__ import main
from data_prep.catalog import CATALOG, entry

LOADERS = {  # loader: features, classes
    data_prep.load_adult: (14, 2),
    data_prep.load_adult_fair: (12, 2),
    data_prep.load_credit: (29, 2),
    data_prep.load_intrusion: (41, 4),
    data_prep.load_diabetes: (36, 2),
    data_prep.load_mnist: (784, 2),
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("BIF_STANDINS", str(tmp_path / "toys"))
    monkeypatch.setenv("BIF_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("BIF_DATA_MIRROR", "")

    def refused(*_, **__):
        raise AssertionError("a stand-in needs no network")

    monkeypatch.setattr(socket.socket, "connect", refused)
    return tmp_path / "toys"


@pytest.mark.parametrize("load", LOADERS, ids=lambda load: load.__name__)
def test_a_loader_reads_its_stand_in(load, folder, tmp_path):
    features, classes = LOADERS[load]
    data, again, other = load(0), load(0), load(1)
    assert data.n_features == features and data.n_classes == classes and len(data.feature_names) == features
    for X, y in ((data.X_train, data.y_train), (data.X_test, data.y_test)):
        assert X.dtype == np.float32 and y.dtype == np.int64 and np.isfinite(X).all() and len(X) == len(y) >= 50
        assert set(y) == set(range(classes))
    assert 200 < len(data.X_train) < 5000
    assert np.array_equal(data.X_train, again.X_train) and not np.array_equal(data.X_train, other.X_train)
    assert not (tmp_path / "data").exists() and {p.suffix for p in folder.iterdir()} == {".gz"}


def test_there_is_something_to_learn():
    """The largest correlation of a column with the label is far beyond chance (about 3 / sqrt(rows))."""
    for load in LOADERS:
        data = load(0)
        X, y = data.X_train - data.X_train.mean(0), data.y_train == data.y_train.max()
        scale = X.std(0) * y.std()
        r = np.abs((X * (y - y.mean())[:, None]).mean(0)) / np.where(scale > 0, scale, np.inf)
        assert r.max() > 4 / np.sqrt(len(y)), load.__name__


@pytest.mark.parametrize("name, columns", [("credit", 31), ("diabetes", 50), ("adult", 15), ("intrusion", 42)])
def test_a_stand_in_has_the_columns_of_the_real_file(name, columns, monkeypatch):
    file = entry(name).files[0].name
    header = 0 if name in ("credit", "diabetes") else None

    def read(path):
        with gzip.open(path) as stream:
            text = stream.read(200_000).rsplit(b"\n", 1)[0]
        return pd.read_csv(io.BytesIO(text), header=header, keep_default_na=False, skipinitialspace=True)

    made = read(data_prep.ensure(name)[file])
    assert made.shape[1] == columns
    monkeypatch.delenv("BIF_STANDINS")
    monkeypatch.delenv("BIF_DATA")
    if not (paths.data() / f"{file}.gz").exists():
        pytest.skip(f"{name} is not here")
    assert set(made.columns) == set(read(paths.data() / f"{file}.gz").columns)


def test_stand_ins_are_said_to_be_such(folder, capsys):
    assert all(data_prep.available(name) for name in CATALOG)
    assert main(["fetch", "all"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(CATALOG) and all("a made-up stand-in" in line for line in lines)
    assert fetch.status("credit") == fetch.verify("credit") == [("creditcard.csv", "stand-in")]
    assert (folder / "creditcard.csv.gz").exists()


def test_stand_ins_are_not_taken_for_the_real_data(folder, monkeypatch):
    data_prep.load_credit(0)
    assert not (folder / "parsed").exists()  # the cache is of the real files
    monkeypatch.delenv("BIF_STANDINS")
    monkeypatch.setenv("BIF_OFFLINE", "1")
    monkeypatch.setenv("BIF_DATA", str(folder))  # somebody puts them where the real ones belong
    with pytest.raises(data_prep.DataUnavailable):
        data_prep.load_credit(0)
