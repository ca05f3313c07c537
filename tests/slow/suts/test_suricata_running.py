"""A launched Suricata's life (long: one socket serves all), played: answers, logs, death."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nodrop.errors import TrialFailed
from nodrop.testbed.hosts.api import HostProcess
from nodrop.testbed.hosts.local import LocalHost
from nodrop.testbed.hosts.node import find_node_binary
from nodrop.testbed.setups.contained import LocalView
from nodrop.testbed.suts.suricata import log
from nodrop.testbed.suts.suricata.capture import CaptureSettings, Effective, SocketRing
from nodrop.testbed.suts.suricata.config import ControlSocket, RefusedBySuricata
from nodrop.testbed.suts.suricata.running import OwnCounters, RunningSuricata
from tests.depth import depth

FIXTURES = Path(__file__).parents[2] / "fixtures" / "suricata"
ASKED = CaptureSettings(
    interfaces=("ndsurr0",),
    threads=2,
    runmode="workers",
    ring_frames=None,
    defrag=True,
    full_sync_s=0.3,
    retire_s=0.03,
    names_rules=True,
    rules_errors="error",
)


class Process(LocalView):
    """Stands for Suricata: a real child that does nothing else, and a work folder."""

    def __init__(self, work: Path, does: str = "input()") -> None:
        self.child = subprocess.Popen([sys.executable, "-c", does], stdin=subprocess.PIPE)
        self.host = LocalHost(name="here", node=find_node_binary(), label="test")
        self.root = HostProcess(self.host, self.child.pid)
        self.work = work
        self.stdout, self.stderr = work / "stdout", work / "stderr"
        self.launched_mono_ns = time.monotonic_ns()

    def poll(self) -> int | None:
        return self.child.poll()

    def signal(self, number: int) -> None:
        self.child.send_signal(number)

    def stop(self, *, timeout_s: float) -> int:
        # Suricata ends with 0 after SIGTERM; so does input() at the end of its input.
        self.child.communicate(b"\n", timeout=timeout_s)
        return self.child.returncode

    def end(self) -> None:
        self.child.kill()
        self.child.communicate()
        self.host.close()


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path)
    yield process
    process.end()


def running(process: Process, *, at_once: bool = False, **changed: Any) -> RunningSuricata:
    asked = {name: getattr(ASKED, name) for name in CaptureSettings.__slots__} | changed
    env: Any = SimpleNamespace(host=None, delivers_at_once=at_once)
    has = CaptureSettings(**asked)
    return RunningSuricata(process, env, has, OwnCounters(process, has))


Answer = Callable[[dict[str, Any]], object]


@pytest.fixture
def suricata_socket(tmp_path: Path) -> Iterator[Callable[[Answer], None]]:
    """Plays the command socket; an answer is sent in two parts, as large ones come."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(tmp_path / "suricata.socket"))
    listener.listen()

    def serve(answer: Answer) -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as requests:
            for line in requests:
                request = json.loads(line)
                said = answer(request) if "command" in request else {"return": "OK"}
                if said is None:
                    return
                text = json.dumps(said).encode() + b"\n"
                connection.sendall(text[:7])
                connection.sendall(text[7:])

    threads: list[threading.Thread] = []

    def start(answer: Answer) -> None:
        threads.append(threading.Thread(target=serve, args=(answer,), daemon=True))
        threads[-1].start()

    yield start
    listener.close()
    for thread in threads:
        thread.join(5)


def counting(captured: int, dropped: int, decoded: int | None) -> Answer:
    def answer(request: dict[str, Any]) -> object:
        if request["command"] == "iface-stat":
            assert request["arguments"] == {"iface": "ndsurr0"}
            return {"return": "OK", "message": {"pkts": captured, "drop": dropped}}
        if decoded is None:
            return {"return": "NOK", "message": "stats not yet synchronized"}
        return {"return": "OK", "message": {"decoder": {"pkts": decoded}}}

    return answer


def test_drained_as_soon_as_all_expected_are_accounted_for(
    process: Process, suricata_socket: Callable[[Answer], None]
) -> None:
    suricata_socket(counting(100, 30, 70))
    running(process, full_sync_s=1e9).drain(expected_packets=100, timeout_s=10)


def test_drained_when_nothing_moves_over_a_full_sync(
    process: Process, suricata_socket: Callable[[Answer], None]
) -> None:
    suricata_socket(counting(100, 30, 70))
    drained = running(process).drain(expected_packets=120, timeout_s=30)
    waited_ns = time.monotonic_ns() - drained.rested_mono_ns
    assert waited_ns >= ASKED.full_sync_s * 1e9, "at rest since the first look"


def test_drained_where_all_expected_are_captured_and_every_thread_sleeps(
    process: Process, suricata_socket: Callable[[Answer], None]
) -> None:
    suricata_socket(counting(100, 30, None))
    running(process, full_sync_s=1e9).drain(expected_packets=100, timeout_s=10)


def test_sleeping_threads_end_a_drain_before_the_counters_tell_where_all_is_delivered(
    process: Process, suricata_socket: Callable[[Answer], None]
) -> None:
    suricata_socket(counting(0, 0, None))
    found = running(process, at_once=True, full_sync_s=1e9)
    found.drain(expected_packets=100, timeout_s=10)


def test_sleep_must_outlast_an_open_block_of_the_ring(
    process: Process, suricata_socket: Callable[[Answer], None]
) -> None:
    suricata_socket(counting(0, 0, None))
    found = running(process, at_once=True, retire_s=0.5)
    rested_ns = found.drain(expected_packets=100, timeout_s=10).rested_mono_ns
    assert time.monotonic_ns() - rested_ns >= 0.5e9, "before it slept, all was worked off"


def test_a_warm_up_ends_by_the_counters_alone_for_they_are_what_is_marked(
    process: Process, suricata_socket: Callable[[Answer], None]
) -> None:
    suricata_socket(counting(0, 0, None))
    with pytest.raises(TrialFailed, match="decoded None"):
        running(process, at_once=True).drain(expected_packets=None, timeout_s=1)


BUSY = "import time; end = time.monotonic() + 60\nwhile time.monotonic() < end: pass"


@pytest.mark.parametrize(
    ("decoded", "at_once"), [(69, False), (None, True), depth(69, True), depth(None, False)]
)
def test_books_that_do_not_balance_are_not_drained_while_a_thread_runs(
    tmp_path: Path,
    suricata_socket: Callable[[Answer], None],
    decoded: int | None,
    at_once: bool,
) -> None:
    suricata_socket(counting(100, 30, decoded))
    process = Process(tmp_path, BUSY)
    try:
        with pytest.raises(TrialFailed, match=rf"captured 100, dropped 30, decoded {decoded}"):
            running(process, at_once=at_once).drain(expected_packets=100, timeout_s=1)
    finally:
        process.end()


def test_sleep_says_nothing_where_packets_are_missing(
    process: Process, suricata_socket: Callable[[Answer], None]
) -> None:
    suricata_socket(counting(100, 30, 69))
    with pytest.raises(TrialFailed, match="captured 100, dropped 30, decoded 69"):
        running(process).drain(expected_packets=101, timeout_s=1)


@pytest.mark.parametrize("decoded", [70, None])
def test_live_joins_fresh_kernel_counters_with_what_the_decoder_told_last(
    process: Process, suricata_socket: Callable[[Answer], None], decoded: int | None
) -> None:
    suricata_socket(counting(100, 30, decoded))
    found = running(process).live()
    assert found is not None
    said = (found.captured_packets, found.dropped_ring_full_packets, found.decoded_packets)
    assert said == (100, 30, decoded)


def test_live_does_not_wait_for_who_stands_still(
    process: Process, suricata_socket: Callable[[Answer], None]
) -> None:
    held = threading.Event()
    suricata_socket(lambda _: held.wait(20) and None)
    assert running(process).live() is None
    held.set()


def test_a_death_while_draining_is_told_as_a_death(
    process: Process, suricata_socket: Callable[[Answer], None]
) -> None:
    def die(request: dict[str, Any]) -> object:
        process.signal(signal.SIGKILL)
        return None

    suricata_socket(die)
    with pytest.raises(TrialFailed, match=r"ended before it was stopped \(signal SIGKILL\)"):
        running(process).drain(expected_packets=None, timeout_s=10)


def test_a_death_before_its_first_word_has_the_node_s(process: Process) -> None:
    process.stderr.write_text("nodrop-node enter: none of the CPUs [88] can be used here\n")
    process.end()
    with pytest.raises(TrialFailed, match=r"signal SIGKILL\): nodrop-node enter: none of the CPUs"):
        running(process).wait_ready(timeout_s=5)


def test_a_stopped_process_is_told_as_stopped_and_ended(process: Process) -> None:
    process.signal(signal.SIGSTOP)
    os.waitpid(process.root.pid, os.WUNTRACED)
    with pytest.raises(TrialFailed, match="SIGSTOP"):
        running(process).finish(timeout_s=5)
    assert process.child.wait(5) == -signal.SIGKILL


def test_a_refusal_is_not_silence(
    process: Process, suricata_socket: Callable[[Answer], None]
) -> None:
    suricata_socket(counting(0, 0, None))
    with ControlSocket(lambda: process.connect("suricata.socket", timeout_s=5)) as control:
        with pytest.raises(RefusedBySuricata, match="not yet synchronized"):
            control.command("dump-counters")
        assert control.command("iface-stat", iface="ndsurr0") == {"pkts": 0, "drop": 0}


def leave(work: Path, *names: str) -> None:
    for name in names:
        shutil.copy(FIXTURES / f"{name}-7.json", work / f"{name}.json")


def test_final_counters_from_record_and_exit_line(process: Process) -> None:
    leave(process.work, "engine", "stats")
    final = running(process).finish(timeout_s=5)
    assert (final.captured_packets, final.dropped_ring_full_packets) == (99_748, 0)
    assert final.decoded_packets == 99_748
    assert final.sources["captured_packets"].startswith("engine.json")
    assert final.sources["decoded_packets"].startswith("stats.json")


def test_packets_after_the_last_record_stay_visible_in_the_books(process: Process) -> None:
    leave(process.work, "engine", "stats")
    log = process.work / "engine.json"
    log.write_text(log.read_text().replace("packets: 99748, drops: 0", "packets: 99758, drops: 4"))
    final = running(process).finish(timeout_s=5)
    assert (final.captured_packets, final.dropped_ring_full_packets) == (99_758, 4)
    assert final.decoded_packets == 99_748, "6 packets: a residual, not a loss"


def test_only_one_of_the_two_is_left(process: Process) -> None:
    leave(process.work, "stats")
    assert running(process).finish(timeout_s=5).captured_packets == 99_748


def test_no_last_word_is_a_failed_trial(process: Process) -> None:
    with pytest.raises(TrialFailed, match="no final counters"):
        running(process).finish(timeout_s=5)


def test_bad_rules_end_the_start_and_are_named(process: Process) -> None:
    leave(process.work, "engine")
    with pytest.raises(TrialFailed, match=r"3 of 5 rules do not load: .*line 2 \(sid 9000002"):
        running(process).wait_ready(timeout_s=5)


def test_a_start_without_capture_threads_is_not_ready(process: Process) -> None:
    """The log says that the engine started; the process has no W# or RX# thread."""
    leave(process.work, "engine")
    with pytest.raises(TrialFailed, match="without a capture thread"):
        running(process, rules_errors="warn").wait_ready(timeout_s=5)


def test_bad_rules_are_counted_where_they_may_be(process: Process) -> None:
    leave(process.work, "engine")
    facts = running(process, rules_errors="warn").facts()
    assert (facts["rules_loaded"], facts["rules_failed"]) == (2, 3)
    assert len(facts["rules_failed_first"]) == 3
    assert facts["version"] == "7.0.10"
    assert facts["defrag_effective"] is None, "nothing was seen of its sockets"


def test_death_at_the_start_carries_its_last_words_and_a_hint(process: Process) -> None:
    process.stderr.write_text(
        "[7] Error: af-packet: failed to create socket: Operation not permitted\n"
    )
    process.signal(signal.SIGKILL)
    process.child.wait(5)
    with pytest.raises(TrialFailed) as caught:
        running(process).wait_ready(timeout_s=5)
    assert "Operation not permitted" in caught.value.message
    assert caught.value.hint is not None and "CAP_NET_RAW" in caught.value.hint


def test_a_late_start_says_how_far_it_came(process: Process) -> None:
    first = (FIXTURES / "engine-7.json").read_text().splitlines()[0]
    (process.work / "engine.json").write_text(first + "\n")
    with pytest.raises(TrialFailed, match=r"This is Suricata version 7\.0\.10"):
        running(process).wait_ready(timeout_s=0.1)


def complaints(work: Path, count: int) -> None:
    """Writes the errors of a text in place of rules, before the engine starts."""
    lines = (FIXTURES / "engine-7.json").read_text().splitlines()
    bad = [line for line in lines if '"Error"' in line]
    (work / "engine.json").write_text("\n".join([lines[0], *bad * count]) + "\n")


def test_a_start_that_only_complains_of_rules_is_no_limit_of_the_sut(process: Process) -> None:
    complaints(process.work, 3)
    with pytest.raises(TrialFailed, match="has not started its engine") as late:
        running(process).wait_ready(timeout_s=0.1)
    assert late.value.reason == "no_rules"
    first = (FIXTURES / "engine-7.json").read_text().splitlines()[0]
    (process.work / "engine.json").write_text(first + "\n")
    with pytest.raises(TrialFailed) as silent:
        running(process).wait_ready(timeout_s=0.1)
    assert silent.value.reason == ""


@pytest.mark.parametrize(("before", "reason"), [("complaints", "no_rules"), ("engine", "")])
def test_a_log_that_gets_too_large_is_of_the_rules_before_the_engine_starts(
    process: Process, monkeypatch: pytest.MonkeyPatch, before: str, reason: str
) -> None:
    if before == "engine":
        leave(process.work, "engine")
    else:
        complaints(process.work, 3)
    seen = running(process, rules_errors="warn")
    seen._said()
    monkeypatch.setattr(log, "SMALL_FILE_BYTES", seen._log._offset + 10)
    with (process.work / "engine.json").open("a") as file:
        file.write("x" * 1000)
    with pytest.raises(TrialFailed, match="engine log") as large:
        seen._said()
    assert large.value.reason == reason


def ring(frames: int, fanout: str | None) -> SocketRing:
    nothing = dict.fromkeys(("tpacket_version", "block_bytes", "blocks", "frame_bytes"))
    return SocketRing(**nothing, frames=frames, fanout_id=None, fanout_type=fanout)


@pytest.mark.parametrize(
    ("asked", "threads", "rings", "effective"),
    [
        (
            {"threads": 4},
            ("W#01-eth0", "W#02-eth0", "FM#01"),
            [ring(4102, "hash")] * 2,
            {"runmode": "workers", "threads": 2, "cluster_type": "cluster_flow", "defrag": True}
            | {"ring_size": 4102},
        ),
        (
            {"runmode": "single", "threads": None},
            ("W#01-eth0", "FR#01"),
            [ring(70, None)],
            {"runmode": "single", "threads": 1, "cluster_type": "none", "defrag": False}
            | {"ring_size": 70},
        ),
        (
            {"runmode": None},
            ("RX#01-eth0", "W#01", "W#02", "W#03"),
            [ring(2048, "cpu")],
            {"runmode": "autofp", "threads": 1, "cluster_type": "cluster_cpu", "defrag": False}
            | {"ring_size": 2048, "detect_threads": 3},
        ),
        ({"runmode": None}, ("W#01-eth0",), [], {"threads": 1}),
        (
            {"defrag": False},
            ("W#01-eth0",),
            [],
            {"runmode": "workers", "threads": 1, "defrag": False},
        ),
        (
            {"interfaces": ("a", "b")},
            ("W#01-a", "W#02-a", "W#01-b", "W#02-b"),
            [ring(64, "qm"), ring(128, "qm")],
            {"runmode": "workers", "threads": 2, "cluster_type": "cluster_qm", "defrag": False},
        ),
    ],
)
def test_what_was_effective_is_what_is_seen(
    process: Process,
    asked: dict[str, Any],
    threads: tuple[str, ...],
    rings: list[SocketRing],
    effective: dict[str, Any],
) -> None:
    sut = running(process, **asked)
    seen = Effective(asked=sut._asked, threads=threads, rings=tuple(rings))
    assert seen.settings() == effective


@pytest.mark.parametrize(
    ("asked", "threads", "notes"),
    [
        ({"threads": 2}, ("W#01-a", "W#02-a"), []),
        ({"threads": 4}, ("W#01-a", "W#02-a"), ["4 capture threads were asked for, 2 run"]),
        ({"threads": 1, "detect_threads": 3}, ("RX#01-a", "W#01", "W#02", "W#03"), []),
        (
            {"threads": 1, "detect_threads": 4},
            ("RX#01-a", "W#01", "W#02"),
            ["4 detect threads were asked for, 2 run"],
        ),
    ],
)
def test_what_was_asked_for_and_does_not_run_is_said(
    process: Process, asked: dict[str, Any], threads: tuple[str, ...], notes: list[str]
) -> None:
    sut = running(process, defrag=False, **asked)
    found = Effective(asked=sut._asked, threads=threads, rings=()).notes()
    assert [note.partition(":")[0] for note in found] == notes
