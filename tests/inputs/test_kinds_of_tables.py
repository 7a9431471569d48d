"""Each kind of model or data of the table in docs/using.md that needs no new concept: one line, and it works.

The features that a model uses are known here, and must come first.
"""

import re
from pathlib import Path

import nbformat
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from torch import nn

from bifkit import GlobalBIF, LocalBIF, distill

RNG = np.random.default_rng(0)
N = 600
RAW = pd.DataFrame({
    "city": pd.Categorical(RNG.choice(["Oslo", "Rome", "Bonn", "Lyon"], N)),
    "age": np.where(RNG.random(N) < 0.2, np.nan, RNG.normal(40, 9, N)), "noise": RNG.normal(size=N),
    "colour": pd.Categorical(RNG.choice(["red", "blue"], N)), "pay": RNG.lognormal(size=N)})
LABEL = (RAW["city"].isin(["Rome", "Lyon"]) * 2.0 + (RAW["age"].fillna(60) > 42) * 2.0 > 1.9).astype(int).to_numpy()
USED = {"city", "age"}
FAST = {"steps": 250, "queries": 2000, "hidden": 32, "bins": 16, "min_fidelity": 0.6}
FIT = {"min_steps": 120, "epochs": 1}
X = RNG.normal(size=(300, 5)).astype(np.float32)


def first(g, data, k=2, **options):
    """Names of the k most important features of a small fit."""
    return set(GlobalBIF(g, **FIT | options).fit(data).explain().top(k))


def linear(width=5, used=(1, 3), outputs=2):
    g = nn.Linear(width, outputs)
    with torch.no_grad():
        g.weight.zero_()
        g.bias.zero_()
        g.weight[1, list(used)] = 4.0
    return g


@pytest.mark.slow
def test_pipeline():
    columns = ColumnTransformer([("text", OneHotEncoder(), ["city", "colour"]), ("rest", StandardScaler(), ["pay"])])
    model = make_pipeline(columns, LogisticRegression(C=100)).fit(RAW, RAW["city"].isin(["Rome", "Lyon"]))
    g = distill(model, RAW, **FAST)
    assert first(g, RAW, 1) == {"city"}
    rows = LocalBIF(g, hidden=8, **FIT | {"min_steps": 5}).fit(RAW).explain(RAW.iloc[:3, ::-1])
    assert rows.feature_names == list(RAW.columns)


@pytest.mark.slow
def test_boosted_trees_of_scikit_learn_on_a_raw_frame():
    model = HistGradientBoostingClassifier(categorical_features="from_dtype", max_iter=30).fit(RAW, LABEL)
    assert first(distill(model, RAW, **FAST), RAW) == USED


@pytest.mark.slow
def test_lightgbm_on_a_raw_frame():
    import lightgbm

    model = lightgbm.LGBMClassifier(n_estimators=30, verbose=-1, n_jobs=1).fit(RAW, LABEL)
    assert first(distill(model, RAW, **FAST), RAW) == USED


@pytest.mark.slow
def test_xgboost_on_a_raw_frame():
    import xgboost

    model = xgboost.XGBClassifier(n_estimators=30, enable_categorical=True, n_jobs=1).fit(RAW, LABEL)
    assert first(distill(model, RAW, **FAST), RAW) == USED


def test_an_array_with_gaps():
    data = np.where(RNG.random(X.shape) < 0.2, np.nan, X)
    assert first(distill(lambda r: np.where(np.isnan(r[:, 2]), 2.0, r[:, 2] > 0), data, kind="value", **FAST),
                 data, 1) == {"x2"}


def test_regressor():
    model = RandomForestRegressor(20, min_samples_leaf=5, random_state=0).fit(X, 100 * X[:, 0] - 80 * X[:, 4])
    assert first(distill(model, X, **FAST), X) == {"x0", "x4"}


def test_plain_callable():
    assert first(distill(lambda rows: rows[:, 1] * 3 + rows[:, 2] ** 2, X, **FAST), X) == {"x1", "x2"}


def test_skorch():
    skorch = pytest.importorskip("skorch")
    net = skorch.NeuralNetClassifier(linear, criterion=nn.CrossEntropyLoss, max_epochs=0, train_split=None, verbose=0)
    net.initialize()
    assert first(net.module_, X) == {"x1", "x3"}
    with pytest.raises(TypeError, match="give the module inside, net.module_"):
        GlobalBIF(net).fit(X)


def test_torch_export():
    rows = torch.from_numpy(X)
    program = torch.export.export(linear(), (rows,), dynamic_shapes=({0: torch.export.Dim("rows")},))
    assert first(program.module(), X) == {"x1", "x3"}


class Corner(nn.Module):
    """Looks at the upper left quarter of an image alone; convolutions on the way."""

    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, 4, 1)
        nn.init.constant_(self.conv.weight, 0.5)
        nn.init.zeros_(self.conv.bias)

    def forward(self, x):
        value = self.conv(x)[:, :, :3, :3].mean((1, 2, 3))
        return torch.stack([-6 * value, 6 * value], 1)


QUARTERS = np.kron([[0, 1], [2, 3]], np.ones((3, 3), int))  # superpixels of 6 x 6 pixels


@pytest.mark.parametrize("channels", [1, 3])
def test_cnn(channels):
    images = RNG.normal(size=(200, channels, 6, 6)).astype(np.float32)
    explainer = LocalBIF(Corner(channels), groups=QUARTERS, image=(channels, 6, 6), hidden=8, **FIT).fit(images)
    assert explainer.explain(images[:20]).to_global().top(1) == ["group 0"]
    assert explainer.attribute(torch.from_numpy(images[:2])).shape == (2, channels, 6, 6)


def test_superpixels():
    images = RNG.normal(size=(200, 1, 6, 6)).astype(np.float32)
    named = {"groups": QUARTERS, "group_names": {0: "upper left"}}
    assert first(Corner(1), images, 1, **named) == {"upper left"}


@pytest.mark.slow
def test_many_rows():
    data = np.random.default_rng(1).normal(size=(200_000, 50)).astype(np.float32)
    explainer = LocalBIF(linear(50), hidden=8, min_steps=120, epochs=1, batch_size=2000).fit(data)
    rows = explainer.explain(data)
    assert set(rows.to_global().top(2)) == {"x1", "x3"}
    assert len(repr(rows).splitlines()) < 20


def test_every_row_of_the_page_has_its_test():
    page = (Path(__file__).parents[2] / "docs" / "using.md").read_text(encoding="utf-8")
    named = re.findall(r"\| `(test_\w+)` \|", page.partition("\n## Tables as they are")[2])
    assert len(named) == 12 and set(named) <= set(globals())


def test_the_notebook_shows_these_rows_too():
    folder = Path(__file__).parents[2]
    cells = nbformat.read(folder / "notebooks" / "06_your_own_model.ipynb", as_version=4).cells
    shown = next(c.source for c in cells if c.source.startswith("## Kinds of models and data"))
    page = (folder / "docs" / "using.md").read_text(encoding="utf-8").partition("\n## Tables as they are")[2]
    rows = re.findall(r"^(\| .+) \| `test_\w+` \|$", page, flags=re.M)
    assert len(rows) == 12 and all(f"{row} |" in shown for row in rows)
