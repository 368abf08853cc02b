"""All arguments of the subcommands, with their help and defaults; stored configurations."""

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args

from scsigmoid.config.check import read_yaml
from scsigmoid.config.schema import Config, Device, Pooling
from scsigmoid.errors import UserError

T = TypeVar("T")


def path(summary: str, metavar: str = "PATH") -> dict[str, Any]:
    """A file or folder."""
    return {"type": Path, "metavar": metavar, "help": summary}


def number(summary: str, default: int = 1) -> dict[str, Any]:
    """A whole number."""
    return {"type": int, "metavar": "N", "default": default, "help": summary}


def choice(summary: str, values: tuple[str, ...], default: str) -> dict[str, Any]:
    """One of several names."""
    return {"choices": values, "default": default, "help": summary}


def text(summary: str) -> dict[str, Any]:
    """A name."""
    return {"default": "", "metavar": "NAME", "help": summary}


class JobSettings(dict[str, Any]):
    """Checked settings of one job, by dotted name.

    Args:
        values: the settings as plain values.
        source: option or file that they come from, for messages.
    """

    def __init__(self, values: Mapping[str, Any], source: str = "--settings") -> None:
        super().__init__(values)
        self.source = source

    def __missing__(self, key: str) -> Any:
        raise UserError(f"{self.source}: the setting {key!r} is missing; add it")

    def section(self, key: str, kind: type[T]) -> T:
        """Return a section as a dataclass of the schema. It is not checked with pydantic again.

        Raises:
            UserError: if the section or one of its settings is missing, or one is unknown.
        """
        try:
            return kind(**self[key])
        except TypeError as error:
            reason = str(error).rpartition("__init__() ")[2]
            raise UserError(f"{self.source}: {key}: {reason}; correct the settings") from None


def parse_settings(text: str) -> JobSettings:
    """Parse settings in a JSON object."""
    try:
        values = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not valid JSON: {error}") from None
    if not isinstance(values, dict):
        raise argparse.ArgumentTypeError("not valid JSON: expected a JSON object")
    return JobSettings(values)


ARGUMENTS: dict[str, dict[str, Any]] = {
    "input": path("cells with raw counts: h5ad, or a 10x file or folder", "INPUT.h5ad"),
    "output": path("file to write", "OUTPUT.h5ad"),
    "name": {"help": "of the table or figure"},
    "--log": path("write progress to this file; without it to the terminal"),
    "--output": path("file or folder to write; of several, named after models or metrics"),
    "--configuration": path("configuration that a run stored: config.yaml of its results"),
    "--settings": {"type": parse_settings, "metavar": "JSON", "help": "settings by dotted name"},
    "--configfile": path("files of settings laid over the preset, as for snakemake"),
    "--config": {
        "default": [],
        "metavar": "KEY=VALUE",
        "help": "settings laid over all of these, as for snakemake",
    },
    "--manifest": path("files of the corpus: manifest.csv"),
    "--summary": path("summary of the corpus to write: what was offered, held out and taken"),
    "--part": text("number of a part of the training cells"),
    "--dataset": text("evaluation dataset"),
    "--metadata": path("JSON about an evaluation dataset: labels, cells, checksum"),
    "--cells": path("cells: a part of the corpus, or an evaluation dataset (h5ad)"),
    "--statistics": path("gene statistics of each part"),
    "--vocabulary": path("vocabulary that the model was trained with: vocabulary.parquet"),
    "--tokens": path("token stores, made by tokenize"),
    "--model": text("name of the model"),
    "--checkpoint": path("trained model: model.safetensors"),
    "--gpus": number("GPUs of each machine that train together, by torchrun"),
    "--nodes": number("machines that train together, by Slurm"),
    "--device": choice("auto takes a GPU where there is one", get_args(Device), "auto"),
    "--pooling": choice(
        "mean over a cell's gene tokens, or the token <cls>", get_args(Pooling), "mean"
    ),
    "--batch-tokens": number("tokens per forward pass; bounds the memory", 16_384),
    "--layer": text("layer with the raw counts; without it raw.X, else X"),
    "--genes": text(
        "column of var with Ensembl ids or gene names; without it the index of var or, if that has "
        "no Ensembl ids, the one column that has"
    ),
    "--embeddings": path("embeddings, named after their models"),
    "--neighbours": path("PCA coordinates and neighbours, made by neighbours"),
    "--machine": path("JSON about the machine and software, to write"),
    "--runs": path("folder that study-runs wrote"),
}


Run = Callable[[argparse.Namespace], None]


@dataclass
class Stage:
    """A subcommand.

    Attributes:
        run: carries it out.
        arguments: names in :data:`ARGUMENTS`; ``?`` behind one says that it may be left out, ``+``
            that it takes one value or more, ``*`` both.
        own: arguments that are not in :data:`ARGUMENTS`, or others there.
    """

    run: Run
    arguments: str
    own: Mapping[str, dict[str, Any]]

    def add_to(self, stages: Any, name: str) -> None:
        """Add its parser to those of the command line."""
        summary = self.run.__doc__ or ""
        sub = stages.add_parser(name, help=summary.rstrip("."), description=summary)
        sub.set_defaults(run=self.run)
        for argument in ("--log?", *self.arguments.split()):
            key = argument.rstrip("?+*")
            options = dict({**ARGUMENTS, **self.own}[key])
            if options.get("default"):
                options["help"] += " (default: %(default)s)"
            elif key.startswith("--"):
                options["required"] = argument[-1] not in "?*"
            if argument[-1] in "+*":
                options["nargs"] = "+"
            sub.add_argument(key, **options)


STAGES: dict[str, Stage] = {}


def stage(arguments: str, own: Mapping[str, dict[str, Any]] | None = None) -> Callable[[Run], Run]:
    """Make a function a subcommand, named and explained as the function is; see :class:`Stage`."""

    def add(run: Run) -> Run:
        STAGES[run.__name__.replace("_", "-")] = Stage(run, arguments, own or {})
        return run

    return add


def stored(configuration: Path) -> Config:
    """A stored configuration, checked again."""
    from scsigmoid.config.check import check

    values = read_yaml(configuration)
    try:
        return check(values)
    except UserError as error:
        raise UserError(f"{configuration}: {error}") from None


def corpus_of(configuration: Path) -> "tuple[Config, Path]":
    """A stored configuration, and where its downloads are kept.

    These stages read the whole configuration instead of the settings that Snakemake compares,
    because how files are downloaded shall make nothing run again.
    """
    config = stored(configuration)
    folder = config.corpus.download.folder
    return config, Path(folder) if folder else configuration.parent / "corpus" / "downloads"
