"""Importance networks: range, units, images; groups in their three notations, driven by hypothesis."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bifkit.dirichlet import FLOOR
from bifkit.inputs.groups import resolve_groups
from bifkit.networks import GlobalAlpha, ImportanceNetwork


def test_alpha_never_falls_below_the_floor():
    torch.manual_seed(0)
    net = ImportanceNetwork(6, 6, hidden=20)
    net.body[-1].bias.data.fill_(-1e4)
    assert (net(torch.randn(50, 6)) >= FLOOR).all()
    one = GlobalAlpha(4)
    one.theta.data.fill_(-1e4)
    assert torch.allclose(one(None), torch.full((1, 4), FLOOR))


def test_the_global_alpha_starts_uniform_on_the_simplex():
    alpha = GlobalAlpha(5)(torch.zeros(3, 9))
    assert alpha.shape == (1, 5) and torch.allclose(alpha, torch.ones(1, 5), atol=0.01)


def test_units_of_the_input_do_not_matter():
    torch.manual_seed(0)
    X, net = torch.randn(200, 4), ImportanceNetwork(4, 4, hidden=20).eval()
    factor, shift = torch.tensor([1e-3, 1.0, 50.0, 1e4]), torch.tensor([0.0, 5.0, -3.0, 1e4])
    moved, reference = X * factor + shift, net.standardise(X.mean(0), X.std(0))(X)
    assert torch.allclose(net.standardise(moved.mean(0), moved.std(0))(moved), reference, atol=1e-2)
    assert not torch.allclose(net(X), reference, atol=1e-2)


def test_constant_columns_and_outliers_stay_finite():
    X = torch.randn(100, 3)
    X[:, 1] = 0.1
    net = ImportanceNetwork(3, 3, hidden=10).standardise(X.mean(0), X.std(0)).eval()
    assert torch.isfinite(net(X)).all() and torch.isfinite(net(X * 1e30)).all()


def test_rows_do_not_see_each_other_after_training():
    torch.manual_seed(0)
    X, net = torch.randn(20, 3), ImportanceNetwork(3, 3, hidden=10).eval()
    assert torch.allclose(net(X), torch.cat([net(X[i:i + 1]) for i in range(20)]), atol=1e-6)


@pytest.mark.parametrize("image", [(28, 28), (5, 7), (4, 4)])
def test_images_go_through_convolutions(image):
    D = image[0] * image[1]
    net = ImportanceNetwork(D, 9, hidden=10, image=image)
    assert net(torch.randn(4, D)).shape == (4, 9)
    assert any(isinstance(m, torch.nn.Conv2d) for m in net.modules())
    with pytest.raises(ValueError, match="pixels, the data"):
        ImportanceNetwork(D + 1, 9, image=image)


# groups

NAMES = ["a", "b", "c", "d", "e", "f", "g", "h"]


def _partition(index):
    return {frozenset(np.flatnonzero(index == g).tolist()) for g in np.unique(index)}


@given(mask=st.lists(st.integers(-3, 5), min_size=8, max_size=8))
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
def test_the_three_notations_agree(mask):
    values = list(dict.fromkeys(mask))
    members = [[i for i in range(8) if mask[i] == v] for v in values]
    truth = {frozenset(m) for m in members}
    spellings = [mask, np.array(mask), torch.tensor(mask), members, [tuple(NAMES[i] for i in m) for m in members],
                 {f"G{v}": m for v, m in zip(values, members, strict=True)},
                 {f"G{v}": [NAMES[i] for i in m] for v, m in zip(values, members, strict=True)}]
    for groups in spellings:
        index, names = resolve_groups(groups, NAMES)
        assert _partition(index) == truth
        assert sorted(set(index.tolist())) == list(range(len(names))) and len(set(names)) == len(names)
    index, names = resolve_groups(spellings[-1], NAMES)
    assert all(f"G{mask[i]}" == names[index[i]] for i in range(8))


@given(data=st.data())
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
def test_features_left_out_stay_alone_under_their_own_name(data):
    grouped = data.draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1))
    cut = data.draw(st.integers(0, len(grouped) - 1))
    groups = {k: m for k, m in (("first", grouped[:cut]), ("second", grouped[cut:])) if m}
    index, names = resolve_groups(groups, NAMES)
    for i, name in enumerate(NAMES):
        label = names[index[i]]
        assert name in groups[label] if name in grouped else label == name and (index == index[i]).sum() == 1


def test_no_groups_is_one_a_feature():
    index, names = resolve_groups(None, NAMES)
    assert index.tolist() == list(range(8)) and names == NAMES
    assert resolve_groups({}, NAMES)[1] == NAMES


def test_a_single_feature_needs_no_list():
    assert resolve_groups({"x": "a", "y": 1, "z": np.int64(2)}, ["a", "b", "c"])[1] == ["x", "y", "z"]
    index, names = resolve_groups([["age", "sex"], "income", 3], ["age", "sex", "income", "city"])
    assert index.tolist() == [0, 0, 1, 2] and names == ["group 0", "group 1", "group 2"]


@pytest.mark.parametrize("groups, message", [
    ({"x": ["height"]}, "unknown feature 'height' in 'x'; features are a, b, c"),
    ({"x": [3]}, "unknown feature 3"), ({"x": [-1]}, "unknown feature -1"), ({"x": [0.5]}, "unknown feature 0.5"),
    ({"x": None}, "unknown feature None"), ({"x": [["a"]]}, "unknown feature"), ([["a", "zz"]], "unknown feature 'zz'"),
    ({"x": ["a", "b"], "y": ["b"]}, "feature 'b' stands in two groups"), ({"x": ["a", 0]}, "stands in two groups"),
    ({"x": []}, "'x' holds no feature"), ({"b": ["a"]}, "'b' would name two groups"),
    ({1: ["a"], "1": ["b"]}, "'1' would name two groups"),
    ([0, 1], "integer mask must give one group number for each of the 3 features; got 2"),
    ([0, 1, 2, 3], "integer mask"), ([0.0, 1.0, 1.0], "integer mask"), ([True, False, True], "integer mask"),
    ([], "integer mask"), (7, "groups must be a dict, a list of lists or an integer mask"), ("ab", "groups must be"),
])
def test_bad_groups_are_refused(groups, message):
    with pytest.raises(ValueError, match=message):
        resolve_groups(groups, ["a", "b", "c"])
