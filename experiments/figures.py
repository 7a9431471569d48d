"""Figures of the studies: saved as png and pdf into ``figures/``, bars and points by method, Figure 1, kept patches.

A picture is flat, (D,), of ``shape`` (28, 28), white ink on black with values in [0, 1]. What a method keeps is a bool
mask of its pixels. ``pack`` turns small arrays into a line of text, so that a csv can hold the digits of a figure and
a figure can be redrawn without the data set.
"""

import base64
import zlib

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Patch

from bifkit.plots import BLUE, GREEN, GREY, ORANGE, PALETTE, STYLE, axes, panels
from experiments.runner import paths
from experiments.runner.scoreboard import targets

INK, GROUND = "#D7191C", "#2B6CD4"  # the paper's red and blue: kept pixels with and without ink


def save(figure, name):
    """Write ``figures/<name>.png`` and ``.pdf`` of a Figure or an Axes; returns the Figure."""
    figure = getattr(figure, "figure", figure)
    with plt.rc_context(STYLE):
        for ending, metadata in (("png", {"Software": None}), ("pdf", {"CreationDate": None, "Creator": None})):
            figure.savefig(paths.figures() / f"{name}.{ending}", metadata=metadata)
    return figure


def printed(item, like):
    """The paper's values of an item in the shape of ``like``, NaN where it has none; ours beside its best BIF.

    >>> import pandas as pd
    >>> printed("table1", pd.DataFrame(0, index=["bifkit (local)", "SHAP on g"], columns=["Syn4"]))["Syn4"].tolist()
    [84.0, nan]
    """
    values = targets().query("item == @item").pivot(index="row", columns="column", values="value")
    return values.reindex(index=like.index, columns=like.columns)


def grouped_bars(frame, *, ax=None, ylabel="", colors=PALETTE, errors=None, paper=None):
    """One group of bars per row of ``frame``, one bar per column, from zero; returns the Axes.

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
    paper : DataFrame, optional
        The paper's values in the shape of ``frame``, marked by diamonds.
    """
    ax = axes(ax, (8, 3.2))
    frame.plot.bar(ax=ax, yerr=errors, width=0.8, rot=0, legend=False, xlabel="", ylabel=ylabel,
                   color=[colors[i % len(colors)] for i in range(frame.shape[1])], error_kw={"lw": 0.8})
    _mark(ax, frame, paper)
    ax.axhline(0, color="black", lw=0.8)
    ax.grid(axis="y", alpha=0.3)
    ax.set_axisbelow(True)
    return ax


def grouped_dots(frame, *, ax=None, ylabel="", colors=PALETTE, errors=None, paper=None):
    """One group per row of ``frame``, one point per column: ``grouped_bars``, for an axis that starts elsewhere."""
    ax = axes(ax, (8, 3.2))
    for place, column in zip(_places(frame), frame, strict=True):
        i = list(frame).index(column)
        ax.errorbar(place, frame[column], None if errors is None else errors[column], fmt="osv^<>pD"[i % 8], ms=5,
                    color=colors[i % len(colors)], label=column, elinewidth=0.9, mec="black", mew=0.3)
    _mark(ax, frame, paper)
    ax.set_xticks(np.arange(len(frame)), frame.index)
    for between in np.arange(len(frame) - 1) + 0.5:
        ax.axvline(between, color=GREY, lw=0.5, alpha=0.5)
    ax.set_xlim(-0.5, len(frame) - 0.5)
    ax.set_ylabel(ylabel)
    ax.grid(axis="y", alpha=0.3)
    ax.set_axisbelow(True)
    return ax


def _places(frame):
    """Where the columns of each group stand, (columns, groups): the middles of the bars that pandas draws."""
    n = frame.shape[1]
    return np.arange(len(frame)) + 0.8 * (np.arange(n)[:, None] - (n - 1) / 2) / n


def _mark(ax, frame, paper):
    """The paper's values as white diamonds, with one line in the legend."""
    if paper is None:
        return
    places, values = _places(frame), paper.reindex(index=frame.index, columns=frame.columns).to_numpy(float).T
    ax.plot(places.ravel(), values.ravel(), "D", ms=4, mfc="white", mec="black", mew=0.9, zorder=5,
            label="the paper's value")


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


def _grid(n_rows, n_columns, labels, size, *, titles=None, above=0.1):
    """A figure of bare panels with one label per row, and one title per column if there are any."""
    figure, axes = panels(n_rows, n_columns, (size * n_columns + 1.6, size * n_rows + above))
    for ax, title in zip(axes[0], titles or [], strict=False):
        ax.set_title(title, fontsize=9)
    for row, label in zip(axes, labels, strict=True):
        row[0].set_ylabel(label, rotation=0, ha="right", va="center", fontsize=9)
        for ax in row:
            ax.set_xticks([])
            ax.set_yticks([])
            ax.spines[:].set_visible(False)
    return figure, axes


def kept_patches(images, masks, *, titles=None, kept="", shape=(28, 28), size=0.75):
    """The pixels each method keeps, one row per method, one column per image (the qualitative MNIST figure).

    Parameters
    ----------
    images : array (N, D)
    masks : dict of str to bool array (N, D)
        What each method keeps, under its name.
    titles : list of str, optional
        One per image, such as its label.
    kept : str, optional
        How much is kept, such as ``"k = 4"``: it stands in the colour key.
    shape : (int, int), default (28, 28)
    size : float, default 0.75
        Inches of an image.

    Returns
    -------
    Figure
    """
    rows = {"digit": np.zeros((len(images), np.size(images[0])), bool), **masks}
    figure, axes = _grid(len(rows), len(images), rows, size, titles=titles, above=0.7)
    for row, mask in zip(axes, rows.values(), strict=True):
        for ax, image, chosen in zip(row, images, mask, strict=True):
            ax.imshow(coloured(image, chosen, shape), interpolation="nearest")
    key = [Patch(color=INK, label="kept, with ink"), Patch(color=GROUND, label="kept, without ink"),
           Patch(facecolor="0.85", edgecolor="black", label="ink, not kept"), Patch(color="black", label="neither")]
    figure.legend(handles=key, loc="outside lower center", ncols=4, title=f"patches kept: {kept}" if kept else None)
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
    figure, axes = _grid(3, len(images), ("digit", "mean", "standard\ndeviation"), size, titles=titles, above=0.3)
    maps = (posterior.mean, posterior.sd)
    for ax, image in zip(axes[0], images, strict=True):
        ax.imshow(np.reshape(image, shape), cmap="gray_r", vmin=0, vmax=1)
    for row, values in enumerate(maps, start=1):
        top = float(values.max())
        for ax, image, value in zip(axes[row], images, values, strict=True):
            shown = ax.imshow(value[groups].reshape(shape), cmap="viridis", vmin=0, vmax=top)
            if np.max(image) > 0.5:
                ax.contour(np.reshape(image, shape), levels=[0.5], colors="white", linewidths=0.6)
        figure.colorbar(shown, ax=list(axes[row]), shrink=0.9, aspect=8, pad=0.01)
    return figure


def _box(ax, xy, text, color, width=1.5, height=0.8, title=""):
    """A rounded box with text; with a title it is a frame, the title on top in the frame's colour."""
    ax.add_patch(FancyBboxPatch(xy, width, height, boxstyle="round,pad=0.06", fc="white", ec=color, lw=1.6))
    x, y = xy[0] + width / 2, xy[1] + height / 2
    ax.text(x, y - 0.17 * bool(title), text, ha="center", va="center", fontsize=9)
    ax.text(x, xy[1] + height - 0.08, title, ha="center", va="top", fontsize=9, weight="bold", color=color)


def _arrow(ax, a, b, color, text="", at=None, dotted=False, bend=0.0):
    """An arrow from a to b, with a caption ``at`` a place beside it."""
    ax.add_patch(FancyArrowPatch(a, b, arrowstyle="-|>", mutation_scale=12, color=color, lw=1.4, shrinkA=3, shrinkB=3,
                                 linestyle=":" if dotted else "-", connectionstyle=f"arc3,rad={bend}"))
    if text:
        ax.text(*at, text, color=color, fontsize=9, ha="center", va="center")


def schematic(*, ax=None):
    """The method in one picture (the paper's Figure 1): global in a blue box, local in a black one.

    Dotted arrows are back-propagation, as there. Prior and KL, which the paper's picture leaves out, stand in it too.
    """
    ax = axes(ax, (10.4, 4.9))
    _box(ax, (0, 2.6), "input x\n(one row)", GREY, width=1.3)
    _box(ax, (2.3, 4.2), "one α for the\nwhole data set", BLUE, width=2.3, height=1.2, title="Global explanation")
    _box(ax, (2.3, 0.6), "importance network\nα = α(x)", "black", width=2.3, height=1.2, title="Local explanation")
    _box(ax, (5.6, 2.6), "f ~ Dir(α),\ngates x", GREEN, width=1.5)
    _box(ax, (8.3, 2.6), "model g,\nfrozen", GREY, width=1.2)
    _box(ax, (10.7, 2.6), "likelihood of\nthe target y", GREY, width=1.6)
    _box(ax, (5.6, 4.2), "prior\nDir(α₀)", GREY, width=1.5)
    _box(ax, (8.0, 4.2), "KL( Dir(α) ‖\nDir(α₀) )", GREY, width=1.8)
    _box(ax, (13.4, 2.6), "ELBO:\nlikelihood\n− KL", ORANGE, width=1.3)
    _arrow(ax, (1.4, 3.0), (5.5, 3.0), GREY, "x", (3.45, 3.2))
    _arrow(ax, (0.9, 2.5), (2.25, 1.2), "black", "x", (1.35, 1.7))
    _arrow(ax, (4.7, 4.6), (5.9, 3.5), BLUE, "α", (5.05, 3.95))
    _arrow(ax, (4.7, 1.4), (5.9, 2.5), "black", "α(x)", (5.0, 2.1))
    _arrow(ax, (7.2, 3.0), (8.2, 3.0), GREY, "gated x", (7.7, 3.22))
    _arrow(ax, (9.6, 3.0), (10.6, 3.0), GREY, "prediction", (10.1, 3.22))
    _arrow(ax, (12.4, 3.0), (13.3, 3.0), GREY)
    _arrow(ax, (7.2, 4.6), (7.9, 4.6), GREY)
    _arrow(ax, (6.9, 3.5), (8.2, 4.1), GREY, "Dir(α)", (8.0, 3.7))
    _arrow(ax, (9.9, 4.6), (13.6, 3.5), GREY, "price of leaving the prior", (11.0, 3.8))
    _arrow(ax, (14.2, 3.5), (4.7, 5.2), BLUE, "back-propagation to α", (10.7, 6.1), dotted=True, bend=0.32)
    _arrow(ax, (14.2, 2.5), (4.7, 0.9), "black", "back-propagation to the network's weights", (10.6, 0.15), dotted=True,
           bend=-0.28)
    ax.text(8.9, 2.25, "never changes", fontsize=8, ha="center", va="center", color=GREY, style="italic")
    ax.text(3.45, 2.2, "either the one\nor the other", fontsize=8, ha="center", va="center", color=GREY, style="italic")
    ax.set_xlim(-0.2, 14.9)
    ax.set_ylim(-0.2, 6.5)
    ax.axis("off")
    return ax
