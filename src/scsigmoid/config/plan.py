"""What a configuration asks for: the files of each stage and the settings that each depends on.

The workflow's rules read this; it holds no paths of the machine, only names below the results
folder. Tables and figures are in :mod:`scsigmoid.report.registry`.
"""

import dataclasses
from typing import Any

from scsigmoid.config.check import model_training
from scsigmoid.config.combinations import longest_cell
from scsigmoid.config.schema import Config
from scsigmoid.config.study import study_runs
from scsigmoid.errors import UserError

# What titles and labels are made of.
LABELS = ("datasets", "models")
KERNEL = ("benchmarks/kernel.csv", "benchmarks/kernel.json")
TRAINING = ("benchmarks/training.csv", "benchmarks/training.json")
# Settings of training that change no result, so that trained models stay as they are ...
UNSEEN = ("checkpoint_every", "keep_checkpoints", "workers")
# ... and those that the time of a step does not depend on: what benchmarks take instead.
UNTIMED = {
    "steps": 1, "global_batch": 1, "micro_batch_tokens": 1, "learning_rate": 1e-4,
    "warmup_steps": 0, "log_every": 1, "validate_every": 0, "validation_cells": 0,
    "checkpoint_every": 1, "keep_checkpoints": 1, "snapshots": [], "workers": 0,
}  # fmt: skip


class Plan:
    """The parts, datasets and models of one configuration."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.datasets = list(config.datasets)
        self.parts = [f"{part:05d}" for part in range(config.corpus.parts)]
        self.evaluated_models = [name for name, model in config.models.items() if not model.stress]
        self.stress_models = [name for name, model in config.models.items() if model.stress]
        self.study_runs = study_runs(config)

    @property
    def study_dataset(self) -> str | None:
        """The dataset that runs of the study embed."""
        return next((one.embedded for one in self.config.study.values() if one.embedded), None)

    def study_embeddings(self) -> list[str]:
        """Their embeddings, below the results folder: after each snapshot, and at the end."""
        return [
            f"embeddings/{self.study_dataset}/{name}{after}.h5ad"
            for name, run in self.study_runs.items()
            if self.config.study[run.family].embedded
            for after in (*run.training.kept.values(), "")
        ]

    def compared(self, metric: str) -> list[str]:
        """Return the datasets of ``mmd`` or ``umap``.

        They are those that ``evaluation.<metric>.datasets`` names, else those whose ``compared``
        has the metric, else all.
        """
        named = getattr(self.config.evaluation, metric).datasets
        if named is not None:
            return list(named)
        marked = [name for name, one in self.config.datasets.items() if metric in one.compared]
        return marked or self.datasets

    def needed_cells(self, dataset: str) -> dict[str, int]:
        """What the scores of a dataset need (:func:`scsigmoid.corpus.labels.check_enough`)."""
        evaluation = self.config.evaluation
        return {
            "scib": evaluation.scib.neighbours,
            "mmd": evaluation.mmd.minimum_cells * (dataset in self.compared("mmd")),
            "umap": evaluation.umap.neighbours * (dataset in self.compared("umap")),
        }

    @property
    def vocabulary_files(self) -> list[str]:
        """The user's files that the vocabulary is made with."""
        choice = self.config.tokens.vocabulary
        return choice.annotation if choice.genes is None else [choice.genes]

    def comparison_inputs(self) -> list[str]:
        """Files below the results folder that are compared with the paper."""
        return [
            *self.validation_losses(),
            *self.scib_scores(),
            *(f"metrics/mmd/{dataset}.csv" for dataset in self.compared("mmd")),
            *(f"training/{model}/journal.csv" for model in self.config.models),
            *self.dataset_metadata(),
            "corpus/manifest.csv",
            "tokens/lengths.parquet",
            "tokens/vocabulary.parquet",
            *KERNEL,
            *TRAINING,
        ]

    def dataset_metadata(self) -> list[str]:
        """Metadata of every evaluation dataset."""
        return [f"corpus/evaluation/{dataset}.json" for dataset in self.datasets]

    def validation_losses(self) -> list[str]:
        """Validation losses: summaries, and the cells' own losses for paired differences."""
        return [
            f"metrics/validation_loss/{dataset}/{model}.{kind}"
            for dataset in self.datasets
            for model in self.evaluated_models
            for kind in ("csv", "parquet")
        ]

    def scib_scores(self) -> list[str]:
        """scIB scores."""
        return [
            f"metrics/{metric}/{dataset}.csv"
            for metric in self.config.evaluation.scib.metrics
            for dataset in self.datasets
        ]

    def settings(self, *keys: str) -> dict[str, Any]:
        """The named settings, and nothing else, as plain values.

        Args:
            keys: dotted names of the configuration; ``models.<name>`` gives all that training this
                model, or run of a study, needs, ``trained.<name>`` what of it the trained model
                depends on; ``timed.<benchmark>`` what a timed training step depends on;
                ``maximum_length`` the most gene tokens that any model reads; ``mmd`` and ``umap``
                what these are computed with; ``selection`` which files are chosen; none at all the
                whole configuration.

        Returns:
            A mapping from each key, as given, to its value.
        """
        if not keys:
            return dataclasses.asdict(self.config)
        return {key: self.setting(key) for key in keys}

    def setting(self, key: str) -> Any:
        """The value of one dotted name."""
        if key == "maximum_length":
            return longest_cell(self.config)
        if key in ("mmd", "umap"):
            # Which datasets are compared and which estimator is printed changes no computation.
            chosen = dataclasses.asdict(getattr(self.config.evaluation, key))
            return chosen | {"datasets": None} | ({"estimator": "unbiased"} if key == "mmd" else {})
        if key == "selection":
            # How files are downloaded, from which hosts, which of their columns has the cell types
            # and which of their cells are taken, changes none of them; nor do titles.
            chosen = dataclasses.asdict(self.config.corpus)
            for entry in chosen["local"]:
                del entry["label"]
            datasets = {name: one.id for name, one in self.config.datasets.items()}
            others = ("download", "hosts", "minimum_genes")
            kept = {k: v for k, v in chosen.items() if k not in others}
            return kept | {"datasets": datasets}
        if key.startswith("timed."):
            names = getattr(self.config.benchmarks, key.removeprefix("timed.")).sizes
            return {
                "sizes": {name: dataclasses.asdict(self.config.sizes[name]) for name in names},
                "architecture": dataclasses.asdict(self.config.architecture) | {"size": ""},
                "training": dataclasses.asdict(self.config.training) | UNTIMED,
            }
        if key.startswith("trained."):
            needed = self.setting(f"models.{key.removeprefix('trained.')}")
            seen = {k: v for k, v in needed["training"].items() if k not in UNSEEN}
            return needed | {"training": seen}
        if key.startswith("models."):
            name = key.removeprefix("models.")
            architecture, seed = self.config.architecture, self.config.seed
            if name in self.study_runs:
                run = self.study_runs[name]
                model, training, seed = run.model, run.training, run.seed
                architecture = dataclasses.replace(
                    architecture, size=run.size, variants=run.variants
                )
            else:
                model, training = self.config.models[name], model_training(self.config, name)
            return {
                "attention": model.attention,
                "context": model.context,
                "cls_token": self.config.tokens.cls,
                "backend": model.backend,
                "size": dataclasses.asdict(self.config.sizes[architecture.size]),
                "architecture": dataclasses.asdict(architecture),
                "training": dataclasses.asdict(training),
                "seed": seed,
                "device": self.config.device,
            }
        value: Any = dataclasses.asdict(self.config)
        for part in key.split("."):
            if part not in value:
                raise UserError(f"{key}: no such setting")
            value = value[part]
        return value
