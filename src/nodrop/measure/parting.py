"""Parting: the generator and the SUT take no turns on a CPU unless the experiment wants it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodrop.config.units import format_cpus, parse_cpus
from nodrop.setups.limits import missing_cpus


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """One for all cells of a run: a SUT with fewer CPUs at one load than at another is another."""

    generator: tuple[int, ...]
    sut: tuple[int, ...]

    def generator_cpus(self, senders: int) -> int | str:
        """`load.cpu` of a generator of so many senders."""
        first = self.generator[:senders]
        return first[0] if len(first) == 1 else format_cpus(first)


def parting(allowed: AbstractSet[int], *, senders: int) -> Parting | None:
    """None if one CPU is all there is. The SUT gets at least half of them.

    The generator has the lowest: most of the kernel's own work is there, and it disturbs the SUT
    less elsewhere.
    """
    if len(allowed) < 2:
        return None
    cpus = tuple(sorted(allowed))
    own = max(1, min(senders, len(cpus) // 2))
    return Parting(generator=cpus[:own], sut=cpus[own:])


def names_cpus(load: Mapping[str, Any], sut_cpus: str | None, limits_cpus: str | None) -> bool:
    """The experiment itself says where generator or SUT run, if only by `load.cpu = "any"`."""
    return load.get("cpu") is not None or sut_cpus is not None or limits_cpus is not None


def may_share(load: Mapping[str, Any], sut_cpus: str | None, limits_cpus: str | None) -> bool:
    """A guest's CPUs are threads of QEMU, which the limits hold as well."""
    sender, theirs = _pinned(load.get("cpu")), _pinned(sut_cpus or limits_cpus)
    return sender is None or theirs is None or bool(sender & theirs)


def may_spin(
    load: Mapping[str, Any],
    sut_cpus: str | None,
    limits_cpus: str | None,
    *,
    in_common: AbstractSet[int],
    core_of: Callable[[int], AbstractSet[int]],
) -> bool:
    """A sender that spins has its whole core, so the SUT must run on others. Of two CPUs the other
    one would be the SUT's, and all else would go there. With none `in_common` the SUT is on another
    machine, and the sender's node looks whether it has a CPU to spare."""
    sender, theirs = _pinned(load.get("cpu")), _pinned(sut_cpus or limits_cpus)
    if sender is None or not in_common:
        return sender is not None
    if theirs is None or len(in_common) <= len(sender) + 1:
        return False
    cores = [core_of(cpu) for cpu in sender]
    return all(core and not core & theirs for core in cores)


def sender_problems(load: Mapping[str, Any], in_common: AbstractSet[int]) -> Sequence[str]:
    """With none `in_common` they are another machine's CPUs, and the sender's node says it."""
    if not in_common or (sender := _pinned(load.get("cpu"))) is None:
        return []
    return missing_cpus("load.cpu", format_cpus(sender), in_common, "this host has no")


def core_of(cpu: int) -> frozenset[int]:
    """It and its hardware threads; empty if this host does not say."""
    listed = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    with suppress(OSError, ValueError):
        return frozenset(parse_cpus(listed.read_text().strip()))
    return frozenset()


def _pinned(cpus: object) -> frozenset[int] | None:
    """None = anywhere, as of "any"; also if a plugin's own words for it are not known here."""
    with suppress(ValueError):
        return frozenset(parse_cpus(str(cpus)))
    return None
