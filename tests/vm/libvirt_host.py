"""A libvirtd of the tests' own: its folders lie over the host's in a mount namespace of its own."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from nodrop.testbed.images.guest_assets import make_assets
from nodrop.testbed.images.image_cache import find_image

T = TypeVar("T")
PACKAGES = "apt-get install libvirt-daemon libvirt-daemon-driver-qemu python3-libvirt"
DEBIANS = Path("/usr/lib/python3/dist-packages")
UP_TIMEOUT_S = 30.0
FREE_SLOTS = 6
KERNEL_OPTIONS = "console=ttyS0 quiet panic=-1 net.ifnames=0 rdinit=/init"
PLACES = {
    "etc": "/etc/libvirt",
    "lib": "/var/lib/libvirt",
    "cache": "/var/cache/libvirt",
    "run": "/run/libvirt",
    "log": "/var/log/libvirt",
    "passwd": "/etc/passwd",
    "group": "/etc/group",
}
LOG = "libvirtd.log"
ENTER = "".join(
    ("" if ours in ("passwd", "group") else f"mkdir -p {theirs}\n")
    + f'mount --bind "$0/{ours}" {theirs}\n'
    for ours, theirs in PLACES.items()
)
# No shell is left between us and the daemon, and nothing that it mounts gets out.
START = f'set -e\n{ENTER}exec libvirtd --config "$0/etc/libvirtd.conf" --pid-file "$0/pid"'


@contextmanager
def private_libvirtd(folder: Path) -> Iterator[str]:
    """URI of a libvirtd of its own."""
    settle(folder)
    with (folder / LOG).open("wb") as log:
        daemon = subprocess.Popen(start(folder), stdout=log, stderr=log)
    try:
        yield answering(folder, lambda: daemon.poll() is None)
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(UP_TIMEOUT_S)


def settle(folder: Path) -> None:
    """Makes its files in a folder with a short name."""
    if shutil.which("libvirtd") is None:
        pytest.skip(f"needs libvirtd ({PACKAGES})")
    for ours, theirs in PLACES.items():
        if not theirs.startswith("/etc/") or ours == "etc":
            (folder / ours).mkdir()
    # Its compiled-in default user is made by a package that would also start a daemon.
    for name, ids in (("passwd", "64055:64055::/:/bin/false"), ("group", "64055:")):
        (folder / name).write_text(Path(f"/etc/{name}").read_text() + f"libvirt-qemu:x:{ids}\n")
    (folder / "etc/qemu.conf").write_text(
        'namespaces = []\ncgroup_controllers = []\nsecurity_driver = "none"\n'
        'user = "root"\ngroup = "root"\nstdio_handler = "file"\n'
    )
    (folder / "etc/libvirtd.conf").write_text(
        f'unix_sock_group = "root"\nunix_sock_dir = "{folder}"\n'
        'auth_unix_ro = "none"\nauth_unix_rw = "none"\n'
    )


def start(folder: Path) -> Sequence[str]:
    """The command that becomes the daemon."""
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", START, str(folder)]


def answering(folder: Path, lives: Callable[[], bool]) -> str:
    """The URI, once it answers."""
    deadline = time.monotonic() + UP_TIMEOUT_S
    while not (folder / "libvirt-sock").exists():
        said = (folder / LOG).read_text(errors="replace")[-800:]
        assert lives() and time.monotonic() < deadline, said
        time.sleep(0.05)
    return f"qemu:///system?socket={folder / 'libvirt-sock'}"


def bindings(folder: Path) -> Any:
    """Debian's libvirt-python, without the rest of its folder: for us and for what we start."""
    with suppress(ImportError):
        return importlib.import_module("libvirt")
    version = f"{sys.version_info.major}{sys.version_info.minor}"
    for file in (*DEBIANS.glob("libvirt.py"), *DEBIANS.glob(f"libvirtmod.cpython-{version}-*")):
        (folder / file.name).symlink_to(file)
    sys.path.append(str(folder))
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, (os.environ.get("PYTHONPATH"), str(folder)))
    )
    try:
        return importlib.import_module("libvirt")
    except ImportError as error:
        pytest.skip(f"Debian's python3-libvirt is not for this Python, or is missing: {error}")


def patiently(virtual: Any, act: Callable[[], T]) -> T:
    """One boot of an emulated guest in forty hangs (setups/vm.py), and only we boot this one
    again."""
    try:
        return act()
    except AssertionError:
        virtual.reset()
        return act()


def definition(name: str, folder: Path) -> str:
    """A machine as setup vm boots it, which goes on: when nodrop hangs up it boots again."""
    assets = make_assets(find_image("suricata").bits())
    disk, channel = folder / "disk.ext4", folder / "nodrop.ctl"
    subprocess.run(["cp", "--sparse=always", str(assets.disk), str(disk)], check=True, timeout=60)
    slots = "<controller type='pci' model='pcie-root-port'/>" * FREE_SLOTS
    return f"""<domain type='qemu'>
<name>{name}</name><memory unit='MiB'>1024</memory><vcpu>2</vcpu>
<os>
  <type machine='q35'>hvm</type><kernel>{assets.kernel.image}</kernel>
  <initrd>{assets.initramfs}</initrd>
  <cmdline>{KERNEL_OPTIONS} -- guest --root /dev/vda</cmdline>
</os>
<features><acpi/></features><cpu mode='maximum'/>
<on_poweroff>restart</on_poweroff>
<devices>
  <emulator>{shutil.which("qemu-system-x86_64")}</emulator>
  <disk type='file'>
    <driver name='qemu' type='raw' cache='unsafe'/><source file='{disk}'/>
    <target dev='vda' bus='virtio'/>
  </disk>
  <controller type='pci' model='pcie-root'/>{slots}<controller type='usb' model='none'/>
  <serial type='file'><source path='{folder / "console.log"}'/></serial>
  <channel type='unix'>
    <source mode='bind' path='{channel}'/><target type='virtio' name='nodrop.ctl'/>
  </channel>
  <memballoon model='none'/>
</devices>
</domain>"""
