"""Figures show the numbers they are given, take an Axes and return it, and are the same file twice."""

import warnings
from types import SimpleNamespace

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402
from matplotlib.colors import to_hex
from matplotlib.patches import FancyArrowPatch
from scipy import stats  # noqa: E402

from bifkit import Posterior, plots
from bifkit.evaluation import Direction
from bifkit.plots import canvas
from bifkit.plots import posterior as posterior_plots
from experiments import figures
from experiments.runner import paths  # noqa: E402

GLOBAL = Posterior([1.0, 6.0, 3.0], ["age", "sex", "pay"])
LOCAL = Posterior(np.random.default_rng(0).gamma(2.0, size=(60, 3)) + 0.1, ["age", "sex", "pay"])
PEOPLE = Posterior([[3.0, 1.0, 0.5], [1.0, 5.0, 2.0]], ["age", "sex", "pay"], index=["Ann", "Bob"])
HARD = ["a" * 30 + "_1_" + "b" * 30, "a" * 30 + "_2_" + "b" * 30, "cost in $ of US$", "年齢", "größe_α^2", r"\frac{$x",
        "tab\tand\nline", "$_{$", "", "عمر"]


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def _labels(ticks):
    return [t.get_text() for t in ticks]


def _cells(ax):
    """What a heat map draws, the first row on top."""
    assert ax.get_ylim()[0] > ax.get_ylim()[1]
    return ax.collections[0].get_array()


def test_importances_show_means_and_intervals_in_order():
    ax = plots.importances(GLOBAL, prob=0.8)
    frame = GLOBAL.to_frame(0.8).sort_values("mean", ascending=False)
    assert _labels(ax.get_yticklabels()) == ["sex", "pay", "age"]
    assert np.allclose(ax.lines[0].get_xdata(), frame["mean"]) and "80%" in ax.get_xlabel()
    segments = np.array(ax.collections[0].get_segments())  # (features, ends, xy)
    assert np.allclose(segments[:, :, 0], frame[["lower", "upper"]])
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # the most important on top
    assert len(plots.importances(GLOBAL, top=2).get_yticklabels()) == 2
    assert _labels(plots.importances(GLOBAL, sort=False).get_yticklabels()) == ["age", "sex", "pay"]
    ax = plots.importances(LOCAL, top=1)
    assert _labels(ax.get_yticklabels()) == LOCAL.to_global().top(1)
    assert "first 1 of 3 features, 60 rows averaged" in ax.get_xlabel()


def test_bars_show_mean_and_sd_within_the_simplex():
    ax = plots.bars(GLOBAL, relevant=[1], title="Syn2")
    assert np.allclose([p.get_height() for p in ax.patches], GLOBAL.mean) and ax.get_title(loc="left") == "Syn2"
    colors = [matplotlib.colors.to_hex(p.get_facecolor()).upper() for p in ax.patches]
    assert colors == [plots.GREY.upper(), plots.BLUE.upper(), plots.GREY.upper()]
    whiskers = np.array(ax.collections[0].get_segments())[:, :, 1]
    assert np.allclose(whiskers[:, 1], GLOBAL.mean + GLOBAL.sd) and (whiskers >= 0).all()
    assert np.allclose([p.get_height() for p in plots.bars(LOCAL).patches], LOCAL.mean.mean(0))
    ax = plots.bars(GLOBAL, relevant=[2], top=2)  # age, the lightest, is left out; the others keep order and colour
    assert _labels(ax.get_xticklabels()) == ["sex", "pay"] and "heaviest 2 of 3" in ax.get_xlabel()
    assert matplotlib.colors.to_hex(ax.patches[1].get_facecolor()).upper() == plots.BLUE.upper()


def test_probability_top_agrees_with_draws():
    alpha, rng = np.array([1.0, 6.0, 3.0, 0.4, 5.0]), np.random.default_rng(1)
    top = np.argsort(-rng.dirichlet(alpha, 50_000), axis=1)[:, :2]
    share = np.bincount(top.ravel(), minlength=5) / 50_000
    ax = plots.probability_top(Posterior(alpha), 2)
    order = np.argsort(-share)
    assert _labels(ax.get_yticklabels()) == [f"x{i}" for i in order]
    assert np.abs(np.array([p.get_width() for p in ax.patches]) - share[order]).max() < 0.012
    assert [t.get_text() for t in ax.texts] == [f"{p.get_width():.2f}" for p in ax.patches]
    assert ax.lines[0].get_xdata()[0] == 0.4 and "among the 2 most" in ax.get_xlabel()  # 2 of 5 by chance
    assert "0.5, if all" in plots.probability_top(Posterior([1.0, 2.0])).get_xlabel()  # k fits few features


def test_probability_top_of_rows_is_that_of_a_row_picked_at_random():
    rows = Posterior([[500.0, 1.0, 1.0], [1.0, 500.0, 1.0], [500.0, 1.0, 1.0], [500.0, 1.0, 1.0]], ["a", "b", "c"])
    ax = plots.probability_top(rows, 1)
    assert _labels(ax.get_yticklabels()) == ["a", "b", "c"] and "picked from 4" in ax.get_xlabel()
    assert np.allclose([p.get_width() for p in ax.patches], [0.75, 0.25, 0], atol=0.01)
    with pytest.raises(ValueError, match="k must lie between 1 and the number of features, 3"):
        plots.probability_top(rows, 4)


def test_ridges_are_the_beta_densities():
    posterior = Posterior([1.5, 6.0, 3.0], ["age", "sex", "pay"])
    ax = plots.ridge(posterior, prob=0.9)
    for i, name in enumerate(["sex", "pay", "age"]):
        x, edge = ax.lines[i].get_data()
        a = posterior.alpha[posterior.feature_names.index(name)]
        pdf, mode = stats.beta(a, 10.5 - a).pdf, (a - 1) / 8.5
        assert np.allclose(i - edge, 0.88 * pdf(x) / pdf(mode), atol=0.01)
    assert np.allclose(ax.lines[3].get_xdata(), np.sort(posterior.mean)[::-1]) and "90% interval" in ax.get_xlabel()
    dark = ax.collections[1].get_paths()[0].vertices[:, 0]
    assert np.allclose([dark.min(), dark.max()], stats.beta(6, 4.5).interval(0.9), atol=0.01)


@pytest.mark.parametrize("alpha", [
    [0.3, 0.2], [0.003, 0.004], [5e7, 3e7, 1.0, 0.002], [1.0, 1.0], [1e-3, 1e-3, 900.0]])
def test_ridges_cope_with_spikes(alpha):
    ax = plots.ridge(Posterior(alpha))
    edges = [line.get_ydata() for line in ax.lines[:len(alpha)]]
    # each curve is finite and reaches its own height, even where the density is infinite or narrower than a pixel
    assert all(np.isfinite(e).all() and np.isclose(np.ptp([*e, i]), 0.88, atol=0.1) for i, e in enumerate(edges))
    x, height = posterior_plots._curve(0.3, 0.2, 1.0)
    assert height[0] > 0.05 < height[-1] and height[len(x) // 2] < 0.1  # mass at both ends


def test_the_heat_map_shows_rows_in_their_order():
    ax = plots.heatmap(LOCAL, rows=10, top=2)
    keep = np.sort(np.argsort(-LOCAL.mean.mean(0))[:2])
    assert np.allclose(_cells(ax), LOCAL.mean[:10][:, keep])
    assert _labels(ax.get_xticklabels()) == [LOCAL.feature_names[i] for i in keep]
    assert ax.get_ylabel() == "instance (first 10 of 60)" and ax.get_xlabel() == "feature (heaviest 2 of 3)"
    assert _labels(plots.heatmap(PEOPLE).get_yticklabels()) == ["Ann", "Bob"]
    days = Posterior(LOCAL.alpha, index=pd.date_range("2024-01-01", periods=60))
    ax = plots.heatmap(days, rows=60)
    assert dict(zip(ax.get_yticks(), _labels(ax.get_yticklabels()), strict=True))[59.5] == "2024-02-29"
    with pytest.raises(ValueError, match="this one is global"):
        plots.heatmap(GLOBAL)


def test_the_heat_map_can_sort_its_rows():
    a, b = [9.0, 1.0, 1.0], [1.0, 1.0, 9.0]
    rows = Posterior(np.array([a, b, a, b, b, a]) + 0.01 * np.arange(6)[:, None], list("xyz"), index=list("abcdef"))
    ax = plots.heatmap(rows, sort="similar")
    order = _labels(ax.get_yticklabels())
    assert {frozenset(order[:3]), frozenset(order[3:])} == {frozenset("acf"), frozenset("bde")}
    assert np.allclose(_cells(ax), rows.mean[[rows.index.get_loc(i) for i in order]])
    drawn = _cells(plots.heatmap(rows, sort="z"))[:, 2]
    assert (np.diff(drawn) <= 0).all() and drawn[0] > drawn[-1]
    with pytest.raises(ValueError, match="'similar' or the name of a feature; got 'w'"):
        plots.heatmap(rows, sort="w")
    assert _cells(plots.heatmap(rows[:1], sort="similar")).shape == (1, 3)


VALUES = pd.DataFrame({"pay": [1234567.0, 2.5], "age": [39, 41], "sex": ["f", "m"]}, index=["Ann", "Bob"])
WRITTEN = ["sex = m", "pay = 2.5", "age = 41"]  # of Bob, the heaviest first


@pytest.mark.parametrize("posterior, values, label", [
    (PEOPLE, VALUES, "Bob"), (PEOPLE, VALUES, 1), (PEOPLE, VALUES, -1), (PEOPLE, VALUES.loc["Bob"], "Bob"),
    (PEOPLE[1], VALUES.loc["Bob"], None), (PEOPLE[1], {"age": 41, "pay": 2.5, "sex": "m"}, None),
    (PEOPLE[1:], VALUES.loc[["Bob"]], None), (PEOPLE[1], VALUES.loc[["Bob"]], None),
    (PEOPLE, VALUES.iloc[::-1], "Bob"),  # labels agree, whatever the order
    (Posterior(PEOPLE.alpha, PEOPLE.feature_names), VALUES.set_axis([1, 0]), 1),  # rows were only numbered
])
def test_a_row_stands_next_to_its_values(posterior, values, label):
    ax = plots.row(posterior, values, label)
    assert _labels(ax.get_yticklabels()) == WRITTEN
    assert np.allclose([p.get_width() for p in ax.patches], [5 / 8, 2 / 8, 1 / 8])
    ends = np.array(ax.collections[0].get_segments())[:, :, 0]
    assert np.allclose(ends[0], stats.beta(5, 3).interval(0.95))
    assert ax.get_title(loc="left") in ("row Bob", "row 1", "")


def test_a_row_takes_arrays_tensors_and_groups():
    matrix = np.array([[39, 0, 1e12], [41.123456, -12345.6, np.nan]])
    assert _labels(plots.row(PEOPLE, matrix, 1).get_yticklabels()) == ["sex = -12,346", "pay = nan", "age = 41.12"]
    assert _labels(plots.row(PEOPLE[0], torch.tensor(matrix[0], requires_grad=True)).get_yticklabels()) == [
        "age = 39", "sex = 0", "pay = 1e+12"]
    both = PEOPLE.group({"body": ["age", "sex"]})
    assert _labels(plots.row(both, VALUES, "Ann").get_yticklabels()) == ["body", "pay = 1,234,567"]


@pytest.mark.parametrize("draw, message", [
    (lambda: plots.row(GLOBAL, VALUES, "Ann"), "row 'Ann' needs a posterior for each row, and this one is global"),
    (lambda: plots.row(PEOPLE, VALUES), "has 2 rows: say which"),
    (lambda: plots.row(PEOPLE[0], VALUES), "values has 2 rows: give the one explained"),
    (lambda: plots.row(PEOPLE, VALUES, "Eve"), "no row 'Eve'.*'Ann'"),
    (lambda: plots.row(PEOPLE, VALUES, 2), "no row 2"),
    (lambda: plots.row(PEOPLE, VALUES.set_axis(["x", "y"]), "Ann"), "no label tells which is row 'Ann'"),
    (lambda: plots.row(PEOPLE, np.zeros((3, 3)), "Ann"), "values has 3 rows and the posterior 2"),
    (lambda: plots.row(PEOPLE[0], [1, 2]), r"each of the 3 features; got shape \(2,\)"),
    (lambda: plots.row(PEOPLE[0], {"height": 3}), "none of the posterior's features: it has height"),
    (lambda: plots.row(Posterior(PEOPLE.alpha, index=[7, 7]), np.zeros((2, 3)), 7), "more than one row"),
    (lambda: plots.compare({"a": GLOBAL}), "at least two posteriors"),
    (lambda: plots.dependence(GLOBAL, VALUES, "age"), "this one is global"),
    (lambda: plots.dependence(PEOPLE, VALUES, "height"), "unknown feature 'height'"),
    (lambda: plots.dependence(PEOPLE, VALUES.iloc[:1], "age"), "X has 1 rows and the posterior 2"),
    (lambda: plots.dependence(PEOPLE, VALUES[["pay"]], "age"), "X has no column 'age'"),
    (lambda: plots.importances(LOCAL, direction=_way(GLOBAL, [1, 1, 1])), "that of this posterior"),
    (lambda: plots.compare({"a": GLOBAL, "b": Posterior([1.0, 2.0])}), "'b' is not over .* age, pay"),
    (lambda: plots.compare({"a": GLOBAL, "b": LOCAL}, ax=plt.subplots()[1]), "give two Axes"),
])
def test_what_cannot_be_drawn_is_said(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()


def _way(posterior, mean, margin=0.2, output="log-odds of class 1"):
    mean = np.asarray(mean, float)
    return Direction(mean, mean - margin, mean + margin, posterior.feature_names, posterior.index, output)


def _colours(artists):
    return [matplotlib.colors.to_hex(a).upper() for a in artists]


def _whole(figure):
    """All that is drawn stands on the page."""
    figure.draw_without_rendering()
    box, page = figure.get_tightbbox(), figure.get_size_inches()
    assert box.x0 > -0.01 and box.y0 > -0.01 and box.x1 < page[0] + 0.01 and box.y1 < page[1] + 0.01


def test_a_line_stands_where_relevant_begins():
    ax = plots.importances(GLOBAL)
    assert ax.lines[1].get_xdata() == [1 / 6, 1 / 6] and "0.17, half an equal share" in ax.get_xlabel()
    assert len(plots.importances(GLOBAL, threshold=False).lines) == 1
    above = GLOBAL.probability_above(ax.lines[1].get_xdata()[0]) > 0.7
    assert np.array_equal(above, GLOBAL.relevant().mask)


def test_direction_is_colour():
    ax = plots.importances(GLOBAL, direction=_way(GLOBAL, [0.5, -0.5, np.nan]))
    shown = {line.get_label().split()[0]: line for line in ax.lines[:3]}
    for words, name, color in (("raises", "age", plots.RED), ("lowers", "sex", plots.BLUE), ("no", "pay", plots.GREY)):
        i = GLOBAL.feature_names.index(name)
        assert shown[words].get_color() == color and np.allclose(shown[words].get_xdata(), GLOBAL.mean[i])
        assert _labels(ax.get_yticklabels())[int(shown[words].get_ydata()[0])] == name
    assert _labels(ax.get_legend().get_texts()) == ["raises the log-odds of class 1", "lowers it", "no clear sign"]
    sign = np.random.default_rng(0).choice([-1.0, 1.0], size=(60, 3))
    ax = plots.heatmap(LOCAL, direction=_way(LOCAL, sign), rows=10)
    assert np.allclose(_cells(ax), LOCAL.mean[:10] * sign[:10]) and ax.collections[0].norm.vmin < 0
    assert "blue lowers the\nlog-odds of class 1" in ax.figure.axes[1].get_ylabel()


def test_a_row_goes_to_both_sides():
    way = _way(PEOPLE, [[1.0, -1.0, 0.1], [0.7, -0.6, 0.05]])
    for given, label in ((way, "Bob"), (way[1], None)):
        ax = plots.row(PEOPLE if label else PEOPLE[1], VALUES.loc["Bob"], label, direction=given)
        assert _labels(ax.get_yticklabels()) == WRITTEN  # sex lowers, pay is unclear, age raises
        assert np.allclose([p.get_width() for p in ax.patches], [-5 / 8, 2 / 8, 1 / 8])
        assert _colours(p.get_facecolor()[:3] for p in ax.patches) == [plots.BLUE, plots.GREY, plots.RED]
        ends = np.array(ax.collections[0].get_segments())[:, :, 0]
        assert np.allclose(np.sort(-ends[0]), stats.beta(5, 3).interval(0.95))
        assert [t.get_text() for t in ax.texts] == ["-0.6", "+0.05", "+0.7"] and "left: lowers it" in ax.get_xlabel()
        low, high = ax.get_xlim()
        assert low < ends.min() and high > ends.max()


def test_labels_of_rows_come_before_positions():
    swapped = Posterior(PEOPLE.alpha, PEOPLE.feature_names, index=[1, 0])
    ax = plots.row(swapped, VALUES.set_axis([1, 0]), 1)
    assert ax.get_title(loc="left") == "row 1" and _labels(ax.get_yticklabels())[0] == "age = 39"  # the first row


@pytest.mark.parametrize("values", [np.linspace(20, 60, 60), pd.date_range("2024-01-01", periods=60)])
def test_dependence_shows_each_row_at_its_value(values):
    X = pd.DataFrame({"sex": 0.0, "age": values})
    ax = plots.dependence(LOCAL, X, "age", prob=0.5)
    assert np.array_equal(ax.lines[0].get_xdata(), X["age"].to_numpy())
    assert np.allclose(ax.lines[0].get_ydata(), LOCAL.mean[:, 0]) and ax.get_xlabel() == "age"
    ends = np.array(ax.collections[0].get_segments())[7, :, 1]
    assert np.allclose(ends, [bound[7, 0] for bound in LOCAL.interval(0.5)]) and "50% interval" in ax.get_ylabel()


def test_dependence_of_categories_arrays_and_directions():
    town = np.array(["Oslo", "Rome", None] * 20, dtype=object)
    ax = plots.dependence(LOCAL, pd.DataFrame({"age": town}), 0, rows=30)
    assert _labels(ax.get_xticklabels()) == ["(missing)", "Oslo", "Rome"] and "first 30 of 60 rows" in ax.get_xlabel()
    at = {"Oslo": 1, "Rome": 2, None: 0}
    assert np.abs(ax.lines[0].get_xdata() - [at[t] for t in town[:30]]).max() <= 0.25
    sign = np.where(np.arange(60)[:, None] % 2, 1.0, -1.0) * np.ones(3)
    ax = plots.dependence(LOCAL, torch.zeros(60, 3), "pay", direction=_way(LOCAL, sign))
    assert [len(line.get_xdata()) for line in ax.lines] == [30, 30] and len(ax.get_legend().get_texts()) == 2


def test_groups_are_sums_with_their_members_inside():
    ax = plots.groups(GLOBAL, {"body": ["age", "sex"]}, prob=0.8)
    both = GLOBAL.group({"body": ["age", "sex"]})
    assert _labels(ax.get_yticklabels()) == ["body", "pay"]
    widths = [(round(p.get_y() + p.get_height() / 2), p.get_x(), p.get_width()) for p in ax.patches]
    assert np.allclose(widths, [(0, 0, 0.6), (0, 0.6, 0.1), (1, 0, 0.3)])  # sex, age; pay
    ends = np.array(ax.collections[0].get_segments())[:, :, 0]
    assert np.allclose(ends, np.stack(both.interval(0.8), 1)) and [t.get_text() for t in ax.texts][:1] == ["sex"]
    ax = plots.groups(LOCAL, {"all but pay": ["age", "sex"]}, members=1, top=1)
    assert len(ax.patches) == 2 and "first 1 of 2 groups, 60 rows averaged" in ax.get_xlabel()


@pytest.mark.parametrize("names", [("a", "b"), ("a network with a long name", "a forest"), list("abcdefgh")])
def test_a_comparison_is_saved_whole(names):
    _whole(plots.compare({name: GLOBAL if i % 2 else LOCAL for i, name in enumerate(names)}))


def test_figures_of_directions_are_saved_whole():
    best = "log-odds of the row's predicted class"
    local = Posterior(LOCAL.alpha[:5].repeat(10, 1), [f"a feature with a long name {i}" for i in range(30)])
    way = _way(local, np.where(np.arange(150).reshape(5, 30) % 2, 1.0, -1.0), output=best)
    one = _way(local[0], way.mean[0], output="log-odds of class 1")
    for ax in (plots.row(local, np.zeros((5, 30)), 2, direction=way), plots.heatmap(local, direction=way),
               plots.importances(local[0], direction=one), plots.groups(local, {"first": list(range(9))})):
        _whole(ax.figure)


def test_comparison_has_every_model_and_the_kl_between_them():
    other = Posterior([2.0, 2.0, 5.0], ["pay", "age", "sex"])  # the same features in another order
    models = {"net": GLOBAL, "forest": other, "rows": LOCAL}
    figure = plots.compare(models, prob=0.5)
    left, right = figure.axes
    assert _labels(left.get_legend().get_texts()) == list(models)
    shown = [dict(zip(_labels(left.get_yticklabels()), line.get_xdata(), strict=True)) for line in left.lines]
    for drawn, posterior in zip(shown, models.values(), strict=True):
        truth = dict(zip(posterior.feature_names, posterior.to_global().mean, strict=True))
        assert all(np.isclose(drawn[name], truth[name]) for name in truth)
    heights = np.array([line.get_ydata() for line in left.lines])
    assert (np.diff(heights, axis=0) > 0.1).all() and np.allclose(heights.mean(0), [0, 1, 2])  # dodged about the name
    assert len({line.get_marker() for line in left.lines}) == 3  # not by colour alone
    alphas = [[1, 6, 3], [2, 5, 2], LOCAL.to_global().alpha]
    dirichlets = [torch.distributions.Dirichlet(torch.as_tensor(a, dtype=torch.float64)) for a in alphas]
    kl = [[float(torch.distributions.kl_divergence(p, q)) for q in dirichlets] for p in dirichlets]
    assert np.allclose(_cells(right), kl, atol=1e-9)
    assert [t.get_text() for t in right.texts[:2]] == ["0.00", f"{kl[0][1]:.2f}"]
    assert "KL in nats,\nrow to column" in right.get_title(loc="left")
    axes = plt.subplots(1, 2)[1]
    assert plots.compare(models, ax=axes) is axes and axes[0].lines and _cells(axes[1]).shape == (3, 3)


def test_a_posterior_chooses_its_own_figure():
    assert GLOBAL.plot().lines and _cells(LOCAL.plot()).shape == (40, 3)


def test_grouped_bars_show_the_frame_and_its_errors():
    frame = pd.DataFrame({"paper": [1.0, 2.0], "ours": [3.0, 4.0]}, index=["Syn1", "Syn2"])
    ax = figures.grouped_bars(frame, errors=frame / 10, ylabel="MCC")
    assert [p.get_height() for p in ax.patches] == [1, 2, 3, 4] and ax.get_ylabel() == "MCC"
    assert np.allclose(np.array(ax.collections[1].get_segments())[:, :, 1], [[2.7, 3.3], [3.6, 4.4]])
    centres = [np.mean([p.get_x() + p.get_width() / 2 for p in ax.patches[i::2]]) for i in (0, 1)]
    assert np.allclose(centres, [0, 1]) and _labels(ax.get_xticklabels()) == ["Syn1", "Syn2"]


@pytest.mark.parametrize("draw", [figures.grouped_bars, figures.grouped_dots])
def test_the_papers_values_are_marked_where_they_belong(draw):
    frame = pd.DataFrame({"a": [50.0, 60.0], "b": [70.0, 80.0], "c": [90.0, 99.0]}, index=["Syn1", "Syn2"])
    paper = pd.DataFrame({"a": [40.0, 30.0], "c": [np.nan, 95.0]}, index=["Syn1", "Syn2"])
    ax = draw(frame, errors=frame * 0 + 15, paper=paper)
    (marks,) = [line for line in ax.lines if line.get_label() == "the paper's value"]
    seen = {(round(x, 3), y) for x, y in zip(*marks.get_data(), strict=True) if np.isfinite(y)}
    left = 0.8 / 3  # three columns share .8 of a group
    assert seen == {(round(-left, 3), 40.0), (round(1 - left, 3), 30.0), (round(1 + left, 3), 95.0)}
    low, high = ax.get_ylim()
    assert low < 30 and high > 114  # no error bar and no mark is cut
    assert "the paper's value" in ax.get_legend_handles_labels()[1]


def test_points_stand_where_bars_would():
    frame = pd.DataFrame({"paper": [1.0, 2.0], "ours": [3.0, 4.0]}, index=["Syn1", "Syn2"])
    bars, dots = figures.grouped_bars(frame), figures.grouped_dots(frame, ylabel="MCC")
    middles = sorted(p.get_x() + p.get_width() / 2 for p in bars.patches)
    assert np.allclose(sorted(x for c in dots.containers for x in c.lines[0].get_xdata()), middles)
    assert _labels(dots.get_xticklabels()) == ["Syn1", "Syn2"] and dots.get_ylabel() == "MCC"


def test_the_elbo_curve_has_one_line_per_restart():
    ax = plots.elbo_curve(SimpleNamespace(history_=[[-3.0, -2.0, -1.0], [-4.0, -1.5, -1.2]]))
    assert [line.get_ydata()[-1] for line in ax.lines] == [-1.0, -1.2] and ax.lines[0].get_xdata()[-1] == 100


def test_the_schematic_names_the_parts():
    ax = figures.schematic()
    text = " ".join(t.get_text() for t in ax.texts)
    assert all(word in text for word in ("Global", "Local", "Dir(α)", "prior", "KL(", "frozen", "never changes"))
    colours = {t.get_text(): to_hex(t.get_color()) for t in ax.texts}  # as in the paper: a blue box and a black one
    assert colours["Global explanation"] == colours["back-propagation to α"] == plots.BLUE.lower()
    assert colours["Local explanation"] == colours["back-propagation to the network's weights"] == "#000000"
    assert sum(isinstance(p, FancyArrowPatch) and p.get_linestyle() in (":", "dotted") for p in ax.patches) == 2


DRAWN = {
    "importances": lambda ax: plots.importances(GLOBAL, ax=ax), "bars": lambda ax: plots.bars(GLOBAL, ax=ax),
    "probability_top": lambda ax: plots.probability_top(GLOBAL, ax=ax), "ridge": lambda ax: plots.ridge(GLOBAL, ax=ax),
    "heatmap": lambda ax: plots.heatmap(LOCAL, ax=ax), "row": lambda ax: plots.row(PEOPLE, VALUES, "Ann", ax=ax),
    "side_by_side": lambda ax: plots.side_by_side({"a": GLOBAL, "b": LOCAL}, ax=ax),
    "kl_matrix": lambda ax: plots.kl_matrix({"a": GLOBAL, "b": LOCAL}, ax=ax),
    "overlay": lambda ax: plots.overlay(GLOBAL, np.eye(2), groups=[0, 1, 2, 2], ax=ax),
    "groups": lambda ax: plots.groups(GLOBAL, {"body": ["age", "sex"]}, ax=ax),
    "dependence": lambda ax: plots.dependence(PEOPLE, VALUES, "age", ax=ax),
    "schematic": lambda ax: figures.schematic(ax=ax), "plot": lambda ax: GLOBAL.plot(ax=ax),
    "grouped_bars": lambda ax: figures.grouped_bars(pd.DataFrame({"a": [1]}), ax=ax),
    "grouped_dots": lambda ax: figures.grouped_dots(pd.DataFrame({"a": [1]}), ax=ax),
    "elbo_curve": lambda ax: plots.elbo_curve(SimpleNamespace(history_=[[0.0]]), ax=ax),
}


@pytest.mark.parametrize("name", DRAWN)
def test_an_axes_goes_in_and_comes_out(name, monkeypatch):
    monkeypatch.setattr(plt, "show", lambda *a, **k: pytest.fail("a figure was shown"))
    ax = plt.subplots()[1]
    before, settings = plt.get_fignums(), dict(plt.rcParams)
    assert DRAWN[name](ax) is ax and plt.get_fignums() == before
    assert DRAWN[name](None).figure.number not in before  # a new figure, in our style
    assert dict(plt.rcParams) == settings  # and the caller's settings as they were


def test_new_figures_have_the_style_and_say_so_in_their_frame():
    plt.rcdefaults()
    ax = plots.importances(GLOBAL)
    assert not ax.spines["top"].get_visible() and ax.figure.dpi == plots.STYLE["figure.dpi"]


@pytest.mark.parametrize("n", [2, 10, 500])
def test_hard_names_and_many_features_draw_without_a_warning(n):
    rng = np.random.default_rng(n)
    names = [*HARD, *(f"gene_{i}" for i in range(500))][:n]
    one = Posterior(rng.gamma(0.7, size=n) + 1e-3, names)
    rows = Posterior(rng.gamma(0.7, size=(7, n)) + 1e-3, names, index=["$_{$", *"bcdefg"])  # no mathematics: it fails
    values = dict(zip(names, ["$_{$ 年", *range(n - 1)], strict=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if canvas.LAST_RESORT not in canvas.font_manager.get_font_names():  # older matplotlib
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figures = [plots.importances(one), plots.probability_top(rows), plots.ridge(one), plots.bars(one),
                   plots.heatmap(rows), plots.heatmap(rows[:1], sort="similar"), plots.row(rows, values, 0),
                   plots.compare({"$_{$ 年": one, "x" * 60: rows})]
        for figure in figures:
            getattr(figure, "figure", figure).draw_without_rendering()
    for ax in (*figures[:5], figures[6], figures[7].axes[0]):
        assert ("of 500" in ax.get_xlabel()) == (n == 500), ax.get_xlabel()
    if n == 10:
        shown = _labels(figures[0].get_yticklabels())
        assert len(set(shown)) == 10 and "cost in $ of US$" in shown and "tab and line" in shown  # literal, one line


def test_names_stay_inside_the_figure():
    posterior = Posterior(np.arange(1.0, 11.0), HARD)
    for ax in (plots.importances(posterior), plots.ridge(posterior), plots.bars(posterior), plots.heatmap(
            Posterior(posterior.alpha[None].repeat(4, 0), HARD))):
        ax.figure.draw_without_rendering()
        names = [t for t in (*ax.get_xticklabels(), *ax.get_yticklabels()) if t.get_text() in canvas.short(HARD)]
        assert len(names) == 10
        for box in (t.get_window_extent() for t in (*names, ax.xaxis.label, ax.yaxis.label) if t.get_text()):
            assert box.x0 > -1 and box.y0 > -1 and box.x1 < ax.figure.bbox.x1 + 1 and box.y1 < ax.figure.bbox.y1 + 1
        assert ax.get_window_extent().width > 100 and ax.get_window_extent().height > 80  # and leave room to draw


def test_letters_the_font_lacks_come_from_one_that_has_them():
    assert "fontfamily" not in canvas.plain(["age", "größe"]) and canvas.plain(["年"])["fontfamily"][-1]
    assert canvas._font_with("a") is None and canvas._font_with("年") is not None


def test_the_same_figure_is_the_same_file():
    def files():
        figures.save(plots.importances(GLOBAL), "test_figure")
        return [(paths.figures() / f"test_figure.{ending}").read_bytes() for ending in ("png", "pdf")]

    first = files()
    assert first == files() and first[0][:4] == b"\x89PNG" and first[1][:4] == b"%PDF"
    assert b"CreationDate" not in first[1]
    assert figures.save(plots.axes(size=(1, 1)).figure, "test_figure").axes  # a Figure is saved too
