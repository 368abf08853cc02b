"""Subcommands from the corpus to a trained model, and ``plan``."""

import argparse
import os
import sys
from functools import reduce
from pathlib import Path

from scsigmoid.cli.arguments import JobSettings, corpus_of, stage
from scsigmoid.config.check import SHIPPED, load, merge, parse_pairs, read_yaml
from scsigmoid.config.schema import Architecture, Size, Training, VocabularyChoice
from scsigmoid.errors import UserError


@stage("--configfile* --config* --download-rate? --price-per-gpu-hour?")
def plan(options: argparse.Namespace) -> None:
    """Print hours, GPU memory, disk space and price of a run before anything runs."""
    from scsigmoid.forecast.choices import choose
    from scsigmoid.forecast.page import DOWNLOAD_RATE, forecast
    from scsigmoid.forecast.volume import check_own_files

    base, presets = Path("config.yaml"), Path("workflow/presets")
    if not (base.is_file() and presets.is_dir()):
        print("no workflow in this folder: using the presets of the package", file=sys.stderr)
        base, presets = SHIPPED / "config.yaml", SHIPPED / "presets"
    overrides = [*map(read_yaml, options.configfile or []), parse_pairs(options.config)]
    config = load(base, presets, reduce(merge, overrides), choose)
    check_own_files(config)
    results = Path(config.results or f"results/{config.preset}")
    rate = options.download_rate or DOWNLOAD_RATE
    lines = forecast(config, results, rate, options.price_per_gpu_hour)
    try:
        print(*lines, sep="\n", flush=True)
    except BrokenPipeError:  # the reader, e.g. `head`, has ended. Do not flush the rest at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@stage("--configuration --output --summary")
def manifest(options: argparse.Namespace) -> None:
    """List the files of the corpus."""
    from scsigmoid.corpus.manifest import build_manifest

    config, downloads = corpus_of(options.configuration)
    lines = build_manifest(
        config.corpus, config.datasets, config.seed, downloads, options.output, options.summary
    )
    print(*lines, sep="\n")


@stage("--manifest? --part? --dataset? --metadata? --configuration --output")
def fetch(options: argparse.Namespace) -> None:
    """Write a part of the training cells, or an evaluation dataset."""
    from scsigmoid.config.plan import Plan
    from scsigmoid.corpus.fetch import fetch_evaluation, fetch_part
    from scsigmoid.corpus.manifest import write_evaluation_row

    config, downloads = corpus_of(options.configuration)
    shared = (config.corpus, config.seed, downloads, options.output)
    # An omitted --part or --dataset is "".
    if options.dataset and options.metadata:
        name = options.dataset
        dataset = config.datasets.get(name)
        if dataset is None:
            raise UserError(f"--dataset {name}: not one of {', '.join(config.datasets)}")
        needed_cells = Plan(config).needed_cells(name)
        row_csv = options.metadata.with_suffix(".csv")  # manifest with one row, for this dataset
        write_evaluation_row(name, config.corpus, config.datasets, config.seed, downloads, row_csv)
        fetch_evaluation(row_csv, dataset, *shared, options.metadata, needed_cells)
    elif options.part.isdecimal() and options.manifest and not options.dataset:
        fetch_part(options.manifest, int(options.part), *shared)
    else:
        raise UserError("fetch: expected --part and --manifest, or --dataset and --metadata")


@stage("--manifest --cells+ --metadata+ --output")
def lock(options: argparse.Namespace) -> None:
    """Complete the manifest with the checksums of all files."""
    from scsigmoid.corpus.manifest import write_lock

    write_lock(options.manifest, options.cells, options.metadata, options.output)


@stage("--cells --settings --configuration --output")
def statistics(options: argparse.Namespace) -> None:
    """Gather gene statistics."""
    from scsigmoid.corpus.fetch import raw_files
    from scsigmoid.tokens.statistics import gather

    settings = options.settings
    config, downloads = corpus_of(options.configuration)
    # `tokenize` reads the files again, so downloads are kept.
    with raw_files(options.cells, config.corpus, downloads, last=False):
        target_sum, minimum_genes = settings["tokens.target_sum"], settings["corpus.minimum_genes"]
        gather(options.cells, target_sum, options.output, minimum_genes)


@stage("--statistics+ --settings --output")
def vocabulary(options: argparse.Namespace) -> None:
    """Make vocabulary and medians."""
    from scsigmoid.tokens.vocabulary import build_vocabulary

    settings = options.settings
    choice = settings.section("tokens.vocabulary", VocabularyChoice)
    build_vocabulary(options.statistics, settings["tokens.minimum_cells"], options.output, choice)


@stage("--cells --metadata? --manifest? --vocabulary --settings --configuration --output")
def tokenize(options: argparse.Namespace) -> None:
    """Turn cells into ranked gene tokens."""
    from scsigmoid.corpus.fetch import raw_files
    from scsigmoid.corpus.manifest import check_not_trained_on
    from scsigmoid.tokens.make import Tokenizer
    from scsigmoid.tokens.stage import UNLIMITED, tokenize_evaluation, tokenize_part
    from scsigmoid.tokens.vocabulary import Vocabulary

    if options.metadata and not options.manifest:
        raise UserError(
            "tokenize: --metadata without --manifest; add the manifest with the training files, "
            "which is compared with the evaluation dataset"
        )
    settings = options.settings
    config, downloads = corpus_of(options.configuration)
    tokenizer = Tokenizer(
        Vocabulary.read(options.vocabulary),
        target_sum=settings["tokens.target_sum"],
        maximum_length=UNLIMITED,
        shard_cells=settings["tokens.shard_cells"],
        # Evaluation cells (with metadata) are not left out for their number of genes.
        minimum_genes=0 if options.metadata else settings["corpus.minimum_genes"],
    )
    if options.metadata:
        row_csv = options.metadata.with_suffix(".csv")  # written by `fetch`
        check_not_trained_on(row_csv, options.manifest, config.corpus, config.datasets, config.seed)
        tokenize_evaluation(options.cells, options.metadata, tokenizer, options.output)
    else:
        # No later job reads the files, so downloads may be deleted.
        with raw_files(options.cells, config.corpus, downloads, last=True):
            tokenize_part(options.cells, tokenizer, options.output)


@stage("--tokens+ --output")
def lengths(options: argparse.Namespace) -> None:
    """Count cells at each sequence length."""
    from scsigmoid.tokens.store import write_length_counts

    write_length_counts(options.tokens, options.output)


@stage("--model --tokens+ --vocabulary --settings --output --gpus --nodes")
def train(options: argparse.Namespace) -> None:
    """Train one model, or resume from its last checkpoint."""
    from scsigmoid.training.loop import train as run_training
    from scsigmoid.training.processes import STOPPED, launched, requeue
    from scsigmoid.training.run import TrainingRun

    settings, key = options.settings, f"models.{options.model}"
    values = JobSettings(settings[key])
    sections = {"size": Size, "architecture": Architecture, "training": Training}
    for name, kind in sections.items():
        values[name] = values.section(name, kind)
    settings[key] = {**values, "model": options.model}
    run = settings.section(key, TrainingRun)  # UserError if a setting is missing or unknown
    try:
        run_training(run, options.tokens, options.vocabulary, options.output)
    except SystemExit as end:
        # If torchrun started this process, the process that launched torchrun requeues the job.
        if end.code == STOPPED and not launched():
            requeue()
        raise
