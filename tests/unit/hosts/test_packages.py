"""The one line that installs what a host lacks, in the words of its own package manager."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nodrop.cli.measure import _suricata_is_there
from nodrop.testbed.hosts.packages import DEBIAN, ELSEWHERE, installing
from nodrop.testbed.hosts.rights import USERNS_VARIABLE
from nodrop.testbed.images.bootstrap import image_programs
from nodrop.testbed.labs.netns import PROGRAMS

TOOLS = Path(__file__).parents[3] / "tools/system-packages"


def program(folder: Path, name: str) -> None:
    (folder / name).write_text("#!/bin/sh\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder of PATH."""
    monkeypatch.delenv(USERNS_VARIABLE, raising=False)  # tests of a normal user have it
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize(
    ("manager", "user", "line"),
    [
        ("apt-get", 1000, "sudo apt-get install --no-install-recommends iproute2 mmdebstrap"),
        ("apt-get", 0, "apt-get install --no-install-recommends iproute2 mmdebstrap"),
        ("dnf", 0, "dnf install iproute mmdebstrap"),
        ("pacman", 0, "pacman -S iproute2"),
    ],
)
def test_one_line_installs_what_is_missing(
    path: Path, monkeypatch: pytest.MonkeyPatch, manager: str, user: int, line: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    program(path, manager)
    program(path, "sysctl")
    assert installing(["sysctl", "mmdebstrap", "ip"]) == line


def test_root_of_a_user_namespace_of_ours_needs_sudo(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: `nodrop doctor` of a normal user, whose line failed as pasted."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("NODROP_USERNS", "ready")
    program(path, "apt-get")
    line = "sudo apt-get install --no-install-recommends mmdebstrap uidmap"
    assert image_programs() == {"mmdebstrap", "newuidmap"}
    assert installing(image_programs()) == line


def test_nothing_missing_and_no_package_manager_have_no_line(path: Path) -> None:
    assert installing(["ip"]) is None
    program(path, "apt-get")
    program(path, "ip")
    assert installing(["ip"]) is None


def test_make_and_nodrop_name_the_same_packages() -> None:
    script = TOOLS.read_text()
    for name, package in DEBIAN.items():
        if name != "suricata":
            assert f"need {name} {package}\n" in script
    assert all(names.keys() <= DEBIAN.keys() for names in ELSEWHERE.values())


def test_make_demo_installs_what_the_lab_runs() -> None:
    """Seen missing on a bare Debian 13."""
    demo = TOOLS.read_text().partition("demo | test)")[2].partition(";;&")[0]
    assert all(f"need {name} {DEBIAN[name]}\n" in demo for name in (*PROGRAMS, "ethtool"))


def test_a_demo_without_suricata_says_what_would_bring_one(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program(path, "apt-get")
    assert _suricata_is_there() is False
    said = " ".join(capsys.readouterr().out.split())
    assert "so the demo measures nodrop's own sink" in said
    assert "apt-get install --no-install-recommends iproute2 mmdebstrap" in said


def test_a_demo_that_begins_again_in_its_namespace_makes_no_second_image(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program(path, "mmdebstrap")
    monkeypatch.setenv(USERNS_VARIABLE, "1")
    assert _suricata_is_there() is False
    assert capsys.readouterr().out == ""


def test_a_demo_takes_the_suricata_of_the_host(path: Path) -> None:
    (path / "suricata").write_text("#!/bin/sh\necho This is Suricata version 7.0.10 RELEASE\n")
    (path / "suricata").chmod(0o755)
    assert _suricata_is_there() is True
