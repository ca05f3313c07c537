"""Words on a burst over a cable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from nodrop.protocol import ReplayResult
from nodrop.testbed.hosts.local import LocalHost
from nodrop.testbed.labs.cable import Burst, CableEnd, Crossed, judged, unlike

FRAME_BYTES = 1514


def end(name: str, **more: Any) -> CableEnd:
    host = LocalHost(name=name, label="test", node=None)
    return CableEnd(host=host, port=f"{name}0", mac="", mtu=1500, **{"speed_mbit": 1000, **more})


def burst(sent: int, arrived: int, own: Mapping[str, int], last_ns: int | None) -> Burst:
    said = {"sent_packets": sent, "first_sent_mono_ns": 5, "last_sent_mono_ns": last_ns}
    crossed = Crossed(
        sent=cast(ReplayResult, said), sent_packets=sent, arrived_packets=arrived, arrived_bytes=0
    )
    return Burst(crossed=crossed, frame_bytes=FRAME_BYTES, own=own)


@pytest.mark.parametrize(
    ("sent", "arrived", "own", "last_ns", "seen", "wrong"),
    [
        # 1000 gaps of 1538 bytes on the wire in 12.304 ms
        (1001, 1001, {}, 12_304_005, "a burst of 1.5 MB at 1,000 of 1,000 Mbit/s", ""),
        (1001, 1001, {}, 24_608_005, "a burst of 1.5 MB at 500 of 1,000 Mbit/s", ""),
        (1, 1, {}, 5, "a burst of 0.0 MB from a0 of a to b0 of b came whole", ""),
        (1001, 400, {}, 12_304_005, "", "400 of 1,001 frames, though both ports say 1000 Mbit/s"),
        (
            1001,
            400,
            {"rx_missed_errors": 601},
            12_304_005,
            "came with 400 of 1,001 frames; the ports themselves count the loss (rx_missed_errors",
            "",
        ),
    ],
)
def test_what_a_burst_shows(
    sent: int, arrived: int, own: Mapping[str, int], last_ns: int, seen: str, wrong: str
) -> None:
    said = judged(end("a"), end("b"), burst(sent, arrived, own, last_ns))
    for words, expected in zip(said, (seen, wrong), strict=True):
        assert (expected in words) if expected else not words


def test_a_burst_of_nothing_has_no_rate() -> None:
    assert burst(0, 0, {}, None).mbit is None


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        ({}, {}, ""),
        ({}, {"speed_mbit": None}, ""),
        ({}, {"speed_mbit": 100}, "a0 of a has 1000 Mbit/s, and b0 of b has 100"),
        ({"half_duplex": True}, {}, "a0 of a is half duplex"),
    ],
)
def test_ends_that_do_not_fit(one: Mapping[str, Any], other: Mapping[str, Any], words: str) -> None:
    said = unlike(end("a", **one), end("b", **other))
    assert said.startswith(words)
    assert bool(said) == bool(words)
