"""Handing a posterior to other tools; what they need is imported when it is asked for."""

import importlib

import numpy as np


def _need(package, method):
    """The package, or an error that names it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ImportError(f"{method} needs the package {package}, which is not installed: install {package}, or use "
                          "posterior.plot() and posterior.to_frame()") from error


def to_shap(posterior, X=None, direction=None):
    """A ``shap.Explanation`` of the mean importances, for shap's bar, beeswarm, scatter and heatmap.

    Importances sum to one, so they do not add up to a prediction: ``shap.plots.waterfall`` and ``force``, which draw
    such a sum, are not meaningful here, with signs or without.

    Parameters
    ----------
    posterior : Posterior
        Global or local.
    X : DataFrame, array or tensor (N, D), optional
        The rows that were explained: they colour a beeswarm, and a scatter needs them. Not with groups of columns.
    direction : Direction, optional
        Signs for the importances, those of the mean changes; unknown ones (NaN) are zero.
    """
    shap = _need("shap", "to_shap")
    values, data = posterior.mean, None
    if direction is not None:
        if np.shape(direction.mean) != values.shape:
            raise ValueError(f"direction has shape {np.shape(direction.mean)}, the importances {values.shape}: give "
                             "that of this posterior, posterior.direction(explainer, X)")
        values = values * np.nan_to_num(np.sign(direction.mean))
    if X is not None:
        data = np.asarray(X).reshape(len(X), -1)
        if data.shape != values.shape:
            raise ValueError(f"X has shape {data.shape}, the importances {values.shape}: give the rows that were "
                             "explained, one column per feature, or leave X out")
    base = np.zeros(len(values)) if posterior.is_local else 0.0
    return shap.Explanation(values=values, base_values=base, data=data,
                            feature_names=list(posterior.feature_names))


def _coordinates(posterior):
    """Dimensions of a posterior's arrays and the labels along them."""
    names = {"feature": posterior.feature_names}
    if not posterior.is_local:
        return names
    index = posterior.index
    return {"row": index.to_numpy() if index.nlevels == 1 else [" / ".join(map(str, i)) for i in index]} | names


def to_xarray(posterior, prob=0.95):
    """An ``xarray.Dataset`` of a posterior's numbers; the parameters are those of ``Posterior.to_xarray``."""
    xarray, where = _need("xarray", "to_xarray"), _coordinates(posterior)
    lower, upper = posterior.interval(prob)
    values = {"alpha": posterior.alpha, "mean": posterior.mean, "share": posterior.share, "sd": posterior.sd,
              "lower": lower, "upper": upper}
    return xarray.Dataset({name: (tuple(where), value) for name, value in values.items()}, where, {"prob": prob})


def to_arviz(posterior, draws=1000, seed=0):
    """An ``arviz.InferenceData`` of independent draws; the parameters are those of ``Posterior.to_arviz``."""
    arviz, where = _need("arviz", "to_arviz"), _coordinates(posterior)
    values = {"importance": posterior.sample(draws, seed=seed)[None]}  # (chain, draw, ...)
    older = hasattr(arviz, "InferenceData")  # before arviz 1, groups are keywords
    return arviz.from_dict(values if older else {"posterior": values}, coords=where, dims={"importance": list(where)})
