"""One launched Suricata: ready when it listens, at rest when its books balance, then its end, by
its status, its log and its stderr."""

from __future__ import annotations

import dataclasses
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from nodrop.errors import LabProblem, TrialFailed
from nodrop.ledger.outcome import Reason
from nodrop.testbed.hosts.api import Json, LabPort
from nodrop.testbed.hosts.processes import PacketSocket
from nodrop.testbed.hosts.waiting import looks
from nodrop.testbed.setups.api import Env, Process
from nodrop.testbed.suts.api import (
    NOTHING_SAID,
    Drained,
    Readiness,
    SinceMark,
    SutCounters,
    end_words,
)
from nodrop.testbed.suts.suricata import counters, log
from nodrop.testbed.suts.suricata.capture import (
    CaptureSettings,
    Effective,
    SocketRing,
    capture_threads,
    frame_room,
    parse_ss,
)
from nodrop.testbed.suts.suricata.config import (
    ENGINE_LOG,
    SOCKET,
    STATS_LOG,
    SYNC_S,
    ControlSocket,
    RefusedBySuricata,
)
from nodrop.untrusted.folder import read_end

POLL_S = 0.01
DRAIN_POLL_S = 0.05
DEATH_GRACE_S = 0.5
CONTROL_TIMEOUT_S = 5.0
COUNT_TIMEOUT_S = 30.0
LIVE_TIMEOUT_S = 0.25
"""A SUT that stands still must not hold up who waits for the sender."""
MOST_NAMED_RULES = 20
KERNEL_LAG_S = 1.0
"""Time between two readings of its socket's counters by a capture thread."""

IDLE_RATIO = 0.1
"""Share of one core below which Suricata counts as asleep. Its own housekeeping, between two looks,
takes some 1 %."""
KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
_HINTS: Sequence[tuple[str, str]] = (
    ("Operation not permitted", "capturing needs CAP_NET_RAW in this network namespace"),
    ("No such device", "the capture interface does not exist where Suricata runs"),
    ("Cannot allocate memory", "the ring or the rules do not fit into the memory limit"),
    ("Failed to parse configuration", "see sut.config and sut.overrides"),
)


class Rest(Protocol):
    """A question asked at every look: whether nothing is left for the SUT to do."""

    since_s: float | None
    worked_s: float | None

    def __call__(self) -> bool: ...


class ThreadsAsleep:
    """A rest that is known by sleeping threads, asked at every look.

    A frame in a ring wakes its thread at once, and a packet between two threads keeps one of them
    running: if every thread sleeps at each look, and has hardly run since the last, nothing is
    left. That is known seconds before Suricata's counters show it: it asks the kernel once a
    second, and its threads publish every 3 s.

    Frames in an open block of TPACKET_V3 wake no thread: sleep must outlast its timeout.
    """

    def __init__(self, process: Process, *, at_least_s: float) -> None:
        self._process = process
        self._at_least_s = at_least_s
        self._seen: tuple[float, int] | None = None
        self._awake = 0
        self.since_s: float | None = None
        """The time since which it has slept; None = it does not."""
        self.worked_s: float | None = None
        """The last time at which it was at work: awake at two looks in a row, which housekeeping is
        not."""

    def __call__(self) -> bool:
        now_s, inside = time.monotonic(), self._process.look()
        before, self._seen = self._seen, None
        if inside is None or inside.cpu_ns is None or inside.stopped:
            self._woken(now_s)
            return False
        self._seen = time.monotonic(), inside.cpu_ns
        if before and inside.cpu_ns - before[1] >= IDLE_RATIO * (now_s - before[0]) * 1e9:
            self._woken(now_s)
        else:
            self._awake = 0
        if self.since_s is None:
            self.since_s = self._seen[0]
            return False
        return now_s - self.since_s >= self._at_least_s

    def _woken(self, now_s: float) -> None:
        self.since_s, self._awake = None, self._awake + 1
        if self._awake > 1:
            self.worked_s = now_s


class Intake(Protocol):
    """The place that its capture threads take packets from: who counts them there, and when nothing
    is left."""

    sockets: bool
    """Whether its threads take packets from sockets of the kernel."""
    rests_alone: bool
    """Whether its rest means that nothing is left, whatever the counters say by then."""
    sources: Mapping[str, str]
    """Counters that replace those which Suricata names, by the field of SutCounters."""

    def must_be_readable(self) -> None:
        """TrialFailed if it runs and what came cannot be read."""
        ...

    def rest(self) -> Rest: ...
    def per_port(self, control: ControlSocket) -> counters.PerPort: ...
    def joined(self, found: SutCounters, threads: Sequence[str]) -> SutCounters:
        """Decoded packets, with what Suricata does not count itself."""
        ...

    def before_end(self) -> None: ...
    def at_exit(self, found: SutCounters, lines: Sequence[log.LogLine]) -> SutCounters:
        """Final counters. `found`: from the last stats record; `lines`: the whole log."""
        ...

    def frame_room(self, rings: Sequence[SocketRing]) -> Json | None: ...
    def close(self) -> None: ...


class OwnCounters:
    """An Intake that Suricata itself counts."""

    sockets = True
    rests_alone = False
    sources: Mapping[str, str] = {}

    def __init__(self, process: Process, asked: CaptureSettings) -> None:
        self._process, self._asked = process, asked

    def must_be_readable(self) -> None:
        pass

    def rest(self) -> Rest:
        return ThreadsAsleep(self._process, at_least_s=self._asked.retire_s)

    def per_port(self, control: ControlSocket) -> counters.PerPort:
        said = {i: control.command("iface-stat", iface=i) for i in self._asked.interfaces}
        return {
            port: counters.of_port(one["pkts"], one["drop"], self._asked.capture)
            for port, one in said.items()
        }

    def joined(self, found: SutCounters, threads: Sequence[str]) -> SutCounters:
        del threads
        return found

    def before_end(self) -> None:
        pass

    def at_exit(self, found: SutCounters, lines: Sequence[log.LogLine]) -> SutCounters:
        """The exit line is written later than the last stats, after the sockets are closed. At rest
        both say the same (a test proves it); if packets still came, the difference stays in the
        books as a residual."""
        at_exit = log.exit_counts(lines, self._asked.capture)
        if not at_exit:
            return found
        if self._asked.capture == "pcap":
            found = counters.without_captured_by_thread(found)
        said = f'{ENGINE_LOG} "device: packets: n, drops: n"'
        return dataclasses.replace(
            counters.of_sockets(found, at_exit),
            sources={
                **found.sources,
                "captured_packets": f"{said}, packets",
                "dropped_ring_full_packets": f"{said}, drops",
            },
        )

    def frame_room(self, rings: Sequence[SocketRing]) -> Json | None:
        return frame_room(rings)

    def close(self) -> None:
        pass


class RunningSuricata(SinceMark):
    def __init__(self, process: Process, env: Env, asked: CaptureSettings, intake: Intake) -> None:
        self.process = process
        self._env = env
        self._asked = asked
        self._intake = intake
        self._log = log.EngineLog(process.work / ENGINE_LOG)
        self._threads: tuple[str, ...] = ()
        self._rings: tuple[SocketRing, ...] = ()
        self._at_rest = SutCounters(
            captured_packets=0, dropped_ring_full_packets=0, decoded_packets=0
        )
        self._wanted: int | None = None
        self._rested: SutCounters | None = None

    def _said(self) -> Sequence[log.LogLine]:
        self.process.fetch(ENGINE_LOG)
        return self._log.lines()

    # --- ready ----------------------------------------------------------------------------------

    def wait_ready(self, *, timeout_s: float) -> Readiness:
        for _ in looks(timeout_s, every_s=POLL_S):
            if (sockets := self._listening()) is not None:
                break
        else:
            raise self._late(timeout_s)
        self._intake.must_be_readable()
        ready_mono_ns = time.monotonic_ns()
        self._rings = self._read_rings(sockets)
        return Readiness(
            ready_mono_ns=ready_mono_ns,
            phases_s=self._phases(ready_mono_ns),
            evidence={
                "threads": self._threads,
                "sockets": [dataclasses.asdict(s) for s in sockets],
                "rings": [dataclasses.asdict(r) for r in self._rings],
            },
        )

    def _listening(self) -> tuple[PacketSocket, ...] | None:
        """The running capture sockets, one per capture thread, once the engine has started."""
        self._must_live()
        lines = self._said()
        self._must_have_rules(lines)
        if log.started(lines) is None:
            return None
        inside = self.process.look()
        if inside is None:
            return None  # just died; the next look says how
        self._threads, sockets = inside.threads, inside.packet_sockets
        wanted = len(capture_threads(self._threads))
        if wanted == 0:
            raise TrialFailed(
                "Suricata started without a capture thread",
                hint=f"its threads are {', '.join(self._threads)}; see {ENGINE_LOG}",
            )
        if self._asked.capture == "af-xdp":
            return () if self._xdp() else None
        if not self._intake.sockets:
            return ()
        running = tuple(s for s in sockets if s.running and s.interface_index > 0)
        return running if len(running) >= wanted else None

    def _xdp(self) -> bool:
        """Suricata's program is attached: an XDP socket is in no table that the node reads."""
        port = LabPort(host=self._env.host, name=self._asked.interfaces[0])
        return port.counters()["links"][port.name].get("xdp") is not None

    def _must_have_rules(self, lines: Sequence[log.LogLine]) -> None:
        """Refuses a SUT for which no rule loads or, if the user wants it, not each that was
        named."""
        said = log.rules_loaded(lines)
        if said is None and not (self._asked.names_rules and log.started(lines)):
            return  # not read yet, or none to read
        bad = self._bad_rules(lines)
        strict = self._asked.rules_errors == "error"
        if words := log.rules_refused(said, bad, strict=strict):
            raise TrialFailed(words, hint=log.mend(said), reason=Reason.NO_RULES)

    def _bad_rules(self, lines: Sequence[log.LogLine]) -> Sequence[log.BadRule]:
        return log.bad_rules(lines, self._asked.rule_names, self._asked.rules_not_utf8)

    def _late(self, timeout_s: float) -> TrialFailed:
        lines = self._said()
        if log.started(lines) is None:
            last = lines[-1].message if lines else "nothing"
            missing = f"has not started its engine (its last word: {short(last)})"
        else:
            missing = "has started, but not all of its capture sockets are open"
        return TrialFailed(
            f"Suricata {missing} after {timeout_s:g} s",
            hint="give it longer: --set measure.ready_timeout_s=600; mpm-algo = ac loads rules "
            "faster than hyperscan",
            reason=log.reason_before_start(lines),
        )

    def _phases(self, ready_mono_ns: int) -> dict[str, float]:
        lines = self._said()
        before_s = sum(self.process.phases_s.values())
        turns = [self.process.launched_mono_ns + int(before_s * 1e9)]
        turns += [m.seen_mono_ns for m in (lines[0], log.rules_end(lines)) if m]
        turns.append(ready_mono_ns)
        names = ("exec", "load_rules", "open_capture")
        if len(turns) != len(names) + 1:
            return {}
        spans = zip(names, turns, turns[1:], strict=False)
        own = {name: max(0, b - a) / 1e9 for name, a, b in spans}
        return {**self.process.phases_s, **own}

    def _read_rings(self, sockets: Sequence[PacketSocket]) -> tuple[SocketRing, ...]:
        try:
            done = self._env.host.run(["ss", "-0", "-e", "-n"], check=False)
        except LabProblem:
            return ()  # evidence only; a host without iproute2 can still measure
        return parse_ss(done.stdout, [s.inode for s in sockets])

    # --- while it runs --------------------------------------------------------------------------

    def drain(self, *, expected_packets: int | None, timeout_s: float) -> Drained:
        """Waits until the threads sleep, if all that was sent has been delivered: the exit record
        says what was captured, and shows anything left behind as a residual."""
        wanted = None if expected_packets is None else expected_packets + self._base_packets()
        self._wanted, self._rested = wanted, None
        unchanged_since, last, sync_s = time.monotonic(), None, self._asked.full_sync_s
        delivered = wanted is not None and (self._env.delivers_at_once or self._intake.rests_alone)
        asleep = self._intake.rest()
        all_captured = False
        with self._control() as control:
            for _ in looks(timeout_s, every_s=DRAIN_POLL_S):
                # Before it is asked anything: the thread that answers is awake.
                rests = (all_captured or delivered) and asleep()
                # The sockets' figures are at most 1 s old, the decoder's 4 s.
                found = counters.of_sockets(*self._counted(control))
                reading = captured, dropped, decoded = _packets(found)
                now = time.monotonic()
                if reading != last:
                    unchanged_since, last = now, reading
                balanced = captured - dropped == decoded
                all_captured = captured == wanted
                complete = (all_captured and balanced) or (rests and (all_captured or delivered))
                if complete or (balanced and now - unchanged_since >= sync_s):
                    self._at_rest = found
                    # Counters come late, never early: what they say now was so before.
                    slept_s, worked_s = asleep.since_s if rests else None, asleep.worked_s
                    rested_s = unchanged_since if slept_s is None else slept_s
                    return Drained(
                        rested_mono_ns=int(rested_s * 1e9),
                        busy_mono_ns=None if worked_s is None else int(worked_s * 1e9),
                    )
        raise TrialFailed(
            f"Suricata's counters do not come to rest within {timeout_s:g} s: "
            f"captured {captured}, dropped {dropped}, decoded {decoded}",
            hint="foreign packets on the link, or a Suricata far behind its ring",
            reason=Reason.NOT_DRAINED,
        )

    def counted(self) -> SutCounters:
        """Final if they agree: the sockets have been asked for all that was delivered, and every
        thread has handed over what it decoded of it. If they never do, after the longest time that
        a counter can come late (measured: 1 s for a socket's, 3 s and one interval of the stats
        thread for a decoder's)."""
        unchanged_since = time.monotonic()
        last: tuple[int, int, int | None] | None = None
        agreed_since: float | None = None
        with self._control() as control:
            for _ in looks(COUNT_TIMEOUT_S, every_s=DRAIN_POLL_S):
                found, per_port = self._counted(control)
                sockets = counters.of_sockets(found, per_port)
                reading = captured, dropped, _ = _packets(sockets)
                now = time.monotonic()
                if reading != last:
                    unchanged_since, last = now, reading
                decoded = captured - dropped == found.decoded_packets
                agree = decoded and found.dropped_ring_full_packets == dropped
                if not (agree and captured == self._wanted):
                    agreed_since = None
                elif agreed_since is None:
                    agreed_since = now
                settled = agreed_since is not None and now - agreed_since >= self._settle_s()
                if settled or now - unchanged_since >= self._asked.full_sync_s:
                    break
            else:
                raise TrialFailed(
                    f"Suricata's counters are not at rest after {COUNT_TIMEOUT_S:g} s: "
                    f"captured {captured}, dropped {dropped}, decoded {found.decoded_packets}",
                    reason=Reason.NOT_DRAINED,
                )
        self._at_rest = sockets
        self._rested = self._sourced(counters.at_rest(found, per_port, agree=agree))
        return self._since_mark(self._rested)

    def _settle_s(self) -> float:
        """Threads behind the one that captures hand over their counters at the same tick, but the
        stats thread may have gathered between the two."""
        alone = self._asked.runmode in ("workers", "single")
        return 0.0 if alone else self._asked.full_sync_s - SYNC_S

    def mark(self) -> None:
        """The kernel's counters as of the drain, which are fresher than those of dump-counters."""
        if self._rested is not None:
            self._base = self._rested
            return
        self._base = dataclasses.replace(
            counters.of_sockets(
                self._now(CONTROL_TIMEOUT_S) or NOTHING_SAID, self._at_rest.per_port
            ),
            decoded_packets=self._at_rest.decoded_packets,
        )

    def _control(self, timeout_s: float = CONTROL_TIMEOUT_S) -> ControlSocket:
        return ControlSocket(lambda: self.process.connect(SOCKET, timeout_s=timeout_s))

    def _counted(self, control: ControlSocket) -> tuple[SutCounters, counters.PerPort]:
        """Counters that the threads have handed over, and counters of the sockets by port."""
        self._must_live()
        try:
            per_port = self._intake.per_port(control)
            totals = _or_nothing_yet(control)
        except TrialFailed as error:
            raise self._why_silent(error) from error
        return self._read(totals, "dump-counters"), per_port

    def _read(self, totals: Mapping[str, Any], source: str) -> SutCounters:
        """libpcap puts a tag back that the kernel took off."""
        found = self._intake.joined(counters.from_stats(totals, source=source), self._threads)
        return self._sourced(
            dataclasses.replace(found, counts_wire_bytes=self._asked.capture != "af-packet")
        )

    def _sourced(self, found: SutCounters) -> SutCounters:
        return dataclasses.replace(found, sources={**found.sources, **self._intake.sources})

    def live(self) -> SutCounters | None:
        return None if self.process.quiet else self._now(LIVE_TIMEOUT_S)

    def _now(self, timeout_s: float) -> SutCounters | None:
        try:
            with self._control(timeout_s) as control:
                totals = _or_nothing_yet(control)
                per_port = self._intake.per_port(control)
        except TrialFailed:
            return None
        found = dataclasses.replace(
            counters.of_sockets(self._read(totals, "dump-counters"), per_port),
            lag_s=KERNEL_LAG_S,
            per_thread_lag_s=self._asked.full_sync_s,
        )
        return self._since_mark(found)

    # --- the end --------------------------------------------------------------------------------

    def finish(self, *, timeout_s: float) -> SutCounters:
        self._must_live()
        if self._stands_still():
            # It would sit out SIGTERM and report nothing.
            self.process.signal(signal.SIGKILL)
            raise stopped()
        self._intake.before_end()
        self._intake.close()
        status = self.process.stop(timeout_s=timeout_s)
        if status in KILLED:
            raise TrialFailed(f"Suricata did not end within {timeout_s:g} s of SIGTERM: killed")
        if status != 0:
            raise died(self.process, self._said(), status, during="badly")
        final = self._final()
        return self._since_mark(final)

    def _final(self) -> SutCounters:
        """Decoded from the last stats record; captured and dropped as they are counted there."""
        stats, lines = counters.last_stats(self.process.fetch(STATS_LOG)), self._said()
        if stats is None and not log.exit_counts(lines, self._asked.capture):
            raise TrialFailed(
                f"Suricata left no final counters, neither in {STATS_LOG} nor in {ENGINE_LOG}",
                hint="overrides may have switched them off",
            )
        final = self._intake.at_exit(self._read(stats or {}, f"{STATS_LOG} stats"), lines)
        return self._sourced(final)

    def close(self) -> None:
        self._intake.close()

    def _must_live(self) -> None:
        status = self.process.poll()
        if status is not None:
            raise died(self.process, self._said(), status, during="before it was stopped")

    def _why_silent(self, error: TrialFailed) -> TrialFailed:
        """The command socket failed: because it died just now, or stands still?"""
        for _ in looks(DEATH_GRACE_S, every_s=POLL_S):
            status = self.process.poll()
            if status is not None:
                return died(self.process, self._said(), status, during="before it was stopped")
            if self._stands_still():
                return stopped()
        return error

    def _stands_still(self) -> bool:
        inside = self.process.look()
        return inside is not None and inside.stopped

    # --- facts ----------------------------------------------------------------------------------

    def facts(self) -> Json:
        lines = self._said()
        loaded = log.rules_loaded(lines)
        warnings, errors = log.warnings(lines), log.errors(lines)
        bad = self._bad_rules(lines)
        runs = Effective(asked=self._asked, threads=self._threads, rings=self._rings)
        return {
            "version": log.version(lines),
            "runmode": self._asked.runmode,
            "threads": list(self._threads),
            "capture_threads": len(runs.capturing),
            "rings": [dataclasses.asdict(r) for r in self._rings],
            "holds_packets": runs.holds_packets(),
            "frame_room": self._intake.frame_room(self._rings),
            "defrag_asked": self._asked.defrag,
            "defrag_effective": runs.defrag(),
            "takes_frames": self._asked.capture == "af-xdp",
            "rules_loaded": None if loaded is None else loaded.loaded,
            "rules_failed": None if loaded is None else loaded.failed,
            "rules_skipped": None if loaded is None else loaded.skipped,
            "rules_failed_first": [str(rule) for rule in bad[:MOST_NAMED_RULES]],
            "rules_lacking": list(self._asked.rules_lacking),
            "yaml": self._asked.yaml,
            "yaml_replaced": list(self._asked.replaced),
            "errors": len(errors),
            "errors_first": errors[:5],
            "warnings": len(warnings),
            "warnings_first": warnings[:5],
            "effective": runs.settings(),
            "notes": runs.notes(),
        }


def _packets(found: SutCounters) -> tuple[int, int, int | None]:
    """(captured, dropped, decoded), as sockets and decoders have them."""
    assert found.captured_packets is not None and found.dropped_ring_full_packets is not None
    return found.captured_packets, found.dropped_ring_full_packets, found.decoded_packets


def _or_nothing_yet(control: ControlSocket) -> Json:
    try:
        totals: Json = control.command("dump-counters")
    except RefusedBySuricata:
        return {}  # nothing gathered yet: the first time is 3 s after the start
    return totals


def died(
    process: Process, lines: Sequence[log.LogLine], status: int, *, during: str
) -> TrialFailed:
    """Why it ended, in its own words, and what to do about it."""
    words = "; ".join(_last_words(process, lines))
    hint = next((hint for sign, hint in _HINTS if sign in words), None)
    if cause := process.cause_of_death():
        words, hint = cause, "raise limits.memory, or load fewer rules"
    elif hint is None and status in KILLED:
        hint = "if no one killed it, the kernel did, for lack of memory: see dmesg"
    return TrialFailed(
        f"Suricata ended {during} ({end_words(status)})" + (f": {words}" if words else ""),
        hint=hint,
    )


def _last_words(process: Process, lines: Sequence[log.LogLine]) -> Sequence[str]:
    said = log.errors(lines)
    if not said:
        # Before its log is open, and if the loader fails, stderr is all there is.
        said = [
            line
            for line in _tail(process.stderr)
            if "rror" in line or line.startswith("nodrop-node ")
        ]
    return [short(words) for words in said[-3:]]


def stopped() -> TrialFailed:
    return TrialFailed(
        "Suricata stands still (SIGSTOP): its counters cannot be read",
        hint="send SIGCONT before the end of the trial",
    )


def short(words: str) -> str:
    return words if len(words) <= 200 else words[:197] + "..."


def _tail(path: Path) -> list[str]:
    return read_end(path, bytes_from_end=4096).decode(errors="replace").splitlines()
