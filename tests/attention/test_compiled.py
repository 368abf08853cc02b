"""The second launch of a kernel goes to the driver without Triton's own bookkeeping."""

from types import SimpleNamespace

import pytest
import torch
from triton import knobs

from scsigmoid.attention import compiled


class Kernel:
    """As much of a jitted kernel as launching asks for; notes what reaches it and by which way."""

    def __init__(self) -> None:
        self.fn = lambda: None
        self.reached: list[tuple] = []

    def __getitem__(self, programs):
        def first(*arguments, **options):
            self.reached.append(("jit", programs, arguments, options))
            return Compiled(self.reached)

        return first


class Compiled:
    function = "function"
    packed_metadata = "metadata"

    def __init__(self, reached):
        self.reached = reached

    def run(self, *arguments):
        self.reached.append(("driver", *arguments))

    def __getitem__(self, programs):
        return lambda *arguments: self.reached.append(("hooked", programs, arguments))


@pytest.fixture
def kernel(monkeypatch):
    monkeypatch.setattr(compiled, "_compiled", {})
    active = SimpleNamespace(get_current_stream=lambda device: f"stream of {device}")
    monkeypatch.setattr(compiled, "driver", SimpleNamespace(active=active))
    return Kernel()


def test_the_first_launch_compiles_and_later_ones_do_not(kernel):
    for value in (1.0, 2.0):
        compiled.launch(kernel, 3, (5, 7), ("x", value), {"BLOCK": 64}, key="bf16", maxnreg=96)
    assert kernel.reached == [
        ("jit", (5, 7), ("x", 1.0), {"BLOCK": 64, "maxnreg": 96}),
        ("driver", 5, 7, 1, "stream of 3", "function", "metadata", None, None, None, "x", 2.0, 64),
    ]


def test_other_types_constants_or_devices_are_compiled_for_themselves(kernel):
    for device, block, key in ((0, 64, "bf16"), (1, 64, "bf16"), (0, 128, "bf16"), (0, 64, "fp16")):
        compiled.launch(kernel, device, (1, 1), (), {"BLOCK": block}, key=key)
    assert [way for way, *_ in kernel.reached] == ["jit"] * 4


def test_a_profiler_is_told_of_every_launch(kernel):
    def hook(*_):
        pass

    compiled.launch(kernel, 0, (2, 1), ("x",), {"BLOCK": 64}, key=None)
    for chain in (knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook):
        chain.add(hook)
        try:
            compiled.launch(kernel, 0, (2, 1), ("x",), {"BLOCK": 64}, key=None)
        finally:
            chain.remove(hook)
    assert kernel.reached[1:] == [("hooked", (2, 1, 1), ("x", 64))] * 2


def test_the_tensors_device_is_made_current_only_where_it_is_not(monkeypatch):
    made = []
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "device", made.append)
    for number in (1, 0):
        compiled.device_of(SimpleNamespace(get_device=lambda n=number: n, device=f"cuda:{number}"))
    assert made == ["cuda:0"]
