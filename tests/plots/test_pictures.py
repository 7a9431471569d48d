"""What the pictures of images draw, pixel by pixel."""

import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt
from matplotlib.colors import to_hex

from bifkit import Posterior
from bifkit.plots import images as pictures
from data_prep.mnist import patches
from experiments import figures


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def test_pack_keeps_pictures_to_a_grey_level():
    values = np.random.default_rng(0).random((3, 784))
    assert np.abs(figures.unpack(figures.pack(values), (3, 784)) - values).max() <= 0.5 / 255 + 1e-6
    for bad in ([1.5], [-0.1], [np.nan]):
        with pytest.raises(ValueError, match="between 0 and 1"):
            figures.pack(bad)


def test_kept_patches_are_red_on_ink_and_blue_beside_it():
    rng = np.random.default_rng(0)
    images, masks = rng.random((3, 784)), {"a": rng.random((3, 784)) < 0.1, "b": np.zeros((3, 784), bool)}
    figure = figures.kept_patches(images, masks)
    drawn = figure.axes[3].images[0].get_array().reshape(-1, 3)  # first image of the first method
    colours = {"red": [0xD7, 0x19, 0x1C], "blue": [0x2B, 0x6C, 0xD4]}
    red, blue = ((np.abs(drawn - np.array(c) / 255) < 0.01).all(1) for c in colours.values())
    assert np.array_equal(red, masks["a"][0] & (images[0] > 0.5))
    assert np.array_equal(blue, masks["a"][0] & (images[0] <= 0.5))
    assert [figure.axes[i].get_ylabel() for i in (0, 3, 6)] == ["digit", "a", "b"]
    assert not figure.legends[0].get_title().get_text()
    keyed = figures.kept_patches(images, masks, titles=["3", "8", "3"], kept="k = 4 of 49")
    assert [ax.get_title() for ax in keyed.axes[:3]] == ["3", "8", "3"]
    assert keyed.legends[0].get_title().get_text() == "patches kept: k = 4 of 49"
    names = [text.get_text() for text in keyed.legends[0].get_texts()]
    key = dict(zip(names, [to_hex(p.get_facecolor()) for p in keyed.legends[0].get_patches()], strict=True))
    assert key["kept, with ink"] == figures.INK.lower() and key["kept, without ink"] == figures.GROUND.lower()
    grey = figure.axes[6].images[0].get_array()
    assert np.ptp(grey, axis=2).max() == 0  # nothing kept, nothing coloured


def test_importance_maps_show_mean_and_deviation():
    posterior = Posterior(np.random.default_rng(0).gamma(1.0, size=(4, 49)) + 0.01)
    figure = figures.importance_maps(np.zeros((4, 784)), posterior, patches(), titles=list("abcd"))
    mean, sd = (figure.axes[i].images[0].get_array().reshape(-1) for i in (4, 8))
    assert np.allclose(mean, posterior.mean[0][patches()]) and np.allclose(sd, posterior.sd[0][patches()])
    assert [ax.get_title() for ax in figure.axes[:4]] == list("abcd")


def test_importance_maps_take_any_patch_numbering():
    figure = figures.importance_maps(np.zeros((2, 4)), Posterior([[3.0, 1.0], [1.0, 1.0]]), [1, 0, 0, 1], shape=(2, 2))
    assert figure.axes[2].images[0].get_array().ravel().tolist() == [0.25, 0.75, 0.75, 0.25]


IMAGE = np.arange(12.0).reshape(3, 4)


@pytest.mark.parametrize("image, shape", [
    (IMAGE, None), (IMAGE.ravel(), (3, 4)), (IMAGE[None], None), (torch.tensor(IMAGE, requires_grad=True), None),
    (np.repeat(IMAGE[..., None], 3, axis=2), None), (np.repeat(IMAGE[None], 3, axis=0), None)])
def test_an_overlay_lays_each_importance_on_its_pixels(image, shape):
    posterior = Posterior(np.arange(1.0, 13.0))
    ax = pictures.overlay(posterior, image, shape=shape)
    grey, veil = ax.images
    assert np.allclose(grey.get_array(), IMAGE) and np.allclose(veil.get_array(), np.arange(1, 13).reshape(3, 4) / 78)
    clear, full = veil.cmap(0.0), veil.cmap(1.0)
    assert clear[3] == 0 and full[3] == pytest.approx(0.8)  # what does not matter leaves the image as it is
    assert ax.figure.axes[1].get_ylabel() == "mean importance of a pixel"


@pytest.mark.parametrize("groups", [
    np.array([0, 0, 1, 1] * 2 + [2] * 4), [[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 2, 2]],
    torch.tensor([[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 2, 2]]), [7, 7, 8, 8] * 2 + [9] * 4,
    {"left": [0, 1, 4, 5], "right": [2, 3, 6, 7], "bottom": [8, 9, 10, 11]}])
def test_an_overlay_spreads_a_patch_over_its_pixels(groups):
    row = Posterior([[1.0, 1.0, 1.0], [5.0, 2.0, 3.0]])[1]
    veil = pictures.overlay(IMAGE, row, groups=groups).images[1].get_array()
    assert np.allclose(veil, [[0.5, 0.5, 0.2, 0.2], [0.5, 0.5, 0.2, 0.2], [0.3] * 4])


@pytest.mark.parametrize("draw, message", [
    (lambda: pictures.overlay(IMAGE, Posterior(np.ones((2, 12)))), "shows one row, and this posterior has 2"),
    (lambda: pictures.overlay(IMAGE, Posterior(np.ones(5))), "5 importances for 12 pixels: give groups="),
    (lambda: pictures.overlay(IMAGE, Posterior(np.ones(5)), groups=[0, 1, 2, 3] * 3), "5 importances for 4 patches"),
    (lambda: pictures.overlay(IMAGE.ravel(), Posterior(np.ones(12))), r"shape \(12,\): give \(H, W\)"),
    (lambda: pictures.overlay(IMAGE, Posterior(np.ones(12)), shape=(5, 5)), r"not \(5, 5\)"),
    (lambda: pictures.overlay(np.ones((2, 3, 4, 5)), Posterior(np.ones(12))), r"shape \(2, 3, 4, 5\)"),
    (lambda: pictures.overlay(IMAGE, Posterior(np.ones(2)), groups=[0, 1]), "one group number for each of the 12"),
])
def test_what_cannot_be_laid_over_is_said(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()


def test_an_overlay_takes_a_blank_square_image():
    ax = pictures.overlay(np.zeros(16), Posterior(np.ones(16)))
    ax.figure.draw_without_rendering()
    assert ax.images[0].get_array().shape == (4, 4)
