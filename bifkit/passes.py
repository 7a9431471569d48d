"""The forward and backward pass of an importance network in training, apart from that of g.

Training needs two things of a network: alpha of a batch, and, once the gradient of the objective by alpha is known
(``elbo.descend``), that of its parameters. ``of(network)`` gives both, by torch's graph for any network (``Graph``).
The importance network for tables is always the same layers; its passes are written out with the kernels that the graph
would call (``Layers``), each gradient straight into its place. For networks this small the graph around the kernels is
a good part of the price.
"""

import torch
from torch.nn import functional as F

from bifkit.dirichlet import FLOOR
from bifkit.networks import ImportanceNetwork

softplus_backward = torch.ops.aten.softplus_backward.default
relu_backward = torch.ops.aten.threshold_backward.default
batch_norm_backward = torch.ops.aten.native_batch_norm_backward.default


def backpropagate(output, slope):
    """``output.backward(slope)`` by the engine behind it: the first such call of a process has torch load sympy, for
    seconds, to compare two shapes.

    >>> x = torch.ones(2, requires_grad=True); backpropagate(3 * x, torch.tensor([1.0, 2.0])); x.grad.tolist()
    [3.0, 6.0]
    """
    engine = torch.autograd.Variable._execution_engine
    engine.run_backward((output,), (slope,), False, False, (), allow_unreachable=True, accumulate_grad=True)


class Graph:
    """Any network, by autograd.

    >>> net = torch.nn.Linear(2, 2, bias=False); passes = Graph(net)
    >>> passes.backward(torch.ones_like(passes.forward(torch.ones(1, 2)))); net.weight.grad.tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """

    def __init__(self, net):
        self.net = net

    def forward(self, x):
        """alpha of the rows x, cut off from the network."""
        self.alpha = self.net(x)
        return self.alpha.detach()

    def backward(self, slope):
        """Add to the parameters' gradients what ``slope``, the gradient by alpha, makes of them."""
        backpropagate(self.alpha, slope)


class Layers:
    """The importance network for tables in training mode; its parameters' gradients must be there already.

    >>> net = ImportanceNetwork(2, 3, hidden=4).train()
    >>> for p in net.parameters():
    ...     p.grad = torch.zeros_like(p)
    >>> passes = Layers(net); passes.backward(torch.ones_like(passes.forward(torch.randn(5, 2))))
    >>> bool((net.body[-1].weight.grad != 0).any())
    True
    """

    def __init__(self, net):
        first, norm1, _, second, norm2, _, last = net.body
        self.standardised, self.first, self.second = net.standardised, _Hidden(first, norm1), _Hidden(second, norm2)
        self.weight, self.bias, self.grads = last.weight.data, last.bias.data, (last.weight.grad, last.bias.grad)

    @torch.no_grad()
    def forward(self, x):
        """alpha of the rows x."""
        self.hidden = self.second.forward(self.first.forward(self.standardised(x)))
        self.before = F.linear(self.hidden, self.weight, self.bias)
        return F.softplus(self.before).add_(FLOOR)

    @torch.no_grad()
    def backward(self, slope):
        """Write the parameters' gradients from ``slope``, the gradient by alpha."""
        slope = softplus_backward(slope, self.before, 1, 20)
        torch.mm(slope.t(), self.hidden, out=self.grads[0])
        torch.sum(slope, 0, out=self.grads[1])
        slope = self.second.backward(slope @ self.weight)
        self.first.backward(slope @ self.second.weight)


class _Hidden:
    """Linear, BatchNorm, ReLU. The linear layer's bias, which the norm takes away again, has no gradient: zero stays.
    The norm's count of batches, which only an average without momentum reads, stays too."""

    def __init__(self, linear, norm):
        self.weight, self.bias, self.weight_grad = linear.weight.data, linear.bias.data, linear.weight.grad
        self.scale, self.shift, self.grads = norm.weight.data, norm.bias.data, (norm.weight.grad, norm.bias.grad)
        self.running, self.momentum, self.eps = (norm.running_mean, norm.running_var), norm.momentum, norm.eps

    def forward(self, x):
        self.x, self.before = x, F.linear(x, self.weight, self.bias)
        after, *self.moments = torch.native_batch_norm(self.before, self.scale, self.shift, *self.running, True,
                                                       self.momentum, self.eps)
        self.after = after.relu_()
        return after

    def backward(self, slope):
        """The gradient before the norm, from the one after the ReLU."""
        slope = relu_backward(slope, self.after, 0)
        slope, scale, shift = batch_norm_backward(slope, self.before, self.scale, *self.running, *self.moments, True,
                                                  self.eps, [True] * 3)
        self.grads[0].copy_(scale)
        self.grads[1].copy_(shift)
        torch.mm(slope.t(), self.x, out=self.weight_grad)
        return slope


def of(net):
    """The passes of a network whose parameters have gradients already.

    >>> type(of(torch.nn.Linear(2, 2))).__name__
    'Graph'
    """
    return Layers(net) if isinstance(net, ImportanceNetwork) and net.image is None else Graph(net)
