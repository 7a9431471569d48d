"""The study beside shap and captum: its tools find a planted feature and its sign, lines are counted, tables add up."""

import functools

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier
from torch import nn

import bifkit
from experiments import beside_tools as study
from experiments.beside_tools import MEASURES, OURS, PATCHES, TOOLS
from experiments.runner import paths

RNG = np.random.default_rng(100)
X = RNG.normal(size=(300, 6)).astype(np.float32)


@pytest.fixture
def short(monkeypatch):
    """Fits and stand-ins of ours in a second."""
    monkeypatch.setattr(bifkit, "LocalBIF", functools.partial(bifkit.LocalBIF, min_steps=120, epochs=1, hidden=16))
    monkeypatch.setattr(bifkit, "distill", functools.partial(bifkit.distill, steps=200, queries=2000, hidden=32,
                                                             bins=16, min_fidelity=0.5))


def answer(job, tool, **given):
    """(sizes, signed) of one tool on what it is given."""
    function = TOOLS[job][tool]
    code = function.__code__
    found = function(**{name: given[name] for name in code.co_varnames[:code.co_argcount]})
    return found if isinstance(found, tuple) else (np.abs(found), found)


def linear(outputs):
    """The feature 2 decides alone, most of all where it is large."""
    g = nn.Sequential(nn.Linear(6, outputs, bias=False))
    with torch.no_grad():
        g[0].weight.zero_()
        g[0].weight[:, 2] = torch.tensor([-3.0, 3.0]) if outputs == 2 else torch.tensor([3.0])
    return g.eval().requires_grad_(False)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("tool", TOOLS["table"])
def test_tools_of_a_table_find_the_feature_and_its_sign(tool, short):
    torch.manual_seed(0)
    rows_ = torch.from_numpy(X[np.abs(X[:, 2]) > 1][:12])
    size, signed = answer("table", tool, g=linear(2), X=torch.from_numpy(X), y=(X[:, 2] > 0).astype(int), rows=rows_,
                          seed=0)
    assert size.shape == signed.shape == (12, 6) and (size.argmax(1) == 2).all()
    assert (signed[:, 2] > 0).all()  # whichever class is predicted, it speaks for that


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("tool", TOOLS["regression"])
def test_tools_of_a_regression_find_the_feature(tool, short):
    given = {"X": torch.from_numpy(X), "y": 3 * X[:, 2], "rows": torch.from_numpy(X[np.abs(X[:, 2]) > 1][:12])}
    assert (answer("regression", tool, g=linear(1), seed=0, **given)[0].argmax(1) == 2).all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("tool", TOOLS["images"])
def test_tools_of_images_find_the_patch(tool, short):
    class Patch(nn.Module):
        """Reads the patch in the second row and the third column."""

        def __init__(self):
            super().__init__()
            self.flat = nn.Flatten()
            self.linear = nn.Linear(64, 3, bias=False)
            with torch.no_grad():
                inside = torch.as_tensor((PATCHES == 6).ravel()).float()
                self.linear.weight.copy_(torch.stack([-2 * inside, inside, inside]))

        def forward(self, x):
            return self.linear(self.flat(x))

    images = torch.from_numpy(RNG.normal(size=(200, 1, 8, 8)).astype(np.float32))
    chosen = images[images[:, 0, 2:4, 4:6].sum((1, 2)).abs() > 1.5][:8]
    g = Patch().eval().requires_grad_(False)
    size, signed = answer("images", tool, g=g, X=images, y=g(images).argmax(1).numpy(), rows=chosen, seed=0)
    assert size.shape == signed.shape == (len(chosen), 16) and (size.argmax(1) == 6).all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("tool", TOOLS["forest"])
def test_tools_of_a_forest_find_the_feature_and_its_sign(tool, short):
    forest = RandomForestClassifier(20, max_features=None, random_state=0).fit(X, X[:, 2] > 0.8)  # means are not
    forest.classes_ = np.array([0, 1])
    chosen = X[X[:, 2] > 1][:12]
    size, signed = answer("forest", tool, g=forest, X=X, y=(X[:, 2] > 0.8).astype(int), rows=chosen, seed=0)
    assert (size.argmax(1) == 2).all() and (signed[:, 2] > 0).all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("tool", TOOLS["ids"])
def test_tools_of_ids_find_the_column(tool, short):
    torch.manual_seed(100)
    g = study.Mixed((7, 6), 4, 3).eval().requires_grad_(False)
    rest = nn.Linear(31, 3, bias=False)
    with torch.no_grad():  # only the vector of the fifth column of ids counts: place 7 + 4 of the 13
        rest.weight.zero_()
        rest.weight[:, 7 + 16:7 + 20] = torch.tensor([[-2.0], [1.0], [1.0]])
        g.embed.weight.copy_(torch.tensor([-2.0, -1, 1, 2]).repeat(6)[:, None].expand(24, 4))
    g.rest = rest.requires_grad_(False)
    both = torch.from_numpy(np.r_[X, X][:200, [0, 1, 2, 3, 4, 5, 0]]), torch.from_numpy(RNG.integers(0, 4, (200, 6)))
    chosen = both[0][:8], both[1][:8].clone()
    chosen[1][:, 4] = torch.tensor([1, 3] * 4)  # captum takes the id 0 for nothing
    size, signed = answer("ids", tool, g=g, X=both, y=g(*both).argmax(1).numpy(), rows=chosen, seed=0)
    assert size.shape == signed.shape == (8, 13)
    assert (size.argmax(1) == 11).all()


def sample(a,
           b):
    """Not counted,
    nor is this."""
    # nor this

    first = (a +
             b)

    return first


def test_lines_are_those_that_a_user_writes():
    assert study.lines(sample) == 3
    counted = {tool: study.lines(function) for tool, function in TOOLS["table"].items()}
    assert counted["bifkit rank"] == 6 and counted["captum IntegratedGradients"] == 2  # counted by hand


def test_the_stored_lines_are_those_of_the_functions_here():
    frame = pd.read_csv(paths.root() / "results" / "beside_tools.csv")
    assert len(frame) == len(study.grid()) and frame["error"].isna().all()
    for (job, tool), part in frame.groupby(["job", "tool"]):
        assert set(part["lines"]) == {study.lines(TOOLS[job][tool])}, (job, tool)


def made_up():
    """Seeds 0 to 4 of two tools: ours is .1 lower in deletion, and .1 lower in insertion, with hardly any scatter."""
    return pd.DataFrame([{"job": "table", "tool": t, "seed": s, "error": "", "lines": 3, "seconds_used": 2.0,
                          **{m: v + 0.001 * s for m in MEASURES}, **{f"{m}, mean": v for m in MEASURES}}
                         for t, v in ((OURS[0], 0.4), ("shap Deep", 0.5)) for s in range(5)])


def test_verdicts_are_ours_minus_theirs_and_losses_are_counted():
    found = study.verdicts(made_up())
    assert found.groupby("kind")["verdict"].unique().map(list).to_dict() == {"deletion": ["better"],
                                                                            "insertion": ["worse"]}
    assert np.allclose(found["gain"].abs(), 0.1)
    counts = study.counts(found).loc[("table", OURS[0])]
    assert counts["size"].tolist() == counts["signed"].tolist() == [1, 0, 1]
    frame = made_up().assign(**{m: np.nan for m in MEASURES if "signed" in m})  # a regression
    assert study.counts(study.verdicts(frame)).loc[("table", OURS[0]), "signed"].sum() == 0


def test_the_table_has_mean_and_sd():
    table = study.table(made_up())
    assert table.loc[("table", "shap Deep"), "deletion, size"] == "0.502 ± 0.002"
    assert table.loc[("table", OURS[0]), ["lines", "seconds"]].tolist() == ["3", "2.0"]


def test_every_stored_order_is_better_than_its_reverse():
    """Deletion of an order is insertion of its reverse, read backwards."""
    frame = pd.read_csv(paths.root() / "results" / "beside_tools.csv")
    assert (frame["deletion, size"] < frame["insertion, size"]).all()
