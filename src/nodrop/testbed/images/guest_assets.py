"""Files that a virtual machine boots from: a kernel out of its package, an initramfs and a root
disk.

The disk holds the root filesystem of an image, byte for byte; the kernel is Debian's cloud kernel,
unpacked from the package that this host's apt offers; the initramfs is the node itself with the
kernel's virtio modules. Each is made once and kept by what it is made of.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from nodrop.errors import LabProblem
from nodrop.installation import getting_a_node
from nodrop.testbed.hosts.folders import building, cache_folder, locked
from nodrop.testbed.hosts.local import run_command
from nodrop.testbed.hosts.node import candidates, file_sha256, find_node_binary
from nodrop.testbed.images.image_tree import Bits
from nodrop.untrusted.folder import Folder
from nodrop.untrusted.json_text import NotJson, decode_object, member

DRIVERS = ("virtio_pci", "virtio_console", "virtio_blk", "virtio_net", "af_packet_diag", "sctp")
"""Loaded in this order, each after what it depends on. Everything else is built into the kernel;
af_packet_diag is what `ss -0` asks for the rings of a capture, sctp carries the messages of an
MME."""
PACKAGES = {"x86_64": "linux-image-cloud-amd64", "aarch64": "linux-image-cloud-arm64"}
KERNEL = "vmlinuz"
DISK = "guest-disk-{}.ext4"
"""File name of a disk, with its sha256."""
DISK_SPARE_BYTES = 512 << 20
"""Room for what a trial writes; sparse."""
APT_TIMEOUT_S = 300.0
DISK_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestKernel:
    package: str
    version: str
    image: Path
    modules: Path
    """Folder of .ko files and `order`, their names in the order to load them."""
    sha256: str
    """Hash of the package."""
    image_sha256: str
    files: Mapping[str, str]
    """sha256 of the image and of all in `modules`, by their names in the kernel's folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestAssets:
    kernel: GuestKernel
    initramfs: Path
    disk: Path | None
    """None: the guest stays in its initramfs and runs only the node."""


def guest_folder() -> Path:
    return cache_folder() / "guests"


def problems(bits: Bits | None) -> Sequence[str]:
    """Obstacles to making the assets; touches nothing."""
    found = [
        f"program {program} is missing; install the package {package}"
        for program, package in (("dpkg-deb", "dpkg"), ("mkfs.ext4", "e2fsprogs"))
        if shutil.which(program) is None
    ]
    try:
        static_node()
    except LabProblem as problem:
        found.append(str(problem))
    if not found and cached_kernel() is None:
        try:
            _kernel_package()
        except LabProblem as problem:
            found.append(str(problem))
    if bits is not None and bits.kind == "image" and os.geteuid() != 0 and _disk(bits) is None:
        found.append("only root can give the files of a guest's disk their owners; run as root")
    return found


def make_assets(bits: Bits | None) -> GuestAssets:
    """Assets from the cache; made if it has none."""
    with locked(guest_folder()):
        kernel = cached_kernel() or _unpack_kernel()
        return GuestAssets(
            kernel=kernel,
            initramfs=_initramfs(kernel, static_node()),
            disk=None if bits is None else _make_disk(bits),
        )


def static_node() -> Path:
    """The guest has no C library of ours: the binary must bring everything."""
    chosen = find_node_binary()
    for path in (chosen, *candidates()):
        if path.is_file() and _is_static(path):
            return path
    raise LabProblem(
        f"{chosen} is dynamically linked; a guest needs a static nodrop-node",
        hint=getting_a_node(platform.machine()),
    )


def _is_static(path: Path) -> bool:
    """The path of the dynamic loader stands right behind the program headers."""
    with path.open("rb") as file:
        head = file.read(4096)
    return not re.search(rb"/lib[^\0]*/ld-[^\0]*\.so", head)


# --- kernel -------------------------------------------------------------------------------------


def cached_kernel() -> GuestKernel | None:
    """The newest kernel that is unpacked."""
    found = [kernel for kernel in map(_kernel_in, _kernel_folders()) if kernel is not None]
    return max(found, key=lambda kernel: kernel.image.stat().st_mtime) if found else None


def _kernel_folders() -> list[Folder]:
    top = Folder(guest_folder())
    return [top.folder(name) for name in top.folders() if name.startswith("kernel-")]


def _kernel_in(folder: Folder) -> GuestKernel | None:
    """None if it cannot be used: a new one is unpacked then."""
    try:
        said = decode_object(folder.read("manifest.json"))
        files = member(said, "files", dict)
        if member(said, "drivers", list) != list(DRIVERS):
            return None
        if other := _first_other(folder, files):
            _say(f"{folder.path / other} is not what was unpacked there; the kernel is made anew")
            return None
        return GuestKernel(
            package=member(said, "package", str),
            version=member(said, "version", str),
            sha256=member(said, "sha256", str),
            image=folder.path / KERNEL,
            modules=folder.path / "modules",
            image_sha256=files[KERNEL],
            files=files,
        )
    except (OSError, NotJson):
        return None


def _first_other(folder: Folder, files: Mapping[str, Any]) -> str | None:
    """The first file that is not as the manifest says, is missing, or was added."""
    modules = folder.folder("modules")
    there = {KERNEL, *(f"modules/{name}" for name in modules.names())}
    if odd := min(there ^ set(files), default=None):
        return odd
    for name, sha256 in files.items():
        path = folder.path / name
        where = modules if name != KERNEL else folder
        if not where.is_file(path.name) or _sha256_of(path) != sha256:
            return name
    return None


def _sha256_of(path: Path) -> str:
    """Read once per run, and again if it was touched."""
    said = path.stat()
    return _sha256(path, (said.st_ino, said.st_size, said.st_mtime_ns, said.st_ctime_ns))


@cache
def _sha256(path: Path, _stamp: tuple[int, ...]) -> str:
    return file_sha256(path)


def _say(words: str) -> None:
    sys.stderr.write(f"nodrop: guest: {words}\n")


@cache  # apt takes a second, and a run asks before it begins and when it begins
def _kernel_package() -> str:
    """The package that the distribution's meta package stands for today."""
    meta = PACKAGES.get(platform.machine())
    hint = (
        "a guest boots Debian's cloud kernel: add a Debian mirror to apt, or make the image and "
        "its guest on a Debian host and copy its cache folder"
    )
    if meta is None or shutil.which("apt-cache") is None:
        raise LabProblem("this host's apt offers no kernel for a guest", hint=hint)
    said = run_command(
        ["apt-cache", "depends", "--important", meta], where="apt", timeout_s=30, check=False
    )
    package = re.search(r"Depends: (linux-image-\S+)", said.stdout)
    if package is None:
        raise LabProblem(f"apt knows no package {meta}", hint=f"run `apt-get update`; {hint}")
    return package[1]


def _unpack_kernel() -> GuestKernel:
    package = _kernel_package()
    with building(guest_folder()) as folder:
        run_command(
            ["env", "-C", str(folder), "apt-get", "-q", "download", package],
            shown=["apt-get", "download", package],
            where="guest kernel",
            timeout_s=APT_TIMEOUT_S,
        )
        deb = next(folder.glob("*.deb"))
        fields: dict[str, Any] = {
            "package": package,
            "version": _deb_version(deb),
            "sha256": file_sha256(deb),
            "drivers": DRIVERS,
        }
        tree = folder / "tree"
        run_command(["dpkg-deb", "-x", str(deb), str(tree)], where="guest kernel", timeout_s=120)
        made = folder / "kernel"
        (made / "modules").mkdir(parents=True)
        shutil.copy(next((tree / "boot").glob("vmlinuz-*")), made / KERNEL)
        found = {p.name.partition(".")[0].replace("-", "_"): p for p in tree.rglob("*.ko*")}
        order = _load_order(found)
        for name in order:
            shutil.copy(found[name], made / "modules" / f"{name}.ko")
        (made / "modules/order").write_text("".join(f"{name}.ko\n" for name in order))
        names = [KERNEL, *(f"modules/{path.name}" for path in sorted((made / "modules").iterdir()))]
        fields["files"] = {name: file_sha256(made / name) for name in names}
        (made / "manifest.json").write_text(json.dumps(fields, indent=1) + "\n")
        target = f"kernel-{fields['sha256'][:16]}"
        guests = Folder(guest_folder())
        if guests.is_there(target):
            guests.remove(target)
        made.rename(guests.path / target)
    kernel = cached_kernel()
    assert kernel is not None
    return kernel


def _deb_version(deb: Path) -> str:
    said = run_command(["dpkg-deb", "-f", str(deb), "Version"], where="guest kernel", timeout_s=30)
    return said.stdout.strip()


def _load_order(found: Mapping[str, Path]) -> list[str]:
    order: list[str] = []

    def visit(name: str) -> None:
        if name in order or name not in found:
            return  # a driver that is not there is built in
        for needed in module_depends(found[name].read_bytes()):
            visit(needed)
        order.append(name)

    for name in DRIVERS:
        visit(name)
    return order


def module_depends(content: bytes) -> list[str]:
    """Modules named in .modinfo: strings `key=value` that end in a zero."""
    match = re.search(rb"\0depends=([^\0]*)\0", content)
    names = match[1].decode().split(",") if match else []
    return [name.replace("-", "_") for name in names if name]


# --- initramfs ----------------------------------------------------------------------------------


def _initramfs(kernel: GuestKernel, node: Path) -> Path:
    """Made of the same bytes it has the same bytes; its name holds what it was made of, and its own
    sha256, which is compared."""
    init = node.read_bytes()
    parts = [
        hashlib.sha256(init).hexdigest(),
        *(f"{k} {v}" for k, v in sorted(kernel.files.items())),
    ]
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    guests = Folder(guest_folder())
    for name in guests.names():
        if not name.startswith(f"initramfs-{key}-"):
            continue
        path = guests.path / name
        if guests.is_file(name) and name == _initramfs_name(key, _sha256_of(path)):
            return path
        _say(f"{path} is not what its name says; it is made anew")
        guests.remove(name)
    files = {"init": (0o755, init)}
    for module in sorted(kernel.modules.iterdir()):
        files[f"modules/{module.name}"] = (0o644, module.read_bytes())
    packed = gzip.compress(cpio(files), compresslevel=1, mtime=0)
    name = _initramfs_name(key, hashlib.sha256(packed).hexdigest())
    guests.write(name, packed)
    return guests.path / name


def _initramfs_name(key: str, sha256: str) -> str:
    return f"initramfs-{key}-{sha256}.gz"


def cpio(files: Mapping[str, tuple[int, bytes]]) -> bytes:
    """An archive of format newc (Documentation/driver-api/early-userspace/buffer-format.rst)."""
    folders = {str(parent) for name in files for parent in Path(name).parents if parent.name}
    archive = bytearray()
    for number, folder in enumerate(sorted(folders)):
        archive += _entry(folder, 0o40755, b"", number)
    for number, (name, (mode, content)) in enumerate(files.items(), len(folders)):
        archive += _entry(name, 0o100000 | mode, content, number)
    return bytes(archive + _entry("TRAILER!!!", 0, b"", 0))


def _entry(name: str, mode: int, content: bytes, number: int) -> bytes:
    ino, uid, gid, links, mtime, device = number + 1, 0, 0, 1, 0, (0, 0, 0, 0)
    size, name_size, check = len(content), len(name) + 1, 0
    fields = (ino, mode, uid, gid, links, mtime, size, *device, name_size, check)
    head = b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0"
    return _padded(head) + _padded(content)


def _padded(part: bytes) -> bytes:
    return part + bytes(-len(part) % 4)


# --- disk ---------------------------------------------------------------------------------------


def _disk(bits: Bits) -> Path | None:
    """The one that is what its name says: its sha256."""
    for path in bits.path.parent.glob(DISK.format("*")):
        if path.name == DISK.format(_sha256_of(path)):
            return path
        _say(f"{path} is not what its name says; it is made anew")
    return None


def _make_disk(bits: Bits) -> Path:
    """Straight from the image's root folder: nothing is mounted, nothing added."""
    if path := _disk(bits):
        return path
    folder = bits.path.parent
    used = run_command(["du", "-s", "-B1", str(bits.path)], where="guest disk", timeout_s=60)
    size = int(used.stdout.split()[0]) + DISK_SPARE_BYTES
    partial = folder / f".guest-disk.{os.getpid()}"
    try:
        run_command(
            ["mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-m", "0", "-d", str(bits.path),
             str(partial), f"{size >> 10}k"],
            shown=["mkfs.ext4", "-d", str(bits.path)],
            where="guest disk",
            timeout_s=DISK_TIMEOUT_S,
        )  # fmt: skip
        path = folder / DISK.format(file_sha256(partial))
        for old in folder.glob("guest-disk*.ext4"):
            old.unlink()
        partial.rename(path)
    finally:
        partial.unlink(missing_ok=True)
    return path
