"""Rights of a program that nodrop starts: no more capabilities, and no more of our environment,
than its work takes.

Everything here reads what others wrote: packets, traces, rules. A bug in it is then no root.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

SUT = ("NET_RAW",)
"""All that capturing takes; the same in every setup. To overhear frames takes no more."""
GENERATOR = ("NET_RAW", "NET_ADMIN", "SYS_NICE", "IPC_LOCK", "DAC_READ_SEARCH")
"""Sockets and AF_XDP; a real-time class; memory that stays; a user's own trace."""
SAMPLER = ("SYS_PTRACE", "DAC_READ_SEARCH")
"""To read /proc of whoever is measured."""
FLOOD = (*GENERATOR, "BPF")
"""A flood is a program of the kernel."""

READER = ("DAC_READ_SEARCH",)
"""A user's own trace, read by root."""
LOOKS = frozenset({"counters", "process", "proof", "processes", "usage", "account"})
"""Words of a probe that only read: kernel counters, /proc, and the files that a SUT maps."""
QEMU = ("SETUID", "SETGID", "DAC_OVERRIDE")
"""To open its files and to become nobody; it has none of them after that."""

KEEPER = ("KILL", "SYS_PTRACE", "DAC_READ_SEARCH")
"""To read the label of any process, and to end it (hosts/lease.py)."""


KEPT = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "PYTHONPATH")
"""Variables of our environment that a program gets: the others may hold keys."""
KEPT_BY_OURS = (*KEPT, "TMPDIR", "NODROP_BOUNDS_TIMES")
"""Variables that the node and QEMU get. A SUT has a folder of its own, and bounds of its own."""


def of_job(spec: Mapping[str, Any]) -> tuple[str, ...] | None:
    """None keeps what nodrop has: a `profile` asks the kernel for samples, and other words of a
    `probe` try something out (a namespace, a register), and read no file of others."""
    if str(spec.get("backend", "")).startswith("flood"):
        return FLOOD
    if spec["job"] == "probe":
        return SAMPLER if LOOKS.issuperset(spec["what"]) else None
    return {
        "replay": GENERATOR, "sink": SUT, "overhear": SUT, "sample": SAMPLER, "trace": READER
    }.get(spec["job"])  # fmt: skip


def limited(node: Path, caps: Sequence[str], argv: Sequence[str]) -> list[str]:
    """The program with these capabilities alone; without any, if the user has none."""
    return [str(node), "enter", "--caps", ",".join(caps), "--", *argv]


def environment(names: Sequence[str], **more: str) -> dict[str, str]:
    return {name: os.environ[name] for name in names if name in os.environ} | more


SUT_USER = 65530
"""No distribution gives it to anybody (systemd's list of users, Debian's policy 9.2.2)."""
CAP_CHOWN, CAP_SETGID, CAP_SETUID = 0, 6, 7


@cache
def sut_user() -> int | None:
    """None if it runs as nodrop's: a normal user's namespace has one user and no other."""
    if os.geteuid() != 0 or not all(map(_is_mapped, ("uid_map", "gid_map"))):
        return None
    status = Path("/proc/self/status").read_text()
    effective = int(status.partition("CapEff:")[2].split()[0], 16)
    may = all(effective >> number & 1 for number in (CAP_CHOWN, CAP_SETGID, CAP_SETUID))
    return SUT_USER if may else None


def _is_mapped(file: str) -> bool:
    rows = (line.split() for line in Path("/proc/self", file).read_text().splitlines())
    return any(int(first) <= SUT_USER < int(first) + int(many) for first, _, many in rows)


def give(folder: Path, user: int | None) -> None:
    """Everything in the folder, and itself, to this user; no link is followed."""
    if user is None:
        return
    for _, folders, files, handle in os.fwalk(folder, follow_symlinks=False):
        for name in (*folders, *files):
            os.chown(name, user, user, dir_fd=handle, follow_symlinks=False)
        os.fchown(handle, user, user)


def readable_by(user: int | None, file: Path, copy: Path) -> Path:
    """The file, or this copy of it if the user may not read it. The way there is not looked at: a
    file is shown at another place."""
    if user is None or file.stat().st_mode & stat.S_IROTH:
        return file
    shutil.copyfile(file, copy)
    os.chown(copy, user, user)
    return copy
