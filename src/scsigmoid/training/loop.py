"""Training one model, from the token store to the weights."""

import hashlib
import json
import platform
import signal
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from scsigmoid import __version__
from scsigmoid.attention import choose_backend
from scsigmoid.errors import UserError
from scsigmoid.model.encoder import Encoder
from scsigmoid.progress import log
from scsigmoid.seeds import derive
from scsigmoid.tokens.store import TokenStore, read_index
from scsigmoid.tokens.vocabulary import Vocabulary
from scsigmoid.training.batches import GlobalBatches
from scsigmoid.training.checkpoints import Checkpoint, Checkpoints
from scsigmoid.training.devices import device_name, peak_memory_gb, resolve_device, synchronise
from scsigmoid.training.display import Display
from scsigmoid.training.export import save_encoder
from scsigmoid.training.interruption import stop_requests
from scsigmoid.training.journal import Journal, Row, as_csv, from_csv
from scsigmoid.training.run import TrainingRun
from scsigmoid.training.step import StepResult, Trainer

MODEL = "model.safetensors"
JOURNAL = "journal.csv"
CHECKPOINTS = "checkpoints"


def train(run: TrainingRun, stores: Sequence[Path], vocabulary: Path, output: Path) -> None:
    """Train a model, or go on from its last checkpoint.

    On the CPU the result is the same to the bit whether or not the run was interrupted.  A loss
    that is not finite is logged and training goes on: divergence is a result.  SIGTERM and SIGINT
    end the run after the step, with a checkpoint.

    Args:
        run: what to train.
        stores: folders of the training cells' token store, in order.
        vocabulary: ``vocabulary.parquet``.
        output: folder of the model: gets ``model.safetensors``, ``journal.csv`` and, for resuming,
            ``checkpoints/``.

    Raises:
        UserError: for stores of another vocabulary or too short a cut, checkpoints of another
            configuration, a device or backend that is not there, or too little GPU memory.
        SystemExit: after SIGTERM (143) or SIGINT (130).
    """
    torch.set_num_threads(run.training.threads)
    device = resolve_device(run.device)
    backend = choose_backend(run.attention, run.backend, device)
    known = Vocabulary.read(vocabulary)
    store = open_store(run, stores, known.fingerprint)
    data = fingerprint(stores)

    encoder = Encoder(run.encoder_settings(known.size)).initialise(derive(run.seed, "weights"))
    trainer = Trainer(encoder, run.training, run.seed, device)
    checkpoints = Checkpoints(output / CHECKPOINTS, run.training.keep_checkpoints)
    identity = run.identity(known.fingerprint, data)
    checkpoint = checkpoints.resume(identity, run.training.steps)
    step, seconds, rows = 0, 0.0, ""
    if checkpoint is not None:
        step, seconds, rows = checkpoint.step, checkpoint.seconds, checkpoint.journal
        encoder.load_state_dict(checkpoint.model)
        trainer.optimiser.load_state_dict(checkpoint.optimiser)
        del checkpoint  # three times the size of the model
        log(f"{run.model}: going on from the checkpoint after step {step}")
    machine = {"device": device_name(device), "backend": backend}
    journal = Journal(
        output / JOURNAL, {**versions(), **machine, **described(run, encoder)}, from_csv(rows)
    )
    batches = GlobalBatches(store, run.context, run.training, run.seed, known.size)
    try:
        loop(run, trainer, batches, checkpoints, journal, identity, step, seconds)
    except torch.OutOfMemoryError:
        budget = run.training.micro_batch_tokens
        raise UserError(
            f"training.micro_batch_tokens: {budget} tokens do not fit in the GPU's memory; lower "
            f"it, for example to {max(run.context, budget // 2)}, or take a smaller model"
        ) from None
    journal.write()
    save_encoder(encoder, run, known.fingerprint, run.training.steps, output / MODEL)


def loop(
    run: TrainingRun,
    trainer: Trainer,
    batches: GlobalBatches,
    checkpoints: Checkpoints,
    journal: Journal,
    identity: dict[str, str],
    first: int,
    seconds: float,
) -> None:
    """Take the steps after step ``first``, which ``seconds`` of training led to."""
    training = run.training
    meter = Meter(trainer.device, seconds)

    def save(step: int) -> None:
        checkpoints.save(
            Checkpoint(
                step=step,
                steps=training.steps,
                seconds=meter.seconds(),
                identity=identity,
                journal=as_csv(journal.rows),
                model=trainer.encoder.state_dict(),
                optimiser=trainer.optimiser.state_dict(),
            )
        )

    with (
        stop_requests() as request,
        closing(Display(run.model, first, training.steps)) as display,
    ):
        for step in range(first + 1, training.steps + 1):
            begin = time.perf_counter()
            micro_batches = batches[step]
            meter.waited(time.perf_counter() - begin)
            logging = step == 1 or step % training.log_every == 0 or step == training.steps
            # Before the update: the score belongs to the weights that the loss belongs to.
            score = trainer.attention_score_max(micro_batches[0]) if logging else 0.0
            result = trainer.step(step, micro_batches)
            meter.count(result)
            display.step()
            if logging:
                row = meter.row(step, result, trainer.optimiser.param_groups[0]["lr"], score)
                journal.append(row)
                display.show(step, row.loss, row.cells_per_second)
            last = step == training.steps
            if last or request.signal or step % training.checkpoint_every == 0:
                save(step)
            if request.signal and not last:
                name = signal.Signals(request.signal).name
                log(f"{run.model}: stopped by {name} after step {step}; run again to go on")
                raise SystemExit(128 + request.signal)


class Meter:
    """Rates and times between two rows of the journal."""

    def __init__(self, device: torch.device, seconds: float) -> None:
        self.device = device
        self._before = seconds
        self._begin = self._last = time.perf_counter()
        self._cells = self._tokens = 0
        self._wait = 0.0

    def seconds(self) -> float:
        """Time spent training so far, earlier runs included."""
        return self._before + time.perf_counter() - self._begin

    def waited(self, seconds: float) -> None:
        """Batches took so long to prepare."""
        self._wait += seconds

    def count(self, result: StepResult) -> None:
        """A step was taken."""
        self._cells += result.cells
        self._tokens += result.tokens

    def row(self, step: int, result: StepResult, rate: float, score: float) -> Row:
        """The row of a logging step; waits for the device and starts the next interval."""
        synchronise(self.device)
        now = time.perf_counter()
        elapsed = max(now - self._last, 1e-9)
        row = Row(
            step=step,
            loss=float(result.loss),
            gradient_norm=float(result.gradient_norm),
            learning_rate=rate,
            attention_score_max=score,
            cells_per_second=self._cells / elapsed,
            tokens_per_second=self._tokens / elapsed,
            seconds=self._before + now - self._begin,
            data_wait=self._wait / elapsed,
            peak_memory_gb=peak_memory_gb(self.device),
        )
        self._last = now
        self._cells = self._tokens = 0
        self._wait = 0.0
        return row


def open_store(run: TrainingRun, stores: Sequence[Path], vocabulary: str) -> TokenStore:
    """Open the training cells and check that they suit the run."""
    store = TokenStore.open(stores, vocabulary)
    if not len(store):
        raise UserError(f"{stores[0]}: no training cells; check the corpus")
    if store.maximum_length < run.context - 1:
        raise UserError(
            f"{stores[0]}: cells are cut at {store.maximum_length} genes, too short for context "
            f"{run.context}; make the tokens again"
        )
    return store


def fingerprint(stores: Sequence[Path]) -> str:
    """SHA-256 over the checksums of all shards, in order: what the training cells are."""
    sums = [shard["sha256"] for folder in stores for shard in read_index(Path(folder))["shards"]]
    return hashlib.sha256("\n".join(sums).encode()).hexdigest()


def versions() -> dict[str, str]:
    """Versions of what computes."""
    return {
        "scsigmoid": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda or "none"),
        "numpy": np.__version__,
    }


def described(run: TrainingRun, encoder: Encoder) -> dict[str, str]:
    """The run in the journal's header."""
    return {
        "model": run.model,
        "attention": run.attention,
        "context": str(run.context),
        "parameters": str(sum(parameter.numel() for parameter in encoder.parameters())),
        "seed": str(run.seed),
        "size": json.dumps(asdict(run.size)),
        "architecture": json.dumps(asdict(run.architecture)),
        "training": json.dumps(asdict(run.training)),
    }
