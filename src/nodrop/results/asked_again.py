"""Differences between the question a run began with and the one it is resumed with."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Question:
    """An experiment as it was asked: the text of its file, and each `--set`."""

    text: str
    settings: Sequence[str]
    fleet: str | None = None
    """Its name; None: one lab measures."""

    def changes_since(self, begun: Question) -> Sequence[str]:
        """`search.budget_s = 30.0, was 60.0`; empty if only something else differs."""
        if self.fleet != begun.fleet:
            both = (
                "" if None in (self.fleet, begun.fleet) else " (other pairs may go on by that name)"
            )
            return [f"{_lab(self.fleet)}, was {_lab(begun.fleet)}{both}"]
        now, then = self._keys(), begun._keys()
        return [
            f"{key} = {now.get(key, 'not set')}, was {then.get(key, 'not set')}"
            for key in {**then, **now}
            if now.get(key) != then.get(key)
        ]

    def _keys(self) -> dict[str, str]:
        try:
            found = dict(_flat("", tomllib.loads(self.text)))
        except tomllib.TOMLDecodeError:
            return {}
        for setting in self.settings:
            key, _, value = setting.partition("=")
            found[key.strip()] = value.strip()
        return found


def _lab(fleet: str | None) -> str:
    return "one lab" if fleet is None else f"fleet {json.dumps(fleet)}"


def _flat(prefix: str, table: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(f"{prefix}{key}.", value)
        else:
            yield f"{prefix}{key}", json.dumps(value, default=str)
