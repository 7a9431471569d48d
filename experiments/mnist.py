"""MNIST study: which patches tell a 3 from an 8? (the MNIST table and figure, and the supplement's spread)

A run is a method x seed. Every method scores the 49 patches of 4 x 4 pixels of every test digit; a digit keeps its k
best patches, the rest turns black, and a classifier that was trained on whole digits (the *judge*) reads it. All
methods that explain a g explain the same one: its stream is named by the seed alone.

*The judge.* 784-300-300-1 with BatchNorm, trained on whole digits and, as in the paper, one for all methods and seeds.
What such a network says of an almost empty picture is chance: it calls it a 3 with a logit between -3 and -9,
depending on its first weights, and one patch may or may not be enough to change its mind. The ``ceiling`` is the share
of test digits that *some* single patch makes it read right: no explanation can pass it at k=1. Judges number 0 to 7
have ceilings (on training digits) of CEILINGS; number JUDGE is the first above .9. A *fresh* judge, another one in
every seed, is reported beside it.

*Does the mask give the label away?* ``mask_k`` is the accuracy of a classifier that sees only which patches were
kept: fitted on one half of the explained test digits, scored on the other, and the other way round.
"""

import functools
import json
import time

import numpy as np
import pandas as pd

from bifkit import LocalBIF, Posterior, evaluate, pictures
from bifkit.baselines import INVASE, L2X
from bifkit.models import accuracy, mlp, predict_proba, train
from bifkit.paper import numbers
from bifkit.seeding import derive, seed_all
from data_prep.mnist import load_mnist, patches

SEEDS, KS = range(5), (1, 2, 3, 4, 5)
OURS = ["bifkit", "bifkit rank"]
RIVALS = ["BIF", "L2X", "INVASE", "LIME", "SHAP", "IntegratedGradients"]  # BIF: the literal objective
METHODS = OURS + RIVALS
LAMBDAS = dict(zip(KS, (100, 50, 23, 18.5, 15.5), strict=True))  # INVASE, supplement
SLOW = ("LIME",)  # explained on a fixed sample of test digits; everyone is also scored on it
SAMPLE, SHOWN, SHOWN_K = 300, 10, 4  # rows of the sample; its first are the figure's digits; patches shown
JUDGE = 4
L2X_PLAN = {"iterations": 1000, "batch_size": 64, "lr": 1e-3}
INVASE_PLAN = {"iterations": 1000, "batch_size": 64, "lr": 1e-3}


def grid(profile="paper", *, methods=METHODS):
    """The runs of the study, seed by seed (so that a worker trains g once a seed); smoke: one seed, few digits.

    >>> len(grid("smoke")), len(grid("paper"))
    (2, 40)
    """
    rows, steps, seeds = 11_982, 1000, SEEDS
    if profile == "smoke":
        rows, steps, seeds = 1500, 150, [0]
        methods = [m for m in methods if m in ("bifkit", "IntegratedGradients")]
    return [{"method": m, "seed": s, "rows": rows, "steps": steps} for s in seeds for m in methods]


@functools.lru_cache(maxsize=1)
def digits(rows):
    """The data (the publisher's split, so the same for every seed), at smoke size fewer training rows."""
    data = load_mnist(0)
    return data.X_train[:rows], data.y_train[:rows], data.X_test, data.y_test


@functools.lru_cache(maxsize=1)
def model_of(seed, rows):
    """g: 784-300-300-1 without BatchNorm, 10 epochs (supplement)."""
    X, y, _, _ = digits(rows)
    seed_all("MNIST", seed, "g")
    return train(mlp([784, 300, 300, 1]), X, y, epochs=10, seed=derive("MNIST", seed, "g"))


@functools.lru_cache(maxsize=2)
def judge(number, rows):
    """(a judge, its ceiling at k=1 on the test digits); the same number gives the same network."""
    X, y, X_test, y_test = digits(rows)
    seed_all("MNIST", "judge", number)
    model = train(mlp([784, 300, 300, 1], batch_norm=True), X, y, epochs=10, lr=1e-3, weight_decay=0.01,
                  seed=derive("MNIST", "judge", number))
    return model, ceiling(model, X_test, y_test)


def ceiling(model, X, y, groups=None):
    """Share of rows that some single patch is enough for: the most any explanation can reach at k=1.

    >>> import torch
    >>> g = torch.nn.Linear(2, 1, bias=False); _ = g.weight.data.copy_(torch.tensor([[1.0, -1.0]]))
    >>> ceiling(g, np.eye(2), np.array([1, 1]), groups=[0, 1])
    0.5
    """
    groups = patches() if groups is None else np.asarray(groups)
    X, right = np.asarray(X, np.float32), np.zeros(len(X), bool)
    for patch in np.unique(groups):
        right |= predict_proba(model, X * (groups == patch)).argmax(1) == y
    return float(right.mean())


def sample():
    """Test digits of the slow explainers, the same for every seed and method; the first ten are the figure's."""
    return np.random.default_rng(derive("MNIST", "sample")).permutation(1984)[:SAMPLE]


def run(*, method, seed, rows=11_982, steps=1000):
    """One row of the table: accuracy with k = 1..5 patches, of both judges, and what the figures need."""
    X, y, X_test, y_test = digits(rows)
    g, (fixed, ceiling_), (fresh, fresh_ceiling) = (model_of(seed, rows), judge(JUDGE, rows),
                                                    judge(1000 + seed, rows))
    seed_all("MNIST", seed, method)
    chosen = sample() if method in SLOW else np.arange(len(X_test))
    X_test, y_test = X_test[chosen], y_test[chosen]
    inside = np.flatnonzero(np.isin(chosen, sample()))
    shown = [int(np.flatnonzero(chosen == i)[0]) for i in sample()[:SHOWN]]
    started = time.process_time()
    by_k, extra = explain(method, g, X, y, X_test, seed=seed, steps=steps)
    seconds = time.process_time() - started
    out = {"cpu_seconds": round(seconds, 1), "g_accuracy": accuracy(g, X_test, y_test),
           "judge_accuracy": accuracy(fixed, X_test, y_test), "ceiling": ceiling_, "fresh_ceiling": fresh_ceiling}
    for k in KS:
        mask = evaluate.top_k_mask(by_k[k], k)
        out |= {f"acc_{k}": _reads(fixed, X_test, y_test, mask), f"fresh_{k}": _reads(fresh, X_test, y_test, mask),
                f"mask_{k}": mask_only(mask, y_test),
                f"sample_{k}": _reads(fixed, X_test[inside], y_test[inside], mask[inside])}
        if (own := extra.get("own")) is not None:
            out |= {f"own_{k}": _reads(fixed, X_test, y_test, own[k]), f"patches_{k}": float(own[k].sum(1).mean()),
                    f"fresh_own_{k}": _reads(fresh, X_test, y_test, own[k]),
                    f"mask_own_{k}": mask_only(own[k], y_test)}
    kept = extra["own"][SHOWN_K] if "own" in extra else evaluate.top_k_mask(by_k[SHOWN_K], SHOWN_K)
    out["kept"] = [np.flatnonzero(kept[i]).tolist() for i in shown]
    if method == "LIME":
        out["segments"] = pictures.pack(_lime_own(g, X_test[shown], seed))
    if "posterior" in extra:
        out |= _uncertainty(extra["posterior"], X_test, y_test, fixed, shown)
    return out


def explain(method, g, X, y, X_test, *, seed, steps):
    """({k: scores (N, 49)}, what else the row needs) of one method."""
    groups = patches()
    if method in ("bifkit", "bifkit rank", "BIF"):
        settings = {"bifkit": {"preset": "few"}, "bifkit rank": {"preset": "rank"},
                    "BIF": {"preset": "paper", "point_estimate": True, "kl_weight": 0.0, "epochs": 10}}[method]
        explainer = LocalBIF(g, groups=groups, min_steps=steps, seed=derive("MNIST", seed, method), **settings)
        posterior = explainer.fit(X, y).explain(X_test)
        return dict.fromkeys(KS, posterior.mean), {"posterior": posterior} if method == "bifkit" else {}
    if method == "L2X":
        models = {k: L2X(k, groups=groups, hidden=250, predictor_hidden=500, seed=derive(seed, k), **L2X_PLAN)
                  for k in KS}
        return {k: m.fit(X, y).scores(X_test) for k, m in models.items()}, {}
    if method == "INVASE":
        models = {k: INVASE(lam=lam, groups=groups, activation="relu", seed=derive(seed, k), **INVASE_PLAN).fit(X, y)
                  for k, lam in LAMBDAS.items()}
        return ({k: m.scores(X_test) for k, m in models.items()},
                {"own": {k: m.selected(X_test) for k, m in models.items()}})
    return dict.fromkeys(KS, _attribution(method, g, X, X_test, groups, seed)), {}


def _attribution(method, g, X, X_test, groups, seed):
    from bifkit.baselines import attribution  # shap, lime and captum take seconds to import

    if method == "LIME":
        return attribution.lime_patches(g, X_test, groups, seed=seed)
    background = X[np.random.default_rng(derive("MNIST", seed, "background")).choice(len(X), 20, replace=False)]
    rival = {"SHAP": lambda: attribution.shap_deep(g, X_test, background),
             "IntegratedGradients": lambda: attribution.integrated_gradients(g, X_test)}
    if method not in rival:
        raise ValueError(f"method must be one of {', '.join(METHODS)}; got {method!r}")
    return attribution.sum_groups(rival[method](), groups)


def _lime_own(g, images, seed):
    """LIME with its own segmentation: the heaviest segments until they cover as much as the patches shown."""
    from bifkit.baselines import attribution

    masks = []
    for image in images:
        weights, segments = attribution.lime_image(g, image.reshape(28, 28), seed=seed)
        mask = np.zeros(784, bool)
        for segment in np.argsort(-weights, kind="stable"):
            if mask.sum() < 16 * SHOWN_K:
                mask |= (segments == segment).ravel()
        masks.append(mask)
    return np.array(masks)


def _reads(model, X, y, mask):
    kept = evaluate.keep_features(X, mask, groups=patches())
    return float((predict_proba(model, kept).argmax(1) == y).mean())


def mask_only(mask, y):
    """Accuracy of a classifier that sees only the masks: fitted on one half of them, scored on the other, twice.

    >>> y = np.arange(200) // 2 % 2; mask_only(np.eye(2, dtype=bool)[y], y)
    1.0
    """
    half = np.arange(len(y)) % 2 == 0
    return float(np.mean([evaluate.mask_only_accuracy(mask[a], y[a], mask[~a], y[~a]) for a in (half, ~half)]))


def _uncertainty(posterior, X, y, model, shown):
    """Is the judge wrong where the posterior is unsure? And the pictures of the two figures."""
    spread = posterior.sd.sum(1)  # the paper's measure (Figure 2): the sum of the posterior sds
    order = np.argsort(-spread, kind="stable")
    tenth = len(y) // 10
    mask = evaluate.top_k_mask(posterior.mean, 2)
    out = {"spread": float(spread.mean()), "unsure_2": _reads(model, X[order[:tenth]], y[order[:tenth]],
                                                            mask[order[:tenth]]),
           "sure_2": _reads(model, X[order[-tenth:]], y[order[-tenth:]], mask[order[-tenth:]])}
    rows = [*shown, *order[:SHOWN // 2], *order[-SHOWN // 2:]]
    return out | {"images": pictures.pack(X[rows]), "labels": y[rows].tolist(),
                  "alpha": np.round(posterior.alpha[rows], 4).tolist()}


def table(frame, score="acc"):
    """(mean, standard deviation) over the seeds, a row a method, a column a k.

    ``score``: acc (the judge), fresh (another judge in every seed), sample (the sample of the slow explainers) or mask
    (what the choice of patches alone gives away). INVASE has two rows: its own selection, which is what the paper
    scores, and the k patches it finds most probable.
    """
    good = frame[frame["error"].fillna("") == ""]
    own = {"acc": "own", "fresh": "fresh_own", "mask": "mask_own"}.get(score)
    rows = {}
    for method in [m for m in METHODS if m in set(good["method"])]:
        part = good[good["method"] == method]
        if method == "INVASE" and own:
            rows[method] = part[[f"{own}_{k}" for k in KS]]
        rows[method + (", top k" if method in rows else "")] = part[[f"{score}_{k}" for k in KS]]
    columns = [f"k={k}" for k in KS]
    mean = pd.DataFrame({m: v.mean().to_numpy() for m, v in rows.items()}, index=columns).T
    return mean, pd.DataFrame({m: v.std(ddof=1).to_numpy() for m, v in rows.items()}, index=columns).T


def verdicts(frame):
    """Ours beside the paper's figure, the best other method and its name, a row a k."""
    mean, _ = table(frame)
    printed = numbers().query("item == 'mnist' and row == 'BIF'").set_index("column")["value"]
    others = mean.drop(index="bifkit")
    out = pd.DataFrame({"bifkit": mean.loc["bifkit"], "paper": printed, "best other": others.max(),
                        "which": others.fillna(0).idxmax()})
    out["above the paper"], out["best of all"] = out["bifkit"] > out["paper"], out["bifkit"] >= out["best other"]
    return out


def shown(frame, seed=0):
    """The figure: (ten test digits (10, 784), {method: what it keeps (10, 784)}), LIME twice."""
    rows = frame[(frame["seed"] == seed) & (frame["error"].fillna("") == "")].set_index("method")
    masks = {}
    for method in [m for m in METHODS if m in rows.index]:
        name = "LIME, our patches" if method == "LIME" else method
        masks[name] = np.array([np.isin(patches(), kept) for kept in _list(rows.loc[method, "kept"])])
        if method == "LIME":
            masks["LIME, its own"] = pictures.unpack(rows.loc[method, "segments"], (SHOWN, 784)) > 0
    return pictures.unpack(rows.loc["bifkit", "images"], (2 * SHOWN, 784))[:SHOWN], masks


def unsure(frame, seed=0):
    """The second picture: (images, local Posterior, titles) of the five least and the five most certain digits."""
    row = frame[(frame["method"] == "bifkit") & (frame["seed"] == seed)].iloc[0]
    posterior = Posterior(np.array(_list(row["alpha"]))[SHOWN:], [f"patch {i}" for i in range(49)])
    titles = [f"{'38'[label]}, spread {spread:.2f}"
              for label, spread in zip(_list(row["labels"])[SHOWN:], posterior.sd.sum(1), strict=True)]
    return pictures.unpack(row["images"], (2 * SHOWN, 784))[SHOWN:], posterior, titles


def scores(frame):
    """What the scoreboard takes: item, row, column, seed, value."""
    good = frame[frame["error"].fillna("") == ""]
    out = []
    for row in good.to_dict("records"):
        names = {row["method"]: "acc"} if row["method"] != "INVASE" else {"INVASE": "own", "INVASE, top k": "acc"}
        out += [("mnist", name, f"k={k}", row["seed"], row[f"{score}_{k}"]) for name, score in names.items()
                for k in KS]
    return pd.DataFrame(out, columns=["item", "row", "column", "seed", "value"])


def _list(cell):
    return json.loads(cell) if isinstance(cell, str) else cell
