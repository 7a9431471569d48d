"""The loaders on the real files, counted and coded a second time here; skipped where a file is missing.

What needs no download (the shared steps, a made-up Adult file, the cache) is tested everywhere.
"""

import collections
import csv
import gzip
import hashlib

import numpy as np
import pytest
from sklearn.preprocessing import OrdinalEncoder, StandardScaler

import data_prep
from data_prep import adult, diabetes, intrusion, prepare
from data_prep.catalog import CATALOG, Entry, File
from data_prep.fetch import available, ensure

LOADERS = {
    "adult": data_prep.load_adult,
    "credit": data_prep.load_credit,
    "intrusion": data_prep.load_intrusion,
    "diabetes": data_prep.load_diabetes,
    "mnist": data_prep.load_mnist,
}
# train rows, test rows, features, classes
SHAPES = {
    "adult": (26048, 6513, 14, 2),
    "credit": (2668, 667, 29, 2),
    "intrusion": (175958, 43990, 41, 4),
    "mnist": (11982, 1984, 784, 2),
}


def needs(name):
    reason = f"{name} is neither in data/ nor in a folder BIF_DATA_MIRROR: run `make data`"
    return pytest.mark.skipif(not available(name), reason=reason)


each = pytest.mark.parametrize("name", [pytest.param(n, marks=needs(n)) for n in LOADERS])


def rows_of(name, file):
    """The publisher's rows, split at commas by the standard library."""
    with gzip.open(ensure(name)[file], "rt") as stream:
        return [row for row in csv.reader(stream, skipinitialspace=True) if row]


@each
def test_what_every_loader_returns(name):
    state = np.random.get_state()[1].copy()
    data, again, other = LOADERS[name](3), LOADERS[name](3), LOADERS[name](4)
    assert np.array_equal(np.random.get_state()[1], state)  # the global generator is left alone
    assert np.array_equal(data.X_train, again.X_train) and np.array_equal(data.y_test, again.y_test)
    assert not np.array_equal(data.X_train[:500], other.X_train[:500])
    for X, y in ((data.X_train, data.y_train), (data.X_test, data.y_test)):
        assert X.dtype == np.float32 and y.dtype == np.int64 and len(X) == len(y) and np.isfinite(X).all()
        assert set(np.unique(y)) == set(range(data.n_classes))
        assert X.shape[1] == len(data.feature_names) == len(set(data.feature_names))
    if name in SHAPES:
        assert (len(data.X_train), len(data.X_test), data.n_features, data.n_classes) == SHAPES[name]
    if name != "mnist":
        spread = data.X_train.std(axis=0, dtype=np.float64)
        constant = spread == 0
        assert np.allclose(data.X_train.mean(axis=0, dtype=np.float64), 0, atol=1e-5)
        assert np.allclose(spread[~constant], 1, atol=1e-4) and not data.X_test[:, constant].any()
    for key, column in data.extra.items():
        assert len(column) == len(data.y_train if key.endswith("train") else data.y_test)


@needs("adult")
def test_adult_against_a_second_reading():
    rows, counts = rows_of("adult", "adult.data"), CATALOG["adult"].counts
    assert len(rows) == counts["rows"] and sum(r[-1] == ">50K" for r in rows) == counts["positive"]
    data = data_prep.load_adult(1, test_share=0.1)
    assert len(data.y_train) == 29304 and data.y_train.sum() + data.y_test.sum() == counts["positive"]
    assert data.class_names == ["<=50K", ">50K"] and len(data.feature_names) == counts["features"]
    text = [i for i, f in enumerate(adult.FEATURES) if f not in adult.NUMBERS]
    table = np.array(rows, dtype=object)[:, :14]
    table[:, text] = OrdinalEncoder().fit_transform(table[:, text])
    train, test = prepare.split(len(rows), 0.1, prepare.stream("Adult", 1))
    scaler = StandardScaler().fit(table[train].astype(float))
    assert np.allclose(scaler.transform(table[train].astype(float)), data.X_train, atol=1e-4)
    assert np.allclose(scaler.transform(table[test].astype(float)), data.X_test, atol=1e-4)
    assert [rows[i][8] for i in test] == data.extra["race_test"].tolist()
    assert [rows[i][9] for i in train] == data.extra["sex_train"].tolist()
    assert data_prep.load_adult(0, drop=["race", "fnlwgt"]).n_features == 12


@needs("adult")
def test_adult_fair():
    rows = rows_of("adult", "adult.data")
    data, counts = data_prep.load_adult_fair(2), collections.Counter((r[8], r[9], r[-1]) for r in rows)
    assert data.n_features == 12 and not {"race", "sex"} & set(data.feature_names)
    assert [len(data.y_train), len(data.extra["y_val"]), len(data.y_test)] == [18564, 6188, 6188]
    together = collections.Counter()
    for part, y in (("train", data.y_train), ("val", data.extra["y_val"]), ("test", data.y_test)):
        together.update(zip(data.extra[f"race_{part}"], data.extra[f"sex_{part}"], y, strict=True))
    for race in (0, 1):
        for sex in (0, 1):
            for y in (0, 1):
                key = ("Black", "White")[race], ("Female", "Male")[sex], data.class_names[y]
                assert together[race, sex, y] == counts[key]


@needs("credit")
def test_credit_against_a_second_reading():
    counts = CATALOG["credit"].counts
    with gzip.open(ensure("credit")["creditcard.csv"], "rb") as stream:
        lines = stream.read().splitlines()
    head = lines[0].decode().replace('"', "").split(",")
    assert len(lines) - 1 == counts["rows"] and len(head) == counts["columns"]
    frauds = {tuple(np.float32(v) for v in li.split(b",")[1:30]) for li in lines if li.endswith(b',"1"')}
    data = data_prep.load_credit(0)
    y = np.concatenate([data.y_train, data.y_test])
    assert y.sum() == counts["frauds"] and (y == 0).sum() == counts["genuine_kept"]
    assert data.feature_names == head[1:30] and data.class_names == ["genuine", "fraud"]
    raw = prepare.cached("credit", 1, lambda: pytest.fail("the cache of the last line was not used"))
    assert {tuple(r) for r in raw["X"][raw["y"] == 1]} == frauds


@needs("intrusion")
def test_intrusion_against_a_second_reading():
    with gzip.open(ensure("intrusion")["kddcup.data_10_percent"], "rt") as stream:
        labels = collections.Counter(line.rstrip().rsplit(",", 1)[1].rstrip(".") for line in stream)
    counts = CATALOG["intrusion"].counts
    assert sum(labels.values()) == counts["rows"] and len(labels) == counts["labels"]
    assert all(labels[k] == counts[f"label_{k}"] for k in ("normal", "smurf", "neptune"))
    for group, members in intrusion.GROUPS.items():
        assert sum(labels[m] for m in members) == counts[group]
    data = data_prep.load_intrusion(0)
    found = np.bincount(np.concatenate([data.y_train, data.y_test]))
    assert dict(zip(data.class_names, found.tolist(), strict=True)) == {
        "dos": counts["dos_kept"],
        **{k: counts[k] for k in ("normal", "probe", "r2l")},
    }


@needs("diabetes")
def test_diabetes_against_a_second_reading():
    rows, counts = rows_of("diabetes", "diabetic_data.csv"), CATALOG["diabetes"].counts
    head, rows = rows[0], rows[1:]
    at = {title: place for place, title in enumerate(head)}.get
    found = collections.Counter(r[at("readmitted")] for r in rows)
    assert len(rows) == counts["rows"] and len(head) == counts["columns"]
    assert [found[k] for k in ("NO", ">30", "<30")] == [
        counts[f"readmitted_{k}"] for k in ("no", "later", "within_30")
    ]
    kept = [r for r in rows if r[at("discharge_disposition_id")] not in ("11", "13", "14", "19", "20", "21")]
    assert len(kept) == counts["rows_kept"]
    data = data_prep.load_diabetes(5)
    assert data.n_features == counts["features"] and set(data.feature_names) <= set(head)
    train, test = set(data.extra["patient_train"]), set(data.extra["patient_test"])
    assert not train & test and train | test == {int(r[at("patient_nbr")]) for r in kept}
    assert abs(len(test) / len(train | test) - 0.1) < 1e-4
    assert data.y_train.sum() + data.y_test.sum() == sum(r[at("readmitted")] != "NO" for r in kept)
    raw = prepare.cached("diabetes", 1, diabetes._parse)["X"]
    column = diabetes.FEATURES.index
    visits = [np.log(1 + int(r[at("number_inpatient")])) for r in kept]
    assert np.allclose(raw[:, column("number_inpatient")], visits)
    tested = [r[at("A1Cresult")] != "None" for r in kept]  # "None" is a value, not a gap
    assert np.array_equal(raw[:, column("A1Cresult")] > 0, tested) and 0 < sum(tested) < len(kept)
    for drug in diabetes.RARE_DRUGS:
        assert sum(r[at(drug)] != "No" for r in rows) < 20
    assert raw[:, column("age")].max() == 9


@needs("mnist")
def test_mnist_against_a_second_reading():
    files, counts, data = ensure("mnist"), CATALOG["mnist"].counts, data_prep.load_mnist(0)
    for part, y, rows in (("train", data.y_train, "train"), ("t10k", data.y_test, "test")):
        with gzip.open(files[f"{part}-labels-idx1-ubyte"]) as stream:
            labels = stream.read()[8:]
        assert len(labels) == counts[rows]
        assert [labels.count(3), labels.count(8)] == [counts[f"{rows}_3"], counts[f"{rows}_8"]]
        assert [(y == 0).sum(), (y == 1).sum()] == [counts[f"{rows}_3"], counts[f"{rows}_8"]]
    with gzip.open(files["t10k-images-idx3-ubyte"]) as stream:
        pixels = stream.read()[16:]
    first = next(i for i, digit in enumerate(labels) if digit in (3, 8))
    assert np.allclose(data.X_test[0] * 255, list(pixels[784 * first : 784 * (first + 1)]))
    assert data.X_train.min() == 0 and data.X_train.max() == 1
    assert data.class_names == ["3", "8"] and data.feature_names[29] == "r01c01"
    assert np.bincount(data.groups).tolist() == [16] * 49
    image = np.arange(49).repeat(4).reshape(7, 28)  # one row of pixels for each row of patches
    assert np.array_equal(image.repeat(4, axis=0).reshape(-1), data.groups)
    assert data_prep.load_mnist(0, digits=(1, 7, 0)).n_classes == 3


LIMITS = {
    0: "251 240 789 V45 E950 ?", 1: "390 459.9 785", 2: "460 519 786", 3: "520 579 787", 4: "250 250.02",
    5: "800 999", 6: "710 739", 7: "580 629 788", 8: "140 239",
}  # fmt: skip


@pytest.mark.parametrize("group", LIMITS)
def test_diagnosis_groups(group):
    """The limits of Strack et al. (2014), table 2."""
    assert {diabetes.diagnosis(code) for code in LIMITS[group].split()} == {group}


@pytest.fixture
def made_up_adult(tmp_path, monkeypatch):
    """An adult.data of 40 rows, in the catalog with its own checksum."""
    line = "{}, {}, 1, B, 9, Never-married, ?, Wife, {}, Male, 0, 0, 40, Cuba, {}\n"
    text = "".join(
        line.format(
            20 + i,
            "?" if i % 3 else "Private",
            ("White", "Black", "Other")[i % 3],
            "<=50K >50K".split()[i % 2],
        )
        for i in range(40)
    )
    content = (text + "\n").encode()
    file = File("adult.data", hashlib.sha256(content).hexdigest(), len(content))
    monkeypatch.setitem(CATALOG, "adult", Entry("adult", "", (file,), "", "", ""))
    monkeypatch.setenv("BIF_DATA", str(tmp_path))
    (tmp_path / "adult.data.gz").write_bytes(gzip.compress(content))


def test_adult_without_a_download(made_up_adult):
    data = data_prep.load_adult(0)
    assert (len(data.y_train), len(data.y_test), data.y_train.sum() + data.y_test.sum()) == (32, 8, 20)
    workclass = data.feature_names.index("workclass")
    assert len(np.unique(data.X_train[:, workclass])) == 2  # "?" is a category
    assert not data.X_train[:, data.feature_names.index("sex")].any()  # constant
    assert len(data_prep.load_adult_fair(0).extra["y_val"]) == round(0.2 * 27)
    for wrong in ({"drop": ["salary"]}, {"test_share": 0}, {"test_share": 1.0}):
        with pytest.raises(ValueError, match="salary|expected a share"):
            data_prep.load_adult(0, **wrong)
    with pytest.raises(ValueError, match="two different digits"):
        data_prep.load_mnist(0, digits=(3, 3))


def test_the_cache_is_dropped_when_damaged(tmp_path, made_up_adult):
    calls = []

    def parse():
        calls.append(1)
        return {"X": np.arange(6.0).reshape(2, 3)}

    for _ in range(2):
        assert np.array_equal(prepare.cached("adult", 1, parse)["X"], np.arange(6.0).reshape(2, 3))
    assert len(calls) == 1
    prepare.cached("adult", 2, parse)  # another version of the parser
    assert len(calls) == 2
    for path in (tmp_path / "parsed").iterdir():
        path.write_bytes(path.read_bytes()[:-30])
    prepare.cached("adult", 1, parse)
    changed = next(p for p in (tmp_path / "parsed").iterdir() if p.stat().st_size)
    np.savez(changed, X=np.zeros((2, 3)), digest=np.array("0"))
    assert prepare.cached("adult", 1, parse)["X"].sum() == 15 == prepare.cached("adult", 2, parse)["X"].sum()


def test_standardise_against_scikit_learn():
    rng = np.random.default_rng(0)
    train, test = rng.normal(3, 5, (50, 4)), rng.normal(size=(9, 4))
    train[:, 2] = test[:, 2] = 0.1  # a mean of 0.1s is not quite 0.1: still constant
    scaler = StandardScaler().fit(train)
    ours = prepare.standardise(train, test)
    assert np.allclose(ours[0], scaler.transform(train), atol=1e-6)
    assert np.allclose(ours[1], scaler.transform(test), atol=1e-6) and not ours[1][:, 2].any()
