"""A pair of a fleet whose receiver is another machine: what it says of the run there."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from nodrop.elsewhere import pair
from nodrop.elsewhere.pair import FarPair
from nodrop.errors import LabProblem


def test_that_its_own_run_goes_on_is_not_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the fleet's run that does, and the folder is gone by then."""

    def ends(*_: object, **__: object) -> None:
        problem = LabProblem("nodrop there has ended", hint="look there")
        problem.ended_run = str(tmp_path)
        raise problem

    monkeypatch.setattr(pair, "run_elsewhere", ends)
    for name in ("make_plan", "replace"):
        monkeypatch.setattr(pair, name, lambda *_, **__: None)
    job: Any = type("Job", (), {"lab": type("Lab", (), {"table": {}}), "experiment": None})
    with pytest.raises(LabProblem) as ended:
        FarPair(cast(Any, job), tmp_path).begin()
    assert str(ended.value) == "nodrop there has ended; look there"
