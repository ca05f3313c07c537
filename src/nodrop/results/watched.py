"""An interval of `nodrop drops`: a line of its `--json`, and of drops.jsonl in a run directory that
`nodrop drops --record` wrote. `None` means not measured.
"""

from __future__ import annotations

from typing import Literal

from nodrop.ledger.quantities import Count, NotNegative, Packets, Signed
from nodrop.results.model import Model


class ThreadShare(Model):
    name: str
    ran: NotNegative
    """Part of the interval."""
    waited: NotNegative
    """Part of the interval in which it was ready, and its CPU had other work."""
    state: str
    """Letter in /proc: R, S, D, T …"""
    cpu: Count


class WatchedForecast(Model):
    """Multiples of the busiest traffic seen that fit before a ring overflows: a forecast, by the
    cost of the packets that waited (ledger/headroom.py)."""

    times: NotNegative
    bound: Literal["about", "at_least", "at_most"]
    """`at_least`: too few packets waited to tell their cost. `at_most`: the ring was fuller between
    two spells of looks than in any spell."""
    slots: Count
    """Packets that the ring holds."""
    larger_slots: Count
    larger_times: NotNegative | None
    """Multiple that fits into a ring of `larger_slots`; null: not known."""
    spells: Count
    """Spells of 250 looks a second that say it."""
    busiest_real_ns: Count
    """Begin of the busiest spell."""


Withheld = Literal["no_queue", "not_reproduced", "too_far", "lost"] | None


class WatchedLevel(Model):
    """Part of a capture's ring that was in use, of frames or blocks; of several rings the
    fullest."""

    ratio: NotNegative
    """Highest within the interval."""
    real_ns: Count
    highest_ratio: NotNegative
    """Highest since the watch began."""
    highest_real_ns: Count
    forecast: WatchedForecast | None
    withheld: Withheld
    """Reason for no forecast; lost: packets were, and the spells do not show why; null: there is
    one, or no spell has ended yet."""


class WatchedCapture(Model):
    """The books of one program on one port, since it was first seen; [low, high] = between two
    readings, null = not visible."""

    program: str | None
    pid: Count | None
    port: str
    namespace: Count
    """A number that stands for its network namespace (the inode of /proc/PID/net/packet)."""
    offered_packets: tuple[Signed, Signed] | None
    """Packets received by the port."""
    merged_packets: tuple[Signed, Signed]
    """Packets taken out by reassembly, ahead of the sockets."""
    arrived_packets: tuple[Signed, Signed] | None
    """Packets that came to its sockets, those included that were dropped."""
    dropped_packets: Packets | None
    dropped_now_packets: Packets | None
    """Packets dropped within this interval."""
    waiting_packets: tuple[Signed, Signed] | None
    """Packets in the capture's rings."""
    waited_before_packets: tuple[Signed, Signed] | None = None
    """Packets in its rings when the books began; they are not among those that arrived."""
    read_packets: tuple[Signed, Signed] | None
    residual_packets: tuple[Signed, Signed] | None
    closed: bool | None
    """Whether the residual holds 0; null: not visible, or its bounds lie too far apart to say."""
    at_least: bool
    """Arrived and dropped may be more: the program reads the counters, and does not say them."""
    oldest_ms: Count | None
    """Age of the oldest packet that waits."""
    overflow_ms: Count | None
    """Time until the first ring is full, if its reader stays away; null: no ring fills up."""
    stopped: bool | None
    """The program was stopped by SIGSTOP, a debugger or a frozen control group."""
    decoded_packets: Packets | None
    """Suricata's decoder.pkts, renewed every few seconds."""
    level: WatchedLevel | None = None
    """Null: it has no ring, or its ring is not visible."""
    since_start_arrived_packets: tuple[Signed, Signed] | None = None
    """Packets that came to its sockets since it opened them, dropped ones included; a lower bound
    if the program reads their counters itself."""
    since_start_dropped_packets: Packets | None = None
    ended_real_ns: Count | None = None
    """The first look that missed the program; null: it was there, and in older records."""
    unsaid_offered_packets: tuple[Signed, Signed] | None = None
    """Packets received by the port after these books and until the program was last seen: it ended,
    and did not say what became of them."""
    unsaid_dropped_packets: Packets = 0
    """Packets of those that were seen to be dropped, at the least."""
    threads: list[ThreadShare]


class WatchedPlace(Model):
    """A place that has lost something since the watch began."""

    place: str
    where: str
    counter: str
    rate_pps: NotNegative
    """Rate within this interval."""
    total: Packets
    at_least: bool = False
    """More may have died there: a program reads its counters itself, or ended with them."""
    worst_pps: NotNegative
    worst_real_ns: Count
    first_real_ns: Count | None
    last_real_ns: Count | None
    bursts: Count
    """Intervals with loss that followed one without."""
    why: str
    """Reason of the last loss."""
    do: str
    """The command that changes it, or words."""
    most_why: str = ""
    """The cause under which most of `total` was lost, at its worst; empty: not known."""
    most_do: str = ""

    @property
    def cause(self) -> str:
        return self.most_why or self.why

    @property
    def remedy(self) -> str:
        return self.most_do or self.do


class Hidden(Model):
    what: str
    needs: str
    """The right or counter that would show it."""
    why: str


Blind = Literal[
    "no_program",
    "down",
    "no_carrier",
    "stopped",
    "ring_not_visible",
    "counters_read",
    "frames_cut",
]


class BlindPort(Model):
    """A port that was blind in a part of the watch."""

    port: str
    why: Blind
    since_real_ns: Count
    until_real_ns: Count | None = None
    """Null: it still is."""


class WatchedInterval(Model):
    format: Literal[1] = 1
    real_ns: Count
    """End of the interval, by the clock of the host."""
    interval_s: NotNegative
    captures: list[WatchedCapture]
    ended: list[WatchedCapture]
    """Captures that ended since the watch began: their last books before they fell silent."""
    places: list[WatchedPlace]
    """The worst now first."""
    not_for_us_packets: Packets | None
    """rx_dropped of the ports within the interval, which is no loss."""
    notes: list[str]
    blind: list[BlindPort]
    not_visible: list[Hidden]
    look_ns: Count
    """How long the look took."""

    @property
    def began_real_ns(self) -> int:
        return self.real_ns - round(self.interval_s * 1e9)
