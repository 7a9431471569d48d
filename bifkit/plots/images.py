"""Importance laid over an image."""

import numpy as np
from matplotlib.colors import ListedColormap, to_rgb

from bifkit.inputs import resolve_groups
from bifkit.plots.canvas import RED, array, axes


def _grey(image, shape):
    """The image as (H, W): colours become their luminance, a flat one takes ``shape``, or is square."""
    image = np.squeeze(array(image).astype(float))
    if image.ndim == 3:
        image = np.moveaxis(image, 0, -1) if image.shape[0] in (3, 4) and image.shape[2] != 3 else image
        image = image[..., :3] @ [0.299, 0.587, 0.114] if image.shape[2] in (3, 4) else image
    if image.ndim == 1 and shape is None and int(image.size**0.5) ** 2 == image.size:
        shape = (int(image.size**0.5),) * 2
    if image.ndim not in (1, 2) or image.ndim == 1 and shape is None or shape and image.size != np.prod(shape):
        raise ValueError(f"image has shape {image.shape}: give (H, W), (H, W, 3), or a flat one with "
                         f"shape=(height, width){f', not {shape}' if shape else ''}")
    return image.reshape(shape) if shape else image


def overlay(posterior, image, *, groups=None, shape=None, ax=None, color=RED, opacity=0.8):
    """One row's mean importance as a veil over its image: the clearer the image, the less it matters there.

    >>> from bifkit import Posterior
    >>> overlay(Posterior([3.0, 1.0]), np.eye(2), groups=[0, 0, 1, 1]).images[1].get_array().tolist()
    [[0.75, 0.75], [0.25, 0.25]]

    Parameters
    ----------
    posterior : Posterior
        One row's own, such as ``rows[3]``.
    image : array or tensor (H, W), (H, W, 3), (3, H, W) or (H * W,)
        That row. (The two may also come the other way round, as they did in 1.0.)
    groups : array (D,), dict or list of lists, optional
        The patch of each pixel, as in the fit; by default each pixel has an importance of its own.
    shape : (int, int), optional
        Height and width of a flat image that is not square.
    ax : Axes, optional
    color : color, default RED
    opacity : float, default 0.8
        Of the veil where the importance is largest.
    """
    if hasattr(image, "feature_names"):
        posterior, image = image, posterior
    if len(posterior) != 1:
        raise ValueError(f"an overlay shows one row, and this posterior has {len(posterior)}: give posterior[number]")
    grey, mean = _grey(image, shape), np.ravel(posterior.mean)
    if groups is not None and not isinstance(groups, dict) and np.ndim(array(groups[0])) == 0 or np.ndim(groups) == 2:
        groups = np.ravel(array(groups))
    patch = resolve_groups(groups, [f"x{i}" for i in range(grey.size)])[0]
    if patch.max() + 1 != len(mean):
        parts = "pixels" if groups is None else "patches"
        raise ValueError(f"{len(mean)} importances for {patch.max() + 1} {parts}: give groups= as in the fit, and the "
                         "image whose row this is")
    ax = axes(ax, (4, 3.2))
    low, high = float(grey.min()), float(grey.max())  # black becomes grey below, or the veil would not show on it
    ax.imshow(grey, cmap="gray", vmin=low - (high - low), vmax=high, interpolation="nearest")
    veil = ListedColormap([(*to_rgb(color), opacity * i / 255) for i in range(256)])
    shown = ax.imshow(mean[patch].reshape(grey.shape), cmap=veil, vmin=0, interpolation="nearest")
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)
    ax.figure.colorbar(shown, ax=ax, label=f"mean importance of a {'pixel' if groups is None else 'patch'}", shrink=0.8)
    return ax
