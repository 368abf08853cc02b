"""Arguments of the subcommands, their settings (JSON), and stored configurations."""

import argparse
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args

from scsigmoid.config.check import check, read_yaml
from scsigmoid.config.schema import Config, Device, Pooling
from scsigmoid.errors import UserError

T = TypeVar("T")
Run = Callable[[argparse.Namespace], None]


def path(summary: str, metavar: str = "PATH") -> dict[str, Any]:
    """Return keyword arguments of ``add_argument`` for a file or folder."""
    return {"type": Path, "metavar": metavar, "help": summary}


def number(summary: str, default: int = 1) -> dict[str, Any]:
    return {"type": int, "metavar": "N", "default": default, "help": summary}


def text(summary: str) -> dict[str, Any]:
    return {"default": "", "metavar": "NAME", "help": summary}


def choice(kind: Any, summary: str) -> dict[str, Any]:
    """Return keyword arguments for a ``Literal``. Its first value is the default."""
    values = get_args(kind)
    return {"choices": values, "default": values[0], "help": summary}


class JobSettings(dict[str, Any]):
    """Settings and sections of one job, by dotted name. The workflow has checked them.

    ``source`` is the option or the file with the settings, for messages.
    """

    def __init__(self, values: Mapping[str, Any], source: str = "--settings") -> None:
        super().__init__(values)
        self.source = source

    def __missing__(self, key: str) -> Any:
        raise UserError(f"{self.source}: the setting {key!r} is missing; add it")

    def section(self, key: str, kind: type[T]) -> T:
        """Return a section as a dataclass of the schema, without checking it with pydantic."""
        try:
            return kind(**self[key])
        except TypeError as error:
            # For example "Size.__init__() got an unexpected keyword argument 'depth'".
            reason = str(error).rpartition("__init__() ")[2]
            raise UserError(f"{self.source}: {key}: {reason}; correct the settings") from None


def parse_settings(json_text: str) -> JobSettings:
    try:
        values = json.loads(json_text)
        if not isinstance(values, dict):
            raise ValueError("expected an object")
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not valid JSON: {error}") from None
    return JobSettings(values)


#: Keyword arguments of ``add_argument``, by name of the argument of a subcommand.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "input": path("cells with raw counts: h5ad, or a 10x file or folder", "INPUT.h5ad"),
    "output": path("file to write", "OUTPUT.h5ad"),
    "name": {"help": "name of the table or figure"},
    "--log": path("file for progress messages (default: the terminal)"),
    "--output": path(
        "file or folder to write; if several, one for each model or metric, with its name"
    ),
    "--configuration": path("stored configuration of a run: config.yaml in its results"),
    "--settings": {"type": parse_settings, "metavar": "JSON", "help": "settings by dotted name"},
    "--configfile": path("files with settings that override the preset, as for snakemake"),
    "--config": {
        "default": [],
        "metavar": "KEY=VALUE",
        "help": "settings that override the preset and the files, as for snakemake",
    },
    "--download-rate": {"type": float, "metavar": "MB/S", "help": "megabytes per second, e.g. 100"},
    "--price-per-gpu-hour": {"type": float, "metavar": "PRICE", "help": "in any currency"},
    "--manifest": path("files of the corpus: manifest.csv"),
    "--summary": path("summary to write: files that the source offers, held out and selected"),
    "--part": text("part of the training cells, by its number"),
    "--dataset": text("evaluation dataset"),
    "--metadata": path("JSON file about an evaluation dataset: labels, cells, checksum"),
    "--cells": path("cells: a part of the corpus, or an evaluation dataset (h5ad)"),
    "--statistics": path("gene statistics of each part"),
    "--vocabulary": path("vocabulary that the model was trained with: vocabulary.parquet"),
    "--tokens": path("token stores, made by tokenize"),
    "--model": text("name of the model"),
    "--checkpoint": path("trained model: model.safetensors"),
    "--gpus": number("number of GPUs of each machine that train together (torchrun)"),
    "--nodes": number("number of machines that train together (Slurm)"),
    "--device": choice(Device, "device; auto takes a GPU if there is one"),
    "--pooling": choice(Pooling, "mean over the gene tokens of a cell, or the token <cls>"),
    "--batch-tokens": number("tokens per forward pass; bounds the memory", 16_384),
    "--layer": text("layer with the raw counts (default: raw.X if it exists, otherwise X)"),
    "--genes": text(
        "column of var with Ensembl ids or gene names (default: the index, or the only column with "
        "Ensembl ids)"
    ),
    "--embeddings": path("embeddings, named after their models"),
    "--machine": path("JSON file to write, with hardware and versions of software"),
    "--seconds": {
        "type": float,
        "metavar": "S",
        "default": math.inf,
        "help": "seconds after which no measurement is started; repeat it to measure the rest",
    },
    "--runs": path("folder written by the stage study-runs"),
}


@dataclass
class Stage:
    """A stage of the experiment, which is a subcommand of ``scsigmoid``."""

    run: Run  # function to call with the parsed arguments
    # Names in ARGUMENTS, separated by spaces. A suffix means: `?` optional, `+` one value or more,
    # `*` optional with one value or more. An argument with a default needs no `?`.
    arguments: str
    overrides: Mapping[str, dict[str, Any]]  # entries that this stage uses instead of ARGUMENTS

    def add_to(self, stages: Any, name: str) -> None:
        """Add the subcommand to ``stages``, argparse's subparsers."""
        summary = self.run.__doc__ or ""
        parser = stages.add_parser(name, help=summary.rstrip("."), description=summary)
        parser.set_defaults(run=self.run)
        for argument in ("--log?", *self.arguments.split()):
            key = argument.rstrip("?+*")
            keywords = dict(self.overrides[key] if key in self.overrides else ARGUMENTS[key])
            # The defaults "" and [] only mark an argument as omitted. It may still be required.
            if keywords.get("default"):
                keywords["help"] += " (default: %(default)s)"
            elif key.startswith("--"):
                keywords["required"] = argument[-1] not in "?*"
            if argument[-1] in "+*":
                keywords["nargs"] = "+"
            parser.add_argument(key, **keywords)


STAGES: dict[str, Stage] = {}


def stage(
    arguments: str, overrides: Mapping[str, dict[str, Any]] | None = None
) -> Callable[[Run], Run]:
    """Return a decorator that adds a function to STAGES. The arguments are attributes of `Stage`.

    The name and the docstring of the function become the name and the help of the subcommand.
    """

    def add(run: Run) -> Run:
        STAGES[run.__name__.replace("_", "-")] = Stage(run, arguments, overrides or {})
        return run

    return add


def read_config(configuration: Path) -> Config:
    """Read and check the ``config.yaml`` that a run stored."""
    values = read_yaml(configuration)
    try:
        return check(values)
    except UserError as error:
        raise UserError(f"{configuration}: {error}") from None


def corpus_of(configuration: Path) -> tuple[Config, Path]:
    """Return a stored configuration and the folder of its downloads.

    Download settings are read from this file, not from ``--settings``, because Snakemake does not
    compare its content. So changed download settings do not rerun a stage.
    """
    config = read_config(configuration)
    folder = config.corpus.download.folder
    return config, Path(folder) if folder else configuration.parent / "corpus" / "downloads"
