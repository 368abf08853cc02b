"""Training in several processes (torchrun and gloo, on the CPU) or one, and stopped processes."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import product

import numpy as np
import psutil
import pytest
import torch
import torch.distributed as dist
from pydantic import TypeAdapter
from small_training import assert_same_run, changed, train_command
from waiting import wait_until

from scsigmoid.cli import main
from scsigmoid.errors import UserError
from scsigmoid.training.journal import read_journal
from scsigmoid.training.loop import train
from scsigmoid.training.processes import STOPPED, connect, joined, stop_requests
from scsigmoid.training.run import TrainingRun

# Name, `attention` and `training.gradient` of each tested model.
OBJECTIVES = [(" ".join(pair), *pair) for pair in product(("sigmoid", "softmax"), ("mean", "sum"))]
# Script of each process, which calls the parts of a training step and saves the results.
WORKER = """
import json, sys
from pathlib import Path
import torch
from pydantic import TypeAdapter
from scsigmoid.model.encoder import Encoder
from scsigmoid.tokens.store import TokenStore
from scsigmoid.training import processes as module
from scsigmoid.training.shares import GlobalBatches
from scsigmoid.training.run import TrainingRun
from scsigmoid.training.step import Trainer

torch.set_num_threads(1)
output, stores = Path(sys.argv[1]), [Path(p) for p in sys.argv[3:]]
with module.joined("cpu") as processes:
    results = {"total": processes.total([processes.rank + 1, 10])}
    nan = torch.tensor(float("nan") if processes.rank else 5.0)
    results["nan"] = processes.largest(nan)
    results["largest"] = processes.largest(torch.tensor(float(processes.rank)))
    module.BUCKET_BYTES = 40
    tensors = [torch.full((3, 2), 1.0 + processes.rank), torch.ones(()), torch.arange(30.0)]
    processes.sum(tensors)
    results["sums"] = tensors
    try:
        processes.in_turn(lambda: {}["missing"] if processes.is_first else 0)
    except BaseException as error:
        results["failed"] = repr(error)
    for run in TypeAdapter(list[TrainingRun]).validate_json(sys.argv[2]):
        store = TokenStore.open(stores)
        settings = run.encoder_settings(store.vocabulary_size)
        batches = GlobalBatches(
            store, settings, run.training, 42, rank=processes.rank, processes=processes.count
        )
        encoder = Encoder(settings).initialize(1)
        trainer = Trainer(encoder, run.training, 42, torch.device("cpu"), processes)
        share = batches[1]
        (masked,) = processes.total([share.masked])
        score = trainer.attention_score_max(share.micro_batches)
        result = trainer.step(1, share.micro_batches, masked)
        results[run.model] = {
            "micro-batches": len(share.micro_batches),
            "loss": result.loss,
            "norm": result.gradient_norm,
            "score": score,
            "gradients": {name: p.grad for name, p in encoder.named_parameters()},
        }
    torch.save(results, output / f"{processes.rank}.pt")
"""

# Script of one of two processes. In their first validation, the first gets a signal, the other is
# slower than the time limit of torch's default group.
SLOW_VALIDATION = """
import os, signal, sys, time
from datetime import timedelta
from scsigmoid import cli
from scsigmoid.training import loop, processes

connect, measure = processes.dist.init_process_group, loop.compute_loss

def compute_loss(*arguments):
    if os.environ["RANK"] == "0":
        os.kill(os.getpid(), signal.SIGTERM)
    else:
        time.sleep(3)
    return measure(*arguments)

def connect_with_limit(backend):
    connect(backend)  # with the usual limit, because processes start at different times
    processes.dist.distributed_c10d._set_pg_timeout(timedelta(seconds=1))

processes.dist.init_process_group = connect_with_limit
loop.compute_loss = compute_loss
sys.exit(cli.main(sys.argv[1:]))
"""


def test_three_processes_have_the_loss_and_gradient_of_one(run, corpus, make, tmp_path):
    """They share 8 cells unevenly."""
    (tmp_path / "worker.py").write_text(WORKER)
    divided = changed(run, clipping=None, micro_batch_tokens=24)
    runs = [
        replace(changed(divided, gradient=gradient), attention=attention, model=name)
        for name, attention, gradient in OBJECTIVES
    ]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3"]
    command += [
        tmp_path / "worker.py",
        tmp_path,
        TypeAdapter(list[TrainingRun]).dump_json(runs),
        *corpus.stores,
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    results = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(3)]

    for name, attention, gradient in OBJECTIVES:
        whole = replace(run, attention=attention)
        trainer, batches = make(whole, gradient=gradient, clipping=None, micro_batch_tokens=10**6)
        (batch,) = batches[1].micro_batches
        score = trainer.attention_score_max([batch])
        result = trainer.step(1, [batch])
        of_ranks = [each[name] for each in results]
        assert len({each["micro-batches"] for each in of_ranks}) > 1
        for each in of_ranks:
            torch.testing.assert_close(each["loss"], result.loss)
            torch.testing.assert_close(each["norm"], result.gradient_norm)
            assert each["score"] == pytest.approx(score, rel=1e-5)
            for key, parameter in trainer.encoder.named_parameters():
                torch.testing.assert_close(each["gradients"][key], parameter.grad, msg=key)
    # Communication between processes.
    for each in results:
        assert each["total"] == [1 + 2 + 3, 30]
        assert torch.isnan(each["nan"])
        assert each["largest"] == 2.0
        assert torch.equal(each["sums"][0], torch.full((3, 2), 6.0))
        assert torch.equal(each["sums"][1], torch.tensor(3.0))
        assert torch.equal(each["sums"][2], 3 * torch.arange(30.0))
    # Only the first process reports the error.
    failed = [each["failed"] for each in results]
    assert failed == ["KeyError('missing')", "SystemExit(1)", "SystemExit(1)"]


def test_a_signal_to_one_process_in_a_long_validation(run, corpus, tmp_path):
    """The process with the signal waits for the others, longer than torch's time limit."""
    validated = changed(run, validate_every=4, validation_cells=7, micro_batch_tokens=24)
    command = [sys.executable, "-c", SLOW_VALIDATION]
    command += train_command(validated, corpus, tmp_path / "stopped")
    with socket.socket() as free:
        free.bind(("", 0))
        port = str(free.getsockname()[1])
    environment = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    environment |= {"MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(command, env=os.environ | environment | {"RANK": rank, "LOCAL_RANK": rank})
        for rank in "01"
    ]
    assert [process.wait(120) for process in started] == [STOPPED, STOPPED]


def start(arguments: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "scsigmoid", *arguments], stderr=subprocess.PIPE, text=True
    )


@pytest.mark.faults
def test_two_processes_or_one_resume_a_stopped_run(run, corpus, tmp_path):
    endless = changed(run, steps=10**6, checkpoint_every=10**6)
    child = start(train_command(endless, corpus, tmp_path / "two"))
    journal = tmp_path / "two/journal.csv"
    wait_until(lambda: journal.is_file() and len(journal.read_text().splitlines()) > 30)
    child.send_signal(signal.SIGUSR1)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == STOPPED, errors
    assert errors.count("stopped by SIGUSR1 after step ") == 1
    assert "Traceback" not in errors
    step = int(errors.split("after step ")[1].split(";")[0])
    shutil.copytree(tmp_path / "two/checkpoints", tmp_path / "single/checkpoints")

    finite = changed(run, steps=step + 10)
    children = [start(train_command(finite, corpus, tmp_path / name)) for name in ("two", "whole")]
    assert [child.wait(timeout=120) for child in children] == [0, 0]
    assert_same_run(tmp_path / "two", tmp_path / "whole")
    two, header = read_journal(tmp_path / "two/journal.csv")
    assert header["processes"] == "2"

    # Another number of processes continues with the same cells, masks and dropout.
    train(finite, *corpus, tmp_path / "single")
    single, header = read_journal(tmp_path / "single/journal.csv")
    assert header["processes"] == "1"
    before = single["step"] <= step
    np.testing.assert_array_equal(single["loss"][before], two["loss"][before])
    np.testing.assert_array_equal(single["step"], two["step"])
    np.testing.assert_allclose(single["loss"], two["loss"], rtol=1e-4)


@pytest.mark.faults
def test_four_processes_then_two_then_one(run, corpus, tmp_path):
    """SIGTERM to torchrun, which a user started, stops all processes. Fewer resume the run."""
    endless = changed(run, steps=10**6, checkpoint_every=10**6)
    output = tmp_path / "parts"
    journal = output / "journal.csv"
    stops = [0]
    for count in (4, 2):
        torchrun = ["torch.distributed.run", "--standalone", f"--nproc-per-node={count}", "-m"]
        child = subprocess.Popen(
            [sys.executable, "-m", *torchrun, "scsigmoid", *train_command(endless, corpus, output)],
            env=os.environ | {"TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM,SIGUSR1,SIGINT"},
            stderr=subprocess.PIPE,
            text=True,
        )
        wait_until(
            lambda: journal.is_file() and len(read_journal(journal)[0]["step"]) > stops[-1] + 5
        )
        child.send_signal(signal.SIGTERM)
        _, errors = child.communicate(timeout=120)
        assert errors.count("stopped by SIGTERM after step ") == 1, errors
        stops.append(int(errors.split("after step ")[-1].split(";")[0]))
        assert read_journal(journal)[1]["processes"] == str(count)
    finite = changed(run, steps=stops[-1] + 10)
    train(finite, *corpus, output)
    train(finite, *corpus, tmp_path / "whole")
    parts, whole = (read_journal(tmp_path / name / "journal.csv")[0] for name in ("parts", "whole"))
    np.testing.assert_array_equal(parts["step"], whole["step"])
    np.testing.assert_allclose(parts["loss"], whole["loss"], rtol=1e-4)


@pytest.mark.faults
def test_a_run_resumes_after_a_lost_process(run, corpus, tmp_path):
    long = changed(run, steps=80, checkpoint_every=10)
    lost, whole = tmp_path / "lost", tmp_path / "whole"
    child = start(train_command(long, corpus, lost))
    wait_until(lambda: list(lost.glob("checkpoints/*.sha256")))
    second = next(
        process
        for process in psutil.Process(child.pid).children(recursive=True)
        if process.environ().get("RANK") == "1"
    )
    second.kill()
    _, errors = child.communicate(timeout=120)
    assert child.returncode == 1
    lines = [line for line in errors.splitlines() if line.startswith("scsigmoid: error")]
    assert any("process 1 of 2 was killed by SIGKILL; run again" in line for line in lines), errors
    assert "Traceback" not in errors
    assert not (lost / "model.safetensors").exists()

    children = [start(train_command(long, corpus, folder)) for folder in (lost, whole)]
    outputs = [child.communicate(timeout=240)[1] for child in children]
    assert [child.returncode for child in children] == [0, 0], outputs
    assert "continuing from the checkpoint after step" in outputs[0]
    assert_same_run(lost, whole)


def test_an_error_is_one_line(run, corpus, tmp_path, capfd):
    longer = replace(run, context=64)
    log = tmp_path / "train.log"
    assert main([*train_command(longer, corpus, tmp_path), "--log", str(log)]) == 1
    errors = capfd.readouterr().err.splitlines()
    assert len(errors) == 1
    assert "cells are cut at 31 genes, too short for context 64" in errors[0]
    assert errors[0] in log.read_text()
    assert (tmp_path / "train.1.log").read_text() == ""


def test_missing_gpus_nccl_and_peers(monkeypatch):
    """In the first of two processes of torchrun on a machine with two GPUs."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7,2")  # so that the change is undone
    for name, value in {"WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "LOCAL_RANK": 0, "RANK": 0}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)

    def check_refusal(device: str, message: str) -> None:
        with pytest.raises(UserError, match=message), joined(device):
            pass

    monkeypatch.setattr(dist, "is_nccl_available", lambda: False)
    check_refusal("auto", "no NCCL, which several GPUs need")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    check_refusal("auto", r"2 processes on a machine with 1 GPUs.*nproc-per-node 1")
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    check_refusal("cpu", r"2 processes cannot connect.*MASTER_ADDR")
    # Only the first process of a machine prints the error.
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(SystemExit), joined("auto"):
        pass


@pytest.mark.parametrize(("rank", "gpu"), [(0, "7"), (1, "GPU-2")])
def test_a_process_sees_its_gpu_only(monkeypatch, rank, gpu):
    """Compiled code contains the number of the GPU, so it is 0 in all processes."""
    names = {"WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "LOCAL_RANK": rank, "RANK": rank}
    for name, value in (names | {"CUDA_VISIBLE_DEVICES": "7,GPU-2"}).items():
        monkeypatch.setenv(name, str(value))
    chosen = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(
        torch.cuda, "device_count", lambda: len(os.environ["CUDA_VISIBLE_DEVICES"].split(","))
    )
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)
    monkeypatch.setattr(dist, "init_process_group", lambda backend: None)
    monkeypatch.setattr(dist, "new_group", lambda **options: None)
    monkeypatch.setattr(dist, "get_rank", lambda: rank)
    processes = connect(2, "auto")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == gpu
    assert processes.device == torch.device("cuda", 0)
    assert chosen == [processes.device]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_a_signal_is_recorded_and_a_second_ctrl_c_stops(number):
    before = signal.getsignal(number)
    with stop_requests() as received:
        assert not received
        os.kill(os.getpid(), number)
        assert received == [number]
        with pytest.raises(KeyboardInterrupt) if number == signal.SIGINT else nullcontext():
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) == before
