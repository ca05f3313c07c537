"""A host that captures packets as its node saw it once (`nodrop-node probe sensor`): ports, packet
sockets, programs, CPUs. Pure data.

A value that could not be read is None; `missing` names it and the right that would show it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from nodrop.ledger.sender import Quota
from nodrop.protocol import (
    MemoryHits,
    PortFeature,
    QueueSpread,
    SensorLine,
    SensorPeer,
    SensorThread,
    SensorYaml,
    SuricataPortSaid,
    SuricataSaid,
    YamlText,
)

UNSEEN = 0
"""Process id of a program that this user may not see."""
OURS = 0
"""Number of the network namespace that the node itself is in; others count up from it."""
EVERY_PROTOCOL = 3
"""ETH_P_ALL: such a socket is given each packet of its port."""
HASH, CPU, QUEUE = 0, 2, 5
"""PACKET_FANOUT_HASH, _CPU and _QM."""
FANOUT = {0: "hash", 1: "lb", 2: "cpu", 3: "rollover", 4: "rnd", 5: "qm", 6: "cbpf", 7: "ebpf"}
WATCHERS = ("suricata", "snort", "zeek", "bro", "arkime")
PROMISCUOUS, UP = 0x100, 0x1


def is_suricata(name: str) -> bool:
    """A Suricata by its `comm`, which it sets itself: `Suricata-Main`."""
    return name.startswith("Suricata")


@dataclass(frozen=True, slots=True)
class Missing:
    """A value that could not be read."""

    what: str
    needs: str


@dataclass(frozen=True, slots=True)
class ShownSetting:
    """A setting that is shown and not judged."""

    what: str
    value: str
    at: str


def located(name: str, pid: int | None) -> str:
    """Name of a port, and a process of its namespace if that is not the node's own."""
    return name if pid is None else f"{name} (namespace of pid {pid})"


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPort:
    name: str
    space: int = OURS
    pid: int | None = None
    """A process of its namespace; None: it is in the node's own."""
    index: int = 0
    driver: str | None = None
    firmware: str | None = None
    mtu: int | None = None
    flags: int | None = None
    """UP and PROMISCUOUS alone."""
    carrier: bool | None = None
    """A cable is in and the other end is on; None: not visible, or the port is down."""
    physical: bool = False
    """A NIC, and no veth or bridge."""
    statistics: Mapping[str, int] = field(default_factory=dict)
    """rtnl_link_stats64, and carrier_changes."""
    driver_counters: Mapping[str, int] = field(default_factory=dict)
    """`ethtool -S`."""
    features: Mapping[str, PortFeature] = field(default_factory=dict)
    ring: tuple[int, int] | None = None
    """Descriptors of a receive ring, and the most that the driver takes."""
    queues: int | None = None
    """Receive queues."""
    combined: bool | None = None
    """A queue that receives sends too, and `ethtool -L` sets both at once."""
    spread: QueueSpread | None = None
    """Queues that its hash table names, key in hexadecimal, and function (struct ethtool_rxfh);
    transformed: a kernel >= 6.8 makes the input symmetric (symmetric-xor, symmetric-or-xor)."""
    lines: tuple[SensorLine, ...] = ()
    """Interrupt lines of its receive queues, each with how often it fired since boot."""
    rps: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Queue → the CPUs that RPS hands its packets to; queues without are left out."""
    node: int | None = None
    """NUMA node of its slot; -1: the firmware did not say. None: it has no slot."""
    speed_mbit: int | None = None
    duplex: str | None = None
    peer: SensorPeer | None = None
    """The other end of a veth that somebody captures on; None: it is not known which port that is.
    Its tx_dropped has frames that it sent and the port refused, or that had no carrier (veth counts
    both alike)."""
    pcie: Mapping[str, str] = field(default_factory=dict)
    """Files of its slot: current_link_width, max_link_width and the speeds."""
    missing: tuple[Missing, ...] = ()

    def files(self, name: str) -> str:
        return f"/sys/class/net/{self.name}/{name}"

    @property
    def up(self) -> bool | None:
        return None if self.flags is None else bool(self.flags & UP)

    @property
    def promiscuous(self) -> bool | None:
        """Somebody has it take frames to other addresses, a packet socket too."""
        return None if self.flags is None else bool(self.flags & PROMISCUOUS)

    def with_queues(self, number: int) -> str:
        """Command that gives it so many receive queues."""
        kind = "rx" if self.combined is False else "combined"
        return f"{self.enter}ethtool -L {self.name} {kind} {number}"

    @property
    def state_at(self) -> str:
        """Command that shows whether it is up and promiscuous, with or without a /sys of its
        namespace."""
        return f"{self.enter}ip -d link show {self.name}"

    @property
    def where(self) -> str:
        return located(self.name, self.pid)

    @property
    def enter(self) -> str:
        """Begins a command that changes it."""
        return "" if self.pid is None else f"nsenter -t {self.pid} -n "

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Socket:
    """A packet socket of any program."""

    inode: int
    protocol: int
    space: int = OURS
    index: int = 0
    """Index of its port; 0: every port of its namespace."""
    port: str | None = None
    uid: int | None = None
    pid: int | None = None
    """None: the node may not see who holds it."""
    program: str | None = None
    version: int | None = None
    """TPACKET version."""
    block_bytes: int | None = None
    blocks: int | None = None
    frame_bytes: int | None = None
    retire_ms: int | None = None
    fanout_id: int | None = None
    fanout_type: int | None = None
    filtered: bool | None = None
    """A filter of its own leaves packets out."""
    packets: int | None = None
    """Taken by it since its owner last read its counters; None: not visible, or a Suricata's."""
    drops: int | None = None
    """Packets that found no room there meanwhile."""

    @property
    def described(self) -> bool:
        """packet_diag described the socket; otherwise only /proc/net/packet lists it."""
        return self.version is not None

    @property
    def takes_all(self) -> bool:
        return self.protocol == EVERY_PROTOCOL

    @property
    def captures(self) -> bool:
        """A filter and no ring is a DHCP or LLDP client."""
        return self.takes_all and (bool(self.blocks) or self.filtered is not True)

    @property
    def ring_bytes(self) -> int:
        return (self.block_bytes or 0) * (self.blocks or 0)

    @property
    def owner(self) -> str:
        if self.pid is not None:
            return f"{self.program} (pid {self.pid})"
        return f"a program of user {self.uid}" if self.uid is not None else "a program"


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturingProgram:
    """A process that holds packet sockets, or a Suricata."""

    pid: int
    name: str
    stopped: bool = False
    """Whether a signal, such as SIGSTOP, holds it."""
    space: int | None = OURS
    """None: no packet socket is in its namespace."""
    threads: tuple[SensorThread, ...] = ()
    quotas: tuple[Quota, ...] = ()
    memory_hits: tuple[MemoryHits, ...] = ()
    """How often the limit of each of its control groups was reached."""
    yaml: SensorYaml | None = None
    answers: SuricataSaid | None = None
    uptime_s: float | None = None
    missing: tuple[Missing, ...] = ()

    @property
    def counters(self) -> Mapping[str, int]:
        """Suricata's dump-counters, flat; empty before it has synchronized them, or if it is
        silent."""
        return (self.answers and self.answers["counters"]) or {}

    @property
    def interfaces(self) -> Mapping[str, SuricataPortSaid]:
        """Suricata's iface-stat; the dropped are among its packets."""
        return self.answers["ports"] if self.answers else {}

    @property
    def suricata(self) -> bool:
        return is_suricata(self.name)

    @property
    def watches(self) -> bool:
        """An IDS, for which the traffic of others is the point."""
        return self.name.lower().startswith(WATCHERS)

    @property
    def capturing(self) -> Sequence[SensorThread]:
        """Suricata's threads that own a capture socket: RX# in autofp, where W# only work."""
        receivers = [thread for thread in self.threads if thread["name"].startswith("RX#")]
        return receivers or [one for one in self.threads if one["name"].startswith("W#")]

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid})" if self.pid != UNSEEN else self.name

    def __hash__(self) -> int:
        return hash((self.pid, self.name, self.space))


class Capture(NamedTuple):
    """A program's sockets on a port."""

    port: SnapshotPort
    program: CapturingProgram
    sockets: Sequence[Socket]

    @property
    def where(self) -> str:
        return f"{self.program}, {self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    ports: tuple[SnapshotPort, ...] = ()
    """All of the node's own namespace; of others those that somebody captures on."""
    sockets: tuple[Socket, ...] = ()
    programs: tuple[CapturingProgram, ...] = ()
    own_quotas: tuple[Quota, ...] = ()
    """Around the node itself."""
    names: tuple[str, ...] = ()
    """Ports of the node's own namespace, the loopback too."""
    online: tuple[int, ...] = ()
    isolated: tuple[int, ...] = ()
    nodes: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    balancers: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Process ids of irqbalance → its arguments."""
    softnet_dropped: Mapping[int, int] = field(default_factory=dict)
    """CPU → packets that its backlog refused."""
    memory_bytes: int | None = None
    hypervisor: bool = False
    """The host is a virtual machine: its PCIe links are emulated."""
    files: Mapping[str, YamlText] = field(default_factory=dict)
    """Configurations that were asked for."""
    values: tuple[ShownSetting, ...] = ()
    missing: tuple[Missing, ...] = ()

    @staticmethod
    def of(look: Mapping[str, Any]) -> Snapshot:
        """A node's answer, field by field."""
        return _reader().validate_python(look)

    def captures(self) -> Iterator[Capture]:
        """Each port with each program that takes all of its packets by sockets of its own, else
        with those that take each packet of every port (tcpdump -i any). One that may not be seen
        has a ring, or it is not known to capture."""
        for port in self.ports:
            held: dict[CapturingProgram, list[Socket]] = {}
            for socket in self.listening(port):
                known = next((p for p in self.programs if p.pid == socket.pid), None)
                if known is None and socket.pid is None and socket.blocks:
                    known = CapturingProgram(pid=UNSEEN, name=socket.owner, space=socket.space)
                if known is not None and socket.captures:
                    held.setdefault(known, []).append(socket)
            own = {one: its for one, its in held.items() if any(each.index for each in its)}
            for program, sockets in (own or held).items():
                yield Capture(port, program, sockets)

    def listening(self, port: SnapshotPort) -> list[Socket]:
        """Sockets that are given every packet of this port."""
        return [
            socket
            for socket in self.sockets
            if socket.takes_all and socket.space == port.space and socket.index in (0, port.index)
        ]

    def captured(self) -> Iterator[SnapshotPort]:
        """Ports that a capture program listens on."""
        for port in self.ports:
            if any(capture.port is port for capture in self.captures()):
                yield port


@cache
def _reader() -> TypeAdapter[Snapshot]:
    return TypeAdapter(Snapshot)
