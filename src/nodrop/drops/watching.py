"""Looks at a host, one an interval, and what they say together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from nodrop.drops.books import Balance, Books, Bounds, Key
from nodrop.drops.places import Loss, Row, Table, losses, not_for_us, thread_shares
from nodrop.protocol.events import Captures, NotVisible
from nodrop.results.watched import (
    Hidden,
    ThreadShare,
    WatchedCapture,
    WatchedInterval,
    WatchedPlace,
)

ALWAYS = NotVisible(
    what="what a switch, a TAP or the cable lost",
    needs="a counter of that device",
    why="no counter of this host has it",
)
MOST_ENDED = 20
FULL_RATIO = 0.5
"""A ring that is so full is announced before it loses."""
SOON_MS = 3000
"""So is one that is full in less, at the pace at which it fills."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """One interval: balances, what died where, and what nobody can see."""

    real_ns: int
    """When it ended."""
    seconds: float
    balances: Sequence[Balance]
    losses: Sequence[Loss]
    rows: Sequence[Row]
    """Places that lost something since the watch began, the worst now on top."""
    ended: Sequence[Balance]
    """Captures that ended since the watch began, with their last books before they fell silent."""
    not_for_us: int | None
    notes: Sequence[str]
    """Programs that came, went or began anew; ports that went away."""
    not_visible: Sequence[NotVisible]
    look_ns: int
    """How long the look took."""


@dataclass(slots=True)
class Watch:
    """Looks in, intervals out."""

    _books: Books = field(default_factory=Books)
    _table: Table = field(default_factory=Table)
    _before: Captures | None = None
    _latest: dict[Key, Balance] = field(default_factory=dict)

    def look(self, seen: Captures) -> Interval | None:
        """None of the first look: an interval has two."""
        before, self._before = self._before, seen
        balances = self._books.look(seen)
        if before is None:
            return None
        for one in balances:
            # One that ends reads its counters, and answers no more: its books are those before.
            known = self._latest.get(one.reading.key)
            if known is None or not (one.at_least and one.unheard):
                self._latest[one.reading.key] = one
        here = {one.reading.key for one in balances}
        ended = [one for key, one in self._latest.items() if key not in here][-MOST_ENDED:]
        kept = here | {one.reading.key for one in ended}
        self._latest = {key: one for key, one in self._latest.items() if key in kept}
        seconds = (seen["mono_ns"] - before["mono_ns"]) / 1e9
        lost = losses(before, seen, balances)
        return Interval(
            real_ns=seen["real_ns"],
            seconds=seconds,
            balances=balances,
            losses=lost,
            rows=self._table.add(lost, seconds=seconds, real_ns=seen["real_ns"]),
            ended=ended,
            not_for_us=not_for_us(before, seen),
            notes=[*_changes(before, seen)],
            not_visible=[ALWAYS, *seen["missing"], *_silent(balances)],
            look_ns=seen["took_ns"],
        )


def intervals(
    look: Callable[[], Captures],
    *,
    interval_s: float,
    for_s: float | None = None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Interval]:
    """One each `interval_s`, until `for_s` has passed. A late one is not made up for."""
    watch = Watch()
    began = due = clock()
    watch.look(look())
    while for_s is None or due - began < for_s - interval_s / 2:
        due += interval_s if due + interval_s > clock() else clock() - due + interval_s
        sleep(due - clock())
        if (found := watch.look(look())) is not None:
            yield found


def _changes(before: Captures, now: Captures) -> Iterator[str]:
    then = {(pid, one["usage"]["start_ticks"]): one for pid, one in before["programs"].items()}
    here = {(pid, one["usage"]["start_ticks"]): one for pid, one in now["programs"].items()}
    for (pid, _), one in then.items():
        if all(known != pid for known, _ in here):
            yield f"{one['name']} {pid} has ended, or captures no more"
    for (pid, start), one in here.items():
        if (pid, start) not in then:
            yield f"{one['name']} {pid} captures; its books begin here"
    ports = {(port["namespace"], port["index"]) for port in now["ports"]}
    for port in before["ports"]:
        if (port["namespace"], port["index"]) not in ports:
            yield f"port {port['name']}: nobody captures there any more, or it is gone"


def _silent(balances: Sequence[Balance]) -> Iterator[NotVisible]:
    for one in balances:
        reading = one.reading
        if one.unheard:
            yield NotVisible(
                what=f"the own counters of {reading.name}, now",
                needs="an answer on its command socket",
                why=one.unheard,
            )
        if one.at_least:
            yield NotVisible(
                what=f"what {reading.name} had before it read its own counters",
                needs="its own sums: only Suricata's command socket is known",
                why="a reading sets them to zero",
            )


def overflow_ms(balance: Balance) -> int | None:
    """Time until the first ring is full, if its reader stays away: at the pace of its filling
    since the look before, and in a ring of version 3 after what is left of its blocks, each of
    which is retired after its time however empty. None: no ring fills up."""
    before = {one["inode"]: one["waiting"] for one in balance.before.sockets}
    found = []
    for one in balance.reading.sockets:
        if not (one["ring"] and one["waiting"]):
            continue
        fill, earlier = one["waiting"][1], before.get(one["inode"])
        left = fill["of"] - fill["full"]
        grown = fill["full"] - earlier[1]["full"] if earlier else 0
        paced_ms = left * balance.seconds * 1000 / grown if grown > 0 else None
        half_full = fill["full"] >= FULL_RATIO * fill["of"]
        if paced_ms is not None and (half_full or paced_ms <= SOON_MS):
            found.append(round(paced_ms))
        if half_full and one["ring"]["retire_ms"]:
            found.append(left * one["ring"]["retire_ms"])
    return min(found, default=None)


def oldest_ms(balance: Balance, real_ns: int) -> int | None:
    """Age of the oldest packet that waits in a ring."""
    ages = [
        real_ns - fill["oldest_real_ns"]
        for one in balance.reading.sockets
        for fill in (one["waiting"] or [])[1:]
        if fill["oldest_real_ns"]
    ]
    return max(0, max(ages) // 1_000_000) if ages else None


def written(found: Interval) -> WatchedInterval:
    """The interval as `--json` and `--record` have it."""
    return WatchedInterval(
        real_ns=found.real_ns,
        interval_s=found.seconds,
        captures=[_capture(one, found.real_ns) for one in found.balances],
        ended=[_capture(one, found.real_ns) for one in found.ended],
        places=[
            WatchedPlace(
                place=row.loss.place,
                where=row.loss.where,
                counter=row.loss.counter,
                rate_pps=row.rate_pps,
                total=row.total,
                worst_pps=row.worst_pps,
                worst_real_ns=row.worst_real_ns,
                first_real_ns=row.first_real_ns,
                last_real_ns=row.last_real_ns,
                bursts=row.bursts,
                why=row.loss.why,
                do=row.loss.do,
            )
            for row in found.rows
        ],
        not_for_us_packets=found.not_for_us,
        notes=[*found.notes],
        not_visible=[Hidden(**one) for one in found.not_visible],
        look_ns=found.look_ns,
    )


def _capture(one: Balance, real_ns: int) -> WatchedCapture:
    reading = one.reading
    program = reading.program
    said = program["suricata"] if program else None
    return WatchedCapture(
        program=program["name"] if program else None,
        pid=reading.key.pid,
        port=reading.port_name,
        namespace=reading.key.namespace,
        offered_packets=_pair(one.offered),
        merged_packets=(one.merged.low, one.merged.high),
        arrived_packets=_pair(one.arrived),
        dropped_packets=one.dropped,
        dropped_now_packets=one.dropped_now,
        waiting_packets=_pair(one.waiting),
        read_packets=_pair(one.read),
        residual_packets=_pair(one.residual),
        closed=one.closed,
        at_least=one.at_least,
        oldest_ms=oldest_ms(one, real_ns),
        overflow_ms=overflow_ms(one),
        stopped=program["stopped"] if program else None,
        decoded_packets=(said["counters"] or {}).get("decoder.pkts") if said else None,
        threads=[
            ThreadShare(name=t.name, ran=t.ran, waited=t.waited, state=t.state, cpu=t.cpu)
            for t in thread_shares(one)
        ],
    )


def _pair(bounds: Bounds | None) -> tuple[int, int] | None:
    return None if bounds is None else (bounds.low, bounds.high)
