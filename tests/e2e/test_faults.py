"""Faults put in on purpose are blamed on the right place: the instrument's own known answers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from nodrop.measure.plan import Progress
from tests.depth import depth
from tests.e2e.conftest import WHOLE_TRACE, Run, closes, only
from tests.e2e.faults import Inject, labelled, namespace, nic_gone_once, xdp_drops

pytestmark = pytest.mark.usefixtures("suricata")


def test_a_filter_on_the_senders_way_out(run: Run) -> None:
    def drop_one_in_fifty() -> None:
        rules = """
            table netdev fault {
              chain out {
                type filter hook egress device "ndtx0" priority 0; policy accept;
                numgen inc mod 50 0 drop
              }
            }
        """
        subprocess.run(
            ["ip", "netns", "exec", namespace("snd"), "nft", "-f", "-"],
            input=rules, text=True, check=True, timeout=10,
        )  # fmt: skip

    record = only(run(WHOLE_TRACE, progress=Inject("offer", drop_one_in_fifty)))
    assert record.valid, record.verdict
    assert record.packets.loss_place == "path"
    assert record.packets.loss_ratio == pytest.approx(0.02, rel=0.01)
    assert "egress" in record.packets.knob
    assert closes(record)


@pytest.mark.usefixtures("real_root")  # an XDP program
@pytest.mark.parametrize("mode", ["skb", "drv"])
def test_an_xdp_program_on_the_receivers_port(run: Run, mode: str, tmp_path: Path) -> None:
    """The driver counts its drops; nothing counts what the kernel drops for it: a residual."""
    # veth takes a native program up to an MTU of about 3,400 bytes only (ERANGE beyond).
    lab = tmp_path / "lab.toml"
    lab.write_text('name = "small"\nkind = "netns"\nmtu = 1600\n')
    # A random hole in the stream leaves datagrams incomplete that the trace has whole, so the
    # books must close from the kernel's own figures.
    with xdp_drops(20, mode) as attach:
        record = only(run(WHOLE_TRACE, lab=str(lab), progress=Inject("read counters", attach)))
    if mode == "skb":
        assert record.invalid_reasons == ["residual"], record.verdict
        assert record.packets.residual_packets == pytest.approx(0.05 * record.offered.sent, rel=0.1)
        assert "is attached to ndrx0 in generic mode" in record.verdict
        return
    assert record.valid, record.verdict
    assert record.packets.loss_place == "path"
    assert record.packets.loss_ratio == pytest.approx(0.05, rel=0.1)
    assert "XDP" in record.packets.knob
    assert closes(record)


def test_a_ring_of_64_frames(run: Run) -> None:
    record = only(run("sut.ring_size=64", "load.speed=40"))
    assert record.valid, record.verdict
    assert record.packets.loss_place == "socket ring"
    assert record.packets.knob
    assert closes(record)


def test_suricata_stopped_for_two_seconds(run: Run) -> None:
    def stop() -> None:
        (pid,) = labelled("Suricata")
        os.kill(pid, signal.SIGSTOP)
        threading.Timer(2.0, os.kill, (pid, signal.SIGCONT)).start()

    record = only(run("sut.ring_size=3000", progress=Inject("offer", stop)))
    assert record.valid, record.verdict
    assert record.packets.loss_place == "socket ring"
    assert "did not run" in record.verdict
    assert closes(record)


def test_a_generator_starved_of_cpu_makes_the_trial_invalid(run: Run) -> None:
    def starve() -> None:
        (pid,) = [p for p in labelled("nodrop-node") if b"replay" in cmdline(p)]

        def stop() -> None:
            os.kill(pid, signal.SIGSTOP)
            threading.Timer(1.0, os.kill, (pid, signal.SIGCONT)).start()

        threading.Timer(0.5, stop).start()

    outcome = run("measure.late_p99_us=100000", progress=Inject("offer", starve))
    record = only(outcome)
    assert not record.valid
    assert record.invalid_reasons == ["sender_late"]
    assert outcome.exit_code == 1
    assert record.packets.residual_packets == 0


def cmdline(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


@pytest.mark.parametrize("end", ["rcv", depth("snd")])
def test_packets_nobody_of_ours_sent_make_the_trial_invalid(run: Run, end: str) -> None:
    """They leave the sender's port, and the receiver's own (which the capture sockets see too)."""
    port = {"snd": "ndtx0", "rcv": "ndrx0"}[end]
    frames = f"""
import socket
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
s.bind(("{port}", 0))
for _ in range(500):
    s.send(bytes(12) + b"\\x08\\x00" + bytes(50))
"""

    def intrude() -> None:
        subprocess.run(
            ["ip", "netns", "exec", namespace(end), sys.executable, "-c", frames],
            check=True, timeout=10,
        )  # fmt: skip

    record = only(run(progress=Inject("drain", intrude)))
    assert not record.valid
    assert "received_more_than_sent" in record.invalid_reasons, json.dumps(record.model_dump())


def test_rules_that_change_during_a_run_make_its_later_trials_invalid(
    run: Run, tmp_path: Path
) -> None:
    rules = tmp_path / "own.rules"
    rule = 'alert ip any any -> any any (msg:"one"; sid:1;)\n'
    rules.write_text(rule)

    class Edit(Progress):
        def trial_ended(self, trial: object, record: object) -> None:
            rules.write_text(rule.replace("one", "two"))

    outcome = run(f'sut.rules=["{rules}"]', "measure.repetitions=2", "load.speed=40",
                  progress=Edit())  # fmt: skip
    assert ["other_files" in record.invalid_reasons for record in outcome.records] == [False, True]
    assert "own.rules" in outcome.records[1].verdict


def test_the_nic_vanishes(run: Run) -> None:
    outcome = run(
        "measure.repetitions=2", "load.speed=100", progress=Inject("offer", nic_gone_once())
    )
    broken, whole = outcome.records
    assert outcome.exit_code == 1
    assert not broken.valid
    assert "ndtx0: sending stopped at packet 1 of 101171" in broken.verdict, broken.verdict
    assert whole.valid and closes(whole), whole.verdict
