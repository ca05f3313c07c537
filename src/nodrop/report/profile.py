"""Where the time goes: functions and what they are for, by role, of trials with a profile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from nodrop.findings.functions import Named, RoleProfile
from nodrop.report import numbers
from nodrop.report.chart import Chart
from nodrop.report.flows import WAITS, flame, flame_difference
from nodrop.report.profile_cost import cost_table
from nodrop.report.profile_hardware import hardware_table
from nodrop.report.profile_locks import locks_table
from nodrop.report.profile_packets import packets_table
from nodrop.report.profile_shift import shifts_table
from nodrop.report.profiled import Profiled, profiled
from nodrop.report.story import Story
from nodrop.report.tables import Column, Row, Table, Value, numeric, text, with_ends
from nodrop.stats.interval import Summary, summarize

MOST_FUNCTIONS = 15
"""Of each role, the largest; the flame graph has the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flames:
    """Of one cell; empty if there is nothing to draw."""

    label: str
    running: Chart
    waiting: Chart
    against_first: Chart
    """Empty for the first cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSection:
    words: tuple[str, ...]
    roles: Table
    cost: Table | None
    hardware: Table | None
    packets: Table | None
    groups: Table
    locks: Table | None
    functions: Table
    shifts: Table | None
    flames: tuple[Flames, ...]


def profile_section(story: Story) -> ProfileSection | None:
    """None if no trial has a profile."""
    cells = profiled(story)
    if not cells:
        return None
    words = tuple(_words(cells))
    return ProfileSection(
        words=words,
        roles=replace(_roles_table(cells), words=words),
        cost=cost_table(cells),
        hardware=hardware_table(cells),
        packets=packets_table(cells),
        groups=_groups_table(cells),
        locks=locks_table(cells),
        functions=_functions_table(cells),
        shifts=shifts_table(cells),
        flames=tuple(_flames(cells)),
    )


def profile_tables(story: Story) -> Iterator[Table]:
    found = profile_section(story)
    if found is not None:
        yield from (found.roles, found.groups, found.functions)
        others = (found.hardware, found.packets, found.locks, found.shifts, found.cost)
        yield from (table for table in others if table)


def _words(cells: Sequence[Profiled]) -> Iterator[str]:
    trials = [trial for cell in cells for _, trial in cell.trials]
    if own := max(trial.own_cpu_ratio for trial in trials):
        yield (
            f"The profiler's own process took at most {numbers.percent(own)} % of one CPU. What "
            "its samples took of the SUT's threads is not in this figure"
        )
    lost = sum(trial.lost for trial in trials)
    if lost:
        were = "record was" if lost == 1 else "records were"
        yield f"{numbers.count(lost)} {were} lost, so the shares rest on the others"
    for why in sorted({f"{w}: {why}" for t in trials for w, why in t.missing.items()}):
        yield f"Not seen: {why}"
    for cell in cells:
        if words := _at_once(cell):
            yield words


def _at_once(cell: Profiled) -> str:
    """How many threads ran at the same moment."""
    known = [(start, trial) for start, trial in cell.trials if trial.concurrency]
    if not known:
        return ""
    most = max(len(trial.concurrency) for _, trial in known)
    parts = []
    for count in range(most):
        of = [t.concurrency[count] if count < len(t.concurrency) else 0.0 for _, t in known]
        summary = summarize(of, starts=[start for start, _ in known])
        if summary is not None and summary.median >= 0.0005:
            parts.append(f"{count}: {numbers.percent(summary.median)} %")
    error = max(trial.concurrency_error for _, trial in known)
    return (
        f"{cell.label}: threads of the SUT on a CPU at once, part of the time: {', '.join(parts)}; "
        f"not certain for at most {numbers.percent(error)} %"
    )


def _shared(title: str) -> tuple[Column, ...]:
    return (
        numeric("share_pct", title, "median over the runs"),
        numeric("low_pct", "from, %", "of the 95 % interval"),
        numeric("high_pct", "to, %", "of the 95 % interval"),
    )


def _share(summary: Summary | None) -> tuple[Value, ...]:
    return with_ends(summary, numbers.percent, 100)


def _percent(ratio: float | None) -> Value:
    raw = None if ratio is None else ratio * 100
    return Value(raw=raw, shown="–" if ratio is None else numbers.percent(ratio))


CELL_AND_ROLE = (Column(name="cell", title="Cell"), Column(name="role", title="Role"))


def _roles_table(cells: Sequence[Profiled]) -> Table:
    def of(part: str) -> Callable[[RoleProfile], Mapping[str, float]]:
        return lambda role: {part: getattr(role, part) / role.seen_ns} if role.seen_ns else {}

    def rows() -> Iterator[Row]:
        for cell in cells:
            for role in cell.roles():
                threads = max(t.roles[role].threads for _, t in cell.trials if role in t.roles)
                parts = [cell.over(role, of(p)) for p in ("cpu_ns", "queued_ns", "blocked_ns")]
                shown = [_percent(part[0][1].median if part else None) for part in parts]
                head = (text(cell.label), text(role), Value(raw=threads, shown=str(threads)))
                yield Row(values=(*head, *shown))

    return Table(
        name="profile-roles",
        title="What the threads of each role did",
        columns=(
            *CELL_AND_ROLE,
            numeric("threads", "Threads"),
            numeric("cpu_pct", "On a CPU, %"),
            numeric("queued_pct", "Queued, %", "wanted a CPU, had none"),
            numeric("blocked_pct", "Asleep, %"),
        ),
        rows=tuple(rows()),
    )


def _groups_table(cells: Sequence[Profiled]) -> Table:
    def rows() -> Iterator[Row]:
        for cell in cells:
            for role in cell.roles():
                waits = dict(cell.over(role, lambda one: one.group_shares(waiting=True)))
                for group, summary in cell.over(role, lambda one: one.group_shares()):
                    wait = waits.pop(group, None)
                    asleep = _percent(wait.median if wait else None)
                    head = (text(cell.label), text(role), text(group))
                    yield Row(values=(*head, *_share(summary), asleep))
                for group, wait in waits.items():
                    head = (text(cell.label), text(role), text(group))
                    yield Row(values=(*head, *_share(None), _percent(wait.median)))

    return Table(
        name="profile-groups",
        title="What the time went to",
        columns=(
            *CELL_AND_ROLE,
            Column(
                name="group",
                title="For",
                help="src/nodrop/findings/function_groups.toml says which functions",
            ),
            *_shared("On a CPU, %"),
            numeric(
                "waits_pct",
                "Of its waits, %",
                "of the time off the CPU of its own will; median over the runs",
            ),
        ),
        rows=tuple(rows()),
    )


def _functions_table(cells: Sequence[Profiled]) -> Table:
    def rows() -> Iterator[Row]:
        for cell in cells:
            for role in cell.roles():
                found: list[tuple[Named, Summary]] = cell.over(role, lambda one: one.shares())
                for named, summary in found[:MOST_FUNCTIONS]:
                    head = (text(cell.label), text(role), text(named.function), text(named.module))
                    yield Row(values=(*head, *_share(summary)))

    return Table(
        name="profile-functions",
        title="Functions that ran",
        columns=(
            *CELL_AND_ROLE,
            Column(name="function", title="Function"),
            Column(name="module", title="File"),
            *_shared("Of the role's samples, %"),
        ),
        rows=tuple(rows()),
    )


def _flames(cells: Sequence[Profiled]) -> Iterator[Flames]:
    largest = _largest_groups(cells)
    for cell in cells:
        yield Flames(
            label=cell.label,
            running=flame(cell.label, _pooled(cell), largest=largest),
            waiting=flame(
                f"the waits of {cell.label}",
                _pooled(cell, waiting=True),
                largest=largest,
                weighed=WAITS,
            ),
            against_first=Chart()
            if cell is cells[0]
            else flame_difference(cell.label, cells[0].label, _pooled(cell), _pooled(cells[0])),
        )


def _largest_groups(cells: Sequence[Profiled]) -> list[str]:
    """By their shares of what ran and of what waited, in all cells."""
    total: Counter[str] = Counter()
    for cell in cells:
        for _, trial in cell.trials:
            for role in trial.roles.values():
                for waiting in (False, True):
                    total.update(role.group_shares(waiting=waiting))
    return [group for group, _ in sorted(total.items(), key=lambda one: (-one[1], one[0]))]


def _pooled(cell: Profiled, *, waiting: bool = False) -> dict[tuple[str, ...], tuple[int, str]]:
    """Samples, or ns of waits, of all trials and the group, by role and frames."""
    found: dict[tuple[str, ...], tuple[int, str]] = {}
    for _, trial in cell.trials:
        for role, profile in trial.roles.items():
            stacks = profile.waiting if waiting else profile.running
            for stack, weight in stacks.items():
                way = (role, *(f"{f.module}: {f.function}" for f in stack.frames))
                before, _ = found.get(way, (0, ""))
                found[way] = (before + weight, stack.group)
    return found
