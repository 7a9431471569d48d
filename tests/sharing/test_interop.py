"""A posterior and an explainer in other people's hands: numpy, shap, scikit-learn, captum's verb."""

import subprocess
import sys

import matplotlib

matplotlib.use("Agg")
import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt
from scipy import stats
from sklearn.feature_selection import SelectFromModel
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from torch import nn

from bifkit import GlobalBIF, LocalBIF, Posterior
from bifkit.evaluation import Direction

X = np.random.default_rng(0).normal(size=(300, 5)).astype(np.float32)
Y = (X[:, 1] + X[:, 3] > 0).astype(int)
ROWS = Posterior(np.random.default_rng(1).gamma(2.0, size=(40, 5)) + 0.1, list("abcde"))
BOTH = pytest.mark.parametrize("kind", [GlobalBIF, LocalBIF])


def _fit(kind, X=X, **kw):
    g = nn.Linear(5, 2)
    g.weight.data.copy_(torch.tensor([[0.0, -3, 0, -3, 0], [0, 3, 0, 3, 0]]))
    g.bias.data.zero_()
    small = {"min_steps": 150, "epochs": 1, "batch_size": 100} | ({"hidden": 16} if kind is LocalBIF else {})
    return kind(g, **small | kw)


# numpy

def test_draws_have_the_beta_marginals_of_a_dirichlet():
    alpha = np.array([0.05, 0.5, 3.0, 9.0])
    f = Posterior(alpha).sample(4000, seed=3)
    assert f.shape == (4000, 4) and np.allclose(f.sum(1), 1)
    for i, a in enumerate(alpha):
        assert stats.kstest(f[:, i], stats.beta(a, alpha.sum() - a).cdf).pvalue > 1e-4
    rows = ROWS.sample(3000, seed=1)
    assert rows.shape == (3000, 40, 5)
    assert np.abs((rows.mean(0) - ROWS.mean) / (ROWS.sd / np.sqrt(3000))).max() < 5
    assert np.array_equal(ROWS.sample(2, seed=1), ROWS.sample(2, seed=1)) and ROWS.sample().shape == (1, 40, 5)
    for n in (0, 1.5, -1):
        with pytest.raises(ValueError, match="n must be a whole number"):
            ROWS.sample(n)


def test_numpy_sees_the_means():
    assert np.array_equal(np.asarray(ROWS), ROWS.mean) and np.asarray(ROWS, dtype=np.float32).dtype == np.float32
    assert np.array_equal(np.array(ROWS[0]), ROWS.mean[0]) and np.allclose(np.sum(ROWS, axis=1), 1)
    with pytest.raises(ValueError, match="copy"):
        np.asarray(ROWS, copy=False)


# shap

def test_shap_draws_a_posterior():
    shap = pytest.importorskip("shap")
    found = ROWS.to_shap(X[:40])
    assert np.array_equal(found.values, ROWS.mean) and found.feature_names == list("abcde")
    for draw in (lambda: shap.plots.bar(found, show=False), lambda: shap.plots.beeswarm(found, show=False),
                 lambda: shap.plots.heatmap(found, show=False), lambda: shap.plots.scatter(found[:, "b"], show=False),
                 lambda: shap.plots.bar(ROWS.to_global().to_shap(), show=False)):
        draw()
        assert plt.gcf().axes
        plt.close("all")
    with pytest.raises(ValueError, match=r"X has shape \(300, 5\), the importances \(40, 5\)"):
        ROWS.to_shap(X)


def test_shap_gets_signs():
    pytest.importorskip("shap")
    mean = np.where(np.arange(200).reshape(40, 5) % 3 == 0, -2.0, 0.5)
    mean[0, 0] = np.nan
    way = Direction(mean, mean - 1, mean + 1, list("abcde"), ROWS.index, "value")
    found = ROWS.to_shap(direction=way).values
    assert np.allclose(np.abs(found[1:]), ROWS.mean[1:]) and np.array_equal(np.sign(found[1:]), np.sign(mean[1:]))
    assert found[0, 0] == 0
    with pytest.raises(ValueError, match="that of this posterior"):
        ROWS[:3].to_shap(direction=way)


@pytest.mark.parametrize("package, method", [("shap", "to_shap"), ("xarray", "to_xarray"), ("arviz", "to_arviz")])
def test_what_is_absent_is_named(monkeypatch, package, method):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=f"{method} needs the package {package}"):
        getattr(ROWS, method)()


# xarray, arviz

def test_xarray_has_names_and_rows():
    pytest.importorskip("xarray")
    named = Posterior(ROWS.alpha, ROWS.feature_names, index=[f"r{i}" for i in range(40)])
    found = named.to_xarray(prob=0.5)
    assert found["mean"].sel(row="r3", feature="c").item() == ROWS.mean[3, 2] and found.attrs == {"prob": 0.5}
    assert np.array_equal(found["upper"], ROWS.interval(0.5)[1]) and set(found.sizes) == {"row", "feature"}
    assert ROWS[0].to_xarray()["share"].dims == ("feature",)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_arviz_summarises_the_draws():
    arviz = pytest.importorskip("arviz")
    table = arviz.summary(ROWS[0].to_arviz(4000, seed=1), kind="stats")
    assert np.allclose(table["mean"], ROWS.mean[0], atol=0.02) and np.allclose(table["sd"], ROWS.sd[0], atol=0.02)
    assert table.index.tolist() == [f"importance[{name}]" for name in "abcde"]
    assert ROWS.to_arviz(7).posterior["importance"].shape == (1, 7, 40, 5)


# scikit-learn

@BOTH
def test_features_are_selected_by_importance(kind, tmp_path):
    selector = SelectFromModel(_fit(kind), threshold=0.2).fit(X, Y)
    assert selector.get_support().tolist() == [False, True, False, True, False]
    assert np.array_equal(selector.transform(X), X[:, [1, 3]])
    fitted = selector.estimator_
    assert fitted.feature_importances_.sum() == pytest.approx(1)
    assert np.allclose(fitted.feature_importances_, fitted.explain(X).to_global().share)
    assert fitted.score(X, Y) == fitted.score_ and fitted.score(X[:7], 1 - Y[:7]) == 0.0
    if kind is GlobalBIF:
        fitted.save(tmp_path / "e.bif")
        assert np.allclose(kind.load(tmp_path / "e.bif").feature_importances_, fitted.feature_importances_)


def test_a_grid_search_finds_how_many_features_are_needed():
    steps = [("select", SelectFromModel(_fit(GlobalBIF), threshold=-np.inf)), ("classify", LogisticRegression())]
    search = GridSearchCV(Pipeline(steps), {"select__max_features": [1, 2], "select__estimator__seed": [0, 1]}, cv=3)
    search.fit(X, Y)  # the labels are of the sum of two
    assert search.best_params_["select__max_features"] == 2 and search.best_score_ > 0.95
    assert search.best_estimator_["select"].get_support().tolist() == [False, True, False, True, False]


def test_a_grid_search_over_an_explainer_scores_g():
    search = GridSearchCV(_fit(GlobalBIF, min_steps=5), {"kl_weight": [0.01, 0.1]}, cv=3).fit(X, Y)
    assert search.cv_results_["mean_test_score"].tolist() == [1.0, 1.0]  # g's accuracy, whatever the setting


def test_a_groups_share_is_in_equal_parts_and_classes_are_averaged():
    fitted = _fit(GlobalBIF, groups={"first": [0, 1]}, classes="each", min_steps=30).fit(X, Y)
    share = np.mean([p.share for p in fitted.explain().values()], axis=0)
    assert np.allclose(fitted.feature_importances_, [share[0] / 2, share[0] / 2, *share[1:]])


# captum

def test_attributions_have_the_shape_of_the_inputs():
    images, whole = torch.from_numpy(X).view(300, 1, 5), _fit(LocalBIF, min_steps=20, groups={"first": [0, 1]})
    whole.model = nn.Sequential(nn.Flatten(), whole.model)
    found = whole.fit(images).attribute(images[:9])
    assert isinstance(found, torch.Tensor) and found.shape == (9, 1, 5)
    assert torch.equal(found[..., 0], found[..., 1])  # a group's importance stands at each of its inputs
    assert np.allclose(found[:, 0, 1:].numpy(), whole.explain(images[:9]).mean)
    with pytest.raises(ValueError, match="classes that were fitted, \\[None\\]; got 1"):
        whole.attribute(images[:9], target=1)
    one = _fit(LocalBIF, min_steps=20, classes=[1, 0]).fit(X, Y)
    assert np.allclose(one.attribute(X, target=1), one.explain(X)[1].mean)


def test_importing_bifkit_loads_neither_plots_nor_shap():
    code = ("import sys, bifkit; assert not {'matplotlib', 'seaborn', 'shap', 'captum'} & set(sys.modules); "
            "bifkit.plots.importances; assert 'matplotlib' in sys.modules and 'plots' in dir(bifkit)")
    subprocess.run([sys.executable, "-c", code], check=True)
