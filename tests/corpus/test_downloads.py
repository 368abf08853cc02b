"""Downloads are complete and correct, resumed after interruptions, and not repeated."""

import dataclasses
import hashlib
import io
import os
from concurrent.futures import ThreadPoolExecutor

import h5py
import pytest
from loopback import uuid

from scsigmoid.corpus import web as web_module
from scsigmoid.corpus.downloads import Downloads, download
from scsigmoid.corpus.metadata import ManifestRow
from scsigmoid.errors import UserError
from scsigmoid.files import sha256

with io.BytesIO() as buffer:
    with h5py.File(buffer, "w") as hdf5:
        hdf5["values"] = [1] * 12_500
    CONTENT = buffer.getvalue()
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def path(server) -> str:
    return server.add(1, CONTENT)


@pytest.fixture
def row(server, path) -> ManifestRow:
    ids = {"location": server.address + path, "dataset_version_id": uuid(1001)}
    size = str(len(CONTENT))
    return ManifestRow(file="a", role="training", source="cellxgene", bytes=size, **ids)


@pytest.fixture
def downloads(corpus, tmp_path) -> Downloads:
    return Downloads(tmp_path / "downloads", corpus.download)


def test_changed_files(downloads, row, server, path):
    file = downloads.folder / f"{uuid(1001)}.h5ad"
    downloads.folder.mkdir()
    file.write_bytes(b"precious")  # not a download, although it has the name of one
    with pytest.raises(UserError, match="not the file that the manifest describes; move it"):
        downloads.obtain(row)
    assert file.read_bytes() == b"precious"
    file.unlink()
    with pytest.raises(UserError, match="SHA-256 is not the one in the manifest"):
        downloads.obtain(dataclasses.replace(row, sha256="0" * 64))
    assert not file.exists()
    assert downloads.obtain(dataclasses.replace(row, sha256=DIGEST)) == DIGEST
    file.write_bytes(CONTENT[:-1] + b"x")  # damaged on the disk
    assert downloads.obtain(row) == DIGEST
    assert file.read_bytes() == CONTENT
    file.unlink()
    server.files[path] = CONTENT[:-1] + b"x"  # another file at the source
    with pytest.raises(UserError, match=r"SHA-256 is not .*delete .*\.sha256"):
        downloads.obtain(row)
    assert not file.exists()
    file.with_suffix(".sha256").unlink()
    assert downloads.obtain(row) != DIGEST
    # A damaged record was a traceback, or deleted the file.
    server.files.clear()
    for record in (b"", b"\xff", file.with_suffix(".sha256").read_bytes()[:20]):
        file.with_suffix(".sha256").write_bytes(record)
        assert downloads.obtain(row) == sha256(file)


def test_a_file_is_downloaded_and_hashed_once(downloads, row, server, path, monkeypatch):
    """A file is hashed again after it was written, even with the same bytes, or replaced."""
    hashed = []
    monkeypatch.setattr(
        "scsigmoid.corpus.downloads.sha256", lambda path: hashed.append(path) or sha256(path)
    )
    file = downloads.path(row)
    for _ in range(3):
        assert downloads.obtain(row) == DIGEST
    assert (len(hashed), len(server.ranges(path))) == (1, 1)
    os.utime(file, ns=(0, file.stat().st_mtime_ns + 1))
    assert downloads.obtain(row) == downloads.obtain(row) == DIGEST
    assert len(hashed) == 2
    state = file.stat()
    file.rename(file.with_suffix(".old"))
    file.write_bytes(CONTENT[:-1] + b"x")  # the same size and time, another inode
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    downloads.obtain(row)
    assert file.read_bytes() == CONTENT


def test_files_that_are_not_hdf5_are_refused(downloads, row, server, path):
    server.files[path] = b"<html>please log in</html>"
    with pytest.raises(UserError, match=rf"{path}: the server did not send an h5ad file"):
        downloads.obtain(dataclasses.replace(row, bytes=""))
    assert not list(downloads.folder.glob("0*"))


def test_concurrent_downloads(downloads, row, server, path, corpus):
    """Jobs that want the same file wait for each other."""
    server.script[path] = ["cut", "cut"]
    others = [Downloads(downloads.folder, corpus.download) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        digests = list(pool.map(lambda other: other.obtain(row), others))
    assert digests == [DIGEST] * 3
    assert len(server.ranges(path)) == 3


PATH = "/file.bin"
BYTES = bytes(range(256)) * 4000


@pytest.fixture
def fetch(server, web, tmp_path):
    """Download a file of any format."""
    server.files[PATH] = BYTES

    def fetch(web=web, **wanted):
        return download(web, server.address + PATH, tmp_path / "a.h5ad", **wanted)

    return fetch


def test_interrupted_downloads(fetch, server, tmp_path):
    server.script[PATH] = ["503", "drop", "cut", "stall", f"redirect {PATH}?again"]
    server.files[f"{PATH}?again"] = BYTES
    assert fetch() == hashlib.sha256(BYTES).hexdigest()
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [BYTES]


def test_progress_resets_the_count_of_attempts(fetch, server, web, monkeypatch):
    monkeypatch.setattr(web_module, "ADVANCE", 1 << 16)
    patient = dataclasses.replace(web, settings=web.settings.model_copy(update={"attempts": 3}))
    server.script[PATH] = ["cut", "cut", "503", "cut"]
    fetch(web=patient)
    # Bytes that were received before are not progress.
    server.script[PATH] = ["cut"] * 2 + ["416", "cut"] * 9
    with pytest.raises(UserError, match=r"\(3 attempts\)"):
        fetch(web=patient)


@pytest.mark.parametrize(
    ("fault", "size", "message"),
    [
        ("no length", None, "does not state the size of the file"),
        ("no length", 1000, "of 1000 bytes"),
        ("longer", len(BYTES), f"{len(BYTES) + 1} bytes, but {len(BYTES)} in the manifest"),
    ],
)
def test_missing_and_wrong_lengths(fault, size, message, fetch, server, tmp_path):
    server.script[PATH] = [fault] * 9
    with pytest.raises(UserError, match=message):
        fetch(size=size)
    assert not list(tmp_path.iterdir())
    server.script[PATH] = ["no length"]
    fetch(size=len(BYTES))
    assert (tmp_path / "a.h5ad").read_bytes() == BYTES
