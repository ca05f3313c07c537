"""An experiment before it is run: its cells with their tables, and what can be said of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field

from nodrop import plugins
from nodrop.capacity.forecast import budgeted, likely, loop_words, windowed
from nodrop.config.experiment import Experiment, LimitsTable, Measure
from nodrop.config.matrix import NAMED, VARIED_MEASURES
from nodrop.config.options import CpuList, Options, YesNo, check, key_path, put
from nodrop.config.search import Repetitions, Search
from nodrop.config.units import count_of, format_cpus, parse_cpus
from nodrop.errors import BadInput
from nodrop.ledger.over_time import duration
from nodrop.ledger.verdict import INVALID_NAMED, percent
from nodrop.measure.cells import (
    Cell,
    OfferLength,
    Parting,
    Table,
    implausible,
    may_share,
    must_answer,
    must_share,
    names_cpus,
    of_standing,
    offer_length,
    parting,
    port_traces_words,
    traces_of,
)
from nodrop.measure.controllers.blocks import Asked, AskedCell, Controller, Factors, TrialInput
from nodrop.results.capacity import Forecast
from nodrop.results.trial import Live, TrialRecord
from nodrop.testbed.labs.api import Receiving
from nodrop.testbed.labs.split import Splitter
from nodrop.testbed.load.api import LoadGenerator, PeakDemand
from nodrop.testbed.setups.api import Limits, Setup, pins_within_limits
from nodrop.testbed.suts.api import Sut
from nodrop.tune.applying import asked as asked_knobs

if TYPE_CHECKING:
    from nodrop.stats.interval import LookPlan


FEW_FLOWS = 5.0
"""A replica in part of fewer equal flows than this sends coarse steps of the load."""
MOST_INSTANCES = 64
MOST_QUEUES = 64


class SharedSetup(Options):
    instances: Annotated[int, Field(ge=1, le=MOST_INSTANCES)] = 1
    """Number of the SUT's instances that share the packets."""
    splitter: Literal["nft", "copy", "trace", "bridge"] = "nft"
    """The way in which several instances, or the ports of `sut.ports`, share the packets."""
    bridge_netfilter: YesNo = True
    """A bridge hands frames to iptables."""
    queues: Annotated[int, Field(ge=1, le=MOST_QUEUES)] = 1
    """Queues of each port that the lab makes."""
    rps_cpus: CpuList | None = None
    """The kernel's receive half of the port runs there; by default on the sender's CPU, as a veth
    has it."""


def shared_setup(setup: dict[str, Any]) -> SharedSetup:
    """Takes the shared options out of the table; the rest is its kind's."""
    given = {name: setup.pop(name) for name in SharedSetup.model_fields if name in setup}
    return check(SharedSetup, given, table="setup", base=Path())


AROUND_S, FIXED_S, SINK_S = 4.0, 2.5, 0.5
"""First guesses at what a trial takes beside its load (bring up, launch, drain, undo): of a search,
or in a guest or container; of a fixed load, on the host; the same with the sink. Seen: 3.9, 2.4 and
0.4 s. The progress display replaces them by what trials really took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFacts:
    """All of a plan but its controller: what the half of a run that measures needs of it."""

    seed: int
    cells: tuple[Cell, ...]
    """Cells in the order of the matrix."""
    repetitions: int
    """Repetitions of each cell; the most, if there is a rule."""
    load_s: float | None
    """Seconds that the loads of all certain trials take as intended; None if one cannot be known
    beforehand."""
    around_s: float
    """A guess at what those trials take beside that."""
    peak_demand: PeakDemand | None = None
    """Demand of the trial that asks for most at once; None if no trace has its own timing."""
    memory_bytes: int | None = None
    """Memory that the sender of the largest trace takes; None if no trace could be read."""
    changed: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    """Changes made to captures before they are sent, and oddities in them, in words."""
    implausible: tuple[str, ...] = ()
    """Settings that cannot be meant, such as a trial of 270 years, in words; each once."""
    lengths: tuple[OfferLength, ...] = ()
    """Offer lengths of the cells, in the order of `cells`."""
    searched_by: str | None = None
    """The scale of a search; None if nothing is searched."""
    forecast: Forecast | None = None
    """Forecast of what the budget of a search is likely to buy; None if there is no budget."""
    likely: tuple[int, float] | None = None
    """Trials and seconds that a search without a budget is likely to take; None for others."""
    budget: str = ""
    """The forecast and the soaks of a search, in words; empty if nothing is searched."""
    looped: str = ""
    """Words if a search sends its window several times; empty if it does not."""
    rule: Repetitions | None = None
    """Rule by which a cell has been repeated often enough."""
    parted_senders: tuple[int, ...] = ()
    """Senders of each cell that names no CPUs; 0 for any other cell, which is left as it is."""
    parting: Parting | None = None
    """Parting of CPUs for the cells that name none; None without such cells, or with one CPU."""
    cpus_in_common: bool = False
    """Generator and SUT have CPUs in common, in the lab where it is measured."""

    def on(self, cpus: AbstractSet[int]) -> Self:
        """The plan as it is measured where generator and SUT have these CPUs in common. If they
        have none, they are on machines of their own, and nothing is parted."""
        most = max(self.parted_senders, default=0)
        found = parting(cpus, senders=most) if most else None
        if found is None:
            return replace(self, cpus_in_common=bool(cpus))
        cells = [
            _parted(cell, found, own) if own else cell
            for cell, own in zip(self.cells, self.parted_senders, strict=True)
        ]
        return replace(self, cells=tuple(cells), parting=found, cpus_in_common=True)

    def as_parted(self, asked: TrialInput) -> TrialInput:
        """The trial with the sender's CPU, which its controller does not know."""
        cell = self.cell(asked.cell)
        if not cell.limits.cpus_left:
            return asked
        return replace(asked, load={**asked.load, "cpu": cell.load["cpu"]})

    def cell(self, factors: Factors) -> Cell:
        return next(cell for cell in self.cells if cell.factors == factors)

    def asks_tsc(self, asked: TrialInput, done: Sequence[TrialRecord]) -> bool:
        """The first trial of each setup says what a clock costs there."""
        return self.cell(asked.cell).setup not in (self.cell(record.cell).setup for record in done)

    def too_short(self) -> str:
        """Words if a load that is not lost could not be called carried; empty if none is."""
        short = [length for length in self.lengths if length.too_short]
        if not short:
            return ""
        least_s = max(length.least_s or 0.0 for length in short)
        return (
            f"{self._in(len(short))}the load is offered for less than the {duration(least_s)} that "
            "it takes to see whether it is carried: without loss it shows that a burst was "
            "absorbed, no more; raise load.loops or load.duration_s (of a search: "
            "search.final_trial_s; of one by detections: load.multiplier)"
        )

    def windows(self) -> str:
        """Words if trials end before their trace does; empty if none does."""
        cut = [length for length in self.lengths if length.ends_early]
        if not cut:
            return ""
        sent: dict[tuple[str, int], list[int]] = {}
        for length in cut:
            if (planned := length.planned) and (of := length.trace_packets):
                sent.setdefault((duration(planned.window_s), of), []).append(planned.window_packets)
        reached = [
            f"{took} ({' to '.join(f'{n:,}' for n in sorted({min(packets), max(packets)}))} "
            f"of {of:,} packets)"
            for (took, of), packets in sent.items()
        ]
        words = ", ".join(reached[:3]) + (", …" if len(reached) > 3 else "")
        return (
            f"{self._in(len(cut))}the load ends before its trace does: a trial sends the first "
            f"{words} of it, "
            + (
                "and the higher the load, the more of it"
                if self.searched_by in ("speed", "pps")
                else "the same part each time"
            )
        )

    def sent_windows(self) -> Iterator[str]:
        """Words about the stretch of its trace that a load sends, and what of it an IDS may
        skip."""
        found = {
            length.window.span: length.window
            for length in self.lengths
            if length.window is not None
        }
        for window in found.values():
            cells = [
                length
                for length in self.lengths
                if length.window and length.window.span == window.span
            ]
            sent = window.sent_words if window.begun_warning else window.sentence
            yield f"{self._in(len(cells))}{sent}"
            if window.begun_warning:
                yield f"{self._in(len(cells))}{window.begun_warning}"

    def coarse(self) -> str:
        """Words if a search by replicas cannot take steps as fine as it is asked to; else empty."""
        known = [n for length in self.lengths if (n := length.effective_flows) is not None]
        few = [flows for flows in known if flows < FEW_FLOWS]
        if not few or self.searched_by != "multiplier":
            return ""
        flows = max(1, round(min(few)))
        return (
            f"{self._in(len(few))}most packets are in {count_of(flows, 'flow')}: a part of a "
            "replica has whole flows, so loads between 1X and 2X may send the same; --by speed or "
            "--by pps takes finer steps"
        )

    def shared_cpus(self) -> str:
        """Words if the generator and the SUT of a cell may take turns on a CPU; else empty."""
        sharing = [
            cell for cell in self.cells if may_share(cell.load, cell.sut_cpus, cell.limits.cpus)
        ]
        if not sharing or not self.cpus_in_common:
            return ""
        return (
            f"{self._in(len(sharing))}the generator and the SUT may share a CPU, the usual cause "
            "of a late sender on a small host: set load.cpu, and limits.cpus to others"
        )

    def parted(self) -> str:
        """Words if generator and SUT were given CPUs that the experiment does not name; else
        empty."""
        if self.parting is None:
            return ""
        cells = sum(cell.limits.cpus_left for cell in self.cells)
        return (
            f"{self._in(cells)}no CPUs are named: the generator has CPU "
            f"{format_cpus(self.parting.generator)}, the SUT CPU {format_cpus(self.parting.sut)}; "
            'load.cpu and limits.cpus choose others, load.cpu = "any" lets both run everywhere'
        )

    def _in(self, cells: int) -> str:
        """Words for a number of the cells; empty if there is only one cell."""
        return f"in {cells} of {len(self.cells)} cells " if len(self.cells) > 1 else ""

    @property
    def budget_s(self) -> float | None:
        """All that a search may take; None if it has no budget, or nothing is searched."""
        return None if self.forecast is None else self.forecast.budget_s

    def notes(self) -> list[str]:
        """Notes on what a user should know before the run, and may have meant so."""
        return [
            *filter(
                None,
                (
                    port_traces_words([cell.load for cell in self.cells]),
                    *self.changed,
                    *self.remarks,
                    *self.sent_windows(),
                    self.windows(),
                    self.looped,
                    self.too_short(),
                    self.coarse(),
                    self.parted(),
                    self.shared_cpus(),
                    self.budget,
                ),
            )
        ]

    def with_controller(self, controller: Controller) -> Plan:
        """The plan where `controller` says what is measured next."""
        return Plan(**_facts(self), controller=controller)


def _facts(plan: PlanFacts) -> dict[str, Any]:
    return {field.name: getattr(plan, field.name) for field in fields(PlanFacts)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(PlanFacts):
    controller: Controller
    """A new one, which has seen no trial."""
    looks: LookPlan | None = None
    """Looks that the rule may take at a cell; None without a rule."""

    @property
    def facts(self) -> PlanFacts:
        return PlanFacts(**_facts(self))

    def to_json(self) -> dict[str, Any]:
        """Content of `nodrop plan --json`: what is known, each trial with the tables of its
        cell."""
        found = asdict(self.facts)
        del found["parted_senders"]
        found["rule"] = None if self.rule is None else self.rule.model_dump()
        found["cells"] = [cell.factors for cell in self.cells]
        for told, length in zip(found["lengths"], self.lengths, strict=True):
            told["window"] = length.window and length.window.model_dump()
        found["forecast"] = None if self.forecast is None else self.forecast.model_dump()
        found["outlook"] = asdict(self.controller.outlook([]))
        found["trials"] = [
            {**asdict(self.cell(trial.cell)), **asdict(trial), "run": trial.run_name}
            for trial in map(self.as_parted, self.controller.beforehand())
        ]
        return found


def make_plan(experiment: Experiment) -> Plan:
    """Checks each cell's tables with their plugins, then asks the controller for an outlook. Which
    CPUs there are is known where it is measured (`Plan.on`)."""
    made = [_cell(experiment, factors) for factors in experiment.matrix.cells()]
    parts = _check_plugins(experiment, made)
    if experiment.measure.sut == "standing" and experiment.search is None:
        made = [replace(cell, load=of_standing(cell.load)) for cell in made]
        parts = _check_plugins(experiment, made)
    made = [
        replace(cell, sut_cpus=sut.cpus, ports=sut.ports)
        for cell, (_, sut, _) in zip(made, parts, strict=True)
    ]
    for cell, (setup, sut, load) in zip(made, parts, strict=True):
        experiment.blaming(partial(must_answer, sut, load))
        experiment.blaming(partial(must_share, cell, setup, searched=experiment.search))
        experiment.blaming(partial(pins_within_limits, sut.pins, setup, cell.limits))
    loads = [load for _, _, load in parts]
    refused: list[BadInput] = []
    if experiment.search is not None:
        made = [replace(cell, load=windowed(cell.load, experiment.search)) for cell in made]
        loads = [
            _decides(experiment, experiment.search, cell, load, refused)
            for cell, load in zip(made, loads, strict=True)
        ]
    lengths = tuple(
        offer_length(experiment, cell.factors, sut, load, instances=cell.instances)
        for cell, (_, sut, _), load in zip(made, parts, loads, strict=True)
    )
    known = [length.offered_s for length in lengths if length.offered_s is not None]
    load_s = sum(known) / len(known) if len(known) == len(lengths) else None
    measure = experiment.measure
    around_s = measure.warmup_s + max(
        AROUND_S if experiment.search or cell.setup["kind"] != "bare" or measure.sut != "fresh"
        else SINK_S if cell.sut["kind"] == "sink" else FIXED_S
        for cell in made
    )  # fmt: skip
    asked = Asked(
        cells=[
            _asked(cell, load if experiment.search else None)
            for cell, load in zip(made, loads, strict=True)
        ],
        repetitions=measure.most_repetitions,
        rule=measure.rule,
        seed=measure.seed,
        sut=measure.sut,
        guess_s=around_s + (load_s or 0.0),
        around_s=around_s,
        search=experiment.search,
    )
    controller: Controller = experiment.blaming(
        partial(plugins.build_controller, measure.mode, asked)
    )
    if refused:
        raise refused[0]
    certain = controller.outlook([]).at_least.trials
    foreseen, expected, budget, looped = None, None, "", ""
    if (search := experiment.search) is not None:
        from nodrop.capacity.controller import first_load

        foreseen, budget = budgeted(search, cells=len(made), around_s=around_s, load_s=load_s)
        expected = likely(search, cells=len(made), around_s=around_s, load_s=load_s)
        looped = loop_words(search, [first_load(cell, search) for cell in asked.cells])
    return Plan(
        seed=measure.seed,
        cells=tuple(made),
        repetitions=measure.most_repetitions,
        rule=measure.rule,
        looks=_looks(measure),
        controller=controller,
        load_s=None if load_s is None else load_s * certain,
        around_s=around_s * certain,
        peak_demand=_peak_demand(loads),
        implausible=implausible(experiment, loads),
        lengths=lengths,
        searched_by=experiment.search.by if experiment.search else None,
        forecast=foreseen,
        likely=expected,
        budget=budget,
        parted_senders=_parted_senders(made, parts),
        memory_bytes=max((facts.memory_bytes for facts in traces_of(loads)), default=None),
        changed=_changed(loads),
        remarks=_remarks([sut for _, sut, _ in parts]),
        looped=looped,
    )


def independent_runs(experiment: Experiment) -> int:
    """Most independent runs of a cell: trials, or starts of a SUT that stays up. BadInput for a
    search."""
    if experiment.search is not None:
        raise BadInput("--given: a search has no fixed loads whose repetitions could be compared")
    from nodrop.measure.controllers.blocks import WORLDS

    measure = experiment.measure
    if (looks := _looks(measure)) is not None:
        return looks.last
    n = measure.most_repetitions
    return n if measure.sut == "fresh" else min(n, WORLDS)


def _looks(measure: Measure) -> LookPlan | None:
    if measure.rule is None:
        return None
    from nodrop.results.summary import looks  # statistics, which a far control plane has not

    return looks(measure.rule, measure.sut)


def _decides(
    experiment: Experiment,
    search: Search,
    cell: Cell,
    load: LoadGenerator,
    refused: list[BadInput],
) -> LoadGenerator:
    """The load of the first trial of a search that decides; the cell's own if the search cannot
    be. Its controller says that better, if it sees it."""
    from nodrop.capacity.controller import first_load

    asked = experiment.blaming(partial(_asked, cell, load))
    try:
        return plugins.build_load(first_load(asked, search), base=experiment.base)
    except BadInput as error:
        refused.append(BadInput(f"the search begins at {error.message}", hint=error.hint))
    return load


def _asked(cell: Cell, searched: LoadGenerator | None) -> AskedCell:
    """The cell as a controller sees it; only a search asks what the trace holds."""
    facts = next(traces_of([searched]), None) if searched else None
    return AskedCell(
        factors=cell.factors,
        load=cell.load,
        trace_packets=None if facts is None else facts.packets,
        trace_s=None if facts is None else facts.pass_s,
        trace_bytes=None if facts is None else facts.frame_bytes,
        first_pps=None if facts is None else facts.planned.pps,
    )


def _cell(experiment: Experiment, factors: Factors) -> Cell:
    """The tables of a cell: what the file says, with the cell's values put in."""
    tables: dict[str, Any] = {
        name: copy.deepcopy(dict(getattr(experiment, name)))
        for name in ("setup", "sut", "load", "limits", "tune")
    }
    varied = [key.rpartition(".")[2] for key in VARIED_MEASURES]
    tables["measure"] = {key: getattr(experiment.measure, key) for key in varied}
    shared: dict[str, Any] = {}

    def fill() -> Limits:
        for key, value in factors.items():
            if key == NAMED:
                continue
            put(tables, key_path(key, f"matrix.{key}"), value)
        limits = check(LimitsTable, tables["limits"], table="limits", base=experiment.base)
        if tables["tune"]:
            asked_knobs(tables["tune"])
        setup = shared_setup(tables["setup"])
        shared["instances"] = setup.instances
        shared["splitter"] = Splitter(kind=setup.splitter, bridge_netfilter=setup.bridge_netfilter)
        shared["receiving"] = Receiving(
            queues=setup.queues, rps_cpus=parse_cpus(setup.rps_cpus) if setup.rps_cpus else ()
        )
        measure = check(Measure, tables.pop("measure"), table="measure", base=experiment.base)
        shared.update({key: getattr(measure, key) for key in varied})
        return Limits(cpus=limits.cpus, memory_bytes=limits.memory, swappiness=limits.swappiness)

    limits = experiment.blaming(fill)
    return Cell(factors=factors, **{**tables, "limits": limits}, **shared)


Parts = tuple[Setup, Sut, LoadGenerator]


def _check_plugins(experiment: Experiment, made: Sequence[Cell]) -> list[Parts]:
    """Builds each plugin with each different table."""
    return [
        (
            _built(experiment, plugins.build_setup, cell.setup),
            _built(experiment, plugins.build_sut, cell.sut),
            _built(experiment, plugins.build_load, cell.load),
        )
        for cell in made
    ]


def _parted_senders(made: Sequence[Cell], parts: Sequence[Parts]) -> tuple[int, ...]:
    return tuple(
        load.senders
        if setup.heeds_cpus and not names_cpus(cell.load, sut.cpus, cell.limits.cpus)
        else 0
        for cell, (setup, sut, load) in zip(made, parts, strict=True)
    )


def _parted(cell: Cell, found: Parting, senders: int) -> Cell:
    left = format_cpus(found.sut)
    return replace(
        cell,
        load={**cell.load, "cpu": found.generator_cpus(senders)},
        limits=replace(cell.limits, cpus=left, cpus_left=True),
    )


def _remarks(suts: Sequence[Sut]) -> tuple[str, ...]:
    """Remarks of the SUTs on their own settings, before they run."""
    return tuple(dict.fromkeys(words for sut in suts for words in sut.remarks))


def _changed(loads: Sequence[LoadGenerator]) -> tuple[str, ...]:
    captured = [
        one.captured
        for facts in traces_of(loads)
        for one in (facts, *facts.parts)
        if one.captured is not None
    ]
    words = (f"load.trace: {one.path.name}: {said}" for one in captured for said in one.words)
    return tuple(dict.fromkeys((*words, *_wrong_checksums(loads))))


def _wrong_checksums(loads: Sequence[LoadGenerator]) -> Iterator[str]:
    """A warning for each trace of which at least `INVALID_NAMED` of the packets sent have a wrong
    checksum."""
    for facts in traces_of(loads):
        wrong = facts.raw["checksums"]["tcp"]["wrong"]
        if wrong >= INVALID_NAMED * facts.packets:
            yield (
                f"load.trace: {percent(wrong / facts.packets)} of the packets sent have a wrong "
                "TCP checksum, as a capture from a host with checksum offload has: an IDS that "
                "checks them does less work than on right ones (docs/how-to/captures.md)"
            )


def _peak_demand(loads: Sequence[LoadGenerator]) -> PeakDemand | None:
    known = [peak for facts in traces_of(loads) if (peak := facts.peak_demand) is not None]
    return max(known, key=lambda peak: peak.packets_in_1_ms, default=None)


def _built(experiment: Experiment, build: Callable[..., Any], table: Table) -> Any:
    return experiment.blaming(lambda: build(table, base=experiment.base))


class Progress:
    """Progress of a run, told by the thread that runs the trials, in this order; a call must return
    quickly. What is to be shown, a subclass shows; this class shows nothing (-q, and tests)."""

    def plan_started(self, plan: Plan, *, directory: Path, earlier: Sequence[TrialRecord]) -> None:
        """`earlier`: records of a resumed run, whose trials are not run again."""

    def note(self, words: str) -> None:
        """Something about the run as a whole: what is being prepared, what could not be undone."""

    def trial_started(self, trial: TrialInput) -> None:
        """A trial begins."""

    def phase(self, name: str) -> None:
        """A step of the trial's lifecycle begins."""

    def live(self, reading: Live) -> None:
        """The trial under way was read."""

    def trial_ended(self, trial: TrialInput, record: TrialRecord) -> None:
        """A trial has ended; its record is on disk."""

    def finished(self, directory: Path, records: Sequence[TrialRecord]) -> None:
        """Everything that could be run was; also called if the run was interrupted."""
