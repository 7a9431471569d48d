"""Tables of EVAL-X from made-up runs: who is level with the fixed set, and who is ahead."""

import numpy as np
import pandas as pd
import pytest

from experiments import planted, selections
from experiments.runner import paths, scoreboard
from experiments.selections import FIXED, SURROGATE

CELLS = {"k=1": (None, 1)}


def runs(**values):
    """Two seeds of each method; the second is one point higher, on the sample all are ten lower."""
    lines = [{"method": m, "seed": s, "error": "", "encoding_1": 0.2 if m == "L2X" else 0.0, "encodes_1": m == "L2X",
              **{f"evalx_{v}_1": x + s for v in selections.VARIANTS},
              **{f"evalx_{v}_1_sample": x + s - 10 for v in selections.VARIANTS}}
             for m, x in values.items() for s in (0, 1)]
    return pd.DataFrame(lines).replace({"method": {"surrogate": SURROGATE, "fixed": FIXED}})


def test_ours_stands_beside_the_fixed_set_and_the_best_other():
    frame = runs(bifkit=80.0, surrogate=85.0, fixed=84.0, L2X=90.0, LIME=72.0, oracle=99.0)
    out = selections.against_fixed(frame, CELLS, slow=["LIME"], not_rivals=["oracle"]).set_index(["variant", "method"])
    few, better = out.loc[("half", "bifkit")], out.loc[("sizes", SURROGATE)]
    assert few["over fixed"] == -4 and not few["level"] and better["over fixed"] == 1 and better["level"]
    assert few["best other"] == "L2X" and few["lead"] == 10 and better["lead"] == 5
    slow = selections.against_fixed(frame[frame["method"] != "L2X"], CELLS, slow=["LIME"], not_rivals=["oracle"])
    assert slow.set_index(["variant", "method"]).loc[("half", "bifkit"), "lead"] == -8  # 62 and 70, both on its sample
    lines = selections.findings(out.reset_index(), selections.encoders(frame, CELLS, ["bifkit", "L2X"]))
    assert "bifkit: at least level with the fixed set in 0 of 2 cells; below: k=1 sizes by 4" in lines[0]
    assert "behind: k=1 sizes (L2X by 5)" in lines[3] and lines[-1].endswith("bifkit 0 of 1 cells, L2X 1 of 1 cells")


def test_level_is_within_a_standard_error():
    frame = runs(bifkit=80.0, fixed=80.2)
    frame.loc[(frame["seed"] == 1) & (frame["method"] == "bifkit"), ["evalx_half_1", "evalx_sizes_1"]] += 1.0
    out = selections.against_fixed(frame, CELLS)
    assert out["over fixed"].tolist() == pytest.approx([0.3, 0.3]) and out["error"].tolist() == pytest.approx([0.5] * 2)
    assert out["level"].all()


def test_nothing_run_leaves_empty_tables():
    frame = runs(bifkit=80.0).assign(error="not run: no data")
    assert selections.against_fixed(frame, CELLS).empty
    assert selections.table(frame, "evalx_half_{k}", CELLS, ["bifkit"])[0].isna().all(axis=None)
    assert selections.findings(selections.against_fixed(frame, CELLS), None) == ["not run"]


def test_the_readme_has_the_numbers(tmp_path, monkeypatch):
    monkeypatch.setenv("BIF_OUTPUT", str(tmp_path))
    assert scoreboard.evalx_sentence() == ""
    paths.results().mkdir(parents=True, exist_ok=True)
    runs(bifkit=0.5, surrogate=0.9, fixed=0.8).to_csv(paths.results() / "mnist.csv", index=False)
    assert scoreboard.evalx().loc["MNIST k=1"].tolist() == pytest.approx([1.0, 1.4, 1.3])
    assert "found greedily, in 0 of 1 cells of MNIST; with the surrogate in 1 of 1 cells of MNIST." \
        in scoreboard.evalx_sentence()
    assert scoreboard.evalx_sentence() in scoreboard.more()
    assert "EVAL-X" not in scoreboard.readme_table()  # only k = 1 was scored: no line without a number for each k
    five = runs(bifkit=0.5, fixed=0.8)
    for k in range(1, 6):
        five[f"evalx_sizes_{k}"] = 0.7 + k / 100
    five.to_csv(paths.results() / "mnist.csv", index=False)
    assert "EVAL-X 0.710 / 0.720 / 0.730 / 0.74 / 0.750" in scoreboard.readme_table()  # as many digits as are printed


@pytest.mark.parametrize("kind", [*planted.ENCODERS, *planted.HONEST])
def test_planted_selections_are_what_they_say(kind):
    rule = "switch" if kind.startswith("switch") else "sum"
    X, y, score = planted.rows(rule, 100, 3000)
    kept = planted.chosen(kind, X, score, 100)
    assert kept.shape == X.shape and kept.any(1).all()
    if kind in ("position", "margin", "place by a kept value"):
        assert not kept[:, :3].any()  # nothing that matters is shown
    if kind in ("switch kept", "place by a kept value"):
        assert kept[:, 3].all()
    agree = ((score > 0) == y).mean()
    assert 0.8 < agree < 0.95  # the label is a draw, not the score's sign
    assert np.array_equal(kept, planted.chosen(kind, X, score, 100))
