"""Refits: the rows each gets, seeds, workers, the folder, and what is refused. Mostly with a g that costs nothing."""

import random
import shutil
import signal
import subprocess
import sys
import textwrap
import time
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


def test_parts_are_disjoint_and_hold_every_row_once():
    rows = sorted(X.astype(float).sum(1).tolist())
    for n in (4, 7):
        found = quick(n=n, how="parts")
        drawn = [p.settings["rows"] for p in found]
        assert sorted(r for part in drawn for r in part) == rows  # no row twice, none left out
        assert {len(part) for part in drawn} <= {60 // n, 60 // n + 1}
    assert quick(n=4, how="parts", seed=1)[0].settings["rows"] != quick(n=4, how="parts")[0].settings["rows"]
    label = dict(zip(X.astype(float).sum(1).tolist(), Y.tolist(), strict=True))
    assert all([label[r] for r in p.settings["rows"]] == p.settings["y"] for p in found)


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


def test_a_folder_of_parts_knows_their_number(tmp_path):
    quick(n=3, how="parts", folder=tmp_path / "mine")
    with pytest.raises(ValueError, match="holds refits of another job .*rows"):
        quick(n=4, how="parts", folder=tmp_path / "mine")


def test_a_damaged_or_foreign_file_is_named(tmp_path):
    folder = tmp_path / "mine"
    first = quick(n=3, folder=folder)
    file = folder / "refit_0001.bif"
    for content in (file.read_bytes()[:50], b""):
        file.write_bytes(content)
        with pytest.raises(ValueError, match="refit_0001.bif is not a bifkit file.*delete it, and refits makes"):
            quick(n=3, folder=folder)
    file.unlink()
    assert np.array_equal(alphas(quick(n=3, folder=folder)), alphas(first))
    Posterior([1.0, 2.0], ["a", "b"]).save(file)
    with pytest.raises(ValueError, match=r"refit 1 \(refit_0001.bif in folder 'mine'\) is not over the features"):
        quick(n=3, folder=folder)
    with pytest.raises(ValueError, match="folder='refit_0001.bif' is a file"):
        quick(n=3, folder=file)


KILLED = """
    import sys, time
    import numpy as np
    from torch import nn
    from bifkit import refits

    X = np.random.default_rng(0).normal(size=(60, 3)).astype("float32")

    def train(X, y, seed):
        time.sleep(float(sys.argv[2]))
        return nn.Linear(3, 2)

    found = refits(train, X, n=4, folder=sys.argv[1], min_steps=2, epochs=1, likelihood="categorical")
    print([round(float(p.alpha.sum()), 9) for p in found])
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_killed_call_is_gone_on_with(tmp_path):
    """Killed in the middle of a refit: the finished ones stay, and the whole is that of an undisturbed call."""
    script, folder = tmp_path / "killed.py", tmp_path / "mine"
    script.write_text(textwrap.dedent(KILLED))
    process = subprocess.Popen([sys.executable, script, folder, "3"])
    until = time.monotonic() + 120
    while not list(folder.glob("*.bif")) and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = sorted(f.name for f in folder.glob("*.bif"))
    assert 1 <= len(done) < 4
    before = (folder / done[0]).stat().st_mtime_ns
    (folder / ".deadbeef.tmp").write_text("half a file")  # as a kill while writing leaves it

    def call(where):
        return subprocess.run([sys.executable, script, where, "0"], capture_output=True, text=True, check=True).stdout

    again = call(folder)
    assert (folder / done[0]).stat().st_mtime_ns == before  # found, not made again
    assert again == call(tmp_path / "other")
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / ".deadbeef.tmp").write_text("half a file")  # killed before the first word was written
    assert call(folder) == again


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


def test_rows_with_nan_are_named():
    odd = X.copy()
    odd[3, 1] = np.nan
    with pytest.raises(RuntimeError, match="the explainer failed in refit 0 .*X holds NaN or infinite values"):
        refits(linear, odd, Y, n=3, how="same", **FAST)
    label = np.where(np.arange(60) == 3, np.nan, Y)
    with pytest.raises(RuntimeError, match="the explainer failed in refit 0 .*y holds NaN or infinite values"):
        refits(linear, X, label, n=3, how="same", **FAST)


def test_one_refit_is_a_list_that_compare_refuses():
    one = quick(n=1)
    assert len(one) == 1
    with pytest.raises(ValueError, match="a is a list of 1: chance is judged by two or more refits"):
        compare(one, quick(n=1, seed=1))


def test_two_calls_with_one_seed_are_not_independent():
    with pytest.warns(UserWarning, match="a and b have 3 posteriors in common"):
        compare(quick(n=3), quick(n=4))
    with pytest.raises(ValueError, match="x2 in one only"):
        compare(quick(n=3), refits(linear, X[:, :2], Y, n=3, explainer=weights))


def names_wander(g, X, y, seed):
    """An explanation whose features change from refit to refit."""
    return Posterior(np.ones(2), ["a", str(seed)])


def test_refits_are_over_the_same_features():
    with pytest.raises(ValueError, match="refit 1 is not over the features, or the rows, of refit 0"):
        refits(linear, X, Y, n=2, explainer=names_wander)


@pytest.mark.parametrize("change, error, words", [
    ({"train": "g"}, TypeError, "train must be a function"), ({"n": 0}, ValueError, "n must be"),
    ({"n": 2.0}, ValueError, "n must be"), ({"seed": -1}, ValueError, "seed must be"),
    ({"how": "jackknife"}, ValueError, "how must be"),
    ({"how": "parts", "n": 31}, ValueError, "too few to divide among 31 refits"),
    ({"share": 1.5}, ValueError, "share must lie"),
    ({"y": Y[:5]}, ValueError, "X has 60 rows, y 5"), ({"X": 3.0}, TypeError, "X must be a DataFrame"),
    ({"explainer": LocalBIF}, ValueError, "explain= holds the rows that LocalBIF explains"),
    ({"explain": X}, ValueError, "explain= holds the rows"), ({"lrr": 0.1}, TypeError, "lrr"),
    ({"explainer": "GlobalBIF"}, TypeError, "explainer a class or function")])
def test_what_is_wrong_is_said_before_the_first_g(change, error, words):
    def never(X, y, seed):
        raise AssertionError("a g was trained")

    with pytest.raises(error, match=words):
        refits(**{"train": never, "X": X, "y": Y} | change)
