"""The level of capture rings over time, as a report draws it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nodrop.report.timeline import MOST_POINTS, levels_over_time
from nodrop.results.rundir import Records, RunDir, Trials

MS = 1_000_000


def points(looks: list[tuple[int, int, float]], start_ns: int = 0) -> dict[str, list[float]]:
    (panel,) = levels_over_time(looks, start_ns)
    return {one.name: [value for _, value in one.points] for one in panel.series}


@pytest.mark.parametrize("looks", [10, 479, 5_000, 77_777])
def test_the_highest_level_is_drawn_however_short_it_was(looks: int) -> None:
    series = [(n * MS, 0, 0.9 if n == looks // 3 else 0.1) for n in range(looks)]
    drawn = points(series)["in use"]
    assert max(drawn) == pytest.approx(90)
    assert sum(value > 50 for value in drawn) == 1
    assert len(drawn) <= 4 * MOST_POINTS


def test_each_ring_has_a_line_and_only_the_fullest_are_drawn() -> None:
    looks = [(n * MS, ring, ring / 10) for n in range(3) for ring in range(7)]
    assert [*points(looks)] == ["ring 3", "ring 4", "ring 5", "ring 6"]


def test_no_look_is_no_panel() -> None:
    assert not [*levels_over_time([], 0)]


def test_looks_of_a_run_are_read_and_damage_is_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "runs/0001-a-r01"
    folder.mkdir(parents=True)
    head = {"rings": [{"slots": 2058, "blocks": 147}, {"slots": None, "blocks": 20}]}
    lines = [
        json.dumps(head), "[5,0,1029,1029,7,0]",
        "[6,1,300,5,9,0]", "[7,9,1,1,1,1]", "[7,-1,1,1,1,1]", "[8,0,x,1,1,1]",
        "{}", "[9,1,300,20,9,0]", "[10,0,2058,2058,null,null]",
    ]  # fmt: skip
    (folder / "levels-rx.jsonl").write_text("\n".join(lines) + "\n")
    run = RunDir(
        path=tmp_path,
        manifest={},
        experiment="",
        lab="",
        trials=Trials(records=Records(), damage=()),
        damage=(),
    )
    seen = [*run.levels("0001-a-r01", "rx")]
    assert seen == [(5, 0, 0.5), (6, 1, 0.25), (9, 1, 1.0), (10, 0, 1.0)]
    assert not [*run.levels("0001-a-r01", "elsewhere")]
