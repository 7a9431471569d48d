"""Uncertainty study: is the posterior's spread worth anything? (notebook 08)

Three grids. ``refit``: the same global explanation again and again, each time with fresh data (or a bootstrap of one
data set), a fresh g and a fresh fit: how often does an interval of one fit hold the mean of another? ``change``: labels
made harder, rows scarcer, a relevant feature doubled: does the spread follow? ``instances``: local explanations: is a
row whose explanation is uncertain more often explained wrongly?

Settings and scores are chosen on seeds 100 and up; seeds 0 to 29 are reported.
"""

import json

import numpy as np
import pandas as pd

from bifkit import GlobalBIF, LocalBIF, Posterior, dirichlet
from bifkit.evaluation import calibration, metrics
from data_prep.seeding import derive, seed_all
from data_prep.synthetic import NAMES, make_synthetic
from experiments.models.classifiers import accuracy, mlp, predict_proba, train
from experiments.runner.rows import finished

ROWS, REFITS, RESAMPLED, OF = 10_000, 30, 10, 100  # OF: the seed of the data set that is resampled
CHANGED = ("Syn2", "Syn4")
LEVELS = {"none": [0], "label noise": [0.1, 0.2, 0.3], "rows": [1000, 3000], "duplicate": [0, 0.5, 0.9, 1]}
LOCAL = ("Syn4", "Syn5", "Syn6")
SEEDS, CHOICE_SEEDS = range(5), range(100, 103)
SPLITS = 30  # into fits that choose a calibration and fits that it is judged by
KEEP = 0.8  # the share of rows that is left when the least certain are rejected
SHARES = [round(0.05 * i, 2) for i in range(1, 21)]  # of a risk-coverage curve


def grids(profile="paper"):
    """(refits, changes, instances): the three grids, or one small set of each at smoke size.

    >>> [len(g) for g in grids()], [len(g) for g in grids("smoke")]
    ([240, 80, 24], [9, 4, 2])
    """
    smoke = profile == "smoke"
    rows = 1000 if smoke else ROWS
    names, changed, local = (("Syn2",), ("Syn2",), ("Syn4",)) if smoke else (NAMES, CHANGED, LOCAL)
    sources = [("fresh", s) for s in range(6 if smoke else REFITS)]
    sources += [("resampled", OF + s) for s in range(3 if smoke else RESAMPLED)]
    levels = {"none": [0], "label noise": [0.3]} if smoke else LEVELS
    refits = [{"dataset": d, "source": source, "seed": s, "rows": rows} for d in names for source, s in sources]
    changes = [{"dataset": d, "what": w, "level": v, "seed": s, "rows": rows} for d in changed
               for w, values in levels.items() for v in values for s in range(2 if smoke else 4)]
    instances = [{"dataset": d, "seed": s, "rows": rows} for d in local
                 for s in ([0, 100] if smoke else [*SEEDS, *CHOICE_SEEDS])]
    grids = refits, changes, instances
    return tuple([row | {"steps": 200} for row in grid] for grid in grids) if smoke else grids


def refit(*, dataset, source, seed, rows=ROWS, steps=None):
    """One global explanation: alpha, the sum of its standard deviations, and how good its g is."""
    data = make_synthetic(dataset, OF if source == "resampled" else seed, rows=rows)
    X, y = data.X_train, data.y_train
    if source == "resampled":
        chosen = np.random.default_rng(derive(dataset, seed, "rows")).integers(len(X), size=len(X))
        X, y = X[chosen], y[chosen]
    return _explained(X, y, data.X_test, data.y_test, (dataset, seed, source), steps)


def change(*, dataset, what, level, seed, rows=ROWS, steps=None):
    """One global explanation of a data set that was made harder, smaller, or given a copy of a relevant feature.

    ``label noise``: that share of training labels is redrawn at random; ``rows``: that many in all; ``duplicate``: a
    twelfth feature that correlates by ``level`` with the first relevant one, and has no part in the label.
    """
    data = make_synthetic(dataset, seed, rows=int(level) if what == "rows" else rows)
    X, y, test = data.X_train, data.y_train.copy(), data.X_test
    rng = np.random.default_rng(derive(dataset, seed, what, level))
    if what == "label noise":
        redrawn = rng.random(len(y)) < level
        y[redrawn] = rng.integers(0, 2, redrawn.sum())
    elif what == "duplicate":
        X, test = (np.c_[x, _copy(x[:, relevant(dataset)[0]], level, rng)] for x in (X, test))
    return _explained(X, y, test, data.y_test, (dataset, seed, what, level), steps)


def _copy(x, rho, rng):
    return (rho * x + np.sqrt(1 - rho**2) * rng.standard_normal(len(x))).astype(np.float32)


def _explained(X, y, X_test, y_test, keys, steps):
    seed_all(*keys, "g")
    g = train(mlp([X.shape[1], 100, 100, 2]), X, y, seed=derive(*keys, "g"))
    posterior = GlobalBIF(g, min_steps=steps, seed=derive(*keys, "explainer")).fit(X).explain()
    return {"alpha": [float(f"{a:.6g}") for a in posterior.alpha], "sum_sd": float(posterior.sd.sum()),
            "g_accuracy": accuracy(g, X_test, y_test)}


def instances(*, dataset, seed, rows=ROWS, steps=None):
    """Local explanations of the test rows: what rejecting uncertain ones is worth, by each score of uncertainty."""
    data = make_synthetic(dataset, seed, rows=rows)
    seed_all(dataset, seed, "g")
    g = train(mlp([data.n_features, 100, 100, 2]), data.X_train, data.y_train, seed=derive(dataset, seed, "g"))
    explainer = LocalBIF(g, min_steps=steps, seed=derive(dataset, seed, "instances")).fit(data.X_train)
    posterior = explainer.explain(data.X_test)
    truth, wrong = data.truth_test, row_errors(posterior.mean, data.truth_test)
    out = {"mcc": 100 * metrics.mcc(posterior.mean, truth), "area_random": float(wrong.mean()), "curves": {}}
    scores = uncertainties(posterior) | {"g's doubt": 1 - predict_proba(g, data.X_test).max(1),
                                         "margin at the true k": margin(posterior, truth.sum(1)), "oracle": wrong}
    for name, score in scores.items():
        order = np.argsort(score, kind="stable")
        kept = order[:round(KEEP * len(order))]
        risk = np.cumsum(wrong[order]) / np.arange(1, len(order) + 1)
        out |= {f"area_{name}": float(risk.mean()),
                f"kept_{name}": 100 * metrics.mcc(posterior.mean[kept], truth[kept])}
        out["curves"][name] = [round(float(risk[round(c * len(order)) - 1]), 5) for c in SHARES]
    return out


def row_errors(scores, truth):
    """Share of each row's relevant features that are not among its k highest scores, k being how many there are."""
    found = metrics.top_k_mask(scores, truth.sum(1))
    return 1 - (found & truth).sum(1) / truth.sum(1)


def uncertainties(posterior):
    """Scores of a row's uncertainty that need nothing but its posterior; higher is less certain."""
    m = posterior.mean
    return {"sum of sd": posterior.sd.sum(1), "entropy": posterior.entropy,
            "effective features": posterior.effective_features,
            "low concentration": -posterior.alpha.sum(1),
            "doubt about 1/D": posterior.doubt,
            "margin at own k": margin(posterior, np.clip((m > 1 / m.shape[1]).sum(1), 1, m.shape[1] - 1))}


def margin(posterior, k):
    """1 - P(the k-th feature by mean is above the one after it): how open the cut between them is."""
    alpha = -np.sort(-posterior.alpha, axis=1)
    at = np.arange(len(alpha))
    pair = np.c_[alpha[at, k - 1], alpha[at, k]]
    return 1 - dirichlet.probability_greater(pair, 0, 1)


def relevant(dataset):
    """Columns that make the label of at least some rows."""
    return np.flatnonzero(make_synthetic(dataset, 0, rows=200).truth_train.any(0))


def posteriors(frame, **where) -> list:
    """The stored posteriors of some runs."""
    chosen = finished(frame)
    for key, value in where.items():
        chosen = chosen[chosen[key] == value]
    alphas = [json.loads(alpha) for alpha in chosen["alpha"]]
    return [Posterior(alpha, [f"X{i + 1}" for i in range(len(alpha))]) for alpha in alphas]


def jackknife(statistic, n):
    """Standard error of ``statistic(without)``, leaving out one of n fits at a time: pairs share fits, so count fits.

    >>> x = np.array([1.0, 2.0, 4.0, 9.0])
    >>> round(float(jackknife(lambda i: np.delete(x, i).mean(), 4) - x.std(ddof=1) / 2), 9)  # of a mean: the usual one
    0.0
    """
    left = np.array([statistic(i) for i in range(n)])
    return np.sqrt((n - 1) / n * ((left - left.mean(0)) ** 2).sum(0))


def _parts(by_feature, dataset):
    """Coverage in percent: all features, those that matter somewhere, the others."""
    mask = np.isin(np.arange(len(by_feature)), relevant(dataset))
    return 100 * np.array([by_feature.mean(), by_feature[mask].mean(), by_feature[~mask].mean()])


PARTS = ["all", "relevant", "irrelevant"]


def coverage_table(frame, measure, levels=(0.5, 0.8, 0.95)):
    """Coverage in percent (columns: level and part; rows: data sets) by ``measure(fits, level)``, shares by feature."""
    found = {}
    for dataset in frame["dataset"].unique():
        fits = posteriors(frame, dataset=dataset, source="fresh")
        found[dataset] = {(f"{level:.0%}", part): value for level in levels
                          for part, value in zip(PARTS, _parts(measure(fits, level), dataset), strict=True)}
    return pd.DataFrame(found).T


def as_fitted(fits, level, without=None):
    """Coverage of the intervals as the fits give them."""
    return calibration.coverage([p for i, p in enumerate(fits) if i != without], level)


def calibrated(fits, level, without=None):
    """Coverage after calibration for 80 %, chosen on two thirds of the fits and judged on the rest, by random splits.

    A jackknife keeps the splits as they are, so that ten of them are enough for it.
    """
    return calibration.held_out(fits, 0.8, level=level, without=without, splits=SPLITS if without is None else 10)


def errors(frame, measure, level=0.8):
    """Jackknife standard errors of ``coverage_table`` at one level."""
    found = {}
    for dataset in frame["dataset"].unique():
        fits = posteriors(frame, dataset=dataset, source="fresh")
        found[dataset] = jackknife(lambda i, f=fits, d=dataset: _parts(measure(f, level, i), d), len(fits))
    return pd.DataFrame(found, index=PARTS).T


# what else was tried for the calibration: each takes refits and a level, and returns a temperature


def one_temperature(refits, prob):
    """One temperature for all features, by counting: ``prob`` of all pairs and features lie inside their interval."""
    return np.exp(_bisect(lambda t: calibration.coverage(refits, prob, temperature=np.exp(t[0])).mean(keepdims=True),
                          prob, 1)[0])


def counted(refits, prob):
    """One temperature per feature, by counting pairs instead of matching variances."""
    return np.exp(_bisect(lambda t: calibration.coverage(refits, prob, temperature=np.exp(t)), prob,
                          len(refits[0].feature_names)))


def equal_shares(refits, prob):
    """Every feature's refits scatter by the same share of its importance: one number, pooled over features."""
    mean = np.stack([p.mean for p in refits])
    share = 2 * (mean.var(0, ddof=1) / mean.mean(0) ** 2).mean()
    m, total = mean.mean(0), np.mean([p.alpha.sum() for p in refits])
    return total / np.maximum((1 - m) / (m * share) - 1, 1e-9)


def pooled(refits, prob):
    """One Dirichlet by the method of moments for the refits' means: a single temperature from all variances."""
    mean = np.stack([p.mean for p in refits])
    concentration = (mean.mean(0) * (1 - mean.mean(0))).sum() / (2 * mean.var(0, ddof=1).sum()) - 1
    return np.mean([p.alpha.sum() for p in refits]) / concentration


def _bisect(covered, prob, size, low=-14.0, high=4.0):
    """Log temperatures at which ``covered`` reaches ``prob``."""
    low, high = np.full(size, low), np.full(size, high)
    for _ in range(10):
        middle = (low + high) / 2
        enough = covered(middle) >= prob
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return (low + high) / 2


TRIED = {"one temperature, counted": one_temperature, "one Dirichlet of the refits' means": pooled,
         "equal shares": equal_shares, "a temperature per feature, counted": counted,
         "a temperature per feature, by variance (shipped)": calibration.temperature}


def tried_table(frame, splits=SPLITS):
    """Held-out coverage at 80 % of each way to calibrate: all features (relevant / irrelevant), in percent."""
    found = {}
    for name, rule in TRIED.items():
        table = coverage_table(frame, lambda fits, level, rule=rule: calibration.held_out(
            fits, level, rule=rule, splits=splits), levels=(0.8,))["80%"]
        found[name] = [f"{r['all']:.0f} ({r['relevant']:.0f} / {r['irrelevant']:.0f})" for _, r in table.iterrows()]
    return pd.DataFrame(found, index=frame["dataset"].unique()).T


def by_number(frame, numbers=(3, 5, 10, 20), splits=SPLITS):
    """Coverage at 80 % when few refits choose: mean and standard deviation over draws of the choosing refits."""
    found = {}
    for dataset in frame["dataset"].unique():
        fits = posteriors(frame, dataset=dataset, source="fresh")
        for n in [n for n in numbers if len(fits) - n >= 2]:
            each = [100 * calibration.held_out(fits, choose=n / len(fits), splits=1, seed=s).mean()
                    for s in range(splits)]
            found[dataset, n] = f"{np.mean(each):.0f} ± {np.std(each):.0f}"
    return pd.Series(found).unstack()


def width_ratio(frame):
    """How many times as wide as calibrated the 80 % intervals are as fitted: median over relevant features and fits."""
    found = {}
    for dataset in frame["dataset"].unique():
        fits = posteriors(frame, dataset=dataset, source="fresh")
        t = calibration.temperature(fits, 0.8)
        widths = [[np.subtract(*q.interval(0.8)[::-1])[relevant(dataset)] for q in (p, p.calibrated(temperature=t))]
                  for p in fits]
        found[dataset] = float(np.median([wide / narrow for wide, narrow in widths]))
    return found


def resampled_table(frame):
    """Coverage among fresh refits at 80 % when bootstrap refits of one other data set chose the temperatures."""
    found = {}
    for dataset in frame["dataset"].unique():
        t = calibration.temperature(posteriors(frame, dataset=dataset, source="resampled"), 0.8)
        fits = [p.calibrated(temperature=t) for p in posteriors(frame, dataset=dataset, source="fresh")]
        found[dataset] = _parts(calibration.coverage(fits, 0.8), dataset)
    return pd.DataFrame(found, index=PARTS).T


def order_table(frame, edges=(0.5, 0.6, 0.8, 0.95, 1.0)):
    """When a fit says P(feature i above j) = p >= 1/2, how often does a refit put i above j? As fitted and calibrated.

    Pairs of features are those that matter somewhere; calibration as in ``held_out``, one split.
    """
    said = {"as fitted": ([], []), "calibrated": ([], [])}
    for dataset in frame["dataset"].unique():
        fits, pairs = posteriors(frame, dataset=dataset, source="fresh"), relevant(dataset)
        order = np.random.default_rng(0).permutation(len(fits))
        first = round(2 / 3 * len(fits))
        t = calibration.temperature([fits[i] for i in order[:first]], 0.8)
        judged = [fits[i] for i in order[first:]]
        for name, some in (("as fitted", judged), ("calibrated", [p.calibrated(temperature=t) for p in judged])):
            for a, p in enumerate(some):
                others = np.stack([q.mean for b, q in enumerate(some) if b != a])
                for i in pairs:
                    for j in pairs[pairs != i]:
                        if (chance := float(p.probability_greater(int(i), int(j)))) >= 0.5:
                            said[name][0].append(chance)
                            said[name][1].append((others[:, i] > others[:, j]).mean())
    table = {}
    for name, (chance, agreed) in said.items():
        chance, agreed = np.array(chance), np.array(agreed)
        for low, high in zip(edges[:-1], edges[1:], strict=True):
            inside = (chance >= low) & ((chance < high) | (high == edges[-1]))
            label = f"{low:.2f} to {high:.2f}"
            table[f"{name}: share of pairs", label] = round(100 * inside.mean())
            table[f"{name}: refits agree", label] = round(100 * agreed[inside].mean()) if inside.any() else "-"
    return pd.Series(table, dtype=object).unstack(0)


def change_table(frame):
    """Each change and level: the posterior's spread and the refits' scatter, in percent of relevant importances.

    The unchanged data set is the first level of each change that has one.
    """
    good, rows = finished(frame), []
    unchanged = good[good["what"] == "none"]
    first = {"label noise": unchanged.assign(what="label noise"), "rows": unchanged.assign(what="rows", level=ROWS)}
    good = pd.concat([*(first[w] for w in first if (good["what"] == w).any()), good[good["what"] != "none"]])
    order = pd.Categorical(good["what"], categories=[w for w in LEVELS if w in set(good["what"])], ordered=True)
    good = good.assign(what=order).sort_values(["dataset", "what", "level", "seed"])
    for (dataset, what, level), part in good.groupby(["dataset", "what", "level"], sort=False, observed=True):
        fits, matter = posteriors(part), relevant(dataset)
        mean = np.stack([p.mean for p in fits])
        row = {"dataset": dataset, "what": what, "level": level, "g": 100 * part["g_accuracy"].mean(),
               "concentration": np.mean([p.alpha.sum() for p in fits]),
               "spread": 100 * np.mean([(p.sd / p.mean)[matter] for p in fits]),
               "scatter": 100 * np.sqrt((mean.var(0, ddof=1) / mean.mean(0) ** 2)[matter].mean())}
        if what == "duplicate":
            chosen, copy = matter[0], mean.shape[1] - 1
            row |= {"original": mean[:, chosen].mean(), "copy": mean[:, copy].mean(),
                    "its spread": 100 * np.mean([(p.sd / p.mean)[chosen] for p in fits]),
                    "its scatter": 100 * mean[:, chosen].std(ddof=1) / mean[:, chosen].mean(),
                    "order of the two": np.mean([max(q, 1 - q) for q in (
                        float(p.probability_greater(int(chosen), copy)) for p in fits)])}
        rows.append(row)
    return pd.DataFrame(rows)


def choice_table(frame):
    """On seeds 100 and up: area under the risk-coverage curve by each score, as a share of the random one's."""
    good = finished(frame)
    good = good[good["seed"].isin(list(CHOICE_SEEDS))]
    names = [c.removeprefix("area_") for c in good if c.startswith("area_")]
    table = pd.DataFrame({n: (good[f"area_{n}"] / good["area_random"]).groupby(good["dataset"]).mean()
                          for n in names if n != "random"}).T
    return table.assign(mean=table.mean(axis=1)).sort_values("mean")


def chosen_score(frame):
    """The score with the smallest area on seeds 100 and up, among those that need only the posterior."""
    table = choice_table(frame)
    own = uncertainties(Posterior([[1.0, 2.0, 3.0]]))
    return next(name for name in table.index if name in own)


def rejection_table(frame, score):
    """Seeds 0 to 4: MCC x 100 of all rows and of the most certain, the gain with its standard error, and the areas."""
    good = finished(frame)
    good = good[good["seed"].isin(list(SEEDS))]
    rows = {}
    for dataset, part in good.groupby("dataset", sort=False):
        gain, doubt = part[f"kept_{score}"] - part["mcc"], part["kept_g's doubt"] - part["mcc"]
        rows[dataset] = {"all rows": part["mcc"].mean(), "kept": part[f"kept_{score}"].mean(), "gain": gain.mean(),
                         "its error": gain.std(ddof=1) / np.sqrt(len(part)), "gain by g's doubt": doubt.mean(),
                         "gain by oracle": (part["kept_oracle"] - part["mcc"]).mean(),
                         "area": part[f"area_{score}"].mean(), "random": part["area_random"].mean(),
                         "oracle": part["area_oracle"].mean()}
    return pd.DataFrame(rows).T


def curve(frame, dataset, score):
    """The risk-coverage curve of one score, mean over seeds 0 to 4, at ``SHARES``."""
    good = finished(frame)
    good = good[good["seed"].isin(list(SEEDS)) & (good["dataset"] == dataset)]
    return np.mean([json.loads(text)[score] for text in good["curves"]], axis=0)
