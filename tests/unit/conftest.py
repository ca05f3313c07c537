"""Unit tests do not wait for the disk, which no power failure is to outlive here, and know of no
run beside them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from nodrop.testbed.hosts.rights import USERNS_VARIABLE


@pytest.fixture(autouse=True, scope="session")
def no_waiting_for_the_disk() -> Iterator[None]:
    """Seen: 16,686 calls of fsync took 29 s of the 117 s of five files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda _: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def no_other_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Seen: a plan named a run that measured on the same machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.delenv(USERNS_VARIABLE, raising=False)  # tests of a normal user have it
