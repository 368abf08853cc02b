"""The facts of an evaluation dataset, in a JSON file beside its cells."""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from scsigmoid.errors import UserError
from scsigmoid.files import write_json
from scsigmoid.seals import check_seal, seal, unseal


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What later stages need to know of an evaluation dataset.

    Attributes:
        file: name of its file in the manifest.
        simulated: whether its cells are simulated.
        label: column of ``obs`` with the cell type, or columns in braces (:mod:`~.labels`).
        types: spelling of cell types.
        title: of the dataset.
        cells: number of evaluated cells.
        genes: number of genes.
        sha256: of the file with the cells.
        location: where they are from, as in the manifest.
    """

    file: str
    simulated: bool
    label: str
    types: list[str]
    title: str
    cells: int
    genes: int
    sha256: str
    location: str


def write_facts(path: str | Path, facts: Facts) -> None:
    """Write facts as JSON, atomically and sealed."""
    unseal(path)
    write_json(path, asdict(facts))
    seal(path)


def read_facts(path: str | Path) -> Facts:
    """Read what :func:`write_facts` wrote.

    Raises:
        UserError: if the file is missing, damaged or holds something else.
    """
    check_seal(path)
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
        return Facts(**{field.name: values[field.name] for field in fields(Facts)})
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); make it again") from None
    except (ValueError, KeyError, TypeError):
        raise UserError(
            f"{path}: damaged, or not the facts of an evaluation dataset; delete it and run again"
        ) from None
