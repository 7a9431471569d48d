"""Closed forms against scipy, torch.distributions and Monte Carlo; the sampler's gradients against finite differences.

Monte Carlo comparisons are z-scores: 200 random distributions are drawn from with numpy's own sampler, and the closed
form must lie where the standard error of the sample says, in the worst case and on average.
"""

import tracemalloc

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch.distributions import Dirichlet, kl_divergence

from bifkit import dirichlet as d

CASES = 200
RNG = np.random.default_rng(2024)
ALPHAS = [np.exp(RNG.uniform(np.log(0.2), np.log(20), RNG.integers(2, 9))) for _ in range(CASES)]
BETAS = [np.exp(RNG.uniform(np.log(0.2), np.log(20), len(a))) for a in ALPHAS]
DRAWS = 2000
SAMPLES = [RNG.dirichlet(a, DRAWS) for a in ALPHAS]


def _z(sample, expected):
    """z-scores of the closed form ``expected`` against the mean of ``sample`` (draws first)."""
    error = sample.std(0, ddof=1) / np.sqrt(len(sample))
    rare = 1 / len(sample) if ((sample == 0) | (sample == 1)).all() else 1e-12  # an event seen never or always
    return np.ravel((sample.mean(0) - expected) / np.maximum(error, rare))


def _agree(scores):
    scores = np.concatenate([np.ravel(s) for s in scores])
    assert len(scores) >= CASES and np.isfinite(scores).all()
    assert np.abs(scores).max() < 5.5 and np.sqrt((scores**2).mean()) < 1.25


# closed forms, exactly

@pytest.mark.parametrize("alpha", [ALPHAS[0], np.stack([ALPHAS[1], BETAS[1]])])
def test_one_row_and_many_rows_agree(alpha):
    rows = np.atleast_2d(alpha)
    for function in (d.mean, d.sd, d.entropy, lambda a: d.interval(a)[0], lambda a: d.probability_greater(a, 0, 1)):
        assert np.allclose(np.stack([function(r) for r in rows]), np.atleast_1d(function(alpha)).reshape(
            np.stack([function(r) for r in rows]).shape))


def test_mean_sd_entropy_are_scipys_and_torchs():
    for a in ALPHAS:
        t = Dirichlet(torch.tensor(a))
        assert np.allclose(d.mean(a), t.mean) and np.allclose(d.mean(a), stats.dirichlet.mean(a))
        assert np.allclose(d.sd(a) ** 2, t.variance) and np.allclose(d.sd(a) ** 2, stats.dirichlet.var(a))
        assert np.isclose(d.entropy(a), t.entropy()) and np.isclose(d.entropy(a), stats.dirichlet.entropy(a))


def test_kl_is_torchs_in_both_directions():
    for a, b in zip(ALPHAS, BETAS, strict=True):
        ta, tb = Dirichlet(torch.tensor(a)), Dirichlet(torch.tensor(b))
        assert np.isclose(d.kl(a, b), kl_divergence(ta, tb), rtol=1e-9)
        assert np.isclose(d.kl(b, a), kl_divergence(tb, ta), rtol=1e-9)


def test_kl_torch_is_torchs_with_its_gradient():
    for a in ALPHAS:
        for prior in (0.1, 1.0):
            ours, theirs = (torch.tensor(a, requires_grad=True) for _ in range(2))
            value = d.kl_to_prior(ours, prior)
            reference = kl_divergence(Dirichlet(theirs), Dirichlet(torch.full((len(a),), prior, dtype=torch.float64)))
            assert torch.isclose(value, reference) and np.isclose(value.item(), d.kl(a, np.full(len(a), prior)))
            value.backward()
            reference.backward()
            assert torch.allclose(ours.grad, theirs.grad)


def test_intervals_hold_their_probability():
    for a, prob in zip(ALPHAS, np.linspace(0.5, 0.99, CASES), strict=True):
        lower, upper = d.interval(a, prob)
        rest = a.sum() - a
        assert np.allclose(special.betainc(a, rest, lower), (1 - prob) / 2)
        assert np.allclose(special.betainc(a, rest, upper), (1 + prob) / 2)


def test_order_probability_is_the_beta_integral():
    for a in ALPHAS:
        assert np.isclose(d.probability_greater(a, 0, 1), 1 - special.betainc(a[0], a[1], 0.5))
        assert np.isclose(d.probability_greater(a, 0, 1) + d.probability_greater(a, 1, 0), 1)


# closed forms, by simulation

def test_moments_by_monte_carlo():
    _agree(_z(s, d.mean(a)) for a, s in zip(ALPHAS, SAMPLES, strict=True))
    _agree(_z((s - d.mean(a)) ** 2, d.sd(a) ** 2) for a, s in zip(ALPHAS, SAMPLES, strict=True))


def test_intervals_by_monte_carlo():
    def inside(a, s):
        lower, upper = d.interval(a, 0.8)
        return ((s >= lower) & (s <= upper)).astype(float)

    _agree(_z(inside(a, s), 0.8) for a, s in zip(ALPHAS, SAMPLES, strict=True))


def _log_pdf(a, s):
    log_s = np.log(np.maximum(s, 1e-300))
    return ((a - 1) * log_s).sum(1) + special.gammaln(a.sum()) - special.gammaln(a).sum()


def test_entropy_and_kl_by_monte_carlo():
    _agree(_z(-_log_pdf(a, s), d.entropy(a)) for a, s in zip(ALPHAS, SAMPLES, strict=True))
    _agree(_z(_log_pdf(a, s) - _log_pdf(b, s), d.kl(a, b)) for a, b, s in zip(ALPHAS, BETAS, SAMPLES, strict=True))


def test_order_and_top_by_monte_carlo():
    _agree(_z((s[:, 0] > s[:, 1]).astype(float), d.probability_greater(a, 0, 1))
           for a, s in zip(ALPHAS, SAMPLES, strict=True))
    for a, s in zip(ALPHAS, SAMPLES, strict=True):
        k = len(a) // 2
        brute = (np.argsort(np.argsort(-s, axis=1), axis=1) < k).mean(0)
        ours = d.probability_top(a, k, draws=DRAWS)
        assert np.isclose(ours.sum(), k) and np.abs(ours - brute).max() < 5.5 * np.sqrt(0.5 / DRAWS)
    assert np.isclose(d.probability_top([2.0, 1.0])[0], d.probability_greater([2.0, 1.0], 0, 1), atol=0.02)
    assert np.array_equal(d.probability_top([2.0, 1.0, 3.0], 3), [1, 1, 1])


def test_many_rows_are_answered_as_well_as_few():
    """Every row has its own 4000 draws, however many there are: exact for two features, brute force for more."""
    rng = np.random.default_rng(6)
    alpha = rng.gamma(1.0, size=(150, 2)) + 0.05
    error = d.probability_top(alpha)[:, 0] - stats.beta.sf(0.5, *alpha.T)
    assert np.sqrt((error**2).mean()) < 0.009 and abs(error.mean()) < 0.003  # 0.5 / sqrt(4000) = .008, independent
    alpha = rng.gamma(1.0, size=(6, 5)) + 0.05
    brute = [(np.argsort(np.argsort(-rng.dirichlet(a, 20_000), 1), 1) < 2).mean(0) for a in alpha]
    rows = d.probability_top(np.tile(alpha, (10, 1)), 2)  # 60 rows
    assert np.allclose(rows[:6], brute, atol=0.05) and np.array_equal(rows[6:12], rows[:6])  # a row's answer is its own
    assert d.probability_top(alpha[:0]).shape == (0, 5)


def test_memory_for_the_top_is_bounded():
    alpha = np.ones(1000)
    tracemalloc.start()
    p = d.probability_top(alpha, 500, draws=3000)  # three million cells
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6 and np.isclose(p.sum(), 500) and np.abs(p - 0.5).max() < 5 * 0.5 / 3000**0.5


def test_group_sums_by_monte_carlo():
    rng = np.random.default_rng(5)
    means, spreads = [], []
    for a, s in zip(ALPHAS, SAMPLES, strict=True):
        groups = rng.permutation(np.arange(len(a)) % 2)
        summed, alpha = np.stack([s[:, groups == g].sum(1) for g in (0, 1)], 1), d.group_sum(a, groups)
        means.append(_z(summed, d.mean(alpha))[:1])
        spreads.append(_z((summed - d.mean(alpha)) ** 2, d.sd(alpha) ** 2)[:1])
    _agree(means)
    _agree(spreads)


# the samplers

@pytest.mark.parametrize("scale", [1e-4, 1e-3, 1e-2, 1.0, 1e4])
def test_log_draws_have_beta_marginals(scale):
    alpha = scale * np.array([1.0, 2.0, 3.0])
    log_f = d.log_draws(alpha, 4000, np.random.default_rng(0))
    assert np.isfinite(log_f).all() and np.allclose(special.logsumexp(log_f, axis=1), 0)
    for i in range(3):
        below = np.mean(log_f[:, i] < np.log(0.5))
        assert abs(below - special.betainc(alpha[i], alpha.sum() - alpha[i], 0.5)) < 5 * np.sqrt(0.25 / 4000)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_nan_and_no_flat_draws_from_1e_3_to_1e4(dtype):
    torch.manual_seed(0)
    grid = np.geomspace(1e-3, 1e4, 15)
    mixed = [np.random.default_rng(i).choice(grid, 11) for i in range(20)]
    rows = [np.full(11, a) for a in grid] + mixed
    for row in rows:
        alpha = torch.tensor(np.tile(row, (2000, 1)), dtype=dtype, requires_grad=True)
        f = d.rsample(alpha)[0]
        (f**2).sum().backward()
        assert torch.isfinite(f).all() and torch.isfinite(alpha.grad).all()
        assert torch.allclose(f.sum(1), torch.ones(2000, dtype=dtype), atol=1e-4) and (f >= 0).all()
        assert row.max() > 0.1 or (f.amax(1) > 0.15).all()  # 1/11 would be flat
        spread = f.detach().double().numpy().std(0) / d.sd(row)  # a flat draw (1/D everywhere) has no spread at all
        assert 0.7 < np.median(spread) < 1.4
    for row in rows:
        assert all(np.isfinite(v).all() for v in (d.mean(row), d.sd(row), *d.interval(row), d.entropy(row),
                                                  d.probability_greater(row, 0, 1), d.kl(row, rows[0])))
        assert torch.isfinite(d.kl_to_prior(torch.tensor(row, dtype=dtype), 0.1))


def test_draws_at_the_floor_are_nearly_one_hot():
    torch.manual_seed(0)
    f = d.rsample(torch.full((5000, 11), d.FLOOR))[0]
    assert (f.amax(1) > 0.99).float().mean() > 0.9
    assert np.allclose(f.mean(0), 1 / 11, atol=0.03)


def test_sampler_follows_the_distribution():
    torch.manual_seed(0)
    _agree(_z(d.rsample(torch.tensor(a), 1000).numpy(), d.mean(a)) for a in ALPHAS)


def test_draws_and_gradients_are_those_of_torch_distributions():
    weights, found = torch.randn(3, 200, 5, generator=torch.Generator().manual_seed(0)), []
    for draw in (lambda a: d.rsample(a, 3), lambda a: Dirichlet(a).rsample((3,))):
        torch.manual_seed(1)
        alpha = torch.full((200, 5), 0.1).add(torch.arange(5.0)).requires_grad_(True)
        f = draw(alpha)
        (f * weights).sum().backward()
        found.append((f.detach(), alpha.grad))
    assert torch.equal(found[0][0], found[1][0]) and torch.allclose(found[0][1], found[1][1], atol=1e-5)


EXPECTATIONS = {
    "f": (lambda f: f, lambda a: a / a.sum()),
    "f^2": (lambda f: f**2, lambda a: a * (a + 1) / (a.sum() * (a.sum() + 1))),
    "f log f": (lambda f: torch.special.xlogy(f, f),
                lambda a: a / a.sum() * (special.digamma(a + 1) - special.digamma(a.sum() + 1))),
}


@pytest.mark.parametrize("name", EXPECTATIONS)
def test_gradient_of_expectations_is_that_of_the_closed_form(name):
    """d/dalpha_k E[h(f_0)]: the mean gradient over draws against central differences of the closed form."""
    function, closed = EXPECTATIONS[name]
    torch.manual_seed(1)
    scores = []
    for a in ALPHAS:
        alpha = torch.tensor(np.tile(a, (1000, 1)), requires_grad=True)
        function(d.rsample(alpha)[0][:, 0]).sum().backward()
        step = 1e-5 * a
        difference = [(closed(a + np.eye(len(a))[k] * step[k])[0] - closed(a - np.eye(len(a))[k] * step[k])[0])
                      / (2 * step[k]) for k in range(len(a))]
        scores.append(_z(alpha.grad.numpy(), np.array(difference)))
    _agree(scores)


# what is refused

@pytest.mark.parametrize("alpha", [[1, -1], [1, 0], [1, np.nan], [1, np.inf], [1.0], 1.0, np.ones((2, 2, 2))])
def test_bad_alpha_is_refused(alpha):
    with pytest.raises(ValueError, match="alpha must be"):
        d.mean(alpha)


def test_other_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="2 and 3 features"):
        d.kl([1.0, 1.0], [1.0, 1.0, 1.0])
    with pytest.raises(ValueError, match="3 and 4 rows"):
        d.kl(np.ones((3, 2)), np.ones((4, 2)))
    assert d.kl(np.ones((3, 2)), np.ones((1, 2))).tolist() == d.kl(np.ones((3, 2)), np.ones(2)).tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="prob must lie"):
        d.interval([1.0, 1.0], 1.0)
    for k in (0, 3):
        with pytest.raises(ValueError, match="k must lie"):
            d.probability_top([1.0, 1.0], k)
    with pytest.raises(ValueError, match="one number per feature"):
        d.group_sum([1.0, 1.0], [0])
    for groups in ([0, 2], [-1, 0], [1, 1]):
        with pytest.raises(ValueError, match="numbered 0..G-1"):
            d.group_sum([1.0, 1.0], groups)


# temperatures


def test_one_temperature_is_the_dirichlet_of_alpha_over_it():
    a, t = np.array([3.0, 0.4, 1.5]), 2.5
    assert np.allclose(d.sd(a, t), d.sd(a / t)) and np.allclose(d.interval(a, 0.8, t), d.interval(a / t, 0.8))
    assert np.isclose(d.probability_greater(a, 0, 2, t), d.probability_greater(a / t, 0, 2))
    assert np.allclose(d.probability_above(a, 0.2, t), d.probability_above(a / t, 0.2))
    assert np.allclose(d.probability_top(a, 1, temperature=t), d.probability_top(a / t, 1), atol=0.015)
    many = np.full(3, t)  # the same for each feature: the same
    assert np.allclose(d.sd(a, many), d.sd(a / t)) and np.allclose(d.interval(a, 0.8, many), d.interval(a / t, 0.8))
    assert np.isclose(d.probability_greater(a, 0, 2, many), d.probability_greater(a / t, 0, 2))


def test_temperatures_of_features_by_monte_carlo():
    a, t, rng = np.array([3.0, 0.4, 2.5]), np.array([0.5, 2.0, 0.1]), np.random.default_rng(5)
    g = t * rng.gamma(a / t, size=(200_000, 3))  # means a, variances t a
    assert np.isclose(d.probability_greater(a, 0, 2, t), (g[:, 0] > g[:, 2]).mean(), atol=0.005)
    top = np.bincount(g.argmax(1), minlength=3) / len(g)
    assert np.allclose(d.probability_top(a, 1, temperature=t), top, atol=0.015)
    log_f = d.log_draws(a, 200_000, rng, t)
    assert np.allclose(np.exp(log_f).mean(0), (g / g.sum(1, keepdims=True)).mean(0), atol=0.005)
    marginal = stats.beta(a / t, (a.sum() - a) / t)
    assert np.allclose(d.sd(a, t), marginal.std())
    assert np.allclose(d.interval(a, 0.9, t), [marginal.ppf(0.05), marginal.ppf(0.95)])
    assert np.allclose(d.probability_above(a, 0.3, t), marginal.sf(0.3)) and np.allclose(marginal.mean(), d.mean(a))


@pytest.mark.parametrize("t", [0.0, -1.0, np.nan, np.inf, [1.0, 2.0], [[1.0, 1.0, 1.0]], [1.0, 0.0, 1.0]])
def test_bad_temperatures_are_refused(t):
    with pytest.raises(ValueError, match="temperature must be a positive number, or one for each of the 3 features"):
        d.interval([1.0, 2.0, 3.0], 0.8, t)


# many rows: by a table, compared with scipy element by element

def _rows(seed, rows, features, spread):
    rng = np.random.default_rng(seed)
    return 0.1 + np.exp(rng.normal(0, spread, size=(rows, features))) * rng.integers(0, 2, size=(rows, features))


@pytest.mark.parametrize("spread, temperature", [(1.0, 1.0), (0.3, 0.1), (0.5, np.linspace(0.5, 2, 11))])
def test_bounds_and_probabilities_of_many_rows_are_scipys(spread, temperature):
    alpha = _rows(0, 10_000, 11, spread)  # 110,000 importances
    a, b = alpha / temperature, (alpha.sum(1, keepdims=True) - alpha) / temperature
    lower, upper = d.interval(alpha, 0.9, temperature)
    some = np.random.default_rng(1).integers(len(alpha), size=300)
    marginal = stats.beta(a[some], b[some])
    assert np.abs(lower[some] - marginal.ppf(0.05)).max() < 1e-6
    assert np.abs(upper[some] - marginal.ppf(0.95)).max() < 1e-6
    assert np.abs(d.probability_above(alpha, None, temperature)[some] - marginal.sf(1 / 11)).max() < 1e-6
    assert (lower >= 0).all() and (upper <= 1).all() and (lower <= upper + 1e-6).all()


def test_a_table_asks_scipy_for_few_of_many():
    asked, alpha = [], _rows(0, 40_000, 11, 1.0)
    a, b = alpha, alpha.sum(1, keepdims=True) - alpha

    def quantile(a, b):
        asked.append(np.broadcast(a, b).size)
        return special.betaincinv(a, b, 0.025)

    d.of_many(quantile, a, b)
    assert sum(asked) < alpha.size / 5
    asked.clear()
    few = d.of_many(quantile, a[:100], b[:100])  # exact, each by itself
    assert asked == [1100] and np.array_equal(few, special.betaincinv(a[:100], b[:100], 0.025))


def test_what_a_spline_cannot_follow_is_computed_exactly():
    a, b = np.random.default_rng(0).uniform(0.5, 20, size=(2, 60_000))
    assert np.array_equal(d.of_many(lambda a, b: (a > b) * 1.0, a, b), (a > b) * 1.0)


def test_moments_of_a_mixture_by_brute_force():
    alpha = _rows(0, 9_000, 5, 1.0)
    for temperature in (1.0, 0.3, np.linspace(0.5, 2, 5)):
        m, second, prior = d.mixture(alpha, temperature, 0.2)
        mean, sd = d.mean(alpha), d.sd(alpha, temperature)
        assert np.allclose(m, mean.mean(0)) and np.allclose(second, (sd**2 + mean**2).mean(0))
        assert np.allclose(prior, (np.minimum(alpha, 0.2) / alpha.sum(1, keepdims=True)).mean(0))
