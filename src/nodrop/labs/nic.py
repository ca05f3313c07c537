"""NICs of this machine: for a trial they are in a network namespace of their own, then go home.

In that namespace nothing else sends, receives or counts. A NIC keeps its MTU and offloads, and gets
back what it forgets on the way (labs/port_settings.py).
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from nodrop.errors import LabProblem, NodropError
from nodrop.hosts.local import LocalHost, run_command
from nodrop.hosts.reversal import NETNS_FOLDER
from nodrop.hosts.seam import Action, UndoJournal
from nodrop.labs.netns import CARRIER_TIMEOUT_S, ip_batch, quiet_stack, wait_up
from nodrop.labs.port_settings import put_back, settings_of

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
    journal.push(what=f"network namespace {netns}", action=Action.DELETE_NETNS, arguments=[netns])
    for port, home in zip(ports, homes, strict=True):
        journal.push(what=f"port {port} at home", action=Action.RETURN_PORT, arguments=home)
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
    """From the namespace `netns`, if it is there, to the one with the inode `home`, which must be
    ours, with the settings that it had. As often as need be: whatever is done already is left as it
    is. A port that is gone needs nothing."""
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
    """In the network namespace of this thread."""
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
    """To what `ipv6_off` said."""
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
