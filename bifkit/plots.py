"""Every figure; each takes ``ax=None`` and returns the Axes (or the Figure, where it has several).

One style, colour-blind safe (Okabe and Ito's palette), light, with names rather than numbers on the axes.
``save(fig, name)`` writes png and pdf into ``figures/``; files carry no date, so that the same figure is the same file.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from bifkit import paths

BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW, GREY = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442", "#777777")
PALETTE = [BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW, GREY]
STYLE = {"axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 11, "axes.labelsize": 10,
         "xtick.labelsize": 9, "ytick.labelsize": 9, "legend.fontsize": 9, "legend.frameon": False,
         "figure.dpi": 110, "savefig.dpi": 200, "savefig.bbox": "tight", "pdf.fonttype": 42, "svg.hashsalt": "bifkit"}


def style():
    """Apply the one style to what is drawn from now on.

    >>> style(); plt.rcParams["legend.frameon"]
    False
    """
    plt.rcParams.update(STYLE)


def axes(ax=None, size=(6, 3.2)):
    """The given Axes, or a new one in our style.

    >>> axes().figure.get_size_inches().tolist()
    [6.0, 3.2]
    """
    if ax is None:
        style()
        ax = plt.subplots(figsize=size, layout="constrained")[1]
    return ax


def save(figure, name):
    """Write ``figures/<name>.png`` and ``.pdf``; returns the figure.

    >>> _ = save(axes(size=(2, 2)), "doctest")
    >>> sorted(file.name for file in paths.figures().glob("doctest.*"))
    ['doctest.pdf', 'doctest.png']
    """
    figure = getattr(figure, "figure", figure)
    for ending, metadata in (("png", {"Software": None}), ("pdf", {"CreationDate": None, "Creator": None})):
        figure.savefig(paths.figures() / f"{name}.{ending}", metadata=metadata)
    return figure


def importances(posterior, *, ax=None, prob=0.95, top=15, color=BLUE, sort=True, label=None):
    """Posterior means with credible intervals, the most important on top.

    >>> from bifkit import Posterior
    >>> importances(Posterior([3.0, 1.0], ["age", "sex"])).get_yticklabels()[0].get_text()
    'age'
    """
    frame = posterior.to_global().to_frame(prob)
    if sort:
        frame = frame.sort_values("mean", ascending=False, kind="stable")
    total, frame = len(frame), frame.head(top)
    ax = axes(ax, (6, 0.9 + 0.28 * len(frame)))
    y = np.arange(len(frame))
    ax.hlines(y, frame["lower"], frame["upper"], color=color, alpha=0.5, lw=3)
    ax.plot(frame["mean"], y, "o", color=color, ms=6, label=label)
    ax.set_yticks(y, frame.index)
    ax.set_ylim(len(frame) - 0.5, -0.5)
    ax.set_xlim(left=0)
    part = "" if total == len(frame) else f"\nfirst {len(frame)} of {total}"
    ax.set_xlabel(f"importance (mean and {prob:.0%} interval){part}")
    ax.grid(axis="x", alpha=0.3)
    return ax


def bars(posterior, *, ax=None, relevant=(), color=BLUE, title=None):
    """Posterior mean and one standard deviation as bars, in the features' order (the paper's Figure 2).

    >>> from bifkit import Posterior
    >>> len(bars(Posterior([3.0, 1.0])).patches)
    2
    """
    posterior, ax = posterior.to_global(), axes(ax, (6, 2.6))
    x = np.arange(len(posterior.feature_names))
    colors = [color if i in relevant or not len(relevant) else GREY for i in x]
    low = np.minimum(posterior.sd, posterior.mean)  # a bar's whisker must not leave the simplex
    ax.bar(x, posterior.mean, yerr=[low, posterior.sd], color=colors, capsize=3, error_kw={"lw": 1})
    ax.set_xticks(x, posterior.feature_names)
    ax.set_ylim(bottom=0)
    ax.set_ylabel("importance")
    if title:
        ax.set_title(title, loc="left")
    return ax


def heatmap(posterior, *, ax=None, rows=40, top=20):
    """Rows x features of a local posterior's means, rows in their order.

    >>> from bifkit import Posterior
    >>> heatmap(Posterior([[3.0, 1.0], [1.0, 3.0]])).get_xlabel()
    'feature'
    """
    mean = np.atleast_2d(posterior.mean)
    keep, mean = np.sort(np.argsort(-mean.mean(0), kind="stable")[:top]), mean[:rows]
    ax = axes(ax, (1.5 + 0.4 * len(keep), 1.2 + 0.14 * len(mean)))
    image = ax.imshow(mean[:, keep], aspect="auto", cmap="viridis", vmin=0)
    ax.set_xticks(range(len(keep)), [posterior.feature_names[i] for i in keep], rotation=45, ha="right")
    ax.set_xlabel("feature")
    ax.set_ylabel(f"instance (first {len(mean)} of {len(posterior)})")
    ax.figure.colorbar(image, ax=ax, label="mean importance", shrink=0.8)
    return ax


def grouped_bars(frame, *, ax=None, ylabel="", colors=PALETTE, errors=None):
    """A group of bars for each row of ``frame``, one bar a column; ``errors`` has the same shape.

    >>> import pandas as pd
    >>> len(grouped_bars(pd.DataFrame({"a": [1, 2], "b": [2, 1]}, index=["x", "y"])).patches)
    4
    """
    ax = axes(ax, (8, 3.2))
    width, x = 0.8 / frame.shape[1], np.arange(len(frame))
    for i, column in enumerate(frame.columns):
        error = None if errors is None else errors[column]
        ax.bar(x + (i - (frame.shape[1] - 1) / 2) * width, frame[column], width, yerr=error, label=column,
               color=colors[i % len(colors)], error_kw={"lw": 0.8})
    ax.set_xticks(x, frame.index)
    ax.set_ylabel(ylabel)
    ax.grid(axis="y", alpha=0.3)
    ax.set_axisbelow(True)
    return ax


def elbo_curve(explainer, *, ax=None):
    """The ELBO over the fit, one line a restart: it should level off.

    >>> from types import SimpleNamespace
    >>> len(elbo_curve(SimpleNamespace(history_=[[-1.0, -0.5]])).lines)
    1
    """
    ax = axes(ax)
    for history in explainer.history_:
        ax.plot(np.linspace(0, 100, len(history)), history, color=BLUE)
    ax.set_xlabel("steps done (%)")
    ax.set_ylabel("ELBO (nats a row)")
    return ax


def _box(ax, xy, text, color, width=1.5, height=0.8):
    ax.add_patch(FancyBboxPatch(xy, width, height, boxstyle="round,pad=0.06", fc="white", ec=color, lw=1.6))
    ax.text(xy[0] + width / 2, xy[1] + height / 2, text, ha="center", va="center", fontsize=9)


def _arrow(ax, a, b, color, dashed=False, bend=0.0):
    ax.add_patch(FancyArrowPatch(a, b, arrowstyle="-|>", mutation_scale=12, color=color, lw=1.4, shrinkA=4, shrinkB=4,
                                 linestyle="--" if dashed else "-", connectionstyle=f"arc3,rad={bend}"))


def schematic(*, ax=None):
    """The method in one picture (the paper's Figure 1): global in blue, local in black, gradients dashed.

    >>> schematic().axison
    False
    """
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
