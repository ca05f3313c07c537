"""From readings to hops and accounts: each difference gets the class its counters prove."""

from __future__ import annotations

from typing import Any

import pytest

from nodrop.ledger.balance import Ledger, balance
from nodrop.ledger.hops import Class
from nodrop.load.seam import Fragments, OfferedLoad
from nodrop.measure.packets import books
from nodrop.measure.packets.readings import Readings
from nodrop.measure.packets.reassembly import STACK_COUNTERS
from nodrop.suts.seam import SutCounters

SENT = 101_171
SNMP = (
    "Ip.ReasmReqds",
    "Ip.ReasmOKs",
    "Ip.ReasmFails",
    "Ip.ReasmTimeout",
    "IpExt.ReasmOverlaps",
    "Ip.InDelivers",
    "Ip.InUnknownProtos",
    "IpExt.InBcastPkts",
    "IpExt.InMcastPkts",
)


FRAME_BYTES = 100
STATS = ("rx_packets", "tx_packets", "rx_dropped", "tx_dropped", "rx_missed_errors")


def side(port: str, *, softnet_dropped: int = 0, **counters: Any) -> Readings:
    """Counters that rose by these amounts from a start that is not zero."""
    stats = dict.fromkeys(STATS, 0)
    snmp = {name: counters.pop(name.partition(".")[2], 0) for name in SNMP}
    xdp: dict[str, Any] | None = counters.pop("xdp", None)
    port_state = {name: counters.pop(name) for name in ("kind", "mtu") if name in counters}
    flaps = counters.pop("carrier_changes", 0)
    memory = counters.pop("reassembly", None)
    ethtool = {name: counters.pop(name) for name in list(counters) if "queue" in name}
    stats |= counters
    stats = {f"{end}_bytes": FRAME_BYTES * stats[f"{end}_packets"] for end in ("rx", "tx")} | stats

    def reading(base: int, rise: bool) -> dict[str, Any]:
        def risen(values: dict[str, int]) -> dict[str, int]:
            return {name: base + (value if rise else 0) for name, value in values.items()}

        link = {"stats": risen(stats), "ethtool": risen(ethtool), "xdp": xdp, **port_state}
        link["carrier_changes"] = 3 + (flaps if rise else 0)
        dropped = softnet_dropped if rise else 0
        return {
            "links": {port: link},
            "snmp": risen(snmp),
            "softnet": [{"dropped": base + dropped}, {"dropped": base}],
            "reassembly": memory,
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
    longest: int | None = 1514,
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
            sent_bytes=FRAME_BYTES * (SENT - sum(refused.values())),
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
        longest_frame_bytes=longest,
    )


def closed(seen: books.Observed) -> Ledger:
    ledger = balance(books.hops(seen), books.accounts(seen))
    assert ledger.residual_packets == 0
    return ledger


def moved(ledger: Ledger) -> dict[str, int]:
    """Every account that has packets: the others must be seen to stand still."""
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
    assert "= 1440 (/proc/net/snmp), of which the receiver's own stack took 480" in account.evidence
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
    """What its stack did not deliver, or was handed whole, says nothing about its reassembly."""
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
        # The backlog of all CPUs moved less: of another namespace, at least in part.
        ({"tx_packets": SENT - 50, "tx_dropped": 50}, 49, {"tx_dropped_device": 50}),
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


def test_a_program_in_generic_mode_explains_nothing() -> None:
    """A thief in the fanout group took 15.7 %, and a program was blamed that let all pass."""
    seen = observed(rx={"xdp": {"mode": "generic", "program_id": 97}}, captured=SENT - 40)
    ledger = balance(books.hops(seen), books.accounts(seen))
    assert (moved(ledger), ledger.residual_packets) == ({}, 40)
    look_at = ledger.steps[-2].end.look_at
    assert look_at.startswith("XDP program 97 is attached to rx0 in generic mode")


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


VETH: dict[str, Any] = {"kind": "veth", "mtu": 9000}


@pytest.mark.parametrize(
    ("tx", "rx", "longest", "place"),
    [
        ({}, {"mtu": 1000}, 1514, "receiving port"),
        ({}, {"mtu": 1000, "carrier_changes": 2}, 1514, "receiving port"),
        ({}, {"carrier_changes": 4}, 1514, "receiving port"),
        # Frames of its MTU and a tag still pass.
        ({}, {"mtu": 1000}, 1018, "link between the ports"),
        ({}, {"mtu": 1000, "softnet_dropped": 1}, 1514, "link between the ports"),
        ({}, {"carrier_changes": 2, "softnet_dropped": 70}, 1514, "link between the ports"),
        ({}, {}, 1514, "link between the ports"),
        ({}, {"softnet_dropped": 69}, 1514, "link between the ports"),
        ({}, {"softnet_dropped": 70}, 1514, "softnet backlog"),
        ({"kind": None}, {"kind": None}, 1514, "sender"),
        ({"kind": None}, {"kind": None, "carrier_changes": 2}, 1514, "link between the ports"),
        ({"kind": None}, {"kind": None, "mtu": 1000}, 1514, "receiving port"),
    ],
)
def test_counters_of_both_ends_say_which_end(
    tx: dict[str, Any], rx: dict[str, Any], longest: int, place: str
) -> None:
    seen = observed(
        tx=VETH | {"tx_packets": SENT - 70, "tx_dropped": 70} | tx,
        rx=VETH | {"rx_packets": SENT - 70} | rx,
        captured=SENT - 70,
        refused={"enobufs": 70},
        longest=longest,
    )
    (account,) = (a for a in closed(seen).accounts if a.packets)
    assert (account.kind, account.packets, str(account.place)) == (Class.LOST, 70, place)


@pytest.mark.parametrize(("refused", "put_in"), [(200, 200), (200, 150), (1, 1), (70, 900)])
@pytest.mark.parametrize("counted", [0, 1])
def test_losses_and_foreign_packets_are_not_netted(refused: int, put_in: int, counted: int) -> None:
    port = {"tx_packets": SENT - refused + put_in, "tx_dropped": counted * refused}
    seen = observed(
        tx=port, rx={"rx_packets": SENT - refused + put_in}, captured=SENT - refused + put_in,
        refused={"enobufs": refused},
    )  # fmt: skip
    name = "tx_dropped_device" if counted else "tx_dropped_filter"
    assert moved(closed(seen)) == {name: refused, "tx_foreign": put_in}


@pytest.mark.parametrize("own", [1, 200, 5000])
@pytest.mark.parametrize("taps_saw", [False, True])
def test_what_the_receiver_sends_is_foreign_whoever_saw_it(own: int, taps_saw: bool) -> None:
    seen = observed(rx={"tx_packets": own}, captured=SENT + own * taps_saw)
    ledger = balance(books.hops(seen), books.accounts(seen))
    assert moved(ledger) == {"rx_foreign_outgoing": own}
    assert ledger.closed is taps_saw


def test_a_nic_without_buffers_says_so_itself() -> None:
    seen = observed(rx={"rx_packets": SENT - 12, "rx_missed_errors": 12}, captured=SENT - 12)
    assert moved(closed(seen)) == {"rx_dropped_nic": 12}


@pytest.mark.parametrize("gone", [1, 79])
def test_fewer_than_the_trace_has_are_no_cut_tags(gone: int) -> None:
    """A kernel frees all of them or none: what a thief took is not among them."""
    seen = observed(captured=SENT - gone, never_at_tap=80)
    ledger = balance(books.hops(seen), books.accounts(seen))
    assert (moved(ledger), ledger.residual_packets) == ({}, gone)
    # Unless as many were lost on the way.
    path = observed(captured=SENT - 80, never_at_tap=80, rx={"rx_packets": SENT - (80 - gone)})
    assert moved(closed(path)) == {"path_lost": 80 - gone, "rx_dropped_vlan_cut": gone}


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


@pytest.mark.parametrize("wrong", [1, -40, 188_000])
@pytest.mark.parametrize("hop", ["tx", "rx", "napi"])
def test_veth_ports_are_held_against_the_bytes_that_were_sent(wrong: int, hop: str) -> None:
    there = FRAME_BYTES * SENT + wrong
    tx, rx = VETH | {"tx_bytes": there}, VETH | {"rx_bytes": there}
    if hop == "tx":
        rx = VETH
    if hop == "napi":  # then a veth counts without Ethernet headers
        rx |= {"rx_queue_0_xdp_packets": SENT}
    seen = observed(tx=tx, rx=rx)
    ledger = balance(books.hops(seen), books.accounts(seen), longest_frame_bytes=1514)
    residual = {"tx": 0, "rx": -wrong, "napi": None}[hop]
    assert ledger.residual_bytes == residual
    assert ledger.closed is (hop == "napi")
