"""Handing a posterior to other tools; what they need is imported when it is asked for."""

import numpy as np


def to_shap(posterior, X=None):
    """A ``shap.Explanation`` of the mean importances, for shap's bar, beeswarm, scatter and heatmap.

    Importances have no sign and sum to one, so they do not add up to a prediction: ``shap.plots.waterfall`` and
    ``force``, which draw such a sum, are not meaningful here.

    Parameters
    ----------
    posterior : Posterior
        Global or local.
    X : DataFrame, array or tensor (N, D), optional
        The rows that were explained: they colour a beeswarm, and a scatter needs them. Not with groups of columns.
    """
    try:
        import shap
    except ImportError as error:
        raise ImportError("to_shap needs the package shap, which is not installed: install shap, or use "
                          "posterior.plot()") from error
    values, data = posterior.mean, None
    if X is not None:
        data = np.asarray(X).reshape(len(X), -1)
        if data.shape != values.shape:
            raise ValueError(f"X has shape {data.shape}, the importances {values.shape}: give the rows that were "
                             "explained, one column per feature, or leave X out")
    base = np.zeros(len(values)) if posterior.is_local else 0.0
    return shap.Explanation(values=values, base_values=base, data=data,
                            feature_names=list(posterior.feature_names))
