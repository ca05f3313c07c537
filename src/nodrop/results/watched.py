"""An interval of `nodrop drops`: a line of its `--json`, and of drops.jsonl in a run directory that
`nodrop drops --record` wrote."""

from __future__ import annotations

from typing import Literal

from nodrop.results.model import Count, Model, NotNegative, Packets, Signed


class ThreadShare(Model):
    name: str
    ran: NotNegative
    """Part of the interval."""
    waited: NotNegative
    """Part of the interval in which it was ready, and its CPU had other work."""
    state: str
    """Letter in /proc: R, S, D, T …"""
    cpu: Count


class WatchedCapture(Model):
    """The books of one program on one port, since it was first seen; [low, high] = between two
    readings, null = not visible."""

    program: str | None
    pid: Count | None
    port: str
    namespace: Count
    """Number of its network namespace."""
    offered_packets: tuple[Signed, Signed] | None
    """Received by the port."""
    merged_packets: tuple[Signed, Signed]
    """Taken out by reassembly, ahead of the sockets."""
    arrived_packets: tuple[Signed, Signed] | None
    """At its sockets, those included that were dropped."""
    dropped_packets: Packets | None
    dropped_now_packets: Packets | None
    """Within this interval."""
    waiting_packets: tuple[Signed, Signed] | None
    """In its rings."""
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
    """By SIGSTOP, a debugger or a frozen control group."""
    decoded_packets: Packets | None
    """Suricata's decoder.pkts, renewed every few seconds."""
    threads: list[ThreadShare]


class WatchedPlace(Model):
    """A place that has lost something since the watch began."""

    place: str
    where: str
    counter: str
    rate_pps: NotNegative
    """Within this interval."""
    total: Packets
    worst_pps: NotNegative
    worst_real_ns: Count
    first_real_ns: Count | None
    last_real_ns: Count | None
    bursts: Count
    """Intervals with loss that followed one without."""
    why: str
    do: str
    """The command that changes it, or words."""


class Hidden(Model):
    what: str
    needs: str
    """The right or counter that would show it."""
    why: str


class WatchedInterval(Model):
    format: Literal[1] = 1
    real_ns: Count
    """When it ended, by the clock of the host."""
    interval_s: NotNegative
    captures: list[WatchedCapture]
    ended: list[WatchedCapture]
    """Captures that ended since the watch began: their last books before they fell silent."""
    places: list[WatchedPlace]
    """The worst now first."""
    not_for_us_packets: Packets | None
    """rx_dropped of the ports within the interval, which is no loss."""
    notes: list[str]
    not_visible: list[Hidden]
    look_ns: Count
    """How long the look took."""
