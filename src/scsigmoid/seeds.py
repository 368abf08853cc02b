"""Seeds that derive from the configuration's one seed, by name."""

import hashlib


def derive(seed: int, *names: str | int) -> int:
    """A seed for one purpose, e.g. ``derive(42, "mmd", "heart_oft", "Immune vs Neural")``.

    Depends on its arguments alone, not on time, process or the order of calls.

    Returns:
        An integer of 63 bits.
    """
    text = "\x1f".join([str(seed), *(f"{type(name).__name__}:{name}" for name in names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
