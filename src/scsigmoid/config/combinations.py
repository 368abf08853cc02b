"""Checks settings against each other and against the file system."""

import re
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from urllib.parse import urlsplit

from scsigmoid.config.local_files import files_of_datasets, problem_of
from scsigmoid.config.schema import (
    Config,
    Corpus,
    EmbeddedCorpus,
    KernelBenchmark,
    Model,
    Training,
    VocabularyChoice,
)
from scsigmoid.config.validate import check_known, quote
from scsigmoid.errors import UserError
from scsigmoid.kernels import BACKENDS

REMOTE = ("cellxgene",)
IDENTIFIER = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# Cells times genes of a simulated file, which is drawn in memory with up to 50 bytes per number.
LARGEST_SIMULATED = 200_000_000
# Largest head dimension of the GPU kernels of sigmoid attention.
WIDEST_HEAD = 128
# Arrow counts the tokens of a file with 32 bits.
LARGEST_SHARD = 2**31 - 1


def check_combinations(config: Config, runs: Mapping[str, tuple[Model, Training]]) -> None:
    """Check settings against each other.

    Args:
        config: the configuration.
        runs: model and training of all models, including the runs of a study.

    Raises:
        UserError: naming a setting of the first contradiction.
    """
    check_names(config)
    for problem in find_problems(config, runs):
        raise UserError(problem)


def check_names(config: Config) -> None:
    """Check that sizes, models and datasets that a setting names exist."""
    for group in ("models", "datasets"):
        if not getattr(config, group):
            raise UserError(f"{group}: empty; add at least one")
    benchmarks, evaluation = config.benchmarks, config.evaluation
    sizes = {
        "architecture.size": [config.architecture.size],
        "benchmarks.training.sizes": benchmarks.training.sizes,
    }
    sizes |= {f"models.{name}.size": [m.size] for name, m in config.models.items() if m.size}
    for setting, names in sizes.items():
        check_known(setting, "size", names, config.sizes)
    check_known("evaluation.pair", "model", evaluation.pair, config.models)
    embedded = sorted({family.embedded for family in config.study.values() if family.embedded})
    if len(embedded) > 1:
        raise UserError(
            f"study: embeds {' and '.join(embedded)}, but scores one dataset; choose one of them"
        )
    for key in ("mmd", "umap"):
        names = getattr(evaluation, key).datasets or []
        check_known(f"evaluation.{key}.datasets", "dataset", names, config.datasets)


def find_problems(config: Config, runs: Mapping[str, tuple[Model, Training]]) -> Iterator[str]:
    """Yield messages about all sections."""
    if config.results is not None and Path(config.results).is_file():
        yield f"results: {config.results}: a file; name a folder"
    folders = {"results": config.results, "corpus.download.folder": config.corpus.download.folder}
    for key, folder in folders.items():
        if (folder or "").startswith("~"):  # would be a folder named '~'
            yield f"{key}: {folder}: write the path of the home folder"
    yield from find_corpus_problems(config.corpus)
    yield from find_dataset_problems(config)
    for name, size in config.sizes.items():
        if size.hidden % size.heads:
            yield f"sizes.{name}: hidden {size.hidden} is not a multiple of heads {size.heads}"
        if size.hidden // size.heads > WIDEST_HEAD:
            yield (
                f"sizes.{name}: the head dimension is {size.hidden // size.heads}, the largest is "
                f"{WIDEST_HEAD}; set at least {-(-size.hidden // WIDEST_HEAD)} heads"
            )
    for name, (model, training) in runs.items():
        yield from find_model_problems(name, model, training, config.device)
    yield from find_vocabulary_problems(config.tokens.vocabulary)
    if config.evaluation.embeddings.pooling == "cls" and not config.tokens.cls:
        yield (
            "evaluation.embeddings.pooling: 'cls' needs the token <cls>; set tokens.cls: true, or "
            "pooling: mean"
        )
    yield from find_pair_problems(config)
    yield from find_kernel_benchmark_problems(config.benchmarks.kernel)


def find_corpus_problems(corpus: Corpus) -> Iterator[str]:
    """Yield messages about settings of the corpus that are impossible or have no effect."""
    try:
        date.fromisoformat(corpus.snapshot)
    except ValueError:
        yield f"corpus.snapshot: should be a date such as 2024-06-11; found {corpus.snapshot!r}"
    if corpus.manifest is not None and not Path(corpus.manifest).is_file():
        yield f"corpus.manifest: {corpus.manifest}: no such file; correct the path"
    if corpus.manifest is not None and corpus.source not in REMOTE:
        yield (
            f"corpus.manifest: a lock file needs corpus.source: cellxgene, not {corpus.source!r}; "
            "change one of them"
        )
    if corpus.local and corpus.source != "local":
        yield (
            f"corpus.local: lists files, but corpus.source is {corpus.source!r}; set "
            "corpus.source: local"
        )
    if corpus.source in REMOTE:
        try:
            host = urlsplit(corpus.api).hostname
        except ValueError:
            host = None
        if host not in corpus.hosts:
            yield (
                f"corpus.api: {corpus.api!r} is not at one of corpus.hosts; give an address like "
                "https://api.cellxgene.cziscience.com/curation/v1"
            )
        for identifier in corpus.leave_out:
            if not IDENTIFIER.fullmatch(identifier):
                yield f"corpus.leave_out: {quote(identifier)} is not a CELLxGENE id; correct it"
    if corpus.source == "embedded":
        yield from find_simulated_problems(corpus.embedded)


def find_simulated_problems(sizes: EmbeddedCorpus) -> Iterator[str]:
    """Yield messages about simulated files without cells, or larger than memory."""
    if sizes.training_files > sizes.training_cells:
        yield (
            f"corpus.embedded.training_files: {sizes.training_files} files of "
            f"{sizes.training_cells} cells; set fewer files or more training_cells"
        )
    for key, count in {
        "training_cells": -(-sizes.training_cells // sizes.training_files),  # of the largest file
        "evaluation_cells": sizes.evaluation_cells,
        "programmes": sizes.programmes,
        "donors": sizes.donors,
    }.items():
        if count * sizes.genes > LARGEST_SIMULATED:
            yield (
                f"corpus.embedded.{key}: {count} (per file) times {sizes.genes} genes do not fit "
                f"in memory; lower it to {LARGEST_SIMULATED // sizes.genes} or less"
            )


def find_dataset_problems(config: Config) -> Iterator[str]:
    """Yield messages about evaluation datasets without cells or labels."""
    for file in files_of_datasets(config.datasets):
        if problem := problem_of(file.path):
            yield f"datasets.{file.dataset}.file: {file.path}: {problem}"
    for name, dataset in config.datasets.items():
        if "*" in dataset.labels and not dataset.types:
            yield (
                f"datasets.{name}.label: '*' needs cell types in datasets.{name}.types; add them, "
                "or name a column"
            )
        if dataset.file and dataset.id:
            yield f"datasets.{name}: has both a file and an id; remove one of them"
        if config.corpus.source not in REMOTE or dataset.file:
            continue
        if dataset.id is None:
            yield (
                f"datasets.{name}.id: missing; add the CELLxGENE id, or remove the dataset with "
                f"{name}: null"
            )
        elif not IDENTIFIER.fullmatch(dataset.id):
            yield f"datasets.{name}.id: {quote(dataset.id)} is not a CELLxGENE id; correct it"


def find_model_problems(name: str, model: Model, training: Training, device: str) -> Iterator[str]:
    """Yield messages about a model that cannot be trained."""
    backends = BACKENDS[model.attention]
    if model.backend not in ("auto", *backends):
        yield (
            f"models.{name}.backend: {model.backend!r} does not compute {model.attention} "
            f"attention; expected one of auto, {', '.join(backends)}"
        )
    elif device == "cpu" and model.backend != "auto" and not backends[model.backend].runs_on_cpu:
        yield (
            f"models.{name}.backend: {model.backend!r} needs a GPU, but device is 'cpu'; use "
            "'auto' or 'reference'"
        )
    if len(training.betas) != 2:
        yield f"training.betas: should be two numbers; found {len(training.betas)}"
    if (training.validate_every == 0) != (training.validation_cells == 0):
        yield (
            "training.validate_every and training.validation_cells: one is 0 and the other "
            f"is not (models.{name}); set both or neither"
        )
    if training.patience and not training.validate_every:
        yield (
            f"training.patience: {training.patience} without validation losses (models.{name}); "
            "set validate_every and validation_cells"
        )
    if training.micro_batch_tokens < model.context:
        yield (
            f"training.micro_batch_tokens: {training.micro_batch_tokens} is less than "
            f"the context of models.{name} ({model.context}); raise it to at least that"
        )


def check_shards(shard_cells: int, longest: int) -> None:
    """Check that a shard of the token store fits one Arrow file.

    Args:
        shard_cells: cells of a shard.
        longest: largest number of gene tokens of a cell.

    Raises:
        UserError: if it does not.
    """
    if shard_cells * longest > LARGEST_SHARD:
        raise UserError(
            f"tokens.shard_cells: {shard_cells} cells of {longest} tokens do not fit one Arrow "
            f"file; lower it to {LARGEST_SHARD // longest} or less"
        )


def find_vocabulary_problems(choice: VocabularyChoice) -> Iterator[str]:
    """Yield messages about files that do not exist or have no effect."""
    if choice.genes is not None and choice.biotypes is not None:
        yield (
            "tokens.vocabulary.genes: the list excludes a selection by biotypes; remove one of them"
        )
    if (choice.biotypes is None) != (not choice.annotation):
        yield (
            "tokens.vocabulary: biotypes need an annotation; set both biotypes and annotation, or "
            "neither"
        )
    listed = [] if choice.genes is None else [choice.genes]
    for key, paths in (("genes", listed), ("annotation", choice.annotation)):
        for path in paths:
            if not Path(path).is_file():
                yield f"tokens.vocabulary.{key}: {path}: no such file; correct the path"


def find_pair_problems(config: Config) -> Iterator[str]:
    """Yield messages about models that cannot be compared."""
    evaluation, models = config.evaluation, config.models
    for name in evaluation.pair:
        if models[name].stress:
            yield f"evaluation.pair: {name!r} is a stress-test model; choose another"
    if config.corpus.source != "local" or evaluation.mmd.datasets:
        yield from find_mmd_problems(config)


def find_mmd_problems(config: Config) -> Iterator[str]:
    """Yield messages about models whose MMD cannot be compared."""
    compared = [config.models[name] for name in config.evaluation.pair]
    if [model.attention for model in compared] != ["sigmoid", "softmax"]:
        yield "evaluation.pair: MMD needs a sigmoid model, then a softmax model; name such models"
    if len({model.context for model in compared}) > 1:
        yield "evaluation.pair: the two models should have the same context; choose others"
    if len({model.size for model in compared}) > 1:
        yield "evaluation.pair: the two models should have the same size; choose others"


def find_kernel_benchmark_problems(kernel: KernelBenchmark) -> Iterator[str]:
    """Yield messages about shapes that do not divide."""
    for key, values, whole in (
        ("head_dimensions", kernel.head_dimensions, "hidden"),
        ("lengths", kernel.lengths, "tokens"),
    ):
        for value in values:
            if getattr(kernel, whole) % value:
                yield (
                    f"benchmarks.kernel.{key}: {value} does not divide {whole} "
                    f"{getattr(kernel, whole)}"
                )
