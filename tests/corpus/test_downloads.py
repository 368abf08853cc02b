"""The folder of downloads: never a wrong file, and nothing that is right is downloaded again."""

import dataclasses
import hashlib
import io
import threading

import h5py
import pytest
from loopback import uuid

from scsigmoid.corpus.downloads import Downloads
from scsigmoid.corpus.rows import ManifestRow
from scsigmoid.errors import UserError


def hdf5(seed: int, size: int = 100_000) -> bytes:
    """A real HDF5 file."""
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        file["values"] = [seed] * (size // 8)
    return buffer.getvalue()


CONTENT = hdf5(1)
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def path(server) -> str:
    return server.add(1, CONTENT)


@pytest.fixture
def row(server, path) -> ManifestRow:
    return ManifestRow(
        file="a",
        role="training",
        source="cellxgene",
        location=server.address + path,
        bytes=str(len(CONTENT)),
        dataset_version_id=uuid(1001),
    )


@pytest.fixture
def downloads(web, tmp_path) -> Downloads:
    return Downloads(tmp_path / "downloads", web)


def test_downloaded_once_and_checked_ever_after(downloads, row, server, path):
    found, digest = downloads.obtain(row)
    assert (found.read_bytes(), digest) == (CONTENT, DIGEST)
    assert found == downloads.folder / f"{uuid(1001)}.h5ad"
    assert downloads.obtain(row) == (found, DIGEST)
    assert len(server.asked(path)) == 1
    # damaged on the disk: found out and downloaded again
    found.write_bytes(CONTENT[:-1] + b"x")
    assert downloads.obtain(row) == (found, DIGEST)
    assert found.read_bytes() == CONTENT
    # moved away, and another file at the source meanwhile
    found.unlink()
    server.files[path] = CONTENT[:-1] + b"x"
    with pytest.raises(
        UserError, match=r"SHA-256 is not the one in .*sha256 \(delete it to accept"
    ):
        downloads.obtain(row)
    assert not found.exists()
    found.with_suffix(".sha256").unlink()
    assert downloads.obtain(row)[1] != DIGEST


def test_the_manifests_hash_decides(downloads, row, server, path):
    with pytest.raises(UserError, match="SHA-256 is not the one in the manifest"):
        downloads.obtain(dataclasses.replace(row, sha256="0" * 64))
    assert not list(downloads.folder.glob("0*"))
    assert downloads.obtain(dataclasses.replace(row, sha256=DIGEST))[1] == DIGEST


@pytest.mark.parametrize(
    ("content", "reason"),
    [(CONTENT[:-5000], "truncated"), (b"<html>please log in</html>", "not an h5ad file")],
)
def test_what_is_no_whole_file_is_never_kept(content, reason, downloads, row, server, path):
    """The server itself has a broken file, and nobody knows its size."""
    server.files[path] = content
    with pytest.raises(UserError, match=rf"{path}: {reason}, as the server sends it"):
        downloads.obtain(dataclasses.replace(row, bytes=""))
    assert not list(downloads.folder.glob("0*"))


@pytest.mark.parametrize("script", [["cut", "503"], ["stall"], ["drop", "ignores range"]])
def test_faults_on_the_way(script, downloads, row, server, path):
    server.script[path] = script
    assert downloads.obtain(row)[1] == DIGEST


def test_ids_that_are_paths_are_refused(downloads, row):
    with pytest.raises(UserError, match=r"manifest row a: '\.\./\.\./x' is not a CELLxGENE id"):
        downloads.obtain(dataclasses.replace(row, dataset_version_id="../../x"))


def test_a_census_file_does_not_stand_for_discovers(downloads, row):
    census = dataclasses.replace(row, source="census")
    assert downloads.path(census) != downloads.path(row)


def test_space(downloads, row):
    downloads.check_space([row])
    huge = dataclasses.replace(row, bytes=str(10**15))
    with pytest.raises(
        UserError, match=r"downloads: 1000000\.0 GB are to be downloaded and .* free"
    ):
        downloads.check_space([row, huge])


def test_two_at_once_do_not_mix(downloads, row, server, path, web):
    """Jobs that want the same file wait for each other."""
    server.script[path] = ["cut", "cut"]
    results: list[tuple[object, str]] = []
    others = [Downloads(downloads.folder, web) for _ in range(3)]
    threads = [
        threading.Thread(target=lambda other=other: results.append(other.obtain(row)))
        for other in others
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [digest for _, digest in results] == [DIGEST] * 3
    assert len(server.asked(path)) == 3
