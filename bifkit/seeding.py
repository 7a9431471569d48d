"""A seed from names and numbers."""

import hashlib

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
