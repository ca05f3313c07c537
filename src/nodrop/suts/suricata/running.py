"""One launched Suricata: ready when it listens, at rest when its books balance, then its end."""

from __future__ import annotations

import dataclasses
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nodrop.errors import LabProblem, TrialFailed
from nodrop.hosts.inside import PacketSocket
from nodrop.hosts.seam import Json
from nodrop.ledger.reasons import Reason
from nodrop.setups.seam import Env, Process
from nodrop.suts.seam import Drained, Readiness, SutCounters, less
from nodrop.suts.suricata import counters, log
from nodrop.suts.suricata.asleep import Asleep
from nodrop.suts.suricata.capture import (
    Ring,
    capture_threads,
    holds_packets,
    parse_ss,
)
from nodrop.suts.suricata.config import ENGINE_LOG, SOCKET, STATS_LOG, SYNC_S
from nodrop.suts.suricata.control import ControlSocket, Refused
from nodrop.untrusted.folder import read_end

POLL_S = 0.01
DRAIN_POLL_S = 0.05
DEATH_GRACE_S = 0.5
CONTROL_TIMEOUT_S = 5.0
COUNT_TIMEOUT_S = 30.0
LIVE_TIMEOUT_S = 0.25
"""A SUT that stands still must not hold up who waits for the sender."""
KERNEL_LAG_S = 1.0
"""Each capture thread reads its socket's counters once a second."""
_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the configuration asks for, to be compared with what runs."""

    interfaces: tuple[str, ...]
    threads: int | None
    """Per interface; None = auto."""
    runmode: str | None
    """None: the user's own yaml decides."""
    ring_frames: int | None
    """Per thread; None leaves it to Suricata."""
    defrag: bool
    full_sync_s: float
    """How old the answer of dump-counters can be."""
    retire_s: float
    """How long a frame can lie in a ring before its thread is woken."""
    names_rules: bool
    """Also if it is the user's own yaml that names them."""
    rules_errors: Literal["error", "warn"]


class RunningSuricata:
    def __init__(self, process: Process, env: Env, asked: Asked) -> None:
        self.process = process
        self._env = env
        self._asked = asked
        self._log = log.EngineLog(process.work / ENGINE_LOG)
        self._threads: tuple[str, ...] = ()
        self._rings: tuple[Ring, ...] = ()
        self._at_rest: tuple[int, int, int | None] = (0, 0, 0)
        self._wanted: int | None = None
        self._base: SutCounters | None = None
        self._rested: SutCounters | None = None

    def _said(self) -> Sequence[log.Line]:
        self.process.fetch(ENGINE_LOG)
        return self._log.lines()

    # --- ready ----------------------------------------------------------------------------------

    def wait_ready(self, *, timeout_s: float) -> Readiness:
        deadline = time.monotonic() + timeout_s
        while (sockets := self._listening()) is None:
            if time.monotonic() > deadline:
                raise self._late(timeout_s)
            time.sleep(POLL_S)
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
        running = tuple(s for s in sockets if s.running and s.interface_index > 0)
        return running if len(running) >= wanted else None

    def _must_have_rules(self, lines: Sequence[log.Line]) -> None:
        """Each rule that was named loads, or is counted as failed; and some rule loads."""
        said = log.rules_loaded(lines)
        if said is None and not (self._asked.names_rules and log.started(lines)):
            return  # not read yet, or none to read
        bad = log.bad_rules(lines)
        first = "; ".join(map(str, bad[:3]))
        if said is None or said.loaded == 0:
            raise TrialFailed(
                "rules are named, and Suricata loaded none" + (f": {first}" if first else ""),
                hint="look into the files (one rule per line, UTF-8); without rules, name none: in "
                "sut.rules and in rule-files of sut.config",
                reason=Reason.NO_RULES,
            )
        if said.failed == 0 or self._asked.rules_errors == "warn":
            return
        more = f" and {said.failed - 3} more" if said.failed > 3 else ""
        raise TrialFailed(
            f"{said.failed} of {said.loaded + said.failed} rules do not load: {first}{more}",
            hint='repair or remove them, or set sut.rules_errors = "warn"',
            reason=Reason.NO_RULES,
        )

    def _late(self, timeout_s: float) -> TrialFailed:
        lines = self._said()
        if log.started(lines) is None:
            last = lines[-1].message if lines else "nothing"
            missing = f"has not started its engine (its last word: {_short(last)})"
        else:
            missing = "has started, but not all of its capture sockets are open"
        return TrialFailed(
            f"Suricata {missing} after {timeout_s:g} s",
            hint="large rule sets need longer; mpm-algo = ac loads faster than hyperscan",
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

    def _read_rings(self, sockets: Sequence[PacketSocket]) -> tuple[Ring, ...]:
        try:
            done = self._env.host.run(["ss", "-0", "-e", "-n"], check=False)
        except LabProblem:
            return ()  # evidence only; a host without iproute2 can still measure
        return parse_ss(done.stdout, [s.inode for s in sockets])

    # --- while it runs --------------------------------------------------------------------------

    def drain(self, *, expected_packets: int | None, timeout_s: float) -> Drained:
        """Where all that was sent has been delivered, sleeping threads end it: what was captured is
        told by the exit record, and anything left behind would stand there as a residual."""
        began = time.monotonic()
        wanted = None if expected_packets is None else expected_packets + self._base_packets()
        self._wanted, self._rested = wanted, None
        unchanged_since, last, sync_s = began, None, self._asked.full_sync_s
        delivered = wanted is not None and self._env.delivers_at_once
        asleep, told = Asleep(self.process, at_least_s=self._asked.retire_s), False
        with self._control() as control:
            while True:
                # Before it is asked anything: the thread that answers is awake.
                rests = (told or delivered) and asleep()
                reading = captured, dropped, decoded = self._reading(control)
                now = time.monotonic()
                if reading != last:
                    unchanged_since, last = now, reading
                balanced = decoded is not None and captured - dropped == decoded
                told = captured == wanted
                complete = (told and balanced) or (rests and (told or delivered))
                if complete or (balanced and now - unchanged_since >= sync_s):
                    self._at_rest = reading
                    # Counters come late, never early: what they say now was so before.
                    slept_s, worked_s = asleep.since_s if rests else None, asleep.worked_s
                    rested_s = unchanged_since if slept_s is None else slept_s
                    return Drained(
                        rested_mono_ns=int(rested_s * 1e9),
                        busy_mono_ns=None if worked_s is None else int(worked_s * 1e9),
                    )
                if now - began > timeout_s:
                    raise TrialFailed(
                        f"Suricata's counters do not come to rest within {timeout_s:g} s: "
                        f"captured {captured}, dropped {dropped}, decoded {decoded}",
                        hint="foreign packets on the link, or a Suricata far behind its ring",
                        reason=Reason.NOT_DRAINED,
                    )
                time.sleep(DRAIN_POLL_S)

    def counted(self) -> SutCounters:
        """Final where they agree: the sockets have been asked for all that was delivered, and every
        thread has handed over what it decoded of it. If they never do, after the longest time that
        a counter can come late (measured: 1 s for a socket's, 3 s and one interval of the stats
        thread for a decoder's)."""
        began = unchanged_since = time.monotonic()
        last: tuple[int, int, int | None] | None = None
        agreed_since: float | None = None
        with self._control() as control:
            while True:
                captured, dropped, totals = self._counted(control)
                found = counters.from_stats(totals, source="dump-counters")
                reading = captured, dropped, found.decoded_packets
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
                if now - began > COUNT_TIMEOUT_S:
                    raise TrialFailed(
                        f"Suricata's counters are not at rest after {COUNT_TIMEOUT_S:g} s: "
                        f"captured {captured}, dropped {dropped}, decoded {found.decoded_packets}",
                        reason=Reason.NOT_DRAINED,
                    )
                time.sleep(DRAIN_POLL_S)
        self._at_rest = reading
        self._rested = _of_the_sockets(found, captured, dropped, agree=agree)
        return self._since_mark(self._rested)

    def _settle_s(self) -> float:
        """Threads behind the one that captures hand over their counters at the same tick, but the
        stats thread may have gathered between the two."""
        alone = self._asked.runmode in ("workers", "single")
        return 0.0 if alone else self._asked.full_sync_s - SYNC_S

    def _since_mark(self, found: SutCounters) -> SutCounters:
        return found if self._base is None else less(found, self._base)

    def mark(self) -> None:
        """The kernel's counters as of the drain, which are fresher than those of dump-counters."""
        if self._rested is not None:
            self._base = self._rested
            return
        captured, dropped, decoded = self._at_rest
        self._base = dataclasses.replace(
            self._now(CONTROL_TIMEOUT_S) or _nothing(),
            captured_packets=captured,
            dropped_ring_full_packets=dropped,
            decoded_packets=decoded,
        )

    def _base_packets(self) -> int:
        return 0 if self._base is None else self._base.captured_packets or 0

    def _control(self, timeout_s: float = CONTROL_TIMEOUT_S) -> ControlSocket:
        return ControlSocket(lambda: self.process.connect(SOCKET, timeout_s=timeout_s))

    def _reading(self, control: ControlSocket) -> tuple[int, int, int | None]:
        """(captured, dropped, decoded). The kernel's are at most 1 s old, the decoder's 4 s."""
        captured, dropped, totals = self._counted(control)
        return captured, dropped, totals.get("decoder", {}).get("pkts")

    def _counted(self, control: ControlSocket) -> tuple[int, int, Json]:
        self._must_live()
        try:
            stats = [control.command("iface-stat", iface=i) for i in self._asked.interfaces]
            totals = _or_nothing_yet(control)
        except TrialFailed as error:
            raise self._why_silent(error) from error
        return sum(s["pkts"] for s in stats), sum(s["drop"] for s in stats), totals

    def live(self) -> SutCounters | None:
        return None if self.process.quiet else self._now(LIVE_TIMEOUT_S)

    def _now(self, timeout_s: float) -> SutCounters | None:
        try:
            with self._control(timeout_s) as control:
                totals = _or_nothing_yet(control)
                stats = [control.command("iface-stat", iface=i) for i in self._asked.interfaces]
        except TrialFailed:
            return None
        found = dataclasses.replace(
            counters.from_stats(totals, source="dump-counters"),
            captured_packets=sum(s["pkts"] for s in stats),
            dropped_ring_full_packets=sum(s["drop"] for s in stats),
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
            raise _stopped()
        status = self.process.stop(timeout_s=timeout_s)
        if status in _KILLED:
            raise TrialFailed(f"Suricata did not end within {timeout_s:g} s of SIGTERM: killed")
        if status != 0:
            raise self._died(status, during="badly")
        final = self._final()
        return self._since_mark(final)

    def _final(self) -> SutCounters:
        """Decoded from the last stats record; captured and dropped from the exit line.

        The exit line is written later, after the sockets are closed. At rest both say the same (a
        test proves it); if packets still came, the difference stays in the books as a residual.
        """
        stats = counters.last_stats(self.process.fetch(STATS_LOG))
        at_exit = log.exit_counts(self._said())
        if stats is None and at_exit is None:
            raise TrialFailed(
                f"Suricata left no final counters, neither in {STATS_LOG} nor in {ENGINE_LOG}",
                hint="overrides may have switched them off",
            )
        final = counters.from_stats(stats or {}, source=f"{STATS_LOG} stats")
        if at_exit is None:
            return final
        said = f'{ENGINE_LOG} "device: packets: n, drops: n"'
        return dataclasses.replace(
            final,
            captured_packets=at_exit.packets,
            dropped_ring_full_packets=at_exit.drops,
            sources={
                **final.sources,
                "captured_packets": f"{said}, packets",
                "dropped_ring_full_packets": f"{said}, drops",
            },
        )

    def _must_live(self) -> None:
        status = self.process.poll()
        if status is not None:
            raise self._died(status, during="before it was stopped")

    def _why_silent(self, error: TrialFailed) -> TrialFailed:
        """The command socket failed: because it died just now, or stands still?"""
        deadline = time.monotonic() + DEATH_GRACE_S
        while time.monotonic() < deadline:
            status = self.process.poll()
            if status is not None:
                return self._died(status, during="before it was stopped")
            if self._stands_still():
                return _stopped()
            time.sleep(POLL_S)
        return error

    def _stands_still(self) -> bool:
        inside = self.process.look()
        return inside is not None and inside.stopped

    def _died(self, status: int, *, during: str) -> TrialFailed:
        how = f"exit status {status}" if status >= 0 else f"signal {_signal_name(-status)}"
        words = "; ".join(self._last_words())
        hint = next((hint for sign, hint in _HINTS if sign in words), None)
        if cause := self.process.cause_of_death():
            words, hint = cause, "raise limits.memory, or load fewer rules"
        elif hint is None and status in _KILLED:
            hint = "if nobody killed it, the kernel did, for lack of memory: see dmesg"
        return TrialFailed(
            f"Suricata ended {during} ({how})" + (f": {words}" if words else ""), hint=hint
        )

    def _last_words(self) -> Sequence[str]:
        said = log.errors(self._said())
        if not said:
            # Before its log is open, and where the loader fails, stderr is all there is.
            said = [
                line
                for line in _lines(self.process.stderr)
                if "rror" in line or line.startswith("nodrop-node ")
            ]
        return [_short(words) for words in said[-3:]]

    # --- facts ----------------------------------------------------------------------------------

    def facts(self) -> Json:
        lines = self._said()
        loaded = log.rules_loaded(lines)
        warnings, errors = log.warnings(lines), log.errors(lines)
        bad = log.bad_rules(lines)
        return {
            "version": log.version(lines),
            "runmode": self._asked.runmode,
            "threads": list(self._threads),
            "capture_threads": len(capture_threads(self._threads)),
            "rings": [dataclasses.asdict(r) for r in self._rings],
            "holds_packets": self._holds_packets(),
            "defrag_asked": self._asked.defrag,
            "defrag_effective": self._defrag_effective(),
            "rules_loaded": None if loaded is None else loaded.loaded,
            "rules_failed": None if loaded is None else loaded.failed,
            "rules_skipped": None if loaded is None else loaded.skipped,
            "rules_failed_first": [str(rule) for rule in bad[:3]],
            "errors": len(errors),
            "errors_first": errors[:5],
            "warnings": len(warnings),
            "warnings_first": warnings[:5],
            "effective": self._effective(),
            "notes": self._notes(),
        }

    def _effective(self) -> Json:
        """Seen where it runs, by the names of the [sut] table; what cannot be seen is left out."""
        capturing = capture_threads(self._threads)
        receivers = any(name.startswith("RX#") for name in capturing)
        # One thread alone may be `single` or `workers`, which differ in nothing then.
        told = self._asked.runmode or ("workers" if len(capturing) > 1 else None)
        fanout = {r.fanout_type for r in self._rings}
        frames = {r.frames for r in self._rings if r.frames}
        found = {
            "runmode": "autofp" if receivers else told,
            "threads": len(capturing) // len(self._asked.interfaces) or None,
            "cluster_type": _CLUSTERS.get(*fanout) if len(fanout) == 1 else None,
            "ring_size": frames.pop() if len(frames) == 1 else None,
            "defrag": self._defrag_effective(),
        }
        return {name: value for name, value in found.items() if value is not None}

    def _holds_packets(self) -> int | None:
        """Between threads, as in autofp, packets wait in queues of their own."""
        alone = self._asked.runmode in ("workers", "single")
        return holds_packets(self._rings) if alone else None

    def _defrag_effective(self) -> bool | None:
        """The flag goes with a fanout group by flow hash; a thread alone joins no group."""
        if not self._asked.defrag:
            return False
        if not self._rings:
            return None
        return all(ring.fanout_type == "hash" for ring in self._rings)

    def _notes(self) -> list[str]:
        """Where what runs is not what was asked for."""
        notes = []
        asked, have = self._asked.threads, len(capture_threads(self._threads))
        wanted = asked * len(self._asked.interfaces) if asked is not None else have
        if self._threads and wanted != have:
            notes.append(
                f"{wanted} capture threads were asked for, {have} run: "
                "Suricata allows no more workers than the host has CPUs"
            )
        frames, rings = self._asked.ring_frames, [r.frames for r in self._rings if r.frames]
        # Frames come in whole blocks, so a few more than asked for are normal.
        if frames is not None and rings and max(rings) > 2 * frames:
            notes.append(
                f"a ring of {frames} frames was asked for, {max(rings)} exist: "
                "Suricata makes it as large as max-pending-packets divided by the threads"
            )
        if self._asked.defrag and self._defrag_effective() is False:
            notes.append(
                "defrag = yes has no effect here: Suricata gives the flag to cluster_flow groups "
                "of two threads or more"
            )
        return notes


_CLUSTERS = {"hash": "cluster_flow", "cpu": "cluster_cpu", "qm": "cluster_qm", None: "none"}
"""What `ss` calls a fanout group → what Suricata does; a thread alone joins none."""
_HINTS: Sequence[tuple[str, str]] = (
    ("Operation not permitted", "capturing needs CAP_NET_RAW in this network namespace"),
    ("No such device", "the capture interface does not exist where Suricata runs"),
    ("Cannot allocate memory", "the ring or the rules do not fit into the memory limit"),
    ("Failed to parse configuration", "see sut.config and sut.overrides"),
)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def _of_the_sockets(found: SutCounters, captured: int, dropped: int, *, agree: bool) -> SutCounters:
    """Captured and dropped as the sockets say: in dump-counters, captured is a sync older. No
    thread can decode more than its socket gave it: if the sums agree, each thread's figures do."""
    said = "iface-stat at rest"
    threads = {}
    for name, thread in found.per_thread.items():
        own = dict(thread)
        decoded, lost = own.get("decoded_packets"), own.get("dropped_ring_full_packets")
        if own.pop("captured_packets", None) is not None and agree and decoded is not None:
            own["captured_packets"] = decoded + (lost or 0)
        threads[name] = own
    return dataclasses.replace(
        found,
        captured_packets=captured,
        dropped_ring_full_packets=dropped,
        per_thread=threads,
        sources={
            **found.sources,
            "captured_packets": f"{said}, pkts",
            "dropped_ring_full_packets": f"{said}, drop",
        },
    )


def _nothing() -> SutCounters:
    return SutCounters(captured_packets=None, dropped_ring_full_packets=None, decoded_packets=None)


def _or_nothing_yet(control: ControlSocket) -> Json:
    try:
        totals: Json = control.command("dump-counters")
    except Refused:
        return {}  # nothing gathered yet: the first time is 3 s after the start
    return totals


def _stopped() -> TrialFailed:
    return TrialFailed(
        "Suricata stands still (SIGSTOP): its counters cannot be read",
        hint="send SIGCONT before the end of the trial",
    )


def _short(words: str) -> str:
    return words if len(words) <= 200 else words[:197] + "..."


def _lines(path: Path) -> list[str]:
    return read_end(path, bytes_from_end=4096).decode(errors="replace").splitlines()
