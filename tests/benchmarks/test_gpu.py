"""The kernel benchmark on a GPU: what is timed is what is right."""

import math
from pathlib import Path

import pytest
import torch

from scsigmoid.benchmarks.cases import Case
from scsigmoid.benchmarks.inputs import Inputs
from scsigmoid.benchmarks.kernel import run_kernel_benchmark
from scsigmoid.benchmarks.providers import chosen
from scsigmoid.benchmarks.rows import KernelRow, read_rows
from scsigmoid.benchmarks.sigmoid_kernels import Unavailable
from scsigmoid.benchmarks.timing import Clocked, Queued, Replayed
from scsigmoid.config.schema import KernelBenchmark

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
CASE = Case("paper", 64, 4, 700, (700, 450, 129), 0.25)


@pytest.mark.parametrize("name", ["triton", "hopper", "flash_attention_2"])
def test_graphs_replay_alone_and_give_the_same(name: str) -> None:
    """Replaying one graph many times leaves what the other reads as it was."""
    (provider,) = [
        one for one in chosen([name], "cuda") if one.layout == "packed" and one.suits(CASE)
    ]
    inputs = Inputs(CASE, torch.device("cuda"), torch.bfloat16)
    try:
        kernel = provider.prepare(inputs)
    except Unavailable as error:
        pytest.skip(str(error))
    tensors = inputs.in_layout(provider.layout)
    timer = Replayed(kernel, tensors)
    for _ in range(3):
        timer.backward.replay()
        assert min(timer.once()) > 0
    error, what = inputs.largest_error(provider.attention, provider.layout, *timer.results())
    assert error < 0.01, what
    output, gradients = timer.results()
    expected, right = Queued(kernel, tensors).results()
    assert torch.equal(output, expected)
    for found, other in zip(gradients, right, strict=True):
        # dQ may be summed in any order.
        torch.testing.assert_close(found, other, rtol=0.02, atol=0.02)


def test_the_three_ways_of_timing_agree_where_launching_is_short() -> None:
    case = Case("paper", 64, 16, 4096, (4096,) * 4)
    inputs = Inputs(case, torch.device("cuda"), torch.bfloat16)
    (provider,) = [one for one in chosen(["cudnn"], "cuda") if one.layout == "heads"]
    kernel, tensors = provider.prepare(inputs), inputs.in_layout("heads")
    timers = (
        Replayed(kernel, tensors),
        Queued(kernel, tensors),
        Clocked(kernel, tensors, torch.device("cuda")),
    )
    best = [[min(times) for times in zip(*(timer.once() for _ in range(10)), strict=True)]
            for timer in timers]  # fmt: skip
    for other in best[1:]:
        assert other == pytest.approx(best[0], rel=0.25, abs=0.2)


def test_a_small_sweep_of_all_kernels(tmp_path: Path) -> None:
    settings = KernelBenchmark(
        tokens=2048,
        hidden=256,
        head_dimensions=[64],
        lengths=[512],
        padding=[0.0, 0.25],
        jagged=True,
        median_length=300,
        sigma_length=0.65,
        iterations=40,
        seconds=5,
        warmup_ms=5,
        confidence=0.99,
    )
    run_kernel_benchmark(settings, "cuda", tmp_path / "kernel.csv", tmp_path / "kernel.json")
    rows = read_rows(tmp_path / "kernel.csv", KernelRow)
    for row in rows:
        assert row.checked == (row.milliseconds > 0) == bool(row.iterations)
        assert row.checked or row.note
        assert not row.note.startswith(("wrong", "failed")), (row.provider, row.shape, row.note)
        if row.checked:
            assert row.iterations >= 8
            assert row.relative_error < 0.05
            assert row.call_milliseconds > 0
    timed = {row.provider for row in rows if row.checked}
    assert {"triton", "triton_accurate", "cudnn", "flash_attention_2", "flex", "pytorch"} <= timed
    graphs = {row.provider for row in rows if row.timing == "graph"}
    assert {"triton", "cudnn", "flash_attention_2", "flex"} <= graphs
    assert any(not math.isnan(row.clock_mhz) for row in rows)
