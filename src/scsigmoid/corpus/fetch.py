"""Provide the files of the manifest in the folders that tokenization reads."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from scsigmoid.config.local_files import fingerprint
from scsigmoid.config.schema import Config, Corpus
from scsigmoid.corpus import embedded
from scsigmoid.corpus.cell_types import cell_types, check_enough, choose_label
from scsigmoid.corpus.downloads import Downloads
from scsigmoid.corpus.h5ad import open_cells
from scsigmoid.corpus.h5ad_writer import copy_cells
from scsigmoid.corpus.held_out import cells_of
from scsigmoid.corpus.matrix_reader import NoCountsError
from scsigmoid.corpus.metadata import (
    FILES,
    ManifestRow,
    Metadata,
    check_skipped,
    one_line,
    read_manifest,
    read_metadata,
    read_part,
    read_row,
    write_manifest,
)
from scsigmoid.corpus.tenx import convert_tenx, is_tenx
from scsigmoid.errors import UserError
from scsigmoid.files import atomic_folder, atomic_path, check_folder, sha256, write_json
from scsigmoid.progress import log


def fetch_part(
    manifest: str | Path,
    part: int,
    config: Config,
    downloads_folder: str | Path,
    output_folder: str | Path,
) -> None:
    """Make, link or download the training files of one part, as ``<file>.h5ad``.

    ``files.csv`` in the same folder has the part's manifest rows with cells, bytes and SHA-256.
    Downloads without raw counts are skipped. Their rows have the role ``skipped``.

    Raises:
        UserError: if a file cannot be downloaded or read, or too many have no raw counts. The
            other files are downloaded nevertheless.
    """
    if not 0 <= part < config.corpus.parts:
        raise UserError(f"part {part}: expected a number from 0 to {config.corpus.parts - 1}")
    check_folder(Path(output_folder), FILES)
    training = [row for row in read_manifest(manifest) if row.role == "training"]
    rows = [row for row in training if row.part == str(part)]
    downloads = Downloads(downloads_folder, config.corpus.download)
    digests = download_all(rows, downloads)
    with atomic_folder(output_folder, FILES) as folder, advised(rows, config.corpus):
        completed = []
        for row in rows:
            path = folder / f"{row.file}.h5ad"
            try:
                provide(row, config, downloads, path)
                completed.append(complete_row(row, path, digests.get(row.file, "")))
            except NoCountsError as error:
                if row.source != "cellxgene":
                    raise
                log(f"skipped: {error}")
                reason = one_line(str(error).partition(": ")[2])  # without the path
                skipped = replace(row, role="skipped", reason=reason, sha256=digests[row.file])
                completed.append(skipped)
                path.unlink()
        check_skipped(completed, training)
        write_manifest(folder / FILES, completed)


def download_all(rows: Sequence[ManifestRow], downloads: Downloads) -> dict[str, str]:
    """Download the files of remote rows, and return their SHA-256 by name in the manifest.

    If files cannot be downloaded, raise the first error after trying all files.
    """
    remote = [row for row in rows if row.source == "cellxgene"]

    def attempt(row: ManifestRow) -> str | UserError:
        try:
            return downloads.obtain(row)
        except UserError as error:
            log(str(error))
            return error

    results = downloads.web.each(attempt, remote, unit="files")
    failed = [result for result in results if isinstance(result, UserError)]
    if failed:
        more = f" ({len(failed) - 1} more files failed: see the log)" if len(failed) > 1 else ""
        raise UserError(f"{failed[0]}{more}")
    return {row.file: str(digest) for row, digest in zip(remote, results, strict=True)}


@contextmanager
def advised(rows: Iterable[ManifestRow], corpus: Corpus) -> Iterator[None]:
    """Add how to continue to an error about a remote file, which the user cannot correct."""
    try:
        yield
    except UserError as error:
        name = str(error).partition(": ")[0]  # its address, or the path of its download
        for row in rows:
            if row.source == "cellxgene" and row.dataset_version_id in name:
                remedy = f"name {row.dataset_version_id} in corpus.leave_out"
                if row.role == "evaluation":
                    remedy = f"set datasets.{row.dataset}.id to another dataset"
                    remedy += " and remove corpus.manifest" if corpus.manifest else ""
                raise UserError(
                    f"{error}; to continue without this file of CELLxGENE, {remedy}"
                ) from error
        raise


@contextmanager
def raw_files(
    part_folder: str | Path, corpus: Corpus, downloads_folder: str | Path, *, last: bool
) -> Iterator[None]:
    """Download deleted training files of a part again, so that the block can read all files.

    If ``last``, no later job reads the downloads of the part, so they are deleted after the block,
    unless ``corpus.download.keep_files`` is true.
    """
    downloads = Downloads(downloads_folder, corpus.download)
    rows = [row for row in read_part(part_folder) if row.source == "cellxgene"]
    links = {row.file: Path(part_folder, f"{row.file}.h5ad") for row in rows}
    missing = [row for row in rows if row.role == "training" and not links[row.file].exists()]
    download_all(missing, downloads)
    for row in missing:
        links[row.file].unlink(missing_ok=True)
        links[row.file].symlink_to(downloads.path(row))
    with advised(rows, corpus):
        yield
    if last and not corpus.download.keep_files:
        for row in rows:
            downloads.path(row).unlink(missing_ok=True)


def fetch_evaluation(
    row_file: str | Path,
    config: Config,
    downloads_folder: str | Path,
    output_h5ad: str | Path,
    output_json: str | Path,
    needed: Mapping[str, int],
) -> None:
    """Make, link, copy or download the cells of an evaluation dataset, and write its metadata.

    ``row_file`` is a manifest with one row. ``needed`` contains keyword arguments for
    :func:`~.cell_types.check_enough`.
    """
    row = read_row(row_file)
    dataset = config.datasets[row.dataset]
    # Do not replace files that are not an earlier output.
    if Path(output_json).exists():
        read_metadata(output_json)  # raises an error for another JSON file
    elif Path(output_h5ad).exists():
        raise UserError(f"{output_h5ad}: exists, but {output_json} does not; name a new file")
    downloads = Downloads(downloads_folder, config.corpus.download)
    digests = download_all([row], downloads)
    with atomic_path(output_h5ad) as path, advised([row], config.corpus):
        provide(row, config, downloads, path)
        cells = open_cells(path, title=row.location)
        label = choose_label(cells, row.dataset, dataset)
        check_enough(cells.title, cell_types(cells, label, dataset.types), **needed)
        metadata = Metadata(
            dataset=row.dataset,
            file=row.file,
            label=label,
            types=dataset.types,
            title=row.title,
            cells=cells.count_nonempty(),
            genes=len(cells.genes),
            sha256=digests.get(row.file) or sha256(path),
            location=row.location,
        )
    write_json(output_json, asdict(metadata))


def provide(row: ManifestRow, config: Config, downloads: Downloads, path: Path) -> None:
    """Write embedded cells to ``path``, link a download, or link, convert or copy a local file.

    Raise an error if a local file changed since the manifest was made.
    """
    path.unlink(missing_ok=True)  # a link cannot replace a file
    if row.source == "cellxgene":
        path.symlink_to(downloads.path(row))
    elif row.source == "embedded":
        embedded.write_embedded(row.location, config.corpus.embedded, config.seed, path)
    else:
        local = Path(row.location)
        if not local.exists():
            raise UserError(f"{local}: no such file; restore it or make the manifest again")
        if fingerprint(local) != (row.sha256, int(row.bytes or 0)):
            raise UserError(f"{local}: changed since the manifest was made; make it again")
        # Later stages read all cells of an evaluation dataset, with the default layer and gene ids.
        if row.role == "evaluation" and (row.held_out != "all" or row.layer or row.genes):
            copy_cells(cells_of(row, local), local, path, row.title)
        elif is_tenx(local):
            convert_tenx(local, path)
        else:
            path.symlink_to(local)


def complete_row(row: ManifestRow, path: Path, digest: str) -> ManifestRow:
    """Return a row with the number of cells with counts, and the size and SHA-256 of its file.

    The row's ``reason`` states how many cells and features are left out or merged. ``digest`` is
    the SHA-256 of the file, empty if unknown.
    """
    cells = cells_of(row, path, title=row.location)
    n_nonempty = cells.count_nonempty()
    if not n_nonempty:
        raise NoCountsError(f"{cells.title}: no raw counts, all are zero; leave the file out")
    removed = {**cells.removed, "cells without counts": cells.n_cells - n_nonempty}
    return replace(
        row,
        cells=str(n_nonempty),
        reason=", ".join(f"{count} {name}" for name, count in removed.items() if count),
        bytes=str(path.stat().st_size),
        sha256=digest or sha256(path),
    )
