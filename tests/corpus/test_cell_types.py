"""Cell types: columns and wanted types."""

import pytest

from scsigmoid.config.schema import Dataset
from scsigmoid.corpus.cell_types import choose_label
from scsigmoid.corpus.h5ad import open_cells
from scsigmoid.errors import UserError

WANTED = ["Immune", "Adult immune", "Adult valve interstitial"]
AUTHORS = ["immune cells", "Immune (adult)", "adult_valve_interstitial"]
OBS = {
    "cell_type": ["leukocyte", "leukocyte", "valve cell"] * 10,
    "kind": ["Immune", "immune", "valve interstitial cell"] * 10,
    "annotation": AUTHORS * 10,
    "broad": ["Immune", "Adult imune", "Neural"] * 10,
    "number": list(range(30)),
}


@pytest.fixture
def cells(counts, write_h5ad):
    return lambda **columns: open_cells(write_h5ad(counts, obs={**OBS, **columns}))


def choose(cells, label, types=()):
    return choose_label(cells, "heart", Dataset(title="Heart", label=label, types=list(types)))


def test_column_of_batches(cells, capsys):
    def choose_batch(name):
        dataset = Dataset(title="Heart", label="cell_type", batch=name)
        return choose_label(cells(plate=["x", "y", None] * 10, one=["x"] * 30), "heart", dataset)

    assert choose_batch("plate") == "cell_type"
    assert "heart: 2 batches from 'plate'" in capsys.readouterr().err
    choose_batch("one")
    assert "warning: heart: 1 batches from 'one'" in capsys.readouterr().err
    with pytest.raises(UserError, match="no column 'donor' for the batches"):
        choose_batch("donor")
    with pytest.raises(UserError, match="'number' has 30 values for 30 evaluated cells"):
        choose_batch("number")


def test_first_existing_label(cells, capsys):
    assert choose(cells(), ["author", "kind", "cell_type"]) == "kind"
    assert choose(cells(cell_type=["a", "b", None] * 10), "cell_type") == "cell_type"
    message = "heart: 2 cell types from 'cell_type'; 10 of 30 cells have none"
    assert message in capsys.readouterr().err


def test_label_with_most_wanted_types(cells, capsys):
    assert choose(cells(), ["cell_type", "kind", "annotation"], WANTED) == "annotation"
    assert choose(cells(), ["cell_type", "*"], WANTED) == "annotation"
    assert "'immune cells' is spelled as datasets.heart.types spells it" in capsys.readouterr().err
    # The first of several with equally many types is chosen.
    assert choose(cells(cell_type=WANTED * 10), ["cell_type", "*"], WANTED) == "cell_type"


def test_missing_types(cells):
    lacking = "'cell_type' lacks the cell types 'Immune', 'Adult immune', 'Adult valve inter"
    nearest = r"'annotation' \(3 of 3 types\), .*'broad' \(1 of 3 types\)"
    with pytest.raises(UserError, match=f"{lacking}.*nearest columns: {nearest}"):
        choose(cells(), "cell_type", WANTED)
    with pytest.raises(UserError, match=r"has no column 'none' and lacks .* 'annotation' \(3 of 3"):
        choose(cells(), "none", WANTED)


def test_missing_column(cells):
    with pytest.raises(UserError, match=r"no column 'celltype'.*its columns: 'cell_type'"):
        choose(cells(), ["celltype", "none"])
