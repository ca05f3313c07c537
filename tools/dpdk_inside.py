"""Suricata by DPDK on devices of its own, from within dpdk-in-emulated-machine.py's machine.

Says what it sees as JSON lines; `NAME listens` asks for frames on that NIC's wire.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nodrop.testbed.hosts import node
from nodrop.testbed.hosts.api import LabPort, Link
from nodrop.testbed.hosts.journal import DiskJournal
from nodrop.testbed.hosts.local import LocalHost
from nodrop.testbed.hosts.rights import SUT_USER
from nodrop.testbed.images.image_tree import Bits
from nodrop.testbed.setups.api import Limits
from nodrop.testbed.setups.bare import Bare
from nodrop.testbed.setups.vm_vfio import PciDevice, handed_over
from nodrop.testbed.suts.suricata import Suricata
from nodrop.testbed.suts.suricata.running import RunningSuricata

PATIENCE_S = 300.0
DEVICES = {"virtio": "0000:00:10.0", "e1000": "0000:00:11.0"}
FRAMES = 200


def say(what: str, **found: Any) -> None:
    print(json.dumps({"what": what, "at_s": round(time.monotonic(), 1), **found}), flush=True)


def main() -> int:
    if sys.argv[1:2] == ["die"]:
        return capture_and_die(PciDevice(sys.argv[2]))
    subprocess.run(["modprobe", "vfio-pci"], check=True, timeout=PATIENCE_S)
    for name, address in DEVICES.items():
        device = PciDevice(address)
        say(f"{name} at first", driver=device.driver(), iommu_group=device.group())
        captured(name, device)
        say(f"{name} at last", driver=device.driver())
        killed_and_undone(name, device)
    return 0


def captured(name: str, device: PciDevice) -> None:
    with launched(device, Path(f"/tmp/{name}")) as running:
        say(f"{name} listens", driver=device.driver(), **facts(running))
        wait_for_frames(running)
        drained = running.drain(expected_packets=FRAMES, timeout_s=PATIENCE_S)
        found = running.finish(timeout_s=PATIENCE_S)
        say(
            f"{name} counted",
            captured=found.captured_packets,
            dropped=found.dropped_ring_full_packets,
            decoded=found.decoded_packets,
            decoded_bytes=found.decoded_bytes,
            sources=dict(found.sources),
            rested=drained.rested_mono_ns > 0,
        )


def wait_for_frames(running: RunningSuricata) -> None:
    """They are sent for ten seconds; a drain begins after the last."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        seen = running.live()
        if seen is not None and (seen.captured_packets or 0) >= FRAMES:
            break
        time.sleep(1)


@contextmanager
def launched(device: PciDevice, work: Path) -> Iterator[RunningSuricata]:
    node.HELLO_TIMEOUT_S = PATIENCE_S
    work.mkdir(parents=True)
    bits = Bits(kind="binary", path=Path("/usr/bin/suricata"), sha256="0" * 64, version="7.0.10")
    sut = Suricata({"capture": "dpdk", "binary": "/usr/bin/suricata"}, base=Path("/"))
    with (
        DiskJournal.create() as journal,
        LocalHost(name="rx", node=Path("/run/nodrop-node"), label=journal.label) as host,
        handed_over(device, journal, user=SUT_USER),
    ):
        port = LabPort(host=host, name=device.address)
        place = Bare().provision(
            Link(tx=port, rx=port), bits=bits, limits=Limits(), work=work, journal=journal
        )
        with place as env:
            running = sut.launch(env)
            try:
                running.wait_ready(timeout_s=PATIENCE_S)
            except BaseException:
                for file in sorted(work.rglob("*")):
                    if file.is_file() and file.stat().st_size:
                        print(file, file.read_text(errors="replace")[-3000:], file=sys.stderr)
                raise
            yield running


def facts(running: RunningSuricata) -> dict[str, Any]:
    said = running.facts()
    return {key: said[key] for key in ("version", "threads", "effective")}


def killed_and_undone(name: str, device: PciDevice) -> None:
    """A controller that dies while Suricata captures; its journal brings the device back."""
    died = subprocess.run([sys.executable, __file__, "die", device.address], check=False,
                          timeout=PATIENCE_S)  # fmt: skip
    say(f"{name} killed", status=died.returncode, driver=device.driver(), suricatas=suricatas())
    journals = sorted(Path(os.environ["XDG_STATE_HOME"]).rglob("*.jsonl"))
    failed = [words for path in journals for words in DiskJournal(path).undo()]
    say(f"{name} undone", driver=device.driver(), suricatas=suricatas(), failed=failed)


def capture_and_die(device: PciDevice) -> int:
    with launched(device, Path(f"/tmp/die-{device.address}")):
        os.kill(os.getpid(), signal.SIGKILL)
    return 1


def suricatas() -> int:
    names = (path / "comm" for path in Path("/proc").iterdir() if path.name.isdecimal())
    return sum(name.exists() and "uricata" in name.read_text() for name in names)


if __name__ == "__main__":
    sys.exit(main())
