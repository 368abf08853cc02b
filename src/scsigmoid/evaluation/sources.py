"""How result files name the files that they were computed from."""

import os
from pathlib import Path


def source_of(output: Path, *inputs: Path) -> str:
    """Paths of ``inputs``, separated by spaces, relative to the folder that holds them and
    ``output``: the results folder, for files of different stages.
    """
    paths = [path.absolute() for path in inputs]
    root = os.path.commonpath([output.absolute().parent, *(path.parent for path in paths)])
    return " ".join(path.relative_to(root).as_posix() for path in paths)
