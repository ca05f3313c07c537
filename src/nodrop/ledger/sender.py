"""Judging the sender: did what was asked for leave, and in time? The sender is a suspect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from nodrop.config.units import noun
from nodrop.ledger.balance import Ledger
from nodrop.ledger.hops import Class, WaitsFor
from nodrop.ledger.outcome import Problem, Reason
from nodrop.ledger.over_time import Losses, SenderBurst
from nodrop.ledger.quantities import PART, Count, NotNegative, Seconds, Text

KNOBS = "systemd CPUQuota=, docker --cpus, Kubernetes limits.cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """A CPU quota around nodrop itself, and how often it was used up since some moment."""

    __pydantic_config__: ClassVar = PART

    group: Text
    """Folder of the control group."""
    cpus: NotNegative
    """CPU time per time that all programs of the group may have."""
    periods: Count
    throttled_periods: Count
    throttled_s: Seconds
    """Time in which programs of the group were not let run, summed over CPUs."""

    @property
    def words(self) -> str:
        return f"{self.cpus:g} {noun(self.cpus, 'CPU')}, {self.group}"

    @property
    def throttled_words(self) -> str:
        if not self.throttled_periods:
            return "throttled in no period"
        return (
            f"throttled in {self.throttled_periods} of {self.periods} periods, "
            f"{self.throttled_s:.2f} s in all"
        )


def rise(before: Sequence[Quota], now: Sequence[Quota]) -> Quota | None:
    """The group that held its programs back longest between two looks; None if none did."""
    earlier = {quota.group: quota for quota in before}
    quotas = [
        Quota(
            group=quota.group,
            cpus=quota.cpus,
            periods=quota.periods - first.periods,
            throttled_periods=quota.throttled_periods - first.throttled_periods,
            throttled_s=quota.throttled_s - first.throttled_s,
        )
        for quota in now
        if (first := earlier.get(quota.group)) is not None
    ]
    held = [quota for quota in quotas if quota.throttled_s > 0 or quota.throttled_periods > 0]
    return max(held, key=lambda quota: quota.throttled_s, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """The load as the generator sent it. The sender is a suspect."""

    intended_packets: int
    sent_packets: int
    unit: str = "packet"
    """Unit of these numbers: packet, attach."""
    duration_s: float | None = None
    intended_duration_s: float | None = None
    """None at top speed, where nothing can be late."""
    constant_rate: bool = False
    """Packets per second were asked for, and not the trace's own timing."""
    schedule_error_p99_us: float | None = None
    """None if the generator cannot say."""
    late_bursts: Sequence[SenderBurst] | None = None
    """The largest; None if the generator cannot say."""
    late_burst_packets: int | None = None
    """Packets of all late bursts, not of the largest alone."""
    first_sent_mono_ns: int | None = None
    ring_packets: int | None = None
    """Packets that the smallest ring of the SUT holds."""
    stolen_ratio: float | None = None
    """Part of the sender's CPU that the hypervisor gave to others meanwhile."""
    quota: Quota | None = None
    """CPU quota around nodrop, and so the sender, that held it back meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderLimits:
    """How far the sender may stray before the trial says more of it than of the SUT."""

    schedule_error_p99_us: float = 5_000
    """A starved sender is late by tens of milliseconds."""
    late_ratio: float = 0.05
    """Sending may take this much longer than asked, with at least `late_floor_s` of grace; at a
    constant rate that grace is never longer than what was asked."""
    late_floor_s: float = 0.05
    unsent_ratio: float = 0.0
    late_burst_ratio: float = 0.5
    """A loss of which late bursts may explain this much is not the SUT's. Of less, the rest is."""
    steal_ratio: float = 0.05
    """Part of the CPUs of the sender or the SUT that the hypervisor may take."""


QUEUE_PACKETS = 1_000
"""Packets that the kernel's own queues hold, for each CPU (netdev_max_backlog) and each device."""
BURST_ROOM = 0.25
"""A late burst below this part of what a queue holds is what queues are for. In a queue that is
never empty it moves losses and adds none; in one that keeps up it finds room."""
AFTERMATH_NS = 500_000_000
"""Time after a late burst in which losses may still be its doing: the ring it filled is not empty
yet."""
NAMED_RATIO = 0.05
"""A part of the losses that late bursts can explain is said from here on."""
STOLEN = 0.01
"""Share beyond which the hypervisor is named."""


def problems_of_the_sender(
    ledger: Ledger | None,
    sending: Sending | None,
    bounds: SenderLimits,
    losses: Sequence[Losses] | None = None,
) -> list[Problem]:
    """`losses`: when packets were lost; None if that is not known."""
    if sending is None:
        return []
    problems: list[Problem] = []
    if sending.sent_packets == 0:
        problems.append(Problem(code=Reason.NOTHING_SENT, words=f"no {sending.unit} was sent"))
    unsent = sending.intended_packets - sending.sent_packets
    if sending.sent_packets and unsent > bounds.unsent_ratio * sending.intended_packets:
        refused = [a for a in ledger.accounts if a.kind is Class.UNSENT] if ledger else []
        why = "; ".join(f"{a.packets:,}: {a.counter}" for a in refused)
        units = noun(sending.intended_packets, sending.unit)
        words = f"only {sending.sent_packets:,} of {sending.intended_packets:,} {units} were sent"
        words += f" ({why})" if why else ""
        problems.append(Problem(code=Reason.SENDER_SHORT, words=words))
    if late := _lateness(sending, bounds):
        words = f"the sender was late: {late}{_held_back(sending)}"
        problems.append(Problem(code=Reason.SENDER_LATE, words=words))
    elif ledger and (burst := _burst(sending, ledger, losses, bounds.late_burst_ratio)):
        problems.append(Problem(code=Reason.SENDER_BURST, words=burst + _held_back(sending)))
    return problems


def _lateness(sending: Sending, bounds: SenderLimits) -> str:
    p99 = sending.schedule_error_p99_us
    if p99 is not None and p99 > bounds.schedule_error_p99_us:
        return (
            f"schedule error p99 {p99 / 1000:.1f} ms "
            f"(bound {bounds.schedule_error_p99_us / 1000:g} ms)"
        )
    asked, took = sending.intended_duration_s, sending.duration_s
    if asked is None or took is None:
        return ""
    # The floor forgives a pause of the host. It must not forgive a rate: a thousand packets at any
    # rate are gone in 2 ms, which does not prove 10^18 per second.
    floor_s = min(bounds.late_floor_s, asked) if sending.constant_rate else bounds.late_floor_s
    if took > asked + max(bounds.late_ratio * asked, floor_s):
        return f"sending took {took:.3g} s instead of {asked:.3g} s"
    return ""


def lost_by_bursts(sending: Sending, ledger: Ledger, losses: Sequence[Losses] | None) -> int:
    """How many of the lost packets the sender's late bursts can explain, at the most.

    A finite queue loses at most as many packets more as arrive at another time than they should:
    so a burst of n packets explains at most n losses, and only those of its own time. The others
    would have been lost if it had been on time.
    """
    bursts = _counted(sending, ledger)
    if not bursts:
        return 0
    lost = ledger.total(Class.LOST)
    return min(lost, losses_in_reach(bursts, lost, losses) + _not_listed(sending, bursts))


def _counted(sending: Sending, ledger: Ledger) -> list[SenderBurst]:
    """Bursts for which the queue that overflowed need not have had room."""
    least = BURST_ROOM * _room(sending, ledger)
    return [burst for burst in sending.late_bursts or () if burst.packets >= least]


def _burst(sending: Sending, ledger: Ledger, losses: Sequence[Losses] | None, bound: float) -> str:
    """Words if packets that the sender let arrive at once may be why packets were lost."""
    lost, explained = ledger.total(Class.LOST), lost_by_bursts(sending, ledger, losses)
    if not explained or bound == 1 or explained < bound * lost:
        return ""
    bursts = _counted(sending, ledger)
    worst = max(bursts, key=lambda burst: burst.packets)
    begin_ns = sending.first_sent_mono_ns
    when = "" if begin_ns is None else f", {(worst.begin_mono_ns - begin_ns) / 1e9:.1f} s into it"
    more = len(bursts) - 1
    others = f" and {more:,} more such {noun(more, 'burst')}" if more else ""
    were = "packet was" if lost == 1 else "packets were"
    known = "at that time" if losses is not None else "at a time that is not known"
    return (
        f"the sender fell {worst.late_ns / 1e6:.0f} ms behind and then sent {worst.packets:,} "
        f"packets at once{when}{others}; {lost:,} {were} lost, {explained:,} of them {known}, "
        "and that can be the burst's doing"
    )


def _not_listed(sending: Sending, counted: Sequence[SenderBurst]) -> int:
    """Packets of bursts beside the largest; they count only if all of the largest do."""
    if len(counted) < len(sending.late_bursts or ()):
        return 0
    return max(0, (sending.late_burst_packets or 0) - sum(burst.packets for burst in counted))


def _room(sending: Sending, ledger: Ledger) -> int:
    """Packets that the overflowed queue holds; the smallest that may have overflowed, if it is not
    known which."""
    places = {a.place for a in ledger.accounts if a.kind is Class.LOST and a.packets}
    if sending.ring_packets is None:
        return QUEUE_PACKETS
    if places and all(place and place.waits_for is WaitsFor.THREAD for place in places):
        return sending.ring_packets
    return min(QUEUE_PACKETS, sending.ring_packets)


def losses_in_reach(
    bursts: Sequence[SenderBurst], lost: int, losses: Sequence[Losses] | None
) -> int:
    """How many of the lost packets the bursts can explain. What is lost where no counter has a
    time can have been lost in any of them."""
    windows = sorted(losses or (), key=lambda window: window.end_mono_ns)
    left = [window.packets for window in windows]
    untimed = max(0, lost - sum(left))
    explained = 0
    for burst in sorted(bursts, key=lambda burst: burst.end_mono_ns):
        can = burst.packets
        for n, window in enumerate(windows):
            if (
                window.end_mono_ns >= burst.begin_mono_ns
                and window.begin_mono_ns <= burst.end_mono_ns + AFTERMATH_NS
            ):
                takes = min(can, left[n])
                left[n] -= takes
                can -= takes
                explained += takes
        takes = min(can, untimed)
        untimed -= takes
        explained += takes
    return explained


def _held_back(sending: Sending) -> str:
    """Words about who had the sender's CPU time instead."""
    found = ""
    if sending.stolen_ratio is not None and sending.stolen_ratio >= STOLEN:
        found += f"; the hypervisor gave {sending.stolen_ratio * 100:.1f} % of its CPU to others"
    if (quota := sending.quota) is not None and _matters(quota, sending.duration_s):
        found += (
            f"; the CPU quota around nodrop itself ({quota.words}) held it back: "
            f"{quota.throttled_words}; raise it ({KNOBS})"
        )
    return found


def _matters(quota: Quota, duration_s: float | None) -> bool:
    return quota.throttled_s >= STOLEN * (duration_s or 0.0)
