"""Has a fit converged, and does it say anything? What ``fit`` judges at its end, and the warning it gives.

*Converged.* The ELBO still rises when its mean over the last fifth of the steps exceeds that of the middle fifth by
more than three standard errors (batches and draws make the curve rough) and more than ``RISEN`` of all that was gained
since the start. The importances still move when more than ``MOVED`` of them, in total variation, changed hands between
the last two fifths: an ELBO that is nearly level can hide a slow exchange between features. That neither is so is no
proof: a fit that starts very slowly looks level too.

*Flat.* The effective number of features, exp(entropy of the mean importances), is nearly the number of features: the
explanation does not tell them apart.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np
import torch

from bifkit.inputs import checks as door

ENOUGH = 100  # steps below which a curve is too short to judge
RISEN = 0.15  # of the gain; 72 default fits, synthetic and real, had up to .13
MOVED = 0.08  # 1000 steps and more stay below .075, also on real data; 300 that are far off are mostly above
FLAT = 0.98  # of all features


class FitWarning(UserWarning):
    """A fit that should not be trusted as it is; the message holds the advice.

    >>> issubclass(FitWarning, UserWarning)
    True
    """


@dataclass(frozen=True)
class Diagnostics:
    """What is known of a fit: ``converged`` is None where there were too few steps to judge.

    >>> Diagnostics(1000, -0.5, 0.001, True, 4.2, 11).advice()
    []
    """

    steps: int
    elbo: float  # mean over the last twentieth
    rise: float  # of the ELBO, from the middle fifth of the steps to the last, in nats
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
        the fit has not converged (the ELBO still rises by 0.2 nats in its second half): give min_steps= more than 200
        """
        notes = []
        if self.converged is False:
            what = f"the ELBO still rises by {self.rise:.2g} nats in its second half" if self.moved <= MOVED else \
                f"{self.moved:.0%} of the importance still changes hands in its last fifth"
            notes.append(f"the fit has not converged ({what}): give min_steps= more than {self.steps}")
        if self.flat:
            notes.append(f"the explanation is flat ({self.effective_features:.1f} effective features of "
                         f"{self.features}): g uses all of them alike, or hardly at all, or the KL weighs too much; "
                         "look at the ELBO curve, try a smaller kl_weight=, or preset='few'")
        return notes


class Drift:
    """How far the mean importances of some rows move between the last fifth of a fit and the fifth before.

    >>> drift, network = Drift(torch.zeros(1, 2)), torch.nn.Linear(2, 2)
    >>> for alpha in [[5.0, 5.0]] * 4 + [[6.0, 4.0]] * 4:
    ...     network.bias.data = torch.tensor(alpha); drift.look(network)
    >>> round(drift.moved(), 3)
    0.1
    """

    def __init__(self, x):
        self.x, self.means = x, deque(maxlen=8)

    @torch.no_grad()
    def look(self, network):
        """Take down the importances as they are now: to be called at every twentieth of a fit."""
        mode = network.training
        alpha = network.eval()(self.x)
        network.train(mode)
        self.means.append(alpha / alpha.sum(1, keepdim=True))

    def moved(self) -> float:
        """Total variation between the means of the two fifths, averaged over rows; 0 where a fit was too short."""
        if len(self.means) < 8:
            return 0.0
        before, last = (torch.stack(part).mean(0) for part in (list(self.means)[:4], list(self.means)[4:]))
        return float((last - before).abs().sum(1).mean() / 2)


def effective_features(network, x) -> float:
    """exp(entropy of the mean importances), averaged over the rows x.

    >>> import torch
    >>> effective_features(lambda x: torch.ones(len(x), 4), torch.zeros(3, 2))
    4.0
    """
    alpha = network(x).detach().double().cpu().numpy()
    m = alpha / alpha.sum(1, keepdims=True)
    return float(np.exp(-(m * np.log(m)).sum(1)).mean())


def of(fits, x, features) -> Diagnostics:
    """The diagnostics of ``fits``, each (network, ELBO of each step, drift); the worst speaks for all, and warns.

    >>> import torch, warnings
    >>> sure, flat = lambda x: torch.tensor([[9.0, 0.1, 0.1]]), lambda x: torch.ones(1, 3)
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     of([(sure, np.zeros(200), 0.0), (flat, np.zeros(200), 0.0)], torch.zeros(1, 3), 3).flat, len(caught)
    (True, 1)
    """
    found = [judge(curve, effective_features(network, x), features, moved) for network, curve, moved in fits]
    worst = max(found, key=lambda d: (d.converged is False, d.flat))
    if notes := worst.advice():
        door.warn("; ".join(notes), FitWarning)
    return worst


def judge(curve, effective, features, moved=0.0) -> Diagnostics:
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
        converged = not (moved > MOVED or rise > 3 * error and rise > RISEN * (last.mean() - first.mean()))
    return Diagnostics(n, float(curve[-max(n // 20, 1):].mean()), rise, converged, float(effective), features,
                       float(moved))
