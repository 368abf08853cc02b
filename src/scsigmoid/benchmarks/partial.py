"""What a stopped sweep has measured, for the next one to go on from."""

import json
from pathlib import Path

from scsigmoid.benchmarks.rows import KernelRow, read_rows, write_rows
from scsigmoid.errors import UserError
from scsigmoid.files import compare_checksum, remove_checksum, write_json
from scsigmoid.progress import log


class Partial:
    """Rows beside the output, ``<name>.partial.csv``, and what they were measured with.

    Neither is an output of the workflow, which deletes those of a failed job.

    Attributes:
        rows: what an earlier sweep measured on the same machine, with the same versions, code and
            settings; none where any of these differs.

    Args:
        output: the table that the sweep will write.
        conditions: all on which a measurement depends, as plain values.
    """

    def __init__(self, output: str | Path, conditions: dict[str, object]) -> None:
        output = Path(output)
        self._table = output.with_name(f"{output.stem}.partial.csv")
        self._conditions = output.with_name(f"{output.stem}.partial.json")
        self.rows: list[KernelRow] = []
        # As JSON reads it back: tuples are lists there.
        now = json.loads(json.dumps(conditions))
        if self._found(now):
            log(f"{self._table}: going on after {len(self.rows)} rows")
            return
        self.discard()
        write_json(self._conditions, now)

    def _found(self, now: dict[str, object]) -> bool:
        if not (self._table.exists() and self._conditions.exists()):
            return False
        try:
            before = json.loads(self._conditions.read_text(encoding="utf-8"))
            compare_checksum(self._table)
            rows = read_rows(self._table, KernelRow)
        except (UserError, KeyError, ValueError, TypeError) as error:
            log(f"{self._table}: damaged ({error}); measuring anew")
            return False
        if before != now:
            changed = [key for key in now if before.get(key) != now[key]]
            log(f"{self._table}: other {', '.join(changed)}; measuring anew")
            return False
        self.rows = rows
        return True

    def save(self, rows: list[KernelRow]) -> None:
        """Keep all rows measured so far."""
        self.rows = rows
        write_rows(self._table, KernelRow, rows)

    def discard(self) -> None:
        """Remove both files."""
        remove_checksum(self._table)
        self._table.unlink(missing_ok=True)
        self._conditions.unlink(missing_ok=True)
