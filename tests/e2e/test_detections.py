"""Packets of planted attacks are withheld: the SUT misses the very detections that they carry."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

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
