"""Order of tests; those marked `alone` have nothing beside them."""

from __future__ import annotations

import pytest

LABS = ("vm", "docker", "ssh", "known_answers", "netns", "e2e")
"""Folders in the order in which they begin: those whose scope (tests/scopes.py) takes longest come
first, single tests last."""
LEFT_OUT = (
    "tests marked `alone` are left out, because -n runs others beside them: `pytest -m alone`"
)


def is_alone(item: pytest.Item) -> bool:
    return item.get_closest_marker("alone") is not None


def is_of_a_lab(item: pytest.Item) -> bool:
    return _room(item) in LABS


def rank(item: pytest.Item) -> tuple[float, int, bool]:
    """Tests that were given more time come first, and slow ones before unit tests: at the end one
    worker would be left with a long file."""
    given = item.get_closest_marker("timeout")
    return (
        -given.args[0] if given else 0,
        LABS.index(_room(item)) if is_of_a_lab(item) else len(LABS),
        _room(item) != "slow",
    )


def _room(item: pytest.Item) -> str:
    return item.nodeid.split("/")[1]
