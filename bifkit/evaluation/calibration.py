"""Does an interval hold what it promises? Coverage under refits, and the temperatures that make it honest.

A fit's posterior says how freely the importances may move without changing what g predicts. That is not how far they
move when everything is done again: fresh rows, a fresh g, a fresh fit. The second question needs refits, and with them
it has a simple answer. Let s_i be the standard deviation of feature i's mean over n refits. Two fits differ by a
standard deviation of sqrt(2) s_i, so the marginal of feature i gets the temperature t_i at which its own standard
deviation is

    sqrt(2) s_i c,    c = Student's quantile (n - 1 degrees of freedom) / normal quantile, both at (1 + prob) / 2,

c > 1 because s_i itself is only an estimate. Means stay as they were. One temperature per feature is needed: refits
move features that matter and features that do not by about the same *share* of their importance, whereas the variance
of a Dirichlet falls only as the importance itself.
"""

import numpy as np
from scipy import special

from bifkit import dirichlet
from bifkit.inputs import warn
from bifkit.posterior import Posterior

RANGE = (1e-12, 1e6)  # of temperatures: a feature that never moved, and one that moved more than a Beta can


def check_refits(posteriors) -> list[Posterior]:
    """The refits as a list, or an error: posteriors over the same features, with equally many rows."""
    if hasattr(posteriors, "alpha") or not hasattr(posteriors, "__iter__"):
        raise ValueError("refits must be a list of posteriors, one per fit (a number goes to temperature=); "
                         f"got a {type(posteriors).__name__}")
    posteriors = list(posteriors)
    for p in posteriors:
        if not hasattr(p, "alpha"):  # not isinstance: a notebook that reloads modules has two classes of one name
            raise ValueError(f"refits must be posteriors, as explain() gives them; got a {type(p).__name__}")
        if p.feature_names != posteriors[0].feature_names or p.alpha.shape != posteriors[0].alpha.shape:
            raise ValueError("the fits are not over the same features and rows: explain the same ones with each")
    return posteriors


def coverage(posteriors, prob=0.8, *, temperature=None) -> np.ndarray:
    """How often the interval of one fit holds the mean of another, over all ordered pairs.

    >>> fits = [Posterior([4.0, 4.0]), Posterior([4.4, 4.0]), Posterior([4.0, 4.4])]
    >>> coverage(fits, 0.8).tolist()  # the intervals as fitted are far too wide
    [1.0, 1.0]

    Parameters
    ----------
    posteriors : list of Posterior
        Two or more fits.
    prob : float, default 0.8
        Probability of the interval.
    temperature : float or array (D,), optional
        As if each fit had been calibrated with it.

    Returns
    -------
    array (D,)
        The share of pairs, one per feature; local fits count each row.
    """
    posteriors = check_refits(posteriors)
    if len(posteriors) < 2:
        raise ValueError(f"coverage compares fits with each other: give at least two, not {len(posteriors)}")
    means = np.stack([p.mean for p in posteriors])  # (n, ..., D)
    if temperature is None:
        lower, upper = np.stack([p.interval(prob) for p in posteriors], axis=1)
    else:
        alpha = np.concatenate([np.atleast_2d(p.alpha) for p in posteriors])  # all at once: many questions at a time
        lower, upper = (b.reshape(means.shape) for b in dirichlet.interval(alpha, prob, temperature))
    held = [((low <= means) & (means <= up)).sum(0) - ((low <= own) & (own <= up))
            for low, up, own in zip(lower, upper, means, strict=True)]  # a fit is not compared with itself
    return np.mean(held, axis=0).reshape(-1, means.shape[-1]).mean(0) / (len(posteriors) - 1)


def temperature(refits, prob=0.8) -> np.ndarray:
    """The temperature of each feature at which its interval holds a share ``prob`` of new refits.

    >>> rng = np.random.default_rng(0)
    >>> fits = [Posterior([400.0, 40.0, 4.0] * rng.normal(1, 0.01, 3)) for _ in range(40)]  # each moves by one percent
    >>> t = temperature(fits[:20]); (t[0] < t[1] * 10 < t[2] * 1000)
    np.True_
    >>> float(coverage([p.calibrated(temperature=t) for p in fits[20:]]).mean().round(1))
    0.8

    Parameters
    ----------
    refits : list of Posterior
        Three at least, ten are a good number; the fewer, the wider the intervals. Rows of local fits share the result.
    prob : float, default 0.8
        Probability of the interval.

    Returns
    -------
    array (D,)
    """
    refits = check_refits(refits)
    if len(refits) < 3:
        raise ValueError(f"{len(refits)} refits tell too little of how refits scatter: give at least 3, better 10")
    if not 0 < prob < 1:
        raise ValueError(f"prob must lie strictly between 0 and 1; got {prob}")
    if any((p.temperature != 1).any() for p in refits):
        raise ValueError("the refits must be as explain() gave them, not calibrated")
    mean = np.stack([p.mean for p in refits])  # (n, ..., D)
    concentration = np.stack([p.alpha.sum(-1, keepdims=True) for p in refits])
    tail, n = (1 + prob) / 2, len(refits)
    factor = special.stdtrit(n - 1, tail) / special.ndtri(tail)
    wanted = _over_rows(2 * factor**2 * mean.var(0, ddof=1))  # (D,)
    low, high = (np.full(wanted.shape, np.log(bound)) for bound in RANGE)
    for _ in range(40):  # a variance grows with its temperature: halve until it is met
        t = np.exp((low + high) / 2)
        enough = _over_rows((mean * (1 - mean) / (concentration / t + 1)).mean(0)) > wanted
        low, high = np.where(enough, low, np.log(t)), np.where(enough, np.log(t), high)
    return np.exp((low + high) / 2)


def calibrated(posterior, refits=None, given=None, prob=0.8) -> Posterior:
    """A posterior with the spread of its refits, or with a temperature that is given: ``Posterior.calibrated``."""
    if (refits is None) == (given is None):
        raise ValueError("give either refits, a list of posteriors, or temperature=")
    if given is None:
        if (posterior.temperature != 1).any():
            raise ValueError("this posterior is calibrated already: start from the one that explain() gave")
        refits = check_refits(refits)
        check_refits([posterior, *refits])
        given = temperature(refits, prob)
        if len(refits) < 10:
            warn(f"{len(refits)} refits say little about how far the next one would lie, and the intervals are "
                 "wider for it: make ten or more, bifkit.refits(train, X, y, n=10)")
    given = dirichlet.check_temperature(given, len(posterior.feature_names))
    one = given.ndim == 0
    return Posterior(posterior.alpha / given if one else posterior.alpha, posterior.feature_names,
                     index=posterior.index, null=posterior.null / given if one else posterior.null,
                     settings=posterior.settings | {"temperature": given.tolist()},
                     temperature=posterior.temperature * (1.0 if one else given))


def held_out(posteriors, prob=0.8, *, level=None, choose=2 / 3, splits=20, seed=0, without=None,
             rule=temperature) -> np.ndarray:
    """Coverage of each feature by intervals calibrated on other fits than those they are judged by.

    Parameters
    ----------
    posteriors : list of Posterior
    prob : float, default 0.8
        Probability that the temperatures are chosen for.
    level : float, optional
        Probability of the intervals that are judged, by default ``prob``.
    choose : float, default 2/3
        Share of the fits that choose the temperatures; the others are compared with each other.
    splits : int, default 20
        Random splits to average over, drawn from ``seed``.
    without : int, optional
        Number of a fit to leave out while the splits stay as they are, for a jackknife.
    rule : callable, default :func:`temperature`
        Temperatures of (fits, prob).

    Returns
    -------
    array (D,)
        The share of pairs, one per feature.
    """
    posteriors, found = check_refits(posteriors), []
    first = round(choose * len(posteriors))
    if len(posteriors) - first < 2:
        raise ValueError(f"of {len(posteriors)} fits {first} choose and {len(posteriors) - first} are left, "
                         "at least 2 must be: give more fits, or a smaller choose")
    rng = np.random.default_rng(seed)
    for _ in range(splits):
        order = rng.permutation(len(posteriors))
        choosing, judging = ([posteriors[i] for i in part if i != without] for part in (order[:first], order[first:]))
        if len(judging) >= 2:
            found.append(coverage(judging, level or prob, temperature=rule(choosing, prob)))
    return np.mean(found, axis=0)


def _over_rows(values):
    """(D,) from (D,) or (N, D)."""
    return np.atleast_2d(values).mean(0)
