"""Findings of hosts as their nodes saw them: with the same look they stay the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nodrop.audit.audit_answer import answer
from nodrop.audit.reading import judged
from nodrop.sensor.snapshot import Snapshot

HOSTS = sorted((Path(__file__).parents[2] / "fixtures/hosts").glob("*.json"))
"""A look of `probe sensor`, and what `nodrop audit` said of it when it was recorded."""


def test_five_hosts_are_recorded_and_differ() -> None:
    said = [json.loads(file.read_text())["findings"] for file in HOSTS]
    assert len(HOSTS) >= 5
    assert len({tuple(one["id"] for one in each) for each in said}) >= 5


@pytest.mark.parametrize("file", HOSTS, ids=lambda file: file.stem)
def test_the_findings_of_a_recorded_host_stay(file: Path) -> None:
    recorded = json.loads(file.read_text())
    found = answer(judged(Snapshot.of(recorded["sensor"])), took_s=0.0)
    said = found.model_dump(include={"ports", "findings", "missing", "exit_code"})
    kept = ("id", "where", "says", "read", "change")
    said["findings"] = [{key: one[key] for key in kept} for one in said["findings"]]
    assert said == {key: recorded[key] for key in said}
