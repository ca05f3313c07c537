"""What the CPU's own counters say of each packet, of the whole SUT and of each of its threads."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence

from nodrop.findings.functions import TrialProfile
from nodrop.report import numbers
from nodrop.report.profiled import Profiled
from nodrop.report.tables import Column, Row, Table, Value, numeric, text, with_ends
from nodrop.results.trial import TrialRecord
from nodrop.stats.interval import Summary, summarize

WHOLE = "all of the SUT"
COUNTS = ("instructions", "cache_misses")
NOT_ASKED = "counters of the CPU were not asked for"
"""The node's words (crates/profile/src/lacks.rs)."""
NOT_HERE = "not on this host"

PerPacket = Mapping[str, float]
"""By the names of COUNTS, those that are known."""


def packets_table(cells: Sequence[Profiled]) -> Table | None:
    """None if no trial asked for such counters."""
    rows = tuple(row for cell in cells for row in _rows(cell))
    if not rows:
        return None
    of = "of the 95 % interval"
    return Table(
        name="profile-packets",
        title="What a packet takes, by the CPU's counters",
        columns=(
            Column(name="cell", title="Cell"),
            Column(name="thread", title="Thread"),
            Column(name="role", title="Role"),
            Column(
                name="packets",
                title="For each packet of",
                help="that it decoded (a receive thread: handed on); until the last was sent",
            ),
            numeric("instructions_per_packet", "Instructions", "median"),
            numeric("instructions_per_packet_low", "from", of),
            numeric("instructions_per_packet_high", "to", of),
            numeric("cache_misses_per_packet", "Cache misses", "of the last cache; median"),
            numeric("cache_misses_per_packet_low", "from", of),
            numeric("cache_misses_per_packet_high", "to", of),
        ),
        rows=rows,
    )


def _rows(cell: Profiled) -> Iterator[Row]:
    found: dict[tuple[str, str, str], list[tuple[Hashable, PerPacket]]] = {}
    lacks = ""
    for (start, trial), record in zip(cell.trials, cell.records, strict=True):
        lacks = lacks or trial.missing.get("hardware", "")
        for head, rates in per_packet(trial, record).items():
            found.setdefault(head, []).append((start, rates))
    if not found and lacks and lacks != NOT_ASKED:
        absent = text(NOT_HERE if NOT_HERE in lacks else "not seen")
        nothing = (Value(raw=None, shown="–"),) * 2
        of = (text(cell.label), text(WHOLE), text("–"), text("the SUT"))
        yield Row(values=(*of, *(absent, *nothing), *(absent, *nothing)))
    for head, trials in found.items():
        values = (value for name in COUNTS for value in with_ends(_summary(trials, name), _rate))
        yield Row(values=(text(cell.label), *map(text, head), *values))


def per_packet(trial: TrialProfile, record: TrialRecord) -> dict[tuple[str, str, str], PerPacket]:
    """By thread, role and whose packets: the whole SUT first, then the threads with most
    instructions. A thread without packets of its own is held against the SUT's."""
    total = record.packets.decoded_packets
    if not total:
        return {}
    whole: dict[str, int] = {}
    for name in COUNTS:
        counts = [thread.hardware.get(name) for thread in trial.threads]
        if counts and None not in counts:
            whole[name] = sum(filter(None, counts))
    found = {(WHOLE, "–", "the SUT"): _over(whole, total)}
    own = _own_packets(record)
    names = [thread.name for thread in trial.threads]
    order = sorted(trial.threads, key=lambda one: -one.hardware.get("instructions", 0))
    for thread in order:
        # Several instances have threads of the same name: none of them can be told from another.
        if names.count(thread.name) == 1:
            packets = own.get(thread.name)
            head = thread.name, thread.role, "the thread" if packets else "the SUT"
            found[head] = _over(thread.hardware, packets or total)
    return {head: rates for head, rates in found.items() if any(rates.values())}


def _own_packets(record: TrialRecord) -> dict[str, int]:
    found = {}
    for thread in record.threads:
        packets = thread.decoded_packets
        if packets is None and thread.captured_packets is not None:
            packets = thread.captured_packets - (thread.dropped_packets or 0)
        if packets:
            found[thread.name] = packets
    return found


def _over(counts: Mapping[str, int], packets: int) -> PerPacket:
    return {name: counts[name] / packets for name in COUNTS if name in counts}


def _summary(trials: Sequence[tuple[Hashable, PerPacket]], name: str) -> Summary | None:
    known = [(start, rates[name]) for start, rates in trials if name in rates]
    return summarize([rate for _, rate in known], starts=[start for start, _ in known])


def _rate(rate: float | None) -> str:
    if rate is None or rate >= 100:
        return numbers.count(rate)
    return f"{rate:.2f}"
