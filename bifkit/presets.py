"""Settings of a fit, and the presets that name them: two questions and two reproductions, the same in every study.

    preset      question                           gate, fill, target
    rank        which features matter?             saturating, marginal, g's own prediction
    few         which few are enough?              top, mean, labels
    paper       the printed objective              simplex, zero, labels; KL as Eq. 4 and 7 weigh it
    released    what the authors' code ran         simplex, zero, labels; KL over the batch size, BatchNorm training

What the KL costs sets itself in ``rank``, by two rules (docs/choices.md has the evidence):

* *Fidelity is relative*: the objective counts by which factor an explanation lowers the surprise at g's answer, not by
  how many nats. Where g is sure of itself little is missing, and small effects, a tenth of another or a thousandth of
  a regression's variance, are worth their price once the larger ones are explained.
* *The width counts*: with G features the prior's parameters are 1.1 / G, so that their sum, what the prior itself
  claims, does not grow with G; a row's KL weighs .009 (G / 11)^.2, against the many useless columns that a trained g
  has taken into account a little.

The weight is lower for a g that hardly knows anything: instead of .009, at most a 25th of all that relative fidelity
can gain from g's answers (``bifkit.elbo.to_gain``). Its features would otherwise never be worth their price.
"""

from dataclasses import dataclass, fields, replace
from numbers import Integral, Real

from bifkit.gates import FILLS, GATES

TARGETS = ("labels", "soft")
FIDELITIES = ("relative", "absolute")


@dataclass(frozen=True)
class Settings:
    """Everything that defines one fit; a preset is one of these, and a keyword argument replaces one field."""

    gate: str = "saturating"
    fill: str = "marginal"
    target: str = "soft"  # "soft": g's own prediction; "labels": y
    draws: int = 1  # J
    point_estimate: bool = False  # section 4.3: f = mean instead of draws
    fidelity: str = "relative"  # "absolute": the log-likelihood in nats, as printed; "relative": of what is missing
    prior: float | str = "auto"  # every parameter of the Dirichlet prior; "auto": 1.1 / G for G features
    kl_weight: float | str = "auto"  # of a row's KL: see above; "elbo": as Eq. 4 and 7, "1/batch": as the code
    batch_norm: str = "frozen"  # "train": a copy of g whose BatchNorm normalises each batch and learns
    epochs: int = 25
    min_steps: int = 1000
    global_steps: int | None = 2000  # at most, for the one alpha of a global explanation
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

    def for_data(self, groups: int, gain: float) -> "Settings":
        """The settings with numbers for "auto".

        Parameters
        ----------
        groups : int
            Length of the importance vector.
        gain : float
            The most that relative fidelity can rise: ``bifkit.elbo.to_gain``.

        >>> for gain in (2.0, 0.1):
        ...     s = PRESETS["rank"].for_data(11, gain); print(s.prior, s.kl_weight)
        0.1 0.009
        0.1 0.004
        """
        rules = {"prior": 1.1 / groups, "kl_weight": min(0.009, 0.04 * gain) * (groups / 11) ** 0.2}
        return replace(self, **{name: value for name, value in rules.items() if getattr(self, name) == "auto"})

    def _check(self):
        for name, allowed in (("gate", GATES), ("fill", FILLS), ("target", TARGETS), ("fidelity", FIDELITIES),
                              ("batch_norm", ("frozen", "train"))):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}; got {getattr(self, name)!r}")
        if isinstance(self.kl_weight, str) and self.kl_weight not in ("auto", "elbo", "1/batch"):
            raise ValueError(f"kl_weight must be a number, 'auto', 'elbo' or '1/batch'; got {self.kl_weight!r}")
        if not isinstance(self.kl_weight, str) and not 0 <= self.kl_weight < float("inf"):
            raise ValueError(f"kl_weight must be finite and not negative; got {self.kl_weight}")
        for name in ("draws", "epochs", "min_steps", "batch_size", "hidden", "restarts"):
            least = 2 if name == "batch_size" else 1  # rows of a batch stand in for each other, and normalise together
            if not (isinstance(getattr(self, name), Integral) and getattr(self, name) >= least):
                raise ValueError(f"{name} must be a whole number of at least {least}; got {getattr(self, name)!r}")
        if self.global_steps is not None and not (isinstance(self.global_steps, Integral) and self.global_steps >= 1):
            raise ValueError(f"global_steps must be a whole number of at least 1, or None; got {self.global_steps!r}")
        for name in ("prior", "lr", "global_lr"):
            if name == "prior" and self.prior == "auto":
                continue
            if not (isinstance(getattr(self, name), Real) and 0 < getattr(self, name) < float("inf")):
                also = " or 'auto'" if name == "prior" else ""
                raise ValueError(f"{name} must be a positive number{also}; got {getattr(self, name)!r}")


PRESETS = {
    # which features matter? explains the model's own prediction; every relevant feature keeps its share
    "rank": Settings(),
    # which few are enough? asks it of every number of features at once, one above all, and of the labels. A larger KL
    # weight than `rank`: at .003 one development seed in four put a useless feature first on Intrusion
    "few": Settings(gate="top", fill="mean", target="labels", fidelity="absolute", prior=0.1, kl_weight=0.01),
    # the objective as printed: f o x, labels, twenty draws, one KL per row (globally: one per data set), and the
    # supplement's ten epochs
    "paper": Settings(gate="simplex", fill="zero", target="labels", draws=20, fidelity="absolute", prior=0.1,
                      kl_weight="elbo", hidden=200, epochs=10, min_steps=400, global_steps=None),
    # what the authors' code ran: the same on a g whose BatchNorm renormalises the shrunken inputs
    "released": Settings(gate="simplex", fill="zero", target="labels", draws=20, fidelity="absolute", prior=0.1,
                         kl_weight="1/batch", batch_norm="train", hidden=200, epochs=10, min_steps=400,
                         global_steps=None),
}


_RANK = PRESETS["rank"]
HYPERPARAMETERS = f"""\
    gate : str, default "{_RANK.gate}"
        What f does to an input: "simplex", "max", "top" or "saturating" (:mod:`bifkit.gates`).
    fill : str, default "{_RANK.fill}"
        What stands where an input fades: "zero", "mean" or "marginal".
    target : str, default "{_RANK.target}"
        "soft" explains g's own prediction, "labels" the labels y.
    draws : int, default {_RANK.draws}
        Samples of f per row and step (J).
    point_estimate : bool, default {_RANK.point_estimate}
        The mean of the Dirichlet instead of samples (section 4.3).
    fidelity : str, default "{_RANK.fidelity}"
        "relative" counts by which factor the surprise at g's answer falls, "absolute" by how many nats (as printed).
    prior : float or str, default "{_RANK.prior}"
        Every parameter of the Dirichlet prior; "auto" is 1.1 / G for G features (or groups).
    kl_weight : float or str, default "{_RANK.kl_weight}"
        Weight of a row's KL; "auto" is .009 (G / 11)^.2 and less where g hardly knows anything
        (:mod:`bifkit.presets`), "elbo" as in Eq. 4 and 7, "1/batch" as in the authors' code.
    epochs, min_steps : int, default {_RANK.epochs} and {_RANK.min_steps}
        Passes over the data, and the least number of steps; GlobalBIF takes at most {_RANK.global_steps}.
    batch_size : int, default {_RANK.batch_size}
        Rows of a step.
    lr : float, default {_RANK.lr} (LocalBIF), {_RANK.global_lr} (GlobalBIF)
        Learning rate.
    restarts : int, default {_RANK.restarts}
        Independent fits; alpha is their mean.
    hidden : int, default {_RANK.hidden}
        Width of the importance network's two layers.
"""  # of the settings that one may give an explainer, for its docstring


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
