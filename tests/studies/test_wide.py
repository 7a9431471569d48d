"""The study of many features and small effects: its rules, its data, one toy run of each part."""

import numpy as np
import pandas as pd
import pytest
import torch

from bifkit import LocalBIF
from data_prep.synthetic import NAMES, log_ratio, make_synthetic
from experiments import wide
from experiments.models.rules import COLUMNS, PARTS, Sum, Ten, TrueRule


@pytest.mark.parametrize("name", NAMES[:3])
def test_the_true_rule_is_that_of_the_data(name):
    x = np.random.default_rng(0).normal(size=(50, 11))
    logits = TrueRule(name)(torch.from_numpy(x)).numpy()
    assert logits[:, 0] - logits[:, 1] == pytest.approx(log_ratio(name, x[:, :len(COLUMNS[name])]))


@pytest.mark.parametrize("name", NAMES[3:])
def test_far_from_the_switch_one_of_the_two_rules_decides(name):
    x = np.random.default_rng(0).normal(size=(50, 11))
    for sign, part in zip((-5.0, 5.0), PARTS[name], strict=True):
        x[:, 10] = sign
        value = TrueRule(name)(torch.from_numpy(x))[:, 0].numpy()
        assert value == pytest.approx(log_ratio(part, x[:, COLUMNS[part]], mixed=True), abs=1e-12)


def test_a_step_has_no_gradient_and_is_refused_by_name():
    data = make_synthetic("Syn4", 100, rows=300)
    names = data.feature_names
    with pytest.raises(ValueError, match=r"g uses X11, .*distill"):
        LocalBIF(TrueRule("Syn4", switch=0), feature_names=names, min_steps=1, epochs=1).fit(data.X_train)


@pytest.mark.parametrize("name", NAMES)
def test_labels_follow_the_true_rule(name):
    data = make_synthetic(name, 100, rows=4000)
    p = TrueRule(name)(torch.from_numpy(data.X_train)).softmax(1)[:, 1].numpy()
    likely, unlikely = data.y_train[p > 0.8], data.y_train[p < 0.2]
    assert likely.mean() > 0.8 and unlikely.mean() < 0.2


def test_useless_columns_leave_the_others_as_they_are():
    narrow, broad = make_synthetic("Syn4", 3, rows=100), make_synthetic("Syn4", 3, rows=100, features=30)
    assert np.array_equal(broad.X_train[:, :11], narrow.X_train) and broad.X_test.shape == (20, 30)
    assert np.array_equal(broad.truth_test[:, :11], narrow.truth_test) and not broad.truth_test[:, 11:].any()
    assert np.array_equal(broad.y_train, narrow.y_train) and broad.feature_names[-1] == "X30"
    assert abs(np.corrcoef(broad.X_train.T)[:11, 11:]).max() < 0.5
    with pytest.raises(ValueError, match="11 features of its own"):
        make_synthetic("Syn4", 3, features=5)


def test_the_weakest_feature_makes_a_thousandth_of_the_variance():
    x = torch.randn(200_000, 4, generator=torch.Generator().manual_seed(0))
    weak = x[:, 1].abs().var() / Sum()(x).var()
    assert 0.0005 < float(weak) < 0.002


def test_ten_columns_make_the_class():
    x = torch.randn(20, 12, requires_grad=True)
    grad = torch.autograd.grad(Ten()(x)[:, 1].sum(), x)[0]
    assert (grad[:, :10] != 0).all() and (grad[:, 10:] == 0).all()


def test_each_part_runs_at_toy_size_and_its_tables_read_it():
    rows = [r | wide.run(**r) | {"peak_mb": 1.0, "error": ""} for r in wide.grid("smoke") if r["part"] != "regression"]
    frame = pd.DataFrame(rows)
    assert set(frame["part"]) == {"syn", "ten", "share"}
    assert wide.false_ones(frame).shape == (2, 1) and len(wide.by_width(frame)) == 5
    assert (wide.shares(frame)["share, worst seed"] < 0.1).all()
    assert wide.findings(frame)[0].startswith("false ones at a nominal 10%")


def test_a_g_of_many_rows_has_rows_of_its_own_and_agrees_with_the_rule_more_often():
    few, many, true = (wide.run(part="ten", dataset="Ten", width=50, g=g, seed=100, rows=1500)["agreement"]
                       for g in ("trained", wide.WELL, "true rule"))
    assert few < many < true == 1


def test_false_ones_are_a_share_of_those_found():
    truth = np.array([[True, True, False, False]])
    assert wide._false(np.array([[True, False, True, False]]), truth) == 50
    assert wide._false(np.zeros((1, 4), bool), truth) == 0
