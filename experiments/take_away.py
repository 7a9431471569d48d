"""Trained things to take away (``make models``): g, explainers and posteriors of seed 0 of every study.

    build/models/<study>/<name>/   g.safetensors   the classifier that is explained (experiments.models.saved)
                                   local.bif       a fitted LocalBIF; explaining a row needs neither g nor training
                                   global.bif      a fitted GlobalBIF
                                   *_posterior.bif what they say: of the data set, and of the first test rows
                                   card.md         data, licence, scores, how to load
    build/models/SHA256SUMS        of all of them

Data, g and explainers have the streams of random numbers of the studies' own runs, so these are the ones behind the
rows of seed 0 in ``results/``. The studies that are not here have no g of their own: ablation, counting and uncertainty
explain those of ``synthetic``, crossed those of ``errata``; wide and bench train theirs to grow and be timed.
``examples/breast_cancer`` is the one that is committed; notebook 00 loads it.
"""

import argparse
import hashlib
import shutil
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

from sklearn.datasets import load_breast_cancer
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

from bifkit import GlobalBIF, LocalBIF
from bifkit.evaluation import deletion_score, insertion_score, metrics
from data_prep import DataUnavailable
from data_prep.catalog import CATALOG
from data_prep.mnist import patches
from data_prep.seeding import derive, seed_all
from experiments import errata, fairness, faithfulness, mnist, privacy, synthetic, tabular
from experiments.models import privacy as dp_sgd
from experiments.models.classifiers import accuracy, mlp, predict_proba, train
from experiments.models.saved import save_model
from experiments.runner import paths, provenance
from experiments.runner.files import write_text

SEED = 0
ROWS = 100  # test rows whose posteriors are kept
MADE_UP = ("made by `data_prep.make_synthetic`", "none needed: made-up rows")
UCI = "CC BY 4.0 (UCI Machine Learning Repository); ships with scikit-learn"
SHIPPED = {"breast cancer": "Breast Cancer Wisconsin (Diagnostic), doi:10.24432/C5DW2B",
           "wine": "Wine, doi:10.24432/C5PC7J",
           "digits": "Optical Recognition of Handwritten Digits, doi:10.24432/C50P49"}


@dataclass
class Thing:
    """One folder to take away: models, fitted explainers, some test rows, scores, and what its card says."""

    name: str
    models: dict
    explainers: dict
    rows: object  # the test rows, as explain takes them
    scores: dict
    data: tuple  # (which data, under which licence)
    how: str  # how the rows are made
    note: str = ""


def _known(name):
    entry = CATALOG[name.lower()]
    return f"{entry.title.rstrip('?')}; {entry.citation}", entry.licence


def start_here():
    """The network of notebook 00: breast cancer, 30 measurements."""
    data = load_breast_cancer(as_frame=True)
    X, X_test, y, y_test = train_test_split(data.data, 1 - data.target, random_state=SEED, stratify=data.target)
    centre, scale = X.mean(), X.std()
    X, X_test = (X - centre) / scale, (X_test - centre) / scale
    seed_all("take away", "breast cancer", SEED)
    g = train(mlp([30, 64, 64, 2]), X, y, epochs=40, batch_size=32, seed=SEED)
    yield Thing("breast_cancer", {"g": g}, {"local": LocalBIF(g, seed=SEED).fit(X, y)}, X_test,
                {"accuracy of g on held-out patients": accuracy(g, X_test, y_test)}, (SHIPPED["breast cancer"], UCI),
                "the split and the scaling of notebook 00; class 1 is malignant")


def of_synthetic():
    """The g of Table 1 and our explainers of it."""
    for name in synthetic.NAMES:
        data, g = synthetic.prepared(name, SEED, 10_000, "as_run")
        kinds = {"local": LocalBIF} if name in synthetic.LOCAL_ONLY else {"local": LocalBIF, "global": GlobalBIF}
        fits = {k: kind(g, seed=derive(name, SEED, f"bifkit ({k})"), feature_names=data.feature_names)
                .fit(data.X_train, data.y_train) for k, kind in kinds.items()}
        scores = {"accuracy of g": accuracy(g, data.X_test, data.y_test)}
        scores |= {f"MCC x 100, {k}": 100 * metrics.mcc(e.explain(data.X_test).mean, data.truth_test)
                   for k, e in fits.items()}
        yield Thing(name, {"g": g}, fits, data.X_test, scores, MADE_UP,
                    f'`data_prep.make_synthetic("{name}", 0, rows=10_000)`')


def of_tabular():
    """The g of Table 2 and our explainers of it."""
    for name in tabular.DATASETS:
        size = next(run for run in tabular.grid() if run["dataset"] == name)
        data, g = tabular.prepared(name, SEED, size["rows"], size["test_rows"])
        seed = derive(name, SEED, "bifkit")
        fits = {k: kind(g, seed=seed, feature_names=data.feature_names, **tabular.OURS["bifkit"])
                .fit(data.X_train, data.y_train) for k, kind in (("local", LocalBIF), ("global", GlobalBIF))}
        scores = {"accuracy of g, %": 100 * accuracy(g, data.X_test, data.y_test)}
        for kind, explainer in fits.items():
            found = explainer.explain(data.X_test).mean
            scores |= {f"accuracy with k={k} features, {kind}, %":
                       100 * metrics.post_hoc_accuracy(g, data.X_test, data.y_test, found, k) for k in tabular.KS}
        yield Thing(name, {"g": g}, fits, data.X_test, scores, _known(name),
                    f"`data_prep.load_{name.lower()}(0)`, its first {size['test_rows']} test rows at most")


def of_mnist():
    """The g and the judge of 3 against 8, and our explainer."""
    size = {"rows": 11_982, "test_rows": 1984}
    X, y, X_test, y_test = mnist.digits(**size)
    g, judge = mnist.prepared(SEED, **size)
    explainer = LocalBIF(g, groups=patches(), seed=derive("MNIST", SEED, "bifkit"), **mnist.OURS["bifkit"]).fit(X, y)
    mean = explainer.explain(X_test).mean
    scores = {"accuracy of g": accuracy(g, X_test, y_test), "accuracy of the judge": accuracy(judge, X_test, y_test)}
    for k in mnist.KS:
        kept = metrics.keep_features(X_test, metrics.top_k_mask(mean, k)[:, patches()])
        scores[f"accuracy of the judge with k={k} patches"] = accuracy(judge, kept, y_test)
    yield Thing("3_against_8", {"g": g, "judge": judge}, {"local": explainer}, X_test, scores, _known("mnist"),
                "`data_prep.load_mnist(0)`; 49 patches of 4 x 4 pixels")


def of_privacy():
    """The networks of DP-SGD at the paper's levels of noise, and their global explanations."""
    for name in ("Adult", "Diabetes"):
        data = privacy.load(name, SEED)
        for noise in dp_sgd.NOISE:
            g, done = privacy.private_model(data, name, SEED, noise)
            explainer = GlobalBIF(g, epochs=1, min_steps=privacy.STEPS[name], feature_names=data.feature_names,
                                  seed=derive("privacy", name, SEED, "rank"), **privacy.EXPLAINERS["rank"])
            auc = roc_auc_score(data.y_test, predict_proba(g, data.X_test)[:, 1])
            how = "load_adult(0, test_share=0.1)" if name == "Adult" else "load_diabetes(0)"
            yield Thing(f"{name}_noise_{noise:g}", {"g": g}, {"global": explainer.fit(data.X_train, data.y_train)},
                        data.X_test, {"AUC on test rows": auc, "epsilon (PRV)": done.epsilon, "delta": done.delta},
                        _known(name), f"`data_prep.{how}`", "The guarantee is that of g. The explainer was fitted on "
                        "the training rows and is not covered by it: it is for looking, not for giving away.")


def of_fairness():
    """The unconstrained classifier and the fair one at the paper's levels, and their global explanations."""
    data = fairness.parts(SEED)
    fair = fairness.adversarial_train(*data["train"], iterations=fairness.ITERATIONS, seed=SEED)
    measured = fair.on(*data["A"])
    at = {"pre-trained": 0} | {f"level_{level}": measured.choose(level) for level in fairness.LEVELS}
    models = {"baseline": fairness.unconstrained(*data["train"][:2], seed=SEED)}
    models |= {state: fair.model(i) for state, i in at.items()}
    X, y = (part[:8000] for part in data["train"][:2])
    for state, g in models.items():
        stream = "reference" if state in fairness.REFERENCES else "levels"
        explainer = GlobalBIF(g, "rank", seed=derive("fairness", SEED, stream), feature_names=fairness.NAMES).fit(X, y)
        yield Thing(f"Adult_{state}", {"g": g}, {"global": explainer}, data["B"][0],
                    {f"{k} on part B": v for k, v in fairness.report(g, *data["B"]).items()}, _known("adult"),
                    '`experiments.fairness.parts(0)["B"]`', "Chosen on part A, scored on part B. Race and sex are not "
                    "among its inputs.")


def of_faithfulness():
    """The small networks of notebook 06 and the explainers that are refined there."""
    for name in faithfulness.DATA:
        X, y, X_test, g = faithfulness.prepared(name, SEED)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="the data have .* constant column")  # digits' margins are blank
            explainer = LocalBIF(g, "few", seed=derive(name, SEED, "LocalBIF few")).fit(X, y)
        scores = {"accuracy of g on its training rows": accuracy(g, X, y)}
        mean = explainer.explain(X_test).mean
        scores |= {f"{kind}, mean": area(g, X_test, mean, fill="mean", reference=X)
                   for kind, area in (("deletion", deletion_score), ("insertion", insertion_score))}
        yield Thing(name.replace(" ", "_"), {"g": g}, {"local": explainer}, X_test, scores, (SHIPPED[name], UCI),
                    f'`experiments.faithfulness.prepared("{name}", 0)`')


def of_errata():
    """The network of the authors' code on Syn4 to Syn6, explained as their code did (preset ``released``)."""
    for name in errata.MIXED:
        data, g = errata.authors_g(name, SEED, 10_000)
        explainer = LocalBIF(g, "released", seed=derive(name, SEED, "errata released"),
                             feature_names=data.feature_names)
        mean = explainer.fit(data.X_train, data.y_train).explain(data.X_test).mean
        yield Thing(f"{name}_authors_network", {"g": g}, {"local": explainer}, data.X_test,
                    {"accuracy of g": accuracy(g, data.X_test, data.y_test),
                     "MCC x 100, local": 100 * metrics.mcc(mean, data.truth_test)},
                    MADE_UP, f'`data_prep.make_synthetic("{name}", 0, rows=10_000)`')


STUDIES = {"start_here": ("00", start_here), "synthetic": ("01", of_synthetic), "tabular": ("02", of_tabular),
           "mnist": ("03", of_mnist), "privacy": ("04", of_privacy), "fairness": ("05", of_fairness),
           "faithfulness": ("06", of_faithfulness), "errata": ("07", of_errata)}


def write(thing, folder, study) -> None:
    """Save one thing with its card into ``folder``, which is made anew."""
    folder = Path(folder)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, model in thing.models.items():
        save_model(model, folder / f"{name}.safetensors")
    for kind, explainer in thing.explainers.items():
        explainer.save(folder / f"{kind}.bif")
        explainer.explain(thing.rows[:ROWS]).save(folder / f"{kind}_posterior.bif")
    write_text(card(thing, study), folder / "card.md")


def card(thing, study) -> str:
    """The card of one thing: data, licence, scores, settings, how to load."""
    names = {"local": "LocalBIF", "global": "GlobalBIF"}
    loads = [f"from bifkit import {', '.join(sorted(names[k] for k in thing.explainers))}, Posterior",
             "from experiments.models.saved import load_model", "",
             *(f'{name} = load_model("{name}.safetensors")' for name in thing.models)]
    if "local" in thing.explainers:
        first = min(ROWS, len(thing.rows))
        loads += ['rows = LocalBIF.load("local.bif").explain(X)',
                  f'stored_rows = Posterior.load("local_posterior.bif")  # the first {first} test rows']
    if "global" in thing.explainers:
        loads += ['posterior = GlobalBIF.load("global.bif").explain()',
                  'stored = Posterior.load("global_posterior.bif")  # the same']
    kinds = "; ".join(f"{kind}: preset `{e.preset}`, seed {e.seed}" for kind, e in thing.explainers.items())
    layers = {name: "-".join(map(str, [m[0].in_features, *(x.out_features for x in m if hasattr(x, "out_features"))]))
              for name, m in thing.models.items()}
    scores = [f"| {name} | {value:.4g} |" for name, value in thing.scores.items()]
    lines = [f"# {thing.name.replace('_', ' ')} ({study} study, notebook {STUDIES[study][0]})", "",
             f"- Networks: {', '.join(f'{name} {sizes}' for name, sizes in layers.items())}",
             f"- Explainers: {kinds}",
             f"- Data: {thing.data[0].rstrip('.')}",
             f"- Rows: {thing.how}",
             f"- Licence: of the data {thing.data[1]}; of these files MIT, as bifkit",
             *([f"- {thing.note}"] if thing.note else []),
             "- Trained to reproduce a paper: not for decisions about people.", "",
             "| score (seed 0) | value |", "|---|---|", *scores, "", "```python", *loads, "```"]
    return "\n".join(lines) + "\n"


def checksums(folder) -> str:
    """The lines of SHA256SUMS: ``sha256sum -c SHA256SUMS`` checks them.

    >>> checksums(paths.root() / "examples" / "breast_cancer").count("  ") >= 2
    True
    """
    files = sorted(f for f in Path(folder).rglob("*") if f.is_file() and f.name != "SHA256SUMS")
    return "".join(f"{hashlib.sha256(f.read_bytes()).hexdigest()}  {f.relative_to(folder).as_posix()}\n" for f in files)


def index(folder) -> str:
    """The page over all cards, with what they were made with."""
    made = provenance.provenance()
    versions = ", ".join(f"{k} {v}" for k, v in made["versions"].items() if k in ("torch", "numpy", "scikit-learn"))
    cards = [f.relative_to(folder).as_posix() for f in sorted(Path(folder).rglob("card.md"))]
    return "\n".join(["# Trained models, explainers and posteriors of seed 0", "",
                      f"Made by `make models`: commit {made['commit'][:12]}, Python {made['python']}, {versions}, "
                      f"{made['cpu']}. The same command there gives the same numbers; another kind of CPU rounds "
                      "otherwise. SHA256SUMS is of these very files: the order of names in a header changes with each "
                      "save.",
                      "", *(f"- [{name.removesuffix('/card.md')}]({name})" for name in cards), ""])


def main(argv=None) -> int:
    """The command line; 0 when everything was written, 1 when a data set was absent."""
    parser = argparse.ArgumentParser(prog="python -m experiments.take_away", description="models to take away")
    parser.add_argument("--only", help="numbers of notebooks, as in 01,03")
    parser.add_argument("--folder", default=str(paths.root() / "build" / "models"), help="build/models by default")
    args = parser.parse_args(argv)
    numbers = {number: study for study, (number, _) in STUDIES.items()}
    wanted = args.only.split(",") if args.only else list(numbers)
    if unknown := set(wanted) - set(numbers):
        print(f"there are models of notebooks {', '.join(numbers)}; got {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    folder, absent = Path(args.folder), []
    for study in (numbers[n] for n in wanted):
        try:
            started = time.monotonic()
            for thing in STUDIES[study][1]():
                write(thing, folder / study / thing.name, study)
                print(f"{study}/{thing.name}: {time.monotonic() - started:.0f} s", flush=True)
                started = time.monotonic()
        except DataUnavailable as why:
            absent.append(study)
            print(f"{study} is left out: {why}", file=sys.stderr)
    write_text(index(folder), folder / "README.md")
    write_text(checksums(folder), folder / "SHA256SUMS")
    size = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
    print(f"{len(list(folder.rglob('card.md')))} folders, {size / 1e6:.1f} MB, checksums in SHA256SUMS: "
          f"{folder.relative_to(paths.root()) if paths.root() in folder.parents else folder.name}")
    return 1 if absent else 0


if __name__ == "__main__":
    sys.exit(main())
