"""L2X and INVASE: their parts against closed forms and second implementations, the whole on a known truth."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn

from experiments.models.classifiers import freeze
from experiments.rivals import INVASE, L2X
from experiments.rivals.invase import selector_loss
from experiments.rivals.l2x import relaxed_subset
from experiments.rivals.nets import FlatAdam, generator, keras_mlp

SMALL = {"L2X": {"hidden": 32, "predictor_hidden": 32, "iterations": 300, "batch_size": 100, "lr": 5e-3},
         "INVASE": {"hidden": 32, "critic_hidden": 32, "iterations": 300, "batch_size": 200, "lr": 1e-2}}


def make(method, k=2, **changes):
    settings = SMALL[method] | changes
    return L2X(k, **settings) if method == "L2X" else INVASE(**settings)


def switch_data(n=3000, seed=0):
    """x5 > 0: the label is the sign of x0, otherwise of x1; so two of six features matter in every row."""
    X = np.random.default_rng(seed).normal(size=(n, 6)).astype(np.float32)
    on = X[:, 5] > 0
    truth = np.zeros(X.shape, bool)
    truth[:, 5], truth[on, 0], truth[~on, 1] = True, True, True
    return X, (np.where(on, X[:, 0], X[:, 1]) > 0).astype(int), truth


def test_relaxed_subset_is_the_union_of_k_categorical_draws():
    logits = torch.log(torch.tensor([0.5, 0.3, 0.15, 0.05])).expand(40_000, 4)
    mask = relaxed_subset(logits, 3, 1e-4, generator("test"))
    expected = 1 - (1 - logits[0].exp()) ** 3  # a feature is in unless all three draws miss it
    assert torch.allclose(mask.mean(0), expected, atol=0.01)
    assert mask.sum(1).max() <= 3 + 1e-4


def test_selector_loss_has_the_gradient_of_the_expected_reward():
    """Over all masks of three features the policy gradient is the gradient of -E[reward] + lam mean(pi)."""
    torch.manual_seed(0)
    logits = torch.randn(1, 3, requires_grad=True)
    masks = torch.tensor(list(itertools.product([0.0, 1.0], repeat=3)))
    reward, pi = torch.randn(8), logits.sigmoid()
    p = (pi * masks + (1 - pi) * (1 - masks)).prod(1)
    truth, = torch.autograd.grad(-(p * reward).sum() + 0.7 * pi.mean(), logits)
    weighted = [p[i].detach() * selector_loss(logits, masks[i:i + 1], reward[i:i + 1], 0.7) for i in range(8)]
    ours, = torch.autograd.grad(sum(weighted), logits)
    assert torch.allclose(ours, truth, atol=1e-6)


def test_flat_adam_equals_torch_adam_with_weight_decay():
    x, y = torch.randn(50, 3, generator=generator("x")), torch.randn(50, 2, generator=generator("y"))
    nets = [keras_mlp([3, 8, 2], activation="selu", batch_norm=True, rng=generator("net")) for _ in range(2)]
    spare = nets[1][-1].weight
    ours = FlatAdam([nets[0]], lr=0.01, l2=0.05, spare=[nets[0][-1].weight])
    decay = [nets[1][0].weight]
    rest = [p for p in nets[1].parameters() if p is not decay[0]]
    theirs = torch.optim.Adam([{"params": decay, "weight_decay": 0.1}, {"params": rest}], lr=0.01, eps=1e-7)
    for _ in range(30):
        ours.step((nets[0](x) - y).square().mean())
        theirs.zero_grad()
        (nets[1](x) - y).square().mean().backward()
        theirs.step()
    assert torch.allclose(nets[0][0].weight, nets[1][0].weight, atol=1e-5)
    assert torch.allclose(nets[0][-1].weight, spare, atol=1e-5)


def test_l2x_finds_the_features_of_each_row():
    X, y, _ = switch_data()
    model = make("L2X", k=1, iterations=800).fit(X, y)
    Xt, yt, truth = switch_data(1000, seed=1)
    chosen = model.selected(Xt)
    assert (chosen.sum(1) == 1).all()  # the selector sees the switch itself, so the other feature is enough
    assert (chosen & truth)[:, :2].mean() > 0.45
    assert (model.predict_proba(Xt).argmax(1) == yt).mean() > 0.9
    assert np.array_equal(chosen.argmax(1), model.scores(Xt).argmax(1))


def test_invase_finds_the_features_of_each_row():
    X, y, _ = switch_data()
    model = make("INVASE", iterations=800, lam=0.3).fit(X, y)
    Xt, yt, truth = switch_data(1000, seed=1)
    chosen = model.selected(Xt)
    assert (chosen & truth)[:, :2].sum() / truth[:, :2].sum() > 0.9
    assert chosen[:, 2:5].mean() < 0.1
    assert (model.predict_proba(Xt).argmax(1) == yt).mean() > 0.9


def test_a_larger_lam_selects_fewer():
    X, y, _ = switch_data(1000)
    counts = [make("INVASE", iterations=150, lam=lam).fit(X, y).scores(X).sum() for lam in (0.0, 20.0)]
    assert counts[1] < 0.3 * counts[0]


@pytest.mark.parametrize("method", ["L2X", "INVASE"])
def test_groups_share_one_score_and_one_mask(method):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 6)).astype(np.float32)
    y = (X[:, 1] + X[:, 5] > 0).astype(int)  # both inputs of group 2
    groups = np.array([0, 2, 0, 1, 1, 2])
    model = make(method, k=1, groups=groups).fit(X, y)
    scores = model.scores(X)
    assert scores.shape == (1500, 3) and scores.mean(0).argmax() == 2
    mask = model.selected(X)[:, groups]
    with torch.no_grad():
        expected = model.predictor(torch.as_tensor(X * mask)).softmax(1).numpy()
    assert np.allclose(model.predict_proba(X), expected, atol=1e-6)
    assert (expected.argmax(1) == y).mean() > 0.9


@pytest.mark.parametrize("method", ["L2X", "INVASE"])
def test_three_classes(method):
    X = np.random.default_rng(0).normal(size=(1000, 4)).astype(np.float32)
    y = np.digitize(X[:, 2], [-0.5, 0.5])
    model = make(method, k=1).fit(X, y)
    assert model.predict_proba(X).shape == (1000, 3) and model.scores(X).mean(0).argmax() == 2


@pytest.mark.parametrize("method", ["L2X", "INVASE"])
def test_a_seed_reproduces_exactly_and_leaves_other_streams_alone(method):
    X, y, _ = switch_data(300)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first = make(method, iterations=30, seed=1).fit(X, y).scores(X)
    torch.rand(7)
    torch.manual_seed(5)
    again = make(method, iterations=30, seed=1).fit(X, y).scores(X)
    assert torch.equal(torch.rand(3), expected)  # building networks draws no number of the global stream
    other = make(method, iterations=30, seed=2).fit(X, y).scores(X)
    assert np.array_equal(first, again) and not np.array_equal(first, other)


def linear_classifier(weights, outputs=2):
    layer = nn.Linear(len(weights), outputs)
    w = torch.tensor(weights)
    rows = [w] if outputs == 1 else [-w / 2, w / 2]
    layer.load_state_dict({"weight": torch.stack(rows), "bias": torch.zeros(outputs)})
    return freeze(layer)


@pytest.mark.parametrize("outputs", [1, 2])
def test_invase_explains_a_frozen_classifier(outputs):
    """Only the selector learns, and it keeps what this classifier uses: feature 3, though the label is feature 0."""
    g = linear_classifier([0.0, 0.0, 0.0, 4.0, 0.0], outputs)
    before = [p.clone() for p in g.parameters()]
    X = np.random.default_rng(0).normal(size=(1500, 5)).astype(np.float32)
    y = (X[:, 3] > 0).astype(int)
    model = make("INVASE", classifier=g, lam=0.5).fit(X, y)
    assert model.selected(X).mean(0).round().tolist() == [0, 0, 0, 1, 0]
    assert model.predictor is g and all(torch.equal(a, b) for a, b in zip(before, g.parameters(), strict=True))
    assert np.allclose(model.predict_proba(X).sum(1), 1, atol=1e-6)


def test_invase_with_a_frozen_baseline_trains_selector_and_predictor():
    g = linear_classifier([3.0, 0.0, 0.0])
    before = g.weight.clone()
    X = np.random.default_rng(0).normal(size=(1000, 3)).astype(np.float32)
    y = (X[:, 0] > 0).astype(int)
    model = make("INVASE", baseline=g).fit(X, y)
    assert torch.equal(before, g.weight) and model.predictor is not g
    assert model.scores(X).mean(0).argmax() == 0


def test_frozen_model_with_too_few_classes_is_refused():
    X = np.zeros((6, 3), np.float32)
    with pytest.raises(ValueError, match="2 classes, the labels have 3"):
        make("INVASE", classifier=linear_classifier([1.0, 0.0, 0.0])).fit(X, [0, 1, 2, 0, 1, 2])


def test_budgets_are_the_published_schedules():
    assert INVASE(budget="published").plan == {"iterations": 10_000, "batch_size": 1000, "lr": 1e-4}
    assert L2X(2, budget="published").plan == {"iterations": 1000, "batch_size": 1000, "lr": 1e-3}
    assert INVASE(budget="published", iterations=7).plan["iterations"] == 7


@pytest.mark.parametrize("build, message", [
    (lambda: L2X(0), "k must be"), (lambda: L2X(1.5), "k must be"), (lambda: L2X(2, tau=0), "tau must be"),
    (lambda: L2X(2, epochs=3, iterations=4), "not both"), (lambda: L2X(2, budget="long"), "budget must be"),
    (lambda: INVASE(lam=-1), "lam must be"), (lambda: INVASE(lam=float("nan")), "lam must be"),
    (lambda: INVASE(lr=-1), "lr must be"), (lambda: INVASE(classifier=1, baseline=1), "not both"),
    (lambda: INVASE(l2=-1), "l2 must"), (lambda: INVASE(activation="gelu").fit([[1.0]] * 3, [0, 1, 0]), "activation"),
    (lambda: L2X(3).fit([[1.0, 2.0]] * 4, [0, 1] * 2), "only 2 features"),
    (lambda: L2X(1).fit([[1.0, float("nan")]] * 4, [0, 1] * 2), "NaN"),
    (lambda: L2X(1).fit([[1.0, 2.0]] * 4, [0, 1]), "one class number per row"),
    (lambda: L2X(1).fit([[1.0, 2.0]] * 2, [0, 0.5]), "class numbers"),
    (lambda: INVASE().fit([1.0, 2.0], [0, 1]), "must be a table"),
    (lambda: INVASE(groups=[0, 2]).fit([[1.0, 2.0]] * 2, [0, 1]), "without gaps"),
    (lambda: INVASE(groups=[0]).fit([[1.0, 2.0]] * 2, [0, 1]), "one group per feature"),
])
def test_bad_settings_are_named(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_not_fitted_and_wrong_width():
    with pytest.raises(RuntimeError, match="not fitted"):
        L2X(1).scores([[1.0]])
    X, y, _ = switch_data(100)
    with pytest.raises(ValueError, match="2 features, the fit had 6"):
        make("INVASE", iterations=2).fit(X, y).scores([[1.0, 2.0]])
