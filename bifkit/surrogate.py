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
import pandas as pd
import torch
from sklearn.base import is_classifier
from torch import nn
from torch.nn import functional as F

from bifkit.door import check_X, outputs
from bifkit.seeding import derive

KINDS = ("probability", "logit", "label", "value")


class NotFaithful(ValueError):
    """The stand-in does not answer as the model does; ``fidelity_`` has the numbers.

    >>> issubclass(NotFaithful, ValueError)
    True
    """


class Distilled(nn.Module):
    """The stand-in: logits (B, C), or values (B, 1), for rows in the units of the X it was distilled on.

    ``fidelity_`` holds how well it answers as the model does, ``report()`` says it in words, ``classes_`` names the
    columns. A plain module otherwise: ``state_dict`` has all that its answers depend on.

    >>> g = Distilled(3, 2); g(torch.zeros(5, 3)).shape
    torch.Size([5, 2])
    """

    def __init__(self, n_features, n_outputs, *, hidden=256, bins=24):
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
        self.fidelity_, self.classes_, self.likelihood_, self._words = None, None, None, ""

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


def _function(predict, kind):
    """(function, what it answers where the name tells) of an estimator, its method, or a plain function."""
    if kind is not None and kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}; got {kind!r}")
    if isinstance(predict, nn.Module):
        raise TypeError("a torch module has gradients: give it to GlobalBIF or LocalBIF as it is. (Where it has none, "
                        "distill a function of rows that returns its probabilities.)")
    if not callable(predict) or hasattr(predict, "predict"):
        names = [n for n in ("predict_proba", "decision_function", "predict") if hasattr(predict, n)]
        if not names:
            raise TypeError("predict must be a function of rows, or an estimator with predict_proba or predict; "
                            f"got {type(predict).__name__}")
        predict = getattr(predict, names[0])
    owner, name = getattr(predict, "__self__", None), getattr(predict, "__name__", "")
    classifies = is_classifier(owner) or hasattr(owner, "classes_")
    by_name = {"predict_proba": "probability", "decision_function": "logit" if classifies else "value",
               "predict": "label" if classifies else "value"}.get(name) if owner is not None else None
    return predict, kind or by_name


def _gather(X, source):
    """Rows whose feature d is that of row ``source[:, d]``, of X's own type, columns and dtypes."""
    if hasattr(X, "columns"):
        columns = {c: X.iloc[:, c].array.take(source[:, c]) for c in range(X.shape[1])}
        return pd.DataFrame(columns).set_axis(X.columns, axis=1)
    flat = X.reshape(len(X), -1)
    index = torch.from_numpy(source) if isinstance(X, torch.Tensor) else source
    return flat[index, np.arange(source.shape[1])].reshape(len(source), *X.shape[1:])


def _ask(function, rows, what, batch=10_000):
    """The raw answers (n,) or (n, C), with every complaint about them raised here."""
    parts = []
    for i in range(0, len(rows), batch):
        part = rows.iloc[i:i + batch] if hasattr(rows, "iloc") else rows[i:i + batch]
        try:
            answer = function(part)
        except Exception as error:
            reason = str(error).partition("\n")[0]
            raise ValueError(f"predict fails on {what} ({type(error).__name__}: {reason}): give X as the model was "
                             "trained on it, the same columns in the same order") from error
        if isinstance(answer, list) and answer and np.ndim(answer[0]) == 2:
            raise ValueError("predict answers several questions at once (a list of arrays): distill one of them, "
                             "such as lambda X: model.predict_proba(X)[0]")
        answer = answer.detach().cpu().numpy() if isinstance(answer, torch.Tensor) else np.asarray(answer)
        if answer.ndim not in (1, 2) or len(answer) != len(part) or answer.ndim == 2 and answer.shape[1] == 0:
            raise ValueError(f"predict must answer one row or number for each row of X; got shape {answer.shape} for "
                             f"{len(part)} rows")
        if answer.dtype.kind == "f" and not np.isfinite(answer).all():
            bad = (~np.isfinite(answer.reshape(len(part), -1)).all(1)).sum()
            raise ValueError(f"predict answers NaN or infinity for {bad} of {len(part)} rows of {what}")
        parts.append(answer)
    if len({p.shape[1:] for p in parts}) > 1:
        raise ValueError("predict answers with a different number of columns from one call to the next")
    return np.concatenate(parts)


def _kind(answers, kind):
    """What the answers are, where the name did not tell."""
    if kind is not None:
        return kind
    one = answers.ndim == 1 or answers.shape[1] == 1
    if not one:
        return "probability"
    if answers.dtype.kind != "f":
        distinct = len(np.unique(answers))
        if answers.dtype.kind in "iu" and distinct > 20:
            raise ValueError(f"predict answers {distinct} different whole numbers: say kind='value' or kind='label'")
        return "label"
    if answers.min() >= 0 and answers.max() <= 1:
        warnings.warn("predict answers one number in [0, 1] a row, taken for a value: say kind='probability' if it is "
                      "the probability of a class, kind='value' if it is not", UserWarning, stacklevel=4)
    return "value"


def _targets(answers, kind):
    """(float32 targets: probabilities (n, C) or values (n, 1), names of the classes or None)."""
    if kind == "label":
        if answers.ndim == 2 and answers.shape[1] > 1:
            raise ValueError(f"kind='label' needs one label a row; predict answers {answers.shape[1]} columns")
        classes, number = np.unique(answers.ravel(), return_inverse=True)
        return np.eye(len(classes), dtype=np.float32)[number], classes.tolist()
    try:
        p = answers.reshape(len(answers), -1).astype(np.float64)
    except ValueError:
        raise ValueError(f"kind={kind!r} needs numbers; predict answers {answers.dtype}") from None
    if kind == "value":
        if p.shape[1] > 1:
            raise ValueError(f"kind='value' needs one value a row; predict answers {p.shape[1]} columns: distill one")
        return p.astype(np.float32), None
    if kind == "logit":
        p = np.hstack([-p / 2, p / 2]) if p.shape[1] == 1 else p  # a margin d is the log-odds of the second class
        p = np.exp(p - p.max(1, keepdims=True))
        return (p / p.sum(1, keepdims=True)).astype(np.float32), None
    p = np.hstack([1 - p, p]) if p.shape[1] == 1 else p
    total = p.sum(1)
    if p.min() < -1e-6 or np.abs(total - 1).max() > 1e-3:
        raise ValueError(f"predict's rows are no probabilities: they must be at least 0 and sum to 1, and range from "
                         f"{p.min():.3g} to {p.max():.3g} with sums from {total.min():.3g} to {total.max():.3g}. "
                         "Say kind='logit' for scores whose softmax counts")
    return (p.clip(0) / total[:, None]).astype(np.float32), None


def _mixtures(rows, n, width, rng):
    """(n, D) row numbers: each feature from one of two random rows; how many come from the first is random too."""
    first, second = rng.choice(rows, (n, 1)), rng.choice(rows, (n, 1))
    return np.where(rng.random((n, width)) < rng.random((n, 1)), first, second)


def _train(g, rows, mixed, *, classes, steps, batch_size, lr):
    """Half of each batch are rows, half mixtures, each with the model's answer: cross-entropy, or squared error."""
    rows, mixed = (rows, mixed) if len(mixed[0]) else (rows, rows)
    optimiser = torch.optim.AdamW(g.body.parameters(), lr=lr, weight_decay=0.01, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, lr, total_steps=steps)
    half = max(batch_size // 2, 1)
    for _ in range(steps):
        i, j = torch.randint(len(rows[0]), (half,)), torch.randint(len(mixed[0]), (half,))
        x, y = (torch.cat([a[i], b[j]]) for a, b in zip(rows, mixed, strict=True))
        out = g.body(g.encode(x))
        loss = F.cross_entropy(out, y) if classes else F.mse_loss(out, (y - g.shift) / g.stretch)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return g.eval()


def _fidelity(g, x, p, classes, spread):
    """agreement, r2 and kl of g on rows x that the model answers with p; R^2 is taken against ``spread``."""
    out = outputs(g, x).double()
    q, p = out.softmax(1) if classes else out, p.double()
    found = {"r2": float(1 - ((p - q) ** 2).mean(0).sum() / spread)}
    if classes:
        found["agreement"] = float((p.argmax(1) == q.argmax(1)).double().mean())
        found["kl"] = float((torch.special.xlogy(p, p) - p * out.log_softmax(1)).sum(1).mean())
    return found


def _words(f, name, classes):
    def one(prefix):
        r2 = f"R^2 {f[prefix + 'r2']:.3f}"
        return r2 if not classes else f"the same class for {f[prefix + 'agreement']:.1%}, {r2} of the probabilities"

    return (f"a stand-in for {name}; on {f['rows']} held-out rows {one('')}; on mixtures of them, such as BIF shows to "
            f"it, {one('mixed_')}")


def distill(predict, X, *, kind=None, min_fidelity=0.9, queries=20_000, steps=3000, batch_size=256, hidden=256, bins=24,
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
    function, kind = _function(predict, kind)
    values, _, names, _ = check_X(X)
    n, width = values.shape
    if n < 20:
        raise ValueError(f"X has {n} rows: at least 20 are needed, some to learn from and some to test on")
    if n < 100:
        warnings.warn(f"X has only {n} rows: the fidelity is measured on {round(n * holdout)} of them and is itself "
                      "uncertain", UserWarning, stacklevel=2)
    if not 0 < holdout < 1:
        raise ValueError(f"holdout must lie between 0 and 1; got {holdout}")
    X = X if hasattr(X, "columns") else X.detach() if isinstance(X, torch.Tensor) else np.asarray(X)
    rng = np.random.default_rng(derive("distill", seed))
    order = rng.permutation(n)
    cut = min(max(round(n * holdout), 2), n - 2)
    test, train = order[:cut], order[cut:]
    sources = [_mixtures(train, queries, width, rng), _mixtures(test, 4000, width, rng)]
    answers = [_ask(function, X, "X")]
    kind = _kind(answers[0], kind)
    answers += [_ask(function, _gather(X, s), "mixtures of X's rows") for s in sources if len(s)]
    targets, found = _targets(np.concatenate(answers), kind)
    targets = torch.from_numpy(targets)
    own, mixed, mixed_test = targets[:n], targets[n:n + queries], targets[n + queries:]
    if len(own.unique(dim=0)) == 1:
        raise ValueError("predict answers the same for every row of X: there is nothing to explain")
    classes, columns = kind != "value", np.arange(width)
    with torch.random.fork_rng(range(torch.cuda.device_count())):
        torch.manual_seed(derive("distill", seed))
        g = Distilled(width, targets.shape[1], hidden=hidden, bins=bins).learn_units(values[train])
        if not classes:
            g.shift.copy_(own[train].mean(0))
            g.stretch.copy_(own[train].std(0).clamp_min(1e-12))
        _train(g, (values[train], own[train]), (values[sources[0], columns], mixed), classes=classes, steps=steps,
               batch_size=batch_size, lr=lr)
    spread = own.double().var(0, unbiased=False).sum()
    f = {"rows": len(test), **_fidelity(g, values[test], own[test], classes, spread)}
    for k, v in _fidelity(g, values[sources[1], columns], mixed_test, classes, spread).items():
        f["mixed_" + k] = v
    owner = getattr(function, "__self__", None)
    g.fidelity_, g.likelihood_ = f, "categorical" if classes else "regression"
    g.classes_ = found or ([str(c) for c in getattr(owner, "classes_", [])] or None if classes else None)
    g._words = _words(f, getattr(function, "__name__", type(function).__name__), classes)
    _judge(g, kind, min_fidelity)
    return g


def _judge(g, kind, least):
    """Refuse below the stated fidelity; warn where only the mixtures fall below it."""
    if least is None:
        return
    held = [g.fidelity_[k] for k in ("agreement", "r2") if k in g.fidelity_ and not (kind == "label" and k == "r2")]
    if min(held) < least:
        error = NotFaithful(
            f"{g.report()}: below min_fidelity={least}, so that an explanation of it would not be one of the model. "
            "Ask more (queries=100_000, steps=10_000), give more rows, or smooth the model (a forest grown to the last "
            "row has learned noise by heart: try min_samples_leaf=5); min_fidelity=None goes on all the same")
        error.fidelity_ = g.fidelity_
        raise error
    if min(g.fidelity_["mixed_" + k] for k in ("agreement" if kind == "label" else "r2",)) < least:
        warnings.warn(f"{g.report()}: faithful to the data, less so to the mixtures that a marginal fill makes",
                      UserWarning, stacklevel=3)
