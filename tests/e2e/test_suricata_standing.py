"""One Suricata carries one offer after another, and is read at rest while it goes on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nodrop.testbed.hosts.journal import DiskJournal
from nodrop.testbed.images.sut_bits import resolve_bits
from nodrop.testbed.labs.netns import NetnsLab
from nodrop.testbed.load.replay import Replay
from nodrop.testbed.setups.api import Limits
from nodrop.testbed.setups.bare import Bare
from nodrop.testbed.suts.api import SutCounters
from nodrop.testbed.suts.suricata import Suricata
from tests.depth import depth

TOTALS: Sequence[str] = (
    "captured_packets",
    "dropped_ring_full_packets",
    "decoded_packets",
    "decoded_bytes",
)


@pytest.mark.parametrize(
    ("options", "pace"),
    [
        depth({"threads": 2}, {"speed": 60.0}, id="workers-2"),
        depth({"threads": 1}, {"pps": 90_000.0}, id="workers-1"),
        pytest.param({"threads": 2, "runmode": "autofp"}, {"top_speed": True}, id="autofp"),
        pytest.param({"threads": 2, "ring_size": 256}, {"top_speed": True}, id="lossy"),
    ],
)
def test_the_sums_of_offers_are_the_counters_at_the_end(
    suricata: None,
    real_trace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    pace: dict[str, Any],
) -> None:
    """Three offers to one Suricata, each read at rest while it goes on."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    bits = resolve_bits({}, "suricata", base=Path())
    sut = Suricata({"ring_size": 60_000, **options}, base=tmp_path)
    load = Replay({"trace": str(real_trace), **pace}, base=tmp_path)
    if "threads" in options and options["threads"] > (os.cpu_count() or 1):
        pytest.skip("needs two CPUs")
    work = tmp_path / "sut"
    work.mkdir()
    found: list[SutCounters] = []
    flows: list[int] = []
    with (
        DiskJournal.create() as journal,
        NetnsLab().up(journal) as link,
        Bare().provision(link, bits=bits, limits=Limits(), work=work, journal=journal) as env,
        load.prepare(link, work=tmp_path, journal=journal) as offerer,
    ):
        running = sut.launch(env)
        running.wait_ready(timeout_s=60)
        merged = load.trace_facts().fragments.missing_packets
        merged *= running.facts()["defrag_effective"]
        for _ in range(3):
            if found:
                running.mark()
            offerer.aim(load, work=tmp_path)
            sent = offerer.offer(timeout_s=60, tick=lambda _sent: None).sent_packets
            running.drain(expected_packets=sent - merged, timeout_s=60)
            counted = running.counted()
            flows.append(sum(thread.get("flows", 0) for thread in counted.per_thread.values()))
            assert counted.captured_packets == sent - merged
            dropped = counted.dropped_ring_full_packets or 0
            assert counted.decoded_packets == sent - merged - dropped
            threads = [t for t in counted.per_thread.values() if "captured_packets" in t]
            assert sum(t["captured_packets"] for t in threads) == counted.captured_packets
            assert sum(t["dropped_ring_full_packets"] for t in threads) == dropped
            found.append(counted)
        last = running.finish(timeout_s=60)
        final = running._final()
    for name in TOTALS:
        assert sum(getattr(one, name) for one in found) == getattr(final, name)
        assert getattr(last, name) == getattr(found[-1], name)
    for thread, counted_by in final.per_thread.items():
        for name, value in counted_by.items():
            assert sum(one.per_thread[thread][name] for one in found) == value
    assert options.get("ring_size") or min(flows[1:]) >= 0.99 * flows[0] > 0, flows
    # What packets raise is complete as well: all of it belongs to the offer that raised it.
    for name in ("decoder.ipv4", "decoder.tcp", "decoder.udp", "decoder.invalid"):
        assert sum(one.results.get(name, 0) for one in found) == final.results.get(name, 0)
