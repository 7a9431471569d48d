"""The MNIST study on pictures whose telling patches are known, its tables, and its figures."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib import pyplot as plt

from bifkit import Posterior, pictures, rows, study
from bifkit.paper import numbers
from data_prep.dataset import Dataset
from data_prep.mnist import patches
from experiments import mnist

TELLS = (24, 30)  # the patch that is lit for class 0 and for class 1; all else is the same for both


def toy_digits(seed=0, n=800):
    """Pictures with random ink in ten patches, and one patch that gives the class."""
    rng = np.random.default_rng(seed)
    total = n + 1984
    y = rng.integers(0, 2, total)
    lit = rng.random((total, 49)) * (rng.random((total, 49)) < 0.2)
    lit[:, TELLS] = 0
    lit[np.arange(total), np.array(TELLS)[y]] = 1
    X = lit[:, patches()].astype(np.float32)
    names = [f"p{i}" for i in range(784)]
    return Dataset("MNIST", X[:n], y[:n], X[n:], y[n:], names, ["3", "8"], groups=patches())


@pytest.fixture(scope="module")
def frame():
    """Two methods of the study, trained on the toy digits and stored as the runner stores them."""
    before = mnist.load_mnist
    mnist.load_mnist = lambda seed: toy_digits(seed)
    caches = (mnist.digits, mnist.model_of, mnist.judge)
    for cache in caches:
        cache.cache_clear()
    try:
        grid = [{"method": m, "seed": 0, "rows": 800, "steps": 120} for m in ("bifkit", "IntegratedGradients")]
        outcomes = [study._measured(mnist.run, study._key(mnist.run, row, "")) for row in grid]
    finally:
        mnist.load_mnist = before
        for cache in caches:
            cache.cache_clear()
    rows.store(grid, outcomes, "test_mnist")
    return rows.replay(grid, "test_mnist")


def test_both_methods_find_the_patch_that_tells(frame):
    """The truth is known: with one patch the judge must be right, and that patch is the class's own."""
    assert (frame["g_accuracy"] > 0.99).all() and (frame["judge_accuracy"] > 0.99).all()
    ours = frame[frame["method"] == "bifkit"].iloc[0]
    assert ours["acc_1"] >= 0.97 * ours["ceiling"] and ours["acc_2"] > 0.97
    y = toy_digits().y_test[mnist.sample()[:10]]
    for method in frame["method"]:
        kept = json.loads(frame[frame["method"] == method].iloc[0]["kept"])
        assert all(len(k) == mnist.SHOWN_K for k in kept)
        assert all(TELLS[label] in k for label, k in zip(y, kept, strict=True)), method
    assert ours["mask_5"] > 0.9  # where the lit patch is kept, its place is the label: the check must see it


def test_figures_show_what_was_kept(frame):
    images, masks = mnist.shown(frame)
    assert np.allclose(images, toy_digits().X_test[mnist.sample()[:10]], atol=1 / 500)
    assert list(masks) == ["bifkit", "IntegratedGradients"]
    figure = pictures.kept_patches(images, masks)
    drawn = figure.axes[10].images[0].get_array()  # first digit of the first method
    red = (np.abs(drawn - np.array([0xD7, 0x19, 0x1C]) / 255) < 0.01).all(2).ravel()
    assert np.array_equal(red, masks["bifkit"][0] & (images[0] > 0.5))
    plt.close(figure)


def test_the_second_picture_orders_by_certainty(frame):
    images, posterior, titles = mnist.unsure(frame)
    spread = posterior.sd.sum(1)
    assert len(images) == len(titles) == 10 and spread[:5].min() >= spread[5:].max()
    figure = pictures.importance_maps(images, posterior, patches(), titles=titles)
    heat = figure.axes[10].images[0].get_array().reshape(-1)
    assert np.allclose(heat, posterior.mean[0][patches()])
    plt.close(figure)


def fake(method, **values):
    return {"method": method, "seed": 0, "error": "", **{f"{s}_{k}": values.get(s, 0.5) + k / 100
            for s in ("acc", "fresh", "mask", "sample", "own", "fresh_own", "mask_own") for k in mnist.KS}}


def test_tables_are_means_over_seeds_and_invase_has_two_rows():
    pair = pd.DataFrame([fake("bifkit", acc=0.8), fake("bifkit", acc=0.9) | {"seed": 1},
                         fake("INVASE", acc=0.6, own=0.7), fake("BIF", acc=0.1) | {"error": "not run: no data"}])
    mean, std = mnist.table(pair)
    assert list(mean.index) == ["bifkit", "INVASE", "INVASE, top k"]
    assert mean.loc["bifkit", "k=1"] == pytest.approx(0.86) and mean.loc["INVASE", "k=5"] == pytest.approx(0.75)
    assert std.loc["bifkit", "k=1"] == pytest.approx(np.std([0.81, 0.91], ddof=1))
    out = mnist.verdicts(pair)
    assert out.loc["k=1", "which"] == "INVASE" and out["best of all"].all() and out.loc["k=1", "paper"] == 0.788
    sent = mnist.scores(pair).set_index(["row", "column", "seed"])["value"]
    assert sent["INVASE", "k=2", 0] == pytest.approx(0.72)  # as in the paper: its own selection
    assert sent["INVASE, top k", "k=2", 0] == pytest.approx(0.62) and len(sent) == 20


def test_grid_is_the_papers():
    rows_ = mnist.grid()
    assert len(rows_) == 5 * len(mnist.METHODS) and {r["seed"] for r in rows_} == set(range(5))
    assert [r["seed"] for r in rows_] == sorted(r["seed"] for r in rows_)  # a worker trains g once a seed
    assert list(mnist.LAMBDAS.values()) == [100, 50, 23, 18.5, 15.5]
    assert set(numbers().query("item == 'mnist'")["row"]) <= set(mnist.METHODS)


def test_ceiling_by_brute_force():
    rng = np.random.default_rng(0)
    X, y = rng.random((40, 784)).astype(np.float32), rng.integers(0, 2, 40)
    model = torch.nn.Linear(784, 1)
    torch.nn.init.normal_(model.weight, generator=torch.Generator().manual_seed(0))
    w, b = model.weight.detach().numpy()[0], float(model.bias.detach())
    patch_sums = (X * w).reshape(40, 7, 4, 7, 4).sum((2, 4)).reshape(40, 49) + b  # another way to add up a patch
    right = ((patch_sums > 0) == y[:, None].astype(bool)).any(1)
    assert mnist.ceiling(model, X, y) == pytest.approx(right.mean())


def test_mask_only_sees_a_leak_and_only_a_leak():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 1000)
    noise = rng.random((1000, 49)) < 0.1
    assert abs(mnist.mask_only(noise, y) - 0.5) < 0.06
    noise[:, 3] = y == 1
    assert mnist.mask_only(noise, y) == 1.0


def test_pack_keeps_pictures_to_a_grey_level():
    values = np.random.default_rng(0).random((3, 784))
    assert np.abs(pictures.unpack(pictures.pack(values), (3, 784)) - values).max() <= 0.5 / 255 + 1e-6
    with pytest.raises(ValueError, match="between 0 and 1"):
        pictures.pack([1.5])


def test_unknown_method_is_named():
    with pytest.raises(ValueError, match="method must be one of bifkit"):
        mnist._attribution("SHEEP", None, np.zeros((30, 784)), None, patches(), 0)


def test_importance_maps_take_any_patch_numbering():
    figure = pictures.importance_maps(np.zeros((2, 4)), Posterior([[3.0, 1.0], [1.0, 1.0]]), [1, 0, 0, 1], shape=(2, 2))
    assert figure.axes[2].images[0].get_array().ravel().tolist() == [0.25, 0.75, 0.75, 0.25]
    plt.close(figure)
