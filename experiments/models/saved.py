"""A trained g as one file without pickle: a safetensors file whose header says which layers it is made of.

Any network of the studies is a plain sequence of a few kinds of layers; a file that asks for another kind is refused.
The format is that of :mod:`bifkit.storage`, with its checksum; any reader of safetensors sees the weights.
"""

import torch
from torch import nn

from bifkit import storage

LAYERS = {"Linear": ("in_features", "out_features"), "BatchNorm1d": ("num_features",), "ReLU": (), "SELU": (),
          "Tanh": (), "Dropout": ("p",)}  # and what each is made with


def layers_of(model) -> list:
    """The layers of a sequence as JSON holds them.

    >>> layers_of(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)))
    [['Linear', 3, 4], ['ReLU'], ['Linear', 4, 2]]
    """
    if not isinstance(model, nn.Sequential):
        raise TypeError(f"only a torch.nn.Sequential can be saved; got {type(model).__name__}")
    unknown = {type(layer).__name__ for layer in model} - set(LAYERS)
    if unknown:
        raise TypeError(f"layers must be of {', '.join(LAYERS)}; got {', '.join(sorted(unknown))}")
    return [[type(m).__name__, *(getattr(m, name) for name in LAYERS[type(m).__name__])] for m in model]


def save_model(model, path) -> None:
    """Write a network to ``path``, whole or not at all.

    Parameters
    ----------
    model : torch.nn.Sequential
        Of the kinds of layers in ``LAYERS``.
    path : str or Path
        Such as "g.safetensors".
    """
    layers = layers_of(model)
    rebuilt = _built(layers)
    if {k: v.shape for k, v in rebuilt.state_dict().items()} != {k: v.shape for k, v in model.state_dict().items()}:
        raise TypeError("a layer has options that the file would not hold, such as bias=False")
    storage.write(path, "Sequential", {k: v.cpu().numpy() for k, v in model.state_dict().items()}, {"layers": layers})


def load_model(path) -> nn.Sequential:
    """The network of a file that ``save_model`` wrote, frozen and in evaluation mode.

    Parameters
    ----------
    path : str or Path
        Another kind of file, or a damaged one, is refused with :class:`bifkit.storage.BadFile`.
    """
    arrays, meta = storage.read(path, "Sequential")
    try:
        size = sum(array.size for array in arrays.values())
        model = _built(meta["layers"], most=size)
        model.load_state_dict({k: torch.from_numpy(v) for k, v in arrays.items()})
    except Exception as error:  # whatever a stranger's file provokes
        raise storage.bad("the file does not hold a network of the studies", error) from None
    return model.eval().requires_grad_(False)


def _built(layers, most=None):
    """The sequence with these layers; ``most`` numbers are in the file, and no more are made."""
    made = []
    for name, *sizes in layers:
        if name not in LAYERS or len(sizes) != len(LAYERS[name]):
            raise ValueError(f"unknown layer {name!r}")
        whole = all(type(s) is int and s > 0 for s in sizes)
        if not (whole or name == "Dropout" and isinstance(sizes[0], int | float)):
            raise ValueError(f"a {name} of an impossible size")
        if most is not None and name == "Linear" and sizes[0] * sizes[1] > most:
            raise ValueError("its layers are larger than the file")
        made.append(getattr(nn, name)(*sizes))
    return nn.Sequential(*made)
