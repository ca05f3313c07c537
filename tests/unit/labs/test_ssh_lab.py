"""The lab file of two machines: what is refused is one line. What ssh and ethtool say."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from nodrop import plugins
from nodrop.cli.main import exit_code
from nodrop.config.lab_file import load_lab
from nodrop.errors import BadInput, LabProblem
from nodrop.testbed.hosts import ssh_connection
from nodrop.testbed.hosts.node import ClockFix, find_node_binary
from nodrop.testbed.hosts.ssh_connection import SshConnection, socket_folder
from nodrop.testbed.labs.far_hosts import clock_words, offloads_on
from nodrop.testbed.labs.netns import PROGRAMS
from nodrop.testbed.labs.ssh import carries

LAB = """\
name = "pair"
kind = "ssh"
[sender]
host = "gen1"
port = "eth1"
[receiver]
host = "sensor1"
port = "eth2"
"""


def refused(folder: Path, text: str) -> str:
    path = folder / "pair.toml"
    path.write_text(text)
    with pytest.raises(BadInput) as caught:
        plugins.build_lab(load_lab(str(path)))
    return str(caught.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("instead_of", "written", "words"),
    [
        ('"gen1"', '"-oProxyCommand=id"', 'sender.host = "-oProxyCommand=id": '),
        ('"gen1"', '"gen1 id"', 'sender.host = "gen1 id": '),
        ('"sensor1"', '"gen1"', 'receiver.host = "gen1": '),
        ('"eth1"', '"lo"', 'sender.port = "lo": '),
        ('port = "eth1"', 'prt = "eth1"', "sender.prt: "),
        ('"eth1"', '"eth1"\nbecome = "doas"', 'sender.become = "doas": '),
        ('"eth2"', '"eth2"\n[storage]\nhost = "nas"', "storage.path: "),
        ('"eth2"', '"eth2"\n[storage]\nhost = "nas"\npath = "srv"', 'storage.path = "srv": '),
        ('kind = "ssh"', 'kind = "ssh"\nssh_config = "no"', 'ssh_config = "no": '),
        ('host = "sensor1"', 'become = "sudo"', "receiver.become: "),
        ('[receiver]\nhost = "sensor1"\nport = "eth2"', "", "receiver: "),
    ],
)  # fmt: skip
def test_a_wrong_lab_file_is_one_line(
    tmp_path: Path, instead_of: str, written: str, words: str
) -> None:
    said = refused(tmp_path, LAB.replace(instead_of, written))
    assert said.startswith(words)
    assert "\n" not in said


def test_one_of_the_two_is_another_machine(tmp_path: Path) -> None:
    text = LAB.replace('host = "gen1"\n', "").replace('host = "sensor1"\n', "")
    assert refused(tmp_path, text).startswith("sender.host: ")


def test_a_run_says_that_a_host_is_not_reached_and_touches_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, out = tmp_path / "small.pcap", tmp_path / "out"
    argv = [find_node_binary(), "trace", "make", "demo", trace, "--packets", "100"]
    subprocess.run(argv, check=True, capture_output=True)
    (tmp_path / "config").write_text("Host *\n  ProxyCommand false\n")
    (tmp_path / "pair.toml").write_text(f'ssh_config = "config"\n{LAB}')
    (tmp_path / "x.toml").write_text(
        f'name = "x"\n[sut]\nkind = "sink"\n[load]\nkind = "replay"\ntrace = "{trace}"\n'
        "[measure]\nrepetitions = 1\n"
    )
    lab = ["--lab", str(tmp_path / "pair.toml")]
    assert exit_code(["run", str(tmp_path / "x.toml"), *lab, "--out", str(out)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("nodrop: sender gen1: not reached: ")
    assert not out.exists()


def test_a_lab_of_this_machine_can_be_checked_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert exit_code(["lab", "check", "netns", "--json"]) == 3
    problems = json.loads(capsys.readouterr().out)["problems"]
    assert [sum(f" {name} " in one for one in problems) for name in PROGRAMS] == [1, 1]


def test_offloads_that_are_on_and_can_be_turned_off() -> None:
    features = {
        "rx-checksum": (True, True), "tx-checksum-ipv4": (False, False), "rx-gro": (True, False),
        "rx-lro": (False, True), "tx-tcp6-segmentation": (True, False),
        "tx-tcp-segmentation": (False, False), "rx-vlan-hw-parse": (True, False),
    }  # fmt: skip
    shown = {name: {"on": on, "fixed": fixed} for name, (on, fixed) in features.items()}
    assert offloads_on(shown) == ["tso", "gro"]
    assert offloads_on({}) == []


def test_a_clock_is_ahead_or_behind() -> None:
    behind = ClockFix(offset_ns=0, bound_ns=40_000, real_offset_ns=-1_500_000)
    assert clock_words(behind) == "its clock is 1.500 ms behind ours (± 0.040 ms)"
    ahead = ClockFix(offset_ns=0, bound_ns=3_000, real_offset_ns=2_000_000, by="TAI")
    assert clock_words(ahead) == "its clock is 2.000 ms ahead of ours (± 0.003 ms, by TAI)"


@pytest.mark.parametrize("text", ["", "kex_exchange_identification: reset by peer\r\n"])
def test_words_of_ssh_that_are_not_known_are_passed_on(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = tmp_path / "said"
    said.write_text(text)
    ssh = tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\ncat {said} >&2\nexit 255\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(socket_place(tmp_path)))
    with pytest.raises(LabProblem) as caught, SshConnection("gen1"):
        pass
    silent = (
        "its login shell says no word of ours; `ssh gen1 true` must end at once, without output"
    )
    last = text.strip() or silent
    assert str(caught.value) == f"gen1: not reached: {last}"


def test_sockets_lie_in_a_folder_of_ours_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh_connection, "LONGEST_SOCKET_FOLDER", 1000)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    folder = socket_folder()
    assert folder.parent == tmp_path
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o755)
    with pytest.raises(LabProblem, match="must be a folder of this user alone"):
        socket_folder()


def socket_place(folder: Path) -> Path:
    place = folder / "run"
    place.mkdir()
    return place


@pytest.mark.parametrize(
    ("state", "flags", "qdisc", "sends"),
    [
        ("UP", ["UP", "LOWER_UP"], "mq", True),
        ("DOWN", ["UP", "NO-CARRIER"], "mq", False),
        ("LOWERLAYERDOWN", ["UP", "LOWER_UP"], "noqueue", False),
        ("UNKNOWN", ["UP", "LOWER_UP"], "fq_codel", True),
        ("UNKNOWN", ["UP", "LOWER_UP"], "noop", False),
        ("UNKNOWN", ["UP"], "fq_codel", False),
    ],
)
def test_a_port_sends_once_its_link_and_queue_are_there(
    state: str, flags: list[str], qdisc: str, sends: bool
) -> None:
    assert carries({"operstate": state, "flags": flags, "qdisc": qdisc}) is sends
