"""MNIST study: which patches tell a 3 from an 8? (the MNIST table and figure, and the supplement's spread)

A run is a method x seed. Every method chooses k of the 49 patches of 4 x 4 pixels of every test digit; the rest of the
digit turns black, and a classifier that was trained on whole digits (the *judge*) reads it. The methods that explain a
g explain the same one; g and judge have streams of their own, named by the seed.

*The judge* is 784-300-300-1 with BatchNorm. It has never seen an almost empty picture, and what it says of one is
chance: before any patch is shown it is sure of a 3, more or less so depending on its first weights, and a single patch
may or may not change its mind. So every seed has a fresh judge, and none is chosen or left out. ``oracle`` looks for
the best patches of every digit with the judge and the label in hand (the best single patch exactly; where that is not
enough, more by forward search): at k=1 no explanation can pass it.

*INVASE's lambdas* (100 to 15.5) are taken for its loss written over pixels: the log-probability of a mask is a sum over
784 pixels, so that each patch counts 16 times, and the penalty a mean. Written over patches they are 16 times smaller.
As they stand they would ask 2 to .3 nats for a patch, while all patches together are worth at most log 2 = .69: on
development seed 100 such a selector kept no patch at all (lambda 100 and 18.5), with a sixteenth of them 1, 2, 4, 6, 7.

*Does the mask give the label away?* ``mask_k`` is the accuracy of a classifier that sees only which patches were
kept: fitted on one half of the explained test digits, scored on the other, and the other way round.
"""

import functools
import time
import warnings

import numpy as np

from bifkit import LocalBIF, evaluation
from bifkit.evaluation import metrics
from data_prep.mnist import load_mnist, patches
from data_prep.seeding import derive, seed_all
from experiments import figures, selections
from experiments.models.classifiers import accuracy, mlp, predict_proba, train
from experiments.rivals import INVASE, L2X
from experiments.selections import FIXED, SURROGATE

SEEDS, KS = range(5), (1, 2, 3, 4, 5)
OURS = {  # method: explainer settings; the preset of this question, the other one, and the printed objective
    "bifkit": {"preset": "few", "fill": "zero"},  # a blank pixel is zero, which is how all are scored here
    SURROGATE: {"preset": "few", "fill": "zero", "surrogate": True},  # explains a stand-in for g that has seen masks
    "bifkit rank": {"preset": "rank"},
    "BIF": {"preset": "paper", "point_estimate": True, "kl_weight": 0.0},  # f itself gates; as the tables were run
}
SLOW = {"LIME, our patches": 300, "LIME, own segments": 100}  # explain so many digits of a fixed sample
RIVALS = ["L2X", "INVASE", *SLOW, "SHAP", "IntegratedGradients"]
METHODS = [*OURS, *RIVALS, "oracle", FIXED]
RELEASED = "released"  # runs of experiments/released.py
IN_TABLES = [*OURS, RELEASED, *RIVALS, "oracle", FIXED]
ENCODING_KS = (1, 4)  # where encoding is measured
LAMBDAS = dict(zip(KS, (100, 50, 23, 18.5, 15.5), strict=True))  # INVASE, supplement
PIXELS = 16  # of a patch
SAMPLE, SHOWN, SHOWN_K = 300, 10, 4  # all are scored on the sample too; how many digits the figure has; their k
L2X_PLAN = {"budget": "short"}  # 64 digits per step, or 400 steps, scored lower on seed 100
INVASE_PLAN = {"iterations": 1000, "batch_size": 64, "lr": 1e-3}


def grid(profile="paper", *, methods=METHODS, seeds=SEEDS):
    """The runs of the study, seed by seed (so that a worker trains g once per seed); smoke: one seed, few digits.

    The first seed also stores what the figures show.

    >>> len(grid("smoke")), len(grid("paper"))
    (5, 60)
    """
    size = {"rows": 11_982, "test_rows": 1984}
    if profile == "smoke":
        size, seeds = {"rows": 1500, "test_rows": 300, "steps": 150}, [0]
        methods = [m for m in methods if m in ("bifkit", SURROGATE, "IntegratedGradients", "oracle", FIXED)]
    return [{"method": m, "seed": s, **size, "figure": s == seeds[0]} for s in seeds for m in methods]


@functools.lru_cache(maxsize=1)
def digits(rows, test_rows):
    """The data (the publisher's split, so the same for every seed), at smoke size fewer rows."""
    data = load_mnist(0)
    return data.X_train[:rows], data.y_train[:rows], data.X_test[:test_rows], data.y_test[:test_rows]


@functools.lru_cache(maxsize=1)
def prepared(seed, rows, test_rows):
    """(g, judge) of a seed: 784-300-300-1 without BatchNorm, 10 epochs (supplement); the same with BatchNorm."""
    X, y, _, _ = digits(rows, test_rows)
    seed_all("MNIST", seed, "g")
    g = train(mlp([784, 300, 300, 1]), X, y, epochs=10, seed=derive("MNIST", seed, "g"))
    seed_all("MNIST", seed, "judge")
    judge = mlp([784, 300, 300, 1], batch_norm=True)
    return g, train(judge, X, y, epochs=10, lr=1e-3, weight_decay=0.01, seed=derive("MNIST", seed, "judge"))


@functools.lru_cache(maxsize=1)
def evaluators(seed, rows, test_rows):
    """The judges of EVAL-X of a seed, and their fixed sets: the same for every method."""
    X, y, _, _ = digits(rows, test_rows)
    return selections.evaluators(X, y, KS, groups=patches(), fill="zero", seed=derive("MNIST", seed, "evaluator"))


def sample(n=1984):
    """Test digits of the slow explainers, the same for every seed and method."""
    return np.random.default_rng(derive("MNIST", "sample")).permutation(n)[:SAMPLE]


def pictured(y):
    """The figure's digits, as the paper has them: five 3s and five 8s, the first of each in the sample's order.

    >>> y = np.arange(1984) % 2; found = pictured(y); y[found].tolist(), set(found) <= set(sample()[:100].tolist())
    ([0, 0, 0, 0, 0, 1, 1, 1, 1, 1], True)
    """
    drawn = sample(len(y))
    return [int(i) for label in (0, 1) for i in drawn[y[drawn] == label][:SHOWN // 2]]


def run(*, method, seed, rows, test_rows, figure, steps=None):
    """One method and seed: accuracy of the judge with k = 1..5 patches, and what the other tables and figures need.

    ``figure`` stores the pictures too; ``steps`` of our explainers are the preset's own unless given.
    """
    X, y, X_test, y_test = digits(rows, test_rows)
    g, judge = prepared(seed, rows, test_rows)
    seed_all("MNIST", seed, method)
    drawn, pictures = sample(len(X_test)), pictured(y_test)
    chosen = drawn[:SLOW[method]] if method in SLOW else np.arange(len(X_test))
    X_test, y_test = X_test[chosen], y_test[chosen]
    inside = np.flatnonzero(np.isin(chosen, drawn))
    shown = [int(np.flatnonzero(chosen == i)[0]) for i in pictures]
    started = time.process_time()
    if method == "oracle":
        found = oracle(judge, X_test, y_test)
        by_k, extra = {k: mask & (found > 0) for k, mask in _ranked(found).items()}, {}
    elif method == FIXED:  # the set of one evaluator; below, each is judged by its own
        by_k, extra = _ranked(np.broadcast_to(evaluators(seed, rows, test_rows)[1]["sizes"], (len(X_test), 49))), {}
    else:
        by_k, extra = explain(method, g, X, y, X_test, seed=seed, steps=steps)
    seconds = {"explain_seconds": round(time.process_time() - started, 1)}
    out = seconds | scored(method, g, judge, X_test, y_test, by_k, evaluators(seed, rows, test_rows), sample=inside,
                           top=extra.get("top"))
    out |= {f"surrogate_{name}": value for name, value in extra.get("agreement", {}).items()}
    if figure:
        out["kept"] = figures.pack(_pixels(by_k[SHOWN_K][shown]))
    if "posterior" in extra:
        out |= _uncertainty(extra["posterior"], X_test, y_test, judge, shown, figure)
    return out


def scored(method, g, judge, X_test, y_test, by_k, judges, *, sample, top=None):
    """The judge's accuracy, EVAL-X, mask-only accuracy and patches kept, for each k; also of ``top``, INVASE's k first.

    Parameters
    ----------
    method : str
        One of ``IN_TABLES``.
    g, judge : Module
        The network that was explained, and the one that reads masked digits.
    X_test, y_test : array
        The explained digits.
    by_k : dict
        {k: what is kept, bool (N, 49) or (N, 784)}.
    judges : tuple
        What ``evaluators`` returns.
    sample : array
        Which of the digits are the sample of the slow explainers.
    top : dict, optional
        Like ``by_k``.
    """
    judges, fixed = judges
    out = {"g_accuracy": accuracy(g, X_test, y_test), "judge_accuracy": accuracy(judge, X_test, y_test),
           "empty": float(predict_proba(judge, np.zeros((1, 784)))[0, 1])}  # the judge's 8-ness of nothing
    for k in KS:
        out |= selections.scores(judges, X_test, y_test, fixed if method == FIXED else by_k[k], k, sample=sample,
                                 encoding=k in ENCODING_KS and method not in SLOW)
        out |= {f"acc_{k}": _reads(judge, X_test, y_test, by_k[k]), f"mask_{k}": mask_only(by_k[k], y_test),
                f"sample_{k}": _reads(judge, X_test[sample], y_test[sample], by_k[k][sample]),
                f"patches_{k}": float(by_k[k].mean() * 49)}
        if top:
            out |= {f"top_acc_{k}": _reads(judge, X_test, y_test, top[k]), f"top_mask_{k}": mask_only(top[k], y_test),
                    f"top_patches_{k}": float(k)}
            found = selections.scores(judges, X_test, y_test, top[k], k, sample=sample, encoding=k in ENCODING_KS)
            out |= {f"top_{name}": value for name, value in found.items()}
    return out


def explain(method, g, X, y, X_test, *, seed, steps):
    """({k: what it keeps, bool (N, 49) or (N, 784)}, what else the row needs) of one method."""
    groups = patches()
    if method in OURS:
        explainer = LocalBIF(g, groups=groups, min_steps=steps, seed=derive("MNIST", seed, method), **OURS[method])
        with warnings.catch_warnings():  # corners never hold ink: constant pixels are no oddity here
            warnings.filterwarnings("ignore", message="the data have .* constant column")
            posterior = explainer.fit(X, y).explain(X_test)
        fidelity = getattr(getattr(explainer, "surrogate_", None), "fidelity_", {})
        return _ranked(posterior.mean), {"agreement": {n: v for n, v in fidelity.items() if "agreement" in n}} | (
            {"posterior": posterior} if method == "bifkit" else {})
    if method == "L2X":  # one model per k; widths of the supplement
        return {k: L2X(k, groups=groups, hidden=250, predictor_hidden=500, seed=derive("MNIST", seed, "L2X", k),
                       **L2X_PLAN).fit(X, y).selected(X_test) for k in KS}, {}
    if method == "INVASE":  # its own selection, and beside it the k patches it finds most probable
        models = {k: INVASE(lam=lam / PIXELS, groups=groups, activation="relu", seed=derive("MNIST", seed, "INVASE", k),
                            **INVASE_PLAN).fit(X, y) for k, lam in LAMBDAS.items()}
        return ({k: m.selected(X_test) for k, m in models.items()},
                {"top": {k: metrics.top_k_mask(m.scores(X_test), k) for k, m in models.items()}})
    from experiments.rivals import attribution  # shap, lime and captum take seconds to import

    if method == "LIME, own segments":
        return _segments(attribution, g, X_test, seed), {}
    background = X[np.random.default_rng(derive("MNIST", seed, "background")).choice(len(X), 20, replace=False)]
    rival = {"LIME, our patches": lambda: attribution.lime_patches(g, X_test, groups, seed=seed),
             "SHAP": lambda: attribution.sum_groups(attribution.shap_deep(g, X_test, background), groups),
             "IntegratedGradients": lambda: attribution.sum_groups(attribution.integrated_gradients(g, X_test), groups)}
    if method not in rival:
        raise ValueError(f"method must be one of {', '.join(METHODS)}; got {method!r}")
    return _ranked(rival[method]()), {}


def _ranked(scores):
    return {k: metrics.top_k_mask(scores, k) for k in KS}


def _segments(attribution, g, X, seed):
    """LIME with its own segmentation: the heaviest segments until they cover at least as much as k patches."""
    masks = {k: np.zeros(X.shape, bool) for k in KS}
    for i, image in enumerate(X):
        weights, segments = attribution.lime_image(g, image.reshape(28, 28), seed=seed)
        for k in KS:
            for segment in np.argsort(-weights, kind="stable"):
                if masks[k][i].sum() < PIXELS * k:
                    masks[k][i] |= (segments == segment).ravel()
    return masks


def oracle(judge, X, y, *, groups=None, size=5):
    """Scores (N, G): patches that make the judge say the true label, the best first; a digit read right needs no more.

    Zero for a patch that is not needed. The first is the best of all single patches, each next one the best addition.

    >>> import torch
    >>> g = torch.nn.Linear(2, 1, bias=False); _ = g.weight.data.copy_(torch.tensor([[1.0, -1.0]]))
    >>> oracle(g, np.ones((2, 2), "float32"), np.array([1, 0]), groups=[0, 1], size=1).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    groups = patches() if groups is None else np.asarray(groups)
    number = np.arange(groups.max() + 1)
    scores, wrong = np.zeros((len(X), len(number))), np.arange(len(X))
    for step in range(size):
        taken = scores[wrong] > 0  # (n, G)
        trials = (X[wrong] * (taken | (number == patch))[:, groups] for patch in number)
        p = np.stack([predict_proba(judge, x)[range(len(x)), y[wrong]] for x in trials], axis=1)  # (n, G)
        p[taken] = -1.0
        scores[wrong, p.argmax(1)] = size - step
        wrong = wrong[p.max(1) <= 0.5]
        if not len(wrong):
            break
    return scores


def _pixels(mask):
    return mask if mask.shape[1] == 784 else mask[:, patches()]


def _reads(judge, X, y, mask):
    return float((predict_proba(judge, metrics.keep_features(X, _pixels(mask))).argmax(1) == y).mean())


def mask_only(mask, y):
    """Accuracy of a classifier that sees only the masks; a mask of pixels is seen as the share of each patch it keeps.

    >>> y = np.arange(200) // 2 % 2; mask_only(np.eye(2, dtype=bool)[y], y)
    1.0
    """
    if mask.shape[1] == 784:
        mask = mask.astype(float) @ np.eye(49)[patches()] / PIXELS
    return evaluation.mask_only(mask, y)


def _uncertainty(posterior, X, y, judge, shown, figure):
    """Is the judge wrong where the posterior is unsure? And the pictures of the two figures."""
    spread = posterior.sd.sum(1)  # the paper's measure (Figure 2): the sum of the posterior sds
    order, tenth = np.argsort(-spread, kind="stable"), len(y) // 10
    mask = metrics.top_k_mask(posterior.mean, 2)
    out = {f"{name}_2": _reads(judge, X[part], y[part], mask[part])
           for name, part in (("unsure", order[:tenth]), ("sure", order[-tenth:]))}
    out |= {"spread_3": float(spread[y == 0].mean()), "spread_8": float(spread[y == 1].mean()),
            "unsure_8": float(y[order[:tenth]].mean())}
    if not figure:
        return out
    rows = [*shown, *order[:SHOWN // 2], *order[-SHOWN // 2:]]
    return out | {"images": figures.pack(X[rows]), "labels": y[rows].tolist(),
                  "alpha": np.round(posterior.alpha[rows], 3).tolist()}
