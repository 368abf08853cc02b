"""The processes of a run: one for each GPU, started by torchrun or Slurm, stopped by signals.

Gradients are summed once per step, after the last micro-batch, in buckets with a fixed layout.
``DistributedDataParallel`` is not used because it changes the layout of its buckets after the first
step of a process, so a resumed run would sum in another order. Overlapping communication with the
backward pass would not help, because the compiled backward pass returns all gradients at the end.
"""

import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from scsigmoid.errors import UserError
from scsigmoid.model.devices import claim_gpus, resolve_device, visible_gpus
from scsigmoid.progress import log

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

T = TypeVar("T")
#: Size in bytes of the buckets in which gradients are all-reduced.
BUCKET_BYTES = 1 << 26
# Long, because the other ranks wait while rank 0 reads and writes files.
GLOO_TIMEOUT = timedelta(hours=2)
#: Exit code of a run that wrote a checkpoint and stopped after a signal. The same command resumes
#: the run. The value is EX_TEMPFAIL of sysexits.h. A process killed by a signal has other codes.
STOPPED = 75
# Signals that stop a run: two that batch systems send at or before the time limit, and Ctrl-C.
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
# Seconds in which processes must stop after a signal to torchrun. By default 30, which may be too
# short for a step and a checkpoint.
SECONDS_TO_STOP = "600"
#: Environment variable with the ``host:port`` at which the processes of several nodes connect.
RENDEZVOUS = "SCSIGMOID_RENDEZVOUS"
# The only Slurm variables passed to srun. All others describe the job step of this process.
KEPT_VARIABLES = ("SLURM_JOB_ID", "SLURM_CLUSTER_NAME", "SLURM_CONF")


@dataclass(frozen=True, kw_only=True)
class Processes:
    """One of the processes that train a model together, and its connection with the others."""

    rank: int = 0  # Rank 0 writes all files.
    count: int = 1  # number of processes
    device: torch.device
    gloo: "ProcessGroup | None" = None  # group for CPU tensors, None for a single process

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def total(self, values: Sequence[int]) -> list[int]:
        """Sum integers over all processes with gloo, without waiting for the GPUs."""
        if self.count == 1:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.int64)
        with self._collective():
            dist.all_reduce(tensor, group=self.gloo)
        return [int(value) for value in tensor]

    @contextmanager
    def _collective(self) -> Iterator[None]:
        """If communication in the block fails, raise UserError on rank 0, SystemExit elsewhere."""
        try:
            yield
        except RuntimeError:
            if self.is_first:
                raise UserError(
                    "training: the connection to another process broke; see its error, and run "
                    "again to continue from the last checkpoint"
                ) from None
            raise SystemExit(1) from None

    def in_turn(self, work: Callable[[], T]) -> T:
        """Run ``work`` on rank 0, then on the other ranks.

        If ``work`` fails on rank 0, the other ranks raise SystemExit instead of running it, so that
        an error in the user's settings is reported only once.
        """
        if not self.is_first:
            (failures,) = self.total([0])  # only rank 0 adds 1
            if failures:
                raise SystemExit(1)
            return work()
        try:
            result = work()
        except BaseException:
            self.total([1])
            raise
        self.total([0])
        return result

    def on_first(self, work: Callable[[], T]) -> T | None:
        """Run ``work`` on rank 0 and return its result. Other ranks wait, then return None."""
        return self.in_turn(lambda: work() if self.is_first else None)

    def sum(self, tensors: Sequence[Tensor]) -> None:
        """Sum tensors of one dtype over all processes, in place, bucket by bucket."""
        if self.count == 1:
            return
        for bucket in buckets(tensors):
            flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
            with self._collective():
                dist.all_reduce(flat)
            pieces = flat.split([tensor.numel() for tensor in bucket])
            views = [piece.view_as(tensor) for piece, tensor in zip(pieces, bucket, strict=True)]
            torch._foreach_copy_(bucket, views)

    def largest(self, scalar: Tensor) -> Tensor:
        """Return the maximum of a scalar over all processes, NaN if it is NaN on any rank."""
        if self.count == 1:
            return scalar
        # Gather, because an all-reduce by maximum may drop NaN.
        scalars = [torch.empty_like(scalar) for _ in range(self.count)]
        with self._collective():
            dist.all_gather(scalars, scalar)
        return torch.stack(scalars).amax()


def buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Group tensors, in order, into buckets of about ``BUCKET_BYTES``."""
    bucket: list[Tensor] = []
    size = 0
    for tensor in tensors:
        bucket.append(tensor)
        size += tensor.nbytes
        if size >= BUCKET_BYTES:
            yield bucket
            bucket, size = [], 0
    if bucket:
        yield bucket


@contextmanager
def joined(device: str) -> Iterator[Processes]:
    """Yield this process of torchrun, connected with the others, or a single process.

    If connecting fails, raise UserError in one process of each machine, SystemExit in the others.
    """
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        yield Processes(device=resolve_device(device))
        return
    try:
        processes = connect(count, device)
    except UserError:
        if int(os.environ.get("LOCAL_RANK", "0")):
            raise SystemExit(1) from None
        raise
    try:
        yield processes
    except BaseException:
        # Do not destroy the NCCL group: this would wait for other processes, whose GPUs may be
        # blocked in a collective. None means all groups.
        dist.destroy_process_group(processes.gloo if processes.device.type == "cuda" else None)
        raise
    dist.destroy_process_group()


def connect(count: int, device: str) -> Processes:
    """Connect this process of torchrun with the others, ``count`` in total (see :func:`joined`)."""
    local, local_rank = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["LOCAL_RANK"])
    gpus = len(visible_gpus())
    if local <= gpus:
        hide_other_gpus([local_rank])
    torch_device = resolve_device(device)
    if torch_device.type == "cuda":
        if local > gpus:
            raise UserError(
                f"torchrun: {local} processes on a machine with {gpus} GPUs; start one per GPU "
                f"(--nproc-per-node {gpus}), or set CUDA_VISIBLE_DEVICES"
            )
        if not dist.is_nccl_available():
            raise UserError(
                "torchrun: this PyTorch has no NCCL, which several GPUs need; install the CUDA "
                "build of PyTorch, or train on one GPU"
            )
        # Without NVML, PyTorch has already counted the GPUs by CUDA, which still sees all.
        index = 0 if torch.cuda.device_count() == 1 else local_rank
        torch_device = torch.device("cuda", index)
        torch.cuda.set_device(torch_device)
    try:
        dist.init_process_group("nccl" if torch_device.type == "cuda" else "gloo")
        # Any, because newer versions of torch annotate the result as a union.
        gloo: Any = dist.new_group(backend="gloo", timeout=GLOO_TIMEOUT)
    except (RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:160]
        raise UserError(
            f"torchrun: the {count} processes cannot connect ({reason}); check "
            "MASTER_ADDR and MASTER_PORT and that every node was started"
        ) from None
    return Processes(rank=dist.get_rank(), count=count, device=torch_device, gloo=gloo)


@contextmanager
def stop_requests() -> Iterator[list[signal.Signals]]:
    """Yield a list of the received :data:`SIGNALS`, which do not stop the process in the block.

    Ctrl-C after another signal stops immediately. A second SIGTERM does not, because it may be the
    same: batch systems send SIGTERM to torchrun and to its processes, and torchrun forwards it.
    """
    received: list[signal.Signals] = []

    def note(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and received:
            raise KeyboardInterrupt
        received.append(signal.Signals(number))

    with handled(note):
        yield received


@contextmanager
def handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Let ``handler`` handle :data:`SIGNALS` in the block."""
    previous = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        yield
    finally:
        for number, previous_handler in previous.items():
            signal.signal(number, previous_handler)


def hide_other_gpus(indices: Sequence[int]) -> None:
    """Let this process, and those that it starts, see only these GPUs. Call it before CUDA is used.

    A process that sees a single GPU calls it number 0. Compiled code depends on this number, so the
    processes of a run, and later runs on other GPUs, use the same code of the cache on disk.
    """
    visible = visible_gpus()
    if len(indices) < len(visible):
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(visible[index] for index in indices)


def launched() -> bool:
    """Return True if torchrun started this process."""
    return "WORLD_SIZE" in os.environ


def launch(nodes: int, processes: int, arguments: Sequence[str]) -> int:
    """Run ``scsigmoid`` in ``processes`` processes per node, and return the exit code.

    With several nodes, each node calls this function again, with :data:`RENDEZVOUS` set.
    """
    # torchrun and srun start `python -m`, which would import modules from the working folder.
    os.environ["PYTHONSAFEPATH"] = "1"
    endpoint = os.environ.get(RENDEZVOUS)
    if endpoint is not None:  # This process was started by `run_on_nodes`.
        options = [f"--nnodes={nodes}", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}"]
        return torchrun(options, processes, arguments)
    if nodes > 1:
        code = run_on_nodes(nodes, arguments)
    else:
        code = torchrun(["--standalone"], processes, arguments)
    if code == STOPPED:
        requeue()
    return code


def torchrun(options: Sequence[str], processes: int, arguments: Sequence[str]) -> int:
    """Run ``torchrun <options> --nproc-per-node <processes> -m scsigmoid <arguments>``.

    Return 0, the exit code of the process that failed first, or :data:`STOPPED` if torchrun got a
    signal. Messages of torchrun are hidden, because processes print why they fail.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import parse_args, run

    hide_other_gpus(claim_gpus(processes))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", SECONDS_TO_STOP)
    names = ",".join(number.name for number in SIGNALS)
    common = [f"--nproc-per-node={processes}", f"--signals-to-handle={names}", "-m", "scsigmoid"]
    parsed = parse_args([*options, *common])
    # Set after parsing, because torchrun would read the option --log of scsigmoid as its own.
    parsed.training_script_args = list(arguments)
    logging.disable(logging.ERROR)
    try:
        run(parsed)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        if failure.exitcode < 0:
            raise UserError(
                f"training: process {rank} of {processes} was killed by "
                f"{signal.Signals(-failure.exitcode).name}; run again to continue from the last "
                "checkpoint"
            ) from None
        return failure.exitcode
    except SignalException:
        return STOPPED
    finally:
        logging.disable(logging.NOTSET)
        sys.stderr.flush()
    return 0


def run_on_nodes(nodes: int, arguments: Sequence[str]) -> int:
    """Run ``scsigmoid`` once on each node of this Slurm job, and return the largest exit code."""
    if "SLURM_JOB_ID" not in os.environ or shutil.which("srun") is None:
        raise UserError(
            f"nodes: {nodes} nodes are started by Slurm; use workflow/profiles/slurm, or start "
            "torchrun on each node (docs/training.md), or set nodes to 1"
        )
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SLURM_", "SRUN_", "SBATCH_")) or name in KEPT_VARIABLES
    }
    environment[RENDEZVOUS] = f"{socket.getfqdn()}:{port}"
    command = [
        *("srun", "--overlap", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1"),
        # --whole: with all CPUs and GPUs of the job on the node
        *("--whole", "--cpu-bind=none", "--kill-on-bad-exit=0", "--quiet"),
        *(sys.executable, "-m", "scsigmoid", *arguments),
    ]
    # In a session of its own, srun does not receive Ctrl-C from the terminal. `handled` forwards
    # this and other signals to srun. Signals from Slurm also reach srun's processes directly.
    child = subprocess.Popen(command, env=environment, start_new_session=True)
    with handled(lambda number, frame: child.send_signal(number)):
        return child.wait()


def requeue() -> None:
    """Requeue this job after Slurm asked it to stop. Do nothing outside Slurm.

    Slurm asks a job to stop before its time limit (``--signal``) and on preemption. A job that was
    canceled or has exceeded its time limit is no longer RUNNING, and is not requeued.
    """
    job = os.environ.get("SLURM_JOB_ID")
    if job is None or run_slurm("squeue", "--noheader", "--jobs", job, "--format=%T") != "RUNNING":
        return
    if run_slurm("scontrol", "requeue", job) is None:
        log(f"Slurm cannot requeue job {job}; submit it again to continue from the checkpoint")
    else:
        log(f"Slurm has requeued job {job}, to continue from the checkpoint")


def run_slurm(*command: str) -> str | None:
    """Return the output of a Slurm command, or None if it fails or does not exist."""
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() if result.returncode == 0 else None
