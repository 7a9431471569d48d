"""The answer to "which features matter, and how many?"."""

from dataclasses import dataclass

import numpy as np
import pandas as pd


@dataclass(frozen=True, repr=False)
class Relevant:
    """The features that matter, with the probability of each; see :meth:`bifkit.Posterior.relevant`.

    Parameters
    ----------
    prob : float
        A feature is among them when its probability is above this.
    probability : array (D,) or (N, D)
        That each feature matters, for a data set or for each row.
    feature_names : list of str
    index : pandas.Index, optional
        Labels of the rows.

    >>> found = Relevant(0.8, np.array([[0.99, 0.9, 0.1], [0.2, 0.95, 0.3]]), ["a", "b", "c"])
    >>> found.names, found.number.tolist(), found.expected_false.round(2).tolist()
    ([['a', 'b'], ['b']], [2, 1], [0.11, 0.05])
    """

    prob: float
    probability: np.ndarray
    feature_names: list
    index: pd.Index | None = None

    @property
    def mask(self) -> np.ndarray:
        """Whether each feature matters, bool (D,) or (N, D)."""
        return self.probability > self.prob

    @property
    def names(self) -> list:
        """Names of the features that matter, most probable first; a list of such lists, one per row, if local."""
        rows = [[self.feature_names[i] for i in np.argsort(-p, kind="stable") if p[i] > self.prob]
                for p in np.atleast_2d(self.probability)]
        return rows if self.probability.ndim == 2 else rows[0]

    @property
    def number(self):
        """How many features matter, one number or one per row."""
        return self.mask.sum(-1)

    @property
    def expected_false(self):
        """How many of them are expected not to matter, one number or one per row."""
        return np.where(self.mask, 1 - self.probability, 0.0).sum(-1)

    @property
    def false_discovery_rate(self) -> float:
        """The part of all that were found, over all rows, which is expected not to matter; 0 where none was found."""
        return float(np.sum(self.expected_false) / max(self.mask.sum(), 1))

    def to_frame(self) -> pd.DataFrame:
        """Global: one row per feature with its probability and whether it matters. Local: which matter in each row."""
        if self.probability.ndim == 2:
            return pd.DataFrame(self.mask, index=self.index, columns=self.feature_names)
        frame = pd.DataFrame({"probability": self.probability, "relevant": self.mask},
                             index=pd.Index(self.feature_names, name="feature"))
        return frame.sort_values("probability", ascending=False, kind="stable")

    def __repr__(self):
        if self.probability.ndim == 2:
            return (f"Relevant(prob={self.prob:g}): {len(self.probability)} rows, on average {self.number.mean():.1f} "
                    f"features each; {self.false_discovery_rate:.0%} expected to be false")
        names = ", ".join(self.names[:10]) + (", ..." if self.number > 10 else "")
        return (f"Relevant(prob={self.prob:g}): {names or 'none'}; {self.expected_false:.1f} of {self.number} "
                "expected to be false")


def relevant(posterior, prob=0.7) -> Relevant:
    """The features of a posterior that matter; the parameters are those of :meth:`bifkit.Posterior.relevant`."""
    if not 0 < prob < 1:
        raise ValueError(f"prob must lie strictly between 0 and 1; got {prob}")
    above = posterior.probability_above(0.5 / len(posterior.feature_names))
    return Relevant(prob, above, posterior.feature_names, posterior.index)
