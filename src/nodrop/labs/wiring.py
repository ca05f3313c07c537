"""Ports on their way into a container: its namespace gets a name, the port moves in, is up."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager

from nodrop.errors import LabProblem
from nodrop.hosts.local import LocalHost
from nodrop.hosts.reversal import NETNS_FOLDER
from nodrop.hosts.seam import Action, Host, Port, UndoJournal
from nodrop.labs.netns import CARRIER_TIMEOUT_S, ip_batch, quiet_stack, wait_up

MACVTAP = "ndmv0"
FIRST_INDEX = 1 << 24


@contextmanager
def named_namespace(pid: int, near: LocalHost, journal: UndoJournal) -> Iterator[LocalHost]:
    """The network namespace of a process as a host of its own. By its name it outlives the process:
    counters can be read to the end, and `nodrop undo` finds it."""
    name = f"nodrop-{journal.label}-{near.name}-sut"
    journal.push(what=f"network namespace {name}", action=Action.DELETE_NETNS, arguments=[name])
    try:
        ip_batch([f"netns attach {name} {pid}", f"netns exec {name} {quiet_stack()}"])
        host = LocalHost(
            name=f"{near.name}-sut", node=near.node, label=near.label, netns=NETNS_FOLDER / name
        )
        with closing(host):
            yield host
    finally:
        if (NETNS_FOLDER / name).exists():
            ip_batch([f"netns del {name}"])


@contextmanager
def moved_port(port: Port, to: LocalHost, journal: UndoJournal) -> Iterator[Port]:
    """Back in the end: a veth in a container would die with it, and a NIC would go to the host's
    first namespace."""
    source, target = _netns(port.host), _netns(to)
    journal.push(
        what=f"port {port.name} in the container",
        action=Action.MOVE_PORT_BACK,
        arguments=[target, port.name, source],
    )
    ip_batch(
        [
            f"netns exec {source} ip link set {port.name} netns {target}",
            f"netns exec {target} ip link set {port.name} arp off promisc on up",
        ]
    )
    wait_up(target, port.name, timeout_s=CARRIER_TIMEOUT_S)
    try:
        yield Port(host=to, name=port.name)
    finally:
        ip_batch([f"netns exec {target} ip link set {port.name} arp on netns {source}"])


def add_macvtap(port: Port, to: LocalHost, *, queue: int | None = None) -> Port:
    """On top of a port that stays where it is. Mirrored traffic is not addressed to the
    macvtap, and only mode passthru hands such frames on."""
    source, target = _netns(port.host), _netns(to)
    length = f"txqueuelen {queue} " if queue else ""
    ip_batch(
        [
            f"netns exec {source} ip link add link {port.name} name {MACVTAP} {length}"
            "arp off type macvtap mode passthru",
            f"netns exec {source} ip link set {MACVTAP} netns {target}",
            f"netns exec {target} ip link set {MACVTAP} arp off promisc on up",
        ]
    )
    wait_up(target, MACVTAP)
    return Port(host=to, name=MACVTAP)


def add_macvtap_here(
    port: Port, journal: UndoJournal, *, queue: int | None = None
) -> tuple[LocalHost, Port]:
    """On top of a port of another namespace, for who opens /dev/tapN by the index it has here. No
    other namespace of this host is likely to have an index as high."""
    source = local(port.host)
    index = FIRST_INDEX + os.getpid() % FIRST_INDEX
    name = f"ndlv{index:x}"
    length = f"txqueuelen {queue} " if queue else ""
    journal.push(what=f"macvtap {name}", action=Action.DELETE_MACVTAP, arguments=[name])
    ip_batch(
        [
            f"netns exec {_netns(source)} ip link add link {port.name} name {name} index {index} "
            f"netns {os.getpid()} {length}arp off type macvtap mode passthru",
            f"link set {name} promisc on up",
        ]
    )
    here = LocalHost(name=f"{source.name}-domain", node=source.node, label=source.label)
    return here, Port(host=here, name=name)


def local(host: Host) -> LocalHost:
    """A container is made on this machine; LabProblem if the receiver is another."""
    if not isinstance(host, LocalHost) or host.netns is None:
        raise LabProblem(f"containers need the receiver on this machine; {host.name} is not")
    return host


def _netns(host: Host) -> str:
    netns = local(host).netns
    assert netns is not None
    return netns.name
