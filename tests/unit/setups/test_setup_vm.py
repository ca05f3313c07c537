"""Setup vm without a machine: its books, its command line, its accelerator."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nodrop.errors import BadInput, LabProblem
from nodrop.ledger.hops import Class
from nodrop.testbed.images.guest_assets import GuestAssets, GuestKernel
from nodrop.testbed.setups.guest_process import queued_packets, vm_books
from nodrop.testbed.setups.qemu import Machine, command
from nodrop.testbed.setups.vm import Vm, choose_accelerator
from nodrop.testbed.setups.vm_vfio import VmVfio


def counters(**links: dict[str, int]) -> Any:
    stats = {
        name: {"tx_queue_length": 500, "stats": {"rx_packets": 0, "rx_dropped": 0} | values}
        for name, values in links.items()
    }
    return {"links": stats, "snmp": {"Ip.ReasmReqds": 0, "Ip.ReasmOKs": 0}}


def reading(nic: int, macvtap: int, dropped: int, guest: int, *, backlog: int = 0) -> Any:
    """The guest's programs talk to each other over its loopback, 7 frames per reading."""
    here = counters(ndrx0={"rx_packets": nic}, ndmv0={"rx_packets": macvtap, "rx_dropped": dropped})
    inside = counters(eth0={"rx_packets": guest}, lo={"rx_packets": nic + 7})
    by_cpu = (guest // 2, guest - guest // 2 + nic + 7 - backlog)
    inside["softnet"] = [{"processed": by_cpu[0], "dropped": backlog},
                         {"processed": by_cpu[1], "dropped": 0}]  # fmt: skip
    return {"nic": here, "macvtap": here, "guest": inside}


def test_what_the_queue_dropped_is_lost_there() -> None:
    before, after = reading(10, 10, 1, 9), reading(110, 110, 31, 79)
    hops, accounts = vm_books("ndrx0", "ndmv0", "eth0", before, after)
    assert [(hop.name, hop.packets) for hop in hops] == [
        ("macvtap", 100),
        ("virtio_ring", None),
        ("guest_nic", 70),
        ("guest_softnet", 70),
    ]
    (lost,) = accounts
    assert (lost.into, lost.kind, lost.packets) == ("guest_nic", Class.LOST, 30)
    assert str(lost.place) == "macvtap queue"
    assert "txqueuelen" in lost.knob


def test_no_loss_is_no_account() -> None:
    _, accounts = vm_books("ndrx0", "ndmv0", "eth0", reading(0, 0, 0, 0), reading(9, 9, 0, 9))
    assert accounts == ()


def test_a_full_backlog_of_the_guest_is_lost_there() -> None:
    before, after = reading(0, 0, 0, 0), reading(50, 50, 0, 50, backlog=20)
    hops, (lost,) = vm_books("ndrx0", "ndmv0", "eth0", before, after)
    assert (hops[-1].name, hops[-1].packets) == ("guest_softnet", 30)
    assert (lost.into, lost.kind, lost.packets) == ("guest_softnet", Class.LOST, 20)
    assert str(lost.place) == "guest softnet backlog"
    assert "net.core.netdev_max_backlog" in lost.knob


def test_frames_that_a_program_takes_in_the_driver_never_get_to_softnet() -> None:
    before, after = reading(0, 0, 0, 0), reading(50, 50, 0, 50)
    after["guest"]["links"]["eth0"]["xdp"] = {"mode": "native", "program_id": 3}
    hops, _ = vm_books("ndrx0", "ndmv0", "eth0", before, after)
    assert hops[-1].packets is None


def test_what_the_guest_has_not_fetched_yet_is_in_the_queue() -> None:
    assert queued_packets("ndmv0", "eth0", reading(100, 100, 20, 70)) == 10
    assert queued_packets("ndmv0", "eth0", reading(100, 100, 20, 80)) == 0


def machine(accelerator: str = "tcg", **changed: Any) -> Machine:
    kernel = GuestKernel(
        package="linux",
        version="6.1",
        image=Path("/k"),
        modules=Path("/m"),
        sha256="0",
        image_sha256="1",
        files={},
    )
    assets = GuestAssets(kernel=kernel, initramfs=Path("/i"), disk=Path("/a,b.ext4"))
    return Machine(
        assets=assets, accelerator=accelerator, vcpus=3, memory_bytes=768 << 20, cpus=None,
        ring_size=1024, **changed,
    )  # fmt: skip


def test_the_command_line_says_everything_itself() -> None:
    argv = command(machine(), line_fd=7, nic=["-netdev", "tap,fd=8"], console=Path("/c"), mtu=9000)
    words = " ".join(argv)
    assert "-nodefaults -no-user-config" in words
    assert "-smp 3 -m 768M" in words
    assert "-accel tcg,thread=multi,tb-size=256 -cpu max" in words
    assert "file=/a,,b.ext4,format=raw,if=none,id=disk0,snapshot=on" in words
    assert "socket,id=line,fd=7" in words
    assert "-sandbox on," in words and "-runas nobody" in words
    assert "rdinit=/init -- guest --mtu 9000 --root /dev/vda" in words


def test_kvm_uses_the_hosts_cpu_and_more_devices_come_along() -> None:
    given = machine("kvm", devices=("-device", "vfio-pci,host=0000:01:00.0"))
    words = " ".join(command(given, line_fd=7, nic=[], console=Path("/c"), mtu=1500))
    assert "-accel kvm -cpu host" in words
    assert "vfio-pci,host=0000:01:00.0" in words
    assert "-sandbox on," in words and "-runas" not in words


def host(usable: bool, each: float) -> Any:
    said = {"usable": usable, "reason": None if usable else "it emulates", "ns_per_iteration": each}
    return SimpleNamespace(probe=lambda word: {"kvm": said})


def test_kvm_is_taken_for_its_speed() -> None:
    assert choose_accelerator(host(True, 0.7), "auto").name == "kvm"
    slow = choose_accelerator(host(False, 1200.0), "auto")
    assert (slow.name, slow.reason, slow.ns_per_iteration) == ("tcg", "it emulates", 1200.0)
    with pytest.raises(LabProblem, match="it emulates"):
        choose_accelerator(host(False, 1200.0), "kvm")


@pytest.mark.parametrize(
    ("setup", "options", "words"),
    [
        (Vm, {"accelerator": "xen"}, "setup.accelerator"),
        (Vm, {"txqueuelen": 0}, "setup.txqueuelen"),
        (Vm, {"memory": "1GiB"}, "setup.memory: no such key"),
        (VmVfio, {"device": "eth0"}, "setup.device"),
    ],
)
def test_bad_options_are_one_clear_line(setup: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        setup(options, base=Path())
