"""Streams: the same names give the same numbers everywhere, different names different ones."""

import random

import numpy as np
import torch

from bifkit import training
from data_prep.seeding import derive, seed_all


def test_a_stream_is_a_63_bit_number_named_by_its_keys():
    keys = [(name, seed, part) for name in ("Syn1", "Syn2") for seed in range(50) for part in ("g", "explainer")]
    seeds = [derive(*k) for k in keys]
    assert len(set(seeds)) == len(keys) and all(0 <= s < 2**63 for s in seeds)
    assert seeds == [derive(*k) for k in keys]
    assert derive("a", "b") != derive("b", "a") and derive("1") != derive(1) and derive("ab") != derive("a", "b")


def test_numpys_numbers_name_the_same_stream():
    assert derive("Syn1", np.int64(3)) == derive("Syn1", np.int32(3)) == derive("Syn1", 3)
    assert derive(np.float64(0.5)) == derive(0.5) and derive(np.str_("a")) == derive("a")


def test_a_stream_never_moves():
    """Committed results rest on these numbers: another process, machine or version must draw the same."""
    assert derive("Syn4", 0, "g") == 2956188967763542186


def test_every_generator_is_seeded():
    def draw():
        rng = seed_all("test", 1)
        return rng.normal(), np.random.rand(), random.random(), torch.rand(1).item()

    assert draw() == draw() and torch.get_num_threads() == 1


def test_bifkits_own_streams_are_named_alike():
    """bifkit imports nothing of ours, so it has the function too: the two must not drift apart."""
    for keys in (("LocalBIF", 0), ("refine", np.int64(7), 1.5, None)):
        assert training.derive_seed(*keys) == derive(*keys)
