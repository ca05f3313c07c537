"""Bare, with the receiving NIC driven by the SUT itself: no driver of the kernel has it meanwhile.

The port leaves its network namespace with its driver, and nothing of this host counts on it: the
packet books go from the sender's port to the SUT's own counters of the device. Afterwards the
driver makes a new port, which gets back what was set on the old one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from nodrop.config.options import Options, check
from nodrop.errors import LabProblem
from nodrop.testbed.hosts.api import LabPort, Link, UndoAction, UndoJournal
from nodrop.testbed.hosts.rights import sut_user
from nodrop.testbed.images.image_tree import Bits
from nodrop.testbed.labs import driver
from nodrop.testbed.setups.api import Limits
from nodrop.testbed.setups.bare import Bare, BareEnv
from nodrop.testbed.setups.vm_vfio import PciAddress, PciDevice, handed_over, vfio_problems


class BareVfioOptions(Options):
    device: PciAddress | None = None
    """PCI address such as "0000:01:00.0"; without it, the receiving port's own."""


class BareVfio(Bare):
    """A Setup (setups/api.py)."""

    name = "bare-vfio"
    alone = "the receiving NIC leaves this host, and nothing here can share its packets"
    several_ports = False
    gives_device = True

    def __init__(self, options: Mapping[str, Any] | None = None, *, base: Path = Path()) -> None:
        self.options = check(BareVfioOptions, options or {}, table="setup", base=base)

    def problems(self, bits: Bits | None, limits: Limits) -> Sequence[str]:
        return [*vfio_problems(self.options.device), *super().problems(bits, limits)]

    @contextmanager
    def provision(
        self, link: Link, *, bits: Bits | None, limits: Limits, work: Path, journal: UndoJournal
    ) -> Iterator[BareEnv]:
        address = self.options.device or driver.pci_address(link.rx)
        if address is None:
            raise LabProblem(
                f"the receiving port {link.rx.name} is no PCI device that a SUT could drive",
                hint=f"setup {self.name} needs a lab with real NICs; any lab has "
                'setup.kind = "bare"',
            )
        if found := vfio_problems(address):
            raise LabProblem("; ".join(found))
        with ExitStack() as stack:
            device = PciDevice(address)
            stack.enter_context(_port_kept(link.rx, device, journal))
            stack.enter_context(handed_over(device, journal, user=sut_user()))
            bare = super().provision(link, bits=bits, limits=limits, work=work, journal=journal)
            env = stack.enter_context(bare)
            env.give_device(address)
            yield env


@contextmanager
def _port_kept(port: LabPort, device: PciDevice, journal: UndoJournal) -> Iterator[None]:
    """Settings of the port, put back on the one that its driver makes afterwards."""
    shown = port.host.run([sys.executable, "-m", driver.__name__, "settings", port.name])
    mtu = port.counters()["links"][port.name]["mtu"]
    kept = [port.name, device.module(), str(mtu), shown.stdout.strip(), ""]
    journal.push(
        what=f"port {port.name} with its driver", action=UndoAction.LOAD_DRIVER, arguments=kept
    )
    try:
        yield
    finally:
        driver.bring_back(*kept)
