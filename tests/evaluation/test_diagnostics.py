"""What a fit says of itself: it warns, with advice, when it has not converged or is flat, and keeps quiet otherwise."""

import warnings
from dataclasses import asdict

import numpy as np
import pytest
import torch
from scipy.stats import entropy
from sklearn.datasets import load_diabetes, load_wine
from sklearn.exceptions import NotFittedError
from sklearn.preprocessing import scale
from torch import nn

from bifkit import GlobalBIF, LocalBIF
from bifkit.evaluation.diagnostics import (
    ENOUGH,
    FLAT,
    MOVED,
    Diagnostics,
    FitWarning,
    diagnose,
    effective_features,
    judge,
    moved,
)
from experiments.models.classifiers import mlp, train

BOTH = pytest.mark.parametrize("kind", [GlobalBIF, LocalBIF])
X = np.random.default_rng(0).normal(size=(500, 11)).astype(np.float32)


def _linear(*weights, width=11):
    """A g with two logits that uses the first features, with these weights."""
    g = nn.Linear(width, 2, bias=False)
    g.weight.data.zero_()
    g.weight.data[1, :len(weights)] = torch.tensor(weights)
    return g


def _fit(kind, g, rows=X, y=None, **kw):
    """(fitted, messages of its warnings)."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = kind(g, **kw).fit(rows, y)
    ours = [w for w in caught if issubclass(w.category, FitWarning)]  # torch may warn too
    assert all(w.filename == __file__ for w in ours)
    return fitted, [str(w.message) for w in ours]


# the rule itself

NOISE = np.random.default_rng(0).normal(size=1000)
CURVES = {
    "level": (NOISE, True), "constant": (np.zeros(1000), True), "falling": (NOISE - np.linspace(0, 20, 1000), True),
    "risen early": (NOISE - 20 * np.exp(-np.arange(1000) / 50), True),
    "rising to the end": (NOISE + np.linspace(0, 20, 1000), False),
    "rising without noise": (np.linspace(0, 1, 200), False),
    "rising, but by a trifle": (20 * (np.arange(1000) > 100) + np.linspace(0, 1, 1000) + NOISE / 100, True),
    "rising within the noise": (5 * NOISE + np.linspace(0, 2, 1000), True),
}


@pytest.mark.parametrize("case", CURVES)
def test_the_rule_for_the_elbo(case):
    curve, converged = CURVES[case]
    found = judge(curve, 3.0, 11)
    assert found.converged is converged and bool(found.advice()) is not converged
    assert found.steps == len(curve) and found.elbo == pytest.approx(curve[-len(curve) // 20:].mean())
    fifth = len(curve) // 5
    assert found.rise == pytest.approx(curve[-fifth:].mean() - curve[2 * fifth:3 * fifth].mean())


def test_the_rule_for_the_importances():
    assert judge(np.zeros(1000), 3.0, 11, MOVED + 0.01).converged is False
    assert judge(np.zeros(1000), 3.0, 11, MOVED - 0.01).converged is True
    assert "13% of the importance still changes hands" in judge(np.zeros(300), 3.0, 11, 0.13).advice()[0]


def test_too_short_to_judge():
    found = judge(np.linspace(0, 9, ENOUGH - 1), 11.0, 11, 0.5)
    assert found.converged is None and not found.flat and found.advice() == []
    assert judge(np.linspace(0, 9, ENOUGH), 3.0, 11).converged is False
    assert judge([-1.0], 2.0, 3).steps == 1


def test_flat():
    at = FLAT * 11
    assert Diagnostics(999, -1.0, 0.0, True, at + 0.01, 11).flat
    assert not Diagnostics(999, -1.0, 0.0, True, at - 0.01, 11).flat
    assert not Diagnostics(999, -1.0, 0.0, True, 2.0, 2).flat  # two features that matter alike are an answer
    assert not Diagnostics(99, -1.0, 0.0, None, 11.0, 11).flat


def test_the_advice_says_what_and_what_to_do():
    both = Diagnostics(200, -0.5, 0.25, False, 10.99, 11).advice()
    assert len(both) == 2
    assert both[0] == "the fit has not converged (the objective still rises by 0.25 in its second half): " \
                      "give min_steps= more than 200"
    assert both[1].startswith("the explanation is flat (11.0 effective features of 11)") and "kl_weight=" in both[1]


# its parts, against something outside

def test_effective_features_is_the_exponential_of_scipys_entropy():
    alpha = np.random.default_rng(0).gamma(1.0, size=(20, 6)) + 1e-3
    found = effective_features(lambda x: torch.from_numpy(alpha), torch.zeros(20, 6))
    assert found == pytest.approx(np.exp(entropy(alpha, axis=1)).mean())


def test_effective_features_are_of_what_was_added_unless_that_is_chance():
    null, rng = 0.1, np.random.default_rng(0)
    added = rng.gamma(1.0, size=(20, 6)) + 0.1
    found = effective_features(lambda x: torch.from_numpy(null + added), torch.zeros(20, 6), null)
    assert found == pytest.approx(np.exp(entropy(added, axis=1)).mean())
    chance = null * (1 + 0.01 * rng.normal(size=(20, 6)))  # the prior, give or take a hundredth of it
    found = effective_features(lambda x: torch.from_numpy(chance), torch.zeros(20, 6), null)
    assert found == pytest.approx(6, rel=1e-3)
    sharp = np.full((20, 6), null)
    sharp[:, 0] += 5.0
    assert effective_features(lambda x: torch.from_numpy(sharp), torch.zeros(20, 6), null) == pytest.approx(1)


def test_moved_is_the_total_variation_between_two_fifths():
    means = np.random.default_rng(0).dirichlet(np.ones(4), size=(20, 7))
    followed = [torch.from_numpy(m) for m in means]
    expected = 0.5 * np.abs(means[16:].mean(0) - means[12:16].mean(0)).sum(1).mean()
    assert moved(followed) == pytest.approx(expected) and moved(followed[:7]) == 0


MOVING = [torch.tensor([[0.5, 0.5, 0.0]])] * 4 + [torch.tensor([[0.7, 0.3, 0.0]])] * 4  # 20 % changes hands


def test_the_worst_of_several_fits_speaks():
    def net(*alpha):
        return lambda x: torch.tensor([alpha])

    level, rising, x = np.zeros(200), np.linspace(0, 1, 200), torch.zeros(1, 3)
    sharp, flat = net(9.0, 0.1, 0.1), net(1.0, 1.0, 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert diagnose([(sharp, level, []), (sharp, level, [])], x, 3).converged
    for fits, message in (([(sharp, level, []), (sharp, rising, [])], "not converged"),
                          ([(sharp, level, []), (flat, level, [])], "is flat"),
                          ([(flat, level, []), (sharp, level, MOVING)], "not converged .20% of the importance")):
        with pytest.warns(FitWarning, match=message) as caught:
            diagnose(fits, x, 3)
        assert len(caught) == 1 and caught[0].filename == __file__


# fits

def _wine():
    data = load_wine()
    rows = scale(data.data).astype(np.float32)
    torch.manual_seed(0)
    return train(mlp([13, 32, 3]), rows, data.target, epochs=40, batch_size=50), rows, data.target


def _diabetes():
    data = load_diabetes()
    rows, y = scale(data.data).astype(np.float32), scale(data.target).astype(np.float32)
    torch.manual_seed(0)
    return train(mlp([10, 32, 1]), rows, y, epochs=40, batch_size=50), rows, y


TOYS = {"linear": lambda: (_linear(3.0, 2.0, 1.0), X, (X[:, :3] @ [3, 2, 1] > 0).astype(int)),
        "three classes": _wine, "regression": _diabetes}


@pytest.mark.parametrize("toy, kind, preset", [
    ("linear", GlobalBIF, "rank"), ("linear", LocalBIF, "rank"), ("linear", GlobalBIF, "few"),
    ("three classes", GlobalBIF, "rank"), ("regression", GlobalBIF, "rank"), ("regression", GlobalBIF, "few"),
])
def test_default_settings_on_easy_data_give_no_warning(toy, kind, preset):
    g, rows, y = TOYS[toy]()
    fitted, told = _fit(kind, g, rows, y, preset=preset)
    found = fitted.diagnostics_
    assert told == [] and found.converged is True and not found.flat and found.steps == 1000
    assert found.moved < MOVED and found.effective_features == pytest.approx(
        np.mean(fitted.explain(rows).effective_features), rel=0.01)


@BOTH
def test_too_few_steps_for_a_small_step_width_warn(kind):
    fitted, told = _fit(kind, _linear(6.0, 6.0), min_steps=120, epochs=1, lr=0.01 if kind is GlobalBIF else 3e-4)
    assert len(told) == 1 and "has not converged" in told[0] and "give min_steps= more than 120" in told[0]
    assert fitted.diagnostics_.converged is False and fitted.diagnostics_.rise > 0
    assert _fit(kind, _linear(6.0, 6.0), min_steps=90, epochs=1, lr=1e-4)[1] == []  # too short to judge


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_importances_that_still_move_warn(seed):
    """Adam's steps are as long as its rate where gradients agree: here alpha is still on its way when the fit ends.

    Under f o x the one feature that counts asks for all of the importance; 200 steps of .01 bring it half of the way.
    (That the ELBO alone would not have told is the rule's own test above.)
    """
    fitted, told = _fit(GlobalBIF, _linear(6.0), gate="simplex", fill="zero", min_steps=200, epochs=1, lr=0.01,
                        seed=seed)
    assert len(told) == 1 and "of the importance still changes hands in its last fifth" in told[0]
    assert fitted.diagnostics_.moved > 1.1 * MOVED  # .104 on three seeds


@BOTH
def test_a_kl_that_weighs_too_much_is_flat(kind):
    fitted, told = _fit(kind, _linear(6.0, 6.0), min_steps=150, epochs=1, kl_weight=100.0)
    assert len(told) == 1 and "the explanation is flat (11.0 effective features of 11)" in told[0]
    assert "try a smaller kl_weight=" in told[0] and fitted.diagnostics_.flat
    assert _fit(kind, _linear(6.0, 6.0), min_steps=20, epochs=1, kl_weight=100.0)[1] == []  # too short to judge


def test_one_flat_class_among_others_is_told():
    """Logits x0 and -x0 are far apart; the third class has a probability that hardly depends on anything."""
    g = nn.Linear(11, 3, bias=False)
    g.weight.data.zero_()
    g.weight.data[0, 0], g.weight.data[1, 0] = 0.01, -0.01
    told = _fit(GlobalBIF, g, classes=[2], min_steps=150, epochs=1, kl_weight=1.0)[1]
    assert len(told) == 1 and "is flat" in told[0]


@BOTH
def test_diagnostics_are_kept_in_the_file(kind, tmp_path):
    fitted, _ = _fit(kind, _linear(3.0), min_steps=100, epochs=1)
    fitted.save(tmp_path / "e.bif")
    back = kind.load(tmp_path / "e.bif")
    assert back.diagnostics_ == fitted.diagnostics_ and back.diagnostics_.converged is not None
    assert {"steps", "elbo", "rise", "converged", "effective_features", "moved"} < set(asdict(back.diagnostics_))
    assert back.history_ == fitted.history_ and len(fitted.history_[0]) == 20
    assert fitted.diagnostics_.elbo == pytest.approx(fitted.history_[0][-1]) == pytest.approx(fitted.elbo_)


@BOTH
def test_a_warning_that_is_made_an_error_leaves_no_half_fit(kind):
    explainer = kind(_linear(6.0, 6.0), min_steps=120, epochs=1, kl_weight=100.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FitWarning)
        with pytest.raises(FitWarning):
            explainer.fit(X)
    with pytest.raises(NotFittedError):
        explainer.explain(X)
