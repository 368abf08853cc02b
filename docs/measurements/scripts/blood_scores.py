"""Score the model ``blood``, other models, and representations without a model on blood cells.

    python docs/measurements/scripts/blood_scores.py results/data --models blood FOLDER... \
        --output blood_scores.csv

``results/data`` contains the files of :data:`STUDIES`. Cells of the type ``unknown`` are left out.
A model is a name, or a folder with ``model.safetensors``. With ``--embeddings FOLDER``, the
embedding of a model is read from ``FOLDER/<model>/<study>.npy``, or written there if the file is
missing. Parts that the output already has are not scored again. The last study is scored
after the others.

A split is a seed. The CSV file has one row per representation, study, metric and split. Cells of
one study (``reference`` is empty), by their types:

- ``logistic``: balanced accuracy of logistic regression on the representation, in 5 folds,
- ``knn``: the same of 15 nearest neighbors in the principal components with 95 % of the variance,
- ``leiden_nmi``: NMI of the types with Leiden clusters in these components.

Transfer: a classifier of ``ss.annotate`` is fitted to 80 % of the cells of ``reference``, and
predicts the cells of ``study``. Both have the types that :data:`TYPES` maps to a type of both.

- ``logistic_accuracy``, ``neighbors_accuracy``: share of the cells with the right type,
- ``logistic_balanced``, ``neighbors_balanced``: balanced accuracy.

Mixing of two studies (``reference`` and ``study``), in a sample with equal numbers of cells of both
studies for each of these types:

- ``ilisi``, ``graph_connectivity``: by scib-metrics, where the batch is the study.

Representations without a model: 50 and 384 principal components of the log counts of the 2,000
most variable genes (of the reference or, for the mixing, of all cells), these log counts, and
independent normal values, other ones in each split.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import combinations, permutations
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
from annotation_scores import TYPES
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.metrics import accuracy_score, balanced_accuracy_score
from sklearn.neighbors import KNeighborsClassifier

import scsigmoid as ss
from scsigmoid.cells.annotation import make_classifier
from scsigmoid.evaluation.neighbors import (
    VARIABLE_GENES,
    Neighbors,
    log_normalized,
    nearest_cells,
    principal_components,
)
from scsigmoid.evaluation.scib import connectivity, cross_validated, ilisi, leiden, probe

#: Studies that are scored, as paths in the folder of the data.
STUDIES = ("pbmc_3k", "more/nsclc_blood_scgate", "pbmc_facs")
#: Representations without a model.
BASELINES = ("random", "pca_50", "pca_384", "variable_genes")
#: Studies, and pairs of a study and its reference, in the order in which they are scored.
Part = tuple[str, str]
PAIRS: list[Part] = [(query, reference) for reference, query in permutations(STUDIES, 2)]
PARTS: list[Part] = [(study, "") for study in STUDIES] + PAIRS
#: Pairs for which mixing is scored.
MIXED: list[Part] = [(query, reference) for reference, query in combinations(STUDIES, 2)]
COLUMNS = ["representation", "study", "reference", "split", "metric", "value"]
NEIGHBORS = 15
TRAINED_SHARE = 0.8  # of the reference, in each split of the transfer

Values = NDArray[np.floating]
Score = tuple[str, float]  # metric and value


@dataclass(frozen=True, eq=False)
class Study:
    """Cells of one study.

    Attributes:
        labels: type of each cell in the study.
        types: common name of each type, "" if it has none.
    """

    name: str
    cells: anndata.AnnData
    labels: NDArray[np.str_]
    types: NDArray[np.str_]

    @property
    def genes(self) -> pd.Index:
        return (self.cells.raw or self.cells).var_names

    def logs(self, genes: pd.Index) -> Values:
        """Return log counts (CSR), cells x genes. The total is over all genes of the file."""
        counts = (self.cells.raw or self.cells).X.tocsr()
        return log_normalized(counts)[:, self.genes.get_indexer(genes)]


def common_type(label: str) -> str:
    """Return the common name of a type by its longest beginning in :data:`TYPES`, or ""."""
    prefixes = sorted((prefix for prefix in TYPES if label.startswith(prefix)), key=len)
    return TYPES[prefixes[-1]] if prefixes else ""


@cache
def read(folder: Path, name: str) -> Study:
    cells = anndata.read_h5ad(folder / f"{name}.h5ad")
    cells = cells[cells.obs["cell_type"].astype(str) != "unknown"].copy()
    labels = cells.obs["cell_type"].to_numpy(str)
    return Study(Path(name).name, cells, labels, np.array([*map(common_type, labels)]))


def most_variable(logs: Values) -> NDArray[np.int64]:
    """Return the columns of the 2,000 genes of largest variance in log counts (CSR)."""
    variance = logs.multiply(logs).mean(axis=0) - np.square(logs.mean(axis=0))
    return np.argsort(-np.asarray(variance).ravel(), kind="stable")[:VARIABLE_GENES]


@dataclass(frozen=True)
class Representation:
    """Values of cells. For a model, its embedding. Otherwise, one of :data:`BASELINES`."""

    name: str
    model: str = ""  # argument of ss.load
    embeddings: Path | None = None

    @cache  # noqa: B019 (lives as long as the process)
    def embedding(self, study: Study) -> Values:
        path = self.embeddings and self.embeddings / self.name / f"{study.name}.npy"
        if path and path.is_file():
            values: Values = np.load(path)
            if len(values) != len(study.labels):
                raise SystemExit(f"{path}: not of the {len(study.labels)} cells; delete it")
            return values
        ss.embed(study.cells, ss.load(self.model), verbose=False)
        values = study.cells.obsm["X_scsigmoid"]
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, values)
        return values

    def values(self, fitted: list[Study], others: list[Study], split: int) -> list[Values]:
        """Return the values of all studies, (cells, dimensions) each. ``fitted`` define genes."""
        studies = [*fitted, *others]
        if self.model:
            return [self.embedding(study) for study in studies]
        if self.name == "random":
            generator = np.random.default_rng(split)
            return [generator.standard_normal((len(study.labels), 384)) for study in studies]
        return baseline_values(self.name, tuple(fitted), tuple(others))


@cache
def baseline_values(
    name: str, fitted: tuple["Study", ...], others: tuple["Study", ...]
) -> list[Values]:
    studies = [*fitted, *others]
    genes = studies[0].genes
    for study in studies[1:]:
        genes = genes.intersection(study.genes, sort=False)
    logs = [study.logs(genes) for study in studies]
    stacked = anndata.concat([anndata.AnnData(values) for values in logs[: len(fitted)]]).X
    columns = np.sort(most_variable(stacked))
    values = [part[:, columns].toarray() for part in logs]
    if name == "variable_genes":
        return values
    reference = np.concatenate(values[: len(fitted)])
    components = min(int(name.removeprefix("pca_")), *reference.shape)
    pca = PCA(components, svd_solver="covariance_eigh").fit(reference)
    return [pca.transform(part) for part in values]


def neighbors_of(values: Values, labels: NDArray[np.str_], batches: NDArray[np.str_]) -> Neighbors:
    coordinates = principal_components(values, 0.95, "")
    nearest = nearest_cells(coordinates, NEIGHBORS)
    return Neighbors(values, coordinates, *nearest, labels, np.array([]), {}, Path(), batches)


def type_scores(cells: Neighbors, split: int) -> Iterator[Score]:
    """Yield the scores of the cells of one study."""
    types = np.unique(cells.labels, return_inverse=True)[1]
    yield "logistic", probe(cells.values, types, split)
    knn = KNeighborsClassifier(NEIGHBORS)
    yield "knn", cross_validated(knn, cells.coordinates, types, split)
    yield "leiden_nmi", leiden(cells, split)["leiden_nmi"]


def shared_types(first: Study, second: Study) -> list[str]:
    return sorted({*first.types} & {*second.types} - {""})


def transfer_scores(
    trained: Values, predicted: Values, reference: Study, query: Study, split: int
) -> Iterator[Score]:
    """Yield the scores of classifiers that are fitted to a part of the reference."""
    shared = shared_types(reference, query)
    rows = np.flatnonzero(np.isin(reference.types, shared))
    queried = np.isin(query.types, shared)
    generator = np.random.default_rng(split)
    rows = np.sort(generator.choice(rows, round(TRAINED_SHARE * len(rows)), replace=False))
    truth = query.types[queried]
    for classifier in ("logistic", "neighbors"):
        fitted = make_classifier(classifier).fit(trained[rows], reference.types[rows])
        found = fitted.predict(predicted[queried])
        yield f"{classifier}_accuracy", accuracy_score(truth, found)
        yield f"{classifier}_balanced", balanced_accuracy_score(truth, found)


def mixing_scores(
    values: Values, others: Values, first: Study, second: Study, split: int
) -> Iterator[Score]:
    """Yield the scores of a sample with equal numbers of cells of both studies for each type."""
    generator = np.random.default_rng(split)
    rows: tuple[list[NDArray[np.int64]], ...] = ([], [])
    for name in shared_types(first, second):
        there = [np.flatnonzero(study.types == name) for study in (first, second)]
        for part, found in zip(rows, there, strict=True):
            part.append(generator.choice(found, min(map(len, there)), replace=False))
    chosen = [np.concatenate(part) for part in rows]
    types = np.concatenate([first.types[chosen[0]], second.types[chosen[1]]])
    batches = np.repeat([first.name, second.name], [len(part) for part in chosen])
    sampled = np.concatenate([values[chosen[0]], others[chosen[1]]])
    cells = neighbors_of(sampled, types, batches)
    yield from ilisi(cells, split).items()
    yield from connectivity(cells, split).items()


def score(representation: Representation, folder: Path, splits: int, part: Part) -> pd.DataFrame:
    """Return the rows of a representation for one study, or for a study and its reference."""
    query, *references = [read(folder, name) for name in part if name]
    rows: list[tuple[int, str, float]] = []
    for split in range(splits):
        if not references:
            if split == 0 or representation.name == "random":
                (values,) = representation.values([query], [], split)
                cells = neighbors_of(values, query.labels, np.array([], dtype=str))
            rows += [(split, *found) for found in type_scores(cells, split)]
            continue
        both = [references[0], query]
        values = representation.values(both[:1], both[1:], split)
        rows += [(split, *found) for found in transfer_scores(*values, *both, split)]
        if part in MIXED:
            values = representation.values(both, [], split)
            rows += [(split, *found) for found in mixing_scores(*values, *both, split)]
    table = pd.DataFrame(rows, columns=COLUMNS[3:])
    places = (representation.name, *(Path(name).name for name in part))
    return pd.concat([pd.DataFrame([places] * len(table), columns=COLUMNS[:3]), table], axis=1)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("data", type=Path, help="folder with the files")
    parser.add_argument("--models", nargs="+", default=["blood"])
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--embeddings", type=Path, help="folder of embeddings")
    parser.add_argument("--output", type=Path, required=True, help="CSV file, which is extended")
    options = parser.parse_args(arguments)
    wanted = [
        Representation(Path(model).name, model, options.embeddings) for model in options.models
    ]
    wanted += [Representation(name) for name in BASELINES]
    there: set[tuple[str, ...]] = set()
    if options.output.exists():
        scored = pd.read_csv(options.output, keep_default_na=False)
        there = {*scored[COLUMNS[:3]].itertuples(index=False, name=None)}
    wanted_parts = [
        (item, part)
        for part in sorted(PARTS, key=lambda part: sum(name == STUDIES[-1] for name in part))
        for item in wanted
        if (item.name, *(Path(name).name for name in part)) not in there
    ]
    for item, part in wanted_parts:
        table = score(item, options.data, options.splits, part)
        has_header = not options.output.exists()
        table.round(4).to_csv(options.output, index=False, mode="a", header=has_header)
        print(*table.iloc[0, :3], flush=True)


if __name__ == "__main__":
    main()
