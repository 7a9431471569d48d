"""How faithful are local explanations to their model? Deletion and insertion on data that scikit-learn ships.

A run is a data set x method x seed: a fresh split, a small network g trained on it, each test row explained for the
class that g predicts there, features removed or inserted in the order of the explanation
(bifkit.evaluation.faithfulness). What is removed takes the training mean, or the values of twenty training rows
(marginal). Rivals stand twice: ranked by the size of their attributions, and signed, so that what speaks against the
predicted class comes last. """

import functools
import warnings

import numpy as np
import pandas as pd
from sklearn import datasets
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from bifkit import LocalBIF, refine
from bifkit.evaluation.faithfulness import deletion_score, insertion_score
from data_prep.seeding import derive, seed_all
from experiments.models.classifiers import accuracy, mlp, train
from experiments.rivals import attribution

DATA = {"breast cancer": datasets.load_breast_cancer, "wine": datasets.load_wine, "digits": datasets.load_digits}
OURS = ("LocalBIF", "LocalBIF few", "LocalBIF few, refined")
RIVALS = ("DeepExplainer", "DeepExplainer, signed", "IntegratedGradients", "IntegratedGradients, signed")
TEST_ROWS = 150  # a data set's first test rows; DeepExplainer takes a minute for those of the digits otherwise
MEASURES = ("deletion, mean", "insertion, mean", "deletion, marginal", "insertion, marginal")


def grid(profile="paper"):
    """Three sets, seven methods and the random order, five seeds; at smoke size one set, one seed.

    >>> len(grid("smoke")), len(grid("paper"))
    (4, 120)
    """
    names, seeds, methods = DATA, range(5), (*OURS, *RIVALS, "random")
    if profile == "smoke":
        names, seeds = ["wine"], range(1)
        methods = ("LocalBIF", "LocalBIF few, refined", "IntegratedGradients", "random")
    return [{"dataset": d, "method": m, "seed": s} for d in names for s in seeds for m in methods]


@functools.lru_cache(maxsize=1)
def prepared(dataset, seed):
    """(X_train, y_train, X_test, g) of one data set and seed: standardised, split 70/30.

    >>> X, y, X_test, g = prepared("wine", 100); X.shape, X_test.shape, g.training
    ((124, 13), (54, 13), False)
    """
    X, y = DATA[dataset](return_X_y=True)
    state = derive("faithfulness", dataset, seed) % 2**32
    X, X_test, y, _ = train_test_split(X, y, test_size=0.3, random_state=state, stratify=y)
    scaler = StandardScaler().fit(X)
    X, X_test = (scaler.transform(x).astype(np.float32) for x in (X, X_test[:TEST_ROWS]))
    seed_all("faithfulness", dataset, seed)
    g = train(mlp([X.shape[1], 64, 64, int(y.max()) + 1]), X, y, epochs=60, batch_size=32, lr=1e-2, weight_decay=0.1,
              seed=derive("faithfulness", dataset, seed, "g"))
    return X, y, X_test, g


def run(*, dataset, method, seed):
    """Areas under the deletion and insertion curves of one method, for both fills.

    >>> sorted(run(dataset="wine", method="random", seed=100))
    ['deletion, marginal', 'deletion, mean', 'g_accuracy', 'insertion, marginal', 'insertion, mean']
    """
    X, y, test, g = prepared(dataset, seed)
    rng = seed_all("faithfulness", dataset, seed, method)
    if method in OURS:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="the data have .* constant column")  # digits' margins are blank
            explainer = LocalBIF(g, "few" if "few" in method else "rank", seed=derive(dataset, seed, method)).fit(X, y)
        scores = (refine(explainer, test, X) if "refined" in method else explainer.explain(test)).mean
    else:
        signed = method.endswith("signed")
        scores = {"DeepExplainer": lambda: attribution.shap_deep(g, test, X[:100], signed=signed),
                  "IntegratedGradients": lambda: attribution.integrated_gradients(g, test, signed=signed),
                  "random": lambda: rng.random(test.shape)}[method.removesuffix(", signed")]()
    out = {"g_accuracy": accuracy(g, X, y)}
    for measure in MEASURES:
        kind, fill = measure.split(", ")
        area = deletion_score if kind == "deletion" else insertion_score
        out[measure] = area(g, test, scores, fill=fill, reference=X)
    return out


def table(frame) -> pd.DataFrame:
    """Mean area of each method, one column per data set and measure.

    >>> frame = pd.DataFrame({"dataset": "wine", "method": "random", "seed": [0, 1], "error": "",
    ...                       **{m: [0.4, 0.6] for m in MEASURES}})
    >>> float(table(frame).loc[("wine", "deletion, mean"), "random"])
    0.5
    """
    means = frame.groupby(["dataset", "method"], sort=False)[list(MEASURES)].mean()
    means.columns.name = "measure"
    return means.stack().unstack("method")[list(dict.fromkeys(frame["method"]))]


def verdicts(frame, ours="LocalBIF few, refined") -> pd.DataFrame:
    """Ours minus each rival's, paired by seed, so that more is better: mean, standard error, and the verdict.

    >>> rows = [{"dataset": "wine", "method": m, "seed": s, **{k: v + s for k in MEASURES}}
    ...         for m, v in (("LocalBIF", 0.3), ("DeepExplainer", 0.5)) for s in (0, 1)]
    >>> verdicts(pd.DataFrame(rows), "LocalBIF")["verdict"].unique().tolist()
    ['better', 'worse']
    """
    rows = []
    for (dataset, measure), part in frame.melt(["dataset", "method", "seed"], list(MEASURES), "measure").groupby(
            ["dataset", "measure"], sort=False):
        wide = part.pivot(index="seed", columns="method", values="value")
        for rival in [r for r in RIVALS if r in wide]:
            gain = (wide[ours] - wide[rival]) * (-1 if measure.startswith("deletion") else 1)
            error = gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else np.nan
            verdict = "better" if gain.mean() > 2 * error else "worse" if gain.mean() < -2 * error else "no worse"
            rows.append((dataset, measure, rival, gain.mean(), error, verdict))
    return pd.DataFrame(rows, columns=["dataset", "measure", "rival", "gain", "standard error", "verdict"])
