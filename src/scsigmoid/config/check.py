"""Reads the configuration, lays presets over it and checks it.

The order: ``config.yaml``, the preset's overlay, then what the command line gives
(``--configfile``, ``--config``).  Mappings merge key by key; a list replaces a list; ``null``
removes an entry of ``datasets``, ``sizes``, ``models`` or ``study``.
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from scsigmoid.config.combinations import check_combinations
from scsigmoid.config.given import read_yaml
from scsigmoid.config.local_files import expand
from scsigmoid.config.schema import Config, Dataset, Training
from scsigmoid.config.study import study_runs
from scsigmoid.config.typed import plain, typed
from scsigmoid.config.words import nearest, shown
from scsigmoid.errors import UserError

NAMED = ("datasets", "sizes", "models", "study")


def load(
    path: str | Path = "config.yaml",
    presets: str | Path = "workflow/presets",
    overrides: Mapping[str, Any] | None = None,
) -> Config:
    """Read, merge and check the configuration.

    Args:
        path: the base configuration.
        presets: folder of the overlays, one ``<preset>.yaml`` each.
        overrides: what the command line gave; laid over both.

    Raises:
        UserError: naming the key, what was expected and the nearest valid name.
    """
    base = plain(read_yaml(path))
    overrides = plain(overrides or {})
    preset = overrides.get("preset", base.get("preset"))
    known = sorted(file.stem for file in Path(presets).glob("*.yaml"))
    if preset not in known:
        raise UserError(f"preset: unknown preset {shown(preset)}{nearest(preset, known)}")
    merged = merge(merge(base, read_yaml(Path(presets) / f"{preset}.yaml")), overrides)
    for name in NAMED:
        if isinstance(merged.get(name), dict):
            merged[name] = {k: v for k, v in merged[name].items() if v is not None}
    return check(merged)


def check(values: Mapping[str, Any]) -> Config:
    """Check a merged configuration and give it its types.

    Raises:
        UserError: for the first thing that is wrong.
    """
    config = typed(values, Config)
    if config.corpus.source == "local":
        config = with_local_datasets(config)
    runs = {name: (model, model_training(config, name)) for name, model in config.models.items()}
    runs |= {name: (run.model, run.training) for name, run in study_runs(config).items()}
    check_combinations(config, runs)
    return config


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Lay ``over`` over ``base``: mappings merge, everything else replaces."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            merged[key] = merge(old, value)
        else:
            merged[key] = value
    return merged


def with_local_datasets(config: Config) -> Config:
    """The evaluation datasets of ``source: local``: one for every file with held-out cells."""
    files = expand(config.corpus.local)
    if not any(file.dataset for file in files):
        raise UserError(
            "corpus.local: no cells are held out for evaluation; set held_out for one entry"
        )
    if all(file.held_out is True for file in files):
        raise UserError(
            "corpus.local: every cell is held out; leave cells for training in at least one entry"
        )
    datasets: dict[str, Dataset] = {}
    for file in files:
        if not file.dataset:
            continue
        if file.dataset in datasets:
            raise UserError(
                f"corpus.local: two files would make the dataset {file.dataset!r}; give one a name"
            )
        datasets[file.dataset] = Dataset(
            title=file.dataset.replace("_", " "), label=file.labels, description=str(file.path.name)
        )
    return dataclasses.replace(config, datasets=datasets)


def model_training(config: Config, name: str) -> Training:
    """The training settings of one model: ``training`` with the model's own laid over it.

    Raises:
        UserError: if the model does not exist or an own setting is unknown or wrong.
    """
    if name not in config.models:
        raise UserError(f"models.{name}: unknown model{nearest(name, config.models)}")
    values = dataclasses.asdict(config.training) | config.models[name].training
    return typed(values, Training, f"models.{name}.training")


def as_json(value: Any) -> str:
    """A settings object (dataclass, mapping, list) as one line of JSON, for a command line."""

    def plain(item: Any) -> Any:
        if dataclasses.is_dataclass(item) and not isinstance(item, type):
            return dataclasses.asdict(item)
        raise TypeError(type(item))

    return json.dumps(value, default=plain, sort_keys=True, separators=(",", ":"))


def as_yaml(config: Config) -> str:
    """The resolved configuration as YAML."""
    return yaml.safe_dump(dataclasses.asdict(config), sort_keys=False, allow_unicode=True)
