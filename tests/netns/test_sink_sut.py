"""The sink as SUT in the one-machine lab: it loses nothing by itself; slowed down, what it must."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nodrop.errors import TrialFailed
from nodrop.testbed.hosts.api import Link
from nodrop.testbed.hosts.journal import DiskJournal
from nodrop.testbed.hosts.local import run_command
from nodrop.testbed.labs.netns import NetnsLab
from nodrop.testbed.setups.api import Limits
from nodrop.testbed.setups.bare import Bare
from nodrop.testbed.suts.api import RunningSut
from nodrop.testbed.suts.sink import Sink

PACKETS = 40_000
"""About: a made trace ends with a whole conversation."""


@pytest.fixture(scope="module")
def trace(node: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trace") / "demo.pcap"
    argv = [str(node), "trace", "make", "demo", str(path), "--packets", str(PACKETS)]
    run_command(argv, where="test", timeout_s=60)
    return path


@contextmanager
def launched(label: str, work: Path, **options: Any) -> Iterator[tuple[RunningSut, Link]]:
    with (
        DiskJournal.create(label) as journal,
        NetnsLab().up(journal) as link,
        Bare().provision(link, bits=None, limits=Limits(), work=work, journal=journal) as env,
    ):
        running = Sink(options, base=work).launch(env)
        try:
            yield running, link
        finally:
            running.process.stop(timeout_s=5)


def replay(link: Link, trace: Path, pps: float) -> int:
    spec = {"job": "replay", "trace": str(trace), "interface": link.tx.name, "pps": pps}
    job = link.tx.host.job(spec)
    try:
        job.start()
        result = job.result(timeout_s=60)
        assert result["sent_packets"] == result["intended_packets"]
        return int(result["sent_packets"])
    finally:
        job.close()


def test_it_loses_nothing(label: str, tmp_path: Path, trace: Path) -> None:
    with launched(label, tmp_path) as (running, link):
        running.wait_ready(timeout_s=20)
        sent = replay(link, trace, 20_000)
        running.drain(expected_packets=sent, timeout_s=20)
        final = running.finish(timeout_s=20)
    assert sent == pytest.approx(PACKETS, rel=0.01)
    assert (final.captured_packets, final.dropped_ring_full_packets) == (sent, 0)
    assert final.decoded_packets == sent


@pytest.mark.alone  # kept off its CPU, it serves less than its rate
def test_a_slow_sink_drops_what_is_beyond_its_rate_and_ring(
    label: str, tmp_path: Path, trace: Path
) -> None:
    options = {"service_rate_pps": 5000.0, "ring_bytes": "4MiB", "threads": 1}
    with launched(label, tmp_path, **options) as (running, link):
        sent = replay(link, trace, 20_000)
        running.drain(expected_packets=sent, timeout_s=60)
        live = running.live()
        final = running.finish(timeout_s=20)
    assert live is not None and live.decoded_packets == final.decoded_packets
    assert final.captured_packets == sent
    assert final.dropped_ring_full_packets is not None and final.dropped_ring_full_packets > 0
    assert final.decoded_packets == sent - final.dropped_ring_full_packets
    # Two seconds at its rate, the start, and what its ring holds: small packets, many of them.
    assert 2 * 5000 <= final.decoded_packets < sent


def test_killed(label: str, tmp_path: Path) -> None:
    with launched(label, tmp_path) as (running, _):
        assert running.process.poll() is None
        os.kill(running.process.root.pid, signal.SIGKILL)
        with pytest.raises(TrialFailed, match="the sink ended"):
            running.drain(expected_packets=None, timeout_s=5)
        with pytest.raises(TrialFailed, match="without its counters"):
            running.finish(timeout_s=5)
