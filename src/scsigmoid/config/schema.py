"""Every setting of the experiment, with its type, limits and meaning.

Frozen dataclasses that need nothing but Python: most jobs build theirs from JSON, also on a GPU
image without pydantic, whose import takes longer than some jobs.  ``validate`` has pydantic check
them.  No default is given here, ``config.yaml`` states every value once.  The paper's sections and
tables are named where a value comes from them.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar

from scsigmoid.config.metrics import METRICS

T = TypeVar("T")


@dataclass(frozen=True)
class Limit:
    """What a value must be beyond its type; stands in ``Annotated``, for pydantic.

    Attributes:
        expected: the limit, for the message.
        admits: whether a value of the type is within it.
    """

    expected: str
    admits: Callable[[Any], bool] = lambda value: True

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        """The validator: pydantic's own of the type, then the limit."""
        from pydantic_core.core_schema import no_info_wrap_validator_function

        def check(value: Any, typed: Callable[[Any], Any]) -> Any:
            result = typed(value)
            if isinstance(value, bool):  # pydantic takes true for 1
                raise ValueError("a number")
            if not self.admits(result):
                raise ValueError(self.expected)
            return result

        return no_info_wrap_validator_function(check, handler(source))


def at_least(least: float, most: float | None = None) -> Limit:
    """Bounds of a number, both included."""
    if most is None:
        return Limit(f"at least {least}", lambda value: bool(value >= least))
    return Limit(f"at least {least} and at most {most}", lambda value: bool(least <= value <= most))


def form(pattern: str, expected: str) -> Limit:
    """A regular expression for the whole of a text."""
    return Limit(expected, lambda value: re.fullmatch(pattern, value) is not None)


Whole = Annotated[int, Limit("a whole number")]
Count = Annotated[int, at_least(1)]
CountOrZero = Annotated[int, at_least(0)]
Context = Annotated[int, at_least(8)]
Positive = Annotated[float, Limit("more than 0", lambda value: value > 0)]
NotNegative = Annotated[float, at_least(0)]
Share = Annotated[float, Limit("more than 0 and less than 1", lambda value: 0 < value < 1)]
ShareOrZero = Annotated[float, Limit("at least 0 and less than 1", lambda value: 0 <= value < 1)]
Text = Annotated[str, form(r"[^\x00-\x20\x7f][^\x00-\x1f\x7f]*", "text, on one line")]
Several = Annotated[
    list[T],
    Limit("at least one entry, and none twice", lambda value: 1 <= len(value) == len(set(value))),
]
AnyNumber = Annotated[list[T], Limit("no entry twice", lambda value: len(value) == len(set(value)))]

Attention = Literal["sigmoid", "softmax"]
Variant = Literal["qk_norm", "centred_values", "hybrid_norm"]
Device = Literal["auto", "cpu", "cuda"]
Pooling = Literal["mean", "cls"]
if TYPE_CHECKING:
    Metric = str
else:
    Metric = Literal[tuple(METRICS)]
# They become names of files.
Name = Annotated[
    str, form(r"[a-z0-9][a-z0-9_]{0,79}", "a name of at most 80 lower-case letters, digits and '_'")
]
# Columns of `obs` that hold the cell type, tried in this order, and rules that join columns, as
# "{age_group} {cell_type}"; "*" stands for all columns of text.
Label = Text | Several[Text]
Colour = Annotated[str, form(r"#[0-9A-Fa-f]{6}", "a colour as '#0072B2'")]


class Settings:
    """Settings that belong together; pydantic refuses others, and numbers that are not finite."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "allow_inf_nan": False}


@dataclass(frozen=True, kw_only=True)
class LocalFiles(Settings):
    """The user's own files (one entry of ``corpus.local``): h5ad, or 10x ``.h5`` and folders.

    Attributes:
        files: path or glob, relative to the working directory.
        label: which columns of ``obs`` hold the cell type (see ``Label``).
        held_out: cells kept out of training and used for evaluation: ``true`` (all), ``false``
            (none), a fraction between 0 and 1 (a seeded choice of cells), or ``column=value``
            (the cells whose ``obs`` column has that value).
        name: name of the evaluation dataset; the file's stem where none is given.
        layer: layer that holds the raw counts; without one ``raw.X``, else ``X``.
        genes: column of ``var`` with the gene ids; without one its index or, where that has no
            Ensembl ids and one column has, that column.
    """

    files: Text
    label: Label = "cell_type"
    held_out: bool | float | str = False
    name: Text | None = None
    layer: Text | None = None
    genes: Text | None = None


@dataclass(frozen=True, kw_only=True)
class EmbeddedCorpus(Settings):
    """Sizes of the corpus that ships with the project: 700 real blood cells and simulated cells.

    Attributes:
        training_cells: simulated training cells, spread over ``training_files`` files.
        training_files: simulated training files.
        evaluation_cells: cells of each of the six simulated evaluation datasets.
        genes: genes of the simulated genome.
        programmes: gene programmes; a cell type is a sparse mixture of them.
        regulators: regulators of each gene (several act at once: section 1 of the paper).
        median_length: median number of expressed genes per cell.
        donors: donors per dataset.
    """

    training_cells: Count
    training_files: Count
    evaluation_cells: Count
    genes: Count
    programmes: Count
    regulators: Count
    median_length: Count
    donors: Count


@dataclass(frozen=True, kw_only=True)
class Download(Settings):
    """How files are downloaded; none of it changes a result.

    Attributes:
        folder: where downloads are kept, one file a dataset version; presets may share it.
            ``null``: ``corpus/downloads`` below the results.
        keep_files: whether raw files stay.  If not, those of training are deleted once their tokens
            are written, also if presets share the folder.
        connections: files, or questions to the service, that one job has in flight.
        attempts: tries without progress before a job gives up.
        timeout: seconds without a byte after which a connection counts as broken.
        longest_pause: seconds between two tries at most, whatever the server asks for.
    """

    folder: Text | None
    keep_files: bool
    connections: Annotated[int, at_least(1, 64)]
    attempts: Count
    timeout: Positive
    longest_pause: NotNegative


@dataclass(frozen=True, kw_only=True)
class Corpus(Settings):
    """Where cells come from.

    Attributes:
        source: ``embedded`` (ships with the project, offline), ``local`` (own files),
            ``cellxgene`` (Discover).
        parts: number of jobs that the training files are spread over; they have five digits.
        snapshot: CELLxGENE's state as of this date (the paper: 2024-06-11).
        organisms: training files hold no other organism.
        assays: training files hold no other assay; ``null`` keeps all.
        minimum_genes: training cells that express fewer genes of their file are left out.
        leave_out: CELLxGENE ids of datasets, or of dataset versions, that are not trained on.
        manifest: a lock file written by an earlier run; ``null`` asks the service.
        api: address of the Discover curation API.
        hosts: hosts that files may be downloaded from.
        maximum_file_gb: training files above this size are left out; ``null`` keeps all.
        maximum_cells: training files are chosen, by seed, until they hold this many cells; ``null``
            keeps all.
        maximum_gb: likewise, for the gigabytes (1e9 bytes) of all training files together.
        download: how files are downloaded.
        local: the user's own files.
        embedded: sizes of the embedded corpus.
    """

    source: Literal["embedded", "local", "cellxgene"]
    parts: Annotated[int, at_least(1, 100_000)]
    snapshot: str
    organisms: Several[Text]
    assays: Several[Text] | None
    minimum_genes: CountOrZero
    leave_out: AnyNumber[str]
    manifest: Text | None
    api: Text
    hosts: Several[Annotated[str, form(r"[a-z0-9.-]+|::1", "the name of a host, without https://")]]
    maximum_file_gb: Positive | None
    maximum_cells: Count | None
    maximum_gb: Positive | None
    download: Download
    local: list[LocalFiles]
    embedded: EmbeddedCorpus


@dataclass(frozen=True, kw_only=True)
class Dataset(Settings):
    """An evaluation dataset (tab:eval_datasets).

    Attributes:
        title: name in tables and figures.
        id: CELLxGENE id.
        label: which columns of ``obs`` hold the cell type (see ``Label``): the first that the file
            has, or where there are ``types`` the one with most of them.
        types: cell types that must be among the labels, but for case, the order of words and
            "cell"; in the order of the MMD table.
        description: one sentence.
        compared: metrics that are computed on this dataset unless ``evaluation.<metric>.datasets``
            names others.  If no dataset has a metric here, all datasets have it.
    """

    title: Annotated[str, form(r"\s*\S[\s\S]*", "a title")]
    id: str | None = None
    label: Label = "cell_type"
    types: AnyNumber[Text] = field(default_factory=list)
    description: str = ""
    compared: AnyNumber[Literal["mmd", "umap"]] = field(default_factory=list)

    @property
    def labels(self) -> list[str]:
        """The entries of ``label``."""
        return [self.label] if isinstance(self.label, str) else self.label


@dataclass(frozen=True, kw_only=True)
class VocabularyChoice(Settings):
    """Which genes have tokens: those of a list, or those that meet the rest.

    Attributes:
        genes: file with a gene id a line.  All of them have tokens, with a median of 1 where no
            training cell expresses them; neither the rest nor ``minimum_cells`` is looked at.
            ``null`` for none.
        biotypes: of the genes, e.g. ``protein_coding``; ``null`` for all.
        annotation: GTF files that tell the biotypes, as GENCODE offers them, one for each organism.
        sizes: for an organism, how many genes at most: those of most training cells; ``null`` for
            no limit.
    """

    genes: Text | None
    biotypes: Several[Text] | None
    annotation: AnyNumber[Text]
    sizes: dict[Literal["Homo sapiens", "Mus musculus"], Count] | None


@dataclass(frozen=True, kw_only=True)
class Tokens(Settings):
    """How a cell becomes a sequence of gene tokens.

    Attributes:
        target_sum: counts of a cell are scaled to this total.
        cls: whether ``<cls>`` is in front of a cell's genes and takes a place of the context.
        minimum_cells: a gene enters the vocabulary when this many training cells express it.
        vocabulary: which genes enter it, beyond that.
        shard_cells: cells per file of the token store.
    """

    target_sum: Positive
    cls: bool
    minimum_cells: Count
    vocabulary: VocabularyChoice
    shard_cells: Count


@dataclass(frozen=True, kw_only=True)
class Size(Settings):
    """Dimensions of an encoder (tab:model_arch; the larger ones are inferred).

    Attributes:
        layers: transformer blocks.
        hidden: width of the residual stream.
        heads: attention heads; ``hidden / heads`` is the head dimension.
        feed_forward: width of the feed-forward layer.
    """

    layers: Count
    hidden: Count
    heads: Count
    feed_forward: Count


@dataclass(frozen=True, kw_only=True)
class Architecture(Settings):
    """What all models share (tab:model_arch).

    Attributes:
        size: name of an entry of ``sizes``.
        dropout: share of activations dropped.
        layer_norm_epsilon: epsilon of the layer normalisations.
        initializer_range: standard deviation of the initial weights.
        variants: changes to attention that the paper does not have (``model.encoder`` says which).
    """

    size: str
    dropout: ShareOrZero
    layer_norm_epsilon: Positive
    initializer_range: Positive
    variants: AnyNumber[Variant] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Training(Settings):
    """How a model is trained (tab:model_arch, tab:performance_hyperparams).

    Attributes:
        steps: optimiser steps.
        global_batch: cells per optimiser step, whatever the hardware.
        micro_batch_tokens: tokens per forward pass at most; bounds the memory.
        learning_rate: of AdamW, constant after the warm-up.
        warmup_steps: steps of linear warm-up.
        weight_decay: of AdamW.
        betas: of AdamW.
        epsilon: of AdamW.
        gradient: what is differentiated: ``mean``, the mean loss over the masked genes of a global
            batch, or ``sum``, the sum over its cells of each cell's mean loss.
        clipping: largest L2 norm of that gradient; ``null`` for none.
        mask_fraction: share of a cell's gene tokens that is masked.
        mask_replacement: ``mask`` (all become [MASK]) or ``bert`` (80 % [MASK], 10 % random, 10 %
            kept).
        log_every: steps between rows of the journal.
        validate_every: steps between two losses on the validation cells; 0 for none.
        validation_cells: training cells that are kept out of training for that; the same ones
            whatever the seed.
        checkpoint_every: steps between checkpoints.
        keep_checkpoints: newest checkpoints kept.
        snapshots: steps after which a copy of the model is kept; those not below ``steps`` are
            ignored.
        threads: CPU threads; fixed, because sums depend on it.
        workers: threads that prepare batches ahead; 0 prepares each when it is needed.
        deterministic: the same bits on a GPU each time, at some cost; a CPU's always are.
    """

    steps: Count
    global_batch: Count
    micro_batch_tokens: Count
    learning_rate: Positive
    warmup_steps: CountOrZero
    weight_decay: NotNegative
    betas: list[ShareOrZero]
    epsilon: Positive
    gradient: Literal["mean", "sum"]
    clipping: Positive | None
    mask_fraction: Share
    mask_replacement: Literal["mask", "bert"]
    log_every: Count
    validate_every: CountOrZero
    validation_cells: CountOrZero
    checkpoint_every: Count
    keep_checkpoints: Count
    threads: Annotated[int, at_least(1, 1024)]
    workers: Annotated[int, at_least(0, 1024)]
    deterministic: bool
    snapshots: AnyNumber[Count] = field(default_factory=list)

    @property
    def kept(self) -> dict[int, str]:
        """Suffix of the file name by step, for each snapshot, ascending: ``-step-00002000``."""
        return {step: f"-step-{step:08d}" for step in sorted(self.snapshots) if step < self.steps}


@dataclass(frozen=True, kw_only=True)
class Model(Settings):
    """One trained model: an attention mechanism at a context length.

    Attributes:
        attention: ``sigmoid`` or ``softmax``.
        context: longest sequence in tokens.
        stress: whether it belongs to the stress test; such models are not evaluated.
        backend: one of :data:`scsigmoid.kernels.BACKENDS`; ``auto`` takes the fastest that the
            device supports.
        training: settings of ``training`` that differ for this model.
    """

    attention: Attention
    context: Context
    stress: bool = False
    backend: str = "auto"
    training: dict[str, Any] = field(default_factory=dict)


Purpose = Literal["rates", "seeds", "variants", "stability", "sizes"]


@dataclass(frozen=True, kw_only=True)
class StudyFamily(Settings):
    """Runs of a study: every combination of the values listed.

    Attributes:
        purpose: tables and figures that show these runs: ``rates`` (the best learning rate),
            ``seeds`` (the difference between the arms), ``variants`` (of attention, compared with
            ``seeds``), ``stability`` (collapsed runs by learning rate; the figure shows the first
            such family) or ``sizes`` (of the model).  Without one, the runs are in ``runs.csv``
            and ``curves.csv`` only.
        attention: of the models.
        context: context lengths of the models.
        size: names of ``sizes``.
        seed: of weights, order, masks and dropout; the cells stay those of the configuration.
        variants: lists of ``architecture.variants``, one after the other.
        training: settings of ``training`` that differ; those with a list are varied, a mapping
            has a value for each attention.
        embedded: evaluation dataset whose cells these runs embed, to be scored, also after the
            steps of ``training.snapshots``.
    """

    purpose: Purpose | None = None

    attention: Several[Attention]
    context: Several[Context]
    size: Several[str]
    seed: Several[Whole]
    variants: list[AnyNumber[Variant]] = field(default_factory=lambda: [[]])
    training: dict[str, Any] = field(default_factory=dict)
    embedded: str | None = None


@dataclass(frozen=True, kw_only=True)
class Embeddings(Settings):
    """How a cell's embedding is read from a model: mean over gene tokens, or ``<cls>``."""

    pooling: Pooling
    batch_tokens: Count


@dataclass(frozen=True, kw_only=True)
class ValidationLoss(Settings):
    """Monte-Carlo validation loss (appendix, "Validation Loss")."""

    trials: Count
    mask_fraction: Share
    confidence: Share
    batch_tokens: Count


@dataclass(frozen=True, kw_only=True)
class Scib(Settings):
    """scIB bio-conservation metrics (appendix, "SCIB Biological Conservation Metrics").

    Attributes:
        metrics: names in :mod:`scsigmoid.config.metrics`; those that are not the paper's do not
            enter the mean.
        neighbours: of a cell, itself included.
        variance: share that the PCA keeps.
        controls: what a score is compared with.
    """

    metrics: Several[Metric]
    neighbours: Annotated[int, at_least(2)]
    variance: Share
    controls: AnyNumber[Literal["random", "pca_log_counts"]]


@dataclass(frozen=True, kw_only=True)
class Mmd(Settings):
    """Bootstrap maximum mean discrepancy between cell types (appendix, "Maximum Mean Discrepancy").

    Attributes:
        datasets: evaluation datasets; ``null`` means those with ``mmd`` in
            ``datasets.<name>.compared``, or all datasets if there are none.
        resamples: bootstrap resamples of each pair; all are held in memory.
        confidence: of the percentile interval.
        estimator: ``unbiased`` or ``biased``: which one tables print; both are computed.
        minimum_cells: smaller cell types are left out, by name.
        block_cells: rows of the kernel matrix computed at once.
    """

    datasets: AnyNumber[str] | None
    resamples: Annotated[int, at_least(1, 100_000)]
    confidence: Share
    estimator: Literal["unbiased", "biased"]
    minimum_cells: Annotated[int, at_least(2)]
    block_cells: Count


@dataclass(frozen=True, kw_only=True)
class Umap(Settings):
    """UMAP (appendix, "UMAP Visualization"); ``datasets`` as for the MMD."""

    datasets: AnyNumber[str] | None
    neighbours: Annotated[int, at_least(2)]
    minimum_distance: Annotated[float, at_least(0, 1)]
    variance: Share


@dataclass(frozen=True, kw_only=True)
class Evaluation(Settings):
    """What is evaluated.

    Attributes:
        pair: the two models that scIB, MMD and UMAP compare: sigmoid first.
    """

    pair: list[str]
    embeddings: Embeddings
    validation_loss: ValidationLoss
    scib: Scib
    mmd: Mmd
    umap: Umap


@dataclass(frozen=True, kw_only=True)
class KernelBenchmark(Settings):
    """The kernel benchmark (section "Kernel Performance").

    Attributes:
        tokens: tokens per batch; ``tokens / length`` sequences.
        hidden: heads times head dimension.
        head_dimensions: head dimensions.
        lengths: sequence lengths.
        padding: shares of padding, as the paper names them: lengths lie uniformly between
            (1 - share) L and L.
        jagged: whether a batch of sequences as long as cells is timed too, beside one of equal
            sequences that need as many operations.
        median_length: median of the log-normal distribution of the cells' lengths.
        sigma_length: its sigma.
        providers: names of the kernels; all where None.
        iterations: most rounds, each of which times every kernel.
        seconds: longest time for the rounds of one length or jagged batch.
        warmup_ms: warm-up in milliseconds.
        confidence: of the intervals.
    """

    tokens: Count
    hidden: Count
    head_dimensions: Several[Count]
    lengths: Several[Count]
    padding: Several[ShareOrZero]
    jagged: bool
    median_length: Count
    sigma_length: Positive
    providers: Several[Text] | None = None
    iterations: Count
    seconds: Positive
    warmup_ms: CountOrZero
    confidence: Share


@dataclass(frozen=True, kw_only=True)
class TrainingBenchmark(Settings):
    """The training benchmark (section "Training Speed Performance").

    Every size is trained at every context, with every number of cells and every kernel.

    Attributes:
        sizes: names of ``sizes``.
        contexts: context lengths.
        cells_per_gpu: cells of a step on one GPU.
        kernels: names of the attention kernels; all if None.
        vocabulary: rows of the embedding: special tokens and genes.
        steps: timed steps of a round.
        rounds: largest number of rounds, each of which times every kernel.
        seconds: longest time for the rounds of one size, context and number of cells.
        projected_cells: cells that GPU-hours are projected to.
        median_length: median of the log-normal distribution of the cells' lengths.
        sigma_length: its sigma.
        confidence: of the intervals.
    """

    sizes: Several[str]
    contexts: Several[Context]
    cells_per_gpu: Several[Annotated[int, at_least(2)]]
    kernels: Several[Text] | None
    vocabulary: Context
    steps: Count
    rounds: Count
    seconds: Positive
    projected_cells: Positive
    median_length: Count
    sigma_length: Positive
    confidence: Share


@dataclass(frozen=True, kw_only=True)
class Benchmarks(Settings):
    """Speed."""

    kernel: KernelBenchmark
    training: TrainingBenchmark


@dataclass(frozen=True, kw_only=True)
class Figures(Settings):
    """How figures are drawn.

    Attributes:
        dpi: of the PNG files.
        sigmoid_colour: colour of sigmoid attention.
        softmax_colour: colour of softmax attention.
    """

    dpi: Annotated[int, at_least(50, 1200)]
    sigmoid_colour: Colour
    softmax_colour: Colour


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """The whole experiment.

    Attributes:
        preset: which overlay of ``workflow/presets`` is in force.
        results: folder of the results; ``null`` means ``results/<preset>``.
        seed: the one seed that all others derive from (tab:model_arch: 42).
        device: where models run; ``auto`` takes a GPU where there is one.
        gpus: GPUs of one machine that train a model together; changes rounding alone.
        nodes: machines that train a model together, started by Slurm (docs/running.md).
        study: families of runs that differ in a few settings (docs/reproduction.md).
    """

    preset: str
    results: (
        Annotated[str, form(r"[^\x00-\x20\x7f{}][^\x00-\x1f\x7f{}]*", "a folder, without braces")]
        | None
    )
    seed: Whole
    device: Device
    gpus: Annotated[int, at_least(1, 64)]
    nodes: Annotated[int, at_least(1, 10_000)]
    corpus: Corpus
    datasets: dict[Name, Dataset]
    tokens: Tokens
    sizes: dict[str, Size]
    architecture: Architecture
    training: Training
    models: dict[Name, Model]
    evaluation: Evaluation
    benchmarks: Benchmarks
    figures: Figures
    study: dict[Name, StudyFamily] = field(default_factory=dict)
