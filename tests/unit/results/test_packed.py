"""Packed records of kept runs come back as they were."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodrop.results import rundir
from nodrop.results.rundir import Records, pack, read_trials, unpack
from nodrop.results.trial import TrialRecord
from tests.made.outcome_runs import trial
from tests.made.rundirs import Fake, make_run

KEPT = sorted((Path(__file__).parents[2] / "fixtures/runs").iterdir())


@pytest.mark.parametrize("run", KEPT, ids=lambda run: run.name)
def test_records_of_each_format_come_back(run: Path) -> None:
    lines = (run / "trials.jsonl").read_bytes().splitlines()
    for line, found in zip(lines, read_trials(run).records, strict=True):
        record = TrialRecord.from_line(line)
        assert repr(unpack(pack(record))) == repr(record) == repr(found)


def test_a_record_is_a_small_part_of_its_objects(tmp_path: Path) -> None:
    records = read_trials(make_run(tmp_path, Fake(name="x"))).records
    assert max(map(len, records.packed)) < 800
    assert [*records[1:3]] == [records[1], records[2]]
    assert len(Records()) == 0


def test_the_first_stay_and_those_beyond_the_room_are_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rundir, "ROOM", 2)
    monkeypatch.setattr(rundir, "made", {})
    given = {"cell": {}, "repetition": 1, "index": 0, "valid": True, "verdict": "no loss"}
    records = Records(pack(trial(run=f"r{n}", **given)) for n in range(4))
    before, again = [*records], [*records]
    assert [one.run for one in again] == ["r0", "r1", "r2", "r3"]
    assert [a is b for a, b in zip(before, again, strict=True)] == [True, True, False, False]
    assert before == again
