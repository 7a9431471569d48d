"""The model g: checked before anything is trained, and asked without leaving a trace on it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bifkit.inputs.checks import warn


def check_model(model: nn.Module, device: str | torch.device | None = None) -> torch.device:
    """Make sure that g is a torch module whose weights are all there; return the device they are on.

    >>> check_model("a forest")
    Traceback (most recent call last):
    TypeError: BIF learns by gradients through g, so g must be a torch.nn.Module; got str. ...
    """
    if isinstance(getattr(model, "module_", None), nn.Module):
        raise TypeError(f"g must be a torch.nn.Module; got {type(model).__name__}: give the module inside, net.module_")
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"BIF learns by gradients through g, so g must be a torch.nn.Module; got {type(model).__name__}. "
            "A scikit-learn model cannot be differentiated: explain bifkit.distill(model, X), a torch model "
            "that answers alike."
        )
    devices = {p.device for p in [*model.parameters(), *model.buffers()]} or {torch.device("cpu")}
    if len(devices) > 1:
        raise ValueError(f"g is spread over several devices ({', '.join(sorted(map(str, devices)))}); move it to one")
    found = devices.pop()
    if found.type == "meta":
        raise ValueError("g is on the meta device and has no weights; load them first")
    try:
        wanted = found if device is None else torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"device must be torch's name of one, such as 'cpu' or 'cuda'; got {device!r}") from error
    if wanted.type != found.type:
        raise ValueError(f"g is on {found}, but device={device!r} was asked for: call model.to({device!r}) first")
    return found


def like(model: nn.Module) -> Tensor:
    """Return a tensor of the dtype and device that g's inputs must have, to be used as ``x.to(like(g))``."""
    own: Any = getattr(model, "rows_like", None)  # an adapter gives g's inputs their types itself
    if own is not None:
        return own
    weights = (p for p in chain(model.parameters(), model.buffers()) if p.is_floating_point())
    return next(weights, torch.zeros(()))


def view(model: nn.Module, shape: Sequence[int]) -> Callable[[Tensor], Tensor]:
    """Return g as a function of flat rows: (B, D) to float outputs (B, C), whatever shape and dtype g works in."""
    kind = like(model)
    return lambda x: model(x.view(len(x), *shape).to(kind)).reshape(len(x), -1).float()


class WrongOutput(ValueError):
    """What g returns has no such part."""


class Chosen(nn.Module):
    """g with one of the things that it returns picked out.

    Parameters
    ----------
    model : nn.Module
        g.
    output : str, int or function
        A key or an attribute of what g returns, a position in it, or a function of it.

    >>> class Two(nn.Module):
    ...     def forward(self, x): return {"logits": x, "hidden": x + 1}
    >>> Chosen(Two(), "hidden")(torch.zeros(2)), Chosen(Two(), lambda found: found["logits"])(torch.zeros(2))
    (tensor([1., 1.]), tensor([0., 0.]))
    """

    def __init__(self, model: nn.Module, output: Any) -> None:
        super().__init__()
        self.model, self.output = model, output

    def forward(self, *given: Any, **named: Any) -> Any:
        """Return the part of g's answer."""
        found, output = self.model(*given, **named), self.output
        if callable(output):
            try:
                return output(found)
            except Exception as error:
                raise WrongOutput(f"the function output= fails on what g returns, a {_described(found)} "
                                  f"({type(error).__name__}: {error})") from error
        if isinstance(output, str) and not isinstance(found, Tensor):
            name = output.removeprefix(".")
            if isinstance(found, Mapping) and name in found:
                return found[name]
            if hasattr(found, name):
                return getattr(found, name)
        sequence = isinstance(found, tuple | list) and isinstance(output, int) and not isinstance(output, bool)
        if sequence and -len(found) <= output < len(found):
            return found[output]
        raise WrongOutput(f"output={output!r} is no part of what g returns, a {_described(found)}: give the name or "
                          "the position of one of its parts, or a function of it such as lambda out: out[:, :3]")


def chosen(model: nn.Module, output: Any = None) -> nn.Module:
    """Return g, or g with one of its outputs picked out where ``output`` says which."""
    return model if output is None else Chosen(model, output)


def _described(found: Any) -> str:
    """What g returned, in words: its type and its parts."""
    if isinstance(found, Tensor):
        return f"tensor of shape {tuple(found.shape)}"
    names = list(found if isinstance(found, Mapping) else getattr(found, "_fields", []))
    names = names or [name for name, value in getattr(found, "__dict__", {}).items() if isinstance(value, Tensor)]
    if names:
        return f"{type(found).__name__} with {', '.join(map(repr, names[:8]))}"
    kinds = ", ".join(type(part).__name__ for part in found[:4]) if isinstance(found, tuple | list) else ""
    return type(found).__name__ + (f" of {len(found)} ({kinds})" if kinds else "")


def check_output(model: nn.Module, x: Tensor, shape: tuple[int, ...]) -> int:
    """Return the number of g's outputs, after one differentiable pass over a few rows (B, D) of ``shape`` each."""
    x = x[:4].clone().requires_grad_(True)
    given = x * 1.0  # no leaf: a g that writes into it can be named
    try:
        out = model(given.view(-1, *shape).to(like(model)))
    except WrongOutput:
        raise
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"g cannot take rows of {int(np.prod(shape))} features ({reason}): "
                         f"give X the columns g was trained on, in their order{_ids(model)}") from None
    if not isinstance(out, Tensor) or out.ndim not in (1, 2) or len(out) != len(x):
        got = f"shape {tuple(out.shape)} for {len(x)} rows" if isinstance(out, Tensor) else _described(out)
        raise ValueError(f"g must return one tensor of logits or predictions, (rows, outputs); got {got}: say which "
                         "part to explain by output=, a name ('logits'), a position (0) or a function of it")
    if not torch.equal(given, x):
        raise ValueError("g writes into its input, so that the rows change as they are explained: let its forward "
                         "begin with x = x.clone()")
    if not out.isfinite().all():
        raise ValueError("g returns NaN or infinite values: check its weights and the scale of X")
    if not out.requires_grad or torch.autograd.grad(out.sum(), x, allow_unused=True)[0] is None:
        raise ValueError("g's output does not depend differentiably on its input (a no_grad, argmax or detach inside?)"
                         + _ids(model))
    _check_answers(view(model, shape), x.detach())
    return 1 if out.ndim == 1 else out.shape[1]


def _ids(model: nn.Module) -> str:
    """What to do about ids, where g has layers that embed them."""
    layers = [name.removeprefix("model.") if isinstance(model, Chosen) else name
              for name, m in model.named_modules() if isinstance(m, nn.Embedding)]
    return "" if not layers or hasattr(model, "rows_like") else \
        f"; ids and tokens are explained at the layer that embeds them: embedding={layers[0]!r}"


@torch.no_grad()
def _check_answers(g: Callable[[Tensor], Tensor], x: Tensor) -> None:
    """Warn where an answer is not the same twice, or depends on the rows beside it."""
    first = g(x)
    tolerance = 1e-3 * float(first.abs().max()) + 1e-6
    if float((g(x) - first).abs().max()) > tolerance:
        warn("g answers the same rows differently twice (dropout that ignores eval(), random numbers or a state "
             "inside?): what is explained is its answer on average, and less surely")
    elif len(x) > 2 and float((g(x[:2]) - first[:2]).abs().max()) > tolerance:
        warn("g's answer for a row depends on the rows beside it (batch statistics inside forward?): it is explained "
             "as it answers in batches of other rows")


def why_not_finite(model: nn.Module, rows: Any) -> str:
    """Return a sentence on where NaN or infinity first appears, when g sees rows whose values are mixed."""
    x = rows.some(1000)
    mixed = x.clone()
    for i in range(rows.width):  # what a fit shows to g: values of other rows
        mixed[:, i] = x[torch.randperm(len(x), device=x.device), i]
    found: list[str] = []

    def look(name: str) -> Callable:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            if not found and isinstance(output, Tensor) and not output.isfinite().all():
                found.append(f"layer {name or type(module).__name__!r} ({type(module).__name__})")
        return hook

    hooks = [m.register_forward_hook(look(n)) for n, m in model.named_modules() if not list(m.children())]
    try:
        with torch.no_grad():
            out = view(model, rows.shape)(mixed)
    finally:
        for hook in hooks:
            hook.remove()
    bad = int((~out.isfinite()).any(1).sum())
    if bad:
        where = f", first in the output of {found[0]}" if found else ""
        return (f"g returns NaN or infinity for {bad} of {len(x)} rows whose features are those of different rows"
                f"{where}; a fit shows such rows to g: let it answer them (a log, a division, a root inside?)")
    return ("g's outputs are finite, so it is its gradient that is not (a square root or a norm at 0?), or its outputs "
            "or the steps (lr) are too large")


def check_gradients(model: nn.Module, x: Tensor, shape: tuple[int, ...], names: list[str]) -> None:
    """Raise an error if g uses an input that it has no gradient for, seen on a few rows (B, D).

    Such an input (an id that is rounded inside g, a value that is only compared with a threshold) would silently look
    useless. Of the inputs whose gradient is zero on every row, none may change g's answers when its values change rows.
    Values of one name, those of an embedded id, change rows together; what has no name (ids, a mask) is not looked at.
    """
    g, fixed = view(model, shape), torch.Generator().manual_seed(0)
    with torch.enable_grad():
        inputs = x.clone().requires_grad_(True)
        out = g(inputs)
        mix = torch.randn(out.shape, generator=fixed).to(out.device)  # a plain sum of logits may cancel
        grad = torch.autograd.grad((out * mix).sum(), inputs)[0]
    order, used = torch.randperm(len(x), generator=fixed).to(x.device), []
    with torch.no_grad():  # a g that answers differently twice does not use a column more for it
        tolerance = 1e-5 * float(out.abs().max()) + 10 * float((g(x) - out).abs().max())
    idle: dict[str, list[int]] = {}
    for i in (grad[:, :len(names)] == 0).all(0).nonzero().flatten().tolist():
        idle.setdefault(names[i], []).append(i)
    for name, columns in idle.items():
        swapped = x.clone()
        swapped[:, columns] = x[order][:, columns]
        with torch.no_grad():
            if float((g(swapped) - out).abs().max()) > tolerance:
                used.append(name)
    if used:
        which = ", ".join(used[:5]) + (", ..." if len(used) > 5 else "")
        raise ValueError(f"g uses {which}, but has no gradient for it (rounded, compared, an index inside?), and BIF "
                         "would call it useless: explain a smooth stand-in, bifkit.distill(g, X, kind='logit') (or "
                         "kind='value' for a regression)" + _ids(model))


TOGETHER = 0.75  # of what independent outputs have; trained classifiers were seen to have less than 0.5


class Looks:
    """What g's outputs look like, of outputs (B, C) that come by batches: probabilities, or no classes at all.

    What all outputs of a row have in common is nothing to class probabilities, and training with the cross-entropy
    does not move it: logits of classes rise against each other. Values and logits of labels have no such balance.
    ``together`` is the variance of the outputs' sum, as a share of the sum of their variances: 0 where they balance
    each other, about 1 where they are independent, and their number where they rise and fall together.

    >>> looks = Looks()
    >>> looks.add(torch.tensor([[0.9, 0.1], [0.2, 0.8]]))
    >>> looks.inside, looks.sum_to_one, looks.largest, round(looks.together, 6)
    (True, True, {0, 1}, 0.0)
    >>> looks.add(torch.tensor([[3.0, 4.0]]))
    >>> looks.why_no_classes()  # of three rows little can be said
    ''
    """

    def __init__(self) -> None:
        self.rows, self.inside, self.sum_to_one, self.log_of_shares = 0, True, True, True
        self.largest: set[int] = set()  # outputs that are the largest of some row
        self.sums = torch.zeros(())  # of each output, of the sum of all, and of the squares of these

    def add(self, output: Tensor) -> None:
        """Look at more of them."""
        if not self.rows:
            self.origin = output[0].double()  # near all of them, so that no digits are lost
        self.rows, self.columns = self.rows + len(output), output.shape[1]
        self.inside = self.inside and bool(output.min() >= 0 and output.max() <= 1)
        self.sum_to_one = self.sum_to_one and bool((output.sum(1) - 1).abs().max() <= 1e-3)
        self.log_of_shares = self.log_of_shares and bool(output.logsumexp(1).abs().max() <= 1e-3)
        self.largest |= set(output.argmax(1).unique().tolist())
        gap = output.double() - self.origin
        gap = torch.cat([gap, gap.sum(1, keepdim=True)], 1)
        self.sums = self.sums + torch.stack([gap.sum(0), gap.square().sum(0)])

    @property
    def variance(self) -> Tensor:
        """Variance of each output, and last of their sum, (C + 1,)."""
        mean, square = self.sums / self.rows
        return (square - mean.square()).clamp(min=0)

    @property
    def together(self) -> float:
        """Variance of the sum as a share of the sum of the variances; 0 where nothing varies."""
        *each, total = self.variance.tolist()
        return total / sum(each) if sum(each) > 0 else 0.0

    def why_no_classes(self) -> str:
        """Return why these may not be the logits of classes, or nothing."""
        if self.columns < 2 or self.log_of_shares or self.inside and self.sum_to_one:
            return ""  # (logarithms of) probabilities
        if self.inside:
            return "all lie in [0, 1] and do not sum to one"
        if self.rows < 20:
            return ""
        if len(self.largest) == 1 and self.together > TOGETHER:
            return f"output {min(self.largest)} is the largest in every row"
        reference = bool((self.variance[:-1] == 0).any())  # one class's logit is fixed, the others are against it
        if not reference and self.together > TOGETHER:
            return ("they do not rise against each other, as logits of classes do that were trained together: the "
                    f"variance of their sum is {self.together:.2g} times the sum of their variances (an untrained g "
                    "looks so too)")
        return ""

    def check(self, likelihood: str, guessed: bool = False) -> None:
        """Warn where they look like probabilities; raise an error where classes were guessed and may not be.

        Parameters
        ----------
        likelihood : str
            What they are taken for.
        guessed : bool, default False
            Whether neither labels nor the user have said that they are classes.
        """
        classes = likelihood == "categorical"
        if classes and guessed and (why := self.why_no_classes()):
            raise ValueError(f"g has {self.columns} outputs, there is no y to tell what they are, and they may not be "
                             f"logits of classes: {why}. Say likelihood='categorical' if they are, 'multilabel' for "
                             "logits of labels that do not exclude each other, 'regression' for values such as "
                             "quantiles; or give y")
        if likelihood != "regression" and self.inside and (self.sum_to_one or not classes):
            warn(f"g must return logits, but its outputs look like probabilities (all in [0, 1]"
                 f"{', rows sum to 1' if classes else ''}): leave out its last {'softmax' if classes else 'sigmoid'}, "
                 f"or let it return torch.{'log' if classes else 'logit'} of them")
        elif classes and guessed and len(self.largest) == 1 and self.rows >= 20:
            warn(f"g has {self.columns} outputs, taken for logits of classes as there is no y, and output "
                 f"{min(self.largest)} is the largest in every row: if they are no classes, say "
                 "likelihood='multilabel' or 'regression'")


@contextmanager
def frozen(model: nn.Module) -> Iterator[nn.Module]:
    """Put g in eval mode without weight gradients inside, and leave it exactly as it was outside.

    >>> g = nn.Linear(3, 2)
    >>> with frozen(g):
    ...     g.training, g.weight.requires_grad
    (False, False)
    >>> g.training, g.weight.requires_grad
    (True, True)
    """
    modes = [(m, m.training) for m in model.modules()]
    grads = [(p, p.requires_grad) for p in model.parameters()]
    buffers = [(b, b.clone()) for b in model.buffers()]  # a g may count its calls or keep statistics
    counters = [(m, k, v) for m in model.modules() for k, v in vars(m).items() if isinstance(v, int | float | str)]
    try:
        with suppress(NotImplementedError):  # a program of torch.export is as it was exported
            model.eval()
        for p, _ in grads:
            p.requires_grad_(False)
        yield model
    finally:
        for m, mode in modes:
            m.training = mode
        for p, flag in grads:
            p.requires_grad_(flag)
        with torch.no_grad():
            for b, before in buffers:
                b.copy_(before)
        for m, name, value in counters:
            if vars(m).get(name) != value:
                vars(m)[name] = value


@torch.no_grad()
def outputs(g: Callable[[Tensor], Tensor], X: Tensor, *, batch_size: int = 8192) -> Tensor:
    """Return what g says of all rows, (N, C), computed batch by batch without a graph."""
    return torch.cat([g(part) for part in X.split(batch_size)])


def predict_proba(model: nn.Module, X: Any, *, batch_size: int = 8192) -> np.ndarray:
    """Return the class probabilities (N, C) of a model that returns logits; a single logit gives two columns.

    >>> predict_proba(nn.Identity(), [[0.0, 0.0], [0.0, 9.0]]).round(2).tolist()
    [[0.5, 0.5], [0.0, 1.0]]
    """
    rows = torch.as_tensor(np.require(np.asarray(X), requirements="W"), dtype=torch.float32)
    with frozen(model):  # a prediction must not move BatchNorm's statistics
        out = outputs(lambda x: model(x.to(like(model))), rows, batch_size=batch_size).float().cpu()
    if out.ndim == 1 or out.shape[1] == 1:
        p = torch.sigmoid(out.view(-1, 1))
        return torch.cat([1 - p, p], 1).numpy()
    return out.softmax(1).numpy()
