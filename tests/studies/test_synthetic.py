"""Syn1 to Syn6 against formulas written again here: which columns are true, and how often the label is one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.synthetic import NAMES, VARIANTS, make_synthetic

EVERY = pytest.mark.parametrize("name, variant", [(n, v) for n in NAMES for v in VARIANTS])
PARTS = {"Syn4": (1, 2), "Syn5": (1, 3), "Syn6": (2, 3)}
FEW = settings(max_examples=25, deadline=None, derandomize=True, database=None)


def _ratio(which, x, variant, within_a_mixture):
    """r of one part from its own columns, as the text (or the code that was run) has it."""
    if which == 1:
        return np.exp(x[0] * x[1])
    if which == 2:
        return np.exp(x[0] ** 2 + x[1] ** 2 + x[2] ** 2 + x[3] ** 2 - 4)
    if variant == "as_printed":
        exponent = -100 * np.sin(2 * x[0]) + 2 * abs(x[1]) + x[2] + np.exp(-x[3])
    else:
        size = 10.0 if within_a_mixture else 100.0
        exponent = -size * np.sin(0.2 * x[0]) + abs(x[1]) + x[2] + np.exp(-x[3]) - 2.4
    return np.exp(min(exponent, 700.0))


PRINTED = {1: [0, 1], 2: [2, 3, 4, 5], 3: [6, 7, 8, 9]}  # X1 X2; X3-X6; X7-X10


def _row(name, x, variant):
    """(p(y = 1), relevant columns) of one row."""
    if name in PARTS:
        which = PARTS[name][0 if x[10] < 0 else 1]
        columns = PRINTED[which]
        return 1 / (1 + _ratio(which, x[columns], variant, True)), {*columns, 10}
    which = int(name[3])
    columns = PRINTED[which] if variant == "as_printed" else list(range(len(PRINTED[which])))
    return 1 / (1 + _ratio(which, x[columns], variant, False)), set(columns)


def _all(d):
    return np.r_[d.X_train, d.X_test].astype(float), np.r_[d.y_train, d.y_test], np.r_[d.truth_train, d.truth_test]


@EVERY
def test_shapes_types_and_split(name, variant):
    d = make_synthetic(name, 0, rows=1000, variant=variant)
    D = 10 if variant == "as_printed" and name not in PARTS else 11
    assert d.X_train.shape == (800, D) and d.X_test.shape == (200, D) and d.name == name
    assert d.X_train.dtype == np.float32 and d.y_train.dtype == np.int64 and d.truth_test.dtype == bool
    assert d.truth_train.shape == (800, D) and d.truth_test.shape == (200, D)
    assert d.feature_names == [f"X{i}" for i in range(1, D + 1)] and d.class_names == ["0", "1"]


@EVERY
@given(seed=st.integers(0, 10_000))
@FEW
def test_the_truth_of_every_row(name, variant, seed):
    X, y, truth = _all(make_synthetic(name, seed, rows=60, variant=variant))
    assert set(np.unique(y)) <= {0, 1}
    for x, t in zip(X, truth, strict=True):
        assert set(np.flatnonzero(t)) == _row(name, x, variant)[1]
    counts = {"Syn1": {2}, "Syn2": {4}, "Syn3": {4}, "Syn4": {3, 5}, "Syn5": {3, 5}, "Syn6": {5}}[name]
    assert set(truth.sum(1)) <= counts


@EVERY
def test_labels_follow_the_formula(name, variant):
    """Drawn labels: frequencies within bins of p(y=1). The most likely class where that is what was run."""
    X, y, _ = _all(make_synthetic(name, 3, rows=6000, variant=variant))
    p = np.array([_row(name, x, variant)[0] for x in X])
    if variant == "as_run" and name not in PARTS:
        sure = np.abs(p - 0.5) > 1e-4
        assert sure.mean() > 0.99 and np.array_equal(y[sure], (p[sure] > 0.5).astype(int))
        return
    assert 0 < ((p > 0.5) != y).sum()  # drawn, not the more likely class
    for low in np.arange(0, 1, 0.1):
        inside = (p >= low) & (p <= low + 0.1)
        if inside.sum() >= 20:
            error = np.sqrt(max((p * (1 - p))[inside].mean(), 1e-4) / inside.sum())
            assert abs(y[inside].mean() - p[inside].mean()) < 5 * error


@EVERY
def test_label_frequency_by_monte_carlo(name, variant):
    """The share of ones against fresh normal inputs put through the formula."""
    rng = np.random.default_rng(7)
    p = np.array([_row(name, x, variant)[0] for x in rng.normal(size=(6000, 11))])
    expected = (p > 0.5).mean() if variant == "as_run" and name not in PARTS else p.mean()
    share = _all(make_synthetic(name, 11, variant=variant))[1].mean()
    assert abs(share - expected) < 5 * np.sqrt(0.25 / 6000 + 0.25 / 10_000)
    assert 0.1 < share < 0.9


@EVERY
def test_inputs_are_standard_normal_and_the_switch_is_even(name, variant):
    X, _, _ = _all(make_synthetic(name, 5, variant=variant))
    n = len(X)
    assert n == 10_000 and np.abs(X.mean(0)).max() < 5 / np.sqrt(n) and np.abs(X.var(0) - 1).max() < 5 * np.sqrt(2 / n)
    correlation = np.corrcoef(X.T) - np.eye(X.shape[1])
    assert np.abs(correlation).max() < 5 / np.sqrt(n)
    if name in PARTS:
        assert abs((X[:, 10] < 0).mean() - 0.5) < 5 * np.sqrt(0.25 / n)


def test_a_seed_repeats_and_streams_are_apart():
    a, b = make_synthetic("Syn4", 1, rows=100), make_synthetic("Syn4", np.int64(1), rows=100)
    assert np.array_equal(a.X_train, b.X_train) and np.array_equal(a.y_test, b.y_test)
    keys = [(n, s, v) for n in NAMES for s in (0, 1) for v in VARIANTS]
    samples = [make_synthetic(n, s, rows=100, variant=v).X_train[:, :10] for n, s, v in keys]
    assert len({s.tobytes() for s in samples}) == len(samples)
    assert not np.isin(a.X_test[:, 0], a.X_train[:, 0]).any()


def test_the_share_of_test_rows():
    d = make_synthetic("Syn1", rows=50, test_share=0.5)
    assert len(d.X_train) == len(d.y_test) == 25


@pytest.mark.parametrize("kw, message", [
    ({"name": "Syn7"}, "name must be one of Syn1, .*; got 'Syn7'"),
    ({"variant": "printed"}, "'as_run' or 'as_printed'"), ({"rows": 5}, "rows must be at least 10"),
    ({"test_share": 1.0}, "test_share between 0 and 1"),
])
def test_bad_arguments(kw, message):
    with pytest.raises(ValueError, match=message):
        make_synthetic(**{"name": "Syn1"} | kw)
