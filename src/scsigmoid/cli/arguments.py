"""Subcommands are functions: the arguments of a command are the parameters of its function.

The annotation of a parameter has the type and the help, e.g. ``Annotated[Path, "file to write"]``,
and the placeholder of the value if it is not the type's. A parameter before ``/`` is positional, a
list takes one value or more, and a parameter with a default can be left out.
"""

import argparse
import inspect
import math
import typing
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from scsigmoid.config.check import check, read_yaml
from scsigmoid.config.schema import Config, Device
from scsigmoid.config.stored import MARKER, checksum
from scsigmoid.errors import UserError


@dataclass(frozen=True)
class Configuration:
    """The configuration of a run."""

    config: Config
    folder: Path  # of the results, which contains the file of the configuration

    @property
    def downloads(self) -> Path:
        """The folder of downloads."""
        folder = self.config.corpus.download.folder
        return Path(folder) if folder else self.folder / "corpus" / "downloads"


# Parameters that several commands have.
Cells = Annotated[Path, "cells: a part of the corpus, or an evaluation dataset (h5ad)"]
Checkpoints = Annotated[list[Path], "trained models: model.safetensors"]
Dataset = Annotated[str, "evaluation dataset"]
EmbeddingFiles = Annotated[list[Path], "embeddings, named after their models"]
Machine = Annotated[Path, "JSON file to write, with hardware and versions of software"]
Manifest = Annotated[Path, "files of the corpus: manifest.csv"]
Metadata = Annotated[Path, "JSON file about an evaluation dataset: labels, cells, checksum"]
Name = Annotated[str, "name of the table or figure"]
Output = Annotated[Path, "file or folder to write"]
Outputs = Annotated[list[Path], "files to write, one for each model or metric, with its name"]
Seconds = Annotated[
    float, "seconds after which no measurement is started; repeat it to measure the rest", "S"
]
Store = Annotated[Path, "token store, made by tokenize"]
Stores = Annotated[list[Path], "token stores, made by tokenize"]
VocabularyFile = Annotated[Path, "vocabulary that the model was trained with: vocabulary.parquet"]
DeviceChoice = Annotated[Device, "device; auto takes a GPU if there is one"]

PLACEHOLDERS = {Path: "PATH", int: "N", float: "X", str: "NAME"}
STAGES: dict[str, Callable[..., None]] = {}


def stage(run: Callable[..., None]) -> Callable[..., None]:
    """Decorate the function of a subcommand, which has its name and docstring."""
    STAGES[run.__name__.replace("_", "-")] = run
    return run


def add_stage(stages: Any, name: str) -> None:
    """Add the subcommand ``name`` to ``stages``, argparse's subparsers."""
    run = STAGES[name]
    summary = run.__doc__ or ""
    parser = stages.add_parser(name, help=summary.rstrip("."), description=summary)
    parser.set_defaults(run=run)
    parser.add_argument(
        "--log",
        type=Path,
        metavar="PATH",
        help="file for progress messages (default: the terminal)",
    )
    hints = typing.get_type_hints(run, include_extras=True)
    for parameter in inspect.signature(run).parameters.values():
        hint = hints[parameter.name]
        if hint is Configuration:
            add_configuration(parser)
            continue
        if get_origin(hint) is Union:  # Annotated[...] | None
            hint = get_args(hint)[0]
        add_argument(parser, parameter, *get_args(hint))


def add_configuration(parser: argparse.ArgumentParser) -> None:
    """Add the options of a configuration: its file, and the checksum that the workflow expects."""
    parser.add_argument(
        "--configuration",
        type=Path,
        metavar="PATH",
        required=True,
        help="configuration of a run: config.yaml in its results",
    )
    parser.add_argument(
        "--checksum",
        metavar="HEX",
        help="checksum of the configuration: stop if the file contains another one (given by the "
        "workflow, in case that another run replaces the file)",
    )


def add_argument(
    parser: argparse.ArgumentParser,
    parameter: inspect.Parameter,
    kind: Any,
    summary: str,
    placeholder: str = "",
) -> None:
    """Add the argument for a parameter of type ``kind``. ``summary`` is its help."""
    keywords: dict[str, Any] = {"help": summary}
    if get_origin(kind) is list:
        (kind,), keywords["nargs"] = get_args(kind), "+"
    if kind is bool:
        keywords["action"] = "store_true"
    elif get_origin(kind) is Literal:
        keywords["choices"] = get_args(kind)
    else:
        keywords |= {"type": kind, "metavar": placeholder or PLACEHOLDERS[kind]}
    if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
        parser.add_argument(parameter.name, **keywords)
        return
    default = parameter.default
    if default is inspect.Parameter.empty:
        keywords["required"] = True
    else:
        keywords["default"] = default
        if default and default != math.inf:
            keywords["help"] += " (default: %(default)s)"
    parser.add_argument(f"--{parameter.name.replace('_', '-')}", **keywords)


def call(options: argparse.Namespace) -> None:
    """Call the function of a subcommand with its parsed arguments."""
    positional, keywords = [], {}
    for name, parameter in inspect.signature(options.run).parameters.items():
        value = getattr(options, name)
        if name == "configuration":
            value = read_configuration(value, options.checksum)
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            positional.append(value)
        else:
            keywords[name] = value
    options.run(*positional, **keywords)


def read_configuration(path: Path, expected: str | None = None) -> Configuration:
    """Read and check a configuration. Raise a UserError if it has not the ``expected`` checksum."""
    values = read_yaml(path)
    try:
        config = check(values)
    except UserError as error:
        message = f"{path}: {error}"
        if "unknown setting" in message and path.read_text(encoding="utf-8").startswith(MARKER):
            message += ". If an earlier version stored this file, delete the setting from it"
        raise UserError(message) from None
    if expected and checksum(values) != expected:
        raise UserError(
            f"{path}: another run has replaced the configuration since this job was planned; run "
            "snakemake again, and not two runs at once in the same results folder"
        )
    return Configuration(config, path.parent)
