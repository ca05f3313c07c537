"""Whatever dies, nothing of ours stays on a far host: a connection's lease, and `nodrop undo`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from nodrop.cli.main import exit_code
from nodrop.errors import LabProblem
from nodrop.testbed.hosts import processes
from nodrop.testbed.hosts.api import SpawnRequest
from nodrop.testbed.hosts.processes import ended
from nodrop.testbed.hosts.ssh import NODE_FOLDER, SshHost
from nodrop.testbed.labs import far_hosts
from tests.ssh.machines import Machine, Machines, set_control
from tests.ssh.test_lab_check import written
from tests.ssh.test_ssh_host import controller

END_S = 20.0
CAP_DAC_READ_SEARCH, CAP_KILL, CAP_SYS_PTRACE = 2, 5, 19  # include/uapi/linux/capability.h
SINK = {"job": "sink", "interface": "cab0", "ring_bytes": 1 << 20}


@pytest.fixture
def label(tmp_path: Path) -> str:
    return f"lease-{os.getpid()}-{tmp_path.name}"


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Terms that a test can wait for."""
    monkeypatch.setattr(processes, "BEAT_S", 0.2)
    monkeypatch.setattr(processes, "TERM_S", 2)


def of_nodrop(machine: Machine) -> dict[int, str]:
    """Our processes on this machine: nodes, and those that hold a connection."""
    found = machine.processes()
    return {pid: argv for pid, argv in found.items() if "nodrop" in argv or argv == "cat "}


def keeper_on(machine: Machine) -> int:
    found = of_nodrop(machine).items()
    (pid,) = (p for p, argv in found if argv.startswith(NODE_FOLDER) and " keep --folder" in argv)
    return pid


def all_end_on(machine: Machine) -> None:
    """All of nodrop ends there without a word of ours, and takes along all that was kept."""
    for pid, argv in of_nodrop(machine).items():
        assert ended(pid, END_S), f"still there: {argv}"
    assert machine.run("ls", "/var/lib/nodrop").split() == ["node"]


@contextmanager
def cut(way: int) -> Iterator[None]:
    set_control(way, up=False)
    try:
        yield
    finally:
        set_control(way, up=True)


@pytest.mark.parametrize("alias", ["gen1", "user"])
def test_a_cut_line_ends_all_there_within_the_term(
    machines: Machines, label: str, tmp_path: Path, short: None, alias: str
) -> None:
    """No end of file arrives: both hosts live, and the kernel's TCP goes on trying for minutes."""
    trace = tmp_path / "trace.pcap"
    trace.write_bytes(b"a trace")
    way, machine, become = (
        (0, machines.sender, None) if alias == "gen1" else (1, machines.receiver, "sudo")
    )
    host = SshHost(alias, label=label, become=become, config=machines.config)  # type: ignore[arg-type]
    with host, closing(host.job(SINK)):
        host.reads(trace)
        program = host.spawn(
            SpawnRequest(argv=["sleep", "600"], stdout=tmp_path / "out", stderr=tmp_path / "err")
        )
        while not any(argv.startswith("sleep 600") for argv in machine.processes().values()):
            assert program.poll() is None
        with cut(way):
            all_end_on(machine)
        assert not [argv for argv in machine.processes().values() if argv.startswith("sleep")]
    program.wait(END_S)


def test_a_line_that_is_cut_for_less_than_the_term_ends_nothing(
    machines: Machines, host: SshHost
) -> None:
    with closing(host.job(SINK)) as job:
        keeper = keeper_on(machines.sender)
        with cut(0):
            threading.Event().wait(2.0)  # the fault itself
        job.start()
        job.stop()
        assert job.result(timeout_s=END_S)["packets"] == 0
        assert keeper_on(machines.sender) == keeper


@pytest.fixture
def host(machines: Machines, label: str) -> Iterator[SshHost]:
    with SshHost("gen1", label=label, config=machines.config) as host:
        yield host


def test_the_keeper_outlives_sshd_and_ends_the_rest(
    machines: Machines, host: SshHost, tmp_path: Path
) -> None:
    program = host.spawn(
        SpawnRequest(argv=["sleep", "600"], stdout=tmp_path / "out", stderr=tmp_path / "err")
    )
    with closing(host.job(SINK)):
        for pid, argv in machines.sender.processes().items():
            if argv.startswith("sshd: root@"):
                os.kill(pid, signal.SIGKILL)
        all_end_on(machines.sender)
        program.wait(END_S)
    assert host._connection.gone(within_s=END_S)
    assert host.gone()


def test_a_keeper_that_was_killed_is_followed_by_one_that_cleans_up(
    machines: Machines, host: SshHost, label: str, tmp_path: Path
) -> None:
    trace = tmp_path / "trace.pcap"
    trace.write_bytes(b"a trace")
    host.reads(trace)
    host.run(["sh", "-c", "setsid sleep 600 >/dev/null 2>&1 &"])
    keeper = keeper_on(machines.sender)
    os.kill(keeper, signal.SIGKILL)
    assert ended(keeper, END_S)
    assert "kept." in machines.sender.run("ls", "/var/lib/nodrop")
    assert host._lease is not None
    host._lease._keeper.wait(END_S)
    assert host.gone()
    host.close()
    with SshHost("gen1", label=f"{label}-next", config=machines.config):
        left = machines.sender.run("ls", "/var/lib/nodrop").split()
        assert len([name for name in left if name.startswith("kept.")]) == 1
        assert not [a for a in machines.sender.processes().values() if a.startswith("sleep")]


def test_who_comes_back_ends_the_lease_that_still_waits(machines: Machines, host: SshHost) -> None:
    """The cut is shorter than the lease's term, and longer than ssh bears."""
    keeper = keeper_on(machines.sender)
    os.kill(keeper, signal.SIGSTOP)  # it hears no end of file
    assert host._connection._master is not None
    host._connection._master.kill()
    host._connection._master.wait(END_S)
    assert host.gone()
    host.close()
    host.__enter__()
    assert ended(keeper, END_S)
    assert host.run(["hostname"]).stdout == "gen1\n"


def test_the_keeper_may_look_and_kill_and_no_more(machines: Machines, host: SshHost) -> None:
    keeper = keeper_on(machines.sender)
    status = Path(f"/proc/{keeper}/status").read_text()
    (effective,) = (line.split()[1] for line in status.splitlines() if line.startswith("CapEff"))
    assert int(effective, 16) == 1 << CAP_KILL | 1 << CAP_SYS_PTRACE | 1 << CAP_DAC_READ_SEARCH
    record = machines.sender.run("sh", "-c", "stat -c %u:%a /var/lib/nodrop/kept.*/run.json")
    assert record == "0:600\n"


def test_a_second_controller_is_told_whose_the_host_is(
    machines: Machines, host: SshHost, label: str
) -> None:
    second = SshHost("gen1", label="second", config=machines.config)
    with pytest.raises(LabProblem) as caught, second:
        pass
    assert str(caught.value).startswith(f"gen1: run {label} of {processes.holder()}, since 20")
    assert " UTC, has this host; wait for its end" in str(caught.value)
    assert host.run(["hostname"]).stdout == "gen1\n", "the first one goes on"
    host.close()
    with second:
        assert second.run(["hostname"]).stdout == "gen1\n"


@pytest.fixture
def lab(machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return written(machines, tmp_path)


def undone(lab: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, str, str]:
    code = exit_code(["undo", str(lab), *more])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_undo_of_a_lab_waits_for_the_line_and_ends_what_a_dead_controller_left(
    machines: Machines, lab: Path, label: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with controller(label, machines.config) as (process, _):
        set_control(0, up=False)
        process.send_signal(signal.SIGKILL)
        process.wait(END_S)
    # It would end by itself as soon as TCP repeats our end of file.
    os.kill(keeper_on(machines.sender), signal.SIGSTOP)
    threading.Timer(2.0, set_control, (0,), {"up": True}).start()
    code, out, err = undone(lab, capsys)
    assert code == 0, err
    assert f"undone: sender gen1: what run {label} left there" in out
    assert "sender gen1: not reached: network is unreachable" in err
    all_end_on(machines.sender)


def test_undo_of_a_lab_leaves_a_run_that_goes_on_unless_it_is_told(
    machines: Machines, lab: Path, host: SshHost, label: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = undone(lab, capsys)
    assert code == 0
    assert f"sender gen1: run {label} of {processes.holder()}, since " in out
    assert " goes on (--all ends it)" in out
    assert not host.gone()
    code, out, _ = undone(lab, capsys, "--all", "--yes", "--json")
    (sender, receiver) = json.loads(out)
    assert (code, sender["host"], sender["goes_on"]) == (0, "sender gen1", [])
    assert sender["done"] == [f"sender gen1: what run {label} left there"]
    assert (receiver["host"], receiver["done"], receiver["failed"]) == ("receiver sensor1", [], [])
    all_end_on(machines.sender)


def test_undo_of_a_lab_that_is_not_reached_says_so_and_does_the_rest(
    machines: Machines,
    tmp_path: Path,
    lab: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(far_hosts, "RETRY_S", 0.0)
    code, _, err = undone(written(machines, tmp_path, sender="refused"), capsys)
    assert code == 3
    assert err.splitlines() == [
        "nodrop: could not undo sender refused: not reached: no ssh server listens there; start "
        "sshd there"
    ]


def test_sockets_of_a_killed_ssh_go_with_an_undo(
    host: SshHost, sockets: Path, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (mine,) = [path for path in sockets.rglob("*") if path.is_socket()]
    dead = mine.with_name("dead")
    subprocess.run(["python3", "-c", BINDS, str(dead)], check=True)
    assert dead.is_socket()
    undone(lab, capsys)
    assert [path for path in sockets.rglob("*") if path.is_socket()] == [mine]


BINDS = "import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])"
