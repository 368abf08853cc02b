"""Send HTTP requests to allowed hosts, with retries."""

import io
import json
import re
import socket
import threading
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError, InvalidHeader, LocationParseError
from urllib3.util import Retry, Url, parse_url

from scsigmoid.config.schema import Download
from scsigmoid.corpus.metadata import as_count, one_line
from scsigmoid.errors import UserError
from scsigmoid.progress import log, track
from scsigmoid.version import __version__

A = TypeVar("A")
T = TypeVar("T")

LOOPBACK = ("127.0.0.1", "::1", "localhost")
BLOCK = 1 << 16  # bytes read at a time
ADVANCE = 1 << 20  # number of bytes that count as progress
LARGEST_ANSWER = 1 << 26  # maximum number of bytes of a JSON document
SLOWEST = 60.0  # maximum number of seconds in which ADVANCE bytes must arrive
GZIP = b"\x1f\x8b"  # first bytes of data that are compressed with gzip
COMPRESSIONS = ("gzip", "x-gzip", "deflate", "br", "zstd", "compress")  # in Content-Encoding
GONE = {404: "not found", 410: "withdrawn"}
# Statuses after which a request is repeated: firewalls may answer 403 to a valid request.
BUSY = (403, 408, 425, 429)
HEADERS = {"Accept-Encoding": "identity", "User-Agent": f"scsigmoid/{__version__}"}


class Transient(Exception):
    """A failure after which another attempt may succeed.

    ``pause`` is the number of seconds for which the server asks to wait, ``None`` if not stated.
    """

    def __init__(self, reason: str, pause: float | None = None) -> None:
        super().__init__(reason)
        self.pause = pause


class Absent(UserError):
    """The server answers that the file does not exist. ``reason`` is the status in words."""

    def __init__(self, url: str, status: int) -> None:
        self.reason = GONE[status]
        super().__init__(
            f"{one_line(url)}: {self.reason}; make the manifest again (snakemake --forcerun "
            "manifest), which names all files that are gone"
        )


class AllowedHosts(HTTPAdapter):
    """Send requests, including redirected requests, to allowed hosts only.

    All headers of a response must arrive within the time-out. Bodies of redirects are not read.
    """

    def __init__(self, hosts: Collection[str]) -> None:
        super().__init__()
        self.hosts = hosts

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> Any:
        """Send a request if its host is allowed."""
        check_address(str(request.url), self.hosts)
        response = super().send(request, *args, **options)
        if response.is_redirect:
            # A session reads the body of a redirect whole, which may be endless.
            response.close()
            response.raw = urllib3.HTTPResponse(io.BytesIO(), preload_content=False)
            location = response.headers["Location"]
            try:
                urlsplit(location)
            except ValueError:
                raise UserError(
                    f"{one_line(str(request.url))}: redirects to {one_line(location)!r}, which is "
                    "not a web address; correct the address"
                ) from None
        return response

    def get_connection_with_tls_context(self, *args: Any, **options: Any) -> Any:
        """Return a pool of connections that limit the time for headers."""
        pool: Any = super().get_connection_with_tls_context(*args, **options)
        pool.ConnectionCls = with_header_limit(pool.ConnectionCls)
        return pool


def with_header_limit(connection_class: Any) -> Any:
    """Return a class of connections whose time-out is for all headers of a response.

    The time-out of a socket starts again with every byte.
    """

    class Connection(connection_class):  # type: ignore[misc]
        def getresponse(self) -> Any:
            expired = threading.Event()
            connected = self.sock

            def end() -> None:
                expired.set()
                with suppress(OSError):
                    connected.shutdown(socket.SHUT_RDWR)  # ends the read

            timer = threading.Timer(self.timeout, end)
            timer.daemon = True
            timer.start()
            try:
                response = super().getresponse()
            finally:
                timer.cancel()
            if expired.is_set():  # headers may be missing
                raise TimeoutError
            return response

    return Connection


@dataclass(frozen=True)
class Web:
    """A client with the settings of the configuration."""

    settings: Download
    stopping: threading.Event = field(default_factory=threading.Event)  # set if a thread fails

    def json(self, url: str, patience: float = 1.0) -> Any:
        """Return the JSON document at an address. ``patience`` is a factor of the timeout."""

        def check_size(text: bytes | bytearray) -> None:
            if len(text) > LARGEST_ANSWER:
                raise UserError(
                    f"{one_line(url)}: its answer is larger than {LARGEST_ANSWER >> 20} MiB; "
                    "check corpus.api"
                )

        def read(response: requests.Response) -> Any:
            text: bytes | bytearray = bytearray()
            for block in self.body(response):
                text += block
                check_size(text)
            is_gzip = text.startswith(GZIP)  # some servers and proxies compress without being asked
            try:
                if is_gzip:
                    decoder = zlib.decompressobj(16 + zlib.MAX_WBITS)
                    text = decoder.decompress(text, LARGEST_ANSWER + 1)
                    check_size(text)
                return json.loads(text)
            except (ValueError, RecursionError, zlib.error):
                if text and not is_gzip:  # else incomplete
                    check_encoding(url, response)
                raise Transient("its answer is not JSON") from None

        return self.ask("GET", url, read, patience)

    def size(self, url: str) -> int | None:
        """Return the size of a file in bytes, ``None`` if not stated. May raise :class:`Absent`.

        0 counts as not stated: some servers answer it to HEAD requests. So does the size of a
        compressed file or of a web page, such as a login page.
        """

        def read(response: requests.Response) -> int | None:
            is_other = is_compressed(response) or is_web_page(response)
            return None if is_other else content_length(response)

        return self.ask("HEAD", url, read) or None

    def ask(
        self, method: str, url: str, read: Callable[[requests.Response], T], patience: float = 1.0
    ) -> T:
        """Request an address with retries, and return what ``read`` returns for the response."""

        def attempt() -> T:
            with self.opened(method, url, patience=patience) as response:
                check_status(url, response)
                return read(response)

        return self.retry(url, attempt)

    @contextmanager
    def opened(
        self, method: str, url: str, headers: dict[str, str] | None = None, patience: float = 1.0
    ) -> Iterator[requests.Response]:
        """Request an address without reading the body, following redirects to allowed hosts.

        Raise :class:`Transient` if the connection fails, here or in the block.
        """
        with requests.Session() as session:
            # Only https uses the environment's proxies and certificates, as http is for loopback.
            session.trust_env = url.startswith("https:")
            session.stream = True
            session.headers.update(HEADERS)
            for scheme in ("https://", "http://"):
                session.mount(scheme, AllowedHosts(self.settings.hosts))
            timeout = patience * self.settings.timeout
            try:
                with session.request(method, url, headers=headers, timeout=timeout) as response:
                    yield response
            except (requests.RequestException, HTTPError) as error:
                raise Transient(f"no complete answer ({type(error).__name__})") from error

    def body(self, response: requests.Response) -> Iterator[bytes]:
        """Yield the body in blocks as it arrives.

        Raise :class:`Transient` if less than ``ADVANCE`` bytes arrive in ``SLOWEST`` seconds.
        """
        arrived, start = 0, time.monotonic()
        # read1 does not wait for a whole block, so slow servers are noticed.
        while block := response.raw.read1(BLOCK, decode_content=False):
            self.check_stopped()
            yield block
            arrived += len(block)
            if arrived >= ADVANCE:
                arrived, start = 0, time.monotonic()
            elif time.monotonic() > start + SLOWEST:
                raise Transient(f"less than {ADVANCE >> 20} MiB arrived in {SLOWEST:g} s")

    def retry(self, url: str, task: Callable[[], T], progress: Callable[[], int] = lambda: 0) -> T:
        """Call ``task`` until it succeeds. The pause doubles after every failure.

        ``task`` raises :class:`Transient` if another attempt may succeed. ``progress`` returns the
        number of bytes received so far. ``ADVANCE`` new bytes reset the count of attempts.
        """
        received, failures = progress(), 0
        while True:
            try:
                return task()
            except Transient as error:
                failure = error
            if progress() >= received + ADVANCE:
                received, failures = progress(), 0
            failures += 1
            if failures >= self.settings.attempts:
                raise UserError(
                    f"{one_line(url)}: {failure} ({failures} attempts); check the network, or "
                    "raise corpus.download.timeout or corpus.download.attempts, and run again"
                ) from failure
            pause = min(failure.pause or 2.0 ** (failures - 1), self.settings.longest_pause)
            log(f"{one_line(url)}: {failure}; trying again in {pause:g} s")
            self.stopping.wait(pause)
            self.check_stopped()

    def check_stopped(self) -> None:
        """Raise an error if another thread has failed."""
        if self.stopping.is_set():
            raise UserError("stopped, because another request failed")

    def each(self, action: Callable[[A], T], items: Sequence[A], *, unit: str) -> list[T]:
        """Call ``action`` for all items, in several threads, and return the results in order.

        The first failure stops the other calls and is raised. ``unit`` names the items, in the
        plural.
        """
        with ThreadPoolExecutor(self.settings.connections) as pool:
            try:
                return list(
                    track(pool.map(action, items), label="requests", unit=unit, total=len(items))
                )
            except BaseException:
                self.stopping.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def check_address(url: str, hosts: Collection[str]) -> None:
    """Raise an error unless the host is allowed and the scheme is https, or http for loopback."""
    try:
        parsed = parse_url(url)
    except LocationParseError:
        parsed = Url()
    host = (parsed.host or "").strip("[]")
    if host not in hosts:
        raise UserError(
            f"{one_line(url)}: host {one_line(host)!r} is not allowed; add it to "
            "corpus.download.hosts if you trust it"
        )
    if parsed.scheme != "https" and not (parsed.scheme == "http" and host in LOOPBACK):
        raise UserError(f"{one_line(url)}: expected an https address; correct it")


def check_status(url: str, response: requests.Response) -> None:
    """Raise an error if the status of a response is not 200.

    The error is :class:`Transient` if another attempt may succeed.
    """
    status = response.status_code
    if status == 200:
        return
    if status in BUSY or status >= 500:
        raise Transient(f"HTTP {status}", retry_after(response.headers.get("Retry-After", "")))
    if status in GONE:
        raise Absent(url, status)
    raise UserError(f"{one_line(url)}: HTTP {status}; correct the address")


def is_compressed(response: requests.Response) -> bool:
    """Return whether the headers state a compression. The body may nevertheless be as it is."""
    encodings = response.headers.get("Content-Encoding", "").lower().split(",")
    return any(encoding.strip() in COMPRESSIONS for encoding in encodings)


def is_web_page(response: requests.Response) -> bool:
    """Return whether the headers state HTML. Some servers state it for all files."""
    return response.headers.get("Content-Type", "").strip().lower().startswith("text/html")


def check_encoding(url: str, response: requests.Response) -> None:
    """Raise an error if a body that was found to be wrong is compressed."""
    if is_compressed(response):
        raise UserError(
            f"{one_line(url)}: the server or a proxy compresses it, although the request forbids "
            "it; use another network or address"
        )


def content_length(response: requests.Response) -> int | None:
    """Return the size of the body in bytes, or ``None`` if the server does not state it."""
    text = response.headers.get("Content-Length", "")
    return as_count(int(text)) if re.fullmatch("[0-9]{1,20}", text) else None


def retry_after(text: str) -> float | None:
    """Return the seconds to wait from a ``Retry-After`` header, ``None`` if it is malformed."""
    try:
        return Retry().parse_retry_after(text)
    except (InvalidHeader, ValueError, TypeError, OverflowError):
        return None
