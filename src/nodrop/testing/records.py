"""Trial records by the names of their figures, wherever those stand in a record."""

from __future__ import annotations

from typing import Any

from nodrop.results.trial import TrialRecord
from nodrop.results.versions import current


def trial(**figures: Any) -> TrialRecord:
    return TrialRecord.model_validate(current({"format": 1, **figures}))
