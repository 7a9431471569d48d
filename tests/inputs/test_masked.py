"""The surrogate knows what a blank is: compared with expectations computed by hand, and with scikit-learn's scores."""

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, r2_score
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from bifkit import LocalBIF, masked_surrogate, refine
from bifkit.inputs import MaskedSurrogate, draw_masks

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2500, 4)).astype(np.float32)
QUICK = {"epochs": 1, "min_steps": 500, "lr": 1e-2, "hidden": 64, "progress": False}


def two_logits():
    """g looks at the sum of the first two columns, and calls a blank row a 1 for certain: it has never seen one."""
    g = nn.Linear(4, 2)
    g.weight.data = torch.tensor([[-2.0, -2.0, 0, 0], [2.0, 2.0, 0, 0]])
    g.bias.data = torch.tensor([-1.0, 1.0])
    return g


@pytest.fixture(scope="module")
def surrogate():
    return masked_surrogate(two_logits(), X, seed=100, **QUICK)


def test_masks_have_the_promised_sizes():
    torch.manual_seed(0)
    assert draw_masks(4000, 9, "half").float().mean() == pytest.approx(0.5, abs=0.02)
    sizes = torch.bincount(draw_masks(6000, 9, 3).sum(1)).double() / 6000
    assert sizes[0] == 0 and torch.allclose(sizes[1:], torch.full((3,), 1 / 3).double(), atol=0.04)
    few = torch.bincount(draw_masks(6000, 9, "few").sum(1), minlength=10).double() / 6000
    expected = torch.diff(torch.arange(1, 11).double().log()) / np.log(10)  # log-uniform on 1 .. 9
    assert few[0] == 0 and torch.allclose(few[1:], expected, atol=0.04)
    assert torch.allclose(draw_masks(6000, 9, 3).double().mean(0), torch.full((9,), 2 / 9).double(), atol=0.04)


def test_it_gives_the_mean_of_what_g_says_of_all_rows_like_this(surrogate):
    """With one column shown: the mean over the other columns of g's probability, by brute force."""
    g, shown = two_logits(), np.zeros((5, 4), np.float32)
    shown[:, 0] = np.linspace(-2, 2, 5)
    for row in shown:
        full = X.copy()
        full[:, 0] = row[0]
        with torch.no_grad():
            expected = g(torch.from_numpy(full)).softmax(1)[:, 1].mean()
            found = surrogate(torch.from_numpy(row[None])).softmax(1)[0, 1]
        assert found == pytest.approx(float(expected), abs=0.12)


def test_fidelity_is_what_others_compute(surrogate):
    f, rows = surrogate.fidelity_, X[surrogate.held_out_]
    with torch.no_grad():
        g = two_logits()(torch.from_numpy(rows)).softmax(1).numpy()
        said = surrogate(torch.from_numpy(rows)).softmax(1).numpy()
    assert f["rows"] == len(rows) == 250
    assert f["agreement"] == pytest.approx(accuracy_score(g.argmax(1), said.argmax(1))) and f["agreement"] > 0.95
    assert f["r2"] == pytest.approx(r2_score(g, said), abs=1e-3) and f["r2"] > 0.9
    assert f["masked_r2"] < f["r2"] and f["masked_r2"] > f["g_masked_r2"]  # g itself cannot read a row of blanks
    assert f"g's class for {f['agreement']:.1%}" in surrogate.report() and "stand-in for g" in repr(surrogate)


def test_a_seed_gives_a_surrogate_and_g_stays_as_it_is(surrogate):
    g = two_logits().train()
    before = {name: value.clone() for name, value in g.state_dict().items()}
    again = masked_surrogate(g, X, seed=100, **QUICK)
    assert all(torch.equal(v, surrogate.state_dict()[k]) for k, v in again.state_dict().items())
    assert g.training and all(torch.equal(v, before[k]) for k, v in g.state_dict().items())
    assert g.weight.requires_grad and isinstance(again, MaskedSurrogate) and not again.training


def test_one_logit_several_labels_and_values():
    one = nn.Sequential(nn.Linear(4, 1))
    assert masked_surrogate(one, X, (X[:, 0] > 0).astype(int), **QUICK).likelihood_ == "binary"
    many = masked_surrogate(nn.Linear(4, 3), X, likelihood="multilabel", **QUICK)
    assert many(torch.zeros(2, 4)).shape == (2, 3) and 0 <= many.fidelity_["agreement"] <= 1
    value = nn.Linear(4, 1)
    value.weight.data, value.bias.data = torch.tensor([[1e4, 0, 0, 0]]), torch.tensor([1e6])  # in its own units
    found = masked_surrogate(value, X, likelihood="regression", **QUICK)
    assert found.fidelity_["r2"] > 0.95 and "agreement" not in found.fidelity_
    assert found(torch.from_numpy(X[:1])).item() == pytest.approx(1e6, rel=0.1)


def test_rows_keep_their_shape_and_groups_go_together():
    class Picture(nn.Module):
        def forward(self, x):
            assert x.shape[1:] == (2, 2)
            return torch.stack([-x[:, 0].sum(1), x[:, 0].sum(1)], 1)

    found = masked_surrogate(Picture(), X.reshape(-1, 2, 2), groups=np.array([[0, 0], [1, 1]]), **QUICK)
    assert found(torch.from_numpy(X[:3]).view(3, 2, 2)).shape == (3, 2) and found.fidelity_["agreement"] > 0.9


def test_one_word_explains_the_surrogate(tmp_path):
    y = (X[:, 0] + X[:, 1] > 0).astype(int)
    quick = {"epochs": 1, "min_steps": 60, "seed": 100, "progress": False}
    explainer = LocalBIF(two_logits(), "few", surrogate=True, **quick).fit(X, y)
    by_hand = LocalBIF(masked_surrogate(two_logits(), X, y, seed=100, progress=False), "few", **quick).fit(X, y)
    posterior = explainer.explain(X[:20])
    assert np.array_equal(posterior.alpha, by_hand.explain(X[:20]).alpha)
    for settings in (posterior.settings, by_hand.explain(X[:20]).settings):
        assert settings["surrogate"] == explainer.surrogate_.report()
    assert "surrogate" not in LocalBIF(two_logits(), "few", **quick).fit(X, y).explain(X[:2]).settings
    assert refine(explainer, X[:3], X[:50], steps=2, draws=2).alpha.shape == (3, 4)
    explainer.save(tmp_path / "mine.bif")
    loaded = LocalBIF.load(tmp_path / "mine.bif", two_logits())
    assert loaded.explain(X[:2]).settings["surrogate"] == posterior.settings["surrogate"] and loaded.surrogate is True
    with pytest.raises(ValueError, match="fitted on a surrogate, which is not part of its file"):
        refine(loaded, X[:3], X[:50], steps=2, draws=2)


@pytest.mark.parametrize("wrong, message", [
    (lambda g: masked_surrogate(g, X[:10]), "at least 20"),
    (lambda g: masked_surrogate(g, X, holdout=1.0), "holdout is the share"),
    (lambda g: masked_surrogate(g, X, epochs=0), "epochs must be a whole number"),
    (lambda g: masked_surrogate(g, X, fill=[1.0, 2.0]), "fill must be"),
    (lambda g: masked_surrogate(g, np.full((30, 4), np.nan)), "NaN"),
    (lambda g: masked_surrogate(nn.Linear(4, 1), X), "likelihood='binary'"),
    (lambda g: LocalBIF(g, surrogate=True).fit(X), "preset='few'"),
    (lambda g: LocalBIF(g, "few", surrogate=True).fit(DataLoader(TensorDataset(torch.from_numpy(X)))), "in memory"),
])
def test_bad_input_is_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong(two_logits())


def test_a_surrogate_that_disagrees_says_so():
    with pytest.warns(UserWarning, match="disagrees with g on whole rows"):
        masked_surrogate(two_logits(), X, **QUICK | {"min_steps": 1})
