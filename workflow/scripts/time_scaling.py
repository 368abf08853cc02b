"""Time training on several processes of one machine: the real loop, on simulated cells.

    python workflow/scripts/time_scaling.py --model sigmoid_2k --configuration config.yaml \
        --processes 1 2 4 --steps 50 --output scaling.csv --machine scaling.json

Trains a model for some steps on each number of processes, one run after the other; on GPUs each
process has one of its own.  All runs meet the same global batches.  The first ten steps are left
out.  Columns: ``cells_per_second`` is the median over the journal's rows, ``efficiency`` that rate
over ``processes`` times one process's, the median over the steps that both logged, both with
intervals at 99 %; ``data_wait``, ``packing_efficiency`` and ``mfu`` are medians of the first
process.  Needs no more than training does.
"""

import argparse
import csv
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from scsigmoid.benchmarks.machine import machine_facts
from scsigmoid.benchmarks.rows import median_interval
from scsigmoid.benchmarks.simulated import write_simulated_tokens
from scsigmoid.config.check import built, from_yaml
from scsigmoid.config.schema import TrainingBenchmark
from scsigmoid.files import atomic_path, write_json
from scsigmoid.training.devices import resolve_device
from scsigmoid.training.journal import read_journal

LOG_EVERY = 5
# Compilation, the allocator and the first batches.
WARM_STEPS = 10
CONFIDENCE = 0.99

Columns = dict[str, np.ndarray]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--configuration", type=Path, required=True, help="that a run stored")
    parser.add_argument("--processes", type=int, nargs="+", required=True)
    parser.add_argument("--steps", type=int, default=60, help="optimiser steps of each run")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--output", type=Path, required=True, help="CSV file")
    parser.add_argument("--machine", type=Path, required=True, help="JSON file")
    options = parser.parse_args(arguments)
    least = WARM_STEPS + 2 * LOG_EVERY
    if options.steps < least or min(options.processes) < 1:
        parser.error(f"--processes must be at least 1, --steps at least {least}")
    config = from_yaml(options.configuration)
    if options.model not in config["models"]:
        parser.error(f"--model {options.model}: not among models of {options.configuration}")
    settings = settings_of(config, options.model, options.steps, options.device)
    lengths = built(TrainingBenchmark, config["benchmarks"]["training"])
    cells = options.steps * settings["training"]["global_batch"]
    write_json(options.machine, machine_facts(resolve_device(options.device), "time_scaling.py"))
    rows: list[dict[str, Any]] = []
    alone: Columns | None = None
    with TemporaryDirectory() as name:
        folder = Path(name)
        genes = settings["context"] - settings["cls_token"]
        write_simulated_tokens(folder, lengths, cells, genes, settings["seed"])
        for count in options.processes:
            columns, header = train(options.model, settings, count, folder)
            alone = columns if count == 1 else alone
            rows.append(row_of(count, columns, header, settings, alone))
            with atomic_path(options.output) as path, path.open("w", newline="") as handle:
                writer = csv.DictWriter(handle, list(rows[0]), lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
            print(rows[-1], flush=True)


def settings_of(config: dict[str, Any], name: str, steps: int, device: str) -> dict[str, Any]:
    """What ``scsigmoid train`` takes for a model of a configuration."""
    model = config["models"][name]
    training = config["training"] | model.get("training", {})
    return {
        "attention": model["attention"],
        "context": model["context"],
        "cls_token": config["tokens"]["cls"],
        "backend": model.get("backend", "auto"),
        "size": config["sizes"][config["architecture"]["size"]],
        "architecture": config["architecture"],
        "training": training | {"steps": steps, "log_every": LOG_EVERY, "checkpoint_every": steps},
        "seed": config["seed"],
        "device": device,
    }


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
    if subprocess.run(command, stdout=subprocess.DEVNULL).returncode:
        sys.exit(f"training on {count} processes failed; see above")
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
) -> dict[str, Any]:
    """The row of one run; ``alone`` holds the journal of one process, if there is one."""
    rates = columns["cells_per_second"].tolist()
    shares = [np.nan] if alone is None else efficiencies(count, columns, alone)
    row: dict[str, Any] = {
        "processes": count,
        "model": header["model"],
        "context": settings["context"],
        "parameters": int(header["parameters"]),
        "device": header["device"],
        "backend": header["backend"],
        "global_batch": settings["training"]["global_batch"],
        "steps": settings["training"]["steps"],
    }
    for name, values in (("cells_per_second", rates), ("efficiency", shares)):
        found = median_interval(values, CONFIDENCE)
        row |= dict(zip((name, f"{name}_low", f"{name}_high"), found, strict=True))
    row |= {
        name: float(np.median(columns[name])) for name in ("mfu", "data_wait", "packing_efficiency")
    }
    return row | {
        "peak_memory_gb": float(np.max(columns["peak_memory_gb"])),
        "readings": len(columns["step"]),
    }


def efficiencies(count: int, columns: Columns, alone: Columns) -> list[float]:
    """The rate over ``count`` times one process's, for each step that both logged."""
    _, own, other = np.intersect1d(columns["step"], alone["step"], return_indices=True)
    rates = columns["cells_per_second"][own]
    found: list[float] = (rates / (count * alone["cells_per_second"][other])).tolist()
    return found


if __name__ == "__main__":
    main()
