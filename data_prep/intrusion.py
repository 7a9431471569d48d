"""KDD Cup 1999, 10 percent: 494021 network connections, 41 features, 23 labels in five groups.

The four large groups stay (dos, normal, probe, r2l); u2r, 52 rows, is dropped. The dominant group, dos, is
cut to 30 % of its own rows, drawn by the seed: 219948 rows, split 80/20, categories coded in alphabetical
order, standardised on the training part.
"""

import gzip

import numpy as np
import pandas as pd

from data_prep.dataset import Dataset
from data_prep.fetch import available, ensure  # noqa: F401 (available serves the examples)
from data_prep.prepare import cached, check_share, codes, split, standardise, stream

FEATURES = [
    "duration", "protocol_type", "service", "flag", "src_bytes", "dst_bytes", "land", "wrong_fragment",
    "urgent", "hot", "num_failed_logins", "logged_in", "num_compromised", "root_shell", "su_attempted",
    "num_root", "num_file_creations", "num_shells", "num_access_files", "num_outbound_cmds",
    "is_host_login", "is_guest_login", "count", "srv_count", "serror_rate", "srv_serror_rate",
    "rerror_rate", "srv_rerror_rate", "same_srv_rate", "diff_srv_rate", "srv_diff_host_rate",
    "dst_host_count", "dst_host_srv_count", "dst_host_same_srv_rate", "dst_host_diff_srv_rate",
    "dst_host_same_src_port_rate", "dst_host_srv_diff_host_rate", "dst_host_serror_rate",
    "dst_host_srv_serror_rate", "dst_host_rerror_rate", "dst_host_srv_rerror_rate",
]  # fmt: skip
STRINGS = {"protocol_type", "service", "flag"}
CLASSES = ["dos", "normal", "probe", "r2l"]
GROUPS = {
    "normal": ["normal"],
    "dos": ["back", "land", "neptune", "pod", "smurf", "teardrop"],
    "probe": ["ipsweep", "nmap", "portsweep", "satan"],
    "r2l": ["ftp_write", "guess_passwd", "imap", "multihop", "phf", "spy", "warezclient", "warezmaster"],
    "u2r": ["buffer_overflow", "loadmodule", "perl", "rootkit"],
}  # the organisers' grouping of the 23 labels


def _table() -> pd.DataFrame:
    """The publisher's rows with a column ``label``, without its final dot."""
    kinds = {f: str if f in STRINGS else np.float32 for f in FEATURES} | {"label": str}
    with gzip.open(ensure("intrusion")["kddcup.data_10_percent"], "rb") as stream_:
        table = pd.read_csv(
            stream_, names=[*FEATURES, "label"], dtype=kinds, engine="c", keep_default_na=False
        )
    table["label"] = table["label"].str.rstrip(".")
    return table


def _parse() -> dict[str, np.ndarray]:
    table = _table()
    group = table["label"].map({label: g for g, labels in GROUPS.items() for label in labels})
    if group.isna().any():
        raise ValueError(
            f"unknown labels {sorted(set(table['label'][group.isna()]))}: expected the 23 of KDD Cup 1999"
        )
    X = np.stack([codes(table[f]) if f in STRINGS else table[f].to_numpy() for f in FEATURES], axis=1)
    kept = (group != "u2r").to_numpy()
    return {"X": X[kept], "y": group[kept].map(CLASSES.index).to_numpy(np.int64)}


def load_intrusion(seed: int = 0, *, test_share: float = 0.2, dominant_share: float = 0.3) -> Dataset:
    """Intrusion: dos (30 % of its rows), normal, probe, r2l; 175958 rows to train and 43990 to test.

    >>> not available("intrusion") or load_intrusion(0).X_train.shape == (175958, 41)
    True
    """
    check_share(test_share, "test_share")
    check_share(dominant_share, "dominant_share")
    arrays = cached("intrusion", 1, _parse)
    X, y = arrays["X"], arrays["y"]
    rng = stream("Intrusion", seed)
    dominant = np.bincount(y).argmax()
    large, others = np.flatnonzero(y == dominant), np.flatnonzero(y != dominant)
    rows = np.concatenate([rng.choice(large, int(dominant_share * len(large)), replace=False), others])
    train, test = split(len(rows), test_share, rng)
    X_train, X_test = standardise(X[rows[train]], X[rows[test]])
    return Dataset("Intrusion", X_train, y[rows[train]], X_test, y[rows[test]], list(FEATURES), list(CLASSES))
