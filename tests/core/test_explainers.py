"""GlobalBIF and LocalBIF: the objective is the stated one, the truth is found, a seed repeats."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from torch import nn

from bifkit import GlobalBIF, LocalBIF, training
from bifkit.evaluation import metrics as evaluate
from experiments.models.classifiers import mlp

X = np.random.default_rng(0).normal(size=(400, 4)).astype(np.float32)
Y = (X[:, 1] > 0).astype(int)
BOTH = pytest.mark.parametrize("kind", [GlobalBIF, LocalBIF])
PRESETS = pytest.mark.parametrize("preset", ["rank", "few", "paper", "released"])


def _linear(weight):
    """A linear g with the given (outputs, features) weights and no bias."""
    weight = torch.as_tensor(weight, dtype=torch.float32)
    g = nn.Linear(weight.shape[1], len(weight), bias=False)
    g.weight.data.copy_(weight)
    return g


def _one_logit():
    return _linear([[0.0, 6, 0, 0]])


def _bif(kind, model=None, *args, **kw):
    small = {"min_steps": 20, "epochs": 1, "batch_size": 100} | ({"hidden": 16} if kind is LocalBIF else {})
    return kind(_linear([[0, -3, 0, 0], [0, 3, 0, 0]]) if model is None else model, *args, **small | kw)


def _alpha(kind, model=None, *args, data=X, y=Y, **kw):
    return _bif(kind, model, *args, **kw).fit(data, y).explain(data).alpha


# the objective

@pytest.mark.parametrize("kind, weight, expected", [
    (GlobalBIF, "elbo", 1 / 400), (GlobalBIF, "1/batch", 1 / 100), (GlobalBIF, 0.25, 0.25),
    (LocalBIF, "elbo", 1.0), (LocalBIF, "1/batch", 1 / 100), (LocalBIF, 0.25, 0.25),
])
def test_the_kl_is_weighed_as_stated(kind, weight, expected, monkeypatch):
    """Eq. 4 has one KL for N rows, Eq. 7 one per row; the likelihood is a mean over rows."""
    seen, true = [], training.elbo
    monkeypatch.setattr(training, "elbo",
                        lambda *a, **kw: seen.append((kw["kl_weight"], len(a[1]))) or true(*a, **kw))
    _bif(kind, None, "paper", kl_weight=weight, draws=2).fit(X, Y)
    assert len(seen) == 20 and {rows for _, rows in seen} == {100}
    assert np.allclose([w for w, _ in seen], expected)


@pytest.mark.parametrize("kind, settings, steps", [
    (GlobalBIF, {"epochs": 150}, 2000),  # 20 batches per epoch, 3000 steps
    (GlobalBIF, {"epochs": 150, "min_steps": 2100}, 2100), (GlobalBIF, {"epochs": 2, "min_steps": 30}, 40),
    (GlobalBIF, {"epochs": 101, "preset": "paper", "draws": 1}, 2020),  # as printed: no cap
    (LocalBIF, {"epochs": 101, "hidden": 2}, 2020),
])
def test_a_global_fit_takes_at_most_2000_steps(kind, settings, steps, monkeypatch):
    def counted(network, *args, steps, **kw):
        return np.zeros(steps), []

    monkeypatch.setattr("bifkit.explainers.maximise", counted)  # the number is what matters here
    settings = {"min_steps": 10, "batch_size": 20} | settings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert kind(_one_logit(), likelihood="binary", **settings).fit(X, Y).diagnostics_.steps == steps


def test_every_epoch_visits_rows_at_most_once_and_steps_add_up(monkeypatch):
    batches, true = [], training.elbo
    monkeypatch.setattr(training, "elbo",
                        lambda g, x, *a, **kw: batches.append(x[:, 0].numpy()) or true(g, x, *a, **kw))
    _bif(GlobalBIF, epochs=3, min_steps=1, batch_size=150).fit(X, Y)  # 400 rows: two whole batches an epoch
    assert len(batches) == 6 and all(len(b) == 150 for b in batches)
    for e in range(3):
        assert len(np.unique(np.concatenate(batches[2 * e:2 * e + 2]))) == 300


@BOTH
def test_the_elbo_rises(kind):
    history = _bif(kind, min_steps=100).fit(X, Y).history_
    assert len(history) == 1 and len(history[0]) == 20 and history[0][-1] > history[0][0]


@BOTH
def test_one_logit_two_logits_and_flat_output_are_one_explanation(kind):
    two = _linear([[0.0, 0, 0, 0], [0, 6, 0, 0]])
    flat = nn.Sequential(_one_logit(), nn.Flatten(0))
    expected = _alpha(kind, two)
    assert np.allclose(_alpha(kind, _one_logit()), expected, atol=0.03)  # up to rounding, which training amplifies
    assert np.allclose(_alpha(kind, flat), expected, atol=0.03)
    assert np.allclose(_alpha(kind, _one_logit(), "few"), _alpha(kind, two, "few"), atol=0.03)


@BOTH
def test_float64_weights_give_the_same_explanation(kind):
    assert np.allclose(_alpha(kind, _one_logit().double()), _alpha(kind, _one_logit()), atol=0.03)


@BOTH
@PRESETS
@pytest.mark.parametrize("likelihood", ["categorical", "regression"])
def test_multi_class_and_regression(kind, preset, likelihood):
    rng = np.random.default_rng(0)
    g, y = (mlp([4, 8, 5]), rng.integers(0, 5, 400)) if likelihood == "categorical" else (mlp([4, 8, 1]), X[:, 1] * 3.3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = _bif(kind, g, preset, min_steps=5).fit(X, y)
    assert fitted.likelihood_ == likelihood and np.isfinite(fitted.explain(X).alpha).all()


@BOTH
def test_the_unit_of_a_regression_does_not_matter(kind):
    a = _alpha(kind, _one_logit(), y=6 * X[:, 1], preset="few", kl_weight=0.5)
    for unit in (1e-3, 1e3):
        b = _alpha(kind, _linear([[0, 6 * unit, 0, 0]]), y=6 * unit * X[:, 1], preset="few", kl_weight=0.5)
        assert np.allclose(a, b, atol=0.03)
    never = np.full(400, 0.1)  # a target that does not vary
    assert np.isfinite(_alpha(kind, _one_logit(), y=never, preset="few")).all()


@BOTH
def test_without_labels_the_models_own_prediction_is_explained(kind):
    assert np.array_equal(_alpha(kind, y=None), _alpha(kind, y=Y))  # rank: y is not used
    few = _bif(kind, None, "few").fit(X)
    assert few.settings_.target == "soft" and not np.array_equal(few.explain(X).alpha, _alpha(kind, None, "few"))
    assert np.array_equal(_alpha(kind, _one_logit(), likelihood="binary", y=None), _alpha(kind, _one_logit()))


@BOTH
def test_the_lr_goes_to_its_own_field(kind):
    s = _bif(kind, lr=0.123)._settings()
    assert (s.global_lr if kind is GlobalBIF else s.lr) == 0.123


# the truth is found

class _Switch(nn.Module):
    """The sign of feature 0 says whether feature 1 or feature 2 makes the label."""

    def forward(self, x):
        first = torch.sigmoid(-8 * x[:, 0])
        z = 5 * (first * x[:, 1] + (1 - first) * x[:, 2])
        return torch.stack([-z, z], 1)


@pytest.mark.parametrize("preset", ["rank", "few", "paper"])
def test_the_global_explanation_finds_the_relevant_features(preset):
    rows = np.random.default_rng(1).normal(size=(500, 8)).astype(np.float32)
    weight = np.zeros((2, 8))
    weight[:, [2, 5]] = [[-3, -3], [3, 3]]
    y = (rows[:, 2] + rows[:, 5] > 0).astype(int)
    p = GlobalBIF(_linear(weight), preset, min_steps=200, epochs=1, batch_size=50).fit(rows, y).explain()
    assert set(p.top(2)) == {"x2", "x5"} and evaluate.mcc(p.mean, [[i in (2, 5) for i in range(8)]]) == 1
    assert p.probability_top(2)[[2, 5]].min() > 0.6
    assert p.mean[2] == pytest.approx(p.mean[5], rel=0.35)  # they matter alike


def test_the_local_explanation_finds_each_rows_own_features():
    rng = np.random.default_rng(2)
    train, test = (rng.normal(size=(n, 6)).astype(np.float32) for n in (1000, 300))
    p = LocalBIF(_Switch(), min_steps=300, epochs=1, hidden=64, lr=0.01).fit(train).explain(test)
    truth = np.zeros((300, 6), bool)
    truth[np.arange(300), np.where(test[:, 0] < 0, 1, 2)] = True
    clear = np.abs(test[:, 0]) > 0.3
    picked = p.mean[:, 1] > p.mean[:, 2]
    assert (picked == (test[:, 0] < 0))[clear].mean() > 0.95
    truth[:, 0] = True  # the switch matters everywhere
    assert evaluate.mcc(p.mean[clear], truth[clear]) > 0.85
    assert evaluate.mcc(p.to_global().mean, truth) < evaluate.mcc(p.mean, truth)


# groups, names, rows

@BOTH
def test_groups_in_three_notations_are_one_fit(kind):
    expected = _alpha(kind, groups={"left": ["x0", "x1"], "right": ["x2", "x3"]}, min_steps=5)
    assert expected.shape[-1] == 2
    for groups in ([["x0", "x1"], ["x2", "x3"]], [0, 0, 1, 1], np.array([7, 7, 9, 9]), {"l": [0, 1], "r": (2, 3)}):
        assert np.array_equal(_alpha(kind, groups=groups, min_steps=5), expected)


def test_a_group_that_matters_is_found_under_its_name():
    p = _bif(GlobalBIF, min_steps=100, groups={"pair": ["x1", "x3"]}).fit(X, Y).explain()
    assert p.feature_names == ["pair", "x0", "x2"] and p.top(1) == ["pair"]
    alone = _alpha(GlobalBIF, groups=[[0], [1], [2], [3]])
    assert np.array_equal(alone, _alpha(GlobalBIF))


def test_names_and_index_follow_the_frame():
    frame = pd.DataFrame(X, columns=["age", "sex", "job", "pay"], index=pd.date_range("2020-01-01", periods=400))
    fitted = _bif(LocalBIF).fit(frame, pd.Series(Y, index=frame.index))
    out = fitted.explain(frame[10:20]).to_frame()
    assert out.columns.tolist() == ["age", "sex", "job", "pay"] and out.index.equals(frame.index[10:20])
    assert np.array_equal(fitted.explain(X).alpha, _alpha(LocalBIF))  # names change no number
    assert _bif(GlobalBIF, feature_names=list("abcd")).fit(X, Y).explain().feature_names == list("abcd")


def test_names_come_from_the_frame_that_is_explained_where_fit_had_none(tmp_path):
    frame = pd.DataFrame(X, columns=["age", "sex", "job", "pay"])
    fitted = _bif(LocalBIF, min_steps=2).fit(X, Y)
    fitted.save(tmp_path / "e.bif")
    for explainer in (fitted, LocalBIF.load(tmp_path / "e.bif")):
        assert explainer.explain(frame[:3]).feature_names == ["age", "sex", "job", "pay"]
        assert explainer.explain(X).feature_names == ["x0", "x1", "x2", "x3"]  # nothing is remembered
    grouped = _bif(LocalBIF, min_steps=2, groups={"x3": [0, 1], "b": ["x3"]}).fit(X, Y).explain(frame)
    assert grouped.feature_names == ["x3", "b", "job"]  # groups keep the names they were given
    for rows, names in ((frame, None), (X, list("abcd")), (frame.set_axis(["x0", "x1", "x2", "x3"], axis=1), None)):
        named = _bif(LocalBIF, min_steps=2, feature_names=names).fit(rows, Y)
        with pytest.raises(ValueError, match="columns are not those of fit: it lacks"):
            named.explain(frame.rename(columns={"pay": "wage"}))


@BOTH
@PRESETS
def test_labels_only_score_a_fit_to_a_soft_target(kind, preset, tmp_path):
    g, y = _linear([[0, -3, 0, 0], [0, 3, 0, 0]]), np.where(np.arange(400) < 100, 1 - Y, Y)  # g errs on a quarter
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with_y = _bif(kind, g, preset, target="soft", min_steps=5).fit(X, y)
        without = _bif(kind, g, preset, target="soft", min_steps=5).fit(X)
    assert with_y.score_ == 0.75 and without.score_ is None
    assert np.array_equal(with_y.explain(X).alpha, without.explain(X).alpha)
    with_y.save(tmp_path / "e.bif")
    assert kind.load(tmp_path / "e.bif").score_ == 0.75


@BOTH
def test_the_score_of_one_logit_and_of_a_regression(kind):
    assert _bif(kind, _one_logit(), min_steps=5).fit(X, Y).score_ == 1
    quantity = X[:, 1] * 6 + X[:, 0]
    expected = 1 - (X[:, 0] ** 2).sum() / (400 * quantity.var())  # what g misses is X0
    assert _bif(kind, _one_logit(), min_steps=5).fit(X, quantity).score_ == pytest.approx(expected, abs=1e-6)


def test_rows_are_explained_one_by_one():
    fitted = _bif(LocalBIF).fit(X, Y)
    whole = fitted.explain(X).alpha
    assert np.allclose(fitted.explain(X, batch_size=7).alpha, whole, atol=1e-6)
    assert np.allclose(fitted.explain(X[[5]]).alpha, whole[[5]], atol=1e-6)


@BOTH
@pytest.mark.parametrize("rows", [2, 3, 101])
def test_few_rows_and_incomplete_batches(kind, rows):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert np.isfinite(_alpha(kind, data=X[:rows], y=Y[:rows])).all()
        g = mlp([4, 8, 2], batch_norm=True)
        assert np.isfinite(_alpha(kind, g, data=X[:rows], y=Y[:rows], preset="released")).all()


def test_images_keep_their_shape_on_the_way_to_g():
    images = np.random.default_rng(0).normal(size=(60, 1, 6, 6)).astype(np.float32)
    g = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 2))
    patches = np.arange(36).reshape(6, 6) // 12
    y = (images.mean((1, 2, 3)) > 0).astype(int)
    fitted = _bif(LocalBIF, g, "few", image=(6, 6), groups=patches.ravel()).fit(images, y)
    assert fitted.explain(images).alpha.shape == (60, 3)


def test_a_label_map_is_shared_over_channels_and_kept_in_a_file(tmp_path):
    images = np.random.default_rng(0).normal(size=(60, 3, 4, 4)).astype(np.float32)
    g, superpixels = nn.Sequential(nn.Flatten(), nn.Linear(48, 2)), np.arange(16).reshape(4, 4) // 8
    fitted = _bif(LocalBIF, g, image=(3, 4, 4), groups=superpixels, group_names={0: "upper"},
                  likelihood="categorical").fit(images)
    flat = _bif(LocalBIF, g, image=(3, 4, 4), groups=np.tile(superpixels.ravel(), 3),
                likelihood="categorical").fit(images)
    assert fitted.group_names_ == ["upper", "group 1"]
    assert np.array_equal(fitted.explain(images).alpha, flat.explain(images).alpha)
    fitted.save(tmp_path / "e.bif")
    back = LocalBIF.load(tmp_path / "e.bif", g)
    assert back.image == (3, 4, 4) and back.explain(images).feature_names == ["upper", "group 1"]
    assert np.array_equal(back.fit(images).explain(images).alpha, fitted.explain(images).alpha)


@BOTH
def test_fit_inside_no_grad(kind):
    with torch.no_grad():
        assert np.array_equal(_alpha(kind), _alpha(kind)) and not torch.is_grad_enabled()


# seeds, restarts, scikit-learn

@BOTH
def test_a_seed_repeats_and_another_differs(kind):
    first = _alpha(kind, seed=3)
    torch.manual_seed(99)
    np.random.seed(99)
    assert np.array_equal(first, _alpha(kind, seed=3)) and np.array_equal(first, _alpha(kind, seed=np.int64(3)))
    assert not np.array_equal(first, _alpha(kind, seed=4))
    explainer = _bif(kind, seed=3)
    assert np.array_equal(explainer.fit(X, Y).explain(X).alpha, explainer.fit(X, Y).explain(X).alpha)


@BOTH
def test_restarts_are_averaged(kind):
    fitted = _bif(kind, restarts=3).fit(X, Y)
    rows = torch.from_numpy(X)
    alphas = [net(rows).detach().double().numpy() for net in fitted.networks_]
    assert len(fitted.history_) == 3 and not np.allclose(alphas[0], alphas[1])
    assert np.allclose(fitted.explain(X).alpha, np.mean(alphas, 0)) and np.allclose(alphas[0], _alpha(kind))


@BOTH
def test_a_fit_that_diverges_says_so(kind):
    with pytest.raises(FloatingPointError, match="the objective is .*outputs are finite.*too large"):
        _bif(kind, _linear([[0, 1e30, 0, 0]]), "few", likelihood="regression").fit(X, Y * 1.0)


@BOTH
def test_scikit_learns_parameter_protocol(kind):
    explainer = _bif(kind, None, "few", prior=0.5, groups={"a": [0, 1]})
    params = explainer.get_params()
    assert params["preset"] == "few" and params["prior"] == 0.5 and params["gate"] is None
    assert explainer.set_params(prior=0.25, seed=7) is explainer and explainer.get_params()["prior"] == 0.25
    copy = clone(explainer.fit(X, Y))
    same = ("preset", "prior", "seed", "groups", "min_steps")
    assert all(copy.get_params()[k] == explainer.get_params()[k] for k in same)
    assert not hasattr(copy, "networks_") and copy.model is not explainer.model
    assert np.array_equal(copy.fit(X, Y).explain(X).alpha, explainer.explain(X).alpha)
    assert kind.__name__ in repr(explainer)
