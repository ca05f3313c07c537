"""Real flows at the ports of this machine, watched beside their capture programs (`--watch`)."""

from __future__ import annotations

import ctypes
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from nodrop.audit.symmetry import Dealt, Meeting, group, mask_for, watch
from nodrop.audit.world import JudgedSnapshot
from nodrop.sensor.snapshot import CPU, QUEUE, Missing, ShownSetting, SnapshotPort

RATE_S = 0.3
"""Time over which the rate of a port is read, before a part of its flows is chosen."""
RX_PACKETS = 1
"""Column of /proc/net/dev."""
CLONE_NEWNET = 0x40000000
Made = TypeVar("Made")
Listeners = Callable[[SnapshotPort, int, int, int], list[socket.socket]]
"""Port, kind, members, mask → a fanout group of our own there; OSError if it may not be."""


@dataclass(slots=True)
class Watching:
    """A watch of real flows; tests bring a tree and listeners of their own."""

    root: Path = Path("/")
    listeners: Listeners = lambda port, kind, members, mask: _within(
        port.pid, lambda: group(port.name, kind, members, mask)
    )

    def watched(self, world: JudgedSnapshot, seconds: float) -> JudgedSnapshot:
        """World with what real flows show at the ports that somebody captures on."""
        groups: dict[str, list[tuple[Meeting, list[socket.socket]]]] = {}
        missing: list[Missing] = []
        before = [self._received(port) for port in world.ports]
        time.sleep(RATE_S)
        with ExitStack() as open_ones:
            for port, first in zip(world.ports, before, strict=True):
                what, last = f"real flows at {port.where}", self._received(port)
                if first is None or last is None:
                    missing.append(Missing(what, "its row in /proc/PID/net/dev"))
                    continue
                asked = _groups(world, port)
                for kind, members in sorted(asked):
                    try:
                        mask = mask_for((last - first) / RATE_S)
                        made = self.listeners(port, kind, members, mask)
                    except OSError:
                        missing.append(Missing(what, "root, or CAP_NET_RAW"))
                        continue
                    for one in made:
                        open_ones.enter_context(one)
                    meeting = Meeting(kind=kind, members=members)
                    groups.setdefault(port.where, []).append((meeting, made))
            if groups:
                watch([one for each in groups.values() for one in each], seconds)
        dealt = {where: tuple(one.dealt() for one, _ in each) for where, each in groups.items()}
        seen = replace(world, dealt=dealt, missing=(*world.missing, *missing))
        return replace(seen, values=(*world.values, *_flow_values(seen)))

    def _received(self, port: SnapshotPort) -> int | None:
        try:
            rows = (self.root / f"proc/{port.pid or 'self'}/net/dev").read_text().splitlines()
        except OSError:
            return None
        parted = (line.partition(":") for line in rows)
        found = [rest.split() for name, _, rest in parted if name.strip() == port.name]
        return int(found[0][RX_PACKETS]) if found else None


def _groups(world: JudgedSnapshot, port: SnapshotPort) -> set[tuple[int, int]]:
    """Kind and members of the groups that show how this port's packets are dealt: its queues, and
    what its capture programs deal by. Where nothing splits a flow, one member sees all: a mirror
    may have one direction alone."""
    found = {(QUEUE, port.queues)} if (port.queues or 1) > 1 else set()
    for where, _program, held in world.captures():
        kinds = {one.fanout_type for one in held} & {CPU, QUEUE}
        if where is port and len(held) > 1:
            found |= {(kind, len(held)) for kind in kinds if kind is not None}
    return {(kind, members) for kind, members in found if members} or {(QUEUE, 1)}


def _flow_values(world: JudgedSnapshot) -> Iterator[ShownSetting]:
    for port in world.ports:
        for one in world.flows(port):
            if one.members == 1:
                yield _unsplit(port, one)
                continue
            yield ShownSetting(
                f"flows at {port.where} whose directions meet, dealt by "
                f"{'queue' if one.kind == QUEUE else 'CPU'} to {one.members}",
                f"{one.together} of {one.both_ways} "
                f"({one.words or 'none was seen in both directions'}); {one.seen} flows seen",
                "a fanout group of nodrop's, for as long as --watch",
            )


def _unsplit(port: SnapshotPort, dealt: Dealt) -> ShownSetting:
    return ShownSetting(
        f"flows at {port.where}",
        f"{dealt.both_ways} of {dealt.seen} seen in both directions; "
        f"{'one queue, and ' if port.queues == 1 else ''}no program there deals packets by queue "
        "or by CPU, so nothing splits a flow",
        "a listener of nodrop's, for as long as --watch",
    )


def _within(pid: int | None, work: Callable[[], Made]) -> Made:
    """Done in the network namespace of a process, by a thread of its own, for a namespace is a
    thread's."""
    if pid is None:
        return work()
    made: list[Made] = []
    errors: list[OSError] = []

    def entered() -> None:
        try:
            there = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            try:
                libc = ctypes.CDLL(None, use_errno=True)
                if libc.setns(there, CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "setns")
            finally:
                os.close(there)
            made.append(work())
        except OSError as error:
            errors.append(error)

    thread = threading.Thread(target=entered)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return made[0]
