"""Every setting of the experiment with its type, limits and meaning, as pydantic models.

Few settings have a default here, because ``config.yaml`` states all values. A default here means
that nothing is set: a setting with this value is left out of all comparisons of settings.
"""

import re
from os.path import expanduser
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from scsigmoid.config.metrics import METRICS

T = TypeVar("T")


LARGEST = 2**31 - 1  # of a number: no product of two integers, or time in seconds, overflows


def refuse_boolean(value: Any) -> Any:
    """Refuse booleans for numbers. Pydantic would convert them."""
    if isinstance(value, bool):
        raise ValueError("Input should be a number")
    return value


def refuse_duplicates(values: list[T]) -> list[T]:
    if len(set(values)) < len(values):
        raise ValueError("List should not contain a value twice")
    return values


def expecting(values: str) -> WrapValidator:
    """Replace pydantic's message about a wrong value by a description of valid ``values``."""

    def validate(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(value)
        except ValidationError:
            raise ValueError(f"Input should be {values}") from None

    return WrapValidator(validate)


IDENTIFIER = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")  # CELLxGENE id
# Name that is safe in paths and keys. Names of the configuration are shorter (`Name`).
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,199}")

MOST_STEPS = 99_999_999  # names of snapshots and checkpoints contain eight digits

NUMBER = BeforeValidator(refuse_boolean)
DISTINCT = AfterValidator(refuse_duplicates)
Seed = Annotated[int, Field(ge=1 - 2**63, le=2**63 - 1), NUMBER]
Count = Annotated[int, Field(ge=1, le=LARGEST), NUMBER]
CountOrZero = Annotated[int, Field(ge=0, le=LARGEST), NUMBER]
TwoOrMore = Annotated[int, Field(ge=2, le=LARGEST), NUMBER]
Context = Annotated[int, Field(ge=8, le=LARGEST), NUMBER]
Positive = Annotated[float, Field(gt=0, le=LARGEST), NUMBER]
NotNegative = Annotated[float, Field(ge=0, le=LARGEST), NUMBER]
Fraction = Annotated[float, Field(gt=0, lt=1), NUMBER]
FractionOrZero = Annotated[float, Field(ge=0, lt=1), NUMBER]
Text = Annotated[
    str, Field(pattern=r"^[^\x00-\x20\x7f][^\x00-\x1f\x7f]*$"), expecting("text on one line")
]
# The text begins with "~" for the user's home folder.
InputFile = Annotated[Text, AfterValidator(expanduser)]
Distinct = Annotated[list[T], DISTINCT]
DistinctNotEmpty = Annotated[list[T], Field(min_length=1), DISTINCT]
Identifier = Annotated[str, Field(pattern=f"^{IDENTIFIER.pattern}$"), expecting("a CELLxGENE id")]

Attention = Literal["sigmoid", "softmax"]
Variant = Literal["qk_norm", "centered_values", "hybrid_norm"]
Source = Literal["embedded", "local", "cellxgene"]
Control = Literal["initial", "random", "pca_log_counts", "variable_genes"]
Device = Literal["auto", "cpu", "cuda"]
Purpose = Literal["rates", "seeds", "variants", "stability", "sizes"]
if TYPE_CHECKING:
    Metric = str
else:
    Metric = Literal[tuple(METRICS)]
# Names of datasets, models and families are parts of file names.
Name = Annotated[
    str,
    Field(pattern="^[a-z0-9][a-z0-9_]{0,79}$"),
    expecting("at most 80 of a-z, 0-9 and '_'"),
]
Label = Annotated[
    Text | DistinctNotEmpty[Text], expecting("a column, or a list of different columns")
]
# Braces are refused because Snakemake would replace them, "~" because it is not expanded, and a
# first "-" because it marks options.
Folder = Annotated[
    str,
    Field(pattern=r"^[^\x00-\x20\x7f{}~-][^\x00-\x1f\x7f{}]*$"),
    expecting("a path without braces or '~' that does not start with '-'"),
]
Host = Annotated[str, Field(pattern="^([a-z0-9.-]+|::1)$"), expecting("a host without https://")]


class Section(BaseModel):
    """Base class of all sections. Unknown settings, infinity and NaN are errors."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class LocalFiles(Section):
    """One entry of ``corpus.local``: your own h5ad files, 10x ``.h5`` files or 10x folders.

    A change reruns ``manifest`` if the file has training cells, and ``evaluation_cells`` if it has
    held-out cells.
    """

    files: Text
    """Path or glob, relative to the working directory."""
    label: Label = "cell_type"
    """Column of ``obs`` with the cell type. Takes the same values as ``datasets.<name>.label``."""
    batch: Text | None = None
    """Column of ``obs`` with the batch: ``datasets.<name>.batch`` of the held-out cells. A change
    reruns ``scib_of_dataset`` and ``umap_of_dataset``."""
    held_out: Annotated[
        bool | Fraction | Annotated[str, Field(pattern="^[^=]+=.+$")],
        Field(union_mode="left_to_right"),
        expecting("true, false, a fraction below 1, or 'column=value'"),
    ] = False
    """Cells that are evaluated and not trained on: ``true`` (all), ``false`` (none), a fraction
    between 0 and 1 (random cells), or ``column=value`` (the cells with this value in a column of
    ``obs``)."""
    name: Text | None = None
    """Name of the evaluation dataset of held-out cells. ``null`` means the name of the file."""
    layer: Text | None = None
    """Layer with the raw counts. ``null`` means ``raw.X`` if it exists, otherwise ``X``."""
    genes: Text | None = None
    """Column of ``var`` with gene ids. ``null``: the index, or the only column with Ensembl ids."""


class EmbeddedCorpus(Section):
    """Sizes of the corpus that the package contains: simulated cells and 700 real blood cells."""

    training_cells: Count
    """Number of simulated training cells in all files."""
    training_files: Count
    """Number of simulated training files."""
    evaluation_cells: Count
    """Number of cells of each simulated evaluation dataset."""
    genes: Count
    """Number of genes of the simulated cells."""
    programs: Count
    """Number of gene programs. A cell type is a sparse mixture of them."""
    regulators: Count
    """Number of genes that jointly regulate each gene (section 1 of the paper)."""
    median_length: Count
    """Median number of expressed genes per cell."""
    donors: Count
    """Number of donors of each dataset."""


class Download(Section):
    """How and from where files are downloaded. These settings do not change results."""

    hosts: DistinctNotEmpty[Host]
    """Hosts from which files may be downloaded."""
    folder: Folder | None
    """Folder that presets may share. ``null`` means ``corpus/downloads`` in the results folder."""
    keep_files: bool
    """Whether to keep raw files. If false, a training file is deleted when its tokens are written,
    even from a shared folder."""
    connections: Annotated[int, Field(ge=1, le=64), NUMBER]
    """Maximum number of simultaneous downloads or requests per job."""
    attempts: Count
    """Number of attempts without progress after which a job fails."""
    timeout: Positive
    """Seconds without data after which a connection counts as broken."""
    longest_pause: NotNegative
    """Longest pause between two attempts in seconds, even if ``Retry-After`` is longer."""


class Corpus(Section):
    """Source of all cells, and selection of the training cells."""

    source: Source
    """Source of the cells: ``embedded`` (in the package, works offline), ``local`` (your own files)
    or ``cellxgene`` (downloads from CELLxGENE Discover)."""
    parts: Annotated[int, Field(ge=1, le=10_000), NUMBER]
    """Number of parts of the training files. One job per part downloads, counts or tokenizes."""
    snapshot: Annotated[
        str,
        Field(pattern="^[0-9]{4}-(0[0-9]|1[0-2])-([0-2][0-9]|3[01])$"),
        expecting("a date such as 2024-06-11"),
    ]
    """Date. Of each training dataset, the newest version published until this date is used."""
    organisms: DistinctNotEmpty[Text]
    """Organisms of the training files. Files with other organisms are left out."""
    assays: DistinctNotEmpty[Text] | None
    """Assays of the training files, by label or ontology id. Files with other assays are left out.
    ``rna`` means the assays in ``src/scsigmoid/corpus/rna_assays.csv``. ``null`` means all."""
    leave_out: list[Identifier]
    """CELLxGENE ids of datasets or dataset versions that are not trained on."""
    manifest: InputFile | None
    """Lock file of an earlier run, to use the same files. ``null`` asks the service for files."""
    api: Text
    """Address of the curation API of CELLxGENE Discover."""
    maximum_file_gb: Positive | None
    """Largest size of a training file in GB (1e9 bytes). ``null`` means no limit."""
    maximum_cells: Count | None
    """Largest number of training cells. Files are taken in random order, without those that would
    exceed it. ``null`` means no limit."""
    maximum_gb: Positive | None
    """Largest total of the training files in GB, applied like ``maximum_cells``. ``null`` means no
    limit."""
    download: Download
    local: list[LocalFiles]
    """Your own files."""
    embedded: EmbeddedCorpus


class Dataset(Section):
    """An evaluation dataset (Table 4 of the paper)."""

    title: Annotated[str, Field(pattern=r"\S"), expecting("text that is not blank")]
    """Title in tables and figures. For a dataset with ``file``, the default is its name."""
    id: Identifier | None = None
    """CELLxGENE id of the dataset."""
    file: Text | None = None
    """Your own h5ad file, instead of an ``id``. All its cells are evaluated. 10x files do not
    contain a label, so they cannot be evaluated. Works with every ``corpus.source``."""
    label: Label = "cell_type"
    """Column of ``obs`` with the cell type, or a list of columns. Of a list, the first column that
    exists is used or, if ``types`` is set, the column with most of these types. ``"*"`` means all
    text columns."""
    types: Distinct[Text] = []
    """Cell types that the file must contain, in the order of the MMD table. Case, word order and
    the word "cell" are ignored."""
    batch: Text | None = None
    """Column of ``obs`` with the batch, such as the donor or the condition. With it, the scores
    ``ilisi`` and ``graph_connectivity`` are added to ``evaluation.scib.metrics``, and UMAP is also
    colored by batch."""
    description: str = ""
    """Description in one sentence, for the table of datasets."""
    compared: list[Literal["mmd", "umap"]] = []
    """Analyses of this dataset: ``mmd`` and ``umap``. An analysis that no dataset lists is made for
    all datasets, but MMD not for the cells of ``corpus.local``."""

    @property
    def labels(self) -> list[str]:
        return [self.label] if isinstance(self.label, str) else self.label


class VocabularyChoice(Section):
    """Selection of the genes that get a token."""

    genes: InputFile | None
    """File with one gene id per line. Exactly these genes get tokens. Genes that no training cell
    expresses have a median of 1. ``null`` selects genes by the other settings."""
    sizes: dict[Literal["Homo sapiens", "Mus musculus", "other"], CountOrZero] | None
    """Largest number of genes of each organism. Genes that more training cells express are
    preferred. ``other`` limits genes without an Ensembl id. ``null`` means no limit. Genes of
    ``training.initial`` always have tokens: 0 adds no others."""


class Tokens(Section):
    """How a cell becomes a sequence of gene tokens."""

    minimum_genes: CountOrZero
    """Smallest number of expressed genes of a training cell. Other cells are left out."""
    cls: bool
    """Whether a sequence starts with the token ``<cls>``. It counts toward the context."""
    minimum_cells: Count
    """Smallest number of training cells that express a gene of the vocabulary."""
    vocabulary: VocabularyChoice
    # The largest value keeps the number of tokens of a file within Arrow's 32-bit offsets.
    shard_cells: Annotated[int, Field(ge=1, le=32_768), NUMBER]
    """Cells per file of the token store."""


class Size(Section):
    """Dimensions of an encoder (Table 2 of the paper, other sizes are inferred)."""

    layers: Count
    """Number of transformer blocks."""
    hidden: Count
    """Width of the residual stream."""
    heads: Count
    """Number of attention heads. The head dimension is ``hidden / heads``."""
    feed_forward: Count
    """Width of the feed-forward layer."""


class Architecture(Section):
    """Settings of the encoder that all models share (Table 2 of the paper)."""

    size: str
    """Name of an entry of ``sizes``."""
    dropout: FractionOrZero
    """Dropout probability."""
    layer_norm_epsilon: Positive
    """Epsilon of the layer normalizations."""
    initializer_range: Positive
    """Standard deviation of the initial weights."""
    variants: list[Variant] = []
    """Changes to attention that are not in the paper. See ``src/scsigmoid/model/encoder.py``."""


class Execution(Section):
    """How a training run is executed and recorded. These settings change a model by rounding only.
    A finished model is not trained again, and an unfinished run continues with new values."""

    micro_batch_tokens: Count
    """Largest number of tokens in a forward pass. Lower it to save memory."""
    log_every: Count
    """Number of steps between two rows of ``journal.csv``."""
    checkpoint_every: Count
    """Number of steps between two checkpoints."""
    keep_checkpoints: Count
    """Number of checkpoints to keep."""
    threads: Annotated[int, Field(ge=1, le=1024), NUMBER]
    """Number of CPU threads. It changes results by rounding only."""
    workers: Annotated[int, Field(ge=0, le=1024), NUMBER]
    """Number of threads that prepare batches in advance. 0 means that the main thread does."""
    deterministic: bool
    """Whether runs on a GPU give identical results, as runs on a CPU always do. This is slower."""


class Training(Section):
    """How a model is trained (Tables 2 and 3 of the paper). An unfinished run continues with other
    values of ``steps``, ``validate_every``, ``patience`` and ``snapshots``."""

    steps: Annotated[int, Field(ge=1, le=MOST_STEPS), NUMBER]
    """Number of optimizer steps, at most 99,999,999."""
    global_batch: Count
    """Number of cells per optimizer step, summed over all GPUs."""
    learning_rate: Positive
    """Learning rate of AdamW after the warm-up."""
    warmup_steps: CountOrZero
    """Number of steps of linear warm-up."""
    weight_decay: NotNegative
    """Weight decay of AdamW."""
    betas: Annotated[list[FractionOrZero], Field(min_length=2, max_length=2)]
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
    validate_every: CountOrZero
    """Number of steps between two validations. 0 means no validation."""
    validation_cells: CountOrZero
    """Number of cells of the training files that are kept for the validation loss and not trained
    on. They are the same for every seed."""
    patience: CountOrZero = 0
    """Training stops early if none of the last ``patience`` validation losses is 0.2 % below the
    lowest loss before them. 0 means that training never stops early."""
    initial: Text | None = None
    """Model file that training starts from: ``blood``, the model in the package, or the path of a
    ``model.safetensors``. Its genes keep their tokens and medians. Genes that it lacks are added if
    they are among those of ``tokens.vocabulary.sizes``. Attention, context and size must be those
    of this model. A file with other content trains again. All models that start from a file share
    it; for a model from scratch, set ``models.<name>.training.initial: null``. ``null`` means
    random weights."""
    snapshots: list[Count] = []
    """Steps after which a copy of the model is written, if they are below ``steps``."""
    execution: Execution

    @property
    def snapshot_suffixes(self) -> dict[int, str]:
        """Suffix of each snapshot's file, e.g. ``-step-00002000``, by step in ascending order."""
        return {step: f"-step-{step:08d}" for step in sorted(self.snapshots) if step < self.steps}


class Model(Section):
    """A model to train."""

    attention: Attention
    """Attention mechanism."""
    context: Context
    """Maximum number of tokens of a sequence. Longer cells are truncated."""
    size: str | None = None
    """Name of an entry of ``sizes``. ``null`` means ``architecture.size``."""
    stress: bool = False
    """Whether the model is only trained, for the stress test (figure ``stability``)."""
    backend: str = "auto"
    """Attention backend (docs/architecture.md). ``auto``: the fastest that the device supports."""
    training: dict[str, Any] = {}
    """Settings that replace values of ``training`` for this model."""


class StudyFamily(Section):
    """A family of training runs, one for every combination of the listed values."""

    purpose: Purpose | None = None
    """Comparison in the tables and figures of the family: ``rates`` (learning rates), ``seeds``
    (sigmoid and softmax), ``variants`` (variants of attention and the runs of ``seeds``),
    ``stability`` (collapsed runs at each learning rate) or ``sizes`` (sizes of the model). The
    figure of ``stability`` shows the first such family. ``null`` means that only ``runs.csv`` and
    ``curves.csv`` contain the runs. With a purpose, ``validation_cells`` and ``mask_fraction`` must
    be those of ``training``."""
    attention: DistinctNotEmpty[Attention]
    """Attention mechanisms."""
    context: DistinctNotEmpty[Context]
    """Context lengths."""
    size: DistinctNotEmpty[str]
    """Names of entries of ``sizes``."""
    seed: DistinctNotEmpty[Seed]
    """Seeds of weights, order of cells, masks and dropout. All seeds use the same cells."""
    variants: Annotated[list[list[Variant]], Field(min_length=1)] = [[]]
    """Values of ``architecture.variants``. Each value is a list."""
    training: dict[str, Any] = {}
    """Settings that replace values of ``training`` for this family. A list gives one run per value.
    A mapping gives a value for each attention mechanism."""
    embedded: str | None = None
    """Evaluation dataset that is embedded and scored with the final model and each snapshot."""


class Embeddings(Section):
    """How cells are embedded."""

    batch_tokens: Count
    """Number of tokens per forward pass. Lower it to save memory."""


class ValidationLoss(Section):
    """Validation loss over random masks (appendix "Validation Loss")."""

    trials: Count
    """Number of random masks of each cell."""
    mask_fraction: Fraction
    """Fraction of the gene tokens of a cell that is masked."""
    confidence: Fraction
    """Confidence level of the intervals."""
    batch_tokens: Count
    """Number of tokens per forward pass. Lower it to save memory."""


class Scib(Section):
    """scIB metrics (appendix "SCIB Biological Conservation Metrics")."""

    metrics: DistinctNotEmpty[Metric]
    """Metrics to compute. Their mean uses only the paper's three metrics. ``ilisi`` and
    ``graph_connectivity`` need a dataset with ``batch``, which adds them."""
    neighbors: TwoOrMore
    """Number of nearest neighbors of a cell, including itself."""
    variance: Fraction
    """Fraction of the variance that the principal components keep."""
    controls: Distinct[Control]
    """Embeddings scored next to the models: random values, the PCA of log counts, or the log counts
    of the 2,000 most variable genes. ``initial``, the model that training starts from as it is, is
    added if ``training.initial`` is set."""


class Mmd(Section):
    """Maximum mean discrepancy between cell types (appendix "Maximum Mean Discrepancy")."""

    resamples: Annotated[int, Field(ge=1, le=100_000), NUMBER]
    """Number of bootstrap resamples of each pair of cell types. All are in memory at once."""
    confidence: Fraction
    """Confidence level of the percentile intervals."""
    estimator: Literal["unbiased", "biased"]
    """Estimator that the tables show. Both estimators are computed."""
    minimum_cells: TwoOrMore
    """Smallest number of cells of a cell type. Cell types with fewer cells are left out."""
    block_cells: Count
    """Number of rows of the kernel matrix computed at once. Lower it to save memory."""


class Umap(Section):
    """UMAP (appendix "UMAP Visualization")."""

    neighbors: TwoOrMore
    """Number of nearest neighbors of a cell."""
    minimum_distance: Annotated[float, Field(ge=0, le=1), NUMBER]
    """Smallest distance between cells in the plot (``min_dist`` of umap-learn)."""
    variance: Fraction
    """Fraction of the variance that the principal components keep."""


class Evaluation(Section):
    """How trained models are evaluated."""

    pair: DistinctNotEmpty[str]
    """Models that scIB, MMD and UMAP compare. MMD needs both attentions at the same context."""
    embeddings: Embeddings
    validation_loss: ValidationLoss
    scib: Scib
    mmd: Mmd
    umap: Umap


class KernelBenchmark(Section):
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


class TrainingBenchmark(Section):
    """The training benchmark (section "Training Speed Performance"). It times every combination of
    size, context, number of cells and kernel."""

    sizes: DistinctNotEmpty[str]
    """Names of entries of ``sizes``."""
    contexts: DistinctNotEmpty[Context]
    """Context lengths."""
    cells_per_gpu: DistinctNotEmpty[TwoOrMore]
    """Numbers of cells per step on one GPU."""
    kernels: DistinctNotEmpty[Text] | None
    """Attention kernels to time. ``null`` means all."""
    vocabulary: Annotated[int, Field(ge=8, le=LARGEST), NUMBER]
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


class Benchmarks(Section):
    """Benchmarks of speed."""

    kernel: KernelBenchmark
    training: TrainingBenchmark


class Config(Section):
    """Settings outside of sections."""

    preset: str
    """Preset: name of a file in ``workflow/presets`` that replaces values of ``config.yaml``."""
    results: Folder | None
    """Folder of the results. ``null`` means ``results/<preset>``."""
    seed: Seed
    """Seed from which all other seeds are derived."""
    device: Device
    """Device of the models. ``auto``: a GPU if there is one. Changes results by rounding only."""
    gpus: Annotated[int, Field(ge=1, le=64), NUMBER]
    """Number of GPUs per machine that train one model. It changes results by rounding only."""
    nodes: Annotated[int, Field(ge=1, le=10_000), NUMBER]
    """Number of machines that train one model, on Slurm only (see docs/running.md)."""
    corpus: Corpus
    datasets: Annotated[dict[Name, Dataset], Field(min_length=1)]
    """The evaluation datasets, by name. ``<name>: null`` removes a dataset."""
    tokens: Tokens
    sizes: dict[str, Size]
    """Sizes of encoders, by name."""
    architecture: Architecture
    training: Training
    models: Annotated[dict[Name, Model], Field(min_length=1)]
    """The models to train, by name. ``<name>: null`` removes a model."""
    evaluation: Evaluation
    benchmarks: Benchmarks
    study: dict[Name, StudyFamily] = {}
    """Families of training runs that are compared, by name (see docs/reproduction.md)."""
    choices: dict[str, str] = {}
    """Values chosen for settings that were ``auto``, with reasons. The program writes them."""

    def size_of(self, model: str) -> Size:
        return self.sizes[self.models[model].size or self.architecture.size]
