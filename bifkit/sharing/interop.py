"""What other rooms and other packages make of a posterior; what they need is imported when it is asked for."""

import importlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from bifkit import evaluation
    from bifkit.posterior import Posterior


def _need(package, method):
    """The package, or an error that names it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ImportError(f"{method} needs the package {package}, which is not installed: install {package}, or use "
                          "posterior.plot() and posterior.to_frame()") from error


def _coordinates(posterior):
    """Dimensions of a posterior's arrays and the labels along them."""
    names = {"feature": posterior.feature_names}
    if not posterior.is_local:
        return names
    index = posterior.index
    return {"row": index.to_numpy() if index.nlevels == 1 else [" / ".join(map(str, i)) for i in index]} | names


class Interop:
    """The methods of a :class:`bifkit.Posterior` that lead out of the core: questions of the room evaluation, figures,
    a page, and the types of shap, xarray and arviz.
    """

    def relevant(self, prob=0.7) -> "evaluation.Relevant":
        """Which features matter, and how many, when nobody says.

        A feature matters when its importance exceeds half an equal share, 1 / (2 D), with probability above ``prob``.
        So of those found, a part of at most 1 - prob is expected to be false; ``expected_false`` is the number.

        >>> Posterior([8.0, 6.0, 0.1, 0.1], ["age", "pay", "sex", "id"]).relevant()
        Relevant(prob=0.7): age, pay; 0.0 of 2 expected to be false

        Parameters
        ----------
        prob : float, default 0.7
            Chosen on development data (notebook 07); .9 or .95 where a false one costs more than a missed one.

        Returns
        -------
        Relevant
            ``names``, ``mask``, ``probability``, ``number``, ``expected_false``; per row, if local.
        """
        from bifkit.evaluation import relevant

        return relevant(self, prob)

    def direction(self, explainer, X, *, target=None, reference=None, donors=20, rows=500, prob=0.95,
                  seed=0) -> "evaluation.Direction":
        """Which way each feature moves g's output: importances have no sign, this asks g for one.

        Local: the mean change of the output when the row's own value is put back over those of other rows. Global: the
        mean change when the feature goes from a lower value to a higher one; NaN for a group of features and for
        unordered categories, which have no higher. Exact for an additive g; the changes of another need not add up. The
        output is a class's log-odds, or the value of a regression (:mod:`bifkit.evaluation.directions`).

        >>> import bifkit, torch
        >>> rows = np.random.default_rng(0).normal(size=(200, 2)).astype("float32")
        >>> g = torch.nn.Linear(2, 1, bias=False); _ = g.weight.data.copy_(torch.tensor([[3.0, -3.0]]))
        >>> explainer = bifkit.GlobalBIF(g, likelihood="binary", min_steps=20, epochs=1).fit(rows)
        >>> explainer.explain().direction(explainer, rows).sign.tolist()
        [1, -1]

        Parameters
        ----------
        explainer : GlobalBIF or LocalBIF
            The fitted one that made this posterior.
        X : DataFrame, array or tensor
            The rows that were explained; for a global posterior any rows of the data.
        target : int, optional
            Number of the class or output that is looked at. By default class 1 of two, the class of ``classes=``, and
            of several classes each row's predicted one.
        reference : like X, optional
            Rows that lend their values; X by default.
        donors : int, default 20
            How many of them; each feature costs 2 x donors calls of g for every row.
        rows : int, default 500
            Rows of X used for a global direction, drawn at random.
        prob : float, default 0.95
            Probability of the interval of the mean change.
        seed : int, default 0
            Fixes which rows are drawn.

        Returns
        -------
        Direction
            ``mean``, ``lower``, ``upper``, ``sign``; plots take it as ``direction=``.
        """
        from bifkit.evaluation import direction

        return direction(self, explainer, X, target=target, reference=reference, donors=donors, rows=rows, prob=prob,
                         seed=seed)

    def calibrated(self, refits=None, *, temperature=None, prob=0.8) -> "Posterior":
        """The same means with a spread that says how far the mean of a refit would lie (notebook 08).

        >>> p = Posterior([6.0, 2.0]).calibrated([Posterior([5.9 + 0.02 * i, 2.0]) for i in range(12)])
        >>> [bound.round(2).tolist() for bound in p.interval(0.8)]
        [[0.75, 0.25], [0.75, 0.25]]

        Parameters
        ----------
        refits : list of Posterior, optional
            Ten or more other fits, each with fresh (or resampled) rows and a g of its own. Every feature gets the
            temperature at which its interval holds a share ``prob`` of new refits.
        temperature : float or array (D,), optional
            Instead of refits: one for all (a Dirichlet again, that of alpha / temperature), or one per feature.
        prob : float, default 0.8
            Probability of the interval that the refits calibrate.
        """
        from bifkit.evaluation import calibrated

        return calibrated(self, refits, temperature, prob)

    def to_shap(self, X=None, *, direction=None):
        """A ``shap.Explanation`` of the means, for shap's bar, beeswarm, scatter and heatmap.

        Importances do not add up to a prediction: shap's waterfall is not meaningful here, with signs or without.

        Parameters
        ----------
        X : DataFrame, array or tensor (N, D), optional
            The rows that were explained: they colour a beeswarm, and a scatter needs them.
        direction : Direction, optional
            Of this posterior: the importances get the signs of its mean changes.
        """
        from bifkit.evaluation import check_direction

        shap = _need("shap", "to_shap")
        values, data = self.mean, None
        if direction is not None:
            check_direction(direction, self)
            values = values * np.nan_to_num(np.sign(direction.mean))
        if X is not None:
            data = np.asarray(X).reshape(len(X), -1)
            if data.shape != values.shape:
                raise ValueError(f"X has shape {data.shape}, the importances {values.shape}: give the rows that were "
                                 "explained, one column per feature, or leave X out")
        base = np.zeros(len(values)) if self.is_local else 0.0
        return shap.Explanation(values=values, base_values=base, data=data, feature_names=list(self.feature_names))

    def to_xarray(self, prob=0.95):
        """An ``xarray.Dataset`` of alpha, mean, share, sd, lower and upper, over ``feature`` and, if local, ``row``.

        Parameters
        ----------
        prob : float, default 0.95
            Probability of the interval.
        """
        xarray, where = _need("xarray", "to_xarray"), _coordinates(self)
        lower, upper = self.interval(prob)
        values = {"alpha": self.alpha, "mean": self.mean, "share": self.share, "sd": self.sd, "lower": lower,
                  "upper": upper}
        return xarray.Dataset({name: (tuple(where), value) for name, value in values.items()}, where, {"prob": prob})

    def to_arviz(self, draws=1000, *, seed=0):
        """An ``arviz.InferenceData`` with draws of the variable ``importance``, for arviz's tables and plots.

        Parameters
        ----------
        draws : int, default 1000
            Number of draws, in one chain: they are independent.
        seed : int, default 0
            Fixes them.
        """
        arviz, where = _need("arviz", "to_arviz"), _coordinates(self)
        values = {"importance": self.sample(draws, seed=seed)[None]}  # (chain, draw, ...)
        older = hasattr(arviz, "InferenceData")  # before arviz 1, groups are keywords
        dims = {"importance": list(where)}
        return arviz.from_dict(values if older else {"posterior": values}, coords=where, dims=dims)

    def plot(self, ax=None, **kw):
        """Draw the importances with their intervals or, if local, a heat map of rows and features; returns the Axes.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            A new figure by default.
        **kw
            Options of :func:`bifkit.plots.importances` or, if local, :func:`bifkit.plots.heatmap`.
        """
        from bifkit import plots

        return (plots.heatmap if self.is_local else plots.importances)(self, ax=ax, **kw)

    def report(self, path, *, explainer=None, title=None, prob=0.95) -> None:
        """Write one HTML file with tables, figures, settings and versions, to send or keep; it needs no network.

        >>> import tempfile, pathlib
        >>> file = pathlib.Path(tempfile.mkdtemp(), "report.html")
        >>> Posterior([3.0, 1.0], ["age", "sex"]).report(file)
        >>> file.read_text(encoding="utf-8")[:15]
        '<!doctype html>'

        Parameters
        ----------
        path : str or Path
            Ends in ``.html``; an older file is replaced when the new one is whole.
        explainer : GlobalBIF or LocalBIF, optional
            The fitted one that gave this posterior: adds how the fit went.
        title : str, optional
        prob : float, default 0.95
            Probability of the credible intervals.
        """
        from bifkit.sharing import report

        report.write(self, path, explainer=explainer, title=title, prob=prob)
