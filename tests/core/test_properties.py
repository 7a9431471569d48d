"""Whatever shape, dtype, memory layout, grouping, labels and index: fit, explain, save and load work and agree.

And scikit-learn's conventions, where they apply to an explainer.
"""

import inspect
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import check_is_fitted
from torch import nn

from bifkit import GlobalBIF, LocalBIF, Posterior
from bifkit.inputs import checks as door

KINDS = (GlobalBIF, LocalBIF)
BOTH = pytest.mark.parametrize("kind", KINDS)
MANY = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow], database=None,
                phases=[Phase.explicit, Phase.generate, Phase.shrink])


def _g(width, outputs=2):
    g = nn.Linear(width, outputs)
    with torch.no_grad():
        g.weight.copy_(torch.linspace(-1, 1, outputs * width).view(outputs, width).sin())
    return g


def _bif(kind, model, **kw):
    return kind(model, **{"min_steps": 3, "epochs": 1} | ({"hidden": 4} if kind is LocalBIF else {}) | kw)


def _round_trip(kind, model, X, y=None, **kw):
    """(fitted, posterior) after every step has been checked."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # constant columns, duplicates, zero rows
        fitted = _bif(kind, model, **kw).fit(X, y)
    p = fitted.explain(X)
    assert np.isfinite(p.alpha).all() and (p.alpha > 0).all() and np.allclose(p.mean.sum(-1), 1)
    assert np.isfinite(fitted.elbo_) and fitted.n_features_in_ == int(np.prod(np.shape(X)[1:]))
    with tempfile.TemporaryDirectory() as folder:
        fitted.save(Path(folder) / "e.bif")
        p.save(Path(folder) / "p.bif")
        again, back = kind.load(Path(folder) / "e.bif"), Posterior.load(Path(folder) / "p.bif")
    other = again.explain(X)
    for q in (other, back):
        assert np.array_equal(q.alpha, p.alpha) and q.feature_names == p.feature_names
    assert p.index is None and other.index is None and back.index is None or other.index.equals(p.index)
    assert again.score_ == fitted.score_ and again.likelihood_ == fitted.likelihood_
    assert again.diagnostics_ == fitted.diagnostics_ and again.get_params()["seed"] == fitted.seed
    return fitted, p


SHAPES = st.tuples(st.integers(2, 60), st.integers(2, 12))


def _rows(shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape)


# shapes, dtypes, layouts

NUMPY = ["float16", "float32", "float64", "int8", "int64", "uint8", "bool"]
TORCH = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.int64, torch.uint8, torch.bool]
PANDAS = ["float64", "int64", "bool", "Int64", "Float64", "boolean", "category"]


@MANY
@given(st.sampled_from(KINDS), SHAPES, st.sampled_from(NUMPY + TORCH + [f"pandas {d}" for d in PANDAS]))
def test_shapes_and_dtypes(kind, shape, dtype):
    whole = np.round(_rows(shape) * 2).clip(-3, 3) if str(dtype)[-7:] != "boolean" else _rows(shape) > 0
    whole = np.abs(whole) if "uint8" in str(dtype) else whole > 0 if "bool" in str(dtype) else whole
    if isinstance(dtype, torch.dtype):
        X = torch.from_numpy(whole.astype(float)).to(dtype)
    elif dtype.startswith("pandas "):
        X = pd.DataFrame(whole.astype(bool if "bool" in dtype else "int64")).astype(dtype.removeprefix("pandas "))
    else:
        X = whole.astype(dtype)
    fitted, p = _round_trip(kind, _g(shape[1]), X)
    plain = _round_trip(kind, fitted.model, whole.astype(np.float32))[1]
    assert np.array_equal(p.alpha, plain.alpha)  # the numbers are the same, whatever holds them
    assert p.alpha.shape == (shape if kind is LocalBIF else shape[1:])


LAYOUTS = {
    "Fortran": np.asfortranarray,
    "every other row": lambda a: np.repeat(a, 2, axis=0)[::2],
    "every other column": lambda a: np.repeat(a, 2, axis=1)[:, ::2],
    "backwards": lambda a: a[::-1, ::-1].copy()[::-1, ::-1],
    "transposed": lambda a: a.T.copy().T,
    "big-endian": lambda a: a.astype(">f8"),
    "list": lambda a: a.tolist(),
    "matrix of objects": lambda a: a.astype(object),
    "memory of a tensor": lambda a: torch.from_numpy(a.T.copy()).T,
    "tensor that wants gradients": lambda a: torch.tensor(a, requires_grad=True),
    "frame of columns": lambda a: pd.DataFrame({f"x{i}": a[:, i] for i in range(a.shape[1])}),
}


@MANY
@given(st.sampled_from(KINDS), SHAPES, st.sampled_from([*LAYOUTS, "read-only"]))
def test_layouts(kind, shape, layout):
    a = _rows(shape).astype(np.float32)
    X = a.copy()
    if layout == "read-only":
        X.flags.writeable = False
    else:
        X = LAYOUTS[layout](X)
    fitted, p = _round_trip(kind, _g(shape[1]), X)
    assert np.array_equal(p.alpha, _bif(kind, fitted.model).fit(a).explain(a).alpha)
    assert np.array_equal(np.asarray(X.detach() if isinstance(X, torch.Tensor) else X).astype(np.float32), a)


@MANY
@given(st.sampled_from(KINDS), st.integers(2, 20), st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_rows_of_any_shape_reach_g_as_they_are(kind, n, shape):
    width = int(np.prod(shape))
    if width < 2:
        shape, width = [2], 2
    seen = []

    class Sees(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = _g(width)

        def forward(self, x):
            seen.append(tuple(x.shape[1:]))
            return self.inner(x.flatten(1))

    fitted, p = _round_trip(kind, Sees(), _rows((n, *shape)))
    assert set(seen) == {tuple(shape)} == {fitted.shape_} and p.alpha.shape[-1] == width


# groups

@st.composite
def _groupings(draw):
    """(number of features, what group each is in, numbered by first appearance; None stands alone)."""
    width = draw(st.integers(3, 12))
    marks = draw(st.lists(st.one_of(st.none(), st.integers(0, 3)), min_size=width, max_size=width))
    names = list(dict.fromkeys(m for m in marks if m is not None))
    marks = [None if m is None else names.index(m) for m in marks]
    return (width, marks) if len(names) + marks.count(None) >= 2 else (width, [None] * width)


@MANY
@given(st.sampled_from(KINDS), _groupings(), st.sampled_from(["names", "positions", "lists", "mask", "tuple"]))
def test_group_maps(kind, grouping, notation):
    width, marks = grouping
    X = pd.DataFrame(_rows((30, width)), columns=[f"c{i}" for i in range(width)])
    members = [[i for i in range(width) if marks[i] == m] for m in range(len(set(marks) - {None}))]
    alone = [i for i in range(width) if marks[i] is None]
    names = [f"group {m}" for m in range(len(members))] + [f"c{i}" for i in alone]
    if not members:
        groups, names = None, list(X.columns)
    elif notation == "mask":
        mask = [len(members) + alone.index(i) if marks[i] is None else marks[i] for i in range(width)]
        groups, names = np.array(mask), [f"group {m}" for m in range(max(mask) + 1)]
    elif notation in ("names", "positions"):
        groups = {f"group {m}": [f"c{i}" if notation == "names" else i for i in part] for m, part in enumerate(members)}
    else:
        groups = tuple(map(tuple, members)) if notation == "tuple" else members
    fitted, p = _round_trip(kind, _g(width), X, groups=groups)
    assert p.feature_names == names and len(fitted.groups_) == width
    for i in range(width):  # each feature stands in its own group
        where = fitted.group_names_[fitted.groups_[i]]
        assert where == (names[marks[i]] if marks[i] is not None else names[len(members) + alone.index(i)])


# labels

LABELS = {
    "int": lambda y: y, "int8": lambda y: y.astype(np.int8), "uint8": lambda y: y.astype(np.uint8),
    "whole float": lambda y: y.astype(float), "float16": lambda y: y.astype(np.float16), "list": lambda y: y.tolist(),
    "column": lambda y: y[:, None], "tensor": torch.from_numpy, "float tensor": lambda y: torch.from_numpy(y).float(),
    "tensor column": lambda y: torch.from_numpy(y)[:, None], "series": lambda y: pd.Series(y)[::-1][::-1],
    "Int64": lambda y: pd.Series(y, dtype="Int64"), "category of numbers": lambda y: pd.Series(y).astype("category"),
    "frame": lambda y: pd.DataFrame({"label": y}), "backwards": lambda y: y[::-1].copy()[::-1],
}
TRUTH = {"bool": lambda y: y == 1, "boolean": lambda y: pd.Series(y == 1, dtype="boolean"),
         "bool tensor": lambda y: torch.from_numpy(y == 1)}


@MANY
@given(st.sampled_from(KINDS), st.integers(2, 40), st.integers(1, 5), st.sampled_from([*LABELS, *TRUTH]),
       st.sampled_from(["rank", "few"]))
def test_label_encodings(kind, n, outputs, encoding, preset):
    outputs = min(outputs, 2) if encoding in TRUTH else outputs
    X, g = _rows((n, 3)).astype(np.float32), _g(3, outputs)
    y = np.random.default_rng(n).integers(0, max(outputs, 2), n)
    likelihood = "binary" if outputs == 1 else None
    fitted, p = _round_trip(kind, g, X, (LABELS | TRUTH)[encoding](y), preset=preset, likelihood=likelihood)
    with torch.no_grad():
        out = g(torch.from_numpy(X)).numpy()
    predicted = out.argmax(1) if outputs > 1 else (out[:, 0] > 0).astype(int)
    assert fitted.score_ == pytest.approx((predicted == y).mean())
    assert np.array_equal(p.alpha, _bif(kind, g, preset=preset, likelihood=likelihood).fit(X, y).explain(X).alpha)


REFUSED = {
    "text": np.array(["no", "yes"]), "objects": np.array([0, "yes"], dtype=object), "texts as list": ["no", "yes"],
    "category of text": pd.Series(["no", "yes"]).astype("category"), "text of numbers": np.array(["0", "1"]),
    "dates": np.array(["2020-01-01", "2020-01-02"], dtype="M8[D]"), "complex": np.array([0, 1 + 1j]),
    "missing boolean": pd.Series([True, None], dtype="boolean"), "pandas text": pd.Series(["no", "yes"], dtype="str"),
}


@BOTH
@pytest.mark.parametrize("case", REFUSED)
def test_labels_that_are_no_numbers(kind, case):
    with pytest.raises((TypeError, ValueError), match="encode the labels first|y holds NaN"):
        _bif(kind, _g(3)).fit(_rows((2, 3)), REFUSED[case])


NO_NUMBERS = {
    "complex": (np.ones((4, 3), complex), TypeError, "X must be numeric and real; it holds complex128"),
    "complex tensor": (torch.ones(4, 3, dtype=torch.complex64), TypeError, "it holds torch.complex64"),
    "dates": (np.ones((4, 3), "M8[s]"), TypeError, "it holds datetime64"),
    "durations": (np.ones((4, 3), "m8[s]"), TypeError, "it holds timedelta64"),
    "a column of dates": (pd.DataFrame(_rows((4, 2))).assign(d=pd.Timestamp("2020")), TypeError, "X must be numeric"),
    "a column of text": (pd.DataFrame({"a": [1, 2], "b": pd.Categorical(["x", "y"])}), TypeError, "X must be numeric"),
    "pandas' NA": (pd.DataFrame({"a": [1, 2], "b": pd.array([1, None], "Int64")}), ValueError,
                   r"NaN or infinite values \(first in column b"),
    "NA of truth": (pd.DataFrame({"a": [1, 2], "b": pd.array([True, None], "boolean")}), ValueError, "in column b"),
    "None": (np.array([[1, None], [2, 3]], dtype=object), ValueError, "first in column 1"),
    "too large for float32": (np.array([[1, 1e300], [2, 3]]), ValueError, "NaN or infinite values .first in column 1"),
}


@pytest.mark.parametrize("case", NO_NUMBERS)
def test_rows_that_are_no_numbers(case):
    bad, error, message = NO_NUMBERS[case]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(error, match=message):
            door.check_X(bad)


# index and names

INDEXES = {
    "range": lambda n: pd.RangeIndex(5, 5 + n), "int": lambda n: pd.Index(np.arange(n)[::-1] * 3),
    "float": lambda n: pd.Index(np.arange(n) / 4), "text": lambda n: pd.Index([f"row {i}" for i in range(n)]),
    "repeated": lambda n: pd.Index(["same"] * n), "dates": lambda n: pd.date_range("2020-02-28", periods=n, tz="UTC"),
    "periods": lambda n: pd.period_range("2020-01", periods=n, freq="M"),
    "named": lambda n: pd.Index(range(n), name="id"), "category": lambda n: pd.CategoricalIndex(["a"] * n),
    "durations": lambda n: pd.to_timedelta(np.arange(n), unit="h"),
    "two levels": lambda n: pd.MultiIndex.from_arrays([[1] * n, range(n)], names=["a", "b"]),
}
NAMES = st.lists(st.text(min_size=1, max_size=8), min_size=3, max_size=3, unique=True)


@MANY
@given(st.sampled_from(KINDS), st.integers(2, 12), st.sampled_from(sorted(INDEXES)), NAMES)
def test_index_and_names_are_kept(kind, n, index, names):
    X = pd.DataFrame(_rows((n, 3)), columns=names, index=INDEXES[index](n))
    fitted, p = _round_trip(kind, _g(3), X)
    assert p.feature_names == names == list(fitted.feature_names_in_)
    if kind is LocalBIF:
        out = p.to_frame()
        assert out.index.equals(X.index) and out.index.tolist() == X.index.tolist() and list(out.columns) == names
        assert out.index.names == X.index.names


# scikit-learn's conventions

X3 = _rows((40, 3)).astype(np.float32)


@BOTH
def test_parameters_are_those_of_the_signature_and_init_only_stores_them(kind):
    signature = [p for p in inspect.signature(kind.__init__).parameters if p != "self"]
    model = _g(3)
    given = {name: object() for name in signature} | {"model": model}  # whatever they are, they are kept, not looked at
    explainer = kind(**given)
    assert sorted(vars(explainer)) == sorted(signature) == sorted(explainer.get_params())
    assert all(getattr(explainer, name) is value for name, value in given.items())
    assert isinstance(explainer, BaseEstimator)


@BOTH
def test_clone_and_set_params(kind):
    explainer = _bif(kind, _g(3), prior=0.5, groups={"a": [0, 1]}, classes="each", verbose=0)
    copy = clone(explainer.fit(X3))
    same = {k: v for k, v in copy.get_params().items() if k != "model"}
    assert same == {k: v for k, v in explainer.get_params().items() if k != "model"}
    assert not [name for name in vars(copy) if name.endswith("_")]
    assert copy.set_params(prior=0.25, min_steps=2) is copy and (copy.prior, copy.min_steps) == (0.25, 2)
    with pytest.raises(ValueError, match="Invalid parameter 'learning_rate'"):
        copy.set_params(learning_rate=1)


@BOTH
def test_fitted_or_not(kind, tmp_path):
    explainer = _bif(kind, _g(3))
    with pytest.raises(NotFittedError):
        check_is_fitted(explainer)
    before = set(vars(explainer))
    assert explainer.fit(X3) is explainer
    check_is_fitted(explainer)
    new = set(vars(explainer)) - before
    assert new and all(name.endswith("_") and not name.startswith("_") for name in new)
    assert explainer.n_features_in_ == 3 and before <= set(vars(explainer))
    explainer.save(tmp_path / "e.bif")
    check_is_fitted(kind.load(tmp_path / "e.bif"))
    explainer.classes = [7]  # refused after the data have been looked at
    with pytest.raises(ValueError, match="classes must be"):
        explainer.fit(X3)
    with pytest.raises(NotFittedError):
        check_is_fitted(explainer)
    with pytest.raises(NotFittedError, match="is not fitted: call fit"):
        explainer.explain(X3)


@BOTH
def test_feature_names_in(kind, tmp_path):
    frame = pd.DataFrame(X3, columns=["age", "sex", "pay"])
    explainer = _bif(kind, _g(3)).fit(frame)
    assert explainer.feature_names_in_.dtype == object and explainer.feature_names_in_.tolist() == ["age", "sex", "pay"]
    explainer.save(tmp_path / "e.bif")
    assert kind.load(tmp_path / "e.bif").feature_names_in_.tolist() == ["age", "sex", "pay"]
    for X, kw in ((X3, {}), (pd.DataFrame(X3), {}), (X3, {"feature_names": list("abc")})):
        explainer.set_params(**{"feature_names": None} | kw).fit(X)  # and a refit forgets the old ones
        assert not hasattr(explainer, "feature_names_in_")
        explainer.save(tmp_path / "e.bif")
        assert not hasattr(kind.load(tmp_path / "e.bif"), "feature_names_in_")


def test_names_that_are_given_stand_above_the_frames_own(tmp_path):
    frame = pd.DataFrame(X3, columns=["c0", "c1", "c2"])
    fitted = _bif(LocalBIF, _g(3), feature_names=["age", "sex", "pay"]).fit(frame)
    fitted.save(tmp_path / "e.bif")
    for explainer in (fitted, LocalBIF.load(tmp_path / "e.bif")):
        assert explainer.explain(frame).feature_names == ["age", "sex", "pay"]  # the frame of fit is no stranger
        assert list(explainer.feature_names_in_) == ["c0", "c1", "c2"]
        with pytest.raises(ValueError, match="not those of fit: it lacks c2; it has besides pay"):
            explainer.explain(frame.rename(columns={"c2": "pay"}))


@BOTH
def test_settings_are_judged_by_fit_alone(kind):
    for kw, message in (({"preset": "ranks"}, "preset must be one of rank, few, paper, released; got 'ranks'"),
                        ({"preset": None}, "preset must be one of"), ({"gate": "soft"}, "gate must be one of"),
                        ({"epochs": 0}, "epochs must be a whole number"), ({"verbose": 9}, "verbose must be")):
        explainer = _bif(kind, _g(3), **kw)
        with pytest.raises(ValueError, match=message):
            explainer.fit(X3)


@BOTH
def test_a_model_of_scikit_learns_is_told_of_distilling(kind):
    with pytest.raises(TypeError, match=r"cannot be differentiated: explain bifkit.distill\(model, X\)"):
        kind(LogisticRegression().fit(X3, X3[:, 0] > 0)).fit(X3)


@BOTH
def test_repr(kind):
    explainer = _bif(kind, _g(3), prior=0.5)
    text, html = repr(explainer), explainer._repr_html_() if hasattr(explainer, "_repr_html_") else ""
    assert text.startswith(f"{kind.__name__}(") and "prior=0.5" in text and "gate" not in text and "<" in (html or "<")
    assert kind.__name__ in repr(explainer.fit(X3))


@BOTH
@pytest.mark.parametrize("scale", [1.0, 0.2, 0.03])
@pytest.mark.parametrize("outputs", [1, 2])
def test_how_sure_g_is_of_itself_does_not_hide_what_it_uses(kind, scale, outputs):
    """A logistic g that uses four of twenty features; with small weights all its answers lie near one half."""
    g, weight = nn.Linear(20, outputs, bias=False), torch.zeros(20)
    weight[:4] = torch.tensor([1.0, -1.0, 0.8, -0.7]) * scale
    g.weight.data = torch.stack([-weight / 2, weight / 2]) if outputs == 2 else weight[None]
    X = np.random.default_rng(0).normal(size=(1000, 20)).astype("float32")
    found = kind(g, likelihood="binary" if outputs == 1 else None).fit(X).explain(X).to_global()
    assert set(found.top(4)) == {"x0", "x1", "x2", "x3"} and found.share[:4].sum() > 0.9
    assert set(found.relevant().names) == {"x0", "x1", "x2", "x3"}
