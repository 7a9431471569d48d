"""EVAL-X, fixed sets, mask-only accuracy and encoding on rows whose rule is known."""

import itertools

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss, roc_auc_score

import bifkit
from bifkit import metrics, storage
from bifkit.evaluation import Evaluator, encoding, evalx, fixed_set, mask_only
from experiments import planted

QUICK = {"epochs": 1, "min_steps": 400, "hidden": 48, "lr": 1e-2, "progress": False}


def made(n, seed):
    """Five columns, of which 0 and 1 give the label, 0 more so."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5)).astype(np.float32)
    return X, (2 * X[:, 0] + X[:, 1] > 0).astype(int)


X, Y = made(3000, 0)
X_TEST, Y_TEST = made(2000, 1)
ONE = np.eye(5, dtype=bool)
BEST = 1 - np.arctan(0.5) / np.pi  # share of rows where sign(x0) is the sign of 2 x0 + x1


@pytest.fixture(scope="module")
def judge():
    return Evaluator(k=2, seed=100, **QUICK).fit(X, Y)


def test_it_reads_what_the_kept_values_tell_and_no_more(judge):
    assert judge.score(X_TEST, Y_TEST, ONE[0])["accuracy"] == pytest.approx(BEST, abs=0.03)
    assert judge.score(X_TEST, Y_TEST, ONE[0] | ONE[1])["accuracy"] > 0.96
    assert judge.score(X_TEST, Y_TEST, ONE[4])["accuracy"] == pytest.approx(0.5, abs=0.06)


def test_a_place_that_names_the_label_does_not_help(judge):
    """Where an honest judge must guess, the mask alone tells everything: what EVAL-X is for."""
    places = ONE[3 + Y_TEST]
    found = judge.score(X_TEST, Y_TEST, places)
    assert abs(found["accuracy"] - 0.5) < 0.15 and mask_only(places, Y_TEST) == 1.0
    told = judge.encoding(X_TEST, Y_TEST, places)
    assert told.encodes and told.gain > 0.4 and "tell more" in str(told)  # of log 2 = .69


def test_scores_are_those_of_scikit_learn(judge):
    masks = np.random.default_rng(0).random((len(X_TEST), 5)) < 0.4
    p, found = judge.predict_proba(X_TEST, masks), judge.score(X_TEST, Y_TEST, masks)
    assert found["auc"] == pytest.approx(roc_auc_score(Y_TEST, p[:, 1]))
    assert found["log_likelihood"] == pytest.approx(-log_loss(Y_TEST, p), rel=1e-6)
    assert found["accuracy"] == (p.argmax(1) == Y_TEST).mean()


def test_what_is_not_kept_is_not_seen(judge):
    other = X_TEST.copy()
    other[:, 1:] = 7.0
    assert np.array_equal(judge.predict_proba(other, ONE[0]), judge.predict_proba(X_TEST, ONE[0]))


def test_the_fixed_set_is_that_of_brute_force(judge):
    best = max(itertools.combinations(range(5), 2),
               key=lambda pair: judge.score(X, Y, ONE[list(pair)].any(0))["log_likelihood"])
    assert np.flatnonzero(judge.fixed_set(X, Y, 2)).tolist() == list(best) == [0, 1]
    assert judge.search(X, Y, 2) == [0, 1]
    assert fixed_set(X, Y, 1, evaluator=judge).tolist() == ONE[0].tolist()


@pytest.mark.parametrize("masks, sees_mask", [("half", True), ("sizes", False)])
def test_the_other_variants_read_the_same(masks, sees_mask):
    judge = Evaluator(masks, sees_mask=sees_mask, seed=100, **QUICK).fit(X, Y)
    assert judge.score(X_TEST, Y_TEST, ONE[0])["accuracy"] == pytest.approx(BEST, abs=0.03)
    assert (judge.network_.n_groups == 5) is sees_mask


def test_honest_selections_do_not_encode(judge):
    """One set for all, and sets drawn blindly: nothing of the row went into the choice."""
    blind = np.random.default_rng(1).random((len(X_TEST), 5)).argsort(1) < 2
    for masks in (np.broadcast_to(ONE[0], blind.shape), blind):
        told = judge.encoding(X_TEST, Y_TEST, masks)
        assert not told.encodes and abs(told.gain) < 0.02


@pytest.mark.slow
@pytest.mark.parametrize("kind", planted.ENCODERS)
def test_planted_encoders_are_found(kind):
    found = planted.run(kind=kind, seed=100)
    assert found["encodes"] and found["p"] < 0.01


def test_groups_are_kept_together():
    groups = np.array([0, 0, 1, 1, 2])
    judge = Evaluator(groups=groups, seed=100, **QUICK | {"min_steps": 100}).fit(X, Y)
    masks = np.random.default_rng(0).random((len(X_TEST), 3)) < 0.5
    by_group, by_feature = judge.predict_proba(X_TEST, masks), judge.predict_proba(X_TEST, masks[:, groups])
    assert np.allclose(by_group, by_feature)
    assert judge.fixed_set(X, Y, 1).tolist() == [True, False, False]


def test_a_seed_gives_an_evaluator_and_a_file_keeps_it(judge, tmp_path):
    again, other = (Evaluator(k=2, seed=s, **QUICK | {"min_steps": 20}).fit(X, Y).predict_proba(X_TEST, ONE[0])
                    for s in (100, 101))
    assert np.array_equal(again, Evaluator(k=2, seed=100, **QUICK | {"min_steps": 20}).fit(X, Y)
                          .predict_proba(X_TEST, ONE[0])) and not np.allclose(again, other)
    judge.save(tmp_path / "judge.bif")
    loaded = Evaluator.load(tmp_path / "judge.bif")
    assert np.array_equal(loaded.predict_proba(X_TEST, ONE[1]), judge.predict_proba(X_TEST, ONE[1]))
    assert loaded.k == 2 and loaded.masks == "sizes"
    with pytest.raises(storage.BadFile, match="holds a Evaluator"):
        bifkit.Posterior.load(tmp_path / "judge.bif")
    arrays, meta = storage.read(tmp_path / "judge.bif", "Evaluator")
    for wrong in ({"groups": arrays["groups"] + 1}, {"scale": arrays["scale"] * 0},
                  {"body.0.weight": arrays["body.0.weight"][:, :3]}):
        storage.write(tmp_path / "bad.bif", "Evaluator", arrays | wrong, meta)
        with pytest.raises(storage.BadFile, match="lacks something an Evaluator needs"):
            Evaluator.load(tmp_path / "bad.bif")


def test_without_training_rows_either_half_judges_the_other():
    found = evalx(X[:1500], Y[:1500], ONE[0], k=2, **QUICK)
    assert found["accuracy"] == pytest.approx(BEST, abs=0.05)
    assert metrics.evalx is evalx is bifkit.evaluation.evalx and bifkit.metrics.mask_only is mask_only


def test_several_classes(judge):
    y = np.digitize(X[:, 0], [-0.5, 0.5])
    three = Evaluator(k=1, seed=100, **QUICK).fit(X, y)
    y_test = np.digitize(X_TEST[:, 0], [-0.5, 0.5])
    found = three.score(X_TEST, y_test, ONE[0])
    p = three.predict_proba(X_TEST, ONE[0])
    assert found["accuracy"] > 0.9 and p.shape == (len(X_TEST), 3)
    assert found["auc"] == pytest.approx(roc_auc_score(y_test, p, multi_class="ovr"))
    assert three.encoding(X_TEST, y_test, ONE[1 + y_test]).encodes


def test_bars_and_progress(capsys):
    Evaluator(seed=0, **QUICK | {"min_steps": 5, "progress": True}).fit(X[:100], Y[:100])
    assert "EVAL-X (sizes)" in capsys.readouterr().err


def test_mask_only_sees_a_leak_and_only_a_leak():
    rng = np.random.default_rng(0)
    y, noise = rng.integers(0, 2, 1000), rng.random((1000, 8)) < 0.3
    assert abs(mask_only(noise, y) - 0.5) < 0.07
    noise[:, 3] = y == 1
    assert mask_only(noise, y) == mask_only(noise, y, train=np.arange(1000) < 500) == 1.0


@pytest.mark.parametrize("wrong, message", [
    (lambda j: Evaluator("all"), "masks must be one of sizes, half"),
    (lambda j: Evaluator(min_steps=0), "min_steps must be a whole number"),
    (lambda j: Evaluator(k=9).fit(X, Y), "k must be a whole number from 1 to the 5"),
    (lambda j: Evaluator(fill="grey", epochs=1, min_steps=1).fit(X, Y), "fill must be"),
    (lambda j: Evaluator(epochs=1, min_steps=1).fit(X, Y[:5]), "one class number per row"),
    (lambda j: Evaluator(epochs=1, min_steps=1).fit(X, Y + 0.5), "class numbers"),
    (lambda j: Evaluator(epochs=1, min_steps=1).fit(np.full((9, 2), np.nan), np.zeros(9)), "NaN"),
    (lambda j: Evaluator().score(X, Y, ONE[0]), "not fitted"),
    (lambda j: Evaluator().save("x"), "not fitted"),
    (lambda j: Evaluator().search(X, Y, 1), "not fitted"),
    (lambda j: j.score(X_TEST, Y_TEST, ONE[:, :3]), "masks have shape"),
    (lambda j: j.score(X_TEST, Y_TEST, np.full(5, 0.5)), "True or False"),
    (lambda j: j.score(X_TEST, Y_TEST + 1, ONE[0]), "knows 2"),
    (lambda j: j.fixed_set(X, Y, 6), "k must be"),
    (lambda j: j.encoding(X_TEST, Y_TEST * 0, ONE[0]), "two classes"),
    (lambda j: encoding(X, Y, ONE[0]), "X_train and y_train"),
    (lambda j: evalx(X, Y, ONE[0], evaluator=j, k=3), "leave"),
    (lambda j: evalx(X[:3], Y[:3], ONE[0]), "four rows"),
    (lambda j: mask_only(ONE, Y), "one row per label"),
    (lambda j: mask_only(ONE, np.arange(5), train=np.ones(5)), "some, not all"),
])
def test_bad_input_is_named(judge, wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong(judge)


def test_torch_state_is_left_alone():
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    Evaluator(**QUICK | {"min_steps": 3}).fit(X[:50], Y[:50])
    assert torch.equal(before, torch.random.get_rng_state())
