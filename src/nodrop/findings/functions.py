"""Where the time of a profiled trial went: shares by function and by what functions are for."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any

OTHER = "other"
"""Group of stacks that no pattern names."""
UNNAMED = "without a name"
"""Group of stacks that no pattern names and that have a function without a name: a static one of a
stripped file."""
NO_SYMBOL = "(no symbol)"
HARDWARE = ("cycles", "instructions", "cache_misses")


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    module: str
    function: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """The outermost caller first."""

    frames: tuple[Named, ...]
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
    """On a CPU while one of those had no counter, and was reckoned."""

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

    def shares(self) -> dict[Named, float]:
        """Shares of the samples, by the function that ran."""
        found: Counter[Named] = Counter()
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


def _named(function: Mapping[str, Any]) -> Named:
    module, name, begins = str(function["module"]), function["name"], function["begins"]
    if name is None:
        name = "" if begins is None else f"+{int(begins):#x}"
    return Named(module=module, function=str(name) or NO_SYMBOL)


def _stack(frames: tuple[Named, ...]) -> Stack | None:
    return Stack(frames=frames, group=group_of(frames)) if frames else None


def group_of(frames: Sequence[Named]) -> str:
    """Group of the innermost function that a pattern names."""
    for frame in reversed(frames):
        if (group := _group(frame.module, frame.function)) is not None:
            return group
    unnamed = any(frame.function.startswith(("+0x", NO_SYMBOL)) for frame in frames)
    return UNNAMED if unnamed else OTHER


@cache
def groups() -> tuple[tuple[str, tuple[str, ...]], ...]:
    """function_groups.toml."""
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
