"""Cell types: columns, templates that join columns, and wanted types."""

import pytest

from scsigmoid.config.schema import Dataset
from scsigmoid.corpus.h5ad import open_cells
from scsigmoid.corpus.labels import cell_types, evaluated_label
from scsigmoid.errors import UserError

WANTED = ["Immune", "Adult immune", "Adult valve interstitial"]
AUTHORS = ["immune cells", "Immune (adult)", "adult_valve_interstitial"]
OBS = {
    "cell_type": ["leukocyte", "leukocyte", "valve cell"] * 10,
    "age": ["", "Adult", "Adult"] * 10,
    "kind": ["Immune", "immune", "valve interstitial cell"] * 10,
    "annotation": AUTHORS * 10,
    "broad": ["Immune", "Adult imune", "Neural"] * 10,
    "number": list(range(30)),
}


@pytest.fixture
def cells(counts, write_h5ad):
    return lambda **columns: open_cells(write_h5ad(counts, obs={**OBS, **columns}))


def chosen(cells, label, types=()):
    return evaluated_label(cells, "heart", Dataset(title="Heart", label=label, types=list(types)))


def test_columns_are_joined(cells):
    assert cell_types(cells(), "{age}: {kind}")[:3].tolist() == [
        "", "Adult: immune", "Adult: valve interstitial cell",
    ]  # fmt: skip
    joined = cell_types(cells(), "{age} {kind}", WANTED)
    assert joined[:3].tolist() == ["", *WANTED[1:]]


@pytest.mark.parametrize("absent", [None, "", "nan", "NA", "Unknown"])
def test_missing_labels(absent, cells):
    types = cell_types(cells(cell_type=["a", absent, "b"] * 10), "cell_type")
    assert types[:3].tolist() == ["a", "", "b"]


def test_first_existing_label(cells, capsys):
    assert chosen(cells(), ["author", "{age} {none}", "kind", "cell_type"]) == "kind"
    few = cells(cell_type=["a", "b", None] * 10)
    assert chosen(few, "cell_type") == "cell_type"
    assert (
        "heart: 2 cell types from 'cell_type'; 10 of 30 cells have none" in capsys.readouterr().err
    )


def test_label_with_most_wanted_types(cells, capsys):
    assert chosen(cells(), ["cell_type", "kind", "annotation"], WANTED) == "annotation"
    assert chosen(cells(), ["cell_type", "*"], WANTED) == "annotation"
    assert "'immune cells' is spelled as datasets.heart.types spells it" in capsys.readouterr().err
    # the first of several with equally many types
    assert chosen(cells(cell_type=WANTED * 10), ["cell_type", "*"], WANTED) == "cell_type"


def test_missing_types(cells):
    with pytest.raises(UserError) as caught:
        chosen(cells(), "cell_type", WANTED)
    message = str(caught.value)
    assert "'cell_type' lacks the cell types 'Immune', 'Adult immune', 'Adult valve" in message
    assert "nearest columns: 'annotation' (3 of 3 types), " in message
    assert "'broad' (1 of 3 types)" in message
    assert "number" not in message
    with pytest.raises(UserError, match=r"has no column 'none' and lacks .* 'annotation' \(3 of 3"):
        chosen(cells(), "none", WANTED)


def test_missing_column(cells):
    with pytest.raises(UserError, match=r"no column 'celltype'.*its columns: 'cell_type'"):
        chosen(cells(), ["celltype", "none"])


def test_single_cell_type(cells):
    with pytest.raises(UserError, match=r"all 30 evaluated cells have the cell_type 'T'; eval"):
        chosen(cells(cell_type=["T", None, "T"] * 10), "cell_type")
    with pytest.raises(UserError, match=r"all 30 evaluated cells have the cell_type none; eval"):
        chosen(cells(cell_type=["", "unknown", "nan"] * 10), "cell_type")
