"""Capture sockets of a launched SUT, read from outside as long as it lives."""

from __future__ import annotations

from collections.abc import Sequence

from nodrop.errors import LabProblem
from nodrop.testbed.hosts.control_groups import SocketLook, SocketWatch
from nodrop.testbed.setups.api import Process

FROM_OUTSIDE = "the kernel's own counters of its sockets (BPF iterator)"


class OutsideSockets:
    """The sockets of one process tree on the ports with these names. To be closed."""

    def __init__(self, process: Process, ports: Sequence[str]) -> None:
        self._process, self._ports = process, tuple(ports)
        self._watch: SocketWatch | None = None
        self.seen: SocketLook | None = None
        """The last look."""

    def look(self) -> SocketLook | None:
        """None if the SUT has ended."""
        program = self._process.inside()
        if program is None or self._process.poll() is not None:
            return None
        if self._watch is None:
            self._watch = SocketWatch(program, self._ports)
        try:
            self.seen = self._watch.look()
        except LabProblem:
            if self._process.poll() is not None:
                return None
            raise
        return self.seen

    def owner_read(self) -> None:
        """The SUT was made to read its counters just now, at rest (SocketWatch.owner_read)."""
        if self._watch is not None:
            self._watch.owner_read()

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None
