"""Compilation ahead of the benchmarks."""

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
import torch
from benchmarks.small_benchmarks import PAPER_CASES, conditions
from triton.runtime.autotuner import Autotuner

from scsigmoid.benchmarks import compiling
from scsigmoid.benchmarks.compiling import compile_step, compile_steps_ahead, kernel_jobs
from scsigmoid.benchmarks.providers import PROVIDERS, choose_providers
from scsigmoid.benchmarks.variants import Variant, choose_variants
from scsigmoid.training.step import Trainer


def test_each_compiled_code_has_one_job() -> None:
    jobs = kernel_jobs(PAPER_CASES, choose_providers(None, "cuda"), torch.device("cuda"))
    counts = Counter(PROVIDERS[index].name for _, index, *_ in jobs)
    # 1,024 and 2,048 share a class of triton-sigmoid, as do 4,096, 8,192 and the jagged batches.
    assert counts == {
        "triton_sigmoid": 2 * 2 * 4,
        "flex": 2 * 2 * 3,
        "flex_sigmoid": 2 * 3,
        "fa4_sigmoid": 2 * 6,
        "hopper": 2 * 2,
        "hopper_accurate": 2,
        "triton": 2 * 2,
        "triton_accurate": 2,
    }


def test_cache_keys_of_torch_are_equal_in_other_processes(tmp_path: Path) -> None:
    """Otherwise this process would not find the kernels that they compiled.

    Keys contain constants of torch by the first imported module in which pickle finds them.
    """
    write_key = """
import pickle, torch
from torch._inductor.codecache import extract_tensor_metadata_for_cache_key
with open({!r}, "wb") as file:
    pickler = pickle.Pickler(file)
    pickler.fast = True
    pickler.dump(extract_tensor_metadata_for_cache_key(torch.empty(64)))
"""
    one, two, own = (write_key.format(str(tmp_path / name)) for name in ("one", "two", "own"))
    code = f"""
from scsigmoid.benchmarks import compiling, kernel, training
compiling.MOST_SECONDS = 60
compiling.run_in_processes([(exec, {one!r}), (exec, {two!r})])
exec({own!r}, {{}})
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1
    assert len([*tmp_path.iterdir()]) == 3


def test_compiling_ahead_ends_in_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compiling, "MOST_SECONDS", 0.0)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    compiling.run_in_processes([(time.sleep, 600)] * 4)
    assert "4 of 4 kernels were not compiled in 0 s" in capsys.readouterr().err


def test_each_graph_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    run_in_processes = MagicMock()
    monkeypatch.setattr(compiling, "run_in_processes", run_in_processes)
    memory = SimpleNamespace(total_memory=8e9)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: memory)
    groups = [conditions(context, cells) for cells in (4, 2) for context in (1024, 2048, 4096)]
    compile_steps_ahead(choose_variants(["sdpa", "flex", "triton_sigmoid"], "cuda"), groups)
    jobs, processes = run_in_processes.call_args.args
    assert processes == 3  # limited by the GPU's memory
    graphs = [(job[1].name, job[2].group) for job in jobs if job[0] is compile_step]
    assert graphs == [
        ("sdpa packed", groups[0].group),
        ("flex packed", groups[0].group),
        *(("flex padded", each.group) for each in groups),
        *(("triton_sigmoid padded", each.group) for each in groups),
    ]
    # Two classes of lengths: up to 2,048 and up to 8,192.
    assert [job[2].length for job in jobs if job[0] is not compile_step] == [4096, 1024]


def test_a_whole_step_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure, for example of an unknown kernel, is silent."""
    step = MagicMock(side_effect=Trainer.step)
    monkeypatch.setattr(Trainer, "step", lambda *arguments: step(*arguments))
    # Undone after the test.
    monkeypatch.setattr(Autotuner, "do_bench", Autotuner.__dict__["do_bench"])
    monkeypatch.setattr(torch._inductor.config, "autotune_local_cache", True)
    for kernel in ("reference", "unknown"):
        compile_step(Variant(kernel, "sigmoid", ("cpu",)), conditions(16, 2), 1.0)
    assert step.call_count == 1
