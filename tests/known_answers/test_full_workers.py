"""A real Suricata whose worker has far too much to do: the worker is blamed, and not the ring."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import Run, closes, only
from tests.known_answers.frames import datagram, write

AUTOFP = """
name = "full-workers"
[sut]
kind = "suricata"
runmode = "autofp"
threads = 1
detect_threads = 1
capture_cpus = "0"
worker_cpus = "1"
ring_size = 512
[load]
kind = "replay"
trace = "{trace}"
cpu = 0
pps = 10000
duration_s = 2
loops = 1000
[measure]
repetitions = 1
late_p99_us = 60e6
late_burst_max_ratio = 1
steal_max_ratio = 1
"""
SLOW_RULES = 800
"""Each takes pcre to its limit on every datagram: some 10 to 20 of these a millisecond and core."""
KEPT_OFF = {"other_programs", "waiting_sender", "waiting_sut", "softirq", "stolen"}
"""What a machine that runs other tests beside does to a receive thread as well."""


@pytest.fixture
def slow(tmp_path: Path) -> str:
    path = tmp_path / "slow.rules"
    path.write_text(
        "".join(
            f'alert udp any any -> any any (msg:"slow {n}"; '
            f'pcre:"/(a|b|c|.)*(x{n}|y).*z{n}$/s"; sid:{9_000_000 + n};)\n'
            for n in range(SLOW_RULES)
        )
    )
    return f'sut.rules=["{path}"]'


@pytest.fixture
def one_flow(tmp_path: Path) -> str:
    return f'load.trace="{write(tmp_path / "one.pcap", [datagram(300)] * 200)}"'


@pytest.mark.usefixtures("suricata")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_full_worker_is_blamed(run: Run, slow: str, one_flow: str, workers: int) -> None:
    """With two of them, one has the only flow, and the other nothing to do."""
    record = only(run(f"sut.detect_threads={workers}", slow, one_flow, text=AUTOFP))
    assert record.valid and closes(record), record.verdict
    assert record.threads_unexplained_packets == 0
    assert record.packets.lost_packets > 0, record.verdict
    (receive,) = [t for t in record.threads if t.role == "receive"]
    assert receive.dropped_packets == record.packets.lost_packets
    causes = {cause.rule: cause for cause in record.packets.loss_causes}
    assert set(causes) <= {"workers_full"} | KEPT_OFF, record.verdict
    if "workers_full" in causes:
        assert "receive thread RX#01-ndrx0, which lost, slept" in causes["workers_full"].words
    flows = [t.flows for t in record.threads if t.role == "worker"]
    assert sorted(flows) == [0] * (workers - 1) + [1]
