"""Several processes of one run: started by torchrun or Slurm, stopped by signals."""

import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from scsigmoid.errors import UserError
from scsigmoid.progress import log
from scsigmoid.training.devices import claim_gpus, visible_gpus

#: Exit code of a run that was asked to stop and left a checkpoint: run it again to go on.
#: (EX_TEMPFAIL of sysexits.h; a process that a signal killed never ends with it.)
STOPPED = 75
# A batch system's end of time, its warning before, and Ctrl-C.
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
# Finishing a step and writing a checkpoint may take longer than torchrun's 30 seconds.
SECONDS_TO_STOP = "600"
#: Where the processes of several nodes meet, ``host:port``; set by :func:`run_on_nodes`.
RENDEZVOUS = "SCSIGMOID_RENDEZVOUS"
# The job's own; what else a step finds in its environment is that step's, not the next one's.
KEPT = ("SLURM_JOB_ID", "SLURM_CLUSTER_NAME", "SLURM_CONF")


class Request:
    """Whether a signal has asked the run to stop.

    Attributes:
        signal: its number; 0 while there was none.
    """

    def __init__(self) -> None:
        self.signal = 0

    @property
    def name(self) -> str:
        return signal.Signals(self.signal).name if self.signal else "a signal"


@contextmanager
def stop_requests() -> Iterator[Request]:
    """Note SIGTERM, SIGUSR1 and SIGINT instead of dying of them.

    A second Ctrl-C acts at once.  Further SIGTERMs do not: batch systems send them to torchrun and
    to its processes, and torchrun passes them on, while the checkpoint is being written.

    Outside the main thread, where Python allows no signal handlers, nothing changes.
    """
    request = Request()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    previous = {number: signal.getsignal(number) for number in SIGNALS}

    def note(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and request.signal:
            raise KeyboardInterrupt
        request.signal = number

    for number in SIGNALS:
        signal.signal(number, note)
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def launched() -> bool:
    """Whether torchrun started this process."""
    return "WORLD_SIZE" in os.environ


def launch(nodes: int, processes: int, arguments: Sequence[str]) -> int:
    """Run ``scsigmoid`` with these arguments in ``processes`` processes a node.

    Returns:
        The exit code of a process that failed, if any did; else 0.

    Raises:
        UserError: if a process was killed, which it cannot say itself; for several nodes outside
            Slurm.
    """
    meeting = os.environ.get(RENDEZVOUS)
    if meeting is not None:
        place = [f"--nnodes={nodes}", "--rdzv-backend=c10d", f"--rdzv-endpoint={meeting}"]
        return torchrun(place, processes, arguments)
    if nodes > 1:
        code = run_on_nodes(nodes, arguments)
    else:
        code = torchrun(["--standalone"], processes, arguments)
    if code == STOPPED:
        requeue()
    return code


def torchrun(place: Sequence[str], processes: int, arguments: Sequence[str]) -> int:
    """``torchrun <place> --nproc-per-node <processes> -m scsigmoid <arguments>``.

    The processes' own messages and exit code are all that is seen of a failure: returned is the
    code of the process that failed first, else 0.

    Raises:
        UserError: if a process was killed, which it cannot say itself.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import parse_args, run

    visible = visible_gpus()
    if processes < len(visible):
        chosen = claim_gpus(processes)
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(visible[index] for index in chosen)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", SECONDS_TO_STOP)
    names = ",".join(number.name for number in SIGNALS)
    os.environ.setdefault("TORCHELASTIC_SIGNALS_TO_HANDLE", names)
    options = parse_args([*place, f"--nproc-per-node={processes}", "-m", "scsigmoid"])
    # Not parsed: torchrun would take our --log for an abbreviation of its own options.
    options.training_script_args = list(arguments)
    if hasattr(options, "signals_to_handle"):
        options.signals_to_handle = names
    logging.disable(logging.ERROR)
    try:
        run(options)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        if failure.exitcode < 0:
            raise UserError(
                f"training: process {rank} of {processes} was killed by "
                f"{signal.Signals(-failure.exitcode).name}; run again to go on from the last "
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
    """Run ``scsigmoid`` with these arguments once on each node of this job, and wait for them.

    Their processes meet on this node, at a port that is free now.  Returns the largest exit code.

    Raises:
        UserError: outside a Slurm job, or in one with fewer nodes.
    """
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
        if not name.startswith(("SLURM_", "SRUN_", "SBATCH_")) or name in KEPT
    }
    environment[RENDEZVOUS] = f"{socket.getfqdn()}:{port}"
    command = [
        *("srun", "--overlap", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1"),
        # all CPUs and GPUs that the job has on the node
        *("--whole", "--cpu-bind=none", "--kill-on-bad-exit=0", "--quiet"),
        *(sys.executable, "-m", "scsigmoid", *arguments),
    ]
    # Slurm signals every step of a job itself; a signal to this process alone is passed on.
    child = subprocess.Popen(command, env=environment, start_new_session=True)
    with passing_on(child):
        return child.wait()


@contextmanager
def passing_on(child: "subprocess.Popen[bytes]") -> Iterator[None]:
    """Hand signals that ask to stop to a process instead of dying of them."""
    previous = {
        number: signal.signal(number, lambda number, frame: child.send_signal(number))
        for number in SIGNALS
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def requeue() -> None:
    """Have Slurm run its job again, if this is one: it was asked to stop and has more to do.

    Slurm asks before the end of a job's time (``--signal``) and when other jobs go first.  A job
    that was cancelled, or whose time is over, is left alone.
    """
    job = os.environ.get("SLURM_JOB_ID")
    if job is None or ask("squeue", "--noheader", "--jobs", job, "--format=%T") != "RUNNING":
        return
    if ask("scontrol", "requeue", job) is None:
        log(f"Slurm does not run job {job} again by itself; whoever submitted it must")
    else:
        log(f"Slurm runs job {job} again, to go on from the checkpoint")


def ask(*command: str) -> str | None:
    """What a command of Slurm prints; ``None`` if it fails or there is no such command."""
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() if found.returncode == 0 else None
