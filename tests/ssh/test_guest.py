"""A guest with a kernel and a NIC driver of its own as the receiver, over real ssh, emulated.

One small case always; with NODROP_GUESTS=1 whole runs on each driver, some minutes each.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodrop import plugins
from nodrop.cli.main import exit_code
from nodrop.config.lab_file import load_lab
from nodrop.elsewhere.rebooting import Rebooting
from nodrop.errors import NotReady
from nodrop.labs.seam import Distant
from nodrop.ledger.nic_counters import NIC_COUNTERS
from tests.e2e.conftest import closes
from tests.ssh.guests import Guest, sender_and_guest
from tests.ssh.pairs import SINK, runs_on

pytestmark = pytest.mark.timeout(900)
emulated = pytest.mark.skipif(
    os.environ.get("NODROP_GUESTS") != "1", reason="needs NODROP_GUESTS=1: minutes of emulation"
)


@pytest.fixture(scope="module")
def virtio(programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    with sender_and_guest(tmp_path_factory.mktemp("guest")) as guest:
        yield guest


def test_the_cable_of_a_guest_with_several_queues_is_proved(
    virtio: Guest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = virtio.lab(tmp_path)
    assert exit_code(["lab", "check", where]) == 0
    said = capsys.readouterr().out
    assert "marked frames of 60 to 1514 bytes went from cab0 of sender gen1 to eth1" in said
    assert "marked frames of 60 to 1514 bytes went from eth1 of receiver" in said
    assert len(virtio.said("sh", "-c", "ls -d /sys/class/net/eth1/queues/rx-*").split()) > 1


@emulated
def test_a_kernel_that_boots_is_found_as_it_was(virtio: Guest, tmp_path: Path) -> None:
    lab = plugins.build_lab(load_lab(virtio.lab(tmp_path)))
    assert isinstance(lab, Distant)
    before = virtio.said("cat", "/proc/sys/kernel/random/boot_id")
    Rebooting(lab, lambda _words: None).reboot()
    assert virtio.said("cat", "/proc/sys/kernel/random/boot_id") != before


@emulated
@pytest.mark.parametrize(
    ("driver", "reset"), [("virtio_net", "reboot"), ("e1000e", "module"), ("vmxnet3", "module")]
)
def test_books_close_on_a_real_driver(
    driver: str,
    reset: str,
    programs: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with sender_and_guest(tmp_path, driver=driver) as guest, runs_on(guest, tmp_path) as run:
        shown = guest.said("ethtool", "-S", "eth1").splitlines()
        names = [line.rpartition(":")[0].strip() for line in shown]
        for known in NIC_COUNTERS:
            if driver in known.drivers.split(", "):
                assert any(re.fullmatch(known.name, name) for name in names), (known.name, names)
        outcome = run(f'measure.reset="{reset}"', "load.speed=1", text=SINK)
    for record in outcome.records:
        assert closes(record), record
        assert record.reset_s is not None


@emulated
def test_a_driver_that_control_goes_by_is_not_unloaded(
    virtio: Guest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with runs_on(virtio, tmp_path) as run, pytest.raises(NotReady) as refused:
        run('measure.reset="module"')
    assert "virtio_net also drives eth0, which would go down with eth1" in str(refused.value)
