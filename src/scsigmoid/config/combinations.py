"""Check that settings fit together: names exist, and values do not contradict each other."""

from collections.abc import Iterator, Mapping
from operator import itemgetter
from os.path import realpath
from pathlib import Path
from typing import get_args

from scsigmoid.config.initial import find_initial_problems
from scsigmoid.config.local_files import expand, files_of_datasets, problem_of
from scsigmoid.config.metrics import METRICS
from scsigmoid.config.schema import Config, Control, KernelBenchmark, Model, Training
from scsigmoid.config.validate import check_known
from scsigmoid.errors import UserError
from scsigmoid.files import check_target
from scsigmoid.kernels import BACKENDS

WIDEST_HEAD = 256  # largest head dimension of the GPU kernels of sigmoid attention
# Largest number of parts if there are fewer files, so that parts are empty. Snakemake needs about
# five seconds to plan the jobs of 1,000 parts.
MOST_PARTS = 1000


def check_combinations(config: Config, runs: Mapping[str, tuple[Model, Training]]) -> None:
    """Raise a UserError at the first contradiction.

    ``runs`` contains the model and training settings of each model and study run, by name.
    """
    check_names(config)
    if problem := next(find_problems(config, runs), None):
        raise UserError(problem)


def check_names(config: Config) -> None:
    """Raise a UserError if a setting names a size or model that does not exist."""
    sizes = config.sizes
    check_known("architecture.size", "size", [config.architecture.size], sizes)
    check_known("benchmarks.training.sizes", "size", config.benchmarks.training.sizes, sizes)
    for name, model in config.models.items():
        if model.size:
            check_known(f"models.{name}.size", "size", [model.size], sizes)
    check_known("evaluation.pair", "model", config.evaluation.pair, config.models)


def find_problems(config: Config, runs: Mapping[str, tuple[Model, Training]]) -> Iterator[str]:
    """Yield a message about each contradiction."""
    results = Path(config.results or f"results/{config.preset}")
    try:
        check_target(results)
    except UserError as error:
        yield f"results: {error}"
    for path in (results, *results.parents):
        if path.is_file():
            yield f"results: {path}: a file; move it, or name a folder"
        if path.is_symlink() and not path.exists():
            yield f"results: {path}: a link to a missing folder; make the folder, or name another"
    folders = {"results": config.results, "corpus.download.folder": config.corpus.download.folder}
    for key, folder in folders.items():
        if folder is not None and not realpath(folder).strip("/"):
            yield f"{key}: {folder}: the root of the file system; name a folder in it"
    yield from find_corpus_problems(config)
    for name in config.models:
        if name in get_args(Control):
            yield f"models.{name}: the name of a control (evaluation.scib.controls); choose another"
    for name, size in config.sizes.items():
        if size.hidden % size.heads:
            yield f"sizes.{name}: hidden {size.hidden} should be a multiple of heads {size.heads}"
        minimum = -(-size.hidden // WIDEST_HEAD)  # of heads, rounded up
        if size.heads < minimum:
            yield f"sizes.{name}: head dimension above {WIDEST_HEAD}; set at least {minimum} heads"
    for name, (model, training) in runs.items():
        yield from find_model_problems(name, model, training, config.device)
    for name, model in config.models.items():
        if model.training.get("initial"):
            yield (
                f"models.{name}.training.initial: all models that start from a file share it; set "
                "training.initial, and training.initial: null in the other models"
            )
    initial = {name: training.initial for name, (_, training) in runs.items() if training.initial}
    for name, file in initial.items():
        if name not in config.models:
            yield f"training.initial: {name} is a run of a study, which starts from random weights"
            continue
        yield from find_initial_problems(config, name, file)
    sizes_of_vocabulary = config.tokens.vocabulary.sizes or {}
    if not initial and len(sizes_of_vocabulary) == 3 and not any(sizes_of_vocabulary.values()):
        yield "tokens.vocabulary.sizes: 0 genes of all organisms; set larger numbers"
    if initial and config.tokens.vocabulary.genes:
        yield "tokens.vocabulary.genes: training.initial has its own genes; set one of them to null"
    if "initial" in config.evaluation.scib.controls and not initial:
        yield "evaluation.scib.controls: initial needs training.initial; set it, or remove initial"
    metrics = config.evaluation.scib.metrics
    needs = {name: METRICS[name].minimum_cells for name in metrics if not METRICS[name].needs_batch}
    if not needs:
        yield "evaluation.scib.metrics: has only metrics of batches; add another metric"
    elif all(needs.values()):  # a dataset may have no score at all
        name, cells = max(needs.items(), key=itemgetter(1))
        problem = f"{name} needs {cells} cells of two types; add another metric"
        yield f"evaluation.scib.metrics: {problem}"
    needing = [name for name in metrics if METRICS[name].needs_batch]
    if needing and not any(dataset.batch for dataset in config.datasets.values()):
        yield (
            f"evaluation.scib.metrics: {needing[0]} needs a dataset with a batch; set batch of a "
            "dataset, or remove the metric"
        )
    for name in config.evaluation.pair:
        if config.models[name].stress:
            yield f"evaluation.pair: {name!r} is a stress-test model; choose another"
    # MMD of the user's own cells is not computed unless a setting names a dataset.
    has_dataset = any("mmd" in dataset.compared for dataset in config.datasets.values())
    if config.corpus.source != "local" or has_dataset:
        yield from find_mmd_problems(config)
    yield from find_kernel_benchmark_problems(config.benchmarks.kernel)
    embedded = sorted({family.embedded for family in config.study.values() if family.embedded})
    if len(embedded) > 1:
        yield f"study: families embed {', '.join(embedded)}; choose one dataset for all of them"


def find_corpus_problems(config: Config) -> Iterator[str]:
    """Yield messages about corpus and evaluation datasets."""
    corpus = config.corpus
    if corpus.manifest is not None and corpus.source != "cellxgene":
        yield "corpus.manifest: needs corpus.source: cellxgene; set it, or manifest: null"
    if corpus.local and corpus.source != "local":
        yield "corpus.local: needs corpus.source: local; set it, or remove the files"
    files, cells = corpus.embedded.training_files, corpus.embedded.training_cells
    if files > cells:
        yield f"corpus.embedded.training_files: {files} for {cells} cells; set at most {cells}"
    # The number of files of CELLxGENE is not known before the manifest is made.
    if corpus.source != "cellxgene" and corpus.parts > MOST_PARTS:
        count = files + 1  # and the file of real cells
        if corpus.source == "local":
            count = sum(file.held_out is not True for file in expand(corpus.local))
        if corpus.parts > count:
            yield f"corpus.parts: {corpus.parts}, but training files: {count}; set at most {count}"
    for file in files_of_datasets(config.datasets):
        if problem := problem_of(file.path):
            yield f"datasets.{file.dataset}.file: {file.path}: {problem}"
    for name, dataset in config.datasets.items():
        if "*" in dataset.labels and not dataset.types:
            yield f"datasets.{name}.label: '*' needs {name}.types; add them, or name a column"
        if dataset.file and dataset.id:
            yield f"datasets.{name}: has a file and an id; set one of them to null"
        if corpus.source == "embedded" and dataset.id:
            problem = f"in CELLxGENE, not in the embedded corpus; remove it with {name}: null"
            yield f"datasets.{name}: {problem}, or use --config preset=demo"
        if corpus.source == "cellxgene" and not (dataset.file or dataset.id):
            yield f"datasets.{name}.id: missing; add it, or remove the dataset with {name}: null"


def find_model_problems(name: str, model: Model, training: Training, device: str) -> Iterator[str]:
    """Yield messages about a model or study run that cannot be trained."""
    backends = BACKENDS[model.attention]
    setting, kind = f"models.{name}.backend", f"{model.attention} backend"
    check_known(setting, kind, [model.backend], ["auto", *backends])
    if device == "cpu" and model.backend != "auto" and not backends[model.backend].runs_on_cpu:
        yield f"{setting}: {model.backend} needs a GPU, but device is cpu; use auto"
    if (training.validate_every == 0) != (training.validation_cells == 0):
        yield f"training.validate_every and training.validation_cells ({name}): set both or neither"
    if training.patience and not training.validate_every:
        yield f"training.patience ({name}): needs validate_every; set it, or patience: 0"
    if training.execution.micro_batch_tokens < model.context:
        setting, minimum = "training.execution.micro_batch_tokens", model.context
        yield f"{setting}: set at least {minimum}, the context of {name}"


def find_mmd_problems(config: Config) -> Iterator[str]:
    """Yield messages about ``evaluation.pair`` if MMD cannot compare its models."""
    models = [config.models[name] for name in config.evaluation.pair]
    if [model.attention for model in models] != ["sigmoid", "softmax"]:
        yield "evaluation.pair: MMD needs a sigmoid and a softmax model; list them in this order"
    if len({(model.context, model.size) for model in models}) > 1:
        yield "evaluation.pair: the two models should have the same context and size; choose others"


def find_kernel_benchmark_problems(kernel: KernelBenchmark) -> Iterator[str]:
    """Yield messages about values that do not divide ``hidden`` or ``tokens`` without remainder."""
    for key, total_key in (("head_dimensions", "hidden"), ("lengths", "tokens")):
        total = getattr(kernel, total_key)
        for value in getattr(kernel, key):
            if total % value:
                problem = f"{value} does not divide {total_key} {total}"
                yield f"benchmarks.kernel.{key}: {problem}; change one of them"
