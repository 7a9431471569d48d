"""Stand-ins: small made-up files of the layout of the real ones, for a run that only shows that the path works.

``BIF_STANDINS`` names the folder that they are made in; as long as it is set, every loader reads them and nothing is
downloaded. ``make smoke`` sets it. The label of each row depends on a few columns, so that there is something to learn;
no number computed from them means anything.
"""

import gzip
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from data_prep import adult, credit, diabetes, intrusion
from data_prep.catalog import Entry, File
from data_prep.prepare import stream

ADULT = {
    "workclass": ["?", "Private", "Self-emp-inc", "State-gov"],
    "education": ["Bachelors", "Doctorate", "HS-grad", "Some-college"],
    "marital-status": ["Divorced", "Married-AF-spouse", "Married-civ-spouse", "Never-married"],
    "occupation": ["?", "Adm-clerical", "Craft-repair", "Exec-managerial", "Sales"],
    "relationship": ["Husband", "Not-in-family", "Own-child", "Unmarried", "Wife"],
    "race": ["White", "White", "White", "Black", "Other"],
    "sex": ["Male", "Male", "Female"],
    "native-country": ["?", "Mexico", "United-States"],
}


def make(item: Entry, wanted: list[File], folder: Path) -> None:
    """Put the stand-ins of the files ``wanted`` of a data set into ``folder``, those that are not there yet.

    >>> from data_prep.catalog import entry
    >>> make(entry("adult"), list(entry("adult").files[:1]), Path(tempfile.mkdtemp()))
    """
    missing = [file for file in wanted if not (folder / f"{file.name}.gz").is_file()]
    if missing:
        folder.mkdir(parents=True, exist_ok=True)
        contents = MAKERS[item.name](stream(item.title, 0, "stand-in"))
        for file in missing:
            handle, part = tempfile.mkstemp(dir=folder)  # moved when whole: two processes may ask at once
            with os.fdopen(handle, "wb") as raw:
                raw.write(gzip.compress(contents.get(file.name, b""), compresslevel=1))
            os.replace(part, folder / f"{file.name}.gz")


def _csv(table: pd.DataFrame, *, header: bool) -> bytes:
    return table.to_csv(index=False, header=header, lineterminator="\n").encode()


def _adult(rng: np.random.Generator, rows: int = 3000) -> dict[str, bytes]:
    numbers = {
        "age": rng.integers(17, 90, rows),
        "fnlwgt": rng.integers(20_000, 400_000, rows),
        "education-num": rng.integers(1, 17, rows),
        "capital-gain": np.where(rng.random(rows) < 0.1, rng.integers(100, 20_000, rows), 0),
        "capital-loss": np.where(rng.random(rows) < 0.05, rng.integers(100, 3000, rows), 0),
        "hours-per-week": rng.integers(10, 80, rows),
    }
    table = pd.DataFrame({f: numbers[f] if f in numbers else rng.choice(ADULT[f], rows) for f in adult.FEATURES})
    score = (
        0.25 * (table["education-num"] - 12)
        + 1.5 * (table["marital-status"] == "Married-civ-spouse")
        + 1.0 * (table["capital-gain"] > 5000)
        + 0.5 * (table["sex"] == "Male")
        + 0.5 * (table["race"] == "White")
    )
    table["income"] = np.where(score + rng.logistic(size=rows) > 0.5, ">50K", "<=50K")
    return {"adult.data": _csv(table, header=False), "adult.test": _csv(table[:100], header=False)}


def _credit(rng: np.random.Generator, genuine: int = 20_000, frauds: int = 200) -> dict[str, bytes]:
    label = np.r_[np.zeros(genuine, int), np.ones(frauds, int)]
    table = pd.DataFrame(rng.normal(size=(len(label), 28)).round(3), columns=credit.FEATURES[:28])
    table.insert(0, "Time", np.arange(len(label)))
    table["V4"] += 2 * label
    table["V14"] -= 3 * label
    table["Amount"] = rng.exponential(80, len(label)).round(2)
    table["Class"] = label
    return {"creditcard.csv": _csv(table, header=True)}


def _intrusion(rng: np.random.Generator) -> dict[str, bytes]:
    counts = {"smurf": 1200, "neptune": 800, "normal": 600, "satan": 200, "guess_passwd": 150, "rootkit": 5}
    label = rng.permutation(np.repeat(list(counts), list(counts.values())))
    table = pd.DataFrame(rng.random((len(label), 41)).round(2), columns=intrusion.FEATURES)
    for feature, values in {"protocol_type": "icmp tcp udp", "service": "ecr_i ftp http", "flag": "REJ S0 SF"}.items():
        table[feature] = rng.choice(values.split(), len(label))
    table["src_bytes"] = rng.integers(0, 300, len(label)) + 700 * (label == "smurf")
    table["count"] = rng.integers(0, 100, len(label)) + 200 * np.isin(label, ["smurf", "neptune"])
    table["dst_host_diff_srv_rate"] += label == "satan"
    table["num_failed_logins"] = (label == "guess_passwd").astype(int)
    table["label"] = [f"{name}." for name in label]
    return {"kddcup.data_10_percent": _csv(table, header=False)}


def _diabetes(rng: np.random.Generator, rows: int = 3000) -> dict[str, bytes]:
    table = pd.DataFrame({"encounter_id": np.arange(rows), "patient_nbr": rng.integers(1, 2 * rows, rows)})
    table["race"] = rng.choice(["?", "AfricanAmerican", "Caucasian", "Other"], rows)
    table["gender"] = rng.choice(["Female", "Male"], rows)
    table["age"] = [f"[{10 * d}-{10 * d + 10})" for d in rng.integers(0, 10, rows)]
    for name, ids in (("admission_type_id", 8), ("discharge_disposition_id", 12), ("admission_source_id", 10)):
        table[name] = rng.integers(1, ids, rows)
    for name in (*diabetes.COUNTS, *diabetes.VISITS):
        table[name] = rng.poisson(3 if name in diabetes.COUNTS else 0.6, rows)
    for name in ("diag_1", "diag_2", "diag_3"):
        table[name] = rng.choice(["250.83", "428", "486", "V57", "?"], rows)
    for name, values in diabetes.ORDERED.items():
        table[name] = rng.choice(values, rows)
    for name in ("weight", "payer_code", "medical_specialty", *diabetes.RARE_DRUGS):
        table[name] = "?"
    score = table["number_inpatient"] - 0.6 + 0.3 * (table["number_diagnoses"] - 3) + rng.logistic(size=rows)
    table["readmitted"] = np.select([score < 0, score < 2], ["NO", ">30"], "<30")
    return {"diabetic_data.csv": _csv(table, header=True)}


def _mnist(rng: np.random.Generator) -> dict[str, bytes]:
    """A bright background of noise, and for each digit four patches of its own."""
    patches = np.array([rng.permutation(49)[:4] for _ in range(10)])
    files = {}
    for part, count in (("train", 1500), ("t10k", 400)):
        label = rng.choice([3, 8, *range(10)], count, p=[0.4, 0.4, *[0.02] * 10]).astype(np.uint8)
        ink = np.zeros((count, 49))
        np.put_along_axis(ink, patches[label], 1.0, axis=1)
        ink = np.kron(ink.reshape(count, 7, 7), np.ones((1, 4, 4)))  # (N, 28, 28)
        images = (255 * np.clip(0.7 * ink * rng.random(ink.shape) + 0.3 * rng.random(ink.shape), 0, 1)).astype(np.uint8)
        files[f"{part}-labels-idx1-ubyte"] = bytes([0, 0, 8, 1]) + np.array([count], ">u4").tobytes() + label.tobytes()
        head = bytes([0, 0, 8, 3]) + np.array(images.shape, ">u4").tobytes()
        files[f"{part}-images-idx3-ubyte"] = head + images.tobytes()
    return files


MAKERS: dict[str, Callable[[np.random.Generator], dict[str, bytes]]] = {
    "adult": _adult,
    "credit": _credit,
    "intrusion": _intrusion,
    "diabetes": _diabetes,
    "mnist": _mnist,
}
