"""A machine with an Intel IOMMU and NICs behind it, all emulated: QEMU q35, Debian's cloud kernel
and nodrop on its disk. Not for CI."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

from nodrop.testbed.hosts.api import Child, SpawnRequest
from nodrop.testbed.hosts.journal import DiskJournal
from nodrop.testbed.hosts.local import LocalHost, run_command
from nodrop.testbed.hosts.node import find_node_binary
from nodrop.testbed.images import guest_assets
from nodrop.testbed.images.guest_assets import GuestAssets
from nodrop.testbed.images.image_tree import Bits
from nodrop.testbed.setups import qemu
from nodrop.testbed.setups.qemu import Machine, RunningMachine

CHECKOUT = Path(__file__).resolve().parents[1]
PYTHON_PACKAGES = (
    "pydantic", "pydantic-core", "annotated-types", "typing-extensions", "typing-inspection",
    "pyyaml",
)  # fmt: skip
"""What setups and the undo journal import."""
INSIDE = Path("opt/nodrop")
FRAMES = 200
FRAMES_PER_S = 20.0
BUILD_TIMEOUT_S = 900
DEADLINE_S = 2400.0
MEMORY_BYTES = 2 << 30
VCPUS = 2
Ways = Mapping[str, Callable[[], None]]
"""Word that is said inside → what is done about it."""


@dataclass(frozen=True, slots=True)
class Wire:
    """One UDP datagram on loopback is one frame."""

    here: socket.socket
    nic: tuple[str, int]

    def device(self, number: int, model: str) -> tuple[str, ...]:
        at, there = self.here.getsockname()[1], self.nic[1]
        return (
            "-netdev",
            f"socket,id=wire{number},udp=127.0.0.1:{at},localaddr=127.0.0.1:{there}",
            "-device",
            f"{model},netdev=wire{number},addr={0x10 + number:#x}",
        )

    def send_frames(self) -> None:
        head = b"\x02\0\0\0\0\x01" + b"\x02\0\0\0\0\x02" + b"\x88\xb5"  # IEEE 802 experiment
        for number in range(FRAMES):
            self.here.sendto(head + number.to_bytes(4, "big") + bytes(42), self.nic)
            time.sleep(1 / FRAMES_PER_S)


@contextmanager
def wire() -> Iterator[Wire]:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as here:
        here.bind(("127.0.0.1", 0))
        with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as free:
            free.bind(("127.0.0.1", 0))
            nic = free.getsockname()
        yield Wire(here, nic)


@contextmanager
def booted(
    folder: Path, disk: Path, inner: GuestAssets, nics: Sequence[tuple[str, ...]]
) -> Iterator[RunningMachine]:
    """The IOMMU first: QEMU puts behind it what comes later. The disk comes earlier."""
    iommu = ("-device", "intel-iommu,intremap=on,caching-mode=on")
    with ExitStack() as stack:
        journal = stack.enter_context(DiskJournal.create())
        running = qemu.boot(
            Machine(
                assets=replace(inner, disk=disk),
                accelerator="tcg",
                vcpus=VCPUS,
                memory_bytes=MEMORY_BYTES,
                cpus=None,
                ring_size=256,
                devices=(*iommu, *(word for nic in nics for word in nic)),
            ),
            None,
            on=LocalHost(name="here", node=find_node_binary(), label=journal.label),
            work=folder,
            journal=journal,
            timeout_s=300,
        )
        stack.callback(running.close)
        print(f"the machine booted in {running.boot_s:.1f} s", flush=True)
        yield running


def ran_inside(running: RunningMachine, program: str, folder: Path, ways: Ways) -> tuple[int, Path]:
    """Exit status of a script on its disk, and the file of what it said."""
    heard, complained = folder / "inside.jsonl", folder / "inside.stderr"
    for file in (heard, complained):
        file.unlink(missing_ok=True)
    python = ["python3", f"/{INSIDE}/{program}"]
    sees = [f"PYTHONPATH=/{INSIDE}", "HOME=/root", "XDG_STATE_HOME=/root/state"]
    child = running.host.spawn(
        SpawnRequest(
            argv=["env", *sees, "NODROP_NODE=/run/nodrop-node", *python],
            stdout=heard,
            stderr=complained,
        )
    )
    status = follow(child, heard, ways)
    print(complained.read_text()[-3000:], flush=True)
    return status, heard


def follow(program: Child, heard: Path, ways: Ways) -> int:
    """Shows what is said inside as it is said, and does what a word asks for."""
    deadline = time.monotonic() + DEADLINE_S
    shown = 0
    while time.monotonic() < deadline:
        status = program.poll()
        lines = heard.read_text().splitlines() if heard.exists() else []
        for line in lines[shown:]:
            print(line, flush=True)
            if way := ways.get(json.loads(line)["what"]):
                way()
        shown = len(lines)
        if status is not None:
            return int(status)
        time.sleep(0.5)
    print(f"not done after {DEADLINE_S:g} s", flush=True)
    return 1


def add_nodrop(root: Path, program: str) -> None:
    shutil.copytree(CHECKOUT / "src/nodrop", root / INSIDE / "nodrop")
    shutil.copy(CHECKOUT / "tools" / program, root / INSIDE)
    add_python_packages(root / INSIDE)


def add_modules(folder: Path, root: Path, inner: GuestAssets) -> None:
    """All of the kernel that boots, so that modprobe finds vfio-pci as on any host."""
    deb = next(folder.glob(f"{inner.kernel.package}_*.deb"), None)
    if deb is None:
        subprocess.run(
            ["apt-get", "-q", "download", inner.kernel.package],
            cwd=folder, check=True, timeout=BUILD_TIMEOUT_S,
        )  # fmt: skip
        deb = next(folder.glob(f"{inner.kernel.package}_*.deb"))
    tree = folder / "kernel"
    shutil.rmtree(tree, ignore_errors=True)
    run_command(["dpkg-deb", "-x", str(deb), str(tree)], where="kernel", timeout_s=120)
    (version,) = (tree / "lib/modules").iterdir()
    shutil.copytree(version, root / "lib/modules" / version.name)
    run_command(["chroot", str(root), "depmod", version.name], where="kernel", timeout_s=120)


def add_python_packages(target: Path) -> None:
    for name in PYTHON_PACKAGES:
        for file in metadata.files(name) or ():
            if file.suffix != ".pyc":
                place = target / str(file)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(file.locate()), place)


def disk_of(root: Path) -> Path:
    bits = Bits(kind="image", path=root, sha256="")
    if (disk := guest_assets._disk(bits)) is not None:
        disk.unlink()
    return guest_assets._make_disk(bits)
