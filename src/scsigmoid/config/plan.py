"""Files and training runs of a configuration, for the rules of the workflow.

Paths are relative to the results folder. Plain values are dicts, lists, text, numbers, booleans
and None, as in YAML. Tables and figures are in :mod:`scsigmoid.report.registry`.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from scsigmoid.config.check import model_training
from scsigmoid.config.initial import initial_checksum, read_header
from scsigmoid.config.local_files import LocalFile, own_files
from scsigmoid.config.schema import Architecture, Config, Section, Training
from scsigmoid.config.study import study_runs
from scsigmoid.config.validate import check_known


class Plan:
    """The parts, datasets, models and training runs of one configuration."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.datasets = list(config.datasets)
        self.parts = [f"{part:05d}" for part in range(config.corpus.parts)]
        self.evaluated_models = [name for name, model in config.models.items() if not model.stress]
        self.stress_models = [name for name, model in config.models.items() if model.stress]
        self.study_runs = study_runs(config)
        self.trained = [*config.models, *self.study_runs]  # names of all models that are trained

    @cached_property
    def held_out_files(self) -> dict[str, LocalFile]:
        """The user's files with held-out cells, by the name of their dataset."""
        return {file.dataset: file for file in own_files(self.config) if file.dataset}

    @property
    def study_dataset(self) -> str | None:
        """The evaluation dataset that study runs embed (the same for all families), or None."""
        families = self.config.study.values()
        return next((family.embedded for family in families if family.embedded), None)

    def study_embeddings(self) -> list[str]:
        """Return the embedding files of study runs: for each snapshot and for the final model."""
        return [
            f"embeddings/{self.study_dataset}/{name}{suffix}.h5ad"
            for name, run in self.study_runs.items()
            if self.config.study[run.family].embedded
            for suffix in (*run.training.snapshot_suffixes.values(), "")
        ]

    def datasets_of(self, analysis: str) -> list[str]:
        """Return the datasets for which ``mmd`` or ``umap`` is computed.

        These are the datasets whose ``compared`` contains the analysis, else all datasets. MMD of
        the user's own cells is only computed for datasets with this setting.
        """
        datasets = self.config.datasets.items()
        comparing = [name for name, dataset in datasets if analysis in dataset.compared]
        if comparing:
            return comparing
        return [] if analysis == "mmd" and self.is_own else self.datasets

    @property
    def is_own(self) -> bool:
        """Whether the cells are the user's own."""
        return self.config.corpus.source == "local"

    def needed_cells(self, dataset: str) -> dict[str, int]:
        """Return the minimum number of cells for each analysis, or 0 if it is not computed."""
        evaluation = self.config.evaluation
        has_mmd, has_umap = (dataset in self.datasets_of(name) for name in ("mmd", "umap"))
        return {
            "scib": evaluation.scib.neighbors,
            "mmd": evaluation.mmd.minimum_cells if has_mmd else 0,
            "umap": evaluation.umap.neighbors if has_umap else 0,
        }

    def held_out_cells(self, dataset: str) -> list[Any]:
        """Return path, ``held_out``, layer and genes of the user's file of a dataset, or []."""
        file = self.held_out_files.get(dataset)
        return [str(file.path), file.held_out, file.layer, file.genes] if file else []

    def run_config(self, name: str) -> Config:
        """Return the configuration of the training of one model, or of one run of a study.

        ``training``, ``architecture`` and ``seed`` have the run's own values, which are therefore
        left out of its entry in ``models``. Other models, sizes and studies are left out.
        """
        config = self.config
        check_known("model", "model", [name], self.trained)
        if name in self.study_runs:
            run = self.study_runs[name]
            model, training, seed = run.model, run.training, run.seed
            size, variants = run.size, run.variants
        else:
            model, training = config.models[name], model_training(config, name)
            size, variants = model.size or config.architecture.size, config.architecture.variants
            seed = config.seed
        return config.model_copy(
            update={
                "models": {name: model.model_copy(update={"size": None, "training": {}})},
                "study": {},
                "sizes": {size: config.sizes[size]},
                "architecture": config.architecture.model_copy(
                    update={"size": size, "variants": variants}
                ),
                "training": training,
                "seed": seed,
            }
        )

    @property
    def initial(self) -> str | None:
        """The model file that models start from (``training.initial``), or None."""
        names = (model_training(self.config, name).initial for name in self.config.models)
        return next(filter(None, names), None)

    def initial_checksum(self, name: str) -> str | None:
        """Return the SHA-256 of the file that the training of a model starts from, if any."""
        initial = self.run_config(name).training.initial
        return initial_checksum(initial) if initial else None

    def changed_settings(self, name: str, path: str | Path) -> list[str]:
        """Compare the settings in the header of a finished model with the settings of its run.

        Return the settings that differ, with both values, for messages. A setting that the header
        does not contain has its default, or is not compared if it has none. If the file is missing
        or not a model, return an empty list.
        """
        try:
            metadata, _ = read_header(path)
        except (OSError, ValueError):
            return []
        defaults = {
            "training": defaults_of(Training), **defaults_of(Architecture), "initial": None
        }  # fmt: skip
        there = dict(leaves(defaults)) | dict(leaves(metadata))
        run = self.run_config(name)
        now: dict[str, Any] = {
            "attention": run.models[name].attention,
            "context": run.models[name].context,
            "cls_token": run.tokens.cls,
            "size": run.size_of(name).model_dump(),
            "training": run.training.model_dump(exclude={"execution", "initial"}),
            "initial": self.initial_checksum(name),
            "seed": run.seed,
            **run.architecture.model_dump(exclude={"size"}),  # a name. `size` has the dimensions.
        }
        return [
            f"{setting} ({there[setting]} there, {value} now)"
            for setting, value in leaves(now)
            if setting in there and there[setting] != value
        ]


def leaves(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and the value of each setting in nested mappings."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def defaults_of(section: type[Section]) -> dict[str, Any]:
    """Return the defaults of the settings in a section that have one."""
    fields = section.model_fields.items()
    return {name: field.get_default() for name, field in fields if not field.is_required()}
