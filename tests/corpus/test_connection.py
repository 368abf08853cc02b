"""Addresses that may be asked, and servers that would keep a client for ever."""

import dataclasses
import time
from contextlib import suppress
from functools import partial

import pytest

from scsigmoid.corpus.connection import Connection
from scsigmoid.corpus.downloads import download
from scsigmoid.errors import UserError

PATH = "/file.h5ad"


def test_addresses(web):
    friendly = dataclasses.replace(web, hosts=["localhost", "example.com", "::1"])
    for url in ("https://example.com/a%20b?c", "http://localhost:1/a", "http://[::1]:8/"):
        assert friendly.check_address(url) == url
    assert friendly.check_address("HTTPS://Example.COM/é") == "https://example.com/%C3%A9"
    for url, message in [
        ("https://example.org/a.h5ad", "host 'example.org' is not allowed"),
        ("https://example.com.example.org/", "is not allowed"),
        ("http://example.com/a.h5ad", "expected an https address"),
        ("file:///etc/passwd", "not a web address"),
        ("example.com", "expected an https address"),
        ("http://[", "not a web address"),
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
            friendly.check_address(url)
        assert len(str(caught.value)) < 400
        assert str(caught.value).isprintable()


def test_the_host_is_checked_again_where_the_connection_is_made(server):
    """As if the check of the address had been deceived."""
    connection = Connection(["localhost"])
    with pytest.raises(UserError, match=r"host '127\.0\.0\.1' is not allowed"):
        connection.ask("GET", server.address + PATH, {}, 1)
    assert server.requests == []


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
def test_bodies_that_nobody_asked_for_are_not_read(status, server, web):
    """An endless one, of a redirect or an error."""
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


@pytest.mark.parametrize("stage", ["headers", "json", "file"])
def test_a_byte_now_and_then_is_not_enough(stage, server, web, monkeypatch, tmp_path):
    monkeypatch.setattr("scsigmoid.corpus.web.SLOWEST_ANSWER", 0.5)
    monkeypatch.setattr("scsigmoid.corpus.downloads.SLOWEST_ADVANCE", 0.5)
    settings = dataclasses.replace(web.settings, attempts=1, timeout=0.4)
    web = dataclasses.replace(web, settings=settings)

    def slow(handler) -> None:
        if stage != "headers":
            handler.send_response(200)
            handler.send_header("Content-Length", "1000000")
            handler.end_headers()
        with suppress(OSError):
            for _ in range(600):
                handler.wfile.write(b" ")
                server.released.wait(0.05)

    server.script[PATH] = [slow]
    begun = time.monotonic()
    message = "no headers within 0.8 s" if stage == "headers" else "came within 0.5 s"
    ask = partial(download, web, destination=tmp_path / "a") if stage == "file" else web.json
    with pytest.raises(UserError, match=rf"{message} \(1 attempts\)"):
        ask(url=server.address + PATH)
    assert time.monotonic() - begun < 10
