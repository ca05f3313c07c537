"""A driver loaded anew: refused where it would take more than the port, and put back as it was."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nodrop.errors import LabProblem
from nodrop.testbed.hosts import reversal
from nodrop.testbed.hosts.api import Completed, UndoAction
from nodrop.testbed.labs import driver

FEATURES = """\
Features for cab0:
rx-checksumming: off
tx-checksumming: off
\ttx-checksum-ipv4: off [fixed]
\ttx-checksum-ip-generic: off [requested on]
scatter-gather: off [fixed]
rx-vlan-offload: on
"""
RINGS = """\
Ring parameters for cab0:
Pre-set maximums:
RX:\t\t4096
RX Mini:\tn/a
TX:\t\t4096
Current hardware settings:
RX:\t\t512
RX Mini:\tn/a
TX:\t\t256
TX Push:\toff
"""
CHANNELS = """\
Channel parameters for cab0:
Pre-set maximums:
Combined:\t8
Current hardware settings:
RX:\t\tn/a
Combined:\t2
"""
COALESCING = """\
Coalesce parameters for cab0:
Adaptive RX: off  TX: n/a
stats-block-usecs:\tn/a

rx-usecs:\t3
rx-frame-low:\t8

CQE mode RX: n/a  TX: n/a
"""
PAUSE = """\
Pause parameters for cab0:
Autonegotiate:\ton
RX:\t\toff
TX:\t\toff
RX negotiated: on
TX negotiated: on
"""
SETTINGS = (
    "-l combined=2 -g rx=512 -g tx=256 -g tx-push=off -c adaptive-rx=off -c rx-usecs=3 "
    "-c rx-frames-low=8 -a autoneg=on -a rx=off -a tx=off -k rx-checksumming=off "
    "-k tx-checksum-ip-generic=off -k rx-vlan-offload=on"
)


class Journal:
    label = "l"

    def __init__(self) -> None:
        self.pushed: list[list[str]] = []

    def push(self, *, what: str, action: UndoAction, arguments: Sequence[str] = ()) -> None:
        assert what == "port cab0 with its driver e1000e"
        self.pushed.append([action, *arguments])

    def process(self, pid: int, what: str) -> None:
        raise AssertionError

    def undo(self) -> Sequence[str]:
        raise AssertionError


class Spread:
    """A driver's answers to the ioctls of struct ethtool_rxfh and struct ethtool_rxnfc: a table of
    four entries, a key of five bytes, the fields of UDP."""

    def __init__(self) -> None:
        self.hashes = struct.pack("=B7x4I5s", 1, 0, 1, 0, 1, b"fresh")
        self.fields = {2: 0x30}
        self.rules = 0
        self.takes = True

    def loaded_anew(self) -> None:
        self.hashes, self.fields = Spread().hashes, Spread().fields

    def answer(self, asked: bytes, more: int) -> bytes | None:
        command, flow = struct.unpack("=II", asked[:8].ljust(8, b"\0"))
        match command:
            case 0x46:
                sizes = struct.unpack_from("=II", asked, 8)
                assert sizes == ((4, 5) if more else (0, 0))
                return struct.pack("=IIII", command, 0, 4, 5) + self.hashes[: 8 + more]
            case 0x47 if self.takes:
                assert struct.unpack_from("=III", asked, 4) == (0, 4, 5)
                self.hashes = asked[16:]
            case 0x29 if flow in self.fields:
                return struct.pack("=IIQ", command, flow, self.fields[flow])
            case 0x2A:
                self.fields[flow] = struct.unpack_from("=Q", asked, 8)[0]
            case 0x2E:
                return struct.pack("=184xI4x", self.rules)
        return None


class Nic:
    """A host with NICs in a made /sys, whose modprobe takes them away and brings them back."""

    def __init__(self, root: Path) -> None:
        self.nics, self.modules = root / "net", root / "module"
        self.nics.mkdir()
        self.modules.mkdir()
        self.did: list[str] = []
        self.before = {
            "-k": FEATURES, "-g": RINGS, "-l": CHANNELS, "-c": COALESCING, "-a": PAUSE
        }  # fmt: skip
        self.shown = dict(self.before)
        self.after: dict[str, str] = {}
        self.takes_settings = True
        self.spread: Spread | None = None
        """None: a driver that says nothing of it."""

    def add(self, port: str, module: str) -> None:
        (self.modules / module / "holders").mkdir(parents=True, exist_ok=True)
        (self.nics / port / "device/driver").mkdir(parents=True)
        (self.nics / port / "device/driver/module").symlink_to(self.modules / module)
        (self.nics / port / "mtu").write_text("9000\n")
        self.bind((self.nics / port / "device").resolve(), module, f"0000:{port}")

    def bind(self, device: Path, module: str, name: str) -> None:
        """Binds a device as /sys shows it in every network namespace."""
        driver = self.modules / module / "drivers" / f"pci:{module}"
        driver.mkdir(parents=True, exist_ok=True)
        (driver / name).symlink_to(device)
        if not (driver / "module").is_symlink():
            (driver / "module").symlink_to(self.modules / module)

    def must(self, argv: list[str], **_: Any) -> None:
        self.did.append(" ".join(argv))
        if argv[:2] == ["modprobe", "--remove"]:
            (self.nics / "cab0").rename(self.nics.parent / "gone")
        elif argv[0] == "modprobe" and (self.nics.parent / "gone").exists():
            (self.nics.parent / "gone").rename(self.nics / "cab0")
            self.shown |= self.after
            if self.spread:
                self.spread.loaded_anew()

    def ioctl(self, _port: str, asked: bytes, *, more: int = 0) -> bytes | None:
        return self.spread.answer(asked, more) if self.spread else None

    def ethtool(self, option: str, *argv: str) -> str:
        if option in self.shown:
            return self.shown[option]
        self.did.append(" ".join(["ethtool", option, *argv]))
        if self.takes_settings:
            self.shown[option.lower()] = self.before[option.lower()]
        return ""


@pytest.fixture
def nic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nic:
    nic = Nic(tmp_path)
    nic.add("cab0", "e1000e")
    monkeypatch.setattr(driver, "NICS", nic.nics)
    monkeypatch.setattr(driver, "MODULES", nic.modules)
    monkeypatch.setattr(driver, "must", nic.must)
    monkeypatch.setattr(driver, "_ethtool", nic.ethtool)
    monkeypatch.setattr(driver, "ioctl", nic.ioctl)
    monkeypatch.setattr(driver, "ipv6_off", lambda _port: "1")
    monkeypatch.setattr(driver, "set_ipv6_off", lambda _port, said: nic.did.append(f"ipv6 {said}"))
    monkeypatch.setattr(shutil, "which", lambda _program: "/sbin/modprobe")
    return nic


def test_it_is_journaled_then_loaded_and_the_port_is_as_before(nic: Nic) -> None:
    nic.after = {
        "-g": RINGS.replace("512", "256"),
        "-k": FEATURES.replace("ming: off", "ming: on").replace("generic: off", "generic: on"),
        "-l": CHANNELS.replace("\t2", "\t1"),
    }
    assert driver.problems("cab0") == []
    journal = Journal()
    driver.load_anew("cab0", journal)
    arguments = ["cab0", "e1000e", "9000", SETTINGS, "1"]
    assert journal.pushed == [[UndoAction.LOAD_DRIVER, *arguments]]
    assert nic.did == [
        "modprobe --remove e1000e",
        "modprobe e1000e",
        "ip link set cab0 mtu 9000",
        "ethtool -L cab0 combined 2",
        "ethtool -G cab0 rx 512",
        "ethtool -K cab0 rx-checksumming off tx-checksum-ip-generic off",
        "ipv6 1",
        "ip link set cab0 up",
    ]


def test_what_is_as_before_is_not_set_again(nic: Nic) -> None:
    driver.bring_back("cab0", "e1000e", "9000", SETTINGS, "1")
    assert not [argv for argv in nic.did if argv.startswith("ethtool")]


def test_a_driver_that_has_no_settings_is_loaded_anew(nic: Nic) -> None:
    nic.shown = dict.fromkeys(nic.shown, "")
    assert driver.settings("cab0") == ""
    driver.bring_back("cab0", "e1000e", "9000", "", "1")


def test_what_cannot_be_put_back_ends_the_trial(nic: Nic) -> None:
    nic.after["-g"], nic.takes_settings = RINGS.replace("512", "256"), False
    with pytest.raises(LabProblem) as caught:
        driver.load_anew("cab0", Journal())
    assert "cab0 is otherwise, and `ethtool -G cab0 rx 512` did not" in str(caught.value)


def test_hashes_that_were_set_are_put_back(nic: Nic) -> None:
    nic.spread = Spread()
    nic.spread.hashes = wanted = struct.pack("=B7x4I5s", 1, 1, 1, 1, 0, b"ours!")
    nic.spread.fields[2] = 0xF0
    journal = Journal()
    driver.load_anew("cab0", journal)
    assert (nic.spread.hashes, nic.spread.fields) == (wanted, {2: 0xF0})
    words = journal.pushed[0][4].split()
    assert words[-4::2] == ["-x", "-x"]
    assert words[-3].startswith("rss=46000000") and words[-3].endswith(wanted.hex())
    assert words[-1] == f"udp4={struct.pack('=IIQ', 0x29, 2, 0xF0).hex()}"


def test_hashes_that_cannot_be_put_back_end_the_trial(nic: Nic) -> None:
    nic.spread = Spread()
    nic.spread.hashes = nic.spread.hashes.replace(b"fresh", b"ours!")
    nic.spread.takes = False
    with pytest.raises(LabProblem) as caught:
        driver.load_anew("cab0", Journal())
    assert "cab0 spreads packets over its queues otherwise" in str(caught.value)
    assert "does not let that be put back: rss (ethtool -x, -n)" in str(caught.value)


def test_flow_rules_are_refused(nic: Nic) -> None:
    nic.spread = Spread()
    assert driver.problems("cab0") == []
    nic.spread.rules = 3
    (problem,) = driver.problems("cab0")
    assert "cab0 has 3 flow rules (ethtool -n cab0), which go with its driver" in problem


@pytest.mark.parametrize("spread", [None, Spread()])
def test_what_is_journaled_is_what_undo_takes(
    nic: Nic, monkeypatch: pytest.MonkeyPatch, spread: Spread | None
) -> None:
    nic.spread = spread
    arguments, ran = ["cab0", "e1000e", "9000", driver.settings("cab0"), "1"], []

    def run(argv: Sequence[str], **_: Any) -> Completed:
        ran.append(argv[-5:])
        return Completed(argv=argv, returncode=0, stdout="", stderr="", seconds=0.0)

    monkeypatch.setattr(reversal, "run_command", run)
    assert reversal.reverse(UndoAction.LOAD_DRIVER, arguments, label="l")
    assert ran == [arguments]


def test_a_port_that_does_not_come_back_is_one_sentence(
    nic: Nic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "BACK_TIMEOUT_S", 0.0)
    monkeypatch.setattr(driver, "must", lambda *_, **__: None)
    with pytest.raises(LabProblem, match="eth9 is not back 0 s after e1000e was loaded"):
        driver.bring_back("eth9", "e1000e", "1500", "", "")


def test_a_veth_and_a_driver_that_others_need_are_refused(nic: Nic) -> None:
    (nic.nics / "veth0").mkdir()
    assert "veth0 has no driver that could be loaded anew" in driver.problems("veth0")[0]
    nic.add("mgmt", "e1000e")
    assert "e1000e also drives mgmt, which would go down with cab0" in driver.problems("cab0")[0]


def test_a_driver_that_another_module_uses_is_refused(nic: Nic) -> None:
    (nic.modules / "e1000e/holders/offload").mkdir()
    assert driver.problems("cab0") == ["measure.reset: e1000e is in use by offload"]


def test_without_modprobe_its_package_is_named(nic: Nic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _program: None)
    assert driver.problems("cab0") == ["program modprobe is missing; install the package kmod"]


@pytest.mark.parametrize("devices", [["0000:05:00.0"], ["0000:05:00.0", "0000:05:00.1"]])
def test_a_port_in_another_namespace_is_not_taken_from_it(nic: Nic, devices: list[str]) -> None:
    for device in devices:
        nic.bind(nic.nics.parent / "pci" / device, "e1000e", device)
    (problem,) = driver.problems("cab0")
    assert f"e1000e also drives {', '.join(devices)}, whose ports may be" in problem
