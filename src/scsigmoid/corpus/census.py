"""The CELLxGENE Census as a source: the datasets of one of its releases.

The package cellxgene-census lists a release; its original h5ad files are then downloaded like all
others, from the release's public bucket over https.
"""

from typing import Any
from urllib.parse import quote, urlparse

import pyarrow as pa

from scsigmoid.corpus.discover import UNKNOWN_SIZE, Listing, Version
from scsigmoid.corpus.metadata import as_count, check_identifier, one_line
from scsigmoid.errors import UserError
from scsigmoid.progress import log


def release(name: str) -> Listing:
    """One version of each dataset of a Census release, ordered by dataset id.

    Organisms and assays of a dataset are those of its cells in the Census, which holds no others
    (no spatial or ATAC assays, for example).  Datasets without such a cell are left out.

    Args:
        name: of the release, e.g. ``2024-07-01``.

    Raises:
        UserError: if the package is missing, or the release unknown or out of reach.
    """
    try:
        import cellxgene_census as package
    except ImportError:
        raise UserError(
            "corpus.source: census needs a package; install it with pip install cellxgene-census"
        ) from None
    try:
        description = package.get_census_version_description(name)
        with package.open_soma(census_version=name) as census:
            table = census["census_info"]["datasets"].read().concat().to_pylist()
            contents = {
                organism.replace("_", " ").capitalize(): contents_of(experiment)
                for organism, experiment in census["census_data"].items()
            }
    except (ValueError, KeyError) as error:
        raise UserError(
            f"corpus.census_version: {name!r} cannot be opened ({one_line(error)}); give the name "
            "of a release, e.g. 2024-07-01"
        ) from error
    except Exception as error:  # the storage layer has exceptions of its own
        raise UserError(
            f"corpus.census_version: {name}: {type(error).__name__}: {one_line(error)}; check the "
            "network and run again"
        ) from error
    base = https(str(description["h5ads"]["uri"]), str(description["h5ads"].get("s3_region") or ""))
    versions, left_out = [], {}
    for entry in sorted(table, key=lambda entry: str(entry["dataset_id"])):
        dataset_id = check_identifier(entry["dataset_id"])
        organisms = [name for name, datasets in contents.items() if dataset_id in datasets]
        assays = [assay for name in organisms for assay in contents[name][dataset_id]]
        cells = as_count(entry["dataset_total_cell_count"])
        if not organisms or not cells:
            left_out[dataset_id] = "no cell of it is in the Census"
            continue
        versions.append(
            Version(
                dataset_id=dataset_id,
                dataset_version_id=check_identifier(entry["dataset_version_id"]),
                collection_id=check_identifier(entry["collection_id"]),
                title=one_line(entry["dataset_title"]),
                doi=one_line(entry["collection_doi"] or ""),
                organisms=tuple(organisms),
                assays=tuple(sorted(set(assays))),
                cells=cells,
                bytes=UNKNOWN_SIZE,
                url=base + quote(str(entry["dataset_h5ad_path"])),
            )
        )
    for dataset_id, reason in left_out.items():
        log(f"left out: dataset {dataset_id}: {reason}")
    return Listing(versions, left_out)


def contents_of(experiment: Any) -> dict[str, list[str]]:
    """Assays of each dataset that has cells in an experiment; one pass over two columns."""
    found: set[tuple[str, str]] = set()
    for table in experiment.obs.read(column_names=["dataset_id", "assay"]):
        # as plain strings: batches have dictionaries of their own, which cannot be grouped
        plain = pa.table({name: table[name].cast(pa.string()) for name in ("dataset_id", "assay")})
        pairs = plain.group_by(plain.column_names).aggregate([])
        found.update((row["dataset_id"], row["assay"]) for row in pairs.to_pylist())
    contents: dict[str, list[str]] = {}
    for dataset_id, assay in sorted(found):
        contents.setdefault(dataset_id, []).append(one_line(assay))
    return contents


def https(uri: str, region: str) -> str:
    """The https address of a folder in a public bucket, e.g. ``s3://bucket/cell-census/``."""
    parsed = urlparse(uri)
    if parsed.scheme != "s3" or not parsed.netloc or not region:
        raise UserError(
            f"{one_line(uri)}: expected a public S3 bucket as the place of the Census files; "
            "take corpus.source: cellxgene instead"
        )
    host = f"{parsed.netloc}.s3.{region}.amazonaws.com"
    return f"https://{host}{parsed.path.rstrip('/')}/"
