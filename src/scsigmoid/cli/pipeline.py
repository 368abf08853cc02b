"""Subcommands from the corpus to a trained model, and ``plan``."""

import math
import os
import sys
from functools import reduce
from pathlib import Path
from typing import Annotated

from scsigmoid.cli.arguments import (
    Cells,
    Configuration,
    Manifest,
    Metadata,
    Output,
    Stores,
    VocabularyFile,
    stage,
)
from scsigmoid.config.check import SHIPPED, load, merge, parse_pairs, read_yaml
from scsigmoid.errors import UserError


@stage
def plan(
    configfile: Annotated[
        list[Path], "files with settings that override the preset, as for snakemake"
    ] = [],  # noqa: B006 - not changed
    config: Annotated[
        list[str], "settings that override the preset and the files, as for snakemake", "KEY=VALUE"
    ] = [],  # noqa: B006 - not changed
    download_rate: Annotated[float, "megabytes per second, e.g. 100", "MB/S"] | None = None,
    price_per_gpu_hour: Annotated[float, "in any currency", "PRICE"] | None = None,
) -> None:
    """Print hours, GPU memory, disk space and price of a run before anything runs."""
    from scsigmoid.forecast.choices import choose
    from scsigmoid.forecast.page import DOWNLOAD_RATE, forecast
    from scsigmoid.forecast.volume import check_own_files

    options = {"--download-rate": download_rate, "--price-per-gpu-hour": price_per_gpu_hour}
    for name, value in options.items():
        if value is not None and not 0 < value < math.inf:  # also refuses NaN
            raise UserError(f"{name}: is {value:g}; name a finite number above 0")
    base, presets = Path("config.yaml"), Path("workflow/presets")
    if not (base.is_file() and presets.is_dir()):
        print("no workflow in this folder: using the presets of the package", file=sys.stderr)
        base, presets = SHIPPED / "config.yaml", SHIPPED / "presets"
    overrides = reduce(merge, [*map(read_yaml, configfile), parse_pairs(config)])
    settings = load(base, presets, overrides, choose)
    check_own_files(settings)
    results = Path(settings.results or f"results/{settings.preset}")
    lines = forecast(settings, results, download_rate or DOWNLOAD_RATE, price_per_gpu_hour)
    try:
        print(*lines, sep="\n", flush=True)
    except BrokenPipeError:  # the reader, e.g. `head`, has ended. Do not flush the rest at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@stage
def manifest(
    configuration: Configuration,
    output: Output,
    summary: Annotated[
        Path, "summary to write: files that the source offers, held out and selected"
    ],
) -> None:
    """List the files of the corpus."""
    from scsigmoid.corpus.manifest import build_manifest

    lines = build_manifest(configuration.config, configuration.downloads, output, summary)
    print(*lines, sep="\n")


@stage
def fetch(
    configuration: Configuration,
    output: Output,
    manifest: Manifest | None = None,
    part: Annotated[str, "part of the training cells, by its number"] = "",
    dataset: Annotated[str, "evaluation dataset"] = "",
    metadata: Metadata | None = None,
) -> None:
    """Write a part of the training cells, or an evaluation dataset."""
    from scsigmoid.config.plan import Plan
    from scsigmoid.corpus.fetch import fetch_evaluation, fetch_part
    from scsigmoid.corpus.manifest import write_evaluation_row

    config, downloads = configuration.config, configuration.downloads
    if dataset and metadata:
        if dataset not in config.datasets:
            raise UserError(f"--dataset {dataset}: not one of {', '.join(config.datasets)}")
        needed_cells = Plan(config).needed_cells(dataset)
        row_csv = metadata.with_suffix(".csv")  # manifest with one row, for this dataset
        write_evaluation_row(dataset, config, downloads, row_csv)
        fetch_evaluation(row_csv, config, downloads, output, metadata, needed_cells)
    elif part.isdecimal() and manifest and not dataset:
        fetch_part(manifest, int(part), config, downloads, output)
    else:
        raise UserError("fetch: expected --part and --manifest, or --dataset and --metadata")


@stage
def lock(
    manifest: Manifest,
    cells: Annotated[list[Path], "parts of the training cells"],
    metadata: Annotated[list[Path], "JSON files about the evaluation datasets"],
    output: Output,
) -> None:
    """Complete the manifest with the checksums of all files."""
    from scsigmoid.corpus.manifest import write_lock

    write_lock(manifest, cells, metadata, output)


@stage
def statistics(cells: Cells, configuration: Configuration, output: Output) -> None:
    """Gather gene statistics."""
    from scsigmoid.corpus.fetch import raw_files
    from scsigmoid.tokens.statistics import gather

    config, downloads = configuration.config, configuration.downloads
    # `tokenize` reads the files again, so downloads are kept.
    with raw_files(cells, config.corpus, downloads, last=False):
        gather(cells, output, config.tokens.minimum_genes)


@stage
def vocabulary(
    statistics: Annotated[list[Path], "gene statistics of each part"],
    configuration: Configuration,
    output: Output,
) -> None:
    """Make vocabulary and medians."""
    from scsigmoid.config.plan import Plan
    from scsigmoid.tokens.vocabulary import build_vocabulary

    tokens, initial = configuration.config.tokens, None
    if name := Plan(configuration.config).initial:
        from scsigmoid.config.initial import initial_path
        from scsigmoid.model.weights import load_vocabulary

        initial = load_vocabulary(initial_path(name))
    build_vocabulary(statistics, tokens.minimum_cells, output, tokens.vocabulary, initial)


@stage
def tokenize(
    cells: Cells,
    vocabulary: VocabularyFile,
    configuration: Configuration,
    output: Output,
    metadata: Metadata | None = None,
    manifest: Manifest | None = None,
) -> None:
    """Turn cells into ranked gene tokens."""
    from scsigmoid.corpus.fetch import advised, raw_files
    from scsigmoid.corpus.manifest import check_not_trained_on
    from scsigmoid.corpus.metadata import read_row
    from scsigmoid.tokens.make_stores import UNLIMITED, tokenize_evaluation, tokenize_part
    from scsigmoid.tokens.tokenizer import Tokenizer
    from scsigmoid.tokens.vocabulary import Vocabulary

    if metadata and not manifest:
        raise UserError(
            "tokenize: --metadata without --manifest; add the manifest with the training files, "
            "which is compared with the evaluation dataset"
        )
    config, downloads = configuration.config, configuration.downloads
    tokenizer = Tokenizer(
        Vocabulary.read(vocabulary),
        maximum_length=UNLIMITED,
        shard_cells=config.tokens.shard_cells,
        # Evaluation cells (with metadata) are not left out for their number of genes.
        minimum_genes=0 if metadata else config.tokens.minimum_genes,
    )
    if metadata and manifest:
        row_csv = metadata.with_suffix(".csv")  # written by `fetch`
        check_not_trained_on(row_csv, manifest, config)
        with advised([read_row(row_csv)], config.corpus):
            tokenize_evaluation(cells, metadata, tokenizer, output)
    else:
        # No later job reads the files, so downloads may be deleted.
        with raw_files(cells, config.corpus, downloads, last=True):
            tokenize_part(cells, tokenizer, output)


@stage
def lengths(tokens: Stores, output: Output) -> None:
    """Count cells at each sequence length."""
    from scsigmoid.tokens.store import write_length_counts

    write_length_counts(tokens, output)


@stage
def train(
    model: Annotated[str, "name of the model"],
    tokens: Stores,
    vocabulary: VocabularyFile,
    configuration: Configuration,
    output: Output,
    gpus: Annotated[int, "number of GPUs of each machine that train together (torchrun)"] = 1,
    nodes: Annotated[int, "number of machines that train together (Slurm)"] = 1,
) -> None:
    """Train one model, or resume from its last checkpoint."""
    from scsigmoid.config.plan import Plan
    from scsigmoid.model.devices import claim_gpus
    from scsigmoid.training.loop import train as run_training
    from scsigmoid.training.processes import STOPPED, hide_other_gpus, launched, requeue
    from scsigmoid.training.run import TrainingRun

    if not launched() and configuration.config.device != "cpu":
        hide_other_gpus(claim_gpus(1))
    run = TrainingRun.of(Plan(configuration.config).run_config(model), model)
    try:
        run_training(run, tokens, vocabulary, output)
    except SystemExit as end:
        # If torchrun started this process, the process that launched torchrun requeues the job.
        if end.code == STOPPED and not launched():
            requeue()
        raise
