"""The settings that a job or a model depends on, for comparison with those of an earlier run.

A setting whose value is its default in the schema is left out. So a new setting, which is at its
default in all earlier runs, changes nothing that is compared.
"""

import typing
from collections.abc import Mapping
from functools import cache
from typing import Any

from scsigmoid.config.schema import Config, Corpus, Section


@cache
def sections_in(kind: type[Section]) -> dict[str, type[Section]]:
    """Return the sections in a section by name. A list or mapping of sections counts as one."""
    sections = {}
    for name, field in kind.model_fields.items():
        for part in (field.annotation, *typing.get_args(field.annotation)):
            if isinstance(part, type) and issubclass(part, Section):
                sections[name] = part
    return sections


def compared(config: Config, *names: str) -> dict[str, Any]:
    """Return settings and sections of a configuration by dotted name, as plain values.

    A section consists of its own settings: the sections in it are named separately, e.g.
    ``corpus`` and ``corpus.embedded``. Mappings such as ``datasets`` contain all their sections.
    Names and sections without any value but defaults are left out. Raise a KeyError if a name does
    not exist.
    """
    values = {name: find(config, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def find(section: Section, name: str) -> Any:
    """Return the plain value of a setting or section, or None if it is only defaults."""
    first, _, rest = name.partition(".")
    if first not in type(section).model_fields:
        raise KeyError(name)
    value = getattr(section, first)
    if rest and isinstance(value, Mapping):  # names of its sections may contain dots, e.g. 1.4B
        if not value:  # the studies, in the configuration of one run
            return None
        keys = [key for key in value if f"{rest}.".startswith(f"{key}.")]
        if not keys:
            raise KeyError(name)
        key = max(keys, key=len)
        value, rest = value[key], rest[len(key) + 1 :]
    if rest:
        return find(value, rest)
    if isinstance(value, Section):
        return own_settings(value) or None
    return section.model_dump(include={first}, exclude_defaults=True).get(first)


def own_settings(section: Section) -> dict[str, Any]:
    """Return the settings of a section that differ from their defaults, without sections in it."""
    return section.model_dump(exclude=set(sections_in(type(section))), exclude_defaults=True)


def training_entries(corpus: Corpus) -> list[dict[str, Any]]:
    """Return the entries of ``corpus.local`` with cells to train on, as far as training uses them.

    A new file whose cells are all held out should not rerun training, nor should a new label or
    batch.
    """
    return [
        entry.model_dump(exclude={"label", "batch", "name"}, exclude_defaults=True)
        for entry in corpus.local
        if entry.held_out is not True
    ]


def select_same_cells(first: Corpus, second: Corpus) -> bool:
    """Return whether two corpora have the same training cells, if their files are the same."""
    return (own_settings(first), training_entries(first)) == (
        own_settings(second),
        training_entries(second),
    )
