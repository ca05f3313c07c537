"""A trial with a profile: what it says of Suricata's threads, and what the report makes of it."""

from __future__ import annotations

import json

import pytest

from nodrop.report.story import read_story
from nodrop.report.write import write_report
from nodrop.testbed.hosts.rights import is_root_of_the_host
from tests.depth import depth
from tests.e2e.conftest import WHOLE_TRACE, Run, closes

pytestmark = pytest.mark.usefixtures("suricata")
ENOUGH_NS = 300_000_000
"""CPU time for some thirty samples of 99 a second."""


@pytest.mark.parametrize(
    ("settings", "roles"),
    [
        depth(["sut.runmode=workers", "sut.threads=1"], {"worker"}),
        (["sut.runmode=autofp", "sut.threads=1", "sut.detect_threads=1"], {"receive", "worker"}),
    ],
)
def test_functions_by_role(run: Run, settings: list[str], roles: set[str]) -> None:
    asked = ["load.trace=make:demo", "load.speed=2", "load.multiplier=4", *settings]
    found = run(WHOLE_TRACE, "measure.profile=true", "measure.hardware=true", *asked)
    (record,) = found.records
    assert record.outcome == "measured" and closes(record), record.verdict
    profile = json.loads((found.directory / "runs" / record.run / "profile.json").read_text())
    if any(one["what"] == "functions" for one in profile["missing"]):
        pytest.skip("perf_event_open is not permitted here")
    busy = [t for t in profile["threads"] if t["cpu_ns"] >= ENOUGH_NS]
    assert {t["role"] for t in busy} <= {*roles, None}
    assert roles <= {t["role"] for t in profile["threads"]}
    for thread in busy:
        assert thread["samples"] and thread["running"]
        assert thread["samples"] <= 99 * thread["seen_ns"] / 1e9 + 2
    for thread in profile["threads"]:
        in_sum = thread["cpu_ns"] + thread["queued_ns"] + thread["blocked_ns"]
        assert in_sum == thread["seen_ns"]
    counted = all(thread["instructions"] is not None for thread in profile["threads"])
    # Counted, or the record says what was not, and why.
    assert (
        counted or "instructions" in {m["what"]: m["why"] for m in profile["missing"]}["hardware"]
    )
    page = write_report(read_story([found.directory])).read_text()
    # Its worker sleeps on the condition of its queue. The caller is in a copy of the stack: root.
    if "receive" in roles and is_root_of_the_host():
        assert "profile-locks" in page and "TmqhInput" in page
    assert ("profile-hardware" in page) == counted
    # Per packet there is a row at any rate: it says if there are no counters.
    assert "profile-packets" in page and "profile-cost" in page
    assert "Where the time goes" in page and "Flame graph of" in page
    assert "profile-functions.csv" in {file.name for file in (found.directory / "report").iterdir()}
