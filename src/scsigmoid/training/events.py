"""The journal's rows as TensorBoard events, where the package ``tensorboard`` is installed."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from scsigmoid.progress import log
from scsigmoid.training.journal import Row


class Events:
    """Writes event files; does nothing but say so where ``tensorboard`` is missing."""

    def __init__(self, folder: Path, step: int) -> None:
        """Begin after step ``step``; what earlier runs wrote beyond it is not shown."""
        self._writer: Any = None
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            log(
                "the package tensorboard is not installed: no event files; journal.csv has all rows"
            )
            return
        self._writer = SummaryWriter(folder, purge_step=step + 1)

    def append(self, row: Row) -> None:
        """Add a row, for others to read soon."""
        if self._writer is not None:
            for name, value in asdict(row).items():
                if name != "step" and value is not None:
                    self._writer.add_scalar(name, value, row.step)

    def close(self) -> None:
        """Write what is left."""
        if self._writer is not None:
            self._writer.close()
