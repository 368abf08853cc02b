"""Several processes embed the cells of a file, each on the CPU instead of a GPU of its own."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import anndata
import numpy as np
import psutil
import pytest
import torch
from scipy.sparse import csr_matrix
from small_models import GENES
from stages import write_cells
from waiting import wait_until

from scsigmoid.cli import main
from scsigmoid.errors import UserError
from scsigmoid.model import devices, embedding_processes
from scsigmoid.model.devices import choose_gpus

CELLS = 50


@pytest.fixture
def cells(tmp_path: Path) -> Path:
    counts = np.random.default_rng(1).poisson(0.5, (CELLS, len(GENES)))
    counts[:, 0] += 1
    return write_cells(tmp_path / "cells.h5ad", csr_matrix(counts, dtype=np.float32))


def on_cpus(device: str, count: int) -> list[torch.device]:
    return [torch.device("cpu")] * count


def command(cells: Path, model: Path, output: Path, devices: int) -> list[str]:
    # Batches of one or two cells
    options = ["--checkpoint", str(model), "--devices", str(devices), "--batch-tokens", "20"]
    return ["embed", str(cells), str(output), *options, "--device", "cpu"]


def test_the_number_of_processes_does_not_change_the_file(cells, model, tmp_path, monkeypatch):
    monkeypatch.setattr(devices, "choose_gpus", on_cpus)
    outputs = [tmp_path / f"{count}.h5ad" for count in (1, 3)]
    for output in outputs:
        assert main(command(cells, model, output, int(output.stem))) == 0
    assert anndata.read_h5ad(outputs[0]).obsm["X_scsigmoid"].shape == (CELLS, 16)
    assert len({output.read_bytes() for output in outputs}) == 1


def test_a_process_that_fails(cells, model, tmp_path, monkeypatch, capfd):
    """The model is damaged after the first process has loaded it."""
    monkeypatch.setattr(devices, "choose_gpus", on_cpus)
    started = embedding_processes.started

    def damaged(checkpoint, devices):
        copy = tmp_path / "damaged.safetensors"
        copy.write_bytes(checkpoint.read_bytes()[:-9])
        return started(copy, devices)

    monkeypatch.setattr("scsigmoid.cells.embed_file.started", damaged)
    assert main(command(cells, model, tmp_path / "out.h5ad", 2)) == 1
    errors = capfd.readouterr().err
    lines = [line for line in errors.splitlines() if line.startswith("scsigmoid: error: ")]
    assert len(lines) == 1
    assert "damaged.safetensors: damaged, or not a model" in lines[0]
    assert "Traceback" not in errors
    assert sorted(path.name for path in tmp_path.glob("*.h5ad")) == ["cells.h5ad"]
    assert not spawned(psutil.Process())


def spawned(process: psutil.Process) -> list[psutil.Process]:
    """Return the processes that embed cells for ``process``."""
    return [child for child in process.children() if embeds(child)]


def embeds(process: psutil.Process) -> bool:
    try:
        return "spawn_main" in " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # it ended
        return False


# Embeds with two processes on the CPU. Batches wait until the file `ready` exists.
SLOW = """
import sys, time, torch
from pathlib import Path
from scsigmoid.cli import main
from scsigmoid.model import devices, embedding_processes

receive = embedding_processes.receive

def wait(workers):
    for result in receive(workers):
        Path(sys.argv[1]).touch()
        yield result
        time.sleep(60)

embedding_processes.receive = wait
devices.choose_gpus = lambda device, count: [torch.device("cpu")] * count
if __name__ == "__main__":
    sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.faults
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_leaves_no_process(cells, model, tmp_path, number):
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "temporary").mkdir()
    output = tmp_path / "out.h5ad"
    child = subprocess.Popen(
        [
            sys.executable,
            tmp_path / "slow.py",
            tmp_path / "ready",
            *command(cells, model, output, 2),
        ],
        env=os.environ | {"TMPDIR": str(tmp_path / "temporary")},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A test run in the background may ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    wait_until((tmp_path / "ready").exists)
    workers = spawned(psutil.Process(child.pid))
    assert len(workers) == 2
    for worker in workers:  # only the process that started them handles signals
        status = Path(f"/proc/{worker.pid}/status").read_text()
        blocked = int(status.split("SigBlk:")[1].split()[0], 16)
        assert all(blocked >> (each - 1) & 1 for each in (signal.SIGINT, signal.SIGTERM))
    # Ctrl-C reaches all processes.
    os.killpg(child.pid, number) if number == signal.SIGINT else child.send_signal(number)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == (-number if number == signal.SIGKILL else 128 + number)
    wait_until(lambda: not any(worker.is_running() for worker in workers))
    assert "Traceback" not in errors
    assert not output.exists()
    if number != signal.SIGKILL:
        # PyTorch keeps its empty folder of compiled code.
        left = [path.name for path in (tmp_path / "temporary").iterdir()]
        assert [name for name in left if not name.startswith("torchinductor_")] == []
        assert not list(tmp_path.glob(".out*"))


@pytest.mark.faults
def test_a_process_that_is_killed(cells, model, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(devices, "choose_gpus", on_cpus)
    receive = embedding_processes.receive

    def kill_second(workers):
        workers[1].process.kill()
        yield from receive(workers)

    monkeypatch.setattr(embedding_processes, "receive", kill_second)
    assert main(command(cells, model, tmp_path / "out.h5ad", 2)) == 1
    errors = capfd.readouterr().err
    assert "devices: the process of cpu was killed by SIGKILL; if memory ran out" in errors
    assert not (tmp_path / "out.h5ad").exists()


def test_choice_of_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_gpus("auto", 2) == [torch.device("cuda", 0), torch.device("cuda", 1)]
    for device, count, message in (
        ("auto", 3, "3 GPUs, but PyTorch finds 2"),
        ("cpu", 2, "2 GPUs, but the device is cpu"),
        ("cuda", 0, "is 0; use an integer of at least 1"),
    ):
        with pytest.raises(UserError, match=message):
            choose_gpus(device, count)
