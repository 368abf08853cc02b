"""Downloads that are either complete and right, or not there.

An interrupted download leaves ``<file>.partial`` behind and goes on from its end the next time.
Dataset versions never change at CELLxGENE, so the two halves fit.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urljoin, urlparse

from scsigmoid.errors import UserError
from scsigmoid.files import sha256
from scsigmoid.progress import log

T = TypeVar("T")

LOOPBACK = ("127.0.0.1", "::1", "localhost")
ATTEMPTS = 6
TIMEOUT = 60.0  # seconds without a byte
LONGEST_PAUSE = 60.0
REDIRECTS = 5
BLOCK = 1 << 16  # what a broken connection loses at most
GONE = {403: "may not be read", 404: "not found", 410: "withdrawn"}


class Transient(Exception):
    """Worth another attempt.

    Attributes:
        pause: seconds that the server asks to wait, or ``None``.
    """

    def __init__(self, reason: str, pause: float | None = None) -> None:
        """Note the reason."""
        super().__init__(reason)
        self.pause = pause


def download(
    url: str,
    destination: str | Path,
    hosts: Sequence[str],
    *,
    size: int | None = None,
    digest: str = "",
    partial: str | Path | None = None,
) -> None:
    """Download a file, resuming and retrying, and move it into place once it is right.

    Args:
        url: where from.
        destination: where to.
        hosts: hosts that may be asked, redirects included.
        size: bytes of the file, where known.
        digest: SHA-256 of the file, where known.
        partial: where an unfinished download is kept; beside the destination if not given.

    Raises:
        UserError: if the host is not allowed, the file is gone, differs from what was expected, or
            could not be had in ``ATTEMPTS`` attempts.
    """
    destination = Path(destination)
    partial = Path(partial or destination.with_name(destination.name + ".partial"))
    partial.parent.mkdir(parents=True, exist_ok=True)
    retried(url, lambda: continue_download(url, partial, hosts, size))
    if digest and sha256(partial) != digest:
        partial.unlink()
        raise UserError(
            f"{url}: its SHA-256 is not the manifest's; the file changed or was damaged: "
            "run again, or make the manifest again"
        )
    with partial.open("rb") as handle:
        os.fsync(handle.fileno())
    os.replace(partial, destination)


def fetch_json(url: str, hosts: Sequence[str]) -> Any:
    """The JSON document at an address, or ``None`` where the server has none (403, 404, 410).

    Raises:
        UserError: if the host is not allowed or the document could not be had.
    """

    def ask() -> Any:
        with opened(url, hosts) as response:
            if response.status_code in GONE:
                return None
            check_status(url, response)
            try:
                return response.json()
            except ValueError:
                raise Transient("its answer is not JSON") from None

    return retried(url, ask)


def continue_download(url: str, partial: Path, hosts: Sequence[str], size: int | None) -> None:
    """One attempt: ask for what is missing, append it, and check the length.

    Raises:
        Transient: if the connection broke or the server was busy.
        UserError: if the file has another size than expected.
    """
    have = partial.stat().st_size if partial.exists() else 0
    if size is not None and have == size:
        return
    if size is not None and have > size:
        have = 0
    headers = {"Range": f"bytes={have}-"} if have else {}
    with opened(url, hosts, headers) as response:
        if response.status_code == 416:
            partial.unlink()
            raise Transient("it refused to resume")
        check_status(url, response)
        resumed = response.status_code == 206
        if resumed and not content_range(response).startswith(f"bytes {have}-"):
            partial.unlink()
            raise Transient("it sent another range than asked for")
        start = have if resumed else 0
        total = announced(response, start)
        if size is not None and total is not None and total != size:
            partial.unlink(missing_ok=True)
            raise UserError(
                f"{url}: {total} bytes, the manifest says {size}; the file changed: make the "
                "manifest again"
            )
        with partial.open("ab" if resumed else "wb") as handle:
            for block in response.iter_content(BLOCK):
                handle.write(block)
    have, expected = partial.stat().st_size, size if size is not None else total
    if expected is not None and have > expected:
        partial.unlink()
        raise Transient(f"it sent {have} bytes instead of {expected}")
    if expected is not None and have < expected:
        raise Transient(f"it sent {have} of {expected} bytes")


def announced(response: Any, start: int) -> int | None:
    """Size of the whole file according to the server's headers, or ``None``."""
    total = content_range(response).rpartition("/")[2]
    if total.isdigit():
        return int(total)
    length = response.headers.get("Content-Length", "")
    return start + int(length) if length.isdigit() else None


def content_range(response: Any) -> str:
    """The ``Content-Range`` header, or an empty string."""
    return str(response.headers.get("Content-Range", ""))


def check_status(url: str, response: Any) -> None:
    """Sort an answer into good, worth another attempt, and hopeless."""
    status = response.status_code
    if status in (200, 206):
        return
    if status == 429 or status >= 500:
        wait = str(response.headers.get("Retry-After", ""))
        raise Transient(f"HTTP {status}", float(wait) if wait.isdigit() else None)
    raise UserError(
        f"{url}: {GONE.get(status, f'HTTP {status}')}; take the file out of the manifest or make "
        "the manifest again"
    )


@contextmanager
def opened(url: str, hosts: Sequence[str], headers: dict[str, str] | None = None) -> Iterator[Any]:
    """Open an address, following redirects to allowed hosts only."""
    import requests

    asked = url
    try:
        for _ in range(REDIRECTS):
            check_host(url, hosts)
            with requests.get(
                url,
                headers={"Accept-Encoding": "identity", **(headers or {})},
                stream=True,
                timeout=TIMEOUT,
                allow_redirects=False,
            ) as response:
                if not response.is_redirect:
                    yield response
                    return
                url = urljoin(url, response.headers["Location"])
    except requests.RequestException as error:
        raise Transient(type(error).__name__) from error
    raise UserError(f"{asked}: redirected more than {REDIRECTS} times; correct the address")


def check_host(url: str, hosts: Sequence[str]) -> None:
    """Refuse addresses outside the configuration's hosts; plain http is for loopback alone."""
    parsed = urlparse(url)
    host = parsed.hostname or ""
    if host not in hosts:
        raise UserError(
            f"{url}: host {host!r} is not allowed; add it to corpus.hosts if you trust it"
        )
    if parsed.scheme != "https" and not (parsed.scheme == "http" and host in LOOPBACK):
        raise UserError(f"{url}: expected an https address")


def retried(url: str, action: Callable[[], T]) -> T:
    """Do something until it works, with pauses that double.

    Raises:
        UserError: after the last attempt.
    """
    for number in range(1, ATTEMPTS + 1):
        try:
            return action()
        except Transient as error:
            failed = error
        if number < ATTEMPTS:
            asked = failed.pause if failed.pause is not None else 2.0 ** (number - 1)
            pause = min(asked, LONGEST_PAUSE)
            log(f"{url}: {failed}; again in {pause:g} s")
            time.sleep(pause)
    raise UserError(
        f"{url}: {failed} ({ATTEMPTS} attempts); check the network and run again"
    ) from failed
