"""Cells of an h5ad file as tokens: the genes of each cell, ranked."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from scsigmoid.corpus.cell_types import cell_types
from scsigmoid.corpus.counts import OWN_ROW, Cells
from scsigmoid.corpus.hdf5 import FALSE
from scsigmoid.errors import UserError
from scsigmoid.progress import log
from scsigmoid.tokens.ranks import log_truncated, ranked_chunks
from scsigmoid.tokens.store import store_schema
from scsigmoid.tokens.vocabulary import Vocabulary

# Columns of the store, each with the column of obs from which it is copied.
OBS_COLUMNS = {"donor": "donor_id", "tissue": "tissue", "assay": "assay"}
PRIMARY = "is_primary_data"  # column of obs
MAX_LISTED = 100  # maximum number of rows in a list of left-out cells

#: For each file with left-out cells: `cells` (their number), `few_genes` (number of left-out cells
#: with too few genes, the others have no token), `rows` (of the first MAX_LISTED cells).
LeftOut = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Tokenizer:
    """Settings of the tokenization."""

    vocabulary: Vocabulary
    maximum_length: int  # longer cells are truncated to this number of tokens
    shard_cells: int  # maximum number of cells per shard of the store
    # Cells that express fewer genes are left out. Genes outside the vocabulary count, too.
    minimum_genes: int = 0

    def metadata(
        self, left_out: LeftOut, order: str, label: str, dataset: str = "", sha256: str = ""
    ) -> Mapping[str, Any]:
        """Return entries for the index of a store.

        ``left_out`` is the argument of :meth:`batches`. ``order`` is ``"file"`` or ``"scattered"``,
        and ``label`` names the columns of ``obs`` with the cell types. ``dataset`` is the name of
        the evaluation dataset and ``sha256`` the SHA-256 of its h5ad file. Both are empty for
        training cells.
        """
        return {
            "dataset": dataset,
            "cells": sha256,
            "vocabulary": self.vocabulary.fingerprint,
            "vocabulary_size": self.vocabulary.size,
            "maximum_length": self.maximum_length,
            "shard_cells": self.shard_cells,
            "minimum_genes": self.minimum_genes,
            "order": order,
            "label": label,
            "left_out": left_out,
        }

    def batches(
        self,
        cells: Cells,
        label: str,
        file: str,
        types: Sequence[str] = (),
        left_out: LeftOut | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield cells with their rank tokens and metadata, without the cells that are left out.

        ``label`` and ``types`` are as for :func:`scsigmoid.corpus.cell_types.cell_types`. ``file``
        is the name of the file in the store. After the last batch, the cells that are left out are
        added to ``left_out``, if it is given.

        Raises:
            UserError: if the file has too few genes of the vocabulary, or if it has cells with
                enough genes but all of these cells lack tokens.
        """
        obs = cells.obs([*OBS_COLUMNS.values(), PRIMARY])
        type_of_cell = cell_types(cells, label, types)
        truncated = few_genes = 0
        left_out_rows = []
        for chunk, ranked in ranked_chunks(cells, self.vocabulary, self.maximum_length):
            # Indices of the chunk's cells in arrays of all selected cells.
            in_chunk = np.searchsorted(cells.rows, chunk.rows)
            offsets = pa.array(ranked.offsets, pa.int32())
            columns = {
                "input_ids": pa.ListArray.from_arrays(offsets, ranked.tokens),
                "length": ranked.lengths,
                "genes": ranked.genes,
                "cell": chunk.rows,
                "file": [file] * len(chunk.rows),
                "cell_type": type_of_cell[in_chunk],
                # Cells are primary in files without this column, for which `obs` has "".
                "is_primary": np.isin(obs[PRIMARY][in_chunk], FALSE, invert=True),
            }
            columns |= {name: obs[source][in_chunk] for name, source in OBS_COLUMNS.items()}
            batch = pa.RecordBatch.from_pydict(columns, schema=store_schema(self.vocabulary.size))
            has_enough_genes = np.diff(chunk.counts.indptr) >= self.minimum_genes
            few_genes += int((~has_enough_genes).sum())
            is_kept = has_enough_genes & (ranked.genes > 0)
            truncated += int((is_kept & (ranked.genes > self.maximum_length)).sum())
            if not is_kept.all():
                left_out_rows.append(chunk.rows[~is_kept])
                batch = batch.filter(pa.array(is_kept))
            yield batch
        log_truncated(cells, truncated, self.maximum_length)
        if left_out_rows:
            rows = np.concatenate(left_out_rows).tolist()
            self._log_left_out(cells, rows, few_genes)
            entry = {"cells": len(rows), "few_genes": few_genes, "rows": rows[:MAX_LISTED]}
            if left_out is not None:
                left_out[file] = entry

    def _log_left_out(self, cells: Cells, rows: Sequence[int], few_genes: int) -> None:
        """Log the cells in ``rows``, which are left out.

        ``few_genes`` is the number of these cells with too few genes. Raise a UserError if all
        cells are left out, unless all have too few genes: ``minimum_genes`` may exclude a file.
        """
        total = cells.n_cells
        if len(rows) == total and few_genes < total:
            raise UserError(
                f"{cells.title}: none of the {total - few_genes} cells with enough genes expresses "
                "a gene of the vocabulary; leave the file out or lower tokens.minimum_cells"
            )
        listed = rows[:MAX_LISTED]
        reasons = []
        if few_genes:
            too_few = f"fewer than {self.minimum_genes} genes (tokens.minimum_genes)"
            reasons.append(f"{few_genes} of {total} cells express {too_few}")
        if no_token := len(rows) - few_genes:
            reasons.append(f"{no_token} of {total} cells express no gene of the vocabulary")
        # A copy of selected cells has the column OWN_ROW: the row of each cell in the user's file.
        # For other files `obs` returns "".
        user_rows = cells.obs([OWN_ROW])[OWN_ROW][np.searchsorted(cells.rows, listed)]
        shown = [user_row or str(row) for user_row, row in zip(user_rows, listed, strict=True)]
        if len(rows) > MAX_LISTED:
            shown.append("...")
        log(f"{cells.title}: {', '.join(reasons)} and are left out (rows {', '.join(shown)})")
