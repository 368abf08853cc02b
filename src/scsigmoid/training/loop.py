"""Training of one model, from the token store to the weights."""

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext
from itertools import pairwise
from pathlib import Path
from signal import Signals

import numpy as np
import torch

from scsigmoid.attention.reference import weight_statistics
from scsigmoid.config.initial import initial_path
from scsigmoid.errors import UserError
from scsigmoid.files import locked, write_text
from scsigmoid.model.batches import pack, split_by_tokens
from scsigmoid.model.devices import autocast, backend_of, be_deterministic, out_of_memory_advice
from scsigmoid.model.encoder import Block, Encoder
from scsigmoid.model.loss import compute_loss, summed_loss
from scsigmoid.model.masking import Masking
from scsigmoid.model.weights import MODEL, load_encoder, load_vocabulary, save_encoder
from scsigmoid.progress import announce, log
from scsigmoid.seeds import derive
from scsigmoid.tokens.store import TokenStore, read_index
from scsigmoid.tokens.vocabulary import Vocabulary
from scsigmoid.training.checkpoints import STEP, Checkpoints, of_another_version, read_checkpoint
from scsigmoid.training.journal import LAYERS, Layer, append_rows, validation_losses
from scsigmoid.training.processes import SIGNALS, STOPPED, Processes, joined, stop_requests
from scsigmoid.training.records import Meter, Records
from scsigmoid.training.run import TrainingRun, header
from scsigmoid.training.shares import GlobalBatches, prefetch, validation_indices
from scsigmoid.training.step import Trainer

CHECKPOINTS = "checkpoints"
#: File in the checkpoint folder of a complete run, with its ``training.steps``. If the model of the
#: run is missing or forced (``snakemake -R``), the workflow deletes the checkpoints to train from
#: the beginning, unless ``training.steps`` now has another value.
FINISHED = "finished"
LOCK = ".training"
#: Maximum number of validation cells whose attention weights are measured.
WATCHED_CELLS = 4
#: Minimum relative decrease of the validation loss that counts as an improvement.
LEAST_IMPROVEMENT = 0.002


def train(run: TrainingRun, stores: Sequence[Path], vocabulary: Path, output: Path) -> None:
    """Train a model, or continue from its last checkpoint.

    Under torchrun, all processes train the model together, and all need access to the files. On the
    CPU, and on GPUs with ``training.execution.deterministic``, a resumed run has bitwise the same
    results as an uninterrupted run. If the loss is not finite, it is logged and training continues,
    because divergence is a result. With ``training.patience`` a run ends before its last step if
    the validation loss has flattened (:func:`has_flattened`). SIGTERM, SIGUSR1 and SIGINT end the
    run after the current step, or before the step of a validation, with a checkpoint.

    Args:
        run: settings of the run.
        stores: folders of the token store of the training cells, in order.
        vocabulary: ``vocabulary.parquet``.
        output: folder of the model, its snapshots, journal and checkpoints.

    Raises:
        UserError: if stores, vocabulary, settings and checkpoints do not fit each other, a file is
            missing or damaged, the device or backend is not available, or memory or disk is full.
        SystemExit: with code 75 after a signal, or code 1 if another process raised a UserError.
    """
    torch.set_num_threads(run.training.execution.threads)
    if run.training.execution.deterministic:
        be_deterministic()
    with joined(run.device) as processes, ExitStack() as stack:
        # Two runs in the same folder would overwrite each other's checkpoints.
        processes.on_first(
            lambda: stack.enter_context(locked(output / LOCK, "training this model"))
        )
        is_complete = train_together(run, stores, vocabulary, output, processes)
    if not is_complete:
        raise SystemExit(STOPPED)


def train_together(
    run: TrainingRun, stores: Sequence[Path], parquet: Path, output: Path, processes: Processes
) -> bool:
    """Train as one of several processes. Return True if the run is complete."""
    vocabulary, batches = processes.in_turn(lambda: prepare(run, stores, parquet, processes))
    identity = run.identity(vocabulary.fingerprint, fingerprint(stores))
    checkpoints = Checkpoints(output / CHECKPOINTS, run.training.execution.keep_checkpoints)
    suffixes = run.training.snapshot_suffixes
    snapshots = {step: output / f"model{suffix}.safetensors" for step, suffix in suffixes.items()}
    resumed = processes.on_first(lambda: resume(run, checkpoints, identity, snapshots))
    # `resumed` is None on the other ranks, so the sum over all ranks is the step of rank 0.
    (completed,) = processes.total([resumed or 0])

    with out_of_memory_advice(run.context, run.training.execution.micro_batch_tokens):
        encoder = Encoder(batches.settings).initialize(derive(run.seed, "weights"))
        if (initial := run.training.initial) and not completed:
            processes.in_turn(lambda: start_from(encoder, initial, vocabulary))
        trainer = Trainer(encoder, run.training, run.seed, processes.device, processes)
        seconds, rows = restore(trainer, checkpoints.path(completed)) if completed else (0.0, "")
        if completed and processes.is_first:
            log(f"{run.model}: continuing from the checkpoint after step {completed}")

        def snapshot(step: int) -> None:
            if path := snapshots.get(step):
                origin = run.origin(step)
                processes.on_first(lambda: save_encoder(encoder, origin, vocabulary, path))

        # Write the snapshot after 0 steps, or the one at the last step of an earlier, shorter run.
        # That run did not write it, because `snapshots` contains only steps below its `steps`.
        snapshot(completed)
        meter = Meter(batches.settings, processes.device, processes.count, seconds)
        journal_header = header(run, batches.settings, processes)
        with (
            Records(run, checkpoints, identity, journal_header, meter, completed, rows, output)
            if processes.is_first
            else nullcontext()
        ) as records:
            losses = validation_losses(rows)
            last = loop(run, trainer, batches, records, completed, losses, snapshot)
            if last is None:  # stopped by a signal
                return False

            def finish() -> None:
                assert records is not None
                records.checkpoints.wait()
                records.journal.write()  # atomic and synced to the disk, unlike appended rows
                save_encoder(encoder, run.origin(last), vocabulary, output / MODEL)
                write_text(checkpoints.folder / FINISHED, f"{run.training.steps}\n")
                if last < run.training.steps:
                    announce(
                        f"{run.model}: the validation loss is flat: done after step {last} of "
                        f"{run.training.steps}; to train longer, set training.patience: 0"
                    )

            processes.on_first(finish)
    return True


def resume(
    run: TrainingRun,
    checkpoints: Checkpoints,
    identity: Mapping[str, str],
    snapshots: Mapping[int, Path],
) -> int:
    """Remove outdated files. Return the step to resume from, or 0 to train from the beginning."""
    folder = checkpoints.folder.parent
    (checkpoints.folder / FINISHED).unlink(missing_ok=True)
    # Temporary files of a process that was killed.
    for parent, prefix in ((folder, "model"), (checkpoints.folder, "step-")):
        for path in parent.glob(f".{prefix}*.partial.*"):
            path.unlink()
    step = checkpoints.resume(identity, run.training.steps)
    if not step:
        # Snapshots and layer statistics may be from a run with other settings.
        for path in (*folder.glob(f"model-{STEP}.safetensors"), folder / LAYERS):
            path.unlink(missing_ok=True)
    for snapshot_step, path in snapshots.items():
        if snapshot_step < step and not path.is_file():
            raise UserError(
                f"{path}: missing, but training continues from step {step}; delete {folder} to "
                "train from the beginning, or remove the step from training.snapshots"
            )
    return step


def prepare(
    run: TrainingRun, stores: Sequence[Path], parquet: Path, processes: Processes
) -> tuple[Vocabulary, GlobalBatches]:
    """Return the vocabulary and the batches of a run. Check that they fit the run's settings."""
    vocabulary = Vocabulary.read(parquet)
    settings = run.encoder_settings(vocabulary.size)
    backend_of(settings, processes.device)  # raises UserError if the backend is not available
    # Training cells have the dataset "".
    store = TokenStore.open(stores, vocabulary=vocabulary.fingerprint, dataset="")
    if not len(store):
        raise UserError(f"{stores[0]}: no training cells; check the corpus")
    if store.maximum_length < settings.genes:
        raise UserError(
            f"{stores[0]}: cells are cut at {store.maximum_length} genes, too short for context "
            f"{run.context}; make the tokens again"
        )
    batches = GlobalBatches(
        store, settings, run.training, run.seed, rank=processes.rank, processes=processes.count
    )
    return vocabulary, batches


def start_from(encoder: Encoder, initial: str, vocabulary: Vocabulary) -> None:
    """Copy the weights of an initial model (``training.initial``) into an encoder.

    Genes that the initial model lacks keep their rows in ``encoder``. If the file does not contain
    an output layer (:func:`~scsigmoid.model.weights.shrink`), the layer keeps its weights, and its
    biases become the logarithms of the shares of the genes among the tokens of the training cells.

    Raises:
        UserError: if the file is missing or damaged, or if its genes do not come first in the
            vocabulary, with the same medians.
    """
    path = initial_path(initial)
    there, _ = load_encoder(path)
    genes = load_vocabulary(path)
    if not vocabulary.starts_with(genes):
        raise UserError(
            f"training.initial: {path}: its genes or medians differ from the vocabulary of the "
            "tokens; delete tokens/vocabulary.parquet and run again"
        )
    state = there.state_dict()
    with torch.no_grad():
        for name, parameter in encoder.state_dict().items():
            if name in state:  # a matrix or bias with a row for each gene has more rows here
                parameter[: len(state[name])] = state[name]
        if "output.bias" not in state:
            # Without this, the first hundreds of steps would only learn the shares.
            counts = torch.from_numpy(vocabulary.cells + 0.5)
            encoder.output.bias.copy_((counts / counts.sum()).log())
    added = vocabulary.size - genes.size
    output = "" if "output.bias" in state else "; the output layer, which it lacks, is new"
    log(f"starting from {path}: {added:,} genes that it lacks have new rows{output}")


def fingerprint(stores: Sequence[Path]) -> str:
    """Return a fingerprint of the training cells: SHA-256 of the checksums of all shards."""
    shards = [shard for folder in stores for shard in read_index(Path(folder))["shards"]]
    return hashlib.sha256("\n".join(shard["sha256"] for shard in shards).encode()).hexdigest()


def restore(trainer: Trainer, path: Path) -> tuple[float, str]:
    """Restore a checkpoint. Return the training time in seconds and the journal's rows so far."""
    checkpoint = read_checkpoint(path)
    trainer.encoder.load_state_dict(checkpoint.model)
    try:
        trainer.optimizer.load_state_dict(checkpoint.optimizer)
    except ValueError as error:  # other groups of parameters
        raise of_another_version(path) from error
    return checkpoint.seconds, checkpoint.journal


def loop(
    run: TrainingRun,
    trainer: Trainer,
    batches: GlobalBatches,
    records: Records | None,
    completed: int,
    losses: list[float],
    snapshot: Callable[[int], None],
) -> int | None:
    """Take the steps after the first ``completed`` steps.

    Return the last step, or None if a signal stopped the run. All processes call this function. It
    calls ``snapshot(step)`` after each step, and appends to ``losses``, the validation losses so
    far. ``records`` is None except on rank 0.
    """
    training, processes = run.training, trainer.processes
    if has_flattened(losses, training.patience):
        return completed
    step, steps = completed, range(completed + 1, training.steps + 1)
    validation = Validation(batches) if training.validate_every else None

    def stop_after(step: int, stops: list[int]) -> None:
        """Write a checkpoint. ``stops``: how many processes received each of the signals."""
        senders = zip(SIGNALS, stops, strict=True)
        names = " and ".join(signal.name for signal, count in senders if count)

        def write() -> None:
            if records is not None:
                records.checkpoint(trainer, step)
                records.checkpoints.wait()
                announce(
                    f"{run.model}: stopped by {names} after step {step}; run again to continue"
                )

        processes.in_turn(write)

    with (
        stop_requests() as signals,
        closing(prefetch(batches, steps, training.execution.workers, trainer.device)) as shares,
    ):
        for step in steps:
            begin = time.perf_counter()
            share = next(shares)
            waited = time.perf_counter() - begin
            has_failed = records is not None and records.checkpoints.has_failed
            # The numbers of processes that received each signal, because a batch system may send a
            # signal to one process only.
            received = [signal in signals for signal in SIGNALS]
            masked, failures, *stops = processes.total([share.masked, has_failed, *received])
            if any(stops) or failures:
                # If a checkpoint could not be written (`failures`), `stop_after` raises the error
                # on rank 0, and `in_turn` ends the other processes.
                stop_after(step - 1, stops)
                return None
            is_first_or_last = step in (1, training.steps)
            # Measured before the update, with the same weights as the training loss.
            validation_loss = None
            if validation and (is_first_or_last or step % training.validate_every == 0):
                validation_loss = validation.loss(trainer, signals)
                if validation_loss is None:  # stopped by a signal; the next run validates again
                    stop_after(step - 1, processes.total([signal in signals for signal in SIGNALS]))
                    return None
                losses.append(validation_loss)
                if records is not None:
                    append_rows(records.layers, validation.layers(trainer, step))
            is_due = is_first_or_last or step % training.execution.log_every == 0
            is_logged = is_due or validation_loss is not None
            score = trainer.attention_score_max(share.micro_batches) if is_logged else 0.0
            result = trainer.step(step, share.micro_batches, masked)
            snapshot(step)  # before the checkpoint, because resuming requires earlier snapshots
            is_flat = validation_loss is not None and has_flattened(losses, training.patience)
            is_last = is_flat or step == training.steps
            if records is not None:
                records.meter.count(share, masked, waited, result.graphed)
                records.progress.bar.update()
                if is_logged:
                    row = records.meter.row(step, result, score, validation_loss)
                    records.append(row, is_last)
                if is_last or step % training.execution.checkpoint_every == 0:
                    records.checkpoint(trainer, step, is_last)
            if is_last:
                break
    return step


def has_flattened(losses: Sequence[float], patience: int) -> bool:
    """Return True if none of the last ``patience`` losses improves on the minimum before them."""
    if not 0 < patience < len(losses):  # patience 0: never
        return False
    limit = min(losses[:-patience]) * (1 - LEAST_IMPROVEMENT)
    # Not `all(loss > limit)`, which would treat NaN as an improvement.
    return not any(loss <= limit for loss in losses[-patience:])


class Validation:
    """Loss and attention statistics on held-out cells during training.

    The cells and their masks depend only on the store, not on the seed, so that the curves of
    several runs are comparable.
    """

    def __init__(self, batches: GlobalBatches) -> None:
        """Pack and mask this process's share of the validation cells."""
        store, settings, training = batches.store, batches.settings, batches.training
        cells = validation_indices(len(store.lengths), training.validation_cells)
        masking = Masking(
            seed=derive(0, "validation"),
            draw=0,
            fraction=training.mask_fraction,
            replacement="mask",
            vocabulary_size=settings.vocabulary_size,
        )
        stride = math.ceil(len(cells) / WATCHED_CELLS)
        self.watched = pack(store, cells[::stride], settings, masking)  # on every rank
        lengths = np.minimum(store.lengths[cells], settings.genes) + settings.cls_token
        parts = split_by_tokens(lengths, training.execution.micro_batch_tokens)
        own_parts = parts[batches.rank :: batches.processes]
        self._batches = [pack(store, cells[part], settings, masking) for part in own_parts]

    def loss(self, trainer: Trainer, signals: Sequence[Signals] = ()) -> float | None:
        """Return the mean cross-entropy over all masked validation genes, without dropout.

        Return None if ``signals``, the signals received so far, is not empty in a process that has
        batches left: on a CPU the validation can take many minutes, more than batch systems wait.
        """
        encoder, device = trainer.encoder, trainer.device
        total = torch.zeros(2, device=device)  # summed loss, masked genes
        is_stopped = False
        with torch.no_grad(), autocast(device):
            for batch in self._batches:
                if signals:
                    is_stopped = True
                    break
                total[0] += compute_loss(summed_loss, encoder, batch.to(device))
                total[1] += len(batch.masked)
        # With gloo, because a stopped process waits for the batches of the others, which can take
        # longer than NCCL waits.
        if any(trainer.processes.total([is_stopped])):
            return None
        trainer.processes.sum([total])
        return float(total[0] / total[1])

    def layers(self, trainer: Trainer, step: int) -> list[Layer]:
        """Return statistics of each layer's attention for the cells in ``watched``."""
        encoder, device = trainer.encoder, trainer.device
        batch = self.watched.to(device)
        spans = list(pairwise(self.watched.cu_seqlens.tolist()))
        layers = []
        with torch.no_grad(), autocast(device):
            x = encoder.embed(batch.tokens, batch.positions)
            attention_mask = encoder.mask(x, batch.cu_seqlens)
            for index, block in enumerate(encoder.blocks):
                assert isinstance(block, Block)
                q, k, v = block.compute_qkv(x).unbind(1)
                with torch.autocast(device.type, enabled=False):  # in float32
                    statistics = weight_statistics(encoder.settings.attention, q, k, v, spans)
                layers.append(Layer(step=step, layer=index, **statistics))
                x = block(x, batch.cu_seqlens, batch.max_seqlen, attention_mask, keys=None)
        return layers
