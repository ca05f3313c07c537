"""Cells whose trials are void for one reason, always or nearly so: that is the finding, and what to
change is said with it."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from nodrop.capacity.cells import given_cells, searches, subject
from nodrop.ledger.hops import Reason
from nodrop.report import escape
from nodrop.report.loads import asked_words
from nodrop.report.senders import counted, reason_words
from nodrop.report.sentences import Sentence
from nodrop.report.story import Cell, Story, once
from nodrop.report.trials import Trial

NEARLY_ALL = 0.8
FEWEST = 2
"""One void trial can be chance."""
MOST_LATE_US = 50_000.0
"""A later sender offers another load than was asked for; a bound is not what to change."""


@once
def always_void(story: Story) -> tuple[Sentence, ...]:
    given = [(c, subject(story, c), c.trials, f" at {asked_words(c)}") for c in given_cells(story)]
    searched = [(one.cells[0], one.subject, one.trials, "") for one in searches(story)]
    return tuple(s for one in (*given, *searched) for s in _said(story, *one))


def _said(
    story: Story, cell: Cell, name: str, trials: Sequence[Trial], at: str
) -> Iterator[Sentence]:
    void = tuple(t for t in trials if t.outcome == "void")
    code, n = next(iter(counted(void).most_common(1)), ("", 0))
    if n < FEWEST or n < NEARLY_ALL * len(trials):
        return
    same = tuple(t for t in void if code in t.invalid_reasons)
    how_many = f"{n} of {len(trials)}"
    if n == len(trials):
        how_many = "both" if n == 2 else f"all {n}"
    # The reason, and one trial's own words for it.
    words = reason_words(code)
    said = same[len(same) // 2].record.verdict.removeprefix("void: ").split("; ")[0]
    own = escape.plain(said, longest=200).rstrip(".")
    words += f" ({own})" if own and own != code else ""
    text = f"{name}: {how_many} trials{at} are void for one reason: {words}. They say nothing of "
    yield Sentence(
        "always-void",
        f"{text}the SUT.",
        {"reason": escape.plain(code), "void": n, "trials": len(trials)},
        same,
        name,
        to_do=_change(story, cell, code, same),
    )


class Change(NamedTuple):
    words: str
    setting: str = ""


def _change(story: Story, cell: Cell, code: str, trials: Sequence[Trial]) -> str:
    """The first as a command to paste, the others as settings of the same."""
    changes = CHANGES.get(code)
    if changes is None:
        asks = f"what `nodrop doctor` names on this host (the trial's words: {trials[0].name})"
        return OTHER.get(code, asks)
    said: list[str] = []
    pasted: Callable[[str], str] = story.sources[cell.source].command_words
    for words, setting in changes(story, cell, trials):
        said.append(f"{words}: {pasted(setting)}" if setting else words)
        pasted = _alone if setting else pasted
    return "; or ".join(said)


def _alone(setting: str) -> str:
    return f"`{shlex.join(['--set', setting])}`"


def _less_load(story: Story, cell: Cell) -> str:
    """Half of what was asked for, as a setting; the other loads of a matrix stay. A search ends at
    half of its lowest void load."""
    if cell.searched:
        cells = (one for one in story.cells if one.searched and one.source == cell.source)
        void = (t.record.searched for one in cells for t in one.void)
        return f"search.max={min(one.value for one in void if one) / 2:g}"
    for key in ("load.pps", "load.multiplier", "load.speed"):
        value = cell.factors.get(key)
        if isinstance(value, int | float) and value > 1:
            half = math.ceil(value / 2) if isinstance(value, int) else value / 2
            others = [c.factors.get(key) for c in story.cells if c.source == cell.source]
            numbers = {v for v in others if isinstance(v, int | float) and v != value}
            kept = sorted({half, *numbers})
            if len(kept) > 1:
                return f'matrix."{key}"=[{", ".join(f"{v:g}" for v in kept)}]'
            return f"{key}={half:g}"
    return "load.speed=0.5"


def _late(story: Story, cell: Cell, trials: Sequence[Trial]) -> list[Change]:
    found = [Change("less load", _less_load(story, cell))]
    errors = [e.p99 for t in trials if (e := t.record.offered.schedule_error_us) and e.p99]
    worst = max(errors, default=None)
    if worst is not None and worst <= MOST_LATE_US:
        bound = math.ceil(worst * 1.2 / 1000) * 1000
        words = f"a sender that may be {bound / 1000:g} ms late"
        found.append(Change(words, f"measure.late_p99_us={bound}"))
    if not any(t.record.generator_cpus for t in trials):
        found.append(Change("a CPU for the sender alone", "load.cpu=0"))
    return found


def _burst(story: Story, cell: Cell, trials: Sequence[Trial]) -> list[Change]:
    found = [Change("less load", _less_load(story, cell))]
    bursts = [b.sent or 0 for t in trials if (b := t.record.offered.largest_late_burst)]
    if (largest := max(bursts, default=0)) and "sut.ring_size" not in story.factors:
        room = 2 ** math.ceil(math.log2(largest * 4 + 1))
        found.insert(0, Change("a ring that a late sender does not fill", f"sut.ring_size={room}"))
    lax = "all losses taken for the SUT's, whatever the sender did"
    return [*found, Change(lax, "measure.late_burst_max_ratio=1")]


def _stolen(story: Story, cell: Cell, trials: Sequence[Trial]) -> list[Change]:
    del story, cell
    worst = max((t.record.steal_ratio or 0.0 for t in trials), default=0.0)
    bound = min(1.0, math.ceil(worst * 20 + 1) / 20)
    return [
        Change("a host whose CPUs no other guest takes"),
        Change("a higher bound", f"measure.steal_max_ratio={bound:g}"),
    ]


CHANGES: Mapping[str, Callable[[Story, Cell, Sequence[Trial]], list[Change]]] = {
    Reason.SENDER_LATE: _late,
    Reason.SENDER_BURST: _burst,
    Reason.SENDER_SHORT: lambda story, cell, _: [Change("less load", _less_load(story, cell))],
    Reason.CPU_STOLEN: _stolen,
}
OTHER: Mapping[str, str] = {
    Reason.NO_RULES: "the rule files, until the SUT loads them (`suricata -T -S FILE` names what "
    "does not load)",
    Reason.OTHER_FILES: "nothing but the files: put back those that the run began with, or begin "
    "another run",
    Reason.NOTHING_ARRIVED: "the cable, or which port the lab file names for it (`nodrop lab check "
    "LAB`)",
    Reason.RECEIVED_MORE_THAN_SENT: "the port: something else sends there; take it off the network "
    "that others use",
    Reason.CLOCK_MOVED: "the hosts' clocks: let them run alike (chrony, PTP) and measure again",
}
