"""A differentiable stand-in for a model that has no gradient: forests, boosting, anything that predicts.

    g = distill(forest.predict_proba, X)      # learns to answer as the forest does, and says how well
    GlobalBIF(g).fit(X).explain()

BIF learns by gradients through g, which a forest does not have. ``distill`` asks the model about the rows of X and
**mixtures** of them (some features of a row replaced by another row's), and trains a network g on its answers. The
mixtures matter: they are what BIF shows to g, and a stand-in that only knows the data would answer them as it likes.

g sees each feature through a piecewise-linear code: how far the value has come through each of ``bins`` ranges that
hold equally many rows (and the standardised value, its tails drawn in). Units and skewed columns then do not matter,
and the thresholds of trees are easy to learn; the code is linear in between, so that gradients flow.

An explanation of g explains the model only as far as the two agree, so a fifth of the rows is held out to measure that:
``agreement`` (share of rows that get the same class), ``r2`` (share of the variance of the model's probabilities, or
values, that g's reproduce) and ``kl`` (mean divergence in nats). Both of the first must reach ``min_fidelity``: a rare
class makes agreement easy and R^2 hard, and BIF's soft target explains probabilities, not classes.
"""

import warnings

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from bifkit.inputs.answers import ask, function_of, gather, kind_of, mixtures, targets
from bifkit.inputs.checks import check_X, outputs
from bifkit.seeding import derive


class NotFaithful(ValueError):
    """The stand-in does not answer as the model does; ``fidelity_`` has the numbers.

    >>> issubclass(NotFaithful, ValueError)
    True
    """


class Distilled(nn.Module):
    """The stand-in: logits (B, C), or values (B, 1), for rows in the units of the X it was distilled on.

    ``fidelity_`` holds how well it answers as the model does on the rows number ``held_out_``, ``report()`` says it in
    words, ``classes_`` names the columns. A plain module otherwise: ``state_dict`` has all that its answers depend on.

    >>> g = Distilled(3, 2); g(torch.zeros(5, 3)).shape
    torch.Size([5, 2])
    """

    def __init__(self, n_features, n_outputs, *, hidden=128, bins=16):
        super().__init__()
        self.register_buffer("centre", torch.zeros(n_features))
        self.register_buffer("scale", torch.ones(n_features))
        self.register_buffer("start", torch.zeros(n_features, bins))
        self.register_buffer("rate", torch.zeros(n_features, bins))  # 1 / width; 0 for an empty range
        self.register_buffer("shift", torch.zeros(n_outputs))
        self.register_buffer("stretch", torch.ones(n_outputs))
        width = n_features * (bins + 1)
        self.body = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
                                  nn.Linear(hidden, n_outputs))
        self.fidelity_, self.held_out_, self.classes_, self.likelihood_, self._words = None, None, None, None, ""

    def encode(self, x):
        """The code of rows (B, D): the standardised value and how far it has come through each range, (B, D (T + 1)).

        >>> g = Distilled(2, 1, bins=4).learn_units(torch.arange(10.0).view(5, 2))  # quartiles of the first: 0 2 4 6 8
        >>> g.encode(torch.tensor([[5.0, 1.0]]))[0, 2:6].tolist()  # two ranges passed, half of the third
        [1.0, 1.0, 0.5, 0.0]
        """
        z = torch.asinh((x - self.centre) / self.scale)
        passed = ((x.unsqueeze(-1) - self.start) * self.rate).clamp(0, 1)  # (B, D, T)
        return torch.cat([z, passed.flatten(1)], 1)

    def forward(self, x):
        """Logits or values of rows (B, ...), which are flattened.

        >>> Distilled(6, 2)(torch.zeros(4, 2, 3)).shape
        torch.Size([4, 2])
        """
        return self.body(self.encode(x.flatten(1))) * self.stretch + self.shift

    @torch.no_grad()
    def learn_units(self, X):
        """Take centre, scale and ranges from the rows (N, D); returns the module.

        >>> Distilled(2, 1).learn_units(torch.tensor([[0.0, 1.0], [2.0, 1.0]])).centre.tolist()
        [1.0, 1.0]
        """
        sd = X.std(0)
        self.centre.copy_(X.mean(0))
        self.scale.copy_(torch.where(sd > 0, sd, torch.ones_like(sd)))
        edges = np.quantile(X[:50_000].numpy(), np.linspace(0, 1, self.start.shape[1] + 1), axis=0).T
        edges = torch.from_numpy(edges.astype(np.float32))  # (D, T + 1)
        width = edges.diff(dim=1)
        self.start.copy_(edges[:, :-1])
        self.rate.copy_(torch.where(width > 0, 1 / width, torch.zeros_like(width)))
        return self

    def report(self) -> str:
        """How faithful it is, in words.

        >>> Distilled(3, 2).report()
        'not distilled from anything yet'
        """
        return self._words or "not distilled from anything yet"

    def __repr__(self):
        return f"Distilled: {self.report()}"


def _train(g, x, p, kinds, *, classify, steps, batch_size, lr):
    """Cross-entropy, or squared error, to the model's answers p; half of each batch are rows, half mixtures."""
    optimiser = torch.optim.AdamW(g.body.parameters(), lr=lr, weight_decay=0.01, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, lr, total_steps=steps)
    each = max(batch_size // len(kinds), 1)
    for _ in range(steps):
        i = torch.cat([k[torch.randint(len(k), (each,))] for k in kinds])
        out, y = g.body(g.encode(x[i])), p[i]
        loss = F.cross_entropy(out, y) if classify else F.mse_loss(out, (y - g.shift) / g.stretch)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()


def _fidelity(g, x, p, classify, spread):
    """agreement, r2 and kl of g on rows x that the model answers with p; ``spread`` is what R^2 is relative to."""
    out, p = outputs(g, x).double(), p.double()
    q = out.softmax(1) if classify else out
    found = {"r2": float(1 - ((p - q) ** 2).mean(0).sum() / spread)}
    if classify:
        found["agreement"] = float((p.argmax(1) == q.argmax(1)).double().mean())
        found["kl"] = float((torch.special.xlogy(p, p) - p * out.log_softmax(1)).sum(1).mean())
    return found


def _words(f, name):
    def one(prefix):
        r2 = f"R^2 {f[prefix + 'r2']:.3f}"
        agreement = f.get(prefix + "agreement")
        return r2 if agreement is None else f"the same class for {agreement:.1%}, {r2} of the probabilities"

    return (f"a stand-in for {name}; on {f['rows']} held-out rows {one('')}; on mixtures of them, such as BIF shows to "
            f"it, {one('mixed_')}")


def _judge(g, kind, least):
    """Refuse below the stated fidelity; warn where only the mixtures fall below it."""
    if least is None:
        return
    f, counts = g.fidelity_, {"label": ("agreement",), "value": ("r2",)}.get(kind, ("agreement", "r2"))
    if not min(f[k] for k in counts) >= least:  # NaN is refused too
        error = NotFaithful(
            f"{g.report()}: below min_fidelity={least}, so that an explanation of it would not be one of the model. "
            "Ask more (queries=100_000, steps=10_000), give more rows, or smooth the model (a forest grown to the last "
            "row has learned noise by heart: try min_samples_leaf=5); min_fidelity=None goes on all the same")
        error.fidelity_ = f
        raise error
    if not f["mixed_" + counts[-1]] >= least:  # classes of mixtures are often a toss-up: R^2 where there is one
        warnings.warn(f"{g.report()}: below min_fidelity={least} there, so read the explanation with care", UserWarning,
                      stacklevel=3)


def _check(n, *, holdout, queries, steps, batch_size, min_fidelity):
    if n < 20:
        raise ValueError(f"X has {n} rows: at least 20 are needed, some to learn from and some to test on")
    if not 0 < holdout < 1:
        raise ValueError(f"holdout is the share of rows to test on, between 0 and 1; got {holdout}")
    if queries < 0 or steps < 1 or batch_size < 2:
        raise ValueError(f"queries must be at least 0, steps 1 and batch_size 2; got {queries}, {steps}, {batch_size}")
    if min_fidelity is not None and not min_fidelity <= 1:
        raise ValueError(f"min_fidelity is at most 1, or None to accept anything; got {min_fidelity}")
    if n < 100:
        warnings.warn(f"X has only {n} rows: the fidelity is measured on {round(n * holdout)} of them and is itself "
                      "uncertain", UserWarning, stacklevel=3)


def distill(predict, X, *, kind=None, min_fidelity=0.9, queries=20_000, steps=2500, batch_size=256, hidden=128, bins=16,
            lr=1e-2, holdout=0.2, seed=0) -> Distilled:
    """Train a differentiable stand-in for ``predict`` on its own answers, and refuse where the two disagree.

    ``predict`` is a function of rows, or an estimator (its ``predict_proba`` where it has one, else
    ``decision_function`` or ``predict``); it is called with rows of X's own type, columns and dtypes. ``kind`` says
    what it answers where that is not plain: "probability" (columns that sum to one, or one column: of the second
    class), "logit" (scores or margins: their softmax is learned), "label" or "value" (a regression). It is asked about
    X and ``queries`` mixtures of X's rows.

    ``min_fidelity``: on held-out rows (the share ``holdout``) agreement and R^2 must both reach it, else
    :class:`NotFaithful` is raised; None accepts whatever comes (``fidelity_`` still tells). Labels have no
    probabilities to match: there agreement alone decides.

    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> g = distill(lambda X: X[:, 0] > X[:, 1], X, steps=300, hidden=32)
    >>> g.classes_, bool(g(torch.tensor([[1.0, -1.0]])).argmax()), g.fidelity_["agreement"] > 0.9
    ([False, True], True, True)
    """
    function, kind = function_of(predict, kind)
    values = check_X(X)[0]
    n, width = values.shape
    _check(n, holdout=holdout, queries=queries, steps=steps, batch_size=batch_size, min_fidelity=min_fidelity)
    X = X if hasattr(X, "columns") else X.detach() if isinstance(X, torch.Tensor) else np.asarray(X)
    rng = np.random.default_rng(derive("distill", seed))
    order, cut = rng.permutation(n), min(max(round(n * holdout), 2), n - 2)
    test, train = order[:cut], order[cut:]
    mixed = np.concatenate([mixtures(train, queries, width, rng), mixtures(test, 4000, width, rng)])
    answers = ask(function, X)
    kind = kind_of(answers, kind)
    p, labels = targets(np.concatenate([answers, ask(function, gather(X, mixed), "mixtures of X's rows")]), kind)
    if (p[:n] == p[0]).all():
        raise ValueError("predict answers the same for every row of X: there is nothing to explain")
    p, classify, spread = torch.from_numpy(p.astype(np.float32)), kind != "value", p[:n].var(0).sum()
    x = torch.cat([values, values[mixed, np.arange(width)]])
    kinds = [torch.from_numpy(k) for k in (train, np.arange(n, n + queries)) if len(k)]
    with torch.random.fork_rng(range(torch.cuda.device_count())), torch.enable_grad():
        torch.manual_seed(derive("distill", seed))
        g = Distilled(width, p.shape[1], hidden=hidden, bins=bins).learn_units(values[train])
        if not classify:
            g.shift.copy_(p[train].mean(0))
            g.stretch.copy_(p[train].std(0).clamp_min(1e-12))
        _train(g, x, p, kinds, classify=classify, steps=steps, batch_size=batch_size, lr=lr)
    g.eval().held_out_ = np.sort(test)
    g.fidelity_ = {"rows": len(test), **_fidelity(g, values[test], p[test], classify, spread)}
    off = _fidelity(g, x[n + queries:], p[n + queries:], classify, spread)
    g.fidelity_ |= {"mixed_" + k: v for k, v in off.items()}
    g.likelihood_ = "categorical" if classify else "regression"
    known = list(getattr(getattr(function, "__self__", None), "classes_", []))
    g.classes_ = labels or (known if len(known) == p.shape[1] and classify else None)
    g._words = _words(g.fidelity_, getattr(function, "__name__", type(function).__name__))
    _judge(g, kind, min_fidelity)
    return g
