"""Requests to a real server that misbehaves, and addresses that are refused."""

import dataclasses
import threading
import time
from contextlib import suppress
from email.utils import formatdate
from functools import partial

import pytest

from scsigmoid.corpus import web as module
from scsigmoid.corpus.downloads import download
from scsigmoid.corpus.web import check_address, retry_after
from scsigmoid.errors import UserError

PATH = "/file.h5ad"
CONTENT = b"x" * 1000


class Impatient(threading.Event):
    """Records pauses instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.pauses.append(timeout)
        return False


def test_addresses():
    hosts = ["localhost", "example.com", "::1"]
    for url in ("https://example.com/a%20b?c", "http://localhost:1/a", "http://[::1]:8/"):
        assert check_address(url, hosts) == url
    assert check_address("HTTPS://Example.COM/é", hosts) == "https://example.com/%C3%A9"
    for url, message in [
        ("https://example.org/a.h5ad", "host 'example.org' is not allowed"),
        ("https://example.com.example.org/", "is not allowed"),
        ("http://example.com/a.h5ad", "expected an https address"),
        ("file:///etc/passwd", "not a web address"),
        ("example.com", "expected an https address"),
        ("http://[::1", "not a web address"),
        ("https://example.com:99999/", "not a web address"),
        ("https://example.com/" + "a" * 10_000, "not a web address"),
        ("https://example.com/\r\nHost: x", "not a web address"),
        # the standard library takes these for example.com, the client for example.org
        ("https://example.org\\@example.com/a", "not a web address"),
        ("https://example.org:1\\@example.com/a", "not a web address"),
        ("https://example.org@example.com/a", "not a web address"),
        ("https://:@example.com/a", "not a web address"),
    ]:
        with pytest.raises(UserError, match=message) as caught:
            check_address(url, hosts)
        assert len(str(caught.value)) < 400
        assert str(caught.value).isprintable()


def test_redirects(server, web):
    for where, message in [
        ("https://example.org/a.h5ad", r"example\.org.* is not allowed"),
        ("http://[::1", "not a web address"),
        ("//127.0.0.1\\@localhost/", "not a web address"),
        ("file:///etc/passwd", "not a web address"),
    ]:
        server.script[PATH] = [f"redirect {where}"]
        with pytest.raises(UserError, match=message):
            web.json(server.address + PATH)
    server.script[PATH] = [f"redirect {PATH}"] * 99
    with pytest.raises(UserError, match="redirected more than 5 times"):
        web.json(server.address + PATH)


@pytest.mark.parametrize("status", [302, 404])
def test_bodies_of_redirects_and_errors_are_not_read(status, server, web):
    sent = []

    def endless(handler) -> None:
        handler.send_response(status)
        handler.send_header("Location", "/curation/v1/datasets")
        handler.end_headers()
        with suppress(OSError):
            while len(sent) < 10_000:
                handler.wfile.write(bytes(1 << 16))
                sent.append(1)

    server.answers["/datasets"] = [1]
    server.script[PATH] = [endless]
    if status == 302:
        assert web.json(server.address + PATH) == [1]
    else:
        with pytest.raises(UserError, match="not found"):
            web.json(server.address + PATH)
    assert len(sent) < 1000


@pytest.mark.parametrize(("kind", "chunked"), [("json", True), ("file", False)])
def test_slow_answers(kind, chunked, server, web, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "SLOWEST_ANSWER", 0.3)
    monkeypatch.setattr("scsigmoid.corpus.downloads.SLOWEST_ADVANCE", 0.3)
    web = dataclasses.replace(web, settings=dataclasses.replace(web.settings, attempts=1))

    def slow(handler) -> None:
        handler.send_response(200)
        length = ("Transfer-Encoding", "chunked") if chunked else ("Content-Length", "1000000")
        handler.send_header(*length)
        handler.end_headers()
        with suppress(OSError):
            for _ in range(600):
                handler.wfile.write(b"1\r\n \r\n" if chunked else b" ")
                server.released.wait(0.05)

    server.script[PATH] = [slow]
    begun = time.monotonic()
    ask, message = web.json, r"came within 0.3 s \(1 attempts\)"
    if kind == "file":
        ask = partial(download, web, destination=tmp_path / "a", size=1_000_000)
    with pytest.raises(UserError, match=message):
        ask(url=server.address + PATH)
    assert time.monotonic() - begun < 10


def test_pauses_between_attempts(server, web):
    settings = dataclasses.replace(web.settings, longest_pause=9)
    patient = dataclasses.replace(web, settings=settings, stopping=Impatient())
    server.files[PATH] = CONTENT
    server.script[PATH] = ["503", "429 7", "503", "500", "429 3600"]
    assert patient.size(server.address + PATH) == 1000
    assert patient.stopping.pauses == [1, 7, 4, 8, 9]
    server.script[PATH] = ["403"] * 99  # as a firewall says to clients that it suspects
    with pytest.raises(UserError, match=r"HTTP 403 \(6 attempts\); check the network"):
        patient.size(server.address + PATH)


def test_retry_after():
    for odd in ("", "soon", "²", "-5", "9" * 5000, "\x00"):
        assert retry_after(odd) is None
    assert retry_after("12") == 12
    assert 50 < retry_after(formatdate(time.time() + 60, usegmt=True)) <= 60
    assert retry_after("Thu, 01 Jan 1970 00:00:00 GMT") == 0


def test_json(server, web, monkeypatch):
    url = server.api + "/datasets"
    server.answers["/datasets"] = {"a": [1]}
    server.script["/curation/v1/datasets"] = ["503", "drop"]
    assert web.json(url) == {"a": [1]}
    server.script["/curation/v1/none"] = ["404", "410"]
    for reason in ("not found", "withdrawn"):
        with pytest.raises(UserError, match=f"{reason}; name its id in corpus.leave_out"):
            web.json(server.api + "/none")
    for nonsense in (b"{", b"\xff\xfe", b"[" * 100_000, b"9" * 5000):
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
    server.script[PATH] = ["no head"]
    assert web.size(server.address + PATH) is None


def test_one_failure_ends_the_others(web):
    def work(item: int) -> int:
        if item == 0:
            raise UserError("no")
        while True:
            web.check_stopped()
            time.sleep(0.01)

    with pytest.raises(UserError, match="no"):
        web.each(work, range(3), label="work")
