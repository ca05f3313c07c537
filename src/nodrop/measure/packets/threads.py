"""The books of each thread: the SUT's counters beside what the sampler saw of it."""

from __future__ import annotations

from collections.abc import Sequence

from nodrop.ledger.threads import ThreadBooks, times
from nodrop.ledger.timeline import Timeline
from nodrop.suts.seam import Sut, SutCounters

_COUNTERS = {
    "captured_packets": "captured_packets",
    "dropped_packets": "dropped_ring_full_packets",
    "decoded_packets": "decoded_packets",
    "flows": "flows",
}


def thread_books(
    sut: Sut, counters: SutCounters, seen: Timeline, span: tuple[int, int]
) -> Sequence[ThreadBooks]:
    """Those that count first, as the SUT lists them; then others that it has a role for."""
    took = times(seen, span)
    listed: dict[str, int | None] = {name: seen.find(name) for name in counters.per_thread}
    known = set(listed.values())
    for number, name in seen.names.items():
        if number not in known and sut.role(name) is not None:
            listed.setdefault(name, number)
    found = []
    for name, tid in listed.items():
        counted = counters.per_thread.get(name, {})
        time = None if tid is None else took.get(tid)
        found.append(
            ThreadBooks(
                name=name,
                role=sut.role(_of_instance(name)),
                **{ours: counted.get(theirs) for ours, theirs in _COUNTERS.items()},
                cpu_ratio=None if time is None else time[0],
                wait_ratio=None if time is None else time[1],
            )
        )
    return found


def _of_instance(name: str) -> str:
    """`0:W#01` is its own W#01."""
    number, colon, own = name.partition(":")
    return own if colon and number.isdigit() else name
