"""One importance a class: each class's own features come first, labels or soft, with restarts, saved and loaded."""

import json
import warnings

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError
from torch import nn

from bifkit import GlobalBIF, LocalBIF, refine, storage
from bifkit import elbo as objective
from bifkit.elbo import elbo, of_classes, one_against_rest, target_reader
from bifkit.inputs import checks as door
from bifkit.presets import PRESETS
from bifkit.storage import BadFile
from experiments.models.classifiers import mlp

X = np.random.default_rng(0).normal(size=(600, 5)).astype(np.float32)
BOTH = pytest.mark.parametrize("kind", [GlobalBIF, LocalBIF])


def _g():
    """Three classes, each against the other two by a feature of its own: g's logits are 6 x0, 6 x1 and 6 x2."""
    g = nn.Linear(5, 3, bias=False)
    g.weight.data.copy_(6 * torch.eye(3, 5))
    return g


class _Own(nn.Module):
    """Class c's probability depends on feature c only: log p0 = log sigmoid(x0) - 1, ...; the fourth takes the rest."""

    def forward(self, x):
        p = torch.sigmoid(4 * x[:, :3]) * 0.3
        return torch.log(torch.cat([p, 1 - p.sum(1, keepdim=True)], 1))


Y = X[:, :3].argmax(1)


def _bif(kind, model=None, *args, **kw):
    small = {"min_steps": 20, "epochs": 1, "batch_size": 100} | ({"hidden": 16} if kind is LocalBIF else {})
    return kind(_g() if model is None else model, *args, **small | kw)


# which classes

def test_the_classes_that_are_asked_for():
    assert door.check_classes(None, 3) is None and door.check_classes("each", 3) == [0, 1, 2]
    assert door.check_classes(2, 3) == door.check_classes(np.int64(2), 3) == 2 and door.check_classes([2], 3) == [2]
    assert door.check_classes((2, 0), 3) == door.check_classes(np.array([2, 0]), 3) == [2, 0]
    found = door.check_classes(np.array([1]), 3)
    assert type(found[0]) is type(door.check_classes(np.int64(2), 3)) is int  # the keys of the answer, and JSON


@BOTH
@pytest.mark.parametrize("classes", [3, -1, [0, 0], [], "all", "eachother", [0.5], ["0"], 1.0, [[0]], True])
def test_classes_that_are_not_there(kind, classes):
    explainer = _bif(kind, classes=classes)
    with pytest.raises(ValueError, match="classes must be 'each', or class numbers from 0 to 2, none twice; got"):
        explainer.fit(X, Y)
    with pytest.raises(NotFittedError):
        explainer.explain(X)


@BOTH
def test_one_output_has_no_classes_to_tell_apart(kind):
    for likelihood in ("binary", "regression"):
        with pytest.raises(ValueError, match="needs a g with a logit for each class; .*leave classes out"):
            _bif(kind, nn.Linear(5, 1), likelihood=likelihood, classes="each").fit(X)


@BOTH
def test_the_answer_is_a_posterior_for_each_class(kind):
    found = _bif(kind, classes="each", min_steps=3).fit(X, Y).explain(X)
    assert list(found) == [0, 1, 2] and all(p.is_local == (kind is LocalBIF) for p in found.values())
    one = _bif(kind, classes=1, min_steps=3).fit(X, Y).explain(X)
    alone = _bif(kind, classes=[1], min_steps=3).fit(X, Y).explain(X)
    assert list(alone) == [1] and np.array_equal(one.alpha, alone[1].alpha)  # a number gives a posterior, a list a dict
    assert list(_bif(kind, classes=[2, 0], min_steps=3).fit(X, Y).explain(X)) == [2, 0]
    assert not hasattr(_bif(kind, min_steps=3).fit(X, Y).explain(X), "keys")


# what is explained

def test_one_against_the_rest_is_the_log_odds():
    logits = torch.from_numpy(np.random.default_rng(1).normal(0, 5, size=(50, 4)))
    p = logits.softmax(1)
    for c in range(4):
        assert torch.allclose(one_against_rest(logits, c)[:, 0], torch.logit(p[:, c]), rtol=1e-9)
        assert torch.allclose(target_reader("soft", "categorical", c)(logits, None), p[:, c])
        labels = torch.arange(50) % 4
        assert torch.equal(target_reader("labels", "categorical", c)(logits, labels), (labels == c).float())


def test_far_logits_stay_finite():
    logits = torch.tensor([[300.0, -300.0, 0.0]])
    assert torch.isfinite(torch.stack([one_against_rest(logits, c) for c in range(3)])).all()


@BOTH
@pytest.mark.parametrize("target", ["soft", "labels"])
def test_each_classs_own_feature_comes_first(kind, target):
    torch.manual_seed(0)
    g = _Own()
    y = torch.distributions.Categorical(logits=g(torch.from_numpy(X))).sample().numpy()
    settings = {"min_steps": 100, "target": target, "kl_weight": 0.001, "lr": 0.05 if kind is GlobalBIF else 0.01}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = _bif(kind, g, classes=[2, 0, 1], **settings).fit(X, y).explain(X)
        whole = _bif(kind, g, **settings).fit(X, y).explain(X).to_global()
    for c, p in found.items():
        p = p.to_global()
        assert p.top(1) == [f"x{c}"] and p.mean[c] > 1.5 * np.delete(p.mean, c).max()
    assert set(whole.top(3)) == {"x0", "x1", "x2"} and np.ptp(whole.mean[:3]) < 0.15  # the decision needs all three


@BOTH
def test_two_classes_are_one_question(kind):
    g = nn.Linear(5, 2, bias=False)
    g.weight.data.copy_(torch.tensor([[-3.0, 0, 0, 0, 0], [3, 1, 0, 0, 0]]))
    y = (X[:, 0] > 0).astype(int)
    found = [_bif(kind, g, classes=c, min_steps=60).fit(X, y).explain(X) for c in (0, 1)]
    whole = _bif(kind, g, min_steps=60).fit(X, y).explain(X)
    assert np.allclose(found[0].mean, found[1].mean, atol=0.02)
    assert np.allclose(found[1].mean, whole.mean, atol=0.02)  # two logits, one question
    for p in _bif(kind, g, classes="each", min_steps=60).fit(X, y).explain(X).values():  # with draws of its own
        assert np.allclose(p.to_global().mean, whole.to_global().mean, atol=0.15)


# with the rest of the package

@BOTH
def test_restarts_are_averaged_within_a_class(kind):
    fitted = _bif(kind, classes=[1, 2], restarts=3, min_steps=4).fit(X, Y)
    assert len(fitted.networks_) == len(fitted.history_) == 3
    rows, found = torch.from_numpy(X), fitted.explain(X)
    alphas = np.stack([net(rows).detach().double().numpy() for net in fitted.networks_])  # (restarts, classes, B, G)
    assert not np.allclose(alphas[0], alphas[1]) and not np.allclose(alphas[:, 0], alphas[:, 1])
    for head, c in enumerate((1, 2)):
        assert np.allclose(found[c].alpha, alphas[:, head].mean(0), atol=1e-6)


def test_classes_side_by_side_have_the_objective_of_each_alone(monkeypatch):
    """The mean of the classes' ELBOs, each written out for its class, with the mean instead of draws, of all rows."""
    monkeypatch.setattr(objective, "SHARE", 1)
    g, x, target = _g().requires_grad_(False), torch.from_numpy(X[:50]), None
    alpha = torch.from_numpy(np.random.default_rng(2).gamma(2.0, size=(3, 50, 5)).astype(np.float32)) + 0.1
    for name, scale in (("categorical", 1.0), ("multilabel", 1.0), ("regression", torch.tensor([1.0, 7.0, 3.0]))):
        for fidelity in ("absolute", "relative"):
            s = PRESETS["rank"].changed(point_estimate=True, fidelity=fidelity, fill="zero").for_data(5, 1.0)
            whole, read, likelihood, unit = of_classes(g, [0, 1, 2], name, scale=scale)
            together = elbo(whole, x, read(g(x), None), alpha, s, kl_weight=0.1, likelihood=likelihood, scale=unit)
            alone = []
            for c in range(3):
                one, read, likelihood, unit = of_classes(g, c, name, scale=scale)
                target = read(g(x), None)
                alone.append(elbo(one, x, target, alpha[c], s, kl_weight=0.1, likelihood=likelihood, scale=unit))
            assert float(together) == pytest.approx(float(torch.stack(alone).mean()), rel=1e-5)


def test_each_class_has_a_part_of_the_rows_with_their_alpha_and_target():
    rows = torch.arange(40.0)[:, None].expand(-1, 2)  # a row, its alpha and its target all say which it is
    alpha = torch.stack([rows + 100 * c for c in range(5)])  # (5, 40, 2)
    x, target, chosen = objective._rows_of_each_class(rows, torch.cat([alpha[c, :, :1] for c in range(5)], 1), alpha)
    assert x.shape == (50, 2) and target.shape == (50,) and chosen.shape == (5, 10, 2)
    assert torch.equal(chosen[:, :, 0].flatten(), target)
    assert torch.equal(target, x[:, 0] + 100 * torch.arange(5.0).repeat_interleave(10))
    assert all(len(part.unique()) == 10 for part in x[:, 0].split(10)) and len(x[:, 0].unique()) > 15


def test_draws_of_several_classes_stay_with_their_class():
    """g says which class its block of rows belongs to, through rows that know it."""
    g, read, likelihood, _ = of_classes(nn.Identity(), [2, 0], "regression", scale=torch.ones(3), draws=4)
    rows = torch.tensor([[10.0, 0, 12], [20, 0, 22]])  # two rows, each once for each class and draw
    found = g(rows.repeat(2, 1).repeat(4, 1)).view(4, 2, 2)
    assert torch.equal(found, torch.tensor([[12.0, 22], [10, 20]]).expand(4, 2, 2))
    assert likelihood == "regression" and torch.equal(read(rows, None), torch.tensor([[12.0, 10], [22, 20]]))


@BOTH
def test_files_that_have_a_network_for_each_class(kind, tmp_path):
    fits = [_bif(kind, classes=[c], min_steps=4).fit(X, Y) for c in (2, 0)]
    arrays: dict = {}
    for i, fitted in enumerate(fits):
        fitted.save(tmp_path / "one.bif")
        found, meta = storage.read(tmp_path / "one.bif", kind.__name__)
        arrays |= {key.replace("0.", f"{i}.", 1): array for key, array in found.items()}
    old = meta | {"classes": [2, 0], "restarts": 2, "history": meta["history"] * 2}
    storage.write(tmp_path / "old.bif", kind.__name__, arrays, old)
    back = kind.load(tmp_path / "old.bif").explain(X)
    for c, fitted in zip((2, 0), fits, strict=True):
        assert np.array_equal(back[c].alpha, fitted.explain(X)[c].alpha)


@BOTH
@pytest.mark.parametrize("kw", [{"classes": "each"}, {"classes": [2, 0], "restarts": 2},
                                {"classes": [1], "groups": {"first": [0, 1]}}])
def test_they_come_back_from_a_file(kind, kw, tmp_path):
    fitted = _bif(kind, min_steps=4, **kw).fit(X, Y)
    fitted.save(tmp_path / "e.bif")
    back = kind.load(tmp_path / "e.bif", fitted.model)
    a, b = fitted.explain(X), back.explain(X)
    assert list(a) == list(b) and back.classes_ == fitted.classes_ == back.classes and back.score_ == fitted.score_
    for c in a:
        assert np.array_equal(a[c].alpha, b[c].alpha) and a[c].feature_names == b[c].feature_names
        assert a[c].settings == b[c].settings
    again = back.fit(X, Y).explain(X)
    assert list(again) == list(a) and all(np.array_equal(again[c].alpha, a[c].alpha) for c in a)
    assert back.diagnostics_ == fitted.diagnostics_


@BOTH
@pytest.mark.parametrize("c", [0, 2])
def test_one_class_comes_back_from_a_file_as_one(kind, c, tmp_path):
    fitted = _bif(kind, min_steps=4, classes=c).fit(X, Y)
    fitted.save(tmp_path / "e.bif")
    back = kind.load(tmp_path / "e.bif", fitted.model)
    assert np.array_equal(back.explain(X).alpha, fitted.explain(X).alpha) and back.explain(X).settings["class"] == c
    assert np.array_equal(back.fit(X, Y).explain(X).alpha, fitted.explain(X).alpha)
    if kind is LocalBIF:
        several = _bif(kind, min_steps=4, classes=[c]).fit(X, Y)
        one, same = refine(back, X[:5], X, steps=3), refine(several, X[:5], X, steps=3)
        assert np.array_equal(one.alpha, same[c].alpha)


@BOTH
def test_files_from_before_there_were_classes(kind, tmp_path):
    fitted = _bif(kind, min_steps=4).fit(X, Y)
    fitted.save(tmp_path / "new.bif")
    arrays, meta = storage.read(tmp_path / "new.bif", kind.__name__)
    for key in ("output", "classes", "diagnostics", "score", "columns", "from_frame"):
        del meta[key]
    for old in (meta, meta | {"named": False}, meta | {"named": True}):
        storage.write(tmp_path / "old.bif", kind.__name__, arrays, old)
        back = kind.load(tmp_path / "old.bif")
        assert np.array_equal(back.explain(X).alpha, fitted.explain(X).alpha)
        assert back.classes_ is None and back.diagnostics_ is None and back.score_ is None
        assert back.columns_ == (None if old.get("named") is False else fitted.feature_names_)
        back.save(tmp_path / "again.bif")  # and may be written anew
        assert np.array_equal(kind.load(tmp_path / "again.bif").explain(X).alpha, fitted.explain(X).alpha)


@BOTH
@pytest.mark.parametrize("classes", [[0], [0, 1, 2, 3], "each", 3, {"0": 1}, [[0], [1], [2]], [None, 1, 2]])
def test_classes_of_a_file_that_do_not_fit_its_networks(kind, classes, tmp_path):
    _bif(kind, classes="each", min_steps=2).fit(X, Y).save(tmp_path / "e.bif")
    arrays, meta = storage.read(tmp_path / "e.bif", kind.__name__)
    storage.write(tmp_path / "e.bif", kind.__name__, arrays, meta | {"classes": classes})
    with pytest.raises(BadFile, match="lacks something a"):
        kind.load(tmp_path / "e.bif")


@BOTH
def test_many_classes_many_presets(kind):
    torch.manual_seed(0)
    g = mlp([5, 8, 4], batch_norm=True)
    for preset in ("rank", "few", "paper", "released"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = _bif(kind, g, preset, classes="each", min_steps=3).fit(X, np.arange(600) % 4).explain(X[:7])
        assert list(found) == [0, 1, 2, 3] and all(np.isfinite(p.alpha).all() for p in found.values())


@BOTH
def test_the_settings_of_an_answer_are_json_and_name_the_class(kind):
    found = _bif(kind, classes=[1, 2], min_steps=3).fit(X, Y).explain(X)
    assert [p.settings["class"] for p in found.values()] == [1, 2]
    assert json.loads(json.dumps(found[1].settings)) == found[1].settings
    assert "class" not in _bif(kind, min_steps=3).fit(X, Y).explain(X).settings
