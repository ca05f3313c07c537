"""The answer of `nodrop capacity --json`: each goal's numbers and findings, as the search has them.

schema/capacity.schema.json is made from this. `None` means not measured, or not found. Bounds
*within* one search and the interval *between* starts of the SUT stand apart: neither says what the
other does.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from nodrop.capacity.search_answer import Answer
from nodrop.capacity.searched_cells import SearchedCell
from nodrop.capacity.words import answer_sentences, soak_evidence, soak_words
from nodrop.ledger.quantities import Count
from nodrop.results.capacity import Card, Forecast, SoakAnswer
from nodrop.results.load_window import LoadWindow
from nodrop.results.model import Model
from nodrop.results.trial import TrialRecord


class CapacityAnswer(Model):
    """The answer of a search of one cell."""

    format: Literal[1] = 1
    run_directory: str
    report: str
    exit_code: Count
    """0: each goal has its figure; 6: for a goal, no load is shown to be carried."""
    goals: list[Answer]
    """Answers to the goals, in the order asked."""
    window: LoadWindow | None
    """The part of the trace that every trial sent: NX is N times this part. Null if the load has
    none."""
    trace_changes: list[str]
    """Changes made to the captures before they were sent, and oddities found in them."""
    decoder: list[str]
    """Packets that the SUT decoded though they were cut, or that its decoder calls invalid, in
    words: no loss, and beside the answer. Of all cells of the run."""
    soak: SoakAnswer | None
    """Null if none was asked for, or no load was carried."""
    forecast: Forecast | None
    """The trials that the budget was likely to buy; null without a budget, or if the run keeps no
    forecast."""
    round_trials: list[Count]
    """Trials of each round, ramps left out: what the budget bought."""
    sentences: Annotated[list[str], Field(min_length=1)]
    """The findings, in words."""
    card: Card | None = None
    """The answer card of the first goal, as page, report.md and terminal show it."""


def capacity_answer(
    searched: SearchedCell,
    card: Card | None = None,
    *,
    run_directory: Path,
    report: Path,
    exit_code: int,
    changes: Sequence[str] = (),
    decoder: Sequence[str] = (),
) -> CapacityAnswer:
    return CapacityAnswer(
        run_directory=str(run_directory),
        report=str(report),
        exit_code=exit_code,
        goals=[*searched.answers],
        window=searched.window,
        trace_changes=[*changes],
        decoder=[*decoder],
        soak=next((_soak(soak.record) for soak in searched.soaks), None),
        forecast=searched.forecast,
        round_trials=[*searched.round_trials],
        sentences=[sentence.text for sentence in answer_sentences(searched)],
        card=card,
    )


def _soak(record: TrialRecord) -> SoakAnswer:
    lost, sustained = record.packets.lost_packets, record.packets.sustained
    known = record.outcome == "measured" and lost is not None
    return SoakAnswer.model_validate(
        {
            **soak_evidence(record),
            "words": soak_words(record),
            "pps": record.offered.pps,
            "bps": record.offered.bps,
            "held": not lost and sustained is not False if known else None,
        }
    )
