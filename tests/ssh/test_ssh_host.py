"""A host over real ssh: node jobs there, one sentence for each failure, nothing left behind."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from nodrop.errors import LabProblem, NodeDied
from nodrop.testbed.hosts import ssh
from nodrop.testbed.hosts.api import SpawnRequest
from nodrop.testbed.hosts.control_groups import SocketLooks
from nodrop.testbed.hosts.node import file_sha256, find_node_binary
from nodrop.testbed.hosts.processes import Lease, ended, environment, labelled_processes
from nodrop.testbed.hosts.ssh import NODE_FOLDER, SshHost
from nodrop.testbed.hosts.ssh_connection import SshConnection, too_few_sessions
from nodrop.testbed.labs.cable import capture
from tests.ssh.machines import Machines
from tests.unit.hosts.test_security_page import rows

CAPABILITIES = {
    "DAC_READ_SEARCH": 2,
    "NET_ADMIN": 12,
    "NET_RAW": 13,
    "IPC_LOCK": 14,
    "SYS_PTRACE": 19,
    "SYS_NICE": 23,
}
"""Their numbers (linux/capability.h)."""

END_S = 15.0
"""Deadline of an end that comes by itself; it is an event, which is waited for."""


@pytest.fixture
def label(tmp_path: Path) -> str:
    return f"ssh-{os.getpid()}-{tmp_path.name}"


@pytest.fixture
def host(machines: Machines, label: str) -> Iterator[SshHost]:
    with SshHost("gen1", label=label, config=machines.config) as host:
        yield host


def all_end(label: str) -> None:
    """Nodes, and programs that they became; not what holds the connection. None is a child of ours,
    so each can be waited for by its handle."""
    for process in labelled_processes(label):
        if argv_of(process.pid).partition("\0")[0] not in ("ssh", "cat"):
            assert ended(process.pid, END_S), f"still there: {process}"


def test_a_node_works_there_and_is_copied_once(
    machines: Machines, host: SshHost, label: str
) -> None:
    digest = file_sha256(find_node_binary())
    where = machines.sender.run("stat", "-c", "%u:%a %n", f"{NODE_FOLDER}/{digest}/nodrop-node")
    assert where.split() == ["0:755", f"{NODE_FOLDER}/{digest}/nodrop-node"]
    found = host.probe("host")["host"]
    assert found["hostname"] == "gen1"
    assert found["uid"] == 0
    assert abs(host.clock.offset_ns) <= host.clock.bound_ns, "one kernel, one clock"
    assert [*host.probe("counters", ports=["cab0"])["counters"]["links"]] == ["cab0"]
    assert host.run(["hostname"]).stdout == "gen1\n"
    assert host.address == "10.77.0.2"
    with SshHost("gen1", label=label, config=machines.config) as again:
        assert not again.node_copied
    assert machines.sender.run("ls", "-A", f"{NODE_FOLDER}/{digest}") == "nodrop-node\n"


HOLDS_A_SOCKET = """
import os, socket, sys
held = socket.socket(17, 3, socket.htons(3))
held.bind(("cab0", 3))
print(os.getpid(), flush=True)
sys.stdin.read()
"""


def test_a_look_at_captures_knows_programs_by_the_pids_of_that_host(
    machines: Machines, label: str
) -> None:
    """In its PID namespace they have other numbers than the kernel's first ones."""
    with (
        SshHost("gen1", label=label, config=machines.config, holds=False) as host,
        host.begin(["python3", "-c", HOLDS_A_SOCKET]) as program,
    ):
        assert program.stdin is not None and program.stdout is not None
        pid = int(program.stdout.readline())
        with closing(SocketLooks(host)) as looks:
            seen = looks()
        program.stdin.close()
        program.wait(END_S)
    assert [one["pid"] for one in seen["sockets"]] == [pid]
    assert seen["programs"][str(pid)]["name"].startswith("python3")
    assert [port["name"] for port in seen["ports"]] == ["cab0"]


def test_sudo_makes_a_user_root_and_the_job_keeps_its_own_rights(
    machines: Machines, label: str
) -> None:
    spec = {"job": "sink", "interface": "cab0", "ring_bytes": 1 << 20}
    with (
        SshHost("user", label=label, become="sudo", config=machines.config) as host,
        closing(host.job(spec)) as job,
    ):
        proof = host.probe("proof", pids=[job.pid])["proof"][str(job.pid)]
        assert proof is not None
        assert proof["user_id"] == 0
        assert int(proof["effective_capabilities"], 16) == 1 << 13, "NET_RAW alone"
        assert labelled_processes(label), "the label is on what runs there, through sudo"
    all_end(label)


@pytest.mark.parametrize(
    ("what", "spec"),
    [
        ("job `replay`, and tcpreplay", {"job": "replay", "interface": "cab0", "pps": 9}),
        ("job `overhear`", {"job": "overhear", "interfaces": ["cab0"], "ethertype": 0x88B5}),
        ("job `sample`", {"job": "sample"}),
        ("the sink in setup `bare`", {"job": "sink", "interface": "cab0", "ring_bytes": 1 << 20}),
    ],
)
def test_a_job_there_has_what_the_page_says_and_can_get_no_more(
    host: SshHost, tmp_path: Path, what: str, spec: dict[str, Any]
) -> None:
    if spec["job"] == "replay":
        trace = tmp_path / "trace.pcap"
        trace.write_bytes(
            capture([60] * 9, src="02:00:00:00:00:01", dst="02:00:00:00:00:02", ethertype=0x88B5)
        )
        spec = {**spec, "trace": host.reads(trace)}
    ((_, said),) = (caps for row, caps in rows().items() if row.startswith(what))
    with closing(host.job(spec)) as job:
        status = host.run(["cat", f"/proc/{job.pid}/status"]).stdout
    lines = dict(line.split(":\t", 1) for line in status.splitlines())
    for which in ("CapEff", "CapPrm", "CapBnd"):
        assert int(lines[which], 16) == sum(1 << CAPABILITIES[name] for name in said), which
    assert lines["NoNewPrivs"] == "1"
    assert lines["Uid"].split()[1] == "0"


def test_a_file_is_read_there_as_long_as_its_host_is_connected(
    machines: Machines, label: str, tmp_path: Path
) -> None:
    ours = tmp_path / "trace.pcap"
    ours.write_bytes(bytes(range(256)) * 1000)
    with SshHost("gen1", label=label, config=machines.config) as host:
        path = host.reads(ours)
        assert host.reads(ours) == path, "copied once"
        assert machines.sender.run("stat", "-c", "%s %u:%a", path) == "256000 0:600\n"
        folder = str(Path(path).parent)
        assert machines.sender.run("stat", "-c", "%u:%a", folder) == "0:700\n"
        ours.write_bytes(b"another")
        other = host.reads(ours)
        assert machines.sender.run("cat", path, other).endswith("another")
    assert "kept." not in machines.sender.run("ls", "/var/lib/nodrop")


def test_a_file_may_take_as_long_as_its_size_wants(
    host: SshHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh, "FILE_TIMEOUT_S", 0.0)
    (tmp_path / "large.pcap").write_bytes(bytes(1 << 22))
    assert host.run(["stat", "-c", "%s", host.reads(tmp_path / "large.pcap")]).stdout == "4194304\n"
    monkeypatch.setattr(ssh, "SLOWEST_BYTES_S", 1e12)
    (tmp_path / "other.pcap").write_bytes(bytes(1 << 22))
    with pytest.raises(LabProblem, match=r"gen1: `copy other\.pcap` took longer than"):
        host.reads(tmp_path / "other.pcap")


@pytest.mark.parametrize(
    ("alias", "words"),
    [
        ("stranger", "it does not accept our key (publickey); `ssh stranger true` must work"),
        ("changed", "its host key is another than the one that is known; find out why"),
        ("unknown", "its host key is not known; log in once by hand (`ssh unknown`)"),
        (
            "nosuch",
            "no such host is known by name; give it a HostName in ~/.ssh/config; a port of this "
            "host is no HOST: `nodrop drops`, `nodrop audit --port nosuch`",
        ),
        ("refused", "no ssh server listens there; start sshd"),
        ("away", "network is unreachable; see whether it is up"),
    ],
)
def test_a_host_that_is_not_reached_says_why_in_one_sentence(
    machines: Machines, alias: str, words: str
) -> None:
    with pytest.raises(LabProblem) as caught, SshConnection(alias, config=machines.config):
        pass
    assert str(caught.value).startswith(f"{alias}: not reached: {words}")
    assert "\n" not in str(caught.value)


SAYS = 'command="{}" '
"""Prefix of a key: the program that runs instead of the user's words."""


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (
            r"echo Hello, use 2 CPUs; exec sh -c \"$SSH_ORIGINAL_COMMAND\"",
            "not reached: its login shell says 'Hello, use 2 CPUs' before each answer; `ssh gen1 ",
        ),
        (
            r"echo \"Unmatched '''.\" >&2; exit 1",  # tcsh 6.24 of our first words
            "not reached: its login shell does not read what sh reads (csh?); give that user",
        ),
        (
            "echo 5.1",
            "not reached: its login shell says no word of ours; `ssh gen1 true` must end at once",
        ),
    ],
)
def test_a_login_shell_that_is_no_sh_is_told_of(
    machines: Machines, command: str, words: str
) -> None:
    keys = machines.sender.run("cat", "/run/authorized")
    put = ["sh", "-c", 'printf %s "$1" >/run/authorized', "sh"]
    machines.sender.run(*put, SAYS.format(command) + keys)
    try:
        with (
            pytest.raises(LabProblem) as caught,
            SshHost("gen1", label="x", config=machines.config),
        ):
            pass
    finally:
        machines.sender.run(*put, keys)
    assert str(caught.value).startswith(f"gen1: {words}")
    assert "\n" not in str(caught.value)


ASKED = """\
import sys
from pathlib import Path
from nodrop.errors import LabProblem
from nodrop.testbed.hosts.ssh_connection import SshConnection
try:
    with SshConnection("behind", config=Path(sys.argv[1])):
        print("reached")
except LabProblem as problem:
    print(problem)
"""


def test_a_host_on_the_way_asks_nothing_of_a_terminal_either(machines: Machines) -> None:
    """Its ssh is the user's own, which knows nothing of BatchMode."""
    command = shlex.join([sys.executable, "-c", ASKED, str(machines.config)])
    argv = ["script", "--quiet", "--return", "--command", command, "/dev/null"]
    said = subprocess.run(argv, stdin=subprocess.PIPE, capture_output=True, text=True, check=True)
    assert said.stdout.startswith("behind: not reached: its host key is not known; log in once by ")


@pytest.mark.parametrize("sessions", [1, 2, 3, 4])
def test_a_host_that_takes_too_few_conversations_is_told_so(
    machines: Machines, label: str, tmp_path: Path, sessions: int
) -> None:
    config = tmp_path / "config"
    config.write_text(f"Host gen1\n  Port 2222\nInclude {machines.config}\n")
    options = ["-p", "2222", "-o", f"MaxSessions={sessions}"]
    with (
        machines.sender.serving(machines.folder, *options),
        pytest.raises(LabProblem) as caught,
        SshHost("gen1", label=label, config=config) as host,
    ):
        host.probe("account")
        with closing(host.job({"job": "sample"})):
            host.run(["true"])
    assert str(caught.value).endswith(
        ": its sshd takes too few conversations into one connection; `MaxSessions 10` in its "
        "sshd_config"
    )
    assert "\n" not in str(caught.value)


def test_a_keeper_that_gets_no_conversation_is_told_so_too() -> None:
    """sshd counts one that is over until it has seen its end: the next may be refused for it."""
    said = "mux_client_request_session: session request failed: Session open refused by peer"
    argv = ["sh", "-c", f"echo {said} >&2"]
    words = r"^gen1: no file can be kept there: its sshd takes too few"
    with pytest.raises(LabProblem, match=words):
        Lease(argv, env=os.environ, where="gen1", lost=too_few_sessions)


@pytest.mark.parametrize(
    ("alias", "become", "words"),
    [
        ("asks", "sudo", "asks: sudo asks for a password there; allow this user NOPASSWD"),
        ("user", None, "user: user 4711 is not root there; log in as root"),
    ],
)
def test_who_cannot_be_root_there_is_told_so(
    machines: Machines, alias: str, become: str | None, words: str
) -> None:
    host = SshHost(alias, label="x", become=become, config=machines.config)  # type: ignore[arg-type]
    with pytest.raises(LabProblem) as caught, host:
        pass
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("mode=755,size=64k", "the node cannot be copied to /var/lib/nodrop/node: "),
        ("mode=755,noexec", "the node cannot run there (x86_64): "),
        ("mode=777", "/var/lib/nodrop is not root's alone"),
    ],
)
def test_a_host_that_cannot_take_the_node(machines: Machines, options: str, words: str) -> None:
    machine = machines.receiver
    machine.run("mkdir", "-p", "/var/lib/nodrop")
    machine.run("mount", "-t", "tmpfs", "-o", options, "tmpfs", "/var/lib/nodrop")
    try:
        host = SshHost("user", label="x", become="sudo", config=machines.config)
        with pytest.raises(LabProblem) as caught, host:
            pass
        assert words in str(caught.value)
        if "size" in options:
            assert "No space left on device" in str(caught.value)
        assert ".begun" not in machine.run("find", "/var/lib/nodrop"), "half a file is left"
    finally:
        machine.run("umount", "/var/lib/nodrop")


def test_a_node_ends_when_the_ssh_of_its_job_is_killed(host: SshHost, label: str) -> None:
    with closing(host.job({"job": "sink", "interface": "cab0", "ring_bytes": 1 << 20})) as job:
        assert labelled_processes(label)
        job._process.kill()
        all_end(label)  # nothing else stands on that host yet
        with pytest.raises(NodeDied):
            job.result(timeout_s=END_S)
    assert host.run(["hostname"]).stdout == "gen1\n", "the connection is not the job's"


def test_a_program_there_is_what_it_is_here(host: SshHost, label: str, tmp_path: Path) -> None:
    out, err = tmp_path / "out", tmp_path / "err"
    words = "grep Cpus_allowed_list /proc/self/status; grep CapEff /proc/self/status; exit 7"
    argv = ["sh", "-c", f"cat /proc/self/timerslack_ns; hostname; {words}"]
    program = host.spawn(
        SpawnRequest(argv=argv, stdout=out, stderr=err, cpus="1", caps=["NET_RAW"])
    )
    assert program.wait(END_S) == 7, err.read_text()
    assert out.read_text().split() == [
        *("1", "gen1", "Cpus_allowed_list:", "1", "CapEff:", f"{1 << 13:016x}")
    ]


@pytest.mark.parametrize("end", ["kill", "close"])
def test_a_program_ends_with_our_ssh_to_it(
    host: SshHost, label: str, tmp_path: Path, end: str
) -> None:
    program = host.spawn(
        SpawnRequest(argv=["sleep", "600"], stdout=tmp_path / "out", stderr=tmp_path / "err")
    )
    while not any("sleep" in argv_of(one.pid) for one in labelled_processes(label)):
        assert program.poll() is None
    if end == "kill":
        program.kill()
        program.wait(END_S)
    else:
        assert program.stdin is not None
        program.stdin.close()
        assert program.wait(END_S) == 128 + signal.SIGKILL
    all_end(label)


def argv_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def test_a_connection_that_is_lost_ends_all_and_says_so(host: SshHost, label: str) -> None:
    with closing(host.job({"job": "sink", "interface": "cab0", "ring_bytes": 1 << 20})) as job:
        master = host._connection._master
        assert master is not None
        master.kill()
        master.wait()
        with pytest.raises(NodeDied):
            job.result(timeout_s=END_S)
        all_end(label)
        with pytest.raises(LabProblem, match="gen1: the ssh connection is gone"):
            host.run(["hostname"])


CONTROLLER = """\
import json, sys
from pathlib import Path
from nodrop.testbed.hosts.ssh import SshHost
with SshHost("gen1", label=sys.argv[1], config=Path(sys.argv[2])) as host:
    host.probe("account")
    job = host.job({"job": "sink", "interface": "cab0", "ring_bytes": 1 << 20})
    print(json.dumps(host._connection._master.pid), flush=True)
    sys.stdin.read()
"""


@contextmanager
def controller(label: str, config: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A controller that holds a connection, and the PID of its ssh."""
    process = subprocess.Popen(
        [sys.executable, "-c", CONTROLLER, label, str(config)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        assert process.stdout is not None
        try:
            yield process, json.loads(process.stdout.readline())
        finally:
            process.kill()


def test_nothing_is_left_when_the_controller_is_killed(machines: Machines, label: str) -> None:
    with controller(label, machines.config) as (process, master):
        assert b"NODROP_LAB=" + label.encode() in environment(labelled_processes(label)[0].pid)
        handle = os.pidfd_open(master)
        process.send_signal(signal.SIGKILL)
        process.wait(END_S)
    all_end(label)
    try:
        assert ended(master, END_S)
    finally:
        os.close(handle)


def test_an_audit_needs_no_python_there_and_takes_one_file(
    machines: Machines, tmp_path: Path
) -> None:
    """Python is hidden on that machine alone: its mounts are its own."""
    there = machines.receiver.pid
    inside = f"--pid=/proc/{there}/ns/pid_for_children"  # umount reads its own mounts
    enter = ["nsenter", "-t", str(there), "-m", "-n", "-u", inside]
    known = [Path("/usr/bin/python3"), Path("/usr/local/bin/python3"), Path(sys.executable)]
    pythons = {one.resolve() for one in known if one.exists()}
    nodrop = [str(Path(sys.executable).with_name("nodrop")), "audit", "root@sensor1", "--json"]
    try:
        for one in pythons:
            subprocess.run([*enter, "mount", "--bind", "/dev/null", str(one)], check=True)
        hidden = subprocess.run([*enter, "python3", "-c", ""], capture_output=True, check=False)
        assert hidden.returncode != 0
        done = subprocess.run(
            [*nodrop, "--port", "cab0", "--watch", "1s", "--ssh-config", str(machines.config)],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    finally:
        for one in pythons:
            subprocess.run([*enter, "umount", str(one)], check=True)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert found["ports"] == ["cab0"]
    assert [one["id"] for one in found["findings"]][:1] == ["blind-sensor"]
    assert [one["what"] for one in found["values"]][-1] == "flows at cab0"
    assert found["exit_code"] == done.returncode == 1
    assert find_node_binary().stat().st_size <= 6_500_000
