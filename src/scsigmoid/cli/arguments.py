"""What subcommands have in common: how their arguments are declared, and stored configurations."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from scsigmoid.config.check import Loaded, from_json, read_yaml
from scsigmoid.config.schema import Config
from scsigmoid.errors import UserError


class Adder:
    """Adds arguments to a subcommand; each method returns the adder."""

    def __init__(self, sub: argparse.ArgumentParser) -> None:
        self.sub = sub

    def name(self) -> Self:
        self.sub.add_argument("name")
        return self

    def files(self, *names: str) -> Self:
        for name in names:
            self.sub.add_argument(name, type=Path, metavar=f"{name.upper()}.h5ad")
        return self

    def folders(self) -> Self:
        self.sub.add_argument("folders", type=Path, nargs="+", metavar="RESULTS")
        return self

    def choice(self, name: str, values: Sequence[str], default: str) -> Self:
        self.sub.add_argument(f"--{name}", choices=values, default=default)
        return self

    def text(self, name: str, *, required: bool = True) -> Self:
        self.sub.add_argument(f"--{name}", required=required, default="")
        return self

    def number(self, name: str, summary: str, *, default: int = 1) -> Self:
        self.sub.add_argument(f"--{name}", type=int, default=default, metavar="N", help=summary)
        return self

    def paths(self, name: str, *, required: bool = True, many: bool = False) -> Self:
        self.sub.add_argument(
            f"--{name}", required=required, type=Path, nargs="+" if many else None, metavar="PATH"
        )
        return self

    def output(self, *, many: bool = False) -> Self:
        return self.paths("output", many=many)

    def overrides(self) -> Self:
        self.sub.add_argument("--configfile", type=Path, metavar="PATH", help="as for snakemake")
        self.sub.add_argument(
            "--config", nargs="+", default=[], metavar="KEY=VALUE", help="as for snakemake"
        )
        return self

    def settings(self) -> Self:
        self.sub.add_argument("--settings", required=True, type=as_settings, metavar="JSON")
        return self


class Stages:
    """The subcommands of the command line.

    Args:
        top: the parser that they belong to.
    """

    def __init__(self, top: argparse.ArgumentParser) -> None:
        self._stages: Any = top.add_subparsers(title="stages", metavar="STAGE", required=True)

    def add(self, name: str, run: Callable[[argparse.Namespace], None], summary: str) -> Adder:
        """Add a subcommand that ``run`` carries out."""
        sub = self._stages.add_parser(name, help=summary, description=summary)
        sub.set_defaults(run=run)
        sub.add_argument("--log", type=Path, metavar="PATH", help="write progress to this file")
        return Adder(sub)


def as_settings(text: str) -> Loaded:
    """Settings given as JSON."""
    try:
        return from_json("--settings", text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not valid JSON: {error}") from None


def stored(configuration: Path) -> Config:
    """A stored configuration, checked again."""
    from scsigmoid.config.check import check
    from scsigmoid.seals import check_seal

    check_seal(configuration)
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
