"""A load without loss is carried only if the SUT kept its pace; else its rings absorbed a burst.

The truth of each case is a queue of K slots that serves u packets/s, worked out by hand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from nodrop.ledger import hops as places
from nodrop.ledger.balance import Ledger, balance
from nodrop.ledger.hops import Account, Class, Hop
from nodrop.ledger.over_time import (
    LEAST_S,
    TOLERANCE,
    ServicePace,
    WorkedOff,
    least_duration_s,
    pace,
)
from nodrop.ledger.sender import Sending
from nodrop.ledger.verdict import judge


def queue(
    offered_pps: float, offered_s: float, service_pps: float, *, seen_late_s: float = 0.0
) -> WorkedOff:
    """A queue that takes `offered_pps` without loss for so long, seen at rest so much too late."""
    packets = round(offered_pps * offered_s)
    left = max(0.0, packets - service_pps * offered_s)
    drain_s = left / service_pps
    return WorkedOff(
        packets=packets,
        offered_s=offered_s,
        drain_at_least_s=max(0.0, drain_s - seen_late_s),
        drain_at_most_s=drain_s + seen_late_s,
    )


@pytest.mark.parametrize(
    ("offered_pps", "offered_s", "service_pps"),
    [
        (50_002, 1.0, 5_000),  # as it was found: drained for 9.0 s
        (20_000, 2.0, 15_000),
        (10_000, 30.0, 9_000),
        (1_000_000, 10.0, 900_000),
        (3_000, 1.5, 100),
    ],
)
@pytest.mark.parametrize("seen_late_s", [0.0, 0.02])
def test_a_ring_that_held_what_was_not_served_is_a_burst(
    offered_pps: float, offered_s: float, service_pps: float, seen_late_s: float
) -> None:
    found = pace(queue(offered_pps, offered_s, service_pps, seen_late_s=seen_late_s))
    assert found.sustained is False, found
    assert found.service_pps_at_least is not None
    assert found.service_pps_at_least <= service_pps * (1 + 1e-9)


@pytest.mark.parametrize(
    ("offered_pps", "offered_s", "seen_late_s"),
    [(250_038, 0.2, 0.1), (250_038, 0.2, 0.001), (10_000, 0.9, 0.0), (4_000, 1.2, 0.12)],
)
def test_what_is_too_short_to_tell_is_no_pace(
    offered_pps: float, offered_s: float, seen_late_s: float
) -> None:
    found = pace(queue(offered_pps, offered_s, 2 * offered_pps, seen_late_s=seen_late_s))
    assert found.sustained is None, found


@pytest.mark.parametrize("service_pps", [9_400, 8_000, 5_000, 100])
@pytest.mark.parametrize("seen_late_s", [0.0, 0.05, 0.3, 5.0])
@pytest.mark.parametrize("offered_s", [0.5, 1.0, 3.0, 60.0])
def test_no_slower_queue_is_ever_called_sustained(
    service_pps: float, seen_late_s: float, offered_s: float
) -> None:
    found = pace(queue(10_000, offered_s, service_pps, seen_late_s=seen_late_s))
    assert found.sustained is not True, found


@pytest.mark.parametrize("service_pps", [9_600, 9_800, 9_880])
@pytest.mark.parametrize("offered_s", [1.0, 3.0, 60.0])
def test_a_queue_that_is_seen_to_grow_is_not_sustained(
    service_pps: float, offered_s: float
) -> None:
    """Within the tolerance, but it was looked at closely."""
    assert pace(queue(10_000, offered_s, service_pps)).sustained is None


@pytest.mark.parametrize("service_pps", [10_000, 10_500, 1e6])
@pytest.mark.parametrize(("offered_s", "seen_late_s"), [(1.0, 0.01), (3.0, 0.15), (60.0, 3.0)])
def test_a_queue_that_keeps_up_is_never_called_behind(
    service_pps: float, offered_s: float, seen_late_s: float
) -> None:
    found = pace(queue(10_000, offered_s, service_pps, seen_late_s=seen_late_s))
    assert found.sustained is True, found
    assert found.service_pps_at_least is not None
    assert 10_000 * (1 - TOLERANCE) <= found.service_pps_at_least <= 10_000


@pytest.mark.parametrize(
    ("backlog", "sustained"), [(None, None), (600, None), (500, True), (64, True), (10_000, None)]
)
def test_a_small_ring_shows_the_pace_without_a_look_at_the_end(
    backlog: int | None, sustained: bool | None
) -> None:
    seen = WorkedOff(packets=10_000, offered_s=2.0, backlog_at_most_packets=backlog)
    assert pace(seen).sustained is sustained


@pytest.mark.parametrize(
    ("packets", "offered_s", "evidence"),
    [(0, 1.0, ""), (1, 0.0, "the load lasted no time"), (0, 0.0, "")],
)
def test_nothing_is_said_of_nothing(packets: int, offered_s: float, evidence: str) -> None:
    found = pace(WorkedOff(packets=packets, offered_s=offered_s, drain_at_most_s=0.1))
    assert found == ServicePace(sustained=None, service_pps_at_least=None, evidence=evidence)


def lossless(packets: int) -> Ledger:
    names = ("intended", "sent", "tx_nic", "rx_nic", "socket", "decoded")
    return balance([Hop(name=name, packets=packets, counter=name) for name in names], [])


@pytest.mark.parametrize(
    ("seen", "begins"),
    [
        (queue(50_002, 1.0, 5_000), "absorbed a burst without loss, did not keep its pace: 50,002"),
        (queue(250_038, 0.2, 1e6), "absorbed a burst without loss, keeping its pace is not shown"),
        (queue(10_000, 5.0, 9_000), "absorbed a burst without loss, did not keep its pace: 50,000"),
        (queue(10_000, 5.0, 11_000), "no loss"),
        (None, "no loss"),
    ],
)
def test_the_verdict_says_which(seen: WorkedOff | None, begins: str) -> None:
    packets = 100 if seen is None else seen.packets
    sending = Sending(
        intended_packets=packets,
        sent_packets=packets,
        duration_s=1.0,
        intended_duration_s=1.0,
        schedule_error_p99_us=1.0,
    )
    verdict = judge(lossless(packets), sending, worked_off=seen)
    assert verdict.valid
    assert verdict.words.startswith(begins)
    assert (verdict.words == "no loss") == (begins == "no loss")


@pytest.mark.parametrize("lost", [0, 1, 500, 24_450])
def test_a_trial_that_lost_packets_is_never_sustained(lost: int) -> None:
    """The pace that was kept is that of what was not lost."""
    sent = 50_000
    hops = [
        Hop(name=name, packets=sent if name != "decoded" else sent - lost, counter=name)
        for name in ("intended", "sent", "tx_nic", "rx_nic", "socket", "decoded")
    ]
    ring = Account(
        into="decoded", kind=Class.LOST, name="rx_dropped_ring_full", place=places.SOCKET_RING,
        packets=lost, counter="tp_drops",
    )  # fmt: skip
    sending = Sending(
        intended_packets=sent,
        sent_packets=sent,
        duration_s=5.0,
        intended_duration_s=5.0,
        schedule_error_p99_us=1.0,
    )
    kept = WorkedOff(packets=sent - lost, offered_s=5.0, drain_at_most_s=0.01)
    verdict = judge(balance(hops, [ring] if lost else []), sending, worked_off=kept)
    assert verdict.valid and verdict.pace is not None
    assert verdict.pace.sustained is (True if lost == 0 else None)


@pytest.mark.parametrize(
    ("offered_pps", "holds", "seen_s", "least_s"),
    [
        (10_000, 500, None, 1.0),
        (10_000, 5_000, None, 10.0),
        (10_000, 5_000, 0.001, 1.0),
        (250_000, 60_000, 0.1, 1.9),
        (10_000, None, 0.1, 1.9),
        (10_000, None, None, None),
    ],
)
def test_the_least_duration_is_what_the_rule_needs(
    offered_pps: float, holds: int | None, seen_s: float | None, least_s: float | None
) -> None:
    found = least_duration_s(offered_pps, holds_packets=holds, rest_seen_s=seen_s)
    assert found == (None if least_s is None else pytest.approx(least_s))
    if found is None:
        return
    assert found >= LEAST_S
    seen = WorkedOff(
        packets=round(offered_pps * found),
        offered_s=found,
        drain_at_most_s=seen_s,
        backlog_at_most_packets=holds,
    )
    assert pace(seen).sustained is True


@dataclass(frozen=True)
class Burst:
    """A queue of `ring` slots that serves `pps`, and a load whose last tenth comes denser."""

    pps: float
    ring: int
    mean_pps: float
    end_times: float
    offered_s: float = 5.0

    def seen(self) -> tuple[WorkedOff, int]:
        """A trial's view of it with looks each 10 ms, and the packets that the ring cannot hold."""
        step = 0.01
        steps = round(self.offered_s / step)
        end = steps // 10
        rest = self.mean_pps * (1 - 0.1 * self.end_times) / 0.9
        waiting = lost = came = served = 0.0
        totals = [0.0]
        for n in range(steps):
            packets = step * (self.mean_pps * self.end_times if n >= steps - end else rest)
            came += packets
            done = min(waiting + packets, self.pps * step)
            served += done
            waiting += packets - done
            lost += max(0.0, waiting - self.ring)
            waiting = min(waiting, self.ring)
            totals.append(served)
        drain_s = waiting / self.pps
        window = round(0.5 / step)
        return (
            WorkedOff(
                packets=round(came - lost),
                offered_s=self.offered_s,
                drain_at_least_s=drain_s,
                drain_at_most_s=drain_s + 0.1,
                backlog_at_least_packets=round(waiting),
                backlog_at_most_packets=self.ring,
                fastest_pps=max(
                    (totals[n + window] - totals[n]) / 0.5
                    for n in range(steps // 2, steps - window + 1)
                ),
            ),
            round(lost),
        )


@pytest.mark.parametrize(
    ("pps", "ring", "mean_pps", "end_times"),
    [(17_300, 4_096, 13_500, 1.8), (17_300, 4_096, 12_800, 1.9), (5_000, 2_000, 4_200, 1.8)],
)
def test_a_burst_that_comes_last_is_no_slow_sut(
    pps: float, ring: int, mean_pps: float, end_times: float
) -> None:
    """Seen: a sink of 17,300/s with a ring of 4,096 loses nothing up to 7.8X; "not 7.7X", for what
    its ring held at the end."""
    seen, lost = Burst(pps, ring, mean_pps, end_times).seen()
    assert lost == 0 and seen.backlog_at_least_packets > TOLERANCE * seen.packets
    assert pace(seen).sustained is True, pace(seen)
    assert pace(replace(seen, fastest_pps=None)).sustained is False, "as it was"


@pytest.mark.parametrize(("pps", "mean_pps"), [(17_300, 18_900), (5_000, 5_400), (900, 1_000)])
def test_a_backlog_that_grows_all_the_time_is_still_not_carried(
    pps: float, mean_pps: float
) -> None:
    seen, lost = Burst(pps, 100_000, mean_pps, 1.0).seen()
    assert lost == 0 and pace(seen).sustained is False


@pytest.mark.parametrize(
    ("rested_s", "rested_packets", "drain_s", "sustained"),
    [
        (4.0, 40_000, 1.0, True),
        (4.5, 30_000, 1.0, True),
        (4.0, 36_000, 4.0, None),  # seen at rest too late to show the pace
        (1.0, 5_000, 1.0, False),
        (None, 0, 1.0, False),
    ],
)
def test_a_sut_that_slept_late_in_the_load_was_not_falling_behind(
    rested_s: float | None, rested_packets: int, drain_s: float, sustained: bool | None
) -> None:
    """Suricata's counters come too late to show it: what its threads did is seen each 0.1 s."""
    seen = WorkedOff(
        packets=50_000,
        offered_s=5.0,
        drain_at_least_s=0.6,
        drain_at_most_s=drain_s,
        rested_s=rested_s,
        rested_packets=rested_packets,
    )
    found = pace(seen)
    assert found.sustained is sustained, found


@pytest.mark.parametrize("fastest_known", [True, False])
@pytest.mark.parametrize(
    ("packets", "offered_s", "drain_s", "fastest_pps", "rested_s"),
    [
        (765, 5.006, 0.062, 170.0, 4.994),  # a sink of 500/s: "at 150 packets/s it fell behind"
        (1_100, 5.0, 0.099, 327.0, 4.7),  # a sink of 1,000/s: "carries less than 123 packets/s"
        (248, 4.1, 0.051, 98.0, 4.0),
        (90_000, 5.0, 0.2, 18_400.0, 4.8),
    ],
)
def test_a_small_burst_at_the_end_is_no_slow_sut_either(
    packets: int, offered_s: float, drain_s: float, fastest_pps: float,
    rested_s: float, fastest_known: bool,
) -> None:  # fmt: skip
    """A window that holds most packets ends with the burst that makes it so."""
    seen = WorkedOff(
        packets=packets,
        offered_s=offered_s,
        drain_at_least_s=drain_s - 0.002,
        drain_at_most_s=drain_s,
        backlog_at_most_packets=packets // 20,
        fastest_pps=fastest_pps if fastest_known else None,
        rested_s=rested_s,
        rested_packets=round(packets * 0.94),
    )
    assert pace(seen).sustained is True, pace(seen)
    mean_pps = packets / offered_s
    behind = replace(
        seen, fastest_pps=0.97 * mean_pps, rested_s=0.3, rested_packets=round(0.29 * mean_pps)
    )
    assert pace(behind).sustained is None, "it never rested, and served less"
