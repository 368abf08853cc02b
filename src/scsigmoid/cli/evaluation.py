"""Subcommands that evaluate models."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

from scsigmoid.cli.arguments import (
    Cells,
    Checkpoints,
    Configuration,
    Dataset,
    DeviceChoice,
    EmbeddingFiles,
    Output,
    Outputs,
    Store,
    stage,
)
from scsigmoid.config.schema import Config
from scsigmoid.errors import UserError

# Parameters of the commands for the user's own cells.
CheckpointOrName = Annotated[
    str, "trained model: model.safetensors or its folder; or the packaged model blood", "PATH"
]
Key = Annotated[str, "name of the embedding in obsm"]
Force = Annotated[bool, "replace OUTPUT.h5ad if it exists now"]


@stage
def embed(
    input: Annotated[Path, "cells with raw counts: h5ad, or a 10x file or folder", "INPUT.h5ad"],
    output: Annotated[Path, "file to write", "OUTPUT.h5ad"],
    /,
    checkpoint: CheckpointOrName,
    key: Key = "X_scsigmoid",
    device: DeviceChoice = "auto",
    devices: Annotated[int, "number of GPUs of this machine that embed the cells together"] = 1,
    batch_tokens: Annotated[int, "tokens per forward pass; bounds the memory"] = 16_384,
    layer: Annotated[
        str, "layer with the raw counts (default: raw.X if it exists, otherwise X)"
    ] = "",
    genes: Annotated[
        str,
        "column of var with Ensembl ids or gene names (default: the index, or the only column with "
        "Ensembl ids)",
    ] = "",
    force: Force = False,
) -> None:
    """Embed your own cells (h5ad, or 10x) with a trained model."""
    from scsigmoid.cells.embed_file import embed_file
    from scsigmoid.cells.model import load
    from scsigmoid.model.devices import choose_gpus

    check_h5ad(output)
    gpus = choose_gpus(device, devices) if devices != 1 else []
    embed_file(
        input,
        load(checkpoint, device="cpu" if gpus else device),
        output,
        key=key,
        layer=layer,
        genes=genes,
        batch_tokens=batch_tokens,
        force=force,
        devices=gpus,
    )


@stage
def annotate(
    query: Annotated[Path, "cells to annotate: h5ad, or a 10x file or folder", "QUERY.h5ad"],
    reference: Annotated[
        Path, "labeled cells: h5ad with the column --label in obs", "REFERENCE.h5ad"
    ],
    output: Annotated[Path, "file to write", "OUTPUT.h5ad"],
    /,
    checkpoint: CheckpointOrName,
    label: Annotated[str, "column of obs in REFERENCE.h5ad with the cell type"],
    classifier: Annotated[
        Literal["logistic", "neighbors"], "logistic regression, or vote of the 15 nearest neighbors"
    ] = "logistic",
    threshold: Annotated[
        float,
        'probability below which a cell is "unknown" (default: chosen on held-out reference cells)',
        "P",
    ]
    | None = None,
    key: Key = "X_scsigmoid",
    device: DeviceChoice = "auto",
    force: Force = False,
) -> None:
    """Predict the types of your own cells from labeled cells."""
    from scsigmoid.cells.annotation import annotate_file
    from scsigmoid.cells.model import load

    check_h5ad(output)
    annotate_file(
        query,
        reference,
        load(checkpoint, device=device),
        output,
        label=label,
        classifier=classifier,
        threshold=threshold,
        key=key,
        force=force,
    )


def check_h5ad(output: Path) -> None:
    """Raise a UserError if ``output`` is a folder or not named as an h5ad file."""
    if output.is_dir():
        raise UserError(f"{output}: a folder; name a file")
    if output.suffix != ".h5ad":
        raise UserError(f"{output}: the output is an h5ad file; end its name in .h5ad")


@stage
def embeddings(
    checkpoint: Checkpoints,
    tokens: Store,
    cells: Cells,
    configuration: Configuration,
    output: Outputs,
    vocabulary: Annotated[
        Path, "vocabulary.parquet of the token store, if it begins with the model's genes"
    ]
    | None = None,
) -> None:
    """Embed the cells of a token store."""
    from scsigmoid.evaluation.embeddings import embed_dataset

    config = configuration.config
    settings = config.evaluation.embeddings
    for model, file in checkpoints_and_outputs(checkpoint, output):
        embed_dataset(model, tokens, cells, settings, config.device, file, vocabulary)


@stage
def validation_loss(
    dataset: Dataset,
    checkpoint: Checkpoints,
    tokens: Store,
    configuration: Configuration,
    output: Outputs,
) -> None:
    """Compute the masked-gene loss on held-out cells."""
    from scsigmoid.evaluation.validation_loss import validation_loss as measure

    config = configuration.config
    settings, seed, device = config.evaluation.validation_loss, config.seed, config.device
    for model, file in checkpoints_and_outputs(checkpoint, output):
        measure(model, tokens, dataset, settings, seed, device, file, file.with_suffix(".parquet"))


def checkpoints_and_outputs(
    checkpoints: Sequence[Path], outputs: Sequence[Path]
) -> Iterator[tuple[Path, Path]]:
    """Yield each checkpoint with its output. Raise a UserError if their numbers differ."""
    if len(checkpoints) != len(outputs):
        counts = f"{len(outputs)} files for {len(checkpoints)} checkpoints"
        raise UserError(f"--output: {counts}; name one for each")
    yield from zip(checkpoints, outputs, strict=True)


@stage
def scib(
    embeddings: EmbeddingFiles, cells: Cells, configuration: Configuration, output: Outputs
) -> None:
    """Compute the scIB metrics of a dataset. The folder of an output is the name of its metric."""
    # Numba would compile for ten seconds at import. Uncompiled, it takes less than 1 ms per cell.
    os.environ["NUMBA_DISABLE_JIT"] = "1"
    from scsigmoid.config.metrics import METRICS
    from scsigmoid.evaluation.scib import scib as measure

    config = configuration.config
    outputs = {file.parent.name: file for file in output}
    for metric, file in outputs.items():
        if metric not in METRICS:
            raise UserError(f"{file}: name its folder after a metric ({', '.join(METRICS)})")
    by_donor = config.corpus.source == "local"  # not for the paper's datasets
    files, settings = by_model(embeddings), config.evaluation.scib
    batch = batch_of(config, cells.stem)
    measure(files, cells, settings, config.seed, outputs, donors=by_donor, batch=batch)


@stage
def mmd(
    dataset: Dataset, embeddings: EmbeddingFiles, configuration: Configuration, output: Output
) -> None:
    """Compute the bootstrap MMD between cell types."""
    from scsigmoid.evaluation.mmd import mmd_dataset
    from scsigmoid.model.devices import resolve_device

    config = configuration.config
    if dataset not in config.datasets:
        raise UserError(f"--dataset {dataset}: not one of {', '.join(config.datasets)}")
    files, device = by_model(embeddings), resolve_device(config.device)
    types = config.datasets[dataset].types
    mmd_dataset(files, dataset, config.evaluation.mmd, config.seed, output, device, types)


@stage
def umap(
    dataset: Dataset, embeddings: EmbeddingFiles, configuration: Configuration, output: Outputs
) -> None:
    """Compute the UMAP coordinates of each model."""
    from scsigmoid.evaluation.umap import umap_dataset

    config = configuration.config
    files, outputs = by_model(embeddings), by_model(output)
    batch = batch_of(config, dataset)
    umap_dataset(files, dataset, config.evaluation.umap, config.seed, outputs, batch)


def batch_of(config: Config, dataset: str) -> str:
    """Return the column of ``obs`` with the batch of a dataset, or ""."""
    return (config.datasets[dataset].batch or "") if dataset in config.datasets else ""


def by_model(paths: Sequence[Path]) -> dict[str, Path]:
    """Return files by model. The name of a file without its suffix is the name of its model."""
    return {path.stem: path for path in paths}
