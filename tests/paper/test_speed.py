"""Which timings of the kernel benchmark stand for what, and their ratios, from made-up rows."""

import csv
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from paper.conftest import kernel_row

from scsigmoid.benchmarks.cases import Case
from scsigmoid.benchmarks.rows import KernelRow, write_rows
from scsigmoid.config.schema import Config
from scsigmoid.paper import registry
from scsigmoid.paper.claims.kernel import timings
from scsigmoid.paper.figures.benchmarks import drawn
from scsigmoid.paper.results import Results
from scsigmoid.paper.speed import (
    CELLS,
    COMPARISONS,
    PAPER,
    mean_tflops,
    our_path,
    paired,
    ratios,
    series,
    speed_ups,
)
from scsigmoid.paper.tables.benchmarks import kernel_speed

EQUAL = Case("paper", 64, 32, 512, (512,) * 4)
PADDED = Case("paper", 64, 32, 512, (400, 450, 500), 0.25)
JAGGED = Case("jagged", 64, 32, 3000, (1000, 2000, 3000))
SHORT = Case("paper", 64, 32, 512, (512,) * 32)
LONG = Case("paper", 64, 32, 4096, (4096,) * 4)
EVEN = Case("even", 64, 32, 2160, (2160, 2160, 2160))


def row(case: Case, provider: str, layout: str, rate: float) -> KernelRow:
    attention = "softmax" if provider in ("pytorch", "cudnn", "flash_attention_2") else "sigmoid"
    return kernel_row(case, "forward", attention, provider, layout, rate)


ROWS = [
    row(EQUAL, "triton", "padded", 3e14),
    row(EQUAL, "triton", "packed", 4e14),
    row(EQUAL, "triton_accurate", "packed", 2e14),
    row(EQUAL, "flash_attention_2", "padded", 2e14),
    row(EQUAL, "pytorch", "padded", 1e14),
    row(PADDED, "triton", "packed", 3.8e14),
    row(PADDED, "flash_attention_2", "packed", 1.9e14),
    row(PADDED, "pytorch", "padded", 0.5e14),
    row(JAGGED, "triton", "packed", 3.5e14),
    row(JAGGED, "pytorch", "padded", 0.1e14),
]


def results(folder: Path, config: Config, rows: list[KernelRow]) -> Results:
    write_rows(folder / "benchmarks/kernel.csv", KernelRow, rows)
    (folder / "benchmarks/kernel.json").write_text('{"device": "Made-up GPU"}')
    return Results(folder, config)


def test_series_have_a_layout_where_there_are_two(tmp_path: Path, config: Config) -> None:
    found = series(results(tmp_path, config, ROWS))
    assert list(found) == [
        ("triton", "padded"),
        ("triton", "packed"),
        ("triton_accurate", ""),
        ("flash_attention_2", ""),
        ("pytorch", ""),
    ]
    assert all(timing.batch == "paper" for rows in found.values() for timing in rows)
    every = series(results(tmp_path, config, ROWS), (*PAPER, *CELLS))
    assert [timing.batch for timing in every["triton", "packed"]] == ["paper", "paper", "jagged"]


def test_cells_do_not_count_among_the_papers_shapes(tmp_path: Path, config: Config) -> None:
    of = series(results(tmp_path, config, ROWS), (*PAPER, *CELLS))
    ours, standard = of["triton", "packed"], of["pytorch", ""]
    assert speed_ups(ours, standard, 0.0, "forward") == pytest.approx([4.0])
    assert speed_ups(ours, standard, 0.25, "forward") == pytest.approx([7.6])
    assert mean_tflops(ours, 0.0, "forward") == pytest.approx(400)


def test_the_fastest_path_stands_for_ours(tmp_path: Path, config: Config) -> None:
    assert our_path(results(tmp_path, config, [])) == "triton"
    assert our_path(results(tmp_path, config, ROWS)) == "triton"
    absent = replace(row(EQUAL, "hopper", "packed", float("nan")), note="not on this GPU")
    assert our_path(results(tmp_path, config, [*ROWS, absent])) == "triton"
    both = results(tmp_path, config, [*ROWS, row(EQUAL, "hopper", "packed", 6e14)])
    assert our_path(both) == "hopper"
    assert [one.tflops for one in timings(both, "triton_sigmoid")] == pytest.approx([600])


def test_claims_take_the_packed_layout_shape_by_shape(tmp_path: Path, config: Config) -> None:
    found = results(tmp_path, config, ROWS[::-1])
    assert [one.tflops for one in timings(found, "triton_sigmoid")] == pytest.approx([380, 400])
    found = results(tmp_path, config, ROWS)
    assert [one.tflops for one in timings(found, "triton_sigmoid")] == pytest.approx([400, 380])
    # One form at each shape: padded without padding, packed with it.
    flash = timings(found, "flash_attention_2")
    assert [one.layout for one in flash] == ["padded", "packed"]


def test_figures_leave_out_what_only_tables_show(tmp_path: Path, config: Config) -> None:
    hopper = [row(EQUAL, name, "packed", 6e14) for name in ("hopper", "hopper_accurate")]
    assert list(drawn(results(tmp_path, config, [*hopper, *ROWS]))) == [
        ("hopper", ""),
        ("hopper_accurate", ""),
        ("triton", "packed"),
        ("flash_attention_2", ""),
        ("pytorch", ""),
    ]
    assert ("triton_accurate", "") in drawn(results(tmp_path, config, ROWS))


def test_the_table_states_clock_power_and_cells(tmp_path: Path, config: Config) -> None:
    seen = [replace(one, clock_mhz=clock, power_w=600.0) for one, clock in zip(
        ROWS, range(1500, 1600, 10), strict=True)]  # fmt: skip
    made = kernel_speed(results(tmp_path, config, seen))
    assert "clock 1,500 to 1,590 MHz, power 600 to 600 W" in made.notes[0]
    lines = [line[0].text for line in made.cells if len(line) == 1]
    assert "TFLOPS, forward, 3 sequences of cells' lengths, up to 3,000" in lines


# Ratios.


def timed(
    case: Case, provider: str, rates: list[float], layout: str = "packed", way: str = "forward"
) -> KernelRow:
    """A row with these TFLOPS, one a round; NaN where it sat out."""
    milliseconds = [case.flops(way) / rate / 1e9 for rate in rates]
    rate = case.flops(way) / float(np.nanmedian(milliseconds)) * 1e3
    readings = " ".join(f"{one:.6g}" for one in milliseconds)
    return replace(kernel_row(case, way, "", provider, layout, rate), readings=readings)


def test_ratios_are_paired_by_round() -> None:
    """The machine slows down by half; what both see does not blur their ratio."""
    pace = np.linspace(1.0, 0.5, 40)
    ours = timed(SHORT, "triton", list(500 * pace))
    theirs = timed(SHORT, "cudnn", list(400 * pace), "padded")
    assert paired(ours, theirs) == pytest.approx([1.25] * 40, rel=1e-4)


def test_rounds_that_one_sat_out_do_not_count() -> None:
    ours = timed(SHORT, "triton", [500, 400, 300, 200])
    theirs = timed(SHORT, "cudnn", [250, math.nan, 100, math.nan])
    assert paired(ours, theirs) == pytest.approx([2.0, 3.0], rel=1e-4)


def test_shapes_of_different_work_are_compared_by_rate() -> None:
    jagged, even = timed(JAGGED, "triton", [450] * 8), timed(EVEN, "triton", [500] * 8)
    assert jagged.milliseconds != pytest.approx(even.milliseconds * 500 / 450, rel=1e-6)
    assert paired(jagged, even) == pytest.approx([0.9] * 8, rel=1e-4)


def test_each_comparison_takes_the_rows_that_it_names() -> None:
    rows = [
        timed(SHORT, "triton", [400] * 9),
        timed(SHORT, "triton", [300] * 9, "padded"),
        timed(LONG, "triton", [500] * 9),
        # The fastest path counts where it was timed.
        timed(LONG, "hopper", [600] * 9),
        timed(LONG, "hopper_accurate", [450] * 9),
        timed(SHORT, "cudnn", [200] * 9, "padded"),
        timed(LONG, "cudnn", [300] * 9, "padded"),
        timed(LONG, "triton_sigmoid", [250] * 9, "padded"),
        timed(PADDED, "triton", [360] * 9),
        timed(PADDED, "triton", [240] * 9, "padded"),
        timed(PADDED, "cudnn", [1] * 9, "padded"),
        timed(JAGGED, "hopper", [450] * 9),
        timed(EVEN, "triton", [1000] * 9),
        timed(EVEN, "hopper", [500] * 9),
        timed(LONG, "hopper", [550] * 9, way="backward"),
        timed(LONG, "cudnn", [500] * 9, "padded", way="backward"),
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
    found = ratios(
        [timed(SHORT, "triton", [400] * 9), timed(SHORT, "triton", [3] * 9, "padded")], 0.99
    )
    assert found == []


def test_names_are_unique() -> None:
    assert len({one.name for one in COMPARISONS}) == len(COMPARISONS)


def test_the_table(tmp_path: Path, config: Config) -> None:
    random = np.random.default_rng(0)
    rates = list(500 * random.uniform(0.99, 1.01, 40))
    rows = [
        timed(LONG, "hopper", rates),
        timed(LONG, "cudnn", [one / 1.3 for one in rates], "padded"),
        timed(LONG, "hopper", rates, way="backward"),
        timed(LONG, "cudnn", [one / 1.2 for one in rates], "padded", way="backward"),
        # Not paired: its interval holds 1.40.
        timed(LONG, "triton_sigmoid", list(500 / 1.4 * random.uniform(0.9, 1.1, 40)), "padded"),
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
