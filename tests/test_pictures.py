"""What the pictures of images draw, pixel by pixel."""

import numpy as np
import pytest
from matplotlib import pyplot as plt

from bifkit import Posterior, pictures
from data_prep.mnist import patches


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def test_pack_keeps_pictures_to_a_grey_level():
    values = np.random.default_rng(0).random((3, 784))
    assert np.abs(pictures.unpack(pictures.pack(values), (3, 784)) - values).max() <= 0.5 / 255 + 1e-6
    for bad in ([1.5], [-0.1], [np.nan]):
        with pytest.raises(ValueError, match="between 0 and 1"):
            pictures.pack(bad)


def test_kept_patches_are_red_on_ink_and_blue_beside_it():
    rng = np.random.default_rng(0)
    images, masks = rng.random((3, 784)), {"a": rng.random((3, 784)) < 0.1, "b": np.zeros((3, 784), bool)}
    figure = pictures.kept_patches(images, masks)
    drawn = figure.axes[3].images[0].get_array().reshape(-1, 3)  # first image of the first method
    colours = {"red": [0xD7, 0x19, 0x1C], "blue": [0x2B, 0x6C, 0xD4]}
    red, blue = ((np.abs(drawn - np.array(c) / 255) < 0.01).all(1) for c in colours.values())
    assert np.array_equal(red, masks["a"][0] & (images[0] > 0.5))
    assert np.array_equal(blue, masks["a"][0] & (images[0] <= 0.5))
    assert [figure.axes[i].get_ylabel() for i in (0, 3, 6)] == ["digit", "a", "b"]
    grey = figure.axes[6].images[0].get_array()
    assert np.ptp(grey, axis=2).max() == 0  # nothing kept, nothing coloured


def test_importance_maps_show_mean_and_deviation():
    posterior = Posterior(np.random.default_rng(0).gamma(1.0, size=(4, 49)) + 0.01)
    figure = pictures.importance_maps(np.zeros((4, 784)), posterior, patches(), titles=list("abcd"))
    mean, sd = (figure.axes[i].images[0].get_array().reshape(-1) for i in (4, 8))
    assert np.allclose(mean, posterior.mean[0][patches()]) and np.allclose(sd, posterior.sd[0][patches()])
    assert [ax.get_title() for ax in figure.axes[:4]] == list("abcd")


def test_importance_maps_take_any_patch_numbering():
    figure = pictures.importance_maps(np.zeros((2, 4)), Posterior([[3.0, 1.0], [1.0, 1.0]]), [1, 0, 0, 1], shape=(2, 2))
    assert figure.axes[2].images[0].get_array().ravel().tolist() == [0.25, 0.75, 0.75, 0.25]
