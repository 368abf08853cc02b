"""Facts of an evaluation dataset on disk."""

import json
from dataclasses import asdict

import pytest

from scsigmoid.corpus.facts import Facts, read_facts, write_facts
from scsigmoid.errors import UserError

FACTS = Facts(
    file="heart", simulated=True, label="kind", types=["b", "a"], title="Heart", cells=9, genes=5,
    sha256="c" * 64, location="https://example.org/heart.h5ad",
)  # fmt: skip


def test_they_come_back(tmp_path):
    write_facts(tmp_path / "heart.json", FACTS)
    assert read_facts(tmp_path / "heart.json") == FACTS
    assert json.loads((tmp_path / "heart.json").read_text()) == asdict(FACTS)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b"null", b'{"file": "heart"}', b"\xff\xfe", b"a,b\n1,2\n"]
)
def test_something_else_is_named(content, tmp_path):
    path = tmp_path / "heart.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"heart\.json: damaged, or not the facts"):
        read_facts(path)
    with pytest.raises(UserError, match=r"none\.json: cannot be read \(No such file"):
        read_facts(tmp_path / "none.json")
