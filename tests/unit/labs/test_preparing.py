"""Words of `nodrop lab prepare` on a host, by the answers of its programs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from nodrop.testbed.hosts.api import Completed
from nodrop.testbed.hosts.ssh import Become
from nodrop.testbed.labs.ssh import AT_THE, prepare


def needed(become: Become | None, *has: str, root: bool, or_else: str = "") -> Sequence[str]:
    def run(argv: Sequence[str], timeout_s: float) -> Completed:
        asks_root = argv[-2:] == ["id", "-u"]
        said = "0" if asks_root else "\n".join(["user me", "apt yes", *(f"has {p}" for p in has)])
        failed = asks_root and not root
        return Completed(argv=(), returncode=int(failed), stdout=said, stderr="", seconds=0)

    packages = {"ip": "iproute2", "ethtool": "ethtool"}
    given = {"or_else": or_else} if or_else else {}
    return prepare("gen1", run, become=become, packages=packages, do_it=False, **given).needs


def test_a_host_without_sudo_needs_it_and_its_line() -> None:
    line, packages = needed("sudo", "ip", root=False)
    assert line.endswith("me ALL=(ALL) NOPASSWD: ALL")
    assert packages.startswith("packages ethtool, sudo: `apt-get install")
    (line,) = needed("sudo", "ip", "ethtool", "sudo", root=False)
    assert line.endswith("me ALL=(ALL) NOPASSWD: ALL")
    assert needed("sudo", "ip", "ethtool", "sudo", root=True) == []


@pytest.mark.parametrize("role", AT_THE)
def test_who_sits_there_needs_no_login(role: str) -> None:
    (words,) = needed(None, "ip", "ethtool", root=False, or_else=AT_THE[role])
    assert words == f"{AT_THE[role]}: user me is not root"
    assert "login" not in words and "with sudo" in words
