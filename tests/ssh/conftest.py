"""Real sshd, as real root: a user namespace has no users to log in."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest

from nodrop.errors import LabProblem
from nodrop.testbed.hosts.node import find_node_binary
from nodrop.testbed.load.replay import Replay
from nodrop.testbed.load.tcpreplay import Tcpreplay
from tests.ssh.machines import SSHD, Machines, two_machines
from tests.ssh.pairs import Pair, receiver_here, receiver_there


@pytest.fixture(scope="session")
def programs(real_root: None) -> None:
    for program in (SSHD, "ssh", "sudo", "ip", "ethtool", "nft", "setpriv", "nsenter"):
        if shutil.which(program) is None:
            pytest.skip(f"needs {program} (tools/system-packages test)")
    try:
        find_node_binary()
    except LabProblem:
        pytest.skip("needs nodrop-node: `make build`")


@pytest.fixture(scope="module")
def machines(programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Two machines with a switch in their cable; for looks at hosts, not for runs."""
    with two_machines(tmp_path_factory.mktemp("ssh")) as machines:
        yield machines


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that tests is busy: a sender that is driven from here may take longer than it was
    asked to."""
    for generator in (Replay, Tcpreplay):
        monkeypatch.setattr(generator, "late_ratio", 100.0)


@pytest.fixture(autouse=True)
def sockets(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Folder of the sockets of ssh's connections; none is left."""
    runtime = Path(mkdtemp(prefix="nodrop-", dir="/tmp"))  # a socket's path has 107 characters
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    yield runtime
    left = [path for path in runtime.rglob("*") if not path.is_dir()]
    shutil.rmtree(runtime)
    assert not left, "sockets of ssh are left"


@pytest.fixture(scope="module")
def here(programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """The receiver is this machine."""
    with receiver_here(tmp_path_factory.mktemp("here")) as pair:
        yield pair


@pytest.fixture(scope="module")
def there(programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """The receiver is elsewhere, as the sender is."""
    with receiver_there(tmp_path_factory.mktemp("there")) as pair:
        yield pair
