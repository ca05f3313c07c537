"""Ports that the session of this command runs over."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from nodrop.testbed.hosts.local import run_command


def session_ports(
    root: Path = Path("/"),
    *,
    environment: Mapping[str, str] = os.environ,
    addresses_of: Callable[[], str] = lambda: _addresses_shown(),
) -> frozenset[str]:
    """Ports that the TCP connection of an ancestor of ours runs over (sshd), with what lies below
    them: the ports of a bond, a bridge, a VLAN."""
    addresses = set(_session_addresses(root, environment))
    if not addresses:
        return frozenset()
    found: set[str] = set()
    for load in json.loads(addresses_of() or "[]"):
        name = load["ifname"]
        if not {each.get("local") for each in load.get("addr_info", [])} & addresses:
            continue
        found |= {name, *_below(root / "sys/class/net" / name)}
    return frozenset(found)


def _session_addresses(root: Path, environment: Mapping[str, str]) -> Iterator[str]:
    said = environment.get("SSH_CONNECTION", "").split()
    if len(said) == 4:
        yield said[2]
    inodes: set[str] = set()
    pid = os.getppid()
    while pid > 1:
        folder = root / f"proc/{pid}"
        with suppress(OSError):
            for one in (folder / "fd").iterdir():
                with suppress(OSError):
                    inodes.add(str(one.readlink()))
        try:
            pid = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            break
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        with suppress(OSError):
            for row in (root / "proc/self/net" / table).read_text().splitlines()[1:]:
                words = row.split()
                if words[3] == "01" and f"socket:[{words[9]}]" in inodes:
                    raw = bytes.fromhex(words[1].partition(":")[0])
                    swapped = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
                    yield socket.inet_ntop(family, swapped).removeprefix("::ffff:")


def _addresses_shown() -> str:
    return run_command(["ip", "-j", "address"], where="tune", timeout_s=10.0).stdout


def _below(folder: Path) -> Iterator[str]:
    for one in folder.glob("lower_*"):
        name = one.name.removeprefix("lower_")
        yield name
        yield from _below(folder.parent / name)
