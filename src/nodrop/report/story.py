"""Content of run directories: trials gathered into cells."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, TypeVar

from nodrop.config.asked import changed_command
from nodrop.config.matrix import NAMED, said_by_name
from nodrop.config.units import noun
from nodrop.findings.observations import RATES, rates_of
from nodrop.report import escape, numbers
from nodrop.report.trials import StoredTrial, read_trial
from nodrop.results.rundir import RunDir, command_in, must_be_each_once, open_run
from nodrop.results.summary import by_size, looks, rule_of
from nodrop.results.trial import accelerator_words
from nodrop.stats.interval import LookPlan, Summary, by_start, summarize

KeyT = TypeVar("KeyT")
ItemT = TypeVar("ItemT")
MadeT = TypeVar("MadeT")
WholeT = TypeVar("WholeT", "RunCell", "Story")

UNVALUED = "all trials"


def by_key(told: Iterable[tuple[KeyT, ItemT]]) -> dict[KeyT, list[ItemT]]:
    """Items with the same key, in their order."""
    found: dict[KeyT, list[ItemT]] = {}
    for key, item in told:
        found.setdefault(key, []).append(item)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    values: tuple[float, ...]
    by_start: tuple[float, ...]
    """One for each start of the SUT, or for each host if several measured the cell: values that can
    be compared as independent."""
    summary: Summary | None


def gathered(
    told: Iterable[tuple[float | None, Hashable]], looks: LookPlan | None = None, scale: float = 1.0
) -> Gathered:
    """Values, each with the unit that inferences count once; without those not measured."""
    known = [(value * scale, start) for value, start in told if value is not None]
    values, starts = [value for value, _ in known], [start for _, start in known]
    return Gathered(
        values=tuple(values),
        by_start=tuple(by_start(values, starts)),
        summary=summarize(values, starts=starts, looks=looks),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class RunCell:
    """One combination of the matrix in one run directory."""

    source: int
    factors: Mapping[str, Any]
    label: str
    group: str
    """The label without the factors that only make the load larger."""
    load_label: str
    rank: tuple[float, ...]
    """Values of the factors by which a load only grows (`RATES`)."""
    trials: tuple[StoredTrial, ...]
    looks: LookPlan | None = None
    """Looks that decided, by what was seen, how often it was repeated; None: a number did."""
    kept: dict[object, Any] = field(default_factory=dict, init=False, repr=False)
    """Results made from its trials, kept by figure (report/costs.py)."""

    @cached_property
    def valid(self) -> tuple[StoredTrial, ...]:
        return self._of("measured")

    @cached_property
    def failed(self) -> tuple[StoredTrial, ...]:
        return self._of("failed")

    @cached_property
    def void(self) -> tuple[StoredTrial, ...]:
        return self._of("void")

    @property
    def searched(self) -> bool:
        """A search chose its load: how often it was tried, and beside which others, says nothing
        about it."""
        return self.trials[0].record.searched is not None

    @property
    def answered(self) -> bool:
        """Whether the load was transactions, which have a section of their own."""
        return self.trials[0].record.transactions is not None

    @property
    def mark(self) -> str:
        """`failed`, `loss`, `good` or `void`: the worst that its trials show of its load."""
        worst = "failed" if self.failed else "loss" if self.lossy else ""
        return worst or ("good" if self.valid else "void")

    def _of(self, outcome: str) -> tuple[StoredTrial, ...]:
        return tuple(t for t in self.trials if t.outcome == outcome)

    @cached_property
    def known(self) -> tuple[StoredTrial, ...]:
        """Measured trials of which it is known whether they lost something: books that do not close
        (of imported runs) may hide a loss, but not undo one that was counted."""
        return tuple(t for t in self.valid if t.loss_ratio is not None or _is_lossy(t))

    @cached_property
    def unknown(self) -> tuple[StoredTrial, ...]:
        return tuple(t for t in self.valid if t.loss_ratio is None and not _is_lossy(t))

    @cached_property
    def starts(self) -> int:
        """Starts of the SUT in the measured trials; or how many hosts measured them."""
        return starts_of(self.valid)

    @cached_property
    def pairs(self) -> tuple[str, ...]:
        return tuple(sorted({t.pair for t in self.valid if t.pair is not None}))

    @property
    def independent_name(self) -> str:
        """Name of what an inference counts: runs, or starts of the SUT if runs share one; hosts if
        several measured the cell."""
        if len(self.pairs) > 1:
            return "hosts"
        return "runs" if self.starts == len(self.valid) else "starts of the SUT"

    def gathered(
        self, key: object, of: Callable[[StoredTrial], float | None], scale: float = 1.0
    ) -> Gathered:
        """Values of the measured trials that have one, made once for this key: tables, drawings and
        sentences ask for the same ones."""
        if key not in self.kept:
            told = ((of(trial), trial.start) for trial in self.valid)
            self.kept[key] = gathered(told, self.looks, scale)
        found: Gathered = self.kept[key]
        return found

    def summary(self, figure: str) -> Summary | None:
        return self.gathered(figure, lambda trial: trial.figure(figure)).summary

    @cached_property
    def loss(self) -> Summary | None:
        return self.summary("loss_ratio")

    @cached_property
    def lossy(self) -> tuple[StoredTrial, ...]:
        return tuple(t for t in self.valid if _is_lossy(t))

    def median(self, figure: str) -> float | None:
        summary = self.summary(figure)
        return summary.median if summary else None

    @cached_property
    def offered_pps(self) -> float | None:
        return self.median("offered_pps")

    @cached_property
    def asked_pps(self) -> float | None:
        """Rate that the load was meant to have, in packets/s; None if it is not known."""
        if isinstance(pps := self.factors.get("load.pps"), int | float):
            return float(pps)
        for trial in self.trials:
            asked = trial.record.offered
            if asked.intended and asked.intended_duration_s:
                return asked.intended / asked.intended_duration_s
        return None

    @cached_property
    def loss_place(self) -> str | None:
        """The place where most of the lost packets of all measured trials died."""
        places: Counter[str] = Counter()
        for trial in self.valid:
            places.update(trial.record.packets.lost_by_place)
        return places.most_common(1)[0][0] if places.total() else None

    @cached_property
    def typical(self) -> StoredTrial:
        """The measured trial whose loss is nearest to the median, with books if there is one;
        the first of several, to make the choice depend on nothing else."""
        loss = self.loss
        measured = [t for t in self.valid if t.loss_ratio is not None]
        if loss is None or not measured:
            return self.trials[0]
        return min(
            measured, key=lambda t: (not t.has_books, abs((t.loss_ratio or 0.0) - loss.median))
        )


def starts_of(trials: Iterable[StoredTrial]) -> int:
    return len({t.start for t in trials})


def _is_lossy(trial: StoredTrial) -> bool:
    return bool(trial.lost_packets or trial.loss_ratio)


@dataclass(frozen=True, kw_only=True)
class StorySource:
    run: RunDir
    name: str

    @property
    def question(self) -> str:
        return escape.plain(self.run.manifest.get("question") or "", longest=1000)

    @property
    def command(self) -> tuple[str, ...]:
        """The words that made the run; empty if they are not recorded."""
        return command_in(self.run.manifest)

    def command_with(self, *settings: str) -> str:
        """The command with these settings, to be pasted; the settings alone without one."""
        return shlex.join(changed_command(self.command, *settings))

    def command_words(self, *settings: str) -> str:
        """`command_with` within a sentence."""
        return f"`{self.command_with(*settings)}`"


@dataclass(frozen=True, kw_only=True)
class Story:
    sources: tuple[StorySource, ...]
    cells: tuple[RunCell, ...]
    """Cells in the order of the factors' values."""
    trials: tuple[StoredTrial, ...]
    """Trials in the order in which they were measured."""
    factors: tuple[str, ...]
    kept: dict[object, Any] = field(default_factory=dict, init=False, compare=False, repr=False)
    """Results that `once` keeps."""

    @property
    def answered(self) -> bool:
        """All of its loads were transactions."""
        return bool(self.cells) and all(cell.answered for cell in self.cells)

    @property
    def several(self) -> bool:
        return len(self.sources) > 1


def once(of: Callable[[WholeT], MadeT]) -> Callable[[WholeT], MadeT]:
    """Page, tables and figures all ask for it: it is made for the first and kept with the story, or
    the cell."""

    @wraps(of)
    def kept(whole: WholeT) -> MadeT:
        if of not in whole.kept:
            whole.kept[of] = of(whole)
        found: MadeT = whole.kept[of]
        return found

    return kept


def read_story(paths: Sequence[Path]) -> Story:
    """Opens run directories; BadInput only if one is no run directory at all."""
    runs = [open_run(path) for path in paths]
    must_be_each_once(runs)
    sources = tuple(
        StorySource(run=run, name=escape.plain(run.path.resolve().name)) for run in runs
    )
    trials, gathered = _gathered(
        read_trial(index, run, packed)
        for index, run in enumerate(runs)
        for packed in run.trials.records.packed
    )
    cells = [found[0].record.factors for found in gathered]
    # In the order of the experiment file; a factor that only some cells have varies.
    keys = dict.fromkeys(key for cell in cells for key in cell)
    factors = tuple(k for k in keys if len({repr(cell.get(k, ...)) for cell in cells}) > 1)
    return Story(
        sources=sources, cells=_cells(gathered, factors, sources), trials=trials, factors=factors
    )


def _gathered(
    found: Iterable[StoredTrial],
) -> tuple[tuple[StoredTrial, ...], Sequence[Sequence[StoredTrial]]]:
    """All trials, and those of each cell. They know if several hosts measured theirs."""
    trials = [*found]
    keys = ((t.source, repr(sorted(t.record.factors.items()))) for t in trials)
    cells = by_key((key, n) for n, key in enumerate(keys)).values()
    for places in cells:
        if len({trials[n].pair for n in places if trials[n].valid}) > 1:
            for n in places:
                trials[n] = replace(trials[n], among_hosts=True)
    return tuple(trials), [[trials[n] for n in places] for places in cells]


def _cells(
    gathered: Sequence[Sequence[StoredTrial]],
    factors: Sequence[str],
    sources: Sequence[StorySource],
) -> tuple[RunCell, ...]:
    loads = [f for f in factors if f in (*RATES, "load.ramp", "load.soak_s")]
    others = [f for f in factors if f not in loads]
    by_name = said_by_name(others, [found[0].record.factors for found in gathered])
    cells = []
    for found in gathered:
        source, cell = found[0].source, found[0].record.factors
        labels = {f: factor_label(f, cell[f]) for f in factors if f in cell}
        really = {f: _really(f, cell[f], found) for f in others if f in cell}
        names = [sources[source].name] if len(sources) > 1 else []
        names += [labels[f] + said for f, said in really.items() if f not in by_name]
        names += [labels[f] + said for f in by_name if (said := really.get(f))]
        group = " · ".join(filter(None, [*names, accelerator_words(found)]))
        load = " · ".join(labels[f] for f in loads if f in cell)
        rule = rule_of(sources[source].run.manifest)
        cells.append(
            RunCell(
                source=source,
                factors=cell,
                label=" · ".join(filter(None, (group, load))) or UNVALUED,
                group=group,
                load_label=load,
                rank=rates_of({f: cell[f] for f in loads if f in cell}),
                trials=tuple(sorted(found, key=lambda t: t.repetition)),
                looks=None if rule is None else looks(*rule),
            )
        )

    # By run directory, then by the factors: numbers by size, before words by alphabet.
    order = (*others, *loads)
    return tuple(sorted(cells, key=lambda c: (c.source, *by_size(map(c.factors.get, order)))))


def _really(factor: str, asked: Any, trials: Sequence[StoredTrial]) -> str:
    """A cell is called by what ran: `threads 4 (really 2)`."""
    table, _, name = factor.partition(".")
    if table != "sut" or asked == "auto":
        return ""
    ran = {e for t in trials if (e := t.record.effective.get(name)) is not None}
    if name == "ring_size" and isinstance(asked, int):
        # Frames come in whole blocks.
        ran = {n for n in ran if not isinstance(n, int) or n > 2 * asked}
    others = sorted({_shown(one) for one in ran} - {_shown(asked)})
    said = " or ".join(escape.plain(one, longest=60) for one in others)
    return f" (really {said})" if said else ""


FORMS = {"speed": "{}× speed", "pps": "{} pps", "rate": "{}/s", "ramp": "a ramp from {}"}
"""Factors that do not say their name."""


def factor_label(factor: str, value: Any) -> str:
    """`4X` for load.multiplier = 4, `bare` for setup.kind = "bare", else name and value."""
    name = factor.rsplit(".", 1)[-1]
    said = escape.plain(_shown(value), longest=60)
    if factor == "load.multiplier":
        return f"{said}X"
    if name in ("setup", "kind", NAMED) or factor in ("setup", "sut", "load"):
        return said
    if name == "instances":
        return f"{said} {noun(value, 'instance')}"
    form = FORMS.get(name)
    return form.format(said) if form else f"{escape.plain(name, longest=60)} {said}"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return numbers.count(value)
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return ", ".join(map(_shown, value)) or "none"
    return str(value)
