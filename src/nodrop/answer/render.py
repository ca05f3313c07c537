"""The renderer: words.toml holds each sentence once, by code and form, and this fills it in.

`{n:trial}` is `1 trial` or `2 trials`, `{n:has|have}` one of the two, `{width:ratio}` a share in
per cent. Page, terminal, markdown and JSON print what it returns; nothing reads a sentence back.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from importlib.resources import files
from string import Formatter
from typing import Any

from nodrop.answer.finding import Finding
from nodrop.config.units import count_of
from nodrop.ledger.verdict import percent

WORDS: Mapping[str, Any] = tomllib.loads(
    files("nodrop.answer").joinpath("words.toml").read_text("utf-8")
)
"""Words by table, code and form."""
Shown = Mapping[str, Callable[[Any], str]]
SHOWN: Shown = {"ratio": percent}


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
    """Words of its code in a form: `short`, `title`, `sentence`, `why` … Reasons are joined in
    the form `why`."""
    entry: Any = WORDS
    for name in finding.code.split("."):
        entry = entry[name]
    because = "; ".join(filter(None, (render(one, "why") for one in finding.because)))
    known = {"subject": finding.subject, "because": because, **finding.values}
    return filled(entry[form], known)


def sentence_case(text: str) -> str:
    return text[:1].upper() + text[1:]
