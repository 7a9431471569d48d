"""The rivals of the paper: L2X and INVASE, written from their papers, and wrappers of shap, lime and captum.

``L2X`` and ``INVASE`` train their own networks on the data: ``fit(X, y)``, ``scores(X)`` (N, G),
``selected(X)``, ``predict_proba(X)``. The functions of ``attribution`` explain a given model and return
|attribution| (N, D); they are loaded on first use, because importing shap, lime and captum takes seconds.
"""

import warnings
from importlib import import_module

from experiments.rivals.invase import INVASE
from experiments.rivals.l2x import L2X

# shap, loaded later, imports a progress bar that asks for a Jupyter widget nobody here needs
warnings.filterwarnings("ignore", message="IProgress not found")

_ATTRIBUTION = ["feature_ablation", "gradient_shap", "integrated_gradients", "lime_forest", "lime_image", "lime_model",
                "lime_patches", "saliency", "shap_deep", "shap_gradient", "shap_kernel", "shap_tree", "sum_groups"]
__all__ = ["INVASE", "L2X", *_ATTRIBUTION]


def __getattr__(name):
    if name in _ATTRIBUTION:
        return getattr(import_module("experiments.rivals.attribution"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
