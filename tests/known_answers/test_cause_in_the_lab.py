"""Causes put in on purpose are the causes named, and the thread named is the one that lost."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.depth import depth
from tests.e2e.conftest import Run, closes, only
from tests.e2e.faults import Inject, labelled
from tests.known_answers.frames import datagram, write

pytestmark = pytest.mark.alone

SINK = """
name = "cause"
[sut]
kind = "sink"
ring_bytes = "1MiB"
[load]
kind = "replay"
trace = "make:demo"
pps = 20000
loops = 20
duration_s = 3
[measure]
repetitions = 1
late_p99_us = 60e6 # a machine that tests is late; the cause is the question
late_burst_max_ratio = 1
steal_max_ratio = 1
"""
SURICATA = """
name = "cause"
[sut]
kind = "suricata"
ring_size = 512
[load]
kind = "replay"
trace = "make:demo"
pps = 120000
loops = 40
duration_s = 1.5
[measure]
repetitions = 1
late_p99_us = 60e6
late_burst_max_ratio = 1
steal_max_ratio = 1
"""
LAST_CPU = max(os.sched_getaffinity(0))
PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207


@pytest.fixture(scope="session")
def real_trace() -> Path:
    return Path("make:demo")


def task(name: str) -> int:
    """The thread of the run's own processes with this name."""
    (found,) = [
        int(folder.name)
        for pid in labelled("nodrop-node")
        for folder in Path(f"/proc/{pid}/task").iterdir()
        if (folder / "comm").read_text().strip() == name
    ]
    return found


def freeze(tid: int, for_s: float) -> None:
    """One thread alone, which no signal can do."""
    done = ctypes.CDLL(None, use_errno=True).ptrace

    def go() -> None:
        assert done(PTRACE_SEIZE, tid, None, None) == 0, ctypes.get_errno()
        assert done(PTRACE_INTERRUPT, tid, None, None) == 0, ctypes.get_errno()
        os.waitpid(tid, 0x40000000)  # __WALL
        threading.Event().wait(for_s)
        done(PTRACE_DETACH, tid, None, None)

    threading.Thread(target=go).start()


def rules(record: Any) -> list[str]:
    return [cause.rule for cause in record.packets.loss_causes]


def test_one_frozen_thread_of_two_is_named(run: Run) -> None:
    def fault() -> None:
        freeze(task("sink-1"), 2.0)

    record = only(run("sut.threads=2", text=SINK, progress=Inject("offer", fault)))
    assert record.valid and closes(record), record.verdict
    first = record.packets.loss_causes[0]
    assert (first.rule, first.thread) == ("stopped", "sink-1"), record.verdict
    assert "ring_size" not in record.packets.knob


@pytest.mark.parametrize("rate", [9000, depth(4000)])
def test_a_sink_that_serves_half_is_asleep_at_its_own_pace(run: Run, rate: int) -> None:
    record = only(
        run(f"sut.service_rate_pps={rate}", f"load.pps={2 * rate}", 'sut.ring_bytes="256KiB"',
            text=SINK)
    )  # fmt: skip
    assert record.valid and closes(record), record.verdict
    # A sender that this machine holds up sends in bursts: then both are possible, and it says so.
    # Other tests of a busy machine may take the sink's CPU besides.
    assert {"own_pace", "not_known"} & set(rules(record)), record.verdict
    assert not {"saturated", "burst"} & set(rules(record)), record.verdict
    assert record.packets.loss_causes[0].thread == "sink-0"
    assert "a burst is what overflowed" not in record.packets.knob


@contextmanager
def hog(cpu: int, for_s: float) -> Iterator[None]:
    code = f"""
import os, time
os.sched_setaffinity(0, {{{cpu}}})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
print("at it", flush=True)
end = time.monotonic() + {for_s}
while time.monotonic() < end: pass
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs a second CPU for the sender")
@pytest.mark.usefixtures("real_root")  # real-time priority
def test_a_real_time_hog_on_its_cpu_is_another_program(run: Run) -> None:
    with_hog: list[Any] = []

    def fault() -> None:
        holding = hog(LAST_CPU, 2.0)
        holding.__enter__()
        with_hog.append(holding)

    record = only(
        run(f'limits.cpus="{LAST_CPU}"', "load.cpu=0", text=SINK, progress=Inject("offer", fault))
    )
    for holding in with_hog:
        holding.__exit__(None, None, None)
    assert closes(record), record.verdict
    first = record.packets.loss_causes[0]
    assert (first.rule, first.thread) == ("other_programs", "sink-0"), record.verdict
    assert "limits.cpus" in record.packets.knob


@pytest.mark.usefixtures("suricata")
def test_the_sender_on_the_cpu_of_the_sut(run: Run) -> None:
    cpu = LAST_CPU
    record = only(run(f'limits.cpus="{cpu}"', f"load.cpu={cpu}", text=SURICATA))
    assert closes(record), record.verdict
    assert record.packets.loss_ratio, record.verdict
    assert rules(record)[0] in ("waiting_sender", "other_programs"), record.verdict
    assert record.packets.loss_causes[0].evidence["waiting_sender_ratio"] > 0.05, record.verdict
    assert "limits.cpus" in record.packets.knob


@pytest.mark.usefixtures("suricata")
def test_two_capture_threads_on_one_cpu(run: Run, tmp_path: Path) -> None:
    """Hundreds of regular expressions for each packet: it loses however late the sender is."""
    rules_file = tmp_path / "slow.rules"
    rules_file.write_text(
        "".join(
            f'alert ip any any -> any any (msg:"{n}"; pcre:"/(a|b|c|d)*[^x]{{3}}{n}$/"; sid:{n};)\n'
            for n in range(1, 401)
        )
    )
    record = only(
        run(
            "sut.threads=2",
            f'sut.rules=["{rules_file}"]',
            f'limits.cpus="{LAST_CPU}"',
            "load.cpu=0",
            "sut.ring_size=128",
            "load.pps=30000",
            text=SURICATA,
        )
    )
    assert closes(record), record.verdict
    assert record.packets.loss_ratio, record.verdict
    # Whatever else this machine did: it waited for its CPU, and the other thread had some of it.
    # A whole CPU would not have been enough for it either, and that may be said as well.
    assert {"waiting_sut", "other_programs"} & set(rules(record)), record.verdict
    assert record.packets.loss_causes[0].evidence["waiting_sut_ratio"] > 0.02, record.verdict
    assert "burst" not in rules(record) and "own_pace" not in rules(record), record.verdict


@pytest.mark.parametrize(("at_s", "port"), [(0.9, 7777), depth(1.4, 53)])
def test_costly_packets_are_found_where_they_lie(
    run: Run, tmp_path: Path, at_s: float, port: int
) -> None:
    """250 packets take 125 ms, in which 375 more than those come to a ring of 256."""
    pps, packets, costly = 5000, 10_000, 250
    first = round(at_s * pps)
    frames = [
        datagram(200, port if first <= number < first + costly else 7) for number in range(packets)
    ]
    trace = write(tmp_path / "costly.pcap", frames)
    record = only(
        run(f"load.trace={trace}", "load.loops=1", f"load.pps={pps}", "sut.ring_frames=256",
            "sut.receive_ns=20000", f"sut.costly_port={port}", "sut.costly_times=25",
            text=SINK.replace('ring_bytes = "1MiB"', ""))
    )  # fmt: skip
    assert record.valid and closes(record), record.verdict
    assert record.packets.lost_packets
    (cause,) = [one for one in record.packets.loss_causes if one.rule == "costly"]
    assert at_s - 0.02 <= cause.evidence["moment_begin_s"] <= at_s + costly / pps
    assert cause.evidence["moment_us_per_packet"] > 2 * cause.evidence["usual_us_per_packet"]
    # From port 1000 of one host to this one; its packets and few others.
    assert cause.evidence["moment_flows"] == 1, cause.words
    assert cause.evidence["moment_port"] == min(port, 1000), cause.words
    assert 0.8 * costly <= cause.evidence["moment_flow_packets"] <= costly, cause.words
