"""The objective: expected log-likelihood of the gated input minus the KL to the prior (Eq. 4 and Eq. 7).

For rows x with Dirichlet parameters alpha(x), J draws f ~ Dir(alpha(x)) (or the point estimate f = mean, section 4.3)

    ELBO = mean over rows and draws of log p(target | g(gated x)) - kl_weight * mean over rows of KL(Dir(alpha), prior)

The target is the label, or g's own prediction on the whole input (``soft``), which explains the model rather than
the data. Likelihoods: ``categorical`` (two or more logits), ``binary`` (one logit), ``regression`` (Gaussian whose
scale is the target's own standard deviation, so that a unit of y does not change the balance with the KL).
"""

import torch
from torch.nn import functional as F

from bifkit.dirichlet import kl_slope, kl_torch, rsample, sample
from bifkit.gate import gate, gated, saturated

LIKELIHOODS = ("categorical", "binary", "regression")


def soft_target(output, likelihood):
    """g's own prediction as a target: class probabilities (B, C), P(y=1) (B,), or the value (B,).

    >>> soft_target(torch.zeros(1, 2), "categorical").tolist()
    [[0.5, 0.5]]
    """
    if likelihood == "categorical":
        return output.softmax(1)
    return output.squeeze(1).sigmoid() if likelihood == "binary" else output.squeeze(1)


def one_against_rest(output, class_number):
    """The logit of one class against all others, (B, C) to (B, 1): log p_c - log(1 - p_c).

    >>> one_against_rest(torch.tensor([[0.0, 0.0, 0.0]]), 1).exp().round(decimals=3).tolist()
    [[0.5]]
    """
    others = torch.arange(output.shape[1], device=output.device) != class_number
    return (output[:, class_number] - output[:, others].logsumexp(1)).unsqueeze(1)


def reader(target, likelihood, class_number=None):
    """How a batch's target is read off g's outputs and the labels; of one class, whether it is that class.

    >>> reader("labels", "categorical", 2)(None, torch.tensor([0, 2]))
    tensor([0., 1.])
    """
    if target == "labels":
        return lambda output, labels: labels if class_number is None else (labels == class_number).float()
    if class_number is None:
        return lambda output, labels: soft_target(output, likelihood)
    return lambda output, labels: soft_target(one_against_rest(output, class_number), "binary")


class _Soft(torch.autograd.Function):
    """sum_c target_c log p_c of each row as one node; cross_entropy and autograd take half as long again."""

    @staticmethod
    def forward(ctx, output, target):
        log_p = output.log_softmax(1)
        ctx.save_for_backward(log_p, target)
        return (log_p * target).sum(1)

    @staticmethod
    def backward(ctx, grad):
        log_p, target = ctx.saved_tensors
        return grad.unsqueeze(1) * (target - log_p.exp() * target.sum(1, keepdim=True)), None


def log_likelihood(output, target, likelihood, scale=1.0):
    """log p(target | output) of each row, (B, C) to (B,).

    >>> round(float(log_likelihood(torch.zeros(1, 2), torch.tensor([1]), "categorical")), 4)
    -0.6931
    """
    if likelihood == "categorical" and target.ndim == 2:  # probabilities
        return _Soft.apply(output, target)
    if likelihood == "categorical":
        return -F.cross_entropy(output, target, reduction="none")
    output = output.squeeze(1)
    if likelihood == "binary":
        return -F.binary_cross_entropy_with_logits(output, target.to(output.dtype), reduction="none")
    return -0.5 * ((output - target) / scale) ** 2


def expected_log_likelihood(g, x, target, alpha, s, *, groups=None, mean=None, likelihood="categorical", scale=1.0,
                            pool=None):
    """The left term of the ELBO, a mean over rows and draws; ``s`` are the Settings, alpha is (B or 1, G).

    Under the marginal fill the rows of ``pool`` (by default those of the batch) lend what stands for a faded input.

    Under the paper's gate equal importances halve both inputs, so that g (here the identity) sees (1, 0):

    >>> from bifkit.gate import PRESETS
    >>> s, x = PRESETS["paper"].changed(point_estimate=True), torch.tensor([[2.0, 0.0]])
    >>> value = expected_log_likelihood(torch.nn.Identity(), x, torch.tensor([0]), torch.ones(1, 2), s)
    >>> round(float(value), 4), round(float(-torch.log1p(torch.exp(torch.tensor(-1.0)))), 4)
    (-0.3133, -0.3133)
    """
    B, J = len(x), 1 if s.point_estimate else s.draws
    alpha = alpha if len(alpha) == B else alpha.expand(B, -1)
    at_once = s.gate == "saturating" and s.fill != "zero" and not s.point_estimate and groups is None
    if s.point_estimate:
        f = (alpha / alpha.sum(-1, keepdim=True)).unsqueeze(0)  # (1, B, G)
    else:
        f = sample(alpha, J) if at_once else rsample(alpha, J)  # (J, B, G)
    donors = None
    if s.fill == "marginal":
        pool = x if pool is None else pool
        donors = pool[torch.randint(len(pool), (J, B), device=x.device)]  # (J, B, D)
    elif s.fill == "mean":
        donors = mean.expand(J, *x.shape)
    if at_once:
        seen = saturated(alpha, f, x, donors)
    else:
        m = gate(f, s.gate)
        seen = gated(x, m if groups is None else m[..., groups], s.fill, donors)  # (J, B, D)
    seen = seen.reshape(J * B, -1)
    if J > 1:
        target = target.repeat(J, *[1] * (target.ndim - 1))
    return log_likelihood(g(seen), target, likelihood, scale).mean()


def elbo(g, x, target, alpha, s, *, kl_weight, **kw):
    """The objective of one batch, to be maximised: (expected log-likelihood - kl_weight * KL, KL).

    >>> from bifkit.gate import PRESETS
    >>> s, x = PRESETS["paper"].changed(point_estimate=True), torch.tensor([[2.0, 0.0]])
    >>> value, kl = elbo(torch.nn.Identity(), x, torch.tensor([0]), torch.ones(1, 2), s, kl_weight=0.1)
    >>> round(float(kl), 4), round(float(value), 4)  # -0.3133 - 0.1 * KL(Dir(1, 1) || Dir(.1, .1))
    (1.1814, -0.4314)
    """
    divergence = kl_torch(alpha, s.prior).mean()
    value = expected_log_likelihood(g, x, target, alpha, s, **kw)
    return value - kl_weight * divergence, divergence


def descend(g, x, target, alpha, s, *, kl_weight, **kw):
    """One backward pass of minus the objective: gradients as ``(-elbo(...)[0]).backward()`` gives them.

    Returns the expected log-likelihood alone. The KL comes in by its gradient, because its value would cost two more
    special functions a step.

    >>> from bifkit.gate import PRESETS
    >>> s, x, alpha = PRESETS["paper"].changed(point_estimate=True), torch.tensor([[2.0, 0.0]]), torch.ones(1, 2)
    >>> round(float(descend(torch.nn.Identity(), x, torch.tensor([0]), alpha.requires_grad_(), s, kl_weight=0.1)), 4)
    -0.3133
    """
    value = expected_log_likelihood(g, x, target, alpha, s, **kw)
    slope = kl_slope(alpha.detach(), s.prior) * (kl_weight * alpha.shape[-1] / alpha.numel())
    torch.autograd.backward([value, alpha], [-torch.ones_like(value), slope])
    return value.detach()
