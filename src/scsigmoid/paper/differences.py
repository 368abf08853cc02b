"""Find settings and facts of a run that differ from the paper.

The paper's numbers form five groups (:data:`~.all_numbers.GROUPS`): quality, stability, kernel,
cost and hours. The numbers of a group are comparable with the paper if the group has no
differences.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from operator import attrgetter
from typing import Any

from scsigmoid.config.check import model_training
from scsigmoid.config.plan import Plan
from scsigmoid.config.schema import Config
from scsigmoid.paper.all_numbers import GROUPS
from scsigmoid.paper.hours import count_gpus
from scsigmoid.paper.reported import (
    cell_types,
    models_here,
    models_in_paper,
    reported,
    size_in_paper,
    timed_sizes,
)
from scsigmoid.results.folder import Results
from scsigmoid.results.labels import context_label, setting_text
from scsigmoid.results.speed import costs, row_label

#: Numbers of cells count as equal if their relative difference is at most this.
CELL_TOLERANCE = 0.01
#: End of the name of the paper's GPUs (H100 80GB SXM5), and their number. Names of parts of a GPU
#: (MIG) end otherwise.
GPU, GPUS = "H100 80GB HBM3", 16
#: The paper's models that the numbers of a group are about.
MODELS = {
    "quality": ("sigmoid_2k", "softmax_2k", "sigmoid_4k", "softmax_4k"),
    "stability": ("sigmoid_8k", "softmax_8k"),
    "hours": ("sigmoid_2k", "softmax_2k", "sigmoid_4k", "softmax_4k"),
}
MISSING = "missing"


@dataclass(frozen=True)
class Difference:
    """A setting (dotted name) or a fact of a group of numbers that differs from the paper."""

    group: str
    name: str
    here: str
    paper: str

    def __str__(self) -> str:
        return f"{self.name}: {self.here} (paper: {self.paper})"


def differences(config: Config, results: Results | None = None) -> list[Difference]:
    """Return the differences between a run and the paper, without repetitions.

    Without ``results``, only the configuration is compared.
    """
    of_results = result_differences(results) if results else ()
    return list(dict.fromkeys([*setting_differences(config), *of_results]))


def setting_differences(config: Config) -> Iterator[Difference]:
    """Yield the settings that differ from the paper.

    Except for ``evaluation.pair`` (the compared models), lists may contain more than the paper's.
    """
    for group in GROUPS:
        for name, paper in reported()["settings"][group].items():
            here = attrgetter(name)(config)
            if name == "evaluation.pair":
                here = [models_in_paper(config).get(model, model) for model in here]
            if name == "benchmarks.training.sizes":
                here = timed_sizes(config)
            may_have_more = isinstance(paper, list) and name != "evaluation.pair"
            is_same = set(paper) <= set(here) if may_have_more else here == paper
            if not is_same:
                yield Difference(group, name, setting_text(here), setting_text(paper))
        yield from model_differences(config, group, MODELS.get(group, ()))
        if group in ("kernel", "cost") and config.device == "cpu":
            yield Difference(group, "device", "cpu", GPU)
    providers = config.benchmarks.kernel.providers
    if providers is not None and "triton_sigmoid" not in providers:
        yield Difference(
            "kernel", "benchmarks.kernel.providers", setting_text(providers), "triton_sigmoid"
        )
    for name in reported()["datasets"]:
        if name not in config.datasets:
            yield Difference("quality", f"datasets.{name}", MISSING, "evaluated")
    if "heart_oft" not in Plan(config).datasets_of("mmd"):
        yield Difference("quality", "datasets.heart_oft.compared", MISSING, "mmd")


def model_differences(config: Config, group: str, names: tuple[str, ...]) -> Iterator[Difference]:
    """Yield the differences of the paper's models ``names`` of a group.

    If only some of these models have a difference, its name ends with their names.
    """
    common = reported()["model_architecture"]  # settings of all models in the paper
    # Names of the models by difference (setting, value here, value in the paper).
    models_with: dict[tuple[str, str, str], list[str]] = {}
    models = models_here(config)
    for name in names:
        if name not in models:
            models_with[f"models.{name}", MISSING, "trained"] = [name]
            continue
        model = models[name]
        here: Mapping[str, Any] = {
            **config.size_of(model).model_dump(),
            **config.architecture.model_dump(),
            **model_training(config, model).model_dump(),
            **config.models[model].model_dump(),
            # On a GPU, the precision is always the paper's.
            "precision": "float32 on a CPU" if config.device == "cpu" else common["precision"],
        }
        paper = {**common, **reported()["models"][name], "variants": []}
        for key in sorted(here.keys() & paper.keys()):  # the paper does not state all settings
            if here[key] != paper[key]:
                difference = (key, setting_text(here[key]), setting_text(paper[key]))
                models_with.setdefault(difference, []).append(name)
    for (key, here_value, paper_value), differing in models_with.items():
        # The key of a missing model already contains its name.
        if not key.startswith("models.") and len(differing) < len(names):
            key = f"{key} of {', '.join(differing)}"
        yield Difference(group, key, here_value, paper_value)


def result_differences(results: Results) -> Iterator[Difference]:
    """Yield the differences of the results.

    A device ``cpu`` in the configuration is not reported again (:func:`setting_differences`).
    """
    config = results.config
    cells, paper_cells = results.training_cells, reported()["corpus"]["cells"]
    for group, names in MODELS.items():
        if abs(cells / paper_cells - 1) > CELL_TOLERANCE:
            yield Difference(group, "number of training cells", f"{cells:,}", f"{paper_cells:,.0f}")
        for paper_name in names:
            if name := models_here(config).get(paper_name):
                journal = results.journal(name)
                steps = model_training(config, name).steps
                last_step = int(journal["step"][-1])
                if last_step < steps:
                    yield Difference(group, f"last step of {name}", f"{last_step:,}", f"{steps:,}")
                device = journal.header.get("device", "unknown")
                if device == "cpu" and config.device != "cpu":
                    yield Difference(group, f"device of {name}", "cpu", GPU)
                elif group == "hours" and device != "cpu":
                    # The other groups do not depend on the model and the number of GPUs.
                    if not device.endswith(GPU):
                        yield Difference(group, f"GPU of {name}", device, GPU)
                    gpus = count_gpus(results, name)
                    if gpus != GPUS:
                        here = str(gpus or "unknown")
                        yield Difference(group, f"GPUs that train {name}", here, str(GPUS))
    yield from dataset_differences(results)
    for group, benchmark in (("kernel", "kernel"), ("cost", "training")):
        device = str(results.machine(benchmark).get("device") or "unknown")
        if not device.endswith(GPU) and config.device != "cpu":
            yield Difference(group, "GPU", device, GPU)
    yield from training_benchmark_differences(results)


def dataset_differences(results: Results) -> Iterator[Difference]:
    for name, row in reported()["datasets"].items():
        if name not in results.config.datasets:
            continue
        cells = results.metadata(name)["cells"]
        if abs(cells / row["cells"] - 1) > CELL_TOLERANCE:
            yield Difference("quality", row["title"], f"{cells:,} cells", f"{row['cells']:,} cells")
    for name, rows in reported()["mmd"].items():
        if name in results.plan.datasets_of("mmd"):
            measured = {cell_types(pair) for pair in results.mmd(name)}
            if missing := [row for row in rows if cell_types(row["pair"]) not in measured]:
                title = reported()["datasets"][name]["title"]
                here = f"{len(rows) - len(missing)} of the paper's pairs"
                yield Difference("quality", f"cell types of {title}", here, f"{len(rows)} pairs")


def training_benchmark_differences(results: Results) -> Iterator[Difference]:
    """Yield differences in layout, kernel and bottleneck, and missing sizes of models."""
    paper_kernels = {"sigmoid": "triton_sigmoid", "softmax": "flex"}
    settings = reported()["settings"]["cost"]
    sizes, contexts = (settings[f"benchmarks.training.{name}"] for name in ("sizes", "contexts"))
    all_costs = costs(results)
    timed = {(size_in_paper(cost.sigmoid.parameters), cost.context) for cost in all_costs}
    missing = [
        f"{size} at {context_label(context)}"
        for size, context in product(sizes, contexts)
        if (size, context) not in timed
    ]
    # Other sizes in the settings are named by :func:`setting_differences`.
    if missing and set(sizes) <= set(timed_sizes(results.config)):
        yield Difference("cost", "sizes and contexts", f"without {', '.join(missing)}", "all timed")
    for cost in all_costs:
        for arm in (cost.sigmoid, cost.softmax):
            if arm.layout != "padded":
                yield Difference("cost", "layout", f"{arm.layout} sequences", "padded sequences")
            if arm.kernel != paper_kernels[arm.attention]:
                name = f"kernel of {arm.attention}"
                yield Difference("cost", name, arm.kernel, paper_kernels[arm.attention])
            if arm.host_bound:
                yield Difference("cost", row_label(arm), "bound by the host", "bound by the GPU")
