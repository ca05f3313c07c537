"""Who else has this host: programs that are no part of a trial, the hypervisor, a CPU quota.

A trial is judged by what it measured; this says why so many of them measure nothing, while there is
still a budget to save.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from nodrop.config.units import format_cpus, format_seconds
from nodrop.hosts.control_groups import own_quotas
from nodrop.ledger.quota import DISTURBS, KNOBS
from nodrop.ledger.reasons import Reason
from nodrop.results.trial import OTHERS, STEAL, Program, TrialRecord

KERNEL_THREAD = 0x00200000
"""PF_KTHREAD: its time is the packets' own work (ksoftirqd, kworker)."""
LOOK_S = 0.5
"""A look at an idle host is long enough to see who takes a tick of 10 ms in ten."""
NAMED_CPUS = 0.05
"""Programs below this part of a CPU are not named."""
MOST_PROGRAMS = 3
LEAST_TRIALS = 2
"""So many disturbed trials, and at least half of all, are no accident."""
WHY_VOID = frozenset({Reason.SENDER_LATE, Reason.SENDER_BURST, Reason.CPU_STOLEN})


@dataclass(frozen=True, slots=True)
class _Process:
    name: str
    parent: int
    start_ticks: int
    kernel: bool
    own_ticks: int
    ticks: int
    """Its own, and those of children that it has waited for."""


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
        found = [
            Program(
                name=now[pid].name,
                pid=pid,
                cpu_s=ticks / hz,
                by_children=2 * (now[pid].own_ticks - self._own_before(pid, now[pid])) < ticks,
            )
            for pid, ticks in rises.items()
            if pid not in ours and not now[pid].kernel and ticks / hz >= NAMED_CPUS * elapsed_s
        ]
        return tuple(sorted(found, key=lambda one: -one.cpu_s)[:MOST_PROGRAMS])

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
            f"{DISTURBS}a CPU quota holds nodrop itself, the sender and what it starts to "
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
            f"{DISTURBS}other programs are at work here ({taken}): end them, or measure on other "
            "CPUs (load.cpu, limits.cpus)"
        )


def host_notes() -> list[str]:
    return [*quota_words(), *busy_words()]


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
        said += f"; {len(void)} of them say nothing of the SUT"
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
    free = _free_cpus(hit)
    away = f", or move it: taskset --all-tasks -cp {free} {program.pid}" if free else ""
    return f"What helps: end {_named(program)}{away}"


def _worst_program(hit: Sequence[TrialRecord]) -> Program | None:
    """The one with the most CPU time in all of these trials together."""
    cpu_s: dict[tuple[str, int], float] = {}
    found = [one for record in hit if record.disturbed for one in record.disturbed.programs]
    for one in found:
        cpu_s[one.name, one.pid] = cpu_s.get((one.name, one.pid), 0.0) + one.cpu_s
    return max(found, key=lambda one: cpu_s[one.name, one.pid], default=None)


def _free_cpus(hit: Sequence[TrialRecord]) -> str:
    """CPUs of this host that the last of these trials left alone."""
    used = hit[-1].disturbed.cpus if hit[-1].disturbed else []
    return format_cpus(cpu for cpu in range(os.cpu_count() or 0) if cpu not in used)


def _named(program: Program) -> str:
    named = f"{program.name} (pid {program.pid})"
    return f"what {named} runs" if program.by_children else named
