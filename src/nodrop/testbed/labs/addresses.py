"""Addresses of a link whose two TCP/IP stacks talk to each other, for as long as they do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from nodrop.testbed.hosts.api import Json, LabPort
from nodrop.testbed.hosts.guest import NODE, GuestHost
from nodrop.untrusted.json_text import making_sense

SENDER, RECEIVER, PREFIX = "198.18.0.1", "198.18.0.2", 30
"""RFC 2544's own network: no host of the Internet has such an address."""
OFFLOADS = ("tx", "sg", "tso", "gso")


@contextmanager
def addressed(tx: LabPort, rx: LabPort, *, offloads: bool = False) -> Iterator[None]:
    """Gives `tx` the address SENDER and `rx` RECEIVER. `offloads`: segmentation offload as well."""
    ends = ((tx, SENDER), (rx, RECEIVER))
    macs = [_mac(port) for port, _ in ends]
    with ExitStack() as stack:
        for (port, own), (_, other), mac in zip(ends, ends[::-1], macs[::-1], strict=True):
            stack.enter_context(_end(port, own, other, mac, offloads=offloads))
        yield


@contextmanager
def _end(port: LabPort, own: str, other: str, mac: str, *, offloads: bool) -> Iterator[None]:
    """The other's address is known beforehand: the ports know no ARP."""
    name = port.name
    if isinstance(port.host, GuestHost):
        # It may have no program but the node, and its network ends with it.
        port.host.run([NODE, "guest", "--address", ",".join((name, own, other, mac))])
        yield
        return
    if offloads:
        _switch(port, "on")
    port.host.run(["ip", "addr", "add", f"{own}/{PREFIX}", "dev", name])
    try:
        port.host.run(
            ["ip", "neigh", "replace", other, "lladdr", mac, "dev", name, "nud", "permanent"]
        )
        yield
    finally:
        # With it goes all that the stack knows of the other end.
        port.host.run(["ip", "addr", "flush", "dev", name], check=False)
        port.host.run(["ip", "neigh", "flush", "dev", name, "nud", "permanent"], check=False)
        if offloads:
            _switch(port, "off")


def _mac(port: LabPort) -> str:
    if isinstance(port.host, GuestHost):
        return port.host.read_file(f"/sys/class/net/{port.name}/address").decode().strip()
    found: str = show(port)["address"]
    return found


def _switch(port: LabPort, state: str) -> None:
    words = [word for feature in OFFLOADS for word in (feature, state)]
    port.host.run(["ethtool", "-K", port.name, *words])


def show(port: LabPort) -> Json:
    """The port as `ip -j link` shows it."""
    shown = port.host.run(["ip", "-j", "link", "show", port.name]).stdout
    with making_sense("what ip says of a port"):
        found: Json = json.loads(shown)[0]
    return found
