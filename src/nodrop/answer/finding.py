"""A thing that an answer says, as data: the renderer (`answer/render.py`) puts it into words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    code: str
    """Entry of words.toml; stable, docs/reference/findings.md has those of an answer."""
    subject: str = ""
    """SUT, cell or trial that it is about."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Numbers that it rests on, and loads as load_words.py writes them."""
    because: tuple[Finding, ...] = ()
    """Reasons, the most important first."""
    trials: tuple[str, ...] = ()
    """Trials that it rests on."""
