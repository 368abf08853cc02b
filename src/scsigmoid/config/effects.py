"""The rules that run again if a setting changes: metadata of the settings in the schema."""

import dataclasses
import typing
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import Any


class Affects:
    """The rules that run again if a setting changes, to be used in ``Annotated``.

    Without it, a setting affects the same rules as its section. The rules of tables, figures and
    the report are not listed, because they name the settings that they print.

    Args:
        rules: names of rules in ``workflow/rules``, separated by spaces.
        model: whether the setting determines the trained model. If not, an interrupted run
            continues after the setting has changed.
        otherwise: the value for rules that the setting does not affect. Without it, these rules do
            not get the setting.
    """

    def __init__(
        self, rules: str = "", *, model: bool = True, otherwise: Any = dataclasses.MISSING
    ) -> None:
        self.rules = frozenset(rules.split())
        self.model = model
        self.otherwise = otherwise


@cache
def effects(section: type) -> dict[str, Affects | None]:
    """Return the metadata of each setting of a section. None: as for the section."""
    hints = typing.get_type_hints(section, include_extras=True)
    effect_of = {}
    for field in dataclasses.fields(section):
        metadata = getattr(hints[field.name], "__metadata__", ())
        effect_of[field.name] = next((item for item in metadata if isinstance(item, Affects)), None)
    return effect_of


def find_settings(
    value: Any, rule: str, datasets: Collection[str] | None = None, path: str = ""
) -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and the plain value of each setting that affects a rule.

    Args:
        value: the configuration, or a part of it.
        rule: name of the rule.
        datasets: evaluation datasets of the job. None means all.
        path: dotted name of ``value``.
    """
    if isinstance(value, Mapping):
        for key, item in value.items():
            if path != "datasets" or datasets is None or key in datasets:
                yield from find_settings(item, rule, datasets, f"{path}.{key}")
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for name, effect in effects(type(value)).items():
            inner = f"{path}.{name}" if path else name
            if effect is not None and rule in effect.rules:
                yield inner, values_for(getattr(value, name), rule)
            else:
                yield from find_settings(getattr(value, name), rule, datasets, inner)


def values_for(value: Any, rule: str) -> Any:
    """Return a section as plain values, without the settings that do not affect a rule."""
    if isinstance(value, Mapping):
        return {key: values_for(item, rule) for key, item in value.items()}
    if isinstance(value, list):
        return [values_for(item, rule) for item in value]
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    values = {}
    for name, effect in effects(type(value)).items():
        if effect is None or rule in effect.rules:
            values[name] = values_for(getattr(value, name), rule)
        elif effect.otherwise is not dataclasses.MISSING:
            values[name] = effect.otherwise
    return values
