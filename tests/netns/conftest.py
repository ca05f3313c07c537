"""Needs of a lab in network namespaces; a machine without them says what it lacks."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodrop.errors import LabProblem
from nodrop.testbed.hosts.api import Link
from nodrop.testbed.hosts.journal import DiskJournal
from nodrop.testbed.hosts.node import find_node_binary
from nodrop.testbed.hosts.rights import may_make_namespaces
from nodrop.testbed.labs.netns import NetnsLab
from tests.real_inputs import realmix


@pytest.fixture(scope="session", autouse=True)
def node() -> Path:
    if not may_make_namespaces():
        pytest.skip("needs root, or a host that gives normal users a user namespace")
    for program in ("ip", "ethtool"):
        if shutil.which(program) is None:
            pytest.skip(f"needs {program}")
    try:
        return find_node_binary()
    except LabProblem:
        pytest.skip("needs nodrop-node: `make build`")


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def label() -> str:
    """One per test process: runs side by side must not meet."""
    return f"ndtst{os.getpid()}"


@pytest.fixture
def journal(label: str) -> Iterator[DiskJournal]:
    with DiskJournal.create(label) as journal:
        yield journal


@pytest.fixture
def link(journal: DiskJournal) -> Iterator[Link]:
    with NetnsLab(mtu=3000).up(journal) as link:
        yield link


@pytest.fixture(scope="session")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return realmix(tmp_path_factory)
