"""Groups of inputs that share one importance: patches of an image, the columns of one category."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np


def resolve_groups(groups: Any, feature_names: Sequence[str]) -> tuple[np.ndarray, list[str]]:
    """Return the group number of each feature and the names of the groups.

    Parameters
    ----------
    groups : dict, list of lists, integer mask or None
        A dict or a list holds the members of each group, by name or position; features in no group become groups of
        their own. A mask has one group number per feature. None: every feature is a group of its own.
    feature_names : list of str
        Names of the D features.

    Returns
    -------
    (int array (D,), list of G names)

    Examples
    --------
    >>> resolve_groups({"height": ["a", "c"]}, ["a", "b", "c"])
    (array([0, 1, 0]), ['height', 'b'])
    """
    D = len(feature_names)
    if groups is None:
        return np.arange(D), list(feature_names)
    if not isinstance(groups, dict):
        if isinstance(groups, str) or not np.iterable(groups):
            raise ValueError(f"groups must be a dict, a list of lists or an integer mask; got {groups!r}")
        items = list(groups)
        if all(np.ndim(i) == 0 and not isinstance(i, str) for i in items):
            return _from_mask(np.asarray(items), D)
        groups = {f"group {i}": members for i, members in enumerate(items)}
    position = {name: i for i, name in enumerate(feature_names)}
    index, names = np.full(D, -1), [str(name) for name in groups]
    for g, (name, members) in enumerate(groups.items()):
        for member in [members] if isinstance(members, str) or not np.iterable(members) else members:
            numbered = isinstance(member, int | np.integer) and 0 <= member < D
            if not (numbered or isinstance(member, str) and member in position):
                known = ", ".join(map(str, feature_names[:8])) + (", ..." if D > 8 else "")
                raise ValueError(f"groups: unknown feature {member!r} in {name!r}; features are {known}")
            i = position[member] if isinstance(member, str) else int(member)
            if index[i] >= 0:
                raise ValueError(f"groups: feature {feature_names[i]!r} stands in two groups")
            index[i] = g
        if not (index == g).any():
            raise ValueError(f"groups: {str(name)!r} holds no feature")
    for i in np.flatnonzero(index < 0).tolist():
        index[i] = len(names)
        names.append(feature_names[i])
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"groups: {twice[0]!r} would name two groups (a feature outside every group keeps its own "
                         "name): rename the group")
    return index, names


def _from_mask(mask: np.ndarray, D: int) -> tuple[np.ndarray, list[str]]:
    """Groups from one number per feature."""
    if mask.shape != (D,) or not np.issubdtype(mask.dtype, np.integer):
        raise ValueError(f"groups: an integer mask must give one group number for each of the {D} features; "
                         f"got {len(mask)} of type {mask.dtype}")
    values, index = np.unique(mask, return_inverse=True)
    return index, [f"group {v}" for v in values]
