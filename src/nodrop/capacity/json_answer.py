"""Result of a search, for machines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from nodrop.capacity.search_answer import Answer, Bound
from nodrop.capacity.searched_cells import SearchedCell
from nodrop.capacity.words import answer_sentences, soak_evidence, soak_words
from nodrop.results.capacity import CapacityAnswer, Card, Carried, Confidence, Goal, SoakAnswer
from nodrop.results.trial import TrialRecord
from nodrop.stats.interval import median_interval

Unit = Callable[[Bound], float | None]


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
    goals = [_goal(answer) for answer in searched.answers]
    ndr = next((goal for goal in goals if goal.loss_ratio == 0), None)
    scale = ndr.multiplier if ndr else None
    pps, bps = (ndr.pps, ndr.bps) if ndr else (None, None)
    first, told = ndr or goals[0], searched.answers[0]
    return CapacityAnswer(
        run_directory=str(run_directory),
        report=str(report),
        exit_code=exit_code,
        by=told.by,
        ndr_multiplier=scale.value if scale else None,
        ndr_multiplier_interval=scale.within_search if scale else None,
        ndr_pps=pps.value if pps else None,
        ndr_pps_interval=pps.within_search if pps else None,
        ndr_bps=bps.value if bps else None,
        ndr_bps_interval=bps.within_search if bps else None,
        limited_by=first.limited_by,
        confidence=first.confidence,
        place=first.place,
        knob=first.knob,
        ndr=ndr,
        pdr=[goal for goal in goals if goal.loss_ratio],
        detections=[goal for goal in goals if goal.detection_loss_ratio is not None],
        window=searched.window,
        trace_changes=[*changes],
        decoder=[*decoder],
        soak=next((_soak(soak.record) for soak in searched.soaks), None),
        trials=told.trials,
        trial_seconds=told.trial_seconds,
        forecast=searched.forecast,
        round_trials=[*searched.round_trials],
        sentences=[sentence.text for sentence in answer_sentences(searched)],
        card=card,
    )


def _goal(answer: Answer) -> Goal:
    scale = _carried(answer, lambda bound: bound.value)
    return Goal(
        loss_ratio=answer.goal if answer.goals_of == "packets" else None,
        detection_loss_ratio=answer.goal if answer.goals_of == "detections" else None,
        multiplier=scale if answer.by == "multiplier" else None,
        speed=scale if answer.by == "speed" else None,
        pps=_carried(answer, lambda bound: bound.pps),
        bps=_carried(answer, lambda bound: bound.bps),
        limited_by=answer.limited_by,
        place=answer.place,
        knob=answer.knob,
        broke=answer.broke,
        tried_at_or_below=None if answer.missed is None else answer.missed.trials,
        missed_at_or_below=None if answer.missed is None else answer.missed.missed,
        missed_share_at_most=None if answer.missed is None else answer.missed.share_at_most,
        reached_width=answer.reached_width,
        confidence=_confidence(answer),
    )


def _soak(record: TrialRecord) -> SoakAnswer:
    lost, sustained = record.packets.lost_packets, record.packets.sustained
    known = record.outcome == "measured" and lost is not None
    return SoakAnswer.model_validate(
        {
            **soak_evidence(record),
            "words": soak_words(record),
            "pps": record.offered.per_s,
            "bps": record.offered.bps,
            "held": not lost and sustained is not False if known else None,
        }
    )


def _confidence(answer: Answer) -> Confidence | None:
    found = answer.confidence
    if found is None:
        return None
    return Confidence(level=found.level, why=found.why, known_ratio=found.known)


def _carried(answer: Answer, unit: Unit) -> Carried:
    low = unit(answer.lower) if answer.lower else None
    high = unit(answer.upper) if answer.upper else None
    between = answer.between
    rounds = [v for bound in between.carried if (v := unit(bound)) is not None] if between else []
    whole = between is not None and between.interval is not None and len(rounds) == between.n
    interval = median_interval(rounds) if whole else None
    return Carried(
        value=low,
        within_search=None if low is None or high is None or high < low else (low, high),
        between_rounds=(interval.low, interval.high) if interval else None,
        rounds=(min(rounds), max(rounds)) if rounds else None,
    )
