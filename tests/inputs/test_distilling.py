"""The stand-in answers as the model does, says how well, and is refused where it does not."""

import copy
import random
import warnings
import zlib

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import entropy
from sklearn.datasets import load_diabetes, load_wine
from sklearn.ensemble import GradientBoostingRegressor, IsolationForest, RandomForestClassifier
from sklearn.metrics import accuracy_score, r2_score
from sklearn.svm import LinearSVC
from torch import nn

from bifkit import GlobalBIF
from bifkit.inputs.answers import function_of, gather, kind_of, mixtures, targets
from bifkit.inputs.distilling import Distilled, NotFaithful, distill

X = np.random.default_rng(0).normal(size=(200, 4))
WINE, CULTIVAR = load_wine(return_X_y=True, as_frame=True)
FOREST = RandomForestClassifier(30, random_state=0).fit(WINE, CULTIVAR)
FAST = {"steps": 60, "hidden": 16, "queries": 500, "min_fidelity": None}


def soft(rows):
    """A smooth model of the first two features."""
    p = 1 / (1 + np.exp(-3 * (np.asarray(rows)[:, 0] - np.asarray(rows)[:, 1])))
    return np.stack([1 - p, p], 1)


def chance(rows):
    """A number in [0, 1) that depends on every bit of a row, and so can't be learned."""
    return np.array([zlib.crc32(np.ascontiguousarray(r, np.float64).tobytes()) / 2**32 for r in np.asarray(rows)])


@pytest.fixture(scope="module")
def wine():
    return distill(FOREST, WINE, steps=500, queries=3000, seed=100)


def test_fidelity_is_what_others_compute(wine):
    rows = WINE.iloc[wine.held_out_]
    p, f = FOREST.predict_proba(rows), wine.fidelity_
    with torch.no_grad():
        q = wine(torch.tensor(rows.to_numpy(np.float32))).softmax(1).double().numpy()
    assert len(rows) == f["rows"] == 36
    assert f["agreement"] == pytest.approx(accuracy_score(p.argmax(1), q.argmax(1)))
    assert f["kl"] == pytest.approx(np.mean(entropy(p, q, axis=1)), rel=1e-3)
    spread = FOREST.predict_proba(WINE).var(0).sum()
    assert f["r2"] == pytest.approx(1 - np.square(p - q).sum(1).mean() / spread, rel=1e-4)
    assert min(f["agreement"], f["r2"], f["mixed_agreement"], f["mixed_r2"]) > 0.9
    assert wine.classes_ == [0, 1, 2] and wine.likelihood_ == "categorical" and not wine.training
    assert f"the same class for {f['agreement']:.1%}" in wine.report() and "36 held-out rows" in repr(wine)


def test_it_can_be_explained_where_the_forest_can_not(wine):
    rng = np.random.default_rng(1)
    x = pd.DataFrame(rng.lognormal(size=(500, 6)) * 10.0 ** np.arange(6), columns=list("abcdef"))
    y = (np.log(x["b"] / 10) > 0) ^ (np.log(x["e"] / 1e4) > 0)
    forest = RandomForestClassifier(30, min_samples_leaf=5, random_state=0).fit(x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        posterior = GlobalBIF(distill(forest.predict_proba, x, steps=500, queries=3000), epochs=1, min_steps=300,
                              batch_size=100).fit(x).explain()
    assert set(posterior.top(2)) == {"b", "e"} and posterior.mean[[1, 4]].sum() > 0.6


def test_mixtures_make_it_faithful_off_the_data():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(400, 1)) + 0.3 * rng.normal(size=(400, 4))  # features that go together; mixtures do not
    model = lambda rows: rows[:, 0] * rows[:, 1] - rows[:, 2] * rows[:, 3]  # noqa: E731
    with_them, without = (distill(model, x, steps=800, queries=q, min_fidelity=None).fidelity_ for q in (4000, 0))
    assert with_them["mixed_r2"] > without["mixed_r2"] + 0.05 and with_them["mixed_r2"] > 0.9


def test_regression_in_the_users_units():
    x, y = load_diabetes(return_X_y=True)
    model = GradientBoostingRegressor(n_estimators=30, random_state=0).fit(x, 1000 * y + 5e5)
    g = distill(model, x, steps=400, queries=3000, min_fidelity=None)
    with torch.no_grad():
        out = g(torch.tensor(x[g.held_out_], dtype=torch.float32))[:, 0].double().numpy()
    assert g.likelihood_ == "regression" and g.classes_ is None and "agreement" not in g.fidelity_
    assert g.fidelity_["r2"] > 0.9 and r2_score(model.predict(x[g.held_out_]), out) > 0.9
    assert GlobalBIF(g, likelihood="regression", epochs=1, min_steps=2).fit(x).explain().mean.shape == (10,)


def test_a_stand_in_tells_the_explainer_its_likelihood():
    g = distill(GradientBoostingRegressor(random_state=0).fit(X, X[:, 0]), X, **FAST)
    assert GlobalBIF(g, epochs=1, min_steps=5).fit(X).likelihood_ == "regression"
    assert GlobalBIF(distill(FOREST, WINE, **FAST), epochs=1, min_steps=5).fit(WINE).likelihood_ == "categorical"


def test_units_and_skew_do_not_matter():
    plain = distill(soft, X, steps=200, queries=2000, min_fidelity=None).fidelity_
    bent = distill(lambda rows: soft(np.log(rows / [1e-3, 1, 1e3, 1e6]) / 2), np.exp(2 * X) * [1e-3, 1, 1e3, 1e6],
                   steps=200, queries=2000, min_fidelity=None).fidelity_
    assert min(plain["r2"], bent["r2"]) > 0.95 and abs(plain["r2"] - bent["r2"]) < 0.03


def test_the_code_is_the_empirical_distribution():
    rng = np.random.default_rng(1)
    x = np.exp(rng.normal(size=(300, 2))).astype(np.float32)
    x[:, 1] = rng.integers(0, 3, 300)  # few values: empty ranges
    g = Distilled(2, 1, bins=8).learn_units(torch.from_numpy(x))
    new = torch.tensor([[v, v] for v in np.linspace(-1, 9, 50)], dtype=torch.float32)
    code = g.encode(new)
    assert np.allclose(code[:, :2], np.arcsinh((new.numpy() - x.mean(0)) / x.std(0, ddof=1)), atol=1e-5)
    edges = np.quantile(x[:, 0], np.linspace(0, 1, 9))
    assert np.allclose(code[:, 2:10].sum(1), np.interp(new[:, 0], edges, np.arange(9)), atol=1e-4)
    assert code[:, 10:].min() == 0 and code[:, 10:].max() == 1 and (g.rate[1] > 0).sum() == 2


@pytest.mark.parametrize("make", [
    lambda x: x, torch.from_numpy, lambda x: x.reshape(-1, 2, 2), np.ndarray.tolist,
    lambda x: pd.DataFrame(x, columns=list("abcd"), index=range(7, 207))])
def test_predict_sees_rows_of_the_users_type(make):
    seen = []

    def predict(rows):
        seen.append(rows)
        return soft(np.asarray(rows).reshape(len(rows), -1))

    given = make(X)
    g = distill(predict, given, **FAST)
    asked = np.concatenate([np.asarray(r).reshape(len(r), -1) for r in seen])
    kind = np.ndarray if isinstance(given, list) else type(given)
    assert all(isinstance(r, kind) and r.shape[1:] == seen[0].shape[1:] for r in seen) and len(asked) == 200 + 4500
    assert np.array_equal(asked[:200], X) and all(np.isin(asked[:, d], X[:, d]).all() for d in range(4))
    assert g(torch.zeros(3, *np.shape(given)[1:])).shape == (3, 2)


def test_mixtures_take_each_feature_from_one_of_two_rows_and_keep_dtypes():
    frame = pd.DataFrame({"i": np.arange(50), "b": np.arange(50) % 2 == 0, "f": np.arange(50) / 2,
                          "s": np.arange(50, dtype=np.int8)})
    source = mixtures(np.arange(10, 50), 300, 4, np.random.default_rng(0))
    assert source.min() >= 10 and {len(set(r)) for r in source.tolist()} == {1, 2}
    share = (source == source[:, :1]).mean()
    assert 0.5 < share < 0.9 and len(np.unique(source)) == 40
    rows = gather(frame, source)
    assert (rows.dtypes == frame.dtypes).all() and rows.columns.equals(frame.columns)
    for c, name in enumerate(frame):
        assert np.array_equal(rows[name], frame[name].to_numpy()[source[:, c]])
    assert np.array_equal(gather(torch.arange(100).view(50, 2), source[:, :2]), np.stack([2 * source[:, 0],
                                                                                      2 * source[:, 1] + 1], 1))


@pytest.mark.filterwarnings("ignore:predict answers one number")
def test_what_the_answers_mean():
    svc = LinearSVC().fit(X, X[:, 0] > 0)
    for predict, kind in ((FOREST, "probability"), (FOREST.predict_proba, "probability"), (FOREST.predict, "label"),
                          (svc, "logit"), (IsolationForest(), "value"), (GradientBoostingRegressor().predict, "value")):
        assert function_of(predict)[1] == kind
    assert function_of(svc, "label")[1] == "label" and function_of(soft) == (soft, None)
    assert [kind_of(np.array(a)) for a in ([1, 2, 2], [True, False], ["a", "b"], [[0.5], [2.0]], [0.1, 0.9])] == [
        "label", "label", "label", "value", "value"]
    margin = np.array([-2.0, 0.0, 3.0])
    assert np.allclose(targets(margin, "logit")[0][:, 1], 1 / (1 + np.exp(-margin)))
    scores = np.random.default_rng(1).normal(size=(5, 3))
    assert np.allclose(targets(scores, "logit")[0], torch.tensor(scores).softmax(1))
    names = np.array(["no", "yes"])
    g = distill(lambda rows: names[(rows[:, 0] > 0).astype(int)], X, steps=300, queries=2000)
    assert g.classes_ == ["no", "yes"] and g(torch.tensor([[2.0, 0, 0, 0]])).argmax() == 1
    g = distill(lambda rows: soft(rows)[:, 1], X, kind="probability", **FAST)
    assert g(torch.zeros(1, 4)).shape == (1, 2) and g.likelihood_ == "categorical"


def test_refusal_with_numbers_and_advice():
    with pytest.raises(NotFaithful, match=r"40 held-out rows R\^2 .*below min_fidelity=0.9.*leaf=5") as caught:
        distill(chance, X, kind="value", **FAST | {"min_fidelity": 0.9})
    assert caught.value.fidelity_["r2"] < 0.5
    rare = lambda rows: np.stack([chance(rows) > 0.04, chance(rows) <= 0.04], 1).astype(float)  # noqa: E731
    with pytest.raises(NotFaithful) as caught:  # nearly always the same class, and nothing learned
        distill(rare, X, **FAST | {"min_fidelity": 0.8})
    assert caught.value.fidelity_["agreement"] > 0.8 > caught.value.fidelity_["r2"]
    assert distill(rare, X, **FAST).fidelity_["r2"] < 0.8  # None: anything is accepted
    known = {r.tobytes() for r in np.ascontiguousarray(X)}
    off = lambda rows: np.where([r.tobytes() in known for r in np.ascontiguousarray(rows)],  # noqa: E731
                                rows[:, 0] / 9, 5 * chance(rows))
    with pytest.warns(UserWarning, match="mixtures of them.*with care"):  # learns the rows, can't learn mixtures
        distill(off, X, kind="value", **FAST | {"queries": 0, "steps": 400, "min_fidelity": 0.5})


def test_a_seed_repeats_and_nothing_else_moves():
    states = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()
    before = X.copy()
    with torch.no_grad():
        a = distill(soft, X, seed=1, **FAST)
    torch.manual_seed(5)
    b, c = distill(soft, X, seed=1, **FAST), distill(soft, X, seed=2, **FAST)
    weights = [g.body[0].weight for g in (a, b, c)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])
    assert a.fidelity_ == b.fidelity_ and np.array_equal(X, before)
    torch.set_rng_state(states[2])
    distill(soft, X, **FAST)
    assert torch.equal(torch.get_rng_state(), states[2]) and random.getstate() == states[0]
    assert np.array_equal(np.random.get_state()[1], states[1])


def test_a_module_without_gradients_is_asked_like_a_function_and_left_as_it_was():
    class Step(nn.Module):
        def forward(self, x):
            return torch.stack([torch.zeros(len(x)), torch.where(x[:, 0] < x[:, 1], -3.0, 3.0)], 1)

    step = Step().train()
    g = distill(step, X, kind="logit", **FAST)
    same = distill(lambda r: step(torch.tensor(r, dtype=torch.float32)), X, kind="logit", **FAST)
    assert step.training and all(torch.equal(a, b) for a, b in zip(g.parameters(), same.parameters(), strict=True))


def test_weights_travel(wine, tmp_path):
    torch.save(wine.state_dict(), tmp_path / "g.pt")
    again = Distilled(13, 3)
    again.load_state_dict(torch.load(tmp_path / "g.pt", weights_only=True))
    x = torch.tensor(WINE.to_numpy(np.float32))
    assert torch.equal(again(x), wine(x)) and torch.equal(copy.deepcopy(wine)(x), wine(x))
    assert torch.allclose(copy.deepcopy(wine).double()(x.double()).float(), wine(x), atol=1e-2)


@pytest.mark.parametrize("predict, x, options, message", [
    (nn.Linear(4, 2), X, {}, "say what it returns: kind='logit' or kind='value'"),
    (3, X, {}, "a function of rows, or an estimator"),
    (soft, X, {"kind": "odds"}, "kind must be one of"),
    (soft, X[:19], {}, "at least 20"),
    (soft, X[:, :1], {}, "at least two"),
    (soft, np.where(X > 2, np.nan, X), {}, "predict answers NaN or infinity for 3 of 200 rows"),
    (soft, np.where(X > 2, np.inf, X), {}, "NaN or infinite"),
    (soft, X, {"holdout": 1.0}, "holdout"),
    (soft, X, {"queries": -1}, "queries must be at least 0"),
    (soft, X, {"min_fidelity": 90}, "at most 1"),
    (lambda r: soft(r)[:-1], X, {}, r"got shape \(199, 2\) for 200 rows"),
    (lambda r: [soft(r), soft(r)], X, {}, "several questions"),
    (lambda r: r[:, 0] / 0.0 * 0, X, {}, "NaN or infinity for 200 of 200 rows of X"),
    (lambda r: np.where(np.isin(r[:, 0] + r[:, 1], X[:, 0] + X[:, 1]), r[:, 0], np.nan), X, {}, "of mixtures of X"),
    (lambda r: r[:, 7], X, {}, r"predict fails on X \(IndexError"),
    (lambda r: 2 * soft(r), X, {}, "sums from 2 to 2.*kind='logit'"),
    (lambda r: r[:, :2], X, {"kind": "value"}, "one value per row"),
    (lambda r: r[:, :2], X, {"kind": "label"}, "one label per row"),
    (lambda r: np.full(len(r), "a"), X, {"kind": "value"}, "needs numbers"),
    (lambda r: (1000 * r[:, 0]).astype(int), X, {}, "say kind='value'"),
    (lambda r: np.full((len(r), 2), 0.5), X, {}, "nothing to explain"),
    (lambda r: np.zeros(len(r), int), X, {}, "nothing to explain"),
])
def test_bad_input_is_refused(predict, x, options, message):
    with warnings.catch_warnings(), pytest.raises((ValueError, TypeError), match=message):
        warnings.simplefilter("ignore", RuntimeWarning)
        distill(predict, x, **FAST | options)


def test_odd_input_warns_at_the_callers_line():
    with pytest.warns(UserWarning, match=r"only 60 rows.* 12 of them") as few:
        distill(soft, X[:60], **FAST)
    with pytest.warns(UserWarning, match="say kind='probability'") as unclear:
        distill(lambda rows: soft(rows)[:, 1], X, **FAST)
    assert {w.filename for w in [*few, *unclear]} == {__file__}
