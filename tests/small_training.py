"""Settings that tests of encoders and of training begin from."""

from dataclasses import fields, replace
from typing import Any

from scsigmoid.config.schema import Architecture, Training
from scsigmoid.model.sizes import EncoderSettings
from scsigmoid.training.journal import Row
from scsigmoid.training.run import TrainingRun

#: The paper's 160M.
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
    micro_batch_tokens=64,
    learning_rate=1e-4,
    warmup_steps=10,
    weight_decay=0.1,
    betas=[0.9, 0.999],
    epsilon=1e-8,
    gradient="mean",
    clipping=1.0,
    mask_fraction=0.15,
    mask_replacement="mask",
    log_every=1,
    validate_every=0,
    validation_cells=0,
    checkpoint_every=1,
    keep_checkpoints=1,
    threads=1,
    workers=0,
    deterministic=False,
)
# Of models that are written as they were initialised.
UNTRAINED = replace(
    TRAINING,
    steps=1,
    global_batch=1,
    learning_rate=0.0,
    warmup_steps=0,
    weight_decay=0.0,
    clipping=None,
)


def changed(run: TrainingRun, **training: Any) -> TrainingRun:
    """A run with other settings of training."""
    return replace(run, training=replace(run.training, **training))


def row(step: int, loss: float, **others: float | None) -> Row:
    """A row of a journal, whose other values are 1 where they are not given."""
    values = dict.fromkeys((field.name for field in fields(Row)), 1.0)
    return Row(**{**values, "mfu": None, "step": step, "loss": loss, **others})
