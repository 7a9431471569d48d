"""The fair classifier and its measures: hand-computed cases, sklearn, and a small biased population."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import accuracy_score, confusion_matrix, roc_auc_score

from data_prep.dataset import Dataset
from experiments import fairness as study
from experiments.divergence import dirichlet_kl
from experiments.models import fairness as fair
from experiments.models.classifiers import mlp, predict_proba


def population(n=3000, seed=0, d=3):
    """Feature 0 decides the label; feature 1 too, but it is mostly the attribute in disguise; the rest is noise."""
    rng = np.random.default_rng(seed)
    z = (rng.random(n) < 0.6).astype(int)
    X = rng.normal(size=(n, d)).astype(np.float32)
    X[:, 1] += 2 * z - 1
    y = (X[:, 0] + X[:, 1] + 0.5 * rng.normal(size=n) > 0.8).astype(int)
    return X, y, {"race": z}


QUICK = {"lambdas": {"race": 100.0}, "pretrain_batch": 64, "batch_size": 128, "lr": 2e-3, "seed": 0}


@pytest.fixture(scope="module")
def runs():
    part, check = population(), population(seed=1)
    constrained = fair.adversarial_train(*part, validation=check, iterations=60, **QUICK)
    control = fair.adversarial_train(*part, validation=check, iterations=60, **QUICK | {"lambdas": {"race": 0}})
    return constrained, control, check


@pytest.mark.parametrize("positive_1, positive_0, rule, parity", [
    (4, 2, 50.0, 0.2), (2, 4, 50.0, 0.2), (3, 3, 100.0, 0.0), (5, 0, 0.0, 0.5), (10, 1, 10.0, 0.9)])
def test_p_rule_and_parity_by_hand(positive_1, positive_0, rule, parity):
    prediction = [0.7] * positive_1 + [0.3] * (10 - positive_1) + [0.7] * positive_0 + [0.3] * (10 - positive_0)
    group = [1] * 10 + [0] * 10
    assert fair.p_rule(prediction, group) == pytest.approx(rule)
    assert fair.demographic_parity(prediction, group) == pytest.approx(parity)


def test_p_rule_compares_shares_not_counts_and_one_half_is_negative():
    assert fair.p_rule([0.9, 0.5, 0.9, 0.1, 0.1, 0.1], [1, 1, 0, 0, 0, 0]) == pytest.approx(50.0)
    assert np.isnan(fair.p_rule([0.1, 0.2], [0, 1]))  # no positives at all: nothing to compare


def test_equalised_odds_by_hand_and_by_confusion_matrices():
    # group 1: 3 of 4 positives found, 1 of 2 negatives called; group 0: 1 of 2 and 1 of 4
    y = [1, 1, 1, 1, 0, 0, 1, 1, 0, 0, 0, 0]
    p = [1, 1, 1, 0, 1, 0, 1, 0, 1, 0, 0, 0]
    assert fair.equalised_odds(p, y, [1] * 6 + [0] * 6) == pytest.approx(0.25)
    rng = np.random.default_rng(0)
    p, y, z = rng.random(500), rng.integers(0, 2, 500), rng.integers(0, 2, 500)
    rates = []
    for g in (0, 1):
        (tn, fp), (fn, tp) = confusion_matrix(y[z == g], p[z == g] > 0.5)
        rates.append(np.array([tp / (tp + fn), fp / (tn + fp)]))
    assert fair.equalised_odds(p, y, z) == pytest.approx(np.abs(rates[0] - rates[1]).max())


def test_report_against_sklearn():
    torch.manual_seed(0)
    model, (X, y, Z) = mlp([3, 8, 1]), population(500)
    p = predict_proba(model, X)[:, 1]
    out = fair.report(model, X, y, Z)
    assert out["auc"] == pytest.approx(roc_auc_score(y, p))
    assert out["accuracy"] == pytest.approx(accuracy_score(y, p > 0.5))
    assert out["p_rule_race"] == fair.p_rule(p, Z["race"])


def test_carried_gap_finds_the_proxy():
    X, _, Z = population()
    model = torch.nn.Linear(3, 1)
    model.load_state_dict({"weight": torch.tensor([[1.0, 1.0, 0.0]]), "bias": torch.tensor([-0.8])})
    a, b = (((X[:, :2].sum(1) > 0.8)[Z["race"] == g]).mean() for g in (1, 0))
    carried = fair.carried_gap(model, X, Z["race"])
    assert carried[1] == pytest.approx(a - b, abs=0.05)  # without feature 1 no gap is left
    assert abs(carried[0]) < 0.1 * carried[1] and carried[2] == 0


def test_adversarial_training_raises_the_p_rule_and_the_control_does_not(runs):
    constrained, control, check = runs
    start, end = constrained.history.iloc[0], constrained.history.iloc[-10:].mean()
    assert start["p_rule_race"] < 40 and end["p_rule_race"] > start["p_rule_race"] + 30
    assert end["auc"] < start["auc"] - 0.02  # the price
    assert abs(control.history["p_rule_race"].iloc[-10:].mean() - start["p_rule_race"]) < 8
    best = constrained.model(constrained.choose(80))
    assert abs(fair.carried_gap(best, check[0], check[2]["race"])[1]) < \
        fair.carried_gap(constrained.model(0), check[0], check[2]["race"])[1]


def test_control_shares_the_pre_trained_state(runs):
    constrained, control, _ = runs
    assert all(torch.equal(v, control.snapshots[0][k]) for k, v in constrained.snapshots[0].items())
    assert len(constrained.snapshots) == len(constrained.history) == 61


def test_deterministic_for_a_seed_whatever_ran_before():
    part = population(300)
    first = fair.adversarial_train(*part, iterations=3, **QUICK)
    torch.rand(7)
    again = fair.adversarial_train(*part, iterations=3, **QUICK)
    other = fair.adversarial_train(*part, iterations=3, **QUICK | {"seed": 1})
    same = [[torch.equal(v, run.snapshots[3][k]) for k, v in first.snapshots[3].items()] for run in (again, other)]
    assert all(same[0]) and not any(same[1])
    a, b = (fair.unconstrained(*part[:2], epochs=1, seed=s)[0].weight for s in (0, 0))
    assert torch.equal(a, b)


def test_snapshots_are_measured_as_the_models_they_give_back(runs):
    constrained, _, (X, y, Z) = runs
    out = fair.report(constrained.model(30), X, y, Z)
    assert out["p_rule_race"] == constrained.history["p_rule_race"][30] and out["auc"] == constrained.history["auc"][30]
    assert not constrained.model(30).training


def test_adversary_weighs_both_groups_alike_and_leaves_the_classifier_alone():
    X, _, Z = population(500)
    column = torch.tensor(Z["race"], dtype=torch.float32)[:, None]
    adversary = fair._Adversary(torch.tensor(X), column, 8, 1e-2)
    assert adversary.weight[column == 1].sum() == pytest.approx(float(adversary.weight[column == 0].sum()), rel=1e-4)
    f = mlp([3, 8, 1])
    before = [p.clone() for p in f.parameters()]
    losses = [adversary.loss(f(adversary.X).sigmoid(), slice(None)).item()]
    for _ in range(5):
        adversary.epoch(f, 50)
    losses.append(adversary.loss(f(adversary.X).sigmoid(), slice(None)).item())
    assert losses[1] < losses[0] and all(torch.equal(a, b) for a, b in zip(before, f.parameters(), strict=True))


def _path(values):
    return fair.FairRun([{}] * len(values), pd.DataFrame({"p_rule_race": values}), (2, 1), 0.0)


def test_choice_of_snapshots():
    path = _path([40.0, 50, 60, 70, 56.9, 80, 99])
    assert path.choose(57, window=1) == 2  # not the later return to 56.9
    assert path.choose(44, window=1) == 0 and path.choose(30, window=1) == 0
    assert path.choose(100, window=1) == 6  # never reached: the nearest
    assert _path([40.0, 90, 40, 50, 60, 70, 80]).choose(80, window=5) == 6  # one spike is not a level reached
    assert _path([np.nan, 50.0, 60.0]).choose(60, window=1) == 2
    with pytest.raises(ValueError, match="no snapshot predicts a positive"):
        _path([np.nan, np.nan]).choose(50)


@pytest.mark.parametrize("call, message", [
    (lambda: fair.p_rule([0.1, 0.2], [0, 0]), "both 0 and 1"),
    (lambda: fair.p_rule([0.1], [0, 1]), "one length"),
    (lambda: fair.adversarial_train(*population(50), lambdas={"sex": 1.0}), "one lambda for each"),
    (lambda: fair.adversarial_train(population(50)[0], [2] * 50, {"race": [0, 1] * 25}, lambdas={"race": 1.0}),
     "labels must be 0 and 1"),
    (lambda: fair.adversarial_train(population(50)[0], [1] * 9, {"race": [0, 1] * 25}, lambdas={"race": 1.0}),
     "has 9 rows"),
    (lambda: fair.FairRun([{}], None, (2, 1), 0.0).choose(50), "call run.on"),
])
def test_errors_say_what_to_do(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_dealing_balances_every_stratum_and_is_fair_to_rows():
    keys = [np.repeat([0, 1], [30, 50]), np.tile([0, 1], 40)]
    counts = np.zeros(80)
    for seed in range(300):
        part = study.deal(keys, ["train"] * 2 + ["A", "B"], np.random.default_rng(seed))
        assert (part == "train").sum() == 40 and (part == "A").sum() == 20
        for a in (0, 1):
            assert abs((part[keys[0] == a] == "A").sum() - (keys[0] == a).sum() / 4) <= 1
        counts += part == "A"
    assert abs(counts / 300 - 0.25).max() < 5 * np.sqrt(0.25 * 0.75 / 300)


@pytest.fixture(scope="module")
def frame():
    """The study at toy size on made-up people, with the loader's shape."""
    X, y, Z = population(900, d=12)
    Z["sex"] = np.roll(Z["race"], 1)
    X[:, 5], y = np.arange(900) % 7, (X[:, 0] + X[:, 1] > 0).astype(int)
    cut = {"train": slice(0, 500), "val": slice(500, 700), "test": slice(700, 900)}
    extra = {f"{n}_{p}": Z[n][c] for n in Z for p, c in cut.items()} | {"X_val": X[cut["val"]], "y_val": y[cut["val"]]}
    data = Dataset("toy", X[:500], y[:500], X[700:], y[700:], study.NAMES, ["no", "yes"], extra=extra)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "load_adult_fair", lambda seed: data)
        rows = []
        for row in study.grid(seeds=(20, 21)):
            out = study.run(**row | {"rows": 899, "iterations": 8})
            rows.append(row | {"error": ""} |
                        {k: json.dumps(v) if isinstance(v, list | dict) else v for k, v in out.items()})
    return pd.DataFrame(rows)


def test_study_tables(frame):
    assert study.levels(frame).loc["96", ("auc", "mean")] > 0.5
    assert "±" in study.shown(frame).loc["baseline", "p_rule_sex"]
    stored = {s: json.loads(v) for s, v in frame[frame.classifier == "fair"].set_index("seed")["rank"].items()}
    baseline = [json.loads(v)["baseline"] for v in frame[frame.classifier == "baseline"]["rank"]]
    own, separate = (study.curve(frame, "rank", r).set_index("level") for r in ("pre-trained", "baseline"))
    fair = np.mean([stored[s][f"{f}:82"] for s in (20, 21) for f in (0, 1)], axis=0)  # seeds and folds averaged
    reference, control = (np.mean([stored[s][k] for s in (20, 21)], axis=0) for k in ("pre-trained", "control:57"))
    assert own.loc["82", "kl"] == pytest.approx(dirichlet_kl(reference, fair))
    assert separate.loc["82", "kl"] == pytest.approx(dirichlet_kl(np.mean(baseline, axis=0), fair))
    assert separate.loc["82", "kl_reverse"] == pytest.approx(dirichlet_kl(fair, np.mean(baseline, axis=0)))
    assert own.loc["57", "kl_control"] == pytest.approx(dirichlet_kl(reference, control))
    assert {len(study.curve(frame, e)) for e in study.EXPLAINERS} == {4}
    assert study.importances(frame).groupby("state")["mean"].sum().to_numpy() == pytest.approx(1.0)
    assert len(study.scores(frame)) == 8 and set(study.scores(frame)["column"]) == {"44", "57", "82", "96"}
    assert set(study.selections(frame)["state"]) == {"baseline", "pre-trained", "reseeded", *study.LEVEL_NAMES}
    assert study.proxies(frame).shape == (12, 8)


def test_states_are_chosen_on_one_part_and_reported_on_the_other(frame):
    measures = json.loads(frame.loc[0, "measures"])
    assert [len(measures[s]) for s in ("pre-trained", "0:57", "1:57", "control:57")] == [2, 1, 1, 2]
    assert measures["pre-trained"][0] != measures["pre-trained"][1]
    same = [level for level in study.LEVELS if json.loads(frame.loc[0, "chosen"])[f"1:{level}"] == 0]
    assert all(measures[f"1:{level}"] == measures["pre-trained"][1:] for level in same)


def test_study_that_was_not_run_gives_empty_tables(frame):
    lost = frame[["seed", "classifier"]].assign(error="not run: Adult is absent")
    tables = [study.levels, study.shown, study.importances, study.selections, study.proxies, study.scores]
    assert all(table(lost).empty for table in tables)
    assert all(study.curve(lost, e, r).empty for e in study.EXPLAINERS for r in study.REFERENCES)
