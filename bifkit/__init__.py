"""bifkit: Bayesian Importance of Features for any torch model, with honest error bars.

>>> from bifkit import GlobalBIF, LocalBIF, Posterior, distill, refine, windows
"""

import importlib

from bifkit.evaluation import compare, refits
from bifkit.explainers import GlobalBIF, LocalBIF
from bifkit.inputs import Distilled, distill, windows
from bifkit.posterior import Posterior
from bifkit.refine import refine

__version__ = "1.0.0"
__all__ = ["Distilled", "GlobalBIF", "LocalBIF", "Posterior", "compare", "distill", "plots", "refine", "refits",
           "windows"]


def __getattr__(name):
    """``bifkit.plots`` is imported when it is first asked for, and matplotlib with it."""
    if name == "plots":
        return importlib.import_module("bifkit.plots")
    raise AttributeError(f"module 'bifkit' has no attribute {name!r}")
