"""Rates of what is offered: never higher than asked for, however few packets there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from nodrop.config.replay import ReplayOptions
from nodrop.protocol import ReplayResult
from nodrop.testbed.load.api import lasting
from nodrop.testbed.load.replay import offered_load
from nodrop.testbed.load.tcpreplay import parse_summary
from nodrop.testbed.load.trace import read_trace
from tests.known_answers.frames import ip, write

S = 1_000_000_000
SAID = {
    "intended_packets": 4000,
    "sent_bytes": 4000,
    "refused_packets": {},
    "schedule_error_us": None,
    "asked_schedule_error_us": None,
    "shaped_packets": None,
    "shaped_pps": None,
    "spun_share": None,
    "late_bursts": None,
    "cpu_s": 0.1,
    "achieved": {"interval_ns": S, "packets": [], "bytes": [], "largest_error_ns": []},
    "sent_profile": {"first_mono_ns": 0, "bin_ns": 10**6, "packets": []},
    "backend": "af_packet",
    "realtime": True,
    "shallow_idle": False,
    "not_rewritten_packets": 0,
    "replica_offsets_ns": [0],
    "ports": [{"cpu": None}],
}


@pytest.mark.parametrize(("pps", "packets"), [(2, 4), (2, 2), (7, 3), (1000, 50), (0.5, 10)])
def test_packets_at_a_rate_are_offered_at_that_rate(
    tmp_path: Path, pps: float, packets: int
) -> None:
    path = write(tmp_path / "t.pcap", [ip(bytes(16))])
    options = {"trace": str(path), "pps": pps, "duration_s": packets / pps, "loops": 1000}
    planned = read_trace(path, ReplayOptions.model_validate(options)).planned
    assert (planned.packets, planned.duration_s) == (packets, pytest.approx(packets / pps))
    assert planned.pps == pytest.approx(pps)
    last = 100 * S + round((packets - 1) / pps * S)
    times = {"first_sent_mono_ns": 100 * S, "last_sent_mono_ns": last, "sent_packets": packets}
    offered = offered_load(cast(ReplayResult, SAID | times), planned.duration_s)
    assert packets / offered.duration_s == pytest.approx(pps)
    assert offered.duration_s == pytest.approx(offered.intended_duration_s)


@pytest.mark.parametrize("packets", [0, 1])
def test_one_packet_has_no_rate(packets: int) -> None:
    at: Any = 100 * S if packets else None
    times = {"first_sent_mono_ns": at, "last_sent_mono_ns": at, "sent_packets": packets}
    assert offered_load(cast(ReplayResult, SAID | times), None).duration_s == 0.0


def test_of_many_packets_it_is_what_it_was() -> None:
    assert lasting(10.0, 100_000) == pytest.approx(10.0, rel=2e-5)


def test_tcpreplay_counts_its_time_to_the_last_packet() -> None:
    said = "Actual: 4 packets (240 bytes) sent in 1.50 seconds\nFailed packets: 0\n"
    packets, _, seconds, _ = parse_summary(said)
    assert packets / lasting(seconds, packets) == 2.0
