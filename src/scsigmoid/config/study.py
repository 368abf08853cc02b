"""The runs of a study: every combination of the values that its families list."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from scsigmoid.config.schema import Config, Model, Purpose, Training, Variant
from scsigmoid.config.validate import check_known, validate
from scsigmoid.errors import UserError

#: Settings in which runs with the same purpose, attention and seed may differ. Tables have a row
#: for each of their values, and would average runs that differ in other settings.
COMPARED: dict[Purpose, tuple[str, ...]] = {
    "rates": ("learning_rate",),
    "seeds": (),
    "variants": ("variants",),
    "sizes": ("size",),
    "stability": ("learning_rate", "clipping", "warmup_steps", "variants", "context", "size"),
}


@dataclass(frozen=True, kw_only=True)
class StudyRun:
    """One run of a study.

    Attributes:
        family: name of its family.
        model: attention and context.
        size: name of an entry of ``sizes``.
        variants: variants of attention.
        seed: seed of weights, order, masks and dropout.
        training: training settings.
    """

    family: str
    model: Model
    size: str
    variants: list[Variant]
    seed: int
    training: Training


def study_runs(config: Config) -> dict[str, StudyRun]:
    """Return all runs by name, in the order of the configuration. Seeds vary slowest.

    A name consists of the family, the attention, the values that differ within the family, and the
    seed, so that a new seed does not rename other runs:
    ``frontier_softmax_learning_rate_0_002_seed_1``.

    Raises:
        UserError: if a setting is wrong.
    """
    runs: dict[str, StudyRun] = {}
    for family in config.study:
        for name, run in family_runs(config, family):
            if name in runs:
                raise UserError(f"study.{family}: two runs are called {name}; remove one of them")
            runs[name] = run
    check_distinct(config, runs)
    return runs


def check_distinct(config: Config, runs: Mapping[str, StudyRun]) -> None:
    """Raise an error if a table would average runs with different settings."""
    names: dict[tuple[object, ...], str] = {}
    for name, run in runs.items():
        purpose = config.study[run.family].purpose
        if purpose is None:
            continue
        values = dataclasses.asdict(run) | {"context": run.model.context}
        values |= dataclasses.asdict(run.training)
        keys = COMPARED[purpose]
        key = (purpose, run.model.attention, run.seed, *(str(values[key]) for key in keys))
        other = names.setdefault(key, name)
        if other != name:
            raise UserError(
                f"study.{run.family}: {other} and {name} have the same "
                f"{', '.join(('purpose', 'attention', 'seed', *keys))}, and a table would average "
                "them; leave out one, or give it a family without a purpose"
            )


def family_runs(config: Config, family: str) -> Iterator[tuple[str, StudyRun]]:
    """Yield name and run of every combination of the values that a family lists."""
    path, listed = f"study.{family}", config.study[family]
    check_known(f"{path}.size", "size", listed.size, config.sizes)
    embedded = [] if listed.embedded is None else [listed.embedded]
    check_known(f"{path}.embedded", "dataset", embedded, config.datasets)
    for key, value in listed.training.items():
        if value == []:
            raise UserError(f"{path}.training.{key}: expected at least one value, found []")
    axes: dict[str, Any] = {
        "seed": listed.seed,
        **{k: v if isinstance(v, list) else [v] for k, v in listed.training.items()},
        "variants": listed.variants,
        "size": listed.size,
        "context": listed.context,
        "attention": listed.attention,
    }
    for values in itertools.product(*axes.values()):
        chosen = dict(zip(axes, values, strict=True))
        attention = chosen["attention"]
        chosen = {
            key: arm_value(value, attention, f"{path}.training.{key}")
            for key, value in chosen.items()
        }
        own = {key: chosen[key] for key in listed.training}
        # All runs take the same number of steps.
        settings = dataclasses.asdict(config.training) | {"patience": 0} | own
        run = StudyRun(
            family=family,
            model=Model(attention=attention, context=chosen["context"]),
            size=chosen["size"],
            variants=chosen["variants"],
            seed=chosen["seed"],
            training=validate(settings, Training, f"{path}.training"),
        )
        # The checked values, because YAML reads 1e-3 as text.
        chosen |= {key: getattr(run.training, key) for key in own}
        differing = [
            f"{key}_{name_part(chosen[key])}"
            for key in reversed(axes)
            if (len(axes[key]) > 1 or key == "seed") and key != "attention"
        ]
        yield "_".join([family, attention, *differing]), run


def arm_value(value: Any, attention: str, path: str) -> Any:
    """Return a value, or its entry for ``attention`` if it is a mapping."""
    if not isinstance(value, Mapping):
        return value
    if attention not in value:
        raise UserError(f"{path}: has no value for {attention}; found {dict(value)}")
    return value[attention]


def name_part(value: object) -> str:
    """Return a value as part of a run's name: ``0_002`` for 0.002, ``none`` for None."""
    if isinstance(value, list):
        value = "_".join(map(name_part, value)) or None
    text = "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
    return text.lower().replace(".", "_").replace("-", "_")
