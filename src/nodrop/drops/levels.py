"""Levels of the rings of each capture, from every look at them: the highest and the lowest, when a
ring will be full, and what fits as spells of 250 looks a second forecast it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from nodrop.drops.capture_books import Balance
from nodrop.ledger.headroom import Headroom, Spell, busiest, headroom, spell_of
from nodrop.ledger.level import RingLook, RingLooks, level
from nodrop.ledger.twin import QUEUED, Queue, Reader, Refusal, gaps
from nodrop.protocol import Captures, RingSpell, RingSpells, SpellThread
from nodrop.results.watched import WatchedForecast, WatchedLevel, Withheld

FRAME_BYTES = 1518
"""Mean length of a frame where the port does not say it: as few fit as can."""
BUSY_FROM, BUSY_MOST = 64, 8
"""Packets of one part in so many of a ring, at two looks 4 ms apart, show a reader that was busy; a
few are often just those that came last, to a reader that sleeps in between. More are asked for,
up to the second part, while the reader did not run in the time in which it had to."""
IDLE_RATIO = 0.1
MOST_CAPTURES = 64
"""Captures with spells; the one that was seen longest ago goes."""
FULL_RATIO = 0.5
"""A ring that is so full is announced before it loses."""
FILLS_RATIO, FILLS_MS = 0.3, 300
"""An interval ends early for a ring that is so full and is full in less, or that is half full."""
EMPTY_RATIO = 0.25
"""A ring that was announced is announced anew after it was less full."""
PACE_NS = 40_000_000
"""A pace is taken over so long at least."""


@dataclass(frozen=True, slots=True)
class Peak:
    """A ring at a look at which it was fullest."""

    ratio: float
    """Frames or blocks in use, of all."""
    mono_ns: int

    def real_ns(self, seen: Captures) -> int:
        return self.mono_ns - seen["mono_ns"] + seen["real_ns"]


MISSED_TIMES, MISSED_RATIO = 1.5, 0.1
"""A level is far above that of all spells if it is so many times as high, and at least so high."""


@dataclass(slots=True)
class CaptureLevels:
    """Looks and spells in, levels of captures out."""

    _interval: dict[int, Peak] = field(default_factory=dict)
    _highest: dict[int, Peak] = field(default_factory=dict)
    _in_spells: dict[int, float] = field(default_factory=dict)
    _spells: dict[frozenset[int], list[Spell]] = field(default_factory=dict)
    _forecasts: dict[frozenset[int], Headroom | Refusal] = field(default_factory=dict)
    _stopped: dict[frozenset[int], int] = field(default_factory=dict)
    """Last look, on the host's clock, that found the program stopped."""
    _new: list[RingSpell] = field(default_factory=list)
    _last: dict[int, list[tuple[int, float]]] = field(default_factory=dict)
    """Each ring at the last looks: time and ratio."""
    announced: set[int] = field(default_factory=set)
    """Rings that filled up, until they are nearly empty."""
    _last_ns: int | None = None
    gap_ns: int = 0
    """The longest time between two looks of the interval."""
    lowest: dict[int, float] = field(default_factory=dict)
    """The least that was seen of each ring in the interval."""

    def add(self, mono_ns: int, ratios: Mapping[int, float]) -> bool:
        """One look at some rings, by inode of the socket. Whether one begins to fill up."""
        for inode, ratio in ratios.items():
            self._take(inode, Peak(ratio, mono_ns))
        if self._last_ns is not None:
            self.gap_ns = max(self.gap_ns, mono_ns - self._last_ns)
        self._last_ns = mono_ns
        self.lowest = {
            inode: min(ratio, self.lowest.get(inode, ratio)) for inode, ratio in ratios.items()
        }
        self._last = {
            inode: [*self._last.get(inode, ()), (mono_ns, ratio)][-3:]
            for inode, ratio in ratios.items()
        }
        fill = {inode for inode in ratios if self._fills(inode)}
        begins = bool(fill - self.announced)
        low = {inode for inode, ratio in ratios.items() if ratio < EMPTY_RATIO}
        self.announced = (self.announced & ratios.keys() - low) | fill
        return begins

    def full_ms(self, inode: int) -> float | None:
        """Time until it is full at the pace of the last looks; None: it does not fill."""
        looks = self._last.get(inode, [])
        if not looks:
            return None
        now_ns, ratio = looks[-1]
        if before := [look for look in looks if now_ns - look[0] >= PACE_NS]:
            then_ns, then = before[-1]
            if ratio > then:
                return (1 - ratio) * (now_ns - then_ns) / 1e6 / (ratio - then)
        return None

    def _fills(self, inode: int) -> bool:
        ratio, left_ms = self._last[inode][-1][1], self.full_ms(inode)
        soon = ratio >= FILLS_RATIO and left_ms is not None and left_ms <= FILLS_MS
        return soon or ratio >= FULL_RATIO

    def _take(self, inode: int, peak: Peak) -> None:
        for peaks in (self._interval, self._highest):
            if inode not in peaks or peak.ratio > peaks[inode].ratio:
                peaks[inode] = peak

    def spells(self, seen: RingSpells) -> None:
        for spell in seen["spells"]:
            self._new.append(spell)
            for n, ring in enumerate(spell["rings"]):
                mine = [look for look in spell["looks"] if look[1] == n]
                if not mine:
                    continue
                at = max(mine, key=lambda look: look[3])
                peak = Peak(at[3] / max(1, ring["slots"] or ring["blocks"]), at[0])
                self._take(ring["inode"], peak)
                before = self._in_spells.get(ring["inode"], 0.0)
                self._in_spells[ring["inode"]] = max(before, peak.ratio)

    def interval_ends(
        self, seen: Captures, balances: Sequence[Balance]
    ) -> Mapping[frozenset[int], WatchedLevel]:
        """Levels of the captures whose level is visible, by the sockets of each."""
        for balance in balances:
            inodes, program = balance.reading.key.inodes, balance.reading.program
            if program and program["stopped"]:
                self._stopped[inodes] = seen["mono_ns"]
            for spell in self._new:
                if spell["mono_ns"] <= self._stopped.get(inodes, -1):
                    continue  # it shows no traffic that the reader would not take
                if queues := _queues(spell, inodes, _frame_bytes(balance)):
                    known = self._spells.pop(inodes, [])
                    self._spells[inodes] = busiest([*known, spell_of(spell["real_ns"], queues)])
                    self._forecasts[inodes] = headroom(self._spells[inodes])
            if balance.dropped_now and (looked := inodes & self._interval.keys()):
                # Looks may come between: a ring of few blocks fills and empties within a ms.
                self._take(min(looked), Peak(1.0, seen["mono_ns"]))
        self._new.clear()
        while len(self._spells) > MOST_CAPTURES:
            self._forecasts.pop(gone := next(iter(self._spells)))
            del self._spells[gone]
        here = {socket["inode"] for socket in seen["sockets"]}
        self._highest = {inode: one for inode, one in self._highest.items() if inode in here}
        self._in_spells = {
            inode: in_spell for inode, in_spell in self._in_spells.items() if inode in here
        }
        found = {
            inodes: self._level(seen, one)
            for one in balances
            if (inodes := one.reading.key.inodes) & self._interval.keys()
        }
        self._interval.clear()
        self.gap_ns = 0
        self.lowest = {inode: looks[-1][1] for inode, looks in self._last.items()}
        return found

    def _level(self, seen: Captures, balance: Balance) -> WatchedLevel:
        inodes = balance.reading.key.inodes
        now = _fullest(self._interval, inodes)
        highest = _fullest(self._highest, inodes)
        forecast, withheld = self._forecast(balance, highest)
        return WatchedLevel(
            ratio=now.ratio,
            real_ns=now.real_ns(seen),
            highest_ratio=highest.ratio,
            highest_real_ns=highest.real_ns(seen),
            forecast=forecast,
            withheld=withheld,
        )

    def _forecast(self, balance: Balance, highest: Peak) -> tuple[WatchedForecast | None, Withheld]:
        """None and None: no spell has ended."""
        inodes = balance.reading.key.inodes
        found = self._forecasts.get(inodes)
        if not isinstance(found, Headroom):
            return None, found.reason.value if found else None
        in_spells = max((self._in_spells.get(inode, 0.0) for inode in inodes), default=0.0)
        # The highest level lies between spells, far above theirs; or packets were lost, and the
        # forecast has room for more: the reader was kept off its CPU, or spells missed it.
        missed = highest.ratio >= max(MISSED_RATIO, MISSED_TIMES * in_spells)
        if balance.dropped and (missed or found.times > 1):
            return None, "lost"
        forecast = WatchedForecast(
            times=found.times,
            bound="at_most" if missed else found.bound.value,
            slots=found.slots,
            larger_slots=found.larger_slots,
            larger_times=found.larger_times,
            spells=found.spells,
            busiest_real_ns=self._spells[inodes][0].real_ns,
        )
        return forecast, None


def _fullest(peaks: Mapping[int, Peak], inodes: frozenset[int]) -> Peak:
    """One of them at least has a peak."""
    return max((peaks[inode] for inode in inodes if inode in peaks), key=lambda one: one.ratio)


def _frame_bytes(balance: Balance) -> float:
    """Mean length of a frame at the port within the interval."""
    before, port = balance.before.port, balance.reading.port
    if not (before and port and before["link"] and port["link"]):
        return FRAME_BYTES
    then, now = before["link"]["stats"], port["link"]["stats"]
    packets = now["rx_packets"] - then["rx_packets"]
    return (now["rx_bytes"] - then["rx_bytes"]) / packets if packets > 0 else FRAME_BYTES


def _queues(spell: RingSpell, inodes: frozenset[int], frame_bytes: float) -> list[Queue]:
    rings, pids = [], []
    for n, ring in enumerate(spell["rings"]):
        if ring["inode"] not in inodes:
            continue
        looks = tuple(
            RingLook(at_ns, packets, full, arrived, dropped)
            for at_ns, of, packets, full, arrived, dropped in spell["looks"]
            if of == n
        )
        if len(looks) > 1:
            shape = (ring["slots"], ring["blocks"], ring["block_bytes"])
            rings.append(
                RingLooks(slots=shape[0], blocks=shape[1], block_bytes=shape[2], looks=looks)
            )
            pids.append(ring["pid"])
    ends = (spell["mono_ns"], max((ring.looks[-1].at_ns for ring in rings), default=0))
    seen = level(rings, span_ns=ends, dropped=None, mean_frame_bytes=frame_bytes)
    if seen is None:
        return []
    readers = _readers(rings, [one for one in spell["threads"] if one["pid"] in pids])
    queues = [
        Queue(
            slots=ring.slots or seen.slots,
            most_slots=None
            if ring.slots
            else max(seen.slots, ring.slots_of_full_blocks(frame_bytes)),
            looks=ring.looks,
            reader=reader,
            lost=ring.looks[-1].dropped - ring.looks[0].dropped,
            busy_from=max(QUEUED, (ring.slots or 0) // BUSY_FROM),
        )
        for ring, reader in zip(rings, readers, strict=True)
    ]
    return [_with_busy_reader(queue) for queue in queues]


def _with_busy_reader(queue: Queue) -> Queue:
    while queue.most_slots is None and BUSY_MOST * 2 * queue.busy_from <= queue.slots:
        if _idle_ratio(queue) <= IDLE_RATIO:
            break
        queue = replace(queue, busy_from=2 * queue.busy_from)
    return queue


def _idle_ratio(queue: Queue) -> float:
    """Part of the time in which packets waited that the reader cannot have been busy."""
    waited = [gap for gap in gaps(queue) if gap.queued]
    idle_ns = 0.0
    for one in queue.reader:
        if one.ran_ns is None:
            continue
        inside = sum(gap.ns for gap in waited if one.begin_ns <= gap.begin_ns < one.end_ns)
        idle_ns += max(0.0, inside - one.ran_ns - one.kept_off_ns)
    return idle_ns / max(1, sum(gap.ns for gap in waited))


def _readers(rings: Sequence[RingLooks], threads: Sequence[SpellThread]) -> list[Sequence[Reader]]:
    """Times of the thread that reads each ring: the more came, the more its thread ran."""
    busy = sorted(threads, key=_ran, reverse=True)[: len(rings)]
    by_packets = sorted(range(len(rings)), key=lambda n: -_came(rings[n]))
    found: list[Sequence[Reader]] = [()] * len(rings)
    for n, thread in zip(by_packets, busy, strict=False):
        found[n] = [
            Reader(
                begin_ns=then[0],
                end_ns=now[0],
                ran_ns=now[1] - then[1],
                kept_off_ns=now[2] - then[2],
            )
            for then, now in pairwise(thread["times"])
        ]
    return found


def _ran(thread: SpellThread) -> int:
    return thread["times"][-1][1] - thread["times"][0][1]


def _came(ring: RingLooks) -> int:
    return ring.looks[-1].arrived - ring.looks[0].arrived
