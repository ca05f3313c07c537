"""The window of a load: which packets are sent, and how they stand to the whole trace."""

from __future__ import annotations

import json
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodrop.capacity.forecast import windowed
from nodrop.config.experiment import asked_experiment
from nodrop.config.options import check
from nodrop.config.replay import ReplayOptions
from nodrop.config.search import Search
from nodrop.errors import BadInput
from nodrop.measure.plan import make_plan
from nodrop.testbed.hosts.node import find_node_binary
from nodrop.testbed.load.api import lasting
from nodrop.testbed.load.trace import facts_of, find_trace, words_of
from tests.known_answers.frames import ip


def made(folder: Path, parts: Sequence[tuple[float, float]]) -> Path:
    """A trace of parts (seconds, packets/s), one after the other."""
    content, begin_s = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1), 0.0
    for seconds, pps in parts:
        for n in range(round(seconds * pps)):
            frame = ip(struct.pack("!HHHH", 1000, 53, 108, 0) + bytes(100), source=n % 50)
            at = divmod(round((begin_s + n / pps) * 1e6), 1_000_000)
            content += struct.pack("<IIII", *at, len(frame), len(frame)) + frame
        begin_s += seconds
    path = folder / "trace.pcap"
    path.write_bytes(content)
    return path


def options(trace: Path, **keys: Any) -> ReplayOptions:
    return check(ReplayOptions, {"trace": str(trace), **keys}, table="load", base=Path())


@pytest.mark.parametrize(
    ("parts", "from_s", "pps", "mean_pps"),
    [
        ([(10, 10), (10, 300)], 10.0, 300.0, 155.0),
        ([(4, 500), (12, 20), (4, 100)], 0.0, 400.0, 132.0),
        ([(7, 30), (6, 200), (7, 50)], 7.0, 200.0, 88.0),
    ],
)
@pytest.mark.parametrize("by", [{}, {"pps": 2_000.0}, {"multiplier": 3.0}])
def test_the_busiest_stretch_is_all_that_is_sent(
    tmp_path: Path,
    parts: Sequence[tuple[float, float]],
    from_s: float,
    pps: float,
    mean_pps: float,
    by: dict[str, float],
) -> None:
    trace = made(tmp_path, parts)
    facts = facts_of(options(trace, window="busiest", **by))
    assert facts.source
    window = facts.source.window
    assert window.from_s == pytest.approx(from_s, abs=0.2)
    assert window.to_s - window.from_s == pytest.approx(5.0)
    assert window.pps == pytest.approx(pps, rel=0.06) and window.mean_pps == pytest.approx(
        mean_pps, rel=0.01
    )
    assert window.peak_pps == pytest.approx(max(rate for _, rate in parts), abs=1)
    # A window lasts from its first packet to its last.
    assert facts.packets == window.packets == pytest.approx(5 * window.pps, rel=0.02)
    assert facts.planned.packets == window.packets * by.get("multiplier", 1)
    assert window.trace_packets == sum(round(s * rate) for s, rate in parts)
    # The same packets by its name, and the whole trace in the manifest.
    again = facts_of(options(trace, window=window.span, **by))
    assert again.sha256 == facts.sha256 != facts.source.sha256
    said = words_of(facts)
    assert said["trace"] == str(trace) and said["trace_packets"] == window.trace_packets
    assert said["window"]["span"] == window.span
    assert "load sends seconds" in window.sentence and "on average" in window.sentence


@pytest.mark.parametrize(("busy_s", "pps"), [(1.0, 500.0), (2.0, 150.0)])
@pytest.mark.parametrize(
    ("by", "passes_s"),
    [({}, 5.0), ({"loops": 3}, 15.0), ({"loops": 4, "speed": 10.0}, 2.0), ({"duration_s": 9.0}, 0)],
)
def test_silence_at_the_end_of_a_window_is_part_of_each_pass(
    tmp_path: Path, busy_s: float, pps: float, by: dict[str, float], passes_s: float
) -> None:
    """Bursts at both ends of a window would follow each other at once, and double."""
    trace = made(tmp_path, [(busy_s, pps), (40, 0.05), (busy_s, pps / 2)])
    facts = facts_of(options(trace, window="busiest", **by))
    assert facts.source and facts.source.window.length_s == 5.0 == facts.pass_s
    assert facts.source.window.pps == pytest.approx(busy_s * pps / 5, rel=0.03)
    assert lasting(facts.duration_s, facts.packets) == pytest.approx(busy_s, rel=0.03)
    if passes_s:
        assert facts.planned.duration_s == pytest.approx(passes_s, rel=0.02)


def test_a_trace_that_is_shorter_is_whole(tmp_path: Path) -> None:
    trace = made(tmp_path, [(2, 100)])
    for keys in ({"window": "busiest"}, {"window": "first"}, {"window": "whole"}):
        facts = facts_of(options(trace, **keys))
        assert facts.path == trace and facts.source and facts.source.window.is_whole
        assert facts.source.window.pps == facts.source.window.mean_pps == pytest.approx(100)
    assert facts_of(options(trace)).source is None


@pytest.mark.parametrize(
    ("window", "words"),
    [
        ("70..80", "load.window: .*: the window begins at 70.000 s, and the trace lasts 2.0"),
        ("1.501..1.509", "load.window: .*: the trace has no packet in its window 1.501..1.509"),
    ],
)
def test_a_window_without_a_packet_is_refused(tmp_path: Path, window: str, words: str) -> None:
    trace = made(tmp_path, [(2.01, 100)])
    with pytest.raises(BadInput, match=words):
        find_trace(options(trace, window=window))


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"window": "busy"}, "must be busiest, first, whole"),
        ({"window": "5..5"}, "must end after it begins"),
        ({"window": "9..5.5"}, "must end after it begins"),
        ({"window": "-1..5"}, "must be busiest"),
        ({"window": "1..5 "}, "must be busiest"),
        ({"window": "1e3..2e3"}, "must be busiest"),
        ({"window": "٣..٥"}, "must be busiest"),
        ({"window": ""}, "must be busiest"),
        ({"window": "1..5", "window_s": 3.0}, "window_s: is how long"),
        ({"window_s": 3.0}, "window_s: is how long"),
        ({"window": "first", "window_s": 0.0}, "must be > 0"),
    ],
)
def test_what_is_no_window_is_refused(tmp_path: Path, keys: dict[str, Any], words: str) -> None:
    trace = made(tmp_path, [(1, 10)])
    with pytest.raises(BadInput, match=words):
        options(trace, **keys)


@given(st.text(alphabet="0123456789.eE+-busiest ", max_size=14))
def test_a_window_is_refused_or_names_a_stretch(text: str) -> None:
    try:
        ReplayOptions(trace="make:demo", window=text)
    except ValueError:
        return
    begin, _, end = text.partition("..")
    assert text == "busiest" or float(begin) < float(end)


@pytest.mark.parametrize(
    ("load", "found"),
    [
        ({}, {"window": "busiest", "window_s": 7.0}),
        ({"speed": 2.0}, {"window": "busiest", "window_s": 14.0}),
        ({"window": "first"}, {"window": "first", "window_s": 7.0}),
        ({"window": "first", "window_s": 3.0}, {"window": "first", "window_s": 3.0}),
        ({"window": "whole"}, {"window": "whole"}),
        ({"window": "3..4"}, {"window": "3..4"}),
    ],
)
def test_a_search_sends_one_window(load: dict[str, Any], found: dict[str, Any]) -> None:
    search = Search(final_trial_s=7.0)
    assert windowed({"kind": "replay", **load}, search) == {"kind": "replay", **load, **found}
    assert windowed({"kind": "other", **load}, search) == {"kind": "other", **load}


@pytest.mark.parametrize("by", ["multiplier", "speed"])
def test_a_search_by_detections_sends_a_minute(by: Literal["multiplier", "speed"]) -> None:
    search = Search(goals_of="detections", by=by, final_trial_s=7.0)
    assert windowed({"kind": "replay"}, search)["window_s"] == 60.0
    assert windowed({"kind": "replay", "window": "whole"}, search)["window"] == "whole"


def test_flows_that_began_before_are_counted_and_warned_of(tmp_path: Path) -> None:
    trace = made(tmp_path, [(2, 100)])
    first, later = (
        facts_of(options(trace, window=window)).source.window for window in ("0..0.4", "0.25..0.75")
    )
    assert first.begun_packet_ratio == 1.0 and not first.begun_warning
    assert later.begun_packet_ratio == pytest.approx(0.5) == later.begun_byte_ratio
    assert "50 % of its packets and 50 % of its bytes" in later.begun_warning


@pytest.mark.parametrize("through_link", [False, True])
@pytest.mark.parametrize(
    "words",
    [
        "window --window 0..1 {0} --out {1}",
        "cut --to-s 1 {0} {1}",
        "replicate --multiplier 2 {0} {1}",
        "merge {0} {0} --out {1}",
        "withhold --ratio 0.5 --seed 1 {0} {1}",
        "prepare {0} {1}",
    ],
)
def test_no_trace_tool_writes_over_the_capture_it_reads(
    tmp_path: Path, words: str, through_link: bool
) -> None:
    """`trace window X --out X` left 1.9 MB of a capture of 32 MB, with exit code 0."""
    trace, link = made(tmp_path, [(2, 50)]), tmp_path / "link.pcap"
    link.symlink_to(trace)
    before, out = trace.read_bytes(), link if through_link else trace
    argv = [str(find_node_binary()), "trace", *words.format(trace, out).split()]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 2 and f"{out} is the capture itself" in done.stderr
    assert trace.read_bytes() == before


def test_a_plan_for_machines_has_the_window_as_an_object(tmp_path: Path) -> None:
    """Seen: the words of the object in Python, as one text."""
    table = {
        "name": "x",
        "setup": {"kind": "bare"},
        "sut": {"kind": "sink"},
        "load": {"kind": "replay", "trace": str(made(tmp_path, [(20, 200)])), "window": "3..8"},
    }
    told = json.loads(json.dumps(make_plan(asked_experiment(table, [], path=tmp_path)).to_json()))
    window = told["lengths"][0]["window"]
    assert (window["span"], window["from_s"]) == ("3..8", 3.0)


@pytest.mark.parametrize("span", ["busiest", "whole", "0..0.000000001"])
def test_packets_of_one_moment_have_no_rate(tmp_path: Path, span: str) -> None:
    """The window of a single packet is 1 ns long: that is no time to divide by."""
    trace = made(tmp_path, [(1, 1), (5, 10)] if ".." in span else [(1, 1)])
    window = facts_of(options(trace, window=span, pps=100.0)).source.window
    assert (window.packets, window.pps, window.bps) == (1, None, None)
    assert "1 packet at one moment, so it has no rate of its own and no NX" in window.sentence


def test_a_lone_packet_of_a_long_window_has_its_rate(tmp_path: Path) -> None:
    trace = made(tmp_path, [(4, 0.25), (4, 10)])
    window = facts_of(options(trace, window="0..4", pps=100.0)).source.window
    assert (window.packets, window.pps) == (1, 0.25)


def test_a_short_trace_says_how_short_it_is(tmp_path: Path) -> None:
    trace = made(tmp_path, [(0.0003, 10_000)])
    window = facts_of(options(trace, window="busiest")).source.window
    assert window.sentence.startswith("the load sends the whole trace (0.3 ms): 10,000 packets/s")
