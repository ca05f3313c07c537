"""Counters of Suricata that say that analysis was lost without a packet lost."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class LossCounter:
    """A row of the table: what one more of the counter means, and the setting behind it."""

    counter: str
    """Name of one counter, or of a family: `*` stands for one word."""
    loses: str
    setting: str
    finding: str
    memcap: str | None = None
    """Name of the limit in `memcap-list`; None: it has none there."""
    since: int | None = None
    """First version that has it; None: older than 7."""
    until: int | None = None
    feature: str | None = None
    """Output that must be on for it to be counted."""

    def of(self, version: int) -> bool:
        return (self.since or 0) <= version <= (self.until or version)

    def in_family(self, name: str) -> bool:
        return matches(self.counter, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoLoss:
    """Counters that sound like a loss, and why they are none."""

    counters: tuple[str, ...]
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SuricataCounters:
    lost: tuple[LossCounter, ...]
    no_loss: tuple[NoLoss, ...]


@cache
def suricata_counters() -> SuricataCounters:
    text = files("nodrop.sensor").joinpath("suricata_counters.toml").read_text("utf-8")
    table: dict[str, Any] = tomllib.loads(text)
    return SuricataCounters(
        lost=tuple(LossCounter(**row) for row in table["lost"]),
        no_loss=tuple(
            NoLoss(counters=tuple(row["counters"]), because=row["because"])
            for row in table["no_loss"]
        ),
    )


def lost_analysis(counters: Mapping[str, int]) -> Iterator[tuple[LossCounter, str]]:
    """Rows of the table that a Suricata has counters for, each with the counter's own name."""
    for row in suricata_counters().lost:
        if "*" not in row.counter:
            if row.counter in counters:
                yield row, row.counter
            continue
        for name in counters:
            if row.in_family(name):
                yield row, name


def matches(family: str, name: str) -> bool:
    """`app_layer.error.*.alloc` has `app_layer.error.http.alloc`, and no name of more words;
    a `*` at the end stands for all that follows."""
    same_words = family.endswith(".*") or family.count(".") == name.count(".")
    return same_words and fnmatchcase(name, family)
