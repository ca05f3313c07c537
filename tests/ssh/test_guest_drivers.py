"""Drivers of NICs that control does not go by, in emulated guests: with NODROP_GUESTS=1."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodrop.ledger.nic_counters import NIC_COUNTERS
from nodrop.results.rundir import open_run
from tests.e2e.conftest import closes
from tests.ssh.guests import Guest, emulated, sender_and_guest
from tests.ssh.pairs import SINK, runs_on

pytestmark = [pytest.mark.timeout(900), emulated]
ALONE = {"e1000e": "virtio_net", "vmxnet3": "virtio_net", "virtio_net": "e1000e"}
"""Driver of the measured port → of the port that control goes by."""
SPREAD = "ethtool -x eth1 2>&1; ethtool -n eth1 rx-flow-hash udp4 2>&1 || :"


@pytest.fixture(scope="module", params=ALONE)
def alone(
    request: pytest.FixtureRequest, programs: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Guest]]:
    """Its port has a driver that control does not go by."""
    folder, driver = tmp_path_factory.mktemp("guest"), request.param
    with sender_and_guest(folder, driver=driver, control_driver=ALONE[driver]) as guest:
        yield driver, guest


def test_a_driver_loaded_anew_has_its_settings_and_closes_its_books(
    alone: tuple[str, Guest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    driver, guest = alone
    shown = guest.said("ethtool", "-S", "eth1").splitlines()
    names = [line.rpartition(":")[0].strip() for line in shown]
    for known in NIC_COUNTERS:
        if driver in known.drivers.split(", "):
            assert any(re.fullmatch(known.name, name) for name in names), (known.name, names)
    if driver == "virtio_net":
        guest.said("ethtool", "-X", "eth1", "hkey", ":".join(["5a"] * 40), "equal", "1")
        guest.said("ethtool", "-N", "eth1", "rx-flow-hash", "udp4", "sd")
    else:
        guest.said("ethtool", "-G", "eth1", "rx", "128")
    spread = guest.said("sh", "-c", SPREAD)
    with runs_on(guest, tmp_path) as run:
        outcome = run('measure.reset="module"', "load.speed=1", text=SINK)
    assert guest.said("sh", "-c", SPREAD) == spread
    for record in outcome.records:
        assert closes(record), record
        assert record.packets.decoded_packets > 0
        assert record.reset_s is not None


@pytest.mark.parametrize("alone", ["e1000e", "vmxnet3"], indirect=True)
def test_a_nic_without_buffers_is_where_packets_were_lost(
    alone: tuple[str, Guest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """QEMU's vmxnet3 throws away what it has no buffer for. Its e1000e waits, and the tap that the
    sender sends out of is full. (So does virtio; then up to a tap's queue is never read, and the
    trial is void.)"""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    driver, guest = alone
    smallest = {"vmxnet3": "32", "e1000e": "80"}
    guest.said("ethtool", "-G", "eth1", "rx", smallest[driver])
    with runs_on(guest, tmp_path) as run:
        speed = 4 if driver == "vmxnet3" else 100
        outcome = run(f"load.speed={speed}", "measure.repetitions=1", text=SINK)
    (record,) = outcome.records
    assert closes(record), record
    ledger = open_run(outcome.directory).detail(record.run, "ledger")
    assert isinstance(ledger, dict)
    lost = {one["name"]: one["place"] for one in ledger["accounts"] if one["kind"] == "lost"}
    assert lost and "path_lost" not in lost
    assert ("rx_dropped_nic" in lost) == (driver == "vmxnet3")
