"""A fair classifier by adversarial training, and the measures of how fair a classifier is.

Training (paper, supplement, "Fair classifiers", after the scheme it cites)
    A classifier f (D-32-32-32-1, ReLU, dropout .2) predicts the label; an adversary h (1-32-32-32-Z) sees only
    f's output probability and guesses each sensitive attribute, its loss class-balanced by attribute. Both
    are pre-trained, f on the labels (5 epochs), then h on f's output (5 epochs). From then on an iteration is
    one epoch of h, with f fixed, and one minibatch of f, with h fixed, on

        BCE(label) - sum over attributes of lambda_z * BCE of the adversary on z

    lambda 130 for race and 30 for sex. Every iteration leaves a snapshot of f, with its p%-rules and AUC on a
    validation part: how many iterations a p%-rule takes differs from seed to seed, so models are chosen by
    what they reached (``FairRun.choose``). f has one logit and never sees the attributes.

    Three changes. f's probabilities (dropout on) are computed once per epoch of h, as f does not change within
    it. h takes batches of 512 instead of 128, for speed: the p%-rule's path stays the same (race, two seeds, at
    iterations 0, 60, 120: 43 66 86 with 128 and 43 65 88 with 512; 44 55 81 and 44 57 84). f's minibatch is 512
    instead of 128: of 128 rows of Adult a dozen are black, and on such noisy steps the p%-rule stalls (seed 100,
    every fortieth iteration to 200: 46 56 70 83 89 89, below 95 up to 400; with 512: 46 65 96 97 98 97).

Measures, at threshold 1/2, for an attribute of 0 and 1, with a and b the shares predicted positive in the two
groups
    p%-rule                 100 min(a/b, b/a); 100 is parity
    demographic parity      |a - b|; 0 is parity
    equalised odds          the larger of the groups' differences in true and in false positive rate
    carried gap             a - b that is lost when one feature is shuffled: what that feature carries of the
                            difference between the groups, as a proxy of the attribute
"""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import roc_auc_score
from torch import nn
from torch.nn import functional as F

from data_prep.seeding import derive, seed_all
from experiments.models.classifiers import freeze, mlp, predict_proba, train

LAMBDAS = {"race": 130.0, "sex": 30.0}
LEVELS = (44, 57, 82, 96)  # the p%-rules of the paper's figure


def _shares(prediction, group, threshold):
    prediction, group = np.asarray(prediction), np.asarray(group)
    if prediction.shape != group.shape or prediction.ndim != 1:
        raise ValueError(f"prediction and group must be vectors of one length; got {prediction.shape} and "
                         f"{group.shape}")
    if set(np.unique(group).tolist()) != {0, 1}:
        raise ValueError(f"group must hold both 0 and 1 and nothing else; got {np.unique(group)[:5]}")
    positive = prediction > threshold
    return positive[group == 1].mean(), positive[group == 0].mean()


def p_rule(prediction, group, *, threshold=0.5) -> float:
    """100 min(a/b, b/a) of the shares predicted positive in group 1 and in group 0.

    0 if one group has no positives, NaN if neither has: then there is nothing to compare.

    >>> p_rule([0.9, 0.9, 0.9, 0.1], [1, 1, 0, 0])
    50.0
    """
    a, b = _shares(prediction, group, threshold)
    if max(a, b) == 0:
        return float("nan")
    return float(100 * min(a, b) / max(a, b))


def demographic_parity(prediction, group, *, threshold=0.5) -> float:
    """Absolute difference of the shares predicted positive.

    >>> demographic_parity([0.9, 0.9, 0.9, 0.1], [1, 1, 0, 0])
    0.5
    """
    a, b = _shares(prediction, group, threshold)
    return float(abs(a - b))


def equalised_odds(prediction, y, group, *, threshold=0.5) -> float:
    """The larger of |difference in true positive rate| and |difference in false positive rate|.

    >>> equalised_odds([0.9, 0.1, 0.9, 0.9], [1, 1, 1, 1], [1, 1, 0, 0])
    Traceback (most recent call last):
    ValueError: equalised odds need rows of both labels in both groups; label 0 lacks some
    """
    prediction, y, group = np.asarray(prediction), np.asarray(y), np.asarray(group)
    gaps = []
    for label in (1, 0):
        rows = y == label
        if set(np.unique(group[rows]).tolist()) != {0, 1}:
            raise ValueError(f"equalised odds need rows of both labels in both groups; label {label} lacks some")
        gaps.append(demographic_parity(prediction[rows], group[rows], threshold=threshold))
    return max(gaps)


def report(model, X, y, Z) -> dict:
    """AUC, accuracy and the fairness measures of ``model`` on one part; ``Z`` is {attribute: 0/1 array}.

    >>> X = np.array([[2.0], [-1.0], [1.0], [-2.0]]); g = nn.Linear(1, 1); _ = nn.init.ones_(g.weight)
    >>> _ = nn.init.zeros_(g.bias); r = report(g, X, [1, 0, 0, 1], {"sex": [1, 1, 0, 0]})
    >>> r["auc"], r["accuracy"], r["p_rule_sex"], r["parity_sex"], r["odds_sex"]
    (0.5, 0.5, 100.0, 0.0, 1.0)
    """
    p, y = predict_proba(model, X)[:, 1], np.asarray(y)
    out = {"auc": float(roc_auc_score(y, p)), "accuracy": float(((p > 0.5) == y).mean())}
    for name, group in Z.items():
        out |= {f"p_rule_{name}": p_rule(p, group), f"parity_{name}": demographic_parity(p, group),
                f"odds_{name}": equalised_odds(p, y, group)}
    return out


def carried_gap(model, X, group, *, repeats=5, seed=0) -> np.ndarray:
    """What each feature carries of the gap a - b between the groups, (D,): the gap lost when it is shuffled.

    Shuffling breaks a feature's tie to the attribute and to the other features and keeps its distribution. A
    positive value widens the gap in favour of group 1, a negative one narrows it. Carried gaps need not add up.

    >>> X = np.array([[1.0, 0.3], [1.0, -0.2], [-1.0, 0.2], [-1.0, -0.3]] * 50)
    >>> g = nn.Linear(2, 1); _ = g.load_state_dict({"weight": torch.tensor([[1.0, 0.0]]), "bias": torch.zeros(1)})
    >>> carried_gap(g, X, [1, 1, 0, 0] * 50).round(1).tolist()
    [1.0, 0.0]
    """
    X, rng = np.asarray(X, dtype=np.float32), np.random.default_rng(derive("carried_gap", seed))

    def gap(rows):
        a, b = _shares(predict_proba(model, rows)[:, 1], group, 0.5)
        return a - b

    whole, carried = gap(X), np.zeros(X.shape[1])
    for d in range(X.shape[1]):
        for _ in range(repeats):
            shuffled = X.copy()
            shuffled[:, d] = X[rng.permutation(len(X)), d]
            carried[d] += (whole - gap(shuffled)) / repeats
    return carried


@dataclass(frozen=True)
class FairRun:
    """The snapshots of one training: state 0 is the pre-trained classifier, state i that after i iterations.

    >>> history = pd.DataFrame({"p_rule_race": [44.0, 50.0, 59.0, 57.5, 70.0]})
    >>> run = FairRun([{}] * 5, history, (12, 32, 32, 32, 1), 0.2)
    >>> [run.choose(level, window=1) for level in (40, 57, 82)]
    [0, 2, 4]
    """

    snapshots: list  # state dicts of f
    history: pd.DataFrame | None  # one row per snapshot: auc and the p_rule_* on the validation part
    sizes: tuple
    dropout: float

    def model(self, i) -> nn.Module:
        """The frozen classifier of snapshot ``i``."""
        model = mlp(self.sizes, dropout=self.dropout)
        model.load_state_dict(self.snapshots[i])
        return freeze(model)

    def on(self, X, y, Z) -> "FairRun":
        """The same snapshots with their history on another part."""
        model, history = self.model(0), []
        for state in self.snapshots:
            model.load_state_dict(state)
            p = predict_proba(model, X)[:, 1]
            history.append({"auc": float(roc_auc_score(y, p))} | {f"p_rule_{n}": p_rule(p, Z[n]) for n in Z})
        return replace(self, history=pd.DataFrame(history))

    def smooth(self, attribute="race", *, window=5) -> np.ndarray:
        """The validation p%-rule averaged over neighbouring snapshots, fewer at the ends.

        A single snapshot's wander of a few points is then not mistaken for progress.
        """
        if self.history is None:
            raise ValueError("these snapshots were not measured on any part: call run.on(X, y, Z) first")
        path = self.history[f"p_rule_{attribute}"]
        return path.rolling(window, center=True, min_periods=1).mean().to_numpy()

    def choose(self, level, attribute="race", *, window=5) -> int:
        """The snapshot for a p%-rule: the nearest up to the first that reaches it, else the nearest of all.

        Later snapshots are not looked at once the level is reached: after parity the p%-rule wanders, and a
        chance return to a level is another model than the one on the way there.
        """
        path = self.smooth(attribute, window=window)
        if np.isnan(path).all():
            raise ValueError("no snapshot predicts a positive on the validation part: train longer, or weaken "
                             "the lambdas")
        reached = np.flatnonzero(path >= level)
        stop = reached[0] + 1 if len(reached) else len(path)
        return int(np.nanargmin(np.abs(path[:stop] - level))) if not np.isnan(path[:stop]).all() else 0


def _check(X, y, Z, lambdas, part):
    if set(Z) != set(lambdas):
        raise ValueError(f"the {part} part has the attributes {sorted(Z)}, lambdas are for {sorted(lambdas)}: give "
                         "one lambda for each attribute")
    if set(np.unique(y).tolist()) - {0, 1}:
        raise ValueError(f"labels must be 0 and 1; got {np.unique(y)[:5]}")
    for name, column in {"y": y, **Z}.items():
        if len(column) != len(X):
            raise ValueError(f"{name} of the {part} part has {len(column)} rows, X has {len(X)}")
    for name, column in Z.items():
        if set(np.unique(column).tolist()) != {0, 1}:
            raise ValueError(f"{name} of the {part} part must hold both 0 and 1 and nothing else; "
                             f"got {np.unique(column)[:5]}")


class _Adversary:
    """h: guesses every attribute from f's probability; its loss weighs the two groups of each alike."""

    def __init__(self, X, Z, hidden, lr):
        self.X, self.Z = X, Z  # (N, D), (N, A)
        share = Z.mean(0)
        self.weight = torch.where(Z == 1, 0.5 / share, 0.5 / (1 - share))  # (N, A), mean 1
        self.net = mlp([1, hidden, hidden, hidden, Z.shape[1]])
        self.optimiser = torch.optim.Adam(self.net.parameters(), lr=lr, fused=True)

    def epoch(self, f, batch_size):
        """One pass over all rows with f as it is."""
        with torch.no_grad():
            p = f(self.X).sigmoid()  # (N, 1), dropout on: what f's own step will show the adversary
        order = torch.randperm(len(p))
        for q, z, w in zip(*(t[order].split(batch_size) for t in (p, self.Z, self.weight)), strict=True):
            self.optimiser.zero_grad()
            (F.binary_cross_entropy_with_logits(self.net(q), z, w) * z.shape[1]).backward()  # sum over attributes
            self.optimiser.step()

    def loss(self, p, rows):
        """Its loss on each attribute (A,), for f's probabilities (B, 1) of the rows."""
        out = self.net(p)
        return F.binary_cross_entropy_with_logits(out, self.Z[rows], self.weight[rows], reduction="none").mean(0)


def adversarial_train(X, y, Z, *, validation=None, lambdas=LAMBDAS, iterations=160, hidden=32, dropout=0.2,
                      pretrain_epochs=5, pretrain_batch=32, batch_size=512, adversary_batch=512, lr=1e-3,
                      seed=0) -> FairRun:
    """Train a fair classifier on (X, y) with sensitive attributes ``Z`` = {name: 0/1 array}; a ``FairRun``.

    ``validation`` is (X, y, Z) of the part that the snapshots are chosen on; ``FairRun.on`` takes it later. With
    every lambda 0 the adversary is idle and the classifier goes on learning the label from the same minibatches: the
    control that separates the constraint from mere further training. Everything is fixed by ``seed``.

    >>> rng = np.random.default_rng(0); z = np.arange(400) % 2; X = rng.normal(size=(400, 2)) + z[:, None]
    >>> part = X, (X[:, 0] > 0.5).astype(int), {"sex": z}
    >>> run = adversarial_train(*part, validation=part, lambdas={"sex": 5.0}, iterations=3)
    >>> len(run.snapshots), list(run.history)
    (4, ['auc', 'p_rule_sex'])
    """
    _check(X, y, Z, lambdas, "training")
    if validation is not None:
        _check(*validation, lambdas, "validation")
    seed_all("fair", seed)
    sizes = (np.shape(X)[1], hidden, hidden, hidden, 1)
    f = mlp(sizes, dropout=dropout)
    train(f, X, y, epochs=pretrain_epochs, batch_size=pretrain_batch, lr=lr, weight_decay=0.0, schedule=None,
          seed=seed, min_steps=1)
    X, y = torch.as_tensor(np.asarray(X, np.float32)), torch.as_tensor(np.asarray(y, np.float32))
    columns = torch.as_tensor(np.stack([Z[name] for name in lambdas], 1).astype(np.float32))  # (N, A)
    weights = torch.tensor(list(lambdas.values()), dtype=torch.float32)
    adversary = _Adversary(X, columns, hidden, lr) if weights.any() else None
    if adversary:
        f.train()
        for _ in range(pretrain_epochs):
            adversary.epoch(f, pretrain_batch)
    optimiser = torch.optim.Adam(f.parameters(), lr=lr, fused=True)
    batches = torch.Generator().manual_seed(derive("fair", seed, "batches"))  # the same for every lambda
    snapshots = [_copy(f)]
    for _ in range(iterations):
        f.train()
        if adversary:
            adversary.epoch(f, adversary_batch)
        rows = torch.randperm(len(X), generator=batches)[:batch_size]
        out = f(X[rows])  # (B, 1)
        loss = F.binary_cross_entropy_with_logits(out[:, 0], y[rows])
        if adversary:
            loss = loss - (weights * adversary.loss(out.sigmoid(), rows)).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        snapshots.append(_copy(f))
    run = FairRun(snapshots, None, sizes, dropout)
    return run if validation is None else run.on(*validation)


def _copy(model):
    return {k: v.clone() for k, v in model.state_dict().items()}


def unconstrained(X, y, *, hidden=32, dropout=0.2, epochs=20, batch_size=128, lr=1e-3, seed=0) -> nn.Module:
    """The same network trained on the labels alone, from other initial weights: the paper's baseline, frozen.

    >>> unconstrained(np.zeros((200, 3)), np.arange(200) % 2, epochs=1)(torch.zeros(1, 3)).shape
    torch.Size([1, 1])
    """
    seed_all("unconstrained", seed)
    model = mlp([np.shape(X)[1], hidden, hidden, hidden, 1], dropout=dropout)
    return freeze(train(model, X, y, epochs=epochs, batch_size=batch_size, lr=lr, weight_decay=0.0, schedule=None,
                        seed=derive("unconstrained", seed), min_steps=1))
