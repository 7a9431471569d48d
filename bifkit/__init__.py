"""bifkit: Bayesian Importance of Features for any torch model, with honest error bars.

>>> from bifkit import GlobalBIF, LocalBIF, Posterior, distill, refine, windows
"""

import importlib

from bifkit import evaluation
from bifkit.evaluation import compare, refits
from bifkit.explainers import GlobalBIF, LocalBIF
from bifkit.inputs import Distilled, distill, masked_surrogate, windows
from bifkit.posterior import Posterior
from bifkit.refine import refine

__version__ = "1.0.0"
__all__ = ["Distilled", "GlobalBIF", "LocalBIF", "Posterior", "compare", "distill", "masked_surrogate", "metrics",
           "plots", "refine", "refits", "windows"]


def __getattr__(name):
    """``plots`` is imported when it is first asked for, as it brings matplotlib; ``metrics`` is evaluation's name."""
    if name == "plots":
        return importlib.import_module("bifkit.plots")
    if name == "metrics":
        return evaluation
    raise AttributeError(f"module 'bifkit' has no attribute {name!r}")
