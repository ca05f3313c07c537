"""A knob: a setting of a port or of the host, by where it stands and how its value is written.

Its state is one or more pieces: a file of /proc or /sys, or a struct of ethtool. A piece is read
and written as a text (`Raw`), so what was saved is put back without knowing what it means.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

Raw: TypeAlias = str
"""Content of a piece: a file's text, a struct in hex, a feature as two bits."""
HOST = ""
"""Port of a piece that belongs to the host."""


@dataclass(frozen=True, slots=True)
class Piece:
    port: str
    name: str
    """A struct's name, or a file: below /sys/class/net/PORT, or irq/N/…; of the host below /."""

    def __str__(self) -> str:
        return f"{self.port} {self.name}".strip()


class Device(Protocol):
    """Ports and host that are tuned: the kernel, or a simulated one."""

    def pieces(self, port: str) -> Sequence[Piece]:
        """Pieces of a port that can be read, in the order in which they must be written. BadInput
        if there is no such port."""
        ...

    def host_pieces(self, pattern: str) -> Sequence[Piece]:
        """Files of the host that match, below /."""
        ...

    def driver(self, port: str) -> str: ...

    def read(self, piece: Piece) -> Raw | None:
        """None if there is no such thing."""
        ...

    def write(self, piece: Piece, raw: Raw) -> None:
        """OSError if it is refused."""
        ...

    def flaps(self, port: str) -> int | None:
        """How often the link went up or down since the port is there."""
        ...


Edit: TypeAlias = Callable[[Raw, str], Raw]
"""The raw value that stands there, and a value → the raw value to be written. ValueError in words
for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    id: str
    title: str
    at: str
    """Pattern of the names of its pieces (a regular expression; of the host a glob)."""
    of_host: bool = False
    show: Callable[[Raw], str]
    edit: Edit
    values: str
    """Values that it takes, in words."""
    why: str
    """The knob's effect for a sensor."""
    wrong_when: str = ""
    source: str
    flaps: bool = False
    """Setting it takes the link down and up on drivers of hardware."""
    command: str = ""
    """By hand, with {port} and {value}; without one, a file is written."""
    link: str = ""
    """Key of a systemd .link file that sets it at boot."""
    words: Mapping[str, str] = field(default_factory=dict)
    """Value → as the command has it, if not the same."""

    def pieces(self, device: Device, port: str) -> list[Piece]:
        if self.of_host:
            return list(device.host_pieces(self.at))
        return [one for one in device.pieces(port) if re.fullmatch(self.at, one.name)]

    def shown(self, raws: Iterable[Raw]) -> str:
        """Each value once, in order: several queues mostly have the same."""
        return ", ".join(dict.fromkeys(self.show(raw) for raw in raws))

    def by_hand(self, port: str, value: str) -> str:
        return self.command.format(port=port, value=self.words.get(value, value))


RANKS = (
    r"channels",
    r"rings",
    r"mtu",
    r"tx_queue_len",
    r"feature/.*",
    r"private",
    r"rss",
    r"(tcp|udp|sctp|ip)[46]",
    r"coalesce",
    r"pause",
    r"threaded|gro_flush_timeout|napi_defer_hard_irqs",
    r"queues/.*",
    r"irq/.*",
)
"""Pieces of a port, in the order of writing: what is further down is undone by what is further up
(a change of the channels resets the hash table, forgets affinities, and makes queues anew)."""


def rank(piece: Piece) -> int:
    """Place in that order; the host's own come last."""
    if piece.port == HOST:
        return len(RANKS)
    return next((n for n, one in enumerate(RANKS) if re.fullmatch(one, piece.name)), len(RANKS))
