"""Run directories and rules with any name: the trial is measured as under a plain one."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from nodrop.config.experiment import load_experiment
from nodrop.config.lab_file import load_lab
from nodrop.measure.manager import run_experiment
from nodrop.measure.plan import Progress

EXPERIMENT = """
name = "names"
[sut]
kind = "suricata"
rules = ["{rules}"]
[load]
kind = "replay"
trace = "t:1.pcap"
pps = 500
[measure]
repetitions = 1
late_p99_us = 60e6
"""
RULE = 'alert ip any any -> any any (msg:"x"; sid:1;)\n'


@pytest.mark.parametrize(
    ("out", "rules"),
    [("a:b", "x.rules"), ("out", "12:30.rules"), ("2026-11-22T16:38:00/x: y", "a:/b:ro.rules")],
)
def test_a_colon_divides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suricata: None, out: str, rules: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / rules).parent.mkdir(exist_ok=True)
    (tmp_path / rules).write_text(RULE)
    frame = b"\2\0\0\0\0\2\2\0\0\0\0\1\x88\xb5" + bytes(46)
    head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    record = struct.pack("<IIII", 1, 0, len(frame), len(frame)) + frame
    (tmp_path / "t:1.pcap").write_bytes(head + record * 100)
    file = tmp_path / "experiment.toml"
    file.write_text(EXPERIMENT.format(rules=rules))
    outcome = run_experiment(
        load_experiment(file, ()),
        load_lab(None),
        out=tmp_path / out,
        resume=False,
        progress=Progress(),
    )
    (trial,) = outcome.records
    assert (trial.outcome, trial.offered.sent, trial.packets.decoded_packets) == (
        "measured",
        100,
        100,
    )
