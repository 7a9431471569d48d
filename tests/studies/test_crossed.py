"""The crossing of BatchNorm's mode and the weight of the KL: one cause at a time."""

import pandas as pd
import pytest

from bifkit import LocalBIF
from experiments import crossed
from experiments.runner import paths


def test_each_combination_changes_one_thing(monkeypatch):
    seen, fit = [], LocalBIF.fit

    def watched(self, X, y=None):
        fitted = fit(self, X, y)
        seen.append((fitted.settings_, self.seed))
        return fitted

    monkeypatch.setattr(LocalBIF, "fit", watched)
    grid = crossed.grid("smoke")
    rows = [r | crossed.run(**r) | {"error": ""} for r in grid]
    for (settings, _), r in zip(seen, grid, strict=True):
        assert settings.batch_norm == ("train" if r["batch_norm"] == "training" else "frozen")
        assert settings.kl_weight == {"1": "elbo", "1/batch": "1/batch"}[r["kl"]]
        assert settings.changed(kl_weight="elbo", batch_norm="frozen") == \
            seen[0][0].changed(kl_weight="elbo", batch_norm="frozen")
    assert len({seed for _, seed in seen}) == 1 and len(set(map(str, (s for s, _ in seen)))) == 4
    assert crossed.table(pd.DataFrame(rows)).shape == (4, 1) and len(crossed.findings(pd.DataFrame(rows))) == 4


def test_the_stored_crossing_has_every_cell_five_times():
    file = paths.root() / "results" / "crossed.csv"
    frame = pd.read_csv(file, dtype={"error": str})
    counts = frame.groupby(["dataset", "kl", "batch_norm"])["mcc"].count()
    assert len(counts) == 24 and (counts == 5).all()
    # as printed hardly anything is found where relevant features change with the row; both changes together find most
    means = crossed.table(frame)[["Syn4", "Syn5", "Syn6"]]
    assert (means.loc["1/batch", "training"] > means.loc["1", "frozen"] + 20).all()


def test_gains_are_paired_by_seed():
    rows = [("Syn4", k, b, s, v + 10 * s, "") for s in (0, 1, 2) for (k, b), v in
            {("1", "frozen"): 5.0, ("1", "training"): 6.0, ("1/batch", "frozen"): 24.0,
             ("1/batch", "training"): 80.0}.items()]
    frame = pd.DataFrame(rows, columns=["dataset", "kl", "batch_norm", "seed", "mcc", "error"])
    assert crossed.effects(frame)["Syn4"]["sem"].max() == pytest.approx(0)  # what a seed adds to all four cancels
    assert crossed.findings(frame)[0] == "KL 1/batch alone: gains on Syn4 (Syn4 +19.0)"
