"""Readings become hops and accounts: each difference gets the class its counters prove."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from nodrop.ledger.balance import balance
from nodrop.ledger.hops import Class
from nodrop.measure.packets import books
from nodrop.measure.packets.readings import Ends, Readings, nothing_arrived
from tests.unit.measure.packets.one_trial import (
    FRAME_BYTES,
    REALMIX,
    SENT,
    closed,
    moved,
    observed,
    side,
)


@pytest.mark.parametrize(
    ("tx", "rx", "reached"),
    [
        ({}, {"rx_packets": 0}, False),
        ({}, {"rx_packets": 1}, True),
        ({}, {"rx_packets": 0, "rx_missed_errors": 5}, True),
        ({}, {"rx_packets": 0, "ethtool": {"rx_no_dma_resources": 5}}, True),
        # A filter on the way out, or a port that refused all.
        ({"tx_packets": 0, "tx_dropped": SENT}, {"rx_packets": 0}, True),
    ],
)
def test_a_cable_by_which_nothing_came(
    tx: dict[str, Any], rx: dict[str, Any], reached: bool
) -> None:
    ends = observed(tx=tx, rx=rx, captured=0).ends
    found = nothing_arrived(ends, tx_host="sender gen1", rx_host="receiver")
    said = f"not one of {SENT:,} packets that left tx0 of sender gen1 reached rx0 of receiver: "
    assert [problem.words.startswith(said) for problem in found] == ([] if reached else [True])


def test_one_of_two_cables_is_out() -> None:
    def both(first: Readings, second: Readings) -> Readings:
        before, after = (
            {"links": {**getattr(first, at)["links"], **getattr(second, at)["links"]}}
            for at in ("before", "after")
        )
        return Readings(before=cast(Any, before), after=cast(Any, after))

    ends = Ends(
        tx=both(side("tx0", tx_packets=7), side("tx1", tx_packets=5)),
        tx_ports=["tx0", "tx1"],
        rx=both(side("rx0", rx_packets=7), side("rx1")),
        rx_ports=["rx0", "rx1"],
        longest_frame_bytes=None,
    )
    (found,) = nothing_arrived(ends, tx_host="a", rx_host="b")
    assert found.words.startswith("not one of 5 packets that left tx1 of a reached rx1 of b: ")


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


@pytest.mark.parametrize(
    ("own", "ignores", "accounts"),
    [
        (23_829, False, {"rx_answered": 23_829}),
        (14, True, {}),
        (23_832, False, {"rx_answered": 23_829, "rx_foreign_outgoing": 3}),
    ],
)
def test_answers_are_part_of_the_load(own: int, ignores: bool, accounts: dict[str, int]) -> None:
    """A stack that answers (iperf3): a capture socket sees both ways, unless it asked not to."""
    seen = observed(
        rx={"tx_packets": own},
        captured=SENT + (0 if ignores else own),
        dropped=1000,
        answered=23_829,
        ignores_outgoing=ignores,
    )
    ledger = closed(seen)
    assert moved(ledger) == {**accounts, "rx_dropped_ring_full": 1000}
    handed = SENT + accounts.get("rx_answered", 0)
    assert ledger.loss_ratio == pytest.approx(1000 / handed)


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


@pytest.mark.parametrize(
    ("driver", "missed", "missing", "nic"),
    [
        ({"rx_no_dma_resources": 12, "rx_packets": 5}, 0, 12, 12),
        ({"rx_no_dma_resources": 12}, 12, 12, 12),
        ({"rx_queue_0_drops": 4, "rx_queue_1_drops": 3}, 5, 12, 12),
        ({"  pkts rx OOB": 12, "  drv dropped rx total": 2}, 0, 14, 12),
        ({"port.rx_dropped": 12}, 12, 20, 12),
        ({"port.rx_dropped": 12}, 0, 20, 12),
        ({"rx_out_of_buffer": 9, "rx_discards_phy": 3}, 9, 12, 12),
        ({"rx_no_buffer_count": 12}, 0, 12, 0),
        ({"rx_queue_0_drops": 12}, 0, 0, 0),
    ],
)
def test_what_a_driver_says_counts_once_and_as_far_as_packets_are_missing(
    driver: dict[str, int], missed: int, missing: int, nic: int
) -> None:
    got = SENT - missing
    counters = {"rx_packets": got, "rx_missed_errors": missed, "ethtool": driver}
    ledger = closed(observed(rx=counters, captured=got))
    expected = {"rx_dropped_nic": nic, "path_lost": missing - nic}
    assert moved(ledger) == {name: packets for name, packets in expected.items() if packets}
    for account in ledger.accounts:
        if account.packets:
            assert f"{next(iter(driver)).strip()} rose by {next(iter(driver.values()))} (" in (
                account.evidence
            )


@pytest.mark.parametrize("name", ["rx_discards_phy", "port.rx_dropped"])
@pytest.mark.parametrize(("dropped", "unhandled"), [(12, 0), (19, 7), (0, 0)])
def test_what_a_nic_lost_was_not_left_by_a_protocol(
    name: str, dropped: int, unhandled: int
) -> None:
    """A driver may have it in rx_dropped as well, or not."""
    got = SENT - 12
    rx = {"rx_packets": got, "rx_dropped": dropped, "ethtool": {name: 12}}
    found = moved(closed(observed(rx=rx, captured=got)))
    assert found.pop("rx_dropped_nic") == 12
    assert found == ({"rx_dropped_unhandled": unhandled} if unhandled else {})


@pytest.mark.parametrize("gone", [1, 79])
def test_fewer_than_the_trace_has_are_no_cut_tags(gone: int) -> None:
    """A kernel frees all of them or none: what a thief took is not among them."""
    seen = observed(captured=SENT - gone, never_at_tap=80)
    ledger = balance(books.hops(seen), books.accounts(seen))
    assert (moved(ledger), ledger.residual_packets) == ({}, gone)
    # Unless as many were lost on the way.
    path = observed(captured=SENT - 80, never_at_tap=80, rx={"rx_packets": SENT - (80 - gone)})
    assert moved(closed(path)) == {"path_lost": 80 - gone, "rx_dropped_vlan_cut": gone}


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


@pytest.mark.parametrize(("captured", "dropped"), [(SENT, 0), (SENT, 700)])
def test_a_nic_that_the_sut_drives_itself_is_no_hop_of_the_kernel(
    captured: int, dropped: int
) -> None:
    """The books go from the sender's port to the SUT's counters of the NIC: those have every frame
    that came, and each for which there was no room. No port of the receiver is read."""
    seen = replace(observed(captured=captured, dropped=dropped), nic_ports=(), capture_ports=())
    ledger = closed(seen)
    hops = {hop.name: hop.packets for hop in ledger.hops}
    assert hops["rx_nic"] is None
    assert (hops["tx_nic"], hops["socket"]) == (SENT, captured)
    assert moved(ledger) == ({"rx_dropped_ring_full": dropped} if dropped else {})
    assert seen.expected_captured_packets == SENT
    assert nothing_arrived(seen.ends, tx_host="gen1", rx_host="sensor1") == []
