"""The runs that notebooks train again, and how far the kind of CPU moves them: ``python -m experiments.spots``.

A study has a run of ours, one of the printed objective (preset ``paper``) and one of a rival checked, where it has such
runs and they take seconds. How a run is compared with its stored row, and how far apart they may be: runner/spot.py.

The command trains these runs three times, each time in a process of its own: with the instructions that torch chooses
on this CPU, and with those of older ones (``ATEN_CPU_CAPABILITY`` default and avx2, torch's own switch). It writes the
differences to ``results/capabilities.csv``, one line per run and column, and prints them beside the column's range in
the stored rows and what a check allows. It needs all data sets (``make data``) and takes minutes. Run it again when a
run below is exchanged, and when the stored rows were recomputed with changed code.
"""

import argparse
import importlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch

from experiments.runner import rows
from experiments.runner import spot as runner
from experiments.runner.files import write_csv, writing
from experiments.runner.study import _key, _measured, full_name

CAPABILITIES = ("", "default", "avx2")  # ATEN_CPU_CAPABILITY; "": not set, torch chooses


class Spot(NamedTuple):
    """A run to train again, and what of it is compared."""

    run: str  # module and function in experiments/
    params: dict
    scores: tuple[str, ...]
    within: str | None = None  # the column that the comparable rows share; None: all rows are comparable

    @property
    def function(self):
        """The function itself; a study is imported when it is checked, not before."""
        module, name = self.run.split(".")
        return getattr(importlib.import_module(f"experiments.{module}"), name)


SYN = {"seed": 0, "rows": 10_000, "variant": "as_run"}
CREDIT = {"seed": 0, "rows": 27_000, "test_rows": 7_000}
DIGITS = {"seed": 0, "rows": 11_982, "test_rows": 1984, "figure": True}
WINE = {"dataset": "wine", "seed": 0}
NORM = {"check": "batch norm", "dataset": "Syn4", "seed": 0, "rows": 10_000, "steps": 0}
SUM = {"part": "regression", "dataset": "Sum", "width": 11, "g": "trained", "seed": 1, "rows": 10_000}
SPOTS = {  # by the name of the study's csv
    "synthetic": [  # L2X on Syn3 to Syn6 moves too far from one CPU to the next to guard anything
        Spot("synthetic.run", {"dataset": "Syn3", "method": "bifkit (local)", **SYN}, ("mcc",), "method"),
        Spot("synthetic.run", {"dataset": "Syn3", "method": "BIF (inst, samp)", **SYN}, ("mcc",), "method"),
        Spot("synthetic.run", {"dataset": "Syn4", "method": "bifkit (local)", **SYN}, ("shares",), "dataset"),
        Spot("synthetic.run", {"dataset": "Syn1", "method": "L2X", **SYN}, ("mcc",), "method")],
    "tabular": [
        Spot("tabular.run", {"dataset": "Credit", "method": m, **CREDIT}, ("local_3", "global_3"), "dataset")
        for m in ("bifkit", "BIF", "LIME on g")],
    "mnist": [Spot("mnist.run", {"method": m, **DIGITS}, ("acc_4",)) for m in ("bifkit", "BIF", "SHAP")],
    "privacy": [  # one run holds ours (alpha_public, alpha_again) and the printed objective; INVASE moves too far
        Spot("privacy.run", {"dataset": "Adult", "noise": 17.0, "seed": 20},
             ("auc_test", "alpha_public", "alpha_again", "alpha_paper"), "dataset")],
    "fairness": [  # one run holds all three
        Spot("fairness.run", {"seed": 21, "classifier": "baseline", "rows": 30_940, "iterations": 160},
             ("rank", "paper", "invase"), "classifier")],
    "faithfulness": [  # nothing is fitted by the printed objective here
        Spot("faithfulness.run", {"method": m, **WINE}, ("deletion, marginal",), "dataset")
        for m in ("LocalBIF", "LocalBIF few, refined", "DeepExplainer")],
    "ablation": [
        Spot("ablation.run", {"dataset": "Syn4", "change": "epochs 5", "seed": 0, "rows": 10_000}, ("mcc",), "change")],
    "errata": [  # the objective as printed, and as the authors' code ran it
        Spot("errata.run", {"preset": "paper", **NORM}, ("mcc",), "dataset"),
        Spot("errata.run", {"preset": "released", **NORM}, ("mcc",), "preset")],
    "wide": [Spot("wide.run", SUM, ("mcc_rival",), "dataset")],  # SHAP's GradientExplainer
    "uncertainty": [  # this study and the next two are of ours alone
        Spot("uncertainty.refit", {"dataset": "Syn5", "source": "fresh", "seed": 0, "rows": 10_000},
             ("sum_sd", "alpha"), "dataset")],
    "uncertainty_changes": [
        Spot("uncertainty.change", {"dataset": "Syn4", "what": "label noise", "level": 0.3, "seed": 0, "rows": 10_000},
             ("sum_sd", "alpha"), "dataset")],
    "uncertainty_rows": [
        Spot("uncertainty.instances", {"dataset": "Syn5", "seed": 0, "rows": 10_000}, ("area_random",))],
    "bench": [  # times are not repeated to the digit, and the published setting takes minutes
        Spot("bench.run", {"part": "published", "what": "bifkit (local)", "size": 0, "seed": 2}, ("mcc",))],
}


def spot_check(study, frame, profile="paper") -> str:
    """Train the chosen runs of a study again and assert that each agrees with its stored row: one line per run.

    Parameters
    ----------
    study : str
        The name of the study's csv, a key of ``SPOTS``.
    frame : DataFrame
        Its rows, as ``study.run`` returns them.
    profile : str, default "paper"
        The notebook's profile; the chosen runs are those of ``paper``, rows of another one are not checked.

    Examples
    --------
    >>> spot_check("synthetic", None, "smoke")
    "spot check synthetic: skipped: the chosen runs are of the profile 'paper', these rows of 'smoke'"
    """
    if profile != "paper":
        return f"spot check {study}: skipped: the chosen runs are of the profile 'paper', these rows of {profile!r}"
    return "\n".join(runner.spot_check(s.function, s.params, frame, score=s.scores, within=s.within)
                     for s in SPOTS[study])


def measure() -> pd.DataFrame:
    """Train every run with every capability, each in a process of its own: one line per run and column."""
    found = {}
    for capability in CAPABILITIES:
        environment = {k: v for k, v in os.environ.items() if k != "ATEN_CPU_CAPABILITY"}
        environment |= {"ATEN_CPU_CAPABILITY": capability} if capability else {}
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "found.json"
            subprocess.run([sys.executable, "-m", "experiments.spots", "--train", file], env=environment, check=True)
            found[capability] = json.loads(file.read_text(encoding="utf-8"))
    return differences(found)


def _train(file):
    """In a process of one capability: what every run gives."""
    runs = [_measured(s.function, _key(s.function, s.params, "")) for s in itertools.chain(*SPOTS.values())]
    found = {"capability": torch.backends.cpu.get_cpu_capability(), "runs": runs}
    Path(file).write_text(json.dumps(found), encoding="utf-8")


def differences(found) -> pd.DataFrame:
    """How far each capability is from torch's own choice, and the largest difference between any two of them.

    Parameters
    ----------
    found : dict
        For each of ``CAPABILITIES`` its name in torch and what every run of ``SPOTS`` gave, in their order.
    """
    lines = []
    for i, s in enumerate(itertools.chain(*SPOTS.values())):
        for score in s.scores:
            values = {c: found[c]["runs"][i][score] for c in found}
            gaps = {f"to_{c}": runner.difference(values[""], values[c]) for c in found if c}
            largest = np.max([runner.difference(a, b) for a, b in itertools.combinations(values.values(), 2)])
            if not np.isfinite(largest):
                raise ValueError(f"{rows.describe(s.params)}: {score} is NaN or of another length with one of the "
                                 "capabilities: compare another column")
            lines.append({"function": full_name(s.function), "run": rows.describe(s.params), "score": score,
                          "capability": found[""]["capability"], **gaps, "difference": largest,
                          "seconds": found[""]["runs"][i]["seconds"]})
    table = pd.DataFrame(lines)
    for column in ("difference", *(f"to_{c}" for c in found if c)):
        table[column] = table[column].map(lambda x: float(f"{x:.4g}"))
    return table


def allowed() -> pd.DataFrame:
    """Of every run and column: range in the stored rows, difference between capabilities, what a check allows."""
    lines = []
    for study, spots in SPOTS.items():
        frame = pd.read_csv(rows.file(study), dtype={"error": str})
        for s, score in ((chosen, score) for chosen in spots for score in chosen.scores):
            try:
                limit = f"{runner.tolerance(s.function, s.params, frame, score=score, within=s.within):.3g}"
            except ValueError:
                limit = "no guard: compare another column"
            lines.append({"study": study, "run": rows.describe(s.params), "score": score,
                          "range": runner.spread(s.params, frame, score=score, within=s.within),
                          "difference": runner.capability_difference(s.function, s.params, score), "allowed": limit})
    return pd.DataFrame(lines)


def main():
    """Measure, write, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", metavar="FILE", help="train in this process alone and write what the runs gave")
    if file := parser.parse_args().train:
        _train(file)
        return
    table = measure()
    with writing():
        write_csv(table, rows.file("capabilities"))
    print(allowed().to_string(index=False))


if __name__ == "__main__":
    main()
