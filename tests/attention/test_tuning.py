"""Which configuration is chosen, when entries are timed, and what is remembered."""

import json

import pytest
import torch
import triton.testing

from scsigmoid.attention import tuning
from scsigmoid.attention.triton_launch import KERNELS
from scsigmoid.attention.tuning import configurations
from scsigmoid.errors import UserError

AMPERE, HOPPER = (8, 6), (9, 0)
ENTRIES = configurations("dq", 128, 2, AMPERE)


class GPU:
    """A GPU that is not there: what tuning asks torch and Triton for, and what was timed."""

    capability = AMPERE
    capturing = False

    def __init__(self):
        self.tried = []

    def trial(self, entry):
        return lambda: self.tried.append(entry)

    def bench(self, function, **options):
        function()
        # The third entry is the fastest.
        return abs(ENTRIES.index(self.tried[-1]) - 2)

    def choose(self):
        """As in a process of its own, which remembers nothing."""
        tuning._chosen.clear()
        self.tried = []
        return self.choose_again()

    def choose_again(self):
        device = torch.device("cuda", 0)
        return tuning.choose("dq", 128, torch.bfloat16, device, self.trial, KERNELS["dq"])


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    gpu = GPU()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: gpu.capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "some GPU")
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: gpu.capturing)
    monkeypatch.setattr(triton.testing, "do_bench", gpu.bench)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(tuning.SWITCH, raising=False)
    monkeypatch.setattr(tuning, "_chosen", {})
    return gpu


def test_measured_gpus_take_the_table_at_once(gpu, tmp_path):
    gpu.capability = HOPPER
    assert gpu.choose() == configurations("dq", 128, 2, HOPPER)[0]
    assert gpu.tried == []
    assert list(tmp_path.rglob("*")) == []


def test_unknown_gpus_are_timed_once(gpu, tmp_path, capsys):
    assert gpu.choose() == ENTRIES[2]
    assert gpu.tried == list(ENTRIES)
    assert "timing 3 configurations" in capsys.readouterr().err
    gpu.choose_again()
    assert len(gpu.tried) == 3
    # Another process reads what this one found.
    (path,) = tmp_path.rglob("*.json")
    assert len(json.loads(path.read_text())["milliseconds"]) == 3
    assert gpu.choose() == ENTRIES[2]
    assert gpu.tried == []


def test_switch(gpu, monkeypatch):
    monkeypatch.setenv(tuning.SWITCH, "0")
    assert gpu.choose() == ENTRIES[0]
    assert gpu.tried == []
    monkeypatch.setenv(tuning.SWITCH, "1")
    gpu.capability = HOPPER
    monkeypatch.setattr(tuning, "configurations", lambda *about: ENTRIES)
    assert gpu.choose() == ENTRIES[2]
    monkeypatch.setenv(tuning.SWITCH, "yes")
    with pytest.raises(UserError, match="SCSIGMOID_AUTOTUNE: is 'yes'; set it to 1"):
        gpu.choose()


def test_another_gpu_or_version_is_timed_anew(gpu, monkeypatch):
    gpu.choose()
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "another GPU")
    gpu.choose()
    assert len(gpu.tried) == 3
    monkeypatch.setattr(triton, "__version__", "0")
    gpu.choose()
    assert len(gpu.tried) == 3


@pytest.mark.parametrize("content", ["", "[]", "{", '{"chosen": {"block_q": 1}}'])
def test_damaged_files_are_replaced(gpu, tmp_path, content):
    gpu.choose()
    (path,) = tmp_path.rglob("*.json")
    path.write_text(content)
    assert gpu.choose() == ENTRIES[2]
    assert len(gpu.tried) == 3
    assert json.loads(path.read_text())["chosen"]["warps"] == ENTRIES[2].warps


def test_a_choice_that_cannot_be_kept_is_still_made(gpu, monkeypatch, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert gpu.choose() == ENTRIES[2]
    assert "cannot be kept" in capsys.readouterr().err


def test_nothing_is_timed_while_a_graph_records(gpu):
    gpu.capturing = True
    assert gpu.choose() == ENTRIES[0]
    assert gpu.tried == []
    gpu.capturing = False
    assert gpu.choose_again() == ENTRIES[2]


def test_entries_that_do_not_fit_are_passed_over(gpu, monkeypatch):
    from triton.runtime.errors import OutOfResources

    def bench(function, **options):
        function()
        if gpu.tried[-1] != ENTRIES[1]:
            raise OutOfResources(1, 0, "shared memory")
        return 1.0

    monkeypatch.setattr(triton.testing, "do_bench", bench)
    assert gpu.choose() == ENTRIES[1]
