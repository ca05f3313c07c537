"""Setup vm-vfio from within: runs in the machine of vfio-in-emulated-machine.py, with its Python.

Nothing of nodrop is replaced but its deadlines: what is emulated twice is hundreds of times slower.
Says what it sees as JSON lines; `listening` asks for frames on the wire.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from nodrop.testbed.hosts import guest, node
from nodrop.testbed.hosts.api import LabPort, Link
from nodrop.testbed.hosts.journal import DiskJournal
from nodrop.testbed.hosts.local import LocalHost
from nodrop.testbed.setups import vm
from nodrop.testbed.setups.api import Limits
from nodrop.testbed.setups.vm_vfio import PciDevice, VmVfio, device_of_port

PATIENCE_S = 900.0
LIMITS = Limits(memory_bytes=192 << 20, cpus="0")
NODE = Path("/run/nodrop-node")
PORT = "eth0"


def say(what: str, **found: Any) -> None:
    print(json.dumps({"what": what, "at_s": round(time.monotonic(), 1), **found}), flush=True)


def main() -> int:
    if sys.argv[1:] == ["die"]:
        return hand_over_and_die()
    vm.BOOT_TIMEOUT_S = guest.ANSWER_TIMEOUT_S = node.HELLO_TIMEOUT_S = PATIENCE_S
    for question in (guest.GuestHost.job, guest.GuestHost.probe):
        assert question.__kwdefaults__ is not None
        question.__kwdefaults__["timeout_s"] = PATIENCE_S
    address = device_of_port(PORT)
    assert address is not None, f"{PORT} is no PCI device"
    setup, device = VmVfio({"device": address}), PciDevice(address)
    found = {"address": address, "driver": device.driver(), "iommu_group": device.group()}
    say("at first", **found, problems=setup.problems(None, LIMITS))
    subprocess.run(["modprobe", "vfio-pci"], check=True, timeout=PATIENCE_S)
    say("after modprobe", problems=setup.problems(None, LIMITS))
    killed_and_undone(device)
    try:
        hand_over(setup, device)
    finally:
        say("at last", driver=device.driver(), interfaces=interfaces())
    return 0


def hand_over(setup: VmVfio, device: PciDevice) -> None:
    with DiskJournal.create() as journal:
        host = LocalHost(name="rx", node=NODE, label=journal.label)
        port = LabPort(host=host, name=PORT)
        place = setup.provision(
            Link(tx=port, rx=port), bits=None, limits=LIMITS, work=Path("/tmp"), journal=journal
        )
        with place as env:
            say("handed over", driver=device.driver(), interfaces=interfaces())
            assert isinstance(env.host, guest.GuestHost)
            say("the inner guest booted", hello=env.host.hello, facts=env.facts())
            before = env.read()
            job = env.job({"job": "sink", "interface": PORT, "ring_bytes": 1 << 20})
            job.start()
            say("listening")
            packets = wait_for_frames(job)
            job.stop()
            counted = job.result(timeout_s=PATIENCE_S)
            hops, accounts = env.hops(before, env.read())
            nic = env.nic.host.probe("counters", ports=[PORT], timeout_s=PATIENCE_S)
            say(
                "frames",
                sink={"while_running": packets, "tp_packets": counted["tp_packets"]},
                nic_rx_packets=nic["counters"]["links"][PORT]["stats"]["rx_packets"],
                hops={hop.name: hop.packets for hop in hops},
                accounts=len(accounts),
            )
            job.close()


def wait_for_frames(job: Any) -> int:
    """Until they have come and nothing moves any more."""
    deadline = time.monotonic() + PATIENCE_S
    seen = 0
    while time.monotonic() < deadline:
        time.sleep(2)
        last = job.samples()[-1]["tp_packets"] if job.samples() else 0
        if last and last == seen:
            break
        seen = last
    return seen


def killed_and_undone(device: PciDevice) -> None:
    """A controller that dies with the device in its hands; the journal brings it back."""
    died = subprocess.run([sys.executable, __file__, "die"], check=False, timeout=PATIENCE_S)
    held = device.driver()
    journals = sorted(Path(os.environ["XDG_STATE_HOME"]).rglob("*.jsonl"))
    failed = [words for path in journals for words in DiskJournal(path).undo()]
    say("killed", status=died.returncode, driver=held, after_undo=device.driver(), failed=failed)


def hand_over_and_die() -> int:
    address = device_of_port(PORT)
    journal = DiskJournal.create()
    host = LocalHost(name="rx", node=NODE, label=journal.label)
    port = LabPort(host=host, name=PORT)
    setup = VmVfio({"device": address})
    with setup.provision(
        Link(tx=port, rx=port), bits=None, limits=LIMITS, work=Path("/tmp"), journal=journal
    ):
        os.kill(os.getpid(), signal.SIGKILL)
    return 1


def interfaces() -> list[str]:
    return sorted(path.name for path in Path("/sys/class/net").iterdir())


if __name__ == "__main__":
    sys.exit(main())
