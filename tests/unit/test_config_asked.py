"""A question of the command line becomes an experiment file that stands alone."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from nodrop.config.asked import (
    AbQuestion,
    CapacityQuestion,
    UserSensor,
    goal_ratio,
    resumed_command,
)
from nodrop.config.experiment import asked_experiment
from nodrop.config.units import time_s
from nodrop.errors import BadInput


@pytest.mark.parametrize(
    ("text", "ratio"),
    [("0", 0), ("0%", 0), ("0.5%", 0.005), ("0.5 %", 0.005), ("0.005", 0.005), ("12.5%", 0.125)],
)
def test_a_goal_is_a_share(text: str, ratio: float) -> None:
    assert goal_ratio(text) == pytest.approx(ratio, abs=0)


@pytest.mark.parametrize(
    "text", ["", "100%", "1", "-1%", "5", "nan", "inf", "1e-3", "half", "0..5%", "٣%", "0" * 5000]
)
def test_what_is_no_share_is_one_line(text: str) -> None:
    with pytest.raises(BadInput, match="must be the part that may be lost"):
        goal_ratio(text)


@pytest.mark.parametrize(
    ("text", "ways"), [("0.5", "50% or --goal 0.5%"), ("0.1", "10% or --goal 0.1%")]
)
def test_a_part_that_is_likely_a_percentage_is_asked_about(text: str, ways: str) -> None:
    with pytest.raises(BadInput, match="is it a part") as said:
        goal_ratio(text)
    assert said.value.hint == f"--goal {ways}"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("10m", 600), ("1.5 min", 90), ("1h", 3600), ("500ms", 0.5)],
)
def test_a_budget_is_a_time(text: str, seconds: float) -> None:
    assert time_s("--budget", text) == seconds


@pytest.mark.parametrize("text", ["", "0", "0m", "-5m", "ten", "10d", "1e3", "inf", "10 m m"])
def test_what_is_no_time_is_one_line(text: str) -> None:
    with pytest.raises(BadInput, match="must be a time"):
        time_s("--budget", text)


@pytest.mark.parametrize("given", ["", "--resume --out=x", "--out results --resume", "--out x"])
def test_a_run_goes_on_by_its_own_command(given: str) -> None:
    command = ["nodrop", "capacity", "a b.pcap", *given.split(), "--rules", "a"]
    assert resumed_command(command, Path("r/1")) == [
        *("nodrop", "capacity", "a b.pcap", "--rules", "a", "--resume", "--out", "r/1")
    ]


def test_paths_are_whole_so_that_the_file_can_be_kept_elsewhere(tmp_path: Path) -> None:
    asked = CapacityQuestion(trace="my Trace.pcap.xz", rules=["a.rules", "/b.rules"])
    table = asked.table(tmp_path)
    assert table["load"]["trace"] == str(tmp_path / "my Trace.pcap.xz")
    assert table["sut"]["rules"] == [str(tmp_path / "a.rules"), "/b.rules"]
    assert table["name"] == "capacity-my-trace"
    assert table["search"] == {}, "what is not asked for is the search's own"


def test_goals_of_detections_make_a_fresh_sut_for_each_trial(tmp_path: Path) -> None:
    table = CapacityQuestion(trace="x", goals_of_detections=["1%", "0.05"]).table(tmp_path)
    assert table["measure"] == {"mode": "capacity", "sut": "fresh", "outcome": ["alerts"]}
    assert table["search"] == {"goals": [0.01, 0.05], "goals_of": "detections"}
    search = asked_experiment(table, [], path=tmp_path).search
    assert search is not None and search.by == "multiplier" and search.by_detections
    with pytest.raises(BadInput, match="packets or detections: leave out --goal"):
        CapacityQuestion(trace="x", goals=["0"], goals_of_detections=["1%"]).table(tmp_path)
    with pytest.raises(BadInput, match=r"--goal-detections 2: must be the part"):
        CapacityQuestion(trace="x", goals_of_detections=["2"]).table(tmp_path)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ('measure.sut="standing"', "a search by detections starts the SUT for each trial"),
        ("measure.outcome=[]", "measure.outcome says which"),
        ('search.goals_of="packets"', "this search counts packets"),
        ("search.goals=[0.01, 0.01]", "one is given twice"),
    ],
)
def test_what_a_search_by_detections_cannot_have(tmp_path: Path, setting: str, words: str) -> None:
    table = CapacityQuestion(trace="x", goals_of_detections=["1%"]).table(tmp_path)
    with pytest.raises(BadInput, match=words):
        asked_experiment(table, [setting], path=tmp_path)


@pytest.mark.parametrize("threads", ["3", "auto", None])
def test_the_users_own_sensor_is_in_the_table(tmp_path: Path, threads: str | None) -> None:
    sensor = UserSensor(config="my.yaml", binary="/opt/suricata", threads=threads)
    expected = {"config": str(tmp_path / "my.yaml"), "binary": "/opt/suricata"}
    expected |= {} if threads is None else {"threads": 3 if threads == "3" else "auto"}
    capacity = CapacityQuestion(trace="x", sensor=sensor).table(tmp_path)
    ab = AbQuestion(trace="x", a=["y=1"], b=["y=2"], sensor=sensor).table(tmp_path)
    assert capacity["sut"] == ab["sut"] == {"kind": "suricata", **expected}
    settings = [tomllib.loads(one) for one in sensor.settings(tmp_path)]
    assert {key: value for one in settings for key, value in one["sut"].items()} == expected
    assert CapacityQuestion(trace="x").table(tmp_path)["sut"] == {"kind": "suricata"}


@pytest.mark.parametrize(
    ("trace", "name"),
    [
        ("make:demo", "capacity-demo"),
        ("/data/REAL_mix-2.pcap", "capacity-real-mix-2"),
        ("....", "capacity-trace"),
        ("x" * 300, "capacity-" + "x" * 39),
    ],
)
def test_the_run_is_named_by_its_trace(trace: str, name: str) -> None:
    assert CapacityQuestion(trace=trace).table(Path("/"))["name"] == name


def test_all_that_is_asked_for_stands_in_the_table() -> None:
    asked = CapacityQuestion(
        trace="make:demo",
        setup="docker",
        sut="sink",
        goals=["0", "0.5%"],
        budget="2m",
        by="pps",
        method="mlrsearch",
    )
    table = asked.table(Path("/"))
    assert table["search"] == {
        "by": "pps",
        "goals": [0, 0.005],
        "budget_s": 120,
        "method": "mlrsearch",
    }
    assert (table["setup"], table["sut"]) == ({"kind": "docker"}, {"kind": "sink"})
    assert table["load"] == {"kind": "replay", "trace": "make:demo"}


def test_a_name_that_no_file_can_hold_is_one_line() -> None:
    with pytest.raises(BadInput, match="not UTF-8"):
        CapacityQuestion(trace="a\udcff.pcap").table(Path("/"))
