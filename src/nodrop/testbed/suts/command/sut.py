"""A capture program as the SUT, as its description says: launched, proved to listen, brought to
rest, ended and read."""

from __future__ import annotations

import fnmatch
import math
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from nodrop.config.options import check
from nodrop.errors import LabProblem, TrialFailed
from nodrop.ledger.hops import Knobs, Owner, Place, socket_ring
from nodrop.ledger.imbalance import ThreadRole
from nodrop.ledger.outcome import Problem, Reason
from nodrop.ledger.over_time import Served
from nodrop.testbed.hosts.api import Json
from nodrop.testbed.hosts.control_groups import SocketLook, copies
from nodrop.testbed.hosts.folders import state_folder
from nodrop.testbed.hosts.node import file_sha256
from nodrop.testbed.hosts.waiting import looks
from nodrop.testbed.images.image_tree import Bits
from nodrop.testbed.setups.api import Env, Process, ProcessSpec
from nodrop.testbed.suts.api import (
    NOTHING_SAID,
    SMALLEST_V3_BYTES,
    Drained,
    Readiness,
    SinceMark,
    Sut,
    SutCounters,
    end_words,
)
from nodrop.testbed.suts.command.description import (
    STATEMENT_BYTES,
    NoStatement,
    ProgramDescription,
    Statement,
    find_program,
    holds,
    read_program,
    value_of,
)
from nodrop.testbed.suts.outside import FROM_OUTSIDE, OutsideSockets
from nodrop.untrusted.folder import Folder, read_end, read_from
from nodrop.untrusted.json_text import one_line
from nodrop.untrusted.matching import TooSlow, matches

POLL_S = 0.02
DRAIN_POLL_S = 0.05
MOST_PRINTED_BYTES = 64 << 20
"""Limit on stdout and stderr together: a capture program that prints packets fills the disk."""
ANSWER_TIMEOUT_S = 3.0
NEVER_CAPTURED = "before it opened a capture socket"
AT_REST_S = 3.0
"""Longer than any queue ahead of the sockets takes to hand on what it has."""
NUDGE_S, NUDGE_TIMEOUT_S = 0.5, 10.0
"""Time from the signal to the first nudge, and from each to the next."""
NUDGE = (
    "import socket, sys; one = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); "
    "one.bind((sys.argv[1], 0)); "
    "one.send(bytes.fromhex('ffffffffffff02000000000088b5') + b'nodrop nudge'.ljust(46, b'\\0'))"
)
"""Sends a frame to everyone, of the EtherType for experiments (IEEE 802). Capture sockets see what
leaves through the kernel's queue; what the replay sends goes past it."""


class Command(Sut):
    """A `Sut`. The constructor refuses bad options and a bad description, and touches nothing."""

    rest_seen_s = 0.1
    """Time of two looks at its rings."""
    places: Sequence[Place] = (socket_ring(counter=f"tp_drops, {FROM_OUTSIDE}"),)

    def __init__(self, options: Mapping[str, Any], *, base: Path) -> None:
        self.path = find_program(options.get("program"), base=base)
        any_value = read_program(self.path)
        self.program = any_value
        if variants := any_value.variants:
            first = check(any_value.options(), options, table="sut", base=base)
            self.program = read_program(self.path, {n: getattr(first, n) for n in variants})
        self.options = check(self.program.options(), options, table="sut", base=base)
        self.name = self.program.name
        self.cpus = self.options.cpus
        self.places = _places(self.program)
        given = {name: getattr(self.options, name) for name in self.program.knobs}
        files = [name for name, knob in self.program.knobs.items() if knob.type == "file"]
        self._files: dict[str, Path] = {name: given[name] for name in files if given[name]}
        self._lacking = [name for name in files if given[name] is None]
        self.values = {name: value for name, value in given.items() if name not in files}
        said = self.program.version
        self.version = None if said is None else (said.argv[1:], said.regex)

    def needs_bits(self) -> str | None:
        return self.program.argv[0]

    def problems(self, bits: Bits | None) -> Sequence[str]:
        if self._lacking:
            return [f"sut.{key}: missing; {self.name} takes a file there" for key in self._lacking]
        if bits is None:
            return [f"sut {self.name}: {self.program.argv[0]} is not in PATH; install it, or set "
                    "sut.binary"]  # fmt: skip
        return []

    def files(self) -> Mapping[str, Path]:
        return self._files

    def role(self, thread: str) -> ThreadRole | None:
        return self.program.role(thread)

    def launch(self, env: Env) -> RunningCommand:
        if len(env.capture_interfaces) != 1:
            many = len(env.capture_interfaces)
            raise LabProblem(f"{self.name} captures one interface, not {many}")
        values = {**self.values, "interface": env.capture_interfaces[0], "work": env.work_inside}
        values |= {name: f"{env.work_inside}/{name}" for name in self._files}
        program, bits = self.program, env.bits
        first = str(bits.path) if bits is not None and bits.kind == "binary" else program.argv[0]
        texts = {name: program.filled(text, values) for name, text in program.files.items()}
        spec = ProcessSpec(
            argv=(first, *(program.filled(word, values) for word in program.argv[1:])),
            files={
                **{name: text.encode() for name, text in texts.items()},
                **{f"{folder}/.keep": b"" for folder in program.folders},
                **self._files,
            },
            cpus=self.options.cpus,
            needs=program.needs,
        )
        return RunningCommand(env.launch(spec), env, self)

    def facts(self) -> Json:
        return {
            "options": self.options.model_dump(mode="json"),
            "description": str(self.path),
            "description_sha256": file_sha256(self.path),
            "proved": proof_of(self.path).is_file(),
            "licence": self.program.licence,
        }


def proof_of(description: Path) -> Path:
    """File in which `nodrop sut check` notes that a description held here, by its content."""
    return state_folder() / "proved" / f"{file_sha256(description)}.json"


def _places(program: ProgramDescription) -> Sequence[Place]:
    neutral = Knobs()
    ring = " or ".join(program.knob_names("ring")) or neutral.ring
    threads = " or ".join(program.knob_names("threads")) or neutral.threads
    said = program.books.dropped_ring_full
    counter = "tp_drops (PACKET_STATISTICS)"
    counter += f": {said}, printed by {program.name}" if said else f", {FROM_OUTSIDE}"
    within = [
        Place(
            name=name,
            owner=Owner.SUT,
            within_sut=True,
            counter=f"{loss.packets}, printed by {program.name}",
            source=f"{program.name} itself",
            knob=loss.knob,
        )
        for name, loss in program.books.lost.items()
    ]
    return (socket_ring(Knobs(ring=ring, threads=threads), counter=counter), *within)


class RunningCommand(SinceMark):
    def __init__(self, process: Process, env: Env, sut: Command) -> None:
        self.process = process
        self._env, self._sut, self._program = env, sut, sut.program
        self.sockets = OutsideSockets(process, env.capture_interfaces)
        self._rested: SocketLook | None = None
        self._rest_by = ""
        self._over_time: list[Served] = []
        self.nudged = 0
        """Frames that made it end, and that it counted."""

    def _must_live(self, during: str) -> None:
        status = self.process.poll()
        if status is not None:
            self.close()
            raise self._ended(status, during)
        printed = sum(_size(path) for path in (self.process.stdout, self.process.stderr))
        if printed > MOST_PRINTED_BYTES:
            self.process.signal(signal.SIGKILL)
            self.close()
            raise TrialFailed(
                f"{self._sut.name} has printed {printed >> 20} MiB: killed",
                hint="a program that prints packets measures its terminal: make it quiet (argv)",
            )

    def _ended(self, status: int, during: str) -> TrialFailed:
        name, how = self._sut.name, end_words(status)
        if cause := self.process.cause_of_death():
            return TrialFailed(f"{name} ended {during} ({how}): {cause}")
        words = self._last_words()
        if status == 0 and not words and during == NEVER_CAPTURED:
            return TrialFailed(
                f"{name} ended {during} ({how}), without a word",
                hint="if it goes on in the background, keep it in the foreground (argv)",
            )
        return TrialFailed(f"{name} ended {during} ({how})" + (f": {words}" if words else ""))

    def _last_words(self) -> str:
        for path in (self.process.stderr, self.process.stdout):
            text = self._end_of(path)
            if lines := [line.strip() for line in text.splitlines() if line.strip()]:
                return one_line("; ".join(lines[-2:]), longest=300)
        return ""

    def _end_of(self, path: Path) -> str:
        if path.parent == self.process.work:
            path = self.process.fetch(path.name)
        return read_end(path, bytes_from_end=STATEMENT_BYTES).decode(errors="replace")

    # --- ready ----------------------------------------------------------------------------------

    def wait_ready(self, *, timeout_s: float) -> Readiness:
        ready = self._program.ready
        timeout_s = min(timeout_s, ready.timeout_s)
        wanted = value_of(ready.sockets, self._sut.values)
        before: tuple[object, ...] | None = None
        for _ in looks(timeout_s, every_s=POLL_S):
            self._must_live(NEVER_CAPTURED)
            seen = self.sockets.look()
            found = () if seen is None else _identity(seen)
            at_work = seen is not None and self._listens(seen, wanted)
            if at_work and found == before and self._has_said():
                break
            before = found if at_work else None
        else:
            raise self._late(seen, wanted, timeout_s)
        assert seen is not None
        if (times := copies(seen.sockets)) > 1 and not seen.missing:
            raise TrialFailed(
                f"{self._sut.name} has {times} sockets that each see every packet: it would count "
                f"a packet {times} times",
                hint="give its threads one fanout group, or run it with one thread",
                reason=Reason.SUT_NOT_READY,
            )
        ready_mono_ns = time.monotonic_ns()
        spent_s = (ready_mono_ns - self.process.launched_mono_ns) / 1e9
        before_s = sum(self.process.phases_s.values())
        return Readiness(
            ready_mono_ns=ready_mono_ns,
            phases_s={**self.process.phases_s, "open_capture": max(0.0, spent_s - before_s)},
            evidence={"threads": list(seen.threads), "rings": _rings(seen)},
        )

    def _listens(self, seen: SocketLook, wanted: int) -> bool:
        """libpcap binds after its ring is there, others before: a socket counts with its ring."""
        counted = [socket for socket in seen.sockets if socket["counted"] is not None]
        if not counted or not self._program.ready.ring:
            return len(seen.sockets) >= wanted
        return sum(one["ring"] is not None for one in counted) >= wanted

    def _has_said(self) -> bool:
        line = self._program.ready.line
        if line is None:
            return True
        try:
            return bool(matches(line.regex, self._text(line.source)))
        except TooSlow as why:
            raise TrialFailed(
                f"{self._sut.name}: ready.line: {why}", reason=Reason.SUT_NOT_READY
            ) from None

    def _text(self, source: str) -> str:
        return self._end_of(self._file(source))

    def _file(self, source: str) -> Path:
        if source.startswith("file:"):
            return self.process.work / source.removeprefix("file:")
        return self.process.stdout if source == "stdout" else self.process.stderr

    def _late(self, seen: SocketLook | None, wanted: int, timeout_s: float) -> TrialFailed:
        have = 0 if seen is None else len(seen.sockets)
        if have < wanted:
            words = f"has {have} of {wanted} capture sockets on its interface"
        elif seen is not None and not self._listens(seen, wanted):
            words = "has a capture socket without a ring (ready.ring)"
        elif self._program.ready.line is not None:
            words = f"has not printed what ready.line says ({self._program.ready.line.source})"
        else:
            words = "opens and closes its capture sockets"
        last = self._last_words()
        return TrialFailed(
            f"{self._sut.name} {words} after {timeout_s:g} s" + (f": {last}" if last else ""),
            reason=Reason.SUT_NOT_READY,
        )

    # --- while it runs --------------------------------------------------------------------------

    def drain(self, *, expected_packets: int | None, timeout_s: float) -> Drained:
        """Waits until its rings are empty at two looks or, where they cannot be seen, for
        `stop.settle_s`."""
        began = unchanged_since = time.monotonic()
        began_ns = time.monotonic_ns()
        wanted = None if expected_packets is None else expected_packets + self._base_packets()
        busy_ns, empty = None, 0
        last: tuple[int | None, ...] | None = None
        for _ in looks(timeout_s, every_s=DRAIN_POLL_S):
            self._must_live("before it was stopped")
            seen, now, now_ns = self.sockets.look(), time.monotonic(), time.monotonic_ns()
            if seen is not None:
                reading = seen.arrived, seen.waiting
                if reading != last:
                    unchanged_since, last = now, reading
                if seen.ready_to_read:
                    busy_ns = now_ns
                empty = empty + 1 if seen.waiting == 0 else 0
                all_there = self._env.delivers_at_once or seen.arrived == wanted
                quiet_s = now - unchanged_since
                if empty >= 2 and (all_there or quiet_s >= AT_REST_S):
                    rested_ns, self._rest_by = now_ns, "its rings are empty (seen from outside)"
                    break
                # Blocks without a timer are never handed over: what is in them stays there.
                settle_s = max(self._program.stop.settle_s, AT_REST_S if seen.waiting else 0)
                if seen.waiting != 0 and quiet_s >= settle_s:
                    rested_ns = began_ns + round((unchanged_since - began) * 1e9)
                    self._rest_by = f"nothing moved for {settle_s:g} s"
                    break
        else:
            waiting = "" if seen is None or seen.waiting is None else f"{seen.waiting:,} "
            raise TrialFailed(
                f"{self._sut.name} does not come to rest within {timeout_s:g} s: {waiting}"
                "packets wait in its ring",
                reason=Reason.NOT_DRAINED,
            )
        self._rested = seen
        return Drained(rested_mono_ns=rested_ns, busy_mono_ns=busy_ns)

    def live(self) -> SutCounters | None:
        if self.process.quiet:
            return None
        seen = self.sockets.look()
        if seen is None or seen.at_least:
            return None
        found = self._from_outside(seen)
        if seen.waiting is not None and found.decoded_packets is not None:
            self._over_time.append(
                Served(
                    mono_ns=time.monotonic_ns(),
                    served=found.decoded_packets,
                    lost=found.dropped_ring_full_packets or 0,
                    waiting=seen.waiting,
                )
            )
        return self._since_mark(found)

    def counted(self) -> SutCounters:
        said = self._program.live
        seen = self._rested or self.sockets.look()
        if said is not None:
            found = self._as_said(self._asked(said), seen, said.source)
        elif seen is None or seen.arrived is None or seen.at_least:
            raise TrialFailed(
                f"{self._sut.name} says nothing while it runs, and its sockets' counters cannot be "
                "read from outside: " + (seen.missing if seen and seen.missing else "it reads them "
                "itself"),
                hint='measure.sut = "fresh" reads its last words',
                reason=Reason.NOT_READ,
            )  # fmt: skip
        else:
            found = self._from_outside(seen)
        return self._since_mark(self._with_time(found))

    def _asked(self, said: Statement) -> dict[str, int]:
        """Counters that the program prints at a signal, or that stand in a file at rest."""
        path = self._file(said.source)
        if said.signal is None:
            return self._statement(said, self._end_of(path), "at rest")
        begin = _size(path)
        self.process.signal(getattr(signal, f"SIG{said.signal}"))
        for _ in looks(ANSWER_TIMEOUT_S, every_s=POLL_S):
            self._must_live(f"at SIG{said.signal}")
            path = self.process.fetch(path.name)
            new = read_from(path, begin, most_bytes=STATEMENT_BYTES).decode(errors="replace")
            if said.how_often(new):
                break
        else:
            raise TrialFailed(
                f"{self._sut.name} says nothing within {ANSWER_TIMEOUT_S:g} s of SIG{said.signal}",
                reason=Reason.NOT_READ,
            )
        self.sockets.owner_read()
        return self._statement(said, new, f"at SIG{said.signal}")

    def mark(self) -> None:
        base, self._base = self._base, None
        try:
            self._base = self.counted()
        except TrialFailed:
            self._base = base
            raise
        self._over_time = []

    # --- the end --------------------------------------------------------------------------------

    def finish(self, *, timeout_s: float) -> SutCounters:
        stop, name = self._program.stop, self._sut.name
        self._must_live("before it was stopped")
        inside = self.process.look()
        if inside is not None and inside.stopped:
            self.process.signal(signal.SIGKILL)
            self.close()
            raise TrialFailed(
                f"{name} stands still (SIGSTOP): it cannot say its last words",
                hint="send SIGCONT before the end of the trial",
            )
        seen = self.sockets.look() or self._rested
        self.close()
        grace_s = min(stop.grace_s, timeout_s)
        self.process.signal(getattr(signal, f"SIG{stop.signal}"))
        nudge_at_s = NUDGE_S if stop.nudge else math.inf
        for passed_s in looks(grace_s, every_s=POLL_S):
            if (status := self.process.poll()) is not None:
                break
            if nudge_at_s <= passed_s:
                self._nudge()
                nudge_at_s += NUDGE_S
        else:
            self.process.signal(signal.SIGKILL)
            self.process.stop(timeout_s=timeout_s)
            raise TrialFailed(
                f"{name} did not end within {grace_s:g} s of SIG{stop.signal}: killed",
                hint="stop.signal, stop.grace_s of its description",
                reason=Reason.SUT_DIED,
            )
        if status not in stop.exit:
            raise self._ended(status, "badly")
        try:
            said = self._program.exit
            if said is None:
                found = self._from_outside(seen) if seen is not None else NOTHING_SAID
            else:
                text = self._end_of(self._file(said.source))
                found = self._as_said(self._statement(said, text, "at its end"), seen, said.source)
        finally:
            discard(self.process.work, self._program.discard)
        return self._since_mark(self._with_time(found))

    def _nudge(self) -> None:
        """A frame of nodrop's own, out of its interface: a capture socket sees it as well."""
        host = self._env.host
        if not host.here:
            return
        interface = self._env.capture_interfaces[0]
        host.run([sys.executable, "-I", "-c", NUDGE, interface], timeout_s=NUDGE_TIMEOUT_S)
        self.nudged += 1

    def _statement(self, said: Statement, text: str, when: str) -> dict[str, int]:
        try:
            return said.read(text)
        except NoStatement as why:
            last = one_line(text.strip()[-200:], longest=200)
            raise TrialFailed(
                f"{self._sut.name} left no counters {when} ({said.source}): {why}"
                + (f"; it ends with: {last}" if last else "; it is empty"),
                hint=f"see {self._sut.path}",
                reason=Reason.NOT_READ,
            ) from None

    def _as_said(
        self, counted: Mapping[str, int], seen: SocketLook | None, source: str
    ) -> SutCounters:
        """The program's own counters; the kernel's counters of its sockets replace those that it
        leaves out."""
        books, name = self._program.books, self._sut.name
        sums = books.sums()
        values = {at: value_of(text, counted) for at, text in sums.items()}
        said = f"{name} says " + ", ".join(f"{one} {value}" for one, value in counted.items())
        problems = [
            f"{said}: books.{at} = {sums[at]} is {value}"
            for at, value in values.items()
            if value < 0
        ]
        values = {at: value for at, value in values.items() if value >= 0}
        came = None if seen is None or seen.at_least else seen.arrived
        if came is not None and "captured" in values:
            self.nudged = min(max(values["captured"] - came, 0), self.nudged)
        for at in {"captured", "decoded"} & set(values):
            values[at] -= self.nudged
        problems += [
            f"{said}: the identity {rule} ({text}) does not hold"
            for rule, text in self._program.identities.items()
            if not holds(text, counted)
        ]
        problems += _referee(name, values, seen)
        outside = NOTHING_SAID if seen is None else self._from_outside(seen)
        return SutCounters(
            captured_packets=values.get("captured", outside.captured_packets),
            dropped_ring_full_packets=values.get(
                "dropped_ring_full", outside.dropped_ring_full_packets
            ),
            decoded_packets=values.get("decoded", outside.decoded_packets),
            lost={at[5:]: n for at, n in values.items() if at.startswith("lost.")},
            results=dict(counted),
            problems=tuple(Problem(code=Reason.COUNTERS_DISAGREE, words=w) for w in problems),
            sources={
                **outside.sources,
                **{f"{at}_packets": f"{name} ({source}): {text}" for at, text in sums.items()},
            },
        )

    def _from_outside(self, seen: SocketLook) -> SutCounters:
        known = not seen.at_least
        return SutCounters(
            captured_packets=seen.arrived if known else None,
            dropped_ring_full_packets=seen.dropped if known else None,
            decoded_packets=seen.read if known else None,
            sources={
                "captured_packets": f"tp_packets + tp_drops, {FROM_OUTSIDE}",
                "dropped_ring_full_packets": f"tp_drops, {FROM_OUTSIDE}",
                "decoded_packets": f"captured - dropped - in the rings, {FROM_OUTSIDE}",
            },
        )

    def _with_time(self, found: SutCounters) -> SutCounters:
        """Books of the one thread that captures, if there is one, with its ring over time; and how
        the rest was seen."""
        found = replace(found, sources={**found.sources, "at_rest": self._rest_by})
        threads = set(() if self.sockets.seen is None else self.sockets.seen.threads)
        mine = [
            thread
            for thread in threads
            if self._sut.role(thread) in (ThreadRole.RECEIVE, ThreadRole.WORKER)
        ]
        if len(mine) != 1 or self.sockets.seen is None or len(self.sockets.seen.sockets) != 1:
            return found
        own = {
            field: value
            for field in ("captured_packets", "dropped_ring_full_packets", "decoded_packets")
            if (value := getattr(found, field)) is not None
        }
        return replace(found, per_thread={mine[0]: own}, over_time={mine[0]: self._over_time})

    def close(self) -> None:
        self.sockets.close()

    # --- facts ----------------------------------------------------------------------------------

    def facts(self) -> Json:
        seen, bits = self.sockets.seen, self._env.bits
        merges = bool(seen and any(s["fanout"] and s["fanout"]["defrag"] for s in seen.sockets))
        return {
            "version": None if bits is None else bits.version,
            "threads": [] if seen is None else list(seen.threads),
            "capture_threads": 0 if seen is None else len(seen.sockets),
            "rings": [] if seen is None else _rings(seen),
            "holds_packets": None if seen is None else _holds(seen),
            "defrag_asked": False,
            "defrag_effective": merges,
            "not_visible": "" if seen is None else seen.missing,
            "effective": dict(self._sut.values),
        }


def discard(work: Path, patterns: Sequence[str]) -> None:
    """Removes files that the program wrote and no one reads. Links are not followed: the program,
    which may have made them, has fewer rights than nodrop."""
    for pattern in patterns:
        *folders, name = pattern.split("/")
        with suppress(OSError):
            folder = Folder(work, tuple(folders))
            for one in fnmatch.filter(folder.names(), name):
                if folder.is_file(one):
                    folder.remove(one)


def _referee(name: str, said: Mapping[str, int], seen: SocketLook | None) -> list[str]:
    """Differences between the program's words and the kernel's counters of its sockets."""
    if seen is None or seen.at_least:
        return []
    kernel = {"captured": seen.arrived, "dropped_ring_full": seen.dropped}
    return [
        f"{name} says {at.replace('_', ' ')} {said[at]:,}, and the kernel counted {own:,} on its "
        "sockets"
        for at, own in kernel.items()
        if own is not None and at in said and said[at] != own
    ]


def _identity(seen: SocketLook) -> tuple[object, ...]:
    return tuple(sorted((socket["inode"], socket["ring"] is not None) for socket in seen.sockets))


def _rings(seen: SocketLook) -> list[Json]:
    return [
        {**socket["ring"], "fanout": socket["fanout"]} for socket in seen.sockets if socket["ring"]
    ]


def _holds(seen: SocketLook) -> int | None:
    """The most that all rings hold."""
    total = 0
    for socket in seen.sockets:
        ring = socket["ring"]
        if ring is None:
            return None
        bytes_ = ring["block_bytes"] * ring["blocks"]
        total += bytes_ // SMALLEST_V3_BYTES if ring["version"] == 3 else ring["frames"]
    return total or None


def _size(path: Path) -> int:
    try:
        return path.stat(follow_symlinks=False).st_size
    except OSError:
        return 0
