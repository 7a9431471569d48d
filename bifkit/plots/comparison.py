"""Several models' posteriors beside each other, and how a fit went."""

import numpy as np
from matplotlib.colors import PowerNorm

from bifkit.display import short
from bifkit.plots.canvas import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    axes,
    name_ticks,
    panels,
    plain,
    room,
    slant,
)
from bifkit.plots.posterior import names_down, note, percent, whiskers
from bifkit.posterior import Posterior

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
