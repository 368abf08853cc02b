"""Settings and values with another name since version 0.3. Old names work until version 0.4."""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

from scsigmoid.config.schema import Execution
from scsigmoid.errors import UserError

#: New names of settings by old name. ``*`` stands for any name.
MOVED = {
    "corpus.hosts": "corpus.download.hosts",
    "corpus.minimum_genes": "tokens.minimum_genes",
    "corpus.embedded.programmes": "corpus.embedded.programs",
    "evaluation.scib.neighbours": "evaluation.scib.neighbors",
    "evaluation.umap.neighbours": "evaluation.umap.neighbors",
    **{
        f"{section}.{name}": f"{section}.execution.{name}"
        for section in ("training", "models.*.training", "study.*.training")
        for name in Execution.model_fields
    },
}

#: Settings whose lists contain values with another name, and new names of the values by old name.
LISTS = ("architecture.variants", "study.*.variants")
VALUES = {"centred_values": "centered_values"}


def move(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return settings and values with new names, and a message for each old name.

    ``values`` are nested, and not yet checked. Raise a UserError if a setting has both names.
    """
    moved, messages = deepcopy(dict(values)), []
    for old, new in MOVED.items():
        *path, name = old.split(".")
        for section, names in sections_at(moved, path):
            if name not in section:
                continue
            wildcards = (at for part, at in zip(path, names, strict=True) if part == "*")
            *new_path, new_name = (next(wildcards) if x == "*" else x for x in new.split("."))
            target = section_of(moved, new_path)
            if target is None:  # a wrong value, which is reported when settings are checked
                del section[name]
                continue
            now, before = dotted(*new_path, new_name), dotted(*names, name)
            if new_name in target:
                raise UserError(f"{before}: is now {now}, which is also set; remove {before}")
            target[new_name] = section.pop(name)
            messages.append(f"{before} is now {now}; the old name works until version 0.4")
    for setting in LISTS:
        *path, name = setting.split(".")
        for section, names in sections_at(moved, path):
            renamed = with_new_values(section.get(name))
            if renamed != section.get(name):
                section[name] = renamed
                changes = ", ".join(f"{old} is now {new}" for old, new in VALUES.items())
                before = dotted(*names, name)
                messages.append(f"{before}: {changes}; the old name works until version 0.4")
    return moved, messages


def dotted(*names: object) -> str:
    """Return the dotted name of a setting. Names of sections may be wrong, for example numbers."""
    return ".".join(map(str, names))


def with_new_values(value: Any) -> Any:
    """Return a value, or the values in nested lists, with new names (:data:`VALUES`)."""
    if isinstance(value, list):
        return [with_new_values(item) for item in value]
    return VALUES.get(value, value) if isinstance(value, str) else value


def section_of(values: Any, path: Sequence[str]) -> dict[str, Any] | None:
    """Return the mapping at a path. Add missing mappings. If one is another value, return None."""
    for key in path:
        if isinstance(values, dict):
            values = values.setdefault(key, {})
    return values if isinstance(values, dict) else None


def sections_at(
    values: Any, path: list[str], names: tuple[str, ...] = ()
) -> Iterator[tuple[dict[str, Any], tuple[str, ...]]]:
    """Yield the mappings at a path whose ``*`` stands for any name, with their full paths."""
    if not isinstance(values, dict):
        return
    if not path:
        yield values, names
        return
    for name in [*values] if path[0] == "*" else path[:1]:
        yield from sections_at(values.get(name), path[1:], (*names, name))
