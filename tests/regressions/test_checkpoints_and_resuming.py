"""Work that was lost: files that cannot be read, and runs that continue."""

import errno
import os

import pytest

from scsigmoid.errors import UserError
from scsigmoid.files import parsing


def test_parsing_names_damage_but_passes_errors_of_the_file_system():
    message = r"a\.npz: damaged, or not an archive \(bad bytes\)"
    with pytest.raises(UserError, match=message), parsing("a.npz", "an archive"):
        raise ValueError("bad bytes")
    for number in (errno.EMFILE, errno.EACCES, errno.ESTALE):
        with pytest.raises(OSError, match=os.strerror(number)), parsing("a.npz", "an archive"):
            raise OSError(number, os.strerror(number))
