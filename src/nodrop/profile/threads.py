"""Run modes and threads side by side: what each role did, and how evenly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from nodrop.capacity.searched_cells import searches
from nodrop.config.matrix import NAMED
from nodrop.config.units import parse_cpus
from nodrop.findings.observations import RATES, known_median
from nodrop.ledger.imbalance import SutThread, ThreadRole, gini, over_mean, what_makes
from nodrop.profile.functions import profile_of
from nodrop.profile.scaling import (
    ScalingSection,
    ThreadModelRun,
    not_compared,
    scaling_section,
    scalings,
    time_sharing,
)
from nodrop.report import escape, numbers
from nodrop.report.chart import MOST_BARS, Bar, BarPart, Chart, stacked_bars
from nodrop.report.sections import Section, rendered
from nodrop.report.story import RunCell, Story, once
from nodrop.report.tables import Column, Field, Table, Value, number, own, table_of, words
from nodrop.report.trials import StoredTrial, threads_of, work_of
from nodrop.results.packet_books import Port
from nodrop.results.rundir import Records
from nodrop.results.trial import TrialRecord
from nodrop.stats.interval import Summary, summarize

TITLE = "How the load falls on the threads"
DREW = (ThreadRole.RECEIVE, ThreadRole.WORKER)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadLoad:
    """One thread of one model: medians over its trials. None = not measured."""

    model: str
    name: str
    role: str
    cpu_ratio: float | None
    wait_ratio: float | None
    share: float | None
    """Share of what the threads of its role had."""
    of: str
    """Name of what is shared: packets captured, or flows begun."""


def thread_loads(models: Mapping[str, Sequence[TrialRecord]]) -> list[ThreadLoad]:
    """Load of each thread of each model. `models`: name → its trials."""
    return [load for name, trials in models.items() for load in _loads(name, trials)]


def _loads(model: str, trials: Sequence[TrialRecord]) -> Iterator[ThreadLoad]:
    found: dict[str, list[tuple[TrialRecord, SutThread]]] = {}
    for record in trials:
        for thread in record.threads:
            if thread.role in DREW:
                found.setdefault(thread.name, []).append((record, thread))
    for name, seen in found.items():
        role = str(seen[0][1].role)
        captures = any(thread.captured_packets is not None for _, thread in seen)
        field = "captured_packets" if captures else "flows"
        yield ThreadLoad(
            model=model,
            name=name,
            role=role,
            cpu_ratio=known_median(thread.cpu_ratio for _, thread in seen),
            wait_ratio=known_median(thread.wait_ratio for _, thread in seen),
            share=known_median(_share(record, thread, field) for record, thread in seen),
            of="packets captured" if captures else "flows begun",
        )


def _share(record: TrialRecord, thread: SutThread, field: str) -> float | None:
    own = getattr(thread, field)
    alike = [getattr(t, field) for t in record.threads if t.role == thread.role]
    total = sum(n for n in alike if n is not None)
    return own / total if own is not None and total else None


def thread_loads_picture(loads: Sequence[ThreadLoad]) -> Chart:
    """Empty if no thread was watched."""
    return stacked_bars(
        TITLE, "% of one CPU while the load was offered", [_bar(load) for load in loads], high=100
    )


def beyond_picture(loads: Sequence[ThreadLoad]) -> str:
    """Words if not all threads are drawn; else empty."""
    more = len(loads) - MOST_BARS
    return f"{more} more threads stand in the table alone" if more > 0 else ""


def _bar(load: ThreadLoad) -> Bar:
    parts = (("ran", load.cpu_ratio, "p-ran"), ("waited for a CPU", load.wait_ratio, "p-waited"))
    words = "not known" if load.share is None else f"{numbers.percent(load.share)} % of {load.of}"
    return Bar(
        name=f"{load.role} {load.name}",
        parts=tuple(
            BarPart(
                kind=kind,
                value=ratio * 100,
                says=f"{load.model}: {load.role} {load.name} {kind} "
                f"{numbers.percent(ratio)} % of the time",
                style=style,
            )
            for kind, ratio, style in parts
            if ratio is not None
        ),
        words=words,
        group=load.model,
    )


LOAD_FIELDS: tuple[Field[ThreadLoad], ...] = (
    words("cell", "Cell", lambda one: one.model),
    words("thread", "Thread", lambda one: one.name),
    words("role", "Role", lambda one: one.role),
    number("cpu_pct", "Ran, %", lambda one: one.cpu_ratio, numbers.percent, scale=100,
           help="of one CPU"),
    number("wait_pct", "Waited, %", lambda one: one.wait_ratio, numbers.percent, scale=100,
           help="it was ready, and its CPU had other work"),
    number("share_pct", "Share, %", lambda one: one.share, numbers.percent, scale=100,
           help="of what the threads of its role had"),
    words("of", "Share of", lambda one: one.of),
)  # fmt: skip


def thread_loads_table(loads: Sequence[ThreadLoad]) -> Table:
    return table_of("thread-loads", TITLE, LOAD_FIELDS, loads)


MILLION = 1_000_000

OF_THREADS = ("sut.runmode", "sut.threads", "sut.detect_threads", "sut.ports", NAMED)
"""Factors of a cell by which thread models differ; its name is none."""
OF_LOAD = (*RATES, "load.ramp")

COORDINATION = ("locks and conditions", "poll")
"""Groups of function_groups.toml."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadModels:
    models: tuple[ThreadModelRun, ...]
    table: Table
    picture: Chart
    """How the load falls on the threads."""
    beyond: str
    """Words if the picture has not all of them; else empty."""
    loads: Table
    ports: Table
    """Ports of the models; without rows if each model captured on one."""
    scaling: ScalingSection | None
    time_sharing: str
    not_compared: tuple[str, ...]
    """Names of models that differ from all others in more than threads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ran:
    """A model and the measured trials in which it ran so."""

    model: ThreadModelRun
    trials: tuple[StoredTrial, ...]


@once
def thread_models(story: Story) -> ThreadModels | None:
    """None if one model alone ran, and that on one port."""
    found = list(_ran(story))
    models = [one.model for one in found]
    shapes = {model.shape for model in models}
    if len(shapes) < 2 and not any(model.ports > 1 for model in models):
        return None
    loads = thread_loads({one.model.label: Records(t.packed for t in one.trials) for one in found})
    turns, apart = time_sharing(models), not_compared(models)
    return ThreadModels(
        table=_models_table(found, words=(*((turns,) if turns else ()), *apart)),
        picture=thread_loads_picture(loads),
        beyond=beyond_picture(loads),
        loads=thread_loads_table(loads),
        ports=ports_table({one.model.label: one.trials[0] for one in found}),
        scaling=scaling_section(scalings(models)),
        models=tuple(models),
        time_sharing=turns,
        not_compared=apart,
    )


def thread_model_tables(story: Story) -> Iterator[Table]:
    found = thread_models(story)
    if found is not None:
        yield found.table
        yield found.loads
        if found.ports.rows:
            yield found.ports
        if found.scaling is not None:
            yield found.scaling.table


def _ran(story: Story) -> Iterator[_Ran]:
    for cell in story.cells:
        if not cell.searched and (
            one := _one(
                story, cell.label, cell.load_label or "all", cell.valid, rest=_rest(story, [cell])
            )
        ):
            yield one
    for searched in searches(story):
        answer = searched.answers[0] if searched.answers else None
        if answer is None or answer.lower is None:
            continue
        at = [
            t
            for t in searched.trials
            if t.valid and t.record.searched and t.record.searched.value == answer.lower.value
        ]
        bounds = None if answer.upper is None else (answer.lower.value, answer.upper.value)
        rest = _rest(story, searched.cells)
        if one := _one(story, searched.subject, "", at, rest=rest, capacity=bounds):
            yield one


def _rest(story: Story, cells: Sequence[RunCell]) -> tuple[tuple[str, str], ...]:
    """Factors of a cell, or of those of one search, beside threads and load. More threads want more
    CPUs, so whether CPUs are named is one, and not which: how many they are is known of each model.
    Nobody has seen that several run directories are alike."""
    factors = cells[0].trials[0].record.cell
    own = {
        key: "set" if key.endswith("cpus") else escape.plain(value, longest=60)
        for key, value in factors.items()
        if key not in (*OF_THREADS, *OF_LOAD)
    }
    if hosts := sorted({pair for cell in cells for pair in cell.pairs}):
        own["host"] = escape.plain(", ".join(hosts))
    if story.several:
        own["run directory"] = story.sources[cells[0].source].name
    return tuple(sorted(own.items()))


def _one(
    story: Story,
    label: str,
    load: str,
    trials: Sequence[StoredTrial],
    *,
    rest: tuple[tuple[str, str], ...],
    capacity: tuple[float, float] | None = None,
) -> _Ran | None:
    """The model that ran in the trials; None if it is not known, or not the same in all: those of a
    cell may differ if Suricata chose otherwise."""
    known = tuple(t for t in trials if t.record.threads and "runmode" in t.record.effective)
    if not known or len({_shape(t.record) for t in known}) > 1:
        return None
    runmode, capture, detect, ports = _shape(known[0].record)
    model = ThreadModelRun(
        label=label,
        runmode=runmode,
        capture_threads=capture,
        detect_threads=detect,
        ports=ports,
        cpus=min((n for t in known if (n := _own_cpus(t.record)) is not None), default=None),
        load=load,
        rest=rest,
        capacity=capacity,
        cpu_s_per_million=_over(known, _cpu_s_per_million),
        loss=_over(known, lambda record: record.packets.loss_ratio),
        over_mean=_over(known, lambda record: over_mean(work_of(record))),
        coordination=_coordination(story, known),
    )
    return _Ran(model=model, trials=known)


def _coordination(story: Story, trials: Sequence[StoredTrial]) -> tuple[float, float] | None:
    profiles = [profile for trial in trials if (profile := profile_of(story, trial)) is not None]

    def middle(groups: Sequence[str]) -> float | None:
        return known_median(
            p.share((ThreadRole.RECEIVE, ThreadRole.WORKER), groups) for p in profiles
        )

    alone, whole = middle(COORDINATION), middle((*COORDINATION, "switching"))
    return None if alone is None or whole is None else (alone, whole)


def _own_cpus(record: TrialRecord) -> int | None:
    """CPUs of the SUT that the generator cannot take: one that may run anywhere takes one."""
    if record.sut_cpus is None:
        return None
    theirs = set(parse_cpus(record.sut_cpus))
    if record.cpus_in_common is False:
        return len(theirs)
    if record.generator_cpus is None:
        return len(theirs) - 1
    return len(theirs - set(parse_cpus(record.generator_cpus)))


def _shape(record: TrialRecord) -> tuple[str, int, int, int]:
    """Key of what ran: run mode, threads that capture, threads that only work, ports."""
    receive = len(threads_of(record, ThreadRole.RECEIVE))
    workers = len(threads_of(record, ThreadRole.WORKER))
    capture, detect = (receive, workers) if receive else (workers, 0)
    return str(record.effective["runmode"]), capture, detect, len(record.packets.ports) or 1


def _cpu_s_per_million(record: TrialRecord) -> float | None:
    decoded, cpu_s = record.packets.decoded_packets, record.sut_cpu_s
    if not decoded or cpu_s is None or record.cpu_not_valid:
        return None
    return cpu_s / decoded * MILLION


def _over(
    trials: Sequence[StoredTrial], figure: Callable[[TrialRecord], float | None]
) -> Summary | None:
    found = [(value, t.start) for t in trials if (value := figure(t.record)) is not None]
    return summarize([value for value, _ in found], starts=[start for _, start in found])


def _busiest(role: ThreadRole, name: str) -> Callable[[TrialRecord], float | None]:
    """A function that reads a figure of the thread of that role that ran most."""

    def figure(record: TrialRecord) -> float | None:
        threads = [t for t in threads_of(record, role) if t.cpu_ratio is not None]
        most = max(threads, key=lambda t: t.cpu_ratio or 0.0, default=None)
        value = None if most is None else getattr(most, name)
        return None if value is None else float(value)

    return figure


def _worker_cpu(record: TrialRecord) -> list[float]:
    workers = threads_of(record, ThreadRole.WORKER)
    return [t.cpu_ratio for t in workers if t.cpu_ratio is not None]


def _what_makes(trials: Sequence[StoredTrial]) -> str:
    """Words for what makes the load uneven, from the trial that is the median by how uneven it
    is."""
    found = []
    for record in (trial.record for trial in trials):
        work, cpu, sizes = work_of(record), _worker_cpu(record), record.flow_sizes
        # Behind receive threads flows are counted by worker, and packets are not.
        packets = () if threads_of(record, ThreadRole.RECEIVE) else work
        over = over_mean(packets or cpu)
        if sizes is None or over is None:
            continue
        made = what_makes(packets, cpu, sizes)
        if made is not None:
            found.append((over, made.words))
    return sorted(found)[len(found) // 2][1] if found else "–"


_FIGURES: Sequence[tuple[str, str, str, Callable[[TrialRecord], float | None]]] = (
    ("loss_pct", "Loss, %", "median over the runs", lambda r: r.packets.loss_ratio),
    (
        "receive_cpu_pct",
        "Receive: CPU, %",
        "of one CPU, the receive thread that ran most; workers without receive threads have none",
        _busiest(ThreadRole.RECEIVE, "cpu_ratio"),
    ),
    (
        "receive_wait_pct",
        "Receive: wait, %",
        "the same thread was ready, and its CPU had other work",
        _busiest(ThreadRole.RECEIVE, "wait_ratio"),
    ),
    (
        "worker_cpu_pct",
        "Worker: CPU, %",
        "of one CPU, the worker that ran most",
        _busiest(ThreadRole.WORKER, "cpu_ratio"),
    ),
    (
        "worker_wait_pct",
        "Worker: wait, %",
        "the same thread was ready, and its CPU had other work",
        _busiest(ThreadRole.WORKER, "wait_ratio"),
    ),
    (
        "over_mean_pct",
        "Busiest over its share, %",
        "of packets captured; behind receive threads of flows begun",
        lambda r: over_mean(work_of(r)),
    ),
    (
        "gini_pct",
        "Gini, %",
        "of the same: 0 = all alike; with n threads, (n − 1) / n = one has everything",
        lambda r: gini(work_of(r)),
    ),
    (
        "cpu_over_mean_pct",
        "Worker CPU over its share, %",
        "of the worker that ran most",
        lambda r: over_mean(_worker_cpu(r)),
    ),
    (
        "cpu_gini_pct",
        "Gini of worker CPU, %",
        "0 = all workers ran as long; with n workers, (n − 1) / n = one did everything",
        lambda r: gini(_worker_cpu(r)),
    ),
)


def _median_of(of: Callable[[TrialRecord], float | None]) -> Callable[[_Ran], float | None]:
    def median(one: _Ran) -> float | None:
        found = _over(one.trials, of)
        return None if found is None else found.median

    return median


def _unexplained(one: _Ran) -> int | None:
    known = (trial.record.threads_unexplained_packets for trial in one.trials)
    return max((n for n in known if n is not None), default=None)


MODEL_FIELDS: tuple[Field[_Ran], ...] = (
    words("cell", "Cell", lambda one: one.model.label),
    words("runmode", "Run mode", lambda one: one.model.runmode),
    number("capture_threads", "Capture threads", lambda one: one.model.capture_threads),
    number("detect_threads", "Detect threads", lambda one: one.model.detect_threads),
    number("ports", "Ports", lambda one: one.model.ports),
    number("own_cpus", "CPUs of its own", lambda one: one.model.cpus,
           help="that the SUT may use and the generator does not; one that may run anywhere takes "
           "one"),
    number("measured", "Measured", lambda one: len(one.trials)),
    own("cpu_s_per_million", "CPU s per million packets",
        lambda one: cost.median if (cost := one.model.cpu_s_per_million) else None,
        lambda _: "{:.2f}".format, missing="not measured",
        help="of the SUT's process tree, for decoded packets; median over the runs"),
    *(number(name, title, _median_of(of), numbers.percent, scale=100, help=help)
      for name, title, help, of in _FIGURES),
    words("uneven_by", "What makes it uneven", lambda one: _what_makes(one.trials),
          "by the sizes of the trace's flows, in the trial that is the median by how uneven it is: "
          "of packets captured; behind receive threads of the workers' CPU"),
    number("unexplained_packets", "Unexplained by thread", _unexplained,
           help="the largest of all runs: 0 = the books of every thread close and add up"),
)  # fmt: skip


def _models_table(found: Sequence[_Ran], words: tuple[str, ...]) -> Table:
    return table_of("thread-models", "Thread models", MODEL_FIELDS, found, words=words)


def _page(story: Story) -> Markup:
    found = thread_models(story)
    if found is None:
        return Markup("")
    return rendered("nodrop.profile", "threads.html.j2", story, models=found)


SECTION = Section(
    id="threads", title="Thread models", tables=thread_model_tables, page=_page,
    place=20, with_search=False,
)  # fmt: skip


PortRow = tuple[str, StoredTrial, Port]
PORT_FIELDS: tuple[Field[PortRow], ...] = (
    words("cell", "Cell", lambda x: x[0]),
    words("run", "Run", lambda x: x[1].name),
    words("port", "Port", lambda x: x[2].port),
    Field(
        Column("trace", "Trace"),
        lambda x: Value(x[2].trace, escape.plain(Path(x[2].trace or "").name, longest=60)),
    ),
    number("share_pct", "Share, %", lambda x: _port_share(x[2], x[1]), numbers.percent, scale=100),
    number("received_packets", "Received", lambda x: x[2].received_packets),
    number("captured_packets", "Captured", lambda x: x[2].captured_packets),
    number("dropped_packets", "Dropped", lambda x: x[2].dropped_packets),
)


def ports_table(models: Mapping[str, StoredTrial]) -> Table:
    """Table of the ports by the names of the models, each with a trial of its own."""
    rows = [(name, trial, p) for name, trial in models.items() for p in trial.record.packets.ports]
    named = any(port.trace for _, _, port in rows)
    fields = [one for one in PORT_FIELDS if named or one.column.name != "trace"]
    title = "What came in at each port"
    return table_of("ports", title, fields, rows, anchor=lambda x: x[1].anchor)


def _port_share(port: Port, trial: StoredTrial) -> float:
    every = sum(one.received_packets for one in trial.record.packets.ports)
    return port.received_packets / every if every else 0.0
