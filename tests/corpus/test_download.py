"""Downloads from a real server that misbehaves on command: the right bytes, or one clear error."""

import dataclasses
import hashlib
import threading
import time
from email.utils import formatdate

import pytest

from scsigmoid.corpus import web as module
from scsigmoid.corpus.download import download
from scsigmoid.corpus.web import BLOCK, asked_pause
from scsigmoid.errors import UserError

CONTENT = bytes(range(256)) * 4000
PATH = "/file.h5ad"


@pytest.fixture
def fetch(server, web, tmp_path):
    """Download the file."""
    server.files[PATH] = CONTENT

    def fetch(url=None, web=web, **wanted):
        return download(
            web,
            url or server.address + PATH,
            tmp_path / "a.h5ad",
            partial=tmp_path / "a.partial",
            **wanted,
        )

    return fetch


class Impatient(threading.Event):
    """Notes pauses instead of making them."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.pauses.append(timeout)
        return False


@pytest.mark.parametrize(
    "script",
    [
        [],
        ["503", "500"],
        ["429 3", "408"],
        ["drop"],
        ["cut"],
        ["cut", "cut", "cut"],
        ["cut", "ignores range"],
        ["cut", "cut", "503"],
        ["stall"],
        [f"redirect {PATH}?again", "cut"],
    ],
)
@pytest.mark.parametrize("size", [None, len(CONTENT)])
def test_right_bytes_in_the_end(script, size, fetch, server, tmp_path):
    server.script[PATH] = list(script)
    server.files[f"{PATH}?again"] = CONTENT
    assert fetch(size=size) == hashlib.sha256(CONTENT).hexdigest()
    assert (tmp_path / "a.h5ad").read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["a.h5ad"]


def test_goes_on_where_it_stopped(fetch, server, tmp_path):
    server.script[PATH] = ["cut"]
    fetch()
    received = len(CONTENT) // 2 // BLOCK * BLOCK
    assert server.asked(PATH) == ["", f"bytes={received}-"]
    # and so does another process, whether or not the size is known
    (tmp_path / "a.partial").write_bytes(CONTENT[:1000])
    fetch()
    assert server.asked(PATH)[-1] == "bytes=1000-"
    assert (tmp_path / "a.h5ad").read_bytes() == CONTENT
    # what was complete already is not asked for again
    (tmp_path / "a.partial").write_bytes(CONTENT)
    fetch(size=len(CONTENT))
    assert len(server.asked(PATH)) == 3


def test_halves_of_two_files_are_never_joined(fetch, server, tmp_path):
    """The file changes at its source between two attempts, and keeps its size."""
    other = CONTENT[::-1]
    server.script[PATH] = ["cut", "410"]
    with pytest.raises(UserError, match="withdrawn"):
        fetch(size=len(CONTENT))
    assert (tmp_path / "a.partial").exists()
    server.files[PATH] = other
    assert fetch(size=len(CONTENT)) == hashlib.sha256(other).hexdigest()


def test_progress_starts_the_count_of_attempts_anew(fetch, server, web, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "ADVANCE", BLOCK)
    patient = dataclasses.replace(web, settings=dataclasses.replace(web.settings, attempts=3))
    server.script[PATH] = ["cut", "cut", "503", "cut"]
    fetch(web=patient)
    assert (tmp_path / "a.h5ad").read_bytes() == CONTENT
    # bytes that were lost and come again are no progress
    server.script[PATH] = ["cut"] * 2 + ["416", "cut"] * 9
    with pytest.raises(UserError, match=r"\(3 attempts\)"):
        fetch(web=patient)


def test_pauses_double_and_retry_after_is_honoured(fetch, server, web):
    settings = dataclasses.replace(web.settings, longest_pause=9)
    patient = dataclasses.replace(web, settings=settings, stopping=Impatient())
    server.script[PATH] = ["503", "429 7", "503", "500", "429 3600"]
    fetch(web=patient)
    assert patient.stopping.pauses == [1, 7, 4, 8, 9]


def test_retry_after_as_a_date():
    assert asked_pause("") is None
    assert asked_pause("soon") is None
    assert asked_pause("12") == 12
    in_a_minute = formatdate(time.time() + 60, usegmt=True)
    assert 50 < asked_pause(in_a_minute) <= 60
    assert asked_pause("Thu, 01 Jan 1970 00:00:00 GMT") == 0


def test_gives_up(fetch, server, tmp_path):
    server.script[PATH] = ["503"] * 99
    with pytest.raises(UserError, match=r"HTTP 503 \(6 attempts\); check the network"):
        fetch()
    assert len(server.requests) == 6
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("how", ["longer", "shorter"])
def test_wrong_length(how, fetch, server, tmp_path):
    server.script[PATH] = [how]
    sent = len(CONTENT) + (1 if how == "longer" else -1)
    with pytest.raises(UserError, match=rf"{sent} bytes, the manifest says {len(CONTENT)}"):
        fetch(size=len(CONTENT))
    assert not list(tmp_path.iterdir())


def test_no_length(fetch, server, tmp_path):
    server.script[PATH] = ["no length"]
    with pytest.raises(UserError, match="does not say how large the file is"):
        fetch()
    server.script[PATH] = ["no length"]
    fetch(size=len(CONTENT))
    assert (tmp_path / "a.h5ad").read_bytes() == CONTENT
    # more than is wanted is not read to its end
    server.files[PATH] = CONTENT * 20
    server.script[PATH] = ["no length"] * 9
    with pytest.raises(UserError, match="it sent more than 1000 bytes"):
        fetch(size=1000)


def test_flipped_bytes(fetch, server, tmp_path):
    digest = hashlib.sha256(CONTENT).hexdigest()
    server.script[PATH] = ["flipped"]
    with pytest.raises(UserError, match="its SHA-256 is not the one in the manifest"):
        fetch(size=len(CONTENT), digest=digest)
    assert [path.name for path in tmp_path.iterdir()] == []
    fetch(size=len(CONTENT), digest=digest)
    assert (tmp_path / "a.h5ad").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("status", "message"), [("404", "not found"), ("410", "withdrawn"), ("403", "may not be read")]
)
def test_gone(status, message, fetch, server):
    server.script[PATH] = [status]
    with pytest.raises(UserError, match=f"{message}; name its id in corpus.leave_out"):
        fetch()
    assert len(server.requests) == 1


def test_hosts(fetch, server, web):
    friendly = dataclasses.replace(web, hosts=["127.0.0.1", "example.com"])
    for url, message in [
        ("https://example.org/a.h5ad", "host 'example.org' is not allowed"),
        ("http://example.com/a.h5ad", "expected an https address"),
        ("file:///etc/passwd", "not a web address"),
        ("http://[", "not a web address"),
        ("https://example.com/" + "a" * 10_000, "not a web address"),
        ("https://example.com/\r\nHost: x", "not a web address"),
    ]:
        with pytest.raises(UserError, match=message) as caught:
            fetch(url, web=friendly)
        assert len(str(caught.value)) < 400
        assert str(caught.value).isprintable()
    server.script[PATH] = ["redirect https://example.org/a.h5ad"]
    with pytest.raises(UserError, match=r"example\.org.* is not allowed"):
        fetch()
    server.script[PATH] = [f"redirect {PATH}"] * 99
    with pytest.raises(UserError, match="redirected more than 5 times"):
        fetch()


def test_full_disk(fetch, server, monkeypatch, tmp_path):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("scsigmoid.corpus.download.note_validator", full)
    with pytest.raises(UserError, match=r"the disk is full; free some space"):
        fetch()


def test_json(server, web, monkeypatch):
    url = server.api + "/datasets"
    server.answers["/datasets"] = {"a": [1]}
    server.script["/curation/v1/datasets"] = ["503", "drop"]
    assert web.json(url) == {"a": [1]}
    with pytest.raises(UserError, match="not found"):
        web.json(server.api + "/none")
    for nonsense in (b"{", b"\xff\xfe", b"[" * 100_000):
        server.answers["/datasets"] = nonsense
        with pytest.raises(UserError, match="its answer is not JSON"):
            web.json(url)
    monkeypatch.setattr(module, "LARGEST_ANSWER", 1 << 20)
    server.answers["/datasets"] = b"[" + b" " * (1 << 21) + b"]"
    with pytest.raises(UserError, match=r"larger than 1 MiB; check corpus\.api"):
        web.json(url)


def test_size(server, web):
    server.files[PATH] = CONTENT
    assert web.size(server.address + PATH) == len(CONTENT)
    server.script[PATH] = ["no head", "503", "410"]
    assert web.size(server.address + PATH) is None
    with pytest.raises(UserError, match="withdrawn"):
        web.size(server.address + PATH)


def test_one_failure_ends_the_others(web):
    def work(item: int) -> int:
        if item == 0:
            raise UserError("no")
        while True:
            web.go_on()
            time.sleep(0.01)

    with pytest.raises(UserError, match="no"):
        web.each(work, range(3), label="work")
