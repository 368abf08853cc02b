"""Which timings of the kernel benchmark stand for what."""

from dataclasses import replace
from pathlib import Path

import pytest
from paper.kernel_rows import kernel_row

from scsigmoid.benchmarks.cases import Case
from scsigmoid.benchmarks.rows import KernelRow, write_rows
from scsigmoid.config.schema import Config
from scsigmoid.paper.claims.kernel import timings
from scsigmoid.paper.figures.benchmarks import drawn
from scsigmoid.paper.results import Results
from scsigmoid.paper.speed import CELLS, PAPER, mean_tflops, our_path, series, speed_ups
from scsigmoid.paper.tables.benchmarks import kernel_speed

EQUAL = Case("paper", 64, 32, 512, (512,) * 4)
PADDED = Case("paper", 64, 32, 512, (400, 450, 500), 0.25)
JAGGED = Case("jagged", 64, 32, 3000, (1000, 2000, 3000))


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
