"""A pair of a fleet whose receiver is another machine: what it says of the run there."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodrop.errors import BadInput, LabProblem
from nodrop_fleet import far_pair
from nodrop_fleet.far_pair import FarPair


def test_that_its_own_run_goes_on_is_not_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the fleet's run that does, and the folder is gone by then."""

    def ends(*_: object, **__: object) -> None:
        problem = LabProblem("nodrop there has ended", hint="look there")
        problem.ended_run = str(tmp_path)
        raise problem

    monkeypatch.setattr(far_pair, "run_elsewhere", ends)
    monkeypatch.setattr(far_pair, "make_plan", lambda _: SimpleNamespace(notes=list))
    monkeypatch.setattr(far_pair, "replace", lambda *_, **__: None)
    job: Any = type("Job", (), {"lab": type("Lab", (), {"table": {}}), "experiment": None})
    with pytest.raises(LabProblem) as ended:
        FarPair(cast(Any, job), tmp_path).begin()
    assert str(ended.value) == "nodrop there has ended; look there"


def test_a_plan_that_cannot_be_made_ends_the_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever ends its thread is heard, or its caller would wait for ever."""

    def refuses(_: object) -> None:
        raise BadInput("load.trace: gone")

    monkeypatch.setattr(far_pair, "make_plan", refuses)
    job: Any = type("Job", (), {"lab": type("Lab", (), {"table": {}}), "experiment": None})
    with pytest.raises(BadInput, match="gone"):
        FarPair(cast(Any, job), tmp_path).begin()
