"""The passes of the importance network that are written out: those of torch's graph, gradient by gradient."""

import copy

import pytest
import torch
from torch import nn

from bifkit import passes
from bifkit.networks import GlobalAlpha, ImportanceNetwork
from bifkit.optim import flattened

IDLE = ("body.0.bias", "body.3.bias")  # BatchNorm takes them away again


def _pair(rows, features, groups, hidden):
    torch.manual_seed(rows)
    net = ImportanceNetwork(features, groups, hidden=hidden).double().train()
    net.standardise(torch.randn(features), torch.rand(features) + 0.5)
    for norm in (net.body[1], net.body[4]):
        nn.init.normal_(norm.weight, 1.0, 0.3)
        nn.init.normal_(norm.bias)
    return net, copy.deepcopy(net), 3 * torch.randn(rows, features, dtype=torch.float64)


@pytest.mark.parametrize("rows, features, groups, hidden", [(2, 2, 2, 4), (50, 11, 11, 100), (200, 7, 3, 20)])
def test_the_written_out_passes_are_those_of_the_graph(rows, features, groups, hidden):
    """Twice, so that nothing is added up; running moments too."""
    ours, plain, x = _pair(rows, features, groups, hidden)
    flattened(ours.parameters())
    written = passes.of(ours)
    assert type(written) is passes.Layers
    for _ in range(2):
        plain.zero_grad()
        graph = passes.Graph(plain)
        expected = graph.forward(x)
        found = written.forward(x)
        assert torch.allclose(found, expected) and not found.requires_grad and not expected.requires_grad
        slope = torch.randn_like(found)
        written.backward(slope)
        graph.backward(slope)
        for (name, a), b in zip(ours.named_parameters(), plain.parameters(), strict=True):
            assert torch.allclose(a.grad, b.grad, rtol=1e-6, atol=1e-9 if rows > 2 else 1e-6), name
            assert (a.grad != 0).any() == (name not in IDLE), name
    for name, buffer in ours.named_buffers():
        assert name.endswith("num_batches_tracked") or torch.allclose(buffer, plain.get_buffer(name)), name


def test_other_networks_go_by_the_graph():
    assert type(passes.of(GlobalAlpha(3))) is passes.Graph
    assert type(passes.of(ImportanceNetwork(16, 4, image=(4, 4)))) is passes.Graph
    assert type(passes.of(nn.Linear(2, 2))) is passes.Graph
