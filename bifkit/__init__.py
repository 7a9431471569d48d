"""bifkit: Bayesian Importance of Features for any torch model, with honest error bars.

>>> from bifkit import GlobalBIF, LocalBIF, Posterior, distill, refine
"""

from bifkit.explain import GlobalBIF, LocalBIF
from bifkit.posterior import Posterior
from bifkit.refining import refine
from bifkit.surrogate import Distilled, distill

__version__ = "1.0.0"
__all__ = ["Distilled", "GlobalBIF", "LocalBIF", "Posterior", "distill", "refine"]
