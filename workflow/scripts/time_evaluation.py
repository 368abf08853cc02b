"""Time parts of the evaluation at the paper's sizes, on simulated cells.

    python workflow/scripts/time_evaluation.py mmd --device cpu --output mmd.json

Nothing of biology is meant: vectors lie around a centre for each type, with variances that fall as
1 / rank, and counts are drawn from a distribution for each type.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anndata
import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, vstack

from scsigmoid.config.check import as_json, load
from scsigmoid.config.plan import Plan
from scsigmoid.config.schema import Config, Size, Training, ValidationLoss
from scsigmoid.evaluation.distances import silhouettes
from scsigmoid.evaluation.embedding_files import Embedding, write_embedding
from scsigmoid.evaluation.mmd import Counts, measure_pair, mmd_squared, resample_counts
from scsigmoid.evaluation.validation_loss import cell_losses
from scsigmoid.files import write_json
from scsigmoid.model.encoder import Encoder
from scsigmoid.model.masking import Masking
from scsigmoid.model.sizes import EncoderSettings
from scsigmoid.tokens.store import Packed
from scsigmoid.training.batches import pack, split_by_tokens
from scsigmoid.training.devices import device_name, resolve_device, synchronise
from scsigmoid.training.run import versions
from scsigmoid.training.step import Trainer, autocast, place_losses

ROOT = Path(__file__).parents[2]
# Heart OFT has 30,125 cells of eight types; how many of each the paper does not say.
HEART_OFT = (15_000, 5_200, 3_800, 2_600, 1_500, 1_100, 600, 325)
# The largest dataset that is evaluated; 30 types are a guess.
LARGEST, TYPES = 88_658, 30
SILHOUETTE = 6_000
PLAIN = (400, 300)
ROUNDS = 5
HIDDEN = 768
# Molecules of a cell, and genes, of simulated counts.
COUNTS, GENES = 1_500, 20_000
# Of the log-normal distribution of lengths.
MEDIAN_LENGTH, SIGMA_LENGTH = 1830, 0.65


def main(arguments: list[str] | None = None) -> None:
    parts: dict[str, Callable[[Config, torch.device], dict[str, Any]]] = {
        "mmd": time_mmd,
        "mmd-plain": time_plain,
        "validation-loss": time_loss,
        "silhouette": time_silhouette,
        "scib": time_scib,
    }
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("part", choices=parts)
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--output", type=Path, required=True, help="JSON file")
    options = parser.parse_args(arguments)
    config = load(ROOT / "config.yaml", ROOT / "workflow/presets", {"preset": options.preset})
    device = resolve_device(options.device)
    found = parts[options.part](replace(config, device=device.type), device)
    machine = {"device": device_name(device), "threads": torch.get_num_threads(), **versions()}
    write_json(
        options.output, {"part": options.part, "simulated": True, **found, "machine": machine}
    )
    print(json.dumps(found))


def seconds_of(work: Callable[[], object], device: torch.device) -> float:
    """Seconds that some work takes."""
    synchronise(device)
    begin = time.perf_counter()
    work()
    synchronise(device)
    return time.perf_counter() - begin


def time_mmd(config: Config, device: torch.device) -> dict[str, Any]:
    """All pairs of Heart OFT's size, both arms; on a GPU a second time, when all is loaded."""
    arms = simulated_arms(HEART_OFT)
    mmd = config.evaluation.mmd
    names = np.unique(next(iter(arms.values())).labels).tolist()
    pairs = list(combinations(names, 2))

    def measure() -> None:
        for a, b in pairs:
            measure_pair(arms, a, b, "heart_oft", mmd, config.seed, device)

    rounds = 2 if device.type == "cuda" else 1
    return {
        "cells": HEART_OFT,
        "hidden": HIDDEN,
        "pairs": len(pairs),
        "resamples": mmd.resamples,
        "seconds": [seconds_of(measure, device) for _ in range(rounds)],
    }


def time_plain(config: Config, device: torch.device) -> dict[str, Any]:
    """A small pair, both ways in interleaved rounds, with the same resamples."""
    resamples = config.evaluation.mmd.resamples
    arm = simulated_arms(PLAIN)["sigmoid_4k"].values
    x, y = arm[: PLAIN[0]], arm[PLAIN[0] :]
    w, v = (resample_counts(count, resamples, seed) for seed, count in enumerate(PLAIN))
    bandwidth = float(np.square(x[:50, None] - y[:50]).sum(2).mean())
    ours: list[float] = []
    plain: list[float] = []
    difference = 0.0
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        estimates = mmd_squared(x, y, w, v, bandwidth=bandwidth, block=4096, device=device)
        ours.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        recomputed = recomputed_squares(x, y, w, v, bandwidth)
        plain.append(time.perf_counter() - begin)
        difference = max(difference, float(np.abs(recomputed - estimates.biased).max()))
    return {
        "cells": PLAIN,
        "hidden": HIDDEN,
        "resamples": resamples,
        "seconds": ours,
        "plain_seconds": plain,
        "times_faster": [b / a for a, b in zip(ours, plain, strict=True)],
        "largest_difference": difference,
    }


def recomputed_squares(
    x: NDArray[np.float32], y: NDArray[np.float32], w: Counts, v: Counts, bandwidth: float
) -> NDArray[np.float64]:
    """MMD^2 as V statistic the plain way: scikit-learn's kernels anew for every resample."""
    from sklearn.metrics.pairwise import rbf_kernel

    gamma = 0.5 / bandwidth
    squares = []
    for counts_x, counts_y in zip(w, v, strict=True):
        a = np.repeat(x, counts_x, axis=0).astype(np.float64)
        b = np.repeat(y, counts_y, axis=0).astype(np.float64)
        within = rbf_kernel(a, gamma=gamma).mean() + rbf_kernel(b, gamma=gamma).mean()
        squares.append(within - 2 * rbf_kernel(a, b, gamma=gamma).mean())
    return np.array(squares)


def time_loss(config: Config, device: torch.device) -> dict[str, Any]:
    """Validation beside training's forward passes, for both attentions.

    On a CPU four layers and two cells of at most 1,024 tokens, on a GPU the paper's and 128 cells.
    """
    gpu = device.type == "cuda"
    small = Size(layers=4, hidden=256, heads=4, feed_forward=1024)
    size = config.sizes["160M"] if gpu else small
    vocabulary = 44_000 if gpu else 4_400
    loss = replace(config.evaluation.validation_loss, batch_tokens=65_536 if gpu else 8192)
    context = 4096 if gpu else 1024
    tokens: Any = SimulatedTokens(128 if gpu else 2, vocabulary, context)
    found: dict[str, Any] = {"size": asdict(size), "cells": len(tokens), "trials": loss.trials}
    for attention in ("sigmoid", "softmax"):
        encoder = EncoderSettings.of(size, config.architecture, attention, context, vocabulary)
        pairs = validation_and_training(encoder, tokens, loss, config.training, device)
        ratios = [a / b for a, b in pairs]
        found[attention] = {
            "seconds": [a for a, _ in pairs],
            "training_seconds": [b for _, b in pairs],
            "ratio": ratios,
            "median_ratio": statistics.median(ratios),
        }
    return found


def validation_and_training(
    settings: EncoderSettings,
    tokens: Any,
    loss: ValidationLoss,
    training: Training,
    device: torch.device,
) -> list[tuple[float, float]]:
    """Seconds of all trials and of as many forward passes of training, interleaved.

    Training finds its batches ready, as if others had prepared them; validation prepares its own.
    """
    trained, evaluated = (Encoder(settings).initialise(1).to(device) for _ in range(2))
    trainer = Trainer(trained, training, 1, device)
    evaluated.eval()
    compute = torch.compile(place_losses, dynamic=True) if device.type == "cuda" else place_losses
    lengths = np.minimum(tokens.lengths, settings.genes) + settings.cls_token
    runs = split_by_tokens(lengths, loss.batch_tokens)
    ready = []
    for trial in range(loss.trials):
        masking = Masking(
            seed=1,
            draw=trial,
            fraction=loss.mask_fraction,
            replacement="mask",
            vocabulary_size=settings.vocabulary_size,
        )
        for rows in runs:
            batch = pack(tokens, np.arange(rows.start, rows.stop), settings, masking)
            ready.append(batch.to(device))

    def forward() -> None:
        with autocast(device):
            for batch in ready:
                trainer.summed_loss(batch, 1)

    def validate() -> None:
        cell_losses(evaluated, tokens, loss, 1, compute)

    forward()
    validate()
    return [(seconds_of(validate, device), seconds_of(forward, device)) for _ in range(ROUNDS)]


def time_silhouette(config: Config, device: torch.device) -> dict[str, Any]:
    """Our silhouette and scib-metrics', interleaved, of fewer cells than the largest dataset."""
    from scib_metrics import silhouette_label

    arm = simulated_arms([SILHOUETTE // TYPES] * TYPES)["sigmoid_4k"]
    kinds = torch.as_tensor(np.unique(arm.labels, return_inverse=True)[1], device=device)
    points = torch.as_tensor(arm.values).to(device, torch.float64)
    ours, library, differences = [], [], []
    for _ in range(ROUNDS + 1):  # the first compiles the library's
        begin = time.perf_counter()
        score = (float(silhouettes(points, kinds).mean()) + 1) / 2
        middle = time.perf_counter()
        other = float(silhouette_label(arm.values, arm.labels))
        ours.append(middle - begin)
        library.append(time.perf_counter() - middle)
        differences.append(abs(score - other))
    return {
        "cells": len(points),
        "hidden": HIDDEN,
        "seconds": ours[1:],
        "scib_metrics_seconds": library[1:],
        "largest_difference": max(differences),
    }


def time_scib(config: Config, device: torch.device) -> dict[str, Any]:
    """The scIB jobs of the largest dataset, one after the other, with both arms and controls."""
    share = np.random.default_rng(1).dirichlet(np.ones(TYPES))
    cells = np.maximum(np.round(share * LARGEST).astype(int), 2)
    cells[cells.argmax()] += LARGEST - cells.sum()
    keys = [f"evaluation.scib.{key}" for key in ("neighbours", "variance", "controls")]
    settings = as_json(Plan(config).settings(*keys, "evaluation.pair", "seed", "device"))
    with TemporaryDirectory() as name:
        folder = Path(name)
        files = []
        for model, arm in simulated_arms(cells.tolist()).items():
            files.append(folder / f"{model}.h5ad")
            obs = pd.DataFrame(index=arm.cells.astype(str))
            write_embedding(files[-1], arm.values, arm.labels, arm.cells, arm.metadata, obs)
        counts, found = folder / "simulated.h5ad", folder / "neighbours"
        write_counts(counts, cells)
        scores = [folder / metric / "simulated.csv" for metric in config.evaluation.scib.metrics]
        jobs = {
            "neighbours": ["--embeddings", *files, "--cells", counts, "--output", found],
            "scib": ["--dataset", "simulated", "--neighbours", found, "--output", *scores],
        }
        used = {
            job: resources_of(job, *given, "--settings", settings) for job, given in jobs.items()
        }
    return {"cells": LARGEST, "types": TYPES, "jobs": used}


def resources_of(job: str, *arguments: str | Path) -> dict[str, float]:
    """Seconds and peak memory of a job."""
    begin = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "scsigmoid", job, *arguments])
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, job)
    return {
        "seconds": time.perf_counter() - begin,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "peak_gb": usage.ru_maxrss * 1024 / 1e9,  # Linux counts in KiB
    }


def simulated_arms(cells: Sequence[int]) -> dict[str, Embedding]:
    """Both arms' vectors of cells of so many types; types lie further apart in sigmoid's."""
    generator = np.random.default_rng(0)
    labels = np.repeat([f"type {kind:02d}" for kind in range(len(cells))], cells)
    spread = (1 / np.sqrt(1 + np.arange(HIDDEN))).astype(np.float32)
    turn = np.linalg.qr(generator.standard_normal((HIDDEN, HIDDEN)))[0].astype(np.float32)
    arms = {}
    for model, apart in (("sigmoid_4k", 1.0), ("softmax_4k", 0.8)):
        centres = generator.standard_normal((len(cells), HIDDEN), dtype=np.float32) * apart
        values = generator.standard_normal((len(labels), HIDDEN), dtype=np.float32)
        values += np.repeat(centres, cells, axis=0)
        metadata = {
            "model": model,
            "attention": model.split("_")[0],
            "context": 4096,
            "simulated": True,
        }
        values *= spread
        arms[model] = Embedding(
            path=Path(model),
            values=values @ turn,
            labels=labels,
            cells=np.arange(len(labels)),
            donors=np.zeros(len(labels), dtype="U1"),
            metadata=metadata,
        )
    return arms


class SimulatedTokens:
    """Cells of random genes in memory, with lengths as in Fig. 1: a store as far as it is read."""

    def __init__(self, cells: int, vocabulary: int, context: int) -> None:
        generator = np.random.default_rng(0)
        lengths = generator.lognormal(np.log(MEDIAN_LENGTH), SIGMA_LENGTH, cells)
        self.lengths = np.clip(lengths, 100, context - 1).astype(np.int32)
        genes = np.arange(4, vocabulary)
        self.genes = [generator.choice(genes, n, replace=False) for n in self.lengths]

    def __len__(self) -> int:
        return len(self.lengths)

    def cells(self, rows: NDArray[np.int64], maximum_length: int) -> Packed:
        """See :meth:`scsigmoid.tokens.store.TokenStore.cells`."""
        genes = [self.genes[row][:maximum_length] for row in rows]
        ends = np.cumsum([0, *map(len, genes)])
        return Packed(np.concatenate(genes), ends.astype(np.int32))

    def metadata(self, columns: Sequence[str]) -> dict[str, NDArray[np.int64]]:
        """Row of each cell."""
        return {name: np.arange(len(self)) for name in columns}


def write_counts(path: Path, cells: NDArray[np.int64]) -> None:
    """Counts of so many cells of each type: ``COUNTS`` molecules a cell, ``GENES`` genes."""
    generator = np.random.default_rng(2)
    blocks = []
    for count in cells:
        share = generator.gamma(0.3, size=GENES).cumsum()
        genes = np.searchsorted(share / share[-1], generator.random((count, COUNTS)))
        ends = np.arange(0, genes.size + 1, COUNTS)
        block = csr_matrix((np.ones(genes.size, np.float32), genes.ravel(), ends), (count, GENES))
        block.sum_duplicates()
        blocks.append(block)
    kinds = np.repeat([f"type {kind:02d}" for kind in range(len(cells))], cells)
    obs = pd.DataFrame({"cell_type": pd.Categorical(kinds)})
    obs.index = obs.index.map(str)
    var = pd.DataFrame(index=[f"ENSG9{gene:010d}" for gene in range(GENES)])
    anndata.AnnData(vstack(blocks, format="csr"), obs=obs, var=var).write_h5ad(path)


if __name__ == "__main__":
    main()
