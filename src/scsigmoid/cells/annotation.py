"""Predict the types of cells from an embedded, labeled reference, with scikit-learn."""

import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from anndata import AnnData, read_h5ad
from numpy.typing import NDArray

from scsigmoid.cells.embedding import (
    KEY,
    cell_hashes,
    check_options,
    check_types,
    check_writable,
    embed,
    tokenize,
)
from scsigmoid.cells.model import Model
from scsigmoid.corpus.cell_types import ABSENT
from scsigmoid.corpus.h5ad_writer import storing
from scsigmoid.corpus.hdf5 import opened
from scsigmoid.corpus.memory import as_text, check_index
from scsigmoid.corpus.tenx import as_h5ad
from scsigmoid.errors import UserError, first_few, format_names
from scsigmoid.files import atomic_path, parsing, sha256
from scsigmoid.model.finite import check_finite
from scsigmoid.progress import log, verbosity, warn
from scsigmoid.tokens.packed import Packed

Classifier = Literal["logistic", "neighbors"]

FOLDS = 5  # number of parts of the reference, each of which is held out once
MINIMUM_CELLS = 2 * FOLDS  # smallest number of reference cells of a type that can be predicted
NEIGHBORS = 15  # number of neighbors that vote
KEPT = 0.95  # share of the correct predictions on held-out cells that reach the threshold
SHARED_GENES = 0.5  # below this share of the genes expected in common, a warning is printed
CHECKED = 8  # number of cells that are embedded again to check the order of an embedding
UNKNOWN = "unknown"


@dataclass(frozen=True)
class HeldOut:
    """Predictions of a classifier for reference cells, each made without the cell's fold.

    Attributes:
        types: type of each cell, as an index.
        predicted: predicted type of each cell, as an index.
        probability: probability of the predicted type of each cell.
        threshold: smallest probability of a prediction that is not "unknown".
    """

    types: NDArray[np.int64]
    predicted: NDArray[np.int64]
    probability: NDArray[np.floating]
    threshold: float

    def scores(self) -> dict[str, float]:
        """Return the row of the table ``scores``, see :func:`annotate`."""
        from sklearn.metrics import balanced_accuracy_score

        is_known = self.probability >= self.threshold
        is_correct = self.types == self.predicted
        return {
            "threshold": self.threshold,
            "accuracy": float(is_correct.mean()),
            "balanced_accuracy": float(balanced_accuracy_score(self.types, self.predicted)),
            "unknown": float((~is_known).mean()),
            "accuracy_of_known": float(is_correct[is_known].mean()) if is_known.any() else np.nan,
        }


def annotate(
    query: AnnData,
    reference: AnnData,
    model: Model,
    *,
    label: str,
    classifier: Classifier = "logistic",
    threshold: float | None = None,
    key: str = KEY,
    verbose: bool = True,
) -> None:
    """Predict the types of the cells in ``query`` from the labeled cells in ``reference``.

    A classifier is fitted to the embeddings of the reference cells. The results are stored in
    ``query``:

    - ``obs["predicted_<label>"]``: the predicted type, or "unknown" if its probability is below the
      threshold (categorical),
    - ``obs["predicted_<label>_probability"]``: the probability of the most probable type (float32
      with ``logistic``, float64 with ``neighbors``),
    - ``uns["predicted_<label>"]``: settings, and predictions for held-out reference cells, see
      below.

    Each reference cell is held out once: classifiers are fitted to four of five folds, which
    contain all types, and predict the fifth. The threshold is the probability that 95 % of the
    correct predictions on held-out cells reach. The table ``scores`` in ``uns`` has a row for each
    classifier with its ``threshold``, ``accuracy`` and ``balanced_accuracy`` without a threshold,
    the share of ``unknown`` cells, and ``accuracy_of_known``, the accuracy of the others. The table
    ``confusion`` has the number of held-out ``cells`` for each ``type`` and ``predicted`` type,
    by the selected classifier. Held-out cells are from the same studies as the reference, so the
    accuracy on cells of another study is lower.

    Args:
        query: cells to annotate, with raw counts or an embedding by ``model``.
        reference: labeled cells, with raw counts or an embedding by ``model``.
        model: from :func:`load`.
        label: column of ``reference.obs`` with the type of each cell. Cells without a type
            (missing, "", "unknown", "NA") and types with fewer than 10 cells are left out, with a
            warning.
        classifier: ``logistic`` (logistic regression on standardized dimensions, C = 0.1) or
            ``neighbors`` (vote of the 15 nearest neighbors, by Euclidean distance).
        threshold: smallest probability of a prediction that is not "unknown", from 0 to 1. The
            default ``None`` chooses it on held-out reference cells.
        key: name of the embedding in ``obsm``. Cells without this embedding are embedded with the
            default options of :func:`embed`. An existing embedding, also of a file that the
            workflow wrote (``embeddings``), is used if ``uns`` says that ``model`` made it.
        verbose: as for :func:`embed`.

    Raises:
        UserError: if ``label`` is missing, if fewer than two types have enough cells, if all
            query cells are reference cells, if query and reference have no gene of the vocabulary
            in common, if an embedding was made by another model or has another order of cells, or
            as for :func:`embed`.
    """
    cells = {"query": query, "reference": reference}
    check_arguments(cells, model, key, classifier, threshold)
    with verbosity(verbose):
        types = read_types(reference, label)
        names, numbers = np.unique(types[types != ""], return_inverse=True)
        embed_both(cells, model, key)
        check_repeated(query.obsm[key], reference.obsm[key])
        values = np.asarray(reference.obsm[key])[types != ""]
        # Sorted, so that folds and results do not depend on the order of the reference cells.
        order = np.lexsort((numbers, *values.T[7::-1]))
        values, numbers = values[order], numbers[order]
        held_out = {each: hold_out(values, numbers, each) for each in get_args(Classifier)}
        for each, result in held_out.items():
            log(describe(each, result))
        selected = held_out[classifier]
        limit = selected.threshold if threshold is None else float(threshold)
        fitted = make_classifier(classifier).fit(values, numbers)
        probabilities = fitted.predict_proba(np.asarray(query.obsm[key]))
        best, probability = probabilities.argmax(axis=1), probabilities.max(axis=1)
        predicted = np.where(probability >= limit, names[best], UNKNOWN)
        column = f"predicted_{label}"
        query.obs[column] = pd.Categorical(predicted, categories=[*names, UNKNOWN])
        query.obs[f"{column}_probability"] = probability
        query.uns[column] = {
            "label": label,
            "classifier": classifier,
            "threshold": limit,
            "model": model.name,
            "checkpoint": query.uns[key]["checkpoint"],
            "reference_cells": len(values),
            "scores": pd.DataFrame({each: r.scores() for each, r in held_out.items()}).T,
            "confusion": confusion(selected, names, limit),
        }
        is_known = predicted != UNKNOWN
        log(
            f"query: {len(np.unique(predicted[is_known]))} of {len(names)} types in "
            f"{is_known.sum():,} of {len(predicted):,} cells; {(~is_known).sum():,} cells are "
            f"{UNKNOWN!r} (probability below {limit:.2f})"
        )


def annotate_file(
    query: Path,
    reference: Path,
    model: Model,
    output: Path,
    *,
    label: str,
    classifier: Classifier = "logistic",
    threshold: float | None = None,
    key: str = KEY,
    force: bool = False,
) -> None:
    """Predict the types of the cells of a file from a labeled file, see :func:`annotate`.

    Args:
        query, reference: h5ad files, or 10x files or folders, which are read into memory. Files
            with embeddings need less time and memory.
        output: h5ad file with the ``obs`` of the query, the predictions and the embedding.
        label, classifier, threshold, key: as for :func:`annotate`.
        force: as for :func:`~scsigmoid.cells.embedding.embed_file`.

    Raises:
        UserError: as for :func:`annotate`, or if a file is damaged or the output exists.
    """
    exists = os.path.lexists(output)
    if exists and not force:
        raise UserError(f"{output}: exists; give another file, or --force to replace it")
    with atomic_path(output, overwrite=exists) as temporary:
        cells, labeled = read_cells(query), read_cells(reference)
        annotate(
            cells, labeled, model, label=label, classifier=classifier, threshold=threshold, key=key
        )
        column = f"predicted_{label}"
        result = AnnData(
            obs=cells.obs,
            obsm={key: cells.obsm[key]},
            uns={name: cells.uns[name] for name in (key, column)},
        )
        with storing(str(output)):
            result.write_h5ad(temporary)
    log(f"{output}: {cells.n_obs} cells, obs[{column!r}]")


def read_cells(path: Path) -> AnnData:
    """Read an h5ad file, or a 10x file or folder, into memory."""
    with as_h5ad(path) as source:
        with opened(source, str(path)):  # raises an error if the file is damaged or unsafe
            pass
        with parsing(path, "an h5ad file"):
            return read_h5ad(source)


def check_arguments(
    cells: Mapping[str, Any], model: Any, key: Any, classifier: Any, threshold: Any
) -> None:
    """Raise a UserError if an argument of :func:`annotate` has a wrong type or value.

    ``cells`` are query and reference by name.
    """
    for name, adata in cells.items():
        check_types(adata, model, name)
        if not adata.n_obs:
            raise UserError(f"{name}: has no cells; give other cells")
    check_options(key, 1)
    for name, adata in cells.items():
        is_embedded = key in adata.obsm and key in adata.uns
        if name == "query" or adata.n_vars or not is_embedded:  # other references are only read
            check_writable(adata, name)
    if classifier not in get_args(Classifier):
        choices = " or ".join(get_args(Classifier))
        raise UserError(f"classifier: {classifier!r} is not a valid value; expected {choices}")
    is_number = isinstance(threshold, (int, float, np.number)) and not isinstance(threshold, bool)
    if threshold is not None and not (is_number and 0 <= threshold <= 1):
        raise UserError(f"threshold: is {threshold!r}; use a probability from 0 to 1")


def read_types(reference: AnnData, label: str) -> NDArray[np.object_]:
    """Return the type of each reference cell, ``""`` for cells that are left out.

    Print a warning with the number of cells that are left out, for each reason. Raise a UserError
    if fewer than two types are left.
    """
    columns = [str(name) for name in reference.obs]
    if columns.count(label) != 1:
        problem = f"several columns {label!r}" if label in columns else f"no column {label!r}"
        raise UserError(
            f"reference: obs has {problem} for the types; its columns: "
            f"{format_names(str(label), columns)}"
        )
    texts = as_text(reference.obs[label])
    types = np.array(["" if text.strip().casefold() in ABSENT else text for text in texts], object)
    if missing := int((types == "").sum()):
        warn(f"reference: {missing:,} of {len(types):,} cells have no {label} and are left out")
    counts = pd.Series(types[types != ""]).value_counts(sort=False).sort_index()
    rare = counts[counts < MINIMUM_CELLS]
    if len(rare):
        warn(
            f"reference: {len(rare)} of {len(counts)} types have fewer than {MINIMUM_CELLS} cells "
            f"and are left out, with {rare.sum():,} cells "
            f"({first_few(f'{name}: {n}' for name, n in rare.items())})"
        )
    if len(counts) - len(rare) < 2:
        raise UserError(
            f"reference: {len(counts) - len(rare)} types in the column {label!r} have at least "
            f"{MINIMUM_CELLS} cells; two are needed; choose another column or add cells"
        )
    types[np.isin(types, rare.index.to_numpy(object))] = ""
    return types


def embed_both(cells: dict[str, AnnData], model: Model, key: str) -> None:
    """Embed query and reference, unless they have the embedding.

    Raise a UserError if an existing embedding was made by another model, or if the cells have no
    gene of the vocabulary in common. Genes are compared only if both are embedded now.
    """
    checkpoint = sha256(model.path)
    missing = []
    for name, adata in cells.items():
        name_embedding(adata, key, checkpoint)
        if key not in adata.obsm:
            missing.append(name)
            continue
        settings = adata.uns.get(key)
        values = np.asarray(adata.obsm[key])
        is_whole = values.shape[1:] == (model.encoder.settings.hidden,)  # not a part, nor sparse
        origin = settings.get("checkpoint") if isinstance(settings, Mapping) else None
        if not is_whole or origin != checkpoint:
            made = "another model" if origin not in (None, checkpoint) else "unknown"
            raise UserError(
                f"{name}: the origin of obsm[{key!r}] is {made}, not {model.name}; give another "
                "key, or delete it to embed the cells again"
            )
        check_finite(values, adata.obs_names, f"{name}: contains")
        check_cells(adata, model, key, name)
    for name in missing:
        log(f"{name}: embedding {cells[name].n_obs:,} cells")
        with named(name):
            embed(cells[name], model, key=key)
    if len(missing) == len(cells):
        compare_genes(*(tokenize(adata, model) for adata in cells.values()))
    else:
        log("genes of query and reference are not compared, because an embedding existed")


def name_embedding(adata: AnnData, key: str, checkpoint: str) -> None:
    """Give an embedding that the workflow wrote, ``obsm["X_<model>"]``, the name ``key``.

    Cells with counts are embedded again if another model made it.
    """
    settings = adata.uns.get("scsigmoid")
    if not isinstance(settings, Mapping):
        return
    if adata.n_vars and settings.get("checkpoint") != checkpoint:
        return
    name = f"X_{settings.get('model')}"
    if name in adata.obsm and key not in (adata.uns if key == name else adata.obsm):
        adata.obsm[key], adata.uns[key] = adata.obsm[name], settings


def check_cells(adata: AnnData, model: Model, key: str, name: str) -> None:
    """Raise a UserError or warn if cells have the embeddings of other cells.

    Print a warning if cells do not have the name and embedding that :func:`embed` stored, unless
    their counts give the same embedding, for example because the cells were renamed.
    """
    check_index(adata.obs, f"{name}: obs")
    found = cell_hashes(adata.obs_names, np.asarray(adata.obsm[key]))
    stored = adata.uns[key].get("cell_hashes", found)  # earlier versions did not store them
    changed = np.flatnonzero(~np.isin(found, stored))
    rows = changed if len(changed) else np.arange(adata.n_obs)
    if not check_order(adata, model, key, name, rows) and len(changed):
        warn(
            f"{name}: {len(changed):,} of {adata.n_obs:,} cells have another name or another "
            f"obsm[{key!r}] than when they were embedded ({first_few(adata.obs_names[changed])}); "
            "unless you renamed or joined cells, delete it to embed them again"
        )


def check_order(adata: AnnData, model: Model, key: str, name: str, rows: NDArray[np.int64]) -> bool:
    """Return whether counts give the embeddings of cells. A few of ``rows`` are embedded again.

    Return False without raw counts. Raise a UserError if a cell has the embedding of another cell,
    for example after sorting.
    """
    if not adata.n_vars:
        return False
    rows = rows[:: max(1, len(rows) // CHECKED)][:CHECKED]
    sample = adata[rows].to_memory()
    try:
        # Without warnings, because genes may have been left out after the cells were embedded.
        with verbosity(False, logging.ERROR):
            embed(sample, model, key=key, verbose=False)
    except UserError:
        return False
    values = np.asarray(adata.obsm[key])
    is_same = True
    for row, again in zip(rows, np.asarray(sample.obsm[key]), strict=True):
        distances = np.linalg.norm(values - again, axis=1)
        nearest = distances.argmin()
        # Devices and batches change an embedding by less than 1 % of its norm.
        tolerance = 0.05 * np.linalg.norm(again)
        is_same = is_same and bool(distances[row] <= tolerance)
        if distances[row] > max(tolerance, 10 * distances[nearest]):
            raise UserError(
                f"{name}: obsm[{key!r}] is in another order: cell {adata.obs_names[row]!r} has "
                f"the embedding of row {nearest} instead of row {row}; delete it to embed the "
                "cells again"
            )
    return is_same


@contextmanager
def named(name: str) -> Iterator[None]:
    """Start errors with the name of the argument instead of ``adata``."""
    try:
        yield
    except UserError as error:
        error.args = (re.sub("^adata:", f"{name}:", str(error)),)
        raise


def compare_genes(query: Packed, reference: Packed) -> None:
    """Print a warning or raise an error if few genes (tokens) are in both arguments.

    Few or shallow cells express few genes. So the number of genes in common is compared with the
    number that is expected if both had the genes of one of them, see :func:`expected_genes`.
    """
    # Sorting needs 2 or 4 bytes per token, numpy.bincount would need 8.
    found = [np.unique(cells.tokens, return_counts=True) for cells in (query, reference)]
    (query_genes, query_cells), (reference_genes, reference_cells) = found
    in_both = len(np.intersect1d(query_genes, reference_genes))
    counts = (
        f"query and reference have {in_both:,} of the model's genes in common (query "
        f"{len(query_genes):,}, reference {len(reference_genes):,})"
    )
    if not in_both:
        raise UserError(f"{counts}; use counts of the same genes")
    expected = max(
        expected_genes(query_cells, len(query.cu_seqlens) - 1, len(reference.tokens)),
        expected_genes(reference_cells, len(reference.cu_seqlens) - 1, len(query.tokens)),
    )
    (log if in_both >= SHARED_GENES * expected else warn)(counts)


def expected_genes(counts: NDArray[np.int64], n_cells: int, n_tokens: int) -> float:
    """Return how many different genes ``n_tokens`` tokens of such cells would have.

    ``counts`` has the number of the ``n_cells`` cells that express each gene.
    """
    drawn = n_cells * n_tokens / counts.sum()  # number of cells
    return float((1 - (1 - counts / n_cells) ** drawn).sum())


def check_repeated(query: Any, reference: Any) -> None:
    """Print the number of query cells that are reference cells, or raise an error if all are.

    Cells count as the same if their embeddings are equal.
    """
    seen = {row.tobytes() for row in np.ascontiguousarray(reference)}
    repeated = sum(row.tobytes() in seen for row in np.ascontiguousarray(query))
    if repeated == len(query):
        raise UserError(
            f"query: all {repeated:,} cells are also in the reference (equal embeddings); give "
            "other cells. The accuracy on held-out reference cells is computed in any case"
        )
    if repeated:
        warn(
            f"query: {repeated:,} of {len(query):,} cells are also in the reference (equal "
            "embeddings), so their predictions are too good"
        )


def make_classifier(name: Classifier) -> Any:
    """Return a classifier of scikit-learn, which takes a second to import."""
    if name == "neighbors":
        from sklearn.neighbors import KNeighborsClassifier

        return KNeighborsClassifier(NEIGHBORS)
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000, C=0.1))


def hold_out(values: NDArray[Any], types: NDArray[np.int64], classifier: Classifier) -> HeldOut:
    """Predict each cell by a classifier that was fitted without the cell's fold.

    ``values`` are cells x dimensions. The folds are stratified by type and do not depend on the
    classifier.
    """
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    model = make_classifier(classifier)
    probabilities = cross_val_predict(model, values, types, cv=folds, method="predict_proba")
    predicted, probability = probabilities.argmax(axis=1), probabilities.max(axis=1)
    correct = probability[predicted == types]
    threshold = float(np.quantile(correct, 1 - KEPT, method="lower")) if len(correct) else 1.0
    return HeldOut(types, predicted, probability, threshold)


def confusion(held_out: HeldOut, names: NDArray[Any], threshold: float) -> pd.DataFrame:
    """Return the table ``confusion``, see :func:`annotate`, without rows of 0 cells."""
    predicted = np.where(held_out.probability >= threshold, names[held_out.predicted], UNKNOWN)
    pairs = pd.DataFrame({"type": names[held_out.types], "predicted": predicted})
    table = pairs.value_counts(sort=False).rename("cells").reset_index()
    table.index = table.index.astype(str)  # as anndata stores it
    return table


def describe(classifier: str, held_out: HeldOut) -> str:
    scores = held_out.scores()
    return (
        f"held-out reference cells, {classifier}: accuracy {scores['accuracy']:.3f}, balanced "
        f"{scores['balanced_accuracy']:.3f}; {scores['unknown'] * 100:.1f} % unknown below "
        f"{scores['threshold']:.2f}, accuracy of the others {scores['accuracy_of_known']:.3f}"
    )
