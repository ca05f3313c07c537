"""NICs of this machine: for a trial they are in a network namespace of their own, then go home.

In that namespace nothing else sends, receives or counts. A NIC keeps its MTU and offloads, and gets
back what it forgets on the way.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from nodrop.errors import LabProblem, NodropError
from nodrop.testbed.hosts.api import UndoAction, UndoJournal
from nodrop.testbed.hosts.local import LocalHost, run_command
from nodrop.testbed.hosts.reversal import NETNS_FOLDER
from nodrop.testbed.labs.netns import CARRIER_TIMEOUT_S, ip_batch, quiet_stack, wait_up

SYSCTLS = Path("/proc/sys/net")
"""Sysctls of the reader's own network namespace."""
GROUPS = ("ipv4/conf", "ipv6/conf", "ipv4/neigh", "ipv6/neigh")
VALUE = re.compile(r"[a-z0-9:._-]+")


def settings_of(port: str) -> str:
    """`promisc=on ipv4/conf/rp_filter=2 …`: what is otherwise than a port gets it when it comes."""
    promisc = ["promisc=on"] if _is_promiscuous(port) else []
    now, at_first = _sysctls(port), _sysctls("default")
    return " ".join(
        [*promisc, *(f"{name}={v}" for name, v in now.items() if at_first.get(name) != v)]
    )


def put_back(port: str, settings: str) -> None:
    """Puts the settings back; it may be repeated. LabProblem if the kernel does not take one."""
    wanted = {name: value for name, _, value in (w.partition("=") for w in settings.split())}
    promisc = wanted.pop("promisc", "off")
    argv = ["ip", "link", "set", port, "promisc", promisc]
    run_command(argv, where="lab", timeout_s=COMMAND_TIMEOUT_S)
    now = _sysctls(port)
    for name, value in wanted.items():
        if now.get(name) != value:
            try:
                _file(name, port).write_text(value)
            except OSError as error:
                raise LabProblem(
                    f"{port}: {name} does not take {value}: {error.strerror}"
                ) from None


def _is_promiscuous(port: str) -> bool:
    """The port is promiscuous because somebody said so; a program that listens makes it so as well,
    and has no flag."""
    argv = ["ip", "-j", "link", "show", port]
    shown = run_command(argv, where="lab", timeout_s=COMMAND_TIMEOUT_S).stdout
    return "PROMISC" in json.loads(shown)[0]["flags"]


def _sysctls(port: str) -> Mapping[str, str]:
    """`ipv4/conf/rp_filter` → its value; what cannot be read (no IPv6, a secret) is left out."""
    return dict(_read(port))


def _read(port: str) -> Iterator[tuple[str, str]]:
    for group in GROUPS:
        folder = SYSCTLS / group / port
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            with suppress(OSError):
                value = path.read_text().strip()
                if VALUE.fullmatch(value):
                    yield f"{group}/{path.name}", value


def _file(name: str, port: str) -> Path:
    group, _, key = name.rpartition("/")
    return SYSCTLS / group / port / key


COMMAND_TIMEOUT_S = 10.0
NO_CARRIER = "is the cable in, and the other end up?"
ONCE_BACK = "the host's dmesg may say why; once it is back, --resume goes on"


@contextmanager
def taken(
    ports: Sequence[str], journal: UndoJournal, *, name: str, node: Path
) -> Iterator[LocalHost]:
    """The namespace with the ports in it, as a host called `name`. LabProblem if there is no such
    port."""
    for port in ports:
        if not _is_here(port):
            raise LabProblem(
                f"there is no port {port} any more: its NIC or its driver went away",
                hint=ONCE_BACK,
            )
    netns = f"nodrop-{journal.label}-rcv"
    homes = [[netns, port, str(_namespace()), settings_of(port)] for port in ports]
    journal.push(
        what=f"network namespace {netns}", action=UndoAction.DELETE_NETNS, arguments=[netns]
    )
    for port, home in zip(ports, homes, strict=True):
        journal.push(what=f"port {port} at home", action=UndoAction.RETURN_PORT, arguments=home)
    try:
        ip_batch([f"netns add {netns}", f"netns exec {netns} {quiet_stack()}"])
        for port in ports:
            ip_batch(
                [
                    f"link set {port} netns {netns}",
                    f"netns exec {netns} ip link set {port} promisc on up",
                ]
            )
        for port in ports:
            wait_up(netns, port, timeout_s=CARRIER_TIMEOUT_S, hint=NO_CARRIER)
        with LocalHost(
            name=name, node=node, label=journal.label, netns=NETNS_FOLDER / netns
        ) as host:
            yield host
    except NodropError as problem:
        gone = [port for port in ports if not (_is_in(netns, port) or _is_here(port))]
        if not gone:
            raise
        raise LabProblem(
            f"port {' and '.join(gone)} went away during the trial: taken out, failed, or without "
            "its driver",
            hint=ONCE_BACK,
        ) from problem
    finally:
        if (NETNS_FOLDER / netns).exists():
            for home in homes:
                bring_home(*home)
            ip_batch([f"netns del {netns}"])


def bring_home(netns: str, port: str, home: str, settings: str) -> None:
    """Brings a port from the namespace `netns`, if it is there, to the one with the inode `home`,
    which must be ours, with the settings that it had. May be repeated: whatever is done already is
    left as it is. A port that is gone needs nothing."""
    if str(_namespace()) != home:
        raise LabProblem(
            f"port {port} is to return to another network namespace than this one",
            hint="run `nodrop undo` in the network namespace that the run was started in",
        )
    if _is_in(netns, port):
        away = ["ip", "-n", netns, "link", "set", port, "promisc", "off", "netns"]
        must([*away, _our_namespace()])
    if not _is_here(port):
        return
    put_back(port, settings)
    must(["ip", "link", "set", port, "up"])


def _is_here(port: str) -> bool:
    """The port is in the network namespace of this thread."""
    return port in (name for _, name in socket.if_nameindex())


def _is_in(netns: str, port: str) -> bool:
    return _runs(["ip", "-n", netns, "link", "show", port])


def ipv6_off(port: str) -> str:
    """The port's value of `disable_ipv6`, which is forgotten when the port moves. Empty if this
    kernel has no IPv6."""
    name = f"net.ipv6.conf.{port.replace('.', '/')}.disable_ipv6"
    done = run_command(
        ["sysctl", "-n", name], where="lab", timeout_s=COMMAND_TIMEOUT_S, check=False
    )
    return done.stdout.strip()


def set_ipv6_off(port: str, said: str) -> None:
    """Sets the port's `disable_ipv6` to what `ipv6_off` said."""
    if said:
        must(["sysctl", "-qw", f"net.ipv6.conf.{port.replace('.', '/')}.disable_ipv6={said}"])


def _our_namespace() -> str:
    # Of this thread: that of the process is its first thread's.
    return f"/proc/{os.getpid()}/task/{threading.get_native_id()}/ns/net"


def _namespace() -> int:
    return Path(_our_namespace()).stat().st_ino


def _runs(argv: list[str]) -> bool:
    done = run_command(argv, where="lab", timeout_s=COMMAND_TIMEOUT_S, check=False)
    return done.returncode == 0


def must(argv: list[str], *, timeout_s: float = COMMAND_TIMEOUT_S) -> None:
    run_command(argv, where="lab", timeout_s=timeout_s)


if __name__ == "__main__":  # of `nodrop undo` (hosts/reversal.py)
    try:
        bring_home(*sys.argv[1:])
    except LabProblem as problem:
        sys.exit(f"{problem}")
