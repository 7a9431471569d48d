"""What the charts of the paper's tables must hold: its values, bars from zero, nothing cut, one scale to compare."""

import itertools
import json

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.patches import Rectangle

from experiments import bench, mnist_report, synthetic, tabular
from experiments.mnist import KS
from experiments.runner.scoreboard import numbers

PAPER = numbers().set_index(["item", "row", "column"])["value"]


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def nothing_is_cut(ax):
    """Every error bar, bar and point lies within the axes; bars start at zero."""
    low, high = ax.get_ylim()
    ends = [y for c in ax.collections if hasattr(c, "get_segments") for s in c.get_segments() for y in s[:, 1]]
    ends += [y for line in ax.lines if len(line.get_xdata()) > 2 for y in line.get_ydata()]
    bars = [p for p in ax.patches if isinstance(p, Rectangle)]
    ends += [y for p in bars for y in (p.get_y(), p.get_y() + p.get_height())]
    ends = np.array(ends, float)[np.isfinite(ends)]
    assert len(ends) and low <= ends.min() and ends.max() <= high
    assert all(p.get_y() == 0 for p in bars)


def marked(ax):
    """The values that the legend calls the paper's."""
    (marks,) = [line for line in ax.lines if line.get_label() == "the paper's value"]
    return sorted(y for y in marks.get_ydata() if np.isfinite(y))


def syn_runs():
    rng, rows = np.random.default_rng(0), []
    for name, method, seed in itertools.product(("Syn1", "Syn2", "Syn3", "Syn4"), synthetic.METHODS, range(2)):
        alpha = rng.gamma(1.0, size=11) + 0.1
        rows.append({"dataset": name, "method": method, "seed": seed, "error": "", "mcc": rng.uniform(-5, 100),
                     "alpha": json.dumps(alpha.tolist()), "shares": json.dumps((alpha / alpha.sum()).tolist()),
                     "selection": json.dumps([1.0, 1.0, 0.9] + [0.1] * 8) if method == "INVASE" else np.nan})
    return pd.DataFrame(rows)


def test_table1_as_bars_has_the_papers_values_and_the_printed_method():
    ax = synthetic.bars(syn_runs())
    nothing_is_cut(ax)
    names = ax.get_legend_handles_labels()[1]
    assert {"bifkit (local)", "BIF (inst, samp)", "BIF (inst, pe)", "INVASE", "the paper's value"} <= set(names)
    own = [84.0, 93.6, 100, 100]  # its best BIF, beside ours
    theirs = [PAPER["table1", r, c] for r in ("BIF (inst, samp)", "BIF (inst, pe)", "L2X", "INVASE", "SHAP", "LIME")
              for c in ("Syn1", "Syn2", "Syn3", "Syn4")]
    assert marked(ax) == sorted(own + theirs)


def test_figure2_has_one_scale_and_the_papers_sums():
    figure = synthetic.figure2(syn_runs())
    assert len(figure.axes) == 4 and len({ax.get_ylim() for ax in figure.axes}) == 1
    for ax, paper in zip(figure.axes, ("0.25", "0.25", "0.49", "0.49"), strict=True):
        nothing_is_cut(ax)
        assert f"(the paper {paper})" in ax.get_title(loc="left")
    assert [t.get_text() for t in figure.axes[2].get_xticklabels()][:5] == ["X1\n(X7)", "X2\n(X8)", "X3\n(X9)",
                                                                          "X4\n(X10)", "X5"]


def test_selection_probabilities_are_not_made_shares():
    figure = synthetic.learned_importance(syn_runs())
    ours, literal, shap, invase = figure.axes
    assert len({ax.get_ylim() for ax in figure.axes}) == 1 and invase.get_ylim()[0] == 0
    assert np.allclose([p.get_height() for p in invase.patches], [1.0, 1.0, 0.9] + [0.1] * 8)
    assert sum(p.get_height() for p in ours.patches) == pytest.approx(1) and "probability" in invase.get_ylabel()
    unstored = synthetic.learned_importance(syn_runs().drop(columns="selection")).axes[3]
    assert unstored.get_ylabel() == "share"  # rows of before the probabilities were kept


def test_table2_as_points_has_the_papers_values_on_one_scale():
    rng = np.random.default_rng(0)
    runs = pd.DataFrame([{"dataset": d, "method": m, "seed": s, "error": "",
                          **{f"{kind}_{k}": rng.uniform(40, 100) for kind in tabular.KINDS for k in tabular.KS}}
                         for d in tabular.DATASETS for m in ("bifkit", "BIF", "L2X", "oracle") for s in range(3)])
    figure = tabular.figure(runs)
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()
    for ax, kind in zip(figure.axes, ("global", "local"), strict=True):
        nothing_is_cut(ax)
        assert not [p for p in ax.patches if isinstance(p, Rectangle)]
        theirs = {m: [PAPER["table2", f"{m} ({kind})", c] for c in tabular.COLUMNS] for m in ("BIF", "L2X")}
        assert marked(ax) == sorted(2 * theirs["BIF"] + theirs["L2X"])


def test_mnist_as_points_has_the_papers_values():
    rng = np.random.default_rng(0)
    runs = pd.DataFrame([{"method": m, "seed": s, "error": "", "figure": s == 0,
                          **{f"{w}_{k}": rng.uniform(0.5, 1) for w in ("acc", "top_acc") for k in KS}}
                         for m in ("bifkit", "BIF", "INVASE", "oracle") for s in range(3)])
    ax = mnist_report.chart(runs)
    nothing_is_cut(ax)
    theirs = {m: [PAPER["mnist", m, f"k={k}"] for k in KS] for m in ("BIF", "INVASE")}
    assert marked(ax) == sorted(2 * theirs["BIF"] + theirs["INVASE"])


def test_a_log_axis_has_points_and_no_bars(monkeypatch):
    table = pd.DataFrame({"once fitted": [0.01, 3.0], "with the fit": [2.0, 3.0]}, index=["LocalBIF", "LIME"])
    monkeypatch.setattr(bench, "explain_table", lambda frame, size: table)
    ax = bench.explain_figure(None, 1000)
    assert ax.get_xscale() == "log" and not [p for p in ax.patches if isinstance(p, Rectangle)]
    assert ax.get_legend_handles_labels()[1] == ["with the fit", "once fitted"] and "1,000 rows" in ax.get_xlabel()
