"""Looks at a host, one an interval, and what they say together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from nodrop.drops.capture_books import (
    STEP_NS,
    AccountRange,
    Balance,
    CaptureBooks,
    CaptureKey,
    PortAt,
    flapped,
    ports_at,
)
from nodrop.drops.chosen_ports import ANY
from nodrop.drops.levels import CaptureLevels
from nodrop.drops.places import (
    Overload,
    PeerOf,
    PlaceTotal,
    PlaceTotals,
    Refusing,
    held_back,
    losses,
    pids_of,
    rx_dropped,
    thread_shares,
)
from nodrop.protocol import CapturePort, Captures, NotVisible, RingLevels, RingSpells
from nodrop.results.other_records import (
    Blind,
    BlindPort,
    Hidden,
    WatchedCapture,
    WatchedInterval,
    WatchedLevel,
    WatchedPlace,
)
from nodrop.sensor.rx_dropped import RxDropped
from nodrop.sensor.slots import slot_needed

ALWAYS = NotVisible(
    what="what a switch, a TAP or the cable lost",
    needs="a counter of that device",
    why="no counter of this host has it",
)
MOST_ENDED = 20
FULL_RATIO = 0.5
"""A ring that is so full is announced before it loses."""
SOON_MS = 3000
"""Time within which a ring is full at its pace, and is announced."""
LEVELS_S = 0.1
"""Rings are looked at so often between two looks at everything: one that needs three times as long
to fill is announced before it loses."""
GLANCES_S = 1.0
"""Programs are looked at so often within a longer interval."""
FILLS_RATIO, FILLS_MS = 0.3, 300
"""An interval ends early for a ring that is so full and is full in less, or that is half full."""
EMPTY_RATIO = 0.25
"""A ring that was announced is announced anew after it was less full."""
PACE_NS = 40_000_000
"""A pace is taken over so long at least."""


@dataclass(slots=True)
class Levels:
    """How full each ring was at the last looks, cheap ones included."""

    _seen: dict[int, list[tuple[int, float]]] = field(default_factory=dict)
    announced: set[int] = field(default_factory=set)
    """Rings that filled up, until they are nearly empty."""
    _last_ns: int | None = None
    gap_ns: int = 0
    """The longest time between two looks since `gap_ns` was set."""
    lowest: dict[int, float] = field(default_factory=dict)
    """The least that was seen of each ring since `interval_began`."""

    def add(self, mono_ns: int, ratios: Mapping[int, float]) -> bool:
        """Ratios by inode of the socket. Whether a ring begins to fill up."""
        if self._last_ns is not None:
            self.gap_ns = max(self.gap_ns, mono_ns - self._last_ns)
        self._last_ns = mono_ns
        self.lowest = {
            inode: min(ratio, self.lowest.get(inode, ratio)) for inode, ratio in ratios.items()
        }
        self._seen = {
            inode: [*self._seen.get(inode, ()), (mono_ns, ratio)][-3:]
            for inode, ratio in ratios.items()
        }
        fill = {inode for inode in ratios if self._fills(inode)}
        begins = bool(fill - self.announced)
        low = {inode for inode, ratio in ratios.items() if ratio < EMPTY_RATIO}
        self.announced = (self.announced & ratios.keys() - low) | fill
        return begins

    def interval_began(self) -> None:
        self.gap_ns = 0
        self.lowest = {inode: seen[-1][1] for inode, seen in self._seen.items()}

    def full_ms(self, inode: int) -> float | None:
        """Time until it is full at the pace of the last looks; None: it does not fill."""
        seen = self._seen.get(inode, [])
        if not seen:
            return None
        now_ns, ratio = seen[-1]
        if before := [one for one in seen if now_ns - one[0] >= PACE_NS]:
            then_ns, then = before[-1]
            if ratio > then:
                return (1 - ratio) * (now_ns - then_ns) / 1e6 / (ratio - then)
        return None

    def _fills(self, inode: int) -> bool:
        ratio, left_ms = self._seen[inode][-1][1], self.full_ms(inode)
        soon = ratio >= FILLS_RATIO and left_ms is not None and left_ms <= FILLS_MS
        return soon or ratio >= FULL_RATIO


@dataclass(frozen=True, slots=True, kw_only=True)
class DropsInterval:
    """One interval: balances, what died where, and what nobody can see."""

    real_ns: int
    """End of the interval."""
    seconds: float
    balances: Sequence[Balance]
    rows: Sequence[PlaceTotal]
    """Places that lost something since the watch began, the worst now on top."""
    ended: Sequence[Balance]
    """Captures that ended since the watch began, with their last books before they fell silent and
    with what came after these."""
    not_for_us: int | None
    overflow_ms: Mapping[CaptureKey, int]
    """Time until a ring of the capture is full, if its reader stays away; of those that fill up."""
    levels: Mapping[frozenset[int], WatchedLevel]
    """Levels of the captures whose level is visible, by the sockets of each."""
    blind: Sequence[BlindPort]
    """Ports of the watch that are blind, or were in a part of it."""
    notes: Sequence[str]
    """Programs that came, went or began anew; ports that went away."""
    not_visible: Sequence[NotVisible]
    look_ns: int
    """How long the look took."""

    @property
    def clear(self) -> Sequence[str]:
        """Ports that were up all the time, and whose captures all show what they lost."""
        blind = {one.port for one in self.blind}
        return sorted({one.reading.port_name for one in self.balances} - blind)

    @property
    def cannot_tell(self) -> bool:
        return not self.rows and (bool(self.blind) or not self.balances)


@dataclass(slots=True)
class Watch:
    """Looks in, intervals out."""

    peer_of: PeerOf | None = None
    chosen: Sequence[str] = ()
    """Names of ports to watch: each is blind until a program captures on it."""
    _tx_dropped: dict[PortAt, int] = field(default_factory=dict)
    """Veth → frames in its peer's tx_dropped that are counted, those before the watch included."""
    _asked: set[PortAt] = field(default_factory=set)
    """Veths whose other end was looked for: each look is a probe of the host."""
    _books: CaptureBooks = field(default_factory=CaptureBooks)
    _table: PlaceTotals = field(default_factory=PlaceTotals)
    _levels: Levels = field(default_factory=Levels)
    _highest: CaptureLevels = field(default_factory=CaptureLevels)
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
        ratios = {int(inode): one["full"] / one["of"] for inode, one in rings}
        self._highest.add(levels["mono_ns"], ratios)
        return self._levels.add(levels["mono_ns"], ratios)

    def spells(self, seen: RingSpells) -> None:
        self._highest.spells(seen)

    def glance(self, seen: Captures) -> None:
        """A look within an interval: of a program that ends before the interval does, these are the
        last books."""
        self._keep(self._books.look(seen, ends_interval=False))

    def _keep(self, balances: Sequence[Balance]) -> None:
        for one in balances:
            # One that ends reads its counters, and answers no more: its books are those before.
            known = self._latest.get(one.reading.key)
            if known is None or not (one.at_least and one.unheard):
                self._latest[one.reading.key] = one
                self._silent.pop(one.reading.key, None)
            else:
                self._silent[one.reading.key] = one

    def _lost_until(self, key: CaptureKey, began_mono_ns: int) -> Balance:
        """Books of a program that ended within an interval: what they have of it is in no other
        interval, and more may have been lost after them."""

        def lost(books: Balance) -> Balance:
            if books.reading.mono_ns <= began_mono_ns:
                books = replace(books, before=books.reading, dropped_now=0)
            return replace(books, at_least=True)

        books = lost(self._silent.get(key, self._latest[key]))
        return replace(books, members=[lost(one) for one in books.members])

    def look(self, seen: Captures) -> DropsInterval | None:
        """None of the first look: an interval has two."""
        before, self._before = self._before, seen
        balances = self._books.look(seen)
        self._ports |= ports_at(seen)
        ratios = {
            one["inode"]: one["waiting"][1]["full"] / one["waiting"][1]["of"]
            for one in seen["sockets"]
            if one["ring"] and one["waiting"]
        }
        self._levels.add(seen["mono_ns"], ratios)
        self._highest.add(seen["mono_ns"], ratios)
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
        lost = losses(
            before,
            seen,
            balances,
            ended=just_ended,
            overloads=self._overloads(
                [one for balance in balances for one in balance.by_process], before
            ),
            dropped=dropped,
            peers=peers,
        )
        self._levels.interval_began()
        every = [*balances, *(member for one in balances for member in one.members)]
        left_ms = {
            one.reading.key: left
            for one in every
            if (left := overflow_ms(one, self._levels)) is not None
        }
        fills = [
            one
            for balance in balances
            for one in balance.by_process
            if one.reading.key in left_ms
            and self._announced.get(one.reading.key) != before["mono_ns"]
        ]
        self._announced |= {
            one.reading.key: seen["mono_ns"]
            for one in every
            if one.reading.key in left_ms
            or any(held["inode"] in self._levels.announced for held in one.reading.sockets)
        }
        processes = {one.reading.key for one in every}
        self._announced = {key: at for key, at in self._announced.items() if key in processes}
        last_books = [self._last_books(key) for key in gone]
        return DropsInterval(
            real_ns=seen["real_ns"],
            seconds=seconds,
            balances=balances,
            rows=self._table.add(lost, seconds=seconds, real_ns=seen["real_ns"]),
            ended=last_books,
            not_for_us=None if dropped is None else sum(one.no_loss for one in dropped.values()),
            overflow_ms=left_ms,
            levels=self._highest.interval_ends(seen, balances),
            blind=self._blind_ports(before, seen, balances),
            notes=[*_changes(before, seen), *(_filling(one, left_ms) for one in fills)],
            not_visible=[
                ALWAYS,
                *seen["missing"],
                *self._perhaps_lost(seen, dropped or {}),
                *_silent(balances),
                *_copied(balances),
                *_unsaid(last_books),
            ],
            look_ns=seen["took_ns"],
        )

    def _blind_ports(
        self, before: Captures, seen: Captures, balances: Sequence[Balance]
    ) -> Sequence[BlindPort]:
        then, here = ports_at(before), ports_at(seen)
        hidden: dict[PortAt, Blind] = {}
        for one in balances:
            if (reason := _hides(one)) is not None:
                hidden.setdefault(one.reading.key.at, reason)
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
            for name in sorted({*self.chosen} - captured):
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

    def _last_books(self, key: CaptureKey) -> Balance:
        books, end = self._latest[key], self._silent.get(key)
        if end is not None and end.offered and books.offered:
            late = end.offered - books.offered
            dropped = max(0, (end.dropped or 0) - (books.dropped or 0))
            late = AccountRange(max(0, late.low), late.high)
            books = replace(books, unsaid_offered=late, unsaid_dropped=dropped)
        if not (books.reading.program and books.reading.program["suricata"]):
            # Its sockets went with their counters, at some moment after the look before.
            books = replace(books, at_least=True, residual=None, read=None)
        return replace(books, ended_real_ns=self._ended[key])

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
                base = self._tx_dropped.setdefault(at, peer.tx_dropped)
                refused = max(0, peer.tx_dropped - base)
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
            yield NotVisible(
                what=f"how many of {total:,} packets in rx_dropped of {port['name']} were lost",
                needs="tx_dropped of its peer, which counts those that it refused "
                f"(ip -d link show {port['name']}: its peer; ip -s link show there)"
                if link["kind"] == "veth"
                else "a counter that parts them",
                why=f"frames longer than its MTU of {link['mtu']}, those that found no room, and "
                "those that no protocol wanted after every capture had them count there alike",
            )

    def _overloads(
        self, balances: Sequence[Balance], before: Captures
    ) -> Mapping[CaptureKey, Overload]:
        unannounced = self._unannounced(balances, before)
        self._losing = {
            one.reading.key: self._losing.get(one.reading.key, 0) + 1
            for one in balances
            if one.dropped_now
        }
        lowest = self._levels.lowest
        return {
            one.reading.key: Overload(
                unannounced=unannounced.get(one.reading.key),
                lowest_ratio=max(
                    (
                        lowest[held["inode"]]
                        for held in one.reading.sockets
                        if held["inode"] in lowest
                    ),
                    default=None,
                ),
                losing=self._losing.get(one.reading.key, 0),
            )
            for one in balances
        }

    def _unannounced(
        self, balances: Sequence[Balance], before: Captures
    ) -> Mapping[CaptureKey, str]:
        """Why nothing announced a loss of this interval."""
        found = {}
        for one in balances:
            sockets = one.reading.sockets
            # Suricata may say a loss only when its ring has long been empty again.
            at_ns = self._announced.get(one.reading.key)
            lately = at_ns is not None and before["mono_ns"] - at_ns <= STEP_NS
            if lately or not any(held["ring"] for held in sockets):
                continue
            if any(held["waiting"] is None for held in sockets):
                found[one.reading.key] = "not announced: what waits in its rings is not visible"
            else:
                gap_ms = self._levels.gap_ns / 1e6
                found[one.reading.key] = (
                    f"not announced: its ring filled between two looks, {gap_ms:.0f} ms apart"
                )
        return found


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
    return all(one["link"] and one["link"]["up"] and one["link"]["carrier"] for one in looks)


def _hides(capture: Balance) -> Blind | None:
    """Why packets that its program never had would be in no counter."""
    if capture.dropped is None:
        program = capture.reading.program
        return "stopped" if program and program["stopped"] else "ring_not_visible"
    if capture.dropped_seen is None:
        return "counters_read"
    port = capture.reading.port
    for one in capture.by_process:
        name = one.reading.program["name"] if one.reading.program else ""
        for ring in (socket["ring"] for socket in one.reading.sockets):
            if ring and slot_needed(
                version=ring["version"],
                slot_bytes=ring["frame_bytes"],
                mtu=port["link"]["mtu"] if port and port["link"] else None,
                suricata=name.startswith("Suricata"),
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


def _copied(balances: Sequence[Balance]) -> Iterator[NotVisible]:
    for one in balances:
        reading = one.reading
        if (copies := reading.copies) > 1 and one.arrived and one.arrived.high:
            yield NotVisible(
                what=f"packets of {reading.port_name} that {reading.name} had at all: it has each "
                f"one {copies} times, and counts each time",
                needs="one fanout group for all of its sockets (snort: --daq-var "
                "fanout_type=hash; suricata.yaml: cluster-id)",
                why=f"{len(reading.sockets)} sockets of it take every packet",
            )


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


def _unsaid(ended: Sequence[Balance]) -> Iterator[NotVisible]:
    for one in ended:
        if (late := one.unsaid_offered) is not None and late.high:
            yield NotVisible(
                what=f"what became of the last {late.high:,} packets for {one.reading.name} on "
                f"{one.reading.port_name}, {one.unsaid_dropped:,} of them dropped at least",
                needs="its own sums at its end (capture.kernel_drops in the last of its stats)",
                why="it ended, and said no more",
            )


def overflow_ms(balance: Balance, levels: Levels) -> int | None:
    """Time until the first ring is full, if its reader stays away: at the pace of its filling, and
    in a ring of version 3 after what is left of its blocks, each of which is retired after its time
    however empty. None: no ring fills up."""
    found = []
    for one in balance.reading.sockets:
        if not (one["ring"] and one["waiting"]):
            continue
        fill, paced_ms = one["waiting"][1], levels.full_ms(one["inode"])
        half_full = fill["full"] >= FULL_RATIO * fill["of"]
        if fill["full"] >= fill["of"]:
            found.append(0)
        elif paced_ms is not None and (half_full or paced_ms <= SOON_MS):
            found.append(round(paced_ms))
        if half_full and one["ring"]["retire_ms"]:
            found.append((fill["of"] - fill["full"]) * one["ring"]["retire_ms"])
    return min(found, default=None)


def _filling(one: Balance, left_ms: Mapping[CaptureKey, int]) -> str:
    reading = one.reading
    left = left_ms[reading.key]
    when = f"it is full in {left} ms" if left else "it is full"
    words = f"▲ ring of {reading.name} on {reading.port_name} fills, {when}"
    if held := held_back(one):
        words += f": {held.why}; do: {held.do}"
    return words


def oldest_ms(balance: Balance, real_ns: int) -> int | None:
    """Age of the oldest packet that waits in a ring."""
    ages = [
        real_ns - fill["oldest_real_ns"]
        for one in balance.reading.sockets
        for fill in (one["waiting"] or [])[1:]
        if fill["oldest_real_ns"]
    ]
    return max(0, max(ages) // 1_000_000) if ages else None


def written(found: DropsInterval) -> WatchedInterval:
    """The interval as `--json` and `--record` have it."""
    return WatchedInterval(
        real_ns=found.real_ns,
        interval_s=found.seconds,
        captures=[_capture(one, found) for one in found.balances],
        ended=[_capture(one, found) for one in found.ended],
        places=[
            WatchedPlace(
                place=row.loss.place,
                where=row.loss.where,
                counter=row.loss.counter,
                rate_pps=row.rate_pps,
                total=row.total,
                at_least=row.at_least,
                worst_pps=row.worst_pps,
                worst_real_ns=row.worst_real_ns,
                first_real_ns=row.first_real_ns,
                last_real_ns=row.last_real_ns,
                bursts=row.bursts,
                why=row.loss.why,
                do=row.loss.do,
                most_why=row.mostly.why,
                most_do=row.mostly.do,
            )
            for row in found.rows
        ],
        not_for_us_packets=found.not_for_us,
        notes=[*found.notes],
        blind=[*found.blind],
        not_visible=[Hidden(**one) for one in found.not_visible],
        look_ns=found.look_ns,
    )


def _capture(one: Balance, found: DropsInterval) -> WatchedCapture:
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
        dropped_packets=one.dropped_seen,
        dropped_now_packets=one.dropped_now,
        waiting_packets=_pair(one.waiting),
        waited_before_packets=_pair(one.waited_before),
        read_packets=_pair(one.read),
        residual_packets=_pair(one.residual),
        closed=one.closed,
        at_least=one.at_least,
        oldest_ms=oldest_ms(one, found.real_ns),
        overflow_ms=found.overflow_ms.get(reading.key),
        stopped=program["stopped"] if program else None,
        decoded_packets=(said["counters"] or {}).get("decoder.pkts") if said else None,
        level=found.levels.get(reading.key.inodes),
        since_start_arrived_packets=_pair(reading.arrived),
        since_start_dropped_packets=reading.dropped,
        ended_real_ns=one.ended_real_ns,
        unsaid_offered_packets=_pair(one.unsaid_offered),
        unsaid_dropped_packets=one.unsaid_dropped,
        threads=thread_shares(one),
    )


def _pair(bounds: AccountRange | None) -> tuple[int, int] | None:
    return None if bounds is None else (bounds.low, bounds.high)
