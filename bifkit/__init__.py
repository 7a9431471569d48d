"""bifkit: Bayesian Importance of Features for any torch model, with honest error bars.

>>> from bifkit import GlobalBIF, LocalBIF, Posterior, distill, refine
"""

from bifkit.explainers import GlobalBIF, LocalBIF
from bifkit.inputs.distilling import Distilled, distill
from bifkit.posterior import Posterior
from bifkit.refine import refine

__version__ = "1.0.0"
__all__ = ["Distilled", "GlobalBIF", "LocalBIF", "Posterior", "distill", "refine"]
