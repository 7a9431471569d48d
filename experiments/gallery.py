"""One example of each figure of ``bifkit.plots``, for docs/plots.md: ``python -m experiments.gallery [folder]``.

A small network on the breast-cancer table that scikit-learn ships, and one on its images of digits; a minute in all.
"""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
import pandas as pd  # noqa: E402
import torch  # noqa: E402
from sklearn import datasets  # noqa: E402
from torch import nn  # noqa: E402

import bifkit  # noqa: E402
from bifkit import GlobalBIF, LocalBIF, plots  # noqa: E402
from data_prep.seeding import seed_all  # noqa: E402
from experiments.runner import paths  # noqa: E402

SEED = 100
KINDS = ("mean", "error", "worst")


def network(x, y, steps=200) -> nn.Module:
    """A trained network of one hidden layer."""
    g = nn.Sequential(nn.Linear(x.shape[1], 32), nn.ReLU(), nn.Linear(32, int(y.max()) + 1))
    optimiser = torch.optim.AdamW(g.parameters(), lr=0.01, weight_decay=0.1)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(g(x), y).backward()
        optimiser.step()
    return g.eval()


def cancer():
    """{name: function that draws} on a table: which features of cells tell malignant tumours?"""
    raw, y = datasets.load_breast_cancer(return_X_y=True, as_frame=True)
    X, malignant = ((raw - raw.mean()) / raw.std()).astype("float32"), torch.tensor(1 - y.to_numpy())
    g = network(torch.tensor(X.to_numpy()), malignant)
    overall, local = GlobalBIF(g, seed=SEED).fit(X), LocalBIF(g, seed=SEED).fit(X)
    posterior, some = overall.explain(), X.iloc[:200]
    rows = local.explain(some)
    way, ways = posterior.direction(overall, X), rows.direction(local, some, reference=X)
    measures = {}
    for name in raw.columns:
        words = name.split()
        measures.setdefault(" ".join(w for w in words if w not in KINDS), []).append(name)
    other = GlobalBIF(network(torch.tensor(X.to_numpy()), malignant, steps=25), seed=SEED).fit(X).explain()
    pairs = [[GlobalBIF(network(torch.tensor(part.to_numpy()), malignant[part.index], steps), min_steps=300, epochs=1,
                        seed=SEED + i).fit(part).explain() for i, part in enumerate(_resampled(X, 4))]
             for steps in (200, 10)]
    first = rows.to_global().top(1)[0]
    return {
        "importances": lambda: plots.importances(posterior, direction=way, top=12),
        "probability_top": lambda: plots.probability_top(posterior, top=10),
        "ridge": lambda: plots.ridge(posterior, top=8), "bars": lambda: plots.bars(posterior, top=15),
        "groups": lambda: plots.groups(posterior, measures, top=8),
        "heatmap": lambda: plots.heatmap(rows, rows=30, top=12, sort="similar", direction=ways),
        "row": lambda: plots.row(rows, raw, 3, direction=ways, top=8),
        "dependence": lambda: plots.dependence(rows, raw.iloc[:200], first, direction=ways),
        "compare": lambda: plots.compare({"200 steps": posterior, "25 steps": other, "rows": rows}, top=8),
        "differences": lambda: plots.differences(bifkit.compare(*pairs), top=8),
        "elbo_curve": lambda: plots.elbo_curve(local)}


def _resampled(X, n) -> list[pd.DataFrame]:
    """``n`` random halves of the rows."""
    return [X.sample(frac=0.5, random_state=SEED + i) for i in range(n)]


def digits():
    """{name: function that draws} on images: where does a network look?"""
    data = datasets.load_digits()
    x = torch.tensor(data.images, dtype=torch.float32).flatten(1) / 16
    g = network(x, torch.tensor(data.target))
    rows = LocalBIF(g, preset="few", min_steps=600, epochs=1, seed=SEED).fit(x, data.target).explain(x[:5])
    return {"overlay": lambda: plots.overlay(rows[3], data.images[3])}


def main(folder=None) -> list[Path]:
    """Draw them all into ``folder``, docs/pictures by default."""
    folder = Path(folder or paths.root() / "docs" / "pictures")
    folder.mkdir(parents=True, exist_ok=True)
    seed_all("gallery", SEED)
    files = []
    for name, draw in {**cancer(), **digits()}.items():
        drawn = draw()
        files.append(folder / f"{name}.png")
        getattr(drawn, "figure", drawn).savefig(files[-1], dpi=80, facecolor="white", metadata={"Software": None})
        plt.close("all")
    return files


if __name__ == "__main__":
    for file in main(*sys.argv[1:]):
        print(file.name, f"{file.stat().st_size / 1000:.0f} kB")
