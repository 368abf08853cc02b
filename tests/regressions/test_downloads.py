"""A resumed download is one file: never the start of one file and the rest of another."""

import dataclasses
import gzip
import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import h5py
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from loopback import HOSTS, Loopback, uuid
from small_disk import small_disk

from scsigmoid.config.check import load
from scsigmoid.corpus import web as web_module
from scsigmoid.corpus.downloads import Downloads, download
from scsigmoid.corpus.metadata import ManifestRow
from scsigmoid.corpus.web import Web
from scsigmoid.errors import UserError

PATH = "/file.bin"
OLD, NEW = (bytes([number]) * 10_000 for number in (1, 2))
HALF, SIZE = len(OLD) // 2, len(OLD)


@pytest.fixture
def web(server: Loopback) -> Web:
    """A client with three attempts and without pauses between them."""
    quick = {"hosts": HOSTS, "attempts": 3, "timeout": 1.5, "longest_pause": 0}
    return Web(load(overrides={"preset": "paper"}).corpus.download.model_copy(update=quick))


@pytest.fixture
def resume(server: Loopback, web: Web, tmp_path: Path) -> Callable[..., tuple[bytes, list[str]]]:
    """Download half of OLD in a first run. In a second run, the first answer has a fault.

    Return the downloaded bytes, and the ranges that the second run asked for.
    """

    def run(fault: Any, content: bytes, size: int | None = None) -> tuple[bytes, list[str]]:
        file, url = tmp_path / "a.h5ad", server.address + PATH
        server.files[PATH] = OLD
        server.script[PATH] = ["cut", "410"]
        with pytest.raises(UserError, match="withdrawn"):
            download(web, url, file, size)
        assert file.with_suffix(".partial").read_bytes() == OLD[:HALF]
        server.files[PATH] = content
        server.requests.clear()
        server.script[PATH] = [fault]
        digest = download(web, url, file, size)
        assert [path.name for path in tmp_path.iterdir()] == ["a.h5ad"]
        assert digest == hashlib.sha256(file.read_bytes()).hexdigest()
        return file.read_bytes(), server.ranges(PATH)

    return run


@pytest.mark.parametrize("encoding", ["gzip", "identity, gzip"])
@pytest.mark.parametrize("how", ["well", "no length"])
def test_a_file_that_is_compressed_without_being_asked(
    how: str, encoding: str, server: Loopback, web: Web, tmp_path: Path
) -> None:
    """The message said that the file has changed, or advised to check the network."""
    body, headers = gzip.compress(OLD), {"Content-Encoding": encoding}
    server.script[PATH] = [lambda handler: handler.body(body, headers, how=how)] * 9
    with pytest.raises(UserError, match="compresses it"):
        download(web, server.address + PATH, tmp_path / "a.h5ad", SIZE)
    assert len(server.requests) == 1
    assert not list(tmp_path.iterdir())
    server.script[PATH] = [lambda handler: handler.body(OLD, headers)]  # not compressed
    download(web, server.address + PATH, tmp_path / "a.h5ad", SIZE)
    assert (tmp_path / "a.h5ad").read_bytes() == OLD


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_compressed_file_of_unknown_or_compressed_size(
    is_listed: bool, server: Loopback, web: Web, tmp_path: Path
) -> None:
    """The message was that the server did not send an h5ad file, with the advice to run again."""
    body, headers = gzip.compress(OLD), {"Content-Encoding": "gzip"}
    path = server.add(1, OLD)
    row = ManifestRow(
        file="a", role="training", source="cellxgene", dataset_version_id=uuid(1001),
        location=server.address + path, bytes=str(len(body)) if is_listed else "",
    )  # fmt: skip
    server.script[path] = [lambda handler: handler.body(body, headers)] * 9
    downloads = Downloads(tmp_path / "downloads", web.settings)
    with pytest.raises(UserError, match=f"{path}: .* compresses it"):
        downloads.obtain(row)
    assert len(server.requests) == 1
    assert [file.name for file in downloads.folder.iterdir()] == [".locks"]


def test_an_uncompressed_h5ad_file_of_unknown_size_with_a_wrong_header(
    server: Loopback, web: Web, tmp_path: Path
) -> None:
    with h5py.File(tmp_path / "source.h5", "w") as file:
        file["values"] = [1]
    content = (tmp_path / "source.h5").read_bytes()
    server.script[PATH] = [lambda handler: handler.body(content, {"Content-Encoding": "gzip"})]
    download(web, server.address + PATH, tmp_path / "a.h5ad")
    assert (tmp_path / "a.h5ad").read_bytes() == content


@pytest.mark.parametrize("size", [None, SIZE])
def test_the_rest_of_the_same_file_is_appended(resume: Any, size: int | None) -> None:
    assert resume("well", OLD, size) == (OLD, [f"bytes={HALF}-"])


@pytest.mark.parametrize("size", [None, SIZE])
@pytest.mark.parametrize(
    "fault",
    [
        'tag "b"', "tag", 'tag W/"a"',
        "range", f"range bytes 0-{SIZE - 1}/{SIZE}", f"range bytes {HALF}-{SIZE}/{SIZE + 1}",
        f"range bytes {HALF}-{SIZE - 2}/{SIZE}", f"range bytes {HALF}-{SIZE - 1}/*",
        f"range bytes */{SIZE}", f"range {HALF}-{SIZE - 1}/{SIZE}",
        "shift", "multipart", "416",
    ],
)  # fmt: skip
def test_any_other_answer_starts_over(resume: Any, fault: str, size: int | None) -> None:
    for content in (NEW, OLD):
        # The ETag of the answer is the first one, unless the fault replaces it.
        assert resume(fault, content, size) == (content, [f"bytes={HALF}-", ""])


def test_a_server_that_repeats_its_tag_for_other_bytes(resume: Any, server: Loopback) -> None:
    server.tags[PATH] = '"a"'
    assert resume("well", NEW + NEW) == (NEW + NEW, [f"bytes={HALF}-", ""])  # another size


@pytest.mark.parametrize("tag", ['W/"a"', "", "a", '"a", "b"'])
def test_only_a_strong_tag_allows_resuming(resume: Any, server: Loopback, tag: str) -> None:
    server.tags[PATH] = tag
    assert resume("well", NEW) == (NEW, [""])


def test_the_whole_file_instead_of_the_rest(resume: Any) -> None:
    assert resume("ignores range", NEW) == (NEW, [f"bytes={HALF}-"])


def send_page(handler: Any) -> None:
    handler.body(b"<html>maintenance</html>", {"Content-Type": "text/html; charset=utf-8"})


def test_a_web_page_instead_of_the_rest(resume: Any) -> None:
    """The first half was deleted, and the file was said to have changed."""
    assert resume(send_page, OLD, SIZE) == (OLD, [f"bytes={HALF}-"] * 2)


def test_web_pages_instead_of_the_file(server: Loopback, web: Web, tmp_path: Path) -> None:
    server.script[PATH] = [send_page] * 4
    with pytest.raises(UserError, match=r"web page .*\(3 attempts\); check the network"):
        download(web, server.address + PATH, tmp_path / "a.h5ad", SIZE)
    assert web.size(server.address + PATH) is None
    headers = {"Content-Type": "text/html"}  # of a file of the right size
    server.script[PATH] = [lambda handler: handler.body(OLD, headers)]
    download(web, server.address + PATH, tmp_path / "a.h5ad", SIZE)
    assert (tmp_path / "a.h5ad").read_bytes() == OLD


@pytest.mark.parametrize("content", [b"mine", None])
def test_a_link_in_place_of_the_partial_file(
    content: bytes | None, server: Loopback, web: Web, tmp_path: Path
) -> None:
    """The file that the link leads to was overwritten."""
    server.files[PATH], mine = OLD, tmp_path / "mine"
    if content:
        mine.write_bytes(content)
    (tmp_path / "a.partial").symlink_to(mine)
    with pytest.raises(UserError, match=r"a\.partial: a link; delete it"):
        download(web, server.address + PATH, tmp_path / "a.h5ad", SIZE)
    assert (mine.read_bytes() if mine.exists() else None) == content
    assert (tmp_path / "a.partial").is_symlink()
    assert not (tmp_path / "a.h5ad").exists()


def test_a_download_to_a_full_disk_names_the_file(
    server: Loopback, web: Web, tmp_path: Path
) -> None:
    """The error did not name a file, so the command line blamed its log."""
    server.files[PATH], place = OLD, tmp_path / "downloads"
    place.mkdir()
    with small_disk(place, 64) as full:
        full.write_bytes(full.read_bytes()[:-HALF])
        with pytest.raises(OSError, match=r"No space left on device: '.*/a\.partial'"):
            download(web, server.address + PATH, place / "a.h5ad", SIZE)
        full.unlink()
        download(web, server.address + PATH, place / "a.h5ad", SIZE)
        assert (place / "a.h5ad").read_bytes() == OLD


@pytest.mark.parametrize("note", [b"", b'"a"', b'"a" 10000', b"\xff", b'"a"\r\nX: y" 10000\n'])
def test_a_damaged_record_of_the_tag(resume: Any, tmp_path: Path, server: Any, note: bytes) -> None:
    def damage(handler: Any) -> None:
        (tmp_path / "a.etag").write_bytes(note)
        handler.connection.close()

    # The record is damaged between the first and the second request of the second run.
    assert resume(damage, NEW) == (NEW, [f"bytes={HALF}-", ""])


def test_part_of_a_file_that_nobody_asked_for(server: Loopback, web: Web, tmp_path: Path) -> None:
    def partial(handler: Any) -> None:
        handler.send_response(206)
        handler.send_header("Content-Range", f"bytes 0-{HALF - 1}/{SIZE}")
        handler.send_header("Content-Length", str(HALF))
        handler.end_headers()
        handler.wfile.write(b"[" + b" " * (HALF - 2) + b"]")

    server.script[PATH] = [partial] * 9
    with pytest.raises(UserError, match="did not send"):
        download(web, server.address + PATH, tmp_path / "a.h5ad")
    assert not list(tmp_path.iterdir())
    with pytest.raises(UserError, match="206"):
        web.json(server.address + PATH)


def test_a_file_that_changes_at_its_source_does_not_delete_its_download(
    server: Loopback, web: Web, tmp_path: Path
) -> None:
    """The download was deleted, and its replacement refused after it was transferred."""
    with h5py.File(tmp_path / "source.h5", "w") as file:
        file["values"] = [1]
    content = (tmp_path / "source.h5").read_bytes()
    downloads, path = Downloads(tmp_path / "downloads", web.settings), server.add(1, content)
    row = ManifestRow(
        file="a", role="training", source="cellxgene", bytes=str(len(content)),
        location=server.address + path, dataset_version_id=uuid(1001),
    )  # fmt: skip
    downloads.obtain(row)
    server.files[path] = content + b"x"
    server.requests.clear()
    changed = dataclasses.replace(row, bytes=str(len(content) + 1))
    with pytest.raises(UserError, match=r"\.h5ad: .* changed at its source"):
        downloads.obtain(changed)
    assert downloads.path(row).read_bytes() == content
    assert not server.requests
    # A lock that was made from the new file allows to replace the download.
    digest = hashlib.sha256(server.files[path]).hexdigest()
    assert downloads.obtain(dataclasses.replace(changed, sha256=digest)) == digest


A, B = bytes(range(64)), bytes(range(64, 128))
# Faults of a server that otherwise sends the range that is asked for, whatever If-Range says.
FAULTS: list[dict[str, Any]] = [
    {}, {"status": 200}, {"status": 416}, {"status": 503}, {"tag": 'W/"x"'}, {"tag": ""},
    {"start": 0}, {"start": 16}, {"total": 65}, {"total": "*"}, {"total": 48, "longer": None},
    {"longer": 1}, {"longer": None},
]  # fmt: skip


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    answers=st.lists(
        # content, bytes until the connection breaks, and the fault
        st.tuples(st.sampled_from([A, B]), st.sampled_from([24, 40, 64]), st.sampled_from(FAULTS)),
        min_size=2,
        max_size=5,
    ),
    size=st.sampled_from([None, 64]),
)
@example(answers=[(A, 24, {}), (B, 64, {})], size=None)
@example(answers=[(A, 24, {"tag": ""}), (B, 64, {"tag": ""})], size=64)
@example(answers=[(A, 24, {}), (B, 24, {"status": 200, "tag": ""}), (A, 64, {})], size=64)
@example(answers=[(A, 24, {"tag": 'W/"x"'}), (B, 64, {"tag": 'W/"x"'})], size=64)
@example(answers=[(A, 24, {}), (A, 24, {"total": 48, "longer": None})], size=None)
@example(answers=[(A, 24, {}), (A, 40, {"start": 16})], size=64)
def test_any_order_of_answers_gives_one_of_the_files(
    answers: list[Any], size: int | None, server: Loopback, web: Web
) -> None:
    """The file changes between attempts. ETags are missing, weak or correct."""

    def make_answer(content: bytes, sent: int, fault: dict[str, Any]) -> Callable[[Any], None]:
        def answer(handler: Any) -> None:
            asked = handler.headers.get("Range", "").removeprefix("bytes=").rstrip("-")
            begin = fault.get("start", int(asked or 0))
            status = fault.get("status", 206 if asked else 200)
            body = content[begin:] if status == 206 else content
            handler.send_response(status)
            if tag := fault.get("tag", f'"{content[0]}"'):
                handler.send_header("ETag", tag)
            if status == 206:
                handler.send_header("Content-Range", f"bytes {begin}-63/{fault.get('total', 64)}")
            longer = fault.get("longer", 0)
            if longer is not None:
                handler.send_header("Content-Length", str(len(body) + longer))
            handler.end_headers()
            handler.wfile.write(body[:sent])

        return answer

    server.script[PATH] = [*(make_answer(*answer) for answer in answers), "410"]
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(web_module, "BLOCK", 8)
        path = Path(folder) / "a.h5ad"
        with suppress(UserError):
            download(web, server.address + PATH, path, size=size)
            assert path.read_bytes() in (A, B)
