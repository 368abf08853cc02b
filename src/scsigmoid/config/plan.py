"""Files and job settings of a configuration, for the rules of the workflow.

Paths are relative to the results folder. Plain values are dicts, lists, text, numbers, booleans
and None, as in YAML. Tables and figures are in :mod:`scsigmoid.report.registry`.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from functools import cached_property, reduce
from operator import getitem
from pathlib import Path
from typing import Any

from scsigmoid.config.check import as_json, model_training
from scsigmoid.config.effects import effects, find_settings, values_for
from scsigmoid.config.local_files import LocalFile, own_files
from scsigmoid.config.schema import Config, Training
from scsigmoid.config.study import study_runs
from scsigmoid.config.versions import version_setting
from scsigmoid.files import METADATA_KEY

LARGEST_HEADER = 100_000_000  # bytes, the limit of safetensors


class Plan:
    """The parts, datasets, models and job settings of one configuration."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.datasets = list(config.datasets)
        self.parts = [f"{part:05d}" for part in range(config.corpus.parts)]
        self.evaluated_models = [name for name, model in config.models.items() if not model.stress]
        self.stress_models = [name for name, model in config.models.items() if model.stress]
        self.study_runs = study_runs(config)

    @cached_property
    def held_out_files(self) -> dict[str, LocalFile]:
        """The user's files with held-out cells, by the name of their dataset."""
        files = own_files(self.config.corpus, self.config.datasets)
        return {file.dataset: file for file in files if file.dataset}

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

        These are ``evaluation.<analysis>.datasets`` if set, else the datasets whose ``compared``
        contains the analysis, else all datasets. MMD of the user's own cells is not computed unless
        one of these settings names a dataset.
        """
        listed = getattr(self.config.evaluation, analysis).datasets
        if listed is not None:
            return list(listed)
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
            "scib": evaluation.scib.neighbours,
            "mmd": evaluation.mmd.minimum_cells if has_mmd else 0,
            "umap": evaluation.umap.neighbours if has_umap else 0,
        }

    def settings(self, *keys: str) -> dict[str, Any]:
        """Return settings by dotted name as plain values. Without names, return all settings."""
        values = dataclasses.asdict(self.config)
        return {key: reduce(getitem, key.split("."), values) for key in keys} if keys else values

    def settings_of(self, rule: str, dataset: str | None = None) -> dict[str, Any]:
        """Return the settings that affect a rule, by dotted name, as plain values.

        ``dataset`` is the job's evaluation dataset (default: all). The settings of ``train`` are in
        :meth:`run_settings`.
        """
        settings = dict(find_settings(self.config, rule, None if dataset is None else [dataset]))
        settings |= version_setting(rule)
        if rule == "manifest":  # A new file whose cells are all held out should not rerun training.
            corpus = settings["corpus"]
            corpus["local"] = [entry for entry in corpus["local"] if entry["held_out"] is not True]
        if rule == "evaluation_cells" and dataset in self.held_out_files:
            file = self.held_out_files[dataset]  # `corpus.local` itself affects only `manifest`
            settings["file"] = [str(file.path), file.held_out, file.layer, file.genes]
        if "sizes" in settings:  # the rule is `benchmark_training`: only the sizes that it times
            names = self.config.benchmarks.training.sizes
            settings["sizes"] = {name: settings["sizes"][name] for name in names}
        return settings

    def run_settings(self, name: str) -> dict[str, Any]:
        """Return all training settings of a model, or of a run of the study, as plain values.

        The keys are the attributes of :class:`scsigmoid.training.run.TrainingRun`.
        """
        architecture, seed = self.config.architecture, self.config.seed
        if name in self.study_runs:
            run = self.study_runs[name]
            model, training, seed = run.model, run.training, run.seed
            architecture = dataclasses.replace(architecture, size=run.size, variants=run.variants)
        else:
            model, training = self.config.models[name], model_training(self.config, name)
            architecture = dataclasses.replace(architecture, size=model.size or architecture.size)
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

    def compared_settings(self, name: str) -> dict[str, Any]:
        """Return the settings of a model's run that affect it, and the version of the code.

        Snakemake compares them with the last run, and trains again if they changed.
        """
        settings = self.run_settings(name)
        del settings["device"]  # changes results by rounding only
        training = values_for(Training(**settings["training"]), "train")
        return settings | {"training": training, **version_setting("train")}

    def changed_settings(self, name: str, path: str | Path) -> list[str]:
        """Compare the settings in the header of a finished model with the settings of its run.

        Return the settings that differ, with both values, for messages. Settings that the header
        does not contain, and settings that do not affect the model, are not compared. If the file
        is missing or not a model, return an empty list.
        """
        try:
            # Without the package safetensors, because Snakemake may be installed without it.
            with open(path, "rb") as file:
                size = int.from_bytes(file.read(8), "little")
                header = json.loads(file.read(min(size, LARGEST_HEADER)))
            header = json.loads(header["__metadata__"][METADATA_KEY])
        except (OSError, KeyError, TypeError, ValueError):
            return []
        now = json.loads(as_json(self.compared_settings(name)))
        now.pop("version", None)  # of the code. The header contains the version of the format.
        architecture = now.pop("architecture")
        del architecture["size"]  # a name. The dimensions are in `size`.
        for setting, effect in effects(Training).items():
            if effect is not None and "train" not in effect.rules:
                now["training"].pop(setting, None)  # a constant
        values = dict(leaves(now | architecture))
        return [
            f"{setting} ({there} there, {values[setting]} now)"
            for setting, there in leaves(header)
            if setting in values and there != values[setting]
        ]


def leaves(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and the value of each setting in nested mappings."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value
