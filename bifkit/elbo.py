"""The objective: expected log-likelihood of the gated input minus the KL to the prior (Eq. 4 and Eq. 7).

For rows x with Dirichlet parameters alpha(x), J draws f ~ Dir(alpha(x)) (or the point estimate f = mean, section 4.3)

    ELBO = mean over rows and draws of log p(target | g(gated x)) - kl_weight * mean over rows of KL(Dir(alpha), prior)

The target is the label, or g's own prediction on the whole input (``soft``), which explains the model rather than
the data. Likelihoods: ``categorical`` (two or more logits), ``binary`` (one logit), ``multilabel`` (a logit for each of
several labels, which are independent given x), ``regression`` (Gaussian whose scale is the target's own standard
deviation, each output's own, so that a unit of y does not change the balance with the KL).

That is fidelity in nats, ``absolute``. Under ``relative`` fidelity the left term is -log of the mean surprise (minus
the mean log-likelihood, plus a hundredth of a nat). It is the likelihood of surprises that are exponentially
distributed with a scale that is learned along (for a regression: Gaussian errors with a learned variance), so that what
an explanation gains counts in parts of what it still lacks, and the price of the KL falls with it.
"""

import math

import torch
from torch.nn import functional as F

from bifkit.dirichlet import kl_to_prior, rsample
from bifkit.gates import gate, gated

SHARE = 4  # each of several classes sees a quarter of a batch at a step: of ten, g sees 2.5 times the rows of one
CLOSED = 0.01  # nats: added to a row's surprise, so that one that can vanish is not chased for ever


def elbo(g, x, target, alpha, settings, *, kl_weight, **likelihood):
    """The objective of one batch, to be maximised.

    Parameters
    ----------
    g : callable
        The frozen model: rows (B, D) to outputs (B, C).
    x : Tensor (B, D)
        Rows; what they have beyond the D gated values, g sees as it is.
    target : Tensor
        Labels (B,), class probabilities (B, C) or values (B,); (B, C) of several labels or values, or of an alpha for
        each of several classes.
    alpha : Tensor (B, G) or (1, G); (C, B, G) or (C, 1, G) of several classes
        Dirichlet parameters of each row, or one for all.
    settings : Settings
        Gate, fill, fidelity, prior, number of draws.
    kl_weight : float
        Weight of the mean KL of a row.
    **likelihood
        Further arguments of ``expected_log_likelihood``.

    >>> from bifkit.presets import preset
    >>> s, x = preset("paper", point_estimate=True), torch.tensor([[2.0, 0.0]])
    >>> value = elbo(torch.nn.Identity(), x, torch.tensor([0]), torch.ones(1, 2), s, kl_weight=0.1)
    >>> round(float(value), 4)  # -0.3133 - 0.1 * KL(Dir(1, 1) || Dir(.1, .1)), which is 1.1814
    -0.4314
    """
    if alpha.ndim == 3:
        x, target, alpha = _rows_of_each_class(x, target, alpha)
    expected = expected_log_likelihood(g, x, target, alpha, settings, **likelihood)
    if settings.fidelity == "relative":
        expected = -(CLOSED - expected).log()
    return (expected.mean() if expected.ndim else expected) - kl_weight * kl_to_prior(alpha, settings.prior).mean()


def _rows_of_each_class(x, target, alpha):
    """A random part of a batch for each of C classes: x (C * b, D), targets (C * b,), alpha (C, b, G) or (C, 1, G)."""
    C, B = len(alpha), len(x)
    b = min(max(-(-B // min(C, SHARE)), 2), B)
    rows = torch.rand(C, B, device=x.device).argsort(1)[:, :b]
    if alpha.shape[1] > 1:
        alpha = alpha.gather(1, rows.unsqueeze(-1).expand(-1, -1, alpha.shape[2]))
    return x[rows.flatten()], target.T.gather(1, rows).flatten(), alpha


def expected_log_likelihood(g, x, target, alpha, settings, *, groups=None, mean=None, pool=None,
                            likelihood="categorical", scale=1.0):
    """The left term of the ELBO, a mean over rows and draws; one for each of C classes, whose rows stand one by one.

    Parameters
    ----------
    groups : Tensor (D,), optional
        The group of each input; inputs of one group share one importance.
    mean, pool : Tensor, optional
        What fills a faded input: see ``gated``.
    likelihood : str, default "categorical"
        Or "binary", "multilabel", "regression".
    scale : float or Tensor (C,), default 1
        Standard deviation of a regression, or of each of its outputs.

    Under the paper's gate equal importances halve both inputs, so that g (here the identity) sees (1, 0):

    >>> from bifkit.presets import preset
    >>> s, x = preset("paper", point_estimate=True), torch.tensor([[2.0, 0.0]])
    >>> value = expected_log_likelihood(torch.nn.Identity(), x, torch.tensor([0]), torch.ones(1, 2), s)
    >>> round(float(value), 4), round(float(torch.tensor([1.0, 0.0]).log_softmax(0)[0]), 4)
    (-0.3133, -0.3133)
    """
    classes = len(alpha) if alpha.ndim == 3 else None
    if classes:
        alpha = alpha.expand(-1, len(x) // classes, -1).flatten(0, 1)
    alpha = alpha.expand(len(x), -1)  # (B, G)
    if settings.point_estimate:
        f = (alpha / alpha.sum(-1, keepdim=True)).unsqueeze(0)  # (1, B, G)
    else:
        f = rsample(alpha, settings.draws)  # (J, B, G)
    m = gate(f, settings.gate)
    if groups is not None:
        m = m[..., groups]
    D = m.shape[-1]
    seen = gated(x[:, :D], m, settings.fill, mean=mean, pool=pool)  # (J, B, D)
    if x.shape[1] > D:
        seen = torch.cat([seen, x[:, D:].expand(len(f), -1, -1)], -1)
    target = target.repeat(len(f), *[1] * (target.ndim - 1)) if len(f) > 1 else target
    value = log_likelihood(g(seen.flatten(0, 1)), target, likelihood, scale)
    return value.view(len(f), classes, -1).mean((0, 2)) if classes else value.mean()


def log_likelihood(output, target, likelihood, scale=1.0):
    """log p(target | output) of each row, (B, C) to (B,).

    >>> round(float(log_likelihood(torch.zeros(1, 2), torch.tensor([1]), "categorical")), 4)
    -0.6931
    >>> round(float(log_likelihood(torch.zeros(1, 2), torch.tensor([[1.0, 1.0]]), "multilabel")), 4)  # two labels
    -1.3863
    """
    if likelihood == "categorical":
        if target.ndim == 2:  # probabilities; the labels' case below gathers instead
            return (output.log_softmax(1) * target).sum(1)
        return -F.cross_entropy(output, target, reduction="none")
    output = output.squeeze(1)  # (B,) where there is one output
    if likelihood == "regression":
        value = -0.5 * ((output - target) / scale) ** 2
    else:
        value = -F.binary_cross_entropy_with_logits(output, target.to(output.dtype), reduction="none")
    return value.sum(1) if value.ndim == 2 else value


def soft_target(output, likelihood):
    """g's own prediction as a target: class probabilities (B, C), P(y=1) (B,), or the value (B,); of several (B, C).

    >>> soft_target(torch.zeros(1, 2), "categorical").tolist()
    [[0.5, 0.5]]
    """
    if likelihood == "categorical":
        return output.softmax(1)
    return output.squeeze(1) if likelihood == "regression" else output.squeeze(1).sigmoid()


def surprise(answer, likelihood):
    """Entropy of answers as ``soft_target`` gives them, (B, C) or (B,) to (B,).

    >>> surprise(torch.tensor([0.5, 1.0]), "binary")  # log 2, and nothing
    tensor([0.6931, 0.0000])
    """
    if likelihood == "categorical":
        return torch.special.entr(answer).sum(-1)
    value = torch.special.entr(answer) + torch.special.entr(1 - answer)
    return value.sum(-1) if likelihood == "multilabel" else value


def to_gain(without, with_all):
    """The most that relative fidelity can rise, from a surprise that knows no feature to one that knows all.

    Parameters
    ----------
    without, with_all : float
        Entropy of g's mean answer, and mean entropy of its answers; of a regression 1/2 for each output, and 0.

    >>> round(to_gain(0.5, 0.0), 2), round(to_gain(0.6931, 0.6831), 2)  # a regression; a g that hardly knows anything
    (3.93, 0.01)
    """
    return max(math.log((CLOSED + without) / (CLOSED + with_all)), 0.0)  # rounding, where g's answers are all the same


def one_against_rest(output, class_number):
    """The logit of one class against all others, (B, C) to (B, 1): log p_c - log(1 - p_c).

    >>> one_against_rest(torch.tensor([[0.0, 0.0, 0.0]]), 1).exp().round(decimals=3).tolist()
    [[0.5]]
    """
    others = torch.arange(output.shape[1], device=output.device) != class_number
    return (output[:, class_number] - output[:, others].logsumexp(1)).unsqueeze(1)


def of_class(output, class_number, likelihood):
    """What g says of one class alone, (B, C) to (B, 1): its logit against the rest, or the one label's or value's own.

    >>> of_class(torch.tensor([[1.0, 2.0, 3.0]]), 1, "regression").tolist()
    [[2.0]]
    """
    if likelihood == "categorical":
        return one_against_rest(output, class_number)
    return output[:, class_number].unsqueeze(1)


def target_reader(target, likelihood, class_number=None):
    """A function (g's outputs, labels) -> targets of a batch; of one class, whether it is that class.

    >>> target_reader("labels", "categorical", 2)(None, torch.tensor([0, 2]))
    tensor([0., 1.])
    """
    if class_number is None:
        return lambda output, labels: labels if target == "labels" else soft_target(output, likelihood)
    if target == "labels":
        return lambda output, labels: (labels == class_number).float() if labels.ndim == 1 else labels[:, class_number]
    one = "regression" if likelihood == "regression" else "binary"
    return lambda output, labels: soft_target(of_class(output, class_number, likelihood), one)


def of_classes(g, classes, likelihood, *, target="soft", scale=1.0, draws=1):
    """What is explained of g, where single classes may have been asked for.

    Parameters
    ----------
    g : callable
        Rows (B, D) to outputs (B, C).
    classes : int, list of int or None
        One class; several, each by an alpha of its own; None: the whole decision.
    likelihood : str
        Of all outputs.
    target : str
        "labels" or "soft".
    scale : float or Tensor (C,)
        Standard deviations of a regression.
    draws : int
        Samples of f per row, J.

    Returns
    -------
    (g, reader of targets, likelihood, scale)
        For ``expected_log_likelihood``; g of several classes gets J blocks of rows, each of a block per class.

    >>> g, read, likelihood, _ = of_classes(torch.nn.Identity(), [0, 2], "regression", scale=torch.ones(3))
    >>> g(torch.arange(6.0).view(2, 3)).tolist(), read(torch.arange(3.0).view(1, 3), None).tolist()
    ([[0.0], [5.0]], [[0.0, 2.0]])
    """
    if classes is None:
        return g, target_reader(target, likelihood), likelihood, scale
    one = "regression" if likelihood == "regression" else "binary"
    if not isinstance(classes, list):
        read, unit = target_reader(target, likelihood, classes), scale[classes] if one == "regression" else 1.0
        return (lambda x: of_class(g(x), classes, likelihood)), read, one, unit
    if len(classes) == 1:
        return of_classes(g, classes[0], likelihood, target=target, scale=scale)
    units = [scale[c] if one == "regression" else 1.0 for c in classes]
    readers = [target_reader(target, likelihood, c) for c in classes]

    def of_each(x):
        output = g(x)
        number = torch.tensor(classes, device=x.device).repeat_interleave(len(x) // (draws * len(classes)))
        number = number.repeat(draws).unsqueeze(1)  # the class of each row
        value = output.gather(1, number)
        if likelihood == "categorical":
            value = value - output.scatter(1, number, -math.inf).logsumexp(1, keepdim=True)  # against the rest
        return value / scale[number] if one == "regression" else value

    def read_each(output, labels):
        return torch.stack([read(output, labels) / unit for read, unit in zip(readers, units, strict=True)], 1)

    return of_each, read_each, one, 1.0
