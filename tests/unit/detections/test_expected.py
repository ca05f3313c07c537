"""Missed and surplus detections of a trial, and the reasons for which no ratio is made."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from nodrop.detections import Baseline, FoundDetections, Unit, compared, differences, kept_baselines
from nodrop.errors import BadInput
from nodrop.measure.standing import own_speed
from nodrop.plugins import build_sut
from nodrop.testbed.suts.api import must_be_detectable

RULE = "alert tcp any any -> any any ({}sid:{};)\n"


def units(numbers: Iterable[int], sid: str = "1:7") -> set[Unit]:
    return {(sid, f"tcp 10.0.0.1:{n} 10.0.0.2:80") for n in numbers}


def found(some: Iterable[Unit], **more: object) -> FoundDetections:
    given = frozenset(some)
    classes = {sid: f"class {sid}" for sid, _ in given}
    return FoundDetections(units=given, alerts=len(given), classes=classes, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("all_units", "seen"), [(40, 30), (100, 99)])
def test_missed_is_expected_and_not_seen(all_units: int, seen: int) -> None:
    baseline = Baseline(offline=None, live=[found(units(range(all_units)))] * 2)
    said = compared(found(units(range(seen))), baseline, measured=True)
    assert (said.expected, said.missed, said.surplus) == (all_units, all_units - seen, 0)
    assert said.detection_loss_ratio == (all_units - seen) / all_units
    assert said.baseline == "live"
    assert said.baseline_words == "expected: what 2 lossless trials found"


def test_a_unit_of_some_baselines_is_in_no_ratio_and_surplus_is_not_set_off() -> None:
    live = [found(units(range(30))), found(units(range(31)))]
    seen = found(units(range(1, 30)) | units([50, 51]))
    said = compared(seen, Baseline(offline=None, live=live), measured=True)
    assert (said.expected, said.missed, said.surplus, said.uncertain) == (30, 1, 2, 1)
    assert said.detection_loss_ratio == 1 / 30
    rest = differences(seen, Baseline(offline=None, live=live))
    assert [len(rest[name]) for name in ("missed", "surplus", "uncertain")] == [1, 2, 1]


@pytest.mark.parametrize(
    ("expected", "measured", "left_out", "words"),
    [
        (19, True, 0, "19 expected units are fewer than 20"),
        (20, False, 0, "the trial was not measured"),
        (20, True, 3, "3 lines were more than could be kept"),
        (20, True, 0, ""),
    ],
)
def test_no_ratio_is_made_of_what_is_not_known(
    expected: int, measured: bool, left_out: int, words: str
) -> None:
    unread = {"left_out": left_out} if left_out else {}
    seen = found(units(range(expected)), unread=unread)
    said = compared(seen, Baseline(offline=found(units(range(expected)))), measured=measured)
    assert (said.no_ratio, said.detection_loss_ratio) == (words, None if words else 0.0)
    assert (said.missed, said.baseline) == (0, "offline")


@pytest.mark.parametrize(
    ("seen", "by_flow"),
    [
        ({3: 10, 4: 12}, (0, 2, 0)),
        ({3: 9, 4: 12}, (1, 1, 0)),
        ({3: 1}, (1, 0, 1)),
        # More than the fewest of two lossless trials is whole.
        ({3: 10, 4: 11}, (0, 2, 0)),
        ({}, None),
    ],
)
def test_missed_units_are_told_apart_by_their_flows(
    seen: dict[int, int], by_flow: tuple[int, int, int] | None
) -> None:
    """A unit of an address (rate-limited) belongs to no flow."""
    everything = units(range(30)) | {("1:8", "by_src 10.0.0.1")}
    usual = _flows({3: 10, 4: 12})
    baseline = Baseline(
        offline=None,
        live=[found(everything, flows=usual), found(everything, flows=usual | _of(4, 11))],
    )
    trial = found(everything - units([3, 4]), flows=_flows(seen))
    said = compared(trial, baseline, measured=True)
    assert said.missed == 2
    counted = said.missed_by_flow
    assert (None if counted is None else tuple(counted.model_dump().values())) == by_flow


def _of(number: int, packets: int) -> dict[str, int]:
    ((_, where),) = units([number])
    return {where: packets}


def _flows(seen: dict[int, int]) -> dict[str, int]:
    return {where: n for one, n in seen.items() for where in _of(one, n)}


def test_without_a_baseline_nothing_is_missed() -> None:
    said = compared(
        found(units([1])), Baseline(offline=None, why="no lossless trial"), measured=True
    )
    assert (said.expected, said.missed, said.detection_loss_ratio) == (None, None, None)
    assert (said.seen, said.no_ratio) == (1, "no lossless trial")


def test_what_offline_and_live_differ_in_is_said() -> None:
    both = found(units(range(20)))
    same = Baseline(offline=both, live=[both, both])
    assert same.words.startswith("2 lossless trials found the same 20 units")
    other = Baseline(offline=found(units(range(3, 25))), live=[both, both])
    assert "20 units in each, 0 in some; 3 of them" in other.words
    assert "finds 5 others" in other.words


def test_a_kept_baseline_has_its_units_in_order() -> None:
    both = found(units(range(20)), events={"alert": 4})
    given = Baseline(offline=found(units([3, 1, 2])), live=[both, both], why="x")
    written = json.dumps(kept_baselines().dump_python(given, mode="json"))
    assert kept_baselines().validate_json(written) == given
    assert json.loads(written)["offline"] == {
        "units": [["1:7", f"tcp 10.0.0.1:{n} 10.0.0.2:80"] for n in (1, 2, 3)],
        "late": [],
        "classes": {"1:7": "class 1:7"},
        "names": {},
        "alerts": 3,
        "events": {},
        "flows": {},
        "lines": 0,
        "read_bytes": 0,
        "unread": {},
        "ends": [],
    }


def test_a_trial_that_something_else_may_have_cost_units_has_no_ratio() -> None:
    baseline = Baseline(offline=None, live=[found(units(range(30)))] * 2)
    said = compared(found(units(range(20))), baseline, measured=True, no_ratio="full")
    assert (said.missed, said.detection_loss_ratio) == (10, None)
    assert said.no_ratio == "full"
    assert compared(found(()), baseline, measured=False, no_ratio="full").no_ratio != "full"


def test_what_only_the_end_of_a_flow_raises_is_never_missed_and_no_surplus() -> None:
    """Seen: 7 of 161 units of realmix, which a standing Suricata raises after its trial."""
    every, late = units(range(30)), frozenset(units(range(25, 30)))
    at_the_end = found(every, late=late)
    trials = [found(units(range(25))), found(units(range(26)), late=units([25]))]
    baseline = Baseline(offline=at_the_end, live=trials)
    assert baseline.words == (
        "2 lossless trials found the same 25 units as the SUT when it reads the trace itself; "
        "5 units left out that only the end of a flow raises"
    )
    for seen in (units(range(25)), every):
        said = compared(found(seen), baseline, measured=True)
        assert (said.expected, said.missed, said.surplus, said.uncertain) == (25, 0, 0, 5)
    assert compared(found(late), baseline, measured=True).missed == 25
    alone = Baseline(offline=at_the_end)
    assert (alone.kind, len(alone.expected), len(alone.uncertain)) == ("offline", 25, 5)
    assert not baseline.without({"1:7"}).late


def test_the_class_that_missed_most_stands_first() -> None:
    every = found(units(range(15), "1:1") | units(range(15), "1:2"))
    seen = found(units(range(15), "1:1") | units(range(10), "1:2"))
    said = compared(seen, Baseline(offline=every), measured=True)
    assert [(c.name, c.expected, c.missed) for c in said.classes] == [
        ("class 1:2", 15, 5),
        ("class 1:1", 15, 0),
    ]
    assert [one.sid for one in said.missed_first] == ["1:2"] * 5


@pytest.mark.parametrize(
    ("load", "words"),
    [
        ({"flows": "same", "multiplier": 4}, 'load.flows = "same"'),
        ({"loops": 2}, "load.loops"),
        ({"duration_s": 3.0}, "load.duration_s"),
        ({"trace": ["a", "b"]}, "replay one trace"),
        ({"kind": "other"}, "replay one trace"),
    ],
)
def test_a_load_of_which_nothing_is_known_is_refused(load: dict[str, object], words: str) -> None:
    sut = build_sut({"kind": "suricata"}, base=Path())
    replay = {"kind": "replay", "trace": "a.pcap"}
    must_be_detectable(sut, replay, standing=False)
    with pytest.raises(BadInput, match=r"measure\.outcome") as refused:
        must_be_detectable(sut, replay | load, standing=False)
    assert words in str(refused.value)


def test_a_sut_that_logs_no_detections_is_refused() -> None:
    with pytest.raises(BadInput, match='sut "sink" logs no detections'):
        sink = build_sut({"kind": "sink"}, base=Path())
        must_be_detectable(sink, {"kind": "replay"}, standing=False)


@pytest.mark.parametrize("load", [{"kind": "tcpreplay"}, {"kind": "replay", "flows": "same"}])
def test_a_load_that_repeats_its_flows_is_refused_by_a_standing_sut(load: dict[str, str]) -> None:
    sut = build_sut({"kind": "suricata"}, base=Path())
    load = {"trace": "a.pcap", **load}
    must_be_detectable(sut, load, standing=False)
    with pytest.raises(BadInput, match="sends the same flows to a SUT that stays up"):
        must_be_detectable(sut, load, standing=True)


def test_rules_that_remember_are_refused_by_a_standing_sut(tmp_path: Path) -> None:
    rules = tmp_path / "my.rules"
    table = {"kind": "suricata", "rules": [str(rules)]}
    load = {"kind": "replay", "trace": "a.pcap"}
    by_address = "threshold:type limit,track by_src,count 1,seconds 60; "
    by_rule = by_address.replace("by_src", "by_rule")
    rules.write_text(RULE.format(by_address, 1))
    must_be_detectable(build_sut(table, base=tmp_path), load, standing=True)
    rules.write_text("".join(RULE.format(s, n) for n, s in enumerate(("", by_rule, by_rule))))
    remembering = build_sut(table, base=tmp_path)
    must_be_detectable(remembering, load, standing=False)
    with pytest.raises(BadInput) as refused:
        must_be_detectable(remembering, load, standing=True)
    assert "rule 1:1, the first of 2" in str(refused.value)
    assert 'measure.sut = "fresh"' in str(refused.value)


@pytest.mark.parametrize(("clocked", "of"), [(20, 162), (3, 40)])
def test_rules_with_a_clock_are_left_out_counted_and_named_at_other_speeds(
    clocked: int, of: int
) -> None:
    """Seen: 20 of 162 units missed at four times the speed, without a lost packet."""
    timed = units(range(clocked), "1:9")
    plain = units(range(of - clocked))
    baseline = Baseline(offline=None, live=[found(plain | timed)] * 2)
    seen = found(plain)
    at_own_speed = compared(seen, baseline, measured=True)
    assert at_own_speed.missed == clocked and at_own_speed.clocked == 0
    said = compared(seen, baseline, measured=True, clocks={"1:9", "1:10"})
    assert (said.expected, said.missed, said.detection_loss_ratio) == (of - clocked, 0, 0)
    assert (said.clocked, said.clocked_rules) == (clocked, ["1:9"])
    more = compared(found(plain | units([99], "1:10")), baseline, measured=True, clocks={"1:10"})
    assert (more.surplus, more.clocked) == (0, 1)


@pytest.mark.parametrize(("in_the_file", "in_its_trials"), [(20, 13), (3, 9), (5, 0)])
def test_rules_with_a_clock_are_expected_by_the_times_of_the_file(
    in_the_file: int, in_its_trials: int
) -> None:
    """A baseline is measured at up to 5,000 packets/s: realmix at three times its speed."""
    clocks, plain = {"1:9", "1:10"}, units(range(40))
    offline = found(plain | units(range(in_the_file), "1:9"))
    live = [found(plain | units(range(in_its_trials), "1:9"))] * 2
    timed = Baseline(offline=offline, live=live).timed(clocks)
    assert timed is not None
    said = compared(offline, timed, measured=True)
    assert (said.expected, said.missed, said.surplus) == (40 + in_the_file, 0, 0)
    assert Baseline(offline=None, live=live).timed(clocks) is None, "left out, as at other speeds"


@pytest.mark.parametrize(
    ("load", "own"),
    [
        ({"multiplier": 4}, True),
        ({"speed": 1}, True),
        ({"speed": 4.0, "multiplier": 2}, False),
        ({"pps": 1000}, False),
        ({"top_speed": True}, False),
    ],
)
def test_only_replicas_leave_a_trace_its_speed(load: dict[str, object], own: bool) -> None:
    assert own_speed(load) is own
