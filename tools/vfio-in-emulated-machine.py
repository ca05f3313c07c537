"""Setup vm-vfio where no host has an IOMMU: inside a machine whose IOMMU is emulated.

Boots QEMU q35 with an Intel IOMMU and a NIC behind it, all in software; in there, nodrop itself
binds that NIC to vfio-pci, boots a guest of its own with it (emulation within emulation), receives
frames through it and gives it back. Needs root, qemu-system-x86, mmdebstrap, e2fsprogs; slow, so
not for CI. Run it as `python tools/vfio-in-emulated-machine.py [FOLDER]`.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, closing
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

from nodrop.testbed.hosts.journal import DiskJournal
from nodrop.testbed.hosts.local import LocalHost, run_command
from nodrop.testbed.hosts.node import find_node_binary
from nodrop.testbed.images import guest_assets, image
from nodrop.testbed.images.guest_assets import GuestAssets, make_assets
from nodrop.testbed.images.image_tree import Bits
from nodrop.testbed.setups import qemu
from nodrop.testbed.setups.qemu import Machine

CHECKOUT = Path(__file__).resolve().parents[1]
PACKAGES = ("python3", "qemu-system-x86", "e2fsprogs", "kmod", "iproute2")
PYTHON_PACKAGES = (
    "pydantic", "pydantic-core", "annotated-types", "typing-extensions", "typing-inspection",
)  # fmt: skip
"""What the setup and the undo journal import."""
INSIDE = Path("opt/nodrop")
CACHE = Path("root/.cache/nodrop/guests")
FRAMES = 200
FRAMES_PER_S = 20.0
BUILD_TIMEOUT_S = 900
DEADLINE_S = 2400.0
MEMORY_BYTES = 2 << 30
VCPUS = 2


def main() -> int:
    folder = Path(sys.argv[1] if sys.argv[1:] else "vfio-machine").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    inner = make_assets(None)
    disk = make_disk(folder, inner)
    with ExitStack() as stack:
        wire = stack.enter_context(closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)))
        wire.bind(("127.0.0.1", 0))
        with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as free:
            free.bind(("127.0.0.1", 0))
            nic_end = free.getsockname()
        journal = stack.enter_context(DiskJournal.create())
        running = qemu.boot(
            Machine(
                assets=replace(inner, disk=disk),
                accelerator="tcg",
                vcpus=VCPUS,
                memory_bytes=MEMORY_BYTES,
                cpus=None,
                ring_size=256,
                devices=devices(wire.getsockname(), nic_end),
            ),
            None,
            on=LocalHost(name="here", node=find_node_binary(), label=journal.label),
            work=folder,
            journal=journal,
            timeout_s=300,
        )
        stack.callback(running.close)
        print(f"the machine booted in {running.boot_s:.1f} s", flush=True)
        heard, complained = folder / "inside.jsonl", folder / "inside.stderr"
        for file in (heard, complained):
            file.unlink(missing_ok=True)
        program = running.host.spawn(
            ["env", f"PYTHONPATH=/{INSIDE}", "HOME=/root", "XDG_STATE_HOME=/root/state",
             "NODROP_NODE=/run/nodrop-node", "python3", f"/{INSIDE}/vfio_inside.py"],
            stdout=heard,
            stderr=complained,
        )  # fmt: skip
        status = follow(program, heard, lambda: send_frames(wire, nic_end))
        print(complained.read_text()[-3000:], flush=True)
        return 0 if status == 0 and proved(heard) else 1


def devices(wire: tuple[str, int], nic: tuple[str, int]) -> tuple[str, ...]:
    """The IOMMU first: QEMU puts behind it what comes later. The disk comes earlier."""
    here, there = f"{wire[0]}:{wire[1]}", f"{nic[0]}:{nic[1]}"
    return (
        *("-device", "intel-iommu,intremap=on,caching-mode=on"),
        *("-netdev", f"socket,id=wire,udp={here},localaddr={there}"),
        *("-device", "virtio-net-pci,netdev=wire,addr=0x10,disable-legacy=on,iommu_platform=on"),
    )


def make_disk(folder: Path, inner: GuestAssets) -> Path:
    """Debian with QEMU and Python, the modules of the guest's own kernel, and nodrop."""
    tar, root = folder / "rootfs.tar", folder / "rootfs"
    if not tar.exists():
        plan = image.load_recipe("suricata").releases["bookworm"]
        plan = plan.model_copy(update={"packages": PACKAGES})
        lines = image.deb_lines(plan, image.os_release())
        image._bootstrap(plan, "bookworm", lines, "root", tar)
    shutil.rmtree(root, ignore_errors=True)
    image._unpack(tar, root)
    add_modules(folder, root, inner)
    shutil.copytree(CHECKOUT / "src/nodrop", root / INSIDE / "nodrop")
    shutil.copy(CHECKOUT / "tools/vfio_inside.py", root / INSIDE)
    add_python_packages(root / INSIDE)
    for made in (inner.kernel.image.parent, inner.initramfs):
        copy = shutil.copytree if made.is_dir() else shutil.copy
        (root / CACHE).mkdir(parents=True, exist_ok=True)
        copy(made, root / CACHE / made.name)
    disk = guest_assets._disk(Bits(kind="image", path=root, sha256=""))
    disk.unlink(missing_ok=True)
    return guest_assets._make_disk(Bits(kind="image", path=root, sha256=""))


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


def follow(program: Any, heard: Path, listening: Any) -> int:
    """Shows what is said inside as it is said, and answers `listening` with frames."""
    deadline = time.monotonic() + DEADLINE_S
    shown = 0
    while time.monotonic() < deadline:
        status = program.poll()
        lines = heard.read_text().splitlines() if heard.exists() else []
        for line in lines[shown:]:
            print(line, flush=True)
            if json.loads(line)["what"] == "listening":
                listening()
        shown = len(lines)
        if status is not None:
            return int(status)
        time.sleep(0.5)
    print(f"not done after {DEADLINE_S:g} s", flush=True)
    return 1


def send_frames(wire: socket.socket, to: tuple[str, int]) -> None:
    """QEMU's wire is UDP on loopback: one datagram is one frame."""
    head = b"\x02\0\0\0\0\x01" + b"\x02\0\0\0\0\x02" + b"\x88\xb5"  # IEEE 802 local experiment
    for number in range(FRAMES):
        wire.sendto(head + number.to_bytes(4, "big") + bytes(42), to)
        time.sleep(1 / FRAMES_PER_S)


def proved(heard: Path) -> bool:
    said = {row["what"]: row for row in map(json.loads, heard.read_text().splitlines())}
    wanted = {
        "IOMMU groups, no problem left after modprobe": said["after modprobe"]["problems"] == [],
        "killed with the device bound, undone": said["killed"]["driver"] == "vfio-pci"
        and said["killed"]["after_undo"] == said["at first"]["driver"],
        "bound to vfio-pci": said["handed over"]["driver"] == "vfio-pci",
        "the inner guest has the NIC": "eth0"
        in said["the inner guest booted"]["hello"]["interfaces"],
        f"all {FRAMES} frames, books closed": said["frames"]["sink"]["tp_packets"] == FRAMES
        and said["frames"]["hops"]["guest_softnet"] == FRAMES,
        "given back": said["at last"]["driver"] == said["at first"]["driver"],
    }
    for words, true in wanted.items():
        print(f"{'yes' if true else 'NO '} {words}", flush=True)
    return all(wanted.values())


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit("needs root: a disk image whose files have owners")
    sys.exit(main())
