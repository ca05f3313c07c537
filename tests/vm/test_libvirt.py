"""A domain of the user's: it gets a NIC for each trial, and goes on as if nothing had been."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar
from xml.etree import ElementTree

import pytest

from nodrop.errors import BadInput
from nodrop.measure.manager import RunOutcome
from nodrop.testbed.setups.libvirt_domain import Domain
from tests.e2e.conftest import Run, closes, only
from tests.e2e.killing import die_at, leftovers, undo, unnamed, unnamed_of
from tests.vm.libvirt_host import bindings, definition, patiently, private_libvirtd

pytestmark = pytest.mark.timeout(600)

T = TypeVar("T")
NAME = "nodrop-test"
LIBVIRT = """
name = "libvirt"
[setup]
kind = "libvirt"
domain = "{domain}"
uri = "{uri}"
[sut]
kind = "sink"
[load]
kind = "replay"
trace = "make:demo"
cpu = "any" # other tests run beside it
pps = 1000
duration_s = 1
[measure]
repetitions = 1
drain_timeout_s = 60
late_p99_us = 60e6 # of the books alone, on a machine with nothing to spare
steal_max_ratio = 1
late_burst_max_ratio = 1
"""


@dataclass(frozen=True, slots=True)
class Running:
    """A domain that runs."""

    uri: str
    virtual: Any
    folder: Path
    pid: int

    @property
    def text(self) -> str:
        return LIBVIRT.replace("{domain}", NAME).replace("{uri}", self.uri)

    def patiently(self, act: Callable[[], T]) -> T:
        return patiently(self.virtual, act)

    def must_be_as_it_was(self) -> None:
        assert self.nics() == []
        assert Path(f"/proc/{self.pid}").exists(), "it is not ours to end"

    def nics(self) -> list[str]:
        interfaces = ElementTree.fromstring(self.virtual.XMLDesc()).iterfind("devices/interface")
        return [ElementTree.tostring(nic, encoding="unicode") for nic in interfaces]


@pytest.fixture(scope="session")
def real_trace() -> Path:
    """None is read here, so none need be there for `run`."""
    return Path("make:demo")


@pytest.fixture(scope="module")
def domain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    libvirt = bindings(tmp_path_factory.mktemp("bindings"))
    # Its sockets' paths have room for 107 bytes, and pytest's folders may leave them too few.
    with (
        TemporaryDirectory(prefix="libvirtd-", ignore_cleanup_errors=True) as short,
        private_libvirtd(folder := Path(short)) as uri,
    ):
        connection = libvirt.open(uri)
        virtual = connection.createXML(definition(NAME, folder))
        try:
            pid = int((folder / f"run/qemu/{NAME}.pid").read_text())
            yield Running(uri, virtual, folder, pid)
        finally:
            virtual.destroy()
            connection.close()


def test_trial_after_trial_also_after_a_kill_9_it_keeps_nothing(
    run: Run, domain: Running, tmp_path: Path
) -> None:
    before = unnamed()
    (tmp_path / "killed.toml").write_text(domain.text)
    killed = domain.patiently(lambda: die_at("offer", tmp_path / "killed.toml"))
    assert len(domain.nics()) == 1, "killed too early to prove anything"
    left = "\n".join(leftovers(killed, before))
    assert "net/ndlv" in left and "/dev/tap" in left and "netns" in left
    domain.patiently(undo)
    assert leftovers(killed, before) == []
    domain.must_be_as_it_was()

    def once_more() -> RunOutcome:
        outcome = run(text=domain.text)
        assert not any("nothing answers" in (record.error or "") for record in outcome.records)
        return outcome

    outcome = domain.patiently(once_more)
    for record in outcome.records:
        assert record.valid, record.verdict or record.error
        assert record.offered.sent == 1000
        assert closes(record)
        assert record.packets.lost_packets == 0, record.verdict
        assert record.accelerator == "tcg"
    assert unnamed_of(os.getpid(), before) == set()
    domain.must_be_as_it_was()


def test_one_domain_is_one_place(run: Run, domain: Running) -> None:
    with pytest.raises(BadInput, match=r"setup\.instances = 2: .* because one domain is one place"):
        run("setup.instances=2", text=domain.text)
    assert domain.nics() == []


def test_a_domain_in_which_nobody_speaks(
    run: Run, domain: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodrop.testbed.setups.libvirt_guest.HELLO_TIMEOUT_S", 0.01)
    record = only(run(text=domain.text))
    assert not record.valid
    assert f"in domain {NAME} nothing answers on nodrop.ctl" in record.error


def test_a_domain_is_found_by_its_own_libvirtd(domain: Running) -> None:
    found = Domain(domain.uri, NAME)
    assert found.channel == domain.folder / "nodrop.ctl"
    assert (found.accelerator, found.vcpus, found.memory_bytes) == ("tcg", 2, 1 << 30)
    found.close()
