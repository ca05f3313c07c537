"""Tests that press Ctrl-C work in a shell's background job, too."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.conftest import hear_ctrl_c

ASK = "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"


@pytest.fixture
def _in_the_background() -> Iterator[None]:
    former = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, former)


def child_ignores() -> bool:
    asked = subprocess.run([sys.executable, "-c", ASK], capture_output=True, check=True)
    return asked.stdout == b"True\n"


@pytest.mark.usefixtures("_in_the_background")
def test_the_programs_of_a_background_job_hear_ctrl_c() -> None:
    assert child_ignores()
    hear_ctrl_c()
    assert not child_ignores()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
