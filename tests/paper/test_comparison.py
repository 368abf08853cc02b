"""The comparison with the paper: comparable groups of numbers, and the rule for verdicts."""

import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from configurations import with_settings
from made_up_results import H100, PapersNumbers, with_other, write_cells, write_parquet

from scsigmoid.benchmarks.rows import KernelRow, write_rows
from scsigmoid.config.schema import Config
from scsigmoid.paper.all_numbers import GROUPS, numbers
from scsigmoid.paper.differences import differences
from scsigmoid.paper.kernel_speed import REDUCTIONS, reduced
from scsigmoid.paper.number import (
    INCONCLUSIVE,
    NO_VERDICT,
    NOT_REPRODUCED,
    ORDER_FACTOR,
    REPRODUCED,
    Number,
    count,
)
from scsigmoid.paper.reported import reported
from scsigmoid.records.measurements import Interval, read_measurements, write_measurements
from scsigmoid.report import registry
from scsigmoid.results.folder import Results
from scsigmoid.results.labels import PASSES

LONGER = "Comparisons in which the longer context has the lower validation loss"


def reopened(results: Results) -> Results:
    """Return results that read all files again."""
    return Results(results.folder, results.config)


def by_title(results: Results) -> dict[str, Number]:
    """Return the numbers of changed files by title and unit."""
    all_numbers = numbers(reopened(results))
    titled = {number.title + number.unit: number for number in all_numbers}
    assert len(titled) == len(all_numbers)
    return titled


def difference_names(results: Results, group: str) -> list[str]:
    """Return the names of the differences of a group, from changed files."""
    rows = differences(results.config, reopened(results))
    return [row.name for row in rows if row.group == group]


# Results with the paper's own numbers.


def test_the_papers_own_numbers_are_reproduced(paper_results: Results) -> None:
    assert differences(paper_results.config, paper_results) == []
    all_numbers = numbers(paper_results)
    assert {number.group for number in all_numbers} == set(GROUPS)
    assert [number for number in all_numbers if number.verdict != REPRODUCED] == []
    records = registry.make("table", "comparison", paper_results).records
    assert {record["verdict"] for record in records} == {REPRODUCED}


def test_swapped_arms_change_every_verdict_about_a_difference(
    paper_results: Results, tmp_path: Path
) -> None:
    PapersNumbers(tmp_path / "swapped", paper_results.config, swapped=True).write_all()
    swapped = numbers(Results(tmp_path / "swapped", paper_results.config))
    effects = [
        number for number in swapped if number.no_effect is not None and number.title != LONGER
    ]
    assert [number.title for number in effects if number.verdict == REPRODUCED] == []
    decided = {number.group for number in effects if number.verdict == NOT_REPRODUCED}
    assert decided == set(GROUPS)


def test_the_table_has_every_number_that_the_paper_prints(paper_results: Results) -> None:
    compared = {number.paper.value for number in numbers(paper_results)}
    assert len(reported()["mmd"]["heart_oft"]) == 28
    for row in reported()["mmd"]["heart_oft"]:
        assert {row["sigmoid"][0], row["softmax"][0]} <= compared
    for row in reported()["validation_loss"].values():
        assert {mean for mean, _ in row.values()} <= compared
    for row in reported()["gpu_hours"]:
        assert {row["sigmoid"], row["softmax"], row["saved"]} <= compared
    for row in reported()["speed_ups"]:
        assert {row["mean"], *row.get("range", ())} <= compared


# The rule for verdicts.


def number(paper: float, *here: float, no_effect: float | None = None, **more: Any) -> Number:
    """Return a number. ``here`` is an interval (value, low, high), or a value for all three."""
    interval = here if len(here) == 3 else here * 3
    return Number(
        group="quality", title="", location="", unit="", paper=Interval(paper),
        here=Interval(*interval), n=2, no_effect=no_effect, **more,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("paper", "no_effect"),
    [(12.0, None), (2.5, None), *itertools.product([12.0, 2.5, -0.02], [0.0, 1.0, 6.0])],
)
def test_the_rule_by_brute_force(paper: float, no_effect: float | None) -> None:
    """Compare the verdict with 101 values of the interval, tested one by one."""

    def is_allowed(value: float) -> bool:
        if no_effect is None:
            return paper / 1.1 <= value <= paper * 1.1
        return (value - no_effect) / (paper - no_effect) >= 0.5

    random = np.random.default_rng(0)
    for _ in range(300):
        low, high = sorted(random.normal(paper, abs(paper) + 0.2, 2))
        allowed = [is_allowed(value) for value in np.linspace(low, high, 101)]
        expected = REPRODUCED if all(allowed) else INCONCLUSIVE if any(allowed) else NOT_REPRODUCED
        verdict = number(paper, (low + high) / 2, low, high, no_effect=no_effect).verdict
        # All allowed values of a wide interval may be between two of the 101 values.
        assert verdict == expected or (verdict == INCONCLUSIVE and high - low > 1)


def test_orders_of_magnitude_and_ranges() -> None:
    assert number(1.6e6, 6e5, factor=ORDER_FACTOR).verdict == REPRODUCED
    assert number(1.6e6, 4e5, factor=ORDER_FACTOR).verdict == NOT_REPRODUCED
    paper_range = Interval(math.nan, 10, 100)
    assert replace(number(0, 50, 9.5, 105), paper=paper_range).verdict == REPRODUCED
    assert replace(number(0, 50, 5, 90), paper=paper_range).verdict == INCONCLUSIVE
    assert replace(number(0, 5, 4, 6), paper=paper_range).verdict == NOT_REPRODUCED


def test_without_a_value_and_an_interval_there_is_no_verdict() -> None:
    nan = math.nan
    for here in ((nan,), (2.5, nan, nan), (2.5, 2.4, nan), (nan, 2.4, 2.6), (math.inf,)):
        assert number(2.5, *here).verdict == NO_VERDICT
        assert number(2.5, *here, no_effect=0).verdict == NO_VERDICT


def test_the_interval_of_a_count() -> None:
    leads = [Interval(1, 0.5, 2), Interval(1, -0.5, 2), Interval(-1, -2, 0.5), Interval(-1, -2, -1)]
    assert count(leads) == (2, 1, 3)
    assert all(map(math.isnan, count([])))
    for unknown in (Interval(math.nan), Interval(1.0)):
        assert all(map(math.isnan, count([*leads, unknown])))


# Datasets with one cell, and with additional cell types.


def test_a_single_cell_gives_no_verdict(paper_results: Results) -> None:
    folder = paper_results.folder / "metrics/validation_loss/lung_acr"
    for model, (loss, _) in reported()["validation_loss"]["lung_acr"].items():
        columns = {"cell": [0], "donor": [""], "loss": [loss]}
        write_cells(folder / f"{model}.parquet", columns)
        rows = read_measurements(folder / f"{model}.csv")
        changed_rows = [replace(row, value=loss, low=math.nan, high=math.nan, n=1) for row in rows]
        write_measurements(folder / f"{model}.csv", changed_rows)
    # The comparison of this dataset is unknown, and so is the count over all datasets.
    for title in (
        "Lung ACR, Sigmoid 4K: validation loss",
        "Lung ACR, 4K: softmax's validation loss",
        "sigmoid has the lower validation loss",
    ):
        (verdict,) = (row.verdict for name, row in by_title(paper_results).items() if title in name)
        assert verdict == NO_VERDICT


def test_further_cell_types_do_not_count(paper_results: Results) -> None:
    before = {title: number.here for title, number in by_title(paper_results).items()}
    path = paper_results.folder / "metrics/mmd/heart_oft.csv"
    rows = read_measurements(path)
    more = [
        replace(row, group=row.group.replace("Mesenchymal", "Mast"), value=9.0, low=8.0, high=10.0)
        for row in rows
        if row.group.startswith("Mesenchymal vs")
    ]
    write_measurements(path, [*more, *rows])
    after = {title: number.here for title, number in by_title(paper_results).items()}
    assert repr(after) == repr(before)
    assert difference_names(paper_results, "quality") == []


def test_the_mean_ratio_is_the_ratio_of_the_means(paper_results: Results) -> None:
    rows = reported()["mmd"]["heart_oft"]
    sigmoid, softmax = (np.mean([row[arm][0] for row in rows]) for arm in ("sigmoid", "softmax"))
    (increase,) = (number for number in numbers(paper_results) if "mean MMD" in number.title)
    assert increase.here.value == pytest.approx(100 * (sigmoid / softmax - 1))
    assert increase.here.low < increase.here.value < increase.here.high


# Kernels.


def test_triton_sigmoid_is_compared_by_its_own_times(paper_results: Results) -> None:
    path = paper_results.folder / "benchmarks/kernel.csv"
    rows = paper_results.kernel_rows
    before = by_title(paper_results)
    triton_sigmoid = [row for row in rows if row.provider == "triton_sigmoid"]
    hopper = [
        replace(row, provider="hopper", layout="packed", tflops=row.tflops * 2,
                tflops_low=row.tflops_low * 2, tflops_high=row.tflops_high * 2)
        for row in triton_sigmoid
    ]  # fmt: skip
    write_rows(path, KernelRow, [*rows, *hopper])
    after = by_title(paper_results)
    assert {title: number.here for title, number in after.items()} == {
        title: number.here for title, number in before.items()
    }
    peak = after["TritonSigmoid: TFLOPS at 16,384 tokens, forwardTFLOPS"]
    assert (peak.here.value, peak.our_kernel.value) == pytest.approx((515.6, 1031.2))
    # If only our kernel was timed, there is no verdict about TritonSigmoid.
    write_rows(path, KernelRow, [*(row for row in rows if row not in triton_sigmoid), *hopper])
    peak = by_title(paper_results)["TritonSigmoid: TFLOPS at 16,384 tokens, forwardTFLOPS"]
    assert (peak.verdict, peak.our_kernel.value) == (NO_VERDICT, pytest.approx(1031.2))


def test_a_mean_over_shapes_is_over_all_shapes_of_the_paper(paper_results: Results) -> None:
    """A mean over one shape of twelve had a verdict, and other lengths changed the mean."""
    path = paper_results.folder / "benchmarks/kernel.csv"
    rows, before = paper_results.kernel_rows, by_title(paper_results)
    longer = [replace(row, length=32_768, tflops=9e3) for row in rows if row.length == 16_384]
    write_rows(path, KernelRow, [*rows, *longer])
    after = {title: number.here for title, number in by_title(paper_results).items()}
    assert repr(after) == repr({title: number.here for title, number in before.items()})
    # Plain PyTorch does not fit into memory at one shape.
    is_largest = [
        (row.provider, row.head_dimension, row.length, row.padding) == ("pytorch", 64, 16_384, 0.0)
        for row in rows
    ]
    assert sum(is_largest) == len(PASSES)
    write_rows(
        path, KernelRow, [row for row, skip in zip(rows, is_largest, strict=True) if not skip]
    )
    incomplete = by_title(paper_results)
    title = "TritonSigmoid: {} speed-up over PyTorch, forward, {} % paddingtimes"
    for kind, padding in itertools.product(("mean", "lowest", "highest"), (0, 25)):
        mean = incomplete[title.format(kind, padding)]
        assert (mean.n, mean.verdict) == ((12, REPRODUCED) if padding else (11, NO_VERDICT))
        assert math.isfinite(mean.here.value)


@pytest.mark.parametrize("reduction", [*REDUCTIONS])
def test_a_shape_without_an_interval_leaves_no_interval(reduction: str) -> None:
    """The lowest and highest value kept theirs if it was that of another shape."""
    for other in (Interval(1.0), Interval(3.0)):
        here, n = reduced([Interval(2.0, 1.9, 2.1), other], reduction, 2)
        assert (n, math.isfinite(here.value), math.isnan(here.low)) == (2, True, True)


# Differences from the paper.


@pytest.mark.parametrize(
    ("file", "old", "new", "group", "name"),
    [
        ("benchmarks/kernel.json", "H100", "H200", "kernel", "GPU"),
        ("benchmarks/training.json", "H100", "A100", "cost", "GPU"),
        # Slower GPUs than the paper's, which have SXM5 sockets.
        ("benchmarks/kernel.json", "80GB HBM3", "PCIe", "kernel", "GPU"),
        ("benchmarks/training.json", "80GB HBM3", "NVL", "cost", "GPU"),
        ("benchmarks/kernel.json", "80GB HBM3", "80GB HBM3 MIG 3g.40gb", "kernel", "GPU"),
        ("training/sigmoid_4k/journal.csv", "80GB HBM3", "PCIe", "hours", "GPU of sigmoid_4k"),
        ("training/sigmoid_4k/journal.csv", "processes: 16", "processes: 8", "hours",
         "GPUs that train sigmoid_4k"),
        ("training/sigmoid_4k/journal.csv", "processes: 16", "other: 16", "hours",
         "GPUs that train sigmoid_4k"),
        ("training/sigmoid_4k/journal.csv", "H100", "H200", "hours", "GPU of sigmoid_4k"),
        ("benchmarks/training.csv", "padded", "packed", "cost", "layout"),
        ("benchmarks/training.csv", "triton_sigmoid", "hopper", "cost", "kernel of sigmoid"),
        ("benchmarks/training.csv", "false", "true", "cost", "sigmoid 160M at 2K"),
        ("benchmarks/training.csv", "160000000", "135000000", "cost",
         "sizes and contexts"),
        ("corpus/evaluation/heart_oft.json", "30125", "29000", "quality", "Heart OFT"),
        ("metrics/mmd/heart_oft.csv", "vs Neural", "vs Glia", "quality", "cell types of Heart OFT"),
        ("training/sigmoid_4k/journal.csv", "H100", "H200", "quality", ""),
        ("training/sigmoid_8k/journal.csv", H100, "cpu", "stability", "device of sigmoid_8k"),
        ("training/sigmoid_8k/journal.csv", "\n80000,", "\n79999,", "stability",
         "last step of sigmoid_8k"),
    ],
)  # fmt: skip
def test_facts_that_differ_from_the_paper_are_named(
    paper_results: Results, file: str, old: str, new: str, group: str, name: str
) -> None:
    path = paper_results.folder / file
    text = path.read_text()
    assert old in text
    # In a benchmark, only the first row is changed, or else the device of all rows.
    path.write_text(text.replace(old, new, 1 if "benchmarks" in file else -1))
    if name == "GPU":
        rows = path.with_suffix(".csv")
        rows.write_text(rows.read_text().replace(old, new))
    assert difference_names(paper_results, group) == ([name] if name else [])
    records = registry.make("table", "comparison", reopened(paper_results)).records
    verdicts = {record["verdict"] for record in records if record["group"] == group}
    assert verdicts == ({NO_VERDICT} if name else {REPRODUCED})


def test_fewer_training_cells_are_named(paper_results: Results) -> None:
    columns = {"length": [100, 200], "cells": [3, 1]}
    write_parquet(paper_results.folder / "tokens/lengths.parquet", columns)
    assert difference_names(paper_results, "stability") == ["number of training cells"]


#: Settings of training with values that differ from the paper.
TRAINING = {
    "learning_rate": 3e-4, "global_batch": 128, "warmup_steps": 500, "weight_decay": 0.0,
    "betas": [0.9, 0.95], "epsilon": 1e-6, "clipping": 2.0, "mask_fraction": 0.3,
    "gradient": "mean", "steps": 400_000,
}  # fmt: skip
SETTINGS = [
    *((group, name) for group in GROUPS for name in reported()["settings"][group]),
    *(("quality", f"training.{name}") for name in TRAINING),
    *(("quality", f"architecture.{name}") for name in ("dropout", "variants")),
    *(("stability", f"models.softmax_8k.{name}") for name in ("context", "attention")),
]


@pytest.mark.parametrize(("group", "setting"), SETTINGS)
def test_settings_that_differ_from_the_paper_are_named(
    paper_config: Config, group: str, setting: str
) -> None:
    assert differences(paper_config) == []
    path = setting.split(".")
    name = path[-1] if path[0] in ("training", "architecture", "models") else setting
    value: Any = {**TRAINING, "attention": "sigmoid", "variants": ["qk_norm"]}.get(name, 7)
    paper = reported()["settings"][group].get(setting)
    if setting == "evaluation.pair":
        value = paper[::-1]
    elif isinstance(paper, list):
        value = paper[:1] if len(paper) > 1 else [16]
    changed = with_settings(paper_config, {setting: value})
    rows = [row for row in differences(changed) if row.group == group]
    if path[0] == "models":  # a model with another attention or context is not the paper's
        name = "models.softmax_8k"
    assert [row.name.split(" of ")[0] for row in rows] == [name]


def test_the_papers_models_may_have_any_names(paper_results: Results) -> None:
    """Models are found by attention and context, and sizes by the number of parameters."""
    config, folder = paper_results.config, paper_results.folder
    names = {name: f"run_{number}" for number, name in enumerate(config.models)}
    for old, new in names.items():
        (folder / f"training/{old}").rename(folder / f"training/{new}")
        for path in [*folder.glob(f"metrics/validation_loss/*/{old}.*")]:
            path.rename(path.with_stem(new))
    for path in [*folder.glob("metrics/*/*.csv"), *folder.glob("metrics/*/*/*.csv")]:
        rows = read_measurements(path)
        write_measurements(path, [
            replace(row, model=names.get(row.model, row.model),
                    compared_with=names.get(row.compared_with, ""))
            for row in rows
        ])  # fmt: skip
    for path in folder.glob("metrics/validation_loss/*/*.parquet"):
        write_cells(path, dict(pq.read_table(path).to_pydict()))
    models = {names[name]: model for name, model in config.models.items()}
    pair = [names[name] for name in config.evaluation.pair]
    renamed = with_other(paper_results, {"models": models, "evaluation.pair": pair})
    assert differences(renamed.config, renamed) == []
    assert [number for number in numbers(renamed) if number.verdict != REPRODUCED] == []


def test_sizes_of_the_training_benchmark_may_have_any_names(paper_config: Config) -> None:
    sizes = {f"size_{name}": size for name, size in paper_config.sizes.items()}
    sizes["160M"] = paper_config.sizes["1.4B"]

    def cost_of(names: list[str]) -> list[Any]:
        all_sizes = sizes | paper_config.sizes | sizes
        settings = {"sizes": all_sizes, "benchmarks.training.sizes": names}
        rows = differences(with_settings(paper_config, settings))
        return [row for row in rows if row.group == "cost"]

    names = paper_config.benchmarks.training.sizes
    assert cost_of([f"size_{name}" for name in names]) == []
    (row,) = cost_of(names)
    assert (row.name, row.here) == ("benchmarks.training.sizes", "1.4B, 400M, 600M, 1.4B")


def test_a_missing_model_and_dataset_are_named(paper_config: Config) -> None:
    models, datasets = {**paper_config.models}, {**paper_config.datasets}
    del models["softmax_8k"], datasets["lung_acr"]
    rows = differences(paper_config.model_copy(update={"models": models, "datasets": datasets}))
    assert {row.name for row in rows} == {"datasets.lung_acr", "models.softmax_8k"}


def test_n_counts_only_what_was_measured(paper_results: Results) -> None:
    """It was the number of all timings of the kernel, and of missing comparisons of losses."""
    counts = {number.title: number.n for number in numbers(paper_results)}
    assert counts["TritonSigmoid: TFLOPS at 16,384 tokens, forward"] == 1
    assert counts["TritonSigmoid: mean speed-up over PyTorch, backward, 25 % padding"] == 12
    assert counts["Sigmoid, PyTorch: TFLOPS at its best shape, forward"] == 24
    assert counts["TritonSigmoid: share of the mean TFLOPS that 25 % padding leaves, forward"] == 12
    assert counts[LONGER] == 12
    config = paper_results.config
    models = {name: model for name, model in config.models.items() if name != "sigmoid_2k"}
    missing = Results(paper_results.folder, config.model_copy(update={"models": models}))
    assert {number.title: number.n for number in numbers(missing)}[LONGER] == 6
