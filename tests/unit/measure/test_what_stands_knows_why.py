"""A standing SUT sees why a trial failed, and may say it in better words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from nodrop.errors import LabProblem
from nodrop.measure.worlds import Worlds


class Measures:
    """A Measurer whose port may be gone."""

    @contextmanager
    def stand(self, cell: Any, trial: Any) -> Iterator[Any]:
        del trial
        try:
            yield object()
        except LabProblem as problem:
            if cell == "gone":
                raise LabProblem("port eth1 went away") from problem
            raise


@pytest.mark.parametrize(("cell", "words"), [("gone", "port eth1 went away"), ("here", "no link")])
def test_a_failure_goes_through_what_stands(cell: Any, words: str) -> None:
    trial: Any = None
    with Worlds(Measures(), lambda _: None) as worlds:
        with (
            pytest.raises(LabProblem, match=words),
            worlds.standing(cell, trial, load={}, new=True),
        ):
            raise LabProblem("no link")
        with (
            pytest.raises(LabProblem, match=words),
            worlds.standing(cell, trial, load={}, new=False),
        ):
            raise LabProblem("no link")
