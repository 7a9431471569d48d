"""Has a fit converged, and does it say anything? What ``fit`` judges at its end, and the warning it gives.

*Converged.* The objective still rises when its mean over the last fifth of the steps exceeds that of the middle fifth
by more than three standard errors (batches and draws make the curve rough) and more than ``RISEN`` of all that was
gained since the start. The importances still move when more than ``MOVED`` of them, in total variation, changed hands
between the last two fifths: an objective that is nearly level can hide a slow exchange between features. That neither
is so is no proof: a fit that starts very slowly looks level too.

*Flat.* The effective number of features, exp(entropy of the shares), is nearly the number of features: the
explanation does not tell them apart. Where a fit has added next to nothing to the prior, the shares of that are chance
and the means are counted instead.
"""

from dataclasses import dataclass

import numpy as np
from scipy import special

from bifkit import dirichlet
from bifkit.inputs import warn

ENOUGH = 100  # steps below which a curve is too short to judge
RISEN = 0.15  # of the gain; 72 default fits, synthetic and real, had up to .13
MOVED = 0.08  # 1000 steps and more stay below .075, also on real data; 300 that are far off are mostly above
FLAT = 0.98  # of all features
ADDED = 0.1  # of the prior's weight: less is next to nothing. A KL of weight 100 leaves .05, a good fit adds 4 and more


class FitWarning(UserWarning):
    """A fit that should not be trusted as it is; the message holds the advice."""


@dataclass(frozen=True)
class Diagnostics:
    """What is known of a fit: ``converged`` is None where there were too few steps to judge.

    >>> Diagnostics(1000, -0.5, 0.001, True, 4.2, 11).advice()
    []
    """

    steps: int
    elbo: float  # mean over the last twentieth
    rise: float  # of the objective, from the middle fifth of the steps to the last
    converged: bool | None
    effective_features: float
    features: int
    moved: float = 0.0  # of the importances, the share that changed hands between the last two fifths

    @property
    def flat(self) -> bool:
        """Does every feature look alike?

        >>> Diagnostics(1000, -0.5, 0.0, True, 10.9, 11).flat
        True
        """
        judged = self.converged is not None and self.features > 2
        return judged and self.effective_features > FLAT * self.features

    def advice(self) -> list[str]:
        """A sentence for each thing that is wrong.

        >>> print(*Diagnostics(200, -0.5, 0.2, False, 4.2, 11).advice())
        the fit has not converged (the objective still rises by 0.2 in its second half): give min_steps= more than 200
        """
        notes = []
        if self.converged is False:
            what = f"the objective still rises by {self.rise:.2g} in its second half" if self.moved <= MOVED else \
                f"{self.moved:.0%} of the importance still changes hands in its last fifth"
            notes.append(f"the fit has not converged ({what}): give min_steps= more than {self.steps}")
        if self.flat:
            notes.append(f"the explanation is flat ({self.effective_features:.1f} effective features of "
                         f"{self.features}): g uses all of them alike, or hardly at all, or the KL weighs too much; "
                         "look at `plots.elbo_curve`, try a smaller kl_weight=")
        return notes


def moved(followed) -> float:
    """How far mean importances moved between the last fifth of a fit and the fifth before.

    Parameters
    ----------
    followed : list of Tensor (P, G), or (C, P, G) of several classes
        Mean importances of some rows at every twentieth of the way (``bifkit.training.maximise``).

    Returns
    -------
    float
        Total variation between the means of the two fifths, averaged over rows, of the class where it is largest; 0
        where a fit was too short.

    >>> import torch
    >>> round(moved([torch.tensor([[0.5, 0.5]])] * 4 + [torch.tensor([[0.6, 0.4]])] * 4), 3)
    0.1
    """
    if len(followed) < 8:
        return 0.0
    before, last = sum(followed[-8:-4]) / 4, sum(followed[-4:]) / 4
    return float((last - before).abs().sum(-1).mean(-1).max() / 2)


def effective_features(network, x, null=0.0) -> float:
    """exp(entropy of the shares), averaged over the rows x; of the means in rows where hardly anything was added.

    Of several classes the largest.
    """
    found = network(x).detach().double().cpu().numpy()
    effective = []
    for alpha in found.reshape(-1, *found.shape[-2:]):
        added = np.clip(alpha - null, 0.0, None).sum(1, keepdims=True)
        weights = np.where(added < ADDED * null * alpha.shape[1], dirichlet.mean(alpha), dirichlet.share(alpha, null))
        effective.append(float(np.exp(special.entr(weights).sum(1)).mean()))
    return max(effective)


def diagnose(fits, x, features, *, null=0.0) -> Diagnostics:
    """The diagnostics of several fits; the worst speaks for all, and warns.

    Parameters
    ----------
    fits : list of (network, ndarray, list)
        Each with the ELBO of its steps and the importances followed on the way.
    x : Tensor (P, D)
        Rows to judge by.
    features : int
        Length of the importance vector.
    null : float
        What a feature that g does not use has of alpha.
    """
    found = [judge(curve, effective_features(network, x, null), features, moved(followed))
             for network, curve, followed in fits]
    worst = max(found, key=lambda d: (d.converged is False, d.flat))
    if notes := worst.advice():
        warn("; ".join(notes), FitWarning)
    return worst


def judge(curve, effective, features, exchanged=0.0) -> Diagnostics:
    """The diagnostics of one fit from its ELBO, step by step.

    >>> rng = np.random.default_rng(0)
    >>> level, rising = rng.normal(size=1000), rng.normal(size=1000) + np.linspace(0, 20, 1000)
    >>> judge(level, 3.0, 5).converged, judge(rising, 3.0, 5).converged, judge(level[:50], 3.0, 5).converged
    (True, False, None)
    """
    curve = np.asarray(curve, dtype=float)
    n = len(curve)
    fifth = max(n // 5, 1)
    last, middle, first = curve[-fifth:], curve[2 * fifth:3 * fifth], curve[:max(n // 20, 1)]
    rise, converged = 0.0, None
    if n >= ENOUGH:
        rise = float(last.mean() - middle.mean())
        error = np.sqrt((last.var() + middle.var()) / fifth)
        converged = not (exchanged > MOVED or rise > 3 * error and rise > RISEN * (last.mean() - first.mean()))
    return Diagnostics(n, float(curve[-max(n // 20, 1):].mean()), rise, converged, float(effective), features,
                       float(exchanged))
