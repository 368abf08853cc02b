"""Identity of result files: the model, dataset, vocabulary and cells that a file was made from.

The writer stores these fields in the file's metadata. The reader compares them with the expected
fields (:func:`check_identity`), to detect that another file is at the path.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scsigmoid.errors import UserError
from scsigmoid.files import METADATA_KEY, atomic_path, sha256

if TYPE_CHECKING:
    import pyarrow as pa

FINGERPRINT = re.compile("[0-9a-f]{64}")
SNAPSHOT = re.compile(r"(.+)-step-(\d{8})")  # stem of a file: name of the model, training step


def check_identity(path: str | Path, metadata: Mapping[str, Any], **expected: Any) -> None:
    """Raise a UserError if an expected field of a file's metadata is missing or different.

    ``expected`` has values of fields, e.g. ``model="sigmoid_4k"``. Other fields are not checked.
    """
    for field, value in expected.items():
        if field not in metadata:
            raise UserError(f"{path}: does not state its {field}; make it again with this version")
        if metadata[field] != value:
            problem = f"has {field} {for_message(metadata[field])}, expected {for_message(value)}"
            remedy = "restore the file that belongs here, or make it again"
            raise UserError(f"{path}: {problem}; {remedy}")


def check_cells(path: Path, expected: str) -> None:
    """Raise a UserError if an h5ad file is missing or its SHA-256 is not the field ``cells``."""
    if not path.is_file():
        raise UserError(f"{path}: no such file; give the h5ad file of the dataset")
    check_identity(path, {"cells": sha256(path)}, cells=expected)


def for_message(value: Any) -> str:
    """Return a value as text for a message. Fingerprints are shortened to 12 digits."""
    if isinstance(value, str) and FINGERPRINT.fullmatch(value):
        return value[:12]
    return repr(value) if value != "" else "empty"


def model_of(path: Path) -> dict[str, Any]:
    """Return the identity in a file's name: ``model``, and ``step`` if it is from a snapshot."""
    snapshot = SNAPSHOT.fullmatch(path.stem)
    if snapshot is None:
        return {"model": path.stem}
    return {"model": snapshot[1], "step": int(snapshot[2])}


def write_table(path: Path, table: "pa.Table", identity: Mapping[str, Any]) -> None:
    """Write a Parquet file with an identity, atomically."""
    import pyarrow.parquet as pq

    metadata = {**(table.schema.metadata or {}), METADATA_KEY: json.dumps(identity, sort_keys=True)}
    with atomic_path(path) as temporary:
        pq.write_table(table.replace_schema_metadata(metadata), temporary)


def read_table(path: Path, **expected: Any) -> "pa.Table":
    """Read a Parquet file. Raise a UserError if a field of its identity is not as expected."""
    import pyarrow.parquet as pq

    check_identity(path, read_identity(path), **expected)
    return pq.read_table(path)


def read_identity(path: Path) -> dict[str, Any]:
    """Return the identity of a Parquet file, {} if it states none."""
    import pyarrow.parquet as pq

    metadata = pq.read_schema(path).metadata or {}
    return dict(json.loads(metadata.get(METADATA_KEY.encode(), b"{}")))
