"""Closed forms of one Dirichlet distribution, and its reparameterised sampler.

The importance vector f ~ Dir(alpha) is a probability vector over features (paper, section 4.1). Everything a reader
asks of it has a closed form or one cheap integral:

    mean        alpha_i / alpha_0, with alpha_0 the sum of alpha
    marginal    f_i ~ Beta(alpha_i, alpha_0 - alpha_i), hence sd and intervals
    order       P(f_i > f_j) = P(Beta(alpha_i, alpha_j) > 1/2)
    groups      sums over a partition of the features are again Dirichlet, exactly
    divergence  KL(Dir(alpha) || Dir(beta)) = log G(alpha_0) - sum log G(alpha_i) - log G(beta_0) + sum log G(beta_i)
                + sum (alpha_i - beta_i)(psi(alpha_i) - psi(alpha_0)); the paper prints it with the wrong sign

``alpha`` is (D,) for one distribution or (N, D) for one a row; functions act on the last axis. ``rsample`` and
``kl_torch`` are the differentiable twins used in training.
"""

import zlib

import numpy as np
import torch
from scipy import special, stats

FLOOR = 1e-3  # torch's sampler is safe from here up: below, float32 draws turn flat and their gradients explode
CELLS = 500_000  # draws x features held at once where probabilities are counted


def check(alpha) -> np.ndarray:
    """``alpha`` as a float64 array, or an error that says what is wrong with it.

    >>> check([1, 2]).dtype
    dtype('float64')
    """
    alpha = np.asarray(alpha, dtype=np.float64)
    if alpha.ndim not in (1, 2) or alpha.shape[-1] < 2:
        raise ValueError(f"alpha must be (D,) or (N, D) with at least two features; got shape {alpha.shape}")
    if not np.isfinite(alpha).all() or (alpha <= 0).any():
        raise ValueError("alpha must be finite and positive everywhere")
    return alpha


def mean(alpha) -> np.ndarray:
    """alpha_i / alpha_0: the point estimate of section 4.3.

    >>> mean([1.0, 3.0]).tolist()
    [0.25, 0.75]
    """
    alpha = check(alpha)
    return alpha / alpha.sum(-1, keepdims=True)


def sd(alpha) -> np.ndarray:
    """Standard deviation of each importance.

    >>> round(float(sd([1.0, 1.0])[0]) ** 2 * 12, 6)
    1.0
    """
    m = mean(alpha)
    return np.sqrt(m * (1 - m) / (check(alpha).sum(-1, keepdims=True) + 1))


def interval(alpha, prob=0.95) -> tuple[np.ndarray, np.ndarray]:
    """Equal-tailed credible interval of each importance, from its Beta marginal.

    >>> [round(float(b[0]), 3) for b in interval([1.0, 1.0], 0.9)]
    [0.05, 0.95]
    """
    if not 0 < prob < 1:
        raise ValueError(f"prob must lie strictly between 0 and 1; got {prob}")
    alpha = check(alpha)
    rest = alpha.sum(-1, keepdims=True) - alpha
    tail = (1 - prob) / 2
    return stats.beta.ppf(tail, alpha, rest), stats.beta.ppf(1 - tail, alpha, rest)


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


def probability_greater(alpha, i, j) -> np.ndarray:
    """P(f_i > f_j), from Beta(alpha_i, alpha_j).

    >>> float(probability_greater([1.0, 1.0, 5.0], 0, 1))
    0.5
    """
    alpha = check(alpha)
    return stats.beta.sf(0.5, alpha[..., i], alpha[..., j])


def probability_above(alpha, threshold=None) -> np.ndarray:
    """P(f_i > threshold) from the Beta marginals; the default is 1/D, an equal share.

    >>> probability_above([1.0, 1.0], 0.25).tolist()
    [0.75, 0.75]
    """
    alpha = check(alpha)
    threshold = 1 / alpha.shape[-1] if threshold is None else threshold
    if not 0 < threshold < 1:
        raise ValueError(f"threshold must lie strictly between 0 and 1; got {threshold}")
    return stats.beta.sf(threshold, alpha, alpha.sum(-1, keepdims=True) - alpha)


def log_draws(alpha, draws, rng) -> np.ndarray:
    """``draws`` samples of log f for one alpha (D,), finite for alpha down to 1e-4 (where f itself underflows).

    >>> log_draws([1e-4, 1.0], 3, np.random.default_rng(0)).shape
    (3, 2)
    """
    alpha = check(alpha)
    # log Gamma(a) = log Gamma(a + 1) - E / a with E exponential: the small-shape identity, in logs
    log_gamma = np.log(rng.gamma(alpha + 1, size=(draws, len(alpha))))
    log_gamma -= rng.exponential(size=log_gamma.shape) / alpha
    return log_gamma - special.logsumexp(log_gamma, axis=-1, keepdims=True)


def probability_top(alpha, k=1, *, draws=None, seed=0) -> np.ndarray:
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
        rows = [probability_top(a, k, draws=draws or 4_000, seed=s) for a, s in zip(alpha, streams, strict=True)]
        return np.array(rows).reshape(alpha.shape)
    draws, rng, count, at_once = draws or 20_000, np.random.default_rng(seed), np.zeros(D), max(1, CELLS // D)
    for done in range(0, draws, at_once):
        sample = log_draws(alpha, min(at_once, draws - done), rng)
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
        raise ValueError(f"groups must give one number a feature ({alpha.shape[-1]}); got shape {groups.shape}")
    if not np.array_equal(np.unique(groups), np.arange(int(groups.max()) + 1)):
        raise ValueError("groups must be numbered 0..G-1, each with at least one feature")
    out = np.zeros((*alpha.shape[:-1], int(groups.max()) + 1))
    np.add.at(out, (..., groups), alpha)
    return out


def rsample(alpha, draws=1):
    """``draws`` reparameterised samples (J, ..., D) of Dir(alpha), alpha >= 1e-3; implicit gradients (section 4.3).

    >>> rsample(torch.ones(4, 3), 2).shape
    torch.Size([2, 4, 3])
    """
    return torch.distributions.Dirichlet(alpha, validate_args=False).rsample((draws,))


def kl_torch(alpha, prior):
    """Differentiable KL(Dir(alpha) || Dir(prior, ..., prior)) of each row, (..., D) to (...).

    >>> round(float(kl_torch(torch.tensor([2.0, 1.0]), 1.0)), 4)  # log 2 - 1/2
    0.1931
    """
    D, a0 = alpha.shape[-1], alpha.sum(-1)
    constant = D * torch.lgamma(alpha.new_tensor(prior)) - torch.lgamma(alpha.new_tensor(D * prior))
    inner = ((alpha - prior) * (torch.digamma(alpha) - torch.digamma(a0).unsqueeze(-1))).sum(-1)
    return torch.lgamma(a0) - torch.lgamma(alpha).sum(-1) + constant + inner
