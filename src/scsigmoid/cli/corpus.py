"""Subcommands that bring cells to disk."""

import argparse

from scsigmoid.cli.arguments import Stages, corpus_of
from scsigmoid.errors import UserError


def add(stages: Stages) -> None:
    """Add the stage's subcommands."""
    stages.add("manifest", manifest, "list the corpus files and lock them").paths(
        "configuration"
    ).output().paths("account")
    stages.add(
        "fetch", fetch, "bring a part of the corpus, or an evaluation dataset, to disk"
    ).paths("manifest").text("part", required=False).text("dataset", required=False).paths(
        "facts", required=False
    ).paths("configuration").output()
    stages.add("lock", lock, "complete the manifest with the hashes of all files").paths(
        "manifest"
    ).paths("files", many=True).paths("facts", many=True).output()


def manifest(options: argparse.Namespace) -> None:
    from scsigmoid.corpus.manifest import build_manifest

    config, downloads = corpus_of(options.configuration)
    lines = build_manifest(
        config.corpus, config.datasets, config.seed, downloads, options.output, options.account
    )
    for line in lines:
        print(line)


def fetch(options: argparse.Namespace) -> None:
    from scsigmoid.corpus.fetch import fetch_evaluation, fetch_part

    if not options.dataset and not options.part.isdigit():
        raise UserError("fetch: expected --part with a number, or --dataset")
    config, downloads = corpus_of(options.configuration)
    how = (config.corpus, config.seed, downloads, options.output)
    if options.dataset:
        wanted = config.datasets[options.dataset]
        fetch_evaluation(options.manifest, options.dataset, wanted, *how, options.facts)
    else:
        fetch_part(options.manifest, int(options.part), *how)


def lock(options: argparse.Namespace) -> None:
    from scsigmoid.corpus.lock import write_lock

    write_lock(options.manifest, options.files, options.facts, options.output)
