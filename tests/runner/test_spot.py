"""Spot checks: what is allowed, what raises, and that nothing agrees which was not trained."""

import math
import sys
from pathlib import Path

import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import study_runs as runs  # noqa: E402

from experiments import spots  # noqa: E402
from experiments.runner import paths, rows, spot, study  # noqa: E402

GOOD, LINE = {"kind": "good", "seed": 0}, "spot check good / seed 0: the live run agrees with the stored row"


@pytest.fixture(autouse=True)
def output(tmp_path, monkeypatch):
    monkeypatch.setenv("BIF_OUTPUT", str(tmp_path))
    monkeypatch.delenv("BIF_RESUME", raising=False)


def stored(*values, **more):
    """Rows of ``runs.mixed``, whose live score is 0.5 in every run: seed 0 first."""
    frame = pd.DataFrame({"kind": "good", "seed": range(len(values)), "score": values, "error": ""})
    return frame.assign(**more)


def measured(difference, *, run="good / seed 0", function="study_runs.mixed", score="score"):
    """Write the csv of differences between CPUs with one line."""
    line = {"function": function, "run": run, "score": score, "difference": difference}
    pd.DataFrame([line]).to_csv(rows.file("capabilities"), index=False)


def check(frame, params=GOOD, score="score", within=None):
    return spot.spot_check(runs.mixed, params, frame, score=score, within=within)


def test_a_run_that_gives_the_same_agrees():
    grid = [{"seed": seed, "width": 16} for seed in (1, 2)]
    frame = study.run(runs.train, grid, name="spot", recompute=True, workers=1)
    assert spot.spot_check(runs.train, grid[0], frame, score=["loss", "noise"]) == \
        "spot check seed 1 / width 16: the live run agrees with the stored row"


@pytest.mark.parametrize("off, agrees", [(0.0, True), (0.0999, True), (0.1001, False), (-0.0999, True),
                                         (-0.1001, False)])
def test_a_tenth_of_the_range_is_allowed(off, agrees):
    frame = stored(0.5 + off, 0.0, 1.0)  # live: 0.5; range: 1
    if agrees:
        assert check(frame) == LINE
    else:
        with pytest.raises(AssertionError, match="score is 0.5 live but .* where 0.1 is allowed"):
            check(frame)


def test_one_row_alone_must_be_met_exactly():
    assert check(stored(0.5)) == LINE
    with pytest.raises(AssertionError, match="where 0 is allowed"):
        check(stored(0.5001))


def test_three_times_the_measured_difference_is_allowed_where_it_is_more():
    frame = stored(0.65, 0.0, 1.0)
    measured(0.01)  # a tenth of the range is more
    with pytest.raises(AssertionError, match="0.15 apart where 0.1 is allowed"):
        check(frame)
    measured(0.06)
    assert spot.tolerance(runs.mixed, GOOD, frame, score="score") == pytest.approx(0.18)
    assert check(frame) == LINE
    measured(0.049)
    with pytest.raises(AssertionError, match="where 0.147 is allowed"):
        check(frame)


def test_a_column_that_cpus_move_by_more_than_a_fifth_of_its_range_is_no_guard():
    measured(0.068)
    with pytest.raises(ValueError, match="score is no guard: .* 0.204, more than a fifth of its range, 1:"):
        check(stored(0.5, 0.0, 1.0))


@pytest.mark.parametrize("line", [{"run": "good / seed 1"}, {"run": "unknown"}, {"function": "other.run"},
                                  {"score": "weights"}])
def test_the_line_of_another_run_changes_nothing(line):
    measured(100.0, **line)
    assert spot.tolerance(runs.mixed, GOOD, stored(0.5, 0.0, 1.0), score="score") == pytest.approx(0.1)


def test_the_range_is_of_finished_rows_and_within_a_column():
    frame = stored(0.5, 0.0, 1.0, 9.0, None, error=["", "", "", "boom", ""], part=["a", "a", "b", "b", "a"])
    frame["kind"] = ["good", "good", "other", "other", "good"]
    assert spot.spread(GOOD, frame, score="score") == 1.0
    assert spot.spread(GOOD, frame, score="score", within="kind") == 0.5
    with pytest.raises(AssertionError, match="where 0.05 is allowed"):
        check(frame.replace({"score": {0.5: 0.59, 0.0: 0.09}}), within="kind")


def test_lists_and_dicts_are_compared_entry_by_entry():
    """Live: weights [0, 1, 2] and table {"a": 1}."""
    frame = stored(0.5, 0.5, weights=["[0, 1.1, 2]", "[0, 0, 0]"], table=['{"a": 1}', '{"a": 3}'])  # ranges 2 and 2
    assert check(frame, score=["weights", "table"]) == LINE
    with pytest.raises(AssertionError, match=r"weights is \[0, 1, 2\] live but .* 0.21 apart where 0.2 is"):
        check(frame.assign(weights=["[0, 1.21, 2]", "[0, 0, 0]"]), score=["table", "weights"])
    with pytest.raises(AssertionError, match="weights is .* inf apart"):
        check(frame.assign(weights=["[0, 1]", "[0, 9]"]), score="weights")
    with pytest.raises(ValueError, match="a spot check compares numbers.*'some words'"):
        check(frame.assign(table="some words"), score="table")


@pytest.mark.parametrize("value", [math.nan, None, math.inf])
def test_nan_agrees_with_nothing(value):
    with pytest.raises(AssertionError, match="score is 0.5 live but (nan|None|inf) in the stored row"):
        check(stored(value, 0.0, 1.0))
    with pytest.raises(AssertionError, match="none is None live but 0.5 in the stored row, nan apart"):
        check(stored(0.5, 0.0, 1.0, none=[0.5, 0.0, 1.0]), score="none")
    with pytest.raises(AssertionError, match="none is None live but nan in the stored row"):
        check(stored(0.5, 0.0, 1.0, none=[math.nan, 0.0, 1.0]), score="none")


def test_failed_and_unknown_runs_raise():
    failed = {"kind": "fails", "seed": 0}
    with pytest.raises(ValueError, match="0 stored rows"):
        check(stored(0.5), {"kind": "good", "seed": 5})
    with pytest.raises(RuntimeError, match="on\npurpose"):
        check(stored(0.5, kind="fails"), failed)
    with pytest.raises(AssertionError, match="the stored run failed"):
        check(stored(0.5, kind="fails", error="boom"), failed)


def test_a_check_that_ran_nothing_says_so_and_why(monkeypatch, tmp_path):
    absent, frame = {"kind": "absent", "seed": 0}, stored(0.5, 0.0, kind="absent")
    start = "spot check absent / seed 0: skipped: "
    assert check(frame, absent) == start + "DataUnavailable: the data set is not here: make data"
    assert check(frame.assign(error="not run: no data"), absent) == start + "the stored run was not run: no data"
    monkeypatch.setenv("BIF_RESUME", str(tmp_path))  # make reproduce: the row is its own, a moment old
    assert check(frame, absent) == start + "this command has just trained the stored row itself"
    assert "skipped" in spots.spot_check("synthetic", frame, "smoke")


def test_the_measured_difference_is_the_largest_between_any_two_capabilities(monkeypatch):
    chosen = spots.Spot("synthetic.run", {"dataset": "Syn1"}, ("mcc", "shares"))
    monkeypatch.setattr(spots, "SPOTS", {"synthetic": [chosen]})
    found = {c: {"capability": c, "runs": [{"mcc": mcc, "shares": [0.5, share], "seconds": 1.0}]}
             for c, mcc, share in (("", 90.0, 0.5), ("default", 91.0, 0.5), ("avx2", 88.0, 0.25))}
    table = spots.differences(found)
    assert table[["score", "to_default", "to_avx2", "difference"]].values.tolist() == \
        [["mcc", 1.0, 2.0, 3.0], ["shares", 0.0, 0.25, 0.25]]
    found["avx2"]["runs"][0]["mcc"] = math.nan
    with pytest.raises(ValueError, match="Syn1: mcc is NaN or of another length"):
        spots.differences(found)


@pytest.mark.parametrize("study_name", spots.SPOTS)
def test_every_chosen_run_is_stored_and_its_columns_guard_something(study_name, monkeypatch):
    monkeypatch.delenv("BIF_OUTPUT")
    frame = pd.read_csv(paths.root() / "results" / f"{study_name}.csv", dtype={"error": str})
    for chosen in spots.SPOTS[study_name]:
        function, row = chosen.function, rows.find(frame, chosen.params)
        if isinstance(row["error"], str):
            continue  # its data set is absent
        for score in chosen.scores:
            assert not any(map(math.isnan, spot.numbers(row[score])))
            assert spot.tolerance(function, chosen.params, frame, score=score, within=chosen.within) > 0


def test_the_file_of_differences_is_of_the_chosen_runs():
    table = pd.read_csv(paths.root() / "results" / "capabilities.csv")
    chosen = [(study.full_name(s.function), rows.describe(s.params), score)
              for group in spots.SPOTS.values() for s in group for score in s.scores]
    assert list(table[["function", "run", "score"]].itertuples(index=False, name=None)) == chosen, \
        "python -m experiments.spots measures the chosen runs"
    assert (table["difference"] >= table[["to_default", "to_avx2"]].max(axis=1)).all()  # NaN is not
