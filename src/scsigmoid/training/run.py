"""The settings of a training run, and the header of its journal."""

import json
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from scsigmoid.attention import sdpa
from scsigmoid.config.initial import initial_checksum
from scsigmoid.config.schema import Architecture, Config, Size, Training
from scsigmoid.kernels import BACKENDS
from scsigmoid.model.devices import backend_of, device_name
from scsigmoid.model.sizes import EncoderSettings, count_parameters
from scsigmoid.progress import log
from scsigmoid.training.processes import Processes
from scsigmoid.version import __version__

#: Settings of ``training`` with other values of which an unfinished run continues.
CONTINUED = {"steps", "validate_every", "patience", "snapshots", "execution"}
#: Settings of ``training`` that the content of a file replaces in the identity of a run.
FILES = {"initial"}


@dataclass(frozen=True, kw_only=True)
class TrainingRun:
    """Settings of the training of one model."""

    model: str  # name of the model
    attention: str  # "sigmoid" or "softmax"
    context: int  # longest sequence in tokens
    cls_token: bool  # whether [CLS] starts a sequence. It counts as a token of the context.
    backend: str  # attention backend
    size: Size  # dimensions of the encoder
    architecture: Architecture  # settings that all encoders of the configuration share
    training: Training
    seed: int  # seed of the configuration, or of the run in a study
    device: str  # "auto", "cpu" or "cuda"

    @classmethod
    def of(cls, config: Config, name: str) -> "TrainingRun":
        """Return the run of a model, from :meth:`scsigmoid.config.plan.Plan.run_config`."""
        model = config.models[name]
        return cls(
            model=name,
            attention=model.attention,
            context=model.context,
            cls_token=config.tokens.cls,
            backend=model.backend,
            size=config.size_of(name),
            architecture=config.architecture,
            training=config.training,
            seed=config.seed,
            device=config.device,
        )

    def encoder_settings(self, vocabulary_size: int) -> EncoderSettings:
        return EncoderSettings.of(
            self.size,
            self.architecture,
            self.attention,
            self.context,
            vocabulary_size,
            self.backend,
            self.cls_token,
        )

    @property
    def initial_identity(self) -> dict[str, str]:
        """The SHA-256 ``initial`` of the file that training starts from, {} if there is none."""
        initial = self.training.initial
        return {"initial": initial_checksum(initial)} if initial else {}

    def origin(self, step: int) -> dict[str, Any]:
        """Return the metadata of the encoder after ``step`` steps, for its file."""
        return {
            "model": self.model,
            "step": step,
            "seed": self.seed,
            "training": self.training.model_dump(
                exclude={"execution", *FILES}, exclude_defaults=True
            ),
            **self.initial_identity,
        }

    def identity(self, vocabulary: str, data: str) -> dict[str, str]:
        """Return the names and values of all settings and data that determine the trained model.

        A checkpoint is resumed only by a run with the same identity. ``vocabulary`` and ``data``
        are fingerprints of the vocabulary and of the training cells. Settings at their default are
        left out, so that a new setting does not keep old checkpoints from being resumed.
        """
        # The name of the size is replaced by the dimensions below.
        architecture = self.architecture.model_dump(exclude={"size"}, exclude_defaults=True)
        training = self.training.model_dump(exclude=CONTINUED | FILES, exclude_defaults=True)
        settings = {
            "attention": self.attention,
            "context": self.context,
            **{f"size.{key}": value for key, value in self.size.model_dump().items()},
            **{f"architecture.{key}": value for key, value in architecture.items()},
            **{f"training.{key}": value for key, value in training.items()},
            "seed": self.seed,
            "tokens.cls": self.cls_token,
            **self.initial_identity,
        }
        return {
            **{key: json.dumps(value) for key, value in settings.items()},
            "vocabulary": vocabulary,
            "training cells": data,
        }


def header(run: TrainingRun, settings: EncoderSettings, processes: Processes) -> dict[str, str]:
    """Return the header of the journal: versions, machine, kernel, commit and settings."""
    backend = backend_of(settings, processes.device)
    kernel = kernel_of(settings.attention, backend, processes.device)
    log(f"{run.model}: {run.attention} attention by {kernel}")
    return {
        "scsigmoid": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda or "none"),
        "numpy": np.__version__,
        "commit": commit(),
        "device": device_name(processes.device),
        "processes": str(processes.count),
        "backend": backend,
        "kernel": kernel,
        "model": run.model,
        "attention": run.attention,
        "context": str(run.context),
        "parameters": str(count_parameters(settings)),
        "seed": str(run.seed),
        "size": json.dumps(run.size.model_dump()),
        "architecture": json.dumps(run.architecture.model_dump()),
        "training": json.dumps(run.training.model_dump()),
    }


def kernel_of(attention: str, backend: str, device: torch.device) -> str:
    """Return the name of the kernel of an attention backend on a device."""
    if backend == "sdpa" and device.type == "cuda":
        return sdpa.kernel_of(device)
    return BACKENDS[attention][backend].label


def commit() -> str:
    """Return the commit of the code, with ``-dirty`` if files have changed, or ``unknown``."""
    source = Path(__file__).resolve()

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=source.parent, capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        # Raise an error if this file is an installed copy inside the checkout of another project.
        git("ls-files", "--error-unmatch", source.name)
        return git("describe", "--always", "--abbrev=40", "--exclude=*", "--dirty")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
