"""Every setting of the experiment with its type, limits, meaning and the rules that it affects.

Plain dataclasses, because jobs run without pydantic: it is missing on a bare GPU image, and its
import takes longer than some jobs. :mod:`scsigmoid.config.validate` checks settings with pydantic
before a job runs. ``config.yaml`` states every value, so that almost no setting has a default here.
"""

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar

from scsigmoid.config.effects import Affects
from scsigmoid.config.metrics import METRICS

T = TypeVar("T")


class Limits:
    """Limits of a setting for pydantic, to be used in ``Annotated``. Numbers exclude booleans.

    Args:
        expected: the expected value, for the error message. Empty means pydantic's own message.
        is_distinct: whether the items of a list must differ.
        constraints: arguments of pydantic's ``Field``, for example ``ge=1``.
    """

    def __init__(
        self, expected: str = "", *, is_distinct: bool = False, **constraints: Any
    ) -> None:
        self.expected = expected
        self.is_distinct = is_distinct
        self.constraints = constraints

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic import AfterValidator, BeforeValidator, Field
        from pydantic_core.core_schema import custom_error_schema

        annotations: list[Any] = [Field(**self.constraints)]
        if source in (int, float):
            annotations.append(BeforeValidator(refuse_boolean))
        if self.is_distinct:
            annotations.append(AfterValidator(refuse_duplicates))
        schema = handler.generate_schema(Annotated[source, *annotations])
        if not self.expected:
            return schema
        message = f"Input should be {self.expected}"
        return custom_error_schema(schema, "expected", custom_error_message=message)


def refuse_boolean(value: T) -> T:
    if isinstance(value, bool):  # pydantic reads true as 1
        raise ValueError("Input should be a number")
    return value


def refuse_duplicates(values: list[T]) -> list[T]:
    if len(set(values)) < len(values):
        raise ValueError("List should not contain a value twice")
    return values


#: A CELLxGENE id.
IDENTIFIER = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

Whole = Annotated[int, Limits()]
Count = Annotated[int, Limits(ge=1)]
CountOrZero = Annotated[int, Limits(ge=0)]
Context = Annotated[int, Limits(ge=8)]
Positive = Annotated[float, Limits(gt=0)]
NotNegative = Annotated[float, Limits(ge=0)]
Share = Annotated[float, Limits(gt=0, lt=1)]
ShareOrZero = Annotated[float, Limits(ge=0, lt=1)]
Text = Annotated[str, Limits("text on one line", pattern=r"^[^\x00-\x20\x7f][^\x00-\x1f\x7f]*$")]
Several = Annotated[list[T], Limits(is_distinct=True, min_length=1)]
Distinct = Annotated[list[T], Limits(is_distinct=True)]
Identifier = Annotated[str, Limits("a CELLxGENE id", pattern=f"^{IDENTIFIER.pattern}$")]

Attention = Literal["sigmoid", "softmax"]
Variant = Literal["qk_norm", "centred_values", "hybrid_norm"]
Device = Literal["auto", "cpu", "cuda"]
Pooling = Literal["mean", "cls"]
Purpose = Literal["rates", "seeds", "variants", "stability", "sizes"]
if TYPE_CHECKING:
    Metric = str
else:
    Metric = Literal[tuple(METRICS)]
# Used in file names.
Name = Annotated[str, Limits("at most 80 of a-z, 0-9 and '_'", pattern="^[a-z0-9][a-z0-9_]{0,79}$")]
Label = Annotated[Text | Several[Text], Limits("a column, or a list of different columns")]
# Snakemake would replace braces, and nothing expands "~".
Folder = Annotated[
    str, Limits("a path without braces or '~'", pattern=r"^[^\x00-\x20\x7f{}~][^\x00-\x1f\x7f{}]*$")
]
Host = Annotated[str, Limits("a host without https://", pattern="^([a-z0-9.-]+|::1)$")]

#: Rules that train models, or time training steps.
TRAIN = "train benchmark_training"


class Settings:
    """A section: pydantic refuses unknown settings and numbers that are not finite."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "allow_inf_nan": False}


@dataclass(frozen=True, kw_only=True)
class LocalFiles(Settings):
    """The user's own files (one entry of ``corpus.local``): h5ad, or 10x ``.h5`` and folders."""

    files: Text
    """Path or glob, relative to the working directory."""
    label: Annotated[Label, Affects()] = "cell_type"
    """Columns of ``obs`` with the cell type, as ``datasets.<name>.label``."""
    held_out: Annotated[
        bool | Share | Annotated[str, Limits(pattern="^[^=]+=.+$")],
        Limits("true, false, a fraction below 1, or 'column=value'", union_mode="left_to_right"),
    ] = False
    """Cells for evaluation instead of training: ``true`` (all), ``false`` (none), a fraction
    between 0 and 1 (random cells), or ``column=value`` (the cells with this value in a column of
    ``obs``)."""
    name: Annotated[Text | None, Affects()] = None
    """Name of the evaluation dataset. ``null`` means the name of the file."""
    layer: Text | None = None
    """Layer with the raw counts. ``null`` means ``raw.X`` if it exists, otherwise ``X``."""
    genes: Text | None = None
    """Column of ``var`` with the gene ids. ``null`` means the index or, if only one column has
    Ensembl ids, that column."""


@dataclass(frozen=True, kw_only=True)
class EmbeddedCorpus(Settings):
    """Sizes of the corpus that ships with the project: simulated cells and 700 real blood cells."""

    training_cells: Count
    """Number of simulated training cells in all files."""
    training_files: Count
    """Number of simulated training files."""
    evaluation_cells: Count
    """Number of cells of each simulated evaluation dataset."""
    genes: Count
    """Number of genes."""
    programmes: Count
    """Number of gene programs. A cell type is a sparse mixture of them."""
    regulators: Count
    """Number of regulators of each gene, which act together (section 1 of the paper)."""
    median_length: Count
    """Median number of expressed genes per cell."""
    donors: Count
    """Number of donors of each dataset."""


@dataclass(frozen=True, kw_only=True)
class Download(Settings):
    """How files are downloaded. Changes no result."""

    folder: Folder | None
    """Folder of the downloads, which presets may share. ``null`` means ``corpus/downloads`` in the
    results."""
    keep_files: bool
    """Whether raw files are kept. Otherwise a training file is deleted once its tokens are written,
    also from a shared folder."""
    connections: Annotated[int, Limits(ge=1, le=64)]
    """Number of simultaneous downloads or requests of a job."""
    attempts: Count
    """Attempts without progress before a job fails."""
    timeout: Positive
    """Seconds without data after which a connection is considered broken."""
    longest_pause: NotNegative
    """Longest time in seconds between two attempts, whatever the server asks for."""


@dataclass(frozen=True, kw_only=True)
class Corpus(Settings):
    """The training cells, and the source of all cells."""

    source: Annotated[
        Literal["embedded", "local", "cellxgene"], Affects("manifest scib_of_dataset")
    ]
    """``embedded`` (ships with the project, offline), ``local`` (own files), or ``cellxgene``
    (Discover)."""
    parts: Annotated[int, Limits(ge=1, le=100_000)]
    """Number of jobs that read and tokenize the training files."""
    snapshot: Annotated[
        str, Limits("a date such as 2024-06-11", pattern=r"^\d{4}-(0\d|1[0-2])-([0-2]\d|3[01])$")
    ]
    """Date of the state of CELLxGENE Discover (the paper: 2024-06-11)."""
    organisms: Several[Text]
    """Organisms of the training files. Files with other organisms are left out."""
    assays: Several[Text] | None
    """Assays of the training files, by label or ontology id. Files with other assays are left out.
    ``rna`` stands for the assays in ``corpus/rna_assays.csv``, ``null`` for all assays."""
    minimum_genes: Annotated[CountOrZero, Affects("gene_statistics training_tokens")]
    """Training cells with fewer expressed genes are left out."""
    leave_out: list[Identifier]
    """CELLxGENE ids of datasets or dataset versions that are not trained on."""
    manifest: Text | None
    """Lock file of an earlier run, whose files are used. ``null`` asks the service."""
    api: Text
    """Address of the curation API of CELLxGENE Discover."""
    hosts: Annotated[Several[Host], Affects()]
    """Hosts that files may be downloaded from."""
    maximum_file_gb: Positive | None
    """Largest size of a training file in GB (1e9 bytes). Larger files are left out. ``null`` keeps
    all."""
    maximum_cells: Count | None
    """Number of training cells at which the random selection of files stops. ``null`` keeps all."""
    maximum_gb: Positive | None
    """Total size of the training files in GB at which the random selection of files stops. ``null``
    keeps all."""
    download: Annotated[Download, Affects()]
    """How files are downloaded."""
    local: list[LocalFiles]
    """The user's own files."""
    embedded: Annotated[EmbeddedCorpus, Affects("manifest training_cells evaluation_cells")]
    """Sizes of the embedded corpus."""


@dataclass(frozen=True, kw_only=True)
class Dataset(Settings):
    """An evaluation dataset (tab:eval_datasets)."""

    title: Annotated[str, Limits("text that is not blank", pattern=r"\S")]
    """Name in tables and figures. A dataset with ``file`` has its name as the default."""
    id: Annotated[Identifier | None, Affects("evaluation_cells")] = None
    """CELLxGENE id of the dataset."""
    file: Annotated[Text | None, Affects("evaluation_cells")] = None
    """The user's own file with the cells, instead of an ``id``: h5ad, or 10x ``.h5`` or folder. All
    its cells are evaluated, with every ``corpus.source``."""
    label: Annotated[Label, Affects("evaluation_cells")] = "cell_type"
    """Column of ``obs`` with the cell type, or several. The first that exists is used or, if
    ``types`` is set, the column with most of these. ``"{a} {b}"`` joins columns, ``"*"`` stands for
    all text columns."""
    types: Annotated[Distinct[Text], Affects("evaluation_cells mmd_of_dataset")] = field(
        default_factory=list
    )
    """Cell types that must exist, in the order of the MMD table. Case, word order and the word
    "cell" are ignored."""
    description: str = ""
    """One sentence."""
    compared: list[Literal["mmd", "umap"]] = field(default_factory=list)
    """Metrics that compare the cell types of this dataset, unless ``evaluation.<metric>.datasets``
    is set. If no dataset has a metric here, all datasets have it."""

    @property
    def labels(self) -> list[str]:
        """``label`` as a list."""
        return [self.label] if isinstance(self.label, str) else self.label


@dataclass(frozen=True, kw_only=True)
class VocabularyChoice(Settings):
    """The genes with tokens."""

    genes: Text | None
    """File with one gene id per line. Exactly these genes get tokens, with a median of 1 if no
    training cell expresses them. ``null`` selects genes by the other settings."""
    biotypes: Several[Text] | None
    """Biotypes of the genes, for example ``protein_coding``. ``null`` means all."""
    annotation: list[Text]
    """GTF files with the biotypes, for example of GENCODE, one for each organism."""
    sizes: dict[Literal["Homo sapiens", "Mus musculus", "other"], Count] | None
    """Largest number of genes of an organism: those expressed in most training cells. ``other``
    limits genes that have no Ensembl id. ``null`` means no limit."""


@dataclass(frozen=True, kw_only=True)
class Tokens(Settings):
    """How a cell becomes a sequence of gene tokens."""

    target_sum: Annotated[Positive, Affects("gene_statistics training_tokens evaluation_tokens")]
    """Total to which the counts of a cell are scaled."""
    cls: Annotated[bool, Affects("train")]
    """Whether a sequence starts with ``<cls>``, which takes one place of the context."""
    minimum_cells: Annotated[Count, Affects("vocabulary")]
    """Number of training cells that must express a gene of the vocabulary."""
    vocabulary: Annotated[VocabularyChoice, Affects("vocabulary")]
    # Arrow counts the tokens of a file with 32 bits.
    shard_cells: Annotated[
        int, Limits(ge=1, le=32_768), Affects("training_tokens evaluation_tokens")
    ]
    """Cells per file of the token store."""


@dataclass(frozen=True, kw_only=True)
class Size(Settings):
    """Dimensions of an encoder (tab:model_arch; the larger ones are inferred)."""

    layers: Count
    """Number of transformer blocks."""
    hidden: Count
    """Width of the residual stream."""
    heads: Count
    """Number of attention heads. The head dimension is ``hidden / heads``."""
    feed_forward: Count
    """Width of the feed-forward layer."""


@dataclass(frozen=True, kw_only=True)
class Architecture(Settings):
    """Settings of the encoder that all models share (tab:model_arch)."""

    size: Annotated[str, Affects("train", otherwise="")]
    """Name of an entry of ``sizes``."""
    dropout: ShareOrZero
    """Dropout probability."""
    layer_norm_epsilon: Positive
    """Epsilon of the layer normalizations."""
    initializer_range: Positive
    """Standard deviation of the initial weights."""
    variants: list[Variant] = field(default_factory=list)
    """Changes to attention that are not in the paper (explained in ``model/encoder.py``)."""


@dataclass(frozen=True, kw_only=True)
class Training(Settings):
    """How a model is trained (tab:model_arch and tab:performance_hyperparams)."""

    steps: Annotated[Count, Affects("train", model=False, otherwise=1)]
    """Number of optimizer steps."""
    global_batch: Annotated[Count, Affects("train", otherwise=1)]
    """Cells per optimizer step, on all GPUs together."""
    micro_batch_tokens: Annotated[Count, Affects("train", model=False, otherwise=1)]
    """Largest number of tokens of a forward pass. Bounds the memory."""
    learning_rate: Annotated[Positive, Affects("train", otherwise=1e-4)]
    """Learning rate of AdamW after the warm-up."""
    warmup_steps: Annotated[CountOrZero, Affects("train", otherwise=0)]
    """Steps of linear warm-up."""
    weight_decay: NotNegative
    """Weight decay of AdamW."""
    betas: Annotated[list[ShareOrZero], Limits(min_length=2, max_length=2)]
    """Beta 1 and beta 2 of AdamW."""
    epsilon: Positive
    """Epsilon of AdamW."""
    gradient: Literal["mean", "sum"]
    """Training loss: ``mean`` over the masked genes of the global batch, or ``sum`` over its cells
    of the mean over each cell's masked genes."""
    clipping: Positive | None
    """Largest L2 norm of the gradient. ``null`` means no clipping."""
    mask_fraction: Share
    """Fraction of the gene tokens of a cell that is masked."""
    mask_replacement: Literal["mask", "bert"]
    """Replacement of masked tokens: ``mask`` (always [MASK]) or ``bert`` (80 % [MASK], 10 % random,
    10 % unchanged)."""
    log_every: Annotated[Count, Affects("train", model=False, otherwise=1)]
    """Steps between two rows of the journal."""
    validate_every: Annotated[CountOrZero, Affects("train", model=False, otherwise=0)]
    """Steps between two validation losses. 0 means none."""
    validation_cells: Annotated[CountOrZero, Affects("train", otherwise=0)]
    """Number of training cells that are held out for the validation loss. They do not depend on the
    seed."""
    patience: Annotated[CountOrZero, Affects("train", model=False, otherwise=0)] = 0
    """Number of validation losses after which training ends before ``steps``, if none of them is
    0.2 % below the lowest earlier one. 0 means never."""
    checkpoint_every: Annotated[Count, Affects(model=False, otherwise=1)]
    """Steps between two checkpoints."""
    keep_checkpoints: Annotated[Count, Affects(model=False, otherwise=1)]
    """Number of checkpoints that are kept."""
    threads: Annotated[int, Limits(ge=1, le=1024), Affects(TRAIN, model=False)]
    """Number of CPU threads. Sums depend on it."""
    workers: Annotated[int, Limits(ge=0, le=1024), Affects(model=False, otherwise=0)]
    """Number of threads that prepare batches ahead. 0 prepares each batch when it is needed."""
    deterministic: Annotated[bool, Affects(TRAIN, model=False)]
    """Whether a GPU gives the same bits in each run, which costs speed. A CPU always does."""
    snapshots: Annotated[list[Count], Affects("train", model=False, otherwise=[])] = field(
        default_factory=list
    )
    """Steps after which a copy of the model is kept, if they are below ``steps``."""

    @property
    def kept(self) -> dict[int, str]:
        """Steps of the snapshots in ascending order, and their suffixes: ``-step-00002000``."""
        return {step: f"-step-{step:08d}" for step in sorted(self.snapshots) if step < self.steps}


@dataclass(frozen=True, kw_only=True)
class Model(Settings):
    """One trained model: an attention mechanism at a context length."""

    attention: Attention
    """Attention mechanism."""
    context: Context
    """Longest sequence in tokens."""
    size: str | None = None
    """Name of an entry of ``sizes``. ``null`` means ``architecture.size``."""
    stress: Annotated[bool, Affects()] = False
    """Whether the model belongs to the stress test and is not evaluated."""
    backend: str = "auto"
    """Attention backend (docs/architecture.md). ``auto`` takes the fastest that the device
    supports."""
    training: dict[str, Any] = field(default_factory=dict)
    """Settings of ``training`` that differ for this model."""


@dataclass(frozen=True, kw_only=True)
class StudyFamily(Settings):
    """A family of runs: every combination of the listed values."""

    purpose: Annotated[Purpose | None, Affects()] = None
    """Tables and figures that show the runs: ``rates`` (the best learning rate), ``seeds``
    (difference between sigmoid and softmax), ``variants`` (of attention, compared with ``seeds``),
    ``stability`` (collapsed runs by learning rate; the figure shows the first such family) or
    ``sizes`` (of the model). ``null``: only ``runs.csv`` and ``curves.csv``."""

    attention: Several[Attention]
    """Attention mechanisms."""
    context: Several[Context]
    """Context lengths."""
    size: Several[str]
    """Names of entries of ``sizes``."""
    seed: Several[Whole]
    """Seeds of weights, order, masks and dropout. The cells are those of the configuration."""
    variants: list[list[Variant]] = field(default_factory=lambda: [[]])
    """Values of ``architecture.variants``, each a list."""
    training: dict[str, Any] = field(default_factory=dict)
    """Settings of ``training`` that differ. A list varies the setting, a mapping has a value for
    each attention mechanism."""
    embedded: str | None = None
    """Evaluation dataset whose cells the runs embed after training and at each snapshot."""


@dataclass(frozen=True, kw_only=True)
class Embeddings(Settings):
    """How the embedding of a cell is read from a model."""

    pooling: Pooling
    """``mean`` over the gene tokens, or the token ``<cls>``."""
    batch_tokens: Count
    """Tokens per forward pass. Bounds the memory."""


@dataclass(frozen=True, kw_only=True)
class ValidationLoss(Settings):
    """Monte-Carlo validation loss (appendix, "Validation Loss")."""

    trials: Count
    """Number of random masks of each cell."""
    mask_fraction: Share
    """Fraction of the gene tokens of a cell that is masked."""
    confidence: Share
    """Confidence of the intervals."""
    batch_tokens: Count
    """Tokens per forward pass. Bounds the memory."""


@dataclass(frozen=True, kw_only=True)
class Scib(Settings):
    """scIB bio-conservation metrics (appendix, "SCIB Biological Conservation Metrics")."""

    metrics: Annotated[Several[Metric], Affects(otherwise=[])]
    """Names of metrics. The mean is over those of the paper only."""
    neighbours: Annotated[int, Limits(ge=2)]
    """Number of neighbors of a cell, including itself."""
    variance: Share
    """Fraction of the variance that the PCA keeps."""
    controls: Distinct[Literal["random", "pca_log_counts"]]
    """Representations that are scored for comparison."""


@dataclass(frozen=True, kw_only=True)
class Mmd(Settings):
    """Bootstrap MMD between cell types (appendix, "Maximum Mean Discrepancy")."""

    datasets: Annotated[Distinct[str] | None, Affects(otherwise=None)]
    """Names of evaluation datasets. ``null`` means those with ``compared: [mmd]``, or all if there
    are none."""
    resamples: Annotated[int, Limits(ge=1, le=100_000)]
    """Number of bootstrap resamples of each pair, which are in memory together."""
    confidence: Share
    """Confidence of the percentile intervals."""
    estimator: Annotated[Literal["unbiased", "biased"], Affects(otherwise="unbiased")]
    """Estimator in the tables. Both are computed."""
    minimum_cells: Annotated[int, Limits(ge=2)]
    """Cell types with fewer cells are left out."""
    block_cells: Count
    """Rows of the kernel matrix that are computed at once."""


@dataclass(frozen=True, kw_only=True)
class Umap(Settings):
    """UMAP (appendix, "UMAP Visualization")."""

    datasets: Annotated[Distinct[str] | None, Affects(otherwise=None)]
    """Names of evaluation datasets. ``null`` means those with ``compared: [umap]``, or all if there
    are none."""
    neighbours: Annotated[int, Limits(ge=2)]
    """Number of neighbors of a cell."""
    minimum_distance: Annotated[float, Limits(ge=0, le=1)]
    """Smallest distance between cells in the plot (``min_dist`` of umap-learn)."""
    variance: Share
    """Fraction of the variance that the PCA keeps."""


@dataclass(frozen=True, kw_only=True)
class Evaluation(Settings):
    """How trained models are evaluated."""

    pair: Annotated[Several[str], Affects("scib_of_dataset")]
    """Models that scIB and UMAP compare. MMD needs a sigmoid and a softmax model with the same
    context."""
    embeddings: Annotated[Embeddings, Affects("embeddings_of_pair")]
    validation_loss: Annotated[ValidationLoss, Affects("validation_loss_of_model")]
    scib: Annotated[Scib, Affects("scib_of_dataset")]
    mmd: Annotated[Mmd, Affects("mmd_of_dataset")]
    umap: Annotated[Umap, Affects("umap_of_dataset")]


@dataclass(frozen=True, kw_only=True)
class KernelBenchmark(Settings):
    """The kernel benchmark (section "Kernel Performance")."""

    tokens: Count
    """Tokens of a batch, which has ``tokens / length`` sequences."""
    hidden: Count
    """Number of heads times the head dimension."""
    head_dimensions: Several[Count]
    """Head dimensions."""
    lengths: Several[Count]
    """Sequence lengths."""
    padding: Several[ShareOrZero]
    """Fractions of padding as in the paper: lengths are uniform between (1 - fraction) L and L."""
    jagged: bool
    """Whether to time also a batch with the lengths of cells, and one of equal sequences with the
    same number of operations."""
    median_length: Count
    """Median of the log-normal distribution of the lengths of cells."""
    sigma_length: Positive
    """Sigma of this distribution."""
    providers: Several[Text] | None = None
    """Names of the kernels. ``null`` means all."""
    iterations: Count
    """Largest number of rounds, each of which times every kernel."""
    seconds: Positive
    """Longest time in seconds for the rounds of one batch."""
    warmup_ms: CountOrZero
    """Time of the warm-up in milliseconds."""
    confidence: Share
    """Confidence of the intervals."""


@dataclass(frozen=True, kw_only=True)
class TrainingBenchmark(Settings):
    """The training benchmark (section "Training Speed Performance"): every combination of sizes,
    contexts, numbers of cells and kernels."""

    sizes: Several[str]
    """Names of entries of ``sizes``."""
    contexts: Several[Context]
    """Context lengths."""
    cells_per_gpu: Several[Annotated[int, Limits(ge=2)]]
    """Cells of a step on one GPU."""
    kernels: Several[Text] | None
    """Names of the attention kernels. ``null`` means all."""
    vocabulary: Context
    """Number of tokens, including special tokens."""
    steps: Count
    """Timed steps of a round."""
    rounds: Count
    """Largest number of rounds, each of which times every kernel."""
    seconds: Positive
    """Longest time in seconds for the rounds of one size, context and number of cells."""
    projected_cells: Positive
    """Number of cells that GPU-hours are projected to."""
    median_length: Count
    """Median of the log-normal distribution of the lengths of cells."""
    sigma_length: Positive
    """Sigma of this distribution."""
    confidence: Share
    """Confidence of the intervals."""


@dataclass(frozen=True, kw_only=True)
class Benchmarks(Settings):
    """Benchmarks of speed."""

    kernel: Annotated[KernelBenchmark, Affects("benchmark_kernel")]
    training: Annotated[TrainingBenchmark, Affects("benchmark_training")]


@dataclass(frozen=True, kw_only=True)
class Figures(Settings):
    """Style of the figures."""

    dpi: Annotated[int, Limits(ge=50, le=1200)]
    """Resolution of the PNG files."""


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """The whole experiment."""

    preset: str
    """Name of the file in ``workflow/presets`` whose values replace those of ``config.yaml``."""
    results: Folder | None
    """Folder of the results. ``null`` means ``results/<preset>``."""
    seed: Annotated[
        Whole,
        Affects(
            f"manifest training_cells evaluation_cells {TRAIN} validation_loss_of_model"
            " scib_of_dataset mmd_of_dataset umap_of_dataset study_scores"
        ),
    ]
    """Seed from which all other seeds are derived (tab:model_arch: 42)."""
    device: Annotated[Device, Affects("benchmark_kernel benchmark_training")]
    """Device of the models. ``auto`` takes a GPU if there is one. Changes results by rounding
    only."""
    gpus: Annotated[int, Limits(ge=1, le=64)]
    """GPUs of each machine that train a model together. Changes results by rounding only."""
    nodes: Annotated[int, Limits(ge=1, le=10_000)]
    """Machines that train a model together, started by Slurm (docs/running.md)."""
    corpus: Annotated[Corpus, Affects("manifest")]
    datasets: Annotated[dict[Name, Dataset], Limits(min_length=1)]
    """The evaluation datasets, by name. ``null`` removes one."""
    tokens: Tokens
    sizes: Annotated[dict[str, Size], Affects(TRAIN)]
    """Sizes of encoders, by name."""
    architecture: Annotated[Architecture, Affects(TRAIN)]
    training: Annotated[Training, Affects(TRAIN)]
    models: Annotated[dict[Name, Model], Limits(min_length=1), Affects("train")]
    """The trained models, by name. ``null`` removes one."""
    evaluation: Evaluation
    benchmarks: Benchmarks
    figures: Figures
    study: Annotated[dict[Name, StudyFamily], Affects("train study_runs")] = field(
        default_factory=dict
    )
    """Families of runs that differ in a few settings (docs/reproduction.md), by name."""
    choices: dict[str, str] = field(default_factory=dict)
    """Settings of own cells that were ``auto``, with value and reason. Written by the program."""

    def size_of(self, model: str) -> Size:
        """Return the dimensions of a model."""
        return self.sizes[self.models[model].size or self.architecture.size]
