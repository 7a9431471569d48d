"""How far an explanation moved, and how far it moves by chance alone.

The trade-off studies train models at several *levels* (of privacy, of fairness) with several *seeds*, explain
each, and ask how far the explanation at a level lies from that of the unconstrained model, the *reference*.

Direction. The paper writes D_KL(p||q) and speaks of the "KL divergence between the feature importance
distribution under the non-private classifier and that under the private classifier": p is the reference, q
the level. So ``curve`` averages D_KL(reference || level) over paired seeds: both models of a pair share data,
initial weights and batches, and differ in the level only. ``swap=True`` turns the two round.

Floor. Two models of the *same* level that differ only in seed get different explanations too. Their mean
divergence, over all ordered pairs of seeds, is the floor: a curve speaks of the level only where it rises
above that.
``curve`` gives two of them: ``floor``, that of each level itself ("equally private models"), and in
``floor_reference`` that of the reference, the resolution of the measurement.

An explanation is a vector: alpha of a Dirichlet (``dirichlet_kl``) or the selection probabilities of INVASE
(``bernoulli_kl``).
"""

import math
from itertools import permutations

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from bifkit import dirichlet


def dirichlet_kl(alpha, beta) -> float:
    """D_KL(Dir(alpha) || Dir(beta)) in nats.

    >>> dirichlet_kl([2.0, 1.0], [2.0, 1.0])
    0.0
    """
    alpha, beta = dirichlet.check(alpha), dirichlet.check(beta)
    if alpha.shape != beta.shape or alpha.ndim != 1:
        raise ValueError(f"alpha and beta must be vectors of one length; got {alpha.shape} and {beta.shape}")
    return float(dirichlet.kl(alpha, beta))


def bernoulli_kl(p, q, *, clamp=1e-3) -> float:
    """Sum over features of D_KL(Bernoulli(p_d) || Bernoulli(q_d)), for INVASE's mean selection probabilities.

    Probabilities are clamped to [clamp, 1 - clamp]: INVASE's saturate, and one feature at 0 against 1 would
    be infinitely far apart. With the default such a feature counts 6.9 nats.

    >>> round(bernoulli_kl([0.5, 1.0], [0.5, 0.0]), 1)
    6.9
    """
    p, q = (np.clip(np.asarray(v, float), clamp, 1 - clamp) for v in (p, q))
    if p.shape != q.shape:
        raise ValueError(f"p and q must have one length; got {p.shape}, {q.shape}")
    return float((p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))).sum())


def _table(explanations) -> dict:
    """{level: {seed: vector}} from an iterable of (level, seed, vector)."""
    table = {}
    for level, seed, vector in explanations:
        if seed in table.setdefault(level, {}):
            raise ValueError(f"level {level}, seed {seed} occurs twice: give one explanation for each")
        table[level][seed] = np.asarray(vector, float)
    return table


def paired(explanations, *, reference, measure=dirichlet_kl, swap=False) -> pd.DataFrame:
    """Divergence of each explanation from the reference of its own seed: columns level, seed, kl.

    >>> e = [(math.inf, 0, [2.0, 1.0]), (1.0, 0, [1.0, 1.0])]
    >>> paired(e, reference=math.inf).round(3).values.tolist()
    [[1.0, 0.0, 0.193]]
    """
    table = _table(explanations)
    if reference not in table:
        raise ValueError(f"no explanation at the reference level {reference}; levels are {sorted(table)}")
    rows = []
    for level in sorted(set(table) - {reference}):
        for seed, vector in sorted(table[level].items()):
            if seed not in table[reference]:
                raise ValueError(f"seed {seed} of level {level} has no reference: pairs need both")
            p, q = table[reference][seed], vector
            rows.append({"level": level, "seed": seed, "kl": measure(q, p) if swap else measure(p, q)})
    return pd.DataFrame(rows, columns=["level", "seed", "kl"])


def floor(explanations, *, measure=dirichlet_kl) -> pd.DataFrame:
    """Divergence between models of one level that differ only in seed: level, floor, low, high, pairs.

    ``floor`` is the mean over all ordered pairs of seeds, ``low`` and ``high`` the extremes; NaN if alone.

    >>> e = [(1.0, 0, [2.0, 1.0]), (1.0, 1, [1.0, 1.0])]
    >>> floor(e).round(3).values.tolist()
    [[1.0, 0.25, 0.193, 0.307, 2.0]]
    """
    rows = []
    for level, seeds in sorted(_table(explanations).items()):
        values = [measure(a, b) for a, b in permutations(seeds.values(), 2)] or [math.nan]
        rows.append({"level": level, "floor": float(np.mean(values)), "low": min(values), "high": max(values),
                     "pairs": len(values) if len(seeds) > 1 else 0})
    return pd.DataFrame(rows)


def curve(explanations, *, reference, measure=dirichlet_kl, swap=False) -> pd.DataFrame:
    """One row per level: mean and standard error of the divergence over seeds, with both floors.

    >>> e = [(level, seed, [2.0 + seed, 1.0 + level]) for level in (0, 1, 2) for seed in (0, 1)]
    >>> curve(e, reference=0).columns.tolist()
    ['level', 'mean', 'se', 'seeds', 'floor', 'floor_reference']
    """
    explanations = list(explanations)
    kl = paired(explanations, reference=reference, measure=measure, swap=swap).groupby("level").kl
    frame = kl.agg(mean="mean", se=lambda v: v.std(ddof=1) / math.sqrt(len(v)), seeds="count").reset_index()
    floors = floor(explanations, measure=measure).set_index("level").floor
    frame["floor"] = frame.level.map(floors)
    frame["floor_reference"] = floors[reference]
    return frame


def verdict(frame, *, strongest="least") -> dict:
    """Of a ``curve``: Spearman of level against mean divergence; the strongest level's mean over its floors.

    ``strongest`` says which end of the levels constrains most: "least" (epsilon) or "greatest" (p%-rule).

    >>> c = pd.DataFrame({"level": [1.0, 2.0, 3.0], "mean": [9.0, 5.0, 1.0], "floor": 3.0})
    >>> verdict(c.assign(floor_reference=1.5))
    {'spearman': -1.0, 'strongest_over_floor': 3.0, 'strongest_over_floor_reference': 6.0}
    """
    if strongest not in ("least", "greatest"):
        raise ValueError(f'strongest must be "least" or "greatest"; got {strongest!r}')
    end = frame.sort_values("level").iloc[0 if strongest == "least" else -1]
    rank = float(spearmanr(frame["level"], frame["mean"]).statistic) if len(frame) > 1 else math.nan
    return {"spearman": rank,
            "strongest_over_floor": float(end["mean"] / end["floor"]),
            "strongest_over_floor_reference": float(end["mean"] / end["floor_reference"])}
