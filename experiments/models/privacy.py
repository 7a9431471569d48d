"""Differentially private training (DP-SGD) and the ledger of what it guarantees.

Training
    ``dp_train`` runs DP-SGD with Opacus' own parts: its Poisson sampler, its ghost clipping (per-sample norms without
    per-sample gradients, the fastest mode on a CPU) and its noisy optimiser. Each step takes every row with probability
    q = batch_size / N, clips each row's gradient to norm C, sums, adds N(0, (sigma C)^2) to every coordinate, divides
    by the *expected* batch size and hands the result to Adam. The parts are put together here because
    ``PrivacyEngine`` would replace q by 1 / len(loader), rounding it. sigma = 0 runs the same code without noise: the
    non-private reference is trained and clipped like the private models. What would void the guarantee is refused
    before a step is taken: rows with NaN, a model that mixes the rows of a batch, gradients that are clipped wrongly.
    By default the noise is seeded, to repeat a run; ``secure=True`` takes it from the operating system.

Accounting
    The guarantee is (epsilon, delta) for adding or removing one row (one record, not one person). ``ledger``
    lists the epsilon of each run by every accountant, what that accountant assumes, and whether it holds:

    ============== ============================================================ ==================
    accountant     assumes                                                      neighbouring sets
    ============== ============================================================ ==================
    paper          batches of fixed size drawn anew without replacement         replace one row
    autodp_poisson Poisson sampling                                             add or remove one
    opacus_rdp     Poisson sampling                                             add or remove one
    prv            Poisson sampling; tight up to a stated numerical error       add or remove one
    pld            Poisson sampling; tight, by other authors (dp-accounting)    add or remove one
    gdp            a central limit for many steps: an approximation, no bound   add or remove one
    sequential     every row once per epoch in fixed slices, no amplification   replace one row
    ============== ============================================================ ==================

    ``paper`` reproduces the paper's noise table (supplement, "Feature importance vs privacy"). Replacing a row moves
    the clipped sum by up to 2C, so ``paper`` and ``sequential`` ask for noise of 2 sigma C. The authors' code added
    it, but cut its batches in a fixed order, for which ``sequential`` is what holds.

>>> [round(float(paper_epsilon(s)), 2) for s in (2.3, 17)]
[4.01, 0.48]
"""

import math
import os
import random
import warnings
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
import torch
from scipy.optimize import brentq
from scipy.special import ndtri
from scipy.stats import norm
from torch import nn

from data_prep.seeding import derive, seed_all
from experiments.models.classifiers import freeze
from experiments.models.row_check import check_rows_apart, perturbed, without_dropout

NOISE = (0.0, 1.35, 2.3, 4.4, 8.4, 17.0)  # sigma of the paper's noise table
PAPER_EPSILON = {0.0: math.inf, 1.35: 8.07, 2.3: 4.01, 4.4: 1.94, 8.4: 0.984, 17.0: 0.48}
PAPER_RATE, PAPER_STEPS = 1000 / 29304, 580  # 90 % of 32561 rows, batches of 1000, 20 epochs of 29 steps
DELTA = 1e-5
# Opacus' own orders stop at 63, too low for much noise: epsilon would come out far too large
ORDERS = [1 + x / 10 for x in range(1, 100)] + list(range(11, 64)) + list(range(64, 513, 8))

ASSUMES = {
    "paper": "fixed-size batches drawn anew without replacement; noise of sigma x 2C; replace one row",
    "autodp_poisson": "Poisson sampling; noise of sigma x C; add or remove one row",
    "opacus_rdp": "Poisson sampling; noise of sigma x C; add or remove one row",
    "prv": "Poisson sampling; noise of sigma x C; add or remove one row; tight to a twentieth of epsilon",
    "pld": "as prv, by dp-accounting; its error is a ten-thousandth of epsilon or less, so it lies just below prv",
    "gdp": "as prv, in the limit of many steps: an approximation below the truth, not a guarantee",
    "sequential": "each row once an epoch, no amplification; noise of sigma x 2C; replace one row",
}
HOLDS = {"poisson": ("prv", "pld", "opacus_rdp", "autodp_poisson"), "sequential": ("sequential",),
         "without_replacement": ("paper",)}  # by sampling scheme, the one to quote first


@dataclass(frozen=True)
class PrivateRun:
    """What one run of DP-SGD did: all that its guarantee depends on.

    >>> facts = dict(clip=1.0, sample_rate=PAPER_RATE, steps=580, delta=1e-5, rows=29304, epochs=20)
    >>> round(PrivateRun(noise=17.0, **facts).epsilon, 3)
    0.164
    """

    noise: float  # sigma: the noise's sd as a multiple of clip
    clip: float  # C
    sample_rate: float  # q
    steps: int
    delta: float
    rows: int  # N
    epochs: int
    sampling: str = "poisson"
    seed: int = 0
    secure: bool = False  # batches and noise from the operating system, not from the seed
    batch_sizes: tuple = ()  # realised sizes, step by step

    @property
    def epsilon(self) -> float:
        """The guarantee to quote: PRV, for Poisson sampling."""
        if self.sampling != "poisson":
            raise ValueError(f"PRV holds for Poisson sampling, not for {self.sampling!r}: see ledger()")
        return prv(self.noise, self.sample_rate, self.steps, self.delta)


def secure_uniform(n) -> np.ndarray:
    """n numbers in (0, 1), each of 52 bits of the operating system's cryptographic generator (``os.urandom``)."""
    return ((np.frombuffer(os.urandom(8 * n), np.uint64) >> 12) + 0.5) / 2**52


def secure_normal(shape) -> np.ndarray:
    """Standard normal noise in float64 from ``secure_uniform``: four draws by the inverse cdf, summed and halved.

    A sum of four hides the gaps between floating-point numbers that give a single draw away (Holohan and Braghin
    2021, section 5.1), as Opacus' ``secure_mode`` does.

    >>> secure_normal((3, 2)).shape
    (3, 2)
    """
    return sum(ndtri(secure_uniform(math.prod(shape))) for _ in range(4)).reshape(shape) / 2


class _SecureSampler:
    """Poisson sampling, as Opacus' sampler does it, by ``secure_uniform``."""

    def __init__(self, n, rate, steps):
        self.n, self.rate, self.steps = n, rate, steps

    def __iter__(self):
        return (np.flatnonzero(secure_uniform(self.n) < self.rate) for _ in range(self.steps))


def _optimizer_class(secure):
    from opacus.optimizers import DPOptimizerFastGradientClipping

    class Secure(DPOptimizerFastGradientClipping):
        def add_noise(self):  # added in float64, then rounded: rounding what is private already costs nothing
            for p in self.params:
                noise = self.noise_multiplier * self.max_grad_norm * torch.from_numpy(secure_normal(p.shape))
                p.grad = (p.summed_grad.double() + noise).to(p.dtype)

    return Secure if secure else DPOptimizerFastGradientClipping


class _Training:
    """Model, optimiser, loss, accountant and sampler of one run; tests look inside."""

    def __init__(self, model, n, *, noise, clip, epochs, batch_size, lr, weight_decay, seed, optimizer, secure=False):
        from opacus.accountants import PRVAccountant
        from opacus.grad_sample import GradSampleModuleFastGradientClipping
        from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
        from opacus.utils.uniform_sampler import UniformWithReplacementSampler

        self.rate = batch_size / n
        self.steps = epochs * (n // batch_size)
        # two streams, so that runs of one seed that differ in noise alone see the same batches (paired seeds)
        batches = torch.Generator().manual_seed(derive("dp", seed, "batches"))
        noises = torch.Generator().manual_seed(derive("dp", seed, "noise"))
        self.module = GradSampleModuleFastGradientClipping(model.train(), max_grad_norm=clip)
        params = [p for p in model.parameters() if p.requires_grad]
        inner = (torch.optim.SGD(params, lr=lr, weight_decay=weight_decay) if optimizer == "sgd"
                 else torch.optim.AdamW(params, lr=lr, weight_decay=weight_decay, foreach=True))
        self.optimizer = _optimizer_class(secure)(
            inner, noise_multiplier=noise, max_grad_norm=clip, expected_batch_size=batch_size, generator=noises)
        self.accountant = PRVAccountant()  # named, because Opacus' defaults differ between its classes
        self.optimizer.attach_step_hook(self.accountant.get_optimizer_hook_fn(sample_rate=self.rate))
        self.loss = DPLossFastGradientClipping(self.module, self.optimizer, nn.BCEWithLogitsLoss(), "mean")
        self.sampler = _SecureSampler(n, self.rate, self.steps) if secure else UniformWithReplacementSampler(
            num_samples=n, sample_rate=self.rate, generator=batches, steps=self.steps)

    def step(self, x, y):
        """One step on the rows drawn: ghost clipping does its two backward passes inside ``backward``."""
        self.optimizer.zero_grad()
        self.loss(self.module(x).squeeze(1), y).backward()
        self.optimizer.step()


def _check(model, X, y, *, noise, clip, epochs, batch_size):
    if noise < 0 or clip <= 0:
        raise ValueError(f"noise must be >= 0 and clip > 0; got noise={noise}, clip={clip}")
    if not 1 <= batch_size <= len(X) or epochs < 1:
        raise ValueError(f"batch_size must lie in 1..{len(X)} (rows) and epochs be >= 1; got {batch_size}, {epochs}")
    if len(y) != len(X) or set(np.unique(y)) - {0, 1}:
        raise ValueError(f"dp_train takes labels 0 and 1, one per row; got {len(y)} labels for {len(X)} rows, among "
                         f"them {np.unique(y)[:5]}")
    bad = (~X.flatten(1).isfinite().all(1)).nonzero().flatten()
    if len(bad):
        raise ValueError(f"{len(bad)} rows of X hold NaN or infinity (first: row {int(bad[0])}); clipping does not "
                         "bound such a row, which makes every weight NaN: fill it in or leave it out, by a rule that "
                         "looks at that row alone")
    if any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in model.modules()):
        raise ValueError("BatchNorm mixes a batch's rows, so no guarantee holds: use mlp(..., batch_norm=False)")
    check_rows_apart(model, X)
    _check_clipping(model, X[:8], y[:8])


def _check_clipping(model, X, y, clip=1e-3):
    """A step on a few rows must be that of their own clipped gradients: Opacus sees a weight used by its layer only."""
    model = without_dropout(perturbed(model, 0.1), X)
    if not model.training:  # dropout as a function cannot be switched off in training mode: rows are not comparable
        return
    t = _Training(deepcopy(model), len(X), noise=0.0, clip=clip, epochs=1, batch_size=len(X), lr=1.0,
                  weight_decay=0.0, seed=0, optimizer="sgd")
    t.step(X, y)
    got = torch.cat([p.grad.flatten() for p in t.optimizer.params]) * len(X)
    params, wanted = [p for p in model.parameters() if p.requires_grad], torch.zeros_like(got)
    for x, target in zip(X, y, strict=True):
        loss = nn.functional.binary_cross_entropy_with_logits(model(x[None]).squeeze(1), target[None])
        gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, params)])
        wanted += gradient * (clip / gradient.norm()).clamp(max=1)
    if not (got - wanted).norm() <= 0.01 * clip * len(X):
        raise ValueError("Opacus clips this model's gradients wrongly, so no guarantee holds: use each weight through "
                         "its own layer only, and once")


@contextmanager
def _as_they_were():
    """Leave the generators of torch, numpy and Python, and torch's number of threads, as they were."""
    before = random.getstate(), np.random.get_state(), torch.get_rng_state(), torch.get_num_threads()
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
        torch.set_rng_state(before[2])
        torch.set_num_threads(before[3])


def dp_train(model, X, y, *, noise, clip=1.0, epochs=20, batch_size=1000, lr=1e-2, weight_decay=0.0, delta=DELTA,
             seed=0, optimizer="adam", secure=False):
    """Train a one-logit ``model`` with DP-SGD in place; returns it frozen, with its ``PrivateRun``.

    Clip 1, Adam and lr 1e-2 keep AUC monotone in sigma on Adult (paper, supplement: network 100-20, 20 epochs). The
    generators of torch, numpy and Python are left as they were.

    Parameters
    ----------
    model : torch.nn.Module
        One logit per row. It must keep the rows of a batch apart: checked on a few of them, see ``row_check``.
    X, y : array-like
        The private rows, finite, and their labels 0 and 1.
    noise : float
        sigma, the sd of the noise as a multiple of ``clip``; 0 keeps clipping and sampling and drops the noise.
    clip : float, default 1
        C, to which the norm of each row's gradient is cut.
    epochs, batch_size : int, default 20 and 1000
        ``epochs * (N // batch_size)`` steps, each taking a row with probability ``batch_size / N``.
    lr, optimizer : float and str, default 1e-2 and "adam"
        Or "sgd".
    weight_decay : float, default 0
        Decoupled from the gradient: no privacy spent.
    delta : float, default 1e-5
        That of the guarantee.
    seed : int, default 0
        Runs of one seed that differ only in ``noise`` draw the same batches.
    secure : bool, default False
        False draws batches and noise from seeded generators, so that a run can be repeated: **who knows the seed knows
        the noise, and nothing is guaranteed against them**. True draws both from the operating system's cryptographic
        generator (``os.urandom``), whatever the seed: for a model that is to be released. It is built as Opacus'
        ``secure_mode`` (noise summed of four draws, against attacks on floating-point numbers), but on numpy, because
        the package which that mode needs, torchcsprng, has no release for this torch. Not covered: clipping is done
        in float32, so that C holds up to rounding; the time that a step takes; and nobody has audited it.

    >>> from experiments.models.classifiers import mlp
    >>> X = np.random.default_rng(0).normal(size=(500, 2)).astype("float32"); y = (X[:, 0] > 0).astype(int)
    >>> model, run = dp_train(mlp([2, 8, 1]), X, y, noise=1.0, epochs=2, batch_size=100)
    >>> run.steps, run.sample_rate, run.epsilon < 10
    (10, 0.2, True)
    """
    X, y = (torch.as_tensor(np.asarray(a), dtype=torch.float32) for a in (X, y))
    sizes = []
    with _as_they_were(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Full backward hook is firing")  # inputs need no gradient
        _check(model, X, y, noise=noise, clip=clip, epochs=epochs, batch_size=batch_size)
        seed_all("dp_train", seed)
        t = _Training(model, len(X), noise=noise, clip=clip, epochs=epochs, batch_size=batch_size, lr=lr, seed=seed,
                      weight_decay=weight_decay, optimizer=optimizer, secure=secure)
        for rows in t.sampler:
            rows = torch.as_tensor(rows, dtype=torch.long)
            sizes.append(len(rows))
            t.step(X[rows], y[rows])
    model = t.module.to_standard_module()  # without Opacus' hooks
    if not all(p.isfinite().all() for p in model.parameters()):
        raise ValueError("training ended in NaN or infinite weights, by a row too large for float32 perhaps, and has "
                         "no guarantee: scale X, or take a smaller lr")
    (_, rate, steps), = t.accountant.history  # what the accountant saw, not what was asked for
    run = PrivateRun(noise=float(noise), clip=float(clip), sample_rate=rate, steps=steps, delta=delta,
                     rows=len(X), epochs=epochs, seed=seed, secure=secure, batch_sizes=tuple(sizes))
    return freeze(model), run


@contextmanager
def _quiet():
    """autodp and Opacus warn in normal use: on their first import, about overflow and the range of their orders."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def paper_epsilon(sigma, *, sample_rate=PAPER_RATE, steps=PAPER_STEPS, delta=DELTA) -> float:
    """The paper's bound: autodp, subsampling without replacement (Wang et al., Theorem 27), old conversion.

    NaN where autodp's finite differences lose their digits (much noise) and exceed the cost without subsampling.

    >>> round(float(paper_epsilon(4.4)), 2)
    1.94
    """
    if sigma == 0:
        return math.inf
    with _quiet():
        from autodp import rdp_acct, rdp_bank
        account = rdp_acct.anaRDPacct()
        account.compose_subsampled_mechanism(lambda a: rdp_bank.RDP_gaussian({"sigma": sigma}, a),
                                             sample_rate, coeff=steps, improved_bound_flag=True)
        eps = float(account.get_eps(delta))
    return eps if 0 <= eps <= gaussian_epsilon(sigma / math.sqrt(steps), delta) else math.nan


def gaussian_epsilon(sigma, delta=DELTA) -> float:
    """Exact epsilon of a Gaussian mechanism of sensitivity 1 (Balle and Wang 2018); k uses: sigma / sqrt(k).

    >>> round(gaussian_epsilon(1.35 / 20 ** 0.5), 2)
    18.98
    """
    if sigma == 0:
        return math.inf

    def excess(e):
        return norm.cdf(0.5 / sigma - e * sigma) - np.exp(e + norm.logcdf(-0.5 / sigma - e * sigma)) - delta

    if excess(0) <= 0:
        return 0.0
    high = 1.0
    while excess(high) > 0:
        high *= 2
    return float(brentq(excess, 0, high, xtol=1e-10))


def prv(noise, sample_rate, steps, delta=DELTA) -> float:
    """Upper bound by Opacus' PRV accountant, whose numerical error adds at most .01 and 5 % of epsilon.

    >>> round(prv(2.3, PAPER_RATE, PAPER_STEPS), 3)
    1.509
    """
    from opacus.accountants import PRVAccountant, RDPAccountant
    if noise == 0:
        return math.inf
    account, rough = PRVAccountant(), RDPAccountant()
    account.history = rough.history = [(noise, sample_rate, steps)]
    with _quiet():
        size = rough.get_epsilon(delta, alphas=[1.5, 2, 3, *range(4, 513, 4)])
        return float(account.get_epsilon(delta, eps_error=min(0.01, size / 20)))


def _one_step(noise, rate, width, *, removed, tail=11):
    """The privacy loss of one step of sampled Gaussian noise on a grid, for ``pld``: never below the truth.

    The outputs are N(0, noise^2) without a row and (1 - rate) N(0, noise^2) + rate N(1, noise^2) with it. Their range
    is cut where the loss log(with / without) is a multiple of ``width``; each piece's probability is put on its two
    ends in such shares that it is right under both sets ("connect the dots", Doroshenko et al. 2022).
    """
    from dp_accounting.privacy_loss_distribution import PrivacyLossDistribution
    low, high = np.log1p(rate * np.expm1((np.array([-tail * noise, 1 + tail * noise]) - 0.5) / noise**2))
    keys = np.arange(math.floor(low / width), math.ceil(high / width) + 1)
    loss = keys * width
    with np.errstate(all="ignore"):
        x = np.nan_to_num(0.5 + noise**2 * np.log1p(np.expm1(loss) / rate), nan=-math.inf)  # where the loss is ``loss``
    x[0], x[-1] = -math.inf, math.inf

    def between(mean):
        return np.where(x[1:] > mean, -np.diff(norm.sf(x, mean, noise)), np.diff(norm.cdf(x, mean, noise)))

    p, q = (1 - rate) * between(0) + rate * between(1), between(0)
    if not removed:  # the other direction: the row is added
        p, q, keys, loss = q[::-1], p[::-1], -keys[::-1], -loss[::-1]
    upper = np.clip((p - np.exp(loss[:-1]) * q) / -math.expm1(-width), 0, p)
    mass = np.append(p - upper, 0) + np.append(0, upper)
    return PrivacyLossDistribution(dict(zip(keys.tolist(), mass.tolist(), strict=True)), width, norm.sf(tail))


def pld(noise, sample_rate, steps, delta=DELTA) -> float:
    """Upper bound by dp-accounting's privacy loss distributions: a second tight accountant beside ``prv``.

    The pinned release, 0.0.2, composes and converts; the loss of one sampled step is ours (``_one_step``), because the
    later releases, which have it, want an older attrs than the pinned one. Where a later release is installed its own
    is used: 0.6.0 gives the same nine digits. NaN for noise below .05: the loss of a step is out of range.

    >>> round(pld(2.3, PAPER_RATE, PAPER_STEPS), 3)
    1.499
    """
    if noise == 0:
        return math.inf
    size = gaussian_epsilon(noise / (sample_rate * math.sqrt(steps)), delta)  # roughly the answer
    largest = (0.5 + 11 * noise) / noise**2  # loss of a step
    if largest > 700:
        return math.nan
    width = max(min(size / 5e3, 1e-3), largest / 2e5)
    try:
        from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism  # both directions in one
        losses = [from_gaussian_mechanism(noise, value_discretization_interval=width, sampling_prob=sample_rate)]
    except ImportError:
        losses = [_one_step(noise, sample_rate, width, removed=r) for r in (True, False)]
    return max(float(loss.self_compose(steps).get_epsilon_for_delta(delta)) for loss in losses)


def epsilons(noise, sample_rate, steps, delta=DELTA, *, epochs=20) -> dict:
    """Epsilon of one setting by every accountant.

    >>> sorted(epsilons(8.4, PAPER_RATE, PAPER_STEPS))
    ['autodp_poisson', 'gdp', 'opacus_rdp', 'paper', 'pld', 'prv', 'sequential']
    """
    if noise == 0:
        return dict.fromkeys(ASSUMES, math.inf)
    with _quiet():
        from autodp.mechanism_zoo import NoisySGD_Mechanism
        from opacus.accountants import GaussianAccountant, RDPAccountant
        rdp, gdp = RDPAccountant(), GaussianAccountant()
        rdp.history = gdp.history = [(noise, sample_rate, steps)]
        poisson = float(NoisySGD_Mechanism(sample_rate, noise, steps).get_approxDP(delta))
        renyi = float(rdp.get_epsilon(delta, alphas=ORDERS))
    return {"paper": paper_epsilon(noise, sample_rate=sample_rate, steps=steps, delta=delta),
            "autodp_poisson": poisson, "opacus_rdp": renyi, "prv": prv(noise, sample_rate, steps, delta),
            "pld": pld(noise, sample_rate, steps, delta),
            "gdp": float(gdp.get_epsilon(delta)), "sequential": gaussian_epsilon(noise / math.sqrt(epochs), delta)}


def noise_for(epsilon, *, sample_rate, steps, delta=DELTA) -> float:
    """A sigma whose PRV epsilon is ``epsilon`` or up to one percent less.

    >>> sigma = noise_for(1.0, sample_rate=0.05, steps=100)
    >>> 0.99 <= prv(sigma, 0.05, 100) <= 1.0
    True
    """
    if epsilon <= 0:
        raise ValueError(f"epsilon must be positive; got {epsilon}")

    def gap(log_sigma):
        return math.log(prv(math.exp(log_sigma), sample_rate, steps, delta) / (0.995 * epsilon))

    low = high = math.log(1.2 * sample_rate * math.sqrt(steps * math.log(1 / delta)) / epsilon + 0.5)
    while gap(high) > 0:
        low, high = high, high + 0.4
    while gap(low) < 0:
        low, high = low - 0.2, low
    return math.exp(brentq(gap, low, high, xtol=5e-4))


def ledger(runs) -> pd.DataFrame:
    """The privacy ledger: one row per run and accountant, what it assumes, and whether it holds for the run.

    ``holds``: the accountant's assumptions are those of the run; ``quote`` marks the one to report
    (for Poisson sampling PRV, which ``pld`` confirms from just below).

    >>> facts = dict(clip=1.0, sample_rate=PAPER_RATE, steps=580, delta=1e-5, rows=29304, epochs=20)
    >>> book = ledger([PrivateRun(noise=8.4, **facts)])
    >>> book[book.quote][["accountant", "epsilon"]].round(3).values.tolist()
    [['prv', 0.347]]
    """
    rows, cache = [], {}
    for run in runs:
        if run.sampling not in HOLDS:
            raise ValueError(f"sampling must be one of {sorted(HOLDS)}; got {run.sampling!r}")
        facts = {k: v for k, v in asdict(run).items() if k != "batch_sizes"}
        key = (run.noise, run.sample_rate, run.steps, run.delta, run.epochs)
        if key not in cache:
            cache[key] = epsilons(*key[:4], epochs=run.epochs)
        valid = HOLDS[run.sampling]
        rows += [{**facts, "accountant": a, "epsilon": e, "assumes": ASSUMES[a], "holds": a in valid,
                  "quote": a == valid[0]} for a, e in cache[key].items()]
    return pd.DataFrame(rows)
