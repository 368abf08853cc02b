"""Requests to a faulty server on loopback, and addresses that are refused."""

import dataclasses
import time
from contextlib import suppress

import pytest

from scsigmoid.corpus.web import check_address
from scsigmoid.errors import UserError

PATH = "/file.h5ad"
CONTENT = b"x" * 1000


def test_addresses():
    hosts = ["localhost", "example.com", "::1"]
    for url in ("https://example.com/a%20b?c", "http://localhost:1/a", "http://[::1]:8/"):
        check_address(url, hosts)
    for url, message in [
        ("https://example.com.example.org/", r"host 'example\.com\.example\.org' is not allowed"),
        ("http://example.com/a.h5ad", "expected an https address"),
        ("file:///etc/passwd", "is not allowed"),
        ("http://[::1", "is not allowed"),
        # To the standard library this host is example.com, to requests it is example.org.
        ("https://example.org\\@example.com/a", "is not allowed"),
    ]:
        with pytest.raises(UserError, match=message):
            check_address(url, hosts)


def test_redirects_to_other_hosts_are_refused(server, web):
    for where in ("https://example.org/a.h5ad", "//127.0.0.1\\@localhost/"):
        server.script[PATH] = [f"redirect {where}"]
        with pytest.raises(UserError, match="is not allowed; add it to corpus"):
            web.json(server.address + PATH)
    server.answers["/datasets"] = [1]
    server.script[PATH] = ["redirect /curation/v1/datasets"]
    assert web.json(server.address + PATH) == [1]


def test_pauses_between_attempts(server, web, monkeypatch):
    pauses = []
    monkeypatch.setattr(web.stopping, "wait", pauses.append)
    patient = dataclasses.replace(web, settings=dataclasses.replace(web.settings, longest_pause=9))
    server.files[PATH] = CONTENT
    server.script[PATH] = ["503", "429 7", "503", "500", "429 3600"]
    assert patient.size(server.address + PATH) == 1000
    assert pauses == [1, 7, 4, 8, 9]
    server.script[PATH] = ["403"] * 99  # as firewalls answer to clients that seem suspicious
    with pytest.raises(UserError, match=r"HTTP 403 \(6 attempts\); check the network"):
        patient.size(server.address + PATH)


@pytest.mark.parametrize("chunked", [True, False])
def test_a_server_that_sends_a_byte_at_a_time(chunked, server, web, monkeypatch):
    monkeypatch.setattr("scsigmoid.corpus.web.SLOWEST", 0.3)
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
    start = time.monotonic()
    with pytest.raises(UserError, match=r"less than 1 MiB arrived in 0.3 s \(1 attempts\)"):
        web.json(server.address + PATH)
    assert time.monotonic() - start < 10


def test_one_failure_ends_the_others(web):
    def work(item: int) -> int:
        if item == 0:
            raise UserError("no")
        while True:
            web.check_stopped()
            time.sleep(0.01)

    with pytest.raises(UserError, match="no"):
        web.each(work, range(3), label="work")
