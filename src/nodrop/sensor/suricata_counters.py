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


@cache
def table() -> Mapping[str, Any]:
    text = files("nodrop.sensor").joinpath("suricata_counters.toml").read_text("utf-8")
    return tomllib.loads(text)


@cache
def loss_counters() -> tuple[LossCounter, ...]:
    return tuple(LossCounter(**row) for row in table()["lost"])


def lost_analysis(counters: Mapping[str, int]) -> Iterator[tuple[LossCounter, str]]:
    """Rows of the table that a Suricata has counters for, each with the counter's own name."""
    for row in loss_counters():
        names = counters if "*" in row.counter else counters.keys() & {row.counter}
        for name in names:
            if matches(row.counter, name):
                yield row, name


def matches(family: str, name: str) -> bool:
    """`app_layer.error.*.alloc` has `app_layer.error.http.alloc`, and no name of more words;
    a `*` at the end stands for all that follows."""
    same_words = family.endswith(".*") or family.count(".") == name.count(".")
    return same_words and fnmatchcase(name, family)
