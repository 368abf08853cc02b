"""What the first process keeps of a run: journal, events, checkpoints and the progress shown."""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from scsigmoid.training.background import CheckpointWriter
from scsigmoid.training.checkpoints import Checkpoint, Checkpoints
from scsigmoid.training.display import Display
from scsigmoid.training.events import Events
from scsigmoid.training.journal import Journal, Row, as_csv
from scsigmoid.training.run import TrainingRun
from scsigmoid.training.step import Trainer
from scsigmoid.training.validation import LayerFile

JOURNAL = "journal.csv"
EVENTS = "tensorboard"
LAYERS = "layers.csv"


class Records:
    """The files of a run while it goes on; to be used in a ``with`` block."""

    def __init__(
        self,
        run: TrainingRun,
        checkpoints: Checkpoints,
        identity: Mapping[str, str],
        header: Mapping[str, str],
        step: int,
        rows: list[Row],
        output: Path,
    ) -> None:
        """Begin after a step.

        Args:
            run: what is trained.
            checkpoints: where they go.
            identity: :meth:`TrainingRun.identity`.
            header: of the journal.
            step: steps taken so far.
            rows: the journal's rows so far.
            output: folder of the model.
        """
        self.run = run
        self.identity = dict(identity)
        self.journal = Journal(output / JOURNAL, header, rows)
        self.events = Events(output / EVENTS, step)
        self.layers = LayerFile(output / LAYERS, step) if run.training.validate_every else None
        self.display = Display(run.model, step, run.training.steps)
        self.writer = CheckpointWriter(checkpoints)
        self._saved = step

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.display.close()
        self.events.close()
        self.writer.close()

    def append(self, row: Row) -> None:
        """Keep and show a row."""
        self.journal.append(row)
        self.events.append(row)
        self.display.show(row.step, row.loss, row.cells_per_second)

    def checkpoint(self, trainer: Trainer, step: int, seconds: float) -> None:
        """Begin to write the state after a step, if it is not written yet.

        Args:
            trainer: model and optimiser.
            step: steps taken.
            seconds: time spent training.
        """
        if step == self._saved:
            return
        self.writer.save(
            Checkpoint(
                step=step,
                steps=self.run.training.steps,
                seconds=seconds,
                identity=self.identity,
                journal=as_csv(self.journal.rows),
                model=trainer.encoder.state_dict(),
                optimiser=trainer.optimiser.state_dict(),
            )
        )
        self._saved = step
