"""Subcommands that evaluate models."""

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from scsigmoid.cli.arguments import stage, text
from scsigmoid.config.schema import Embeddings, Mmd, Scib, Umap, ValidationLoss
from scsigmoid.errors import UserError


@stage(
    "input output --checkpoint --key --pooling --device --batch-tokens --layer? --genes? --force?",
    {
        "--checkpoint": {
            "metavar": "PATH",
            "help": "trained model: model.safetensors or its folder; or the packaged model blood",
        },
        "--key": text("name of the embedding in obsm") | {"default": "X_scsigmoid"},
        "--force": {"action": "store_true", "help": "replace OUTPUT.h5ad if it exists now"},
    },
)
def embed(options: argparse.Namespace) -> None:
    """Embed your own cells (h5ad, or 10x) with a trained model."""
    from scsigmoid.cells.files import embed_file
    from scsigmoid.cells.model import load

    if options.output.is_dir():
        raise UserError(f"{options.output}: a folder; name a file")
    if options.output.suffix != ".h5ad":
        raise UserError(f"{options.output}: the output is an h5ad file; end its name in .h5ad")
    embed_file(
        options.input,
        load(options.checkpoint, device=options.device),
        Embeddings(pooling=options.pooling, batch_tokens=options.batch_tokens),
        options.output,
        key=options.key,
        layer=options.layer,
        genes=options.genes,
        force=options.force,
    )


@stage("--checkpoint+ --tokens --cells --settings --device? --output+")
def embeddings(options: argparse.Namespace) -> None:
    """Embed the cells of a token store."""
    from scsigmoid.evaluation.embeddings import embed as embed_cells

    settings = options.settings.section("evaluation.embeddings", Embeddings)
    for checkpoint, output in checkpoints_and_outputs(options):
        embed_cells(checkpoint, options.tokens, options.cells, settings, options.device, output)


@stage("--dataset --checkpoint+ --tokens --settings --device? --output+")
def validation_loss(options: argparse.Namespace) -> None:
    """Compute the masked-gene loss on held-out cells."""
    from scsigmoid.evaluation.validation_loss import validation_loss as measure

    tokens, dataset, device = options.tokens, options.dataset, options.device
    settings = options.settings.section("evaluation.validation_loss", ValidationLoss)
    seed = options.settings["seed"]
    for checkpoint, output in checkpoints_and_outputs(options):
        cell_losses = output.with_suffix(".parquet")
        measure(checkpoint, tokens, dataset, settings, seed, device, output, cell_losses)


def checkpoints_and_outputs(options: argparse.Namespace) -> Iterator[tuple[Path, Path]]:
    """Yield each checkpoint with its output. Raise a UserError if their numbers differ."""
    if len(options.checkpoint) != len(options.output):
        counts = f"{len(options.output)} files for {len(options.checkpoint)} checkpoints"
        raise UserError(f"--output: {counts}; name one for each")
    yield from zip(options.checkpoint, options.output, strict=True)


@stage("--embeddings+ --cells --settings --output+")
def scib(options: argparse.Namespace) -> None:
    """Compute the scIB metrics of a dataset. The folder of an output is the name of its metric."""
    # Numba would compile for ten seconds at import. Uncompiled, it takes less than 1 ms per cell.
    os.environ["NUMBA_DISABLE_JIT"] = "1"
    from scsigmoid.config.metrics import METRICS
    from scsigmoid.evaluation.scib import scib as measure

    outputs = {file.parent.name: file for file in options.output}
    for metric, output in outputs.items():
        if metric not in METRICS:
            raise UserError(f"{output}: name its folder after a metric ({', '.join(METRICS)})")
    settings, seed = options.settings.section("evaluation.scib", Scib), options.settings["seed"]
    by_donor = options.settings["corpus.source"] == "local"  # not for the paper's datasets
    files = by_model(options.embeddings)
    measure(files, options.cells, settings, seed, outputs, donors=by_donor)


@stage("--dataset --embeddings+ --settings --device? --output")
def mmd(options: argparse.Namespace) -> None:
    """Compute the bootstrap MMD between cell types."""
    from scsigmoid.evaluation.mmd import mmd_dataset
    from scsigmoid.model.devices import resolve_device

    dataset, seed = options.dataset, options.settings["seed"]
    settings = options.settings.section("evaluation.mmd", Mmd)
    files, device = by_model(options.embeddings), resolve_device(options.device)
    types = options.settings[f"datasets.{dataset}.types"]
    mmd_dataset(files, dataset, settings, seed, options.output, device, types)


@stage("--dataset --embeddings+ --settings --output+")
def umap(options: argparse.Namespace) -> None:
    """Compute the UMAP coordinates of each model."""
    from scsigmoid.evaluation.umap import umap_dataset

    files, outputs = by_model(options.embeddings), by_model(options.output)
    settings = options.settings.section("evaluation.umap", Umap)
    umap_dataset(files, options.dataset, settings, options.settings["seed"], outputs)


def by_model(paths: Sequence[Path]) -> dict[str, Path]:
    """Return files by model. The name of a file without its suffix is the name of its model."""
    return {path.stem: path for path in paths}
