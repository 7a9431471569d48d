"""Rows from a DataLoader: the facts and the fit of rows in memory, errors that name their batch, bounded memory."""

import warnings

import numpy as np
import psutil
import pytest
import torch
from sklearn.exceptions import NotFittedError
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from bifkit import GlobalBIF, LocalBIF
from bifkit.inputs import rows as rows_module
from experiments.models.classifiers import mlp

X = torch.from_numpy(np.random.default_rng(0).normal([0, 9, 0, 0], 3, size=(401, 4)).astype(np.float32))
Y = (X[:, 1] > 9).long()
BOTH = pytest.mark.parametrize("kind", [GlobalBIF, LocalBIF])


def _g(weight=((0, -3, 0, 0), (0, 3, 0, 0)), bias=(27.0, -27.0)):
    """A linear g: feature 1 against its mean, unless others are given."""
    g = nn.Linear(4, len(weight))
    g.weight.data.copy_(torch.tensor(weight, dtype=torch.float32))
    g.bias.data.copy_(torch.tensor(bias))
    return g


def _bif(kind, model=None, *args, **kw):
    small = {"min_steps": 20, "epochs": 1, "batch_size": 100} | ({"hidden": 16} if kind is LocalBIF else {})
    return kind(_g() if model is None else model, *args, **small | kw)


def _loader(x=X, y=Y, batch_size=100, **kw):
    return DataLoader(x if y is None else TensorDataset(x, y), batch_size=batch_size, **kw)


class _Stream(IterableDataset):
    """Batches made by a function each time the loader is gone through; no length."""

    def __init__(self, make):
        self.make, self.times = make, 0

    def __iter__(self):
        self.times += 1
        return iter(self.make())


def _stream(make):
    return DataLoader(_Stream(make), batch_size=None, generator=torch.Generator())  # draws nothing from torch's stream


def _facts(rows):
    return rows.n, rows.width, rows.shape, rows.names, rows.likelihood, rows.outputs


def _both(x, y, model, loader=None, **kw):
    kw = {"device": "cpu", "likelihood": None, "feature_names": None, "batch_size": 100, "groups": None} | kw
    loader = _loader(x, y) if loader is None else loader
    return rows_module.source(x, y, model, **kw), rows_module.source(loader, None, model, **kw)


# the facts

@pytest.mark.parametrize("size", [2, 7, 100, 401, 1000])
def test_the_facts_are_those_of_the_rows_in_memory(size):
    memory, streamed = _both(X, Y, _g(), _loader(batch_size=size))
    assert _facts(memory) == _facts(streamed) and memory.score == pytest.approx(streamed.score, abs=1e-12)
    for rows in (memory, streamed):
        assert np.allclose(rows.mean, X.double().mean(0), rtol=1e-5, atol=1e-6)
        assert np.allclose(rows.sd, np.std(X.double().numpy(), axis=0), rtol=1e-5)
    assert torch.equal(memory.some(), streamed.some()) and len(streamed.some(30)) == min(30, 401)


def test_a_mean_far_above_the_sd_does_not_drown_it():
    """Sums of squares would lose these digits: 1e7 squared has 14 of the 16 that a double holds."""
    x = torch.from_numpy(np.random.default_rng(0).integers(-2, 3, size=(300, 2)).astype(np.float32) + 1e7)
    rows = _both(x, None, nn.Identity(), _loader(x, None), likelihood="categorical")[1]
    assert np.allclose(rows.sd, np.std(x.double().numpy(), axis=0), rtol=1e-6)


def test_moments_against_numpy():
    values = np.random.default_rng(0).normal(5, 2, size=(50, 3))
    values[:, 2] = 0.1
    moments = rows_module.Moments()
    for part in np.split(values, [1, 4, 30]):
        moments.add(torch.from_numpy(part))
    assert np.allclose(moments.mean, values.mean(0), rtol=1e-14)
    assert np.allclose(moments.var, values.var(0), rtol=1e-12) and moments.var[2] == 0
    assert np.array_equal(moments.low, values.min(0)) and np.array_equal(moments.high, values.max(0))


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_a_regression_has_sklearns_score_and_the_targets_own_unit(scale):
    g, y = _g([[0, scale, 0, 0]], [0.0]), (X[:, 1] + X[:, 0]) * scale
    memory, streamed = _both(X, y, g, likelihood="regression")
    expected = r2_score(y.double().numpy(), g(X).detach().double()[:, 0].numpy())
    assert memory.score == pytest.approx(expected) and streamed.score == pytest.approx(expected)
    for target, values in (("labels", y), ("soft", g(X).detach()[:, 0])):
        sd = np.std(values.double().numpy(), ddof=1)
        assert [float(streamed.scale(target)), float(memory.scale(target))] == pytest.approx([sd, sd], rel=1e-5)


def test_a_target_that_does_not_vary():
    y = torch.full((401,), 0.1)
    memory, streamed = _both(X, y, _g([[0, 1, 0, 0]], [0.0]), likelihood="regression")
    assert memory.scale("labels") == streamed.scale("labels") == 1.0
    assert streamed.score == r2_score(np.zeros(401), np.ones(401)) == 0.0
    memory, streamed = _both(X, torch.zeros(401), _g([[0, 0, 0, 0]], [0.0]), likelihood="regression")
    assert memory.score == streamed.score == 1.0


@BOTH
def test_the_likelihood_follows_the_labels(kind):
    one = _g([[0, 3, 0, 0]], [-27.0])
    assert _bif(kind, one).fit(_loader()).likelihood_ == "binary"
    assert _bif(kind, one).fit(_loader(X, X[:, 1])).likelihood_ == "regression"
    with pytest.raises(ValueError, match="batch 1 .*say likelihood='binary' .* or 'regression'"):
        _bif(kind, one).fit(_loader(X, None))
    late = torch.cat([torch.ones(100), X[100:, 1]])  # the first batch alone looks like a class
    with pytest.raises(ValueError, match="batch 2 .*if g predicts a quantity, say likelihood='regression'"):
        _bif(kind, one).fit(_loader(X, late))
    assert _bif(kind, one, likelihood="regression").fit(_loader(X, late)).score_ == pytest.approx(
        _bif(kind, one).fit(X, late).score_)


# the fit

class _Epochs:
    """The batches that rows in memory are cut into, with the same draws from torch's stream; the first pass counts."""

    def __init__(self, size, *tensors):
        self.size, self.tensors, self.pass_ = size, tensors, 0

    def __call__(self):
        self.pass_, n = self.pass_ + 1, len(self.tensors[0])
        order, stop = (torch.arange(n), n) if self.pass_ == 1 else (torch.randperm(n), n // self.size * self.size)
        for rows in order[:stop].split(self.size):
            yield [t[rows] for t in self.tensors]


@BOTH
@pytest.mark.parametrize("preset, target", [("rank", "soft"), ("few", "labels"), ("few", "soft"), ("paper", "labels"),
                                            ("released", "labels")])
def test_the_very_same_batches_give_the_same_alpha(kind, preset, target, monkeypatch):
    """Bit for bit, once the mean and the sd of the inputs, which are sums in another order, are made the same."""
    true = rows_module.Streamed.__init__

    def counted(self, *args, **kw):
        true(self, *args, **kw)
        assert torch.allclose(self.mean, X.mean(0)) and torch.allclose(self.sd, X.std(0, unbiased=False))
        self.mean, self.sd = X.mean(0), X.std(0, unbiased=False)
        whole = rows_module.InMemory(X, None, args[1], batch_size=100, likelihood="categorical")
        assert self.gain == pytest.approx(whole.gain, rel=1e-9)
        self.gain = whole.gain

    monkeypatch.setattr(rows_module.Streamed, "__init__", counted)
    torch.manual_seed(0)
    explainer = _bif(kind, mlp([4, 8, 2], batch_norm=True), preset, target=target, min_steps=10, epochs=2)
    memory = explainer.fit(X, Y).explain(X).alpha
    same = np.abs(memory - explainer.fit(_stream(_Epochs(100, X, Y))).explain(X).alpha)
    other = np.abs(memory - explainer.fit(_loader()).explain(X).alpha)
    assert same.max() == 0 < other.mean()


@BOTH
def test_the_target_of_a_g_that_learns_along_stays_as_it_was(kind):
    """``released`` trains a copy of g; a soft target is what g said before that."""
    true, seen = rows_module.Streamed.batches, []

    def watched(self, read, g=None):
        for x, target in true(self, read, g):
            seen.append(target)
            yield x, target

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows_module.Streamed, "batches", watched)
        _bif(kind, mlp([4, 8, 2], batch_norm=True), "released", min_steps=6, lr=0.5,
             likelihood="categorical").fit(
            _loader(X[:400], None, batch_size=400))
    assert len(seen) == 6 and all(torch.equal(seen[0], later) for later in seen[1:])


def test_an_epoch_of_a_loader_is_one_pass_and_one_more_counts():
    for rows, epochs, least, steps in ((401, 3, 1, 12), (400, 1, 9, 9)):  # a batch of one row is no step
        loader = _stream(lambda rows=rows: X[:rows].split(100))
        fitted = _bif(GlobalBIF, epochs=epochs, min_steps=least).fit(loader)
        assert loader.dataset.times == 4 and fitted.diagnostics_.steps == steps


@BOTH
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_loader_finds_what_rows_in_memory_find(kind, shuffle):
    kw = {"min_steps": 150, "lr": 0.05 if kind is GlobalBIF else 0.01}
    memory = _bif(kind, **kw).fit(X, Y).explain(X)
    streamed = _bif(kind, **kw).fit(_loader(shuffle=shuffle)).explain(X)
    for p in (memory, streamed):
        assert (p.to_global().top(1) == ["x1"]) and p.to_global().mean[1] > 0.5
    assert np.abs(memory.mean - streamed.mean).mean() < 0.05


@BOTH
def test_a_seed_repeats_the_fit_of_a_loader_that_shuffles(kind):
    g = _g()

    def fit(seed):
        return _bif(kind, g, min_steps=5, seed=seed).fit(_loader(shuffle=True, batch_size=50))

    state = torch.get_rng_state()
    first = fit(3)
    assert torch.equal(state, torch.get_rng_state())
    torch.manual_seed(99)
    again = fit(3)
    assert np.array_equal(first.explain(X).alpha, again.explain(X).alpha) and first.diagnostics_ == again.diagnostics_
    assert not np.array_equal(first.explain(X).alpha, fit(4).explain(X).alpha)


@BOTH
def test_rows_alone_explain_the_models_own_prediction(kind):
    fitted = _bif(kind, None, "few").fit(_loader(X, None))
    assert fitted.settings_.target == "soft" and fitted.score_ is None and fitted.likelihood_ == "categorical"
    single = DataLoader(TensorDataset(X), batch_size=100)  # yields [x]
    assert np.array_equal(_bif(kind, None, "few").fit(single).explain(X).alpha, fitted.explain(X).alpha)


@BOTH
def test_images_and_whole_numbers(kind):
    images = torch.from_numpy(np.random.default_rng(0).integers(0, 255, size=(60, 1, 6, 6)).astype(np.uint8))
    g = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(32, 3))
    kw = {"image": (6, 6)} if kind is LocalBIF else {}
    fitted = _bif(kind, g, groups=np.arange(36) // 12, **kw).fit(_loader(images, torch.arange(60) % 3, batch_size=20))
    assert fitted.shape_ == (1, 6, 6) and fitted.explain(_loader(images, None)).alpha.shape[-1] == 3
    with pytest.raises(ValueError, match="batch 2 of the DataLoader: X has 25 features, expected 36"):
        _bif(kind, g).fit(_stream(lambda: [images[:20], images[20:40, :, 1:, 1:]]))


@BOTH
def test_names_and_classes(kind):
    fitted = _bif(kind, feature_names=list("abcd"), classes="each").fit(_loader())
    found = fitted.explain(_loader())
    assert sorted(found) == [0, 1] and found[0].feature_names == list("abcd")
    assert not hasattr(fitted, "feature_names_in_")


# what is refused, and that nothing is half-fitted then

def _spoilt(batch, x):
    return [x if i == batch else part for i, part in enumerate(X.split(100))]


NAN = torch.full((100, 4), float("nan"))
BAD = {
    "NaN in the third batch": (lambda: _spoilt(2, NAN), ValueError, "batch 3 of the DataLoader: X holds NaN"),
    "another width later": (lambda: _spoilt(3, torch.zeros(5, 6)), ValueError, "batch 4 .*6 features, expected 4"),
    "another width first": (lambda: [torch.zeros(5, 6)], ValueError, "batch 1 .*g cannot take rows of 6 features"),
    "single rows": (lambda: list(X), ValueError, r"batch 1 .*one row per instance.*; got shape \(4,\)"),
    "one row each": (lambda: X.split(1), ValueError, "every batch of the DataLoader has one row.*batch_size=2 or more"),
    "one row in all": (lambda: [X[:1]], ValueError, r"gave 1 row\(s\), fit needs at least 2"),
    "empty": (list, ValueError, r"the DataLoader gave 0 row\(s\), fit needs at least 2"),
    "an empty batch": (lambda: [X, X[:0]], ValueError, "batch 2 .*X is empty"),
    "labels in some batches": (lambda: [[X[:100], Y[:100]], X[100:]], ValueError,
                               "batch 2 .*some batches have labels and some have not"),
    "no class of g": (lambda: [[X, Y], [X, Y + 1]], ValueError, "batch 2 .*class numbers 0..1 that g predicts"),
    "labels of other rows": (lambda: [[X, Y[1:]]], ValueError, r"batch 1 .*y has shape \(400,\), X has 401 rows"),
    "a triple": (lambda: [(X, Y, Y)], TypeError, r"batch 1 .*must yield tensors x, or pairs \(x, y\).*got a list of 3"),
    "a dict": (lambda: [{"x": X}], ValueError, "batch 1 .*g cannot take rows"),  # this g takes one tensor
    "text": (lambda: ["a", "b"], TypeError, "batch 1 .*got a str"),
}


@BOTH
@pytest.mark.parametrize("case", BAD)
def test_bad_loaders(kind, case):
    make, error, message = BAD[case]
    explainer = _bif(kind).fit(X, Y)
    with pytest.raises(error, match=message):
        explainer.fit(_stream(make))
    with pytest.raises(NotFittedError, match="is not fitted: call fit"):
        explainer.explain(X)
    with pytest.raises(NotFittedError):
        check_is_fitted(explainer)
    assert not [name for name in vars(explainer) if name.endswith("_")]


@BOTH
def test_labels_beside_a_loader(kind):
    with pytest.raises(ValueError, match=r"the labels come from it, in batches \(x, y\): leave y out"):
        _bif(kind).fit(_loader(), Y)


@BOTH
def test_a_generator_that_is_used_up(kind):
    once = iter(X.split(100))
    with pytest.raises(ValueError, match="gave rows once and none when asked again: its dataset must start anew"):
        _bif(kind).fit(_stream(lambda: once))


@BOTH
def test_odd_rows_warn_once_and_at_the_callers_line(kind):
    odd = X.clone()
    odd[:, 2], odd[7], odd[333] = 0.1, 0, 0
    odd[[7, 333], 2] = 0.1
    odd[:, 3], odd[5] = 1.0, 0
    odd[5, 2:] = torch.tensor([0.1, 1.0])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _bif(kind).fit(_loader(odd))
    assert len(caught) == 1 and caught[0].filename == __file__
    assert "2 constant column(s), e.g. x2" in str(caught[0].message)
    with pytest.warns(UserWarning, match=r"1 all-zero row\(s\)"):
        _bif(kind).fit(_loader(torch.cat([X[:400], torch.zeros(1, 4)])))
    with pytest.warns(UserWarning, match="look like probabilities"):
        _bif(kind, nn.Sequential(_g(), nn.Softmax(1))).fit(_loader())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        inside = nn.Sequential(_g([[0, 0.01, 0, 0]], [0.4]))  # in [0, 1] for all rows but one, in the last batch
        rows = torch.cat([X[:399], torch.tensor([[0, -100.0, 0, 0]])])
        _bif(kind, inside, likelihood="binary").fit(_loader(rows, None))


# explaining

@pytest.mark.parametrize("kw", [{}, {"restarts": 2}, {"classes": "each"}, {"classes": [1, 0], "restarts": 2}])
def test_explaining_a_loader_is_explaining_its_rows_in_one_pass(kw):
    fitted = _bif(LocalBIF, min_steps=5, **kw).fit(X, Y)
    loader = _stream(lambda: ([x, y] for x, y in zip(X.split(100), Y.split(100), strict=True)))
    whole, streamed = fitted.explain(X), fitted.explain(loader)
    if "classes" not in kw:
        whole, streamed = {None: whole}, {None: streamed}
    assert list(whole) == list(streamed) and loader.dataset.times == 1
    for c in whole:
        assert np.allclose(whole[c].alpha, streamed[c].alpha, atol=1e-6) and len(streamed[c]) == 401
        alphas = np.mean([net(X).detach().double() for net in fitted.networks_], axis=0)
        assert np.allclose(whole[c].alpha, alphas if c is None else alphas[fitted.classes_.index(c)], atol=1e-6)


def test_a_bad_batch_to_explain_is_named():
    fitted = _bif(LocalBIF, min_steps=3).fit(X, Y)
    for make, message in ((lambda: _spoilt(2, NAN), "batch 3 .*NaN"), (list, "the DataLoader gave no batch"),
                          (lambda: [X, torch.zeros(2, 3)], "batch 2 .*X has 3 features, expected 4")):
        with pytest.raises(ValueError, match=message):
            fitted.explain(_stream(make))


def test_explaining_does_not_keep_the_rows():
    """Each batch may be overwritten as soon as the next is asked for; a list of them would show the last one only."""
    buffer = torch.empty(100, 4)

    def reused():
        for part in X[:400].split(100):
            buffer.copy_(part)
            yield buffer

    fitted = _bif(LocalBIF, min_steps=3, restarts=2).fit(_stream(reused))
    assert np.allclose(fitted.explain(_stream(reused)).alpha, fitted.explain(X[:400]).alpha, atol=1e-6)
    assert torch.equal(rows_module.Streamed(_stream(reused), (_g(), None, None, None, "cpu")).some(), X[:400])


# memory

ROWS, WIDTH, SIZE = 300_000, 50, 2500


def test_memory_holds_a_batch_not_the_data():
    g, sizes = nn.Linear(WIDTH, 2), []
    g.weight.data.zero_()
    g.weight.data[1, :3] = 3.0

    def made_on_the_fly():
        generator = torch.Generator().manual_seed(0)
        for _ in range(ROWS // SIZE):
            yield torch.randn(SIZE, WIDTH, generator=generator)
            sizes.append(psutil.Process().memory_info().rss)

    explainer = LocalBIF(g, epochs=1, min_steps=1, hidden=16)
    explainer.fit(_stream(lambda: [torch.randn(SIZE, WIDTH)]))  # what a first fit loads is not counted
    before, data = psutil.Process().memory_info().rss, 4 * ROWS * WIDTH
    fitted = explainer.fit(_stream(made_on_the_fly))
    assert len(sizes) >= 2 * fitted.diagnostics_.steps - 1 == 2 * ROWS // SIZE - 1
    grown = max(sizes) - before
    assert grown < data / 3, f"memory grew by {grown / 1e6:.0f} MB, the data have {data / 1e6:.0f}"
    assert set(fitted.explain(torch.randn(500, WIDTH)).to_global().top(3)) == {"x0", "x1", "x2"}


def test_the_reader_is_asked_for_a_batch_at_a_time():
    rows = rows_module.Streamed(_loader(), (_g(), None, None, None, "cpu"))
    stream, seen = rows.batches(lambda output, labels: labels), 0
    for (x, target), expected in zip(stream, X.split(100), strict=False):
        seen += len(x)
        if seen > 400:
            break
        assert torch.equal(x, expected) and torch.equal(target, Y[seen - len(x):seen])
    assert seen == 500  # the fifth batch, of one row, was passed over: the next epoch has begun
