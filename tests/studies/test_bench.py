"""The benchmark's tables: exponents of known laws, verdicts that turn with the numbers, the grid."""

import numpy as np
import pandas as pd
import pytest

from experiments import bench

SIZES = [10, 100, 1_000, 10_000]


def _growth(rows=1.0, features=1.0, least=1.0, most=1.0):
    parts = [pd.DataFrame({"part": part, "what": what, "size": SIZES, "fit_seconds": 0.01 * np.array(SIZES) ** b})
             for part, b in (("rows", rows), ("features", features)) for what in ("global", "local")]
    frame = pd.concat(parts, ignore_index=True)
    return frame.assign(fit_least=frame["fit_seconds"] * least, fit_most=frame["fit_seconds"] * most)


@pytest.mark.parametrize("b", [0.5, 1.0, 1.3])
def test_the_exponent_of_a_power_law_is_found(b):
    found = bench.exponents(_growth(rows=b))
    assert np.allclose(found["rows"], b) and np.allclose(found["features"], 1.0)
    assert list(found.index) == ["global", "local"]


def test_the_spread_is_that_of_the_worst_times():
    assert np.allclose(bench.spreads(_growth()), 0)
    ends = bench.two_largest(_growth(least=0.5, most=2.0))
    assert sorted(ends["size"].unique()) == SIZES[-2:]
    # of two points, a factor of ten apart, the line tilts by log10 of the two factors
    assert np.allclose(bench.spreads(ends), 0.6021, atol=1e-3)


def _frame(*, ours=2.0, theirs=300.0, mcc=95.0, ratio=1.9, rows=1.0, lime=150.0, mb=600.0):
    """A benchmark's rows with made-up numbers."""
    published = [{"part": "published", "what": "bifkit (local)", "fit_seconds": s, "mcc": mcc, "fit_peak_mb": mb}
                 for s in (0.9 * ours, 1.1 * ours)]
    published.append({"part": "published", "what": "published setting", "fit_seconds": theirs, "mcc": 89.0,
                      "fit_peak_mb": 2500.0})
    floor = [{"part": "floor", "what": "local", "fit_over_floor": r, "fit_seconds": r}
             for r in (ratio - 0.1, ratio + 0.1)]
    explain = [{"part": "explain", "what": w, "size": 10_000, "explain_seconds": s, "explain_least": 0.9 * s,
                "explain_most": 1.1 * s, "rows_timed": 50}
               for w, s in (("LocalBIF", 0.01), ("LIME", lime), ("DeepExplainer", 90.0))]
    return pd.concat([pd.DataFrame(published + floor + explain), _growth(rows=rows)], ignore_index=True)


@pytest.mark.parametrize("change, promise", [
    ({}, None), ({"ours": 3.1}, "beside the published setting"), ({"mcc": 88.0}, "MCC"), ({"mb": 1001.0}, "memory"),
    ({"rows": 1.06}, "in rows"), ({"lime": 0.9}, "beside LIME")])
def test_a_promise_that_is_not_kept_is_said(change, promise):
    table = bench.verdicts(_frame(**change))
    assert len(table) == 8 and set(table["holds"]) <= {"yes", "no", "-"}
    broken = list(table.index[table["holds"] == "no"])
    assert len(broken) == (promise is not None) and all(promise in name for name in broken)
    measured_only = table[table["holds"] == "-"]  # nothing was promised of the floor
    assert list(measured_only["measured"]) == ["1.90 times (1.80 to 2.00 over seeds)"]
    assert "150 times (136 to 167 over seeds)" in table.iloc[0]["measured"] or "ours" in change


def test_the_grid_has_every_part_and_theirs_in_the_middle_of_ours():
    runs = pd.DataFrame(bench.grid())
    assert list(runs["part"].unique()) == ["published", "explain", "rows", "features", "threads", "floor"]
    published = runs[runs["part"] == "published"]
    assert list(published["what"] == "published setting").index(True) == 3
    assert sorted(published.loc[published["what"] == "bifkit (local)", "seed"]) == [0, 1, 2, 3, 4]
    assert (runs.loc[runs["part"] != "published", "seed"] >= 100).all()  # nothing else is scored
    assert not runs.duplicated().any()
