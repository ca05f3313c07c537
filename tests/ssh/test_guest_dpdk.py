"""A whole run of a Suricata that drives the receiving NIC itself, in a guest with an IOMMU.

Minutes of emulation, and an image: `nodrop image build suricata --with dpdk`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodrop.cli.main import exit_code
from nodrop.errors import LabProblem, NodropError
from nodrop.measure.plan import Progress
from nodrop.testbed.images.sut_bits import resolve_bits
from tests.e2e.conftest import closes
from tests.ssh.guests import Guest, emulated, sender_and_guest
from tests.ssh.pairs import runs_on
from tests.ssh.test_guest import pci_address

pytestmark = [emulated, pytest.mark.timeout(1800)]

SURICATA = """
name = "own-nic"
[setup]
kind = "bare-vfio"
[sut]
kind = "suricata"
capture = "dpdk"
[load]
kind = "replay"
trace = "make:demo"
speed = 1
[measure]
sut = "fresh"
repetitions = 1
ready_timeout_s = 300
late_p99_us = 60e6 # these tests are about packets; a machine that tests is busy
late_burst_max_ratio = 1
steal_max_ratio = 1
"""
KILL = """
import os, signal
from pathlib import Path
for path in Path("/proc").glob("[0-9]*/cmdline"):
    if b"nodrop.remote.agent" in path.read_bytes().split(b"\\0"):
        os.kill(int(path.parent.name), signal.SIGKILL)
"""


@pytest.fixture(scope="module", params=["virtio_net", "e1000e"])
def guest(
    request: pytest.FixtureRequest, programs: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guest]:
    try:
        resolve_bits({}, "suricata-dpdk", base=Path())
    except NodropError as missing:
        pytest.skip(f"no image suricata-dpdk: {missing.hint}")
    folder = tmp_path_factory.mktemp("guest")
    with sender_and_guest(folder, driver=request.param, iommu=True) as guest:
        yield guest


def driver_of(guest: Guest, address: str) -> str:
    return Path(guest.said("readlink", f"/sys/bus/pci/devices/{address}/driver").strip()).name


def test_suricata_has_the_nic_to_itself_and_gives_it_back(
    guest: Guest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    address = pci_address(guest)
    before = driver_of(guest, address)
    with runs_on(guest, tmp_path) as run:
        outcome = run(text=SURICATA)
    (record,) = outcome.records
    assert record.outcome == "measured", record
    assert closes(record) and record.cpu_not_valid
    ledger = json.loads((outcome.directory / "runs" / record.run / "ledger.json").read_text())
    hops = {hop["name"]: hop["packets"] for hop in ledger["hops"]}
    assert hops["rx_nic"] is None and hops["socket"] == hops["decoded"] == record.offered.sent
    assert driver_of(guest, address) == before


class KillsThere(Progress):
    """Ends nodrop on the receiver while Suricata has the NIC, as no one could undo."""

    def __init__(self, guest: Guest, address: str) -> None:
        self._guest, self._address = guest, address
        self.driver = ""

    def phase(self, name: str) -> None:
        if name == "offer":
            self.driver = driver_of(self._guest, self._address)
            self._guest.said("python3", "-c", KILL)


def test_a_nic_of_a_killed_nodrop_is_given_back_by_undo(
    guest: Guest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    address, shown = pci_address(guest), guest.shown()
    before, kills = driver_of(guest, address), KillsThere(guest, address)
    with runs_on(guest, tmp_path) as run:
        with pytest.raises(LabProblem, match="nodrop there has ended"):
            run(text=SURICATA, progress=kills)
        assert kills.driver == "vfio-pci"
        assert exit_code(["undo", guest.lab(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert f"undone: receiver root@sensor1: driver of {address}" in said
    assert "port eth1 at home" in said
    assert (driver_of(guest, address), guest.shown()) == (before, shown)
