"""One seeding function for the whole package.

A seed belongs to a *stream*: the data, the model g, the explainer and each rival of one run draw from
different streams, named by words and numbers, so that changing one never shifts another::

    rng = seed_all("Syn4", 0, "explainer")

``derive`` turns the names into one integer through numpy's ``SeedSequence``; ``seed_all`` also seeds torch,
numpy's global generator (shap and lime draw from it) and ``random``, and pins torch to one thread, because
torch's sums change with the number of threads.
"""

import hashlib
import random

import numpy as np


def derive(*keys) -> int:
    """A 63-bit seed from any mix of names and numbers.

    >>> derive("Syn4", 0, "g") == derive("Syn4", 0, "g"), derive("Syn4", 0, "g") == derive("Syn4", 1, "g")
    (True, False)
    """
    words = []
    for key in keys:
        key = key.item() if isinstance(key, np.generic) else key  # np.int64(0) is 0
        digest = hashlib.sha256(f"{type(key).__name__}:{key}".encode()).digest()
        words += list(np.frombuffer(digest[:16], dtype=np.uint32))
    state = np.random.SeedSequence([int(w) for w in words]).generate_state(2, np.uint32)
    return int(state[0]) << 31 | int(state[1]) >> 1


def seed_all(*keys) -> np.random.Generator:
    """Seed every generator in use with ``derive(*keys)`` and return a fresh numpy one.

    >>> float(seed_all("doc").normal()) == float(seed_all("doc").normal())
    True
    """
    import torch  # the data sets need none

    seed = derive(*keys)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    return np.random.default_rng(seed)
