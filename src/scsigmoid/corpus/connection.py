"""Connections to servers: allowed hosts alone, and none that outlives its time."""

import socket
import threading
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import LocationParseError
from urllib3.util import Url, parse_url

from scsigmoid.corpus.sanitise import one_line
from scsigmoid.errors import UserError

LOOPBACK = ("127.0.0.1", "::1", "localhost")
LONGEST_ADDRESS = 2000


def checked_address(url: str, hosts: Collection[str]) -> str:
    """An address as it will be asked, read by the parser of the client itself.

    Raises:
        UserError: for hosts other than these, http beyond loopback, and what is no plain address.
    """
    parsed = Url()
    if len(url) <= LONGEST_ADDRESS and url.isprintable() and "\\" not in url:
        with suppress(LocationParseError):
            parsed = parse_url(url)
    if not parsed.host or parsed.auth is not None:
        raise UserError(f"{one_line(url)!r}: not a web address; correct it")
    host = parsed.host.strip("[]")
    check_host(host, hosts, url)
    if parsed.scheme != "https" and not (parsed.scheme == "http" and host in LOOPBACK):
        raise UserError(f"{one_line(url)}: expected an https address")
    return parsed.url


def check_host(host: str, hosts: Collection[str], url: str) -> None:
    if host not in hosts:
        raise UserError(
            f"{one_line(url)}: host {one_line(host)!r} is not allowed; add it to corpus.hosts "
            "if you trust it"
        )


class Connection(HTTPAdapter):
    """A connection for one request, with a time by the clock.

    When the time is over the socket is shut down, which ends whatever waits for it: headers, or a
    body, that come a byte a second or not at all.

    Attributes:
        late: what took too long, in words; empty while there is time.
    """

    def __init__(self, hosts: Collection[str]) -> None:
        super().__init__()
        self.hosts = hosts
        self.late = ""
        self.sockets: list[socket.socket] = []
        self.timer = threading.Timer(0, self.shut_down)

    def ask(self, method: str, url: str, headers: dict[str, str], timeout: float) -> Any:
        """Send a request: the response, of which nothing but headers was read.

        Proxies and certificates of the environment are used; loopback needs none.
        """
        request = requests.Request(method, url, headers=headers).prepare()
        session = requests.Session()
        session.trust_env = url.startswith("https:")
        environment = session.merge_environment_settings(url, {}, True, None, None)
        return self.send(request, timeout=timeout, **environment)

    def get_connection_with_tls_context(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """The pool that connects: its host is checked again, its sockets are watched."""
        pool: Any = super().get_connection_with_tls_context(request, *args, **kwargs)
        check_host(pool.host.strip("[]"), self.hosts, request.url)
        adapter = self

        class Watched(pool.ConnectionCls):  # type: ignore[misc]
            def connect(self) -> None:
                super().connect()
                made = self.sock
                # a second handle: TLS may not let go of its own
                handle = socket.fromfd(made.fileno(), made.family, made.type)
                adapter.sockets.append(handle)
                if adapter.late:
                    adapter.shut_down(adapter.late)

        pool.ConnectionCls = Watched
        return pool

    def blocks(self, response: Any, block: int, size: int, seconds: float) -> Iterator[bytes]:
        """The body of a response, as it is sent, while every ``size`` bytes come within a time."""
        slow = f"neither its end nor {size >> 20} MiB came within {seconds:g} s"
        self.within(seconds, slow)
        missing = size
        for data in response.raw.stream(block, decode_content=False):
            missing -= len(data)
            if missing <= 0:
                self.within(seconds, slow)
                missing = size
            yield data
        if self.late:
            raise requests.ConnectionError(self.late)

    def within(self, seconds: float, what: str) -> None:
        """Allow so much time from now on; ``what`` is said where it is not kept."""
        self.timer.cancel()
        self.timer = threading.Timer(seconds, self.shut_down, [what])
        self.timer.daemon = True
        self.timer.start()

    def shut_down(self, what: str) -> None:
        self.late = what
        for handle in self.sockets:
            with suppress(OSError):
                handle.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the watch, and close what is open."""
        self.timer.cancel()
        for handle in self.sockets:
            handle.close()
        super().close()
