"""Import path of the helpers of these tests, and a simulated GPU."""

import sys
import types
from pathlib import Path

import pytest
import torch

from scsigmoid.attention import backends, choose_backend

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def gpu(monkeypatch):
    """Simulate a GPU.

    ``missing`` is the reason why its Hopper kernels do not run, or "". ``failures`` contains the
    results of the self-check by backend.
    """

    def clear_caches():
        for cached in (backends._choose, backends._find_missing_software, backends._warn):
            cached.cache_clear()

    class Machine:
        capability = (9, 0)
        missing = ""

        def __init__(self):
            self.failures = {}

        def choose(self, requested="auto", unsupported="", attention="sigmoid"):
            clear_caches()
            return choose_backend(attention, requested, torch.device("cuda", 0), unsupported)

    machine = Machine()
    module = types.ModuleType("scsigmoid.attention.hopper")
    module.unavailable = lambda: machine.missing
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(backends, "find_failure", lambda name, *_: machine.failures.get(name, ""))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: machine.capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "some GPU")
    yield machine
    clear_caches()
