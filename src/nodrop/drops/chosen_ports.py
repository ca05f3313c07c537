"""A look at a host of which only the captures at chosen ports are kept."""

from __future__ import annotations

from collections.abc import Sequence

from nodrop.protocol import Captures

ANY = 0
"""Index of the port of a socket that takes packets from every port (`tcpdump -i any`)."""


def at_ports(seen: Captures, names: Sequence[str]) -> Captures:
    """Sockets at the ports of these names, and those that take from every port."""
    ports = [port for port in seen["ports"] if port["name"] in names]
    chosen = {(port["namespace"], port["index"]) for port in ports}
    sockets = [
        one
        for one in seen["sockets"]
        if (one["namespace"], one["ifindex"]) in chosen or one["ifindex"] == ANY
    ]
    pids = {socket["pid"] for socket in sockets}
    programs = {pid: one for pid, one in seen["programs"].items() if int(pid) in pids}
    return {**seen, "ports": ports, "sockets": sockets, "programs": programs}
