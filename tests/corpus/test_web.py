"""Questions to a real server that misbehaves on command."""

import dataclasses
import threading
import time
import tracemalloc
from email.utils import formatdate

import pytest

from scsigmoid.corpus import web as module
from scsigmoid.corpus.web import retry_after
from scsigmoid.errors import UserError

PATH = "/file.h5ad"
CONTENT = b"x" * 1000


class Impatient(threading.Event):
    """Notes pauses instead of making them."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.pauses.append(timeout)
        return False


def test_pauses_double_and_retry_after_is_honoured(server, web):
    settings = dataclasses.replace(web.settings, longest_pause=9)
    patient = dataclasses.replace(web, settings=settings, stopping=Impatient())
    server.files[PATH] = CONTENT
    server.script[PATH] = ["503", "429 7", "503", "500", "429 3600"]
    assert patient.size(server.address + PATH) == 1000
    assert patient.stopping.pauses == [1, 7, 4, 8, 9]


def test_retry_after():
    for odd in ("", "soon", "²", "-5", "9" * 5000, "\x00"):
        assert retry_after(odd) is None
    assert retry_after("12") == 12
    assert 50 < retry_after(formatdate(time.time() + 60, usegmt=True)) <= 60
    assert retry_after("Thu, 01 Jan 1970 00:00:00 GMT") == 0


def test_gives_up(server, web):
    server.script[PATH] = ["503"] * 99
    with pytest.raises(UserError, match=r"HTTP 503 \(6 attempts\); check the network"):
        web.size(server.address + PATH)
    assert len(server.requests) == 6


@pytest.mark.parametrize(
    ("status", "message"), [("404", "not found"), ("410", "withdrawn"), ("403", "may not be read")]
)
def test_gone(status, message, server, web):
    server.script[PATH] = [status]
    with pytest.raises(UserError, match=f"{message}; name its id in corpus.leave_out"):
        web.size(server.address + PATH)
    assert len(server.requests) == 1


def test_json(server, web, monkeypatch):
    url = server.api + "/datasets"
    server.answers["/datasets"] = {"a": [1]}
    server.script["/curation/v1/datasets"] = ["503", "drop"]
    assert web.json(url) == {"a": [1]}
    with pytest.raises(UserError, match="not found"):
        web.json(server.api + "/none")
    for nonsense in (b"{", b"\xff\xfe", b"[" * 100_000, b"9" * 5000):
        server.answers["/datasets"] = nonsense
        with pytest.raises(UserError, match="its answer is not JSON"):
            web.json(url)
    monkeypatch.setattr(module, "LARGEST_ANSWER", 1 << 20)
    server.answers["/datasets"] = b"[" + b" " * (1 << 21) + b"]"
    with pytest.raises(UserError, match=r"larger than 1 MiB .*; check corpus\.api"):
        web.json(url)


def test_the_memory_of_an_answer_is_bounded(server, web):
    """Ten million empty objects in 30 MiB: twenty-five times that in Python's."""
    server.answers["/datasets"] = b"[" + b"{}," * 10_000_000 + b"{}]"
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match=r"or 4,000,000 values; check corpus\.api"):
            web.json(server.api + "/datasets")
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()


def test_size(server, web):
    server.files[PATH] = CONTENT
    assert web.size(server.address + PATH) == len(CONTENT)
    server.script[PATH] = ["no head", "503", "410"]
    assert web.size(server.address + PATH) is None
    with pytest.raises(UserError, match="withdrawn"):
        web.size(server.address + PATH)


@pytest.mark.parametrize("length", ["²", "9" * 5000, str(10**18), "-1"])
def test_lengths_that_are_none(length, server, web):
    def answer(handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", length)
        handler.end_headers()

    server.script[PATH] = [answer] * 9
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
