"""Several models' posteriors beside each other, and how a fit went."""

import numpy as np
from matplotlib.colors import PowerNorm

from bifkit.plots.canvas import BLUE, GREY, PALETTE, axes, cut, name_ticks, panels, plain, room, slant
from bifkit.plots.posterior import legend_above, names_down, note, percent, whiskers
from bifkit.posterior import Posterior
from bifkit.sharing import short

MARKS = list(zip([*PALETTE[:6], GREY, "#000000"], "os^Dv<>P", strict=True))


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
    """Width and height in inches of a forest plot."""
    return 6 + room(names), 1.4 + (0.2 + 0.08 * n_models) * n_features


def side_by_side(posteriors, *, ax=None, prob=0.95, top=10):
    """Several posteriors in one forest plot, the features heaviest on average on top; returns the Axes.

    Parameters
    ----------
    posteriors : dict of str to Posterior
        Two or more over the same features; local ones are averaged over their rows.
    ax : Axes, optional
    prob : float, default 0.95
        Probability of the intervals.
    top : int, default 10
        Features shown at most.
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
    for text in legend_above(ax, columns).get_texts():
        text.update(plain(models))
    return ax


def _nats(value):
    """A divergence in four or five letters."""
    return f"{value:.1e}" if value >= 1e5 else f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def kl_matrix(posteriors, *, ax=None):
    """KL(row || column) between several posteriors in nats (section 4.4): how badly the column stands in for the row.

    >>> ax = kl_matrix({"a": Posterior([2.0, 1.0]), "b": Posterior([1.0, 1.0])})
    >>> [t.get_text() for t in ax.texts]  # log 2 - 1/2 from a to b
    ['0.00', '0.19', '0.31', '0.00']

    Parameters
    ----------
    posteriors : dict of str to Posterior
        Two or more over the same features.
    ax : Axes, optional
    """
    import seaborn as sns

    ones = _same_features(posteriors)
    kl = np.array([[float(p.kl_to(q)) for q in ones.values()] for p in ones.values()])
    n = len(ones)
    below, slanted = slant(ones, 20)
    ax = axes(ax, (1 + below + 0.62 * n, 0.6 + below + 0.5 * n))
    norm = PowerNorm(0.5, 0, max(kl.max(), 1e-9))  # one far-off model must not make the others look alike
    sns.heatmap(kl, ax=ax, cmap="Blues", norm=norm, square=True, cbar=False, xticklabels=False, yticklabels=False,
                annot=np.vectorize(_nats)(kl), fmt="", annot_kws={"fontsize": 9 if n <= 6 else 7})
    name_ticks(ax.xaxis, np.arange(n) + 0.5, ones, **slanted)
    name_ticks(ax.yaxis, np.arange(n) + 0.5, ones, width=20)
    ax.set_title("KL in nats,\nrow to column", loc="left")
    ax.tick_params(length=0)
    return ax


def compare(posteriors, *, ax=None, prob=0.95, top=10):
    """Several models' posteriors side by side, and the KL between them: ``side_by_side`` and ``kl_matrix`` in one.

    Parameters
    ----------
    posteriors, prob, top
        As for :func:`side_by_side`.
    ax : two Axes, optional
        For the forest plot and the matrix.

    Returns
    -------
    Figure, or ``ax`` as given
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


def differences(comparison, *, ax=None, top=15):
    """The features' differences b - a with their intervals, the largest on top; returns the Axes.

    Coloured are those that chance hardly explains (p_adjusted below .05); without refits there are no intervals.

    >>> from bifkit.evaluation import compare
    >>> found = compare(Posterior([3.0, 1.0], ["age", "sex"]), Posterior([1.0, 1.0], ["age", "sex"]))
    >>> found.plot().lines[0].get_xdata().tolist()
    [-0.25, 0.25]

    Parameters
    ----------
    comparison : Comparison
        Of :func:`bifkit.compare`.
    ax : Axes, optional
    top : int, default 15
        Features shown at most.
    """
    frame = comparison.features.head(top).rename(columns={"difference": "mean"})
    ax, y = axes(ax, (6 + room(frame.index), 0.9 + 0.28 * len(frame))), np.arange(len(frame))
    if comparison.p_value is None:
        ax.plot(frame["mean"], y, "o", color=BLUE, ms=6)
        what = ""
    else:
        sure = (frame["p_adjusted"] < 0.05).to_numpy()
        whiskers(ax, y[sure], frame[sure], label="adjusted p < .05")
        whiskers(ax, y[~sure], frame[~sure], color=GREY, label="adjusted p of .05 or more")
        legend_above(ax, 2)
        what = f" (mean and {percent(comparison.prob)} interval)"
    ax.axvline(0, color=GREY, lw=0.8, zorder=0)
    names_down(ax, frame.index)
    rows = "" if comparison.rows is None else f"{len(comparison.rows)} rows averaged"
    part = cut(len(frame), len(comparison.features), "largest")
    said = ", ".join(filter(None, (part and f"{part} differences", rows)))
    ax.set_xlabel(f"difference of importance, b - a{what}" + (f"\n{said}" if said else ""))
    return ax


def elbo_curve(explainer, *, ax=None):
    """The objective over the fit, one line per restart: it should level off. Returns the Axes.

    Under the relative fidelity of ``rank`` it is a logarithm, and may be positive.

    Parameters
    ----------
    explainer : GlobalBIF or LocalBIF
        A fitted one.
    ax : Axes, optional
    """
    ax = axes(ax)
    for history in explainer.history_:
        ax.plot(np.linspace(0, 100, len(history)), history, color=BLUE)
    ax.set_xlabel("steps done (%)")
    ax.set_ylabel("objective (ELBO)")
    return ax
