"""Device passthrough on a sysfs that is made up: what is missing, the binding, the way back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from nodrop.errors import LabProblem
from nodrop.testbed.hosts.api import UndoAction
from nodrop.testbed.setups.vm_vfio import (
    PciDevice,
    device_of_port,
    handed_over,
    qemu_arguments,
    vfio_problems,
)

NIC = "0000:01:00.0"
SIBLING = "0000:01:00.1"
BRIDGE = "0000:00:01.0"


class Sysfs:
    """A host with one NIC, its bridge and, if asked for, a second function in its group."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.devices = root / "sys/bus/pci/devices"
        (root / "sys/bus/pci").mkdir(parents=True)
        (root / "sys/bus/pci/drivers_probe").touch()
        for driver in ("ixgbe", "vfio-pci"):
            (root / "sys/bus/pci/drivers" / driver).mkdir(parents=True)
            (root / "sys/bus/pci/drivers" / driver / "unbind").touch()
        self.add(NIC, "0x020000", driver="ixgbe")
        self.add(BRIDGE, "0x060400")
        port = root / "sys/class/net/eth1"
        port.mkdir(parents=True)
        (port / "device").symlink_to(self.devices / NIC)

    def add(self, address: str, kind: str, *, driver: str | None = None) -> None:
        folder = self.devices / address
        folder.mkdir(parents=True)
        (folder / "class").write_text(f"{kind}\n")
        (folder / "driver_override").touch()
        members = self.root / "sys/kernel/iommu_groups/7/devices"
        members.mkdir(parents=True, exist_ok=True)
        (members / address).symlink_to(folder)
        (folder / "iommu_group").symlink_to(members.parent)
        if driver:
            self.bind(address, driver)

    def bind(self, address: str, driver: str) -> None:
        link = self.devices / address / "driver"
        link.unlink(missing_ok=True)
        link.symlink_to(self.root / "sys/bus/pci/drivers" / driver)

    def written(self, name: str) -> str:
        return (self.root / "sys/bus/pci" / name).read_text().strip()


class Kernel(PciDevice):
    """Does what a kernel does when drivers_probe is written."""

    sysfs: Sysfs

    def use(self, driver: str) -> None:
        super().use(driver)
        self.sysfs.bind(self.address, driver or "ixgbe")


class Journal:
    label = "test"

    def __init__(self) -> None:
        self.pushed: list[Sequence[str]] = []

    def push(self, *, what: str, action: UndoAction, arguments: Sequence[str] = ()) -> None:
        self.pushed.append([action, *arguments])

    def process(self, pid: int, what: str) -> None: ...
    def undo(self) -> Sequence[str]:
        return []


@pytest.fixture
def sysfs(tmp_path: Path) -> Sysfs:
    return Sysfs(tmp_path)


@pytest.fixture
def nic(sysfs: Sysfs) -> Kernel:
    device = Kernel(NIC, root=sysfs.root)
    device.sysfs = sysfs
    return device


def test_a_host_that_has_everything_has_no_problem(sysfs: Sysfs) -> None:
    """The bridge in the group is no problem."""
    assert vfio_problems(NIC, root=sysfs.root) == []


def test_a_host_without_iommu_and_driver_is_told_both(tmp_path: Path) -> None:
    words = vfio_problems(None, root=tmp_path)
    assert len(words) == 2
    assert "intel_iommu=on" in words[0]
    assert "modprobe vfio-pci" in words[1]


def test_a_shared_group_names_who_shares_it(sysfs: Sysfs) -> None:
    sysfs.add(SIBLING, "0x020000", driver="ixgbe")
    (words,) = vfio_problems(NIC, root=sysfs.root)
    assert SIBLING in words
    assert BRIDGE not in words


def test_a_device_that_is_not_there(sysfs: Sysfs) -> None:
    (words,) = vfio_problems("0000:99:00.0", root=sysfs.root)
    assert "0000:99:00.0" in words


def test_a_ports_device(sysfs: Sysfs) -> None:
    assert device_of_port("eth1", root=sysfs.root) == NIC
    assert device_of_port("veth0", root=sysfs.root) is None


def test_a_virtio_ports_device_is_the_one_on_the_pci_bus(sysfs: Sysfs) -> None:
    virtio = sysfs.devices / NIC / "virtio0"
    virtio.mkdir()
    port = sysfs.root / "sys/class/net/eth2"
    port.mkdir(parents=True)
    (port / "device").symlink_to(virtio)
    assert device_of_port("eth2", root=sysfs.root) == NIC


def test_handed_over_and_given_back(sysfs: Sysfs, nic: Kernel) -> None:
    journal = Journal()
    with handed_over(nic, journal):
        assert nic.driver() == "vfio-pci"
        assert (nic.folder / "driver_override").read_text() == "vfio-pci\n"
        assert (sysfs.root / "sys/bus/pci/drivers/ixgbe/unbind").read_text() == NIC
        assert sysfs.written("drivers_probe") == NIC
        assert journal.pushed[0] == [UndoAction.RESTORE_DRIVER, NIC, "ixgbe"]
    assert nic.driver() == "ixgbe"
    assert (nic.folder / "driver_override").read_text() == "\n"


def test_given_back_where_the_trial_fails(nic: Kernel) -> None:
    with pytest.raises(LabProblem), handed_over(nic, Journal()):
        raise LabProblem("boom")
    assert nic.driver() == "ixgbe"


def test_a_device_that_was_vfios_before_stays_so(sysfs: Sysfs, nic: Kernel) -> None:
    sysfs.bind(NIC, "vfio-pci")
    journal = Journal()
    with handed_over(nic, journal):
        pass
    assert nic.driver() == "vfio-pci"
    assert journal.pushed == []


def test_a_device_that_the_driver_does_not_take(sysfs: Sysfs) -> None:
    stubborn = PciDevice(NIC, root=sysfs.root)
    with pytest.raises(LabProblem, match="was not taken"), handed_over(stubborn, Journal()):
        pass


def test_qemu_is_told_the_address() -> None:
    assert qemu_arguments(NIC) == ("-device", f"vfio-pci,host={NIC}")
