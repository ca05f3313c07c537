"""Cells of an experiment: loads that several receivers (ports or instances) cannot share, and CPUs
that the generator and the SUT do not take in turns unless the experiment wants it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodrop.config.search import Search
from nodrop.config.units import format_cpus, parse_cpus
from nodrop.errors import BadInput
from nodrop.labs.seam import Receiving
from nodrop.labs.split import Splitter
from nodrop.measure.controllers.seam import Factors
from nodrop.setups.limits import missing_cpus
from nodrop.setups.seam import Limits, Setup

Table = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One combination of the matrix, with the tables of the experiment as this cell has them."""

    factors: Factors
    setup: Table
    sut: Table
    load: Table
    limits: Limits
    instances: int = 1
    """setup.instances: so many of the SUT share the packets."""
    splitter: Splitter = field(default_factory=Splitter)
    """The way in which several instances, or several `ports`, share the packets."""
    receiving: Receiving = field(default_factory=Receiving)
    """Settings of the ports that the lab makes."""
    ports: int = 1
    """sut.ports: so many of the receiver's share the packets."""
    profile: bool = False
    """measure.profile."""
    tune: Table = field(default_factory=dict)
    """Knobs of the receiving ports and of the host."""
    sut_cpus: str | None = None
    """CPUs that the experiment pins the SUT to; None leaves it to the limits."""


def port_traces(load: Mapping[str, Any]) -> Sequence[str]:
    """Traces of a [load] table, in the order of the ports; () if the ports share one."""
    trace = load.get("trace")
    return trace if isinstance(trace, list | tuple) else ()


def port_traces_words(loads: Sequence[Mapping[str, Any]]) -> str:
    """Empty if no cell has a trace for each port."""
    found = {tuple(Path(one).name for one in port_traces(load)): None for load in loads}
    found.pop((), None)
    if not found:
        return ""
    each = "; or ".join(
        ", ".join(f"port {number} {name}" for number, name in enumerate(names, start=1))
        for names in found
    )
    return f"each port of the SUT gets a trace of its own, all begin together: {each}"


def must_share(cell: Cell, setup: Setup, *, searched: Search | None) -> None:
    if cell.ports > 1 and not setup.several_ports:
        raise BadInput(
            f'sut.ports = {cell.ports}: not with setup.kind = "{setup.name}", which shows one port '
            'inside; set setup.kind = "bare", or leave sut.ports out'
        )
    if cell.ports > 1 and cell.instances > 1:
        raise BadInput(
            f"sut.ports = {cell.ports}: not with setup.instances = {cell.instances}, each of which "
            "has a port of its own; leave one of them out"
        )
    if cell.ports > 1 and cell.splitter.kind == "bridge":
        raise BadInput(
            f'setup.splitter = "bridge": not with sut.ports = {cell.ports}, for it leads to '
            'instances; set it to "nft", "copy" or "trace", or leave it out'
        )
    if traces := port_traces(cell.load):
        _must_be_one_for_each(cell, len(traces))
    elif cell.splitter.kind == "trace":
        _must_have_replicas(cell, searched)
    if cell.instances > 1 and setup.alone:
        raise BadInput(
            f'setup.instances = {cell.instances}: not with setup.kind = "{setup.name}", because '
            f"{setup.alone}; leave it out"
        )


def _must_be_one_for_each(cell: Cell, traces: int) -> None:
    if traces != cell.ports:
        raise BadInput(
            "load.trace: a list has one trace for each port of the SUT, and these are "
            f"{traces} for sut.ports = {cell.ports}; set sut.ports = {traces}, or name as many "
            "as there are ports"
        )
    if cell.splitter.kind != "trace":
        raise BadInput(
            "load.trace: a list has one trace for each port of the SUT, and setup.splitter = "
            f'"{cell.splitter.kind}" shares them otherwise; set setup.splitter = "trace"'
        )


def _must_have_replicas(cell: Cell, searched: Search | None) -> None:
    receivers, replicas = cell.instances * cell.ports, cell.load.get("multiplier", 1)
    # A search that varies them begins below; what stands idle then, a finding says.
    if (searched is None or searched.by != "multiplier") and replicas < receivers:
        raise BadInput(
            f'setup.splitter = "trace": {receivers} receivers get whole replicas of the trace, and '
            f"load.multiplier = {replicas:g} makes {'one' if replicas <= 1 else 'fewer'}; set "
            f"load.multiplier = {receivers} or more, or load.trace to a list of a trace for each "
            "port"
        )


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
