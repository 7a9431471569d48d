"""Closed forms of one Dirichlet distribution, and its reparameterised sampler.

The importance vector f ~ Dir(alpha) is a probability vector over features (paper, section 4.1). Everything a reader
asks of it has a closed form or one cheap integral:

    mean        alpha_i / alpha_0, with alpha_0 the sum of alpha
    share       the same of alpha less the prior's parameter: what a fit has added
    marginal    f_i ~ Beta(alpha_i, alpha_0 - alpha_i), hence sd and intervals
    order       P(f_i > f_j) = P(Beta(alpha_i, alpha_j) > 1/2)
    groups      sums over a partition of the features are again Dirichlet, exactly
    divergence  KL(Dir(alpha) || Dir(beta)) = log G(alpha_0) - sum log G(alpha_i) - log G(beta_0) + sum log G(beta_i)
                + sum (alpha_i - beta_i)(psi(alpha_i) - psi(alpha_0)); the paper prints it with the wrong sign

``alpha`` is (D,) for one distribution or (N, D) for one per row; functions act on the last axis. ``rsample`` and
``kl_to_prior`` are what training differentiates, in torch.

``temperature`` (a number, or one per feature) widens or narrows a spread around the same mean, for calibration: a
marginal becomes Beta(alpha_i / t_i, (alpha_0 - alpha_i) / t_i), and orders are those of gamma variables with mean
alpha_i and variance t_i alpha_i. One temperature for all gives the Dirichlet of alpha / t, exactly; with one per
feature each marginal is as wide as it should be, which no Dirichlet can offer.
"""

import math
import zlib

import numpy as np
import torch
from scipy import special

FLOOR = 1e-3  # torch's sampler is safe from here up: below, float32 draws turn flat and their gradients explode
CELLS = 500_000  # draws x features held at once where probabilities are counted
MANY = 50_000  # importances from which on a table may pay


def check(alpha) -> np.ndarray:
    """``alpha`` as a float64 array, or an error that says what is wrong with it."""
    alpha = np.asarray(alpha, dtype=np.float64)
    if alpha.ndim not in (1, 2) or alpha.shape[-1] < 2:
        raise ValueError(f"alpha must be (D,) or (N, D) with at least two features; got shape {alpha.shape}")
    if not np.isfinite(alpha).all() or (alpha <= 0).any():
        raise ValueError("alpha must be finite and positive everywhere")
    return alpha


def check_temperature(temperature, features) -> np.ndarray:
    """``temperature`` as a float64 array, one number or one per feature, or an error."""
    temperature = np.asarray(temperature, dtype=np.float64)
    if temperature.shape not in ((), (features,)) or not ((temperature > 0) & (temperature < np.inf)).all():
        raise ValueError(f"temperature must be a positive number, or one for each of the {features} features; "
                         f"got {temperature}")
    return temperature


def mean(alpha) -> np.ndarray:
    """alpha_i / alpha_0: the point estimate of section 4.3.

    >>> mean([1.0, 3.0]).tolist()
    [0.25, 0.75]
    """
    alpha = check(alpha)
    return alpha / alpha.sum(-1, keepdims=True)


def share(alpha, null) -> np.ndarray:
    """What a fit has added to the prior, (alpha - null) where positive, in parts of its sum; the mean if there is none.

    >>> share([3.1, 1.1, 0.1], 0.1).tolist()
    [0.75, 0.25, 0.0]
    """
    alpha = check(alpha)
    added = np.clip(alpha - null, 0.0, None)
    total = added.sum(-1, keepdims=True)
    return np.where(total > 0, added / np.where(total > 0, total, 1.0), mean(alpha))


def _marginal(alpha, temperature):
    """The two parameters of each feature's Beta marginal."""
    alpha = check(alpha)
    temperature = check_temperature(temperature, alpha.shape[-1])
    return alpha / temperature, (alpha.sum(-1, keepdims=True) - alpha) / temperature


def sd(alpha, temperature=1.0) -> np.ndarray:
    """Standard deviation of each importance.

    >>> round(float(sd([1.0, 1.0])[0]) ** 2 * 12, 6)
    1.0
    """
    a, b = _marginal(alpha, temperature)
    return np.sqrt(a * b / (a + b + 1)) / (a + b)


def of_many(function, a, b) -> np.ndarray:
    """``function(a, b)`` of the parameters of many Beta distributions; by a table where that is far cheaper.

    Quantiles and probabilities of a Beta distribution are smooth in (log a, log b) and cost microseconds each. Where
    there are far more pairs than nodes on a grid over them, the function is computed at the nodes and a spline of
    fifth order gives the rest. A thousand pairs are computed both ways first: unless all agree within 1e-8 a finer grid
    is tried, and then every pair computed by itself. So answers of many rows are within 1e-6, few rows' exact.

    Parameters
    ----------
    function : callable
        Of arrays (a, b), with values between 0 and 1.
    a, b : float64 arrays of one shape
        Positive.

    >>> a = np.exp(np.random.default_rng(0).uniform(-2, 2, 60_000))
    >>> calls = []
    >>> found = of_many(lambda a, b: calls.append((a + b).size) or special.betainc(a, b, 0.2), a, a + 1)
    >>> bool(np.abs(found - special.betainc(a, a + 1, 0.2)).max() < 1e-6), sum(calls) < 30_000
    (True, True)
    """
    if a.size < MANY or min(a.min(), b.min()) <= 0:
        return function(a, b)
    from scipy.interpolate import RectBivariateSpline  # here, as few need it

    a, b, shape = a.ravel(), b.ravel(), a.shape
    some = slice(None, None, a.size // 1000)
    exact = function(a[some], b[some])
    for step in (0.05, 0.02):
        ends = [(np.log(x.min()) - step, np.log(x.max()) + step) for x in (a, b)]
        u, v = (np.linspace(low, high, max(int((high - low) / step), 6) + 1) for low, high in ends)
        if a.size < 4 * len(u) * len(v):
            break
        spline = RectBivariateSpline(u, v, function(np.exp(u)[:, None], np.exp(v)[None, :]), kx=5, ky=5)
        if np.abs(spline.ev(np.log(a[some]), np.log(b[some])) - exact).max() <= 1e-8:
            blocks = (slice(i, i + CELLS) for i in range(0, a.size, CELLS))
            found = np.concatenate([spline.ev(np.log(a[block]), np.log(b[block])) for block in blocks])
            return found.clip(0.0, 1.0).reshape(shape)
    return function(a, b).reshape(shape)


def mixture(alpha, temperature=1.0, null=0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of rows drawn at random from alpha (N, D): mean and second moment of f, and the prior's part of the mean, (D,).

    >>> [m.round(4).tolist() for m in mixture(np.array([[1.0, 1.0], [3.0, 1.0]]), null=0.5)]
    [[0.625, 0.375], [0.4667, 0.2167], [0.1875, 0.1875]]
    """
    N, D = alpha.shape
    first, second, prior = np.zeros((3, D))
    rows = max(2**15 // D, 1)  # what a cache holds
    for i in range(0, N, rows):
        part = alpha[i:i + rows]
        total = part.sum(1, keepdims=True)
        m = part / total
        first += m.sum(0)
        second += (m * m + m * (1 - m) / (total / temperature + 1)).sum(0)
        prior += (np.minimum(part, null) / total).sum(0)
    return first / N, second / N, prior / N


def interval(alpha, prob=0.95, temperature=1.0) -> tuple[np.ndarray, np.ndarray]:
    """Equal-tailed credible interval of each importance, from its Beta marginal; of many rows within 1e-6.

    >>> [round(float(b[0]), 3) for b in interval([1.0, 1.0], 0.9)]
    [0.05, 0.95]
    """
    if not 0 < prob < 1:
        raise ValueError(f"prob must lie strictly between 0 and 1; got {prob}")
    a, b = _marginal(alpha, temperature)
    tail = (1 - prob) / 2
    lower, upper = (of_many(lambda a, b, p=p: special.betaincinv(a, b, p), a, b) for p in (tail, 1 - tail))
    return lower, upper


def entropy(alpha) -> np.ndarray:
    """Differential entropy in nats.

    >>> float(entropy([1.0, 1.0]))
    0.0
    """
    alpha = check(alpha)
    a0, D = alpha.sum(-1), alpha.shape[-1]
    log_b = special.gammaln(alpha).sum(-1) - special.gammaln(a0)
    return log_b + (a0 - D) * special.digamma(a0) - ((alpha - 1) * special.digamma(alpha)).sum(-1)


def kl(alpha, beta) -> np.ndarray:
    """KL(Dir(alpha) || Dir(beta)) in nats (section 4.4, with the sign put right).

    >>> float(kl([2.0, 3.0], [2.0, 3.0]))
    0.0
    """
    alpha, beta = check(alpha), check(beta)
    if alpha.shape[-1] != beta.shape[-1]:
        raise ValueError(f"the two distributions are over {alpha.shape[-1]} and {beta.shape[-1]} features")
    if alpha.ndim == beta.ndim == 2 and len(alpha) != len(beta) and 1 not in (len(alpha), len(beta)):
        raise ValueError(f"the two have {len(alpha)} and {len(beta)} rows: give as many, or one for all")
    a0, b0 = alpha.sum(-1), beta.sum(-1)
    inner = ((alpha - beta) * (special.digamma(alpha) - special.digamma(a0)[..., None])).sum(-1)
    value = special.gammaln(a0) - special.gammaln(alpha).sum(-1)
    value = value - special.gammaln(b0) + special.gammaln(beta).sum(-1) + inner
    return np.maximum(value, 0.0)  # rounding can leave -1e-16 where the two are equal


def probability_greater(alpha, i, j, temperature=1.0) -> np.ndarray:
    """P(f_i > f_j), from Beta(alpha_i, alpha_j).

    >>> float(probability_greater([1.0, 1.0, 5.0], 0, 1))
    0.5
    """
    a, _ = _marginal(alpha, temperature)
    t = np.broadcast_to(temperature, a.shape[-1:])
    # P(t_i G_i > t_j G_j), and G_i / (G_i + G_j) ~ Beta(a_i, a_j)
    return special.betaincc(a[..., i], a[..., j], t[j] / (t[i] + t[j]))


def probability_above(alpha, threshold=None, temperature=1.0) -> np.ndarray:
    """P(f_i > threshold) from the Beta marginals; the default is 1/D, an equal share. Of many rows within 1e-6.

    >>> probability_above([1.0, 1.0], 0.25).tolist()
    [0.75, 0.75]
    """
    alpha = check(alpha)
    threshold = 1 / alpha.shape[-1] if threshold is None else threshold
    if not 0 < threshold < 1:
        raise ValueError(f"threshold must lie strictly between 0 and 1; got {threshold}")
    return of_many(lambda a, b: special.betaincc(a, b, threshold), *_marginal(alpha, temperature))


def log_draws(alpha, draws, rng, temperature=1.0) -> np.ndarray:
    """``draws`` samples of log f, (draws, ..., D), finite for alpha down to 1e-4 (where f itself underflows)."""
    alpha, _ = _marginal(alpha, temperature)
    # log Gamma(a) = log Gamma(a + 1) - E / a with E exponential: the small-shape identity, in logs
    log_gamma = np.log(rng.gamma(alpha + 1, size=(draws, *alpha.shape)))
    log_gamma += np.log(temperature) - rng.exponential(size=log_gamma.shape) / alpha
    return log_gamma - special.logsumexp(log_gamma, axis=-1, keepdims=True)


def probability_top(alpha, k=1, *, draws=None, seed=0, temperature=1.0) -> np.ndarray:
    """P(feature i is among the k most important), by seeded Monte Carlo in logs; shape of ``alpha``.

    ``draws`` of each row: by default 20000 for one distribution (standard error at most .004), 4000 for each of many
    (at most .008). Rows are done one by one, so that memory does not grow with them.

    >>> probability_top([50.0, 1.0, 1.0], 1)[0] > 0.99
    np.True_
    """
    alpha = check(alpha)
    D = alpha.shape[-1]
    if not 1 <= k <= D:
        raise ValueError(f"k must lie between 1 and the number of features, {D}; got {k}")
    if alpha.ndim == 2:
        # a stream of its own for each content: errors average out over rows, and a row's answer is its own
        streams = [[seed, zlib.crc32(a.tobytes())] for a in alpha]
        rows = [probability_top(a, k, draws=draws or 4_000, seed=s, temperature=temperature)
                for a, s in zip(alpha, streams, strict=True)]
        return np.array(rows).reshape(alpha.shape)
    draws, rng, count, at_once = draws or 20_000, np.random.default_rng(seed), np.zeros(D), max(1, CELLS // D)
    for done in range(0, draws, at_once):
        sample = log_draws(alpha, min(at_once, draws - done), rng, temperature)
        top = np.argpartition(sample, D - k, axis=1)[:, D - k:]
        count += np.bincount(top.ravel(), minlength=D)
    return count / draws


def group_sum(alpha, groups) -> np.ndarray:
    """Exact Dirichlet over groups: ``groups`` (D,) gives each feature's group number 0..G-1.

    >>> group_sum([1.0, 2.0, 3.0], [0, 1, 0]).tolist()
    [4.0, 2.0]
    """
    alpha, groups = check(alpha), np.asarray(groups)
    if groups.shape != alpha.shape[-1:]:
        raise ValueError(f"groups must give one number per feature ({alpha.shape[-1]}); got shape {groups.shape}")
    if not np.array_equal(np.unique(groups), np.arange(int(groups.max()) + 1)):
        raise ValueError("groups must be numbered 0..G-1, each with at least one feature")
    out = np.zeros((int(groups.max()) + 1, *alpha.shape[:-1]))
    np.add.at(out, groups, np.moveaxis(alpha, -1, 0))
    return np.moveaxis(out, 0, -1)


def rsample(alpha, draws=1):
    """``draws`` reparameterised samples (J, ..., D) of Dir(alpha), by torch's implicit gradients (section 4.3).

    Safe in float32 for alpha >= 1e-3 (``FLOOR``).
    """
    return torch.distributions.Dirichlet(alpha, validate_args=False).rsample((draws,))


def kl_to_prior(alpha, prior):
    """KL(Dir(alpha) || Dir(prior, ..., prior)) of each row in torch, (..., D) to (...): the right term of the ELBO.

    The closed form above with beta = (prior, ..., prior), whose own terms are a constant.

    >>> round(float(kl_to_prior(torch.tensor([2.0, 1.0]), 1.0)), 4)  # log 2 - 1/2
    0.1931
    """
    D, total = alpha.shape[-1], alpha.sum(-1)
    constant = D * math.lgamma(prior) - math.lgamma(D * prior)
    log_normaliser = total.lgamma() - alpha.lgamma().sum(-1)
    return log_normaliser + constant + ((alpha - prior) * (alpha.digamma() - total.digamma().unsqueeze(-1))).sum(-1)
