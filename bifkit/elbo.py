"""The objective: expected log-likelihood of the gated input minus the KL to the prior (Eq. 4 and Eq. 7).

For rows x with Dirichlet parameters alpha(x), J draws f ~ Dir(alpha(x)) (or the point estimate f = mean, section 4.3)

    ELBO = mean over rows and draws of log p(target | g(gated x)) - kl_weight * mean over rows of KL(Dir(alpha), prior)

The target is the label, or g's own prediction on the whole input (``soft``), which explains the model rather than
the data. Likelihoods: ``categorical`` (two or more logits), ``binary`` (one logit), ``regression`` (Gaussian whose
scale is the target's own standard deviation, so that a unit of y does not change the balance with the KL).
"""

import torch
from torch.nn import functional as F

from bifkit.dirichlet import kl_slope, kl_torch, pull_back, rsample, sample
from bifkit.gates import gate, gated
from bifkit.passes import backpropagate

clamp_backward = torch.ops.aten.hardtanh_backward.default  # the gradient where a value was not clamped, else zero
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


def log_likelihood(output, target, likelihood, scale=1.0):
    """log p(target | output) of each row, (B, C) to (B,).

    >>> round(float(log_likelihood(torch.zeros(1, 2), torch.tensor([1]), "categorical")), 4)
    -0.6931
    """
    if likelihood == "categorical" and target.ndim == 2:  # probabilities
        return (output.log_softmax(1) * target).sum(1)
    if likelihood == "categorical":
        return -F.cross_entropy(output, target, reduction="none")
    output = output.squeeze(1)
    if likelihood == "binary":
        return -F.binary_cross_entropy_with_logits(output, target.to(output.dtype), reduction="none")
    return -0.5 * ((output - target) / scale) ** 2


def likelihood_slope(output, target, likelihood, scale=1.0):
    """(mean log-likelihood, gradient of minus it by g's outputs (B, C)).

    >>> value, slope = likelihood_slope(torch.zeros(1, 2), torch.tensor([[0.25, 0.75]]), "categorical")
    >>> round(float(value), 4), slope.tolist()
    (-0.6931, [[0.25, -0.25]])
    """
    output = output.detach()
    if likelihood == "categorical" and target.ndim == 2:  # probabilities: softmax minus target, without a graph
        log_p = output.log_softmax(1)
        value = torch.dot(log_p.flatten(), target.flatten()) / len(output)
        return value, log_p.exp_().sub_(target).div_(len(output))
    output.requires_grad_()
    value = log_likelihood(output, target, likelihood, scale).mean()
    (-value).backward()
    return value.detach(), output.grad


def expected_log_likelihood(g, x, target, alpha, s, *, groups=None, mean=None, likelihood="categorical", scale=1.0,
                            pool=None):
    """The left term of the ELBO, a mean over rows and draws; ``s`` are the Settings, alpha is (B or 1, G).

    Under the marginal fill the rows of ``pool`` (by default those of the batch) lend what stands for a faded input.

    Under the paper's gate equal importances halve both inputs, so that g (here the identity) sees (1, 0):

    >>> from bifkit.gates import PRESETS
    >>> s, x = PRESETS["paper"].changed(point_estimate=True), torch.tensor([[2.0, 0.0]])
    >>> value = expected_log_likelihood(torch.nn.Identity(), x, torch.tensor([0]), torch.ones(1, 2), s)
    >>> round(float(value), 4), round(float(-torch.log1p(torch.exp(torch.tensor(-1.0)))), 4)
    (-0.3133, -0.3133)
    """
    B, J = len(x), 1 if s.point_estimate else s.draws
    alpha = alpha.expand(B, -1)
    f = (alpha / alpha.sum(-1, keepdim=True)).unsqueeze(0) if s.point_estimate else rsample(alpha, J)  # (J, B, G)
    m = gate(f, s.gate)
    seen = gated(x, m if groups is None else m[..., groups], s.fill, _donors(x, s, J, mean, pool))  # (J, B, D)
    return log_likelihood(g(seen.reshape(J * B, -1)), _repeated(target, J), likelihood, scale).mean()


def _donors(x, s, J, mean, pool=None):
    """What stands where an input has faded, (J, B, D); None for the fill zero."""
    if s.fill == "marginal":
        pool = x if pool is None else pool
        return pool.index_select(0, torch.randint(len(pool), (J * len(x),), device=x.device)).view(J, *x.shape)
    return mean.expand(J, *x.shape) if s.fill == "mean" else None


def _repeated(target, J):
    return target if J == 1 else target.repeat(J, *[1] * (target.ndim - 1))


def elbo(g, x, target, alpha, s, *, kl_weight, **kw):
    """The objective of one batch, to be maximised: (expected log-likelihood - kl_weight * KL, KL).

    >>> from bifkit.gates import PRESETS
    >>> s, x = PRESETS["paper"].changed(point_estimate=True), torch.tensor([[2.0, 0.0]])
    >>> value, kl = elbo(torch.nn.Identity(), x, torch.tensor([0]), torch.ones(1, 2), s, kl_weight=0.1)
    >>> round(float(kl), 4), round(float(value), 4)  # -0.3133 - 0.1 * KL(Dir(1, 1) || Dir(.1, .1))
    (1.1814, -0.4314)
    """
    divergence = kl_torch(alpha, s.prior).mean()
    value = expected_log_likelihood(g, x, target, alpha, s, **kw)
    return value - kl_weight * divergence, divergence


def descend(g, x, target, alpha, s, *, kl_weight, groups=None, **kw):
    """(expected log-likelihood, gradient of minus the objective by alpha): that of ``(-elbo(...)[0]).backward()``.

    What else learns is given its gradient on the way. The KL comes in by its gradient, because its value would cost two
    more special functions a step. Under the gate and fill of ``rank`` a graph follows g alone.

    >>> from bifkit.gates import PRESETS
    >>> s, x, alpha = PRESETS["paper"].changed(point_estimate=True), torch.tensor([[2.0, 0.0]]), torch.ones(1, 2)
    >>> value, slope = descend(torch.nn.Identity(), x, torch.tensor([0]), alpha, s, kl_weight=0.1)
    >>> round(float(value), 4), slope.shape
    (-0.3133, torch.Size([1, 2]))
    """
    alpha = alpha.detach()
    if s.gate == "saturating" and s.fill != "zero" and not s.point_estimate and groups is None:
        value, slope = _saturating(g, x, target, alpha, s, **kw)
    else:
        leaf = alpha.clone().requires_grad_()
        value = expected_log_likelihood(g, x, target, leaf, s, groups=groups, **kw)
        (-value).backward()
        slope = leaf.grad
    return value.detach(), slope.add_(kl_slope(alpha, s.prior), alpha=kl_weight / len(alpha))


def _saturating(g, x, target, alpha, s, *, mean=None, likelihood="categorical", scale=1.0):
    """(expected log-likelihood, gradient of minus it by alpha), gate "saturating", with donors; node by node, as in
    ``expected_log_likelihood``, the same takes longer."""
    (B, D), J = x.shape, s.draws
    spread = alpha.expand(B, -1)
    f = sample(spread, J)  # (J, B, D)
    donors = _donors(x, s, J, mean)
    opened = f * D
    seen = torch.lerp(donors, x.expand_as(f), opened.clamp(max=1.0)).view(J * B, D).requires_grad_()
    output = g(seen)
    value, slope = likelihood_slope(output, _repeated(target, J), likelihood, scale)
    backpropagate(output, slope)
    slope = seen.grad.view(J, B, D).mul_(x - donors).mul_(D)
    slope = pull_back(f, spread.expand_as(f), clamp_backward(slope, opened, -1.0, 1.0))  # by f, then by alpha
    slope = slope[0] if J == 1 else slope.sum(0)
    return value, slope if len(alpha) == B else slope.sum(0, keepdim=True)
