"""Sentences on what ended the repetitions of each cell of a run with a rule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodrop.config.repetitions import Repetitions
from nodrop.report import sentences as rules
from nodrop.report.sentences import Sentence, plural
from nodrop.report.story import Cell, Story
from nodrop.results.packed import Records
from nodrop.results.settled import Known, Sut, known, rule_of


def stopped(story: Story) -> Iterator[Sentence]:
    for number, source in enumerate(story.sources):
        found = rule_of(source.run.manifest)
        if found is not None:
            cells = [cell for cell in story.cells if cell.source == number]
            yield from _said(cells, *found)


def _said(cells: Sequence[Cell], rule: Repetitions, sut: Sut) -> Iterator[Sentence]:
    told = [(cell, known(Records(t.packed for t in cell.trials), rule, sut)) for cell in cells]
    for reached in (True, False):
        these = [(cell, of) for cell, of in told if all(one.reached for one in of) == reached]
        if not these:
            continue
        words = "; ".join(f"{cell.label}: {_words(cell, of)}" for cell, of in these)
        asked = f"{' and '.join(rule.until)} (at most {rule.max} trials)"
        does = "reached by" if reached else "not reached by"
        yield Sentence(
            rule=rules.RULE_REACHED if reached else rules.RULE_NOT_REACHED,
            good=reached,
            text=f"{asked} was {does} {plural(len(these), 'cell')}: {words}",
            evidence={
                "until": list(rule.until),
                "max": rule.max,
                "cells": [
                    {"cell": cell.label, "trials": len(cell.trials), "known": [*map(_plain, of)]}
                    for cell, of in these
                ],
            },
        )


def _words(cell: Cell, told: Sequence[Known]) -> str:
    said = [
        f"{one.until.metric} ± {one.half_width:.3g} {one.until.unit}"
        if one.half_width is not None
        else f"{one.until.metric} has no interval" + (f" of {one.n} hosts" if one.hosts else "")
        for one in told
    ]
    return f"{', '.join(said)} after {plural(len(cell.trials), 'trial')}"


def _plain(one: Known) -> dict[str, object]:
    return {"until": str(one.until), "n": one.n, "half_width": one.half_width}
