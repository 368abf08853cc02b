"""Collect, embed and score the runs of workflow/studies/deeper.yaml (docs/preregistration.md, 8).

    python docs/measurements/scripts/deeper_runs.py collect MODELS --output pilot.csv
    python docs/measurements/scripts/deeper_runs.py judge pilot.csv
    python docs/measurements/scripts/deeper_runs.py embed MODELS --tokens tokens/evaluation \
        --output EMBEDDINGS
    python docs/measurements/scripts/deeper_runs.py score EMBEDDINGS --cells corpus/evaluation \
        --output FOLDER

``MODELS`` contains a folder for each run, and the other folders are in the study's results.
``collect`` writes every logged step. ``judge`` chooses the learning rates and the number of steps
by the pilot. ``embed`` embeds the held-out cells and measures the loss on
them. It needs the last model of each run, so it runs on the GPU machine. ``score`` writes
scores.csv and held_out.csv for converged_pairs.py, and controls.csv. A run has no scores if its
embeddings of a dataset are not finite or all the same.
"""

import argparse
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

#: Random cells of a dataset whose embeddings are scored, and masks of a cell for its loss.
CELLS, MASKS = 1000, 5
BATCH_TOKENS = 65_536
SEED = 0
#: Rules of the pilot: first step at which it is judged, steps of the pairs, largest decrease of the
#: loss (nats per 1,000 steps) with fewer steps, loss of gene frequencies (nats), and distance to it
#: within which a run has collapsed.
JUDGED_FROM, STEPS, LONGER, LARGEST_FALL = 10_000, 12_000, 16_000, 0.05
FREQUENCIES, COLLAPSED = 9.018, 0.5
VALIDATE_EVERY = 200
CURVES = ("step", "loss", "validation_loss", "gradient_norm", "attention_score_max", "seconds")
KEYS = ("attention", "learning_rate", "seed")


def settings_of(run: str) -> dict[str, Any]:
    """Return arm, learning rate (empty if the run's name does not contain it) and seed of a run."""
    pattern = r"deeper_.*?(sigmoid|softmax)(?:_learning_rate_(\d+_\d+))?_seed_(\d+)"
    match = re.fullmatch(pattern, run)
    if not match:
        raise SystemExit(f"{run}: not the name of a run of workflow/studies/deeper.yaml")
    rate = match[2] and float(match[2].replace("_", "."))
    return dict(zip(KEYS, (match[1], rate, int(match[3])), strict=True))


def collect(models: Path, output: Path) -> None:
    from scsigmoid.training.journal import JOURNAL, read_journal

    parts = []
    for path in sorted(models.glob(f"*/{JOURNAL}")):
        journal, header = read_journal(path)
        curve = pd.DataFrame({key: journal[key] for key in CURVES})
        settings = settings_of(path.parent.name) | {"backend": header["backend"]}
        parts.append(curve.assign(**settings)[[*KEYS, *CURVES, "backend"]])
    pd.concat(parts).to_csv(output, index=False, float_format="%.7g")


def judge(curves: pd.DataFrame) -> Iterator[str]:
    """Yield what the rules of the pilot decide, one line for each."""
    runs = curves[[*KEYS]].drop_duplicates()
    if runs.isna().any(axis=None) or runs["attention"].nunique() != 2:
        raise SystemExit("not judged: a run without a learning rate in its name, or without rival")
    if runs.groupby(["attention", "learning_rate"]).size().nunique() != 1:
        raise SystemExit("not judged: the rates have different numbers of runs")
    validated = curves[(curves["step"] % VALIDATE_EVERY == 0) & (curves["step"] <= STEPS)]
    last = int(validated.groupby([*KEYS])["step"].max().min())
    if last < JUDGED_FROM:
        raise SystemExit(f"not judged: the shortest run has a validation at step {last}")
    validated = validated[validated["step"] <= last]
    steps = validated["step"]
    groups = ["attention", "learning_rate"]

    def losses(end: int) -> pd.Series:
        """Return the mean of the five validations of each run up to a step, or infinity."""
        last_five = validated[(steps > end - 5 * VALIDATE_EVERY) & (steps <= end)]
        values = last_five.set_index([*KEYS])["validation_loss"].fillna(math.inf)
        return values.groupby([*KEYS]).mean()

    until, before = losses(last), losses(last - 1000)
    means = until.groupby(groups).mean()
    allowed = means[until.groupby(groups).max() <= FREQUENCIES - COLLAPSED]
    chosen = allowed.groupby("attention").idxmin()
    yield f"at step {last}:"
    for (attention, rate), mean in means.items():
        values = ", ".join(f"{loss:.4f}" for loss in until.loc[attention, rate])
        mark = " chosen" if (attention, rate) in list(chosen) else ""
        yield f"{attention} at {rate:g}: {mean:.4f} nats ({values}){mark}"
    for attention in means.index.levels[0]:
        if attention not in chosen:
            raise SystemExit(f"{attention}: all rates have a collapsed run, so there are no pairs")
        if chosen[attention][1] in (min(means[attention].index), max(means[attention].index)):
            yield f"{attention}: at an edge of its range"
    fall = sum(float((before - until).loc[group].mean()) for group in chosen) / len(chosen)
    yield (
        f"decrease of the chosen groups over the last 1,000 steps {fall:.4f}: "
        f"{LONGER if fall > LARGEST_FALL else STEPS} steps"
    )


def embed(models: Path, stores: Path, output: Path) -> None:
    import torch

    from scsigmoid.config.schema import ValidationLoss
    from scsigmoid.evaluation.validation_loss import cell_losses
    from scsigmoid.model.devices import resolve_device
    from scsigmoid.model.embedding import embed_cells
    from scsigmoid.model.loss import masked_losses
    from scsigmoid.model.weights import MODEL, load_encoder
    from scsigmoid.tokens.store import TokenStore

    device = resolve_device("auto")
    masking = ValidationLoss(
        trials=MASKS, mask_fraction=0.15, confidence=0.95, batch_tokens=BATCH_TOKENS
    )
    for path in sorted(models.glob(f"*/{MODEL}")):
        encoder, metadata = load_encoder(path, device)
        torch.compiler.reset()
        compute = masked_losses
        if device.type == "cuda":
            compute = torch.compile(masked_losses, dynamic=True)
        arrays: dict[str, Any] = {}
        for folder in sorted(stores.iterdir()):
            name = folder.name
            tokens = TokenStore.open(folder, dataset=name, vocabulary=metadata["vocabulary"])
            cells = tokens.metadata(["cell", "cell_type"])
            count = min(CELLS, len(tokens))
            rows = np.sort(np.random.default_rng(SEED).permutation(len(tokens))[:count])
            embeddings = embed_cells(encoder, tokens, BATCH_TOKENS, name)
            losses, _ = cell_losses(encoder, tokens, masking, SEED, compute)
            arrays |= {
                f"{name}/embeddings": embeddings[rows].astype(np.float16),
                f"{name}/cells": cells["cell"][rows],
                f"{name}/types": cells["cell_type"][rows].astype(str),
                f"{name}/loss": losses.mean(),
            }
        output.mkdir(exist_ok=True)
        np.savez_compressed(output / f"{path.parent.name}.npz", **arrays)
        print(path.parent.name, flush=True)


def score(embeddings: Path, cells: Path, output: Path) -> None:
    from scsigmoid.evaluation.mmd import choose_types
    from scsigmoid.evaluation.neighbors import log_count_components
    from scsigmoid.evaluation.scib import FOLDS
    from scsigmoid.study.scores import metrics

    scores, controls, losses = [], [], []
    for number, path in enumerate(sorted(embeddings.glob("*.npz"))):
        arrays, run = np.load(path), settings_of(path.stem)
        keys = {"attention": run["attention"], "seed": run["seed"]}
        names = sorted({key.split("/")[0] for key in arrays})
        without = [name for name in names if not has_scores(arrays[f"{name}/embeddings"])]
        for name in names:
            labels = arrays[f"{name}/types"]
            types, _ = choose_types(labels, 2 * FOLDS)
            kept = np.isin(labels, types)
            values = arrays[f"{name}/embeddings"].astype(np.float32)
            losses.append(keys | {"dataset": name, "loss": float(arrays[f"{name}/loss"])})
            if not without:
                found = metrics(values[kept], labels[kept], SEED, path.stem)
                scores += [
                    keys | {"dataset": name, "metric": key, "value": item}
                    for key, item in found.items()
                ]
            if not number:
                components = log_count_components(cells / f"{name}.h5ad", arrays[f"{name}/cells"])
                found = metrics(components[kept], labels[kept], SEED, name)
                controls += [
                    {"attention": "pca_log_counts", "seed": "", "dataset": name}
                    | {"metric": key, "value": item}
                    for key, item in found.items()
                ]
        print(path.stem, *[f"no scores, because of {name}" for name in without], flush=True)
    output.mkdir(exist_ok=True)
    tables = {"scores": scores, "controls": controls, "held_out": losses}
    for name, rows in tables.items():
        pd.DataFrame(rows).to_csv(output / f"{name}.csv", index=False)


def has_scores(values: NDArray[np.floating]) -> bool:
    """Return whether embeddings (cells x dimensions) are finite and not all the same."""
    return bool(np.isfinite(values).all() and (values != values[0]).any())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for command, other in (("collect", None), ("embed", "tokens"), ("score", "cells")):
        options = commands.add_parser(command)
        options.add_argument("folder", type=Path)
        options.add_argument("--output", type=Path, required=True)
        if other:
            options.add_argument(f"--{other}", type=Path, required=True)
    judging = commands.add_parser("judge")
    judging.add_argument("curves", type=Path)
    options = parser.parse_args()
    if options.command == "judge":
        print(*judge(pd.read_csv(options.curves)), sep="\n")
    elif options.command == "collect":
        collect(options.folder, options.output)
    elif options.command == "embed":
        embed(options.folder, options.tokens, options.output)
    else:
        score(options.folder, options.cells, options.output)


if __name__ == "__main__":
    main()
