"""Commands that may not read all files, also if root runs the tests."""

import os
import shutil
from collections.abc import Sequence

import pytest


def without_privileges(command: Sequence[str]) -> list[str]:
    """Return a command that file permissions also restrict for root, or skip the test."""
    if os.geteuid():
        return list(command)
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv, which takes root's privileges away, is not installed")
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *command]
