"""Drivers of NICs that control does not go by, in emulated guests: with NODROP_GUESTS=1."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodrop.audit.audit_answer import AuditAnswer, answer
from nodrop.audit.reading import judged
from nodrop.ledger.nic_counters import NIC_COUNTERS
from nodrop.results.rundir import open_run
from nodrop.sensor.snapshot import Snapshot
from nodrop.testbed.hosts.node import PROGRAM
from nodrop.testbed.hosts.ssh import NODE_FOLDER
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
    """A guest whose port has another driver than the port of its control."""
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


# --- nodrop audit: findings of real drivers ------------------------------------------------------

SENSOR = Path(__file__).with_name("guest_sensor.py").read_text()
SYMMETRIC = ":".join(["6d:5a"] * 20)
SEND = """
import socket, sys
port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
port.bind(("cab0", 0))
head = bytes.fromhex("ffffffffffff 020000000001 0800 4500002e000040004011000008080808 0a4d0002")
for number in range(int(sys.argv[1])):
    udp = (1024 + number % 6000).to_bytes(2, "big") + bytes.fromhex("0035001a0000")
    port.send(head + udp + bytes(18))
"""
AS_NOBODY = """
import os, sys
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
os.execvp(sys.argv[1], sys.argv[1:])
"""
STATE = """\
for option in -k -g -l -c -a -x -i; do ethtool $option eth1 2>&1; done
ip -d link; ip address; cut -d' ' -f1 /proc/modules; cat /proc/sys/net/core/* 2>/dev/null
for n in /proc/irq/*/smp_affinity_list; do echo $n; cat $n; done
cat /sys/class/net/eth1/queues/*/rps_cpus
"""


class Sensor:
    """A guest on which audit is asked after each change."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest

    def captures(self, name: str = "Suricata-Main", **asked: int) -> None:
        words = [f"{key}={value}" for key, value in asked.items()]
        self.guest.said("python3", "-c", SENSOR, name, *words)

    def alone(self, **asked: int) -> None:
        """One Suricata and nothing beside it."""
        self.guest.said("sh", "-c", "[ ! -e /run/sensor.pid ] || kill $(cat /run/sensor.pid); "
                        "rm -f /run/sensor.pid")  # fmt: skip
        self.captures(**asked)

    def receives(self, packets: int) -> None:
        self.guest.sender.run("python3", "-c", SEND, str(packets))

    def audit(self) -> dict[str, Any]:
        program = Path(sys.executable).with_name("nodrop")
        argv = [str(program), "audit", "root@sensor1", "--port", "eth1"]
        argv += ["--ssh-config", str(self.guest.folder / "ssh_config"), "--json"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
        assert done.stdout, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def findings(self) -> dict[str, str]:
        return {one["id"]: one["says"] for one in self.audit()["findings"]}

    def audit_as_nobody(self) -> AuditAnswer:
        """Audits by the node that the audit as root has left."""
        (node,) = self.guest.said("sh", "-c", f"echo {NODE_FOLDER}/*/{PROGRAM}").split()
        argv = [node, "probe", "--what", "sensor", "--port", "eth1"]
        said = self.guest.said("python3", "-c", AS_NOBODY, *argv)
        look = json.loads(said.splitlines()[-1])["sensor"]
        return answer(judged(Snapshot.of(look), ports=["eth1"]), took_s=0.0)


def test_an_audit_finds_what_was_set_wrong_and_nothing_on_a_well_set_port(
    alone: tuple[str, Guest],
) -> None:
    driver, guest = alone
    sensor, said = Sensor(guest), guest.said
    said("ip", "link", "set", "eth1", "promisc", "on")
    if driver == "virtio_net":
        said("ethtool", "-X", "eth1", "hkey", SYMMETRIC)
    sensor.alone()
    before = said("sh", "-c", STATE)
    well_set = sensor.audit()
    notes = {"driver-counters"} if driver == "vmxnet3" else set()
    assert {one["id"] for one in well_set["findings"]} == notes, well_set["findings"]
    assert well_set["exit_code"] == 0 and well_set["missing"] == []
    unprivileged = sensor.audit_as_nobody()
    assert {one.id for one in unprivileged.findings} == notes
    assert unprivileged.exit_code == 6
    assert any("who holds which packet socket" in one.what for one in unprivileged.missing)
    assert said("sh", "-c", STATE) == before

    sensor.alone(blocks=2)
    assert sensor.findings()["ring-tolerance"].startswith("its ring holds 20 ms")
    sensor.alone()
    said("ethtool", "-K", "eth1", "gro", "on")
    if driver == "vmxnet3":
        said("ethtool", "-K", "eth1", "rx", "on", "lro", "on")
    merging = sensor.findings()["merged-frames"]
    assert "gro is on" in merging and ("lro is on" in merging) == (driver == "vmxnet3")
    said("/port")
    said("ip", "link", "set", "eth1", "promisc", "off")
    assert {"not-promiscuous"} | notes == sensor.findings().keys()
    said("ip", "link", "set", "eth1", "promisc", "on")
    sensor.captures()
    sensor.captures("tcpdump", blocks=0, group=0)
    found = sensor.findings()
    assert found.keys() == {"fanout-clash", "second-listener"} | notes
    assert "tcpdump (pid" in found["second-listener"]
    sensor.alone()
    if driver == "virtio_net":
        said("ethtool", "-X", "eth1", "hkey", ":".join(f"{n:02x}" for n in range(7, 47)))
        sensor.alone(kind=5, sockets=3)
        said("sh", "-c", "for n in /proc/irq/*/virtio*; do echo 0 >${n%/*}/smp_affinity_list; done")
        sensor.receives(400)
        found = sensor.findings()
        assert found.keys() == {"asymmetric-hash", "readers-and-queues", "irq-one-cpu"}
        assert "1 of 2 flows" in found["asymmetric-hash"]
        assert found["readers-and-queues"] == "3 readers for 2 queues: 1 get no packet"
        assert found["irq-one-cpu"] == "CPU 0 receives all 2 queues"
    if driver == "vmxnet3":
        said("ethtool", "-G", "eth1", "rx", "32")
        sensor.receives(40_000)
        assert "died in the NIC" in sensor.findings()["nic-drops"]
