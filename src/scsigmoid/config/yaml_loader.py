"""YAML without the surprises of PyYAML's reading of YAML 1.1."""

import re
from collections.abc import Hashable
from typing import Any

import yaml

MAP, SEQUENCE, INT, FLOAT, TIMESTAMP = (
    f"tag:yaml.org,2002:{name}" for name in ("map", "seq", "int", "float", "timestamp")
)
DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9_]*)")


class Loader(yaml.SafeLoader):
    """Load plain values. A date stays text.

    Raises:
        yaml.MarkedYAMLError: also for a key that is given twice, an alias inside the value that it
            stands for, and a number that is not decimal (YAML 1.1 reads ``1:30`` as 90 and ``0100``
            as 64).
    """

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        if node in self.recursive_objects:
            raise error_at(node, "the value contains itself")
        return super().construct_object(node, deep=deep)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in keys:
                    raise error_at(key, f"{key.value!r} is given twice")
                keys.add(key.value)
        return super().construct_mapping(node, deep=deep)


def error_at(node: yaml.Node, problem: str) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def construct_number(loader: Loader, node: yaml.ScalarNode) -> Any:
    if not DECIMAL.fullmatch(node.value) if node.tag == INT else ":" in node.value:
        raise error_at(node, f"{node.value} is not a decimal number (text needs quotes)")
    return yaml.SafeLoader.yaml_constructors[node.tag](loader, node)


# Without `deep`, PyYAML builds values that contain themselves.
def construct_map(loader: Loader, node: yaml.MappingNode) -> dict[Hashable, Any]:
    return loader.construct_mapping(node, deep=True)


def construct_list(loader: Loader, node: yaml.SequenceNode) -> list[Any]:
    return loader.construct_sequence(node, deep=True)


Loader.add_constructor(MAP, construct_map)
Loader.add_constructor(SEQUENCE, construct_list)
Loader.add_constructor(INT, construct_number)
Loader.add_constructor(FLOAT, construct_number)
Loader.add_constructor(TIMESTAMP, lambda loader, node: node.value)
