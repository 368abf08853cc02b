"""Measure several GPUs of one machine: start of training, stop and resume, embedding.

    python docs/measurements/scripts/several_gpus.py OUTPUT [--gpus 2] [--only PART ...]

Writes to the folder ``OUTPUT``, after each part, so that an interruption loses one part only:

- ``start.csv``: seconds from the start of ``scsigmoid train`` to the first logged step, with one
  process and with several, without and with compiled code on the disk.
- ``resume.csv``: losses of a run without interruption, and of a run that is stopped by SIGTERM and
  resumed with one process. ``stop.csv``: seconds from the signal to the exit, and the exit code.
- ``embedding.csv``: cells per second and SHA-256 of the embeddings, with one GPU (the first
  ``--alone-cells`` cells, by default all) and with several (all cells, and those of one GPU).
- ``sizes.csv``: cells per second and memory of larger models at 4K, with one process and with
  several. Each process gets the same number of cells, so four processes have four times the batch.
- ``machine.json``: versions and devices.

The cells are simulated: lengths as in the paper's Fig. 1, random genes. Parts: ``train``,
``embed``, ``alone`` (one process without compiled code) and ``sizes``. ``--small`` tries the
program on a CPU.
"""

import argparse
import csv
import hashlib
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from scsigmoid.config.check import as_yaml, load
from scsigmoid.config.plan import Plan
from scsigmoid.config.schema import Config, TrainingBenchmark
from scsigmoid.model import embedding_processes
from scsigmoid.model.batches import pack
from scsigmoid.model.devices import autocast, device_name
from scsigmoid.model.embedding import embed_batches, make_batches, pool
from scsigmoid.model.encoder import Encoder
from scsigmoid.model.weights import load_encoder, save_encoder
from scsigmoid.tokens.store import TokenStore, store_schema, write_shards
from scsigmoid.tokens.vocabulary import SPECIAL, Vocabulary
from scsigmoid.training.run import TrainingRun, commit

MODEL = "sigmoid_2k"
PARTS = ("train", "embed", "alone", "sizes")
SHARD_CELLS = 8192
#: Limits of the number of genes of a cell.
SHORTEST, LONGEST = 200, 16_000
#: First cells that are embedded with a wait after each batch, as before batches overlapped.
WAITING_CELLS = 5_000
MOST_SECONDS = 400.0  # time limit of a training process
#: Larger models: size, and tokens of a micro-batch.
SIZES = (("600M", 32_768), ("1.4B", 16_384))
SIZES_MODEL = "sigmoid_4k"
CELLS_PER_GPU = 64
SMALL = {"layers": 2, "hidden": 64, "heads": 1, "feed_forward": 128}


def write_tokens(folder: Path, lengths: TrainingBenchmark, cells: int, longest: int) -> None:
    """Write ``tokens/`` and ``vocabulary.parquet``. Genes are random and may be repeated."""
    size = lengths.vocabulary
    names = (*SPECIAL, *(f"SIMULATED{gene:06d}" for gene in range(size - len(SPECIAL))))
    vocabulary = Vocabulary(names, names, cells=np.full(size, cells), medians=np.ones(size))
    vocabulary.write(folder / "vocabulary.parquet")
    generator = np.random.default_rng(0)
    schema = store_schema(size)

    def shards() -> Iterator[pa.RecordBatch]:
        for start in range(0, cells, SHARD_CELLS):
            rows = min(SHARD_CELLS, cells - start)
            drawn = generator.lognormal(np.log(lengths.median_length), lengths.sigma_length, rows)
            genes = np.clip(np.rint(drawn), SHORTEST, LONGEST).astype(np.int32)
            kept = np.minimum(genes, longest)
            offsets = pa.array(np.cumsum([0, *kept]), pa.int32())
            ids = pa.array(generator.integers(len(SPECIAL), size, int(kept.sum()), dtype=np.uint16))
            columns = {
                "input_ids": pa.ListArray.from_arrays(offsets, ids),
                "length": pa.array(kept),
                "genes": pa.array(genes),
                "cell": pa.array(np.arange(start, start + rows)),
                "is_primary": pa.array([True] * rows),
            }
            empty = pa.array([""] * rows)
            arrays = [columns.get(field.name, empty).cast(field.type) for field in schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    metadata = {
        "vocabulary": vocabulary.fingerprint,
        "vocabulary_size": size,
        "maximum_length": longest,
        "shard_cells": SHARD_CELLS,
        "simulated": True,
        "label": "",
    }
    write_shards(folder / "tokens", shards(), metadata)


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


class Training:
    """A process of ``scsigmoid train``, which starts the others."""

    def __init__(
        self,
        folder: Path,
        output: str,
        processes: int,
        cache: str | Path,
        model: str = MODEL,
        config: str = "config.yaml",
    ) -> None:
        """Train in ``folder/output`` with compiled code in ``folder/cache``."""
        self.journal = folder / output / "journal.csv"
        caches = {
            "TORCHINDUCTOR_CACHE_DIR": str(folder / cache),
            "TRITON_CACHE_DIR": str(folder / cache / "triton"),
        }
        self.log = folder / f"{output}_{processes}.log"
        words = ["train", "--model", model, "--tokens", str(folder / "tokens")]
        words += ["--vocabulary", str(folder / "vocabulary.parquet"), "--gpus", str(processes)]
        words += ["--configuration", str(folder / config), "--output", str(folder / output)]
        self.begin = time.perf_counter()
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "scsigmoid", *words], env=os.environ | caches, stderr=log
            )

    def rows(self) -> list[dict[str, str]]:
        """Return the rows of the journal so far."""
        if not self.journal.is_file():
            return []
        text = self.journal.read_text()
        lines = [line for line in text.splitlines()[: text.count("\n")] if line[:1] != "#"]
        return list(csv.DictReader(lines))

    def losses(self) -> dict[int, float]:
        """Return the losses in the journal so far by step."""
        return {int(row["step"]): float(row["loss"]) for row in self.rows()}

    def wait_for(self, step: int) -> float:
        """Wait until a step is logged. Return the seconds since the start of the process."""
        while step not in self.losses():
            seconds = time.perf_counter() - self.begin
            if self.process.poll() is not None or seconds > MOST_SECONDS:
                self.process.kill()
                raise SystemExit(f"training failed: {self.log.read_text()[-2000:]}")
            time.sleep(0.05)
        return time.perf_counter() - self.begin

    def finish(self) -> int:
        """Wait for the end of the process. Return its exit code."""
        return self.process.wait(MOST_SECONDS)


def measure_training(folder: Path, output: Path, gpus: int, steps: int, stop: int) -> None:
    """Train without interruption, then train, stop, and resume with one process."""
    starts, columns = [], ("processes", "code_on_disk", "resumed_from", "seconds")
    whole = Training(folder, "whole", gpus, "cache")
    starts.append((gpus, "none", 0, whole.wait_for(1)))
    if code := whole.finish():
        raise SystemExit(f"training ended with code {code}: {whole.log.read_text()[-2000:]}")
    print(f"{gpus} processes, no code on the disk: {starts[-1][3]:.1f} s", flush=True)
    parts = Training(folder, "parts", gpus, "cache")
    starts.append((gpus, f"by {gpus} processes", 0, parts.wait_for(1)))
    print(f"{gpus} processes, code on the disk: {starts[-1][3]:.1f} s", flush=True)
    parts.wait_for(stop)
    sent = time.perf_counter()
    parts.process.send_signal(signal.SIGTERM)
    code = parts.finish()
    seconds = time.perf_counter() - sent
    stopped_after = max(parts.losses())
    print(f"stopped after step {stopped_after}, exit code {code}, {seconds:.1f} s", flush=True)
    stopped = {"step": stopped_after, "seconds": round(seconds, 3), "exit_code": code}
    write_csv(output / "stop.csv", [stopped])
    rest = Training(folder, "parts", 1, "cache")
    resumed = (1, f"by {gpus} processes", stopped_after, rest.wait_for(stopped_after + 1))
    starts.append(resumed)
    print(f"1 process resumes, code on the disk: {resumed[3]:.1f} s", flush=True)
    if code := rest.finish():
        raise SystemExit(f"training ended with code {code}: {rest.log.read_text()[-2000:]}")
    write_csv(output / "start.csv", [dict(zip(columns, row, strict=True)) for row in starts])
    uninterrupted, resumed_losses = whole.losses(), rest.losses()
    rows = [
        {
            "step": step,
            "processes": gpus if step <= stopped_after else 1,
            "loss": resumed_losses[step],
            "loss_without_interruption": loss,
            "relative_difference": resumed_losses[step] / loss - 1,
        }
        for step, loss in sorted(uninterrupted.items())
    ]
    write_csv(output / "resume.csv", rows)
    largest = max(abs(row["relative_difference"]) for row in rows)
    print(f"losses differ by at most {largest:.1e} over {steps} steps", flush=True)


def measure_alone(folder: Path, output: Path) -> None:
    """Start one process without compiled code, and stop it after its first step."""
    alone = Training(folder, "alone", 1, "other_cache")
    seconds = alone.wait_for(1)
    alone.process.kill()
    alone.process.wait()
    row = {"processes": 1, "code_on_disk": "none", "resumed_from": 0, "seconds": seconds}
    write_csv(output / "start_alone.csv", [row])
    print(f"1 process, no code on the disk: {seconds:.1f} s", flush=True)


def measure_sizes(
    folder: Path, output: Path, counts: Sequence[int], options: argparse.Namespace
) -> None:
    """Train larger models with each number of processes, and stop them by SIGTERM."""
    path, warm_up, rows = output / "sizes.csv", 2, []
    for size, tokens in SIZES:
        if size not in options.sizes:
            continue
        for count in counts:
            execution = {"micro_batch_tokens": tokens}
            config = configuration(
                options.steps + 100, options, execution, CELLS_PER_GPU * count, size
            )
            (folder / f"{size}.yaml").write_text(as_yaml(config))
            names = f"{size}_{count}", count, options.cache or "cache", SIZES_MODEL, f"{size}.yaml"
            training = Training(folder, *names)
            first = training.wait_for(1)
            training.wait_for(options.steps)
            sent = time.perf_counter()
            training.process.send_signal(signal.SIGTERM)
            code = training.finish()
            row = {"size": size, "processes": count, "first_step_seconds": round(first, 1)}
            row |= {"exit_code": code, "exit_seconds": round(time.perf_counter() - sent, 1)}
            measured = training.rows()[warm_up:]
            for column in ("cells_per_second", "mfu", "data_wait", "peak_memory_gb"):
                values = sorted(float(step[column] or "nan") for step in measured)
                low, middle, high = values[0], values[len(values) // 2], values[-1]
                row |= {column: middle, f"{column}_low": low, f"{column}_high": high}
            rows.append(row | {"steps": len(measured), "cells": CELLS_PER_GPU * count})
            print(*rows[-1].values(), flush=True)
            write_csv(path, rows)


def measure_embedding(
    folder: Path, output: Path, devices: Sequence[torch.device], alone_cells: int | None
) -> None:
    """Embed the first cells on the first device in this process, then all cells on all devices."""
    path, batch_tokens = folder / "model.safetensors", 16_384
    tokens = TokenStore.open(folder / "tokens")
    encoder, _ = load_encoder(path, devices[0])
    settings = encoder.settings
    total = int(np.minimum(tokens.lengths, settings.genes).sum())
    rows: list[dict[str, Any]] = []

    def add(how: str, used: int, cells: int, seconds: float, whole: float, values: Any) -> None:
        row = {
            "how": how,
            "devices": used,
            "cells": cells,
            "tokens": total if cells == len(tokens) else "",
            "seconds": round(seconds, 3),
            "seconds_with_start": round(whole, 3),
            "cells_per_second": round(cells / seconds, 1),
            "sha256": hashlib.sha256(values.tobytes()).hexdigest(),
        }
        rows.append(row)
        print(*row.values(), flush=True)
        write_csv(output / "embedding.csv", rows)

    def first_batches(cells: int) -> list[slice]:
        every = make_batches(tokens, settings, batch_tokens)
        return [rows for rows in every if rows.stop <= min(cells, len(tokens))]

    batches = first_batches(WAITING_CELLS)
    for is_warm in (False, True):
        begin = time.perf_counter()
        parts = []
        for batch_rows in batches if is_warm else batches[:3]:
            with torch.inference_mode(), autocast(devices[0]):
                indices = np.arange(batch_rows.start, batch_rows.stop)
                batch = pack(tokens, indices, settings).to(devices[0])
                hidden = encoder(batch.tokens, batch.positions, batch.cu_seqlens, batch.max_seqlen)
                parts.append(pool(hidden.float(), batch).cpu().numpy())
    seconds = time.perf_counter() - begin
    waiting = np.concatenate(parts)
    add("waits for each batch", 1, len(waiting), seconds, seconds, waiting)

    alone = waiting
    if batches := first_batches(len(tokens) if alone_cells is None else alone_cells):
        begin = time.perf_counter()
        alone = np.concatenate([part for _, part in embed_batches(encoder, tokens, batches)])
        seconds = time.perf_counter() - begin
        add("one process", 1, len(alone), seconds, seconds, alone)
        compared = min(len(alone), len(waiting))
        if not np.array_equal(alone[:compared], waiting[:compared]):
            print("the first cells differ from those with a wait for each batch")

    receive, times, cells = embedding_processes.receive, [], []

    def timed_receive(workers: Any) -> Iterator[Any]:
        for batch_rows, values in receive(workers):
            times.append(time.perf_counter())
            cells.append(batch_rows.stop - batch_rows.start)
            yield batch_rows, values

    embedding_processes.receive = timed_receive
    begin = time.perf_counter()
    with embedding_processes.started(path, devices) as workers:
        together = embedding_processes.embed_store(
            workers, folder / "tokens", settings, batch_tokens, "embedding"
        )
    whole = time.perf_counter() - begin
    # From the first batch on, the first batches of the other processes count, too.
    add("processes", len(devices), sum(cells), times[-1] - times[0], whole, together)
    if len(alone) < len(together):
        nan, same = float("nan"), together[: len(alone)]
        add("processes, first cells", len(devices), len(same), nan, nan, same)
    is_equal = np.array_equal(alone, together[: len(alone)])
    print(f"{len(alone)} cells:", "same bytes" if is_equal else "the embeddings differ", flush=True)


def configuration(
    steps: int,
    options: argparse.Namespace,
    execution: Mapping[str, Any] = MappingProxyType({}),
    global_batch: int | None = None,
    size: str | None = None,
) -> Config:
    """Return the paper's configuration with few steps, each of which is logged."""
    execution = {"log_every": 1, "checkpoint_every": 10**6, **execution}
    overrides: dict[str, Any] = {
        "preset": "paper",
        "device": "cpu" if options.small else "cuda",
        "training": {"steps": steps, "execution": execution},
    }
    if global_batch:
        overrides["training"]["global_batch"] = global_batch
    if size:
        overrides["architecture"] = {"size": size}
    if options.small:
        overrides["sizes"] = {size or "160M": SMALL}
        overrides["training"]["global_batch"] = 8
        overrides["benchmarks"] = {"training": {"vocabulary": 2000, "median_length": 300}}
    return load(overrides=overrides)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--cells", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--stop", type=int, default=6, help="step after which SIGTERM is sent")
    parser.add_argument("--only", nargs="*", choices=PARTS, default=PARTS[:3])
    parser.add_argument("--sizes", nargs="+", default=[size for size, _ in SIZES])
    parser.add_argument("--counts", nargs="+", type=int, help="processes of the part sizes")
    parser.add_argument("--cache", help="folder of compiled code of the part sizes, which is kept")
    parser.add_argument("--alone-cells", type=int, help="cells that one device embeds, too")
    parser.add_argument("--folder", type=Path, help="cells and models, which are kept and reused")
    parser.add_argument("--small", action="store_true", help="a small model on the CPU")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    config = configuration(options.steps, options)
    lengths = config.benchmarks.training
    run = TrainingRun.of(Plan(config).run_config(MODEL), MODEL)
    settings = run.encoder_settings(lengths.vocabulary)
    devices = [
        torch.device("cpu") if options.small else torch.device("cuda", index)
        for index in range(options.gpus)
    ]
    machine = {
        "command": sys.argv,
        "commit": commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cpus": os.cpu_count(),
    }
    with tempfile.TemporaryDirectory() as name:
        folder = options.folder or Path(name)
        folder.mkdir(exist_ok=True)
        (folder / "config.yaml").write_text(as_yaml(config))
        begin = time.perf_counter()
        longest = 4096 if "sizes" in options.only else settings.genes
        if not (folder / "tokens").exists():
            write_tokens(folder, lengths, options.cells, longest)
        if "embed" in options.only:
            encoder = Encoder(settings).initialize(1)
            vocabulary = Vocabulary.read(folder / "vocabulary.parquet")
            save_encoder(encoder, run.origin(0), vocabulary, folder / "model.safetensors")
        print(f"prepared in {time.perf_counter() - begin:.1f} s", flush=True)
        if "train" in options.only:
            measure_training(folder, options.output, options.gpus, options.steps, options.stop)
        if "embed" in options.only:
            measure_embedding(folder, options.output, devices, options.alone_cells)
        if "sizes" in options.only:
            measure_sizes(folder, options.output, options.counts or (1, options.gpus), options)
        if "alone" in options.only:
            measure_alone(folder, options.output)
    machine["devices"] = [device_name(device) for device in devices]
    (options.output / "machine.json").write_text(json.dumps(machine, indent=2) + "\n")


if __name__ == "__main__":
    main()
