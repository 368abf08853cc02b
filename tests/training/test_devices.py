"""The device that a run gets."""

import pytest
import torch

from scsigmoid.errors import UserError
from scsigmoid.training.devices import device_name, peak_memory_gb, resolve_device


def test_a_gpu_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="device: cuda is asked for but PyTorch finds no GPU"):
        resolve_device("cuda")
    assert resolve_device("auto") == resolve_device("cpu") == torch.device("cpu")


def test_facts_of_the_cpu():
    assert device_name(torch.device("cpu")) == "cpu"
    assert 0.01 < peak_memory_gb(torch.device("cpu")) < 100
