"""The packet books of programs that capture, without a sender: port → sockets → ring → reader.

A look reads what moves twice, so every account is an interval that holds the true value at one
moment. The books of a capture are closed if its residual's interval holds 0:

    port + sent by this host [0, tx] = arrived + merged by reassembly + residual
    arrived = dropped in the ring + waiting in it + read
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from nodrop.protocol import CapturePort, CaptureProgram, Captures, CaptureSocket, Reassembled
from nodrop.results.watched import WatchedLevel
from nodrop.sensor.snapshot import is_suricata
from nodrop.testbed.hosts.control_groups import QUOTAS_HIDDEN, SocketSums, copies

COUNTER_32 = 1 << 32
STEP_NS = 2_500_000_000
"""Suricata's `iface-stat` has what arrived until a second ago, and a thread may be late."""
CLOSE, CLOSE_RATIO = 50, 0.01
"""Books close if no more than so many packets, or such a share of them, may be missing."""
READERS = ("PCAP_DEV",)
"""Capture modes in which a Suricata's `packets` are those it has read, each at once."""


@dataclass(frozen=True, slots=True)
class AccountRange:
    """An account that lies between two readings."""

    low: int
    high: int

    def __add__(self, other: AccountRange) -> AccountRange:
        return AccountRange(self.low + other.low, self.high + other.high)

    def __sub__(self, other: AccountRange) -> AccountRange:
        return AccountRange(self.low - other.high, self.high - other.low)

    def times(self, factor: int) -> AccountRange:
        return AccountRange(self.low * factor, self.high * factor)

    def holds(self, value: int) -> bool:
        return self.low <= value <= self.high


NOTHING = AccountRange(0, 0)
PortAt = tuple[int, int]
"""Namespace and index of a port."""


def ports_at(seen: Captures) -> Mapping[PortAt, CapturePort]:
    return {(port["namespace"], port["index"]): port for port in seen["ports"]}


def flapped(before: CapturePort, now: CapturePort) -> bool:
    """Whether the carrier came or went in between, however shortly."""
    old, new = before["link"], now["link"]
    return bool(old and new and old["carrier_changes"] != new["carrier_changes"])


def rise(before: int, after: int) -> int:
    """Growth of a counter. One that fell has wrapped at 32 bits, or begun anew."""
    if after >= before:
        return after - before
    wrapped = after + COUNTER_32 - before
    return wrapped if COUNTER_32 // 2 <= before < COUNTER_32 and wrapped < before else after


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureKey:
    """One program on one port. With another start, port or socket it is another capture."""

    namespace: int
    ifindex: int
    pid: int | None
    start_ticks: int
    inodes: frozenset[int]

    @property
    def at(self) -> PortAt:
        return self.namespace, self.ifindex


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureReading:
    """One capture at one look. None = not visible."""

    key: CaptureKey
    mono_ns: int
    port: CapturePort | None
    program: CaptureProgram | None
    sockets: Sequence[CaptureSocket]
    copies: int
    """Times that the program has each packet: fanout groups, and sockets that stand alone."""
    arrived: AccountRange | None
    dropped: int | None
    waiting: AccountRange | None
    taken: AccountRange | None
    """Packets that reassembly took out ahead of the sockets of the namespace; None: no defrag."""
    at_least: bool = False
    """The owner reads the sockets' counters itself and does not say them."""
    quotas_known: bool = True
    others: int = 0
    """Further processes that share its fanout group."""
    used_ns: int = 0
    """Time at which its threads and control groups were read: behind all counters of the look."""

    @property
    def mute(self) -> bool:
        """True of a Suricata without a command socket, which resets its counters each second."""
        return bool(self.suricata and self.program and self.program["suricata"] is None)

    @property
    def offered(self) -> AccountRange | None:
        return None if self.port is None else AccountRange(*self.port["rx_packets"])

    @property
    def name(self) -> str:
        """`Suricata-Main 812`."""
        words = self.program["name"] if self.program else "a program"
        more = f" and {self.others} more" if self.others else ""
        return f"{words} {self.key.pid}{more}" if self.key.pid else f"{words} (not visible)"

    @property
    def suricata(self) -> bool:
        return bool(self.program and is_suricata(self.program["name"]))

    @property
    def port_name(self) -> str:
        if self.port is not None:
            return self.port["name"]
        return {0: "every port", -1: "a port that is gone"}.get(
            self.key.ifindex, f"port {self.key.ifindex}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RingState:
    """Rings of a capture within one interval."""

    level: WatchedLevel | None = None
    """None: it has no ring, or its ring is not visible."""
    lowest_ratio: float | None = None
    """The emptiest that the fullest of them was at any look; None: not visible."""
    oldest_ms: int | None = None
    """Age of the oldest packet that waits."""
    overflow_ms: int | None = None
    """Time until the first is full, if its reader stays away; None: none fills up."""
    losing: int = 0
    """Intervals with loss in a row, this one included."""
    unannounced: str | None = None
    """Why nothing said before that they filled up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """The books of one capture since it was first seen."""

    reading: CaptureReading
    before: CaptureReading
    """At the look before: what an interval is."""
    offered: AccountRange | None
    arrived: AccountRange | None
    merged: AccountRange
    dropped: int | None
    dropped_now: int | None
    """Within this interval."""
    waited_before: AccountRange | None
    """Packets in its rings when the books began, and so not among those that arrived."""
    read: AccountRange | None
    residual: AccountRange | None
    """None: one side is not visible."""
    at_least: bool
    """Arrived and dropped may be more: the owner reads the counters, and does not say them."""
    seconds: float
    ended_real_ns: int | None = None
    """Time of the look that first missed it; None: it is there."""
    unsaid_offered: AccountRange | None = None
    """Came to its port after these books and until the last look that saw it: it ended, and did not
    say what it did with them. None: its last answer has all, or the port is not visible."""
    unsaid_dropped: int = 0
    """Seen to be dropped of those, at the least."""
    rings: RingState = field(default_factory=RingState)
    members: Sequence[Balance] = ()
    """Processes of a fanout group that several share, each with what its own sockets had; what came
    to the port is the whole group's."""

    @property
    def by_process(self) -> Sequence[Balance]:
        return self.members or (self,)

    @property
    def dropped_seen(self) -> int | None:
        """None also if its owner reads the counters and none was seen: that is no zero."""
        return None if self.at_least and not self.dropped else self.dropped

    @property
    def arrived_now(self) -> int | None:
        """Within this interval, dropped ones included, at the most; None: not visible."""
        now, before = self.reading.arrived, self.before.arrived
        return None if now is None or before is None else max(0, now.high - before.low)

    @property
    def read_now(self) -> int | None:
        """Taken by its reader within this interval, at the most; of a socket whose content is not
        visible, what found room there."""
        if (arrived := self.arrived_now) is None or self.dropped_now is None:
            return None
        now, before = self.reading.waiting, self.before.waiting
        waits_more = now.low - before.high if now and before else 0
        return max(0, arrived - self.dropped_now - waits_more)

    @property
    def lost_more(self) -> bool:
        """Whether its owner may have read losses out of the counters."""
        return self.at_least or self.reading.mute

    @property
    def used_s(self) -> float:
        """From one reading of its threads and control groups to the other."""
        return (self.reading.used_ns - self.before.used_ns) / 1e9

    @property
    def unheard(self) -> str | None:
        """Why its program, a Suricata, did not answer; None: it did, or has no counters to ask
        for."""
        said = self.reading.program["suricata"] if self.reading.program else None
        return said["silent"] if said else None

    @property
    def slack(self) -> int:
        """Packets that may be missing on either side, for all that the readings say."""
        return 0 if self.residual is None else max(-self.residual.low, self.residual.high)

    @property
    def closed(self) -> bool | None:
        """None: one side is not visible, or the readings lie too far apart to say."""
        if self.residual is None or self.offered is None:
            return None
        if not self.residual.holds(0):
            return False
        return True if self.slack <= max(CLOSE, self.offered.high * CLOSE_RATIO) else None


@dataclass(slots=True)
class CaptureBooks:
    """From look to look. A look goes in, balances of what is there now come out."""

    _first: dict[CaptureKey, CaptureReading] = field(default_factory=dict)
    _last: dict[CaptureKey, CaptureReading] = field(default_factory=dict)
    _counts: dict[int, SocketSums] = field(default_factory=dict)
    _offered: dict[CaptureKey, list[tuple[int, int]]] = field(default_factory=dict)
    _said: dict[CaptureKey, int] = field(default_factory=dict)

    def look(self, seen: Captures, *, ends_interval: bool = True) -> Sequence[Balance]:
        """Balances of the captures that the interval began with, or that it has seen before."""
        captures = {reading.key: reading for reading in self._readings(seen)}
        members = {key: [*self._members(seen, capture)] for key, capture in captures.items()}
        readings = captures | {one.key: one for each in members.values() for one in each}
        balances = [
            replace(
                _balance(self._first[key], self._last[key], now),
                members=[
                    _balance(self._first[one.key], self._last[one.key], one, member=True)
                    for one in members[key]
                    if one.key in self._last
                ],
            )
            for key, now in captures.items()
            if key in self._last
        ]
        for key, now in readings.items():
            # Books begin when both sides are visible: a Suricata that starts throws away what came.
            if key not in self._first or (self._first[key].arrived is None and now.arrived):
                self._first[key] = now
        self._first = {key: one for key, one in self._first.items() if key in readings}
        self._last = readings if ends_interval else {**readings, **self._last}
        self._offered = {key: one for key, one in self._offered.items() if key in readings}
        self._said = {key: one for key, one in self._said.items() if key in readings}
        inodes = {socket["inode"] for socket in seen["sockets"]}
        self._counts = {inode: count for inode, count in self._counts.items() if inode in inodes}
        return balances

    def _readings(self, seen: Captures) -> Sequence[CaptureReading]:
        ports = ports_at(seen)
        by_capture: dict[tuple[int, int, int | None], list[CaptureSocket]] = {}
        owners = _owners(seen["sockets"])
        for socket in seen["sockets"]:
            at = (socket["namespace"], socket["ifindex"], owners[socket["inode"]])
            mine = by_capture.setdefault(at, [])
            if all(one["inode"] != socket["inode"] for one in mine):
                mine.append(socket)
        return [
            self._reading(seen, ports.get((at[0], at[1])), at[2], sockets)
            for at, sockets in by_capture.items()
        ]

    def _members(self, seen: Captures, group: CaptureReading) -> Iterator[CaptureReading]:
        """Processes that share its fanout group; none if it has the group alone."""
        if group.others:
            by_pid: dict[int | None, list[CaptureSocket]] = {}
            for socket in group.sockets:
                by_pid.setdefault(socket["pid"], []).append(socket)
            for pid, sockets in by_pid.items():
                yield self._reading(seen, group.port, pid, sockets)

    def _reading(
        self,
        seen: Captures,
        port: CapturePort | None,
        pid: int | None,
        sockets: Sequence[CaptureSocket],
    ) -> CaptureReading:
        program = seen["programs"].get(str(pid))
        first = sockets[0]
        key = CaptureKey(
            namespace=first["namespace"],
            ifindex=first["ifindex"],
            pid=pid,
            start_ticks=program["usage"]["start_ticks"] if program else 0,
            inodes=frozenset(socket["inode"] for socket in sockets),
        )
        arrived, dropped, at_least = self._arrived(key, port, program, sockets, seen["mono_ns"])
        return CaptureReading(
            key=key,
            mono_ns=seen["mono_ns"],
            port=port,
            program=program,
            sockets=sockets,
            # Without counters the fanout is not known either: threads share a port as a rule.
            copies=copies(sockets) if first["counted"] else 1,
            arrived=arrived,
            dropped=dropped,
            waiting=_waiting(sockets),
            taken=_taken(seen["reassembly"].get(str(key.namespace)), sockets),
            at_least=at_least,
            quotas_known=QUOTAS_HIDDEN not in seen["missing"],
            others=len({socket["pid"] for socket in sockets}) - 1,
            used_ns=seen["mono_ns"] + seen["took_ns"],
        )

    def _arrived(
        self,
        key: CaptureKey,
        port: CapturePort | None,
        program: CaptureProgram | None,
        sockets: Sequence[CaptureSocket],
        mono_ns: int,
    ) -> tuple[AccountRange | None, int | None, bool]:
        """Arrived, dropped ones included; dropped; whether more may have."""
        said = program["suricata"] if program else None
        own = said["ports"].get(port["name"]) if said and port else None
        if said and own is None:
            return None, None, False  # it is only just starting, or was never heard
        earlier = self._said.get(key, own["packets"] if own else 0)
        if own:
            self._said[key] = own["packets"]
        late = self._late(key, port, mono_ns)
        counted = [socket["counted"] for socket in sockets]
        known = [one for one in counted if one is not None]
        if len(known) == len(counted):
            # It may have answered at first, and then no more.
            heard = bool(said and (not said["silent"] or (own and own["packets"] != earlier)))
            sums = self._sums(sockets)
            if heard:
                for one in sums:  # what its owner has read is in the owner's own sums
                    one.packets, one.drops, one.taken = 0, 0, False
            drops = sum(one["tp_drops"] for one in known) + sum(one.drops for one in sums)
            total = (
                sum(one["tp_packets"] for one in known) + sum(one.packets for one in sums) + drops
            )
            # Silent, it may read them again and again, and each fall but the first goes unseen.
            unheard = bool(said and said["silent"] and program and not program["stopped"])
            at_least = unheard or any(one.taken for one in sums)
            if said is None or own is None or port is None:
                return AccountRange(total, total), drops, at_least
            # It may read its counters meanwhile: its later sums have them, and the sockets not.
            ahead = own if said["silent"] else said["ports_before"].get(port["name"])
            if ahead is None:
                return None, None, False
            drops += ahead["drops"]
            if (last := self._last.get(key)) and last.dropped is not None:
                drops = max(drops, last.dropped)
            if said["mode"] in READERS:
                waiting = _waiting(sockets)
                read = AccountRange(ahead["packets"], own["packets"]) + AccountRange(drops, drops)
                return (waiting + read if waiting else None), drops, at_least
            low, high = sorted((total + ahead["packets"], total + own["packets"]))
            return AccountRange(low, high), drops, at_least
        if own is None or port is None:
            return None, None, False
        for socket in sockets:  # what was seen there is in the owner's sums by now
            self._counts.pop(socket["inode"], None)
        # Heard after the port was read: what it said a look before is what it had by then at least.
        return AccountRange(earlier, own["packets"] + late), own["drops"], False

    def _late(self, key: CaptureKey, port: CapturePort | None, mono_ns: int) -> int:
        """Packets that came to the port within the last steps of its owner's sums: they may not be
        in them."""
        offered = self._offered.setdefault(key, [])
        offered.append((mono_ns, port["rx_packets"][1] if port else 0))
        while len(offered) > 1 and mono_ns - offered[1][0] >= STEP_NS:
            offered.pop(0)
        return offered[-1][1] - offered[0][1]

    def _sums(self, sockets: Sequence[CaptureSocket]) -> Sequence[SocketSums]:
        found = []
        for socket in sockets:
            one = self._counts.setdefault(socket["inode"], SocketSums())
            if counted := socket["counted"]:
                one.add(counted["tp_packets"], counted["tp_drops"])
            found.append(one)
        return found


def _owners(sockets: Sequence[CaptureSocket]) -> Mapping[int, int | None]:
    """Socket → the process whose capture it is. A group of several processes, or a socket that a
    child has inherited, is the first one's."""
    owners: dict[int, int | None] = {}
    by_group: dict[tuple[int, int], int] = {}
    for socket in sockets:
        pid, group = socket["pid"], socket["fanout"]
        known = owners.get(socket["inode"])
        if pid is not None and group is not None:
            at = (socket["namespace"], group["id"])
            pid = by_group[at] = min(pid, by_group.get(at, pid))
        owners[socket["inode"]] = pid if known is None or pid is None else min(pid, known)
    for socket in sockets:
        if group := socket["fanout"]:
            at = (socket["namespace"], group["id"])
            owners[socket["inode"]] = by_group.get(at, owners[socket["inode"]])
    return owners


def _waiting(sockets: Sequence[CaptureSocket]) -> AccountRange | None:
    total = NOTHING
    for socket in sockets:
        fills = socket["waiting"]
        if fills is None:
            return None
        held = [fill["packets"] for fill in fills]
        total += AccountRange(min(held), max(held))
    return total


def _taken(
    reassembly: Sequence[Reassembled] | None, sockets: Sequence[CaptureSocket]
) -> AccountRange | None:
    if not any(socket["fanout"] and socket["fanout"]["defrag"] for socket in sockets):
        return None
    if reassembly is None:
        return None
    net = [one["requests"] - one["oks"] for one in reassembly]
    return AccountRange(min(net), max(net))


def _balance(
    first: CaptureReading, before: CaptureReading, now: CaptureReading, *, member: bool = False
) -> Balance:
    def since(then: AccountRange | None, at: AccountRange | None) -> AccountRange | None:
        return None if then is None or at is None else at - then

    offered = None if member else since(first.offered, now.offered)
    arrived = since(first.arrived, now.arrived)
    merged = since(first.taken, now.taken) or NOTHING
    dropped = _between(first.dropped, now.dropped)
    read = residual = None
    at_least = now.at_least
    if arrived and now.waiting and first.waiting and dropped is not None:
        read = arrived - AccountRange(dropped, dropped) - (now.waiting - first.waiting)
        read = AccountRange(max(0, read.low), max(0, read.high))
    selective = any(socket["selective"] for socket in now.sockets)
    if offered and arrived and not (at_least or selective) and now.port and first.port:
        sent = now.port["tx_packets"][1] - first.port["tx_packets"][0]
        offered_here = offered + AccountRange(0, sent)
        residual = (offered_here - merged).times(now.copies) - arrived
        if residual.low > 0 and not (now.program and now.program["suricata"]):
            # Its owner may read the counters more often than we look, and no fall is seen then.
            residual, at_least = None, True
    if at_least:
        read = None
    return Balance(
        reading=now,
        before=before,
        offered=offered,
        arrived=arrived,
        merged=merged,
        dropped=dropped,
        dropped_now=_between(before.dropped, now.dropped),
        waited_before=first.waiting,
        read=read,
        residual=residual,
        at_least=at_least,
        seconds=(now.mono_ns - before.mono_ns) / 1e9,
    )


def _between(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else max(0, after - before)
