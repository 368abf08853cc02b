"""Seeds derived from the seed of the configuration by name."""

import hashlib


def derive(seed: int, *names: str | int) -> int:
    """Return the 63-bit seed of one purpose, which depends only on the arguments.

    For example ``derive(42, "validation_loss", "heart_oft")``.
    """
    text = "\x1f".join([str(seed), *(f"{type(name).__name__}:{name}" for name in names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
