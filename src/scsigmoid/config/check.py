"""Reads the configuration, lays presets over it, checks it, and words what is wrong.

The order: ``config.yaml``, the preset's overlay, then what the command line gives
(``--configfile``, ``--config``).  Mappings merge key by key; a list replaces a list; ``null``
removes an entry of ``datasets``, ``sizes`` or ``models``.
"""

import dataclasses
import difflib
import json
import re
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from scsigmoid.config.corpus import check_corpus
from scsigmoid.config.local_files import expand
from scsigmoid.config.schema import Config, Dataset, Training
from scsigmoid.errors import UserError

SLUG = re.compile(r"[a-z0-9][a-z0-9_]*")
LONGEST_NAME = 80
SIGMOID_BACKENDS = ("auto", "reference", "triton", "hopper")
SOFTMAX_BACKENDS = ("auto", "reference", "flex", "sdpa")
NAMED = ("datasets", "sizes", "models")


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
    base = read_yaml(path)
    overrides = dict(overrides or {})
    preset = overrides.get("preset", base.get("preset"))
    known = sorted(file.stem for file in Path(presets).glob("*.yaml"))
    if preset not in known:
        raise UserError(f"preset: unknown preset {preset!r}{nearest(preset, known)}")
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
    check_keys(values, Config, "")
    try:
        config = TypeAdapter(Config).validate_python(dict(values))
    except ValidationError as error:
        raise UserError(worded(error)) from None
    if config.corpus.source == "local":
        config = with_local_datasets(config)
    check_combinations(config)
    return config


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Read a YAML mapping.

    Raises:
        UserError: if the file is missing, is not YAML or is not a mapping.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        values = yaml.safe_load(text)
    except OSError as error:
        raise UserError(
            f"{path}: cannot be read ({error.strerror}); give an existing file"
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        where = getattr(error, "problem_mark", None)
        line = f" near line {where.line + 1}" if where else ""
        raise UserError(f"{path}: not valid YAML{line}; correct the file") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise UserError(f"{path}: expected settings as 'key: value'")
    return values


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


def nearest(name: object, known: Iterable[str]) -> str:
    """Words that point to the nearest valid name."""
    known = list(known)
    close = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; expected one of {', '.join(known)}" if known else ""


def check_keys(value: Any, kind: Any, path: str) -> None:
    """Refuse keys that ``kind`` does not have and name keys that are missing."""
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        inner = [part for part in typing.get_args(kind) if dataclasses.is_dataclass(part)]
        kind = inner[0] if inner else None
    if origin is dict and isinstance(value, Mapping):
        for key, item in value.items():
            check_keys(item, typing.get_args(kind)[1], f"{path}{key}.")
    elif origin is list and isinstance(value, list):
        for index, item in enumerate(value):
            check_keys(item, typing.get_args(kind)[0], f"{path}{index}.")
    elif dataclasses.is_dataclass(kind) and isinstance(kind, type):
        if not isinstance(value, Mapping):
            raise UserError(
                f"{path.rstrip('.')}: expected settings as 'key: value', found {value!r}"
            )
        hints = typing.get_type_hints(kind)
        for key in value:
            if key not in hints:
                raise UserError(f"{path}{key}: unknown setting{nearest(key, hints)}")
        for field in dataclasses.fields(kind):
            if field.name in value:
                check_keys(value[field.name], hints[field.name], f"{path}{field.name}.")
            elif (
                field.default is dataclasses.MISSING
                and field.default_factory is dataclasses.MISSING
            ):
                raise UserError(f"{path}{field.name}: missing setting; add it")


def worded(error: ValidationError) -> str:
    """The first error of pydantic in one line of ours."""
    first = error.errors()[0]
    path = ".".join(
        str(part) for part in first["loc"] if not str(part).startswith(("constrained", "function"))
    )
    if first["type"] == "literal_error":
        names = re.findall(r"'([^']*)'", str(first.get("ctx", {}).get("expected", "")))
        return f"{path}: {first['input']!r} is not a valid value{nearest(first['input'], names)}"
    expected = first["msg"].replace("Input should be", "expected")
    return f"{path}: {expected}, found {first['input']!r}"


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
            title=file.dataset.replace("_", " "), label=file.label, description=str(file.path.name)
        )
    return dataclasses.replace(config, datasets=datasets)


def check_combinations(config: Config) -> None:
    """Refuse settings that are valid alone but not together."""
    for group in ("models", "datasets"):
        entries = getattr(config, group)
        if not entries:
            raise UserError(f"{group}: empty; name at least one")
        for name in entries:
            if not SLUG.fullmatch(name) or len(name) > LONGEST_NAME:
                raise UserError(
                    f"{group}: {name[:LONGEST_NAME]!r}: names are lower-case letters, digits and "
                    f"'_', at most {LONGEST_NAME}, for they become names of files"
                )
    check_corpus(config.corpus)
    for name in ("gpus", "nodes"):
        if getattr(config, name) < 1:
            raise UserError(f"{name}: expected at least 1, found {getattr(config, name)}")
    check_sizes(config)
    check_models(config)
    check_evaluation(config)
    check_benchmarks(config)


def check_sizes(config: Config) -> None:
    """Every size is a possible encoder and every size that is named exists."""
    for name, size in config.sizes.items():
        if min(size.layers, size.hidden, size.heads, size.feed_forward) < 1:
            raise UserError(f"sizes.{name}: expected positive numbers")
        if size.hidden % size.heads:
            raise UserError(
                f"sizes.{name}: hidden {size.hidden} is not a multiple of heads {size.heads}"
            )
    for key, names in {
        "architecture.size": [config.architecture.size],
        "benchmarks.throughput.sizes": config.benchmarks.throughput.sizes,
    }.items():
        for name in names:
            if name not in config.sizes:
                raise UserError(f"{key}: unknown size {name!r}{nearest(name, config.sizes)}")
    fraction("architecture.dropout", config.architecture.dropout, zero=True)


def check_models(config: Config) -> None:
    """Every model can be trained as configured."""
    names = [field.name for field in dataclasses.fields(Training)]
    for name, model in config.models.items():
        if model.context < 8:
            raise UserError(f"models.{name}.context: expected at least 8, found {model.context}")
        backends = SIGMOID_BACKENDS if model.attention == "sigmoid" else SOFTMAX_BACKENDS
        if model.backend not in backends:
            raise UserError(
                f"models.{name}.backend: {model.backend!r} does not compute {model.attention} "
                f"attention; expected one of {', '.join(backends)}"
            )
        for key in model.training:
            if key not in names:
                raise UserError(
                    f"models.{name}.training.{key}: unknown setting{nearest(key, names)}"
                )
        training = model_training(config, name)
        if training.micro_batch_tokens < model.context:
            raise UserError(
                f"training.micro_batch_tokens: {training.micro_batch_tokens} is less than the "
                f"context of models.{name} ({model.context}); raise it to at least that"
            )
        fraction(f"models.{name}.training.mask_fraction", training.mask_fraction)
        for key in ("steps", "global_batch", "log_every", "checkpoint_every", "keep_checkpoints"):
            if getattr(training, key) < 1:
                raise UserError(f"training.{key}: expected at least 1")
        if training.workers < 0:
            raise UserError(f"training.workers: expected 0 or more, found {training.workers}")
        if len(training.betas) != 2:
            raise UserError("training.betas: expected two numbers")


def check_evaluation(config: Config) -> None:
    """Everything that evaluation names exists."""
    pair = config.evaluation.pair
    if len(pair) != 2:
        raise UserError("evaluation.pair: expected two models, sigmoid first")
    for name in pair:
        if name not in config.models:
            raise UserError(
                f"evaluation.pair: unknown model {name!r}{nearest(name, config.models)}"
            )
        if config.models[name].stress:
            raise UserError(f"evaluation.pair: {name!r} is a stress-test model; take another")
    arms = [config.models[name] for name in pair]
    if [arm.attention for arm in arms] != ["sigmoid", "softmax"]:
        raise UserError("evaluation.pair: expected a sigmoid model, then a softmax model")
    if arms[0].context != arms[1].context:
        raise UserError("evaluation.pair: the two models differ in their context; take a pair")
    for key in ("mmd", "umap"):
        for name in getattr(config.evaluation, key).datasets or ():
            if name not in config.datasets:
                raise UserError(
                    f"evaluation.{key}.datasets: unknown dataset {name!r}"
                    f"{nearest(name, config.datasets)}"
                )
    loss = config.evaluation.validation_loss
    fraction("evaluation.validation_loss.mask_fraction", loss.mask_fraction)
    fraction("evaluation.validation_loss.confidence", loss.confidence)
    fraction("evaluation.mmd.confidence", config.evaluation.mmd.confidence)
    fraction("evaluation.scib.variance", config.evaluation.scib.variance)
    fraction("evaluation.umap.variance", config.evaluation.umap.variance)
    for key, value in {
        "validation_loss.trials": loss.trials,
        "mmd.resamples": config.evaluation.mmd.resamples,
        "mmd.minimum_cells": config.evaluation.mmd.minimum_cells - 1,
        "scib.neighbours": config.evaluation.scib.neighbours - 1,
        "umap.neighbours": config.evaluation.umap.neighbours - 1,
    }.items():
        if value < 1:
            raise UserError(f"evaluation.{key}: too small")
    if not config.evaluation.scib.metrics:
        raise UserError("evaluation.scib.metrics: empty; name at least one metric")


def check_benchmarks(config: Config) -> None:
    """The benchmark shapes are possible."""
    kernel = config.benchmarks.kernel
    for dimension in kernel.head_dimensions:
        if kernel.hidden % dimension:
            raise UserError(
                f"benchmarks.kernel.head_dimensions: {dimension} does not divide hidden "
                f"{kernel.hidden}"
            )
    for length in kernel.lengths:
        if kernel.tokens % length:
            raise UserError(
                f"benchmarks.kernel.lengths: {length} does not divide tokens {kernel.tokens}"
            )
    for share in kernel.padding:
        fraction("benchmarks.kernel.padding", share, zero=True)
    fraction("benchmarks.kernel.confidence", kernel.confidence)
    for key in ("tokens", "median_length", "sigma_length", "iterations", "seconds"):
        if not getattr(kernel, key) > 0:
            raise UserError(
                f"benchmarks.kernel.{key}: expected more than 0, found {getattr(kernel, key)}"
            )


def fraction(key: str, value: float, *, zero: bool = False) -> None:
    """Refuse a share that does not lie between 0 and 1."""
    if not (0 < value < 1 or (zero and value == 0)):
        raise UserError(f"{key}: expected a number between 0 and 1, found {value}")


def model_training(config: Config, name: str) -> Training:
    """The training settings of one model: ``training`` with the model's own laid over it.

    Raises:
        UserError: if the model does not exist or an own setting has the wrong type.
    """
    if name not in config.models:
        raise UserError(f"models.{name}: unknown model{nearest(name, config.models)}")
    values = dataclasses.asdict(config.training) | config.models[name].training
    try:
        return TypeAdapter(Training).validate_python(values)
    except ValidationError as error:
        raise UserError(f"models.{name}.training.{worded(error)}") from None


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
