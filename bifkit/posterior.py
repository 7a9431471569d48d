"""Posterior: the one result object. A Dirichlet over named features, one for a data set or one per row.

Every number that one asks of it is a closed form of :mod:`bifkit.dirichlet`.
"""

import numpy as np
import pandas as pd
from scipy import special

from bifkit import dirichlet, sharing, storage
from bifkit.inputs import check_posterior, pack_index, resolve_groups, unpack_index


class Posterior(sharing.Interop):
    """An explanation with its uncertainty: the distribution of the features' importances, which sum to one.

    Parameters
    ----------
    alpha : array (D,) or (N, D)
        Parameters of the Dirichlet: (D,) for a data set (global), (N, D) for one per row (local).
    feature_names : list of str, optional
        One name per feature, all different; x0, x1, ... by default.
    settings : dict, optional
        How the posterior was learned; saved with it.
    index : pandas.Index or list, optional
        One label per row of a local posterior; 0, 1, ... by default.
    temperature : float or array (D,), default 1.0
        Scale of the spread around the same means, see :meth:`calibrated`; 1 is the Dirichlet of alpha itself.
    null : float or array (D,), default 0.0
        What a feature that g does not use has of alpha: the prior's parameter. ``share`` counts what is above it.

    Attributes
    ----------
    alpha, temperature, null : float64 arrays
    feature_names : list of str
    settings : dict
    index : pandas.Index, or None for a global posterior

    Examples
    --------
    >>> p = Posterior([8.0, 1.0, 1.0], ["age", "sex", "income"])
    >>> p.mean.tolist(), p.top(1), round(float(p.probability_greater("age", "sex")), 3)
    ([0.8, 0.1, 0.1], ['age'], 0.996)
    """

    def __init__(self, alpha, feature_names=None, *, settings=None, index=None, temperature=1.0,
                 null=0.0):
        self.alpha = dirichlet.check(alpha)
        D = self.alpha.shape[-1]
        self.temperature = dirichlet.check_temperature(temperature, D)
        self.null = np.broadcast_to(np.asarray(null, dtype=np.float64), (D,)) if np.any(null) else np.float64(0.0)
        if not ((self.null >= 0) & (self.null < np.inf)).all():
            raise ValueError(f"null must be finite and not negative; got {null}")
        self.feature_names = [str(n) for n in ([f"x{i}" for i in range(D)] if feature_names is None else feature_names)]
        if len(self.feature_names) != D:
            raise ValueError(f"{len(self.feature_names)} feature names for {D} features")
        if len(set(self.feature_names)) < D:
            raise ValueError("feature names must differ from each other")
        self.settings = dict(settings or {})
        index = pd.RangeIndex(len(self.alpha)) if index is None else index
        index = index if isinstance(index, pd.Index) else pd.Index(index)  # an Index as it is: it may have levels
        self.index = index if self.is_local else None  # only rows have labels
        if self.is_local and len(index) != len(self.alpha):
            raise ValueError(f"index has {len(index)} entries for {len(self.alpha)} rows")

    @property
    def is_local(self) -> bool:
        """True if there is one distribution per row, False if there is one for all."""
        return self.alpha.ndim == 2

    def __len__(self):
        return len(self.alpha) if self.is_local else 1

    def __getitem__(self, rows) -> "Posterior":
        """Some rows of a local posterior, chosen as in numpy; a number gives that row's own, global posterior."""
        if self.index is None:
            raise TypeError("a global posterior has no rows; to_frame().loc[name] is one feature")
        index = None if np.ndim(self.alpha[rows]) == 1 else self.index[rows]
        return Posterior(self.alpha[rows], self.feature_names, settings=self.settings, index=index,
                         temperature=self.temperature, null=self.null)

    @property
    def mean(self) -> np.ndarray:
        """Expected importance of each feature, (D,) or (N, D); sums to one over the features."""
        return dirichlet.mean(self.alpha)

    @property
    def share(self) -> np.ndarray:
        """Importance of each feature net of the prior, in the shape of ``mean``; sums to one over the features.

        A Dirichlet's alpha is the prior's parameter plus what the fit has added, as counts are. The mean holds both,
        and in a wide table the first may be most of it; the share counts the second alone: (alpha - null) where that
        is positive, in parts of its sum (the mean, where nothing was added to any feature).

        >>> wide = Posterior([6.0, 4.0] + [0.01] * 1000, null=0.01)
        >>> wide.mean[:2].round(2).tolist(), wide.share[:2].round(2).tolist()
        ([0.3, 0.2], [0.6, 0.4])
        """
        return dirichlet.share(self.alpha, self.null)

    @property
    def sd(self) -> np.ndarray:
        """Standard deviation of each importance, in the shape of ``mean``."""
        return dirichlet.sd(self.alpha, self.temperature)

    @property
    def entropy(self) -> np.ndarray:
        """Differential entropy in nats, one per row; lower is more certain."""
        return dirichlet.entropy(self._dirichlet("entropy"))

    @property
    def effective_features(self) -> np.ndarray:
        """How many features share the weight: exp(entropy of the shares), one per row.

        >>> Posterior([[5.0, 5.0, 5.0, 5.0], [97.0, 1.0, 1.0, 1.0]]).effective_features.round(2).tolist()
        [4.0, 1.18]
        """
        return np.exp(special.entr(self.share).sum(-1))

    @property
    def doubt(self) -> np.ndarray:
        """How open it is which features matter, one per row: the sum of p (1 - p), p = P(importance > 1/D).

        >>> Posterior([[20.0, 20.0, 0.1], [4.0, 4.0, 3.0]]).doubt.round(2).tolist()  # surely two; two or three?
        [0.03, 0.7]
        """
        p = self.probability_above()
        return (p * (1 - p)).sum(-1)

    def interval(self, prob=0.95) -> tuple[np.ndarray, np.ndarray]:
        """Equal-tailed credible interval of each importance; ``to_frame`` has it with the features' names.

        It says how much room g leaves, not how far a refit would lie: that is ``calibrated``. Of many rows the bounds
        are interpolated, within 1e-6 (:func:`bifkit.dirichlet.of_many`).

        Parameters
        ----------
        prob : float, default 0.95
            Probability that the interval holds.

        Returns
        -------
        (lower, upper) : arrays in the shape of ``mean``
        """
        return dirichlet.interval(self.alpha, prob, self.temperature)

    def sample(self, n=1, *, seed=0) -> np.ndarray:
        """Draws of the importances f, to compute anything else from.

        >>> f = Posterior([8.0, 1.0, 1.0]).sample(1000, seed=1)
        >>> f.shape, bool(abs((f[:, 0] > 2 * f[:, 1]).mean() - 0.974) < 0.02)
        ((1000, 3), True)

        Parameters
        ----------
        n : int, default 1
            Number of draws.
        seed : int, default 0
            Fixes them.

        Returns
        -------
        array (n, D), or (n, N, D) of N rows
            Each draw sums to one over the features.
        """
        if not (isinstance(n, int | np.integer) and n >= 1):
            raise ValueError(f"n must be a whole number of at least 1; got {n!r}")
        return np.exp(dirichlet.log_draws(self.alpha, n, np.random.default_rng(seed), self.temperature))

    def __array__(self, dtype=None, copy=None):
        """numpy takes a posterior for its means."""
        if copy is False:
            raise ValueError("the means are computed when they are asked for, and cannot be had without a copy")
        return self.mean if dtype is None else self.mean.astype(dtype)

    def probability_top(self, k=1) -> np.ndarray:
        """Probability that each feature is among the ``k`` most important, in the shape of ``mean``.

        >>> Posterior([8.0, 1.0, 1.0]).probability_top(1).round(1).tolist()
        [1.0, 0.0, 0.0]
        """
        return dirichlet.probability_top(self.alpha, k, temperature=self.temperature)

    def probability_above(self, threshold=None) -> np.ndarray:
        """Probability that each importance exceeds ``threshold``, in the shape of ``mean``.

        >>> Posterior([1.0, 1.0]).probability_above(0.25).tolist()
        [0.75, 0.75]

        Parameters
        ----------
        threshold : float, optional
            By default 1/D, the share of each feature if all mattered alike.
        """
        return dirichlet.probability_above(self.alpha, threshold, self.temperature)

    def probability_greater(self, i, j):
        """Probability that feature ``i`` is more important than feature ``j``, one per row.

        >>> Posterior([8.0, 1.0], ["age", "sex"]).probability_greater("age", "sex").round(4)  # 1 - 2 ** -8
        np.float64(0.9961)

        Parameters
        ----------
        i, j : str or int
            Names or positions of two features.
        """
        return dirichlet.probability_greater(self.alpha, self._position(i), self._position(j), self.temperature)

    def top(self, k=1) -> list:
        """Names of the ``k`` features with the largest means; a list of such lists, one per row, if local.

        >>> Posterior([[1.0, 2.0], [2.0, 1.0]], ["a", "b"]).top(1)
        [['b'], ['a']]
        """
        if not 1 <= k <= len(self.feature_names):
            raise ValueError(f"k must lie between 1 and the number of features, {len(self.feature_names)}; got {k}")
        order = np.argsort(-self.mean, axis=-1, kind="stable")[..., :k]
        return np.array(self.feature_names, dtype=object)[order].tolist()

    def group(self, mapping) -> "Posterior":
        """The exact posterior of sums of importances over groups of features.

        After a calibration per feature, a group's temperature is the mean of its features', weighted by alpha.

        >>> Posterior([1.0, 2.0, 3.0], ["a", "b", "c"]).group({"ab": ["a", "b"]}).alpha.tolist()
        [3.0, 3.0]

        Parameters
        ----------
        mapping : dict, list of lists or integer array (D,)
            Features by name or position under each group's name; the rest stay alone. Or each feature's group number.
        """
        index, names = resolve_groups(mapping, self.feature_names)
        alpha, temperature = dirichlet.group_sum(self.alpha, index), 1.0
        if (self.temperature != 1).any():  # variances t_i alpha_i of independent gamma variables add up
            weight = np.atleast_2d(self.alpha).mean(0)
            temperature = dirichlet.group_sum(weight * self.temperature, index) / dirichlet.group_sum(weight, index)
        null = dirichlet.group_sum(np.broadcast_to(self.null, self.alpha.shape[-1:]) + 1.0, index) - np.bincount(index)
        return Posterior(alpha, names, settings=self.settings, index=self.index, temperature=temperature, null=null)

    def kl_to(self, other):
        """KL(self || other) in nats, one per row where either is local (section 4.4).

        >>> Posterior([2.0, 1.0]).kl_to(Posterior([1.0, 1.0])).round(4)  # log 2 - 1/2
        np.float64(0.1931)

        Parameters
        ----------
        other : Posterior
            Over the same features in the same order.
        """
        if self.feature_names != other.feature_names:
            raise ValueError("the two posteriors are not over the same features in the same order")
        return dirichlet.kl(self._dirichlet("divergence"), other._dirichlet("divergence"))

    def to_global(self) -> "Posterior":
        """One Dirichlet for all rows: the mean of the rows' mixture, and its total variance."""
        if not self.is_local:
            return self
        m, second, prior = dirichlet.mixture(self.alpha, self.temperature, self.null)
        concentration = (m * (1 - m)).sum() / max((second - m**2).sum(), 1e-12) - 1
        concentration = max(concentration, dirichlet.FLOOR)
        return Posterior(m * concentration, self.feature_names, settings=self.settings, null=prior * concentration)

    def to_frame(self, prob=0.95) -> pd.DataFrame:
        """The numbers as a table.

        Parameters
        ----------
        prob : float, default 0.95
            Probability of the credible interval.

        Returns
        -------
        pandas.DataFrame
            Global: one row per feature with share (net of the prior), mean, sd, lower and upper. Local: one row per
            instance with its shares.
        """
        if self.is_local:
            return pd.DataFrame(self.share, index=self.index, columns=self.feature_names)
        lower, upper = self.interval(prob)
        columns = {"share": self.share, "mean": self.mean, "sd": self.sd, "lower": lower, "upper": upper}
        return pd.DataFrame(columns, index=pd.Index(self.feature_names, name="feature"))

    def save(self, path) -> None:
        """Write one portable file without pickle; an index of numbers or dates keeps its type, others become text.

        >>> import tempfile
        >>> file = tempfile.mkdtemp() + "/people.bif"
        >>> Posterior([3.0, 1.0], ["age", "sex"]).save(file)
        >>> Posterior.load(file).to_frame()["mean"].to_dict()
        {'age': 0.75, 'sex': 0.25}
        """
        meta = {"feature_names": self.feature_names, "settings": self.settings}
        more = {"temperature": self.temperature, "null": self.null}
        arrays = {"alpha": self.alpha} | {name: value for name, value in more.items() if value.ndim}
        labels, how = ({}, {}) if self.index is None else pack_index(self.index)
        storage.write(path, "Posterior", arrays | labels, meta | how)

    @classmethod
    def load(cls, path) -> "Posterior":
        """Read the posterior of a file that :meth:`save` wrote; a ``BadFile`` error says what is wrong with another."""
        arrays, meta = storage.read(path, "Posterior")
        try:
            check_posterior(arrays, meta)
            return cls(arrays["alpha"], meta["feature_names"], settings=meta["settings"],
                       index=unpack_index(arrays, meta),
                       temperature=arrays.get("temperature", 1.0), null=arrays.get("null", 0.0))
        except Exception as error:  # whatever a stranger's file provokes
            raise storage.bad("the file lacks something a Posterior needs", error) from None

    def _dirichlet(self, question):
        """alpha, where the spread is that of a Dirichlet."""
        if (self.temperature != 1).any():
            raise ValueError(f"with one temperature per feature this is no Dirichlet, and its {question} has no closed "
                             "form: ask the posterior before its calibration")
        return self.alpha

    def _position(self, feature):
        """Position of a feature, from its name or position."""
        if isinstance(feature, str):
            if feature not in self.feature_names:
                known = ", ".join(self.feature_names[:8]) + (", ..." if len(self.feature_names) > 8 else "")
                raise ValueError(f"unknown feature {feature!r}; features are {known}")
            return self.feature_names.index(feature)
        D = len(self.feature_names)
        if not (isinstance(feature, int | np.integer) and -D <= feature < D):
            raise ValueError(f"feature number {feature} is out of range: there are {D} features")
        return feature

    def __repr__(self):
        return sharing.text(self)

    def _repr_html_(self):
        return sharing.html(self)
