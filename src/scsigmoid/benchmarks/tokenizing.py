"""Times the way from h5ad files to token stores, and what reads the stores.

Every measurement runs in a process of its own, after a first call on few cells that compiles what
is to be compiled.  Rates are given per second of the clock and per second of CPU time: on a machine
that others use, the second tells what one core does.
"""

import multiprocessing
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scsigmoid.benchmarks.rows import write_rows
from scsigmoid.files import atomic_folder, sha256, write_json
from scsigmoid.progress import log

TARGET_SUM = 10_000.0
PAPER_CELLS = 131_600_000
PAPER_CORES = 64


@dataclass(frozen=True, kw_only=True)
class TokenizingBenchmark:
    """What is measured.

    Attributes:
        files: h5ad files.
        copies: how often the cells of each file are written one after the other.
        storages: how they are stored: ``csr`` or ``csc``.
        simulated_cells: cells of a simulated file that is measured, too; 0 for none.
        simulated_genes: median number of expressed genes of its cells.
        maximum_length: where cells are cut.
        shard_cells: cells per shard.
        repetitions: how often each is measured.
        lengths: rows of a simulated column of lengths, counted for the figure; 0 for none.
    """

    files: Sequence[str] = ()
    copies: Sequence[int] = (1,)
    storages: Sequence[str] = ("csr",)
    simulated_cells: int = 0
    simulated_genes: int = 1000
    maximum_length: int = 8191
    shard_cells: int = 32768
    repetitions: int = 3
    lengths: int = 0


@dataclass(frozen=True, kw_only=True)
class TokenizingRow:
    """A row of the result.

    Attributes:
        step: ``statistics``, ``tokens`` or ``lengths``.
        data: the file, or ``simulated``.
        storage: ``csr`` or ``csc``.
        values: counts in the file, of genes that are kept or not.
        seconds: by the clock.
        cpu_seconds: of the process.
        values_per_cpu_second: what one core does.
        peak_gb: largest resident memory of the process, in units of 1e9 bytes.
        hours: what the paper's 131.6 million cells would take on 64 cores at this rate.
    """

    step: str
    data: str
    storage: str
    copies: int
    cells: int
    values: int
    repetition: int
    seconds: float
    cpu_seconds: float
    cells_per_cpu_second: float
    values_per_cpu_second: float
    peak_gb: float
    hours: float


def run_tokenizing_benchmark(
    settings: TokenizingBenchmark, work: str | Path, output: str | Path, machine: str | Path
) -> None:
    """Measure and write one row a measurement.

    Args:
        settings: what is measured.
        work: a folder for files of the size of the data, emptied in the end.
        output: the CSV file.
        machine: the JSON file that says what it ran on.
    """
    from scsigmoid.benchmarks.machine import cpu_name  # imports torch, which the processes do not

    rows: list[TokenizingRow] = []
    for name, copies, storage, cells, counted, file in sources(settings, Path(work)):
        for step, command in (("statistics", gather_part), ("tokens", tokenize)):
            for repetition in range(settings.repetitions):
                row = timed(command, file.parent, settings)
                rows.append(
                    TokenizingRow(
                        step=step,
                        data=name,
                        storage=storage,
                        copies=copies,
                        cells=cells,
                        values=counted,
                        repetition=repetition,
                        **rates(row, cells, counted),
                    )
                )
                log(described(rows[-1]))
    if settings.lengths:
        with scratch(Path(work) / "lengths") as folder:
            simulate_lengths(settings.lengths, folder)
            for repetition in range(settings.repetitions):
                row = timed(count_lengths, folder, settings)
                rows.append(
                    TokenizingRow(
                        step="lengths",
                        data="simulated",
                        storage="",
                        copies=1,
                        cells=settings.lengths,
                        values=settings.lengths,
                        repetition=repetition,
                        **rates(row, settings.lengths, settings.lengths),
                    )
                )
                log(described(rows[-1]))
    write_rows(output, TokenizingRow, rows)
    write_json(machine, {"cpu": cpu_name(), "python": sys.version.split()[0], **asdict(settings)})


def described(row: TokenizingRow) -> str:
    """A row in words."""
    return (
        f"{row.step} of {row.data} x {row.copies} {row.storage}: {row.cells} cells, "
        f"{row.seconds:.2f} s by the clock, {row.cpu_seconds:.2f} s of CPU, "
        f"{row.cells_per_cpu_second:.0f} cells/s, {row.values_per_cpu_second / 1e6:.1f} M "
        f"values/s, {row.peak_gb:.2f} GB; {PAPER_CELLS / 1e6:.1f}M cells on {PAPER_CORES} cores: "
        f"{row.hours:.3f} h"
    )


# --- what is measured


def gather_part(part: Path, settings: TokenizingBenchmark) -> None:
    """The first pass: gene statistics, and the vocabulary of this part alone."""
    from scsigmoid.tokens.statistics import gather
    from scsigmoid.tokens.vocabulary import build_vocabulary

    gather(part, TARGET_SUM, part / "statistics.arrow")
    build_vocabulary([part / "statistics.arrow"], 1, part / "vocabulary.parquet")


def tokenize(part: Path, settings: TokenizingBenchmark) -> None:
    """The second pass: from h5ad to the finished store."""
    from scsigmoid.tokens.make import tokenize_part

    tokenize_part(
        part,
        part / "vocabulary.parquet",
        TARGET_SUM,
        settings.maximum_length,
        settings.shard_cells,
        part / "store",
    )


def count_lengths(folder: Path, settings: TokenizingBenchmark) -> None:
    """The numbers behind the sequence-length figure."""
    from scsigmoid.tokens.lengths import write_length_counts

    write_length_counts(sorted(folder.glob("part-*")), folder / "lengths.parquet")


def timed(
    command: Callable[[Path, TokenizingBenchmark], None],
    folder: Path,
    settings: TokenizingBenchmark,
) -> dict[str, float]:
    """Seconds, CPU seconds and peak memory of a command in a process of its own."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=report, args=(sender, command, folder, settings))
    process.start()
    sender.close()
    try:
        found: dict[str, float] = receiver.recv()
    except EOFError:
        raise RuntimeError(f"{command.__name__} of {folder} failed; see above") from None
    process.join()
    return found


def report(
    sender: Any,
    command: Callable[[Path, TokenizingBenchmark], None],
    folder: Path,
    settings: TokenizingBenchmark,
) -> None:
    """Run a command, after one on few cells if there are such, and send what it took."""
    few = folder.parent / "few"
    if few.is_dir():
        command(few, settings)
    clock, cpu = time.perf_counter(), time.process_time()
    command(folder, settings)
    seconds, cpu_seconds = time.perf_counter() - clock, time.process_time() - cpu
    sender.send({"seconds": seconds, "cpu_seconds": cpu_seconds, "peak_gb": peak_gb()})


def peak_gb() -> float:
    """Largest resident memory of this process, in units of 1e9 bytes.

    Linux's ``VmHWM``, because ``ru_maxrss`` of a new process begins with that of its parent.
    """
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    [line] = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024 / 1e9


def rates(found: Mapping[str, float], cells: int, values: int) -> dict[str, float]:
    """What was measured, per core, and for the paper's corpus."""
    seconds = found["cpu_seconds"]
    return {
        **found,
        "cells_per_cpu_second": cells / seconds,
        "values_per_cpu_second": values / seconds,
        "hours": PAPER_CELLS / (cells / seconds) / PAPER_CORES / 3600,
    }


# --- what it is measured on


def sources(
    settings: TokenizingBenchmark, work: Path
) -> Iterator[tuple[str, int, str, int, int, Path]]:
    """Name, copies, storage, cells, values and file of each part that is measured."""
    from scsigmoid.benchmarks.large_files import copied, read_cells, simulated_cells

    given: list[tuple[str, Any, Sequence[int]]] = [
        (Path(file).stem, read_cells(Path(file)), settings.copies) for file in settings.files
    ]
    if settings.simulated_cells:
        base = min(settings.simulated_cells, 10_000)
        cells = simulated_cells(base, settings.simulated_genes)
        given.append(("simulated", cells, [settings.simulated_cells // base]))
    for name, adata, all_copies in given:
        for copies in all_copies:
            for storage in settings.storages:
                with scratch(work / "few") as few, scratch(work / "part") as part:
                    copied(adata[:64].copy(), 1, "csr", few)
                    file = copied(adata, copies, storage, part)
                    yield name, copies, storage, adata.n_obs * copies, adata.X.nnz * copies, file


def simulate_lengths(rows: int, folder: Path) -> None:
    """64 stores that hold nothing but lengths: log-normal, median 1,830, sigma 0.65 (Fig. 1)."""
    from scsigmoid.tokens.store import CHECKSUMS, GENES, INDEX, VERSION

    for part in range(64):
        generator = np.random.default_rng(part)
        count = rows * (part + 1) // 64 - rows * part // 64
        genes = np.exp(generator.normal(np.log(1830), 0.65, count)).astype(np.int32)
        with atomic_folder(folder / f"part-{part:05d}") as store:
            np.save(store / GENES, genes)
            np.save(store / CHECKSUMS, np.zeros(0, dtype=np.uint32))
            arrays = {name: sha256(store / name) for name in (GENES, CHECKSUMS)}
            write_json(store / INDEX, {"version": VERSION, "arrays": arrays, "shards": []})


@contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """An empty folder that goes away."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
