"""Score the types that ``ss.annotate`` predicts across studies, next to methods without a model.

    python annotation_scores.py pbmc_facs.h5ad pbmc_3k.h5ad --output scores.csv

The first file is the reference, the other files are queries. Their types (``obs["cell_type"]``) are
mapped to the names in :data:`TYPES`. Types that the reference lacks should be "unknown". Methods:

- ``logistic`` and ``neighbors``: the classifiers of ``ss.annotate``,
- ``pca_logistic`` and ``pca_neighbors``: the same classifiers and thresholds on 50 principal
  components of log counts, fitted to the reference (genes of all files, 2,000 of largest variance),
- ``celltypist``: CellTypist, trained on the reference, if it is installed.

The CSV file has one row per query and method:

- ``accuracy``, ``balanced_accuracy``: of the ``cells`` with a type of the reference, without a
  threshold,
- ``unknown``, ``accuracy_of_known``: share of these cells below the threshold, and accuracy of the
  others,
- ``new_cells``, ``new_unknown``: number of cells with a type that the reference lacks, and share of
  them below the threshold.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.decomposition import PCA

import scsigmoid as ss
from scsigmoid.cells.annotation import hold_out, make_classifier
from scsigmoid.evaluation.neighbors import COMPONENTS, VARIABLE_GENES, log_normalized

#: Common name of the types whose name starts with a text. "" means that a cell is left out.
TYPES = {
    "B": "B", "CD19+": "B", "CD34+": "progenitor", "NK": "NK", "CD56+": "NK",
    "CD14+": "monocyte", "FCGR3A+": "monocyte", "Monocytes": "monocyte",
    "CD4": "CD4 T", "Naive CD4": "CD4 T", "Memory CD4": "CD4 T", "T cells CD4": "CD4 T",
    "T cells reg": "CD4 T", "T cells fol": "CD4 T", "CD8": "CD8 T", "T cells CD8": "CD8 T",
    "unknown": "",
}  # fmt: skip
PREDICTION = tuple[NDArray[np.str_], NDArray[np.bool_]]  # predicted types, and whether known


def read(path: Path) -> anndata.AnnData:
    """Read a file with the mapped types in ``obs["type"]``. Other types keep their name."""
    adata = anndata.read_h5ad(path)
    names = adata.obs["cell_type"].astype(str)
    prefixes = sorted(TYPES, key=len)  # the longest that fits is the last
    adata.obs["type"] = [
        ([name, *(TYPES[prefix] for prefix in prefixes if name.startswith(prefix))])[-1]
        for name in names
    ]
    return adata[adata.obs["type"] != ""].copy()


def log_counts(adata: anndata.AnnData, genes: pd.Index) -> csr_matrix:
    """Return log counts per 10,000, cells x genes. The total is over all genes of the file."""
    cells = adata.raw or adata
    names = symbols(adata)
    return log_normalized(csr_matrix(cells.X))[:, names.get_indexer(genes)]


def symbols(adata: anndata.AnnData) -> pd.Index:
    var = (adata.raw or adata).var
    names = var.get("feature_name", var.index)
    index = pd.Index(np.asarray(names, str))
    repeated = index.duplicated(keep=False)
    return pd.Index([f"{name} {row}" if repeated[row] else name for row, name in enumerate(index)])


def predictions(
    reference: anndata.AnnData, query: anndata.AnnData, model: ss.Model
) -> Iterator[tuple[str, PREDICTION]]:
    """Yield the name and the predictions of each method."""
    column = "predicted_type"
    for classifier in ("logistic", "neighbors"):
        ss.annotate(query, reference, model, label="type", classifier=classifier)
        is_known = query.obs[column].to_numpy() != "unknown"
        ss.annotate(query, reference, model, label="type", classifier=classifier, threshold=0)
        yield classifier, (query.obs[column].to_numpy(str), is_known)
    predictable = [name for name in query.obs[column].cat.categories if name != "unknown"]
    labeled = reference[reference.obs["type"].isin(predictable)].copy()
    names, types = np.unique(labeled.obs["type"].to_numpy(str), return_inverse=True)
    genes = symbols(reference).intersection(symbols(query), sort=False)
    logs, others = log_counts(labeled, genes), log_counts(query, genes)
    variance = logs.multiply(logs).mean(axis=0) - np.square(logs.mean(axis=0))
    chosen = np.argsort(-np.asarray(variance).ravel(), kind="stable")[:VARIABLE_GENES]
    pca = PCA(COMPONENTS, svd_solver="covariance_eigh")
    values = pca.fit_transform(logs[:, chosen].toarray())
    for classifier in ("logistic", "neighbors"):
        threshold = hold_out(values, types, classifier).threshold
        fitted = make_classifier(classifier).fit(values, types)
        probabilities = fitted.predict_proba(pca.transform(others[:, chosen].toarray()))
        best = names[probabilities.argmax(axis=1)]
        yield f"pca_{classifier}", (best, probabilities.max(axis=1) >= threshold)
    try:
        import celltypist
    except ImportError:
        print("celltypist is not installed and is left out")
        return
    trained = celltypist.train(
        anndata.AnnData(logs, labeled.obs, pd.DataFrame(index=genes)), labels="type",
        feature_selection=True, check_expression=False, n_jobs=1,
    )  # fmt: skip
    cells = anndata.AnnData(others, query.obs[["type"]], pd.DataFrame(index=genes))
    best = celltypist.annotate(cells, model=trained, mode="best match").predicted_labels
    some = celltypist.annotate(cells, model=trained, mode="prob match").predicted_labels
    types_found = best["predicted_labels"].to_numpy(str)
    yield "celltypist", (types_found, some["predicted_labels"].to_numpy() != "Unassigned")


def score(query: anndata.AnnData, types: set[str], prediction: PREDICTION) -> dict[str, float]:
    """Return a row of the table. ``types`` are those that can be predicted."""
    predicted, is_known = prediction
    truth = query.obs["type"].to_numpy(str)
    is_old = np.isin(truth, [*types])
    is_right = predicted == truth
    old_types, old_predicted = truth[is_old], predicted[is_old]
    recalls = [(old_predicted[old_types == name] == name).mean() for name in np.unique(old_types)]
    return {
        "cells": int(is_old.sum()),
        "accuracy": is_right[is_old].mean(),
        "balanced_accuracy": np.mean(recalls),
        "unknown": (~is_known[is_old]).mean(),
        "accuracy_of_known": is_right[is_old & is_known].mean(),
        "new_cells": int((~is_old).sum()),
        "new_unknown": (~is_known[~is_old]).mean() if (~is_old).any() else np.nan,
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("reference", type=Path, help="h5ad file with counts and obs['cell_type']")
    parser.add_argument("queries", type=Path, nargs="+", help="files like the reference")
    parser.add_argument("--model", default="blood")
    parser.add_argument("--output", type=Path, required=True, help="CSV file, which is extended")
    options = parser.parse_args(arguments)
    model = ss.load(options.model)
    reference = read(options.reference)
    rows = []
    for path in options.queries:
        query = read(path)
        for method, prediction in predictions(reference, query, model):
            types = {*query.obs["predicted_type"].cat.categories}
            row = {"reference": options.reference.stem, "query": path.stem, "method": method}
            rows.append(row | score(query, types, prediction))
    table = pd.DataFrame(rows).round(4)
    print(table.to_string(index=False))
    table.to_csv(
        options.output, index=False, mode="a", header=not options.output.exists(),
    )  # fmt: skip


if __name__ == "__main__":
    main()
