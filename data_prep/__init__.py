"""Data sets, each loaded by one function into a ``Dataset``; ``python -m data_prep`` fetches them."""

from data_prep.adult import load_adult, load_adult_fair
from data_prep.credit import load_credit
from data_prep.dataset import Dataset
from data_prep.diabetes import load_diabetes
from data_prep.fetch import DataUnavailable, available, ensure
from data_prep.intrusion import load_intrusion
from data_prep.mnist import load_mnist
from data_prep.synthetic import make_synthetic

__all__ = [
    "DataUnavailable",
    "Dataset",
    "available",
    "ensure",
    "load_adult",
    "load_adult_fair",
    "load_credit",
    "load_diabetes",
    "load_intrusion",
    "load_mnist",
    "make_synthetic",
]
