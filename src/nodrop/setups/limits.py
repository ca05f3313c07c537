"""Limits that this host cannot keep, found before a trial believes in them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from nodrop.config.units import format_cpus, parse_cpus
from nodrop.errors import BadInput, LabProblem
from nodrop.hosts.control_groups import memory_controller
from nodrop.setups.seam import BringsCpus, Limits, Setup


def cpu_problems(limits: Limits) -> Sequence[str]:
    if limits.cpus is None:
        return []
    return missing_cpus("limits.cpus", limits.cpus, os.sched_getaffinity(0), "this host has no")


def memory_problems(limits: Limits) -> Sequence[str]:
    """A limit beyond what this host has limits nothing, and a guest of that size does not boot."""
    has_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if limits.memory_bytes is None or limits.memory_bytes <= has_bytes:
        return []
    return [
        f"limits.memory = {limits.memory_bytes}: this host has {has_bytes} bytes "
        f"({has_bytes >> 20} MiB); give less, or leave it out"
    ]


def host_cpus(limits: Limits) -> AbstractSet[int]:
    """The CPUs that a SUT on the host itself can be pinned to."""
    return set(parse_cpus(limits.cpus)) if limits.cpus else os.sched_getaffinity(0)


def pin_problems(pins: Mapping[str, str], there: AbstractSet[int]) -> Sequence[str]:
    """`pins`: key of the experiment → CPU list."""
    found = [missing_cpus(key, cpus, there, "the SUT's place has no") for key, cpus in pins.items()]
    return [problem for problems in found for problem in problems]


def pins_within_limits(pins: Mapping[str, str], setup: Setup, limits: Limits) -> None:
    """BadInput if the experiment itself leaves out a CPU that it pins to, on any host."""
    known = limits.cpus is not None or isinstance(setup, BringsCpus)
    if pins and known and setup.heeds_cpus:
        why = f'for limits.cpus = "{limits.cpus}"' if limits.cpus else "without limits.cpus"
        for words in pin_problems(pins, setup.cpus(limits)):
            raise BadInput(f"{words}, {why}")


def missing_cpus(key: str, asked: str, there: AbstractSet[int], words: str) -> Sequence[str]:
    """`words` say whose they are."""
    missing = format_cpus(cpu for cpu in parse_cpus(asked) if cpu not in there)
    return [f'{key} = "{asked}": {words} CPU {missing}'] if missing else []


def swappiness_problems(limits: Limits) -> Sequence[str]:
    """Only version 1 of control groups has a swappiness of each group's own."""
    if limits.swappiness is None:
        return []
    try:
        folder, files = memory_controller()
    except LabProblem as problem:
        return [f"limits.swappiness: {problem}"]
    if files.swappiness and (folder / files.swappiness).exists():
        return []
    return [
        f"limits.swappiness = {limits.swappiness}: control groups of version 2, which this host "
        "has, know none (memory.swappiness was one of version 1); leave it out"
    ]


def out_of_memory_words(memory_bytes: int | None) -> str:
    limit = "" if memory_bytes is None else f" (limits.memory = {memory_bytes / (1 << 20):g} MiB)"
    return f"the kernel killed it for lack of memory{limit}"
