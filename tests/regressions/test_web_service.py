"""Answers of the CELLxGENE service and of hostile servers."""

import dataclasses
import gzip
import hashlib
import json
import re
import time
from contextlib import suppress

import numpy as np
import pytest
from corpus.conftest import HEART
from loopback import uuid, versions_path
from scipy.sparse import csr_matrix
from stages import build, local_corpus, make_evaluation, make_manifest, make_part

from scsigmoid.cli import main
from scsigmoid.config.check import as_yaml
from scsigmoid.config.schema import Dataset, LocalFiles
from scsigmoid.corpus.discover import Service, list_versions
from scsigmoid.corpus.fetch import raw_files
from scsigmoid.corpus.metadata import read_manifest, write_manifest
from scsigmoid.corpus.web import check_address
from scsigmoid.errors import UserError
from scsigmoid.tokens.statistics import gather
from scsigmoid.tokens.vocabulary import build_vocabulary


def test_share_of_files_without_counts_is_limited(corpus, server, write_h5ad, counts, tmp_path):
    server.add(2, write_h5ad(counts, name="served").read_bytes(), cells=150)
    server.add(3, server.files[f"/{uuid(1002)}.h5ad"], cells=150)
    for number in (4, 5):
        server.add(number, write_h5ad(np.log1p(counts) / 3, name="peaks").read_bytes(), cells=5)
    make_manifest(corpus, {"heart": Dataset(title="Heart", id=uuid(1002))}, tmp_path)
    message = rf"2 training files with 10 of 160 cells have no raw counts: {uuid(1004)}, "
    with pytest.raises(UserError, match=message):
        make_part(corpus, tmp_path)
    assert not (tmp_path / "part-0").exists()


def test_files_that_are_gone(corpus, published, tmp_path):
    published.script = {f"/{uuid(n)}.h5ad": ["410" if n == 1001 else "404"] for n in (1001, 1004)}
    message = rf"2 of 3 files are gone .*{uuid(1001)} \(withdrawn\), {uuid(1004)} \(not found\)"
    with pytest.raises(UserError, match=message):
        build(corpus, HEART, tmp_path / "m.csv")
    assert not list(tmp_path.glob("m.*"))


def test_a_size_of_0_is_unknown(corpus, published, tmp_path):
    """Nothing was downloaded, and the error was that a .partial file is missing."""
    path, versions = f"/{uuid(1001)}.h5ad", published.answers[f"/datasets/{uuid(1)}/versions"]
    for listed, expected in ((2, "2"), (0, "")):
        versions[0]["assets"][1]["filesize"] = listed
        published.script = {path: [lambda handler: handler.body(b"", {})]}  # of the HEAD request
        build(corpus, HEART, tmp_path / str(listed) / "m.csv")
        rows = read_manifest(tmp_path / str(listed) / "m.csv")
        assert [row.bytes for row in rows if row.location.endswith(path)] == [expected]


@pytest.mark.parametrize("is_locked", [True, False])
def test_the_size_of_a_compressed_answer_is_unknown(corpus, published, tmp_path, is_locked):
    """A file of a lock had changed, and otherwise the manifest had the compressed size."""
    path = f"/{uuid(1001)}.h5ad"
    if is_locked:
        build(corpus, HEART, tmp_path / "lock.csv")
        corpus = corpus.model_copy(update={"manifest": str(tmp_path / "lock.csv")})
    published.script[path] = [lambda h: h.body(b"x" * 99, {"Content-Encoding": "gzip"})]
    build(corpus, HEART, tmp_path / "m.csv")
    assert not published.script[path]
    rows = read_manifest(tmp_path / "m.csv")
    assert [row.bytes for row in rows if row.location.endswith(path)] == ["2"]


def test_a_dataset_that_is_withdrawn_before_its_download(corpus, published, tmp_path):
    """The advice was to name it in corpus.leave_out, which the next manifest refused."""
    make_manifest(corpus, HEART, tmp_path)
    [gone, *_] = [row for row in read_manifest(tmp_path / "manifest.csv") if row.role == "training"]
    listed = published.answers["/datasets"]
    listed[:] = [entry for entry in listed if entry["dataset_id"] != gone.dataset_id]
    del published.files[f"/{gone.file}.h5ad"]
    with pytest.raises(UserError, match=r"not found; .*--forcerun manifest"):
        make_part(corpus, tmp_path)
    make_manifest(corpus, HEART, tmp_path)
    assert gone not in read_manifest(tmp_path / "manifest.csv")
    left_out = corpus.model_copy(update={"leave_out": [gone.file]})
    with pytest.raises(UserError, match="remove it if the dataset was withdrawn"):
        make_manifest(left_out, HEART, tmp_path)


@pytest.mark.parametrize("is_locked", [True, False])
def test_an_evaluation_file_that_is_gone(corpus, published, tmp_path, is_locked):
    """The advice was to name it in corpus.leave_out, which is for training files only."""
    if is_locked:
        build(corpus, HEART, tmp_path / "lock.csv")
        corpus = corpus.model_copy(update={"manifest": str(tmp_path / "lock.csv")})
        published.files[f"/{uuid(1003)}.h5ad"] = b"changed"
    else:
        del published.files[f"/{uuid(1003)}.h5ad"]
    advice = "remove corpus.manifest" if is_locked else r"set datasets\.heart\.id to another"
    with pytest.raises(UserError, match=rf"1 of 3 files .*; {advice}") as error:
        build(corpus, HEART, tmp_path / "m.csv")
    assert "leave_out" not in str(error.value)
    other = HEART if is_locked else {"heart": Dataset(title="Heart", id=uuid(1002))}
    build(corpus.model_copy(update={"manifest": None}), other, tmp_path / "m.csv")
    evaluation = read_manifest(tmp_path / "m.csv")[-1]
    assert (evaluation.file, evaluation.bytes) == ("heart", "7" if is_locked else "4")


def test_an_evaluation_file_of_a_lock_with_other_bytes(corpus, server, write_h5ad, tmp_path):
    """The advice to make the manifest again read the same lock again."""
    counts = np.random.default_rng(0).poisson(0.8, (2, 30, 12)) + 1
    first, other = (write_h5ad(values, name="served").read_bytes() for values in counts)
    server.add(1, first)
    path = server.add(2, first)
    datasets = {"heart": Dataset(title="Heart", id=uuid(1002))}
    make_manifest(corpus, datasets, tmp_path)
    rows = read_manifest(tmp_path / "manifest.csv")
    digest = hashlib.sha256(first).hexdigest()
    lock = [dataclasses.replace(row, sha256=digest) for row in rows]
    write_manifest(tmp_path / "lock.csv", lock)
    server.files[path] = other
    locked = corpus.model_copy(update={"manifest": str(tmp_path / "lock.csv")})
    make_manifest(locked, datasets, tmp_path)
    with pytest.raises(UserError, match=r"SHA-256 .*without corpus\.manifest"):
        make_evaluation(locked, "heart", datasets["heart"], tmp_path)
    make_manifest(corpus, datasets, tmp_path)
    make_evaluation(corpus, "heart", datasets["heart"], tmp_path)


def test_files_that_are_wrong_at_their_source(corpus, server, write_h5ad, counts, tmp_path):
    """The only advice was to store integer counts, or to write the file again."""
    fractions = counts.astype(float)
    fractions[20, 0] += 0.5
    damaged = bytearray(write_h5ad(counts, name="damaged").read_bytes())
    damaged[:4096] = damaged[:8] + bytes(4088)
    server.add(1, write_h5ad(csr_matrix(fractions), name="served").read_bytes())
    server.add(2, write_h5ad(counts, name="evaluated").read_bytes())
    server.add(3, bytes(damaged))
    evaluated = {"heart": Dataset(title="Heart", id=uuid(1002))}

    def make_statistics() -> None:
        part = make_part(corpus, tmp_path)
        with raw_files(part, corpus, tmp_path / "downloads", last=False):
            gather(part, tmp_path / "statistics.arrow")

    for number, cause in (3, r"\.h5ad: damaged"), (1, r"\.h5ad: X has 1\.5 in row 20"):
        make_manifest(corpus, evaluated, tmp_path)
        with pytest.raises(UserError, match=rf"{cause}.* name {uuid(1000 + number)} in corpus\."):
            make_statistics()
        leave_out = [*corpus.leave_out, uuid(1000 + number)]
        corpus = corpus.model_copy(update={"leave_out": leave_out})


def test_an_evaluation_file_that_is_wrong_at_its_source(
    config, corpus, server, write_h5ad, counts, tmp_path, capsys
):
    """The only advice was to store integer counts."""
    fractions = counts.astype(float)
    fractions[20, 0] += 0.5
    server.add(1, write_h5ad(counts, name="served").read_bytes())
    server.add(2, write_h5ad(csr_matrix(fractions), name="evaluated").read_bytes())
    datasets = {"heart": Dataset(title="Heart", id=uuid(1002))}
    make_manifest(corpus, datasets, tmp_path)
    gather(make_part(corpus, tmp_path), tmp_path / "statistics.arrow")
    build_vocabulary([tmp_path / "statistics.arrow"], 1, tmp_path / "vocabulary.parquet")
    make_evaluation(corpus, "heart", datasets["heart"], tmp_path)
    changed = config.model_copy(update={"corpus": corpus, "datasets": datasets})
    (tmp_path / "config.yaml").write_text(as_yaml(changed))
    options = {
        "cells": "heart.h5ad", "metadata": "heart.json", "manifest": "manifest.csv",
        "vocabulary": "vocabulary.parquet", "configuration": "config.yaml", "output": "tokens",
    }  # fmt: skip
    arguments = [f"--{name}={tmp_path / file}" for name, file in options.items()]
    assert main(["tokenize", *arguments]) == 1
    message = capsys.readouterr().err.splitlines()[-1]
    advice = r"set datasets\.heart\.id to another dataset"
    assert re.search(rf"1002\.h5ad: X has 1\.5 in row 20.* {advice}$", message)
    # The other dataset is not in the lock.
    locked = changed.corpus.model_copy(update={"manifest": "lock.csv"})
    (tmp_path / "config.yaml").write_text(as_yaml(changed.model_copy(update={"corpus": locked})))
    assert main(["tokenize", *arguments]) == 1
    assert re.search(rf"{advice} and remove corpus\.manifest$", capsys.readouterr().err.strip())
    assert not (tmp_path / "tokens").exists()


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
    patient = dataclasses.replace(
        web, settings=web.settings.model_copy(update={"longest_pause": 9})
    )
    server.files[PATH] = CONTENT
    server.script[PATH] = ["503", "429 7", "503", "500", "429 3600"]
    assert patient.size(server.address + PATH) == 1000
    assert pauses == [1, 7, 4, 8, 9]
    pauses.clear()
    server.script[PATH] = ["429 0"] * 4  # all attempts were made within milliseconds
    assert patient.size(server.address + PATH) == 1000
    assert pauses == [1, 2, 4, 8]
    server.script[PATH] = ["403"] * 99  # as firewalls answer to clients that seem suspicious
    with pytest.raises(UserError, match=r"HTTP 403 \(6 attempts\); check the network"):
        patient.size(server.address + PATH)


@pytest.mark.parametrize("chunked", [True, False])
def test_a_server_that_sends_a_byte_at_a_time(chunked, server, web, monkeypatch):
    monkeypatch.setattr("scsigmoid.corpus.web.SLOWEST", 0.3)
    web = dataclasses.replace(web, settings=web.settings.model_copy(update={"attempts": 1}))

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


DAY = "2024-06-11"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"assets": []}, f"its version {uuid(1011)} has no h5ad file"),
        ({"tombstone": True}, "withdrawn"),
        ({"dataset_version_id": "x" * 10_000}, "xxx…' is not a CELLxGENE id"),
        ({"collection_id": uuid(5) + "\n"}, f"'{uuid(5)}' is not a CELLxGENE id"),
        ({"cell_count": "many\x1b[2J"}, "cells is 'many [2J'"),
    ],
)
def test_datasets_without_a_usable_description_are_left_out(changes, reason, service, server):
    server.answers[f"/datasets/{uuid(1)}/versions"][1].update(changes)
    versions, left_out = list_versions(service, DAY)
    assert [version.row.dataset_id for version in versions] == [uuid(2)]
    assert reason in left_out[uuid(1)]
    assert len(left_out[uuid(1)]) < 300
    assert left_out[uuid(1)].isprintable()
    assert list_versions(service, DAY, [uuid(1)])[1] == {uuid(1): "named in corpus.leave_out"}


@pytest.fixture
def many(server, web) -> Service:
    """Twenty datasets."""
    for number in range(1, 21):
        server.add(number, b"1")
    return Service(server.api, web)


def test_only_datasets_that_can_be_wanted_are_requested(many, server):
    """A dataset that is not wanted may lack its number of cells."""
    listed = server.answers["/datasets"]
    del listed[0]["cell_count"]
    versions, left_out = list_versions(many, DAY, can_be_wanted=listed[15:].__contains__)
    assert (len(versions), len(left_out)) == (19, 1)
    assert len(server.requests) == 1 + 5


def test_a_stopped_command_continues(many, server, tmp_path):
    """The number of datasets that the service fails to describe is limited."""
    server.script = {versions_path(number): ["404"] for number in range(3, 8)}
    assert len(list_versions(many, DAY)[0]) == 15
    server.script = {versions_path(number): ["403"] * 99 for number in range(15, 21)}
    with pytest.raises(UserError, match=r"6 of 20 datasets cannot be described.*HTTP 403"):
        list_versions(many, DAY, cache=tmp_path)
    server.script = {}

    def count_requested(day: str) -> int:
        server.requests.clear()
        assert list_versions(many, day, cache=tmp_path) == list_versions(many, day)
        return len(server.requests) - 1 - 21  # without the cache: the list and 20 datasets

    assert count_requested(DAY) == 6
    # Versions of another day, and damaged files, are requested again.
    assert count_requested("2024-06-12") == 20
    described = json.dumps({"api": many.api, "version": [1]}).encode()
    for content in (b"{", b'{"api": "\xc3', b"[1]", described):
        next(tmp_path.glob(f"*{DAY}.json")).write_bytes(content)
        assert count_requested(DAY) == 1
    # Versions of a day that is not over are not cached.
    assert count_requested("2999-01-01") == count_requested("2999-01-01") == 20


@pytest.mark.parametrize("answer", [{}, [1], b"[]]", [{"dataset_id": "../../etc/passwd"}]])
def test_malformed_lists_are_refused(answer, service, server):
    if answer and isinstance(answer[0], dict):
        answer[0]["published_at"] = DAY
    server.answers["/datasets"] = answer
    message = r"datasets: (expected a list|its answer is not JSON)|passwd' is not a CELLxGENE id"
    with pytest.raises(UserError, match=message):
        list_versions(service, DAY)


def test_a_lock_must_fit_the_configuration(lock, tmp_path):
    first, second, heart = read_manifest(lock.manifest)
    for changed, message in [
        ({"collection_id": heart.collection_id}, "belongs to the collection of heart"),
        ({"file": "../a"}, "'../a' is not a valid file"),
        ({"dataset_version_id": "../../a"}, "'../../a' is not a CELLxGENE id"),
        ({"source": "local", "location": "/etc/passwd"}, "is 'local', not CELLxGENE"),
    ]:
        write_manifest(lock.manifest, [dataclasses.replace(first, **changed), second, heart])
        with pytest.raises(UserError, match=message):
            build(lock, HEART, tmp_path / "m.csv")
    write_manifest(lock.manifest, [first, heart])
    with pytest.raises(
        UserError, match=r"'lung' is missing; make the lock .*remove corpus\.manifest"
    ):
        build(lock, {"lung": Dataset(title="Lung")}, tmp_path / "m.csv")
    with pytest.raises(UserError, match=f"evaluation dataset 'heart' is not {uuid(9)}; correct"):
        build(lock, {"heart": Dataset(title="Heart", id=uuid(9))}, tmp_path / "m.csv")
    # An evaluation dataset that is not configured is not trained on either.
    lung = dataclasses.replace(heart, dataset="lung", file="lung")
    write_manifest(lock.manifest, [first, heart, lung])
    build(lock, {"heart": Dataset(title="New title")}, tmp_path / "m.csv")
    files = [(r.file, r.title) for r in read_manifest(tmp_path / "m.csv")]
    assert files == [(first.file, first.title), ("heart", "New title")]


@pytest.mark.parametrize("status", [302, 404])
def test_bodies_of_redirects_and_errors_are_not_read(status, server, web):
    sent = []

    def endless(handler) -> None:
        handler.send_response(status)
        handler.send_header("Location", "/curation/v1/datasets")
        handler.end_headers()
        with suppress(OSError):
            while len(sent) < 2000:
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


def test_headers_that_arrive_a_byte_at_a_time(server, web):
    """The time-out is for all headers, not for each byte."""
    quick = web.settings.model_copy(update={"attempts": 1, "timeout": 0.5})

    def slow(handler) -> None:
        with suppress(OSError):
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            for _ in range(100):
                handler.wfile.write(b"x")
                server.released.wait(0.1)

    server.script[PATH] = [slow]
    start = time.monotonic()
    with pytest.raises(UserError, match=r"\(1 attempts\)"):
        dataclasses.replace(web, settings=quick).json(server.address + PATH)
    assert time.monotonic() - start < 5


@pytest.mark.parametrize("text", [b"{", b"\xff\xfe", b"[" * 100_000, b"9" * 5000])
def test_answers_that_are_not_json(text, server, web):
    server.answers["/datasets"] = text
    with pytest.raises(UserError, match="its answer is not JSON"):
        web.json(server.api + "/datasets")


@pytest.mark.parametrize("encoding", ["gzip", ""])
def test_an_answer_that_is_compressed_without_being_asked(encoding, server, web):
    """It was requested again until all attempts were used, as an answer that is not JSON."""
    whole = gzip.compress(json.dumps([1, 2]).encode())
    headers = {"Content-Encoding": encoding}
    answers = [
        lambda handler, body=body: handler.body(body, headers) for body in (whole[:15], whole)
    ]
    server.script[PATH] = answers
    assert web.json(server.address + PATH) == [1, 2]
    assert len(server.requests) == 2


def test_an_answer_with_an_unknown_compression(server, web):
    server.script[PATH] = [lambda h: h.body(b"\x0b\x03\x80[1]", {"Content-Encoding": "br"})] * 9
    with pytest.raises(UserError, match="compresses it"):
        web.json(server.address + PATH)
    assert len(server.requests) == 1


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_the_size_of_an_answer_is_limited(compress, server, web, monkeypatch):
    monkeypatch.setattr("scsigmoid.corpus.web.LARGEST_ANSWER", 1 << 20)
    server.answers["/datasets"] = compress(b"[" + b" " * (1 << 21) + b"]")
    with pytest.raises(UserError, match=r"larger than 1 MiB; check corpus\.api"):
        web.json(server.api + "/datasets")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Content-Length", "\u00b2"),
        ("Content-Length", "9" * 5000),
        ("Content-Length", "1" + "0" * 18),
        ("Retry-After", "soon"),
        ("Retry-After", "9" * 400),
        ("Location", "http://[::1"),
    ],
)
def test_odd_headers(name, value, server, web):
    status = {"Content-Length": 200, "Retry-After": 503, "Location": 302}[name]

    def odd(handler) -> None:
        handler.send_response(status)
        handler.send_header(name, value)
        handler.end_headers()

    server.script[PATH] = [odd] * 9
    quick = web.settings.model_copy(update={"attempts": 2})
    client = dataclasses.replace(web, settings=quick)
    try:
        assert client.size(server.address + PATH) in (None, 10**18)
    except UserError as error:
        assert len(str(error)) < 400  # noqa: PT017


def test_a_manifest_with_an_impossible_fraction(counts, write_h5ad, tmp_path):
    corpus = local_corpus(LocalFiles(files=str(write_h5ad(counts))))
    make_manifest(corpus, {}, tmp_path)
    rows = read_manifest(tmp_path / "manifest.csv")
    changed = [dataclasses.replace(row, held_out="fraction=. seed=1") for row in rows]
    write_manifest(tmp_path / "manifest.csv", changed)
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(UserError, match=r"cells\.h5ad: .*'fraction'"):
        make_part(corpus, tmp_path)
    assert not (tmp_path / "part-0").exists()
