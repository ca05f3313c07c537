"""Obstacles of the bare setup are known before anything is touched."""

import os
from pathlib import Path

import pytest

from nodrop.errors import BadInput, LabProblem
from nodrop.testbed.hosts.control_groups import V1, V2
from nodrop.testbed.hosts.rights import USERNS_VARIABLE
from nodrop.testbed.setups import api, bare
from nodrop.testbed.setups.api import Limits, Setup
from nodrop.testbed.setups.bare import Bare
from nodrop.testbed.setups.docker import Docker
from nodrop.testbed.setups.oci import Oci
from nodrop.testbed.setups.vm import Vm

NOTHING = Limits()


def test_nothing_stands_in_the_way() -> None:
    assert Bare().problems(None, NOTHING) == []


def test_a_memory_limit_without_a_controller_is_refused_not_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none() -> None:
        raise LabProblem("no memory controller", hint="drop the limit")

    monkeypatch.setattr(bare, "memory_controller", none)
    (words,) = Bare().problems(None, Limits(memory_bytes=1 << 30))
    assert words == "limits.memory: no memory controller; drop the limit"


def lacks_root(setup: Setup) -> bool:
    return any("root" in words for words in setup.problems(None, NOTHING))


@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize("setup", [Oci(), Docker(), Vm()], ids=["oci", "docker", "vm"])
def test_what_needs_root_says_so_inside_a_user_namespace_and_outside(
    monkeypatch: pytest.MonkeyPatch, setup: Setup
) -> None:
    """`nodrop run` of a normal user begins anew in a namespace, `nodrop plan` does not. Seen: a
    plan that nothing stood in the way of, and a run that was refused."""
    assert not lacks_root(setup)
    with monkeypatch.context() as inside:
        inside.setenv(USERNS_VARIABLE, "ready")
        assert lacks_root(setup)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert lacks_root(setup)


@pytest.mark.parametrize("setup", [Bare(), Oci()], ids=["bare", "oci"])
def test_a_swappiness_that_the_kernel_has_not_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, setup: Setup
) -> None:
    monkeypatch.setattr(api, "memory_controller", lambda: (tmp_path, V2))
    (words,) = [w for w in setup.problems(None, Limits(swappiness=5)) if "swappiness" in w]
    assert words.startswith("limits.swappiness = 5: control groups of version 2")
    monkeypatch.setattr(api, "memory_controller", lambda: (tmp_path, V1))
    (tmp_path / "memory.swappiness").write_text("60")
    assert not [w for w in setup.problems(None, Limits(swappiness=5)) if "swappiness" in w]


def test_a_guest_has_no_swappiness() -> None:
    assert any("limits.swappiness: a guest" in w for w in Vm().problems(None, Limits(swappiness=5)))


def test_cpus_that_are_not_there_are_named() -> None:
    (words,) = Bare().problems(None, Limits(cpus="0,5000-5001"))
    assert words == 'limits.cpus = "0,5000-5001": this host has no CPU 5000-5001'


def test_an_unknown_option_is_an_error() -> None:
    with pytest.raises(BadInput, match=r"setup\.image"):
        Bare({"kind": "bare", "image": "x"}, base=Path())
