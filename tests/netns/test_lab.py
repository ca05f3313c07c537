"""The one-machine lab: as it should be while up, and no trace of it afterwards, however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from nodrop.errors import LabProblem
from nodrop.testbed.hosts.api import Host, Link, SpawnRequest
from nodrop.testbed.hosts.journal import DiskJournal, namespaces_of, undo_abandoned
from nodrop.testbed.hosts.processes import labelled_processes
from nodrop.testbed.labs import offloads
from nodrop.testbed.labs.netns import NetnsLab

DEADLINE_S = 20.0


def ip(*arguments: str) -> Any:
    done = subprocess.run(["ip", "-j", *arguments], capture_output=True, text=True, check=True)
    return json.loads(done.stdout or "[]")


def ours(label: str) -> dict[str, Any]:
    """Everything on this machine that a lab of this label could leave."""
    return {
        "namespaces": list(namespaces_of(label)),
        "links": {link["ifname"] for link in ip("link", "show")} & {"ndtx0", "ndrx0"},
        "processes": labelled_processes(label),
    }


@pytest.fixture
def nothing_stays(label: str) -> Iterator[None]:
    before = ours(label)
    yield
    assert ours(label) == before


@contextmanager
def lab_up(label: str, **settings: Any) -> Iterator[Link]:
    with DiskJournal.create(label) as journal, NetnsLab(**settings).up(journal) as link:
        yield link


def shown(host: Host, port: str) -> Any:
    return json.loads(host.run(["ip", "-j", "-d", "-s", "link", "show", port]).stdout)[0]


def test_a_host_without_ethtool_turns_the_same_offloads_off(
    label: str, nothing_stays: None
) -> None:
    def features(host: Host, port: str) -> str:
        return host.run(["ethtool", "-k", port]).stdout

    with lab_up(label) as link:
        for port in (link.tx, link.rx):
            off = features(port.host, port.name)
            port.host.run(["ethtool", "-K", port.name, "rx", "on", "tx", "on", "sg", "on"])
            port.host.run(["ethtool", "-K", port.name, "gro", "on", "gso", "on", "tso", "on"])
            assert features(port.host, port.name) != off
            port.host.run([sys.executable, "-IS", offloads.__file__, port.name])
            assert features(port.host, port.name) == off


def test_the_link_is_as_promised(label: str, nothing_stays: None) -> None:
    with lab_up(label, mtu=1500) as link:
        tx, rx = shown(link.tx.host, "ndtx0"), shown(link.rx.host, "ndrx0")
        for port in (tx, rx):
            assert port["operstate"] == "UP"
            assert port["mtu"] == 1500
            assert "NOARP" in port["flags"]
            assert port["stats64"]["rx"]["packets"] == port["stats64"]["tx"]["packets"] == 0
        assert (tx["promiscuity"], rx["promiscuity"]) == (0, 1)
        for end in (link.tx, link.rx):
            features = end.host.run(["ethtool", "-k", end.name]).stdout
            for feature in (
                "rx-checksumming",
                "tx-checksumming",
                "scatter-gather",
                "tcp-segmentation-offload",
                "generic-segmentation-offload",
                "generic-receive-offload",
            ):
                assert f"\n{feature}: off" in features
            assert end.host.run(["ip", "-j", "-6", "addr"]).stdout.strip() in ("", "[]", "[{},{}]")


def test_the_receivers_own_stack_reassembles_nothing(label: str, nothing_stays: None) -> None:
    """Ip Reasm* must count the capture's doing alone, broadcast fragments included."""
    with lab_up(label) as link:
        before = link.rx.host.probe("counters", ports=["ndrx0"])["counters"]
        frame = (
            b"\xff" * 6 + b"\x02\0\0\0\0\1" + b"\x08\0"
            b"\x45\0\0\x1c\0\1\x20\0\x40\x11\x50\xce"
            + bytes([10, 2, 0, 1])
            + b"\xff" * 4 + bytes(8)
        )  # fmt: skip
        send = (
            "import socket, sys\n"
            "s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)\n"
            f"s.bind(('ndtx0', 0))\ns.send({frame!r})"
        )
        link.tx.host.run([sys.executable, "-c", send])
        after = link.rx.host.probe("counters", ports=["ndrx0"])["counters"]
    rose = {
        name: after["snmp"][name] - before["snmp"][name]
        for name in ("Ip.InReceives", "Ip.InHdrErrors", "Ip.ReasmReqds")
    }
    assert rose == {"Ip.InReceives": 1, "Ip.InHdrErrors": 0, "Ip.ReasmReqds": 0}


def test_counters_are_at_zero_in_every_trial(label: str, nothing_stays: None) -> None:
    with DiskJournal.create(label) as journal:
        lab = NetnsLab()
        for _ in range(3):
            with lab.up(journal) as link:
                before = shown(link.rx.host, "ndrx0")["stats64"]["rx"]["packets"]
                link.tx.host.run(["ip", "link", "set", "ndtx0", "arp", "on"])
                link.tx.host.run(["ip", "addr", "add", "192.0.2.1/24", "dev", "ndtx0"])
                link.tx.host.run(["ip", "neigh", "flush", "dev", "ndtx0"])
            assert before == 0
            assert list(namespaces_of(label)) == []
        assert len(journal.path.read_text().splitlines()) == 3  # head and two namespaces


def test_a_failure_inside_takes_the_lab_down(label: str, nothing_stays: None) -> None:
    with pytest.raises(ZeroDivisionError), lab_up(label):
        raise ZeroDivisionError


def test_a_failure_while_it_is_made_takes_the_lab_down(label: str, nothing_stays: None) -> None:
    with pytest.raises(LabProblem, match="mtu"), lab_up(label, mtu=70_000):
        pass


def test_programs_run_in_the_namespace(label: str, nothing_stays: None) -> None:
    with lab_up(label) as link:
        assert link.tx.host.run(["ls", "/sys/class/net"]).stdout.split() == ["lo", "ndtx0"]
        assert link.rx.host.run(["ls", "/sys/class/net"]).stdout.split() == ["lo", "ndrx0"]
        assert link.rx.host.run(["cat"], stdin="words").stdout == "words"
        with pytest.raises(LabProblem, match=r"rx: `ls /nope` failed \(2\): .*No such file"):
            link.rx.host.run(["ls", "/nope"])
        assert link.rx.host.run(["ls", "/nope"], check=False).returncode == 2
        with pytest.raises(LabProblem, match=r"rx: `tail -f /dev/null` took longer than 0\.2 s"):
            link.rx.host.run(["tail", "-f", "/dev/null"], timeout_s=0.2)


def test_a_probe_sees_this_kernel(label: str, nothing_stays: None) -> None:
    with lab_up(label) as link:
        assert os.uname().release in json.dumps(link.rx.host.probe("host"))


def test_a_spawned_program_is_our_child_and_carries_the_label(
    label: str, tmp_path: Path, nothing_stays: None
) -> None:
    out = tmp_path / "out"
    with lab_up(label) as link:
        looking = labelled_processes(label)
        child = link.rx.host.spawn(
            SpawnRequest(
                argv=["tail", "-f", "/dev/null"], stdout=out, stderr=out, env={"X": "1"}, cpus="0"
            )
        )
        try:
            comm, environ = (Path(f"/proc/{child.pid}/{name}") for name in ("comm", "environ"))
            wait_for(lambda: comm.read_text() == "tail\n")
            wait_for(environ.read_bytes)  # execve(2) sets it after the name
            assert {f"NODROP_LAB={label}".encode(), b"X=1"} <= {*environ.read_bytes().split(b"\0")}
            assert os.sched_getaffinity(child.pid) == {0}
            (spawned,) = [p for p in labelled_processes(label) if p not in looking]
            assert spawned.pid == child.pid
        finally:
            child.kill()
            child.wait(DEADLINE_S)


CONTROLLER = """
import sys
from pathlib import Path
from nodrop.errors import interrupts
from nodrop.testbed.hosts.api import SpawnRequest
from nodrop.testbed.hosts.journal import DiskJournal
from nodrop.testbed.labs import offloads
from nodrop.testbed.labs.netns import NetnsLab
from nodrop.testbed.hosts.rights import ensure_privileges

ensure_privileges()
out = Path(sys.argv[2])
with interrupts(), DiskJournal.create(sys.argv[1]) as journal, NetnsLab().up(journal) as link:
    waits = ["tail", "-f", "/dev/null"]
    child = link.rx.host.spawn(SpawnRequest(argv=waits, stdout=out, stderr=out))
    away = ["setsid", "-f", *waits]
    escaped = link.rx.host.spawn(SpawnRequest(argv=away, stdout=out, stderr=out))
    escaped.wait()
    print("up", flush=True)
    sys.stdin.read()
"""


@contextmanager
def controller(label: str, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A run that stands in its lab, with a program of the SUT's kind and one that got away."""
    process = subprocess.Popen(
        [sys.executable, "-c", CONTROLLER, label, str(tmp_path / "out")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        try:
            assert process.stdout and process.stdout.readline() == b"up\n"
            yield process
        finally:
            process.kill()


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.alone  # five seconds are the bound
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_undoes_by_itself_within_five_seconds(
    number: signal.Signals, label: str, tmp_path: Path, nothing_stays: None, state_home: Path
) -> None:
    with controller(label, tmp_path) as process:
        # The program, the one that got away, and at each end a job that looks.
        assert len(ours(label)["processes"]) == 4 and len(ours(label)["namespaces"]) == 2
        process.send_signal(number)
        process.wait(5)
    assert list(state_home.rglob("*.jsonl")) == []


def test_after_kill_9_undo_leaves_nothing(label: str, tmp_path: Path, nothing_stays: None) -> None:
    with controller(label, tmp_path) as process:
        assert undo_abandoned() == []  # it lives
        process.kill()
        process.wait(DEADLINE_S)
    assert len(ours(label)["namespaces"]) == 2
    (report,) = undo_abandoned()
    assert report.failed == []
    assert [words for words in report.done if "namespace" in words] == [
        f"network namespace nodrop-{label}-rcv",
        f"network namespace nodrop-{label}-snd",
    ]
    assert undo_abandoned() == []


def test_undo_all_ends_a_living_run(label: str, tmp_path: Path, nothing_stays: None) -> None:
    with controller(label, tmp_path) as process:
        (report,) = undo_abandoned(running=True)
        assert report.failed == []
        assert process.wait(DEADLINE_S) != 0


def test_a_nodes_clock_is_ours(label: str, nothing_stays: None) -> None:
    with lab_up(label) as link:
        host = link.rx.host
        with closing(host.job({"job": "sink", "interface": "ndrx0", "ring_bytes": 4 << 20})) as job:
            fix = job.clock()  # type: ignore[attr-defined]
            assert abs(fix.offset_ns) <= fix.bound_ns
            job.start()
            job.stop()
            assert job.result(timeout_s=DEADLINE_S)["packets"] == 0
