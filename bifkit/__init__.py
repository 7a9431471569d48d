"""bifkit: Bayesian Importance of Features for any torch model, with honest error bars.

>>> from bifkit import GlobalBIF, LocalBIF, Posterior
"""

from bifkit.explain import GlobalBIF, LocalBIF
from bifkit.posterior import Posterior

__version__ = "0.1.0"
__all__ = ["GlobalBIF", "LocalBIF", "Posterior"]
