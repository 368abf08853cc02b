"""How training scales with the processes of one machine: the real loop, on simulated cells."""

import json
import math
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from scsigmoid.benchmarks.machine import machine_facts
from scsigmoid.benchmarks.rows import Interval, ScalingRow, median_interval, write_rows
from scsigmoid.benchmarks.simulated import write_simulated_tokens
from scsigmoid.config.schema import ThroughputBenchmark
from scsigmoid.errors import UserError
from scsigmoid.files import write_json
from scsigmoid.progress import log
from scsigmoid.training.devices import resolve_device
from scsigmoid.training.journal import read_journal

LOG_EVERY = 5
# Compilation, the allocator and the first batches.
WARM_STEPS = 10
CONFIDENCE = 0.99

Columns = dict[str, np.ndarray]


def run_scaling_benchmark(
    model: str,
    settings: Mapping[str, Any],
    lengths: ThroughputBenchmark,
    counts: Sequence[int],
    steps: int,
    output_csv: Path,
    output_json: Path,
) -> None:
    """Train a model for some steps on each number of processes, one run after the other.

    All runs meet the same global batches, so the rates of a step are compared with each other.  The
    table is written anew after each run.

    Args:
        model: the model's name.
        settings: what ``scsigmoid train`` takes for it.
        lengths: vocabulary and lengths of the simulated cells.
        counts: numbers of processes; on GPUs each has one of its own.
        steps: optimiser steps of each run.
        output_csv: one row per number of processes.
        output_json: facts of the machine.

    Raises:
        UserError: for too few steps or a number that is none of processes, or what ended a run.
    """
    least = WARM_STEPS + 2 * LOG_EVERY
    if steps < least:
        raise UserError(f"--steps: expected at least {least}, found {steps}")
    if not counts or min(counts) < 1:
        raise UserError("--processes: expected numbers of at least 1, as in 1,2")
    place = resolve_device(settings["device"])
    training = {"steps": steps, "log_every": LOG_EVERY, "checkpoint_every": steps}
    settings = {**settings, "training": {**settings["training"], **training}}
    write_json(output_json, machine_facts(place, "scsigmoid benchmark-scaling"))
    rows: list[ScalingRow] = []
    alone: Columns | None = None
    with TemporaryDirectory() as folder:
        cells = steps * settings["training"]["global_batch"]
        genes = settings["context"] - settings["cls_token"]
        write_simulated_tokens(Path(folder), lengths, cells, genes, settings["seed"])
        for count in counts:
            columns, header = train(model, settings, count, Path(folder))
            alone = columns if count == 1 else alone
            rows.append(row_of(count, columns, header, settings, alone))
            write_rows(output_csv, ScalingRow, rows)
            log(
                f"{count} processes: {rows[-1].cells_per_second:,.4g} cells/s, efficiency "
                f"{rows[-1].efficiency:.1%}, waiting for data {rows[-1].data_wait:.2%}"
            )


def train(
    model: str, settings: Mapping[str, Any], count: int, folder: Path
) -> tuple[Columns, dict[str, str]]:
    """Run ``scsigmoid train``; returns the journal's rows after the warm-up, and its header."""
    output = folder / "model"
    command = [
        *(sys.executable, "-m", "scsigmoid", "train", "--model", model, "--gpus", str(count)),
        *("--tokens", str(folder / "tokens")),
        *("--vocabulary", str(folder / "vocabulary.parquet")),
        *("--settings", json.dumps({f"models.{model}": settings}), "--output", str(output)),
    ]
    log(f"training on {count} processes")
    ended = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if ended.returncode:
        said = ended.stderr.strip().splitlines()
        reason = said[-1].removeprefix("scsigmoid: error: ") if said else "it said nothing"
        raise UserError(f"training on {count} processes ended with {ended.returncode}: {reason}")
    columns, header = read_journal(output / "journal.csv")
    # The weights and a checkpoint of a large model take gigabytes.
    shutil.rmtree(output)
    timed = columns["step"] > WARM_STEPS
    return {name: values[timed] for name, values in columns.items()}, header


def row_of(
    count: int,
    columns: Columns,
    header: Mapping[str, str],
    settings: Mapping[str, Any],
    alone: Columns | None,
) -> ScalingRow:
    """The row of one run; ``alone`` holds the journal of one process, if there is one."""
    rate = median_interval(columns["cells_per_second"].tolist(), CONFIDENCE)
    efficiency = Interval(math.nan, math.nan, math.nan)
    if alone is not None:
        efficiency = median_interval(efficiencies(count, columns, alone), CONFIDENCE)
    return ScalingRow(
        processes=count,
        model=header["model"],
        context=settings["context"],
        parameters=int(header["parameters"]),
        device=header["device"],
        backend=header["backend"],
        global_batch=settings["training"]["global_batch"],
        steps=settings["training"]["steps"],
        cells_per_second=rate.value,
        cells_per_second_low=rate.low,
        cells_per_second_high=rate.high,
        efficiency=efficiency.value,
        efficiency_low=efficiency.low,
        efficiency_high=efficiency.high,
        mfu=float(np.median(columns["mfu"])),
        data_wait=float(np.median(columns["data_wait"])),
        packing_efficiency=float(np.median(columns["packing_efficiency"])),
        peak_memory_gb=float(np.max(columns["peak_memory_gb"])),
        readings=len(columns["step"]),
    )


def efficiencies(count: int, columns: Columns, alone: Columns) -> list[float]:
    """The rate over ``count`` times one process's, for each step that both logged."""
    _, own, other = np.intersect1d(columns["step"], alone["step"], return_indices=True)
    rates = columns["cells_per_second"][own]
    found: list[float] = (rates / (count * alone["cells_per_second"][other])).tolist()
    return found
