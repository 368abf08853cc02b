"""Checks settings against each other."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from scsigmoid.config.local_files import files_of_datasets, problem_of
from scsigmoid.config.schema import Config, KernelBenchmark, Model, Training, VocabularyChoice
from scsigmoid.config.validate import check_known
from scsigmoid.errors import UserError
from scsigmoid.kernels import BACKENDS

# Largest head dimension of the GPU kernels of sigmoid attention.
WIDEST_HEAD = 128


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
    sizes = {
        "architecture.size": [config.architecture.size],
        "benchmarks.training.sizes": config.benchmarks.training.sizes,
    }
    sizes |= {f"models.{name}.size": [m.size] for name, m in config.models.items() if m.size}
    for setting, names in sizes.items():
        check_known(setting, "size", names, config.sizes)
    evaluation = config.evaluation
    check_known("evaluation.pair", "model", evaluation.pair, config.models)
    for key in ("mmd", "umap"):
        names = getattr(evaluation, key).datasets or []
        check_known(f"evaluation.{key}.datasets", "dataset", names, config.datasets)
    embedded = sorted({family.embedded for family in config.study.values() if family.embedded})
    if len(embedded) > 1:
        raise UserError(
            f"study: embeds {' and '.join(embedded)}, but scores one dataset; choose one of them"
        )


def find_problems(config: Config, runs: Mapping[str, tuple[Model, Training]]) -> Iterator[str]:
    """Yield messages about all sections."""
    if config.results is not None and Path(config.results).is_file():
        yield f"results: {config.results}: a file; name a folder"
    if config.corpus.manifest is not None and config.corpus.source != "cellxgene":
        yield (
            f"corpus.manifest: a lock file needs corpus.source: cellxgene, not "
            f"{config.corpus.source!r}; change one of them"
        )
    if config.corpus.local and config.corpus.source != "local":
        yield (
            f"corpus.local: lists files, but corpus.source is {config.corpus.source!r}; set "
            "corpus.source: local"
        )
    yield from find_dataset_problems(config)
    for name, size in config.sizes.items():
        if size.hidden % size.heads:
            yield f"sizes.{name}: hidden {size.hidden} should be a multiple of heads {size.heads}"
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
    for name in config.evaluation.pair:
        if config.models[name].stress:
            yield f"evaluation.pair: {name!r} is a stress-test model; choose another"
    if config.corpus.source != "local" or config.evaluation.mmd.datasets:
        yield from find_mmd_problems(config)
    yield from find_kernel_benchmark_problems(config.benchmarks.kernel)


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
            yield f"datasets.{name}: has a file and an id; set one of them to null"
        if config.corpus.source == "cellxgene" and not (dataset.file or dataset.id):
            yield (
                f"datasets.{name}.id: missing; add the CELLxGENE id, or remove the dataset with "
                f"{name}: null"
            )


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


def find_vocabulary_problems(choice: VocabularyChoice) -> Iterator[str]:
    """Yield messages about selections of genes that exclude each other."""
    if choice.genes is not None and choice.biotypes is not None:
        yield (
            "tokens.vocabulary.genes: the list excludes a selection by biotypes; remove one of them"
        )
    if (choice.biotypes is None) != (not choice.annotation):
        yield (
            "tokens.vocabulary: biotypes need an annotation; set both biotypes and annotation, or "
            "neither"
        )


def find_mmd_problems(config: Config) -> Iterator[str]:
    """Yield messages about models whose MMD cannot be compared."""
    compared = [config.models[name] for name in config.evaluation.pair]
    if [model.attention for model in compared] != ["sigmoid", "softmax"]:
        yield "evaluation.pair: MMD needs a sigmoid and a softmax model; list them in this order"
    if len({(model.context, model.size) for model in compared}) > 1:
        yield "evaluation.pair: the two models should have the same context and size; choose others"


def find_kernel_benchmark_problems(kernel: KernelBenchmark) -> Iterator[str]:
    """Yield messages about head dimensions and lengths that do not divide their total."""
    for key, values, total in (
        ("head_dimensions", kernel.head_dimensions, "hidden"),
        ("lengths", kernel.lengths, "tokens"),
    ):
        for value in values:
            if getattr(kernel, total) % value:
                yield (
                    f"benchmarks.kernel.{key}: {value} does not divide {total} "
                    f"{getattr(kernel, total)}; choose a divisor"
                )
