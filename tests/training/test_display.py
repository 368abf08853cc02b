"""Plain lines where there is no terminal."""

import pytest

from scsigmoid.training.display import Display, duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (119, "119 s"), (600, "10 min"), (3900, "1 h 05 min"), (183600, "2 d 03 h")],
)
def test_durations(seconds: float, text: str):
    assert duration(seconds) == text


def test_lines_hold_loss_rate_and_time_left(capsys: pytest.CaptureFixture[str]):
    display = Display("sigmoid_2k", first=0, steps=10, seconds=0.0)
    display.step()
    display.show(1, 3.25, 120.0)
    display.close()
    line = capsys.readouterr().err
    assert line.startswith("sigmoid_2k: step 1 of 10, loss 3.2500, 120 cells/s, ")
    assert line.endswith(" left\n")


def test_lines_are_rare_but_the_last_step_is_shown(capsys: pytest.CaptureFixture[str]):
    display = Display("m", first=0, steps=3)
    for step in (1, 2, 3):
        display.show(step, 1.0, 1.0)
    assert capsys.readouterr().err.count("\n") == 1
