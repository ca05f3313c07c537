"""Packets of planted attacks are withheld: the SUT misses the very detections that they carry."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from nodrop.errors import BadInput
from nodrop.testbed.hosts.node import find_node_binary
from tests.e2e.conftest import Run, closes

pytestmark = pytest.mark.usefixtures("suricata")

TEXT = """
name = "withheld"
[sut]
kind = "suricata"
rules = ["planted.rules"]
ring_size = 32768
[load]
kind = "replay"
trace = "made.pcap"
cpu = "any"
speed = 4
[measure]
repetitions = 1
outcome = ["alerts"]
late_p99_us = 60e6 # these tests are about packets; a machine that tests is busy
late_burst_max_ratio = 1
steal_max_ratio = 1
[matrix]
"load.withhold" = [{{ratio = 0.0005, seed = 5}}, {{ratio = 0.02, seed = 7}}]
"""
RULES = [
    'alert tcp any any -> $HOME_NET any (flow:established,to_server; content:"{}"; sid:{};)',
    'alert tcp $EXTERNAL_NET any -> $HOME_NET 1025 (flow:from_server; content:"{}"; sid:{};)',
    'alert udp $HOME_NET any -> any 5353 (content:"{}"; sid:{};)',
]


def predicted(made: dict[str, Any], withheld: set[int]) -> set[tuple[str, str, str]]:
    return {
        (f"1:{sid}", *sorted((one["client"], one["server"])))
        for one in made["planted"]
        for sid in (one["sid"], *one["also"])
        if withheld & set(one["decides"])
    }


def test_what_is_withheld_is_missed_and_nothing_else(tmp_path: Path, run: Run) -> None:
    rules = [RULES[n % 3].format(f"attack-{n:03d}-x", 9_000_000 + n) for n in range(60)]
    (tmp_path / "planted.rules").write_text("\n".join(rules) + "\n")
    trace = tmp_path / "made.pcap"
    make = [find_node_binary(), "trace", "make", "demo", trace, "--packets", "6000"]
    subprocess.run([*make, "--attacks", tmp_path / "planted.rules"], check=True, timeout=60)
    made = json.loads(Path(f"{trace}.json").read_text())
    outcome = run(text=TEXT)
    missed_units = []
    for record in outcome.records:
        assert record.packets.lost_packets == 0 and closes(record)
        withhold = record.cell["load.withhold"]
        chosen = [f"--{key}={value}" for key, value in withhold.items()]
        again = tmp_path / "again.pcap"
        subprocess.run(
            [find_node_binary(), "trace", "withhold", trace, again, *chosen],
            check=True,
            timeout=60,
        )
        gone = set(json.loads(Path(f"{again}.json").read_text())["withheld"])
        assert record.offered.withheld == len(gone) > 0
        found, missed = record.detections, predicted(made, gone)
        assert found is not None and (found.expected, found.surplus) == (180, 0)
        details = outcome.directory / "runs" / record.run / "detections.json"
        units = json.loads(details.read_text())["missed"]
        assert {(sid, *where.split()[1:]) for sid, where in units} == missed
        assert found.detection_loss_ratio == len(missed) / 180
        missed_units.append(len(missed))
    assert max(missed_units) > 3


def test_rules_with_a_clock_are_left_out_at_other_speeds_alone(tmp_path: Path, run: Run) -> None:
    """Five rules ask for a bit that nobody sets, so they alert here at any speed."""
    rules = [RULES[n % 3].format(f"attack-{n:03d}-x", 9_000_000 + n) for n in range(60)]
    planted = tmp_path / "planted.rules"
    planted.write_text("\n".join(rules) + "\n")
    make = [find_node_binary(), "trace", "make", "demo", tmp_path / "made.pcap", "--packets"]
    subprocess.run([*make, "6000", "--attacks", planted], check=True, timeout=60)
    clock = " xbits:isnotset,never,track ip_src; sid:"
    rules[:5] = [rule.replace(" sid:", clock) for rule in rules[:5]]
    planted.write_text("\n".join(rules) + "\n")
    text = TEXT.partition("[matrix]")[0].replace("speed = 4\n", "")
    outcome = run(text=text + '[matrix]\n"load.speed" = [1, 2]\n')
    own, faster = sorted(outcome.records, key=lambda one: one.cell["load.speed"])
    assert own.detections is not None and faster.detections is not None
    assert (own.detections.expected, own.detections.clocked) == (180, 0)
    assert (faster.detections.expected, faster.detections.clocked) == (165, 15)
    assert faster.detections.clocked_rules == [f"1:{9_000_000 + n}" for n in range(5)]
    assert (faster.detections.missed, faster.detections.surplus) == (0, 0)


LIMITED = (
    "alert udp any any -> any any "
    "(threshold:type limit,track by_src,count 1,seconds 3600; sid:9100000;)"
)
"""One alert for each address within an hour: any source that came again would be missed."""


def units_of(outcome: Any, kind: str) -> list[set[tuple[str, str]]]:
    """Units of that kind of each trial, by detections.json."""
    folders = [outcome.directory / "runs" / record.run for record in outcome.records]
    files = [json.loads((folder / "detections.json").read_text()) for folder in folders]
    return [{(sid, where) for sid, where in file[kind]} for file in files]


def at_the_end_of_flows(log: Path) -> set[tuple[str, frozenset[str]]]:
    """Signatures and both ends of the flows of alerts that no packet raised."""
    raised: dict[tuple[str, frozenset[str]], set[str]] = {}
    for event in map(json.loads, log.read_text().splitlines()):
        ends = frozenset(f"{event[f'{end}_ip']}:{event[f'{end}_port']}" for end in ("src", "dest"))
        unit = f"1:{event['alert']['signature_id']}", ends
        raised.setdefault(unit, set()).add(event["pkt_src"])
    return {unit for unit, sources in raised.items() if sources == {"stream (flow timeout)"}}


def made(folder: Path, *more: str) -> str:
    """A trace with 180 planted units, some of whose packets are withheld, and its experiment."""
    rules = [RULES[n % 3].format(f"attack-{n:03d}-x", 9_000_000 + n) for n in range(60)]
    planted = folder / "planted.rules"
    planted.write_text("\n".join(rules) + "\n")
    make = [find_node_binary(), "trace", "make", "demo", folder / "made.pcap", "--packets", "6000"]
    subprocess.run([*make, "--attacks", planted], check=True, timeout=60)
    planted.write_text("\n".join([*rules, *more]) + "\n")
    return TEXT.partition("[matrix]")[0]


def test_each_trial_of_a_standing_suricata_misses_what_a_fresh_one_misses(
    tmp_path: Path, run: Run
) -> None:
    """Three starts of three trials, each with addresses of its own, and packets withheld: what lies
    behind a gap is inspected when its flow ends, which no standing trial sees."""
    text = made(tmp_path, LIMITED)
    text += '[matrix]\n"load.withhold" = [{{ratio = 0.02, seed = 7}}]\n'
    fresh = run("load.multiplier=2", text=text)
    (expected,) = [one.detections.expected for one in fresh.records]
    (missed,) = units_of(fresh, "missed")
    log = fresh.directory / "runs" / fresh.records[0].run / "sut" / "outcome.json"
    behind_gaps = at_the_end_of_flows(log)
    standing = 'measure.sut="standing"', "measure.repetitions=9"
    outcome = run("load.multiplier=2", *standing, text=text)
    assert [one.world for one in outcome.records] == [1, 1, 1, 4, 4, 4, 7, 7, 7]
    assert len(missed) > 3 and 0 < len(behind_gaps) < len(missed)
    for record, trial in zip(outcome.records, units_of(outcome, "missed"), strict=True):
        assert record.packets.lost_packets == 0 and closes(record)
        assert record.detections is not None and record.detections.expected == expected > 360
        assert missed < trial and record.detections.surplus == 0
        more = {(sid, frozenset(where.split()[1:])) for sid, where in trial - missed}
        assert more == behind_gaps and not record.detections.uncertain


def test_a_standing_suricata_that_loses_packets_misses_units_of_each_trial(
    tmp_path: Path, run: Run
) -> None:
    """A ring of 16 frames loses at top speed; what is missed is expected, and seen where no packet
    is lost."""
    text = made(tmp_path).replace("speed = 4", "")
    settings = ["load.top_speed=true", 'measure.sut="standing"', "measure.repetitions=6"]
    outcome = run(*settings, "sut.ring_size=16", "load.multiplier=4", text=text)
    missing = units_of(outcome, "missed")
    for record, missed in zip(outcome.records, missing, strict=True):
        found = record.detections
        assert found is not None and closes(record)
        assert (found.expected, found.missed, found.surplus) == (720, len(missed), 0)
        assert bool(missed) <= bool(record.packets.lost_packets)
        assert found.seen == 720 - len(missed)
    assert any(missing)


def test_a_standing_suricata_whose_rules_remember_is_refused(tmp_path: Path, run: Run) -> None:
    text = made(tmp_path, LIMITED.replace("by_src", "by_rule"))
    with pytest.raises(BadInput, match="rule 1:9100000, the first of 1 with a limit for all"):
        run('measure.sut="standing"', text=text)
    assert not (tmp_path / "results").exists()
