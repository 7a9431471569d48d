"""Drift study: does ``bifkit.compare`` stay silent where nothing changed, and speak where something did? (notebook 06)

One grid, four parts; every run is of seeds 100 and up.

``calls``
    False alarms. A run is one call of ``bifkit.refits`` as a user makes it: ten bootstraps of one data set (Syn2, or
    8000 rows of Adult), a newly trained g each, explained by the default GlobalBIF. Any two calls are two sides of ten
    refits between which nothing differs. As a warning, also calls of which each has a tenth of Adult to itself
    (``Adult, own rows``): bootstraps of two samples from one population.
``levels``
    Power. A run is one seed of the privacy study (sigma 0 and 8.4) or of the fairness study (the pre-trained state and
    57 %), on Adult: the alphas of the reference and of the level, models and explainers as these studies have them.
``parts``
    Drift, as a user meets it. Adult's rows are dealt at random into twenty parts, and one refit is made of each, as
    ``refits(..., how="parts")`` does: once of the rows as they are, once after each of ``CHANGES``. Ten parts are then
    *before* and the ten others, changed or not, *after*; whoever is in one is not in the other. ``alphas`` are those of
    GlobalBIF (500 steps, half the default, for time), ``sizes`` the mean |integrated gradients| of the same g, for the
    same test with another explainer.
``rivals``
    The same rows in two windows of half of Adult each, judged without refits, by one g trained before and one after. A
    classifier two-sample test on SHAP values (DeepExplainer, 400 held-out rows of each window; gradient-boosted trees
    learn from half of them to tell the windows apart, and the p-value is the binomial one of their accuracy on the
    other half): with the old g on both windows (``p_shap_kept``), and with each window's own g (``p_shap_new``).
    Population stability index over ten quantile bins of each column, the largest (``psi``), with a permutation test of
    rows (``p_psi``); and of the scores of the old g on both windows (``psi_scores_kept``), or of each window's own
    (``psi_scores_new``).
"""

import functools

import numpy as np
import torch
from scipy.stats import binom
from sklearn.ensemble import HistGradientBoostingClassifier

from bifkit import GlobalBIF, Posterior, refits
from data_prep import load_adult, make_synthetic
from data_prep.adult import FEATURES
from data_prep.seeding import derive, seed_all
from experiments import fairness, privacy
from experiments.models.classifiers import accuracy, mlp, predict_proba, train
from experiments.models.fairness import adversarial_train
from experiments.rivals import attribution

REFITS = 10  # on a side
CALLS, OWN, LEVELS, DIVISIONS, REPEATS = 10, 6, 20, 2, 8  # calls of refits, seeds per level, dealings, windows
NOISE, FAIR = 8.4, 57
CHANGES = {"nothing": "the same population, other rows",
           "age mixed up": "half of the rows have somebody else's age: a broken join",
           "age missing": "in three rows of ten the age is missing and set to its mean",
           "labels shifted": "every second person who earns more is gone: 14 % instead of 24 %",
           "model swapped": "the new g does not see marital-status; relationship stands in for it"}
STEPS, EXPLAINED, BACKGROUND, PERMUTATIONS = 500, 400, 20, 199


def grid(profile="paper"):
    """The runs; at smoke size a few of each part, with few rows and steps (``small``).

    >>> {part: sum(r["part"] == part for r in grid()) for part in ("calls", "levels", "parts", "rivals")}
    {'calls': 26, 'levels': 40, 'parts': 10, 'rivals': 40}
    """
    small = profile == "smoke"
    calls, own, levels, divisions, repeats = (3, 0, 0, 1, 2) if small else (CALLS, OWN, LEVELS, DIVISIONS, REPEATS)
    what = [("calls", ["Syn2"] if small else ["Syn2", "Adult"], calls), ("calls", ["Adult, own rows"], own),
            ("levels", ["private", "fair"], levels), ("parts", list(CHANGES), divisions),
            ("rivals", list(CHANGES), repeats)]
    return [{"part": part, "what": w, "seed": 100 + i, "small": small}
            for part, names, number in what for i in range(number) for w in names]


def run(*, part, what, seed, small=False) -> dict:
    """One run of a part: see the top of this file."""
    return {"calls": call, "levels": level, "parts": parts, "rivals": rivals}[part](what, seed, small)


def quick_g(X, y, seed, *, epochs=5, unseen=()):
    """A network D-100-100-2, trained in a tenth of a second; columns ``unseen`` have no weight."""
    seed_all("drift", seed, "g")
    g, X = mlp([X.shape[1], 100, 100, 2]), np.array(X)
    X[:, list(unseen)] = 0
    train(g, X, y, epochs=epochs, seed=seed)
    with torch.no_grad():
        g[0].weight[:, list(unseen)] = 0
    return g


def call(dataset, seed, small):
    """One call of ``refits``: its alphas (n, D)."""
    if dataset == "Adult, own rows":
        X, y = (v[seed % 10::10] for v in adult())  # seeds 100 to 109: ten samples that share no row
    else:
        data = load_adult(100) if dataset == "Adult" else make_synthetic(dataset, 100, rows=600 if small else 5000)
        X, y = data.X_train[:8000], data.y_train[:8000]
    size = {"n": 4, "min_steps": 20, "epochs": 1} if small else {"n": REFITS}
    recipe = functools.partial(quick_g, epochs=20 if dataset == "Syn2" else 5)
    return {"alphas": _alphas(refits(recipe, X, y, seed=seed, progress=False, **size))}


def adult():
    """All rows of Adult in the random order of one split: (X, y)."""
    data = load_adult(0)
    return np.concatenate([data.X_train, data.X_test]), np.concatenate([data.y_train, data.y_test])


def level(which, seed, small):
    """The alphas of the reference and of the level, and the noise or the p%-rule that the two have."""
    if which == "private":
        data = privacy.load("Adult", seed)
        X, y, labels = data.X_train, data.y_train, data.feature_names
        models = [privacy.private_model(data, "Adult", seed, noise)[0] for noise in (0.0, NOISE)]
        seeds, reached = [derive("privacy", "Adult", seed, "rank")] * 2, [0.0, NOISE]
        size = {"epochs": 1, "min_steps": privacy.STEPS["Adult"]}
    else:
        parts = fairness.parts(seed)
        X, y, labels = parts["train"][0][:8000], parts["train"][1][:8000], fairness.NAMES
        path = adversarial_train(*parts["train"], iterations=70, seed=seed).on(*parts["A"])
        at = [0, path.choose(FAIR)]
        models, reached = [path.model(i) for i in at], path.smooth()[at].round(2)
        seeds, size = [derive("fairness", seed, stream) for stream in ("reference", "levels")], {}
    found = [GlobalBIF(g, seed=s, feature_names=labels, progress=False, **size).fit(X, y).explain()
             for g, s in zip(models, seeds, strict=True)]
    return {"alphas": _alphas(found), "reached": reached}


def changed(X, y, change, rng):
    """(X, y) after a change; the rows given stay as they are."""
    X, age = X.copy(), FEATURES.index("age")
    if change == "age mixed up":
        rows = np.flatnonzero(rng.random(len(X)) < 0.5)
        X[rows, age] = X[rng.permutation(rows), age]
    elif change == "age missing":
        X[rng.random(len(X)) < 0.3, age] = 0  # columns are standardised: the mean
    elif change == "labels shifted":
        keep = (y == 0) | (rng.random(len(y)) < 0.5)
        X, y = X[keep], y[keep]
    return X, y


def dealt(number, seed, small=False):
    """Adult's rows dealt at random into a number of parts: [(X, y), ...]; small: forty rows each."""
    X, y = adult()
    order = np.random.default_rng(derive("drift", seed, "rows")).permutation(len(X))
    return [(X[rows], y[rows]) for rows in np.array_split(order[:40 * number] if small else order, number)]


def _recipe(change):
    """How g is trained in the window after a change."""
    unseen = [FEATURES.index("marital-status")] if change == "model swapped" else []
    return functools.partial(quick_g, unseen=unseen)


def parts(change, seed, small):
    """One refit of each of twenty parts after a change: alphas, and mean |integrated gradients| of the same g."""
    found = []
    for i, rows in enumerate(dealt(8 if small else 2 * REFITS, seed, small)):
        number = derive("drift", seed, change, i) % 2**31
        X, y = changed(*rows, change, np.random.default_rng(number))
        found.append(_both(_recipe(change)(X, y, number), X, y, number, 20 if small else STEPS))
    return {"alphas": _alphas(found), "sizes": [p.settings["sizes"] for p in found]}


def _both(g, X, y, seed, steps):
    """GlobalBIF's posterior; the size of integrated gradients for class 1 travels in its settings."""
    posterior = GlobalBIF(g, seed=seed, epochs=1, min_steps=steps, progress=False).fit(X, y).explain()
    sizes = attribution.integrated_gradients(g, X[:300], target=1, steps=20).mean(0)
    return Posterior(posterior.alpha, FEATURES, settings={"sizes": [float(f"{v:.5g}") for v in sizes]})


def rivals(change, seed, small):
    """One g before, one after: p-values of the two-sample tests on SHAP values, PSI, and both g's accuracy."""
    before, after = dealt(4 if small else 2, seed)[:2]
    after = changed(*after, change, np.random.default_rng(derive("drift", seed, change)))
    k, names = (60 if small else EXPLAINED), ("old", "new")
    g = {name: recipe(X[k:], y[k:], derive("drift", seed, change, name) % 2**31) for name, recipe, (X, y) in
         zip(names, (quick_g, _recipe(change)), (before, after), strict=True)}

    def shap(name, X):
        return attribution.shap_deep(g[name], X[:k], before[0][-BACKGROUND:], target=1, signed=True)

    def scores(name, X):
        return predict_proba(g[name], X[:k])[:, 1:]

    there, kept, new = shap("old", before[0]), shap("old", after[0]), shap("new", after[0])
    rng = np.random.default_rng(derive("drift", seed, change, "tests"))
    largest, p = psi_test(before[0], after[0], rng, 19 if small else PERMUTATIONS)
    return {"p_shap_kept": told_apart(there, kept, rng), "p_shap_new": told_apart(there, new, rng), "psi": largest,
            "p_psi": p, "psi_scores_kept": float(psi(scores("old", before[0]), scores("old", after[0])).max()),
            "psi_scores_new": float(psi(scores("old", before[0]), scores("new", after[0])).max()),
            **{f"accuracy_{name}": accuracy(g[name], *(v[:k] for v in before)) for name in names}}


def told_apart(a, b, rng) -> float:
    """p-value of a classifier two-sample test: is a classifier better than chance at telling unseen rows apart?

    >>> rng = np.random.default_rng(0)
    >>> told_apart(rng.normal(size=(200, 2)), rng.normal(size=(200, 2)) + 2, rng) < 1e-6
    True
    """
    order = rng.permutation(len(a) + len(b))
    X, label = np.concatenate([a, b])[order], (order >= len(a)).astype(int)
    half = len(X) // 2
    trees = HistGradientBoostingClassifier(max_iter=50, random_state=0).fit(X[:half], label[:half])
    right = int((trees.predict(X[half:]) == label[half:]).sum())
    chance = max(label[half:].mean(), 1 - label[half:].mean())
    return float(binom.sf(right - 1, len(X) - half, chance))


def _bins(a, b, bins=10):
    """(codes of a, codes of b, number of bins) column by column: quantile bins of a."""
    for x, y in zip(a.T, b.T, strict=True):
        edges = np.unique(np.quantile(x, np.linspace(0, 1, bins + 1)[1:-1]))
        yield np.searchsorted(edges, x, side="right"), np.searchsorted(edges, y, side="right"), len(edges) + 1


def _index(p, q, least=1e-4):
    p, q = (np.maximum(v / v.sum(), least) for v in (p, q))
    return ((q - p) * np.log(q / p)).sum()


def psi(a, b) -> np.ndarray:
    """Population stability index of each column of ``b`` against ``a``, over ten quantile bins of ``a``; (D,).

    >>> a = np.arange(100.0)[:, None]
    >>> psi(a, a).tolist(), psi(a, a + 10).round(2).tolist()
    ([0.0], [0.76])
    """
    return np.array([_index(np.bincount(x, minlength=n), np.bincount(y, minlength=n)) for x, y, n in _bins(a, b)])


def psi_test(a, b, rng, permutations=PERMUTATIONS) -> tuple[float, float]:
    """The largest PSI of a column, and its p-value: the share of permutations of all rows whose largest is as large.

    The bins stay those of ``a``.
    """
    columns = [(np.concatenate([x, y]), n) for x, y, n in _bins(a, b)]
    whole = [np.bincount(codes, minlength=n) for codes, n in columns]

    def largest(second):
        parts = [np.bincount(codes[second], minlength=n) for codes, n in columns]
        return max(_index(total - part, part) for total, part in zip(whole, parts, strict=True))

    found = largest(np.arange(len(a), len(a) + len(b)))
    chance = [largest(rng.permutation(len(a) + len(b))[:len(b)]) for _ in range(permutations)]
    return float(found), float((1 + np.sum(np.array(chance) >= found)) / (1 + permutations))


def _alphas(posteriors):
    return [[float(f"{v:.5g}") for v in p.alpha] for p in posteriors]
