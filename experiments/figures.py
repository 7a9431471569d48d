"""Figures of the studies: saved as png and pdf into ``figures/``, bars by method, the paper's Figure 1, kept patches.

A picture is flat, (D,), of ``shape`` (28, 28), white ink on black with values in [0, 1]. What a method keeps is a bool
mask of its pixels. ``pack`` turns small arrays into a line of text, so that a csv can hold the digits of a figure and
a figure can be redrawn without the data set.
"""

import base64
import zlib

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from bifkit.plots import BLUE, GREEN, GREY, ORANGE, PALETTE, STYLE, axes, panels
from experiments.runner import paths

INK, GROUND = "#D7191C", "#2B6CD4"  # the paper's red and blue: kept pixels with and without ink


def save(figure, name):
    """Write ``figures/<name>.png`` and ``.pdf`` of a Figure or an Axes; returns the Figure."""
    figure = getattr(figure, "figure", figure)
    with plt.rc_context(STYLE):
        for ending, metadata in (("png", {"Software": None}), ("pdf", {"CreationDate": None, "Creator": None})):
            figure.savefig(paths.figures() / f"{name}.{ending}", metadata=metadata)
    return figure


def grouped_bars(frame, *, ax=None, ylabel="", colors=PALETTE, errors=None):
    """One group of bars per row of ``frame``, one bar per column; returns the Axes.

    By pandas: seaborn's barplot would compute the error bars from runs, and here they are given.

    Parameters
    ----------
    frame : DataFrame
    ax : Axes, optional
    ylabel : str, optional
    colors : list of colors, default PALETTE
        Begins again where there are more columns.
    errors : DataFrame, optional
        Half lengths of the error bars, in the shape of ``frame``.
    """
    ax = axes(ax, (8, 3.2))
    frame.plot.bar(ax=ax, yerr=errors, width=0.8, rot=0, legend=False, xlabel="", ylabel=ylabel,
                   color=[colors[i % len(colors)] for i in range(frame.shape[1])], error_kw={"lw": 0.8})
    ax.grid(axis="y", alpha=0.3)
    ax.set_axisbelow(True)
    return ax


def pack(values) -> str:
    """An array of values in [0, 1] as one line of text, rounded to 255 steps.

    >>> unpack(pack(np.eye(2)), (2, 2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    values = np.asarray(values, dtype=float)
    if values.size and (values.min() < 0 or values.max() > 1 or not np.isfinite(values).all()):
        raise ValueError(f"values must lie between 0 and 1; got {values.min()} to {values.max()}")
    return base64.b64encode(zlib.compress(np.round(values * 255).astype(np.uint8).tobytes(), 9)).decode()


def unpack(text, shape) -> np.ndarray:
    """The array that ``pack`` turned into text, as float32 of this ``shape``."""
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
    """A figure of bare panels with one label per row."""
    figure, axes = panels(n_rows, n_columns, (size * n_columns + 1.6, size * n_rows + 0.1))
    for row, label in zip(axes, labels, strict=True):
        row[0].set_ylabel(label, rotation=0, ha="right", va="center", fontsize=9)
        for ax in row:
            ax.set_xticks([])
            ax.set_yticks([])
            ax.spines[:].set_visible(False)
    return figure, axes


def kept_patches(images, masks, *, shape=(28, 28), size=0.75):
    """The pixels each method keeps, one row per method, one column per image (the qualitative MNIST figure).

    Parameters
    ----------
    images : array (N, D)
    masks : dict of str to bool array (N, D)
        What each method keeps, under its name.
    shape : (int, int), default (28, 28)
    size : float, default 0.75
        Inches of an image.

    Returns
    -------
    Figure
    """
    rows = {"digit": np.zeros((len(images), np.size(images[0])), bool), **masks}
    figure, axes = _grid(len(rows), len(images), rows, size)
    for row, mask in zip(axes, rows.values(), strict=True):
        for ax, image, kept in zip(row, images, mask, strict=True):
            ax.imshow(coloured(image, kept, shape), interpolation="nearest")
    return figure


def importance_maps(images, posterior, groups, *, titles=None, shape=(28, 28), size=0.85):
    """Images, their posterior mean as a heat map, and its standard deviation, patch by patch.

    Parameters
    ----------
    images : array (N, D)
    posterior : Posterior
        A local one, one row per image.
    groups : array (D,)
        The patch of each pixel.
    titles : list of str, optional
        One per image.
    shape : (int, int), default (28, 28)
    size : float, default 0.85
        Inches of an image.

    Returns
    -------
    Figure
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


def _box(ax, xy, text, color, width=1.5, height=0.8):
    """A rounded box with text."""
    ax.add_patch(FancyBboxPatch(xy, width, height, boxstyle="round,pad=0.06", fc="white", ec=color, lw=1.6))
    ax.text(xy[0] + width / 2, xy[1] + height / 2, text, ha="center", va="center", fontsize=9)


def _arrow(ax, a, b, color, dashed=False, bend=0.0):
    """An arrow from a to b."""
    ax.add_patch(FancyArrowPatch(a, b, arrowstyle="-|>", mutation_scale=12, color=color, lw=1.4, shrinkA=4, shrinkB=4,
                                 linestyle="--" if dashed else "-", connectionstyle=f"arc3,rad={bend}"))


def schematic(*, ax=None):
    """The method in one picture (the paper's Figure 1): global in blue, local in black, gradients dashed."""
    ax = axes(ax, (9.6, 3.9))
    _box(ax, (0, 2.3), "input x\n(one row)", GREY)
    _box(ax, (2.6, 3.4), "global: one α\nfor the data set", BLUE, width=1.9)
    _box(ax, (2.6, 1.0), "local: importance\nnetwork x → α", "black", width=1.9)
    _box(ax, (5.4, 2.3), "f ~ Dir(α)\ngate and fill", GREEN, width=1.7)
    _box(ax, (7.9, 2.3), "frozen g", GREY, width=1.3)
    _box(ax, (10.0, 2.3), "prediction\nvs target", ORANGE, width=1.5)
    _arrow(ax, (1.5, 2.55), (2.55, 1.6), "black")
    _arrow(ax, (1.55, 2.72), (5.3, 2.72), GREY)
    _arrow(ax, (4.55, 3.7), (5.7, 3.2), BLUE)
    _arrow(ax, (4.55, 1.5), (5.7, 2.2), "black")
    _arrow(ax, (7.15, 2.7), (7.85, 2.7), GREY)
    _arrow(ax, (9.25, 2.7), (9.95, 2.7), GREY)
    _arrow(ax, (10.6, 3.2), (4.6, 4.0), BLUE, dashed=True, bend=0.25)
    _arrow(ax, (10.6, 2.2), (4.6, 1.25), "black", dashed=True, bend=-0.25)
    ax.text(8.0, 4.75, "gradient of the ELBO to α", color=BLUE, fontsize=9, ha="center")
    ax.text(8.0, 0.15, "gradient of the ELBO to the network's weights; g never changes", fontsize=9, ha="center")
    ax.set_xlim(-0.2, 11.8)
    ax.set_ylim(-0.1, 5.1)
    ax.axis("off")
    return ax
