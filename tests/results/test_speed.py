"""Selection, ratios and costs of benchmark timings, from made-up rows."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_up_results import ends, filled, kernel_row

from scsigmoid.benchmarks.cases import Case
from scsigmoid.benchmarks.rows import KernelRow, Shape, TrainingRow, write_rows
from scsigmoid.config.schema import Config
from scsigmoid.paper.kernel_speed import timings
from scsigmoid.report.figures.benchmark_figures import series_to_draw
from scsigmoid.report.tables.benchmark_tables import kernel_speed
from scsigmoid.results import speed
from scsigmoid.results.folder import Results

EQUAL = Case("paper", 64, 32, 512, (512,) * 4)
PADDED = Case("paper", 64, 32, 512, (400, 450, 500), 0.25)
JAGGED = Case("jagged", 64, 32, 3000, (1000, 2000, 3000))
SHORT = Case("paper", 64, 32, 512, (512,) * 32)
LONG = Case("paper", 64, 32, 4096, (4096,) * 4)
EVEN = Case("even", 64, 32, 2160, (2160, 2160, 2160))
EQUAL_SHAPE = Shape("paper", 0.0, 64, 512, "forward")


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
    rows = [replace(row, device="Made-up GPU") for row in rows]
    write_rows(folder / "benchmarks/kernel.csv", KernelRow, rows)
    (folder / "benchmarks/kernel.json").write_text('{"device": "Made-up GPU"}')
    return Results(folder, config)


def costs_of(folder: Path, config: Config, rows: list[TrainingRow]) -> list[speed.Cost]:
    write_rows(folder / "benchmarks/training.csv", TrainingRow, rows)
    (folder / "benchmarks/training.json").write_text("{}")
    return speed.costs(Results(folder, config))


def test_series_have_a_layout_if_a_kernel_has_two(tmp_path: Path, config: Config) -> None:
    by_series = speed.series(results(tmp_path, config, ROWS))
    ours = [("triton", "padded"), ("triton", "packed"), ("triton_accurate", "")]
    assert list(by_series) == [*ours, ("flash_attention_2", ""), ("pytorch", "")]
    assert all(timing.batch == "paper" for rows in by_series.values() for timing in rows)
    batches = speed.PAPER_BATCHES + speed.CELL_BATCHES
    by_series = speed.series(results(tmp_path, config, ROWS), batches)
    ours, standard = by_series["triton", "packed"], by_series["pytorch", ""]
    assert [timing.batch for timing in ours] == ["paper", "paper", "jagged"]
    # Batches with the lengths of cells have no speed-up.
    assert speed.speed_ups(ours, standard, 0.0, "forward") == pytest.approx([4.0])
    assert speed.speed_ups(ours, standard, 0.25, "forward") == pytest.approx([7.6])


def test_our_backend_is_the_fastest_timed_backend(tmp_path: Path, config: Config) -> None:
    assert speed.our_backend(results(tmp_path, config, [])) == "triton"
    assert speed.our_backend(results(tmp_path, config, ROWS)) == "triton"
    not_timed = replace(row(EQUAL, "hopper", "packed", float("nan")), note="not on this GPU")
    assert speed.our_backend(results(tmp_path, config, [*ROWS, not_timed])) == "triton"
    both = results(tmp_path, config, [*ROWS, row(EQUAL, "hopper", "packed", 6e14)])
    assert speed.our_backend(both) == "hopper"


def test_the_preferred_layout_is_used(tmp_path: Path, config: Config) -> None:
    for rows in (ROWS, ROWS[::-1]):
        folder = results(tmp_path, config, rows)
        packed, padded = (timings(folder, "triton", name) for name in ("packed", "padded"))
        assert packed[EQUAL_SHAPE].tflops == pytest.approx(400)
        assert padded[EQUAL_SHAPE].tflops == pytest.approx(300)
        # This kernel has the layout "packed" only at the shape with padding.
        flash = timings(folder, "flash_attention_2", "padded")
        assert {row.layout for row in flash.values()} == {"padded", "packed"}


def test_figures_show_fewer_series_than_tables(tmp_path: Path, config: Config) -> None:
    hopper = [row(EQUAL, name, "packed", 6e14) for name in ("hopper", "hopper_accurate")]
    drawn = series_to_draw(results(tmp_path, config, [*hopper, *ROWS]))
    ours = [("hopper", ""), ("hopper_accurate", ""), ("triton", "packed")]
    assert list(drawn) == [*ours, ("flash_attention_2", ""), ("pytorch", "")]
    assert ("triton_accurate", "") in series_to_draw(results(tmp_path, config, ROWS))


def timed(
    case: Case, provider: str, rates: list[float], layout: str = "packed", way: str = "forward"
) -> KernelRow:
    """Return a row. ``rates`` are TFLOPS by round, NaN for rounds that did not time the kernel."""
    milliseconds = [case.flops(way) / rate / 1e9 for rate in rates]
    rate = case.flops(way) / float(np.nanmedian(milliseconds)) * 1e3
    readings = " ".join(f"{time:.6g}" for time in milliseconds)
    return replace(kernel_row(case, way, "sigmoid", provider, layout, rate), readings=readings)


def test_ratios_are_paired_by_round() -> None:
    """The speed of the machine falls to a half. This affects both kernels, but not their ratio."""
    pace = np.linspace(1.0, 0.5, 40)
    ours = timed(SHORT, "triton", list(500 * pace))
    theirs = timed(SHORT, "cudnn", list(400 * pace), "padded")
    assert speed.paired_ratios(ours, theirs) == pytest.approx([1.25] * 40, rel=1e-4)
    ours = timed(SHORT, "triton", [500, 400, 300, 200])
    theirs = timed(SHORT, "cudnn", [250, math.nan, 100, math.nan])  # skipped two rounds
    assert speed.paired_ratios(ours, theirs) == pytest.approx([2.0, 3.0], rel=1e-4)
    assert speed.paired_ratios(ours, replace(theirs, readings="")) == []  # not timed
    with pytest.raises(ValueError, match="shorter"):
        speed.paired_ratios(ours, timed(SHORT, "cudnn", [250, 200]))


def test_shapes_of_different_work_are_compared_by_rate() -> None:
    jagged, even = timed(JAGGED, "triton", [450] * 8), timed(EVEN, "triton", [500] * 8)
    assert jagged.milliseconds != pytest.approx(even.milliseconds * 500 / 450, rel=1e-6)
    assert speed.paired_ratios(jagged, even) == pytest.approx([0.9] * 8, rel=1e-4)


def test_ratios_in_the_table(tmp_path: Path, config: Config) -> None:
    random = np.random.default_rng(0)
    rates = list(500 * random.uniform(0.99, 1.01, 40))
    rows = [
        timed(LONG, "hopper", rates),
        timed(LONG, "hopper", [1] * 40, "padded"),
        timed(LONG, "triton", [1] * 40),  # slower than hopper, which counts
        timed(LONG, "cudnn", [rate / 1.3 for rate in rates], "padded"),
        timed(LONG, "hopper", rates, way="backward"),
        timed(LONG, "cudnn", [rate / 1.2 for rate in rates], "padded", way="backward"),
        # The ratio varies between rounds. Its interval contains 1.40.
        timed(LONG, "triton_sigmoid", list(500 / 1.4 * random.uniform(0.9, 1.1, 40)), "padded"),
        timed(JAGGED, "hopper", [450] * 40),
        timed(JAGGED, "cudnn", [300] * 40, "padded"),
        timed(SHORT, "cudnn", [1] * 40, "padded"),  # no row of our kernel at this shape
    ]
    table = kernel_speed(results(tmp_path, config, rows))
    titles = [line[0].text for line in table.cells if len(line) == 1]
    assert "TFLOPS, forward, 3 sequences of cells' lengths, up to 3,000" in titles
    records = {(row["provider"], row["pass"], row["length"]): row for row in table.records}
    ratios = {key: row["ratio"] for key, row in records.items() if row["ours"]}
    triton_sigmoid = records["triton_sigmoid", "forward", 4096]
    assert triton_sigmoid["ratio_low"] < 1.4 < triton_sigmoid["ratio_high"]
    shapes = [("forward", 4096), ("backward", 4096), ("forward", 3000)]
    cudnn = [ratios.pop(("cudnn", *shape)) for shape in shapes]
    assert cudnn == pytest.approx([1.3, 1.2, 1.5], rel=1e-4)
    others = {key for key in ratios if key[0] != "hopper"}
    assert others == {(name, "forward", 4096) for name in ("triton", "triton_sigmoid")}
    assert math.isnan(records["cudnn", "forward", 512]["ratio"])


def cost_row(attention: str, kernel: str, times: list[float], context: int = 64) -> TrainingRow:
    median = float(np.median(times))
    return filled(
        TrainingRow, size="160M", context=context, cells_per_step=2, attention=attention,
        kernel=kernel, milliseconds=median, **ends("gpu_hours", median, 0.9, 1.1),
        rounds=len(times), readings=" ".join(map(str, times)),
    )  # fmt: skip


def test_costs_are_compared_by_round(tmp_path: Path, config: Config) -> None:
    """Times rise and fall together. Sigmoid takes 10 % less time in each round."""
    times = np.random.default_rng(2).lognormal(0, 0.5, 50)
    rows = [
        cost_row("sigmoid", "hopper", list(0.9 * times)),
        cost_row("softmax", "fa4", list(times)),
        # Slower kernels of the same attention do not count, nor do contexts with one attention.
        cost_row("softmax", "flex", list(2 * times)),
        cost_row("sigmoid", "hopper", list(times), context=128),
    ]
    (cost,) = costs_of(tmp_path, config, rows)
    assert (cost.sigmoid.kernel, cost.softmax.kernel) == ("hopper", "fa4")
    assert tuple(cost.saved_percent) == pytest.approx((10, 10, 10))
    # Without times of each round, the ratio is computed from both intervals.
    rows = [replace(row, readings="") for row in rows]
    (cost,) = costs_of(tmp_path, config, rows)
    assert tuple(cost.hours_ratio) == pytest.approx((0.9, 0.9 * 0.9 / 1.1, 0.9 * 1.1 / 0.9))


def test_notes_name_their_rows() -> None:
    rows = [cost_row("sigmoid", "hopper", [1.0], context) for context in (2048, 4096, 8192)]
    bound = replace(rows[0], note="Bound by the host")
    large = replace(rows[2], milliseconds=math.nan, note="does not fit")
    assert speed.notes([bound, rows[1], large], speed.row_label) == [
        "Bound by the host: sigmoid 160M at 2K.",
        "Not timed (does not fit): sigmoid 160M at 8K.",
    ]
    rows = [replace(row, note="On a CPU") for row in rows]
    assert speed.notes(rows, speed.row_label) == ["On a CPU."]
