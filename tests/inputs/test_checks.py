"""Bad input is refused with a sentence; odd but legitimate input passes, with at most one warning."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from bifkit import GlobalBIF, LocalBIF
from bifkit.inputs import checks, models

X = np.random.default_rng(0).normal(size=(120, 3)).astype(np.float32)
Y = (X[:, 0] > 0).astype(int)
BOTH = pytest.mark.parametrize("kind", [GlobalBIF, LocalBIF])


def _g(outputs=2, **kw):
    """A linear g that predicts Y: its outputs rise with the first feature."""
    torch.manual_seed(0)
    g = nn.Linear(3, outputs, **kw)
    g.weight.data[:, 0] = torch.linspace(-2, 2, outputs) if outputs > 1 else 2.0
    return g


def _fit(kind, model=None, X=X, y=Y, **kw):
    kw = {"min_steps": 10, "epochs": 1, **({"hidden": 8} if kind is LocalBIF else {}), **kw}
    return kind(_g() if model is None else model, **kw).fit(X, y)


def _with(value, where=(5, 1)):
    bad = X.astype(np.float64)
    bad[where] = value
    return bad


# what is refused

BAD_X = {
    "NaN": (_with(np.nan), ValueError, r"NaN or infinite values \(first in column 1, 1 columns in all\): impute"),
    "infinite": (_with(-np.inf), ValueError, "NaN or infinite"),
    "wrong width": (np.c_[X, X[:, :2]], ValueError, "g cannot take rows of 5 features .*columns g was trained on"),
    "empty": (X[:0], ValueError, "X is empty: there is no row to explain"),
    "one feature": (X[:, :1], ValueError, "X has one feature: importance is relative"),
    "no feature": (X[:, :0], ValueError, "X has no feature"),
    "one row": (X[:1], ValueError, r"X has 1 row\(s\), fit needs at least 2"),
    "flat": (X[:, 0], ValueError, r"one row per instance and one column per feature; got shape \(120,\)"),
    "None": (None, ValueError, "one row per instance"),
    "a number": (3, ValueError, "one row per instance"),
    "text": (np.full((120, 3), "male"), TypeError, "X must be numeric; encode text and categories first"),
    "a frame with text": (pd.DataFrame(X).assign(c="x"), TypeError, "X must be numeric"),
    "equal names": (pd.DataFrame(X, columns=["a", "b", "a"]), ValueError, "feature names must differ"),
}


@BOTH
@pytest.mark.parametrize("case", BAD_X)
def test_bad_rows(kind, case):
    bad, error, message = BAD_X[case]
    with pytest.raises(error, match=message):
        _fit(kind, X=bad, y=Y[:len(bad)] if hasattr(bad, "__len__") else Y)


BAD_Y = {
    "no class of g": (Y + 1, ValueError, r"class numbers 0..1 that g predicts; got values from 1 to 2"),
    "negative": (Y - 1, ValueError, "class numbers 0..1 .*from -1 to 0"),
    "between classes": (Y + 0.5, ValueError, "class numbers 0..1"),
    "longer than X": (np.r_[Y, 0], ValueError, r"y has shape \(121,\), X has 120 rows: give one label per row"),
    "shorter than X": (Y[:-1], ValueError, r"y has shape \(119,\)"),
    "one-hot": (np.eye(2)[Y], ValueError, r"y has shape \(120, 2\) and one 1 in every row: .*y.argmax\(1\)"),
    "too many columns": (np.eye(3)[Y], ValueError, r"y has shape \(120, 3\), X has 120 rows and g 2 outputs"),
    "counts": (np.c_[Y, Y + 3], ValueError, "0 and 1, one column for each label .*say likelihood='regression'"),
    "text": (np.where(Y, "yes", "no"), TypeError, "class numbers 0..C-1 or float targets; got <U3: encode"),
    "NaN": (np.where(Y, np.nan, 0.0), ValueError, "y holds NaN or infinite values"),
    "missing": (pd.Series(Y, dtype="Int64").mask(Y == 1), ValueError, "y holds NaN"),
}


@BOTH
@pytest.mark.parametrize("case", BAD_Y)
def test_bad_labels(kind, case):
    bad, error, message = BAD_Y[case]
    with pytest.raises(error, match=message):
        _fit(kind, y=bad)


class _Module(nn.Module):
    """A g made of one function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


BAD_G = {
    "a forest": (RandomForestClassifier(3).fit(X, Y), TypeError,
                 "a torch.nn.Module; got RandomForestClassifier. A scikit-learn model cannot be differentiated"),
    "a function": (lambda x: x, TypeError, "got function"),
    "no weights": (_g(device="meta"), ValueError, "meta device and has no weights; load them first"),
    "two devices": (nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2, device="meta")), ValueError,
                    r"spread over several devices \(cpu, meta\)"),
    "argmax": (_Module(lambda x: nn.functional.one_hot(x.argmax(1), 3)), ValueError, "does not depend differentiably"),
    "detached": (_Module(lambda x: x.detach() * 2), ValueError, "does not depend differentiably"),
    "constant": (_Module(lambda x: torch.ones(len(x), 2, requires_grad=True)), ValueError, "differentiably"),
    "a tuple": (_Module(lambda x: (x, x)), ValueError, "must return one tensor .*got tuple"),
    "three axes": (_Module(lambda x: x[:, :, None]), ValueError, r"must return one tensor .*got shape \(4, 3, 1\)"),
    "one row for all": (_Module(lambda x: x.mean(0)), ValueError, r"got shape \(3,\) for 4 rows"),
    "NaN": (_Module(lambda x: x * float("nan")), ValueError, "g returns NaN or infinite values"),
    "other columns": (_Module(lambda x: x[:, [0, 7]]), ValueError, "g cannot take rows of 3 features"),
}


@BOTH
@pytest.mark.parametrize("case", BAD_G)
def test_bad_models(kind, case):
    bad, error, message = BAD_G[case]
    with pytest.raises(error, match=message):
        _fit(kind, bad)


class _Linear(nn.Module):
    """Two logits from a linear score of the inputs, plus whatever a function adds to it."""

    def __init__(self, more=None, weight=(2.0, -1.0, 0.0)):
        super().__init__()
        self.weight, self.more = nn.Parameter(torch.tensor(weight)), more

    def forward(self, x):
        score = x @ self.weight + (0 if self.more is None else self.more(x))
        return torch.stack([score, -score], 1)


NO_GRADIENT = {
    "an index": lambda x: torch.linspace(-1, 1, 9)[x[:, 2].clamp(-4, 4).long() + 4],
    "a threshold": lambda x: torch.where(x[:, 2] < 0, -1.0, 1.0),
    "rounded": lambda x: x[:, 2].round(),
}


@BOTH
@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.parametrize("case", NO_GRADIENT)
def test_inputs_that_g_uses_without_a_gradient_are_refused(kind, case, batches):
    g, names = _Linear(NO_GRADIENT[case]), ["age", "pay", "city"]
    start = "batch 1 of the DataLoader: " if batches else ""
    rows = DataLoader(TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)), batch_size=40) if batches else X
    with pytest.raises(ValueError, match=rf"^{start}g uses city, but has no gradient for it .*bifkit\.distill\(g, X"):
        _fit(kind, g, rows, None if batches else Y, feature_names=names)


def test_all_inputs_without_a_gradient_are_named():
    def more(x):
        return x[:, 0].sign() + x[:, 2].round()

    with pytest.raises(ValueError, match="g uses x0, x2, but has no gradient"):
        _fit(GlobalBIF, _Linear(more, weight=(0.0, 1.0, 0.0)))


@BOTH
@pytest.mark.parametrize("g", [
    _Linear(),  # antisymmetric logits, w x and -w x, whose sum has no gradient; x2 is not used
    _Linear(lambda x: x[:, 2].relu()), _Linear(lambda x: 0.001 * x[:, 2]), _Linear(lambda x: x[:, 2] * (x[:, 2] > 1)),
    _Linear(lambda x: 0 * x[:, 2].round()),
])
def test_antisymmetric_logits_and_unused_columns_are_not_refused(kind, g):
    batches = DataLoader(TensorDataset(torch.from_numpy(X)), batch_size=40)
    for rows, y in ((X, Y), (batches, None)):
        assert _fit(kind, g, rows, y).explain(X).feature_names == ["x0", "x1", "x2"]


BAD_SETTINGS = [
    ({"device": "cuda"}, "g is on cpu, but device='cuda' was asked for: call model.to"),
    ({"preset": "best"}, "preset must be one of rank, few, paper, released; got 'best'"),
    ({"gate": "soft"}, "gate must be one of"), ({"draws": 0}, "draws must be a whole number"),
    ({"batch_size": 1}, "batch_size must be a whole number of at least 2"), ({"lr": "fast"}, "lr must be a positive"),
    ({"groups": {"size": ["x0", "height"]}}, "unknown feature 'height' in 'size'; features are x0, x1, x2"),
    ({"groups": [0, 0, 0]}, "all features stand in one group"),
    ({"feature_names": ["a", "b"]}, "feature_names has 2 names for 3 features"),
    ({"feature_names": ["a", "b", "a"]}, "feature names must differ"),
    ({"likelihood": "poisson"}, "likelihood must be categorical, binary, multilabel or regression"),
    ({"likelihood": "regression"}, r"y has shape \(120,\), X has 120 rows and g 2 outputs: give one label per row and"),
    ({"likelihood": "binary"}, "needs a g with one output; this one has 2: say 'categorical'"),
    ({"model": _g(1), "likelihood": "multilabel"}, "needs a g with two or more outputs; this one has one"),
]


@BOTH
@pytest.mark.parametrize("setting, message", BAD_SETTINGS)
def test_bad_settings(kind, setting, message):
    with pytest.raises(ValueError, match=message):
        _fit(kind, **setting)


@BOTH
def test_unknown_parameters(kind):
    with pytest.raises(TypeError, match="unexpected keyword argument 'learning_rate'"):
        kind(_g(), learning_rate=0.1)
    with pytest.raises(TypeError, match="positional"):
        kind(_g(), "rank", "max")  # hyper-parameters go by name
    with pytest.raises(ValueError, match="Invalid parameter 'learning_rate'"):
        kind(_g()).set_params(learning_rate=0.1)


def test_an_image_of_another_size():
    with pytest.raises(ValueError, match="has 4 pixels, the data 3 features"):
        _fit(LocalBIF, image=(2, 2))


def test_one_output_needs_to_know_what_it_predicts():
    with pytest.raises(ValueError, match="say likelihood='binary' .* or 'regression'"):
        _fit(GlobalBIF, _g(1), y=None)
    with pytest.raises(ValueError, match="from 0 to 119; if g predicts a quantity, say likelihood='regression'"):
        _fit(GlobalBIF, _g(1), y=np.arange(120))


def test_rows_to_explain_are_checked_like_rows_to_fit():
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    fitted = _fit(LocalBIF, X=frame)
    with pytest.raises(ValueError, match="X has 2 features, expected 3"):
        fitted.explain(X[:, :2])
    with pytest.raises(ValueError, match="NaN or infinite"):
        fitted.explain(_with(np.nan))
    with pytest.raises(ValueError, match="columns are not those of fit: it lacks c; it has besides d"):
        fitted.explain(frame.set_axis(["b", "a", "d"], axis=1))
    assert np.array_equal(fitted.explain(frame[["b", "a", "c"]]).mean, fitted.explain(frame).mean)
    assert len(fitted.explain(X[:1])) == 1 and len(fitted.explain(frame[:1])) == 1


# what passes

SAME = {
    "list": X.tolist(), "float64": X.astype(np.float64), "column order": np.asfortranarray(X), "frame": pd.DataFrame(X),
    "tensor": torch.from_numpy(X), "tensor that wants gradients": torch.tensor(X, requires_grad=True),
    "double tensor": torch.from_numpy(X).double(), "every other row": np.repeat(X, 2, 0)[::2],
    "image": X.reshape(120, 3, 1), "frame of mixed types": pd.DataFrame(X).astype({0: "float64"}),
}


@pytest.mark.parametrize("case", SAME)
def test_many_spellings_of_the_same_rows(case):
    tensor, shape, names, index = checks.check_X(SAME[case])
    assert tensor.dtype == torch.float32 and np.array_equal(tensor.numpy(), X)
    assert int(np.prod(shape)) == 3 and len(names) == 3 and (index is None) == ("frame" not in case)


def test_rows_that_must_not_be_written_to():
    fixed = X.copy()
    fixed.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tensor = checks.check_X(fixed)[0]
    tensor += 1
    assert np.array_equal(fixed, X)


@pytest.mark.parametrize("y", [Y.tolist(), Y.astype(bool), Y.astype(float), Y.astype(np.uint8), Y[:, None],
                               pd.Series(Y, index=range(500, 620)), pd.Series(Y, dtype="Int64"), torch.from_numpy(Y)])
def test_many_spellings_of_the_same_labels(y):
    likelihood, labels = checks.check_y(y, 120, 2)
    assert likelihood == "categorical" and labels.dtype == torch.int64 and np.array_equal(labels, Y)
    assert checks.check_y(y, 120, 1)[0] == "binary"


def test_the_likelihood_follows_outputs_and_labels():
    assert checks.check_y(Y + 0.25, 120, 1)[0] == "regression"
    assert checks.check_y(np.arange(120) * 1.0, 120, 1)[0] == "regression"
    assert checks.check_y(np.arange(120), 120, 1, "regression")[0] == "regression"
    assert checks.check_y(Y, 120, 1, "regression")[0] == "regression"
    assert checks.check_y(np.arange(120) % 5, 120, 5)[0] == "categorical"
    assert checks.check_y(None, 120, 5) == ("categorical", None)
    assert checks.check_y(None, 120, 1, "binary") == ("binary", None)


# oddities of real data

def _odd(*kinds):
    odd = X.copy()
    if "constant" in kinds:
        odd[:, 1] = 0.1
    if "duplicate" in kinds:
        odd[:, 2] = odd[:, 0]
    if "zero" in kinds:
        odd[7] = 0
    return odd


@BOTH
@pytest.mark.parametrize("kinds, words", [
    (("constant",), ["1 constant column(s), e.g. x1"]), (("duplicate",), ["1 duplicate column(s), e.g. x2"]),
    (("zero",), ["1 all-zero row(s)"]), (("duplicate", "zero"), ["duplicate column(s)", "all-zero row(s)"]),
    (("constant", "duplicate"), ["constant column(s)", "duplicate column(s)"]),
])
def test_odd_data_work_with_exactly_one_warning(kind, kinds, words):
    odd = _odd(*kinds)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        posterior = _fit(kind, X=odd).explain(odd)
    assert np.isfinite(posterior.mean).all()
    assert len(caught) == 1 and caught[0].category is UserWarning and all(w in str(caught[0].message) for w in words)
    assert caught[0].filename == __file__  # it points at the caller's line


@BOTH
def test_clean_data_give_no_warning(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _fit(kind).explain(X)


def test_columns_that_differ_late_are_no_duplicates():
    tall = torch.zeros(6000, 3)
    tall[:, 0] = torch.arange(1, 6001)
    tall[5990, 1], tall[5990, 2] = 1.0, 2.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checks.warn_oddities(tall, ["a", "b", "c"])
    tall[5990, 2] = 1.0
    with pytest.warns(UserWarning, match="1 duplicate column"):
        checks.warn_oddities(tall, ["a", "b", "c"])


# probabilities where logits are expected

ENDS = {"softmax": (2, nn.Softmax(1), "rows sum to 1.*last softmax"), "sigmoid": (1, nn.Sigmoid(), "last sigmoid")}


@BOTH
@pytest.mark.parametrize("end", ENDS)
def test_probabilities_give_exactly_one_warning(kind, end):
    outputs, last, advice = ENDS[end]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _fit(kind, nn.Sequential(_g(outputs), last), y=None, likelihood="binary" if outputs == 1 else None, restarts=2)
    assert len(caught) == 1 and caught[0].category is UserWarning and caught[0].filename == __file__
    assert re.search(f"g must return logits.*{advice}", str(caught[0].message))


def test_logits_and_quantities_pass_in_silence():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for rows, likelihood in (([[0.2, 0.7], [0.5, 0.5]], "categorical"),  # in [0, 1], but no sum of one
                                 ([[1.5, -0.5], [0.5, 0.5]], "categorical"),  # sums of one
                                 ([[0.2], [1.2]], "binary"), ([[0.2, 0.3], [0.2, 1.2]], "multilabel")):
            looks = models.Looks()
            for row in rows:  # one by one, as batches come
                looks.add(torch.tensor([row]))
            looks.check(likelihood)
        _fit(GlobalBIF, nn.Sequential(_g(1), nn.Sigmoid()), y=X[:, 0] * 1.0)  # a regression may stay in [0, 1]


# freezing

def test_frozen_restores_every_flag_also_after_an_error():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 2)).train()
    model[1].eval()
    model[0].weight.requires_grad_(False)
    modes, flags = [m.training for m in model.modules()], [p.requires_grad for p in model.parameters()]
    with pytest.raises(KeyError), models.frozen(model):
        assert not any(m.training for m in model.modules()) and not any(p.requires_grad for p in model.parameters())
        raise KeyError
    assert modes == [m.training for m in model.modules()] and flags == [p.requires_grad for p in model.parameters()]


def test_like_is_the_dtype_of_the_weights():
    assert models.like(_g(dtype=torch.float64)).dtype == torch.float64 and models.like(_g()).dtype == torch.float32
    assert models.like(_Module(torch.sin)).dtype == torch.float32
    assert models.like(nn.Sequential(nn.Embedding(3, 2), nn.BatchNorm1d(2)).double()).dtype == torch.float64


@pytest.mark.parametrize("rows", [1, 7, 10, 23])
def test_outputs_of_all_rows_in_order_and_without_a_graph(rows):
    torch.manual_seed(0)
    g, X = nn.Linear(3, 2), torch.randn(rows, 3)
    found = models.outputs(g, X, batch_size=10)
    assert torch.allclose(found, g(X), atol=1e-6) and not found.requires_grad
