"""A file is never waited for."""

import os
from pathlib import Path

import pytest

from nodrop.untrusted.folder import RefusedFile, _whole


def test_a_regular_file_that_has_nothing_to_read_now_is_refused() -> None:
    """/proc/kmsg is one: opened without blocking, a read gives None."""
    reading, writing = os.pipe2(os.O_NONBLOCK)
    try:
        with (
            os.fdopen(reading, "rb") as file,
            pytest.raises(RefusedFile, match="nothing to read"),
        ):
            _whole(file, Path("kmsg"), 100)
    finally:
        os.close(writing)
