"""Subcommands that turn cells into tokens."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

from scsigmoid.cli.arguments import Stages, corpus_of


def add(stages: Stages) -> None:
    """Add the stage's subcommands."""
    stages.add("statistics", statistics, "gather gene statistics").paths("cells").settings().paths(
        "configuration", required=False
    ).paths("files", required=False).output()
    stages.add("vocabulary", vocabulary, "make vocabulary and medians").paths(
        "statistics", many=True
    ).settings().output()
    stages.add("tokenize", tokenize, "turn cells into ranked gene tokens").paths("cells").paths(
        "facts", required=False
    ).paths("vocabulary").settings().paths("configuration", required=False).output()
    stages.add(
        "check-tokens", check_tokens, "check token stores, and rebuild damaged shards"
    ).paths("tokens", many=True).paths("cells", required=False).paths("vocabulary", required=False)
    stages.add("lengths", lengths, "count cells at each sequence length").paths(
        "tokens", many=True
    ).output()


def statistics(options: argparse.Namespace) -> None:
    from scsigmoid.corpus.rows import FILES, read_manifest, write_manifest
    from scsigmoid.tokens.statistics import gather

    with raw_files(options, last=False):
        target_sum, minimum = options.settings["tokens.target_sum"], minimum_genes(options)
        gather(options.cells, target_sum, options.output, minimum)
        if options.files:
            write_manifest(options.files, read_manifest(options.cells / FILES))


def vocabulary(options: argparse.Namespace) -> None:
    from scsigmoid.config.check import built
    from scsigmoid.config.schema import VocabularyChoice
    from scsigmoid.tokens.vocabulary import build_vocabulary

    settings = options.settings
    choice = built(VocabularyChoice, settings["tokens.vocabulary"])
    build_vocabulary(options.statistics, settings["tokens.minimum_cells"], options.output, choice)


def tokenize(options: argparse.Namespace) -> None:
    from scsigmoid.tokens.make import tokenize_evaluation, tokenize_part

    settings = options.settings
    how = (
        options.vocabulary,
        settings["tokens.target_sum"],
        settings["maximum_length"],
        settings["tokens.shard_cells"],
        options.output,
    )
    if options.facts:
        tokenize_evaluation(options.cells, options.facts, *how)
    else:
        with raw_files(options, last=True):
            tokenize_part(options.cells, *how, minimum_genes(options))


def minimum_genes(options: argparse.Namespace) -> int:
    """The least genes of a training cell."""
    return int(options.settings["corpus.minimum_genes"])


@contextmanager
def raw_files(options: argparse.Namespace, *, last: bool) -> Iterator[None]:
    """Have the raw files of a part, as the configuration says; without one they are there."""
    from scsigmoid.corpus import fetch as corpus

    if options.configuration is None:
        yield
        return
    config, downloads = corpus_of(options.configuration)
    manifest = options.configuration.parent / "corpus" / "manifest.csv"
    with corpus.raw_files(options.cells, manifest, config.corpus, downloads, last=last):
        yield


def check_tokens(options: argparse.Namespace) -> None:
    from scsigmoid.tokens.checking import check_tokens as check

    check(options.tokens, options.cells, options.vocabulary)


def lengths(options: argparse.Namespace) -> None:
    from scsigmoid.tokens.lengths import write_length_counts

    write_length_counts(options.tokens, options.output)
