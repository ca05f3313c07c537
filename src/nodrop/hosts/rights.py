"""What a program that nodrop starts may do: no more capabilities than its work takes.

Everything here reads what others wrote: packets, traces, rules. A bug in it is then no root.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SUT = ("NET_RAW",)
"""All that capturing takes; the same in every setup. To overhear frames takes no more."""
GENERATOR = ("NET_RAW", "NET_ADMIN", "SYS_NICE", "IPC_LOCK", "DAC_READ_SEARCH")
"""Sockets and AF_XDP; a real-time class; memory that stays; a user's own trace."""
SAMPLER = ("SYS_PTRACE", "DAC_READ_SEARCH")
"""To read /proc of whoever is measured."""
FLOOD = (*GENERATOR, "BPF")
"""A flood is a program of the kernel."""

KEEPER = ("KILL", "SYS_PTRACE", "DAC_READ_SEARCH")
"""To read the label of any process, and to end it (hosts/lease.py)."""


def of_job(spec: Mapping[str, Any]) -> tuple[str, ...] | None:
    """None keeps what nodrop has: a `probe` looks at the host once, a `trace` job at a file."""
    if str(spec.get("backend", "")).startswith("flood"):
        return FLOOD
    return {"replay": GENERATOR, "sink": SUT, "overhear": SUT, "sample": SAMPLER}.get(spec["job"])
