"""What a training run asks of Slurm when it is one of its jobs."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from scsigmoid.errors import UserError
from scsigmoid.progress import log
from scsigmoid.training.interruption import SIGNALS

#: Where the processes of several nodes meet, ``host:port``; set by :func:`run_on_nodes`.
RENDEZVOUS = "SCSIGMOID_RENDEZVOUS"
# The job's own; what else a step finds in its environment is that step's, not the next one's.
KEPT = ("SLURM_JOB_ID", "SLURM_CLUSTER_NAME", "SLURM_CONF")


def run_on_nodes(nodes: int, arguments: Sequence[str]) -> int:
    """Run ``scsigmoid`` with these arguments once on each node of this job, and wait for them.

    Their processes meet on this node, at a port that is free now.

    Args:
        nodes: how many nodes; all that the job has.
        arguments: of ``scsigmoid``.

    Returns:
        The largest exit code of the nodes.

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
