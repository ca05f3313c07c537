"""Looks at a host, one an interval, and what they say together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nodrop.answer.finding import Finding, render
from nodrop.drops.capture_books import (
    STEP_NS,
    AccountRange,
    Balance,
    CaptureBooks,
    CaptureKey,
    PortAt,
    RingState,
    flapped,
    ports_at,
)
from nodrop.drops.chosen_ports import ANY, at_ports
from nodrop.drops.levels import FULL_RATIO, CaptureLevels
from nodrop.drops.places import (
    PeerOf,
    PlaceTotals,
    Refusing,
    held_back,
    losses,
    pids_of,
    rx_dropped,
    thread_shares,
)
from nodrop.protocol import CapturePort, Captures, NotVisible, RingLevels, RingSpells, SensorLack
from nodrop.results.watched import Blind, BlindPort, Hidden, WatchedCapture, WatchedInterval
from nodrop.sensor.rx_dropped import RxDropped
from nodrop.sensor.slots import slot_needed

MOST_ENDED = 20
SOON_MS = 3000
"""Time within which a ring is full at its pace, and is announced."""
LEVELS_S = 0.1
"""Rings are looked at so often between two looks at everything: one that needs three times as long
to fill is announced before it loses."""
GLANCES_S = 1.0
"""Programs are looked at so often within a longer interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DropsInterval:
    """One interval: the answer, and the books that it rests on."""

    answer: WatchedInterval
    """The interval as `--json` and `--record` have it."""
    balances: Sequence[Balance]
    ended: Sequence[Balance]
    """Captures that ended since the watch began, with their last books before they fell silent and
    with what came after these."""
    driven: Sequence[SensorLack]
    """Packets of NICs that a program drives itself: no port of the kernel has them."""

    @property
    def clear(self) -> Sequence[str]:
        """Ports that were up all the time, and whose captures all show what they lost."""
        blind = {port.port for port in self.answer.blind}
        return sorted({balance.reading.port_name for balance in self.balances} - blind)

    @property
    def cannot_tell(self) -> bool:
        return not self.answer.places and (bool(self.answer.blind) or not self.balances)


@dataclass(slots=True)
class Watch:
    """Looks in, intervals out."""

    peer_of: PeerOf | None = None
    chosen: Sequence[str] = ()
    """Names of ports to watch (none: all): each is blind until a program captures on it."""
    _inodes: set[str] = field(default_factory=set)
    """Sockets of the last look there."""
    _tx_dropped: dict[PortAt, int] = field(default_factory=dict)
    """Veth → frames in its peer's tx_dropped that are counted, those before the watch included."""
    _asked: set[PortAt] = field(default_factory=set)
    """Veths whose other end was looked for: each look is a probe of the host."""
    _books: CaptureBooks = field(default_factory=CaptureBooks)
    _table: PlaceTotals = field(default_factory=PlaceTotals)
    _levels: CaptureLevels = field(default_factory=CaptureLevels)
    _announced: dict[CaptureKey, int] = field(default_factory=dict)
    """Captures whose rings filled up → the last look at which they did, by CLOCK_MONOTONIC."""
    _ports: dict[PortAt, CapturePort] = field(default_factory=dict)
    """Ports that were captured on since the watch began, as they were seen last."""
    _blind: dict[PortAt | str, BlindPort] = field(default_factory=dict)
    _was_blind: list[BlindPort] = field(default_factory=list)
    """Times in which a port was blind, the newest last."""
    _losing: dict[CaptureKey, int] = field(default_factory=dict)
    """Intervals with loss in a row."""
    _before: Captures | None = None
    _latest: dict[CaptureKey, Balance] = field(default_factory=dict)
    _silent: dict[CaptureKey, Balance] = field(default_factory=dict)
    """The last balances of those that answer no more."""
    _ended: dict[CaptureKey, int] = field(default_factory=dict)
    _unknown: dict[PortAt, int] = field(default_factory=dict)
    """Packets in a port's rx_dropped that may be lost or not: no counter parts them."""

    def fills(self, levels: RingLevels) -> bool:
        """Whether a ring begins to fill up, so that the interval is to end now."""
        rings = levels["rings"].items()
        ratios = {int(n): one["full"] / one["of"] for n, one in rings if n in self._inodes}
        return self._levels.add(levels["mono_ns"], ratios)

    def spells(self, seen: RingSpells) -> None:
        self._levels.spells(seen)

    def glance(self, seen: Captures) -> None:
        """A look within an interval: of a program that ends before the interval does, these are the
        last books."""
        self._keep(self._books.look(self._at_chosen_ports(seen), ends_interval=False))

    def _at_chosen_ports(self, seen: Captures) -> Captures:
        if self.chosen:
            seen = at_ports(seen, self.chosen)
        self._inodes = {str(one["inode"]) for one in seen["sockets"]}
        return seen

    def _keep(self, balances: Sequence[Balance]) -> None:
        for balance in balances:
            # One that ends reads its counters, and answers no more: its books are those before.
            known = self._latest.get(balance.reading.key)
            if known is None or not (balance.at_least and balance.unheard):
                self._latest[balance.reading.key] = balance
                self._silent.pop(balance.reading.key, None)
            else:
                self._silent[balance.reading.key] = balance

    def _lost_until(self, key: CaptureKey, began_mono_ns: int) -> Balance:
        """Books of a program that ended within an interval: what they have of it is in no other
        interval, and more may have been lost after them."""

        def lost(books: Balance) -> Balance:
            if books.reading.mono_ns <= began_mono_ns:
                books = replace(books, before=books.reading, dropped_now=0)
            return replace(books, at_least=True)

        books = lost(self._silent.get(key, self._latest[key]))
        return replace(books, members=[lost(member) for member in books.members])

    def look(self, seen: Captures) -> DropsInterval | None:
        """None of the first look: an interval has two."""
        seen = self._at_chosen_ports(seen)
        before, self._before = self._before, seen
        balances = self._books.look(seen)
        self._ports |= ports_at(seen)
        ratios = {
            one["inode"]: one["waiting"][1]["full"] / one["waiting"][1]["of"]
            for one in seen["sockets"]
            if one["ring"] and one["waiting"]
        }
        self._levels.add(seen["mono_ns"], ratios)
        if before is None:
            self._peers(seen, seen)
            return None
        self._keep(balances)
        here = {one.reading.key for one in balances}
        gone = [key for key in self._latest if key not in here][-MOST_ENDED:]
        kept = here | {*gone}
        self._latest = {key: one for key, one in self._latest.items() if key in kept}
        self._silent = {key: one for key, one in self._silent.items() if key in kept}
        just_ended = [
            self._lost_until(key, before["mono_ns"]) for key in gone if key not in self._ended
        ]
        self._ended = {key: self._ended.get(key, seen["real_ns"]) for key in gone}
        seconds = (seen["mono_ns"] - before["mono_ns"]) / 1e9
        peers = self._peers(before, seen)
        dropped = rx_dropped(before, seen, balances, peers)
        for at, end in peers.items():
            if parted := (dropped or {}).get(at):
                # A frame that was refused after the look is the next interval's.
                counted = parted.lost + parted.unknown + parted.no_loss
                self._tx_dropped[at] += end.refused if end.flapped else min(end.refused, counted)
        balances = self._with_rings(balances, before, seen)
        lost = losses(before, seen, balances, ended=just_ended, dropped=dropped, peers=peers)
        every = [*balances, *(member for one in balances for member in one.members)]
        fills = [
            one
            for balance in balances
            for one in balance.by_process
            if one.rings.overflow_ms is not None
            and self._announced.get(one.reading.key) != before["mono_ns"]
        ]
        self._announced |= {
            one.reading.key: seen["mono_ns"]
            for one in every
            if one.rings.overflow_ms is not None
            or any(held["inode"] in self._levels.announced for held in one.reading.sockets)
        }
        processes = {one.reading.key for one in every}
        self._announced = {key: at for key, at in self._announced.items() if key in processes}
        last_books = [self._last_books(key, seen["real_ns"]) for key in gone]
        hidden = [
            _not_visible("always"),
            *seen["missing"],
            *(_not_visible("driven", **one) for one in seen["driven"]),
            *self._perhaps_lost(seen, dropped or {}),
            *_silent(balances),
            *_copied(balances),
            *_unsaid(last_books),
        ]
        notes = [*_changes(before, seen), *map(_filling, fills)]
        answer = WatchedInterval(
            real_ns=seen["real_ns"],
            interval_s=seconds,
            captures=[_capture(one) for one in balances],
            ended=[_capture(last_book) for last_book in last_books],
            places=self._table.add(lost, seconds=seconds, real_ns=seen["real_ns"]),
            not_for_us_packets=None
            if dropped is None
            else sum(one.no_loss for one in dropped.values()),
            notes=notes,
            blind=self._blind_ports(before, seen, balances),
            not_visible=[Hidden(**one) for one in hidden],
            look_ns=seen["took_ns"],
        )
        return DropsInterval(
            answer=answer, balances=balances, ended=last_books, driven=seen["driven"]
        )

    def _blind_ports(
        self, before: Captures, seen: Captures, balances: Sequence[Balance]
    ) -> list[BlindPort]:
        then, here = ports_at(before), ports_at(seen)
        hidden: dict[PortAt, Blind] = {}
        for balance in balances:
            if (reason := _hides(balance)) is not None:
                hidden.setdefault(balance.reading.key.at, reason)
        found: dict[PortAt | str, BlindPort] = {}

        def add(at: PortAt | str, name: str, why: Blind) -> None:
            known = self._blind.get(at)
            since_ns = known.since_real_ns if known and known.why == why else seen["real_ns"]
            found[at] = BlindPort(port=name, why=why, since_real_ns=since_ns)

        for at, last in self._ports.items():
            link = here[at]["link"] if at in here else None
            why: Blind | None = None
            if at not in here:
                # A generator has a packet socket too; its port sends.
                sends = last["tx_packets"][1] > last["rx_packets"][1]
                why = None if sends else "no_program"
            elif link and not link["up"]:
                why = "down"
            elif link and not link["carrier"]:
                why = "no_carrier"
            else:
                why = hidden.get(at)
            if why is not None:
                add(at, last["name"], why)
        captured = {port["name"] for port in self._ports.values()}
        if all(one.reading.key.ifindex != ANY for one in balances):
            for name in sorted({*self.chosen} - captured - {"any"}):
                add(name, name, "no_program")
        ended = (
            one.model_copy(update={"until_real_ns": seen["real_ns"]})
            for at, one in self._blind.items()
            if one.why in PASSING and (at not in found or found[at].why != one.why)
        )
        between_looks = (
            BlindPort(
                port=port["name"],
                why="no_carrier",
                since_real_ns=before["real_ns"],
                until_real_ns=seen["real_ns"],
            )
            for at, port in here.items()
            if at in then and flapped(then[at], port) and _has_carrier(then[at], port)
        )
        self._was_blind = [*self._was_blind, *ended, *between_looks][-MOST_ENDED:]
        self._blind = found
        return [*self._was_blind, *found.values()]

    def _last_books(self, key: CaptureKey, real_ns: int) -> Balance:
        books, end = self._latest[key], self._silent.get(key)
        if end is not None and end.offered and books.offered:
            late = end.offered - books.offered
            dropped = max(0, (end.dropped or 0) - (books.dropped or 0))
            late = AccountRange(max(0, late.low), late.high)
            books = replace(books, unsaid_offered=late, unsaid_dropped=dropped)
        if not (books.reading.program and books.reading.program["suricata"]):
            # Its sockets went with their counters, at some moment after the look before.
            books = replace(books, at_least=True, residual=None, read=None)
        rings = RingState(oldest_ms=oldest_ms(books, real_ns))
        return replace(books, ended_real_ns=self._ended[key], rings=rings)

    def _peers(self, before: Captures, seen: Captures) -> Mapping[PortAt, Refusing]:
        """Other ends of veths that are new, whose rx_dropped rose, or whose link was down: no
        others are asked."""
        if self.peer_of is None:
            return {}
        then, pids, found = ports_at(before), pids_of(seen), {}
        for at, port in ports_at(seen).items():
            pid, link = pids.get(at), port["link"]
            if link is None or link["kind"] != "veth" or pid is None:
                continue
            known, old = self._tx_dropped.get(at), then[at]["link"] if at in then else None
            rose = old and old["stats"]["rx_dropped"] != link["stats"]["rx_dropped"]
            was_down = at in then and flapped(then[at], port)
            if at in self._asked and not (rose or was_down):
                continue
            self._asked.add(at)
            if peer := self.peer_of(pid, port["index"], port["name"]):
                base = self._tx_dropped.setdefault(at, peer["tx_dropped"])
                refused = max(0, peer["tx_dropped"] - base)
                whole = known is not None
                found[at] = Refusing(peer=peer, refused=refused, whole=whole, flapped=was_down)
        return found

    def _perhaps_lost(
        self, seen: Captures, dropped: Mapping[PortAt, RxDropped]
    ) -> Iterator[NotVisible]:
        for at, port in ports_at(seen).items():
            link = port["link"]
            here = dropped[at].unknown if at in dropped else 0
            total = self._unknown[at] = self._unknown.get(at, 0) + here
            if not total or link is None:
                continue
            code = "unparted_of_veth" if link["kind"] == "veth" else "unparted"
            yield _not_visible(code, total=total, port=port["name"], mtu=link["mtu"])

    def _with_rings(
        self, balances: Sequence[Balance], before: Captures, seen: Captures
    ) -> Sequence[Balance]:
        every = [*balances, *(member for balance in balances for member in balance.members)]
        unannounced = {one.reading.key: self._unannounced(one, before) for one in every}
        losing = {one.reading.key for one in every if one.dropped_now}
        self._losing = {key: self._losing.get(key, 0) + 1 for key in losing}
        lowest = self._levels.lowest
        levels = self._levels.interval_ends(seen, balances)

        def with_rings(balance: Balance) -> Balance:
            key = balance.reading.key
            rings = RingState(
                level=levels.get(key.inodes),
                lowest_ratio=max((lowest[n] for n in key.inodes if n in lowest), default=None),
                oldest_ms=oldest_ms(balance, seen["real_ns"]),
                overflow_ms=overflow_ms(balance, self._levels),
                losing=self._losing.get(key, 0),
                unannounced=unannounced[key],
            )
            return replace(
                balance, rings=rings, members=[with_rings(each) for each in balance.members]
            )

        return [with_rings(balance) for balance in balances]

    def _unannounced(self, balance: Balance, before: Captures) -> str | None:
        """Why nothing announced a loss of this interval."""
        sockets = balance.reading.sockets
        # Suricata may say a loss only when its ring has long been empty again.
        at_ns = self._announced.get(balance.reading.key)
        lately = at_ns is not None and before["mono_ns"] - at_ns <= STEP_NS
        if lately or not any(held["ring"] for held in sockets):
            return None
        if any(held["waiting"] is None for held in sockets):
            return "not announced: what waits in its rings is not visible"
        gap_ms = self._levels.gap_ns / 1e6
        return f"not announced: its ring filled between two looks, {gap_ms:.0f} ms apart"


def intervals(
    look: Callable[[], Captures],
    *,
    interval_s: float,
    for_s: float | None = None,
    levels: Callable[[], RingLevels] | None = None,
    spells: Callable[[], RingSpells] | None = None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    peer_of: PeerOf | None = None,
    chosen: Sequence[str] = (),
) -> Iterator[DropsInterval]:
    """One each `interval_s`, until `for_s` has passed, and one more when `levels` has a ring that
    begins to fill up. A late one is not made up for."""
    watch = Watch(peer_of=peer_of, chosen=chosen)
    began = due = clock()
    watch.look(look())
    while for_s is None or due - began < for_s - interval_s / 2:
        due += interval_s if due + interval_s > clock() else clock() - due + interval_s
        between, glances = LEVELS_S if levels is not None else GLANCES_S, clock() + GLANCES_S
        while due - clock() > between:
            sleep(between)
            if levels is not None and watch.fills(levels()):
                if (early := watch.look(look())) is not None:
                    yield early
            elif clock() >= glances:
                watch.glance(look())
            else:
                continue
            glances = clock() + GLANCES_S
        sleep(max(0.0, due - clock()))
        if spells is not None:
            watch.spells(spells())
        if (found := watch.look(look())) is not None:
            yield found


PASSING = frozenset[Blind](("no_program", "down", "no_carrier", "stopped"))
"""Reasons that end within a watch. The packets lost until then are in no counter."""


def _has_carrier(*looks: CapturePort) -> bool:
    return all(look["link"] and look["link"]["up"] and look["link"]["carrier"] for look in looks)


def _hides(capture: Balance) -> Blind | None:
    """Why packets that its program never had would be in no counter."""
    if capture.dropped is None:
        program = capture.reading.program
        return "stopped" if program and program["stopped"] else "ring_not_visible"
    if capture.dropped_seen is None:
        return "counters_read"
    port = capture.reading.port
    for balance in capture.by_process:
        for ring in (socket["ring"] for socket in balance.reading.sockets):
            if ring and slot_needed(
                version=ring["version"],
                slot_bytes=ring["frame_bytes"],
                mtu=port["link"]["mtu"] if port and port["link"] else None,
                suricata=balance.reading.suricata,
            ):
                return "frames_cut"
    return None


def _changes(before: Captures, now: Captures) -> Iterator[str]:
    then = {(pid, one["usage"]["start_ticks"]): one for pid, one in before["programs"].items()}
    here = {(pid, one["usage"]["start_ticks"]): one for pid, one in now["programs"].items()}
    for (pid, _), one in then.items():
        if all(known != pid for known, _ in here):
            yield f"{one['name']} {pid} has ended, or captures no more"
    for (pid, start), one in here.items():
        if (pid, start) not in then:
            yield f"{one['name']} {pid} captures; its books begin here"
    ports = ports_at(now)
    for at, port in ports_at(before).items():
        if at not in ports:
            yield f"port {port['name']}: nobody captures there any more, or it is gone"


def _not_visible(code: str, **values: Any) -> NotVisible:
    said = Finding(code=f"not_visible.{code}", values=values)
    what, needs, why = (render(said, form) for form in ("what", "needs", "why"))
    return NotVisible(what=what, needs=needs, why=why)


def _copied(balances: Sequence[Balance]) -> Iterator[NotVisible]:
    for balance in balances:
        reading = balance.reading
        if reading.copies > 1 and balance.arrived and balance.arrived.high:
            yield _not_visible(
                "copied",
                port=reading.port_name,
                capture=reading.name,
                copies=reading.copies,
                sockets=len(reading.sockets),
            )


def _silent(balances: Sequence[Balance]) -> Iterator[NotVisible]:
    for balance in balances:
        if balance.unheard:
            yield _not_visible("unheard", capture=balance.reading.name, silent=balance.unheard)
        if balance.at_least:
            yield _not_visible("counters_read", capture=balance.reading.name)


def _unsaid(ended: Sequence[Balance]) -> Iterator[NotVisible]:
    for balance in ended:
        if (late := balance.unsaid_offered) is not None and late.high:
            yield _not_visible(
                "unsaid",
                late=late.high,
                capture=balance.reading.name,
                port=balance.reading.port_name,
                dropped=balance.unsaid_dropped,
            )


def overflow_ms(balance: Balance, levels: CaptureLevels) -> int | None:
    """Time until the first ring is full, if its reader stays away: at the pace of its filling, and
    in a ring of version 3 after what is left of its blocks, each of which is retired after its time
    however empty. None: no ring fills up."""
    found = []
    for socket in balance.reading.sockets:
        if not (socket["ring"] and socket["waiting"]):
            continue
        fill, paced_ms = socket["waiting"][1], levels.full_ms(socket["inode"])
        half_full = fill["full"] >= FULL_RATIO * fill["of"]
        if fill["full"] >= fill["of"]:
            found.append(0)
        elif paced_ms is not None and (half_full or paced_ms <= SOON_MS):
            found.append(round(paced_ms))
        if half_full and socket["ring"]["retire_ms"]:
            found.append((fill["of"] - fill["full"]) * socket["ring"]["retire_ms"])
    return min(found, default=None)


def _filling(balance: Balance) -> str:
    reading, left = balance.reading, balance.rings.overflow_ms
    when = f"it is full in {left} ms" if left else "it is full"
    words = f"▲ ring of {reading.name} on {reading.port_name} fills, {when}"
    if held := held_back(balance):
        words += f": {held.why}; do: {held.do}"
    return words


def oldest_ms(balance: Balance, real_ns: int) -> int | None:
    """Age of the oldest packet that waits in a ring."""
    ages = [
        real_ns - fill["oldest_real_ns"]
        for socket in balance.reading.sockets
        for fill in (socket["waiting"] or [])[1:]
        if fill["oldest_real_ns"]
    ]
    return max(0, max(ages) // 1_000_000) if ages else None


def _capture(balance: Balance) -> WatchedCapture:
    reading = balance.reading
    program = reading.program
    said = program["suricata"] if program else None
    return WatchedCapture(
        program=program["name"] if program else None,
        pid=reading.key.pid,
        port=reading.port_name,
        namespace=reading.key.namespace,
        offered_packets=_pair(balance.offered),
        merged_packets=(balance.merged.low, balance.merged.high),
        arrived_packets=_pair(balance.arrived),
        dropped_packets=balance.dropped_seen,
        dropped_now_packets=balance.dropped_now,
        waiting_packets=_pair(reading.waiting),
        waited_before_packets=_pair(balance.waited_before),
        read_packets=_pair(balance.read),
        residual_packets=_pair(balance.residual),
        closed=balance.closed,
        at_least=balance.at_least,
        oldest_ms=balance.rings.oldest_ms,
        overflow_ms=balance.rings.overflow_ms,
        stopped=program["stopped"] if program else None,
        decoded_packets=(said["counters"] or {}).get("decoder.pkts") if said else None,
        level=balance.rings.level,
        since_start_arrived_packets=_pair(reading.arrived),
        since_start_dropped_packets=reading.dropped,
        ended_real_ns=balance.ended_real_ns,
        unsaid_offered_packets=_pair(balance.unsaid_offered),
        unsaid_dropped_packets=balance.unsaid_dropped,
        threads=thread_shares(balance),
    )


def _pair(bounds: AccountRange | None) -> tuple[int, int] | None:
    return None if bounds is None else (bounds.low, bounds.high)
