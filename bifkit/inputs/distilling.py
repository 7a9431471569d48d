"""A differentiable stand-in for a model that has no gradient: forests, boosting, anything that predicts.

    g = distill(forest.predict_proba, X)      # learns to answer as the forest does, and says how well
    GlobalBIF(g).fit(X).explain()

BIF learns by gradients through g, which a forest does not have. ``distill`` asks the model about the rows of X and
**mixtures** of them (some features of a row replaced by another row's), and trains a network g on its answers. The
mixtures matter: they are what BIF shows to g, and a stand-in that only knows the data would answer them as it likes.

g sees each feature through a piecewise-linear code: how far the value has come through each of ``bins`` ranges that
hold equally many rows (and the standardised value, its tails drawn in). Units and skewed columns then do not matter,
and the thresholds of trees are easy to learn; the code is linear in between, so that gradients flow. A model that was
trained on a frame with categories, text, dates and gaps is asked with such frames; the stand-in learns from numbers
(:mod:`bifkit.inputs.tables`), and explainers turn new frames into the same ones.

An explanation of g explains the model only as far as the two agree, so a fifth of the rows is held out to measure that.
Agreement and R^2 must both reach ``min_fidelity``: a rare class makes agreement easy and R^2 hard, and BIF's soft
target explains probabilities, not classes.
"""

import functools
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn
from torch.nn import functional as F

from bifkit.inputs.answers import ask, function_of, gather, kind_of, mixtures, targets
from bifkit.inputs.checks import check_X, warn
from bifkit.inputs.models import outputs
from bifkit.inputs.tables import Table, dense, needs_table
from bifkit.training import derive_seed, seeded


class NotFaithful(ValueError):
    """The stand-in does not answer as the model does; ``fidelity_`` has the numbers."""

    def __init__(self, message: str, fidelity: dict[str, float] | None = None) -> None:
        super().__init__(message)
        self.fidelity_ = fidelity


class Distilled(nn.Module):
    """The stand-in that ``distill`` returns: logits (B, C), or values (B, 1), for rows in the units of its X.

    Parameters
    ----------
    n_features, n_outputs : int
        Number of inputs and of outputs.
    hidden : int, default 128
        Width of the two hidden layers.
    bins : int, default 16
        Number of ranges that each feature is coded by.

    Attributes
    ----------
    fidelity_ : dict
        On ``rows`` held-out rows: ``agreement`` (share that gets the same class), ``r2`` (share of the variance of the
        model's probabilities, or values, that g reproduces), ``kl`` (mean divergence in nats). With ``mixed_`` before
        the name, the same on mixtures of those rows.
    held_out_ : int array
        Numbers of those rows.
    classes_ : list or None
        Names of the output columns, where the model has some.
    likelihood_ : {"categorical", "regression"}
        What an explainer takes its outputs for.
    table_ : Table or None
        How a frame becomes the numbers that g takes; see :meth:`numbers`.
    """

    centre: Tensor
    scale: Tensor
    start: Tensor
    rate: Tensor
    shift: Tensor
    stretch: Tensor

    def __init__(self, n_features: int, n_outputs: int, *, hidden: int = 128, bins: int = 16) -> None:
        super().__init__()
        self.register_buffer("centre", torch.zeros(n_features))
        self.register_buffer("scale", torch.ones(n_features))
        self.register_buffer("start", torch.zeros(n_features, bins))
        self.register_buffer("rate", torch.zeros(n_features, bins))  # 1 / width; 0 for an empty range
        self.register_buffer("shift", torch.zeros(n_outputs))
        self.register_buffer("stretch", torch.ones(n_outputs))
        self.body = nn.Sequential(nn.Linear(n_features * (bins + 1), hidden), nn.ReLU(), nn.Linear(hidden, hidden),
                                  nn.ReLU(), nn.Linear(hidden, n_outputs))
        self.fidelity_: dict[str, float] = {}
        self.held_out_: np.ndarray | None = None
        self.classes_: list | None = None
        self.likelihood_: str | None = None
        self.table_: Table | None = None
        self.name_ = ""

    def numbers(self, X: Any) -> Any:
        """Return rows as g takes them: those of a frame in the order and the numbers that it learned from.

        Explainers do this themselves.

        Parameters
        ----------
        X : DataFrame, array, sparse matrix or tensor
            Rows as the model takes them, with the columns of ``distill``.
        """
        X = dense(X)
        return X if self.table_ is None or not needs_table(X) else self.table_.encode(X)

    def encode(self, x: Tensor) -> Tensor:
        """Return the code of rows (B, D): the standardised values and how far each is through each range.

        >>> g = Distilled(2, 1, bins=4).learn_units(torch.arange(10.0).view(5, 2))  # quartiles of the first: 0 2 4 6 8
        >>> g.encode(torch.tensor([[5.0, 1.0]]))[0, 2:6].tolist()  # through two ranges and half of the third
        [1.0, 1.0, 0.5, 0.0]
        """
        z = torch.asinh((x - self.centre) / self.scale)
        through = ((x.unsqueeze(-1) - self.start) * self.rate).clamp(0, 1)  # (B, D, T)
        return torch.cat([z, through.flatten(1)], 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits or values of rows (B, ...), which are flattened."""
        return self.body(self.encode(x.flatten(1))) * self.stretch + self.shift

    @torch.no_grad()
    def learn_units(self, X: Tensor, table: Table | None = None) -> "Distilled":
        """Take centre, scale and ranges from the rows (N, D), numbers of ``table``; return the module."""
        sd = X.std(0)
        self.centre.copy_(X.mean(0))
        self.scale.copy_(torch.where(sd > 0, sd, torch.ones_like(sd)))
        edges = np.quantile(X[:50_000].numpy(), np.linspace(0, 1, self.start.shape[1] + 1), axis=0).T
        edges = edges if table is None else table.edges(X[:50_000].numpy(), edges)
        starts = torch.from_numpy(edges.astype(np.float32))  # (D, T + 1)
        width = starts.diff(dim=1)
        self.start.copy_(starts[:, :-1])
        self.rate.copy_(torch.where(width > 0, 1 / width, torch.zeros_like(width)))
        return self

    def report(self) -> str:
        """Return in words how faithful it is."""
        f = self.fidelity_
        if not f:
            return "not distilled from anything yet"
        on = {prefix: f"R^2 {f[prefix + 'r2']:.3f}" if "agreement" not in f else
              f"the same class for {f[prefix + 'agreement']:.1%}, R^2 {f[prefix + 'r2']:.3f} of the probabilities"
              for prefix in ("", "mixed_")}
        return (f"a stand-in for {self.name_}; on {f['rows']} held-out rows {on['']}; on mixtures of them, such as BIF "
                f"shows to it, {on['mixed_']}")

    def __repr__(self) -> str:
        return f"Distilled: {self.report()}"


def _train(g: Distilled, x: Tensor, p: Tensor, kinds: list[Tensor], *, classify: bool, steps: int, batch_size: int,
           lr: float) -> None:
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


def _fidelity(g: Distilled, x: Tensor, p: Tensor, classify: bool, spread: float) -> dict[str, float]:
    """agreement, r2 and kl of g on rows x that the model answers with p; ``spread`` is what R^2 is relative to."""
    out, p = outputs(g, x).double(), p.double()
    q = out.softmax(1) if classify else out
    found = {"r2": float(1 - ((p - q) ** 2).mean(0).sum() / spread)}
    if classify:
        found["agreement"] = float((p.argmax(1) == q.argmax(1)).double().mean())
        found["kl"] = float((torch.special.xlogy(p, p) - p * out.log_softmax(1)).sum(1).mean())
    return found


def _judge(g: Distilled, kind: str, least: float) -> None:
    """Refuse below the stated fidelity; warn where only the mixtures fall below it."""
    f, counts = g.fidelity_, {"label": ("agreement",), "value": ("r2",)}.get(kind, ("agreement", "r2"))
    if not min(f[k] for k in counts) >= least:  # NaN is refused too
        raise NotFaithful(
            f"{g.report()}: below min_fidelity={least}, so that an explanation of it would not be one of the model. "
            "Ask more (queries=100_000, steps=10_000), give more rows, or smooth the model (a forest grown to the last "
            "row has learned noise by heart: try min_samples_leaf=5); min_fidelity=None goes on all the same", f)
    if not f["mixed_" + counts[-1]] >= least:  # classes of mixtures are often a toss-up: R^2 where there is one
        warn(f"{g.report()}: below min_fidelity={least} there, so read the explanation with care")


def _check(n: int, width: int, *, holdout: float, queries: int, steps: int, batch_size: int,
           min_fidelity: float | None) -> None:
    """Refuse settings that cannot work."""
    if width < 2:
        raise ValueError(f"X has {'one' if width else 'no'} feature: importance is relative, so at least two are "
                         "needed")
    if n < 20:
        raise ValueError(f"X has {n} rows: at least 20 are needed, some to learn from and some to test on")
    if not 0 < holdout < 1:
        raise ValueError(f"holdout is the share of rows to test on, between 0 and 1; got {holdout}")
    if queries < 0 or steps < 1 or batch_size < 2:
        raise ValueError(f"queries must be at least 0, steps 1 and batch_size 2; got {queries}, {steps}, {batch_size}")
    if min_fidelity is not None and not min_fidelity <= 1:
        raise ValueError(f"min_fidelity is at most 1, or None to accept anything; got {min_fidelity}")
    if n < 100:
        warn(f"X has only {n} rows: the fidelity is measured on {round(n * holdout)} of them and is itself uncertain")


def distill(predict: Any, X: Any, *, kind: str | None = None, min_fidelity: float | None = 0.9, queries: int = 20_000,
            steps: int = 2500, batch_size: int = 256, hidden: int = 128, bins: int | None = None,
            lr: float = 1e-2, holdout: float = 0.2, seed: int = 0) -> Distilled:
    """Train a differentiable stand-in for a model on its own answers, and refuse where the two disagree.

    Parameters
    ----------
    predict : function of rows, estimator, or torch module
        What to stand in for. A module is needed here only where it has no gradient (a threshold, an index inside), and
        ``kind="logit"`` or ``"value"`` says what it returns; of an estimator ``predict_proba``, else
        ``decision_function`` or ``predict``. It is called with rows of X's own type, columns and dtypes.
    X : DataFrame, array, sparse matrix, tensor or list of rows
        At least 20 rows, as the model takes them. Categories, text, booleans, dates and missing values may stay as they
        are (:mod:`bifkit.inputs.tables`); an explainer then takes such frames too.
    kind : {"probability", "logit", "label", "value"}, optional
        What ``predict`` answers, where its name or its answers do not show it: probabilities (columns that sum to one,
        or one column, of the second class), logits (scores or margins: their softmax is learned), labels, or values of
        a regression.
    min_fidelity : float or None, default 0.9
        Agreement and R^2 on held-out rows must reach it (of labels, which have no probabilities, agreement alone).
        None accepts whatever comes; ``fidelity_`` still has the numbers.
    queries : int, default 20_000
        Number of mixtures of X's rows to ask about, besides X.
    steps, batch_size, lr : int, int, float, default 2500, 256, 1e-2
        Training: AdamW with a one-cycle schedule up to ``lr``.
    hidden : int, default 128
        Width of the network.
    bins : int, optional
        Ranges that each feature is coded by: 16, or 64 where a column has more than 16 categories.
    holdout : float, default 0.2
        Share of the rows that is held out to measure fidelity.
    seed : int, default 0
        The same seed gives the same stand-in.

    Returns
    -------
    Distilled

    Raises
    ------
    NotFaithful
        Where the stand-in does not reach ``min_fidelity``.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> g = distill(lambda X: X[:, 0] > X[:, 1], X, steps=300, hidden=32)
    >>> g.classes_, bool(g(torch.tensor([[1.0, -1.0]])).argmax()), g.fidelity_["agreement"] > 0.9
    ([False, True], True, True)
    """
    function, kind = function_of(predict, kind)
    if sparse.issparse(X):
        model, form, X = function, type(X), dense(X)
        function = functools.wraps(model)(lambda rows: model(form(rows)))
    raw, values = needs_table(X), None
    if not raw:
        values = check_X(X)[0]
        X = X.detach() if isinstance(X, Tensor) else np.asarray(X)
    elif not hasattr(X, "columns"):
        X = np.asarray(X)
    n, width = X.shape if values is None else values.shape
    _check(n, width, holdout=holdout, queries=queries, steps=steps, batch_size=batch_size, min_fidelity=min_fidelity)
    rng = np.random.default_rng(derive_seed("distill", seed))
    order, cut = rng.permutation(n), min(max(round(n * holdout), 2), n - 2)
    test, train = order[:cut], order[cut:]
    mixed = np.concatenate([mixtures(train, queries, width, rng), mixtures(test, 4000, width, rng)])
    answers = ask(function, X)
    kind = kind or kind_of(answers)
    known, labels = targets(np.concatenate([answers, ask(function, gather(X, mixed), "mixtures of X's rows")]), kind)
    if (known[:n] == known[0]).all():
        raise ValueError("predict answers the same for every row of X: there is nothing to explain")
    table = None
    if values is None:
        asked = np.concatenate([np.repeat(train[:, None], width, 1), mixed[:queries]])
        table = Table(X, asked, np.concatenate([known[train], known[n:n + queries]]))
        values = torch.from_numpy(np.array(table.encode(X)))
    p, classify, spread = torch.from_numpy(known.astype(np.float32)), kind != "value", float(known[:n].var(0).sum())
    x = torch.cat([values, values[mixed, np.arange(width)]])
    kinds = [torch.from_numpy(k) for k in (train, np.arange(n, n + queries)) if len(k)]
    bins = bins or (64 if table is not None and table.most_categories() > 16 else 16)
    with seeded("distill", seed):
        g = Distilled(width, p.shape[1], hidden=hidden, bins=bins).learn_units(values[train], table)
        if not classify:
            g.shift.copy_(p[train].mean(0))
            g.stretch.copy_(p[train].std(0).clamp_min(1e-12))
        _train(g, x, p, kinds, classify=classify, steps=steps, batch_size=batch_size, lr=lr)
    g.eval()
    g.table_ = table
    off = _fidelity(g, x[n + queries:], p[n + queries:], classify, spread)
    g.fidelity_ = {"rows": len(test), **_fidelity(g, values[test], p[test], classify, spread),
                   **{"mixed_" + k: v for k, v in off.items()}}
    g.held_out_, g.likelihood_ = np.sort(test), "categorical" if classify else "regression"
    names = list(getattr(getattr(function, "__self__", None), "classes_", []))
    g.classes_ = labels or (names if len(names) == p.shape[1] and classify else None)
    g.name_ = getattr(function, "__name__", type(function).__name__)
    if min_fidelity is not None:
        _judge(g, kind, min_fidelity)
    return g


def numbers(model: Any, X: Any) -> Any:
    """Return rows as the explained model takes them: of a stand-in in its numbers; a sparse matrix becomes an array."""
    return model.numbers(X) if isinstance(model, Distilled) else dense(X)
