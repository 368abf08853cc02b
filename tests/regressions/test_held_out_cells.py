"""No held-out cell is trained on, whatever the genes of the other files are."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from stages import configured, local_corpus, make_manifest, write_cells
from tenx import tenx_file

from scsigmoid import progress
from scsigmoid.config.schema import Dataset, LocalFiles
from scsigmoid.corpus.h5ad import open_cells
from scsigmoid.corpus.manifest import check_not_trained_on, write_evaluation_row
from scsigmoid.corpus.metadata import are_in_ranges, read_manifest
from scsigmoid.errors import UserError

GENES = np.array([f"ENSG{index:011d}" for index in range(200)])
MOUSE = np.array([f"ENSMUSG{index:011d}" for index in range(200)])
N_CELLS = 60
Write = Callable[..., LocalFiles]


def draw(seed: int, cells: int = N_CELLS) -> np.ndarray:
    """Return counts of cells that are all different. Genes differ in their mean counts."""
    generator = np.random.default_rng(seed)
    return generator.poisson(generator.permutation(np.geomspace(0.1, 9, len(GENES))), (cells, 200))


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes counts as h5ad."""

    def write_file(
        name: str, counts: Any, genes: Any = GENES, *, held_out: Any = False, var: Any = None
    ) -> LocalFiles:
        x = counts if sp.issparse(counts) else sp.csr_matrix(counts.astype(np.float32))
        write_cells(tmp_path / f"{name}.h5ad", x, None, [*genes], var=var)
        return LocalFiles(files=str(tmp_path / f"{name}.h5ad"), held_out=held_out)

    return write_file


@pytest.fixture
def trained_cells(tmp_path: Path) -> Callable[..., tuple[dict[str, list[int]], dict[str, Any]]]:
    """Return a function that makes a manifest.

    It returns the rows of the training cells by file name, and the summary.
    """

    def make(*entries: LocalFiles) -> tuple[dict[str, list[int]], dict[str, Any]]:
        names = [Path(entry.files).stem for entry in entries if entry.held_out]
        make_manifest(
            local_corpus(*entries), {name: Dataset(title=name) for name in names}, tmp_path
        )
        rows = {}
        for row in read_manifest(tmp_path / "manifest.csv"):
            if row.role == "training":
                excluded = are_in_ranges(np.arange(9999), row.excluded)
                count = int(row.cells) + int(excluded.sum())
                rows[Path(row.location).stem] = np.flatnonzero(~excluded[:count]).tolist()
        return rows, json.loads((tmp_path / "manifest.json").read_text())

    return make


def third_file(kind: str, write: Write) -> list[LocalFiles]:
    """Return a file that shares few genes with other files."""
    if kind == "mouse":
        return [write("third", draw(9), MOUSE)]
    if kind == "panel":
        return [write("third", draw(9)[:, 50:80], GENES[50:80])]
    if kind == "held-out panel":
        return [write("third", draw(9)[:, 50:80], GENES[50:80], held_out=True)]
    return []


THIRD = pytest.mark.parametrize("third", ["none", "mouse", "panel", "held-out panel"])


@THIRD
def test_a_third_file_does_not_hide_held_out_cells(third, write, trained_cells):
    held_out = write("original", draw(0), held_out=True)
    both = np.vstack([draw(0), draw(1)])[:, 20:170]  # the second half is not held out
    rows, summary = trained_cells(
        held_out, write("copy", both, GENES[20:170]), *third_file(third, write)
    )
    assert rows["copy"] == [*range(N_CELLS, 2 * N_CELLS)]
    [excluded] = summary["excluded"].values()
    assert excluded == {"held_out": N_CELLS, "repeated": 0}


@THIRD
def test_a_third_file_does_not_hide_repeated_cells(third, write, trained_cells):
    entries = write("original", draw(0)), write("copy", draw(0)[:, 20:170], GENES[20:170])
    rows, summary = trained_cells(*entries, *third_file(third, write))
    assert rows["original"] == [*range(N_CELLS)]
    assert "copy" not in rows
    assert summary["excluded"] == {entries[1].files: {"held_out": 0, "repeated": N_CELLS}}


def as_10x(path: Path, counts: np.ndarray) -> LocalFiles:
    """Write the first genes as a 10x file, next to antibodies."""
    kinds = ["Gene Expression"] * counts.shape[1] + ["Antibody Capture"] * 3
    tenx_file(path, np.hstack([counts, np.full((len(counts), 3), 7)]), kinds)
    return LocalFiles(files=str(path))


def permuted(write: Write, _: Path) -> LocalFiles:
    order = np.random.default_rng(5).permutation(np.arange(20, 170))
    return write("copy", draw(0)[::-1][:, order], GENES[order])


def versions(write: Write, _: Path) -> LocalFiles:
    return write("copy", draw(0)[:, 30:], [f"{gene}.{n}" for n, gene in enumerate(GENES[30:])])


def symbols(write: Write, _: Path) -> LocalFiles:
    names = [f"GENE{index}" for index in range(150)]
    return write("copy", draw(0)[:, :150], names, var={"gene_ids": GENES[:150]})


def tenx(_: Write, folder: Path) -> LocalFiles:
    return as_10x(folder / "copy.h5", draw(0)[:, :150])


def panel(write: Write, _: Path) -> LocalFiles:
    return write("copy", draw(0)[7:40, :100:2], GENES[:100:2])


def expressed_genes(write: Write, _: Path) -> LocalFiles:
    counts = draw(0)
    expressed = counts.sum(axis=0) > 20
    return write("copy", sp.csc_matrix(counts[:, expressed].astype(np.int64)), GENES[expressed])


def with_more_genes(write: Write, _: Path) -> LocalFiles:
    counts = np.hstack([draw(0)[:, 40:], draw(3)[:, :30]])
    return write("copy", counts, [*GENES[40:], *(f"ENSG{index:011d}" for index in range(300, 330))])


DISGUISES = [permuted, versions, symbols, tenx, panel, expressed_genes, with_more_genes]


@pytest.mark.parametrize("disguise", DISGUISES, ids=lambda disguise: disguise.__name__)
def test_disguises(disguise, write, trained_cells, tmp_path):
    """Next to two held-out files with other genes, and a mouse file."""
    rows, _ = trained_cells(
        write("original", draw(0), held_out=True),
        write("other", draw(4)[:, 10:], GENES[10:], held_out=True),
        disguise(write, tmp_path),
        write("mouse", draw(9), MOUSE),
    )
    assert rows == {"mouse": [*range(N_CELLS)]}


def test_two_held_out_files_with_other_genes(write, trained_cells):
    rows, summary = trained_cells(
        write("first", draw(0)[:, :120], GENES[:120], held_out=True),
        write("second", draw(1)[:, 90:], GENES[90:], held_out=True),
        write("both", np.vstack([draw(0), draw(1), draw(2)])),
        write("filtered", np.vstack([draw(2), draw(1), draw(3)])[:, 60:], GENES[60:]),
    )
    assert rows == {
        "both": [*range(2 * N_CELLS, 3 * N_CELLS)],
        "filtered": [*range(2 * N_CELLS, 3 * N_CELLS)],
    }
    counts = [(value["held_out"], value["repeated"]) for value in summary["excluded"].values()]
    assert counts == [(2 * N_CELLS, 0), (N_CELLS, N_CELLS)]


def test_cells_with_few_counts(write, trained_cells):
    """They are compared if the filter of genes removed genes without counts only."""
    few = np.zeros((4, 200), int)
    few[:, :20] = np.random.default_rng(0).integers(0, 2, (4, 20))
    few[0, 9:] = 0  # under 10 genes
    rows, _ = trained_cells(
        write("original", np.vstack([draw(0), few]), held_out=True),
        write("copy", np.vstack([few, draw(1)])[:, :150], GENES[:150]),
        write("mouse", draw(9), MOUSE),
    )
    assert rows["copy"] == [*range(4, 4 + N_CELLS)]


def test_cells_that_cannot_be_compared_are_counted(write, trained_cells, capfd):
    entries = [
        write("human", draw(0), held_out=0.5),
        write("mouse", draw(1), MOUSE),
        write("panel", draw(2)[:, :9], GENES[:9]),
    ]
    n_panel = int((draw(2)[:, :9].sum(axis=1) > 0).sum())
    rows, summary = trained_cells(*entries)
    assert set(rows) == {"human", "mouse", "panel"}
    human, mouse, panel = (entry.files for entry in entries)
    assert summary["not_compared"] == {
        human: {"held_out": 0, "training": N_CELLS // 2},
        mouse: {"held_out": N_CELLS, "training": N_CELLS},
        panel: {"held_out": n_panel, "training": n_panel},
    }
    log = capfd.readouterr().err.splitlines()
    lines = [line for line in log if "could not be compared" in line]
    assert len(lines) == 2  # with held-out cells, and with other training cells
    [line] = [line for line in lines if "held-out" in line]
    assert mouse in line
    assert human not in line

    # Files with the same genes, or with enough shared genes, are compared completely.
    others = write("a", draw(3), held_out=0.5), write("b", draw(4)[:, 40:], GENES[40:])
    assert "not_compared" not in trained_cells(*others)[1]


def test_many_files_with_different_genes(write, trained_cells):
    """More different genes than groups. Each file has copies of held-out cells."""
    generator = np.random.default_rng(0)
    entries = [write("original", draw(0), held_out=True), write("mouse", draw(99), MOUSE)]
    for index in range(35):
        genes = np.sort(generator.permutation(200)[:185])
        counts = np.vstack([draw(0)[index : index + 2], draw(10 + index, cells=3)])
        entries.append(write(f"copy{index}", counts[:, genes], GENES[genes]))
    rows, _ = trained_cells(*entries)
    assert rows.pop("mouse") == [*range(N_CELLS)]
    assert rows == {f"copy{index}": [2, 3, 4] for index in range(35)}


def test_an_evaluation_dataset_that_is_added_later(write, trained_cells, tmp_path):
    filtered = np.vstack([draw(0), draw(1)])[:, 20:170]
    trained = write("trained", filtered, GENES[20:170]), write("mouse", draw(9), MOUSE)
    trained_cells(*trained)
    corpus = local_corpus(*trained, write("added", draw(0), held_out=True))
    config = configured(corpus, {"added": Dataset(title="Added")})
    write_evaluation_row("added", config, tmp_path, tmp_path / "added.csv")
    with pytest.raises(UserError, match=rf"{N_CELLS} training cells of .*trained\.h5ad"):
        check_not_trained_on(tmp_path / "added.csv", tmp_path / "manifest.csv", config)


def test_symbols_next_to_ensembl_ids(write, trained_cells):
    """They cannot be compared, so the files are refused, also next to a third file."""
    names = [f"GENE{index}" for index in range(200)]
    with pytest.raises(UserError, match=r"0 of 200 genes"):
        trained_cells(
            write("original", draw(0), held_out=True),
            write("copy", draw(0), names),
            write("mouse", draw(9), MOUSE),
        )
    assert open_cells(write("copy", draw(0), names).files).n_cells == N_CELLS


@pytest.mark.parametrize("genes", [200, 150])
def test_cells_that_are_held_out_twice(
    genes: int, write: Write, trained_cells: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    """Scores counted them twice, without a warning. The advice leads to a run without it."""
    copy = write("copy", draw(0)[:, :genes], GENES[:genes], held_out=0.5)
    entries = [write("cells", draw(0), held_out=0.5), copy]
    trained_cells(*entries)
    message = "warning: 30 held-out cells have the same counts as other held-out cells"
    assert message in capfd.readouterr().err
    for once in ([entries[0]], [entries[0], copy.model_copy(update={"held_out": False})]):
        rows, _ = trained_cells(*once)
        assert "other held-out" not in capfd.readouterr().err
        assert [name for name, cells in rows.items() if cells] == ["cells"]


def test_several_datasets_of_a_file(
    write: Write, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its cells are not copies, but a warning said so."""
    path = write("held_out", draw(0)).files
    datasets = {
        name: Dataset(title=name, file=path, label="cell_type") for name in ("fine", "coarse")
    }
    make_manifest(local_corpus(write("cells", draw(1))), datasets, tmp_path)
    assert "warning" not in capfd.readouterr().err


def test_held_out_values_in_training_cells(
    tmp_path: Path, trained_cells: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    """Cells of a held-out donor were trained on: in another file, or in another spelling."""
    donors = {"a": ["D1", "D2", "d2 "], "b": ["D2", "D3", "D3"], "c": ["D1", "D3", "D3"]}
    for number, (name, values) in enumerate(donors.items()):
        obs = {"donor_id": values * 20, "cell_type": ["T", "T", "T", "B", "B", "B"] * 10}
        write_cells(tmp_path / f"{name}.h5ad", draw(number), None, [*GENES], obs)
    entries = {name: LocalFiles(files=str(tmp_path / f"{name}.h5ad")) for name in donors}
    held_out = entries["a"].model_copy(update={"held_out": "donor_id=D2"})
    trained_cells(held_out, entries["b"], entries["c"])
    # One line for all files, because many files may have cells of the donor.
    [warning] = [line for line in capfd.readouterr().err.splitlines() if "donor_id" in line]
    assert re.findall(r"(\w)\.h5ad: 20 with donor_id '(.*?)'", warning) == [
        ("a", "d2 "),
        ("b", "D2"),
    ]
    with pytest.raises(UserError, match=r"c\.h5ad: no cell has donor_id 'D2'; .* an entry without"):
        trained_cells(held_out, entries["c"].model_copy(update={"held_out": "donor_id=D2"}))


def test_held_out_numbers_in_training_cells(
    tmp_path: Path, trained_cells: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    """Donor 1 is an integer in the file with held-out cells, and a float in another file."""
    for number, (name, dtype) in enumerate({"a": int, "b": float}.items()):
        obs = {"donor_id": np.arange(N_CELLS, dtype=dtype) % 3, "cell_type": ["T", "B"] * 30}
        write_cells(tmp_path / f"{name}.h5ad", draw(number), None, [*GENES], obs)
    files = [str(tmp_path / f"{name}.h5ad") for name in "ab"]
    trained_cells(LocalFiles(files=files[0], held_out="donor_id=1"), LocalFiles(files=files[1]))
    assert "b.h5ad: 20 with donor_id '1.0'" in capfd.readouterr().err


def test_added_datasets_do_not_repeat_the_warnings_of_the_manifest(
    write: Write,
    trained_cells: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Each added dataset printed all of them on the terminal. New warnings are printed."""
    twice = write("twice", np.vstack([draw(0), draw(0)]))
    trained_cells(twice)
    assert "60 the same as other training cells" in capfd.readouterr().err
    added = [write("one", draw(1), held_out=True), write("two", draw(2), MOUSE, held_out=True)]
    config = configured(
        local_corpus(twice, *added), {"one": Dataset(title="1"), "two": Dataset(title="2")}
    )
    for name in config.datasets:
        write_evaluation_row(name, config, tmp_path, tmp_path / f"{name}.csv")
        with (tmp_path / "terminal").open("w") as terminal:
            monkeypatch.setattr(progress, "terminal", terminal)
            check_not_trained_on(tmp_path / f"{name}.csv", tmp_path / "manifest.csv", config)
        [warning] = (tmp_path / "terminal").read_text().splitlines()
        assert "could not be compared" in warning
