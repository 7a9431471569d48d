"""Whose selections tell by what they keep, and whose by where they look? For the tables of notebooks 02 and 03.

One pair of evaluators (:class:`bifkit.evaluation.Evaluator`) per data set and seed serves every method: both are
trained on the training rows with masks drawn blindly, of sizes 1 to 5 (``sizes``) or each feature with probability one
half (``half``), and are told the mask. ``fixed set`` is one set for all rows, found by each evaluator for itself on
training rows: what a choice per row is worth begins above it.
"""

import numpy as np
import pandas as pd

from bifkit.evaluation import Evaluator, top_k_mask
from experiments.runner.rows import finished

VARIANTS = {"sizes": "EVAL-X, masks of 1 to 5", "half": "EVAL-X, every input with probability 1/2"}
FIXED, SURROGATE = "fixed set", "bifkit + surrogate"
TRAINING = {}  # settings of the evaluators beside their defaults
ROWS = 2000  # training rows that a fixed set is found on; explained rows that encoding is measured on


def evaluators(X, y, ks, *, groups=None, fill="mean", seed):
    """({variant: fitted Evaluator}, {variant: its fixed sets as scores (G,), found first, ranked first}).

    >>> X = np.random.default_rng(0).normal(size=(300, 3)).astype("float32"); y = (X[:, 1] > 0).astype(int)
    >>> judges, fixed = evaluators(X, y, (1, 2), seed=100)
    >>> sorted(judges), fixed["sizes"].argmax()
    (['half', 'sizes'], np.int64(1))
    """
    judges = {v: Evaluator(v, k=max(ks), groups=groups, fill=fill, seed=seed, progress=False, **TRAINING)
              .fit(X, y) for v in VARIANTS}
    fixed = {v: np.zeros(judge.n_groups_) for v, judge in judges.items()}
    for v, judge in judges.items():
        fixed[v][judge.search(X[:ROWS], y[:ROWS], max(ks))] = np.arange(max(ks), 0, -1)
    return judges, fixed


def scores(judges, X, y, masks, k, *, sample, unit=1.0, encoding=False):
    """The columns of one method and k: accuracy and AUC in ``unit``, nats, on all rows and on the ``sample``.

    ``masks`` are those of the method, bool (N, G), or the fixed sets of ``evaluators``.
    """
    out = {}
    for variant, judge in judges.items():
        mask = top_k_mask(masks[variant], k) if isinstance(masks, dict) else masks
        mask = np.broadcast_to(mask, (len(X), mask.shape[-1]))
        found, part = judge.score(X, y, mask), judge.score(X[sample], y[sample], mask[sample])
        out |= {f"evalx_{variant}_{k}": unit * found["accuracy"],
                f"evalx_{variant}_{k}_sample": unit * part["accuracy"],
                f"auc_{variant}_{k}": unit * found["auc"], f"nats_{variant}_{k}": found["log_likelihood"]}
        if encoding and variant == "sizes":
            told = judge.encoding(X[:ROWS], y[:ROWS], mask[:ROWS])
            out |= {f"encoding_{k}": told.gain, f"encodes_{k}": told.encodes}
    return out


def by_seed(frame, score, dataset=None):
    """One score of the finished runs: one row per seed, one column per method."""
    runs = finished(frame)
    runs = runs if dataset is None else runs[runs["dataset"] == dataset]
    return runs.reindex(columns=["seed", "method", score]).astype({score: float}).pivot(
        index="seed", columns="method", values=score)


def table(frame, score, cells, methods):
    """(mean, standard deviation) over seeds of one score: one row per method, one column per cell.

    Parameters
    ----------
    frame : DataFrame
        The runs.
    score : str
        The runs' column with {k} in it, such as "evalx_sizes_{k}".
    cells : dict
        {shown column: (data set or None, k)}.
    methods : list of str
        Rows; those that are not in the frame are left out.

    Examples
    --------
    >>> frame = pd.DataFrame({"method": "bifkit", "seed": [0, 1], "error": "", "auc_half_1": [0.8, 0.9]})
    >>> table(frame, "auc_half_{k}", {"k=1": (None, 1)}, ["bifkit", "L2X"])[0].round(2).to_dict()
    {'k=1': {'bifkit': 0.85}}
    """
    rows = [m for m in methods if m in set(frame["method"])]
    wide = {name: by_seed(frame, score.format(k=k), d) for name, (d, k) in cells.items()}
    return tuple(pd.DataFrame({name: part(w).reindex(rows) for name, w in wide.items()}, index=rows)
                 for part in (lambda w: w.mean(), lambda w: w.std(ddof=1)))


def _mean_and_error(differences):
    """Mean of paired differences over the seeds that have both, and its standard error."""
    found = differences.dropna()
    return found.mean(), found.std(ddof=1) / len(found) ** 0.5 if len(found) > 1 else 0.0


def against_fixed(frame, cells, *, slow=(), not_rivals=()):
    """One row per cell and variant: ours with and without the surrogate beside the fixed set and the best rival.

    ``over fixed`` is how far ours is above the fixed set, a mean over seeds, ``error`` its standard error (paired by
    seed); ``level`` whether it is at least level: not below by more than that. ``lead`` is how far the best other
    method is ahead of ours, on the same rows, ``lead error`` its standard error.
    """
    lines = []
    for name, (dataset, k) in cells.items():
        for variant in VARIANTS:
            whole, part = (by_seed(frame, f"evalx_{variant}_{k}{end}", dataset) for end in ("", "_sample"))
            for ours in ("bifkit", SURROGATE):
                if ours not in whole or FIXED not in whole or whole[[ours, FIXED]].dropna().empty:
                    continue
                over, error = _mean_and_error(whole[ours] - whole[FIXED])
                rivals = {m: _mean_and_error(rows[m] - rows[ours]) for m in whole
                          for rows in [part if m in slow else whole]
                          if m not in ("bifkit", SURROGATE, FIXED, *not_rivals) and rows[m].notna().any()}
                best = max(rivals, key=lambda m: rivals[m][0], default="-")
                lead = rivals.get(best, (np.nan, np.nan))
                lines.append([name, variant, ours, whole[ours].mean(), whole[FIXED].mean(), over, error,
                              over >= -error, best, *lead])
    return pd.DataFrame(lines, columns=["cell", "variant", "method", "EVAL-X", FIXED, "over fixed", "error", "level",
                                        "best other", "lead", "lead error"])


def encoders(frame, cells, methods):
    """Nats per row that the mask tells beyond the kept values, a mean over seeds; a star where most seeds say it does.

    >>> frame = pd.DataFrame({"method": "L2X", "seed": [0, 1], "error": "", "encoding_1": 0.2, "encodes_1": True})
    >>> encoders(frame, {"k=1": (None, 1)}, ["L2X"]).loc["L2X", "k=1"]
    '0.20*'
    """
    gain, _ = table(frame, "encoding_{k}", cells, methods)
    often, _ = table(frame, "encodes_{k}", cells, methods)
    return pd.DataFrame({c: [("-" if pd.isna(g) else f"{g:.2f}" + "*" * (o > 0.5)) for g, o in
                             zip(gain[c], often[c], strict=True)] for c in gain}, index=gain.index)


def findings(verdicts, told):
    """Sentences: where ours is at least level with the fixed set and with the best other, and whose masks tell more.

    ``verdicts`` is ``against_fixed``, ``told`` is ``encoders``.
    """
    if verdicts.empty:
        return ["not run"]
    lines = []
    verdicts = verdicts.rename(columns=lambda name: name.replace(" ", "_"))
    for ours, part in verdicts.groupby("method", sort=False):
        short = [f"{r.cell} {r.variant} by {-r.over_fixed:.2g}" for r in part[~part["level"]].itertuples()]
        ahead = part[part["lead"] > part["lead_error"]]
        behind = [f"{r.cell} {r.variant} ({r.best_other} by {r.lead:.2g})" for r in ahead.itertuples()]
        lines.append(f"{ours}: at least level with the fixed set in {int(part['level'].sum())} of {len(part)} cells; "
                     f"below: {', '.join(short) or 'none'}")
        if n := int(part["lead"].notna().sum()):  # some other method was scored
            lines.append(f"{ours}: at least level with the best other method in {n - len(ahead)} of {n} cells; "
                         f"behind: {', '.join(behind) or 'none'}")
    counts = {m: (row.str.endswith("*").sum(), (row != "-").sum()) for m, row in told.iterrows()}
    return [*lines, "the choice tells more of the label than what is kept, by method: "
            + ", ".join(f"{m} {n} of {of} cells" for m, (n, of) in counts.items() if of)]


def fidelity(frame, unit=1.0):
    """A sentence: how far the surrogate agrees with g; empty where it was not run.

    >>> frame = pd.DataFrame({"method": SURROGATE, "error": "", "surrogate_agreement": [0.99],
    ...                       "surrogate_masked_agreement": 0.8, "surrogate_g_masked_agreement": 0.7})
    >>> fidelity(frame)
    "the surrogate gives g's class on 99.0% of held-out rows, from a random part of them on 80.0% (g itself: 70.0%)"
    """
    runs = finished(frame)
    mean = runs[runs["method"] == SURROGATE].filter(like="surrogate_").mean() / unit
    if mean.isna().all():
        return ""
    whole, part, g = (mean[f"surrogate_{name}agreement"] for name in ("", "masked_", "g_masked_"))
    return (f"the surrogate gives g's class on {whole:.1%} of held-out rows, from a random part of them on {part:.1%} "
            f"(g itself: {g:.1%})")
