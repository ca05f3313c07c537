"""Needs of a user's domain, and the words if it lacks them. libvirt is a stand-in."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest

from nodrop.errors import BadInput, LabProblem
from nodrop.testbed.setups import libvirt_domain
from nodrop.testbed.setups.api import Limits
from nodrop.testbed.setups.libvirt_domain import Domain, domain_problems, main, nic_xml
from nodrop.testbed.setups.libvirt_guest import Libvirt

CHANNEL = """<channel type='unix'>
  <source mode='bind' path='/run/x/nodrop.ctl'/><target type='virtio' name='nodrop.ctl'/>
</channel>"""
AGENT = CHANNEL.replace("nodrop.ctl", "org.qemu.guest_agent.0")
MAC = "02:00:00:00:00:07"
PORT = "ndlv1"
NO_DOMAIN = 42


class Refused(Exception):
    """libvirtError."""

    def __init__(self, words: str, code: int = 1) -> None:
        super().__init__(words)
        self._code = code

    def get_error_code(self) -> int:
        return self._code


class FakeDomain:
    """A virDomain whose guest lets go of a NIC at the second request."""

    def __init__(self, devices: str, *, active: bool, kind: str = "qemu") -> None:
        self.devices, self.active, self.kind = devices, active, kind
        self.nics: list[str] = []
        self.asked = 0
        self.lets_go = True

    def isActive(self) -> int:  # noqa: N802  libvirt's name
        return int(self.active)

    def XMLDesc(self) -> str:  # noqa: N802  libvirt's name
        if not self.active:
            raise Refused("Domain not found", NO_DOMAIN)
        devices = self.devices + "".join(self.nics)
        vcpu = "<vcpu current='3'>4</vcpu>"
        return f"<domain type='{self.kind}'>{vcpu}<devices>{devices}</devices></domain>"

    def attachDeviceFlags(self, description: str, flags: int) -> None:  # noqa: N802
        assert flags == 1, "live, not in its definition"
        self.nics.append(description)

    def detachDeviceFlags(self, description: str, flags: int) -> None:  # noqa: N802
        assert PORT in description and flags == 1
        self.asked += 1
        if self.asked == 1:
            raise Refused("unplug is in progress")
        if self.lets_go:
            self.nics.clear()


@pytest.fixture
def domain(monkeypatch: pytest.MonkeyPatch) -> FakeDomain:
    found = FakeDomain(AGENT + CHANNEL, active=True)

    class Connection:
        def lookupByName(self, name: str) -> FakeDomain:  # noqa: N802  libvirt's name
            if name != "ids":
                raise Refused(f"no domain with matching name '{name}'", NO_DOMAIN)
            return found

        def close(self) -> None: ...

    def connect(uri: str) -> Connection:
        if uri != "qemu:///system":
            raise Refused("Failed to connect socket")
        return Connection()

    module: Any = ModuleType("libvirt")
    module.__spec__ = ModuleSpec("libvirt", None)
    module.libvirtError, module.VIR_ERR_NO_DOMAIN = Refused, NO_DOMAIN
    module.VIR_DOMAIN_AFFECT_LIVE = 1
    module.registerErrorHandler = lambda *_: None
    module.open = connect
    monkeypatch.setitem(sys.modules, "libvirt", module)
    return found


def test_a_domain_that_can_be_used(domain: FakeDomain) -> None:
    assert domain_problems("qemu:///system", "ids") == []
    found = Domain("qemu:///system", "ids")
    assert found.channel == Path("/run/x/nodrop.ctl"), "the agent's channel is not ours"
    assert (found.accelerator, found.vcpus) == ("tcg", 3)
    domain.kind = "kvm"
    assert found.accelerator == "kvm"


@pytest.mark.parametrize(
    ("uri", "name", "active", "devices", "words"),
    [
        ("qemu:///other", "ids", True, CHANNEL, "libvirt cannot connect to qemu:///other"),
        ("qemu:///system", "nobody", True, CHANNEL, "find domain nobody at qemu:///system"),
        ("qemu:///system", "ids", False, CHANNEL, "virsh -c qemu:///system start ids"),
        ("qemu:///system", "ids", True, AGENT, "has no channel nodrop.ctl"),
    ],
)
def test_what_is_missing_is_said(
    domain: FakeDomain, uri: str, name: str, active: bool, devices: str, words: str
) -> None:
    domain.active, domain.devices = active, devices
    (problem,) = domain_problems(uri, name)
    assert words in problem


def test_the_extra_is_named_where_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    (problem,) = domain_problems("qemu:///system", "ids")
    assert "pip install --python" in problem
    assert any(problem in said for said in Libvirt({"domain": "ids"}).problems(None, Limits()))


def test_a_nic_comes_and_goes(domain: FakeDomain) -> None:
    found = Domain("qemu:///system", "ids")
    found.attach(PORT, MAC, 512)
    found.detach(PORT)
    assert (domain.nics, domain.asked) == ([], 2)
    found.detach(PORT)
    assert domain.asked == 2, "nothing there to ask for"


def test_a_guest_that_does_not_let_go_is_told(
    domain: FakeDomain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libvirt_domain, "DETACH_TIMEOUT_S", 0.2)
    domain.lets_go = False
    found = Domain("qemu:///system", "ids")
    found.attach(PORT, MAC, 512)
    with pytest.raises(
        LabProblem, match=f"domain ids keeps the NIC on {PORT}: unplug is in progress"
    ):
        found.detach(PORT)


def test_undo_reverses_it_and_bears_a_domain_that_is_gone(domain: FakeDomain) -> None:
    Domain("qemu:///system", "ids").attach(PORT, MAC, 512)
    command = ["qemu:///system", "ids", PORT]
    assert main(command) == 0
    assert domain.nics == []
    domain.active = False
    assert main(command) == 0
    assert main(["qemu:///system", "nobody", PORT]) == 0


def test_undo_says_that_no_libvirtd_answers(
    domain: FakeDomain, capsys: pytest.CaptureFixture[str]
) -> None:
    Domain("qemu:///system", "ids").attach(PORT, MAC, 512)
    assert main(["qemu:///other", "ids", PORT]) == 1
    assert len(domain.nics) == 1
    assert "no libvirtd answers at qemu:///other" in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["No module named 'libvirt'", "libvirt.so.0: not found"])
def test_undo_without_the_package_is_one_line(
    missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def gone(_: str) -> None:
        raise ImportError(missing)

    monkeypatch.setattr(importlib, "import_module", gone)
    assert main(["qemu:///system", "ids", PORT]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert missing in err and "libvirt-python" in err


def test_the_nic_is_a_macvtap_that_stays_ours() -> None:
    nic = ElementTree.fromstring(nic_xml("ndlv1", MAC, 512))
    target, driver = nic.find("target"), nic.find("driver")
    assert nic.get("type") == "ethernet"
    assert target is not None and target.attrib == {"dev": "ndlv1", "managed": "no"}
    assert driver is not None and driver.get("rx_queue_size") == "512"


def test_limits_are_the_domains_own(domain: FakeDomain) -> None:
    limits = Limits(cpus="0", memory_bytes=1 << 30, swappiness=5)
    said = Libvirt({"domain": "ids"}).problems(None, limits)
    assert [words.split(":")[0] for words in said[:3]] == [
        "limits.cpus",
        "limits.memory",
        "limits.swappiness",
    ]
    assert Libvirt({"domain": "ids"}).cpus(Limits()) == {0, 1, 2}


def test_a_domain_must_be_named() -> None:
    with pytest.raises(BadInput, match=r"setup\.domain: missing"):
        Libvirt({"kind": "libvirt"}, base=Path())
