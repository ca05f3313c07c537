"""The command that measures what knobs do, in turns with and without each: tune prove."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nodrop.config.units import time_s
from nodrop.errors import BadInput, Interrupted, NodropError
from nodrop.exit_codes import FAULTS_SEEN
from nodrop.terminal.arguments import (
    AsJson,
    ImageName,
    LabName,
    OutFolder,
    OwnBinary,
    OwnConfig,
    Rules,
    Settings,
    SutKind,
    Threads,
    Window,
    blaming_options,
    reporting,
    say,
    say_json,
    write_anew,
)

if TYPE_CHECKING:
    from nodrop.config.experiment import Experiment
    from nodrop.config.lab_file import LabSource
    from nodrop.results.proved import Effect
    from nodrop.results.trial import TrialRecord

MADE_OF = Path("nodrop tune prove")
"""Name that errors blame: there is no file."""
LEAST, MOST = 12, 10_000
MOST_OF_NAME = 60
QUIETER = "measure again while nothing else runs"
BASE_NAME = "without"


class Metric(StrEnum):
    LOSS = "loss"
    CPU = "cpu"
    CAPACITY = "capacity"


def prove(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="KNOB=VALUE... [TRACE]",
            help="Knobs (rps=1), settings (sut.ring_size=20000), and the capture to send.",
            show_default=False,
        ),
    ],
    experiment: Annotated[
        Path | None,
        typer.Option("--experiment", metavar="FILE", help="Experiment file, instead of TRACE."),
    ] = None,
    metric: Annotated[
        Metric,
        typer.Option("--metric", help="Loss or CPU per packet at a fixed load, or capacity."),
    ] = Metric.LOSS,
    load: Annotated[
        str | None,
        typer.Option("--load", metavar="N", help="Fixed load: replicas of TRACE at once (1)."),
    ] = None,
    window: Window = None,
    rules: Rules = None,
    config: OwnConfig = None,
    binary: OwnBinary = None,
    image: ImageName = None,
    threads: Threads = None,
    sut: SutKind = "suricata",
    most: Annotated[
        int, typer.Option("--most", metavar="N", help="Most trials with each knob.")
    ] = 50,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            metavar="TIME",
            help="Time after which no trial of a run begins, such as 90s or 10m.",
        ),
    ] = None,
    lab: LabName = None,
    out: OutFolder = Path("results"),
    settings: Settings = None,
    as_json: AsJson = False,
) -> int:
    """Measure what knobs do, by trials with and without each in turns, until it can tell.

    It measures several knobs one by one first, then those that help together. A knob is one of
    `nodrop tune plan` (set on the lab's port), one of Suricata (ring-size, block-timeout, mpm …),
    or a key of the experiment such as limits.cpus=0.

    \b
    nodrop tune prove rps=1 my.pcap
    nodrop tune prove ring-size=20000 mpm=ac my.pcap --metric cpu --budget 5m

    Exit code 0: each knob has a verdict; 6: some cannot tell yet; 1: all trials without a knob are
    void; 2: bad input; 3: the lab failed.
    """
    from nodrop.compare import proving
    from nodrop.config.asked import UserSensor
    from nodrop.config.lab_file import load_lab
    from nodrop.results.proved import NAME

    trace, knobs = _parted(what, experiment)
    given = {"load": load, "window": window, "rules": rules, "config": config, "binary": binary,
             "image": image, "threads": threads}  # fmt: skip
    if experiment is not None and (beside := [k for k, v in given.items() if v is not None]):
        raise BadInput(f"--{beside[0]}: {experiment} says it; change it there, or by --set")
    if not LEAST <= most <= MOST:
        raise BadInput(f"--most {most}: must be from {LEAST} to {MOST:,} trials of each")
    cells: dict[str, dict[str, Any]] = {BASE_NAME: {}}
    setting_of: dict[str, str] = {}
    for word, key, value in map(_setting, knobs):
        cells[word] = {key: value}
        setting_of[word] = f"{key}={value}"
    sensor = UserSensor(config=config, binary=binary, image=image, threads=threads)
    seconds = None if budget is None else time_s("--budget", budget)
    where = load_lab(lab)

    def asked(named: Mapping[str, Mapping[str, Any]]) -> Experiment:
        if experiment is not None:
            return _of_file(experiment, settings or [], named, metric, most)
        return _of_trace(
            trace, rules or (), sut, sensor, window, load, settings or [], named, metric, most
        )

    run = _Run(metric=metric, most=most, budget_s=seconds, where=where, out=out, quiet=as_json)
    directory, records, found = run.measured(asked(cells), cells)
    notes = [*run.notes, f"report: {directory / 'report' / 'index.html'}"]
    both = None
    names = proving.helping(found)
    if len(names) > 1:
        joined = " + ".join(names)
        merged = {key: value for name in names for key, value in cells[name].items()}
        pair = {BASE_NAME: {}, joined: merged}
        run.notes.clear()
        second, _, (effect,) = run.measured(asked(pair), pair)
        both = proving.together([one for one in found if one.knob in names], effect)
        notes += [f"those together: {words}" for words in run.notes]
        notes.append(f"report of those together: {second / 'report' / 'index.html'}")
    without = [record for record in records if record.cell["cell"] == BASE_NAME]
    if all(record.outcome == "void" for record in without):
        why = "is void" if without else "is missing: the budget held none; try --window busiest"
        say(f"every trial without a knob {why}: see {directory}")
        return FAULTS_SEEN
    found = [one.model_copy(update={"setting": setting_of[one.knob]}) for one in found]
    answer = proving.proved(found, both, notes)
    write_anew(directory / NAME, (answer.model_dump_json(indent=1) + "\n").encode())
    if as_json:
        say_json(answer.model_dump())
    for words in proving.lines(answer) if not as_json else ():
        say(words)
    return answer.exit_code


class _Run:
    def __init__(
        self,
        *,
        metric: Metric,
        most: int,
        budget_s: float | None,
        where: LabSource,
        out: Path,
        quiet: bool,
    ) -> None:
        self.metric, self.most, self.budget_s = metric, most, budget_s
        self.where, self.out, self.quiet = where, out, quiet
        self.notes: list[str] = []

    def measured(
        self, asked: Experiment, cells: Mapping[str, Mapping[str, Any]]
    ) -> tuple[Path, Sequence[TrialRecord], list[Effect]]:
        from nodrop.compare import proving
        from nodrop.measure.controllers.blocks import UntilTold
        from nodrop.measure.plan import make_plan
        from nodrop.remote.dispatch import measuring
        from nodrop.report.story import read_story
        from nodrop.report.trust import other_programs
        from nodrop.report.write import write_report
        from nodrop.terminal.progress import shown

        plan = blaming_options(asked, lambda: make_plan(asked))
        names = list(cells)
        until = UntilTold(
            plan.controller,
            most=self.most,
            told=lambda done, look: proving.told(self._effects(names, done, look)),
            budget_s=self.budget_s,
            cells=len(names),
        )
        fixed = self.metric is not Metric.CAPACITY
        with shown(quiet=self.quiet, as_json=False) as progress:
            try:
                outcome = measuring(self.where)(
                    asked,
                    self.where,
                    out=self.out,
                    resume=False,
                    progress=progress,
                    plan=replace(plan, controller=until) if fixed else plan,
                )
            except (NodropError, Interrupted) as ended:
                if ended.ended_run:
                    again = f"start it anew (its trials so far: nodrop report {ended.ended_run})"
                    ended.hint = ", then ".join(filter(None, (ended.hint, again)))
                    ended.ended_run = None  # it begins with its first trial
                raise
        with reporting(outcome.directory):
            story = read_story([outcome.directory])
            write_report(story)
            others = other_programs(story)
            if 2 * len(others.crowded) > len(others.ratios):
                self.notes.append(
                    "other programs had much of the CPUs that the SUT may use "
                    f"({others.words}): {QUIETER}"
                )
            if not fixed:
                return outcome.directory, outcome.records, _of_searches(names, outcome.directory)
            look = until.look_at_the_end(outcome.records)
            return outcome.directory, outcome.records, self._effects(names, outcome.records, look)

    def _effects(
        self, names: Sequence[str], done: Sequence[TrialRecord], look: int
    ) -> list[Effect]:
        from nodrop.compare import proving
        from nodrop.compare.sides import side_of_records

        cells = {}
        for name, own in _cell_names(names).items():
            records = [record for record in done if record.cell["cell"] == own]
            cells[name] = side_of_records(name, records).cells[0]
        return proving.effects(cells, proving.METRICS[self.metric], look)


def _of_searches(names: Sequence[str], directory: Path) -> list[Effect]:
    from nodrop.compare import proving
    from nodrop.compare.records import SideCell
    from nodrop.compare.sides import read_side

    found = {str(cell.factors.get("cell")): cell for cell in read_side(str(directory)).cells}
    nothing = SideCell(factors={}, label="", figures={}, failed=0, void=0)
    cells = {name: found.get(own, nothing) for name, own in _cell_names(names).items()}
    metric = next(
        (figure for figure in cells[names[0]].figures if figure.startswith("capacity_")), ""
    )
    return proving.effects(cells, metric or "capacity", None)


def _cell_names(words: Iterable[str]) -> dict[str, str]:
    """Knobs → the names of their cells, by which reports call them."""
    found: dict[str, str] = {}
    for word in words:
        name = re.sub(r"[^a-z0-9=]+", "-", word.lower()).strip("-=")[:MOST_OF_NAME]
        found[word] = f"{name}-{len(found)}" if name in found.values() else name
    return found


def _parted(what: Sequence[str], experiment: Path | None) -> tuple[str, list[str]]:
    """Trace and knobs among the words."""
    traces = [word for word in what if "=" not in word or Path(word).is_file()]
    knobs = [word for word in what if word not in traces]
    if not knobs:
        raise BadInput("tune prove: give KNOB=VALUE; `nodrop tune plan` lists the knobs")
    if len(traces) > 1:
        raise BadInput(f"tune prove: {traces[0]} and {traces[1]}: one TRACE at a time")
    if bool(traces) == (experiment is not None):
        raise BadInput("tune prove: give a TRACE, or --experiment FILE")
    if len(set(knobs)) < len(knobs):
        raise BadInput(f"{next(k for k in knobs if knobs.count(k) > 1)}: is given twice")
    return (traces[0] if traces else ""), knobs


def _setting(word: str) -> tuple[str, str, Any]:
    """The word, the key of the experiment that it sets, and the value."""
    from nodrop.config.matrix import VARIED_TABLES
    from nodrop.config.options import parse_setting
    from nodrop.tune.applying import asked
    from nodrop.tune.suricata_yaml import OF_SURICATA, checked

    name, _, value = word.partition("=")
    if name.partition(".")[0] in VARIED_TABLES:
        setting = parse_setting(word)
        return word, setting.key, setting.value
    if (knob := next((one for one in OF_SURICATA if one.id == name), None)) is not None:
        setting = parse_setting(f"{knob.proved_by}={checked(knob, value)}")
        return word, setting.key, setting.value
    asked({name: value})  # BadInput with the nearest name
    return word, f"tune.{name}", value


def _of_trace(
    trace: str,
    rules: Sequence[str],
    sut: str,
    sensor: Any,
    window: str | None,
    load: str | None,
    settings: Sequence[str],
    named: Mapping[str, Mapping[str, Any]],
    metric: Metric,
    most: int,
) -> Experiment:
    from nodrop.config.asked import ProofQuestion
    from nodrop.config.experiment import asked_experiment

    question = ProofQuestion(
        trace=trace, rules=rules, sut=sut, sensor=sensor, window=window, most=most,
        capacity=metric is Metric.CAPACITY,
    )  # fmt: skip
    more = [*settings, *([f"load.multiplier={load}"] if load else [])]
    table = question.table(Path.cwd())
    return _with_cells(asked_experiment(table, more, path=MADE_OF), named, table)


def _of_file(
    file: Path,
    settings: Sequence[str],
    named: Mapping[str, Mapping[str, Any]],
    metric: Metric,
    most: int,
) -> Experiment:
    from nodrop.config.experiment import load_experiment
    from nodrop.config.options import read_toml

    searches = metric is Metric.CAPACITY
    mode = [] if searches else [f"measure.repetitions={most}", "measure.mode=blocks"]
    experiment = load_experiment(file, [*settings, *mode], most_trials=None)
    if experiment.matrix:
        raise BadInput(
            f"{file}: its matrix has several cells, and a knob is proved in one",
            hint="choose one by --set key=value",
        )
    if searches and experiment.search is None:
        raise BadInput(f'{file}: --metric capacity needs measure.mode = "capacity" there')
    return _with_cells(experiment, named, read_toml(file)[0])


def _with_cells(
    asked: Experiment, named: Mapping[str, Mapping[str, Any]], table: Mapping[str, Any]
) -> Experiment:
    from nodrop.config.matrix import Matrix
    from nodrop.config.options import to_toml

    if asked.matrix:
        raise BadInput("nodrop tune prove: its cells are its own")
    cells = {own: dict(named[name]) for name, own in _cell_names(named).items()}
    text = to_toml({**table, "matrix": {"cells": cells}})
    return replace(asked, matrix=Matrix(named=cells), text=text)
