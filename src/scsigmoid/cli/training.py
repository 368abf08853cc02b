"""``scsigmoid train``."""

import argparse
from typing import Any

from scsigmoid.cli.arguments import Stages
from scsigmoid.config.check import built
from scsigmoid.config.schema import Architecture, Size, Training


def add(stages: Stages) -> None:
    """Add the stage's subcommands."""
    stages.add("train", train, "train one model, or go on from its last checkpoint").text(
        "model"
    ).paths("tokens", many=True).paths("vocabulary").settings().output().number(
        "gpus", "train on so many GPUs of a machine, by torchrun"
    ).number("nodes", "on so many machines, by Slurm")


def train(options: argparse.Namespace) -> None:
    from scsigmoid.training.interruption import STOPPED
    from scsigmoid.training.launch import launched
    from scsigmoid.training.loop import train as run_training
    from scsigmoid.training.run import TrainingRun
    from scsigmoid.training.slurm import requeue

    # Built without pydantic, which a bare GPU image may lack; the workflow has checked the types.
    settings = options.settings[f"models.{options.model}"]
    kinds = {"size": Size, "architecture": Architecture, "training": Training}
    parts: dict[str, Any] = {name: built(kind, settings[name]) for name, kind in kinds.items()}
    run = built(TrainingRun, {**settings, **parts, "model": options.model})
    try:
        run_training(run, options.tokens, options.vocabulary, options.output)
    except SystemExit as end:
        if end.code == STOPPED and not launched():
            requeue()
        raise
