"""Cases beyond one of each kind: `make bench` runs them, `make test` leaves them out."""

from __future__ import annotations

import os
from typing import Any

import pytest


def depth(*values: Any, id: str | None = None) -> Any:
    """A case of `pytest.mark.parametrize`, or a parameter of a fixture."""
    return pytest.param(*values, marks=pytest.mark.depth, id=id)


def is_left_out(item: pytest.Item) -> bool:
    return item.get_closest_marker("depth") is not None and "NODROP_DEPTH" not in os.environ
