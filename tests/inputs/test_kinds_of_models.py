"""Every row of the table "Kinds of models and data" in docs/using.md: its line of code runs, and finds what is planted.

A kind is a function here under the row's name. It gives the names that its line uses, and the features that g looks
at; the line itself is read from the table. Fits are short: the planted truth is wide.
"""

import warnings
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import nbformat
import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bifkit

USING = Path(__file__).parents[2] / "docs" / "using.md"
KINDS = {}


def table():
    """The rows of the table, {kind: line of code}."""
    section = USING.read_text(encoding="utf-8").partition("\n## Kinds of models and data\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|\n ").split(" | ")] for line in section.splitlines()
            if line.startswith("| ")][1:]
    return {kind: line.strip("`") for kind, line in rows}


def kind(name):
    """A function that makes one kind of model and data, as the table calls it."""
    def add(function):
        KINDS[name] = function
        return function
    return add


def test_the_table_and_the_tests_name_the_same_kinds():
    assert sorted(table()) == sorted(KINDS)


@pytest.mark.parametrize("name", KINDS)
def test_the_line_of_code_finds_what_g_looks_at(name):
    names, planted = KINDS[name]()
    short = {"GlobalBIF": partial(bifkit.GlobalBIF, min_steps=120, epochs=1),
             "LocalBIF": partial(bifkit.LocalBIF, min_steps=120, epochs=1, hidden=32)}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(converged|constant|no better than)")
        answer = eval(table()[name], {"bifkit": bifkit, "torch": torch, **short} | names)
    posteriors, planted = (answer, planted) if isinstance(answer, dict) else ({None: answer}, {None: planted})
    for of_class, truth in planted.items():
        posterior = posteriors[of_class]
        share = (posterior.to_global() if posterior.is_local else posterior).share
        found = dict(zip(posterior.feature_names, share, strict=True))
        least, most = min(found.pop(feature) for feature in truth), max(found.values())
        assert least > 2 * most, (of_class, least, most)


# what the kinds have in common

def _normal(*shape, seed=100):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class _Model(nn.Module):
    """A g of one function, with a weight so that it has a type."""

    def __init__(self, function, *layers):
        super().__init__()
        self.function, self.layers = function, nn.ModuleList(layers)
        self.weight = nn.Parameter(torch.full((), 3.0))

    def forward(self, x):
        return self.function(self, x)


def _logits(value):
    """Two classes' logits from one value (B,)."""
    return torch.stack([-value, value], 1)


def _mlp():
    """An untrained network whose first layer reads the features 0 and 1 of five."""
    torch.manual_seed(100)
    g = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 2))
    with torch.no_grad():
        g[0].weight[:, 2:] = 0
        g[0].weight[:, :2] *= 4
        g[2].weight *= 6
        g[2].weight[1] = -g[2].weight[0]  # two classes rise against each other
    return g


FIRST_TWO = {"x0", "x1"}
X = _normal(400, 5)


@kind("MLP, a table")
def _table():
    return {"g": _mlp(), "X": X.numpy(), "y": _mlp()(X).argmax(1).numpy()}, FIRST_TWO


@kind("one posterior per row")
def _rows():
    return {"g": _mlp(), "X": X, "X_new": X[:50]}, FIRST_TWO


@kind("one logit")
def _one_logit():
    return {"g": _Model(lambda m, x: m.weight * (x[:, 0] + x[:, 1])), "X": X, "y": X[:, 0] + X[:, 1] > 0}, FIRST_TWO


@kind("regression, one value or several")
def _values():
    return {"g": _Model(lambda m, x: x[:, :2] * m.weight), "X": X, "y": (X[:, :2] * 3).numpy()}, FIRST_TWO


@kind("three quantiles")
def _quantiles():
    return {"g": _Model(lambda m, x: (m.weight * x[:, :2].sum(1))[:, None] + torch.tensor([-1.0, 0, 1])), "X": X}, \
        FIRST_TWO


@kind("multi-label: independent sigmoids")
def _labels():
    return {"g": _Model(lambda m, x: 3 * m.weight * x[:, :2]), "X": X, "y": (X[:, :2] > 0).int()}, FIRST_TWO


@kind("every class on its own")
def _each_class():
    g = _Model(lambda m, x: torch.stack([20 * x[:, 0], x[:, 1], -x[:, 1]], 1) * m.weight)
    return {"g": g, "X": X, "y": g(X).argmax(1)}, {0: {"x0"}, 1: FIRST_TWO, 2: FIRST_TWO}  # class 0 where x0 > 0


@kind("g returns a dict, or an object with `.logits`")
def _dict():
    return {"g": _Model(lambda m, x: {"loss": None, "logits": _logits(m.weight * x[:, 0])}), "X": X}, {"x0"}


@kind("g returns a tuple")
def _tuple():
    return {"g": _Model(lambda m, x: (None, _logits(m.weight * x[:, 0]))), "X": X}, {"x0"}


@kind("g ends in a sigmoid")
def _sigmoid():
    return {"g": _Model(lambda m, x: (m.weight * x[:, 0]).sigmoid()), "X": X}, {"x0"}


def _images(channels):
    """A convolution of images whose upper left corner decides."""
    convolution = nn.Conv2d(channels, 1, 3, padding=1, bias=False)
    nn.init.constant_(convolution.weight, 0.3)
    return {"g": _Model(lambda m, x: _logits(m.weight * m.layers[0](x)[:, 0, 1:3, 1:3].mean((1, 2))), convolution),
            "X": _normal(300, channels, 8, 8)}


@kind("CNN, one channel, patches")
def _grey():
    corners = torch.arange(64).view(8, 8) // 32 * 2 + torch.arange(64).view(8, 8) % 8 // 4
    return _images(1) | {"patches": corners}, {"group 0"}


@kind("CNN, three channels, superpixels")
def _colour():
    segments = np.arange(64).reshape(8, 8) // 32 * 2 + np.arange(64).reshape(8, 8) % 8 // 4
    return _images(3) | {"segments": segments, "X_new": _normal(30, 3, 8, 8, seed=101)}, {"group 0"}


@kind("GRU on a series (T, C)")
def _series():
    torch.manual_seed(100)
    gru = nn.GRU(2, 8, batch_first=True)
    last = torch.tensor([0.0, 0, 0, 0, 1, 1])[:, None]  # g is blind before step 4
    return {"g": _Model(lambda m, x: _logits(4 * m.weight * m.layers[0](x * last)[0][:, -1, 0]), gru),
            "X": _normal(300, 6, 2)}, {"group 2"}


@kind("a model in float64")
def _float64():
    return {"g": _mlp().double(), "X": X.numpy().astype(np.float64)}, FIRST_TWO


@kind("a model in bfloat16")
def _bfloat16():
    return {"g": _mlp().bfloat16(), "X": X}, FIRST_TWO


@kind("torch.jit")
def _jit():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return {"scripted": torch.jit.trace(_mlp(), X[:2]), "X": X}, FIRST_TWO


@kind("torch.compile")
def _compile():
    return {"compiled": torch.compile(_mlp(), backend="eager"), "X": X}, FIRST_TWO


@kind("DataLoader")
def _loader():
    return {"g": _mlp(), "loader": DataLoader(TensorDataset(X, _mlp()(X).argmax(1)), batch_size=100)}, FIRST_TWO


# ids and several inputs; the models are of the kinds that people ask about in captum's issues 282, 448, 836 and 928

IDS = torch.randint(1, 40, (400, 8), generator=torch.Generator().manual_seed(100))


class _Text(nn.Module):
    """A text classifier: embedded tokens, of which the places 2 and 5 weigh."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(100)
        self.encoder = nn.ModuleDict({"embed": nn.Embedding(40, 6, padding_idx=0)})
        self.out = nn.Linear(6, 1)

    def forward(self, ids):
        e = self.encoder["embed"](ids)
        return _logits(4 * self.out(e[:, 2] + e[:, 5])[:, 0])


@kind("tokens, an embedding layer")
def _tokens():
    return {"g": _Text(), "tokens": IDS}, {"x2", "x5"}


@kind("transformer: tokens and a mask")
def _transformer():
    class Transformer(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(100)
            self.embed, self.place = nn.Embedding(40, 8), nn.Embedding(8, 8)
            layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
            self.encoder, self.out = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False), nn.Linear(8, 1)

        def forward(self, input_ids, attention_mask):
            h = 2 * self.embed(input_ids) + self.place(torch.arange(8))
            h = self.encoder(h, src_key_padding_mask=attention_mask == 0)
            return SimpleNamespace(logits=_logits(4 * self.out(h[:, 1])[:, 0]))

    mask = (torch.arange(8) < torch.randint(4, 9, (400, 1), generator=torch.Generator().manual_seed(101))).long()
    return {"g": Transformer(), "batch": {"input_ids": IDS * mask, "attention_mask": mask}}, {"input_ids[1]"}


NUMERIC, CATEGORIES = X[:, :3], IDS[:, :3]


class _Mixed(nn.Module):
    """Numbers and columns of ids, each with an embedding of its own: numeric 1 and the third column weigh."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(100)
        self.all_embeddings = nn.ModuleList(nn.Embedding(40, size) for size in (2, 3, 4))
        self.norm, self.out = nn.BatchNorm1d(3), nn.Linear(4, 1)

    def forward(self, numeric, ids):
        vectors = [embed(ids[:, i]) for i, embed in enumerate(self.all_embeddings)]
        return _logits(3 * self.norm(numeric)[:, 1] + 3 * self.out(vectors[2])[:, 0] + 0 * vectors[0].sum(1))


@kind("numbers and columns of ids: two inputs")
def _two_inputs():
    return {"g": _Mixed(), "X_numeric": NUMERIC, "X_ids": CATEGORIES}, {"numeric[1]", "ids[2]"}


@kind("the same as a dict, a frame in it")
def _frame():
    frame = pd.DataFrame(NUMERIC.numpy(), columns=["age", "pay", "rent"])
    return {"g": _Mixed(), "frame": frame, "X_ids": CATEGORIES.numpy()}, {"numeric[pay]", "ids[2]"}


@kind("the same from a DataLoader of dicts")
def _dicts():
    rows = [{"numeric": a, "ids": b, "y": int(a[1] > 0)} for a, b in zip(NUMERIC, CATEGORIES, strict=True)]
    return {"g": _Mixed(), "loader": DataLoader(rows, batch_size=100)}, {"numeric[1]", "ids[2]"}


@kind("one table, ids in some columns")
def _ids_in_a_table():
    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.mixed = _Mixed()

        def forward(self, x):
            return self.mixed(x[:, :3], x[:, 3:].long())

    return {"g": Table(), "X": torch.cat([NUMERIC, CATEGORIES], 1)}, {"x1", "x5"}


@kind("TabTransformer: ids numbered through all columns")
def _tab_transformer():
    class Tab(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(100)
            self.register_buffer("offsets", torch.tensor([0, 40, 80]))
            self.embed, self.attend = nn.Embedding(120, 8), nn.MultiheadAttention(8, 2, batch_first=True)
            self.out = nn.Linear(8, 1)

        def forward(self, x_cat, x_cont):
            e = self.embed(x_cat + self.offsets)
            h = e + 0.2 * self.attend(e, e, e)[0]
            return _logits(3 * self.out(h[:, 2])[:, 0] + 3 * x_cont[:, 0])

    return {"g": Tab(), "x_cat": CATEGORIES, "x_cont": NUMERIC}, {"x_cat[2]", "x_cont[0]"}


@kind("LSTM on tokens, beside numbers of another shape")
def _two_shapes():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(100)
            self.embed, self.lstm, self.out = nn.Embedding(40, 6), nn.LSTM(6, 6), nn.Linear(6, 1)

        def forward(self, tokens, image):
            h = self.lstm(self.embed(tokens.T)[6:])[0][-1]  # places first; g reads the last two
            return _logits(12 * self.out(h)[:, 0] + 3 * image[:, 0, 1])

    return {"g": Both(), "tokens": IDS, "image": _normal(400, 2, 2)}, {"end", "image[0,1]"}


def test_the_notebook_shows_the_same_table():
    cells = nbformat.read(USING.parents[1] / "notebooks" / "06_your_own_model.ipynb", as_version=4).cells
    shown = next(c.source for c in cells if c.source.startswith("## Kinds of models and data"))
    for name, line in table().items():
        assert f"| {name} | `{line}` |" in shown, name
