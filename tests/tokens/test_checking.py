"""Damaged files of a store are found, and rebuilt alone, the same bytes."""

import pytest

from scsigmoid.errors import UserError
from scsigmoid.tokens.checking import check_tokens
from scsigmoid.tokens.make import Tokenizer, tokenize_part


@pytest.fixture
def made(draw, write_part, vocabulary_of, tmp_path):
    """A part, its vocabulary and its store of four shards."""
    part = write_part("part", [draw(seed, 30, 40) for seed in range(3)])
    tokenize_part(part, Tokenizer(vocabulary_of(part), 1e4, 20, 25), tmp_path / "store")
    return part, part / "vocabulary.parquet", tmp_path / "store"


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def flip(path, place=-100):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def test_intact(made, capsys):
    check_tokens([made[2], made[2]])
    assert "2 token stores are intact" in capsys.readouterr().err


def test_damage_is_named_and_rebuilt_alone(made):
    part, known, store = made
    before = contents(store)
    assert sum(name.startswith("shard") for name in before) == 4
    flip(store / "shard-00001.arrow")
    (store / "shard-00003.arrow").unlink()
    flip(store / "genes.npy", -1)
    message = r"shard-00001\.arrow, .*shard-00003\.arrow, .*genes\.npy: damaged; give --cells"
    with pytest.raises(UserError, match=message):
        check_tokens([store])
    untouched = (store / "shard-00002.arrow").stat().st_mtime_ns
    check_tokens([store], part, known)
    assert contents(store) == before
    assert (store / "shard-00002.arrow").stat().st_mtime_ns == untouched
    check_tokens([store])
    assert not list(store.parent.glob(".store*"))


def test_other_cells_do_not_replace_a_shard(made, draw, write_part):
    part, known, store = made
    flip(store / "shard-00001.arrow")
    before = contents(store)
    for name, cells in (("other", 30), ("larger", 60)):
        other = write_part(name, [draw(seed, cells, 40) for seed in range(3, 6)])
        with pytest.raises(UserError, match="was made from other cells or another vocabulary"):
            check_tokens([store], other, known)
        assert contents(store) == before
    with pytest.raises(UserError, match="--cells needs --vocabulary"):
        check_tokens([store], part)
