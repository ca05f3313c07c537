"""A virtual machine that owns the receiving NIC: no macvtap, no QEMU on the way of a packet.

The NIC leaves this host for as long as the trial lasts, so it cannot be read from here; its
counters are the guest's.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, WithJsonSchema

from nodrop.config.options import check
from nodrop.errors import LabProblem
from nodrop.ledger.hops import Account, Hop, Place
from nodrop.testbed.hosts.api import LabPort, Link, UndoAction, UndoJournal
from nodrop.testbed.images.image_tree import Bits
from nodrop.testbed.setups.api import Limits, PlaceReading
from nodrop.testbed.setups.guest_process import GUEST_SOFTNET, guest_reading, softnet_books
from nodrop.testbed.setups.vm import GUEST_NIC, Vm, VmEnv, VmOptions

ROOT = Path("/")
DRIVER = "vfio-pci"
BRIDGE_CLASS = "0x0604"
"""PCI bridges may share a group with the device: they are not handed over."""


class PciDevice:
    """A PCI device with an address such as 0000:01:00.0. `root` is / except in tests."""

    def __init__(self, address: str, *, root: Path = ROOT) -> None:
        self.address = address
        self._root = root
        self.folder = root / "sys/bus/pci/devices" / address
        self._drivers = root / "sys/bus/pci"

    def exists(self) -> bool:
        return self.folder.is_dir()

    def driver(self) -> str | None:
        link = self.folder / "driver"
        return link.resolve().name if link.is_symlink() else None

    def module(self) -> str:
        """Kernel module of the device's driver; "" for a driver that is built into the kernel."""
        link = self.folder / "driver" / "module"
        return link.resolve().name if link.exists() else ""

    def group(self) -> str | None:
        link = self.folder / "iommu_group"
        return link.resolve().name if link.is_symlink() else None

    def companions(self) -> list[str]:
        """Other devices of its IOMMU group: they can reach its memory, so all go or none."""
        members = self.folder / "iommu_group" / "devices"
        if not members.is_dir():
            return []
        others = (path for path in members.iterdir() if path.name != self.address)
        return sorted(path.name for path in others if not self._is_bridge(path))

    def use(self, driver: str) -> None:
        """Takes the device from its driver and gives it to another. An empty name lets the kernel
        choose, as it does at boot."""
        try:
            (self.folder / "driver_override").write_text(f"{driver}\n")
            unbind = self.folder / "driver" / "unbind"
            if unbind.exists():
                unbind.write_text(self.address)
            (self._drivers / "drivers_probe").write_text(self.address)
        except OSError as error:
            raise LabProblem(
                f"cannot give {self.address} to {driver or 'its driver'}: {error.strerror}",
                hint="run as root; see dmesg",
            ) from error

    def give(self, user: int) -> None:
        """Lets a program that is not root's have it. The group's file is there as long as it is
        bound to vfio-pci, so nothing has to be undone."""
        os.chown(self._root / "dev/vfio" / (self.group() or ""), user, user)

    def restore(self, driver: str) -> None:
        """Back to the driver it had; nothing to do if it has it."""
        if self.driver() != driver:
            self.use("")

    def _is_bridge(self, path: Path) -> bool:
        kind = path / "class"
        return kind.is_file() and kind.read_text().startswith(BRIDGE_CLASS)


def device_of_port(port: str, *, root: Path = ROOT) -> str | None:
    """PCI address of a network interface; None for a virtual one."""
    link = root / "sys/class/net" / port / "device"
    if not link.is_symlink():
        return None
    # A virtio NIC is a device on a bus of its own, below the one on the PCI bus.
    device = link.resolve()
    names = (folder.name for folder in (device, device.parent))
    return next((name for name in names if PciDevice(name, root=root).exists()), None)


def vfio_problems(address: str | None, *, root: Path = ROOT) -> Sequence[str]:
    """Why the device cannot be handed to a guest here, each in words a user can act on."""
    found = []
    groups = root / "sys/kernel/iommu_groups"
    if not groups.is_dir() or not any(groups.iterdir()):
        found.append(
            "this host has no IOMMU groups: switch VT-d or AMD-Vi on in its firmware and boot with "
            "intel_iommu=on or amd_iommu=on; inside a virtual machine its host must offer one"
        )
    if not (root / "sys/bus/pci/drivers" / DRIVER).is_dir():
        found.append(f"the driver {DRIVER} is not loaded: `modprobe {DRIVER}`")
    if address is None:
        return found
    device = PciDevice(address, root=root)
    if not device.exists():
        return [*found, f"setup.device: there is no PCI device {address}; see `lspci -D`"]
    if device.group() is None and not found:
        found.append(f"{address} is in no IOMMU group: it cannot be isolated")
    if companions := device.companions():
        found.append(
            f"{address} shares its IOMMU group with {', '.join(companions)}: "
            "move the card to another slot, or hand over all of them"
        )
    return found


@contextmanager
def handed_over(
    device: PciDevice, journal: UndoJournal, *, user: int | None = None
) -> Iterator[None]:
    """Bound to vfio-pci meanwhile, and `user`'s; the way back is in the journal before anything is
    changed."""
    former = device.driver()
    if former == DRIVER:
        yield
        return
    journal.push(
        what=f"driver of {device.address}",
        action=UndoAction.RESTORE_DRIVER,
        arguments=[device.address, former or ""],
    )
    try:
        device.use(DRIVER)
        if device.driver() != DRIVER:
            raise LabProblem(f"{device.address} was not taken by {DRIVER}", hint="see dmesg")
        if user is not None:
            device.give(user)
        yield
    finally:
        device.restore(former or "")


def qemu_arguments(address: str) -> tuple[str, ...]:
    return ("-device", f"vfio-pci,host={address}")


def main(arguments: Sequence[str]) -> int:
    match arguments:
        case ["restore", address, driver]:
            device = PciDevice(address)
            if device.exists():
                device.restore(driver)
            return 0
    print("usage: python -m nodrop.testbed.setups.vm_vfio restore DEVICE DRIVER", file=sys.stderr)  # noqa: T201
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))


PCI_PATTERN = r"^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$"


def _pci_address(text: str) -> str:
    if not re.fullmatch(PCI_PATTERN, text):
        raise ValueError("must be a PCI address such as 0000:01:00.0, in lower case")
    return text


PciAddress = Annotated[
    str, AfterValidator(_pci_address), WithJsonSchema({"type": "string", "pattern": PCI_PATTERN})
]


class VfioOptions(VmOptions):
    device: PciAddress | None = None
    """PCI address such as "0000:01:00.0"; without it, the receiving port's own."""


class VmVfio(Vm):
    """A Setup (setups/api.py)."""

    name = "vm-vfio"
    places: Sequence[Place] = (GUEST_SOFTNET,)
    alone = "the receiving NIC leaves this host, and nothing here can share its packets"
    heeds_cpus = True
    several_ports = False

    def __init__(self, options: Mapping[str, Any] | None = None, *, base: Path = Path()) -> None:
        self.options: VfioOptions = check(VfioOptions, options or {}, table="setup", base=base)

    def problems(self, bits: Bits | None, limits: Limits) -> Sequence[str]:
        return [*vfio_problems(self.options.device), *super().problems(bits, limits)]

    @contextmanager
    def provision(
        self, link: Link, *, bits: Bits | None, limits: Limits, work: Path, journal: UndoJournal
    ) -> Iterator[VmEnv]:
        address = self.options.device or device_of_port(link.rx.name)
        if address is None:
            raise LabProblem(
                f"the receiving port {link.rx.name} is no PCI device that a guest could own",
                hint='setup vm-vfio needs a lab with real NICs; "vm" works with any port',
            )
        with ExitStack() as stack:
            stack.enter_context(handed_over(PciDevice(address), journal))
            accelerator, machine = self._machine(link, bits, limits)
            machine = replace(machine, devices=qemu_arguments(address))
            env = VfioEnv(
                link, machine, accelerator, self.options, bits, work=work, journal=journal
            )
            stack.callback(env.close)
            yield env


class VfioEnv(VmEnv):
    """An Env (setups/api.py) whose NIC is the guest's."""

    setup = VmVfio.name

    @property
    def nic(self) -> LabPort:
        return LabPort(host=self.host, name=GUEST_NIC)

    def read(self) -> PlaceReading:
        return {"guest": guest_reading(self.host, GUEST_NIC)}

    def hops(
        self, before: PlaceReading, after: PlaceReading
    ) -> tuple[Sequence[Hop], Sequence[Account]]:
        """The guest's NIC is the receiving NIC of the books; before it, only the wire."""
        hop, accounts = softnet_books(GUEST_NIC, before, after)
        return (hop,), accounts
