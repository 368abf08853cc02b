"""Seeds derive from names, not from time, process or order."""

import hashlib
import subprocess
import sys

from scsigmoid.seeds import derive


def test_a_seed_is_a_function_of_its_names() -> None:
    digest = hashlib.sha256(b"42\x1fstr:mmd\x1fint:3").digest()
    assert derive(42, "mmd", 3) == int.from_bytes(digest[:8], "big") >> 1
    assert 0 <= derive(42, "mmd") < 2**63


def test_names_do_not_run_together() -> None:
    seeds = {derive(1, "a", "b"), derive(1, "ab"), derive(1, "a", 1), derive(1, "a", "1")}
    assert len(seeds | {derive(2, "a", "b")}) == 5


def test_another_process_gives_the_same_seed() -> None:
    code = "from scsigmoid.seeds import derive; print(derive(7, 'x'))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    assert int(output) == derive(7, "x")
