"""Words on a Docker daemon that cannot be reached; no daemon is needed for that."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodrop.errors import LabProblem
from nodrop.testbed.setups.docker_engine import _must_listen

SUN_PATH_BYTES = 107


@pytest.mark.parametrize("beyond", [1, 80, 2000])
def test_a_path_that_no_socket_can_have_is_named_as_such(tmp_path: Path, beyond: int) -> None:
    """Python raises an error without a number for it, and so without the system's words."""
    path = f"{tmp_path}/".ljust(SUN_PATH_BYTES + beyond, "d")
    with pytest.raises(LabProblem, match=r"answers at unix:///.*d \(AF_UNIX path too long\)"):
        _must_listen(f"unix://{path}")


def test_a_socket_that_is_not_there() -> None:
    with pytest.raises(LabProblem, match=r"no Docker daemon answers at .* \(No such file"):
        _must_listen("unix:///run/nodrop-no-such.sock")
