"""CELLxGENE on loopback: a real HTTP server with the API's answers and files, for tests."""

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HOSTS = ["127.0.0.1"]
API = "/curation/v1"
ASSAYS = {
    "10x 3' v2": "EFO:0009899",
    "10x 3' v3": "EFO:0009922",
    "Smart-seq2": "EFO:0008931",
    "10x multiome": "EFO:0030059",
    "Visium Spatial Gene Expression V1": "EFO:0022857",
    "scATAC-seq": "EFO:0010891",
}


def uuid(number: int) -> str:
    """Return an id in the form of CELLxGENE's ids."""
    return f"00000000-0000-0000-0000-{number:012d}"


class Loopback:
    """The server.

    Attributes:
        files: bytes by path; served with ETag, ranges and ``If-Range``.
        tags: ETags by path (default: made from the bytes), for example weak, or empty for none.
        answers: JSON values, or bytes that are sent unchanged, by path below the API.
        script: faults of the next requests by path, one for each request: a status (``503``),
            ``429 <Retry-After>``, ``redirect <url>``, ``cut`` (closes in the middle), ``drop``
            (closes before the answer), ``stall``, ``longer`` (by one byte, with the matching
            length), ``ignores range``, ``no length``, ``well`` (no fault), or a function of the
            request handler. These faults send the range that is asked for, whatever ``If-Range``
            says: ``tag <ETag>``, ``range <Content-Range>`` (both: without a value, without the
            header), ``shift`` (the bytes and the header start one byte later) and ``multipart``.
            Further requests are answered correctly.
        requests: method, path and ``Range`` of every request.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.tags: dict[str, str] = {}
        self.answers: dict[str, Any] = {}
        self.script: dict[str, list[Any]] = {}
        self.requests: list[tuple[str, str, str]] = []
        self.released = threading.Event()
        self.server = Quiet(("127.0.0.1", 0), handler_of(self))
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.api = self.address + API
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        """Stop the server."""
        self.released.set()
        self.server.shutdown()
        self.server.server_close()

    def ranges(self, path: str) -> list[str]:
        """Return the ``Range`` of each GET request of a path, empty for the whole file."""
        return [asked for *request, asked in self.requests if request == ["GET", path]]

    def add(
        self,
        dataset: int,
        content: bytes,
        *,
        version: int | None = None,
        collection: int | None = None,
        cells: int = 10,
        published: str = "2024-01-01",
        organisms: tuple[str, ...] = ("Homo sapiens",),
        assays: tuple[str, ...] = ("10x 3' v3",),
        **changes: Any,
    ) -> str:
        """Publish a version of a dataset, as the API describes it. Return the path of its file.

        ``changes`` replaces fields. ``None`` omits a field, as the backend does.
        """
        version_id = uuid(1000 + (dataset if version is None else version))
        path = f"/{version_id}.h5ad"
        self.files[path] = content
        entry = {
            "collection_id": uuid(2000 + (dataset if collection is None else collection)),
            "dataset_id": uuid(dataset),
            "dataset_version_id": version_id,
            "schema_version": "5.0.0",
            "title": f"Dataset {dataset}",
            "tombstone": False,
            "published_at": f"{published}T10:00:00+00:00",
            "organism": [{"label": name, "ontology_term_id": "?"} for name in organisms],
            "assay": [{"label": name, "ontology_term_id": ASSAYS.get(name)} for name in assays],
            "cell_count": cells,
            "assets": [
                {"filetype": "ATAC_FRAGMENT", "filesize": -1, "url": self.address + "/none.gz"},
                {"filetype": "H5AD", "filesize": len(content), "url": self.address + path},
            ],
            "citation": "fields that are not known are ignored",
            **changes,
        }
        entry = {name: value for name, value in entry.items() if value is not None}
        with_doi = {**entry, "collection_doi": f"10.1000/{dataset}"}
        history = self.answers.setdefault(f"/datasets/{uuid(dataset)}/versions", [])
        history.insert(0, entry)  # newest first
        self.answers[f"/dataset_versions/{version_id}"] = with_doi
        listed = self.answers.setdefault("/datasets", [])
        listed[:] = [other for other in listed if other["dataset_id"] != uuid(dataset)]
        # The list shows the newest version, with the day of the first publication.
        listed.append({**with_doi, "published_at": history[-1]["published_at"]})
        members = [e for e in listed if e["collection_id"] == with_doi["collection_id"]]
        self.answers[f"/collections/{with_doi['collection_id']}"] = {"datasets": members}
        return path


class Quiet(ThreadingHTTPServer):
    """An HTTP server that does not print errors of closed connections."""

    daemon_threads = True

    def handle_error(self, *args: object) -> None:
        pass


def handler_of(server: Loopback) -> type[BaseHTTPRequestHandler]:
    """Return the handler of a server's requests."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked = self.headers.get("Range", "")
            server.requests.append((self.command, self.path, asked))
            waiting = server.script.get(self.path)
            how = waiting.pop(0) if waiting else "well"
            if callable(how):
                self.close_connection = True
                how(self)
                return
            status, _, argument = how.partition(" ")
            if how == "drop":
                self.close_connection = True
                self.connection.close()
            elif status == "redirect":
                self.body(b"", {"Location": argument}, 302)
            elif status.isdigit():
                headers = {"Retry-After": argument} if argument else {}
                self.body(b"<html>an error</html>", headers, int(status))
            elif self.path in server.files:
                self.file(server.files[self.path], how)
            elif self.path.removeprefix(API) in server.answers:
                value = server.answers[self.path.removeprefix(API)]
                self.body(value if isinstance(value, bytes) else json.dumps(value).encode(), {})
            else:
                self.body(b"", {}, 404)

        do_HEAD = do_GET

        def file(self, content: bytes, how: str) -> None:
            # as of a multipart upload
            tag = server.tags.get(self.path, f'"{hashlib.md5(content).hexdigest()}-1"')
            content += b"x" * (how == "longer")
            headers = {"ETag": tag}
            asked, condition = self.headers.get("Range"), self.headers.get("If-Range", tag)
            fault, _, value = how.partition(" ")
            ignores_condition = fault in ("tag", "range", "shift", "multipart")
            is_same = ignores_condition or (condition == tag and not tag.startswith("W/"))
            status = 200
            if asked and how != "ignores range" and is_same:
                start = int(asked.removeprefix("bytes=").removesuffix("-")) + (fault == "shift")
                if start >= len(content):
                    self.body(b"", {"Content-Range": f"bytes */{len(content)}"}, 416)
                    return
                status = 206
                headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
                content = content[start:]
            if fault == "tag":
                headers["ETag"] = value
            elif fault == "range":
                headers["Content-Range"] = value
            elif fault == "multipart":
                part = f"--B\r\nContent-Range: {headers.pop('Content-Range', '')}\r\n\r\n".encode()
                content = part + content + b"\r\n--B--\r\n"
                headers["Content-Type"] = "multipart/byteranges; boundary=B"
            self.body(content, headers, status, how)

        def body(
            self, content: bytes, headers: dict[str, str], status: int = 200, how: str = "well"
        ) -> None:
            self.send_response(status)
            for name, value in headers.items():
                if value:
                    self.send_header(name, value)
            if how != "no length":
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.close_connection = how != "well"
            if self.command == "HEAD":
                return
            if how in ("cut", "stall"):
                self.wfile.write(content[: len(content) // 2])
                self.wfile.flush()
                if how == "stall":
                    server.released.wait(20)
            else:
                self.wfile.write(content)

        def log_message(self, *args: object) -> None:
            pass

    return Handler


def versions_path(number: int) -> str:
    return f"/curation/v1/datasets/{uuid(number)}/versions"
