"""How long the evaluation takes at the paper's sizes, on simulated cells (docs/benchmarks.md)."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from scsigmoid.config.schema import Architecture, Mmd, Size, Training, ValidationLoss
from scsigmoid.evaluation.distances import silhouettes
from scsigmoid.evaluation.embedding_files import write_embedding
from scsigmoid.evaluation.mmd import measure_pair
from scsigmoid.evaluation.mmd_kernel import Counts, mmd_squared, resample_counts
from scsigmoid.evaluation.simulated import HIDDEN, SimulatedTokens, simulated_arms, write_counts
from scsigmoid.evaluation.validation_loss import cell_losses, place_losses
from scsigmoid.files import write_json
from scsigmoid.model.encoder import Encoder
from scsigmoid.model.sizes import EncoderSettings
from scsigmoid.progress import log
from scsigmoid.training.batches import Masking, pack, split_by_tokens
from scsigmoid.training.devices import device_name, resolve_device, synchronise
from scsigmoid.training.run import versions
from scsigmoid.training.step import Trainer, autocast

# Heart OFT has 30,125 cells of eight types; how many of each the paper does not say.
HEART_OFT = (15_000, 5_200, 3_800, 2_600, 1_500, 1_100, 600, 325)
# The largest dataset that is evaluated; 30 types are a guess.
LARGEST, TYPES = 88_658, 30
SILHOUETTE = 6_000
PLAIN = (400, 300)
ROUNDS = 5


def run_evaluation_benchmark(part: str, settings: Any, device: str, output: Path) -> None:
    """Time one part of the evaluation.

    Args:
        part: ``mmd`` (all pairs of eight types, both arms), ``mmd-plain`` (one small pair, beside
            kernels that are recomputed for every resample), ``validation-loss`` (beside training's
            forward passes), ``silhouette`` (beside scib-metrics) or ``scib`` (a dataset's jobs).
        settings: the stored configuration, as plain values.
        device: ``auto``, ``cpu`` or ``cuda``.
        output: JSON: seconds of each round, versions, device.
    """
    parts: dict[str, Callable[[Any, torch.device], dict[str, Any]]] = {
        "mmd": time_mmd,
        "mmd-plain": time_plain,
        "validation-loss": time_loss,
        "silhouette": time_silhouette,
        "scib": time_scib,
    }
    place = resolve_device(device)
    found = parts[part](settings, place)
    machine = {"device": device_name(place), "threads": torch.get_num_threads(), **versions()}
    write_json(output, {"part": part, "simulated": True, **found, "machine": machine})
    log(json.dumps(found))


def seconds_of(work: Callable[[], object], device: torch.device) -> float:
    """Seconds that some work takes."""
    synchronise(device)
    begin = time.perf_counter()
    work()
    synchronise(device)
    return time.perf_counter() - begin


def time_mmd(settings: Any, device: torch.device) -> dict[str, Any]:
    """All pairs of Heart OFT's size, both arms; on a GPU a second time, when all is loaded."""
    arms = simulated_arms(HEART_OFT)
    mmd = Mmd(**settings["evaluation"]["mmd"])
    names = np.unique(next(iter(arms.values())).labels).tolist()
    pairs = list(combinations(names, 2))

    def measure() -> None:
        for number, (a, b) in enumerate(pairs, start=1):
            measure_pair(arms, a, b, "heart_oft", mmd, settings["seed"], device)
            log(f"MMD: {number} of {len(pairs)} pairs")

    rounds = 2 if device.type == "cuda" else 1
    return {
        "cells": HEART_OFT,
        "hidden": HIDDEN,
        "pairs": len(pairs),
        "resamples": mmd.resamples,
        "seconds": [seconds_of(measure, device) for _ in range(rounds)],
    }


def time_plain(settings: Any, device: torch.device) -> dict[str, Any]:
    """A small pair, both ways in turns, with the same resamples."""
    resamples = settings["evaluation"]["mmd"]["resamples"]
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


def time_loss(settings: Any, device: torch.device) -> dict[str, Any]:
    """Validation beside training's forward passes, for both attentions.

    On a CPU four layers and two cells of at most 1,024 tokens, on a GPU the paper's and 128 cells.
    """
    gpu = device.type == "cuda"
    small = Size(layers=4, hidden=256, heads=4, feed_forward=1024)
    size = Size(**settings["sizes"]["160M"]) if gpu else small
    vocabulary = 44_000 if gpu else 4_400
    loss = ValidationLoss(
        **settings["evaluation"]["validation_loss"] | {"batch_tokens": 65_536 if gpu else 8192}
    )
    training = Training(**settings["training"])
    context = 4096 if gpu else 1024
    tokens: Any = SimulatedTokens(128 if gpu else 2, vocabulary, context)
    found: dict[str, Any] = {"size": asdict(size), "cells": len(tokens), "trials": loss.trials}
    for attention in ("sigmoid", "softmax"):
        architecture = Architecture(**settings["architecture"])
        encoder = EncoderSettings.of(size, architecture, attention, context, vocabulary)
        pairs = validation_and_training(encoder, tokens, loss, training, device)
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
    """Seconds of all trials and of as many forward passes of training, in turns.

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


def time_silhouette(settings: Any, device: torch.device) -> dict[str, Any]:
    """Our silhouette and scib-metrics', in turns, of fewer cells than the largest dataset has."""
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


def time_scib(settings: Any, device: torch.device) -> dict[str, Any]:
    """The scIB jobs of the largest dataset, as two cores run them, with both arms and controls."""
    share = np.random.default_rng(1).dirichlet(np.ones(TYPES))
    cells = np.maximum(np.round(share * LARGEST).astype(int), 2)
    cells[cells.argmax()] += LARGEST - cells.sum()
    scib = settings["evaluation"]["scib"]
    keys = ("neighbours", "variance", "controls")
    given = {f"evaluation.scib.{key}": scib[key] for key in keys}
    chosen = json.dumps(given | {"seed": settings["seed"], "device": str(device)})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = []
        for model, arm in simulated_arms(cells.tolist()).items():
            files.append(str(folder / f"{model}.h5ad"))
            obs = pd.DataFrame(index=arm.cells.astype(str))
            write_embedding(Path(files[-1]), arm.values, arm.labels, arm.cells, arm.metadata, obs)
        counts = folder / "simulated.h5ad"
        write_counts(counts, cells)
        here = str(folder / "neighbours")
        read = ["--dataset", "simulated", "--neighbours", here, "--settings", chosen]
        first = {
            "neighbours": [
                *("--embeddings", *files, "--cells", str(counts)),
                *("--settings", chosen, "--output", here),
            ]
        }
        scores = [str(folder / metric / "simulated.csv") for metric in scib["metrics"]]
        then = {"scib": [*read, "--output", *scores]}
        begin = time.perf_counter()
        jobs = run_together(first) | run_together(then)
        seconds = time.perf_counter() - begin
        return {"cells": LARGEST, "types": TYPES, "seconds": seconds, "jobs": jobs}


def run_together(jobs: Mapping[str, Sequence[str]]) -> dict[str, dict[str, float]]:
    """Run stages at the same time, as on two cores: seconds and peak memory of each."""
    begin = time.perf_counter()
    running = {
        stage: subprocess.Popen([sys.executable, "-m", "scsigmoid", stage, *arguments])
        for stage, arguments in jobs.items()
    }
    stages = {process.pid: stage for stage, process in running.items()}
    found = {}
    for _ in jobs:
        process, status, usage = os.wait4(-1, 0)
        stage = stages[process]
        if status:
            raise subprocess.CalledProcessError(status, stage)
        found[stage] = {
            "seconds": time.perf_counter() - begin,
            "cpu_seconds": usage.ru_utime + usage.ru_stime,
            "peak_gb": usage.ru_maxrss * 1024 / 1e9,  # Linux counts in KiB
        }
        log(f"{stage}: {found[stage]}")
    return found
