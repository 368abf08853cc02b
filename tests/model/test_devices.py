"""Errors when GPU memory runs out, and the choice of a GPU."""

from typing import Any

import pytest
import torch
from forked import forked

from scsigmoid.errors import UserError
from scsigmoid.model import devices
from scsigmoid.model.devices import claim_gpus, out_of_memory_advice


def test_advice_is_given_only_if_memory_runs_out():
    def raise_in_block(error: Exception) -> Any:
        with out_of_memory_advice(24, 100):
            raise error

    with pytest.raises(UserError, match=r"100 tokens do not fit .* down to 24 tokens"):
        raise_in_block(torch.OutOfMemoryError("CUDA out of memory"))
    with pytest.raises(RuntimeError, match="something else"):
        raise_in_block(RuntimeError("something else"))


def test_jobs_are_spread_over_the_gpus(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(devices, "_claims", [])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7,2,GPU-5")

    def run_job() -> int:
        """Run a job that reserves a GPU and ends."""
        return claim_gpus(1)[0]

    # Each claim is a separately opened file, so claims of this process exclude each other, too.
    assert claim_gpus(1) == [0]
    assert [forked(run_job), forked(run_job)] == [1, 1]
    assert claim_gpus(1) == [1]
    assert claim_gpus(2) == [0, 2]
    assert claim_gpus(3) == [0, 1, 2]
    # With other names of the GPUs, the claims are separate.
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert claim_gpus(1) == [0]


@pytest.mark.parametrize(
    ("variable", "count", "expected"),
    [("2, 3,", 2, ["2", "3"]), ("2,,3", 1, ["2"]), ("2,3", 1, ["0"]), ("", 1, ["0"])],
)
def test_entries_after_an_empty_one_are_ignored(variable, count, expected, monkeypatch):
    """As CUDA does: jobs were given GPUs that the user had not named."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    assert devices.visible_gpus() == expected


@pytest.mark.parametrize("name", ["gpu", None, "cuda:99"])
def test_a_device_that_does_not_exist_is_one_line(name):
    with pytest.raises(UserError, match=r"^device: .*; set it to auto"):
        devices.resolve_device(name)
