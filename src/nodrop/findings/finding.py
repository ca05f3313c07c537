"""One finding: what is suspicious, the evidence for it, and what it does to a conclusion."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Severity(StrEnum):
    SERIOUS = "serious"
    """A conclusion drawn from these figures would be wrong."""
    WARNING = "warning"
    """A conclusion needs more care than the figures suggest."""
    NOTE = "note"
    """Good to know."""


MOST_EVIDENCE = 12


def in_words(evidence: Iterable[str]) -> str:
    """One after the other, and how many more there are."""
    every = list(evidence)
    more = len(every) - MOST_EVIDENCE
    return "; ".join(every[:MOST_EVIDENCE]) + (f"; and {more} more" if more > 0 else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    code: str
    """Stable: docs/reference/findings.md."""
    severity: Severity
    title: str
    evidence: str
    effect: str
    """Effect on a conclusion."""
    cells: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "severity": str(self.severity), "cells": list(self.cells)}
