"""Changed tokens are refused by every reader, not only by readers of metadata."""

import json
import re
import shutil
import threading
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pyarrow as pa
import pytest
from small_training import changed, train_command
from tokens.conftest import draw, evaluated, token_table, tokenized, vocabulary_of, write_store
from training import conftest as training_fixtures

from scsigmoid.cli import main
from scsigmoid.config.schema import Embeddings, ValidationLoss
from scsigmoid.errors import UserError
from scsigmoid.evaluation.embeddings import embed_dataset
from scsigmoid.evaluation.validation_loss import validation_loss
from scsigmoid.tokens import store as store_module
from scsigmoid.tokens.packed import cumulative
from scsigmoid.tokens.scatter import scatter
from scsigmoid.tokens.store import TokenStore, grouped, read_index, store_schema, write_shards
from scsigmoid.training.loop import train

corpus, run, training = (getattr(training_fixtures, name) for name in ("corpus", "run", "training"))


def change_tokens(shard: Path) -> None:
    """Swap neighboring tokens of a shard. The file keeps its size and stays valid."""
    column = pa.ipc.open_stream(shard.read_bytes()).read_all()["input_ids"].chunk(0)
    tokens = column.values.to_numpy()
    swapped = tokens.copy()
    even = len(tokens) // 2 * 2
    swapped[:even] = tokens[:even].reshape(-1, 2)[:, ::-1].ravel()
    data = shard.read_bytes()
    assert data.count(tokens.tobytes()) == 1
    shard.write_bytes(data.replace(tokens.tobytes(), swapped.tobytes()))


@pytest.fixture
def own_corpus(corpus: Any, tmp_path: Path) -> Any:
    """A copy of the training cells, which a test may change."""
    stores = [Path(shutil.copytree(path, tmp_path / path.name)) for path in corpus.stores]
    return corpus._replace(stores=stores)


@pytest.mark.parametrize("workers", [0, 2])
def test_training_refuses_changed_tokens(
    workers: int, own_corpus: Any, run: Any, tmp_path: Path
) -> None:
    output = tmp_path / "sigmoid_128"
    change_tokens(own_corpus.stores[1] / "shard-00001.arrow")
    run = changed(run, workers=workers)
    with pytest.raises(UserError, match=r"part-00001/shard-00001\.arrow.*damaged.*make the tokens"):
        train(run, own_corpus.stores, own_corpus.vocabulary, output)
    assert not list(output.glob("*.safetensors"))


def test_training_on_tokens_beyond_the_vocabulary(
    own_corpus: Any, run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The checksums are right, but the writer of the store made an error."""
    for folder in own_corpus.stores:
        index = read_index(folder)
        tables = [pa.ipc.open_stream(path.read_bytes()) for path in sorted(folder.glob("*.arrow"))]
        table = pa.concat_tables([reader.read_all() for reader in tables])
        tokens = [[*cell[:-1], 64] for cell in table["input_ids"].to_pylist()]
        table = token_table(tokens, 64, cell=range(len(tokens)))
        write_shards(folder, grouped(table.to_batches(), 10), index)
    command = train_command(run, own_corpus, tmp_path / "sigmoid_128", gpus=1)
    capsys.readouterr()
    assert main(command) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert len(lines) == 1
    assert "arrow" in lines[0]
    assert "vocabulary" in lines[0]


@pytest.mark.parametrize("number", [0, 2])
def test_evaluation_refuses_changed_tokens(
    number: int, store: Path, cells: Path, make_model: Any, tmp_path: Path
) -> None:
    checkpoint = make_model("sigmoid")
    change_tokens(store / f"shard-{number:05d}.arrow")
    output = tmp_path / "sigmoid_toy.h5ad"
    with pytest.raises(UserError, match=rf"shard-0000{number}\.arrow.*damaged"):
        embed_dataset(checkpoint, store, cells, Embeddings(batch_tokens=40), "cpu", output)
    settings = ValidationLoss(trials=1, mask_fraction=0.3, confidence=0.95, batch_tokens=40)
    outputs = tmp_path / "sigmoid_toy.csv", tmp_path / "sigmoid_toy.parquet"
    with pytest.raises(UserError, match=rf"shard-0000{number}\.arrow.*damaged"):
        validation_loss(checkpoint, store, "toy", settings, 1, "cpu", *outputs)
    assert not [path for path in (output, *outputs) if path.exists()]


def test_only_the_shards_that_are_read_are_verified(store: Path) -> None:
    """Cells of a store are in shards of 5 cells."""
    change_tokens(store / "shard-00001.arrow")
    opened = TokenStore.open(store)
    assert len(opened.cells([0, 4, 10], 99).cu_seqlens) == 4
    for _ in range(2):
        with pytest.raises(UserError, match=r"shard-00001\.arrow.*damaged"):
            opened.cells([5], 99)
    with pytest.raises(UserError, match=r"shard-00001\.arrow.*damaged"):
        opened.metadata(["cell"])


def test_a_shard_is_hashed_once(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed = []

    def sha256(path: Path) -> str:
        hashed.append(path.name)
        return whole_file(path)

    whole_file = store_module.sha256
    monkeypatch.setattr(store_module, "sha256", sha256)
    opened = TokenStore.open(store)
    threads = [threading.Thread(target=opened.cells, args=(range(12), 99)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    opened.metadata(["cell"])
    assert sorted(hashed) == ["genes.npy", *(f"shard-0000{number}.arrow" for number in range(3))]


def test_changed_genes_are_refused(store: Path) -> None:
    """The lengths of cells, which the order of batches and the histogram of lengths use."""
    genes = np.load(store / "genes.npy")
    np.save(store / "genes.npy", genes[::-1])
    with pytest.raises(UserError, match=r"genes\.npy.*damaged"):
        TokenStore.open(store)
    with pytest.raises(UserError, match=r"genes\.npy.*damaged"):
        store_module.write_length_counts([store], store.parent / "lengths.parquet")


@pytest.mark.parametrize(
    "change",
    [
        {"vocabulary_size": 10}, {"vocabulary_size": -1}, {"vocabulary_size": "40"},
        {"simulated": False}, {"simulated": "true"}, {"maximum_length": 1e30},
        {"maximum_length": float("nan")}, {"rows": 11}, {"dataset": None}, {"label": 3},
        {"shards": {}}, {"shards": []}, {"arrays": []}, {"vocabulary_size": None},
        {"version": "4"}, {"sha256": 3}, {"cells": "0" * 64}, {"extra": 1},
    ],
    ids=str,
)  # fmt: skip
def test_an_edited_index_is_refused(store: Path, change: dict[str, Any]) -> None:
    path = store / "index.json"
    index = json.loads(path.read_text())
    path.write_text(json.dumps(index | change))
    with pytest.raises(UserError, match=r"index\.json: .*again"):
        TokenStore.open(store)


def test_an_index_with_a_missing_entry_or_other_content_is_refused(store: Path) -> None:
    path = store / "index.json"
    index = json.loads(path.read_text())
    missing = [{key: index[key] for key in index if key != name} for name in index]
    for text in ["", "[]", "3", "null", "\xff", *map(json.dumps, missing)]:
        path.write_text(text, encoding="latin-1")
        with pytest.raises(UserError, match=r"index\.json: .*again"):
            TokenStore.open(store)
    path.write_text(json.dumps(index, indent=None))  # the same content
    assert len(TokenStore.open(store)) == 12


def test_more_tokens_than_int32():
    assert cumulative([2**31 - 1]).tolist() == [0, 2**31 - 1]
    with pytest.raises(UserError, match=r"2 cells have 2,147,483,648 tokens.*fewer cells at once"):
        cumulative([2**31 - 1, 1])


def test_other_identities_and_a_part_given_twice_are_refused(tmp_path):
    write_store(tmp_path / "a")
    write_store(tmp_path / "b", vocabulary="def", first=13)
    write_store(tmp_path / "c", dataset="heart", first=26)
    with pytest.raises(UserError, match="a: has vocabulary 'abc', expected 'xyz'"):
        TokenStore.open(tmp_path / "a", vocabulary="xyz")
    with pytest.raises(UserError, match="b: has vocabulary 'def', expected 'abc'"):
        TokenStore.open([tmp_path / "a", tmp_path / "b"])
    with pytest.raises(UserError, match="c: has dataset 'heart', expected empty"):
        TokenStore.open([tmp_path / "a", tmp_path / "c"], dataset="")
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    for name in ("a", "copy"):
        with pytest.raises(UserError, match=rf"{name}: contains a shard of .*a; pass each store"):
            TokenStore.open([str(tmp_path / "a"), str(tmp_path / name)])


def test_damaged_stores(tmp_path):
    write_store(tmp_path / "store")
    shard = tmp_path / "store" / "shard-00001.arrow"
    good = shard.read_bytes()
    other = (tmp_path / "store" / "shard-00003.arrow").read_bytes()
    for bad in (b"", good[: len(good) // 2], good[:-8] + bytes(8), other):
        shard.write_bytes(bad)
        with pytest.raises(UserError, match=r"shard-00001\.arrow: this shard .* is damaged"):
            TokenStore.open(tmp_path / "store")
    shard.unlink()
    with pytest.raises(UserError, match=r"shard-00001\.arrow: this shard .* is missing"):
        TokenStore.open(tmp_path / "store")
    middle = len(good) // 2
    shard.write_bytes(good[:middle] + bytes([good[middle] ^ 4]) + good[middle + 1 :])
    with pytest.raises(UserError, match=r"shard-00001\.arrow: this shard .* is damaged"):
        TokenStore.open(tmp_path / "store").metadata(["cell"])
    shard.write_bytes(good)
    np.save(tmp_path / "store" / "genes.npy", np.load(tmp_path / "store" / "genes.npy") + 1)
    with pytest.raises(UserError, match=r"genes\.npy: missing or damaged; make the tokens again"):
        TokenStore.open(tmp_path / "store")
    with pytest.raises(UserError, match="not a token store"):
        TokenStore.open(tmp_path)


def test_damaged_index(tmp_path):
    write_store(tmp_path / "store")
    path = tmp_path / "store" / "index.json"
    index = json.loads(path.read_text())
    changes = {"arrays": {}}, {"rows": 14}, {"shards": [{}]}
    for text in ("{", *(json.dumps(index | change) for change in changes)):
        path.write_text(text)
        with pytest.raises(UserError, match=r"index\.json: damaged"):
            TokenStore.open(tmp_path / "store")


def test_cells_without_vocabulary_genes(vocabulary, write_part, tmp_path, capsys):
    counts = draw(0, 30, 21)
    counts[17], counts[25] = 0, 0
    counts[17, 20] = 1  # a gene without a token. All counts of cell 25 are zero.
    folder = write_part("other", [draw(1, 30, 20), counts])
    trained = tokenized(folder, vocabulary, tmp_path / "s").metadata(["file", "cell"])
    tokens = evaluated(folder / "file1.h5ad", vocabulary, tmp_path / "e")
    message = r"file1.h5ad: 2 of 30 cells express no gene of the vocabulary .* \(rows 17, 25\)"
    assert len(re.findall(message, capsys.readouterr().err)) == 2
    expected = sorted({*range(30)} - {17, 25})
    assert tokens.metadata(["cell"])["cell"].tolist() == expected
    assert sorted(trained["cell"][trained["file"] == "file1"]) == expected
    for name in ("s", "e"):
        left_out = read_index(tmp_path / name)["left_out"]
        assert left_out == {"file1": {"cells": 2, "few_genes": 0, "rows": [17, 25]}}
    # The log shows the rows of the user's file if cells were copied from it.
    copied = anndata.read_h5ad(folder / "file1.h5ad")
    copied.obs["scsigmoid_row"] = np.arange(30) * 10
    copied.write_h5ad(tmp_path / "copy.h5ad")
    evaluated(tmp_path / "copy.h5ad", vocabulary, tmp_path / "c")
    assert "are left out (rows 170, 250)" in capsys.readouterr().err


def test_all_cells_without_vocabulary_genes(vocabulary, write_part, tmp_path):
    other = write_part("other", [np.hstack([np.zeros((4, 20)), np.ones((4, 1))])])
    with pytest.raises(UserError, match=r"file0\.h5ad: none of the 4 cells with enough genes"):
        tokenized(other, vocabulary, tmp_path / "s")
    assert not list(tmp_path.glob("*.scatter*")) + list(tmp_path.glob("s"))


def test_all_training_cells_with_too_few_genes(write_part, tmp_path):
    """The message blamed the files: all counts were said to be zero."""
    part = write_part("few", [draw(0, 4, 20)])
    with pytest.raises(UserError, match=r"minimum_genes"):
        vocabulary_of(part, minimum_genes=21)


def test_temporary_files_of_a_killed_job_are_replaced_but_not_those_of_the_user(
    vocabulary, write_part, tmp_path
):
    part = write_part("mine", [draw(0, 30, 20)])
    folder = tmp_path / ".s.scatter"
    folder.mkdir()
    (folder / "7.arrow").touch()
    assert len(tokenized(part, vocabulary, tmp_path / "s")) == 30
    assert not folder.exists()
    folder.mkdir()
    (folder / "notes.txt").touch()
    with pytest.raises(UserError, match=r"\.s\.scatter: .*\(notes\.txt\); move them"):
        tokenized(part, vocabulary, tmp_path / "s")
    assert (folder / "notes.txt").exists()
    (folder / "notes.txt").rename(tmp_path / "notes.txt")
    (folder / "0.arrow").mkdir()  # a folder, which no job makes
    with pytest.raises(UserError, match=r"\.s\.scatter: .*\(0\.arrow\); move them"):
        tokenized(part, vocabulary, tmp_path / "s")


@pytest.mark.parametrize("kind", ["file", "link to a folder", "link to nothing"])
def test_a_file_or_a_link_in_place_of_the_folder_of_temporary_files(
    kind, vocabulary, write_part, tmp_path
):
    """The error was only that the file exists, after the shards of a linked folder were deleted."""
    part, place = write_part("mine", [draw(0, 30, 20)]), tmp_path / ".s.scatter"
    mine = tmp_path / "mine" / "0.arrow"
    mine.write_text("mine")
    if kind == "file":
        place.write_text("mine")
    else:
        place.symlink_to(mine.parent if kind == "link to a folder" else tmp_path / "nothing")
    with pytest.raises(UserError, match=r"\.s\.scatter: a file or a link .*; move it"):
        tokenized(part, vocabulary, tmp_path / "s")
    assert place.is_symlink() or place.read_text() == "mine"
    assert mine.read_text() == "mine"
    assert not (tmp_path / "nothing").exists()


def test_a_link_among_the_temporary_files_is_kept(vocabulary, write_part, tmp_path):
    part, folder = write_part("mine", [draw(0, 30, 20)]), tmp_path / ".s.scatter"
    folder.mkdir()
    (tmp_path / "mine.arrow").write_text("mine")
    (folder / "0.arrow").symlink_to(tmp_path / "mine.arrow")
    with pytest.raises(UserError, match=r"\.s\.scatter: .*\(0\.arrow\); move them"):
        tokenized(part, vocabulary, tmp_path / "s")
    assert (folder / "0.arrow").read_text() == "mine"


def test_files_of_nfs_do_not_stop_a_job(vocabulary, write_part, tmp_path, capsys):
    """They disappear when they are closed, but the job asked to move them."""
    part, folder = write_part("mine", [draw(0, 30, 20)]), tmp_path / ".s.scatter"
    folder.mkdir()
    (folder / ".nfs000000000000002a00000001").write_text("open")
    (folder / "7.arrow").touch()
    assert len(tokenized(part, vocabulary, tmp_path / "s")) == 30
    assert [path.name for path in folder.iterdir()] == [".nfs000000000000002a00000001"]
    assert len(re.findall(r"warning: .*\.s\.scatter: not deleted", capsys.readouterr().err)) == 1


def test_files_of_a_user_that_appear_among_temporary_files(tmp_path):
    """The folder was deleted with all files in it."""
    folder = tmp_path / ".s.scatter"

    def batches():
        (folder / "notes.txt").write_text("mine")
        yield from ()

    assert len(list(scatter(batches(), 30, 10, store_schema(20), tmp_path / "s"))) == 3
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


def test_two_jobs_that_write_one_store(vocabulary, write_part, tmp_path):
    """Both ended in tracebacks, because each deleted the temporary files of the other."""
    part = write_part("mine", [draw(0, 30, 20)])
    batches = token_table([[1]] * 30, 20).to_batches()
    shards = scatter(batches, 30, 10, store_schema(20), tmp_path / "s")
    first = next(shards)
    with pytest.raises(UserError, match=r"\.s\.scatter: process \d+ .* is tokenizing; wait for it"):
        tokenized(part, vocabulary, tmp_path / "s")
    assert sum(shard.num_rows for shard in (first, *shards)) == 30
    assert not (tmp_path / ".s.scatter").exists()
    assert len(tokenized(part, vocabulary, tmp_path / "s")) == 30


def test_a_job_that_deletes_its_files_while_another_starts(tmp_path, monkeypatch):
    """A file that was deleted after it was listed was one that no job wrote, to be moved."""
    table = token_table([[1]] * 30, 20)
    shards = scatter(table.to_batches(), 30, 10, store_schema(20), tmp_path / "s")
    next(shards)
    folder, listed = tmp_path / ".s.scatter", Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda path: [folder / "0.arrow", *listed(path)])
    with pytest.raises(UserError, match="is tokenizing; wait"):
        next(scatter(table.to_batches(), 30, 10, store_schema(20), tmp_path / "s"))
