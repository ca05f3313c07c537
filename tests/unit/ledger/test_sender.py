"""Late bursts: what they can explain is not blamed on the SUT, and nothing more is forgiven."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodrop.ledger import hops as places
from nodrop.ledger.balance import Ledger, balance
from nodrop.ledger.hops import Account, Class, Hop
from nodrop.ledger.outcome import Outcome, Reason
from nodrop.ledger.over_time import Losses, SenderBurst
from nodrop.ledger.sender import Quota, Sending, losses_in_reach
from nodrop.ledger.verdict import Verdict, judge

S, MS = 10**9, 10**6
BEGIN = 1_000 * S


def burst(at_s: float, packets: int, late_ms: float = 0, took_ms: float = 3) -> SenderBurst:
    begin = BEGIN + round(at_s * S)
    return SenderBurst(
        begin_mono_ns=begin,
        end_mono_ns=begin + round(took_ms * MS),
        late_ns=round((late_ms or packets / 10) * MS),
        packets=packets,
    )


def lost(at_s: float, packets: int, took_s: float = 0.5) -> Losses:
    begin = BEGIN + round(at_s * S)
    return Losses(
        thread="W#01", begin_mono_ns=begin, end_mono_ns=begin + round(took_s * S), packets=packets
    )


def books(ring: int = 0, path: int = 0, sent: int = 400_000) -> Ledger:
    hops = [
        Hop(name="sent", packets=sent, counter="send() results"),
        Hop(name="socket", packets=sent - path, counter="tp_packets"),
        Hop(name="decoded", packets=sent - path - ring, counter="pkts"),
    ]
    full, dropped = (
        Account(into=into, kind=Class.LOST, name=into, packets=n, counter="c", place=place)
        for into, n, place in (("decoded", ring, places.SOCKET_RING), ("socket", path, places.PATH))
    )
    return balance(hops, [full, dropped])


def sent(*bursts: SenderBurst, ring_packets: int | None = 2_048) -> Sending:
    return Sending(
        intended_packets=400_000,
        sent_packets=400_000,
        schedule_error_p99_us=900,
        late_bursts=bursts,
        first_sent_mono_ns=BEGIN,
        ring_packets=ring_packets,
    )


def verdict(ledger: Ledger, sending: Sending, *losses: Losses, timed: bool = True) -> Verdict:
    return judge(ledger, sending, losses=losses if timed else None)


@pytest.mark.parametrize(
    ("stall_ms", "pps", "packets_lost"),
    [(300, 10_000, 2_700), (130, 10_000, 1_070), (60, 50_000, 900), (1_000, 2_500, 40)],
)
@pytest.mark.parametrize("timed", [True, False])
def test_losses_at_the_time_of_a_burst_are_no_result(
    stall_ms: int, pps: int, packets_lost: int, timed: bool
) -> None:
    stall = burst(12.3, stall_ms * pps // 1000, stall_ms)
    found = verdict(books(ring=packets_lost), sent(stall), lost(12, packets_lost), timed=timed)
    assert found.outcome is Outcome.VOID
    assert [problem.code for problem in found.invalid_reasons] == [Reason.SENDER_BURST]
    known = "at that time" if timed else "at a time that is not known"
    assert found.words == (
        f"void: the sender fell {stall_ms} ms behind and then sent {stall.packets:,} packets at "
        f"once, 12.3 s into it; {packets_lost:,} packets were lost, "
        f"{packets_lost:,} of them {known}, "
        "and that can be the burst's doing"
    )


@pytest.mark.parametrize("at_s", [1, 14.9, 20])
def test_losses_at_another_time_stay_the_suts(at_s: float) -> None:
    stall = burst(12.3, 3_000)
    found = verdict(books(ring=2_700), sent(stall), lost(at_s, 2_700))
    assert found.outcome is Outcome.MEASURED
    assert found.words.startswith("0.68 % lost in the socket ring")


def test_no_loss_stays_a_result_whatever_the_sender_did() -> None:
    assert verdict(books(), sent(burst(3, 30_000)), timed=False).words == "no loss"


@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize(("pps", "share"), [(20_000, 0.3), (100_000, 0.2), (10_000, 0.5)])
def test_heavy_overload_on_a_noisy_host_stays_a_result(pps: int, share: float, timed: bool) -> None:
    """p99 of 3 ms, twenty stalls of 4 ms and one of 20 in ten seconds."""
    bursts = [burst(n / 2, pps * 4 // 1000, 4) for n in range(20)] + [burst(7, pps // 50, 20)]
    packets_lost = round(pps * 10 * share)
    windows = [lost(n / 2, packets_lost // 20) for n in range(20)]
    ledger = books(ring=windows[0].packets * 20, sent=pps * 10)
    sending = replace(sent(*bursts), intended_packets=pps * 10, sent_packets=pps * 10)
    assert verdict(ledger, sending, *windows, timed=timed).outcome is Outcome.MEASURED


def test_a_burst_that_is_small_against_the_losses_is_let_pass_and_a_larger_one_is_not() -> None:
    windows = [lost(n, 10_000, 1) for n in range(10)]
    windows[4] = lost(4, 80_000, 1)
    for packets, outcome in [(84_999, Outcome.MEASURED), (85_000, Outcome.VOID)]:
        assert verdict(books(ring=170_000), sent(burst(4, packets)), *windows).outcome is outcome


@pytest.mark.parametrize(
    ("ring", "pps", "lost_packets", "stalls", "beyond"),
    [(80, 47_548, 1_954, [68, 118, 184, 240], 1_344), (256, 20_000, 900, [300, 100], 500)],
)
def test_what_a_small_ring_loses_beyond_late_bursts_is_its_own(
    ring: int, pps: int, lost_packets: int, stalls: list[int], beyond: int
) -> None:
    """A small ring overflows at what the trace itself asks for at once; a sender that was late
    besides explains a part of that, and no more."""
    bursts = [burst(1 + n / 10, packets, packets / pps * 1000) for n, packets in enumerate(stalls)]
    found = verdict(
        books(ring=lost_packets, sent=pps * 3),
        replace(sent(*bursts, ring_packets=ring), intended_packets=pps * 3, sent_packets=pps * 3),
        lost(0, lost_packets, 3),
    )
    assert found.outcome is Outcome.MEASURED
    assert found.lost_beyond_bursts == beyond
    assert f"{beyond:,} to {lost_packets:,} packets are the SUT's loss" in found.words
    late = verdict(
        books(ring=lost_packets, sent=pps * 3),
        replace(sent(burst(1, lost_packets)), intended_packets=pps * 3, sent_packets=pps * 3),
        lost(0, lost_packets, 3),
    )
    assert (late.outcome, late.lost_beyond_bursts) == (Outcome.VOID, 0)


def test_many_bursts_count_together() -> None:
    bursts = [burst(n, 600) for n in range(10)]
    windows = [lost(n, 500) for n in range(10)]
    found = verdict(books(ring=5_000), sent(*bursts), *windows)
    assert found.outcome is Outcome.VOID
    assert (
        "and 9 more such bursts; 5,000 packets were lost, 5,000 of them at that time" in found.words
    )
    few = verdict(books(ring=5_000), sent(*bursts[:5]), *windows)
    assert few.outcome is Outcome.VOID
    one = verdict(books(ring=5_000), sent(*bursts[:1]), *windows)
    assert (one.outcome, one.lost_beyond_bursts) == (Outcome.MEASURED, 4_500)
    far = [lost(n + 0.7, 500, 0.2) for n in range(10)]
    assert verdict(books(ring=5_000), sent(*bursts), *far).outcome is Outcome.MEASURED


@pytest.mark.parametrize(
    ("all_packets", "outcome"), [(None, Outcome.MEASURED), (500_000, Outcome.VOID)]
)
def test_bursts_that_were_too_many_to_list_count_too(
    all_packets: int | None, outcome: Outcome
) -> None:
    """64 of 600 packets are listed, and explain 4 % of the losses."""
    listed = [burst(n / 4, 600) for n in range(64)]
    windows = [lost(n, 60_000, 1) for n in range(16)]
    sending = replace(sent(*listed), sent_packets=2_000_000, intended_packets=2_000_000)
    sending = replace(sending, late_burst_packets=all_packets)
    found = verdict(books(ring=960_000, sent=2_000_000), sending, *windows)
    assert found.outcome is outcome
    # One that is listed and too small to count says that those not listed are too small as well.
    smaller = replace(sending, late_bursts=[*listed[1:], burst(20, 500)])
    assert verdict(books(ring=960_000, sent=2_000_000), smaller, *windows).valid


@pytest.mark.parametrize(
    ("ring_packets", "least"), [(2_048, 512), (64, 16), (30_000, 7_500), (None, 250)]
)
def test_a_burst_counts_from_a_quarter_of_the_ring_on(ring_packets: int | None, least: int) -> None:
    for packets, outcome in [(least - 1, Outcome.MEASURED), (least, Outcome.VOID)]:
        sending = sent(burst(2, packets), ring_packets=ring_packets)
        assert verdict(books(ring=least), sending, lost(2, least)).outcome is outcome


def test_elsewhere_the_kernels_own_queues_are_what_overflows() -> None:
    sending = sent(burst(2, 300), ring_packets=30_000)
    assert verdict(books(path=100), sending, timed=False).outcome is Outcome.VOID
    assert verdict(books(ring=100), sending, timed=False).outcome is Outcome.MEASURED


def test_losses_that_nobody_timed_can_be_any_bursts() -> None:
    """The SUT's own are at another time; 1,400 more died on the path."""
    sending = sent(burst(9, 2_000))
    found = verdict(books(ring=1_000, path=1_400), sending, lost(1, 1_000))
    assert found.outcome is Outcome.VOID
    assert "2,400 packets were lost, 1,400 of them" in found.words
    fewer = verdict(books(ring=1_000, path=400), sending, lost(1, 1_000))
    assert (fewer.outcome, fewer.lost_beyond_bursts) == (Outcome.MEASURED, 1_000)


def test_a_generator_that_cannot_say_its_bursts_is_not_accused_of_any() -> None:
    sending = replace(sent(), late_bursts=None)
    assert verdict(books(ring=100), sending, timed=False).outcome is Outcome.MEASURED


def test_lateness_names_the_hypervisor_if_it_took_the_cpu() -> None:
    late = replace(sent(), schedule_error_p99_us=9_000)
    stolen = replace(late, stolen_ratio=0.098)
    assert verdict(books(), stolen).words == (
        "void: the sender was late: schedule error p99 9.0 ms (bound 5 ms); "
        "the hypervisor gave 9.8 % of its CPU to others"
    )
    for ratio in (None, 0.0, 0.009):
        words = verdict(books(), replace(late, stolen_ratio=ratio)).words
        assert words.endswith("(bound 5 ms)")
    inside = replace(sent(burst(2, 2_000)), stolen_ratio=0.3)
    words = verdict(books(ring=9), inside, lost(2, 9)).words
    assert words.endswith("the hypervisor gave 30.0 % of its CPU to others")


moments = st.floats(min_value=0, max_value=20, allow_nan=False)
amounts = st.integers(min_value=0, max_value=10_000)


@given(
    bursts=st.lists(st.tuples(moments, amounts), max_size=6),
    windows=st.lists(st.tuples(moments, amounts), max_size=6),
    untimed=amounts,
)
def test_what_is_explained_is_at_most_the_bursts_and_at_most_the_losses(
    bursts: list[tuple[float, int]], windows: list[tuple[float, int]], untimed: int
) -> None:
    late = [burst(at_s, packets) for at_s, packets in bursts]
    losses = [lost(at_s, packets) for at_s, packets in windows]
    all_lost = sum(window.packets for window in losses) + untimed
    explained = losses_in_reach(late, all_lost, losses)
    assert 0 <= explained <= min(all_lost, sum(b.packets for b in late))
    assert explained >= min(untimed, sum(b.packets for b in late))
    assert losses_in_reach(late, all_lost, None) >= explained


@pytest.mark.parametrize(
    ("held_s", "cpus", "named"), [(1.2, 0.4, True), (0.05, 2.5, True), (0.019, 0.4, False)]
)
def test_a_quota_around_nodrop_is_named_beside_a_late_sender(
    held_s: float, cpus: float, named: bool
) -> None:
    held = Quota(
        group="/sys/fs/cgroup/pod",
        cpus=cpus,
        periods=20,
        throttled_periods=18,
        throttled_s=held_s,
    )
    late = replace(sent(), schedule_error_p99_us=60_900, duration_s=2.0, quota=held)
    words = judge(books(), late).words
    assert "the sender was late" in words
    assert ("throttled in 18 of 20 periods" in words) is named
    assert (f"({cpus:g} CPUs, /sys/fs/cgroup/pod)" in words) is named
