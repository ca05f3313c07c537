"""From readings to hops and accounts: each difference gets the class its counters prove."""

from __future__ import annotations

from typing import Any

import pytest

from nodrop.ledger.balance import Ledger, balance
from nodrop.ledger.hops import Class
from nodrop.load.seam import Fragments, OfferedLoad
from nodrop.measure import books
from nodrop.measure.ahead_of_tap import Readings
from nodrop.suts.seam import SutCounters

SENT = 101_171
SNMP = (
    "Ip.ReasmReqds",
    "Ip.ReasmOKs",
    "Ip.InDelivers",
    "Ip.InUnknownProtos",
    "IpExt.InBcastPkts",
    "IpExt.InMcastPkts",
)


def side(port: str, *, softnet_dropped: int = 0, **counters: int) -> Readings:
    """Counters that rose by these amounts from a start that is not zero."""
    stats = dict.fromkeys(("rx_packets", "tx_packets", "rx_dropped", "tx_dropped"), 0)
    snmp = {name: counters.pop(name.partition(".")[2], 0) for name in SNMP}
    xdp: dict[str, Any] | None = counters.pop("xdp", None)  # type: ignore[assignment]
    ethtool = {name: counters.pop(name) for name in list(counters) if "queue" in name}
    stats |= counters

    def reading(base: int, rise: bool) -> dict[str, Any]:
        def risen(values: dict[str, int]) -> dict[str, int]:
            return {name: base + (value if rise else 0) for name, value in values.items()}

        link = {"stats": risen(stats), "ethtool": risen(ethtool), "xdp": xdp}
        dropped = softnet_dropped if rise else 0
        return {
            "links": {port: link},
            "snmp": risen(snmp),
            "softnet": [{"dropped": base + dropped}, {"dropped": base}],
        }

    return Readings(before=reading(1000, False), after=reading(1000, True))


def observed(
    *,
    tx: dict[str, Any] | None = None,
    rx: dict[str, Any] | None = None,
    captured: int = SENT,
    dropped: int = 0,
    refused: dict[str, int] | None = None,
    fragments: Fragments | None = None,
    defrag: bool = False,
    intended: int = SENT,
    never_at_tap: int = 0,
) -> books.Observed:
    refused = refused or {}
    receiver = side("rx0", **({"rx_packets": SENT} | (rx or {})))
    return books.Observed(
        tx_port="tx0",
        nic_port="rx0",
        capture_port="rx0",
        offered=OfferedLoad(
            intended_packets=intended,
            sent_packets=SENT - sum(refused.values()),
            sent_bytes=1,
            refused_packets=refused,
            duration_s=1.0,
            intended_duration_s=1.0,
            schedule_error_us=None,
            cpu_s=None,
            first_sent_mono_ns=1,
            last_sent_mono_ns=2,
        ),
        tx=side("tx0", **({"tx_packets": SENT} | (tx or {}))),
        nic=receiver,
        capture=receiver,
        between=((), ()),
        sut=SutCounters(
            captured_packets=captured,
            dropped_ring_full_packets=dropped,
            decoded_packets=captured - dropped,
        ),
        defrag=defrag,
        fragments=fragments,
        never_at_tap_packets=never_at_tap,
    )


def closed(seen: books.Observed) -> Ledger:
    ledger = balance(books.hops(seen), books.accounts(seen))
    assert ledger.residual_packets == 0
    return ledger


def moved(ledger: Ledger) -> dict[str, int]:
    """Every account that has packets, so that the others are seen to stand still."""
    return {a.name: a.packets for a in ledger.accounts if a.packets}


REALMIX = Fragments(offered_packets=1551, absorbed_packets=1500, datagrams=128, held_packets=51)


def test_frames_that_end_within_their_vlan_tag_are_named() -> None:
    """Seen with 80 of 700 frames of a made trace: the kernel counts them nowhere."""
    ledger = closed(observed(captured=SENT - 80, never_at_tap=80))
    assert moved(ledger) == {"rx_dropped_vlan_cut": 80}
    # Shorter than an Ethernet header: send() refused 5 of the 85 already.
    refused = observed(
        captured=SENT - 85, never_at_tap=85, refused={"einval": 5},
        tx={"tx_packets": SENT - 5}, rx={"rx_packets": SENT - 5},
    )  # fmt: skip
    assert moved(closed(refused)) == {"tx_refused_einval": 5, "rx_dropped_vlan_cut": 80}
    # A kernel that hands them over has lost none, and they explain no other loss.
    assert moved(closed(observed(never_at_tap=80))) == {}
    ledger = balance(
        books.hops(seen := observed(captured=SENT - 81, never_at_tap=80)), books.accounts(seen)
    )
    assert ledger.residual_packets == 1


def test_nothing_lost_nothing_accounted() -> None:
    assert moved(closed(observed())) == {}


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
27 whole packets, of which 7 nobody wanted."""


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
    assert "= 1440 (/proc/net/snmp), of which the receiver's own stack took 480" in account.evidence
    assert account.counter.endswith(books.STACK_COUNTERS)


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
    """What its stack did not deliver, or was handed whole, tells nothing of its reassembly."""
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


def test_cut_vlan_tags_and_fragments_are_told_apart() -> None:
    seen = observed(
        rx={
            "ReasmReqds": 2 * 1551,
            "ReasmOKs": 2 * 128,
            "InBcastPkts": 1551,
            "InDelivers": 128,
        },
        captured=SENT - 1423 - 80,
        defrag=True,
        fragments=REALMIX,
        never_at_tap=80,
    )
    assert moved(closed(seen)) == {
        "rx_merged_fanout_defrag": 1372,
        "rx_held_incomplete_datagrams": 51,
        "rx_dropped_vlan_cut": 80,
    }


def test_without_fanout_defragmentation_reassembly_is_the_stacks_own_affair() -> None:
    assert moved(closed(observed(rx={"ReasmReqds": 20, "ReasmOKs": 10}))) == {}


def test_an_unexplained_gap_stays_a_residual() -> None:
    seen = observed(captured=SENT - 7)
    assert balance(books.hops(seen), books.accounts(seen)).residual_packets == 7


@pytest.mark.parametrize(
    ("tx", "softnet", "expected"),
    [
        ({"tx_packets": SENT - 50}, 0, {"tx_dropped_filter": 50}),
        ({"tx_packets": SENT - 50, "tx_dropped": 50}, 50, {"tx_dropped_backlog": 50}),
        ({"tx_packets": SENT - 50, "tx_dropped": 50}, 0, {"tx_dropped_device": 50}),
        (
            {"tx_packets": SENT - 50, "tx_dropped": 20},
            20,
            {"tx_dropped_backlog": 20, "tx_dropped_filter": 30},
        ),
    ],
)
def test_a_refused_send_is_placed_by_counters(
    tx: dict[str, int], softnet: int, expected: dict[str, int]
) -> None:
    seen = observed(
        tx=tx,
        rx={"rx_packets": SENT - 50, "softnet_dropped": softnet},
        captured=SENT - 50,
        refused={"enobufs": 50},
    )
    assert moved(closed(seen)) == expected


def test_frames_too_long_for_the_port_are_unsent() -> None:
    seen = observed(
        tx={"tx_packets": SENT - 3},
        rx={"rx_packets": SENT - 3},
        captured=SENT - 3,
        refused={"emsgsize": 3},
        intended=SENT + 10,
    )
    assert moved(closed(seen)) == {"tx_refused_emsgsize": 3, "tx_unsent_never_attempted": 10}


def test_native_xdp_counts_its_drops() -> None:
    seen = observed(rx={"rx_queue_0_xdp_drops": 30, "rx_queue_1_xdp_drops": 10}, captured=SENT - 40)
    assert moved(closed(seen)) == {"rx_dropped_xdp": 40}


def test_generic_xdp_is_inferred_from_the_program_that_is_attached() -> None:
    program = {"mode": "generic", "program_id": 97}
    ledger = closed(observed(rx={"xdp": program}, captured=SENT - 40))
    assert moved(ledger) == {"rx_dropped_xdp": 40}
    (account,) = ledger.accounts
    assert account.evidence.startswith("inferred")


def test_what_the_receiver_sends_itself_is_foreign() -> None:
    seen = observed(rx={"tx_packets": 500}, captured=SENT + 500)
    assert moved(closed(seen)) == {"rx_foreign_outgoing": 500}


def test_what_others_send_from_the_port_is_foreign() -> None:
    seen = observed(tx={"tx_packets": SENT + 9}, rx={"rx_packets": SENT + 9}, captured=SENT + 9)
    assert moved(closed(seen)) == {"tx_foreign": 9}


def test_a_full_ring_is_where_packets_die() -> None:
    ledger = closed(observed(captured=SENT, dropped=1234))
    assert moved(ledger) == {"rx_dropped_ring_full": 1234}


def test_what_the_sockets_should_have_been_handed() -> None:
    seen = observed(
        rx={"ReasmReqds": 1551, "ReasmOKs": 128, "rx_dropped": 340},
        captured=SENT - 1423,
        fragments=REALMIX,
        defrag=True,
    )
    assert seen.expected_captured_packets == SENT - 1423
