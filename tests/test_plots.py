"""Figures show the numbers they are given, take an Axes and return it, and are the same file twice."""

from types import SimpleNamespace

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
import pytest  # noqa: E402

from bifkit import Posterior, paths, plots  # noqa: E402

GLOBAL = Posterior([1.0, 6.0, 3.0], ["age", "sex", "pay"])
LOCAL = Posterior(np.random.default_rng(0).gamma(2.0, size=(60, 3)) + 0.1, ["age", "sex", "pay"])


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def _labels(ticks):
    return [t.get_text() for t in ticks]


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
    assert _labels(plots.importances(LOCAL, top=1).get_yticklabels()) == LOCAL.to_global().top(1)


def test_bars_show_mean_and_sd_within_the_simplex():
    ax = plots.bars(GLOBAL, relevant=[1], title="Syn2")
    assert np.allclose([p.get_height() for p in ax.patches], GLOBAL.mean) and ax.get_title(loc="left") == "Syn2"
    colors = [matplotlib.colors.to_hex(p.get_facecolor()).upper() for p in ax.patches]
    assert colors == [plots.GREY.upper(), plots.BLUE.upper(), plots.GREY.upper()]
    whiskers = np.array(ax.collections[0].get_segments())[:, :, 1]
    assert np.allclose(whiskers[:, 1], GLOBAL.mean + GLOBAL.sd) and (whiskers >= 0).all()
    assert np.allclose([p.get_height() for p in plots.bars(LOCAL).patches], LOCAL.mean.mean(0))


def test_the_heat_map_shows_rows_in_their_order():
    ax = plots.heatmap(LOCAL, rows=10, top=2)
    keep = np.sort(np.argsort(-LOCAL.mean.mean(0))[:2])
    assert np.allclose(ax.images[0].get_array(), LOCAL.mean[:10][:, keep])
    assert _labels(ax.get_xticklabels()) == [LOCAL.feature_names[i] for i in keep]
    assert ax.get_ylabel() == "instance (first 10 of 60)"
    assert plots.heatmap(GLOBAL).images[0].get_array().shape == (1, 3)


def test_a_posterior_chooses_its_own_figure():
    assert GLOBAL.plot().lines and LOCAL.plot().images


def test_grouped_bars_show_the_frame_and_its_errors():
    frame = pd.DataFrame({"paper": [1.0, 2.0], "ours": [3.0, 4.0]}, index=["Syn1", "Syn2"])
    ax = plots.grouped_bars(frame, errors=frame / 10, ylabel="MCC")
    assert [p.get_height() for p in ax.patches] == [1, 2, 3, 4] and ax.get_ylabel() == "MCC"
    assert np.allclose(np.array(ax.collections[1].get_segments())[:, :, 1], [[2.7, 3.3], [3.6, 4.4]])
    centres = [np.mean([p.get_x() + p.get_width() / 2 for p in ax.patches[i::2]]) for i in (0, 1)]
    assert np.allclose(centres, [0, 1]) and _labels(ax.get_xticklabels()) == ["Syn1", "Syn2"]


def test_the_elbo_curve_has_a_line_a_restart():
    ax = plots.elbo_curve(SimpleNamespace(history_=[[-3.0, -2.0, -1.0], [-4.0, -1.5, -1.2]]))
    assert [line.get_ydata()[-1] for line in ax.lines] == [-1.0, -1.2] and ax.lines[0].get_xdata()[-1] == 100


def test_the_schematic_names_the_parts():
    text = " ".join(t.get_text() for t in plots.schematic().texts)
    assert all(word in text for word in ("global", "local", "Dir(α)", "frozen g", "gradient", "never changes"))


@pytest.mark.parametrize("draw", [
    lambda ax: plots.importances(GLOBAL, ax=ax), lambda ax: plots.bars(GLOBAL, ax=ax),
    lambda ax: plots.heatmap(LOCAL, ax=ax), lambda ax: plots.schematic(ax=ax), lambda ax: GLOBAL.plot(ax=ax),
    lambda ax: plots.grouped_bars(pd.DataFrame({"a": [1]}), ax=ax),
    lambda ax: plots.elbo_curve(SimpleNamespace(history_=[[0.0]]), ax=ax),
])
def test_an_axes_goes_in_and_comes_out(draw):
    ax = plt.subplots()[1]
    before = plt.get_fignums()
    assert draw(ax) is ax and plt.get_fignums() == before


def test_the_same_figure_is_the_same_file():
    def files():
        plots.save(plots.importances(GLOBAL), "test_figure")
        return [(paths.figures() / f"test_figure.{ending}").read_bytes() for ending in ("png", "pdf")]

    first = files()
    assert first == files() and first[0][:4] == b"\x89PNG" and first[1][:4] == b"%PDF"
    assert b"CreationDate" not in first[1]
