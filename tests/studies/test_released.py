"""BIF as its authors' code ran it: their network, their settings, rows beside the paper's tables."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from bifkit import GlobalBIF
from data_prep.seeding import derive
from data_prep.synthetic import make_synthetic
from experiments import fairness_report, privacy_report, released, synthetic, tabular
from experiments.models.classifiers import mlp
from experiments.runner import scoreboard


def test_their_network_has_one_relu_and_two_batchnorms_and_sees_all_rows_at_once(monkeypatch):
    X = np.random.default_rng(100).normal(size=(64, 5)).astype("float32")
    rows = []
    monkeypatch.setattr(nn.BatchNorm1d, "forward", _counting(nn.BatchNorm1d.forward, rows))
    g = released.authors_model("toy", X, (X[:, 0] > 0).astype(int), 2, 100)
    kinds = [type(layer).__name__ for layer in g]
    assert kinds == ["Linear", "BatchNorm1d", "Linear", "BatchNorm1d", "ReLU", "Linear"]
    assert rows == [64] * 2 * 500  # 500 epochs, each one step on all rows


def _counting(forward, rows):
    def counted(self, x):
        rows.append(len(x))
        return forward(self, x)
    return counted


def test_the_rate_stays_where_the_code_puts_it():
    fit = released.explainer(released.ConstantRate, mlp([11, 3, 2]), "Syn4", 100, "released (inst, samp)")
    optimiser, schedule = fit._optimiser([nn.Parameter(torch.zeros(1))], fit._settings(), 20)
    assert schedule is None and optimiser.param_groups[0]["lr"] == 0.05
    assert {"prior": 0.1, "batch_size": 500, "epochs": 10, "draws": 20}.items() <= fit.get_params().items()


def test_the_kl_of_a_row_weighs_one_over_the_batch():
    """The same fit with the weight written out gives the same posterior, and with a KL of 1 another one."""
    data = make_synthetic("Syn1", 100, rows=1000)
    g = released.authors_model("Syn1", data.X_train, data.y_train, 2, 100)

    def alpha(**more):
        fit = released.explainer(released.ConstantRate, g, "Syn1", 100, "a", draws=1)
        return fit.set_params(**more).fit(data.X_train, data.y_train).explain(data.X_test).alpha

    np.testing.assert_allclose(alpha(), alpha(kl_weight=1 / 200), rtol=1e-4)
    assert np.abs(alpha() / alpha(kl_weight=1.0) - 1).max() > 0.1


def test_what_the_code_runs_without_kl():
    for dataset, kind, kl in (("Syn2", GlobalBIF, 0.0), ("MNIST", released.ConstantRate, 0.0),
                              ("Intrusion", released.ConstantRate, "1/batch")):
        fit = released.explainer(kind, mlp([4, 3, 2]), dataset, 100, "released")
        assert fit.get_params()["point_estimate"] and fit.get_params()["kl_weight"] == kl
    local = released.explainer(released.ConstantRate, mlp([4, 3, 2]), "Syn2", 100, "released")
    assert not local.get_params()["point_estimate"]


def test_the_rows_stand_beside_the_papers_figures():
    runs = pd.DataFrame([{"dataset": "Syn4", "method": m, "seed": s, "mcc": v + s, "error": ""}
                         for m, v in zip(synthetic.RELEASED[1:], (80.0, 20.0), strict=True) for s in range(3)])
    table, _ = synthetic.table1(released.beside(runs[:0], runs))
    assert table.index.tolist() == synthetic.RELEASED[1:] and table["Syn4"].tolist() == [81.0, 21.0]
    targets = scoreboard.targets().set_index(["row", "column"])["value"]
    for row in synthetic.RELEASED:
        printed = targets[row.replace("released", "BIF")]
        pd.testing.assert_series_equal(targets[row], printed)


def test_a_table_is_judged_twice_and_each_by_its_own_numbers():
    runs = pd.DataFrame({"dataset": "Adult", "method": "released", "seed": [0, 1], "error": "", "local_1": [70.0, 72.0],
                         "ours_local_1": [80.0, 84.0], "global_1": 75.0, "ours_global_1": 76.0})
    both = released.beside(runs[:0], runs, twice=True)
    assert set(released.beside(runs[:0], runs)["method"]) == {"released"}
    mean, _ = tabular.table2(both, "local")
    assert mean["Adult k=1"].to_dict() == {"released (local)": 71.0, "released, our g judges (local)": 82.0}
    handed = released.scores(runs.assign(**{f"{kind}_{k}": 1.0 for kind in tabular.KINDS for k in (3, 5)}))
    assert handed.query("column == 'Adult k=1' and row == 'released (local)'")["value"].tolist() == [70.0, 72.0]


@pytest.mark.parametrize("part", ["synthetic", "tables", "digits"])
def test_no_seed_of_the_evidence_is_reported(part):
    assert not {r["seed"] for r in released.draws_grid()} & {r["seed"] for r in released.grid(part)}


def test_steps_of_another_size_are_compared_by_importances():
    """Doubling alpha changes no importance; swapping two features changes their difference."""
    protocol = pd.DataFrame({"dataset": ["Adult", "Adult"], "noise": [0.0, 1.35], "seed": 20, "error": "",
                             "alpha": ["[3.0, 1.0]"] * 2, "alpha_released": ["[6.0, 2.0]", "[1.0, 3.0]"]})
    assert privacy_report.step_size(protocol) == [
        "Adult: steps of 20,000 rows instead of 1,000 move the importances by 0.250 on average and by at most 0.500 "
        "(total variation, 2 levels)"]
    assert privacy_report.step_size(protocol.drop(columns="alpha_released")) == []
    fair = pd.DataFrame({"seed": [20], "error": "", "alphas": ['{"44": [[3.0, 1.0], [3.0, 1.0]]}'],
                         "released": ['{"44": [1.0, 3.0]}']})
    assert "at most 0.500 (total variation, 1 classifiers)" in fairness_report.step_size(fair)[0]
    assert fairness_report.step_size(None) == [] == fairness_report.step_size(fair.drop(columns="released"))


def test_streams_are_named_by_data_set_seed_and_method():
    one, other = (released.explainer(GlobalBIF, mlp([4, 3, 2]), "Syn4", s, "a").get_params()["seed"] for s in (0, 1))
    assert one == derive("Syn4", 0, "a") != other
