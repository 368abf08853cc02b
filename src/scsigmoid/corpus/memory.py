"""Cells of an AnnData in memory. Nothing is copied that is not read, and nothing is written."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from pandas.api.types import is_numeric_dtype

from scsigmoid.corpus.counts import LAYER
from scsigmoid.corpus.genes import Strings
from scsigmoid.corpus.matrix_reader import Matrix, matrix_in_memory
from scsigmoid.errors import UserError


class FrameInMemory:
    """A data frame of pandas (:class:`~.genes.Frame`). Names of columns may be repeated."""

    def __init__(self, frame: pd.DataFrame, name: str, title: str) -> None:
        """``title`` names the AnnData in messages."""
        self.name, self._frame, self._title = name, frame, title
        self._names = [*map(str, frame.columns)]
        self.columns = [*dict.fromkeys(self._names)]

    def __len__(self) -> int:
        return len(self._frame)

    def __contains__(self, column: str) -> bool:
        return column in self.columns

    def is_text(self, column: str) -> bool:
        """Return whether a column is not an array of numbers."""
        return not any(map(is_numeric_dtype, self._columns(column)))

    def read(self, column: str = "") -> Strings:
        """Return a column, by default the index, as text, with ``""`` for missing values.

        Raise a UserError if several columns of this name have different values, or if the index has
        several levels.
        """
        if not column:
            check_index(self._frame, f"{self._title}: {self.name}")
            return as_text(self._frame.index)
        first, *others = map(as_text, self._columns(column))
        if not all(np.array_equal(first, other) for other in others):
            raise UserError(
                f"{self._title}: {self.name} has several columns {column!r} with different values; "
                "remove all but one"
            )
        return first

    def _columns(self, column: str) -> list[Any]:
        """Return all columns of a name."""
        return [self._frame.iloc[:, i] for i, name in enumerate(self._names) if name == column]


def check_index(frame: pd.DataFrame, title: str) -> None:
    """Raise a UserError if a data frame has a MultiIndex, which AnnData does not support."""
    if isinstance(frame.index, pd.MultiIndex):
        remedy = "keep one level: .index = .index.get_level_values(0)"
        raise UserError(f"{title} has an index of several levels (MultiIndex); {remedy}")


def as_text(values: Any) -> Strings:
    """Return values of any dtype as text, with ``""`` for missing values. Bytes are UTF-8."""
    series = pd.Series(values).astype(object)
    texts = [x.decode(errors="replace") if isinstance(x, bytes) else str(x) for x in series]
    return np.where(series.isna(), "", np.array(texts, dtype=object))


class AnnDataInMemory:
    """An AnnData, which may be a view or backed by a file (:class:`~.counts.Source`).

    Columns of ``obs`` are not read, because the embedding needs all cells.
    """

    title = "adata"

    def __init__(self, adata: AnnData) -> None:
        self._adata = adata
        # Other keys are not layers with a name: None is X in anndata 0.13.
        layers = [name for name in adata.layers if isinstance(name, str)]
        self.matrices = ["raw/X"] if adata.raw is not None else []
        self.matrices += ["X"] if self._x is not None else []
        self.matrices += [f"{LAYER}{name}" for name in layers]

    @cached_property
    def _x(self) -> Any:
        """The matrix X. AnnData copies the X of a view each time."""
        return self._adata.X

    @contextmanager
    def opened(self, *, is_complete: bool = False) -> Iterator["AnnDataInMemory"]:
        """Raise a UserError if a matrix is damaged, as its arrays can be changed by mistake."""
        try:
            yield self
        except OSError as error:
            raise UserError(f"{self.title}: damaged ({error}); make the matrix again") from error

    def frame(self, name: str) -> FrameInMemory:
        """Return ``obs``, without its columns, ``var`` or ``raw/var``."""
        if name == "obs":
            frame = pd.DataFrame(index=self._adata.obs_names)
        else:
            frame = self._adata.var if name == "var" else self._adata.raw.var
        return FrameInMemory(frame, name.replace("/", "."), self.title)

    def matrix(self, name: str) -> Matrix:
        """Return a matrix, one of :attr:`matrices`."""
        if name.startswith(LAYER):
            matrix = self._adata.layers[name.removeprefix(LAYER)]
        else:
            matrix = self._x if name == "X" else self._adata.raw.X
        return matrix_in_memory(matrix, self.title, name.replace("/", "."))
