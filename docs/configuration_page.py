"""The reference of all settings, as a page and as a JSON schema.

    python docs/configuration_page.py [--schema]

prints docs/configuration.md or workflow/schemas/config.schema.json (``make configuration``).
"""

import json
import re
import sys
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from scsigmoid.config.check import REMOVABLE, SHIPPED, read_yaml
from scsigmoid.config.compared import sections_in
from scsigmoid.config.schema import LARGEST, Config, Section

INTRODUCTION = """\
# Configuration

<!-- Generated from src/scsigmoid/config/schema.py by `make configuration`. -->

`config.yaml` states every setting of the paper's experiment. A preset (a file in
`workflow/presets`), then `--configfile`, then `--config` replace its values. Mappings are merged
key by key. Lists are replaced. `null` removes an entry of `datasets`, `sizes`, `models` or `study`.

Write only the settings that you change to a file of your own, for `--configfile`. A copy of the
whole `config.yaml` would also replace the values of the preset, and a value that you change in
`config.yaml` itself has no effect if the preset has it, too.

- *Type*: numbers are at most 2,147,483,647, unless the type states another limit or the number is
  a seed.
- *Default*: the value in `config.yaml`.
- *Reruns*: the Snakemake rules that `read` the setting (`workflow/rules`) and run again if it
  changes. The rules that use their results also run again, as do tables and figures that print the
  setting.
"""
RULES = Path(__file__).parents[1] / "workflow" / "rules"


def reference() -> str:
    """Return the text of docs/configuration.md."""
    defaults = read_yaml(SHIPPED / "config.yaml")
    return "\n".join([INTRODUCTION, *sections(Config, "", defaults)])


def read_by_rules(folder: Path = RULES) -> dict[str, set[str]]:
    """Return the names of the settings and sections that each rule of the workflow reads.

    A wildcard is written as ``<name>``, as in the titles of sections.
    """
    names: dict[str, set[str]] = {}
    for path in sorted(folder.glob("*.smk")):
        rules = re.split(r"^(?:use )?rule (?:\w+ as )?(\w+)", path.read_text(), flags=re.MULTILINE)
        for rule, block in zip(rules[1::2], rules[2::2], strict=True):
            call = re.search(r"=read\((.*?)\),$", block, re.DOTALL | re.MULTILINE)
            if call:
                texts = re.findall(r'"(\w[\w.{}]*)"', call[1])
                names[rule] = {re.sub(r"\{\w+\}", "<name>", text) for text in texts}
    return names


def readers(setting: str) -> list[str]:
    """Return the rules that read a setting, the section or mapping with it, or entries of it."""
    section = setting.rpartition(".")[0]
    names = {setting, section, section.removesuffix(".<name>")}
    return sorted(
        rule
        for rule, read in read_by_rules().items()
        if any(name in names or name.startswith(f"{setting}.<name>") for name in read)
    )


def sections(section: type[Section], path: str, defaults: Any) -> Iterator[str]:
    """Yield the lines about a section, then the lines about the sections that it contains.

    ``path`` is the dotted name of the section. ``defaults`` are its values in ``config.yaml``, or
    None for an entry of a mapping or list.
    """
    properties = section.model_json_schema()["properties"]
    inner = sections_in(section)
    title = f"`{path}`" if path else "Top level"
    yield f"## {title}\n\n{as_markdown(section.__doc__)}\n"
    rows = []
    for name, field in section.model_fields.items():
        if name in inner and field.annotation is inner[name]:
            continue  # A section has a table instead of a row. A mapping or list has both.
        setting = f"{path}.{name}".lstrip(".")
        reruns = ", ".join(f"`{rule}`" for rule in readers(setting))
        default = default_of(name, field, defaults)
        meaning = as_markdown(field.description)
        rows.append(
            f"| `{name}` | {type_of(properties[name])} | {default} | {meaning} | {reruns} |"
        )
    if rows:
        header = "| setting | type | default | meaning | reruns |\n| --- | --- | --- | --- | --- |"
        yield "\n".join([header, *rows, ""])
    for name, kind in inner.items():
        origin = typing.get_origin(section.model_fields[name].annotation)
        suffix = ".<name>" if origin is dict else ".<number>" if origin is list else ""
        values = None if suffix or defaults is None else defaults[name]
        yield from sections(kind, f"{path}.{name}".lstrip(".") + suffix, values)


def as_markdown(docstring: str | None) -> str:
    """Return a docstring as one line of Markdown."""
    return " ".join((docstring or "").replace("``", "`").split())


def default_of(name: str, field: FieldInfo, defaults: Any) -> str:
    """Return the default of a setting as YAML. For a mapping of sections, return their names."""
    if defaults is not None and name in defaults:
        value = defaults[name]
        if isinstance(value, Mapping) and any(isinstance(item, dict) for item in value.values()):
            return ", ".join(f"`{name}`" for name in value)
    elif field.is_required():
        return "required"
    else:
        value = field.default
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
    limits = [
        f"{sign} {schema[key]:,}"
        for key, sign in signs.items()
        if key in schema and abs(schema[key]) < LARGEST
    ]
    words = {"string": "text", "object": "mapping"}.get(kind, kind)
    return f"{words} {', '.join(limits)}".strip()


def json_schema() -> dict[str, Any]:
    """Return a JSON schema of configuration files, for editors and the workflow catalog.

    A file needs no setting, because presets and the base configuration have all. ``null`` removes
    an entry, and the settings that the preset ``own`` chooses from the cells may be ``auto``.
    """
    schema = Config.model_json_schema()
    for section in (schema, *schema["$defs"].values()):
        section.pop("required", None)
    for name in REMOVABLE:
        entries = schema["properties"][name]
        # A mapping whose names have a pattern has `patternProperties` with one pattern.
        key = "additionalProperties"
        if "patternProperties" in entries:
            entries["additionalProperties"] = False  # other names are wrong
            entries = entries["patternProperties"]
            (key,) = entries
        entries[key] = {"anyOf": [entries[key], {"type": "null"}]}
    allow_auto(schema, schema, read_yaml(SHIPPED / "presets" / "own.yaml"))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def allow_auto(schema: dict[str, Any], node: Any, values: Mapping[str, Any]) -> None:
    """Let settings be ``auto`` that are ``auto`` in ``values``. ``node`` describes these values."""
    for option in node.get("anyOf", []):
        allow_auto(schema, option, values)
    if "$ref" in node:
        allow_auto(schema, schema["$defs"][node["$ref"].rpartition("/")[2]], values)
    entries = node.get("additionalProperties") or next(
        iter(node.get("patternProperties", {}).values()), None
    )
    for name, value in values.items():
        child = node.get("properties", {}).get(name, entries)
        if isinstance(child, dict) and isinstance(value, Mapping):
            allow_auto(schema, child, value)
        elif value == "auto" and name in node.get("properties", {}):
            node["properties"][name] = {"anyOf": [child, {"const": "auto"}]}


if __name__ == "__main__":
    if "--schema" in sys.argv:
        print(json.dumps(json_schema(), indent=1))
    else:
        print(reference(), end="")
