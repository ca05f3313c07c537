"""Cells of an experiment, and loads that several receivers (ports or instances) cannot share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodrop.config.search import Search
from nodrop.errors import BadInput
from nodrop.labs.seam import Receiving
from nodrop.labs.split import Splitter
from nodrop.measure.controllers.seam import Factors
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
