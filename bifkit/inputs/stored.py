"""What comes in from a file: every field is checked before anything is built from it.

Whatever a file says, a width of 10**9 takes no memory and a group number points at a group. An error is a ValueError,
KeyError or TypeError; ``load`` turns it into the file's ``BadFile``.
"""

import contextlib
import json
import math
import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from bifkit.inputs.checks import LIKELIHOODS
from bifkit.presets import PRESETS, Settings

NEEDED = {"settings", "preset", "feature_names", "group_names", "shape", "likelihood", "groups", "history", "elbo",
          "seed", "restarts", "image"}
OLDER_FILES_LACK = {"surrogate", "output", "score", "classes", "columns", "from_frame", "diagnostics", "inputs"}
OLDER_FILES_HAVE = {"named"}
UNIT = r"\[(s|ms|us|ns)"
INDEX_TYPE = re.compile(rf"u?int(8|16|32|64)|float(32|64)|(datetime|timedelta)64{UNIT}\]|"
                        rf"datetime64{UNIT}, (?!dateutil)[A-Za-z][A-Za-z0-9_+:/-]*\]")
DATE = re.compile(r"NaT|-?\d{4,6}-\d\d-\d\d( \d\d:\d\d:\d\d(\.\d{1,9})?)?([+-]\d\d:\d\d)?")


def _require(fine: Any, wrong: str) -> None:
    if not fine:
        raise ValueError(wrong)


def _whole(value: Any, least: int = 0) -> bool:
    return type(value) is int and least <= value < 2**63


def _number(value: Any) -> bool:
    return type(value) is float or type(value) is int and abs(value) < 2**63


def _texts(value: Any) -> bool:
    return type(value) is list and all(type(v) is str for v in value)


def check_explainer(arrays: dict, meta: Any) -> None:
    """Raise an error unless the fields of a saved explainer are of their types and fit together and with its arrays.

    Parameters
    ----------
    arrays : dict of str to array
        Group numbers under "groups"; the rest are the networks', see :func:`stored_networks`.
    meta : dict
        What ``save`` put beside them; of a stranger, it may be anything.
    """
    _require(set(meta) <= NEEDED | OLDER_FILES_LACK | OLDER_FILES_HAVE, "a field that is not known")
    _check_settings(meta["settings"], meta["preset"])
    names, groups, group_names = meta["feature_names"], arrays["groups"], meta["group_names"]
    D, G = len(groups), len(group_names)
    for key, value, count in (("feature_names", names, D), ("group_names", group_names, G)):
        _require(_texts(value) and len(set(value)) == len(value) == count >= 2,
                 f"{key} must be two or more different texts, one per feature or group")
    _require(groups.dtype == np.int64 and groups.ndim == 1 and set(groups.tolist()) == set(range(G)),
             "features and groups do not fit together")
    if meta["groups"] is None:
        _require((groups == np.arange(D)).all() and names == group_names, "groups that nobody asked for")
    else:
        members: dict = {name: [] for name in group_names}
        for feature, group in enumerate(groups.tolist()):
            members[group_names[group]].append(feature)
        _require(json.dumps(meta["groups"]) == json.dumps(members), "groups and their numbers do not fit together")
    shape, image = meta["shape"], meta["image"]
    _require(all(_whole(n, 1) for n in shape) and math.prod(shape) == D, "shape must be as many numbers as features")
    _require(image is None or len(image) in (2, 3) and all(_whole(n, 1) for n in image),
             "image must be height and width, or channels, height and width")
    columns = meta.get("columns")
    _require(columns is None or _texts(columns) and len(columns) == D, "columns must be one text per feature")
    for key in ("from_frame", "named"):
        _require(type(meta.get(key, False)) is bool, f"{key} must be true or false")
    _require(not meta.get("from_frame") or columns is not None, "a frame without columns")
    _require(meta["likelihood"] in LIKELIHOODS, "an unknown likelihood")
    output, classes = meta.get("output"), meta.get("classes")
    _require(output is None or type(output) in (int, str), "output must be a name or a number")
    _require(meta.get("surrogate") is None or type(meta["surrogate"]) is str, "surrogate must be a text")
    classes, restarts, history = [classes] if _whole(classes) else classes, meta["restarts"], meta["history"]
    _require(classes is None or classes and all(_whole(c) and c < 2**31 for c in classes)
             and len(set(classes)) == len(classes), "classes must be different class numbers")
    fits = meta["settings"]["restarts"]  # older files have a network for each class
    _require(_whole(restarts, 1) and restarts in (fits, fits * len(classes or [None])),
             "classes, restarts and networks do not fit together")
    _require(len(history) == restarts and all(1 <= len(h) <= 20 and all(map(_number, h)) for h in history),
             "history must be up to twenty numbers for each network")
    _require(_number(meta["elbo"]) and math.isfinite(meta["elbo"]), "elbo must be a number")
    _require(meta.get("score") is None or _number(meta["score"]), "score must be a number")
    seed = meta["seed"] if type(meta["seed"]) is list else [meta["seed"]]
    _require(all(s is None or type(s) in (bool, int, float, str) for s in seed), "seed must be a number or a text")
    _check_diagnostics(meta.get("diagnostics"), G)
    if "inputs" in meta:
        _check_inputs(meta["inputs"], D)


def _check_inputs(found: Any, features: int) -> None:
    """A ``Layout`` of as many features."""
    wrong = "inputs that are not those of a fit"
    _require(set(found) == {"kind", "as_one", "parts", "layers", "calls"} and type(found["as_one"]) is bool, wrong)
    parts, layers, calls = found["parts"], found["layers"], found["calls"]
    _require(type(parts) is list and parts and _texts(layers) and len(set(layers)) == len(layers), wrong)
    for part in parts:
        shape, columns = part["shape"], part["columns"]
        _require(set(part) == {"name", "shape", "dtype", "columns"} and type(part["name"]) is str
                 and part["dtype"] in ("float", "int64", "int32", "bool") and type(shape) is list
                 and all(_whole(n, 1) for n in shape) and (columns is None or _texts(columns)), wrong)
        _require(math.prod(shape) <= 4 * 10**6 and (columns is None or len(columns) == math.prod(shape)), wrong)
    _require(len({part["name"] for part in parts}) == len(parts) and found["kind"] in ("single", "tuple", "dict")
             and (found["kind"] != "single" or len(parts) == 1 and not found["as_one"]), wrong)
    floats = [part["dtype"] == "float" for part in parts]
    ends, embedded = np.cumsum([math.prod(part["shape"]) for part in parts]), set()
    _require(type(calls) is list and all(type(call) is dict for call in calls), wrong)
    for call in calls:
        _require(set(call) == {"layer", "rows_first", "length", "columns"} and type(call["rows_first"]) is bool
                 and _whole(call["layer"]) and call["layer"] < len(layers) and _whole(call["length"], 1)
                 and type(call["columns"]) is list and all(_whole(c, -1) and c < ends[-1] for c in call["columns"])
                 and max(call["columns"]) >= 0, wrong)
        embedded |= {c for c in call["columns"] if c >= 0 and not floats[int(np.searchsorted(ends, c, "right"))]}
    _require(sum(math.prod(p["shape"]) for p, f in zip(parts, floats, strict=True) if f) + len(embedded) == features,
             "inputs and features do not fit together")


LATER = {"fidelity", "global_steps"}  # settings that older files lack


def _check_settings(settings: Any, preset: Any) -> None:
    """Every setting there, once and of its type; ``bifkit.presets`` checks the values."""
    known = {field.name for field in fields(Settings)}
    _require(set(settings) in (known, known - LATER), "not the settings of a fit")
    for field in fields(Settings):
        value = settings.get(field.name, field.default)
        kind = float if field.name in ("prior", "kl_weight") else type(field.default)
        fine = {float: _number(value) and math.isfinite(value), int: _whole(value, 1), str: type(value) is str,
                bool: type(value) in (bool, int) and value in (0, 1)}[kind]
        fine = fine or field.name == "kl_weight" and type(value) is str
        fine = fine or value is None and getattr(PRESETS[preset], field.name) is None
        _require(fine, f"setting {field.name} must be a {kind.__name__}; got {value!r:.50}")


def _check_diagnostics(found: Any, features: int) -> None:
    if found is None:
        return
    numbers = {"elbo", "rise", "effective_features", "moved"}
    _require(_whole(found["steps"], 1)
             and _whole(found["features"]) and found["features"] == features
             and (found["converged"] is None or type(found["converged"]) is bool)
             and all(_number(found[k]) for k in numbers & set(found)), "diagnostics that are not of this fit")


def stored_networks(new_network: Callable[[], nn.Module], arrays: dict, count: int) -> list[nn.Module]:
    """Return the networks of a file, once all of its arrays have been found to be theirs.

    Parameters
    ----------
    new_network : function
        Makes one network; it is asked on torch's "meta" device, where a network takes no memory.
    arrays : dict of str to array
        Each network's state under "0.", "1.", ...; nothing else but "groups".
    count : int
        Number of networks.
    """
    def empty() -> nn.Module:
        with torch.device("meta"):
            return new_network()

    expected = empty().state_dict()
    _require(len(arrays) == 1 + count * len(expected), f"{len(arrays)} arrays for {count} networks")
    first = torch.from_numpy(arrays[f"0.{next(iter(expected))}"]).dtype
    _require(first in (torch.float32, torch.float64), "the networks' numbers are of another type")
    states = []
    for r in range(count):
        state = {key: torch.from_numpy(arrays[f"{r}.{key}"]) for key in expected}
        for key, wanted in expected.items():
            found, kind = state[key], first if wanted.is_floating_point() else torch.int64
            _require(found.shape == wanted.shape and found.dtype == kind,
                     f"{r}.{key} is {tuple(found.shape)} of {found.dtype}, expected {tuple(wanted.shape)}")
            _require(torch.isfinite(found).all(), f"{r}.{key} is not finite")
            _require(not key.endswith(("running_var", "num_batches_tracked")) or (found >= 0).all(), f"{r}.{key} < 0")
            _require(key != "scale" or (found > 0).all(), f"{r}.{key} <= 0")
        states.append(state)
    networks = []
    for state in states:
        network = empty()
        network.load_state_dict(state, assign=True)
        networks.append(network.eval())
    return networks


def check_posterior(arrays: dict, meta: Any) -> None:
    """Raise an error unless a saved posterior's fields are of their types; ``Posterior`` checks the values."""
    alpha, of_rows = arrays["alpha"], {"index", "index_dtype", "index_name"}
    _require(alpha.dtype == np.float64 and alpha.ndim in (1, 2), "alpha must be (D,) or (N, D), of type float64")
    _require(_texts(meta["feature_names"]), "feature_names must be texts")
    _require(type(meta["settings"]) is dict, "settings have no names")
    local = of_rows if alpha.ndim == 2 else set()
    there = set(meta) | set(arrays) - {"alpha", "temperature", "null", "index_ends"}
    _require(there == {"feature_names", "settings"} | local and set(arrays).isdisjoint(set(meta)),
             "rows without labels, or a field that is not known")
    for name in ("temperature", "null"):
        _require(name not in arrays or arrays[name].dtype == np.float64 and arrays[name].shape == alpha.shape[-1:],
                 f"{name} must be one number per feature")
    _require(("index_ends" in arrays) == ("index" in arrays and meta["index_dtype"] == "str"), "labels without ends")


def pack_index(index: pd.Index) -> tuple[dict, dict]:
    """Return labels of rows as (arrays, meta) of a file: numbers and dates as they are, anything else as text."""
    meta = {"index_dtype": "str", "index_name": None if index.name is None else str(index.name)}
    kind, numbers = index.dtype.name, False
    with contextlib.suppress(ValueError, TypeError, KeyError, OSError):  # a time zone that has no name of its own
        numbers = _index_type(kind) == index.dtype or index.dtype.kind in "iuf"
    if not numbers:
        texts = [str(label).encode("utf-8", "surrogatepass") for label in index]
        return {"index": np.frombuffer(b"".join(texts), np.uint8),
                "index_ends": np.cumsum([len(t) for t in texts], dtype=np.int64)}, meta
    if isinstance(index, pd.DatetimeIndex) and index.tz is not None:
        index = index.tz_convert("UTC").tz_localize(None)
    values = index.to_numpy()
    return {"index": values.view(np.int64) if values.dtype.kind in "mM" else values}, meta | {"index_dtype": kind}


def unpack_index(arrays: dict, meta: dict) -> pd.Index | None:
    """Return the labels that :func:`pack_index` made; those of a file of version 1 are all texts.

    >>> unpack_index(*pack_index(pd.Index(["a", "bc"]))).tolist()
    ['a', 'bc']
    """
    if "index_dtype" not in meta:
        return None
    name, kind = meta["index_name"], meta["index_dtype"]
    _require(name is None or type(name) is str, "index_name must be a text")
    dtype = None if kind == "str" else _index_type(kind)
    if "index" in meta:
        texts = meta["index"]
        _require(_texts(texts), "index must be texts")
        _require(not str(kind).startswith("datetime") or all(map(DATE.fullmatch, texts)), "a date that is none")
        return pd.Index(texts, dtype="str", name=name).astype("str" if dtype is None else dtype)
    values = arrays["index"]
    if dtype is None:
        ends = arrays["index_ends"]
        _require(values.dtype == np.uint8 and ends.dtype == np.int64 and values.ndim == ends.ndim == 1,
                 "index is not text")
        begins = np.concatenate([[0], ends])
        _require((np.diff(begins) >= 0).all() and begins[-1] == len(values), "labels that do not lie side by side")
        data = values.tobytes()
        return pd.Index([data[a:b].decode("utf-8", "surrogatepass") for a, b in zip(begins, ends, strict=False)],
                        dtype="str", name=name)
    _require(values.dtype == (np.int64 if dtype.kind in "mM" else dtype) and values.ndim == 1, "index has another type")
    if isinstance(dtype, pd.DatetimeTZDtype):
        dates = pd.DatetimeIndex(values.view(f"datetime64[{dtype.unit}]"), name=name)
        _require(((dates.year > 1) & (dates.year < 9999) | dates.isna()).all(), "dates that no time zone has")
        return dates.tz_localize("UTC").tz_convert(dtype.tz)
    return pd.Index(values.view(dtype), name=name)


def _index_type(name: Any) -> Any:
    """The type of a name, if it is one of whole or floating numbers, dates or durations."""
    _require(INDEX_TYPE.fullmatch(name), "index_dtype is not one of ours")
    return pd.api.types.pandas_dtype(name)
