"""Refine local explanations row by row: from the importance network's answer, each row's own Dirichlet learns on.

The importance network (section 4.2) explains any row at once, and what rows have in common steadies it. A single row
can be explained more closely: its alpha becomes a parameter that starts where the network put it and climbs the same
ELBO (Eq. 7), with many draws, for that row alone. The result is more faithful to what g does *at that row* (deletion
and insertion, notebook 06), at a far higher price per row; where the question is which features made the label, the
network's own answer, which learns from all rows, is the better one.
"""

import numpy as np
import torch
from torch.nn import functional as F

from bifkit.dirichlet import FLOOR
from bifkit.elbo import elbo, one_against_rest, reader
from bifkit.inputs import checks as door
from bifkit.inputs import rows as batches
from bifkit.optim import AdamW
from bifkit.posterior import Posterior
from bifkit.seeding import derive


def refine(explainer, X, background, *, steps=150, draws=16, lr=0.05, rows=512):
    """The posteriors of the rows of ``X`` under a fitted LocalBIF, each refined by ``steps`` of its own.

    ``background`` are rows that lend their values (the training data, or a part of it). g's own prediction is
    explained. ``rows`` are refined at a time. With ``classes`` the answer is {class: posterior}, as in ``explain``.

    >>> from bifkit import LocalBIF
    >>> X = np.random.default_rng(0).normal(size=(300, 3)).astype("float32")
    >>> g = torch.nn.Linear(3, 2, bias=False); _ = g.weight.data.copy_(torch.tensor([[-3.0, 0, 0], [3, 0, 0]]))
    >>> fitted = LocalBIF(g, min_steps=100, epochs=1).fit(X)
    >>> refine(fitted, X[:2], X, steps=20).top(1)
    [['x0'], ['x0']]
    """
    for name, value in (("steps", steps), ("draws", draws), ("rows", rows)):
        if not (isinstance(value, int | np.integer) and value >= 1):
            raise ValueError(f"{name} must be a whole number of at least 1; got {value!r}")
    if explainer.model is None:
        raise ValueError("refining needs the model: load the explainer with load(path, model)")
    start = explainer.explain(X)
    if isinstance(start, Posterior) and not start.is_local:
        raise TypeError("a global explanation has no rows to refine: fit a LocalBIF")
    device = door.check_model(explainer.model)
    x, pool = (door.check_X(a, width=explainer.n_features_in_)[0].to(device) for a in (X, background))
    found = {}
    gpus = range(torch.cuda.device_count())
    with door.frozen(explainer.model), torch.random.fork_rng(gpus), torch.enable_grad():
        torch.manual_seed(derive("refine", explainer.seed))
        for c, before in start.items() if isinstance(start, dict) else [(None, start)]:
            task = _Task(explainer, pool, c, draws)
            alpha = [task.climb(x[i:i + rows], before.alpha[i:i + rows], steps, lr) for i in range(0, len(x), rows)]
            found[c] = Posterior(np.concatenate(alpha), before.feature_names, index=before.index,
                                 settings=before.settings | {"refined": int(steps)})
    return found if isinstance(start, dict) else found[None]


class _Task:
    """What is the same for all rows: g, the objective, and the rows that lend their values."""

    def __init__(self, explainer, pool, class_number, draws):
        whole = batches.view(explainer.model, explainer.shape_)
        self.g = whole if class_number is None else lambda x: one_against_rest(whole(x), class_number)
        self.whole, self.settings = whole, explainer.settings_.changed(draws=draws, target="soft", point_estimate=False)
        self.read = reader("soft", explainer.likelihood_, class_number)
        likelihood = explainer.likelihood_ if class_number is None else "binary"
        weight = explainer.settings_.kl_weight  # by name: Eq. 7 has one KL a row, the code one a batch
        weight = {"elbo": 1.0, "1/batch": 1.0 / explainer.settings_.batch_size}.get(weight, weight)
        scale = 1.0
        if likelihood == "regression":
            scale = float(door.outputs(whole, pool).std()) or 1.0
        self.kw = {"groups": torch.as_tensor(explainer.groups_, device=pool.device), "mean": pool.mean(0), "pool": pool,
                   "likelihood": likelihood, "kl_weight": weight, "scale": scale}

    def climb(self, x, alpha, steps, lr):
        """Alpha (B, G) of the rows after ``steps``, averaged over the last two fifths of them."""
        with torch.no_grad():
            target = self.read(self.whole(x), None)
        alpha = torch.as_tensor(alpha, dtype=torch.float32, device=x.device)
        theta = torch.log(torch.expm1((alpha - FLOOR).clamp_min(1e-4))).requires_grad_(True)  # softplus, inverted
        theta.data = torch.where(alpha > 20, alpha, theta.data)
        adam = AdamW([theta], lr=lr)
        last, total = steps - max(2 * steps // 5, 1), 0.0
        for step in range(steps):
            now = F.softplus(theta) + FLOOR
            value, _ = elbo(self.g, x, target, now, self.settings, **self.kw)
            theta.grad = None
            (-value * len(x)).backward()  # a row's gradient must not shrink with the number of rows beside it
            adam.step()
            if step >= last:
                total = total + now.detach()
        return (total / (steps - last)).double().cpu().numpy()
