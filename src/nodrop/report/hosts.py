"""Cells that several pairs of a fleet measured: the spread between hosts, and within one, apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from nodrop.capacity.searched_cells import searches
from nodrop.report import numbers
from nodrop.report.costs import DIFFERENCES, Figure
from nodrop.report.escape import plain
from nodrop.report.sentences import Sentence, first_of, sentence_of
from nodrop.report.story import RunCell, Story, by_key, once
from nodrop.report.tables import Field, Table, own, table_of, words
from nodrop.results.summary import measured_on
from nodrop.stats.comparison import HostSpread, host_spread
from nodrop.stats.interval import CONFIDENCE, runs_needed
from nodrop.untrusted.json_text import value_in

MOST_NAMED = 6
"""Cells of a pair; the table of cells has all of them."""


@dataclass(frozen=True, slots=True)
class OnHosts:
    """One figure of one cell."""

    cell: RunCell
    figure: Figure
    values: Mapping[str, Sequence[float]]
    """Pair → values of its measured trials."""
    spread: HostSpread | None
    """Spread between hosts; None if each pair measured the cell once."""
    differs: bool
    """Hosts differ by more than trials of one do."""


@once
def on_hosts(story: Story) -> tuple[OnHosts, ...]:
    """Figures of cells, by the pairs that measured them. Cells of a search are left out: each load
    is a cell of its own, so the spread says nothing there."""
    found = []
    for cell in (one for one in story.cells if not one.searched):
        for figure in DIFFERENCES:
            told = [
                (t.pair, v * figure.scale)
                for t in cell.valid
                if t.pair is not None and (v := figure.of(t)) is not None
            ]
            known = by_key(sorted(told, key=lambda one: one[0]))
            if len(known) > 1:
                found.append((cell, figure, known, host_spread([*known.values()])))
    # All of a report together err as often as one may (Bonferroni).
    error = (1 - CONFIDENCE) / max(sum(spread is not None for *_, spread in found), 1)
    return tuple(OnHosts(*one, bool(one[-1] and one[-1].apart(error))) for one in found)


def other_hosts(base: RunCell, cell: RunCell) -> str:
    """`b against a`, the pairs that measured them; empty if those are one, or without a fleet."""
    if not base.pairs or not cell.pairs or base.pairs == cell.pairs:
        return ""
    return " against ".join(", ".join(map(plain, one.pairs)) for one in (cell, base))


@once
def hosts_between(story: Story) -> Sentence | None:
    """None if one pair measured all cells, or all pairs each."""
    measured = [(c.label, c.pairs, c.valid) for c in story.cells if not c.searched]
    for search in searches(story):
        pairs = {pair for cell in search.cells for pair in cell.pairs}
        valid = tuple(trial for trial in search.trials if trial.valid)
        measured.append((search.subject, tuple(sorted(pairs)), valid))
    cells = by_key((on, label) for label, on, _ in measured if on)
    if len(cells) < 2:
        return None
    told = sorted(cells.items())
    said = (f"{', '.join(map(plain, on))}: {first_of(labels, MOST_NAMED)}" for on, labels in told)
    named = "; ".join(said)
    ordered = [{"pairs": [*pairs], "cells": labels} for pairs, labels in told]
    trials = (trial for _, pairs, valid in measured if pairs for trial in valid)
    return sentence_of("other-hosts", {"cells": ordered}, trials, named=named)


def hosts_sentences(story: Story) -> Iterator[Sentence]:
    found = on_hosts(story)
    each = [*dict.fromkeys(one.cell for one in found)]
    if not each:
        return
    trials = tuple(trial for cell in each for trial in cell.valid)
    hosts = numbers.least_to_most(len(cell.pairs) for cell in each)
    # By the boot that the manifest has of each pair's host.
    hosts_of = ((measured_on(story.sources[c.source].run.manifest), c.pairs) for c in each)
    found_in = (value_in(on, pair, "host", "boot_id") for on, pairs in hosts_of for pair in pairs)
    boots = {str(boot or "") for boot in found_in}
    of_one = len(boots) == 1 and all(boots)
    alone = "; all are pairs of one machine, so of others this says nothing" if of_one else ""
    yield sentence_of(
        "several-hosts", {"cells": [[c.label, *c.pairs] for c in each]}, trials,
        n=len(each), hosts=hosts, needed=runs_needed(), alone=alone,
    )  # fmt: skip
    differ = [(one, one.spread) for one in found if one.spread is not None and one.differs]
    titles = ", ".join(dict.fromkeys(one.figure.title for one, _ in differ))
    figures = [
        {"cell": one.cell.label, "figure": one.figure.name, "between": spread.between,
         "within": spread.within, "p": spread.p}
        for one, spread in differ
    ]  # fmt: skip
    if of := len({one.cell for one, _ in differ}):
        yield sentence_of("hosts-differ", {"figures": figures}, trials, n=of, titles=titles)


def hosts_tables(story: Story) -> tuple[Table, ...]:
    found = on_hosts(story)
    return (
        (table_of("hosts", "Cells that ran on several hosts", HOST_FIELDS, found),) if found else ()
    )


def _reach(one: OnHosts) -> str:
    if one.spread is None:
        return numbers.NOT_MEASURED
    if one.spread.interval is None:
        return "none: hosts are alike"
    # None of these figures is below 0, and no share above 100 %.
    low, high = max(0.0, one.spread.interval.low), one.spread.interval.high
    high = min(100.0, high) if one.figure.points else high
    return f"{one.figure.shown(low)} to {one.figure.shown(high)}"


def _of_spread(
    name: str, title: str, of: Callable[[HostSpread], float], help: str = ""
) -> Field[OnHosts]:
    return own(name, title, lambda one: of(one.spread) if one.spread else None,
               lambda one: one.figure.shown, help=help)  # fmt: skip


HOST_FIELDS: tuple[Field[OnHosts], ...] = (
    words("cell", "Cell", lambda one: one.cell.label),
    words("figure", "Figure", lambda one: f"{one.figure.title}, {one.figure.unit}"),
    words("hosts", "Mean of each host (trials)", lambda one: ", ".join(
        f"{plain(host)} {one.figure.shown(sum(values) / len(values))} ({len(values)})"
        for host, values in one.values.items())),
    _of_spread("mean", "Mean of hosts", lambda spread: spread.mean),
    words("interval", "95 % interval", _reach, "for hosts of this kind; by the hosts' means alone"),
    _of_spread("between", "Between hosts", lambda spread: spread.between,
               "standard deviation of hosts, without what trials add to it"),
    _of_spread("within", "Within a host", lambda spread: spread.within,
               "standard deviation of trials of one host"),
    words("differ", "Differ", lambda one: "yes" if one.differs else (
        "cannot tell" if one.spread else numbers.NOT_MEASURED),
        "by more than trials of one host do"),
)  # fmt: skip
