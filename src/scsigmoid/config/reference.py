"""The reference of all settings. ``make configuration`` writes it to docs/configuration.md."""

import ast
import dataclasses
import inspect
import json
import typing
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from scsigmoid.config.check import SHIPPED, read_yaml
from scsigmoid.config.effects import effects
from scsigmoid.config.schema import Config
from scsigmoid.config.validate import validator

INTRODUCTION = """\
# Configuration

<!-- Generated from src/scsigmoid/config/schema.py by `make configuration`. -->

`config.yaml` states every setting of the paper's experiment. A preset (a file in
`workflow/presets`), then `--configfile`, then `--config` replace its values. Mappings are merged
key by key. Lists are replaced. `null` removes an entry of `datasets`, `sizes`, `models` or `study`.

- *Default*: the value in `config.yaml`.
- *Reruns*: the Snakemake rules that run again if the setting changes. The rules that use their
  results also run again, as do tables and figures that print the setting.
- *(continues)*: an unfinished training run continues with the new value instead of starting over.
"""


def reference() -> str:
    """Return the text of docs/configuration.md."""
    defaults = read_yaml(SHIPPED / "config.yaml")
    return "\n".join([INTRODUCTION, *sections(Config, "", defaults, frozenset())])


def sections(section: Any, path: str, defaults: Any, inherited: frozenset[str]) -> Iterator[str]:
    """Yield the lines about a section, then the lines about the sections that it contains.

    ``path`` is the dotted name of the section, and ``inherited`` are the rules that it affects.
    ``defaults`` are its values in ``config.yaml``, or None for an entry of a mapping or list.
    """
    properties = validator(section).json_schema()["properties"]
    meanings, effect_of = descriptions(section), effects(section)
    hints = typing.get_type_hints(section)
    nested_sections = []
    title = f"`{path}`" if path else "Top level"
    yield f"## {title}\n\n{as_markdown(section.__doc__)}\n"
    rows = []
    for field in dataclasses.fields(section):
        name, effect = field.name, effect_of[field.name]
        rules = inherited if effect is None else effect.rules
        kind = hints[name]
        suffix = {dict: ".<name>", list: ".<number>"}.get(typing.get_origin(kind), "")
        # A section has a table instead of a row. A mapping or list of sections has both.
        for nested in filter(dataclasses.is_dataclass, (kind, *typing.get_args(kind))):
            values = None if suffix or defaults is None else defaults[name]
            nested_sections.append((nested, f"{path}.{name}".lstrip(".") + suffix, values, rules))
        if dataclasses.is_dataclass(kind):
            continue
        reruns = ", ".join(f"`{rule}`" for rule in sorted(rules))
        if effect is not None and not effect.model:
            reruns += " (continues)"
        start = (f"`{name}`", type_of(properties[name]), default_of(field, defaults))
        rows.append(f"| {' | '.join((*start, meanings.get(name, ''), reruns))} |")
    if rows:
        header = "| setting | type | default | meaning | reruns |\n| --- | --- | --- | --- | --- |"
        yield "\n".join([header, *rows, ""])
    for arguments in nested_sections:
        yield from sections(*arguments)


def as_markdown(docstring: str) -> str:
    """Return a docstring as one line of Markdown."""
    return " ".join(docstring.replace("``", "`").split())


def descriptions(section: type) -> dict[str, str]:
    """Return the docstring below each setting in the schema, by the name of the setting."""
    (definition,) = ast.parse(inspect.getsource(section)).body
    assert isinstance(definition, ast.ClassDef)
    return {
        ast.unparse(setting.target): as_markdown(ast.literal_eval(docstring.value))
        for setting, docstring in pairwise(definition.body)
        if isinstance(setting, ast.AnnAssign) and isinstance(docstring, ast.Expr)
    }


def default_of(field: "dataclasses.Field[Any]", defaults: Any) -> str:
    """Return the default of a setting as YAML. For a mapping of sections, return their names."""
    if defaults is not None and field.name in defaults:
        value = defaults[field.name]
        if isinstance(value, Mapping) and any(isinstance(item, dict) for item in value.values()):
            return ", ".join(f"`{name}`" for name in value)
    elif field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    elif field.default is not dataclasses.MISSING:
        value = field.default
    else:
        return "required"
    return f"`{value}`" if isinstance(value, str) and value else f"`{json.dumps(value)}`"


def type_of(schema: Mapping[str, Any]) -> str:
    """Describe the type and the limits of a setting, from its JSON schema."""
    if "anyOf" in schema:
        return " or ".join(map(type_of, schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{value}`" for value in schema.get("enum") or [schema["const"]])
    kind = schema.get("type", "mapping")
    if kind == "array":
        return f"list of {type_of(schema['items'])}"
    if kind == "null":
        return "`null`"
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    limits = [f"{sign} {schema[key]:g}" for key, sign in signs.items() if key in schema]
    words = {"string": "text", "object": "mapping"}.get(kind, kind)
    return f"{words} {', '.join(limits)}".strip()


if __name__ == "__main__":
    print(reference(), end="")
