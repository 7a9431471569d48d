"""Importance networks: range, units, images; groups in their three notations, driven by hypothesis."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bifkit.dirichlet import FLOOR
from bifkit.inputs.groups import resolve_groups, windows
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


@pytest.mark.parametrize("image", [(28, 28), (5, 7), (4, 4), (3, 5, 7), (1, 8, 8)])
def test_images_go_through_convolutions(image):
    D = int(np.prod(image))
    net = ImportanceNetwork(D, 9, hidden=10, image=image)
    assert net(torch.randn(4, D)).shape == (4, 9)
    channels = [m.in_channels for m in net.modules() if isinstance(m, torch.nn.Conv2d)]
    assert channels == [1 if len(image) == 2 else image[0], 16]
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
    ([0, 1], "integer mask must give one group number for each of the 3 features; got shape \\(2,"),
    ([0, 1, 2, 3], "integer mask"), ([0.0, 1.0, 1.0], "integer mask"), ([True, False, True], "integer mask"),
    ([], "integer mask"), (7, "groups must be a dict, a list of lists or an integer mask"), ("ab", "groups must be"),
])
def test_bad_groups_are_refused(groups, message):
    with pytest.raises(ValueError, match=message):
        resolve_groups(groups, ["a", "b", "c"])


# label maps of a row's own shape

MAP = np.arange(20).reshape(4, 5) // 7 + 3  # labels 3, 4, 5


@pytest.mark.parametrize("mask, shape", [
    (MAP, (4, 5)), (MAP.ravel(), (4, 5)), (torch.from_numpy(MAP), (4, 5)), (MAP, (3, 4, 5)), (MAP[None], (4, 5)),
    (MAP[None], (3, 4, 5)), (MAP[None, None], (3, 4, 5)), (MAP[..., None], (4, 5, 3)), (MAP[0], (4, 5)),
    (np.arange(4)[:, None], (4, 5)), (np.stack([MAP, MAP + 1]), (2, 4, 5)),
])
def test_a_label_map_is_what_numpy_broadcasts_it_to(mask, shape):
    D = int(np.prod(shape))
    index, names = resolve_groups(mask, [f"x{i}" for i in range(D)], shape)
    array = np.asarray(mask)
    label = array if array.size == D else np.broadcast_to(array[0] if array.ndim > len(shape) else array, shape)
    assert [names[i] for i in index] == [f"group {v}" for v in label.ravel()]


@pytest.mark.parametrize("mask, shape", [(MAP.T, (4, 5)), (MAP, (5, 4)), (MAP, (4, 5, 3)), (MAP * 1.0, (4, 5)),
                                         (MAP, (20,)), (np.stack([MAP, MAP]), (4, 5))])
def test_a_label_map_of_another_shape_is_refused(mask, shape):
    with pytest.raises(ValueError, match="integer mask must give one group number .*got shape"):
        resolve_groups(mask, [f"x{i}" for i in range(int(np.prod(shape)))], shape)


def test_groups_of_a_map_have_names():
    names = [f"x{i}" for i in range(20)]
    assert resolve_groups(MAP, names, (4, 5), {3: "sky", 5: "sea"})[1] == ["sky", "group 4", "sea"]
    for bad, message in (({9: "sky"}, "there is no group 9"), ({3: "sea", 5: "sea"}, "must differ"),
                         ({3: "group 4"}, "must differ")):
        with pytest.raises(ValueError, match=message):
            resolve_groups(MAP, names, (4, 5), bad)
    with pytest.raises(ValueError, match="a dict of groups has its own"):
        resolve_groups({"a": [0, 1]}, names, (4, 5), {3: "sky"})


@given(T=st.integers(1, 12), C=st.integers(1, 4), length=st.integers(1, 13), apart=st.booleans())
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
def test_windows_are_pieces_of_time(T, C, length, apart):
    found = windows((T, C), length, per_channel=apart)
    assert found.shape == (T, C)
    for t, c in np.ndindex(T, C):
        for u, d in np.ndindex(T, C):
            assert (found[t, c] == found[u, d]) == (t // length == u // length and (c == d or not apart))
    assert np.array_equal(np.unique(found), np.arange(-(-T // length) * (C if apart else 1)))


def test_bad_windows():
    for shape, length in (((5,), 2), ((5, 2), 0), ((5, 2), 1.5), ((1, 2, 3), 2)):
        with pytest.raises(ValueError, match=r"the shape \(T, C\) of one row and a length of at least 1"):
            windows(shape, length)
