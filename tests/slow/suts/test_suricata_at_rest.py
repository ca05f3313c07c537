"""Suricata read at rest while it goes on: counters that come late are waited for."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from nodrop.errors import TrialFailed
from tests.slow.suts import test_suricata_running as played
from tests.slow.suts.test_suricata_running import Process, running

process, suricata_socket = played.process, played.suricata_socket
Table = tuple[tuple[int, int], tuple[int, int, int]]
"""iface-stat: captured, dropped; dump-counters: captured, dropped, decoded."""


def saying(tables: Iterable[Table]) -> Callable[[dict[str, Any]], object]:
    """One table after the other, a whole look each, and the last for ever."""
    tables = list(tables)
    told = iter(itertools.chain(tables, itertools.repeat(tables[-1])))
    now: list[Table] = []

    def answer(request: dict[str, Any]) -> object:
        if request["command"] == "iface-stat":
            now[:] = [next(told)]
            captured, dropped = now[0][0]
            return {"return": "OK", "message": {"pkts": captured, "drop": dropped}}
        captured, dropped, decoded = now[0][1]
        thread = {
            "capture": {"kernel_packets": captured, "kernel_drops": dropped},
            "decoder": {"pkts": decoded},
        }
        return {"return": "OK", "message": {**thread, "threads": {"W#01": thread}}}

    return answer


def at_rest(process: Process, socket: Any, tables: Iterable[Table], *, wanted: int | None) -> Any:
    socket(saying(tables))
    suricata = running(process)
    suricata._wanted = wanted
    return suricata, suricata.counted()


@pytest.mark.parametrize(
    "tables",
    [
        # The socket is asked, then the thread hands over what it decoded.
        [((60, 0), (40, 0, 40)), ((100, 0), (40, 0, 40)), ((100, 0), (60, 0, 100))],
        # The other way round; captured in dump-counters stays a sync behind.
        [((60, 0), (40, 0, 100)), ((100, 0), (60, 0, 100))],
        # Losses of this offer: those of the thread are waited for as well.
        [((100, 20), (60, 0, 80)), ((100, 20), (100, 20, 80))],
        [((100, 90), (90, 90, 10))],
    ],
    ids=["decoder-late", "socket-late", "losses-late", "all-there"],
)
def test_late_counters_are_waited_for(
    process: Process, suricata_socket: Any, tables: list[Table]
) -> None:
    _, found = at_rest(process, suricata_socket, tables, wanted=100)
    captured, dropped = tables[-1][0]
    assert (found.captured_packets, found.dropped_ring_full_packets) == (captured, dropped)
    assert found.decoded_packets == captured - dropped
    assert found.per_thread["W#01"] == {
        "captured_packets": captured,
        "dropped_ring_full_packets": dropped,
        "decoded_packets": captured - dropped,
    }


@pytest.mark.parametrize(
    ("table", "wanted"),
    [
        (((100, 0), (100, 0, 97)), 100),
        (((90, 0), (90, 0, 90)), 100),
        (((90, 5), (90, 5, 85)), None),
    ],
    ids=["not-decoded", "not-captured", "not-known"],
)
def test_what_never_agrees_is_read_as_it_stands(
    process: Process, suricata_socket: Any, table: Table, wanted: int | None
) -> None:
    """After the longest time that a counter can come late: the books show what lacks."""
    _, found = at_rest(process, suricata_socket, [table], wanted=wanted)
    captured, dropped, decoded = table[1]
    assert (found.captured_packets, found.decoded_packets) == (captured, decoded)
    if captured - dropped != decoded:
        assert "captured_packets" not in found.per_thread["W#01"]


def test_counters_that_never_rest_are_no_figure(
    process: Process, suricata_socket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodrop.testbed.suts.suricata.running.COUNT_TIMEOUT_S", 1)
    suricata_socket(saying(((n, 0), (n, 0, 0)) for n in range(1, 5000)))
    suricata = running(process)
    with pytest.raises(TrialFailed, match="not at rest after 1 s"):
        suricata.counted()


def test_the_next_offer_begins_at_the_mark(process: Process, suricata_socket: Any) -> None:
    tables: list[Table] = [((100, 20), (100, 20, 80)), ((150, 30), (150, 30, 120))]
    answer, suricata, found = saying(tables), running(process), []
    for wanted in (100, 150):
        suricata_socket(answer)  # a connection for each reading
        suricata._wanted = wanted
        found.append(suricata.counted())
        suricata.mark()
    said = [(c.captured_packets, c.dropped_ring_full_packets, c.decoded_packets)
            for c in found]  # fmt: skip
    assert said == [(100, 20, 80), (50, 10, 40)]
    assert found[1].per_thread["W#01"]["dropped_ring_full_packets"] == 10
