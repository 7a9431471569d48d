"""What a fitted explainer is made of: its rows and g as fit saw them, alpha of rows, and posteriors of alpha.

:mod:`bifkit.explainers` fits it; what asks a fitted one again, ``refine`` and ``posterior.direction``, reads rows and
calls g by the same methods.
"""

import dataclasses

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from bifkit import inputs
from bifkit.dirichlet import FLOOR
from bifkit.posterior import Posterior
from bifkit.training import seeded


class Fitted(BaseEstimator):
    """What :class:`bifkit.GlobalBIF` and :class:`bifkit.LocalBIF` share beside fitting and files."""

    def _explained(self):
        """What is explained, g or its surrogate, and which part of what it returns."""
        if hasattr(self, "surrogate_"):
            return self.surrogate_, None
        if hasattr(self, "surrogate_report_") and not isinstance(self.model, inputs.MaskedSurrogate):
            raise ValueError("this explainer was fitted on a surrogate, which is not part of its file: fit again")
        return self.model, self.output

    def _stand_in(self, X, y, s):
        """Train the surrogate on the rows of fit."""
        if s.fill == "marginal":
            raise ValueError("surrogate=True stands in for g where features are blank (preset='few'); the fill "
                             "'marginal' of this preset shows other rows' values, which g knows")
        if isinstance(X, (tuple, dict)) or self.embedding is not None:
            raise ValueError("surrogate=True stands in for a g of one table or image, not of several inputs or ids")
        if inputs.is_loader(X):
            raise ValueError("surrogate=True needs the rows in memory: train one with bifkit.masked_surrogate on some "
                             "of them, and explain that")
        self.surrogate_ = inputs.masked_surrogate(
            self.model, X, groups=self.groups, fill=s.fill, likelihood=self.likelihood, output=self.output, y=y,
            seed=self.seed, progress=self.progress)

    def _learn_names(self, X, rows):
        """Features, groups and shape, as ``explain`` will need them."""
        self.layout_, self.n_features_in_ = rows.layout, len(rows.names)
        self.groups_, self.group_names_ = np.arange(self.n_features_in_), list(rows.names)
        self.shape_ = rows.shape if rows.layout is None else (self.n_features_in_,)
        if self.groups is not None:
            groups = self.groups if rows.layout is None else rows.layout.groups(self.groups)
            self.groups_, self.group_names_ = inputs.resolve_groups(groups, rows.names, self.shape_, self.group_names)
        if len(self.group_names_) < 2:
            raise ValueError("all features stand in one group: importance is relative, so at least two are needed")
        self.feature_names_ = rows.names
        self.columns_ = None if rows.columns is None else [str(c) for c in rows.columns]
        if self.columns_ and hasattr(X, "columns") and all(isinstance(c, str) for c in X.columns):
            self.feature_names_in_ = np.array(self.columns_, dtype=object)  # scikit-learn's convention

    def _rows(self, X, device):
        """Rows as fit saw them, in one tensor; the names of X's own columns, and the index of a frame."""
        X = inputs.numbers(self.model, X)  # of a stand-in's raw frame
        if hasattr(X, "columns") and self.columns_ is not None:
            X = inputs.in_order(X, self.columns_)
        return inputs.flat_rows(X, self.layout_, width=self.n_features_in_, device=device, model=self.model)

    def _flat_g(self, x):
        """g as a function of such rows."""
        shape = self.shape_ if self.layout_ is None else x.shape[1:]
        return inputs.view(inputs.flat_model(*self._explained(), self.layout_), shape)

    def _group_of_column(self, device):
        """The group of each gated value of a row, (width,)."""
        of_feature = self.groups_ if self.layout_ is None else self.groups_[self.layout_.feature_of_column()]
        return torch.as_tensor(of_feature, device=device)

    def score(self, X, y) -> float:
        """How well g predicts ``y`` from the whole rows ``X``: what ``score_`` is for the rows of fit.

        Parameters
        ----------
        X : DataFrame, array or tensor
            Rows.
        y : array
            Their labels.
        """
        self._check_fitted()
        device = inputs.check_model(self.model)
        with seeded("score"), inputs.frozen(self._explained()[0]):
            x = self._rows(X, device)[0]
            output = inputs.outputs(self._flat_g(x), x)
        labels = inputs.check_y(y, len(x), output.shape[1], self.likelihood_)[1]
        if labels is None:
            raise ValueError("score compares g's answers with labels: give y")
        return inputs.score(output, labels.to(device), self.likelihood_)

    def __sklearn_is_fitted__(self):
        return hasattr(self, "networks_")

    def _check_fitted(self):
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(f"this {type(self).__name__} is not fitted: call fit(X, y) first")

    def _each_class(self):
        """The numbers of the classes that are explained one by one; [None] where the decision is."""
        return self.classes_ if isinstance(self.classes_, list) else [self.classes_]

    def _which_class(self):
        classes = [str(c) for c in self._each_class() if c is not None]
        return "" if not classes else f" class {classes[0]}" if len(classes) == 1 else f", {len(classes)} classes"

    def _alpha(self, x):
        """alpha of some rows, (classes, B, G): averaged over the restarts."""
        with torch.no_grad():
            alphas = np.stack([network(x).double().cpu().numpy() for network in self.networks_])
        if alphas.ndim == 4:  # a head for each class; older files have a network for each
            return alphas.mean(0)
        return alphas.reshape(len(self._each_class()), -1, *alphas.shape[1:]).mean(1)

    def _answer(self, alphas, index=None, names=None):
        """The posterior of ``alphas``, one per class; {class: posterior} where several classes were asked for."""
        posteriors = {c: self._posterior(alpha, index, names, {} if c is None else {"class": c})
                      for c, alpha in zip(self._each_class(), alphas, strict=True)}
        return posteriors if isinstance(self.classes_, list) else posteriors[self.classes_]

    def _posterior(self, alpha, index, names, more):
        groups = list(self.group_names_)
        for i, new in enumerate(names or []):  # a feature that stands alone goes by its new name
            g = self.groups_[i]
            if self.group_names_[g] == self.feature_names_[i] and (self.groups_ == g).sum() == 1:
                groups[g] = new
        meta = {"explainer": type(self).__name__, "preset": self.preset, **dataclasses.asdict(self.settings_),
                "seed": self.seed, "elbo": self.elbo_} | more
        if hasattr(self, "surrogate_report_"):
            meta["surrogate"] = self.surrogate_report_
        return Posterior(alpha, groups, settings=meta, index=index, null=self.settings_.prior + FLOOR)

    def _importances(self, x):
        """The global share of each feature, of some rows."""
        shares = [self._posterior(alpha, None, None, {}).to_global().share for alpha in self._alpha(x)]
        return (np.mean(shares, axis=0) / np.bincount(self.groups_))[self.groups_]
