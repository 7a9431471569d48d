"""Pictures of images: importance laid over one, which patches a method keeps, how sure an explanation is of them.

A picture is flat, (D,), of ``shape`` (28, 28), white ink on black with values in [0, 1]. What a method keeps is a bool
mask of its pixels. ``pack`` turns small arrays into a line of text, so that a csv can hold the digits of a figure and
a figure can be redrawn without the data set.
"""

import base64
import zlib

import numpy as np
from matplotlib.colors import ListedColormap, to_rgb

from bifkit import canvas
from bifkit.network import resolve_groups

INK, GROUND = "#D7191C", "#2B6CD4"  # the paper's red and blue: kept pixels with and without ink


def pack(values) -> str:
    """An array of bytes as one line of text; values in [0, 1] are rounded to 255 steps.

    >>> unpack(pack(np.eye(2)), (2, 2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    values = np.asarray(values, dtype=float)
    if values.size and (values.min() < 0 or values.max() > 1 or not np.isfinite(values).all()):
        raise ValueError(f"values must lie between 0 and 1; got {values.min()} to {values.max()}")
    return base64.b64encode(zlib.compress(np.round(values * 255).astype(np.uint8).tobytes(), 9)).decode()


def unpack(text, shape) -> np.ndarray:
    """The array of ``pack``, as float32.

    >>> unpack(pack([0.0, 1.0]), (2,)).tolist()
    [0.0, 1.0]
    """
    values = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8)
    return values.reshape(shape).astype(np.float32) / 255


def coloured(image, mask, shape=(28, 28)) -> np.ndarray:
    """The image (H, W, 3) with kept pixels in red where they have ink and in blue where they have none.

    >>> coloured(np.array([1.0, 0.0]), np.array([True, True]), (1, 2)).round(2).tolist()
    [[[0.84, 0.1, 0.11], [0.17, 0.42, 0.83]]]
    """
    image, mask = np.asarray(image, float).reshape(shape), np.asarray(mask, bool).reshape(shape)
    grey = np.repeat(image[..., None], 3, axis=2) * 0.85  # (H, W, 3)
    kept = np.where(image[..., None] > 0.5, to_rgb(INK), to_rgb(GROUND))
    return np.where(mask[..., None], kept, grey)


def _grid(n_rows, n_columns, labels, size):
    figure, axes = canvas.panels(n_rows, n_columns, (size * n_columns + 1.6, size * n_rows + 0.1))
    for row, label in zip(axes, labels, strict=True):
        row[0].set_ylabel(label, rotation=0, ha="right", va="center", fontsize=9)
        for ax in row:
            ax.set_xticks([])
            ax.set_yticks([])
            ax.spines[:].set_visible(False)
    return figure, axes


def kept_patches(images, masks, *, shape=(28, 28), size=0.75):
    """A row a method, a column an image: the pixels each method keeps (the qualitative MNIST figure).

    ``masks`` maps a method's name to its bool array (N, D). Returns the Figure.

    >>> len(kept_patches(np.zeros((3, 4)), {"ours": np.ones((3, 4), bool)}, shape=(2, 2)).axes)
    6
    """
    rows = {"digit": np.zeros((len(images), np.size(images[0])), bool), **masks}
    figure, axes = _grid(len(rows), len(images), rows, size)
    for row, mask in zip(axes, rows.values(), strict=True):
        for ax, image, kept in zip(row, images, mask, strict=True):
            ax.imshow(coloured(image, kept, shape), interpolation="nearest")
    return figure


def importance_maps(images, posterior, groups, *, titles=None, shape=(28, 28), size=0.85):
    """Images, their posterior mean as a heat map, and its standard deviation, patch by patch.

    ``posterior`` is local, a row an image; ``groups`` (D,) gives each pixel its patch. Returns the Figure.

    >>> from bifkit import Posterior
    >>> p = Posterior([[3.0, 1.0]])
    >>> importance_maps(np.zeros((1, 4)), p, [0, 0, 1, 1], shape=(2, 2)).axes[0].get_ylabel()
    'digit'
    """
    groups = np.asarray(groups)
    figure, axes = _grid(3, len(images), ("digit", "mean", "standard\ndeviation"), size)
    maps = (posterior.mean, posterior.sd)
    for column, image in enumerate(images):
        axes[0, column].imshow(np.reshape(image, shape), cmap="gray_r", vmin=0, vmax=1)
        if titles is not None:
            axes[0, column].set_title(titles[column], fontsize=8)
    for row, values in enumerate(maps, start=1):
        top = float(values.max())
        for ax, image, value in zip(axes[row], images, values, strict=True):
            shown = ax.imshow(value[groups].reshape(shape), cmap="viridis", vmin=0, vmax=top)
            if np.max(image) > 0.5:
                ax.contour(np.reshape(image, shape), levels=[0.5], colors="white", linewidths=0.6)
        figure.colorbar(shown, ax=list(axes[row]), shrink=0.9, aspect=8, pad=0.01)
    return figure


def _array(values):
    return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)


def _grey(image, shape):
    """The image as (H, W): colours become their luminance, a flat one takes ``shape``, or is square."""
    image = np.squeeze(_array(image).astype(float))
    if image.ndim == 3:
        image = np.moveaxis(image, 0, -1) if image.shape[0] in (3, 4) and image.shape[2] != 3 else image
        image = image[..., :3] @ [0.299, 0.587, 0.114] if image.shape[2] in (3, 4) else image
    if image.ndim == 1 and shape is None and int(image.size**0.5) ** 2 == image.size:
        shape = (int(image.size**0.5),) * 2
    if image.ndim not in (1, 2) or image.ndim == 1 and shape is None or shape and image.size != np.prod(shape):
        raise ValueError(f"image has shape {image.shape}: give (H, W), (H, W, 3), or a flat one with "
                         f"shape=(height, width){f', not {shape}' if shape else ''}")
    return image.reshape(shape) if shape else image


def overlay(image, posterior, *, groups=None, shape=None, ax=None, color=canvas.RED, opacity=0.8):
    """One row's mean importance as a veil over its image: the clearer the image, the less it matters there.

    ``image`` is (H, W), (H, W, 3) or flat with ``shape``; ``posterior`` that row's own (``rows[3]``). ``groups`` (D,)
    gives each pixel its patch (or as in the fit: a dict, lists); without it each pixel has an importance of its own.

    >>> from bifkit import Posterior
    >>> overlay(np.eye(2), Posterior([3.0, 1.0]), groups=[0, 0, 1, 1]).images[1].get_array().tolist()
    [[0.75, 0.75], [0.25, 0.25]]
    """
    if len(posterior) != 1:
        raise ValueError(f"an overlay shows one row, and this posterior has {len(posterior)}: give posterior[number]")
    grey, mean = _grey(image, shape), np.ravel(posterior.mean)
    if groups is not None and not isinstance(groups, dict) and np.ndim(_array(groups[0])) == 0 or np.ndim(groups) == 2:
        groups = np.ravel(_array(groups))
    patch = resolve_groups(groups, [f"x{i}" for i in range(grey.size)])[0]
    if patch.max() + 1 != len(mean):
        parts = "pixels" if groups is None else "patches"
        raise ValueError(f"{len(mean)} importances for {patch.max() + 1} {parts}: give groups= as in the fit, and the "
                         "image whose row this is")
    ax = canvas.axes(ax, (4, 3.2))
    low, high = float(grey.min()), float(grey.max())  # black becomes grey below, or the veil would not show on it
    ax.imshow(grey, cmap="gray", vmin=low - (high - low), vmax=high, interpolation="nearest")
    veil = ListedColormap([(*to_rgb(color), opacity * i / 255) for i in range(256)])
    shown = ax.imshow(mean[patch].reshape(grey.shape), cmap=veil, vmin=0, interpolation="nearest")
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)
    ax.figure.colorbar(shown, ax=ax, label=f"mean importance of a {'pixel' if groups is None else 'patch'}", shrink=0.8)
    return ax
