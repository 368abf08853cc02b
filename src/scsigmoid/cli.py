"""The command line: one subcommand a stage; the workflow's rules call it, and so can people.

``--settings`` takes JSON: the settings that the stage depends on, keyed by their dotted names (see
``scsigmoid.config.plan``).  A user's mistake ends in one line and exit code 1.
"""

import argparse
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from scsigmoid import __version__
from scsigmoid.config.schema import (
    Architecture,
    Corpus,
    Dataset,
    Embeddings,
    KernelBenchmark,
    Mmd,
    Size,
    ThroughputBenchmark,
    Training,
    Umap,
    ValidationLoss,
)
from scsigmoid.errors import UserError

if TYPE_CHECKING:
    from scsigmoid.paper.results import Results

T = TypeVar("T")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand.

    Returns:
        The exit code: 0, or 1 after an error, or 130 after an interruption.
    """
    options = parser().parse_args(arguments)
    with logged(options.log) as terminal:
        try:
            options.run(options)
        except UserError as error:
            return complain(str(error), terminal)
        except OSError as error:
            # Disk full, no permission, a folder where a file should be: the system's words say it.
            if error.strerror is None:
                raise
            where = f"{error.filename}: " if error.filename else ""
            return complain(f"{where}{error.strerror}", terminal)
        except KeyboardInterrupt:
            return 130
        except Exception as error:
            if options.log is None:
                raise
            traceback.print_exc()
            reason = f"unexpected {type(error).__name__}: {error}; {options.log} has the details"
            return complain(reason, terminal)
    return 0


@contextmanager
def logged(path: Path | None) -> Iterator[TextIO]:
    """Send what is written to standard error, also by libraries, to a log file.

    Yields:
        What standard error was before, for the one line that a person should see.
    """
    if path is None:
        yield sys.stderr
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    before = os.dup(2)
    with path.open("w", encoding="utf-8") as log:
        os.dup2(log.fileno(), 2)
    try:
        with os.fdopen(os.dup(before), "w") as terminal:
            yield terminal
    finally:
        sys.stderr.flush()
        os.dup2(before, 2)
        os.close(before)


def complain(message: str, terminal: TextIO) -> int:
    """Print one line on standard error, and in the log if there is one."""
    line = f"scsigmoid: error: {' '.join(message.split())}"
    print(line, file=sys.stderr, flush=True)
    if terminal is not sys.stderr:
        print(line, file=terminal, flush=True)
    return 1


def parser() -> argparse.ArgumentParser:
    """All subcommands."""
    top = argparse.ArgumentParser(
        prog="scsigmoid",
        description="Stages of the sigmoid-attention experiment; `snakemake` runs them all.",
    )
    top.add_argument("--version", action="version", version=f"scsigmoid {__version__}")
    stages = top.add_subparsers(title="stages", metavar="STAGE", required=True)

    def stage(name: str, run: Callable[[argparse.Namespace], None], summary: str) -> Adder:
        sub = stages.add_parser(name, help=summary, description=summary)
        sub.set_defaults(run=run)
        sub.add_argument("--log", type=Path, metavar="PATH", help="write progress to this file")
        return Adder(sub)

    stage("manifest", manifest, "list the corpus files and lock them").settings().output()
    stage("fetch", fetch, "bring a part of the corpus, or an evaluation dataset, to disk").paths(
        "manifest"
    ).text("part", required=False).text("dataset", required=False).paths(
        "facts", required=False
    ).settings().output()
    stage("statistics", statistics, "gather gene statistics").paths("cells").settings().output()
    stage("vocabulary", vocabulary, "make vocabulary and medians").paths(
        "statistics", many=True
    ).settings().output()
    stage("tokenize", tokenize, "turn cells into ranked gene tokens").paths("cells").paths(
        "facts", required=False
    ).paths("vocabulary").settings().output()
    stage("lengths", lengths, "count cells at each sequence length").paths(
        "tokens", many=True
    ).output()
    stage("train", train, "train one model, or go on from its last checkpoint").text("model").paths(
        "tokens", many=True
    ).paths("vocabulary").settings().output()
    stage("embed", embed, "embed cells with a trained model").text("model").paths(
        "checkpoint"
    ).paths("tokens").settings().output()
    stage("validation-loss", validation_loss, "masked-gene loss on held-out cells").text(
        "dataset"
    ).text("model").paths("checkpoint").paths("tokens").settings().output().paths("cells")
    stage("neighbours", neighbours, "PCA and neighbours of each representation").paths(
        "embeddings", many=True
    ).paths("cells").settings().output()
    stage("silhouette", silhouette, "scIB silhouette of the cell types").text("dataset").paths(
        "neighbours"
    ).output()
    stage("leiden", leiden, "scIB Leiden NMI and ARI").text("dataset").paths(
        "neighbours"
    ).settings().paths("nmi").paths("ari")
    stage("mmd", mmd, "bootstrap MMD between cell types").text("dataset").paths(
        "embeddings", many=True
    ).settings().output()
    stage("umap", umap, "UMAP coordinates of both models").paths(
        "embeddings", many=True
    ).settings().output(many=True)
    stage(
        "benchmark-kernel", benchmark_kernel, "time the attention kernels"
    ).settings().output().paths("machine")
    stage(
        "benchmark-throughput", benchmark_throughput, "time training steps"
    ).settings().output().paths("machine")
    stage("table", table, "make one table").name().paths("configuration").output()
    stage("figure", figure, "draw one figure").name().paths("configuration").output()
    stage("claims", claims, "check the paper's claims").paths("configuration").output()
    stage("report", report, "write the report page").paths("configuration").output()
    return top


class Adder:
    """Adds arguments to a subcommand; each method returns the adder."""

    def __init__(self, sub: argparse.ArgumentParser) -> None:
        self.sub = sub

    def name(self) -> "Adder":
        self.sub.add_argument("name")
        return self

    def text(self, name: str, *, required: bool = True) -> "Adder":
        self.sub.add_argument(f"--{name}", required=required, default="")
        return self

    def paths(self, name: str, *, required: bool = True, many: bool = False) -> "Adder":
        self.sub.add_argument(
            f"--{name}", required=required, type=Path, nargs="+" if many else None, metavar="PATH"
        )
        return self

    def output(self, *, many: bool = False) -> "Adder":
        return self.paths("output", many=many)

    def settings(self) -> "Adder":
        self.sub.add_argument("--settings", required=True, type=as_settings, metavar="JSON")
        return self


def as_settings(text: str) -> dict[str, Any]:
    """Settings given as JSON."""
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise argparse.ArgumentTypeError(f"not valid JSON: {error}") from None
    if not isinstance(values, dict):
        raise argparse.ArgumentTypeError("expected a JSON object")
    return values


def typed(kind: type[T], values: Any) -> T:
    """Settings as their dataclass, nested ones included."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind).validate_python(values)


# --- corpus


def manifest(options: argparse.Namespace) -> None:
    from scsigmoid.corpus.manifest import build_manifest

    settings = options.settings
    datasets = {name: Dataset(**values) for name, values in settings["datasets"].items()}
    build_manifest(typed(Corpus, settings["corpus"]), datasets, settings["seed"], options.output)


def fetch(options: argparse.Namespace) -> None:
    from scsigmoid.corpus.fetch import fetch_evaluation, fetch_part

    corpus, seed = typed(Corpus, options.settings["corpus"]), options.settings["seed"]
    if options.dataset:
        fetch_evaluation(
            options.manifest, options.dataset, corpus, seed, options.output, options.facts
        )
    else:
        fetch_part(options.manifest, int(options.part), corpus, seed, options.output)


# --- tokens


def statistics(options: argparse.Namespace) -> None:
    from scsigmoid.tokens.statistics import gather

    gather(options.cells, options.settings["tokens.target_sum"], options.output)


def vocabulary(options: argparse.Namespace) -> None:
    from scsigmoid.tokens.vocabulary import build_vocabulary

    build_vocabulary(options.statistics, options.settings["tokens.minimum_cells"], options.output)


def tokenize(options: argparse.Namespace) -> None:
    from scsigmoid.tokens.make import tokenize_evaluation, tokenize_part

    settings = options.settings
    how = (
        options.vocabulary,
        settings["tokens.target_sum"],
        settings["maximum_length"],
        settings["tokens.shard_cells"],
        options.output,
    )
    if options.facts:
        tokenize_evaluation(options.cells, options.facts, *how)
    else:
        tokenize_part(options.cells, *how)


def lengths(options: argparse.Namespace) -> None:
    from scsigmoid.tokens.lengths import write_length_counts

    write_length_counts(options.tokens, options.output)


# --- training


def train(options: argparse.Namespace) -> None:
    from scsigmoid.training.loop import train as run_training
    from scsigmoid.training.run import TrainingRun

    # Built without pydantic, which a bare GPU image may lack; the workflow has checked the types.
    settings = dict(options.settings[f"models.{options.model}"])
    run = TrainingRun(
        model=options.model,
        size=Size(**settings.pop("size")),
        architecture=Architecture(**settings.pop("architecture")),
        training=Training(**settings.pop("training")),
        **settings,
    )
    run_training(run, options.tokens, options.vocabulary, options.output)


# --- evaluation


def embed(options: argparse.Namespace) -> None:
    from scsigmoid.evaluation.embeddings import embed as embed_cells

    settings = Embeddings(**options.settings["evaluation.embeddings"])
    embed_cells(
        options.checkpoint,
        options.tokens,
        options.model,
        settings,
        options.settings["device"],
        options.output,
    )


def validation_loss(options: argparse.Namespace) -> None:
    from scsigmoid.evaluation.validation_loss import validation_loss as measure

    measure(
        options.checkpoint,
        options.tokens,
        options.dataset,
        options.model,
        ValidationLoss(**options.settings["evaluation.validation_loss"]),
        options.settings["seed"],
        options.settings["device"],
        options.output,
        options.cells,
    )


def neighbours(options: argparse.Namespace) -> None:
    from scsigmoid.evaluation.neighbours import neighbours_of_dataset

    settings = options.settings
    neighbours_of_dataset(
        by_model(options.embeddings),
        options.cells,
        neighbours=settings["evaluation.scib.neighbours"],
        variance=settings["evaluation.scib.variance"],
        controls=settings["evaluation.scib.controls"],
        seed=settings["seed"],
        output=options.output,
    )


def without_compilation() -> None:
    """Keep numba from compiling: scib_metrics imports libraries that compile when imported.

    Nothing that is compiled runs in these stages; it would cost ten seconds a job.
    """
    os.environ["NUMBA_DISABLE_JIT"] = "1"


def silhouette(options: argparse.Namespace) -> None:
    without_compilation()
    from scsigmoid.evaluation.scib import silhouette as measure

    measure(options.neighbours, options.dataset, options.output)


def leiden(options: argparse.Namespace) -> None:
    without_compilation()
    from scsigmoid.evaluation.scib import leiden as measure

    measure(options.neighbours, options.dataset, options.settings["seed"], options.nmi, options.ari)


def mmd(options: argparse.Namespace) -> None:
    from scsigmoid.evaluation.mmd import mmd_dataset

    settings = options.settings
    mmd_dataset(
        by_model(options.embeddings),
        options.dataset,
        Mmd(**settings["mmd"]),
        settings["seed"],
        options.output,
    )


def umap(options: argparse.Namespace) -> None:
    from scsigmoid.evaluation.umap import umap_dataset

    settings = options.settings
    umap_dataset(
        by_model(options.embeddings),
        Umap(**settings["umap"]),
        settings["seed"],
        by_model(options.output),
    )


def by_model(paths: Sequence[Path]) -> dict[str, Path]:
    """Files named after models, by model."""
    return {path.stem: path for path in paths}


# --- benchmarks


def benchmark_kernel(options: argparse.Namespace) -> None:
    from scsigmoid.benchmarks.kernel import run_kernel_benchmark

    settings = KernelBenchmark(**options.settings["benchmarks.kernel"])
    run_kernel_benchmark(settings, options.settings["device"], options.output, options.machine)


def benchmark_throughput(options: argparse.Namespace) -> None:
    from scsigmoid.benchmarks.throughput import run_throughput_benchmark

    settings = options.settings
    run_throughput_benchmark(
        ThroughputBenchmark(**settings["benchmarks.throughput"]),
        {name: Size(**values) for name, values in settings["sizes"].items()},
        Architecture(**settings["architecture"]),
        Training(**settings["training"]),
        settings["seed"],
        settings["device"],
        options.output,
        options.machine,
    )


# --- paper


def results_of(configuration: Path) -> "Results":
    """The results folder that a stored configuration lies in."""
    from scsigmoid.config.check import check, read_yaml
    from scsigmoid.paper.results import Results

    return Results(configuration.parent, check(read_yaml(configuration)))


def table(options: argparse.Namespace) -> None:
    from scsigmoid.paper.tables import make_table

    make_table(options.name, results_of(options.configuration), options.output.with_suffix(""))


def figure(options: argparse.Namespace) -> None:
    from scsigmoid.paper.figures import make_figure

    make_figure(
        options.name,
        results_of(options.configuration),
        options.output,
        options.output.with_suffix(".pdf"),
    )


def claims(options: argparse.Namespace) -> None:
    from scsigmoid.paper.claims import make_claims

    make_claims(results_of(options.configuration), options.output)


def report(options: argparse.Namespace) -> None:
    from scsigmoid.paper.report import make_report

    make_report(results_of(options.configuration), options.output)
