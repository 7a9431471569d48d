"""Which way does a feature push? An importance has no sign; this asks g for one.

A feature's value is put back over its fill, the value of another row (a donor), and the change of g's output is
averaged over donors. It is done twice, with all other features as they are and with all of them filled by the same
donor, and the mean of the two is taken: for a g with interactions of at most two features at a time that is the Shapley
value against that donor. So it is exact for an additive g; nothing is claimed to add up for others.

Of a row that is the direction of *its* value: "this age raises the output". Over a data set such changes cancel, and
the question is another: does the output rise when the feature does? There each change counts with the sign of the
change of the feature's value. A group of features and a column of unordered categories have no such sign: NaN.

The output is the log-odds of a class (of the only logit, of the class against the rest) or, of a regression, the value.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from scipy import special

from bifkit.elbo import of_class
from bifkit.inputs import check_model, frozen, outputs
from bifkit.training import derive_seed

CELLS = 2**22  # numbers that g sees at a time


@dataclass(frozen=True, repr=False)
class Direction:
    """Which way each feature moves g's output; see :meth:`bifkit.Posterior.direction`.

    Attributes
    ----------
    mean : array (D,) or (N, D)
        Mean change of the output.
    lower, upper : arrays in the shape of ``mean``
        Interval of that mean, as uncertain as the donors (and, of a data set, the rows) leave it.
    feature_names : list of str
    index : pandas.Index or None
        Labels of the rows.
    output : str
        What changes, in words: "log-odds of class 1".
    """

    mean: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    feature_names: list
    index: pd.Index | None
    output: str

    @property
    def sign(self) -> np.ndarray:
        """1 where the output rises, -1 where it falls, 0 where the interval holds zero or there is no direction."""
        return np.where(self.lower > 0, 1, np.where(self.upper < 0, -1, 0))

    def __len__(self):
        return 1 if self.index is None else len(self.mean)

    def __getitem__(self, rows) -> "Direction":
        """Some rows, chosen as in numpy."""
        if self.index is None:
            raise TypeError("the direction of a data set has no rows")
        index = None if np.ndim(self.mean[rows]) == 1 else self.index[rows]
        return Direction(self.mean[rows], self.lower[rows], self.upper[rows], self.feature_names, index, self.output)

    def to_frame(self) -> pd.DataFrame:
        """Of a data set: one row per feature with mean, lower and upper. Of rows: the means, one row per instance."""
        if self.index is not None:
            return pd.DataFrame(self.mean, index=self.index, columns=self.feature_names)
        return pd.DataFrame({"mean": self.mean, "lower": self.lower, "upper": self.upper},
                            index=pd.Index(self.feature_names, name="feature"))

    def __repr__(self):
        if self.index is not None:
            return f"Direction of {len(self)} rows, {len(self.feature_names)} features: change of the {self.output}"
        order = [i for i in np.argsort(-np.abs(self.mean), kind="stable") if np.isfinite(self.mean[i])]  # NaN come last
        words = ", ".join(f"{self.feature_names[i]} {self.mean[i]:+.3g}" for i in order[:10])
        return f"Direction: {words}{', ...' if len(order) > 10 else ''}; change of the {self.output}"


def check_direction(direction, posterior) -> None:
    """An error for a direction that is not of this posterior, as far as shapes tell."""
    if np.shape(direction.mean) != np.shape(posterior.mean):
        raise ValueError(f"direction has shape {np.shape(direction.mean)}, the importances {np.shape(posterior.mean)}: "
                         "give that of this posterior, posterior.direction(explainer, X)")


def direction(posterior, explainer, X, *, target=None, reference=None, donors=20, rows=500, prob=0.95,
              seed=0) -> Direction:
    """The direction of a posterior's features; the parameters are those of :meth:`bifkit.Posterior.direction`."""
    if not hasattr(explainer, "networks_"):
        raise TypeError(f"explainer must be the fitted GlobalBIF or LocalBIF of this posterior; got "
                        f"{type(explainer).__name__}")
    if len(explainer.group_names_) != len(posterior.feature_names):
        raise ValueError(f"the posterior has {len(posterior.feature_names)} features, the explainer "
                         f"{len(explainer.group_names_)}: give the explainer that made it (before group())")
    if not (0 < prob < 1 and donors >= 2):
        raise ValueError(f"prob must lie strictly between 0 and 1 and donors be at least 2; got {prob} and {donors}")
    device, rng = check_model(explainer.model), np.random.default_rng(derive_seed("direction", seed))
    with frozen(explainer._explained()[0]):
        x, other = (explainer._rows(v, "cpu")[0] for v in (X, X if reference is None else reference))
        if posterior.is_local and len(x) != len(posterior):
            raise ValueError(f"X has {len(x)} rows and the posterior {len(posterior)}: give the rows that were "
                             "explained")
        if len(other) < 2:
            raise ValueError("the rows lend their values to each other: give at least two, or reference=X_train")
        z = other[rng.permutation(len(other))[:donors]].to(device)
        if not posterior.is_local:
            x = x[rng.permutation(len(x))[:rows]]
        x, groups = x.to(device), explainer._group_of_column(device)
        g, output = _one_output(explainer._flat_g(x), x, explainer, posterior, target)
        change = _changes(g, x, z, groups)  # (N, M, G)
    if posterior.is_local:
        mean, variance = change.mean(1), change.var(1, ddof=1) / len(z)
        freedom = len(z) - 1
    else:
        change = change * _rises(x, z, groups, explainer)
        mean = change.mean((0, 1))
        variance = change.mean(1).var(0, ddof=1) / len(x) + change.mean(0).var(0, ddof=1) / len(z)
        freedom = min(len(x), len(z)) - 1
    half = special.stdtrit(freedom, (1 + prob) / 2) * np.sqrt(variance)
    return Direction(mean, mean - half, mean + half, list(posterior.feature_names), posterior.index, output)


def _one_output(whole, x, explainer, posterior, target):
    """g as a function of rows and their numbers to one output each, (B,), and what that is in words."""
    n_outputs, likelihood = outputs(whole, x[:2]).shape[1], explainer.likelihood_
    target = posterior.settings.get("class") if target is None else target
    what = "value" if likelihood == "regression" else "log-odds"
    if target is not None and not 0 <= target < max(n_outputs, 2):
        raise ValueError(f"target must be the number of a class or output, 0 to {max(n_outputs, 2) - 1}; got {target}")
    if n_outputs == 1:
        sign = -1.0 if likelihood != "regression" and target == 0 else 1.0
        return lambda v, i: sign * whole(v)[:, 0], what + (f" of class {int(sign > 0)}" if what == "log-odds" else "")
    if target is None and likelihood == "categorical" and n_outputs == 2:
        target = 1
    if target is not None:
        part = "output" if likelihood == "regression" else "class"
        return lambda v, i: of_class(whole(v), target, likelihood)[:, 0], f"{what} of {part} {target}"
    if not posterior.is_local or likelihood != "categorical":
        raise ValueError(f"g has {n_outputs} outputs: say which one's direction you want, target=0 to {n_outputs - 1}")
    best = outputs(whole, x).argmax(1)  # (N,)

    def of_best(v, i):
        logits, own = whole(v), best[i].unsqueeze(1)
        rest = logits.scatter(1, own, -torch.inf).logsumexp(1)
        return logits.gather(1, own)[:, 0] - rest

    return of_best, "log-odds of the row's predicted class"


@torch.no_grad()
def _changes(g, x, z, groups):
    """Change of g's output as each group's values come back over a donor's, (N, M, G): mean of the two contexts.

    Columns behind those of ``groups`` (ids, masks) stay a row's own.
    """
    (n, width), m, count = x.shape, len(z), int(groups.max()) + 1
    groups = torch.nn.functional.pad(groups, (0, width - len(groups)), value=-1)  # (width,)
    found, each = np.empty((n, m, count)), max(CELLS // (m * width), 1)
    for i in range(0, n, each):
        numbers = torch.arange(i, min(i + each, n), device=x.device).repeat_interleave(m)
        own, donor = x[numbers], z.repeat(len(numbers) // m, 1)  # (B M, width)
        donor = torch.where(groups < 0, own, donor)
        present, absent = g(own, numbers), g(donor, numbers)
        for k in range(count):
            inside = groups == k
            last, first = g(torch.where(inside, donor, own), numbers), g(torch.where(inside, own, donor), numbers)
            change = 0.5 * ((present - last) + (first - absent))
            found[i:i + each, :, k] = change.double().cpu().numpy().reshape(-1, m)
    return found


def _rises(x, z, groups, explainer):
    """1 where a row's value is above the donor's, -1 below, 0 at it, (N, M, G); NaN where there is no above."""
    table = getattr(explainer.model, "table_", None)
    ordered = np.array([c.ordered for c in table.columns.values()] if table else [True] * x.shape[1])
    position = {int(k): i for i, k in enumerate(groups.tolist())}
    alone = np.bincount(groups.cpu().numpy()) == 1
    signs = np.full((len(x), len(z), len(alone)), np.nan)
    for k in np.flatnonzero(alone).tolist():
        if ordered[position[k]]:
            gap = x[:, None, position[k]] - z[None, :, position[k]]
            signs[..., k] = gap.sign().cpu().numpy()
    return signs
