"""The command line: one subcommand a stage; the workflow's rules call it, and so can people.

``--settings`` takes JSON: the settings that the stage depends on, keyed by their dotted names (see
``scsigmoid.config.plan``).  A user's mistake ends in one line and exit code 1.
"""

import argparse
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, get_args

from scsigmoid import __version__
from scsigmoid.config.given import Given, built, from_json, from_yaml, read_yaml
from scsigmoid.config.schema import (
    Architecture,
    Config,
    Device,
    Embeddings,
    KernelBenchmark,
    Mmd,
    Pooling,
    Size,
    ThroughputBenchmark,
    Training,
    TrainingBenchmark,
    Umap,
    ValidationLoss,
)
from scsigmoid.errors import UserError

if TYPE_CHECKING:
    from scsigmoid.paper.results import Results


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand.

    Returns:
        The exit code: 0, or 1 after an error, or 130 after an interruption.
    """
    options = parser().parse_args(arguments)
    if max(getattr(options, "gpus", 1), getattr(options, "nodes", 1)) > 1:
        from scsigmoid.training.launch import launch, launched

        if not launched():
            try:
                return launch(
                    options.nodes, options.gpus, sys.argv[1:] if arguments is None else arguments
                )
            except UserError as error:
                return complain(str(error), sys.stderr)
    with logged(own_log(options.log)) as terminal:
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
            reason = f"unexpected {type(error).__name__}: {error}; see {own_log(options.log)}"
            return complain(reason, terminal)
    return 0


def own_log(path: Path | None) -> Path | None:
    """The log of this process: torchrun's processes beyond the first have files of their own."""
    rank = os.environ.get("RANK", "0")
    return path if path is None or rank == "0" else path.with_suffix(f".{rank}{path.suffix}")


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

    stage(
        "plan", plan, "print what a preset costs in files, disk and hours, before anything runs"
    ).overrides().number("devices", "GPUs that train at a time").number(
        "cores", "cores that read and tokenize"
    ).number("gigabits", "assumed speed of the network, Gbit/s")
    stage("manifest", manifest, "list the corpus files and lock them").paths(
        "configuration"
    ).output().paths("account")
    stage("fetch", fetch, "bring a part of the corpus, or an evaluation dataset, to disk").paths(
        "manifest"
    ).text("part", required=False).text("dataset", required=False).paths(
        "facts", required=False
    ).paths("configuration").output()
    stage("lock", lock, "complete the manifest with the hashes of all files").paths(
        "manifest"
    ).paths("files", many=True).paths("facts", many=True).output()
    stage("statistics", statistics, "gather gene statistics").paths("cells").settings().paths(
        "configuration", required=False
    ).paths("files", required=False).output()
    stage("vocabulary", vocabulary, "make vocabulary and medians").paths(
        "statistics", many=True
    ).settings().output()
    stage("tokenize", tokenize, "turn cells into ranked gene tokens").paths("cells").paths(
        "facts", required=False
    ).paths("vocabulary").settings().paths("configuration", required=False).output()
    stage("check-tokens", check_tokens, "check token stores, and rebuild damaged shards").paths(
        "tokens", many=True
    ).paths("cells", required=False).paths("vocabulary", required=False)
    stage("lengths", lengths, "count cells at each sequence length").paths(
        "tokens", many=True
    ).output()
    stage("train", train, "train one model, or go on from its last checkpoint").text("model").paths(
        "tokens", many=True
    ).paths("vocabulary").settings().output().number(
        "gpus", "train on so many GPUs of a machine, by torchrun"
    ).number("nodes", "on so many machines, by Slurm")
    stage("embed", embed, "embed your own h5ad file with a trained model").files(
        "input", "output"
    ).paths("checkpoint").paths("vocabulary").choice("pooling", get_args(Pooling), "mean").choice(
        "device", get_args(Device), "auto"
    ).number("batch-tokens", "tokens per forward pass; bounds the memory", default=16_384)
    stage("embeddings", embeddings, "embed the cells of a token store").text("model").paths(
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
    ).settings().output()
    stage("leiden", leiden, "scIB Leiden NMI and ARI").text("dataset").paths(
        "neighbours"
    ).settings().paths("nmi").paths("ari")
    stage("kmeans", kmeans, "scIB k-means NMI and ARI").text("dataset").paths("neighbours").paths(
        "nmi"
    ).paths("ari")
    stage("clisi", clisi, "scIB cLISI").text("dataset").paths("neighbours").output()
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
    stage(
        "benchmark-training", benchmark_training, "time training with each attention kernel"
    ).settings().output().paths("machine")
    stage("simulate-tokens", simulate_tokens, "write simulated cells, ready for training").paths(
        "configuration"
    ).number("cells", "how many", default=30_000).output()
    stage("benchmark-loading", benchmark_loading, "time the preparation of batches").text(
        "model"
    ).paths("configuration").number("workers", "threads that prepare batches").output()
    stage("benchmark-scaling", benchmark_scaling, "time training on several processes").text(
        "model"
    ).paths("configuration").text("processes").number(
        "steps", "optimiser steps of each run", default=60
    ).choice("device", get_args(Device), "auto").output().paths("machine")
    stage(
        "benchmark-tokens", benchmark_tokens, "time gene statistics and tokenization"
    ).settings().paths("work").output().paths("machine")
    stage("benchmark-evaluation", benchmark_evaluation, "time a part of the evaluation").choice(
        "part", ("mmd", "mmd-plain", "validation-loss", "silhouette", "scib"), "mmd"
    ).choice("device", get_args(Device), "auto").paths("configuration").output()
    stage("table", table, "make one table").name().paths("configuration").output()
    stage("figure", figure, "draw one figure").name().paths("configuration").output()
    stage("claims", claims, "check the paper's claims").paths("configuration").output()
    stage("report", report, "write the report page").paths("configuration").output()
    stage(
        "compare-seeds", compare_seeds, "compare the two arms over runs with several seeds"
    ).folders().output()
    return top


class Adder:
    """Adds arguments to a subcommand; each method returns the adder."""

    def __init__(self, sub: argparse.ArgumentParser) -> None:
        self.sub = sub

    def name(self) -> "Adder":
        self.sub.add_argument("name")
        return self

    def files(self, *names: str) -> "Adder":
        for name in names:
            self.sub.add_argument(name, type=Path, metavar=f"{name.upper()}.h5ad")
        return self

    def folders(self) -> "Adder":
        self.sub.add_argument("folders", type=Path, nargs="+", metavar="RESULTS")
        return self

    def choice(self, name: str, values: Sequence[str], default: str) -> "Adder":
        self.sub.add_argument(f"--{name}", choices=values, default=default)
        return self

    def text(self, name: str, *, required: bool = True) -> "Adder":
        self.sub.add_argument(f"--{name}", required=required, default="")
        return self

    def number(self, name: str, summary: str, *, default: int = 1) -> "Adder":
        self.sub.add_argument(f"--{name}", type=int, default=default, metavar="N", help=summary)
        return self

    def paths(self, name: str, *, required: bool = True, many: bool = False) -> "Adder":
        self.sub.add_argument(
            f"--{name}", required=required, type=Path, nargs="+" if many else None, metavar="PATH"
        )
        return self

    def output(self, *, many: bool = False) -> "Adder":
        return self.paths("output", many=many)

    def overrides(self) -> "Adder":
        self.sub.add_argument("--configfile", type=Path, metavar="PATH", help="as for snakemake")
        self.sub.add_argument(
            "--config", nargs="+", default=[], metavar="KEY=VALUE", help="as for snakemake"
        )
        return self

    def settings(self) -> "Adder":
        self.sub.add_argument("--settings", required=True, type=as_settings, metavar="JSON")
        return self


def as_settings(text: str) -> Given:
    """Settings given as JSON."""
    try:
        return from_json("--settings", text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not valid JSON: {error}") from None


def plan(options: argparse.Namespace) -> None:
    from scsigmoid.config.check import load, merge
    from scsigmoid.config.overrides import parsed
    from scsigmoid.forecast.page import forecast

    for name in ("devices", "cores", "gigabits"):
        if getattr(options, name) < 1:
            raise UserError(f"--{name}: expected at least 1")
    if not Path("config.yaml").is_file():
        raise UserError("config.yaml: not in this folder; run plan in the project's own")
    given = read_yaml(options.configfile) if options.configfile else {}
    config = load(overrides=merge(given, parsed(options.config)))
    results = Path(config.results or f"results/{config.preset}")
    for line in forecast(
        config,
        devices=options.devices,
        cores=options.cores,
        gigabits=options.gigabits,
        results=results,
    ):
        print(line)


def stored(configuration: Path) -> Config:
    """A stored configuration, checked again."""
    from scsigmoid.config.check import check

    values = read_yaml(configuration)
    try:
        return check(values)
    except UserError as error:
        raise UserError(f"{configuration}: {error}") from None


# --- corpus


def corpus_of(configuration: Path) -> "tuple[Config, Path]":
    """A stored configuration, and where its downloads are kept.

    These stages read the whole configuration instead of the settings that Snakemake compares,
    because how files are downloaded shall make nothing run again.
    """
    config = stored(configuration)
    folder = config.corpus.download.folder
    return config, Path(folder) if folder else configuration.parent / "corpus" / "downloads"


def manifest(options: argparse.Namespace) -> None:
    from scsigmoid.corpus.manifest import build_manifest

    config, downloads = corpus_of(options.configuration)
    lines = build_manifest(
        config.corpus, config.datasets, config.seed, downloads, options.output, options.account
    )
    for line in lines:
        print(line)


def fetch(options: argparse.Namespace) -> None:
    from scsigmoid.corpus.fetch import fetch_evaluation, fetch_part

    if not options.dataset and not options.part.isdigit():
        raise UserError("fetch: expected --part with a number, or --dataset")
    config, downloads = corpus_of(options.configuration)
    how = (config.corpus, config.seed, downloads, options.output)
    if options.dataset:
        fetch_evaluation(options.manifest, options.dataset, *how, options.facts)
    else:
        fetch_part(options.manifest, int(options.part), *how)


def lock(options: argparse.Namespace) -> None:
    from scsigmoid.corpus.lock import write_lock

    write_lock(options.manifest, options.files, options.facts, options.output)


# --- tokens


def statistics(options: argparse.Namespace) -> None:
    from scsigmoid.corpus.rows import FILES, read_manifest, write_manifest
    from scsigmoid.tokens.statistics import gather

    with raw_files(options, last=False):
        gather(options.cells, options.settings["tokens.target_sum"], options.output)
        if options.files:
            write_manifest(options.files, read_manifest(options.cells / FILES))


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
        with raw_files(options, last=True):
            tokenize_part(options.cells, *how)


@contextmanager
def raw_files(options: argparse.Namespace, *, last: bool) -> Iterator[None]:
    """Have the raw files of a part, as the configuration says; without one they are there."""
    from scsigmoid.corpus import fetch as corpus

    if options.configuration is None:
        yield
        return
    config, downloads = corpus_of(options.configuration)
    manifest = options.configuration.parent / "corpus" / "manifest.csv"
    with corpus.raw_files(options.cells, manifest, config.corpus, downloads, last=last):
        yield


def check_tokens(options: argparse.Namespace) -> None:
    from scsigmoid.tokens.checking import check_tokens as check

    check(options.tokens, options.cells, options.vocabulary)


def lengths(options: argparse.Namespace) -> None:
    from scsigmoid.tokens.lengths import write_length_counts

    write_length_counts(options.tokens, options.output)


# --- training


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


# --- evaluation


def embed(options: argparse.Namespace) -> None:
    from scsigmoid.evaluation.own_cells import embed_file

    if options.batch_tokens < 1:
        raise UserError(f"--batch-tokens {options.batch_tokens}: expected at least 1")
    if options.output.is_dir():
        raise UserError(f"{options.output}: a folder; name a file")
    embed_file(
        options.input,
        options.checkpoint,
        options.vocabulary,
        Embeddings(pooling=options.pooling, batch_tokens=options.batch_tokens),
        options.device,
        options.output,
    )


def embeddings(options: argparse.Namespace) -> None:
    from scsigmoid.evaluation.embeddings import embed as embed_cells

    settings = built(Embeddings, options.settings["evaluation.embeddings"])
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
        built(ValidationLoss, options.settings["evaluation.validation_loss"]),
        options.settings["seed"],
        options.settings["device"],
        options.output,
        options.cells,
    )


def neighbours(options: argparse.Namespace) -> None:
    from scsigmoid.evaluation.neighbours import neighbours_of_dataset
    from scsigmoid.training.devices import resolve_device

    settings = options.settings
    neighbours_of_dataset(
        by_model(options.embeddings),
        options.cells,
        neighbours=settings["evaluation.scib.neighbours"],
        variance=settings["evaluation.scib.variance"],
        controls=settings["evaluation.scib.controls"],
        seed=settings["seed"],
        output=options.output,
        device=resolve_device(settings["device"]),
    )


def without_compilation() -> None:
    """Keep numba from compiling: scib_metrics imports libraries that compile when imported.

    It would cost ten seconds a job; what runs instead takes a fraction of a millisecond a cell.
    """
    os.environ["NUMBA_DISABLE_JIT"] = "1"


def silhouette(options: argparse.Namespace) -> None:
    from scsigmoid.evaluation.scib import silhouette as measure
    from scsigmoid.training.devices import resolve_device

    device = resolve_device(options.settings["device"])
    measure(options.neighbours, options.dataset, options.output, device)


def leiden(options: argparse.Namespace) -> None:
    without_compilation()
    from scsigmoid.evaluation.scib import leiden as measure

    measure(options.neighbours, options.dataset, options.settings["seed"], options.nmi, options.ari)


def kmeans(options: argparse.Namespace) -> None:
    without_compilation()
    from scsigmoid.evaluation.scib import kmeans as measure

    measure(options.neighbours, options.dataset, options.nmi, options.ari)


def clisi(options: argparse.Namespace) -> None:
    without_compilation()
    from scsigmoid.evaluation.scib import clisi as measure

    measure(options.neighbours, options.dataset, options.output)


def mmd(options: argparse.Namespace) -> None:
    from scsigmoid.evaluation.mmd import mmd_dataset
    from scsigmoid.training.devices import resolve_device

    settings = options.settings
    mmd_dataset(
        by_model(options.embeddings),
        options.dataset,
        built(Mmd, settings["mmd"]),
        settings["seed"],
        options.output,
        resolve_device(settings["device"]),
    )


def umap(options: argparse.Namespace) -> None:
    from scsigmoid.evaluation.umap import umap_dataset

    settings = options.settings
    umap_dataset(
        by_model(options.embeddings),
        built(Umap, settings["umap"]),
        settings["seed"],
        by_model(options.output),
    )


def by_model(paths: Sequence[Path]) -> dict[str, Path]:
    """Files named after models, by model."""
    return {path.stem: path for path in paths}


# --- benchmarks


def benchmark_kernel(options: argparse.Namespace) -> None:
    from scsigmoid.benchmarks.kernel import run_kernel_benchmark

    settings = built(KernelBenchmark, options.settings["benchmarks.kernel"])
    run_kernel_benchmark(settings, options.settings["device"], options.output, options.machine)


def benchmark_throughput(options: argparse.Namespace) -> None:
    from scsigmoid.benchmarks.throughput import run_throughput_benchmark

    settings = options.settings
    run_throughput_benchmark(
        built(ThroughputBenchmark, settings["benchmarks.throughput"]),
        {name: built(Size, values) for name, values in settings["sizes"].items()},
        built(Architecture, settings["architecture"]),
        built(Training, settings["training"]),
        settings["seed"],
        settings["device"],
        options.output,
        options.machine,
    )


def benchmark_training(options: argparse.Namespace) -> None:
    from scsigmoid.benchmarks.training import run_training_benchmark

    settings = options.settings
    benchmark = built(TrainingBenchmark, settings["benchmarks.training"])
    run_training_benchmark(
        benchmark,
        built(Size, settings["sizes"][benchmark.size]),
        built(Architecture, settings["architecture"]),
        built(Training, settings["training"]),
        settings["seed"],
        settings["device"],
        options.output,
        options.machine,
    )


def model_of(config: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """The entry of ``--model`` in the configuration."""
    if options.model not in config["models"]:
        raise UserError(f"--model {options.model}: not among models of {options.configuration}")
    model: dict[str, Any] = config["models"][options.model]
    return model


def simulate_tokens(options: argparse.Namespace) -> None:
    from scsigmoid.benchmarks.simulated_tokens import write_simulated_tokens

    config = from_yaml(options.configuration)
    write_simulated_tokens(
        options.output,
        built(ThroughputBenchmark, config["benchmarks"]["throughput"]),
        options.cells,
        max(model["context"] for model in config["models"].values()) - 1,
        config["seed"],
    )


def benchmark_loading(options: argparse.Namespace) -> None:
    from scsigmoid.benchmarks.loading import run_loading_benchmark

    config = from_yaml(options.configuration)
    model = model_of(config, options)
    architecture = built(Architecture, config["architecture"])
    run_loading_benchmark(
        built(ThroughputBenchmark, config["benchmarks"]["throughput"]),
        built(Size, config["sizes"][architecture.size]),
        architecture,
        built(Training, config["training"] | {"workers": options.workers}),
        model["context"],
        config["seed"],
        options.output,
    )


def benchmark_scaling(options: argparse.Namespace) -> None:
    from scsigmoid.benchmarks.scaling import run_scaling_benchmark

    config = from_yaml(options.configuration)
    model = model_of(config, options)
    try:
        counts = [int(count) for count in options.processes.split(",")]
    except ValueError:
        raise UserError(
            f"--processes {options.processes}: expected numbers with commas, as in 1,2"
        ) from None
    settings = {
        "attention": model["attention"],
        "context": model["context"],
        "backend": model.get("backend", "auto"),
        "size": config["sizes"][config["architecture"]["size"]],
        "architecture": config["architecture"],
        "training": config["training"] | model.get("training", {}),
        "seed": config["seed"],
        "device": options.device,
    }
    lengths = built(ThroughputBenchmark, config["benchmarks"]["throughput"])
    run_scaling_benchmark(
        options.model, settings, lengths, counts, options.steps, options.output, options.machine
    )


def benchmark_tokens(options: argparse.Namespace) -> None:
    from scsigmoid.benchmarks.tokenizing import TokenizingBenchmark, run_tokenizing_benchmark

    settings = built(TokenizingBenchmark, options.settings)
    run_tokenizing_benchmark(settings, options.work, options.output, options.machine)


def benchmark_evaluation(options: argparse.Namespace) -> None:
    from scsigmoid.evaluation.speed import run_evaluation_benchmark

    settings = from_yaml(options.configuration)
    run_evaluation_benchmark(options.part, settings, options.device, options.output)


# --- paper


def results_of(configuration: Path) -> "Results":
    """The results folder that a stored configuration lies in."""
    from scsigmoid.paper.results import Results

    return Results(configuration.parent, stored(configuration))


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


def compare_seeds(options: argparse.Namespace) -> None:
    from scsigmoid.paper.tables.seeds import compare_seeds as compare

    for path in compare(options.folders, options.output):
        print(path)
