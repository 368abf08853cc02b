"""Settings, cells and batches for tests of encoders and of training."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from configurations import write_configuration_of

from scsigmoid.config.schema import Architecture, Execution, Training
from scsigmoid.model.batches import Batch, pack_genes
from scsigmoid.model.masking import Masking
from scsigmoid.model.sizes import EncoderSettings
from scsigmoid.tokens.store import store_schema
from scsigmoid.tokens.vocabulary import SPECIAL
from scsigmoid.training.journal import COLUMNS, Row, read_journal
from scsigmoid.training.run import TrainingRun

#: Settings of the paper's 160M model.
PAPER = EncoderSettings(
    attention="sigmoid",
    context=4096,
    layers=12,
    hidden=768,
    heads=12,
    feed_forward=3072,
    vocabulary_size=44_000,
    dropout=0.02,
    layer_norm_epsilon=1e-5,
    initializer_range=0.02,
)
TINY = replace(PAPER, context=32, layers=2, hidden=16, heads=2, feed_forward=32, vocabulary_size=50)

ARCHITECTURE = Architecture(
    size="small", dropout=0.02, layer_norm_epsilon=1e-5, initializer_range=0.02
)
TRAINING = Training(
    steps=10,
    global_batch=256,
    learning_rate=1e-4,
    warmup_steps=10,
    weight_decay=0.1,
    betas=[0.9, 0.999],
    epsilon=1e-8,
    gradient="mean",
    clipping=1.0,
    mask_fraction=0.15,
    mask_replacement="mask",
    validate_every=0,
    validation_cells=0,
    execution=Execution(
        micro_batch_tokens=64,
        log_every=1,
        checkpoint_every=1,
        keep_checkpoints=1,
        threads=1,
        workers=0,
        deterministic=False,
    ),
)


def changed(run: TrainingRun, **training: Any) -> TrainingRun:
    """Return a run with these values of its training settings."""
    return replace(run, training=with_values(run.training, **training))


def with_values(training: Training, **values: Any) -> Training:
    """Return settings of training with other values, also of ``training.execution``."""
    execution = {name: values.pop(name) for name in {*Execution.model_fields} & values.keys()}
    execution = training.execution.model_copy(update=execution)
    return training.model_copy(update={**values, "execution": execution})


def assert_same_run(first: Path, second: Path) -> None:
    """Compare the models of two runs byte by byte, and journals without times."""
    assert (first / "model.safetensors").read_bytes() == (second / "model.safetensors").read_bytes()
    (columns, _), (others, _) = (read_journal(folder / "journal.csv") for folder in (first, second))
    for name in ("step", "loss", "gradient_norm", "learning_rate", "attention_score_max"):
        np.testing.assert_array_equal(columns[name], others[name], err_msg=name)


def train_command(run: TrainingRun, corpus: Any, output: Path, gpus: int = 2) -> list[str]:
    """Return the arguments of ``scsigmoid train`` for a run."""
    configuration = write_configuration_of(run, output.with_name(f"{output.name}_configuration"))
    return [
        *("train", "--model", run.model, "--gpus", str(gpus), "--output", str(output)),
        *("--tokens", *map(str, corpus.stores), "--vocabulary", str(corpus.vocabulary)),
        *("--configuration", str(configuration)),
    ]


def row(step: int, loss: float, **others: float | None) -> Row:
    """Return a row of a journal. All other columns are 1, but ``mfu`` is None."""
    values = dict.fromkeys(COLUMNS, 1.0)
    return Row(**{**values, "mfu": None, "step": step, "loss": loss, **others})


def masked_batch(genes: Sequence[int], vocabulary_size: int = 100, fraction: float = 0.15) -> Batch:
    """Return a batch of random cells with these numbers of genes. A fraction is masked."""
    masking = Masking(
        seed=1, draw=1, fraction=fraction, replacement="mask", vocabulary_size=vocabulary_size
    )
    tokens = np.random.default_rng(0).integers(len(SPECIAL), vocabulary_size, sum(genes))
    return pack_genes(tokens, np.cumsum([0, *genes]), np.arange(len(genes)), masking)


def token_table(tokens: list[Any], vocabulary_size: int, **columns: Any) -> pa.Table:
    """Return cells in the columns of a token store. Text is empty unless it is in ``columns``."""
    lengths = [len(cell) for cell in tokens]
    schema = store_schema(vocabulary_size)
    values = {field.name: [""] * len(tokens) for field in schema}
    values |= {"input_ids": tokens, "length": lengths, "genes": lengths}
    values |= {"cell": range(len(tokens)), "is_primary": [True] * len(tokens), **columns}
    arrays = [pa.array(list(values[field.name]), field.type) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)
