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
from nodrop.testbed.labs import driver, port_settings

FIXED, GRO, CHECKSUM = "rx-lro", "rx-gro", "rx-checksum"
FEATURES = (FIXED, GRO, CHECKSUM)
"""Features of the driver; the first one is fixed."""
CHANNELS, RINGS, COALESCE, PAUSE = (
    struct.pack(f"={len(words)}I", *words)
    for words in (
        (0, 0, 0, 8, 0, 0, 0, 2),
        (4096, 0, 0, 4096, 512, 0, 0, 256),
        (3, 8, *20 * [0]),
        (1, 0, 0),
    )
)
STRUCTS = {0x3C: CHANNELS, 0x10: RINGS, 0x0E: COALESCE, 0x12: PAUSE}
"""Command GET → what a driver answers behind it. The command SET is one more."""
SETTINGS = (
    f"channels=3c000000{CHANNELS.hex()} rings=10000000{RINGS.hex()} "
    f"coalesce=0e000000{COALESCE.hex()} pause=12000000{PAUSE.hex()} "
    "feature/rx-gro=00 feature/rx-checksum=11"
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


class Driver:
    """A driver's answers to the ioctls of ethtool. Its table has four entries, its key five bytes;
    of flows it hashes UDP alone."""

    def __init__(self) -> None:
        self.structs = dict(STRUCTS)
        self.requested, self.active = 0b100, 0b100
        self.hashes: bytes | None = None
        self.fields: dict[int, int] = {}
        self.rules = 0
        self.takes = True
        self.did: list[str] = []

    def hashing(self) -> None:
        self.hashes = struct.pack("=B7x4I5s", 1, 0, 1, 0, 1, b"fresh")
        self.fields = {2: 0x30}

    def answer(self, asked: bytes, more: int) -> bytes:
        command, word = struct.unpack("=II", asked[:8].ljust(8, b"\0"))
        head = struct.pack("=I", command)
        match command:
            case 0x3C | 0x10 | 0x0E | 0x12 if command in self.structs:
                return head + self.structs[command]
            case 0x3D | 0x11 | 0x0F | 0x13:
                self.did.append(f"{command:#x}")
                if self.takes:
                    self.structs[command - 1] = asked[4:]
                return asked
            case 0x37 if self.structs:
                return struct.pack("=IIQI", command, 0, 1 << 4, len(FEATURES))
            case 0x1B:
                return asked + b"".join(name.encode().ljust(32, b"\0") for name in FEATURES)
            case 0x3A:
                return asked + struct.pack("=4I", 0b111, self.requested, self.active, 0b001)
            case 0x3B:
                _, _, valid, wanted = struct.unpack("=4I", asked)
                self.did.append(f"{FEATURES[valid.bit_length() - 1]} {wanted == valid}")
                self.requested = self.active = self.requested & ~valid | wanted
                return asked
            case 0x46 if self.hashes is not None:
                sizes = struct.unpack_from("=II", asked, 8)
                assert sizes == ((4, 5) if more else (0, 0))
                return struct.pack("=IIII", command, 0, 4, 5) + self.hashes[: 8 + more]
            case 0x47:
                assert struct.unpack_from("=III", asked, 4) == (0, 4, 5)
                if self.takes:
                    self.hashes = asked[16:]
                return asked
            case 0x29 if word in self.fields:
                return struct.pack("=IIQ", command, word, self.fields[word])
            case 0x2A:
                self.fields[word] = struct.unpack_from("=Q", asked, 8)[0]
                return asked
            case 0x2E:
                return struct.pack("=184xI4x", self.rules)
        raise OSError(95, "Operation not supported")


class Nic:
    """A host with NICs in a made /sys, whose modprobe takes them away and brings them back."""

    def __init__(self, root: Path) -> None:
        self.nics, self.modules = root / "net", root / "module"
        self.nics.mkdir()
        self.modules.mkdir()
        self.driver = Driver()
        self.did = self.driver.did
        self.after: dict[int, bytes] = {}
        """Structs that its driver has otherwise once it was loaded anew."""

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
            self.driver.structs |= self.after
            if self.after:
                self.driver.requested = self.driver.active = 0b110
            if self.driver.hashes is not None:
                self.driver.hashing()

    def ask(self, _port: str, asked: bytes, *, more: int = 0) -> bytes:
        return self.driver.answer(asked, more)


@pytest.fixture
def nic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nic:
    nic = Nic(tmp_path)
    nic.add("cab0", "e1000e")
    monkeypatch.setattr(driver, "NICS", nic.nics)
    monkeypatch.setattr(driver, "MODULES", nic.modules)
    monkeypatch.setattr(driver, "must", nic.must)
    monkeypatch.setattr(port_settings, "ask", nic.ask)
    monkeypatch.setattr(driver, "ipv6_off", lambda _port: "1")
    monkeypatch.setattr(driver, "set_ipv6_off", lambda _port, said: nic.did.append(f"ipv6 {said}"))
    monkeypatch.setattr(shutil, "which", lambda _program: "/sbin/modprobe")
    return nic


def test_it_is_journaled_then_loaded_and_the_port_is_as_before(nic: Nic) -> None:
    nic.after = {
        0x10: struct.pack("=8I", 4096, 0, 0, 4096, 256, 0, 0, 256),
        0x3C: struct.pack("=8I", 0, 0, 0, 8, 0, 0, 0, 1),
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
        "rx-gro False",
        "0x11",
        "0x3d",
        "ipv6 1",
        "ip link set cab0 up",
    ]


def test_what_is_as_before_is_not_set_again(nic: Nic) -> None:
    driver.bring_back("cab0", "e1000e", "9000", SETTINGS, "1")
    others = ("modprobe ", "ip link ", "ipv6 ")
    assert not [argv for argv in nic.did if not argv.startswith(others)]


def test_a_driver_that_has_no_settings_is_loaded_anew(nic: Nic) -> None:
    nic.driver.structs = {}
    assert driver.settings("cab0") == ""
    driver.bring_back("cab0", "e1000e", "9000", "", "1")


def test_what_cannot_be_put_back_ends_the_trial(nic: Nic) -> None:
    nic.after[0x10], nic.driver.takes = bytes(32), False
    with pytest.raises(LabProblem) as caught:
        driver.load_anew("cab0", Journal())
    assert "its driver does not let that be put back: rings" in str(caught.value)


def test_hashes_that_were_set_are_put_back(nic: Nic) -> None:
    nic.driver.hashing()
    nic.driver.hashes = wanted = struct.pack("=B7x4I5s", 1, 1, 1, 1, 0, b"ours!")
    nic.driver.fields[2] = 0xF0
    journal = Journal()
    driver.load_anew("cab0", journal)
    assert (nic.driver.hashes, nic.driver.fields) == (wanted, {2: 0xF0})
    said = dict(word.split("=") for word in journal.pushed[0][4].split())
    assert said["rss"].startswith("46000000") and said["rss"].endswith(wanted.hex())
    assert said["udp4"] == struct.pack("=IIQ", 0x29, 2, 0xF0).hex()


def test_hashes_that_cannot_be_put_back_end_the_trial(nic: Nic) -> None:
    nic.driver.hashing()
    nic.driver.hashes = nic.driver.hashes.replace(b"fresh", b"ours!")
    nic.driver.takes = False
    with pytest.raises(LabProblem) as caught:
        driver.load_anew("cab0", Journal())
    assert "cab0 is otherwise, and its driver does not let that be put back: rss" in str(
        caught.value
    )


def test_flow_rules_are_refused(nic: Nic) -> None:
    assert driver.problems("cab0") == []
    nic.driver.rules = 3
    (problem,) = driver.problems("cab0")
    assert "cab0 has 3 flow rules (ethtool -n cab0), which go with its driver" in problem


@pytest.mark.parametrize("hashing", [False, True])
def test_what_is_journaled_is_what_undo_takes(
    nic: Nic, monkeypatch: pytest.MonkeyPatch, hashing: bool
) -> None:
    if hashing:
        nic.driver.hashing()
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
