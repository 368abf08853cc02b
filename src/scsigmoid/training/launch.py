"""Several processes of one machine, by torchrun."""

import logging
import os
import signal
import sys
from collections.abc import Sequence

from scsigmoid.errors import UserError
from scsigmoid.training.interruption import SIGNALS, STOPPED
from scsigmoid.training.slurm import RENDEZVOUS, requeue, run_on_nodes

# Finishing a step and writing a checkpoint may take longer than torchrun's 30 seconds.
SECONDS_TO_STOP = "600"


def launched() -> bool:
    """Whether torchrun started this process."""
    return "WORLD_SIZE" in os.environ


def launch(nodes: int, processes: int, arguments: Sequence[str]) -> int:
    """Run ``scsigmoid`` with these arguments in several processes, and wait for them.

    Args:
        nodes: machines; more than one only as a job of Slurm.
        processes: on each of them.
        arguments: of ``scsigmoid``.

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
    """Run ``scsigmoid`` in several processes of this machine, and wait for them.

    Like ``torchrun <place> --nproc-per-node <processes> -m scsigmoid <arguments>``, but the
    processes' own words and exit code are all that is seen of a failure.

    Args:
        place: torchrun's options that say where the processes meet.
        processes: on this machine.
        arguments: of ``scsigmoid``.

    Returns:
        The exit code of the process that ended first, if any failed; else 0.

    Raises:
        UserError: if a process was killed, which it cannot say itself.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import parse_args, run

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
