"""Several inputs and ids: g is asked what it was asked, gated where it should be, and left as it was."""

import threading
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from bifkit import GlobalBIF, LocalBIF, inputs, refine
from bifkit.inputs import several
from bifkit.storage import BadFile
from tests.attack import files as attack

BOTH = pytest.mark.parametrize("kind", [GlobalBIF, LocalBIF])
IDS = torch.randint(1, 30, (300, 4), generator=torch.Generator().manual_seed(100))
NUMERIC = torch.randn(300, 3, generator=torch.Generator().manual_seed(101))
MASK = torch.ones(300, 4, dtype=torch.bool)


class _G(nn.Module):
    """A first token of g's own, then a mean over those that the mask lets through; place 1 and number 0 weigh."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        torch.manual_seed(100)
        self.embed, self.out = nn.Embedding(30, 5), nn.Linear(5, 1)
        self.register_buffer("weight", torch.tensor([1.0, 0, 8, 0, 0]))
        self.to(dtype)

    def forward(self, numeric, ids, mask=None):
        first = torch.full_like(ids[:, :1], 29)
        e = self.embed(torch.cat([first, ids], 1)) * self.weight[:, None]
        if mask is not None:
            e = torch.cat([e[:, :1], e[:, 1:] * mask[:, :, None]], 1)
        value = self.out(e.mean(1))[:, 0] + 2 * numeric[:, 0]
        return torch.stack([-value, value], 1)


def _bif(kind, model=None, **kw):
    small = {"min_steps": 5, "epochs": 1, "batch_size": 100} | ({"hidden": 16} if kind is LocalBIF else {})
    return kind(_G() if model is None else model, **small | kw)


def _flat(model, X, **kw):
    layout = several.layout_of(X, model, **kw)
    adapter = several.Adapter(model, layout)
    return layout, adapter, adapter.flat(several.columns_of(layout, X)[0])


# what g is asked

@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("X", [(NUMERIC, IDS), (NUMERIC, IDS, MASK), (NUMERIC.numpy(), IDS.int().numpy()),
                               {"ids": IDS, "numeric": NUMERIC.double()},
                               {"ids": IDS, "mask": MASK, "numeric": NUMERIC}])
def test_a_flat_row_gives_the_answer_of_its_inputs(X, dtype):
    g = _G(dtype).eval()
    layout, adapter, flat = _flat(g, X, embedding="embed")
    parts = list(X.values() if isinstance(X, dict) else X)
    parts = [torch.as_tensor(p) for p in parts]
    parts = [p.to(dtype) if p.is_floating_point() else p for p in parts]
    expected = g(**dict(zip(X, parts, strict=True))) if isinstance(X, dict) else g(*parts)
    assert torch.allclose(adapter(flat), expected, rtol=1e-2 if dtype is torch.bfloat16 else 1e-5)
    assert layout.width == 3 + 4 * 5 and len(layout.names) == 7 and flat.shape[1] > layout.width


def test_a_place_that_fades_is_the_vector_that_fades():
    """Halving the values of one place is halving its vector in a model written without a hook."""
    g = _G().eval()
    layout, adapter, flat = _flat(g, (NUMERIC, IDS), embedding=g.embed)
    assert layout.names == ["numeric[0]", "numeric[1]", "numeric[2]", "ids[0]", "ids[1]", "ids[2]", "ids[3]"]
    of_column = layout.feature_of_column()
    with torch.no_grad():
        for place in range(4):
            faded = flat.clone()
            faded[:, np.flatnonzero(of_column == 3 + place)] *= 0.5
            half = torch.ones(5)
            half[1 + place] = 0.5
            e = g.embed(torch.cat([torch.full_like(IDS[:, :1], 29), IDS], 1)) * (g.weight * half)[:, None]
            value = g.out(e.mean(1))[:, 0] + 2 * NUMERIC[:, 0]
            assert torch.allclose(adapter(faded)[:, 1], value, atol=1e-6)


def test_g_may_take_one_tuple_or_one_dict():
    class One(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = _G()

        def forward(self, batch):
            return self.inner(**batch) if isinstance(batch, dict) else self.inner(*batch)

    for X in ((NUMERIC, IDS), {"numeric": NUMERIC, "ids": IDS}):
        _, adapter, flat = _flat(One().eval(), X, embedding="inner.embed")
        assert torch.allclose(adapter(flat), _G().eval()(NUMERIC, IDS), atol=1e-6)


def test_columns_that_are_alike_are_told_apart():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Embedding(3, 2), nn.Embedding(3, 2)

        def forward(self, ids):
            return self.a(ids[:, 0]) + self.b(ids[:, 1]) + self.a(ids[:, 2])

    alike = (torch.arange(90) % 3)[:, None].expand(-1, 3)
    calls = several.layout_of(alike, Two(), ["a", "b"]).calls
    assert [call.columns for call in calls] == [[0], [1], [2]] and [call.layer for call in calls] == [0, 1, 0]


@BOTH
def test_a_scripted_g_of_two_inputs(kind):
    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(5, 2)

        def forward(self, a, b):
            return self.out(torch.cat([a, b], 1))

    g, X = Sum(), (NUMERIC, torch.flip(NUMERIC[:, :2], [0]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        traced = torch.jit.trace(g, X)
    expected = _bif(kind, g, likelihood="categorical").fit(X).explain(X).alpha
    assert np.allclose(_bif(kind, traced, likelihood="categorical").fit(X).explain(X).alpha, expected, atol=1e-5)


# g is left as it was

@BOTH
def test_no_hook_stays(kind):
    class Fails(_G):
        calls = 0

        def forward(self, numeric, ids):
            Fails.calls += 1
            if Fails.calls == 20:
                raise RuntimeError("lost")
            return super().forward(numeric, ids)

    g = Fails()
    with pytest.raises(RuntimeError, match="lost"):
        _bif(kind, g, embedding="embed", min_steps=50).fit((NUMERIC, IDS))
    assert Fails.calls == 20 and not any(m._forward_hooks or m._forward_hooks_with_kwargs for m in g.modules())
    assert g.training and all(p.requires_grad for p in g.parameters())


def test_another_thread_that_asks_g_meanwhile_gets_g_s_own_answer():
    g, wrong, done = _G(), [], threading.Event()
    expected = g(NUMERIC, IDS).detach()

    def ask():
        while not done.is_set():
            with torch.no_grad():
                wrong.append(float((g(NUMERIC, IDS) - expected).abs().max()) > 1e-5)

    other = threading.Thread(target=ask)
    other.start()
    fits = [threading.Thread(target=lambda: found.append(_bif(GlobalBIF, g, embedding="embed", min_steps=40).fit(
        (NUMERIC, IDS)).explain().alpha)) for _ in range(2)]
    found: list = []
    for thread in fits:
        thread.start()
    for thread in fits:
        thread.join()
    done.set()
    other.join()
    assert len(wrong) > 1 and not any(wrong) and np.array_equal(*found)  # two fits at once: one waits


# explaining, scoring, saving

@pytest.mark.parametrize("fill", ["zero", "mean", "marginal"])
def test_each_row_s_own_word_is_found(fill):
    """A text is of class 1 if the word 7 stands in it: its place, another one in every row, has the importance."""
    class Text(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(20, 3)
            self.embed.weight.data[:, 0] = 0.0
            self.embed.weight.data[7, 0] = 1.0

        def forward(self, ids, mask):
            value = 12 * (self.embed(ids)[:, :, 0] * mask).amax(1) - 6
            return torch.stack([-value, value], 1)

    torch.manual_seed(100)
    ids, place = torch.randint(8, 20, (600, 6)), torch.randint(6, (600,))
    ids[torch.arange(300), place[:300]] = 7
    mask = torch.ones(600, 6, dtype=torch.int64)
    fitted = _bif(LocalBIF, Text(), embedding="embed", fill=fill, min_steps=250, hidden=32).fit((ids, mask))
    rows = fitted.explain((ids[:300], mask[:300]))
    assert (rows.mean.argmax(1) == place[:300].numpy()).mean() > 0.9
    assert rows.feature_names == [f"ids[{i}]" for i in range(6)]


@BOTH
def test_they_come_back_from_a_file(kind, tmp_path):
    frame, y = pd.DataFrame(NUMERIC.numpy(), columns=list("abc"), index=range(7, 307)), NUMERIC[:, 0] > 0
    X = {"numeric": frame, "ids": IDS}
    fitted = _bif(kind, embedding="embed", groups={"words": ["ids"]}).fit(X, y)
    assert fitted.group_names_ == ["words", "numeric[a]", "numeric[b]", "numeric[c]"]
    assert fitted.feature_importances_.shape == (7,) and fitted.score(X, y) == fitted.score_ > 0.5
    fitted.save(tmp_path / "e.bif")
    back = kind.load(tmp_path / "e.bif", fitted.model)
    a, b = fitted.explain(X), back.explain(X)
    assert np.array_equal(a.alpha, b.alpha) and a.feature_names == b.feature_names
    assert np.array_equal(back.fit(X, y).explain(X).alpha, a.alpha) and back.score(X, y) == fitted.score_
    if kind is LocalBIF:
        assert a.index.tolist() == list(range(7, 307))
        turned = X | {"numeric": X["numeric"][["c", "a", "b"]]}
        assert np.array_equal(fitted.explain(turned).alpha, a.alpha)  # a frame is put in the order of fit
        with pytest.raises(ValueError, match="load the explainer with"):
            kind.load(tmp_path / "e.bif").explain(X)
        words, numbers = (fitted.attribute(X)[name].numpy() for name in ("ids", "numeric"))
        assert np.allclose(numbers, a.mean[:, 1:]) and np.allclose(words, a.mean[:, :1].repeat(4, 1))  # the group's
        assert refine(fitted, X, X, steps=2).mean.shape == (300, 4)
        stream = DataLoader([{"numeric": n, "ids": i} for n, i in zip(NUMERIC, IDS, strict=True)], batch_size=80)
        assert np.allclose(fitted.explain(stream).alpha, a.alpha, atol=1e-6)


@pytest.mark.parametrize("change", [
    {"kind": "list"}, {"kind": "single"}, {"as_one": 1}, {"layers": "embed"}, {"layers": ["embed", "embed"]},
    {"parts": []}, {"parts": 3}, {"calls": None}, {"calls": []}, {"more": 1}, None, [], {"part": {"shape": [10**9]}},
    {"part": {"shape": [-3]}}, {"part": {"shape": 3}}, {"part": {"dtype": "object"}}, {"part": {"columns": ["a"]}},
    {"part": {"name": "ids"}}, {"part": {"name": 3}}, {"call": {"layer": 1}}, {"call": {"length": 0}},
    {"call": {"length": 10**12}}, {"call": {"columns": [10**9]}}, {"call": {"columns": [True] * 5}},
    {"call": {"columns": [-1]}}, {"call": {"columns": []}}, {"call": {"rows_first": "no"}}])
def test_what_a_file_says_of_inputs_is_checked(change, tmp_path):
    _bif(LocalBIF, embedding="embed").fit((NUMERIC, IDS)).save(tmp_path / "e.bif")
    kind, meta, arrays = attack.content(tmp_path / "e.bif")
    found = meta["inputs"]
    if isinstance(change, dict) and "part" in change:
        found["parts"][0] |= change["part"]
    elif isinstance(change, dict) and "call" in change:
        found["calls"][0] |= change["call"]
    else:
        meta["inputs"] = found | change if isinstance(change, dict) else change
    (tmp_path / "e.bif").write_bytes(attack.signed(arrays, kind, attack.json.dumps(meta)))
    with pytest.raises(BadFile, match="lacks something a LocalBIF needs"):
        LocalBIF.load(tmp_path / "e.bif")


def test_groups_of_single_inputs():
    layout = several.layout_of({"image": torch.zeros(9, 2, 2), "numeric": NUMERIC[:9]},
                               nn.Identity(), feature_names={"numeric": ["age", "pay", "rent"]})
    found = layout.groups({"image": torch.tensor([[0, 0], [5, 5]]), "money": ["numeric[pay]", "numeric[rent]"]})
    groups, names = inputs.resolve_groups(found, layout.names)
    assert names == ["image[group 0]", "image[group 5]", "money", "numeric[age]"]
    assert groups.tolist() == [0, 0, 1, 1, 3, 2, 2]


# errors

EMBED = {"embedding": "embed"}


@pytest.mark.parametrize("X, kw, words", [
    ((NUMERIC, IDS), {}, "'ids' holds whole numbers .* give embedding='embed', if they are counts, give .* floats"),
    ((NUMERIC, IDS[:5]), EMBED, "as many rows: 'numeric' has 300, 'ids' has 5"),
    ({"numbers": NUMERIC, "ids": IDS}, EMBED, r"g takes \(numeric, ids, mask\), and X has 'numbers', 'ids'"),
    ({"numeric": NUMERIC, "ids": [1, 2]}, EMBED, "'ids' must be an array, a tensor or a frame; got list"),
    ((NUMERIC * np.nan, IDS), EMBED, "input 'numeric': X holds NaN"),
    ((NUMERIC, IDS + 40), EMBED, "g cannot take X .index out of range"),
    ((NUMERIC, IDS), {"embedding": "emb"}, "embedding='emb' is no layer of g: .*embedding layers of g: 'embed'"),
    ((NUMERIC, IDS), {"embedding": nn.Embedding(3, 3)}, "is no layer of g: give its name"),
    ((NUMERIC, IDS), {"embedding": "out"}, "'out' does not give one vector for each id"),
    ((NUMERIC, IDS), EMBED | {"feature_names": {"ids": ["a"]}}, "1 names for the 4 values of input 'ids'"),
    ((NUMERIC, IDS), EMBED | {"feature_names": {"words": []}}, "there is no input 'words'"),
    ((NUMERIC, IDS), EMBED | {"feature_names": ["a"]}, "feature_names must be 7 different names; got 1"),
])
def test_what_is_wrong_is_said(X, kw, words):
    with pytest.raises((ValueError, TypeError), match=words):
        _bif(GlobalBIF, **kw).fit(X)


@pytest.mark.parametrize("inside", [lambda ids: ids, lambda ids: ids.long()])
def test_integer_inputs_are_sent_to_the_embedding_layer(inside):
    class Ids(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(30, 2)

        def forward(self, ids):
            return self.words(inside(ids)).sum(1)

    with pytest.raises(ValueError, match="explained at the layer that embeds them: embedding='words'"):
        GlobalBIF(Ids()).fit(IDS)


def test_batches_that_are_no_inputs():
    triple = DataLoader(torch.utils.data.TensorDataset(NUMERIC, IDS, NUMERIC[:, 0]), batch_size=50)
    with pytest.raises(TypeError, match=r"x is a tuple or a dict of them, \(\(a, b\), y\); got a list of 3"):
        _bif(GlobalBIF, embedding="embed").fit(triple)
    ragged = DataLoader([(NUMERIC[0], torch.ones(n, dtype=torch.int64)) for n in (4, 4, 5, 5)], batch_size=2,
                        collate_fn=lambda rows: [[torch.stack(part) for part in zip(*rows, strict=True)]])
    with pytest.raises(ValueError, match="batch 2 of the DataLoader: input 'ids': .*padded to one length"):
        _bif(GlobalBIF, embedding="embed").fit(ragged)


def test_ids_may_go_without_an_importance():
    found = _bif(GlobalBIF, embedding=[]).fit((NUMERIC, IDS)).explain()
    assert found.feature_names == ["numeric[0]", "numeric[1]", "numeric[2]"]
    with pytest.warns(UserWarning, match="'lengths' holds whole numbers .* they have no importance"):
        class Long(_G):
            def forward(self, numeric, ids, lengths):
                return super().forward(numeric, ids) * lengths[:, None].sqrt()

        _bif(GlobalBIF, Long(), embedding="embed").fit((NUMERIC, IDS, torch.arange(300) % 5 + 1))
