"""`nodrop lab prepare`: what each host needs, and real apt-get where it is asked for."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

from nodrop.cli.main import exit_code
from tests.ssh.machines import Machine, Machines
from tests.ssh.test_lab_check import LAB

CONTROL = """\
Package: ethtool
Version: 999
Architecture: all
Maintainer: nodrop's tests <tests@example.invalid>
Description: the one of this machine
"""
WITHOUT_ETHTOOL = """\
mkdir -p /run/upper /run/work /var/lib/dpkg/info /var/lib/dpkg/updates /var/lib/dpkg/triggers
touch /var/lib/dpkg/status
mount -t overlay -o lowerdir=/usr/sbin,upperdir=/run/upper,workdir=/run/work overlay /usr/sbin
rm /usr/sbin/ethtool
mount -t tmpfs tmpfs /var/cache
mount -t tmpfs tmpfs /var/log
mkdir -p /var/cache/apt/archives/partial /var/lib/apt/lists/partial
mount --bind "$1/apt" /etc/apt
"""
"""A host of Debian's own dpkg and apt-get, which have one source: a folder of this test."""


def prepared(
    machines: Machines, folder: Path, capsys: pytest.CaptureFixture[str], *more: str, sender: str
) -> tuple[int, list[str]]:
    lab = folder / "pair.toml"
    lab.write_text(LAB.format(config=machines.config, sender=sender, port="cab0"))
    code = exit_code(["lab", "prepare", str(lab), *more])
    shown = capsys.readouterr()
    assert shown.err == ""
    return code, shown.out.splitlines()


def test_hosts_that_have_all(
    machines: Machines, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines = prepared(machines, tmp_path, capsys, sender="gen1")
    assert code == 0
    sender, receiver = lines
    assert sender.startswith("sender gen1: needs nothing more (")
    assert sender.endswith(", root, ip, ethtool)")
    assert receiver.endswith(", root by sudo, ip, ethtool, tc, sysctl, python3)")


@pytest.mark.parametrize(
    ("alias", "become", "words"),
    [
        ("user", "", "needs a login as root (`User root` in ~/.ssh/config), or become"),
        ("asks", 'become = "sudo"', "needs one line in sudoers, by `visudo -f /etc/sudoers.d/no"),
        ("refused", "", "needs to be reached: no ssh server listens there; start sshd there"),
    ],
)
def test_who_cannot_be_root_there_is_told_what_it_takes(
    machines: Machines,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    alias: str,
    become: str,
    words: str,
) -> None:
    code, lines = prepared(machines, tmp_path, capsys, "--yes", sender=f'{alias}"\n{become}#"')
    assert code == 3
    assert lines[0].startswith(f"sender {alias}: {words}")
    if become:
        assert lines[0].endswith(": asks ALL=(ALL) NOPASSWD: ALL")


def test_a_package_that_is_missing_is_named_and_with_yes_installed(
    machines: Machines, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository(tmp_path)
    machines.sender.run("sh", "-euc", WITHOUT_ETHTOOL, "sh", str(tmp_path))
    before = sources(machines.sender)
    code, lines = prepared(machines, tmp_path, capsys, sender="gen1")
    assert (code, lines[0]) == (
        3,
        "sender gen1: needs package ethtool: `apt-get install --no-install-recommends ethtool` as "
        "its root",
    )
    code, lines = prepared(machines, tmp_path, capsys, "--yes", sender="gen1")
    assert code == 0, lines
    install = "`apt-get install --yes --no-install-recommends ethtool`"
    assert lines[:3] == [
        f"sender gen1: did {install} failed (100)",
        "sender gen1: did `apt-get update`",
        f"sender gen1: did {install}",
    ]
    assert machines.sender.run("ethtool", "--version").startswith("ethtool version")
    assert "Version: 999" in machines.sender.run("dpkg", "--status", "ethtool")
    assert sources(machines.sender) == before


def test_a_lab_of_this_machine_alone_has_another_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert exit_code(["lab", "prepare", "netns"]) == 2
    said = capsys.readouterr().err
    assert said == "nodrop: lab netns is this machine alone; `nodrop doctor` says what it needs\n"


def sources(machine: Machine) -> str:
    return machine.run("sh", "-c", "find /etc/apt -type f | sort | xargs sha256sum")


def repository(folder: Path) -> None:
    """Makes a repository of one package that `apt-get` can read."""
    tree = folder / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN/control").write_text(CONTROL)
    (tree / "usr/sbin").mkdir(parents=True)
    shutil.copy(str(shutil.which("ethtool")), tree / "usr/sbin/ethtool")
    (folder / "apt").mkdir()
    deb = folder / "apt/ethtool.deb"
    subprocess.run(["dpkg-deb", "--build", str(tree), str(deb)], check=True, capture_output=True)
    digest = hashlib.sha256(deb.read_bytes()).hexdigest()
    entry = f"Filename: ./ethtool.deb\nSize: {deb.stat().st_size}\nSHA256: {digest}\n"
    (folder / "apt/Packages").write_text(CONTROL + entry)
    (folder / "apt/sources.list").write_text("deb [trusted=yes] file:/etc/apt ./\n")
