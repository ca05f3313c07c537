"""A trial over time: a guest's rows lie on the host's axis, by the offset of its clock."""

from __future__ import annotations

import json
from pathlib import Path

from nodrop.report.charts import time_chart
from nodrop.report.story import read_story
from nodrop.report.timeline import TrialTimeline, timeline
from tests.made.rundirs import Fake, make_run

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


def drawn(run: Path) -> TrialTimeline:
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
    memory = {s.name: s for s in inside["Memory inside (guest)"].series}
    assert {value for _, value in memory["used"].points} == {512.0}


def test_a_series_keeps_its_style_in_every_panel_whichever_others_it_lacks(tmp_path: Path) -> None:
    run = make_run(tmp_path, Fake())
    with_a_guest(run)
    for file in run.glob("runs/*/samples-rx.jsonl"):  # time stolen from CPU 1 alone
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        for n, row in enumerate(rows):
            row["cpus"][1]["steal_ns"] += n * 20_000_000
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    panels = {panel.title: panel for panel in drawn(run).panels}
    assert "stolen" not in {s.name for s in panels["CPU 0"].series}
    assert "stolen" in {s.name for s in panels["CPU 1"].series}
    styles: dict[str, set[int]] = {}
    for panel in panels.values():
        assert len({s.style for s in panel.series}) == len(panel.series)
        for series in panel.series:
            styles.setdefault(series.name, set()).add(series.style)
    assert {name: found for name, found in styles.items() if len(found) > 1} == {}
    keys = [entry for pane in time_chart([drawn(run)], "styles").panes for entry in pane.key]
    assert {style for _, style, name in keys if name == "stolen"} == {"s4 solid"}


def test_a_guest_without_rows_is_not_drawn(tmp_path: Path) -> None:
    run = make_run(tmp_path, Fake())
    with_a_guest(run)
    alone = len(drawn(run).panels) - 2
    for file in run.glob("runs/*/samples-guest.jsonl"):
        file.unlink()
    assert len(drawn(run).panels) == alone
