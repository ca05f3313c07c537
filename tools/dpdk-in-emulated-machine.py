"""Suricata by DPDK on devices of its own, where no host has such a NIC: in an emulated machine.

Boots QEMU q35 with an Intel IOMMU and two NICs behind it (virtio, e1000), all in software. In there
nodrop binds each to vfio-pci, with the way back in its journal, launches Suricata of the image
`suricata-dpdk` on it, reads its counters and gives the device back: also after a kill -9, by the
undo journal. Needs root, qemu-system-x86, mmdebstrap, e2fsprogs; minutes, so not for CI. Run it as
`python tools/dpdk-in-emulated-machine.py [FOLDER]`.
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
from nodrop.testbed.images.image_cache import find_image, unpack
from nodrop.testbed.images.recipe import deb_lines, load_recipe

PACKAGES = ("kmod", "librte-net-e1000-23", "librte-net-virtio23")
NICS = {"virtio": "virtio-net-pci,disable-legacy=on,iommu_platform=on", "e1000": "e1000"}


def main() -> int:
    folder = Path(sys.argv[1] if sys.argv[1:] else "dpdk-machine").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    inner = make_assets(None)
    disk = make_disk(folder, inner)
    with wire() as first, wire() as second:
        cables = dict(zip(NICS, (first, second), strict=True))
        nics = [cable.device(i, NICS[name]) for i, (name, cable) in enumerate(cables.items())]
        ways = {f"{name} listens": cable.send_frames for name, cable in cables.items()}
        with booted(folder, disk, inner, nics) as running:
            status, heard = ran_inside(running, "dpdk_inside.py", folder, ways)
    return 0 if status == 0 and proved(heard) else 1


def make_disk(folder: Path, inner: GuestAssets) -> Path:
    """The image suricata-dpdk with the drivers of the two NICs, all modules of its kernel, and
    nodrop."""
    tar, root = folder / "rootfs.tar", folder / "rootfs"
    if not tar.exists():
        plan = load_recipe("suricata").releases["bookworm"]
        lines = deb_lines(plan, os_release())
        plan = plan.model_copy(update={"packages": PACKAGES})
        base = find_image("suricata-dpdk")
        run_mmdebstrap(plan, "bookworm", lines, "root", tar, base)
    shutil.rmtree(root, ignore_errors=True)
    unpack(tar, root)
    add_modules(folder, root, inner)
    add_nodrop(root, "dpdk_inside.py")
    return disk_of(root)


def proved(heard: Path) -> bool:
    said = {row["what"]: row for row in map(json.loads, heard.read_text().splitlines())}
    wanted: dict[str, bool] = {}
    for name in NICS:
        books, first, killed = (
            said[f"{name} {when}"] for when in ("counted", "at first", "killed")
        )
        wanted |= {
            f"{name}: bound to vfio-pci": said[f"{name} listens"]["driver"] == "vfio-pci",
            f"{name}: all {FRAMES} frames captured and decoded, none dropped": (
                books["captured"], books["dropped"], books["decoded"]) == (FRAMES, 0, FRAMES),
            f"{name}: given back": said[f"{name} at last"]["driver"] == first["driver"],
            f"{name}: killed while Suricata ran on it": killed["driver"] == "vfio-pci",
            f"{name}: given back by the undo journal": said[f"{name} undone"]["driver"]
            == first["driver"] and said[f"{name} undone"]["suricatas"] == 0,
        }  # fmt: skip
    for words, true in wanted.items():
        print(f"{'yes' if true else 'NO '} {words}", flush=True)
    return all(wanted.values())


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit("needs root: a disk image whose files have owners")
    sys.exit(main())
