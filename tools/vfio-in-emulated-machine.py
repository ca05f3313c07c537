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
import sys
from pathlib import Path

from emulated_machine import FRAMES, add_modules, add_nodrop, booted, disk_of, ran_inside, wire

from nodrop.testbed.images.apt_sources import os_release
from nodrop.testbed.images.bootstrap import run_mmdebstrap
from nodrop.testbed.images.guest_assets import GuestAssets, make_assets
from nodrop.testbed.images.image_cache import unpack
from nodrop.testbed.images.recipe import deb_lines, load_recipe

PACKAGES = ("python3", "qemu-system-x86", "e2fsprogs", "kmod", "iproute2")
CACHE = Path("root/.cache/nodrop/guests")
NIC = "virtio-net-pci,disable-legacy=on,iommu_platform=on"


def main() -> int:
    folder = Path(sys.argv[1] if sys.argv[1:] else "vfio-machine").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    inner = make_assets(None)
    disk = make_disk(folder, inner)
    with wire() as cable, booted(folder, disk, inner, [cable.device(0, NIC)]) as running:
        ways = {"listening": cable.send_frames}
        status, heard = ran_inside(running, "vfio_inside.py", folder, ways)
    return 0 if status == 0 and proved(heard) else 1


def make_disk(folder: Path, inner: GuestAssets) -> Path:
    """Debian with QEMU and Python, the modules of the guest's own kernel, and nodrop."""
    tar, root = folder / "rootfs.tar", folder / "rootfs"
    if not tar.exists():
        plan = load_recipe("suricata").releases["bookworm"]
        plan = plan.model_copy(update={"packages": PACKAGES})
        lines = deb_lines(plan, os_release())
        run_mmdebstrap(plan, "bookworm", lines, "root", tar, None)
    shutil.rmtree(root, ignore_errors=True)
    unpack(tar, root)
    add_modules(folder, root, inner)
    add_nodrop(root, "vfio_inside.py")
    for made in (inner.kernel.image.parent, inner.initramfs):
        copy = shutil.copytree if made.is_dir() else shutil.copy
        (root / CACHE).mkdir(parents=True, exist_ok=True)
        copy(made, root / CACHE / made.name)
    return disk_of(root)


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
