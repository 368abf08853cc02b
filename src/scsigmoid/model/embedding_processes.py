"""Processes that embed the cells of a token store together, one for each device.

Each process loads the model and computes every n-th batch. The batches are those of a single
device, so GPUs of one type give the same bits as one of them. Each process has a pipe to the
process that started it, and ends when the pipe closes, also if the other process was killed.
"""

import logging
import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from scsigmoid.errors import UserError
from scsigmoid.model.embedding import embed_batches, make_batches
from scsigmoid.model.sizes import EncoderSettings
from scsigmoid.model.weights import load_encoder
from scsigmoid.progress import LOGGER, track
from scsigmoid.tokens.store import TokenStore

# Signals that end the command. Only the process that started the others handles them.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Worker:
    """A process that embeds cells on a device."""

    device: torch.device
    process: SpawnProcess
    connection: "Connection[Any, Any]"

    def make_error(self) -> UserError:
        """Return the error for a process that ended without a message."""
        self.process.join()
        code = self.process.exitcode or 0
        end = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended ({code})"
        return UserError(
            f"devices: the process of {self.device} {end}; if memory ran out, use fewer devices "
            "or lower --batch-tokens"
        )


@contextmanager
def started(checkpoint: Path, devices: Sequence[torch.device]) -> Iterator[list[Worker]]:
    """Start a process for each device, which loads the model. End all when the block ends."""
    spawn = multiprocessing.get_context("spawn")
    workers: list[Worker] = []
    try:
        if devices:
            # Otherwise the first start would start the tracker, which unblocks signals.
            resource_tracker.ensure_running()
        # Processes inherit the blocked signals. This process handles them when the block ends.
        previous = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            for number, device in enumerate(devices):
                own, other = spawn.Pipe()
                arguments = (other, checkpoint, device, (number, len(devices)))
                threads = torch.get_num_threads()
                process = spawn.Process(target=work, args=(*arguments, threads), daemon=True)
                process.start()
                other.close()
                workers.append(Worker(device, process, own))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, previous)
        yield workers
    finally:
        for worker in workers:
            worker.process.kill()
        for worker in workers:
            worker.process.join()
            worker.connection.close()


def embed_store(
    workers: Sequence[Worker],
    store: Path,
    settings: EncoderSettings,
    batch_tokens: int,
    label: str,
) -> NDArray[np.float32]:
    """Return the embedding of every cell of a token store, (cells, hidden), float32.

    Args:
        workers: from :func:`started`, used once.
        store: folder of the token store.
        settings: of the model.
        batch_tokens, label: as for :func:`~.embedding.embed_cells`.

    Raises:
        UserError: if a process fails or ends.
    """
    tokens = TokenStore.open(store)
    values = np.empty((len(tokens), settings.hidden), dtype=np.float32)
    for worker in workers:
        with suppress(OSError):  # the process has ended, which `receive` reports
            worker.connection.send((store, batch_tokens))
    parts = receive(workers)
    progress = track(
        parts, label=label, unit="cells", total=len(tokens), size=lambda part: len(part[1])
    )
    for rows, part in progress:
        values[rows] = part
    return values


def receive(workers: Sequence[Worker]) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    """Yield the batches of all processes with their embeddings, in any order."""
    running = {worker.connection: worker for worker in workers}
    while running:
        for connection in wait(list(running)):
            worker = running[connection]  # type: ignore[index]
            try:
                message = worker.connection.recv()
            except (EOFError, OSError):
                raise worker.make_error() from None
            if isinstance(message, str):
                raise UserError(message)
            if message is None:  # the process has sent all of its batches
                del running[worker.connection]
            else:
                yield message


def work(
    connection: "Connection[Any, Any]",
    checkpoint: Path,
    device: torch.device,
    share: tuple[int, int],
    threads: int,
) -> None:
    """Embed a share of the cells. The first process of ``started`` calls this in a new process.

    Send each batch with its embedding, then None, or the message of an error.
    """
    number, count = share
    torch.set_num_threads(threads)
    if number:  # otherwise each process would log the attention backend
        LOGGER.setLevel(logging.WARNING)
    try:
        if device.type == "cuda":
            torch.cuda.set_device(device)
        encoder, _ = load_encoder(checkpoint, device)
        store, batch_tokens = connection.recv()
        tokens = TokenStore.open(store)
        batches = make_batches(tokens, encoder.settings, batch_tokens)[number::count]
        for result in embed_batches(encoder, tokens, batches):
            connection.send(result)
        connection.send(None)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the process that started this one has ended
    except Exception as error:
        message = str(error)
        if not isinstance(error, UserError):
            message = (
                f"devices: {device} failed with {type(error).__name__} ({message}); if memory ran "
                "out, lower --batch-tokens, otherwise see the error with --devices 1"
            )
        with suppress(OSError):
            connection.send(message)
