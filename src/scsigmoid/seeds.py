"""Seeds for each purpose, derived from the seed of the configuration."""

import hashlib


def derive(seed: int, *names: str | int) -> int:
    """Return a 63-bit seed for a purpose, which ``names`` identify.

    For example, ``"validation_loss", "heart_oft"`` identify the masks of the loss on heart_oft.
    """
    # The text contains the types of the names, so that 1 and "1" have different seeds.
    text = "\x1f".join([str(seed), *(f"{type(name).__name__}:{name}" for name in names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
