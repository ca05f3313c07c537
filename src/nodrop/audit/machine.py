"""Files of a host for an audit, and what they say of the machine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from nodrop.audit.world import PROMISCUOUS, Missing, Port, Value
from nodrop.config.units import parse_cpus

TRACE = "root, or CAP_SYS_PTRACE"
BEYOND_ROOT = "more than root's rights: a user namespace or a security module hides it"
ENTER = "root, or CAP_SYS_ADMIN and CAP_SYS_PTRACE"
CAP_NET_ADMIN, CAP_SYS_PTRACE, CAP_SYS_ADMIN = 12, 19, 21
VALUES = {
    "kernel": "proc/sys/kernel/osrelease",
    "boot line": "proc/cmdline",
    "isolated CPUs": "sys/devices/system/cpu/isolated",
    "CPUs without tick": "sys/devices/system/cpu/nohz_full",
    "SMT": "sys/devices/system/cpu/smt/control",
    "governor": "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "clock source": "sys/devices/system/clocksource/clocksource0/current_clocksource",
    "huge pages": "sys/kernel/mm/transparent_hugepage/enabled",
    "firmware": "sys/class/dmi/id/bios_version",
    "machine": "sys/class/dmi/id/product_name",
    "softirq budget": "proc/sys/net/core/netdev_budget",
    "backlog": "proc/sys/net/core/netdev_max_backlog",
}


class HostFiles:
    """Reads files below `root`, and lists as missing what this user may not read."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.missing: dict[Missing, None] = {}

    def text(self, path: str, *, needs: str = "") -> str | None:
        """None if there is no such file, or this user may not read it, which is noted then."""
        try:
            return (self.root / path).read_text(errors="replace")
        except PermissionError:
            self.lacks(f"/{path}", needs or "root")
        except OSError:
            pass
        return None

    def lacks(self, what: str, needs: str) -> None:
        if needs in (TRACE, ENTER) and self.capable(CAP_SYS_PTRACE, CAP_SYS_ADMIN):
            needs = BEYOND_ROOT
        self.missing[Missing(what, needs)] = None

    def cpus(self, path: str) -> tuple[int, ...]:
        with suppress(ValueError):
            return parse_cpus((self.text(path) or "").strip())
        return ()

    def named(self, folder: str) -> list[str]:
        try:
            return [one.name for one in (self.root / folder).iterdir()]
        except OSError:
            return []

    def link(self, path: str) -> str | None:
        try:
            return str((self.root / path).readlink())
        except OSError:
            return None

    def open_files(self, pid: int) -> set[str]:
        """Open files of a process: `socket:[5]`. PermissionError if it is another user's."""
        try:
            numbers = [one.name for one in (self.root / f"proc/{pid}/fd").iterdir()]
        except PermissionError:
            raise
        except OSError:
            return set()
        found = (self.link(f"proc/{pid}/fd/{number}") for number in numbers)
        return {one for one in found if one is not None}

    def capable(self, *numbers: int) -> bool:
        found = re.search(r"^CapEff:\s*(\w+)", self.text("proc/self/status") or "", re.MULTILINE)
        return found is not None and all(int(found[1], 16) >> number & 1 for number in numbers)


def nodes(files: HostFiles) -> dict[int, tuple[int, ...]]:
    names = (re.fullmatch(r"node(\d+)", n) for n in files.named("sys/devices/system/node"))
    found = sorted(int(match[1]) for match in names if match)
    return {n: files.cpus(f"sys/devices/system/node/node{n}/cpulist") for n in found}


def softnet(files: HostFiles) -> dict[int, int]:
    rows = [line.split() for line in (files.text("proc/net/softnet_stat") or "").splitlines()]
    return {
        int(row[12], 16) if len(row) > 12 else number: int(row[1], 16)
        for number, row in enumerate(rows)
        if len(row) > 1
    }


def memory(files: HostFiles) -> int | None:
    found = re.search(r"^MemTotal:\s+(\d+) kB", files.text("proc/meminfo") or "")
    return int(found[1]) * 1024 if found else None


def uptime(files: HostFiles) -> float | None:
    words = (files.text("proc/uptime") or "").split()
    return float(words[0]) if words else None


def virtual(files: HostFiles) -> bool:
    flags = re.search(r"^flags\s*:(.*)$", files.text("proc/cpuinfo") or "", re.MULTILINE)
    return flags is not None and "hypervisor" in flags[1].split()


def values(files: HostFiles) -> Iterator[Value]:
    """Firmware, power and the like: what they cost here is not known from reading."""
    for what, path in VALUES.items():
        if said := (files.text(path) or "").strip():
            yield Value(what, said, f"/{path}")
    model = re.search(r"^model name\s*: (.*)$", files.text("proc/cpuinfo") or "", re.MULTILINE)
    if model:
        yield Value("CPU", model[1], "/proc/cpuinfo")
    groups = files.named("sys/kernel/iommu_groups")
    yield Value("IOMMU groups", str(len(groups)), "/sys/kernel/iommu_groups")
    states = "sys/devices/system/cpu/cpu0/cpuidle"
    idle = [files.text(f"{states}/{one}/name") for one in sorted(files.named(states))]
    if names := [one.strip() for one in idle if one]:
        yield Value("idle states", ", ".join(names), f"/{states}")


def port_values(ports: Sequence[Port]) -> Iterator[Value]:
    for port in ports:
        if port.driver:
            firmware = f", firmware {port.firmware}" if port.firmware else ""
            yield Value(f"{port} driver", f"{port.driver}{firmware}", f"ethtool -i {port}")
        if port.ring:
            yield Value(f"{port} ring", f"{port.ring[0]} of {port.ring[1]}", f"ethtool -g {port}")
        if port.queues:
            yield Value(f"{port} receive queues", str(port.queues), port.files("queues"))
        if port.flags is not None and port.flags & PROMISCUOUS:
            yield Value(f"{port} promiscuous", "yes", port.files("flags"))
