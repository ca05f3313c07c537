"""Faults of the line, the far host and its clock in a run: one sentence each, and it goes on."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodrop.measure.plan import Progress
from nodrop.results.trial import Live
from nodrop.testbed.hosts import processes, ssh_connection
from nodrop.testbed.hosts.node import ClockFix, file_sha256, find_node_binary
from nodrop.testbed.hosts.ssh import NODE_FOLDER, SshHost
from tests.e2e.conftest import closes, only
from tests.ssh.machines import set_control
from tests.ssh.pairs import Pair, Run
from tests.ssh.test_lease import all_end_on
from tests.ssh.test_measuring import run

__all__: Sequence[str] = ("run",)

ONE = "measure.repetitions=1"
SLOW = """\
import os, queue, socket, sys, threading, time
def pump(read, write):
    late = queue.Queue()
    def take():
        while data := read(65536):
            late.put((time.monotonic() + float(sys.argv[3]), data))
        late.put((0, b""))
    threading.Thread(target=take, daemon=True).start()
    while True:
        due, data = late.get()
        if not data:
            return
        time.sleep(max(0, due - time.monotonic()))
        write(data)
line = socket.create_connection((sys.argv[1], int(sys.argv[2])))
out = open(1, "wb", 0)
threading.Thread(target=pump, args=(line.recv, out.write), daemon=True).start()
pump(lambda most: os.read(0, most), line.sendall)
"""
"""A ProxyCommand whose every byte takes so many seconds longer, each way."""
DELAY_S = os.environ.get("NODROP_LINE_DELAY_S", "0.02")
"""SPECIFICATION.md: 0.1; a run has some hundred round trips."""
LOSSY = """
table inet lossy {
  chain in { type filter hook input priority 0; iifname "ctl0" numgen random mod 100 < 5 drop; }
  chain out { type filter hook output priority 0; oifname "ctl0" numgen random mod 100 < 5 drop; }
}
"""


class Cuts(Progress):
    """The control line, while the first load is offered."""

    def __init__(self, *, for_s: float | None) -> None:
        self.for_s, self.cut = for_s, False

    def live(self, reading: Live) -> None:
        if not self.cut and reading.sent_packets:
            self.cut = True
            set_control(0, up=False)
            if self.for_s is not None:
                threading.Timer(self.for_s, set_control, (0,), {"up": True}).start()


def test_a_line_that_is_cut_for_two_seconds_costs_no_trial(run: Run) -> None:
    cutting = Cuts(for_s=2.0)
    record = only(run("load.speed=4", ONE, progress=cutting))
    assert cutting.cut
    assert (record.outcome, record.error) == ("measured", None)
    assert closes(record)


def test_a_line_that_is_cut_for_good_ends_the_run_in_sentences_and_resume_goes_on(
    run: Run, here: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "BEAT_S", 0.3)
    monkeypatch.setattr(processes, "TERM_S", 3)
    monkeypatch.setitem(ssh_connection.OPTIONS, "ServerAliveInterval", "1")
    monkeypatch.setitem(ssh_connection.OPTIONS, "ServerAliveCountMax", "2")
    cutting = Cuts(for_s=None)
    try:
        outcome = run("load.speed=4", progress=cutting)
        all_end_on(here.sender)
    finally:
        set_control(0, up=True)
    assert cutting.cut
    first, second = outcome.records
    assert (first.outcome, second.outcome) == ("void", "void")
    assert "the ssh connection is gone" in (first.error or "")
    assert "sender gen1: not reached: network is unreachable; see whether it" in (
        second.error or ""
    )
    assert not any("\n" in (record.error or "") for record in outcome.records)
    resumed = run("load.speed=4", resume=True)
    assert [record.outcome for record in resumed.records] == ["measured", "measured"]
    assert all(closes(record) for record in resumed.records)


def test_a_slow_and_lossy_line_measures_the_same(run: Run, here: Pair, tmp_path: Path) -> None:
    proxy, config = tmp_path / "slow.py", tmp_path / "ssh_config"
    proxy.write_text(SLOW)
    command = f"{sys.executable} {proxy} %h %p {DELAY_S}"
    words = f"Host slow\n  HostName 10.77.0.2\n  ProxyCommand {command}\n"
    config.write_text(words + here.machines.config.read_text())
    (tmp_path / "lossy.nft").write_text(LOSSY)
    here.receiver.run("nft", "-f", str(tmp_path / "lossy.nft"))
    try:
        record = only(run(ONE, lab={"sender": "slow", "config": config}))
    finally:
        here.receiver.run("nft", "delete", "table", "inet", "lossy")
    assert (record.outcome, record.error) == ("measured", None)
    assert closes(record)
    assert record.packets.decoded_packets == record.offered.sent > 10_000


def test_a_far_disk_that_is_full_is_one_void_trial_in_one_sentence(run: Run, here: Pair) -> None:
    size = f"size={find_node_binary().stat().st_size // 1024 + 400}k"
    here.sender.run("mkdir", "-p", "/var/lib/nodrop")
    here.sender.run("mount", "-t", "tmpfs", "-o", f"mode=755,{size}", "tmpfs", "/var/lib/nodrop")
    try:
        record = only(run(ONE))
        assert record.outcome == "void"
        assert "cannot be copied there" in (record.error or "")
        assert "No space left on device" in (record.error or "")
        assert here.sender.run("ls", "/var/lib/nodrop").split() == ["node"]
    finally:
        here.sender.run("umount", "/var/lib/nodrop")


def test_a_far_clock_that_is_set_in_a_trial_makes_it_void(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A double: to set the clock of this machine would set that of all that runs here."""
    looks: list[Any] = []
    learn = SshHost.learn_clock

    def jumped(host: SshHost) -> ClockFix:
        looks.append(found := learn(host))
        after = host.name.startswith("sender") and len(looks) > 3
        return replace(found, offset_ns=found.offset_ns + 50_000_000) if after else found

    monkeypatch.setattr(SshHost, "learn_clock", jumped)
    record = only(run(ONE))
    assert len(looks) == 4, "at two connections, before and after the load"
    assert record.outcome == "void"
    assert "clock_moved" in record.invalid_reasons


def test_an_older_node_stays_and_a_damaged_one_is_replaced(run: Run, here: Pair) -> None:
    older = f"{NODE_FOLDER}/{'0' * 64}"
    ours = f"{NODE_FOLDER}/{file_sha256(find_node_binary())}/nodrop-node"
    here.sender.run("sh", "-ec", f"mkdir -p {older}; echo old >{older}/nodrop-node")
    here.sender.run("sh", "-ec", f"mkdir -p $(dirname {ours}); echo damaged >{ours}")
    record = only(run(ONE))
    assert record.outcome == "measured"
    assert here.sender.run("cat", f"{older}/nodrop-node") == "old\n"
    here.sender.run("rm", "-r", older)
