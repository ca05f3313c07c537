"""A trial over time: a guest's rows lie on the host's axis, by the offset of its clock."""

from __future__ import annotations

import json
from pathlib import Path

from nodrop.report.panels import Timeline
from nodrop.report.story import read_story
from nodrop.report.timeline import timeline
from nodrop.testing.rundirs import Fake, make_run

OFFSET_NS = 3_000_000_000
MEMORY = {"total_bytes": 1 << 30, "available_bytes": 1 << 29, "anon_bytes": 1 << 28}


def with_a_guest(run: Path) -> None:
    """Each trial's host rows again, from a guest whose clock began three seconds later."""
    for folder in (run / "runs").iterdir():
        rows = [json.loads(line) for line in (folder / "samples-rx.jsonl").read_text().splitlines()]
        told = ({**row, "mono_ns": row["mono_ns"] - OFFSET_NS, "memory": MEMORY} for row in rows)
        text = "".join(json.dumps(row) + "\n" for row in told)
        (folder / "samples-guest.jsonl").write_text(text)
        trial = json.loads((folder / "trial.json").read_text())
        trial["details"] |= {"inside": {"guest": {}}, "clock_offsets_ns": {"guest": OFFSET_NS}}
        (folder / "trial.json").write_text(json.dumps(trial))


def drawn(run: Path) -> Timeline:
    story = read_story([run])
    found = timeline(story.sources[0], story.trials[0])
    assert found is not None
    return found


def test_a_guest_stands_beside_its_host_on_one_axis(tmp_path: Path) -> None:
    run = make_run(tmp_path, Fake())
    alone = drawn(run)
    with_a_guest(run)
    both = drawn(run)
    assert both.panels[: len(alone.panels)] == alone.panels  # never mixed with the guest's
    inside = {panel.title: panel for panel in both.panels[len(alone.panels) :]}
    assert [*inside] == ["CPU, all inside (guest)", "Memory inside (guest)"]
    (host_cpu,) = (panel for panel in alone.panels if panel.title == "CPU, all")
    assert inside["CPU, all inside (guest)"].series == host_cpu.series
    used, *_ = inside["Memory inside (guest)"].series
    assert (used.name, {value for _, value in used.points}) == ("used", {512.0})


def test_a_guest_without_rows_is_not_drawn(tmp_path: Path) -> None:
    run = make_run(tmp_path, Fake())
    with_a_guest(run)
    alone = len(drawn(run).panels) - 2
    for file in run.glob("runs/*/samples-guest.jsonl"):
        file.unlink()
    assert len(drawn(run).panels) == alone
