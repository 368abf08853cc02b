"""Requests in several threads."""

import time

import pytest

from scsigmoid.errors import UserError


def test_one_failure_ends_the_others(web):
    def work(item: int) -> int:
        if item == 0:
            raise UserError("no")
        while True:
            web.check_stopped()
            time.sleep(0.01)

    with pytest.raises(UserError, match="no"):
        web.each(work, range(3), unit="files")
