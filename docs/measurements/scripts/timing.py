"""Time parts of the workflow that the benchmarks do not cover (docs/measuring.md).

python docs/measurements/scripts/timing.py tokens cells.h5ad --copies 1 25 --output tokens.csv
python docs/measurements/scripts/timing.py loading --workers 2 --output loading.csv
python docs/measurements/scripts/timing.py scaling --processes 1 2 4 --output scaling.csv
python docs/measurements/scripts/timing.py mmd --device cpu --output mmd.csv
"""

import argparse
import multiprocessing
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from itertools import combinations, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[3]
# Functions import what they need, because a process whose memory is measured imports this file.
Rows = Iterator[dict[str, Any]]
WARM_STEPS = 10  # first training steps, not timed: compilation, start of the data loader
#: Assumed numbers of cells of the eight types of Heart OFT. The paper only gives their sum, 30,125.
HEART_OFT = (15_000, 5_200, 3_800, 2_600, 1_500, 1_100, 600, 325)


def configuration(preset: str, **overrides: Any) -> Any:
    from scsigmoid.config.check import load

    overrides["preset"] = preset
    return load(ROOT / "config.yaml", ROOT / "workflow/presets", overrides)


def statistics(part: Path) -> None:
    """Write the gene statistics and the vocabulary of a part."""
    from scsigmoid.tokens.statistics import gather
    from scsigmoid.tokens.vocabulary import build_vocabulary

    file, vocabulary = part / "statistics.arrow", part / "vocabulary.parquet"
    gather(part, file)
    build_vocabulary([file], minimum_cells=1, output=vocabulary)


def tokens(part: Path) -> None:
    """Write the token store of a part."""
    from scsigmoid.tokens.make_stores import tokenize_part
    from scsigmoid.tokens.tokenizer import Tokenizer
    from scsigmoid.tokens.vocabulary import Vocabulary

    vocabulary = Vocabulary.read(part / "vocabulary.parquet")
    tokenizer = Tokenizer(vocabulary, maximum_length=8191, shard_cells=32_768)
    tokenize_part(part, tokenizer, part / "store")


def measure(step: Callable[[Path], None], small_part: Path, part: Path) -> dict[str, float]:
    """Return seconds, CPU seconds and peak memory (1e9 bytes) of a step on ``part``."""
    step(small_part)  # warm-up, which compiles numba's functions
    clock, cpu = time.perf_counter(), time.process_time()
    step(part)
    used = {"seconds": time.perf_counter() - clock, "cpu_seconds": time.process_time() - cpu}
    # VmHWM is the peak of this process. ru_maxrss would include the parent's memory.
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return used | {"peak_gb": int(status["VmHWM"].split()[0]) * 1024 / 1e9}


def write_part(cells: Any, copies: int, folder: Path) -> Path:
    """Write a part with one gzip-compressed file that contains each cell ``copies`` times."""
    import anndata

    from scsigmoid.corpus.metadata import FILES, ManifestRow, write_manifest

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    repeated = anndata.concat([cells] * copies, index_unique="-", keys=map(str, range(copies)))
    repeated.var = cells.var
    repeated.write_h5ad(folder / "cells.h5ad", compression="gzip")
    row = ManifestRow(file="cells", role="training", source="local", location="")
    write_manifest(folder / FILES, [row])
    return folder


def raw_counts(path: Path) -> Any:
    """Read the cells of a file, with raw counts (CSR, float32) in ``X``."""
    import anndata
    import numpy as np
    from scipy.sparse import csr_matrix

    adata = anndata.read_h5ad(path)
    counts, var = (adata.X, adata.var) if adata.raw is None else (adata.raw.X, adata.raw.var)
    return anndata.AnnData(X=csr_matrix(counts, dtype=np.float32), obs=adata.obs, var=var)


def time_tokens(options: argparse.Namespace) -> Rows:
    """Time both passes from h5ad files to tokens: gene statistics, and the token store.

    Each repetition runs in a new process.
    """
    for path in options.files:
        cells = raw_counts(path)
        for copies in options.copies:
            with TemporaryDirectory() as folder:
                small_part = write_part(cells[:64].copy(), 1, Path(folder, "small_part"))
                part = write_part(cells, copies, Path(folder, "part"))
                size = {"cells": cells.n_obs * copies, "counts": cells.X.nnz * copies}
                for step, repetition in product((statistics, tokens), range(options.repetitions)):
                    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                        used = pool.submit(measure, step, small_part, part).result()
                    row = {"step": step.__name__, "file": path.stem, "copies": copies, **size}
                    cpu = used["cpu_seconds"]
                    rates = {f"{unit}_per_cpu_second": count / cpu for unit, count in size.items()}
                    yield {**row, "repetition": repetition, **used, **rates}


def time_loading(options: argparse.Namespace) -> Rows:
    """Time the data loader without training. Each cell is read once."""
    import torch

    from scsigmoid.benchmarks.simulated import write_simulated_tokens
    from scsigmoid.config.check import model_training
    from scsigmoid.model.sizes import EncoderSettings
    from scsigmoid.tokens.store import TokenStore
    from scsigmoid.training.shares import GlobalBatches, prefetch

    config = configuration(options.preset)
    model = options.model or next(iter(config.models))
    simulation, context = config.benchmarks.training, config.models[model].context
    size, architecture = config.sizes[config.architecture.size], config.architecture
    encoder = EncoderSettings.of(size, architecture, "sigmoid", context, simulation.vocabulary)
    training = model_training(config, model)
    step_count = (options.rounds + 1) * options.steps  # with a warm-up round
    cells, steps = step_count * training.global_batch, range(1, step_count + 1)
    with TemporaryDirectory() as folder:
        write_simulated_tokens(Path(folder), simulation, cells, context - 1, config.seed)
        store = TokenStore.open(Path(folder, "tokens"))
        batches = GlobalBatches(store, encoder, training, config.seed)
        with closing(prefetch(batches, steps, options.workers, torch.device("cpu"))) as loader:
            for index in range(options.rounds + 1):
                clock, cpu = time.perf_counter(), time.process_time()
                loaded = sum(len(next(loader).lengths) for _ in range(options.steps))
                seconds, cpu_seconds = time.perf_counter() - clock, time.process_time() - cpu
                if index > 0:  # the first round is a warm-up
                    rate, per_cpu_second = loaded / seconds, loaded / cpu_seconds
                    yield {"cells_per_second": rate, "per_cpu_second": per_cpu_second}


def time_scaling(options: argparse.Namespace) -> Rows:
    """Train on each number of processes, with the same global batches.

    ``cells_per_second`` is the median over logged steps after the first ``WARM_STEPS`` steps.
    ``efficiency`` is the rate divided by (``processes`` times the rate of one process at the same
    step), as the median over the same steps. It is NaN unless one process was timed before.
    """
    import numpy as np

    from scsigmoid.benchmarks.machine import machine_facts
    from scsigmoid.benchmarks.rows import median_interval
    from scsigmoid.benchmarks.simulated import write_simulated_tokens
    from scsigmoid.config.check import as_yaml, model_training
    from scsigmoid.files import write_json
    from scsigmoid.model.devices import resolve_device
    from scsigmoid.training.journal import read_journal

    model = options.model or next(iter(configuration(options.preset).models))
    execution = {"log_every": 5, "checkpoint_every": options.steps}
    own = {model: {"training": {"steps": options.steps, "execution": execution}}}
    config = configuration(options.preset, device=options.device, models=own)
    cells = options.steps * model_training(config, model).global_batch
    facts = machine_facts(resolve_device(options.device), "timing.py")
    write_json(options.output.with_suffix(".json"), facts)
    one_process: Any = None  # columns of the journal of the run with one process
    with TemporaryDirectory() as temporary:
        folder, context = Path(temporary), config.models[model].context
        (folder / "config.yaml").write_text(as_yaml(config), encoding="utf-8")
        write_simulated_tokens(folder, config.benchmarks.training, cells, context - 1, config.seed)
        for count in options.processes:
            command = [
                *(sys.executable, "-m", "scsigmoid", "train", "--model", model),
                *("--gpus", str(count), "--tokens", str(folder / "tokens")),
                *("--vocabulary", str(folder / "vocabulary.parquet")),
                *("--configuration", str(folder / "config.yaml")),
                *("--output", str(folder / "model")),
            ]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            columns, header = read_journal(folder / "model/journal.csv")
            shutil.rmtree(folder / "model")  # a checkpoint of a large model takes gigabytes
            is_timed = columns["step"] > WARM_STEPS
            columns = {column: values[is_timed] for column, values in columns.items()}
            one_process = columns if count == 1 else one_process
            row = {name: header[name] for name in ("model", "parameters", "device", "backend")}
            row |= {"processes": count, "context": context, "steps": options.steps, **execution}
            ratios = efficiencies(count, columns, one_process) if one_process else [np.nan]
            rates = columns["cells_per_second"].tolist()
            row |= median_interval(rates, confidence=0.99).columns("cells_per_second")
            row |= median_interval(ratios, confidence=0.99).columns("efficiency")
            for name in ("mfu", "data_wait", "packing_efficiency"):
                row[name] = float(np.median(columns[name]))
            row["peak_memory_gb"] = float(np.max(columns["peak_memory_gb"]))
            yield row | {"readings": len(columns["step"])}


def efficiencies(count: int, columns: Any, one_process: Any) -> list[float]:
    """Return the efficiency of ``count`` processes at each step that both runs logged.

    ``columns`` and ``one_process`` are the columns of the journals of ``count`` and one process.
    """
    import pandas as pd

    rates = pd.Series(columns["cells_per_second"], columns["step"])
    rates_of_one = pd.Series(one_process["cells_per_second"], one_process["step"])
    return (rates / (count * rates_of_one)).dropna().tolist()


def time_mmd(options: argparse.Namespace) -> Rows:
    """Time the MMD of both arms for all pairs of types, on simulated cells (default: Heart OFT)."""
    import numpy as np

    from scsigmoid.evaluation.embedding_files import Embedding
    from scsigmoid.evaluation.mmd import measure_pair
    from scsigmoid.model.devices import resolve_device

    config, device = configuration(options.preset), resolve_device(options.device)
    random = np.random.default_rng(0)
    labels = np.repeat([f"type {kind}" for kind in range(len(options.cells))], options.cells)
    arms = {}
    for attention in ("sigmoid", "softmax"):
        model = f"{attention}_4k"
        centers = random.standard_normal((len(options.cells), 768), dtype=np.float32)
        values = random.standard_normal((len(labels), 768), dtype=np.float32)
        values += np.repeat(centers, options.cells, axis=0)
        values /= np.sqrt(1 + np.arange(768, dtype=np.float32))  # variances fall as 1 / rank
        facts = {"model": model, "attention": attention, "context": 4096, "simulated": True}
        arms[model] = Embedding(
            path=Path(model), values=values, labels=labels, cells=np.arange(len(labels)),
            donors=np.zeros(len(labels), dtype="U1"), metadata=facts,
            batches=np.zeros(len(labels), dtype="U1"),
        )  # fmt: skip
    pairs = list(combinations(np.unique(labels).tolist(), 2))
    for repetition in range(options.repetitions):
        clock, cpu = time.perf_counter(), time.process_time()
        for a, b in pairs:
            measure_pair(arms, a, b, "simulated", config.evaluation.mmd, config.seed, device)
        used = {"seconds": time.perf_counter() - clock, "cpu_seconds": time.process_time() - cpu}
        size = {"cells": len(labels), "pairs": len(pairs), "device": device.type}
        yield {**size, "repetition": repetition, **used}


def main(arguments: list[str] | None = None) -> None:
    """Run a command and write its rows to a CSV file, which is rewritten after each row."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    commands = parser.add_subparsers(dest="command", required=True)
    parsers = {}
    for function in (time_tokens, time_loading, time_scaling, time_mmd):
        name = function.__name__.removeprefix("time_")
        parsers[name] = commands.add_parser(name, help=function.__doc__.split("\n", 1)[0])
        parsers[name].set_defaults(function=function)
        parsers[name].add_argument("--output", type=Path, required=True, help="CSV file")
    parsers["tokens"].add_argument("files", nargs="+", type=Path, help="h5ad files")
    for name in ("loading", "scaling", "mmd"):
        parsers[name].add_argument("--preset", default="paper")
    for name in ("loading", "scaling"):
        parsers[name].add_argument("--model", help="default: the first model of the preset")
    for name in ("scaling", "mmd"):
        parsers[name].add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    for name in ("tokens", "mmd"):
        parsers[name].add_argument("--repetitions", type=int, default=3)
    parsers["tokens"].add_argument("--copies", nargs="+", type=int, default=[1])
    parsers["loading"].add_argument("--workers", type=int, default=2, help="threads")
    parsers["loading"].add_argument("--steps", type=int, default=20, help="batches per round")
    parsers["loading"].add_argument("--rounds", type=int, default=5)
    parsers["scaling"].add_argument("--processes", type=int, nargs="+", required=True)
    parsers["scaling"].add_argument(
        "--steps", type=int, default=60, help="optimizer steps, above 20"
    )
    parsers["mmd"].add_argument("--cells", type=int, nargs="+", default=HEART_OFT, help="per type")
    options = parser.parse_args(arguments)
    import pandas as pd

    rows = []
    for row in options.function(options):
        rows.append(row)
        print(row, flush=True)
        pd.DataFrame(rows).to_csv(options.output, index=False)


if __name__ == "__main__":
    main()
