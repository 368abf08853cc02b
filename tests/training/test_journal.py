"""The journal's round trip and its errors."""

import numpy as np
from small_training import row

from scsigmoid.training.journal import COLUMNS, Journal, as_csv, read_journal


def test_round_trip_keeps_every_bit(tmp_path):
    journal = Journal(tmp_path / "journal.csv", {"torch": "2.13", "size": '{"layers": 2}'})
    for step, loss in ((1, 0.1 + 0.2), (5, float("inf")), (10, float("nan"))):
        journal.append(row(step, loss, gradient_norm=1 / 3))
    columns, header = read_journal(journal.path)
    assert header == {"torch": "2.13", "size": '{"layers": 2}'}
    assert tuple(columns) == COLUMNS
    assert columns["step"].tolist() == [1, 5, 10]
    assert columns["step"].dtype == np.int64
    assert columns["loss"][0] == 0.1 + 0.2
    assert np.isposinf(columns["loss"][1])
    assert np.isnan(columns["loss"][2])
    text = journal.path.read_text()
    assert "\n5,inf,0.3333333333333333," in text
    journal.write()
    assert journal.path.read_text() == text


def test_an_incomplete_line_is_ignored(tmp_path):
    journal = Journal(tmp_path / "journal.csv", {}, as_csv([row(1, 3.0)]))
    with journal.path.open("a") as handle:
        handle.write("2,3.1")
    assert read_journal(journal.path)[0]["step"].tolist() == [1]
