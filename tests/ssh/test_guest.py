"""A guest with a kernel and a NIC driver of its own as the receiver, over real ssh, emulated.

One small case always; with NODROP_GUESTS=1 whole runs on each driver, some minutes each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from nodrop.cli.main import exit_code
from nodrop.errors import NotReady
from nodrop.measure.plan import Progress
from nodrop.results.rundir import open_run
from nodrop.testbed.images.sut_bits import resolve_bits
from nodrop.testbed.labs.nic import ONCE_BACK
from tests.e2e.conftest import SURICATA, closes, suricata
from tests.ssh.guests import Guest, emulated, sender_and_guest
from tests.ssh.pairs import SINK, runs_on

__all__: Sequence[str] = ("suricata",)

pytestmark = pytest.mark.timeout(900)


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
@pytest.mark.parametrize("reset", ["none", "reboot"])
def test_books_close_in_a_guest(
    reset: str, virtio: Guest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with runs_on(virtio, tmp_path) as run:
        outcome = run(f'measure.reset="{reset}"', "load.speed=1", text=SINK)
    for record in outcome.records:
        assert closes(record), record
        assert record.packets.decoded_packets > 0
        assert (record.reset_s is None) == (reset == "none")


@emulated
def test_real_suricata_comes_to_a_guest_and_closes_its_books(
    virtio: Guest, suricata: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert virtio.said("sh", "-c", "ls /etc/os-release || :") == "", "no image is its own"
    with runs_on(virtio, tmp_path) as run:
        outcome = run("load.speed=1", "sut.ring_size=20000", text=SURICATA, trace="make:demo")
    (record,) = outcome.records
    assert (record.outcome, record.packets.residual_packets) == ("measured", 0), record
    assert closes(record)
    assert record.packets.decoded_packets > 0
    bits = open_run(outcome.directory).manifest["bits"]
    assert [one["sha256"] for one in bits] == [resolve_bits({}, "suricata", base=Path()).sha256]


class Vanishes(Progress):
    """The NIC goes away in the middle of the first trial, wherever its port is."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest
        self._device = pci_address(guest)

    def phase(self, name: str) -> None:
        if name == "offer" and self._device:
            self._guest.said("sh", "-c", f"echo 1 >/sys/bus/pci/devices/{self._device}/remove")
            self._device = ""


def pci_address(guest: Guest) -> str:
    shown = guest.said("readlink", "-f", "/sys/class/net/eth1/device")
    return re.findall(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", shown)[-1]


@emulated
def test_a_nic_that_goes_away_is_one_sentence_and_resume_goes_on(
    virtio: Guest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with runs_on(virtio, tmp_path) as run:
        gone = run("load.speed=1", text=SINK, progress=Vanishes(virtio))
        first, second = (record.error for record in gone.records)
        assert first == (
            "port eth1 went away during the trial: taken out, failed, or without its driver; "
            f"{ONCE_BACK}"
        )
        assert second == (
            f"there is no port eth1 any more: its NIC or its driver went away; {ONCE_BACK}"
        )
        virtio.nothing_is_left()
        virtio.said("sh", "-c", "echo 1 >/sys/bus/pci/rescan; /port")
        outcome = run("load.speed=1", text=SINK, resume=True)
    assert [record.outcome for record in outcome.records] == ["measured", "measured"]
    assert all(closes(record) for record in outcome.records)


@emulated
def test_a_driver_that_control_goes_by_is_not_unloaded(
    virtio: Guest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with runs_on(virtio, tmp_path) as run, pytest.raises(NotReady) as refused:
        run('measure.reset="module"')
    assert "virtio_net also drives eth0, which would go down with eth1" in str(refused.value)
