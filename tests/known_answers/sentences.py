"""Sentences about runs that were made up: what is said, by which rules, in which words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nodrop.report.answer import answer
from nodrop.report.sentences import Sentence
from nodrop.report.story import read_story
from tests.made.outcome_runs import Load, outcome_run


def pps(rate: int, trials: Sequence[float | str], **fields: Any) -> Load:
    return Load(cell={"load.pps": rate}, pps=rate, trials=trials, **fields)


def said(out: Path, *loads: Load, **options: Any) -> list[Sentence]:
    return list(answer(read_story([outcome_run(out, loads, **options)])).sentences)


def rules(sentences: Sequence[Sentence]) -> list[str]:
    return [sentence.rule for sentence in sentences]


def text_of(sentences: Sequence[Sentence], rule: str) -> str:
    (found,) = [s.text for s in sentences if s.rule == rule]
    return found
