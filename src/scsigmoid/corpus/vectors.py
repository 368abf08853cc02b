"""Reads stored one-dimensional arrays piece by piece, at the speed of inflating them.

Sparse matrices are vectors in HDF5, most often compressed with gzip.  HDF5's own reading of those
takes twice as long as inflating them; therefore the chunks are fetched as they lie in the file and
inflated here, by Intel's library, which is twice as fast as zlib.  Whatever is stored otherwise is
read through HDF5.
"""

from typing import Any

import numpy as np
from isal import igzip_lib, isal_zlib
from numpy.typing import NDArray

DEFLATE, SHUFFLE = 1, 2  # HDF5's numbers of the filters


class Vector:
    """A stored vector, read by ranges that mostly follow each other."""

    def __init__(self, dataset: Any) -> None:
        """Look at the dataset without reading it."""
        self._dataset = dataset
        filters = dataset.id.get_create_plist()
        codes = [filters.get_filter(index)[0] for index in range(filters.get_nfilters())]
        self._direct = dataset.chunks is not None and codes in ([DEFLATE], [SHUFFLE, DEFLATE])
        self._shuffled = SHUFFLE in codes
        self._last: tuple[int, NDArray[Any]] | None = None

    def __len__(self) -> int:
        """Number of values."""
        return int(self._dataset.shape[0])

    def read(self, first: int, last: int) -> NDArray[Any]:
        """The values from ``first`` to ``last``.

        Raises:
            OSError: if they are damaged.
        """
        if not self._direct or first >= last:
            return self._dataset[first:last]
        size = self._dataset.chunks[0]
        values = np.empty(last - first, dtype=self._dataset.dtype)
        for number in range(first // size, (last - 1) // size + 1):
            chunk = self._chunk(number)
            if chunk is None:
                return self._dataset[first:last]
            begin, end = max(first, number * size), min(last, (number + 1) * size)
            values[begin - first : end - first] = chunk[begin - number * size : end - number * size]
        return values

    def _chunk(self, number: int) -> NDArray[Any] | None:
        """A chunk's values; None for one that HDF5 must read.  The last one is kept."""
        if self._last is not None and self._last[0] == number:
            return self._last[1]
        size, dtype = self._dataset.chunks[0], self._dataset.dtype
        try:
            skipped, stored = self._dataset.id.read_direct_chunk((number * size,))
            if skipped:
                return None
            inflated = isal_zlib.decompress(stored, bufsize=size * dtype.itemsize)
        except igzip_lib.IsalError as error:  # type: ignore[misc]
            raise OSError(f"chunk {number} does not inflate: {error}") from None
        except (RuntimeError, ValueError):  # a chunk that was never written
            return None
        if len(inflated) != size * dtype.itemsize:
            raise OSError(f"chunk {number} has {len(inflated)} bytes")
        if self._shuffled:  # HDF5 put the first bytes of all values first, then the second ones
            planes = np.frombuffer(inflated, dtype=np.uint8).reshape(dtype.itemsize, size)
            inflated = planes.T.tobytes()
        self._last = number, np.frombuffer(inflated, dtype=dtype)
        return self._last[1]
