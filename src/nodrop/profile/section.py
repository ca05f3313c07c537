"""Where the time goes: functions and what they are for, by role, of trials with a profile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from markupsafe import Markup

from nodrop.profile.functions import (
    WAITS,
    Named,
    Profiled,
    RoleProfile,
    Stack,
    TrialProfile,
    flame,
    flame_difference,
    profiled,
    shifts_table,
)
from nodrop.report import numbers
from nodrop.report.chart import Chart
from nodrop.report.sections import Section, rendered
from nodrop.report.story import Story, once
from nodrop.report.tables import Column, Row, Table, Value, numeric, text, with_ends
from nodrop.results.trial import TrialRecord
from nodrop.stats.interval import Summary, summarize

WHOLE = "all of the SUT"
COUNTS = ("instructions", "cache_misses")
NOT_ASKED = "counters of the CPU were not asked for"
"""The node's words (crates/profile/src/lacks.rs)."""
NOT_HERE = "not on this host"

PerPacket = Mapping[str, float]
"""By the names of COUNTS, those that are known."""


def packets_table(cells: Sequence[Profiled]) -> Table | None:
    """None if no trial asked for such counters."""
    rows = tuple(row for cell in cells for row in _profile_packets_rows(cell))
    if not rows:
        return None
    of = "of the 95 % interval"
    return Table(
        name="profile-packets",
        title="What a packet takes, by the CPU's counters",
        columns=(
            Column(name="cell", title="Cell"),
            Column(name="thread", title="Thread"),
            Column(name="role", title="Role"),
            Column(
                name="packets",
                title="For each packet of",
                help="that it decoded (a receive thread: handed on); until the last was sent",
            ),
            numeric("instructions_per_packet", "Instructions", "median"),
            numeric("instructions_per_packet_low", "from", of),
            numeric("instructions_per_packet_high", "to", of),
            numeric("cache_misses_per_packet", "Cache misses", "of the last cache; median"),
            numeric("cache_misses_per_packet_low", "from", of),
            numeric("cache_misses_per_packet_high", "to", of),
        ),
        rows=rows,
    )


def _profile_packets_rows(cell: Profiled) -> Iterator[Row]:
    found: dict[tuple[str, str, str], list[tuple[Hashable, PerPacket]]] = {}
    lacks = ""
    for (start, trial), record in zip(cell.trials, cell.records, strict=True):
        lacks = lacks or trial.missing.get("hardware", "")
        for head, rates in per_packet(trial, record).items():
            found.setdefault(head, []).append((start, rates))
    if not found and lacks and lacks != NOT_ASKED:
        absent = text(NOT_HERE if NOT_HERE in lacks else "not seen")
        nothing = (Value(raw=None, shown="–"),) * 2
        of = (text(cell.label), text(WHOLE), text("–"), text("the SUT"))
        yield Row(values=(*of, *(absent, *nothing), *(absent, *nothing)))
    for head, trials in found.items():
        values = (
            value
            for name in COUNTS
            for value in with_ends(_summary(trials, name), _profile_packets_rate)
        )
        yield Row(values=(text(cell.label), *map(text, head), *values))


def per_packet(trial: TrialProfile, record: TrialRecord) -> dict[tuple[str, str, str], PerPacket]:
    """By thread, role and whose packets: the whole SUT first, then the threads with most
    instructions. A thread without packets of its own is held against the SUT's."""
    total = record.packets.decoded_packets
    if not total:
        return {}
    whole: dict[str, int] = {}
    for name in COUNTS:
        counts = [thread.hardware.get(name) for thread in trial.threads]
        if counts and None not in counts:
            whole[name] = sum(filter(None, counts))
    found = {(WHOLE, "–", "the SUT"): _over(whole, total)}
    own = _own_packets(record)
    names = [thread.name for thread in trial.threads]
    order = sorted(trial.threads, key=lambda one: -one.hardware.get("instructions", 0))
    for thread in order:
        # Several instances have threads of the same name: none of them can be told from another.
        if names.count(thread.name) == 1:
            packets = own.get(thread.name)
            head = thread.name, thread.role, "the thread" if packets else "the SUT"
            found[head] = _over(thread.hardware, packets or total)
    return {head: rates for head, rates in found.items() if any(rates.values())}


def _own_packets(record: TrialRecord) -> dict[str, int]:
    found = {}
    for thread in record.threads:
        packets = thread.decoded_packets
        if packets is None and thread.captured_packets is not None:
            packets = thread.captured_packets - (thread.dropped_packets or 0)
        if packets:
            found[thread.name] = packets
    return found


def _over(counts: Mapping[str, int], packets: int) -> PerPacket:
    return {name: counts[name] / packets for name in COUNTS if name in counts}


def _summary(trials: Sequence[tuple[Hashable, PerPacket]], name: str) -> Summary | None:
    known = [(start, rates[name]) for start, rates in trials if name in rates]
    return summarize([rate for _, rate in known], starts=[start for start, _ in known])


def _profile_packets_rate(rate: float | None) -> str:
    if rate is None or rate >= 100:
        return numbers.count(rate)
    return f"{rate:.2f}"


LOCKS = "locks and conditions"
LIBRARY = ("[[]*", "libc.so*", "libc-*", "libpthread*", "ld-linux*", "ld-musl*", "libstdc++*")
MOST_SITES = 8
"""Largest number of call sites shown for each role."""
LEAST_RATIO = 0.0005
"""Smallest share of a role's time that gets a row: less would be shown as 0.0."""
Site = tuple[str, str]
"""The call site, and what called it."""


def locks_table(cells: Sequence[Profiled]) -> Table | None:
    """None if no such wait was seen with its caller."""
    rows = tuple(_profile_locks_rows(cells))
    if not rows:
        return None
    return Table(
        name="profile-locks",
        title="Where they wait for locks and conditions",
        columns=(
            Column(name="cell", title="Cell"),
            Column(name="role", title="Role"),
            Column(
                name="site",
                title="Waits in",
                help="the function that called the C library; an idle thread waits as well",
            ),
            Column(name="caller", title="Called by"),
            numeric(
                "time_pct",
                "Of its time, %",
                "of all threads of the role together; median over the runs",
            ),
        ),
        rows=rows,
    )


def _profile_locks_rows(cells: Sequence[Profiled]) -> Iterator[Row]:
    for cell in cells:
        for role in cell.all_roles():
            for (site, caller), summary in cell.over(role, sites)[:MOST_SITES]:
                if summary.median < LEAST_RATIO:
                    break
                raw = summary.median * 100
                share = Value(raw=raw, shown=numbers.percent(summary.median))
                yield Row(values=(*map(text, (cell.label, role, site, caller)), share))


def sites(role: RoleProfile) -> dict[Site, float]:
    """Share of a role's time in which its threads waited for locks and conditions, by call site."""
    found: Counter[Site] = Counter()
    for stack, ns in role.waiting.items():
        if stack.group == LOCKS and (site := _site(stack)) is not None:
            found[site] += ns
    return {site: ns / role.seen_ns for site, ns in found.items()} if role.seen_ns else {}


def _site(stack: Stack) -> Site | None:
    own = [frame for frame in stack.frames if not _in_library(frame)]
    if not own:
        return None
    return own[-1].function, own[-2].function if len(own) > 1 else ""


def _in_library(frame: Named) -> bool:
    return any(fnmatchcase(frame.module, pattern) for pattern in LIBRARY)


def hardware_table(cells: Sequence[Profiled]) -> Table | None:
    """None if no trial has such counters: they were not asked for, or not on this host."""
    rows = tuple(_profile_hardware_rows(cells))
    if not rows:
        return None
    of = "of the 95 % interval"
    return Table(
        name="profile-hardware",
        title="What the CPU's counters say",
        columns=(
            Column(name="cell", title="Cell"),
            Column(name="role", title="Role"),
            numeric("ipc", "Instructions per cycle", "median"),
            numeric("ipc_low", "from", of),
            numeric("ipc_high", "to", of),
            numeric(
                "cache_misses", "Cache misses", "of the last cache, per 1,000 instructions; median"
            ),
            numeric("cache_misses_low", "from", of),
            numeric("cache_misses_high", "to", of),
            numeric(
                "reckoned_pct",
                "Reckoned, %",
                "of the time on a CPU: a counter had no turn there; the most of any run",
            ),
        ),
        rows=rows,
    )


def _profile_hardware_rows(cells: Sequence[Profiled]) -> Iterator[Row]:
    for cell in cells:
        for role in cell.roles():
            rates = dict(cell.over(role, lambda one: one.hardware_rates()))
            if not rates:
                continue
            of = [trial.roles[role] for _, trial in cell.trials if role in trial.roles]
            reckoned = max(one.uncounted_ns / max(1, one.cpu_ns) for one in of)
            yield Row(
                values=(
                    *(text(cell.label), text(role)),
                    *with_ends(rates.get("ipc"), _rate),
                    *with_ends(rates.get("misses"), _rate),
                    Value(raw=reckoned * 100, shown=numbers.percent(reckoned)),
                )
            )


def _rate(rate: float | None) -> str:
    return numbers.NOT_MEASURED if rate is None else f"{rate:.2f}"


def cost_table(cells: Sequence[Profiled]) -> Table | None:
    """None if nothing was sampled."""
    rows = tuple(_rows(cells))
    if not rows:
        return None
    return Table(
        name="profile-cost",
        title="What the profiler itself took",
        columns=(
            Column(name="cell", title="Cell"),
            numeric(
                "own_cpu_pct",
                "Of one CPU, %",
                "its own process, in a guest of a virtual CPU there; median over the runs",
            ),
            numeric("own_cpu_pct_most", "at most, %", "of any run"),
            numeric("threads", "Threads sampled", "the most of any run"),
            numeric("own_cpu_pct_per_thread", "For each of them, %", "median over the runs"),
        ),
        rows=rows,
    )


def _rows(cells: Sequence[Profiled]) -> Iterator[Row]:
    for cell in cells:
        of = [(start, trial) for start, trial in cell.trials if trial.sampled_threads]
        starts = [start for start, _ in of]
        took = summarize([trial.own_cpu_ratio for _, trial in of], starts=starts)
        each = summarize([t.own_cpu_ratio / t.sampled_threads for _, t in of], starts=starts)
        if took is None or each is None:
            continue
        threads = max(trial.sampled_threads for _, trial in of)
        yield Row(
            values=(
                text(cell.label),
                _profile_cost_percent(took.median),
                _profile_cost_percent(max(trial.own_cpu_ratio for _, trial in of)),
                Value(raw=threads, shown=str(threads)),
                _profile_cost_percent(each.median),
            )
        )


def _profile_cost_percent(ratio: float) -> Value:
    return Value(raw=ratio * 100, shown=numbers.percent(ratio))


MOST_FUNCTIONS = 15
"""Number of functions in the table for each role, the largest first; the flame graph has the
others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flames:
    """Flame graphs of one cell; empty if there is nothing to draw."""

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


@once
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


def _page(story: Story) -> Markup:
    found = profile_section(story)
    if found is None:
        return Markup("")
    return rendered("nodrop.profile", "profile.html.j2", story, profile=found)


SECTION = Section(
    id="profile", title="Where the time goes", tables=profile_tables, page=_page,
    place=30, with_search=False,
)  # fmt: skip
