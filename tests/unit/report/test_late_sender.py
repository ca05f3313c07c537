"""Words of the report on a sender that was late without making a trial void."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nodrop.report.story import read_story
from nodrop.report.trust import findings
from tests.made.outcome_runs import Load, outcome_run


def said(out: Path, *each: dict[str, Any], lost: float = 0.0) -> dict[str, str]:
    load = Load(
        cell={"load.pps": 10_000}, trials=[lost] * len(each), each=dict(enumerate(each, start=1))
    )
    found = findings(read_story([outcome_run(out, [load])]))
    return {s.rule: s.text for s in found}


def burst(packets: int, late_us: float) -> dict[str, Any]:
    largest = {"at_s": 1.5, "late_us": late_us, "sent": packets}
    return {"late_burst_packets": packets, "largest_late_burst": largest}


@pytest.mark.parametrize(("lost", "words"), [(0.0, "0"), (0.1, "2000")])
def test_the_largest_burst_of_all_trials(tmp_path: Path, lost: float, words: str) -> None:
    found = said(tmp_path, burst(17, 1_900.0), burst(301, 30_000.0), {}, lost=lost)
    assert found["sender-burst"] == (
        "the largest burst of a late sender in a measured trial was 301 packets, 30 ms behind; "
        f"lost in that trial: {words}"
    )


def test_no_burst_and_one_that_nobody_could_see_are_not_spoken_of(tmp_path: Path) -> None:
    found = said(tmp_path, {"late_burst_packets": 0}, {})
    assert not {"sender-burst", "sender-shaped"} & set(found)


@pytest.mark.parametrize(("p99", "is_said"), [(999.0, False), (24_000.0, True)])
def test_a_trace_that_asks_for_too_much_at_once(tmp_path: Path, p99: float, is_said: bool) -> None:
    def shaped(p99: float, pps: float) -> dict[str, Any]:
        error = {"p50": 1.0, "p99": p99, "max": p99}
        return {"asked_schedule_error_us": error, "shaped_pps": pps}

    found = said(tmp_path, shaped(p99, 812_000.0), shaped(p99 / 2, 1.2e6), shaped(3.0, 5e5))
    if not is_said:
        assert "sender-shaped" not in found
        return
    assert found["sender-shaped"] == (
        "in 2 measured trials the trace asks for more at once than the sender sends: that left at "
        "812,000 packets/s or faster, at p99 up to 24 ms after the trace's own time"
    )
