"""L2X, learning to explain (Chen, Song, Wainwright, Jordan, ICML 2018), written from the paper.

A selector network gives each row a vector of logits over the features (or groups of features). While
training, k draws of a Gumbel-softmax vector at temperature tau are taken from it and merged by the
elementwise maximum: a relaxed subset of at most k features. A predictor sees the input times that mask, and
both learn together to predict the label by cross-entropy, a variational lower bound of the mutual information
between the label and the chosen features. To explain a row, its k largest logits are taken.

Setting of its released synthetic study: selector two hidden layers of 100, predictor 200-200 with BatchNorm,
ReLU for the first two data sets and SELU for the others, L2 penalty 1e-3 (not on the logits), Adam 1e-3, 1000
batches of 1000 rows. The BIF paper keeps those 1000 batches as 125 epochs of 8000 rows; for digits it widens
the networks to 250 and 500. ``budget="published"`` runs exactly that. ``"short"`` takes 200 rows per step, a third
of the time, and is *not* as good: on seed 100 it scores lower on Syn3, Syn4 and Syn6 (by 4, 11 and 10 points of MCC)
and higher on Syn5 (by 8), see results/rivals_budget.csv. Use it for tests, or where the same is shown not to cost.
"""

import numpy as np
import torch
from torch.nn import functional as F

from experiments.rivals.nets import (
    FlatAdam,
    check_data,
    check_groups,
    generator,
    in_batches,
    keras_mlp,
    log_proba,
    positive,
    schedule_of,
    spread,
)

BUDGETS = {
    "published": {"iterations": 1000, "batch_size": 1000, "lr": 1e-3},
    "short": {"iterations": 1000, "batch_size": 200, "lr": 1e-3},
}


def relaxed_subset(logits, k, tau, rng):
    """A relaxed k-subset of each row: the elementwise maximum of k Gumbel-softmax draws (L2X, section 2.3)."""
    noise = torch.rand(len(logits), k, logits.shape[1], generator=rng)  # (B, k, G)
    minus_gumbel = noise.clamp_min_(1e-30).log_().neg_().log_()
    return ((logits.unsqueeze(1) - minus_gumbel) / tau).softmax(-1).amax(1)  # (B, G)


class L2X:
    """Selector and predictor of L2X; ``k`` features are chosen for every row.

    ``groups`` (D,) gives inputs a common mask, such as the pixels of a patch. ``epochs``, rounds over the data,
    replace the budget's number of steps. ``budget`` sets steps, batch size and learning rate; each can also
    be given itself.

    >>> X = np.random.default_rng(0).normal(size=(500, 4)); y = (X[:, 2] > 0).astype(int)
    >>> L2X(1, hidden=20, predictor_hidden=20).fit(X, y).scores(X).mean(0).argmax()
    np.int64(2)
    """

    def __init__(self, k, *, groups=None, hidden=100, predictor_hidden=200, activation="relu", tau=0.1,
                 lr=None, batch_size=None, epochs=None, iterations=None, l2=1e-3, budget="short", seed=0):
        if not (isinstance(k, int | np.integer) and k >= 1):
            raise ValueError(f"k must be a whole number of at least 1, the features to keep per row; got {k!r}")
        positive(hidden=hidden, predictor_hidden=predictor_hidden, tau=tau)
        if epochs is not None:
            positive(epochs=epochs)
            if iterations is not None:
                raise ValueError("give epochs or iterations, not both")
        if l2 < 0:
            raise ValueError(f"l2 must not be negative; got {l2}")
        self.plan = schedule_of(BUDGETS, budget, lr=lr, batch_size=batch_size, iterations=iterations)
        self.k, self.groups, self.hidden, self.predictor_hidden = int(k), groups, hidden, predictor_hidden
        self.activation, self.tau, self.epochs, self.l2, self.seed = activation, tau, epochs, l2, seed
        self.selector = None

    def fit(self, X, y):
        """Train selector and predictor together on the rows of X (N, D) and their class numbers y (N,)."""
        X, y = check_data(X, y)
        (n, d), classes = X.shape, max(int(y.max()) + 1, 2)
        self._groups, g = check_groups(self.groups, d)
        if self.k > g:
            raise ValueError(f"k is {self.k}, but there are only {g} features (or groups) to choose from")
        rng = generator("l2x", self.seed)
        h, p = self.hidden, self.predictor_hidden
        selector = keras_mlp([d, h, h, g], activation=self.activation, batch_norm=False, rng=rng)
        predictor = keras_mlp([d, p, p, classes], activation=self.activation, batch_norm=True, rng=rng)
        opt = FlatAdam([selector, predictor], lr=self.plan["lr"], l2=self.l2, spare=[selector[-1].weight])
        size = min(int(self.plan["batch_size"]), n)
        epoch = n // size  # a remainder smaller than a batch is left out, other rows each time
        steps = epoch * int(self.epochs) if self.epochs else int(self.plan["iterations"])
        for step in range(steps):
            if step % epoch == 0:
                order = torch.randperm(n, generator=rng)
            rows = order[step % epoch * size:(step % epoch + 1) * size]
            x = X[rows]
            mask = relaxed_subset(selector(x), self.k, self.tau, rng)  # (B, G)
            loss = F.cross_entropy(predictor(x * spread(mask, self._groups)), y[rows])
            opt.step(loss)
        self.selector, self.predictor, self.n_features = selector.eval(), predictor.eval(), d
        return self

    def _check(self, X):
        if self.selector is None:
            raise RuntimeError("this L2X is not fitted yet; call fit(X, y) first")
        return check_data(X, n_features=self.n_features)

    def scores(self, X) -> np.ndarray:
        """Selection probabilities of one draw, softmax of the logits, (N, G); rank a row by them."""
        return in_batches(lambda x: self.selector(x).double().softmax(1), self._check(X)).numpy()

    def selected(self, X) -> np.ndarray:
        """The k chosen features of each row, bool (N, G)."""
        best = in_batches(lambda x: self.selector(x).topk(self.k).indices, self._check(X))
        mask = np.zeros((len(best), self.selector[-1].out_features), dtype=bool)
        np.put_along_axis(mask, best.numpy(), True, axis=1)
        return mask

    def predict_proba(self, X) -> np.ndarray:
        """Class probabilities (N, C) of the predictor, which sees only the k chosen features."""
        mask = torch.as_tensor(self.selected(X))
        return in_batches(lambda x, m: log_proba(self.predictor(x * spread(m, self._groups))).exp(),
                          self._check(X), mask).numpy()
