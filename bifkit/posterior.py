"""Posterior: the one result object. A Dirichlet over named features: one for a data set, or one a row.

``alpha`` is (D,) (global) or (N, D) (local). Every number asked of it is a closed form of :mod:`bifkit.dirichlet`;
``settings`` record how it was learned. ``temperature`` is 1, or one number a feature after a calibration: then sd,
intervals and probabilities say how far a refit would lie, around the same means.
"""

from pathlib import Path  # noqa: F401 (the examples below)

import numpy as np
import pandas as pd

from bifkit import dirichlet, display, storage
from bifkit.inputs.groups import resolve_groups


class Posterior:
    """An explanation with its uncertainty.

    >>> p = Posterior([8.0, 1.0, 1.0], ["age", "sex", "income"])
    >>> p.mean.tolist(), p.top(1), round(float(p.probability_greater("age", "sex")), 3)
    ([0.8, 0.1, 0.1], ['age'], 0.996)
    """

    def __init__(self, alpha, feature_names=None, *, settings=None, index=None, temperature=1.0):
        self.alpha = dirichlet.check(alpha)
        D = self.alpha.shape[-1]
        self.temperature = dirichlet.check_temperature(temperature, D)
        self.feature_names = [str(n) for n in (feature_names if feature_names is not None else
                                               [f"x{i}" for i in range(D)])]
        if len(self.feature_names) != D:
            raise ValueError(f"{len(self.feature_names)} feature names for {D} features")
        if len(set(self.feature_names)) < D:
            raise ValueError("feature names must differ from each other")
        self.settings = dict(settings or {})
        self.index = pd.RangeIndex(len(self.alpha)) if index is None else index
        self.index = self.index if isinstance(self.index, pd.Index) else pd.Index(self.index)  # else levels are lost
        self.index = self.index if self.is_local else None  # only rows have labels
        if self.is_local and len(self.index) != len(self.alpha):
            raise ValueError(f"index has {len(self.index)} entries for {len(self.alpha)} rows")

    @property
    def is_local(self) -> bool:
        """One distribution a row, or one for all?

        >>> Posterior([1.0, 2.0]).is_local, Posterior([[1.0, 2.0]]).is_local
        (False, True)
        """
        return self.alpha.ndim == 2

    def __len__(self):
        return len(self.alpha) if self.is_local else 1

    def __getitem__(self, rows) -> "Posterior":
        """Some rows of a local posterior; one number gives that row's own (global-shaped) posterior."""
        if not self.is_local:
            raise TypeError("a global posterior has no rows")
        index = None if np.ndim(self.alpha[rows]) == 1 else self.index[rows]
        return Posterior(self.alpha[rows], self.feature_names, settings=self.settings, index=index,
                         temperature=self.temperature)

    @property
    def mean(self) -> np.ndarray:
        """Expected importance: (D,) or (N, D), sums to one.

        >>> Posterior([[1.0, 3.0], [2.0, 2.0]]).mean.tolist()
        [[0.25, 0.75], [0.5, 0.5]]
        """
        return dirichlet.mean(self.alpha)

    @property
    def sd(self) -> np.ndarray:
        """Standard deviation of each importance.

        >>> Posterior([1.0, 1.0]).sd.round(4).tolist()  # uniform on [0, 1]: 1 / sqrt(12)
        [0.2887, 0.2887]
        """
        return dirichlet.sd(self.alpha, self.temperature)

    @property
    def entropy(self):
        """Differential entropy in nats, one a row; lower is more certain.

        >>> Posterior([[1.0, 1.0], [50.0, 50.0]]).entropy.round(2).tolist()
        [0.0, -1.58]
        """
        return dirichlet.entropy(self._dirichlet("entropy"))

    @property
    def effective_features(self):
        """exp(entropy of the mean importances): how many features share the weight.

        >>> Posterior([[5.0, 5.0, 5.0, 5.0], [97.0, 1.0, 1.0, 1.0]]).effective_features.round(2).tolist()
        [4.0, 1.18]
        """
        m = self.mean
        return np.exp(-(m * np.log(m)).sum(-1))

    @property
    def doubt(self):
        """How open it is which features matter: sum of p (1 - p), p = P(importance > 1/D); rows of much doubt err more.

        >>> Posterior([[20.0, 20.0, 0.1], [4.0, 4.0, 3.0]]).doubt.round(2).tolist()  # surely two; two or three?
        [0.03, 0.7]
        """
        p = self.probability_above()
        return (p * (1 - p)).sum(-1)

    def interval(self, prob=0.95):
        """(lower, upper) equal-tailed credible bounds of each importance.

        >>> lower, upper = Posterior([8.0, 1.0, 1.0]).interval(0.9); bool((lower < upper).all())
        True
        """
        return dirichlet.interval(self.alpha, prob, self.temperature)

    def probability_top(self, k=1):
        """P(a feature is among the k most important), shape of ``mean``.

        >>> Posterior([8.0, 1.0, 1.0]).probability_top(1).round(1).tolist()
        [1.0, 0.0, 0.0]
        """
        return dirichlet.probability_top(self.alpha, k, temperature=self.temperature)

    def probability_above(self, threshold=None):
        """P(importance exceeds ``threshold``) of each feature, by default 1/D, the share it has when all matter alike.

        >>> Posterior([1.0, 1.0]).probability_above(0.25).tolist()
        [0.75, 0.75]
        """
        return dirichlet.probability_above(self.alpha, threshold, self.temperature)

    def calibrated(self, refits=None, *, temperature=None, prob=0.8) -> "Posterior":
        """The same means with a spread that tells how far the mean of a refit would lie (notebook 08).

        ``refits``: posteriors of ten or more other fits, each with fresh (or resampled) rows and a g of its own; every
        feature gets the temperature at which its ``prob`` interval holds a share ``prob`` of new refits. Or give
        ``temperature``: one for all features (a Dirichlet again, that of alpha / temperature), or one a feature.

        >>> p = Posterior([6.0, 2.0]).calibrated(temperature=2.0); p.alpha.tolist(), p.mean.tolist()
        ([3.0, 1.0], [0.75, 0.25])
        >>> p = Posterior([6.0, 2.0]).calibrated([Posterior([6.1, 2.0]), Posterior([6.0, 2.1]), Posterior([5.9, 2.0])])
        >>> [bound.round(2).tolist() for bound in p.interval(0.8)]
        [[0.73, 0.23], [0.77, 0.27]]
        """
        from bifkit.evaluation import calibration

        if (refits is None) == (temperature is None):
            raise ValueError("give either refits, a list of posteriors, or temperature=")
        if temperature is None:
            if (self.temperature != 1).any():
                raise ValueError("this posterior is calibrated already: start from the one that explain() gave")
            calibration.check([self, *calibration.check(refits)])
            temperature = calibration.temperature(refits, prob)
        temperature = dirichlet.check_temperature(temperature, len(self.feature_names))
        one = temperature.ndim == 0
        return Posterior(self.alpha / temperature if one else self.alpha, self.feature_names, index=self.index,
                         settings=self.settings | {"temperature": temperature.tolist()},
                         temperature=self.temperature * (1.0 if one else temperature))

    def _dirichlet(self, question):
        """alpha, where the spread is that of a Dirichlet."""
        if (self.temperature != 1).any():
            raise ValueError(f"with a temperature a feature this is no Dirichlet, and its {question} has no closed "
                             "form: ask the posterior before its calibration")
        return self.alpha

    def _position(self, feature):
        if isinstance(feature, str):
            if feature not in self.feature_names:
                raise ValueError(f"unknown feature {feature!r}; features are {', '.join(self.feature_names[:8])}")
            return self.feature_names.index(feature)
        D = len(self.feature_names)
        if not (isinstance(feature, int | np.integer) and -D <= feature < D):
            raise ValueError(f"feature number {feature} is out of range: there are {D} features")
        return feature

    def probability_greater(self, i, j):
        """P(importance of ``i`` exceeds that of ``j``), by name or position.

        >>> Posterior([8.0, 1.0], ["age", "sex"]).probability_greater("age", "sex").round(4)  # 1 - 2 ** -8
        np.float64(0.9961)
        """
        return dirichlet.probability_greater(self.alpha, self._position(i), self._position(j), self.temperature)

    def top(self, k=1) -> list:
        """Names of the k most important features by mean; local: a list a row.

        >>> Posterior([[1.0, 2.0], [2.0, 1.0]], ["a", "b"]).top(1)
        [['b'], ['a']]
        """
        if not 1 <= k <= len(self.feature_names):
            raise ValueError(f"k must lie between 1 and the number of features, {len(self.feature_names)}; got {k}")
        order = np.argsort(-self.mean, axis=-1, kind="stable")[..., :k]
        names = np.array(self.feature_names, dtype=object)
        return names[order].tolist()

    def group(self, mapping) -> "Posterior":
        """The exact posterior of sums over groups of features (dict, list of lists or integer mask).

        After a calibration by feature a group's temperature is the mean of its features', weighted by alpha.

        >>> Posterior([1.0, 2.0, 3.0], ["a", "b", "c"]).group({"ab": ["a", "b"]}).alpha.tolist()
        [3.0, 3.0]
        """
        index, names = resolve_groups(mapping, self.feature_names)
        alpha, temperature = dirichlet.group_sum(self.alpha, index), 1.0
        if (self.temperature != 1).any():  # variances t_i alpha_i of independent gamma variables add up
            weight = np.atleast_2d(self.alpha).mean(0)
            temperature = dirichlet.group_sum(weight * self.temperature, index) / dirichlet.group_sum(weight, index)
        return Posterior(alpha, names, settings=self.settings, index=self.index, temperature=temperature)

    def kl_to(self, other):
        """KL(self || other) in nats, one a row where either is local (section 4.4).

        >>> Posterior([2.0, 1.0]).kl_to(Posterior([1.0, 1.0])).round(4)  # log 2 - 1/2
        np.float64(0.1931)
        """
        if self.feature_names != other.feature_names:
            raise ValueError("the two posteriors are not over the same features in the same order")
        return dirichlet.kl(self._dirichlet("divergence"), other._dirichlet("divergence"))

    def to_global(self) -> "Posterior":
        """One Dirichlet for all rows: the mean of the rows' mixture, and its total variance.

        >>> Posterior([[8.0, 2.0], [2.0, 8.0]]).to_global().mean.tolist()
        [0.5, 0.5]
        """
        if not self.is_local:
            return self
        m = self.mean.mean(0)
        second = (self.sd**2 + self.mean**2).mean(0)
        concentration = (m * (1 - m)).sum() / max((second - m**2).sum(), 1e-12) - 1
        return Posterior(m * max(concentration, dirichlet.FLOOR), self.feature_names, settings=self.settings)

    def to_frame(self, prob=0.95) -> pd.DataFrame:
        """Global: a row a feature with mean, sd, interval; local: a row an instance with the means.

        >>> Posterior([3.0, 1.0], ["a", "b"]).to_frame().columns.tolist()
        ['mean', 'sd', 'lower', 'upper']
        """
        if self.is_local:
            return pd.DataFrame(self.mean, index=self.index, columns=self.feature_names)
        lower, upper = self.interval(prob)
        columns = {"mean": self.mean, "sd": self.sd, "lower": lower, "upper": upper}
        return pd.DataFrame(columns, index=pd.Index(self.feature_names, name="feature"))

    def plot(self, ax=None, **kw):
        """Importances with credible intervals; local: the rows x features heat map. Returns the Axes.

        >>> Posterior([3.0, 1.0]).plot().get_xlabel()
        'importance (mean and 95% interval)'
        """
        from bifkit import plots

        return (plots.heatmap if self.is_local else plots.importances)(self, ax=ax, **kw)

    def save(self, path):
        """One portable file without pickle; an index of numbers or dates keeps its type, any other becomes text.

        >>> import tempfile; folder = Path(tempfile.mkdtemp())
        >>> Posterior([3.0, 1.0], ["age", "sex"]).save(folder / "doctest.bif")
        >>> Posterior.load(folder / "doctest.bif").to_frame()["mean"].to_dict()
        {'age': 0.75, 'sex': 0.25}
        """
        meta = {"feature_names": self.feature_names, "settings": self.settings}
        if self.is_local:
            kept = isinstance(self.index.dtype, np.dtype | pd.DatetimeTZDtype) and self.index.dtype.kind in "iufMm"
            meta |= {"index": [str(i) for i in self.index], "index_dtype": str(self.index.dtype) if kept else "str",
                     "index_name": None if self.index.name is None else str(self.index.name)}
        arrays = {"alpha": self.alpha} | ({} if self.temperature.ndim == 0 else {"temperature": self.temperature})
        storage.write(path, "Posterior", arrays, meta)

    @classmethod
    def load(cls, path) -> "Posterior":
        """The posterior of a file; BadFile says what is wrong with it otherwise.

        >>> import tempfile; folder = Path(tempfile.mkdtemp())
        >>> Posterior([[3.0, 1.0]], index=[17]).save(folder / "doctest.bif")
        >>> Posterior.load(folder / "doctest.bif").index.tolist()
        [17]
        """
        arrays, meta = storage.read(path, "Posterior")
        try:
            index = None
            if "index" in meta:
                index = pd.Index(meta["index"], dtype="str", name=meta["index_name"]).astype(meta["index_dtype"])
            return cls(arrays["alpha"], meta["feature_names"], settings=meta["settings"], index=index,
                       temperature=arrays.get("temperature", 1.0))
        except (KeyError, TypeError, ValueError) as error:
            raise storage.BadFile(f"the file lacks something a Posterior needs ({error})") from None

    def __repr__(self):
        return display.text(self)

    def _repr_html_(self):
        return display.html(self)
