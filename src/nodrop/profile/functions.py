"""Where the time of a profiled trial went: shares by function and by what functions are for."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from math import sqrt
from statistics import median
from typing import Any, TypeVar

from nodrop.report import numbers
from nodrop.report.chart import LETTER, Chart, Pane, Plot, Scale, cut, number, tag
from nodrop.report.story import RunCell, Story, once
from nodrop.report.tables import Field, Table, table_of, words
from nodrop.report.tables import number as of_number
from nodrop.report.trials import StoredTrial
from nodrop.results.layout import PROFILE
from nodrop.results.rundir import Damage
from nodrop.results.trial import TrialRecord
from nodrop.stats.comparison import Comparison, ComparisonRule, Relation, compare
from nodrop.stats.interval import Family, Summary, by_start, summarize

OTHER = "other"
"""Group of stacks that no pattern names."""
UNNAMED = "without a name"
"""Group of stacks that no pattern names and that have a function without a name: a static one of a
stripped file."""
NO_SYMBOL = "(no symbol)"
HARDWARE = ("cycles", "instructions", "cache_misses")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFunctions:
    module: str
    function: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """Functions on a stack, the outermost caller first."""

    frames: tuple[NamedFunctions, ...]
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleProfile:
    """The threads of one role together, in one trial."""

    role: str
    threads: int
    seen_ns: int
    cpu_ns: int
    queued_ns: int
    blocked_ns: int
    running: Mapping[Stack, int]
    """Samples by stack."""
    waiting: Mapping[Stack, int]
    """ns off the CPU of its own will, by the stack it left with."""
    hardware: Mapping[str, int]
    """`cycles`, `instructions`, `cache_misses`: those that were counted in all its threads."""
    uncounted_ns: int
    """Time on a CPU while one of those had no counter, and was reckoned."""

    def hardware_rates(self) -> dict[str, float]:
        """`ipc` (instructions per cycle) and `misses` (of the last cache, per 1,000 instructions):
        what is known of them."""
        counted = self.hardware
        found = {}
        if counted.get("cycles") and "instructions" in counted:
            found["ipc"] = counted["instructions"] / counted["cycles"]
        if counted.get("instructions") and "cache_misses" in counted:
            found["misses"] = 1000 * counted["cache_misses"] / counted["instructions"]
        return found

    def shares(self) -> dict[NamedFunctions, float]:
        """Shares of the samples, by the function that ran."""
        found: Counter[NamedFunctions] = Counter()
        for stack, samples in self.running.items():
            found[stack.frames[-1]] += samples
        return _of_total(found)

    def group_shares(self, *, waiting: bool = False) -> dict[str, float]:
        found: Counter[str] = Counter()
        for stack, weight in (self.waiting if waiting else self.running).items():
            found[stack.group] += weight
        return _of_total(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedThread:
    """One thread, by the CPU's own counters."""

    name: str
    role: str
    hardware: Mapping[str, int]
    """Counts of those of `HARDWARE` that were counted, as a role has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialProfile:
    roles: Mapping[str, RoleProfile]
    threads: tuple[CountedThread, ...] = ()
    sampled_threads: int = 0
    """Number of threads with a sample."""
    own_cpu_ratio: float
    """Share of one CPU that the profiler's own process took. The time that samples take from the
    threads is not in it."""
    lost: int
    missing: Mapping[str, str]
    """Data that could not be had, and why."""
    concurrency: tuple[float, ...]
    """Part of the time by the number of threads on a CPU at once; empty if not known."""
    concurrency_error: float
    """Part of the time that is not certain."""

    def share(self, roles: Collection[str], groups: Collection[str]) -> float | None:
        """Part of these roles' samples that is in these groups; None if there are no samples."""
        found: Counter[bool] = Counter()
        for role in roles:
            if role in self.roles:
                for stack, samples in self.roles[role].running.items():
                    found[stack.group in groups] += samples
        return found[True] / found.total() if found.total() else None


def trial_profile(said: Mapping[str, Any]) -> TrialProfile:
    """Profile from the content of profile.json. KeyError, TypeError, ValueError or IndexError if it
    is damaged."""
    names = [_named(function) for function in said["functions"]]
    stacks = [_stack(tuple(names[index] for index in stack)) for stack in said["stacks"]]
    by_role: dict[str, list[Mapping[str, Any]]] = {}
    for thread in said["threads"]:
        by_role.setdefault(str(thread["role"] or OTHER), []).append(thread)
    took_ns = max(1, int(said["ended_mono_ns"]) - int(said["began_mono_ns"]))
    together = said["concurrency"] or {"ns": [], "unsure_ns": 0}
    total_ns = max(1, sum(together["ns"]))
    return TrialProfile(
        roles={role: _role(role, threads, stacks) for role, threads in by_role.items()},
        threads=tuple(map(_counted, said["threads"])),
        sampled_threads=sum(bool(thread["running"]) for thread in said["threads"]),
        own_cpu_ratio=said["own_cpu_ns"] / took_ns,
        lost=sum(thread["lost"] for thread in said["threads"]),
        missing={str(one["what"]): str(one["why"]) for one in said["missing"]},
        concurrency=tuple(ns / total_ns for ns in together["ns"]),
        concurrency_error=together["unsure_ns"] / total_ns,
    )


def _role(
    role: str, threads: Sequence[Mapping[str, Any]], stacks: Sequence[Stack | None]
) -> RoleProfile:
    running: Counter[Stack] = Counter()
    waiting: Counter[Stack] = Counter()
    for thread in threads:
        for one in thread["running"]:
            if (stack := stacks[one["stack"]]) is not None:
                running[stack] += int(one["samples"])
        for one in thread["waiting"]:
            if (stack := stacks[one["stack"]]) is not None:
                waiting[stack] += int(one["ns"])
    return RoleProfile(
        role=role,
        threads=len(threads),
        seen_ns=sum(int(thread["seen_ns"]) for thread in threads),
        cpu_ns=sum(int(thread["cpu_ns"]) for thread in threads),
        queued_ns=sum(int(thread["queued_ns"]) for thread in threads),
        blocked_ns=sum(int(thread["blocked_ns"]) for thread in threads),
        running=running,
        waiting=waiting,
        hardware=_hardware(threads),
        uncounted_ns=sum(int(thread.get("uncounted_ns", 0)) for thread in threads),
    )


def _hardware(threads: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    found = {}
    for name in HARDWARE:
        counts = [thread.get(name) for thread in threads]
        if None not in counts:
            found[name] = sum(map(int, filter(None, counts)))
    return found


def _counted(thread: Mapping[str, Any]) -> CountedThread:
    role = str(thread["role"] or OTHER)
    name = str(thread.get("name", ""))
    return CountedThread(name=name, role=role, hardware=_hardware([thread]))


def _named(function: Mapping[str, Any]) -> NamedFunctions:
    module, name, begins = str(function["module"]), function["name"], function["begins"]
    if name is None:
        name = "" if begins is None else f"+{int(begins):#x}"
    return NamedFunctions(module=module, function=str(name) or NO_SYMBOL)


def _stack(frames: tuple[NamedFunctions, ...]) -> Stack | None:
    return Stack(frames=frames, group=group_of(frames)) if frames else None


def group_of(frames: Sequence[NamedFunctions]) -> str:
    """Group of the innermost function that a pattern names."""
    for frame in reversed(frames):
        if (group := _group(frame.module, frame.function)) is not None:
            return group
    unnamed = any(frame.function.startswith(("+0x", NO_SYMBOL)) for frame in frames)
    return UNNAMED if unnamed else OTHER


@cache
def groups() -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Groups and their patterns, of function_groups.toml."""
    text = files("nodrop.findings").joinpath("function_groups.toml").read_text("utf-8")
    return tuple((g["name"], tuple(g["functions"])) for g in tomllib.loads(text)["group"])


@cache
def _group(module: str, function: str) -> str | None:
    whole = f"{module}:{function}"
    found = (name for name, patterns in groups() if any(fnmatchcase(whole, p) for p in patterns))
    return next(found, None)


def _of_total(found: Mapping[Any, int]) -> dict[Any, float]:
    total = sum(found.values())
    return {name: count / total for name, count in found.items()} if total else {}


MOST_CELLS = 12
KeyT = TypeVar("KeyT", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """A cell and its measured trials that have a profile."""

    label: str
    trials: tuple[tuple[Hashable, TrialProfile], ...]
    """Profiles, each with the start of the SUT."""
    records: tuple[TrialRecord, ...] = ()
    """Records of the trials, in their order."""

    def roles(self) -> list[str]:
        """Roles, the one with most samples first."""
        total: dict[str, int] = {}
        for _, trial in self.trials:
            for role, found in trial.roles.items():
                total[role] = total.get(role, 0) + sum(found.running.values())
        return sorted((r for r in total if total[r]), key=lambda role: (-total[role], role))

    def all_roles(self) -> list[str]:
        """Roles that ran, and those as well that never ran while they were looked at."""
        ran = self.roles()
        return [*ran, *sorted({r for _, trial in self.trials for r in trial.roles} - {*ran})]

    def over(
        self, role: str, shares: Callable[[RoleProfile], Mapping[KeyT, float]]
    ) -> list[tuple[KeyT, Summary]]:
        """Share of each key over all trials in which the role ran; the largest first."""
        starts, values = self._values(role, shares)
        told = [(key, summarize(of, starts=starts)) for key, of in values.items()]
        known = [(key, summary) for key, summary in told if summary is not None]
        return sorted(known, key=lambda one: (-one[1].median, str(one[0])))

    def by_start(
        self, role: str, shares: Callable[[RoleProfile], Mapping[KeyT, float]]
    ) -> dict[KeyT, list[float]]:
        """Shares of each key, one figure for each start of the SUT in which the role ran."""
        starts, values = self._values(role, shares)
        return {key: by_start(of, starts) for key, of in values.items()}

    def _values(
        self, role: str, shares: Callable[[RoleProfile], Mapping[KeyT, float]]
    ) -> tuple[list[Hashable], dict[KeyT, list[float]]]:
        found = [(start, shares(t.roles[role])) for start, t in self.trials if role in t.roles]
        found = [(start, of) for start, of in found if of]
        keys = {key for _, of in found for key in of}
        values = {key: [of.get(key, 0.0) for _, of in found] for key in keys}
        return [start for start, _ in found], values


@once
def profiled(story: Story) -> list[Profiled]:
    """The first cells that have any."""
    found = []
    for cell in story.cells:
        trials = tuple(_trials(story, cell))
        if trials:
            label = f"{cell.label} {cell.load_label}".strip()
            seen = tuple((trial.start, profile) for trial, profile in trials)
            records = tuple(trial.record for trial, _ in trials)
            found.append(Profiled(label=label or "all", trials=seen, records=records))
    return found[:MOST_CELLS]


def _trials(story: Story, cell: RunCell) -> Iterator[tuple[StoredTrial, TrialProfile]]:
    for trial in cell.valid:
        if (profile := profile_of(story, trial)) is not None:
            yield trial, profile


def profile_of(story: Story, trial: StoredTrial) -> TrialProfile | None:
    """None if it has none, or a damaged one."""
    said = story.sources[trial.source].run.detail(trial.name, PROFILE)
    if said is None or isinstance(said, Damage):
        return None
    try:
        return trial_profile(said)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        return None


MARGIN = 0.02
"""Share of the samples: shares that differ by less are the same."""
MOST_FUNCTIONS = 10
"""Number of functions in the table for each role and cell: those that shifted most."""

Shares = Callable[[RoleProfile], Mapping[str, float]]


def _signed(ratio: float) -> str:
    return f"{'+' if ratio > 0 else ''}{numbers.percent(ratio)}"


Shift = tuple[str, str, str, str, float, Comparison, str]
"""Cell, role, kind and name, its share in the first cell, the comparison, and its verdict."""


SHIFT_FIELDS: tuple[Field[Shift], ...] = (
    words("cell", "Cell", lambda x: x[0]),
    words("role", "Role", lambda x: x[1]),
    words("kind", "Of", lambda x: x[2]),
    words("name", "Name", lambda x: x[3]),
    of_number("before_pct", "First cell, %", lambda x: x[4], numbers.percent, scale=100),
    of_number("after_pct", "This cell, %", lambda x: x[4] + x[5].shift, numbers.percent, scale=100),
    of_number("shift_points", "Shift, points", lambda x: x[5].shift, _signed, scale=100),
    of_number("low_points", "from", lambda x: x[5].interval.low if x[5].interval else None,
              _signed, scale=100, help="of the 95 % interval"),
    of_number("high_points", "to", lambda x: x[5].interval.high if x[5].interval else None,
              _signed, scale=100, help="of the 95 % interval"),
    words("verdict", "Verdict", lambda x: x[6]),
)  # fmt: skip


def shifts_table(cells: Sequence[Profiled]) -> Table | None:
    """Table of shifts of every other cell against the first; None if there is no role that both
    have."""
    shifts = (shift for other in cells[1:] for shift in _shifts(cells[0], other))
    title = f"What shifted against {cells[0].label}"
    table = table_of("profile-shifts", title, SHIFT_FIELDS, shifts)
    return table if table.rows else None


def _shifts(base: Profiled, other: Profiled) -> Iterator[Shift]:
    for role in base.roles():
        if role not in other.roles():
            continue
        groups = list(_shifted(base, other, role, lambda one: one.group_shares()))
        functions = list(_shifted(base, other, role, _by_function))
        for kind, found in (("group", groups), ("function", functions[:MOST_FUNCTIONS])):
            for name, before, compared, verdict in found:
                yield other.label, role, kind, name, before, compared, verdict


def _by_function(role: RoleProfile) -> dict[str, float]:
    return {f"{one.function} ({one.module})": share for one, share in role.shares().items()}


def _shifted(
    base: Profiled, other: Profiled, role: str, shares: Shares
) -> Iterator[tuple[str, float, Comparison, str]]:
    """The largest shift first. All keys are looked at, so all count in the error."""
    before, after = base.by_start(role, shares), other.by_start(role, shares)
    keys = sorted({*before, *after})
    family = Family(parts=max(1, 2 * len(keys)))
    asked = ComparisonRule(absolute=MARGIN, family=family)
    none_before, none_after = ([0.0] * len(next(iter(one.values()), ())) for one in (before, after))
    found = []
    for key in keys:
        was = before.get(key, none_before)
        compared = compare(was, after.get(key, none_after), asked)
        if compared is not None:
            found.append((key, median(was), compared, _verdict(compared, family)))
    yield from sorted(found, key=lambda one: -abs(one[2].shift))


def _verdict(compared: Comparison, family: Family) -> str:
    if compared.answer is Relation.DIFFERENT:
        return "more" if compared.shift > 0 else "less"
    if compared.answer is Relation.SAME:
        return f"same within {MARGIN * 100:g} points"
    if compared.interval is None:
        return f"cannot tell: needs {family.runs_needed()} runs of each"
    return "cannot tell"


# Flame graphs: where a role ran or waited, and what shifted against another cell.

FLAME_ROW = 18
NARROWEST = 0.002
"""A part of the whole below which a function is not drawn."""
DEEPEST = 40
OWN_STYLES = (0, 1, 2, 3, 4, 5, 7)
"""Styles of the largest groups; all others are grey."""
GREY, MORE, LESS = 6, 1, 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WidthBy:
    """The measure of a flame graph's widths."""

    of: str
    """Words for the whole."""
    shown: str
    """A format of the weight."""
    divisor: int = 1


SAMPLES = WidthBy(of="of the samples", shown="{} samples")
WAITS = WidthBy(of="of the waits", shown="{} ms", divisor=1_000_000)
Stacks = Mapping[tuple[str, ...], tuple[int, str]]
"""Weight and group by frames, the outermost first."""


@dataclass(slots=True)
class _Frame:
    weight: int = 0
    groups: dict[str, int] = field(default_factory=dict)
    callees: dict[str, _Frame] = field(default_factory=dict)
    before: int = 0
    """Weight in the cell that this one is held against."""

    @property
    def group(self) -> str:
        """The group that most of its samples belong to."""
        return max(sorted(self.groups), key=lambda group: self.groups[group], default=OTHER)


def flame(title: str, stacks: Stacks, *, largest: Sequence[str] = (),
          weighed: WidthBy = SAMPLES) -> Chart:  # fmt: skip
    """Each function as wide as its part, above its caller. Empty without samples.

    `largest`: groups by size, the same for all pictures that are compared.
    """
    root = _tree(stacks)
    return _Flame(root, largest, weighed).drawn(title) if root.weight else Chart()


def flame_difference(title: str, base: str, stacks: Stacks, before: Stacks) -> Chart:
    """Flame graph with the widths of this cell; colour and sign say what takes more or less than in
    `base`. A function that ran in `base` alone has no width. Empty if either has no samples."""
    root, was = _tree(stacks), _tree(before)
    if not root.weight or not was.weight:
        return Chart()
    _note(root, was)
    return _Difference(root, base).drawn(f"{title} against {base}")


def _note(frame: _Frame, was: _Frame) -> None:
    frame.before = was.weight
    for name, callee in frame.callees.items():
        if name in was.callees:
            _note(callee, was.callees[name])


def _tree(stacks: Stacks) -> _Frame:
    root = _Frame()
    for way, (weight, group) in stacks.items():
        frame = root
        for name in ("", *way[:DEEPEST]):
            frame = frame.callees.setdefault(name, _Frame()) if name else root
            frame.weight += weight
            frame.groups[group] = frame.groups.get(group, 0) + weight
    return root


class _Flame:
    def __init__(self, root: _Frame, largest: Sequence[str], weighed: WidthBy) -> None:
        self._root, self._total, self._weighed = root, root.weight, weighed
        own = [group for group in largest if group != OTHER]
        self._styles = dict(zip(own, OWN_STYLES, strict=False))

    def drawn(self, title: str) -> Chart:
        high = self._depth(self._root) * FLAME_ROW
        words = f"Flame graph of {title}: {self._amount(self._root)}"
        plot = Plot(words, Scale(0, 1), Scale(high or 1, 0), high or 1, "full")
        self._draw(plot, self._root, 0.0, high)
        key = tuple(("zone", f"part s{style}", name) for name, style in self._key())
        return Chart(words, (Pane((plot,)),), key, "flame")

    def _amount(self, frame: _Frame) -> str:
        return self._weighed.shown.format(numbers.count(frame.weight // self._weighed.divisor))

    def _wide(self, frame: _Frame) -> bool:
        return frame.weight >= NARROWEST * self._total

    def _depth(self, frame: _Frame) -> int:
        shown = filter(self._wide, frame.callees.values())
        return 1 + max((self._depth(one) for one in shown), default=-1)

    def _draw(self, plot: Plot, frame: _Frame, left: float, bottom: int) -> None:
        for name, callee in sorted(frame.callees.items()):
            wide = callee.weight / self._total
            if self._wide(callee):
                self._box(plot, name, callee, left, bottom - FLAME_ROW, wide)
                self._draw(plot, callee, left, bottom - FLAME_ROW)
            left += wide

    def _box(self, plot: Plot, name: str, frame: _Frame, left: float, top: int,
             wide: float) -> None:  # fmt: skip
        share = numbers.percent(frame.weight / self._total)
        says = f"{name}: {share} % {self._weighed.of}, {self._amount(frame)}; {self._more(frame)}"
        style = f"part s{self._style(frame)}"
        parts = [tag("rect", width="100%", height=FLAME_ROW - 1, class_=style)]
        if wide * 1000 > 3 * LETTER:
            label = self._sign(frame) + name.rpartition(": ")[2]
            parts.append(tag("text", cut(label, wide * 1000), x=3, y=13, class_="part-name"))
        box = {"x": f"{number(left * 100)}%", "y": top, "width": f"{number(wide * 100, 3)}%"}
        plot.front.append(tag("svg", *parts, **box, height=FLAME_ROW - 1))
        middle = (top + FLAME_ROW / 2) / plot.height * 1000
        plot.told.append((round((left + wide / 2) * 1000), round(middle), says, ""))

    def _more(self, frame: _Frame) -> str:
        return frame.group

    def _sign(self, frame: _Frame) -> str:
        del frame
        return ""

    def _style(self, frame: _Frame) -> int:
        return self._styles.get(frame.group, GREY)

    def _key(self) -> Iterable[tuple[str, int]]:
        own = {g: w for g, w in self._root.groups.items() if g in self._styles}
        shown = sorted(own.items(), key=lambda one: (-one[1], one[0]))
        if rest := self._total - sum(own.values()):
            alone = rest == self._root.groups.get(OTHER)
            shown.append((OTHER if alone else "all others", rest))
        return [
            (f"{group} {numbers.percent(weight / self._total)} %", self._styles.get(group, GREY))
            for group, weight in shown
        ]


class _Difference(_Flame):
    """A flame graph that colours only shifts that are more than so many samples vary by chance."""

    def __init__(self, root: _Frame, base: str) -> None:
        super().__init__(root, (), SAMPLES)
        self._base = base

    def _shift(self, frame: _Frame) -> float:
        return frame.weight / self._total - frame.before / self._root.before

    def _beyond_chance(self, frame: _Frame) -> bool:
        both = (frame.weight + frame.before) / (self._total + self._root.before)
        error = sqrt(both * (1 - both) * (1 / self._total + 1 / self._root.before))
        return abs(self._shift(frame)) > 2 * error

    def _more(self, frame: _Frame) -> str:
        was = numbers.percent(frame.before / self._root.before)
        chance = "" if self._beyond_chance(frame) else ", which may be chance"
        return f"{was} % in {self._base}{chance}"

    def _sign(self, frame: _Frame) -> str:
        if not self._beyond_chance(frame):
            return ""
        return "▲ " if self._shift(frame) > 0 else "▼ "

    def _style(self, frame: _Frame) -> int:
        return {"▲ ": MORE, "▼ ": LESS}.get(self._sign(frame), GREY)

    def _key(self) -> Iterable[tuple[str, int]]:
        words = (
            ("▲ more than in", MORE),
            ("▼ less than in", LESS),
            ("no shift beyond chance from", GREY),
        )
        return [(f"{word} {self._base}", style) for word, style in words]
