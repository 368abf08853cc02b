"""Signals that come once, and again."""

import os
import signal

import pytest

from scsigmoid.training.launch import stop_requests


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_a_signal_is_noted(number: signal.Signals):
    before = signal.getsignal(number)
    with stop_requests() as request:
        assert not request.signal
        os.kill(os.getpid(), number)
        assert request.signal == number
        assert request.name == number.name
    assert signal.getsignal(number) == before


def test_the_same_word_from_torchrun_and_the_batch_system_is_one():
    with stop_requests() as request:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
        assert request.signal == signal.SIGTERM


def test_a_second_ctrl_c_acts_at_once():
    with stop_requests():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
