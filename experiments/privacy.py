"""Privacy study: what differential privacy costs in explainability (privacy figures, noise table, INVASE).

A run is a data set x seed x sigma: DP-SGD trains the paper's network 100-20, its test AUC and its own epsilon
are recorded, and its explanations are stored: BIF with the ``rank`` preset, BIF with the objective as printed
(``paper``: prior .01, one draw, supplement) and INVASE's mean selection probabilities. The tables are made
from these rows alone.

Protocol, fixed on seeds 100-102 before seeds 0-4 were run:

* Paired seeds: the models of one seed share split, initial weights and batches, their explainers the draws.
* One treatment: sigma = 0 is trained like the rest, clipped, sampled and with the same weight decay. Without
  decay the non-private network of Diabetes overfits and is itself the odd one out, and with much noise the
  weights of features that carry nothing wander: the explanations of equally private models then differ as
  much from each other as from the reference. Decay acts on the weights, not on the data: it costs no privacy.
* Batches of a thirtieth of the rows on both sets, so that a sigma means nearly the same epsilon on both.
* The x-position of a model is its own epsilon (PRV, Poisson sampling); the paper's is a label.
"""

import json
import math

import numpy as np
import pandas as pd
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

from bifkit import divergence as dv
from bifkit import privacy as pv
from bifkit.baselines import INVASE
from bifkit.explain import GlobalBIF
from bifkit.models import mlp, predict_proba
from bifkit.seeding import derive, seed_all
from data_prep import load_adult, load_diabetes, make_synthetic

SEEDS = range(5)
# sigma that gives Diabetes the epsilons of the paper's INVASE figure: 4, 1, .1, .01
FIGURE_NOISE = {1.16: 4.0, 3.21: 1.0, 26.4: 0.1, 210.0: 0.01}
LEVELS = {"Adult": pv.NOISE, "Diabetes": tuple(sorted({*pv.NOISE, *FIGURE_NOISE})), "Toy": (0.0, 2.3, 17.0)}
INVASE_LEVELS = {"Adult": pv.NOISE, "Diabetes": (0.0, *FIGURE_NOISE), "Toy": (0.0, 17.0)}
BATCH = {"Adult": 1000, "Diabetes": 3000, "Toy": 100}
DECAY = {"Adult": 0.3, "Diabetes": 1.0, "Toy": 0.3}
EXPLAINERS = {"rank": {"preset": "rank"}, "paper": {"preset": "paper", "draws": 1, "prior": 0.01}}
STEPS, INVASE_SETTINGS = 600, {"iterations": 600, "lr": 1e-3}
PAPER_ADULT = ["relationship", "education-num", "capital-gain"]  # its non-private order


def grid(profile="paper", *, datasets=("Adult", "Diabetes"), seeds=SEEDS):
    """The runs: every level of both data sets, five seeds; at smoke size a made-up set, three levels, two seeds.

    >>> len(grid()), len(grid("smoke"))
    (80, 6)
    """
    if profile == "smoke":
        datasets, seeds = ("Toy",), (0, 1)
    return [{"dataset": d, "noise": float(s), "seed": int(k)}
            for d in datasets for k in seeds for s in LEVELS[d]]


def load(dataset, seed):
    """The data of one run; ``Toy`` is Syn2 at a small size, for runs without downloads."""
    if dataset == "Adult":
        return load_adult(seed, test_share=0.1)
    return load_diabetes(seed) if dataset == "Diabetes" else make_synthetic("Syn2", seed, rows=2000)


def private_model(data, dataset, seed, noise):
    """(model, PrivateRun) of one run; initial weights and batches depend on data set and seed alone."""
    seed_all("privacy", dataset, seed, "g")
    g = mlp([data.n_features, 100, 20, 1])
    return pv.dp_train(g, data.X_train, data.y_train, noise=noise, batch_size=BATCH[dataset],
                       weight_decay=DECAY[dataset], seed=derive("privacy", dataset, seed))


def run(dataset, noise, seed) -> dict:
    """Train one private model, score it and explain it."""
    data = load(dataset, seed)
    g, done = private_model(data, dataset, seed, noise)
    auc = {f"auc_{part}": round(float(roc_auc_score(y, predict_proba(g, X)[:, 1])), 5)
           for part, X, y in (("test", data.X_test, data.y_test), ("train", data.X_train, data.y_train))}
    row = {**auc, "epsilon": done.epsilon, "features": data.feature_names,
           **{k: getattr(done, k) for k in ("sample_rate", "steps", "clip", "delta", "rows", "epochs")}}
    for name, settings in EXPLAINERS.items():
        bif = GlobalBIF(g, epochs=1, min_steps=STEPS, seed=derive("privacy", dataset, seed, name), **settings)
        row[f"alpha_{name}"] = _rounded(bif.fit(data.X_train, data.y_train).explain().alpha)
    if noise in INVASE_LEVELS[dataset]:
        for name in ("baseline", "classifier"):
            invase = INVASE(**{name: g}, **INVASE_SETTINGS, seed=derive("privacy", dataset, seed))
            chosen = invase.fit(data.X_train, data.y_train).scores(data.X_test)  # (N, D)
            row[f"invase_{name}"] = _rounded(chosen.mean(0))
    return row


def _rounded(values):
    return [float(f"{v:.5g}") for v in np.ravel(values)]


def _vectors(frame, column):
    """(epsilon of the level, seed, vector) of every run with the column; a level has its seeds' mean epsilon."""
    frame = frame[frame[column].map(lambda v: isinstance(v, (str, list)) and len(v) > 0)]
    level = frame.groupby("noise").epsilon.transform("mean").where(frame.noise > 0, math.inf)
    return [(e, s, json.loads(v) if isinstance(v, str) else v)
            for e, s, v in zip(level, frame.seed, frame[column], strict=True)]


def noise_table() -> pd.DataFrame:
    """The paper's noise table recomputed: every accountant at the paper's sampling rate and steps."""
    rows = [{"sigma": s, "printed": pv.PAPER_EPSILON[s], **pv.epsilons(s, pv.PAPER_RATE, pv.PAPER_STEPS)}
            for s in pv.NOISE]
    return pd.DataFrame(rows)


def ledger(frame) -> pd.DataFrame:
    """The privacy ledger of the runs of the first seed (the others differ in the third digit of q at most)."""
    first = frame[frame.seed == frame.seed.min()]
    runs = [pv.PrivateRun(noise=r.noise, clip=r.clip, sample_rate=r.sample_rate, steps=int(r.steps),
                          delta=r.delta, rows=int(r.rows), epochs=int(r.epochs), seed=int(r.seed))
            for r in first.itertuples()]
    book = pv.ledger(runs)
    return book.assign(dataset=np.repeat(first.dataset.to_numpy(), len(pv.ASSUMES)))


def auc_table(frame) -> pd.DataFrame:
    """Mean and standard error of the AUC by data set and level, strongest privacy first."""
    by = frame.groupby(["dataset", "noise"])
    table = by.agg(epsilon=("epsilon", "mean"), auc=("auc_test", "mean"), auc_train=("auc_train", "mean"),
                   se=("auc_test", "sem"), seeds=("seed", "count")).reset_index()
    return table.sort_values(["dataset", "noise"], ascending=[True, False], ignore_index=True)


def kl_table(frame) -> pd.DataFrame:
    """KL of the non-private to the private explanation by level, with floors; ``kl_swapped`` turns them round."""
    parts = []
    for dataset, rows in frame.groupby("dataset"):
        noise = rows.groupby("noise").epsilon.mean()
        for name in (c for c in rows if c.startswith(("alpha_", "invase_"))):
            vectors = _vectors(rows, name)
            if len({e for e, _, _ in vectors}) < 2:
                continue
            measure = dv.dirichlet_kl if name.startswith("alpha_") else dv.bernoulli_kl
            curve = dv.curve(vectors, reference=math.inf, measure=measure)
            other = dv.curve(vectors, reference=math.inf, measure=measure, swap=True)
            sigma = curve.level.map({e: s for s, e in noise.items()})
            parts.append(curve.rename(columns={"level": "epsilon", "mean": "kl"}).assign(
                dataset=dataset, explainer=name.removeprefix("alpha_"), noise=sigma,
                kl_swapped=other["mean"]))
    order = ["dataset", "explainer", "noise", "epsilon", "kl", "se", "floor", "floor_reference", "kl_swapped"]
    return pd.concat(parts, ignore_index=True)[order]


def verdicts(frame) -> pd.DataFrame:
    """The claims as numbers: Spearman of epsilon with mean AUC and KL, the strongest level over the floors."""
    rows = []
    for dataset, t in auc_table(frame).groupby("dataset"):
        rows.append({"dataset": dataset, "curve": "AUC", "spearman": spearmanr(t.epsilon, t.auc).statistic})
    for (dataset, name), t in kl_table(frame).groupby(["dataset", "explainer"]):
        curve = t.rename(columns={"epsilon": "level", "kl": "mean"})
        rows.append({"dataset": dataset, "curve": f"KL {name}", **dv.verdict(curve)})
    return pd.DataFrame(rows)


def importances(frame, column="alpha_rank") -> pd.DataFrame:
    """Mean importance of each feature by data set and level: Dirichlet means, or selection probabilities."""
    rows = []
    for (dataset, noise), runs in frame.groupby(["dataset", "noise"]):
        vectors = np.array([v for _, _, v in _vectors(runs, column)])  # (seeds, D)
        if not len(vectors):
            continue
        shares = vectors / vectors.sum(1, keepdims=True) if column.startswith("alpha_") else vectors
        names = runs.features.iloc[0]
        names = json.loads(names) if isinstance(names, str) else names
        rows += [{"dataset": dataset, "noise": noise, "epsilon": runs.epsilon.mean(), "feature": f,
                  "importance": m, "sd": s}
                 for f, m, s in zip(names, shares.mean(0), shares.std(0), strict=True)]
    table = pd.DataFrame(rows)
    by = table.groupby(["dataset", "noise"]).importance
    table["rank"] = by.rank(ascending=False, method="first").astype(int)
    return table.sort_values(["dataset", "noise", "rank"], ignore_index=True)


def top(frame, k=8, column="alpha_rank") -> pd.DataFrame:
    """The k first features by level, a column a level (weakest privacy first), as in the paper's figure."""
    table = importances(frame, column)
    table = table[table["rank"] <= k]
    return table.pivot(index=["dataset", "rank"], columns="noise", values="feature")


def invase_table(frame, column="invase_baseline", threshold=0.5) -> pd.DataFrame:
    """What INVASE selects at each level: features whose mean selection probability exceeds one half."""
    table = importances(frame, column)
    rows = [{"dataset": d, "noise": s, "epsilon": t.epsilon.iloc[0], "first": t.feature.iloc[0],
             "first_probability": t.importance.iloc[0],
             "selected": ", ".join(t.feature[t.importance > threshold]) or "none"}
            for (d, s), t in table.groupby(["dataset", "noise"])]
    return pd.DataFrame(rows)


def tables(frame) -> dict:
    """Every frame the notebook shows, by name."""
    frame = frame[frame["error"].fillna("") == ""] if "error" in frame else frame
    found = {"noise": noise_table(), "ledger": ledger(frame), "auc": auc_table(frame), "kl": kl_table(frame),
             "verdicts": verdicts(frame), "top": top(frame), "top_paper": top(frame, column="alpha_paper"),
             "importances": importances(frame)}
    for name in ("invase_baseline", "invase_classifier"):
        found[name] = invase_table(frame, name)
    return found


def scores(frame=None) -> pd.DataFrame:
    """What the scoreboard takes: the noise table by the paper's bound (no run is needed for it)."""
    return pd.DataFrame([{"item": "table_privacy_noise", "row": f"sigma={s:g}", "column": "epsilon",
                          "seed": 0, "value": pv.paper_epsilon(s)} for s in pv.NOISE])
