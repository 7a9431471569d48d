"""bifkit: Bayesian Importance of Features for any torch model, with honest error bars.

>>> from bifkit import GlobalBIF, LocalBIF, Posterior, distill, refine, windows
"""

import importlib

from bifkit.evaluation import compare, refits
from bifkit.explainers import GlobalBIF, LocalBIF
from bifkit.inputs import Distilled, distill, masked_surrogate, windows
from bifkit.posterior import Posterior
from bifkit.refine import refine

__version__ = "1.0.0"
__all__ = ["Distilled", "GlobalBIF", "LocalBIF", "Posterior", "compare", "distill", "masked_surrogate", "metrics",
           "plots", "refine", "refits", "windows"]


def __getattr__(name):
    """``bifkit.plots`` and ``bifkit.metrics`` are imported when they are first asked for (plots bring matplotlib)."""
    if name in ("plots", "metrics"):
        return importlib.import_module(f"bifkit.{name}")
    raise AttributeError(f"module 'bifkit' has no attribute {name!r}")
