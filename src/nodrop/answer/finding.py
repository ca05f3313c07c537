"""A finding and its words: words.toml holds each sentence once, by code and form.

`{n:trial}` is `1 trial` or `2 trials`, `{n:has|have}` one of the two, `{width:ratio}` a share in
per cent, `{share:whole}` without decimals. Page, terminal, markdown and JSON print what `render`
returns; nothing reads a sentence back.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from string import Formatter
from typing import Any

from nodrop.config.units import count_of
from nodrop.ledger.verdict import percent

WORDS: Mapping[str, Any] = tomllib.loads(
    files("nodrop.answer").joinpath("words.toml").read_text("utf-8")
)
"""Words by table, code and form."""
Shown = Mapping[str, Callable[[Any], str]]
SHOWN: Shown = {"ratio": percent, "whole": lambda ratio: f"{ratio * 100:.0f} %"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A thing that an answer says, as data."""

    code: str
    """Entry of words.toml; stable: docs/reference/findings.md has those of an answer."""
    subject: str = ""
    """SUT that it is about."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Numbers that it rests on, and loads as load_words.py writes them."""
    because: tuple[Finding, ...] = ()
    """Reasons, the most important first."""
    trials: tuple[str, ...] = ()
    """Trials that it rests on."""

    @property
    def text(self) -> str:
        return render(self)


class _Words(Formatter):
    def __init__(self, shown: Shown) -> None:
        self._shown = shown

    def format_field(self, value: Any, spec: str) -> str:
        if "|" in spec:
            one, several = spec.split("|")
            return one if value == 1 else several
        if spec in self._shown:
            return self._shown[spec](value)
        if len(spec) > 1 and spec[0].isalpha():
            return count_of(value, spec)
        return format(value, spec)


def filled(template: str, values: Mapping[str, Any], shown: Shown = SHOWN) -> str:
    return str(_Words(shown).vformat(template, (), values))


def render(finding: Finding, form: str = "sentence") -> str:
    """Words of its code in a form. `{because}` are its reasons, `{why}` the same after a colon,
    `{about}` its subject before one; each is empty if there is none."""
    entry: Any = WORDS
    for name in finding.code.split("."):
        entry = entry[name]
    because = "; ".join(filter(None, (render(one, "why") for one in finding.because)))
    known = {
        "subject": finding.subject,
        "about": f"{finding.subject}: " if finding.subject else "",
        "because": because,
        "why": f": {because}" if because else "",
        **finding.values,
    }
    return filled(entry[form], known).strip()


def worded(code: str, /, **values: Any) -> str:
    """Sentence of a code that needs no finding of its own."""
    return render(Finding(code=code, values=values))


def sentence_case(text: str) -> str:
    return text[:1].upper() + text[1:]
