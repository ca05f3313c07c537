"""A virtual machine that owns the receiving NIC: no macvtap, no QEMU on the way of a packet.

The NIC leaves this host for as long as the trial lasts, so it cannot be read from here; its
counters are the guest's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, WithJsonSchema

from nodrop.config.options import check
from nodrop.errors import LabProblem
from nodrop.hosts.seam import Link, Port, UndoJournal
from nodrop.images.bits import Bits
from nodrop.ledger.hops import Account, Hop
from nodrop.ledger.places import Place
from nodrop.machines.vfio import (
    PciDevice,
    device_of_port,
    handed_over,
    qemu_arguments,
    vfio_problems,
)
from nodrop.setups.guest_books import GUEST_SOFTNET, guest_reading, softnet_books
from nodrop.setups.seam import Limits, PlaceReading, Setup
from nodrop.setups.vm import GUEST_NIC, Vm, VmEnv, VmOptions

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
    """A Setup (setups/seam.py)."""

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
    """An Env (setups/seam.py) whose NIC is the guest's."""

    setup = VmVfio.name

    @property
    def nic(self) -> Port:
        return Port(host=self.host, name=GUEST_NIC)

    def read(self) -> PlaceReading:
        return {"guest": guest_reading(self.host, GUEST_NIC)}

    def hops(
        self, before: PlaceReading, after: PlaceReading
    ) -> tuple[Sequence[Hop], Sequence[Account]]:
        """The guest's NIC is the receiving NIC of the books; before it, only the wire."""
        hop, accounts = softnet_books(GUEST_NIC, before, after)
        return (hop,), accounts


if TYPE_CHECKING:  # plugins are cast to the seam: mypy holds this one to it here
    _SETUP: Setup = VmVfio()
