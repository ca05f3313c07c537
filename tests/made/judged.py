"""The record of a trial that was judged and never measured."""

from __future__ import annotations

from typing import Any

from nodrop.ledger.verdict import Verdict
from nodrop.results.trial import TrialRecord


def judged(verdict: Verdict, **fields: Any) -> TrialRecord:
    return TrialRecord(
        outcome=verdict.outcome.value,
        valid=verdict.valid,
        invalid_reasons=[str(problem.code) for problem in verdict.invalid_reasons],
        verdict=verdict.words,
        **fields,
    )
