"""Two machines with sshd, in namespaces of this one: a cable between them, another way for control.

Nothing of it is seen from outside: no port of this host listens, and with the processes all goes.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from nodrop.testbed.hosts.local import run_command

CLONE_NEWNET = 0x40000000
SSHD = "/usr/sbin/sshd"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
TIMEOUT_S = 20.0
MTU = 9000
OFFLOADS_OFF = [word for name in ("rx", "tx", "sg", "tso", "gso", "gro") for word in (name, "off")]
BOOT = """\
hostname "$1"
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p "$2/$1/lib" "$2/$1/state" /root/.local/state
mount --bind "$2/$1/lib" /var/lib
mount --bind "$2/$1/state" /root/.local/state
mkdir /run/cgroup
mount --rbind /sys/fs/cgroup /run/cgroup
mount -t sysfs sysfs /sys
mount --rbind /run/cgroup /sys/fs/cgroup
umount -l /run/cgroup
mkdir -m 755 /run/sshd /run/programs
cat /proc/sys/kernel/random/uuid >/run/boot_id
[ ! -e "$2/$1/own_boot_id" ] || mount --bind /run/boot_id /proc/sys/kernel/random/boot_id
readlink /proc/self/ns/pid >/run/pid_namespace
cp "$2/systemctl" /run/programs/systemctl
mount --bind /run/programs /usr/local/sbin
[ ! -e "$2/$1/at_boot" ] || . "$2/$1/at_boot"
cp "$2/authorized" /run/authorized
for file in passwd shadow hosts sudoers; do
  [ ! -e "/etc/$file" ] || mount --bind "$2/$file" "/etc/$file"
done
echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6
ip link set lo up
exec /usr/sbin/sshd -D -e -f "$2/sshd_config"
"""
SYSTEMCTL = """\
#!/bin/sh
[ "$*" = reboot ] && [ "$(readlink /proc/self/ns/pid)" = "$(cat /run/pid_namespace)" ] || exit 1
exec python3 -IS -c 'import ctypes; ctypes.CDLL(None).reboot(0x1234567)'
"""
"""In a PID namespace of its own a reboot ends the first process by SIGHUP and does nothing else
(reboot(2))."""
SSHD_CONFIG = """\
KexAlgorithms curve25519-sha256
ListenAddress 0.0.0.0
HostKey {folder}/host_key
AuthorizedKeysFile /run/authorized
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
PidFile none
SetEnv PYTHONPYCACHEPREFIX={compiled}
Subsystem sftp internal-sftp
"""
"""The default of several key exchanges takes much CPU, and seconds where it is emulated."""
ETC = {
    "passwd": "root:x:0:0:root:/root:/bin/sh\n"
    "sshd:x:100:65534::/run/sshd:/usr/sbin/nologin\n"
    "lab:x:4711:4711::/:/bin/sh\n"
    "asks:x:4712:4712::/:/bin/sh\n"
    "nobody:x:65534:65534::/nonexistent:/usr/sbin/nologin\n",
    "shadow": "root:*:19000:0:99999:7:::\nlab:*:19000:0:99999:7:::\nasks:*:19000:0:99999:7:::\n",
    "hosts": "127.0.0.1 localhost gen1 sensor1\n",
    "sudoers": "Defaults env_keep += PYTHONPYCACHEPREFIX\n"
    "root ALL=(ALL:ALL) ALL\nlab ALL=(ALL) NOPASSWD: ALL\nasks ALL=(ALL) ALL\n",
}
CLIENT_CONFIG = """\
Host asks
  HostName 10.77.1.2
  User asks
Host user
  HostName 10.77.1.2
  User lab
Host stranger
  HostName 10.77.0.2
  IdentityFile {folder}/other_key
Host changed
  HostName 10.77.0.2
  UserKnownHostsFile {folder}/changed
Host unknown
  HostName 10.77.0.2
  UserKnownHostsFile /dev/null
Host behind
  HostName 10.77.0.2
  ProxyJump unknown
Host nosuch
  HostName nosuch.invalid
Host refused
  HostName 10.77.0.2
  Port 9
Host away
  HostName 10.88.0.1
Host gen1
  HostName 10.77.0.2
Host sensor1
  HostName 10.77.1.2
  User lab
Host !stranger *
  IdentityFile {folder}/key
Host *
  User root
  IdentitiesOnly yes
  IdentityAgent none
  UserKnownHostsFile {folder}/known
  GlobalKnownHostsFile /dev/null
"""


@dataclass(slots=True)
class Machine:
    name: str
    pid: int
    """Process whose namespaces are the machine's."""
    boots: int = 0
    """Number of times that its sshd has begun to listen."""

    def await_boot(self, number: int) -> None:
        """Waits for its boot `number`; before, its process may be in our namespaces."""
        deadline = time.monotonic() + 3 * TIMEOUT_S
        while self.boots < number:
            assert time.monotonic() < deadline, f"{self.name} does not boot"
            time.sleep(0.01)

    def run(self, *argv: str) -> str:
        """Runs a program as its root, not over ssh."""
        inside = ["nsenter", "--target", str(self.pid), "--net", "--mount", "--uts", "--", *argv]
        return run_command(inside, where=self.name, timeout_s=TIMEOUT_S).stdout

    @contextmanager
    def running(self, *argv: str) -> Iterator[None]:
        """Runs a program in there that says a line and ends with its input."""
        inside = ["nsenter", "--target", str(self.pid), "--net", "--mount", "--uts", "--", *argv]
        pipe = subprocess.PIPE
        with subprocess.Popen(inside, stdin=pipe, stdout=pipe) as program:
            assert program.stdout is not None
            program.stdout.readline()
            yield
            program.kill()

    @contextmanager
    def serving(self, folder: Path, *options: str) -> Iterator[None]:
        """Runs one more sshd on this machine."""
        inside = ["nsenter", "--target", str(self.pid), "--net", "--mount", "--uts"]
        inside += [f"--pid=/proc/{self.pid}/ns/pid_for_children", "--"]
        sshd = ["setpriv", "--pdeathsig", "KILL", SSHD, "-D", "-e"]
        argv = [*inside, *sshd, "-f", str(folder / "sshd_config"), *options]
        with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as serving:
            assert serving.stderr is not None
            try:
                assert any("Server listening" in line for line in serving.stderr)
                yield
            finally:
                serving.kill()

    def processes(self) -> dict[int, str]:
        """PID, as this machine sees it → argv, of what runs there."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (folder / "ns/uts").readlink() == Path(f"/proc/{self.pid}/ns/uts").readlink():
                    found[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
        return found


@dataclass(slots=True)
class Machines:
    sender: Machine
    receiver: Machine
    folder: Path
    """Folder with ssh_config and the keys."""

    @property
    def config(self) -> Path:
        return self.folder / "ssh_config"

    @contextmanager
    def boot_id_of_its_own(self, machine: Machine) -> Iterator[None]:
        """Gives it a boot id as a kernel of its own would: a new one after each boot."""
        flag, ours = self.folder / machine.name / "own_boot_id", Path(BOOT_ID).read_text()
        flag.touch()
        machine.run("sh", "-c", "cat /proc/sys/kernel/random/uuid >/run/boot_id")
        machine.run("mount", "--bind", "/run/boot_id", BOOT_ID)
        try:
            yield
        finally:
            flag.unlink()
            machine.run("sh", "-c", f"echo {ours.strip()} >/run/boot_id")


@contextmanager
def two_machines(folder: Path, *, switch: bool = True) -> Iterator[Machines]:
    """The calling thread, and what it starts, is in the network namespace of a controller.
    `switch`: their cable goes by one, which drops some of what a trace holds."""
    _keys_and_files(folder)
    with _own_network(), _booted("gen1", folder) as gen1, _booted("sensor1", folder) as sensor1:
        for number, machine in enumerate((gen1, sensor1)):
            _lay_control(machine, number)
        machines = Machines(gen1, sensor1, folder)
        if switch:
            lay_cable(machines)
        else:
            lay_direct_cable(gen1, sensor1)
        yield machines


@contextmanager
def sender_and_here(folder: Path) -> Iterator[Machines]:
    """The calling thread, and what it starts, is on the receiver: port `cab0` there has a cable to
    `cab0` of the other machine."""
    _keys_and_files(folder)
    with _own_network(), _booted("gen1", folder) as gen1:
        _lay_control(gen1, 0)
        here = Machine("here", threading.get_native_id())
        lay_direct_cable(gen1, here)
        yield Machines(gen1, here, folder)


@contextmanager
def machine_and_control(folder: Path) -> Iterator[Machine]:
    """The sender alone, and its way of control; its cable is whoever asks's to lay."""
    _keys_and_files(folder)
    with _own_network(), _booted("gen1", folder) as gen1:
        _lay_control(gen1, 0)
        yield gen1


def _lay_control(machine: Machine, number: int) -> None:
    near = f"ctl{number}"
    _ip("link", "add", near, "type", "veth", "peer", "name", "mgmt", "netns", machine.pid)
    _ip("address", "add", f"10.77.{number}.1/24", "dev", near)
    _ip("link", "set", near, "up")
    machine.run("ip", "address", "add", f"10.77.{number}.2/24", "dev", "mgmt")
    machine.run("ip", "link", "set", "mgmt", "up")


def set_control(number: int, *, up: bool) -> None:
    """The control line of that machine: laid again, or cut, of which neither end is told."""
    _ip("link", "set", f"ctl{number}", "up" if up else "down")


def lay_cable(machines: Machines) -> None:
    """Port `cab0` of each, as a measurement wants it, and a switch between them, which is ours."""
    tx, rx = machines.sender, machines.receiver
    Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")  # it says nothing itself
    _ip("link", "add", "switch", "mtu", MTU, "type", "bridge", "mcast_snooping", 0)
    _ip("link", "set", "switch", "up")
    for number, machine in enumerate((tx, rx)):
        near, far = f"sw{number}", ("cab0", "mtu", MTU, "netns", machine.pid)
        _ip("link", "add", near, "mtu", MTU, "type", "veth", "peer", "name", *far)
        _ip("link", "set", near, "master", "switch", "up")
    for machine in (tx, rx):
        machine.run("ethtool", "-K", "cab0", *OFFLOADS_OFF)
        machine.run("ip", "link", "set", "cab0", "up")
    await_switch()


def lay_direct_cable(one: Machine, other: Machine, port: str = "cab0") -> None:
    Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")
    far = (port, "mtu", MTU, "netns", one.pid)
    _ip("link", "add", "near", "mtu", MTU, "type", "veth", "peer", "name", *far)
    # By its new name at once: the other machine may be this one.
    _ip("link", "set", "near", "netns", other.pid, "name", port)
    for machine in (one, other):
        machine.run("ethtool", "-K", port, *OFFLOADS_OFF)
        machine.run("ip", "link", "set", port, "up")


def await_switch(ports: int = 2) -> None:
    """Waits until its ports pass frames on: the kernel's link watch sees a carrier late."""
    deadline = time.monotonic() + TIMEOUT_S
    shown = ["ip", "-j", "-d", "link", "show", "master", "switch"]
    states: list[str] = []
    while states != ["forwarding"] * ports:
        assert time.monotonic() < deadline, states
        time.sleep(0.05)
        said = run_command(shown, where="switch", timeout_s=TIMEOUT_S).stdout
        states = [one["linkinfo"]["info_slave_data"]["state"] for one in json.loads(said)]


def _keys_and_files(folder: Path) -> None:
    for name in ("key", "other_key", "host_key"):
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(folder / name)]
        run_command(argv, where="keys", timeout_s=TIMEOUT_S)
    host_key, other = ((folder / f"{name}.pub").read_text() for name in ("host_key", "other_key"))
    addresses = ("10.77.0.2", "10.77.1.2")
    (folder / "known").write_text("".join(f"{address} {host_key}" for address in addresses))
    (folder / "changed").write_text(f"{addresses[0]} {other}")
    (folder / "authorized").write_text((folder / "key.pub").read_text())
    (folder / "systemctl").write_text(SYSTEMCTL)
    (folder / "systemctl").chmod(0o755)
    # nodrop is compiled once in the whole session, not anew in each machine that it is copied to.
    compiled = folder.parents["PYTEST_XDIST_WORKER" in os.environ] / "compiled"
    (folder / "sshd_config").write_text(SSHD_CONFIG.format(folder=folder, compiled=compiled))
    (folder / "ssh_config").write_text(CLIENT_CONFIG.format(folder=folder))
    for name, text in ETC.items():
        (folder / name).write_text(text)
        (folder / name).chmod({"shadow": 0o600, "sudoers": 0o440}.get(name, 0o644))


@contextmanager
def _booted(name: str, folder: Path) -> Iterator[Machine]:
    """It boots again when it ends by a reboot; its ports and its disk stay."""
    over = threading.Event()
    machine = Machine(name, 0)
    first = _boot(machine, folder, ["--net"])
    network = os.open(f"/proc/{first.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    def reboots() -> None:
        sshd = first
        while sshd.wait() == -signal.SIGHUP and not over.is_set():
            booted[0] = sshd = _boot(machine, folder, [], network=network)

    booted = [first]
    watching = threading.Thread(target=reboots, daemon=True)
    watching.start()
    try:
        yield machine
    finally:
        over.set()
        while watching.is_alive():  # it may be booting, and then has another to end
            booted[0].kill()
            watching.join(0.1)
        os.close(network)


def _boot(
    machine: Machine, folder: Path, own: Sequence[str], *, network: int | None = None
) -> subprocess.Popen[str]:
    """Starts a machine, and returns as its sshd listens. `own`: other namespaces of its own;
    `network`: that of its ports."""
    entering = [] if network is None else ["nsenter", f"--net=/proc/self/fd/{network}", "--"]
    namespaces = [*own, "--mount", "--uts", "--pid", "--mount-proc"]
    sshd = subprocess.Popen(
        [
            *("setpriv", "--pdeathsig", "KILL"),
            *entering,
            *("unshare", *namespaces, "--fork", "--kill-child", "--"),
            *("sh", "-euc", BOOT, "sh", machine.name, str(folder)),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
        pass_fds=[] if network is None else [network],
    )
    machine.pid = sshd.pid  # before it lets anybody in
    assert sshd.stderr is not None
    said: list[str] = []
    for line in sshd.stderr:
        said.append(line)
        if "Server listening" in line:
            threading.Thread(target=_read_to_its_end, args=(sshd.stderr,), daemon=True).start()
            machine.boots += 1
            return sshd
    sshd.wait()
    raise AssertionError(f"{machine.name} does not boot: {''.join(said)}")


def _read_to_its_end(pipe: IO[str]) -> None:
    with pipe:
        pipe.read()


@contextmanager
def _own_network() -> Iterator[None]:
    """Gives the calling thread, and all that it starts, a network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        assert libc.unshare(CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
        try:
            _ip("link", "set", "lo", "up")
            yield
        finally:
            assert libc.setns(before, CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
    finally:
        os.close(before)


def _ip(*words: object) -> None:
    argv: Sequence[str] = ["ip", *map(str, words)]
    run_command(argv, where="cables", timeout_s=TIMEOUT_S)
