"""What a run was made with: the header of its journal."""

import json
import platform
import subprocess
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from scsigmoid import __version__
from scsigmoid.model.parameters import count_parameters
from scsigmoid.model.sizes import EncoderSettings
from scsigmoid.training.devices import backend_of, device_name
from scsigmoid.training.processes import Processes
from scsigmoid.training.run import TrainingRun


def header(run: TrainingRun, encoder: EncoderSettings, processes: Processes) -> dict[str, str]:
    """Versions, machine, commit and settings of a run."""
    return {
        **versions(),
        "commit": commit(),
        "device": device_name(processes.device),
        "processes": str(processes.count),
        "backend": backend_of(encoder, processes.device),
        "model": run.model,
        "attention": run.attention,
        "context": str(run.context),
        "parameters": str(count_parameters(encoder).total),
        "seed": str(run.seed),
        "size": json.dumps(asdict(run.size)),
        "architecture": json.dumps(asdict(run.architecture)),
        "training": json.dumps(asdict(run.training)),
    }


def versions() -> dict[str, str]:
    """Versions of what computes."""
    return {
        "scsigmoid": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda or "none"),
        "numpy": np.__version__,
    }


def commit() -> str:
    """The commit of the code that runs, with ``-dirty`` if it was changed since.

    ``unknown`` where the code is not part of a git checkout.
    """
    source = Path(__file__).resolve()

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=source.parent, capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        # An installed copy may lie inside somebody else's checkout.
        git("ls-files", "--error-unmatch", source.name)
        return git("describe", "--always", "--abbrev=40", "--exclude=*", "--dirty")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
