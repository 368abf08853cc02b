"""Read, merge and check the configuration.

Values of ``config.yaml`` are replaced by the preset, then by ``--configfile``, then by
``--config``. Mappings are merged key by key, lists are replaced, and ``null`` removes an entry of
``datasets``, ``sizes``, ``models`` or ``study``.
"""

import json
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from os.path import isfile
from pathlib import Path
from typing import Any

import yaml

from scsigmoid.config.combinations import check_combinations
from scsigmoid.config.local_files import expand, slug
from scsigmoid.config.metrics import METRICS
from scsigmoid.config.schema import Config, Dataset, Training
from scsigmoid.config.study import check_validation, study_runs
from scsigmoid.config.validate import check_known, normalize, validate
from scsigmoid.errors import UserError

REMOVABLE = ("datasets", "sizes", "models", "study")  # sections whose entries `null` removes
SHIPPED = Path(__file__).parent / "shipped"


def load(
    path: str | Path = SHIPPED / "config.yaml",
    presets: str | Path = SHIPPED / "presets",
    overrides: Mapping[str, Any] | None = None,
    choose: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
) -> Config:
    """Read, merge and check the configuration. Raise a UserError at the first wrong setting.

    Args:
        path: the base configuration.
        presets: folder of the presets, ``<preset>.yaml``.
        overrides: values of ``--configfile`` and ``--config``. If they contain ``corpus.source:
            local`` (the user's own files), the default of ``preset`` is ``own``.
        choose: function that replaces ``auto`` with values that suit the user's own files
            (:func:`scsigmoid.forecast.choices.choose`). By default, ``auto`` is kept.
    """
    base = read_yaml(path)
    overrides = normalize(overrides or {})
    corpus = overrides.get("corpus")
    is_local = isinstance(corpus, Mapping) and corpus.get("source") == "local"
    preset: Any = overrides.get("preset", "own" if is_local else base.get("preset"))
    preset_names = sorted(file.stem for file in Path(presets).glob("*.yaml"))
    check_known("preset", "preset", [preset], preset_names)
    base["preset"] = preset
    replaced = read_yaml(Path(presets) / f"{preset}.yaml")
    if is_local:
        replaced.pop("datasets", None)  # of the demo, which have no id and would seem the user's
    merged = merge(merge(base, replaced), overrides)
    for section in REMOVABLE:
        entries = merged.get(section)
        if isinstance(entries, dict):
            merged[section] = {name: entry for name, entry in entries.items() if entry is not None}
    config = check(choose(merged) if choose else merged)
    # Snakemake does not miss an input whose job has run before.
    inputs = {
        "corpus.manifest": config.corpus.manifest,
        "tokens.vocabulary.genes": config.tokens.vocabulary.genes,
    }
    for key, file in inputs.items():
        if file is not None and not isfile(file):
            raise UserError(f"{key}: {file}: no such file; correct the path")
    return config


def check(values: Mapping[str, Any]) -> Config:
    """Check a merged configuration. Raise a UserError that names the first wrong setting."""
    datasets = values.get("datasets")
    if isinstance(datasets, Mapping):
        titled = {name: with_title(name, dataset) for name, dataset in datasets.items()}
        values = {**values, "datasets": titled}
    config = validate(values, Config)
    if config.corpus.source == "local":
        config = with_local_datasets(config)
    config = with_added_scores(config)
    runs = {name: (model, model_training(config, name)) for name, model in config.models.items()}
    in_study = study_runs(config)
    runs |= {name: (run.model, run.training) for name, run in in_study.items()}
    check_combinations(config, runs)
    check_validation(config, in_study)
    return config


def with_title(name: Any, dataset: Any) -> Any:
    """Return a dataset's entry. With a file, the default of ``title`` is the dataset's name."""
    if isinstance(dataset, Mapping) and dataset.get("file"):
        return {"title": str(name).replace("_", " "), **dataset}
    return dataset


def merge(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` with ``overrides``. Mappings are merged, other values are replaced."""
    merged = dict(base)
    for key, value in overrides.items():
        old = merged.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            value = merge(old, value)
        merged[key] = value
    return merged


def with_local_datasets(config: Config) -> Config:
    """Return a configuration with an evaluation dataset for each local file with held-out cells.

    Other datasets are kept only if they have a ``file``.
    """
    files = expand(config.corpus.local)
    datasets = {name: dataset for name, dataset in config.datasets.items() if dataset.file}
    held_out = [file for file in files if file.dataset]
    if not datasets and not held_out:
        raise UserError("corpus.local: no cells are held out for evaluation; set held_out")
    if all(file.held_out is True for file in files):
        raise UserError("corpus.local: every cell is held out; leave cells for training")
    for file in held_out:
        name = file.dataset
        if name in datasets:
            raise UserError(
                f"corpus.local: {file.path}: two datasets are called {name!r}; list each file in "
                "its own entry, with another name (of a-z and 0-9)"
            )
        title = name.replace("_", " ")
        # The name of the file, unless the title already says it. A title lacks letters such as ö.
        stem = file.path.stem
        description = "" if name == slug(stem) and stem.isascii() else file.path.name
        datasets[name] = Dataset(
            title=title, label=file.labels, batch=file.batch or None, description=description
        )
        given = config.datasets.get(name)  # a stored configuration has the same entry
        if given and not given.id and given != datasets[name]:
            raise UserError(
                f"datasets.{name}: these are the held-out cells of {file.path}, which have their "
                "settings in corpus.local; remove this entry, or write them to a file of their own"
            )
    return config.model_copy(update={"datasets": datasets})


def with_added_scores(config: Config) -> Config:
    """Return a configuration that also scores batches and the initial model, if there are any."""
    scib = config.evaluation.scib
    metrics, controls = [*scib.metrics], [*scib.controls]
    if any(dataset.batch for dataset in config.datasets.values()):
        metrics += [name for name in METRICS if METRICS[name].needs_batch]
    if any(model_training(config, name).initial for name in config.models):
        controls.insert(0, "initial")
    lists = {"metrics": [*dict.fromkeys(metrics)], "controls": [*dict.fromkeys(controls)]}
    evaluation = config.evaluation.model_copy(update={"scib": scib.model_copy(update=lists)})
    return config.model_copy(update={"evaluation": evaluation})


def model_training(config: Config, name: str) -> Training:
    """Return ``training`` with the values of ``models.<name>.training``, checked."""
    values = merge(config.training.model_dump(), config.models[name].training)
    return validate(values, Training, f"models.{name}.training")


def as_json(values: Any) -> str:
    """Return plain values as one line of JSON."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"))


def as_yaml(config: Config) -> str:
    """Return a configuration as YAML, in the order of the schema."""
    return yaml.safe_dump(config.model_dump(), sort_keys=False, allow_unicode=True)


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Read a YAML mapping. Raise a UserError if the file cannot be read or has other content."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error}); give a YAML file") from None
    values = parse_yaml(text, str(path))
    if values is not None and not isinstance(values, dict):
        raise UserError(f"{path}: expected settings as 'key: value'; correct it")
    return values or {}


class Loader(yaml.SafeLoader):
    """PyYAML's safe loader, with dates as text, and errors for repeated keys.

    Numbers that are not decimal are errors too, because YAML 1.1 reads 1:30 as 90 and 0100 as 64.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        names = set()
        for key in keys:
            if key.value in names:
                problem = f"{key.value!r} is given twice"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            names.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_number(self, node: yaml.ScalarNode) -> float:
        # Octal, hexadecimal or binary (0…), or base 60 (with a colon).
        if re.match(r"[-+]?0[\dxb_]|.*:", node.value):
            problem = f"{node.value} is not a decimal number (text needs quotes)"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        return yaml.SafeLoader.yaml_constructors[node.tag](self, node)


Loader.add_constructor("tag:yaml.org,2002:int", Loader.construct_number)
Loader.add_constructor("tag:yaml.org,2002:float", Loader.construct_number)
Loader.add_constructor("tag:yaml.org,2002:timestamp", lambda loader, node: node.value)


def parse_yaml(text: str, source: str) -> Any:
    """Parse YAML. If it is not valid, raise a UserError with ``source`` and, if known, the line."""
    try:
        return normalize(yaml.load(text, Loader), source)  # noqa: S506 - it is a SafeLoader
    except yaml.MarkedYAMLError as error:
        line = f" line {error.problem_mark.line + 1}:" if error.problem_mark else ""
        raise UserError(f"{source}:{line} {error.problem}; correct it") from None
    except RecursionError:
        problem = "a value contains itself, or is nested too deeply"
        raise UserError(f"{source}: {problem}; correct it") from None
    except (yaml.YAMLError, ValueError, LookupError):
        raise UserError(f"{source}: not valid YAML; correct it") from None


def parse_pairs(pairs: Sequence[str]) -> dict[str, Any]:
    """Parse the settings of ``--config``, which have the form ``key=<value in YAML>``."""
    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise UserError(f"--config: expected KEY=VALUE, found {pair!r}")
        settings[key] = parse_yaml(value, f"--config {key}")
    return settings
