"""The MNIST study on pictures whose telling patches are known, its tables, and what it hands to the figures."""

import numpy as np
import pandas as pd
import pytest
import torch

from bifkit.evaluation import metrics
from data_prep.dataset import Dataset
from data_prep.mnist import patches
from experiments import figures, mnist, mnist_report, selections
from experiments.models.classifiers import predict_proba
from experiments.runner import rows, study
from experiments.runner.scoreboard import SUBMITTED, numbers
from experiments.selections import FIXED

TELLS = (24, 30)  # the patch that is lit for class 0 and for class 1; all else is the same for both
SIZE = {"rows": 800, "test_rows": 200, "steps": 150}


def toy_digits(seed=0, n=SIZE["rows"], test=SIZE["test_rows"]):
    """Pictures with random ink in a fifth of the patches, and one patch that gives the class."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n + test)
    lit = rng.random((n + test, 49)) * (rng.random((n + test, 49)) < 0.2)
    lit[:, TELLS] = 0
    lit[np.arange(n + test), np.array(TELLS)[y]] = 1
    X = lit[:, patches()].astype(np.float32)
    names = [f"p{i}" for i in range(784)]
    return Dataset("MNIST", X[:n], y[:n], X[n:], y[n:], names, ["3", "8"], groups=patches())


def clear():
    for cache in (mnist.digits, mnist.prepared, mnist.evaluators):
        cache.cache_clear()


@pytest.fixture(scope="module")
def frame():
    """Three methods of the study, trained on the toy digits and stored as the runner stores them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mnist, "load_mnist", toy_digits)
        patch.setattr(selections, "TRAINING", {"epochs": 1, "min_steps": 150, "hidden": 32, "lr": 1e-2})
        patch.setattr(selections, "ROWS", 300)
        clear()
        methods = ("bifkit", "IntegratedGradients", "oracle", FIXED)
        grid = [{"method": m, "seed": 0, **SIZE, "figure": True} for m in methods]
        outcomes = [study._measured(mnist.run, study._key(mnist.run, row, "")) for row in grid]
    clear()
    rows.store(grid, outcomes, "test_mnist")
    return rows.replay(grid, "test_mnist")


def kept(frame, method):
    """The patches that a method keeps of the ten digits shown, (10, 49)."""
    masks = mnist_report.shown(frame)[1][method]
    share = masks.reshape(10, 7, 4, 7, 4).mean((2, 4)).reshape(10, 49)  # another way from pixels to patches
    assert set(share.ravel()) <= {0.0, 1.0}
    return share == 1


@pytest.mark.parametrize("method", ["bifkit", "IntegratedGradients"])
def test_both_methods_find_the_patch_that_tells(frame, method):
    """The truth is known: the patch kept is the class's own, so its place is the label and one is enough.

    With more patches the mask may hold the other class's dark patch as well, and need not give the label away.
    """
    row = frame[frame["method"] == method].iloc[0]
    assert row["g_accuracy"] > 0.99 and row["judge_accuracy"] > 0.99
    assert min(row["acc_1"], row["acc_2"], row["acc_4"]) > 0.97
    assert row["mask_1"] > 0.97
    y, mask = toy_digits().y_test[mnist.pictured(toy_digits().y_test)], kept(frame, method)
    assert (mask.sum(1) == mnist.SHOWN_K).all()
    assert mask[np.arange(10), np.array(TELLS)[y]].all()


def test_no_method_passes_the_oracle_with_one_patch(frame):
    acc = frame.set_index("method")["acc_1"]
    assert acc["oracle"] >= acc.max()
    assert frame["patches_3"].tolist()[:2] == pytest.approx([3.0] * 2) and frame["patches_3"][2] <= 3


def test_evalx_reads_the_telling_patch_and_a_fixed_set_can_hold_both(frame):
    """The toy's class is the lit one of two patches: either of them, lit or dark, tells it to who knows which it is."""
    mean, _ = mnist_report.table(frame, "evalx_sizes")
    assert list(mean.index) == ["bifkit", "IntegratedGradients", "oracle", FIXED]
    assert mean.loc[["bifkit", "IntegratedGradients", FIXED], "k=1"].min() > 0.95
    assert FIXED not in mnist_report.table(frame)[0].index and FIXED not in mnist_report.scores(frame)["row"].tolist()
    lines = selections.against_fixed(frame, mnist_report.CELLS, not_rivals=mnist_report.NOT_RIVALS)
    assert len(lines) == 10 and set(lines["best other"]) == {"IntegratedGradients"}


def test_figures_show_the_digits_and_what_was_kept(frame):
    images, masks = mnist_report.shown(frame)
    digits = mnist.pictured(toy_digits().y_test)
    assert toy_digits().y_test[digits].tolist() == [0] * 5 + [1] * 5 and set(digits) <= set(mnist.sample(200))
    assert np.allclose(images, toy_digits().X_test[digits], atol=1 / 500)
    assert list(masks) == ["bifkit", "IntegratedGradients", "oracle"]
    assert mnist_report.labels(frame) == ["3"] * 5 + ["8"] * 5
    picture = mnist_report.patches_figure(frame)
    assert [ax.get_title() for ax in picture.axes[:10]] == ["3"] * 5 + ["8"] * 5
    assert f"k = {mnist.SHOWN_K} " in picture.legends[0].get_title().get_text()


def test_the_second_picture_orders_by_certainty(frame):
    images, posterior, titles = mnist_report.unsure(frame)
    spread = posterior.sd.sum(1)
    assert len(images) == len(titles) == 10 and spread[:5].min() >= spread[5:].max()
    data = toy_digits()
    where = [np.flatnonzero(np.abs(data.X_test - image).max(1) < 1 / 255)[0] for image in images]
    assert [t[0] for t in titles] == ["38"[label] for label in data.y_test[where]]


def fake(method, seed=0, error="", **values):
    kinds = ("acc", "mask", "sample", "patches", "top_acc", "top_mask", "top_patches")
    return {"method": method, "seed": seed, "error": error, "figure": seed == 0,
            **{f"{s}_{k}": values.get(s, 0.5) + k / 100 for s in kinds for k in mnist.KS}}


def test_tables_are_means_over_seeds_and_invase_has_two_rows():
    pair = pd.DataFrame([fake("bifkit", acc=0.8), fake("bifkit", 1, acc=0.9), fake("INVASE", acc=0.6, top_acc=0.7),
                         fake("BIF", acc=0.1, error="not run: no data")])
    mean, std = mnist_report.table(pair)
    assert list(mean.index) == ["bifkit", "BIF", "INVASE", "INVASE, top k"] and mean.loc["BIF"].isna().all()
    assert mean.loc["bifkit", "k=1"] == pytest.approx(0.86) and mean.loc["INVASE, top k", "k=5"] == pytest.approx(0.75)
    assert std.loc["bifkit", "k=1"] == pytest.approx(np.std([0.81, 0.91], ddof=1))
    sent = mnist_report.scores(pair)
    assert list(sent) == SUBMITTED and len(sent) == 15
    assert sent.set_index(["row", "column"]).loc[("INVASE", "k=2"), "value"] == pytest.approx(0.62)  # as the paper


def test_verdicts_compare_like_with_like():
    runs = [fake("bifkit", acc=0.8, sample=0.7), fake("L2X", acc=0.75), fake("LIME, our patches", acc=0.76),
            fake("INVASE", acc=0.9, top_acc=0.1, patches=12), fake("oracle", acc=0.95)]
    out = mnist_report.verdicts(pd.DataFrame(runs))
    assert (out["best other"] == "LIME, our patches").all()  # ours is .7 on LIME's sample, so LIME is .06 ahead
    assert out["lead"].tolist() == pytest.approx([0.06] * 5) and not out["best of all"].any()
    assert out.loc["k=1", "paper"] == 0.788 and out["above the paper"].tolist() == [True] + [False] * 4
    assert out.loc["k=1", "share of the oracle"] == pytest.approx(0.81 / 0.96)
    few = mnist_report.verdicts(pd.DataFrame([*runs[:3], fake("INVASE", acc=0.9, patches=0.1)]))
    assert (few["best other"] == "INVASE").all()  # with no more than k patches its own selection competes
    some = mnist_report.verdicts(pd.DataFrame([*runs[:3], fake("INVASE", acc=0.9, patches=3.0)]))
    assert (some["best other"] == "INVASE").tolist() == [False, False, True, True, True]


def test_judges_are_shown_seed_by_seed():
    runs = [fake(m, s, acc=a + s / 10) | {"empty": s / 100, "judge_accuracy": 0.99} for s in (0, 1)
            for m, a in (("bifkit", 0.7), ("L2X", 0.6), ("SHAP", 0.5), ("oracle", 0.8), ("LIME, our patches", 0.9))]
    out = mnist_report.judges(pd.DataFrame(runs))
    assert out["best rival"].tolist() == pytest.approx([0.61, 0.71])  # LIME reads other digits
    assert out["oracle"].tolist() == pytest.approx([0.81, 0.91]) and out.iloc[1, 0] == 0.01


def test_sentences_on_certainty_are_means_over_seeds(frame):
    row = frame[frame["method"] == "bifkit"].iloc[0]
    lines = mnist_report.certainty(frame)
    assert f"3s {row['spread_3']:.2f}, 8s {row['spread_8']:.2f}" in lines[0]
    assert f"{row['unsure_2']:.1%} of the least" in lines[2] and f"{row['sure_2']:.1%} of the most" in lines[2]


@pytest.mark.parametrize("profile", ["smoke", "paper"])
def test_absent_digits_leave_empty_tables(profile):
    frame = pd.DataFrame(mnist.grid(profile)).assign(error="not run: DataUnavailable: fetch it with make data")
    mean, std = mnist_report.table(frame)
    assert mean.isna().all(axis=None) and std.isna().all(axis=None) and len(mean) >= 3
    assert not mnist_report.verdicts(frame)["best of all"].any() and mnist_report.scores(frame).empty
    images, masks = mnist_report.shown(frame)
    assert set(mnist_report.labels(frame)) == {"not run"}
    assert images.shape == (10, 784) and not masks and set(mnist_report.unsure(frame)[2]) == {"not run"}
    assert mnist_report.judges(frame).empty and mnist_report.certainty(frame) == ["not run"]


def test_grid_is_the_papers():
    grid = mnist.grid()
    assert len(grid) == 5 * len(mnist.METHODS) and {r["seed"] for r in grid} == set(range(5))
    assert [r["seed"] for r in grid] == sorted(r["seed"] for r in grid)  # a worker trains g once per seed
    assert {r["seed"] for r in grid if r["figure"]} == {0}
    assert list(mnist.LAMBDAS.values()) == [100, 50, 23, 18.5, 15.5]
    assert set(numbers().query("item == 'mnist'")["row"]) <= set(mnist.METHODS)


def linear(seed=0):
    model = torch.nn.Linear(784, 1)
    torch.nn.init.normal_(model.weight, std=0.3, generator=torch.Generator().manual_seed(seed))
    torch.nn.init.constant_(model.bias, -3.0)  # most pictures of class 1 need several patches
    return model


def test_oracle_by_brute_force():
    rng = np.random.default_rng(0)
    X, y, model = rng.random((40, 784)).astype(np.float32), rng.integers(0, 2, 40), linear()
    w = model.weight.detach().numpy()[0]
    evidence = (X * w).reshape(40, 7, 4, 7, 4).sum((2, 4)).reshape(40, 49)  # a linear judge adds patches up
    towards = np.where(y[:, None] == 1, evidence, -evidence)
    found, bias = mnist.oracle(model, X, y, size=3), np.where(y == 1, -3.0, 3.0)
    best = np.cumsum(np.sort(towards, axis=1)[:, ::-1], axis=1)[:, :3] + bias[:, None]
    needed = np.minimum((best <= 0).sum(1) + 1, 3)  # until the sign is right
    assert np.array_equal(found > 0, metrics.top_k_mask(towards, needed)) and 1 < needed.max() <= 3
    assert np.array_equal(found.argmax(1), towards.argmax(1))


def test_reading_takes_patches_and_pixels():
    rng = np.random.default_rng(1)
    X, y, mask = rng.random((30, 784)).astype(np.float32), rng.integers(0, 2, 30), rng.random((30, 49)) < 0.1
    by_hand = X.copy()
    for i, p in zip(*np.nonzero(~mask), strict=True):
        by_hand[i].reshape(28, 28)[p // 7 * 4:p // 7 * 4 + 4, p % 7 * 4:p % 7 * 4 + 4] = 0
    expected = (predict_proba(linear(), by_hand).argmax(1) == y).mean()
    assert mnist._reads(linear(), X, y, mask) == mnist._reads(linear(), X, y, mask[:, patches()]) == expected
    assert mnist.mask_only(mask, y) == mnist.mask_only(mask[:, patches()], y)


def test_mask_only_sees_a_leak_and_only_a_leak():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 1000)
    noise = rng.random((1000, 49)) < 0.1
    assert abs(mnist.mask_only(noise, y) - 0.5) < 0.06
    noise[:, 3] = y == 1
    assert mnist.mask_only(noise, y) == 1.0


def test_own_segments_are_the_heaviest_until_k_patches_are_covered():
    class Lime:
        @staticmethod
        def lime_image(g, image, seed):
            return np.array([0.1, 0.5, 0.3]), np.repeat([0, 1, 2], [14, 1, 13])[:, None] * np.ones((1, 28), int)

    masks = mnist._segments(Lime, None, np.zeros((2, 784)), 0)
    assert masks[1][0].sum() == 28 and masks[2][1].sum() == 28 * 14  # segment 1 covers 16 pixels, with 2 more than 32
    assert masks[2][0].reshape(28, 28)[14:].all() and not masks[2][0].reshape(28, 28)[:14].any()


def test_unknown_method_is_named():
    with pytest.raises(ValueError, match="method must be one of bifkit"):
        mnist.explain("SHEEP", None, np.zeros((30, 784)), None, None, seed=0, steps=1)


def test_pictures_are_stored_small(frame):
    assert len(frame.loc[0, "images"]) + len(frame.loc[0, "kept"]) < 20_000
    assert figures.unpack(frame.loc[0, "kept"], (10, 784)).sum() == 10 * mnist.SHOWN_K * 16
