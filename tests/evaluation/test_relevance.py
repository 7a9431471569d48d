"""Which features matter, and how many: against draws, and on rules whose answer is known."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

from bifkit import GlobalBIF, LocalBIF, Posterior
from bifkit.evaluation import FitWarning, Relevant

ALPHA = np.array([[4.0, 0.2, 1.0, 2.5, 0.6], [0.3, 0.3, 7.0, 0.9, 0.1]])
NAMES = ["age", "sex", "income", "city", "id"]
LOCAL = Posterior(ALPHA, NAMES, index=["anna", "bert"])
X = np.random.default_rng(0).normal(size=(2000, 11)).astype(np.float32)


def _linear(*weights, outputs=2):
    """A g whose last output is a weighted sum, and whose others are zero."""
    g = nn.Linear(len(weights), outputs, bias=False)
    g.weight.data.zero_()
    g.weight.data[-1] = torch.tensor(weights)
    return g


# the definition

@pytest.mark.parametrize("row", [0, 1])
def test_the_probability_is_that_of_draws(row):
    draws = np.random.default_rng(row).dirichlet(ALPHA[row], 200_000)
    found = LOCAL[row].relevant()
    above = (draws > 0.5 / 5).mean(0)
    assert np.allclose(found.probability, above, atol=0.006)  # five standard errors
    assert np.array_equal(found.mask, above > 0.7) and found.prob == 0.7 and found.index is None
    assert found.number == (above > 0.7).sum() == len(found.names)
    false = (draws[:, found.mask] <= 0.5 / 5).sum(1).mean()  # of those found, how many do not matter in a draw
    assert found.expected_false == pytest.approx(false, abs=0.02) and found.expected_false <= 0.3 * found.number


def test_names_are_in_the_order_of_the_probabilities():
    found = LOCAL[0].relevant(0.4)
    assert found.names == ["age", "city", "income"] == [NAMES[i] for i in np.argsort(-found.probability)[:3]]
    assert Relevant(0.5, np.array([0.6, 0.9, 0.6]), list("abc")).names == ["b", "a", "c"]  # ties: as they stand
    frame = found.to_frame()
    assert frame.index[:3].tolist() == found.names and frame["relevant"].tolist() == [True] * 3 + [False] * 2
    assert repr(found) == f"Relevant(prob=0.4): age, city, income; {found.expected_false:.1f} of 3 expected to be false"


def test_local_answers_are_the_rows_own():
    found = LOCAL.relevant(0.6)
    for i in (0, 1):
        row = LOCAL[i].relevant(0.6)
        assert np.array_equal(found.probability[i], row.probability) and found.names[i] == row.names
        assert found.number[i] == row.number and found.expected_false[i] == pytest.approx(row.expected_false)
    assert found.false_discovery_rate == pytest.approx(found.expected_false.sum() / found.number.sum())
    frame = found.to_frame()
    assert frame.index.tolist() == ["anna", "bert"] and np.array_equal(frame, found.mask)
    assert repr(found).startswith(f"Relevant(prob=0.6): 2 rows, on average {found.number.mean():.1f} features each")


def test_a_larger_prob_finds_fewer_and_none_is_an_answer():
    numbers = [LOCAL[0].relevant(p).number for p in (0.01, 0.5, 0.7, 0.9, 0.9999)]
    assert numbers == sorted(numbers, reverse=True) and numbers[0] == 5 and numbers[-1] == 0
    none = LOCAL[0].relevant(0.9999)
    assert none.names == [] and none.expected_false == 0 == none.false_discovery_rate and "none; 0.0 of 0" in repr(none)
    assert "x9, ...; 0.0 of 12" in repr(Posterior(np.full(12, 50.0)).relevant())


@pytest.mark.parametrize("prob", [0, 1, -0.1, 1.5, 70, float("nan")])
def test_a_prob_out_of_range(prob):
    with pytest.raises(ValueError, match="prob must lie strictly between 0 and 1; got"):
        LOCAL.relevant(prob)


def test_a_temperature_is_taken_into_account():
    narrow = LOCAL[0].calibrated(temperature=0.01).relevant().probability
    assert np.allclose(narrow, LOCAL[0].mean > 0.1, atol=0.05) and LOCAL[0].relevant().probability.max() < narrow.max()


# rules whose answer is known

def test_features_that_are_used_alike_are_all_found():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)  # flat, and rightly
        found = GlobalBIF(_linear(*[1.0] * 11)).fit(X).explain().relevant()
    assert found.number == 11 and sorted(found.names) == sorted(f"x{i}" for i in range(11))
    assert found.probability.min() > 0.9  # .955 and more on three seeds


@pytest.mark.parametrize("kind", [GlobalBIF, LocalBIF])
def test_three_of_eight_inputs_are_found_and_no_other(kind):
    rows = X[:, :8]
    posterior = kind(_linear(2.0, 0.0, 0.0, -2.0, 0.0, 0.0, 2.0, 0.0)).fit(rows).explain(rows)
    found = posterior.to_global().relevant()
    assert sorted(found.names) == ["x0", "x3", "x6"] and found.number == 3 and found.expected_false < 0.3
    truth = np.isin(np.arange(8), [0, 3, 6])
    assert (posterior.relevant().mask == truth).all(-1).mean() > 0.99  # of rows: all of them on three seeds
    assert posterior.to_global().share[~truth].sum() < 0.05


@pytest.mark.slow
def test_useless_columns_of_a_wide_table_have_no_share():
    rows = np.random.default_rng(0).normal(size=(2000, 200)).astype(np.float32)
    posterior = GlobalBIF(_linear(*[1.5] * 5, *[0.0] * 195)).fit(rows).explain()
    assert posterior.share[5:].sum() < 0.10  # 0 on three seeds; of the mean it is .15, the prior's
    assert sorted(posterior.relevant().names) == [f"x{i}" for i in range(5)]


def _regression(weight):
    """LocalBIF's posterior for y = weight a + b, of six inputs, g being that rule."""
    rows = X[:, :6]
    g = _linear(weight, 1.0, 0.0, 0.0, 0.0, 0.0, outputs=1)
    return LocalBIF(g, likelihood="regression").fit(rows).explain(rows)


def test_an_effect_a_hundredth_of_another_comes_next_in_line():
    """b is a ten thousandth of the variance of 100 a + b."""
    first = np.argsort(-_regression(100.0).mean, axis=1)[:, :2]
    assert (np.sort(first, axis=1) == [0, 1]).all(1).mean() >= 0.95  # .995 and more on three seeds


def test_a_thousandth_of_the_variance_is_found():
    """b is a 900th of the variance of 30 a + b."""
    posterior = _regression(30.0)
    assert sorted(posterior.to_global().relevant().names) == ["x0", "x1"]
    mask = posterior.relevant().mask.mean(0)
    assert mask[:2].min() > 0.95 and mask[2:].max() < 0.05  # 1 and 0 on two seeds
