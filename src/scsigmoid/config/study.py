"""Runs of a study: one run for every combination of the values in a family."""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from scsigmoid.config.schema import Config, Model, Purpose, Training, Variant
from scsigmoid.config.validate import check_known, validate
from scsigmoid.errors import UserError

#: Settings in which runs with the same purpose, attention and seed may differ, by purpose. Tables
#: have a row for each value of these settings, and would average runs that differ in others.
COMPARED: dict[Purpose, tuple[str, ...]] = {
    "rates": ("learning_rate",),
    "seeds": (),
    "variants": ("variants",),
    "sizes": ("size",),
    "stability": ("learning_rate", "clipping", "warmup_steps", "variants", "context", "size"),
}

MOST_RUNS = 10_000  # of a family


@dataclass(frozen=True, kw_only=True)
class StudyRun:
    """One run of a study."""

    family: str
    model: Model  # attention and context. The other fields have their defaults.
    size: str  # name of an entry of `sizes`
    variants: list[Variant]
    seed: int  # seed of weights, order of cells, masks and dropout
    training: Training


def study_runs(config: Config) -> dict[str, StudyRun]:
    """Return all runs by name, family after family. Within a family, the seed varies slowest.

    A name consists of the family, the attention, the values that vary within the family, and the
    seed, e.g. ``frontier_softmax_learning_rate_0_002_seed_1``. Raise a UserError if a setting is
    wrong, if two runs have the same name, or if a table would average two runs.
    """
    runs: dict[str, StudyRun] = {}
    for family in config.study:
        for name, run in family_runs(config, family):
            if name in runs:
                raise UserError(f"study.{family}: two runs are called {name}; remove one of them")
            if name in config.models:
                raise UserError(
                    f"study.{family}: a model is called {name}, too; rename one of them"
                )
            runs[name] = run
    check_averages(config, runs)
    return runs


def check_averages(config: Config, runs: Mapping[str, StudyRun]) -> None:
    """Raise a UserError if a table would average runs with different settings."""
    first_names: dict[tuple[object, ...], str] = {}  # name of the first run in a row of a table
    for name, run in runs.items():
        purpose = config.study[run.family].purpose
        if purpose is None:
            continue
        values = vars(run) | {"context": run.model.context} | run.training.model_dump()
        compared = COMPARED[purpose]
        compared_values = [str(values[setting]) for setting in compared]
        key = (purpose, run.model.attention, run.seed, *compared_values)
        first = first_names.setdefault(key, name)
        if first != name:
            same = ", ".join(("purpose", "attention", "seed", *compared))
            problem = f"{first} and {name} have the same {same}, and a table would average them"
            remedy = "leave out one, or give it a family without a purpose"
            raise UserError(f"study.{run.family}: {problem}; {remedy}")


def check_validation(config: Config, runs: Mapping[str, StudyRun]) -> None:
    """Raise a UserError if validation losses are missing, or would be compared but differ in genes.

    Tables and figures compare the losses of runs with a purpose with each other and with baselines,
    which are computed with ``training``. So all must be of the same masked genes. The losses of
    other runs are not compared, nor are those of ``models``, such as `half` of blood.yaml.
    """
    general = config.training
    contexts: dict[tuple[Purpose, str], int] = {}  # of the first run in a comparison
    is_validated = any(run.training.validate_every for run in runs.values())
    for name, run in runs.items():
        own, path = run.training, f"study.{run.family}"
        purpose = config.study[run.family].purpose
        if not own.validate_every:
            if purpose or not is_validated:
                remedy = "set training.validate_every and training.validation_cells"
                raise UserError(f"{path}: {name} would have no validation losses; {remedy}")
        elif not general.validation_cells:
            problem = f"0, but {name} has {own.validation_cells}; set it to this number"
            remedy = "and training.validate_every, for the baselines of the study"
            raise UserError(f"training.validation_cells: {problem}, {remedy}")
        elif purpose:
            # A run that stopped early counts as unfinished, which only the table of rates shows.
            if own.patience and purpose != "rates":
                problem = "compared runs have the same number of steps"
                raise UserError(f"{path}.training.patience: {problem}; leave it out")
            for setting, noun in (("validation_cells", "cells"), ("mask_fraction", "masks")):
                there, here = getattr(general, setting), getattr(own, setting)
                if there != here:
                    problem = f"{here}, but training.{setting} is {there}: losses of different"
                    remedy = "set both to one value, or leave out the purpose"
                    raise UserError(
                        f"{path}.training.{setting}: {problem} {noun} would be compared; {remedy}"
                    )
            # A context truncates cells. Variants are compared with `seeds`, and arms by size.
            compared = "seeds" if purpose == "variants" else purpose
            group = (compared, run.size if purpose == "sizes" else "")
            context = contexts.setdefault(group, run.model.context)
            if purpose != "stability" and run.model.context != context:
                problem = f"{run.model.context}, but runs that it is compared with have {context}"
                remedy = "set one context, or leave out the purpose"
                raise UserError(f"{path}.context: {problem}; {remedy}")


def family_runs(config: Config, family: str) -> Iterator[tuple[str, StudyRun]]:
    """Yield the name and the run for every combination of the values in a family."""
    path, settings = f"study.{family}", config.study[family]
    check_known(f"{path}.size", "size", settings.size, config.sizes)
    embedded = [] if settings.embedded is None else [settings.embedded]
    check_known(f"{path}.embedded", "dataset", embedded, config.datasets)
    # Without early stopping, all runs take the same number of steps.
    shared = config.training.model_dump() | {"patience": 0}
    training_options = {}
    for key, value in settings.training.items():
        if key == "execution":  # the same for all runs, validated below
            shared[key] = shared[key] | value if isinstance(value, Mapping) else value
            continue
        training_options[key] = value if isinstance(value, list) else [value]
        if not training_options[key]:
            raise UserError(f"{path}.training.{key}: expected at least one value, found []")
    # Keys in the order in which they vary, the slowest first.
    options: dict[str, Any] = {
        "seed": settings.seed,
        **training_options,
        "variants": settings.variants,
        "size": settings.size,
        "context": settings.context,
        "attention": settings.attention,
    }
    keys_in_name = [
        key
        for key, values in reversed(options.items())  # the seed is at the end of the name
        # The attention, which is in every name, is added below.
        if key == "seed" or (key != "attention" and len(values) > 1)
    ]
    count = math.prod(map(len, options.values()))
    if count > MOST_RUNS:  # Snakemake would need many minutes to plan their jobs
        raise UserError(f"{path}: {count:,} runs, at most {MOST_RUNS:,} are possible; list fewer")
    for combination in itertools.product(*options.values()):
        chosen = dict(zip(options, combination, strict=True))
        attention = chosen["attention"]
        training = shared | {
            key: value_for(chosen[key], attention, f"{path}.training.{key}")
            for key in training_options
        }
        run = StudyRun(
            family=family,
            model=Model(attention=attention, context=chosen["context"]),
            size=chosen["size"],
            variants=chosen["variants"],
            seed=chosen["seed"],
            training=validate(training, Training, f"{path}.training"),
        )
        # Names contain validated values: YAML reads 1e-3 as text, and validation makes it a number.
        chosen |= {key: getattr(run.training, key) for key in training_options}
        parts = [f"{key}_{name_part(chosen[key])}" for key in keys_in_name]
        yield "_".join([family, attention, *parts]), run


def value_for(value: Any, attention: str, path: str) -> Any:
    """Return a value, or its entry for ``attention`` if it is a mapping."""
    if not isinstance(value, Mapping):
        return value
    if attention not in value:
        raise UserError(f"{path}: has no value for {attention}; add it to {dict(value)}")
    return value[attention]


def name_part(value: object) -> str:
    """Return a value as part of a run's name: ``0_002`` for 0.002, ``none`` for None and []."""
    if isinstance(value, list):
        return "_".join(map(name_part, value)) or "none"
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text.lower().replace(".", "_").replace("-", "_")
