"""A named cell is called by its name; what the name decides is said if something else ran."""

from pathlib import Path
from typing import Any

import pytest

from nodrop.report.story import read_story
from nodrop.results.trial import TrialRecord
from nodrop.results.writer import RunWriter

SINGLE = {"cell": "single", "sut.runmode": "single"}
WORKERS = {"cell": "workers-4", "sut.runmode": "workers", "sut.threads": 4}
AUTOFP = {"cell": "autofp-1x2", "sut.runmode": "autofp", "sut.threads": 1, "sut.detect_threads": 2}


def labels(folder: Path, *trials: tuple[dict[str, Any], dict[str, Any]]) -> list[str]:
    path = folder / "run"
    with RunWriter.create_at(path, "threads", experiment="", manifest={}) as writer:
        for index, (cell, effective) in enumerate(trials):
            record = TrialRecord(
                cell=cell,
                repetition=1,
                index=index,
                run=f"{index:04}-r01",
                outcome="void",
                valid=False,
                invalid_reasons=["late"],
                verdict="",
                effective=effective,
            )
            writer.finish(record, {})
    return [cell.label for cell in read_story([path]).cells]


@pytest.mark.parametrize(
    ("trials", "said"),
    [
        (
            [(SINGLE, {"threads": 1}), (WORKERS, {"threads": 4})],
            ["single", "workers-4"],
        ),
        (
            [(SINGLE, {}), (WORKERS, {"runmode": "workers", "threads": 2})],
            ["single", "workers-4 · threads 4 (really 2)"],
        ),
        (
            [(AUTOFP, {"threads": 1, "detect_threads": 3}), (WORKERS, {"threads": 1})],
            ["autofp-1x2 · detect_threads 2 (really 3)", "workers-4 · threads 4 (really 1)"],
        ),
        (
            [(SINGLE | {"load.multiplier": 1}, {}), (SINGLE | {"load.multiplier": 4}, {})],
            ["1X", "4X"],
        ),
        (
            [(c | {"load.multiplier": n}, {}) for c in (SINGLE, WORKERS) for n in (1, 4)],
            ["single · 1X", "single · 4X", "workers-4 · 1X", "workers-4 · 4X"],
        ),
    ],
)
def test_a_named_cell_is_called_by_its_name(
    tmp_path: Path, trials: list[Any], said: list[str]
) -> None:
    assert labels(tmp_path, *trials) == said
