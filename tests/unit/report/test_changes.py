"""Trials of a search that show that the SUT changed, and trials that only differ."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from nodrop.capacity.estimate import Sight, _changes

REALMIX = (
    (1.0, True, None),
    (8.0, True, 8.24),
    (8.414, True, 7.85),
    (8.835, False, 7.24),
    (8.209, True, 8.54),
    (6.998, True, None),
    (7.5, True, 8.1),
    (8.437, True, None),
    (8.541, True, 8.97),
    (7.5, True, 8.7),
    (8.835, True, 9.45),
    (8.937, False, 8.4),
    (8.937, False, 8.13),
    (7.5, False, 7.2),
)
"""(load, whether it was carried, limit by its twin) of a search of Suricata with 19,194 rules under
replicas of realmix, 30 Nov 2026."""


def sights(trials: Any) -> list[Sight]:
    return [
        Sight(trial=trial, good=good, at=at, by_level=at is not None, close=at is not None)
        for value, good, at in trials
        for trial in [SimpleNamespace(value=value)]
    ]


def test_two_low_limits_among_limits_that_differ_as_much_are_no_change() -> None:
    assert _changes(sights(REALMIX)) == []


@pytest.mark.parametrize("factor", [0.75, 0.6])
def test_limits_that_fall_by_more_than_they_differ_are_a_change(factor: float) -> None:
    after = [(8.0, False, 8.3 * factor), (7.5, False, 8.5 * factor)]
    assert _changes(sights((*REALMIX[:-2], *after))) == [len(REALMIX) - 2]


@pytest.mark.parametrize("factor", [0.9, 0.8])
def test_a_small_fall_of_limits_that_agree_is_a_change(factor: float) -> None:
    calm = [(load, True, at) for load, at in ((8.0, 8.5), (8.2, 8.6), (8.1, 8.55), (8.3, 8.5))]
    after = [(8.0, False, 8.4 * factor), (7.9, False, 8.5 * factor)]
    assert _changes(sights([*calm, *after])) == [4]
