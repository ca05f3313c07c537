"""Advice to a run that another run of nodrop disturbs."""

from __future__ import annotations

import os
import subprocess

import pytest

from nodrop.measure.busy import budget_words
from nodrop.results.trial import Program
from nodrop.testbed.hosts.local import LABEL_VARIABLE
from tests.unit.measure.test_busy import CROWDED, LATE, trial


@pytest.mark.parametrize("ours", [True, False])
def test_what_another_run_started_is_not_to_be_ended(ours: bool) -> None:
    """Seen: "What helps: end Suricata-Main", which was the SUT of the other run."""
    env = {**os.environ, **({LABEL_VARIABLE: "nodrop-0"} if ours else {})}
    with subprocess.Popen(["sleep", "60"], env=env) as process:
        other = Program(name="sleep", pid=process.pid, cpu_s=9.0, by_children=False)
        crowded = {**CROWDED, "programs": [other]}
        said = budget_words([trial(n, void=LATE, **crowded) for n in (1, 2, 3)], 240)
        process.kill()
    assert (f"sleep (pid {process.pid}, of another run of nodrop)" in said) is ours
    assert ("when the other run of nodrop is over" in said) is ours
    assert (f"end sleep (pid {process.pid})" in said) is not ours
