"""Listens for marked frames where they should not come: at all other ports of both hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from nodrop.hosts.seam import Json, OverhearJob
from nodrop.labs.crossing import ETHERTYPE, JOB_TIMEOUT_S, CableEnd
from nodrop.protocol.events import OverhearResult

MOST_NAMES = 4


@dataclass(frozen=True, slots=True)
class Place:
    """Where frames of one sender came that were not sent there."""

    port: str
    host: str
    packets: int

    @property
    def name(self) -> str:
        return f"{self.port} of {self.host}"

    @property
    def words(self) -> str:
        return f"{self.packets} to {self.name}"

    def facts(self) -> Json:
        return {"host": self.host, "port": self.port, "packets": self.packets}


class Overhearing:
    """To be entered before a frame leaves, and ended after the last has come. One job a host."""

    def __init__(self, one: CableEnd, other: CableEnd) -> None:
        self._pairs = ((one, other), (other, one))
        self._jobs: list[OverhearJob] = []
        self._heard: list[OverhearResult] = []

    def __enter__(self) -> Self:
        try:
            for end, _ in self._pairs:
                ports = [end.port, *end.others]
                spec = {"job": "overhear", "interfaces": ports, "ethertype": ETHERTYPE}
                self._jobs.append(end.host.job(spec))
                self._jobs[-1].start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for job in self._jobs:
            job.close()

    def end(self) -> None:
        for job in self._jobs:
            job.stop()
        self._heard = [job.result(timeout_s=JOB_TIMEOUT_S) for job in self._jobs]

    def lost(self) -> bool:
        """More came than could be counted."""
        return any(result["lost_packets"] for result in self._heard)

    def arrived(self, sender: CableEnd) -> int:
        """At the other end of the cable."""
        return sum(
            one["packets"]
            for (end, other), result in zip(self._pairs, self._heard, strict=True)
            for one in result["heard"]
            if one["source"] == sender.mac.lower() and one["interface"] == end.port
            if other is sender
        )

    def of(self, sender: CableEnd) -> Sequence[Place]:
        """All places but the other end of the cable. What comes back to the sender is one."""
        return [
            Place(one["interface"], end.host.name, one["packets"])
            for (end, other), result in zip(self._pairs, self._heard, strict=True)
            for one in result["heard"]
            if one["source"] == sender.mac.lower()
            and not (one["interface"] == end.port and other is sender)
        ]

    def words(self) -> str:
        """At which ports, besides those of the cable."""
        said = []
        for (end, _), job in zip(self._pairs, self._jobs, strict=True):
            names = [name for name in job.ready["interfaces"] if name != end.port]
            more = len(names) - MOST_NAMES
            some = ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
            said.append(f"{some or 'none'} of {end.host.name}")
        return "; ".join(said)
