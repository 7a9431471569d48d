"""Networks that have seen masks: rows of which a random part is blank, drawn without looking at the row.

    surrogate = masked_surrogate(g, X)            # answers as g does, from whatever part of a row it is shown
    LocalBIF(surrogate, preset="few").fit(X, y)   # or LocalBIF(g, preset="few", surrogate=True)

A model that has never seen a blank answers a row of blanks with a class of its own liking, and whoever chooses which
part it sees can use that: the *place* of what is kept then gives the answer, not what stands there. A network trained
on randomly masked rows has learned to say only what the kept values tell (the surrogate of FastSHAP, the evaluator of
EVAL-X), because a mask that was drawn blindly tells nothing.

The surrogate is a stand-in for g, and an explanation of it is one of g only as far as the two agree: its ``fidelity_``
has the numbers, on whole rows and on masked ones, measured on rows that it was not trained on.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bifkit.elbo import log_likelihood, soft_target
from bifkit.inputs.checks import check_X, check_y, warn
from bifkit.inputs.groups import resolve_groups
from bifkit.inputs.models import Looks, check_model, check_output, chosen, frozen, outputs, view
from bifkit.training import adamw, derive_seed, flush_denormals, progress_bar, seeded


class MaskedNetwork(nn.Module):
    """D-hidden-hidden-C with ReLU for rows of which a part is blank, and beside them, if wanted, what was kept.

    Parameters
    ----------
    n_features, n_outputs : int
        Number of inputs D and of outputs C.
    n_groups : int, default 0
        Length G of the mask that is an input too; 0: the network sees the masked row alone.
    hidden : int, default 200
        Width of the two hidden layers.
    """

    centre: Tensor
    scale: Tensor
    shift: Tensor
    stretch: Tensor

    def __init__(self, n_features: int, n_outputs: int, *, n_groups: int = 0, hidden: int = 200) -> None:
        super().__init__()
        self.n_groups = n_groups
        self.register_buffer("centre", torch.zeros(n_features))
        self.register_buffer("scale", torch.ones(n_features))
        self.register_buffer("shift", torch.zeros(n_outputs))  # of a regression: the targets' mean and sd
        self.register_buffer("stretch", torch.ones(n_outputs))
        self.body = nn.Sequential(nn.Linear(n_features + n_groups, hidden), nn.ReLU(), nn.Linear(hidden, hidden),
                                  nn.ReLU(), nn.Linear(hidden, n_outputs))

    def standardise(self, mean: Tensor, sd: Tensor) -> "MaskedNetwork":
        """Remember what a blank is (D,) and the columns' sd (D,); constant columns keep scale one."""
        self.centre.copy_(mean)
        self.scale.copy_(torch.where(sd > 0, sd, torch.ones_like(sd)))
        return self

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return outputs (B, C) for rows (B, ...) whose blanks are filled; ``mask`` (B, G) where it is an input."""
        x = ((x.flatten(1) - self.centre) / self.scale).clamp(-5.0, 5.0)
        if mask is not None and self.n_groups:
            x = torch.cat([x, mask.to(x)], 1)
        return self.body(x) * self.stretch + self.shift


def draw_masks(n: int, groups: int, kind: Any) -> Tensor:
    """Return random masks (n, groups), drawn without looking at any row.

    Parameters
    ----------
    n, groups : int
        How many masks, and their length.
    kind : "half", "few" or int
        "half": each entry is kept with probability 1/2. A number k: so many entries are kept, uniform on 1 .. k, at
        random. "few": the number's probability falls as 1/j, as in the gate "top" of the preset ``few``.

    >>> set(draw_masks(50, 9, 3).sum(1).tolist())
    {1, 2, 3}
    """
    noise = torch.rand(n, groups)
    if kind == "half":
        return noise < 0.5
    size = ((groups + 1) ** torch.rand(n, 1)).long() if kind == "few" else torch.randint(1, kind + 1, (n, 1))
    return noise.argsort(1).argsort(1) < size  # ranks of noise are a random order


def train_masked(network: MaskedNetwork, x: Tensor, target: Tensor, likelihood: str, *, kind: Any, groups: Tensor,
                 epochs: int, min_steps: int, batch_size: int, lr: float, name: str, progress: bool | None) -> None:
    """Train a network to say ``target`` from randomly masked rows, blank where the network's ``centre`` says.

    Parameters
    ----------
    network : MaskedNetwork
        It is left in evaluation mode.
    x, target : Tensor (N, D), Tensor (N,) or (N, C)
        Rows, and labels, probabilities or values, as ``bifkit.elbo.log_likelihood`` takes them.
    likelihood : str
        "categorical", "binary", "multilabel" or "regression".
    kind : "half", "few" or int
        Which masks: see :func:`draw_masks`.
    groups : Tensor (D,)
        Group number of each input.
    epochs, min_steps, batch_size, lr : int, int, int, float
        AdamW with a one-cycle schedule.
    name, progress : str, bool or None
        What the bar says, and whether it shows.
    """
    G, size = int(groups.max()) + 1, min(batch_size, len(x))
    per_epoch, order = len(x) // size, torch.empty(0)
    steps = max(epochs * per_epoch, min_steps)
    optimiser = adamw(network.parameters(), lr=lr, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, lr, total_steps=steps)
    with flush_denormals(), progress_bar(steps, name, progress) as shown:
        for step in range(steps):
            if step % per_epoch == 0:
                order = torch.randperm(len(x), device=x.device)
            rows = order[step % per_epoch * size:][:size]
            mask = draw_masks(size, G, kind).to(x.device)
            out = network(torch.where(mask[:, groups], x[rows], network.centre), mask)
            loss = -log_likelihood(out, target[rows], likelihood, network.stretch.squeeze()).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            shown.update()
    network.eval()


def blank_row(fill: Any, x: Tensor) -> Tensor:
    """Return the row (D,) that stands where nothing is kept: "mean" or "zero", a number, or a row of numbers.

    >>> blank_row("mean", torch.tensor([[1.0, 2.0], [3.0, 2.0]])).tolist(), blank_row(0.5, torch.zeros(2, 2)).tolist()
    ([2.0, 2.0], [0.5, 0.5])
    """
    if isinstance(fill, str) and fill in ("mean", "zero"):
        return x.mean(0) if fill == "mean" else torch.zeros(x.shape[1])
    try:
        row = torch.broadcast_to(torch.as_tensor(np.asarray(fill, dtype=np.float32)), (x.shape[1],)).clone()
    except (TypeError, ValueError, RuntimeError):
        row = torch.tensor(torch.nan)
    if not row.isfinite().all():
        raise ValueError(f"fill must be 'mean', 'zero', a number or a row of {x.shape[1]} numbers; got {fill!r}")
    return row


def check_training(epochs: int, min_steps: int, batch_size: int, hidden: int) -> None:
    """Refuse sizes of a network or its training that cannot work."""
    for name, value, least in (("epochs", epochs, 1), ("min_steps", min_steps, 1), ("batch_size", batch_size, 2),
                               ("hidden", hidden, 1)):
        if not (isinstance(value, int | np.integer) and value >= least):
            raise ValueError(f"{name} must be a whole number of at least {least}; got {value!r}")


class MaskedSurrogate(MaskedNetwork):
    """The stand-in that ``masked_surrogate`` returns: outputs (B, C) of g's kind, for whole or masked rows.

    Attributes
    ----------
    fidelity_ : dict
        On ``rows`` rows that it was not trained on: ``agreement`` (share that gets g's class; not of a regression) and
        ``r2`` (share of the variance of g's answers that it reproduces). With ``masked_`` before the name, the same
        where a random part of each row is shown to it and g has seen the whole row; with ``g_masked_``, where g itself
        is shown that part.
    held_out_ : int array
        Numbers of those rows.
    likelihood_ : {"categorical", "binary", "multilabel", "regression"}
        What an explainer takes its outputs for.
    """

    fidelity_: dict[str, float]
    held_out_: np.ndarray
    likelihood_: str

    def report(self) -> str:
        """Return in words how far it agrees with g."""
        f = self.fidelity_
        how = {prefix: (f"g's class for {f[prefix + 'agreement']:.1%}, " if "agreement" in f else "")
               + f"R^2 {f[prefix + 'r2']:.2f}" for prefix in ("", "masked_", "g_masked_")}
        return (f"a stand-in for g that has seen masked rows; on {f['rows']} held-out rows {how['']}; where a random "
                f"part of them is shown, {how['masked_']} (g itself, shown that part: {how['g_masked_']})")

    def __repr__(self) -> str:
        return f"MaskedSurrogate: {self.report()}"


def _fidelity(said: Tensor, g: Tensor, likelihood: str) -> dict[str, float]:
    """R^2 and agreement of answers (n, C) with those of g on the whole rows, both as ``soft_target`` gives them."""
    said, g = said.double().view(len(g), -1), g.double().view(len(g), -1)
    found = {"r2": float(1 - (said - g).square().sum() / (g - g.mean(0)).square().sum().clamp_min(1e-300))}
    if likelihood != "regression":
        same = said.argmax(1) == g.argmax(1) if likelihood == "categorical" else ((said > 0.5) == (g > 0.5)).all(1)
        found["agreement"] = float(same.double().mean())
    return found


def masked_surrogate(model: nn.Module, X: Any, y: Any = None, *, groups: Any = None, fill: Any = "mean",
                     likelihood: str | None = None, output: Any = None, epochs: int = 40, min_steps: int = 2000,
                     batch_size: int = 250, hidden: int = 200, lr: float = 3e-3, holdout: float = 0.1, seed: int = 0,
                     progress: bool | None = None) -> MaskedSurrogate:
    """Train a network to give g's own prediction from randomly masked rows: a stand-in that knows what a blank is.

    Take it for the question *which few features are enough?* (preset ``few``), where g would be shown rows that are
    mostly blank; not for *which features matter?* (``rank``), which fills with other rows' values.

    Parameters
    ----------
    model : torch.nn.Module
        The trained g; it returns logits, one logit, or predictions, and is left as it is.
    X : DataFrame, array or tensor
        At least 20 rows, scaled as for g.
    y : array, optional
        Labels; they only say what g predicts, where ``likelihood`` does not.
    groups : dict, list of lists or integer mask, optional
        Features that are shown or blanked together, as for LocalBIF.
    fill : "mean" (default), "zero", float or array (D,)
        What a blank is; the explainer's ``fill`` has to be the same.
    likelihood : {"categorical", "binary", "multilabel", "regression"}, optional
        What g predicts; by default read off its outputs and y, as for LocalBIF.
    output : str, int or function, optional
        Which part of what g returns to explain, as for LocalBIF.
    epochs, min_steps : int, default 40 and 2000
        Passes over the rows, and the least number of steps.
    batch_size, lr : int, float, default 250, 3e-3
        Training: AdamW with a one-cycle schedule up to ``lr``.
    hidden : int, default 200
        Width of the two hidden layers.
    holdout : float, default 0.1
        Share of the rows on which its fidelity is measured (at most 2,000 of them).
    seed : int, default 0
        The same seed gives the same stand-in.
    progress : bool, optional
        A bar; by default in a terminal.

    Returns
    -------
    MaskedSurrogate
        Its ``report()`` says how far it agrees with g; so does the explanation's ``settings["surrogate"]``.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(400, 3)).astype("float32")
    >>> g = nn.Linear(3, 2, bias=False); _ = g.weight.data.copy_(torch.tensor([[-3.0, 0, 0], [3, 0, 0]]))
    >>> surrogate = masked_surrogate(g, X, epochs=1, min_steps=300, hidden=32)
    >>> surrogate.fidelity_["agreement"] > 0.9, surrogate(torch.zeros(1, 3)).softmax(1).detach().round().shape
    (True, torch.Size([1, 2]))
    """
    check_training(epochs, min_steps, batch_size, hidden)
    device, model = check_model(model), chosen(model, output)
    x, shape, names, _ = check_X(X)
    if len(x) < 20:
        raise ValueError(f"X has {len(x)} rows: at least 20 are needed, some to learn from and some to test on")
    if not 0 < holdout < 1:
        raise ValueError(f"holdout is the share of rows to test on, between 0 and 1; got {holdout}")
    index = torch.as_tensor(resolve_groups(groups, names, shape)[0])
    with seeded("masked surrogate", seed), frozen(model):
        n_outputs = check_output(model, x[:4].to(device), shape)
        likelihood = likelihood or getattr(model, "likelihood_", None)
        guessed = likelihood is None and y is None
        likelihood = check_y(y, len(x), n_outputs, likelihood)[0]
        g = view(model, shape)
        order = np.random.default_rng(derive_seed("held out", seed)).permutation(len(x))
        test, rest = np.split(order, [min(max(round(len(x) * holdout), 2), len(x) - 2)])
        test = np.sort(test[:2000])
        x, answers = x.to(device), outputs(g, x.to(device))
        if not answers.isfinite().all():
            raise ValueError("g returns NaN or infinite values: there is nothing to stand in for")
        looks = Looks()
        looks.add(answers)
        looks.check(likelihood, guessed=guessed)
        target = soft_target(answers, likelihood)
        blank = blank_row(fill, x.cpu()).to(device)
        network = MaskedSurrogate(x.shape[1], n_outputs, hidden=hidden).to(device)
        network.standardise(blank, x[rest].std(0))
        if likelihood == "regression":
            network.shift.copy_(target[rest].mean(0))
            network.stretch.copy_(target[rest].std(0).clamp_min(1e-12))
        train_masked(network, x[rest], target[rest], likelihood, kind="few", groups=index, epochs=epochs,
                     min_steps=min_steps, batch_size=batch_size, lr=lr, name="masked surrogate", progress=progress)
        mask = draw_masks(len(test), int(index.max()) + 1, "few").to(device)[:, index]
        shown = torch.where(mask, x[test], blank)
        found: dict[str, float] = {"rows": len(test)}
        who: Any
        for prefix, who, rows in (("", network, x[test]), ("masked_", network, shown), ("g_masked_", g, shown)):
            answer = soft_target(outputs(who, rows), likelihood)
            found |= {prefix + name: v for name, v in _fidelity(answer, target[test], likelihood).items()}
        network.fidelity_ = found
    network.held_out_, network.likelihood_ = test, likelihood
    if network.fidelity_.get("agreement", network.fidelity_["r2"]) < 0.9:
        warn(f"{network.report()}: it disagrees with g on whole rows already, so read the explanation with care, or "
             "train it for longer (epochs=200)")
    return network
