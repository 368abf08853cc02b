"""Ratios of the kernel benchmark, from a hand-made table."""

import csv
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from paper.kernel_rows import kernel_row

from scsigmoid.benchmarks.cases import Case
from scsigmoid.benchmarks.rows import KernelRow, write_rows
from scsigmoid.config.schema import Config
from scsigmoid.paper import registry
from scsigmoid.paper.results import Results
from scsigmoid.paper.speed import COMPARISONS, paired, ratios

SHORT = Case("paper", 64, 32, 512, (512,) * 32)
LONG = Case("paper", 64, 32, 4096, (4096,) * 4)
PADDED = Case("paper", 64, 32, 512, (400, 450, 500), 0.25)
JAGGED = Case("jagged", 64, 32, 3000, (1000, 2000, 3000))
EVEN = Case("even", 64, 32, 2160, (2160, 2160, 2160))


def row(
    case: Case, provider: str, rates: list[float], layout: str = "packed", way: str = "forward"
) -> KernelRow:
    """A row with these TFLOPS, one a turn; NaN where it sat out."""
    milliseconds = [case.flops(way) / rate / 1e9 for rate in rates]
    rate = case.flops(way) / float(np.nanmedian(milliseconds)) * 1e3
    readings = " ".join(f"{one:.6g}" for one in milliseconds)
    return replace(kernel_row(case, way, "", provider, layout, rate), readings=readings)


def test_ratios_are_paired_by_turn() -> None:
    """The machine slows down by half; what both see does not blur their ratio."""
    pace = np.linspace(1.0, 0.5, 40)
    ours = row(SHORT, "triton", list(500 * pace))
    theirs = row(SHORT, "cudnn", list(400 * pace), "padded")
    assert paired(ours, theirs) == pytest.approx([1.25] * 40, rel=1e-4)


def test_rounds_that_one_sat_out_do_not_count() -> None:
    ours = row(SHORT, "triton", [500, 400, 300, 200])
    theirs = row(SHORT, "cudnn", [250, math.nan, 100, math.nan])
    assert paired(ours, theirs) == pytest.approx([2.0, 3.0], rel=1e-4)


def test_shapes_of_different_work_are_compared_by_rate() -> None:
    jagged, even = row(JAGGED, "triton", [450] * 8), row(EVEN, "triton", [500] * 8)
    assert jagged.milliseconds != pytest.approx(even.milliseconds * 500 / 450, rel=1e-6)
    assert paired(jagged, even) == pytest.approx([0.9] * 8, rel=1e-4)


def test_each_comparison_takes_the_rows_that_it_names() -> None:
    rows = [
        row(SHORT, "triton", [400] * 9),
        row(SHORT, "triton", [300] * 9, "padded"),
        row(LONG, "triton", [500] * 9),
        # The fastest path counts where it was timed.
        row(LONG, "hopper", [600] * 9),
        row(LONG, "hopper_accurate", [450] * 9),
        row(SHORT, "cudnn", [200] * 9, "padded"),
        row(LONG, "cudnn", [300] * 9, "padded"),
        row(LONG, "triton_sigmoid", [250] * 9, "padded"),
        row(PADDED, "triton", [360] * 9),
        row(PADDED, "triton", [240] * 9, "padded"),
        row(PADDED, "cudnn", [1] * 9, "padded"),
        row(JAGGED, "hopper", [450] * 9),
        row(EVEN, "triton", [1000] * 9),
        row(EVEN, "hopper", [500] * 9),
        row(LONG, "hopper", [550] * 9, way="backward"),
        row(LONG, "cudnn", [500] * 9, "padded", way="backward"),
    ]
    found = {
        (one.comparison.name, one.ours.length): round(one.interval.value, 3)
        for one in ratios(rows, 0.99)
    }
    assert found == {
        ("cudnn_forward", 4096): 2.0,
        ("cudnn_backward", 4096): 1.1,
        ("cudnn_forward_all", 512): 2.0,
        ("cudnn_forward_all", 4096): 2.0,
        ("cudnn_backward_all", 4096): 1.1,
        ("published_forward", 4096): 2.4,
        ("exact_forward", 4096): 1.5,
        ("padding_padded_forward", 512): 0.8,
        ("padding_packed_forward", 512): 0.9,
        ("jagged_forward", 3000): 0.9,
        ("portable_forward", 4096): 2.0,
    }


def test_no_padding_is_not_compared_with_itself() -> None:
    found = ratios([row(SHORT, "triton", [400] * 9), row(SHORT, "triton", [3] * 9, "padded")], 0.99)
    assert found == []


def test_names_are_unique() -> None:
    assert len({one.name for one in COMPARISONS}) == len(COMPARISONS)


def test_the_table(tmp_path: Path, config: Config) -> None:
    random = np.random.default_rng(0)
    rates = list(500 * random.uniform(0.99, 1.01, 40))
    rows = [
        row(LONG, "hopper", rates),
        row(LONG, "cudnn", [one / 1.3 for one in rates], "padded"),
        row(LONG, "hopper", rates, way="backward"),
        row(LONG, "cudnn", [one / 1.2 for one in rates], "padded", way="backward"),
        # Not paired: its interval holds 1.40.
        row(LONG, "triton_sigmoid", list(500 / 1.4 * random.uniform(0.9, 1.1, 40)), "padded"),
    ]
    rows = [replace(one, note="") for one in rows]
    write_rows(tmp_path / "benchmarks/kernel.csv", KernelRow, rows)
    machine = json.dumps({"device": "Made-up GPU"})
    (tmp_path / "benchmarks/kernel.json").write_text(machine)
    registry.write("table", "kernel_ratios", Results(tmp_path, config), tmp_path / "kernel_ratios")
    with (tmp_path / "kernel_ratios.csv").open(newline="") as handle:
        of = {record["comparison"]: record for record in csv.DictReader(handle)}
    assert float(of["cudnn_forward"]["ratio"]) == pytest.approx(1.3, rel=1e-4)
    assert of["cudnn_forward"]["rounds"] == "40"
    assert float(of["cudnn_backward"]["ratio"]) == pytest.approx(1.2, rel=1e-4)
    published = of["published_forward"]
    assert float(published["ratio_low"]) < 1.4 < float(published["ratio_high"])
    markdown = (tmp_path / "kernel_ratios.md").read_text()
    line = next(one for one in markdown.splitlines() if "softmax, forward, 4K and 16K | 64" in one)
    assert "| 1.300 [1.300, 1.300] at 4K |" in line
    assert "Not measured: Over FlashAttention-4, forward, 1K to 8K; " in markdown
    assert "Ours: Sigmoid, Hopper (ours)." in markdown
