"""The experiment file: one question, asked as TOML (docs/reference/experiment-file.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat

from nodrop.config.matrix import CELLS, NAMED, Matrix, check_matrix, flatten, pin
from nodrop.config.options import (
    CpuList,
    MemorySize,
    Name,
    Options,
    Setting,
    check,
    parse_setting,
    printable,
    put,
    read_toml,
    to_toml,
)
from nodrop.config.search import NumberOrRule, Repetitions, Search
from nodrop.errors import BadInput, BadKey
from nodrop.installation import brought

MATRIX = "matrix."
CAPACITY = "capacity"
"""The mode that a [search] table belongs to."""
BLOCKS = "blocks"
"""The mode that heeds a rule in `repetitions`."""
MOST_TRIALS = 1000
"""More than this many trials are hours of measuring: they have to be meant (`--yes`)."""
MOST_TRIALS_OF_A_RUN = 100_000
"""Half a year of measuring, and what a report is still made of: no `--yes` allows more."""


LEAST_MEMORY_BYTES = 6 << 20
"""Docker takes no less, and less holds no SUT; -1 would be "no limit" to a control group."""
MOST_WAIT_S = 86_400.0
"""A day: what is longer was not meant, and no timer of the system takes all of it."""
Wait = Annotated[float, Field(gt=0, le=MOST_WAIT_S)]


class PluginTable(BaseModel):
    """`kind` chooses the plugin, which checks the other keys."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    kind: str = Field(min_length=1)


class BareTable(PluginTable):
    kind: str = Field(default="bare", min_length=1)


class LimitsTable(Options):
    """Resources that the SUT may use."""

    cpus: CpuList | None = None
    """CPU list such as "0-2,5"; without it, all."""
    memory: Annotated[MemorySize, Field(ge=LEAST_MEMORY_BYTES)] | None = None
    """Bytes, or a text such as "512MiB"; without it, no limit."""
    swappiness: Annotated[int, Field(ge=0, le=100)] | None = None
    """How readily the kernel swaps pages out; without it there is no swap within `memory`."""


Outcome = Literal["alerts", "flows", "http", "dns", "tls"]


class Measure(Options):
    """How each cell is looked at, and from when on a trial is not believed."""

    mode: Annotated[str, Field(min_length=1)] = BLOCKS
    """The controller, which decides what is measured next; `nodrop plugins` lists them."""
    sut: Literal["fresh", "standing"] = "fresh"
    """A new SUT and new ports for each trial, or the same for trials of one cell that follow each
    other, until the books of one do not close."""
    reset: Literal["none", "module", "reboot"] = "none"
    """Reset before each new start of the SUT, in a lab over ssh: the driver of the receiver's port
    is loaded anew, or the receiver boots."""
    repetitions: NumberOrRule = 3
    """Trials of each cell: a number, or between which numbers and until when."""
    seed: Annotated[int, Field(ge=0)] = 1
    """Seed of the order of the trials (docs/methodology.md: blocked random order)."""
    warmup_s: Annotated[float, Field(ge=0, le=MOST_WAIT_S)] = 0.0
    """Quiet time between "ready" and the first packet."""
    ready_timeout_s: Wait = 180.0
    """Limit on the time from the SUT's launch until it is ready."""
    drain_timeout_s: Wait = 30.0
    """Limit on the time that the counters take to come to rest after the last packet."""
    sample_interval_ms: Annotated[int, Field(ge=10, le=60_000)] = 100
    """Time between two readings of the host."""
    level_interval_ms: Annotated[int, Field(ge=0, le=1000)] = 4
    """Time between two looks at the SUT's capture rings while they are as good as empty; 1 ms while
    one fills, unless its looks took more than 1.6 % of a CPU. 0 = none: no level is measured."""
    profile: bool = False
    """Also see which functions of the SUT run, and where its threads wait, while the load is
    offered. It costs the SUT something: compare no profiled trials with others."""
    hardware: bool = False
    """Also count cycles, instructions and cache misses of each thread; needs `profile`. On a
    virtual CPU each switch of a thread then costs some 30 us."""
    outcome: Annotated[tuple[Outcome, ...], Field(max_length=5)] = ()
    """Also see what the SUT detects of what it should: "alerts", beside which "flows", "http",
    "dns" and "tls" count those events. The SUT writes a log for it; compare no such trials with
    others. Before the first trial nodrop measures what is to be expected, once."""
    late_p99_us: PositiveFloat = 5000.0
    """The trial is void if 1 % of the packets were sent later (or earlier) than this."""
    late_burst_max_ratio: Annotated[float, Field(gt=0, le=1)] = 0.5
    """A lossy trial is void if packets that a late sender let arrive at once can explain this part
    of its losses or more; 1 never voids."""
    steal_max_ratio: Annotated[float, Field(gt=0, le=1)] = 0.05
    """A lossy trial is void if the hypervisor took more of the CPUs of the SUT or the sender, and
    this can explain the losses."""
    unsent_max_ratio: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The trial is void if a greater part of the intended packets was not sent."""

    @property
    def most_repetitions(self) -> int:
        return self.repetitions if isinstance(self.repetitions, int) else self.repetitions.max

    @property
    def rule(self) -> Repetitions | None:
        """Rule by which a cell has been repeated often enough; None: `most_repetitions` is the
        number."""
        return None if isinstance(self.repetitions, int) else self.repetitions


Metric = Literal[
    "loss_pct",
    "host_cpu_pct",
    "sut_cpu_s",
    "setup_cpu_s",
    "memory_mib",
    "anonymous_mib",
    "activation_s",
    "over_mean_pct",
    "books",
]


class ExperimentFile(Options):
    name: Name
    """Lower case letters, digits and dashes: it names the run directory."""
    question: str = ""
    metric: Metric | None = None
    """The figure that the question is about, by which cells are compared first; without it the
    loss. Not of a search."""
    matrix: dict[str, Any] = Field(default_factory=dict)
    """Dotted key → list of values: the cells are the product. `cells` has tables that set several
    keys at once, by name; `exclude` is a list of combinations to leave out."""
    setup: BareTable = BareTable()
    """WHERE the SUT runs."""
    sut: PluginTable
    """WHAT is measured."""
    load: PluginTable
    """The load offered."""
    limits: LimitsTable = LimitsTable()
    tune: dict[str, str | int] = Field(default_factory=dict)
    """Knob → value, of the receiving ports and of the host while a trial runs
    (docs/reference/knobs.md)."""
    measure: Measure = Measure()
    search: Search | None = None
    """Settings of the search, for `measure.mode = "capacity"` and no other mode."""


ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A checked experiment. The tables of plugins are checked when the plan is made."""

    name: str
    question: str
    path: Path
    text: str
    """The file, verbatim."""
    settings: tuple[Setting, ...]
    """The `--set`s that changed what the file says."""
    matrix: Matrix
    setup: Mapping[str, Any]
    sut: Mapping[str, Any]
    load: Mapping[str, Any]
    limits: Mapping[str, Any]
    """Limits as written; the matrix may vary them, so they are checked per cell like the plugin
    tables."""
    tune: Mapping[str, Any]
    """Knobs as written, checked like `limits`."""
    measure: Measure
    search: Search | None = None
    """None unless `measure.mode` is "capacity"."""
    metric: Metric | None = None

    @property
    def base(self) -> Path:
        """Relative paths start here."""
        return self.path.absolute().parent

    @property
    def trial_count(self) -> int:
        return self.matrix.cell_count() * self.measure.most_repetitions

    def blaming(self, read: Callable[[], ResultT]) -> ResultT:
        """`read()`, which blames an error on this file or on the `--set` that caused it."""
        return _blaming(self.path, self.settings, read)

    def blamed(self, error: BadInput) -> BadInput:
        return _blamed(self.path, self.settings, error)


def load_experiment(
    path: Path, settings: Sequence[str] = (), *, most_trials: int | None = MOST_TRIALS
) -> Experiment:
    """The file, checked with each `--set` applied. BadInput in one line; nothing is touched."""
    parsed, path = tuple(map(parse_setting, settings)), brought(path)
    table, text = read_toml(path)
    experiment = _blaming(path, parsed, lambda: _build(path, table, text, parsed))
    trials = experiment.trial_count
    words = (
        f"{path}: {experiment.matrix.cell_count():,} cells x "
        f"{experiment.measure.most_repetitions:,} repetitions are {trials:,} trials, more than "
    )
    if trials > MOST_TRIALS_OF_A_RUN:
        raise BadInput(
            f"{words}the {MOST_TRIALS_OF_A_RUN:,} of one run",
            hint="share them among several experiments",
        )
    if most_trials is not None and trials > most_trials:
        raise BadInput(f"{words}{most_trials:,}", hint="add --yes if you mean it")
    return experiment


def asked_experiment(table: dict[str, Any], settings: Sequence[str], *, path: Path) -> Experiment:
    """An experiment that a command makes of its arguments. Its text has the `--set`s in it, so that
    it stands alone in the run directory. `path` is what errors blame."""
    parsed = tuple(map(parse_setting, settings))
    experiment = _blaming(path, parsed, lambda: _build(path, table, "", parsed))
    return replace(experiment, text=to_toml(table))


def _build(
    path: Path, table: dict[str, Any], text: str, settings: tuple[Setting, ...]
) -> Experiment:
    for setting in settings:
        _apply(table, setting)
    if isinstance(table.get("matrix"), dict):
        table["matrix"] = flatten(table["matrix"])
        _kinds_of_the_matrix(table)
    file = check(ExperimentFile, table, table="", base=path.absolute().parent)
    if file.measure.hardware and not file.measure.profile:
        raise BadKey(
            "measure.hardware", "the profiler counts it; set measure.profile = true", given="true"
        )
    if (asked := file.measure.outcome) and asked[0] != "alerts":
        raise BadKey("measure.outcome", 'the first must be "alerts": all rests on them')
    search = _search(file)
    detections = search is not None and search.by_detections
    standing = file.measure.sut == "standing"
    if standing and asked[1:]:
        raise BadKey(
            "measure.outcome",
            f'a SUT that stays up may log "{asked[1]}" after the trial, when a flow ends: '
            'ask for ["alerts"] alone, or set measure.sut = "fresh"',
        )
    if standing and detections:
        raise BadKey(
            "search.goals_of",
            'a search by detections starts the SUT for each trial: set measure.sut = "fresh"',
            given='"detections"',
        )
    if asked and search is not None and not detections:
        raise BadKey(
            "measure.outcome",
            'this search counts packets: search.goals_of = "detections", or leave it out',
        )
    if detections and not asked:
        raise BadKey(
            "search.goals_of",
            'measure.outcome says which: set it to ["alerts"]',
            given='"detections"',
        )
    return Experiment(
        name=file.name,
        question=file.question,
        path=path,
        text=text,
        settings=settings,
        matrix=check_matrix(file.matrix),
        setup=file.setup.model_dump(),
        sut=file.sut.model_dump(),
        load=file.load.model_dump(),
        limits=dict(table.get("limits", {})),
        tune=file.tune,
        measure=file.measure,
        search=search,
        metric=file.metric,
    )


def _search(file: ExperimentFile) -> Search | None:
    if file.measure.rule and file.measure.mode != BLOCKS:
        raise BadKey("measure.repetitions", f'a table is for mode = "{BLOCKS}"; give a number')
    if file.measure.mode == CAPACITY:
        return file.search or Search()
    if file.search is not None:
        raise BadKey(
            "measure.mode",
            f'the table search is of mode "{CAPACITY}"; leave out one of them',
            given=f'"{file.measure.mode}"',
        )
    return None


def _kinds_of_the_matrix(table: dict[str, Any]) -> None:
    """A kind that the matrix varies need not be given beside it, for no cell would have it."""
    for name in ("setup", "sut", "load"):
        matrix, key = table["matrix"], f"{name}.kind"
        given = matrix.get(key)
        values = list(given) if isinstance(given, list) else []
        values += [v for k, v in matrix.items() if k.startswith(CELLS) and k.endswith(f".{key}")]
        if values and isinstance(table.get(name, {}), dict):
            table.setdefault(name, {}).setdefault("kind", values[0])


def _apply(table: dict[str, Any], setting: Setting) -> None:
    """A key that is set is pinned: the matrix does not vary it any more."""
    matrix = table.setdefault("matrix", {})
    if isinstance(matrix, dict):
        table["matrix"] = matrix = flatten(matrix)
        if setting.path[0] == "matrix" and len(setting.path) > 1:
            put(matrix, (".".join(setting.path[1:]),), setting.value)
            return
        pin(matrix, setting.key, setting.value)
        if setting.key == NAMED:
            return
    put(table, setting.path, setting.value)


def _blaming(path: Path, settings: Sequence[Setting], read: Callable[[], ResultT]) -> ResultT:
    try:
        return read()
    except BadInput as error:
        raise _blamed(path, settings, error) from None


def _blamed(path: Path, settings: Sequence[Setting], error: BadInput) -> BadInput:
    error.message = printable(error.message)
    return error.at(next((one for one in reversed(settings) if _caused(error, one)), path))


def _caused(error: BadInput, setting: Setting) -> bool:
    """Whether it is about the key that was set, one inside it, or one that it lies in."""
    own = f"{setting.key.removeprefix(MATRIX)}."  # a cell's value is met in the table it was put in
    keys = [f"{key.removeprefix(MATRIX)}." for key in error.keys]
    return any(key.startswith(own) or own.startswith(key) for key in keys)
