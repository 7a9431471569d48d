"""Settings of a fit, and the presets that name them: two questions and two reproductions, the same in every study.

    preset      question                           gate, fill, target
    rank        which features matter?             saturating, marginal, g's own prediction
    few         which few are enough?              top, zero, labels
    paper       the printed objective              simplex, zero, labels; KL as Eq. 4 and 7 weigh it
    released    what the authors' code ran         simplex, zero, labels; KL over the batch size, BatchNorm training
"""

from dataclasses import dataclass, fields, replace
from numbers import Integral, Real

from bifkit.gates import FILLS, GATES

TARGETS = ("labels", "soft")


@dataclass(frozen=True)
class Settings:
    """Everything that defines one fit; a preset is one of these, and a keyword argument replaces one field."""

    gate: str = "saturating"
    fill: str = "marginal"
    target: str = "soft"  # "soft": g's own prediction; "labels": y
    draws: int = 1  # J
    point_estimate: bool = False  # section 4.3: f = mean instead of draws
    prior: float = 0.1  # every parameter of the Dirichlet prior
    kl_weight: float | str = 0.003  # of a row's KL; "elbo": as Eq. 4 and 7 weigh it, "1/batch": as the code
    batch_norm: str = "frozen"  # "train": a copy of g whose BatchNorm normalises each batch and learns
    epochs: int = 25
    min_steps: int = 1000
    batch_size: int = 200
    lr: float = 1e-2  # importance network, one-cycle
    weight_decay: float = 0.01
    global_lr: float = 0.05  # the one alpha of a global explanation
    hidden: int = 100  # width of the importance network's two layers
    restarts: int = 1  # independent fits; the importances of a row are their average

    def changed(self, **changes) -> "Settings":
        """A copy with the given fields replaced; None means unchanged."""
        known = {f.name for f in fields(self)}
        unknown = set(changes) - known
        if unknown:
            raise ValueError(f"unknown setting {', '.join(sorted(unknown))}; known: {', '.join(sorted(known))}")
        new = replace(self, **{k: v for k, v in changes.items() if v is not None})
        new._check()
        return new

    def _check(self):
        for name, allowed in (("gate", GATES), ("fill", FILLS), ("target", TARGETS),
                              ("batch_norm", ("frozen", "train"))):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}; got {getattr(self, name)!r}")
        if isinstance(self.kl_weight, str) and self.kl_weight not in ("elbo", "1/batch"):
            raise ValueError(f"kl_weight must be a number, 'elbo' or '1/batch'; got {self.kl_weight!r}")
        if not isinstance(self.kl_weight, str) and not 0 <= self.kl_weight < float("inf"):
            raise ValueError(f"kl_weight must be finite and not negative; got {self.kl_weight}")
        for name in ("draws", "epochs", "min_steps", "batch_size", "hidden", "restarts"):
            least = 2 if name == "batch_size" else 1  # rows of a batch stand in for each other, and normalise together
            if not (isinstance(getattr(self, name), Integral) and getattr(self, name) >= least):
                raise ValueError(f"{name} must be a whole number of at least {least}; got {getattr(self, name)!r}")
        for name in ("prior", "lr", "global_lr"):
            if not (isinstance(getattr(self, name), Real) and 0 < getattr(self, name) < float("inf")):
                raise ValueError(f"{name} must be a positive number; got {getattr(self, name)!r}")


PRESETS = {
    # which features matter? explains the model's own prediction; every relevant feature keeps its share
    "rank": Settings(),
    # which few are enough? asks it of every number of features at once, one above all, and of the labels. A larger KL
    # weight than `rank`: at .003 one development seed in four put a useless feature first on Intrusion
    "few": Settings(gate="top", fill="zero", target="labels", kl_weight=0.01),
    # the objective as printed: f o x, labels, twenty draws, one KL per row (globally: one per data set), and the
    # supplement's ten epochs
    "paper": Settings(gate="simplex", fill="zero", target="labels", draws=20, kl_weight="elbo", hidden=200,
                      epochs=10, min_steps=400),
    # what the authors' code ran: the same on a g whose BatchNorm renormalises the shrunken inputs
    "released": Settings(gate="simplex", fill="zero", target="labels", draws=20, kl_weight="1/batch",
                         batch_norm="train", hidden=200, epochs=10, min_steps=400),
}


def preset(name, **changes) -> Settings:
    """The named preset with some fields replaced.

    Parameters
    ----------
    name : str
        "rank", "few", "paper" or "released".
    **changes
        Fields of Settings to replace; None means unchanged.

    >>> preset("few", draws=5).gate, preset("few", draws=5).draws
    ('top', 5)
    """
    if not isinstance(name, str) or name not in PRESETS:
        raise ValueError(f"preset must be one of {', '.join(PRESETS)}; got {name!r}")
    return PRESETS[name].changed(**changes)
