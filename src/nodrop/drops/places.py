"""Where packets die on a sensor at work, why, and the command that changes it: each place with its
total since the watch began, its rate now, and its worst interval."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from nodrop.answer.finding import Finding, render
from nodrop.drops.capture_books import Balance, CaptureReading, PortAt, ports_at, rise
from nodrop.ledger import nic_counters
from nodrop.ledger.hops import KERNEL, NIC, RECEIVING_PORT, SOCKET_RING, SOFTNET
from nodrop.protocol import (
    CapturePort,
    Captures,
    CaptureSocket,
    RingShape,
    SensorPeer,
    ThreadReading,
)
from nodrop.results.watched import ThreadShare, WatchedPlace
from nodrop.sensor.rx_dropped import LOSE_IN_RX_DROPPED, RxDropped, parted_by_peer, refused_frames
from nodrop.sensor.slots import bridged_ms
from nodrop.sensor.snapshot import is_suricata, located
from nodrop.sensor.suricata_counters import lost_analysis

BAD_FRAMES = "bad frames"
NIC_FIFO = "NIC FIFO"
FANOUT_GROUP = "fanout group"
ANALYSIS = "analysis"
"""No packet is lost, and what it carried is."""
THROTTLED_RATIO = 0.05
WAITED_RATIO = 0.2
BUSY_RATIO = 0.9
FEW_BLOCKS_MS = 500
"""A ring of version 3 that bridges less loses whole stalls of its reader."""
HALF_FULL = 0.5
SUSTAINED_INTERVALS = 3
"""A reader whose level is not visible is too slow after so many intervals with loss in a row."""


class DropCause(StrEnum):
    """Causes of a loss: stable codes, whatever the sentence."""

    PLACE = "place"
    """The place alone says why."""
    MTU = "mtu"
    """The peer sends longer frames."""
    LINK_DOWN = "link_down"
    NOT_VISIBLE = "not_visible"
    NOT_KNOWN = "not_known"
    """A quota that is not visible may be behind it."""
    STOPPED = "stopped"
    QUOTA = "quota"
    WAITED_FOR_CPU = "waited_for_cpu"
    NO_TIME_LEFT = "no_time_left"
    NOT_READING = "not_reading"
    """The program took nothing all the time."""
    TOO_SLOW = "too_slow"
    """The program read, and the ring stayed full: more comes than it takes, all the time."""
    FEW_BLOCKS = "few_blocks"
    BURST = "burst"
    """A burst, or a stall of its reader."""


@dataclass(frozen=True, slots=True)
class Because:
    """Why packets died, and the command that changes it."""

    cause: DropCause
    values: Mapping[str, Any]
    """Values in its words."""

    @property
    def why(self) -> str:
        return render(Finding(code=f"drop_causes.{self.cause}", values=self.values), "why")

    @property
    def do(self) -> str:
        return render(Finding(code=f"drop_causes.{self.cause}", values=self.values), "do")


PeerOf = Callable[[int, int, str], SensorPeer | None]
"""Process in a port's namespace, index and name of the port → the veth's other end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusing:
    """Other end of a veth that captures, over one interval."""

    peer: SensorPeer
    refused: int
    """Frames in its tx_dropped that no interval has counted yet."""
    whole: bool
    """Whether it was asked before the interval began: what it did not count was no loss."""
    flapped: bool
    """Whether the link was down in the interval: tx_dropped has what was sent then, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Packets that died at one place within one interval."""

    place: str
    where: str
    counter: str
    packets: int
    why: str = ""
    do: str = ""
    """A command to paste, or words if there is none."""
    cause: DropCause = DropCause.PLACE
    at_least: bool = False
    """More may have died there: the program reads its counters itself, and does not say them."""

    @property
    def at(self) -> tuple[str, str, str]:
        return self.place, self.where, self.counter


@dataclass(slots=True)
class PlaceTotals:
    """All places, kept from interval to interval."""

    _rows: dict[tuple[str, str, str], WatchedPlace] = field(default_factory=dict)
    _causes: dict[tuple[str, str, str], dict[DropCause, tuple[int, Loss]]] = field(
        default_factory=dict
    )
    """Packets of each cause, and its worst interval."""

    def add(self, losses: Sequence[Loss], *, seconds: float, real_ns: int) -> list[WatchedPlace]:
        """Places that lost something ever, the worst now on top."""
        now: dict[tuple[str, str, str], Loss] = {}
        for loss in losses:
            if known := now.get(loss.at):  # a program that ended, and one with its number
                packets, at_least = known.packets + loss.packets, known.at_least or loss.at_least
                loss = replace(loss, packets=packets, at_least=at_least)
            now[loss.at] = loss
        self._rows |= {at: _nothing_lost(now[at]) for at in now if at not in self._rows}
        for at, row in self._rows.items():
            if at in now and now[at].packets:
                self._rows[at] = self._with(row, now[at], seconds, real_ns)
            else:
                at_least = row.at_least or (at in now and now[at].at_least)
                self._rows[at] = row.model_copy(update={"rate_pps": 0.0, "at_least": at_least})
        found = [row for row in self._rows.values() if row.total]
        return sorted(found, key=lambda row: (-row.rate_pps, -row.total))

    def _with(self, row: WatchedPlace, loss: Loss, seconds: float, real_ns: int) -> WatchedPlace:
        causes = self._causes.setdefault(loss.at, {})
        packets, worst = causes.get(loss.cause, (0, loss))
        worst = max(worst, loss, key=lambda one: one.packets)
        causes[loss.cause] = (packets + loss.packets, worst)
        mostly = max(causes.values(), key=lambda one: one[0])[1]
        rate_pps = loss.packets / seconds if seconds else 0.0
        changed = {
            "rate_pps": rate_pps,
            "total": row.total + loss.packets,
            "at_least": row.at_least or loss.at_least,
            "first_real_ns": row.first_real_ns or real_ns,
            "last_real_ns": real_ns,
            "bursts": row.bursts + (row.rate_pps == 0.0),
            "why": loss.why,
            "do": loss.do,
            "most_why": mostly.why,
            "most_do": mostly.do,
        }
        if rate_pps > row.worst_pps:
            changed |= {"worst_pps": rate_pps, "worst_real_ns": real_ns}
        return row.model_copy(update=changed)


def _nothing_lost(loss: Loss) -> WatchedPlace:
    return WatchedPlace(
        place=loss.place,
        where=loss.where,
        counter=loss.counter,
        rate_pps=0.0,
        total=0,
        worst_pps=0.0,
        worst_real_ns=0,
        first_real_ns=None,
        last_real_ns=None,
        bursts=0,
        why=loss.why,
        do=loss.do,
    )


def unit(place: str) -> str:
    """Unit of what is lost there."""
    return "times" if place == ANALYSIS else "packets"


def losses(
    before: Captures,
    now: Captures,
    balances: Sequence[Balance],
    *,
    ended: Sequence[Balance] = (),
    dropped: Mapping[PortAt, RxDropped] | None,
    peers: Mapping[PortAt, Refusing],
) -> list[Loss]:
    """Losses of one interval, in the order of a packet's way; those with 0 as well. `ended`: the
    last books of programs that ended in it."""
    processes = [one for balance in (*balances, *ended) for one in balance.by_process]
    return [
        *_of_ports(before, now),
        *_of_refusals(now, dropped or {}, peers),
        *_of_softnet(before, now),
        *_of_kernel(before, now, balances),
        *_of_groups(before, now),
        *(loss for process in processes for loss in _of_ring(process)),
        *(loss for process in processes for loss in _of_analysis(process)),
    ]


def rx_dropped(
    before: Captures,
    now: Captures,
    balances: Sequence[Balance],
    peers: Mapping[PortAt, Refusing],
) -> Mapping[PortAt, RxDropped] | None:
    """Each port's, within one interval. A NIC's are no loss if the books of a capture on it close:
    its sockets had all that came.

    None where only a table can be read, which has it in one with what the NIC lost.
    """
    closed = {balance.reading.key.at for balance in balances if balance.closed}
    backlog = sum(_refused_by_backlog(before, now).values())
    own_counters = tuple(LOSE_IN_RX_DROPPED.values())
    found = {}
    for at, then, port in _both(before, now):
        if then["link"] is None or port["link"] is None:
            return None
        end = peers.get(at)
        dropped = rise(then["link"]["stats"]["rx_dropped"], port["link"]["stats"]["rx_dropped"])
        dropped -= min(dropped, nic_counters.in_rx_dropped(then["ethtool"], port["ethtool"]))
        lost = refused_frames(
            dropped,
            came=rise(then["rx_packets"][0], port["rx_packets"][1]),
            backlog=backlog,
            cpus=len(now["softnet"]),
        )
        if end is not None:
            parted = parted_by_peer(
                dropped, lost=lost, peer=max(0, end.refused - backlog), flapped=end.flapped
            )
            proved = end.whole and not backlog
        else:
            parted = RxDropped(lost=lost, unknown=0, no_loss=dropped - lost)
            proved = (
                port["link"]["kind"] is None
                and at in closed
                and not any(name.strip().startswith(own_counters) for name in port["ethtool"])
            )
        if not proved:
            parted = replace(parted, unknown=dropped - parted.lost, no_loss=0)
        found[at] = parted
    return found


def _of_refusals(
    now: Captures, dropped: Mapping[PortAt, RxDropped], peers: Mapping[PortAt, Refusing]
) -> Iterator[Loss]:
    for at, port in ports_at(now).items():
        name, mtu = port["name"], _mtu(port)
        if (one := dropped.get(at)) is None:
            continue
        named = {"name": name, "mtu": mtu, "enter": entering(now, port)}
        loss = _loss(str(RECEIVING_PORT), name, one.lost, **named)
        end = peers.get(at)
        if end is not None and isinstance(mtu, int) and end.peer["mtu"] > mtu:
            because = Because(DropCause.MTU, {**named, "longest": end.peer["mtu"]})
            loss = replace(loss, why=because.why, do=because.do, cause=because.cause)
        yield loss
        if end is not None and end.whole and end.flapped:
            counted = one.lost + one.unknown + one.no_loss
            down = Because(
                DropCause.LINK_DOWN, {**named, "peer": located(end.peer["name"], end.peer["pid"])}
            )
            yield Loss(
                place=str(RECEIVING_PORT),
                where=name,
                counter="tx_dropped of a veth's peer beyond rx_dropped",
                packets=max(0, end.refused - counted),
                why=down.why,
                do=down.do,
                cause=down.cause,
            )


def _loss(place: str, where: str, packets: int, **values: Any) -> Loss:
    """A loss whose place alone says why."""
    said = Finding(code=f"drop_places.{place}", values=values)
    counter, why, do = (render(said, form) for form in ("counter", "why", "do"))
    return Loss(place=place, where=where, counter=counter, packets=packets, why=why, do=do)


def pids_of(now: Captures) -> Mapping[PortAt, int]:
    """Port → a process that captures there."""
    return {
        (one["namespace"], one["ifindex"]): one["pid"]
        for one in now["sockets"]
        if one["pid"] is not None
    }


def entering(now: Captures, port: CapturePort) -> str:
    """Begin of a command on a port; empty if it is in the namespace of the node."""
    pid = pids_of(now).get((port["namespace"], port["index"]))
    return "" if pid is None or port["namespace"] == now["namespace"] else f"nsenter -t {pid} -n "


def _both(before: Captures, now: Captures) -> Iterator[tuple[PortAt, CapturePort, CapturePort]]:
    then = ports_at(before)
    for at, port in ports_at(now).items():
        if at in then:
            yield at, then[at], port


def _of_ports(before: Captures, now: Captures) -> Iterator[Loss]:
    for _, then, port in _both(before, now):
        if then["link"] is None or port["link"] is None:
            continue
        name = port["name"]
        named = {"name": name, "mtu": _mtu(port), "enter": entering(now, port)}
        old, new = then["link"]["stats"], port["link"]["stats"]
        missed = rise(old["rx_missed_errors"], new["rx_missed_errors"])
        beyond = nic_counters.beyond(then["ethtool"], port["ethtool"], missed)
        yield _loss(str(NIC), name, missed + max(0, beyond), **named)
        # They overlap from driver to driver: the largest is what was lost at least.
        bad = max(
            rise(old[key], new[key])
            for key in ("rx_errors", "rx_crc_errors", "rx_length_errors", "rx_frame_errors")
        )
        fifo = rise(old["rx_fifo_errors"], new["rx_fifo_errors"])
        yield _loss(BAD_FRAMES, name, max(0, bad - fifo - missed), **named)
        yield _loss(NIC_FIFO, name, 0 if fifo == missed else fifo, **named)


def _mtu(port: CapturePort) -> int | str:
    return port["link"]["mtu"] if port["link"] else "not visible"


def _of_softnet(before: Captures, now: Captures) -> Iterator[Loss]:
    for cpu, refused in _refused_by_backlog(before, now).items():
        yield _loss(str(SOFTNET), f"CPU {cpu}", refused)


def _refused_by_backlog(before: Captures, now: Captures) -> Mapping[int, int]:
    """CPU → packets that found no room in its backlog."""
    then = {row["cpu"]: row["dropped"] for row in before["softnet"]}
    rows = (row for row in now["softnet"] if row["cpu"] in then)
    return {row["cpu"]: rise(then[row["cpu"]], row["dropped"]) for row in rows}


def _of_kernel(before: Captures, now: Captures, balances: Sequence[Balance]) -> Iterator[Loss]:
    """Fragments that a defragmenting group held and then threw away."""
    for number in {
        balance.reading.key.namespace for balance in balances if balance.reading.taken is not None
    }:
        then, last = (look["reassembly"].get(str(number)) for look in (before, now))
        if not then or not last:
            continue
        ports = {b.reading.port_name for b in balances if b.reading.key.namespace == number}
        failed = max(0, last[1]["fails"] - then[1]["fails"])
        yield _loss(str(KERNEL), ", ".join(sorted(ports)), failed)


def _of_groups(before: Captures, now: Captures) -> Iterator[Loss]:
    """Packets that a stranger in a program's fanout group is given in its place."""
    then = {one["inode"]: one["counted"] for one in before["sockets"]}
    ports = ports_at(now)
    groups: dict[tuple[int, int], dict[int, list[CaptureSocket]]] = {}
    for one in now["sockets"]:
        if one["fanout"] and one["pid"] is not None and str(one["pid"]) in now["programs"]:
            at = (one["namespace"], one["fanout"]["id"])
            groups.setdefault(at, {}).setdefault(one["pid"], []).append(one)
    for (_, number), members in groups.items():
        programs = {pid: now["programs"][str(pid)] for pid in members}
        owner, *others = sorted(members, key=lambda pid: programs[pid]["usage"]["start_ticks"])
        held = {one["inode"] for one in members[owner]}
        name = programs[owner]["name"]
        for pid in others:
            other = programs[pid]["name"]
            theirs = [one for one in members[pid] if one["inode"] not in held]
            # Processes of one program may share a group, as Zeek's workers do; Suricata's never.
            if not theirs or (other == name and not is_suricata(name)):
                continue
            counted = [(then.get(one["inode"]), one["counted"]) for one in theirs]
            port = ports.get((theirs[0]["namespace"], theirs[0]["ifindex"]))
            where = f"{name} {owner} on {port['name'] if port else 'a port'}"
            packets = sum(
                rise(old[key] if old else 0, new[key])
                for old, new in counted
                if new
                for key in ("tp_packets", "tp_drops")
            )
            yield _loss(FANOUT_GROUP, where, packets, other=f"{other} {pid}", number=number)


def _of_ring(balance: Balance) -> Iterator[Loss]:
    now = balance.reading
    if balance.dropped_now is None:
        return
    because = cause(balance)
    why = "; ".join(filter(None, (because.why, balance.rings.unannounced)))
    ringless = any(socket["counted"] and socket["ring"] is None for socket in now.sockets)
    yield Loss(
        place="socket buffer" if ringless else str(SOCKET_RING),
        where=f"{now.name} on {now.port_name}",
        counter="tp_drops",
        packets=balance.dropped_now,
        why=why,
        do=because.do,
        cause=because.cause,
        at_least=balance.lost_more,
    )


def cause(balance: Balance) -> Because:
    """Why packets find a ring full; what to do."""
    now = balance.reading
    found = held_back(balance) or overloaded(balance) or _too_short(balance)
    if now.quotas_known or found.cause not in MAY_BE_A_QUOTA:
        return found
    return Because(DropCause.NOT_KNOWN, {"found": found.why})


MAY_BE_A_QUOTA = frozenset(
    {
        DropCause.WAITED_FOR_CPU,
        DropCause.NOT_READING,
        DropCause.TOO_SLOW,
        DropCause.FEW_BLOCKS,
        DropCause.BURST,
    }
)
"""Causes that a CPU quota that is not visible would look like."""


def overloaded(balance: Balance) -> Because | None:
    """A reader that takes less than comes, all the time: a larger ring only delays its loss."""
    level, losing = balance.rings.lowest_ratio, balance.rings.losing
    full = losing >= SUSTAINED_INTERVALS if level is None else level >= HALF_FULL
    if not (full and balance.dropped_now and balance.seconds > 0):
        return None
    came, taken = balance.arrived_now, balance.read_now
    if came is None or taken is None:
        return None
    room = "ring" if any(socket["ring"] for socket in balance.reading.sockets) else "buffer"
    if not taken:
        pid, seconds = balance.reading.key.pid, balance.seconds
        return Because(DropCause.NOT_READING, {"pid": pid, "seconds": seconds, "room": room})
    rates = {"taken": taken / balance.seconds, "came": came / balance.seconds}
    threads = _more_threads(balance.reading)
    return Because(DropCause.TOO_SLOW, {**rates, "room": room, "more_threads": threads})


def _too_short(balance: Balance) -> Because:
    now, lost = balance.reading, balance.dropped_now or 0
    ring = next((socket["ring"] for socket in now.sockets if socket["ring"]), None)
    ms = bridged_ms(ring["version"], ring["blocks"], ring["retire_ms"]) if ring else None
    larger = _larger_ring(now, ring, lost)
    if ring and ms and ms < FEW_BLOCKS_MS:
        return Because(DropCause.FEW_BLOCKS, {**ring, "ms": ms, "larger_ring": larger})
    room = "ring" if ring else "buffer"
    return Because(DropCause.BURST, {"room": room, "larger_ring": larger})


def held_back(balance: Balance) -> Because | None:
    """The cause that kept the reader from its ring within the interval, and what to do."""
    now, program = balance.reading, balance.reading.program
    if program is None:
        return Because(DropCause.NOT_VISIBLE, {})
    if program["stopped"] or all(thread["state"] in "Tt" for thread in program["threads"]):
        return Because(DropCause.STOPPED, {"pid": now.key.pid})
    if throttled := _throttled(balance):
        file, ratio = throttled
        held = f"{ratio * 100:.0f} % of the time"
        if ratio > 1:
            spent_s = ratio * balance.used_s
            held = f"{spent_s:.2f} s within {balance.used_s:.2f} s, summed over CPUs"
        folder = shlex.quote(file.rpartition("/")[0])
        version1 = "/cpu/" in file or "cpu,cpuacct" in file
        off = "echo -1 > {}/cpu.cfs_quota_us" if version1 else "echo max > {}/cpu.max"
        return Because(DropCause.QUOTA, {"held": held, "lift": off.format(folder)})
    threads = {thread_share.name: thread_share for thread_share in thread_shares(balance)}
    captures = [one for name, one in threads.items() if name.startswith(("W#", "RX#"))]
    busiest = max(captures or threads.values(), key=lambda capture: capture.ran, default=None)
    waits = max(captures or threads.values(), key=lambda capture: capture.waited, default=None)
    if waits and waits.waited >= WAITED_RATIO:
        return Because(DropCause.WAITED_FOR_CPU, waits.model_dump())
    if busiest and busiest.ran >= BUSY_RATIO:
        more = _more_threads(now)
        return Because(DropCause.NO_TIME_LEFT, {**busiest.model_dump(), "more_threads": more})
    return None


def _throttled(balance: Balance) -> tuple[str, float] | None:
    """The control group that held it back longest, over the interval; summed over CPUs."""
    now, before = balance.reading.program, balance.before.program
    if not now or not before or balance.used_s <= 0:
        return None
    then = before["usage"]["throttled_ns"]
    rose = {
        file: rise(then[file], ns) / 1e9 / balance.used_s
        for file, ns in now["usage"]["throttled_ns"].items()
        if file in then
    }
    file = max(rose, key=lambda one: rose[one], default=None)
    return (file, rose[file]) if file and rose[file] >= THROTTLED_RATIO else None


def thread_shares(balance: Balance) -> list[ThreadShare]:
    """Shares of the threads that both looks saw, the busiest first. The kernel counts a wait when
    it ends, and so one that began before the interval: no share is more than what is left of it."""
    now, before = balance.reading.program, balance.before.program
    if not now or not before or balance.used_s <= 0:
        return []
    then: Mapping[int, ThreadReading] = {one["tid"]: one for one in before["threads"]}
    span_ns = balance.used_s * 1e9
    found = []
    for one in now["threads"]:
        if (old := then.get(one["tid"])) is None:
            continue
        ran = min(1.0, max(0, one["cpu_ns"] - old["cpu_ns"]) / span_ns)
        waited = min(1.0 - ran, max(0, one["wait_ns"] - old["wait_ns"]) / span_ns)
        state, cpu = one["state"], one["last_cpu"]
        found.append(ThreadShare(name=one["name"], ran=ran, waited=waited, state=state, cpu=cpu))
    return sorted(found, key=lambda one: -one.ran - one.waited)


def _more_threads(reading: CaptureReading) -> str:
    if reading.suricata:
        return _in_yaml(reading, "threads", len(reading.sockets) + 1) + "; or fewer rules"
    return "less work per packet, or a filter (BPF) in front of it"


def _in_yaml(reading: CaptureReading, setting: str, value: int) -> str:
    """A service has its arguments from systemd, and its settings from its file."""
    return (
        f"suricata.yaml, af-packet, interface {reading.port_name}: {setting}: {value}; then "
        f"restart it (systemctl restart suricata)   # by hand: suricata … --set "
        f"af-packet.N.{setting}={value}, N its place in that list"
    )


MOST_SLOTS, MOST_RING_KIB = 400_000, 1 << 20
"""A loss that would need more is no burst."""
LARGEST_PACKET_BYTES = 1664
"""Room in a ring for a packet of 1,500 bytes and its header."""


def _larger_ring(reading: CaptureReading, ring: RingShape | None, lost: int) -> str:
    """A ring that would have held what was lost too, and at least twice as large."""
    name = reading.program["name"] if reading.program else ""
    if reading.suricata:
        if ring and ring["retire_ms"] and ring["retire_ms"] < 100:
            return _in_yaml(reading, "block-timeout", 100)
        held = ring["blocks"] * (ring["block_bytes"] // max(1, ring["frame_bytes"])) if ring else 0
        wanted = math.ceil(max(2 * held, held + lost, 10_000) / 1000) * 1000
        return _in_yaml(reading, "ring-size", min(wanted, MOST_SLOTS))
    if name in ("tcpdump", "dumpcap", "tshark") and ring:
        held_bytes = ring["blocks"] * ring["block_bytes"]
        wanted = max(2 * held_bytes, held_bytes + lost * LARGEST_PACKET_BYTES)
        kib = min(2 ** math.ceil(math.log2(wanted / 1024)), MOST_RING_KIB)
        if name == "tcpdump":
            return f"tcpdump -B {kib} …   # KiB"
        return f"{name} -B {max(1, kib // 1024)} …   # MiB"
    return "a larger capture ring" if ring else "a larger socket buffer (SO_RCVBUF)"


def _of_analysis(balance: Balance) -> Iterator[Loss]:
    now, before = balance.reading.program, balance.before.program
    said, then = (one["suricata"] if one else None for one in (now, before))
    if not said or not then or not said["counters"] or not then["counters"]:
        return
    for row, counter in lost_analysis(said["counters"]):
        limit = said["memcaps"].get(row.memcap or "")
        why = f"{row.loses} ({row.setting}{f' is {limit}' if limit else ''}; times, not packets)"
        command = f'suricatasc -c "memcap-set {row.memcap} {doubled(limit or "")}" '
        in_file = f"suricata.yaml: raise {row.setting}; then restart Suricata"
        yield Loss(
            place=ANALYSIS,
            where=balance.reading.name,
            counter=counter,
            packets=rise(then["counters"].get(counter, 0), said["counters"][counter]),
            why=why,
            do=command + shlex.quote(said["socket"]) if limit else in_file,
        )


def doubled(limit: str) -> str:
    """`128mb` → `256mb`."""
    digits = "".join(c for c in limit if c.isdigit())
    return (
        f"{2 * int(digits)}{limit[len(digits) :]}" if digits and limit.startswith(digits) else "…"
    )
