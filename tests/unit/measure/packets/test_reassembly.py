"""Reassembly in the books: merged, held, refused, and what the receiver's own stack took."""

from __future__ import annotations

import pytest

from nodrop.ledger.balance import balance
from nodrop.ledger.hops import Class
from nodrop.measure.packets import books
from nodrop.measure.packets.reassembly import STACK_COUNTERS
from nodrop.testbed.load.api import Fragments
from tests.unit.measure.packets.one_trial import REALMIX, SENT, closed, moved, observed


def test_fanout_defragmentation_is_split_into_merged_and_held() -> None:
    seen = observed(
        rx={"ReasmReqds": 1551, "ReasmOKs": 128, "rx_dropped": 340},
        captured=SENT - 1423,
        fragments=REALMIX,
        defrag=True,
    )
    ledger = closed(seen)
    assert moved(ledger) == {
        "rx_merged_fanout_defrag": 1372,
        "rx_held_incomplete_datagrams": 51,
        "rx_dropped_unhandled": 340,
    }
    assert ledger.total(Class.LOST) == 0


def test_the_kernels_figure_rules_where_the_trace_was_not_seen_whole() -> None:
    seen = observed(
        rx={"ReasmReqds": 1400, "ReasmOKs": 100},
        captured=SENT - 1300,
        fragments=REALMIX,
        defrag=True,
    )
    assert moved(closed(seen)) == {"rx_merged_fanout_defrag": 1300}


def test_the_receivers_own_reassembly_does_not_open_the_books() -> None:
    """Broadcast fragments are reassembled once more, by the stack, in the same counters."""
    again = {"ReasmReqds": 1551 + 20, "ReasmOKs": 128 + 10, "InBcastPkts": 20, "InDelivers": 10}
    seen = observed(rx=again, captured=SENT - 1423, fragments=REALMIX, defrag=True)
    assert moved(closed(seen)) == {
        "rx_merged_fanout_defrag": 1372,
        "rx_held_incomplete_datagrams": 51,
    }


STACK = {
    "ReasmReqds": 1080 + 540,
    "ReasmOKs": 120 + 60,
    "InBcastPkts": 500 + 20,
    "InMcastPkts": 40 + 7,
    "InDelivers": 60 + 20,
    "InUnknownProtos": 7,
}
"""Ahead of the socket 1,080 fragments became 120 datagrams; the stack made 60 of 540, and was given
27 whole packets, 7 of them without a taker."""


@pytest.mark.parametrize("surplus", [-960, -480, -1, 0, 1, 480, 960])
@pytest.mark.parametrize("fragments", [None, REALMIX])
def test_what_the_stack_reassembled_is_read_and_hides_no_other_gap(
    surplus: int, fragments: Fragments | None
) -> None:
    """Packets that a socket is handed twice, or not at all, beside a stack that reassembles: of one
    instance, for whose share no trace speaks, and of several tcpreplays, whose order none knows."""
    seen = observed(rx=STACK, captured=SENT - 960 + surplus, defrag=True, fragments=fragments)
    ledger = balance(books.hops(seen), books.accounts(seen))
    assert moved(ledger) == {"rx_merged_fanout_defrag": 960}
    assert ledger.residual_packets == -surplus
    (account,) = (a for a in ledger.accounts if a.packets)
    assert (
        "= 1,440 (/proc/net/snmp), of which the receiver's own stack took 480" in account.evidence
    )
    assert account.counter.endswith(STACK_COUNTERS)


def test_where_the_fanout_merges_nothing_the_stack_may() -> None:
    alone = STACK | {"ReasmReqds": 540, "ReasmOKs": 60}
    assert moved(closed(observed(rx=alone, defrag=True))) == {}


@pytest.mark.parametrize(
    ("receiver", "merges"),
    [
        ({"ReasmReqds": 1551, "ReasmOKs": 128, "InBcastPkts": 58}, True),
        ({"ReasmReqds": 1551 + 20, "ReasmOKs": 128 + 10}, True),
        ({"ReasmReqds": 1400, "ReasmOKs": 100, "InBcastPkts": 58}, False),
    ],
    ids=[
        "a firewall drops broadcasts",
        "conntrack reassembles",
        "fewer were taken than are missing",
    ],
)
def test_a_receiver_that_filters_leaves_it_to_the_trace(
    receiver: dict[str, int], merges: bool
) -> None:
    """Packets that its stack did not deliver, or got whole, say nothing of its reassembly."""
    seen = observed(rx=receiver, captured=SENT - 1423, defrag=True, fragments=REALMIX)
    ledger = balance(books.hops(seen), books.accounts(seen))
    assert ledger.closed is merges
    if merges:
        assert moved(ledger)["rx_merged_fanout_defrag"] == 1372
        assert all(a.counter.startswith("of the trace") for a in ledger.accounts if a.packets)
    # One more than the trace explains is no reassembly of anybody's.
    more = observed(rx=receiver, captured=SENT - 1424, defrag=True, fragments=REALMIX)
    assert not balance(books.hops(more), books.accounts(more)).closed


def test_a_receiver_that_talks_for_itself_has_no_readable_part() -> None:
    """Local unicast is handed to its protocol, and is neither broadcast nor multicast."""
    talks = {"ReasmReqds": 1400, "ReasmOKs": 100, "InBcastPkts": 5, "InDelivers": 900}
    seen = observed(rx=talks, captured=SENT - 1300, defrag=True)
    assert moved(closed(seen)) == {"rx_merged_fanout_defrag": 1300}


def test_without_fanout_defragmentation_reassembly_is_the_stacks_own_affair() -> None:
    assert moved(closed(observed(rx={"ReasmReqds": 20, "ReasmOKs": 10}))) == {}


FULL = {"memory_bytes": 4_200_000, "high_thresh_bytes": 4_194_304}


ROOM = {"memory_bytes": 0, "high_thresh_bytes": 4_194_304}


WHOLE = Fragments(
    offered_packets=6000, absorbed_packets=5800, datagrams=2900, held_packets=200,
    fails=30, timeouts=10, overlaps=5,
)  # fmt: skip


@pytest.mark.parametrize(
    ("done", "fails", "timeouts", "memory", "lost", "residual", "knob"),
    [
        (2900, 30, 10, ROOM, 0, 0, ""),
        (2093, 30 + 900, 10, FULL, 807, 0, "net.ipv4.ipfrag_high_thresh of"),
        (2899, 30 + 1, 10, FULL, 1, 0, "net.ipv4.ipfrag_high_thresh of"),
        (2000, 30 + 950, 10, ROOM, 900, 0, "net.ipv4.ipfrag_max_dist of"),
        (2000, 30 + 900, 910, ROOM, 900, 0, "net.ipv4.ipfrag_time of"),
        (2000, 30 + 1000, 110, FULL, 900, 0, "net.ipv4.ipfrag_high_thresh and net.ipv4.ipfrag_t"),
        # No failure was counted, or too few: it is not known where these are.
        (2000, 30, 10, ROOM, 0, 900, ""),
        (2000, 30 + 500, 10, FULL, 500, 400, "net.ipv4.ipfrag_high_thresh of"),
    ],
)
def test_refused_reassembly_is_lost_as_far_as_failures_say(
    done: int, fails: int, timeouts: int, memory: dict[str, int], lost: int, residual: int,
    knob: str,
) -> None:  # fmt: skip
    kernel = {
        "ReasmReqds": 6000, "ReasmOKs": done, "ReasmFails": fails, "ReasmTimeout": timeouts,
        "ReasmOverlaps": 5, "reassembly": memory,
    }  # fmt: skip
    seen = observed(rx=kernel, captured=SENT - 6000 + done, defrag=True, fragments=WHOLE)
    ledger = balance(books.hops(seen), books.accounts(seen))
    known = {"rx_merged_fanout_defrag": 2900, "rx_held_incomplete_datagrams": 200}
    assert moved(ledger) == known | ({"rx_dropped_reassembly": lost} if lost else {})
    assert ledger.residual_packets == residual
    assert all(a.knob.startswith(knob) for a in ledger.accounts if a.kind is Class.LOST)
    said = ledger.steps[-2].end.look_at
    assert bool(said) is bool(residual)


@pytest.mark.parametrize(("refused", "memory", "lost"), [(40, FULL, 40), (40, ROOM, 0)])
def test_where_fragments_were_lost_before_only_full_memory_is_called_lost(
    refused: int, memory: dict[str, int], lost: int
) -> None:
    kernel = {
        "ReasmReqds": 5990, "ReasmOKs": 2700, "ReasmFails": 30 + refused, "ReasmTimeout": 10,
        "ReasmOverlaps": 5, "reassembly": memory, "rx_packets": SENT - 10,
    }  # fmt: skip
    seen = observed(rx=kernel, captured=SENT - 10 - 3290, defrag=True, fragments=WHOLE)
    found = moved(closed(seen))
    assert found.pop("path_lost") == 10
    assert found.pop("rx_dropped_reassembly", 0) == lost
    assert found == {"rx_merged_fanout_defrag": 3290 - lost}
