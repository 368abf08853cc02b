"""Time the way from h5ad files to token stores, one process and one thread each.

    python workflow/scripts/time_tokens.py a.h5ad b.h5ad --copies 1 25 --output tokens.csv
    python workflow/scripts/time_tokens.py --simulated 500000 --storage csr csc --output large.csv
    python workflow/scripts/time_tokens.py --lengths 131600000 --output lengths.csv

Each measurement runs in a new process, after a warm-up on 64 cells that compiles what numba
compiles.  Rates are per second of CPU time: other work on the machine does not lower them.
"""

import argparse
import multiprocessing
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import anndata
import h5py
import numpy as np
import pandas as pd
from anndata.io import write_elem
from scipy.sparse import csr_matrix, vstack

from scsigmoid.corpus.metadata import FILES, ManifestRow, write_manifest
from scsigmoid.files import atomic_folder, sha256, write_json
from scsigmoid.tokens.make import Tokenizer, tokenize_part
from scsigmoid.tokens.statistics import gather
from scsigmoid.tokens.store import CHECKSUMS, GENES, INDEX, VERSION, write_length_counts
from scsigmoid.tokens.vocabulary import Vocabulary, build_vocabulary

TARGET_SUM, MAXIMUM_LENGTH, SHARD_CELLS = 10_000.0, 8191, 32_768
# Of the paper's cells (Fig. 1): median and sigma of the log-normal distribution of lengths.
MEDIAN_LENGTH, SIGMA_LENGTH = 1830, 0.65
CHUNK, COLUMNS = 1 << 16, 2000  # values of an HDF5 chunk; genes of a CSC matrix copied at a time


def statistics(part: Path) -> None:
    """The first pass: gene statistics, and a vocabulary of this part."""
    gather(part, TARGET_SUM, part / "statistics.arrow")
    build_vocabulary([part / "statistics.arrow"], 1, part / "vocabulary.parquet")


def tokens(part: Path) -> None:
    """The second pass: from h5ad to the finished store."""
    vocabulary = Vocabulary.read(part / "vocabulary.parquet")
    tokenizer = Tokenizer(vocabulary, TARGET_SUM, MAXIMUM_LENGTH, SHARD_CELLS)
    tokenize_part(part, tokenizer, part / "store")


def lengths(folder: Path) -> None:
    """The counts behind the figure of sequence lengths."""
    write_length_counts(sorted(folder.glob("part-*")), folder / "lengths.parquet")


def measured(step: Callable[[Path], None], folder: Path, few: Path | None) -> dict[str, float]:
    """Seconds, CPU seconds and peak memory (1e9 bytes) of a step, in this process."""
    if few:
        step(few)
    clock, cpu = time.perf_counter(), time.process_time()
    step(folder)
    found = {"seconds": time.perf_counter() - clock, "cpu_seconds": time.process_time() - cpu}
    # Not ru_maxrss, which starts at the parent's.
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return found | {"peak_gb": int(status["VmHWM"].split()[0]) * 1024 / 1e9}


def run(step: Callable[[Path], None], folder: Path, few: Path | None = None) -> dict[str, float]:
    """Measure a step in a new process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measured, step, folder, few).result()


def read_cells(path: Path) -> anndata.AnnData:
    """The cells of a file, raw counts (CSR, float32) in ``X``."""
    adata = anndata.read_h5ad(path)
    counts, var = (adata.X, adata.var) if adata.raw is None else (adata.raw.X, adata.raw.var)
    return anndata.AnnData(X=csr_matrix(counts, dtype=np.float32), obs=adata.obs, var=var)


def simulated_cells(cells: int, median_genes: int, genes: int = 30_000) -> anndata.AnnData:
    """Simulated cells of which only the lengths look real."""
    generator = np.random.default_rng(0)
    drawn = np.exp(generator.normal(np.log(median_genes), SIGMA_LENGTH, cells)).astype(int)
    drawn = np.clip(drawn, 1, genes // 2)
    chosen = np.concatenate([np.sort(generator.choice(genes, n, replace=False)) for n in drawn])
    counts = generator.geometric(0.6, drawn.sum()).astype(np.float32)
    matrix = csr_matrix((counts, chosen, np.cumsum([0, *drawn])), shape=(cells, genes))
    obs = pd.DataFrame(index=[f"cell_{cell}" for cell in range(cells)])
    obs["cell_type"] = pd.Categorical([f"type {cell % 12}" for cell in range(cells)])
    var = pd.DataFrame(index=[f"ENSG9{gene:010d}" for gene in range(genes)])
    return anndata.AnnData(X=matrix, obs=obs, var=var)


def write_copies(adata: anndata.AnnData, copies: int, storage: str, folder: Path) -> Path:
    """Write the cells ``copies`` times below each other, gzipped as CELLxGENE's files are."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    path, counts = folder / "cells.h5ad", adata.X
    rows = np.tile(np.arange(adata.n_obs), copies)
    with h5py.File(path, "w") as file:
        write_elem(file, "obs", adata.obs.iloc[rows].set_axis([str(i) for i in range(len(rows))]))
        write_elem(file, "var", adata.var)
        group = file.create_group("X")
        group.attrs.update({"encoding-type": f"{storage}_matrix", "encoding-version": "0.1.0"})
        group.attrs["shape"] = np.array([len(rows), adata.n_vars])
        how: dict[str, Any] = {"shape": counts.nnz * copies, "chunks": (min(CHUNK, counts.nnz),)}
        for name, dtype in (("data", "f4"), ("indices", "i4")):
            group.create_dataset(name, dtype=dtype, compression="gzip", compression_opts=1, **how)
        done, counted = 0, []
        for piece in pieces(counts, copies, storage):
            here = slice(done, done := done + piece.nnz)
            group["data"][here], group["indices"][here] = piece.data, piece.indices
            counted.append(np.diff(piece.indptr).astype(np.int64))
        group["indptr"] = np.concatenate([[0], np.cumsum(np.concatenate(counted))])
    row = ManifestRow(file="cells", role="training", source="local", location="")
    write_manifest(folder / FILES, [row])
    return path


def pieces(counts: Any, copies: int, storage: str) -> Iterator[Any]:
    """The matrix ``copies`` times, in pieces that follow each other in the file."""
    if storage == "csr":
        yield from [counts] * copies
        return
    columns = counts.tocsc()
    for first in range(0, counts.shape[1], COLUMNS):
        yield vstack([columns[:, first : first + COLUMNS]] * copies, format="csc")


def write_lengths(cells: int, folder: Path) -> None:
    """64 stores that hold nothing but simulated lengths, as in Fig. 1."""
    for part in range(64):
        count = cells * (part + 1) // 64 - cells * part // 64
        drawn = np.random.default_rng(part).normal(np.log(MEDIAN_LENGTH), SIGMA_LENGTH, count)
        with atomic_folder(folder / f"part-{part:05d}") as store:
            np.save(store / GENES, np.exp(drawn).astype(np.int32))
            np.save(store / CHECKSUMS, np.zeros(0, dtype=np.uint32))
            arrays = {name: sha256(store / name) for name in (GENES, CHECKSUMS)}
            index = {
                "version": VERSION,
                "vocabulary": "",
                "vocabulary_size": 0,
                "rows": count,
                "maximum_length": MAXIMUM_LENGTH,
                "shard_cells": SHARD_CELLS,
                "simulated": True,
                "label": "",
                "arrays": arrays,
                "shards": [],
            }
            write_json(store / INDEX, index)


def rows(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measure and yield one row a measurement."""
    data = [(path.stem, read_cells(path), options.copies) for path in options.files]
    if options.simulated:
        base = min(options.simulated, 10_000)
        cells = simulated_cells(base, options.genes)
        data.append(("simulated", cells, [options.simulated // base]))
    few, part = options.work / "few", options.work / "part"
    for name, adata, copies in data:
        write_copies(adata[:64].copy(), 1, "csr", few)
        for times in copies:
            for storage in options.storage:
                write_copies(adata, times, storage, part)
                size = {"cells": adata.n_obs * times, "values": adata.X.nnz * times}
                for step in (statistics, tokens):
                    for repetition in range(options.repetitions):
                        row = {"step": step.__name__, "data": name, "storage": storage, **size}
                        yield row | {"repetition": repetition} | run(step, part, few)
    if options.lengths:
        write_lengths(options.lengths, part)
        size = {"cells": options.lengths, "values": options.lengths}
        for repetition in range(options.repetitions):
            row = {"step": "lengths", "data": "simulated", "storage": "", **size}
            yield row | {"repetition": repetition} | run(lengths, part)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("files", nargs="*", type=Path, help="h5ad files")
    parser.add_argument("--copies", nargs="+", type=int, default=[1], help="copies of the cells")
    parser.add_argument("--storage", nargs="+", choices=("csr", "csc"), default=["csr"])
    parser.add_argument("--simulated", type=int, default=0, help="simulated cells")
    parser.add_argument("--genes", type=int, default=1000, help="median genes of simulated cells")
    parser.add_argument("--lengths", type=int, default=0, help="simulated lengths to count")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--work", type=Path, default=Path("work"), help="scratch folder, deleted")
    parser.add_argument("--output", type=Path, required=True, help="CSV file")
    options = parser.parse_args(arguments)
    try:
        table = pd.DataFrame(rows(options))
    finally:
        shutil.rmtree(options.work, ignore_errors=True)
    for unit in ("cells", "values"):
        table[f"{unit}_per_cpu_second"] = table[unit] / table["cpu_seconds"]
    table.to_csv(options.output, index=False)
    print(table.to_string(index=False))


if __name__ == "__main__":
    main()
