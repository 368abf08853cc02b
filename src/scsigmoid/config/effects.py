"""Metadata of settings in the schema: which rules run again if a setting changes."""

import typing
from collections.abc import Collection, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any


class Affects:
    """Annotation of a setting with the rules that it affects, for ``Annotated``.

    A setting without this annotation affects the same rules as its section (a dataclass of the
    schema). Rules of tables, figures and the report are not listed here: the entries of
    ``report.registry`` name the settings that they print.

    Args:
        rules: names of rules in ``workflow/rules``, separated by spaces (default: no rule).
        model: whether the setting determines the trained model. If not, an interrupted training
            continues with the new value.
        otherwise: constant that replaces the value for rules that are affected by other settings of
            the section, but not by this one. By default, these rules do not get the setting.
    """

    def __init__(self, rules: str = "", *, model: bool = True, otherwise: Any = MISSING) -> None:
        self.rules = frozenset(rules.split())
        self.model = model
        self.otherwise = otherwise


@cache
def effects(section: type) -> dict[str, Affects | None]:
    """Return the annotation of each setting of a section, or None for settings without one."""
    hints = typing.get_type_hints(section, include_extras=True)
    effect_of = {}
    for field in fields(section):
        annotations = getattr(hints[field.name], "__metadata__", ())  # of typing.Annotated
        effect_of[field.name] = next((a for a in annotations if isinstance(a, Affects)), None)
    return effect_of


def find_settings(
    value: Any, rule: str, datasets: Collection[str] | None = None, path: str = ""
) -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and the plain value of each setting that affects a rule.

    ``value`` is the part of the configuration with the dotted name ``path``. ``datasets`` are the
    evaluation datasets of the job. None means all.
    """
    if isinstance(value, Mapping):
        for key, item in value.items():
            # A job does not get other datasets, so that their changes do not rerun it.
            if path != "datasets" or datasets is None or key in datasets:
                yield from find_settings(item, rule, datasets, f"{path}.{key}")
    elif is_dataclass(value) and not isinstance(value, type):
        for name, effect in effects(type(value)).items():
            inner = f"{path}.{name}" if path else name
            if effect is not None and rule in effect.rules:
                yield inner, values_for(getattr(value, name), rule)
            else:
                yield from find_settings(getattr(value, name), rule, datasets, inner)


def values_for(value: Any, rule: str) -> Any:
    """Return sections or settings as plain values, without settings that do not affect a rule."""
    if isinstance(value, Mapping):
        return {key: values_for(item, rule) for key, item in value.items()}
    if isinstance(value, list):
        return [values_for(item, rule) for item in value]
    if not is_dataclass(value) or isinstance(value, type):
        return value
    values = {}
    for name, effect in effects(type(value)).items():
        if effect is None or rule in effect.rules:
            values[name] = values_for(getattr(value, name), rule)
        elif effect.otherwise is not MISSING:
            values[name] = effect.otherwise
    return values
