"""A run with a rule: its intervals and what ended its cells; what a plan would show."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from nodrop.cli import main
from nodrop.report.costs import LOSS_FIGURE
from nodrop.report.story import read_story
from nodrop.report.trust import findings
from nodrop.stats.interval import summarize
from tests.made.rundirs import Fake, make_run


def ruled(tmp_path: Path, until: str, *, repetitions: int = 12, most: int = 40) -> Path:
    rule = {"min": 6, "max": most, "until": [until]}
    manifest = {"measure": {"repetitions": rule, "sut": "fresh"}}
    return make_run(tmp_path, Fake(repetitions=repetitions, manifest=manifest, samples=False))


@pytest.mark.parametrize(
    ("until", "reached", "not_reached"),
    [
        ("loss_ratio half-width <= 99 points", 3, 0),
        ("activation_s half-width <= 1e-06 s", 0, 3),
        ("loss_ratio half-width <= 0.001 points", 2, 1),
    ],
)
def test_it_says_which_cells_reached_the_rule(
    tmp_path: Path, until: str, reached: int, not_reached: int
) -> None:
    story = read_story([ruled(tmp_path, until)])
    said = {f.rule: f for f in findings(story) if f.rule.startswith("rule-")}
    counts = [
        len(said[code].evidence["cells"]) if code in said else 0
        for code in ("rule-reached", "rule-not-reached")
    ]
    assert counts == [reached, not_reached]
    for sentence in said.values():
        assert until in sentence.text and "after 12 trials" in sentence.text


@pytest.mark.parametrize("most", [12, 40, 200])
def test_its_intervals_are_wider_than_those_of_a_number(tmp_path: Path, most: int) -> None:
    run = ruled(tmp_path, "loss_ratio half-width <= 1 points", most=most)
    for cell in read_story([run]).cells:
        a, b = (
            cell.summary("activation_s"),
            summarize(cell.gathered("activation_s", lambda t: t.activation_s).values),
        )
        assert a is not None and b is not None and a.interval and b.interval
        assert a.interval.low <= b.interval.low and b.interval.high <= a.interval.high
        assert a.interval.coverage != b.interval.coverage
        costs = LOSS_FIGURE.summary(cell)
        assert costs is not None and costs.interval is not None
        assert costs.interval.coverage == a.interval.coverage


@pytest.mark.parametrize(
    "rule", [{"min": 9}, {"min": 9, "max": 10**9, "until": ["x"]}, "six", [6, 40], None]
)
def test_a_damaged_rule_is_none(tmp_path: Path, rule: object) -> None:
    run = make_run(tmp_path, Fake(manifest={"measure": {"repetitions": rule}}))
    assert all(cell.looks is None for cell in read_story([run]).cells)


EXPERIMENT = """
name = "x"
[matrix]
"load.multiplier" = [1, 4]
[sut]
kind = "sink"
[load]
kind = "replay"
trace = "x.pcap"
[measure]
"""


PCAP = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1) + b"".join(
    struct.pack("<IIII", second, 0, 60, 60) + bytes(60) for second in (1, 2)
)


def plan(tmp_path: Path, given: Path, *, measure: str, as_json: bool = False) -> int:
    file = tmp_path / "x.toml"
    (tmp_path / "x.pcap").write_bytes(PCAP)
    file.write_text(EXPERIMENT + measure)
    argv = ["plan", str(file), "--given", str(given), *(["--json"] if as_json else [])]
    return main.exit_code(argv)


@pytest.mark.parametrize(
    ("measure", "planned"),
    [
        ("repetitions = 20", 20),
        ("repetitions = 60", 60),
        ('repetitions = {max = 30, until = "loss_ratio half-width <= 1 points"}', 30),
    ],
)
def test_a_plan_says_what_it_would_show(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], measure: str, planned: int
) -> None:
    given = make_run(tmp_path / "given", Fake(repetitions=20, samples=False))
    assert plan(tmp_path, given, measure=measure, as_json=True) in (0, 3)
    rows = json.loads(capsys.readouterr().out)["detectable"]
    assert {row["planned_runs"] for row in rows} == {planned}
    assert {row["earlier_runs"] for row in rows} == {20}
    times = [row for row in rows if row["metric"] == "activation_s"]
    assert len(times) == 2 and all(0 < row["least_difference"] < 0.2 for row in times)
    lossless = [
        r for r in rows if r["metric"] == "loss_pct" and r["cell"] == {"load.multiplier": 1}
    ]
    assert [row["why_not"] for row in lossless] == ["the earlier runs do not spread"]
    assert plan(tmp_path, given, measure=measure) in (0, 3)
    assert "from about" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("measure", "earlier", "why_not"),
    [
        ("repetitions = 20", 6, "earlier runs, has 6"),
        ("repetitions = 8", 20, "planned runs, has 8"),
        ('repetitions = 60\nsut = "standing"', 20, "planned runs, has 3"),
    ],
)
def test_too_few_runs_show_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], measure: str, earlier: int, why_not: str
) -> None:
    given = make_run(tmp_path / "given", Fake(repetitions=earlier, samples=False))
    assert plan(tmp_path, given, measure=measure, as_json=True) in (0, 3)
    rows = json.loads(capsys.readouterr().out)["detectable"]
    assert all(row["least_difference"] is None and why_not in row["why_not"] for row in rows)


@pytest.mark.parametrize(
    ("fake", "said"),
    [
        (Fake(cells=({"load.multiplier": 9},)), "no cell of it is one of this experiment"),
        (Fake(cells=({"load.pps": 1},)), "no cell of it is one of this experiment"),
        (None, "no such run directory"),
    ],
)
def test_another_run_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fake: Fake | None, said: str
) -> None:
    given = make_run(tmp_path / "given", fake) if fake else tmp_path / "none"
    assert plan(tmp_path, given, measure="repetitions = 20") == 2
    line = capsys.readouterr().err
    assert said in line and len(line.splitlines()) <= 2
