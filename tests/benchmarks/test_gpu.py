"""The kernel benchmark on a GPU: results of the timed graphs, and failed captures."""

import gc
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.small_benchmarks import PAPER

from scsigmoid.benchmarks.cases import Case, Inputs
from scsigmoid.benchmarks.kernel import run_kernel_benchmark
from scsigmoid.benchmarks.providers import choose_providers
from scsigmoid.benchmarks.rows import KernelRow, read_rows
from scsigmoid.benchmarks.timing import Clocked, Kernel, Queued, Replayed, WrongResult, run_passes
from scsigmoid.errors import UserError

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
CASE = Case("paper", 64, 4, 700, (700, 450, 129), 0.25)


def kernel_of(name: str, layout: str, inputs: Inputs) -> Kernel:
    """Return a kernel for a batch, or skip the test if the kernel cannot run."""
    named = [one for one in choose_providers([name], "cuda") if one.layout == layout]
    (provider,) = [one for one in named if one.is_timed_for(inputs.case)]
    try:
        return provider.prepare(inputs)
    except UserError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", ["triton", "hopper"])
def test_graphs_can_be_replayed_alone(name: str) -> None:
    """Replaying one graph many times does not change the inputs of the other."""
    inputs = Inputs(CASE, torch.device("cuda"))
    kernel = kernel_of(name, "packed", inputs)
    tensors = inputs.in_layout("packed")
    timer = Replayed(kernel, tensors)
    for _ in range(3):
        timer.backward.replay()
        assert min(timer.once()) > 0
    error, what = inputs.largest_error("sigmoid", "packed", *timer.results())
    assert error < 0.01, what
    output, gradients = timer.results()
    expected, right = Queued(kernel, tensors).results()
    assert torch.equal(output, expected)
    for found, other in zip(gradients, right, strict=True):
        # dQ may be summed in any order.
        torch.testing.assert_close(found, other, rtol=0.02, atol=0.02)


@pytest.mark.parametrize(("name", "layout"), [("fa4_sigmoid", "packed"), ("flex_sigmoid", "heads")])
def test_sigmoid_of_other_libraries(name: str, layout: str) -> None:
    inputs = Inputs(Case("paper", 64, 4, 512, (512, 512, 512)), torch.device("cuda"))
    kernel = kernel_of(name, layout, inputs)
    error, what = inputs.largest_error(
        "sigmoid", layout, *Queued(kernel, inputs.in_layout(layout)).results()
    )
    assert error < 0.01, what


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_graphs_of_two_gpus_in_one_process(order: tuple[int, int]) -> None:
    for index in order:
        with torch.cuda.device(index):
            inputs = Inputs(CASE, torch.device("cuda", index))
            tensors = inputs.in_layout("heads")
            timer = Replayed(lambda q, k, v: q * k * v, tensors)
            expected, _ = run_passes(lambda q, k, v: q * k * v, tensors)
            assert torch.equal(timer.results()[0], expected)


@pytest.mark.skipif("PYTEST_XDIST_WORKER" in os.environ, reason="needs the GPU for itself")
def test_all_timers_agree_if_launches_are_short() -> None:
    case = Case("paper", 64, 16, 16384, (16384,) * 4)  # milliseconds of computation
    inputs = Inputs(case, torch.device("cuda"))
    kernel, tensors = kernel_of("cudnn", "heads", inputs), inputs.in_layout("heads")
    best = [
        np.min([timer(kernel, tensors).once() for _ in range(10)], axis=0)
        for timer in (Replayed, Queued, Clocked)
    ]
    for other in best[1:]:
        assert other == pytest.approx(best[0], rel=0.25, abs=0.2)


@pytest.mark.parametrize(
    ("name", "layout"),
    [("triton", "padded"), ("hopper", "packed"), ("flash_attention_2", "packed")],
)
def test_a_graph_keeps_its_inputs(name: str, layout: str) -> None:
    """Later allocations must not use the memory of lengths and gradients."""
    inputs = Inputs(CASE, torch.device("cuda"))
    kernel = kernel_of(name, layout, inputs)
    timer = Replayed(kernel, inputs.in_layout(layout))
    sizes = [
        (x.shape, x.dtype)
        for x in (inputs.lengths, inputs.cu_seqlens, *inputs.padded, *inputs.in_layout(layout))
    ]
    del inputs, kernel
    gc.collect()
    others = [torch.ones(shape, dtype=dtype, device="cuda") for shape, dtype in sizes * 8]
    output, gradients = timer.results()
    again = Inputs(CASE, torch.device("cuda"))
    attention = "softmax" if name == "flash_attention_2" else "sigmoid"
    error, what = again.largest_error(attention, layout, output, gradients)
    assert error < 0.01, what
    assert len(others) == 8 * len(sizes)


def test_a_failed_capture_affects_only_that_kernel() -> None:
    """Afterwards torch's allocator frees memory again, and the next kernel is captured."""
    inputs = Inputs(CASE, torch.device("cuda"))
    tensors = inputs.in_layout("heads")
    stream = torch.cuda.current_stream()

    def reads(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        # The host waits for the GPU, which is not possible in a graph.
        return q * k * v * q.sum().item()

    with pytest.raises(RuntimeError, match="captur"):
        Replayed(reads, tensors)
    assert torch.cuda.current_stream() == stream
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    large = torch.empty(2**30, dtype=torch.int8, device="cuda")
    del large
    assert torch.cuda.memory_reserved() >= before + 2**30
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() <= before
    timer = Replayed(lambda q, k, v: q * k * v, tensors)
    expected, _ = run_passes(lambda q, k, v: q * k * v, tensors)
    assert torch.equal(timer.results()[0], expected)


class Nothing(torch.autograd.Function):
    """Forward and backward passes that launch no kernel."""

    @staticmethod
    def forward(ctx, q, k, v):  # type: ignore[no-untyped-def]
        return q.view_as(q)

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        return gradient, gradient, gradient


def test_a_graph_without_kernels_is_rejected() -> None:
    inputs = Inputs(CASE, torch.device("cuda"))
    with pytest.raises(WrongResult, match="contains no kernel"):
        Replayed(Nothing.apply, inputs.in_layout("heads"))


def test_a_small_benchmark_of_all_kernels(tmp_path: Path) -> None:
    settings = PAPER.model_copy(
        update={
            "tokens": 2048,
            "hidden": 256,
            "head_dimensions": [64],
            "lengths": [512],
            "median_length": 300,
            "iterations": 40,
            "seconds": 5,
            "warmup_ms": 5,
        }
    )
    run_kernel_benchmark(settings, "cuda", tmp_path / "kernel.csv", tmp_path / "kernel.json")
    rows = read_rows(tmp_path / "kernel.csv", KernelRow)
    failed = [row for row in rows if row.note.startswith(("wrong", "failed"))]
    assert not failed, [(row.provider, row.shape, row.note) for row in failed]
    for row in rows:
        assert row.checked == (row.milliseconds > 0) == bool(row.iterations)
        assert row.checked or row.note
        if row.checked:
            assert row.iterations >= 8
            assert row.relative_error < 0.05
            assert row.call_milliseconds > 0
    timed = {row.provider for row in rows if row.checked}
    assert {"triton", "triton_accurate", "cudnn", "flash_attention_2", "flex", "pytorch"} <= timed
    graphs = {row.provider for row in rows if row.timing == "graph"}
    assert {"triton", "cudnn", "flash_attention_2", "flex"} <= graphs
