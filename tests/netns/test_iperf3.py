"""iperf3 between the hosts of the one-machine lab: its books close both ways."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from nodrop.config.experiment import load_experiment
from nodrop.config.lab_file import load_lab
from nodrop.findings.observations import observations_of
from nodrop.findings.rules import find
from nodrop.measure.manager import run_experiment
from nodrop.measure.plan import Progress

EXPERIMENT = """
name = "iperf3"
[sut]
kind = "command"
program = "tcpdump"
[matrix.cells.tcp]
"load.bitrate_bps" = 300_000_000
[matrix.cells.udp]
"load.udp" = true
"load.bitrate_bps" = 20_000_000
"load.length_bytes" = 200
[load]
kind = "iperf3"
duration_s = 1
cpu = "any" # other tests run beside it
[measure]
repetitions = 1
"""


def test_both_ways_are_in_the_books(tmp_path: Path) -> None:
    for program in ("iperf3", "tcpdump"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not in PATH")
    file = tmp_path / "experiment.toml"
    file.write_text(EXPERIMENT)
    outcome = run_experiment(
        load_experiment(file),
        load_lab(None),
        out=tmp_path / "results",
        resume=False,
        progress=Progress(),
    )
    assert len(outcome.records) == 2
    for record in outcome.records:
        assert record.valid, record.verdict
        books, sent = record.packets, record.offered.sent or 0
        assert books.books_closed and not books.foreign_packets
        assert books.answered_packets and sent > 1000
        assert books.captured_packets == sent + books.answered_packets
    (finding,) = [
        one for one in find(observations_of(outcome.records)) if one.code == "no-schedule"
    ]
    assert len(finding.values["cells"]) == 2
