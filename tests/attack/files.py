"""Mutated files: each is refused with ``BadFile``, or gives exactly what it says, quickly and in little memory.

    make attack     # 4,000 of them, beside the other attacks; the suite runs 200

*Damage* changes bytes of a file, as a disk or a network would. The checksum is there for it: the file is refused, or
what it gives equals the original. A file of version 1 has no checksum: it is refused, or gives something that works.

*Forgery* changes a field to a hostile value and signs the file anew, or goes back to version 1. No checksum helps: the
file is refused, or the object, saved again, says what the forged file said, type for type, and works.
"""

import hashlib
import json
import re
import struct
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from safetensors.numpy import load_file, safe_open, save
from torch import nn

from bifkit import GlobalBIF, LocalBIF, Posterior
from bifkit.storage import BadFile

SECONDS, MEGABYTES = 1.0, 100.0
OPTIONAL = {"score": None, "classes": None, "diagnostics": None, "from_frame": False}  # what older files lack
ROWS = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
DEEP = json.loads("[" * 200 + "]" * 200)
HOSTILE = [None, True, False, -1, 0, 1, 2, 3, 10**9, 2**63, 10**30, -10**30, 0.5, 1.0, 1e308, float("nan"),
           float("inf"), "", "x", "1", "1.0", "\ud800", "a" * 5000, [], [0], [[]], {}, {"a": 1}, [None, None],
           [0] * 1000, DEEP, [-2, -2], ["x0", "x0", "x1", "x2"], ["x0", 1, "x2", "x3"], "int64", "O", "V8",
           "datetime64[ns, dateutil//etc/hosts]"]
HEADERS = [{"version": "1.0"}, {"version": "02"}, {"version": "-1"}, {"version": "²"}, {"kind": "\n" * 9999},
           {"kind": "list"}, {"format": "x"}, {"extra": "1"}]
TEXTS = ["[" * 10**5, '{"a":' * 10**5, "1" * 10**5, "[1]", "null", "{"]
NUMBERS = [np.float64("nan"), np.float64("inf"), -1.0, 0.0, 1e300, 10**9, -(2**62)]


@dataclass
class Original:
    """A good file: its bytes, its class and what an object of it says."""

    kind: type
    version: int
    data: bytes
    says: tuple


# the good files

def examples():
    """A few small objects of every kind."""
    rng, names = np.random.default_rng(1), ["x0", "x1", "ü", "d"]
    alpha = rng.gamma(2.0, size=(5, 4)) + 0.1
    yield Posterior(alpha[0], names, settings={"draws": 3, "note": "a", "list": [1, 2.5, None]})
    yield Posterior(alpha, names, index=["a", "b", "", "ß", "e e"])
    yield Posterior(alpha, index=pd.date_range("2021-10-31", periods=5, freq="h", tz="Europe/Berlin", name="day"))
    yield Posterior(alpha, index=pd.Index([3, 1, 2, 5, 4], dtype="int16"), temperature=[1.0, 2.0, 0.5, 3.0])
    torch.manual_seed(0)
    small = {"min_steps": 3, "epochs": 1}
    frame = pd.DataFrame(ROWS, columns=names)
    yield GlobalBIF(nn.Linear(4, 2), likelihood="categorical", groups={"pair": [0, 3]}, **small).fit(frame)
    yield GlobalBIF(nn.Linear(4, 3), classes=[2, 0], preset="few", **small).fit(ROWS, np.arange(40) % 3)
    yield LocalBIF(nn.Linear(4, 2), likelihood="categorical", restarts=2, hidden=3, **small).fit(frame)
    g = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    yield LocalBIF(g, likelihood="categorical", image=(2, 2), hidden=2, groups=[0, 0, 1, 1], **small).fit(
        ROWS.reshape(-1, 2, 2))


def originals(folder):
    """Each example as a file of version 2, and as one of version 1."""
    for example in examples():
        example.save(folder / "good.bif")
        data = (folder / "good.bif").read_bytes()
        kind, meta, arrays = content(folder / "good.bif")
        if isinstance(example, Posterior) and example.index is not None:
            meta["index"] = [str(label) for label in example.index]
            arrays = {k: v for k, v in arrays.items() if not k.startswith("index")}
        for version, old in ((2, data), (1, signed(arrays, kind, json.dumps(meta), 1))):
            (folder / "good.bif").write_bytes(old)
            yield Original(type(example), version, old, says(type(example).load(folder / "good.bif"), folder))


def content(file):
    """(kind, meta, arrays) of a file, by safetensors' own reader."""
    with safe_open(file, framework="numpy") as f:
        header = f.metadata()
    return header["kind"], json.loads(header["meta"]), load_file(file)


def signed(arrays, kind, text, version=2, /, more=None):
    """The bytes of a file, its checksum right if it has one."""
    header = {"format": "bifkit", "version": str(version), "kind": kind, "meta": text} | (more or {})
    if version == 1:
        return save(arrays, metadata=header)
    data = save(arrays, metadata=header | {"sha256": "0" * 64})
    return data.replace(b'"sha256":"' + b"0" * 64, b'"sha256":"' + hashlib.sha256(data).hexdigest().encode(), 1)


def _facts(kind, meta, arrays, labels=None):
    """What a file says, comparable and type for type; labels of rows as texts, as version 1 has them."""
    if kind != "Posterior":
        meta = OPTIONAL | {"columns": meta["feature_names"]} | meta
        if meta["diagnostics"]:
            meta["diagnostics"] = {"moved": 0.0} | meta["diagnostics"]
    if labels is not None:
        meta = meta | {"index": labels}
        arrays = {k: v for k, v in arrays.items() if not k.startswith("index")}
    return (kind, json.dumps(meta, sort_keys=True),
            tuple(sorted((k, v.dtype.str, v.shape, v.tobytes()) for k, v in arrays.items())))


def says(thing, folder):
    """What an object says: its file, and its explanation of a few rows, which must be one."""
    thing.save(folder / "again.bif")
    rows = getattr(thing, "index", None)
    facts = _facts(*content(folder / "again.bif"), None if rows is None else [str(label) for label in rows])
    if not isinstance(thing, Posterior):
        shape = getattr(thing, "shape_", (4,))
        thing = thing.explain(ROWS[:3].reshape(3, *shape) if np.prod(shape) == 4 else np.zeros((3, *shape)))
    found = list(thing.values()) if isinstance(thing, dict) else [thing]
    assert all(np.isfinite(p.mean).all() and np.allclose(p.mean.sum(-1), 1) for p in found)
    return facts, tuple((p.alpha.tobytes(), tuple(p.feature_names), repr(p.index)) for p in found)


# what is done to them

def damage(rng, data, other):
    """The bytes of a file with one to three accidents."""
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        header = min(8 + struct.unpack("<Q", data[:8])[0], len(data)) if len(data) >= 8 else len(data)
        end = max(header if rng.random() < 0.6 else len(data), 1)  # more often in the header than elsewhere
        at, size = int(rng.integers(end)), int(rng.integers(1, 40))
        how = rng.integers(10)
        if how == 0:
            data[at:at + 1] = bytes([data[at] ^ 1 << int(rng.integers(8))]) if data else b""
        elif how == 1:
            data[at:at + 1] = rng.bytes(1)
        elif how == 2:
            data[at:at + size] = rng.bytes(size)
        elif how == 3:
            del data[at:at + size]
        elif how == 4:
            data[at:at] = rng.bytes(size)
        elif how == 5:
            data[at:at] = data[at:at + size]
        elif how == 6:
            data[at:at + size] = bytes(len(data[at:at + size]))
        elif how == 7:
            del data[int(rng.integers(len(data) + 1)):]
        elif how == 8:
            data[at:] = other[at:]
        else:
            data[:8] = struct.pack("<Q", int(rng.choice([0, 1, len(data), 10**7, 2**40, 2**63 - 1, header])))
    return bytes(data)


def forgery(rng, original, folder):
    """(bytes, (kind, meta, arrays) they hold or None if no honest file could) of a file with one hostile field."""
    (folder / "good.bif").write_bytes(original.data)
    kind, meta, arrays = content(folder / "good.bif")
    version, how = original.version, rng.integers(12)
    if how < 7:  # one field, however deep
        place, key = meta, str(rng.choice(sorted(meta)))
        while isinstance(place[key], dict | list) and place[key] and rng.random() < 0.6:
            place = place[key]
            key = str(rng.choice(sorted(place))) if isinstance(place, dict) else int(rng.integers(len(place)))
        if rng.random() < 0.15:
            del place[key]
        else:
            place[key] = HOSTILE[rng.integers(len(HOSTILE))]
        if rng.random() < 0.05:
            meta["surprise"] = 1
    elif how < 10:  # one array
        name = str(rng.choice(sorted(arrays)))
        array, change = arrays[name].copy(), rng.integers(5)
        if change == 0 and array.size:
            number = np.asarray(NUMBERS[rng.integers(len(NUMBERS))])
            with np.errstate(all="ignore"):
                array.flat[rng.integers(array.size)] = number.astype(array.dtype)
        elif change == 1:
            array = array.astype(rng.choice(["float16", "float32", "float64", "int8", "int64", "uint8"]))
        elif change == 2:
            array = array.reshape(-1)[:rng.integers(array.size + 1)]
        elif change == 3:
            array = array[None]
        else:
            array = np.zeros([int(n) for n in rng.choice([0, 1, 4, 10**6], size=2)] + [0], array.dtype)
        arrays[name] = array
        if rng.random() < 0.2:
            arrays[str(rng.choice(["9.theta", "alpha", "x", "groups", "index_ends"]))] = arrays.pop(name)
    elif how == 10:  # all fields
        twice = json.dumps(meta)[:-1] + ', "settings": {}}'
        return signed(arrays, kind, [twice, *TEXTS][rng.integers(len(TEXTS) + 1)], version), None
    else:  # the header around them
        return signed(arrays, kind, json.dumps(meta), version, HEADERS[rng.integers(len(HEADERS))]), None
    return signed(arrays, kind, json.dumps(meta), version), (kind, meta, arrays)


# the trial

class Meter:
    """Seconds of this thread (a busy machine takes longer) and, on Linux, megabytes at most that a call took."""

    def __init__(self):
        self.seconds = self.megabytes = 0.0

    def __call__(self, function, *args):
        before, started = _memory(reset=True), time.thread_time()
        try:
            return function(*args)
        finally:
            self.last = time.thread_time() - started, max(_memory() - before, 0.0)
            self.seconds, self.megabytes = max(self.seconds, self.last[0]), max(self.megabytes, self.last[1])


def _memory(reset=False):
    """Largest size of this process in MB since the last reset; 0 where the system does not say."""
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024
    except OSError:
        return 0.0


def judge(kind, file, expected, meter, folder):
    """"refused", "the same", "as it says" or "works"; or, a failure, a sentence that is none of these."""
    try:
        thing = meter(kind.load, file)
    except BadFile as error:
        thing = "refused" if len(str(error)) < 500 else "WRONG: an endless message"
    except Exception as error:
        thing = f"WRONG: {type(error).__name__}: {error}"[:300]
    if meter.last[0] > SECONDS or meter.last[1] > MEGABYTES:
        return f"WRONG: took {meter.last[0]:.2f} s and {meter.last[1]:.0f} MB"
    if isinstance(thing, str):
        return thing
    try:
        found = says(thing, folder)
    except Exception as error:
        return f"WRONG: loaded, and then {type(error).__name__}: {error}"[:300]
    how, wanted = expected
    if how == "works":
        return "works"
    if how == "the same":
        return how if found == wanted else "WRONG: loaded as another object than was saved"
    name, meta, arrays = wanted or (None, None, None)
    labels = found[0][1] and json.loads(found[0][1]).get("index") if name == "Posterior" else None
    if meta is not None and labels is not None and "index" in meta and meta["index"] != labels:
        return "WRONG: other labels than those of the file"
    fits = meta is not None and found[0] == _facts(name, meta, arrays, labels)
    return "as it says" if fits else "WRONG: not what the file says"


def attack(mutations, seed=0):
    """Mutate files; returns (Counter of outcomes, failures as texts, Meter)."""
    rng, counts, failures, meter = np.random.default_rng(seed), Counter(), [], Meter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        goods, file = list(originals(folder)), folder / "mutated.bif"
        for number in range(mutations):
            good, other = (goods[i] for i in rng.integers(len(goods), size=2))
            if rng.random() < 0.5:
                data = damage(rng, good.data, other.data)
                expected = ("the same", good.says) if good.version == 2 or data == good.data else ("works", None)
                what = "damage"
            else:
                data, wanted = forgery(rng, good, folder)
                expected, what = ("as it says", wanted), "forgery"
            if data == other.data != good.data:  # another good file whole
                expected = ("the same", other.says) if other.kind is good.kind else expected
            file.write_bytes(data)
            outcome = judge(good.kind, file, expected, meter, folder)
            what += f", version {good.version}"
            counts[what, outcome.split(":")[0]] += 1
            if outcome.startswith("WRONG"):
                failures.append(f"seed {seed}, mutation {number}, {good.kind.__name__}, {what}: {outcome}")
    return counts, failures, meter


def main(mutations=4000, seed=0):
    counts, failures, meter = attack(mutations, seed)
    for (what, outcome), count in sorted(counts.items()):
        print(f"{count:6d}  {what:20s}  {outcome}")
    print(*failures[:20], sep="\n")
    print(f"{mutations} mutated files, {len(failures)} wrong; the slowest load took {meter.seconds:.3f} s, "
          f"the largest {meter.megabytes:.1f} MB")
    return counts, failures
