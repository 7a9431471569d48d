"""Fairness study: what a fair classifier's explanation looks like (supplement, "Fairness vs feature importance").

A run is a seed and a method. Every run of a seed trains the same classifiers: a fair one with its snapshots, the
control (lambda 0, same minibatches), a separately trained unconstrained baseline.

Parts. Adult has 3122 black people, of whom a classifier predicts some hundred positive in a fifth of the rows: the
p%-rule of one model then differs by 7 points between two random parts. So rows are *dealt* rather than drawn: sorted
by race, sex, income, married or not, capital gain or none, and education, and each run of ten neighbours divided at
random, 4 to training and 3 each to parts A and B. That halves the variance, and every row still lands in a part
with the same probability. Each held-out part serves once: in fold 0 snapshots are chosen on A and reported on B, in
fold 1 the other way round; a seed's value is the mean of its folds.

Explanations. The reference (pre-trained state) has an explainer seed of its own and every other state another one,
the same for all, so that each divergence holds what reseeding alone makes of it. Explainers see 8000 training rows.
"""

import functools
import json

import numpy as np
import pandas as pd

from bifkit import GlobalBIF, Posterior
from bifkit import divergence as dv
from bifkit.baselines import INVASE
from bifkit.fairness import LEVELS, adversarial_train, carried_gap, report, unconstrained
from bifkit.models import freeze, mlp, train
from bifkit.seeding import derive, seed_all
from data_prep.adult import FEATURES, load_adult_fair

SEEDS = range(5)
METHODS = ["measures", "rank", "invase", "paper"]
SENSITIVE = ("race", "sex")
FOLDS = (("A", "B"), ("B", "A"))  # chosen on, reported on
ROWS = 30_940
LEVEL_NAMES = [str(level) for level in LEVELS]
STATES = ["baseline", "pre-trained", *LEVEL_NAMES, *(f"control:{level}" for level in LEVELS)]
NAMES = [f for f in FEATURES if f not in SENSITIVE]
PRESETS = {"rank": {}, "paper": {"draws": 1}}  # the paper's BIF: a single sample, prior .1


def grid(profile="paper", *, methods=METHODS, seeds=SEEDS):
    """The runs of the study: five seeds, or at smoke size one seed and few rows.

    >>> len(grid()), len(grid("smoke"))
    (20, 4)
    """
    if profile == "smoke":
        return [{"seed": 0, "method": m, "rows": 3000, "iterations": 20} for m in methods]
    return [{"seed": s, "method": m, "rows": ROWS, "iterations": 500} for s in seeds for m in methods]


def deal(keys, hand, rng):
    """The part of each row: rows sorted by ``keys``, each run of neighbours dealt the parts of ``hand`` at random.

    >>> deal([np.array([0, 0, 1, 1])], "AB", np.random.default_rng(0)).tolist()
    ['B', 'A', 'A', 'B']
    """
    n, k = len(keys[0]), len(hand)
    order = np.lexsort([rng.random(n), *keys[::-1]])  # ties at random
    hands = np.argsort(rng.random((n // k + 1, k)), axis=1).ravel()[:n]
    part = np.empty(n, dtype=f"U{max(map(len, hand))}")
    part[order] = np.asarray(list(hand))[hands]
    return part


def parts(seed, rows=ROWS):
    """{"train", "A", "B": (X, y, {attribute: 0/1})}."""
    data = load_adult_fair(0)
    X, y, *Z = (np.concatenate([getattr(data, f"{c}_train"), data.extra[f"{c}_val"], getattr(data, f"{c}_test")])
                if c in "Xy" else np.concatenate([data.extra[f"{c}_{p}"] for p in ("train", "val", "test")])
                for c in ("X", "y", *SENSITIVE))
    rng = np.random.default_rng(derive("fairness", seed, "parts"))
    keep = np.sort(rng.permutation(len(y))[:rows])
    X, y, Z = X[keep], y[keep], [z[keep] for z in Z]
    columns = dict(zip(data.feature_names, X.T, strict=True))
    married = np.unique(columns["marital-status"], return_inverse=True)[1] == 2  # Married-civ-spouse
    gain = columns["capital-gain"] > columns["capital-gain"].min()
    part = deal([*Z, y, married, gain, columns["education-num"]], ["train"] * 4 + ["A"] * 3 + ["B"] * 3, rng)
    mean, sd = X[part == "train"].mean(0), X[part == "train"].std(0)
    return {p: ((X[part == p] - mean) / sd, y[part == p],
                dict(zip(SENSITIVE, (z[part == p] for z in Z), strict=True))) for p in ("train", "A", "B")}


@functools.lru_cache(maxsize=1)
def trained(seed, rows=ROWS, iterations=500):
    """What every run of a seed explains: parts, {state: model}, {state: iteration}, and the paths of the two folds.

    States: ``baseline``, ``pre-trained``, ``0:44`` ... ``1:96`` (fold and level), ``control:44`` ... (lambda 0 after
    as many iterations as fold 0 took). Kept for the next run of this worker.
    """
    data = parts(seed, rows)
    fair = adversarial_train(*data["train"], iterations=iterations, seed=seed)
    measured = [fair.on(*data[choose]) for choose, _ in FOLDS]
    iteration = {f"{fold}:{level}": measured[fold].choose(level) for fold in (0, 1) for level in LEVELS}
    control = adversarial_train(*data["train"], lambdas=dict.fromkeys(SENSITIVE, 0.0), seed=seed,
                                iterations=max(iteration[f"0:{level}"] for level in LEVELS))
    models = {"baseline": unconstrained(*data["train"][:2], seed=seed), "pre-trained": fair.model(0)}
    models |= {state: fair.model(i) for state, i in iteration.items()}
    models |= {f"control:{level}": control.model(iteration[f"0:{level}"]) for level in LEVELS}
    return data, models, iteration, measured


def run(*, seed, method, rows=ROWS, iterations=500):
    """One method on one seed: measures of every state, or the vectors that explain them."""
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}; got {method!r}")
    data, models, iteration, measured = trained(seed, rows, iterations)
    seed_all("fairness", seed, method)
    quick = {} if rows == ROWS else {"epochs": 1, "min_steps": 50}
    X, y = (part[:8000] for part in data["train"][:2])

    def vector(model, explainer_seed, preset=method):
        bif = GlobalBIF(model, preset, seed=explainer_seed, feature_names=NAMES, **PRESETS[preset], **quick)
        return [round(float(a), 5) for a in bif.fit(X, y).explain().alpha]

    if method == "measures":
        return _measures(data, models, iteration, measured)
    if method == "invase":
        return _invase(data, models, seed, quick)
    own, others = derive("fairness", seed, "reference"), derive("fairness", seed, "levels")
    vectors = {"reseeded": vector(models["pre-trained"], others)}
    for state, model in models.items():
        vectors[state] = vector(model, own if state in ("baseline", "pre-trained") else others)
    out = {"vectors": vectors}
    if method == "rank":  # networks that guess the attributes from the same features: their explanation names proxies
        for name in SENSITIVE:
            guess = train(mlp([len(NAMES), 32, 32, 32, 1], dropout=0.2), X, data["train"][2][name][:8000], lr=1e-3,
                          epochs=10, batch_size=128, weight_decay=0.0, seed=derive("proxies", seed, name))
            out[f"proxies_{name}"] = vector(freeze(guess), others)
            out[f"guess_auc_{name}"] = report(guess, data["A"][0], data["A"][2][name], {})["auc"]
    return out


def _measures(data, models, iteration, measured):
    lines, carried = [], {}
    for state, model in models.items():
        fold = [int(state[0])] if state in iteration else [0, 1]
        for f in fold:
            level = state.split(":")[1] if state in iteration else state
            lines.append({"state": level, "fold": f, "iteration": iteration.get(state),
                          **report(model, *data[FOLDS[f][1]])})
        if fold[0] == 0:
            carried[state] = {n: carried_gap(model, data["B"][0], data["B"][2][n]).round(5).tolist() for n in SENSITIVE}
    auc = float(np.mean([line["auc"] for line in lines if line["state"] == "pre-trained"]))
    return {"auc": auc, "states": lines, "carried": carried, "path": measured[0].history[::10].round(4).to_dict("list")}


def _invase(data, models, seed, quick):
    own, others = derive("fairness", seed, "reference"), derive("fairness", seed, "levels")
    wanted = {"pre-trained": own, "baseline": own, "reseeded": others} | {f"0:{level}": others for level in LEVELS}
    vectors, accuracy = {}, {}
    X, y, _ = data["B"]
    for state, explainer_seed in wanted.items():
        model = models["pre-trained" if state == "reseeded" else state]
        rival = INVASE(classifier=model, seed=explainer_seed, iterations=50 if quick else None)
        rival.fit(*data["train"][:2])
        vectors[state] = [round(float(p), 5) for p in rival.scores(X).mean(0)]
        accuracy[state] = float((rival.predict_proba(X).argmax(1) == y).mean())
    return {"vectors": vectors, "accuracy": accuracy}


def _stored(frame, method, column):
    """{seed: what the runs of a method stored in a column}."""
    good = frame[(frame["error"].fillna("") == "") & (frame["method"] == method)]
    return {r["seed"]: json.loads(r[column]) for _, r in good.iterrows()}


def states(frame):
    """A row a state and seed, the folds averaged: iteration, auc, accuracy, fairness measures, all on held-out rows."""
    lines = [{"seed": s, **line} for s, part in _stored(frame, "measures", "states").items() for line in part]
    table = pd.DataFrame(lines, columns=["seed", "state", "fold", "iteration", "auc", "accuracy"] + [
        f"{m}_{z}" for m in ("p_rule", "parity", "odds") for z in SENSITIVE])
    return table.astype({"iteration": float}).groupby(["state", "seed"], as_index=False).mean().drop(columns="fold")


def levels_table(frame):
    """Panel 1 and beyond the paper: mean and standard error over seeds of every measure, a row a state."""
    by = states(frame).groupby("state").agg(["mean", "sem"]).drop(columns="seed")
    return by.reindex([s for s in STATES if s in by.index])


def divergences(frame, method, reference="pre-trained"):
    """Panels 2 and 3: divergence from the reference's explanation, a row a level and seed, the folds averaged.

    Columns level, seed, kl, and for the same seed ``control`` and ``reseeded``, the floors.
    """
    measure = dv.bernoulli_kl if method == "invase" else dv.dirichlet_kl
    stored = _stored(frame, method, "vectors")

    def far(name):
        e = [(0, s, v[reference]) for s, v in stored.items()]
        e += [(level, s, v[name(level)]) for s, v in stored.items() for level in LEVELS if name(level) in v]
        return dv.paired(e, reference=0, measure=measure)

    if not stored:
        return pd.DataFrame(columns=["level", "seed", "kl", "control", "reseeded"])
    out = pd.concat([far(lambda level, f=f: f"{f}:{level}") for f in (0, 1)]).groupby(["level", "seed"]).mean()
    for column, name in (("control", lambda level: f"control:{level}"), ("reseeded", lambda level: "reseeded")):
        out[column] = far(name).set_index(["level", "seed"])["kl"].reindex(out.index)
    return out.reset_index()


def curve(frame, method, reference="pre-trained"):
    """The mean over seeds of ``divergences`` with its standard error and floors, a row a level.

    ``floor`` is the divergence between seeds at one level, ``floor_reference`` that between the references.
    """
    measure = dv.bernoulli_kl if method == "invase" else dv.dirichlet_kl
    by = divergences(frame, method, reference).groupby("level")
    table = by.agg(mean=("kl", "mean"), se=("kl", "sem"), control=("control", "mean"), reseeded=("reseeded", "mean"))
    stored = _stored(frame, method, "vectors")
    if stored:
        e = [(level, s, v[f"0:{level}"]) for s, v in stored.items() for level in LEVELS]
        floors = dv.floor(e + [(0, s, v[reference]) for s, v in stored.items()], measure=measure).set_index("level")
        table["floor"], table["floor_reference"] = floors["floor"].reindex(table.index), floors["floor"][0]
    return table.reset_index()


def importances(frame, method="rank"):
    """Panel 4: mean importance and the bounds of its 95 % interval, averaged over folds and seeds.

    ``sd`` is the spread of the mean over seeds.
    """
    lines = []
    for seed, vectors in _stored(frame, method, "vectors").items():
        for key, alpha in vectors.items():
            state = key.split(":")[1] if key[0] in "01" else key
            posterior = Posterior(alpha, NAMES).to_frame().reset_index()
            lines.append(posterior.assign(state=state, seed=seed))
    if not lines:
        return pd.DataFrame(columns=["state", "feature", "mean", "lower", "upper", "sd"])
    by = pd.concat(lines).drop(columns="sd").groupby(["state", "feature", "seed"]).mean().groupby(["state", "feature"])
    order = pd.MultiIndex.from_product([STATES, NAMES], names=["state", "feature"])
    return by.mean().assign(sd=by["mean"].std(ddof=1)).reindex(order).reset_index()


def changes(frame, method="rank"):
    """How each importance moves from the pre-trained state to the fairest level: mean, se, seeds that rise."""
    lines = {}
    for seed, v in _stored(frame, method, "vectors").items():
        ends = [Posterior(v[k]).mean for k in ("pre-trained", f"0:{LEVELS[-1]}", f"1:{LEVELS[-1]}")]
        lines[seed] = dict(zip(NAMES, (ends[1] + ends[2]) / 2 - ends[0], strict=True))
    table = pd.DataFrame(lines, index=NAMES).T
    return pd.DataFrame({"change": table.mean(), "se": table.sem(), "rises": (table > 0).sum(), "seeds": len(table)})


def selections(frame):
    """Panel 2: the features INVASE selects (mean probability above one half), a row a seed, and its accuracy."""
    lines = []
    for seed, v in _stored(frame, "invase", "vectors").items():
        accuracy = _stored(frame, "invase", "accuracy")[seed]
        lines += [{"seed": seed, "state": k.removeprefix("0:"), "accuracy": accuracy[k],
                   "selected": [i for i, q in enumerate(p) if q > 0.5]} for k, p in v.items()]
    return pd.DataFrame(lines, columns=["seed", "state", "accuracy", "selected"])


def proxies(frame):
    """What each feature carries of the gap between the groups (share predicted positive, points), by state.

    Beside it, ``guess``: its importance (BIF) in a network that guesses the attribute from the same features.
    """
    carried, out = _stored(frame, "measures", "carried"), {}
    for name in SENSITIVE:
        for state in ("baseline", "pre-trained", f"0:{LEVELS[-1]}"):
            values = [v[state][name] for v in carried.values()]
            out[name, state.removeprefix("0:")] = 100 * np.mean(values, axis=0) if values else np.nan
        guess = [Posterior(a).mean for a in _stored(frame, "rank", f"proxies_{name}").values()]
        out[name, "guess"] = np.mean(guess, axis=0) if guess else np.nan
    return pd.DataFrame(out, index=NAMES)


def spearmans(frame):
    """Spearman of the level with AUC and with each divergence: of the means over seeds, and the least of the seeds."""
    level = states(frame).query("state in @LEVEL_NAMES").astype({"state": int})
    lines = {("AUC", ""): level.rename(columns={"state": "level", "auc": "kl"})[["level", "seed", "kl"]]}
    lines |= {(m, r): divergences(frame, m, r) for m in METHODS[1:] for r in ("pre-trained", "baseline")}
    out = []
    for (what, reference), part in lines.items():
        if len(part):
            wide = part.pivot(index="level", columns="seed", values="kl").sort_index()
            ranks = wide.corrwith(pd.Series(wide.index, wide.index), method="spearman")
            mean = wide.mean(axis=1).corr(pd.Series(wide.index, wide.index), method="spearman")
            out.append({"of": what, "reference": reference, "of means": mean, "least of seeds": ranks.min(),
                        "greatest of seeds": ranks.max()})
    return pd.DataFrame(out, columns=["of", "reference", "of means", "least of seeds", "greatest of seeds"])


def tables(frame):
    """Every frame that the notebook shows, by name; a study that was not run gives empty ones."""
    return {"levels": levels_table(frame),
            "kl": pd.concat([curve(frame, m, r).assign(explainer=m, reference=r) for m in METHODS[1:]
                             for r in ("pre-trained", "baseline")]).set_index(["explainer", "reference", "level"]),
            "selections": selections(frame), "importances": importances(frame),
            "importances_paper": importances(frame, "paper"), "changes": changes(frame),
            "changes_paper": changes(frame, "paper"), "proxies": proxies(frame), "spearman": spearmans(frame)}


def scores(frame):
    """What the scoreboard takes: item, row, column, seed, value."""
    level = states(frame).query("state in @LEVEL_NAMES")
    return pd.DataFrame({"item": "fig_fairness", "row": "p%-rule on race", "column": level["state"],
                         "seed": level["seed"], "value": level["p_rule_race"]})
