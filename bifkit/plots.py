"""Every figure by one name, ``plots.X``; each takes ``ax=None`` and returns the Axes (the Figure, if it has several).

    one posterior     importances, probability_top, ridge, bars        (bifkit.posterior_plots)
    its rows          heatmap, row                                     (bifkit.row_plots)
    several models    compare = side_by_side + kl_matrix               (here)
    images            overlay                                          (bifkit.pictures)
    studies, fits     grouped_bars, elbo_curve, schematic              (here)

One style, colour-blind safe, light, with names rather than numbers on the axes; ``save(fig, name)`` writes png and pdf
into ``figures/`` (bifkit.canvas). Nothing here shows a figure or changes the caller's settings but ``style()``.
"""

import numpy as np
from matplotlib.colors import PowerNorm
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from bifkit.canvas import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PALETTE,
    PURPLE,
    RED,
    SKY,
    STYLE,
    YELLOW,
    axes,
    name_ticks,
    panels,
    plain,
    room,
    save,
    slant,
    style,
)
from bifkit.display import short
from bifkit.pictures import overlay
from bifkit.posterior import Posterior
from bifkit.posterior_plots import bars, importances, names_down, note, percent, probability_top, ridge, whiskers
from bifkit.row_plots import heatmap, row

__all__ = ["BLUE", "GREEN", "GREY", "ORANGE", "PALETTE", "PURPLE", "RED", "SKY", "STYLE", "YELLOW",
           "axes", "bars", "compare", "elbo_curve", "grouped_bars", "heatmap", "importances", "kl_matrix", "overlay",
           "probability_top", "ridge", "row", "save", "schematic", "side_by_side", "style"]
MARKS = list(zip([BLUE, ORANGE, GREEN, RED, PURPLE, SKY, GREY, "#000000"], "os^Dv<>P", strict=True))


def _same_features(posteriors):
    """{name: global posterior}, all over the first one's features in the first one's order."""
    if len(posteriors) < 2:
        raise ValueError(f"a comparison needs at least two posteriors, {{name: posterior}}; got {len(posteriors)}")
    names = next(iter(posteriors.values())).feature_names
    out = {}
    for model, posterior in posteriors.items():
        if set(posterior.feature_names) != set(names):
            odd = sorted(set(posterior.feature_names) ^ set(names))
            raise ValueError(f"{model!r} is not over the first posterior's features: {', '.join(odd[:4])} in one only")
        one = posterior.to_global()
        out[str(model)] = Posterior(one.alpha[[one.feature_names.index(n) for n in names]], names)
    return out


def _size(names, n_models, n_features):
    return 6 + room(names), 1.4 + (0.2 + 0.08 * n_models) * n_features


def side_by_side(posteriors, *, ax=None, prob=0.95, top=10):
    """Several posteriors, ``{name: posterior}``, in one forest plot; the features heaviest on average come first.

    >>> len(side_by_side({"a": Posterior([3.0, 1.0]), "b": Posterior([1.0, 1.0])}).get_legend().get_texts())
    2
    """
    ones = _same_features(posteriors)
    mean = np.mean([p.mean for p in ones.values()], axis=0)
    order = np.argsort(-mean, kind="stable")[:top]
    names = [next(iter(ones.values())).feature_names[i] for i in order]
    models, ax = short(ones, 28), axes(ax, _size(names, len(ones), len(order)))
    for i, one in enumerate(ones.values()):
        dodge = 0.7 * ((i + 0.5) / len(ones) - 0.5)
        color, marker = MARKS[i % len(MARKS)]
        whiskers(ax, np.arange(len(order)) + dodge, one.to_frame(prob).iloc[order], color=color, marker=marker,
                 label=models[i])
    names_down(ax, names)
    ax.set_xlim(left=0)
    whole = max(posteriors.values(), key=len)
    ax.set_xlabel(f"importance (mean and {percent(prob)} interval){note(whole, len(order))}")
    columns = max(1, 72 // (max(map(len, models)) + 6))
    legend = ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, frameon=False, fontsize=9)
    for text in legend.get_texts():
        text.update(plain(models))
    return ax


def _nats(value):
    return f"{value:.1e}" if value >= 1e5 else f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def kl_matrix(posteriors, *, ax=None):
    """KL(row || column) between several posteriors in nats (section 4.4): how badly the column stands in for the row.

    >>> ax = kl_matrix({"a": Posterior([2.0, 1.0]), "b": Posterior([1.0, 1.0])})
    >>> [t.get_text() for t in ax.texts]  # log 2 - 1/2 from a to b
    ['0.00', '0.19', '0.31', '0.00']
    """
    ones = _same_features(posteriors)
    kl = np.array([[float(p.kl_to(q)) for q in ones.values()] for p in ones.values()])
    n = len(ones)
    below, slanted = slant(ones, 20)
    ax = axes(ax, (1 + below + 0.62 * n, 0.5 + below + 0.5 * n))
    norm = PowerNorm(0.5, 0, max(kl.max(), 1e-9))  # one far-off model must not make the others look alike
    ax.imshow(kl, cmap="Blues", norm=norm)
    for i, j in np.ndindex(n, n):
        ax.text(j, i, _nats(kl[i, j]), ha="center", va="center", fontsize=9 if n <= 6 else 7,
                color="white" if norm(kl[i, j]) > 0.6 else "black")
    name_ticks(ax.xaxis, range(n), ones, **slanted)
    name_ticks(ax.yaxis, range(n), ones, width=20)
    ax.set_title("KL from row to column (nats)", loc="left")
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    return ax


def compare(posteriors, *, ax=None, prob=0.95, top=10):
    """Several models' posteriors, ``{name: posterior}``, side by side, with the KL matrix between them.

    Returns the Figure. ``ax`` may be two Axes, for the forest plot and the matrix: they are returned as given. For one
    of the two alone call ``side_by_side`` or ``kl_matrix``.

    >>> len(compare({"a": Posterior([3.0, 1.0]), "b": Posterior([1.0, 1.0])}).axes)
    2
    """
    if ax is not None and np.size(ax) != 2:
        raise ValueError("compare draws two panels: give two Axes, ax=(left, right), or call plots.side_by_side or "
                         "plots.kl_matrix with one")
    if ax is None:
        names, n = next(iter(_same_features(posteriors).values())).feature_names, len(posteriors)
        (wide, high), matrix, below = _size(names, n, min(top, len(names))), 0.5 * n + 0.6, slant(posteriors, 20)[0]
        size = wide + matrix + below, max(high, matrix + below + 0.4)
        figure, grid = panels(1, 2, size, width_ratios=[wide - room(names), matrix])
    left, right = grid[0] if ax is None else np.ravel(ax)
    side_by_side(posteriors, ax=left, prob=prob, top=top)
    kl_matrix(posteriors, ax=right)
    return figure if ax is None else ax


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
