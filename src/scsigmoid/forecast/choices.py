"""Values for settings that are ``auto``, chosen from the user's cells and the device.

All runs in a results folder choose the same values, because the device and the warm-up are read
from the stored configuration of the first run.
"""

import ctypes
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from scsigmoid.config.check import read_yaml
from scsigmoid.config.compared import select_same_cells
from scsigmoid.config.initial import initial_header, initial_path
from scsigmoid.config.local_files import expand
from scsigmoid.config.schema import Corpus, CountOrZero, Device
from scsigmoid.config.validate import validate
from scsigmoid.errors import UserError
from scsigmoid.model.sizes import EncoderSettings, count_flops
from scsigmoid.progress import verbosity

if TYPE_CHECKING:
    from scsigmoid.forecast.sample import Sample

T = TypeVar("T", int, bool)

AUTO = "auto"
#: Fraction of the cells that fit into the chosen context, unless :attr:`Scale.context` limits it.
COVERED = 0.95
MULTIPLE = 64  # contexts are multiples of this
MASKED = 0.15  # share of masked genes, for the number of operations
PATIENCE = 5  # number of validations without progress that end training
CONTINUED_RATE = 3e-4  # learning rate of training that starts from a model


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Settings with which training takes minutes on a type of device."""

    size: str  # of the model
    context: int  # longest context in tokens
    genes: int  # largest number of genes of an organism in the vocabulary
    batch: int  # cells per optimizer step
    tokens: int  # tokens per forward pass
    rate: float  # learning rate
    warmup: int  # steps of linear warm-up
    cells: int  # largest number of training cells, over all passes
    passes: int  # largest number of passes over the training cells
    operations: float  # floating-point operations of training that starts from a model
    validations: int = 30  # number of validations of a run
    trials: int = 15  # number of masks of each held-out cell


SCALES = {
    "cpu": Scale(
        size="tiny", context=128, genes=3000, batch=16, tokens=8192, rate=1e-3, warmup=100,
        cells=80_000, passes=100, operations=1e13,
    ),
    "cuda": Scale(
        size="small", context=4096, genes=20_000, batch=64, tokens=65_536, rate=1e-3, warmup=200,
        cells=250_000, passes=100, operations=2e17,
    ),
}  # fmt: skip


def choose(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with values in place of ``auto``, and the reasons in ``choices``.

    ``values`` is the merged configuration, not yet checked. It is returned unchanged unless
    ``corpus.source`` is ``local``. Raise a UserError if ``corpus`` is wrong or a file unreadable.
    """
    if not isinstance(values.get("corpus"), Mapping) or values["corpus"].get("source") != "local":
        return dict(values)
    settings = AutoSettings(values)
    for model in settings.models.values():
        model.setdefault("context", AUTO)  # a missing context is `auto`
    # If nothing else is `auto`, the device stays `auto`: jobs choose their device themselves.
    if not has_auto({**settings.values, "device": None}):
        return settings.values
    # Snakemake alone can parse the workflow: only a run on own cells needs packages that read them.
    from scsigmoid.forecast.sample import sample_cells

    corpus = validate(values["corpus"], Corpus, "corpus")
    choose_initial(settings, corpus)
    seed = values.get("seed", 0)  # not yet checked, as all sections but `corpus`
    initial, vocabulary = settings["training.initial"], None
    if isinstance(initial, str) and settings["tokens.vocabulary.sizes"] == AUTO:
        from scsigmoid.model.weights import load_vocabulary

        vocabulary = load_vocabulary(initial_path(initial))  # cells get tokens of these genes only
    sample = sample_cells(corpus, seed if isinstance(seed, int) else 0, vocabulary)
    first_run = stored_configuration(settings)
    choose_device(settings, first_run.get("device"))
    scale = SCALES["cpu" if settings["device"] == "cpu" else "cuda"]
    choose_model(settings, scale, sample)
    warmup = warmup_to_keep(first_run, settings["training.initial"], corpus)
    choose_training(settings, continued(settings, scale), sample, warmup)
    reason = f"of the cells, genes of {initial}" if vocabulary else "of the cells"
    settings.fill("benchmarks.training.median_length", max(1, sample.quantile(0.5)), reason)
    models = settings.models.items()
    scored = [name for name, model in models if not as_kind(bool, model.get("stress"))]
    settings.fill("evaluation.pair", scored, "all models")
    return settings.values


class AutoSettings:
    """A merged configuration, with access by dotted name. Missing settings are None."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values: dict[str, Any] = deepcopy(dict(values)) | {"choices": {}}

    def __getitem__(self, name: str) -> Any:
        value: Any = self.values
        for key in name.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        return value

    def positive(self, name: str, otherwise: int) -> int:
        """Return a setting if it is a positive integer, else ``otherwise``."""
        value = as_kind(int, self[name])
        return value if value and value > 0 else otherwise

    def fill(self, name: str, value: Any, reason: str) -> None:
        """Replace a setting if it is ``auto``, and record the value and the reason."""
        if self[name] != AUTO:
            return
        section, _, key = name.rpartition(".")
        (self[section] if section else self.values)[key] = value
        self.values["choices"][name] = f"{as_text(value)}: {reason}"

    @property
    def models(self) -> dict[str, dict[str, Any]]:
        models = self["models"]
        pairs = models.items() if isinstance(models, Mapping) else ()
        return {name: model for name, model in pairs if isinstance(model, dict)}


def as_kind(kind: type[T], value: Any) -> T | None:
    """Return the value of a setting as the schema reads it, or None if it has another type.

    Snakemake passes the numbers of ``--config 'training={steps: 5}'`` as text.
    """
    with suppress(ValidationError):
        return TypeAdapter(kind).validate_python(value)
    return None


def as_text(value: Any) -> str:
    """Return the value of a setting as one line of text."""
    if isinstance(value, dict):
        value = [f"{name} {item}" for name, item in value.items()]
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def has_auto(value: Any) -> bool:
    """Return True if a setting is ``auto``, or if a section contains such a setting."""
    if isinstance(value, Mapping):
        return any(map(has_auto, value.values()))
    return bool(value == AUTO)


class FirstTraining(BaseModel):
    """The settings of ``training`` that later runs may keep."""

    warmup_steps: CountOrZero | None = None


class FirstRun(BaseModel):
    """The settings of the first run that later runs may keep. Other settings are not checked."""

    device: Device = "auto"
    choices: dict[str, str] = {}
    training: FirstTraining = FirstTraining()


def stored_configuration(settings: AutoSettings) -> dict[str, Any]:
    """Return the stored configuration of the first run in the results folder, {} before it.

    Raise a UserError if the file is damaged or a value that may be kept is wrong.
    """
    preset, results = settings["preset"], settings["results"]
    path = Path(results if isinstance(results, str) else f"results/{preset}") / "config.yaml"
    values = read_yaml(path) if path.is_file() else {}
    try:
        validate(values, FirstRun)
    except UserError as error:
        raise UserError(f"{path}: {error}; correct the stored value") from None
    return values


def warmup_to_keep(first_run: Mapping[str, Any], initial: Any, corpus: Corpus) -> Any:
    """Return the warm-up that the first run chose, or None if it chose none or had other cells.

    The warm-up follows from the number of steps, but unlike that it determines the trained model.
    It is kept so that a run with another number of steps continues the first run. A run that starts
    from another model (``initial``) cannot continue it.
    """
    first, warmup = AutoSettings(first_run), "training.warmup_steps"
    with suppress(UserError):  # the first run was made by another version
        if (
            warmup in first_run.get("choices", {})
            and first["training.initial"] == initial
            and select_same_cells(validate(first["corpus"], Corpus), corpus)
        ):
            return first[warmup]
    return None


def choose_initial(settings: AutoSettings, corpus: Corpus) -> None:
    """Choose size and contexts of the initial model, or no initial model for cells of other genes.

    The setting ``training.initial`` is removed, and the reason recorded, if a file has no gene of
    the model. Files of 10x, which are not opened here, are compared when the vocabulary is made.
    """
    initial = settings["training.initial"]
    if not isinstance(initial, str):
        return
    header = initial_header(initial)
    if reason := find_other_genes(initial, corpus):
        settings.values["training"]["initial"] = None
        settings.values["choices"]["training.initial"] = f"none, training from scratch: {reason}"
        return
    if settings["architecture.size"] == AUTO and isinstance(settings["sizes"], dict):
        if settings.values["sizes"].setdefault("initial", header["size"]) != header["size"]:
            raise UserError(
                "sizes.initial: differs from the size of training.initial, which gets this name; "
                "choose another name"
            )
        settings.fill("architecture.size", "initial", f"the size of {initial}")
    for name in settings.models:
        settings.fill(f"models.{name}.context", header["context"], f"the context of {initial}")


def find_other_genes(initial: str, corpus: Corpus) -> str:
    """Return why own files cannot be tokens of an initial model, "" if they can.

    Raise a UserError if the file of the model is damaged.
    """
    from scsigmoid.corpus.tenx import open_h5ad_files
    from scsigmoid.model.weights import checksum, load_vocabulary, read
    from scsigmoid.tokens.known_genes import with_known_genes

    path = initial_path(initial)
    vocabulary = load_vocabulary(path)  # first, because it also reports a truncated file
    metadata, weights, _ = read(path)
    if metadata.get("sha256") != checksum(metadata, weights):
        raise UserError(f"training.initial: {path}: its checksum differs; copy the model again")
    with verbosity(False):
        for _, cells in open_h5ad_files(expand(corpus.local)):
            try:
                with_known_genes(cells, vocabulary.name_of, vocabulary.retired)
            except UserError as error:
                return str(error).partition(";")[0]  # without the remedy
    return ""


def continued(settings: AutoSettings, scale: Scale) -> Scale:
    """Return the scale of training that starts from an initial model, if there is one.

    Its number of cells has :attr:`Scale.operations`. If this is less than the usual number of
    cells, there are fewer validations and masks, which would take longer than training.
    """
    initial = settings["training.initial"]
    if not isinstance(initial, str):
        return scale
    header = initial_header(initial)
    encoder = EncoderSettings(
        attention=header["attention"], context=header["context"], **header["size"],
        vocabulary_size=header["vocabulary_size"], dropout=0.0, layer_norm_epsilon=0.0,
        initializer_range=0.0,
    )  # fmt: skip
    operations = count_flops(encoder, [encoder.context], round(MASKED * encoder.context))
    cells = round(scale.operations / operations)
    if cells < scale.cells:
        scale = replace(scale, cells=max(1, cells), validations=10, trials=3)
    return replace(scale, rate=CONTINUED_RATE)


def choose_device(settings: AutoSettings, device: Any) -> None:
    """Choose the ``device`` of the first run, or else a GPU if there is one."""
    where = "in the first run"
    if device not in SCALES:  # there was no run, or its device was `auto`
        device, where = ("cuda" if gpu_memory() else "cpu"), "on this machine"
    reason = f"{'no GPU' if device == 'cpu' else 'a GPU'} {where}"
    settings.fill("device", device, reason)


def gpu_memory() -> int:
    """Return the memory of the first GPU in bytes, or 0 if the CUDA driver finds none.

    Importing PyTorch would take seconds.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    gpu, size = ctypes.c_int(), ctypes.c_size_t()
    # Functions of the driver return 0 on success.
    failed = (
        driver.cuInit(0)
        or driver.cuDeviceGet(ctypes.byref(gpu), 0)
        or driver.cuDeviceTotalMem_v2(ctypes.byref(size), gpu)
    )
    return 0 if failed else size.value


def choose_model(settings: AutoSettings, scale: Scale, sample: "Sample") -> None:
    """Choose size, contexts and vocabulary."""
    device = "a CPU" if scale is SCALES["cpu"] else "a GPU"
    settings.fill("architecture.size", scale.size, f"trains in minutes on {device}")
    genes = sample.quantile(COVERED)
    tokens = genes + (as_kind(bool, settings["tokens.cls"]) or 0)  # one more for <cls>
    context = ceil(tokens / MULTIPLE) * MULTIPLE
    reason = f"{COVERED * 100:g} % of the cells express at most {genes:,} genes"
    if context > scale.context:
        reason += f"; on {device} the first {scale.context:,} tokens"
    for name in settings.models:
        settings.fill(f"models.{name}.context", min(context, scale.context), reason)
    organisms = ("Homo sapiens", "Mus musculus", "other")  # other: genes without an Ensembl id
    added = scale.genes
    reason = f"the genes in most cells, of each organism; more take longer on {device}"
    if isinstance(settings["training.initial"], str):
        added, reason = 0, "the genes of the initial model"
    settings.fill("tokens.vocabulary.sizes", dict.fromkeys(organisms, added), reason)


def choose_training(
    settings: AutoSettings, scale: Scale, sample: "Sample", first_warmup: int | None
) -> None:
    """Choose batch, learning rate and the number of steps.

    ``first_warmup`` is the warm-up of the first run, if it is kept.
    """

    def fill(name: str, value: Any, reason: str) -> None:
        settings.fill(f"training.{name}", value, reason)

    size_reason = f"for a model of size {settings['architecture.size']}"
    fill("global_batch", scale.batch, size_reason)
    fill("learning_rate", scale.rate, size_reason)
    contexts = [as_kind(int, model.get("context")) for model in settings.models.values()]
    longest = max(filter(None, contexts), default=0)
    fill("execution.micro_batch_tokens", max(scale.tokens, longest), "bounds the memory")
    batch = settings.positive("training.global_batch", scale.batch)
    most_validated = min(256, max(1, scale.cells // 20))
    if sample.cells is None:
        cells, passes_text, validation_cells = scale.cells, "", most_validated
    else:
        cells = min(scale.cells, scale.passes * sample.cells)
        passes_text = f", {cells / sample.cells:.3g} passes over all,"
        validation_cells = max(1, min(most_validated, sample.cells // 10))
    reason = f"{cells:,} cells{passes_text} at most; fewer if the validation loss is flat"
    steps = ceil(cells / batch)
    fill("steps", steps, reason)
    steps = settings.positive("training.steps", steps)
    warmup = min(scale.warmup, ceil(steps / 5))
    if first_warmup in (None, warmup):  # with the same reason as in the first run
        fill("warmup_steps", warmup, size_reason)
    else:
        reason = "as in the first run"
        if first_warmup >= steps:
            reason += "; all steps are warm-up, so set training.warmup_steps"
        fill("warmup_steps", first_warmup, reason)
    interval = max(1, steps // scale.validations)
    fill("validate_every", interval, f"{scale.validations} validation losses")
    is_validated = as_kind(int, settings["training.validate_every"]) != 0
    reason = f"a tenth of the training cells, at most {most_validated}"
    fill("validation_cells", validation_cells if is_validated else 0, reason)
    reason = f"ends training if {PATIENCE} validation losses are not 0.2 % below the lowest before"
    fill("patience", PATIENCE if is_validated else 0, reason)
    reason = "masks of each held-out cell" + ("" if scale.trials == 15 else "; more take longer")
    settings.fill("evaluation.validation_loss.trials", scale.trials, reason)
    fill("execution.log_every", max(1, steps // 100), "100 rows in the journal")
    fill("execution.checkpoint_every", interval, "as often as the validation loss")
