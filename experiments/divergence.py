"""How far an explanation moved, how far it moves by chance alone, and what counts as rising.

The trade-off studies train models at several *levels* (of privacy, of fairness) with several *seeds*, explain each, and
ask how far the explanation at a level lies from that of the unconstrained model, the *reference*. One explanation is
noise: features that stand in for each other take turns. So explanations are averaged over the seeds first, as the paper
averages alphas over its explainer's seeds, and then compared, by two statistics:

* ``distance``: the total variation between mean importances, the part of the importance that changed hands (0 to 1).
  Of INVASE's selection probabilities, which do not add up to one: the number of selections that changed, sum |p - q|.
* ``kl``: the paper's, D_KL(reference || level) between the Dirichlets of the averaged alphas, in the order in which its
  captions name the two; ``kl_reverse`` the other way round. Of INVASE: the sum of the features' Bernoulli divergences.

*Intervals* (95 %) resample the seeds, the same ones at every level: a seed's models share data, start and batches.

*Floor.* The same statistic between two halves of the reference's own refits: 95 % of random halvings lie below it. A
half has half the seeds, so this is rather too high than too low.

*Told from the reference*: p < .05 by ``bifkit.compare(..., paired=True)``, after Holm's correction over the levels; of
INVASE by the same test of sum |p - q|.

Rules, the same in both studies, written down before their seeds 20 to 39 were run:

* A curve ``rises``: Spearman of level and statistic is at least .9 in at least 95 % of the resamples of the seeds, and
  the strongest level is told from the reference (with fewer than ten seeds, too few for a p-value after the correction:
  it lies above the floor). *Does not hold*: Spearman reaches .9 in at most 5 % of them. Anything else, and a curve that
  rises without its end being told from the reference, *cannot be decided*.
* A statement about an order or a set ("is first", "the top 8 stay"): holds if true of the means in at least 95 % of
  the resamples, does not hold if in at most 5 %.
* A feature ``moves``: its least-squares line over all levels, from the first to the last. Holds if the 95 % interval
  lies on the side the paper names; does not hold if it lies on the other one, or within .02 of zero. "Stays almost the
  same": holds if the interval lies within .05 of zero, does not hold if it lies outside.
* A statement about single selections of INVASE, which are one per seed: holds if true in at least 80 % of the seeds,
  does not hold if in at most 20 %.
"""

import math

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from bifkit import Posterior, compare, dirichlet

HOLDS, FAILS, OPEN = "holds", "does not hold", "cannot be decided"
SPEARMAN, SURE, NEAR, SAME = 0.9, 0.95, 0.02, 0.05
RESAMPLES, HALVINGS = 2000, 400
ENOUGH = 10  # seeds for a p-value that may survive the correction
STATISTICS = ("distance", "kl", "kl_reverse")


def dirichlet_kl(alpha, beta) -> float:
    """D_KL(Dir(alpha) || Dir(beta)) in nats.

    >>> dirichlet_kl([2.0, 1.0], [2.0, 1.0])
    0.0
    """
    alpha, beta = dirichlet.check(alpha), dirichlet.check(beta)
    if alpha.shape != beta.shape or alpha.ndim != 1:
        raise ValueError(f"alpha and beta must be vectors of one length; got {alpha.shape} and {beta.shape}")
    return float(dirichlet.kl(alpha, beta))


def bernoulli_kl(p, q, *, clamp=1e-3):
    """Sum over features of D_KL(Bernoulli(p_d) || Bernoulli(q_d)), for INVASE's mean selection probabilities.

    Probabilities are clamped to [clamp, 1 - clamp]: INVASE's saturate, and one feature at 0 against 1 would
    be infinitely far apart. With the default such a feature counts 6.9 nats.

    >>> round(float(bernoulli_kl([0.5, 1.0], [0.5, 0.0])), 1)
    6.9
    """
    p, q = (np.clip(np.asarray(v, float), clamp, 1 - clamp) for v in (p, q))
    if p.shape[-1] != q.shape[-1]:
        raise ValueError(f"p and q must have one length; got {p.shape}, {q.shape}")
    return (p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))).sum(-1)


def stack(explanations, levels) -> tuple:
    """(array (levels, seeds, D), seeds) of an iterable of (level, seed, vector), with the seeds that all levels have.

    >>> found, seeds = stack([(0, 5, [2.0, 1.0]), (1, 5, [1.0, 1.0]), (1, 6, [1.0, 1.0])], [0, 1])
    >>> found.shape, seeds
    ((2, 1, 2), [5])
    """
    table = {}
    for level, seed, vector in explanations:
        if seed in table.setdefault(level, {}):
            raise ValueError(f"level {level}, seed {seed} occurs twice: give one explanation for each")
        table[level][seed] = np.asarray(vector, float)
    if absent := [level for level in levels if level not in table]:
        raise ValueError(f"no explanation at level {absent[0]}; levels are {sorted(table)}")
    seeds = sorted(set.intersection(*(set(table[level]) for level in levels)))
    if not seeds:
        raise ValueError("no seed has an explanation at every level: pairs need both")
    return np.array([[table[level][s] for s in seeds] for level in levels]), seeds


def resamples(n, count=RESAMPLES, seed=0):
    """Weights (count, n) of the bootstrap: how often each of n seeds is drawn, divided by n."""
    return np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=count) / n


def resampled(values):
    """Means over the seeds (1 + resamples, levels) of values (levels, seeds): of all seeds, then of resamples.

    >>> resampled(np.array([[1.0, 3.0]])).shape
    (2001, 1)
    """
    return np.vstack([values.mean(1), resamples(values.shape[1]) @ values.T])


def statistics(reference, level, kind="dirichlet") -> dict:
    """The three statistics between (alphas, importances), averaged before, of the reference and of a level."""
    (alpha, p), (beta, q) = reference, level
    if kind == "bernoulli":
        return {"distance": np.abs(p - q).sum(-1), "kl": bernoulli_kl(p, q), "kl_reverse": bernoulli_kl(q, p)}
    alpha, beta = np.broadcast_arrays(alpha, beta)
    flat, shape = [v.reshape(-1, v.shape[-1]) for v in (alpha, beta)], alpha.shape[:-1]
    return {"distance": np.abs(p - q).sum(-1) / 2, "kl": dirichlet.kl(*flat).reshape(shape),
            "kl_reverse": dirichlet.kl(*flat[::-1]).reshape(shape)}


def averaged(weights, found, kind="dirichlet"):
    """(alphas, importances), each (B, levels, D): averages over the seeds with weights (B, seeds)."""
    shares = found if kind == "bernoulli" else found / found.sum(-1, keepdims=True)
    return tuple(np.einsum("bs,lsd->bld", weights, v) for v in (found, shares))


def sampled(found, kind="dirichlet", count=RESAMPLES) -> dict:
    """{statistic: array (1 + count, levels - 1)}: of all seeds, then of resamples; found[0] is the reference."""
    n = found.shape[1]
    alpha, share = averaged(np.vstack([np.full((1, n), 1 / n), resamples(n, count)]), found, kind)
    return statistics((alpha[:, :1], share[:, :1]), (alpha[:, 1:], share[:, 1:]), kind)


def floor(reference, kind="dirichlet", count=HALVINGS) -> dict:
    """{statistic: what 95 % of random halvings of the reference's refits (seeds, D) lie below}; NaN if fewer than 4."""
    n = len(reference)
    if n < 4:
        return dict.fromkeys(STATISTICS, math.nan)
    order = np.argsort(np.random.default_rng(0).random((count, n)), axis=1)
    sides = []
    for part in (order[:, :n // 2], order[:, n // 2:]):
        weights = np.zeros((count, n))
        np.put_along_axis(weights, part, 1 / part.shape[1], axis=1)
        sides.append(tuple(v[:, 0] for v in averaged(weights, reference[None], kind)))
    return {name: float(np.quantile(v, SURE)) for name, v in statistics(*sides, kind).items()}


def holm(p_values):
    """Holm's correction.

    >>> holm([0.01, 0.04, 0.03]).round(2).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, float)
    order = np.argsort(p, kind="stable")
    out = np.empty(len(p))
    out[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1.0)
    return out


def p_value(reference, level, kind="dirichlet") -> float:
    """p of ``bifkit.compare``, paired by seed, between two sets of vectors (seeds, D); NaN if there is one seed.

    Selection probabilities do not add up to one, so their test is written out here: signs of the differences are drawn.

    >>> a = np.random.default_rng(0).random((20, 3))
    >>> p_value(a, a, "bernoulli"), p_value(a, a + 0.1, "bernoulli")
    (1.0, 0.0001)
    """
    if len(reference) < 2:
        return math.nan
    if np.array_equal(reference, level):
        return 1.0
    if kind == "bernoulli":
        moved = level - reference
        signs = np.random.default_rng(0).choice([1, -1], size=(9999, len(moved)))
        drawn, here = np.abs(signs @ moved).sum(1), np.abs(moved.sum(0)).sum()
        return float((1 + (drawn >= here * (1 - 1e-9)).sum()) / 10_000)
    return compare(*([Posterior(a) for a in side] for side in (reference, level)), paired=True, resamples=1).p_value


def curve(explanations, levels, *, kind="dirichlet") -> pd.DataFrame:
    """One row per level, the reference (levels[0]) left out: the statistics, their intervals, floors and p-values.

    Parameters
    ----------
    explanations : iterable of (level, seed, vector)
        Alphas, or with ``kind="bernoulli"`` selection probabilities.
    levels : list
        The reference first, then from the weakest constraint to the strongest.
    kind : {"dirichlet", "bernoulli"}
        What the vectors are.

    >>> e = [(level, seed, [2.0 + seed, 1.0 + level]) for level in (0, 1, 2) for seed in range(4)]
    >>> curve(e, [0, 1, 2])["distance"].round(2).tolist()
    [0.14, 0.24]
    """
    found, seeds = stack(explanations, levels)
    values, floors = sampled(found, kind), floor(found[0], kind)
    out = pd.DataFrame({"level": levels[1:], "seeds": len(seeds)})
    for name in STATISTICS:
        out[name] = values[name][0]
        out[f"{name}_low"], out[f"{name}_high"] = np.quantile(values[name][1:], [0.025, 0.975], axis=0)
        out[f"{name}_floor"] = floors[name]
    p = [p_value(found[0], v, kind) for v in found[1:]]
    out = out.assign(p=p, p_holm=holm(p))
    return out.assign(told=out["p_holm"] < 0.05 if len(seeds) >= ENOUGH else out["distance"] > out["distance_floor"])


def spearman(values):
    """Spearman of each row of values (B, L) with 1 ... L; NaN where a row is constant.

    >>> spearman([[1.0, 2.0, 3.0], [3.0, 1.0, 2.0]]).tolist()
    [1.0, -0.5]
    """
    ranks = rankdata(np.atleast_2d(values), axis=1)
    ranks, line = ranks - ranks.mean(1, keepdims=True), np.arange(ranks.shape[1]) - (ranks.shape[1] - 1) / 2
    size = np.sqrt((ranks ** 2).sum(1) * (line ** 2).sum())
    with np.errstate(invalid="ignore"):
        return np.round(ranks @ line / size, 12)


def rises(values) -> dict:
    """Of values (1 + resamples, levels), row 0 of all seeds: {spearman, share: of the resamples in which it is .9}."""
    ranks = spearman(values)
    return {"spearman": float(ranks[0]), "share": float(np.mean(ranks[1:] >= SPEARMAN))}


def words(found) -> str:
    """What ``rises`` found, in words.

    >>> words({"spearman": 1.0, "share": 0.97})
    'Spearman 1.00, at least .9 in 97 % of the resamples'
    """
    return f"Spearman {found['spearman']:.2f}, at least .9 in {100 * found['share']:.0f} % of the resamples"


def decide(share, told=True) -> str:
    """The verdict on a statement that is true in this share of the resamples; ``told``: whatever else must be the case.

    >>> decide(0.97), decide(0.97, told=False), decide(0.5), decide(0.01)
    ('holds', 'cannot be decided', 'cannot be decided', 'does not hold')
    """
    if math.isnan(share):
        return OPEN
    return HOLDS if share >= SURE and told else FAILS if share <= 1 - SURE else OPEN


def decide_counts(count, of) -> str:
    """The verdict on a statement that is true in ``count`` of so many seeds: four of five, one of five.

    >>> decide_counts(4, 5), decide_counts(2, 5), decide_counts(4, 20)
    ('holds', 'cannot be decided', 'does not hold')
    """
    return OPEN if not of else HOLDS if count >= 0.8 * of else FAILS if count <= 0.2 * of else OPEN


def moves(values) -> tuple:
    """(change, low, high) of values (levels, seeds): the least-squares line over all levels, from first to last.

    >>> moves([[0.0, 0.1], [0.1, 0.2], [0.2, 0.3]])[0].round(2)
    np.float64(0.2)
    """
    values = np.asarray(values, float)
    line = np.arange(len(values)) - (len(values) - 1) / 2
    change = (line @ values) / (line ** 2).sum() * (len(values) - 1)  # (seeds,)
    return change.mean(), *np.quantile(resamples(len(change)) @ change, [0.025, 0.975])


def decide_move(low, high, way) -> str:
    """The verdict on "rises" (way 1), "falls" (-1) or "stays almost the same" (0), by the interval of the change.

    >>> decide_move(0.03, 0.09, 1), decide_move(-0.01, 0.01, 1), decide_move(-0.01, 0.09, 1)
    ('holds', 'does not hold', 'cannot be decided')
    >>> decide_move(0.03, 0.04, 0), decide_move(0.06, 0.09, 0), decide_move(0.03, 0.09, 0)
    ('holds', 'does not hold', 'cannot be decided')
    """
    if way == 0:
        return HOLDS if -SAME <= low and high <= SAME else FAILS if low > SAME or high < -SAME else OPEN
    low, high = (low, high) if way > 0 else (-high, -low)
    return HOLDS if low > 0 else FAILS if high < 0 or (low > -NEAR and high < NEAR) else OPEN
