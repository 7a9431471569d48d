"""The wrappers of captum, shap and lime against closed forms, brute force and the packages themselves."""

import math
from itertools import combinations

import numpy as np
import pytest
import torch
from lime.lime_image import LimeImageExplainer
from torch import nn

from experiments.models.classifiers import mlp, predict_proba
from experiments.rivals import attribution as at

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 4)).astype(np.float32)
BACKGROUND = RNG.normal(size=(20, 4)).astype(np.float32)


def linear(outputs):
    torch.manual_seed(3)
    return nn.Linear(4, outputs)


def weights_at(model):
    """Weights (N, D) of the output that is explained in each row."""
    w = model.weight.detach().numpy()
    with torch.no_grad():
        rows = model(torch.as_tensor(X)).argmax(1).numpy() if len(w) > 1 else np.zeros(len(X), int)
    return w[rows]


def network(outputs=3, activation="relu"):
    torch.manual_seed(1)
    return mlp([4, 16, 16, outputs], activation=activation).eval()


@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_linear_models_have_closed_forms(outputs):
    model = linear(outputs)
    w = weights_at(model)
    mean = BACKGROUND.mean(0)
    assert np.allclose(at.integrated_gradients(model, X), np.abs(w * X), atol=1e-5)
    assert np.allclose(at.integrated_gradients(model, X, baseline=mean), np.abs(w * (X - mean)), atol=1e-5)
    assert np.allclose(at.saliency(model, X), np.abs(w), atol=1e-6)
    assert np.allclose(at.shap_deep(model, X, BACKGROUND), np.abs(w * (X - mean)), atol=1e-5)
    assert np.allclose(at.shap_kernel(model, X, BACKGROUND), np.abs(w * (X - mean)), atol=1e-5)
    close = at.shap_gradient(model, X, BACKGROUND, nsamples=200)
    assert np.allclose(close, np.abs(w * (X - mean)), atol=0.3)


def test_target_names_the_class():
    model = linear(3)
    w = model.weight.detach().numpy()
    assert np.allclose(at.saliency(model, X, target=2), np.abs(w[2]), atol=1e-6)
    assert np.allclose(at.saliency(model, X, target=[0, 1, 2, 0, 1, 2]), np.abs(w[[0, 1, 2, 0, 1, 2]]), atol=1e-6)
    assert np.allclose(at.shap_deep(model, X, BACKGROUND, target=1),
                       np.abs(w[1] * (X - BACKGROUND.mean(0))), atol=1e-5)


def test_integrated_gradients_equal_a_fine_sum_along_the_path():
    model = network(activation="tanh")
    x = torch.as_tensor(X)
    cls = model(x).argmax(1)
    total = torch.zeros_like(x)
    for t in (torch.arange(2000) + 0.5) / 2000:
        point = (x * t).requires_grad_()
        total += torch.autograd.grad(model(point).gather(1, cls[:, None]).sum(), point)[0]
    assert np.allclose(at.integrated_gradients(model, X), (x * total / 2000).abs().numpy(), atol=1e-4)


def test_shap_kernel_equals_shapley_values_by_enumeration():
    model = network(activation="tanh")
    d, n = 4, 2
    cls = predict_proba(model, X).argmax(1)
    expected = np.zeros((n, d))
    for r in range(n):
        def value(kept, r=r):
            rows = BACKGROUND.copy()
            rows[:, list(kept)] = X[r, list(kept)]
            with torch.no_grad():
                return float(model(torch.as_tensor(rows))[:, cls[r]].mean())
        for i in range(d):
            others = [j for j in range(d) if j != i]
            for size in range(d):
                weight = math.factorial(size) * math.factorial(d - size - 1) / math.factorial(d)
                for kept in combinations(others, size):
                    expected[r, i] += weight * (value((*kept, i)) - value(kept))
    assert np.allclose(at.shap_kernel(model, X[:n], BACKGROUND), np.abs(expected), atol=1e-4)


@pytest.mark.parametrize("classes", [2, 3])
def test_shap_tree_finds_the_feature_that_makes_the_label(classes):
    rows = np.random.default_rng(1).normal(size=(1500, 5))
    y = np.digitize(rows[:, 3], [-0.5, 0.5] if classes == 3 else [0.0])
    scores = at.shap_tree(rows, y, rows[:100], seed=1)
    assert scores.shape == (100, 5) and (scores >= 0).all()
    assert (scores.argmax(1) == 3).mean() > 0.95
    assert np.array_equal(scores, at.shap_tree(rows, y, rows[:100], seed=1))


def test_lime_ranks_a_logistic_model_by_its_weights():
    model = nn.Linear(4, 2)
    w = torch.tensor([2.0, 0.0, 1.0, 0.3])
    model.load_state_dict({"weight": torch.stack([-w / 2, w / 2]), "bias": torch.zeros(2)})
    rows = np.random.default_rng(1).normal(size=(2000, 4))
    scores = at.lime_model(model, rows, [[2.0, 2.0, 2.0, 2.0]], seed=0)  # outer quartile of every feature
    assert np.argsort(-scores[0]).tolist() == [0, 2, 3, 1]
    assert np.array_equal(scores, at.lime_model(model, rows, [[2.0, 2.0, 2.0, 2.0]], seed=0))


def test_lime_forest_finds_the_feature_that_makes_the_label():
    rows = np.random.default_rng(1).normal(size=(600, 4))
    y = np.digitize(rows[:, 1], [-0.5, 0.5])
    scores = at.lime_forest(rows, y, rows[:8], trees=50, num_samples=500)
    assert scores.shape == (8, 4) and (scores.argmax(1) == 1).mean() > 0.8


PATCHES = np.add.outer(np.arange(8) // 4 * 2, np.arange(8) // 4)  # four 4x4 patches of an 8x8 image


def image_model():
    """One logit: the sum of patch 2 minus half the sum of patch 1."""
    flat = PATCHES.ravel()
    layer = nn.Linear(64, 1)
    w = torch.as_tensor((flat == 2) - 0.5 * (flat == 1), dtype=torch.float32)
    layer.load_state_dict({"weight": w[None] / 8, "bias": torch.zeros(1)})
    return layer


def test_lime_image_equals_the_package_and_finds_the_patches():
    image, model = np.random.default_rng(1).uniform(0.5, 1, size=(8, 8)), image_model()
    ours, segments = at.lime_image(model, image, segments=PATCHES, num_samples=300, seed=4)
    explainer = LimeImageExplainer(random_state=at.derive("lime_image", 4) % 2**32)
    theirs = explainer.explain_instance(
        image, lambda images: predict_proba(model, np.asarray(images)[..., 0].reshape(len(images), -1)),
        top_labels=1, hide_color=0.0, num_samples=300, segmentation_fn=lambda _: PATCHES)
    for segment, weight in theirs.local_exp[theirs.top_labels[0]]:
        assert ours[segment] == pytest.approx(abs(weight), rel=1e-6)
    assert np.argsort(-ours)[:2].tolist() == [2, 1] and np.array_equal(segments, PATCHES)
    rows = at.lime_patches(model, np.stack([image.ravel()] * 2), PATCHES.ravel(), num_samples=300, seed=4)
    assert rows.shape == (2, 4) and (rows.argmax(1) == 2).all()


def test_lime_image_may_segment_by_itself():
    image = np.zeros((16, 16))
    image[2:7, 2:7], image[10:, 9:] = 1.0, 0.6
    weights, segments = at.lime_image(mlp([256, 8, 2]), image, num_samples=50)
    assert segments.shape == image.shape and len(weights) == segments.max() + 1


def test_sum_groups_adds_up():
    scores, groups = np.random.default_rng(1).uniform(size=(3, 4)), np.array([1, 0, 1, 2])
    expected = np.stack([scores[:, groups == g].sum(1) for g in range(3)], 1)
    assert np.allclose(at.sum_groups(scores, groups), expected)
    assert np.allclose(at.sum_groups(scores, groups).sum(), scores.sum())


def test_the_model_is_left_as_it_was():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 2)).train()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    for scores in (at.integrated_gradients(model, X), at.shap_deep(model, X, BACKGROUND),
                   at.shap_gradient(model, X, BACKGROUND, nsamples=5), at.saliency(model, X)):
        assert scores.shape == X.shape and (scores >= 0).all() and np.isfinite(scores).all()
    assert model.training and model[1].inplace and not any(m._forward_hooks for m in model.modules())
    assert all(p.requires_grad for p in model.parameters())
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())


def test_global_random_state_is_left_alone():
    np.random.seed(0)
    expected = np.random.rand()
    np.random.seed(0)
    at.shap_kernel(linear(2), X[:1], BACKGROUND[:2])
    at.shap_gradient(linear(2), X[:1], BACKGROUND[:2], nsamples=5)
    assert np.random.rand() == expected


@pytest.mark.parametrize("call, message", [
    (lambda: at.integrated_gradients(linear(2), [[1.0, np.nan, 0, 0]]), "NaN"),
    (lambda: at.saliency(linear(2), X, target="true"), "target must be"),
    (lambda: at.saliency(linear(2), X, target=2), "between 0 and 1"),
    (lambda: at.saliency(nn.Sequential(nn.Linear(4, 1), nn.Flatten(0)), X), "must return logits"),
    (lambda: at.lime_model(linear(2), X, X[:, :3]), "3 features, X_train 4"),
    (lambda: at.lime_image(linear(2), np.zeros(4)), "grey image"),
    (lambda: at.lime_image(linear(2), np.zeros((2, 2)), segments=np.zeros((1, 2), int)), "shape"),
    (lambda: at.lime_patches(linear(2), np.zeros((1, 3)), [0, 0, 0]), "no square"),
    (lambda: at.sum_groups([[1.0, 2.0]], [0, 2]), "without gaps"),
])
def test_bad_calls_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
