"""Groups of inputs that share one importance: patches of an image, the columns of one category."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np


def windows(shape: tuple[int, ...], length: int, *, per_channel: bool = False) -> np.ndarray:
    """Return a label map, as ``groups=`` takes it, of the windows in time of a series.

    Parameters
    ----------
    shape : (int, int)
        Shape of one row: steps in time T, channels C.
    length : int
        Steps of a window; the last one may be shorter.
    per_channel : bool, default False
        Whether each channel has windows of its own.

    Returns
    -------
    int array (T, C)
        The number of each value's window.

    Examples
    --------
    >>> windows((5, 2), 2).tolist()
    [[0, 0], [0, 0], [1, 1], [1, 1], [2, 2]]
    >>> windows((4, 2), 2, per_channel=True).tolist()
    [[0, 2], [0, 2], [1, 3], [1, 3]]
    """
    if len(shape) != 2 or not (isinstance(length, int | np.integer) and length >= 1):
        raise ValueError("windows takes the shape (T, C) of one row and a length of at least 1; "
                         f"got {tuple(shape)} and {length!r}")
    number = np.arange(shape[0])[:, None] // length
    return number + np.arange(shape[1]) * (per_channel * (number.max() + 1))


def resolve_groups(groups: Any, feature_names: Sequence[str], shape: tuple[int, ...] | None = None,
                   names: dict | None = None) -> tuple[np.ndarray, list[str]]:
    """Return the group number of each feature and the names of the groups.

    Parameters
    ----------
    groups : dict, list of lists, integer mask or None
        A dict or a list holds the members of each group, by name or position; features in no group become groups of
        their own. A mask has one group number per feature, or is an array of a row's own shape or of its last axes,
        which all that stands before them shares: (H, W) for rows (C, H, W). None: every feature is a group of its own.
    feature_names : list of str
        Names of the D features.
    shape : tuple of int, optional
        Shape of one row; (D,) by default.
    names : dict, optional
        Names of a mask's groups by their numbers; "group 0", ... by default.

    Returns
    -------
    (int array (D,), list of G names)

    Examples
    --------
    >>> resolve_groups({"height": ["a", "c"]}, ["a", "b", "c"])
    (array([0, 1, 0]), ['height', 'b'])
    >>> resolve_groups(np.array([7, 9]), ["a", "b", "c", "d"], (2, 2), {7: "left"})
    (array([0, 1, 0, 1]), ['left', 'group 9'])
    """
    D = len(feature_names)
    if groups is None:
        return np.arange(D), list(feature_names)
    if not isinstance(groups, dict):
        if isinstance(groups, str) or not np.iterable(groups):
            raise ValueError(f"groups must be a dict, a list of lists or an integer mask; got {groups!r}")
        if getattr(groups, "ndim", 1) > 1:  # an array or tensor: lists of lists hold members
            return _from_mask(np.asarray(groups), D, shape or (D,), names)
        items = list(groups)
        if all(np.ndim(i) == 0 and not isinstance(i, str) for i in items):
            return _from_mask(np.asarray(items), D, shape or (D,), names)
        groups = {f"group {i}": members for i, members in enumerate(items)}
    if names is not None:
        raise ValueError("group_names= gives names to the numbers of a mask; a dict of groups has its own")
    position = {name: i for i, name in enumerate(feature_names)}
    index, found = np.full(D, -1), [str(name) for name in groups]
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
        index[i] = len(found)
        found.append(feature_names[i])
    twice = [name for name, count in Counter(found).items() if count > 1]
    if twice:
        raise ValueError(f"groups: {twice[0]!r} would name two groups (a feature outside every group keeps its own "
                         "name): rename the group")
    return index, found


def _from_mask(mask: np.ndarray, D: int, shape: tuple[int, ...], names: dict | None) -> tuple[np.ndarray, list[str]]:
    """Groups from one number per feature, in a row's own shape, in that of its last axes, or flat."""
    if mask.ndim == len(shape) + 1 and len(mask) == 1:  # a batch of one: captum's feature_mask
        mask = mask[0]
    fits = mask.shape == (D,) or mask.ndim <= len(shape) and all(
        m in (1, n) for m, n in zip(mask.shape[::-1], shape[::-1], strict=False))
    if not fits or not np.issubdtype(mask.dtype, np.integer):
        rows = "" if len(shape) == 1 else f", in a row's shape {tuple(shape)} or that of its last axes"
        raise ValueError(f"groups: an integer mask must give one group number for each of the {D} features{rows}; "
                         f"got shape {mask.shape} of type {mask.dtype}")
    flat = mask.ravel() if mask.size == D else np.broadcast_to(mask, shape).ravel()
    values, index = np.unique(flat, return_inverse=True)
    unknown = set(names or {}) - set(values.tolist())
    if unknown:
        raise ValueError(f"group_names: there is no group {sorted(unknown, key=str)[0]!r} in the mask")
    found = [str((names or {}).get(v, f"group {v}")) for v in values.tolist()]
    if len(set(found)) < len(found):
        raise ValueError("group_names: names of groups must differ from each other")
    return index, found
