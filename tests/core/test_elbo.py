"""The objective against formulas written out by hand, Dirichlet moments and torch.distributions."""

import numpy as np
import pytest
import torch
from scipy import special
from torch import nn
from torch.distributions import Bernoulli, Categorical, Dirichlet, Normal, kl_divergence

from bifkit.elbo import elbo, expected_log_likelihood, log_likelihood, soft_target, surprise, to_gain
from bifkit.gates import gate
from bifkit.presets import PRESETS, Settings

PAPER, RANK = PRESETS["paper"], PRESETS["rank"].for_data(5, 1.0)


def _problem(rows=6, features=4, classes=3, seed=0):
    torch.manual_seed(seed)
    g = nn.Sequential(nn.Linear(features, 8), nn.Tanh(), nn.Linear(8, classes)).requires_grad_(False)
    x, alpha = torch.randn(rows, features), torch.rand(rows, features) * 3 + 0.2
    return g, x, torch.randint(classes, (rows,)), alpha


# likelihoods

def test_likelihoods_are_those_of_torch_distributions():
    torch.manual_seed(0)
    logits, labels = torch.randn(50, 4), torch.randint(4, (50,))
    assert torch.allclose(log_likelihood(logits, labels, "categorical"), Categorical(logits=logits).log_prob(labels))
    soft = torch.rand(50, 4).softmax(1)
    every = torch.stack([Categorical(logits=logits).log_prob(torch.full((50,), c)) for c in range(4)], 1)
    assert torch.allclose(log_likelihood(logits, soft, "categorical"), (soft * every).sum(1), atol=1e-6)
    z, y = torch.randn(50, 1), torch.randint(2, (50,))
    assert torch.allclose(log_likelihood(z, y, "binary"), Bernoulli(logits=z[:, 0]).log_prob(y.float()), atol=1e-6)
    t, scale = torch.randn(50), 2.5
    expected = Normal(z[:, 0], scale).log_prob(t) + np.log(scale * np.sqrt(2 * np.pi))
    assert torch.allclose(log_likelihood(z, t, "regression", scale), expected, atol=1e-5)


def test_one_logit_and_two_logits_are_the_same_model():
    torch.manual_seed(0)
    z, y = 4 * torch.randn(50, 1), torch.randint(2, (50,))
    two = torch.cat([torch.zeros_like(z), z], 1)
    assert torch.allclose(log_likelihood(z, y, "binary"), log_likelihood(two, y, "categorical"), atol=1e-6)
    p, p2 = soft_target(z, "binary"), soft_target(two, "categorical")
    assert torch.allclose(p, p2[:, 1], atol=1e-6)
    assert torch.allclose(log_likelihood(z, p, "binary"), log_likelihood(two, p2, "categorical"), atol=1e-5)


def test_a_soft_target_is_minus_the_cross_entropy():
    torch.manual_seed(0)
    logits, p = torch.randn(20, 5), torch.rand(20, 5).softmax(1)
    expected = (p * (logits - logits.logsumexp(1, keepdim=True))).sum(1)
    assert torch.allclose(log_likelihood(logits, p, "categorical"), expected, atol=1e-6)
    own = soft_target(logits, "categorical")  # g's own prediction is its best explanation
    assert (log_likelihood(logits, own, "categorical") >= log_likelihood(logits.flip(1), own, "categorical")).all()
    assert torch.equal(soft_target(torch.tensor([[1.5], [2.0]]), "regression"), torch.tensor([1.5, 2.0]))


# the literal objective

def test_the_surprise_at_an_answer_is_its_entropy():
    logits = torch.linspace(-30, 30, 12).view(4, 3)
    entropy = Categorical(logits=logits.double()).entropy()
    assert torch.allclose(surprise(soft_target(logits.double(), "categorical"), "categorical"), entropy)
    one = logits[:, :1].double()
    assert torch.allclose(surprise(soft_target(one, "binary"), "binary"), Bernoulli(logits=one[:, 0]).entropy())
    assert surprise(torch.tensor([[1.0, 0.0]]), "categorical").tolist() == [0.0]  # a g that is sure


def test_what_there_is_to_gain_is_what_the_objective_gains_from_all_features():
    """From an answer that is the same for all rows, the mean of g's answers, to g's own."""
    g, x = nn.Linear(3, 4), torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
    answers = soft_target(g(x).detach(), "categorical")
    settings = Settings(point_estimate=True, gate="saturating", fill="zero")
    flat = lambda rows: answers.mean(0).log().expand(len(rows), -1)  # noqa: E731
    low, high = (elbo(model, x, answers, torch.ones(1, 3), settings.for_data(3, 1.0), kl_weight=0.0).item()
                 for model in (flat, g))
    gain = to_gain(float(surprise(answers.mean(0), "categorical")), float(surprise(answers, "categorical").mean()))
    assert high - low == pytest.approx(gain, abs=1e-5) and gain > 0


def test_the_literal_objective_written_out():
    """Eq. 7 in plain loops over the same draws: mean log softmax(g(f o x))_y minus the closed-form KL."""
    g, x, y, alpha = _problem()
    torch.manual_seed(3)
    value = elbo(g, x, y, alpha, PAPER, kl_weight=0.7)
    torch.manual_seed(3)
    draws = Dirichlet(alpha).rsample((PAPER.draws,)).numpy().astype(np.float64)  # (J, B, D)
    W1, b1, W2, b2 = (p.numpy().astype(np.float64) for p in g.parameters())
    total = 0.0
    for j in range(PAPER.draws):
        for n in range(len(x)):
            logits = W2 @ np.tanh(W1 @ (draws[j, n] * x[n].numpy()) + b1) + b2
            total += logits[y[n]] - np.log(np.exp(logits).sum())
    a, a0 = alpha.numpy().astype(np.float64), PAPER.prior
    kl = (special.gammaln(a.sum(1)) - special.gammaln(a).sum(1) - special.gammaln(4 * a0) + 4 * special.gammaln(a0)
          + ((a - a0) * (special.digamma(a) - special.digamma(a.sum(1))[:, None])).sum(1)).mean()
    assert float(value) == pytest.approx(total / (PAPER.draws * len(x)) - 0.7 * kl, rel=1e-4)


@pytest.mark.parametrize("rows", [6, 1])
def test_the_kl_term_is_the_mean_over_rows(rows):
    """The objective is linear in the weight of the KL: its slope is torch.distributions' own divergence."""
    g, x, y, alpha = _problem()
    s, alpha = PAPER.changed(point_estimate=True), alpha[:rows]
    with_kl, without = (elbo(g, x, y, alpha, s, kl_weight=w) for w in (1.0, 0.0))
    prior = Dirichlet(torch.full((4,), PAPER.prior))
    assert torch.isclose(without - with_kl, kl_divergence(Dirichlet(alpha), prior).mean(), rtol=1e-4)


def test_the_point_estimate_uses_the_mean_and_draws_nothing():
    g, x, y, alpha = _problem()
    s = PAPER.changed(point_estimate=True)
    state = torch.get_rng_state()
    value = expected_log_likelihood(g, x, y, alpha, s)
    assert torch.equal(state, torch.get_rng_state())
    mean = alpha / alpha.sum(1, keepdim=True)
    assert torch.isclose(value, -nn.functional.cross_entropy(g(mean * x), y))


def test_sampling_agrees_with_the_moments_of_the_dirichlet():
    """For a linear g with squared error E[(w.(f o x) - t)^2] needs only the Dirichlet's mean and covariance."""
    torch.manual_seed(0)
    g, x, alpha = nn.Linear(4, 1, bias=False), torch.randn(5, 4), torch.rand(5, 4) + 0.3
    t, J = torch.randn(5), 20_000
    s = PAPER.changed(draws=J)
    value = expected_log_likelihood(g, x, t, alpha, s, likelihood="regression", scale=1.3)
    expected = []
    for n in range(5):
        c, m = (g.weight[0] * x[n]).detach().double().numpy(), (alpha[n] / alpha[n].sum()).double().numpy()
        covariance = (np.diag(m) - np.outer(m, m)) / (float(alpha[n].sum()) + 1)
        expected.append(-0.5 * ((c @ m - float(t[n])) ** 2 + c @ covariance @ c) / 1.3**2)
    assert value.item() == pytest.approx(np.mean(expected), abs=0.01)


# relative fidelity

@pytest.mark.parametrize("likelihood", ["categorical", "regression"])
def test_the_relative_objective_by_hand(likelihood):
    """-log(0.01 - E) - w KL, with E over the same draws and both from torch.distributions."""
    g, x, y, alpha = _problem(classes=3 if likelihood == "categorical" else 1)
    y = y if likelihood == "categorical" else torch.randn(len(x))
    s = PAPER.changed(fidelity="relative", draws=40)
    torch.manual_seed(3)
    value = elbo(g, x, y, alpha, s, kl_weight=0.3, likelihood=likelihood, scale=1.7)
    torch.manual_seed(3)
    seen = (Dirichlet(alpha).rsample((40,)) * x).flatten(0, 1)
    if likelihood == "categorical":
        surprise = -Categorical(logits=g(seen)).log_prob(y.repeat(40)).mean()
    else:
        at_best = Normal(0.0, 1.7).log_prob(torch.zeros(()))
        surprise = (at_best - Normal(g(seen)[:, 0], 1.7).log_prob(y.repeat(40))).mean()
    kl = kl_divergence(Dirichlet(alpha), Dirichlet(torch.full((4,), s.prior))).mean()
    assert float(value) == pytest.approx(float(-torch.log(0.01 + surprise) - 0.3 * kl), rel=1e-4)


def test_without_a_kl_relative_and_absolute_gradients_are_parallel():
    """By the chain rule the first is the second over what is missing, 0.01 - E."""
    g, x, y, alpha = _problem()
    grads = {}
    for fidelity in ("relative", "absolute"):
        a = alpha.clone().requires_grad_(True)
        torch.manual_seed(3)
        value = elbo(g, x, y, a, PAPER.changed(fidelity=fidelity), kl_weight=0.0)
        value.backward()
        grads[fidelity] = a.grad
    assert torch.allclose(grads["relative"] * (0.01 - value.detach()), grads["absolute"], rtol=1e-4, atol=1e-7)
    assert (grads["absolute"] != 0).any()


# what g sees

class _Watch(nn.Module):
    """A g that remembers its input and returns two logits."""

    def forward(self, x):
        self.seen = x
        return torch.stack([x.sum(1), -x.sum(1)], 1)


def test_g_sees_every_draw_of_every_row_once():
    torch.manual_seed(0)
    x, alpha, y, g = torch.randn(3, 5), torch.rand(3, 5) + 0.5, torch.tensor([0, 1, 0]), _Watch()
    expected_log_likelihood(g, x, y, alpha, PAPER.changed(draws=7))
    f = g.seen.view(7, 3, 5) / x
    assert torch.allclose(f.sum(-1), torch.ones(7, 3), atol=1e-4)  # gate simplex, fill zero: f o x
    value = expected_log_likelihood(g, x, y, alpha, PAPER.changed(draws=7))
    rows = log_likelihood(g(g.seen), y.repeat(7), "categorical")
    assert torch.isclose(value, rows.mean())


def test_marginal_fill_takes_whole_other_rows_of_the_batch():
    torch.manual_seed(0)
    B, D = 6, 5
    x = torch.arange(B * D, dtype=torch.float32).view(B, D)
    alpha = torch.tensor([[1e4, 1e4, 1e-3, 1e-3, 1e-3]])  # the last three fade entirely
    g, s = _Watch(), Settings(gate="saturating", fill="marginal", draws=50)
    expected_log_likelihood(g, x, torch.zeros(B, dtype=torch.long), alpha, s)
    seen = g.seen.view(50, B, D)
    assert torch.allclose(seen[..., :2], x[:, :2].expand(50, B, 2))
    donors = ((seen[..., 2] - 2) / D).round()  # the row number each faded value came from
    for i in (2, 3, 4):
        assert torch.allclose(seen[..., i], donors * D + i, atol=1e-3)
    assert set(donors.unique().tolist()) == set(range(B))


def test_mean_fill_puts_the_mean_where_an_input_fades():
    torch.manual_seed(0)
    x, mean = torch.randn(4, 3), torch.tensor([10.0, 20.0, 30.0])
    g, s = _Watch(), Settings(gate="saturating", fill="mean")
    expected_log_likelihood(g, x, torch.zeros(4, dtype=torch.long), torch.tensor([[1e4, 1e4, 1e-3]]), s, mean=mean)
    assert torch.allclose(g.seen, torch.cat([x[:, :2], torch.full((4, 1), 30.0)], 1), atol=1e-3)


def test_features_of_a_group_share_their_gate():
    torch.manual_seed(0)
    x, groups = torch.rand(4, 5) + 1, torch.tensor([0, 1, 0, 2, 1])
    g = _Watch()
    expected_log_likelihood(g, x, torch.zeros(4, dtype=torch.long), torch.rand(4, 3) + 0.5, PAPER, groups=groups)
    m = g.seen.view(PAPER.draws, 4, 5) / x
    assert torch.allclose(m[..., 0], m[..., 2]) and torch.allclose(m[..., 1], m[..., 4])
    assert torch.allclose(m[..., 0] + m[..., 1] + m[..., 3], torch.ones(PAPER.draws, 4), atol=1e-5)


@pytest.mark.parametrize("gate", ["simplex", "max", "saturating"])
@pytest.mark.parametrize("fill", ["zero", "mean", "marginal"])
def test_every_gate_and_fill_has_a_finite_gradient_over_the_whole_range(gate, fill):
    g, x, y, _ = _problem(rows=64, features=5)
    torch.manual_seed(0)
    alpha = torch.exp(torch.empty(64, 5).uniform_(np.log(1e-3), np.log(1e4))).requires_grad_(True)
    value = elbo(g, x, y, alpha, Settings(gate=gate, fill=fill, draws=5, prior=0.1), kl_weight=0.1, mean=x.mean(0))
    value.backward()
    assert torch.isfinite(value) and torch.isfinite(alpha.grad).all() and (alpha.grad != 0).any()


@pytest.mark.parametrize("settings", [RANK, RANK.changed(draws=3, fill="mean"), RANK.changed(fidelity="absolute"),
                                      PRESETS["few"], PAPER, PAPER.changed(point_estimate=True)])
@pytest.mark.parametrize("one_for_all", [False, True])
def test_value_and_gradient_are_those_of_the_definition(settings, one_for_all):
    g, x, y, alpha = _problem(rows=30, features=5)
    found = []
    for way in ("ours", "plain"):
        a = (alpha[:1] if one_for_all else alpha).detach().clone().requires_grad_(True)
        torch.manual_seed(3)
        if way == "ours":
            value = elbo(g, x, y, a, settings, kl_weight=0.2, mean=x.mean(0))
        else:
            kl = kl_divergence(Dirichlet(a), Dirichlet(torch.full_like(a, settings.prior))).mean()
            value = _plainly(g, x, y, a, settings)
            value = (-torch.log(0.01 - value) if settings.fidelity == "relative" else value) - 0.2 * kl
        value.backward()
        found.append((value.item(), a.grad))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-5)
    assert torch.allclose(found[0][1], found[1][1], rtol=1e-3, atol=1e-5) and (found[0][1] != 0).any()


def _plainly(g, x, y, alpha, s):
    """The expected log-likelihood from its definition, with ``torch.distributions`` and autograd at every node."""
    B, D = x.shape
    rows = Dirichlet(alpha.expand(B, D))
    f = rows.mean.unsqueeze(0) if s.point_estimate else rows.rsample((s.draws,))
    donors = torch.zeros(len(f), B, D)
    if s.fill == "marginal":
        donors = x[torch.randint(B, (len(f) * B,))].view(len(f), B, D)
    elif s.fill == "mean":
        donors = x.mean(0).expand_as(f)
    m = torch.minimum(f * D, torch.ones(())) if s.gate == "saturating" else gate(f, s.gate)
    seen = (m * x + (1 - m) * donors).flatten(0, 1)
    return Categorical(logits=g(seen)).log_prob(y.repeat(len(f))).mean()
