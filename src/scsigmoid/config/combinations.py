"""Refuses settings that are valid alone but not together."""

from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from scsigmoid.config.corpus import check_corpus, check_identifiers
from scsigmoid.config.schema import (
    Config,
    Model,
    SigmoidBackend,
    SoftmaxBackend,
    Training,
    VocabularyChoice,
)
from scsigmoid.config.words import nearest
from scsigmoid.errors import UserError

CPU_BACKENDS = ("auto", "reference", "sdpa")
# The widest head that the GPU's kernels of sigmoid attention take.
WIDEST_HEAD = 128
# Arrow counts the tokens of a file in 32 bits.
LARGEST_SHARD = 2**31 - 1


def check_combinations(config: Config, runs: Mapping[str, tuple[Model, Training]]) -> None:
    """Check settings against each other.

    Args:
        config: the configuration.
        runs: all models, those of a study too, and how each is trained.

    Raises:
        UserError: for the first contradiction, naming a setting that is part of it.
    """
    if config.results is not None and Path(config.results).is_file():
        raise UserError(f"results: {config.results}: a file; name a folder")
    for group in ("models", "datasets"):
        if not getattr(config, group):
            raise UserError(f"{group}: empty; name at least one")
    for name, dataset in config.datasets.items():
        if "*" in dataset.labels and not dataset.types:
            raise UserError(
                f"datasets.{name}.label: '*' takes the column with most of the cell types in "
                f"datasets.{name}.types, and there are none; name columns"
            )
    check_corpus(config.corpus)
    if config.corpus.source in ("cellxgene", "census"):
        check_identifiers(config.datasets)
    check_sizes(config)
    check_models(config, runs)
    check_shards(config.tokens.shard_cells, longest_cell(config))
    check_vocabulary(config.tokens.vocabulary)
    check_evaluation(config)
    check_benchmarks(config)


def check_sizes(config: Config) -> None:
    """Every size is a possible encoder and every size that is named exists."""
    for name, size in config.sizes.items():
        if size.hidden % size.heads:
            raise UserError(
                f"sizes.{name}: hidden {size.hidden} is not a multiple of heads {size.heads}"
            )
        if size.hidden // size.heads > WIDEST_HEAD:
            raise UserError(
                f"sizes.{name}: {size.heads} heads of {size.hidden // size.heads}; expected heads "
                f"of at most {WIDEST_HEAD}, that is at least {-(-size.hidden // WIDEST_HEAD)} of "
                "them"
            )
    for key, names in {
        "architecture.size": [config.architecture.size],
        "benchmarks.throughput.sizes": config.benchmarks.throughput.sizes,
        "benchmarks.training.size": [config.benchmarks.training.size],
    }.items():
        for name in names:
            if name not in config.sizes:
                raise UserError(f"{key}: unknown size {name!r}{nearest(name, config.sizes)}")


def check_models(config: Config, runs: Mapping[str, tuple[Model, Training]]) -> None:
    """Every model can be trained as configured."""
    for name, (model, training) in runs.items():
        backends = get_args(SigmoidBackend if model.attention == "sigmoid" else SoftmaxBackend)
        if model.backend not in backends:
            raise UserError(
                f"models.{name}.backend: {model.backend!r} does not compute {model.attention} "
                f"attention; expected one of {', '.join(backends)}"
            )
        if config.device == "cpu" and model.backend not in CPU_BACKENDS:
            raise UserError(
                f"models.{name}.backend: {model.backend!r} needs a GPU and device is 'cpu'; take "
                "'auto' or 'reference'"
            )
        if len(training.betas) != 2:
            raise UserError(f"training.betas: expected two numbers, found {len(training.betas)}")
        if (training.validate_every == 0) != (training.validation_cells == 0):
            raise UserError(
                "training.validate_every and training.validation_cells: one is 0 and the other "
                f"is not (models.{name}); set both or neither"
            )
        if training.micro_batch_tokens < model.context:
            raise UserError(
                f"training.micro_batch_tokens: {training.micro_batch_tokens} is less than "
                f"the context of models.{name} ({model.context}); raise it to at least that"
            )


def longest_cell(config: Config) -> int:
    """Gene tokens that the longest context has room for; ``<cls>`` takes one place."""
    contexts = [model.context for model in config.models.values()]
    contexts += [context for family in config.study.values() for context in family.context]
    return max(contexts) - config.tokens.cls


def check_shards(shard_cells: int, longest: int) -> None:
    """Refuse shards of the token store that one Arrow file cannot hold.

    Args:
        shard_cells: cells of a shard.
        longest: gene tokens of a cell at most.
    """
    if shard_cells * longest > LARGEST_SHARD:
        raise UserError(
            f"tokens.shard_cells: {shard_cells} cells of {longest} tokens do not fit one Arrow "
            f"file; lower it to {LARGEST_SHARD // longest} or less"
        )


def check_vocabulary(choice: VocabularyChoice) -> None:
    """The files are there, and are looked at."""
    if choice.genes is not None and choice.biotypes is not None:
        raise UserError(
            "tokens.vocabulary.genes: the list decides alone, and biotypes are given; remove one"
        )
    if (choice.biotypes is None) != (not choice.annotation):
        raise UserError(
            "tokens.vocabulary: biotypes are told by an annotation; set both biotypes and "
            "annotation, or neither"
        )
    listed = [] if choice.genes is None else [choice.genes]
    for key, paths in (("genes", listed), ("annotation", choice.annotation)):
        for path in paths:
            if not Path(path).is_file():
                raise UserError(f"tokens.vocabulary.{key}: {path}: no such file; correct the path")


def check_evaluation(config: Config) -> None:
    """Everything that evaluation names exists."""
    if config.evaluation.embeddings.pooling == "cls" and not config.tokens.cls:
        raise UserError(
            "evaluation.embeddings.pooling: 'cls' takes the embedding from <cls>, which "
            "tokens.cls: false leaves out; set pooling: mean or tokens.cls: true"
        )
    pair = config.evaluation.pair
    if len(pair) != 2:
        raise UserError("evaluation.pair: expected two models, sigmoid first")
    for name in pair:
        if name not in config.models:
            raise UserError(
                f"evaluation.pair: unknown model {name!r}{nearest(name, config.models)}"
            )
        if config.models[name].stress:
            raise UserError(f"evaluation.pair: {name!r} is a stress-test model; take another")
    arms = [config.models[name] for name in pair]
    if [arm.attention for arm in arms] != ["sigmoid", "softmax"]:
        raise UserError("evaluation.pair: expected a sigmoid model, then a softmax model")
    if arms[0].context != arms[1].context:
        raise UserError("evaluation.pair: the two models differ in their context; take a pair")
    for key in ("mmd", "umap"):
        for name in getattr(config.evaluation, key).datasets or ():
            if name not in config.datasets:
                raise UserError(
                    f"evaluation.{key}.datasets: unknown dataset {name!r}"
                    f"{nearest(name, config.datasets)}"
                )


def check_benchmarks(config: Config) -> None:
    """Shapes divide as they must, and throughput is read within its steps."""
    kernel, throughput = config.benchmarks.kernel, config.benchmarks.throughput
    for dimension in kernel.head_dimensions:
        if kernel.hidden % dimension:
            raise UserError(
                f"benchmarks.kernel.head_dimensions: {dimension} does not divide hidden "
                f"{kernel.hidden}"
            )
    for length in kernel.lengths:
        if kernel.tokens % length:
            raise UserError(
                f"benchmarks.kernel.lengths: {length} does not divide tokens {kernel.tokens}"
            )
    if throughput.read_every > throughput.steps:
        raise UserError(
            f"benchmarks.throughput.read_every: {throughput.read_every} is more than steps "
            f"({throughput.steps}); lower it"
        )
