"""Run ``interpreted_cases.py`` with the interpreter of Triton."""

import os
import subprocess
import sys
from pathlib import Path

CASES = Path(__file__).parent / "interpreted_cases.py"


def test_kernels_in_the_interpreter():
    process = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", CASES],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        cwd=CASES.parents[2],
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stdout[-8000:] + process.stderr[-2000:]
