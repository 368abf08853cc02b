"""How result files name the files that they were computed from."""

from pathlib import Path


def source_of(output: Path, *inputs: Path) -> str:
    """Paths of ``inputs`` relative to the results folder of ``output``, separated by spaces.

    The results folder is the one that holds ``metrics``; outside such a folder, names alone are
    given, so that no path of the machine enters a result.
    """
    output = output.absolute()
    root = next((parent.parent for parent in output.parents if parent.name == "metrics"), None)
    names = []
    for path in map(Path.absolute, inputs):
        inside = root is not None and path.is_relative_to(root)
        names.append(path.relative_to(root).as_posix() if root and inside else path.name)
    return " ".join(names)
