"""Whole runs in the one-machine lab: as root, with the real Suricata if the machine has one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from nodrop.config.experiment import load_experiment
from nodrop.config.lab_file import load_lab
from nodrop.errors import NodropError
from nodrop.measure.manager import RunOutcome, run_experiment
from nodrop.measure.plan import Progress
from nodrop.testbed.images.sut_bits import resolve_bits
from nodrop.testbed.load.replay import Replay
from nodrop.testbed.load.tcpreplay import Tcpreplay
from tests.real_inputs import realmix

SURICATA = """
name = "e2e"
[sut]
kind = "suricata"
ring_size = 30000 # no burst of a busy machine may overflow it
[load]
kind = "replay"
trace = "{trace}"
cpu = "any" # other tests run beside it, and all parted SUTs would have the same CPUs
speed = 40
[measure]
repetitions = 1
late_p99_us = 60e6 # these tests are about packets; a machine that tests is busy
late_burst_max_ratio = 1
steal_max_ratio = 1
"""

WHOLE_TRACE = "sut.ring_size=110000"
"""Each thread's ring holds all of it: whatever runs beside, none is lost there."""

Run = Callable[..., RunOutcome]


@pytest.fixture(scope="session", autouse=True)
def _root() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, or a host that gives normal users a user namespace")
    for program in ("ip", "ethtool"):
        if shutil.which(program) is None:
            pytest.skip(f"needs {program}")


@pytest.fixture(scope="session")
def real_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return realmix(tmp_path_factory)


@pytest.fixture(scope="session")
def suricata() -> None:
    try:
        resolve_bits({}, "suricata", base=Path())
    except NodropError as missing:
        pytest.skip(f"no Suricata: {missing}")


@pytest.fixture
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that tests is busy: a sender may take longer than it was asked to."""
    for generator in (Replay, Tcpreplay):
        monkeypatch.setattr(generator, "late_ratio", 100.0)


@pytest.fixture
def run(
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    _patience: None,
) -> Run:
    """Runs an experiment with `--set`s, on the real trace if it has `{trace}`; `progress` may
    inject faults."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def go(
        *settings: str, text: str = SURICATA, lab: str | None = None, progress: Any = None
    ) -> RunOutcome:
        file = tmp_path / "experiment.toml"
        trace = request.getfixturevalue("real_trace") if "{trace}" in text else ""
        file.write_text(text.format(trace=trace))
        return run_experiment(
            load_experiment(file, settings),
            load_lab(lab),
            out=tmp_path / "results",
            resume=False,
            progress=progress or Progress(),
        )

    return go


def only(outcome: RunOutcome) -> Any:
    """The record of a run with one trial."""
    assert len(outcome.records) == 1
    return outcome.records[0]


def closes(record: Any) -> bool:
    """The conservation law on the fields of one line; of bytes, where they are compared."""
    explained = (
        record.packets.decoded_packets + record.packets.lost_packets + record.packets.merged_packets
    )
    arrived = record.offered.sent + record.packets.copied_packets + record.packets.answered_packets
    residuals = record.packets.residual_packets, record.packets.residual_bytes or 0
    return bool(residuals == (0, 0) and arrived == explained)


__all__: Sequence[str] = ("SURICATA", "WHOLE_TRACE", "Run", "closes", "only")
