"""Models to take away: the committed one works without training, and ``make models`` writes what its cards say."""

import hashlib
import json
import re

import numpy as np
import pytest
import torch
from safetensors import safe_open
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from bifkit import GlobalBIF, LocalBIF, Posterior
from data_prep import DataUnavailable
from experiments import take_away
from experiments.models.classifiers import accuracy, mlp
from experiments.models.saved import load_model
from experiments.runner import paths

COMMITTED = paths.root() / "examples" / "breast_cancer"


def held_out():
    """The rows of notebook 00, as a reader would make them."""
    data = load_breast_cancer(as_frame=True)
    X, X_test, _, y_test = train_test_split(data.data, 1 - data.target, random_state=0, stratify=data.target)
    return (X_test - X.mean()) / X.std(), y_test


def test_the_committed_one_is_small_whole_and_explains_a_row_without_training():
    assert sum(f.stat().st_size for f in COMMITTED.iterdir()) < 200_000
    X, y = held_out()
    g, explainer = load_model(COMMITTED / "g.safetensors"), LocalBIF.load(COMMITTED / "local.bif")
    stated = float(re.search(r"held-out patients \| ([\d.]+)", (COMMITTED / "card.md").read_text()).group(1))
    assert accuracy(g, X, y) == pytest.approx(stated, abs=0.01)
    stored = Posterior.load(COMMITTED / "local_posterior.bif")
    np.testing.assert_allclose(explainer.explain(X.iloc[:100]).mean, stored.mean, atol=1e-3)
    one = explainer.explain(X.iloc[[0]])
    assert one.feature_names == list(X) and one.mean.max() > 2 / 30
    # It explains this g: a row whose ten first features are another's changes g's answer more than with the last ten.
    rows, others = torch.tensor(X.to_numpy("float32")), torch.tensor(X.to_numpy("float32")).roll(1, 0)
    order = torch.tensor(np.argsort(-explainer.explain(X).mean, axis=1).copy())

    def moved(columns):
        mask = torch.zeros_like(rows).scatter_(1, columns, 1.0)
        return float((g(rows * (1 - mask) + others * mask).softmax(1) - g(rows).softmax(1)).abs().mean())

    assert moved(order[:, :10]) > 2 * moved(order[:, -10:])


def test_its_checksums_are_those_of_the_files():
    assert (COMMITTED / "SHA256SUMS").read_text() == take_away.checksums(COMMITTED)
    line = take_away.checksums(COMMITTED).splitlines()[0]
    digest, name = line.split("  ")
    assert hashlib.sha256((COMMITTED / name).read_bytes()).hexdigest() == digest


@pytest.fixture
def toy(monkeypatch):
    """Two studies that take no time, of which one lacks its data."""
    X = np.random.default_rng(0).normal(size=(120, 3)).astype("float32")

    def made():
        g = mlp([3, 4, 2])
        settings = {"epochs": 1, "min_steps": 20, "feature_names": ["a", "b", "c"], "likelihood": "categorical"}
        fits = {"local": LocalBIF(g, **settings).fit(X), "global": GlobalBIF(g, **settings).fit(X)}
        yield take_away.Thing("one", {"g": g}, fits, X, {"a score": 0.123456}, ("Toy rows.", "CC0"), "`rows()`",
                              "Mind.")

    def lacks():
        raise DataUnavailable("no such file")
        yield

    monkeypatch.setattr(take_away, "STUDIES", {"toy": ("00", made), "gone": ("01", lacks)})
    return X


@pytest.mark.filterwarnings("ignore")
def test_what_is_written_loads_as_its_card_says(toy, tmp_path, monkeypatch, capsys):
    assert take_away.main(["--only", "00", "--folder", str(tmp_path)]) == 0
    folder = tmp_path / "toy" / "one"
    assert {f.name for f in folder.iterdir()} == {"g.safetensors", "local.bif", "global.bif", "local_posterior.bif",
                                                  "global_posterior.bif", "card.md"}
    card = (folder / "card.md").read_text()
    assert all(words in card for words in ("| a score | 0.1235 |", "CC0", "Toy rows", "`rows()`", "Mind.", "3-4-2"))
    monkeypatch.chdir(folder)
    names = {"X": toy[:7]}
    exec(re.search(r"```python\n(.*?)```", card, flags=re.S).group(1), names)
    assert names["g"](torch.tensor(toy)).shape == (120, 2)
    np.testing.assert_allclose(names["posterior"].mean, names["stored"].mean)
    np.testing.assert_allclose(names["rows"].mean, names["stored_rows"].mean[:7], rtol=1e-4, atol=1e-6)
    assert (tmp_path / "SHA256SUMS").read_text() == take_away.checksums(tmp_path)
    assert "toy/one/card.md" in (tmp_path / "README.md").read_text() and "1 folders" in capsys.readouterr().out


def test_absent_data_are_said_and_wrong_numbers_refused(toy, tmp_path, capsys):
    assert take_away.main(["--only", "01", "--folder", str(tmp_path)]) == 1
    assert "gone is left out: no such file" in capsys.readouterr().err
    assert take_away.main(["--only", "77", "--folder", str(tmp_path)]) == 2
    assert "77" in capsys.readouterr().err


def test_the_studies_are_those_of_the_notebooks():
    numbers = {f.name[:2] for f in paths.notebooks().glob("*.ipynb")}
    assert {number for number, _ in take_away.STUDIES.values()} <= numbers
    assert len(take_away.STUDIES) == len({number for number, _ in take_away.STUDIES.values()})


def test_its_files_are_safetensors():
    for name in ("g.safetensors", "local.bif", "local_posterior.bif"):
        with safe_open(COMMITTED / name, framework="numpy") as file:
            assert file.metadata()["format"] == "bifkit" and json.loads(file.metadata()["meta"])
