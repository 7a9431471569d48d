"""What every loader returns: a data set split in two, with names.

``X`` is float32, standardised on the training part alone where the data are real; ``y`` is int64.
"""

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Dataset:
    """Training and test part, names, and what else a study needs, row by row.

    >>> import numpy as np
    >>> x, y = np.zeros((4, 2), np.float32), np.array([0, 1, 0, 1])
    >>> Dataset("toy", x, y, x, y, ["a", "b"], ["no", "yes"]).n_features
    2
    """

    name: str
    X_train: np.ndarray  # (N, D)
    y_train: np.ndarray  # (N,)
    X_test: np.ndarray
    y_test: np.ndarray
    feature_names: list[str]
    class_names: list[str]
    truth_train: np.ndarray | None = None  # (N, D) bool: which features made the label
    truth_test: np.ndarray | None = None
    groups: np.ndarray | None = None  # (D,) int: the group (patch) of each feature
    extra: dict[str, np.ndarray] = field(default_factory=dict)  # row-aligned, e.g. race_train

    @property
    def n_features(self) -> int:
        """Number of input columns, D."""
        return self.X_train.shape[1]

    @property
    def n_classes(self) -> int:
        """Number of classes, C."""
        return len(self.class_names)
