"""Stored and changed configurations, and the numbers in configurations."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from scsigmoid.config.check import as_yaml, load
from scsigmoid.config.schema import Config


def write_configuration(folder: Path, **overrides: Any) -> Path:
    """Write the configuration of the demo with overrides to ``config.yaml`` in a folder."""
    return store(load(overrides={"preset": "demo", **overrides}), folder)


def store(config: Config, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "config.yaml"
    path.write_text(as_yaml(config), encoding="utf-8")
    return path


def write_configuration_of(run: Any, folder: Path) -> Path:
    """Write a configuration whose model ``run.model`` is trained as a ``TrainingRun``."""
    other = "softmax" if run.attention == "sigmoid" else "sigmoid"
    names = {run.attention: run.model, other: "other"}
    shared = {"context": run.context, "training": {}}
    models = {name: {"attention": arm, **shared} for arm, name in names.items()}
    models[run.model]["backend"] = run.backend
    unused = load(overrides={"preset": "demo"}).models.keys() - models.keys()
    return write_configuration(
        folder,
        seed=run.seed,
        device=run.device,
        tokens={"cls": run.cls_token},
        sizes={run.architecture.size: run.size.model_dump()},
        architecture=run.architecture.model_dump(),
        training=run.training.model_dump(),
        models=dict.fromkeys(unused) | models,
        evaluation={"pair": [names["sigmoid"], names["softmax"]]},
    )


def with_settings(config: Any, settings: Mapping[str, object]) -> Any:
    """Return a copy of a configuration, or of a part of it, with other values of some settings.

    The names of settings are dotted. Values are not checked.
    """
    for name, value in settings.items():
        key, _, rest = name.partition(".")
        values = config if isinstance(config, dict) else dict(config)
        new = {key: with_settings(values[key], {rest: value}) if rest else value}
        config = config | new if isinstance(config, dict) else config.model_copy(update=new)
    return config


def numbers(values: Any, path: str = "") -> Iterator[tuple[Any, Any, str]]:
    """Yield the section, the key and the dotted name of each number of a configuration."""
    for key, value in list(values.items() if isinstance(values, dict) else enumerate(values)):
        name = f"{path}.{key}".lstrip(".")
        if isinstance(value, dict | list):
            yield from numbers(value, name)
        elif type(value) in (int, float):
            yield values, key, name
