"""Figures of a local posterior's rows: a heat map of all, one next to its values, one feature against its values."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.colors import LinearSegmentedColormap
from scipy.cluster import hierarchy

from bifkit.plots.canvas import BLUE, GREY, RED, SKY, array, axes, cut, name_ticks, plain, room, slant
from bifkit.plots.posterior import directed, legend_above, names_down, note, percent
from bifkit.sharing import short

LABELS = 40  # rows of a heat map that all carry their label
SIGNED = LinearSegmentedColormap.from_list("signed", [BLUE, "white", RED])


def _need_rows(posterior, what):
    """An error for a global posterior."""
    if not posterior.is_local:
        raise ValueError(f"{what} needs a posterior for each row, and this one is global: explain rows with LocalBIF, "
                         "or draw plots.importances")


def _row_labels(index):
    """Labels of rows as text; levels are joined."""
    return [" / ".join(map(str, i)) for i in index] if index.nlevels > 1 else [str(i) for i in index.astype(str)]


def _row_order(mean, names, sort):
    """Order of rows: their own, like beside like, or by one feature; and how to say so."""
    if sort is None:
        return np.arange(len(mean)), ""
    if isinstance(sort, str) and sort in names:
        return np.argsort(-mean[:, names.index(sort)], kind="stable"), f"by {short([sort], 20)[0]}"
    if sort != "similar":
        raise ValueError(f"sort must be None, 'similar' or the name of a feature; got {sort!r}")
    if len(mean) < 3:
        return np.arange(len(mean)), "similar ones together"
    tree = hierarchy.linkage(np.sqrt(mean), "average", optimal_ordering=len(mean) <= 500)  # Hellinger distance
    return hierarchy.leaves_list(tree), "similar ones together"


def heatmap(posterior, *, ax=None, rows=40, top=20, sort=None, direction=None):
    """The means of a local posterior, rows by features; returns the Axes.

    Parameters
    ----------
    posterior : Posterior
        A local one.
    ax : Axes, optional
    rows : int, default 40
        Rows shown at most, the first.
    top : int, default 20
        Features shown at most, the heaviest on average.
    sort : str, optional
        "similar" puts rows with like explanations together (average linkage), the name of a feature puts the rows that
        rest on it on top. By default rows keep their order.
    direction : Direction, optional
        Of this posterior: importances get the sign of the change of g's output, orange above zero, blue below.
    """
    import seaborn as sns

    _need_rows(posterior, "a heat map")
    keep, mean = np.sort(np.argsort(-posterior.mean.mean(0), kind="stable")[:top]), posterior.mean[:rows]
    order, how = _row_order(mean, posterior.feature_names, sort)
    names = [posterior.feature_names[i] for i in keep]
    labels = [_row_labels(posterior.index[:rows])[i] for i in order]
    n, (below, slanted) = len(mean), slant(names)
    body = min(max(1.2 if direction is None else 2.6, 0.14 * n), 8)  # many rows get thinner, not the page longer
    ax = axes(ax, (max(2.5, 0.4 * len(keep)) + 1.5 + room(labels, 20) + below / 3, body + below + 0.4))
    colors, words = {"cmap": "viridis", "vmin": 0}, "mean importance"
    if direction is not None:
        directed(direction, posterior)
        mean, most = mean * np.sign(np.asarray(direction.mean)[:rows]), mean[:, keep].max()
        colors = {"cmap": SIGNED, "vmin": -most, "vmax": most}
        words = f"mean importance: orange raises,\nblue lowers the\n{direction.output}"
    sns.heatmap(mean[order][:, keep], ax=ax, **colors, xticklabels=False, yticklabels=False,
                rasterized=True, cbar_kws={"label": words, "shrink": 0.8})
    name_ticks(ax.xaxis, np.arange(len(keep)) + 0.5, names, **slanted)  # seaborn's own would read $ as mathematics
    shown = np.arange(n) if n <= LABELS else np.unique(np.linspace(0, n - 1, 10).astype(int))
    name_ticks(ax.yaxis, shown + 0.5, [labels[i] for i in shown], width=20, fontsize=7 if n > 15 else 9)
    part = cut(len(keep), len(posterior.feature_names), "heaviest")
    ax.set_xlabel(f"feature ({part})" if part else "feature")
    said = ", ".join(filter(None, (cut(n, len(posterior)), how)))
    ax.set_ylabel(f"instance ({said})" if said else "instance", **plain([said]))
    return ax


def _position(index, label):
    """Number of the row that ``label`` names: a label of the index, or else a number."""
    if label in index:
        found = index.get_loc(label)
        if not isinstance(found, int | np.integer):
            raise ValueError(f"{label!r} labels more than one row: choose one with posterior[number]")
        return int(found)
    if isinstance(label, int | np.integer) and -len(index) <= label < len(index):
        return int(label) % len(index)
    raise ValueError(f"no row {label!r}: give a label of posterior.index, such as {index[0]!r}, or a row number below "
                     f"{len(index)}")


def _line_of(values, index, number):
    """The line of a frame or matrix that belongs to row ``number`` of a posterior with this index."""
    if len(values) == 1:
        return 0
    if number is None:
        raise ValueError(f"values has {len(values)} rows: give the one explained, or row(posterior, values, label)")
    labels = getattr(values, "index", None)
    # a posterior whose rows were only numbered knows no labels: its rows are the table's, in order
    numbered = index.equals(pd.RangeIndex(len(index)))
    if len(values) == len(index) and (labels is None or numbered or labels.equals(index)):
        return number
    if labels is None or not labels.is_unique or index[number] not in labels:
        raise ValueError(f"values has {len(values)} rows and the posterior {len(index)}, and no label tells which is "
                         f"row {index[number]!r}: give the table that was explained, or that row alone")
    return labels.get_loc(index[number])


def _values(values, names, index, number):
    """{feature: value} of one row of what the caller gave: a frame, series, mapping, matrix or vector."""
    if isinstance(values, pd.DataFrame):
        values = values.iloc[_line_of(values, index, number)]
    if isinstance(values, Mapping | pd.Series):
        found = {str(name): value for name, value in values.items()}
        if not set(found) & set(names):
            raise ValueError(f"values has none of the posterior's features: it has {', '.join(list(found)[:4])}, the "
                             f"posterior {', '.join(names[:4])}")
        return found
    found = array(values)
    if found.ndim == 2:
        found = found[_line_of(found, index, number)]
    if found.shape != (len(names),):
        raise ValueError(f"values must hold one value for each of the {len(names)} features; got shape {found.shape} "
                         "(for groups of features give a dict of group name to value)")
    return dict(zip(names, found.tolist(), strict=True))


def _written(value):
    """A value as one writes it: 4 digits of a number, at most 18 letters of a text."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        date = isinstance(value, pd.Timestamp) and value == value.normalize()
        return short([value.date() if date else value], 18)[0]
    value = float(value)
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 or value.is_integer() and abs(value) < 1e9 else f"{value:.4g}"


def _signed_bars(ax, frame, direction, parts, keep):
    """Bars to the right that raise, to the left that lower; the change of the output stands at their ends."""
    side = np.where(direction.sign < 0, -1, 1)[keep]
    color = np.select([mask[keep] for mask, *_ in parts], [color for _, color, _ in parts], "")
    ax.barh(np.arange(len(frame)), side * frame["mean"], 0.65, color=color, alpha=0.7)
    y, most = np.arange(len(frame)), float(frame["upper"].max())
    ax.hlines(y, side * frame["lower"], side * frame["upper"], color="#333333", lw=1.5)
    for i, (s, end, change) in enumerate(zip(side, frame["upper"], direction.mean[keep], strict=True)):
        ax.text(s * (end + 0.02 * most), i, f"{change:+.2g}", va="center", ha="left" if s > 0 else "right", fontsize=8)
    ax.axvline(0, color=GREY, lw=0.8)
    ax.set_xlim(-1.18 * most if (side < 0).any() else 0, 1.18 * most)
    ax.xaxis.set_major_formatter(lambda v, _: f"{abs(v):g}")


def row(posterior, values, label=None, *, ax=None, prob=0.95, top=12, color=SKY, direction=None):
    """One row's explanation next to its values: ``name = value``, mean as a bar, credible interval as a line.

    With ``direction`` bars go to the right where the value raises g's output and to the left where it lowers it, and
    the change stands beside them; lengths are importances, so they do not add up to the output.

    >>> from bifkit import Posterior
    >>> rows = Posterior([[3.0, 1.0], [1.0, 3.0]], ["age", "sex"], index=["Ann", "Bob"])
    >>> row(rows, {"age": 39, "sex": "f"}, "Ann").get_yticklabels()[0].get_text()
    'age = 39'

    Parameters
    ----------
    posterior : Posterior
        A row's own (``rows[3]``), or a local one with ``label``.
    values : Series, dict, vector, DataFrame or matrix
        That row, or the table it stands in. Features it lacks, such as groups, go without a value.
    label : optional
        A label of the posterior's index; a whole number that is no label is a position. (``posterior[3]`` is always a
        position.)
    ax : Axes, optional
    prob : float, default 0.95
        Probability of the interval.
    top : int, default 12
        Features shown at most.
    color : color, default SKY
    direction : Direction, optional
        Of the posterior, or of this row.
    """
    number = None
    if label is not None:
        _need_rows(posterior, f"row {label!r}")
        number = _position(posterior.index, label)
    elif posterior.is_local:
        if len(posterior) != 1:
            raise ValueError(f"this posterior has {len(posterior)} rows: say which, row(posterior, values, label)")
        number, label = 0, posterior.index[0]
    one = posterior if number is None else posterior[number]
    found = _values(values, one.feature_names, posterior.index, number)
    frame = one.to_frame(prob).sort_values("mean", ascending=False, kind="stable").head(top)
    names = [f"{name} = {_written(found[full])}" if full in found else name
             for full, name in zip(frame.index, short(frame.index, 26), strict=True)]
    high = 0.9 + 0.3 * len(frame) + 0.35 * (direction is not None)
    ax, y = axes(ax, (6 + room(names, 50), high)), np.arange(len(frame))
    if direction is None:
        ax.barh(y, frame["mean"], 0.65, color=color)
        ax.hlines(y, frame["lower"], frame["upper"], color=BLUE, lw=1.5)
        ax.set_xlim(left=0)
    else:
        own = direction if number is None or np.ndim(direction.mean) == 1 else direction[number]
        _signed_bars(ax, frame, own, directed(own, one), [one.feature_names.index(n) for n in frame.index])
    names_down(ax, names)
    way = "" if direction is None else f"\nright: raises the {direction.output}\nleft: lowers it, grey: unclear"
    ax.set_xlabel(f"importance (mean and {percent(prob)} interval){way}{note(one, len(frame))}")
    if label is not None:
        title = f"row {_row_labels(posterior.index[[number]])[0]}"
        ax.set_title(title, loc="left", **plain([title]))
    return ax


def dependence(posterior, X, feature, *, ax=None, prob=0.8, direction=None, color=BLUE, rows=500):
    """One feature's importance in each row against its value there; returns the Axes.

    Parameters
    ----------
    posterior : Posterior
        A local one.
    X : DataFrame, array or tensor (N, D)
        The rows that were explained, in their order (unscaled if you like); text and categories are spread out by name.
    feature : str or int
        Name or position of a feature.
    ax : Axes, optional
    prob : float, default 0.8
        Probability of the intervals, drawn as thin lines.
    direction : Direction, optional
        Of this posterior: colours the rows by the way the value moves g's output there.
    color : color, default BLUE
    rows : int, default 500
        Rows shown at most, the first.
    """
    _need_rows(posterior, "a figure of a feature's values")
    i = posterior.feature_names.index(feature) if feature in posterior.feature_names else feature
    if not (isinstance(i, int | np.integer) and 0 <= i < len(posterior.feature_names)):
        raise ValueError(f"unknown feature {feature!r}; features are {', '.join(posterior.feature_names[:8])}")
    name = posterior.feature_names[i]
    if len(X) != len(posterior):
        raise ValueError(f"X has {len(X)} rows and the posterior {len(posterior)}: give the rows that were explained")
    if hasattr(X, "columns"):
        found = [c for c in X.columns if str(c) == name]
        if not found:
            raise ValueError(f"X has no column {name!r}: its columns are {', '.join(map(str, X.columns[:4]))}, ...")
        values = X[found[0]].iloc[:rows]
    else:
        values = pd.Series(array(X).reshape(len(X), -1)[:rows, i])
    ax, part = axes(ax, (6, 3.4)), posterior[:rows]
    if pd.api.types.is_numeric_dtype(values) or pd.api.types.is_datetime64_any_dtype(values):
        x = values.to_numpy()
    else:
        kinds = values.astype(object).where(values.notna(), "(missing)").astype(str)
        number, labels = pd.factorize(kinds, sort=True)
        x = number + np.random.default_rng(0).uniform(-0.25, 0.25, len(number))
        name_ticks(ax.xaxis, np.arange(len(labels)), labels, **slant(labels)[1])
    mean, (lower, upper) = part.mean[:, i], (bound[:, i] for bound in part.interval(prob))
    parts = [(np.full(len(part), True), color, None)]
    if direction is not None:
        parts = [(mask[:, i], *how) for mask, *how in directed(direction[:rows], part)]
    for mask, shade, words in parts:
        if mask.any():
            ax.vlines(x[mask], lower[mask], upper[mask], color=shade, alpha=0.2, lw=1)
            ax.plot(x[mask], mean[mask], "o", color=shade, ms=3.5, label=words)
    if direction is not None:
        legend_above(ax)
    ax.set_ylim(bottom=0)
    ax.grid(axis="y", alpha=0.3)
    ax.set_xlabel(name + (f" ({cut(len(part), len(posterior))} rows)" if len(part) < len(posterior) else ""),
                  **plain([name]))
    ax.set_ylabel(f"importance of {short([name], 24)[0]}\n(mean and {percent(prob)} interval)", **plain([name]))
    return ax
