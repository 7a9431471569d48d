"""Several inputs, and ids behind an embedding layer, as one flat row: then everything else is as for a table.

A flat row holds first what is gated (the values of float inputs, and in place of ids the vectors that g's embedding
layer gives them), then what g gets as it is (the ids themselves, masks, lengths). The values of a vector are one
feature: they share one importance. A ``Layout`` says what lies where; an ``Adapter`` is g as a module of flat rows,
which puts the gated vectors in at the embedding layer by a forward hook that is there during the call only.
"""

import inspect
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bifkit.inputs import checks
from bifkit.inputs.groups import resolve_groups
from bifkit.inputs.models import chosen, like

EXACT = 2**24  # whole numbers up to here are exact in float32
PROBE = 64  # rows that are shown to g to see what its embedding layers get


def is_several(X: Any) -> bool:
    """Whether X is a dict or a tuple of inputs."""
    return isinstance(X, Mapping) or isinstance(X, tuple) and bool(X) and all(hasattr(part, "shape") for part in X)


@dataclass
class Part:
    """One input: its name, the shape of a row, its type ("float", "int64", "int32", "bool"), the columns of a frame."""

    name: str
    shape: list[int]
    dtype: str
    columns: list[str] | None = None

    @property
    def size(self) -> int:
        """Number of values per row."""
        return math.prod(self.shape)

    def names(self, alone: bool) -> list[str]:
        """Return a name for each value: ids[3], numeric[age], image[0,5,7]."""
        inside = self.columns or [",".join(map(str, i)) for i in np.ndindex(*self.shape)]
        if alone:
            return self.columns or [f"x{i}" for i in range(self.size)]
        return [f"{self.name}[{i}]" for i in inside] if self.shape else [self.name]


@dataclass
class Call:
    """One call of an embedding layer: which, whether rows come first in its ids, the vectors' length, the columns."""

    layer: int
    rows_first: bool
    length: int
    columns: list[int]  # the column that each id is read from; -1 where it is none: g's own, such as a first token


@dataclass
class Layout:
    """What lies where in a flat row; as plain numbers and texts it is part of an explainer's file.

    Parameters
    ----------
    kind : {"single", "tuple", "dict"}
        What X is.
    as_one : bool
        Whether g takes all inputs as one argument.
    parts : list of Part
        The inputs, in their order.
    layers : list of str
        Names of the embedding layers in g.
    calls : list of Call
        What they are asked, in this order, each time that g is.
    """

    kind: str
    as_one: bool
    parts: list[Part]
    layers: list[str]
    calls: list[Call]

    @classmethod
    def from_file(cls, found: dict) -> "Layout":
        """Return the layout that ``dataclasses.asdict`` gave, after ``bifkit.inputs.stored`` has checked it."""
        return cls(found["kind"], found["as_one"], [Part(**part) for part in found["parts"]], found["layers"],
                   [Call(**call) for call in found["calls"]])

    def to_file(self) -> dict:
        """Return it as lists, numbers and texts."""
        return asdict(self)

    @property
    def embedded(self) -> list[int]:
        """The columns that an embedding layer reads, each once, in their order."""
        return sorted({c for call in self.calls for c in call.columns if c >= 0})

    def _floats(self) -> np.ndarray:
        return np.repeat([part.dtype == "float" for part in self.parts], [part.size for part in self.parts])

    def _plain(self) -> np.ndarray:
        """Columns that are gated as they are."""
        plain = self._floats()
        plain[self.embedded] = False
        return np.flatnonzero(plain)

    @property
    def width(self) -> int:
        """How many values of a flat row are gated."""
        return len(self._plain()) + sum(call.length * sum(c >= 0 for c in call.columns) for call in self.calls)

    @property
    def features(self) -> np.ndarray:
        """The columns of X that have an importance."""
        return np.union1d(self._plain(), self.embedded).astype(int)

    @property
    def names(self) -> list[str]:
        """Their names."""
        every = [name for part in self.parts for name in part.names(self.kind == "single")]
        return [every[c] for c in self.features]

    def feature_of_column(self) -> np.ndarray:
        """Return the feature of each gated value of a flat row, (width,)."""
        columns = [self._plain()] + [np.repeat([c for c in call.columns if c >= 0], call.length) for call in self.calls]
        return np.searchsorted(self.features, np.concatenate(columns))

    def where(self) -> tuple[np.ndarray, np.ndarray]:
        """Return for each column of X its place in a flat row, and the columns that go through as they are."""
        plain, columns = self._plain(), np.arange(len(self._floats()))
        kept = np.setdiff1d(columns, plain)
        place = np.empty(len(columns), dtype=int)
        place[plain], place[kept] = np.arange(len(plain)), self.width + np.arange(len(kept))
        return place, kept

    def like_inputs(self, values: Tensor) -> Any:
        """Return values of the features, (N, F), as X is: a tuple, a dict or a tensor; 0 where it has no feature."""
        full = values.new_zeros(len(values), len(self._floats()))
        full[:, self.features] = values
        parts = {part.name: value.reshape(len(value), *part.shape) for part, value in zip(
            self.parts, full.split([part.size for part in self.parts], 1), strict=True)}
        return parts if self.kind == "dict" else tuple(parts.values()) if self.kind == "tuple" else parts["x"]

    def groups(self, groups: Any) -> Any:
        """Return ``groups`` with an input's name in place of all its features, and an input's label map, resolved."""
        if not isinstance(groups, dict) or self.kind == "single":
            return groups
        ends, names, own = np.cumsum([0] + [part.size for part in self.parts]), self.names, {}
        for part, start, end in zip(self.parts, ends, ends[1:], strict=False):
            own[part.name] = [n for n, c in zip(names, self.features, strict=True) if start <= c < end]
        found: dict = {}
        for name, members in groups.items():
            if name in own and getattr(members, "ndim", False):
                part = next(part for part in self.parts if part.name == name)
                index, inside = resolve_groups(np.asarray(members), own[name], tuple(part.shape))
                found |= {f"{name}[{g}]": [own[name][i] for i in np.flatnonzero(index == k)]
                          for k, g in enumerate(inside)}
            else:
                members = [members] if isinstance(members, str) or not np.iterable(members) else members
                found[name] = [m for member in members
                               for m in (own.get(member, [member]) if isinstance(member, str) else [member])]
        return found


def layout_of(X: Any, model: nn.Module, embedding: Any = None, feature_names: Any = None) -> Layout | None:
    """Look at X, and at what g's embedding layers get of it; None where X is one input without them.

    Parameters
    ----------
    X : tuple or dict of arrays, or one array
        The inputs; of a DataLoader, those of its first batch.
    model : nn.Module
        The frozen g.
    embedding : str, nn.Module or a list of them, optional
        The layers that embed ids, by name or themselves; of a container all embedding layers inside.
    feature_names : dict of str to list of str, optional
        Names of the values of single inputs.
    """
    if not is_several(X) and embedding is None:
        return None
    layers = _layers(model, embedding)
    values, kind = _values(X, model)
    names = feature_names if isinstance(feature_names, Mapping) else {}
    if set(names) - set(values):
        raise ValueError(f"feature_names: there is no input {sorted(set(names) - set(values))[0]!r}; inputs are "
                         f"{', '.join(map(repr, values))}")
    parts = []
    for name, value in values.items():
        frame = [str(c) for c in value.columns] if hasattr(value, "columns") else None
        columns = [str(n) for n in names[name]] if name in names else frame
        part = Part(name, [int(n) for n in value.shape[1:]], _dtype(value), columns)
        if columns is not None and len(columns) != part.size:
            raise ValueError(f"feature_names has {len(columns)} names for the {part.size} values of input {name!r}")
        parts.append(part)
    layout = Layout(kind, _as_one(model, values, kind), parts, list(layers), [])
    x = columns_of(layout, X, PROBE * 16)[0]
    if layers:
        layout.calls = _asked(layout, model, x)
    _check_whole_numbers(layout, model, x, embedding)
    return layout


def _values(X: Any, model: nn.Module) -> tuple[dict[str, Any], str]:
    """The inputs by name, and what X is; a tuple's are named as the arguments of g."""
    if not is_several(X):
        return {"x": X if hasattr(X, "shape") else np.asarray(X)}, "single"
    if isinstance(X, Mapping):
        found, kind = {str(name): value for name, value in X.items()}, "dict"
    else:
        names = [f"input {i}" for i in range(len(X))]
        try:
            arguments = list(inspect.signature(model.forward).bind(*X).arguments)
            names = arguments if len(arguments) == len(X) else names
        except (TypeError, ValueError):  # g takes one tuple, or does not say what it takes
            pass
        found, kind = dict(zip(names, X, strict=True)), "tuple"
    _count(found)
    return found, kind


def _count(values: dict[str, Any]) -> None:
    """Every input has as many rows."""
    for name, value in values.items():
        if not hasattr(value, "shape") or not len(value.shape):
            raise TypeError(f"input {name!r} must be an array, a tensor or a frame; got {type(value).__name__}")
    if len({int(value.shape[0]) for value in values.values()}) != 1:
        raise ValueError("all inputs must have as many rows: " + (", ".join(
            f"{name!r} has {value.shape[0]}" for name, value in values.items()) or "there is none"))


def _as_one(model: nn.Module, values: dict, kind: str) -> bool:
    """Whether g takes all inputs as one argument: where they do not fit its own."""
    if kind == "single":
        return False
    try:
        signature = inspect.signature(model.forward)
    except (TypeError, ValueError):
        return False
    try:
        signature.bind(**values) if kind == "dict" else signature.bind(*values.values())
        return False
    except TypeError as error:
        if len(signature.parameters) == 1 and not set(signature.parameters) & set(values):
            return True
        raise ValueError(f"g takes ({', '.join(signature.parameters)}), and X has {', '.join(map(repr, values))}: "
                         f"{error}") from None


def _dtype(value: Any) -> str:
    """"float", or the type of whole numbers that g is to get."""
    name = str(value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype).removeprefix("torch.")
    return name if name in ("bool", "int32") else "int64" if "int" in name else "float"


def _layers(model: nn.Module, embedding: Any) -> dict[str, nn.Module]:
    """The embedding layers by their names in g."""
    found: dict[str, nn.Module] = {}
    names = {id(module): name for name, module in model.named_modules()}
    for one in embedding if isinstance(embedding, list | tuple) else [] if embedding is None else [embedding]:
        try:
            layer = model.get_submodule(one) if isinstance(one, str) else one
        except AttributeError:
            layer = None
        if not isinstance(layer, nn.Module) or id(layer) not in names:
            known = ", ".join(map(repr, embedding_names(model))) or "none"
            raise ValueError(f"embedding={one!r:.60} is no layer of g: give its name, such as 'encoder.embed' "
                             f"(embedding layers of g: {known})")
        container = type(layer) in (nn.ModuleList, nn.ModuleDict, nn.Sequential)
        inside = [m for m in layer.modules() if isinstance(m, nn.Embedding)] if container else [layer]
        found |= {names[id(m)]: m for m in inside}
    return found


def embedding_names(model: nn.Module) -> list[str]:
    """Return the names of g's embedding layers."""
    return [name for name, m in model.named_modules() if isinstance(m, nn.Embedding | nn.EmbeddingBag)]


def columns_of(layout: Layout, X: Any, rows: int | None = None, at_least: int = 1) -> tuple[Tensor, Any]:
    """Return (the values of all inputs side by side (N, K), index of a frame or None), checked.

    Parameters
    ----------
    layout : Layout
        Of the inputs.
    X : array, or tuple or dict of arrays
        As in fit.
    rows : int, optional
        How many of the first rows; all by default.
    at_least : int, default 1
        Number of rows that are needed.
    """
    values = dict(X) if isinstance(X, Mapping) else dict(zip([p.name for p in layout.parts], X, strict=False)) \
        if is_several(X) else {"x": X if hasattr(X, "shape") else np.asarray(X)}
    kind = "dict" if isinstance(X, Mapping) else "tuple" if is_several(X) else "single"
    if kind != layout.kind or set(values) != {part.name for part in layout.parts} or kind == "tuple" and \
            len(X) != len(values):
        wanted, got = ({"single": "one array"}.get(k, f"a {k} of {', '.join(map(repr, names))}")
                       for k, names in ((layout.kind, [part.name for part in layout.parts]), (kind, values)))
        raise ValueError(f"X must be {wanted}, as in fit; got {got}")
    _count(values)
    found, index = [], None
    for part in layout.parts:
        whole: Any = values[part.name]
        value: Any = whole.iloc[:rows] if hasattr(whole, "columns") else whole[:rows]
        try:
            if hasattr(value, "columns"):
                index = value.index if index is None else index
                given = [str(c) for c in value.columns]
                if part.columns is not None and set(given) == set(part.columns):
                    value = value.iloc[:, [given.index(c) for c in part.columns]]  # in the order of fit
                elif part.columns is not None:
                    raise ValueError(f"its columns are not those of fit, {part.columns[:5]}...")
            if [int(n) for n in value.shape[1:]] != part.shape:
                raise ValueError(f"a row has the shape {tuple(value.shape[1:])}, expected {tuple(part.shape)} (tokens: "
                                 "padded to one length)")
            x = checks.check_X(value.reshape(-1, 1) if not part.shape else value, at_least=at_least, features=1)[0]
            if part.dtype != "float" and ((x != x.round()).any() or x.abs().max() > EXACT):
                raise ValueError(f"g takes whole numbers here, at most {EXACT}")
        except (TypeError, ValueError) as error:
            if layout.kind == "single":
                raise
            raise type(error)(f"input {part.name!r}: {error}") from None
        found.append(x)
    return torch.cat(found, 1), index


def _check_whole_numbers(layout: Layout, model: nn.Module, x: Tensor, embedding: Any) -> None:
    """An input of whole numbers that no named layer embeds has no importance: an error where nobody has said so."""
    if len(layout.features) < 2:
        why = "there is one feature: importance is relative, so at least two are needed" if len(layout.features) else \
            "no input is of floats, and g's embedding layers read none of the others"
        raise ValueError(f"there is nothing to explain: {why}. Name the layer that embeds ids by embedding= "
                         f"(embedding layers of g: {', '.join(map(repr, embedding_names(model))) or 'none'})")
    start, embedded = 0, set(layout.embedded)
    for part in layout.parts:
        columns = [c for c in range(start, start + part.size) if c not in embedded]
        start += part.size
        if part.dtype == "float" or not columns or bool(((x[:, columns] == 0) | (x[:, columns] == 1)).all()):
            continue  # zeros and ones are a mask
        what = f"the input {part.name!r} holds whole numbers that no layer of embedding= reads"
        if embedding is None:
            layers = embedding_names(model)
            raise ValueError(f"{what}: if they are ids, give embedding={layers[0] if layers else 'name of a layer'!r}, "
                             "if they are counts, give them as floats; with embedding=[] g gets them as they are, and "
                             "they have no importance")
        if embedding != []:
            checks.warn(f"{what}: g gets them as they are, and they have no importance")


@contextmanager
def hooked(layers: list[nn.Module], see: Callable[[int, list, Any], Any]) -> Iterator[None]:
    """Let ``see`` (the layer's number, what it was given, what it answers) replace answers, on this thread only."""
    owner, handles = threading.get_ident(), []

    def hook_of(number: int) -> Callable:
        def hook(module: nn.Module, given: tuple, named: dict, answer: Any) -> Any:
            return see(number, [*given, *named.values()], answer) if threading.get_ident() == owner else None
        return hook

    try:
        handles += [layer.register_forward_hook(hook_of(i), with_kwargs=True) for i, layer in enumerate(layers)]
        yield
    finally:
        for handle in handles:
            handle.remove()


class Adapter(nn.Module):
    """g as a module of flat rows.

    Parameters
    ----------
    model : nn.Module
        g.
    layout : Layout
        What lies where.
    output : str, int or function, optional
        The part of g's answer to explain.
    """

    def __init__(self, model: nn.Module, layout: Layout, output: Any = None) -> None:
        super().__init__()
        self.model, self.layout = chosen(model, output), layout
        self.layers = list(_layers(model, layout.layers).values())  # a list: they are g's already
        self.place, self.kept, self.plain = (torch.as_tensor(columns, device=like(model).device)
                                             for columns in (*layout.where(), layout._plain()))
        self.width = layout.width

    @property
    def rows_like(self) -> Tensor:
        """Flat rows are float32, whatever g works in."""
        return torch.zeros((), device=self.place.device)

    def forward(self, x: Tensor) -> Any:
        """Return g's answer for flat rows (B, width + kept)."""
        calls, vectors, number = self.layout.calls, x[:, len(self.plain):self.width], 0

        def put_in(layer: int, given: list, answer: Tensor) -> Tensor:
            nonlocal number, vectors
            if number == len(calls) or calls[number].layer != layer:
                raise ValueError("g asks its embedding layers in another order, or more often, than for other rows")
            call, number = calls[number], number + 1
            mine = [i for i, c in enumerate(call.columns) if c >= 0]
            block, vectors = vectors.split([call.length * len(mine), vectors.shape[1] - call.length * len(mine)], 1)
            block = block.reshape(len(x), len(mine), call.length).to(answer.dtype)
            if len(mine) < len(call.columns):
                old = _rows_first(answer.reshape(-1, call.length), len(x), call.rows_first)
                block = old.index_copy(1, torch.tensor(mine, device=x.device), block)
            return (block if call.rows_first else block.transpose(0, 1)).reshape(answer.shape)

        with hooked(self.layers, put_in):
            return self._ask(x[:, self.place])

    def _ask(self, columns: Tensor) -> Any:
        """g's answer for the values of all inputs side by side, (B, K)."""
        kind, values = like(self.model), {}
        for part, value in zip(self.layout.parts, columns.split([p.size for p in self.layout.parts], 1), strict=True):
            values[part.name] = value.reshape(len(value), *part.shape).to(
                kind.dtype if part.dtype == "float" else getattr(torch, part.dtype))
        if self.layout.kind == "single":
            return self.model(*values.values())
        if self.layout.as_one:
            return self.model(values if self.layout.kind == "dict" else tuple(values.values()))
        return self.model(**values) if self.layout.kind == "dict" else self.model(*values.values())

    @torch.no_grad()
    def flat(self, columns: Tensor, batch_size: int = 4096) -> Tensor:
        """Return flat rows (N, width + kept), on g's device, of the values of all inputs side by side, (N, K)."""
        found = []
        for x in columns.split(batch_size):
            blocks: list = []
            x = x.to(self.place.device)

            def keep(layer: int, given: list, answer: Tensor, x: Tensor = x, blocks: list = blocks) -> None:
                call = self.layout.calls[len(blocks)]
                vectors = _rows_first(answer.reshape(-1, call.length), len(x), call.rows_first)
                blocks.append(vectors[:, [i for i, c in enumerate(call.columns) if c >= 0]].flatten(1).float())

            if self.layout.calls:
                with hooked(self.layers, keep):
                    self._ask(x)
            found.append(torch.cat([x[:, self.plain], *blocks, x[:, self.kept]], 1))
        return torch.cat(found)


def _rows_first(values: Tensor, n: int, rows_first: bool) -> Tensor:
    """(n * T, E) or (T * n, E) to (n, T, E)."""
    return values.reshape(n, -1, values.shape[-1]) if rows_first else \
        values.reshape(-1, n, values.shape[-1]).transpose(0, 1)


def _asked(layout: Layout, model: nn.Module, x: Tensor) -> list[Call]:
    """What g's embedding layers are asked, and which columns of X (N, K) the ids are read from.

    g is shown rows whose columns of whole numbers are mixed, each in its own way, so that no two are alike. A column is
    known again in the ids if these differ from it by a constant: some models number the ids of all columns in one row.
    """
    adapter, seen = Adapter(model, layout), []

    def keep(layer: int, given: list, answer: Any) -> None:
        ids = [t for t in given if isinstance(t, Tensor) and t.shape == getattr(answer, "shape", [0])[:-1]]
        if not ids:
            raise ValueError(f"the layer {layout.layers[layer]!r} does not give one vector for each id that it gets (a "
                             "bag of tokens has lost their places): give another one by embedding=")
        seen.append((layer, ids[0], answer))

    fixed = torch.Generator().manual_seed(0)
    mixed = x[torch.arange(PROBE) % len(x)].clone()
    for c in range(x.shape[1]):
        values = x[:, c].unique()
        if bool((values == values.round()).all()):
            mixed[:, c] = values[torch.randint(len(values), (PROBE,), generator=fixed)]
    for rows in (mixed, x[:PROBE]):
        seen.clear()
        try:
            with torch.no_grad(), hooked(adapter.layers, keep):
                adapter._ask(rows.to(adapter.place.device))
            break
        except (RuntimeError, IndexError, TypeError, ValueError, AssertionError) as error:
            reason = error
    else:
        raise ValueError(f"g cannot take X ({str(reason).partition(chr(10))[0]})") from None
    silent = [name for i, name in enumerate(layout.layers) if i not in {layer for layer, *_ in seen}]
    if silent:
        raise ValueError(f"g answers without its layer {silent[0]!r} being called where it can be seen (a scripted or "
                         "compiled g: give the module that it was made from)")
    calls: list = []
    used: set = set()
    for layer, ids, answer in seen:
        found = [_read_from(ids.reshape(len(rows), -1) if first else ids.reshape(-1, len(rows)).T, rows, used)
                 for first in (True, False) if ids.numel() % len(rows) == 0]
        if not found or max(max(columns) for columns in found) < 0:
            raise ValueError(f"the ids that the layer {layout.layers[layer]!r} gets are no columns of X")
        best = max(range(len(found)), key=lambda i: sum(c >= 0 for c in found[i]))
        calls.append(Call(layer, best == 0, answer.shape[-1], found[best]))
        used |= set(found[best])
    return calls


def _read_from(ids: Tensor, x: Tensor, used: set[int]) -> list[int]:
    """The column of x (B, K) that each column of ids (B, T) is read from; -1 where it is none."""
    x, found = x.double().to(ids.device), []
    for t in range(ids.shape[1]):
        gap = ids[:, t].double()[:, None] - x
        fits = (gap == gap[:1]).all(0).nonzero().flatten().tolist()
        varies = bool((ids[:, t] != ids[0, t]).any())
        fits = [c for c in fits if varies or gap[0, c] == 0]
        found.append(min(fits, key=lambda c: (bool(gap[0, c] != 0), c in found, c in used, c), default=-1))
    return found
