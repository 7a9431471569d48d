"""Do selections tell by what they keep, or by where they look? EVAL-X, what the mask alone tells, and encoding.

A selector that sees the whole row can write its answer into the *place* of what it keeps. A judge that was trained on
whole rows does not notice (it may even read the place), and its accuracy then says little of the kept values.

    evaluator = Evaluator(k=5).fit(X_train, y_train)   # one for all methods of a table
    evaluator.score(X_test, y_test, masks)             # EVAL-X: accuracy, AUC, log-likelihood of the selections
    evaluator.encoding(X_test, y_test, masks)          # does the mask tell more of y than the kept values do?
    evaluator.fixed_set(X_train, y_train, 3)           # one set for all rows, which every per-row choice should beat
    mask_only(masks, y_test)                           # what the masks alone tell

*EVAL-X* (Jethani et al., 2021) trains its classifier on masks that are drawn without looking at the row: then a place
tells it nothing, and it predicts from the kept values alone. It still cannot see a choice among values: a selector that
knows the answer may keep whichever value happens to agree with it. *Encoding* (Puli et al., 2024) covers both: given
the kept values, does the label still depend on which of them were selected?
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import stats

from bifkit import storage
from bifkit.inputs import MaskedNetwork, blank_row, check_training, check_X, resolve_groups, train_masked
from bifkit.training import seeded

KINDS = ("sizes", "half")


def _labels(y: Any, n: int) -> np.ndarray:
    """Class numbers (n,), checked."""
    y = np.asarray(y.detach().cpu() if isinstance(y, torch.Tensor) else y)
    if y.shape != (n,):
        raise ValueError(f"y has shape {y.shape}, there are {n} rows: give one class number per row")
    if y.dtype.kind not in "biuf" or not np.isfinite(y).all() or (y != np.round(y)).any() or y.min() < 0:
        raise ValueError("y must hold class numbers 0, 1, ...: encode the labels first")
    return y.astype(np.int64)


def _masks(masks: Any, n: int, widths: tuple[int, ...]) -> np.ndarray:
    """Selections as bool (n, G): one row per instance, or one for all."""
    masks = np.atleast_2d(np.asarray(masks.detach().cpu() if isinstance(masks, torch.Tensor) else masks))
    if masks.ndim != 2 or len(masks) not in (1, n) or masks.shape[1] not in widths:
        raise ValueError(f"masks have shape {masks.shape}: expected ({n}, {widths[0]}), one row per instance and one "
                         f"column per feature or group, or ({widths[0]},) for all rows alike")
    if masks.dtype != bool and not np.isin(masks, (0, 1)).all():
        raise ValueError("masks must be True or False (kept or not): of importances take bifkit.evaluation.top_k_mask")
    return np.broadcast_to(masks.astype(bool), (n, masks.shape[1]))


def _check_k(k: Any, groups: int) -> None:
    if not (isinstance(k, int | np.integer) and 1 <= k <= groups):
        raise ValueError(f"k must be a whole number from 1 to the {groups} features or groups; got {k!r}")


@dataclass(frozen=True)
class Encoding:
    """Does a mask tell more about the label than the kept values do?

    Parameters
    ----------
    gain : float
        Nats per row by which knowing that this was selected improves on what the kept values tell, on held-out rows.
    error : float
        Standard error of ``gain``.
    p : float
        Chance of such a gain without encoding (one-sided t-test over rows).
    encodes : bool
        The verdict: ``p`` below .001 and ``gain`` at least .01 (less may be the evaluator's own error).
    """

    gain: float
    error: float
    p: float
    encodes: bool

    def __str__(self) -> str:
        what = "the masks tell more of y than the kept values do" if self.encodes else \
            "no sign that the masks tell more of y than the kept values do"
        return f"{what} ({self.gain:+.3f} ± {self.error:.3f} nats per row, p = {self.p:.2g})"


LEVEL, LEAST_GAIN, FOLDS = 0.001, 0.01, 4


class Evaluator:
    """A classifier trained on masks that were drawn without looking at the row (EVAL-X); it judges selections.

    >>> X = np.random.default_rng(0).normal(size=(600, 3)).astype("float32"); y = (X[:, 0] > 0).astype(int)
    >>> evaluator = Evaluator(k=1, epochs=1, min_steps=300, hidden=32).fit(X, y)
    >>> tells, does_not = (evaluator.score(X, y, np.eye(3)[i])["accuracy"] for i in (0, 1))
    >>> tells > 0.95, does_not < 0.6
    (True, True)

    Parameters
    ----------
    masks : {"sizes", "half"}, default "sizes"
        The masks of its training: a number of kept features uniform on 1 .. ``k`` and then so many at random, or each
        feature with probability 1/2 (as published; of many features it then hardly ever sees few).
    k : int, optional
        The largest number of features that "sizes" keeps: that of the selections to be judged; by default all.
    sees_mask : bool, default True
        Whether the mask is an input beside the masked row. Without it a blank cannot be told from a value that happens
        to be the fill.
    groups : dict, list of lists or integer mask, optional
        Features that are kept together, as for LocalBIF.
    fill : "mean" (default), "zero", float or array (D,)
        What stands where nothing is kept.
    epochs, min_steps : int, default 40 and 2000
        Passes over the rows, and the least number of steps.
    batch_size, lr : int, float, default 250, 3e-3
        Training: AdamW with a one-cycle schedule up to ``lr``.
    hidden : int, default 200
        Width of the two hidden layers.
    seed : int, default 0
        The same seed gives the same evaluator.
    progress : bool, optional
        A bar; by default in a terminal.
    """

    def __init__(self, masks="sizes", *, k=None, sees_mask=True, groups=None, fill="mean", epochs=40, min_steps=2000,
                 batch_size=250, lr=3e-3, hidden=200, seed=0, progress=None):
        if masks not in KINDS:
            raise ValueError(f"masks must be one of {', '.join(KINDS)}; got {masks!r}")
        check_training(epochs, min_steps, batch_size, hidden)
        self.masks, self.k, self.sees_mask, self.groups, self.fill = masks, k, bool(sees_mask), groups, fill
        self.epochs, self.min_steps, self.batch_size = int(epochs), int(min_steps), int(batch_size)
        self.lr, self.hidden = float(lr), int(hidden)
        self.seed, self.progress = seed, progress

    def fit(self, X, y) -> "Evaluator":
        """Train on rows ``X`` with labels ``y``, apart from those whose selections will be judged.

        Parameters
        ----------
        X : DataFrame, array or tensor
            Rows.
        y : array (N,)
            Class numbers.
        """
        x, shape, names, _ = check_X(X, at_least=2)
        y = _labels(y, len(x))
        groups, group_names = resolve_groups(self.groups, names, shape)
        G = len(group_names)
        most = G if self.k is None else self.k
        _check_k(most, G)
        self.groups_, self.n_groups_, self.n_classes_ = torch.as_tensor(groups), G, max(int(y.max()) + 1, 2)
        with seeded("evaluator", self.seed):
            network = self._new_network(x.shape[1])
            network.standardise(blank_row(self.fill, x), x.std(0))
            train_masked(network, x, torch.from_numpy(y), "categorical", groups=self.groups_,
                         kind="half" if self.masks == "half" else int(most), epochs=self.epochs,
                         min_steps=self.min_steps, batch_size=self.batch_size, lr=self.lr,
                         name=f"EVAL-X ({self.masks})", progress=self.progress)
        self.network_ = network
        return self

    def _new_network(self, width):
        return MaskedNetwork(width, self.n_classes_, n_groups=self.n_groups_ if self.sees_mask else 0,
                             hidden=self.hidden)

    def predict_proba(self, X, masks) -> np.ndarray:
        """Class probabilities (N, C) from the kept part of each row.

        Parameters
        ----------
        X : DataFrame, array or tensor
            Rows.
        masks : bool array (N, G), (G,), (N, D) or (D,)
            What is kept: features or groups; with groups also single features (the network is then told the share of
            each group).
        """
        self._check_fitted()
        D = len(self.groups_)
        x = check_X(X, width=D)[0]
        masks = torch.from_numpy(np.array(_masks(masks, len(x), (self.n_groups_, D))))
        if masks.shape[1] == self.n_groups_:
            kept, shares = masks[:, self.groups_], masks.float()
        else:
            sizes = torch.bincount(self.groups_, minlength=self.n_groups_)
            kept = masks
            shares = torch.zeros(len(x), self.n_groups_).index_add_(1, self.groups_, masks.float()) / sizes
        with torch.no_grad():
            parts = [self.network_(torch.where(m, rows, self.network_.centre), s) for rows, m, s in
                     zip(x.split(8192), kept.split(8192), shares.split(8192), strict=True)]
        return torch.cat(parts).double().softmax(1).numpy()

    def score(self, X, y, masks) -> dict[str, float]:
        """EVAL-X of selections: ``accuracy``, ``auc`` (several classes: one against the rest, mean) and
        ``log_likelihood`` (a mean over rows, in nats).

        Parameters
        ----------
        X, y : array (N, D), array (N,)
            Rows that the evaluator was not trained on, and their labels.
        masks : bool array (N, G) or (G,)
            What is kept of each row, or of all.
        """
        p = self.predict_proba(X, masks)
        y = self._known(y, len(p))
        return {"accuracy": float((p.argmax(1) == y).mean()), "auc": _auc(p, y),
                "log_likelihood": float(_log_p(p, y, 1e-12).mean())}

    def search(self, X, y, k) -> list[int]:
        """The numbers of ``k`` features or groups, in the order of a forward search by log-likelihood, for all rows.

        Parameters
        ----------
        X, y : array (N, D), array (N,)
            Training or validation rows: never those that are judged with it. A few thousand are enough.
        k : int
            How many features or groups.
        """
        self._check_fitted()
        _check_k(k, self.n_groups_)
        x = check_X(X, width=len(self.groups_))[0]
        y = self._known(y, len(x))
        found: list[int] = []
        for _ in range(k):
            tried: dict[int, float] = {}
            for i in set(range(self.n_groups_)) - set(found):
                p = self.predict_proba(x, np.isin(np.arange(self.n_groups_), [*found, i]))
                tried[i] = _log_p(p, y, 1e-12).mean()
            found.append(max(tried, key=lambda i: tried[i]))
        return found

    def fixed_set(self, X, y, k) -> np.ndarray:
        """The best single set of ``k`` features for all rows that a forward search finds: bool (G,).

        Parameters
        ----------
        X, y, k
            As for :meth:`search`.
        """
        return np.isin(np.arange(self.n_groups_), self.search(X, y, k))

    def encoding(self, X, y, masks) -> Encoding:
        """Does a selection tell more about ``y`` than the kept values do?

        What kept values tell is this evaluator's prediction p. Two small boosted classifiers learn y from p and the
        mask: one where every mask was handed to another row, so that it was chosen without looking at the row that it
        is laid on; the other where each row has its own. On rows that neither has seen, and on their own masks, the
        second is better only if it matters *that* this was selected here: which place, or which value. (Both learn
        from p, so a p that is too sure of itself is no encoding.)

        Parameters
        ----------
        X, y : array (N, D), array (N,)
            Rows that the evaluator was not trained on, and their labels; a thousand or more.
        masks : bool array (N, G)
            What is kept of each row.

        Returns
        -------
        Encoding
        """
        from sklearn.model_selection import StratifiedKFold  # slow to import

        x = check_X(X, width=len(self.groups_))[0]
        y, masks = self._known(y, len(x)), _masks(masks, len(x), (self.n_groups_, len(self.groups_)))
        counts = np.bincount(y)
        if counts[counts > 0].min() < FOLDS or (counts > 0).sum() < 2:
            raise ValueError(f"encoding needs at least {FOLDS} rows of each class, and two classes")
        y = np.unique(y, return_inverse=True)[1]  # without classes that do not occur

        def log_odds(rows, mask):
            log_p = np.log(np.maximum(self.predict_proba(x[rows], mask), 1e-3))
            return log_p[:, 1:] - log_p[:, :1]

        more, rng = np.zeros(len(y)), np.random.default_rng(0)
        for rest, part in StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(y, y):
            others = masks[rng.permutation(rest)]
            new = log_odds(part, masks[part]), masks[part], y[part]
            more[part] = _learn(log_odds(rest, masks[rest]), masks[rest], y[rest])(*new) \
                - _learn(log_odds(rest, others), others, y[rest])(*new)
        gain, error = float(more.mean()), float(more.std(ddof=1) / len(y) ** 0.5)
        p_value = float(stats.t.sf(gain / error, len(y) - 1)) if error > 0 else 1.0
        return Encoding(gain, error, p_value, p_value < LEVEL and gain >= LEAST_GAIN)

    def _check_fitted(self):
        if not hasattr(self, "network_"):
            raise ValueError("this Evaluator is not fitted: call fit(X, y) first")

    def _known(self, y, n):
        y = _labels(y, n)
        if y.max() >= self.n_classes_:
            raise ValueError(f"y holds the class {y.max()}, the evaluator knows {self.n_classes_}")
        return y

    def save(self, path):
        """Write the fitted evaluator to one file without pickle.

        Parameters
        ----------
        path : str or Path
            Such as "judge.bif".
        """
        self._check_fitted()
        arrays = {key: value.numpy() for key, value in self.network_.state_dict().items()}
        storage.write(path, "Evaluator", arrays | {"groups": self.groups_.numpy()}, {
            "masks": self.masks, "k": self.k, "sees_mask": self.sees_mask, "epochs": self.epochs,
            "min_steps": self.min_steps, "lr": self.lr, "batch_size": self.batch_size, "hidden": self.hidden,
            "seed": self.seed, "classes": self.n_classes_})

    @classmethod
    def load(cls, path) -> "Evaluator":
        """The fitted evaluator of a file.

        Parameters
        ----------
        path : str or Path
            Written by ``save``.
        """
        arrays, meta = storage.read(path, "Evaluator")
        try:
            classes, groups = meta.pop("classes"), arrays.pop("groups")
            self = cls(**meta, groups=groups, fill=arrays["centre"])
            G = int(groups.max()) + 1
            if groups.dtype != np.int64 or groups.ndim != 1 or set(groups.tolist()) != set(range(G)):
                raise ValueError("features and groups do not fit together")
            self.groups_, self.n_groups_ = torch.from_numpy(groups), G
            self.n_classes_ = int(classes)
            with torch.device("meta"):  # where a network of any size takes no memory
                network = self._new_network(len(groups))
            state = {key: torch.from_numpy(value) for key, value in arrays.items()}
            shapes, expected = ({k: (v.shape, v.dtype) for k, v in d.items()} for d in (state, network.state_dict()))
            if shapes != expected:
                raise ValueError("the network's arrays are of other shapes or types")
            if not all(v.isfinite().all() for v in state.values()) or not (state["scale"] > 0).all():
                raise ValueError("the network's numbers are not finite")
            network.load_state_dict(state, assign=True)
            self.network_ = network.eval()
        except Exception as error:  # whatever a stranger's file provokes
            raise storage.bad("the file lacks something an Evaluator needs", error) from None
        return self


def _learn(told, masks, y):
    """A function of (log-odds (n, C - 1), masks, labels) that gives log p of each label, learned from these rows."""
    from sklearn.ensemble import HistGradientBoostingClassifier  # slow to import

    tree = HistGradientBoostingClassifier(max_iter=200, learning_rate=0.05, max_leaf_nodes=4, min_samples_leaf=40,
                                          early_stopping=True, random_state=0).fit(np.hstack([told, masks]), y)

    def log_p(told, masks, truth):
        return _log_p(tree.predict_proba(np.hstack([told, masks])), truth, 1e-6)

    return log_p


def _log_p(p, y, least):
    """log probability of each row's label, of probabilities (n, C) that count as at least so much."""
    return np.log(np.maximum(p[np.arange(len(y)), y], least))


def _auc(p, y):
    """Area under the ROC curve; of several classes the mean of each one against the rest; NaN with one class."""
    from sklearn.metrics import roc_auc_score  # slow to import

    present = [c for c in range(p.shape[1]) if 0 < (y == c).sum() < len(y)]
    if p.shape[1] == 2:
        present = present[1:]
    return float(np.mean([roc_auc_score(y == c, p[:, c]) for c in present])) if present else float("nan")


def evalx(X, y, masks, *, X_train=None, y_train=None, evaluator=None, **options) -> dict[str, float]:
    """EVAL-X of selections in one call: what a classifier that was trained on blind masks reads from what is kept.

    >>> X = np.random.default_rng(0).normal(size=(900, 3)).astype("float32"); y = (X[:, 0] > 0).astype(int)
    >>> found = evalx(X, y, np.eye(3, dtype=bool)[0], k=1, epochs=1, min_steps=300, hidden=32)
    >>> found["accuracy"] > 0.9, sorted(found)
    (True, ['accuracy', 'auc', 'log_likelihood'])

    Parameters
    ----------
    X, y : array (N, D), array (N,)
        Rows that were explained, and their labels.
    masks : bool array (N, G) or (G,)
        What is kept of each row.
    X_train, y_train : array, optional
        Rows to train the evaluator on. By default the explained rows themselves serve: an evaluator trained on either
        half judges the other.
    evaluator : Evaluator, optional
        A fitted one: take the same for all methods that are compared.
    **options
        Of :class:`Evaluator`, where none is given.

    Returns
    -------
    dict
        ``accuracy``, ``auc``, ``log_likelihood``.
    """
    if evaluator is not None:
        if options or X_train is not None or y_train is not None:
            raise ValueError("a fitted evaluator has its own training: leave X_train, y_train and its options out")
        return evaluator.score(X, y, masks)
    if X_train is not None:
        return Evaluator(**options).fit(X_train, y_train).score(X, y, masks)
    if len(X) < 4:
        raise ValueError("without X_train one half of the rows judges the other: give at least four rows")
    x, y = check_X(X)[0], _labels(y, len(X))
    masks = np.array(np.broadcast_to(np.atleast_2d(masks), (len(x), np.shape(masks)[-1])))
    half = np.arange(len(x)) % 2 == 0
    found = [Evaluator(**options).fit(x[a], y[a]).score(x[~a], y[~a], masks[~a]) for a in (half, ~half)]
    return {name: float(np.mean([f[name] for f in found])) for name in found[0]}


def fixed_set(X, y, k, *, evaluator=None, **options) -> np.ndarray:
    """The best single set of ``k`` features for all rows, bool (G,): the baseline that a choice per row must beat.

    >>> X = np.random.default_rng(0).normal(size=(600, 3)).astype("float32"); y = (X[:, 1] > 0).astype(int)
    >>> fixed_set(X, y, 1, epochs=1, min_steps=300, hidden=32).tolist()
    [False, True, False]

    Parameters
    ----------
    X, y : array (N, D), array (N,)
        Training or validation rows: never those that are judged with it.
    k : int
        How many features or groups.
    evaluator : Evaluator, optional
        A fitted one; by default one is trained on X and y.
    **options
        Of :class:`Evaluator`, where none is given.
    """
    evaluator = evaluator or Evaluator(**{"k": k} | options).fit(X, y)
    return evaluator.fixed_set(X, y, k)


def encoding(X, y, masks, *, X_train=None, y_train=None, evaluator=None, **options) -> Encoding:
    """Does the mask tell more about ``y`` than the kept values do? See :meth:`Evaluator.encoding`.

    Parameters
    ----------
    X, y : array (N, D), array (N,)
        Rows that were explained, and their labels.
    masks : bool array (N, G)
        What is kept of each row.
    X_train, y_train : array, optional
        Rows to train the evaluator on; needed where no ``evaluator`` is given.
    evaluator : Evaluator, optional
        A fitted one.
    **options
        Of :class:`Evaluator`, where none is given.
    """
    if evaluator is None:
        if X_train is None or y_train is None:
            raise ValueError("encoding needs an evaluator, or X_train and y_train to train one on")
        evaluator = Evaluator(**options).fit(X_train, y_train)
    return evaluator.encoding(X, y, masks)


def mask_only(masks, y, *, train=None, seed=0) -> float:
    """Accuracy of a boosted classifier that sees only which features were kept.

    A selector can smuggle the label into *where* it looks. What this classifier gets right beyond the majority class
    is what the choice of features alone gives away. Not all of that is smuggled: see :func:`encoding`.

    >>> y = np.arange(200) // 2 % 2; mask_only(np.eye(2, dtype=bool)[y], y)
    1.0

    Parameters
    ----------
    masks : array (N, G)
        Which features, or what shares of groups, were kept.
    y : array (N,)
        Labels.
    train : bool array (N,), optional
        Rows to learn from; the others are scored. By default every second row, then the others: the mean of both.
    seed : int, default 0
        Of the boosting.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier  # slow to import

    masks, y = np.asarray(masks, float), np.asarray(y)
    if masks.ndim != 2 or len(masks) != len(y) or not np.isfinite(masks).all():
        raise ValueError(f"masks must be finite, one row per label; got shape {masks.shape} for {len(y)} labels")
    half = np.arange(len(y)) % 2 == 0
    found = []
    for a in (half, ~half) if train is None else (np.asarray(train, bool),):
        if a.shape != y.shape or a.all() or not a.any():
            raise ValueError("train must say of each row whether it is learned from: some, not all")
        tree = HistGradientBoostingClassifier(max_iter=60, random_state=seed).fit(masks[a], y[a])
        found.append((tree.predict(masks[~a]) == y[~a]).mean())
    return float(np.mean(found))
