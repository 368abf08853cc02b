"""Training one model, from the token store to the weights."""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from scsigmoid.attention.reference import weight_statistics
from scsigmoid.errors import UserError
from scsigmoid.files import held
from scsigmoid.model.encoder import Block, Encoder
from scsigmoid.model.masking import Masking
from scsigmoid.progress import announce, log
from scsigmoid.seeds import derive
from scsigmoid.tokens.store import TokenStore, read_index
from scsigmoid.tokens.vocabulary import Vocabulary
from scsigmoid.training.batches import (
    Batch,
    GlobalBatches,
    ahead,
    pack,
    split_by_tokens,
    validation_rows,
)
from scsigmoid.training.checkpoints import Checkpoints, read
from scsigmoid.training.devices import backend_of, be_deterministic, out_of_memory_advice
from scsigmoid.training.export import MODEL, save_encoder, snapshot_paths
from scsigmoid.training.journal import LAYERS, Layer, append
from scsigmoid.training.processes import STOPPED, Processes, Request, joined, stop_requests
from scsigmoid.training.records import Meter, Records
from scsigmoid.training.run import TrainingRun, header
from scsigmoid.training.step import Trainer, autocast, eagerly_embedded, summed_loss

CHECKPOINTS = "checkpoints"
LOCK = ".training"
#: Cells whose attention weights are looked at.
WATCHED = 4


def train(run: TrainingRun, stores: Sequence[Path], vocabulary: Path, output: Path) -> None:
    """Train a model, or go on from its last checkpoint.

    Under torchrun all its processes train the model together; all of them must see the files.  On
    the CPU, and on GPUs with ``training.deterministic``, the result is the same to the bit whether
    or not the run was interrupted.  A loss that is not finite is logged and training goes on:
    divergence is a result.  SIGTERM, SIGUSR1 and SIGINT end the run after the step, with a
    checkpoint.

    Args:
        run: what to train.
        stores: folders of the training cells' token store, in order.
        vocabulary: ``vocabulary.parquet``.
        output: folder of the model: gets ``model.safetensors``, the snapshots, ``journal.csv``,
            ``tensorboard/`` and, for resuming, ``checkpoints/``.

    Raises:
        UserError: for stores of another vocabulary or too short a cut, checkpoints of another
            configuration or beyond a missing snapshot, a device or backend that is not there, or
            too little memory or disk.
        SystemExit: 75 after a signal; 1 in the other processes after the UserError of one.
    """
    torch.set_num_threads(run.training.threads)
    if run.training.deterministic:
        be_deterministic()
    with joined(run.device) as processes, ExitStack() as alone:
        # Of two writers of one folder's checkpoints, both would lose.
        processes.on_first(lambda: alone.enter_context(held(output / LOCK, "training this model")))
        finished = train_together(run, stores, vocabulary, output, processes)
    if not finished:
        raise SystemExit(STOPPED)


def train_together(
    run: TrainingRun,
    stores: Sequence[Path],
    vocabulary: Path,
    output: Path,
    processes: Processes,
) -> bool:
    """Train as one of several processes; returns whether the run came to its end."""
    known, batches = processes.in_turn(lambda: prepare(run, stores, vocabulary, processes))
    identity = run.identity(known.fingerprint, fingerprint(stores))
    checkpoints = Checkpoints(output / CHECKPOINTS, run.training.keep_checkpoints)
    snapshots = snapshot_paths(run.training, output)
    found = processes.on_first(lambda: resume(run, checkpoints, identity, snapshots))
    # Only the first process looked; the others learn of it by adding up.
    (step,) = processes.total([found or 0])

    settings, budget = batches.settings, run.training.micro_batch_tokens
    with out_of_memory_advice(settings, budget, processes.device):
        encoder = Encoder(settings).initialise(derive(run.seed, "weights"))
        trainer = Trainer(encoder, run.training, run.seed, processes.device, processes)
        seconds, rows = restore(trainer, checkpoints, step) if step else (0.0, "")
        if step and processes.first:
            log(f"{run.model}: going on from the checkpoint after step {step}")

        def save(step: int, path: Path) -> None:
            processes.on_first(lambda: save_encoder(encoder, run, known, step, path))

        def snapshot(step: int) -> None:
            if step in snapshots:
                save(step, snapshots[step])

        snapshot(step)  # of a run that was to end here
        meter = Meter(settings, processes.device, processes.count, seconds)
        facts = header(run, settings, processes)
        with (
            Records(run, checkpoints, identity, facts, meter, step, rows, output)
            if processes.first
            else nullcontext() as records
        ):
            if not loop(run, trainer, batches, records, step, snapshot):
                return False

            def finish() -> None:
                if records is not None:
                    records.checkpoints.wait()
                    records.journal.write()

            processes.in_turn(finish)
            save(run.training.steps, output / MODEL)
    return True


def resume(
    run: TrainingRun,
    checkpoints: Checkpoints,
    identity: Mapping[str, str],
    snapshots: Mapping[int, Path],
) -> int:
    """The step after which a run goes on, its snapshots so far in place; 0 if it starts anew."""
    folder = checkpoints.folder.parent
    # What a process that was killed had begun to write.
    for where, name in ((folder, "model"), (checkpoints.folder, "step-")):
        for path in where.glob(f".{name}*.partial.*"):
            path.unlink()
    step = checkpoints.resume(identity, run.training.steps)
    if not step:
        # They may be of other settings.
        for path in (*folder.glob("model-step-*.safetensors"), folder / LAYERS):
            path.unlink(missing_ok=True)
    for taken, path in snapshots.items():
        if taken < step and not path.is_file():
            raise UserError(
                f"{path}: missing, and training goes on from step {step}; delete {folder} to "
                "train anew, or leave the step out of training.snapshots"
            )
    return step


def prepare(
    run: TrainingRun, stores: Sequence[Path], vocabulary: Path, processes: Processes
) -> tuple[Vocabulary, GlobalBatches]:
    """Open what a run reads and check that it suits the run."""
    known = Vocabulary.read(vocabulary)
    settings = run.encoder_settings(known.size)
    backend_of(settings, processes.device)
    store = TokenStore.open(stores, vocabulary=known.fingerprint, dataset="")
    if not len(store):
        raise UserError(f"{stores[0]}: no training cells; check the corpus")
    if store.maximum_length < settings.genes:
        raise UserError(
            f"{stores[0]}: cells are cut at {store.maximum_length} genes, too short for context "
            f"{run.context}; make the tokens again"
        )
    return known, GlobalBatches(
        store,
        settings,
        run.training,
        run.seed,
        rank=processes.rank,
        processes=processes.count,
    )


def fingerprint(stores: Sequence[Path]) -> str:
    """SHA-256 over the checksums of all shards, in order: what the training cells are."""
    sums = [shard["sha256"] for folder in stores for shard in read_index(Path(folder))["shards"]]
    return hashlib.sha256("\n".join(sums).encode()).hexdigest()


def restore(trainer: Trainer, checkpoints: Checkpoints, step: int) -> tuple[float, str]:
    """Put a trainer into the state after a step; returns the time spent and the journal so far."""
    checkpoint = read(checkpoints.path(step))
    trainer.encoder.load_state_dict(checkpoint.model)
    trainer.optimiser.load_state_dict(checkpoint.optimiser)
    return checkpoint.seconds, checkpoint.journal


def loop(
    run: TrainingRun,
    trainer: Trainer,
    batches: GlobalBatches,
    records: Records | None,
    first: int,
    snapshot: Callable[[int], None],
) -> bool:
    """Take the steps after step ``first``; returns whether they were taken to the last.

    All processes take part, also in ``snapshot`` after each step; ``records`` is the first one's.
    """
    training, processes = run.training, trainer.processes
    steps = range(first + 1, training.steps + 1)
    validation = Validation(batches) if training.validate_every else None

    def end(step: int, request: Request) -> None:
        if records is not None:
            records.checkpoint(trainer, step)
            records.checkpoints.wait()
            announce(
                f"{run.model}: stopped by {request.name} after step {step}; run again to go on"
            )

    with (
        stop_requests() as request,
        closing(ahead(batches, steps, training.workers, trainer.device)) as shares,
    ):
        for step in steps:
            begin = time.perf_counter()
            share = next(shares)
            waited = time.perf_counter() - begin
            failed = records is not None and records.checkpoints.failed
            masked, stop, unwritten = processes.total(
                [share.masked, bool(request.signal), bool(failed)]
            )
            if stop or unwritten:
                processes.in_turn(partial(end, step - 1, request))
                return False
            ends = step in (1, training.steps)
            # Before the update: all that is measured belongs to the weights of the loss.
            checked = None
            if validation and (ends or step % training.validate_every == 0):
                checked = validation.loss(trainer)
                if records is not None:
                    append(records.layers, validation.layers(trainer, step))
            logging = checked is not None or ends or step % training.log_every == 0
            score = trainer.attention_score_max(share.micro_batches) if logging else 0.0
            result = trainer.step(step, share.micro_batches, masked)
            snapshot(step)  # before the checkpoint, which is then never without it
            if records is None:
                continue
            records.meter.count(share, masked, waited, result.graphed)
            records.progress.bar.update()
            if logging:
                rate = trainer.optimiser.param_groups[0]["lr"]
                records.append(records.meter.row(step, result, rate, score, checked))
            if step % training.checkpoint_every == 0 or step == training.steps:
                records.checkpoint(trainer, step)
    return True


class Validation:
    """The loss on cells kept out of training while it goes on, and what attention does with them.

    Which cells these are and which of their genes are masked depends on the store alone, not on
    the seed, so that the curves of several runs belong to one set of cells.
    """

    def __init__(self, batches: GlobalBatches) -> None:
        """Pack and mask the cells, once; each process takes its share of them."""
        store, settings, training = batches.store, batches.settings, batches.training
        rows = validation_rows(len(store.lengths), training.validation_cells)
        masking = Masking(
            seed=derive(0, "validation"),
            draw=0,
            fraction=training.mask_fraction,
            replacement="mask",
            vocabulary_size=settings.vocabulary_size,
        )
        self.watched = pack(store, rows[:: -(-len(rows) // WATCHED)], settings, masking)
        lengths = np.minimum(store.lengths[rows], settings.genes) + settings.cls_token
        parts = split_by_tokens(lengths, training.micro_batch_tokens)
        mine = parts[batches.rank :: batches.processes]
        self._batches = [pack(store, rows[part], settings, masking) for part in mine]

    def loss(self, trainer: Trainer) -> float:
        """Mean cross-entropy over all masked genes of the validation cells, without dropout."""
        encoder, device = trainer.encoder, trainer.device
        total = torch.zeros(2, device=device)
        with torch.no_grad(), autocast(device):
            for kept in self._batches:
                total[0] += eagerly_embedded(summed_loss, encoder, kept.to(device))
                total[1] += len(kept.masked)
        trainer.processes.sum([total])
        return float(total[0] / total[1])

    def layers(self, trainer: Trainer, step: int) -> list[Layer]:
        """What each layer's attention does with the watched cells, without dropout."""
        encoder, device = trainer.encoder, trainer.device
        batch: Batch = self.watched.to(device)
        spans = list(pairwise(self.watched.cu_seqlens.tolist()))

        def watched() -> Iterator[Layer]:
            x = encoder.embed(batch.tokens, batch.positions)
            mask = encoder.mask(x, batch.cu_seqlens)
            for index, block in enumerate(encoder.blocks):
                assert isinstance(block, Block)
                q, k, v = block.heads(x).unbind(1)
                with torch.autocast(device.type, enabled=False):
                    found = weight_statistics(encoder.settings.attention, q, k, v, spans)
                yield Layer(step=step, layer=index, **found)
                x = block(x, batch.cu_seqlens, batch.max_seqlen, mask, None)

        with torch.no_grad(), autocast(device):
            return list(watched())
