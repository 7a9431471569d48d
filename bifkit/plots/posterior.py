"""Figures of one distribution: its importances with intervals, their order, their shape.

A local posterior is averaged over its rows (``to_global``), and the figure says so; figures of rows are in
:mod:`bifkit.plots.rows`. What is cut off is said on the axis.
"""

import numpy as np
from scipy import stats

from bifkit import dirichlet
from bifkit.evaluation import check_direction
from bifkit.inputs import resolve_groups
from bifkit.plots.canvas import BLUE, GREY, PALETTE, RED, axes, cut, name_ticks, plain, room, slant
from bifkit.sharing import short


def note(posterior, shown, which="first", *, total=None, what="features") -> str:
    """The second line of an axis label: what was left out (of all features, or of a ``total``), what was averaged."""
    rows = f"{len(posterior)} rows averaged" if len(posterior) > 1 else ""
    part = cut(shown, total or len(posterior.feature_names), which)
    said = ", ".join(filter(None, (part and f"{part} {what}", rows)))
    return f"\n{said}" if said else ""


def percent(prob) -> str:
    """A probability in words: 0.997 is "99.7%"."""
    return f"{100 * prob:g}%"


def whiskers(ax, y, frame, *, color=BLUE, marker="o", label=None):
    """A point at each mean and a line over its interval, at heights ``y``; ``frame`` is that of ``to_frame``."""
    ax.hlines(y, frame["lower"], frame["upper"], color=color, alpha=0.5, lw=3)
    ax.plot(frame["mean"], y, marker, color=color, ms=6, label=label)


def names_down(ax, names):
    """Names on the y axis, the first on top."""
    name_ticks(ax.yaxis, np.arange(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.grid(axis="x", alpha=0.3)
    ax.set_axisbelow(True)


def directed(direction, posterior) -> list[tuple[np.ndarray, str, str]]:
    """[(mask, colour, words)] of the features that raise and that lower the output, and of those without direction."""
    check_direction(direction, posterior)
    sign = direction.sign
    return [(sign > 0, RED, f"raises the {direction.output}"), (sign < 0, BLUE, "lowers it"),
            (sign == 0, GREY, "no clear sign")]


def legend_above(ax, columns=3):
    """The legend over the Axes, where it covers nothing; returns it."""
    return ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, frameon=False, fontsize=9)


def importances(posterior, *, ax=None, prob=0.95, top=15, color=BLUE, sort=True, label=None, direction=None,
                threshold=True):
    """Posterior means with credible intervals, the most important on top; returns the Axes.

    The dotted line is half an equal share, 1 / (2 D): ``posterior.relevant()`` names the features that are above it.

    Parameters
    ----------
    posterior : Posterior
        A local one is averaged over its rows.
    ax : Axes, optional
    prob : float, default 0.95
        Probability of the interval.
    top : int, default 15
        Features shown at most.
    color : color, default BLUE
    sort : bool, default True
        False keeps the features' own order.
    label : str, optional
        For a legend.
    direction : Direction, optional
        Of a global posterior: colours the features by the way they move g's output, see
        :meth:`bifkit.Posterior.direction`.
    threshold : bool, default True
        Whether to draw the dotted line.
    """
    one = posterior.to_global()
    frame, D = one.to_frame(prob), len(one.feature_names)
    order = (np.argsort(-one.mean, kind="stable") if sort else np.arange(D))[:top]
    frame, y = frame.iloc[order], np.arange(len(order))
    parts = [(np.full(D, True), color, label)] if direction is None else directed(direction, posterior)
    ax = axes(ax, (6 + room(frame.index), 0.9 + 0.28 * len(frame) + 0.25 * (direction is not None)))
    for mask, shade, words in parts:
        if mask[order].any():
            whiskers(ax, y[mask[order]], frame[mask[order]], color=shade, label=words)
    if direction is not None:
        legend_above(ax)
    names_down(ax, frame.index)
    ax.set_xlim(left=0)
    said = note(posterior, len(frame))
    if threshold:
        ax.axvline(0.5 / D, color=GREY, ls=":", lw=1.2, zorder=0)
        said = f"\ndotted: {0.5 / D:.2g}, half an equal share: relevant(){said}"
    ax.set_xlabel(f"importance (mean and {percent(prob)} interval){said}")
    return ax


def groups(posterior, mapping, *, ax=None, prob=0.95, top=15, members=4):
    """Importances of groups of features with their intervals, and what the heaviest members add; returns the Axes.

    A group's importance is the sum of its members', and its interval that of the sum (exact, see ``Posterior.group``).

    Parameters
    ----------
    posterior : Posterior
        Over single features; a local one is averaged over its rows.
    mapping : dict, list of lists or integer array (D,)
        As for :meth:`bifkit.Posterior.group`.
    ax : Axes, optional
    prob : float, default 0.95
        Probability of the interval.
    top : int, default 15
        Groups shown at most.
    members : int, default 4
        Members of a group that are shown one by one, the heaviest; the rest are one pale part.
    """
    one = posterior.to_global()
    number, _ = resolve_groups(mapping, one.feature_names)
    frame = one.group(mapping).to_frame(prob)
    order = np.argsort(-frame["mean"].to_numpy(), kind="stable")[:top]
    frame, names = frame.iloc[order], short(one.feature_names, 18)
    ax = axes(ax, (6 + room(frame.index), 1.1 + 0.42 * len(frame)))
    scale = float(frame["upper"].max())
    for y, k in enumerate(order):
        inside = np.flatnonzero(number == k)
        inside = inside[np.argsort(-one.mean[inside], kind="stable")]
        parts = [(one.mean[i], names[i], PALETTE[j % 2 * 5]) for j, i in enumerate(inside[:members])]
        parts += [(one.mean[inside[members:]].sum(), "", "#dddddd")] if len(inside) > members else []
        left = 0.0
        for width, name, color in parts:
            ax.barh(y, width, 0.62, left=left, color=color, alpha=0.75, lw=0)
            if len(inside) > 1 and name and width > 0.013 * scale * (len(name) + 1):
                ax.text(left + width / 2, y, name, ha="center", va="center", fontsize=7, **plain([name]))
            left += width
    ax.hlines(np.arange(len(frame)) + 0.42, frame["lower"], frame["upper"], color="#333333", lw=1.5)
    names_down(ax, frame.index)
    ax.set_xlim(left=0)
    ax.set_xlabel(f"importance of a group (its members' sum; line: {percent(prob)} interval)"
                  + note(posterior, len(frame), total=int(number.max()) + 1, what="groups"))
    return ax


def bars(posterior, *, ax=None, relevant=(), color=BLUE, title=None, top=30):
    """Posterior mean and one standard deviation as bars, in the features' order (the paper's Figure 2).

    Parameters
    ----------
    posterior : Posterior
    ax : Axes, optional
    relevant : list of int, optional
        Positions of features to colour; the others are grey. By default all are coloured.
    color : color, default BLUE
    title : str, optional
    top : int, default 30
        Features shown at most, the heaviest.
    """
    one = posterior.to_global()
    keep = np.sort(np.argsort(-one.mean, kind="stable")[:top])
    names, mean, sd = [one.feature_names[i] for i in keep], one.mean[keep], one.sd[keep]
    crowded = sum(len(n) for n in short(names, 26)) > 60
    below, slanted = slant(names) if crowded else (0, {})
    ax, x = axes(ax, (max(6, 1 + 0.25 * len(keep)) if crowded else 6, 2.6 + below)), np.arange(len(keep))
    colors = [color if i in relevant or not len(relevant) else GREY for i in keep]
    low = np.minimum(sd, mean)  # a bar's whisker must not leave the simplex
    ax.bar(x, mean, yerr=[low, sd], color=colors, capsize=3 if len(keep) <= 15 else 1,
           error_kw={"lw": 1, "ecolor": ax.xaxis.label.get_color()})
    name_ticks(ax.xaxis, x, names, **slanted)
    ax.set_ylim(bottom=0)
    ax.set_ylabel("importance (mean and sd)")
    ax.set_xlabel(note(posterior, len(keep), "heaviest").strip())
    if title:
        ax.set_title(title, loc="left")
    return ax


def probability_top(posterior, k=None, *, ax=None, top=15, color=BLUE):
    """Probability of each feature to be among the ``k`` most important, the surest on top; returns the Axes.

    The dotted line is k / D, the probability of each feature if all mattered alike.

    Parameters
    ----------
    posterior : Posterior
        For a local one it is the probability in a row picked at random.
    k : int, optional
        By default five, or half of the features where they are fewer than ten.
    ax : Axes, optional
    top : int, default 15
        Features shown at most.
    color : color, default BLUE
    """
    D, N = len(posterior.feature_names), len(posterior)
    k = min(5, max(1, D // 2)) if k is None else k
    draws = max(50, 20_000 // N)  # errors average out over rows
    chance = dirichlet.probability_top(posterior.alpha, k, draws=draws, temperature=posterior.temperature)
    chance = np.atleast_2d(chance).mean(0)
    mean = np.atleast_2d(posterior.mean).mean(0)
    order = np.lexsort((-mean, -chance))[:top]  # among equal probabilities the heavier first
    names = [posterior.feature_names[i] for i in order]
    ax, y = axes(ax, (6 + room(names), 1.1 + 0.28 * len(order))), np.arange(len(order))
    ax.barh(y, chance[order], 0.7, color=color)
    for i, p in zip(y, chance[order], strict=True):
        ax.text(1.02, i, f"{p:.2f}", va="center", fontsize=8)
    ax.axvline(k / D, color=GREY, ls=":", lw=1.2)
    names_down(ax, names)
    ax.set_xlim(0, 1.12)  # the numbers stand in a column of their own
    ax.set_xticks(np.linspace(0, 1, 6))
    most = f"among the {k} most important" if k > 1 else "the most important"
    part = cut(len(order), D)
    part = ", ".join(filter(None, (part and f"{part} features", f"in a row picked from {N}" if N > 1 else "")))
    ax.set_xlabel(f"probability of being {most}\n(dotted: {k / D:.2g}, if all mattered alike)\n{part}".strip())
    return ax


def _curve(a, b, right, points=300):
    """(x, density / its largest) of Beta(a, b) between 0 and ``right``.

    Densities with a < 1 or b < 1 are infinite at an end: there the curve starts a step beside it, and stays level.
    """
    step = right / points
    x = np.concatenate([np.linspace(0, right, points), stats.beta.ppf(np.linspace(0.001, 0.999, points), a, b)])
    x = np.unique(np.clip(np.nan_to_num(x), 0, right))  # the quantiles follow a peak narrower than the grid
    log = stats.beta.logpdf(np.clip(x, step if a < 1 else 0, 1 - step if b < 1 else 1), a, b)
    return x, np.exp(log - log.max())


def ridge(posterior, *, ax=None, prob=0.95, top=10, color=BLUE):
    """The whole distribution of each importance, one below the other; returns the Axes.

    The Beta marginals in closed form (seaborn's kdeplot would estimate them from draws). Each curve has its own height,
    since a feature that surely does not matter piles up at zero, beyond any common scale.

    Parameters
    ----------
    posterior : Posterior
        A local one is averaged over its rows.
    ax : Axes, optional
    prob : float, default 0.95
        Probability of the interval, drawn dark; the dot is the mean.
    top : int, default 10
        Features shown at most, the heaviest.
    color : color, default BLUE
    """
    one = posterior.to_global()
    order = np.argsort(-one.mean, kind="stable")[:top]
    names, a = [one.feature_names[i] for i in order], one.alpha[order]
    b = one.alpha.sum() - a
    lower, upper = (bound[order] for bound in one.interval(prob))
    right = min(1.0, 1.05 * float(stats.beta.ppf(0.995, a, b).max()))
    ax = axes(ax, (6 + room(names), 1.2 + 0.42 * len(order)))
    for i in range(len(order)):
        x, height = _curve(a[i], b[i], right)
        edge, inside = i - 0.88 * height, (x >= lower[i]) & (x <= upper[i])
        ax.fill_between(x, i, edge, color=color, alpha=0.2, lw=0)
        ax.fill_between(x, i, edge, where=inside, color=color, alpha=0.5, lw=0)
        ax.plot(x, edge, color=color, lw=1)
    ax.plot(one.mean[order], np.arange(len(order)), "o", color=color, ms=5, mec="white", zorder=3, clip_on=False)
    names_down(ax, names)
    ax.set_ylim(len(order) - 0.8, -1)
    ax.set_xlim(0, right)
    ax.set_xlabel(f"importance (dot: mean, dark: {percent(prob)} interval)\ndensity, each curve to its own height"
                  f"{note(posterior, len(order))}")
    return ax
