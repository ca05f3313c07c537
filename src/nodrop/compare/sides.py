"""Sides of a comparison, read from run directories: figures, and the facts they depend on."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from nodrop.capacity.search_answer import Answer
from nodrop.capacity.searched_cells import SearchedCell, searches
from nodrop.capacity.words import limit_words
from nodrop.compare.records import Repeats, Side, SideCell
from nodrop.config.experiment import Measure
from nodrop.config.units import count_of
from nodrop.errors import BadInput
from nodrop.report import escape
from nodrop.report.costs import DETECTION_FIGURE, DIFFERENCES, Figure, figure
from nodrop.report.sections import figures_of_others, unusable
from nodrop.report.story import UNVALUED, RunCell, factor_label, read_story
from nodrop.report.trials import StoredTrial
from nodrop.report.trust import FOREIGN_CPU_RATIO
from nodrop.results.layout import MANIFEST
from nodrop.results.rundir import RunDir, identity, pack, unread
from nodrop.results.summary import measured_on
from nodrop.results.trial import TrialRecord
from nodrop.stats.interval import of_hosts

MOST_NAMED = 8
"""Number of differing facts that are named; the others are counted."""
MOST_CELLS = 4
"""Number of cells that are named for one differing fact; the others are counted."""
NONE = "none recorded"
WHEN_AND_HOW_OFTEN = ("mode", "repetitions", "seed")
"""Keys of `[measure]` that change no figure: in which order trials came, and how many. All others
say how a figure came about, or which trials are in it, and are facts."""
DEFAULTS: Mapping[str, Sequence[str]] = {
    f"measure.{key}": [escape.plain(default)]
    for key, default in Measure().model_dump(mode="json").items()
    if key not in WHEN_AND_HOW_OFTEN
}
"""Facts of runs that recorded none: their nodrop had no such key, and did as the default says."""

Words = Callable[[str, Sequence[str]], str]
"""A function that makes words of a fact's key and its values."""


def plainly(_: str, values: Sequence[str]) -> str:
    return ", ".join(values)


def other_facts(
    a: Side,
    b: Side,
    cells: Sequence[tuple[SideCell, SideCell]],
    *,
    words: Words = plainly,
    between: str = " and ",
) -> dict[str, str]:
    """Key → both values in words, of each fact that differs between the sides, or between any two
    of the cells that are laid against each other. Factors of a cell are no such facts."""
    factors = {key for side in (a, b) for cell in side.cells for key in cell.factors}
    of_cells = {key for pair in cells for cell in pair for key in cell.facts}
    found = {}
    for key in sorted({*a.facts, *b.facts, *of_cells} - factors):
        said: dict[tuple[str, str], list[str]] = {}
        for label, own, other in _seen(key, a, b, cells if key in of_cells else ()):
            if own != other:
                both = _said(key, own, words), _said(key, other, words)
                said.setdefault(both, []).append(label)
        if said:
            everywhere = [len(cells)] == [len(labels) for labels in said.values()]
            found[key] = f"{key}: " + ", ".join(
                between.join(both) + ("" if everywhere else _where(labels))
                for both, labels in said.items()
            )
    return found


def _seen(
    key: str, a: Side, b: Side, cells: Sequence[tuple[SideCell, SideCell]]
) -> list[tuple[str, Sequence[str] | None, Sequence[str] | None]]:
    """Cell, value of a, value of b; one without a cell if the whole run has the fact."""
    of_a, of_b = (side.facts.get(key, DEFAULTS.get(key)) for side in (a, b))
    if not cells:
        return [("", of_a, of_b)]
    return [(own.label, own.facts.get(key, of_a), other.facts.get(key, of_b))
            for own, other in cells if own.figures and other.figures]  # fmt: skip


def _said(key: str, values: Sequence[str] | None, words: Words) -> str:
    return NONE if values is None else words(key, values)


def _where(labels: Sequence[str]) -> str:
    """Empty if it is true of the whole run."""
    named = [label for label in labels[:MOST_CELLS] if label]
    more = len(labels) - len(named)
    if not named:
        return ""
    return f" ({'; '.join(named)}{f'; and {more} more' if more else ''})"


def refused(found: Mapping[str, str], allowed: set[str]) -> dict[str, str]:
    return {key: words for key, words in found.items() if not may_differ(key, allowed)}


def in_lines(found: Mapping[str, str], a: Side, b: Side, between: str = " and ") -> list[str]:
    """Lines on what differs. All facts of a table that one side alone has share a line: labs of two
    kinds have little in common."""
    lines: dict[tuple[str, bool, bool], list[str]] = {}
    for key in found:
        table, inner, _ = key.partition(".")
        of_a, of_b = _recorded_in(a, key), _recorded_in(b, key)
        group = (table, of_a, of_b) if inner and of_a != of_b else (key, True, True)
        lines.setdefault(group, []).append(key)
    return [
        found[keys[0]]
        if len(keys) == 1
        else f"{table}: "
        + between.join(f"{len(keys)} facts" if has else NONE for has in (of_a, of_b))
        for (table, of_a, of_b), keys in lines.items()
    ]


def _recorded_in(side: Side, key: str) -> bool:
    return key in {*side.facts, *DEFAULTS} or any(key in cell.facts for cell in side.cells)


def in_short(refused: Mapping[str, str], a: Side, b: Side) -> tuple[str, str]:
    """Words on what differs, and the options that allow it. Many facts are cut to some, and options
    to their tables: nobody reads a line of forty."""
    words, keys = in_lines(refused, a, b), [*refused]
    words = [re.sub(r"\b([0-9a-f]{12})[0-9a-f]{52}\b", r"\1…", one) for one in words]
    if len(words) > MOST_NAMED:
        words = [*words[:MOST_NAMED], f"and {len(words) - MOST_NAMED} more"]
    if len(keys) > MOST_NAMED:
        keys = [*dict.fromkeys(key.partition(".")[0] for key in keys)]
    return "; ".join(words), " ".join(f"--differs {key}" for key in keys)


def must_be_facts(differs: Sequence[str], sides: Sequence[Side]) -> None:
    """Checks that at least one side has each fact that may differ: a slip of the pen allows
    nothing. BadInput otherwise."""
    cells = [cell for side in sides for cell in side.cells]
    known = {key for side in sides for key in side.facts}
    known |= {key for cell in cells for key in (*cell.facts, *cell.factors)}
    for one in differs:
        if not any(may_differ(key, {one}) for key in known):
            tables = ", ".join(sorted({key.partition(".")[0] for key in known}))
            raise BadInput(
                f"--differs {escape.plain(one) or repr(one)}: neither side has such a fact",
                hint=f"there are {tables}, or one of them such as {min(known, default='host')}",
            )


def must_be_there(metrics: Sequence[str], cells: Sequence[SideCell]) -> None:
    """A name that nothing has would compare nothing, and find it no worse: BadInput."""
    there = dict.fromkeys(name for cell in cells for name in cell.figures)
    for name in metrics:
        if name not in there:
            raise BadInput(
                f"--metric {escape.plain(name)}: none of the runs has it",
                hint=f"metrics there: {escape.plain(', '.join(there)) or 'none'}",
            )


def is_compared(metric: str, asked: Sequence[str]) -> bool:
    """Whether a comparison has it, by the metrics that were asked for."""
    return metric in asked or (not asked and metric not in ASKED_ALONE)


def may_differ(key: str, allowed: set[str]) -> bool:
    """`sut` stands for all that begins with `sut.`."""
    return any(key == one or key.startswith(f"{one}.") for one in allowed)


Pairs = Mapping[str, Mapping[str, Any]]
"""Name of a pair or host → what the manifest says of it; for a fleet, or a run that went on
elsewhere."""

INSIDE = "::"
"""`DIR::setup.kind=docker,load.multiplier=4`: the cells of a run that have these factors."""
NO_FIGURE = (
    "void trials give none, nor does a search that found no limit of the SUT, as "
    "`nodrop report DIR` says"
)
"""Why runs may have nothing to compare."""
FAILED = "failed_pct"
SEARCH_ENDED = ("sut", "sut_failed")
"""Ends of searches that found a limit of the SUT; any other search says "at least"."""
OF_DETECTIONS = "_of_detections"
"""Ends the name of a capacity whose goal is one of detections."""
HOST = (
    "hostname", "kernel", "machine", "cpu.model", "cpu.cpus", "cpu.smt", "cpu.governor",
    "cpu.boost", "cpu_model", "cpus", "memory.total_bytes", "memory_bytes",
)  # fmt: skip


NAMED_BY = ("load.trace", "load.window", "load.window_s")
"""Names of what is compared by its content, or by where it lies."""
OF_NO_LAB = ("lab.name", "lab.kernel", "lab.machine")
SEEN = "lab.seen."
"""Prefix of the facts that a lab over ssh saw of its hosts."""
OF_ONE_RUN = (
    "boot_id", "network_namespace", "node_copied", "mono_offset_ns", "real_offset_ns",
    "clock_bound_ns", "clock_by",
)  # fmt: skip


def _per_packet(trial: StoredTrial) -> float | None:
    record = trial.record
    return None if record.transactions is not None else record.sut_cpu_s_per_packet


PER_PACKET = Figure(
    name="cpu_us_per_packet", title="CPU per packet", unit="µs", scale=1e6, digits=3,
    of=_per_packet,
    help="CPU time of the SUT for each packet that was sent",
    ways=("uses", "use", "more CPU per packet", "less CPU per packet"),
)  # fmt: skip


def _ring_ratio(trial: StoredTrial) -> float | None:
    queue = trial.record.packets.queue
    return None if queue is None else queue.highest_ratio


RING = figure("ring_peak_pct", _ring_ratio)
METRICS = (
    *(PER_PACKET if f.name == "sut_cpu_s" else f for f in DIFFERENCES),
    DETECTION_FIGURE,
    RING,
)
ASKED_ALONE = {RING.name}
"""Metrics that are compared if they are asked for: each of a comparison makes all need more
runs."""


def metrics_known() -> tuple[Figure, ...]:
    """Metrics of a comparison: nodrop's, and the figures of other packages. Raises NotReady if one
    of those cannot be used: no verdict leaves a metric out in silence."""
    for error in unusable("figure"):
        raise error
    return (*METRICS, *figures_of_others())


def read_side(asked: str) -> Side:
    """A run directory, cells inside one, or a baseline file."""
    place, _, chosen = asked.partition(INSIDE)
    path = Path(place)
    side = _of_run(path) if path.is_dir() else Side.from_file(path)
    if not chosen:
        return side
    wanted = _wanted(asked, chosen)
    cells = [cell for cell in side.cells if _has(cell, wanted)]
    if not cells:
        has = "; ".join(dict.fromkeys(_factors(cell) for cell in side.cells))
        raise BadInput(f"{asked}: no such cell", hint=f"cells there: {has or 'none'}")
    others = tuple(_about(cell.label) or "\n" for cell in side.cells if cell not in cells)
    weak = [words for words in side.weak if not words.startswith(others)]
    name = f"{side.name}{INSIDE}{chosen}"
    return side.model_copy(update={"name": name, "cells": cells, "weak": weak})


def _wanted(asked: str, chosen: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in chosen.split(",")]
    if not all(key and value for key, _, value in pairs):
        raise BadInput(f"{asked}: cells are chosen by key=value,key=value")
    return {key: value for key, _, value in pairs}


def _has(cell: SideCell, wanted: Mapping[str, str]) -> bool:
    return all(key in cell.factors and str(cell.factors[key]) == v for key, v in wanted.items())


def _factors(cell: SideCell) -> str:
    return escape.plain(",".join(f"{k}={v}" for k, v in cell.factors.items()) or "(the only one)")


def _of_run(path: Path) -> Side:
    story = read_story([path])
    _must_be_readable(path, story.sources[0].run)
    manifest = story.sources[0].run.manifest
    pairs = measured_on(manifest)
    cells = [_cell(cell, pairs) for cell in story.cells if not cell.searched]
    searched = searches(story)
    facts = [*_of_run_alone(manifest, story.sources[0].run.experiment)]
    return Side(
        name=story.sources[0].name,
        identity=identity(story.sources[0].run),
        facts=_facts(facts if pairs else [*facts, *_of_hosts(manifest)]),
        cells=[*cells, *(_capacity(one, pairs) for one in searched)],
        unread=unread(story.sources[0].run),
        weak=[*_weak(story.sources[0].run, story.cells, searched)],
    )


def _weak(run: RunDir, cells: Sequence[RunCell], searched: Sequence[SearchedCell]) -> Iterator[str]:
    """Reasons to believe the run less; one of several cells is named."""
    if not {"finished_utc", "imported_from"} & run.manifest.keys():
        yield f"the run is unfinished, and has {count_of(len(run.trials.records), 'trial')}"
    found = [(cell.factors, cell.trials) for cell in cells if not cell.searched]
    found += [(_factors_of(one), one.trials) for one in searched]
    only = len(found) == 1
    for factors, trials in found:
        judged = [trial.record for trial in trials if trial.outcome != "void"]
        if busy := sum(record.host_was_busy for record in judged):
            yield ("" if only else _about(_label(factors))) + (
                f"others had much of the host in {busy} of {count_of(len(judged), 'trial')}"
            )
    for one in searched:
        for answer in one.answers:
            if answer.confidence is not None and answer.confidence.level == "low":
                yield ("" if only else _about(_label(_factors_of(one)))) + (
                    f"with a goal of {answer.goal:.3g}, what is carried is of low confidence: "
                    f"{answer.confidence.why}"
                )


def _factors_of(searched: SearchedCell) -> Mapping[str, Any]:
    return searched.cells[0].trials[0].record.cell


def _label(factors: Mapping[str, Any]) -> str:
    words = " · ".join(factor_label(key, value) for key, value in factors.items())
    return escape.plain(words or UNVALUED)


def _about(label: str) -> str:
    return "" if label in ("", UNVALUED) else f"{label}: "


def _must_be_readable(path: Path, run: RunDir) -> None:
    """A run of which nobody knows what it measured is like no other, and a baseline of no trials
    would be compared for years."""
    for damage in run.damage:
        if damage.where == MANIFEST:
            raise BadInput(
                f"{escape.plain(path, longest=200)}: {MANIFEST} cannot be read "
                f"({escape.plain(damage.words)}): what was measured there is not known"
            )
    if not run.trials.records:
        why = next((f"{d.where}: {d.words}" for d in run.trials.damage), "none was measured")
        raise BadInput(
            f"{escape.plain(path, longest=200)}: no trial to compare: {escape.plain(why)}"
        )


def side_of_records(name: str, records: Sequence[TrialRecord]) -> Side:
    """Side of a run that still goes on: its records speak for themselves, and nothing else is
    asked."""
    factors = records[0].factors if records else {}
    trials = tuple(StoredTrial.of(record, pack(record), source=0) for record in records)
    cell = RunCell(
        source=0, factors=factors, label="", group="", load_label="", rank=(), trials=trials
    )
    return Side(name=name, identity=name, facts={}, cells=[_cell(cell, {})])


def _cell(cell: RunCell, pairs: Pairs) -> SideCell:
    figures = {
        figure.name: repeats
        for figure in metrics_known()
        if (repeats := _repeats(cell.valid, figure))
    }
    judged = (*cell.valid, *cell.failed)
    if judged:
        failed = [100.0 * (trial.outcome == "failed") for trial in judged]
        figures[FAILED] = Repeats(
            values=failed, starts=_starts(judged), hosts=of_hosts([t.start for t in judged])
        )
    told = [t.aside.foreign_cpu_ratio for t in cell.valid]
    ratios = [ratio for ratio in told if ratio is not None]
    counts = {
        "crowded": sum(ratio >= FOREIGN_CPU_RATIO for ratio in ratios),
        "watched": len(ratios),
    }
    return _side_cell(cell.factors, figures, cell.trials, pairs).model_copy(update=counts)


def _repeats(trials: Sequence[StoredTrial], figure: Figure) -> Repeats | None:
    having = [trial for trial in trials if figure.of(trial) is not None]
    if not having:
        return None
    values = [(figure.of(trial) or 0.0) * figure.scale for trial in having]
    hosts = of_hosts([trial.start for trial in having])
    return Repeats(values=values, starts=_starts(having), hosts=hosts)


def _starts(trials: Sequence[StoredTrial]) -> list[int]:
    numbers: dict[Any, int] = {}
    return [numbers.setdefault(trial.start, len(numbers)) for trial in trials]


def _capacity(searched: SearchedCell, pairs: Pairs) -> SideCell:
    figures, open_ones = {}, {}
    mixed = len({trial.pair for trial in searched.trials if trial.valid}) > 1
    for answer in searched.answers:
        closed = [one for one in answer.rounds if one.closed]
        values = [one.lower.value for one in closed if one.lower and one.upper]
        name = f"capacity_{answer.by}_at_{answer.goal:g}"
        name += OF_DETECTIONS if answer.goals_of == "detections" else ""
        open_ones[name] = _open_words(answer, len(closed))
        if answer.limited_by in SEARCH_ENDED and values and len(values) == len(closed):
            del open_ones[name]
            # Rounds that mix trials of several hosts are no independent ones.
            starts = [0] * len(values) if mixed else list(range(len(values)))
            figures[name] = Repeats(values=values, starts=starts, hosts=mixed)
    cell = _side_cell(_factors_of(searched), figures, searched.trials, pairs)
    return cell.model_copy(update={"failed": 0, "unfound": open_ones})


def _open_words(answer: Answer, closed: int) -> str:
    """Why an answer has no figure of each round, with its bounds so far."""
    carried, too_much = (f"{end.value:.4g}" if end else "?" for end in (answer.lower, answer.upper))
    rounds = f"close bounds in {closed} of {count_of(len(answer.rounds), 'round')}"
    found = f"carries {carried}, not {too_much} ({answer.by}), {rounds}"
    limit = f"limited by {limit_words(answer)}"
    return f"has no figure for a goal of {answer.goal:.3g}: {found}, {limit}"


def unfound(matched: Sequence[tuple[SideCell, SideCell]], metrics: Sequence[str]) -> list[str]:
    """Capacities that a side searched for, and has no figure of."""
    return [
        f"{_about(cell.label)}{side} {words}"
        for pair in matched
        for side, cell in zip("AB", pair, strict=True)
        for name, words in cell.unfound.items()
        if not metrics or name in metrics
    ]


def _side_cell(
    factors: Mapping[str, Any],
    figures: dict[str, Repeats],
    trials: Sequence[StoredTrial],
    pairs: Pairs,
) -> SideCell:
    outcomes = Counter(trial.outcome for trial in trials)
    return SideCell(
        factors=dict(factors),
        label=_label(factors),
        figures=figures,
        failed=outcomes["failed"],
        void=outcomes["void"],
        behind=sum(t.loss_ratio == 0 and t.record.packets.sustained is False for t in trials),
        facts=_facts([*_of_pairs(trials, pairs)]),
    )


def _of_pairs(trials: Sequence[StoredTrial], pairs: Pairs) -> Iterator[tuple[str, Any]]:
    """Facts of the hosts that measured these trials. Void trials are in no figure, and add no
    host."""
    for name in sorted({t.pair for t in trials if t.pair and t.outcome != "void"} if pairs else ()):
        facts = [of_host for of_host in _of_hosts(pairs.get(name, {})) if of_host[1] is not None]
        yield from facts or [("host", f"pair {name}, of which nothing is recorded")]


def _facts(named: Sequence[tuple[str, Any]]) -> dict[str, list[str]]:
    """Values of each fact; a fact that was not recorded is missing."""
    found: dict[str, set[str]] = {}
    for key, value in named:
        if value is not None:
            found.setdefault(key, set()).add(escape.plain(value, longest=200))
    return {key: sorted(values) for key, values in sorted(found.items())}


def _of_hosts(manifest: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Facts of host, lab and the bits there; each pair of a fleet has its own."""
    yield from (one for one in _flat("host", manifest.get("host")) if one[0][5:] in HOST)
    yield from (one for one in _flat("lab", manifest.get("lab")) if not _of_its_moment(one[0]))
    yield from _flat("parting", manifest.get("parting"))
    for bits in _tables(manifest, "bits", "bits"):
        yield "sut.version", bits.get("version")
        yield "sut.bits", bits.get("sha256")
    node = manifest.get("node")
    yield "node.sha256", node.get("sha256") if isinstance(node, dict) else None


def _of_its_moment(key: str) -> bool:
    """Whether a key of a lab is left out of its facts: its name, what `host` says as well, and what
    differs in each run of one lab."""
    return key in OF_NO_LAB or (key.startswith(SEEN) and key.rpartition(".")[2] in OF_ONE_RUN)


def _of_run_alone(manifest: Mapping[str, Any], experiment: str) -> Iterator[tuple[str, Any]]:
    """Load, SUT, setup, and how it was measured."""
    for load in _tables(manifest, "loads", "load"):
        yield "load.kind", load.get("generator", load.get("name"))
        yield "load.trace_sha256", load.get("trace_sha256")
        window = load.get("window")
        yield "load.window", window.get("span") if isinstance(window, dict) else None
        yield from (one for one in _flat("load", load.get("options")) if one[0] not in NAMED_BY)
    for sut in _tables(manifest, "suts", "sut"):
        yield "sut.kind", sut.get("name")
        yield from (one for one in _flat("sut", sut.get("options")) if one[0] != "sut.rules")
        files = sut.get("files")
        for file in files if isinstance(files, list) else []:
            if isinstance(file, dict):
                yield f"sut.{file.get('use')}", file.get("sha256")
    yield from _flat("measure", _measured_how(manifest.get("measure")))
    yield from _flat("search", _searched_how(manifest.get("search")))
    yield from _asked(manifest, experiment)


def _tables(manifest: Mapping[str, Any], *names: str) -> Iterator[Mapping[str, Any]]:
    for name in names:
        said = manifest.get(name)
        for one in said if isinstance(said, list) else [said]:
            if isinstance(one, dict):
                yield one


def _measured_how(said: Any) -> Any:
    """Settings by which a figure came about; keys of a newer nodrop as well."""
    if not isinstance(said, dict):
        return None
    return {key: said[key] for key in said if key not in WHEN_AND_HOW_OFTEN}


SEARCH_ASKS = ("by", "goals", "rounds", "budget_s", "need", "predicted")
"""Settings of a search that change no figure."""


def _searched_how(said: Any) -> Any:
    """Settings of a search by which its figures came about; its goals are the names of its
    figures."""
    if not isinstance(said, dict):
        return None
    return {key: said[key] for key in said if key not in SEARCH_ASKS}


def _asked(manifest: Mapping[str, Any], experiment: str) -> Iterator[tuple[str, Any]]:
    """Setup, limits and tuning, as the experiment and the settings of a run name them."""
    table: dict[str, Any] = {}
    with suppress(tomllib.TOMLDecodeError):
        table = tomllib.loads(experiment)
    found = dict([*_flat("setup", table.get("setup")), *_flat("limits", table.get("limits"))])
    found |= dict(_flat("tune", table.get("tune")))
    found.setdefault("setup.kind", "bare")
    settings = manifest.get("settings")
    for setting in settings if isinstance(settings, list) else []:
        key, _, value = str(setting).partition("=")
        if key.startswith(("setup.", "limits.")):
            found[key] = value.strip("\"'")
    yield from found.items()


def _flat(name: str, said: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(said, dict):
        for key, value in said.items():
            yield from _flat(f"{name}.{key}", value)
    elif said is not None:
        yield name, said
