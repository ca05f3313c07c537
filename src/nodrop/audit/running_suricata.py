"""A running Suricata for an audit: its suricata.yaml, and what its command socket answers."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from nodrop.audit.kernel import Kernel
from nodrop.audit.machine import TRACE, HostFiles
from nodrop.audit.world import Program, Settings
from nodrop.errors import BadInput, TrialFailed
from nodrop.testbed.suts.suricata.counters import flattened
from nodrop.testbed.suts.suricata.own_yaml import read_own

SURICATA_YAML = "/etc/suricata/suricata.yaml"
"""Debian's, if the command line names none."""
CLOCK_S = 2.0
"""The kernel says when it was booted in whole seconds."""


def settings_of(files: HostFiles, pid: int) -> Settings | None:
    words = (files.text(f"proc/{pid}/cmdline") or "").split("\0")
    named = next((after for word, after in pairwise(words) if word == "-c"), "")
    named = named or next((w[2:] for w in words if re.match(r"-c[^-]", w)), SURICATA_YAML)
    inside = files.root / f"proc/{pid}/root"
    try:
        path = inside / named.lstrip("/")
        if not named.startswith("/"):
            path = inside / (files.link(f"proc/{pid}/cwd") or "").lstrip("/") / named
        document = read_own(path)
        started_s = _started_s(files, pid)
        newer = started_s is not None and path.stat().st_mtime > started_s + CLOCK_S
        return Settings(path=named, document=document, newer=newer)
    except PermissionError:
        files.lacks(f"{named} of Suricata (pid {pid})", TRACE)
    except BadInput as error:
        if "Permission denied" in error.message:
            files.lacks(f"{named} of Suricata (pid {pid})", TRACE)
    except OSError:
        pass
    return None


def _started_s(files: HostFiles, pid: int) -> float | None:
    """Since 1970."""
    ticks = (files.text(f"proc/{pid}/stat") or "").rpartition(")")[2].split()
    booted = re.search(r"^btime (\d+)", files.text("proc/stat") or "", re.MULTILINE)
    if booted is None or len(ticks) < 20:
        return None
    return int(booted[1]) + int(ticks[19]) / os.sysconf("SC_CLK_TCK")


def asked_for_counters(files: HostFiles, kernel: Kernel, program: Program) -> Program:
    path = _command_socket(files, program.pid)
    if path is None:
        return program
    state = (files.text(f"proc/{program.pid}/stat") or "").rpartition(")")[2].split()[:1]
    if state in (["T"], ["t"], ["D"]):
        files.lacks(f"counters of {program}", "a Suricata that runs: this one is stopped")
        return program
    try:
        counters, uptime, listed = kernel.suricata(
            path, [("dump-counters", {}), ("uptime", {}), ("iface-list", {})]
        )
        names = [str(name) for name in listed["ifaces"]]
        said = kernel.suricata(path, [("iface-stat", {"iface": name}) for name in names])
        interfaces = {
            name: {k: int(v) for k, v in one.items() if isinstance(v, int)}
            for name, one in zip(names, said, strict=True)
        }
        return replace(
            program,
            counters=dict(flattened(counters)),
            interfaces=interfaces,
            uptime_s=float(uptime),
        )
    except (TrialFailed, LookupError, TypeError, ValueError, AttributeError) as error:
        refused = "Permission denied" in str(error)
        needs = "root, or the group of its socket" if refused else "a Suricata that answers"
        files.lacks(f"counters of {program}", f"{needs} ({path.name})")
    return program


def _command_socket(files: HostFiles, pid: int) -> Path | None:
    try:
        open_here = files.open_files(pid)
    except PermissionError:
        files.lacks(f"counters of Suricata (pid {pid})", TRACE)
        return None
    for line in (files.text(f"proc/{pid}/net/unix") or "").splitlines()[1:]:
        words = line.split(None, 7)
        if len(words) == 8 and f"socket:[{words[6]}]" in open_here and words[7][0] == "/":
            return files.root / f"proc/{pid}/root" / words[7].lstrip("/")
    return None


def names_a_port(settings: Settings | None, ports: Sequence[str]) -> bool:
    """Whether a Suricata's file names one of the ports; a file that cannot be read may."""
    if settings is None:
        return True
    lists = (one for one in settings.document.values() if isinstance(one, list))
    return any(
        isinstance(entry, dict) and entry.get("interface") in ports
        for entries in lists
        for entry in entries
    )
