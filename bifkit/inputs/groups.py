"""Groups of inputs that share one importance: patches of an image, the columns of one category."""

import numpy as np


def resolve_groups(groups, feature_names):
    """(index (D,), names (G,)) from a dict, a list of lists, or an integer mask; None gives one group a feature.

    A dict names groups of features (by name or position); features it leaves out stay alone.

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
    index, names = np.full(D, -1), []
    for g, (name, members) in enumerate(groups.items()):
        for member in [members] if isinstance(members, str) or not np.iterable(members) else members:
            numbered = isinstance(member, int | np.integer) and 0 <= member < D
            if not (numbered or isinstance(member, str) and member in position):
                raise ValueError(f"groups: unknown feature {member!r} in {name!r}; features are {_some(feature_names)}")
            i = position[member] if isinstance(member, str) else int(member)
            if index[i] >= 0:
                raise ValueError(f"groups: feature {feature_names[i]!r} stands in two groups")
            index[i] = g
        names.append(str(name))
    return _compact(index, names, feature_names)


def _compact(index, names, feature_names):
    """Features in no group become groups of their own; empty groups are an error."""
    empty = [n for g, n in enumerate(names) if not (index == g).any()]
    if empty:
        raise ValueError(f"groups: {empty[0]!r} holds no feature")
    for i in np.flatnonzero(index < 0):
        index[i] = len(names)
        names.append(feature_names[i])
    twice = [n for n in names if names.count(n) > 1]
    if twice:
        raise ValueError(f"groups: {twice[0]!r} would name two groups (a feature outside every group keeps its own "
                         "name): rename the group")
    return index, names


def _from_mask(mask, D):
    if mask.shape != (D,) or not np.issubdtype(mask.dtype, np.integer):
        raise ValueError(f"groups: an integer mask must give one group number for each of the {D} features; "
                         f"got {len(mask)} of type {mask.dtype}")
    values, index = np.unique(mask, return_inverse=True)
    return index, [f"group {v}" for v in values]


def _some(names):
    names = [str(n) for n in names]
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
