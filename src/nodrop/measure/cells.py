"""Cells of an experiment: loads that several receivers (ports or instances) cannot share, and CPUs
that the generator and the SUT do not take in turns unless the experiment wants it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodrop.config.experiment import Experiment
from nodrop.config.search import MOST_COPIES, SHORTEST_S, Search
from nodrop.config.units import format_cpus, format_seconds, parse_cpus
from nodrop.errors import BadInput, BadKey, LabProblem
from nodrop.ledger.over_time import least_duration_s
from nodrop.measure.controllers.blocks import Factors
from nodrop.results.load_window import LoadWindow
from nodrop.testbed.labs.api import Receiving
from nodrop.testbed.labs.split import Splitter
from nodrop.testbed.load.api import LoadGenerator, Planned, TraceFacts
from nodrop.testbed.setups.api import Limits, Setup, missing_cpus
from nodrop.testbed.suts.api import Sut

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
    """Number of the SUT's instances that share the packets (setup.instances)."""
    splitter: Splitter = field(default_factory=Splitter)
    """The way in which several instances, or several `ports`, share the packets."""
    receiving: Receiving = field(default_factory=Receiving)
    """Settings of the ports that the lab makes."""
    ports: int = 1
    """Number of the receiver's ports that share the packets (sut.ports)."""
    profile: bool = False
    """measure.profile."""
    level_interval_ms: int = 4
    """measure.level_interval_ms."""
    tune: Table = field(default_factory=dict)
    """Knobs of the receiving ports and of the host."""
    sut_cpus: str | None = None
    """CPUs that the experiment pins the SUT to; None leaves it to the limits."""


def of_standing(load: Table) -> Table:
    """The [load] table for a SUT that stays up: each pass has flows of its own, if nothing else was
    asked for and the sender has memory for so many."""
    copies = load.get("loops", 1) * load.get("multiplier", 1)
    if load.get("kind") != "replay" or load.get("flows") == "same" or copies > MOST_COPIES:
        return load
    return {"loop_flows": "distinct", **load} if load.get("loops", 1) > 1 else load


def port_traces(load: Mapping[str, Any]) -> Sequence[str]:
    """Traces of a [load] table, in the order of the ports; () if the ports share one."""
    trace = None if load.get("joined") else load.get("trace")
    return trace if isinstance(trace, list | tuple) else ()


def port_traces_words(loads: Sequence[Mapping[str, Any]]) -> str:
    """Empty if no cell has a trace for each port."""
    found = {
        tuple(Path(port_trace).name for port_trace in port_traces(load)): None for load in loads
    }
    found.pop((), None)
    if not found:
        return ""
    each = "; or ".join(
        ", ".join(f"port {number} {name}" for number, name in enumerate(names, start=1))
        for names in found
    )
    return f"each port of the SUT gets a trace of its own, all begin together: {each}"


def must_answer(sut: Sut, load: LoadGenerator) -> None:
    """BadInput if the SUT is not one for loads of this kind."""
    if sut.unit == load.unit and sut.answers in ("", load.name):
        return
    has = f'answers load.kind = "{sut.answers}" alone' if sut.answers else "answers nobody"
    raise BadKey(
        "load.kind",
        f'not with sut.kind = "{sut.name}", which {has}; choose another sut.kind or load.kind',
        given=f'"{load.name}"',
    )


def must_share(cell: Cell, setup: Setup, *, searched: Search | None) -> None:
    if cell.ports > 1 and not setup.several_ports:
        raise BadKey(
            "sut.ports",
            f'not with setup.kind = "{setup.name}", which shows one port '
            'inside; set setup.kind = "bare", or leave sut.ports out',
            given=str(cell.ports),
        )
    if cell.ports > 1 and cell.instances > 1:
        raise BadKey(
            "sut.ports",
            f"not with setup.instances = {cell.instances}, each of which "
            "has a port of its own; leave one of them out",
            given=str(cell.ports),
        )
    if cell.ports > 1 and cell.splitter.kind == "bridge":
        raise BadKey(
            "setup.splitter",
            f"not with sut.ports = {cell.ports}, for it leads to "
            'instances; set it to "nft", "copy" or "trace", or leave it out',
            given='"bridge"',
        )
    if traces := port_traces(cell.load):
        _must_be_one_for_each(cell, len(traces))
    elif cell.splitter.kind == "trace":
        _must_have_replicas(cell, searched)
    if cell.instances > 1 and setup.alone:
        raise BadKey(
            "setup.instances",
            f'not with setup.kind = "{setup.name}", because {setup.alone}; leave it out',
            given=str(cell.instances),
        )


def _must_be_one_for_each(cell: Cell, traces: int) -> None:
    if traces != cell.ports:
        raise BadKey(
            "load.trace",
            "a list has one trace for each port of the SUT, and these are "
            f"{traces} for sut.ports = {cell.ports}; set sut.ports = {traces}, or name as many "
            "as there are ports",
        )
    if cell.splitter.kind != "trace":
        raise BadKey(
            "load.trace",
            "a list has one trace for each port of the SUT, and setup.splitter = "
            f'"{cell.splitter.kind}" shares them otherwise; set setup.splitter = "trace"',
        )


def _must_have_replicas(cell: Cell, searched: Search | None) -> None:
    receivers, replicas = cell.instances * cell.ports, cell.load.get("multiplier", 1)
    # A search that varies them begins below; what stands idle then, a finding says.
    if (searched is None or searched.by != "multiplier") and replicas < receivers:
        raise BadKey(
            "setup.splitter",
            f"{receivers} receivers get whole replicas of the trace, and "
            f"load.multiplier = {replicas:g} makes {'one' if replicas <= 1 else 'fewer'}; set "
            f"load.multiplier = {receivers} or more, or load.trace to a list of a trace for each "
            "port",
            given='"trace"',
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """Parting of the CPUs, one for all cells of a run: a SUT with fewer CPUs at one load than at
    another is another."""

    generator: tuple[int, ...]
    sut: tuple[int, ...]

    def generator_cpus(self, senders: int) -> int | str:
        """`load.cpu` of a generator with this number of senders."""
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
    """Problems of `load.cpu`. CPUs of another machine have none `in_common`: the sender's node says
    what is wrong with them."""
    if not in_common or (sender := _pinned(load.get("cpu"))) is None:
        return []
    return missing_cpus("load.cpu", format_cpus(sender), in_common, "this host has no")


def core_of(cpu: int) -> frozenset[int]:
    """The CPU and its hardware threads; empty if this host does not say."""
    listed = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    with suppress(OSError, ValueError):
        return frozenset(parse_cpus(listed.read_text().strip()))
    return frozenset()


def _pinned(cpus: object) -> frozenset[int] | None:
    """None = anywhere, as of "any"; also if a plugin's own words for it are not known here."""
    with suppress(ValueError):
        return frozenset(parse_cpus(str(cpus)))
    return None


LONGEST_LOAD_S = 24 * 3600.0
LONGEST_GAP_S = 3600.0
"""Lengths beyond which a wrong timestamp is likelier than a wish, so `run` asks for --yes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferLength:
    """How long one trial of a cell offers its load, and what it takes to see that it is carried."""

    cell: Factors
    offered_s: float | None
    """None if it is not known beforehand, as at top speed."""
    least_s: float | None
    """Long enough to show that a SUT keeps the pace (ledger/over_time.py); None = not known."""
    planned: Planned | None = None
    """Packets, bytes and flows that are sent in that time; None if the trace could not be read."""
    trace_packets: int | None = None
    """Packets of its trace, or of its window if it has one; None = not known."""
    window: LoadWindow | None = None
    """None if the load names none."""
    effective_flows: float | None = None
    """Flows of one size that would be spread alike; None = not known."""

    @property
    def ends_early(self) -> bool:
        """The load ends before the trace, or its window, does."""
        if self.planned is None or self.trace_packets is None:
            return False
        return self.planned.window_packets < self.trace_packets

    @property
    def too_short(self) -> bool:
        if self.offered_s is None or self.least_s is None:
            return False
        return self.offered_s < self.least_s


def offer_length(
    experiment: Experiment, cell: Factors, sut: Sut, load: LoadGenerator, *, instances: int
) -> OfferLength:
    offered_s = _duration_s(experiment, load)
    pps = None if offered_s is None else experiment.blaming(load.mean_pps)
    holds = sut.holds_packets
    least_s = None
    if pps:
        least_s = least_duration_s(
            pps,
            holds_packets=None if holds is None else holds * instances,
            rest_seen_s=sut.rest_seen_s,
        )
    elif offered_s is not None:  # all packets at one moment have no rate
        least_s = 0.0
    if load.unit == "transactions":
        least_s = None  # each is waited for until it ends
    facts = next(traces_of([load]), None)
    sizes = None if facts is None else facts.flow_sizes
    return OfferLength(
        cell=cell,
        offered_s=offered_s,
        least_s=None if least_s is None else max(SHORTEST_S, least_s),
        planned=None if facts is None else facts.planned,
        trace_packets=None if facts is None else facts.packets,
        window=None if facts is None or facts.source is None else facts.source.window,
        effective_flows=None if sizes is None else sizes.effective_flows,
    )


def _duration_s(experiment: Experiment, load: LoadGenerator) -> float | None:
    try:
        return experiment.blaming(load.duration_s)
    except LabProblem:
        # Reading the trace takes the node; a plan can be looked at before it is built.
        return None


def implausible(experiment: Experiment, loads: Sequence[LoadGenerator]) -> tuple[str, ...]:
    """A wrong timestamp makes years of a short trace."""
    found: dict[str, None] = {}
    for load in loads:
        if words := _gap_around_window(load):
            found[words] = None
        duration_s = _duration_s(experiment, load)
        if duration_s is None or duration_s <= LONGEST_GAP_S:
            continue
        facts = load.trace_facts()
        if facts is None:
            continue
        path, gap_ns, after = _longest_gap(facts)
        gap_s = 0.0 if load.constant_rate else gap_ns / 1e9
        if duration_s <= LONGEST_LOAD_S and gap_s <= LONGEST_GAP_S:
            continue
        words = f"load.trace: {path}: one trial of it takes {format_seconds(duration_s)}"
        if gap_s > LONGEST_GAP_S:
            words += (
                f"; {format_seconds(gap_s)} pass without a packet after packet {after}; --set "
                "load.longest_gap_s=1 closes such a gap"
            )
        found[words] = None
    return tuple(found)


def _longest_gap(facts: TraceFacts) -> tuple[Path, int, int]:
    """The capture, its longest gap in ns, and the packet before it by its number in that file."""
    if facts.captured is None or facts.source is not None:
        gap = facts.raw["longest_gap"]
        return facts.path, gap["ns"], gap["after_packet"]
    counts = facts.captured.counts
    return facts.captured.path, counts["longest_gap_ns"], counts["longest_gap_after_packet"]


def _gap_around_window(load: LoadGenerator) -> str:
    """Words if most of the time of a capture that a window is cut from is one long gap; the window
    may be on the wrong side of the gap."""
    facts = next(traces_of([load]), None)
    if facts is None or facts.source is None or facts.captured is None:
        return ""
    counts = facts.captured.counts
    gap_s = counts["longest_gap_ns"] / 1e9
    if gap_s <= max(LONGEST_GAP_S, facts.source.window.trace_s / 2):
        return ""
    return (
        f"load.trace: {facts.captured.path}: {format_seconds(gap_s)} of its "
        f"{format_seconds(facts.source.window.trace_s)} pass without a packet after packet "
        f"{counts['longest_gap_after_packet']}; --set load.longest_gap_s=1 closes such a gap"
    )


def traces_of(loads: Iterable[LoadGenerator]) -> Iterator[TraceFacts]:
    for load in loads:
        # No plan fails for want of it: whoever runs the plan hears what is wrong with the trace.
        with suppress(BadInput, LabProblem):
            if (facts := load.trace_facts()) is not None:
                yield facts
