"""What g returns: parts of dicts, tuples and objects; several labels, several values; outputs that are no classes."""

import warnings
from collections import OrderedDict, namedtuple
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, r2_score
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from bifkit import GlobalBIF, LocalBIF, elbo, masked_surrogate, refine
from bifkit.evaluation import FitWarning
from bifkit.inputs import rows
from bifkit.inputs.models import Looks

X = np.random.default_rng(0).normal(size=(400, 4)).astype(np.float32)
Y = (X[:, 0] > 0).astype(int)
LABELS = (X[:, :3] + 0.3 > 0).astype(int)  # three labels, each of one feature
VALUES = X[:, :2] * np.float32([3.0, 500.0])  # two values in units of their own
BOTH = pytest.mark.parametrize("kind", [GlobalBIF, LocalBIF])


def _linear(weight):
    g = nn.Linear(len(weight[0]), len(weight), bias=False)
    g.weight.data.copy_(torch.tensor(weight))
    return g


CLASSES = _linear([[-3.0, 0, 0, 0], [3.0, 0, 0, 0]])
THREE = _linear([[4.0, 0, 0, 0], [0, 4.0, 0, 0], [0, 0, 4.0, 0]])
TWO_VALUES = _linear([[3.0, 0, 0, 0], [0, 500.0, 0, 0]])


class _Model(nn.Module):
    """A g that wraps what a linear one says."""

    def __init__(self, wrap, inner=CLASSES):
        super().__init__()
        self.inner, self.wrap = inner, wrap

    def forward(self, x):
        return self.wrap(self.inner(x))


class _ModelOutput(OrderedDict):
    """A dict whose keys are attributes too, as transformers' outputs are."""

    def __getattr__(self, name):
        return self[name]


Pair = namedtuple("Pair", "logits hidden")


def _bif(kind, g, **kw):
    small = {"min_steps": 40, "epochs": 1, "batch_size": 100} | ({"hidden": 16} if kind is LocalBIF else {})
    return kind(g, **small | kw)


# parts of what g returns

PARTS = {
    "a key": (lambda out: {"loss": out.sum(), "logits": out}, "logits"),
    "a key with a dot": (lambda out: {"loss": out.sum(), "logits": out}, ".logits"),
    "an attribute": (lambda out: SimpleNamespace(logits=out, hidden_states=None), "logits"),
    "transformers": (lambda out: _ModelOutput(logits=out), "logits"),
    "a field": (lambda out: Pair(out, None), "logits"),
    "a position": (lambda out: (None, out), 1),
    "the last": (lambda out: [None, out], -1),
    "a function": (lambda out: {"all": [out, out]}, lambda found: found["all"][1]),
    "columns": (lambda out: torch.cat([out, out], 1), lambda found: found[:, :2]),
}


@BOTH
@pytest.mark.parametrize("case", PARTS)
def test_a_part_is_explained_as_if_g_returned_it_alone(kind, case):
    wrap, output = PARTS[case]
    expected = _bif(kind, CLASSES).fit(X, Y).explain(X)
    fitted = _bif(kind, _Model(wrap), output=output).fit(X, Y)
    assert np.array_equal(fitted.explain(X).alpha, expected.alpha) and fitted.score_ == 1.0


@BOTH
def test_it_is_there_after_a_file_and_in_refine(kind, tmp_path):
    g = _Model(lambda out: {"logits": out})
    fitted = _bif(kind, g, output="logits").fit(X, Y)
    fitted.save(tmp_path / "e.bif")
    back = kind.load(tmp_path / "e.bif", g)
    assert back.output == "logits"
    assert np.array_equal(back.fit(X, Y).explain(X).alpha, fitted.explain(X).alpha)
    if kind is LocalBIF:
        alone = _bif(kind, CLASSES).fit(X, Y)
        assert np.array_equal(refine(back, X[:4], X, steps=3).alpha, refine(alone, X[:4], X, steps=3).alpha)
    fitted.set_params(output=lambda found: found["logits"]).save(tmp_path / "f.bif")  # a function is not saved
    assert kind.load(tmp_path / "f.bif", g).output is None


@BOTH
def test_released_learns_on_a_copy_of_the_whole_model(kind):
    g = _Model(lambda out: (out, out), nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)))
    before = {k: v.clone() for k, v in g.state_dict().items()}
    posterior = _bif(kind, g, preset="released", min_steps=5, output=0).fit(X, Y).explain(X)
    assert np.isfinite(posterior.alpha).all()
    assert all(torch.equal(v, before[k]) for k, v in g.state_dict().items())


@pytest.mark.parametrize("wrap, words", [
    (lambda out: {"loss": 0, "logits": out}, "got dict with 'loss', 'logits': say which part to explain by output="),
    (lambda out: (out, out), r"got tuple of 2 \(Tensor, Tensor\): say which"),
    (lambda out: SimpleNamespace(logits=out), "got SimpleNamespace with 'logits'"),
    (lambda out: Pair(out, None), "got Pair with 'logits', 'hidden'"),
    (lambda out: "yes", "got str: say which"),
])
def test_without_it_the_parts_are_named(wrap, words):
    with pytest.raises(ValueError, match=words):
        _bif(GlobalBIF, _Model(wrap)).fit(X)


@pytest.mark.parametrize("wrap, output, words", [
    (lambda out: {"logits": out}, "logit", "output='logit' is no part of what g returns, a dict with 'logits'"),
    (lambda out: {"logits": out}, 0, "output=0 is no part"), (lambda out: (out,), 1, "a tuple of 1"),
    (lambda out: out, 1, r"a tensor of shape \(4, 2\).*lambda out"),
    (lambda out: out, "mean", "output='mean' is no part"),
    (lambda out: (out,), True, "output=True is no part"),
    (lambda out: (out,), lambda found: found["x"], r"the function output= fails on .* a tuple of 1 .*TypeError"),
    (lambda out: {"a": {"b": out}}, "a", "must return one tensor .*got dict with 'b'"),
])
def test_a_part_that_is_not_there(wrap, output, words):
    with pytest.raises(ValueError, match=words):
        _bif(GlobalBIF, _Model(wrap), output=output).fit(X)


# several labels, several values

def test_the_likelihoods_are_those_of_torch():
    torch.manual_seed(0)
    out, mean = torch.randn(6, 3), torch.randn(6, 3)
    labels, scale = torch.bernoulli(torch.full((6, 3), 0.5)), torch.tensor([0.5, 2.0, 30.0])
    by_torch = torch.distributions.Bernoulli(logits=out).log_prob(labels).sum(1)
    assert torch.allclose(elbo.log_likelihood(out, labels, "multilabel"), by_torch, atol=1e-6)
    normal = torch.distributions.Normal(out, scale)
    gap = normal.log_prob(mean) - normal.log_prob(out)  # without the constant
    assert torch.allclose(elbo.log_likelihood(out, mean, "regression", scale), gap.sum(1), atol=1e-4)
    soft = elbo.soft_target(out, "multilabel")
    entropy = torch.distributions.Bernoulli(probs=soft).entropy().sum(1)
    assert torch.allclose(elbo.surprise(soft, "multilabel"), entropy, atol=1e-5)
    for c in range(3):
        one = elbo.target_reader("soft", "multilabel", c)(out, None)
        assert torch.allclose(one, soft[:, c])  # not to the bit: vector lanes round a sigmoid in their own way
        assert torch.equal(elbo.target_reader("soft", "regression", c)(out, None), out[:, c])
        assert torch.equal(elbo.target_reader("labels", "multilabel", c)(None, labels), labels[:, c])


@BOTH
@pytest.mark.parametrize("target", ["soft", "labels"])
@pytest.mark.parametrize("g, y, likelihood, n", [(THREE, LABELS, "multilabel", 3),
                                                 (TWO_VALUES, VALUES, "regression", 2)])
def test_all_of_them_share_the_importance(kind, target, g, y, likelihood, n):
    settings = {"min_steps": 300, "target": target, "kl_weight": 0.003, "lr": 0.05 if kind is GlobalBIF else 0.01}
    fitted = _bif(kind, g, **settings).fit(X, y)
    share = fitted.explain(X).to_global().share
    assert fitted.likelihood_ == likelihood and share[n:].max() < 0.1
    assert np.abs(share[:n] - 1 / n).max() < 0.12  # whatever the unit of a value
    one = _bif(kind, g, classes=1, **settings).fit(X, y).explain(X).to_global()
    assert one.top(1) == ["x1"] and one.share[1] > 0.7  # a label or a value alone
    for c, p in _bif(kind, g, classes="each", **settings).fit(X, y).explain(X).items():
        assert p.to_global().top(1) == [f"x{c}"]


@BOTH
@pytest.mark.parametrize("g, y, likelihood", [(THREE, LABELS, "multilabel"), (TWO_VALUES, VALUES, "regression")])
def test_a_loader_knows_what_memory_knows(kind, g, y, likelihood):
    noisy = np.where(np.random.default_rng(1).random(y.shape) < 0.2, y[::-1], y)
    loader = DataLoader(TensorDataset(torch.from_numpy(X), torch.from_numpy(noisy).float()), batch_size=150)
    common = {"device": "cpu", "likelihood": None, "feature_names": None, "batch_size": 100, "groups": None}
    memory, streamed = rows.source(X, noisy, g, **common), rows.source(loader, None, g, **common)
    assert memory.likelihood == streamed.likelihood == likelihood
    with torch.no_grad():
        said = g(torch.from_numpy(X)).numpy()
    by_sklearn = r2_score(noisy, said) if likelihood == "regression" else \
        np.mean([accuracy_score(noisy[:, c], said[:, c] > 0) for c in range(3)])
    assert [memory.score, streamed.score] == pytest.approx([by_sklearn] * 2, abs=1e-5)
    assert memory.gain == pytest.approx(streamed.gain, rel=1e-4)
    if likelihood == "regression":
        for target, values in (("labels", noisy), ("soft", said)):
            for found in (memory, streamed):
                assert np.allclose(found.scale(target), values.std(0, ddof=1), rtol=1e-4)
    assert np.isfinite(_bif(kind, g).fit(loader).explain(X).alpha).all()


def test_a_constant_guess_is_compared_with():
    y = (np.random.default_rng(1).random((400, 3)) < [0.9, 0.1, 0.1]).astype(int)
    with pytest.warns(UserWarning, match="no better than the most frequent class"):
        fitted = _bif(GlobalBIF, THREE, min_steps=5).fit(X, y)
    assert fitted.score_ < 0.9


def test_refine_and_files_with_several(tmp_path):
    for g, y in ((THREE, LABELS), (TWO_VALUES, VALUES)):
        for classes in (None, 1):
            fitted = _bif(LocalBIF, g, classes=classes).fit(X, y)
            fitted.save(tmp_path / "e.bif")
            back = LocalBIF.load(tmp_path / "e.bif", g)
            assert np.array_equal(back.explain(X).alpha, fitted.explain(X).alpha)
            assert back.likelihood_ == back.likelihood == fitted.likelihood_
            refined = refine(back, X[:6], X, steps=60)
            assert refined.mean.shape == (6, 4) and refined.mean[:, 3].max() < 0.3


# outputs without y

def _trained(outputs, loss, targets):
    """A small network, trained in plain torch in a tenth of a second."""
    torch.manual_seed(0)
    g = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, outputs))
    optimiser, x = torch.optim.Adam(g.parameters(), lr=0.01), torch.from_numpy(X)
    for _ in range(150):
        optimiser.zero_grad()
        loss(g(x), torch.as_tensor(targets)).backward()
        optimiser.step()
    return g


def _pinball(out, y):
    gap = y[:, None] - out
    return torch.maximum(torch.tensor([0.1, 0.5, 0.9]) * gap, torch.tensor([-0.9, -0.5, -0.1]) * gap).mean()


NOISY = X[:, 0] + 0.3 * np.random.default_rng(2).normal(size=400).astype(np.float32)
CROSS = nn.functional.cross_entropy
NO_CLASSES = {
    "three quantiles": lambda: _trained(3, _pinball, NOISY),
    "quantiles that cross": lambda: _linear([[3.0, 0.1, 0, 0], [3.0, 0, 0, 0], [3.0, 0, 0.1, 0]]),
    "two standardised values": lambda: _trained(2, nn.functional.mse_loss, X[:, :2]),
    "two values in units of their own": lambda: TWO_VALUES,
    "logits of three labels": lambda: _trained(3, nn.functional.binary_cross_entropy_with_logits,
                                               LABELS.astype(np.float32)),
    "sigmoids of three labels": lambda: nn.Sequential(THREE, nn.Sigmoid()),
    "a mean and the logarithm of a variance": lambda: _Model(lambda out: out * torch.tensor([1.0, 0.1]), TWO_VALUES),
}
RARE = (X[:, 0] > 1.8).astype(int)  # 3 % of the rows
CLASSIFIERS = {
    "two classes": lambda: _trained(2, CROSS, Y), "four classes": lambda: _trained(4, CROSS, Y + 2 * (X[:, 1] > 0)),
    "a rare class": lambda: _trained(2, CROSS, RARE),
    "one logit fixed": lambda: _Model(lambda out: torch.stack([0 * out[:, 1], out[:, 1]], 1)),
    "log-softmax": lambda: nn.Sequential(_trained(3, CROSS, Y + (X[:, 1] > 1)), nn.LogSoftmax(1)),
    "hardly trained": lambda: _trained(3, lambda out, y: 0.1 * CROSS(out, y), Y + (X[:, 1] > 1)),
}


@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.parametrize("case", NO_CLASSES)
def test_outputs_that_may_be_no_classes_are_asked_for(case, batches):
    g, data = NO_CLASSES[case](), DataLoader(torch.from_numpy(X), batch_size=100) if batches else X
    words = "there is no y .* may not be logits of classes.*'categorical' if.*'multilabel' for.*'regression' for"
    with pytest.raises(ValueError, match=words):
        _bif(GlobalBIF, g, min_steps=5).fit(data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # said, they are what they are said to be
        for said in ("regression", "categorical"):
            assert _bif(GlobalBIF, g, min_steps=5, likelihood=said).fit(data).likelihood_ == said


@BOTH
@pytest.mark.parametrize("case", CLASSIFIERS)
def test_a_classifier_needs_no_labels(kind, case):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=FitWarning)  # of five steps
        assert _bif(kind, CLASSIFIERS[case](), min_steps=5).fit(X).likelihood_ == "categorical"


def test_labels_decide_and_few_rows_are_not_judged():
    assert _bif(GlobalBIF, THREE, min_steps=5).fit(X, LABELS).likelihood_ == "multilabel"
    assert _bif(GlobalBIF, THREE, min_steps=5).fit(X, X[:, :3].argmax(1)).likelihood_ == "categorical"
    assert _bif(GlobalBIF, THREE, min_steps=5).fit(X[:19]).likelihood_ == "categorical"
    with pytest.raises(ValueError, match="may not be logits of classes"):
        _bif(GlobalBIF, THREE, min_steps=5).fit(X[:20])
    with pytest.raises(ValueError, match="may not be logits of classes"):
        masked_surrogate(THREE, X, epochs=1, min_steps=1)


def test_values_that_balance_each_other_and_keep_their_order_are_warned_of():
    g = _Model(lambda out: out + torch.tensor([0.0, 90.0]), CLASSES)
    with pytest.warns(UserWarning, match="output 1 is the largest in every row: if they are no classes, say"):
        _bif(GlobalBIF, g, min_steps=5).fit(X)


def test_the_balance_is_that_of_numpy():
    out = np.random.default_rng(0).normal([5e3, 1, 0], [1, 2, 3], size=(300, 3)).astype(np.float32)
    looks = Looks()
    for part in np.split(out, [1, 50, 120]):
        looks.add(torch.from_numpy(part))
    assert looks.together == pytest.approx(np.var(out.astype(float).sum(1)) / np.var(out.astype(float), 0).sum())


def test_sigmoids_of_labels_look_like_probabilities():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _bif(GlobalBIF, THREE, min_steps=5, likelihood="multilabel").fit(X)
    with pytest.warns(UserWarning, match="look like probabilities .*last sigmoid"):
        _bif(GlobalBIF, nn.Sequential(THREE, nn.Sigmoid()), min_steps=5, likelihood="multilabel").fit(X)
