"""Network namespaces: the lab of two of them joined by a veth pair, and ports moved into others."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, WithJsonSchema

from nodrop.config.options import Name, Options, check
from nodrop.config.units import cpu_mask
from nodrop.errors import BadInput, LabProblem
from nodrop.testbed.hosts.api import Host, Json, LabPort, Link, UndoAction, UndoJournal
from nodrop.testbed.hosts.local import LocalHost, run_command
from nodrop.testbed.hosts.node import find_node_binary
from nodrop.testbed.hosts.packages import DEBIAN
from nodrop.testbed.hosts.reversal import NETNS_FOLDER
from nodrop.testbed.hosts.rights import USERNS_VARIABLE, ensure_privileges, privileges_lacking
from nodrop.testbed.hosts.waiting import looks
from nodrop.testbed.labs import offloads
from nodrop.testbed.labs.api import Checked, Lab, Receiving

PROGRAMS = ("ip", "sysctl")
LARGEST_MTU = 65535
ETHERNET_HEADER_BYTES = 14
OFFLOADS = ("rx", "tx", "sg", "tso", "gso", "gro")
"""Offloads, each of which lets the kernel hand over something else than the frames of the trace."""
UP_TIMEOUT_S = 5.0
CARRIER_TIMEOUT_S = 30.0
"""Moving a NIC takes its link down; to agree on a speed again takes some of them many seconds."""
COMMAND_TIMEOUT_S = 10.0


PORT_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,14}$"
"""15 characters: IFNAMSIZ less the final zero."""
KERNELS_OWN = ("lo", "all", "default")
"""Names of the kernel's own: each network namespace has the first; the others are folders beside
those of ports in /proc."""


def _port_name(name: str) -> str:
    if not re.fullmatch(PORT_PATTERN, name):
        raise ValueError(
            "must be at most 15 letters, digits, dots, dashes and underscores, and begin with a "
            "letter or digit"
        )
    if name in KERNELS_OWN:
        raise ValueError("must be another name: the kernel has its own use for it")
    return name


PortName = Annotated[
    str,
    AfterValidator(_port_name),
    WithJsonSchema({"type": "string", "pattern": PORT_PATTERN, "not": {"enum": [*KERNELS_OWN]}}),
]


class LabEnd(Options):
    host: Name
    port: PortName


DEFAULT_SENDER = LabEnd(host="tx", port="ndtx0")
DEFAULT_RECEIVER = LabEnd(host="rx", port="ndrx0")
AS_IT_COMES = Receiving()


class NetnsFile(Options):
    name: Name
    kind: Literal["netns"]
    """netns: two network namespaces of this machine and a veth pair between them."""
    mtu: Annotated[int, Field(ge=68, le=LARGEST_MTU)] = 9000
    """MTU of both ports. 9000 carries what offloads glued together when a trace was captured."""
    sender: LabEnd = DEFAULT_SENDER
    receiver: LabEnd = DEFAULT_RECEIVER


def from_file(table: Mapping[str, Any], *, base: Path) -> NetnsLab:
    file = check(NetnsFile, table, table="", base=base)
    if file.sender.host == file.receiver.host:
        raise BadInput(f'receiver.host = "{file.receiver.host}": must not be the sender\'s host')
    return NetnsLab(name=file.name, mtu=file.mtu, sender=file.sender, receiver=file.receiver)


class NetnsLab(Lab):
    """Two network namespaces of this machine. Two commands make it and one removes it: it is made
    anew per trial."""

    mtu: int
    programs = frozenset(PROGRAMS)

    def __init__(
        self,
        *,
        name: str = "netns",
        mtu: int = 9000,
        sender: LabEnd = DEFAULT_SENDER,
        receiver: LabEnd = DEFAULT_RECEIVER,
        node: Path | None = None,
        receiving: Receiving = AS_IT_COMES,
    ) -> None:
        self.name = name
        self.mtu = mtu
        self._receiving = receiving
        self._sender = sender
        self._receiver = receiver
        self._node = node
        self.ports = (sender.port, receiver.port)

    def carrying(self, frame_bytes: int) -> NetnsLab:
        """A frame that offloads glued together when it was captured must still fit the port."""
        mtu = min(LARGEST_MTU, max(self.mtu, frame_bytes - ETHERNET_HEADER_BYTES))
        return self._with(mtu=mtu, receiving=self._receiving)

    def receiving(self, how: Receiving) -> NetnsLab:
        return self._with(mtu=self.mtu, receiving=how)

    def _with(self, *, mtu: int, receiving: Receiving) -> NetnsLab:
        return NetnsLab(
            name=self.name,
            mtu=mtu,
            sender=self._sender,
            receiver=self._receiver,
            node=self._node,
            receiving=receiving,
        )

    def check(self) -> Sequence[Checked]:
        """Looks with the rights that ports are made with."""
        lacking: list[str] = []
        try:
            ensure_privileges()
        except LabProblem as problem:
            lacking.append(str(problem))
        return [Checked(what=f"lab {self.name}", problems=[*lacking, *self.problems()])]

    def problems(self) -> Sequence[str]:
        found = [
            f"program {program} is missing; install the package {DEBIAN[program]}"
            for program in PROGRAMS
            if shutil.which(program) is None
        ]
        if lacking := privileges_lacking():
            found.append(lacking)
        if not 68 <= self.mtu <= LARGEST_MTU:
            found.append(f"mtu {self.mtu} is out of range (68 to {LARGEST_MTU})")
        try:
            self._binary()
        except LabProblem as problem:
            found.append(str(problem))
        return found

    def cpus_in_common(self) -> AbstractSet[int]:
        return os.sched_getaffinity(0)

    @contextmanager
    def up(self, journal: UndoJournal) -> Iterator[Link]:
        names = tuple(f"nodrop-{journal.label}-{end}" for end in ("snd", "rcv"))
        ends = tuple(zip(names, (self._sender, self._receiver), strict=True))
        with namespaces(journal, *names), ExitStack() as looking:
            ip_batch(self._making(ends))
            for netns, end in ends:
                wait_up(netns, end.port)
            tx, rx = (
                LabPort(
                    host=looking.enter_context(self._host(netns, end, journal.label)),
                    name=end.port,
                )
                for netns, end in ends
            )
            yield Link(tx=tx, rx=rx, queues=self._receiving.queues)

    def facts(self) -> Json:
        kernel = os.uname()
        return {
            "kind": "netns",
            "name": self.name,
            "mtu": self.mtu,
            "offloads_off": list(OFFLOADS),
            "kernel": kernel.release,
            "machine": kernel.machine,
            "user_namespace": USERNS_VARIABLE in os.environ,
        }

    def _host(self, netns: str, end: LabEnd, label: str) -> LocalHost:
        node = self._binary()
        return LocalHost(name=end.host, node=node, label=label, netns=NETNS_FOLDER / netns)

    def _binary(self) -> Path:
        if self._node is None:
            self._node = find_node_binary()
        return self._node

    def _making(self, ends: Sequence[tuple[str, LabEnd]]) -> list[str]:
        """The lines of one `ip -batch`: a process per line would take five times as long."""
        (sender, tx), (receiver, rx) = ends
        lines = [f"netns add {netns}" for netns, _ in ends]
        lines += [f"netns exec {netns} {quiet_stack()}" for netns, _ in ends]
        queues = self._receiving.queues
        lines.append(
            f"link add {tx.port} netns {sender} mtu {self.mtu} arp off {queue_words(queues)}"
            f"type veth peer name {rx.port} netns {receiver} mtu {self.mtu} arp off "
            f"{queue_words(queues)}"
        )
        lines += [f"netns exec {netns} {offloads_off(end.port)}" for netns, end in ends]
        if cpus := self._receiving.rps_cpus:
            file = f"/sys/class/net/{rx.port}/queues/rx-*/rps_cpus"
            script = f"for each in {file}; do echo {cpu_mask(cpus)} > $each; done"
            lines.append(f"netns exec {receiver} sh -ec '{script}'")
        lines.append(f"netns exec {receiver} ip link set {rx.port} promisc on up")
        lines.append(f"netns exec {sender} ip link set {tx.port} up")
        return lines


@contextmanager
def namespaces(journal: UndoJournal, *names: str) -> Iterator[None]:
    """Makes the network namespaces with these names: they are journalled before, and removed
    afterwards, with all that is in them."""
    for name in names:
        journal.push(
            what=f"network namespace {name}", action=UndoAction.DELETE_NETNS, arguments=[name]
        )
    try:
        yield
    finally:
        standing = [name for name in names if (NETNS_FOLDER / name).exists()]
        ip_batch([f"netns del {name}" for name in standing])


def offloads_off(port: str) -> str:
    """ethtool is ten times as fast as our own program."""
    if shutil.which("ethtool"):
        return f"ethtool -K {port} {' '.join(f'{feature} off' for feature in OFFLOADS)}"
    return shlex.join([sys.executable, "-IS", offloads.__file__, port])


def queue_words(queues: int) -> str:
    """Words for `ip link add`; left alone, a veth uses one queue."""
    return f"numtxqueues {queues} numrxqueues {queues} " if queues > 1 else ""


def quiet_stack() -> str:
    """Command that silences a stack before a port exists: not one router solicitation may get into
    the books.

    Strict rp_filter on a port without an address refuses all IPv4: the stack takes no broadcast or
    multicast for its own, and Ip Reasm* counts only the fragments of the capture (measured: without
    it, 1,080 of 9,900 fragments were counted twice).
    """
    settings = ["net.ipv4.conf.all.rp_filter=1"]
    if Path("/proc/sys/net/ipv6").exists():
        settings += [f"net.ipv6.conf.{scope}.disable_ipv6=1" for scope in ("all", "default")]
    return "sysctl -qw " + " ".join(settings)


def ip_batch(lines: Sequence[str]) -> None:
    """Runs lines of `ip` as one process; LabProblem at the first that fails."""
    if not lines:
        return
    done = run_command(
        ["ip", "-batch", "-"],
        where="lab",
        timeout_s=COMMAND_TIMEOUT_S,
        check=False,
        stdin="\n".join(lines) + "\n",
    )
    if done.returncode != 0:
        # "Command failed -:5" names the line; what `netns exec` runs only leaves its own words.
        raise LabProblem(f"lab: {done.stderr.strip()} (of: {'; '.join(lines)})")


def wait_up(
    netns: str, port: str, *, timeout_s: float = UP_TIMEOUT_S, hint: str | None = None
) -> None:
    """Waits until the kernel's link watch has seen the carrier: an earlier frame would be
    dropped."""
    for _ in looks(timeout_s):
        shown = run_command(
            ["ip", "-n", netns, "-j", "link", "show", port],
            where="lab",
            timeout_s=COMMAND_TIMEOUT_S,
        )
        if (state := json.loads(shown.stdout)[0]["operstate"]) == "UP":
            return
    raise LabProblem(f"lab: {port} is {state}, not UP, after {timeout_s:g} s", hint=hint)


# Ports on their way into a container: its namespace gets a name, the port moves in, is up.

MACVTAP = "ndmv0"
FIRST_INDEX = 1 << 24


@contextmanager
def named_namespace(pid: int, near: LocalHost, journal: UndoJournal) -> Iterator[LocalHost]:
    """The network namespace of a process as a host of its own. By its name it outlives the process:
    counters can be read to the end, and `nodrop undo` finds it."""
    name = f"nodrop-{journal.label}-{near.name}-sut"
    with namespaces(journal, name):
        ip_batch([f"netns attach {name} {pid}", f"netns exec {name} {quiet_stack()}"])
        host = LocalHost(
            name=f"{near.name}-sut", node=near.node, label=near.label, netns=NETNS_FOLDER / name
        )
        with closing(host):
            yield host


@contextmanager
def moved_port(port: LabPort, to: LocalHost, journal: UndoJournal) -> Iterator[LabPort]:
    """Back in the end: a veth in a container would die with it, and a NIC would go to the host's
    first namespace."""
    source, target = _netns(port.host), _netns(to)
    journal.push(
        what=f"port {port.name} in the container",
        action=UndoAction.MOVE_PORT_BACK,
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
        yield LabPort(host=to, name=port.name)
    finally:
        ip_batch([f"netns exec {target} ip link set {port.name} arp on netns {source}"])


def add_macvtap(port: LabPort, to: LocalHost, *, queue: int | None = None) -> LabPort:
    """Puts a macvtap on top of a port, which stays where it is. Mirrored traffic is not addressed
    to the macvtap; only mode passthru passes such frames on."""
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
    return LabPort(host=to, name=MACVTAP)


def add_macvtap_here(
    port: LabPort, journal: UndoJournal, *, queue: int | None = None
) -> tuple[LocalHost, LabPort]:
    """Adds a macvtap on top of a port of another namespace, for who opens /dev/tapN by the index it
    has here. No other namespace of this host is likely to have an index as high."""
    source = local(port.host)
    index = FIRST_INDEX + os.getpid() % FIRST_INDEX
    name = f"ndlv{index:x}"
    length = f"txqueuelen {queue} " if queue else ""
    journal.push(what=f"macvtap {name}", action=UndoAction.DELETE_MACVTAP, arguments=[name])
    ip_batch(
        [
            f"netns exec {_netns(source)} ip link add link {port.name} name {name} index {index} "
            f"netns {os.getpid()} {length}arp off type macvtap mode passthru",
            f"link set {name} promisc on up",
        ]
    )
    here = LocalHost(name=f"{source.name}-domain", node=source.node, label=source.label)
    return here, LabPort(host=here, name=name)


def local(host: Host) -> LocalHost:
    """A container is made on this machine; LabProblem if the receiver is another."""
    if not isinstance(host, LocalHost) or host.netns is None:
        raise LabProblem(f"containers need the receiver on this machine; {host.name} is not")
    return host


def _netns(host: Host) -> str:
    netns = local(host).netns
    assert netns is not None
    return netns.name
