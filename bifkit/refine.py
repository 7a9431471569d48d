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

from bifkit import inputs
from bifkit.dirichlet import FLOOR
from bifkit.elbo import elbo, of_classes
from bifkit.posterior import Posterior
from bifkit.training import adamw, seeded


def refine(explainer, X, background, *, steps=150, draws=16, lr=0.05, rows=512):
    """The posteriors of the rows of ``X``, each refined by steps of its own; g's own prediction is explained.

    Parameters
    ----------
    explainer : LocalBIF
        Fitted.
    X : DataFrame, array or tensor
        Rows to explain.
    background : DataFrame, array or tensor
        Rows that lend their values: the training data, or a part of it.
    steps : int, default 150
        Steps for each row.
    draws : int, default 16
        Samples of f per row and step.
    lr : float, default 0.05
        Learning rate.
    rows : int, default 512
        Rows refined at a time.

    Returns
    -------
    Posterior
        With several ``classes`` of the explainer: {class: posterior}, as in ``explain``.
    """
    for name, value in (("steps", steps), ("draws", draws), ("rows", rows)):
        if not (isinstance(value, int | np.integer) and value >= 1):
            raise ValueError(f"{name} must be a whole number of at least 1; got {value!r}")
    if explainer.model is None:
        raise ValueError("refining needs the model: load the explainer with load(path, model)")
    start = explainer.explain(X)
    if isinstance(start, Posterior) and not start.is_local:
        raise TypeError("a global explanation has no rows to refine: fit a LocalBIF")
    device = inputs.check_model(explainer.model)
    found = {}
    with seeded("refine", explainer.seed), inputs.frozen(explainer._explained()[0]):
        x, pool = (explainer._rows(a, device)[0] for a in (X, background))
        for c, before in start.items() if isinstance(start, dict) else [(explainer.classes_, start)]:
            objective = _objective(explainer, pool, c, draws)
            alpha = [_climb(objective, x[i:i + rows], before.alpha[i:i + rows], steps, lr)
                     for i in range(0, len(x), rows)]
            found[c] = Posterior(np.concatenate(alpha), before.feature_names, index=before.index,
                                 settings=before.settings | {"refined": int(steps)})
    return found if isinstance(start, dict) else found[explainer.classes_]


def _objective(explainer, pool, class_number, draws):
    """A function of rows x that gives a function of alpha: their ELBO."""
    s = explainer.settings_.changed(draws=draws, target="soft", point_estimate=False,
                                    fidelity="absolute")  # a relative gap is one of all rows; here each is on its own
    whole, scale = explainer._flat_g(pool), 1.0
    if explainer.likelihood_ == "regression":
        scale = inputs.outputs(whole, pool).std(0)
        scale = torch.where(scale > 0, scale, 1.0)
    g, read, likelihood, scale = of_classes(whole, class_number, explainer.likelihood_, scale=scale)
    weight = {"elbo": 1.0, "1/batch": 1.0 / s.batch_size}.get(s.kl_weight, s.kl_weight)  # Eq. 7: one KL per row
    groups = explainer._group_of_column(pool.device)
    how = {"groups": groups, "mean": pool[:, :len(groups)].mean(0), "pool": pool[:, :len(groups)],
           "likelihood": likelihood, "kl_weight": weight, "scale": scale}

    def of_rows(x):
        with torch.no_grad():
            target = read(whole(x), None)
        return lambda alpha: elbo(g, x, target, alpha, s, **how)

    return of_rows


def _climb(objective, x, alpha, steps, lr):
    """alpha (B, G) of the rows after ``steps``, averaged over the last two fifths of them."""
    value_of, alpha = objective(x), torch.as_tensor(alpha, dtype=torch.float32, device=x.device)
    theta = torch.log(torch.expm1((alpha - FLOOR).clamp_min(1e-4)))  # softplus, inverted
    theta = torch.where(alpha > 20, alpha, theta).requires_grad_(True)
    optimiser = adamw([theta], lr=lr)
    last, total = steps - max(2 * steps // 5, 1), 0.0
    for step in range(steps):
        now = F.softplus(theta) + FLOOR
        optimiser.zero_grad()
        (-value_of(now) * len(x)).backward()  # a row's gradient must not shrink with the number of rows beside it
        optimiser.step()
        if step >= last:
            total = total + now.detach()
    return (total / (steps - last)).double().cpu().numpy()
