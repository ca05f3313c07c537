"""Where the time goes: functions and what they are for, by role, of trials with a profile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from markupsafe import Markup

from nodrop.profile.functions import (
    WAITS,
    NamedFunctions,
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
from nodrop.report.tables import Field, Table, interval_fields, number, table_of, text, words
from nodrop.results.trial import TrialRecord
from nodrop.stats.interval import Summary, summarize

WHOLE = "all of the SUT"
COUNTS = ("instructions", "cache_misses")
NOT_ASKED = "counters of the CPU were not asked for"
"""The node's words (crates/profile/src/lacks.rs)."""
NOT_HERE = "not on this host"

PerPacket = Mapping[str, float]
"""Rates by the names of COUNTS, as far as they are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _PerPacket:
    """Rates for each packet, of a thread or of the whole SUT."""

    cell: str
    thread: str
    role: str
    whose: str
    """Name of whom the packets are counted for: the thread, or the SUT."""
    rates: Mapping[str, Summary | None]
    absent: str = ""
    """Why there are no rates."""


def _rate(rate: float) -> str:
    return numbers.count(rate) if rate >= 100 else f"{rate:.2f}"


def _rates(name: str, title: str, help: str) -> Iterator[Field[_PerPacket]]:
    names = (f"{name}_per_packet", f"{name}_per_packet_low", f"{name}_per_packet_high")
    fields: Sequence[Field[_PerPacket]] = interval_fields(
        names, (title, "from", "to"), lambda x: x.rates.get(name), _rate, help=help
    )
    median = fields[0]
    yield Field(median.column, lambda x: text(x.absent) if x.absent else median.of(x))
    yield from fields[1:]


PACKET_FIELDS: tuple[Field[_PerPacket], ...] = (
    words("cell", "Cell", lambda x: x.cell),
    words("thread", "Thread", lambda x: x.thread),
    words("role", "Role", lambda x: x.role),
    words("packets", "For each packet of", lambda x: x.whose,
          "that it decoded (a receive thread: handed on); until the last was sent"),
    *_rates("instructions", "Instructions", "median"),
    *_rates("cache_misses", "Cache misses", "of the last cache; median"),
)  # fmt: skip


def packets_table(cells: Sequence[Profiled]) -> Table | None:
    """Table of rates per packet; None if no trial asked for such counters."""
    found = (one for cell in cells for one in _per_packet(cell))
    title = "What a packet takes, by the CPU's counters"
    return _if_any(table_of("profile-packets", title, PACKET_FIELDS, found))


def _if_any(table: Table) -> Table | None:
    return table if table.rows else None


def _per_packet(cell: Profiled) -> Iterator[_PerPacket]:
    found: dict[tuple[str, str, str], list[tuple[Hashable, PerPacket]]] = {}
    lacks = ""
    for (start, trial), record in zip(cell.trials, cell.records, strict=True):
        lacks = lacks or trial.missing.get("hardware", "")
        for head, rates in per_packet(trial, record).items():
            found.setdefault(head, []).append((start, rates))
    if not found and lacks and lacks != NOT_ASKED:
        absent = NOT_HERE if NOT_HERE in lacks else "not seen"
        yield _PerPacket(cell=cell.label, thread=WHOLE, role="–", whose="the SUT", rates={},
                         absent=absent)  # fmt: skip
    for (thread, role, whose), trials in found.items():
        known = {name: _summary(trials, name) for name in COUNTS}
        yield _PerPacket(cell=cell.label, thread=thread, role=role, whose=whose, rates=known)


def per_packet(trial: TrialProfile, record: TrialRecord) -> dict[tuple[str, str, str], PerPacket]:
    """Rates by thread, role and whose packets: the whole SUT first, then the threads with most
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


LOCKS = "locks and conditions"
LIBRARY = ("[[]*", "libc.so*", "libc-*", "libpthread*", "ld-linux*", "ld-musl*", "libstdc++*")
MOST_SITES = 8
"""Largest number of call sites shown for each role."""
LEAST_RATIO = 0.0005
"""Smallest share of a role's time that gets a row: less would be shown as 0.0."""
Site = tuple[str, str]
"""The call site, and what called it."""


Waited = tuple[str, str, Site, float]
"""Cell, role, place, and its share of the role's time."""
LOCK_FIELDS: tuple[Field[Waited], ...] = (
    words("cell", "Cell", lambda x: x[0]),
    words("role", "Role", lambda x: x[1]),
    words("site", "Waits in", lambda x: x[2][0],
          "the function that called the C library; an idle thread waits as well"),
    words("caller", "Called by", lambda x: x[2][1]),
    number("time_pct", "Of its time, %", lambda x: x[3], numbers.percent, scale=100,
           help="of all threads of the role together; median over the runs"),
)  # fmt: skip


def locks_table(cells: Sequence[Profiled]) -> Table | None:
    """None if no such wait was seen with its caller."""
    title = "Where they wait for locks and conditions"
    return _if_any(table_of("profile-locks", title, LOCK_FIELDS, _waited(cells)))


def _waited(cells: Sequence[Profiled]) -> Iterator[Waited]:
    for cell in cells:
        for role in cell.all_roles():
            for site, summary in cell.over(role, sites)[:MOST_SITES]:
                if summary.median < LEAST_RATIO:
                    break
                yield cell.label, role, site, summary.median


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


def _in_library(frame: NamedFunctions) -> bool:
    return any(fnmatchcase(frame.module, pattern) for pattern in LIBRARY)


Counted = tuple[str, str, Mapping[str, Summary], float]
"""Cell, role, its rates, and the share of its time in which they were reckoned."""
HARDWARE_FIELDS: tuple[Field[Counted], ...] = (
    words("cell", "Cell", lambda x: x[0]),
    words("role", "Role", lambda x: x[1]),
    *interval_fields(
        ("ipc", "ipc_low", "ipc_high"), ("Instructions per cycle", "from", "to"),
        lambda x: x[2].get("ipc"), "{:.2f}".format, help="median"),
    *interval_fields(
        ("cache_misses", "cache_misses_low", "cache_misses_high"), ("Cache misses", "from", "to"),
        lambda x: x[2].get("misses"), "{:.2f}".format,
        help="of the last cache, per 1,000 instructions; median"),
    number("reckoned_pct", "Reckoned, %", lambda x: x[3], numbers.percent, scale=100,
           help="of the time on a CPU: a counter had no turn there; the most of any run"),
)  # fmt: skip


def hardware_table(cells: Sequence[Profiled]) -> Table | None:
    """None if no trial has such counters: they were not asked for, or not on this host."""
    title = "What the CPU's counters say"
    return _if_any(table_of("profile-hardware", title, HARDWARE_FIELDS, _counted(cells)))


def _counted(cells: Sequence[Profiled]) -> Iterator[Counted]:
    for cell in cells:
        for role in cell.roles():
            if rates := dict(cell.over(role, lambda one: one.hardware_rates())):
                of = [trial.roles[role] for _, trial in cell.trials if role in trial.roles]
                reckoned = max(one.uncounted_ns / max(1, one.cpu_ns) for one in of)
                yield cell.label, role, rates, reckoned


Cost = tuple[str, Summary, float, int, Summary]
"""Cell, the profiler's share of one CPU, its most, threads sampled, and the share for each."""
COST_FIELDS: tuple[Field[Cost], ...] = (
    words("cell", "Cell", lambda x: x[0]),
    number("own_cpu_pct", "Of one CPU, %", lambda x: x[1].median, numbers.percent, scale=100,
           help="its own process, in a guest of a virtual CPU there; median over the runs"),
    number("own_cpu_pct_most", "at most, %", lambda x: x[2], numbers.percent, scale=100,
           help="of any run"),
    number("threads", "Threads sampled", lambda x: x[3], str, help="the most of any run"),
    number("own_cpu_pct_per_thread", "For each of them, %", lambda x: x[4].median,
           numbers.percent, scale=100, help="median over the runs"),
)  # fmt: skip


def cost_table(cells: Sequence[Profiled]) -> Table | None:
    """None if nothing was sampled."""
    title = "What the profiler itself took"
    return _if_any(table_of("profile-cost", title, COST_FIELDS, _costs(cells)))


def _costs(cells: Sequence[Profiled]) -> Iterator[Cost]:
    for cell in cells:
        of = [(start, trial) for start, trial in cell.trials if trial.sampled_threads]
        starts = [start for start, _ in of]
        took = summarize([trial.own_cpu_ratio for _, trial in of], starts=starts)
        each = summarize([t.own_cpu_ratio / t.sampled_threads for _, t in of], starts=starts)
        if took is not None and each is not None:
            most = max(trial.own_cpu_ratio for _, trial in of)
            yield cell.label, took, most, max(t.sampled_threads for _, t in of), each


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
    said = tuple(_words(cells))
    return ProfileSection(
        words=said,
        roles=replace(_roles_table(cells), words=said),
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
    section = profile_section(story)
    if section is not None:
        yield from (section.roles, section.groups, section.functions)
        others = (section.hardware, section.packets, section.locks, section.shifts, section.cost)
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
        if said := _at_once(cell):
            yield said


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


Did = tuple[str, str, int, Sequence[float | None]]
"""Cell, role, its threads, and the shares of its time on a CPU, queued and asleep."""
ROLE_FIELDS: tuple[Field[Did], ...] = (
    words("cell", "Cell", lambda x: x[0]),
    words("role", "Role", lambda x: x[1]),
    number("threads", "Threads", lambda x: x[2], str),
    number("cpu_pct", "On a CPU, %", lambda x: x[3][0], numbers.percent, scale=100),
    number("queued_pct", "Queued, %", lambda x: x[3][1], numbers.percent, scale=100,
           help="wanted a CPU, had none"),
    number("blocked_pct", "Asleep, %", lambda x: x[3][2], numbers.percent, scale=100),
)  # fmt: skip


def _roles_table(cells: Sequence[Profiled]) -> Table:
    def of(part: str) -> Callable[[RoleProfile], Mapping[str, float]]:
        return lambda role: {part: getattr(role, part) / role.seen_ns} if role.seen_ns else {}

    def did() -> Iterator[Did]:
        for cell in cells:
            for role in cell.roles():
                threads = max(t.roles[role].threads for _, t in cell.trials if role in t.roles)
                parts = [cell.over(role, of(p)) for p in ("cpu_ns", "queued_ns", "blocked_ns")]
                yield cell.label, role, threads, [p[0][1].median if p else None for p in parts]

    return table_of("profile-roles", "What the threads of each role did", ROLE_FIELDS, did())


Spent = tuple[str, str, str, Summary | None, Summary | None]
"""Cell, role, purpose, and its shares of what ran and of the role's waits."""
SHARE_NAMES = ("share_pct", "low_pct", "high_pct")
GROUP_FIELDS: tuple[Field[Spent], ...] = (
    words("cell", "Cell", lambda x: x[0]),
    words("role", "Role", lambda x: x[1]),
    words("group", "For", lambda x: x[2],
          "src/nodrop/findings/function_groups.toml says which functions"),
    *interval_fields(SHARE_NAMES, ("On a CPU, %", "from, %", "to, %"), lambda x: x[3],
                     numbers.percent, scale=100, help="median over the runs"),
    number("waits_pct", "Of its waits, %", lambda x: x[4].median if x[4] else None,
           numbers.percent, scale=100,
           help="of the time off the CPU of its own will; median over the runs"),
)  # fmt: skip


def _groups_table(cells: Sequence[Profiled]) -> Table:
    def spent() -> Iterator[Spent]:
        for cell in cells:
            for role in cell.roles():
                waits = dict(cell.over(role, lambda one: one.group_shares(waiting=True)))
                for group, summary in cell.over(role, lambda one: one.group_shares()):
                    yield cell.label, role, group, summary, waits.pop(group, None)
                for group, wait in waits.items():
                    yield cell.label, role, group, None, wait

    return table_of("profile-groups", "What the time went to", GROUP_FIELDS, spent())


Ran = tuple[str, str, NamedFunctions, Summary]
FUNCTION_FIELDS: tuple[Field[Ran], ...] = (
    words("cell", "Cell", lambda x: x[0]),
    words("role", "Role", lambda x: x[1]),
    words("function", "Function", lambda x: x[2].function),
    words("module", "File", lambda x: x[2].module),
    *interval_fields(SHARE_NAMES, ("Of the role's samples, %", "from, %", "to, %"),
                     lambda x: x[3], numbers.percent, scale=100, help="median over the runs"),
)  # fmt: skip


def _functions_table(cells: Sequence[Profiled]) -> Table:
    ran = (
        (cell.label, role, named, summary)
        for cell in cells
        for role in cell.roles()
        for named, summary in cell.over(role, lambda one: one.shares())[:MOST_FUNCTIONS]
    )
    return table_of("profile-functions", "Functions that ran", FUNCTION_FIELDS, ran)


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
    """Groups by their shares of what ran and of what waited, in all cells."""
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
    section = profile_section(story)
    if section is None:
        return Markup("")
    return rendered("nodrop.profile", "profile.html.j2", story, profile=section)


SECTION = Section(
    id="profile", title="Where the time goes", tables=profile_tables, page=_page,
    place=30, with_search=False,
)  # fmt: skip
