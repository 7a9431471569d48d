"""The classifiers, their one training loop, and predictions that leave a model as it is."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LinearRegression, LogisticRegression
from torch import nn

from experiments.models.classifiers import accuracy, freeze, loss, mlp, paper_g, predict_proba, train

RNG = np.random.default_rng(0)
X = RNG.normal(size=(600, 3)).astype(np.float32)
Y = ((X[:, 0] - 0.5 * X[:, 1] + RNG.normal(size=600)) > 0).astype(int)


def _kinds(model):
    return [type(m).__name__ for m in model]


def test_mlp_has_the_layers_asked_for():
    assert _kinds(mlp([11, 100, 100, 2])) == ["Linear", "ReLU", "Linear", "ReLU", "Linear"]
    assert _kinds(mlp([3, 4, 1], batch_norm=True, activation="selu", dropout=0.2)) == [
        "Linear", "BatchNorm1d", "SELU", "Dropout", "Linear"]
    assert [m.weight.shape for m in mlp([5, 7, 2]) if isinstance(m, nn.Linear)] == [(7, 5), (2, 7)]
    for sizes in ([3], [], [3, 0, 2]):
        with pytest.raises(ValueError, match="at least two positive widths"):
            mlp(sizes)
    with pytest.raises(ValueError, match="activation must be one of"):
        mlp([3, 2], activation="gelu")


def test_the_papers_g_has_no_relu_after_its_first_layer():
    assert _kinds(paper_g(11, 2)) == ["Linear", "BatchNorm1d", "Linear", "BatchNorm1d", "ReLU", "Linear"]


def test_the_loss_follows_outputs_and_labels():
    out, y = torch.randn(9, 3), torch.randint(3, (9,))
    assert torch.equal(loss(out, y), nn.CrossEntropyLoss()(out, y))
    z, b, t = torch.randn(9, 1), torch.randint(2, (9,)), torch.randn(9)
    assert torch.isclose(loss(z, b), nn.BCEWithLogitsLoss()(z[:, 0], b.float()))
    assert torch.isclose(loss(z, t), ((z[:, 0] - t) ** 2).mean())


@pytest.mark.parametrize("outputs", [1, 2])
def test_a_linear_model_learns_what_logistic_regression_learns(outputs):
    torch.manual_seed(0)
    g = train(mlp([3, outputs]), X, Y, epochs=100, lr=0.2, weight_decay=0.0)
    reference = LogisticRegression(C=1e6).fit(X, Y)
    assert np.abs(predict_proba(g, X) - reference.predict_proba(X)).max() < 0.05
    assert not any(m.training for m in g.modules())


def test_float_labels_are_a_regression():
    torch.manual_seed(0)
    y = (2 * X[:, 0] - X[:, 2] + 1).astype(np.float64)
    g = train(mlp([3, 1]), X, y, epochs=60, lr=0.1, weight_decay=0.0)
    reference = LinearRegression().fit(X, y)
    assert np.allclose(g[0].weight.detach(), reference.coef_, atol=0.05)


@pytest.mark.parametrize("options", [{}, {"optimizer": "sgd", "schedule": None, "weight_decay": 5e-4}])
def test_a_seed_repeats_whatever_happened_before(options):
    def fit(seed, before):
        torch.manual_seed(0)
        g = mlp([3, 8, 2], dropout=0.3)
        torch.manual_seed(before)
        return predict_proba(train(g, X, Y, epochs=2, seed=seed, **options), X)

    assert np.array_equal(fit(1, before=1), fit(1, before=2))
    assert not np.array_equal(fit(1, before=1), fit(2, before=1))


@pytest.mark.parametrize("rows", [3, 100, 201])
def test_any_number_of_rows_trains(rows):
    g = train(mlp([3, 4, 2], batch_norm=True), pd.DataFrame(X[:rows]), pd.Series(Y[:rows]), epochs=2)
    assert np.isfinite(predict_proba(g, X)).all()


def test_frozen_weights_do_not_train():
    g = mlp([3, 8, 2])
    g[0].requires_grad_(False)
    before = g[0].weight.clone()
    train(g, X, Y, epochs=1)
    assert torch.equal(before, g[0].weight)
    assert not any(p.requires_grad for p in freeze(g).parameters()) and not g.training


def test_predictions_are_probabilities_in_the_rows_order():
    torch.manual_seed(0)
    g = mlp([3, 8, 4])
    p = predict_proba(g, X)
    assert np.allclose(p, torch.softmax(g(torch.from_numpy(X)), 1).detach(), atol=1e-6)
    assert np.allclose(p, predict_proba(g, X, batch_size=7), atol=1e-6)
    y = np.random.default_rng(1).integers(0, 4, 600)
    assert accuracy(g, X, y) == np.mean([int(np.argmax(row)) == label for row, label in zip(p, y, strict=True)])


def test_one_logit_becomes_two_columns():
    torch.manual_seed(0)
    g = mlp([3, 1])
    p = predict_proba(g, X)
    expected = 1 / (1 + np.exp(-g(torch.from_numpy(X)).detach().numpy()[:, 0]))
    assert p.shape == (600, 2) and np.allclose(p[:, 1], expected, atol=1e-6) and np.allclose(p.sum(1), 1)
    assert np.array_equal(predict_proba(nn.Sequential(g, nn.Flatten(0)), X), p)  # (N,) is one logit too
    assert np.allclose(predict_proba(g.double(), X), p, atol=1e-6)


def test_a_prediction_leaves_the_model_as_it_is():
    g = mlp([3, 8, 2], batch_norm=True, dropout=0.5).train()
    before = {k: v.clone() for k, v in g.state_dict().items()}
    assert np.array_equal(predict_proba(g, X), predict_proba(g, X))  # no dropout
    assert all(torch.equal(v, before[k]) for k, v in g.state_dict().items()) and all(m.training for m in g.modules())
    assert all(p.requires_grad for p in g.parameters())
