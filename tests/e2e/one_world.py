"""Trials of different loads that share one start of the SUT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from nodrop.measure.controllers import blocks
from nodrop.measure.controllers.blocks import Asked, TrialInput

STANDING = "measure.sut=standing"


def loads_of_one_world(monkeypatch: pytest.MonkeyPatch, *loads: Mapping[str, Any]) -> None:
    """Each cell stands up once and is offered its own load with each of these changes in turn.
    It takes `STANDING`."""

    def order(asked: Asked) -> tuple[blocks._Place, ...]:
        each = [(cell, n, load) for cell in asked.cells for n, load in enumerate(loads, start=1)]
        return tuple(
            blocks._Place(
                trial=TrialInput(
                    index=index,
                    cell=cell.factors,
                    repetition=n,
                    load={**cell.load, **load},
                    new_world=n == 1,
                ),
                cell=blocks._key(cell.factors),
                share=range(1, len(loads) + 1),
                block=0,
            )
            for index, (cell, n, load) in enumerate(each, start=1)
        )

    monkeypatch.setattr(blocks, "_order", order)
