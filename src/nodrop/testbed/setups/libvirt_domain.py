"""An existing libvirt domain: looked at, given one more NIC for a while, spoken to by channel.

libvirt-python is an optional extra and is imported when it is first needed.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from xml.etree import ElementTree

from nodrop.errors import LabProblem
from nodrop.installation import adding
from nodrop.testbed.hosts.waiting import looks

CHANNEL = "nodrop.ctl"
DETACH_TIMEOUT_S = 60.0
"""The guest has to let go of the NIC itself."""
POLL_S = 0.1

ResultT = TypeVar("ResultT")


class DomainGone(LabProblem):
    """The domain has ended, and what was attached to it with it."""


class Domain:
    """LabProblem in words a user can act on, whenever libvirt refuses."""

    def __init__(self, uri: str, name: str) -> None:
        self.name = name
        self.uri = uri
        self._libvirt = _libvirt()
        # It would print each error as well.
        self._libvirt.registerErrorHandler(lambda *_: None, None)
        self._connection = self._told(f"connect to {uri}", lambda: self._libvirt.open(uri))
        self._domain = self._told(
            f"find domain {name} at {uri}", lambda: self._connection.lookupByName(name)
        )

    @property
    def running(self) -> bool:
        return bool(self._told("ask its state", self._domain.isActive))

    @property
    def accelerator(self) -> str:
        """The accelerator in the domain's definition: `kvm`, or `tcg` for anything that is
        emulated."""
        return "kvm" if self._definition().get("type") == "kvm" else "tcg"

    @property
    def vcpus(self) -> int:
        vcpu = self._definition().find("vcpu")
        assert vcpu is not None
        return int(vcpu.get("current") or vcpu.text or 1)

    @property
    def memory_bytes(self) -> int:
        return int(self._told("ask its memory", self._domain.info)[1]) << 10

    @property
    def channel(self) -> Path | None:
        """The Unix socket at this end of the channel that its node speaks through."""
        for channel in self._definition().iterfind("devices/channel[@type='unix']"):
            target, source = channel.find("target"), channel.find("source")
            if target is not None and target.get("name") == CHANNEL and source is not None:
                path = source.get("path")
                return Path(path) if path else None
        return None

    def attach(self, port: str, mac: str, ring_size: int) -> None:
        """A macvtap of ours as one NIC more, as long as the domain runs."""
        description = nic_xml(port, mac, ring_size)
        live = self._libvirt.VIR_DOMAIN_AFFECT_LIVE
        self._told("attach a NIC", lambda: self._domain.attachDeviceFlags(description, live))

    def detach(self, port: str) -> None:
        """Waits until the guest has let go of it; no matter whether it is there."""
        live = self._libvirt.VIR_DOMAIN_AFFECT_LIVE
        refused = "its guest does not let go"
        with suppress(DomainGone):
            for _ in looks(DETACH_TIMEOUT_S, every_s=POLL_S):
                if not self.running or (found := self._nic(port)) is None:
                    return
                description = ElementTree.tostring(found, encoding="unicode")
                try:
                    self._domain.detachDeviceFlags(description, live)
                except self._libvirt.libvirtError as error:
                    refused = str(error)  # also if it is on its way out already
            raise LabProblem(f"domain {self.name} keeps the NIC on {port}: {refused}")

    def close(self) -> None:
        self._connection.close()

    def _nic(self, port: str) -> ElementTree.Element | None:
        for nic in self._definition().iterfind("devices/interface"):
            target = nic.find("target")
            if target is not None and target.get("dev") == port:
                return nic
        return None

    def _definition(self) -> ElementTree.Element:
        return ElementTree.fromstring(self._told("read its XML", self._domain.XMLDesc))

    def _told(self, what: str, ask: Callable[[], ResultT]) -> ResultT:
        try:
            return ask()
        except self._libvirt.libvirtError as error:
            gone = error.get_error_code() == self._libvirt.VIR_ERR_NO_DOMAIN
            kind = DomainGone if gone else LabProblem
            raise kind(f"libvirt cannot {what}: {error}") from None


def _getting_it() -> str:
    return f"apt-get install libvirt-dev pkg-config gcc, then {adding('libvirt-python')}"


def domain_problems(uri: str, name: str) -> Sequence[str]:
    """Why a domain cannot be a place for the SUT. Touches nothing."""
    if importlib.util.find_spec("libvirt") is None:
        return [f"the Python package libvirt is missing: {_getting_it()}"]
    try:
        domain = Domain(uri, name)
    except LabProblem as problem:
        return [f"setup.domain: {problem}"]
    try:
        if not domain.running:
            return [f"domain {name} does not run: virsh -c {uri} start {name}"]
        if domain.channel is None:
            return [
                f"domain {name} has no channel {CHANNEL}, through which nodrop speaks to its node: "
                f"add <channel type='unix'><target type='virtio' name='{CHANNEL}'/></channel> to "
                "its devices, and run `nodrop-node guest --serve` in it "
                "(docs/how-to/vm-setup.md)"
            ]
        return []
    finally:
        domain.close()


def nic_xml(port: str, mac: str, ring_size: int) -> str:
    """`managed='no'`: the port is there already, a macvtap, and is not libvirt's to remove."""
    nic = ElementTree.Element("interface", type="ethernet")
    ElementTree.SubElement(nic, "mac", address=mac)
    ElementTree.SubElement(nic, "target", dev=port, managed="no")
    ElementTree.SubElement(nic, "model", type="virtio")
    ElementTree.SubElement(nic, "driver", rx_queue_size=str(ring_size))
    return ElementTree.tostring(nic, encoding="unicode")


def main(argv: Sequence[str]) -> int:
    """Takes a NIC away again, for the undo journal (hosts/reversal.py)."""
    uri, name, port = argv
    try:
        _libvirt()
    except LabProblem as problem:
        print(problem, file=sys.stderr)  # noqa: T201
        return 1
    try:
        domain = Domain(uri, name)
    except DomainGone:
        return 0  # and its NICs with it
    except LabProblem:
        # The domain lives on without it.
        words = f"no libvirtd answers at {uri}: start it and undo again"
        print(words, file=sys.stderr)  # noqa: T201
        return 1
    try:
        domain.detach(port)
    except LabProblem as problem:
        print(problem, file=sys.stderr)  # noqa: T201  `nodrop undo` shows it
        return 1
    finally:
        domain.close()
    return 0


def _libvirt() -> Any:
    try:
        return importlib.import_module("libvirt")
    except ImportError as error:
        raise LabProblem(f"the Python package libvirt: {error}", hint=_getting_it()) from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
