"""UCI Diabetes 130-US hospitals: 101766 stays of patients with diabetes; is the patient admitted again?

- Stays that end in a hospice or with the patient's death are left out (99343 stay): nobody comes back from
  them.
- Target: readmitted at all (``<30`` or ``>30`` days) against ``NO``.
- 36 features. Visit counts enter as log(1 + count), age as the decade, diagnoses as the nine groups of the
  data set's paper (Strack et al. 2014, table 2), laboratory results and doses in their natural order, other
  categories coded 0, 1, ... in alphabetical order, administrative ids as coarse groups in an order of
  severity.
- Left out: ids, weight (97 % missing), payer and specialty (40 and 49 % missing), two drugs that nobody was
  given and six that fewer than twenty stays were.
- Patients come back, so the split is by patient: nobody is in both parts. ``extra`` has ``patient_train`` and
  ``patient_test``.

``None`` is a value of this file ("not measured"), ``?`` is missing: pandas must not read either as nothing.
"""

import gzip

import numpy as np
import pandas as pd

from data_prep.dataset import Dataset
from data_prep.fetch import available, ensure  # noqa: F401 (available serves the examples)
from data_prep.prepare import cached, check_share, codes, standardise, stream

HOSPICE_OR_EXPIRED = (11, 13, 14, 19, 20, 21)
VISITS = ["number_outpatient", "number_emergency", "number_inpatient"]
COUNTS = ["time_in_hospital", "num_lab_procedures", "num_procedures", "num_medications", "number_diagnoses"]
DRUGS = [
    "metformin", "repaglinide", "nateglinide", "chlorpropamide", "glimepiride", "glipizide", "glyburide",
    "tolbutamide", "pioglitazone", "rosiglitazone", "acarbose", "miglitol", "tolazamide", "insulin",
    "glyburide-metformin",
]  # fmt: skip
RARE_DRUGS = [
    "acetohexamide", "troglitazone", "glipizide-metformin", "glimepiride-pioglitazone",
    "metformin-rosiglitazone", "metformin-pioglitazone", "examide", "citoglipton",
]  # fmt: skip
ORDERED = {
    "max_glu_serum": ["None", "Norm", ">200", ">300"],
    "A1Cresult": ["None", "Norm", ">7", ">8"],
    "change": ["No", "Ch"],
    "diabetesMed": ["No", "Yes"],
    **{drug: ["No", "Down", "Steady", "Up"] for drug in DRUGS},
}
IDS = {
    # elective, unknown, urgent, emergency or trauma
    "admission_type_id": {3: 0, 2: 2, 1: 3, 7: 3, "other": 1},
    # home, home with care, unknown or other, another hospital or nursing home
    "discharge_disposition_id": {
        1: 0,
        6: 1,
        8: 1,
        7: 2,
        18: 2,
        25: 2,
        26: 2,
        9: 2,
        12: 2,
        16: 2,
        17: 2,
        "other": 3,
    },
    # referral, other, transfer, emergency room
    "admission_source_id": {
        1: 0,
        2: 0,
        3: 0,
        4: 2,
        5: 2,
        6: 2,
        10: 2,
        18: 2,
        22: 2,
        25: 2,
        26: 2,
        7: 3,
        "other": 1,
    },
}
DIAGNOSES = ["other", "circulatory", "respiratory", "digestive", "diabetes", "injury", "musculoskeletal",
             "genitourinary", "neoplasms"]  # fmt: skip
FEATURES = [
    "race", "gender", "age", *IDS, *COUNTS[:4], *VISITS, "diag_1", "diag_2", "diag_3", "number_diagnoses",
    *list(ORDERED)[:2], *DRUGS, "change", "diabetesMed",
]  # fmt: skip


def diagnosis(code: str) -> int:
    """The group of an ICD-9 code: its place in ``DIAGNOSES``.

    >>> [DIAGNOSES[diagnosis(c)] for c in ("428", "250.83", "486", "V57", "?", "185")]
    ['circulatory', 'diabetes', 'respiratory', 'other', 'other', 'neoplasms']
    """
    try:
        number = float(code)
    except ValueError:
        return 0  # V and E codes, and missing ones
    if 250 <= number < 251:
        return DIAGNOSES.index("diabetes")
    whole = int(number)
    ranges = [
        (390, 459, 1),
        (460, 519, 2),
        (520, 579, 3),
        (800, 999, 5),
        (710, 739, 6),
        (580, 629, 7),
        (140, 239, 8),
    ]
    single = {785: 1, 786: 2, 787: 3, 788: 7}
    return single.get(whole, next((group for low, high, group in ranges if low <= whole <= high), 0))


def _table() -> pd.DataFrame:
    """The publisher's rows."""
    with gzip.open(ensure("diabetes")["diabetic_data.csv"], "rb") as stream_:
        return pd.read_csv(stream_, keep_default_na=False, low_memory=False)


def _column(table: pd.DataFrame, name: str) -> np.ndarray:
    column = table[name]
    if name in VISITS:
        values = np.log1p(column.to_numpy(np.float64))
    elif name in COUNTS:
        values = column.to_numpy(np.float64)
    elif name == "age":
        values = column.str.extract(r"\[(\d+)-")[0].to_numpy(np.float64) / 10  # "[70-80)" is 7
    elif name in IDS:
        values = column.map(lambda i: IDS[name].get(i, IDS[name]["other"])).to_numpy(np.float64)
    elif name in ORDERED:
        values = column.map({v: i for i, v in enumerate(ORDERED[name])}).to_numpy(np.float64)
    elif name.startswith("diag_"):
        values = column.astype(str).map(diagnosis).to_numpy(np.float64)
    else:
        values = codes(column)
    if not np.isfinite(values).all():
        raise ValueError(f"Diabetes has a value of {name} that its coding does not know")
    return values.astype(np.float32)


def _parse() -> dict[str, np.ndarray]:
    table = _table()
    table = table[~table["discharge_disposition_id"].isin(HOSPICE_OR_EXPIRED)]
    return {
        "X": np.stack([_column(table, f) for f in FEATURES], axis=1),
        "y": (table["readmitted"] != "NO").to_numpy(np.int64),
        "patient": table["patient_nbr"].to_numpy(np.int64),
    }


def load_diabetes(seed: int = 0, *, test_share: float = 0.1) -> Dataset:
    """Diabetes, about 90 % of the patients to train and the rest to test; 36 features.

    >>> not available("diabetes") or load_diabetes(0).n_features == 36
    True
    """
    check_share(test_share, "test_share")
    arrays = cached("diabetes", 1, _parse)
    X, y, patient = arrays["X"], arrays["y"], arrays["patient"]
    rng = stream("Diabetes", seed)
    people = rng.permutation(np.unique(patient))
    in_test = np.isin(patient, people[int((1 - test_share) * len(people)) :])
    train, test = rng.permutation(np.flatnonzero(~in_test)), rng.permutation(np.flatnonzero(in_test))
    X_train, X_test = standardise(X[train], X[test])
    names = ["not readmitted", "readmitted"]
    extra = {"patient_train": patient[train], "patient_test": patient[test]}
    return Dataset("Diabetes", X_train, y[train], X_test, y[test], list(FEATURES), names, extra=extra)
