"""Rings that a Suricata polls: below DPDK's driver af-packet a socket of the kernel, which neither
the driver nor Suricata counts; of a device that DPDK drives itself, its queues; of AF_XDP the ring
of its socket."""

from __future__ import annotations

import dataclasses
import os
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from nodrop.errors import TrialFailed
from nodrop.ledger.outcome import Problem, Reason
from nodrop.testbed.hosts.api import Json
from nodrop.testbed.setups.api import Process
from nodrop.testbed.suts.api import SutCounters
from nodrop.testbed.suts.outside import OutsideSockets
from nodrop.testbed.suts.suricata import counters, dpdk, log
from nodrop.testbed.suts.suricata.capture import CaptureSettings, SocketRing, capture_threads
from nodrop.testbed.suts.suricata.config import ControlSocket
from nodrop.testbed.suts.suricata.running import OwnCounters, Rest

FROM_OUTSIDE = "the kernel's own counters of the driver's socket (BPF iterator)"


def frame_room(rings: Sequence[SocketRing]) -> Json | None:
    """The longest frame that its ring takes whole (packets.reassembly.Room). What the kernel puts
    together from fragments may be longer, and is cut: the driver looks at no length but the cut
    one."""
    slots = [ring.frame_bytes for ring in rings if ring.frame_bytes is not None]
    if not slots or len(slots) < len(rings):
        return None
    return {"bytes": min(slots) - dpdk.BEFORE_FRAME_BYTES, "knob": ""}


class Emptied:
    """Rest of a ring: nothing waits in it at two looks in a row. `waiting` looks; None: it could
    not."""

    def __init__(self, waiting: Callable[[], int | None]) -> None:
        self._waiting = waiting
        self.since_s: float | None = None
        self.worked_s: float | None = None

    def __call__(self) -> bool:
        now_s, waiting = time.monotonic(), self._waiting()
        if waiting is None or waiting > 0:
            self.worked_s = now_s if waiting else self.worked_s
            self.since_s = None
            return False
        if self.since_s is None:
            self.since_s = now_s
            return False
        return True


class RingBelowDriver:
    """An Intake (running.py) that is read from outside."""

    sockets = True
    rests_alone = False
    sources: Mapping[str, str] = {
        "captured_packets": f"tp_packets + tp_drops, {FROM_OUTSIDE}",
        "dropped_ring_full_packets": f"tp_drops, {FROM_OUTSIDE}",
    }

    def __init__(self, process: Process, asked: CaptureSettings) -> None:
        (self._port,) = asked.interfaces
        self._sockets = OutsideSockets(process, asked.interfaces)
        self._own_drops: int | None = None

    def must_be_readable(self) -> None:
        seen = self._sockets.look()
        if seen is None or seen.arrived is None:
            why = seen.missing if seen is not None else "it has ended"
            raise TrialFailed(
                "the counters of the ring below DPDK's driver cannot be read, and Suricata has "
                f"none of it: {why or 'it has no capture socket on its port'}",
                hint='run nodrop as root, or set sut.capture = "af-packet"',
                reason=Reason.SUT_NOT_READY,
            )

    def rest(self) -> Rest:
        return Emptied(self._waiting)

    def _waiting(self) -> int | None:
        seen = self._sockets.look()
        return None if seen is None else seen.waiting

    def per_port(self, control: ControlSocket) -> counters.PerPort:
        self._own_drops = control.command("iface-stat", iface=dpdk.DEVICE)["drop"]
        self._sockets.look()
        return self._counted()

    def _counted(self) -> counters.PerPort:
        seen = self._sockets.seen
        if seen is None or seen.arrived is None or seen.dropped is None:
            raise TrialFailed("the ring below DPDK's driver was not read", reason=Reason.NOT_READ)
        counted = {
            "captured_packets": seen.arrived,
            "dropped_ring_full_packets": seen.dropped,
        }
        return {self._port: counted}

    def joined(self, found: SutCounters, threads: Sequence[str]) -> SutCounters:
        """Counters with those of the ring as the one thread's that empties it."""
        per_port = self._counted()
        ring = per_port[self._port]
        # Suricata's counters have the whole name of the port, which the thread's own has not.
        named = dict(found.per_thread)
        decodes = [name for name, own in named.items() if "decoded_packets" in own]
        for name, thread in zip(decodes, capture_threads(threads), strict=False):
            named[thread] = {**named.pop(name), **ring}
        return dataclasses.replace(
            counters.of_sockets(found, per_port),
            own_dropped_packets=self._own_drops,
            cut_packets=None,  # its counter is of the events of af-packet
            per_thread=named,
        )

    def before_end(self) -> None:
        self._sockets.look()

    def at_exit(self, found: SutCounters, lines: Sequence[log.LogLine]) -> SutCounters:
        """Captured and dropped as the socket had them just before the end."""
        said = log.exit_counts(lines, "dpdk").get(dpdk.DEVICE)
        if said is None:
            return found
        found = dataclasses.replace(found, own_dropped_packets=said["dropped_ring_full_packets"])
        taken = said["captured_packets"]
        captured, dropped = found.captured_packets or 0, found.dropped_ring_full_packets or 0
        if taken == captured - dropped:
            return found
        words = (
            f"Suricata says that DPDK gave it {taken:,} packets, and {captured - dropped:,} left "
            "the ring below DPDK's driver"
        )
        problem = Problem(code=Reason.COUNTERS_DISAGREE, words=words)
        return dataclasses.replace(found, problems=(*found.problems, problem))

    def frame_room(self, rings: Sequence[SocketRing]) -> Json | None:
        return frame_room(rings)

    def close(self) -> None:
        self._sockets.close()


COUNTS_EVERY_S = 1.0
"""A worker that takes packets reads the device's counters at each new second, and no other does."""


class Unmoved:
    """Rest of a device: its counters stand still for longer than a worker at work would let them.
    It may have worked on for as long after they last moved."""

    worked_s: float | None = None

    def __init__(self, device: DeviceQueues) -> None:
        self._device = device
        self._seen: counters.PerPort | None = None
        self.since_s: float | None = None

    def __call__(self) -> bool:
        now_s, seen, before = time.monotonic(), self._device.seen, self._seen
        self._seen = seen
        if seen is None or seen != before or self.since_s is None:
            self.since_s = now_s + COUNTS_EVERY_S
        return now_s > self.since_s + COUNTS_EVERY_S


class DeviceQueues(OwnCounters):
    """Queues of a device that DPDK drives itself. Suricata has ethdev's counters of it: ipackets,
    and imissed, ierrors and rx_nombuf as its drops (DPDKDumpCounters). It reads them as packets
    come, and at its end."""

    sockets = False
    rests_alone = True
    seen: counters.PerPort | None = None

    def rest(self) -> Rest:
        return Unmoved(self)

    def per_port(self, control: ControlSocket) -> counters.PerPort:
        self.seen = super().per_port(control)
        return self.seen

    def frame_room(self, rings: Sequence[SocketRing]) -> Json | None:
        del rings
        return None


class XdpQueue(OwnCounters):
    """The ring of an AF_XDP socket, of which Suricata has the counters. Its worker never sleeps, so
    only the ring itself says when nothing is left: producer and consumer in the memory that the
    kernel shares with it (struct xdp_ring), read from outside."""

    def rest(self) -> Rest:
        return Emptied(self._waiting)

    def _waiting(self) -> int | None:
        program = self._process.inside()
        try:
            return None if program is None else xdp_waiting(Path(f"/proc/{program.pid}"))
        except OSError:
            return None  # it has ended, or is another user's


AF_XDP, SOL_XDP, XDP_MMAP_OFFSETS = 44, 283, 1


def xdp_waiting(process: Path) -> int:
    """Packets in the rings of its AF_XDP sockets that it has not given back. OSError if it has
    none."""
    places = xdp_rings((process / "maps").read_text())
    if not places:
        raise FileNotFoundError(process / "maps")
    memory = os.open(process / "mem", os.O_RDONLY)
    try:
        return sum(_between(memory, place) for place in places)
    finally:
        os.close(memory)


def xdp_rings(maps: str) -> Sequence[int]:
    """Addresses of receive rings in a process's maps: of a socket, at the offset
    XDP_PGOFF_RX_RING, which is 0."""
    rows = [line.split(maxsplit=5) for line in maps.splitlines()]
    return [
        int(row[0].partition("-")[0], 16)
        for row in rows
        if row[5:] and row[5].startswith("socket:[") and int(row[2], 16) == 0
    ]


def _between(memory: int, place: int) -> int:
    """The consumer first: what comes between the two reads counts as waiting."""
    producer_at, consumer_at = _xdp_offsets()
    consumer, producer = (
        struct.unpack("=I", os.pread(memory, 4, place + at))[0] for at in (consumer_at, producer_at)
    )
    return int(producer - consumer) % (1 << 32)


def _xdp_offsets() -> tuple[int, int]:
    """Offsets of producer and consumer in a receive ring of this kernel."""
    with socket.socket(AF_XDP, socket.SOCK_RAW) as asked:
        said = asked.getsockopt(SOL_XDP, XDP_MMAP_OFFSETS, 128)
    producer, consumer = struct.unpack_from("=QQ", said)
    return producer, consumer
