"""Every erratum of notebook 07: each test fails when the code stops behaving as the erratum describes."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import integrate, special, stats
from torch import nn

from bifkit import LocalBIF, dirichlet, explainers
from bifkit.elbo import expected_log_likelihood
from bifkit.evaluation import metrics
from bifkit.gates import gate
from bifkit.presets import PRESETS
from bifkit.training import learning_copy
from data_prep.catalog import entry
from data_prep.fetch import available
from data_prep.synthetic import make_synthetic
from experiments import ablation, errata
from experiments.models import privacy
from experiments.models.classifiers import paper_g, predict_proba

X = np.random.default_rng(0).normal(size=(600, 4)).astype("float32")
Y = (X[:, 0] + X[:, 1] > 0).astype(int)
EMPTY = pd.DataFrame({"check": [], "error": []})
FITS = pd.DataFrame([{"check": "batch norm", "dataset": "Syn4", "preset": p, "seed": s, "mcc": m + s, "error": "",
                      "accuracy": 0.7, "shrunken": 0.5, "shrunken_batch": 0.7}
                     for p, m in (("paper", 5.0), ("released", 80.0), ("rank", 50.0)) for s in (0, 1)])


# the data

def test_syn3_as_printed_is_decided_by_its_sine_more_than_as_run():
    share = errata.syn3_formula().values
    rng = np.random.default_rng(7)  # the printed formula and the one that was run, written out again
    x7, x8, x9, x10 = rng.standard_normal((4, 200_000))
    printed = -100 * np.sin(2 * x7) + 2 * abs(x8) + x9 + np.exp(-x10)
    ran = -100 * np.sin(0.2 * x7) + abs(x8) + x9 + np.exp(-x10) - 2.4
    mixed = -10 * np.sin(0.2 * x7) + abs(x8) + x9 + np.exp(-x10) - 2.4
    for key, ratio, sine in (("printed", printed, np.sin(2 * x7)), ("run", ran, np.sin(0.2 * x7)),
                             ("mixed", mixed, np.sin(0.2 * x7))):
        assert share[key] == pytest.approx(((ratio < 0) != (sine > 0)).mean(), abs=0.005)
    assert share["printed"] < 0.5 * share["run"] < 0.2 * share["mixed"]


def test_labels_of_syn1_to_3_are_drawn_as_printed_and_certain_as_run():
    likely = errata.label_sampling().values
    assert [likely[n, "as_run"] for n in ("Syn1", "Syn2", "Syn3")] == [1.0] * 3
    # E max(p, 1-p) for drawn labels: the product of two normals has density K0(|z|) / pi
    expected = 2 * integrate.quad(lambda z: special.k0(z) / math.pi * special.expit(z), 0, 40)[0]
    assert likely["Syn1", "as_printed"] == pytest.approx(expected, abs=0.005)
    logits = np.random.default_rng(1).chisquare(4, 200_000) - 4
    assert likely["Syn2", "as_printed"] == pytest.approx(special.expit(abs(logits)).mean(), abs=0.005)


def test_ten_inputs_as_printed_eleven_as_run_with_the_relevant_first():
    values = errata.inputs().values
    assert values["Syn3", "as_printed"] == (10, [7, 8, 9, 10]) and values["Syn3", "as_run"] == (11, [1, 2, 3, 4])
    assert values["Syn2", "as_printed"] == (10, [3, 4, 5, 6]) and values["Syn1", "as_run"] == (11, [1, 2])


def test_oracle_k_gives_the_number_away_and_the_switch_counts():
    values = errata.oracle_k().values
    truth = make_synthetic("Syn4", 0).truth_test
    assert truth[:, 10].all() and set(truth.sum(1)) == {3, 5}
    perfect = np.where(truth, 1.0, 0.0) + np.linspace(0.01, 0, 11)
    assert metrics.mcc(perfect, truth) == 1.0
    cut = metrics.top_k_mask(perfect, 5)
    assert 100 * np.corrcoef(cut.ravel(), truth.ravel())[0, 1] == pytest.approx(values["fixed"]["Syn4"], abs=1e-6)
    assert values["fixed"]["Syn6"] == pytest.approx(100) and max(values["switch"].values()) < 70


def test_sizes_are_those_of_the_files():
    adult, credit, intrusion = errata.data_sizes(EMPTY)
    assert adult.values["rows"] == 32561 and adult.values["printed"] == 22561 and "32561" in adult.check
    assert credit.values["file"] == pytest.approx(99.83, abs=0.005)
    assert credit.values["used"] == pytest.approx(100 * 2843 / (2843 + 492))
    assert intrusion.values["u2r"] == 52 and intrusion.values["file"] > 0.75 > intrusion.values["used"]
    wrong = pd.DataFrame({"check": ["size"], "dataset": ["Adult"], "found": [22561], "error": [""]})
    with pytest.raises(AssertionError, match="22561"):
        errata.data_sizes(wrong)


@pytest.mark.skipif(not available("adult"), reason="needs the file adult.data")
def test_the_loader_gives_adults_rows():
    assert errata.run(check="size", dataset="Adult") == {
        "found": 32561, "classes": {"<=50K": 32561 - 7841, ">50K": 7841}}


# the method

@pytest.fixture(scope="module")
def g():
    """The authors' g, trained a little."""
    from experiments.models.classifiers import train

    torch.manual_seed(0)
    return train(paper_g(4, 2), X, Y, epochs=5, min_steps=1)


def test_batch_norm_undoes_the_shrinking_and_evaluation_mode_does_not(g):
    whole = errata.batch_accuracy(g, X, Y)
    assert errata.batch_accuracy(g, X / 11, Y) == pytest.approx(whole, abs=0.01)
    state = {k: v.clone() for k, v in g.state_dict().items()}
    errata.batch_accuracy(g, X / 11, Y)
    assert all(torch.equal(v, g.state_dict()[k]) for k, v in state.items()) and not g.training
    # batch statistics are the definition of BatchNorm, written out: (h - mean) / sd of the batch
    h = torch.as_tensor(X / 11) @ g[0].weight.T + g[0].bias
    h = (h - h.mean(0)) / torch.sqrt(h.var(0, unbiased=False) + 1e-5) * g[1].weight + g[1].bias
    h = h @ g[2].weight.T + g[2].bias
    h = (h - h.mean(0)) / torch.sqrt(h.var(0, unbiased=False) + 1e-5) * g[3].weight + g[3].bias
    guess = (h.relu() @ g[5].weight.T + g[5].bias).argmax(1).numpy()
    assert (guess == Y).mean() == pytest.approx(errata.batch_accuracy(g, X / 11, Y), abs=0.005)
    certain = [np.abs(predict_proba(g, x)[:, 1] - 0.5).mean() for x in (X, X / 11)]
    assert certain[1] < 0.5 * certain[0]  # in evaluation mode g can hardly tell the shrunken rows apart


def test_released_trains_batch_norm_in_a_copy_and_paper_does_not(g, monkeypatch):
    before = {k: v.clone() for k, v in g.state_dict().items()}
    copies = []
    monkeypatch.setattr(explainers, "learning_copy", lambda model: copies.append(learning_copy(model)) or copies[-1])
    for name in ("paper", "released"):
        LocalBIF(g, name, epochs=1, min_steps=5, draws=1, hidden=8).fit(X, Y)
        assert all(torch.equal(v, g.state_dict()[k]) for k, v in before.items()), f"{name} changed g"
    copy, = copies  # one, of released
    moved = sum(p.numel() for n, p in copy.named_parameters() if not torch.equal(p, before[n]))
    assert moved == 2 * 200 * 2  # scale and shift of both layers: the 800 of the erratum
    assert not torch.equal(copy[1].running_mean, before["1.running_mean"])
    assert "800" in errata.batch_norm(FITS).paper


def test_the_printed_gate_shrinks_and_ours_do_not():
    f = torch.full((11,), 1 / 11)
    assert gate(f, PRESETS["paper"].gate).tolist() == pytest.approx([1 / 11] * 11)
    assert gate(f, PRESETS["rank"].gate).tolist() == pytest.approx([1.0] * 11)
    identity, x = nn.Identity(), torch.tensor([[3.0, 0.0]])
    literal = PRESETS["paper"].changed(point_estimate=True)
    value = expected_log_likelihood(identity, x, torch.tensor([0]), torch.ones(1, 2), literal)
    assert float(value) == pytest.approx(-math.log1p(math.exp(-1.5)), abs=1e-6)  # g saw 3 / 2


def test_the_batch_norm_row_is_read_from_the_runs():
    row = errata.batch_norm(FITS)
    assert row.values["mcc"]["released", "Syn4"] == 80.5 and "one KL per row) Syn4 5.5" in row.check


def test_the_stored_runs_say_that_the_released_objective_finds_what_the_printed_one_does_not():
    from experiments.runner.paths import root

    runs = pd.read_csv(root() / "results" / "errata.csv").query("check == 'batch norm'")
    mcc = runs.groupby(["preset", "dataset"])["mcc"].mean().unstack("preset")
    assert (mcc["released"] > mcc["paper"] + 20).all()
    assert (runs["shrunken_batch"] - runs["accuracy"]).abs().max() < 0.03
    assert (runs["accuracy"] - runs["shrunken"]).mean() > 0.05


def test_the_printed_divergence_is_not_the_kl():
    rng = np.random.default_rng(3)
    alpha, beta = rng.gamma(1.0, size=(50, 6)) + 0.1, rng.gamma(1.0, size=(50, 6)) + 0.1
    kl = torch.distributions.kl_divergence(*(torch.distributions.Dirichlet(torch.as_tensor(a))
                                             for a in (alpha, beta))).numpy()
    assert np.allclose(errata.printed_divergence(alpha, beta, usual=True), -kl, atol=1e-9)
    printed = errata.printed_divergence(alpha, beta)
    assert np.abs(printed - kl).max() > 1 and (printed < 0).any()
    assert np.allclose(dirichlet.kl(alpha, beta), kl, atol=1e-9)
    # Dir(3, 1) against the uniform Dir(1, 1) by quadrature: the density of the first is Beta(3, 1)
    density = stats.beta(3, 1)
    by_hand = integrate.quad(lambda t: density.pdf(t) * density.logpdf(t), 0, 1)[0]
    assert errata.bregman_sign().values["example"][1] == pytest.approx(by_hand, abs=1e-6)
    assert errata.bregman_sign().values["minus"] < 1e-9


def test_removed_features_are_set_to_the_mean():
    values = errata.removing().values
    assert metrics.keep_features([[5.0, 7.0]], [[True, False]]).tolist() == [[5.0, 0.0]]
    # with no feature the rule sees the origin and says 1 always; with two it says 1 where x1^2 + x2^2 < 4
    assert values["none"] == pytest.approx(stats.chi2.cdf(4, 4), abs=0.005)
    # right where the two sides agree: sum of four below 4, or sum of the first two above 4
    assert values["mean_fill"] == pytest.approx(stats.chi2.cdf(4, 4) + stats.chi2.sf(4, 2), abs=0.005)
    assert values["best"] > values["mean_fill"] + 0.03


def test_settings_are_one_preset_and_the_prior_matters():
    frame = pd.DataFrame([{"change": c, "dataset": "Syn4", "seed": 0, "mcc": m, "error": ""}
                          for c, m in (("rank", 95.0), ("prior 0.01", 94.0), ("prior 1", 60.0))])
    assert errata.settings(frame).values == {"0.1": 95.0, "0.01": 94.0, "1": 60.0}
    assert ablation.CHANGES["rank"] == {} and PRESETS["rank"].for_data(11, 1.0).prior == 0.1


def test_tree_shap_and_forest_lime_never_see_g():
    assert errata.other_models().values["blind"] == ["shap_tree", "lime_forest"]


# the numbers in print

def test_table2_caption_is_swapped():
    values = errata.table2_caption().values
    assert values["equal"] == {"global": 5, "local": 0}
    local = [80.0, 81.8, 82.3, 90.5, 92.9, 94.1, 81.6, 95.8, 83.6]  # BIF's row of the upper half
    assert values["mean"]["local"] == pytest.approx(np.mean(local)) and values["mean"]["global"] < np.mean(local)


def test_no_variability_stands_beside_a_standard_deviation():
    values = errata.no_variability().values
    assert values["syn3"] == pytest.approx(0.201) and values["table2"] == pytest.approx(6.133)


def test_the_point_estimate_is_not_better_in_the_papers_own_table():
    values = errata.point_estimate().values
    assert (values["pe"], values["of"], values["wider"]) == (2, 4, 3)
    assert values["mean"] == pytest.approx([(93.6 + 81.9 + 86.0 + 85.2) / 4, (82.9 + 84.0 + 79.0 + 85.6) / 4])


# privacy

def test_the_printed_epsilons_are_those_of_adult():
    values = errata.privacy_data().values
    assert values["Adult"] == pytest.approx(values["printed"], rel=0.005)
    assert min(abs(d / p - 1) for d, p in zip(values["Diabetes"], values["printed"], strict=True)) > 0.3
    assert entry("adult").counts["rows"] == 32561


def test_without_shuffling_twenty_gaussians_compose_in_full():
    values = errata.no_shuffling().values
    assert values["sequential"] == pytest.approx([18.98, 9.66, 4.46, 2.14, 0.98], abs=0.006)
    for sigma, eps in zip(privacy.NOISE[1:], values["sequential"], strict=True):  # delta by quadrature of the densities
        z, mu = np.linspace(-10, 30, 400_001), math.sqrt(20) / sigma
        excess = stats.norm.pdf(z, mu) - math.exp(eps) * stats.norm.pdf(z)
        delta = np.maximum(excess, 0).sum() * (z[1] - z[0])
        assert delta == pytest.approx(1e-5, rel=0.02)
    assert all(s > 1.9 * p for s, p in zip(values["sequential"], values["printed"], strict=True))


def test_replacing_a_row_moves_the_clipped_sum_twice_as_far_and_opacus_adds_noise_for_one():
    values = errata.sensitivity_factor().values
    assert values["replace"] == pytest.approx(2.0) and values["remove"] == pytest.approx(1.0)
    assert values["opacus_sd"] == pytest.approx(values["sigma"], rel=0.02)
    assert values["poisson"] < 0.5 * values["printed"]


def test_a_clip_on_the_mean_loss_is_a_thousand_times_looser():
    values = errata.clip_on_mean_loss().values
    assert values["ratio"] == pytest.approx(1000, rel=1e-3) and values["clipped"] == 0.0


# the table

def test_every_erratum_has_all_its_words():
    changes = pd.DataFrame({"change": ["rank", "prior 1"], "mcc": [95.0, 60.0], "error": ""})
    found = errata.everything(FITS, changes)
    table = errata.table(found)
    assert len(table) == len({e.topic for e in found}) >= 18
    assert (table.drop(columns="other studies").map(len) > 10).drop(columns="difference").all(axis=None)
    assert not table.map(lambda text: "|" in text or "\n" in text).any(axis=None)  # it would tear a markdown table


def test_smoke_needs_no_data_and_the_grid_covers_the_study():
    assert {r["check"] for r in errata.grid("smoke")} == {"batch norm"}
    assert {r["dataset"] for r in errata.grid() if r["check"] == "size"} == {"Adult", "Credit", "Intrusion"}
    assert {r.get("preset") for r in errata.grid()} == {"paper", "released", "rank", None}
