"""A Suricata whose worker polls its ring by DPDK and never sleeps. What came to the ring, and what
was lost there, is read from outside: neither DPDK's driver nor Suricata counts it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

from nodrop.errors import LabProblem, TrialFailed
from nodrop.ledger.hops import Problem, Reason
from nodrop.testbed.hosts.api import Json
from nodrop.testbed.hosts.control_groups import SocketWatch, Watched
from nodrop.testbed.suts.api import Readiness, SutCounters
from nodrop.testbed.suts.suricata import counters, dpdk, log
from nodrop.testbed.suts.suricata.capture import Ring, capture_threads
from nodrop.testbed.suts.suricata.config import STATS_LOG, ControlSocket
from nodrop.testbed.suts.suricata.running import Rest, RunningSuricata

FROM_OUTSIDE = "the kernel's own counters of the driver's socket (BPF iterator)"


def frame_room(rings: Sequence[Ring]) -> Json | None:
    """The longest frame that its ring takes whole (packets.reassembly.Room). What the kernel puts
    together from fragments may be longer, and is cut: the driver looks at no length but the cut
    one."""
    slots = [ring.frame_bytes for ring in rings if ring.frame_bytes is not None]
    if not slots or len(slots) < len(rings):
        return None
    return {"bytes": min(slots) - dpdk.BEFORE_FRAME_BYTES, "knob": ""}


class Emptied:
    """Nothing waits in the ring at two looks in a row."""

    def __init__(self, running: PollingSuricata) -> None:
        self._running = running
        self.since_s: float | None = None
        self.worked_s: float | None = None

    def __call__(self) -> bool:
        now_s, seen = time.monotonic(), self._running.look()
        if seen is None or seen.waiting is None or seen.waiting > 0:
            self.worked_s = now_s if seen is not None and seen.waiting else self.worked_s
            self.since_s = None
            return False
        if self.since_s is None:
            self.since_s = now_s
            return False
        return True


class PollingSuricata(RunningSuricata):
    _watch: SocketWatch | None = None
    _seen: Watched | None = None
    _own_drops: int | None = None

    # --- the ring below the driver --------------------------------------------------------------

    def look(self) -> Watched | None:
        """At the driver's socket, from outside. None if Suricata has ended."""
        program = self.process.inside()
        if program is None or self.process.poll() is not None:
            return None
        if self._watch is None:
            self._watch = SocketWatch(program, tuple(self._env.capture_interfaces))
        try:
            self._seen = self._watch.look()
        except LabProblem:
            if self.process.poll() is not None:
                return None
            raise
        return self._seen

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def wait_ready(self, *, timeout_s: float) -> Readiness:
        """Beside what any Suricata must show: the counters of the driver's socket can be read."""
        found = super().wait_ready(timeout_s=timeout_s)
        seen = self.look()
        if seen is None or seen.arrived is None:
            why = seen.missing if seen is not None else "it has ended"
            raise TrialFailed(
                "the counters of the ring below DPDK's driver cannot be read, and Suricata has "
                f"none of it: {why or 'it has no capture socket on its port'}",
                hint='run nodrop as root, or set sut.capture = "af-packet"',
                reason=Reason.SUT_NOT_READY,
            )
        return found

    # --- counters -------------------------------------------------------------------------------

    def _rest(self) -> Rest:
        return Emptied(self)

    def _per_port(self, control: ControlSocket) -> counters.PerPort:
        self._own_drops = control.command("iface-stat", iface=dpdk.DEVICE)["drop"]
        self.look()
        return self._of_ring()

    def _of_ring(self) -> counters.PerPort:
        seen = self._seen
        if seen is None or seen.arrived is None or seen.dropped is None:
            raise TrialFailed("the ring below DPDK's driver was not read", reason=Reason.NOT_READ)
        port = self._asked.interfaces[0]
        counted = {
            "captured_packets": seen.arrived,
            "dropped_ring_full_packets": seen.dropped,
        }
        return {port: counted}

    def _read(self, totals: Mapping[str, Any], source: str) -> SutCounters:
        """With the ring's counters as those of the one thread that empties it."""
        found = super()._read(totals, source)
        if self._seen is None or self._seen.arrived is None:
            return found
        per_port = self._of_ring()
        ring = per_port[self._asked.interfaces[0]]
        # Its counters have the whole name of the port, which the thread's own has not.
        threads = dict(found.per_thread)
        decodes = [name for name, own in threads.items() if "decoded_packets" in own]
        for name, thread in zip(decodes, capture_threads(self._threads), strict=False):
            threads[thread] = {**threads.pop(name), **ring}
        return dataclasses.replace(
            counters.of_sockets(found, per_port),
            own_dropped_packets=self._own_drops,
            cut_packets=None,  # its counter is of the events of af-packet
            per_thread=threads,
            sources=_sources(found),
        )

    def _final(self) -> SutCounters:
        """Decoded from the last stats record; captured and dropped as the socket had them just
        before the end."""
        stats = counters.last_stats(self.process.fetch(STATS_LOG))
        said = log.exit_counts(self._said(), "dpdk").get(dpdk.DEVICE)
        if stats is None:
            raise TrialFailed(f"Suricata left no final counters in {STATS_LOG}")
        if said is not None:
            self._own_drops = said["dropped_ring_full_packets"]
        found = self._read(stats, f"{STATS_LOG} stats")
        if said is None:
            return found
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

    def counted(self) -> SutCounters:
        found = super().counted()
        return dataclasses.replace(found, sources=_sources(found))

    def finish(self, *, timeout_s: float) -> SutCounters:
        self._must_live()
        self.look()
        self.close()
        return super().finish(timeout_s=timeout_s)

    def facts(self) -> Json:
        return {
            **super().facts(),
            "frame_room": frame_room(self._rings),
        }


def _sources(found: SutCounters) -> Mapping[str, str]:
    return {
        **found.sources,
        "captured_packets": f"tp_packets + tp_drops, {FROM_OUTSIDE}",
        "dropped_ring_full_packets": f"tp_drops, {FROM_OUTSIDE}",
    }
