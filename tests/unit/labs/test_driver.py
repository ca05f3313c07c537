"""A driver loaded anew: refused where it would take more than the port, and put back as it was."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nodrop.errors import LabProblem
from nodrop.hosts.seam import Action
from nodrop.labs import driver

FEATURES = """\
Features for cab0:
rx-checksumming: off
tx-checksumming: on
scatter-gather: off [fixed]
generic-receive-offload: off
rx-vlan-offload: on
"""


class Journal:
    label = "l"

    def __init__(self) -> None:
        self.pushed: list[list[str]] = []

    def push(self, *, what: str, action: Action, arguments: Sequence[str] = ()) -> None:
        assert what == "port cab0 with its driver e1000e"
        self.pushed.append([action, *arguments])

    def process(self, pid: int, what: str) -> None:
        raise AssertionError

    def undo(self) -> Sequence[str]:
        raise AssertionError


class Nic:
    """A host with NICs in a made /sys, whose modprobe takes them away and brings them back."""

    def __init__(self, root: Path) -> None:
        self.nics, self.modules = root / "net", root / "module"
        self.nics.mkdir()
        self.modules.mkdir()
        self.did: list[str] = []
        self.shown = {option: f"{option} is so\n" for option in driver.SHOWN}
        self.shown["--show-features"] = FEATURES
        self.after: dict[str, str] = {}

    def add(self, port: str, module: str) -> None:
        (self.modules / module / "holders").mkdir(parents=True, exist_ok=True)
        (self.nics / port / "device/driver").mkdir(parents=True)
        (self.nics / port / "device/driver/module").symlink_to(self.modules / module)
        (self.nics / port / "mtu").write_text("9000\n")
        self.bind((self.nics / port / "device").resolve(), module, f"0000:{port}")

    def bind(self, device: Path, module: str, name: str) -> None:
        """As /sys shows it in every network namespace."""
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


@pytest.fixture
def nic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nic:
    nic = Nic(tmp_path)
    nic.add("cab0", "e1000e")
    monkeypatch.setattr(driver, "NICS", nic.nics)
    monkeypatch.setattr(driver, "MODULES", nic.modules)
    monkeypatch.setattr(driver, "must", nic.must)
    monkeypatch.setattr(driver, "_ethtool", lambda option, _port: nic.shown[option])
    monkeypatch.setattr(driver, "ipv6_off", lambda _port: "1")
    monkeypatch.setattr(driver, "set_ipv6_off", lambda _port, said: nic.did.append(f"ipv6 {said}"))
    monkeypatch.setattr(driver.shutil, "which", lambda _program: "/sbin/modprobe")
    return nic


def test_it_is_journaled_then_loaded_and_the_port_is_as_before(nic: Nic) -> None:
    assert driver.problems("cab0") == []
    journal = Journal()
    driver.load_anew("cab0", journal)
    arguments = ["cab0", "e1000e", "9000", "rx=off tx=on gro=off", "1"]
    assert journal.pushed == [[Action.LOAD_DRIVER, *arguments]]
    assert nic.did == [
        "modprobe --remove e1000e",
        "modprobe e1000e",
        "ip link set cab0 mtu 9000",
        "ethtool -K cab0 rx off",
        "ethtool -K cab0 tx on",
        "ethtool -K cab0 gro off",
        "ipv6 1",
        "ip link set cab0 up",
    ]


def test_what_is_otherwise_after_it_ends_the_trial(nic: Nic) -> None:
    nic.after["--show-ring"] = "RX: 256\n"
    with pytest.raises(LabProblem) as caught:
        driver.load_anew("cab0", Journal())
    assert "cab0 is otherwise: ethtool --show-ring says RX: 256" in str(caught.value)


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
    monkeypatch.setattr(driver.shutil, "which", lambda _program: None)
    assert driver.problems("cab0") == ["program modprobe is missing; install the package kmod"]


@pytest.mark.parametrize("devices", [["0000:05:00.0"], ["0000:05:00.0", "0000:05:00.1"]])
def test_a_port_in_another_namespace_is_not_taken_from_it(nic: Nic, devices: list[str]) -> None:
    for device in devices:
        nic.bind(nic.nics.parent / "pci" / device, "e1000e", device)
    (problem,) = driver.problems("cab0")
    assert f"e1000e also drives {', '.join(devices)}, whose ports may be" in problem
