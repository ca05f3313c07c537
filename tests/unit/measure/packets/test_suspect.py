"""The sender's part in the verdict, by the words of generator, SUT and sampler."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nodrop.measure.offering import sending
from nodrop.measure.sampling import usage
from nodrop.protocol import SampleRow
from nodrop.testbed.load.api import OfferedLoad
from nodrop.testing.fakes import whole

OFFERED = OfferedLoad(
    intended_packets=1_000,
    sent_packets=1_000,
    sent_bytes=372_000,
    duration_s=1.0,
    intended_duration_s=1.0,
    schedule_error_us=None,
    cpu_s=None,
    first_sent_mono_ns=7,
    last_sent_mono_ns=9,
    facts={"cpu": 1},
)


def row(at_s: float, *steal_s: float) -> SampleRow:
    cpus = [{"cpu": cpu, "steal_ns": round(s * 1e9), "idle_ns": 0} for cpu, s in enumerate(steal_s)]
    said = {"mono_ns": round(at_s * 1e9), "cpus": cpus, "tree": {}, "processes": []}
    return whole(SampleRow, said)


def told(offered: OfferedLoad = OFFERED, **sut: Any) -> Any:
    rows = [row(0, 1.0, 2.0, 0.5), row(1, 1.0, 2.1, 0.5), row(2, 1.5, 2.2, 0.5)]
    marks = {name: round(at_s * 1e9) for name, at_s in [("offer", 0), ("offered", 2)]}
    used = usage(rows, marks | {"drained": 2 * 10**9}, {})
    return sending(offered, handed_packets=999, constant_rate=True, sut=sut, usage=used, quota=None)


@pytest.mark.parametrize(
    ("cpu", "stolen"), [(0, 0.25), (1, 0.1), (2, 0.0), (None, 0.25), (9, 0.25)]
)
def test_what_was_stolen_of_the_senders_cpu(cpu: int | None, stolen: float) -> None:
    """The CPU that lost most counts if the sender is on none for certain."""
    found = told(replace(OFFERED, facts={"cpu": cpu}))
    assert found.stolen_ratio == pytest.approx(stolen)
    assert found.sent_packets == 999


def test_a_trial_without_samples_says_nothing_of_steal() -> None:
    found = sending(OFFERED, handed_packets=1, constant_rate=False, sut={}, usage=None, quota=None)
    assert (found.stolen_ratio, found.ring_packets, found.late_bursts) == (None, None, None)


@pytest.mark.parametrize(
    ("sut", "packets"),
    [
        ({"rings": [{"frames": 2048}, {"frames": 64}, {"frames": None}]}, 64),
        ({"rings": [{"frames": None}]}, None),
        ({"ring_bytes": 50_000}, 100),
        ({}, None),
    ],
)
def test_what_the_smallest_ring_holds(sut: dict[str, Any], packets: int | None) -> None:
    assert told(**sut).ring_packets == packets
