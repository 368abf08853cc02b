"""Wait for other processes."""

import time
from collections.abc import Callable
from typing import Any


def wait_until(condition: Callable[[], Any], seconds: float = 120.0) -> Any:
    """Wait until ``condition`` returns a true value, and return this value."""
    end = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < end, "timed out"
        time.sleep(0.02)
    return result
