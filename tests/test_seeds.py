"""Seeds depend only on the seed of the configuration and names."""

import hashlib

from scsigmoid.seeds import derive


def test_a_seed_is_a_function_of_its_names() -> None:
    digest = hashlib.sha256(b"42\x1fstr:mmd\x1fint:3").digest()
    assert derive(42, "mmd", 3) == int.from_bytes(digest[:8], "big") >> 1
    assert 0 <= derive(42, "mmd") < 2**63


def test_names_do_not_run_together() -> None:
    seeds = {derive(1, "a", "b"), derive(1, "ab"), derive(1, "a", 1), derive(1, "a", "1")}
    assert len(seeds | {derive(2, "a", "b")}) == 5
