"""Outside judges: a planted explanation that is right beats a random one, and a stable one a restless one."""

import sys

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from experiments import panels
from experiments.panels import HIGHER, JUDGES, METHODS, OURS, Case
from experiments.rivals import attribution

WEIGHTS = np.array([4, 3, 2, 1, -4, -3, -2, -1], dtype=np.float32)


@pytest.fixture(scope="module")
def case():
    """A linear g and two kinds of rows: features 0-3 make one class, 4-7 the other; a logit sums what they add."""
    rng = np.random.default_rng(0)
    rows = rng.uniform(0.5, 1.5, (24, 8)).astype(np.float32)
    classes = np.arange(24) % 2
    rows[classes == 1, 4:], rows[classes == 0, :4] = 0.0, 0.0
    g = nn.Linear(8, 2, bias=False).eval()
    g.weight.data.copy_(torch.as_tensor(np.stack([-WEIGHTS, WEIGHTS])))
    return Case(rows, classes, rows, classes, g, np.arange(8), rows[:5])


def right(x, _=None):
    return np.abs(WEIGHTS * x)


def test_a_right_explanation_beats_a_random_one_before_every_judge_of_faithfulness(case):
    good = panels.faithful(case, panels.shares(right(case.rows)))
    chance = panels.faithful(case, panels.shares(np.random.default_rng(1).random(case.rows.shape)))
    # of a linear g the shares are exactly what the logit loses, up to the row's scale, which captum fits
    assert good["faithfulness correlation"] == pytest.approx(1, abs=1e-4)
    assert good["infidelity"] == pytest.approx(0, abs=1e-4)
    assert good["sufficiency"] == 1  # the two classes have nothing in common
    assert abs(chance["faithfulness correlation"]) < 0.5 and chance["infidelity"] > 1
    for judge in good:
        assert (good[judge] - chance[judge]) * (1 if HIGHER[judge] else -1) > 0.1, judge


def test_infidelity_does_not_depend_on_the_scale_of_an_explanation(case):
    a = panels.shares(np.random.default_rng(1).random(case.rows.shape))
    assert panels.faithful(case, 7 * a)["infidelity"] == pytest.approx(panels.faithful(case, a)["infidelity"], rel=1e-3)


def test_sensitivity_is_that_of_the_explanation(case):
    rng = np.random.default_rng(2)
    calm = panels.robust(case, lambda x, _: np.tile(np.arange(1.0, 9.0), (len(x), 1)), None)
    restless = panels.robust(case, lambda x, _: rng.random(x.shape), None)
    for judge in ("max-sensitivity", "sensitivity_max"):
        assert calm[judge] == pytest.approx(0, abs=1e-6) and restless[judge] > 0.3


def test_randomisation_finds_an_explanation_that_does_not_read_g(case):
    def again(g):
        w = g.weight.detach().numpy()
        assert not np.allclose(np.abs(w[1]), np.abs(WEIGHTS)), "the judge hands over a g with fresh weights"
        return lambda x, c: np.abs(w[c] * x)

    blind = panels.robust(case, right, lambda g: right)["randomisation"]
    reads = panels.robust(case, right, again)["randomisation"]
    assert blind == pytest.approx(1) and reads < 0.95


def test_a_patch_spread_over_its_pixels_is_judged_as_one_feature(case):
    """The measures that explain again give the same for four patches of two pixels as for four features."""
    rng = np.random.default_rng(3)
    table = {x: rng.random((10, 4)) for x in range(20)}

    def played(width):
        calls = iter(range(20))
        return lambda x, _: table[next(calls)][:len(x)]

    g = nn.Linear(8, 2).eval()
    patched = case._replace(g=g, groups=np.array([0, 0, 1, 1, 2, 2, 3, 3]))
    plain = case._replace(g=nn.Linear(4, 2).eval(), rows=case.rows[:, :4], groups=np.arange(4))
    a, b = (panels.robust(c, played(4), None) for c in (patched, plain))
    assert a == pytest.approx(b, rel=1e-5)


@pytest.mark.parametrize("groups", [None, [0, 0, 1, 1, 2, 2, 3, 3]])
def test_new_rivals_have_closed_forms_for_a_linear_g(case, groups):
    x, mean = case.rows[:4], case.background.mean(0)
    sign = np.where(case.classes[:4] == 1, 1, -1)[:, None]
    merge = np.eye(8) if groups is None else np.eye(4)[groups]
    ablation = attribution.feature_ablation(case.g, x, groups=groups, signed=True)
    assert ablation == pytest.approx(sign * WEIGHTS * x @ merge, abs=1e-4)
    kernel = attribution.shap_kernel(case.g, x, case.background, groups=groups, signed=True)
    assert kernel == pytest.approx(sign * WEIGHTS * (x - mean) @ merge, abs=1e-3)
    if groups is None:
        shap = attribution.gradient_shap(case.g, x, case.background[:1], signed=True)
        assert shap == pytest.approx(sign * WEIGHTS * (x - case.background[0]), abs=1e-4)
        lime = attribution.lime_model(case.g, np.random.default_rng(0).normal(size=(200, 8)), x, num_samples=300,
                                      signed=True, discretize_continuous=False)
        assert (np.sign(lime) == sign * np.sign(WEIGHTS)).mean() > 0.9


@pytest.mark.parametrize("method", ["bifkit rank", "INVASE", "no such"])
def test_explainers_by_name(case, method, monkeypatch):
    if method == "no such":
        with pytest.raises(ValueError, match="method must be one of"):
            panels.explainer(method, case)
        return
    real = panels.LocalBIF
    monkeypatch.setattr(panels, "LocalBIF", lambda *a, **k: real(*a, **k, min_steps=5, epochs=1))
    monkeypatch.setattr(panels, "INVASE", lambda **k: attribution_invase(**k))
    assert panels.explainer(method, case)(case.rows, case.classes).shape == (24, 8)


def attribution_invase(**options):
    from experiments.rivals import INVASE
    return INVASE(**options, iterations=3)


def test_a_run_holds_every_judge_and_signs_help_where_they_are_asked_for(case, monkeypatch):
    monkeypatch.setattr(panels, "prepared", lambda *_: case._replace(rows=case.rows * np.float32([1, -1] * 4)))
    row = panels.run(dataset="planted", method="FeatureAblation", seed=100)
    assert set(JUDGES) < set(row) and np.isfinite([row[j] for j in JUDGES]).all()
    assert row["faithfulness correlation, signed"] == pytest.approx(1, abs=1e-4)
    assert row["faithfulness correlation"] < 0.9  # every other feature speaks against the class
    assert row["infidelity, signed"] < 1e-3 < row["infidelity"]


def test_without_libgl_the_judges_still_come(monkeypatch):
    quantus = panels.quantus()
    monkeypatch.setitem(sys.modules, "cv2", None)  # what an import that fails looks like
    assert panels.quantus() is quantus and sys.modules["cv2"] is not None


def test_places_and_counts_by_hand():
    rows = [{"dataset": d, "method": m, "seed": s, "error": "", **{j: v + s for j in JUDGES}}
            for d in ("Adult", "MNIST") for s in (0, 1) for m, v in zip(METHODS, range(len(METHODS)), strict=True)]
    frame = pd.DataFrame(rows)
    place, up = panels.places(frame), sum(HIGHER.values())
    assert place.shape == (2 * len(JUDGES), len(METHODS) - 1)
    assert (place.loc[("Adult", "sparseness"), OURS[0]], place.loc[("Adult", "infidelity"), OURS[0]]) == (12, 1)
    text = panels.summary(frame)
    assert f"bifkit rank: first in {2 * (7 - up)}" in text and f"last in {2 * up} of 14 cells" in text
    gaps = panels.losses(frame).set_index(["dataset", "judge"])["ahead"]
    assert (gaps["Adult", "sparseness"], gaps["Adult", "infidelity"]) == (2 - 11, 3 - 0)
    assert panels.mean_places(frame).loc["INVASE", "first"] == 2 * up
