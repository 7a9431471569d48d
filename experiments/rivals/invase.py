"""INVASE, instance-wise variable selection (Yoon, Jordon, van der Schaar, ICLR 2019), written from the paper.

Three networks. The selector gives each feature (or group) of a row a probability pi; a mask s is drawn from
these Bernoulli variables. The predictor sees x * s, the baseline sees x; both minimise cross-entropy with the
label. The selector is trained by policy gradient: its reward is the predictor's log-likelihood minus the
baseline's, and its loss

    - (log p_predictor(y | x * s) - log p_baseline(y | x)) * log pi(s | x)  +  lam * mean_g pi_g(x)

is averaged over the batch. As in the released code lam multiplies the *mean* selection probability, so a
feature costs lam / G. The three losses share no gradient, so one Adam step on their sum is the same as three
steps.

Setting of the released code: selector 100-100, predictor and baseline 200-200 with BatchNorm, SELU (ReLU for
Syn1 and Syn2), L2 penalty 1e-3, Adam 1e-4, 10,000 iterations of 1000 rows drawn with replacement, lam .1 (.15
for Syn5). ``budget="published"`` runs exactly that. ``"short"`` takes a tenth of the time: fewer, larger steps
of half the rows, and the reward from the training pass. results/rivals_budget.csv compares the two on seeds
outside the reported ones. (With 250 rows per step Syn6 lost 6 points; more steps at a larger rate overfit.)

Two variants of the BIF paper's supplement explain a given model. ``classifier=g``: g, frozen, is predictor
and baseline both, and only the selector learns (fairness study). ``baseline=g``: g, frozen, is the baseline,
and selector and predictor learn (privacy study).
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
    "published": {"iterations": 10_000, "batch_size": 1000, "lr": 1e-4},
    "short": {"iterations": 2500, "batch_size": 500, "lr": 4e-4},  # iterations x lr as published
}


def selector_loss(logits, mask, reward, lam):
    """The selector's loss: policy gradient with a penalty on the mean selection probability (INVASE, section
    3).

    >>> selector_loss(torch.zeros(1, 2), torch.ones(1, 2), torch.tensor([0.0]), 0.1)
    tensor(0.0500)
    """
    log_pi = -F.binary_cross_entropy_with_logits(logits, mask, reduction="none").sum(1)  # (B,)
    return lam * logits.sigmoid().mean() - (reward * log_pi).mean()


class INVASE:
    """Selector, predictor and baseline of INVASE; ``lam`` sets how many features are selected.

    ``groups`` (D,) gives inputs a common mask, such as the pixels of a patch. ``budget`` sets iterations,
    batch size and learning rate; each can also be given itself.

    >>> X = np.random.default_rng(0).normal(size=(500, 4)); y = (X[:, 2] > 0).astype(int)
    >>> INVASE(hidden=20, critic_hidden=20, iterations=600, lr=3e-3).fit(X, y).scores(X).mean(0).argmax()
    np.int64(2)
    """

    def __init__(self, *, lam=0.1, groups=None, hidden=100, critic_hidden=200, activation="selu",
                 iterations=None, batch_size=None, lr=None, l2=1e-3, budget="short", classifier=None,
                 baseline=None, seed=0):
        if not (np.isscalar(lam) and np.isfinite(lam) and lam >= 0):
            raise ValueError(f"lam must be a number of at least 0, the price of selecting all; got {lam!r}")
        if classifier is not None and baseline is not None:
            raise ValueError("give classifier= (predictor and baseline both) or baseline= alone, not both")
        if l2 < 0:
            raise ValueError(f"l2 must not be negative; got {l2}")
        positive(hidden=hidden, critic_hidden=critic_hidden)
        self.plan = schedule_of(BUDGETS, budget, iterations=iterations, batch_size=batch_size, lr=lr)
        self.lam, self.groups, self.hidden, self.critic_hidden = float(lam), groups, hidden, critic_hidden
        self.activation, self.l2, self.budget, self.seed = activation, l2, budget, seed
        self.classifier, self.frozen_baseline = classifier, baseline if classifier is None else classifier
        self.selector = None

    def fit(self, X, y):
        """Train on the rows of X (N, D) and their class numbers y (N,)."""
        X, y = check_data(X, y)
        (n, d), classes = X.shape, max(int(y.max()) + 1, 2)
        self._groups, g = check_groups(self.groups, d)
        rng = generator("invase", self.seed)
        h, c = self.hidden, self.critic_hidden

        def critic():
            return keras_mlp([d, c, c, classes], activation=self.activation, batch_norm=True, rng=rng)

        self.n_features, self.classes = d, classes
        selector = keras_mlp([d, h, h, g], activation=self.activation, batch_norm=False, rng=rng)
        predictor = critic() if self.classifier is None else self.classifier.eval()
        baseline, full = None, None
        if self.frozen_baseline is None:
            baseline = critic()
        else:  # frozen: its log-likelihood of every row is computed once
            model = self.frozen_baseline.eval()
            full = in_batches(lambda x: self._log_proba(model, x), X).gather(1, y[:, None])[:, 0]  # (N,)
        critics = [predictor] * (self.classifier is None) + [baseline] * (self.frozen_baseline is None)
        opt = FlatAdam([selector, *critics], lr=self.plan["lr"], l2=self.l2)
        size, exact = min(int(self.plan["batch_size"]), n), self.budget == "published"
        for _ in range(int(self.plan["iterations"])):
            rows = torch.randint(n, (size,), generator=rng)
            x, target = X[rows], y[rows]
            logits = selector(x)  # (B, G)
            mask = torch.bernoulli(logits.detach().sigmoid(), generator=rng)
            masked = x * spread(mask, self._groups)
            kept, loss_p = self._likelihood(predictor, masked, target, exact)
            if baseline is None:
                whole, loss_b = full[rows], 0.0
            else:
                whole, loss_b = self._likelihood(baseline, x, target, exact)
            loss = selector_loss(logits, mask, kept - whole, self.lam) + loss_p + loss_b
            opt.step(loss)
        self.selector, self.predictor = selector.eval(), predictor.eval()
        return self

    def _likelihood(self, model, x, target, exact):
        """Log-likelihood of each row for the reward (B,), without gradient, and the loss the model learns from.

        The released code computes the reward with BatchNorm's running moments, in a second pass; the short
        budget takes it from the training pass.
        """
        if model is self.classifier:
            with torch.no_grad():
                return self._log_proba(model, x).gather(1, target[:, None])[:, 0], 0.0
        loss = F.cross_entropy(model(x), target, reduction="none")
        reward = -loss.detach()
        if exact:
            with torch.no_grad():
                reward = -F.cross_entropy(model.eval()(x), target, reduction="none")
            model.train()
        return reward, loss.mean()

    def _log_proba(self, model, x):
        out = log_proba(model(x))
        if out.shape[1] < self.classes:
            raise ValueError(f"the frozen model gives {out.shape[1]} classes, the labels have {self.classes}")
        return out.clamp_min(np.log(1e-8))  # the released code's floor: no single row rules the reward

    def _check(self, X):
        if self.selector is None:
            raise RuntimeError("this INVASE is not fitted yet; call fit(X, y) first")
        return check_data(X, n_features=self.n_features)

    def scores(self, X) -> np.ndarray:
        """Selection probabilities (N, G), in double precision so that saturated ones still have an order."""
        return in_batches(lambda x: self.selector(x).double().sigmoid(), self._check(X)).numpy()

    def selected(self, X) -> np.ndarray:
        """Which features of each row are selected, bool (N, G): probability above one half."""
        return self.scores(X) > 0.5

    def predict_proba(self, X) -> np.ndarray:
        """Class probabilities (N, C) of the predictor, which sees only the selected features."""
        mask = torch.as_tensor(self.selected(X))
        return in_batches(lambda x, m: log_proba(self.predictor(x * spread(m, self._groups))).exp(),
                          self._check(X), mask).numpy()
