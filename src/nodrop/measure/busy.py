"""Others on this host: programs that are no part of a trial, the hypervisor, a CPU quota.

A trial is judged by what it measured; this says why so many of them measure nothing, while there is
still a budget to save.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodrop.config.units import format_cpus, format_seconds
from nodrop.ledger.imbalance import BusyThread
from nodrop.ledger.outcome import Reason
from nodrop.ledger.over_time import Busy, DropReading, Losses, losses
from nodrop.ledger.sender import KNOBS
from nodrop.measure.sampling import Sampler, busiest_thread
from nodrop.protocol import SampleRow
from nodrop.results.trial import OTHERS, STEAL, Live, Program, TrialRecord
from nodrop.testbed.hosts.control_groups import own_quotas
from nodrop.testbed.hosts.journal import beside_us
from nodrop.testbed.hosts.local import LABEL_VARIABLE
from nodrop.testbed.hosts.processes import environment
from nodrop.testbed.load.api import OfferedLoad, Offerer
from nodrop.testbed.suts.api import SutCounters

KERNEL_THREAD = 0x00200000
"""PF_KTHREAD: its time is the packets' own work (ksoftirqd, kworker)."""
LOOK_S = 0.5
"""A look at an idle host is long enough to see who takes a tick of 10 ms in ten."""
NAMED_CPUS = 0.05
"""Programs below this part of a CPU are not named."""
MOST_PROGRAMS = 3
LEAST_TRIALS = 2
"""Number of disturbed trials that are no accident, if they are at least half of all."""
WHY_VOID = frozenset({Reason.SENDER_LATE, Reason.SENDER_BURST, Reason.CPU_STOLEN})


@dataclass(frozen=True, slots=True)
class _Process:
    name: str
    parent: int
    start_ticks: int
    kernel: bool
    own_ticks: int
    ticks: int
    """CPU time of the process, and of the children that it has waited for."""


class Others:
    """CPU time of this host's other programs from now on. `ours` and all that they began are left
    out, and so are threads of the kernel."""

    def __init__(self, ours: Iterable[int], root: Path = Path("/")) -> None:
        self._ours, self._root = frozenset(ours), root
        self._before = _processes(root)
        self._began_s = time.monotonic()

    def used(self) -> tuple[Program, ...]:
        """The largest first. What a program's ended children used is counted with it, as a build's
        compilers are gone by the time anyone looks."""
        now, elapsed_s = _processes(self._root), time.monotonic() - self._began_s
        rises = {pid: p.ticks - self._ticks_before(pid, p) for pid, p in now.items()}
        for pid, before in self._before.items():
            if pid in now and now[pid].start_ticks == before.start_ticks:
                continue
            heir = before.parent
            while heir not in now and heir in self._before:
                heir = self._before[heir].parent
            if heir in rises:
                rises[heir] -= before.ticks  # from before this look
        ours = _descendants(self._ours, now)
        hz = os.sysconf("SC_CLK_TCK")
        programs = [
            Program(
                name=now[pid].name,
                pid=pid,
                cpu_s=ticks / hz,
                by_children=2 * (now[pid].own_ticks - self._own_before(pid, now[pid])) < ticks,
            )
            for pid, ticks in rises.items()
            if pid not in ours and not now[pid].kernel and ticks / hz >= NAMED_CPUS * elapsed_s
        ]
        return tuple(sorted(programs, key=lambda program: -program.cpu_s)[:MOST_PROGRAMS])

    def _own_before(self, pid: int, now: _Process) -> int:
        before = self._before.get(pid)
        return before.own_ticks if before and before.start_ticks == now.start_ticks else 0

    def _ticks_before(self, pid: int, now: _Process) -> int:
        before = self._before.get(pid)
        return before.ticks if before and before.start_ticks == now.start_ticks else 0


def _processes(root: Path) -> dict[int, _Process]:
    found = {}
    for pid in (int(one.name) for one in (root / "proc").iterdir() if one.name.isdecimal()):
        try:
            text = (root / f"proc/{pid}/stat").read_text(errors="replace")
        except OSError:
            continue  # just gone
        head, _, rest = text.rpartition(")")
        fields = rest.split()  # proc_pid_stat(5) from the third on
        found[pid] = _Process(
            name=head.partition("(")[2],
            parent=int(fields[1]),
            start_ticks=int(fields[19]),
            kernel=bool(int(fields[6]) & KERNEL_THREAD),
            own_ticks=sum(map(int, fields[11:13])),
            ticks=sum(map(int, fields[11:15])),
        )
    return found


def _descendants(roots: AbstractSet[int], processes: Mapping[int, _Process]) -> AbstractSet[int]:
    def is_ours(pid: int) -> bool:
        while pid in processes and pid not in roots:
            pid = processes[pid].parent
        return pid in roots

    return {pid for pid in processes if is_ours(pid)}


def quota_words(root: Path = Path("/"), cpus: AbstractSet[int] | None = None) -> Iterator[str]:
    """The tightest CPU quota around nodrop, if it leaves less than the CPUs that nodrop may use."""
    allowed = os.sched_getaffinity(0) if cpus is None else cpus
    quotas = [quota for quota in own_quotas(root) if quota.cpus < len(allowed)]
    if quotas:
        tightest = min(quotas, key=lambda quota: quota.cpus)
        yield (
            "will disturb: a CPU quota holds nodrop itself, the sender and what it starts to "
            f"{tightest.cpus:g} of {len(allowed)} CPUs ({tightest.group}; so far "
            f"{tightest.throttled_words}): raise it ({KNOBS})"
        )


def busy_words() -> Iterator[str]:
    """Warns of programs that take more than a quarter of a CPU now, before anything is measured."""
    others = Others([os.getpid()])
    time.sleep(LOOK_S)
    busy = [one for one in others.used() if one.cpu_s >= OTHERS * LOOK_S]
    if busy:
        taken = ", ".join(f"{_named(one)} {one.cpu_s / LOOK_S:.2f} CPUs" for one in busy)
        yield (
            f"will disturb: other programs are at work here ({taken}): end them, or measure on "
            "other CPUs (load.cpu, limits.cpus)"
        )


def beside_words() -> Iterator[str]:
    """Warns of runs of nodrop that are under way here."""
    for run in beside_us():
        yield (
            f"will disturb: another run of nodrop measures here ({run}): two at once spoil each "
            "other's figures; wait for its end (nodrop watch follows it), or give each CPUs of its "
            "own (load.cpu, limits.cpus)"
        )


def host_notes() -> list[str]:
    return [*quota_words(), *beside_words(), *busy_words()]


def budget_words(done: Sequence[TrialRecord], budget_s: float | None) -> str:
    """Warning of what others cost this run, once two of its trials show it; empty until then."""
    hit = [record for record in done if record.host_was_busy]
    if len(hit) < LEAST_TRIALS or 2 * len(hit) < len(done):
        return ""
    void = [record for record in hit if WHY_VOID & {*record.invalid_reasons}]
    said = f"{len(hit)} of the first {len(done)} trials were disturbed: {_by_whom(hit)}"
    took_s = sum(record.took_s or 0.0 for record in done)
    if not void:
        said += "; what the SUT carries beside that is less than it carries alone"
    elif budget_s is None or not took_s:
        says = "says" if len(void) == 1 else "say"
        said += f"; {len(void)} of them {says} nothing of the SUT"
    else:
        lost_s = budget_s * sum(record.took_s or 0.0 for record in void) / took_s
        said += (
            f"; at this rate {format_seconds(lost_s)} of the budget of {format_seconds(budget_s)} "
            "go to trials that say nothing of the SUT"
        )
    return f"{said}. {_help(hit)}"


def _by_whom(hit: Sequence[TrialRecord]) -> str:
    stolen = max(record.steal_ratio or 0.0 for record in hit)
    seen = [record.disturbed for record in hit if record.disturbed]
    others = max((one.others_ratio or 0.0 for one in seen), default=0.0)
    quotas = [one.quota for one in seen if one.quota]
    found = []
    if quotas:
        worst = max(quotas, key=lambda quota: quota.throttled_s)
        found.append(
            f"the CPU quota around nodrop itself ({worst.cpus:g} CPUs, {worst.group}) held it back "
            f"for up to {worst.throttled_s:.2f} s of a trial"
        )
    if others >= OTHERS:
        program = _worst_program(hit)
        who = f"mostly {_named(program)}" if program else "none that can be seen from here"
        found.append(f"other programs had up to {100 * others:.0f} % of the trial's CPUs ({who})")
    if stolen >= STEAL:
        found.append(f"the hypervisor gave up to {100 * stolen:.0f} % of them to others")
    return ", ".join(found)


def _help(hit: Sequence[TrialRecord]) -> str:
    """The one thing to do."""
    seen = [record.disturbed for record in hit if record.disturbed]
    if any(one.quota for one in seen):
        return f"What helps: end this run (Ctrl-C) and raise the quota ({KNOBS})"
    program = _worst_program(hit)
    if program is None or program.pid == 1:  # whatever init or a supervisor started
        return "What helps: end this run (Ctrl-C) and measure on a host of its own, or later"
    if _of_nodrop(program):
        return (
            "What helps: end this run (Ctrl-C), and begin it when the other run of nodrop is over"
        )
    free = _free_cpus(hit)
    away = f", or move it: taskset --all-tasks -cp {free} {program.pid}" if free else ""
    return f"What helps: end {_named(program)}{away}"


def _worst_program(hit: Sequence[TrialRecord]) -> Program | None:
    """The one with the most CPU time in all of these trials together."""
    cpu_s: dict[tuple[str, int], float] = {}
    found = [program for record in hit if record.disturbed for program in record.disturbed.programs]
    for one in found:
        cpu_s[one.name, one.pid] = cpu_s.get((one.name, one.pid), 0.0) + one.cpu_s
    return max(found, key=lambda one: cpu_s[one.name, one.pid], default=None)


def _free_cpus(hit: Sequence[TrialRecord]) -> str:
    """CPUs of this host that the last of these trials left alone."""
    used = hit[-1].disturbed.cpus if hit[-1].disturbed else []
    return format_cpus(cpu for cpu in range(os.cpu_count() or 0) if cpu not in used)


def _of_nodrop(program: Program) -> bool:
    return any(one.startswith(f"{LABEL_VARIABLE}=".encode()) for one in environment(program.pid))


def _named(program: Program) -> str:
    whose = ", of another run of nodrop" if _of_nodrop(program) else ""
    named = f"{program.name} (pid {program.pid}{whose})"
    return f"what {named} runs" if program.by_children else named


WINDOW_S = 2.0
"""A counter that is renewed often is averaged over this: its steps and our looks beat."""
STALE_S = 4.5
"""Suricata's decoders hand over every 3 s, and what gathers them looks once a second: a counter
that does not move for longer stands still."""


class SteppedRate:
    """Rate per second over the time between changes, and not between looks."""

    def __init__(self) -> None:
        self._changes: deque[tuple[float, int]] = deque()
        self._rate: float | None = None

    def at(self, now_s: float, count: int | None) -> float | None:
        """None until the counter has moved once, or has stood still for long enough."""
        if count is None:
            return None
        if not self._changes:
            self._changes.append((now_s, count))
            return None
        changed_s, last = self._changes[-1]
        if count == last:
            if now_s - changed_s >= STALE_S:
                self._rate = 0.0
            return self._rate
        while len(self._changes) > 1 and self._changes[1][0] <= now_s - WINDOW_S:
            self._changes.popleft()
        since_s, before = self._changes[0]
        self._changes.append((now_s, count))
        self._rate = (count - before) / (now_s - since_s) if now_s > since_s else self._rate
        return self._rate


Tell = Callable[[Live], None]
COUNTED = ("sent", "received", "captured", "dropped", "decoded")


class Feed:
    """Joins what the sender, the sampler and the SUT say of now.

    None of this enters the books: those are read at rest. A reading costs the SUT one answer on
    its command socket. It costs the thread that sends nothing.
    """

    def __init__(
        self,
        sut: Callable[[], SutCounters | None],
        sampler: Sampler,
        offerer: Offerer,
        *,
        nics: Sequence[str],
        cpus: int,
        received_before: int,
        tell: Tell,
        polls: bool = False,
    ) -> None:
        """`polls`: the SUT's workers run whether packets come or not."""
        self._sut, self._sampler, self._offerer = sut, sampler, offerer
        self._nics, self._received_before, self._tell = nics, received_before, tell
        self._cpus, self._polls = cpus, polls
        self._rates = {name: SteppedRate() for name in COUNTED}
        self._began_ns = 0
        self._row: SampleRow | None = None
        self._busiest: BusyThread | None = None
        self._drops: list[DropReading] = []
        self.busy: list[Busy] = []
        """CPU use of the SUT between readings, from the first packet on."""

    def begin(self) -> None:
        """The first reading: what the counters stand at before the first packet."""
        self._began_ns = time.monotonic_ns()
        self.tick(0)

    def tick(self, sent_packets: int | None) -> None:
        self._look_at_threads()
        self._say("offer", time.monotonic_ns(), sent_packets, self._sut())

    def at_rest(self, counters: SutCounters, offered: OfferedLoad, mono_ns: int | None) -> None:
        """The last reading: the final counters, which have stood since the drain."""
        self._look_at_threads()
        at_ns = time.monotonic_ns() if mono_ns is None else mono_ns
        self._say("drained", at_ns, offered.sent_packets, counters)

    def losses(self, *, begin_ns: int, end_ns: int) -> tuple[Losses, ...] | None:
        """Intervals in which packets were lost, from all readings; the one at rest has been
        taken."""
        return losses(self._drops, begin_ns=begin_ns, end_ns=end_ns)

    def _say(
        self, phase: str, now_ns: int, sent_packets: int | None, sut: SutCounters | None
    ) -> None:
        received = self._received()
        counts = {
            "sent": sent_packets,
            "received": None if received is None else received - self._received_before,
            "captured": sut.captured_packets if sut else None,
            "dropped": sut.dropped_ring_full_packets if sut else None,
            "decoded": sut.decoded_packets if sut else None,
        }
        if sut is not None:
            self._drops.append(_drop_reading(sut, asked_mono_ns=now_ns))
        now_s = now_ns / 1e9
        # Rows come up to a second after they were taken.
        taken_s = {"received": self._row["mono_ns"] / 1e9} if self._row else {}
        rates = {
            name: self._rates[name].at(taken_s.get(name, now_s), counts[name])
            if phase == "offer"
            else None
            for name in COUNTED
        }
        told: dict[str, Any] = {f"{name}_packets": count for name, count in counts.items()}
        told |= {f"{name}_pps": rate for name, rate in rates.items()}
        self._tell(
            Live(
                mono_ns=now_ns,
                phase=phase,
                offering_s=(now_ns - self._began_ns) / 1e9,
                intended_s=self._offerer.intended_duration_s,
                intended_packets=self._offerer.intended_packets,
                dropped_by_thread=_dropped_by_thread(sut),
                busiest_thread=self._busiest,
                **told,
            )
        )

    def _look_at_threads(self) -> None:
        row = self._sampler.newest()
        if row is None or (self._row is not None and row["mono_ns"] <= self._row["mono_ns"]):
            return
        if self._row is not None and not self._polls:
            self._busiest = busiest_thread((self._row, row))
            if self._busiest is not None:
                before_ns, now_ns = self._row["mono_ns"], row["mono_ns"]
                used_ns = row["tree"]["cpu_ns"] - self._row["tree"]["cpu_ns"]
                share = used_ns / (now_ns - before_ns) / self._cpus
                full = max(share, self._busiest.cpu_ratio)
                self.busy.append(Busy(mono_ns=(before_ns + now_ns) // 2, cpu_ratio=full))
        self._row = row

    def _received(self) -> int | None:
        links = self._row.get("links", {}) if self._row else {}
        if not self._nics or not all(nic in links for nic in self._nics):
            return None
        return sum(links[nic]["rx_packets"] for nic in self._nics)


def _drop_reading(sut: SutCounters, *, asked_mono_ns: int) -> DropReading:
    """Reading of the SUT's drops, from counters that have been answered by now."""
    answered_ns = time.monotonic_ns()
    asking_ns = answered_ns - asked_mono_ns
    return DropReading(
        mono_ns=answered_ns,
        dropped=sut.dropped_ring_full_packets,
        lag_ns=round(sut.lag_s * 1e9) + asking_ns,
        by_thread=_dropped_by_thread(sut),
        by_thread_lag_ns=round(sut.per_thread_lag_s * 1e9) + asking_ns,
    )


def _dropped_by_thread(sut: SutCounters | None) -> dict[str, int]:
    each = {} if sut is None else sut.per_thread
    name = "dropped_ring_full_packets"
    return {thread: counted[name] for thread, counted in each.items() if name in counted}
