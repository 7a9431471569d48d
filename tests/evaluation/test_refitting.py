"""Refits: the rows each gets, seeds, workers, the folder, and what is refused. Mostly with a g that costs nothing."""

import random
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from bifkit import GlobalBIF, LocalBIF, Posterior, compare, refits

X = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
Y = (X[:, 1] > 0).astype(int)
FAST = {"min_steps": 2, "epochs": 1}


def linear(X, y, seed):
    """A linear g with random weights, which uses all of torch's, numpy's and Python's generators."""
    g = nn.Linear(X.shape[1], 2)
    with torch.no_grad():
        g.weight += np.random.normal() + random.random()
    return g


def weights(g, X, y, seed, scale=1.0):
    """An explanation that shows what it was given: g's weights, the rows and the seed."""
    alpha = scale * g.weight.detach().abs().sum(0).numpy() + 0.1
    return Posterior(alpha, settings={"seed": seed, "rows": np.asarray(X, dtype=float).sum(1).tolist(),
                                      "y": np.asarray(y).tolist()})


def alphas(found):
    return np.stack([p.alpha for p in found])


quick = partial(refits, linear, X, Y, explainer=weights)


# rows and seeds

def test_a_bootstrap_draws_as_many_rows_with_replacement():
    found = quick(n=4)
    drawn = [p.settings["rows"] for p in found]
    assert all(len(r) == 60 and set(r) <= set(X.astype(float).sum(1).tolist()) for r in drawn)
    assert all(20 < len(set(r)) < 55 for r in drawn)  # 63 % of the rows on average
    assert len({tuple(r) for r in drawn}) == 4 and len({p.settings["seed"] for p in found}) == 4
    assert len(np.unique(alphas(found), axis=0)) == 4
    label = dict(zip(X.astype(float).sum(1).tolist(), Y.tolist(), strict=True))
    assert all([label[r] for r in p.settings["rows"]] == p.settings["y"] for p in found)  # each row with its label


def test_a_split_is_a_part_and_the_same_rows_are_the_same():
    rows = X.astype(float).sum(1).tolist()
    for share, size in ((0.5, 30), (0.2, 12)):
        part = quick(n=2, how="split", share=share)
        assert [len(set(p.settings["rows"])) for p in part] == [size, size]
    assert part[0].settings["rows"] != part[1].settings["rows"]
    same = quick(n=3, how="same")
    assert all(p.settings["rows"] == rows for p in same) and len(np.unique(alphas(same), axis=0)) == 3


def test_a_refit_depends_on_the_seed_and_its_number_alone():
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    few, more, other = quick(n=2), quick(n=4), quick(n=2, seed=1)
    assert np.array_equal(alphas(few), alphas(more)[:2]) and not np.isin(alphas(other), alphas(few)).any()


@pytest.fixture
def two_threads():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(threads)


def test_random_generators_and_threads_stay_as_they_were(two_threads):
    before = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state(), torch.get_num_threads()
    seen = []

    def train(X, y, seed):
        seen.append(torch.get_num_threads())
        torch.manual_seed(seed)
        np.random.seed(seed)
        return linear(X, y, seed)

    refits(train, X, Y, n=2, explainer=weights)
    assert seen == [1, 1] and random.getstate() == before[0] and np.array_equal(np.random.get_state()[1], before[1])
    assert torch.equal(torch.get_rng_state(), before[2]) and torch.get_num_threads() == before[3]


@pytest.mark.slow
def test_two_workers_give_what_one_gives(tmp_path):
    one = refits(linear, X, Y, n=3, **FAST)
    two = refits(linear, X, Y, n=3, workers=2, folder=tmp_path / "two", **FAST)
    assert np.array_equal(alphas(one), alphas(two)) and len(list((tmp_path / "two").glob("*.bif"))) == 3
    with pytest.raises(RuntimeError, match="train failed in refit [01]"):
        refits(fails, X, Y, n=2, workers=2)


# what goes in and out

def test_frames_keep_their_columns_and_tensors_are_tensors():
    frame, label = pd.DataFrame(X, columns=["age", "pay", "sex"], index=[f"r{i}" for i in range(60)]), pd.Series(Y)
    seen = []

    def train(X, y, seed):
        seen.append((X, y))
        return nn.Linear(3, 2)

    found = refits(train, frame, label, n=2, **FAST)
    assert [p.feature_names for p in found] == [["age", "pay", "sex"]] * 2
    assert all(list(x.columns) == ["age", "pay", "sex"] and isinstance(y, pd.Series) for x, y in seen)
    assert all(frame.loc[x.index].equals(x) for x, _ in seen)
    refits(train, torch.from_numpy(X), None, n=1, **FAST)
    assert isinstance(seen[-1][0], torch.Tensor) and seen[-1][1] is None


def test_local_refits_explain_the_same_rows():
    new = pd.DataFrame(X[:5], columns=["age", "pay", "sex"], index=list("abcde"))
    frame = pd.DataFrame(X, columns=new.columns)
    found = refits(linear, frame, Y, n=2, explainer=LocalBIF, explain=new, **FAST)
    assert all(p.alpha.shape == (5, 3) and p.index.tolist() == list("abcde") for p in found)
    assert compare(found, found).p_value == 1


def test_calibration_and_comparison_take_the_result():
    found = refits(linear, X, Y, n=4, **FAST)
    posterior = GlobalBIF(linear(X, Y, 0), **FAST).fit(X, Y).explain()
    with pytest.warns(UserWarning, match="4 refits say little"):
        calibrated = posterior.calibrated(found)
    assert np.allclose(calibrated.mean, posterior.mean) and calibrated.temperature.shape == (3,)
    assert 0 < compare(found, quick(n=4)).p_value <= 1
    assert found[0].settings["explainer"] == "GlobalBIF" and found[0].settings["preset"] == "rank"


def test_settings_reach_the_explainer():
    doubled = quick(n=2, scale=2.0)
    assert np.allclose(alphas(doubled) - 0.1, 2 * (alphas(quick(n=2)) - 0.1))
    few = refits(linear, X, Y, n=1, preset="few", **FAST)
    assert few[0].settings["preset"] == "few"


# the folder

def test_a_folder_is_gone_on_with(tmp_path):
    calls, broken = [], [True]

    def train(X, y, seed):
        calls.append(seed)
        if broken[0] and len(calls) == 3:
            raise OSError("the power went")
        return linear(X, y, seed)

    go = partial(refits, train, X, Y, explainer=weights, folder=tmp_path / "mine")
    with pytest.raises(RuntimeError, match="train failed in refit 2 .*OSError: the power went"):
        go(n=4)
    broken[0] = False
    found = go(n=4)
    assert len(calls) == 5 and np.array_equal(alphas(found), alphas(quick(n=4)))  # two were found, two made
    assert np.array_equal(alphas(go(n=5))[:4], alphas(found)) and len(calls) == 6
    assert np.array_equal(alphas(go(n=2)), alphas(found)[:2]) and len(calls) == 6


def other_train(X, y, seed):
    """As ``linear``, by another name."""
    return linear(X, y, seed)


@pytest.mark.parametrize("change, word", [
    ({"X": X + 1}, "data"), ({"X": pd.DataFrame(X)}, None), ({"X": pd.DataFrame(X, columns=list("abc"))}, "data"),
    ({"y": 1 - Y}, "data"), ({"seed": 1}, "seed"), ({"how": "same"}, "rows"), ({"scale": 2.0}, "settings"),
    ({"train": other_train}, "train"), ({"explainer": GlobalBIF}, "explainer"), ({"share": 0.3}, None), ({}, None)])
def test_a_folder_of_another_job_is_refused(tmp_path, change, word):
    job = {"train": linear, "X": X, "y": Y, "n": 1, "explainer": weights, "folder": tmp_path / "mine"}
    first = refits(**job)
    if word is None:
        assert np.array_equal(alphas(refits(**job | change)), alphas(first))
    else:
        with pytest.raises(ValueError, match=f"holds refits of another job .*{word}"):
            refits(**job | change)


def test_a_folder_that_is_not_ours_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ValueError, match="holds other files and no refits.json"):
        quick(n=1, folder=tmp_path)
    quick(n=1, folder=tmp_path / "mine")
    for text in ("not json", "[1, 2]"):
        (tmp_path / "mine" / "refits.json").write_text(text)
        with pytest.raises(ValueError, match="is damaged"):
            quick(n=1, folder=tmp_path / "mine")


# errors

def fails(X, y, seed):
    """No g today."""
    raise KeyError("age")


def test_errors_name_the_refit():
    with pytest.raises(RuntimeError, match="train failed in refit 0 .*KeyError: 'age'") as caught:
        refits(fails, X, Y, n=2)
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(RuntimeError, match="the explainer failed in refit 0 .*must be a torch.nn.Module; got NoneType"):
        refits(lambda X, y, seed: None, X, Y, n=2)
    with pytest.raises(RuntimeError, match="one Posterior was expected, got a dict"):
        refits(linear, X, Y, n=1, classes="each", **FAST)


@pytest.mark.parametrize("change, error, words", [
    ({"train": "g"}, TypeError, "train must be a function"), ({"n": 0}, ValueError, "n must be"),
    ({"n": 2.0}, ValueError, "n must be"), ({"seed": -1}, ValueError, "seed must be"),
    ({"how": "jackknife"}, ValueError, "how must be"), ({"share": 1.5}, ValueError, "share must lie"),
    ({"y": Y[:5]}, ValueError, "X has 60 rows, y 5"), ({"X": 3.0}, TypeError, "X must be a DataFrame"),
    ({"explainer": LocalBIF}, ValueError, "explain= holds the rows that LocalBIF explains"),
    ({"explain": X}, ValueError, "explain= holds the rows"), ({"lrr": 0.1}, TypeError, "lrr"),
    ({"explainer": "GlobalBIF"}, TypeError, "explainer a class or function")])
def test_what_is_wrong_is_said_before_the_first_g(change, error, words):
    def never(X, y, seed):
        raise AssertionError("a g was trained")

    with pytest.raises(error, match=words):
        refits(**{"train": never, "X": X, "y": Y} | change)
