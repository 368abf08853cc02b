"""The runs of a study: every combination of what its families list."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from scsigmoid.config.schema import Config, Model, Training, Variant
from scsigmoid.config.validate import check_known, typed
from scsigmoid.errors import UserError

#: Settings of training whose value is a list.
LISTS = ("betas", "snapshots")
#: What runs of one arm and seed may differ in: a table has a row for each value.
COMPARED = {"rates": "learning_rate", "seeds": "", "variants": "variants", "scale": "size"}


@dataclass(frozen=True, kw_only=True)
class StudyRun:
    """One run.

    Attributes:
        family: which family of runs it belongs to.
        model: attention and context.
        size: name of its entry in ``sizes``.
        variants: of its attention.
        seed: of its weights, order, masks and dropout.
        training: how it is trained.
    """

    family: str
    model: Model
    size: str
    variants: list[Variant]
    seed: int
    training: Training


def study_runs(config: Config) -> dict[str, StudyRun]:
    """All runs by name, in the order of the configuration, the seeds outermost.

    A name says what differs within the family, and the seed, so that a second one leaves the first
    its name: ``frontier_softmax_learning_rate_0_002_seed_1``.

    Raises:
        UserError: naming the setting that is wrong.
    """
    runs: dict[str, StudyRun] = {}
    for family in config.study:
        for name, run in of_family(config, family):
            if name in runs:
                raise UserError(f"study.{family}: two runs are called {name}; leave out one")
            runs[name] = run
        check_compared(family, {name: run for name, run in runs.items() if run.family == family})
    return runs


def check_compared(family: str, runs: Mapping[str, StudyRun]) -> None:
    """Refuse runs that the tables would take for one."""
    kind = "scale" if family.startswith("scale") else family
    if kind not in COMPARED:
        return
    first: dict[tuple[object, ...], str] = {}
    for name, run in runs.items():
        values = dataclasses.asdict(run) | {"learning_rate": run.training.learning_rate}
        key = (run.model.attention, run.seed, str(values.get(COMPARED[kind])))
        other = first.setdefault(key, name)
        if other != name:
            same = "arm, seed and " + COMPARED[kind] if COMPARED[kind] else "arm and seed"
            raise UserError(
                f"study.{family}: {other} and {name} are of one {same}, so tables would average "
                "them; give one of them a family of its own"
            )


def of_family(config: Config, family: str) -> Iterator[tuple[str, StudyRun]]:
    """The runs of one family."""
    path, listed = f"study.{family}", config.study[family]
    check_known(f"{path}.size", "size", listed.size, config.sizes)
    embedded = [] if listed.embedded is None else [listed.embedded]
    check_known(f"{path}.embedded", "dataset", embedded, config.datasets)
    for key, value in listed.training.items():
        if value == []:
            raise UserError(f"{path}.training.{key}: expected at least one value, found []")
        if key in LISTS and isinstance(value, list) and not all(isinstance(v, list) for v in value):
            raise UserError(
                f"{path}.training.{key}: a list here is of values to vary, each a list itself; "
                f"for one value write [{value}], found {value}"
            )
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
        arm = chosen["attention"]
        chosen = {k: of_arm(v, arm, f"{path}.training.{k}") for k, v in chosen.items()}
        own = {key: chosen[key] for key in listed.training}
        settings = dataclasses.asdict(config.training) | own
        run = StudyRun(
            family=family,
            model=Model(attention=chosen["attention"], context=chosen["context"]),
            size=chosen["size"],
            variants=chosen["variants"],
            seed=chosen["seed"],
            training=typed(settings, Training, f"{path}.training"),
        )
        # As typed: YAML takes 1e-3 for text.
        chosen |= {key: getattr(run.training, key) for key in own}
        differing = [
            f"{key}_{word(chosen[key])}"
            for key in reversed(axes)
            if (len(axes[key]) > 1 or key == "seed") and key != "attention"
        ]
        yield "_".join([family, chosen["attention"], *differing]), run


def of_arm(value: Any, attention: str, path: str) -> Any:
    """A value, or that of one arm where it is given for each."""
    if not isinstance(value, Mapping):
        return value
    if attention not in value:
        raise UserError(f"{path}: has no value for {attention}; found {dict(value)}")
    return value[attention]


def word(value: object) -> str:
    """A value as part of a name."""
    if isinstance(value, list):
        value = "_".join(map(word, value)) or None
    text = "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
    return text.lower().replace(".", "_").replace("-", "_")
