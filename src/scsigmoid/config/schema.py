"""Every setting of the experiment with its type, limits, meaning and the rules that it affects.

Sections are plain dataclasses, so that jobs do not import pydantic: a bare GPU image does not have
it, and importing it takes longer than some jobs. :mod:`scsigmoid.config.validate` uses pydantic
before a job runs. Few settings have a default here, because ``config.yaml`` states all values.
"""

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar, dataclass_transform

from scsigmoid.config.effects import Affects
from scsigmoid.config.metrics import METRICS

T = TypeVar("T")


class Limits:
    """Annotation of a setting with its limits, which pydantic checks.

    Booleans are refused for numbers, although pydantic would convert them.

    Args:
        expected: description of valid values, for the error message (default: pydantic's message).
        is_distinct: whether the items of a list must differ.
        largest: largest absolute value of a number. With the default, neither the product of two
            integers nor a time in seconds overflows.
        constraints: arguments of pydantic's ``Field``, for example ``ge=1``.
    """

    def __init__(
        self,
        expected: str = "",
        *,
        is_distinct: bool = False,
        largest: int = 2**31 - 1,
        **constraints: Any,
    ) -> None:
        self.expected = expected
        self.is_distinct = is_distinct
        self.largest = largest
        self.constraints = constraints

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic import AfterValidator, BeforeValidator, Field
        from pydantic_core.core_schema import custom_error_schema

        annotations: list[Any] = [Field(**self.constraints)]
        if source in (int, float):
            annotations += [BeforeValidator(refuse_boolean), AfterValidator(self.refuse_larger)]
        if self.is_distinct:
            annotations.append(AfterValidator(refuse_duplicates))
        schema = handler.generate_schema(Annotated[source, *annotations])
        if not self.expected:
            return schema
        message = f"Input should be {self.expected}"
        return custom_error_schema(schema, "expected", custom_error_message=message)

    def refuse_larger(self, value: float) -> float:
        if abs(value) > self.largest:
            raise ValueError(f"Input should be at most {self.largest:,}")
        return value


def refuse_boolean(value: T) -> T:
    if isinstance(value, bool):
        raise ValueError("Input should be a number")
    return value


def refuse_duplicates(values: list[T]) -> list[T]:
    if len(set(values)) < len(values):
        raise ValueError("List should not contain a value twice")
    return values


IDENTIFIER = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")  # CELLxGENE id
# Name that is safe in paths and keys. Names of the configuration are shorter (`Name`).
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,199}")

MOST_STEPS = 99_999_999  # names of snapshots and checkpoints contain eight digits

Seed = Annotated[int, Limits(largest=2**63 - 1)]
Count = Annotated[int, Limits(ge=1)]
CountOrZero = Annotated[int, Limits(ge=0)]
Context = Annotated[int, Limits(ge=8)]
Positive = Annotated[float, Limits(gt=0)]
NotNegative = Annotated[float, Limits(ge=0)]
Fraction = Annotated[float, Limits(gt=0, lt=1)]
FractionOrZero = Annotated[float, Limits(ge=0, lt=1)]
Text = Annotated[str, Limits("text on one line", pattern=r"^[^\x00-\x20\x7f][^\x00-\x1f\x7f]*$")]
Distinct = Annotated[list[T], Limits(is_distinct=True)]
DistinctNotEmpty = Annotated[list[T], Limits(is_distinct=True, min_length=1)]
Identifier = Annotated[str, Limits("a CELLxGENE id", pattern=f"^{IDENTIFIER.pattern}$")]

Attention = Literal["sigmoid", "softmax"]
Variant = Literal["qk_norm", "centred_values", "hybrid_norm"]
Source = Literal["embedded", "local", "cellxgene"]
Device = Literal["auto", "cpu", "cuda"]
Pooling = Literal["mean", "cls"]
Purpose = Literal["rates", "seeds", "variants", "stability", "sizes"]
if TYPE_CHECKING:
    Metric = str
else:
    Metric = Literal[tuple(METRICS)]
# Names of datasets, models and families are parts of file names.
Name = Annotated[str, Limits("at most 80 of a-z, 0-9 and '_'", pattern="^[a-z0-9][a-z0-9_]{0,79}$")]
Label = Annotated[Text | DistinctNotEmpty[Text], Limits("a column, or a list of different columns")]
# Braces are refused because Snakemake would replace them, "~" because it is not expanded, and a
# first "-" because it marks options.
Folder = Annotated[
    str,
    Limits(
        "a path without braces or '~' that does not start with '-'",
        pattern=r"^[^\x00-\x20\x7f{}~-][^\x00-\x1f\x7f{}]*$",
    ),
]
Host = Annotated[str, Limits("a host without https://", pattern="^([a-z0-9.-]+|::1)$")]

# Names of rules in `workflow/rules`, for `Affects`.
TRAIN = "train benchmark_training"  # rules that train models, or time training steps
# Rules that use random numbers.
SEEDED = f"manifest training_cells evaluation_cells {TRAIN} validation_loss_of_model"
SEEDED += " scib_of_dataset mmd_of_dataset umap_of_dataset study_scores"


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
class Settings:
    """Base class of all sections. Each subclass becomes a frozen dataclass with keyword arguments.

    Pydantic refuses unknown settings, infinity and NaN.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "allow_inf_nan": False}
    __dataclass_fields__: ClassVar[dict[str, Any]]  # tells mypy that subclasses are dataclasses

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)


class LocalFiles(Settings):
    """One entry of ``corpus.local``: your own h5ad files, 10x ``.h5`` files or 10x folders."""

    files: Text
    """Path or glob, relative to the working directory."""
    # `label`, `batch` and `name` affect rules through the entry of `datasets` made from them.
    label: Annotated[Label, Affects()] = "cell_type"
    """Column of ``obs`` with the cell type. Takes the same values as ``datasets.<name>.label``."""
    batch: Annotated[Text | None, Affects()] = None
    """Column of ``obs`` with the batch. See ``datasets.<name>.batch``."""
    held_out: Annotated[
        bool | Fraction | Annotated[str, Limits(pattern="^[^=]+=.+$")],
        Limits("true, false, a fraction below 1, or 'column=value'", union_mode="left_to_right"),
    ] = False
    """Cells that are evaluated and not trained on: ``true`` (all), ``false`` (none), a fraction
    between 0 and 1 (random cells), or ``column=value`` (the cells with this value in a column of
    ``obs``)."""
    name: Annotated[Text | None, Affects()] = None
    """Name of the evaluation dataset of held-out cells. ``null`` means the name of the file."""
    layer: Text | None = None
    """Layer with the raw counts. ``null`` means ``raw.X`` if it exists, otherwise ``X``."""
    genes: Text | None = None
    """Column of ``var`` with gene ids. ``null``: the index, or the only column with Ensembl ids."""


class EmbeddedCorpus(Settings):
    """Sizes of the corpus that the package contains: simulated cells and 700 real blood cells."""

    training_cells: Count
    """Number of simulated training cells in all files."""
    training_files: Count
    """Number of simulated training files."""
    evaluation_cells: Count
    """Number of cells of each simulated evaluation dataset."""
    genes: Count
    """Number of genes of the simulated cells."""
    programmes: Count
    """Number of gene programs. A cell type is a sparse mixture of them."""
    regulators: Count
    """Number of genes that jointly regulate each gene (section 1 of the paper)."""
    median_length: Count
    """Median number of expressed genes per cell."""
    donors: Count
    """Number of donors of each dataset."""


class Download(Settings):
    """How files are downloaded. These settings do not change results."""

    folder: Folder | None
    """Folder that presets may share. ``null`` means ``corpus/downloads`` in the results folder."""
    keep_files: bool
    """Whether to keep raw files. If false, a training file is deleted when its tokens are written,
    even from a shared folder."""
    connections: Annotated[int, Limits(ge=1, le=64)]
    """Maximum number of simultaneous downloads or requests per job."""
    attempts: Count
    """Number of attempts without progress after which a job fails."""
    timeout: Positive
    """Seconds without data after which a connection counts as broken."""
    longest_pause: NotNegative
    """Longest pause between two attempts in seconds, even if ``Retry-After`` is longer."""


class Corpus(Settings):
    """Source of all cells, and selection of the training cells."""

    source: Annotated[Source, Affects("manifest scib_of_dataset")]
    """Source of the cells: ``embedded`` (in the package, works offline), ``local`` (your own files)
    or ``cellxgene`` (downloads from CELLxGENE Discover)."""
    parts: Annotated[int, Limits(ge=1, le=100_000)]
    """Number of parts of the training files. One job per part downloads, counts or tokenizes."""
    snapshot: Annotated[
        str,
        Limits(
            "a date such as 2024-06-11", pattern="^[0-9]{4}-(0[0-9]|1[0-2])-([0-2][0-9]|3[01])$"
        ),
    ]
    """Date. Of each training dataset, the newest version published until this date is used."""
    organisms: DistinctNotEmpty[Text]
    """Organisms of the training files. Files with other organisms are left out."""
    assays: DistinctNotEmpty[Text] | None
    """Assays of the training files, by label or ontology id. Files with other assays are left out.
    ``rna`` means the assays in ``src/scsigmoid/corpus/rna_assays.csv``. ``null`` means all."""
    minimum_genes: Annotated[CountOrZero, Affects("gene_statistics training_tokens")]
    """Smallest number of expressed genes of a training cell. Other cells are left out."""
    leave_out: list[Identifier]
    """CELLxGENE ids of datasets or dataset versions that are not trained on."""
    manifest: Text | None
    """Lock file of an earlier run, to use the same files. ``null`` asks the service for files."""
    api: Text
    """Address of the curation API of CELLxGENE Discover."""
    hosts: Annotated[DistinctNotEmpty[Host], Affects()]
    """Hosts from which files may be downloaded."""
    maximum_file_gb: Positive | None
    """Largest size of a training file in GB (1e9 bytes). ``null`` means no limit."""
    maximum_cells: Count | None
    """Number of cells at which the random selection of training files stops. ``null``: no limit."""
    maximum_gb: Positive | None
    """Total GB of training files at which the random selection stops. ``null`` means no limit."""
    download: Annotated[Download, Affects()]
    local: list[LocalFiles]
    """Your own files."""
    embedded: Annotated[EmbeddedCorpus, Affects("manifest training_cells evaluation_cells")]


class Dataset(Settings):
    """An evaluation dataset (Table 4 of the paper)."""

    title: Annotated[str, Limits("text that is not blank", pattern=r"\S")]
    """Title in tables and figures. For a dataset with ``file``, the default is its name."""
    id: Annotated[Identifier | None, Affects("evaluation_cells")] = None
    """CELLxGENE id of the dataset."""
    file: Annotated[Text | None, Affects("evaluation_cells")] = None
    """Your own h5ad file, instead of an ``id``. All its cells are evaluated. 10x files do not
    contain a label, so they cannot be evaluated. Works with every ``corpus.source``."""
    label: Annotated[Label, Affects("evaluation_cells")] = "cell_type"
    """Column of ``obs`` with the cell type, or a list of columns. Of a list, the first column that
    exists is used or, if ``types`` is set, the column with most of these types. ``"*"`` means all
    text columns."""
    types: Annotated[Distinct[Text], Affects("evaluation_cells mmd_of_dataset")] = field(
        default_factory=list
    )
    """Cell types that the file must contain, in the order of the MMD table. Case, word order and
    the word "cell" are ignored."""
    batch: Annotated[Text | None, Affects("scib_of_dataset umap_of_dataset")] = None
    """Column of ``obs`` with the batch, such as the donor or the condition. With it, the scores
    ``ilisi`` and ``graph_connectivity`` are added to ``evaluation.scib.metrics``, and UMAP is also
    colored by batch."""
    description: str = ""
    """Description in one sentence, for the table of datasets."""
    compared: list[Literal["mmd", "umap"]] = field(default_factory=list)
    """Analyses of this dataset: ``mmd`` and ``umap``. An analysis that no dataset lists is made for
    all datasets. ``evaluation.mmd.datasets`` and ``evaluation.umap.datasets``, if set, replace this
    setting."""

    @property
    def labels(self) -> list[str]:
        return [self.label] if isinstance(self.label, str) else self.label


class VocabularyChoice(Settings):
    """Selection of the genes that get a token."""

    genes: Text | None
    """File with one gene id per line. Exactly these genes get tokens. Genes that no training cell
    expresses have a median of 1. ``null`` selects genes by the other settings."""
    sizes: dict[Literal["Homo sapiens", "Mus musculus", "other"], Count] | None
    """Largest number of genes of each organism. Genes that more training cells express are
    preferred. ``other`` limits genes without an Ensembl id. ``null`` means no limit."""


class Tokens(Settings):
    """How a cell becomes a sequence of gene tokens."""

    target_sum: Annotated[Positive, Affects("gene_statistics training_tokens evaluation_tokens")]
    """Sum to which the counts of a cell are scaled."""
    cls: Annotated[bool, Affects("train")]
    """Whether a sequence starts with the token ``<cls>``. It counts toward the context."""
    minimum_cells: Annotated[Count, Affects("vocabulary")]
    """Smallest number of training cells that express a gene of the vocabulary."""
    vocabulary: Annotated[VocabularyChoice, Affects("vocabulary")]
    # The largest value keeps the number of tokens of a file within Arrow's 32-bit offsets.
    shard_cells: Annotated[
        int, Limits(ge=1, le=32_768), Affects("training_tokens evaluation_tokens")
    ]
    """Cells per file of the token store."""


class Size(Settings):
    """Dimensions of an encoder (Table 2 of the paper, other sizes are inferred)."""

    layers: Count
    """Number of transformer blocks."""
    hidden: Count
    """Width of the residual stream."""
    heads: Count
    """Number of attention heads. The head dimension is ``hidden / heads``."""
    feed_forward: Count
    """Width of the feed-forward layer."""


class Architecture(Settings):
    """Settings of the encoder that all models share (Table 2 of the paper)."""

    size: Annotated[str, Affects("train", otherwise="")]
    """Name of an entry of ``sizes``."""
    dropout: FractionOrZero
    """Dropout probability."""
    layer_norm_epsilon: Positive
    """Epsilon of the layer normalizations."""
    initializer_range: Positive
    """Standard deviation of the initial weights."""
    variants: list[Variant] = field(default_factory=list)
    """Changes to attention that are not in the paper. See ``src/scsigmoid/model/encoder.py``."""


class Training(Settings):
    """How a model is trained (Tables 2 and 3 of the paper)."""

    steps: Annotated[
        int, Limits(ge=1, largest=MOST_STEPS), Affects("train", model=False, otherwise=1)
    ]
    """Number of optimizer steps, at most 99,999,999."""
    global_batch: Annotated[Count, Affects("train", otherwise=1)]
    """Number of cells per optimizer step, summed over all GPUs."""
    micro_batch_tokens: Annotated[Count, Affects("train", model=False, otherwise=1)]
    """Largest number of tokens in a forward pass. Lower it to save memory."""
    learning_rate: Annotated[Positive, Affects("train", otherwise=1e-4)]
    """Learning rate of AdamW after the warm-up."""
    warmup_steps: Annotated[CountOrZero, Affects("train", otherwise=0)]
    """Number of steps of linear warm-up."""
    weight_decay: NotNegative
    """Weight decay of AdamW."""
    betas: Annotated[list[FractionOrZero], Limits(min_length=2, max_length=2)]
    """Beta 1 and beta 2 of AdamW."""
    epsilon: Positive
    """Epsilon of AdamW."""
    gradient: Literal["mean", "sum"]
    """Training loss: ``mean`` (mean over all masked genes of the global batch) or ``sum`` (sum of
    the mean losses of the cells)."""
    clipping: Positive | None
    """L2 norm to which the gradient is clipped. ``null`` means no clipping."""
    mask_fraction: Fraction
    """Fraction of the gene tokens of a cell that is masked."""
    mask_replacement: Literal["mask", "bert"]
    """Replacement of masked tokens: ``mask`` (always ``<mask>``) or ``bert`` (80 % ``<mask>``, 10 %
    random genes, 10 % unchanged)."""
    log_every: Annotated[Count, Affects("train", model=False, otherwise=1)]
    """Number of steps between two rows of ``journal.csv``."""
    validate_every: Annotated[CountOrZero, Affects("train", model=False, otherwise=0)]
    """Number of steps between two validations. 0 means no validation."""
    validation_cells: Annotated[CountOrZero, Affects("train", otherwise=0)]
    """Number of cells of the training files that are kept for the validation loss and not trained
    on. They are the same for every seed."""
    patience: Annotated[CountOrZero, Affects("train", model=False, otherwise=0)] = 0
    """Training stops early if none of the last ``patience`` validation losses is 0.2 % below the
    lowest loss before them. 0 means that training never stops early."""
    checkpoint_every: Annotated[Count, Affects(model=False, otherwise=1)]
    """Number of steps between two checkpoints."""
    keep_checkpoints: Annotated[Count, Affects(model=False, otherwise=1)]
    """Number of checkpoints to keep."""
    threads: Annotated[int, Limits(ge=1, le=1024), Affects(TRAIN, model=False)]
    """Number of CPU threads. It changes results by rounding only."""
    workers: Annotated[int, Limits(ge=0, le=1024), Affects(model=False, otherwise=0)]
    """Number of threads that prepare batches in advance. 0 means that the main thread does."""
    deterministic: Annotated[bool, Affects(TRAIN, model=False)]
    """Whether runs on a GPU give identical results, as runs on a CPU always do. This is slower."""
    snapshots: Annotated[list[Count], Affects("train", model=False, otherwise=[])] = field(
        default_factory=list
    )
    """Steps after which a copy of the model is written, if they are below ``steps``."""

    @property
    def snapshot_suffixes(self) -> dict[int, str]:
        """Suffix of each snapshot's file, e.g. ``-step-00002000``, by step in ascending order."""
        return {step: f"-step-{step:08d}" for step in sorted(self.snapshots) if step < self.steps}


class Model(Settings):
    """A model to train."""

    attention: Attention
    """Attention mechanism."""
    context: Context
    """Maximum number of tokens of a sequence. Longer cells are truncated."""
    size: str | None = None
    """Name of an entry of ``sizes``. ``null`` means ``architecture.size``."""
    stress: Annotated[bool, Affects()] = False
    """Whether the model is only trained, for the stress test (figure ``stability``)."""
    backend: str = "auto"
    """Attention backend (docs/architecture.md). ``auto``: the fastest that the device supports."""
    training: dict[str, Any] = field(default_factory=dict)
    """Settings that replace values of ``training`` for this model."""


class StudyFamily(Settings):
    """A family of training runs, one for every combination of the listed values."""

    purpose: Annotated[Purpose | None, Affects()] = None
    """Comparison in the tables and figures of the family: ``rates`` (learning rates), ``seeds``
    (sigmoid and softmax), ``variants`` (variants of attention and the runs of ``seeds``),
    ``stability`` (collapsed runs at each learning rate) or ``sizes`` (sizes of the model). The
    figure of ``stability`` shows the first such family. ``null`` means that only ``runs.csv`` and
    ``curves.csv`` contain the runs."""
    attention: DistinctNotEmpty[Attention]
    """Attention mechanisms."""
    context: DistinctNotEmpty[Context]
    """Context lengths."""
    size: DistinctNotEmpty[str]
    """Names of entries of ``sizes``."""
    seed: DistinctNotEmpty[Seed]
    """Seeds of weights, order of cells, masks and dropout. All seeds use the same cells."""
    variants: list[list[Variant]] = field(default_factory=lambda: [[]])
    """Values of ``architecture.variants``. Each value is a list."""
    training: dict[str, Any] = field(default_factory=dict)
    """Settings that replace values of ``training`` for this family. A list gives one run per value.
    A mapping gives a value for each attention mechanism."""
    embedded: str | None = None
    """Evaluation dataset that is embedded and scored with the final model and each snapshot."""


class Embeddings(Settings):
    """How cells are embedded."""

    pooling: Pooling
    """Embedding of a cell: ``mean`` (mean of the hidden states of its genes) or ``cls`` (hidden
    state of ``<cls>``)."""
    batch_tokens: Count
    """Number of tokens per forward pass. Lower it to save memory."""


class ValidationLoss(Settings):
    """Validation loss over random masks (appendix "Validation Loss")."""

    trials: Count
    """Number of random masks of each cell."""
    mask_fraction: Fraction
    """Fraction of the gene tokens of a cell that is masked."""
    confidence: Fraction
    """Confidence level of the intervals."""
    batch_tokens: Count
    """Number of tokens per forward pass. Lower it to save memory."""


class Scib(Settings):
    """scIB metrics (appendix "SCIB Biological Conservation Metrics")."""

    metrics: Annotated[DistinctNotEmpty[Metric], Affects(otherwise=[])]
    """Metrics to compute. Their mean uses only the paper's three metrics. ``ilisi`` and
    ``graph_connectivity`` need a dataset with ``batch``, which adds them."""
    neighbours: Annotated[int, Limits(ge=2)]
    """Number of nearest neighbors of a cell, including itself."""
    variance: Fraction
    """Fraction of the variance that the principal components keep."""
    controls: Distinct[Literal["random", "pca_log_counts"]]
    """Embeddings scored next to the models: random values, or the PCA of log counts."""


class Mmd(Settings):
    """Maximum mean discrepancy between cell types (appendix "Maximum Mean Discrepancy")."""

    datasets: Annotated[Distinct[str] | None, Affects(otherwise=None)]
    """Evaluation datasets. ``null``: all with ``compared: [mmd]``, or all if there are none."""
    resamples: Annotated[int, Limits(ge=1, le=100_000)]
    """Number of bootstrap resamples of each pair of cell types. All are in memory at once."""
    confidence: Fraction
    """Confidence level of the percentile intervals."""
    estimator: Annotated[Literal["unbiased", "biased"], Affects(otherwise="unbiased")]
    """Estimator that the tables show. Both estimators are computed."""
    minimum_cells: Annotated[int, Limits(ge=2)]
    """Smallest number of cells of a cell type. Cell types with fewer cells are left out."""
    block_cells: Count
    """Number of rows of the kernel matrix computed at once. Lower it to save memory."""


class Umap(Settings):
    """UMAP (appendix "UMAP Visualization")."""

    datasets: Annotated[Distinct[str] | None, Affects(otherwise=None)]
    """Evaluation datasets. ``null``: all with ``compared: [umap]``, or all if there are none."""
    neighbours: Annotated[int, Limits(ge=2)]
    """Number of nearest neighbors of a cell."""
    minimum_distance: Annotated[float, Limits(ge=0, le=1)]
    """Smallest distance between cells in the plot (``min_dist`` of umap-learn)."""
    variance: Fraction
    """Fraction of the variance that the principal components keep."""


class Evaluation(Settings):
    """How trained models are evaluated."""

    pair: Annotated[DistinctNotEmpty[str], Affects("scib_of_dataset")]
    """Models that scIB, MMD and UMAP compare. MMD needs both attentions at the same context."""
    embeddings: Annotated[Embeddings, Affects("embeddings_of_pair")]
    validation_loss: Annotated[ValidationLoss, Affects("validation_loss_of_model")]
    scib: Annotated[Scib, Affects("scib_of_dataset")]
    mmd: Annotated[Mmd, Affects("mmd_of_dataset")]
    umap: Annotated[Umap, Affects("umap_of_dataset")]


class KernelBenchmark(Settings):
    """The benchmark of attention kernels (section "Kernel Performance")."""

    tokens: Count
    """Number of tokens of a batch. A batch has ``tokens / length`` sequences."""
    hidden: Count
    """Number of heads times the head dimension."""
    head_dimensions: DistinctNotEmpty[Count]
    """Head dimensions."""
    lengths: DistinctNotEmpty[Count]
    """Sequence lengths."""
    padding: DistinctNotEmpty[FractionOrZero]
    """Fractions of padding as in the paper: for length L, from (1 - fraction) L to L tokens."""
    jagged: bool
    """Whether to time two more batches: sequences with the lengths of cells, and equal sequences
    with the same number of operations."""
    median_length: Count
    """Median of the cell lengths, which are log-normal."""
    sigma_length: Positive
    """Standard deviation of the logarithm of the cell lengths."""
    providers: DistinctNotEmpty[Text] | None = None
    """Kernels to time. ``null`` means all."""
    iterations: Count
    """Largest number of rounds. A round times every kernel once."""
    seconds: Positive
    """Longest time for the rounds of a batch, in seconds."""
    warmup_ms: CountOrZero
    """Duration of the warm-up in milliseconds."""
    confidence: Fraction
    """Confidence level of the intervals."""


class TrainingBenchmark(Settings):
    """The training benchmark (section "Training Speed Performance"). It times every combination of
    size, context, number of cells and kernel."""

    sizes: DistinctNotEmpty[str]
    """Names of entries of ``sizes``."""
    contexts: DistinctNotEmpty[Context]
    """Context lengths."""
    cells_per_gpu: DistinctNotEmpty[Annotated[int, Limits(ge=2)]]
    """Numbers of cells per step on one GPU."""
    kernels: DistinctNotEmpty[Text] | None
    """Attention kernels to time. ``null`` means all."""
    vocabulary: Annotated[int, Limits(ge=8)]
    """Size of the vocabulary, including special tokens."""
    steps: Count
    """Number of timed steps in a round."""
    rounds: Count
    """Largest number of rounds. A round times every kernel once."""
    seconds: Positive
    """Longest time for the rounds of one size, context and number of cells, in seconds."""
    projected_cells: Positive
    """Number of training cells for which GPU-hours are estimated."""
    median_length: Count
    """Median of the cell lengths, which are log-normal."""
    sigma_length: Positive
    """Standard deviation of the logarithm of the cell lengths."""
    confidence: Fraction
    """Confidence level of the intervals."""


class Benchmarks(Settings):
    """Benchmarks of speed."""

    kernel: Annotated[KernelBenchmark, Affects("benchmark_kernel")]
    training: Annotated[TrainingBenchmark, Affects("benchmark_training")]


class Figures(Settings):
    """Style of the figures."""

    dpi: Annotated[int, Limits(ge=50, le=1200)]
    """Resolution of the PNG files in dots per inch."""


class Config(Settings):
    """Settings outside of sections."""

    preset: str
    """Preset: name of a file in ``workflow/presets`` that replaces values of ``config.yaml``."""
    results: Folder | None
    """Folder of the results. ``null`` means ``results/<preset>``."""
    seed: Annotated[Seed, Affects(SEEDED)]
    """Seed from which all other seeds are derived."""
    device: Annotated[Device, Affects("benchmark_kernel benchmark_training")]
    """Device of the models. ``auto``: a GPU if there is one. Changes results by rounding only."""
    gpus: Annotated[int, Limits(ge=1, le=64)]
    """Number of GPUs per machine that train one model. It changes results by rounding only."""
    nodes: Annotated[int, Limits(ge=1, le=10_000)]
    """Number of machines that train one model, on Slurm only (see docs/running.md)."""
    corpus: Annotated[Corpus, Affects("manifest")]
    datasets: Annotated[dict[Name, Dataset], Limits(min_length=1)]
    """The evaluation datasets, by name. ``<name>: null`` removes a dataset."""
    tokens: Tokens
    sizes: Annotated[dict[str, Size], Affects(TRAIN)]
    """Sizes of encoders, by name."""
    architecture: Annotated[Architecture, Affects(TRAIN)]
    training: Annotated[Training, Affects(TRAIN)]
    models: Annotated[dict[Name, Model], Limits(min_length=1), Affects("train")]
    """The models to train, by name. ``<name>: null`` removes a model."""
    evaluation: Evaluation
    benchmarks: Benchmarks
    figures: Figures
    study: Annotated[dict[Name, StudyFamily], Affects("train study_runs")] = field(
        default_factory=dict
    )
    """Families of training runs that are compared, by name (see docs/reproduction.md)."""
    choices: dict[str, str] = field(default_factory=dict)
    """Values chosen for settings that were ``auto``, with reasons. The program writes them."""

    def size_of(self, model: str) -> Size:
        return self.sizes[self.models[model].size or self.architecture.size]
