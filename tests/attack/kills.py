"""SIGKILL at random moments: the old file or the new one is whole, no row is wrong, and the next command works.

    python -m tests.attack.kills

A child saves an explainer and a posterior over existing files in a loop, fetches a data set from a slow server, or runs
a study. It says when it has begun and is killed a random moment later. After each kill the files are compared with what
a child that nobody killed makes of them; then the same command runs to its end. (Two saves of one object differ in
the order of their header's fields, so saved files are compared by their own checksum and by all that they hold.)
"""

import contextlib
import gzip
import hashlib
import json
import multiprocessing
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from torch import nn

from bifkit import LocalBIF, Posterior
from data_prep import fetch
from data_prep.catalog import CATALOG, Entry, File
from experiments.runner import study
from tests.attack.files import content
from tests.data.test_data_fetch import TRUE, Server

FORK = multiprocessing.get_context("fork")  # a child starts at once, with everything imported
KILLS = {"saving": 16, "fetching": 12, "a study": 12}
PATIENCE = 60  # seconds after which a command that should just work counts as blocked
GRID = [{"seed": seed, "size": 50_000} for seed in range(150)]


# what is killed: each says when it begins

def save_over_and_over(begun, folder, times):
    things = [(Posterior.load(folder / f"p{i}"), LocalBIF.load(folder / f"e{i}")) for i in (0, 1)]
    begun.set()
    for number in range(times):
        posterior, explainer = things[number % 2]
        posterior.save(folder / "posterior.bif")
        explainer.save(folder / "explainer.bif")


def fetch_toy(begun, url):
    file = File("toy.csv", hashlib.sha256(TRUE).hexdigest(), len(TRUE), (url,))
    CATALOG["toy"] = Entry("toy", "a toy", (file,), "none", "none", "nowhere")
    begun.set()
    fetch.ensure("toy")


def run_study(begun):
    from tests.runner import study_runs  # noqa: F401, whoever edits a file meanwhile
    begun.set()
    study.run(study.toy, GRID, name="killed", recompute=True, workers=1)


def start(function, *args):
    """A process of its own that is about to begin."""
    begun = FORK.Event()
    child = FORK.Process(target=function, args=(begun, *args))
    child.start()
    begun.wait(PATIENCE)
    return child


def kill(wait, folder, function, *args):
    """Start a process and kill it ``wait`` seconds after it has begun.

    Returns how it was met: "writing" if a scratch file lies in ``folder``, "between", or "done" if it was quicker.
    """
    child = start(function, *args)
    time.sleep(wait)
    child.kill()
    child.join()
    if child.exitcode == 0:
        return "done"
    return "writing" if any(p.suffix == ".tmp" or p.parent.name.startswith(".toy-")
                            for p in folder.rglob("*") if p.is_file()) else "between"


def works(function, *args):
    """Let the same work run to its end; what is wrong, or nothing."""
    child = start(function, *args)
    child.join(PATIENCE)
    if child.exitcode is None:
        child.kill()
        return "the next command is blocked"
    return "the next command fails" if child.exitcode else ""


# saving

KINDS = {"posterior": Posterior.load, "explainer": LocalBIF.load}


def held(file):
    """All that a file holds, by safetensors' own reader."""
    kind, meta, arrays = content(file)
    return kind, meta, {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in arrays.items()}


def saving(folder, dice, kills):
    """Yield (how, what is wrong or nothing) of each kill while files are saved over and over."""
    torch.manual_seed(0)
    rows = np.random.default_rng(0).normal(size=(60, 40)).astype(np.float32)
    explainer = LocalBIF(nn.Linear(40, 2), likelihood="categorical", min_steps=5, epochs=1, hidden=300).fit(rows)
    for i in (0, 1):
        Posterior(np.full((4000, 40), 1.0 + i)).save(folder / f"p{i}")
        explainer.set_params(seed=i).save(folder / f"e{i}")
    whole = {kind: [held(folder / f"{kind[0]}{i}") for i in (0, 1)] for kind in KINDS}
    if error := works(save_over_and_over, folder, 2):
        raise RuntimeError(error)
    for number in range(kills):
        how, wrong = kill(dice.random() * 0.4, folder, save_over_and_over, folder, 10**6), ""
        for kind, load in KINDS.items():
            file = folder / f"{kind}.bif"
            try:
                load(file)  # which compares its checksum
                if held(file) not in whole[kind]:
                    wrong = f"{file.name} is neither the old file nor the new one"
                load(folder / f"{kind[0]}{number % 2}").save(file)
                if held(file) != whole[kind][number % 2]:
                    wrong = f"{file.name}, saved again, is another"
            except Exception as error:
                wrong = f"{type(error).__name__}: {error}"
        for left in folder.glob(".*.tmp"):
            left.unlink()
        yield how, wrong


# fetching

def trickle(handler):
    """The file in small pieces."""
    content = gzip.compress(TRUE)
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    with contextlib.suppress(OSError):
        for at in range(0, len(content), 300):
            handler.wfile.write(content[at:at + 300])
            handler.wfile.flush()
            time.sleep(0.03)


def fetching(folder, dice, kills):
    """The same while a data set is fetched; every other kill finds a false file under the final name."""
    server, final = Server(), folder / "data" / "toy.csv.gz"
    server.pages["/toy"] = trickle
    threading.Thread(target=server.serve_forever, daemon=True).start()
    false = gzip.compress(b"an older file")
    final.parent.mkdir()
    for number in range(kills):
        final.unlink(missing_ok=True)
        if number % 2:
            final.write_bytes(false)
        how, wrong = kill(dice.random() * 0.4, folder / "data", fetch_toy, f"{server.url}/toy"), ""
        if final.exists() and final.read_bytes() != false and gzip.decompress(final.read_bytes()) != TRUE:
            wrong = "half a file stands under the final name"
        wrong = wrong or works(fetch_toy, f"{server.url}/toy")
        if not wrong and gzip.decompress(final.read_bytes()) != TRUE:
            wrong = "the next fetch gives other bytes"
        if not wrong and (left := sorted(p.name for p in final.parent.glob(".toy-*"))):
            wrong = f"the next fetch leaves {left}"
        yield how, wrong
    server.shutdown()
    server.server_close()


# a study

def scores(folder):
    """The columns of the study's csv that its runs compute, as text."""
    lines = [line.split(",") for line in (folder / "results" / "killed.csv").read_text().splitlines()]
    return [(row[0], row[1], row[2], row[3], row[-1]) for row in lines]


def studying(folder, dice, kills):
    """The same while a study runs: kept runs are right, and resuming gives the csv of a study nobody killed."""
    started = time.monotonic()
    if error := works(run_study):
        raise RuntimeError(error)
    seconds = time.monotonic() - started
    expected, kept = scores(folder), folder / "build" / "cache" / "single" / "killed"
    means = {int(seed): mean for seed, _, mean, *_ in expected[1:]}
    for number in range(kills):
        how, wrong = kill(dice.random() * 0.8 * seconds, folder, run_study), ""
        for file in kept.glob("[!.]*.json"):
            try:
                run = json.loads(file.read_text())
                if str(run["outcome"]["mean"]) != means[json.loads(run["key"])["params"]["seed"]]:
                    wrong = "a kept run is another"
            except ValueError:
                wrong = "half a kept run"
        if scores(folder) != expected:
            wrong = wrong or "the csv is neither the old one nor the new one"
        if not wrong and number % 2:  # every other one is resumed to its end; the rest are killed again
            wrong = works(run_study) or ("" if scores(folder) == expected else "resumed, the study has other rows")
        for left in folder.rglob(".*.tmp"):
            left.unlink()
        yield how, wrong


PARTS = {"saving": saving, "fetching": fetching, "a study": studying}


def attack(seed=0):
    """Kill; returns (Counter of (part, how), failures as texts)."""
    counts, failures = Counter(), []
    for part, function in PARTS.items():
        with tempfile.TemporaryDirectory() as name:
            changes = {"BIF_DATA": f"{name}/data", "BIF_OUTPUT": name, "NO_PROXY": "127.0.0.1", "OMP_NUM_THREADS": "1",
                       "BIF_DATA_TIMEOUT": "5"}
            before = dict(os.environ)
            for key in ("BIF_DATA_MIRROR", "BIF_OFFLINE", "BIF_STANDINS", "BIF_RESUME", "BIF_WRITING", "BIF_CLUSTER"):
                os.environ.pop(key, None)
            os.environ.update(changes)
            try:
                for number, (how, wrong) in enumerate(function(Path(name), random.Random(seed), KILLS[part])):
                    counts[part, how] += 1
                    if wrong:
                        failures.append(f"seed {seed}, {part}, kill {number}: WRONG: {wrong}")
            finally:
                os.environ.clear()
                os.environ.update(before)
    return counts, failures


def main(seed=0):
    started = time.monotonic()
    counts, failures = attack(seed)
    for (part, how), count in sorted(counts.items()):
        print(f"{count:6d}  {part:20s}  {dict(writing='met it writing', done='it was quicker').get(how, how)}")
    print(*failures, sep="\n")
    counts = Counter({key: count for key, count in counts.items() if key[1] != "done"})
    writing = sum(n for (_, how), n in counts.items() if how == "writing")
    print(f"{sum(counts.values())} kills, {writing} while a file was being written, {len(failures)} wrong, "
          f"{time.monotonic() - started:.0f} s")
    return counts, failures


if __name__ == "__main__":
    sys.exit(1 if main()[1] else 0)
