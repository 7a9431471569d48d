"""Refined rows: closer to what g does at a row, the same objects as before, and clear refusals."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from bifkit import GlobalBIF, LocalBIF
from bifkit.evaluation.faithfulness import deletion_score, insertion_score
from bifkit.refine import refine

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 6)).astype(np.float32)


class _Own(nn.Module):
    """Row by row another feature decides: the one that x0 (cut at its sextiles) points at."""

    def forward(self, x):
        place = ((x[:, :1] + 1) * 2.5 + torch.tensor([0.5])).clamp(1, 5)
        weight = torch.softmax(-8 * (place - torch.arange(6.0)) ** 2, 1)
        z = 4 * (weight * x).sum(1)
        return torch.stack([-z, z], 1)


@pytest.fixture(scope="module")
def fitted():
    return LocalBIF(_Own(), min_steps=120, epochs=1, hidden=16, progress=False).fit(X)


def test_it_is_more_faithful_than_the_network(fitted):
    g, rows = fitted.model, X[:80]
    before, after = fitted.explain(rows), refine(fitted, rows, X)
    assert deletion_score(g, rows, after, fill="marginal") < deletion_score(g, rows, before, fill="marginal") - 0.02
    assert insertion_score(g, rows, after, fill="marginal") > insertion_score(g, rows, before, fill="marginal") + 0.02


def test_a_rows_answer_hangs_little_on_the_rows_beside_it(fitted):
    """Only its draws differ, and their scatter falls with their number: .025 with 16 of them, .016 with 64."""
    many = {"steps": 100, "draws": 64}
    together = refine(fitted, X[:40], X, **many).mean
    alone = np.concatenate([refine(fitted, X[i:i + 1], X, **many).mean for i in range(5)])
    in_parts = refine(fitted, X[:40], X, rows=16, **many).mean
    for other, n in ((alone, 5), (in_parts, 40)):
        assert np.abs(together[:n] - other).mean() < 0.03


def test_it_repeats_keeps_names_and_index_and_leaves_g_and_the_stream_alone(fitted):
    frame = pd.DataFrame(X[:4], columns=list("abcdef"), index=list("wxyz"))
    explainer = LocalBIF(nn.Linear(6, 2), likelihood="categorical", min_steps=5, epochs=1, hidden=8).fit(
        pd.DataFrame(X, columns=list("abcdef")))
    weight, state = explainer.model.weight.clone(), torch.random.get_rng_state()
    a, b = (refine(explainer, frame, X, steps=3) for _ in range(2))
    assert np.array_equal(a.alpha, b.alpha) and a.feature_names == list("abcdef") and list(a.index) == list("wxyz")
    assert a.settings["refined"] == 3
    assert torch.equal(weight, explainer.model.weight) and explainer.model.weight.requires_grad
    assert torch.equal(state, torch.random.get_rng_state())


@pytest.mark.parametrize("settings, outputs", [({"preset": "few"}, 3), ({"classes": "each"}, 3),
                                               ({"preset": "paper"}, 2), ({"likelihood": "regression"}, 1),
                                               ({"likelihood": "binary"}, 1),
                                               ({"groups": [0, 0, 1, 1, 2, 2]}, 2), ({"restarts": 2}, 2)])
def test_every_kind_of_fit(settings, outputs):
    torch.manual_seed(0)
    settings = {"likelihood": "categorical"} | settings
    explainer = LocalBIF(nn.Linear(6, outputs), min_steps=5, epochs=1, hidden=8, **settings).fit(X)
    found, before = refine(explainer, X[:3], X, steps=4, draws=2), explainer.explain(X[:3])
    pairs = [(found, before)] if not isinstance(found, dict) else [(found[c], before[c]) for c in before]
    assert len(pairs) == (3 if "classes" in settings else 1)
    for after, start in pairs:
        assert after.alpha.shape == start.alpha.shape and np.isfinite(after.alpha).all()
        assert not np.array_equal(after.alpha, start.alpha)


def test_what_is_refused(fitted, tmp_path):
    with pytest.raises(TypeError, match="a global explanation has no rows"):
        refine(GlobalBIF(nn.Linear(6, 2), likelihood="categorical", min_steps=5, epochs=1).fit(X), X, X)
    fitted.save(tmp_path / "e.bif")
    with pytest.raises(ValueError, match="refining needs the model"):
        refine(LocalBIF.load(tmp_path / "e.bif"), X, X)
    for wrong in ({"steps": 0}, {"draws": 1.5}, {"rows": -1}):
        with pytest.raises(ValueError, match="must be a whole number of at least 1"):
            refine(fitted, X, X, **wrong)
    with pytest.raises(ValueError, match="X has 5 features, expected 6"):
        refine(fitted, X, X[:, :5])
