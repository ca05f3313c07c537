"""A machine with sshd under QEMU's own emulation: its own kernel, a NIC with a real driver.

Its disk is made of programs of this host; kernel and modules are those of nodrop's guests, or of
Debian's whole kernel for drivers that the cloud kernel has not. Port `eth1` is at the cable.
"""

from __future__ import annotations

import fcntl
import gzip
import os
import re
import shlex
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pydantic_core._pydantic_core
import pytest

from nodrop.testbed.hosts.folders import cache_folder
from nodrop.testbed.hosts.local import run_command
from nodrop.testbed.images.guest_assets import DRIVERS, cpio, make_assets, module_depends
from nodrop.testbed.setups.qemu import PROGRAM, last_words
from tests.ssh.machines import ETC, TIMEOUT_S, Machine, machine_and_control

LAB = """\
name = "pair"
kind = "ssh"
ssh_config = "{config}"
[sender]
host = "gen1"
port = "cab0"
[receiver]
host = "root@sensor1"
port = "eth1"
"""
BOOT_TIMEOUT_S = 180.0
QUEUES = 2
NICS = {
    "virtio_net": f"virtio-net-pci,mq=on,rss=on,vectors={2 * QUEUES + 2}",
    "e1000e": "e1000e",
    "vmxnet3": "vmxnet3",
}
"""Driver → the device of QEMU's that it drives."""
PROGRAMS = (
    "sshd", "sh", "cat", "chmod", "cut", "env", "ethtool", "find", "flock", "gzip", "head",
    "hostname", "id", "ip", "kill", "ls", "mkdir", "mktemp", "mount", "mv",
    "perl", "python3.11", "readlink", "rm", "rmmod", "sha256sum", "sleep", "sort", "stat",
    "sync", "sysctl", "tar", "tc", "timeout", "tr", "true", "uname", "wc",
)  # fmt: skip
START = """\
#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
hostname sensor1
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=1777 tmpfs /tmp
mkdir -p /dev/pts /run/sshd /sys/fs/cgroup
mount -t devpts devpts /dev/pts
mount -t cgroup2 cgroup2 /sys/fs/cgroup
ip link set lo up
ip address add 10.77.1.2/24 dev eth0
ip link set eth0 up
/port
[ ! -e /at_boot ] || . /at_boot
exec /bin/sshd -D -e -f /etc/sshd_config
"""
PORT = """\
#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
ethtool -K eth1 {off}
ip link set eth1 up
"""
OFF = "rx off tx off sg off tso off gso off gro off lro off"
SHOW = """\
cat /sys/class/net/eth1/mtu
for option in -k -g -l -c -a; do ethtool $option eth1 2>&1; done || :
"""
SYSTEMCTL = """\
#!/bin/sh
[ "$*" = reboot ] && echo b >/proc/sysrq-trigger
"""
MODPROBE = """\
#!/bin/perl
my ($name, $none) = ($ARGV[-1], "");
if ($ARGV[0] eq "--remove") { syscall(176, $name, 0) == 0 or die "$name: $!\\n"; exit }
open my $f, "<", "/modules/$name.ko" or die "$name: $!\\n";
syscall(313, fileno($f), $none, 0) == 0 or $! == 17 or die "$name: $!\\n";
"""
"""kmod may be missing here. 176: delete_module, 313: finit_module of x86_64; 17: it is loaded."""
INIT = """\
#!/bin/sh
export PATH=/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
while read -r module; do
  perl -e 'open my $f, "<", $ARGV[0] or die; my $none = "";
    syscall(313, fileno($f), $none, 0) == 0 or warn "$ARGV[0]: $!"' "/modules/$module"
done </modules/order
mount /dev/vda /root
exec switch_root /root /start
"""
"""perl is on every Debian, insmod is not."""
IOMMU = ("-device", "intel-iommu,intremap=on,caching-mode=on")
"""QEMU puts behind it what comes later."""
BEHIND_IT = {"virtio_net": ",disable-legacy=on,iommu_platform=on"}
"""Driver → what its device needs there."""
VFIO = ("vfio_iommu_type1", "vfio_pci")
emulated = pytest.mark.skipif(
    os.environ.get("NODROP_GUESTS") != "1", reason="needs NODROP_GUESTS=1: minutes of emulation"
)
APPENDED = "console=ttyS0 quiet panic=-1 ipv6.disable=1 net.ifnames=0 rdinit=/init"
TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI, IFF_MULTI_QUEUE = 0x2, 0x1000, 0x100
TUNSETQUEUE, IFF_ATTACH_QUEUE = 0x400454D9, 0x200


@dataclass(frozen=True, slots=True)
class Guest:
    """A lab whose receiver it is (Runnable of tests/ssh/pairs.py)."""

    sender: Machine
    folder: Path

    def lab(self, folder: Path) -> str:
        path = folder / "pair.toml"
        path.write_text(LAB.format(config=self.folder / "ssh_config"))
        return str(path)

    def said(self, *argv: str) -> str:
        ssh = ["ssh", "-F", str(self.folder / "ssh_config"), "root@sensor1"]
        return run_command([*ssh, shlex.join(argv)], where="guest", timeout_s=60).stdout

    def shown(self) -> str:
        """Settings of the port. Wishes for features that others keep off differ by driver."""
        return re.sub(r" \[requested \w+\]", "", self.said("sh", "-c", SHOW))

    def nothing_is_left(self) -> None:
        assert self.said("ip", "netns") == ""
        assert self.said("find", "/root/.local/state", "-name", "*.jsonl") == ""


@contextmanager
def sender_and_guest(
    folder: Path,
    *,
    driver: str = "virtio_net",
    control_driver: str = "virtio_net",
    iommu: bool = False,
) -> Iterator[Guest]:
    """Two machines as in two_machines, but the receiver is a guest. `iommu`: the NIC at the cable
    is behind one, and vfio-pci is loaded."""
    for program in (PROGRAM, "mkfs.ext4", "switch_root", "perl", "python3.11"):
        if shutil.which(program) is None:
            pytest.skip(f"needs {program}")
    # From the network of this host, which we are about to leave.
    kernel = _kernel(control_driver, driver, *(VFIO if iommu else ()))
    with machine_and_control(folder) as gen1, ExitStack() as standing:
        control = standing.enter_context(_tap("ctl1", queues=1))
        for words in ("address add 10.77.1.1/24 dev ctl1", "link set ctl1 up"):
            run_command(["ip", *words.split()], where="cables", timeout_s=TIMEOUT_S)
        queues = QUEUES if driver == "virtio_net" else 1  # the other models read only the first
        cable = standing.enter_context(_tap("cab0", queues=queues, of=gen1))
        off = [w for w in OFF.split() if w != "off" and w != "lro"]
        for name in off:
            gen1.run("ethtool", "-K", "cab0", name, "off")
        gen1.run("ip", "link", "set", "cab0", "up")
        nics = {"control": (control_driver, control), "cable": (driver, cable)}
        standing.enter_context(_booted(folder, kernel, nics, iommu=iommu))
        yield Guest(gen1, folder)


@contextmanager
def _booted(
    folder: Path,
    kernel: tuple[Path, list[Path]],
    nics: Mapping[str, tuple[str, Sequence[int]]],
    *,
    iommu: bool,
) -> Iterator[None]:
    """`nics`: name → driver, and an open file per queue."""
    image, modules = kernel
    initramfs, disk = folder / "initramfs.gz", folder / "disk.ext4"
    initramfs.write_bytes(gzip.compress(cpio(_first_files(modules)), compresslevel=1))
    _make_disk(folder, disk, modules)
    console = folder / "console"
    argv = [
        PROGRAM,
        *("-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2"),
        *(
            "-m",
            "2560M" if iommu else "1536M",
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-no-reboot",
        ),
        *("-chardev", f"file,id=console,path={console},append=on", "-serial", "chardev:console"),
        *("-kernel", str(image), "-initrd", str(initramfs)),
        *("-append", " ".join([APPENDED, *(["intel_iommu=on no_timer_check"] if iommu else [])])),
        *(IOMMU if iommu else ()),
        *("-drive", f"file={disk},format=raw,if=none,id=disk0,cache=unsafe"),
        *("-device", "virtio-blk-pci,drive=disk0"),
    ]
    handles: list[int] = []
    for number, (name, (driver, queues)) in enumerate(nics.items(), 2):
        argv += ["-netdev", f"tap,id={name},fds={':'.join(map(str, queues))}"]
        behind = BEHIND_IT.get(driver, "") if iommu and name == "cable" else ""
        mac = f"mac=52:54:00:77:01:{number:02x}"
        argv += ["-device", f"{NICS[driver]},netdev={name},{mac}{behind}"]
        handles += queues

    def start() -> subprocess.Popen[bytes]:
        for handle in handles:
            with suppress(OSError):  # it is attached, or has one queue
                fcntl.ioctl(handle, TUNSETQUEUE, struct.pack("16xH22x", IFF_ATTACH_QUEUE))
        with (folder / "qemu.log").open("ab") as log:
            return subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *argv],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=handles,
            )  # fmt: skip

    over, running = threading.Event(), [start()]

    def reboots() -> None:
        while running[0].wait() == 0 and not over.is_set():
            running[0] = start()

    watching = threading.Thread(target=reboots, daemon=True)
    try:
        _await_sshd(running[0], console, folder / "qemu.log")
        watching.start()
        yield
    finally:
        over.set()
        while watching.is_alive():
            running[0].kill()
            watching.join(0.1)
        running[0].kill()
        running[0].wait()


def _await_sshd(qemu: subprocess.Popen[bytes], console: Path, log: Path) -> None:
    deadline = time.monotonic() + BOOT_TIMEOUT_S
    while True:
        try:
            with socket.create_connection(("10.77.1.2", 22), timeout=2.0) as line:
                line.settimeout(10.0)
                if line.recv(4) == b"SSH-":
                    return
        except OSError:
            time.sleep(0.1)
        assert qemu.poll() is None, log.read_text()
        dead = time.monotonic() > deadline or "Kernel panic" in console.read_text(errors="replace")
        assert not dead, last_words(console)


@contextmanager
def _tap(name: str, *, queues: int, of: Machine | None = None) -> Iterator[list[int]]:
    """A tap in the calling thread's network namespace, or a machine's; one open file per queue."""
    handles: list[int] = []

    def opened() -> None:
        if of is not None:
            with Path(f"/proc/{of.pid}/ns/net").open() as there:
                os_setns(there.fileno())
        flags = IFF_TAP | IFF_NO_PI | (IFF_MULTI_QUEUE if queues > 1 else 0)
        for _ in range(queues):
            handle = os.open("/dev/net/tun", os.O_RDWR)
            handles.append(handle)
            fcntl.ioctl(handle, TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))

    thread = threading.Thread(target=opened)
    thread.start()
    thread.join()
    try:
        assert len(handles) == queues
        yield handles
    finally:
        for handle in handles:
            os.close(handle)


def os_setns(handle: int) -> None:
    import ctypes

    assert ctypes.CDLL(None, use_errno=True).setns(handle, 0) == 0


def _kernel(*drivers: str) -> tuple[Path, list[Path]]:
    """The guest's kernel, and its modules in the order of loading, which names NICs."""
    kernel = make_assets(None).kernel
    order = (kernel.modules / "order").read_text().split()
    if all(f"{driver}.ko" in order for driver in drivers):
        return kernel.image, [kernel.modules / name for name in order]
    return _whole_kernel(drivers)


def _whole_kernel(drivers: Sequence[str]) -> tuple[Path, list[Path]]:
    asked = ["apt-cache", "depends", "linux-image-amd64"]
    said = run_command(asked, where="apt", timeout_s=TIMEOUT_S).stdout
    found = re.search(r"Depends: (linux-image-\S+)", said)
    if found is None:
        pytest.skip("apt knows no kernel")
    tree = cache_folder() / "guests" / f"whole-{found[1]}"
    if not tree.is_dir():
        making = Path(tempfile.mkdtemp(prefix=f".{tree.name}.", dir=tree.parent))
        run_command(
            ["env", "-C", str(making), "apt-get", "-q", "download", found[1]],
            where="apt", timeout_s=300,
        )  # fmt: skip
        deb = next(making.glob("*.deb"))
        run_command(["dpkg-deb", "-x", str(deb), str(making)], where="apt", timeout_s=120)
        deb.unlink()
        making.rename(tree)
    there = {p.stem.replace("-", "_"): p for p in tree.rglob("*.ko")}
    order: list[str] = []

    def visit(name: str) -> None:
        if name in there and name not in order:
            for needed in module_depends(there[name].read_bytes()):
                visit(needed)
            order.append(name)

    # A virtio NIC gets its name once virtio_pci is there, which is among DRIVERS.
    first = [name for name in drivers[:1] if name not in DRIVERS]
    for name in (*first, *DRIVERS, "crc32c_generic", "ext4", *drivers):
        visit(name)
    return next((tree / "boot").glob("vmlinuz-*")), [there[name] for name in order]


def _first_files(modules: Sequence[Path]) -> dict[str, tuple[int, bytes]]:
    files: dict[str, tuple[int, bytes]] = {"init": (0o755, INIT.encode())}
    for program in ("sh", "mount", "perl", "switch_root"):
        for path in _with_libraries(program):
            name = f"bin/{program}" if path.name == Path(_found(program)).name else str(path)[1:]
            files[name] = (0o755, path.read_bytes())
    for module in modules:
        files[f"modules/{module.name}"] = (0o644, module.read_bytes())
    files["modules/order"] = (0o644, "".join(f"{m.name}\n" for m in modules).encode())
    for folder in ("proc", "sys", "dev", "run", "root"):
        files[f"{folder}/.here"] = (0o644, b"")
    return files


def _found(program: str) -> str:
    found = shutil.which(program, path="/usr/sbin:/usr/bin:/sbin:/bin")
    return os.path.realpath(found) if found else ""


def _with_libraries(program: str) -> list[Path]:
    path = _found(program)
    if not path:
        return []
    said = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
    return [Path(path), *(Path(name) for name in re.findall(r"(/\S+) \(0x", said))]


def _make_disk(folder: Path, disk: Path, modules: Sequence[Path]) -> None:
    tree = folder / "tree"
    for name in ("bin", "etc", "lib", "lib64", "usr/sbin", "var/lib", "root/.local/state", "dev",
                 "proc", "sys", "run", "tmp", "modules"):  # fmt: skip
        (tree / name).mkdir(parents=True)
    libraries = set()
    for program in PROGRAMS:
        for path in _with_libraries(program)[:1]:
            shutil.copy(path, tree / "bin" / program)
        libraries |= set(_with_libraries(program)[1:])
    compiled = pydantic_core._pydantic_core.__file__  # nodrop brings it, and not what it needs
    for extra in (compiled, *Path("/usr/lib/python3.11/lib-dynload").glob("*.so")):
        said = subprocess.run(["ldd", extra], capture_output=True, text=True, check=False).stdout
        libraries |= {Path(name) for name in re.findall(r"(/\S+) \(0x", said)}
    for library in libraries:
        target = tree / str(library)[1:]
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, target)
    shutil.copytree(
        "/usr/lib/python3.11", tree / "usr/lib/python3.11", symlinks=False,
        ignore=shutil.ignore_patterns("config-*", "test", "idlelib", "dist-packages", "ensurepip"),
    )  # fmt: skip
    (tree / "bin/python3").symlink_to("python3.11")
    for name, text in ETC.items():
        (tree / "etc" / name).write_text(text)
    config = (folder / "sshd_config").read_text()
    (tree / "etc/sshd_config").write_text(
        config.replace(f"{folder}/host_key", "/etc/host_key").replace("/run/auth", "/etc/auth")
    )
    shutil.copy(folder / "host_key", tree / "etc/host_key")
    shutil.copy(folder / "authorized", tree / "etc/authorized")
    scripts = {"bin/systemctl": SYSTEMCTL, "bin/modprobe": MODPROBE}
    for name, text in {"start": START, "port": PORT.format(off=OFF), **scripts}.items():
        (tree / name).write_text(text)
        (tree / name).chmod(0o755)
    for module in modules:
        shutil.copy(module, tree / "modules")
    run_command(
        ["mkfs.ext4", "-q", "-F", "-m", "0", "-d", str(tree), str(disk), "1200M"],
        where="disk", timeout_s=60,
    )  # fmt: skip
    shutil.rmtree(tree)
