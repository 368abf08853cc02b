"""Subcommands that evaluate models."""

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args

from scsigmoid.cli.arguments import Stages
from scsigmoid.config.check import built
from scsigmoid.config.schema import Device, Embeddings, Mmd, Pooling, Umap, ValidationLoss
from scsigmoid.errors import UserError


def add(stages: Stages) -> None:
    """Add the stage's subcommands."""
    own = stages.add("embed", embed, "embed your own cells (h5ad, or 10x) with a trained model")
    own.files("input", "output").paths("checkpoint").paths("vocabulary", required=False)
    own.choice("pooling", get_args(Pooling), "mean").choice("device", get_args(Device), "auto")
    own.number("batch-tokens", "tokens per forward pass; bounds the memory", default=16_384)
    own.text("layer", required=False).text("genes", required=False)
    stages.add("embeddings", embeddings, "embed the cells of a token store").paths(
        "checkpoint", many=True
    ).paths("tokens").paths("cells").settings().output(many=True)
    stages.add("validation-loss", validation_loss, "masked-gene loss on held-out cells").text(
        "dataset"
    ).paths("checkpoint", many=True).paths("tokens").settings().output(many=True)
    stages.add("neighbours", neighbours, "PCA and neighbours of each representation").paths(
        "embeddings", many=True
    ).paths("cells").settings().output()
    stages.add("silhouette", silhouette, "scIB silhouette of the cell types").text("dataset").paths(
        "neighbours"
    ).settings().output()
    stages.add("leiden", leiden, "scIB Leiden NMI and ARI").text("dataset").paths(
        "neighbours"
    ).settings().paths("nmi").paths("ari")
    stages.add("kmeans", kmeans, "scIB k-means NMI and ARI").text("dataset").paths(
        "neighbours"
    ).paths("nmi").paths("ari")
    stages.add("clisi", clisi, "scIB cLISI").text("dataset").paths("neighbours").output()
    stages.add("mmd", mmd, "bootstrap MMD between cell types").text("dataset").paths(
        "embeddings", many=True
    ).settings().output()
    stages.add("umap", umap, "UMAP coordinates of both models").paths(
        "embeddings", many=True
    ).settings().output(many=True)


def embed(options: argparse.Namespace) -> None:
    from scsigmoid.evaluation.own_cells import embed_file, load

    if options.batch_tokens < 1:
        raise UserError(f"--batch-tokens {options.batch_tokens}: expected at least 1")
    if options.output.is_dir():
        raise UserError(f"{options.output}: a folder; name a file")
    embed_file(
        options.input,
        load(options.checkpoint, device=options.device, vocabulary=options.vocabulary),
        Embeddings(pooling=options.pooling, batch_tokens=options.batch_tokens),
        options.output,
        layer=options.layer,
        genes=options.genes,
    )


def embeddings(options: argparse.Namespace) -> None:
    from scsigmoid.evaluation.embeddings import embed as embed_cells

    for checkpoint, output in checkpoints_and_outputs(options):
        embed_cells(
            checkpoint,
            options.tokens,
            options.cells,
            output.stem,
            built(Embeddings, options.settings["evaluation.embeddings"]),
            options.settings["device"],
            output,
        )


def validation_loss(options: argparse.Namespace) -> None:
    from scsigmoid.evaluation.validation_loss import validation_loss as measure

    for checkpoint, output in checkpoints_and_outputs(options):
        measure(
            checkpoint,
            options.tokens,
            options.dataset,
            output.stem,
            built(ValidationLoss, options.settings["evaluation.validation_loss"]),
            options.settings["seed"],
            options.settings["device"],
            output,
            output.with_suffix(".parquet"),
        )


def checkpoints_and_outputs(options: argparse.Namespace) -> Iterator[tuple[Path, Path]]:
    """Checkpoints with their outputs, in order; an output's stem names the model.

    Raises:
        UserError: if there are more of the ones than of the others.
    """
    if len(options.checkpoint) != len(options.output):
        raise UserError(
            f"--output: {len(options.output)} files for {len(options.checkpoint)} checkpoints; "
            "name one for each"
        )
    yield from zip(options.checkpoint, options.output, strict=True)


def neighbours(options: argparse.Namespace) -> None:
    from scsigmoid.evaluation.neighbours import neighbours_of_dataset
    from scsigmoid.training.devices import resolve_device

    settings = options.settings
    neighbours_of_dataset(
        by_model(options.embeddings),
        options.cells,
        neighbours=settings["evaluation.scib.neighbours"],
        variance=settings["evaluation.scib.variance"],
        controls=settings["evaluation.scib.controls"],
        seed=settings["seed"],
        output=options.output,
        device=resolve_device(settings["device"]),
    )


def without_compilation() -> None:
    """Keep numba from compiling: scib_metrics imports libraries that compile when imported.

    It would cost ten seconds a job; what runs instead takes a fraction of a millisecond a cell.
    """
    os.environ["NUMBA_DISABLE_JIT"] = "1"


def silhouette(options: argparse.Namespace) -> None:
    from scsigmoid.evaluation.scib import silhouette as measure
    from scsigmoid.training.devices import resolve_device

    device = resolve_device(options.settings["device"])
    measure(options.neighbours, options.dataset, options.output, device)


def leiden(options: argparse.Namespace) -> None:
    without_compilation()
    from scsigmoid.evaluation.scib import leiden as measure

    measure(options.neighbours, options.dataset, options.settings["seed"], options.nmi, options.ari)


def kmeans(options: argparse.Namespace) -> None:
    without_compilation()
    from scsigmoid.evaluation.scib import kmeans as measure

    measure(options.neighbours, options.dataset, options.nmi, options.ari)


def clisi(options: argparse.Namespace) -> None:
    without_compilation()
    from scsigmoid.evaluation.scib import clisi as measure

    measure(options.neighbours, options.dataset, options.output)


def mmd(options: argparse.Namespace) -> None:
    from scsigmoid.evaluation.mmd import mmd_dataset
    from scsigmoid.training.devices import resolve_device

    settings = options.settings
    mmd_dataset(
        by_model(options.embeddings),
        options.dataset,
        built(Mmd, settings["mmd"]),
        settings["seed"],
        options.output,
        resolve_device(settings["device"]),
        settings[f"datasets.{options.dataset}.types"],
    )


def umap(options: argparse.Namespace) -> None:
    from scsigmoid.evaluation.umap import umap_dataset

    settings = options.settings
    umap_dataset(
        by_model(options.embeddings),
        built(Umap, settings["umap"]),
        settings["seed"],
        by_model(options.output),
    )


def by_model(paths: Sequence[Path]) -> dict[str, Path]:
    """Files named after models, by model."""
    return {path.stem: path for path in paths}
