"""Downloads from a server that misbehaves on command."""

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from scsigmoid.corpus import download as module
from scsigmoid.corpus.download import download, fetch_json
from scsigmoid.errors import UserError

CONTENT = bytes(range(256)) * 4000
HOSTS = ["127.0.0.1"]


class Server:
    """A server on loopback that answers with ``script``, one behaviour a request, then well."""

    def __init__(self) -> None:
        self.script: list[str] = []
        self.requests: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer.requests.append(self.headers.get("Range", ""))
                self.behave(outer.script.pop(0) if outer.script else "well")

            def behave(self, how: str) -> None:
                if how.isdigit():
                    self.send_response(int(how))
                    self.send_header("Content-Length", "0")
                    if how == "429":
                        self.send_header("Retry-After", "7")
                    self.end_headers()
                    return
                if how.startswith("redirect "):
                    self.send_response(302)
                    self.send_header("Location", how.removeprefix("redirect "))
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                if how.startswith("json "):
                    self.whole(how.removeprefix("json ").encode())
                    return
                body, asked = CONTENT, self.headers.get("Range")
                if how == "flipped":
                    body = body[:-1] + b"x"
                if how == "longer":
                    body = body + b"x"
                if asked and how != "ignores range":
                    start = int(asked.removeprefix("bytes=").removesuffix("-"))
                    if start >= len(body):
                        self.behave("416")
                        return
                    self.send_response(206)
                    self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
                    body = body[start:]
                else:
                    self.send_response(200)
                if how != "no length":
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if how == "cut":
                    self.wfile.write(body[: len(body) // 2])
                    self.close_connection = True
                elif how == "stall":
                    self.wfile.write(body[: len(body) // 2])
                    self.wfile.flush()
                    outer.stalled.wait(20)
                else:
                    self.wfile.write(body)
                self.close_connection = True

            def whole(self, body: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            def handle_error(self, *args: object) -> None:  # the client hung up
                pass

        self.stalled = threading.Event()
        self.server = Quiet(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/file.h5ad"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.stalled.set()
    running.server.shutdown()
    running.server.server_close()


@pytest.fixture
def pauses(monkeypatch) -> list[float]:
    waited: list[float] = []
    monkeypatch.setattr(module.time, "sleep", waited.append)
    return waited


@pytest.mark.parametrize(
    "script",
    [
        [],
        ["503", "500"],
        ["cut"],
        ["cut", "cut", "cut"],
        ["cut", "ignores range"],
        ["cut", "cut", "503"],
        ["no length"],
    ],
)
@pytest.mark.parametrize("size", [None, len(CONTENT)])
def test_right_bytes_in_the_end(script, size, server, pauses, tmp_path):
    server.script = list(script)
    download(server.url, tmp_path / "a.h5ad", HOSTS, size=size)
    assert (tmp_path / "a.h5ad").read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["a.h5ad"]
    assert pauses == [2.0**i for i in range(len(server.requests) - 1)]


def test_goes_on_where_it_stopped(server, pauses, tmp_path):
    server.script = ["cut"]
    download(server.url, tmp_path / "a.h5ad", HOSTS)
    received = len(CONTENT) // 2 // module.BLOCK * module.BLOCK
    assert server.requests == ["", f"bytes={received}-"]
    # and so does another process
    (tmp_path / "b.part").write_bytes(CONTENT[:1000])
    download(server.url, tmp_path / "b.h5ad", HOSTS, partial=tmp_path / "b.part")
    assert server.requests[-1] == "bytes=1000-"
    assert (tmp_path / "b.h5ad").read_bytes() == CONTENT


def test_retry_after_is_honoured(server, pauses, tmp_path):
    server.script = ["429"]
    download(server.url, tmp_path / "a.h5ad", HOSTS)
    assert pauses == [7.0]


def test_stalled_connection(server, pauses, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "TIMEOUT", 0.3)
    server.script = ["stall"]
    download(server.url, tmp_path / "a.h5ad", HOSTS)
    assert (tmp_path / "a.h5ad").read_bytes() == CONTENT


def test_gives_up(server, pauses, tmp_path):
    server.script = ["503"] * 99
    with pytest.raises(UserError, match=r"HTTP 503 \(6 attempts\); check the network"):
        download(server.url, tmp_path / "a.h5ad", HOSTS)
    assert not (tmp_path / "a.h5ad").exists()


def test_wrong_length(server, pauses, tmp_path):
    server.script = ["longer"]
    with pytest.raises(UserError, match=rf"{len(CONTENT) + 1} bytes, the manifest says"):
        download(server.url, tmp_path / "a.h5ad", HOSTS, size=len(CONTENT))
    assert not list(tmp_path.iterdir())


def test_flipped_bytes(server, pauses, tmp_path):
    digest = hashlib.sha256(CONTENT).hexdigest()
    server.script = ["flipped"]
    with pytest.raises(UserError, match="its SHA-256 is not the manifest's"):
        download(server.url, tmp_path / "a.h5ad", HOSTS, size=len(CONTENT), digest=digest)
    assert not list(tmp_path.iterdir())
    download(server.url, tmp_path / "a.h5ad", HOSTS, size=len(CONTENT), digest=digest)
    assert (tmp_path / "a.h5ad").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("status", "message"), [("404", "not found"), ("410", "withdrawn"), ("403", "may not be read")]
)
def test_gone(status, message, server, pauses, tmp_path):
    server.script = [status]
    with pytest.raises(UserError, match=f"{message}; take the file out of the manifest"):
        download(server.url, tmp_path / "a.h5ad", HOSTS)
    assert len(server.requests) == 1


def test_hosts(server, pauses, tmp_path):
    for url, message in [
        ("https://example.org/a.h5ad", "host 'example.org' is not allowed"),
        ("http://example.com/a.h5ad", "expected an https address"),
        ("file:///etc/passwd", "host '' is not allowed"),
    ]:
        with pytest.raises(UserError, match=message):
            download(url, tmp_path / "a.h5ad", [*HOSTS, "example.com"])
    server.script = ["redirect https://example.org/a.h5ad"]
    with pytest.raises(UserError, match=r"example\.org.* is not allowed"):
        download(server.url, tmp_path / "a.h5ad", HOSTS)
    server.script = [f"redirect {server.url}?again"]
    download(server.url, tmp_path / "a.h5ad", HOSTS)
    server.script = ["redirect /"] * 99
    with pytest.raises(UserError, match="redirected more than 5 times"):
        download(server.url, tmp_path / "a.h5ad", HOSTS)


def test_json(server, pauses):
    server.script = ["503", "json {", 'json {"a": [1]}', "404"]
    assert fetch_json(server.url, HOSTS) == {"a": [1]}
    assert fetch_json(server.url, HOSTS) is None
